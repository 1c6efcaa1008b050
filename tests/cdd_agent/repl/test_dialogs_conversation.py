"""What is said around Socrates and the Planner."""

from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError, GateClosed
from cdd_agent.repl import dialogs
from cdd_agent.tickets.ticket import find
from tests.fakes.demo import ANSWER, SLUG, ProjectCrew, captured

TALKS_ONLY = """\
- when: "^Work: planner minutes-lost$"
  content: ["I would rather not."]
"""


def test_socrates_asks_until_the_spec_is_complete(project: Path) -> None:
    with captured(width=200) as (screen, shown):
        socrates = ProjectCrew(project, screen=screen).socrates(find(project, SLUG))
        dialogs.continue_spec(socrates, "", screen=screen)
        assert "is complete" not in shown.getvalue()
        dialogs.continue_spec(socrates, ANSWER, screen=screen)
    lines = shown.getvalue().splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["✔", "AC-1", "AC-2", "Write"]


def test_a_complete_spec_is_shown_without_asking(finished: Path) -> None:
    with captured() as (screen, shown):
        socrates = ProjectCrew(finished, screen=screen, replay=None).socrates(find(finished, SLUG))
        dialogs.continue_spec(socrates, "", screen=screen)
    assert "is complete:" in shown.getvalue()


def test_a_planner_that_hands_nothing_in_is_told_with_what_it_said(finished: Path, tmp_path: Path) -> None:
    find(finished, SLUG).plan_path.unlink()
    recording = tmp_path / "talk.yaml"
    recording.write_text(TALKS_ONLY, encoding="utf-8")
    with captured() as (screen, _):
        planner = ProjectCrew(finished, screen=screen, replay=recording).planner(find(finished, SLUG))
        with pytest.raises(GateClosed, match="I would rather not"):
            dialogs.continue_plan(planner, "", screen=screen)


def test_a_plan_that_is_not_valid_is_not_passed_over(finished: Path) -> None:
    find(finished, SLUG).plan_path.write_text("no plan at all\n", encoding="utf-8")
    with captured() as (screen, _):
        planner = ProjectCrew(finished, screen=screen).planner(find(finished, SLUG))
        with pytest.raises(DocumentError):
            dialogs.continue_plan(planner, "", screen=screen)
