"""A run in a forked process cannot be told from one in a new interpreter."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.preloaded import Done, PytestServer, start_pytest

TESTS = """
import os, sys
import beside
def test_environment():
    print(os.getcwd(), sys.argv[1:], os.read(0, 9), os.environ.get("COLOR"), os.environ.get("PYTEST_VERSION"))
    print(sys.path, sys.flags.safe_path, sorted(os.listdir("/proc/self/fd")))
    assert beside.value == 2
def test_passes(tmp_path): pass
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PytestServer]:
    server = PytestServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "more").mkdir(parents=True)
    (folder / "more" / "beside.py").write_text("value = 1\n", encoding="ascii")
    (folder / "test_a.py").write_text(TESTS, encoding="ascii")
    return folder


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "COLOR": "blue",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(folder / "more"),
    }


def timeless(done: Done) -> Done:
    """What the process printed, without the time that it took."""
    return Done(status=done.status, stdout=re.sub(r"in \d+\.\d+s", "", done.stdout), stderr=done.stderr)


def test_a_forked_run_prints_what_a_new_interpreter_prints(server: PytestServer, project: Path) -> None:
    arguments = ["-p", "no:cacheprovider", "--basetemp=basetemp"]
    forked = server.run(arguments, folder=project, environment=environment(project))
    started = start_pytest(arguments, folder=project, environment=environment(project))
    assert forked.status == started.status == 1
    assert "assert 1 == 2" in forked.stdout
    assert timeless(forked) == timeless(started)


@pytest.mark.slow
def test_a_run_that_dies_leaves_the_server_alive(server: PytestServer, project: Path) -> None:
    (project / "test_a.py").write_text("import os\ndef test_a(): os.kill(os.getpid(), 9)\n", encoding="ascii")
    assert server.run(["-s"], folder=project, environment=environment(project)).status == -9
    (project / "test_a.py").write_text("import os\ndef test_a(): os._exit(7)\n", encoding="ascii")
    assert server.run(["-s"], folder=project, environment=environment(project)).status == 7
    (project / "test_a.py").write_text("def test_a(): pass\n", encoding="ascii")
    assert server.run(["-s"], folder=project, environment=environment(project)).status == 0


@pytest.mark.slow
def test_a_script_is_run_like_a_program_and_ends_after_its_time(server: PytestServer, project: Path) -> None:
    script = project / "more" / "script.py"
    script.write_text(
        "import sys, time\nimport beside\nprint(__name__, sys.argv[1:], beside.value, flush=True)\ntime.sleep(9)\n",
        encoding="ascii",
    )
    done = server.run(["a"], folder=project, environment={}, script=str(script), timeout_s=0.2)
    assert (done.status, done.stdout) == (-signal.SIGALRM, "__main__ ['a'] 1\n")
