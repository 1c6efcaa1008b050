"""The settings of a run: defaults, then ``.cdd/config.yaml``, then the environment, then the command line.

A project's file may set limits, the model's id, how tests run, and the path of Serena, which runs in the sandbox. It
cannot name other programs, addresses or keys, and takes effect only after the user has approved it. cdd never reads
``.env``.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import DocumentError, Problem, UsageError, suggest
from cdd_agent.hooks import HookEvent, HookSettings
from cdd_agent.storage import private_folder, read_ordinary, write_atomic
from cdd_agent.untrusted import documents
from cdd_agent.untrusted.documents import UnfitError

DEFAULT_MODEL = "claude-opus-5-5"
CONFIG_FILE = Path(".cdd") / "config.yaml"
MAX_SIZE_BYTES = 16_000

_VARIABLES = {
    "model": ("CDD_MODEL", "TDD_MODEL"),
    "max_attempts": ("CDD_MAX_RETRIES", "TDD_MAX_RETRIES"),
    "symbols": ("CDD_SYMBOLS",),
    "serena": ("CDD_SERENA",),
}
"""Setting -> environment variables; the first that is set counts."""
_NO_CHOICE = re.compile(r"Invalid enum value (?P<value>.*) - at `\$\.(?P<section>green\.)?(?P<name>\w+)`")
"""As msgspec says it."""
_RUN_TREE = "run_tree"
"""A setting of earlier versions, which could work in the user's own files; it is read and has no effect."""
_NO_RUN_TREE = (
    f"`{_RUN_TREE}: false` in {CONFIG_FILE} has no effect any more: a run works in a run tree, never in your files. "
    "Remove the line. If your tests need files that git ignores, name them in .cdd/worktree-include."
)
_MOST = 1_000_000_000
"""The limit of every number, which excludes infinity and NaN too."""

MOST_EXAMPLES = 8

_MAY_BE_ZERO = {
    *("test_reruns", "evidence_timeout_s", "compact_at_percent", "run_tree_copy_mb", "run_tree_copy_files"),
    *(f"max_{what}_per_{scope}" for what in ("tokens", "usd", "calls", "minutes") for scope in ("step", "ticket")),
}


def _check_ranges(settings: "GreenSettings | Settings") -> None:
    """Raise ``ValueError`` for the first number that is too small or too large."""
    for name, value in asdict(settings).items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        if not value <= _MOST:
            raise ValueError(f"{name} must be at most {_MOST}, not {value!s:.20}")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            least = "at least 0" if name in _MAY_BE_ZERO else "above 0"
            raise ValueError(f"{name} must be {least}, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenSettings:
    """The settings of ``cdd green``, section ``green``."""

    max_iterations: int = 20
    """Attempts before the work is undone, or partly kept."""
    max_tool_calls: int = 10
    """Tool calls of the model in one iteration."""
    test_timeout_s: float = 120.0
    continue_on_partial_success: bool = True
    """Whether to keep work that fixes some of the tests and breaks none when the iterations are used up."""
    style: Literal["minimal", "standard", "comprehensive"] = "minimal"
    """How much code the model should write."""
    include_docstrings: bool = True
    include_type_hints: bool = True
    run_after_each_file: bool = True
    """Whether to run the requested tests after each Write and Edit, and show the model the result."""
    run_specific_test_first: bool = True
    """Whether to run the requested tests first, and all tests only if those pass."""
    full_suite_on_completion: bool = True
    """Whether all tests must pass; else only the files of the requested tests."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number out of range."""
        _check_ranges(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings that a user can change."""

    model: str = DEFAULT_MODEL
    """Any id that the API accepts."""
    max_tokens: int = 16_000
    """Output tokens of one turn of the model."""
    max_attempts: int = 3
    """Attempts at a phase before the step fails and is rolled back."""
    max_turns: int = 20
    """Turns of the model in one attempt, or in one answer to the user."""
    max_calls_per_turn: int = 10
    context_tokens: int = 8_000
    """The most tokens of a step's files in the first request of an attempt, and of the outline of the project."""
    max_drafts: int = 3
    """Drafts of the Planner or the Architect before the problems of the last one are shown."""
    refactor: Literal["always", "never"] = "always"
    """Whether feature and bug steps end with a REFACTOR phase."""
    test_timeout_s: float = 120.0
    """The time limit of one test run."""
    test_reruns: int = 1
    """How often a failed test runs again alone, to find out whether it is flaky."""
    evidence_timeout_s: float = 120.0
    """The time limit of all test runs that check an open gate; with 0, only the source is checked."""
    examiner: Literal["auto", "off"] | int = "auto"
    """The largest number of further examples with which a second agent tries to refute an open GREEN."""
    examiner_model: str = ""
    """The id of its model; empty: ``model``."""
    architect_model: str = ""
    """The id of the model that drafts planning graphs and answers what they leave open; empty: ``model``."""
    symbols: Literal["auto", "index", "ty", "serena"] = "auto"
    """Which engine is asked first about uses and renames; ``index``: no program is started."""
    serena: str = ""
    """The path of Serena's program, in a separate virtual environment; empty: Serena is not used."""
    max_tokens_per_step: int = 5_000_000
    """Tokens read and written, cached or not, by a step or a conversation. 0 means no limit, here and below."""
    max_tokens_per_ticket: int = 25_000_000
    max_usd_per_step: float = 10.0
    """Applies only if the price of the model is known."""
    max_usd_per_ticket: float = 50.0
    max_calls_per_step: int = 250
    """Calls of the model."""
    max_calls_per_ticket: int = 2_500
    max_minutes_per_step: float = 90.0
    """Minutes since the step's first call, with tests and pauses."""
    max_minutes_per_ticket: float = 720.0
    """The sum over all steps and sessions."""
    compact_at_percent: int = 80
    """How full the context may be before a summary replaces the conversation; 0 disables that."""
    run_tree_copy_mb: int = 200
    """The total size of ignored files that are copied there, and of the content of files in Git LFS."""
    run_tree_copy_files: int = 10_000
    run_trees_mb: int = 5_000
    """The total size of run trees above which the oldest are deleted."""
    worktree_setup: str = ""
    """A shell command that prepares a run tree, or a clean copy, for tests."""
    edit_format: Literal["tools", "blocks"] = "tools"
    """How the Executor's model changes files: with tools, or with fenced blocks if it has no tool use."""
    approvals: Literal["commands", "all"] = "commands"
    """When cdd asks the user: before unknown commands, or before writing files and running tests too."""
    editing_mode: Literal["emacs", "vi"] = "emacs"
    """The keys of the prompt."""
    diffs: bool = True
    """Whether the prompt shows each change of a file when the model makes it."""
    framework: str = ""
    """The test framework, if cdd cannot find it: ``pytest``, ``vitest``, ``cargo`` ..."""
    test_command: str = ""
    """The command that runs all tests, instead of the one that cdd finds."""
    accept_unstructured: bool = False
    """Whether to accept the exit status of that command if it reports no results of single tests."""
    hooks: HookSettings = field(default_factory=dict)
    """Event -> the commands that run."""
    green: GreenSettings = GreenSettings()

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number out of range."""
        _check_ranges(self)
        if self.examples > MOST_EXAMPLES:
            raise ValueError(f"examiner must be auto, off or a number up to {MOST_EXAMPLES}, not {self.examiner}")
        if self.serena and not self.serena.startswith(("/", "~/")):
            raise ValueError(f"serena must be an absolute path, not {self.serena}")

    @property
    def examples(self) -> int:
        """The largest number of further examples; 0: none."""
        if isinstance(self.examiner, int):
            return self.examiner
        return MOST_EXAMPLES if self.examiner == "auto" else 0


def read_offer(project: Path) -> Offer | None:
    """Return the settings that the project brings, if any. Raises ``DocumentError`` unless they are a small file."""
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


def create_file(project: Path, approvals: Approvals) -> tuple[Path, bool]:
    """Create the settings file with all defaults as comments, unless it exists; return its path and whether it is new.

    The content is cdd's own, so it counts as approved.
    """
    import yaml

    path = private_folder(project) / CONFIG_FILE.name
    if path.exists():
        return path, False
    defaults = yaml.safe_dump(asdict(Settings()), sort_keys=False).splitlines()
    write_atomic(path, "\n".join((_HEADER, *(f"# {line}" for line in defaults), "")).encode())
    offer = read_offer(project)
    if offer is not None:
        approvals.record(offer, approved=True)
    return path, True


def flatten(settings: Settings) -> dict[str, object]:
    """Return the settings by name; those of a section as ``green.style``."""
    values = asdict(settings)
    return values | {f"green.{name}": value for name, value in values.pop("green").items()}


def change_file(project: Path, name: str, *, text: str, approvals: Approvals) -> None:
    """Write the value ``text`` of the setting ``name`` to the settings file, and leave its other lines as they are.

    ``text`` is what would follow the name in the file, or ``default``. Raises ``UsageError`` for an unknown name, a
    wrong value, a file that the user has not approved, and a file in which the line cannot be found.
    """
    known = flatten(Settings())
    if name not in known:
        hint = suggest(name, known, text="did you mean {}?", otherwise="/config lists all settings")
        raise UsageError(f"{name!r} is not a setting.", hint=hint)
    line, value = _write_line(name, text)
    path, _ = create_file(project, approvals)
    offer = read_offer(project)
    if offer is None or not approvals.find_decision(offer):
        # The user would approve the other lines without having seen them.
        raise UsageError(f"You have not approved {CONFIG_FILE}, so cdd does not change it.", hint=approvals.decided_by)
    content = _replace_line(offer.content.decode(), name, line=line).encode()
    before = parse_settings(offer.content)
    if flatten(parse_settings(content)) != flatten(before) | {name: value}:
        raise UsageError(
            f"cdd does not find the line of {name} in {CONFIG_FILE}.", hint=f"edit {path}, then: cdd trust"
        )
    write_atomic(path, content)
    approvals.record(replace(offer, content=content), approved=True)


def _write_line(name: str, text: str) -> tuple[str, object]:
    """Return the line of a setting in the file, and its value."""
    import yaml

    section, _, key = name.rpartition(".")
    values: list[object] = [flatten(Settings())[name]] if text == "default" else [text]
    with suppress(yaml.YAMLError):
        values.insert(0, values[0] if text == "default" else yaml.safe_load(text))
    problem = ""
    for value in values:
        line = yaml.safe_dump({key: value}, width=MAX_SIZE_BYTES)
        try:
            alone = parse_settings((f"{section}:\n  {line}" if section else line).encode())
        except DocumentError as error:
            problem = problem or error.problems[0].message.partition(" - at `$")[0]
        else:
            return line, flatten(alone)[name]
    raise UsageError(f"{text!r} is not a value of {name}: {problem}.", hint=f"/config {name} default")


def _replace_line(content: str, name: str, *, line: str) -> str:
    """Return the content of a settings file with another line for a setting, which may be missing so far."""
    section, _, key = name.rpartition(".")
    start, indent = 0, ""
    if section:
        head = re.search(rf"^(?:# )?{section}:[ \t]*$", content, re.MULTILINE)
        above, below = (content[: head.start()], content[head.end() :]) if head else (f"{content.rstrip()}\n", "\n")
        content, start, indent = f"{above}{section}:{below}", len(above), "[ \t]+"
        line = f"  {line}"
    for comment in ("", "# "):
        if found := re.compile(rf"^{comment}{indent}{key}:.*\n?", re.MULTILINE).search(content, start):
            return content[: found.start()] + line + content[found.end() :]
    end = content.find("\n", start) + 1 if section else len(content)
    joint = "" if section or content[-1:] in ("", "\n") else "\n"
    return f"{content[:end]}{joint}{line}{content[end:]}"


_HEADER = "# The settings of cdd in this project, with their defaults. Remove a # to change one, then: cdd trust"


def load(
    project: Path,
    *,
    allows: Callable[[Offer], bool],
    environment: Mapping[str, str] = os.environ,
    model: str | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> Settings:
    """Return the settings for ``project``. ``model`` comes from the command line; ``report`` shows a notice.

    The project's file is not even parsed unless ``allows`` accepts it. Raises ``DocumentError`` for an invalid file and
    ``UsageError`` for an invalid variable.
    """
    offer = read_offer(project)
    settings = Settings()
    if offer is not None and allows(offer):
        settings = parse_settings(offer.content)
        if _read_values(offer.content).get(_RUN_TREE) is False:
            report(_NO_RUN_TREE)
    for name, variable in _find_variables(environment).items():
        value = environment[variable]
        try:
            given = _count_attempts(value) if name == "max_attempts" else value
            settings = _convert({**asdict(settings), name: given}, strict=False)
        except ValueError as error:
            why = str(error).partition(" - at ")[0]
            hint = f"unset {variable} or correct it"
            raise UsageError(f"{variable}={value} is not valid: {why}.", hint=hint) from error
    return settings if model is None else replace(settings, model=model)


def find_sources(
    project: Path,
    *,
    allows: Callable[[Offer], bool],
    environment: Mapping[str, str] = os.environ,
    model: str | None = None,
) -> dict[str, str]:
    """Return the settings that do not have their defaults from cdd -> where ``load`` takes them from."""
    offer = read_offer(project)
    sources: dict[str, str] = {}
    if offer is not None and allows(offer):
        values = _read_values(offer.content)
        names = (*values, *(f"green.{name}" for name in values.get("green") or ()))
        sources = dict.fromkeys(names, str(CONFIG_FILE))
    return sources | _find_variables(environment) | ({} if model is None else {"model": "chosen for this session"})


def _find_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the environment sets -> the variable that counts."""
    set_here = {name: [each for each in names if environment.get(each)] for name, names in _VARIABLES.items()}
    return {name: names[0] for name, names in set_here.items() if names}


def _count_attempts(retries: str) -> int:
    """Return the attempts that a number of retries allows: the first one is not a retry."""
    if not retries.strip().isdecimal():
        raise ValueError("expected the number of retries, such as 0")
    return int(retries) + 1


def parse_settings(content: bytes) -> Settings:
    """Return the settings in a file. Raises ``DocumentError``."""
    import yaml

    path = str(CONFIG_FILE)
    try:
        values = _read_values(content)
        values.pop(_RUN_TREE, None)
        _reject_unknown_keys(values, asdict(Settings()))
        if values.get("examiner") is False:
            values["examiner"] = "off"  # YAML reads the word as a boolean
        if isinstance(hooks := values.get("hooks"), dict):
            _reject_unknown_keys(hooks, dict.fromkeys(get_args(HookEvent)), inside="hooks.")
        section = values.get("green")
        if isinstance(section, dict):
            _reject_unknown_keys(section, asdict(GreenSettings()), inside="green.")
        return _convert(values)
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        message = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
        problem = Problem(line=mark.line + 1 if mark else 0, message=message or str(error).splitlines()[0])
        raise DocumentError(path, (problem,), hint="write it as `name: value` lines") from error
    except (ValueError, OverflowError) as error:
        problem = Problem(line=error.line if isinstance(error, UnfitError) else 0, message=str(error))
        hint = f"known settings: {', '.join(asdict(Settings()))}"
        if "hooks" in str(error) or "matcher" in str(error):
            hint = f"events are {', '.join(get_args(HookEvent))}; docs/reference/hooks.md has examples"
        raise DocumentError(path, (problem,), hint=hint) from error


def _convert(values: Mapping[str, Any], *, strict: bool = True) -> Settings:
    """Return settings from plain values; raises ``ValueError``, with the choices where a value is none of them."""
    try:
        return msgspec.convert(values, Settings, strict=strict)
    except msgspec.ValidationError as error:
        found = _NO_CHOICE.fullmatch(str(error))
        if found is None:
            raise
        section, name = found["section"] or "", found["name"]
        kind = get_type_hints(GreenSettings if section else Settings)[name]
        if get_origin(kind) is not Literal:  # one of several kinds, such as a word or a number
            raise
        raise ValueError(f"{section}{name} must be one of {', '.join(get_args(kind))}, not {found['value']}") from error


def _read_values(content: bytes) -> dict[Any, Any]:
    import yaml

    text = content.decode("utf-8")
    documents.check_yaml(text, limit_bytes=MAX_SIZE_BYTES)
    values = yaml.safe_load(text) or {}
    if not isinstance(values, dict):
        raise ValueError("expected `name: value` lines")
    return values


def _reject_unknown_keys(given: dict[Any, Any], known: dict[str, Any], *, inside: str = "") -> None:
    unknown = sorted(set(given) - set(known), key=str)
    if unknown:
        names = f"; known there: {', '.join(known)}" if inside else ""
        near = suggest(str(unknown[0]), known, text=", did you mean {}?")
        raise ValueError(f"unknown setting {inside + str(unknown[0])!r}{near}{names}")
