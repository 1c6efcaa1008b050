"""One run of pytest without cdd's plugin: its arguments, and what its JUnit XML and its exit status say.

No code of cdd in the process takes part in the results, so what code under test does to the plugin changes nothing
here. ``PytestSuite`` makes the run. All functions are pure, except that they read files of the project or the results.
"""

import configparser
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from cdd_agent.testrun.frameworks.framework import XmlCase, count_junit_results, read_junit
from cdd_agent.testrun.project_files import get_table, read_content, read_toml
from cdd_agent.untrusted.paths import is_environment
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import FAILING, Case, Failure, SuiteReport

RESULTS = "results.xml"
"""The file with the results, in a folder that is new for each run."""
_INI_FILES = {
    "pytest.toml": "",
    ".pytest.toml": "",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
"""Files that configure pytest, in its order -> the section; TOML files have tables."""
_TABLES = (("pytest",), ("tool", "pytest"), ("tool", "pytest", "ini_options"))
_OWN_WORD = "--tdd-agent"
_OWN_SETTING = "tdd_agent_"
_NO_XML = "no:junitxml"
_NOT_WALKED = ("__pycache__", ".git", "node_modules")
FLAGS = ("--tdd-agent", "--tdd-agent-audit")
"""Options of the plugin without a value."""


def build_arguments(results: Path, *, root: Path, options: Sequence[str], selects: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of pytest; ``options`` and ``selects`` are those of the suite and of the run.

    The last of two contradicting options counts. Some change the form of the XML, so they come at the end.
    """
    own = ("-p", "no:pytest_tdd_agent", "--rootdir=.", "--continue-on-collection-errors", "--maxfail=0", "--color=no")
    form = ("-o", "junit_family=xunit1", "-o", "junit_logging=no", "--junit-prefix=", f"--junit-xml={results}")
    return (*override_addopts(root), *own, *options, *form, *selects)


def override_addopts(root: Path) -> tuple[str, ...]:
    """Return what replaces ``addopts`` if they have options of cdd's plugin, or turn JUnit XML off; else nothing."""
    settings = read_settings(root)
    words = split_words(settings.get("addopts"))
    kept = [*_leave_out(words)]
    # Without the plugin, its settings are unknown.
    has_settings = any(name.startswith(_OWN_SETTING) for name in settings)
    kept = [word for word in kept if not (has_settings and word in ("--strict-config", "--strict"))]
    lenient = ("-o", "strict_config=false") if has_settings else ()
    return ("-o", "addopts=", *lenient, *kept) if lenient or kept != words else ()


def read_settings(root: Path) -> Mapping[str, object]:
    """Return the settings that pytest reads for a project: those of the first file that has some."""
    found = (read_folder_settings(folder) for folder in (root, *root.parents))
    return next((settings for settings in found if settings is not None), {})


def read_folder_settings(folder: Path) -> Mapping[str, object] | None:
    """Return the settings of the first file in a folder that has some; None if pytest looks in the folder above."""
    for name, section in _INI_FILES.items():
        found = _read_section(folder / name, section)
        if found or (found is not None and name.endswith("pytest.ini")):
            return found
    return None


def _read_section(file: Path, section: str) -> Mapping[str, object] | None:
    if not file.is_file():
        return None
    if not section:
        tables = (get_table(read_toml(file), *path) for path in _TABLES)
        return {key: value for table in tables for key, value in table.items() if not isinstance(value, dict)}
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read_content(file).decode("utf-8", "replace"))
    except configparser.Error:
        return None
    return dict(parser[section]) if parser.has_section(section) else None


def split_words(words: object) -> list[str]:
    """Return the words of a setting, such as ``addopts``; none if it cannot be split."""
    if isinstance(words, list):
        return [str(word) for word in words]
    try:
        return shlex.split(str(words or ""))
    except ValueError:
        return []


def _leave_out(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without options of the plugin and their values, and without the one that turns JUnit XML off."""
    left = list(words)
    while left:
        word = left.pop(0)
        if word == f"-p{_NO_XML}" or (word == "-p" and left[:1] == [_NO_XML]):
            del left[: word == "-p"]
        elif not word.startswith(_OWN_WORD):
            yield word
        elif "=" not in word and word not in FLAGS and left:
            left.pop(0)


def delete_bytecode(root: Path) -> None:
    """Delete the bytecode of a copy of a project, without that of environments in it."""
    for folder, folders, _ in os.walk(root):
        for name in folders:
            if name == "__pycache__":
                shutil.rmtree(Path(folder, name))
        kept = (name for name in folders if name not in _NOT_WALKED and not name.endswith("-packages"))
        folders[:] = [name for name in kept if not is_environment(Path(folder, name))]


def read_results(file: Path, *, selects: Iterable[str], exit_status: int) -> tuple[SuiteReport | None, str | None]:
    """Return what the JUnit XML of a run says, or the problem.

    A test has a node id if its file is among ``selects``; JUnit's names do not say where the name of a file ends.
    """
    if not file.exists():
        return None, "pytest wrote no JUnit XML"
    found, problem = read_junit(file)
    if problem is not None:
        return None, problem
    names = _list_names(selects)
    converted = [_convert(case, names) for case in found]
    if _has_passes_among_skipped(found, count_junit_results(file)):
        # Files that are selected as a whole are cdd's own, without subtests: their results stay.
        functions = {select.partition("[")[0] for select in selects if "::" in select}
        converted = [_believe(case) if strip_parameters(case.nodeid) in functions else case for case in converted]
    report = SuiteReport(
        complete=True,
        exit_status=exit_status,
        nonce="",
        python="",
        pytest="",
        rootdir="",
        started_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_s=sum(case.duration_s for case in found),
        tests=tuple(_merge(converted)),
        collect_errors=(),
        fingerprints={},
        collected=len(found),
    )
    return report, None


def _has_passes_among_skipped(cases: Sequence[XmlCase], counts: Counter[str]) -> bool:
    """Return whether more passed than the tests without another mark: a skipped test then may have passed.

    Pytest writes a test and its subtests into one element, which counts each of them and shows only what did not pass.
    """
    passed = counts["tests"] - counts["errors"] - counts["failures"] - counts["skipped"]
    return passed > sum(case.outcome == "passed" for case in cases)


def _believe(case: Case) -> Case:
    return replace(case, outcome="passed") if case.outcome in ("skipped", "xfailed") else case


def _list_names(selects: Iterable[str]) -> Mapping[str, str]:
    """Return JUnit's name of a file, function or class -> its node id."""
    names: dict[str, str] = {}
    for select in selects:
        if not select.startswith("-"):
            nodeid = select.partition("[")[0]
            file = nodeid.partition("::")[0]
            names |= {_mangle(each): each for each in (file, nodeid)}
    return names


def _mangle(nodeid: str) -> str:
    """Return JUnit's class name and name for a node id without parameters, with a dot in between."""
    file, *names = nodeid.split("::")
    return ".".join((re.sub(r"\.py$", "", file.replace("/", ".")), *names))


def _convert(case: XmlCase, names: Mapping[str, str]) -> Case:
    name, bracket, parameters = case.name.partition("[")
    parts = [*filter(None, (case.classname, name))]
    full = ".".join(parts)
    nodeid = names.get(full)
    if nodeid is None:
        # A file among them, and classes in it.
        within = max((each for each in names if full.startswith(f"{each}.")), key=len, default="")
        rest = full[len(within) + 1 :].removesuffix(name).strip(".")
        inside = (names[within], *filter(None, (*rest.split("."), name))) if within else (full,)
        nodeid = "::".join(inside)
    outcome = "xfailed" if case.outcome == "skipped" and case.type == "pytest.xfail" else case.outcome
    failure = None
    if outcome in FAILING:
        message = case.message.strip()
        kind = "assertion" if message.startswith(("assert", "AssertionError")) else "exception"
        exception = re.match(r"[\w.]+(?=:)", message)
        said = exception[0] if exception else "AssertionError" if kind == "assertion" else "an exception"
        phase = "setup" if outcome == "error" else "call"
        failure = Failure(phase, kind, "project", said, message.removeprefix(f"{said}: "), text=case.text)
    file = nodeid.partition("::")[0]
    return Case(f"{nodeid}{bracket}{parameters}", outcome, file, 0, case.duration_s, failure=failure)


def _merge(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield each test once, with its worst result: the XML has a further case for an error after a test."""
    found: dict[str, Case] = {}
    for case in cases:
        known = found.get(case.nodeid)
        if known is None or known.outcome not in FAILING:
            found[case.nodeid] = case if known is None or case.outcome in FAILING else known
    yield from found.values()
