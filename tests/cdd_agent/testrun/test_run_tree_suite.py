"""Tests in a run tree: what they import, read of git, and can change."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import GitExport, RunTree, RunTrees
from cdd_agent.sandbox.port import ISOLATING_LEVELS
from cdd_agent.testrun.access import SHOWN_PRIVATE, Original
from cdd_agent.testrun.inside import redirect
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from tests.cdd_agent.sandbox.conftest import at
from tests.cdd_agent.testrun.conftest import outcomes
from tests.fakes.cases import soak_after

TEST = """\
import os, subprocess, pathlib
import pkg

def test_the_code_is_new():
    assert pkg.VALUE == "new", pkg.__file__

def test_the_place():
    assert os.getcwd() == {here!r}
    assert pkg.__file__ == {here!r} + "/src/pkg.py"

def test_git():
    log = subprocess.run(["git", "log", "--format=%s"], capture_output=True, text=True)
    assert log.stdout.split() == {log!r}, log.stderr
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True)
    assert (status.stdout, status.stderr) == ("", "")

def test_the_secret_of_the_user():
    try:
        secret = pathlib.Path({home!r} + "/secret.txt").read_text()
    except OSError:
        secret = ""
    assert bool(secret) == {sees_all}
"""


class Ground:
    """A project whose installation is editable, and a run tree of it."""

    def __init__(self, folder: Path, *, level: str) -> None:
        self.home = folder / "project"
        self.home.mkdir()
        user = Repository.create(self.home)
        user.git("config", "user.name", "Ann")
        user.git("config", "user.email", "ann@example.org")
        (self.home / ".gitignore").write_text(".cdd/\n__pycache__/\n.pytest_cache/\nsecret.txt\n")
        (self.home / "src").mkdir()
        (self.home / "src" / "pkg.py").write_text("VALUE = 'old'\n")
        commit_paths(user, "first", paths=[".gitignore", "src/pkg.py"])
        own = self.home / ".cdd"
        self.tree: RunTree = RunTrees(user, own / "worktrees").tree("csv")
        self.level = level
        self.is_shown = level in ISOLATING_LEVELS
        self.export = GitExport(folder=own / "git" / "csv")
        (self.home / "src" / "pkg.py").write_text("VALUE = 'being edited by the user'\n")
        (self.home / "secret.txt").write_text("secret")
        head = user.read_head()
        assert head is not None
        self.tree.reset(head)
        (self.tree.root / "src" / "pkg.py").write_text("VALUE = 'new'\n")
        here = str(self.home if self.is_shown else self.tree.root)
        self.write_test(here, log=["second", "first"], sees_all=level == "none")
        self.head = commit_paths(self.tree.repository, "second", paths=["src/pkg.py", "test_a.py"])
        self.export.update(self.tree.repository, self.head, branch="main", shown_at=SHOWN_PRIVATE / "git" / "csv")

    def write_test(self, here: str, *, log: list[str], sees_all: bool) -> None:
        text = TEST.format(here=here, home=str(self.home), log=log, sees_all=sees_all)
        (self.tree.root / "test_a.py").write_text(text)

    def suite(self, interpreter: Interpreter) -> Suite:
        user = PytestSuite(root=self.home, interpreter=interpreter, sandbox=at(self.level), timeout_s=60, bytecode=None)
        git = self.export.folder if self.is_shown else None
        return user.in_run_tree(self.tree.root, original=Original(root=self.home, git=git))


@soak_after(1, "level", ["bwrap", "landlock", "none"])
def test_tests_in_a_run_tree_import_its_code_and_see_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, level: str, interpreter: Interpreter
) -> None:
    ground = Ground(tmp_path, level=level)
    # As an editable installation with a path file does, whose folders python adds to the path.
    monkeypatch.setenv("PYTHONPATH", str(ground.home / "src"))
    run = ground.suite(interpreter).run()
    assert run.report is not None, run.output
    assert outcomes(run) == {
        f"test_a.py::{name}": "passed"
        for name in ("test_the_code_is_new", "test_the_place", "test_git", "test_the_secret_of_the_user")
    }, run.output
    assert (ground.home / "src" / "pkg.py").read_text() == "VALUE = 'being edited by the user'\n"


@pytest.mark.slow
@soak_after(1, "level", ["bwrap", "landlock"])
def test_a_clean_copy_imports_its_own_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, level: str, interpreter: Interpreter
) -> None:
    ground = Ground(tmp_path, level=level)
    monkeypatch.setenv("PYTHONPATH", str(ground.home / "src"))
    repository, suite = ground.tree.repository, ground.suite(interpreter)
    (ground.tree.root / "src" / "pkg.py").write_text("VALUE = 'newer'\n")
    with clean_copy(repository, suite, green=ground.head, red=ground.head) as copy:
        here = str(ground.home if ground.is_shown else copy.root)
        ground.write_test(here, log=["copy"], sees_all=False)
        (copy.root / "test_b.py").write_text((ground.tree.root / "test_a.py").read_text())
        run = copy.run(("test_b.py",))
    assert run.report is not None, run.output
    failed = {name: how for name, how in outcomes(run).items() if how != "passed"}
    assert failed.keys() == {"test_b.py::test_git"}, run.output  # test_b.py itself is not committed
    assert "?? test_b.py" in run.output


FINDER = """\
import importlib.util, os, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pkg":
            return importlib.util.spec_from_file_location(name, os.environ["ORIGINAL"] + "/src/pkg.py")
sys.meta_path.append(Finder)
sys.path.append(os.environ["ORIGINAL"])
import sitecustomize
import pkg, json.decoder
print(pkg.VALUE, sys.path[-1] == os.environ["COPY"], sitecustomize.own)
"""


def test_a_finder_of_an_editable_installation_leads_to_the_copy(tmp_path: Path) -> None:
    for name, value in (("original", "old"), ("copy", "new")):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "pkg.py").write_text(f"VALUE = {value!r}\n")
    original, copy = str(tmp_path / "original"), str(tmp_path / "copy")
    for name in ("imports", "own"):
        (tmp_path / name).mkdir()
    shutil.copy(redirect.__file__, tmp_path / "imports" / "sitecustomize.py")
    (tmp_path / "imports" / "folders").write_text(f"{original}\0{copy}")
    (tmp_path / "own" / "sitecustomize.py").write_text("own = True\n")
    path = f"{tmp_path / 'imports'}:{tmp_path / 'own'}"
    variables = {"PYTHONPATH": path, "ORIGINAL": original, "COPY": copy}
    found = subprocess.run(
        [sys.executable, "-S", "-c", FINDER], capture_output=True, text=True, check=False, env=variables
    )
    assert (found.stdout, found.stderr) == ("new True True\n", "")
