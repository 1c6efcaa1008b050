"""Which folder of a repository is the project: the nearest one upwards that has tests of its own, by rules.

A plain repository is one project, wherever in it somebody stands: that a folder holds Python or tests is not enough, a
manifest, or a framework that no folder above it has, is. Runs nothing.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent import settings
from cdd_agent.errors import DocumentError
from cdd_agent.testrun.frameworks.compiled import CARGO, DOTNET, GRADLE, MAVEN, NEXTEST
from cdd_agent.testrun.frameworks.detection import PYTEST, candidates, content_of, is_loose, why_pytest
from cdd_agent.testrun.frameworks.plain import MAKE, UNITTEST
from cdd_agent.tickets.ticket import all_tickets
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

_OF_TESTS = frozenset({"test", "tests", "testing", "testdata", "fixtures", "spec", "__tests__", "__fixtures__"})
"""Folders in which what looks like a package belongs to the tests of the one around it."""
_CONFIGURES = ("pytest.ini", "tox.ini", "setup.cfg", "requirements.txt")
_PACKAGES = ("setup.py", "Pipfile", "uv.lock", "poetry.lock", "pdm.lock")
_PACKAGE = re.compile(rb"^\[(?:project|build-system|tool\.(?:poetry|pytest)\b[\w.]*)\]", re.MULTILINE)
_SAYS = re.compile(rb"^(?:framework|test_command)\s*:", re.MULTILINE)
_BY_HAND = frozenset({PYTEST, UNITTEST.name, MAKE.name})
"""Frameworks that are found by less than a manifest."""


def project_at(here: Path, *, top: Path) -> Path:
    """The project of somebody who stands in ``here``, a folder at or below ``top``.

    It is the nearest folder upwards with tickets, a settings file, or a framework of its own; else ``top``. A package
    inside a project that has tickets and a framework is a part of it: its tickets are meant.
    """
    way = tuple(_upwards(here, top))
    for number, folder in enumerate(way):
        if folder == top or _is_settled(folder):
            return folder
        if _is_package(folder, top=top):
            around = (each for each in way[number + 1 :] if all_tickets(each) and candidates(each))
            return next(around, folder)
    return top


def projects_of(root: Path, files: Iterable[str]) -> dict[Path, str]:
    """Folder at or below ``root`` -> the first of ``files``, relative to ``root``, that belongs to it."""
    found: dict[Path, str] = {}
    for file in files:
        path = root / file
        found.setdefault(project_at(path if path.is_dir() else path.parent, top=root), file)
    return found


def has_framework(root: Path) -> bool:
    """Whether the tests of ``root`` itself are found, or its settings, approved or not, say what runs them."""
    try:
        told = settings.offered(root)
    except DocumentError:
        return True
    return (told is not None and _SAYS.search(told.content) is not None) or bool(_names(root, is_top=True))


def _upwards(here: Path, top: Path) -> Iterator[Path]:
    """Folders that are there, from ``here`` to ``top``; ``top`` alone if ``here`` lies elsewhere."""
    if here.is_relative_to(top):
        yield from (folder for folder in (here, *here.parents) if folder.is_relative_to(top) and folder.is_dir())
    else:
        yield top


def _is_settled(folder: Path) -> bool:
    """Whether somebody has made it a project of ours."""
    return (folder / settings.CONFIG_FILE).is_file() or bool(all_tickets(folder))


def _is_package(folder: Path, *, top: Path) -> bool:
    """Whether a folder below ``top`` has a framework of its own."""
    parts = folder.relative_to(top).parts
    if any(part.startswith(".") or part in IGNORED_FOLDERS | _OF_TESTS for part in parts):
        return False
    above = tuple(_upwards(folder.parent, top))
    names = _names(folder)
    if any(name not in _BY_HAND and not _is_member(folder, name, above=above) for name in names):
        return True
    if PYTEST in names and _is_pythons(folder):
        return True
    around = frozenset[str]().union(*(_names(each, is_top=each == top) for each in above))
    if PYTEST in names:
        return PYTEST not in around and why_pytest(folder, is_alone=False) is not None
    return bool(names) and not around


def _names(folder: Path, *, is_top: bool = False) -> frozenset[str]:
    """The frameworks of a folder, as far as they are its own: Python files in folders below it may be those'.

    Those of ``top`` are, unless there are packages beside them.
    """
    if is_loose(folder) and (not is_top or any(map(_has_manifest, _below(folder)))):
        return frozenset()
    return frozenset(found.name for found in candidates(folder))


def _has_manifest(folder: Path) -> bool:
    """Whether more than Python files says that it is a package."""
    names = {found.name for found in candidates(folder)}
    configures = any((folder / name).is_file() for name in _CONFIGURES)
    return not names <= _BY_HAND or (PYTEST in names and (configures or _is_pythons(folder)))


def _below(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    yield from (folder / name for name in names if not name.startswith(".") and name not in IGNORED_FOLDERS | _OF_TESTS)


def _is_pythons(folder: Path) -> bool:
    """Whether it is a package, or a project with locked dependencies."""
    has_lock = any((folder / name).is_file() for name in _PACKAGES)
    return has_lock or _PACKAGE.search(content_of(folder / "pyproject.toml")) is not None


def _is_member(folder: Path, name: str, *, above: tuple[Path, ...]) -> bool:
    """Whether a build that is begun further up runs the folder's tests too."""
    return not _begins_build(folder, name) and any(_begins_build(each, name) for each in above)


def _begins_build(folder: Path, name: str) -> bool:
    match name:
        case CARGO.name | NEXTEST.name:
            return re.search(rb"^\[workspace\b", content_of(folder / "Cargo.toml"), re.MULTILINE) is not None
        case MAVEN.name:
            return b"<modules>" in content_of(folder / "pom.xml")
        case GRADLE.name:
            return any((folder / f"settings.gradle{end}").is_file() for end in ("", ".kts"))
        case DOTNET.name:
            return any(next(folder.glob(pattern), None) for pattern in ("*.sln", "*.slnx"))
    return False
