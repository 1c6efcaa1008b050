"""Parses a user's command that runs pytest: its options, its selection and the environment it names.

The command itself never runs, as cdd's own program has to run pytest. What the command says is carried over as far as
possible; the user is told what is not. Where a tool keeps scripts in a settings file, they are read. Nothing is run.
"""

import configparser
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.interpreter import (
    NO_ENVIRONMENT,
    NamedEnvironment,
    find_newest,
    get_table,
    read_content,
    read_toml,
)

_PYTEST = re.compile(r"(?:.*/)?(?:pytest|py\.test)")
_PYTHON = re.compile(r"(?:.*/)?python(?P<version>[\d.]*)")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_LAUNCHERS = (("uv", "run"), ("uvx",), ("pipx", "run"), ("python", "-m"), ("python3", "-m"))
_REST = re.compile(r"\{(?:posargs|args)(?::(?P<default>[^{}]*))?\}")
_FACTORS = re.compile(r"[\w.,!-]+:\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestCall:
    """A call of pytest."""

    arguments: tuple[str, ...]
    named: NamedEnvironment = NO_ENVIRONMENT
    ignored: tuple[str, ...] = ()
    """Words before pytest's that say more than where it is installed."""


def is_pytest(word: str) -> bool:
    """Return whether the word is pytest's program or module."""
    return _PYTEST.fullmatch(word) is not None


def find_call(root: Path, words: Sequence[str], *, is_trial: bool = False) -> PytestCall | None:
    """Return the call of pytest in a command; None if there is none.

    Raises ``EnvironmentMissing`` if it names an environment that does not exist, unless ``is_trial``.
    """
    left = list(words)
    ignored: list[str] = []
    while left and (left[0] == "env" or _ASSIGNED.fullmatch(left[0])):
        ignored += [word for word in (left.pop(0),) if word != "env"]
    for first in _LAUNCHERS:
        if tuple(left[: len(first)]) == first and os.path.basename("".join(left[len(first) :][:1])) in _TOOLS:
            left = left[len(first) :]
    if not left:
        return None
    tool = _TOOLS.get(os.path.basename(left[0]), _find_direct)
    try:
        call = tool(root, left)
    except EnvironmentMissing:
        if not is_trial:
            raise
        return PytestCall(arguments=())
    return None if call is None else replace(call, ignored=(*ignored, *call.ignored))


def _find_direct(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``python -m pytest``, ``uv run pytest``, ``coverage run -m pytest`` and the like."""
    at = next((at for at, word in enumerate(words) if is_pytest(word)), None)
    if at is None:
        return None
    before, program = words[:at], words[at]
    if before[-1:] == ["-m"]:
        before = before[:-1]
        program = before.pop() if before and _PYTHON.fullmatch(before[-1]) else program
    ignored = () if before in ([], ["uv", "run"], ["uv", "run", "--"], ["uvx"]) else (shlex.join(before),)
    python = None
    if "/" in program:
        path = root / program
        python = path if _PYTHON.fullmatch(program) else path.with_name("python")
    elif (found := _PYTHON.fullmatch(program)) and "." in found["version"]:
        ignored = (*ignored, program)
    named = NO_ENVIRONMENT if python is None else NamedEnvironment(python=Path(os.path.abspath(python)))
    return PytestCall(arguments=tuple(words[at + 1 :]), named=named, ignored=ignored)


def _find_in_run(
    tool: str, scripts: Callable[[Path], Mapping[str, object]]
) -> Callable[[Path, list[str]], PytestCall | None]:
    """Make a rule for ``TOOL run COMMAND``, where the command may be one of ``scripts``."""

    def call(root: Path, words: list[str]) -> PytestCall | None:
        rest = words[2:] if words[1:2] == ["run"] else words[1:]
        found = _find_in_script(rest, scripts(root)) or _find_direct(root, rest)
        return None if found is None else replace(found, named=_choose_environment(found.named, tool))

    return call


def _choose_environment(named: NamedEnvironment, tool: str, *, name: str = "") -> NamedEnvironment:
    """Return the tool's environment, unless the command names an interpreter."""
    return named if named.python is not None else NamedEnvironment(tool=tool, name=name)


def _find_in_script(words: list[str], scripts: Mapping[str, object]) -> PytestCall | None:
    """Find pytest in the script that ``words`` begin with."""
    if not words or words[0] not in scripts:
        return None
    return _find_in_commands(_script_commands(scripts[words[0]]), words[1:])


def _script_commands(script: object) -> list[str]:
    """Return the commands of a script in any of the forms that tools allow."""
    match script:
        case str():
            return [script]
        case list() if all(isinstance(word, str) for word in script):
            return [str(line) for line in script]
        case {"cmd": str() as line}:
            return [line]
        case {"cmd": list() as words} if all(isinstance(word, str) for word in words):
            return [shlex.join(map(str, words))]
        case {"composite": list() as lines}:
            return [str(line) for line in lines]
    return []


def _find_in_commands(lines: Iterable[str], rest: Sequence[str]) -> PytestCall | None:
    """Return the first call of pytest in ``lines``, with ``rest`` at its placeholder, else at its end."""
    for line in lines:
        filled = _REST.sub(lambda match: shlex.join(rest) if rest else (match["default"] or ""), line)
        try:
            words = shlex.split(filled)
        except ValueError:
            continue
        call = _find_direct(Path(), [word for word in words if not _ASSIGNED.fullmatch(word)])
        if call is not None:
            more = () if _REST.search(line) else tuple(rest)
            return PytestCall(arguments=(*call.arguments, *more), ignored=call.ignored)
    return None


def _find_in_hatch(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``hatch run test``, ``hatch run test:pytest``, ``hatch -e test run pytest``, ``hatch test``."""
    rest, name = words[1:], ""
    while rest and rest[0] in ("-e", "--env"):
        name, rest = "".join(rest[1:2]), rest[2:]
    settings = get_table(get_table(read_toml(root / "pyproject.toml"), "tool"), "hatch") | read_toml(
        root / "hatch.toml"
    )
    if rest[:1] == ["test"]:
        own = rest[1 : rest.index("--")] if "--" in rest else rest[1:]
        options = tuple(word for word in own if word.startswith("-"))
        after = rest[rest.index("--") + 1 :] if "--" in rest else []
        paths = [word for word in own if not word.startswith("-")]
        return PytestCall(
            arguments=(*paths, *after), named=NamedEnvironment(tool="hatch", name="hatch-test"), ignored=options
        )
    if rest[:1] != ["run"] or len(rest) < 2:
        return None
    env, colon, command = rest[1].rpartition(":")
    name, rest = (env, [command, *rest[2:]]) if colon else (name, rest[1:])
    scripts = get_table(get_table(get_table(settings, "envs"), name or "default"), "scripts")
    found = _find_in_script(rest, scripts) or _find_direct(root, rest)
    return None if found is None else replace(found, named=_choose_environment(found.named, "hatch", name=name))


def _find_in_tox(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``tox``, ``tox -e py311,py312 -- tests``."""
    own, rest = _split_rest(words[1:])
    names = [name for value in _option_values(own, ("-e", "--env"), many=False) for name in value.split(",") if name]
    lines = _tox_commands(root, names)
    found = (
        _find_in_commands(lines, rest)
        if lines
        else PytestCall(arguments=tuple(rest))
        if _mentions_pytest(root)
        else None
    )
    return None if found is None else replace(found, named=_find_environment(root, "tox", names=names, hint="--notest"))


def _tox_commands(root: Path, names: list[str]) -> list[str]:
    """Return the commands of the first named environment that has some, else the default ones."""
    read = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        read.read_string(_text(root / "tox.ini"))
    except configparser.Error:
        return []
    for section in (*(f"testenv:{name}" for name in names), "testenv"):
        text = read.get(section, "commands", fallback="").replace("\\\n", " ")
        if text.strip():
            return [_FACTORS.sub("", line.strip(), count=1).lstrip("- ") for line in text.splitlines() if line.strip()]
    return []


def _find_in_nox(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``nox -s tests -- tests/unit``; what the session adds is Python code, and so unknown."""
    own, rest = _split_rest(words[1:])
    if not _mentions_pytest(root):
        return None
    names = _option_values(own, ("-s", "--session", "--sessions", "-e"), many=True)
    ignored = (f"session {name}" for name in names)
    return PytestCall(
        arguments=tuple(rest),
        named=_find_environment(root, "nox", names=names, hint="--install-only"),
        ignored=tuple(ignored),
    )


def _split_rest(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the tool's own words, and those after ``--``."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _option_values(words: list[str], options: tuple[str, ...], *, many: bool) -> list[str]:
    """Return the values of the options; ``many``: all words up to the next option."""
    found: list[str] = []
    is_value_next = False
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            short = next((option for option in options if len(option) == 2 and word.startswith(option)), None)
            is_value_next = name in options and not value
            if name in options and value:
                found.append(value)
            elif short and word != short:
                found.append(word.removeprefix(short))
        elif is_value_next:
            found.append(word)
            is_value_next = many
    return found


def _find_environment(root: Path, tool: str, *, names: list[str], hint: str) -> NamedEnvironment:
    """Return the environment of tox or nox that a command names; raises ``EnvironmentMissing`` if it does not exist."""
    folder = root / f".{tool}"
    wanted = [_nox_folder(name) if tool == "nox" else name for name in names]
    patterns = [pattern for name in wanted for pattern in (name, f"{name}-*" if tool == "nox" else name)] or ["*"]
    for pattern in patterns:
        found = find_newest(folder, pattern)
        if found is not None:
            return NamedEnvironment(python=found / "bin" / "python")
    named = f" {', '.join(names)}" if names else ""
    option = {"tox": " -e ", "nox": " -s "}[tool] + (",".join(names) if tool == "tox" else " ".join(names))
    raise EnvironmentMissing(
        f"test_command names {tool}'s environment{named}, and there is none with pytest in {folder}.",
        hint=f"make it once, with what the tests need: {tool}{option if names else ''} {hint}",
    )


def _nox_folder(name: str) -> str:
    """Return nox's name of the folder of a session."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "-", name).strip().lower()).strip("-")


def _mentions_pytest(root: Path) -> bool:
    files = ("tox.ini", "noxfile.py", "pyproject.toml", "setup.cfg", "pytest.ini")
    return any(re.search(r"\bpytest\b", _text(root / name)) for name in files)


def _text(path: Path) -> str:
    return read_content(path).decode("utf-8", "replace")


_TOOLS: Mapping[str, Callable[[Path, list[str]], PytestCall | None]] = {
    "poetry": _find_in_run("poetry", lambda _: {}),
    "pdm": _find_in_run(
        "pdm",
        lambda root: get_table(get_table(get_table(read_toml(root / "pyproject.toml"), "tool"), "pdm"), "scripts"),
    ),
    "pipenv": _find_in_run("pipenv", lambda root: get_table(read_toml(root / "Pipfile"), "scripts")),
    "hatch": _find_in_hatch,
    "tox": _find_in_tox,
    "nox": _find_in_nox,
}


_SELECTS = frozenset({"-m", "-k", "--deselect", "--ignore", "--ignore-glob"})
"""Options with a value that leave tests out."""
_VALUED = _SELECTS | {
    *("-W", "-o", "-r", "-n", "--pythonwarnings", "--override-ini", "--tb", "--durations", "--durations-min"),
    *("--import-mode", "--log-level", "--log-cli-level", "--numprocesses", "--dist", "--cov", "--cov-report"),
    *("--cov-config", "--cov-fail-under", "--timeout", "--timeout-method", "--ds", "--dc", "--asyncio-mode"),
    *("--verbosity", "--show-capture", "--capture", "--hypothesis-profile", "--randomly-seed"),
}
_REFUSED = frozenset(
    {
        *("-x", "-h", "-V", "-f", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--nf"),
        *("--new-first", "--sw", "--stepwise", "--stepwise-skip", "--co", "--collect-only", "--collectonly"),
        *("--setup-plan", "--setup-only", "--setup-show", "--pdb", "--trace", "--debug", "--fixtures", "--markers"),
        *("--version", "--help", "--noconftest", "--pyargs", "--looponfail", "--cache-clear", "--tdd-agent"),
    }
)
"""Options that would change what cdd asks of a run."""
_REFUSED_VALUED = frozenset(
    {
        *("-c", "-p", "--config-file", "--rootdir", "--confcutdir", "--maxfail", "--junitxml", "--junit-xml"),
        *("--basetemp", "--color", "--pdbcls", "--report-log", "--html", "--reruns", "--lfnf"),
        *("--last-failed-no-failures", "--inifile"),
    }
)
_LETTERS = {option[1]: option for option in _VALUED | _REFUSED_VALUED if len(option) == 2}
"""One-letter options that take a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestArguments:
    """The parts of a command that cdd's own call of pytest takes over."""

    options: tuple[str, ...] = ()
    """For every run, as ``addopts``."""
    selects: tuple[str, ...] = ()
    """For runs of all tests: paths, as ``testpaths``, and options that leave tests out."""
    named: NamedEnvironment = NO_ENVIRONMENT
    ignored: tuple[str, ...] = ()
    """Words that do not count."""


def parse_command(root: Path, words: Sequence[str]) -> PytestArguments:
    """Return what a command says for the project in ``root``.

    Raises ``EnvironmentMissing`` if it names an environment of tox or nox that does not exist.
    """
    call = find_call(root, words)
    if call is None:
        return PytestArguments(ignored=() if list(words) == ["pytest"] else (shlex.join(words),))
    return _sort_arguments(call, root=root)


def runs_pytest(root: Path, words: Sequence[str]) -> bool:
    """Return whether the words name pytest, or a script or an environment of a tool that runs it."""
    return any(map(is_pytest, words)) or find_call(root, words, is_trial=True) is not None


@dataclass(slots=True)
class _Sorted:
    """Arguments of pytest, sorted while they are read."""

    root: Path
    options: list[str] = field(default_factory=list)
    selects: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def take(self, option: str, value: str | None) -> None:
        """Add one option, with its value if it has one."""
        if option in _REFUSED | _REFUSED_VALUED or option.startswith("--tdd-agent"):
            self.ignored.append(option if value is None else f"{option} {value}")
        elif value is None:
            self.options.append(option)
        else:
            words = [f"{option}={value}"] if option.startswith("--") else [option, value]
            (self.selects if option in _SELECTS else self.options).extend(words)

    def take_path(self, word: str) -> None:
        """Add a file, a folder or a node id."""
        path, colons, inside = word.partition("::")
        name = os.path.relpath(self.root / path, self.root)
        if name.startswith(os.pardir) or not self.is_path(word):
            self.ignored.append(word)
        else:
            self.selects.append(f"{Path(name).as_posix()}{colons}{inside}")

    def is_path(self, word: str) -> bool:
        """Return whether there is such a file or folder."""
        path = word.partition("::")[0]
        return bool(path) and "\0" not in path and (self.root / path).exists()


def _sort_arguments(call: PytestCall, *, root: Path) -> PytestArguments:
    found = _Sorted(root)
    left = list(call.arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            for path in left:
                found.take_path(path)
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if equals:
                found.take(name, value)
            elif name in _VALUED | _REFUSED_VALUED or (
                name not in _REFUSED and left and not left[0].startswith("-") and not found.is_path(left[0])
            ):
                found.take(name, left.pop(0) if left else None)
            else:
                found.take(name, None)
        elif word.startswith("-") and len(word) > 1:
            for option, letter_value in _split_letters(word[1:], left):
                found.take(option, letter_value)
        elif word.startswith("@"):
            found.ignored.append(word)
        else:
            found.take_path(word)
    return PytestArguments(
        options=tuple(found.options),
        selects=tuple(found.selects),
        named=call.named,
        ignored=(*call.ignored, *found.ignored),
    )


def _split_letters(cluster: str, left: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the options of ``-qxk``; the last may have its value in the same word, or take the next of ``left``."""
    for number, letter in enumerate(cluster, start=1):
        if letter in _LETTERS:
            rest = cluster[number:].removeprefix("=")
            yield f"-{letter}", rest or (left.pop(0) if left else None)
            return
        yield f"-{letter}", None


def explain_ignored(command: Iterable[str], ignored: Iterable[str]) -> str:
    """Return the notice about words that do not count."""
    words = ", ".join(f"`{' '.join(word.split())}`" for word in ignored)
    return (
        f"pytest is run by cdd itself, so that of `{shlex.join(command)}` these words do not count: {words}. "
        "What the tests need of them belongs into pytest's configuration."
    )
