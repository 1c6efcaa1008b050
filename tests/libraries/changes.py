"""``python -m tests.libraries.changes [names]``: how one true change of each library is judged.

The change is a release. The newer release is committed with the code of the older one, and a model hands in the newer
code for the tests that fail, as in ``cdd green``. ``--refactor`` commits the older release, and asks for the change as
one of structure. The libraries are installed in editable form, as their developers do. Exit status 1 if a gate of GREEN
closes, for then an honest change was refused.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.sandbox.choice import choose
from cdd_agent.testrun.interpreter import find_interpreter
from cdd_agent.testrun.suite import PYTEST
from tests.libraries.catalog import LIBRARIES, Library
from tests.verdicts.change import Change
from tests.verdicts.judge import Place, judge, write

FOLDER = Path(__file__).parents[2] / ".venv" / "library-changes"
CHANGED = (*LIBRARIES, Library("tqdm", "4.70.1", ("pytest-asyncio", "pytest-timeout", "numpy"), before="4.70.0"))
TIMEOUT_S = 300
_NO_PRODUCT = ("setup.py", "docs/", "bench/", "benchmarks/", "examples/", "typing-examples/", "tasks.py", "conftest.py")


@dataclass(frozen=True)
class Releases:
    """Two releases of a library, unpacked, and an environment with what its tests need."""

    library: Library

    @property
    def folder(self) -> Path:
        return FOLDER / self.library.name

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def prepare(self) -> None:
        """Download what is not there yet."""
        for version in (self.library.before, self.library.version):
            if not list((self.folder / version).glob("*.tar.gz")):
                pin = f"{self.library.name}=={version}"
                pip("download", "--no-deps", "--no-binary", self.library.name, "-d", str(self.folder / version), pin)
        if not self.python.exists():
            venv.create(self.folder / "venv", with_pip=False, symlinks=True)
            # The library itself brings what it requires; its installation in editable form replaces it later.
            self.install("pytest", self.library.pin, *self.library.needs)

    def install(self, *arguments: str) -> None:
        """Install into the environment."""
        pip("--python", str(self.python), "install", *arguments)

    def read(self, version: str) -> dict[str, str]:
        """Return path -> text of the files of a release, without its metadata."""
        unpacked = self.folder / version / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        shutil.unpack_archive(next((self.folder / version).glob("*.tar.gz")), unpacked, filter="data")
        root, found = next(unpacked.iterdir()), {}
        for file in sorted(file for file in root.rglob("*") if file.is_file() and not file.is_symlink()):
            path = file.relative_to(root).as_posix()
            if ".egg-info/" not in path and path != ".gitignore":
                try:
                    found[path] = file.read_bytes().decode("utf-8")
                except UnicodeDecodeError:
                    continue  # a picture
        return found

    def run(self, project: Path) -> dict[str, str]:
        """Return the outcome of each test of the release in ``project``."""
        out = self.folder / "outcomes.json"
        out.unlink(missing_ok=True)
        plugins = {"PYTHONPATH": str(Path(__file__).parent), "NODE_OUTCOMES": str(out)}
        command = [str(self.python), "-B", "-m", "pytest", "-q", "-p", "node_outcomes", "-p", "no:cacheprovider"]
        subprocess.run(
            command,
            cwd=project,
            env={**os.environ, **plugins},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        noted: dict[str, tuple[str, str]] = json.loads(out.read_text(encoding="utf-8"))
        return {nodeid: outcome for nodeid, (outcome, _) in noted.items()}


def pip(*arguments: str) -> None:
    """Run pip, quietly."""
    subprocess.run([sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", *arguments], check=True)


def is_product(path: str) -> bool:
    """Return whether a file of a release is part of the change."""
    return path.endswith((".py", ".pyi")) and not path.startswith(_NO_PRODUCT) and not PYTEST.is_test(path)


def make_change(releases: Releases, project: Path, *, is_refactor: bool) -> Change:
    """Lay both releases at ``project``, install them there, and return the change with the tests that it makes pass."""
    old, new = releases.read(releases.library.before), releases.read(releases.library.version)
    changed = {path for path in old.keys() | new.keys() if is_product(path) and old.get(path) != new.get(path)}
    before = {path: text for path, text in old.items() if is_product(path)}
    others = {path: text for path, text in (old if is_refactor else new).items() if not is_product(path)}
    after = {path: new.get(path) for path in sorted(changed)}
    change = Change(
        kind="honest",
        why="a release",
        phase="refactor" if is_refactor else "green",
        title=f"{releases.library.name} {releases.library.version}",
        tests=others,
        before=before,
        after=after,
        hidden="",
    )
    write({**before, **others}, project)
    releases.install("--no-deps", "-e", str(project))
    first = {} if is_refactor else releases.run(project)
    write(after, project)
    second = releases.run(project)
    targets = tuple(nodeid for nodeid, outcome in second.items() if outcome == "passed" != first.get(nodeid))
    shutil.rmtree(project)
    return replace(change, targets=targets)


def show(library: Library, folder: Path, *, level: str, is_refactor: bool) -> bool:
    """Print how the change of a library is judged. Return whether the gate is open."""
    releases, began, project = Releases(library), time.monotonic(), folder / library.name / "project"
    releases.prepare()
    change = make_change(releases, project, is_refactor=is_refactor)
    os.environ.update(CDD_PYTHON=str(releases.python), XDG_STATE_HOME=str(folder / "state"))
    (folder / library.name / "bytecode").mkdir()
    place = Place(
        interpreter=find_interpreter(folder),
        bytecode=folder / library.name / "bytecode",
        sandbox=choose(level, unattended=False),
        timeout_s=TIMEOUT_S,
    )
    counts = f"{len(change.targets)} targets, {len(change.after)} changed files"
    name = f"{library.name} {library.before} to {library.version}"
    if not change.targets:
        print(f"{name:<38} no test tells the releases apart")
        return True
    outcome = judge(change, project, place=place)
    cost = f"run {outcome.full_run_s:.1f} s, checks {outcome.evidence_s:.1f} s"
    print(f"{name:<38} {outcome.summary} ({counts}; {cost}; {time.monotonic() - began:.0f} s in all)")
    for line in (*outcome.reasons, *outcome.notices):
        print(f"    {line}")
    sys.stdout.flush()
    return outcome.is_open


def main(arguments: list[str]) -> int:
    """Print a paragraph for each library."""
    options = argparse.ArgumentParser(prog="python -m tests.libraries.changes")
    options.add_argument("--level", default="auto", help="of the sandbox (default: auto)")
    options.add_argument("--refactor", action="store_true", help="ask for the change as one of structure")
    options.add_argument("names", nargs="*", help="of libraries (default: all)")
    chosen = options.parse_args(arguments)
    status = 0
    with tempfile.TemporaryDirectory(prefix="cdd-changes-", ignore_cleanup_errors=True) as name:
        for library in (each for each in CHANGED if not chosen.names or each.name in chosen.names):
            is_open = show(library, Path(name), level=chosen.level, is_refactor=chosen.refactor)
            status |= not is_open and not chosen.refactor
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
