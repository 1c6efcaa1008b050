"""A push of the current branch, which only the user decides about: where it would go, and why it failed.

It has the user's own configuration, variables and credentials, and may ask for a password in the terminal. Programs
that the repository's configuration names do not run; its hooks do if the user approves them. To a path, git itself
starts the other side too, with that repository's hooks and configuration, which may have come in the same archive.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cdd_agent.errors import EnvironmentMissing, GateClosed
from cdd_agent.git.commits import PUSH_HOOKS, offer_hooks
from cdd_agent.git.hardening import build_overrides, format_settings
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import build_argv
from cdd_agent.storage import read_ordinary

_URL = re.compile(r"remote\.(?P<name>.+)\.url", re.DOTALL)
_PROGRAM = re.compile(
    r"core\.(sshcommand|askpass|gitproxy)|credential\.(.*\.)?helper|remote\..*\.(receivepack|vcs)", re.DOTALL
)
_RUNS_THERE = re.compile(rb"hook|fsmonitor|alternaterefscommand|include|program|command", re.IGNORECASE)
"""Keys of a repository's configuration that make git run programs, or read another configuration."""
_CONFIG_BYTES = 1_000_000
_PASSWORD = re.compile(r"//[^/]*@")
_MOST_SHOWN = 200
_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        r"Authentication failed|could not read (Username|Password)|Permission denied|terminal prompts disabled"
        r"|Host key verification failed|error: 40[13]",
        "{remote} does not accept your credentials",
        "log in to {remote}, then: {command}",
    ),
    (
        r"non-fast-forward|fetch first|stale info",
        "{remote} has commits that you do not have",
        "git pull --rebase {remote} {branch}, then: {command}",
    ),
    (
        r"\[remote rejected\]",
        "{remote} refuses the commits",
        "if {branch} is protected there, push another branch: git push {remote} {branch}:NAME",
    ),
    (
        r"Could not resolve|unable to access|Connection (refused|reset|closed|timed out)|Network is unreachable"
        r"|unable to connect|Operation timed out|No route to host",
        "{remote} cannot be reached",
        "check the network, then: {command}",
    ),
    (
        r"does not appear to be a git repository|repository .* (not found|does not exist)",
        "{remote} is not there",
        "correct its address: git remote set-url {remote} URL, then: {command}",
    ),
)
"""Text of git, as regular expression -> what happened -> what to type. The first that fits counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push of a branch to a remote repository."""

    repository: Repository
    branch: str
    remote: str

    @property
    def command(self) -> str:
        """The command that does the same in a shell."""
        return f"git push {shlex.quote(self.remote)} {shlex.quote(self.branch)}"

    @property
    def programs(self) -> tuple[str, ...]:
        """The settings of the repository that name programs for a push. With any, only the user can push."""
        return tuple(key for key, _ in self._overrides if _PROGRAM.fullmatch(key))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the commits would go."""
        return tuple(self.repository.git("remote", "get-url", ("--push", "--all"), self.remote).splitlines())

    @property
    def destination(self) -> str:
        """The addresses without passwords, for display."""
        return _PASSWORD.sub("//", ", ".join(self.addresses))[:_MOST_SHOWN]

    @property
    def refusal(self) -> str:
        """Why only the user can push: a clause; nothing if cdd can."""
        if self.programs:
            return f".git/config names programs ({', '.join(self.programs)}), and cdd runs no such program"
        for folder in filter(None, (_find_folder(self.repository.root, address) for address in self.addresses)):
            inside = (self.repository.root.resolve(), self.repository.location.common_dir)
            if any(folder.is_relative_to(top) for top in inside):
                return f"{self.remote} is {folder}, in this project, and git would run that repository's hooks"
            if _runs_programs(folder):
                return f"{self.remote} is {folder}, and git would run that repository's hooks or programs"
        return ""

    @property
    def _overrides(self) -> tuple[tuple[str, str], ...]:
        return build_overrides(self.repository.runner.configuration())

    def run(self, report: Callable[[str], None]) -> None:
        """Push, and give each line of git's output to ``report``; git may ask for a password in the terminal.

        Raises ``GateClosed`` if it fails, or if the user does not approve a hook; ``EnvironmentMissing`` without git.
        """
        if offer_hooks(self.repository, PUSH_HOOKS) and not self.repository.may_run_hooks(PUSH_HOOKS):
            happened = "Nothing was pushed: the push would run hooks of the repository that are not approved."
            raise GateClosed(happened, hint=f"approve them next time, or push yourself: {self.command}")
        if refusal := self.refusal:
            raise GateClosed(f"Nothing was pushed: {refusal}.", hint=f"push yourself: {self.command}")
        # git would push submodules with the configuration that each of them has.
        arguments = (("--no-recurse-submodules", "--"), self.remote, self.branch)
        try:
            process = subprocess.Popen(
                build_argv("push", arguments),
                cwd=self.repository.root,
                # Git reads passwords from the terminal itself; without one it fails at once.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **format_settings(self._overrides), "LC_ALL": "C"},
            )
        except OSError as error:
            raise EnvironmentMissing(f"git cannot be started: {error.strerror}.", hint=self.command) from error
        lines: list[str] = []
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.decode("utf-8", "replace").rstrip())
                report(lines[-1])
        if process.returncode:
            raise self._explain("\n".join(lines), status=process.returncode)

    def _explain(self, output: str, *, status: int) -> GateClosed:
        names = {"remote": self.remote, "branch": self.branch, "command": self.command}
        for words, happened, hint in _FAILURES:
            if re.search(words, output, re.IGNORECASE):
                return GateClosed(f"Nothing was pushed: {happened.format(**names)}.", hint=hint.format(**names))
        happened = f"Nothing was pushed: git ended with status {status}, or a hook refused."
        return GateClosed(happened, hint=f"fix what git reports above, then: {self.command}")


def _find_folder(root: Path, address: str) -> Path | None:
    """Return the folder of a remote repository that an address of this machine names; None for other addresses."""
    if address.lower().startswith("file://"):
        path = unquote(address[len("file://") :])
        return Path(f"/{path.partition('/')[2]}").resolve()
    colon, slash = address.find(":"), address.find("/")
    return (root / address).resolve() if colon < 0 or 0 <= slash < colon else None


def _runs_programs(folder: Path) -> bool:
    """Return whether git would run a program of the repository in a folder, or of its folder ``.git``, on a push."""
    for top in (folder, folder / ".git", folder.with_name(f"{folder.name}.git")):
        if any(path.suffix != ".sample" and os.access(path, os.X_OK) for path in (top / "hooks").glob("*")):
            return True
        for name in ("config", "config.worktree"):
            try:
                if _RUNS_THERE.search(read_ordinary(top / name, limit_bytes=_CONFIG_BYTES, through_links=True)):
                    return True
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return True
    return folder.is_file() or (folder / ".git").is_file()


def find_push(repository: Repository) -> Push | None:
    """Return the push of the current branch to its remote; None without one, or if the remote has all commits."""
    branch = repository.read_branch()
    settings = {each.key: each.value for each in repository.runner.configuration()}
    # git would take a name that begins with a dash for an option.
    remotes = [match["name"] for key in settings if (match := _URL.fullmatch(key)) and match["name"][0] != "-"]
    if branch is None or not remotes:
        return None
    keys = (f"branch.{branch}.pushremote", "remote.pushdefault", f"branch.{branch}.remote")
    named = [settings[key] for key in keys if settings.get(key) in remotes]
    remote = named[0] if named else "origin" if "origin" in remotes else remotes[0]
    known = repository.git("for-each-ref", ("--format=%(objectname)",), f"refs/remotes/{remote}/{branch}").strip()
    is_known = bool(known) and known == repository.read_head()
    return None if is_known else Push(repository=repository, branch=branch, remote=remote)
