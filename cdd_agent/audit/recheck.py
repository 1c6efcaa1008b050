"""Run the checks of an open phase again, and compare what they find with the findings in its note.

A place or function that cannot be in the change refutes the note. The number of calls depends on the time that a check
had, and the chosen places on the version of cdd, so another possible value is only reported. Times and numbers of runs
cannot be checked. Sentences, which notes of version 1 keep, cannot be compared, nor can findings of a later version's
checks.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice

from cdd_agent.audit.handoffs import Claim, confirm, leave_open, refute
from cdd_agent.audit.reruns import PhaseChange
from cdd_agent.errors import join_first
from cdd_agent.evidence.clean_copy import (
    DOUBTS,
    CheckRequest,
    Findings,
    ProductChange,
    find_layout,
    find_newly_passing,
    list_product_changes,
    read_product_sources,
    read_sources,
)
from cdd_agent.evidence.confirm import confirm as confirm_phase
from cdd_agent.evidence.differential import ComparedTrees, refuse_changed_behavior
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.evidence.readable import check_sources
from cdd_agent.evidence.source import find_changed_lines, list_lines
from cdd_agent.evidence.stubs import NewTests, check_new_tests
from cdd_agent.git.repository import Repository
from cdd_agent.sandbox.port import ISOLATING_LEVELS
from cdd_agent.testrun.foreign import learn_syntax
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.python_source import parse
from cdd_agent.work.finding import Check, Finding, list_unverified
from cdd_agent.work.wording import explain

_LIMIT_S = 120.0
_MOST_SHOWN = 5
_NAME = re.compile(r"\w+")
_PLACE = re.compile(r"(.+):(\d{1,9})")
_OF_CHANGE: frozenset[Check] = frozenset({"clean_copy", "mutants", "suspicious"})
"""Checks whose places are in the product's change."""
_OF_CALLS: frozenset[Check] = frozenset({"calls", "outside"})
_OF_RUN: frozenset[Check] = frozenset({"run", "no_change"})
"""About the run of cdd, which an audit does not repeat."""
_CONFIRMING: frozenset[Check] = frozenset({"clean_copy", "calls", "stubs"})
"""One of these checks confirms a phase: GREEN, REFACTOR or RED."""
_MOST_OUTSIDE, _MOST_COMPARED = 10, 7_000
"""Calls of one function that cdd compares, at most: outside of a test run, and with the code before."""


def recheck(noted: Sequence[Finding], change: PhaseChange, *, repository: Repository, suite: Suite) -> Claim:
    """Run the checks of an open phase again, and compare what they find with what the note states."""
    layout = find_layout(repository, suite)
    changes = list_product_changes(repository, layout=layout, red=change.old, green=change.new, tests=change.tests)
    learn_syntax([text for each in changes for text in (each.old, each.new) if text], suite=suite)
    sources = read_product_sources(repository, project=layout.project, tree=change.new)
    stated = [finding for finding in noted if finding.case != "text" and finding.is_of_known_check]
    if false := " ".join(islice(find_false_details(stated, changes, product="\n".join(sources)), _MOST_SHOWN)):
        return refute("checks", false)
    found = _run_checks(change, changes, repository=repository, suite=suite)
    if found.reasons:
        text = f"The checks, run again, refuse the change: {explain(found.reasons[0])}"
        # The text of the step and the further examples, which may have refuted a doubt, are not in the history.
        is_doubt = all(reason.code in DOUBTS for reason in found.reasons)
        return leave_open("checks", text) if is_doubt else refute("checks", text)
    sentences = [explain(finding) for finding in noted if finding.case == "text"]
    claim = _compare(stated, found.notices, sentences=sentences, compares=suite.sandbox.level in ISOLATING_LEVELS)
    unknown = [finding for finding in noted if not finding.is_of_known_check]
    if unknown and claim.holds is not False:
        shown = " ".join(map(explain, unknown[:_MOST_SHOWN]))
        text = f"This version of cdd does not have a check that the note states: {shown} {claim.text}"
        return leave_open("checks", text)
    return claim


def _run_checks(
    change: PhaseChange, changes: tuple[ProductChange, ...], *, repository: Repository, suite: Suite
) -> Findings:
    project = find_layout(repository, suite).project
    runs = TimedRuns(repository=repository, suite=suite, limit_s=_LIMIT_S, emit=lambda _: None)
    trees = ComparedTrees(
        before=change.old,
        after=change.new,
        changes=changes,
        tests=tuple(dict.fromkeys(case.file for case in change.after.tests if case.outcome == "passed")),
        records_after=change.phase != "refactor",
    )
    if change.phase == "refactor":
        return refuse_changed_behavior(trees, runs=runs)
    if change.phase == "red":
        new = NewTests(report=change.after, baseline=change.before, sources=change.sources, tree=change.new)
        paths = [os.path.relpath(each.path, project or ".") for each in repository.list_changes(change.old, change.new)]
        findings = check_sources(paths, before=change.old, after=change.new, runs=runs)
        return findings if findings.reasons else findings + check_new_tests(new, runs=runs)
    targets = find_newly_passing(change.after, baseline=change.before)
    request = CheckRequest(
        targets=targets,
        changes=changes,
        tests=read_sources(repository, project=project, tree=change.old, paths=targets),
        stated=change.title,
        red=change.old,
        green=change.new,
        baseline=change.before,
        elsewhere=lambda: read_product_sources(repository, project=project, tree=change.old),
    )
    return confirm_phase(request, runs=runs, trees=trees)


def _compare(stated: Sequence[Finding], now: Sequence[Finding], *, sentences: Sequence[str], compares: bool) -> Claim:
    """Compare the findings of checks that accept the change. ``compares``: the sandbox lets them compare calls."""
    shown = " ".join(map(explain, now)) or "nothing was found"
    if sentences:
        text = "The checks, run again, accept the change, but version 1 keeps sentences, which cannot be compared."
        return leave_open("checks", f"{text} It states: {' '.join(sentences)} Now: {shown}")
    confirmed = [finding for finding in stated if finding.check in _CONFIRMING and finding.outcome == "confirmed"]
    if confirmed and not any(each.check in _CONFIRMING and each.outcome == "confirmed" for each in now):
        text = f"It states: {explain(confirmed[0])} Now: {shown}"
        return leave_open("checks", text) if list_unverified(now) else refute("checks", text)
    if others := " ".join(find_other_details(stated, now, compares=compares)):
        return leave_open("checks", f"The checks, run again, accept the change, but not all details agree. {others}")
    if unverified := list_unverified(now):
        text = f"The checks, run again, accept the change, but leave a part of it open: {explain(unverified[0])}"
        return leave_open("checks", text)
    rest = "Times cannot be checked" + ("." if compares else ", nor can calls without the sandbox bwrap or docker.")
    return confirm("checks", f"The checks, run again, accept the change and find the same. {rest}")


def find_false_details(stated: Sequence[Finding], changes: Sequence[ProductChange], *, product: str) -> Iterator[str]:
    """Yield the details that cannot be true: places outside of the change, unknown functions, too many calls.

    ``product``: the sources of the product, one after the other.
    """
    # A note may repeat a place or function many times.
    changed = {change.path: _list_changed_places(change) for change in changes if change.new is not None}
    # A function of a REFACTOR may be in the code before only.
    names = {name for text in (product, *(change.old or "" for change in changes)) for name in _NAME.findall(text)}
    for finding in stated:
        if finding.check in _OF_CHANGE:
            yield from filter(None, (_explain_wrong_place(place, changed) for place in finding.places))
        unknown = next((name for name in finding.functions if name.rpartition(".")[2] not in names), None)
        most = _MOST_OUTSIDE if finding.check == "outside" else _MOST_COMPARED
        if unknown is not None:
            yield f"It states calls of {unknown}, which the product does not have."
        elif (finding.calls or 0) > most * len(finding.functions):
            named = join_first(finding.functions, most=_MOST_SHOWN) or "no function"
            yield f"It states {finding.calls} calls of {named}, but cdd compares at most {most} of each function."


def find_other_details(stated: Sequence[Finding], now: Sequence[Finding], *, compares: bool) -> Iterator[str]:
    """Yield the findings that the checks do not find again, and those that the note lacks.

    Findings about compared calls count only if the sandbox ``compares`` calls.
    """
    left_out = _OF_RUN if compares else _OF_RUN | _OF_CALLS
    known, found = (
        {replace(finding, runs=None, seconds=None): finding for finding in findings if finding.check not in left_out}
        for findings in (stated, now)
    )
    kinds = {_get_kind(finding): explain(finding) for finding in found.values()}
    for finding in (finding for key, finding in known.items() if key not in found):
        yield f"It states: {explain(finding)} Now: {kinds.get(_get_kind(finding), 'not found')}"
    stated_kinds = set(map(_get_kind, known.values()))
    for finding in (finding for key, finding in found.items() if key not in known):
        if _get_kind(finding) not in stated_kinds:
            yield f"It does not state: {explain(finding)}"


def _get_kind(finding: Finding) -> tuple[str, str]:
    return finding.check, finding.outcome


def _explain_wrong_place(place: str, changed: Mapping[str, Set[int]]) -> str:
    """Return why a place cannot be in the change, whose files and lines are ``changed``; empty if it can."""
    is_line = _PLACE.fullmatch(place)
    path, line = (is_line[1], int(is_line[2])) if is_line is not None else (place, None)
    if path not in changed:
        return f"It names {place}, but the commit does not change this file."
    if line is not None and line not in changed[path]:
        return f"It names {place}, but this line is not part of the change."
    return ""


def _list_changed_places(change: ProductChange) -> set[int]:
    """Return the lines that are changed, or on which a statement or function begins that has a changed line."""
    assert change.new is not None
    _, touched = find_changed_lines(change.old, change.new)
    tree = parse(change.new)
    nodes = ast.walk(tree) if tree is not None else ()
    begun = {
        node.lineno
        for node in nodes
        if isinstance(node, (ast.stmt, ast.expr)) and not touched.isdisjoint(list_lines(node))
    }
    return {*touched, *begun}
