"""Asking an interpreter whether it has pytest, and remembering the answer in the user's folder.

No file of the project answers for an interpreter: what one says of itself decides what a sandbox lets be read.
"""

import contextlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.errors import UsageError
from cdd_agent.sandbox.port import Access, Command, Sandbox
from cdd_agent.sandbox.processes import end_group
from cdd_agent.storage import exclusive, read_ordinary, scratch, write_atomic
from cdd_agent.testrun import reach
from cdd_agent.trust import is_reached_through

TIMEOUT_S = 30.0
SCHEMA = 3
MAX_SIZE_BYTES = 1_000_000
"""Of the file of answers."""
MOST_KEPT = 100
"""Answers, one for a project; the oldest go first."""
_QUESTION = f"""\
{reach.QUESTION}
import pytest
packages = os.path.dirname(os.path.dirname(os.path.abspath(pytest.__file__)))
version = "%d.%d.%d" % sys.version_info[:3]
print(json.dumps(dict(python=version, pytest=pytest.__version__, packages=packages, reads=reads, user_base=user)))
"""
_LEFT_OUT = ("PYTHON", "ANTHROPIC", "CONDA", "VIRTUAL_ENV")
"""What names the user's own interpreter or key: a tool would answer with the active environment, not the project's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an interpreter said of itself."""

    python: str
    pytest: str
    packages: str
    """The folder that pytest was imported from."""
    reads: tuple[str, ...] = ()
    """What it needs to read: its prefixes, its path, what is installed in editable form."""
    user_base: str = ""
    """Where the user's own packages are, if they count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An answer on file, and by what to know that it still holds."""

    project: str
    device: int
    inode: int
    path: str
    stamp: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """The file, oldest first."""

    schema: int
    answers: tuple[_Kept, ...] = ()


class Probe:
    """Asks interpreters on behalf of one project."""

    def __init__(
        self,
        project: Path,
        environment: Mapping[str, str],
        *,
        sandbox: Sandbox | None = None,
        kept_in: Path | None = None,
    ) -> None:
        """Nothing is asked yet. Interpreters of the work tree are asked in ``sandbox`` if there is one.

        Answers are remembered in the folder ``kept_in``, which is the user's and outside of the project, or nowhere.
        """
        self._project = project
        self._sandbox = sandbox
        self._kept_in = kept_in
        self._environment = environment
        entries = environment.get("PYTHONPATH", "").split(os.pathsep)
        self._python_path = os.pathsep.join(str(project.absolute() / entry) for entry in entries if entry)

    def ask(self, python: Path) -> Answer | str:
        """What ``python`` says, or why it does not; asked outside the project so that no file of it is imported."""
        for kept in self._kept():
            if kept.path == str(python) and kept == self._known(python, kept.answer):
                return kept.answer
        variables = {"PYTHONPATH": self._python_path} if self._python_path else {}
        if self._sandbox is not None and is_reached_through(self._project, python):
            result = self._shut_in(python, self._sandbox, variables=variables)
        else:
            result = _ran(
                [str(python), "-c", _QUESTION], Path(os.sep), variables=_variables(self._environment) | variables
            )
        if isinstance(result, str):
            return result
        try:
            answer = msgspec.json.decode(result.stdout.splitlines()[-1], type=Answer)
        except (IndexError, msgspec.DecodeError, RecursionError):
            return _why(result)
        if self._kept_in is not None:
            self._keep(self._known(python, answer), folder=self._kept_in)
        return answer

    def _shut_in(
        self, python: Path, sandbox: Sandbox, *, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str] | str:
        """The end of ``python`` in a sandbox in which nothing can be written; all it says is taken as its output."""
        with scratch() as folder:
            access = Access(read_write=(Path(folder).resolve(),), read_only=reach.before_asked(python))
            command = Command(
                argv=(str(python), "-c", _QUESTION),
                cwd=Path(folder).resolve(),
                access=access,
                variables={**variables, "PYTHONDONTWRITEBYTECODE": "1"},
                timeout_s=TIMEOUT_S,
            )
            try:
                result = sandbox.run(command)
            except OSError as error:
                return error.strerror or str(error)
        if result.timed_out:
            return f"it did not answer within {TIMEOUT_S:g} seconds"
        return subprocess.CompletedProcess(command.argv, result.exit_status, result.output, stderr=result.output)

    def _kept(self) -> tuple[_Kept, ...]:
        """The answers on file, of all projects; none of a file that is damaged or that others may have written."""
        if self._kept_in is None:
            return ()
        path = self._kept_in / "interpreters.json"
        try:
            data = read_ordinary(path, limit_bytes=MAX_SIZE_BYTES)
            about = path.lstat()
            file = msgspec.json.decode(data, type=_Answers)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ()
        is_own = about.st_uid == os.geteuid() and not stat.S_IMODE(about.st_mode) & 0o022
        return file.answers if is_own and file.schema == SCHEMA else ()

    def _keep(self, made: _Kept, *, folder: Path) -> None:
        """Put an answer on file in the place of what was known of this project; where that fails, it is not kept."""
        with contextlib.suppress(OSError, UsageError, UnicodeEncodeError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with exclusive(folder / "interpreters.lock", purpose="Another look at an interpreter", wait_s=2):
                others = [kept for kept in self._kept() if kept.project != made.project]
                answers = (*others[1 - MOST_KEPT :], made)
                while len(data := msgspec.json.encode(_Answers(schema=SCHEMA, answers=answers))) > MAX_SIZE_BYTES:
                    answers = answers[1:]
                write_atomic(folder / "interpreters.json", data, mode=0o600)

    def _known(self, python: Path, answer: Answer) -> _Kept:
        """What is on file if ``python`` answered so, and no other Python or pytest has been put there since."""
        project = self._project.resolve()
        here = project.stat()
        looked_at = (python, python.parent.parent / "pyvenv.cfg", Path(answer.packages))
        return _Kept(
            project=str(project),
            device=here.st_dev,
            inode=here.st_ino,
            path=str(python),
            stamp=" ".join((*map(_time_of, looked_at), self._python_path)),
            answer=answer,
        )


def _time_of(path: Path) -> str:
    """When what is at ``path`` was changed last."""
    try:
        return str(path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return "0"


def printed(argv: Sequence[str], folder: Path, *, environment: Mapping[str, str]) -> str:
    """What a program prints, or nothing if it fails or takes too long."""
    result = _ran(argv, folder, variables=_variables(environment) | {"PIPENV_DONT_LOAD_ENV": "1"})
    return "" if isinstance(result, str) or result.returncode else result.stdout.strip()


def _ran(argv: Sequence[str], folder: Path, *, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str] | str:
    """A program's end, or why there is none: what it started ends with it when its time is up."""
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or str(error)
    with process:
        try:
            told = [stream.decode("utf-8", "replace") for stream in process.communicate(timeout=TIMEOUT_S)]
        except subprocess.TimeoutExpired:
            end_group(process)
            return f"it did not answer within {TIMEOUT_S:g} seconds"
        except BaseException:
            end_group(process)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, told[0], stderr=told[1])


def _why(result: subprocess.CompletedProcess[str]) -> str:
    """The last thing a program said before it failed."""
    said = [line for line in result.stderr.splitlines() if line.strip()]
    return said[-1].strip() if said else f"it ended with status {result.returncode}"


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)}
