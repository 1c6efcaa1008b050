"""A ticket questioned and planned at the prompt, the model played from recordings."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdd_agent.errors import ExitCode
from cdd_agent.repl.session import Session
from cdd_agent.repl.terminal import PromptStatus
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import find
from tests.fakes.demo import RECORDING, SLUG, ProjectCrew, captured, open_session

ASKS = """\
- content:
    - "One thing is open."
    - type: tool_use
      name: AskDeveloper
      input: {question: "What should `1h90` be?", options: ["150 minutes", "An error"]}
"""
SAVES = """\
- content:
    - type: tool_use
      name: UpdateSpec
      input: {acceptance_criteria: ["WHEN minutes are sixty or more THE SYSTEM SHALL raise ValueError"]}
- content: ["That can be tested."]
"""
IN_WORDS = """\
- content: ["**What should `1h90` be?** 150 minutes, or an error?"]
"""
TALKS = """\
- content: ["I am content with it."]
"""


@dataclass
class Sitting:
    """A session and what it has printed."""

    session: Session
    out: io.StringIO
    code: ExitCode = ExitCode.DONE

    def says(self, line: str) -> str:
        """What is printed in answer to ``line``."""
        before = len(self.out.getvalue())
        self.code = self.session.handle(line)
        return self.out.getvalue()[before:]


def nothing_typed(_: PromptStatus) -> str:
    raise EOFError


def sit(project: Path, recording: str | None, *, width: int = 80) -> Iterator[Sitting]:
    replay = RECORDING
    if recording is not None:
        replay = project.parent / "recording.yaml"
        replay.write_text(recording, encoding="utf-8")
    with captured(width) as (screen, out):
        yield Sitting(
            open_session(ProjectCrew(project, screen=screen, replay=replay), screen=screen, read=nothing_typed), out
        )


def sitting(project: Path, recording: str | None = None) -> Sitting:
    return next(sit(project, recording))


def test_what_is_missing_is_told_by_the_rules_before_the_first_question(project: Path) -> None:
    shown = sitting(project, ASKS).says("/spec").splitlines()

    assert shown[0] == "○ The spec of minutes-lost is not complete. It lacks:"
    assert shown[1] == "  • an acceptance criterion"
    assert shown[2].startswith("To be complete it needs a title, a description, at least one acceptance")
    asked = shown.index("What should `1h90` be?")
    assert shown[asked + 1 : asked + 3] == ["  1  150 minutes", "  2  An error"]
    assert shown[asked + 3].startswith("Type a number, your own words, or later to skip the question")
    assert not any("AskDeveloper" in line for line in shown)


def test_a_number_is_an_answer_and_its_diff_is_shown_before_the_spec_is_saved(project: Path) -> None:
    at = sitting(project, ASKS + SAVES)
    at.says("/spec")
    shown = at.says("2")

    assert shown.startswith("• your answer: An error\n")
    assert shown.index("+++ spec.yaml") < shown.index("✔ spec.yaml saved: acceptance criteria")
    assert "✔ The spec of minutes-lost is complete:\n  AC-1  WHEN minutes are sixty or more" in shown
    assert spec.load(find(project, SLUG).spec_path).status == "refined"


def test_enter_alone_shows_the_question_again_and_asks_no_model(project: Path) -> None:
    at = sitting(project, ASKS)
    first = at.says("/spec")
    again = at.says("")

    assert again.strip() == first[first.index("What should") :].strip()
    assert at.code == ExitCode.DONE


def test_later_leaves_the_question_open_and_what_is_missing_is_told(project: Path) -> None:
    at = sitting(project, ASKS + TALKS)
    at.says("/spec")
    shown = at.says("later")

    assert '+  - "What should `1h90` be?"' in shown
    assert spec.load(find(project, SLUG).spec_path).open_questions == ("What should `1h90` be?",)
    assert "I am content with it." in shown
    assert "○ Not complete; still missing: an acceptance criterion; an answer to the open" in shown
    assert "is complete:" not in shown


def test_a_model_that_asks_in_plain_words_is_answered_and_asked_again_likewise(project: Path) -> None:
    at = sitting(project, IN_WORDS + SAVES)
    assert "What should `1h90` be? 150 minutes" in at.says("/spec").replace("**", "")
    assert "What should `1h90` be? 150 minutes" in at.says("").replace("**", "")
    assert "is complete:" in at.says("an error")


def test_a_vague_criterion_is_remarked_on_and_a_better_one_completes_the_spec(project: Path) -> None:
    path = find(project, SLUG).spec_path
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("acceptance_criteria: []", "acceptance_criteria:\n- It works properly"), "utf-8")
    at = sitting(project, ASKS)
    shown = " ".join(at.says("/spec").split())
    assert "• an acceptance criterion that can be tested • AC-1 is vague: 'works' measures nothing" in shown
    path.write_text(
        path.read_text("utf-8").replace("- It works properly", "- It works properly\n- 1h30 is 90"), "utf-8"
    )
    assert "• AC-1 is vague" in at.says("")
    assert at.says("").lstrip().startswith("✔ The spec of minutes-lost is complete:")


def test_a_plan_is_shown_as_a_tree_with_its_files_and_criteria(finished: Path) -> None:
    lines = [line.rstrip() for line in sitting(finished).says("/plan").splitlines()]

    assert "└── 1  Minutes after hours need no unit" in lines
    assert "    files durations/reading.py" in lines
    assert lines[lines.index("AC-1: step 1") + 1] == "AC-2: step 1"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("Depends on: none", "Depends on: 7", "line 11: step 1 depends on step 7, which does not exist"),
        (
            "durations/reading.py",
            ".env",
            "line 12: step 1 names a file that cannot be written: By its name, .env is a file of secrets",
        ),
        ("Criteria: AC-1, AC-2", "Criteria: AC-1", "no step implements the criterion AC-2"),
    ],
)
def test_a_plan_broken_by_hand_is_shown_with_its_problems_and_can_be_talked_about(
    finished: Path, *, old: str, new: str, told: str
) -> None:
    path = find(finished, SLUG).plan_path
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    at = sitting(finished)
    shown = at.says("/plan")

    assert "└── 1  Minutes after hours need no unit" in shown
    assert told in shown.replace("\n", " ").replace("    ", " ").replace("   ", " ")
    assert at.code == ExitCode.USAGE
    assert at.session.prompt_status.agent == "plan"


def test_a_plan_edited_by_hand_is_shown_with_what_is_odd_in_it(finished: Path) -> None:
    path = find(finished, SLUG).plan_path
    path.write_text(path.read_text(encoding="utf-8").replace("Size: small", "Size: XL"), encoding="utf-8")
    at = sitting(finished)

    assert "• line 16: step 1 is xl (split it" in at.says("/plan")
    assert at.code == ExitCode.DONE
