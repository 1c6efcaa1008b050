"""Tickets that must be done first, and the status that a spec gets on its way."""

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.runs.plan_steps import require_prerequisites
from cdd_agent.tickets import spec
from cdd_agent.tickets import ticket as tickets
from tests.cdd_agent.runs.plan_steps.conftest import CHAIN, ONE, SPEC, MakeWork, Work
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, writes


def depend(project: Project, slug: str, *others: str, status: str = "refined") -> None:
    """Add a ticket that depends on ``others``, or change the one there is."""
    if not (project.folder / "tickets" / slug).exists():
        tickets.create(project.folder, slug, title=slug, type="feature")
    text = SPEC.replace("refined", status) + f"depends_on: [{', '.join(others)}]\n"
    tickets.find(project.folder, slug).spec_path.write_text(text)


def refused(made: Work) -> UsageError:
    with pytest.raises(UsageError) as caught:
        require_prerequisites(made.ticket, project=made.project.folder)
    return caught.value


def test_what_is_not_done_is_named_with_its_progress_and_the_first_to_run(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    depend(project, "sale", "till", "tax")
    depend(project, "till", "tax")
    depend(project, "tax")
    error = refused(made)
    assert error.happened == "The ticket sale depends on till (not started), tax (not started)."
    assert error.hint == "finish it first: cdd exec tax; or run it anyway: cdd exec sale --anyway"
    depend(project, "tax", status="done")
    assert "cdd exec till;" in refused(made).hint
    depend(project, "till", "tax", status="done")
    require_prerequisites(made.ticket, project=project.folder)


def test_the_state_counts_more_than_the_word_of_the_spec(chained: Work) -> None:
    project = chained.project
    depend(project, "other", "sale")
    other = Work(project=project, ticket=tickets.find(project.folder, "other"))
    total = len(chained.saved.step_executions)
    done = sum(status == "completed" for status in chained.statuses.values())
    if done == total:
        require_prerequisites(other.ticket, project=project.folder)
    else:
        assert f"({done} of {total} steps done)" in refused(other).happened


def test_a_ticket_that_does_not_exist_is_named_with_the_one_that_wants_it(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    depend(project, "sale", "tax")
    depend(project, "tax", "currency")
    error = refused(made)
    assert "The ticket tax depends on 'currency'. There is no ticket 'currency'" in error.happened
    assert "correct depends_on in the spec of tax" in error.hint


def test_a_circle_is_shown(work: MakeWork, project: Project) -> None:
    made = work(ONE)
    depend(project, "sale", "tax")
    depend(project, "tax", "till")
    depend(project, "till", "sale")
    error = refused(made)
    assert error.happened == "These tickets depend on each other: sale -> tax -> till -> sale."
    assert "depends_on" in error.hint


def test_the_spec_is_executing_with_the_plan_s_commit_and_done_with_the_last_one(
    work: MakeWork, project: Project
) -> None:
    made = work(CHAIN)
    name = made.ticket.spec_path.relative_to(project.folder).as_posix()
    made.run_all(ScriptedModel([writes("a.md", "# a\n"), writes("b.md", "# b\n"), writes("c.md", "# c\n")]))
    assert project.status == ""
    statuses = [
        spec.parse(project.git("show", f"{commit}:{name}"), path=name).status
        for commit in project.git("log", "--reverse", "--format=%H").split()
        if name in project.git("ls-tree", "-r", "--name-only", commit).split()
    ]
    assert statuses == ["executing", "executing", "executing", "done"]
    assert made.saved.execution(3).files_modified == ()
    assert made.executor().source.changed == (), "the status is no change of the spec"


def test_the_status_never_goes_back_and_other_lines_stay() -> None:
    text = "# mine\nstatus: planned   # by hand\ntitle: x\n"
    assert spec.advance(text, "executing", path="spec.yaml") == text.replace("planned", "executing")
    assert spec.advance(text, "planned", path="spec.yaml") is None
    assert spec.advance(text, "refined", path="spec.yaml") is None
    assert spec.advance("- no spec\n", "done", path="spec.yaml") is None
