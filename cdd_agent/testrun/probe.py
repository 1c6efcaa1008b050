"""Asking an interpreter whether it has pytest, and remembering the answer in the project's private folder."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.sandbox.port import Access, Command, Sandbox
from cdd_agent.settings import private_folder
from cdd_agent.storage import scratch, write_atomic
from cdd_agent.testrun import reach

TIMEOUT_S = 30.0
SCHEMA = 2
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

    schema: int
    path: str
    stamp: str
    answer: Answer


class Probe:
    """Asks interpreters on behalf of one project."""

    def __init__(self, project: Path, environment: Mapping[str, str], *, sandbox: Sandbox | None = None) -> None:
        """Nothing is asked yet. Interpreters inside the project are asked in ``sandbox`` if there is one."""
        self._project = project
        self._sandbox = sandbox
        self._environment = environment
        entries = environment.get("PYTHONPATH", "").split(os.pathsep)
        self._python_path = os.pathsep.join(str(project.absolute() / entry) for entry in entries if entry)

    def ask(self, python: Path) -> Answer | str:
        """What ``python`` says, or why it does not; asked outside the project so that no file of it is imported."""
        kept = self._kept()
        if kept is not None and kept == self._known(python, kept.answer):
            return kept.answer
        variables = {"PYTHONPATH": self._python_path} if self._python_path else {}
        if self._sandbox is not None and python.is_relative_to(self._project.absolute()):
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
        private_folder(self._project)
        write_atomic(self._file, msgspec.json.encode(self._known(python, answer)))
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

    @property
    def _file(self) -> Path:
        return self._project / ".cdd" / "interpreter.json"

    def _kept(self) -> _Kept | None:
        """The answer on file, if it can be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None

    def _known(self, python: Path, answer: Answer) -> _Kept:
        """What is on file if ``python`` answered so, and no other Python or pytest has been put there since."""
        times = [path.stat().st_mtime_ns if path.exists() else 0 for path in (python, Path(answer.packages))]
        stamp = f"{times[0]} {times[1]} {self._python_path}"
        return _Kept(schema=SCHEMA, path=str(python), stamp=stamp, answer=answer)


def printed(argv: Sequence[str], folder: Path, *, environment: Mapping[str, str]) -> str:
    """What a program prints, or nothing if it fails or takes too long."""
    result = _ran(argv, folder, variables=_variables(environment) | {"PIPENV_DONT_LOAD_ENV": "1"})
    return "" if isinstance(result, str) or result.returncode else result.stdout.strip()


def _ran(argv: Sequence[str], folder: Path, *, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str] | str:
    """A program's end, or why there is none."""
    try:
        return subprocess.run(
            list(argv),
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TIMEOUT_S:g} seconds"
    except OSError as error:
        return error.strerror or str(error)


def _why(result: subprocess.CompletedProcess[str]) -> str:
    """The last thing a program said before it failed."""
    said = [line for line in result.stderr.splitlines() if line.strip()]
    return said[-1].strip() if said else f"it ended with status {result.returncode}"


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)}
