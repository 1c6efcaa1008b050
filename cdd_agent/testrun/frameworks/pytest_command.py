"""The tools by which people run pytest: what of their commands is pytest's, and which environment they mean.

Scripts are read where a tool has them in a file of settings. Nothing is run.


What a command of the user's that runs pytest says: which tests are all, how they are run, in which environment.

The command itself is never run, since pytest has to be run by a program of ours. What it says is taken over as far as
that goes, and the rest is named, for the user to be told.

"""

import configparser
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.environments import NOTHING_MEANT, Meant, content_of, newest, table, toml

_PYTEST = re.compile(r"(?:.*/)?(?:pytest|py\.test)")
_PYTHON = re.compile(r"(?:.*/)?python(?P<version>[\d.]*)")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_BEFORE_TOOLS = (("uv", "run"), ("uvx",), ("pipx", "run"), ("python", "-m"), ("python3", "-m"))
_REST = re.compile(r"\{(?:posargs|args)(?::(?P<default>[^{}]*))?\}")
_FACTORS = re.compile(r"[\w.,!-]+:\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoked:
    """A call of pytest."""

    arguments: tuple[str, ...]
    meant: Meant = NOTHING_MEANT
    unheard: tuple[str, ...] = ()
    """Words before pytest's that say more than where it is."""


def is_pytest(word: str) -> bool:
    """Whether the word is pytest's program or module."""
    return _PYTEST.fullmatch(word) is not None


def call_of(root: Path, words: Sequence[str], *, is_tried: bool = False) -> Invoked | None:
    """The call of pytest that a command comes to in the project ``root``; None if it is none that can be told.

    Raises ``EnvironmentMissing`` if it names an environment that has not been made, unless it ``is_tried`` only.
    """
    left = list(words)
    unheard: list[str] = []
    while left and (left[0] == "env" or _ASSIGNED.fullmatch(left[0])):
        unheard += [word for word in (left.pop(0),) if word != "env"]
    for first in _BEFORE_TOOLS:
        if tuple(left[: len(first)]) == first and os.path.basename("".join(left[len(first) :][:1])) in _TOOLS:
            left = left[len(first) :]
    if not left:
        return None
    tool = _TOOLS.get(os.path.basename(left[0]), _direct)
    try:
        call = tool(root, left)
    except EnvironmentMissing:
        if not is_tried:
            raise
        return Invoked(arguments=())
    return None if call is None else replace(call, unheard=(*unheard, *call.unheard))


def _direct(root: Path, words: list[str]) -> Invoked | None:
    """``python -m pytest``, ``uv run pytest``, ``coverage run -m pytest`` and the like."""
    at = next((at for at, word in enumerate(words) if is_pytest(word)), None)
    if at is None:
        return None
    before, program = words[:at], words[at]
    if before[-1:] == ["-m"]:
        before = before[:-1]
        program = before.pop() if before and _PYTHON.fullmatch(before[-1]) else program
    unheard = () if before in ([], ["uv", "run"], ["uv", "run", "--"], ["uvx"]) else (shlex.join(before),)
    python = None
    if "/" in program:
        path = root / program
        python = path if _PYTHON.fullmatch(program) else path.with_name("python")
    elif (found := _PYTHON.fullmatch(program)) and "." in found["version"]:
        unheard = (*unheard, program)
    meant = NOTHING_MEANT if python is None else Meant(python=Path(os.path.abspath(python)))
    return Invoked(arguments=tuple(words[at + 1 :]), meant=meant, unheard=unheard)


def _of_run(tool: str, scripts: Callable[[Path], Mapping[str, object]]) -> Callable[[Path, list[str]], Invoked | None]:
    """``TOOL run COMMAND``, where the command may be a script of the tool's."""

    def call(root: Path, words: list[str]) -> Invoked | None:
        rest = words[2:] if words[1:2] == ["run"] else words[1:]
        found = _scripted(rest, scripts(root)) or _direct(root, rest)
        return None if found is None else replace(found, meant=_with_tool(found.meant, tool))

    return call


def _with_tool(meant: Meant, tool: str, *, name: str = "") -> Meant:
    """The tool's environment, unless the command names an interpreter."""
    return meant if meant.python is not None else Meant(tool=tool, name=name)


def _scripted(words: list[str], scripts: Mapping[str, object]) -> Invoked | None:
    """The call of pytest in the script that ``words`` begin with."""
    if not words or words[0] not in scripts:
        return None
    return _of_lines(_lines(scripts[words[0]]), words[1:])


def _lines(script: object) -> list[str]:
    """The commands of a script, however it is written."""
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


def _of_lines(lines: Iterable[str], rest: Sequence[str]) -> Invoked | None:
    """The first call of pytest in ``lines``; ``rest`` is put where they have a place for it, else behind."""
    for line in lines:
        filled = _REST.sub(lambda match: shlex.join(rest) if rest else (match["default"] or ""), line)
        try:
            words = shlex.split(filled)
        except ValueError:
            continue
        call = _direct(Path(), [word for word in words if not _ASSIGNED.fullmatch(word)])
        if call is not None:
            more = () if _REST.search(line) else tuple(rest)
            return Invoked(arguments=(*call.arguments, *more), unheard=call.unheard)
    return None


def _hatch(root: Path, words: list[str]) -> Invoked | None:
    """``hatch run test``, ``hatch run test:pytest``, ``hatch -e test run pytest``, ``hatch test``."""
    rest, name = words[1:], ""
    while rest and rest[0] in ("-e", "--env"):
        name, rest = "".join(rest[1:2]), rest[2:]
    settings = table(table(toml(root / "pyproject.toml"), "tool"), "hatch") | toml(root / "hatch.toml")
    if rest[:1] == ["test"]:
        own = rest[1 : rest.index("--")] if "--" in rest else rest[1:]
        options = tuple(word for word in own if word.startswith("-"))
        after = rest[rest.index("--") + 1 :] if "--" in rest else []
        paths = [word for word in own if not word.startswith("-")]
        return Invoked(arguments=(*paths, *after), meant=Meant(tool="hatch", name="hatch-test"), unheard=options)
    if rest[:1] != ["run"] or len(rest) < 2:
        return None
    env, colon, command = rest[1].rpartition(":")
    name, rest = (env, [command, *rest[2:]]) if colon else (name, rest[1:])
    scripts = table(table(table(settings, "envs"), name or "default"), "scripts")
    found = _scripted(rest, scripts) or _direct(root, rest)
    return None if found is None else replace(found, meant=_with_tool(found.meant, "hatch", name=name))


def _tox(root: Path, words: list[str]) -> Invoked | None:
    """``tox``, ``tox -e py311,py312 -- tests``."""
    own, rest = _parted(words[1:])
    names = [name for value in _values(own, ("-e", "--env"), many=False) for name in value.split(",") if name]
    lines = _tox_lines(root, names)
    found = _of_lines(lines, rest) if lines else Invoked(arguments=tuple(rest)) if _names_pytest(root) else None
    return None if found is None else replace(found, meant=_made(root, "tox", names=names, hint="--notest"))


def _tox_lines(root: Path, names: list[str]) -> list[str]:
    """The commands of the first environment that has some, else those of all."""
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


def _nox(root: Path, words: list[str]) -> Invoked | None:
    """``nox -s tests -- tests/unit``; what the session itself adds is written in Python, and is not known."""
    own, rest = _parted(words[1:])
    if not _names_pytest(root):
        return None
    names = _values(own, ("-s", "--session", "--sessions", "-e"), many=True)
    unheard = (f"session {name}" for name in names)
    return Invoked(
        arguments=tuple(rest), meant=_made(root, "nox", names=names, hint="--install-only"), unheard=tuple(unheard)
    )


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and those after ``--``."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _values(words: list[str], options: tuple[str, ...], *, many: bool) -> list[str]:
    """What stands behind one of the options; ``many``: up to the next option."""
    found: list[str] = []
    is_behind = False
    for word in words:
        if word.startswith("-"):
            name, _, value = word.partition("=")
            short = next((option for option in options if len(option) == 2 and word.startswith(option)), None)
            is_behind = name in options and not value
            if name in options and value:
                found.append(value)
            elif short and word != short:
                found.append(word.removeprefix(short))
        elif is_behind:
            found.append(word)
            is_behind = many
    return found


def _made(root: Path, tool: str, *, names: list[str], hint: str) -> Meant:
    """The environment of tox or nox that the command names; raises ``EnvironmentMissing`` if it has not been made."""
    folder = root / f".{tool}"
    wanted = [_safe(name) if tool == "nox" else name for name in names]
    patterns = [pattern for name in wanted for pattern in (name, f"{name}-*" if tool == "nox" else name)] or ["*"]
    for pattern in patterns:
        found = newest(folder, pattern)
        if found is not None:
            return Meant(python=found / "bin" / "python")
    named = f" {', '.join(names)}" if names else ""
    option = {"tox": " -e ", "nox": " -s "}[tool] + (",".join(names) if tool == "tox" else " ".join(names))
    raise EnvironmentMissing(
        f"test_command names {tool}'s environment{named}, and there is none with pytest in {folder}.",
        hint=f"make it once, with what the tests need: {tool}{option if names else ''} {hint}",
    )


def _safe(name: str) -> str:
    """What nox calls the folder of a session."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "-", name).strip().lower()).strip("-")


def _names_pytest(root: Path) -> bool:
    files = ("tox.ini", "noxfile.py", "pyproject.toml", "setup.cfg", "pytest.ini")
    return any(re.search(r"\bpytest\b", _text(root / name)) for name in files)


def _text(path: Path) -> str:
    return content_of(path).decode("utf-8", "replace")


_TOOLS: Mapping[str, Callable[[Path, list[str]], Invoked | None]] = {
    "poetry": _of_run("poetry", lambda _: {}),
    "pdm": _of_run("pdm", lambda root: table(table(table(toml(root / "pyproject.toml"), "tool"), "pdm"), "scripts")),
    "pipenv": _of_run("pipenv", lambda root: table(toml(root / "Pipfile"), "scripts")),
    "hatch": _hatch,
    "tox": _tox,
    "nox": _nox,
}


_SELECTS = frozenset({"-m", "-k", "--deselect", "--ignore", "--ignore-glob"})
"""Options that leave tests out; with a value."""
_VALUED = _SELECTS | {
    *("-W", "-o", "-r", "-n", "--pythonwarnings", "--override-ini", "--tb", "--durations", "--durations-min"),
    *("--import-mode", "--log-level", "--log-cli-level", "--numprocesses", "--dist", "--cov", "--cov-report"),
    *("--cov-config", "--cov-fail-under", "--timeout", "--timeout-method", "--ds", "--dc", "--asyncio-mode"),
    *("--verbosity", "--show-capture", "--capture", "--hypothesis-profile", "--randomly-seed"),
}
_OURS = frozenset(
    {
        *("-x", "-h", "-V", "-f", "--exitfirst", "--lf", "--last-failed", "--ff", "--failed-first", "--nf"),
        *("--new-first", "--sw", "--stepwise", "--stepwise-skip", "--co", "--collect-only", "--collectonly"),
        *("--setup-plan", "--setup-only", "--setup-show", "--pdb", "--trace", "--debug", "--fixtures", "--markers"),
        *("--version", "--help", "--noconftest", "--pyargs", "--looponfail", "--cache-clear", "--tdd-agent"),
    }
)
"""Options that would change what the program asks of a run."""
_OURS_VALUED = frozenset(
    {
        *("-c", "-p", "--config-file", "--rootdir", "--confcutdir", "--maxfail", "--junitxml", "--junit-xml"),
        *("--basetemp", "--color", "--pdbcls", "--report-log", "--html", "--reruns", "--lfnf"),
        *("--last-failed-no-failures", "--inifile"),
    }
)
_LETTERS = {option[1]: option for option in _VALUED | _OURS_VALUED if len(option) == 2}
"""One-letter options that take a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command says of how pytest is to be run."""

    options: tuple[str, ...] = ()
    """Of every run, as ``addopts`` has them."""
    selects: tuple[str, ...] = ()
    """Of runs of all tests: paths, as ``testpaths`` has them, and options that leave tests out."""
    meant: Meant = NOTHING_MEANT
    unheard: tuple[str, ...] = ()
    """Words that do not count."""


def asked(root: Path, words: Sequence[str]) -> Asked:
    """What the command says for the project in ``root``.

    Raises ``EnvironmentMissing`` if it names an environment of tox or nox that has not been made.
    """
    call = call_of(root, words)
    if call is None:
        return Asked(unheard=() if list(words) == ["pytest"] else (shlex.join(words),))
    return _said(call, root=root)


def runs_pytest(root: Path, words: Sequence[str]) -> bool:
    """Whether the words name pytest, or a script or an environment of a tool that runs it."""
    return any(map(is_pytest, words)) or call_of(root, words, is_tried=True) is not None


@dataclass(slots=True)
class _Words:
    """The arguments of pytest, sorted while they are read."""

    root: Path
    options: list[str] = field(default_factory=list)
    selects: list[str] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)

    def take(self, option: str, value: str | None) -> None:
        """One option, with its value if it has one."""
        if option in _OURS | _OURS_VALUED or option.startswith("--tdd-agent"):
            self.unheard.append(option if value is None else f"{option} {value}")
        elif value is None:
            self.options.append(option)
        else:
            said = [f"{option}={value}"] if option.startswith("--") else [option, value]
            (self.selects if option in _SELECTS else self.options).extend(said)

    def take_path(self, word: str) -> None:
        """A file, a folder or a node id."""
        path, colons, inside = word.partition("::")
        name = os.path.relpath(self.root / path, self.root)
        if name.startswith(os.pardir) or not self.is_path(word):
            self.unheard.append(word)
        else:
            self.selects.append(f"{Path(name).as_posix()}{colons}{inside}")

    def is_path(self, word: str) -> bool:
        """Whether there is such a file or folder."""
        path = word.partition("::")[0]
        return bool(path) and "\0" not in path and (self.root / path).exists()


def _said(call: Invoked, *, root: Path) -> Asked:
    found = _Words(root)
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
            elif name in _VALUED | _OURS_VALUED or (
                name not in _OURS and left and not left[0].startswith("-") and not found.is_path(left[0])
            ):
                found.take(name, left.pop(0) if left else None)
            else:
                found.take(name, None)
        elif word.startswith("-") and len(word) > 1:
            for option, behind in _letters(word[1:], left):
                found.take(option, behind)
        elif word.startswith("@"):
            found.unheard.append(word)
        else:
            found.take_path(word)
    return Asked(
        options=tuple(found.options),
        selects=tuple(found.selects),
        meant=call.meant,
        unheard=(*call.unheard, *found.unheard),
    )


def _letters(cluster: str, left: list[str]) -> Iterator[tuple[str, str | None]]:
    """The options of ``-qxk``; the last may have its value in the same word, or take the next of ``left``."""
    for number, letter in enumerate(cluster, start=1):
        if letter in _LETTERS:
            rest = cluster[number:].removeprefix("=")
            yield f"-{letter}", rest or (left.pop(0) if left else None)
            return
        yield f"-{letter}", None


def told(command: Iterable[str], unheard: Iterable[str]) -> str:
    """What a person is told of words that do not count."""
    words = ", ".join(f"`{' '.join(word.split())}`" for word in unheard)
    return (
        f"pytest is run by cdd itself, so that of `{shlex.join(command)}` these words do not count: {words}. "
        "What the tests need of them belongs into pytest's configuration."
    )
