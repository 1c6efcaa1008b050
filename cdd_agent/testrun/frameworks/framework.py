"""The records that describe a test framework and the results of a run, and the readers of report formats.

``catalog`` lists the frameworks. JUnit XML and TRX are read here, whichever tool wrote them, and the lines of cdd's own
reporters. JUnit XML has no standard. All writers agree that a test is a ``testcase`` element at any depth, and that a
child element gives its outcome. TRX is the format of .NET.

Each line of a reporter in ``testrun/inside`` is a JSON object with an ``event``: a test has ``begun`` or ``ended``, a
file or a class is ``unready``, or all is ``over``. unittest, mocha and ``node --test`` have such a reporter.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Protocol
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser, fromstring

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.environment import TOOLCHAINS, Toolchain
from cdd_agent.testrun.frameworks.sources import read_text, strip_terminal_codes
from cdd_agent.testrun.suite import list_modules
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkMatch:
    """A framework found in a project."""

    manifest: Path
    """The file that names the framework; the tests run in its folder."""
    argv: tuple[str, ...]
    """The command that runs all tests, without ``Framework.arguments``."""
    why: str
    """The rule that found it, in words."""
    paths: tuple[str, ...] = ()
    """Files, folders and patterns of files that the command ends with unless targets replace them."""

    def build_command(self, arguments: Iterable[str], *, is_selected: bool, folder: Path) -> tuple[str, ...]:
        """Return the command with ``arguments``, which select tests if ``is_selected``, to run in ``folder``."""
        found = (sorted(glob(path, root_dir=folder, recursive=True)) or [path] for path in self.paths)
        return (*self.argv, *arguments, *(() if is_selected else chain.from_iterable(found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedResults:
    """Every test of a run, in the records that the gates judge."""

    tests: tuple[Case, ...] = ()
    collect_errors: tuple[CollectError, ...] = ()
    """Files, crates or packages whose tests could not be loaded or compiled."""
    problem: str | None = None
    """Why the results may be incomplete: nothing was written, it is unreadable, the run was cut off."""
    is_structured: bool = True
    """Whether each test has a result; otherwise only the exit status is known."""
    explains_status: bool = False
    """Whether the tool itself says why it ended with an error although no test failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A command that has ended, and where to look for its results."""

    root: Path
    """The folder the tests ran in."""
    results: Path
    """The private folder for result files; empty before the run."""
    output: str
    """Standard output and standard error together."""
    exit_status: int

    @property
    def plain_output(self) -> str:
        """The output without colors and with ``\\n`` as line ends."""
        return strip_terminal_codes(self.output)

    def conclude(self, found: ParsedResults, problem: str) -> ParsedResults:
        """Return the results, with the ``problem`` if the run failed and nothing says why."""
        is_explained = any(case.outcome in FAILING for case in found.tests) or found.collect_errors or found.problem
        return found if self.exit_status == 0 or is_explained else replace(found, problem=problem)


class NameRule(Protocol):
    """Lists the names under which tests use ``sources``: in RED, exactly these may be missing."""

    def __call__(self, root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterable[str]:
        """Yield the names; ``tests`` are the test files that fail. All paths are relative to ``root``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How to recognize one framework, run it and read its results."""

    name: str
    """The name in messages and in the setting ``framework``."""
    discovery: str
    """What cdd looks for, for the error that a project has no framework."""
    find: Callable[[Path], FrameworkMatch | None]
    """Look for the framework in a folder without running anything."""
    word: str = r"(?!)"
    """Pattern of a word in ``test_command`` that names the framework; by default no word does."""
    arguments: Callable[[tuple[str, ...], Path], tuple[str, ...]]
    """Return the arguments for files and folders (none: all tests) and the folder for results.

    The selection may include more, never less.
    """
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that the command needs."""
    toolchains: tuple[Toolchain, ...] = TOOLCHAINS
    """The tools that the command needs from this machine; by default all, for a command that could run any of them."""
    read: Callable[[FinishedRun], ParsedResults]
    """Read the results of a run."""
    old_reports: Callable[[Path], tuple[Path, ...]] = lambda _: ()
    """List the result files of an earlier run in the project; they are deleted before a run."""
    is_test: Callable[[str], bool]
    """Return whether a file (posix, relative to the project) is a test or configures how tests run."""
    names: NameRule = lambda root, sources, *, tests: list_modules(sources)
    """By default, the names of Python modules."""
    hides_other_tests: bool = False
    """Whether one test file that does not compile or load keeps the tests of other files from running."""
    is_fallback: bool = False
    """Whether it counts only where no other framework is found."""
    replaces: str = ""
    """Name of a framework that is ignored where this framework is found."""
    build_files: Mapping[str, str] = field(default_factory=dict)
    """Patterns of files that begin a build, which also runs the tests of packages below it, and of their texts."""

    def begins_build(self, folder: Path) -> bool:
        """Return whether a folder is the top of a build that also runs the tests of packages below it."""
        found = ((path, text) for pattern, text in self.build_files.items() for path in folder.glob(pattern))
        return any(path.is_file() and re.search(text, read_text(path), re.MULTILINE) for path, text in found)

    def list_names(self, sources: Iterable[str], tests: Iterable[str], *, root: Path) -> tuple[str, ...]:
        """Return the names under which ``tests`` may use ``sources`` and which RED may find missing."""
        return tuple(dict.fromkeys(self.names(root, tuple(sources), tests=tuple(tests))))


def find_by_manifest(
    *patterns: str, command: tuple[str, ...], wrapper: tuple[str, str] | None = None
) -> Callable[[Path], FrameworkMatch | None]:
    """Make a ``Framework.find`` that looks for a file by the first of ``patterns`` that matches.

    ``{manifest}`` in ``command`` is the file's name. ``wrapper`` is the name of a script that replaces the first word
    of the command if the project has it, and the name of the tool in it.
    """

    def find(folder: Path) -> FrameworkMatch | None:
        found = (path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file())
        manifest = next(found, None)
        if manifest is None:
            return None
        program, why = command[0], f"there is a {manifest.name}"
        if wrapper is not None and (folder / wrapper[0]).is_file():
            program, why = f"./{wrapper[0]}", f"{why}, and it brings its own {wrapper[1]}"
        words = (word.format(manifest=manifest.name) for word in command[1:])
        return FrameworkMatch(manifest=manifest, argv=(program, *words), why=why)

    return find


def number_cases(cases: Iterable[Case], *, form: str = "{name} #{count}") -> tuple[Case, ...]:
    """Number repeated node ids by ``form``, so that the last of these tests does not hide the others."""
    seen = Counter[str]()
    numbered = []
    for case in cases:
        name = case.nodeid
        seen[name] += 1
        numbered.append(case if seen[name] == 1 else replace(case, nodeid=form.format(name=name, count=seen[name])))
    return tuple(numbered)


REPORT = "report.json"
"""The file for the tool's results."""
SEPARATOR = " > "
"""The separator between the titles of a node id."""
_REPORT_CAP_BYTES = 100_000_000
_XML_CAP_BYTES = 30_000_000
_TAIL_LINES = 12
_JUNIT_OUTCOMES = {"error": "error", "failure": "failed", "skipped": "skipped"}
"""Child of a test -> outcome, the worst first."""
_RERUNS = ("flakyFailure", "flakyError", "rerunFailure", "rerunError")
_TRX_OUTCOMES = dict.fromkeys(("passed", "passedbutrunaborted", "warning", "completed"), "passed")
_TRX_OUTCOMES |= dict.fromkeys(("notexecuted", "notrunnable", "inconclusive", "pending"), "skipped")
_CUT_OFF = frozenset({"Aborted", "Error", "Timeout", "Disconnected"})
_DURATION = re.compile(r"(\d{1,5}):(\d\d):(\d\d(?:\.\d+)?)")

number_titles = partial(number_cases, form="{name} ({count})")


@dataclass(frozen=True, slots=True, kw_only=True)
class XmlCase:
    """One test in a JUnit or TRX file."""

    name: str
    classname: str
    duration_s: float
    outcome: str
    """``passed``, ``failed``, ``error`` or ``skipped``."""
    type: str = ""
    """The failure's type in the writer's words: usually the class of an exception, for TRX the kind of ending."""
    message: str
    text: str
    """The failure's text, usually a stack trace."""
    output: str
    reruns: int = 0


def read_junit(path: Path) -> tuple[tuple[XmlCase, ...], str | None]:
    """Return the test cases of a JUnit file, and the problem if it cannot be read."""
    root, problem = _read_xml(path)
    return tuple(map(_parse_junit_case, root.iter("testcase"))), problem


def count_junit_results(path: Path) -> Counter[str]:
    """Return the sums that a JUnit file has of its suites: ``tests``, ``errors``, ``failures`` and ``skipped``."""
    suites = [*_read_xml(path)[0].iter("testsuite")]
    names = ("tests", "errors", "failures", "skipped")
    return Counter({name: sum(int(_parse_seconds(suite.get(name, "0"))) for suite in suites) for name in names})


def read_trx(path: Path) -> tuple[tuple[XmlCase, ...], str | None]:
    """Return the test cases of a TRX file, and the problem if it cannot be read or the run was cut off."""
    root, problem = _read_xml(path)
    methods = {
        test.get("id", ""): (method.get("className", "").partition(",")[0], method.get("name", ""))
        for test in root.iter("UnitTest")
        if (method := test.find("TestMethod")) is not None
    }
    cases = tuple(_parse_trx_case(result, methods) for result in root.iter("UnitTestResult"))
    summary = next((element.get("outcome", "") for element in root.iter("ResultSummary")), "")
    return cases, f"the run of {path.name} ended as {summary}" if summary in _CUT_OFF else problem


def _read_xml(path: Path) -> tuple[Element, str | None]:
    """Return the root element of a file, with tags without namespaces, and the problem if it cannot be read."""
    try:
        data = read_ordinary(path, limit_bytes=_XML_CAP_BYTES)
        return fromstring(data, parser=XMLParser(target=_Builder())), None
    except (OSError, ParseError, LookupError, ValueError, RecursionError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        return Element("unread"), f"{path.name} cannot be read: {reason}"


class _Builder(TreeBuilder):
    def doctype(self, name: str, *identifiers: str | None) -> None:
        """Refuse a document type before the parser reads it.

        It could define entities that include local files or that expand to more text than fits into memory.
        """
        where = next(filter(None, identifiers), "its own")
        raise ParseError(f"it has a document type ({name}, {where}), which is refused")

    def start(self, tag: str, attributes: dict[str, str]) -> Element:
        return super().start(tag.rpartition("}")[2], attributes)

    def end(self, tag: str) -> Element:
        return super().end(tag.rpartition("}")[2])


def _parse_seconds(text: str) -> float:
    try:
        value = float(text.replace(",", ""))  # some writers put a comma between thousands
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def _parse_junit_case(element: Element) -> XmlCase:
    endings = (found for name in _JUNIT_OUTCOMES if (found := element.find(name)) is not None)
    failure = next(endings, Element("passed"))
    output = (child.text or "" for name in ("system-out", "system-err") for child in element.iterfind(name))
    return XmlCase(
        name=element.get("name", ""),
        classname=element.get("classname", ""),
        duration_s=_parse_seconds(element.get("time", "0")),
        outcome=_JUNIT_OUTCOMES.get(failure.tag, "passed"),
        type=failure.get("type", ""),
        message=failure.get("message", ""),
        text=failure.text or "",
        output="".join(output),
        reruns=sum(len(element.findall(name)) for name in _RERUNS),
    )


def _parse_trx_case(result: Element, methods: dict[str, tuple[str, str]]) -> XmlCase:
    """Return a result; ``methods`` are test id -> class and name."""
    shown, ending = result.get("testName", ""), result.get("outcome", "").lower()
    owner, name = methods.get(result.get("testId", ""), ("", shown))
    arguments = shown[at:] if (at := shown.find("(")) >= 0 and "(" not in name else ""
    time = _DURATION.fullmatch(result.get("duration", ""))
    message, trace, printed = (
        result.findtext(f"Output/{part}", "").replace("\r\n", "\n")
        for part in ("ErrorInfo/Message", "ErrorInfo/StackTrace", "StdOut")
    )
    return XmlCase(
        name=name.removeprefix(f"{owner}.") + arguments,
        classname=owner,
        duration_s=int(time[1]) * 3600 + int(time[2]) * 60 + float(time[3]) if time else 0.0,
        outcome=_TRX_OUTCOMES.get(ending, "failed"),
        type=ending,
        message=message.strip(),
        text=trace,
        output=printed,
    )


class ThrownError(msgspec.Struct):
    """An exception of JavaScript."""

    name: str | None = None
    message: str | None = None
    stack: str | None = None

    @property
    def text(self) -> str:
        """Class, message and stack."""
        if self.stack and (self.message or "") in self.stack:
            return self.stack
        head = f"{self.name}: {self.message}" if self.name else self.message or ""
        return "\n".join(filter(None, (head, self.stack)))


class ReportLine(msgspec.Struct):
    """One line of a reporter."""

    event: str
    file: str = ""
    titles: list[str] = []
    """Titles of the groups around a test, and its own; none for a whole file."""
    nodeid: str = ""
    """The node id, if the reporter knows it."""
    line: int = 0
    outcome: str = ""
    phase: str = "call"
    duration_s: float = 0.0
    reruns: int = 0
    error: ThrownError | None = None
    printed: str = ""
    """Standard error of the process that ran a file."""
    failure: Failure | None = None
    """The failure, if the reporter describes it itself."""


def format_last_lines(run: FinishedRun) -> str:
    """Return the end of the output, as the end of a message."""
    lines = [line.rstrip() for line in run.plain_output.splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else ""


def read_report(run: FinishedRun, tool: str, *, parse: Callable[[bytes], ParsedResults]) -> ParsedResults:
    """Parse the report of a run. A command that failed although no test did is a problem."""
    last = format_last_lines(run)
    try:
        results = parse(read_ordinary(run.results / REPORT, limit_bytes=_REPORT_CAP_BYTES))
    except FileNotFoundError:
        return ParsedResults(problem=f"{tool} ended with status {run.exit_status} and wrote no results{last}")
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return ParsedResults(problem=f"The results that {tool} wrote cannot be read: {error}")
    what = "no test failed" if results.tests else "no test ran"
    return run.conclude(results, f"{tool} ended with status {run.exit_status} although {what}{last}")


def read_lines(
    run: FinishedRun, tool: str, *, describe: Callable[[ReportLine], Failure | None], find: Callable[[str], str] = str
) -> ParsedResults:
    """Read the lines of one of cdd's reporters.

    ``describe`` returns the failure of a line, and ``find`` a file's path relative to the root.
    """

    def parse(data: bytes) -> ParsedResults:
        if not data.strip():
            raise FileNotFoundError  # node creates the file before it runs
        # A killed process can leave a part of a line.
        texts = [text for text in data.splitlines(keepends=True) if text.endswith(b"\n")]
        lines = [msgspec.json.decode(text, type=ReportLine) for text in texts]
        tests, errors, running = list[Case](), list[CollectError](), Counter[str]()
        for line in lines:
            line.file = find(line.file)
            nodeid = line.nodeid or "::".join((line.file, *filter(None, (SEPARATOR.join(line.titles),))))
            if line.event == "unready" and (failure := describe(line)) is not None:
                errors.append(CollectError(nodeid, failure))
            elif line.event == "begun":
                running[nodeid] += 1
            elif line.event == "ended":
                running[nodeid] -= 1
                failure, outcome, seconds = describe(line), line.outcome, line.duration_s
                tests.append(Case(nodeid, outcome, line.file, line.line, seconds, reruns=line.reruns, failure=failure))
        unfinished = [nodeid for nodeid, count in running.items() if count > 0]
        problem = None
        if not lines or lines[-1].event != "over" or unfinished:
            where = f" in {unfinished[-1]}" if unfinished else ""
            problem = f"{tool} ended early{where} (exit status {run.exit_status})"
        return ParsedResults(tests=number_titles(tests), collect_errors=tuple(errors), problem=problem)

    return read_report(run, tool, parse=parse)
