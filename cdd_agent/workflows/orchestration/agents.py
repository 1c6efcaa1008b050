"""How the four agents are spoken to: list, tester, implementer and refactorer, each in a conversation of its own."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.context import Brief, BriefFor, Phase, Progress, WorkItem, bullets, rules_of, stated
from cdd_agent.untrusted.text import in_one_line
from cdd_agent.workflows.orchestration import test_list
from cdd_agent.workflows.orchestration.feature import Feature
from cdd_agent.workflows.orchestration.test_list import Choice, Entry, Known
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.report import Reason

LIMIT_BYTES = 200_000
"""Of a list, or of a file of tests, that is looked at."""

_PROMPTS = Path(__file__).parent / "prompts"
_PHASE_OF_LIST = "## This phase: PLAN"
_TASKS: dict[Phase, tuple[str, str]] = {
    "plan": ("list", "Bring the test list up to date and choose the next test."),
    "red": ("tester", "Write this one test."),
    "green": ("implementer", "Make the failing test pass."),
    "refactor": ("refactorer", "Look at what this cycle changed, and improve it if that is worth it."),
}
"""Phase -> who works in it, and what is asked."""


def brief_for(repository: Repository, workspace: Workspace) -> BriefFor:
    """The brief of each phase of each cycle in a project."""

    def brief(item: WorkItem, phase: Phase) -> Brief:
        agent, task = _TASKS[phase]
        role, _, rules = (_PROMPTS / f"{agent}.md").read_text(encoding="utf-8").partition(_PHASE_OF_LIST)
        made = Brief(
            phase=phase,
            agent=agent,
            role=role,
            rules=rules_of(phase) if phase != "plan" else f"{_PHASE_OF_LIST}\n\n{rules.strip()}",
            work=f"tdd {item.ticket} cycle {item.number} {phase}",
            task=task,
            stated=stated(item, heading="Test") if phase != "plan" else _with_list(item, workspace),
            source="test-list.md",
        )
        if phase != "plan":
            return made
        return replace(
            made,
            source="request",
            judge=lambda words: _judged(item, words, repository=repository, workspace=workspace),
            settled=lambda settled, words: settled_by(
                settled, chosen_by(words, workspace), entries=listed_in(workspace)
            ),
        )

    return brief


def plan_item(feature: Feature, number: int, *, done: Mapping[str, bool]) -> WorkItem:
    """The work of PLAN in a cycle; ``done``: the tests that are completed -> whether they passed at once."""
    marked = [f"{each} {test_list.COVERED}" if is_covered else each for each, is_covered in done.items()]
    listed = bullets(marked) if marked else "none yet"
    return WorkItem(
        ticket=feature.slug,
        number=number,
        title="choose the next test",
        goal=f"# The request\n\n{feature.text}\n\n# Completed\n\n{listed}",
        kind="bug" if feature.is_fix else "feature",
        phases=("plan",),
        tests=(),
        sources=(test_list.NAME,),
        progress=Progress(completed=tuple(done), following="RED"),
        told=feature.text if number == 1 else "",
    )


def settled_by(item: WorkItem, chosen: Choice | None, *, entries: tuple[Entry, ...]) -> WorkItem:
    """PLAN's ``item`` once the list agent has chosen, for its commit and its note."""
    done = item.progress.completed if item.progress else ()
    if chosen is None:
        title = f"complete, {len(entries)} of {len(entries)} tests"
        return replace(item, title=title, sources=(), progress=Progress(completed=done, following="COMPLETE"))
    listed = test_list.find(entries, chosen.description)
    return replace(
        item,
        title=chosen.description if listed is None else in_one_line(listed.text),
        tests=_named(chosen.test_file),
        sources=_named(chosen.impl_file),
        progress=Progress(completed=done, pending=test_list.open_ones(entries), following="RED"),
    )


def test_item(item: WorkItem, chosen: Choice, *, feature: Feature, entries: tuple[Entry, ...]) -> WorkItem:
    """The work of the phases after PLAN, whose ``item`` it was."""
    made = settled_by(item, chosen, entries=entries)
    goal = f"It is one test of this request; the others have their own turn.\n\n{feature.text}"
    progress = replace(made.progress or Progress(), following="PLAN")
    return replace(made, goal=goal, phases=("red", "green", "refactor"), progress=progress)


def _named(path: str) -> tuple[str, ...]:
    return (path,) if path else ()


def committed_in(repository: Repository, workspace: Workspace) -> tuple[Entry, ...]:
    """The test list of a project as HEAD has it."""
    inside = workspace.root.resolve().relative_to(repository.root.resolve()) / test_list.NAME
    try:
        return test_list.parse(repository.git("show", f"HEAD:{inside.as_posix()}")[:LIMIT_BYTES])
    except GitUnable:
        raise
    except GitError:
        return ()


def listed_in(workspace: Workspace) -> tuple[Entry, ...]:
    """The test list of a project as it is in the work tree."""
    return test_list.parse(_content(workspace, test_list.NAME) or "")


def require_list(workspace: Workspace) -> None:
    """Raise ``UsageError`` if something is in the place of the test list that no list can be read from."""
    path = workspace.root / test_list.NAME
    try:
        read_ordinary(path, limit_bytes=LIMIT_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{test_list.NAME}, where the list of tests is kept, cannot be read: {error.strerror}.",
            hint=f"move it away and commit that: git mv {test_list.NAME} OTHER-NAME; see what it is: ls -ld {path}",
        ) from error


def chosen_by(words: str, workspace: Workspace) -> Choice | None:
    """What an answer that stands chooses, its paths as records name them; None: nothing is left."""
    chosen = test_list.read(words)
    return None if chosen is None else test_list.placed(chosen, workspace.relative)


def _judged(item: WorkItem, words: str, *, repository: Repository, workspace: Workspace) -> tuple[Reason, ...]:
    """What speaks against the list agent's answer."""
    known = Known(
        before=committed_in(repository, workspace),
        now=listed_in(workspace),
        completed=item.progress.completed if item.progress else (),
        relative=workspace.relative,
        content=lambda path: _content(workspace, path),
    )
    return test_list.objections(words, known)


def _with_list(item: WorkItem, workspace: Workspace) -> str:
    """What the list agent has to know: the request, what is completed, and the list as it is."""
    content = _content(workspace, test_list.NAME)
    listed = f"There is no {test_list.NAME} yet." if content is None else f"# {test_list.NAME}\n\n{content.strip()}"
    return f"{item.goal}\n\n{listed}"


def _content(workspace: Workspace, path: str) -> str | None:
    """What is in a file of the project; None if nothing can be read there."""
    try:
        return read_ordinary(workspace.root / path, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
