"""What every test may use."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fakes.lean import lean_python

pytest_plugins = ["tests.fakes.tools"]

for _number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:  # as in the background of a shell; programs would inherit it
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

LONG = {"guides", "stories", "verdicts"}
"""Folders of tests that take seconds."""
CLIENT = {"test_anthropic.py", "test_model.py"}
"""Files of tests that import the SDK of the model's API, which takes each worker seconds."""

settings.register_profile(
    "repeatable", max_examples=40, derandomize=True, deadline=None
)  # a change is judged by the same few examples everywhere; `make soak-search` tries more
settings.register_profile("searching", max_examples=500, deadline=None)
settings.load_profile("repeatable")


gc.disable()  # nothing that collection makes is garbage, and going through it takes a quarter of its time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run whole stories first, so that short tests are left to share at the end; keep those of the SDK together."""

    def rank(item: pytest.Item) -> int:
        if item.path.relative_to(Path(__file__).parent).parts[0] in LONG:
            return 0
        return 1 if item.path.name in CLIENT else 2

    items.sort(key=rank)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage from here on, seldom and except among what is needed to the end."""
    gc.freeze()
    gc.set_threshold(20_000)  # parsing a package's modules takes a third of the time that the usual 700 let it take
    gc.enable()


PACKAGES = [Path(__file__).parents[1] / name for name in ("cdd_agent", "pytest_tdd_agent")]
_SOURCES = pytest.StashKey[dict[Path, tuple[int, bytes]]]()


def _read_sources() -> dict[Path, tuple[int, bytes]]:
    """Return the inode and the content of each source."""
    paths = [path for package in PACKAGES for path in package.rglob("*.py")]
    return {path: (path.stat().st_ino, path.read_bytes()) for path in paths}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember the sources, which no test may change."""
    session.stash[_SOURCES] = _read_sources()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test has removed sources, even if it has restored them: meanwhile, other tests lacked them."""
    if hasattr(session.config, "workerinput"):
        return
    before, now = session.stash[_SOURCES], _read_sources()
    kept = (path for path, (_, content) in before.items() if path in now and now[path][1] == content)  # not edited
    restored = [str(path) for path in kept if now[path][0] != before[path][0]]
    if restored:
        sys.stderr.write(f"\nTests have removed and restored {', '.join(restored)}.\n")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def _lean_python(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run the tests of small projects with few plugins, wherever the program looks for an interpreter."""
    os.environ["CDD_PYTHON"] = str(lean_python(tmp_path_factory.getbasetemp() / "lean"))


@pytest.fixture(scope="session", autouse=True)
def _nothing_shut_in() -> None:
    """Run the tests of small projects as plain processes, which is quickest; tests of the sandbox name their level."""
    os.environ["CDD_SANDBOX"] = "none"


@pytest.fixture(scope="session", autouse=True)
def _users_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what the program keeps for its user, approvals above all, out of the folder of whoever runs the tests."""
    state = tmp_path_factory.mktemp("users-state")
    os.environ["XDG_STATE_HOME"] = str(state)
    (state / "cdd").mkdir()
    (state / "cdd" / "marks").write_bytes(b"s" * 32)  # the same for all workers, which share projects with records
