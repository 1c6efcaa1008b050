"""Check what a note states besides its gate: the listed tests, the files, and the results of the checks.

``check_listed`` and ``check_examples`` are pure. ``recheck`` runs the checks of an open GREEN again.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cdd_agent.audit.handoffs import Claim, PlacedHandoff, Placement, confirm, leave_open, refute
from cdd_agent.events import Event, Notice
from cdd_agent.evidence.clean_copy import (
    CheckRequest,
    find_layout,
    find_newly_passing,
    list_product_changes,
    read_product_sources,
    read_sources,
)
from cdd_agent.evidence.confirm import confirm as confirm_green
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.testrun.suite import Suite
from cdd_agent.work.handoff import Handoff
from pytest_tdd_agent.comparison import is_inside
from pytest_tdd_agent.report import SuiteReport

_CHECKED = "Checked in a clean copy"
_SUBJECT = 40
"""Characters of a description that a commit's subject surely has."""
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFacts:
    """The facts against which the lists of a note are checked."""

    read: Callable[[str], str | None]
    """Returns the text of a file in the commit, or the names in a folder; paths are relative to the project."""
    test_list: str
    """The text of ``test-list.md`` in the commit; empty if there is none."""
    completed: frozenset[str]
    """Descriptions of the tests that the phases up to this one have completed."""
    is_whole: bool
    """Whether the handoffs of all earlier phases are known."""
    report: SuiteReport | None
    """Of the tests, run again; None if they cannot be judged."""


def check_listed(placed: PlacedHandoff, facts: ListedFacts) -> Claim:
    """Check whether the listed tests and files exist, and the tests have the stated results."""
    handoff = placed.handoff
    assert handoff is not None
    found = [*_check_subject(placed, handoff), *_check_place(placed, handoff, facts=facts)]
    doubts = [*_doubt_source(placed, handoff, facts=facts)]
    for field, names in (("completedTests", handoff.completed_tests), ("pendingTests", handoff.pending_tests)):
        for name in names:
            text = facts.read(name.partition("::")[0])
            if text is not None:
                found += _check_test(field, name, report=facts.report, text=text)
            elif field == "completedTests" and name not in facts.completed:
                text = f"It lists {name!r} as completed, but no cycle did that."
                if facts.is_whole:
                    found.append(text)
                else:
                    doubts.append(f"{text} The notes of earlier phases are not all known.")
            elif field == "pendingTests" and name not in facts.test_list:
                found.append(f"It lists {name!r} as pending, which is neither a test nor in test-list.md.")
    if found:
        return refute("listed", " ".join(found))
    if doubts:
        return leave_open("listed", " ".join(doubts))
    return confirm("listed", "The listed tests and files exist, with these results.")


def _check_subject(placed: PlacedHandoff, handoff: Handoff) -> Iterator[str]:
    subject, title = placed.commit.subject, handoff.current_test.description
    is_stated = placed.placement is Placement.OWN and not placed.commit.is_rewritten
    if is_stated and not subject.endswith(": no changes needed") and title[:_SUBJECT] not in subject:
        yield f"Its description is {title!r}, but the commit's subject is {subject!r}."


def _check_place(placed: PlacedHandoff, handoff: Handoff, *, facts: ListedFacts) -> Iterator[str]:
    file, checkpoint = handoff.current_test.test_file, handoff.checkpoint
    if file and placed.has_landed and placed.phase != "plan" and not placed.is_covered and facts.read(file) is None:
        yield f"Its test file {file} is not in the commit."
    own = rf"refs/cdd/checkpoints/{re.escape(handoff.ticket)}/(fork-[^/]+/)?step-.*"
    if checkpoint is not None and not re.fullmatch(own, checkpoint):
        yield f"Its checkpoint {checkpoint} is not of {handoff.ticket}."


def _doubt_source(placed: PlacedHandoff, handoff: Handoff, *, facts: ListedFacts) -> Iterator[str]:
    # Not a lie: the plan names this file, and an honest step may delete it or do without it, as one without tests does.
    file, test_file = handoff.current_test.impl_file, handoff.current_test.test_file
    is_written = placed.phase in ("green", "refactor") and placed.has_landed and not placed.is_covered
    if file and test_file and is_written and facts.read(file) is None:
        yield f"Its source file {file} is not in the commit: deleted, never needed, or wrongly named."


def _check_test(field: str, name: str, *, report: SuiteReport | None, text: str) -> Iterator[str]:
    """Yield the errors of a listed test. In a file or class, a single test with the result is enough."""
    if report is None or not report.structured:
        return
    own = [case for case in report.tests if case.nodeid == name or is_inside(case.nodeid, name)]
    errors = (error.nodeid for error in report.collect_errors)
    blocked = any(name == each or is_inside(name, each) or is_inside(each, name) for each in errors)
    # In a file that cannot be collected, only the text tells which tests there are.
    is_named = "::" not in name or name.partition("[")[0].rpartition("::")[2] in text
    if not own and not (blocked and is_named):
        yield f"It lists {name} in {field}, which the tests do not contain."
    elif field == "completedTests" and not any(case.outcome == "passed" for case in own):
        yield f"It lists {name} as completed, but it does not pass."
    elif field == "pendingTests" and own and not blocked and all(case.outcome == "passed" for case in own):
        yield f"It lists {name} as pending, but it passes."


def check_examples(stated: tuple[str, ...], saved: tuple[str, ...] | None, *, has_reports: bool) -> Claim:
    """Check the Examiner's results against those in the folder of reports; None: there are none.

    ``has_reports``: the folder has the report of the phase.
    """
    if saved is None and not has_reports:
        return leave_open("checks", "The further examples are not on this machine.")
    if stated != saved:
        known = "; ".join(saved or ()) or "nothing"
        return refute("checks", f"It states {'; '.join(stated)}, but the examples beside the report say {known}.")
    return confirm("checks", "The results of the further examples are those on this machine.")


@dataclass(frozen=True, kw_only=True)
class GreenChange:
    """An open GREEN between two commits, with the reports of their tests."""

    red: CommitId
    green: CommitId
    before: SuiteReport
    after: SuiteReport
    tests: tuple[str, ...]
    """Files of the item's tests."""
    title: str


def recheck(stated: tuple[str, ...], change: GreenChange, *, repository: Repository, suite: Suite) -> Claim:
    """Run the checks of an open GREEN again, and compare what they find with what the note states."""
    layout, red = find_layout(repository, suite), change.red
    targets = find_newly_passing(change.after, baseline=change.before)
    seen: list[Event] = []
    findings = confirm_green(
        CheckRequest(
            targets=targets,
            changes=list_product_changes(repository, layout=layout, red=red, green=change.green, tests=change.tests),
            tests=read_sources(repository, project=layout.project, tree=red, paths=targets),
            stated=change.title,
            red=red,
            green=change.green,
            baseline=change.before,
            elsewhere=lambda: read_product_sources(repository, project=layout.project, tree=red),
        ),
        runs=TimedRuns(repository=repository, suite=suite, limit_s=_LIMIT_S, emit=seen.append),
    )
    if findings.reasons:
        return refute("checks", f"The checks, run again, refuse the change: {findings.reasons[0].message}")
    now = [*findings.notices, *(event.text for event in seen if isinstance(event, Notice))]
    claims, holds = (any(line.startswith(_CHECKED) for line in lines) for lines in (stated, now))
    if claims and not holds:
        is_unknown = any("not verified" in line.lower() for line in now)
        text = f"It states that the change was checked in a clean copy. Now: {' '.join(now) or 'nothing was found'}"
        return leave_open("checks", text) if is_unknown else refute("checks", text)
    return confirm("checks", "The checks, run again, accept the change.")
