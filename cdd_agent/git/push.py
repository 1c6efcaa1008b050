"""A push of the current branch, which only the user decides about: where it would go, and why it failed.

It has the user's own configuration, variables and credentials, and may ask for a password in the terminal. Programs
that the repository's configuration names do not run; its hooks do if the user approves them.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from cdd_agent.errors import EnvironmentMissing, GateClosed
from cdd_agent.git.commits import PUSH_HOOKS, offer_hooks
from cdd_agent.git.hardening import build_overrides, format_settings
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import build_argv

_URL = re.compile(r"remote\.(?P<name>.+)\.url", re.DOTALL)
_PROGRAM = re.compile(
    r"core\.(sshcommand|askpass|gitproxy)|credential\.(.*\.)?helper|remote\..*\.(receivepack|vcs)", re.DOTALL
)
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
    def _overrides(self) -> tuple[tuple[str, str], ...]:
        return build_overrides(self.repository.runner.configuration())

    def run(self, report: Callable[[str], None]) -> None:
        """Push, and give each line of git's output to ``report``; git may ask for a password in the terminal.

        Raises ``GateClosed`` if it fails, or if the user does not approve a hook; ``EnvironmentMissing`` without git.
        """
        if offer_hooks(self.repository, PUSH_HOOKS) and not self.repository.may_run_hooks(PUSH_HOOKS):
            happened = "Nothing was pushed: the push would run hooks of the repository that are not approved."
            raise GateClosed(happened, hint=f"approve them next time, or push yourself: {self.command}")
        if self.programs:
            named = ", ".join(self.programs)
            happened = f"Nothing was pushed: .git/config names programs ({named}), and cdd runs no such program."
            raise GateClosed(happened, hint=f"push yourself: {self.command}")
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


def find_push(repository: Repository) -> Push | None:
    """Return the push of the current branch to its remote; None without one, or if the remote has all commits."""
    branch = repository.read_branch()
    settings = {each.key: each.value for each in repository.runner.configuration()}
    remotes = [match["name"] for key in settings if (match := _URL.fullmatch(key))]
    if branch is None or not remotes:
        return None
    keys = (f"branch.{branch}.pushremote", "remote.pushdefault", f"branch.{branch}.remote")
    named = [settings[key] for key in keys if settings.get(key) in remotes]
    remote = named[0] if named else "origin" if "origin" in remotes else remotes[0]
    known = repository.git("for-each-ref", ("--format=%(objectname)",), f"refs/remotes/{remote}/{branch}").strip()
    is_known = bool(known) and known == repository.read_head()
    return None if is_known else Push(repository=repository, branch=branch, remote=remote)
