"""Python's ``unittest``, for projects without pytest: finds it, and runs it by ``unittest_program``."""

import re
import shutil
from itertools import islice
from pathlib import Path

import pytest_tdd_agent
from cdd_agent.testrun import inside
from cdd_agent.testrun.frameworks.framework import FinishedRun, FrameworkMatch, ParsedResults
from cdd_agent.testrun.frameworks.reports import REPORT, read_lines
from cdd_agent.testrun.frameworks.sources import list_own_files, match_path, read_text
from cdd_agent.testrun.interpreter import FOLDERS

PROGRAM = "unittest_program.py"

_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_PLACES = ("test*.py", "tests/**/test*.py", "test/**/test*.py", "*/test*.py", "*/tests/**/test*.py")
_FILES_CAP = 200
_IMPORTS = re.compile(r"^\s*(?:import unittest|from unittest)\b", re.MULTILINE)
_IS_PYTEST = re.compile(r"^\s*(?:import pytest|from pytest)\b", re.MULTILINE)
is_test = match_path(r"(?:^|/)test[^/]*\.py$|(?:^|/)tests?/")


def find(folder: Path) -> FrameworkMatch | None:
    """Look for test files that import unittest and not pytest, in the places of unittest's discovery."""
    for path in islice(list_own_files(folder, *_PLACES), _FILES_CAP):
        text = read_text(path)
        if _IMPORTS.search(text) and not _IS_PYTEST.search(text):
            inside = path.relative_to(folder)
            manifests = (folder / name for name in (*_MANIFESTS, inside.parts[0]))
            manifest = next(path for path in manifests if path.exists())
            pythons = (folder / name / "bin" / "python" for name in FOLDERS)
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
