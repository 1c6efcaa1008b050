"""Asking an interpreter whether it has pytest, and remembering the answer in the user's folder.

No file of the project answers for an interpreter: what one says of itself decides what a sandbox lets be read.

Where a project's interpreter can be: the rules, in the order in which they count.

What a tool says of its environments is asked of the tool on the user's PATH, and only in ways in which the tool runs
no code of the project.

Which interpreter runs a project's tests: the first that the rules find, asked whether it can.

The interpreter of a project as far as the user lets it run: one that the repository brings waits for approval.
"""

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cdd_agent.config.trust import Offer, Trust, interpreter_offer, is_reached_through, top_of
from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.sandbox.port import Access, Command, Sandbox, end_group
from cdd_agent.storage import exclusive, read_ordinary, scratch, write_atomic
from cdd_agent.testrun import access as reach
from cdd_agent.testrun.access import fit

TIMEOUT_S = 30.0
SCHEMA = 3
MAX_ANSWERS_BYTES = 1_000_000
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
            data = read_ordinary(path, limit_bytes=MAX_ANSWERS_BYTES)
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
                while len(data := msgspec.json.encode(_Answers(schema=SCHEMA, answers=answers))) > MAX_ANSWERS_BYTES:
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


FOLDERS = (".venv", "venv", "env")
MAX_FILE_BYTES = 4_000_000
"""Of a file of the project that is looked into."""

_READ_BY_TOOLS = ("Pipfile", "Pipfile.lock", "hatch.toml", "poetry.lock", "poetry.toml", "pyproject.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An interpreter that may be the project's."""

    rule: str
    """What found it, as an error names it."""
    path: Path
    """Absolute; a link is left as it is, since by it Python knows its environment."""
    is_guess: bool = False
    """Nothing says that it is the project's; the next one may be tried."""
    is_named_by_project: bool = False
    """A file of the project says where it is, which may be anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The environment that the user's test command names."""

    python: Path | None = None
    """Its interpreter, if that is told; absolute."""
    tool: str = ""
    """Whoever keeps it: ``poetry``, ``hatch``, ``pipenv``."""
    name: str = ""
    """What that one calls it."""


NOTHING_MEANT = Meant()


def candidates(project: Path, environment: Mapping[str, str], *, meant: Meant = NOTHING_MEANT) -> Iterator[Candidate]:
    """All that is there, found while it is asked for; what the test command names comes after ``CDD_PYTHON``."""
    project = project.absolute()
    folders = _up_to_repository(project)
    if told := environment.get("CDD_PYTHON"):
        yield Candidate(rule="CDD_PYTHON", path=Path(told).absolute())
    if meant.python is not None:
        yield Candidate(rule="test_command", path=meant.python, is_named_by_project=True)
    if meant.tool:
        yield from _asked(project, environment, meant=meant)
    active = Path(environment["VIRTUAL_ENV"]) if environment.get("VIRTUAL_ENV") else None
    if active is not None and active.resolve().is_relative_to(folders[-1].resolve()):
        yield from _virtual("VIRTUAL_ENV", active)
    if uvs := environment.get("UV_PROJECT_ENVIRONMENT"):
        for folder in folders:
            yield from _virtual("UV_PROJECT_ENVIRONMENT", folder / uvs)
    for folder in folders:
        for name in FOLDERS:
            yield from _virtual(os.path.relpath(folder / name, project), folder / name)
    yield from _pdm(project)
    yield from _asked(project, environment)
    yield from _plain(".pixi/envs/default", project / ".pixi" / "envs" / "default")
    yield from _newest(project)
    if environment.get("CONDA_PREFIX") and environment.get("CONDA_DEFAULT_ENV") != "base":
        yield from _plain("CONDA_PREFIX", Path(environment["CONDA_PREFIX"]))
    if active is not None:
        yield from _virtual("VIRTUAL_ENV", active)
    yield from _on_path(project, environment)


def _up_to_repository(project: Path) -> tuple[Path, ...]:
    """``project`` and its parents up to the git work tree's top; only itself outside of any."""
    upwards = (project, *project.parents)
    for number, folder in enumerate(upwards, 1):
        if (folder / ".git").exists():
            return upwards[:number]
    return (project,)


def _virtual(rule: str, folder: Path) -> Iterator[Candidate]:
    """The interpreter of the virtual environment at ``folder``, if it is one; it may be a link to what is gone."""
    python = folder.absolute() / "bin" / "python"
    if (folder / "pyvenv.cfg").exists() and (python.exists() or python.is_symlink()):
        yield Candidate(rule=rule, path=python)


def _plain(rule: str, folder: Path) -> Iterator[Candidate]:
    """The interpreter in an environment of conda's kind."""
    python = folder / "bin" / "python"
    if python.exists():
        yield Candidate(rule=rule, path=python)


def _pdm(project: Path) -> Iterator[Candidate]:
    """What ``.pdm-python`` names, if by its name it is a Python: it is a file of the project like any other."""
    try:
        told = read_ordinary(project / ".pdm-python", limit_bytes=MAX_FILE_BYTES, through_links=True)
        python = Path(told.decode("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return
    if python.is_absolute() and python.name.startswith("python") and python.is_file():
        yield Candidate(rule=".pdm-python", path=python, is_named_by_project=True)


def _asked(project: Path, environment: Mapping[str, str], *, meant: Meant = NOTHING_MEANT) -> Iterator[Candidate]:
    """The environments that poetry, hatch and pipenv keep outside the project; nothing if one would wait for ever.

    If one is ``meant``, that tool alone is asked.
    """
    if any(_is_special(project / name) for name in _READ_BY_TOOLS):
        return
    tools = table(table(toml(project / "pyproject.toml"), "tool"), "hatch") | toml(project / "hatch.toml")
    poetry = "poetry" in table(toml(project / "pyproject.toml"), "tool")
    is_safe = not _runs_code(tools)
    questions = (
        (poetry or (project / "poetry.lock").exists(), True, ("poetry", "--no-plugins", "env", "info", "--path")),
        ("envs" in tools, is_safe, ("hatch", "--no-color", "env", "find", *filter(None, (meant.name,)))),
        (any((project / name).exists() for name in ("Pipfile", "Pipfile.lock")), True, ("pipenv", "--venv")),
    )
    for is_usual, may_be_asked, argv in questions:
        is_used = may_be_asked and (argv[0] == meant.tool if meant.tool else is_usual)
        tool = shutil.which(argv[0], path=environment.get("PATH", "")) if is_used else None
        if tool is not None:
            answer = printed([tool, *argv[1:]], project, environment=environment).splitlines()
            for line in answer if argv[0] == "hatch" else answer[-1:]:  # hatch names one for each version
                if Path(line).is_absolute():
                    yield from _virtual(argv[0], Path(line))


def toml(path: Path) -> dict[str, object]:
    """The content of ``path``, empty if it cannot be read."""
    try:
        return tomllib.loads(content_of(path).decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def content_of(path: Path) -> bytes:
    """What is in a file of the project, nothing if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=MAX_FILE_BYTES, through_links=True)
    except OSError:
        return b""


def _is_special(path: Path) -> bool:
    """Whether there is something at ``path`` that is neither a file nor a folder: a pipe, a device."""
    return path.exists() and not path.is_file() and not path.is_dir()


def table(inside: Mapping[str, object], name: str) -> dict[str, object]:
    """The table ``name`` in another one, or an empty one."""
    value = inside.get(name)
    return value if isinstance(value, dict) else {}


def _runs_code(settings: object) -> bool:
    """Whether hatch would load a file of the project: its plugins are named ``custom``, its version may be ``code``."""
    match settings:
        case dict():
            return any(key in ("custom", "code") or _runs_code(value) for key, value in settings.items())
        case list():
            return any(map(_runs_code, settings))
    return settings in ("custom", "code")


def _newest(project: Path) -> Iterator[Candidate]:
    """The environment of tox or nox with pytest that was made last."""
    found = [folder for folder in (newest(project / tool, "*") for tool in (".tox", ".nox")) if folder is not None]
    if found:
        last = max(found, key=_made_at)
        yield from _virtual(last.relative_to(project).as_posix(), last)


def newest(folder: Path, pattern: str) -> Path | None:
    """The environment in ``folder`` with pytest, of a name like ``pattern``, that was made last."""
    names = (path.parent for path in folder.glob(f"{pattern}/pyvenv.cfg"))
    return max(
        (path for path in names if any(path.glob("lib/python3*/site-packages/pytest"))), key=_made_at, default=None
    )


def _made_at(folder: Path) -> tuple[int, str]:
    return (folder / "pyvenv.cfg").stat().st_mtime_ns, folder.name


def _on_path(project: Path, environment: Mapping[str, str]) -> Iterator[Candidate]:
    """``python`` and ``python3`` as typed in the project; such a name can stand for a version chosen by folder."""
    for name in ("python", "python3"):
        typed = shutil.which(name, path=environment.get("PATH", ""))
        where = ["-I", "-S", "-c", "import sys; print(sys.executable)"]
        meant = printed([typed, *where], project, environment=environment) if typed else ""
        if meant:
            yield Candidate(rule=f"{name} on PATH", path=Path(meant), is_guess=True)


OLDEST_PYTHON = (3, 8)
OLDEST_PYTEST = (7, 0)


class PytestMissing(EnvironmentMissing):
    """The project's interpreter has no pytest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can run the project's tests."""

    path: Path
    origin: str
    """The rule that found it."""
    python: str
    pytest: str
    reads: tuple[Path, ...] = ()
    """What it needs to be able to read, beyond the system's programs."""
    user_base: str = ""
    """Where the user's own packages are, if it uses them."""


def find_interpreter(
    project: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    require: Callable[[Candidate], None] = lambda _: None,
    sandbox: Sandbox | None = None,
    kept_in: Path | None = None,
    meant: Meant = NOTHING_MEANT,
) -> Interpreter:
    """The interpreter of ``project``, by the rules of ``environments`` in their order; ``CDD_PYTHON`` comes first,
    then what is ``meant`` by the command that the user runs tests with.

    The first that exists is the project's; if pytest is missing there, that is an ``EnvironmentMissing``, never a
    reason to judge the project with another environment's packages. Only where no rule finds one, it is the
    ``python`` that the user would get by typing so, and if that has no pytest, the interpreter that runs cdd.

    ``require`` is called with each candidate before that is run for the first time; it raises for one that must not be.
    One of the work tree is asked in ``sandbox``; the answer is remembered in ``kept_in``, a folder of the user's.
    """
    probe = Probe(project, environment, sandbox=sandbox, kept_in=kept_in)
    for candidate in candidates(project, environment, meant=meant):
        require(candidate)
        answer = probe.ask(candidate.path)
        if candidate.is_guess and not _fits(answer):
            continue
        return _interpreter(candidate, answer)
    this = Candidate(rule="the interpreter that runs cdd", path=Path(sys.executable))
    return _interpreter(this, probe.ask(this.path))


def _fits(answer: Answer | str) -> bool:
    """Whether the versions are new enough for the plugin."""
    return not isinstance(answer, str) and all(
        tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= oldest
        for version, oldest in ((answer.python, OLDEST_PYTHON), (answer.pytest, OLDEST_PYTEST))
    )


def _interpreter(candidate: Candidate, answer: Answer | str) -> Interpreter:
    """The interpreter, or an error that says what was found, by which rule, and what to type."""
    named = f"the project's interpreter {candidate.path} ({candidate.rule})"
    otherwise = "set CDD_PYTHON to another interpreter"
    if isinstance(answer, str):
        if "No module named 'pytest'" in answer:
            raise PytestMissing(
                f"pytest cannot be imported by {named}.", hint=f"{_install(candidate.path)} pytest, or {otherwise}"
            )
        raise EnvironmentMissing(
            f"Pytest does not start in {named}: {answer}", hint=f"make that environment anew, or {otherwise}"
        )
    if not _fits(answer):
        raise EnvironmentMissing(
            f"{named[0].upper()}{named[1:]} is Python {answer.python} with pytest {answer.pytest}; "
            "tests are run with Python 3.8 and pytest 7.0, or newer.",
            hint=f"{_install(candidate.path)} 'pytest>=7', or {otherwise}",
        )
    return Interpreter(
        path=candidate.path,
        origin=candidate.rule,
        python=answer.python,
        pytest=answer.pytest,
        reads=fit(map(Path, answer.reads)),
        user_base=answer.user_base,
    )


def _install(python: Path) -> str:
    """The command that installs a package for ``python``; environments that uv makes have no pip."""
    told = python.parent.parent / "pyvenv.cfg"
    try:
        is_uvs = b"\nuv = " in read_ordinary(told, limit_bytes=MAX_FILE_BYTES, through_links=True)
    except OSError:
        is_uvs = False
    return f"uv pip install --python {python}" if is_uvs else f"{python} -m pip install"


def approved_interpreter(
    project: Path,
    *,
    environment: Mapping[str, str],
    trust: Trust,
    sandbox: Sandbox | None = None,
    meant: Meant = NOTHING_MEANT,
) -> Interpreter:
    """What runs the project's tests; no program in the work tree is run to find it before that is approved.

    Raises ``EnvironmentMissing`` for an interpreter that the user declined: another one would judge the tests with
    other packages, so it has to be named. Raises ``NotApproved`` where nobody can be asked.
    """

    return find_interpreter(
        project,
        environment=_users_own(project, environment),
        require=lambda candidate: _require(project, candidate, trust=trust),
        sandbox=sandbox,
        kept_in=trust.approvals.folder,
        meant=meant,
    )


def _require(project: Path, candidate: Candidate, *, trust: Trust) -> None:
    if not trust.allows(_offer(project, candidate)):
        raise EnvironmentMissing(
            f"The project's interpreter {candidate.path} is declined, and tests need one.",
            hint="name another one, CDD_PYTHON=/usr/bin/python3 for example, or decide anew: "
            f"{trust.approvals.decided_by}",
        )


def approved_python(project: Path, *, environment: Mapping[str, str], trust: Trust) -> Path | None:
    """The first interpreter that the rules come to, approved, whether or not it has pytest; None if there is none."""
    first = next(candidates(project, _users_own(project, environment)), None)
    if first is None:
        return None
    _require(project, first, trust=trust)
    return first.path


def offered(project: Path, *, environment: Mapping[str, str], meant: Meant = NOTHING_MEANT) -> Offer | None:
    """The interpreter that the project brings, if the rules come to one first; it is not run."""
    first = next(candidates(project, _users_own(project, environment), meant=meant), None)
    return None if first is None else _offer(project, first)


def _offer(project: Path, candidate: Candidate) -> Offer | None:
    """What is to be approved of a candidate; nothing of one that the user names for this very program."""
    if candidate.rule == "CDD_PYTHON":
        return None
    return interpreter_offer(project, candidate.path, is_named_by_project=candidate.is_named_by_project)


def _users_own(project: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """``environment`` with a ``PATH`` that names no folder of the work tree: programs there are the repository's."""
    if "PATH" not in environment:
        return environment
    top = top_of(project)
    own = [entry for entry in environment["PATH"].split(os.pathsep) if not _is_inside(project / entry, top)]
    return {**environment, "PATH": os.pathsep.join(own)}


def _is_inside(folder: Path, top: Path) -> bool:
    return folder.resolve().is_relative_to(top)
