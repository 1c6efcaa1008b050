"""The second agent, which tries to refute a GREEN with further examples."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cdd_agent.events import GateJudged, Notice, SuiteStarted, TurnEnded
from cdd_agent.evidence.clean_copy import refuse
from cdd_agent.model.conversation import Text, ToolCall, Turn
from cdd_agent.model.recording import RecordedTurn, ReplayModel
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.examination import Examination
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.testrun.suite import PYTEST
from cdd_agent.work.finding import Finding
from cdd_agent.work.records import find_records
from cdd_agent.work.wording import explain
from pytest_tdd_agent.codec import load
from tests.cdd_agent.evidence.requests import tell
from tests.cdd_agent.evidence.steps import Step
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, content_as_it_is, green, item, red, writes

WORK = replace(item(), criteria=(("AC-1", "WHEN a price is given THE SYSTEM SHALL take ten percent off"),))
ANSWER = '''\
```python
from discount import discount


def test_twice():
    """AC-1: twice the price"""
    assert discount(200) == 180
```
'''
AGREES = ANSWER.replace("== 180", "== 190")
"""An example that a wrong change passes."""
THIRD = 'def test_{0}():\n    """AC-1: {0}"""\n    assert discount(ord("{0}")) == ord("{0}") - 10\n'


def rewrites(code: str) -> Turn:
    return says(
        call("Read", file_path="discount.py"),
        call("Write", "toolu_W2", file_path="discount.py", content=code),
        call("CompleteImplementation", implementation_files=[]),
    )


def context(project: Project, *turns: Turn, **policy: object) -> Context:
    model = ScriptedModel(turns)
    model.answers_examiner = True
    made = project.context(model)
    changed: dict[str, object] = {"evidence_timeout_s": 60, "max_examples": 8, **policy}
    return replace(made, policy=replace(made.policy, **changed))  # type: ignore[arg-type]


def run(project: Project, made: Context) -> Ending:
    return Cycle(WORK, project.start(), context=made, save=lambda _: None).run()


def model_of(made: Context) -> ScriptedModel:
    assert isinstance(made.model, ScriptedModel)
    return made.model


def notices(project: Project, word: str) -> list[str]:
    return [event.text for event in project.seen if isinstance(event, Notice) and word in event.text]


def verdicts(project: Project) -> list[tuple[bool, str]]:
    """Whether each attempt at GREEN was accepted, and the first code."""
    found = (event for event in project.seen if isinstance(event, GateJudged) and event.phase == "green")
    return [(event.open, event.reasons[0].code if event.reasons else "") for event in found]


def test_a_change_that_passes_further_examples_is_accepted_and_the_note_of_green_lists_them(project: Project) -> None:
    made = context(project, red(), green(), says(AGREES), content_as_it_is())
    ending = run(project, made)
    assert ending.how == "done"
    assert notices(project, "xamined") == ["Examined: 1 further example passed (AC-1 test_twice)."]
    assert verdicts(project) == [(True, "")]
    assert "examiner" in [event.agent for event in project.seen if isinstance(event, TurnEnded)]
    asked = str(model_of(made).requests[2].messages)
    for part in ("ten percent off", TEST.splitlines()[-1].strip(), "return price - 10"):
        assert part in asked
    commits = ending.state.execution(1).commits
    assert [read_examples(gate) for gate in gates(project, commits["red"])] == [[]]
    assert [read_examples(gate) for gate in gates(project, commits["green"])] == [["AC-1 test_twice: passes"], []]


def gates(project: Project, commit: str) -> list[dict[str, object]]:
    lines = project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()
    return [json.loads(line)["gate"] for line in lines]


def read_examples(gate: dict[str, Any]) -> list[str]:
    return [explain(msgspec.convert(each, type=Finding)) for each in gate.get("examples", ())]


def test_a_change_that_fails_is_refused_in_words_then_accepted_when_it_is_general(project: Project) -> None:
    made = context(project, red(), green(), says(ANSWER), rewrites(TIDY), content_as_it_is())
    assert run(project, made).how == "done"
    assert verdicts(project) == [(False, "example_failed"), (True, "")]
    told = str(model_of(made).requests[3].messages)
    assert "AC-1 is not met (WHEN a price is given THE SYSTEM SHALL take ten percent off)" in told
    assert re.search(r"\b180\b", told) is None
    assert "test_twice" not in told
    assert model_of(made).queue == [], "the Examiner is asked once a step"
    # The author of the change never has the file.
    assert "test_twice" not in project.git("log", "-p", "--all", "--", "tests")
    assert not [path for path in made.workplace.tree.root.rglob("*.py") if "test_twice" in path.read_text()]


@pytest.mark.slow
def test_a_second_failure_shows_one_example_to_all_later_attempts(project: Project) -> None:
    attempts = [rewrites(f"def discount(price):\n    return price - 10  # {number}\n") for number in range(5)]
    made = context(project, red(), green(), says(ANSWER), *attempts, max_attempts=6, max_identical_failures=9)
    assert run(project, made).how == "failed"
    told = [str(request.messages[0]) for request in model_of(made).requests[3:]]
    assert ["assert discount(200) == 180" in text for text in told] == [False, True, True, True, True]


@pytest.mark.slow
def test_the_example_stays_visible_when_other_reasons_close_later_attempts(project: Project) -> None:
    breaks = [rewrites(f"def discount(price):\n    return {number}\n") for number in range(2, 7)]
    wrong = rewrites("def discount(price):\n    return price - 10  # again\n")
    made = context(
        project, red(), green(), says(ANSWER), wrong, *breaks, max_attempts=7, max_identical_failures=9, is_strict=True
    )
    assert run(project, made).how == "failed"
    assert "assert discount(200) == 180" in str(model_of(made).requests[-1].messages[0])
    assert [code for _, code in verdicts(project)][2:] == ["target_failed"] * 5


@soak_after(
    2,
    ("answer", "code", "notice"),
    [
        pytest.param(
            AGREES.replace("```python", "```python\n" + "\n\n".join(map(THIRD.format, "ab"))),
            "",
            "Not refused, because further examples pass: It knows the examples only.",
            id="three pass",
        ),
        pytest.param(AGREES, "examples_only", "", id="one passes"),
        pytest.param("I see nothing wrong.", "examples_only", "", id="no example"),
        pytest.param(ANSWER, "example_failed", "", id="fails"),
    ],
)
def test_a_doubt_of_another_check_stays_unless_three_examples_pass(
    project: Project, tmp_path: Path, *, answer: str, code: str, notice: str
) -> None:
    step = Step.make(
        tmp_path / "step",
        interpreter=project.interpreter,
        bytecode=project.bytecode,
        red={TEST_FILE: TEST},
        green={"discount.py": CODE},
    )
    made = context(project, says(answer), says(answer))
    examined = Examination(item=WORK, context=made, path=tmp_path / "examples.json").examine(
        step.request(f"{TEST_FILE}::test_discount"),
        found=refuse("examples_only", "text", text="It knows the examples only."),
        is_first=True,
        runs=step.runs(),
    )
    assert [reason.code for reason in examined.reasons] == [code] * bool(code)
    assert tell(examined) == (notice,) * bool(notice)
    assert "It knows the examples only." in str(model_of(made).requests[0].messages)


GUARDS = '''\
```python
from prices import total


def test_nothing():
    """KEPT: the sum of nothing is nothing"""
    assert total([]) == 0
```
'''
BREAKING = says(
    call("Write", "toolu_W1", file_path="discount.py", content=CODE),
    call("Read", file_path="prices.py"),
    call("Write", "toolu_W2", file_path="prices.py", content="def total(prices):\n    return sum(prices) or None\n"),
    call("CompleteImplementation", implementation_files=[]),
)
RESTORED = says(
    call("Read", file_path="prices.py"),
    call("Write", "toolu_W3", file_path="prices.py", content="def total(prices):\n    return sum(prices)\n"),
    call("CompleteImplementation", implementation_files=[]),
)


def test_a_change_that_breaks_an_older_rule_is_refused_and_accepted_without_that(project: Project) -> None:
    made = context(project, red(), BREAKING, says(GUARDS), RESTORED, content_as_it_is())
    ending = run(project, made)
    assert ending.how == "done"
    assert verdicts(project) == [(False, "example_regressed"), (True, "")]
    asked = str(model_of(made).requests[3].messages)
    assert "a further example that passed before it fails now" in asked
    assert "total([])" not in asked
    (gate, *_) = gates(project, ending.state.execution(1).commits["green"])
    assert read_examples(gate) == ["KEPT test_nothing: passes as before"]


@pytest.mark.slow
def test_a_doubt_about_an_older_rule_gets_a_second_look(project: Project) -> None:
    doubts = says(call("ReportBlocked", "toolu_B", why="test_is_wrong", reason="The sum of nothing is undefined."))
    withdraws = says("withdraw test_nothing: the step asks for it")
    made = context(project, red(), BREAKING, says(GUARDS), doubts, withdraws, content_as_it_is())
    assert run(project, made).how == "done"
    assert verdicts(project) == [(False, "example_regressed"), (True, "")]


DOUBTS = says(call("ReportBlocked", "toolu_B", why="test_is_wrong", reason="Only one price is specified."))


def test_a_doubted_example_that_the_examiner_withdraws_no_longer_counts(project: Project) -> None:
    withdraws = says("withdraw test_twice: nothing says so")
    made = context(project, red(), green(), says(ANSWER), DOUBTS, withdraws, content_as_it_is())
    ending = run(project, made)
    assert ending.how == "done"
    assert verdicts(project) == [(False, "example_failed"), (True, "")]
    request = model_of(made).requests[4]
    asked = str(request.messages)
    for part in (
        "Only one price is specified.",
        "discount(200) == 180",
        "AC-1: WHEN a price is given THE SYSTEM SHALL take ten percent off",
        "Ten percent off",
        "assert discount(100) == 90",
        "+    return price - 10",
        "would a reader who knows only the step",
    ):
        assert part in asked
    assert "write further tests" not in request.system
    assert "You decide whether each of them stays." in request.system
    assert notices(project, "xamined") == [
        "Not examined: none of the further examples counts. AC-1 test_twice: withdrawn (nothing says so)"
    ]
    judged = [each for each in ending.state.execution(1).attempts if each.phase == "green"]
    first, second = (load(find_records(project.folder).folder / str(each.report)) for each in judged)
    assert first == second, "the unchanged files are not tested again"
    events = project.seen[[type(event) for event in project.seen].index(GateJudged) :]
    at = [number for number, event in enumerate(events) if isinstance(event, GateJudged) and event.phase == "green"]
    assert not [event for event in events[at[0] : at[1]] if isinstance(event, SuiteStarted)]
    assert gates(project, ending.state.execution(1).commits["green"])[0]["open"]


@pytest.mark.slow
def test_after_a_withdrawal_files_that_have_changed_are_tested(project: Project) -> None:
    also = says(
        call("Read", file_path="prices.py"), call("Bash", command="echo '# 10' >> discount.py"), *DOUBTS.content
    )
    withdraws = says("withdraw test_twice: nothing says so")
    made = context(project, red(), green(), says(ANSWER), also, withdraws, content_as_it_is())
    ending = run(project, made)
    assert ending.how == "done"
    judged = [each for each in ending.state.execution(1).attempts if each.phase == "green"]
    kept = [asked.keep.name for asked in project.fake.asked if asked.keep is not None]
    assert [Path(str(each.report)).name in kept for each in judged] == [True, True], "both were tested"


@pytest.mark.slow
def test_a_doubted_example_that_the_examiner_keeps_is_shown_and_the_work_goes_on(project: Project) -> None:
    keeps = says("keep test_twice: ten percent of 200 are 20")
    made = context(project, red(), green(), says(ANSWER), DOUBTS, keeps, rewrites(TIDY), content_as_it_is())
    assert run(project, made).how == "done"
    assert verdicts(project) == [(False, "example_failed"), (False, "example_failed"), (True, "")]
    assert "The Examiner has looked again and keeps this example." in str(model_of(made).requests[5].messages)


@soak_after(0, ("answer", "how"), [(None, "blocked"), (0, "blocked"), (1, "done")])
def test_a_second_doubt_is_decided_by_a_person(project: Project, *, answer: int | None, how: str) -> None:
    made = context(project, red(), green(), says(ANSWER), DOUBTS, says("keep test_twice: yes"), DOUBTS)
    asked: list[str] = []

    def choose(question: str, _: tuple[str, ...]) -> int:
        asked.append(question)
        return answer or 0

    model_of(made).queue.append(content_as_it_is())
    ending = run(project, made if answer is None else replace(made, choose=choose))
    assert ending.how == how
    assert ["discount(200) == 180" in question for question in asked] == ([] if answer is None else [True])


@pytest.mark.slow
def test_a_doubt_about_anything_else_ends_the_step_as_before(project: Project) -> None:
    made = context(project, red(), DOUBTS, red(), DOUBTS)
    assert run(project, made).how == "blocked"


@pytest.mark.slow
def test_a_recording_without_the_second_look_ends_as_before(project: Project) -> None:
    made = replay(
        project, ("^Work: examiner sale step 1 examples$", says(ANSWER.replace("180", "170"))), ("step 1 green", DOUBTS)
    )
    assert run(project, made).how == "blocked"
    assert any("could not look again" in text for text in notices(project, "Examiner"))


@soak_after(0, "policy", [{"max_examples": 0}, {"evidence_timeout_s": 0}])
def test_without_examples_or_time_nobody_is_asked(project: Project, policy: dict[str, object]) -> None:
    made = context(project, red(), green(), content_as_it_is(), **policy)
    assert run(project, made).how == "done"
    assert notices(project, "xamined") == []
    assert len(model_of(made).requests) == 3


@pytest.mark.slow
def test_in_another_framework_nobody_is_asked_and_it_is_said(project: Project) -> None:
    made = context(project, red(), green(), content_as_it_is())
    other = replace(PYTEST, framework="unittest", is_python=False)
    suite = replace(made.suite, conventions=other)  # type: ignore[type-var]
    assert run(project, replace(made, suite=suite)).how == "done"
    assert notices(project, "xamined") == ["Not examined: further examples need pytest."]


@pytest.mark.slow
def test_an_answer_that_cannot_be_used_twice_is_said(project: Project) -> None:
    made = context(project, red(), green(), says("It looks right."), says("It does."), content_as_it_is())
    assert run(project, made).how == "done"
    assert notices(project, "xamined") == ["Not examined: The answer contains no Python file."]


def replay(project: Project, *more: tuple[str, Turn]) -> Context:
    """A context whose model plays a recording of the step, with more turns and their patterns."""
    played: list[tuple[str | None, Turn]] = [("step 1 red", red()), ("step 1 green", writes("discount.py", TIDY))]
    played += [(None, says("Nothing to tidy.")), *more]
    turns = [
        RecordedTurn(
            number=number,
            content=tuple(block for block in turn.content if isinstance(block, Text | ToolCall)),
            stop_reason="tool_use" if turn.calls else "end_turn",
            when=when,
        )
        for number, (when, turn) in enumerate(played, start=1)
    ]
    return replace(context(project), model=ReplayModel(turns))


def unused(made: Context) -> tuple[RecordedTurn, ...]:
    assert isinstance(made.model, ReplayModel)
    return made.model.unused


@pytest.mark.slow
def test_a_recording_without_its_turn_is_played_as_before_and_that_is_said(project: Project) -> None:
    made = replay(project)
    ending = run(project, made)
    assert ending.how == "done"
    (gate, _) = gates(project, ending.state.execution(1).commits["green"])
    assert read_examples(gate) == ["Not examined: the recording has no such turn."]
    assert notices(project, "xamined") == ["Not examined: the recording has no such turn."]
    assert unused(made) == ()


@pytest.mark.slow
def test_a_recording_plays_its_turn(project: Project) -> None:
    made = replay(project, ("^Work: examiner sale step 1 examples$", says(ANSWER)))
    assert run(project, made).how == "done"
    assert notices(project, "xamined") == ["Examined: 1 further example passed (AC-1 test_twice)."]
    assert unused(made) == ()
