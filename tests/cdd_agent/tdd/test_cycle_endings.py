"""How a cycle ends besides by landing every phase."""

import json
from dataclasses import replace

import pytest

from cdd_agent.events import GateJudged, Notice, RolledBack
from cdd_agent.model.conversation import Turn
from cdd_agent.tdd.context import Context, Progress, WorkItem
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.testrun.suite import PYTEST
from cdd_agent.work.handoff import decode_line
from cdd_agent.work.state import RunState
from cdd_agent.work.wording import explain, format_reason
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, content_as_it_is, green, item, red, writes
from tests.fakes.suite import FakeSuite, TrustedSandbox

BLOCKED = says(call("ReportBlocked", why="cannot_be_done", reason="90 is no tenth off 100\nsay so"))
WRONG = writes("discount.py", "def discount(price):\n    return price\n")


def rewrites(content: str) -> Turn:
    """A turn that writes the test file once more."""
    return says(
        call("Read", file_path=TEST_FILE),
        call("Write", "toolu_W", file_path=TEST_FILE, content=content),
        call("CompleteImplementation", implementation_files=[]),
    )


def context(project: Project, *turns: object, **policy: object) -> Context:
    made = project.context(ScriptedModel(turns))  # type: ignore[arg-type]
    return replace(made, policy=replace(made.policy, **policy))  # type: ignore[arg-type]


def run(project: Project, work: WorkItem, *, context: Context, state: RunState | None = None) -> Ending:
    return Cycle(work, state or project.start(), context=context, save=lambda _: None).run()


def notes(project: Project, commit: str) -> list[dict[str, object]]:
    lines = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    assert all(decode_line(line) for line in lines), "what is written can be read"
    return [json.loads(line) for line in lines]


def test_an_agent_that_gives_up_is_not_asked_again_and_its_reason_is_told(project: Project) -> None:
    made = context(project, red(), BLOCKED)
    ending = run(project, item(), context=made)
    assert (ending.how, ending.why) == (
        "blocked",
        "the agent gave up in GREEN: cannot_be_done: 90 is no tenth off 100 say so",
    )
    assert project.log == []
    assert project.status == ""


def read_stated(project: Project, commit: str) -> list[str]:
    """Return the results of the checks in the note on a commit."""
    (line,) = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    handoff = decode_line(line)
    assert handoff is not None
    assert handoff.gate is not None
    return [*map(explain, handoff.gate.evidence)]


@pytest.mark.slow
def test_a_refactoring_that_changes_a_result_is_refused_until_it_changes_none(real_project: Project) -> None:
    def tidies(body: str) -> Turn:
        turn = writes("prices.py", f"def total(prices):\n    return {body}\n")
        return replace(turn, content=(call("Read", "toolu_R", file_path="prices.py"), *turn.content))

    changed, same = tidies("sum(price for price in prices if price > 0)"), tidies("sum(list(prices))")
    made = context(real_project, changed, same, evidence_timeout_s=60)
    made = replace(made, suite=made.suite.with_sandbox(TrustedSandbox()))
    ending = run(real_project, item("refactor", tests=()), context=made)
    assert ending.how == "done"
    refused, accepted = (event for event in real_project.seen if isinstance(event, GateJudged))
    assert tuple(map(format_reason, refused.reasons)) == (
        "behavior_changed: total([-1]) returns -1 before the change and returns 0 after it. "
        "REFACTOR keeps the behavior: restore it in prices.py:1.",
    )
    assert accepted.open
    notices = [event.text for event in real_project.seen if isinstance(event, Notice)]
    assert any(text.endswith("calls of total have the same results.") for text in notices), notices
    stated = read_stated(real_project, ending.state.execution(1).commits["refactor"])
    assert any(text.endswith("calls of total have the same results.") for text in stated), stated


def test_where_what_landed_stays_only_the_phase_that_failed_is_taken_back(project: Project) -> None:
    made = context(project, red(), WRONG, BLOCKED, keeps_landed=True)
    ending = run(project, item(), context=made)
    assert ending.how == "blocked"
    assert project.log == ["test: Ten percent off"]
    assert project.status == ""
    first, second = notes(project, "HEAD")
    assert (first["phase"], first["nextPhase"], first["error"]) == ("RED", "GREEN", None)
    assert (second["phase"], second["nextPhase"], second["retryCount"]) == ("GREEN", "GREEN", 1)
    assert second["errorDetails"] == {"type": "cannot_be_done", "reasons": [second["error"]]}
    assert "90 is no tenth off 100 say so" in str(second["error"])


def test_the_same_failure_twice_is_no_progress(project: Project) -> None:
    ending = run(project, item(), context=context(project, red(), WRONG, WRONG, max_identical_failures=2))
    assert ending.how == "failed"
    assert ending.why is not None
    assert ending.why.startswith("GREEN was refused 2 times (the last 2 with the same failures); the last reasons: ")
    assert [event.why for event in project.seen if isinstance(event, RolledBack)][-1] == "there is no progress"


@pytest.mark.slow
def test_an_attempt_after_the_same_failure_begins_with_the_files_of_before(project: Project) -> None:
    model = ScriptedModel([red(), WRONG, content_as_it_is(), green(), content_as_it_is()])
    made = project.context(model)
    ending = run(project, item(), context=made)
    assert ending.how == "done"
    told = str(model.requests[3].messages)
    assert "were rolled back: the files are as they were" in told
    assert "The files still contain the work of that attempt" in str(model.requests[2].messages)


@pytest.mark.slow
def test_each_phase_makes_a_commit_where_that_is_wanted(project: Project) -> None:
    ending = run(
        project, item(), context=context(project, red(), green(), content_as_it_is(), allows_empty_commits=True)
    )
    assert ending.how == "done"
    assert project.log == ["test: Ten percent off", "feat: Ten percent off", "refactor: no changes needed"]
    assert project.git("log", "-1", "--format=%b").startswith("Ten percent off\n")
    assert notes(project, "HEAD")[0]["phase"] == "REFACTOR"


VACUOUS = "from discount import discount\n\n\ndef test_it():\n    assert discount(1) or True\n"
GREEN_AT_ONCE = TEST.replace("def test_discount", "def test_none").replace("discount(100) == 90", "discount(10) == 0")


def covered(project: Project, test: str) -> Ending:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    progress = Progress(completed=("one",), pending=("two", "Ten percent off"), following="PLAN")
    made = context(project, writes(TEST_FILE, test), accepts_covered=True, evidence_timeout_s=60)
    return run(project, replace(item(), progress=progress), context=made)


def test_a_test_that_passes_at_once_stays_if_altered_code_fails_it(project: Project) -> None:
    ending = covered(project, GREEN_AT_ONCE)
    assert ending.how == "covered"
    assert project.log == ["code", "test: Ten percent off"]
    (note,) = notes(project, "HEAD")
    assert (note["phase"], note["nextPhase"], note["testResult"], note["error"]) == ("RED", "PLAN", "PASS", None)
    assert (note["completedTests"], note["pendingTests"]) == (["one", "Ten percent off"], ["two"])
    judged = [event for event in project.seen if isinstance(event, GateJudged)]
    assert [(event.open, event.finding) for event in judged] == [(False, "ALREADY_GREEN")]
    assert ending.state.execution(1).attempts[-1].verdict == "open"


def test_a_test_that_passes_whatever_the_code_does_is_dropped(project: Project) -> None:
    ending = covered(project, VACUOUS)
    assert ending.how == "dropped"
    assert "even when the code is altered (discount.py:2" in str(ending.why)
    assert project.log == ["code"]
    assert project.status == ""
    note = notes(project, "HEAD")[0]
    assert (note["testResult"], note["completedTests"], note["pendingTests"]) == ("PASS", ["one"], ["two"])


@soak_after(
    0,
    ("test", "how", "why"),
    [
        (GREEN_AT_ONCE, "covered", "Not verified: cdd cannot alter single results with this framework"),
        ("def test_discount():\n    assert True\n", "dropped", "discount.py: has no content"),
    ],
)
def test_in_other_languages_a_test_that_passes_at_once_must_need_the_code(
    project: Project, *, test: str, how: str, why: str
) -> None:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    made = context(project, writes(TEST_FILE, test), accepts_covered=True, evidence_timeout_s=60)
    assert isinstance(made.suite, FakeSuite)
    suite = replace(made.suite, conventions=replace(PYTEST, is_python=False))
    ending = run(project, item(), context=replace(made, suite=suite))
    assert ending.how == how
    assert why in str(ending.why)


@soak_after(0, "stays", [True, False])
def test_a_kill_while_a_test_that_passes_at_once_is_taken_changes_nothing(project: Project, *, stays: bool) -> None:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    test = GREEN_AT_ONCE if stays else VACUOUS
    made = context(project, writes(TEST_FILE, test), accepts_covered=True, evidence_timeout_s=60)
    kept: list[RunState] = []

    def save(state: RunState) -> None:
        kept.append(state)
        attempts = state.execution(1).attempts
        if attempts and attempts[-1].verdict == "open" and not state.execution(1).commits:
            raise SystemExit(-9)

    with pytest.raises(SystemExit):
        Cycle(item(), project.start(), context=made, save=save).run()
    assert run(project, item(), context=made, state=kept[-1]).how == ("covered" if stays else "dropped")
    assert project.log == (["code", "test: Ten percent off"] if stays else ["code"])
    assert project.status == ""
    (note,) = notes(project, "HEAD")
    assert (note["error"], note["gate"]["open"]) == (None, False)  # type: ignore[index]


@pytest.mark.slow
def test_a_report_that_is_lost_proves_nothing_of_a_test_that_passes_at_once(project: Project) -> None:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    made = context(project, writes(TEST_FILE, GREEN_AT_ONCE), accepts_covered=True)
    kept: list[RunState] = []

    def save(state: RunState) -> None:
        kept.append(state)
        if state.execution(1).attempts:
            raise SystemExit(-9)

    with pytest.raises(SystemExit):
        Cycle(item(), project.start(), context=made, save=save).run()
    (made.records.folder / str(kept[-1].execution(1).attempts[-1].report)).unlink()
    assert run(project, item(), context=made, state=kept[-1]).how == "dropped"
    assert (project.log, project.status) == (["code"], "")


def test_more_than_one_new_test_is_refused_where_one_is_wanted_and_the_model_is_told(project: Project) -> None:
    two = TEST + "\n\ndef test_none():\n    assert discount(0) == 0\n"
    model = ScriptedModel([writes(TEST_FILE, two), rewrites(TEST), green()])
    made = project.context(model)
    made = replace(made, policy=replace(made.policy, single_test=True))
    ending = run(project, item(refactor=False), context=made)
    assert ending.how == "done"
    first, second, *_ = ending.state.execution(1).attempts
    assert (first.verdict, first.finding, second.verdict) == ("closed", "INVALID", "open")
    (reason,) = first.reasons
    assert format_reason(reason).startswith("several_tests: RED may add one test but adds 2")
    assert f"{TEST_FILE}::test_discount, {TEST_FILE}::test_none" in str(model.requests[1].messages)


@pytest.mark.slow
def test_a_test_that_would_pass_with_whatever_has_the_missing_name_is_refused(project: Project) -> None:
    vacuous = TEST.replace("assert discount(100) == 90", "discount(100)")
    model = ScriptedModel([writes(TEST_FILE, vacuous), rewrites(TEST), green(), content_as_it_is()])
    made = project.context(model)
    ending = run(project, item(), context=replace(made, policy=replace(made.policy, evidence_timeout_s=60)))
    assert ending.how == "done"
    first, second, *_ = ending.state.execution(1).attempts
    assert (first.verdict, first.finding) == ("closed", "INVALID")
    assert (second.verdict, second.finding) == ("open", "VALID_MISSING_SYMBOL")
    (reason,) = first.reasons
    assert format_reason(reason).startswith(
        f"vacuous_test: {TEST_FILE}::test_discount passes with a stub of discount.py"
    )
    assert "that the code must produce" in str(model.requests[1].messages)
    assert project.status == ""
    (stated,) = read_stated(project, ending.state.execution(1).commits["red"])
    assert stated.startswith("Checked with a stub of discount.py: a new test fails there too (")


@pytest.mark.slow
def test_a_missing_name_of_which_there_is_no_stub_in_time_is_told_and_red_stays_open(project: Project) -> None:
    vacuous = TEST.replace("assert discount(100) == 90", "pass")
    made = context(project, writes(TEST_FILE, vacuous), BLOCKED, evidence_timeout_s=0.5)
    assert run(project, item(), context=made).how == "blocked"
    judged = [event for event in project.seen if isinstance(event, GateJudged)]
    assert [(event.open, event.finding) for event in judged][:1] == [(True, "VALID_MISSING_SYMBOL")]
    told = [event.text for event in project.seen if isinstance(event, Notice)]
    assert any(text.startswith("Not verified: the time for checks ended before new tests with stubs") for text in told)


@pytest.mark.slow
def test_a_hook_that_refuses_a_test_that_passes_at_once_has_the_model_write_it_anew(project: Project) -> None:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ngrep -q licence tests/test_discount.py || { echo 'no licence line'; exit 1; }\n")
    hook.chmod(0o755)
    right = rewrites(f"# licence\n{GREEN_AT_ONCE}")
    made = context(project, writes(TEST_FILE, GREEN_AT_ONCE), right, accepts_covered=True, evidence_timeout_s=60)
    ending = run(project, item(), context=made)
    assert ending.how == "covered"
    assert project.log == ["code", "test: Ten percent off"]
    first, second = ending.state.execution(1).attempts
    assert (first.verdict, first.finding, second.verdict) == ("closed", None, "open")
    assert first.reasons[0].code == "commit_refused"
    assert "no licence line" in explain(first.reasons[0])


@pytest.mark.slow
def test_a_test_that_green_breaks_in_the_file_of_its_own_is_broken(project: Project) -> None:
    first = "from discount import discount, none\n\n\ndef test_none():\n    assert none(100) == 100\n"
    project.write({TEST_FILE: first.replace("discount, ", ""), "discount.py": "def none(price):\n    return price\n"})
    project.git("add", ".")
    project.git("commit", "-qm", "old")
    both = first + "\n\ndef test_discount():\n    assert discount(100) == 90\n"
    breaks = f"{CODE}\n\ndef none(price):\n    return 0\n"
    reads = call("Read", "toolu_R", file_path=TEST_FILE), call("Read", "toolu_S", file_path="discount.py")
    red_turn, wrong, right = (
        says(
            *reads,
            call("Write", file_path=path, content=content),
            call("CompleteImplementation", implementation_files=[]),
        )
        for path, content in (
            (TEST_FILE, both),
            ("discount.py", breaks),
            ("discount.py", breaks.replace("return 0", "return price")),
        )
    )
    model = ScriptedModel([red_turn, wrong, right, content_as_it_is()])
    made = project.context(model)
    ending = run(project, item(), context=replace(made, policy=replace(made.policy, is_strict=True)))
    assert ending.how == "done"
    assert f"broke_others: {TEST_FILE}::test_none passed before" in str(model.requests[2].messages)
    assert "were rolled back: the files are as they were" in str(model.requests[2].messages)


@pytest.mark.slow
def test_what_a_broken_test_costs_is_taken_back_at_once_where_the_policy_is_strict(project: Project) -> None:
    project.write(
        {"tests/test_old.py": "from prices import total\n\n\ndef test_total():\n    assert total([1]) == 1\n"}
    )
    project.git("add", ".")
    project.git("commit", "-qm", "old")
    breaks = says(
        call("Write", file_path="discount.py", content=CODE),
        call("Bash", "toolu_B", command="echo 'def total(prices): return 2' > prices.py"),
        call("CompleteImplementation", "toolu_C", implementation_files=[]),
    )
    model = ScriptedModel([red(), breaks, green(), content_as_it_is()])
    made = project.context(model)
    ending = run(project, item(), context=replace(made, policy=replace(made.policy, is_strict=True)))
    assert ending.how == "done"
    assert "broke_others" in str(model.requests[2].messages)
    assert "were rolled back: the files are as they were" in str(model.requests[2].messages)
    assert not any(isinstance(event, RolledBack) for event in project.seen)
