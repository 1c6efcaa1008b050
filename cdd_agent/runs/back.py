"""Go back: lead branch, files and conversations to a point of the past, and return from there.

A *point* is what a checkpoint holds: the files exactly, the commit of the branch, and the positions of the
conversations. A commit of the branch is a point too, whose files are those that it changed. A *move* to a point is
planned, shown to the user, and made: ``Back.go`` first saves the point that is left, then changes everything in one
landing. The states of the runs follow the branch.

All moves of a project are in one log among its records. An undo moves to the point that was left last, a redo forward
again. The log names a move before anything changes, so that one that was killed is finished, or was never begun.
"""

import contextlib
import json
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeAlias

import msgspec

from cdd_agent.errors import CddError, DocumentError, UsageError, join_first
from cdd_agent.events import Change, CommitMoved, Emit, Notice, RollbackPlanned
from cdd_agent.git.commits import require_finished
from cdd_agent.git.fork import ABANDONED, find_home
from cdd_agent.git.landing import ExactFiles, Landed, LandingConflict, Landings, find_obstacle, has_moved
from cdd_agent.git.notes import Note, read_handoffs, read_shallow_commits, survey_notes
from cdd_agent.git.repository import CommitId, Repository, resolve_revision
from cdd_agent.git.runner import GitRefused
from cdd_agent.git.tree_store import REF, Checkpoint, Checkpoints, Description, RestorePlan
from cdd_agent.runs.feature import is_of_feature
from cdd_agent.runs.ledger import Known, Ledger, Unknown
from cdd_agent.runs.places import find_owner, list_runs
from cdd_agent.storage import load_record, private_folder, sweep, write_atomic
from cdd_agent.tdd.locks import alone
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.handoff import NUMBER_OPTIONS, Handoff, read_number
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, keep_spent, lock_ticket
from cdd_agent.work.state_file import load_state, save_state

Kind: TypeAlias = Literal["step", "rollback", "restore", "rewind"]
"""``/undo``, ``cdd tdd rollback``, ``cdd checkpoint restore`` and ``/rewind``."""
Turn: TypeAlias = Literal["", "undo", "redo"]

_KEYS = ("key=Ticket", NUMBER_OPTIONS, "key=Handoff-Id", "key=Landing")
_TRAILERS = "%x00".join(f"%(trailers:{key},valueonly)" for key in _KEYS)
_FORMAT = f"--format=%H%x00%s%x00{_TRAILERS}"
_MOST_COMMITS = 50
_MOST_BYTES = 10_000_000
_MOST_MOVES = 50
_MOST_SHOWN = 10
_SHORT_ID = 16
_KEPT = "refs/cdd/undone"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One move to a point, in the log."""

    kind: Kind
    turn: Turn = ""
    """Whether it undid or redid such a move."""
    what: str
    """The move in a few words, such as ``the restore of checkpoint 3``, or what it took back."""
    before: str
    """The ref of the checkpoint that holds the point before."""
    point: str = ""
    """The id of that checkpoint: once it is deleted, another one can get its number."""
    branch: str = ""
    source: str = ""
    target: str = ""
    """The branch that moved and its commits; empty if it stayed."""
    files: str = ""
    """The ref of the checkpoint whose files were restored; empty if the files followed the branch."""
    evidence: str = ""
    """The point with which the records of runs were saved that come back; empty for none."""
    is_begun: bool = False
    """The landing has its journal; once this is gone, files have changed as planned."""
    is_done: bool = False


class MoveFile(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a project, the last move last."""

    schema: int = 1
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """The effects of a move, before it is made."""

    move: Move
    """The line for the log; its ``before`` follows when the point is saved."""
    effects: RollbackPlanned | None = None
    """Of the branch; None if it stays."""
    restore: RestorePlan | None = None
    """Of the files; None if they follow the branch."""
    steps: tuple[str, ...] = ()
    """The steps that a rewind takes back."""
    returns: Move | None = None
    """The move that this one undoes or redoes."""


class _OwnCommit(NamedTuple):
    commit: str
    subject: str
    ticket: str
    number: str
    handoff: str
    landing: str
    """What landed with the commit, if that is more than a step: a subgraph of a generation, or its other files."""

    @property
    def is_step(self) -> bool:
        """Whether the commit is of a step."""
        return bool(self.ticket and read_number(self.number) and self.handoff)

    @property
    def name(self) -> str:
        """The step or landing of the commit, for a sentence."""
        return f"{self.landing or f'step {self.number}'} of {self.ticket}"


class Back:
    """Plans and makes the moves of one project."""

    def __init__(self, checkpoints: Checkpoints, *, emit: Emit) -> None:
        """Change nothing."""
        self.checkpoints = checkpoints
        self.repository: Repository = checkpoints.repository
        self._emit = emit
        self._root, records = checkpoints.project, find_records(checkpoints.project)
        self._fork = "" if find_home(self._root) == self._root else f"{self.repository.root.name}/"
        files = self._root / ".cdd" / "landing"
        self._landings = Landings(self.repository, records.landing, files=files, merges=False)
        self._folder = records.folder
        self._path = records.folder / "moves.json"

    @classmethod
    def of_project(cls, root: Path, *, emit: Emit) -> Self:
        """Return the moves of a project in a repository. Raises ``EnvironmentMissing`` without one."""
        return cls(Checkpoints.of_repository(Repository.find(root), root), emit=emit)

    # Where a move leads.

    def plan_step(self) -> MovePlan:
        """Plan to take back the commits of the last step.

        Raises ``UsageError`` if the last commit is not a step's, or if the user has changed one of the files.
        """
        branch, head = self._find_start()
        own = self._find_last_step()
        base, what = self._find_parent(own[-1]), own[0].name
        move = Move(kind="step", what=what, before="", branch=branch, source=head, target=base)
        return MovePlan(move=move, effects=self._plan_branch(move))

    def plan_landing(self, slug: str, name: str) -> MovePlan:
        """Plan to take back everything that the run ``slug`` has landed since before ``name`` landed first.

        Raises ``UsageError`` if that has not landed, or if there are other commits since.
        """
        branch, head = self._find_start()
        commits = self._read_commits("HEAD")
        own = [at for at, each in enumerate(commits) if (each.ticket, each.landing) == (slug, name)]
        if not own:
            landed = dict.fromkeys(each.landing for each in reversed(commits) if each.ticket == slug and each.landing)
            known = ", ".join(landed) or "nothing"
            raise UsageError(f"{name} of {slug} has not landed; landed: {known}.", hint=f"cdd status {slug}")
        *later, first = commits[: own[-1] + 1]
        foreign = next((each for each in later if each.ticket != slug or not self._is_of_run(each)), None)
        if foreign is not None:
            raise UsageError(
                f"The commit {foreign.commit[:10]} {foreign.subject!r} came after {name}, and is not of {slug}, so "
                "cdd takes nothing back.",
                hint=f"move it to a branch of its own: git branch mine; git reset --keep {foreign.commit[:10]}^",
            )
        what = f"{first.name} and what landed after it" if later else first.name
        base = self._find_parent(first)
        move = Move(kind="step", what=what, before="", branch=branch, source=head, target=base)
        return MovePlan(move=move, effects=self._plan_branch(move))

    def plan_commit(self, name: str) -> MovePlan:
        """Plan to return to the commit ``name``: an id, a branch, a tag, or ``HEAD~2``.

        Raises ``UsageError`` if there is nothing to return to there, if a merge or rebase is in progress, or if
        uncommitted changes of the user are in the way; ``NotesDamaged`` if the commit's note cannot be read.
        """
        branch, head = self._find_start()
        target, handoff = _find_target(self.repository, name)
        if target == head:
            raise UsageError(f"HEAD is at {head[:10]} already.", hint="list earlier commits: cdd tdd history")
        what = f"the rollback to {target[:10]}"
        move = Move(kind="rollback", what=what, before="", branch=branch, source=head, target=target)
        return MovePlan(move=move, effects=self._plan_branch(move, following=handoff.next_phase))

    def plan_files(self, target: Checkpoint) -> MovePlan:
        """Plan to restore the files of ``target``."""
        self.finish()
        what = f"the restore of checkpoint {target.number}"
        move = Move(kind="restore", what=what, before="", files=target.ref)
        return MovePlan(move=move, restore=self.checkpoints.plan(target))

    def plan_rewind(self, target: Checkpoint) -> MovePlan:
        """Plan to restore the files of ``target``, and to take back the steps since if nothing else was committed.

        Raises ``UsageError`` if the user has changed files of these steps.
        """
        plan = self.plan_files(target)
        what = f"the rewind to checkpoint {target.number}"
        move = msgspec.structs.replace(plan.move, kind="rewind", what=what)
        base = target.about.head
        steps = self._list_steps_since(base) if base is not None else ()
        if base is None or not steps:
            return MovePlan(move=move, restore=plan.restore)
        branch, head = self._find_start()
        move = msgspec.structs.replace(move, branch=branch, source=head, target=base)
        return MovePlan(move=move, effects=self._plan_branch(move), restore=plan.restore, steps=steps)

    def plan_return(self, *, is_redo: bool = False) -> MovePlan:
        """Plan to return to the point that was left last, or with ``is_redo`` to the one before such a return.

        Raises ``UsageError`` if there is none, if the branch has moved since, or if changes of the user are in the way.
        """
        self.finish()
        last = self._find_next(is_redo=is_redo)
        if last is None:
            happened = "There is nothing to undo or bring back here: no undone step, restore, rewind or rollback."
            if is_redo:
                happened = "There is nothing to redo here: no move was undone last."
            earlier = sorted(self.repository.list_refs(f"{ABANDONED}/"))
            old = next((ref for ref in reversed(earlier) if "/rollback-" in ref), None)
            raise UsageError(
                happened,
                hint="list the checkpoints: cdd checkpoint list; /undo takes the last step back"
                + (f"; commits that an earlier version of cdd rolled back: git log {old}^" if old else ""),
            )
        turn: Turn = "redo" if is_redo else "undo"
        move = msgspec.structs.replace(last, turn=turn, before="", is_begun=False, is_done=False)
        restore = None
        if last.files:
            restore = self.checkpoints.plan(self._require_point(last))
            move = msgspec.structs.replace(move, files=last.before)
        if not last.branch:
            return MovePlan(move=move, restore=restore, returns=last)
        branch, head = self._find_start()
        self._require_same_branch(last, branch=branch, head=head)
        if restore is None and self._find_point(last) is None:
            text = (
                f"The checkpoint before {last.what} was deleted: its files will be as git writes them, which may "
                "differ in permissions and line ends."
            )
            self._emit(Notice(text=text))
        move = msgspec.structs.replace(move, source=head, target=last.source, evidence=last.point)
        effects = self._plan_branch(move, returns=True)
        return MovePlan(move=move, effects=effects, restore=restore, returns=last)

    def is_undone(self) -> bool:
        """Return whether the last move was an undo."""
        self.finish()
        return any(each.turn == "undo" for each in self._read()[-1:])

    def suggest_undo(self) -> str:
        """Return a sentence with what the user can type to take the last commit back."""
        try:
            self._find_last_step()
        except UsageError as error:
            return f"{error.happened} {error.hint}."
        return "To take commits of steps back too, type /undo first."

    # How it is made.

    def go(self, plan: MovePlan, *, session: str = "", talks: dict[str, int] | None = None) -> Checkpoint:
        """Lead branch, files and the states of runs where ``plan`` says, and return a checkpoint of the point before.

        Raises ``UsageError`` if something is in the way since the plan was made; then nothing was changed.
        """
        repository, move, restore = self.repository, plan.move, plan.restore
        private_folder(self._root)  # for the prepared files
        with alone(repository), self._lock_runs(move) as runs:
            self._require_start(move)
            sweep((self._folder,))
            about = self._describe(plan, session=session, talks=talks or {})
            departure = None if restore is None else self.checkpoints.depart(restore, about=about)
            before = self.checkpoints.create(about, is_limited=False) if departure is None else departure.before
            move = msgspec.structs.replace(move, before=before.ref, point=before.id)
            if plan.effects is not None:
                self._save_records(runs, before.id)
                # Before the branch moves, so that the commits can always be found again.
                kept = move.source if plan.effects.going else move.target
                repository.refs.set(plan.effects.kept, resolve_revision(repository, kept))
            self._write((*self._read(), move))
            try:
                landed = self._landings.go(
                    source=CommitId(move.source) if move.branch else None,
                    target=CommitId(move.target) if move.branch else None,
                    exact=self._find_exact(plan.returns) if departure is None else departure.exact,
                    restoration=None if departure is None else departure.restoration,
                    why=move.what,
                    begun=lambda: self._replace_last(msgspec.structs.replace(move, is_begun=True)),
                )
            except CddError as error:
                if not self._landings.is_pending():
                    self._drop_last()
                if isinstance(error, LandingConflict):
                    raise _explain_changes(error.conflicts) from error
                raise
            self._end(move, runs)
        if restore is not None and departure is not None:
            saved = () if landed is None else landed.kept
            paths = {each.path for each in departure.restoration.files}.difference(saved)
            self.checkpoints.require_restored(restore.target, before=before, paths=paths)
        self._report_saves(landed)
        return before

    def _require_start(self, move: Move) -> None:
        """Raise ``UsageError`` if HEAD is not where it was when the move was planned, and shown."""
        branch, head = self.repository.read_branch(), self.repository.read_head()
        if move.branch and (branch, head) != (move.branch, move.source):
            raise UsageError(
                f"HEAD is at {str(head)[:10]} on {branch or 'no branch'}, but {move.what} was planned from "
                f"{move.source[:10]} on {move.branch}. Nothing was changed.",
                hint=f"git switch {move.branch}, if you want it there; then run the command again",
            )

    def _find_exact(self, returns: Move | None) -> ExactFiles | None:
        """Return the files that a move has changed as they were before it, unless their checkpoint was deleted."""
        point = None if returns is None else self._find_point(returns)
        if returns is None or point is None:
            return None
        changed = self.repository.list_changes(returns.source, returns.target, submodules=False)
        return self.checkpoints.read_exact(point, [each.path for each in changed if each.kind != "created"])

    def _report_saves(self, landed: Landed | None) -> None:
        if landed is not None and landed.kept:
            kept = join_first(landed.kept, most=_MOST_SHOWN)
            self._emit(Notice(text=f"These files stay as you saved them meanwhile: {kept}."))

    def is_interrupted(self) -> bool:
        """Return whether a move was killed, or is under way."""
        return self._landings.is_pending() or any(not each.is_done for each in self._read()[-1:])

    def finish(self) -> None:
        """Finish a move that was killed, or forget it if it had not begun to move anything.

        Raises ``LandingWaits`` if that is only possible on its branch.
        """
        if not self.is_interrupted():
            return
        with alone(self.repository):
            landed = self._landings.settle()
            last = next(reversed(self._read()), None)
            if last is None or last.is_done:
                return
            if not self._has_arrived(last, landed=landed):
                self._drop_last()
                return
            self._emit(Notice(text=f"Finished what was interrupted: {last.what}."))
            self._report_saves(landed)
            with self._lock_runs(last) as runs:
                self._end(last, runs)

    def _has_arrived(self, move: Move, *, landed: Landed | None) -> bool:
        if not move.branch:
            # The files do not tell: the user may have changed some since.
            return landed is not None or move.is_begun
        ref = f"refs/heads/{move.branch}"
        if has_moved(self.repository, ref, before=move.source, after=move.target):
            return True
        if not self.repository.is_ancestor(move.source, of=ref):
            is_lost = self.repository.read_ref(ref) is None
            happened = f"{move.branch} was renamed or deleted" if is_lost else "the branch has moved"
            text = (
                f"{_capitalize(move.what)} was interrupted, and {happened} since: cdd leaves it. "
                f"The commits before: git log {move.source[:10]}; the files: cdd checkpoint restore "
                f"{move.before.rpartition('/')[2]}"
            )
            self._emit(Notice(text=text))
        return False

    def _end(self, move: Move, runs: Iterable[Ticket]) -> None:
        """Let the runs follow the branch, and say in the log that the move is done."""
        for run in runs:
            self._follow_branch(run, move)
        if move.branch:
            self._mark_latest(CommitId(move.target))
        if move.evidence:
            self._restore_evidence(runs, move.evidence)
        self._replace_last(msgspec.structs.replace(move, is_done=True))
        self._drop_turns()

    def _describe(self, plan: MovePlan, *, session: str, talks: dict[str, int]) -> Description:
        turn, restore = plan.move.turn, plan.restore
        about = Description(kind="undo" if plan.move.kind == "step" else "rollback", session=session, talks=talks)
        if plan.move.kind in ("restore", "rewind"):
            about = msgspec.structs.replace(about, kind="restore")
        if turn:
            about = msgspec.structs.replace(about, kind=turn)
        if restore is None:
            return about
        return msgspec.structs.replace(about, ticket=restore.target.about.ticket, of=restore.target.number)

    # The log.

    def _find_next(self, *, is_redo: bool) -> Move | None:
        """Return the move to undo or redo next, after those that lack the checkpoint of their files are dropped."""
        while stack := self._list_open()[1 if is_redo else 0]:
            *_, last = lines = stack[-1]
            if not last.files or self._find_point(last) is not None:
                return last
            with alone(self.repository):
                self._write(move for move in self._read() if move not in lines)
                for each in lines:
                    self._forget_evidence(each)
            text = f"cdd cannot return to before {last.what} any more, because its checkpoint was deleted."
            self._emit(Notice(text=text))
        return None

    def _drop_turns(self) -> None:
        """Keep only the last turn of each move if none is undone: otherwise they would push older moves out."""
        done, undone = self._list_open()
        kept = {lines[-1].point for lines in done}
        if undone or len(kept) == len(moves := self._read()):
            return
        self._write(msgspec.structs.replace(lines[-1], turn="") for lines in done)
        for each in moves:
            if each.point not in kept:
                self._forget_evidence(each)

    def _list_open(self) -> tuple[list[tuple[Move, ...]], list[tuple[Move, ...]]]:
        """Return the moves that can be undone, and those that can be redone, the next one last.

        Each comes with its earlier turns, oldest first.
        """
        done, undone = list[tuple[Move, ...]](), list[tuple[Move, ...]]()
        for move in self._read():
            match move.turn:
                case "":
                    done, undone = [*done, (move,)], []
                case "undo":
                    undone.append((*(done.pop() if done else ()), move))
                case "redo":
                    done.append((*(undone.pop() if undone else ()), move))
        return done, undone

    def _read(self) -> tuple[Move, ...]:
        return load_record(self._path, empty=MoveFile(), limit_bytes=_MOST_BYTES).moves

    def _write(self, moves: Iterable[Move]) -> None:
        every = tuple(moves)
        file = MoveFile(moves=every[-_MOST_MOVES:])
        write_atomic(self._path, json.dumps(msgspec.to_builtins(file)).encode())
        kept = {each.point for each in file.moves}
        for old in every[:-_MOST_MOVES]:
            if old.point not in kept:
                self._forget_evidence(old)

    def _replace_last(self, move: Move) -> None:
        self._write((*self._read()[:-1], move))

    def _drop_last(self) -> None:
        *moves, last = self._read()
        self._write(moves)
        if last.point not in {each.point for each in moves}:
            self._forget_evidence(last)

    def _find_point(self, move: Move) -> Checkpoint | None:
        """Return the point before a move; None if its checkpoint was deleted."""
        known = self.checkpoints.list_all()
        return next((each for each in known if (each.ref, each.id) == (move.before, move.point)), None)

    def _require_point(self, move: Move) -> Checkpoint:
        found = self._find_point(move)
        if found is None:
            raise UsageError(
                f"The checkpoint before {move.what} was deleted.", hint="list the others: cdd checkpoint list"
            )
        return found

    # What moves.

    def _find_start(self) -> tuple[str, CommitId]:
        """Finish what a kill left, and return branch and head."""
        require_finished(self.repository)
        self.finish()
        branch, head = self.repository.read_branch(), self.repository.read_head()
        if head is None:
            raise UsageError("The repository has no commit to return to.", hint="cdd exec SLUG makes some")
        if branch is None:
            raise UsageError(
                "HEAD is on no branch, and this moves a branch.",
                hint="create one here: git switch -c NAME; then run the command again",
            )
        return branch, head

    def _require_same_branch(self, last: Move, *, branch: str, head: CommitId) -> None:
        saved = f"its commits still exist: git log {(last.source or head)[:10]}"
        if branch != last.branch and self.repository.read_ref(f"refs/heads/{last.branch}") is None:
            raise UsageError(
                f"{_capitalize(last.what)} was made on the branch {last.branch}, which was renamed or deleted.",
                hint=f"if {branch} is the same branch: git branch -m {last.branch}; then run the command again; or "
                f"{saved}",
            )
        if branch != last.branch:
            raise UsageError(
                f"{_capitalize(last.what)} was made on the branch {last.branch}, but HEAD is on {branch}.",
                hint=f"git switch {last.branch}; or {saved}",
            )
        # Commits after a rollback leave the branch again, and are kept; a step comes back only where it was.
        is_there = head == last.target
        if last.kind == "rollback":
            is_there = self.repository.is_ancestor(last.target, of=head)
        if not is_there:
            raise UsageError(
                f"The branch has moved since: {branch} is at {head[:10]}, and {last.what} led to {last.target[:10]}.",
                hint=f"{saved}; take one over: git cherry-pick COMMIT",
            )

    def _plan_branch(self, move: Move, *, following: str = "", returns: bool = False) -> RollbackPlanned:
        """Return the effects on the branch; raise ``UsageError`` if changes of the user are in the way.

        With ``returns``, they are not if the files of a point are restored, because the plan shows these.
        """
        repository, source, target = self.repository, move.source, move.target
        files = repository.list_changes(source, target)
        # A submodule has its own history: the commit it should be at is recorded, but nothing inside it changes.
        paths = {change.path for change in repository.list_changes(source, target, submodules=False)}
        if not (returns and move.files):
            self._require_clear(files, paths)
        leaving, coming = (_list_commits(repository, span) for span in (f"{target}..{source}", f"{source}..{target}"))
        unpushed = repository.git("rev-list", ("--count",), f"{target}..{source}", ("--not", "--remotes")).strip()
        return RollbackPlanned(
            branch=move.branch,
            source=source,
            target=target,
            going=leaving,
            coming=coming,
            files=files,
            pushed=len(leaving) - int(unpushed),
            kept=f"{_KEPT}/{(source if leaving else target)[:12]}",
            next=following,
        )

    def _require_clear(self, files: Iterable[Change], paths: Set[str]) -> None:
        """Raise ``UsageError`` if a file of the user is in the way of ``files`` with these ``paths``."""
        root = self.repository.root
        in_the_way: dict[str, str | None] = dict.fromkeys(paths & set(self.repository.list_uncommitted()))
        deleted = {change.path for change in files if change.kind == "deleted"}
        for path in (each.path for each in files if each.kind == "created" and each.path in paths):
            why = find_obstacle(root, path, deleted=deleted)
            if why is not None or (os.path.lexists(root / path) and not (root / path).is_dir()):
                in_the_way[path] = why
        if in_the_way:
            raise _explain_changes(in_the_way)

    # Commits of steps.

    def _find_last_step(self) -> tuple[_OwnCommit, ...]:
        """Return the commits of the last step, newest first."""
        commits = self._read_commits("HEAD", most=_MOST_COMMITS)
        last = commits[0]
        if last.landing and self._is_of_run(last):
            return (last,)
        # An iteration is taken back alone, although the commits before it may be of the same step.
        base = self._find_base(last)
        own = takewhile(lambda commit: commit[2:4] == last[2:4] and commit.commit != base, commits)
        if not last.is_step:
            is_merge = len(self.repository.git("log", ("-1", "--format=%P"), last.commit).split()) > 1
            raise UsageError(
                f"The last commit, {last.commit[:10]} {last.subject!r}, is not of a step, so it stays.",
                hint=f"git revert {'-m 1 ' if is_merge else ''}HEAD takes it back with a new commit",
            )
        # The states and the log of another project would not follow.
        other = None if self._is_of_run(last) else find_owner(self._root, last.ticket, top=self.repository.root)
        if other is not None:
            place = f"{other.relative_to(self.repository.root).as_posix()}/"
            raise UsageError(
                f"The last commit, {last.commit[:10]} {last.subject!r}, is a step of the project "
                f"{'at the top of the repository' if place == './' else place}, so it stays.",
                hint=f"start cdd there: cd {shlex.quote(str(other))}; then type /undo",
            )
        return tuple(own)

    def _find_parent(self, first: _OwnCommit) -> CommitId:
        parent = self.repository.objects.read(f"{first.commit}^")
        if parent is None and first.commit not in read_shallow_commits(self.repository):
            raise UsageError(
                f"{_capitalize(first.name)} begins with the first commit of the repository, so no commit "
                "is left to return to.",
                hint="git update-ref -d HEAD takes the first commit back, and leaves its files staged",
            )
        return CommitId(self.repository.objects.require(f"{first.commit}^").id)

    def _find_base(self, last: _OwnCommit) -> str | None:
        """Return the commit before the step whose ``last`` commit this is, if the state of its run knows it."""
        run = _find_run(self._root, last.ticket)
        state = load_state(run.state_path) if run is not None else None
        step = state.step_executions.get(read_number(last.number)) if state else None
        if step is None or last.commit not in step.commits.values() or step.base_commit == last.commit:
            return None  # the last: after a rollback into the step, it continues from there
        return step.base_commit

    def _list_steps_since(self, base: str) -> tuple[str, ...]:
        """Return the steps whose commits follow ``base``, newest first; none if there are other commits, or parts."""
        if not self.repository.is_ancestor(base, of="HEAD"):
            return ()
        later = self._read_commits(f"{base}..HEAD")
        earlier = self._read_commits(base, most=1)
        if not later or not all(map(self._is_of_run, later)) or later[-1].name == earlier[0].name:
            return ()
        return tuple(dict.fromkeys(commit.name for commit in later))

    def _read_commits(self, *which: str, most: int | None = None) -> list[_OwnCommit]:
        limit = () if most is None else (f"--max-count={most}",)
        log = self.repository.git("log", ("-z", "--first-parent", _FORMAT, *limit), *which)
        fields = [field.strip() for field in log.split("\0")]
        width = len(_OwnCommit._fields)
        return [_OwnCommit(*row) for row in zip(*(fields[start::width] for start in range(width)), strict=False)]

    def _is_of_run(self, commit: _OwnCommit) -> bool:
        is_own = commit.is_step or commit.landing
        return bool(is_own) and _find_run(self._root, commit.ticket) is not None

    # What follows the branch.

    @contextlib.contextmanager
    def _lock_runs(self, move: Move) -> Iterator[tuple[Ticket, ...]]:
        """Lock the runs whose commits the branch loses or gets, and yield them."""
        trailers = "--format=%(trailers:key=Ticket,valueonly,separator=%x0A)"
        # Not only first parents: a merged fork has commits of the run too.
        log = self.repository.git("log", (trailers,), f"{move.source}...{move.target}") if move.branch else ""
        slugs = set(log.split())
        runs = tuple(run for run in list_runs(self._root) if run.slug in slugs)
        with contextlib.ExitStack() as locks:
            for run in runs:
                locks.enter_context(lock_ticket(self._root, run.folder))
            yield runs

    def _follow_branch(self, run: Ticket, move: Move) -> None:
        """Let the state of a run be the one that was saved with the point, or else that at the branch's commit."""
        commit = CommitId(move.target)
        try:
            state = load_state(run.state_path)
        except DocumentError as error:
            self._emit(Notice(text=f"The saved state of {run.slug} stays as it is. {error.happened} {error.hint}"))
            return
        if state is None:
            return
        if move.evidence and (then := self._load_state(run, move.evidence)) is not None:
            save_state(run.state_path, keep_spent(then, state))
            return
        ledger = Ledger(slug=run.slug, saved=state, repository=self.repository, project=self._root)
        match ledger.state_at(commit):
            case Known(state=then):
                if then != state:
                    save_state(run.state_path, then)
            case Unknown():
                text = f"cdd cannot tell how far {run.slug} was at {commit[:10]}, so its saved state stays."
                self._emit(Notice(text=text))

    def _mark_latest(self, commit: CommitId) -> None:
        """Let the run of ``commit`` be the latest, which ``cdd tdd resume`` continues."""
        run = _find_run(self._root, self._read_commits(commit, most=1)[0].ticket)
        if run is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(run.folder / "request.md")

    def _save_records(self, runs: Iterable[Ticket], point: str) -> None:
        """Keep states, snapshots and reports of ``runs``.

        A step that begins again on the same commit replaces its own; a state can have what no commit tells.
        """
        commands = [
            f"update {_locate_refs(point)}{run.slug}/{name} {value}\n"
            for run in runs
            for name, value in self._list_snapshots(f"refs/cdd/checkpoints/{run.slug}/{self._fork}").items()
        ]
        self._update_refs(commands)
        for run in runs:
            with contextlib.suppress(DocumentError):
                if (state := load_state(run.state_path)) is not None:
                    path = self._locate_state(run, point)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    save_state(path, state)
            reports = self._folder / "reports" / run.slug
            if reports.is_dir():
                shutil.copytree(reports, self._locate_reports(point) / run.slug, dirs_exist_ok=True)

    def _load_state(self, run: Ticket, point: str) -> RunState | None:
        """Return the state that was saved with a point; None if there is none, or if it is damaged."""
        with contextlib.suppress(DocumentError):
            return load_state(self._locate_state(run, point))
        return None

    def _restore_evidence(self, runs: Iterable[Ticket], point: str) -> None:
        commands = list[str]()
        for run in runs:
            prefix = f"refs/cdd/checkpoints/{run.slug}/{self._fork}"
            present, kept = self._list_snapshots(prefix), self._list_snapshots(f"{_locate_refs(point)}{run.slug}/")
            commands += [f"update {prefix}{name} {kept[name]}\n" for name in kept if present.get(name) != kept[name]]
            if (reports := self._locate_reports(point) / run.slug).is_dir():
                shutil.copytree(reports, self._folder / "reports" / run.slug, dirs_exist_ok=True)
        self._update_refs(commands)

    def _forget_evidence(self, move: Move) -> None:
        refs = self.repository.list_refs(_locate_refs(move.point)) if move.branch else {}
        self._update_refs(f"delete {ref} {value}\n" for ref, value in refs.items())
        shutil.rmtree(self._locate_reports(move.point), ignore_errors=True)

    def _locate_state(self, run: Ticket, point: str) -> Path:
        return self._locate_reports(point) / f"{run.slug}.json"

    def _locate_reports(self, point: str) -> Path:
        return self._folder / "undone" / point[:_SHORT_ID]

    def _list_snapshots(self, prefix: str) -> dict[str, str]:
        """Return name -> object of the snapshots of steps whose refs begin with ``prefix``."""
        refs = self.repository.list_refs(prefix)
        names = {ref: ref.removeprefix(prefix) for ref in refs if not REF.fullmatch(ref)}
        return {name: refs[ref] for ref, name in names.items() if "/" not in name}

    def _update_refs(self, commands: Iterable[str]) -> None:
        if stdin := "".join(commands).encode():
            self.repository.git("update-ref", ("--stdin",), stdin=stdin)


def _find_run(root: Path, slug: str) -> Ticket | None:
    return next((run for run in list_runs(root) if run.slug == slug), None)


def _locate_refs(point: str) -> str:
    return f"{_KEPT}/snapshots/{point[:_SHORT_ID]}/"


def _explain_changes(paths: Mapping[str, str | None]) -> UsageError:
    listed = [f"{path}: {why}" if why else path for path, why in sorted(paths.items())]
    shown = join_first(listed, most=_MOST_SHOWN, separator="\n  ")
    return UsageError(
        f"You have changed files that would move:\n  {shown}\nNothing was touched.",
        hint="commit your changes, or move them aside: git stash push --include-untracked -- PATH; then the same again",
    )


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _find_target(repository: Repository, name: str) -> tuple[CommitId, Handoff]:
    """Return the commit that ``name`` means, and the handoff of its note.

    Raises ``UsageError``, naming the nearest suitable commit, if HEAD does not contain it or it has no note of a run.
    """
    commit = CommitId(resolve_revision(repository, name))
    head = repository.read_head()
    if head is None or not repository.is_ancestor(commit, of=head):
        branch = repository.read_branch() or "HEAD"
        try:
            base = None if head is None else CommitId(repository.git("merge-base", commit, head).strip())
        except GitRefused:
            base = None
        raise UsageError(
            f"{commit[:10]} is not part of {branch}. Roll back to a commit that HEAD contains.",
            hint=_suggest_nearest(repository, base),
        )
    lines = read_handoffs(repository, commit)
    if not lines:
        raise UsageError(
            f"{commit[:10]} has no handoff note, so cdd does not know how to continue from there.",
            hint=_suggest_nearest(repository, commit),
        )
    handoff = Note(commit=commit, handoffs=lines).latest
    if not is_of_feature(handoff):
        raise UsageError(
            f"{commit[:10]} belongs to {handoff.ticket!r:.100}, which is not a run of cdd tdd.",
            hint="choose a commit from: cdd tdd history; or take the last step back: /undo",
        )
    return commit, handoff


def _suggest_nearest(repository: Repository, commit: CommitId | None) -> str:
    """Return a hint: the newest commit of a run at or before ``commit``, else the oldest one after it."""
    entries = {entry.commit: entry for entry in survey_notes(repository).entries if is_of_feature(entry.latest)}
    for span in ([commit], [("--reverse",), f"{commit}..HEAD"]) if commit is not None else (["HEAD"],):
        commits = (CommitId(line) for line in repository.git("rev-list", *span).splitlines())
        near = next((each for each in commits if each in entries), None)
        if near is not None:
            last = entries[near].latest
            described = f"{near[:10]} (cycle {last.cycle_number}, {last.phase})"
            return f"roll back to the nearest suitable commit, {described}: cdd tdd rollback {near[:10]}"
    return "list the commits: cdd tdd history"


def _list_commits(repository: Repository, span: str) -> tuple[CommitMoved, ...]:
    lines = repository.git("log", ("-z", "--format=%H %s"), span).split("\0")
    pairs = (line.partition(" ") for line in lines if line)
    return tuple(CommitMoved(commit=commit, subject=subject) for commit, _, subject in pairs)
