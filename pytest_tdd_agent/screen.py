"""The terminal section at the end of a run: a few lines that a person or a model can act on. Pure.

Failures with the same root cause are one entry, so a fixture that breaks two hundred tests appears once.
"""

from __future__ import annotations

from typing import Iterator, Mapping, NamedTuple

from .report import Case, CollectError, Failure, SuiteReport, Verdict
from .system import bind_builtins
from .wording import explain

bind_builtins(globals())


_MOST_CAUSES = 10
_MOST_TESTS = 3
MOST_REASONS = 3
"""Reasons shown per code."""
_WIDTH = 160
_HINTS = {
    "baseline_missing": "hint: --tdd-agent-target=NODEID, or before the change: pytest --tdd-agent-report=before.json "
    "--tdd-agent-audit, and then --tdd-agent-baseline=before.json",
    "name_not_expected": "hint: declare a name that does not exist yet with --tdd-agent-expects=NAME",
}
"""Code of a reason -> the options that may be missing."""


class _Cause(NamedTuple):
    kind: str
    exception: str
    message: str
    path: str | None
    line: int | None


class Causes:
    """Failures grouped by root cause: same kind, position and first line of the message."""

    def __init__(self) -> None:
        """Start without failures."""
        self._tests: dict[_Cause, list[str]] = {}
        self._counts: dict[_Cause, int] = {}
        self._flaky: list[str] = []

    def add(self, case: Case) -> None:
        """Add a test that failed or is flaky."""
        if case.outcome in ("failed", "error") and case.failure is not None:
            self._count(case.failure, case.nodeid)
        elif case.outcome == "passed":
            self._flaky.append(f"{case.nodeid} ({', then '.join((*case.tries[:-1], 'passed'))})")

    def add_error(self, error: CollectError) -> None:
        """Add a file that could not be collected."""
        self._count(error.failure, error.nodeid)

    def _count(self, failure: Failure, name: str) -> None:
        cause = _Cause(failure.kind, failure.exception, _get_first_line(failure.message), failure.path, failure.line)
        self._counts[cause] = self._counts.get(cause, 0) + 1
        names = self._tests.setdefault(cause, [])
        if len(names) < _MOST_TESTS:
            names.append(name)

    def format_lines(self) -> Iterator[str]:
        """Yield the causes, the most frequent first, and the flaky tests."""
        ordered = sorted(self._counts, key=lambda cause: -self._counts[cause])
        for cause in ordered[:_MOST_CAUSES]:
            at = f" {cause.path}:{cause.line}" if cause.path else ""
            yield f"  {cause.kind}{at}: {cause.message or cause.exception}"
            yield f"    {_format_tests(self._tests[cause], self._counts[cause])}"
        if len(ordered) > _MOST_CAUSES:
            count = sum(self._counts[cause] for cause in ordered[_MOST_CAUSES:])
            yield f"  and {len(ordered) - _MOST_CAUSES} more causes, of {count} failures, in the report"
        for flaky in self._flaky[:_MOST_CAUSES]:
            yield f"  flaky: {flaky}"
        if len(self._flaky) > _MOST_CAUSES:
            yield f"  and {len(self._flaky) - _MOST_CAUSES} more flaky tests in the report"


def format_summary(
    report: SuiteReport, *, counts: Mapping[str, int], causes: Causes, flaky: Causes, spared: int, where: str
) -> list[str]:
    """Return the lines of the section: the verdict with its reasons or the causes of failure, and the report's path."""
    verdict = () if report.gate is None else format_verdict(report.gate, spared=spared)
    if report.gate is None or len(report.gate.reasons) > MOST_REASONS:
        number = format_counts(counts, complete=report.complete, uncollected=len(report.collect_errors))
        found = (number, *causes.format_lines())
    else:
        found = tuple(flaky.format_lines())
    is_red = report.gate is not None and report.gate.open and report.gate.phase == "red"
    green = f"--tdd-agent-gate=green --tdd-agent-baseline={where} --tdd-agent-report=green.json"
    hint = f"; next, make the tests pass: pytest {green}" if is_red else ""
    return [*verdict, *found, f"report: {where}{hint}"]


def format_counts(counts: Mapping[str, int], *, complete: bool, uncollected: int = 0) -> str:
    """Return the number of tests per outcome; as in pytest, ``uncollected`` files are errors too."""
    added = {**counts, "error": counts.get("error", 0) + uncollected}
    words = {**dict.fromkeys(added, ""), "error": "s" if added["error"] > 1 else ""}
    shown = [f"{count} {name}{words[name]}" for name, count in added.items() if count and name != "collected"]
    return f"{'' if complete else 'incomplete run: '}{', '.join(shown) or 'no tests'}"


def format_verdict(verdict: Verdict, *, spared: int = 0) -> Iterator[str]:
    """Yield whether the gate is open, and the first reasons of each code; ``spared`` failures are not among them."""
    old = f" ({spared} failed before)" if spared else ""
    yield f"{verdict.phase.upper()} gate: {'open' if verdict.open else 'closed'}{old}"
    by_code: dict[str, list[str]] = {}
    for reason in verdict.reasons:
        by_code.setdefault(reason.code, []).append(explain(reason))
    for code, messages in by_code.items():
        yield from (f"  {code}: {message}" for message in messages[:MOST_REASONS])
        if len(messages) > MOST_REASONS:
            yield f"  {code}: and {len(messages) - MOST_REASONS} more in the report"
        if code in _HINTS:
            yield f"    {_HINTS[code]}"


def _format_tests(names: list[str], count: int) -> str:
    shown = names[:1]
    file = names[0].split("::", 1)[0]
    shown += [name[len(file) :] if name.startswith(file + "::") else name for name in names[1:]]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return (f"{count} tests: " if count > 1 else "") + ", ".join(shown) + more


def _get_first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
