"""A parent judges only if nothing but Python called pytest, and before code of the project runs."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.parent.start import find_loaded_module
from tests.fakes.cases import soak_after

from ..conftest import Project

SCRIPTS = Path(sys.executable).parent
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "pytest_tdd_agent", "--tdd-agent-report=report.json")
AUDIT = (*OPTIONS, "--tdd-agent-audit")
OTHERWISE = "pytest was not started as `pytest` or `python -m pytest`"

Command = Callable[[Sequence[str]], Sequence[str]]

STARTS: dict[str, tuple[Sequence[str], str]] = {
    "script": ((str(SCRIPTS / "pytest"),), ""),
    "function": ((sys.executable, "-c", "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"), OTHERWISE),
    "module": ((sys.executable, "-m", "pytest"), ""),
    "joined options": ((sys.executable, "-Bm", "pytest"), ""),
    "options": ((sys.executable, "-X", "dev", "-W", "ignore::UserWarning", "-P", "-m", "pytest"), ""),
    "run by a module": (
        (sys.executable, "-c", "import runpy; runpy.run_module('pytest', run_name='__main__')"),
        OTHERWISE,
    ),
    "profiler": ((sys.executable, "-m", "cProfile", "-o", "profile", "-m", "pytest"), OTHERWISE),
    "coverage": ((sys.executable, "-m", "coverage", "run", "-m", "pytest"), OTHERWISE),
    "debugger": ((sys.executable, "-m", "pdb", "-c", "continue", "-m", "pytest"), OTHERWISE),
    "interactive": ((sys.executable, "-i", "-m", "pytest"), OTHERWISE),
    "trace": ((sys.executable, "-m", "pytest", "-p", "tracing"), "traces pytest"),
    "plugin of the project": (
        (sys.executable, "-m", "pytest", "-p", "own_plugin"),
        "loaded own_plugin.py of the project",
    ),
}


@soak_after(2, "name", STARTS)
def test_a_parent_judges_a_pytest_that_was_started_alone(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, reason = STARTS[name]
    project.write(test_a="def test_a(): ...\n", own_plugin="")
    tracing = project.folder.parent / "tracing.py"
    tracing.write_text("import sys\nsys.settrace(lambda *_: None)\n")
    monkeypatch.setenv("PYTHONPATH", str(tracing.parent), prepend=":")
    done = project.start(*command, *AUDIT)
    report = load(project.folder / "report.json")
    assert (report.complete, report.supervised, len(report.tests)) == (True, not reason, 1), done.output
    assert ("judged without a parent process" in done.output) == bool(reason)
    assert reason in done.output


def find(project: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what is found if a module with this file is loaded, and nothing else."""
    module = ModuleType("loaded")
    module.__file__ = str(file)
    config = SimpleNamespace(rootpath=project, invocation_params=SimpleNamespace(dir=project))
    with monkeypatch.context() as loaded:
        loaded.setattr(sys, "modules", {"loaded": module})
        return find_loaded_module(cast(pytest.Config, config))


def test_a_file_of_the_project_is_one_in_its_repository_that_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository/.git").mkdir(parents=True)
    project = tmp_path / "repository/package"
    (tmp_path / "link").symlink_to(tmp_path / "repository")
    found = {
        name: find(project, tmp_path / name, monkeypatch)
        for name in (
            "repository/package/json.py",
            "repository/package/.tox/plugin.py",
            "repository/other/plugin.py",
            "link/other/plugin.py",
            "repository/.venv/lib/python3.11/site-packages/xdist/__init__.py",
            "elsewhere/sitecustomize.py",
        )
    }
    assert list(found.values()) == ["json.py", ".tox/plugin.py", "../other/plugin.py", "../other/plugin.py", None, None]
    assert find(project, Path(sys.executable).parent / "pytest", monkeypatch) is None
