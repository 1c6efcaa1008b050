"""The measures of a generation, each beside its target. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cdd_agent.errors import format_count
from cdd_agent.generation.outcome import (
    Dependencies,
    GenerationOutcome,
    InstallationCheck,
    Installed,
    NodeOutcome,
    NotInstalled,
    NotVerified,
)

FIRST_TRY = 0.6
DEBUGGED = 0.8
CONFIRMED = 0.8
"""The least shares."""
SYMBOL_MS = 200
SEARCH_MS = 500
"""The longest medians."""
_LONGEST_S = 1800
_NODES = 50
"""Nodes that may take so long together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One measure."""

    name: str
    value: str
    """``not measured: WHY`` if nothing was measured."""
    target: str = ""
    is_reached: bool | None = None
    """None without a target, or if that is unknown."""


def list_metrics(outcome: GenerationOutcome) -> tuple[Metric, ...]:
    """Return all measures, those with a target first."""
    return (
        _measure_first_try(outcome),
        _measure_debugging(outcome),
        _measure_median("Symbol localization speed", outcome.localization.symbol_ms, most=SYMBOL_MS, what="symbol"),
        _measure_median("Graph search speed", outcome.localization.search_ms, most=SEARCH_MS, what="graph search"),
        _measure_installation(outcome.installation),
        _measure_time(outcome),
        _measure_dependencies(outcome.dependencies),
        *_measure_others(outcome),
    )


def format_percent(part: int, whole: int) -> str:
    """Return the rounded percentage; only all is 100 %, and only none is 0 %.

    >>> format_percent(15, 20), format_percent(1999, 2000), format_percent(1, 2000), format_percent(0, 0)
    ('75%', '99%', '1%', '0%')
    """
    if not whole:
        return "0%"
    rounded = math.floor(100 * part / whole + 0.5)
    if 0 < part < whole:
        rounded = min(max(rounded, 1), 99)
    return f"{rounded}%"


def format_duration(seconds: float) -> str:
    """Return a duration in words.

    >>> format_duration(1714), format_duration(0.4), format_duration(3600)
    ('28 minutes 34 seconds', '0.4 seconds', '1 hour 0 minutes')
    """
    if seconds < 10:
        return f"{seconds:.1f} seconds"
    whole = round(seconds)
    if whole < 60:
        return format_count(whole, "second")
    if whole < 3600:
        return f"{format_count(whole // 60, 'minute')} {format_count(whole % 60, 'second')}"
    return f"{format_count(whole // 3600, 'hour')} {format_count(whole % 3600 // 60, 'minute')}"


def list_done(outcome: GenerationOutcome) -> list[NodeOutcome]:
    """Return the nodes that passed or failed."""
    return [node for node in outcome.nodes if node.status in ("passed", "failed")]


def list_first(outcome: GenerationOutcome) -> list[NodeOutcome]:
    """Return the nodes that passed at the first try."""
    return [node for node in outcome.nodes if node.status == "passed" and not node.rounds]


def list_debugged(outcome: GenerationOutcome) -> list[NodeOutcome]:
    """Return the nodes whose code was refused at least once, and that passed or failed in the end."""
    return [node for node in list_done(outcome) if node.refused]


def _share(name: str, counts: tuple[int, int], *, least: float, what: str) -> Metric:
    part, whole = counts
    target = f"at least {least:.0%}"
    value = f"{part} of {format_count(whole, what)} ({format_percent(part, whole)})"
    return Metric(name=name, target=target, value=value, is_reached=part >= least * whole)


def _measure_first_try(outcome: GenerationOutcome) -> Metric:
    name, target = "Test pass rate (first try)", f"at least {FIRST_TRY:.0%}"
    done, first = list_done(outcome), list_first(outcome)
    tests = sum(node.tests for node in done)
    if outcome.given_tests is not None:
        nodes = f"{len(first)} of {format_count(len(done), 'node')} passed at the first try"
        why = f"not measured: the tests were given, and one enters many nodes; {nodes}"
        return Metric(name=name, target=target, value=why)
    if not tests:
        return Metric(name=name, target=target, value="not measured: no node has tests")
    return _share(name, (sum(node.passed for node in first), tests), least=FIRST_TRY, what="test")


def _measure_debugging(outcome: GenerationOutcome) -> Metric:
    name, debugged = "Debugging success rate", list_debugged(outcome)
    if not debugged:
        return Metric(name=name, target=f"at least {DEBUGGED:.0%}", value="not measured: no code was refused")
    passed = sum(node.status == "passed" for node in debugged)
    return _share(name, (passed, len(debugged)), least=DEBUGGED, what="node")


def _measure_median(name: str, median_ms: float | None, *, most: int, what: str) -> Metric:
    target = f"below {most} ms"
    if median_ms is None:
        return Metric(name=name, target=target, value=f"not measured: no {what} was asked for")
    shown = f"{median_ms:.1f}" if median_ms < 10 else f"{median_ms:.0f}"
    return Metric(name=name, target=target, value=f"median {shown} ms", is_reached=median_ms < most)


def _measure_installation(check: InstallationCheck) -> Metric:
    name, target = "Repository build success", "100%"
    match check:
        case Installed() | NotInstalled(act="import" | "test"):
            return Metric(name=name, target=target, value="it can be installed", is_reached=True)
        case NotInstalled():
            return Metric(name=name, target=target, value="it cannot be installed", is_reached=False)
        case NotVerified(reason=reason):
            return Metric(name=name, target=target, value=f"not measured: {reason}")


def _measure_time(outcome: GenerationOutcome) -> Metric:
    done = len(list_done(outcome))
    name, target = "Generation completion time", f"below {_LONGEST_S // 60} minutes for {_NODES} nodes"
    if not done:
        return Metric(name=name, target=target, value="not measured: no node was generated")
    value = f"{format_duration(outcome.duration_s)} for {format_count(done, 'node')}"
    return Metric(name=name, target=target, value=value, is_reached=outcome.duration_s * _NODES < _LONGEST_S * done)


def _measure_dependencies(found: Dependencies | None) -> Metric:
    name, target = "Dependency validation", f"at least {CONFIRMED:.0%}"
    if found is None or not found.planned:
        return Metric(
            name=name, target=target, value="not measured: no dependency is planned between nodes that passed"
        )
    confirmed, unknown = len(found.confirmed) + len(found.entered), len(found.unknown)
    value = f"{confirmed} of {found.planned} ({format_percent(confirmed, found.planned)})"
    reached: bool | None = confirmed >= CONFIRMED * found.planned
    if unknown:
        value += f", {unknown} unknown"
        reached = reached or (None if confirmed + unknown >= CONFIRMED * found.planned else False)
    return Metric(name=name, target=target, value=value, is_reached=reached)


def _measure_others(outcome: GenerationOutcome) -> Iterator[Metric]:
    done, debugged = list_done(outcome), list_debugged(outcome)
    yield Metric(name="Regressions caught", value=str(outcome.regressions))
    if done:
        spent, longest = sum(node.duration_s for node in done), max(done, key=lambda node: node.duration_s)
        most = f", at most {format_duration(longest.duration_s)} ({longest.title})" if spent else ""
        # The time of the generation has that of integration tests, too.
        average = format_duration((spent or outcome.duration_s) / len(done))
        yield Metric(name="Time per node", value=f"{average} on average{most}")
    if debugged:
        rounds = sum(node.refused for node in debugged) / len(debugged)
        yield Metric(name="Refused attempts per debugged node", value=f"{rounds:.1f} on average")
    asked = outcome.localization
    if asked.rounds:
        yield Metric(name="Questions per debugging attempt", value=f"{asked.queries / asked.rounds:.1f} on average")
    counts = [f"{engine}: {count}" for engine, count in sorted(asked.answers.items())]
    yield Metric(name="Answers per engine", value=", ".join(counts) or "not measured: no symbol was asked for")
