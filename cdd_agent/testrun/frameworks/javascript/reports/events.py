"""The events of ``node --test`` as our reporter writes them, one a line, and what they come to. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.testrun.frameworks.framework import Ended, Results
from cdd_agent.testrun.frameworks.javascript.files import is_nodes_test
from cdd_agent.testrun.frameworks.javascript.reports.sources import text_of
from cdd_agent.testrun.frameworks.javascript.reports.thrown import Setting, failure, printed, relative
from cdd_agent.testrun.frameworks.javascript.selection import SEPARATOR, numbered
from pytest_tdd_agent.report import Case, CollectError, Failure

REPORTER = """
const KEPT = new Set(["test:enqueue", "test:start", "test:pass", "test:fail", "test:stderr"]);
const plain = (error, depth) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  const { name, message, stack, failureType, exitCode, cause } = error;
  const told = { name, message, stack, failureType };
  for (const key in told) told[key] = told[key] === undefined ? undefined : String(told[key]);
  return { ...told, exitCode, cause: cause === undefined || depth > 8 ? undefined : plain(cause, depth + 1) };
};
export default async function* (source) {
  for await (const { type, data } of source) {
    if (!KEPT.has(type)) continue;
    const { name, nesting, file, line, message, details, skip, todo } = data;
    const marks = { skip: skip === true ? "" : skip, todo: todo === true ? "" : todo };
    const error = details?.error ? plain(details.error, 0) : undefined;
    const told = { isSuite: details?.type === "suite", duration: details?.duration_ms, error, ...marks };
    yield JSON.stringify({ type, name, nesting, file, line, message, ...told }) + "\\n";
  }
  yield '{"type":"end"}\\n';
}
"""
"""A module for ``--test-reporter``; the last line says that the run came to its end."""

_LEFT_OUT = "test name does not match pattern"
_USES_RUNNER = re.compile(r"['\"]node:test['\"]")


class _Error(msgspec.Struct, rename="camel"):
    name: str | None = None
    message: str | None = None
    stack: str | None = None
    failure_type: str = ""
    exit_code: int | None = None
    cause: "_Error | None" = None


class _Event(msgspec.Struct, rename="camel"):
    type: str
    name: str = ""
    nesting: int = 0
    file: str = ""
    line: int = 0
    message: str = ""
    is_suite: bool = False
    duration: float = 0.0
    skip: str | bool | None = None
    todo: str | bool | None = None
    error: _Error | None = None


@dataclass(slots=True)
class _Run:
    """What is known after some of the events."""

    root: Path
    is_selected: bool
    titles: dict[str, list[str]] = field(default_factory=dict)
    """File -> those of what has begun, outermost first."""
    parents: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    """Those with a test that ended."""
    printed: dict[str, list[str]] = field(default_factory=dict)
    """File -> what it printed as errors."""
    open: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """What has begun and has not ended."""
    tests: list[Case] = field(default_factory=list)
    errors: list[CollectError] = field(default_factory=list)
    exited: list[str] = field(default_factory=list)
    """Files that ended well, though the tests in them did not."""


def results(text: str, ended: Ended, *, is_selected: bool) -> Results:
    """What the events in ``text`` come to; ``ValueError`` for a line that is none.

    ``is_selected``: tests were left out by their names.
    """
    run = _Run(root=ended.root, is_selected=is_selected)
    is_whole = False
    for line in text.splitlines():
        event = msgspec.json.decode(line, type=_Event)
        is_whole = event.type == "end"
        _take(event, run)
    ids = numbered(case.nodeid for case in run.tests)
    tests = tuple(replace(case, nodeid=nodeid) for case, nodeid in zip(run.tests, ids, strict=True))
    return Results(tests=tests, collect_errors=tuple(run.errors), problem=_problem(run, is_whole=is_whole))


def _problem(run: _Run, *, is_whole: bool) -> str | None:
    if not is_whole:
        return "node --test was cut off: its events have no end"
    if run.exited:
        return f"{run.exited[0]} ended before its tests did, as process.exit() lets it"
    if run.open:
        file, _, name = next(iter(run.open))
        return f"{relative(file, run.root)}::{name} has begun and has not ended"
    return None


def _take(event: _Event, run: _Run) -> None:
    if event.type == "test:stderr":
        run.printed.setdefault(relative(event.file, run.root), []).append(event.message)
    elif _is_of_file(event, run.root):
        if event.type in ("test:pass", "test:fail"):
            _take_file(event, run)
    elif event.type == "test:enqueue":
        key = (event.file, event.nesting, event.name)
        run.open[key] = run.open.get(key, 0) + 1
    elif event.type == "test:start":
        run.titles.setdefault(event.file, [])[event.nesting :] = [event.name]
    elif event.type in ("test:pass", "test:fail"):
        _take_end(event, run)


def _is_of_file(event: _Event, root: Path) -> bool:
    """Whether an event is about a whole file, which node reports as a test with the file's path for its name."""
    return event.nesting == 0 and bool(event.file) and event.file in (event.name, str(root / event.name))


def _take_file(event: _Event, run: _Run) -> None:
    file = relative(event.file, run.root)
    if event.error is None:
        if event.file in run.files or run.is_selected:  # none of its tests may be among those that were asked for
            return
        if _USES_RUNNER.search(text_of(Path(event.file))) and event.skip is None:
            run.exited.append(file)
        else:
            run.tests.append(_case(event, nodeid=file, file=file, outcome=_outcome(event)))
    elif event.error.failure_type != "subtestsFailed":
        said = printed("".join(run.printed.get(file, ()))) or _text(event.error)
        run.errors.append(CollectError(file, failure(said, _setting(run, file, phase="collect"))))


def _take_end(event: _Event, run: _Run) -> None:
    key = (event.file, event.nesting, event.name)
    if run.open.get(key, 0) > 1:
        run.open[key] -= 1
    else:
        run.open.pop(key, None)
    run.files.add(event.file)
    above = tuple(run.titles.get(event.file, ())[: event.nesting])
    run.parents.update((event.file, above[:depth]) for depth in range(1, len(above) + 1))
    if event.skip == _LEFT_OUT:
        return
    file = relative(event.file, run.root)
    path = (*above, event.name)
    nodeid = f"{file}::{SEPARATOR.join(path)}"
    is_group = event.is_suite or (event.file, path) in run.parents
    if not is_group:
        run.tests.append(_judged(event, run, nodeid=nodeid))
    elif event.error is not None and event.error.failure_type not in ("subtestsFailed", "cancelledByParent"):
        if event.is_suite and event.error.failure_type != "hookFailed":
            run.errors.append(CollectError(nodeid, _failure(event.error, run, file=file, phase="collect")))
        else:
            run.tests.append(_judged(event, run, nodeid=nodeid))


def _judged(event: _Event, run: _Run, *, nodeid: str) -> Case:
    file = relative(event.file, run.root)
    outcome = _outcome(event)
    why = None
    if outcome in ("failed", "error") and event.error is not None:
        why = _failure(event.error, run, file=file, phase=_phase(event.error))
    return _case(event, nodeid=nodeid, file=file, outcome=outcome, why=why)


def _case(event: _Event, *, nodeid: str, file: str, outcome: str, why: Failure | None = None) -> Case:
    duration_s = max(event.duration, 0.0) / 1000
    return Case(nodeid=nodeid, outcome=outcome, file=file, line=event.line, duration_s=duration_s, failure=why)


def _outcome(event: _Event) -> str:
    if event.skip not in (None, False):
        return "skipped"
    if event.todo not in (None, False):
        return "xfailed" if event.error else "xpassed"
    if event.error is None:
        return "passed"
    return "error" if _phase(event.error) != "call" else "failed"


def _phase(error: _Error) -> str:
    if error.failure_type == "cancelledByParent":
        return "setup"
    if error.failure_type == "hookFailed":
        return "teardown" if "after" in (error.message or "") else "setup"
    return "call"


def _failure(error: _Error, run: _Run, *, file: str, phase: str) -> Failure:
    return failure(_text(error.cause or error), _setting(run, file, phase=phase))


def _text(error: _Error) -> str:
    said = f"{error.name}: {error.message}" if error.name else error.message or ""
    return error.stack if error.stack and (error.message or "") in error.stack else "\n".join(_lines(said, error.stack))


def _lines(*texts: str | None) -> Iterator[str]:
    return (text for text in texts if text)


def _setting(run: _Run, file: str, *, phase: str) -> Setting:
    return Setting(root=run.root, file=file, is_test=is_nodes_test, phase=phase)
