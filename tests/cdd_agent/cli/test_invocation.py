"""Where output and events of one invocation go."""

import json
import subprocess
from pathlib import Path

import click
import pytest

from cdd_agent.cli.app import cdd
from cdd_agent.cli.invocation import Invocation
from cdd_agent.config.options import Options
from cdd_agent.errors import FolderMoved, UsageError
from cdd_agent.events import Notice
from cdd_agent.work.records import find_records
from tests.fakes.demo import SLUG


def invocation(project: Path, *, as_json: bool = False) -> Invocation:
    return Invocation(options=Options(project=project), assume_yes=False, as_json=as_json, color=None)


def test_events_are_words_on_standard_output(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invocation(project).project.emit(Notice(text="mind this"))
    assert capsys.readouterr().out == "• mind this\n"


def test_with_json_events_are_lines_and_words_go_to_standard_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = invocation(project, as_json=True)
    told.project.emit(Notice(text="mind this"))
    told.screen.line("words")
    output = capsys.readouterr()
    assert json.loads(output.out) == {"event": "Notice", "text": "mind this"}
    assert output.err == "words\n"


def test_nobody_is_asked_without_a_terminal(project: Path) -> None:
    assert not invocation(project).is_interactive


def test_what_is_said_after_the_command_counts_too(project: Path) -> None:
    given = invocation(project).with_options({"yes": True, "as_json": False, "allow_dirty": True})
    assert (given.assume_yes, given.as_json, given.options.allow_dirty) == (True, False, True)


def test_the_project_of_a_command_is_held_in_place_to_its_end(project: Path) -> None:
    with click.Context(cdd):
        assert invocation(project).root == project, "before anything else is loaded"
        subprocess.run(["mv", str(project), f"{project}-moved"], check=True)
        with pytest.raises(FolderMoved):
            project.mkdir()
    project.mkdir()


def test_the_project_around_a_fork_or_package_is_held_too(project: Path) -> None:
    (package := project / "packages" / "api").mkdir(parents=True)
    with click.Context(cdd):
        assert invocation(package).project.home == package
        subprocess.run(["mv", str(project), f"{project}-moved"], check=True)
        with pytest.raises(FolderMoved, match=f"{project}.* was moved to {project}-moved"):
            project.mkdir()


def test_a_journal_is_made_only_for_a_ticket_that_is_there(project: Path) -> None:
    with pytest.raises(UsageError), invocation(project).open_ticket("nothing-like-it"):
        pass
    assert not (project / ".cdd").exists()
    with invocation(project).open_ticket(SLUG) as (composition, ticket):
        composition.emit(Notice(text="mind this"))
    assert ticket.slug == SLUG
    assert "mind this" in (find_records(project).folder / "journal" / SLUG / "events.jsonl").read_text(encoding="utf-8")
