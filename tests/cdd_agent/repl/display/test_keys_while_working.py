"""What is typed while something works: not shown, and the terminal is as it was after it, however that ends."""

import os
import pty
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.terminal.typed_ahead import ECHO


class Terminal:
    """A terminal with a process of its own that runs ``work``; the process ends with the test."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.process, self._controls = pty.fork()
        if self.process == 0:
            try:
                sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
                work()
            finally:
                os._exit(7)

    @property
    def shows_keys(self) -> bool:
        return bool(termios.tcgetattr(self._controls)[3] & termios.ECHO)

    def type(self, text: str) -> None:
        os.write(self._controls, text.encode())

    def shown_until(self, text: str) -> str:
        """All that is shown until ``text`` is."""
        shown = ""
        while text not in shown:
            shown += os.read(self._controls, 1000).decode()
        return shown

    def close(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            os.kill(self.process, number)
        os.waitpid(self.process, 0)
        os.close(self._controls)


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], None]], Terminal]]:
    opened: list[Terminal] = []

    def start(work: Callable[[], None]) -> Terminal:
        opened.append(Terminal(work))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def works() -> None:
    screen = Screen(sys.stdout, animated=False)
    with screen.working("waiting"):
        screen.line("begun")
        sys.stdin.readline()
        screen.line("done")
    screen.line("over")
    sys.stdin.readline()


def test_keys_are_shown_before_and_after_and_not_meanwhile(run: Callable[..., Terminal]) -> None:
    terminal = run(works)
    terminal.shown_until("begun")
    assert not terminal.shows_keys
    terminal.type("\x12\x1babc\n")
    assert "abc" not in terminal.shown_until("over")
    wait_until(lambda: terminal.shows_keys)


def asks() -> None:
    screen = Screen(sys.stdout, animated=False)
    with screen.working("waiting"):
        screen.line(f"said {screen.ask('Well?')}")
        sys.stdin.readline()


def test_a_question_shows_what_is_answered(run: Callable[..., Terminal]) -> None:
    terminal = run(asks)
    terminal.shown_until("Well?")
    assert terminal.shows_keys
    terminal.type("yes\n")
    assert terminal.shown_until("said yes").count("yes") == 2
    wait_until(lambda: not terminal.shows_keys)


def is_stopped() -> None:
    screen = Screen(sys.stdout, animated=False)
    try:
        with screen.working("waiting"):
            screen.ask("Well?")
    except KeyboardInterrupt:
        screen.line("Stopped.")
    sys.stdin.readline()


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_what_is_told_after_no_answer_begins_a_row(run: Callable[..., Terminal], key: str) -> None:
    terminal = run(is_stopped)
    terminal.shown_until("Well?")
    terminal.type(key)
    assert "\r\nStopped." in terminal.shown_until("Stopped.")
    assert terminal.shows_keys


def test_the_shell_gets_the_terminal_as_it_was_while_the_process_is_stopped(run: Callable[..., Terminal]) -> None:
    terminal = run(works)
    terminal.shown_until("begun")
    os.kill(terminal.process, signal.SIGTSTP)  # of no effect on a process that no shell could go on with
    wait_until(lambda: not terminal.shows_keys)
    terminal.type("\n")
    terminal.shown_until("over")


def fails() -> None:
    try:
        with Screen(sys.stdout, animated=False).working("waiting"):
            raise SystemExit
    finally:
        sys.stdin.readline()


def gives_up() -> None:
    with ECHO.off():
        ECHO.restore()
        sys.stdin.readline()


@pytest.mark.parametrize("work", [fails, gives_up])
def test_whatever_ends_it_keys_are_shown(run: Callable[..., Terminal], work: Callable[[], None]) -> None:
    terminal = run(work)
    wait_until(lambda: terminal.shows_keys)


def test_without_a_terminal_nothing_is_changed() -> None:
    with ECHO.off(), ECHO.on():
        pass
