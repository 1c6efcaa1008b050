"""Which interpreter runs a project's tests: found by fixed rules, then asked whether it has pytest."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing

PROBE_TIMEOUT_S = 30.0
_PROBE = "import json, sys, pytest; print(json.dumps(['%d.%d.%d' % sys.version_info[:3], pytest.__version__]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can run the project's tests."""

    path: Path
    origin: str
    """The rule that found it."""
    python: str
    pytest: str


def find_interpreter(project: Path, *, environment: Mapping[str, str] = os.environ) -> Interpreter:
    """The interpreter of ``project``: its own environment folder, uv's, poetry's, the active one, this one.

    The first that exists is the project's; if pytest is missing there, that is an ``EnvironmentMissing``, never a
    reason to judge the project with another environment's packages.
    """
    origin, path = next(_candidates(project, environment))
    found = _probe(path, _python_path(project, environment))
    if found is None:
        raise EnvironmentMissing(
            f"pytest cannot be imported by the project's interpreter {path} ({origin}).",
            hint=f"{path} -m pip install pytest",
        )
    return Interpreter(path=path, origin=origin, python=found[0], pytest=found[1])


def _candidates(project: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Rule and interpreter, in the order in which they count."""
    if "UV_PROJECT_ENVIRONMENT" in environment:
        yield from _in_folder("UV_PROJECT_ENVIRONMENT", project / environment["UV_PROJECT_ENVIRONMENT"])
    for name in (".venv", "venv", "env"):
        yield from _in_folder(name, project / name)
    if (project / "poetry.lock").exists() and (poetry := shutil.which("poetry")):
        folder = _output([poetry, "env", "info", "--path"], project)
        if folder:
            yield from _in_folder("poetry", Path(folder))
    if "VIRTUAL_ENV" in environment:
        yield from _in_folder("VIRTUAL_ENV", Path(environment["VIRTUAL_ENV"]))
    yield "the interpreter that runs cdd", Path(sys.executable)


def _in_folder(origin: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The interpreter of the virtual environment at ``folder``, if it is one."""
    python = folder / "bin" / "python"
    if (folder / "pyvenv.cfg").exists() and python.exists():
        yield origin, python


def _python_path(project: Path, environment: Mapping[str, str]) -> str:
    """The user's PYTHONPATH as a run in ``project`` sees it."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(str(project / entry) for entry in entries if entry)


def _probe(python: Path, python_path: str) -> tuple[str, str] | None:
    """Versions of Python and pytest there, or None; asked outside the project so that no file of it shadows pytest."""
    variables = {"PYTHONPATH": python_path} if python_path else {}
    answer = _output([str(python), "-c", _PROBE], Path(os.sep), variables=variables)
    if not answer:
        return None
    version, pytest_version = json.loads(answer.splitlines()[-1])
    return version, pytest_version


def _output(argv: list[str], folder: Path, *, variables: Mapping[str, str] | None = None) -> str:
    """What a program prints, or nothing if it fails or takes too long."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANTHROPIC"))}
    environment |= variables or {}
    try:
        result = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
