"""Finds the environments that poetry, hatch and pipenv keep outside a project.

These tools obey files of the project: hatch, for example, installs and runs what ``requires`` names. So each is asked
in a sandbox without network, which shows it the project, its settings and its environments, read-only. Where no
sandbox isolates it, the tool is not started, and the names of its environments tell which may be the project's.
"""

import base64
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Command, Sandbox
from cdd_agent.storage import scratch
from cdd_agent.testrun.access import guess_reads, select_readable
from cdd_agent.testrun.project_files import get_table, read_content, read_toml

_TIMEOUT_S = 30.0
_SHEBANG_BYTES = 1000
_MOST_LISTED = 9
_MARK_CHARACTERS = 8
_READ_BY_TOOLS = ("Pipfile", "Pipfile.lock", "hatch.toml", "poetry.lock", "poetry.toml", "pyproject.toml")

_Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentTool:
    """A tool that keeps the environments of many projects in one folder."""

    name: str
    question: tuple[str, ...]
    """Its arguments that make it print the path of the project's environment."""
    variables: tuple[str, ...]
    """The user's variables that say where it keeps them; none contains a secret."""
    find_settings: Callable[[_Environment], Path | None]
    """Returns its settings file."""
    find_folder: Callable[[_Environment, Mapping[str, object]], Path]
    """Returns the folder of the environments, from the user's variables and the settings."""
    pattern: str
    """Where the environments are in that folder. The first name begins with that of the project."""
    marked_file: str = ""
    """The file of the project whose path the name of an environment depends on, or else it is the project's folder."""


def _find_home(environment: _Environment) -> Path:
    return Path(environment.get("HOME") or Path.home())


def _find_user_folder(environment: _Environment, variable: str, *, usual: str) -> Path:
    return Path(environment.get(variable) or _find_home(environment) / usual)


def _find_poetry_settings(environment: _Environment) -> Path:
    usual = _find_user_folder(environment, "XDG_CONFIG_HOME", usual=".config") / "pypoetry"
    # Beside it is auth.toml, which no program but poetry should read.
    return Path(environment.get("POETRY_CONFIG_DIR") or usual) / "config.toml"


def _find_poetry_folder(environment: _Environment, settings: Mapping[str, object]) -> Path:
    usual = _find_user_folder(environment, "XDG_CACHE_HOME", usual=".cache") / "pypoetry"
    cache = environment.get("POETRY_CACHE_DIR") or settings.get("cache-dir") or usual
    set_to = environment.get("POETRY_VIRTUALENVS_PATH") or get_table(settings, "virtualenvs").get("path")
    return Path(str(set_to or "{cache-dir}/virtualenvs").replace("{cache-dir}", str(cache)))


def _find_hatch_settings(environment: _Environment) -> Path:
    usual = _find_user_folder(environment, "XDG_CONFIG_HOME", usual=".config") / "hatch" / "config.toml"
    return Path(environment.get("HATCH_CONFIG") or usual)


def _find_hatch_folder(environment: _Environment, settings: Mapping[str, object]) -> Path:
    usual = _find_user_folder(environment, "XDG_DATA_HOME", usual=".local/share") / "hatch"
    data = environment.get("HATCH_DATA_DIR") or get_table(settings, "dirs").get("data") or usual
    set_to = environment.get("HATCH_ENV_TYPE_VIRTUAL_PATH") or get_table(settings, "dirs", "env").get("virtual")
    return Path(str(set_to or Path(str(data), "env", "virtual")))


def _find_pipenv_folder(environment: _Environment, _settings: Mapping[str, object]) -> Path:
    usual = _find_user_folder(environment, "XDG_DATA_HOME", usual=".local/share") / "virtualenvs"
    return Path(environment.get("WORKON_HOME") or usual)


POETRY = EnvironmentTool(
    name="poetry",
    question=("--no-plugins", "env", "info", "--path"),
    variables=("POETRY_CONFIG_DIR", "POETRY_CACHE_DIR", "POETRY_VIRTUALENVS_PATH", "POETRY_VIRTUALENVS_IN_PROJECT"),
    find_settings=_find_poetry_settings,
    find_folder=_find_poetry_folder,
    pattern="*",
)
HATCH = EnvironmentTool(
    name="hatch",
    question=("--no-color", "env", "find"),
    variables=("HATCH_CONFIG", "HATCH_DATA_DIR", "HATCH_ENV", "HATCH_ENV_TYPE_VIRTUAL_PATH"),
    find_settings=_find_hatch_settings,
    find_folder=_find_hatch_folder,
    pattern="*/*/*",
)
PIPENV = EnvironmentTool(
    name="pipenv",
    question=("--venv",),
    variables=("WORKON_HOME", "PIPENV_CUSTOM_VENV_NAME", "PIPENV_VENV_IN_PROJECT", "PIPENV_PIPFILE"),
    find_settings=lambda _: None,
    find_folder=_find_pipenv_folder,
    pattern="*",
    marked_file="Pipfile",
)
_SHARED = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


def list_tools(project: Path, named: str = "") -> tuple[EnvironmentTool, ...]:
    """Return the tools whose files the project has, or only the ``named`` one."""
    # Reading a pipe would make the tool wait.
    files = (project / name for name in _READ_BY_TOOLS)
    if any(path.exists() and not path.is_file() and not path.is_dir() for path in files):
        return ()
    tables = get_table(read_toml(project / "pyproject.toml"), "tool")
    usual = {
        POETRY: "poetry" in tables or (project / "poetry.lock").exists(),
        HATCH: "envs" in get_table(tables, "hatch") | read_toml(project / "hatch.toml"),
        PIPENV: any((project / name).exists() for name in ("Pipfile", "Pipfile.lock")),
    }
    return tuple(tool for tool, is_usual in usual.items() if (tool.name == named if named else is_usual))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTool:
    """A tool on the user's PATH, asked about one project."""

    tool: EnvironmentTool
    program: Path
    project: Path
    environment: _Environment
    """The user's variables."""

    @property
    def folder(self) -> Path:
        """The folder of its environments."""
        settings = self.tool.find_settings(self.environment)
        return self.tool.find_folder(self.environment, {} if settings is None else read_toml(settings)).expanduser()

    def ask(self, name: str, *, sandbox: Sandbox | None) -> tuple[Path, ...] | None:
        """Return the environments that it names for the project, or for its environment ``name``; None without answer.

        They may not exist, and a file of the project can have named them.
        """
        home = _find_home(self.environment)
        if sandbox is None or sandbox.level not in ISOLATING_LEVELS or home.is_relative_to(self.project):
            return None
        question = (*self.tool.question, name) if name else self.tool.question
        with scratch() as folder:
            private = Path(folder).resolve()
            command = Command(
                # An active environment would be taken for the project's.
                argv=("/usr/bin/env", "-u", "VIRTUAL_ENV", str(self.program), *question),
                cwd=self.project,
                access=Access(read_write=(private,), read_only=self._list_reads(home)),
                variables=self._build_variables(home),
                timeout_s=_TIMEOUT_S,
            )
            try:
                result = sandbox.run(command)
            except (OSError, EnvironmentMissing):
                return None
        lines = tuple(Path(line) for line in result.output.splitlines() if line.startswith("/") and "\0" not in line)
        return lines if result.exit_status == 0 and not result.timed_out and lines else None

    def _list_reads(self, home: Path) -> tuple[Path, ...]:
        script = self.program
        shebang = read_content(script)[:_SHEBANG_BYTES].split(b"\n", 1)[0].decode("utf-8", "replace")
        words = shlex.split(shebang.removeprefix("#!")) if shebang.startswith("#!") else []
        python = guess_reads(Path(words[0])) if words and Path(words[0]).is_absolute() else ()
        packages = script.parent.parent.glob("lib/python3*")
        # The python in ~/.local/bin has the prefix ~/.local, which contains much else.
        prefixes = (path for path in python if (path / "pyvenv.cfg").exists() or any(path.glob("lib/python3*/os.py")))
        own = select_readable((self.folder, script, *packages, *prefixes), home=home)
        settings = self.tool.find_settings(self.environment)
        return (self.project, *own, *(() if settings is None else (settings,)))

    def _build_variables(self, home: Path) -> dict[str, str]:
        names = (*self.tool.variables, *_SHARED)
        own = {name: self.environment[name] for name in names if name in self.environment}
        quiet = {"PYTHONDONTWRITEBYTECODE": "1", "PIPENV_DONT_LOAD_ENV": "1", "NO_COLOR": "1", "COLUMNS": "10000"}
        return {**own, **quiet, "HOME": str(home), "PATH": self.environment.get("PATH", os.defpath)}

    def list_environments(self, name: str) -> tuple[Path, ...]:
        """Return the environments that may be the project's, or its ``name``, newest first, without asking the tool.

        If some have the mark of the project's path in their names, the others belong to projects of the same name.
        """
        tables = read_toml(self.project / "pyproject.toml")
        named = (get_table(tables, *path).get("name") for path in (("project",), ("tool", "poetry")))
        names = {_normalize(str(each)) for each in (*named, self.project.name) if each}
        found = (path.parent for path in self.folder.glob(f"{self.tool.pattern}/pyvenv.cfg"))
        own = [path for path in found if _has_name(names, path.relative_to(self.folder).parts[0])]
        if self.tool is HATCH:  # it has one for each environment of the settings; the default has the project's name
            wanted = {_normalize(name)} if name else names
            own = [path for path in own if _normalize(path.name.partition(".")[0]) in wanted]
        marked = [path for path in own if self.has_mark(path)]
        return tuple(sorted(marked or own, key=lambda path: path.stat().st_mtime_ns, reverse=True)[:_MOST_LISTED])

    def has_mark(self, folder: Path) -> bool:
        """Return whether the name of an environment contains what each tool derives from the project's path."""
        path = os.path.realpath(self.project / self.tool.marked_file)
        mark = base64.urlsafe_b64encode(hashlib.sha256(os.fsencode(path)).digest()).decode()[:_MARK_CHARACTERS]
        return any(part == mark or f"-{mark}-" in f"{part}-" for part in folder.relative_to(self.folder).parts)


def find_installed(tool: EnvironmentTool, project: Path, *, environment: _Environment) -> InstalledTool | None:
    """Return the tool on the user's PATH, or None."""
    found = shutil.which(tool.name, path=environment.get("PATH", ""))
    if found is None:
        return None
    return InstalledTool(tool=tool, program=Path(found).resolve(), project=project, environment=environment)


def _normalize(name: str) -> str:
    return re.sub(r"[-_. ]+", "-", name).lower()


def _has_name(names: set[str], folder: str) -> bool:
    normal = _normalize(folder)
    return any(normal == name or normal.startswith(f"{name}-") for name in names)
