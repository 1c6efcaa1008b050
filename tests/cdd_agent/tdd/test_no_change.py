"""A step that needs no change says so and completes, if the gate agrees with the files as they are."""

import json
from dataclasses import replace

import msgspec
import pytest

from cdd_agent.audit.auditor import Auditor
from cdd_agent.model.conversation import Turn
from cdd_agent.tdd.context import Kind, WorkItem
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.work.finding import Finding
from cdd_agent.work.wording import explain, format_reason
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, item, red, writes

WHY = "The code does this already."
NEEDS_NOTHING = says(call("CompleteImplementation", implementation_files=[], summary=WHY))
NO_REASON = says(call("CompleteImplementation", implementation_files=[]))
ONE = f"{TEST_FILE}::test_discount"


def run(project: Project, work: WorkItem, *turns: Turn, blocks: bool = False, **policy: object) -> Ending:
    model = ScriptedModel(turns)
    model.answers_examiner = True
    made = project.context(model, edit_format="blocks" if blocks else "tools")
    made = replace(made, policy=replace(made.policy, **policy))  # type: ignore[arg-type]
    return Cycle(work, project.start(), context=made, save=lambda _: None).run()


def reasons(ending: Ending) -> list[str]:
    return [format_reason(reason) for each in ending.state.execution(1).attempts for reason in each.reasons]


def commit(project: Project, files: dict[str, str]) -> None:
    project.write(files)
    project.git("add", "-A")
    project.git("commit", "-qm", "before")


@soak_after(1, "kind", ["docs", "chore", "refactor"])
def test_a_step_without_tests_completes_and_the_reviewer_is_told_the_reason(project: Project, kind: Kind) -> None:
    ending = run(project, item(kind, tests=()), NEEDS_NOTHING)
    assert ending.how == "done"
    assert project.log == [f"{kind}: no changes needed"]
    assert WHY in project.git("log", "-1", "--format=%B")
    (attempt,) = ending.state.execution(1).attempts
    (line,) = attempt.evidence
    assert explain(line).startswith(f"No change was needed, says the model: {WHY}")
    assert line.is_unverified
    note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", "HEAD"))
    assert note["gate"]["open"] is True
    assert msgspec.convert(note["gate"]["evidence"], type=tuple[Finding, ...]) == (line,)
    assert project.status == ""


@soak_after(0, "kind", ["chore", "refactor"])
def test_the_tests_that_a_step_names_must_pass(project: Project, kind: Kind) -> None:
    commit(project, {TEST_FILE: TEST, "discount.py": CODE.replace("10", "20")})
    failed = run(project, item(kind, tests=(ONE,)), *[NEEDS_NOTHING] * 3)
    assert failed.how == "failed"
    assert reasons(failed)[0].startswith("no_change: no file was changed, but the files as they are do not suffice")
    commit(project, {"discount.py": CODE})
    done = run(project, item(kind, tests=(ONE,)), NEEDS_NOTHING)
    assert done.how == "done"
    assert not done.state.execution(1).attempts[0].evidence[0].is_unverified


@pytest.mark.slow
def test_green_cannot_say_that_nothing_is_needed_while_its_tests_fail(project: Project) -> None:
    ending = run(project, item(), red(), *[NEEDS_NOTHING] * 3)
    assert ending.how == "failed"
    assert "do not suffice" in reasons(ending)[-1]


def test_without_a_reason_and_in_words_alone_nothing_completes(project: Project) -> None:
    ending = run(project, item("docs", tests=()), NO_REASON, says("Done."), says("Done."), NO_REASON)
    assert ending.how == "failed"
    assert reasons(ending) == ["no_change: no file was changed: an answer alone is not enough, write the files"] * 3


@pytest.mark.slow
def test_without_tools_a_block_says_so_and_words_do_not(project: Project) -> None:
    words = says("It is there.")
    failed = run(project, item("docs", tests=()), *[words] * 6, blocks=True)
    assert failed.how == "failed"
    block = says(f"I looked.\n\n```no_change_needed\n{WHY}\n```\n")
    ending = run(project, item("docs", tests=()), words, block, blocks=True)
    assert ending.how == "done"
    assert WHY in project.git("log", "-1", "--format=%B")


def test_red_completes_the_step_if_its_named_tests_exist_pass_and_notice_altered_code(project: Project) -> None:
    commit(project, {TEST_FILE: TEST, "discount.py": CODE})
    ending = run(project, item(tests=(ONE,)), NEEDS_NOTHING, evidence_timeout_s=60)
    assert ending.how == "covered"
    assert project.log == ["before", "test: no changes needed"]
    (attempt,) = ending.state.execution(1).attempts
    assert tuple(map(explain, attempt.evidence)) == (
        f"No change was needed, says the model: {WHY} ({ONE} pass; they fail when the code is altered)",
    )
    note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", "HEAD"))
    assert (note["phase"], note["testResult"], note["nextPhase"]) == ("RED", "PASS", "COMPLETE")
    assert list(ending.state.execution(1).commits) == ["red"]


TABLE = (
    "import pytest\n\nfrom discount import discount\n\n\n"
    '@pytest.mark.parametrize("price", [100])\ndef test_discount(price):\n    assert discount(price) == price - 10\n'
)
VACUOUS = "from discount import discount\n\n\ndef test_discount():\n    assert discount\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "tests", "why"),
    [
        ({}, (ONE,), "do not all exist and pass"),
        ({TEST_FILE: TEST, "discount.py": CODE}, (TEST_FILE,), "do not all exist and pass"),
        ({TEST_FILE: TEST, "discount.py": CODE}, (ONE, f"{TEST_FILE}::test_other"), "do not all exist and pass"),
        ({TEST_FILE: TABLE, "discount.py": CODE}, (ONE,), "a table of cases may lack one"),
        ({TEST_FILE: VACUOUS, "discount.py": CODE}, (ONE,), "pass even when the code is altered"),
        ({TEST_FILE: TEST, "discount.py": CODE}, (), "do not all exist and pass"),
    ],
)
def test_red_cannot_skip_its_test_by_saying_so(
    project: Project, files: dict[str, str], *, tests: tuple[str, ...], why: str
) -> None:
    if files:
        commit(project, files)
    ending = run(project, item(tests=tests), *[NEEDS_NOTHING] * 3, evidence_timeout_s=60)
    assert ending.how == "failed"
    assert why in reasons(ending)[0]
    assert reasons(ending)[0].startswith("no_change: ")


@pytest.mark.slow
def test_work_after_a_refused_claim_goes_on_as_usual(project: Project) -> None:
    ending = run(project, item(refactor=False), NEEDS_NOTHING, red(), writes("discount.py", CODE))
    assert ending.how == "done"
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]


@soak_after(0, "kind", ["docs", "chore", "refactor", "feature"])
def test_the_audit_of_a_step_without_a_change_finds_nothing_false(project: Project, kind: Kind) -> None:
    tests: tuple[str, ...] = ()
    if kind == "feature":
        commit(project, {TEST_FILE: TEST, "discount.py": CODE})
        tests = (ONE,)
    assert run(project, item(kind, tests=tests), NEEDS_NOTHING, evidence_timeout_s=60).how in ("done", "covered")
    auditor = Auditor(
        repository=project.repository, suite=lambda: project.suite, project=project.folder, emit=project.seen.append
    )
    false = [claim for each in auditor.run() for claim in each.claims if claim.holds is False]
    assert false == []
