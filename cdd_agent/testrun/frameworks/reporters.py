"""Reads the result files of test runners, and above all the lines of cdd's own reporters in ``testrun/inside``.

Each of these lines is a JSON object with an ``event``: a test has ``begun`` or ``ended``, a file or a class is
``unready``, or all is ``over``. unittest, mocha and ``node --test`` have such a reporter.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults, number_cases
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure

REPORT = "report.json"
"""The file for the tool's results."""
SEPARATOR = " > "
"""The separator between the titles of a node id."""
LIMIT_BYTES = 100_000_000
_TAIL_LINES = 12

number_titles = partial(number_cases, form="{name} ({count})")


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
    """What the process of a file printed on standard error."""
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
        data = read_ordinary(run.results / REPORT, limit_bytes=LIMIT_BYTES)
        results = parse(data)
    except FileNotFoundError:
        return ParsedResults(problem=f"{tool} ended with status {run.exit_status} and wrote no results{last}")
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return ParsedResults(problem=f"The results that {tool} wrote cannot be read: {error}")
    is_explained = bool(results.collect_errors) or any(case.outcome in FAILING for case in results.tests)
    if results.problem is not None or run.exit_status == 0 or is_explained:
        return results
    what = "no test failed" if results.tests else "no test ran"
    return replace(results, problem=f"{tool} ended with status {run.exit_status} although {what}{last}")


def read_lines(
    run: FinishedRun, tool: str, *, describe: Callable[[ReportLine], Failure | None], find: Callable[[str], str] = str
) -> ParsedResults:
    """Read the lines of one of cdd's reporters.

    ``describe`` returns the failure of a line, and ``find`` a file's path relative to the root.
    """
    is_selected = bool(run.targets) and all("::" in target for target in run.targets)

    def parse(data: bytes) -> ParsedResults:
        # A killed process can leave a part of a line.
        texts = [text for text in data.splitlines(keepends=True) if text.endswith(b"\n")]
        if not data.strip():
            raise FileNotFoundError  # node creates the file before it runs
        lines = [msgspec.json.decode(text, type=ReportLine) for text in texts]
        tests, errors, running = list[Case](), list[CollectError](), Counter[str]()
        for line in lines:
            line.file = find(line.file)
            nodeid = line.nodeid or "::".join((line.file, *filter(None, (SEPARATOR.join(line.titles),))))
            if line.event == "unready" and (failure := describe(line)) is not None:
                errors.append(CollectError(nodeid, failure))
            elif is_selected and nodeid == line.file:
                continue  # none of the file's tests was asked for
            elif line.event == "begun":
                running[nodeid] += 1
            elif line.event == "ended":
                running[nodeid] -= 1
                failure, seconds = describe(line), line.duration_s
                tests.append(
                    Case(nodeid, line.outcome, line.file, line.line, seconds, reruns=line.reruns, failure=failure)
                )
        unfinished = [nodeid for nodeid, count in running.items() if count > 0]
        problem = None
        if not lines or lines[-1].event != "over" or unfinished:
            where = f" in {unfinished[-1]}" if unfinished else ""
            problem = f"{tool} ended early{where} (exit status {run.exit_status})"
        return ParsedResults(tests=number_titles(tests), collect_errors=tuple(errors), problem=problem)

    return read_report(run, tool, parse=parse)
