"""The only way to call git: hardened, in its own process group, with a time limit.

The repository is located once, and every later call names it explicitly, so git ignores whatever a program puts in the
place of ``.git`` afterwards. Its configuration is read by a call that runs no programs, and again whenever one of its
files changes. Failures of git become errors that say what happened and what to type.
"""

import contextlib
import os
import re
import select
import shlex
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TypeAlias

from cdd_agent.errors import CddError, EnvironmentMissing, ExitCode, format_count
from cdd_agent.git import hardening
from cdd_agent.git.hardening import GitSetting
from cdd_agent.sandbox.supervised import describe_start_failure, end_group
from cdd_agent.storage import find_full_disk, read_ordinary, require_in_place


class GitError(CddError):
    """git failed; the message quotes its output."""


class GitRefused(GitError):
    """git refused what it was asked to do; in the same state of the repository it can do other things."""

    def __init__(self, happened: str, *, hint: str, status: int) -> None:
        """``status`` is the exit status of git."""
        super().__init__(happened, hint=hint)
        self.status = status


class GitUnable(GitError):
    """git cannot work in this state of the repository or machine, whatever it is asked to do."""

    exit_code = ExitCode.ENVIRONMENT


class GitTimeout(GitError):
    """git, or a hook that it ran, exceeded the time limit. That says nothing about the state of the repository."""

    exit_code = ExitCode.ENVIRONMENT


_KNOWN_FAILURES = (
    (
        r"failed to sign|gpg failed|couldn't (load public|find) key|no secret key|unsupported value for gpg\.format",
        "git could not sign the commit, as your settings require.",
        "unlock the key and check it with: git commit-tree -S -m test HEAD^{tree}; or turn off signing here: "
        "git config commit.gpgSign false",
    ),
    (
        r"who you are|empty ident name|unable to auto-detect email|no (email|name) was given",
        "git does not know your name and email.",
        "git config user.name 'Your Name' && git config user.email you@example.org",
    ),
    (  # before the reasons below, which may be those of the filter
        r"(clean|smudge) filter '.*' failed|external filter",
        "A filter of your git settings failed.",
        "run it by hand to see why: git checkout-index --temp -- FILE; Git LFS is set up with: git lfs install",
    ),
    (
        r"insufficient permission|permission denied|read-only file system|operation not permitted",
        "git's folder is not writable.",
        'make it writable as its owner: chown -R "$(id -u)" .git && chmod -R u+w .git',
    ),
    (
        r"no space left on device|disk quota exceeded|out of diskspace",
        "The disk is full.",
        "make room: df -h . && git gc; then run the same command again",
    ),
    (
        r"unable to write file",
        "A file could not be written. The disk may be full.",
        "see how much room is left: df -h . /tmp; then run the same command again",
    ),
    (
        r"promisor|lazy fetching disabled",
        "An object is missing that this partial clone did not fetch.",
        "fetch everything: git fetch --refetch --no-filter",
    ),
    (
        r"bad (object|tree|file|config)|corrupt|is empty$|unable to (read|find) |could not read|invalid object"
        r"|broken (ref|link)|missing (blob|tree|commit|object)|alternate object|not a valid object",
        "The repository is damaged, or some of its objects are missing.",
        "see what is wrong: git fsck --full; a shallow clone gets missing objects with: git fetch --unshallow",
    ),
    (
        r"unable to create directory|cannot create directory",
        "A folder could not be created.",
        "see whether a file of that name is in the way, and how much room is left: df -h . && df -i .",
    ),
    (
        r"\.lock': File exists|cannot lock|unable to lock|could not lock",
        "Another git process holds a lock in this repository.",
        "wait for it to end, then try again; if none is running, remove the .lock file that git names",
    ),
)
"""Pattern of git's message, what happened, what to type. The first match counts."""

_WRITES = re.compile(
    r"no space left|disk quota|out of diskspace|write error|(unable|failed) to (write|create|append|add)"
    r"|(could not|cannot) (lock|write|create)",
    re.IGNORECASE,
)
"""What git says if it cannot write, also where it does not say that the disk is full."""
_LOCK = re.compile(r"Unable to create '(?P<path>[^\n]*?index\.lock)': File exists")


def explain_failure(
    verb: str, message: str, *, status: int, hooks: bool = False, folder: Path | None = None
) -> GitError:
    """Return the error for ``git VERB``, called in ``folder``, that failed with ``status`` and ``message``."""
    lock = parse_index_lock(message)
    if lock is not None:
        return explain_index_lock(lock)
    failure = f"git {verb} failed: {message or f'exit status {status}'}"
    # With hooks, status 1 is the refusal of a hook, whose message may contain anything.
    is_refusal = hooks and status == 1
    if not is_refusal and folder is not None and _WRITES.search(message) and (full := find_full_disk(folder)):
        return GitUnable(f"{full.happened} {failure}", hint=f"{full.hint}; then run the same command again")
    for words, happened, hint in () if is_refusal else _KNOWN_FAILURES:
        if re.search(words, message, re.IGNORECASE):
            return GitUnable(f"{happened} {failure}", hint=hint)
    return GitRefused(failure, hint="fix the problem that git reports, then try again", status=status)


def parse_index_lock(message: str) -> Path | None:
    """Return the lock of an index that git complains about, if any."""
    match = _LOCK.search(message)
    return None if match is None else Path(match["path"])


def explain_index_lock(lock: Path) -> GitUnable:
    """Return the error that names the lock and its age."""
    # cdd never removes it, because another git process may hold it.
    try:
        age = f" for {_format_duration(max(0.0, time.time() - lock.lstat().st_mtime))}"
    except OSError:
        age = ""
    return GitUnable(
        f"git's index is locked: {lock} has existed{age}. Another git process is running, or was killed.",
        hint=f"wait for it to end; if no git is running here: rm {lock}",
    )


def _format_duration(seconds: float) -> str:
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, length = next((each for each in units if seconds >= each[1]), units[-1])
    count = int(seconds // length)
    return format_count(count, unit)


_GITFILE = re.compile(r"gitdir: (?P<path>.+?)\n*", re.DOTALL)
_PATH_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryLocation:
    """The folders of one work tree, absolute and without links."""

    root: Path
    """The top level of the work tree."""
    git_dir: Path
    """git's data about this work tree: HEAD, index, operations in progress."""
    common_dir: Path
    """Data that all work trees of the repository share: objects, refs, configuration."""

    @classmethod
    def parse(cls, answer: str, *, folder: Path) -> "RepositoryLocation":
        """Parse git's answer; raises ``EnvironmentMissing`` if the work tree does not contain its ``.git``."""
        lines = answer.removesuffix("\n").split("\n")
        if len(lines) != 3 or not all(line.startswith("/") for line in lines):
            raise EnvironmentMissing(
                f"git does not report the location of {folder}: git is too old, or the path contains a line break.",
                hint="install git 2.31 or newer; see your version: git --version",
            )
        git_dir, common_dir, root = (Path(line) for line in lines)
        location = cls(root=root.resolve(), git_dir=git_dir.resolve(), common_dir=common_dir.resolve())
        if _resolve_git_entry(location.root / ".git") != location.git_dir:
            raise EnvironmentMissing(
                f"The repository {location.git_dir} names {location.root} as its work tree, which is a folder above or "
                "beside it.",
                hint=f"remove that setting: git --git-dir={location.git_dir} config --unset core.worktree",
            )
        return location

    def is_at_root(self, settings: Sequence[GitSetting]) -> bool:
        """Return whether git, started at the top level with ``settings``, finds this repository."""
        named, bare = (
            [setting.value for setting in settings if setting.key == key] for key in ("core.worktree", "core.bare")
        )
        is_root = not named or (self.git_dir / named[-1]).resolve() == self.root
        is_bare = bare[-1:] != [] and bare[-1].lower() not in ("false", "no", "off", "0")
        return is_root and not is_bare and _resolve_git_entry(self.root / ".git") == self.git_dir

    def require_own_common_dir(self) -> None:
        """Raise ``GitUnable`` if the repository is gone, names another shared folder, or holds endless files."""
        for folder in (self.root, self.git_dir):
            if not folder.is_dir():
                raise GitUnable(
                    f"{folder} was there when cdd started, and somebody has deleted or moved it.",
                    hint="run the same command again, in your project's folder: cdd makes a new run tree",
                )
        for read in (self.common_dir / "info" / "attributes", self.common_dir / "info" / "exclude"):
            # No setting keeps git from reading these: a link to /dev/zero would take all memory.
            if not hardening.is_small_file(str(read)):
                raise GitUnable(
                    f"{read} is not a file that git can read: it is too large, or a pipe or device.",
                    hint=f"see what it is: ls -lL {read}; if it is not yours: rm {read}",
                )
        # git reads refs from that folder regardless of GIT_COMMON_DIR.
        file = self.git_dir / "commondir"
        try:
            path = read_ordinary(file, limit_bytes=_PATH_BYTES).decode("utf-8", "surrogateescape").rstrip("\r\n")
            shared = (self.git_dir / path).resolve()
        except FileNotFoundError:
            shared = self.git_dir
        except (OSError, ValueError, RuntimeError):  # not an ordinary file, not a path, a loop of links
            shared = None
        if shared != self.common_dir:
            raise GitUnable(
                f"{file} names another repository than when cdd started.",
                hint=f"see who wrote it: ls -l {file}; if this is not a linked work tree, remove it: rm {file}",
            )


_REFUSALS = (
    (
        "dubious ownership",
        "The repository of {folder} belongs to another user, so neither git nor cdd trusts it.",
        'take ownership: sudo chown -R "$(id -u)" {folder}; or, if you trust its owner: '
        "git config --global --add safe.directory {folder}",
    ),
    (
        "cannot use bare repository|must be run in a work tree",
        "{folder} is a bare repository, or inside one, and has no files to work on.",
        "create a work tree: git -C {folder} worktree add ../work; then: cd {folder}/../work",
    ),
    (
        r"invalid gitfile|not a git repository: (?!\(or any)",
        "{folder} is a work tree or submodule of a repository that no longer exists.",
        "see which repository: cat {folder}/.git; if it has moved: git worktree repair",
    ),
    (
        "not a git repository",
        "{folder} is not in a git work tree, which cdd needs for commits and checkpoints.",
        "git init {folder} && git -C {folder} add -A && git -C {folder} commit -m 'first commit'",
    ),
)
"""Pattern of git's message about a folder that is not usable as a work tree, what happened, what to type."""


def _resolve_git_entry(entry: Path) -> Path | None:
    """Return the repository that a work tree's ``.git`` is, if a folder, or names, if a file."""
    if entry.is_dir():
        return entry.resolve()
    try:
        text = read_ordinary(entry, limit_bytes=_PATH_BYTES, through_links=True).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    match = _GITFILE.fullmatch(text)
    return None if match is None else (entry.parent / match["path"]).resolve()


TIMEOUT_S = 120.0
LOCATE_TIMEOUT_S = 10.0
"""For the first call, which reads little but the configuration."""
HOOKS_TIMEOUT_S = 1800.0
"""For a call with the user's hooks, which may run a whole test suite."""
LOCK_WAIT_S = 2.0
"""How long to wait for another process to release the user's index; editors lock it for a moment."""
LOCK_PAUSE_S = 0.05
INHERITED_PIPE_S = 1.0
"""How long processes that git or a hook left behind may continue to write into git's output."""
_CHUNK_BYTES = 1 << 16
_SHOWN_CHARACTERS = 60
_USAGE_STATUS = 129
"""The exit status of git for options that it does not know."""
_POLL_S = 0.1
"""How often to check whether git has ended while its pipes stay open."""

Argument: TypeAlias = str | tuple[str, ...]
"""A word that names something, such as a commit or a path; or a tuple of options, which begin with ``-``."""


def require_name(word: str, *, ends: str = "\0", is_path: bool = False) -> str:
    """Return ``word``; raises ``GitRefused`` if git would read it as an option, or ``ends`` in it as its end.

    ``is_path`` is for words after ``--``, which may begin with ``-``.
    """
    if (word.startswith("-") and not is_path) or ends in word:
        raise GitRefused(
            f"git was not run: {word[:_SHOWN_CHARACTERS]!r} is not the name of a commit, ref or file.",
            hint="find the file that holds this name, and restore it from a backup or remove it",
            status=_USAGE_STATUS,
        )
    return word


def build_argv(verb: str, arguments: Iterable[Argument]) -> list[str]:
    """Return the command line of git; raises ``GitRefused`` if a word begins with ``-`` that git reads as an option.

    Words come from files that others can write, such as the base of a fork: ``--output=FILE`` would overwrite a file.
    """
    words, is_path = [require_name(verb)], False
    for argument in arguments:
        if isinstance(argument, str):
            words.append(require_name(argument, is_path=is_path))
        elif all(option.startswith("-") for option in argument):
            words += argument
            is_path = is_path or "--" in argument
        else:
            raise ValueError(f"only options belong into the tuple {argument}")
    return hardening.build_command(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of git."""

    verb: str
    arguments: tuple[Argument, ...] = ()
    stdin: bytes = b""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the built environment, and overriding it."""
    hooks: bool = False
    """Whether to run the repository's hooks, with the user's settings for transports."""
    signs: bool = False
    """Whether to sign commits if the user's settings say so."""
    settings: tuple[tuple[str, str], ...] = ()
    """Keys and values that replace those of the configuration."""
    limit_s: float = 0.0
    """How long it may take. 0: ``TIMEOUT_S``, or ``HOOKS_TIMEOUT_S`` with hooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    settings: tuple[GitSetting, ...]
    files: Mapping[Path, tuple[int, ...] | None]
    """Path -> its state when it was read; None if it did not exist."""
    is_final: bool
    """False if it includes other files: these may appear, and conditions become true, at any time."""

    def is_current(self, *, location: RepositoryLocation) -> bool:
        is_complete = self.files.keys() >= set(_list_configuration_files(location))
        return is_complete and self.is_final and all(read_state(path) == state for path, state in self.files.items())


class Runner:
    """Calls git in one folder."""

    def __init__(
        self,
        folder: Path,
        location: RepositoryLocation | None = None,
        *,
        locate: Callable[[], RepositoryLocation] | None = None,
        user: "Runner | None" = None,
    ) -> None:
        """Run nothing yet. Without a ``location``, ``locate`` or git finds it before the first call.

        ``user`` is the runner of the user's checkout, if this is another work tree: commits are made as they are there.
        """
        self.user = user
        self.folder = folder
        """Where git is called."""
        self._location = location
        self._locate = locate or (lambda: find_location(folder))
        self._configuration: _Configuration | None = None

    @property
    def location(self) -> RepositoryLocation:
        """The folders of the repository, determined at the first use; raises ``EnvironmentMissing``."""
        if self._location is None:
            self._location = self._locate()
        return self._location

    def run(self, call: Call) -> str:
        """Return git's output; raises ``GitError`` if it fails."""
        self.location.require_own_common_dir()
        settings = self._build_settings(call) + call.settings
        if call.hooks:
            # A hook must not inherit the variables that name the repository: tests that it runs may use git elsewhere.
            # Then git locates the repository itself, and must find the same one.
            if not self.is_found():
                raise GitUnable(
                    f"{self.folder / '.git'} names another repository than when cdd started.",
                    hint=f"see what it is: ls -ld {self.folder / '.git'}; then start cdd again",
                )
            variables = call.variables
        else:
            variables = {**self._location_variables(), **call.variables}
        return run_once(replace(call, variables=variables), folder=self.folder, settings=settings)

    def is_found(self) -> bool:
        """Return whether git finds this repository by itself from the folder, like git in a hook."""
        if self.location.is_at_root(self.configuration()):
            return True
        try:
            return find_location(self.folder) == self.location
        except CddError:
            return False

    def _build_settings(self, call: Call) -> tuple[tuple[str, str], ...]:
        own = self.configuration()
        if self.user is None or not call.signs:
            return hardening.build_settings(own, hooks=call.hooks, signs=call.signs)
        user, default = self.user.configuration(), str(self.location.common_dir / "hooks")
        adopted = hardening.list_adopted(own, user, hooks_folder=default)
        settings = hardening.adopt(own, user)
        return hardening.build_settings(settings, hooks=call.hooks, signs=call.signs, adopted=adopted)

    def start(self, verb: str, *arguments: Argument, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start ``git VERB ARGUMENTS``, which answers what it reads, and return the process."""
        self.location.require_own_common_dir()
        settings = hardening.build_settings(self.configuration(), hooks=False, signs=False)
        environment = hardening.build_environment(os.environ, settings=settings, hooks=False)
        environment |= self._location_variables()
        argv, pipe = build_argv(verb, arguments), subprocess.PIPE
        # It outlives folders of the work tree.
        return subprocess.Popen(
            argv, cwd="/", env=environment, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True
        )

    def configuration(self) -> tuple[GitSetting, ...]:
        """Return git's current configuration."""
        if self._configuration is None or not self._configuration.is_current(location=self.location):
            self._configuration = self._read_configuration()
        return self._configuration.settings

    def configuration_of_commits(self) -> tuple[GitSetting, ...]:
        """Return git's current configuration, with identity, signing and hooks as in the user's checkout."""
        own = self.configuration()
        return own if self.user is None else hardening.adopt(own, self.user.configuration())

    def _read_configuration(self) -> _Configuration:
        # Record the states of the files first, so that a change during the call is noticed.
        files = {path: read_state(path) for path in _list_configuration_files(self.location)}
        options = ("--list", "-z", "--show-scope", "--show-origin")
        call = Call(verb="config", arguments=(options,), variables=self._location_variables())
        settings = hardening.parse_settings(run_once(call, folder=self.folder))
        if not any(setting.scope == "command" for setting in settings):
            raise EnvironmentMissing(
                "This git is too old: it ignores settings in variables, with which cdd keeps it from running a "
                "repository's programs.",
                hint="install git 2.31 or newer; see your version: git --version",
            )
        named = (setting.origin.removeprefix("file:") for setting in settings if setting.origin.startswith("file:"))
        includes = any(setting.key.startswith(("include.", "includeif.")) for setting in settings)
        files |= {path: read_state(path) for path in {self.folder / name for name in named} - set(files)}
        return _Configuration(settings=settings, files=files, is_final=not includes)

    def _location_variables(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.location.git_dir),
            "GIT_COMMON_DIR": str(self.location.common_dir),
            "GIT_WORK_TREE": str(self.location.root),
        }


class Answer:
    """The output of a coprocess."""

    def __init__(self, file: int) -> None:
        """``file`` is the descriptor of the output."""
        self._file = file
        self._buffer = bytearray()
        self._deadline = time.monotonic() + TIMEOUT_S

    def read_line(self) -> bytes:
        """Return the next line, without its end."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill()
        return self.read(end + 1)[:-1]

    def read(self, size_bytes: int) -> bytes:
        """Return so many bytes; raises ``EOFError`` if the process ends before, and ``GitTimeout``."""
        while len(self._buffer) < size_bytes:
            self._fill()
        taken = bytes(self._buffer[:size_bytes])
        del self._buffer[:size_bytes]
        return taken

    def _fill(self) -> None:
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        if not poll.poll(1000 * max(0.0, self._deadline - time.monotonic())):
            raise GitTimeout(
                f"git did not answer within {TIMEOUT_S:g} seconds and was stopped.",
                hint="see whether the disk of the repository responds, then try again",
            )
        data = os.read(self._file, _CHUNK_BYTES)
        if not data:
            raise EOFError
        self._buffer += data


class Coprocess:
    """A git process that answers questions, one after the other; it is started again after a failure."""

    def __init__(self, runner: Runner, verb: str, *arguments: Argument) -> None:
        """Start nothing before the first question."""
        self._runner = runner
        self._verb = verb
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._end: Callable[[], object] = bool

    @contextlib.contextmanager
    def ask(self, question: bytes) -> Iterator[Answer]:
        """Yield the answer, which must be read completely; raises ``GitError`` if the process ends instead."""
        require_in_place()  # the process may have been started before
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(question)
            process.stdin.flush()
            yield Answer(process.stdout.fileno())
        except (EOFError, BrokenPipeError) as error:
            raise self._explain_end() from error
        except BaseException:  # also Ctrl-C: the rest of this answer must not be taken for the next
            self._close()
            raise

    def _start(self) -> "subprocess.Popen[bytes]":
        # Not a pipe: one that nobody reads blocks git when it is full.
        with tempfile.TemporaryFile() as errors:
            process = self._runner.start(self._verb, *self._arguments, errors=errors)
            self._process, self._errors = process, os.dup(errors.fileno())
        # The process ends by itself when cdd does, because its input is closed.
        self._end = weakref.finalize(self, _end_coprocess, process, self._errors)
        return process

    def _explain_end(self) -> GitError:
        assert self._process is not None
        status = self._process.wait()
        message = os.pread(self._errors, _CHUNK_BYTES, 0).decode("utf-8", "replace").strip()
        self._close()
        return explain_failure(self._verb, message, status=status, folder=self._runner.folder)

    def _close(self) -> None:
        self._end()
        self._process = None


def _end_coprocess(process: "subprocess.Popen[bytes]", errors: int) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    end_group(process)
    os.close(errors)


_HINT_FOR_GITFILE = (
    "unset GIT_DIR GIT_WORK_TREE; and connect the folder with its repository: echo gitdir: {path} > {folder}/.git"
)
_WITHOUT_REPOSITORY = hardening.build_settings((), hooks=False, signs=False)


def find_location(folder: Path) -> RepositoryLocation:
    """Return the repository that git finds from ``folder``; raises ``EnvironmentMissing`` if none is usable."""
    named = [name for name in ("GIT_DIR", "GIT_WORK_TREE") if os.environ.get(name)]
    question = ("--path-format=absolute", "--git-dir", "--git-common-dir", "--show-toplevel")
    try:
        answer = run_once(Call(verb="rev-parse", arguments=(question,), limit_s=LOCATE_TIMEOUT_S), folder=folder)
    except GitError as error:
        for words, happened, hint in _REFUSALS:
            if re.search(words, error.happened):
                ignored = f" cdd ignores {' and '.join(named)}, which you have set." if named else ""
                advice = _HINT_FOR_GITFILE if "GIT_DIR" in named else hint
                path = shlex.quote(os.path.abspath(os.environ.get("GIT_DIR") or "."))
                raise EnvironmentMissing(
                    happened.format(folder=folder) + ignored, hint=advice.format(folder=folder, path=path)
                ) from error
        raise
    return RepositoryLocation.parse(answer, folder=folder)


def require_same_repository(location: RepositoryLocation) -> None:
    """Raise ``EnvironmentMissing`` if the user's variables name another repository or work tree than ``location``."""
    # cdd ignores them: a hook that calls cdd has them, and they would hold for each repository that cdd uses.
    for name, place in (("GIT_DIR", location.git_dir), ("GIT_WORK_TREE", location.root)):
        value = os.environ.get(name)
        if value and Path(value).resolve() != place:
            raise EnvironmentMissing(
                f"{name} is {Path(value).resolve()}, but {location.root} is a work tree of {location.git_dir}.",
                hint="run cdd without these variables: unset GIT_DIR GIT_WORK_TREE",
            )


def run_once(call: Call, *, folder: Path, settings: Sequence[tuple[str, str]] = _WITHOUT_REPOSITORY) -> str:
    """Return the output of git in ``folder`` with ``settings``; waits briefly for a locked index."""
    environment = hardening.build_environment(os.environ, settings=settings, hooks=call.hooks) | dict(call.variables)
    argv = build_argv(call.verb, call.arguments)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        limit_s = call.limit_s or (HOOKS_TIMEOUT_S if call.hooks else TIMEOUT_S)
        status, out, err = _run(argv, cwd=folder, stdin=call.stdin, env=environment, limit_s=limit_s)
        if status == 0:
            return out.decode("utf-8", "surrogateescape")
        message = err.decode("utf-8", "replace").strip()
        if parse_index_lock(message) is None or time.monotonic() >= deadline:
            raise explain_failure(call.verb, message, status=status, hooks=call.hooks, folder=folder)
        time.sleep(LOCK_PAUSE_S)


def _list_configuration_files(location: RepositoryLocation) -> Iterator[Path]:
    yield location.git_dir / "commondir"
    for folder in (location.git_dir, location.common_dir):
        yield folder / "config"
        yield folder / "config.worktree"
    if path := os.environ.get("GIT_CONFIG_GLOBAL"):
        yield Path(path)
    elif (home := os.environ.get("HOME")) is not None:
        yield Path(home, ".gitconfig")
        yield Path(os.environ.get("XDG_CONFIG_HOME") or Path(home, ".config"), "git", "config")


def read_state(path: Path) -> tuple[int, ...] | None:
    """Return what changes whenever a file is written or replaced; None if there is none."""
    try:
        return describe_state(path.stat())
    except OSError:
        return None


def describe_state(now: os.stat_result) -> tuple[int, ...]:
    """Return the fields of ``now`` that change whenever a file is written or replaced."""
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _run(
    argv: Sequence[str], *, cwd: Path, stdin: bytes, env: Mapping[str, str], limit_s: float
) -> tuple[int, bytes, bytes]:
    """Run ``argv`` in a new session, and return exit status, output and errors; raises ``GitTimeout``."""
    pipe = subprocess.PIPE
    # Not a pipe: Python's `communicate` leaves it half written after a timeout.
    with tempfile.TemporaryFile() as stream:
        stream.write(stdin)
        stream.seek(0)
        try:
            process = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=stream, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except FileNotFoundError as error:
            if not cwd.is_dir():
                raise EnvironmentMissing(f"{cwd} is not a folder.", hint="name a folder that exists") from error
            raise EnvironmentMissing(
                "git is not installed.", hint="install git, for example: apt-get install git"
            ) from error
        except OSError as error:
            raise describe_start_failure(error, argv, environment=env) from error
    try:
        out, err = _read_output(process, limit_s=limit_s)
    except subprocess.TimeoutExpired as error:
        raise GitTimeout(
            f"{' '.join(argv)} did not end within {limit_s:g} seconds and was stopped.",
            hint="run it yourself to see what delays it, such as a hook, a lock, or an included configuration file",
        ) from error
    finally:
        end_group(process)
        for output in (process.stdout, process.stderr):
            if output is not None:
                with contextlib.suppress(OSError):
                    output.close()
    return process.returncode, out, err


def _read_output(process: "subprocess.Popen[bytes]", *, limit_s: float) -> tuple[bytes, bytes]:
    """Return output and errors of ``process`` when it has ended; raises ``subprocess.TimeoutExpired``."""
    # Processes that git or a hook left behind may hold the pipes open, so the end of the output is not enough.
    deadline = time.monotonic() + limit_s
    while True:
        has_ended = process.poll() is not None
        left = deadline - time.monotonic()
        try:
            return process.communicate(timeout=INHERITED_PIPE_S if has_ended else max(0.0, min(_POLL_S, left)))
        except subprocess.TimeoutExpired as error:
            if has_ended:
                return error.output or b"", error.stderr or b""
            if left <= 0:
                raise
