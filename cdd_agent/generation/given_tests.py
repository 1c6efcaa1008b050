"""Tests that a repository is generated for: the files and settings that the user gives, and what they still wait for.

A test *waits* while code that it needs is not written: it enters a stub, or a module with late code. While a repository
grows, such a test says nothing about the code that is there.
"""

import ast
import configparser
import os
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from cdd_agent.errors import UsageError, format_count, format_size, join_first
from cdd_agent.evidence import source
from cdd_agent.evidence.source import Function, name_definitions
from cdd_agent.generation.late_code import has_late_code, list_effects
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted.python_source import parse
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import Failure, SuiteReport, list_failing

TESTS = "tests"
"""The folder of the tests in the repository."""
SETTINGS = "pytest.ini"
_CONFTEST = "conftest.py"
_OPTIONS = ("--asyncio-mode", "--import-mode", "-k", "-m", "-p", "-W")
"""Options in ``addopts`` that decide which tests run, and how; each has a value."""
_MOST_NAMED = 3
MOST_FILES = 20_000
MOST_BYTES = 200_000_000
_HINT = "name the folder with the tests: --tests DIR"
_OWN = frozenset({"testpaths", "pythonpath", "addopts", "minversion", "required_plugins", "cache_dir"})
"""Settings that name folders, versions or plugins of the other project."""


def read_tests(place: Path) -> dict[str, bytes]:
    """Return the files of a folder with tests, or the one file, by their paths in the repository.

    So is the nearest ``conftest.py`` in a folder above, as far as the project goes. Links and caches are left out.
    Raises ``UsageError``.
    """
    if not place.exists():
        raise UsageError(f"There is no folder {place}.", hint=_HINT)
    above = (folder / _CONFTEST for folder in _list_folders(place) if folder != place.resolve())
    found = {path: _CONFTEST for path in above if path.is_file() and not path.is_symlink()}
    chosen = dict([*found.items()][:1])
    for path in [place] if place.is_file() else _walk(place):
        chosen[path] = f"{TESTS}/{path.name if place.is_file() else path.relative_to(place).as_posix()}"
    files, size = dict[str, bytes](), 0
    for path, inside in chosen.items():
        try:
            files[inside] = read_ordinary(path, limit_bytes=MOST_BYTES)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint=_HINT) from error
        size += len(files[inside])
        if size > MOST_BYTES or len(files) > MOST_FILES:
            happened = f"{place} has more than {format_size(MOST_BYTES)}, or than {MOST_FILES:,} files."
            raise UsageError(happened, hint=_HINT)
    if not any(path.endswith(".py") for path in files):
        raise UsageError(f"{place} has no tests in Python.", hint=_HINT)
    return files


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(each for each in folders if each != "__pycache__" and not each.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def write_settings(place: Path) -> str:
    """Return the ``pytest.ini`` of a repository with the settings that pytest takes for the tests at ``place``.

    >>> write_settings(Path("/nowhere/tests"))
    '[pytest]\\npythonpath = src\\ntestpaths = tests\\n'
    """
    settings = {"pythonpath": SOURCES, "testpaths": TESTS}
    for folder in _list_folders(place):
        found = _read_settings(folder) or {}
        paths = [_move(folder / path, place.resolve()) for path in _split(found.get("pythonpath", ""))]
        settings["pythonpath"] = " ".join(dict.fromkeys(filter(None, [settings["pythonpath"], *paths])))
        options = [*_select_options(_split(found.get("addopts", "")))]
        settings |= {"addopts": shlex.join(options)} if options else {}
        settings |= {key: _format(value) for key, value in found.items() if key not in _OWN}
    return "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def _list_folders(place: Path) -> list[Path]:
    """Return the folders of a project from that of its tests to that with pytest's settings, or its top.

    If neither is found, it is the folder of the tests alone.
    """
    top = place.resolve() if place.is_dir() else place.resolve().parent
    found = list[Path]()
    for folder in (top, *top.parents):
        found.append(folder)
        if _read_settings(folder) is not None or (folder / ".git").exists():
            return found
    return [top]


def _split(value: object) -> list[str]:
    """Return the words of a setting."""
    try:
        return [str(each) for each in value] if isinstance(value, list) else shlex.split(str(value))
    except ValueError:
        return []


def _move(path: Path, place: Path) -> str:
    """Return where a folder is in the repository: in that of the tests, or the one around it; else empty."""
    path = path.resolve()
    if path == place.parent:
        return "."
    return Path(TESTS, path.relative_to(place)).as_posix() if path.is_relative_to(place) else ""


def _select_options(words: Iterable[str]) -> Iterator[str]:
    """Yield those of the options that decide which tests run, and how, with their values.

    >>> [*_select_options(["-ra", "--cov", "-m", "not slow", "-pno:x", "--asyncio-mode=auto"])]
    ['-m', 'not slow', '-pno:x', '--asyncio-mode=auto']
    """
    is_value = False
    for word in words:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if is_value or name in _OPTIONS:
            yield word
        is_value = not is_value and word in _OPTIONS


def _read_settings(folder: Path) -> Mapping[str, object] | None:
    """Return pytest's settings in a folder, from the file that pytest would take; None if there are none."""
    try:
        for name, section in ((SETTINGS, "pytest"), (".pytest.ini", "pytest")):
            if (folder / name).is_file():
                return _read_ini(folder / name).get(section, {})
        if (folder / "pyproject.toml").is_file():
            content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
            tool = content.get("tool", {}).get("pytest", {})
            if tool:
                return dict(tool.get("ini_options", tool))
        for name, section in (("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
            if (folder / name).is_file() and section in (read := _read_ini(folder / name)):
                return read[section]
    except (OSError, ValueError, AttributeError, configparser.Error) as error:
        raise UsageError(f"The settings of pytest in {folder} cannot be read: {error}.", hint="correct them") from error
    return None


def _read_ini(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    parser.optionxform = lambda optionstr: optionstr  # type: ignore[method-assign]
    parser.read(path, encoding="utf-8")
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _format(value: object) -> str:
    if isinstance(value, list):
        return "".join(f"\n    {each}" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "\n    ".join(str(value).strip().splitlines())


@dataclass(frozen=True, kw_only=True)
class MissingCode:
    """The code that is not written yet."""

    stubs: Mapping[str, Collection[str]]
    """Path -> qualified names of the definitions that are stubs."""
    texts: Mapping[str, str]
    """Path -> source, of modules."""
    counts_late: bool = True
    """Whether code that waits for stubs counts, too."""

    def find_waiting(self, report: SuiteReport, entered: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Return the failing tests that wait, and files that cannot be collected. ``entered``: as in ``SuiteRun``."""
        tests = set(self._list_entering(entered))
        waiting = {name for name in list_failing(report) if strip_parameters(name) in tests}
        for nodeid, failure in list_failures(report):
            is_none = "NoneType" in failure.message and bool(self._late)
            if is_none or any(self._is_missing(path, line) for path, line in _list_places(failure)):
                waiting.add(nodeid)
        return frozenset(waiting)

    def _list_entering(self, entered: Mapping[str, Collection[str]]) -> Iterator[str]:
        for key, tests in entered.items():
            path, _, name = key.partition("::")
            if is_inside(name, self.stubs.get(path, ())) or (not name and path in self._late):
                yield from tests

    @cached_property
    def _late(self) -> frozenset[str]:
        """The modules with code that waits for stubs, and those that such code could change, as by ``register(f)``."""
        late = {path: text for path, text in self.texts.items() if self.counts_late and has_late_code(text)}
        names = {name for text in late.values() if "#: after " in text for name in list_effects(text)}
        stems = (f"{SOURCES}/{name.replace('.', '/').rpartition('/')[0]}" for name in names)
        changed = {path for stem in stems for path in (f"{stem}.py", f"{stem}/__init__.py")}
        return frozenset(late.keys() | changed.intersection(self.texts))

    @cached_property
    def _lines(self) -> Mapping[str, frozenset[int]]:
        return {path: frozenset(list_lines(self.texts.get(path, ""), names)) for path, names in self.stubs.items()}

    def _is_missing(self, path: str, line: int) -> bool:
        return path in self._late or line in self._lines.get(path, ())


@dataclass(frozen=True, kw_only=True)
class GivenResults:
    """How the given tests end, and which nodes they enter."""

    plan: GenerationPlan
    report: SuiteReport
    """Of all tests."""
    entered: Mapping[str, Collection[str]]
    """As in ``SuiteRun``."""
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Title of a node -> why the checks of its code doubt it."""

    @cached_property
    def _entering(self) -> Mapping[str, frozenset[str]]:
        """Title of a node -> the tests that enter it, without parameters."""
        owners: dict[str, dict[str, str]] = {}
        for title, node in self.plan.by_title.items():
            for each in node.definitions:
                owners.setdefault(self.plan.layout.map_path(each.file_path), {})[each.name] = title
        found: dict[str, set[str]] = {}
        for key, tests in self.entered.items():
            path, _, name = key.partition("::")
            parts = name.split(".")
            names = (".".join(parts[: at + 1]) for at in range(len(parts)))
            for title in {owners[path][each] for each in names if each in owners.get(path, ())}:
                found.setdefault(title, set()).update(tests)
        return {title: frozenset(tests) for title, tests in found.items()}

    def list_entering(self, title: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the passing and the failing tests that enter a node."""
        tests, failing = self._entering.get(title, frozenset()), set(list_failing(self.report))
        inside = [case for case in self.report.tests if strip_parameters(case.nodeid) in tests]
        passing = tuple(case.nodeid for case in inside if case.outcome == "passed")
        return passing, tuple(name for name in failing if strip_parameters(name) in tests)

    def count(self) -> tuple[int, int]:
        """Return how many tests pass, and how many there are; a file that cannot be collected counts as one."""
        cases = self.report.tests
        return sum(case.outcome == "passed" for case in cases), len(cases) + len(self.report.collect_errors)

    @property
    def failing(self) -> tuple[str, ...]:
        """The tests that fail, and the files that cannot be collected."""
        return list_failing(self.report)

    def summarize(self) -> str:
        """Return in one sentence how many tests pass, or which fail."""
        passed, total = self.count()
        if self.failing:
            names = join_first(self.failing, most=_MOST_NAMED)
            return f"{len(self.failing)} of {format_count(total, 'given test')} fail: {names}."
        others = f" Skipped, or expected to fail: {total - passed}." if total > passed else ""
        return f"{format_count(passed, 'given test')} passed, and none failed.{others}"

    def explain_doubt(self, title: str) -> str:
        """Return why the tests do not prove a node; empty if they do."""
        passing, failing = self.list_entering(title)
        if failing:
            more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
            return f"{min(failing)}{more} fails and enters it"
        return self.doubts.get(title, "") if passing else "no test that passes enters it"

    def find_suspects(self, waiting: Collection[str]) -> dict[str, SuiteReport]:
        """Return the node that may be at fault for each failing test that does not wait -> the report of such tests.

        It is the one that the most failing and the fewest passing tests enter.
        """
        blamed: dict[str, set[str]] = {}
        for nodeid in {*list_failing(self.report)}.difference(waiting):
            inside = [title for title, tests in self._entering.items() if strip_parameters(nodeid) in tests]
            title = max(inside, key=self._rate, default="")
            if title:
                blamed.setdefault(title, set()).add(nodeid)
        return {title: _keep(self.report, nodeids) for title, nodeids in blamed.items()}

    def _rate(self, title: str) -> float:
        passing, failing = map(len, self.list_entering(title))
        return failing / (passing + failing)


def _keep(report: SuiteReport, nodeids: Collection[str]) -> SuiteReport:
    return replace(
        report,
        tests=tuple(case for case in report.tests if case.nodeid in nodeids),
        collect_errors=tuple(error for error in report.collect_errors if error.nodeid in nodeids),
    )


def is_inside(name: str, definitions: Collection[str]) -> bool:
    """Return whether a function is one of the definitions, or inside of one.

    >>> is_inside("Stack.push", {"Stack"}), is_inside("Stacked", {"Stack"}), is_inside("", {"Stack"})
    (True, False, False)
    """
    parts = name.split(".")
    return any(".".join(parts[: at + 1]) in definitions for at in range(len(parts)))


def is_conftest(nodeid: str) -> bool:
    """Return whether a file that cannot be collected is one that pytest loads before all tests beside it."""
    return nodeid.rpartition("/")[2] == "conftest.py"


def group_tests(chosen: Collection[str], among: Iterable[str]) -> tuple[str, ...]:
    """Return functions, classes and files for the ``chosen`` tests: those in which all tests ``among`` are chosen.

    >>> group_tests({"t.py::A::a[1]", "t.py::A::a[2]"}, ["t.py::A::a[1]", "t.py::A::a[2]", "t.py::b"])
    ('t.py::A',)
    """
    mixed = {group for nodeid in among if nodeid not in chosen for group in (nodeid, *_list_groups(nodeid))}
    found = (next((group for group in _list_groups(nodeid) if group not in mixed), nodeid) for nodeid in chosen)
    return tuple(sorted(set(found)))


def _list_groups(nodeid: str) -> Iterator[str]:
    """Yield the file, the classes and the function of a test, the largest first."""
    parts = strip_parameters(nodeid).split("::")
    yield from ("::".join(parts[: at + 1]) for at in range(len(parts)))


def list_lines(text: str, names: Collection[str]) -> Iterator[int]:
    """Yield the lines of the functions in definitions with these qualified names."""
    for name, each in name_definitions(parse(text)):
        if isinstance(each, Function) and is_inside(name, names):
            yield from source.list_lines(each)


def list_changed(before: str, after: str) -> frozenset[str]:
    """Return the qualified names of the functions of a module that have changed, or are no longer there.

    >>> sorted(list_changed("def f(): return 1\\ndef g(): return 1", "def f(): return 2\\ndef g(): return 1"))
    ['f']
    """
    old, new = (
        {(name, ast.dump(each)) for name, each in name_definitions(parse(text)) if isinstance(each, Function)}
        for text in (before, after)
    )
    return frozenset(name for name, _ in old - new)


def list_failures(report: SuiteReport) -> Iterator[tuple[str, Failure]]:
    """Yield node id and failure of the tests that fail, and of the files that cannot be collected."""
    yield from ((case.nodeid, case.failure) for case in report.tests if case.failure is not None)
    yield from ((error.nodeid, error.failure) for error in report.collect_errors)


def _list_places(failure: Failure) -> Iterable[tuple[str, int]]:
    last = (failure.path, failure.line) if failure.path and failure.line else None
    return [*((frame.path, frame.line) for frame in failure.frames), *([last] if last else [])]
