"""Where a project's interpreter can be: the rules, in the order in which they count.

What a tool says of its environments is asked of the tool on the user's PATH, and only in ways in which the tool runs
no code of the project.
"""

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.probe import printed

FOLDERS = (".venv", "venv", "env")
MAX_SIZE_BYTES = 4_000_000
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
        told = read_ordinary(project / ".pdm-python", limit_bytes=MAX_SIZE_BYTES, through_links=True)
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
        return read_ordinary(path, limit_bytes=MAX_SIZE_BYTES, through_links=True)
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
