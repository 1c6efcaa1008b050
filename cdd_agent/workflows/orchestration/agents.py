"""The work items and briefs of the four agents: list, tester, implementer and refactorer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitRefused
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.context import (
    Brief,
    BriefFor,
    Phase,
    Progress,
    WorkItem,
    describe_item,
    format_bullets,
    read_phase_rules,
)
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.handoff import CurrentTest
from cdd_agent.workflows.orchestration import test_list
from cdd_agent.workflows.orchestration.feature import Feature
from cdd_agent.workflows.orchestration.test_list import ListEntry, ListFacts
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.report import Reason

LIMIT_BYTES = 200_000
"""Of a list, or of a test file."""
_PROMPTS = Path(__file__).parent / "prompts"
_PLAN_HEADING = "## This phase: PLAN"
"""Separates role and rules in the list agent's prompt."""
_TASKS: dict[Phase, tuple[str, str]] = {
    "plan": ("list", "Bring the test list up to date and choose the next test."),
    "red": ("tester", "Write this one test."),
    "green": ("implementer", "Make the failing test pass."),
    "refactor": ("refactorer", "Review the changes of this cycle, and improve them if it is worth a commit."),
}
"""Phase -> agent and task."""


def make_brief_for(repository: Repository, workspace: Workspace) -> BriefFor:
    """Return the function that makes the brief for a phase of a cycle."""

    def judge(item: WorkItem, answer: str) -> tuple[Reason, ...]:
        facts = ListFacts(
            before=read_committed_list(repository, workspace),
            now=read_list(workspace),
            completed=item.progress.completed if item.progress else (),
            dropped=item.progress.dropped if item.progress else (),
            resolve_path=workspace.resolve,
            read_text=lambda path: _read_text(workspace, path),
        )
        return test_list.find_objections(answer, facts)

    def finalize(item: WorkItem, answer: str) -> WorkItem:
        return finalize_plan_item(item, read_choice(answer, workspace), entries=read_list(workspace))

    def make_brief(item: WorkItem, phase: Phase) -> Brief:
        agent, task = _TASKS[phase]
        role, _, rules = (_PROMPTS / f"{agent}.md").read_text(encoding="utf-8").partition(_PLAN_HEADING)
        if phase == "plan":
            text = _read_text(workspace, test_list.NAME)
            listed = f"There is no {test_list.NAME} yet." if text is None else f"# {test_list.NAME}\n\n{text.strip()}"
            rules, requirements = f"{_PLAN_HEADING}\n\n{rules.strip()}", f"{item.goal}\n\n{listed}"
        else:
            rules, requirements = read_phase_rules(phase), describe_item(item, heading="Test")
        return Brief(
            phase=phase,
            agent=agent,
            role=role,
            rules=rules,
            work=f"tdd {item.ticket} cycle {item.number} {phase}",
            task=task,
            requirements=requirements,
            source="test-list.md",
            judge=(lambda answer: judge(item, answer)) if phase == "plan" else None,
            finalize_item=finalize if phase == "plan" else None,
        )

    return make_brief


def make_plan_item(feature: Feature, number: int, *, done: Mapping[str, bool], dropped: Sequence[str] = ()) -> WorkItem:
    """Return the work item of PLAN; ``done`` maps each completed test to whether it passed at once."""
    completed = [f"{test} {test_list.COVERED}" if is_covered else test for test, is_covered in done.items()]
    listed = format_bullets(completed) if completed else "none yet"
    if dropped:
        removed = format_bullets([f"{test} {test_list.DROPPED}" for test in dropped])
        listed += f"\n\n# Dropped, because they passed at once and prove nothing\n\n{removed}"
    return WorkItem(
        ticket=feature.slug,
        number=number,
        title="choose the next test",
        goal=f"# The request\n\n{feature.text}\n\n# Completed\n\n{listed}",
        kind="bug" if feature.is_fix else "feature",
        phases=("plan",),
        tests=(),
        sources=(test_list.NAME,),
        progress=Progress(completed=tuple(done), dropped=tuple(dropped), following="RED"),
        plan_body=feature.text if number == 1 else "",
    )


def finalize_plan_item(item: WorkItem, chosen: CurrentTest | None, *, entries: tuple[ListEntry, ...]) -> WorkItem:
    """Return PLAN's ``item`` with the list agent's choice, for its commit and its note."""
    done = item.progress.completed if item.progress else ()
    if chosen is None:
        dropped = sum(entry.is_dropped for entry in entries)
        count = len(entries) - dropped
        title = f"complete, {count} of {len(entries)} tests" + (f", {dropped} dropped" if dropped else "")
        if dropped and not count:
            title = f"no test was kept, {dropped} dropped"
        return replace(item, title=title, sources=(), progress=Progress(completed=done, following="COMPLETE"))
    listed = test_list.find_entry(entries, chosen.description)
    return replace(
        item,
        title=chosen.description if listed is None else format_line(listed.text),
        tests=(chosen.test_file,) if chosen.test_file else (),
        sources=(chosen.impl_file,) if chosen.impl_file else (),
        progress=Progress(completed=done, pending=test_list.list_open(entries), following="RED"),
    )


def make_test_item(
    item: WorkItem, chosen: CurrentTest, *, feature: Feature, entries: tuple[ListEntry, ...]
) -> WorkItem:
    """Return the work item of the phases after PLAN, whose ``item`` is given."""
    chosen_item = finalize_plan_item(item, chosen, entries=entries)
    return replace(
        chosen_item,
        goal=f"This is one test of the request below. Other cycles write the other tests.\n\n{feature.text}",
        phases=("red", "green", "refactor"),
        progress=replace(chosen_item.progress or Progress(), following="PLAN"),
        criteria=(("TEST", chosen_item.title),),
    )


def read_committed_list(repository: Repository, workspace: Workspace) -> tuple[ListEntry, ...]:
    """Return the test list in HEAD."""
    inside = workspace.root.resolve().relative_to(repository.root.resolve()) / test_list.NAME
    try:
        return test_list.parse(repository.git("show", f"HEAD:{inside.as_posix()}")[:LIMIT_BYTES])
    except GitRefused:
        return ()


def read_list(workspace: Workspace) -> tuple[ListEntry, ...]:
    """Return the test list in the work tree."""
    return test_list.parse(_read_text(workspace, test_list.NAME) or "")


def require_list(project: Path) -> None:
    """Raise ``UsageError`` if the path of the test list is taken by something that is not a readable file."""
    path = project / test_list.NAME
    try:
        read_ordinary(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{test_list.NAME} is the file for the list of tests, but it cannot be read: {error.strerror}.",
            hint=f"rename and commit it: git mv {test_list.NAME} OTHER-NAME; see what it is: ls -ld {path}",
        ) from error


def read_choice(answer: str, workspace: Workspace) -> CurrentTest | None:
    """Return the choice in an accepted answer, with paths relative to the project; None: all tests are done."""
    chosen = test_list.read_answer(answer)
    return None if chosen is None else test_list.resolve_paths(chosen, workspace.resolve)


def _read_text(workspace: Workspace, path: str) -> str | None:
    try:
        return read_ordinary(workspace.root / path, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
