"""What completes a line comes from the project as it is."""

from pathlib import Path

from cdd_agent.repl.completion import find_candidates
from tests.cdd_agent.repl.typed_prompt import Prompt
from tests.fakes.demo import SLUG
from tests.fakes.model import ScriptedModel, says


def test_tickets_have_titles(finished: Path) -> None:
    (finished / "tickets" / "broken").mkdir()
    (finished / "tickets" / "broken" / "spec.yaml").write_text("- no\n", encoding="utf-8")
    found = find_candidates(finished)
    assert list(found.slugs()) == [("broken", ""), (SLUG, "Minutes without a unit are lost")]


def test_steps_say_how_far_they_have_come(finished: Path) -> None:
    first, *_ = find_candidates(finished).steps(SLUG)
    assert first[0] == "1"
    assert first[1].endswith(" (completed)")


def test_sessions_say_when_who_and_the_first_words(project: Path) -> None:
    prompt = Prompt(project, model=ScriptedModel([says("What is it for?"), says("Trains.")]))
    prompt.says("/spec")
    prompt.says("For trains.")
    found = find_candidates(project)
    assert list(found.sessions()) == []
    prompt.die()
    ((name, told),) = found.sessions()
    assert name == prompt.id
    assert told.endswith(f", /spec {SLUG}: For trains.")


def test_commits_are_those_that_phases_landed(finished: Path) -> None:
    found = list(find_candidates(finished).handoffs())
    assert len({commit for commit, _ in found}) == len(found) == 2
    assert found[0][1].startswith("cycle ")
    assert found[-1][1].startswith("cycle 1, RED: ")


def test_files_are_those_that_git_knows(project: Path) -> None:
    assert "durations/reading.py" in set(find_candidates(project).files())
