"""Parses a user's command that runs pytest: its options, its selection and the environment it names.

The command itself never runs, because cdd has to run pytest with its plugin. cdd takes over the parts that it can and
reports the others. If the command names a script, the script is read from the tool's settings file.
"""

import argparse
import configparser
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.interpreter import NO_ENVIRONMENT, NamedEnvironment, find_newest
from cdd_agent.testrun.project_files import get_table, read_content, read_toml

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
    """Words before pytest that do more than locate it."""


def find_call(root: Path, words: Sequence[str]) -> PytestCall | None:
    """Return the call of pytest in a command, or None.

    Raises ``EnvironmentMissing`` if it names an environment that does not exist.
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
    call = _TOOLS.get(os.path.basename(left[0]), _find_direct)(root, left)
    return None if call is None else replace(call, ignored=(*ignored, *call.ignored))


def _find_direct(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``python -m pytest``, ``uv run pytest``, ``coverage run -m pytest`` and the like."""
    at = next((at for at, word in enumerate(words) if _PYTEST.fullmatch(word)), None)
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


def _find_in_run(tool: str, file: str = "", *tables: str) -> Callable[[Path, list[str]], PytestCall | None]:
    """Make a rule for ``TOOL run COMMAND``, where the command can be a script in the ``tables`` of a TOML file."""

    def find(root: Path, words: list[str]) -> PytestCall | None:
        rest = words[2:] if words[1:2] == ["run"] else words[1:]
        scripts = get_table(read_toml(root / file), *tables) if file else {}
        return _find_in_environment(root, rest, scripts=scripts, environment=NamedEnvironment(tool=tool))

    return find


def _find_in_environment(
    root: Path, words: list[str], *, scripts: Mapping[str, object], environment: NamedEnvironment
) -> PytestCall | None:
    """Find pytest in a script or a command; the environment applies unless the command names an interpreter."""
    found = None
    if words and words[0] in scripts:
        found = _find_in_commands(_list_commands(scripts[words[0]]), words[1:])
    found = found or _find_direct(root, words)
    return found if found is None or found.named.python is not None else replace(found, named=environment)


def _list_commands(script: object) -> list[str]:
    """Return the commands of a script in any of the forms that tools allow."""
    match script:
        case (str() as line) | {"cmd": str() as line}:
            return [line]
        case {"cmd": list() as words} if all(isinstance(word, str) for word in words):
            return [shlex.join(map(str, words))]
        case {"composite": list() as lines}:
            return [str(line) for line in lines]
        case list() as lines if all(isinstance(line, str) for line in lines):
            return [str(line) for line in lines]
    return []


def _find_in_commands(lines: Iterable[str], rest: Sequence[str]) -> PytestCall | None:
    """Return the first call of pytest in ``lines``, with ``rest`` at its placeholder or else at its end."""
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
    if rest[:1] == ["test"]:
        own, after = _split_rest(rest[1:])
        options = tuple(word for word in own if word.startswith("-"))
        paths = [word for word in own if not word.startswith("-")]
        named = NamedEnvironment(tool="hatch", name="hatch-test")
        return PytestCall(arguments=(*paths, *after), named=named, ignored=options)
    if rest[:1] != ["run"] or len(rest) < 2:
        return None
    env, colon, command = rest[1].rpartition(":")
    name, rest = (env, [command, *rest[2:]]) if colon else (name, rest[1:])
    settings = get_table(read_toml(root / "pyproject.toml"), "tool", "hatch") | read_toml(root / "hatch.toml")
    scripts = get_table(settings, "envs", name or "default", "scripts")
    return _find_in_environment(root, rest, scripts=scripts, environment=NamedEnvironment(tool="hatch", name=name))


def _find_in_tox(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``tox``, ``tox -e py311,py312 -- tests``."""
    own, rest = _split_rest(words[1:])
    names = [name for value in _list_values(own, "-e", "--env", nargs="?") for name in value.split(",") if name]
    found = PytestCall(arguments=tuple(rest)) if _mentions_pytest(root) else None
    if lines := _list_tox_commands(root, names):
        found = _find_in_commands(lines, rest)
    return None if found is None else replace(found, named=_find_environment(root, "tox", names=names, hint="--notest"))


def _list_tox_commands(root: Path, names: list[str]) -> list[str]:
    """Return the commands of the first named environment that has some, or else the default ones."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read_content(root / "tox.ini").decode("utf-8", "replace"))
    except configparser.Error:
        return []
    for section in (*(f"testenv:{name}" for name in names), "testenv"):
        text = parser.get(section, "commands", fallback="").replace("\\\n", " ")
        if text.strip():
            return [_FACTORS.sub("", line.strip(), count=1).lstrip("- ") for line in text.splitlines() if line.strip()]
    return []


def _find_in_nox(root: Path, words: list[str]) -> PytestCall | None:
    """Find pytest in ``nox -s tests -- tests/unit``; the session itself is Python code, so its options are unknown."""
    own, rest = _split_rest(words[1:])
    if not _mentions_pytest(root):
        return None
    names = _list_values(own, "-s", "--session", "--sessions", "-e", nargs="*")
    named = _find_environment(root, "nox", names=names, hint="--install-only")
    return PytestCall(arguments=tuple(rest), named=named, ignored=tuple(f"session {name}" for name in names))


def _split_rest(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the tool's own words, and those after ``--``."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _list_values(words: list[str], *options: str, nargs: str) -> list[str]:
    """Return the values of the options; ``nargs`` is how many each takes, as for ``argparse``."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*options, dest="values", action="append", nargs=nargs)
    found = parser.parse_known_args(words)[0].values or []
    return [value for values in found for value in ([values] if isinstance(values, str) else values or [])]


def _find_environment(root: Path, tool: str, *, names: list[str], hint: str) -> NamedEnvironment:
    """Return the environment of tox or nox that a command names; raise ``EnvironmentMissing`` if it does not exist."""
    folder, patterns = root / f".{tool}", names
    if tool == "nox":
        plain = (re.sub(r"[^\w\s-]", "-", name).strip().lower() for name in names)
        folders = [re.sub(r"[-\s]+", "-", name).strip("-") for name in plain]  # as nox names them
        patterns = [pattern for name in folders for pattern in (name, f"{name}-*")]
    for pattern in patterns or ["*"]:
        if (found := find_newest(folder, pattern)) is not None:
            return NamedEnvironment(python=found / "bin" / "python")
    named, option = "", ""
    if names:
        named = f" {', '.join(names)}"
        option = f" -e {','.join(names)}" if tool == "tox" else f" -s {' '.join(names)}"
    raise EnvironmentMissing(
        f"test_command names {tool}'s environment{named}, but {folder} has none with pytest.",
        hint=f"create it once, with the packages that the tests need: {tool}{option} {hint}",
    )


def _mentions_pytest(root: Path) -> bool:
    files = ("tox.ini", "noxfile.py", "pyproject.toml", "setup.cfg", "pytest.ini")
    return any(re.search(rb"\bpytest\b", read_content(root / name)) for name in files)


_TOOLS: Mapping[str, Callable[[Path, list[str]], PytestCall | None]] = {
    "poetry": _find_in_run("poetry"),
    "pdm": _find_in_run("pdm", "pyproject.toml", "tool", "pdm", "scripts"),
    "pipenv": _find_in_run("pipenv", "Pipfile", "scripts"),
    "hatch": _find_in_hatch,
    "tox": _find_in_tox,
    "nox": _find_in_nox,
}


_SELECTS = frozenset({"-m", "-k", "--deselect", "--ignore", "--ignore-glob"})
"""Options with a value that deselect tests."""
_VALUED = _SELECTS | {
    *("-W", "-o", "-r", "-n", "--pythonwarnings", "--override-ini", "--tb", "--durations", "--durations-min"),
    *("--import-mode", "--log-level", "--log-cli-level", "--numprocesses", "--dist", "--cov", "--cov-report"),
    *("--cov-config", "--cov-fail-under", "--timeout", "--timeout-method", "--ds", "--dc", "--asyncio-mode"),
    *("--verbosity", "--show-capture", "--capture", "--hypothesis-profile", "--randomly-seed"),
}
_REFUSED = {
    *("-x", "-h", "-V", "-f", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first"),
    *("--sw", "--stepwise", "--stepwise-skip", "--co", "--collect-only", "--collectonly", "--setup-plan"),
    *("--setup-only", "--setup-show", "--pdb", "--trace", "--debug", "--fixtures", "--markers", "--version", "--help"),
    *("--noconftest", "--pyargs", "--looponfail", "--cache-clear", "--tdd-agent"),
}
"""Options that would interfere with cdd's own options."""
_REFUSED_VALUED = {
    *("-c", "-p", "--config-file", "--rootdir", "--confcutdir", "--maxfail", "--junitxml", "--junit-xml", "--inifile"),
    *("--basetemp", "--color", "--pdbcls", "--report-log", "--html", "--reruns", "--lfnf", "--last-failed-no-failures"),
}
_LETTERS = {option[1]: option for option in _VALUED | _REFUSED_VALUED if len(option) == 2}
"""One-letter options that take a value."""


@dataclass(slots=True, kw_only=True)
class PytestArguments:
    """The parts of a command that cdd's own call of pytest takes over."""

    root: Path
    options: list[str] = field(default_factory=list)
    """Options of every run, as in ``addopts``."""
    selects: list[str] = field(default_factory=list)
    """Arguments of a run of all tests: paths, as in ``testpaths``, and options that deselect tests."""
    named: NamedEnvironment = NO_ENVIRONMENT
    ignored: list[str] = field(default_factory=list)
    """Words that have no effect."""

    def add(self, words: Sequence[str]) -> None:
        """Add the arguments of a call."""
        for option, value in self._iterate_options(list(words)):
            if not option:
                self._add_path(value or "")
            elif option in _REFUSED | _REFUSED_VALUED or option.startswith("--tdd-agent"):
                self.ignored.append(option if value is None else f"{option} {value}")
            elif value is None:
                self.options.append(option)
            else:
                spelled = [f"{option}={value}"] if option.startswith("--") else [option, value]
                (self.selects if option in _SELECTS else self.options).extend(spelled)

    def _iterate_options(self, left: list[str]) -> Iterator[tuple[str, str | None]]:
        """Yield each option with its value, and each path with an empty option."""
        while left:
            word = left.pop(0)
            name, equals, value = word.partition("=")
            if word == "--":
                yield from (("", path) for path in left)
                return
            if word.startswith("--"):
                is_unknown = name not in _REFUSED and left and not left[0].startswith("-") and not self.is_path(left[0])
                takes_value = name in _VALUED | _REFUSED_VALUED or is_unknown
                yield name, value if equals else left.pop(0) if takes_value and left else None
            elif word.startswith("-") and len(word) > 1:
                yield from _split_letters(word[1:], left)
            else:
                yield "", word

    def _add_path(self, word: str) -> None:
        path, colons, inside = word.partition("::")
        name = os.path.relpath(self.root / path, self.root)
        is_own = self.is_path(word) and not word.startswith("@") and not name.startswith(os.pardir)
        (self.selects if is_own else self.ignored).append(f"{name}{colons}{inside}" if is_own else word)

    def is_path(self, word: str) -> bool:
        """Return whether a word names an existing file or folder."""
        path = word.partition("::")[0]
        return bool(path) and "\0" not in path and (self.root / path).exists()


def _split_letters(cluster: str, left: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the options of ``-qxk``; the last can have its value in the same word, or take the next of ``left``."""
    for number, letter in enumerate(cluster, start=1):
        if letter in _LETTERS:
            rest = cluster[number:].removeprefix("=")
            yield f"-{letter}", rest or (left.pop(0) if left else None)
            return
        yield f"-{letter}", None


def parse_command(root: Path, words: Sequence[str]) -> PytestArguments:
    """Return the arguments that a command passes to pytest in the project in ``root``.

    Raises ``EnvironmentMissing`` if it names an environment of tox or nox that does not exist.
    """
    call = find_call(root, words)
    if call is None:
        return PytestArguments(root=root, ignored=[] if list(words) == ["pytest"] else [shlex.join(words)])
    found = PytestArguments(root=root, named=call.named, ignored=list(call.ignored))
    found.add(call.arguments)
    return found


def runs_pytest(root: Path, words: Sequence[str]) -> bool:
    """Return whether the words name pytest, or a tool's script or environment that runs it."""
    try:
        return any(map(_PYTEST.fullmatch, words)) or find_call(root, words) is not None
    except EnvironmentMissing:
        return True


def explain_ignored(command: Iterable[str], ignored: Iterable[str]) -> str:
    """Return the notice about words that have no effect."""
    words = ", ".join(f"`{' '.join(word.split())}`" for word in ignored)
    return (
        f"cdd runs pytest itself, so these words of `{shlex.join(command)}` have no effect: {words}. "
        "If the tests need them, add them to pytest's configuration."
    )
