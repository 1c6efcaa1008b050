"""Which framework runs a project's tests: what the user says, else what the files of the project say. Runs nothing.

Which folder of a repository is the project: the nearest one upwards that has tests of its own, by rules.

A plain repository is one project, wherever in it somebody stands: that a folder holds Python or tests is not enough, a
manifest, or a framework that no folder above it has, is. Runs nothing.

"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from cdd_agent import settings
from cdd_agent.errors import DocumentError, EnvironmentMissing, UsageError
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.dotnet import DOTNET
from cdd_agent.testrun.frameworks.framework import Finding, Framework
from cdd_agent.testrun.frameworks.go import GO
from cdd_agent.testrun.frameworks.javascript import JEST, MOCHA, NODE, VITEST
from cdd_agent.testrun.frameworks.jvm import GRADLE, MAVEN
from cdd_agent.testrun.frameworks.make import MAKE
from cdd_agent.testrun.frameworks.pytest_command import runs_pytest
from cdd_agent.testrun.frameworks.rust import CARGO, NEXTEST
from cdd_agent.testrun.frameworks.unittest import UNITTEST
from cdd_agent.tickets.ticket import all_tickets
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

PYTEST = "pytest"
LOOKED_FOR = "a Python project (pyproject.toml, setup.py, pytest.ini, *.py ...)"
"""What makes a project one of pytest's, in words."""
COMMAND = replace(MAKE, name="command", looked_for="test_command in .cdd/config.yaml", find=lambda _: None)
"""Whatever else a person types to run tests: only its exit status is known."""
FRAMEWORKS = (VITEST, JEST, MOCHA, NODE, NEXTEST, CARGO, GO, MAVEN, GRADLE, DOTNET, UNITTEST, MAKE)

_LAST = frozenset({UNITTEST.name, MAKE.name})
"""Looked at only where nothing else is found."""
_DEEPEST = 3
_MOST_FOLDERS = 2_000
_PROJECT = (
    *("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile", "requirements.txt"),
    *("uv.lock", "poetry.lock", "pdm.lock", "hatch.toml", "environment.yml", ".pdm-python"),
)
_CONFIGURED = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "conftest.py", "tests/conftest.py")
_MENTIONS = ("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements.txt", "requirements-dev.txt")
_TEST_FILES = ("test_*.py", "*_test.py", "tests/test_*.py", "tests/*/test_*.py", "test/test_*.py", "src/*/test_*.py")
_SOURCES = ("*.py", "src/*.py", "src/*/*.py", "tests/*.py")
_BELOW = ("*/*.py",)
_ENVIRONMENTS = (".venv", "venv", "env")
_WORDS = (
    (r"(?:.*/)?vitest(?:\.m?js)?", VITEST.name),
    (r"(?:.*/)?jest(?:\.js)?", JEST.name),
    (r"(?:.*/)?_?mocha(?:\.js)?", MOCHA.name),
    (r"nextest", NEXTEST.name),
    (r"(?:.*/)?cargo", CARGO.name),
    (r"(?:.*/)?go", GO.name),
    (r"(?:.*/)?mvnw?", MAVEN.name),
    (r"(?:.*/)?gradlew?", GRADLE.name),
    (r"(?:.*/)?dotnet", DOTNET.name),
    (r"unittest", UNITTEST.name),
)
"""Word of a command -> the framework that it runs, the first rule that fits any word."""
_SCRIPTS = frozenset({"npm", "pnpm", "yarn", "bun"})
_SHELL = re.compile(r"[;&|<>$`*?(){}\n]")

Choose: TypeAlias = Callable[[str, tuple[str, ...]], int]
"""Asks a person which of several is meant: a question, what there is to choose from; the number of the answer."""


class NoFramework(EnvironmentMissing):
    """Nothing in the project's folder says how its tests are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What runs the tests."""

    framework: Framework | None
    """None: pytest."""
    finding: Finding

    @property
    def name(self) -> str:
        """As the setting calls it."""
        return PYTEST if self.framework is None else self.framework.name


def detect(root: Path, *, framework: str = "", command: str = "", choose: Choose | None = None) -> Found:
    """What runs the tests of the project in ``root``; ``framework`` and ``command`` are what the user says of it.

    Raises ``EnvironmentMissing`` if nothing is found, or several and nobody can be asked; the error says what was
    looked for, or what to write.
    """
    if command:
        return _of_command(root, command, framework=framework)
    if framework:
        return _named(root, framework)
    found = candidates(root)
    if not found:
        raise _nothing(root)
    if len(found) == 1:
        return found[0]
    if choose is None:
        raise _several(root, found)
    asked = tuple(f"{each.name}: {each.finding.why}" for each in found)
    return found[choose("Several test frameworks are found here. Which one runs the tests?", asked)]


def candidates(root: Path) -> tuple[Found, ...]:
    """Every framework that the files in ``root`` speak of, but those that another one stands for."""
    others = [Found(framework=each, finding=found) for each in FRAMEWORKS if (found := each.find(root))]
    names = {found.name for found in others}
    if NEXTEST.name in names:
        others = [found for found in others if found.name != CARGO.name]
    first = [found for found in others if found.name not in _LAST]
    why = why_pytest(root, is_alone=not first)
    if why is not None:
        manifest = next((root / name for name in (*_CONFIGURED, *_PROJECT) if (root / name).is_file()), root)
        python = Found(framework=None, finding=Finding(manifest=manifest, argv=(PYTEST,), why=why))
        return (python, *first)
    return tuple(first) or tuple(others[:1])


def why_pytest(root: Path, *, is_alone: bool) -> str | None:
    """Why a project's tests are pytest's; a Python file is enough only where no other framework is found."""
    for name in _CONFIGURED:
        if (root / name).is_file():
            return f"there is {name}"
    for pattern in _TEST_FILES:
        if found := next(root.glob(pattern), None):
            return f"there is {found.relative_to(root).as_posix()}"
    for name in _MENTIONS:
        if re.search(rb"\bpytest\b", content_of(root / name)):
            return f"{name} names pytest"
    if is_alone and (alone := next(_told_alone(root, (*_SOURCES, *_BELOW)), None)):
        return f"there is {alone.relative_to(root).as_posix()}"
    return None


def is_loose(root: Path) -> bool:
    """Whether nothing but a Python file in some folder of its makes the project one of pytest's."""
    found = [each.name for each in candidates(root)]
    return found == [PYTEST] and why_pytest(root, is_alone=False) is None and not any(_told_alone(root, _SOURCES))


def _told_alone(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """What makes a project Python's where no other framework is found, sources by ``patterns``."""
    environments = (root / name / "pyvenv.cfg" for name in _ENVIRONMENTS)
    yield from (path for path in (*(root / name for name in _PROJECT), *environments) if path.is_file())
    sources = (path for pattern in patterns for path in root.glob(pattern))
    yield from (path for path in sources if IGNORED_FOLDERS.isdisjoint(path.relative_to(root).parts))


def content_of(path: Path) -> bytes:
    """What is in a file of a project, nothing if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=4_000_000)
    except OSError:
        return b""


def _of_name(name: str) -> Framework | None:
    """The framework of a name, None for pytest; raises ``UsageError`` for another word."""
    known = {each.name: each for each in FRAMEWORKS}
    if name != PYTEST and name not in known:
        raise UsageError(f"framework: {name} is none that cdd knows.", hint=f"say one of {', '.join((PYTEST, *known))}")
    return known.get(name)


def _named(root: Path, name: str) -> Found:
    framework, why = _of_name(name), "the settings say so"
    if framework is None:
        return Found(framework=None, finding=Finding(manifest=root, argv=(PYTEST,), why=why))
    finding = framework.find(root)
    if finding is None:
        raise EnvironmentMissing(
            f"The settings say framework: {name}, and in {root} there is not what it is known by: "
            f"{framework.looked_for}.",
            hint="correct framework in .cdd/config.yaml, or say there how the tests are run: test_command: COMMAND",
        )
    return Found(framework=framework, finding=replace(finding, why=f"{why}; {finding.why}"))


def _of_command(root: Path, command: str, *, framework: str) -> Found:
    """What a command of the user's runs: by its words if no framework is named; unknown ones tell an exit status."""
    is_shells = _SHELL.search(command) is not None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"test_command cannot be read: {error}.", hint="quote it as in a shell") from error
    if not words:
        raise UsageError("test_command is empty.", hint="write the command that runs all tests")
    why = "test_command says so"
    if framework:
        known = _of_name(framework)
    elif is_shells:
        known = COMMAND
    else:
        name = PYTEST if runs_pytest(root, words) else _told_by(words)
        known = None if name == PYTEST else _by_scripts(root, words) if name is None else _of_name(name)
    argv = tuple(words)
    if known is UNITTEST:
        argv = argv[:1]
    elif is_shells and known is not None:
        argv = ("sh", "-c", f'{command} "$@"' if known is not COMMAND else command, "sh")
    elif words[0] == "npm" and known is not COMMAND and "--" not in words:
        argv = (*argv, "--")
    return Found(framework=known, finding=Finding(manifest=root, argv=argv, why=why))


def _told_by(words: list[str]) -> str | None:
    """The framework that a command names."""
    if "node" in (os.path.basename(word) for word in words) and "--test" in words:
        return NODE.name
    for pattern, name in _WORDS:
        if any(re.fullmatch(pattern, word) for word in words):
            return name
    return None


def _by_scripts(root: Path, words: list[str]) -> Framework:
    """What a package manager's script runs, if one framework of JavaScript is found; else nothing but the status."""
    found = [each for each in (VITEST, JEST, MOCHA, NODE) if words[0] in _SCRIPTS and each.find(root)]
    return found[0] if len(found) == 1 else COMMAND


def _several(root: Path, found: tuple[Found, ...]) -> EnvironmentMissing:
    shown = "; ".join(f"{each.name} ({each.finding.why})" for each in found)
    names = " or ".join(f"framework: {each.name}" for each in found)
    return EnvironmentMissing(
        f"Several test frameworks are found in {root}, and nobody is there to ask which one is meant: {shown}.",
        hint=f"write one line into .cdd/config.yaml: {names}",
    )


def _nothing(root: Path) -> NoFramework:
    """The error that no framework was found: with where there is one below, or all that was looked for."""
    below = list(_detection_below(root))
    if below:
        shown = ", ".join(f"{folder.relative_to(root)} ({found[0].name})" for folder, found in below[:8])
        first = shlex.quote(os.path.relpath(below[0][0]))
        return NoFramework(
            f"No test framework is found in {root} itself; there are some in its folders: {shown}.",
            hint=f"go there, or say which is meant: cdd --project {first}, or CDD_PROJECT_ROOT={first}",
        )
    looked_for = "; ".join((LOOKED_FOR, *(f"{each.name}: {each.looked_for}" for each in FRAMEWORKS)))
    return NoFramework(
        f"No test framework is found in {root}. Looked for: {looked_for}.",
        hint="set one up, or say in .cdd/config.yaml how tests are run: test_command: COMMAND, or framework: NAME",
    )


def _detection_below(root: Path) -> Iterator[tuple[Path, tuple[Found, ...]]]:
    """Folders with a framework of their own, those nearest to ``root``; none in what was fetched or built."""
    level, seen = [root], 0
    loose: list[tuple[Path, tuple[Found, ...]]] = []
    for _ in range(_DEEPEST):
        inner: list[Path] = []
        for folder in level:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            inner += [folder / name for name in names if not name.startswith(".") and name not in IGNORED_FOLDERS]
        seen += len(inner)
        if seen > _MOST_FOLDERS:
            break
        hits = [(folder, found) for folder in inner if (found := candidates(folder))]
        firm = [(folder, found) for folder, found in hits if not is_loose(folder)]
        yield from firm
        if firm:
            return
        level, loose = inner, loose or hits
    yield from loose


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
    if is_loose(folder) and (not is_top or any(map(_has_manifest, _nearest_below(folder)))):
        return frozenset()
    return frozenset(found.name for found in candidates(folder))


def _has_manifest(folder: Path) -> bool:
    """Whether more than Python files says that it is a package."""
    names = {found.name for found in candidates(folder)}
    configures = any((folder / name).is_file() for name in _CONFIGURES)
    return not names <= _BY_HAND or (PYTEST in names and (configures or _is_pythons(folder)))


def _nearest_below(folder: Path) -> Iterator[Path]:
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
