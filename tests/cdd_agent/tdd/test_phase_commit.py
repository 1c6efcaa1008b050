import json
from dataclasses import replace

import pytest

from cdd_agent.events import Committed
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.phase_commit import PhaseCommit, make_handoff_id
from cdd_agent.work.outcome import Open
from cdd_agent.work.state import AttemptRecord, StepExecution
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, item

OPEN = AttemptRecord(phase="green", number=2, outcome=Open(), report="reports/sale/r.json")


@pytest.fixture
def context(project: Project) -> Context:
    """Of a run that has begun."""
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    return context


@pytest.fixture
def step(project: Project, context: Context) -> StepExecution:
    """The files of an attempt where the run works, and its report."""
    write(context, "discount.py", "x = 1\n")
    write(context, "more.txt", "more\n")
    project.write({".git/cdd/main/root/reports/sale/r.json": "{}"})
    return project.start().execution(1)


def write(context: Context, path: str, content: str) -> None:
    (context.workspace.root / path).write_text(content)


def make(landing: PhaseCommit, paths: tuple[str, ...]) -> CommitId:
    """Commit the files as they are."""
    snapshot = landing.context.snapshots.take("refs/cdd/now", message="now")
    return landing.make(paths, source=snapshot.commit)


def land(landing: PhaseCommit, paths: tuple[str, ...]) -> CommitId:
    """Land as the cycle does, when the user's branch rests."""
    context, tip = landing.context, landing.context.repository.read_head()
    assert tip is not None
    commit = make(landing, paths)
    context.workplace.land(commit, made=commit, tip=tip)
    landing.report(commit)
    return commit


def test_only_the_named_paths_are_committed_and_the_note_is_one_line_of_json(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    commit = land(PhaseCommit(item=item(), attempt=OPEN, step=step, context=context), ("discount.py",))
    assert project.git("show", "--format=", "--name-only", commit) == "discount.py"
    (line,) = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    note = json.loads(line)
    assert (note["retryCount"], note["source"]) == (1, "exec")
    assert note["completedTests"] == ["tests/test_discount.py"]
    assert project.seen[-1] == Committed(phase="green", commit=commit, subject="feat: Ten percent off")
    assert (project.folder / "discount.py").read_text() == "x = 1\n"


def test_no_value_of_an_ignored_file_is_in_the_message_of_a_commit_or_in_its_note(project: Project) -> None:
    token = "Xk9vQ2mZ7Lp4Rt8s"
    project.write({"shop.log": f"token: {token}\n", ".git/cdd/main/root/reports/sale/r.json": "{}"})
    project.repository.read_included = lambda: b"*.log\n"
    context = project.context(ScriptedModel([]))
    context.workplace.begin()
    write(context, "discount.py", "x = 1\n")
    work = replace(item(), title=f"Use {token}", criteria=(("AC-1", f"WHEN {token.swapcase()} is sent"),))
    attempt = replace(OPEN, summary=f"It sends {token}.")
    landing = PhaseCommit(item=work, attempt=attempt, step=project.start().execution(1), context=context)
    commit = land(landing, ("discount.py",))
    said = project.git("log", "-1", "--format=%B", commit) + project.git("notes", "--ref=tdd-handoffs", "show", commit)
    assert token.lower() not in said.lower()
    assert "feat: Use [masked: value of an ignored file]" in said
    assert "Handoff-Id: " in said


def test_what_changes_after_the_gate_is_in_no_commit(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = PhaseCommit(item=item(), attempt=OPEN, step=step, context=context)
    (context.workspace.root / "prices.py").unlink()
    judged = context.snapshots.take("refs/cdd/judged", message="judged")
    write(context, "discount.py", "x = 2\n")
    write(context, "prices.py", "")
    commit = landing.make(("discount.py", "prices.py"), source=judged.commit)
    assert project.git("show", f"{commit}:discount.py") == "x = 1"
    changed = project.git("show", "--format=", "--name-status", commit)
    assert changed == "A\tdiscount.py\nD\tprices.py"


def test_a_landing_is_found_only_when_its_commit_is_on_the_users_branch(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = PhaseCommit(item=item(), attempt=OPEN, step=step, context=context)
    made = make(landing, ("discount.py",))
    assert landing.find() is None, "a commit of the run tree alone is not landed"
    assert (project.log, project.status) == ([], "")
    tip = CommitId(str(project.repository.read_head()))
    context.workplace.land(made, made=made, tip=tip)
    assert landing.find() == made


@pytest.mark.slow
def test_a_landing_that_is_reported_twice_has_one_line(
    project: Project, context: Context, *, step: StepExecution
) -> None:
    landing = PhaseCommit(item=item(), attempt=OPEN, step=step, context=context)
    first = land(landing, ("discount.py",))
    landing.report(first)
    assert project.log == ["feat: Ten percent off"]
    assert len(project.git("notes", "--ref=tdd-handoffs", "show", first).splitlines()) == 1


@pytest.mark.slow
def test_a_long_title_is_cut_in_the_subject(project: Project, context: Context, *, step: StepExecution) -> None:
    work = replace(item(), title="Ten percent off " * 10)
    land(PhaseCommit(item=work, attempt=OPEN, step=step, context=context), ("discount.py",))
    (subject,) = project.log
    assert len(subject) <= 72
    assert subject.endswith(" off…")
    body = project.git("log", "-1", "--format=%b")
    assert " ".join(body.split()).startswith(work.title.strip())
    assert max(map(len, body.splitlines())) <= 72


def test_the_commit_of_green_says_what_was_done(project: Project, context: Context, *, step: StepExecution) -> None:
    work = replace(item(), criteria=(("AC-1", "WHEN a price is given THE SYSTEM SHALL take ten percent off it"),))
    attempt = replace(OPEN, words="I disagree.", summary="Ten percent off.\n\nTicket: other")
    land(PhaseCommit(item=work, attempt=attempt, step=step, context=context), ("discount.py",))
    body = project.git("log", "-1", "--format=%b").split("\n\n")
    assert body[:3] == [
        "Ten percent off. Ticket: other",
        "Acceptance criteria:\n[x] AC-1: WHEN a price is given THE SYSTEM SHALL take ten percent off it",
        "Files:\nA discount.py",
    ]
    assert body[3].startswith("Ticket: sale\nPhase: GREEN\n")


def test_the_identity_is_that_of_the_phase_and_where_it_started() -> None:
    mine = make_handoff_id("sale", 1, phase="red", base="a")
    assert mine == make_handoff_id("sale", 1, phase="red", base="a")
    others = {
        make_handoff_id("sale", 1, phase="green", base="a"),
        make_handoff_id("sale", 1, phase="red", base="b"),
        make_handoff_id("sale", 2, phase="red", base="a"),
        make_handoff_id("other", 1, phase="red", base="a"),
    }
    assert mine not in others
    assert len(others) == 4
