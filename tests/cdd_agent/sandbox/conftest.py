"""The rungs that this machine has, each with a folder to work in and one outside it."""

import os
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.sandbox import choice
from cdd_agent.sandbox.backends import BubblewrapSandbox
from cdd_agent.sandbox.port import Access, Command, Limits, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox

ALL = ("none", "landlock", "bwrap")
CONFINED = ("landlock", "bwrap")
PYTHON = tuple(dict.fromkeys(Path(prefix) for prefix in (sys.prefix, sys.base_prefix)))


def at(level: str) -> Sandbox:
    """The sandbox of this level; the test is skipped, and says why, where there is none."""
    if level == "none":
        return PlainSandbox()
    trials = tuple(choice.try_levels(level))
    for trial in trials:
        if trial.sandbox is not None:
            return trial.sandbox
    pytest.skip(f"{level}: {'; '.join(trial.reason for trial in trials)}")


def can_change_kernel() -> bool:
    """Return whether this user may change a setting of the kernel; on some machines a few belong to all users."""
    return any(
        os.access(os.path.join(folder, name), os.W_OK) for folder, _, names in os.walk("/proc/sys") for name in names
    )


def get_bubblewrap() -> BubblewrapSandbox:
    """The bubblewrap that cdd finds here: the system's, or the one of the Python package."""
    sandbox = at("bwrap")
    assert isinstance(sandbox, BubblewrapSandbox)
    return sandbox


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A project, and what lies beside it."""

    sandbox: Sandbox
    project: Path
    outside: Path

    @classmethod
    def lay(cls, folder: Path, *, level: str) -> "Ground":
        """The two folders, the project with git's in it."""
        made = cls(sandbox=at(level), project=folder / "project", outside=folder / "outside")
        (made.project / ".git" / "hooks").mkdir(parents=True)
        (made.project / ".git" / "config").write_text("[core]\n")
        made.outside.mkdir()
        return made

    def run(self, *argv: str, timeout_s: float = 20, limits: Limits | None = None, output_cap: int = 64_000) -> Result:
        """Run a program in the project, with git's folder read-only."""
        command = self.make_command(*argv)
        return self.sandbox.run(replace(command, timeout_s=timeout_s, limits=limits, output_cap=output_cap))

    def make_command(self, *argv: str) -> Command:
        """Return the command that runs a program in the project, with git's folder read-only."""
        access = Access(read_write=(self.project,), read_only=(self.project / ".git", *PYTHON))
        return Command(argv=argv, cwd=self.project, access=access, timeout_s=20)

    def python(self, code: str, *arguments: str, timeout_s: float = 20, limits: Limits | None = None) -> Result:
        """Run Python code in the project."""
        return self.run(sys.executable, "-I", "-S", "-c", code, *arguments, timeout_s=timeout_s, limits=limits)

    def bash(self, command: str) -> Result:
        """Run a shell command in the project."""
        return self.run("bash", "-c", command)


@pytest.fixture(params=ALL)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level=request.param)


@pytest.fixture(params=CONFINED)
def confined(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level=request.param)


OLD = "--help) exec {bwrap} --help | grep -v overlay ;;"
"""Answers of a bwrap that has no overlays."""
UNABLE = "--help) echo '--disable-userns --size --tmp-overlay ' ;; *--tmp-overlay*) echo no overlay here >&2; exit 1 ;;"
"""Answers of a bwrap where the kernel refuses to mount them."""


def write_bubblewrap(folder: Path, answers: str) -> Path:
    """Write a program that answers thus, and else is the bwrap that is installed; return its path."""
    installed = get_bubblewrap().bwrap
    program = folder / "bin" / "bwrap"
    program.parent.mkdir()
    script = f'#!/bin/sh\ncase "$*" in {answers} *) exec {{bwrap}} "$@" ;; esac\n'
    program.write_text(script.replace("{bwrap}", shlex.quote(os.path.abspath(installed))))
    program.chmod(0o755)
    return program


def make_bubblewrap(folder: Path, packages: str) -> BubblewrapSandbox:
    """The level bwrap with installed packages that are ``overlaid`` or ``read-only``."""
    sandbox = get_bubblewrap()
    if packages == "read-only":
        return BubblewrapSandbox(write_bubblewrap(folder, OLD))
    for why in sandbox.find_obstacles((folder,)).values():
        pytest.skip(f"no overlays: {why}")
    return sandbox
