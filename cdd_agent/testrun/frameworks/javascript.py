"""What a ``package.json`` and the files beside it say of how the tests are run; nothing is run or installed.

vitest: a JSON report in jest's format.

jest: a JSON report.

mocha: a JSON report, in which titles are joined by spaces, and which is not written if a file cannot load.

``node --test``: its events, one a line, by a reporter of our own.

Its JUnit report names no files, leaves out why a group failed and escapes titles twice. A reporter may be a ``data:``
address, so that there is no file to install, and none that the tests could change.

"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.javascript_errors import Setting, failure, printed, relative, without_colour
from cdd_agent.testrun.frameworks.javascript_reports import (
    LIMIT_BYTES,
    REPORTER,
    SEPARATOR,
    Describes,
    Format,
    escaped,
    found_result,
    full_names,
    importer,
    is_file,
    is_mochas_test,
    is_nodes_test,
    is_test,
    numbered,
    read,
    results,
    select,
    spelled,
    titles,
    unexplained,
    unwritten,
)
from pytest_tdd_agent.report import Case, CollectError

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


_VITEST_TOOL = Tool(
    name="vitest",
    drops=("run", "watch", "dev", "--run", "-w"),
    configuration=("vitest.config.*", "vitest.workspace.*"),
    adds=("run",),
)
_VITEST_FORMAT = Format(tool="vitest", result="vitest.json", is_test=is_test)


_SAYS_LINES = 2
"""The first major version that is known to take an option for the lines of tests."""


def _vitest_find(folder: Path) -> Finding | None:
    found = find_tool(folder, _VITEST_TOOL)
    if found is None or installed_major(folder, _VITEST_TOOL.name) < _SAYS_LINES:
        return found
    return replace(found, argv=(*found.argv, "--includeTaskLocation"))


def _vitest_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Paths are looked for in those of the test files, so that one with the same ending may come along."""
    selection = select(targets)
    named = (f"--testNamePattern={full_names(selection.names)}",) if selection.names else ()
    return (
        "--reporter=json",
        f"--outputFile={results / selection.result(_VITEST_FORMAT.result)}",
        "--coverage.enabled=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *named,
        *map(spelled, selection.paths),
    )


def _vitest_read(ended: Ended) -> Results:
    return read(ended, _VITEST_FORMAT)


VITEST = Framework(
    name="vitest",
    looked_for="vitest in a package.json's dependencies or scripts, or a vitest.config file",
    find=_vitest_find,
    arguments=_vitest_arguments,
    read=_vitest_read,
    is_test=is_test,
    variables=(("CI", "true"), ("NO_COLOR", "1")),  # no snapshot is written by the test that it is to judge
)


_JEST_TOOL = Tool(name="jest", configuration=("jest.config.*",), key="jest")
_JEST_FORMAT = Format(tool="jest", result="jest.json", is_test=is_test)


def _jest_find(folder: Path) -> Finding | None:
    return find_tool(folder, _JEST_TOOL)


def _jest_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Paths are patterns, so that a file with the same ending may come along."""
    selection = select(targets)
    named = (f"--testNamePattern={full_names(selection.names)}",) if selection.names else ()
    return (
        "--json",
        f"--outputFile={results / selection.result(_JEST_FORMAT.result)}",
        "--testLocationInResults",
        "--ci",  # no snapshot is written by the test that it is to judge
        "--coverage=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *named,
        *map(_pattern, selection.paths),
    )


def _pattern(path: str) -> str:
    dash = "\\" if path.startswith("-") else ""  # never an option
    return dash + escaped(path.rstrip("/")) + ("$" if is_file(path) else r"\/")


def _jest_read(ended: Ended) -> Results:
    return read(ended, _JEST_FORMAT)


JEST = Framework(
    name="jest",
    looked_for="jest in a package.json's dependencies or scripts, or a jest.config file",
    find=_jest_find,
    arguments=_jest_arguments,
    read=_jest_read,
    is_test=is_test,
    variables=(("CI", "true"), ("NO_COLOR", "1")),
)


_MOCHA_TOOL = Tool(name="mocha", drops=("-w",), configuration=(".mocharc*",), key="mocha")
_MOCHA_RESULT = "mocha.json"
_HOOK = re.compile(r'"(?P<when>before|after) (?:each|all)" hook[^\n]*?(?: for "(?P<test>.*)"| in ".*")?', re.DOTALL)
_PHASES = {"before": "setup", "after": "teardown"}
_UNLOADED = re.compile(r"^\s*(?:✖ ERROR: ?|Exception during run: )(?P<said>.+)", re.MULTILINE | re.DOTALL)
_PLAIN_UNLOADED = re.compile(r"^(?P<said>(?:/|file://).+?:\d+\n.+)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"imported from (?P<importer>\S+)|\[ @(?P<parsed>\S+) \]|^- (?P<required>/\S+)", re.MULTILINE)


class _Thrown(msgspec.Struct, frozen=True):
    name: str | None = None
    message: str | None = None
    stack: str | None = None


class _Test(msgspec.Struct, rename="camel"):
    title: str
    full_title: str
    file: str | None = None
    duration: float | None = None
    current_retry: int = 0
    err: _Thrown = _Thrown()

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other tests, as far as mocha does."""
        return self.file or "", self.full_title


class _Run(msgspec.Struct):
    tests: list[_Test]
    pending: list[_Test] = []
    failures: list[_Test] = []


def _mocha_find(folder: Path) -> Finding | None:
    return find_tool(folder, _MOCHA_TOOL)


def _mocha_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Files come on top of those that mocha's configuration names, which is why the others may come along."""
    selection = select(targets)
    named = (f"--grep={full_names(selection.names)}",) if selection.names else ()
    recursive = () if all(map(is_mochas_test, selection.paths)) else ("--recursive",)
    return (
        "--reporter=json",
        f"--reporter-option=output={results / selection.result(_MOCHA_RESULT)}",
        "--no-bail",
        "--no-color",
        *recursive,
        *named,
        *map(spelled, selection.paths),
    )


def _mocha_read(ended: Ended) -> Results:
    path, _ = found_result(ended, _MOCHA_RESULT)
    try:
        run = msgspec.json.decode(read_ordinary(path, limit_bytes=LIMIT_BYTES), type=_Run)
    except FileNotFoundError:
        return _unloaded(ended)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Results(problem=f"The results that mocha wrote cannot be read: {error}")
    return unexplained(ended, Results(tests=tuple(_cases(run, ended.root))), tool="mocha")


def _cases(run: _Run, root: Path) -> Iterator[Case]:
    """The tests in their order; a hook that failed stands for the test that it was to prepare or to clean up after."""
    describes = Describes(root)
    pending = Counter(test.key for test in run.pending)
    in_tests = {id(test) for test in run.tests}
    listed = Counter(test.key for test in run.tests)
    hooks = [(test, found) for test in run.failures if (found := _HOOK.fullmatch(test.title)) and not listed[test.key]]
    by_test = {_hooked(test, found): (test, _PHASES[found["when"]]) for test, found in hooks}
    tests = [*run.tests, *(test for test in map(_of_hook, hooks) if test.key not in listed)]
    ids = numbered(f"{relative(test.file or '', root)}::{_name(test, describes)}" for test in tests)
    for nodeid, test in zip(ids, tests, strict=True):
        hook = by_test.get(test.key)
        is_pending = id(test) in in_tests and pending[test.key] > 0 and not test.err.message
        if is_pending:
            pending[test.key] -= 1
        yield _case(nodeid, test, root=root, hook=hook, is_pending=is_pending)


def _case(nodeid: str, test: _Test, *, root: Path, hook: tuple[_Test, str] | None, is_pending: bool) -> Case:
    file = relative(test.file or "", root)
    thrown = test.err.stack or test.err.message
    outcome, why = "skipped" if is_pending else "passed", None
    if thrown:
        setting = Setting(root=root, file=file, is_test=is_mochas_test)
        outcome, why = "failed", failure(_text(test.err), setting)
    elif hook is not None:
        setting = Setting(root=root, file=file, is_test=is_mochas_test, phase=hook[1])
        outcome, why = "error", failure(_text(hook[0].err), setting)
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=file,
        line=0,
        duration_s=max(test.duration or 0.0, 0.0) / 1000,
        reruns=test.current_retry,
        failure=why,
    )


def _text(thrown: _Thrown) -> str:
    """Class, message and stack, as node shows them."""
    name, message, stack = thrown.name or "", thrown.message or "", thrown.stack or ""
    if message and message not in stack:
        stack = f"{message}\n{stack}"
    return stack if not name or stack.startswith(name) else f"{name}: {stack}"


def _hooked(hook: _Test, found: re.Match[str]) -> tuple[str, str]:
    """The key of the test that a hook was for; if it was for no certain one, the hook's own."""
    return _of_hook((hook, found)).key


def _of_hook(pair: tuple[_Test, re.Match[str]]) -> _Test:
    """The test that a hook was for, which did not run if that came before it."""
    hook, found = pair
    title = found["test"]
    if title is None:
        return _Test(title=hook.title, full_title=hook.full_title, file=hook.file)
    full_title = hook.full_title.removesuffix(hook.title) + title
    return _Test(title=title, full_title=full_title, file=hook.file)


def _name(test: _Test, describes: Describes) -> str:
    above = test.full_title.removesuffix(test.title).strip()
    return SEPARATOR.join((*describes.split(above, test.file or ""), test.title))


def _unloaded(ended: Ended) -> Results:
    """The file that could not be loaded, for which mocha runs no test of any file."""
    output = without_colour(ended.output)
    found = _UNLOADED.search(output) or _PLAIN_UNLOADED.search(output)
    if ended.exit_status == 0 or found is None:
        return Results(problem=unwritten(ended, "mocha"))
    said = printed(found["said"])
    unset = Setting(root=ended.root, file="", is_test=is_mochas_test, phase="collect")
    first = failure(said, unset)
    named = _FILE.search(said)
    told = next((relative(path, ended.root) for path in named.groups() if path), "") if named else ""
    own = [frame.path for frame in first.frames if is_mochas_test(frame.path)]
    file = told if is_mochas_test(told) else own[0] if own else ""
    file = file or importer(ended.root, said, is_test=is_mochas_test) or told or first.path or "."
    setting = Setting(root=ended.root, file=file, is_test=is_mochas_test, phase="collect")
    return Results(collect_errors=(CollectError(file, failure(said, setting)),))


MOCHA = Framework(
    name="mocha",
    looked_for="mocha in a package.json's dependencies or scripts, or a .mocharc file",
    find=_mocha_find,
    arguments=_mocha_arguments,
    read=_mocha_read,
    is_test=is_mochas_test,
    variables=(("NO_COLOR", "1"), ("FORCE_COLOR", "0")),
)


_NODE_TOOL = Tool(name="node")
_NODE_RESULT = "node.jsonl"
_VALUED = frozenset(
    {"--import", "--loader", "--experimental-loader", "--require", "-r", "--env-file", "--conditions", "-C"}
)
_UNQUOTED = frozenset("*?{}[],!")
_CHOICE = 'for last do :; done; case $last in -*) exec node {options} "$@" {paths};; *) exec node {options} "$@";; esac'
"""The script's own paths are run only if no others are asked for: those are what the arguments end with."""


def _node_find(folder: Path) -> Finding | None:
    found = read_manifest(folder)
    call = next(calls(found[0], _NODE_TOOL), None) if found else None
    if call is None:
        return None
    return Finding(manifest=folder / MANIFEST, argv=_argv(call), why=call.why("node --test"))


def _argv(call: Call) -> tuple[str, ...]:
    """The script's command; paths with patterns are expanded by a shell, as they are for the script."""
    options: list[str] = []
    paths: list[str] = []
    for word in call.arguments:
        is_value = bool(options) and options[-1] in _VALUED
        (options if word.startswith("-") or is_value else paths).append(word)
    prefix = ("env", *call.variables) if call.variables else ()
    if not paths:
        return (*prefix, "node", *options)
    script = _CHOICE.format(options=shlex.join(options), paths=" ".join(map(_raw, paths)))
    return (*prefix, "sh", "-c", script, "node")


def _raw(path: str) -> str:
    """A path for a shell, in which only patterns are not taken as they are."""
    return "".join(sign if sign in _UNQUOTED else shlex.quote(sign) for sign in path)


def _node_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """All titles on the way to a test are told, as one of a group is not asked for unless the group is."""
    selection = select(targets)
    named = (f"--test-name-pattern={titles(selection.names)}",) if selection.names else ()
    return (
        f"--test-reporter=data:text/javascript,{quote(REPORTER)}",
        f"--test-reporter-destination={results / selection.result(_NODE_RESULT)}",
        *named,
        *map(spelled, selection.paths),
    )


def _node_read(ended: Ended) -> Results:
    path, is_selected = found_result(ended, _NODE_RESULT)
    try:
        text = read_ordinary(path, limit_bytes=LIMIT_BYTES).decode()
        found = results(text, ended, is_selected=is_selected) if text else None
    except FileNotFoundError:
        found = None
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return Results(problem=f"The results that node --test wrote cannot be read: {error}")
    if found is None:
        return Results(problem=unwritten(ended, "node --test"))
    return unexplained(ended, found, tool="node --test")


NODE = Framework(
    name="node",
    looked_for="a script with node --test in a package.json",
    find=_node_find,
    arguments=_node_arguments,
    read=_node_read,
    is_test=is_nodes_test,
    variables=(("NO_COLOR", "1"),),
)
