"""No way of printing lets through what a terminal would obey: twelve kinds of sequence on every one of them."""

import ast
import io
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, cast, get_args, get_origin, get_type_hints

import msgspec
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cdd_agent.cli.app import run
from cdd_agent.clock import SystemClock
from cdd_agent.config.trust import Offer
from cdd_agent.errors import UsageError
from cdd_agent.events import Event, GateJudged, encode
from cdd_agent.repl import question, session
from cdd_agent.repl.completion import Candidates
from cdd_agent.repl.prompt import make_reader
from cdd_agent.repl.render import Renderer, show_plan, show_steps, show_ticket, show_tickets
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import PromptStatus
from cdd_agent.tickets import plan_markdown
from cdd_agent.tickets.ticket import create, find, list_tickets
from cdd_agent.untrusted.text import clean
from cdd_agent.work.journal import Journal
from cdd_agent.work.state import RunState, Status, StepKey, end_step, pending_steps, start_step
from pytest_tdd_agent.report import Reason
from tests.fakes.cases import soak_after
from tests.fakes.demo import captured
from tests.fakes.reasons import make_reason
from tests.fakes.sources import PACKAGE, PLUGIN, nodes_with
from tests.fuzz import terminal as fuzz

ROOT = Path(__file__).parent.parent.parent

SEQUENCES = {
    "clears the screen": "\x1b[2J\x1b[H",
    "goes up and writes over": "\x1b[5A\rGATE OPEN",
    "colors as the ground": "\x1b[8m\x1b[38;5;16m",
    "sets the title": "\x1b]0;approved\x07",
    "makes a link": "\x1b]8;;file:///etc/passwd\x1b\\here\x1b]8;;\x1b\\",
    "fills the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "device control": "\x1bP1;1|17/ff\x1b\\",
    "message without an end": "\x1b_hidden from here on",
    "resets the terminal": "\x1bc\x1b(0",
    "one byte for two": "\x9b2J\x9d0;title\x9c\x90q\x9c",
    "writes over what it said": "safe\x08\x08\x08\x08evil\rEVIL\x07\x7f\x00\x0e",
    "turns the order round": "\u202egnp.exe\u2066\U000e0041\u200b\u00ad",
}
assert len(SEQUENCES) == 12

OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
OUR_COLORS = re.compile(r"\x1b\[(?:[0-79]|[1-4][0-9]|9[0-7]|;)*m|\r\x1b\[2K")


def hostile(sequence: str) -> str:
    return f"be{sequence}hold"


def shows(kind: object, text: str) -> object:
    """A value of a field's type in which every text is ``text``."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if str in options:
        return text
    if bool in options:
        return True
    if int in options or float in options:
        return 1
    if Reason in options:
        return make_reason(f"{text}: {text}")
    if get_origin(kind) is tuple:
        return (shows(get_args(kind)[0], text),) * 2
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            hints = get_type_hints(option)
            return option(**{name: shows(hints[name], text) for name in option.__struct_fields__})
    assert options == (NoneType,), kind
    return None


def events_with(text: str) -> list[Event]:
    """Every kind of event there is, each text in it ``text``."""
    return [cast("Event", shows(kind, text)) for kind in get_args(Event)]


# Ways to the screen.


def table(text: str) -> Table:
    made = Table(text, title=text, caption=text)
    made.add_row(text)
    made.add_row(Text(text))
    return made


def offered(text: str, screen: Screen) -> None:
    question.show_offer(Offer(subject="settings", source=text, shown=(text, text), content=b""), screen=screen)


def rendered(text: str, screen: Screen) -> None:
    renderer = Renderer(screen)
    for event in events_with(text):
        renderer.write(event)
    screen.end_prose()


def spoken(text: str, screen: Screen) -> None:
    screen.stream(text)
    screen.end_prose()


def drawn(text: str, screen: Screen) -> None:
    with screen.working(text):
        screen.say(text)
        screen.stream(f"a {text}")
        screen.stream(f" b {text}\n")


def steps(text: str, screen: Screen) -> None:
    key = StepKey(number=1, title=text, text_sha256="a")
    state = RunState(
        ticket_slug="t",
        started_at="2026-01-31T12:00:00Z",
        model=text,
        sandbox=text,
        step_executions=pending_steps((key,)),
    )
    started = start_step(state, key, now=state.started_at, base_commit="0")
    show_steps(end_step(started, 1, status=Status.FAILED, error=text, now=state.started_at), screen=screen)


def plan(text: str, screen: Screen) -> None:
    line = " ".join(text.split())
    written = (
        f"# Plan: {line}\n\n## Steps\n\n### Step 1: {line}\n- [ ] done\n- Tests: `tests/test_{line}.py`\n\nDo it.\n"
    )
    try:
        show_plan(plan_markdown.parse(written, path="plan.md"), screen=screen)
    except UsageError as error:
        screen.error(error.happened, hint=error.hint)


def judged(text: str, screen: Screen) -> None:
    reasons = (make_reason(f"{text}: {text}"),)
    Renderer(screen).write(GateJudged(phase="red", attempt=1, open=False, reasons=reasons, evidence=text))


WAYS: dict[str, Callable[[str, Screen], None]] = {
    "a line": lambda text, screen: screen.line(text),
    "a line that is a Text": lambda text, screen: screen.line(Text(text)),
    "a hung line": lambda text, screen: screen.line(text, indent=4, hang=4),
    "a gate's reason": judged,
    "an error": lambda text, screen: screen.error(text, hint=text),
    "a model's words": spoken,
    "a str for rich": lambda text, screen: screen.show(text),
    "a Text for rich": lambda text, screen: screen.show(Text(text), wrap=False),
    "a Panel": lambda text, screen: screen.show(Panel(text, title=text, subtitle=text)),
    "Markdown": lambda text, screen: screen.show(Markdown(f"# {text}\n\n`{text}` [a]({text})\n\n```\n{text}\n```\n")),
    "a table": lambda text, screen: screen.show(table(text)),
    "what is going on": drawn,
    "an approval": offered,
    "events": rendered,
    "the steps of a run": steps,
    "a plan": plan,
}


@soak_after(6, "way", WAYS)
def test_nothing_that_a_terminal_obeys_is_printed(way: str) -> None:
    for kind, sequence in SEQUENCES.items():
        with captured() as (screen, shown):
            WAYS[way](hostile(sequence), screen)
        assert "be" in shown.getvalue(), kind
        assert not OBEYED.findall(shown.getvalue()), kind


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@soak_after(4, "kind", SEQUENCES)
def test_a_terminal_gets_our_colors_and_nothing_else(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    screen = Screen(stream, color=True)
    screen.console.width = 60
    for print_it in WAYS.values():
        print_it(hostile(SEQUENCES[kind]), screen)
    shown = stream.getvalue()
    assert OUR_COLORS.search(shown)
    assert not OBEYED.findall(OUR_COLORS.sub("", shown))


# The prompt.


@contextmanager
def prompt(written: io.StringIO) -> Iterator[Callable[[str], None]]:
    """A line editor on a terminal that writes down what it is sent, and how keys are pressed there."""
    output = Vt100_Output(written, get_size=lambda: Size(rows=30, columns=300), term="xterm")
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        yield keys.send_text


@soak_after(1, "kind", SEQUENCES)
def test_the_prompt_its_toolbar_and_its_history_are_text(kind: str, tmp_path: Path) -> None:
    text = hostile(SEQUENCES[kind])
    (tmp_path / "history").write_text(f"\n# 2026-01-31\n+{text}\n", encoding="utf-8")
    place = PromptStatus(
        agent=text, ticket=text, step=text, phase=text, gate="open", model=text, cost=text, sandbox=text
    )
    written = io.StringIO()
    with prompt(written) as press:
        read = make_reader(tmp_path / "history", candidates=Candidates(slugs=lambda: [("behold", text)]), model=text)
        press("\x1b[A\r")
        recalled = read(place)
        press("/spec b\r")
        read(place)
    assert written.getvalue()
    assert not [piece for piece in re.split("(?=[\x1b\x90\x9b\x9d])", SEQUENCES[kind]) if sent(piece, written)]
    assert recalled == clean(" ".join(text.split("\n")))


def sent(piece: str, written: io.StringIO) -> bool:
    """Whether what begins with a control character went to the terminal as it is."""
    return bool(piece) and bool(OBEYED.match(piece)) and piece in written.getvalue()


# The command line.


@pytest.mark.parametrize(
    "typed",
    [
        ("{}",),
        ("--{}",),
        ("status", "{}"),
        ("new", "{}"),
        ("exec", "a", "--step", "{}"),
        ("--project", "{}"),
        ("demo", "{}"),
    ],
)
def test_what_is_typed_wrongly_is_told_as_text(
    typed: tuple[str, ...], tmp_path: Path, *, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, sequence in SEQUENCES.items():
        arguments = [word.format(hostile(sequence).replace("\x00", "")) for word in typed]
        assert run(["--project", str(tmp_path), *arguments]) in {2, 4}, kind
        told = capsys.readouterr()
        assert "error: " in told.err, kind
        assert not OBEYED.findall(told.out + told.err), kind


@pytest.mark.parametrize("arguments", [[], ["spec"], ["plan"], ["exec"], ["new"], ["status"], ["demo"], ["schema"]])
def test_help_is_text(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--help"]) == 0
    assert not OBEYED.findall(capsys.readouterr().out)


@soak_after(4, "kind", SEQUENCES)
def test_tickets_that_a_repository_brings_are_listed_as_text(kind: str, tmp_path: Path) -> None:
    ticket = create(tmp_path, "a", title="A", type="feature")
    escaped = "".join(f"\\U{ord(character):08x}" for character in hostile(SEQUENCES[kind]))
    spec = ticket.spec_path.read_text(encoding="utf-8").replace("title: A", f'title: "{escaped}"')
    ticket.spec_path.write_text(spec, encoding="utf-8")
    with captured() as (screen, shown):
        show_tickets(list_tickets(tmp_path), screen=screen)
        try:
            show_ticket(find(tmp_path, "a"), screen=screen, journal=tmp_path / "none")
        except UsageError as error:
            screen.error(error.happened, hint=error.hint)
    assert shown.getvalue()
    assert not OBEYED.findall(shown.getvalue())


# What is kept, and what a person may later look at with cat.


@pytest.mark.parametrize("kind", SEQUENCES)
def test_the_journal_and_json_output_are_text_and_lose_nothing(kind: str, tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "events.jsonl", clock=SystemClock())) as journal:
        for event in events_with(hostile(SEQUENCES[kind])):
            journal.write(event)
            assert not OBEYED.findall(encode(event).decode())
    kept = (tmp_path / "events.jsonl").read_text(encoding="utf-8")
    assert "be" in kept
    assert not OBEYED.findall(kept)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_crash_is_told_and_kept_as_text(kind: str) -> None:
    error = RuntimeError(hostile(SEQUENCES[kind]))
    report = session.save_crash_report(error)
    try:
        happened, hint = session.describe_crash(error, report)
        assert "be" in happened
        assert not OBEYED.findall(happened + hint + report.read_text(encoding="utf-8"))
    finally:
        report.unlink()


@pytest.mark.slow
def test_a_crash_of_the_whole_program_is_told_as_text(tmp_path: Path) -> None:
    code = "import sys; from cdd_agent import __main__ as m; sys.excepthook = m._crash; raise KeyError(sys.argv[1])"
    text = hostile("".join(SEQUENCES.values()).replace("\x00", ""))
    ended = subprocess.run(
        [sys.executable, "-c", code, text],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 70
    assert ended.stderr.startswith(b"error: cdd has a bug: KeyError: ")
    assert not OBEYED.findall(ended.stderr.decode())


# Nobody else prints.

HANDLES = {
    ("cdd_agent/__main__.py", "print"): "the version",
    ("cdd_agent/__main__.py", "sys.stderr"): "crash.explain, which is clean",
    ("cdd_agent/cli/app.py", "Screen"): "what went wrong",
    ("cdd_agent/cli/app.py", "sys.stdout"): "flushed; a file of the package",
    ("cdd_agent/cli/app.py", "sys.stderr"): "given to a Screen; a constant that shows the cursor again",
    ("cdd_agent/cli/generate.py", "sys.stdout"): "JSON in ASCII",
    ("cdd_agent/cli/graph.py", "sys.stdout"): "JSON in ASCII",
    ("cdd_agent/cli/graph.py", "click.echo"): "a diagram whose labels are escaped, for another program",
    ("cdd_agent/cli/inspect.py", "sys.stdout"): "JSON in ASCII",
    ("cdd_agent/cli/run.py", "sys.stdout"): "JSON of the artifact",
    ("cdd_agent/git/lfs_filter.py", "sys.stdout"): "read by git",
    ("cdd_agent/testrun/inside/inert.py", "print"): "of the tests' own process",
    ("cdd_agent/testrun/inside/inert.py", "sys.stderr"): "of the tests' own process",
    ("cdd_agent/testrun/inside/unittest_program.py", "sys.stdout"): "of the tests' own process",
    ("cdd_agent/testrun/inside/unittest_program.py", "sys.stderr"): "of the tests' own process",
    ("cdd_agent/cli/invocation.py", "Screen"): "where a person reads",
    ("cdd_agent/cli/invocation.py", "sys.stdout"): "given to a Screen; events.codec escapes; let go of",
    ("cdd_agent/cli/invocation.py", "sys.stderr"): "given to a Screen; let go of",
    ("cdd_agent/repl/checkpoint_actions.py", "sys.stdout"): "JSON in ASCII",
    ("cdd_agent/repl/screen.py", "_Console"): "cleans what it renders",
    ("cdd_agent/repl/screen.py", "input"): "without a prompt",
    ("cdd_agent/repl/screen.py", "sys.stdout"): "given to the console",
    ("cdd_agent/repl/workflow_actions.py", "sys.stdout"): "asked whether it is a terminal",
    ("cdd_agent/repl/rows.py", "Console"): "measures and lays out, prints nothing",
    ("cdd_agent/repl/screen.py", ".file"): "flushed",
    ("cdd_agent/repl/prompt.py", "PromptSession"): "escapes controls itself; what it is given is clean",
    ("cdd_agent/repl/prompt.py", "print"): "a line that was typed earlier, clean",
    ("cdd_agent/repl/prompt.py", "input"): "with a prompt that is clean",
    ("pytest_tdd_agent/parent/judging.py", "sys.stdout"): "the report in ASCII; the section, through a TerminalWriter",
    ("pytest_tdd_agent/parent/judging.py", "sys.stderr"): "a path that the user chose",
    ("pytest_tdd_agent/plugin.py", "sys.stdout"): "the report where --tdd-agent-report is -, in ASCII",
    ("pytest_tdd_agent/unstarted.py", "sys.stdout"): "the report where --tdd-agent-report is -, in ASCII",
}
"""Module and what it can print with -> what it prints."""

_NAMES = {"print", "input", "Console", "_Console", "Screen", "PromptSession", "Prompt", "Live"}
_ATTRIBUTES = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
_CLICK = {"echo", "secho", "confirm", "prompt", "pause", "edit", "echo_via_pager", "style"}
_LAST_PARTS = {attribute.partition(".")[2] for attribute in _ATTRIBUTES} | _CLICK | {"file"}


def handles(node: ast.AST) -> set[str]:
    """Return what a node can print with."""
    found = set()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
        found.add(node.func.id)
    if isinstance(node, ast.Attribute) and node.attr in _LAST_PARTS:
        dotted = ast.unparse(node)
        found |= {dotted} & _ATTRIBUTES
        found |= {dotted} if dotted.startswith("click.") and node.attr in _CLICK else set()
        found |= {".file"} if node.attr == "file" and ast.unparse(node.value).endswith("console") else set()
    if isinstance(node, ast.Constant) and node.value == "/dev/tty":
        found.add("/dev/tty")
    return found


def test_every_handle_on_the_terminal_is_known_and_has_a_reason() -> None:
    words = (*(f"{name}(" for name in _NAMES), *_ATTRIBUTES, "click.", "console.file", "/dev/tty")
    found = {
        (module.relative_to(ROOT).as_posix(), handle)
        for module, node in nodes_with(*words, packages=(PACKAGE, PLUGIN))
        for handle in handles(node)
    }
    assert found == set(HANDLES)


BEHIND_OUR_BACK = """
import sys, tempfile
from pathlib import Path
from cdd_agent.sandbox.choice import choose
from cdd_agent.sandbox.port import Access, Command
here = Path(tempfile.mkdtemp())
shell = "echo HID''DEN > /dev/tty; echo HID''DEN > /dev/console"
open("/dev/tty", "w").write("this one has a terminal\\n")
command = Command(argv=("bash", "-c", shell), cwd=here, access=Access(read_write=(here,)), timeout_s=20)
choose(sys.argv[1], unattended=False).run(command)
print("the end", flush=True)
"""


@soak_after(1, "level", ["auto", "none"])
def test_a_command_cannot_print_past_us(level: str) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", BEHIND_OUR_BACK, level])
    shown = b""
    while b"the end" not in shown:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    os.waitpid(process, 0)
    os.close(terminal)
    assert b"this one has a terminal" in shown
    assert b"the end" in shown, shown
    assert b"HIDDEN" not in shown


# Very many texts, and very long ones.


def test_ten_thousand_random_texts_come_out_clean() -> None:
    figures = fuzz.run(10_000, 4)
    assert figures.bad == 0, figures.example


@soak_after(3, "unit", ["\x1b", "\x1b[", "\x1b]", "\x1b[1;", "\x9b", "\u200d", "\ufe0f", "\U000e0041", "\r\n", "a"])
def test_cleaning_takes_time_in_line_with_the_length(unit: str) -> None:
    """200 KB of the worst take a tenth of a second; anything that grew with the square would take minutes."""
    started = time.process_time()
    shown = clean(unit * (200_000 // len(unit)))
    assert time.process_time() - started < 5
    assert not OBEYED.search(shown)
