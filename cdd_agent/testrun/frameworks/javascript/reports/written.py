"""The JSON that jest and vitest write of a run: one format, jest's, which both call JSON. Pure but for one file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Results
from cdd_agent.testrun.frameworks.javascript.reports.thrown import Setting, failure, relative, without_colour
from cdd_agent.testrun.frameworks.javascript.selection import SELECTED, SEPARATOR, numbered
from pytest_tdd_agent.report import FAILING, Case, CollectError

LIMIT_BYTES = 64 * 1024 * 1024
"""Of a result file that is read."""
_TAIL_LINES = 12
_OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "pending": "skipped",
    "skipped": "skipped",
    "disabled": "skipped",
    "todo": "xfailed",
}
_SUITE_FAILED = "Test suite failed to run"
_HOOK = "_callCircusHook"
"""jest's function that a hook is called by: it stands in the stack of what a hook threw."""


class _Location(msgspec.Struct):
    line: int = 0


class _Assertion(msgspec.Struct, rename="camel"):
    title: str
    status: str
    ancestor_titles: list[str] = []
    failure_messages: list[str] | None = None
    failure_details: list[object] | None = None
    duration: float | None = None
    location: _Location | None = None
    failing: bool = False
    invocations: int | None = None


class _File(msgspec.Struct, rename="camel"):
    name: str
    status: str = ""
    message: str | None = None
    assertion_results: list[_Assertion] = []


class _Run(msgspec.Struct, rename="camel"):
    test_results: list[_File]
    was_interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What is one tool's own in the format."""

    tool: str
    result: str
    """Name of the file that it is told to write, as without a selection."""
    is_test: Callable[[str], bool]


def found_result(ended: Ended, result: str) -> tuple[Path, bool]:
    """The result file of a run, and whether tests were left out of it by their names."""
    selected = ended.results / f"{SELECTED}-{result}"
    return (selected, True) if selected.is_symlink() or selected.exists() else (ended.results / result, False)


def unwritten(ended: Ended, tool: str) -> str:
    """Why there are no results, with what was printed last."""
    return f"{tool} ended with status {ended.exit_status} and wrote no results{last_words(ended.output)}"


def last_words(output: str) -> str:
    """``: `` and the last lines that were printed; nothing if there are none."""
    lines = [line.rstrip() for line in without_colour(output).splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else ""


def unexplained(ended: Ended, results: Results, *, tool: str) -> Results:
    """The same results, with a problem if the command failed and nothing in them says why."""
    is_explained = bool(results.collect_errors) or any(case.outcome in FAILING for case in results.tests)
    if results.problem is not None or ended.exit_status == 0 or is_explained:
        return results
    what = "no test failed" if results.tests else "no test ran"
    problem = f"{tool} ended with status {ended.exit_status} though {what}{last_words(ended.output)}"
    return Results(tests=results.tests, collect_errors=results.collect_errors, problem=problem)


def read(ended: Ended, form: Format) -> Results:
    """The results of a run of jest or vitest."""
    path, is_selected = found_result(ended, form.result)
    try:
        run = msgspec.json.decode(read_ordinary(path, limit_bytes=LIMIT_BYTES), type=_Run)
    except FileNotFoundError:
        return Results(problem=unwritten(ended, form.tool))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Results(problem=f"The results that {form.tool} wrote cannot be read: {error}")
    tests = tuple(_cases(run, ended.root, form=form, is_selected=is_selected))
    errors = tuple(_errors(run, ended.root, form=form))
    problem = f"{form.tool} was interrupted{last_words(ended.output)}" if run.was_interrupted else None
    return unexplained(ended, Results(tests=tests, collect_errors=errors, problem=problem), tool=form.tool)


def _cases(run: _Run, root: Path, *, form: Format, is_selected: bool) -> Iterator[Case]:
    pairs = [(relative(file.name, root), test) for file in run.test_results for test in file.assertion_results]
    ids = numbered(f"{file}::{SEPARATOR.join((*test.ancestor_titles, test.title))}" for file, test in pairs)
    for nodeid, (file, test) in zip(ids, pairs, strict=True):
        outcome = _OUTCOMES.get(test.status, "error")
        if not (is_selected and outcome == "skipped"):  # those of other names; a target that is skipped is among them
            yield _case(nodeid, test, outcome=outcome, setting=Setting(root=root, file=file, is_test=form.is_test))


def _case(nodeid: str, test: _Assertion, *, outcome: str, setting: Setting) -> Case:
    said = "\n".join(test.failure_messages or ())
    is_hooks = _HOOK in said and "_callCircusTest" not in said.partition(_HOOK)[0]
    if is_hooks and outcome == "failed":
        outcome = "error"
        setting = Setting(root=setting.root, file=setting.file, is_test=setting.is_test, phase="setup")
    if outcome == "passed" and test.failing:
        outcome = "xfailed"
    why = failure(said, setting, is_expectation=_is_matchers(test)) if outcome in FAILING else None
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=setting.file,
        line=test.location.line if test.location else 0,
        duration_s=max(test.duration or 0.0, 0.0) / 1000,
        reruns=max((test.invocations or 1) - 1, 0),
        failure=why,
    )


def _is_matchers(test: _Assertion) -> bool:
    return any(isinstance(detail, dict) and "matcherResult" in detail for detail in test.failure_details or ())


def _errors(run: _Run, root: Path, *, form: Format) -> Iterator[CollectError]:
    """Files that could not be loaded, and those that failed although none of their tests did."""
    for file in run.test_results:
        said = without_colour(file.message or "")
        has_failed = any(_OUTCOMES.get(test.status, "error") in FAILING for test in file.assertion_results)
        is_of_file = not file.assertion_results or _SUITE_FAILED in said or not has_failed
        if file.status == "failed" and is_of_file:
            name = relative(file.name, root)
            setting = Setting(root=root, file=name, is_test=form.is_test, phase="collect")
            yield CollectError(name, failure(_of_suite(said) or _UNSAID.format(form.tool), setting))


_UNSAID = "The file failed, though none of its tests did, and {} does not say why: perhaps a hook after them"


def _of_suite(said: str) -> str:
    """What jest says under the heading that a file could not be run, without its indentation."""
    _, found, rest = said.partition(f"● {_SUITE_FAILED}")
    lines = (rest if found else said).strip("\n").splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines).strip("\n")
    details = text.partition("\nDetails:\n")[2]
    if text.startswith("Jest encountered an unexpected token") and details:
        return f"{details.strip()}\n\n{text}"
    return text
