"""If the same failure of a node stays, examples, votes or a person say whose fault it is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.clock import SystemClock
from cdd_agent.compose import Composition
from cdd_agent.events import Diagnosed, Event, Notice, SuiteStarted, TurnEnded
from cdd_agent.model.anthropic import AnthropicModel, Endpoint
from cdd_agent.model.conversation import Model
from cdd_agent.model.recording import load_recording
from cdd_agent.runs.output_folder import prepare_output
from cdd_agent.untrusted.keys import Secret
from cdd_agent.work.state import StepExecution
from tests.cdd_agent.runs.test_graph_nodes import (
    BAD,
    DOUBLE,
    FIRST,
    GIVES_UP,
    GOOD,
    SECOND,
    TWICE,
    Kit,
    list_attempts,
    write_body,
    write_tests,
)
from tests.fakes.messages_server import MessagesServer

pytestmark = pytest.mark.usefixtures("identity")

TITLE = "first.double"
RIGHT = write_tests("first", "double")
WRONG = {path: text.replace("== 4", "== 5") for path, text in RIGHT.items()}
"""Its last test contradicts the docstring."""
PASSED = [("red", "open"), ("green", "open")]


@dataclass
class AskedKit(Kit):
    """One whose model answers questions about failures."""

    nodes: tuple = (replace(DOUBLE, docstring="Return twice x."),)  # type: ignore[type-arg]
    model: Model | None = None

    def compose(self) -> Composition:
        made = super().compose()
        if self.model is not None:
            vars(made).update(model=self.model)
        return made

    def vote(self, letters: str) -> None:
        """Add an answer to each question of one vote."""
        for number, letter in enumerate(letters.split(), start=1):
            self.turns.append({"when": f"^Work: voter kit {TITLE} vote {number}$", "content": [letter]})

    def derive(self, *expressions: str) -> None:
        """Add an answer of the Examiner, with one example for each expression."""
        tests = "".join(
            f'\n\ndef test_{number}():\n    """GOAL: {number}"""\n    assert {each}\n'
            for number, each in enumerate(expressions)
        )
        answer = f"```python\nfrom kit.first import double\n{tests}```"
        self.turns.append({"when": "^Work: examiner kit step 1 cause$", "content": [answer]})

    def list_answers(self, agent: str = "voter") -> list[str]:
        return [event.text for event in self.seen if isinstance(event, TurnEnded) and event.agent == agent]

    @property
    def diagnoses(self) -> list[tuple[str, str, int]]:
        """What each was based on, the cause, and the attempt."""
        return [(event.by, event.cause, event.attempt) for event in self.seen if isinstance(event, Diagnosed)]


class Watched(list[Event]):
    """A list of events that also passes each one to a function."""

    def __init__(self, watch: Callable[[Event], None]) -> None:
        super().__init__()
        self._watch = watch

    def append(self, event: Event) -> None:
        super().append(event)
        self._watch(event)


@pytest.fixture
def kit(tmp_path: Path) -> AskedKit:
    return AskedKit(folder=tmp_path / "kit")


def run(kit: AskedKit) -> StepExecution:
    (step,) = kit.run(1)
    return step


def test_majority_vote_implementation_bug(kit: AskedKit) -> None:
    """Votes for the code: the next attempt learns that. They follow the second failure; three equal ones suffice."""
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", BAD, BAD, GOOD)
    kit.vote("A A A A A")
    step = run(kit)
    assert list_attempts(step) == [("red", "open"), ("green", "closed"), ("green", "closed"), ("green", "open")]
    assert kit.list_answers() == ["A"] * 3
    assert step.usage.calls == 7
    assert kit.diagnoses == [("votes", "code", 2)]
    said = "cdd adds: 3 of 3 votes say that the cause is the code. Correct the code: compare it with the docstring"
    assert said in step.attempts[2].words
    assert kit.describe().diagnoses == {"votes": 1}


def test_majority_vote_test_issue(kit: AskedKit) -> None:
    """A whole generation. 4 of 5 votes say that a test is wrong: RED writes the tests anew, then a body lands."""
    kit.say(TITLE, "red", WRONG)
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.vote("A B B B B")
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", GOOD)
    prepare_output(kit.folder, kit.plan)
    generation = kit.compose().generation(kit.plan, resume="again")
    generation.installer = replace(generation.installer, python=kit.folder / "no-python")
    step = generation.carry_out().execution(1)
    assert (step.times_sent_back, list_attempts(step)) == (1, PASSED)
    assert kit.list_answers() == ["A", "B", "B", "B"]
    cuts = ["docstring and test: code", "docstring and code: test", "failure, test and code: test"]
    cuts.append("code, test and failure: test")
    (found,) = (each.diagnosis for each in step.returned if each.diagnosis is not None)
    assert list(map(str, found.votes)) == cuts
    assert [list(event.votes) for event in kit.seen if isinstance(event, Diagnosed)] == [cuts]
    assert (kit.folder / "tests/test_first.py").read_text() == RIGHT["tests/test_first.py"]
    report = (kit.folder / "docs/generation_report.md").read_text()
    assert "- **Diagnoses of Failures**: 1 (1 by votes)" in report
    assert "- **Nodes Proved**: 1 of 1" in report
    audited = kit.compose().auditor().run()
    assert [(each.phase, each.failed) for each in audited] == [("RED", ()), ("GREEN", ())]


def test_tests_that_are_written_anew_are_not_weaker(kit: AskedKit) -> None:
    """They are at least as many, each fails on the stub, and tests that nobody doubts are among them."""
    path, text = next(iter(RIGHT.items()))
    extra = "\n\ndef test_{}():\n    assert double({}) == {}\n"
    kit.say(TITLE, "red", {path: WRONG[path] + extra.format("three", 3, 6)})
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.vote("B B B")
    again = {path: text + extra.format("three", 3, 6)}
    fewer, other = {path: text}, {path: text + extra.format("four", 4, 8)}
    passing = {path: f"{text}\n\ndef test_three():\n    assert True\n"}
    kit.say(TITLE, "red", fewer, passing, other, again)
    kit.say(TITLE, "green", GOOD)
    step = run(kit)
    assert list_attempts(step) == [("red", "closed")] * 3 + PASSED
    assert [tuple(reason.code for reason in each.reasons) for each in step.attempts[:3]] == [
        ("too_few_tests", "dropped_tests"),
        ("already_green",),
        ("dropped_tests",),
    ]


def test_without_a_majority_the_node_fails_and_the_evidence_is_exported(kit: AskedKit) -> None:
    kit.say(TITLE, "red", WRONG)
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.vote("A B A B C")
    step = run(kit)
    assert step.status == "failed"
    why, _, rest = str(step.error).partition(" The debug context is ")
    assert why == "Nobody could say why the tests fail: of 5 votes, 2 for code, 2 for test, 1 for environment."
    exported = (kit.folder / rest.removesuffix(".")).read_text()
    for part in (
        "\nReturn twice x.\n",
        "assert double(2) == 5",
        "return 2 * x",
        "assert 4 == 5",
        "- docstring and test: code",
    ):
        assert part in exported
    assert kit.describe().counts["failed"] == 1


def test_without_a_majority_a_person_is_asked_who_is_there(kit: AskedKit) -> None:
    asked = list[str]()

    def choose(question: str, choices: tuple[str, ...]) -> int:
        asked.append(question)
        return next(at for at, choice in enumerate(choices) if choice.startswith("the test"))

    kit.choose = choose
    kit.say(TITLE, "red", WRONG)
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.vote("A B perhaps C nothing")
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", GOOD)
    step = run(kit)
    assert (step.times_sent_back, list_attempts(step)) == (1, PASSED)
    assert kit.diagnoses == [("person", "test", 2)]
    (question,) = asked
    assert "docstring and test: code" in question
    assert "failure, test and code: no vote" in question


def test_votes_for_the_environment_skip_the_node(kit: AskedKit) -> None:
    """The message of the failure has another number in each run, and it is the same failure."""
    chance = "== __import__('random').random()"
    kit.say(TITLE, "red", {path: text.replace("== 4", chance) for path, text in RIGHT.items()})
    kit.say(TITLE, "green", GOOD, {FIRST: GOOD[FIRST].replace("2 * x", "x + x")})
    kit.vote("C A C C")
    step = run(kit)
    assert step.status == "skipped"
    assert str(step.error).startswith("3 of 4 votes say that the cause is the environment. See what")


def test_examples_from_the_docstring_decide_before_any_vote(kit: AskedKit) -> None:
    kit.say(TITLE, "red", WRONG)
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.derive("double(7) == 14", "double(-1) == -2", "double(0) == 0")
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", GOOD)
    step = run(kit)
    assert (step.times_sent_back, list_attempts(step)) == (1, PASSED)
    assert kit.diagnoses == [("examples", "test", 2)]
    assert kit.list_answers() == []


def test_if_examples_fail_too_the_code_is_wrong_and_if_that_does_not_help_the_votes_decide(kit: AskedKit) -> None:
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", BAD, BAD, BAD, BAD, GOOD)
    kit.derive("double(7) == 14", "double(-1) == -2", "double(0) == 0")
    kit.vote("A A A")
    step = run(kit)
    assert step.status == "completed"
    assert kit.diagnoses == [("examples", "code", 2), ("examples", "code", 3), ("votes", "code", 4)]
    assert len(kit.list_answers("examiner")) == 1
    assert step.attempts[2].diagnosis is not None
    assert "The code fails 2 of 3 further examples that follow from its docstring" in step.attempts[2].diagnosis.why


class _serve:
    """The recording of a kit behind a server and the real client."""

    def __init__(self, kit: AskedKit) -> None:
        kit.compose()  # writes the recording
        self._kit = kit
        self.server = MessagesServer(load_recording(kit.folder.parent / "recording.json"))

    def __enter__(self) -> MessagesServer:
        self.server.__enter__()
        endpoint = Endpoint(url=self.server.base_url)
        self._kit.model = self.model = AnthropicModel(key=Secret("sk-none"), clock=SystemClock(), endpoint=endpoint)
        return self.server

    def __exit__(self, *error: object) -> None:
        self.model.close()
        self.server.__exit__(None, None, None)


def test_no_request_has_a_temperature_and_each_agent_sees_its_part_alone(kit: AskedKit) -> None:
    """With the real client. Two examples are too few to decide; the Examiner has seen neither tests nor code."""
    kit.say(TITLE, "red", WRONG)
    kit.say(TITLE, "green", GOOD, GOOD)
    kit.derive("double(7) == 14", "double(-1) == -2")
    kit.vote("A B A B A")
    kit.turns.append({"when": "green attempt 3$", "content": GIVES_UP})
    with _serve(kit) as server:
        run(kit)
    bodies = [each.body for each in server.requests]
    assert not [key for body in bodies for key in body if key in ("temperature", "top_p", "top_k")]
    (examiner,) = (str(body) for body in bodies if "Work: examiner" in str(body["system"]))
    assert "Return twice x." in examiner
    for part in ("== 5", "assert", "2 * x", "test_double"):
        assert part not in examiner
    votes = [str(body["messages"]) for body in bodies if "Work: voter" in str(body["system"])]
    assert [("== 5" in text, "return 2 * x" in text) for text in votes] == [
        (True, False),
        (False, True),
        (True, True),
        (True, True),
        (True, False),
    ]
    assert ["test_0: passes" in text for text in votes] == [False] * 4 + [True]
    assert all(text.count("'role'") == 1 for text in votes)


def test_a_run_that_is_killed_between_two_votes_does_not_ask_for_the_first_again(kit: AskedKit) -> None:
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", BAD, BAD, GOOD)
    kit.vote("A A A")

    def kill(event: Event) -> None:
        if isinstance(event, TurnEnded) and len(kit.list_answers()) == 2:
            raise KeyboardInterrupt

    kit.seen = Watched(kill)
    with pytest.raises(KeyboardInterrupt):
        run(kit)
    kit.seen = []
    step = run(kit)
    assert step.status == "completed"
    assert len(kit.list_answers()) == 2
    assert kit.diagnoses == [("votes", "code", 2)]


@pytest.mark.slow
def test_a_regression_is_not_voted_on(kit: AskedKit) -> None:
    kit.nodes = (DOUBLE, TWICE)
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", GOOD)
    kit.say("second.twice", "red", write_tests("second", "twice"))
    body = {SECOND: write_body("twice", "    return 2 * x\n")}
    kit.say("second.twice", "green", {**body, **BAD}, {**body, **BAD}, body)
    kit.turns.append({"when": "^Work: voter.*$", "content": ["B"]})
    kit.run(1, 2)
    assert kit.list_answers() == []


def test_before_a_vote_the_failed_tests_run_again_and_one_that_passes_then_is_flaky(
    kit: AskedKit, tmp_path: Path
) -> None:
    """The test passes from the third run of failed tests on: each of two attempts has one."""
    sign = tmp_path / "passes"

    def watch(event: Event) -> None:
        again = [each for each in kit.seen if isinstance(each, SuiteStarted) and each.purpose == "failed tests again"]
        if len(again) == 3:
            sign.touch()

    kit.seen = Watched(watch)
    flaky = write_tests("first", "double", after=f"    assert __import__('pathlib').Path({str(sign)!r}).exists()\n")
    kit.say(TITLE, "red", flaky)
    kit.say(TITLE, "green", *({FIRST: f"{GOOD[FIRST]}# {number}\n"} for number in range(3)))
    kit.vote("B B B")
    step = run(kit)
    assert (step.status, kit.diagnoses, kit.list_answers()) == ("completed", [("rule", "flaky", 2)], [])


def test_a_failure_that_changes_is_not_voted_on_and_a_recording_may_lack_votes(kit: AskedKit) -> None:
    other = {FIRST: write_body("double", "    return x + 7\n")}
    kit.say(TITLE, "red", RIGHT)
    kit.say(TITLE, "green", BAD, other, BAD, BAD, GOOD)
    kit.turns.append({"when": f"^Work: voter kit {TITLE} vote 2$", "content": ["A"]})
    assert run(kit).status == "completed"
    assert (kit.list_answers(), kit.diagnoses) == ([], [])
    assert not [event for event in kit.seen if isinstance(event, Notice) and "vote" in event.text]
