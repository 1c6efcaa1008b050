"""Finds the interpreter that runs a project's tests, and asks it for its versions and paths.

``find_candidates`` applies the rules in their order, and the first interpreter found is the project's. An interpreter
from the repository runs only after the user approved it, and then in the sandbox. Other interpreters run in ``/``, and
the question executes nothing but Python's own code.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from cdd_agent.config.options import Choose
from cdd_agent.config.trust import Offer, Trust, find_top, is_reached_through, offer_interpreter
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.installation import build_install_command
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Command, Sandbox
from cdd_agent.sandbox.supervised import end_group
from cdd_agent.storage import scratch
from cdd_agent.testrun import access as reach
from cdd_agent.testrun.access import select_readable
from cdd_agent.testrun.environment_tools import InstalledTool, find_installed, list_tools
from cdd_agent.testrun.project_files import read_content

TIMEOUT_S = 30.0
_QUESTION = f"""\
{reach.QUESTION}
import importlib.metadata
pytest = next(iter(importlib.metadata.distributions(name="pytest", path=paths)), None)
if pytest is None:
    raise ModuleNotFoundError("No module named 'pytest'")
version = "%d.%d.%d" % sys.version_info[:3]
print(json.dumps(dict(python=version, pytest=str(pytest.version), reads=reads, user_base=user)))
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
    argv = (str(python), "-I", "-S", "-c", _QUESTION, python_path)
    try:
        if sandbox is not None and is_reached_through(project, python):
            result = _run_sandboxed(python, sandbox, argv=argv)
        else:
            result = run_outside(argv, variables=remove_own_variables(environment))
    except OSError as error:
        return error.strerror or str(error)
    try:
        return msgspec.json.decode(result.stdout.splitlines()[-1], type=PythonInfo)
    except (IndexError, msgspec.DecodeError, RecursionError):
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"it ended with status {result.returncode}"


def run_outside(
    argv: Sequence[str], *, variables: Mapping[str, str], timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the user without a sandbox; raise ``OSError`` if it cannot be started or takes too long."""
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    with subprocess.Popen(
        list(argv),
        cwd=os.sep,  # not in the project, whose files tools such as pyenv obey
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output = [stream.decode("utf-8", "replace") for stream in process.communicate(timeout=limit_s)]
        except BaseException as error:
            end_group(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _make_timeout(limit_s) from error
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output[0], stderr=output[1])


def _run_sandboxed(python: Path, sandbox: Sandbox, *, argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    with scratch() as folder:
        private = Path(folder).resolve()
        command = Command(
            argv=argv,
            cwd=private,
            access=Access(read_write=(private,), read_only=reach.guess_reads(python)),
            variables={"PYTHONDONTWRITEBYTECODE": "1"},
            timeout_s=TIMEOUT_S,
        )
        result = sandbox.run(command)
    if result.timed_out:
        raise _make_timeout(TIMEOUT_S)
    return subprocess.CompletedProcess(command.argv, result.exit_status, result.output, stderr=result.output)


def _make_timeout(limit_s: float) -> TimeoutError:
    return TimeoutError(f"it did not answer within {limit_s:g} seconds")


def remove_own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without the user's key and active environment."""
    return {name: value for name, value in environment.items() if not name.startswith(_LEFT_OUT)}


FOLDERS = (".venv", "venv", "env")
_MOST_VERSIONS = 8


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
FindKept: TypeAlias = Callable[[NamedEnvironment], Iterable[InterpreterCandidate]]


def find_candidates(
    project: Path,
    environment: Mapping[str, str],
    *,
    named: NamedEnvironment = NO_ENVIRONMENT,
    find_kept: FindKept = lambda _: (),
) -> Iterator[InterpreterCandidate]:
    """Yield the candidates in order, searching lazily; ``named`` comes right after ``CDD_PYTHON``.

    ``find_kept`` returns the environments outside the project that the tools of ``named``, or of the project, keep.
    """
    project = project.absolute()
    folders = list_folders_to_top(project)
    if python := environment.get("CDD_PYTHON"):
        yield InterpreterCandidate(rule="CDD_PYTHON", path=Path(python).absolute())
    if named.python is not None:
        yield InterpreterCandidate(rule="test_command", path=named.python, is_named_by_project=True)
    if named.tool:
        yield from find_kept(named)
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
    yield from find_kept(NO_ENVIRONMENT)
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


def _find_virtual(rule: str, folder: Path, *, is_named_by_project: bool = False) -> Iterator[InterpreterCandidate]:
    python = folder.absolute() / "bin" / "python"
    # A dangling link still identifies the project's environment: the user must hear that it is broken.
    if (folder / "pyvenv.cfg").exists() and (python.exists() or python.is_symlink()):
        yield InterpreterCandidate(rule=rule, path=python, is_named_by_project=is_named_by_project)


def _find_conda(rule: str, folder: Path) -> Iterator[InterpreterCandidate]:
    python = folder / "bin" / "python"
    if python.exists():
        yield InterpreterCandidate(rule=rule, path=python)


def _find_pdm(project: Path) -> Iterator[InterpreterCandidate]:
    # A file of the project: it could name any program, so the name must be that of a Python.
    python = Path(read_content(project / ".pdm-python").decode("utf-8", "replace").strip())
    if python.is_absolute() and python.name.startswith("python") and python.is_file():
        yield InterpreterCandidate(rule=".pdm-python", path=python, is_named_by_project=True)


def find_newest(folder: Path, pattern: str) -> Path | None:
    """Return the newest environment with pytest in ``folder`` whose name matches ``pattern``, or None."""
    names = (path.parent for path in folder.glob(f"{pattern}/pyvenv.cfg"))
    found = (path for path in names if any(path.glob("lib/python3*/site-packages/pytest")))
    return max(found, key=_creation_order, default=None)


def _creation_order(folder: Path) -> tuple[int, str]:
    return (folder / "pyvenv.cfg").stat().st_mtime_ns, folder.name


def _find_on_path(project: Path, environment: Mapping[str, str]) -> Iterator[InterpreterCandidate]:
    # pyenv and similar tools choose the version, so the program itself must say where it is.
    variables = _choose_version(project) | remove_own_variables(environment)
    for name in ("python", "python3"):
        typed = shutil.which(name, path=environment.get("PATH", ""))
        if typed is None:
            continue
        if is_reached_through(project, Path(typed)):  # not to be started before it is approved
            yield InterpreterCandidate(rule=f"{name} on PATH", path=Path(typed), is_guess=True)
            continue
        try:
            answer = run_outside([typed, "-I", "-S", "-c", "import sys; print(sys.executable)"], variables=variables)
        except OSError:
            continue
        if answer.returncode == 0 and answer.stdout.strip():
            yield InterpreterCandidate(rule=f"{name} on PATH", path=Path(answer.stdout.strip()), is_guess=True)


_VERSION = re.compile(r"[A-Za-z0-9][\w.+-]{0,63}")


def _choose_version(project: Path) -> dict[str, str]:
    """Return the variables by which pyenv, asdf and mise use the versions that files of the project name."""
    for folder in list_folders_to_top(project):
        lines = read_content(folder / ".python-version").decode("utf-8", "replace").splitlines()
        tools = read_content(folder / ".tool-versions").decode("utf-8", "replace").splitlines()
        lines = lines or next((words[1:] for line in tools if (words := line.split())[:1] == ["python"]), [])
        if versions := [line.strip() for line in lines[:_MOST_VERSIONS] if _VERSION.fullmatch(line.strip())]:
            names = ("ASDF_PYTHON_VERSION", "MISE_PYTHON_VERSION")
            return {"PYENV_VERSION": ":".join(versions), **dict.fromkeys(names, versions[0])}
    return {}


_NONE_OF_THESE = "none of these"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFinder:
    """Finds the environments that poetry, hatch and pipenv keep outside a project."""

    project: Path
    environment: Mapping[str, str]
    sandbox: Sandbox | None = None
    trust: Trust | None = None
    choose: Choose | None = None

    def find(self, named: NamedEnvironment) -> Iterator[InterpreterCandidate]:
        """Yield the interpreters of the environments that the tools name, or that the user chooses."""
        for installed in self._list_installed(named):
            answer = installed.ask(named.name, sandbox=self.sandbox)
            if answer is None:
                chosen = self._choose(installed, named.name)
                answer = () if chosen is None else (chosen,)
            for folder in answer:
                # Elsewhere, only a file of the project can have named it.
                is_kept = folder.resolve().is_relative_to(installed.folder.resolve())
                yield from _find_virtual(installed.tool.name, folder, is_named_by_project=not is_kept)

    def list_by_name(self, named: NamedEnvironment) -> Iterator[InterpreterCandidate]:
        """Yield the interpreters that may be the project's, without asking a tool or the user."""
        for installed in self._list_installed(named):
            for folder in installed.list_environments(named.name):
                yield from _find_virtual(installed.tool.name, folder)

    def _list_installed(self, named: NamedEnvironment) -> Iterator[InstalledTool]:
        project = self.project.absolute()
        for tool in list_tools(project, named.tool):
            installed = find_installed(tool, project, environment=self.environment)
            if installed is not None:
                yield installed

    def _choose(self, installed: InstalledTool, environment: str) -> Path | None:
        """Return the environment that is the project's by its name alone, or that the user chose, now or before.

        Raises ``EnvironmentMissing`` if nobody can choose.
        """
        kept, name = installed.list_environments(environment), installed.tool.name
        if not kept:
            return None
        if len(kept) == 1 and installed.has_mark(kept[0]):
            return kept[0]
        choices = (*map(str, kept), _NONE_OF_THESE)
        chosen = self.trust.find_choice("interpreter", choices) if self.trust else None
        level = self.sandbox.level if self.sandbox else "none"
        why = f"gave no answer at the level {level}"
        if level not in ISOLATING_LEVELS:
            why = f"obeys files of the project, so cdd does not start it at the level {level}"
        if chosen is None and self.choose is not None and self.trust is not None:
            question = f"Which environment has the project's interpreter? {name} {why}."
            chosen = choices[self.choose(question, choices)]
            self.trust.save_choice("interpreter", chosen, among=choices)
        if chosen is None:
            raise EnvironmentMissing(
                f"{name} knows which of its environments is the project's, but it {why}.",
                hint=f"name the interpreter: CDD_PYTHON={shlex.quote(str(kept[0] / 'bin' / 'python'))}; "
                "or type cdd doctor in a terminal, which asks once",
            )
        return None if chosen == _NONE_OF_THESE else Path(chosen)


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
    choose: Choose | None = None,
) -> Interpreter:
    """Return the first interpreter that the rules find, asking the user before a program of the work tree runs.

    Only if no rule finds an interpreter, the user's ``python`` is used, or else the one that runs cdd. Without
    ``trust``, all of them may run. See ``ask_interpreter`` for ``sandbox``; ``choose`` asks the user about environments
    of a tool that cannot be asked.

    Raises ``EnvironmentMissing`` if pytest is missing there or the user declined the interpreter, because another one
    would run the tests with other packages, and ``NotApproved`` if nobody can be asked.
    """
    environment = _drop_project_path(project, environment)
    ask = partial(ask_interpreter, project, environment=environment, sandbox=sandbox)
    finder = KeptFinder(project=project, environment=environment, sandbox=sandbox, trust=trust, choose=choose)
    for candidate in find_candidates(project, environment, named=named, find_kept=finder.find):
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


def find_approved_python(
    project: Path,
    *,
    environment: Mapping[str, str],
    trust: Trust,
    sandbox: Sandbox | None = None,
    choose: Choose | None = None,
) -> Path | None:
    """Return the first interpreter that the rules find, with or without pytest, once the user approved it."""
    environment = _drop_project_path(project, environment)
    finder = KeptFinder(project=project, environment=environment, sandbox=sandbox, trust=trust, choose=choose)
    first = next(find_candidates(project, environment, find_kept=finder.find), None)
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
    """Return the offer to approve the interpreter that the rules find first, without running it or a tool.

    None if the user's approval is not needed; ``brings`` as in ``Trust``.
    """
    environment = _drop_project_path(project, environment)
    kept = KeptFinder(project=project, environment=environment).list_by_name
    first = next(find_candidates(project, environment, named=named, find_kept=kept), None)
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
