"""The one way to call git: hardened, in a process group of its own, with a time limit.

The repository is looked up once, and every later call names it, with the folder that holds what its work trees
share: what is put in the place of ``.git`` afterwards, or named in it, is never asked. Its configuration is read by a
call that runs nothing, again whenever one of its files has changed, come or gone.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TypeAlias

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git import hardening
from cdd_agent.git.failure import GitError, GitTimeout, GitUnable, index_lock, refused
from cdd_agent.git.hardening import Setting
from cdd_agent.git.place import Place, missing
from cdd_agent.sandbox.processes import end_group

TIMEOUT_S = 120.0
HOOKS_TIMEOUT_S = 1800.0
"""For a call in which the user's hooks take part: they may run a whole test suite."""
LOCK_WAIT_S = 2.0
"""How long another process may hold the user's index before a call gives up; an editor does so for a moment."""
_LOCK_PAUSE_S = 0.05
HANDED_ON_S = 1.0
"""How long what git or a hook left behind may go on writing into git's output."""
_LOOK_S = 0.1
"""How often it is looked whether git has ended while its pipes stay open."""

_State: TypeAlias = tuple[int, ...] | None

_PROBE = ("config", "--list", "-z", "--show-scope", "--show-origin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of git."""

    arguments: tuple[str, ...]
    stdin: bytes = b""
    variables: Mapping[str, str]
    """Beside the built environment, and before it."""
    hooks: bool = False
    """Whether the repository's hooks take part, with what they may need of the user's transports."""
    signs: bool = False
    """Whether commits are signed where the user's settings say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """What the probe found, and the state of the files it was found in."""

    found: tuple[Setting, ...]
    files: Mapping[Path, _State]
    is_final: bool
    """False where it includes other files: they may appear, and conditions come true, at any time."""

    def holds(self) -> bool:
        """Whether a probe would find the same again."""
        return self.is_final and all(_state(path) == seen for path, seen in self.files.items())


class Runner:
    """Calls git in one folder."""

    def __init__(self, folder: Path) -> None:
        """Nothing is run yet."""
        self._folder = folder
        self._place: Place | None = None
        self._configuration: _Configuration | None = None

    @property
    def place(self) -> Place:
        """Where the repository lies, looked up at the first call; raises ``EnvironmentMissing`` without one."""
        if self._place is None:
            self._place = look_up(self._folder)
        return self._place

    def settle(self, place: Place) -> None:
        """Take ``place`` for where the repository lies."""
        self._place = place

    def run(self, call: Call) -> str:
        """What git prints; raises ``GitError`` with its words if it fails."""
        self.place.require_own_common_dir()
        settings = hardening.settings_for(self.configuration(), hooks=call.hooks, signs=call.signs)
        if call.hooks:
            # A hook must not inherit these variables: the tests that it runs may use git in folders of their own.
            self._require_same_place()
            pinned: Mapping[str, str] = {}
        else:
            pinned = self._pinned()
        return run_once(replace(call, variables={**pinned, **call.variables}), folder=self._folder, settings=settings)

    def configuration(self) -> tuple[Setting, ...]:
        """git's configuration as it is now."""
        known = self._configuration
        if known is None or not known.holds():
            known = self._configuration = self._probed()
        return known.found

    def _probed(self) -> _Configuration:
        """The configuration, read by a call that runs nothing; the state of its files is noted before."""
        watched = {path: _state(path) for path in (*_files_of(self.place), *_files_of_the_user())}
        call = Call(arguments=_PROBE, variables=self._pinned())
        found = hardening.parse_listing(run_once(call, folder=self._folder, settings=_ONLY_OURS))
        if not any(setting.scope == "command" for setting in found):
            raise _too_old()
        named = (setting.origin.removeprefix("file:") for setting in found if setting.origin.startswith("file:"))
        others = {self._folder / name for name in named} - set(watched)
        includes = any(setting.key.startswith(("include.", "includeif.")) for setting in found)
        watched |= {path: _state(path) for path in others}
        return _Configuration(found=found, files=watched, is_final=not includes)

    def _pinned(self) -> dict[str, str]:
        """The variables that name the repository."""
        return {
            "GIT_DIR": str(self.place.git_dir),
            "GIT_COMMON_DIR": str(self.place.common_dir),
            "GIT_WORK_TREE": str(self.place.root),
        }

    def _require_same_place(self) -> None:
        """Raise ``GitUnable`` if git, left to look for itself, would find another repository than before."""
        if look_up(self._folder) != self.place:
            raise GitUnable(
                f"{self._folder / '.git'} names another repository than when the program started.",
                hint=f"see what stands there: ls -ld {self._folder / '.git'}; then start the program again",
            )


_ONLY_OURS = hardening.settings_for((), hooks=False, signs=False)


def look_up(folder: Path) -> Place:
    """The repository that git finds from ``folder``; raises ``EnvironmentMissing`` in its own words if none will do."""
    call = Call(arguments=Place.QUESTION, variables={})
    try:
        return Place.read(run_once(call, folder=folder, settings=_ONLY_OURS), folder=folder)
    except GitError as error:
        known = missing(error.happened, folder=folder)
        if known is None:
            raise
        raise known from error


def run_once(call: Call, *, folder: Path, settings: Sequence[tuple[str, str]]) -> str:
    """What git prints when it is called in ``folder`` with ``settings``; waits a moment for another's index lock."""
    environment = hardening.environment(os.environ, settings=settings, hooks=call.hooks) | dict(call.variables)
    argv = hardening.hardened(call.arguments)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        status, out, err = _run(argv, cwd=folder, stdin=call.stdin, env=environment, hooks=call.hooks)
        if status == 0:
            return out.decode("utf-8", "surrogateescape")
        said = err.decode("utf-8", "replace").strip()
        if index_lock(said) is None or time.monotonic() >= deadline:
            raise refused(call.arguments[0], said, status=status, hooks=call.hooks)
        time.sleep(_LOCK_PAUSE_S)


def _files_of(place: Place) -> tuple[Path, ...]:
    """The files of a repository that its configuration depends on, whether they are there or not."""
    own, shared = place.git_dir, place.common_dir
    return own / "commondir", own / "config", own / "config.worktree", shared / "config", shared / "config.worktree"


def _files_of_the_user() -> tuple[Path, ...]:
    """The files of the user's own configuration, whether they are there or not; those of the machine are found."""
    if named := os.environ.get("GIT_CONFIG_GLOBAL"):
        return (Path(named),)
    home = os.environ.get("HOME")
    if home is None:
        return ()
    return Path(home, ".gitconfig"), Path(os.environ.get("XDG_CONFIG_HOME") or Path(home, ".config"), "git", "config")


def _state(path: Path) -> _State:
    """What changes when the file does; None while there is none."""
    try:
        now = path.stat()
    except OSError:
        return None
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _too_old() -> EnvironmentMissing:
    return EnvironmentMissing(
        "This git is too old: it does not take settings from variables, which keep a repository's programs from "
        "being run.",
        hint="install git 2.31 or newer; see what you have: git --version",
    )


def _run(
    argv: Sequence[str], *, cwd: Path, stdin: bytes, env: Mapping[str, str], hooks: bool
) -> tuple[int, bytes, bytes]:
    """Exit status, output and errors of ``argv``, run in a session of its own that does not outlive the call.

    The call lasts as long as git itself, and for ``HANDED_ON_S`` longer if something that git or a hook left behind
    can still write. Raises ``GitTimeout`` if it takes too long, and ``EnvironmentMissing`` if there is no git.
    """
    limit_s = HOOKS_TIMEOUT_S if hooks else TIMEOUT_S
    pipe = subprocess.PIPE
    try:
        with _readable(stdin) as given:
            process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=given, stdout=pipe, stderr=pipe, start_new_session=True
            )
    except FileNotFoundError as error:
        if not cwd.is_dir():
            raise EnvironmentMissing(f"{cwd} is no folder.", hint="name a folder that exists") from error
        raise EnvironmentMissing(
            "git is not installed.", hint="install git, for example: apt-get install git"
        ) from error
    try:
        out, err = _said_by(process, limit_s=limit_s)
    except subprocess.TimeoutExpired as error:
        raise GitTimeout(
            f"{' '.join(argv)} did not end within {limit_s:g} seconds and was stopped.",
            hint="see what holds it, a hook or a lock for example, by running it yourself, then try again",
        ) from error
    finally:
        end_group(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    return process.returncode, out, err


@contextlib.contextmanager
def _readable(stdin: bytes) -> Iterator[IO[bytes]]:
    """A file that holds ``stdin``, to be read from its start.

    Not a pipe: whoever fills one while he looks at something else too, may leave it half full, and Python's own
    ``communicate`` does once it has timed out.
    """
    with tempfile.TemporaryFile() if stdin else open(os.devnull, "rb") as given:
        if stdin:
            given.write(stdin)
            given.seek(0)
        yield given


def _said_by(process: "subprocess.Popen[bytes]", *, limit_s: float) -> tuple[bytes, bytes]:
    """Output and errors of ``process`` once it has ended, however long what it left behind holds its pipes.

    Raises ``subprocess.TimeoutExpired`` if it does not end within ``limit_s``.
    """
    deadline = time.monotonic() + limit_s
    while True:
        has_ended = process.poll() is not None
        left = deadline - time.monotonic()
        try:
            return process.communicate(timeout=HANDED_ON_S if has_ended else max(0.0, min(_LOOK_S, left)))
        except subprocess.TimeoutExpired as error:
            if has_ended:
                return error.output or b"", error.stderr or b""
            if left <= 0:
                raise
