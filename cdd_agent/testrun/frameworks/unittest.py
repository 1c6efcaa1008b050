"""Python's ``unittest``, for projects without pytest: finds it, and runs it by ``unittest_program``."""

import re
import shutil
from itertools import chain, islice
from pathlib import Path

import pytest_tdd_agent
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun import inside
from cdd_agent.testrun.frameworks.framework import FinishedRun, FrameworkMatch, ParsedResults
from cdd_agent.testrun.frameworks.reports import REPORT, read_lines
from cdd_agent.testrun.frameworks.sources import match_path

PROGRAM = "unittest_program.py"

_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_PLACES = ("test*.py", "tests/**/test*.py", "test/**/test*.py", "*/test*.py", "*/tests/**/test*.py")
_NOT_OWN = ("venv", "env", "node_modules", "site-packages")
_FILES_CAP = 200
_IMPORTS = re.compile(rb"^\s*(?:import unittest|from unittest)\b", re.MULTILINE)
_IS_PYTEST = re.compile(rb"^\s*(?:import pytest|from pytest)\b", re.MULTILINE)
is_test = match_path(r"(?:^|/)test[^/]*\.py$|(?:^|/)tests?/")


def find(folder: Path) -> FrameworkMatch | None:
    """Look for test files that import unittest and not pytest, in the places of unittest's discovery."""
    found = chain.from_iterable(folder.glob(pattern) for pattern in _PLACES)
    for path in islice(found, _FILES_CAP):
        inside = path.relative_to(folder)
        if any(part.startswith(".") or part in _NOT_OWN for part in inside.parts):
            continue
        try:
            data = read_ordinary(path, limit_bytes=1_000_000)
        except OSError:
            continue
        if _IMPORTS.search(data) and not _IS_PYTEST.search(data):
            manifests = (folder / name for name in (*_MANIFESTS, inside.parts[0]))
            manifest = next(path for path in manifests if path.exists())
            pythons = (folder / name / "bin" / "python" for name in (".venv", "venv", "env"))
            python = next((str(path) for path in pythons if path.exists()), "python3")
            return FrameworkMatch(manifest=manifest, argv=(python,), why=f"{inside.as_posix()} imports unittest")
    return None


def build_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Copy the program and the plugin's rules for failures into ``results``."""
    package = Path(pytest_tdd_agent.__file__).parent
    rules = results / "tdd_agent_rules"
    rules.mkdir()
    for name in ("failure.py", "missing_names.py", "report.py", "fingerprint.py"):
        shutil.copy(package / name, rules)
    (rules / "__init__.py").touch()
    shutil.copy(Path(inside.__file__).with_name(PROGRAM), results)
    return ("-B", str(results / PROGRAM), str(results / REPORT), *files)


def read(run: FinishedRun) -> ParsedResults:
    """Read the lines that the program wrote."""
    return read_lines(run, "unittest", describe=lambda line: line.failure)
