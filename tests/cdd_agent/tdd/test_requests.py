"""The whole requests of all agents of a cycle, read as the model gets them: system prompt, messages and tools."""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cdd_agent.conversation.dialog import Dialog
from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.scout import Scout
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import CddError, GateClosed
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import Request, Text, ToolCall, ToolResult, Turn
from cdd_agent.review import Comments, Place
from cdd_agent.tdd.context import Kind
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.instructions import TABLE, load_texts
from cdd_agent.tdd.phase_agent import FORKED
from cdd_agent.tdd.phase_run import Ending
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.tickets.ticket import create
from cdd_agent.work import state as states
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, StepKey
from cdd_agent.workspace.files import Workspace
from tests.cdd_agent.runs.failing_tests.conftest import BARE, CARTS, MENDED, TESTS, Shop
from tests.cdd_agent.runs.listed_tests import conftest as orchestration
from tests.cdd_agent.runs.listed_tests.conftest import Runs
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, content_as_it_is, green, item, red, writes

TOOLS = re.compile(
    r"\b(RunTests|CompleteImplementation|ReportBlocked|AnswerComment|WritePlan|UpdateSpec|AskDeveloper|ProposeTicket)\b"
    r"|`(Read|Write|Edit|Bash|Glob|Grep)`"
)
PLACE = re.compile(r"\{\w+\}")
MARKED = re.compile(r"<data-(\w+)[^>]*>\n.*?\n</data-\1>", re.DOTALL)
WRONG = writes("discount.py", "def discount(price):\n    return price\n")
BREAKS = says(
    call("Write", "toolu_1", file_path="discount.py", content="def discount(price):\n    return price\n"),
    call("Read", "toolu_2", file_path="prices.py"),
    call("Write", "toolu_3", file_path="prices.py", content="def total(prices):\n    return 0\n"),
    call("CompleteImplementation", implementation_files=[]),
)
DOUBT = says(
    "Ten percent of 100 is 10.",
    call("Write", "toolu_W", file_path="discount.py", content=CODE),
    call("ReportBlocked", why="test_is_wrong", reason="90 should be 10"),
)


def rewrites(code: str) -> Turn:
    """A turn that replaces the code of an earlier attempt."""
    return says(call("Read", file_path="discount.py"), *writes("discount.py", code).content)


NODE = f"{TEST_FILE}::test_discount"


def read(request: Request) -> str:
    """The whole request as one text."""
    parts = [request.system]
    for message in request.messages:
        for block in message.content:
            match block:
                case Text(text=text):
                    parts.append(f"[{message.__class__.__name__}]\n{text}")
                case ToolCall():
                    parts.append(f"[calls {block.name}]")
                case ToolResult(content=content):
                    parts.append(f"[result]\n{content}")
    parts += [f"[tool {tool.name}] {tool.description}\n{tool.input_schema}" for tool in request.tools]
    return "\n\n".join(parts)


def said(request: Request) -> str:
    """The words of cdd in a request: without tools, and without what others wrote."""
    texts = [
        f"[{message.__class__.__name__}]\n{block.text}"
        for message in request.messages
        for block in message.content
        if isinstance(block, Text)
    ]
    text = "\n\n".join([request.system, *texts])
    return MARKED.sub("(...)", text)


def find_faults(request: Request) -> list[str]:
    """What is wrong with a request, whatever it is about."""
    words, offered = said(request), {tool.name for tool in request.tools}
    faults = [f"names {name}, which is not offered" for name in {a or b for a, b in TOOLS.findall(words)} - offered]
    faults += [f"an empty place: {place}" for place in re.findall(r"\{\w+\}", words)]
    blocks = [block.strip() for block in words.split("\n\n") if not block.startswith("    ")]
    for block, following in zip(blocks, [*blocks[1:], "# the end"], strict=True):
        if (block.startswith("#") or block.endswith(":")) and following.startswith("#") and "\n" not in block:
            faults.append(f"nothing below: {block}")
    own = words.rpartition("[UserMessage]")[2]  # a conversation that is continued says more than once what holds
    lines = [line.strip() for line in own.splitlines() if len(line) > 40]
    faults += [f"twice: {line}" for line in {line for line in lines if lines.count(line) > 1}]
    return faults


@dataclass(kw_only=True)
class Collector:
    """Runs of cycles, and the requests of their model by name."""

    folder: Path
    interpreter: Interpreter
    bytecode: Path
    found: dict[str, Request] = field(default_factory=dict)

    def project(self, name: str) -> Project:
        return Project.make(self.folder / name, interpreter=self.interpreter, bytecode=self.bytecode)

    def note(self, name: str, requests: list[Request], *labels: str) -> None:
        for label, request in zip(labels, requests, strict=False):
            if label:
                self.found[f"{name}: {label}"] = request

    def run(
        self,
        name: str,
        turns: Sequence[Turn],
        *labels: str,
        kind: Kind = "feature",
        tests: tuple[str, ...] = (NODE,),
        state: RunState | None = None,
        project: Project | None = None,
        **policy: object,
    ) -> tuple[Project, Ending | None, list[RunState]]:
        """Run one step; the requests have these names, and those with an empty one are left out."""
        project, model, saved = project or self.project(name), ScriptedModel(turns), list[RunState]()
        context = project.context(model)
        comments = Comments(project.repository, project.folder, clock=FakeClock())
        context = replace(context, comments=comments, policy=replace(context.policy, **policy))  # type: ignore[arg-type]
        ending = None
        work = item(kind, tests=tests)
        try:
            ending = Cycle(work, state or project.start(), context=context, save=saved.append).run()
        except (CddError, KeyboardInterrupt):
            assert saved
        self.note(name, model.requests, *labels)
        return project, ending, saved


def again(ending: Ending, project: Project, words: str, *, status: Status = Status.COMPLETED) -> RunState:
    """The state of a step that ended, and runs again with the user's words."""
    now = ending.state.started_at
    done = states.end_step(ending.state, 1, status=status, now=now) if status is Status.COMPLETED else ending.state
    state = states.retry_step(states.add_guidance(done, 1, words=words), 1)
    key = StepKey(number=1, title="Ten percent off", text_sha256="0")
    return states.start_step(state, key, now=now, base_commit=project.repository.read_head())


def collect_of_steps(made: Collector) -> None:
    """Steps of each kind, with refused attempts."""
    passes_at_once = writes(TEST_FILE, "def test_discount():\n    assert True\n")
    broken = writes(TEST_FILE, "def test_discount(:\n")
    made.run(
        "feature",
        [passes_at_once, broken, red(), BREAKS, WRONG, rewrites(CODE), content_as_it_is()],
        *("red", "red refused", "red refused twice", "green", "green broke", "green after", "refactor"),
        max_attempts=4,
    )
    made.run("bug", [red(), green(), content_as_it_is()], "red", "green", kind="bug", tests=(TEST_FILE,))
    both = says(
        call("Write", "toolu_1", file_path="discount.py", content=CODE),
        call("Read", "toolu_2", file_path="prices.py"),
        call("Write", "toolu_3", file_path="prices.py", content="def total(prices):\n    return 0\n"),
        call("CompleteImplementation", implementation_files=[]),
    )
    made.run("broken", [red(), both, content_as_it_is()], "", "", "green")
    made.run("checked docs", [writes("README.md", "# It\n")], "green", kind="docs", tests=("tests/test_prices.py",))
    made.run("docs", [writes("README.md", "# It\n"), content_as_it_is()], "green", "second", kind="docs", tests=())
    made.run("chore", [content_as_it_is(), writes("Makefile", "all:\n")], "green", "refused", kind="chore", tests=())
    tidy = says(
        call("Read", file_path="prices.py"),
        call("Write", file_path="prices.py", content="def total(prices):\n    return sum(prices, 0)\n"),
        call("CompleteImplementation", implementation_files=[]),
    )
    made.run("refactoring", [tidy], "refactor", kind="refactor", tests=())
    made.run(
        "sent back",
        [red(), DOUBT, writes(TEST_FILE, TEST.replace("== 90", "== 90.0")), green(), content_as_it_is()],
        *("", "", "red", "green", "refactor"),
    )
    half = says("Half of it.", call("Write", file_path="discount.py", content="def discount(price): ...\n"))
    project, _, saved = made.run("interrupted", [red(), half])
    made.run("interrupted", [green(), content_as_it_is()], "green", state=saved[-1], project=project)
    blocks = says(f"```python:{TEST_FILE}\n{TEST}```")
    code = says(f"```python:discount.py\n{CODE}```")
    made.run(
        "blocks", [blocks, says("No."), code, says("Fine.")], "red", "green", "again", "refactor", edit_format="blocks"
    )


def collect_of_repeated(made: Collector) -> None:
    """Steps that run again: after a failure, after a review, in a fork, after a refusal by a hook."""
    project, ending, _ = made.run(
        "retried", [red(), WRONG, rewrites("def discount(price):\n    return 0\n"), rewrites("discount = abs\n")]
    )
    assert ending is not None
    state = again(ending, project, "Subtract ten.", status=Status.FAILED)
    made.run("retried", [red(), green(), content_as_it_is()], "red", "green", "refactor", state=state, project=project)
    project, ending, _ = made.run("iterated", [red(), green(), content_as_it_is()])
    assert ending is not None
    comments = Comments(project.repository, project.folder, clock=FakeClock())
    comment = comments.add(Place("discount.py", 1, 1), "And for nothing?", commit="HEAD")
    reports = find_records(project.folder).folder / "reports" / "sale"
    conversations = list(reports.glob("*.conversation"))
    test = TEST + "\n\ndef test_free():\n    assert discount(0) == 0.5\n"
    code = CODE.replace("return", "return 0.5 if price == 0 else", 1)

    def edits(path: str, content: str) -> Turn:
        return says(call("Read", file_path=path), *writes(path, content).content)

    kept = [(path.name, path.read_bytes()) for path in conversations]
    state = again(ending, project, f"Free things cost 0.5. [{comment.id}]")
    made.run(
        "iterated",
        [edits(TEST_FILE, test), edits("discount.py", code), content_as_it_is()],
        *("red", "green", "refactor"),
        state=state,
        project=project,
    )
    state = again(ending, project, "A better name.")
    turns = [content_as_it_is(), rewrites(CODE.replace("price", "amount"))]
    made.run("tidied", turns, "red", "refactor", state=state, project=project)
    project = made.project("forked")
    folder = find_records(project.folder).folder / "reports" / "sale" / FORKED
    folder.mkdir(parents=True)
    for name, data in kept:
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
    start = states.add_guidance(project.start(), 1, words="With a table.")
    made.run("forked", [red(), green(), content_as_it_is()], "red", "green", state=start, project=project)
    project = made.project("hooked")
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ngrep -q x discount.py 2>/dev/null || exit 0\necho 'no x, please'\nexit 1\n")
    hook.chmod(0o755)
    bad = writes("discount.py", CODE.replace("price", "x"))
    made.run("hooked", [red(), bad, content_as_it_is()], "", "", "green refused", project=project)


def collect_of_workflows(made: Collector) -> None:
    """The agents of ``cdd green`` and ``cdd tdd``."""
    files = {**CARTS, "tests/test_cart.py": TESTS.partition("def test_no_negative")[0]}
    shop = Shop(
        project=Project.make(
            made.folder / "green", interpreter=made.interpreter, bytecode=made.bytecode, files={**BARE, **files}
        )
    )
    model = ScriptedModel([says(call("Read", file_path="cart.py"), *writes("cart.py", MENDED).content)])
    shop.green(model=model).run()
    made.note("green", model.requests, "green")
    runs = Runs(project=made.project("tdd"))
    refused = orchestration.plan(1, testFile="no.py")
    model = ScriptedModel([refused, *orchestration.whole()])
    runs.begin(model)
    made.note("tdd", model.requests, "plan", "plan refused", "red", "green", "refactor", "plan again")


def collect_of_conversations(made: Collector) -> None:
    """Scout, Socrates, who asks and gets an answer, the Planner, and the Examiner, who looks again."""
    folder = made.project("talk").folder
    model = ScriptedModel([])
    dialog = Dialog(
        workspace=Workspace(folder), model=model, budget=Budget(), emit=lambda _: None, outline_tokens=2_000
    )
    model.queue = [says("In prices.py."), says("And nowhere else.")]
    scout = Scout(folder, dialog=dialog)
    for words in ("Where are prices added?", "Only there?"):
        scout.hear(words)
    ticket = create(folder, "sale", title="A sale", type="feature")
    changes = {"description": "Ten percent off.", "acceptance_criteria": ["WHEN it is sold THE SYSTEM SHALL cost 90"]}
    model.queue = [
        says(call("AskDeveloper", question="How much?", options=["Ten percent", "Nothing"])),
        says(call("UpdateSpec", **changes)),  # type: ignore[arg-type]
        says("Done."),
        says("No plan."),
    ]
    socrates = Socrates(ticket, dialog=dialog)
    socrates.open(somebody_answers=True)
    socrates.hear("1")
    with pytest.raises(GateClosed):
        Planner(ticket, dialog=dialog, max_drafts=3).draft()
    labels = ("scout", "scout again", "socrates", "socrates answered", "", "planner")
    made.note("talk", model.requests, *labels)
    example = (
        "```python\nfrom discount import discount\n\n\n"
        'def test_twice():\n    """AC-1: twice"""\n    assert discount(200) == 180\n```'
    )
    doubts = says(call("ReportBlocked", why="test_is_wrong", reason="It is ten off, not ten percent."))
    model = ScriptedModel(
        [red(), green(), says(example), doubts, says("KEEP test_twice"), rewrites(TIDY), content_as_it_is()]
    )
    model.answers_examiner = True
    project = made.project("examined")
    context = project.context(model)
    policy = replace(context.policy, max_examples=3, evidence_timeout_s=60)
    work = replace(
        item(tests=(NODE,)), criteria=(("AC-1", "WHEN a price is given THE SYSTEM SHALL take ten percent off"),)
    )
    with suppress(CddError):
        Cycle(work, project.start(), context=replace(context, policy=policy), save=lambda _: None).run()
    made.note("examined", model.requests, "", "", "examiner", "green", "examiner again", "green again")


@pytest.fixture(scope="module")
def requests(
    tmp_path_factory: pytest.TempPathFactory, *, interpreter: Interpreter, bytecode: Path
) -> Mapping[str, Request]:
    made = Collector(folder=tmp_path_factory.mktemp("requests"), interpreter=interpreter, bytecode=bytecode)
    collectors: tuple[Callable[[Collector], None], ...] = (
        collect_of_steps,
        collect_of_repeated,
        collect_of_workflows,
        collect_of_conversations,
    )
    for collect in collectors:
        collect(made)
    if shown := os.environ.get("CDD_DUMP"):
        shutil.rmtree(shown, ignore_errors=True)
        Path(shown).mkdir()
        for name, request in made.found.items():
            (Path(shown) / f"{name.replace(': ', '-').replace(' ', '_')}.txt").write_text(read(request))
    return made.found


def test_no_request_contradicts_itself(requests: Mapping[str, Request]) -> None:
    faults = {name: found for name, request in requests.items() if (found := find_faults(request))}
    assert faults == {}


ROWS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "feature: red": (
        ("Write the failing test of this step", "under exactly these ids", "an argument that a function does not take"),
        ("defect", "attempt 2", "landed before", "interrupted", "fork"),
    ),
    "feature: red refused": (
        ("The gate refused attempt 1:", "already_green", "The files still contain"),
        ("rolled back",),
    ),
    "feature: red refused twice": (
        ("The changes of attempt 2 were rolled back", "What it had changed:"),
        ("still contain",),
    ),
    "feature: green": (
        (
            "Make the failing tests pass",
            "How to fix failures",
            "`test_is_wrong`",
            "When you finish, cdd runs the other tests",
        ),
        ("whole suite before", "The gate refused", "No test has to"),
    ),
    "feature: green broke": (
        ("It was rolled back; do not break them again:", "Failures before the rollback:"),
        ("Fix that first",),
    ),
    "feature: refactor": (("Improve the code of this step",), ("Make the failing tests pass", "Restructure")),
    "bug: red": (("into the files that the step names", "An exception that the defect raises"), ("exactly these ids",)),
    "docs: green": (
        ("Write the documentation", "No test has to fail or to pass", "If the step needs no change"),
        ("failing tests", "`test_is_wrong`", "Code that recognizes a test"),
    ),
    "chore: green": (
        ("Carry out the chore", "No test has to fail or to pass", "If the step needs no change"),
        ("failing tests", "documentation"),
    ),
    "chore: refused": (("The gate refused attempt 1:",), ("The files still contain",)),
    "refactoring: refactor": (
        ("Restructure the code as this step describes",),
        ("If the code is good", "failing tests"),
    ),
    "sent back: red": (
        (
            "GREEN reported that the test of this step is wrong.",
            "Compare that claim",
            "assert discount(100) == 90",
            "Ten percent of 100 is 10.",
        ),
        ("was refused",),
    ),
    "sent back: green": (
        ("Since then, RED has written the test again.", "Take over what fits"),
        ("Do not repeat them",),
    ),
    "sent back: refactor": ((), ("reported",)),
    "interrupted: green": (
        ("Your earlier, interrupted work is in the files.", "Failures before that work:"),
        ("was refused", "Do not repeat them", "Current failures"),
    ),
    "retried: red": (
        ("was refused in GREEN", "The changes of that try in this phase:", "The user's guidance"),
        ("Do not repeat",),
    ),
    "retried: green": (
        ("was refused in GREEN", "The failures at its end:", "Do not repeat them:", "The user's guidance"),
        (),
    ),
    "retried: refactor": (("The user's guidance",), ("was refused",)),
    "iterated: red": (
        (
            "what the reviewer wants now",
            "Write a new test in the test files of the step",
            "`AnswerComment`",
            "from the first run",
        ),
        ("exactly these ids", "The user's guidance"),
    ),
    "iterated: green": (("Change what the reviewer wants", "Make the failing tests pass"), ("The gate refused",)),
    "iterated: refactor": (("If a part of it is still to be done",), ()),
    "forked: red": (("in a fork of the project", "from the first run", "With a table."), ("landed",)),
    "hooked: green refused": (
        ("a commit hook of the project refused the commit", "no x, please"),
        ("The gate refused",),
    ),
    "broken: green": (("The last attempt broke tests that passed before. Fix that first:",), ("rolled back",)),
    "checked docs: green": (("The tests that the step names must pass.",), ("failing tests",)),
    "tidied: refactor": (
        ("Change the code as the reviewer wants",),
        ("as this step describes", "If the code is good", "needs no change"),
    ),
    "green: green": (
        ("Make the failing tests pass", "## Manner", "number of tool calls is limited"),
        ("`Bash`", "Implement only what"),
    ),
    "tdd: plan": (("## This phase: PLAN", "test-list.md"), ("`RunTests`", "`Bash`", "failing test")),
    "tdd: plan refused": (("The gate refused attempt 1:",), ("commit hook",)),
    "tdd: red": (
        ("Write exactly one new test,", "which is a valid result", "or if it is right and passes"),
        ("So is a new test that passes at once", "the tests into the files"),
    ),
    "tdd: green": (("You make one failing test pass", "`Bash`"), ("one improvement",)),
    "tdd: refactor": (("Improve the code of this step",), ("Make the failing tests pass",)),
    "talk: scout again": (("The files of the project:", "def total(prices):"), ()),
    "talk: planner": (("def total(prices):", "write `Tests: none`"), ()),
    "examined: examiner": (("Write 3 further examples", "take ten percent off"), ()),
    "examined: green": (("a further example of a criterion fails",), ("The gate refused", "It is in no file")),
    "examined: examiner again": (("It is ten off", "assert discount(100) == 90", "assert discount(200) == 180"), ()),
    "examined: green again": (("The Examiner has looked again", "assert discount(200) == 180"), ("It is in no file",)),
    "blocks: red": (("You have no tools", "Write the failing test"), ("`RunTests`", "complete files of the step:")),
    "blocks: green": (("explain why and write no file",), ("`ReportBlocked`",)),
}
"""Request -> what cdd says in it, and what it does not say; what others wrote counts only for the first."""


def test_every_kind_of_attempt_gets_its_orders_and_no_others(requests: Mapping[str, Request]) -> None:
    wrong = {}
    for name, (has, lacks) in ROWS.items():
        request = requests[name]
        whole = read(request).rpartition("[UserMessage]")[2].partition("\n\n[tool ")[0]
        own = said(request).rpartition("[UserMessage]")[2]
        whole = read(request) if name.startswith("talk:") else f"{request.system}\n{whole}"
        found = [f"lacks {text!r}" for text in has if text not in whole]
        found += [f"has {text!r}" for text in lacks if text in own]
        if found:
            wrong[name] = found
    assert wrong == {}


def test_every_text_of_the_table_is_in_a_request(requests: Mapping[str, Request]) -> None:
    everything = "\n".join(read(request) for request in requests.values())
    starts = {name: PLACE.split(text, maxsplit=1)[0].strip() for name, text in load_texts().items()}
    unseen = {name for name, start in starts.items() if start not in everything}
    assert {row.text for row in TABLE} <= set(starts)
    assert unseen <= RARE


RARE = {
    *("interrupted", "interrupted_changes", "impact", "example"),
    *("nudge", "nudge_blocks", "nudge_objections"),
    *("where", "where_tools"),
}
"""Texts of rare occasions, which tests of their mechanism read."""
