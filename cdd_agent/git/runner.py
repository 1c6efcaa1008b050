"""The one way to call git: hardened, in a process group of its own, with a time limit.

The repository is looked up once, and every later call names it, with the folder that holds what its work trees
share: what is put in the place of ``.git`` afterwards, or named in it, is never asked. Its configuration is read by a
call that runs nothing, again whenever one of its files has changed, come or gone.

What git says when it refuses, told as what happened and what to type. Pure but for the age of a lock.

Where a repository lies, from what git prints, and what is said where there is none that will do.
"""

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, ClassVar, TypeAlias

from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode
from cdd_agent.git import hardening
from cdd_agent.git.hardening import Setting
from cdd_agent.sandbox.port import end_group
from cdd_agent.storage import read_ordinary


class GitError(CddError):
    """git answered with an error; holds what it said."""

    def __init__(self, happened: str, *, hint: str, status: int | None = None) -> None:
        """``status`` is what git exited with, None if it did not come to that."""
        super().__init__(happened, hint=hint)
        self.status = status


class GitUnable(GitError):
    """git cannot work in this state of the repository or the machine; says nothing about what it was asked."""

    exit_code = ExitCode.ENVIRONMENT


class GitTimeout(GitUnable):
    """git, or a hook that it ran, did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A state that git names in its own words."""

    words: re.Pattern[str]
    happened: str
    hint: str


def _known(words: str, happened: str, *, hint: str) -> _Known:
    return _Known(words=re.compile(words, re.IGNORECASE), happened=happened, hint=hint)


_KNOWN = (
    _known(
        r"failed to sign|gpg failed|couldn't (load public|find) key|no secret key|unsupported value for gpg\.format",
        "git could not sign the commit, as your settings ask for.",
        hint="unlock the key and check it with: git commit-tree -S -m test HEAD^{tree}; or sign nothing here: "
        "git config commit.gpgSign false",
    ),
    _known(
        r"who you are|empty ident name|unable to auto-detect email|no (email|name) was given",
        "git does not know who commits here.",
        hint="git config user.name 'Your Name' && git config user.email you@example.org",
    ),
    _known(
        r"insufficient permission|permission denied|read-only file system|operation not permitted",
        "git's folder cannot be written.",
        hint='make it writable, with its owner\'s rights: chown -R "$(id -u)" .git && chmod -R u+w .git',
    ),
    _known(r"no space left on device|disk quota exceeded", "The disk is full.", hint="make room: df -h . && git gc"),
    _known(
        r"(clean|smudge) filter '.*' failed|external filter",
        "A filter of your git settings failed.",
        hint="see what it says by hand: git checkout-index --temp -- FILE; Git LFS is set up with: git lfs install",
    ),
    _known(
        r"bad (object|tree|file|config)|corrupt|is empty$|unable to (read|find) |could not read|invalid object"
        r"|broken (ref|link)|missing (blob|tree|commit|object)|alternate object|not a valid object|promisor",
        "The repository is damaged, or objects of it are missing.",
        hint="see what is wrong: git fsck --full; objects left out by a shallow or partial clone come with: git fetch",
    ),
    _known(
        r"\.lock': File exists|cannot lock|unable to lock|could not lock",
        "Another git process holds a lock in this repository.",
        hint="wait for it to end, then try again; if none is running, remove the .lock file that git names",
    ),
)
"""In order: the first that fits counts."""

_LOCK = re.compile(r"Unable to create '(?P<path>[^\n]*?index\.lock)': File exists")


def refused(verb: str, said: str, *, status: int, hooks: bool = False) -> GitError:
    """The error for ``git VERB`` that ended with ``status`` and the words ``said``.

    Where ``hooks`` took part, a status of 1 is a hook's refusal: its words may tell of anything.
    """
    lock = index_lock(said)
    if lock is not None:
        return index_locked(lock, status=status)
    words = f"git {verb} failed: {said or f'exit status {status}'}"
    for known in () if hooks and status == 1 else _KNOWN:
        if known.words.search(said):
            return GitUnable(f"{known.happened} {words}", hint=known.hint, status=status)
    return GitError(words, hint="mend what git names, then try again", status=status)


def index_lock(said: str) -> Path | None:
    """The lock of an index that git ran into, if that is what it says."""
    found = _LOCK.search(said)
    return None if found is None else Path(found["path"])


def index_locked(lock: Path, *, status: int | None = None) -> GitUnable:
    """The error that names the lock and its age; it is never removed here, as nobody can tell whose it is."""
    try:
        age = f" for {_duration(max(0.0, time.time() - lock.lstat().st_mtime))}"
    except OSError:
        age = ""
    return GitUnable(
        f"git's index is locked: {lock} has been there{age}. Another git process is at work, or one was killed.",
        hint=f"wait for it to end; if no git is running here: rm {lock}",
        status=status,
    )


def _duration(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds >= length or unit == "second":
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("a second is the smallest unit")


_GITFILE = re.compile(r"gitdir: (?P<path>.+?)\n*", re.DOTALL)
_PATH_BYTES = 100_000
"""A file that holds one path is smaller than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folders of one work tree, absolute, without links."""

    root: Path
    """The top level of the work tree."""
    git_dir: Path
    """What git keeps of this work tree: HEAD, index, what is in progress."""
    common_dir: Path
    """What all work trees of the repository share: objects, refs, configuration."""

    QUESTION: ClassVar = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
    """What to ask git; ``read`` understands the answer."""

    @classmethod
    def read(cls, answer: str, *, folder: Path) -> "Place":
        """The place in git's answer; raises ``EnvironmentMissing`` if the work tree is not where its ``.git`` is."""
        lines = answer.removesuffix("\n").split("\n")
        if len(lines) != 3 or not all(line.startswith("/") for line in lines):
            raise EnvironmentMissing(
                f"git {folder} does not say where its repository is: git is too old, or a path holds a line break.",
                hint="install git 2.31 or newer; see what you have: git --version",
            )
        git_dir, common_dir, root = (Path(line) for line in lines)
        place = cls(root=root.resolve(), git_dir=git_dir.resolve(), common_dir=common_dir.resolve())
        if _leads_to(place.root / ".git") != place.git_dir:
            raise EnvironmentMissing(
                f"The repository {place.git_dir} says that its work tree is {place.root}, a folder above or beside it.",
                hint=f"take that setting out: git --git-dir={place.git_dir} config --unset core.worktree",
            )
        return place

    def require_own_common_dir(self) -> None:
        """Raise ``GitUnable`` if the repository has come to say that its shared folder is another than it was.

        git takes refs from there whatever ``GIT_COMMON_DIR`` says.
        """
        said = self.git_dir / "commondir"
        try:
            named = read_ordinary(said, limit_bytes=_PATH_BYTES).decode("utf-8", "surrogateescape").rstrip("\r\n")
            shared = (self.git_dir / named).resolve()
        except FileNotFoundError:
            shared = self.git_dir
        except (OSError, ValueError, RuntimeError):  # no ordinary file, no path, a ring of links
            shared = None
        if shared != self.common_dir:
            raise GitUnable(
                f"{said} names another repository than when the program started.",
                hint=f"see who wrote it: ls -l {said}; if this is no linked work tree, remove it: rm {said}",
            )


def missing(said: str, *, folder: Path) -> EnvironmentMissing | None:
    """The error for ``folder`` after git has refused to find its repository; None if its words tell something else."""
    for words, happened, hint in _REFUSALS:
        if re.search(words, said):
            return EnvironmentMissing(happened.format(folder=folder), hint=hint.format(folder=folder))
    return None


_REFUSALS = (
    (
        "dubious ownership",
        "The repository of {folder} belongs to another user, so git does not trust it, and neither does cdd.",
        'take the folder over: sudo chown -R "$(id -u)" {folder}; or, if you trust its owner: '
        "git config --global --add safe.directory {folder}",
    ),
    (
        "cannot use bare repository|must be run in a work tree",
        "{folder} is a bare repository, or the inside of one: it has no files to work on.",
        "make a work tree of it: git -C {folder} worktree add ../work; then: cd {folder}/../work",
    ),
    (
        r"invalid gitfile|not a git repository: (?!\(or any)",
        "{folder} was a work tree or submodule of a repository that is not there any more.",
        "see what its file .git names: cat {folder}/.git; if the repository has moved: git worktree repair",
    ),
    (
        "not a git repository",
        "{folder} is not in a git work tree: commits and checkpoints need one.",
        "git init {folder} && git -C {folder} add -A && git -C {folder} commit -m 'first commit'",
    ),
)
"""git's words, what happened, what to type. The first that fits counts."""


def _leads_to(entry: Path) -> Path | None:
    """The repository that a work tree's ``.git``, a folder or a file, stands for."""
    if entry.is_dir():
        return entry.resolve()
    try:
        text = read_ordinary(entry, limit_bytes=_PATH_BYTES, through_links=True).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    named = _GITFILE.fullmatch(text)
    return None if named is None else (entry.parent / named["path"]).resolve()


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
