"""The settings of one run: defaults, then ``.cdd/config.yaml``, then the environment, then the command line.

A project's file may set limits and the model's id; it can never name a program, an address or a key.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from cdd_agent.errors import DocumentError, Problem, UsageError

DEFAULT_MODEL = "claude-opus-5-5"
CONFIG_FILE = Path(".cdd") / "config.yaml"

_VARIABLES = {"model": ("CDD_MODEL", "TDD_MODEL"), "max_attempts": ("CDD_MAX_RETRIES", "TDD_MAX_RETRIES")}
"""Setting -> the environment variables that set it, the first one that is there counts."""

_MAY_BE_NONE = frozenset({"test_reruns", "evidence_timeout_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a user can turn."""

    model: str = DEFAULT_MODEL
    """Any id the API knows."""
    max_tokens: int = 16_000
    """Of one turn of the model."""
    max_attempts: int = 3
    """At one phase of one step, before the step fails and is rolled back."""
    max_turns: int = 20
    """Of the model, in one attempt or one question."""
    max_calls_per_turn: int = 10
    max_drafts: int = 3
    """Plans the Planner may hand in before their problems are shown instead."""
    refactor: Literal["always", "never"] = "always"
    """Whether feature and bug steps end with a REFACTOR phase."""
    test_timeout_s: float = 120.0
    """Of one run of the project's tests."""
    test_reruns: int = 1
    """How often a test that failed is run again, alone, to tell a flaky one from a broken one; 0: never."""
    evidence_timeout_s: float = 120.0
    """Of all runs together that check an open GREEN from outside; 0: only the code is looked at."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number that would mean nothing ever happens."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = "at least 0" if field.name in _MAY_BE_NONE else "above 0"
            if isinstance(value, int | float) and (value < 0 or (value == 0 and field.name not in _MAY_BE_NONE)):
                raise ValueError(f"{field.name} must be {least}, not {value}")


def private_folder(project: Path) -> Path:
    """The project's ``.cdd`` folder, made if missing, which keeps itself out of git except for the settings file."""
    folder = project / ".cdd"
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n!config.yaml\n", encoding="ascii")
    return folder


def load(project: Path, *, environment: Mapping[str, str] = os.environ, model: str | None = None) -> Settings:
    """The settings for ``project``; ``model`` is what the command line says.

    Raises ``DocumentError`` for an invalid file and ``UsageError`` for an invalid variable.
    """
    settings = _read(project / CONFIG_FILE)
    for name, variables in _VARIABLES.items():
        for variable in variables:
            if environment.get(variable):
                settings = _from_variable(settings, name, variable=variable, value=environment[variable])
                break
    return settings if model is None else replace(settings, model=model)


def _read(path: Path) -> Settings:
    """The settings in ``path``, or the defaults if there is no such file."""
    if not path.exists():
        return Settings()
    import yaml

    shown = str(CONFIG_FILE)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return msgspec.convert(_known(content), Settings)
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        message = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        problem = Problem(line=mark.line + 1 if mark else 0, message=message or str(error).splitlines()[0])
        raise DocumentError(shown, (problem,), hint="write it as `name: value` lines") from error
    except (ValueError, UnicodeDecodeError) as error:
        problem = Problem(line=0, message=str(error))
        raise DocumentError(shown, (problem,), hint=f"known settings: {', '.join(asdict(Settings()))}") from error


def _known(content: object) -> dict[str, Any]:
    """``content`` if it is a mapping of settings that exist; raises ``ValueError`` otherwise."""
    if not isinstance(content, dict):
        raise ValueError("expected `name: value` lines")
    unknown = sorted(set(content) - set(asdict(Settings())), key=str)
    if unknown:
        raise ValueError(f"unknown setting {unknown[0]!r}")
    return content


def _from_variable(settings: Settings, name: str, *, variable: str, value: str) -> Settings:
    """``settings`` with ``name`` set from an environment variable."""
    try:
        return msgspec.convert({**asdict(settings), name: value}, Settings, strict=False)
    except ValueError as error:
        told = str(error).partition(" - at ")[0]
        raise UsageError(f"{variable}={value} is not valid: {told}.", hint=f"unset {variable} or correct it") from error
