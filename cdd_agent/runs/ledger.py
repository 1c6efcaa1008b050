"""The ledger of a run: its state at any commit of the branch.

The state is folded from two records. The handoff notes tell which phases a commit contains. The saved state has what no
note has (attempts, usage, reviews, guidance), each execution of a step keyed by its commits. An execution that a commit
does not contain, or only in part, is kept in ``RunState.beyond``, so that the way forward finds it again.

A rebase makes other commits of the same phases. They are recognized by the commit that their note names, or by their
``Handoff-Id``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from cdd_agent.git.notes import NotesDamaged, read_notes, read_shallow_commits, read_tip
from cdd_agent.git.repository import CommitId, Repository, format_lines
from cdd_agent.runs import test_list
from cdd_agent.tdd.phase_commit import make_handoff_id
from cdd_agent.tdd.step import step_label
from cdd_agent.work.handoff import NUMBER_OPTIONS, PHASE_OF, CurrentTest, Handoff, read_number
from cdd_agent.work.outcome import Covered, Open, Outcome, read_outcome
from cdd_agent.work.state import AttemptRecord, Beyond, Phase, RunState, Status, StepExecution, renew_step

MOST_BEYOND = 50
"""How many executions a run keeps beyond its present commit."""
_ORDER: tuple[Phase, ...] = get_args(Phase)
_PHASES: Mapping[str, Phase] = {phase: phase for phase in _ORDER}
_KEYS = ("key=Ticket", NUMBER_OPTIONS, "key=Phase", "key=Handoff-Id")
_FORMAT = "--format=%H%x00%P%x00%ct%x00" + "%x00".join(f"%(trailers:{key},valueonly,separator=%x20)" for key in _KEYS)
_FIELDS = 3 + len(_KEYS)
_NOWHERE = -2
"""The position of an execution that no commit is about."""
_BEFORE = -1
"""The position of the commits before the run."""

Basis: TypeAlias = Literal["notes and state", "state alone", "notes alone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of a run at a commit."""

    state: RunState
    basis: Basis
    """The records from which it was folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody can tell the state of a run at a commit."""

    why: Literal["no records", "shallow"]
    """There is neither a saved state nor a note; or the clone may lack commits of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """One phase that a commit of a run is about, according to its note, or to its trailers if it has none."""

    commit: CommitId
    position: int
    """In the history, oldest first."""
    base: str
    """The parent of the commit."""
    at: str
    """The time of the commit."""
    number: int
    phase: Phase
    id: str
    handoff: Handoff | None = None
    has_trailer: bool = True
    """Whether the commit itself names the phase. A note alone may be anybody's who can push."""
    test_file: str = ""
    """The test file of RED."""

    @property
    def has_landed(self) -> bool:
        """Whether the phase succeeded."""
        return self.handoff is None or self.handoff.has_landed


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The part of a run that a commit contains."""

    commit: CommitId
    lines: tuple[PhaseLine, ...]
    """Oldest first."""
    contained: Mapping[str, int]
    """Each recorded commit that the commit contains -> its position."""
    lost: frozenset[str] = frozenset()
    """The commits of executions that are not in the repository."""
    is_cut: bool = False
    """Whether a shallow clone ends the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The records of one run."""

    slug: str
    """The run's name, the ``ticket`` of its notes."""
    saved: RunState | None
    """The saved state, with the executions beyond the present commit."""
    repository: Repository
    project: Path
    """The project's folder, which may be below the work tree's."""

    def state_at(self, commit: CommitId) -> Known | Unknown:
        """Return the state at ``commit``. Raises ``NotesDamaged`` for damaged notes without a saved state."""
        saved = self.saved
        history = self.read_history(commit)
        if saved is not None:
            # A commit that a shallow clone lacks may be older than its end, or beyond the commit.
            if history.is_cut and history.lost:
                return Unknown(why="shallow")
            has_notes = any(line.handoff for line in history.lines)
            return Known(state=fold(saved, history), basis="notes and state" if has_notes else "state alone")
        history = replace(history, lines=tuple(line for line in history.lines if line.handoff))
        if not history.lines:
            return Unknown(why="shallow" if history.is_cut else "no records")
        first = history.lines[0]
        if history.is_cut and (first.number, first.phase) != (1, "plan"):
            return Unknown(why="shallow")  # of a plan's steps, any may have been the first
        state = rebuild_state(history, slug=self.slug, branch=self.repository.read_branch())
        return Known(state=state, basis="notes alone")

    def read_history(self, commit: CommitId) -> History:
        """Return what ``commit`` contains of the run. Raises as ``state_at`` does."""
        saved, repository = self.saved, self.repository
        executions = () if saved is None else tuple(_list_executions(saved))
        landed = {commit for step in executions for commit in step.commits.values() if commit}
        bases = {each.base_commit for each in (saved, *executions) if each is not None and each.base_commit}
        present = {each for each in landed | bases if repository.objects.read(f"{each}^{{commit}}") is not None}
        contained = present - self._list_unreachable(present, commit)
        begin = saved.base_commit if saved is not None else None
        since = (f"^{begin}",) if begin in contained and begin != commit else ()
        log = repository.git("log", ("-z", "--topo-order", "--reverse", _FORMAT), commit, *since)
        fields = [value.strip() for value in log.split("\0")]
        rows = list(zip(*(fields[at::_FIELDS] for at in range(_FIELDS)), strict=False))
        positions = {row[0]: position for position, row in enumerate(rows)}
        handoffs = self._read_handoffs(positions.keys())
        is_cut = not read_shallow_commits(repository).isdisjoint(positions)
        return History(
            commit=commit,
            lines=tuple(
                line for position, row in enumerate(rows) for line in self._read_lines(row, position, handoffs=handoffs)
            ),
            contained={each: positions.get(each, _BEFORE) for each in contained},
            lost=frozenset(landed - present),
            is_cut=is_cut,
        )

    def _list_unreachable(self, commits: Set[str], tip: CommitId) -> Set[str]:
        if not commits:
            return commits
        return set(self.repository.git("rev-list", ("--stdin", "--not"), tip, stdin=format_lines(commits)).split())

    def _read_handoffs(self, commits: Set[str]) -> dict[str, list[Handoff]]:
        """Return commit -> handoffs of the run, oldest first."""
        try:
            tip = read_tip(self.repository)
            notes = read_notes(self.repository, tip) if tip is not None else ()
        except NotesDamaged:
            if self.saved is None:
                raise
            return {}
        found: dict[str, list[Handoff]] = {}
        for note in notes:
            if note.commit not in commits:
                continue
            if note.damage is not None and self.saved is None:
                raise NotesDamaged(note.damage.what)
            own = {each.phase: each for each in note.handoffs if each.ticket == self.slug and each.reconstructed}
            real = [each for each in note.handoffs if each.ticket == self.slug and not each.reconstructed]
            rebuilt = [own[phase] for phase in own if phase not in {each.phase for each in real}]
            found[note.commit] = sorted([*rebuilt, *real], key=lambda each: each.seq)
        return found

    def _read_lines(
        self, row: tuple[str, ...], position: int, *, handoffs: Mapping[str, list[Handoff]]
    ) -> Iterator[PhaseLine]:
        commit, parents, seconds, ticket, number, phase, handoff_id = row
        at = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = PhaseLine(
            commit=CommitId(commit),
            position=position,
            base=parents.partition(" ")[0],
            at=at,
            number=read_number(number),
            phase=PHASE_OF.get(phase, "plan"),
            id=handoff_id,
        )
        own = handoffs.get(commit, [])
        for each in own:
            test_file = each.current_test.test_file
            if each.phase == "RED" and not test_file:
                test_file = self._find_test_file(line.commit)
            yield replace(
                line,
                number=each.cycle_number,
                phase=PHASE_OF[each.phase],
                id=each.id,
                handoff=each,
                has_trailer=each.id == handoff_id,
                test_file=test_file,
            )
        if not own and ticket == self.slug and line.number and handoff_id and phase in PHASE_OF:
            yield line

    def _find_test_file(self, commit: CommitId) -> str:
        """Return the test file that RED committed, relative to the project; empty if there is none."""
        inside = self.project.resolve().relative_to(self.repository.root.resolve()).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        names = self.repository.git("diff-tree", ("--no-commit-id", "--name-only", "-r", "-z"), commit)
        changed = [path.removeprefix(prefix) for path in names.split("\0") if path.startswith(prefix)]
        return next((path for path in changed if test_list.is_test_file(path)), "")


def fold(saved: RunState, history: History) -> RunState:
    """Return the state at the commit of ``history``; ``saved`` itself if it is that of this commit."""
    return _Fold(saved, history).run()


def continue_at(step: StepExecution, commit: CommitId, *, slug: str) -> StepExecution:
    """Return a step in progress that begins anew at ``commit``, which others may have made.

    Changes that are uncommitted now are then the user's, and no report about other files counts.
    """
    label = step_label(step.step_number, commit)
    attempts = [each for each in step.attempts if each.phase in step.commits]
    for phase in ("red", "green"):
        if phase in step.commits and not any(each.phase == phase and each.is_open for each in attempts):
            attempts.append(AttemptRecord(phase=phase, number=1, outcome=Open()))
    # These reports do not exist. Naming them makes the next baseline run the tests.
    reports = {phase: f"reports/{slug}/{label}-{phase}-1.json" for phase in ("red", "green")}
    *_, latest = step.commits or (None,)
    return replace(
        _begin_anew(step, commit),
        attempts=tuple(replace(each, checkpoint=None, report=reports.get(each.phase)) for each in attempts),
        commits=step.commits if latest is None else {**step.commits, latest: str(commit)},
    )


def _begin_anew(step: StepExecution, commit: CommitId) -> StepExecution:
    attempts = (replace(each, checkpoint=None) for each in step.attempts if each.phase in step.commits)
    return StepExecution(
        step_number=step.step_number,
        title=step.title,
        text_sha256=step.text_sha256,
        status=Status.IN_PROGRESS,
        started_at=step.started_at,
        phase=_PHASES[[*step.commits][-1]] if step.commits else step.phase,
        attempts=tuple(attempts),
        commits=step.commits,
        base_commit=commit,
        usage=step.usage,
        guidance=step.guidance,
        iterates=step.iterates,
        landed=step.landed,
        times_sent_back=step.times_sent_back if "red" in step.commits else 0,
        returned=step.returned if "red" in step.commits else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An execution of a step that the commit contains, at least in part."""

    step: StepExecution
    commits: Mapping[str, str]
    """Phase -> its commit here, which a rebase may have replaced. Ends where the commit ends."""
    position: int
    entry: int | None = None
    """The index of the entry of ``RunState.beyond`` that has the execution; None: the state itself, or ``landed``."""

    @property
    def is_whole(self) -> bool:
        return len(self.commits) == len(self.step.commits)


class _Fold:
    """Finds the state at one commit."""

    def __init__(self, saved: RunState, history: History) -> None:
        self._saved = saved
        self._history = history
        self._positions = {line.commit: line.position for line in history.lines}
        executions = tuple(_list_executions(saved))
        self._named = {commit for step in executions for commit in step.commits.values()}
        found = map(self._find_commits, executions)
        self._explained = {commit for commits in found for commit in commits.values()}
        self._lines = _group_by_number(line for line in history.lines if line.handoff)

    def run(self) -> RunState:
        """Return the state; the saved one if nothing differs."""
        saved, present = self._saved, self._saved.step_executions
        others = {step.step_number for entry in saved.beyond for step in entry.steps}
        if not present or any(map(_begins_with_plan, present.values())):  # a plan has the steps that it has
            others |= self._lines.keys()
        added = sorted(others - present.keys())
        places = {number: self._find_place(number) for number in (*present, *added)}
        found = {number: self._make_step(number, place) for number, place in places.items()}
        steps = {number: step for number, step in found.items() if step is not None}
        if steps == present:
            return saved
        if added:  # they were chosen in the run, so their numbers are their order
            steps = dict(sorted(steps.items()))
        return self._finish(steps, places)

    def _find_place(self, number: int) -> _Place | None:
        """Return the latest execution of a step that is here; of two, the one that the state holds."""
        entries = reversed(tuple(enumerate(self._saved.beyond)))
        known: list[tuple[int | None, StepExecution | None]] = [(None, self._saved.step_executions.get(number))]
        known += [(at, step) for at, entry in entries for step in entry.steps if step.step_number == number]
        places = []
        for at, step in known:
            if step is not None:
                own, *earlier = _list_landings(step)
                places += [self._locate(own, entry=at), *map(self._locate, earlier)]
        return max(filter(None, places), key=lambda place: place.position, default=None)

    def _locate(self, step: StepExecution, *, entry: int | None = None) -> _Place | None:
        commits, contained = self._find_commits(step), self._history.contained
        # A step that failed stays failed: its commits were taken back.
        has_ended = step.status in (Status.FAILED, Status.SKIPPED)
        is_late = step.status == Status.IN_PROGRESS and step.base_commit not in (None, *contained)
        if not commits and not has_ended and (step.commits or is_late):
            return None
        position = contained.get(step.base_commit or "", _NOWHERE)
        if commits:
            position = max(map(self._find_position, commits.values()))
        elif step.iterates and step.landed is not None:
            before = self._locate(step.landed)
            if before is None or not before.is_whole:
                return None
            position = before.position
        return _Place(step=step, commits=step.commits if has_ended else commits, position=position, entry=entry)

    def _find_commits(self, step: StepExecution) -> dict[str, str]:
        """Return phase -> commit, as far as the commits of ``step`` are here."""
        found: dict[str, str] = {}
        replaced: dict[str, str] = {}
        for phase, commit in step.commits.items():
            # A phase that changed nothing has the commit of the one before, whose trailers name only that one.
            here = replaced.get(commit)
            if here is None:
                here = commit if commit in self._history.contained else self._find_rebased(step, _PHASES[phase])
            if here is None:
                break
            found[phase] = replaced[commit] = here
        return found

    def _find_rebased(self, step: StepExecution, phase: Phase) -> str | None:
        """Return the commit that replaces the one of ``phase``; one that an execution names replaces no other."""
        own = make_handoff_id(self._saved.ticket_slug, step.step_number, phase=phase, base=step.base_commit)
        for line in self._history.lines:
            is_same = line.id == own or (line.handoff is not None and line.handoff.commit == step.commits[phase])
            if is_same and line.has_trailer and line.phase == phase and line.commit not in self._named:
                return line.commit
        return None

    def _find_position(self, commit: str) -> int:
        return self._positions.get(CommitId(commit), self._history.contained.get(commit, _BEFORE))

    def _make_step(self, number: int, place: _Place | None) -> StepExecution | None:
        """Return the execution of a step at the commit; None if the run has not chosen the step yet."""
        present, lines = self._saved.step_executions.get(number), self._lines.get(number, [])
        others = [line for line in lines if line.has_landed and line.commit not in self._explained]
        if place is None:
            return self._make_missing(present, lines if others else ())
        step = self._adapt(place)
        is_further = bool(others) and others[-1].position > place.position
        if is_further and step.status == Status.IN_PROGRESS and _begins_with_plan(step):
            step = replace(self._rebuild(lines), usage=step.usage)  # the run continued from another commit
        if place.entry is not None and present is not None and present.usage.tokens > step.usage.tokens:
            step = replace(step, usage=present.usage)
        return step

    def _make_missing(self, present: StepExecution | None, lines: Sequence[PhaseLine]) -> StepExecution | None:
        """Return a step without a known execution here: an earlier one from the notes, or None."""
        if present is None:
            return self._rebuild(lines) if _begins_with_plan(lines) else None
        if _begins_with_plan(present):
            return self._rebuild(lines) if lines else None
        lines = [line for line in lines if line.has_trailer]
        if not lines:
            return renew_step(present)
        rebuilt = self._rebuild(lines)
        return replace(rebuilt, title=present.title, text_sha256=present.text_sha256, usage=present.usage)

    def _rebuild(self, lines: Sequence[PhaseLine]) -> StepExecution:
        return rebuild_step(lines, self._history.commit, slug=self._saved.ticket_slug)

    def _adapt(self, place: _Place) -> StepExecution:
        """Return the execution as far as it is here, with the commits that it has here."""
        step, commit, slug = place.step, self._history.commit, self._saved.ticket_slug
        moved = any(step.commits[phase] != here for phase, here in place.commits.items())
        if place.is_whole and not moved:
            return step
        landed = replace(step, commits=place.commits)
        if place.is_whole and step.status != Status.IN_PROGRESS:
            base = next((line.base for line in self._history.lines if line.commit in place.commits.values()), None)
            return replace(landed, base_commit=base or step.base_commit)
        is_judged = not moved and commit == [*place.commits.values()][-1]
        return _begin_anew(landed, commit) if is_judged else continue_at(landed, commit, slug=slug)

    def _finish(self, steps: Mapping[int, StepExecution], places: Mapping[int, _Place | None]) -> RunState:
        """Return the state with ``steps``, and keep the executions that they replace."""
        saved, present = self._saved, self._saved.step_executions
        found = [place for place in places.values() if place is not None and place.is_whole]
        kept = {id(place.step) for place in found}
        left = tuple(
            step
            for number, step in present.items()
            if id(step) not in kept and step != steps.get(number) and not _is_part(step, steps.get(number))
        )
        entries = [
            replace(
                entry,
                steps=tuple(
                    step
                    for step in entry.steps
                    if id(step) not in kept and not _is_part(step, steps.get(step.step_number))
                ),
            )
            for entry in saved.beyond
        ]
        restored = [place for place in found if place.entry is not None and not entries[place.entry].steps]
        last = max(restored, key=lambda place: place.position, default=None)
        if last is not None and last.entry is not None and not left:
            end = saved.beyond[last.entry]
            state = replace(saved, status=end.status, current_step=end.current_step, completed_at=end.completed_at)
        else:
            state = self._set_status(steps)
        if left:
            entries.append(
                Beyond(
                    steps=left, status=saved.status, current_step=saved.current_step, completed_at=saved.completed_at
                )
            )
        return replace(state, step_executions=steps, beyond=_limit(entries))

    def _set_status(self, steps: Mapping[int, StepExecution]) -> RunState:
        """Return the saved state with the status that fits ``steps``."""
        saved = self._saved
        current = next((number for number, step in steps.items() if step.status == Status.IN_PROGRESS), None)
        is_open = any(step.status in (Status.PENDING, Status.IN_PROGRESS) for step in steps.values())
        if is_open or saved.step_executions.keys() - steps.keys():
            return replace(saved, status=Status.IN_PROGRESS, current_step=current, completed_at=None)
        if steps.keys() - saved.step_executions.keys() and _is_complete(self._history.lines):
            completed_at = self._history.lines[-1].at
            return replace(saved, status=Status.COMPLETED, current_step=None, completed_at=completed_at)
        return replace(saved, current_step=None)


def rebuild_state(history: History, *, slug: str, branch: str | None) -> RunState:
    """Return the state of a run from its notes alone."""
    lines, groups = history.lines, _group_by_number(history.lines)
    is_complete = _is_complete(lines)
    return RunState(
        ticket_slug=slug,
        status=Status.COMPLETED if is_complete else Status.IN_PROGRESS,
        started_at=lines[0].at,
        completed_at=lines[-1].at if is_complete else None,
        base_commit=lines[0].base or None,
        branch=branch,
        step_executions={number: rebuild_step(groups[number], history.commit, slug=slug) for number in sorted(groups)},
    )


def rebuild_step(lines: Sequence[PhaseLine], commit: CommitId, *, slug: str) -> StepExecution:
    """Return the last execution of a step as its notes tell it; one in progress continues at ``commit``."""
    lines = _find_last_execution(lines)
    landed = [line for line in lines if line.has_landed]
    titles = [line.handoff.current_test.description for line in (*landed, lines[-1]) if line.handoff is not None]
    last = lines[-1].handoff
    is_over = last is not None and (
        last.phase == "REFACTOR" or (last.error is None and (last.next_phase == "COMPLETE" or _is_covered(last)))
    )
    answer = _rebuild_answer(landed) if _begins_with_plan(lines) else None
    commits: dict[str, str] = {line.phase: line.commit for line in landed}
    if answer is None and not is_over and _begins_with_plan(lines):
        commits = {}  # the chosen test is unknown, so PLAN chooses again
    attempts: list[AttemptRecord] = []
    if "plan" in commits:
        attempts.append(AttemptRecord(phase="plan", number=1, outcome=Open(), answer=answer))
    for covered in (line.handoff for line in landed if line.handoff is not None and _is_covered(line.handoff)):
        attempts.append(AttemptRecord(phase="red", number=1, outcome=_read_covered(covered)))
    handoffs = [line.handoff for line in lines if line.handoff is not None]
    step = StepExecution(
        step_number=lines[0].number,
        title=titles[0],
        text_sha256=next((each.text_sha256 for each in handoffs if each.text_sha256), ""),
        status=Status.COMPLETED if is_over else Status.IN_PROGRESS,
        started_at=lines[0].at,
        completed_at=lines[-1].at if is_over else None,
        phase=lines[-1].phase,
        attempts=tuple(attempts),
        commits=commits,
        base_commit=lines[0].base or None,
    )
    return step if is_over else continue_at(step, commit, slug=slug)


def _find_last_execution(lines: Sequence[PhaseLine]) -> Sequence[PhaseLine]:
    """Return the lines from where the phases of a step begin again for the last time."""
    begin, reached = 0, -1
    for at, line in enumerate(lines):
        rank = _ORDER.index(line.phase)
        if line.has_landed:
            if rank <= reached and line.commit != lines[at - 1].commit:
                begin = at
            reached = rank
    return lines[begin:]


def _rebuild_answer(landed: Sequence[PhaseLine]) -> str | None:
    """Return PLAN's answer according to the notes of its cycle; None if they do not name the chosen test."""
    handoffs = [line.handoff for line in landed if line.handoff is not None]
    if not handoffs:
        return None
    first = handoffs[0]
    if first.phase == "PLAN" and first.answer is not None:
        return first.answer
    if first.phase == "PLAN" and first.next_phase == "COMPLETE":
        return test_list.format_answer(None)
    test = next((each.current_test for each in handoffs if each.current_test.test_file), first.current_test)
    test_file = test.test_file or next((line.test_file for line in landed if line.test_file), "")
    if not test_file:
        return None
    return test_list.format_answer(
        CurrentTest(description=test.description, test_file=test_file, impl_file=test.impl_file)
    )


def _read_covered(covered: Handoff) -> Outcome:
    if covered.gate is not None and covered.gate.finding:
        return read_outcome(covered.gate.finding, is_open=True)
    is_kept = covered.current_test.description in covered.completed_tests
    return Covered("kept" if is_kept else "dropped")


def _is_covered(handoff: Handoff) -> bool:
    return handoff.phase == "RED" and handoff.next_phase in ("PLAN", "COMPLETE") and handoff.error is None


def _is_complete(lines: Sequence[PhaseLine]) -> bool:
    """Return whether the last PLAN found that there is nothing left to do."""
    last = lines[-1].handoff
    return last is not None and (last.phase, last.next_phase, last.error) == ("PLAN", "COMPLETE", None)


def _begins_with_plan(step: StepExecution | Sequence[PhaseLine]) -> bool:
    """Return whether PLAN chose the work of a step; before that, the step does not exist."""
    if not isinstance(step, StepExecution):
        return any(line.phase == "plan" for line in step)
    is_new = step.phase is None and step.status == Status.IN_PROGRESS and not step.text_sha256
    return is_new or step.phase == "plan" or "plan" in step.commits


def _is_part(step: StepExecution, whole: StepExecution | None) -> bool:
    """Return whether nothing of ``step`` is lost: ``whole`` has it, or notes have it."""
    own = any(each.words or each.checkpoint or not each.is_open for each in step.attempts)
    if step.commits and not own and step.review is None:
        return True
    return whole is not None and any(_has_everything(each, of=step) for each in _list_landings(whole))


def _has_everything(step: StepExecution, *, of: StepExecution) -> bool:
    if of.guidance not in ("", step.guidance) or of.landed not in (None, step.landed):
        return False
    tries, own = ({(each.phase, each.number, each.is_open, each.words) for each in one.attempts} for one in (step, of))
    return own <= tries and set(of.commits.values()) <= set(step.commits.values())


def _limit(entries: Iterable[Beyond]) -> tuple[Beyond, ...]:
    """Return the entries with steps, without the oldest ones if there are too many steps."""
    kept: list[Beyond] = []
    count = 0
    for entry in reversed([each for each in entries if each.steps]):
        count += len(entry.steps)
        if count <= MOST_BEYOND:
            kept.append(entry)
    return tuple(reversed(kept))


def _group_by_number(lines: Iterable[PhaseLine]) -> dict[int, list[PhaseLine]]:
    groups: dict[int, list[PhaseLine]] = {}
    for line in lines:
        groups.setdefault(line.number, []).append(line)
    return groups


def _list_landings(step: StepExecution) -> Iterator[StepExecution]:
    """Yield an execution, and those that it iterates, newest first."""
    known: StepExecution | None = step
    while known is not None:
        yield known
        known = known.landed


def _list_executions(state: RunState) -> Iterator[StepExecution]:
    """Yield every execution of a state, newest first."""
    for step in (*state.step_executions.values(), *(step for entry in state.beyond for step in entry.steps)):
        yield from _list_landings(step)
