"""Each line typed at a random moment of a real prompt is carried out."""

import os
import pty
import random
import re
import select
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

import pytest

from cdd_agent.model.conversation import Text
from cdd_agent.model.recording import RecordedTurn
from cdd_agent.work.records import find_records
from tests.fakes.messages_server import STREAM_HEAD, Fault, MessagesServer, event_bytes, turn_events
from tests.fakes.program import KEY, command, environment

_IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the standard input the terminal of a new session, and runs the arguments."""
_MOMENTS = 1_000
"""More answers than any test needs."""


def _answer_slowly(number: int, *, pause_s: float) -> Fault:
    turn = RecordedTurn(number=number, content=(Text(text="I think about it. " * 9),), stop_reason="end_turn")
    events = [event_bytes(event) for event in turn_events(turn)]
    half = len(events) // 2
    return Fault(raw=(STREAM_HEAD, *events[:half], pause_s, *events[half:]))


class Terminal:
    """A terminal 200 columns wide that answers as terminals do, with the prompt in it."""

    def __init__(self, project: Path, variables: dict[str, str]) -> None:
        self.controls, own = pty.openpty()
        ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, *command("--model", "claude-loopback", "--sandbox", "none")],
            cwd=project,
            env=variables,
            stdin=own,
            stdout=own,
            stderr=own,
            start_new_session=True,
        )
        os.close(own)

    def type(self, text: str) -> None:
        os.write(self.controls, text.encode())

    def watch(self, seconds: float) -> None:
        """Read what is shown for a while, and say where the cursor is whenever that is asked."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.controls], [], [], left)[0]:
                with suppress(OSError):
                    piece = os.read(self.controls, 65_536).decode("utf-8", "replace")
                    self.shown += piece
                    for _ in range(piece.count("\x1b[6n")):
                        self.type("\x1b[40;1R")

    def watch_for(self, text: str, *, within_s: float = 60) -> None:
        """Until ``text`` is shown after what was shown before."""
        end = time.monotonic() + within_s
        while text not in self.shown and time.monotonic() < end:
            self.watch(0.1)
        assert text in self.shown, self.shown
        self.shown = ""

    def watch_until_idle(self) -> None:
        """Until nothing has been shown for two seconds."""
        before = None
        while before != len(self.shown):
            before = len(self.shown)
            self.watch(2)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.controls)


def _press(terminal: Terminal, line: str, *, draw: random.Random) -> None:
    for key in line:
        terminal.type(key)
        terminal.watch(draw.uniform(0.05, 0.12))
    terminal.type("\r")


def _name(number: int) -> str:
    return f"q{number:03}q"


def _draw_line(number: int, *, draw: random.Random) -> str:
    token = _name(number)
    return draw.choice((f"say {token}", f"/{token}", f"/{token}", "/doctor"))


def _try_moments(project: Path, home: Path, *, moments: int, seed: int) -> tuple[list[str], str]:
    """Type a line at each of the moments; return those that were not carried out, and all that was shown."""
    draw, typed = random.Random(seed), ""
    faults = [_answer_slowly(number, pause_s=draw.uniform(0.1, 0.9)) for number in range(_MOMENTS)]
    with MessagesServer(faults=faults) as server:
        more = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY, "TERM": "xterm", "COLUMNS": "200"}
        terminal = Terminal(project, environment(home, **more))
        try:
            terminal.watch(draw.uniform(0, 1.5))
            _press(terminal, "/spec", draw=draw)
            for number in range(moments):
                terminal.watch(draw.choice((0, 0.05, 0.3, 1)))
                line = _draw_line(number, draw=draw)
                typed += line
                _press(terminal, line, draw=draw)
                if draw.random() < 0.1:
                    terminal.watch(2)  # a second Ctrl-C soon after the first would end the program
                    shown = len(terminal.shown)
                    terminal.type(draw.choice("\x03\x1b"))
                    terminal.watch(0.3)
                    if "Cleared" in terminal.shown[shown:]:  # later letters are not drawn if they are there already
                        terminal.type("\x1b[A")
            terminal.watch_until_idle()
            for _ in range(moments):  # what waits in the prompt since a Ctrl-C
                shown = len(terminal.shown)
                terminal.type("\r")
                terminal.watch_until_idle()
                if not re.search(r"q\d{3}|/doctor|say", terminal.shown[shown:]):
                    break
            assert terminal.process.poll() is None, terminal.shown
        finally:
            terminal.close()
    carried_out = (find_records(project).folder / "history").read_text(encoding="utf-8")
    names = (_name(number) for number in range(moments))
    return [name for name in names if name in typed and name not in carried_out], terminal.shown


@pytest.mark.slow
def test_lines_typed_at_a_few_moments_are_kept(project: Path, tmp_path: Path) -> None:
    lost, story = _try_moments(project, tmp_path / "home", moments=3, seed=5)
    assert lost == [], story


def test_esc_stops_an_answer_once_and_keeps_what_was_typed(project: Path, tmp_path: Path) -> None:
    faults = [_answer_slowly(number, pause_s=120) for number in range(2)]
    with MessagesServer(faults=faults) as server:
        more = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY, "TERM": "xterm", "COLUMNS": "200"}
        terminal = Terminal(project, environment(tmp_path / "home", **more))
        try:
            terminal.type("what does it read?\r")
            terminal.watch_for("I think about it.")
            terminal.type("/status")
            terminal.watch(0.3)
            terminal.type("\x1b[D")  # an arrow begins with the same byte
            terminal.watch(0.5)
            assert "Stopped" not in terminal.shown
            terminal.type("\x1b\x1b")
            terminal.watch(0.2)
            terminal.type("\x1b")
            terminal.watch_for("Stopped. All work is in a consistent state.")
            terminal.watch(1)
            terminal.type("\r")
            terminal.watch_for("Minutes without a unit are lost")
            assert terminal.process.poll() is None
        finally:
            terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_lines_typed_at_many_moments_are_kept(project: Path, tmp_path: Path, seed: int) -> None:
    lost, story = _try_moments(project, tmp_path / "home", moments=50, seed=seed)
    assert lost == [], story
