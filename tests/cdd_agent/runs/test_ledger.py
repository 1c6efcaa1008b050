"""The state of a run at any commit: laws over histories that exist only here, and repositories of every kind."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.notes import NotesDamaged
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.ledger import MOST_BEYOND, History, Known, Ledger, PhaseLine, Unknown, fold, rebuild_state
from cdd_agent.tdd.phase_commit import make_handoff_id
from cdd_agent.work import state as states
from cdd_agent.work.handoff import CurrentTest, Handoff, NextPhase, PhaseName, phase_name, sequence
from cdd_agent.work.outcome import Closed, Open
from cdd_agent.work.state import AttemptRecord, Phase, RunState, Status, StepKey, Usage
from tests.cdd_agent.runs.made_runs import SLUG as RUN_SLUG
from tests.cdd_agent.runs.made_runs import Run, begun_in, copied

SLUG, NOW = "sale", "2026-01-31T12:00:00Z"
PLANNED = tuple(StepKey(number=number, title=f"Step {number}", text_sha256=f"{number}" * 64) for number in (1, 2, 3))


@dataclass
class Track:
    """A run on a branch that exists only here: its commits, and the state after every save."""

    state: RunState
    lines: list[PhaseLine | CommitId] = field(default_factory=lambda: [_name(0)])
    """The branch, oldest first; a commit of the user has no line."""
    saved: list[tuple[int, RunState]] = field(default_factory=list)
    """The number of commits, and the state saved then."""

    @property
    def head(self) -> CommitId:
        last = self.lines[-1]
        return last.commit if isinstance(last, PhaseLine) else last

    def save(self, state: RunState) -> None:
        self.state = state
        self.saved.append((len(self.lines), state))

    def history(self, length: int | None = None, *, notes: bool = True) -> History:
        """Return the history of the commit that ends so many."""
        part = self.lines[:length]
        commits = [each.commit if isinstance(each, PhaseLine) else each for each in part]
        lines = tuple(each if notes else replace(each, handoff=None) for each in part if isinstance(each, PhaseLine))
        return History(commit=commits[-1], lines=lines, contained={commit: at for at, commit in enumerate(commits)})

    def start(self, key: StepKey) -> None:
        self.save(states.start_step(self.state, key, now=NOW, base_commit=self.head))

    def land(self, number: int, phase: Phase, *, following: NextPhase) -> None:
        """Save an attempt, then its commit, as the cycle does."""
        step = self.state.execution(number)
        attempt = AttemptRecord(phase=phase, number=len(step.attempts) + 1, outcome=Open(), words=f"{len(self.lines)}")
        self.save(states.record_attempt(self.state, number, attempt=attempt))
        used = Usage(input_tokens=len(self.lines), calls=1)
        self.state = states.record_usage(self.state, number, step=step.usage + used, ticket=self.state.usage + used)
        commit = _name(len(self.lines))
        handoff_id = make_handoff_id(SLUG, number, phase=phase, base=step.base_commit)
        handoff = Handoff(
            seq=sequence(phase_name(phase), cycle=number),
            id=handoff_id,
            ticket=SLUG,
            phase=phase_name(phase),
            next_phase=following,
            cycle_number=number,
            current_test=CurrentTest(description=step.title, test_file="test_it.py", impl_file="it.py"),
            completed_tests=(),
            pending_tests=(),
            test_result=None,
            error=None,
            error_details=None,
            retry_count=0,
            commit=commit,
            checkpoint=None,
            gate=None,
        )
        line = PhaseLine(
            commit=commit,
            position=len(self.lines),
            base=self.head,
            at=NOW,
            number=number,
            phase=phase,
            id=handoff_id,
            handoff=handoff,
        )
        self.lines.append(line)
        self.save(states.record_commit(self.state, number, phase=phase, commit=commit))

    def end(self, number: int, status: Status = Status.COMPLETED) -> None:
        error = None if status == Status.COMPLETED else "it is refused"
        self.save(states.end_step(self.state, number, status=status, now=f"{NOW}{len(self.lines)}", error=error))

    def commit_of_user(self) -> None:
        self.lines.append(_name(len(self.lines)))


def _name(number: int) -> CommitId:
    return CommitId(f"{number:040x}")


def planned() -> Track:
    state = RunState(ticket_slug=SLUG, started_at=NOW, step_executions=states.pending_steps(PLANNED))
    return Track(state=replace(state, base_commit=_name(0)))


def _carry_out(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.PENDING:
        is_iteration = track.state.execution(number).iterates
        track.start(PLANNED[number - 1])
        if not is_iteration:
            track.land(number, "red", following="GREEN")
        track.land(number, "green", following="COMPLETE")
        track.end(number)
        track.save(states.finish(track.state, now=f"{NOW}!"))


def _begin(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.PENDING:
        track.start(PLANNED[number - 1])
        track.land(number, "red", following="GREEN")


def _fail(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.PENDING:
        track.start(PLANNED[number - 1])
        attempt = AttemptRecord(phase="red", number=1, outcome=Closed())
        track.save(states.record_attempt(track.state, number, attempt=attempt))
        track.end(number, Status.FAILED)
        if track.state.execution(number).landed is not None:
            track.save(states.restore_landed(track.state, number, now=NOW))


def _iterate(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.COMPLETED:
        guided = states.add_guidance(track.state, number, words="Shorter.")
        track.save(states.retry_step(guided, number))


def _retry(track: Track, number: int) -> None:
    if track.state.execution(number).status in (Status.COMPLETED, Status.FAILED, Status.SKIPPED):
        track.save(states.retry_step(track.state, number))


def _skip(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.PENDING and track.state.execution(number).landed is None:
        track.save(states.end_step(track.state, number, status=Status.SKIPPED, now=NOW))


def _review(track: Track, number: int) -> None:
    if track.state.execution(number).status == Status.COMPLETED:
        track.save(states.review_step(track.state, number, decision="approved"))


def _commit(track: Track, _: int) -> None:
    track.commit_of_user()


ACTS: tuple[Callable[[Track, int], None], ...] = (_carry_out, _fail, _iterate, _retry, _skip, _review, _commit)
acts = some.lists(some.tuples(some.sampled_from(ACTS), some.integers(1, 3)), max_size=12)


@some.composite
def plans(draw: some.DrawFn) -> Track:
    """A run of a plan in any order, with failures, iterations, reviews, and commits of the user."""
    track = planned()
    for act, number in draw(acts):
        act(track, number)
    if draw(some.booleans()):
        _begin(track, draw(some.integers(1, 3)))
    return track


tracks = some.one_of(plans(), some.builds(lambda phases: listed(phases=phases), some.integers(0, 4)))


@given(tracks, some.booleans())
def test_at_head_the_state_is_the_saved_one_after_every_save(track: Track, notes: bool) -> None:
    for length, state in track.saved:
        assert fold(state, track.history(length, notes=notes)) is state


@given(tracks, some.data())
def test_going_back_and_forward_gives_the_state_from_before(track: Track, data: some.DataObject) -> None:
    state, lengths = track.state, some.lists(some.integers(1, len(track.lines)), min_size=1, max_size=4)
    for length in data.draw(lengths):
        state = fold(state, track.history(length))
    assert fold(state, track.history()) == track.state


@given(tracks, some.data())
def test_a_commit_has_the_steps_that_had_landed_there(track: Track, data: some.DataObject) -> None:
    length = data.draw(some.integers(1, len(track.lines)))
    there = fold(track.state, track.history(length)).step_executions
    before = next((state for at, state in reversed(track.saved) if at <= length), None)
    for number, step in before.step_executions.items() if before else ():
        # A step that is to run again keeps what the state says of it.
        is_again = not track.state.execution(number).commits
        if step.commits and step.status in (Status.COMPLETED, Status.IN_PROGRESS) and not is_again:
            assert (dict(there[number].commits), there[number].status) == (dict(step.commits), step.status)
    beyond = {each.commit for each in track.lines[length:] if isinstance(each, PhaseLine)}
    assert not beyond & {commit for step in there.values() for commit in step.commits.values()}


def listed(*, phases: int = 0) -> Track:
    """A run of a list with a whole cycle, and so many phases of the next."""
    track = Track(state=RunState(ticket_slug=SLUG, started_at=NOW, base_commit=_name(0)))
    cycle: tuple[tuple[Phase, NextPhase], ...] = (
        ("plan", "RED"),
        ("red", "GREEN"),
        ("green", "REFACTOR"),
        ("refactor", "PLAN"),
    )
    for number, some_phases in ((1, cycle), (2, cycle[:phases])):
        if some_phases:
            key = StepKey(number=number, title=f"test {number}", text_sha256="")
            executions = {**track.state.step_executions, **states.pending_steps((key,))}
            track.state = replace(track.state, step_executions=executions)
            track.start(key)
        for phase, following in some_phases:
            track.land(number, phase, following=following)
        if some_phases == cycle:
            track.end(number)
    return track


def test_a_cycle_that_is_beyond_is_gone_and_a_planned_step_is_pending() -> None:
    track = listed(phases=2)
    assert list(fold(track.state, track.history(5)).step_executions) == [1]
    plan = planned()
    _carry_out(plan, 2)
    back = fold(plan.state, plan.history(1))
    assert back.execution(2) == replace(planned().state.execution(2), usage=plan.state.execution(2).usage)
    assert (back.status, back.usage) == (Status.IN_PROGRESS, plan.state.usage)


def test_a_step_in_the_middle_goes_on_from_the_commit_with_the_attempts_that_landed() -> None:
    track = listed(phases=3)
    step = fold(track.state, track.history(7)).execution(2)
    assert (list(step.commits), step.status, step.base_commit) == (["plan", "red"], Status.IN_PROGRESS, _name(6))
    assert [each.phase for each in step.attempts] == ["plan", "red"]


def test_after_a_rebase_without_notes_a_phase_is_known_by_its_trailer() -> None:
    track = planned()
    _carry_out(track, 1)
    moved = [
        replace(line, commit=CommitId(line.commit.replace("0", "a")), base="b" * 40, handoff=None)
        for line in track.history().lines
    ]
    here = History(commit=moved[-1].commit, lines=tuple(moved), contained={})
    step = fold(track.state, here).execution(1)
    assert list(step.commits.values()) == [line.commit for line in moved]
    assert step == replace(track.state.execution(1), commits=step.commits, base_commit="b" * 40)


def test_a_phase_without_a_commit_of_its_own_follows_the_one_before_through_an_amend() -> None:
    track = planned()
    _carry_out(track, 1)
    step = track.state.execution(1)
    track.save(states.record_commit(track.state, 1, phase="refactor", commit=step.commits["green"]))
    *earlier, last = track.history().lines
    amended = replace(last, commit=CommitId("a" * 40), handoff=None)
    commits: list[str] = [_name(0), *(line.commit for line in earlier), amended.commit]
    contained = {commit: at for at, commit in enumerate(commits)}
    here = History(commit=amended.commit, lines=(*earlier, amended), contained=contained)
    step = fold(track.state, here).execution(1)
    assert (step.status, step.commits["green"], step.commits["refactor"]) == (Status.COMPLETED, "a" * 40, "a" * 40)


def test_a_step_that_was_renumbered_while_it_was_gone_comes_back_under_its_new_number() -> None:
    track = planned()
    _carry_out(track, 1)
    back = fold(track.state, track.history(1))
    moved = [replace(PLANNED[number - 1], number=at) for at, number in enumerate((3, 2, 1), start=1)]
    again = fold(states.reconcile(back, moved)[0], track.history())
    assert again.execution(3) == replace(track.state.execution(1), step_number=3)
    assert again.execution(1).status == Status.PENDING


def test_notes_alone_tell_the_steps_and_what_is_next() -> None:
    track = listed(phases=2)
    state = rebuild_state(track.history(), slug=SLUG, branch="main")
    assert [(step.title, step.status) for step in state.step_executions.values()] == [
        ("test 1", Status.COMPLETED),
        ("test 2", Status.IN_PROGRESS),
    ]
    assert list(state.execution(2).commits) == ["plan", "red"]


def test_a_cycle_that_landed_elsewhere_is_added_from_its_notes() -> None:
    track, known = listed(phases=3), listed()
    state = fold(known.state, track.history())
    assert state.execution(1) == known.state.execution(1)
    assert list(state.execution(2).commits) == ["plan", "red", "green"]


def test_at_most_so_many_executions_are_kept_beyond() -> None:
    keys = tuple(StepKey(number=number, title=f"{number}", text_sha256="x") for number in range(1, MOST_BEYOND + 9))
    track = Track(state=RunState(ticket_slug=SLUG, started_at=NOW, step_executions=states.pending_steps(keys)))
    for key in keys:
        track.start(key)
        track.land(key.number, "green", following="COMPLETE")
        track.end(key.number)
    state = track.state
    for length in range(len(track.lines) - 1, 0, -1):
        state = fold(state, track.history(length))
    assert sum(len(entry.steps) for entry in state.beyond) == MOST_BEYOND
    assert all(step.status == Status.PENDING for step in state.step_executions.values())


def git(*words: str) -> None:
    """Run git as a user would, in any folder."""
    subprocess.run(["git", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Made:
    """A run of two cycles and a half in a repository, with the state after each landing."""

    run: Run
    landings: tuple[tuple[CommitId, RunState], ...]

    def ledger(self, *, saved: RunState | None, folder: Path | None = None) -> Ledger:
        repository = self.run.repository if folder is None else Repository.find(folder)
        return Ledger(slug=RUN_SLUG, saved=saved, repository=repository, project=repository.root)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    run = begun_in(tmp_path_factory.mktemp("ledger") / "project")
    landings: list[tuple[CommitId, RunState]] = []
    parts: tuple[tuple[int, PhaseName], ...] = ((1, "REFACTOR"), (2, "REFACTOR"), (3, "GREEN"))
    for number, until in parts:
        run.cycle(number, until=until, landed=lambda commit: landings.append((commit, run.state)))
    return Made(run, tuple(landings))


def test_after_each_landing_the_state_is_the_saved_one(made: Made) -> None:
    for commit, state in made.landings:
        assert made.ledger(saved=state).state_at(commit) == Known(state=state, basis="notes and state")


def test_every_landing_is_left_and_found_again(made: Made) -> None:
    *_, (head, last) = made.landings
    for commit, state in made.landings:
        there = made.ledger(saved=last).state_at(commit)
        assert isinstance(there, Known)
        assert {number: list(step.commits) for number, step in there.state.step_executions.items()} == {
            number: list(step.commits) for number, step in state.step_executions.items()
        }
        assert made.ledger(saved=there.state).state_at(head) == Known(state=last, basis="notes and state")


def test_a_clone_has_the_state_alone_or_nobody_knows(made: Made, tmp_path: Path) -> None:
    git("clone", "-q", str(made.run.root), str(tmp_path / "clone"))
    *_, (head, last) = made.landings
    clone = made.ledger(saved=last, folder=tmp_path / "clone")
    assert clone.state_at(head) == Known(state=last, basis="state alone")
    assert replace(clone, saved=None).state_at(head) == Unknown(why="no records")


def test_beyond_the_end_of_a_shallow_clone_the_state_is_unknown(made: Made, tmp_path: Path) -> None:
    folder, *_, (head, last) = tmp_path / "clone", *made.landings
    git("clone", "-q", "--depth=2", f"file://{made.run.root}", str(folder))
    clone = made.ledger(saved=last, folder=folder)
    assert clone.state_at(head) == Unknown(why="shallow")
    git("-C", str(folder), "fetch", "-q", "origin", "refs/notes/tdd-handoffs:refs/notes/tdd-handoffs")
    assert replace(clone, saved=None).state_at(head) == Unknown(why="shallow")


def test_a_damaged_note_is_no_obstacle_with_a_state_and_an_error_without(made: Made, tmp_path: Path) -> None:
    run = copied(made.run, tmp_path / "project")
    *_, (head, last) = made.landings
    run.repository.git("notes", ("--ref=tdd-handoffs",), "add", ("-f", "-m"), "words", head)
    ledger = made.ledger(saved=last, folder=run.root)
    assert ledger.state_at(head) == Known(state=last, basis="notes and state")
    with pytest.raises(NotesDamaged, match="does not hold a readable handoff"):
        replace(ledger, saved=None).state_at(head)


def test_a_rebase_that_carries_the_notes_along_changes_only_the_commits(made: Made, tmp_path: Path) -> None:
    run = copied(made.run, tmp_path / "project")
    *_, (head, last) = made.landings
    repository = run.repository
    repository.git("switch", ("-q", "-c"), "other", str(run.state.base_commit))
    commit_paths(repository, "of somebody else", paths=[], allow_empty=True)
    carried = ("-c", "notes.rewriteRef=refs/notes/tdd-handoffs")
    git("-C", str(run.root), *carried, "rebase", "-q", "--empty=keep", "other", "main")
    known = made.ledger(saved=last, folder=run.root).state_at(CommitId(str(repository.read_head())))
    assert isinstance(known, Known)
    assert known.basis == "notes and state"
    assert head not in known.state.execution(3).commits.values()
    for number in (1, 2):
        step = known.state.execution(number)
        assert step.attempts == last.execution(number).attempts
        assert list(step.commits) == list(last.execution(number).commits)
    assert list(known.state.execution(3).commits) == ["plan", "red", "green"]


def test_a_note_of_a_stranger_lands_no_step_of_a_plan() -> None:
    track = planned()
    _carry_out(track, 1)
    *lines, last = track.history().lines
    forged = [replace(line, number=number, has_trailer=False) for number in (2, 9) for line in (*lines, last)]
    history = replace(track.history(1), lines=tuple(forged))
    state = fold(track.state, history)
    assert {number: str(step.status) for number, step in state.step_executions.items()} == {
        1: "pending",
        2: "pending",
        3: "pending",
    }


def test_a_step_that_was_carried_out_twice_is_as_after_the_first_time_in_the_notes() -> None:
    track = planned()
    _carry_out(track, 1)
    _retry(track, 1)
    _carry_out(track, 1)
    step = fold(track.state, track.history(3)).execution(1)
    assert (step.status, list(step.commits.values())) == (Status.COMPLETED, [_name(1), _name(2)])
    assert (step.title, step.attempts, step.usage) == (PLANNED[0].title, (), track.state.execution(1).usage)
