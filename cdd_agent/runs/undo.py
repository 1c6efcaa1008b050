"""Take back the last step of a ticket, and bring it back again.

Both are landings: the branch moves, and of the user's files exactly those that the commits changed. A file that the
user has changed is never touched; then nothing happens. The step is recorded before anything moves, so a redo also
works after a kill.
"""

import json
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import msgspec

from cdd_agent.errors import UsageError, join_first
from cdd_agent.events import CommitMoved, RollbackPlanned
from cdd_agent.git.commits import require_finished
from cdd_agent.git.landing import Landings
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.feature import PREFIX
from cdd_agent.storage import load_record, private_folder, write_atomic
from cdd_agent.tickets.ticket import Ticket, list_tickets
from cdd_agent.work.handoff import NUMBER_OPTIONS, PHASE_OF
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepExecution, lock_ticket, replace_step, retry_step
from cdd_agent.work.state_file import decode_state, encode_state, load_state, save_state

_KEYS = ("key=Ticket", NUMBER_OPTIONS, "key=Handoff-Id", "key=Phase")
_TRAILERS = "%x00".join(f"%(trailers:{key},valueonly)" for key in _KEYS)
_FORMAT = f"--format=%H%x00%s%x00{_TRAILERS}"
_MOST_COMMITS = 50
_MOST_BYTES = 10_000_000
_MOST_RECORDS = 50
_MOST_SHOWN = 10
_REF = "refs/cdd/undone"


class UndoneStep(msgspec.Struct, frozen=True, kw_only=True):
    """The commits of a step that were taken back."""

    ticket: str
    number: int
    branch: str
    base: str
    """The commit before the step's, where the branch is now."""
    head: str
    """The last commit of the step."""
    state: str | None
    """The ticket's state before, as JSON; None if there was none."""


class UndoFile(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that can be brought back, last one last."""

    schema: int = 1
    steps: tuple[UndoneStep, ...] = ()


class _OwnCommit(NamedTuple):
    commit: str
    subject: str
    ticket: str
    number: str
    handoff: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The effects of an undo or a redo, before it is applied."""

    step: UndoneStep
    is_redo: bool
    effects: RollbackPlanned


class Undo:
    """Takes back and brings back steps in one work tree."""

    def __init__(self, repository: Repository, root: Path) -> None:
        """``root`` is the project's folder, which may be below the work tree's."""
        self._repository = repository
        self._root, records = root, find_records(root)
        self._landings = Landings(repository, records.landing, files=private_folder(root) / "landing", merges=False)
        self._path = records.folder / "undone.json"

    def plan_undo(self) -> UndoPlan:
        """Plan to take back the commits of the last step. Changes nothing.

        Raises ``UsageError`` if the last commit is not a step's, or if the user has changed one of the files.
        """
        branch = self._prepare()
        own = self._find_last_step()
        base = CommitId(self._repository.objects.require(f"{own[-1].commit}^").id)
        ticket = self._find_ticket(own[0].ticket)
        state = None if ticket is None else load_state(ticket.state_path)
        step = UndoneStep(
            ticket=own[0].ticket,
            number=int(own[0].number),
            branch=branch,
            base=base,
            head=own[0].commit,
            state=None if state is None else _encode_step(state, int(own[0].number)),
        )
        return self._make_plan(step, is_redo=False)

    def plan_redo(self) -> UndoPlan:
        """Plan to bring back the step that was taken back last. Changes nothing. Raises as ``plan_undo`` does."""
        branch = self._prepare()
        steps = self._read().steps
        if not steps:
            raise UsageError(
                "Nothing was undone, so nothing can be brought back.", hint="/undo takes the last step back"
            )
        step = steps[-1]
        head = self._repository.read_head()
        if (branch, head) != (step.branch, step.base):
            raise UsageError(
                f"The branch has moved since: {branch} is at {str(head)[:10]}, and the undone step {step.number} of "
                f"{step.ticket} was on {step.branch}, on top of {step.base[:10]}.",
                hint=f"its commits still exist: git log {step.head[:10]}; take one over: git cherry-pick COMMIT",
            )
        return self._make_plan(step, is_redo=True)

    def describe_way_back(self) -> str:
        """Return a sentence with what the user can type to take the last commit back."""
        try:
            self._find_last_step()
        except UsageError as error:
            return f"{error.happened} {error.hint}."
        return "To take commits of steps back too, type /undo first."

    def list_steps_since(self, base: str) -> tuple[str, ...]:
        """Return the steps whose commits follow ``base``, newest first; none if there are other commits, or parts."""
        if not self._repository.is_ancestor(base, of="HEAD"):
            return ()
        later = self._read_commits(f"{base}..HEAD")
        earlier = self._read_commits(base, most=1)
        if not later or not all(map(self._is_of_ticket, later)) or later[-1][2:4] == earlier[0][2:4]:
            return ()
        return tuple(dict.fromkeys(f"step {commit.number} of {commit.ticket}" for commit in later))

    def apply(self, plan: UndoPlan) -> None:
        """Move the branch, the files and the state of the ticket as planned."""
        step = plan.step
        ticket = self._find_ticket(step.ticket)
        folder = self._root / "tickets" / step.ticket if ticket is None else ticket.folder
        with lock_ticket(self._root, folder):
            if not plan.is_redo:
                # Before the branch moves, so that the commits can always be found again.
                self._repository.refs.set(f"{_REF}/{step.head[:12]}", CommitId(step.head))
                self._write((*self._read().steps, step))
            source, target = map(CommitId, (step.base, step.head) if plan.is_redo else (step.head, step.base))
            self._landings.land(target, expected=source, base=source, result=target)
            if plan.is_redo:
                self._write(self._read().steps[:-1])
            self._follow_state(step, is_redo=plan.is_redo)

    def _prepare(self) -> str:
        """Finish what a kill left, and return the branch."""
        require_finished(self._repository)
        self._landings.finish()
        branch = self._repository.read_branch()
        if branch is None:
            raise UsageError("HEAD is on no branch, and an undo moves a branch.", hint="git switch BRANCH, then again")
        for step in self._read().steps[-1:]:
            if self._repository.read_head() == step.base:
                self._follow_state(step, is_redo=False)
        return branch

    def _find_last_step(self) -> tuple[_OwnCommit, ...]:
        """Return the commits of the last step, newest first."""
        commits = self._read_commits("HEAD", most=_MOST_COMMITS)
        last = commits[0]
        # An iteration is taken back alone, although the commits before it may be of the same step.
        base = self._find_base(last)
        own = takewhile(lambda commit: commit[2:4] == last[2:4] and commit.commit != base, commits)
        if not (last.ticket and last.number.isdecimal() and last.handoff):
            is_merge = len(self._repository.git("log", ("-1", "--format=%P"), last.commit).split()) > 1
            raise UsageError(
                f"The last commit, {last.commit[:10]} {last.subject!r}, is not of a step, so it stays.",
                hint=f"git revert {'-m 1 ' if is_merge else ''}HEAD takes it back with a new commit",
            )
        if last.ticket.startswith(PREFIX) and self._find_ticket(last.ticket) is None:
            hint = "take phases of it back: cdd tdd history, then cdd tdd rollback COMMIT"
            raise UsageError(f"The last commit belongs to the feature {last.ticket}.", hint=hint)
        return tuple(own)

    def _find_base(self, last: _OwnCommit) -> str | None:
        """Return the commit before the step whose ``last`` commit this is, if the ticket's state knows it."""
        ticket = self._find_ticket(last.ticket)
        state = load_state(ticket.state_path) if ticket is not None else None
        step = state.step_executions.get(int(last.number)) if state and last.number.isdecimal() else None
        return step.base_commit if step is not None and last.commit in step.commits.values() else None

    def _find_earlier(self, state: RunState, step: UndoneStep) -> StepExecution | None:
        """Return the step as it was before the iteration that is undone; None if it was none."""
        since = (f"^{state.base_commit}",) if state.base_commit else ()
        commits = iter(self._read_commits(*since, step.base, most=_MOST_COMMITS if since else 0))
        is_own = partial(_is_of_step, step)
        later = next((commit for commit in commits if is_own(commit)), None)
        if later is None:
            return None
        own = [later, *takewhile(is_own, commits)][::-1]
        made: dict[str, str] = {PHASE_OF[commit.phase]: commit.commit for commit in own if commit.phase in PHASE_OF}
        base = self._repository.objects.require(f"{own[0].commit}^").id
        return replace(state.execution(step.number), commits=made, base_commit=base, review=None)

    def _read_commits(self, *which: str, most: int | None = None) -> list[_OwnCommit]:
        limit = () if most is None else (f"--max-count={most}",)
        log = self._repository.git("log", ("-z", "--first-parent", _FORMAT, *limit), *which)
        fields = [field.strip() for field in log.split("\0")]
        width = len(_OwnCommit._fields)
        return [_OwnCommit(*row) for row in zip(*(fields[start::width] for start in range(width)), strict=False)]

    def _is_of_ticket(self, commit: _OwnCommit) -> bool:
        is_step = commit.number.isdecimal() and bool(commit.handoff)
        return is_step and self._find_ticket(commit.ticket) is not None

    def _make_plan(self, step: UndoneStep, *, is_redo: bool) -> UndoPlan:
        repository = self._repository
        source, target = (step.base, step.head) if is_redo else (step.head, step.base)
        files = repository.list_changes(source, target)
        changed = sorted({change.path for change in files} & set(repository.list_uncommitted()))
        if changed:
            shown = join_first(changed, most=_MOST_SHOWN, separator="\n  ")
            raise UsageError(
                f"You have changed files that would move:\n  {shown}\nNothing was touched.",
                hint="commit your changes, or move them aside: git stash push -- PATH; then the same again",
            )
        log = repository.git("log", ("-z", "--format=%H %s"), f"{step.base}..{step.head}").split("\0")
        moved = tuple(CommitMoved(commit=line[:40], subject=line[41:]) for line in log if line)
        unpushed = repository.git("rev-list", ("--count",), f"{step.base}..{step.head}", ("--not", "--remotes")).strip()
        effects = RollbackPlanned(
            branch=step.branch,
            source=source,
            target=target,
            going=() if is_redo else moved,
            coming=moved if is_redo else (),
            files=files,
            uncommitted=(),
            pushed=0 if is_redo else len(moved) - int(unpushed),
            kept=f"{_REF}/{step.head[:12]}",
            next="",
        )
        return UndoPlan(step=step, is_redo=is_redo, effects=effects)

    def _follow_state(self, step: UndoneStep, *, is_redo: bool) -> None:
        """Make the step pending in the ticket's state, or as it was before the undo."""
        ticket = self._find_ticket(step.ticket)
        state = load_state(ticket.state_path) if ticket is not None else None
        if ticket is None or state is None or step.state is None or step.number not in state.step_executions:
            return
        if is_redo:
            before = decode_state(step.state.encode(), path=str(self._path))
            state = replace_step(state, before.execution(step.number))
            save_state(ticket.state_path, replace(state, status=before.status, completed_at=before.completed_at))
        elif state.execution(step.number).commits:
            earlier = self._find_earlier(state, step)
            after = retry_step(state, step.number) if earlier is None else replace_step(state, earlier)
            save_state(ticket.state_path, after)

    def _find_ticket(self, slug: str) -> Ticket | None:
        return next((ticket for ticket in list_tickets(self._root) if ticket.slug == slug), None)

    def _read(self) -> UndoFile:
        return load_record(self._path, empty=UndoFile(), limit_bytes=_MOST_BYTES)

    def _write(self, steps: tuple[UndoneStep, ...]) -> None:
        file = UndoFile(steps=steps[-_MOST_RECORDS:])
        write_atomic(self._path, json.dumps(msgspec.to_builtins(file)).encode())


def _encode_step(state: RunState, number: int) -> str:
    """Return ``state`` with only one of its steps, which may be missing."""
    only = {each: step for each, step in state.step_executions.items() if each == number}
    return encode_state(replace(state, step_executions=only)).decode()


def _is_of_step(step: UndoneStep, commit: _OwnCommit) -> bool:
    return (commit.ticket, commit.number) == (step.ticket, str(step.number)) and bool(commit.handoff)
