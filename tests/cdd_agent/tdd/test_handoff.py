import json
from dataclasses import replace

import pytest

from cdd_agent.events import Committed
from cdd_agent.tdd.handoff import Landing, has_hooks, make_handoff_id
from cdd_agent.work.state import AttemptRecord, StepExecution
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, item

OPEN = AttemptRecord(phase="green", number=2, verdict="open", report=".cdd/reports/sale/r.json")


@pytest.fixture
def step(project: Project) -> StepExecution:
    project.write({"discount.py": "x = 1\n", "mine.txt": "mine\n", ".cdd/reports/sale/r.json": "{}"})
    return project.start().execution(1)


def test_only_the_named_paths_are_committed_and_the_note_is_one_line_of_json(
    project: Project, step: StepExecution
) -> None:
    context = project.context(ScriptedModel([]))
    commit = Landing(item=item(), attempt=OPEN, step=step, context=context).land(("discount.py",))
    assert project.git("show", "--format=", "--name-only", commit) == "discount.py"
    (line,) = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    note = json.loads(line)
    assert note["retryCount"] == 1
    assert note["completedTests"] == ["tests/test_discount.py"]
    assert project.seen == [Committed(phase="green", commit=commit, subject="feat: Ten percent off")]


def test_landing_twice_makes_one_commit_with_one_line(project: Project, step: StepExecution) -> None:
    context = project.context(ScriptedModel([]))
    first = Landing(item=item(), attempt=OPEN, step=step, context=context).land(("discount.py",))
    assert Landing(item=item(), attempt=OPEN, step=step, context=context).land(("discount.py",)) == first
    assert project.log == ["feat: Ten percent off"]
    assert len(project.git("notes", "--ref=tdd-handoffs", "show", first).splitlines()) == 1


def test_a_long_title_is_cut_in_the_subject(project: Project, step: StepExecution) -> None:
    work = replace(item(), title="Ten percent off " * 10)
    Landing(item=work, attempt=OPEN, step=step, context=project.context(ScriptedModel([]))).land(("discount.py",))
    (subject,) = project.log
    assert len(subject) <= 72
    assert subject.endswith("…")


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


def test_hooks_count_only_if_they_can_run(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    assert not has_hooks(project.repository), "git's samples are none"
    hook.write_text("#!/bin/sh\n")
    assert not has_hooks(project.repository)
    hook.chmod(0o755)
    assert has_hooks(project.repository)
    project.git("config", "core.hooksPath", "elsewhere")
    assert not has_hooks(project.repository)
