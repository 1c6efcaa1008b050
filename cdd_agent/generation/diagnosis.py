"""Why the tests of a node fail: because of the code, the test or the environment, or by chance. Pure.

The rules need no model. Where none decides, further judges may, such as a vote of models.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from cdd_agent.generation.requirements import Environment, normalize_name, read_name
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.work.state import Diagnosis
from pytest_tdd_agent.fingerprint import is_protected
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure, SuiteReport

_WIDTH = 200
_RAN = ("passed", *FAILING)
_NO_INPUT = (("OSError", "pytest: reading from stdin"), ("EOFError", "EOF when reading a line"))
"""Exception and beginning of its message, if a test reads standard input: from pytest's capture, and from Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A run in which tests of a node fail, and its circumstances."""

    report: SuiteReport
    rerun: SuiteReport | None = None
    """A second run of the same files."""
    own: frozenset[str]
    """Import names of the repository, and of the modules that its graph plans."""
    environment: Environment
    """The packages of the interpreter that ran the tests."""
    required: tuple[str, ...] = ()
    """The requirements that the graph lists."""
    install: str
    """The command that installs packages, without their names."""


Judge: TypeAlias = Callable[[Facts], Diagnosis | None]
"""Returns None if it cannot decide."""


def diagnose(facts: Facts, *, judges: Sequence[Judge] = ()) -> Diagnosis:
    """Return the answer of the first rule that decides, then of the first of the ``judges``."""
    for judge in (_find_chance, _find_cause, *judges):
        found = judge(facts)
        if found is not None:
            return found
    return Diagnosis(kind="unknown", why="No rule says why the tests fail.")


def _find_chance(facts: Facts) -> Diagnosis | None:
    """Return ``flaky`` if results differ between runs of the same files, and no test fails in the same way in each."""
    changing = _list_changing(facts)
    if not changing or any(True for _ in _iterate_stable_failures(facts)):
        return None
    names = _show(", ".join(changing))
    return Diagnosis(
        kind="flaky",
        why=f"Runs of the same files give different results: {names}",
        advice=f"Make these tests independent of time, chance, order and network: {names}",
    )


def _find_cause(facts: Facts) -> Diagnosis | None:
    """Return the first failure that says by itself whose it is."""
    for nodeid, failure in _iterate_stable_failures(facts):
        found = _find_absent_package(facts, nodeid, failure=failure)
        found = found or _find_wanted_input(nodeid, failure) or _find_loop(nodeid, failure)
        if found is not None:
            return found
    return None


def _find_absent_package(facts: Facts, nodeid: str, *, failure: Failure) -> Diagnosis | None:
    """Return ``environment`` if a package is missing that is not part of the repository or the standard library."""
    module = (failure.missing_name or "").partition(".")[0]
    known = {*facts.own, *facts.environment.standard, *facts.environment.packages}
    if failure.kind != "missing_module" or not module.isidentifier() or module in known:
        return None
    installed = facts.environment.versions
    absent = [line for line in facts.required if normalize_name(read_name(line)) not in installed]
    # A distribution may have another name than its module. The graph knows it, if anybody does.
    same = [line for line in absent if normalize_name(read_name(line)) == normalize_name(module)]
    wanted = same or absent or [module]
    return Diagnosis(
        kind="environment",
        why=f"The package {module} is not installed. {_show(nodeid)} needs it.",
        place=_find_place(failure),
        advice=f"{facts.install} {shlex.join(map(_show, wanted))}",
        packages=tuple(map(_show, wanted)),
    )


def _find_wanted_input(nodeid: str, failure: Failure) -> Diagnosis | None:
    """Return ``test`` if the test runs code that reads standard input and gives it none."""
    if not any(failure.exception == name and failure.message.startswith(start) for name, start in _NO_INPUT):
        return None
    place = _find_place(failure)
    return Diagnosis(
        kind="test",
        why=f"{_show(nodeid)} waits for input at {place or 'an unknown place'}, and nobody answers.",
        place=place,
        advice=f"{_show(nodeid)} must provide the input that is read at {place or 'an unknown place'}, such as by "
        "monkeypatch.setattr('builtins.input', ...).",
    )


def _find_loop(nodeid: str, failure: Failure) -> Diagnosis | None:
    """Return whose code was running when the time was over, by the innermost call in the repository."""
    if failure.kind != "timeout":
        return None
    test = _show(nodeid)
    if not failure.frames:
        return Diagnosis(
            kind="environment", why=f"{test} did not end in time, and no code of the repository was running."
        )
    innermost = failure.frames[-1]
    place, function = _find_place(failure), _show(innermost.function)
    why = f"{test} did not end in time. {function} was running at {place}."
    if is_protected(innermost.path):
        return Diagnosis(
            kind="test", why=why, place=place, advice=f"{test} itself loops or waits at {place}. Make it end."
        )
    advice = f"{function} loops or waits at {place}, and {test} does not end. Make {function} end there."
    return Diagnosis(kind="code", why=why, place=place, advice=advice)


def _list_changing(facts: Facts) -> tuple[str, ...]:
    """Return the tests with different results in runs of the same files, or in tries within the run."""
    again = {} if facts.rerun is None else {case.nodeid: case for case in facts.rerun.tests}
    found = []
    for case in facts.report.tests:
        now = again.get(case.nodeid, case)
        has_both = case.outcome in _RAN and now.outcome in _RAN
        if len({*case.tries}) > 1 or (has_both and _get_result(case) != _get_result(now)):
            found.append(case.nodeid)
    return tuple(found)


def _get_result(case: Case) -> str:
    return case.outcome if case.outcome == "passed" or case.failure is None else case.failure.kind


def _iterate_stable_failures(facts: Facts) -> Iterator[tuple[str, Failure]]:
    """Yield node id and failure of all that fails in the same way in each run."""
    changing = _list_changing(facts)
    results: tuple[CollectError | Case, ...] = (*facts.report.collect_errors, *facts.report.tests)
    for result in results:
        is_failed = isinstance(result, CollectError) or result.outcome in FAILING
        if is_failed and result.failure is not None and result.nodeid not in changing:
            yield result.nodeid, result.failure


def _find_place(failure: Failure) -> str:
    return f"{_show(failure.path)}:{failure.line or 0}" if failure.path else ""


def _show(text: str) -> str:
    """Return a name from the tests or the code as one line that can be shown to people and models."""
    return shorten(clean(text), _WIDTH)
