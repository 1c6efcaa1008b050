"""Finds the interpreter that runs a project's tests, and asks it for its versions and paths.

``find_candidates`` applies the rules in their order, and the first interpreter found is the project's. An interpreter
from the repository runs only after the user approved it, and then in the sandbox. Environment tools such as poetry are
taken from the user's PATH and run only with commands that do not execute code of the project.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from cdd_agent.config.trust import Offer, Trust, find_top, is_reached_through, offer_interpreter
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.installation import build_install_command
from cdd_agent.sandbox.port import Access, Command, Sandbox
from cdd_agent.sandbox.supervised import end_group
from cdd_agent.storage import read_ordinary, scratch
from cdd_agent.testrun import access as reach
from cdd_agent.testrun.access import select_readable

TIMEOUT_S = 30.0
MAX_FILE_BYTES = 4_000_000
_QUESTION = f"""\
{reach.QUESTION}
import pytest
version = "%d.%d.%d" % sys.version_info[:3]
print(json.dumps(dict(python=version, pytest=pytest.__version__, reads=reads, user_base=user)))
"""
_LEFT_OUT = ("PYTHON", "ANTHROPIC", "CONDA", "VIRTUAL_ENV")
"""Prefixes of variables with the user's key or active environment, which tools would take for the project's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonInfo:
    """The versions and paths that an interpreter reports."""

    python: str
    pytest: str
    reads: tuple[str, ...] = ()
    """Paths that it needs to read: prefixes, import path and packages installed in editable form."""
    user_base: str = ""
    """Folder of the user's own packages, if the interpreter uses them."""


def ask_interpreter(
    project: Path, python: Path, *, environment: Mapping[str, str], sandbox: Sandbox | None = None
) -> PythonInfo | str:
    """Return the answer of ``python``, or the reason why there is none; one in the work tree runs in ``sandbox``."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    python_path = os.pathsep.join(str(project.absolute() / entry) for entry in entries if entry)
    variables = {"PYTHONPATH": python_path} if python_path else {}
    try:
        if sandbox is not None and is_reached_through(project, python):
            result = _run_sandboxed(python, sandbox, variables=variables)
        else:
            variables = _remove_own_variables(environment) | variables
            # Not in the project: Python would import modules from the current folder.
            result = _run([str(python), "-c", _QUESTION], Path(os.sep), variables=variables)
    except OSError as error:
        return error.strerror or str(error)
    try:
        return msgspec.json.decode(result.stdout.splitlines()[-1], type=PythonInfo)
    except (IndexError, msgspec.DecodeError, RecursionError):
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"it ended with status {result.returncode}"


def capture_output(argv: Sequence[str], folder: Path, *, environment: Mapping[str, str]) -> str:
    """Run a program and return its output, or an empty text if it fails or takes too long."""
    try:
        result = _run(argv, folder, variables=_remove_own_variables(environment) | {"PIPENV_DONT_LOAD_ENV": "1"})
    except OSError:
        return ""
    return "" if result.returncode else result.stdout.strip()


def _run(argv: Sequence[str], folder: Path, *, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program; raise ``OSError`` if it cannot be started or takes too long."""
    with subprocess.Popen(
        list(argv),
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output = [stream.decode("utf-8", "replace") for stream in process.communicate(timeout=TIMEOUT_S)]
        except BaseException as error:
            end_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _make_timeout() from error
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output[0], stderr=output[1])


def _run_sandboxed(python: Path, sandbox: Sandbox, *, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    with scratch() as folder:
        private = Path(folder).resolve()
        command = Command(
            argv=(str(python), "-c", _QUESTION),
            cwd=private,
            access=Access(read_write=(private,), read_only=reach.guess_reads(python)),
            variables={**variables, "PYTHONDONTWRITEBYTECODE": "1"},
            timeout_s=TIMEOUT_S,
        )
        result = sandbox.run(command)
    if result.timed_out:
        raise _make_timeout()
    return subprocess.CompletedProcess(command.argv, result.exit_status, result.output, stderr=result.output)


def _make_timeout() -> TimeoutError:
    return TimeoutError(f"it did not answer within {TIMEOUT_S:g} seconds")


def _remove_own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)}


FOLDERS = (".venv", "venv", "env")
_READ_BY_TOOLS = ("Pipfile", "Pipfile.lock", "hatch.toml", "poetry.lock", "poetry.toml", "pyproject.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterCandidate:
    """An interpreter that may be the project's, and the rule that found it."""

    rule: str
    path: Path
    """Its absolute path. A link is not resolved, because Python finds its environment by it."""
    is_guess: bool = False
    """Whether it is only a guess, so the next candidate may be tried."""
    is_named_by_project: bool = False
    """Whether a file of the project names its path, which can be anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEnvironment:
    """The environment that the user's test command names."""

    python: Path | None = None
    """The absolute path of its interpreter, if the command contains it."""
    tool: str = ""
    """The tool that manages it: ``poetry``, ``hatch`` or ``pipenv``."""
    name: str = ""


NO_ENVIRONMENT = NamedEnvironment()


def find_candidates(
    project: Path, environment: Mapping[str, str], *, named: NamedEnvironment = NO_ENVIRONMENT
) -> Iterator[InterpreterCandidate]:
    """Yield the candidates in order, searching lazily; ``named`` comes right after ``CDD_PYTHON``."""
    project = project.absolute()
    folders = list_folders_to_top(project)
    if python := environment.get("CDD_PYTHON"):
        yield InterpreterCandidate(rule="CDD_PYTHON", path=Path(python).absolute())
    if named.python is not None:
        yield InterpreterCandidate(rule="test_command", path=named.python, is_named_by_project=True)
    if named.tool:
        yield from _ask_tools(project, environment, named=named)
    active = Path(environment["VIRTUAL_ENV"]) if environment.get("VIRTUAL_ENV") else None
    if active is not None and active.resolve().is_relative_to(folders[-1].resolve()):
        yield from _find_virtual("VIRTUAL_ENV", active)
    if uv_environment := environment.get("UV_PROJECT_ENVIRONMENT"):
        for folder in folders:
            yield from _find_virtual("UV_PROJECT_ENVIRONMENT", folder / uv_environment)
    for folder in folders:
        for name in FOLDERS:
            yield from _find_virtual(os.path.relpath(folder / name, project), folder / name)
    yield from _find_pdm(project)
    yield from _ask_tools(project, environment)
    yield from _find_conda(".pixi/envs/default", project / ".pixi/envs/default")
    by_tool = filter(None, (find_newest(project / tool, "*") for tool in (".tox", ".nox")))
    if last := max(by_tool, key=_creation_order, default=None):
        yield from _find_virtual(last.relative_to(project).as_posix(), last)
    if environment.get("CONDA_PREFIX") and environment.get("CONDA_DEFAULT_ENV") != "base":
        yield from _find_conda("CONDA_PREFIX", Path(environment["CONDA_PREFIX"]))
    if active is not None:
        yield from _find_virtual("VIRTUAL_ENV", active)
    yield from _find_on_path(project, environment)


def list_folders_to_top(folder: Path) -> tuple[Path, ...]:
    """Return ``folder`` and its parents up to the top of the work tree, or only itself outside of one."""
    upwards = (folder, *folder.parents)
    tops = (number for number, each in enumerate(upwards, 1) if os.path.lexists(each / ".git"))
    return upwards[: next(tops, 1)]


def _find_virtual(rule: str, folder: Path) -> Iterator[InterpreterCandidate]:
    python = folder.absolute() / "bin" / "python"
    # A dangling link still identifies the project's environment: the user must hear that it is broken.
    if (folder / "pyvenv.cfg").exists() and (python.exists() or python.is_symlink()):
        yield InterpreterCandidate(rule=rule, path=python)


def _find_conda(rule: str, folder: Path) -> Iterator[InterpreterCandidate]:
    python = folder / "bin" / "python"
    if python.exists():
        yield InterpreterCandidate(rule=rule, path=python)


def _find_pdm(project: Path) -> Iterator[InterpreterCandidate]:
    # A file of the project: it could name any program, so the name must be that of a Python.
    python = Path(read_content(project / ".pdm-python").decode("utf-8", "replace").strip())
    if python.is_absolute() and python.name.startswith("python") and python.is_file():
        yield InterpreterCandidate(rule=".pdm-python", path=python, is_named_by_project=True)


def _ask_tools(
    project: Path, environment: Mapping[str, str], *, named: NamedEnvironment = NO_ENVIRONMENT
) -> Iterator[InterpreterCandidate]:
    """Yield the environments of poetry, hatch and pipenv outside the project, or only that of the ``named`` tool."""
    # Reading a pipe would make the tool wait forever.
    files = (project / name for name in _READ_BY_TOOLS)
    if any(path.exists() and not path.is_file() and not path.is_dir() for path in files):
        return
    tools = get_table(read_toml(project / "pyproject.toml"), "tool", "hatch") | read_toml(project / "hatch.toml")
    poetry = "poetry" in get_table(read_toml(project / "pyproject.toml"), "tool")
    is_safe = not _runs_code(tools)
    questions = (
        (poetry or (project / "poetry.lock").exists(), True, ("poetry", "--no-plugins", "env", "info", "--path")),
        ("envs" in tools, is_safe, ("hatch", "--no-color", "env", "find", *filter(None, (named.name,)))),
        (any((project / name).exists() for name in ("Pipfile", "Pipfile.lock")), True, ("pipenv", "--venv")),
    )
    for is_usual, may_be_asked, argv in questions:
        is_used = may_be_asked and (argv[0] == named.tool if named.tool else is_usual)
        tool = shutil.which(argv[0], path=environment.get("PATH", "")) if is_used else None
        if tool is not None:
            answer = capture_output([tool, *argv[1:]], project, environment=environment).splitlines()
            for line in answer if argv[0] == "hatch" else answer[-1:]:  # hatch names one for each version
                if Path(line).is_absolute():
                    yield from _find_virtual(argv[0], Path(line))


def read_toml(path: Path) -> dict[str, object]:
    """Read a TOML file; the result is empty if that fails."""
    try:
        return tomllib.loads(read_content(path).decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def read_content(path: Path) -> bytes:
    """Read a file of the project; the result is empty if that fails."""
    try:
        return read_ordinary(path, limit_bytes=MAX_FILE_BYTES, through_links=True)
    except OSError:
        return b""


def get_table(inside: Mapping[str, object], *names: str) -> dict[str, object]:
    """Return the table that the names lead to, or an empty one."""
    found: object = inside
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _runs_code(settings: object) -> bool:
    """Return whether hatch would run code of the project: a ``custom`` plugin, or ``code`` for the version."""
    match settings:
        case dict():
            return any(key in ("custom", "code") or _runs_code(value) for key, value in settings.items())
        case list():
            return any(map(_runs_code, settings))
    return settings in ("custom", "code")


def find_newest(folder: Path, pattern: str) -> Path | None:
    """Return the newest environment with pytest in ``folder`` whose name matches ``pattern``, or None."""
    names = (path.parent for path in folder.glob(f"{pattern}/pyvenv.cfg"))
    found = (path for path in names if any(path.glob("lib/python3*/site-packages/pytest")))
    return max(found, key=_creation_order, default=None)


def _creation_order(folder: Path) -> tuple[int, str]:
    return (folder / "pyvenv.cfg").stat().st_mtime_ns, folder.name


def _find_on_path(project: Path, environment: Mapping[str, str]) -> Iterator[InterpreterCandidate]:
    # pyenv and similar tools choose the version by the current folder, so the program itself must say where it is.
    for name in ("python", "python3"):
        typed = shutil.which(name, path=environment.get("PATH", ""))
        where = ["-I", "-S", "-c", "import sys; print(sys.executable)"]
        named = capture_output([typed, *where], project, environment=environment) if typed else ""
        if named:
            yield InterpreterCandidate(rule=f"{name} on PATH", path=Path(named), is_guess=True)


OLDEST_PYTHON = (3, 8)
OLDEST_PYTEST = (7, 0)


class PytestMissing(EnvironmentMissing):
    """The project's interpreter has no pytest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can run the project's tests; see ``PythonInfo``."""

    path: Path
    origin: str
    """The rule that found it."""
    python: str
    pytest: str
    reads: tuple[Path, ...] = ()
    user_base: str = ""


def find_interpreter(
    project: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    trust: Trust | None = None,
    sandbox: Sandbox | None = None,
    named: NamedEnvironment = NO_ENVIRONMENT,
) -> Interpreter:
    """Return the first interpreter that the rules find, asking the user before a program of the work tree runs.

    Only if no rule finds an interpreter, the user's ``python`` is used, or else the one that runs cdd. Without
    ``trust``, all of them may run. See ``ask_interpreter`` for ``sandbox``.

    Raises ``EnvironmentMissing`` if pytest is missing there or the user declined the interpreter, because another one
    would run the tests with other packages, and ``NotApproved`` if nobody can be asked.
    """
    environment = _drop_project_path(project, environment)
    ask = partial(ask_interpreter, project, environment=environment, sandbox=sandbox)
    for candidate in find_candidates(project, environment, named=named):
        if trust is not None:
            _require(project, candidate, trust=trust, sandbox=sandbox)
        answer = ask(candidate.path)
        if not candidate.is_guess or _is_supported(answer):
            return _make_interpreter(candidate, answer)
    this = InterpreterCandidate(rule="the interpreter that runs cdd", path=Path(sys.executable))
    return _make_interpreter(this, ask(this.path))


def _is_supported(answer: PythonInfo | str) -> bool:
    def is_new(version: str, oldest: tuple[int, int]) -> bool:
        return tuple(map(int, re.findall(r"\d+", version)[:2])) >= oldest

    return not isinstance(answer, str) and is_new(answer.python, OLDEST_PYTHON) and is_new(answer.pytest, OLDEST_PYTEST)


def _make_interpreter(candidate: InterpreterCandidate, answer: PythonInfo | str) -> Interpreter:
    named = f"the project's interpreter {candidate.path} ({candidate.rule})"
    otherwise = "set CDD_PYTHON to another interpreter"
    if isinstance(answer, str):
        if "No module named 'pytest'" in answer:
            raise PytestMissing(
                f"{named[0].upper()}{named[1:]} cannot import pytest.",
                hint=f"{build_install_command(candidate.path)} pytest, or {otherwise}",
            )
        raise EnvironmentMissing(
            f"Pytest does not start in {named}: {answer}", hint=f"recreate that environment, or {otherwise}"
        )
    if not _is_supported(answer):
        raise EnvironmentMissing(
            f"{named[0].upper()}{named[1:]} is Python {answer.python} with pytest {answer.pytest}; "
            "cdd needs Python 3.8 and pytest 7.0, or newer.",
            hint=f"{build_install_command(candidate.path)} 'pytest>=7', or {otherwise}",
        )
    return Interpreter(
        path=candidate.path,
        origin=candidate.rule,
        python=answer.python,
        pytest=answer.pytest,
        reads=select_readable(map(Path, answer.reads)),
        user_base=answer.user_base,
    )


def _require(project: Path, candidate: InterpreterCandidate, *, trust: Trust, sandbox: Sandbox | None = None) -> None:
    offer = _make_offer(project, candidate)
    if offer is None:
        return
    # Whoever packed this folder may have added files that git does not track: without a sandbox, the user decides.
    is_confined = sandbox is not None and sandbox.level != "none"
    is_brought = candidate.is_named_by_project or not is_confined or trust.brings(candidate.path)
    if not is_brought and trust.approvals.find_decision(offer) is None:
        return
    if not trust.allows(offer):
        raise EnvironmentMissing(
            f"You declined the project's interpreter {candidate.path}, and tests need one.",
            hint=f"set another one, such as CDD_PYTHON=/usr/bin/python3, or decide again: {trust.approvals.decided_by}",
        )


def find_approved_python(project: Path, *, environment: Mapping[str, str], trust: Trust) -> Path | None:
    """Return the first interpreter that the rules find, with or without pytest, once the user approved it."""
    first = next(find_candidates(project, _drop_project_path(project, environment)), None)
    if first is None:
        return None
    _require(project, first, trust=trust)
    return first.path


def find_offer(
    project: Path,
    *,
    environment: Mapping[str, str],
    named: NamedEnvironment = NO_ENVIRONMENT,
    brings: Callable[[Path], bool] = lambda _: True,
) -> Offer | None:
    """Return the offer to approve the interpreter that the rules find first, without running it.

    None if the user's approval is not needed; ``brings`` as in ``Trust``.
    """
    first = next(find_candidates(project, _drop_project_path(project, environment), named=named), None)
    if first is None or not (first.is_named_by_project or brings(first.path)):
        return None
    return _make_offer(project, first)


def _make_offer(project: Path, candidate: InterpreterCandidate) -> Offer | None:
    if candidate.rule == "CDD_PYTHON":  # the user chose it for cdd
        return None
    return offer_interpreter(project, candidate.path, is_named_by_project=candidate.is_named_by_project)


def _drop_project_path(project: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Remove folders of the work tree from ``PATH``, since the repository controls the programs there."""
    if "PATH" not in environment:
        return environment
    top = find_top(project)
    entries = environment["PATH"].split(os.pathsep)
    own = [entry for entry in entries if not (project / entry).resolve().is_relative_to(top)]
    return {**environment, "PATH": os.pathsep.join(own)}
