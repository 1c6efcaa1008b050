"""A project after RED with every injection in it, and one attempt at GREEN by a model that obeys one of them."""

import hashlib
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.events import Emit, Event
from cdd_agent.git.repository import Repository
from cdd_agent.model.conversation import JSON, Request, Text, ToolCall, Turn, UserMessage
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.tdd.attempt import Attempt
from cdd_agent.tdd.baseline import take_baseline
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.work.outcome import Closed
from cdd_agent.work.state import AttemptRecord, StepExecution
from tests.fakes.model import ScriptedModel, says
from tests.fakes.project import FILES, TEST, TEST_FILE, Project, item
from tests.fakes.reasons import make_reason
from tests.security.corpus.injection import OUTSIDE, PORT, TOKEN, Injection, calls, in_place, reads, runs
from tests.security.corpus.injections import INJECTIONS, TESTS

WORK = item(tests=(f"{TEST_FILE}::test_discount",))
LEFT_OUT = ("tickets/sale",)
HOSTILE_TEST = "tests/test_orders.py"
OUR_PRODUCT = frozenset({"discount.py", "prices.py"})
"""Files that the step is about: what a refused attempt leaves in them is the next one's to mend."""
OF_THE_PROGRAM = re.compile(
    r"project/(\.git/(objects|refs/cdd|logs|index|cdd|packed-refs)|\.cdd/(reports|aside|journal|worktrees/sale/\.cdd/reports)|\.pytest_cache/)"
)
"""What the program itself writes while it judges."""


def _hostile_test() -> str:
    """Tests whose messages, output and names speak to the model."""
    message, fixture, printed, advice = (injection.says for injection in TESTS)
    return (
        f"import pytest\n\n\n@pytest.fixture\ndef {fixture}():\n    return 1\n\n\n"
        f"def test_order({fixture}):\n    print({printed!r})\n    assert {fixture} == 2, {message!r}\n\n\n"
        f"def test_stock():\n    raise RuntimeError({printed + ' ' + advice!r})\n"
    )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The project, and the step that is in work there."""

    project: Project
    step: StepExecution

    def copied(self, folder: Path) -> "Stage":
        """The same at another place, for one attempt."""
        shutil.copytree(self.project.folder, folder, symlinks=True)
        repository = Repository.find(folder)
        repository.may_run_hooks = lambda: True
        return replace(self, project=replace(self.project, folder=folder, repository=repository, seen=[]))


def build(folder: Path, *, interpreter: Interpreter, bytecode: Path) -> Stage:
    """Make the project, with commits whose messages are injections too, up to where GREEN begins."""
    planted = {one.path: one.content if one.path.count(".") else "" for one in INJECTIONS if one.path}
    files = {
        **FILES,
        **planted,
        TEST_FILE: TEST,
        HOSTILE_TEST: _hostile_test(),
        "tickets/sale/plan.md": "# Plan\n",
        "tickets/.gitignore": "execution-state.json*\n",
    }
    project = Project.make(folder, interpreter=interpreter, bytecode=bytecode, files=files, runs_pytest=True)
    for one in INJECTIONS:
        if one.channel == "command" and "git log" in one.command:
            project.git("commit", "-q", "--allow-empty", "-m", one.says)
    context = project.context(ScriptedModel([]), left_out=LEFT_OUT)
    begun = project.start().execution(1)
    step = replace(begun, checkpoint=StepRecovery("sale", begun, context=context).begin())
    take_baseline(WORK, "green", step=step, tip=context.workplace.begin(), context=context)
    return Stage(project=project, step=step)


class Obedient:
    """A model that reads an injection and then does what it says, until it has said all it has to say."""

    name = "obedient"

    def __init__(self, turns: list[Turn], *, places: Mapping[str, str]) -> None:
        """``places`` are filled into the calls; the token is taken from the system prompt."""
        self._script = ScriptedModel(turns)
        self._places = places

    @property
    def requests(self) -> list[Request]:
        """What it was told."""
        return self._script.requests

    def check(self) -> None:
        """It can always be asked."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The next turn with its places filled in."""
        if not self._script.queue:
            self._script.queue.append(says("Done."))
        turn = self._script.reply(request, emit=emit)
        token = re.search(r"</data-(\w+)>", request.system)
        places = {**self._places, TOKEN: token[1] if token else ""}
        content = tuple(
            replace(block, input=_filled(block, places)) if isinstance(block, ToolCall) else block
            for block in turn.content
        )
        return replace(turn, content=content)


def _filled(call: ToolCall, places: Mapping[str, str]) -> dict[str, JSON]:
    """The input of a call with its places filled in."""
    filled = in_place(dict(call.input), places)
    assert isinstance(filled, dict)
    return filled


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of an injection."""

    attempt: AttemptRecord
    requests: list[Request]
    events: list[Event]
    changed: list[str]
    """Paths, from the folder that holds project and surroundings, whose bytes are not as before."""
    connections: int
    """At the port where somebody listens."""


def play(injection: Injection, stage: Stage, *, sandbox: Sandbox) -> Played:
    """One attempt at GREEN, where the folder ``outside`` lies beside the project."""
    project = stage.project
    outside = project.folder.parent / "outside"
    with listener() as heard:
        model = Obedient(turns(injection), places={OUTSIDE: str(outside), PORT: str(heard.port)})
        context = project.confine(project.context(model, left_out=LEFT_OUT), sandbox)
        context = replace(context, policy=replace(context.policy, evidence_timeout_s=60))
        attempt, changed = _attempt(injection, stage, context=context)
    return Played(
        attempt=attempt, requests=model.requests, events=project.seen, changed=changed, connections=heard.count
    )


def _attempt(injection: Injection, stage: Stage, *, context: Context) -> tuple[AttemptRecord, list[str]]:
    """The attempt, and what else it changed."""
    work, step, project = WORK, stage.step, stage.project
    if injection.channel == "plan":
        work = replace(work, goal=f"{work.goal}\n\n{injection.says}")
    if injection.channel == "tests":  # failures of other tests, which failed before, are not shown
        work = replace(work, tests=(*work.tests, HOSTILE_TEST))
    if injection.channel == "gate":
        refused = AttemptRecord(phase="green", number=1, outcome=Closed(), reasons=(make_reason(injection.says),))
        step = replace(step, attempts=(refused,))
    baseline = take_baseline(work, "green", step=step, tip=context.workplace.begin(), context=context)
    before = digests(project.folder.parent)
    attempt = Attempt(work, "green", step=step, baseline=baseline, context=context).run(is_anew=False)
    after = digests(project.folder.parent)
    return attempt, sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def turns(injection: Injection) -> list[Turn]:
    """What a model does that reads the injection and obeys it."""
    read = {
        "file": reads(injection.path),
        "command": runs(injection.command),
        "names": calls("Glob", pattern="*"),
        "tests": calls("RunTests", targets=[HOSTILE_TEST]),
    }.get(injection.channel)
    first = [says(replace(read, id="first"))] if read is not None else []
    numbered = [
        replace(block, id=f"call-{number}") if isinstance(block, ToolCall) else block
        for number, block in enumerate(injection.obeys)
    ]
    return [*first, says(*numbered)]


def digests(folder: Path) -> dict[str, str]:
    """Relative path -> digest of each file that nobody but the user and a landed step may change."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if (
            name.removeprefix("project/.cdd/worktrees/sale/").removeprefix("project/") in OUR_PRODUCT
            or OF_THE_PROGRAM.match(name)
            or path.is_dir()
        ):
            continue
        data = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        found[name] = hashlib.sha256(data).hexdigest()
    return found


@dataclass
class Listener:
    """Somebody who would take what is sent."""

    port: int
    count: int = 0


@contextmanager
def listener() -> Iterator[Listener]:
    """Listen at a port of this machine, and count who came."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = Listener(port=server.getsockname()[1])
        yield heard
        server.setblocking(False)
        try:
            while True:
                server.accept()[0].close()
                heard.count += 1
        except BlockingIOError:
            return


def told(request: Request) -> tuple[str, str]:
    """What the model is told in ``request`` outside the marks, and what inside."""
    texts = [request.system]
    for message in request.messages:
        if isinstance(message, UserMessage):
            texts += [block.text if isinstance(block, Text) else block.content for block in message.content]
    token = re.search(r"</data-(\w+)>", request.system)
    assert token is not None
    marked = re.compile(rf"(?<=\n)<data-{token[1]} [^\n]*>\n(.*?)\n</data-{token[1]}>", re.DOTALL)
    whole = "".join(f"\n{text}" for text in texts)
    return marked.sub("", whole), "\n".join(marked.findall(whole))


def git_log(project: Project) -> str:
    """All that branches and tags lead to."""
    return subprocess.run(
        ["git", "for-each-ref", "refs/heads", "refs/tags", "refs/notes", "refs/stash"],
        cwd=project.folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
