"""Where handoffs belong that have no trailers of their own."""

import pytest

from cdd_agent.audit.handoffs import Placement, place_handoffs, read_span
from cdd_agent.git.notes import read_notes, read_tip
from tests.cdd_agent.audit.made_history import NOTES, History, carry_out
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, content_as_it_is, green, item, red, runs, writes


def placements(project: Project) -> list[tuple[str | None, str]]:
    top = read_tip(project.repository)
    notes = {note.commit: note for note in read_notes(project.repository, str(top))}
    return [(each.phase, each.placement.name) for each in place_handoffs(read_span(project.repository, "HEAD"), notes)]


@pytest.mark.slow
def test_a_commit_without_trailers_is_adopted_and_its_note_is_known_by_its_id(project: Project) -> None:
    assert carry_out(project, item("docs", tests=()), writes("README.md", "# Prices\n")) == "done"
    history = History(project=project)
    (line,) = history.lines("docs")
    # Earlier versions of cdd kept a commit that the agent had made.
    project.git("commit", "-q", "--amend", "-m", "docs: my words")
    history.write("docs", {**line, "commit": project.git("rev-parse", "HEAD")})
    assert placements(project) == [("green", Placement.ADOPTED.name)]
    (audited,) = history.audit()
    assert {claim.holds for claim in audited.claims} == {True}
    history.forge("docs", lambda fields: fields.update(cycleNumber=2, seq=7))
    assert placements(project) == [("green", Placement.MISPLACED.name)]
    (audited,) = history.audit()
    assert [(claim.name, claim.holds) for claim in audited.claims] == [("note", True), ("commit", False)]


def test_a_commit_that_the_agent_made_leaves_no_trace(project: Project) -> None:
    commits = runs("echo '# Prices' > README.md && git add -A && git commit -qm 'docs: my words'")
    assert carry_out(project, item("docs", tests=()), commits) == "done"
    assert placements(project) == [("green", "OWN")]
    assert History(project=project).wrong() == []


@soak_after(0, "carries", [False, True])
def test_all_claims_of_phases_hold_that_landed_on_a_commit_of_the_users(project: Project, *, carries: bool) -> None:
    project.write({"notes.txt": "mine\n"})
    meanwhile = f"cd {project.folder} && git commit -q --allow-empty -m 'chore: mine'"
    implements = "printf 'def discount(price):\\n    return price - 10\\n' > discount.py"
    context = project.context(ScriptedModel([red(), runs(f"{implements} && {meanwhile}")]))
    context.workplace.carries = carries
    _, why = project.run(item(refactor=False), context=context)
    assert why is None
    assert project.log == ["test: Ten percent off", "chore: mine", "feat: Ten percent off"]
    assert placements(project) == [("red", "OWN"), ("green", "OWN")]
    assert History(project=project).wrong() == []


@pytest.mark.slow
def test_a_phase_without_a_commit_of_its_own_lies_on_the_one_before_and_nowhere_else(project: Project) -> None:
    assert carry_out(project, item(), red(), green(), content_as_it_is()) == "done"
    assert placements(project) == [("red", "OWN"), ("green", "OWN"), ("refactor", "WITHOUT_COMMIT")]
    history = History(project=project)
    _, later = history.lines("feat")
    project.git("commit", "-q", "--allow-empty", "-m", "chore: other")
    history.write("chore", {**later, "commit": project.git("rev-parse", "HEAD")})
    assert placements(project)[-1] == ("refactor", Placement.MISPLACED.name)


@pytest.mark.slow
def test_a_commit_whose_note_is_gone_is_still_the_red_of_its_green(project: Project) -> None:
    assert carry_out(project, item(refactor=False), red(), green()) == "done"
    history = History(project=project)
    project.git("notes", f"--ref={NOTES}", "remove", history.commit("test"))
    assert placements(project) == [("red", "MISSING"), ("green", "OWN")]
    assert history.wrong() == [("RED", "test", "note")]
