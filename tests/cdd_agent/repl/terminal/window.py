"""A real terminal to try the prompt in: tmux."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.program import ROOT

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Window:
    """A real terminal of a hundred columns and thirty rows, on a server of its own."""

    def __init__(self, socket: Path, folder: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
        program = f"env -u ANTHROPIC_API_KEY LC_ALL=C.UTF-8 PYTHONPATH={ROOT} {sys.executable} -m cdd_agent"
        self._run("new-session", "-d", "-s", "w", "-x", "100", "-y", "30", "-c", str(folder), program)

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True).stdout

    def type(self, *typed: str) -> None:
        self._run("send-keys", "-t", "w", *typed)

    def screen_with(self, *texts: str) -> str:
        """What the screen shows once all of ``texts`` stand on it."""
        end = time.monotonic() + 30
        while True:
            shown = self._run("capture-pane", "-p", "-t", "w")
            if all(text in shown for text in texts):
                return shown
            assert time.monotonic() < end, shown
            time.sleep(0.05)

    def is_open(self) -> bool:
        return subprocess.run([*self._tmux, "has-session"], capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)
