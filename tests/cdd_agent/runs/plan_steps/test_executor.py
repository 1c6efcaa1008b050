import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import DocumentError, EnvironmentMissing, ExitCode, ModelError, UsageError
from cdd_agent.events import AttemptStarted, Notice, RunFinished, RunStarted, StepFinished, StepStarted
from cdd_agent.model.conversation import Turn
from cdd_agent.model.recording import RecordedTurn, print_turns
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state import Status
from tests.cdd_agent.runs.plan_steps.conftest import CHAIN, FEATURE, ONE, MakeWork, Work, plan
from tests.fakes.approval import approves, users_folder
from tests.fakes.ledger import LandingChecks
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.program import ROOT
from tests.fakes.project import CODE, QUICK, TEST, TEST_FILE, Project, green, red, writes


def does(name: str) -> ScriptedModel:
    return ScriptedModel([writes(f"{name}.md", f"# {name}\n")])


def run_all(work: Work, model: ScriptedModel, *, allow_dirty: bool = False) -> None:
    executor = work.executor(model, allow_dirty=allow_dirty)
    with executor.running():
        executor.run_all()


def test_a_plan_is_carried_out_in_the_order_of_its_dependencies(chained: Work) -> None:
    made, project = chained, chained.project
    assert project.log == ["plan: A sale", "docs: Second", "docs: Third", "docs: First"]
    assert made.statuses == {1: "completed", 2: "completed", 3: "completed"}
    state = made.saved
    assert (state.status, state.current_step, state.branch) == (Status.COMPLETED, None, "main")
    assert state.execution(2).files_created == ("a.md",)
    assert state.execution(2).commits["green"] == project.git("rev-parse", "HEAD~2")
    assert isinstance(project.seen[0], RunStarted)
    assert isinstance(project.seen[-1], RunFinished)
    assert project.status == ""


def test_a_feature_is_carried_out_test_first(work: MakeWork, project: Project) -> None:
    made = work(FEATURE)
    run_all(made, ScriptedModel([red(), green()]))
    assert project.log == ["plan: A sale", "test: Ten percent off", "feat: Ten percent off"]
    step = made.saved.execution(1)
    assert (step.files_created, step.phase) == (("discount.py", "tests/test_discount.py"), "green")
    written = json.loads(made.ticket.state_path.read_text())["step_executions"]["1"]
    assert list(written["commits"]) == ["red", "green"]


def test_after_each_landing_the_ledger_has_the_saved_state(work: MakeWork, project: Project) -> None:
    made = work(FEATURE)
    checks = LandingChecks(project.repository, made.ticket.state_path)
    run_all(replace(made, project=replace(project, seen=checks)), ScriptedModel([red(), green()]))
    assert checks.landings == 2


def test_a_step_that_needs_no_change_completes_and_closes_the_ticket(work: MakeWork, project: Project) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "1")))
    nothing = says(call("CompleteImplementation", implementation_files=[], summary="It is there."))
    run_all(made, ScriptedModel([nothing, nothing]))
    assert made.statuses == {1: "completed", 2: "completed"}
    assert project.log == ["plan: A sale", "docs: no changes needed", "docs: no changes needed"]
    assert "status: done" in project.git("show", "HEAD:tickets/sale/spec.yaml")
    assert project.status == ""


@pytest.mark.slow
def test_a_feature_whose_test_exists_and_passes_completes_in_red(work: MakeWork, project: Project) -> None:
    project.write({TEST_FILE: TEST, "discount.py": CODE})
    project.git("add", "-A")
    project.git("commit", "-qm", "before")
    made = work(FEATURE)
    nothing = says(call("CompleteImplementation", implementation_files=[], summary="It is there."))
    run_all(made, ScriptedModel([nothing]))
    assert made.statuses == {1: "completed"}
    assert project.log == ["before", "plan: A sale", "test: no changes needed"]
    assert "status: done" in project.git("show", "HEAD:tickets/sale/spec.yaml")


def test_a_failed_step_stops_the_run_says_why_and_can_be_tried_again(work: MakeWork, project: Project) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "none")))
    run_all(made, ScriptedModel([says("No.")]))
    (started,) = [event for event in project.seen if isinstance(event, StepStarted)]
    assert (started.number, started.total, started.title) == (1, 2, "First"), "steps are counted as they start"
    assert (made.statuses, made.saved.status) == ({1: "failed", 2: "pending"}, Status.FAILED)
    assert "no_change" in str(made.saved.execution(1).error)
    assert project.log == ["plan: A sale"]
    executor = made.executor(does("a"))
    with executor.running():
        executor.retry(2, guidance="Be brief.")
        executor.retry(1)
        assert executor.run_step(executor.step(1))
    assert (made.statuses, made.saved.status) == ({1: "completed", 2: "pending"}, Status.IN_PROGRESS)
    assert made.saved.execution(1).error is None
    assert made.saved.execution(2).guidance == "Be brief."


@pytest.mark.slow
def test_a_step_that_uses_up_its_turns_comes_with_a_proposal_to_split_it(work: MakeWork, project: Project) -> None:
    made = work(plan((1, "A", "none")))
    looks = [says(call("Glob", pattern=f"*{number}")) for number in range(4 * 3)]
    run_all(made, ScriptedModel(looks))
    assert made.statuses == {1: "failed"}
    told = [event.text for event in project.seen if isinstance(event, Notice)]
    assert "The agent used up its limit in this attempt (4 turns, 4 tool calls), so its work may be incomplete." in told
    (proposal,) = (text for text in told if text.startswith("Step 1 may be too large: the agent used up its limit in"))
    assert "To plan it anew: cdd plan sale, then say: split step 1." in proposal


def test_what_depends_on_a_skipped_step_is_skipped_with_the_reason_and_comes_back_with_it(
    work: MakeWork, project: Project
) -> None:
    made = work(CHAIN)
    executor = made.executor()
    with executor.running():
        executor.skip(2, reason="skipped by the user")
        with pytest.raises(UsageError, match=r"Step 3 depends on step 2 \(skipped\)") as refused:
            executor.run_step(executor.step(3))
        assert "--skip 3" in refused.value.hint
        executor.run_all()
    assert made.statuses == {1: "skipped", 2: "skipped", 3: "skipped"}
    assert made.saved.execution(1).error == "it depends on a part that was not completed"
    again = made.executor(does("a"))
    with again.running():
        again.retry(2)
    assert made.statuses == {1: "pending", 2: "pending", 3: "pending"}
    assert [event.status for event in project.seen if isinstance(event, StepFinished)] == ["skipped"] * 3


def test_an_interrupted_run_goes_on_where_it_was(interrupted: Work) -> None:
    made, project = interrupted, interrupted.project
    assert made.statuses == {1: "in_progress"}
    assert project.status == ""
    executor = made.executor(ScriptedModel([green()]))
    assert not executor.source.is_new
    assert executor.find_phase(executor.step(1)) == "GREEN"
    with executor.running():
        executor.run_all()
    assert project.log == ["plan: A sale", "test: Ten percent off", "feat: Ten percent off"]
    attempts = [event.phase for event in project.seen if isinstance(event, AttemptStarted)]
    assert attempts == ["red", "green", "green"]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_the_first_attempt_at_a_step_continues_its_files_unless_the_step_is_restarted(
    work: MakeWork, project: Project, *, stop: type[BaseException]
) -> None:
    class Stops(ScriptedModel):
        def reply(self, *args: object, **named: object) -> Turn:
            if not self.queue:
                raise stop
            return super().reply(*args, **named)  # type: ignore[arg-type]

    made = work(ONE)
    half = says(call("Write", file_path="a.md", content="# half\n"))
    for _ in range(2):
        with pytest.raises(stop):
            run_all(made, Stops([half]))
        restarted = made.executor(Stops([]))
        with restarted.running():
            restarted.retry(1)
            with pytest.raises(stop):
                restarted.run_all()
        assert made.saved.execution(1).interrupted is None
    with pytest.raises(stop):
        run_all(made, Stops([half]))
    model = ScriptedModel([says(call("CompleteImplementation", implementation_files=[]))])
    run_all(made, model)
    assert "Your earlier, interrupted work is in the files." in str(model.requests[0].messages)
    assert project.git("show", "HEAD:a.md") == "# half"


def test_a_step_in_progress_can_be_begun_anew_or_left_out(interrupted: Work) -> None:
    made, project = interrupted, interrupted.project
    executor = made.executor()
    with executor.running():
        executor.skip(1, reason="skipped by the user")
    assert project.log == ["plan: A sale"], "no failing test stays behind"
    assert (made.statuses, project.status) == ({1: "skipped"}, "")


def test_a_step_whose_checkpoints_are_gone_is_not_gone_on_with_but_can_be_begun_anew(interrupted: Work) -> None:
    made, project = interrupted, interrupted.project
    for ref in project.git("for-each-ref", "--format=%(refname)", "refs/cdd").split():
        project.git("update-ref", "-d", ref)
    project.write({"mine.txt": "mine\n"})
    with pytest.raises(UsageError, match=r"its snapshot refs/cdd/.* is not in this repository") as refused:
        run_all(made, ScriptedModel([writes("mine.txt", "the model's\n")]))
    assert "--retry 1" in refused.value.hint
    assert (project.folder / "mine.txt").read_text() == "mine\n"

    executor = made.executor()
    with executor.running():
        executor.retry(1)
    with pytest.raises(UsageError, match="uncommitted changes"):
        run_all(made, ScriptedModel([green()]))
    assert made.statuses == {1: "pending"}


@pytest.mark.slow
def test_an_iteration_that_is_given_up_leaves_the_step_as_it_landed(completed: Work) -> None:
    made, project = completed, completed.project
    before, log = made.saved.execution(1), project.log

    def count_as_before() -> None:
        step = made.saved.execution(1)
        assert (step.status, step.commits, step.completed_at) == ("completed", before.commits, before.completed_at)
        assert (step.guidance, step.iterates, step.landed, made.saved.status) == ("", False, None, Status.COMPLETED)
        assert project.log == log

    refused = made.executor(ScriptedModel([says("No.", tokens=100)]))
    with refused.running():
        refused.retry(1, guidance="Shorter.")
        assert made.saved.execution(1).landed == before
        refused.run_all()
    assert refused.given_up == 1
    count_as_before()
    assert made.saved.usage != before.usage
    skipped = made.executor()
    with skipped.running():
        skipped.retry(1, guidance="Longer.")
        skipped.skip(1, reason="skipped by the user")
    assert skipped.given_up is None
    count_as_before()
    project.write({"prices.py": "def total(prices):\n    return sum(prices) + 0\n"})
    unable = made.executor()
    with unable.running():
        unable.retry(1, guidance="Wider.")
        with pytest.raises(UsageError, match="uncommitted changes"):
            unable.run_all()
    count_as_before()


def test_without_a_model_a_completed_step_is_not_sent_back(completed: Work) -> None:
    class Missing(ScriptedModel):
        def check(self) -> None:
            raise ModelError("No model is available.", hint="set the key")

    executor, saved = completed.executor(Missing([])), completed.saved
    for attempt in (executor.retry, executor.guide):
        with pytest.raises(ModelError):
            attempt(1, **({"guidance": "Shorter."} if attempt == executor.retry else {"words": "Shorter."}))
        assert completed.saved == saved


@pytest.mark.slow
def test_a_plan_that_is_edited_in_the_middle_of_a_step_is_committed_after_it(interrupted: Work) -> None:
    made, project = interrupted, interrupted.project
    more = FEATURE + plan((2, "Say so", "1")).partition("## Steps\n")[2]
    made.ticket.plan_path.write_text(more)
    run_all(made, ScriptedModel([green(), writes("a.md", "a")]))
    assert project.log == [
        *("plan: A sale", "test: Ten percent off", "feat: Ten percent off"),
        *("plan: A sale, changed", "docs: Say so"),
    ]


@pytest.mark.slow
def test_an_error_before_anything_was_done_lets_the_step_begin_anew(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    with pytest.raises(ModelError):
        run_all(made, ScriptedModel([ModelError("No key.", hint="set one")]))
    project.write({"prices.py": "def total(prices):\n    return sum(list(prices))\n"})
    with pytest.raises(UsageError, match=r"uncommitted changes(.|\n)*prices\.py"):
        run_all(made, does("a"))
    project.git("commit", "--quiet", "-am", "mine")
    run_all(made, does("a"))
    assert project.log == ["plan: A sale", "mine", "docs: Ten percent off"]
    assert made.saved.execution(1).files_modified == ()


@pytest.mark.slow
def test_a_project_without_tests_is_told_what_was_looked_for_and_can_mend_that(
    work: MakeWork, project: Project
) -> None:
    test = (project.folder / "tests/test_prices.py").read_text()
    project.git("rm", "--quiet", "-r", "tests")
    project.git("commit", "--quiet", "-m", "no tests")
    made = work(ONE)
    with pytest.raises(EnvironmentMissing, match="No tests found") as missing:
        run_all(made, does("a"))
    assert missing.value.exit_code == ExitCode.ENVIRONMENT
    assert not any(isinstance(event, AttemptStarted) for event in project.seen)
    project.write({"tests/test_prices.py": test})
    project.git("add", "-A")
    project.git("commit", "--quiet", "-m", "a test")
    run_all(made, does("a"))
    assert made.statuses == {1: "completed"}


def test_uncommitted_changes_are_refused_before_anything_happens(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    project.write({"mine.txt": "mine\n"})
    with pytest.raises(UsageError, match=r"mine\.txt"):
        run_all(made, does("a"))
    assert project.log == []
    assert not made.ticket.state_path.exists()
    run_all(made, does("a"), allow_dirty=True)
    assert project.log == ["plan: A sale", "docs: Ten percent off"]
    assert project.status == "?? mine.txt"


@pytest.mark.slow
def test_the_state_is_on_disk_after_every_change(failed: Work) -> None:
    made = failed
    executor = made.executor(does("a"))
    with executor.running():
        executor.retry(1)
        assert made.statuses == {1: "pending"}
        executor.run_all()
        assert made.statuses == {1: "completed"}
        assert made.saved.execution(1).attempts[0].verdict == "open"
    assert made.ticket.state_path.with_name("execution-state.json.bak").exists()


@pytest.mark.slow
def test_what_the_model_uses_is_added_up_over_all_runs(failed: Work) -> None:
    made = failed
    assert made.saved.usage.input_tokens == 100
    executor = made.executor(ScriptedModel([says("No.", tokens=20)]))
    with executor.running():
        executor.retry(1)
        executor.run_all()
    assert (made.saved.usage.input_tokens, made.saved.usage.output_tokens) == (120, 120)


HOLDS = """\
import sys
from pathlib import Path

from cdd_agent.storage import exclusive_lock
from cdd_agent.work.records import find_records

with exclusive_lock(Path(sys.argv[1]), purpose="Testing"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_with_the_first_ones_number(work: MakeWork, *, project: Project) -> None:
    executor = work(ONE).executor()
    pipe = subprocess.PIPE
    holds = [sys.executable, "-c", HOLDS, str(find_records(project.folder).folder / "locks/sale.lock")]
    with subprocess.Popen(holds, cwd=ROOT, stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"already in progress: pid {other.pid} on "), executor.running():
            pass
        other.communicate()


@pytest.mark.slow
def test_what_another_process_has_done_meanwhile_is_not_done_again(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    early = made.executor()
    run_all(made, does("a"))
    with early.running():
        early.run_all()
    assert project.log == ["plan: A sale", "docs: Ten percent off"]
    assert made.statuses == {1: "completed"}


def test_a_damaged_state_is_refused_and_left_where_it_is(work: MakeWork) -> None:
    made = work(ONE)
    made.ticket.state_path.write_text('{"schema": 1, "ticket')
    with pytest.raises(DocumentError, match=r"execution-state\.json"):
        made.executor()
    assert made.ticket.state_path.read_text() == '{"schema": 1, "ticket'


def test_a_state_that_is_gone_is_told_with_the_way_back(completed: Work) -> None:
    made = completed
    made.ticket.state_path.unlink()
    (remark,) = made.executor().source.remarks
    assert "execution-state.json is missing, so every step counts as pending" in remark
    assert "mv execution-state.json.bak execution-state.json" in remark


def test_a_step_that_is_not_in_the_plan_is_named(work: MakeWork) -> None:
    with pytest.raises(UsageError, match="no step 7; it has 1"):
        work(ONE).executor().step(7)


def test_what_a_changed_plan_means_for_finished_steps_is_told_once(completed: Work) -> None:
    made, project = completed, completed.project
    made.ticket.plan_path.write_text(ONE + "\nNow in other words.\n")
    executor = made.executor()
    for _ in range(2):
        with executor.running():
            executor.run_all()
    told = [event.text for event in project.seen if isinstance(event, Notice)]
    untouched = "Step 1 did not change discount.py, which the plan lists among its files."
    assert told.count(untouched) == 1
    stale = [text for text in told if not text.startswith("In your work tree") and text != untouched]
    assert stale == [
        "plan.md has changed since the last step",
        "step 1 'Ten percent off' is stale: its text changed after it was completed",
    ]
    assert not (project.folder / "discount.py").exists(), CODE


@pytest.mark.slow
def test_a_stale_step_can_be_done_once_more_on_top_of_its_commits(completed: Work) -> None:
    made, project = completed, completed.project
    with pytest.raises(UsageError, match="is completed, and its text has not changed"):
        made.executor().retry(1)
    made.ticket.plan_path.write_text(ONE + "\nNow in other words.\n")
    executor = made.executor(does("b"))
    with executor.running():
        executor.retry(1)
        executor.run_all()
    assert project.log == ["plan: A sale", "docs: Ten percent off", "plan: A sale, changed", "docs: Ten percent off"]
    assert made.statuses == {1: "completed"}
    assert made.executor().source.remarks == ()


@pytest.mark.slow
def test_a_project_inside_the_work_tree_has_its_own_files_tests_and_tickets(
    work: MakeWork, project: Project, *, tmp_path: Path
) -> None:
    outer = Project.make(
        tmp_path / "outer",
        interpreter=project.interpreter,
        bytecode=project.bytecode,
        files={"sale/pytest.ini": QUICK, "test_outer.py": "def test_outer():\n    assert False\n"},
    )
    inner = outer.folder / "sale"
    made = work(plan((1, "Ten percent off", "none"), kind="feature"))
    made.ticket.folder.parent.rename(inner / "tickets")
    (inner / ".cdd").mkdir()
    (inner / ".cdd" / "config.yaml").write_text("refactor: never\n")
    outer.git("add", "sale/.cdd")
    outer.git("commit", "--quiet", "-m", "settings")
    turns = [
        RecordedTurn(
            number=number,
            content=tuple(replace(each, id=f"toolu_{number}_{each.name}") for each in turn.calls),
            stop_reason="tool_use",
        )
        for number, turn in enumerate([red(), green()], start=1)
    ]
    recording = tmp_path / "recording.yaml"
    recording.write_text(print_turns(turns))
    options = Options(project=inner, replay=recording, ask=approves)
    environment = users_folder(tmp_path)
    executor = Composition(options, emit=outer.seen.append, environment=environment).executor(find(inner, "sale"))
    with executor.running():
        executor.run_all()
    assert executor.state.execution(1).error is None
    assert outer.log == ["settings", "plan: A sale", "test: Ten percent off", "feat: Ten percent off"]
    assert outer.git("show", "--format=", "--name-only", "HEAD~1", "HEAD").split() == [
        "sale/tests/test_discount.py",
        "sale/discount.py",
        "sale/tickets/sale/spec.yaml",
    ]
    assert outer.status == ""


def test_a_retry_of_a_step_that_never_ran_says_so_or_names_the_step_it_waits_for(work: MakeWork) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "1")))
    executor = made.executor(ScriptedModel([]))
    with executor.running():
        executor.retry(2)
        assert "Step 2 has not run yet; this will be its first run." in [
            e.text for e in made.project.seen if isinstance(e, Notice)
        ]
        executor.skip(1, reason="left out")
        with pytest.raises(UsageError, match="depends on step 1, which is skipped") as refused:
            executor.retry(2)
    assert refused.value.hint == "retry that one: cdd exec sale --retry 1"
