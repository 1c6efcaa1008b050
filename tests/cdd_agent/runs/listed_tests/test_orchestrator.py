"""A feature through its cycles with a scripted model, real files, git and pytest; and how it is gone on with."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.errors import BudgetSpent, CddError, EnvironmentMissing, GateClosed, ModelError, UsageError
from cdd_agent.events import GateJudged, Notice, RunFinished, StepFinished, StepStarted, TurnEnded
from cdd_agent.model.conversation import Text, Turn
from cdd_agent.model.recording import extract_work
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.listed_tests.conftest import (
    FIRST,
    REQUEST,
    RIGHT,
    SECOND,
    SLUG,
    SOURCE,
    TESTS,
    TITLES,
    Runs,
    StoppedAfter,
    covered,
    gives_up,
    nothing,
    plan,
    whole,
    writes,
)
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import Project

ONE = (f"plan: {TITLES[0]}", f"test: {TITLES[0]}", f"feat: {TITLES[0]}", "refactor: no changes needed")


def model(*turns: Turn | CddError | KeyboardInterrupt) -> ScriptedModel:
    return ScriptedModel(turns)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that came to its end; never to be changed."""

    runs: Runs
    project: Project
    model: ScriptedModel


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, *, interpreter: Interpreter, bytecode: Path) -> Finished:
    folder = tmp_path_factory.mktemp("finished") / "project"
    project, scripted = Project.make(folder, interpreter=interpreter, bytecode=bytecode), model(*covered())
    runs = Runs(project=project)
    runs.begin(scripted)
    return Finished(runs=runs, project=project, model=scripted)


@pytest.mark.slow
def test_four_commits_a_cycle_and_one_at_the_end(runs: Runs, project: Project) -> None:
    scripted = model(*whole())
    state = runs.begin(scripted)
    assert (state.status, scripted.queue) == (Status.COMPLETED, [])
    second = [subject.replace(TITLES[0], TITLES[1]) for subject in ONE]
    assert project.log[:4] == list(ONE)
    assert project.log[-1] == "plan: complete, 2 of 2 tests"
    assert project.status == ""
    agents = [event.agent for event in project.seen if isinstance(event, TurnEnded)]
    assert agents[:4] == ["list", "tester", "implementer", "refactorer"]
    assert second[0] in project.log


def test_each_agent_has_a_conversation_of_its_own_that_names_its_work(finished: Finished) -> None:
    scripted = finished.model
    works = [extract_work(request) for request in scripted.requests]
    assert works[:5] == [
        *(f"Work: tdd {SLUG} cycle 1 {phase} attempt 1" for phase in ("plan", "red", "green", "refactor")),
        f"Work: tdd {SLUG} cycle 2 plan attempt 1",
    ]
    assert all(len(request.messages) == 1 for request in scripted.requests)
    assert all(REQUEST in str(request.messages) for request in scripted.requests)
    roles = [request.system.split(".")[0] for request in scripted.requests[:4]]
    assert roles == [f"You are the {name}" for name in ("list agent", "tester", "implementer", "refactorer")]


def test_the_notes_tell_what_comes_next_and_how_far_the_list_is(finished: Finished) -> None:
    commits = finished.project.git("rev-list", "--reverse", "HEAD").split()[1:]
    told = [note for commit in commits for note in finished.runs.notes(commit)]
    assert [(note["phase"], note["nextPhase"], note["cycleNumber"]) for note in told] == [
        ("PLAN", "RED", 1),
        ("RED", "GREEN", 1),
        ("GREEN", "REFACTOR", 1),
        ("REFACTOR", "PLAN", 1),
        ("PLAN", "RED", 2),
        ("RED", "PLAN", 2),
        ("PLAN", "COMPLETE", 3),
    ]
    assert [(note["completedTests"], note["pendingTests"]) for note in told] == [
        *[([], list(TITLES))] * 3,
        ([TITLES[0]], [TITLES[1]]),
        ([TITLES[0]], [TITLES[1]]),
        (list(TITLES), []),
        (list(TITLES), []),
    ]


def test_a_test_that_passes_at_once_is_kept_without_time_to_verify_it(finished: Finished) -> None:
    project = finished.project
    assert (finished.runs.state.status, finished.model.queue, project.status) == (Status.COMPLETED, [], "")
    assert project.log == [*ONE, f"plan: {TITLES[1]}", f"test: {TITLES[1]}", "plan: complete, 2 of 2 tests"]
    assert (project.folder / TESTS).read_text() == SECOND
    assert "passes already and is kept. Not verified: the time" in str(project.seen)
    assert [event.title for event in project.seen if isinstance(event, StepStarted)] == list(TITLES)
    assert {event.status for event in project.seen if isinstance(event, StepFinished)} == {"completed"}


@pytest.mark.slow
def test_where_all_tests_are_dropped_nothing_is_done(runs: Runs, project: Project) -> None:
    project.write({SOURCE: RIGHT})
    project.git("add", SOURCE)
    project.git("commit", "-qm", "code")
    vacuous = "from discount import discount\n\n\ndef test_it():\n    assert discount(1) or True\n"
    marked = plan(2, titles=(f"{TITLES[0]} (dropped)",), done=0)
    with pytest.raises(GateClosed, match="has built nothing"):
        runs.begin(model(plan(1, titles=TITLES[:1]), writes(TESTS, vacuous), marked), evidence_timeout_s=60)
    assert project.log == ["code", f"plan: {TITLES[0]}", "plan: no test was kept, 1 dropped"]
    assert not (project.folder / TESTS).exists()
    assert (project.folder / "test-list.md").read_text() == f"- [ ] {TITLES[0]} (dropped)\n"
    assert [event.status for event in project.seen if isinstance(event, StepFinished)] == ["dropped"]
    assert [note["completedTests"] for note in runs.notes()] == [[]]


@pytest.mark.slow
def test_an_answer_that_disagrees_with_the_list_is_told_and_asked_for_again(runs: Runs, project: Project) -> None:
    early = replace(plan(3), content=(*plan(3, done=1).content[:1], *plan(2).content[1:]))
    turns = covered()
    scripted = model(*turns[:4], early, *turns[4:])
    runs.begin(scripted)
    assert "list_open: The answer says that all tests are done" in str(scripted.requests[5].messages)
    assert project.log[-1] == "plan: complete, 2 of 2 tests"


@pytest.mark.slow
def test_a_list_agent_that_writes_more_than_the_list_is_refused(runs: Runs, project: Project) -> None:
    turns = covered()
    scripted = model(writes(SOURCE, RIGHT), *turns)
    runs.begin(scripted)
    assert project.log[:4] == list(ONE)
    assert "PLAN may only write test-list.md" in str([e for e in project.seen if getattr(e, "summary", "")])


def test_the_list_agents_answer_is_held_against_the_files_without_what_was_put_back(
    runs: Runs, project: Project
) -> None:
    class Writing(ScriptedModel):
        """Has its own way to write, as no tool lets it."""

        def reply(self, *args: object, **named: object) -> Turn:
            if self.requests:  # during the first turn, the tests run
                (tree,) = (project.folder / ".cdd" / "worktrees").iterdir()
                (tree / TESTS).write_text("def test_takes_ten_percent_off(): pass\n")
            return super().reply(*args, **named)  # type: ignore[arg-type]

    with pytest.raises(GateClosed, match="PLAN was refused 2 times"):
        runs.begin(Writing([says(call("Read", file_path="prices.py")), plan(1), plan(1)]))
    judged = [event for event in project.seen if isinstance(event, GateJudged)]
    assert [reason.code for event in judged for reason in event.reasons] == ["source_changed"] * 2
    assert all(TESTS in event.evidence for event in judged)


def test_where_nobody_is_there_the_run_ends_and_says_why_in_the_note(runs: Runs, project: Project) -> None:
    with pytest.raises(GateClosed, match="is aborted in cycle 1") as caught:
        runs.begin(model(plan(1), writes(TESTS, FIRST), nothing(), nothing()))
    assert "cdd tdd resume" in caught.value.hint
    assert project.log == list(ONE[:2])
    assert project.status == ""
    landed, failed = runs.notes()
    assert (landed["phase"], landed["error"]) == ("RED", None)
    assert (failed["phase"], failed["nextPhase"], failed["retryCount"]) == ("GREEN", "GREEN", 1)
    assert "'code': 'no_change'" in str(failed["error"])
    assert failed["errorDetails"] == {"type": "no_change", "reasons": [failed["error"]]}
    assert (runs.state.status, runs.state.execution(1).status) == (Status.FAILED, Status.IN_PROGRESS)
    assert [event.status for event in project.seen if isinstance(event, RunFinished)] == ["failed"]


@pytest.mark.slow
def test_what_failed_is_tried_anew_when_the_run_is_gone_on_with(runs: Runs, project: Project) -> None:
    turns = covered()
    with pytest.raises(GateClosed):
        runs.begin(model(*turns[:2], nothing(), nothing()))
    scripted = model(*turns[2:])
    assert runs.resume(scripted).status == Status.COMPLETED
    assert "green attempt 1" in extract_work(scripted.requests[0])
    assert project.log[:4] == list(ONE)


@pytest.mark.slow
def test_a_person_who_is_there_mends_what_is_in_the_way_commits_it_and_goes_on(runs: Runs, project: Project) -> None:
    wrong = FIRST.replace("90", "91")
    with pytest.raises(GateClosed, match=r"is paused in cycle 1 .*test_is_wrong: ten percent of what\?"):
        runs.begin(model(plan(1), *(writes(TESTS, wrong), gives_up()) * 2), is_attended=True)
    assert (runs.state.status, project.status) == (Status.IN_PROGRESS, "")
    project.write({TESTS: FIRST})
    project.git("commit", "-qam", "ten percent of one hundred")
    scripted = model(writes(SOURCE, RIGHT), nothing(), *covered()[4:])
    assert runs.resume(scripted, is_attended=True).status == Status.COMPLETED
    assert project.log[:5] == [*ONE[:2], "ten percent of one hundred", *ONE[2:]]
    assert runs.notes("HEAD~4")[0]["phase"] == "GREEN"


@pytest.mark.slow
def test_green_of_a_run_that_is_known_by_its_notes_has_to_mend_the_listed_test(runs: Runs, project: Project) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.begin(model(plan(1), writes(TESTS, FIRST), KeyboardInterrupt()))
    shutil.rmtree(find_records(project.folder).folder)
    wrong = writes(SOURCE, "def discount(price):\n    return price\n")
    scripted = model(wrong, writes(SOURCE, RIGHT), nothing(), *covered()[4:])
    assert runs.resume(scripted).status == Status.COMPLETED
    assert "target_failed" in str(scripted.requests[1].messages)
    assert project.log[:4] == list(ONE)


@pytest.mark.slow
def test_an_interrupted_plan_or_code_is_continued_with_its_files(runs: Runs, project: Project) -> None:
    lists = plan(1).content[1:3]  # reads and writes, and does not hand in
    with pytest.raises(KeyboardInterrupt):
        runs.begin(model(says(*lists), KeyboardInterrupt()))
    chooses = says(*plan(1).content[:1], *plan(1).content[3:])
    half = says(call("Write", file_path=SOURCE, content=RIGHT))
    scripted = model(chooses, writes(TESTS, FIRST), half, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        runs.resume(scripted)
    again = model(nothing(), nothing(), *covered()[4:])
    assert runs.resume(again).status == Status.COMPLETED
    asked = [str(each.messages[0]) for each in (scripted.requests[0], again.requests[0])]
    assert all("Your earlier, interrupted work is in the files." in text for text in asked)
    assert project.log[:4] == list(ONE)


@pytest.mark.slow
def test_an_answer_of_the_list_agent_that_cannot_be_used_goes_back_to_it_once(runs: Runs, project: Project) -> None:
    class Answers(ScriptedModel):
        answers_examiner = True

    said, *turns = says("I will list the tests now."), *covered()
    scripted = Answers([said, *turns])
    assert runs.begin(scripted).status == Status.COMPLETED
    told = scripted.requests[1].messages[-1].content[-1]
    assert isinstance(told, Text)
    assert told.text.startswith("Your answer cannot be used:\n<data-")
    assert json.loads(project.git("notes", "--ref=tdd-handoffs", "show", "HEAD~5").splitlines()[0])["retryCount"] == 0


@pytest.mark.parametrize("landed", [1, *(pytest.param(landed, marks=pytest.mark.slow) for landed in (2, 3, 4, 5, 6))])
def test_the_notes_alone_are_enough_to_go_on_after_any_phase(stopped_after: StoppedAfter, *, landed: int) -> None:
    runs = stopped_after(landed)
    project = runs.project
    shutil.rmtree(find_records(project.folder).folder)
    scripted = model(*covered()[landed:])
    assert runs.resume(scripted, guidance="Mind the cents.").status == Status.COMPLETED
    assert "Mind the cents." in str(scripted.requests[0].messages)
    assert scripted.queue == []
    assert project.log == [*ONE, f"plan: {TITLES[1]}", f"test: {TITLES[1]}", "plan: complete, 2 of 2 tests"]
    assert any("notes" in event.text for event in project.seen if isinstance(event, Notice))
    assert (runs.folder / "request.md").read_text() == REQUEST


@pytest.mark.parametrize(
    ("landed", "told"), [(0, "no run to continue"), pytest.param(7, "is complete", marks=pytest.mark.slow)]
)
def test_without_notes_or_after_the_last_there_is_nothing_to_go_on_with(
    stopped_after: StoppedAfter, *, landed: int, told: str
) -> None:
    runs = stopped_after(landed)
    shutil.rmtree(find_records(runs.project.folder).folder)
    with pytest.raises(UsageError, match=told):
        runs.resume(model())


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 3, 5, 6])
def test_an_interrupted_run_goes_on_with_the_phase_it_was_in(stopped_after: StoppedAfter, *, at: int) -> None:
    runs, turns = stopped_after(at), covered()
    scripted = model(*turns[at:])
    assert runs.resume(scripted).status == Status.COMPLETED
    assert scripted.queue == []
    assert runs.project.log == [*ONE, f"plan: {TITLES[1]}", f"test: {TITLES[1]}", "plan: complete, 2 of 2 tests"]


@pytest.mark.slow
def test_a_limit_ends_the_run_before_the_next_call_and_a_higher_one_goes_on(runs: Runs, project: Project) -> None:
    turns = covered()
    with pytest.raises(BudgetSpent) as caught:
        runs.begin(model(*turns), calls=2)
    assert caught.value.hint.endswith("cdd tdd resume")
    assert project.log == list(ONE[:2])
    assert runs.state.usage.calls == 2
    runs.resume(model(*turns[2:]), calls=20)
    assert runs.state.usage.calls == len(turns)


@pytest.mark.slow
def test_a_model_that_cannot_be_asked_is_no_reason_to_ask_another(runs: Runs, project: Project) -> None:
    gone = ModelError("The model scripted is not available.", hint="name another")
    with pytest.raises(ModelError) as caught:
        runs.begin(model(gone))
    assert caught.value is gone
    assert project.log == []
    assert runs.resume(model(*covered())).status == Status.COMPLETED


@pytest.mark.slow
def test_changes_of_the_user_are_refused_and_nothing_is_begun(runs: Runs, project: Project) -> None:
    project.write({"prices.py": "# mine\n"})
    with pytest.raises(UsageError, match="uncommitted changes"):
        runs.begin(model())
    assert not runs.folder.exists()
    assert project.log == []


@pytest.mark.slow
def test_changes_that_are_allowed_stay_out_of_every_commit(runs: Runs, project: Project) -> None:
    project.write({"notes.txt": "mine\n"})
    runs.begin(model(*covered()), allow_dirty=True)
    assert project.status == "?? notes.txt"
    assert len(project.log) == 7


@pytest.mark.slow
def test_a_repository_without_a_commit_is_told_what_to_do(runs: Runs, project: Project) -> None:
    project.git("update-ref", "-d", "HEAD")
    project.git("rm", "-q", "--cached", "-r", ".")
    with pytest.raises(EnvironmentMissing, match="has no commits"):
        runs.begin(model(), allow_dirty=True)


@pytest.mark.slow
def test_a_request_to_fix_makes_fixes(runs: Runs, project: Project) -> None:
    with pytest.raises(KeyboardInterrupt):
        runs.begin(model(*covered()[:3], KeyboardInterrupt()), text="Fix the discount")
    assert project.log[2] == f"fix: {TITLES[0]}"


@pytest.mark.slow
def test_a_list_agent_that_gives_up_stops_the_run_with_its_reason(runs: Runs, project: Project) -> None:
    with pytest.raises(
        GateClosed, match=r"is paused in cycle 1: the agent gave up in PLAN: test_is_wrong: ten percent of"
    ):
        runs.begin(model(gives_up()), is_attended=True)
    assert project.log == []
    assert runs.notes()[0]["phase"] == "PLAN"
    assert runs.resume(model(*covered())).status == Status.COMPLETED


@pytest.mark.slow
def test_an_agent_that_only_talks_comes_to_an_end(runs: Runs, project: Project) -> None:
    talk: Iterable[Turn] = [says("I would begin with the sum.")] * 2
    with pytest.raises(GateClosed, match="PLAN was refused 2 times"):
        runs.begin(model(*talk))
    assert project.log == []
    assert runs.notes()[0]["error"] is not None
