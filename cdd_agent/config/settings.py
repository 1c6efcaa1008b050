"""The settings of one run: defaults, then ``.cdd/config.yaml``, then the environment, then the command line.

A project's file may set limits, the model's id and how tests are run; it can name no other program, no address and no
key, and it counts only once the user has approved it. No ``.env`` is ever read.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from cdd_agent.config.trust import Offer
from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.documents import UnfitError

DEFAULT_MODEL = "claude-opus-5-5"
CONFIG_FILE = Path(".cdd") / "config.yaml"
MAX_SIZE_BYTES = 16_000

_VARIABLES = {"model": ("CDD_MODEL", "TDD_MODEL"), "max_attempts": ("CDD_MAX_RETRIES", "TDD_MAX_RETRIES")}
"""Setting -> the environment variables that set it, the first one that is there counts."""

_NOT_LOOKED_INTO = frozenset({"build", "bytecode", "worktrees"})
"""Folders of ``.cdd`` that hold much; what they hold is written by tests in the sandbox, and by git."""

_DEEPEST = 20
"""Folders within ``.cdd``."""

_MOST = 1_000_000_000
"""Of any number: more is a slip, and infinity and NaN are none."""

_NO_LIMIT_AT_NONE = frozenset(
    f"max_{what}_per_{scope}" for what in ("tokens", "usd", "calls", "minutes") for scope in ("step", "ticket")
)
_MAY_BE_NONE = frozenset({"test_reruns", "evidence_timeout_s", "compact_at_percent"}) | _NO_LIMIT_AT_NONE


def _require_sense(values: Mapping[str, object]) -> None:
    """Raise ``ValueError`` for the first number that is too small or too great to mean anything."""
    for name, value in values.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if not value <= _MOST:
            raise ValueError(f"{name} must be at most {_MOST}, not {value!s:.20}")
        if value < 0 or (value == 0 and name not in _MAY_BE_NONE):
            least = "at least 0" if name in _MAY_BE_NONE else "above 0"
            raise ValueError(f"{name} must be {least}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenSettings:
    """What a user can turn of GREEN on its own, section ``green``."""

    max_iterations: int = 20
    """Attempts, before what was done is taken back or kept in part."""
    max_tool_calls: int = 10
    """Of the model, in one iteration."""
    test_timeout_s: float = 120.0
    """Of one run of tests."""
    continue_on_partial_success: bool = True
    """Whether work that mends some of the tests and breaks none is kept once the iterations are used up."""
    style: Literal["minimal", "standard", "comprehensive"] = "minimal"
    """How much code the model is asked for."""
    include_docstrings: bool = True
    """Of what the model adds."""
    include_type_hints: bool = True
    run_after_each_file: bool = True
    """Whether the answer to each Write and Edit tells what the tests to pass say then."""
    run_specific_test_first: bool = True
    """Whether an iteration is judged by the tests to pass alone first, and by all only if those pass."""
    full_suite_on_completion: bool = True
    """Whether all tests judge; else only the files of the tests to pass."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number that would mean nothing ever happens."""
        _require_sense(asdict(self))


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
    """Of all runs together that check an open RED, or GREEN, from outside; 0: only the code is looked at."""
    max_tokens_per_step: int = 5_000_000
    """Read and written, cached or not, by one step, or one conversation; 0: no limit, here and below."""
    max_tokens_per_ticket: int = 25_000_000
    max_usd_per_step: float = 10.0
    """Where the model's price is known; where it is not, the limit of tokens holds alone."""
    max_usd_per_ticket: float = 50.0
    max_calls_per_step: int = 250
    """Of the model."""
    max_calls_per_ticket: int = 2_500
    max_minutes_per_step: float = 90.0
    """From the step's first call on, tests and waiting included."""
    max_minutes_per_ticket: float = 720.0
    """Minutes in which its steps were carried out, all sittings together."""
    compact_at_percent: int = 80
    """How full of a conversation the model's context may be before a summary takes its place; 0: never by itself."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the model of the Executor changes files: by tools, or, if it has no tool use, by fenced blocks with paths."""
    approvals: Literal["commands", "all"] = "commands"
    """What a person is asked about once: commands that are not known to be harmless, or writing and testing too."""
    editing_mode: Literal["emacs", "vi"] = "emacs"
    """Keys of the prompt."""
    framework: str = ""
    """What runs the tests, where the files of the project do not say it alone: ``pytest``, ``vitest``, ``cargo`` ..."""
    test_command: str = ""
    """The command that runs all tests, in the place of the one that is found."""
    accept_unstructured: bool = False
    """Whether the exit status of such a command may decide, where it tells no results of single tests."""
    green: GreenSettings = GreenSettings()
    """Of ``cdd green``."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number that would mean nothing ever happens."""
        _require_sense(asdict(self))


def private_folder(project: Path) -> Path:
    """The project's ``.cdd`` folder, made if missing, which keeps itself out of git except for the settings file.

    Raises ``UsageError`` if it, or something in it that the program would write to, is a link: a repository could
    lead the program's own files out of the project by it.
    """
    folder = project / ".cdd"
    if not folder.is_symlink():
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError as error:
            raise UsageError(
                f"{folder} is a file; cdd keeps its journals and reports in a folder of that name.",
                hint=f"move it away: mv {folder} {folder}.moved",
            ) from error
    for path in _links(folder):
        raise UsageError(
            f"{path} is a link, so what cdd keeps there would be written elsewhere.",
            hint=f"see where it leads, ls -l {path}, then remove it",
        )
    ignore = folder / ".gitignore"
    if not (ignore.exists() and ignore.stat().st_size):  # an empty one is what a full disk or a power cut leaves
        write_atomic(ignore, b"*\n!config.yaml\n")
    return folder


def _links(folder: Path) -> Iterator[Path]:
    """Links among ``folder`` and what is below it; compiled code and copies of the project are not looked into.

    Raises ``UsageError`` for folders nested deeper than the program ever makes them.
    """
    if folder.is_symlink():
        yield folder
        return
    folders = [(folder, 0)]
    while folders:
        here, depth = folders.pop()
        if depth > _DEEPEST:
            raise UsageError(
                f"{folder} holds folders nested more than {_DEEPEST} deep, none of which cdd made.",
                hint=f"see what lies there, ls -R {folder}, then remove it",
            )
        with os.scandir(here) as entries:
            found = list(entries)
        yield from (Path(entry.path) for entry in found if entry.is_symlink())
        folders += [
            (Path(entry.path), depth + 1)
            for entry in found
            if entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_LOOKED_INTO
        ]


def offered(project: Path) -> Offer | None:
    """The settings that the project brings, if any; raises ``DocumentError`` if they are no small plain file."""
    path = project / CONFIG_FILE
    try:
        if stat.S_ISLNK(os.lstat(path.parent).st_mode):
            raise OSError(f"{path.parent} is a link")
        content = read_ordinary(path, limit_bytes=MAX_SIZE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = Problem(line=0, message=error.strerror or str(error))
        raise DocumentError(str(CONFIG_FILE), (problem,), hint="make it a small plain file, or remove it") from error
    lines = tuple(line for line in content.decode("utf-8", "replace").splitlines() if line.strip())
    return Offer(subject="settings", source=str(CONFIG_FILE), shown=lines, content=content)


def load(
    project: Path,
    *,
    allows: Callable[[Offer], bool],
    environment: Mapping[str, str] = os.environ,
    model: str | None = None,
) -> Settings:
    """The settings for ``project``; ``model`` is what the command line says.

    The project's file is neither parsed nor used unless ``allows`` says so. Raises ``DocumentError`` for an invalid
    file and ``UsageError`` for an invalid variable.
    """
    offer = offered(project)
    settings = Settings() if offer is None or not allows(offer) else parsed(offer.content)
    for name, variables in _VARIABLES.items():
        for variable in variables:
            if environment.get(variable):
                settings = _from_variable(settings, name, variable=variable, value=environment[variable])
                break
    return settings if model is None else replace(settings, model=model)


def parsed(content: bytes) -> Settings:
    """The settings that a file says; raises ``DocumentError``."""
    import yaml

    shown = str(CONFIG_FILE)
    try:
        text = content.decode("utf-8")
        documents.check_yaml(text, limit_bytes=MAX_SIZE_BYTES)
        return msgspec.convert(_known(yaml.safe_load(text) or {}), Settings)
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        message = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        problem = Problem(line=mark.line + 1 if mark else 0, message=message or str(error).splitlines()[0])
        raise DocumentError(shown, (problem,), hint="write it as `name: value` lines") from error
    except (ValueError, OverflowError) as error:
        problem = Problem(line=error.line if isinstance(error, UnfitError) else 0, message=str(error))
        raise DocumentError(shown, (problem,), hint=f"known settings: {', '.join(asdict(Settings()))}") from error


def _known(content: object) -> dict[str, Any]:
    """``content`` if it is a mapping of settings that exist; raises ``ValueError`` otherwise."""
    if not isinstance(content, dict):
        raise ValueError("expected `name: value` lines")
    _require_known(content, asdict(Settings()))
    section = content.get("green")
    if isinstance(section, dict):
        _require_known(section, asdict(GreenSettings()), inside="green.")
    return content


def _require_known(given: dict[Any, Any], known: dict[str, Any], *, inside: str = "") -> None:
    """Raise ``ValueError`` for the first key that is not ``known``."""
    unknown = sorted(set(given) - set(known), key=str)
    if unknown:
        there = f"; in it there are {', '.join(known)}" if inside else ""
        raise ValueError(f"unknown setting {inside + str(unknown[0])!r}{there}")


def _from_variable(settings: Settings, name: str, *, variable: str, value: str) -> Settings:
    """``settings`` with ``name`` set from an environment variable."""
    try:
        return msgspec.convert({**asdict(settings), name: value}, Settings, strict=False)
    except ValueError as error:
        told = str(error).partition(" - at ")[0]
        raise UsageError(f"{variable}={value} is not valid: {told}.", hint=f"unset {variable} or correct it") from error
