"""What a ``package.json`` and the files beside it say of how the tests are run; nothing is run or installed."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Finding

MANIFEST = "package.json"
_LIMIT_BYTES = 4 * 1024 * 1024
_HIGHEST = 8
"""Folders above the manifest's that are looked at for a lock file and for ``node_modules``."""
_NAMES = ("vitest", "jest", "mocha", "node")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_CHAIN = re.compile(r"&&|\|\||[;|\n]")
_DROPPED = re.compile(
    r"--(?:no-)?(?:watch\w*|reporters?|reporter-options?|coverage\S*|json|output-?[fF]ile|ui|bail|grep|fgrep|testNamePattern"
    r"|test-name-pattern|test-reporter|test-reporter-destination|silent|verbose|invert|forbid-only|onlyChanged|changed)"
    r"(?:[.=].*)?|-[RtgfbO]",
    re.DOTALL,
)
_WITH_VALUE = re.compile(
    r"--(?:reporters?|reporter-options?|output-?[fF]ile|grep|fgrep|testNamePattern|test-name-pattern|test-reporter"
    r"|test-reporter-destination)|-[RtgfO]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A test runner as scripts name it."""

    name: str
    drops: tuple[str, ...] = ()
    """What may follow the name in a script and is not kept: subcommands, and options that other tools give a value."""
    adds: tuple[str, ...] = ()
    """What follows the name instead."""
    configuration: tuple[str, ...] = ()
    """Patterns of files that say that it is used."""
    key: str = ""
    """The key in the manifest that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A package manager, by its lock file."""

    lock: str
    runs: tuple[str, ...]
    """How it runs an installed program, and never fetches one."""
    installs: str


_MANAGERS = (
    Manager(lock="pnpm-lock.yaml", runs=("pnpm", "exec"), installs="pnpm install"),
    Manager(lock="yarn.lock", runs=("yarn", "exec"), installs="yarn install"),
    Manager(lock="bun.lockb", runs=("bun", "x", "--no-install"), installs="bun install"),
    Manager(lock="bun.lock", runs=("bun", "x", "--no-install"), installs="bun install"),
    Manager(lock="package-lock.json", runs=("npx", "--no-install"), installs="npm install"),
)
_DEFAULT = _MANAGERS[-1]


class Manifest(msgspec.Struct, rename="camel"):
    """What is read of a ``package.json``."""

    scripts: dict[str, object] = {}
    dependencies: dict[str, object] = {}
    dev_dependencies: dict[str, object] = {}
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command of a script that runs a test runner."""

    script: str
    variables: tuple[str, ...]
    """``NAME=value``."""
    node_options: tuple[str, ...]
    arguments: tuple[str, ...]
    """What is kept of those after the name."""
    before: str = ""
    """What the script does before it, and what its package manager does before that."""

    def why(self, called: str) -> str:
        """The rule that found it; with what is not run of the script, as ``called`` alone runs the tests."""
        said = f"the script {self.script!r} of {MANIFEST} calls {called}"
        if not self.before:
            return said
        all_of = f"test_command: npm run {self.script}"
        return f"{said} (without `{self.before}` before it; {all_of} in .cdd/config.yaml runs all of the script)"


def read_manifest(folder: Path) -> tuple[Manifest, frozenset[str]] | None:
    """What the folder's manifest says, and its keys; None if there is none that can be read."""
    try:
        data = read_ordinary(folder / MANIFEST, limit_bytes=_LIMIT_BYTES)
        return msgspec.json.decode(data, type=Manifest), frozenset(msgspec.json.decode(data, type=dict[str, object]))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def find_tool(folder: Path, tool: Tool) -> Finding | None:
    """The tool, if a script calls it, else if it is a dependency or is configured and no script calls another one."""
    found = read_manifest(folder)
    if found is None:
        return None
    manifest, keys = found
    call = next(calls(manifest, tool), None)
    why = _reason(folder, tool, manifest=manifest, keys=keys) if call is None else call.why(tool.name)
    if why is None:
        return None
    program, missing = _program(folder, tool.name)
    argv = (*_prefix(call), *program, *tool.adds, *(call.arguments if call else ()))
    return Finding(manifest=folder / MANIFEST, argv=argv, why=why + missing)


def _reason(folder: Path, tool: Tool, *, manifest: Manifest, keys: frozenset[str]) -> str | None:
    """Why the tool is the project's though no script calls it; nothing if it is not, or if scripts call another one."""
    if any(next(calls(manifest, Tool(name=name)), None) for name in _NAMES):
        return None
    if tool.name in {**manifest.dependencies, **manifest.dev_dependencies}:
        return f"{tool.name} is a dependency in {MANIFEST}"
    if tool.key and tool.key in keys:
        return f"{MANIFEST} has the key {tool.key!r}"
    for pattern in tool.configuration:
        for path in sorted(folder.glob(pattern)):
            return f"there is {path.name}"
    return None


def calls(manifest: Manifest, tool: Tool) -> Iterator[Call]:
    """The commands of scripts that call the tool; those of ``test`` first, then of ``test:...``, then of all others."""
    scripts = {name: text for name, text in manifest.scripts.items() if isinstance(text, str)}
    for name in sorted(scripts, key=lambda name: (name != "test", not name.startswith("test"), name)):
        before = [f"npm run pre{name}"] if f"pre{name}" in scripts else []
        for command in map(str.strip, _CHAIN.split(scripts[name])):
            call = _call(command, tool, script=name)
            if call is not None:
                yield replace(call, before=" && ".join(before))
            before += [command] if command else []


def _call(command: str, tool: Tool, *, script: str) -> Call | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    at = _place(words, tool.name)
    if at is None:
        return None
    before, after = words[:at], words[at + 1 :]
    options = before[before.index("node") + 1 :] if "node" in before else []
    return Call(
        script=script,
        variables=tuple(word for word in before if _VARIABLE.fullmatch(word)),
        node_options=tuple(options),
        arguments=tuple(_kept(after, tool)),
    )


def _place(words: list[str], name: str) -> int | None:
    """Where in a command the program stands: by its name, or as a file of its package that node is to run."""
    if name == "node":
        return words.index("node") if "node" in words and "--test" in words else None
    program = re.compile(rf"(?:.*/)?_?{name}(?:\.[cm]?js)?")
    installs = {"install", "add", "i", "ci", "echo"}
    found = (at for at, word in enumerate(words) if program.fullmatch(word) and installs.isdisjoint(words[:at]))
    return next(found, None)


def _kept(words: list[str], tool: Tool) -> Iterator[str]:
    """Arguments without those that say what is watched, reported and selected: that is said by the caller."""
    is_value = False
    for word in words:
        if is_value and not word.startswith("-"):
            is_value = False
            continue
        is_value = _WITH_VALUE.fullmatch(word) is not None
        if word not in tool.drops and not _DROPPED.fullmatch(word):
            yield word


def _prefix(call: Call | None) -> tuple[str, ...]:
    if call is None:
        return ()
    options = (f"NODE_OPTIONS={shlex.join(call.node_options)}",) if call.node_options else ()
    return ("env", *call.variables, *options) if call.variables or options else ()


def _program(folder: Path, name: str) -> tuple[tuple[str, ...], str]:
    """The command of an installed program; if it is not installed, that of the package manager, and what to do."""
    for place in _upwards(folder):
        program = place / "node_modules" / ".bin" / name
        if program.is_file():
            return (str(program),), ""
    manager = next(
        (manager for place in _upwards(folder) for manager in _MANAGERS if (place / manager.lock).is_file()), _DEFAULT
    )
    has_pnp = any((place / ".pnp.cjs").is_file() for place in _upwards(folder))
    missing = "" if has_pnp else f"; it is not installed: run `{manager.installs}` in {folder}"
    return (*manager.runs, name), missing


def installed_major(folder: Path, name: str) -> int:
    """The first number of an installed package's version; 0 if it is not known."""
    for place in _upwards(folder):
        found = read_manifest(place / "node_modules" / name)
        if found is not None:
            major = found[0].version.split(".")[0]
            return int(major) if major.isdecimal() else 0
    return 0


def _upwards(folder: Path) -> Iterator[Path]:
    """The folder and those above it, up to the top of the repository."""
    for place in (folder, *folder.parents)[:_HIGHEST]:
        yield place
        if (place / ".git").exists():
            return
