"""What is typed while something works: not shown, and the terminal is as it was after it, however that ends."""

import os
import pty
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from cdd_agent.repl.terminal import KEYBOARD

_PREPARED = """
import sys
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import KEYBOARD
screen = Screen(sys.stdout, animated=False)
"""


class Terminal:
    """A terminal with a process of its own that carries out ``work``; the process ends with the test."""

    def __init__(self, work: str) -> None:
        self._unread = ""
        self.process, self._controls = pty.fork()
        if self.process == 0:
            os.execv(sys.executable, [sys.executable, "-c", _PREPARED + work])

    @property
    def shows_keys(self) -> bool:
        return bool(termios.tcgetattr(self._controls)[3] & termios.ECHO)

    def type(self, text: str) -> None:
        os.write(self._controls, text.encode())

    def shown_until(self, text: str) -> str:
        """All that is shown until ``text`` is."""
        shown = self._unread
        while text not in shown:
            shown += os.read(self._controls, 1000).decode()
        # Under load one read returns more than is waited for now.
        end = shown.index(text) + len(text)
        self._unread = shown[end:]
        return shown[:end]

    def close(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            os.kill(self.process, number)
        os.waitpid(self.process, 0)
        os.close(self._controls)


Run: TypeAlias = Callable[[str], Terminal]


@pytest.fixture
def run() -> Iterator[Run]:
    opened: list[Terminal] = []

    def start(work: str) -> Terminal:
        opened.append(Terminal(work))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


WORKS = """
with screen.working("waiting"):
    screen.line("begun")
    sys.stdin.readline()
    screen.line("done")
screen.line("over")
sys.stdin.readline()
"""


def test_keys_are_shown_before_and_after_and_not_meanwhile(run: Run) -> None:
    terminal = run(WORKS)
    terminal.shown_until("begun")
    assert not terminal.shows_keys
    terminal.type("\x12\x1babc\n")
    assert "abc" not in terminal.shown_until("over")
    wait_until(lambda: terminal.shows_keys)


ASKS = """
with screen.working("waiting"):
    screen.line(f"said {screen.ask('Well?')}")
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_program_that_is_killed_while_it_hides_keys_leaves_them_shown(run: Run) -> None:
    terminal = run(
        """
import subprocess
with screen.working(""):
    with screen.lend():
        subprocess.run(["stty", "-echo"])  # as ssh does, which asks for a password
        print("asking", flush=True)
print("done", flush=True)
input()
"""
    )
    terminal.shown_until("done")
    assert terminal.shows_keys


@pytest.mark.slow
def test_a_question_shows_what_is_answered(run: Run) -> None:
    terminal = run(ASKS)
    terminal.shown_until("Well?")
    terminal.type("yes\n")
    assert terminal.shown_until("said yes").count("yes") == 2  # typed, and said
    wait_until(lambda: not terminal.shows_keys)


IS_STOPPED = """
try:
    with screen.working("waiting"):
        screen.ask("Well?")
except KeyboardInterrupt:
    screen.line("Stopped.")
sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_what_is_told_after_no_answer_begins_a_row(run: Run, key: str) -> None:
    terminal = run(IS_STOPPED)
    terminal.shown_until("Well?")
    terminal.type(key)
    assert "\r\nStopped." in terminal.shown_until("Stopped.")
    assert terminal.shows_keys


@pytest.mark.slow
def test_the_shell_gets_the_terminal_as_it_was_while_the_process_is_stopped(run: Run) -> None:
    terminal = run(WORKS)
    terminal.shown_until("begun")
    os.kill(terminal.process, signal.SIGTSTP)  # of no effect on a process that no shell could go on with
    wait_until(lambda: not terminal.shows_keys)
    terminal.type("\n")
    terminal.shown_until("over")


FAILS = """
try:
    with screen.working("waiting"):
        raise SystemExit
finally:
    screen.line("over")
    sys.stdin.readline()
"""


GIVES_UP = """
with KEYBOARD.hide_keys():
    KEYBOARD.restore()
    screen.line("over")
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.parametrize("work", [FAILS, GIVES_UP])
def test_whatever_ends_it_keys_are_shown(run: Run, work: str) -> None:
    terminal = run(work)
    terminal.shown_until("over")
    wait_until(lambda: terminal.shows_keys)


READS_TWO_LINES = """
import os, select
from cdd_agent.repl.completion import Candidates
from cdd_agent.repl.prompt import make_reader
from cdd_agent.repl.terminal import PromptStatus
os.environ["PROMPT_TOOLKIT_NO_CPR"] = "1"
read = make_reader(None, candidates=Candidates())
with KEYBOARD.keep_keys():
    KEYBOARD.typed.press("/doctor\\r")
    KEYBOARD.typed.hold()
    KEYBOARD.typed.press(BEGUN)
    print("stopped", flush=True)
    select.select([0], [], [])
    for _ in range(2):
        print(f"[read {read(PromptStatus())} here]", flush=True)
"""


@pytest.mark.parametrize(("begun", "rest"), [("", "/q007q"), ("/q", "007q")])
def test_a_line_typed_before_the_prompt_is_drawn_does_not_join_a_line_that_waits(
    run: Run, begun: str, rest: str
) -> None:
    terminal = run(READS_TWO_LINES.replace("BEGUN", repr(begun)))
    terminal.shown_until("stopped")
    terminal.type(f"{rest}\r")
    terminal.shown_until("/doctor")
    terminal.type("\r")
    assert "[read /doctor here]" in terminal.shown_until(" here]")
    terminal.shown_until("/q007q")
    terminal.type("\r")
    assert "[read /q007q here]" in terminal.shown_until(" here]")


def test_without_a_terminal_nothing_is_changed() -> None:
    with KEYBOARD.hide_keys(), KEYBOARD.show_keys():
        pass
