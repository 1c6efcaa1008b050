"""The words of records decide nothing: with other ones, everything is judged the same."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cdd_agent.audit.handoffs import AuditedHandoff
from cdd_agent.cli.app import run
from cdd_agent.errors import CddError
from cdd_agent.git.notes import REF
from cdd_agent.git.repository import Repository
from cdd_agent.model.conversation import Turn
from cdd_agent.review import Comments
from cdd_agent.runs.story import load_story
from cdd_agent.tickets.ticket import find
from cdd_agent.work import wording
from cdd_agent.work.state_file import load_state
from pytest_tdd_agent import wording as gate_wording
from tests.cdd_agent.runs.plan_steps.conftest import FEATURE, Work, make_work
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock
from tests.fakes.demo import SLUG, ProjectCrew, captured
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import CODE, Project, green, red, runs, writes

WRONG = writes("discount.py", CODE.replace("10", "11"))


@pytest.fixture
def change_words(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it to replace every template; the case stays visible, so that nothing is equal by chance."""

    def change() -> None:
        for templates in (gate_wording.TEMPLATES, wording.TEMPLATES):
            for number, case in enumerate(templates):
                monkeypatch.setitem(templates, case, f"word {number} of {len(templates)}")

    return change


def audit(project: Path) -> list[tuple[str, str, bool | None]]:
    with captured() as (screen, _):
        audited: tuple[AuditedHandoff, ...] = ProjectCrew(project, screen=screen).auditor().run()
    return [(each.phase, claim.name, claim.holds) for each in audited for claim in each.claims]


def forge_place(project: Path) -> None:
    """Let the note of GREEN name a place outside of its change."""
    repository = Repository.find(project)
    commit = repository.git("log", ("-1", "--grep=^Phase: GREEN", "--format=%H")).strip()
    first, *others = repository.git("notes", (f"--ref={REF}",), "show", commit).splitlines()
    note = json.loads(first)
    note["gate"]["evidence"][0]["places"] = ["nowhere.py:1"]
    lines = "".join(f"{line}\n" for line in (json.dumps(note, separators=(",", ":")), *others))
    blob = repository.git("hash-object", ("-w", "--stdin"), stdin=lines.encode()).strip()
    repository.git("notes", (f"--ref={REF}",), "add", ("-f", "-C"), blob, commit)


def test_the_notes_of_old_commits_are_audited_the_same_with_other_words(
    finished: Path, change_words: Callable[[], None]
) -> None:
    usual = audit(finished)
    assert ("GREEN", "checks", True) in usual
    change_words()
    assert audit(finished) == usual
    forge_place(finished)
    assert ("GREEN", "checks", False) in audit(finished)


def test_status_and_report_of_old_work_are_the_same_with_other_words(
    finished: Path, change_words: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ticket = find(finished, SLUG)

    def read() -> tuple[object, ...]:
        comments = Comments(Repository.find(finished), finished, clock=FakeClock())
        lines = []
        for arguments in (("--json", "status", SLUG), ("status", SLUG)):
            assert run(["--project", str(finished), *arguments]) == 0
            lines.append(capsys.readouterr().out)
        return load_state(ticket.state_path), load_story(ticket, project=finished, comments=comments), lines

    usual = read()
    change_words()
    assert read() == usual


def summarize(work: Work, model: ScriptedModel) -> tuple[object, ...]:
    """Return the result of the ticket: everything but words, times, and paths."""
    steps = work.saved.step_executions.values()
    return (
        work.statuses,
        [(each.phase, each.number, each.verdict, each.finding) for step in steps for each in step.attempts],
        [[reason.code for reason in each.reasons] for step in steps for each in step.attempts],
        [[found.outcome for found in each.evidence] for step in steps for each in step.attempts],
        work.project.git("log", "--format=%s %T"),
        len(model.requests),
    )


@soak_after(
    2,
    "turns",
    [
        pytest.param((WRONG, green()), id="done"),
        pytest.param((says("No."),) * 5, id="no progress"),
        pytest.param((WRONG, WRONG, WRONG), id="same failures"),
        pytest.param((runs("echo 1 > tests/test_prices.py"), green()), id="forbidden"),
    ],
)
def test_half_done_work_is_continued_the_same_with_other_words(
    project: Project, tmp_path: Path, *, change_words: Callable[[], None], turns: tuple[Turn, ...]
) -> None:
    begun = make_work(project, FEATURE)
    with pytest.raises(KeyboardInterrupt):
        go_on(begun, ScriptedModel([red(), WRONG, KeyboardInterrupt()]))
    results = []
    for name in ("usual", "other"):
        work = begun.copy(tmp_path / name)
        model = ScriptedModel([*turns, KeyboardInterrupt()])
        with suppress(KeyboardInterrupt, CddError):
            go_on(work, model)
        results.append(summarize(work, model))
        change_words()
    assert results[0] == results[1]


def go_on(work: Work, model: ScriptedModel) -> None:
    executor = work.executor(model, max_attempts=4)
    with executor.running():
        executor.run_all()
