"""JavaScript and TypeScript: finds vitest, jest, mocha and ``node --test`` in a ``package.json`` and builds commands.

The tools know a test by a pattern over its titles, for all files of a run at once. So a selection may include more than
the targets, and never less.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Finding
from cdd_agent.testrun.frameworks.sources import read_text

MANIFEST = "package.json"
SEPARATOR = " > "
"""Between the titles of a node id."""
REPORTS = {"vitest": "vitest.json", "jest": "jest.json", "mocha": "mocha.json", "node": "node.jsonl"}
"""Tool -> the file that it writes."""
SELECTED = "selected"
"""Beginning of the file's name if tests were left out by their names."""
_LIMIT_BYTES = 4 * 1024 * 1024
_HIGHEST = 8
"""How many folders upwards a lock file and ``node_modules`` are looked for."""
_TOOLS = ("vitest", "jest", "mocha", "node")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_CHAIN = re.compile(r"&&|\|\||[;|\n]")
_DROPPED = re.compile(
    r"--(?:no-)?(?:watch\w*|reporters?|reporter-options?|coverage\S*|json|output-?[fF]ile|ui|bail|grep|fgrep|testNamePattern"
    r"|test-name-pattern|test-reporter|test-reporter-destination|silent|verbose|invert|forbid-only|onlyChanged|changed)"
    r"(?:[.=].*)?|-[RtgfbO]",
    re.DOTALL,
)
"""Options about watching, reporting and selecting: cdd sets its own."""
_WITH_VALUE = re.compile(
    r"--(?:reporters?|reporter-options?|output-?[fF]ile|grep|fgrep|testNamePattern|test-name-pattern|test-reporter"
    r"|test-reporter-destination)|-[RtgfO]"
)
_INSTALLS = frozenset({"install", "add", "i", "ci", "echo"})
_NODE_VALUED = frozenset(
    {"--import", "--loader", "--experimental-loader", "--require", "-r", "--env-file", "--conditions", "-C"}
)
_UNQUOTED = frozenset("*?{}[],!")
_NODE_SCRIPT = (
    'for last do :; done; case $last in -*) exec node {options} "$@" {paths};; *) exec node {options} "$@";; esac'
)
"""Runs the script's own paths only if the arguments do not end with others."""
_LINES_SINCE = 2
"""The first major version of vitest that has an option for the lines of tests."""
_REPEATED = re.compile(r" \(\d+\)\Z")
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|/]")
_LANGUAGES = re.compile(r"\.(?:d\.)?[cm]?[jt]sx?$|\.(?:vue|svelte)$")
_IMPORT = re.compile(
    r"(?:import\s+(?:type\s+)?(?P<named>[^;'\"]*?)\s*from\s*|(?:const|let|var)\s+(?P<bound>[^;='\"]+?)\s*=\s*(?:await\s+)?"
    r"(?:require|import)\s*\(\s*)(?P<quote>['\"])(?P<module>[^'\"\n]+)(?P=quote)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_KEYWORDS = frozenset({"as", "from", "import", "type"})


# Conventions

_FOLDERS = frozenset({"__tests__", "__mocks__", "__snapshots__"})
_TEST = re.compile(r".+\.(?:test|spec)\.[cm]?[jt]sx?(?:\.snap)?")
_CONFIGURATION = re.compile(
    r"(?:vitest|jest)\.(?:[\w-]+\.)*(?:config|workspace|projects|setup|preset)(?:\.[\w-]+)*\.(?:[cm]?[jt]s|json)"
    r"|(?:vitest|jest|mocha|test)[.-]?(?:global)?[.-]?(?:setup|teardown|environment)\w*\.[cm]?[jt]sx?"
    r"|setup[.-]?(?:tests?|jest|vitest|mocha)\w*\.[cm]?[jt]sx?"
    r"|\.mocharc\.(?:[cm]?js|json[c5]?|ya?ml)|\.mocharc|mocha\.opts",
    re.IGNORECASE,
)
_NODE_TEST = re.compile(r"(?:test-.+|.+[-_]test|test)\.[cm]?[jt]s")
_TEST_FOLDER = "test"
_SOURCE = re.compile(r".+\.[cm]?[jt]sx?")


def is_test(path: str) -> bool:
    """Return whether a file is a test, a mock or a snapshot, or configures tests.

    ``package.json`` is not, as most of it is the product's.
    """
    folders, name = posixpath.split(path)
    return (
        not _FOLDERS.isdisjoint(folders.split("/"))
        or _TEST.fullmatch(name) is not None
        or _CONFIGURATION.fullmatch(name) is not None
    )


def is_node_test(path: str) -> bool:
    """Return whether a file is a test for ``node --test``, which has more names and the folder ``test``."""
    folders, name = posixpath.split(path)
    is_in_folder = _TEST_FOLDER in folders.split("/") and _SOURCE.fullmatch(name) is not None
    return is_test(path) or is_in_folder or _NODE_TEST.fullmatch(name) is not None


def is_mocha_test(path: str) -> bool:
    """Return whether a file is a test for mocha, which by default runs the folder ``test``."""
    folders, name = posixpath.split(path)
    return is_test(path) or (folders.split("/")[0] == _TEST_FOLDER and _SOURCE.fullmatch(name) is not None)


def is_source(path: str) -> bool:
    """Return whether a path is a source file, not a folder, by its name."""
    return _SOURCE.fullmatch(posixpath.basename(path)) is not None


# Names that tests import


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each file with and without its ending, its name, and what a failing test imports from it."""
    own = [source for source in sources if _LANGUAGES.search(source)]
    modules = {module for source in own for module in _modules_of(source)}
    yield from own
    yield from sorted(modules)
    yield from sorted(posixpath.basename(module) for module in modules if "/" in module)
    for test in tests:
        for found in _IMPORT.finditer(read_text(root / test)):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(test), found["module"]))
            if found["module"].startswith(".") and set(_modules_of(path)) & modules:
                yield from (w for w in _WORD.findall(found["named"] or found["bound"]) if w not in _KEYWORDS)


def _modules_of(path: str) -> tuple[str, ...]:
    """Return a module's path without its ending; for an index also its folder's."""
    stem = _LANGUAGES.sub("", path)
    return (stem, posixpath.dirname(stem)) if posixpath.basename(stem) == "index" and "/" in stem else (stem,)


# How a manifest says that a tool is used


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmTool:
    """A test runner as scripts name it."""

    name: str
    drops: tuple[str, ...] = ()
    """Words after the name in a script that are not kept: subcommands, and options whose meaning differs by tool."""
    adds: tuple[str, ...] = ()
    """What follows the name instead."""
    configuration: tuple[str, ...] = ()
    """Patterns of its configuration files."""
    key: str = ""
    """Its key in the manifest."""


_VITEST = NpmTool(
    name="vitest",
    drops=("run", "watch", "dev", "--run", "-w"),
    configuration=("vitest.config.*", "vitest.workspace.*"),
    adds=("run",),
)
_JEST = NpmTool(name="jest", configuration=("jest.config.*",), key="jest")
_MOCHA = NpmTool(name="mocha", drops=("-w",), configuration=(".mocharc*",), key="mocha")
_NODE = NpmTool(name="node")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageManager:
    """A package manager, by its lock file."""

    lock: str
    runs: tuple[str, ...]
    """How it runs an installed program without fetching one."""
    installs: str


_MANAGERS = (
    PackageManager(lock="pnpm-lock.yaml", runs=("pnpm", "exec"), installs="pnpm install"),
    PackageManager(lock="yarn.lock", runs=("yarn", "exec"), installs="yarn install"),
    PackageManager(lock="bun.lockb", runs=("bun", "x", "--no-install"), installs="bun install"),
    PackageManager(lock="bun.lock", runs=("bun", "x", "--no-install"), installs="bun install"),
    PackageManager(lock="package-lock.json", runs=("npx", "--no-install"), installs="npm install"),
)


class Manifest(msgspec.Struct, rename="camel"):
    """The parts of a ``package.json`` that matter here."""

    scripts: dict[str, object] = {}
    dependencies: dict[str, object] = {}
    dev_dependencies: dict[str, object] = {}
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """A command of a script that runs a test runner."""

    script: str
    variables: tuple[str, ...]
    """``NAME=value``."""
    node_options: tuple[str, ...]
    arguments: tuple[str, ...]
    """The arguments after the name that are kept."""
    before: str = ""
    """What the script, and its package manager, run before it."""

    def explain(self, tool: str) -> str:
        """Return why ``tool`` runs the tests, and which part of the script does not run."""
        why = f"the script {self.script!r} of {MANIFEST} calls {tool}"
        if not self.before:
            return why
        whole = f"test_command: npm run {self.script}"
        return f"{why} (without `{self.before}` before it; {whole} in .cdd/config.yaml runs all of the script)"


def find_vitest(folder: Path) -> Finding | None:
    """Look for vitest; let it report lines if its version can."""
    found = find_tool(folder, _VITEST)
    if found is None or _installed_major(folder, _VITEST.name) < _LINES_SINCE:
        return found
    return replace(found, argv=(*found.argv, "--includeTaskLocation"))


def find_jest(folder: Path) -> Finding | None:
    """Look for jest."""
    return find_tool(folder, _JEST)


def find_mocha(folder: Path) -> Finding | None:
    """Look for mocha."""
    return find_tool(folder, _MOCHA)


def find_node(folder: Path) -> Finding | None:
    """Look for a script with ``node --test``; only a script can say so."""
    found = _read_manifest(folder)
    call = next(_find_calls(found[0], _NODE), None) if found else None
    if call is None:
        return None
    return Finding(manifest=folder / MANIFEST, argv=_build_node_command(call), why=call.explain("node --test"))


def find_tool(folder: Path, tool: NpmTool) -> Finding | None:
    """Look for a tool: a script calls it, or it is a dependency or configured and no script calls another tool."""
    found = _read_manifest(folder)
    if found is None:
        return None
    manifest, keys = found
    call = next(_find_calls(manifest, tool), None)
    why = (
        _explain_without_script(folder, tool, manifest=manifest, keys=keys) if call is None else call.explain(tool.name)
    )
    if why is None:
        return None
    program, missing = _find_program(folder, tool.name)
    argv = (*_build_prefix(call), *program, *tool.adds, *(call.arguments if call else ()))
    return Finding(manifest=folder / MANIFEST, argv=argv, why=why + missing)


def _read_manifest(folder: Path) -> tuple[Manifest, frozenset[str]] | None:
    """Return the folder's manifest and its keys; None if there is none that can be read."""
    try:
        data = read_ordinary(folder / MANIFEST, limit_bytes=_LIMIT_BYTES)
        return msgspec.json.decode(data, type=Manifest), frozenset(msgspec.json.decode(data, type=dict[str, object]))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _explain_without_script(folder: Path, tool: NpmTool, *, manifest: Manifest, keys: frozenset[str]) -> str | None:
    """Return why the project uses a tool that no script calls; None if it does not, or if scripts call another tool."""
    if any(next(_find_calls(manifest, NpmTool(name=name)), None) for name in _TOOLS):
        return None
    if tool.name in {**manifest.dependencies, **manifest.dev_dependencies}:
        return f"{tool.name} is a dependency in {MANIFEST}"
    if tool.key and tool.key in keys:
        return f"{MANIFEST} has the key {tool.key!r}"
    files = (path for pattern in tool.configuration for path in sorted(folder.glob(pattern)))
    return next((f"there is {path.name}" for path in files), None)


def _find_calls(manifest: Manifest, tool: NpmTool) -> Iterator[ScriptCall]:
    """Yield the commands that call the tool: those of the script ``test``, then of ``test:...``, then of all others."""
    scripts = {name: text for name, text in manifest.scripts.items() if isinstance(text, str)}
    for name in sorted(scripts, key=lambda name: (name != "test", not name.startswith("test"), name)):
        before = [f"npm run pre{name}"] if f"pre{name}" in scripts else []
        for command in map(str.strip, _CHAIN.split(scripts[name])):
            call = _parse_call(command, tool, script=name)
            if call is not None:
                yield replace(call, before=" && ".join(before))
            before += [command] if command else []


def _parse_call(command: str, tool: NpmTool, *, script: str) -> ScriptCall | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    at = _find_word(words, tool.name)
    if at is None:
        return None
    before, after = words[:at], words[at + 1 :]
    return ScriptCall(
        script=script,
        variables=tuple(word for word in before if _VARIABLE.fullmatch(word)),
        node_options=tuple(before[before.index("node") + 1 :] if "node" in before else ()),
        arguments=tuple(_keep_arguments(after, tool)),
    )


def _find_word(words: list[str], name: str) -> int | None:
    """Return where in a command the program is: by its name, or as a file of its package that node runs."""
    if name == "node":
        return words.index("node") if "node" in words and "--test" in words else None
    program = re.compile(rf"(?:.*/)?_?{name}(?:\.[cm]?js)?")
    found = (at for at, word in enumerate(words) if program.fullmatch(word) and _INSTALLS.isdisjoint(words[:at]))
    return next(found, None)


def _keep_arguments(words: list[str], tool: NpmTool) -> Iterator[str]:
    """Yield the arguments without those that cdd sets itself."""
    is_value = False
    for word in words:
        if is_value and not word.startswith("-"):
            is_value = False
            continue
        is_value = _WITH_VALUE.fullmatch(word) is not None
        if word not in tool.drops and not _DROPPED.fullmatch(word):
            yield word


def _build_prefix(call: ScriptCall | None) -> tuple[str, ...]:
    if call is None:
        return ()
    options = (f"NODE_OPTIONS={shlex.join(call.node_options)}",) if call.node_options else ()
    return ("env", *call.variables, *options) if call.variables or options else ()


def _build_node_command(call: ScriptCall) -> tuple[str, ...]:
    """Return the script's command; a shell expands patterns in paths, as it does for the script."""
    options: list[str] = []
    paths: list[str] = []
    for word in call.arguments:
        is_value = bool(options) and options[-1] in _NODE_VALUED
        (options if word.startswith("-") or is_value else paths).append(word)
    prefix = ("env", *call.variables) if call.variables else ()
    if not paths:
        return (*prefix, "node", *options)
    # Everything but patterns is quoted.
    quoted = ("".join(sign if sign in _UNQUOTED else shlex.quote(sign) for sign in path) for path in paths)
    script = _NODE_SCRIPT.format(options=shlex.join(options), paths=" ".join(quoted))
    return (*prefix, "sh", "-c", script, "node")


def _find_program(folder: Path, name: str) -> tuple[tuple[str, ...], str]:
    """Return the command of an installed program; else that of the package manager, and what to do."""
    upwards = tuple(_iterate_upwards(folder))
    for place in upwards:
        program = place / "node_modules" / ".bin" / name
        if program.is_file():
            return (str(program),), ""
    found = (manager for place in upwards for manager in _MANAGERS if (place / manager.lock).is_file())
    manager = next(found, _MANAGERS[-1])
    has_plug_and_play = any((place / ".pnp.cjs").is_file() for place in upwards)
    missing = "" if has_plug_and_play else f"; it is not installed: run `{manager.installs}` in {folder}"
    return (*manager.runs, name), missing


def _installed_major(folder: Path, name: str) -> int:
    """Return the major version of an installed package; 0 if it is unknown."""
    for place in _iterate_upwards(folder):
        found = _read_manifest(place / "node_modules" / name)
        if found is not None:
            major = found[0].version.split(".")[0]
            return int(major) if major.isdecimal() else 0
    return 0


def _iterate_upwards(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the top of the repository."""
    for place in (folder, *folder.parents)[:_HIGHEST]:
        yield place
        if (place / ".git").exists():
            return


# Arguments

REPORTER = """
const KEPT = new Set(["test:enqueue", "test:start", "test:pass", "test:fail", "test:stderr"]);
const plain = (error, depth) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  const { name, message, stack, failureType, exitCode, cause } = error;
  const told = { name, message, stack, failureType };
  for (const key in told) told[key] = told[key] === undefined ? undefined : String(told[key]);
  return { ...told, exitCode, cause: cause === undefined || depth > 8 ? undefined : plain(cause, depth + 1) };
};
export default async function* (source) {
  for await (const { type, data } of source) {
    if (!KEPT.has(type)) continue;
    const { name, nesting, file, line, message, details, skip, todo } = data;
    const marks = { skip: skip === true ? "" : skip, todo: todo === true ? "" : todo };
    const error = details?.error ? plain(details.error, 0) : undefined;
    const told = { isSuite: details?.type === "suite", duration: details?.duration_ms, error, ...marks };
    yield JSON.stringify({ type, name, nesting, file, line, message, ...told }) + "\\n";
  }
  yield '{"type":"end"}\\n';
}
"""
"""A module for ``--test-reporter`` that writes each event as a line; the last line says that the run is complete.

Node's JUnit report names no files, leaves out why a group failed and escapes titles twice. A reporter may be a
``data:`` address, so there is no file to install, and none that the tests could change.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Files and folders to run, and the names of tests in them; no names: all of them."""

    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def report(self, tool: str, results: Path) -> Path:
        """Return the file to write the report to; its name tells the reader whether tests are left out."""
        return results / (f"{SELECTED}-{REPORTS[tool]}" if self.names else REPORTS[tool])

    def filter(self, option: str) -> tuple[str, ...]:
        """Return ``option`` with a pattern of the names, or nothing."""
        return (f"{option}={match_full_names(self.names)}",) if self.names else ()


def select(targets: Iterable[str]) -> Selection:
    """Return the selection that contains all targets: node ids, files and folders."""
    pairs = [target.partition("::")[::2] for target in targets]
    paths = tuple(dict.fromkeys(path for path, _ in pairs if path))
    is_named = all(path and name for path, name in pairs)
    return Selection(paths=paths, names=tuple(dict.fromkeys(name for _, name in pairs)) if is_named else ())


def build_vitest_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for jest's JSON. A path matches the end of test files, so a file with the same ending may run too."""
    selection = select(targets)
    return (
        "--reporter=json",
        f"--outputFile={selection.report('vitest', results)}",
        "--coverage.enabled=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *selection.filter("--testNamePattern"),
        *map(spell_path, selection.paths),
    )


def build_jest_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for JSON. Paths are patterns, so a file with the same ending may run too."""
    selection = select(targets)
    return (
        "--json",
        f"--outputFile={selection.report('jest', results)}",
        "--testLocationInResults",
        "--ci",  # otherwise a missing snapshot is written by the test that it is to judge
        "--coverage=false",  # a threshold would fail a run of some of the tests
        "--bail=0",
        *selection.filter("--testNamePattern"),
        *map(_match_path, selection.paths),
    )


def _match_path(path: str) -> str:
    dash = "\\" if path.startswith("-") else ""  # otherwise it would be an option
    return dash + escape(path.rstrip("/")) + ("$" if is_source(path) else r"\/")


def build_mocha_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for JSON. Files are added to those that mocha's configuration names, so others may run too."""
    selection = select(targets)
    return (
        "--reporter=json",
        f"--reporter-option=output={selection.report('mocha', results)}",
        "--no-bail",
        "--no-color",
        *(() if all(map(is_mocha_test, selection.paths)) else ("--recursive",)),
        *selection.filter("--grep"),
        *map(spell_path, selection.paths),
    )


def build_node_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for events. All titles on the way to a test are named: node skips the tests of a group that it skips."""
    selection = select(targets)
    named = (f"--test-name-pattern={match_titles(selection.names)}",) if selection.names else ()
    return (
        f"--test-reporter=data:text/javascript,{quote(REPORTER)}",
        f"--test-reporter-destination={selection.report('node', results)}",
        *named,
        *map(spell_path, selection.paths),
    )


def spell_path(path: str) -> str:
    """Return a path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def escape(text: str) -> str:
    """Return a JavaScript pattern that matches only ``text``."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def match_full_names(names: Iterable[str]) -> str:
    """Return a pattern for whole names as the tools build them: titles joined by spaces.

    A title may contain `` > `` itself, so each one in a name matches a space as well.
    """
    patterns = (
        rf"(?:{re.escape(SEPARATOR)}| )".join(map(escape, name.split(SEPARATOR))).replace(r"\ ", " ")
        for name in _add_unnumbered(names)
    )
    return rf"(?:^|\s)(?:{'|'.join(patterns)})$"


def match_titles(names: Iterable[str]) -> str:
    """Return a pattern for each title on the way to the tests, for a tool that compares each level by itself."""
    found: dict[str, None] = {}
    for name in _add_unnumbered(names):
        titles = name.split(SEPARATOR)
        found.update(dict.fromkeys(titles))
        found.update(dict.fromkeys(SEPARATOR.join(titles[start:]) for start in range(len(titles))))
    return rf"^(?:{'|'.join(map(escape, found))})$"


def _add_unnumbered(names: Iterable[str]) -> list[str]:
    """Return each name, and the name without a number that a report's reader may have added."""
    return list(dict.fromkeys(each for name in names for each in (name, _REPEATED.sub("", name))))
