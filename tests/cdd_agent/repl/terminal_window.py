"""A real terminal to try the prompt in: tmux."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.program import ROOT

needs_tmux = pytest.mark.needs("tmux", "-V")

_UNSET = ("ANTHROPIC_API_KEY", "NO_COLOR", "VISUAL", "EDITOR")


class Window:
    """A real terminal, a hundred columns and thirty rows unless told otherwise, on a server of its own."""

    def __init__(
        self,
        socket: Path,
        folder: Path,
        *,
        columns: int = 100,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Runs ``cdd ARGUMENTS`` in ``folder``."""
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
        self._buffer = socket.parent / "to-paste"
        variables = {"LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT), **(environment or {})}
        unset = [word for name in _UNSET for word in ("-u", name)]
        told = [f"{name}={value}" for name, value in variables.items()]
        program = shlex.join(["env", *unset, *told, sys.executable, "-m", "cdd_agent", *arguments])
        self._run("new-session", "-d", "-s", "w", "-x", str(columns), "-y", "30", "-c", str(folder), program)

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True).stdout

    def type(self, *typed: str) -> None:
        """Press keys, as tmux names them; the keys of one call arrive at once."""
        self._run("send-keys", "-t", "w", *typed)

    def type_at(self, prompt: str, *typed: str, within_s: float = 120) -> None:
        """Press keys once a line is read at ``prompt``, and nothing is typed yet.

        The same prompt also stands above, with what was typed.
        """
        end = time.monotonic() + within_s
        while self._cursor_row() != prompt:
            assert time.monotonic() < end, self.screen()
            time.sleep(0.05)
        self.type(*typed)

    def _cursor_row(self) -> str:
        row = self._run("display-message", "-p", "-t", "w", "#{cursor_y}").strip()
        return self._run("capture-pane", "-p", "-t", "w", "-S", row, "-E", row).strip()

    def paste(self, text: str, *, is_bracketed: bool = True) -> None:
        """Paste a text as a terminal does, that says where the paste begins and ends or does not."""
        self._buffer.write_text(text, encoding="utf-8")
        self._run("load-buffer", str(self._buffer))
        self._run("paste-buffer", "-t", "w", *(["-p"] if is_bracketed else []))

    def resize(self, columns: int, rows: int = 30) -> None:
        """Make the window another size, once nothing is drawn any more: what is on its way would be moved, too."""
        before = None
        while before != (now := self.screen()):
            before = now
            time.sleep(0.3)
        self._run("resize-window", "-t", "w", "-x", str(columns), "-y", str(rows))

    def screen(self, *, colors: bool = False) -> str:
        """What the screen shows, on request with the sequences that color it."""
        return self._run("capture-pane", "-p", "-t", "w", *(["-e"] if colors else []))

    def screen_with(self, *texts: str, without: tuple[str, ...] = (), within_s: float = 120) -> str:
        """What the screen shows once all of ``texts`` stand on it, and nothing of ``without``."""
        end = time.monotonic() + within_s
        while True:
            shown = self.screen()
            if all(text in shown for text in texts) and not any(text in shown for text in without):
                return shown
            assert time.monotonic() < end, shown
            time.sleep(0.05)

    def send(self, number: int) -> None:
        """Send the program a signal."""
        os.kill(int(self._run("list-panes", "-t", "w", "-F", "#{pane_pid}")), number)

    def is_open(self) -> bool:
        return subprocess.run([*self._tmux, "has-session"], capture_output=True, check=False).returncode == 0

    def wait_until_closed(self, *, within_s: float = 120) -> None:
        """Until the program has ended, and the terminal with it."""
        end = time.monotonic() + within_s
        while self.is_open():
            assert time.monotonic() < end, self.screen()
            time.sleep(0.05)

    def keep_open(self) -> None:
        """Let the window show the last words of the program after its end."""
        self._run("set-option", "-t", "w", "remain-on-exit", "on")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
