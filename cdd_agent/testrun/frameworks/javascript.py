"""JavaScript and TypeScript: finds vitest, jest, mocha and ``node --test`` in a ``package.json``, and calls them."""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks import environment
from cdd_agent.testrun.frameworks.environment import MODULES
from cdd_agent.testrun.frameworks.framework import REPORT, FrameworkMatch
from cdd_agent.testrun.frameworks.sources import match_path, read_text
from cdd_agent.testrun.interpreter import list_folders_to_top

MANIFEST = "package.json"
_LIMIT_BYTES = 4 * 1024 * 1024
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
_NODE_VALUED = ("--import", "--loader", "--experimental-loader", "--require", "-r", "--env-file", "--conditions", "-C")
_LANGUAGES = re.compile(r"\.(?:d\.)?[cm]?[jt]sx?$|\.(?:vue|svelte)$")
_IMPORT = re.compile(
    r"(?:import\s+(?:type\s+)?(?P<named>[^;'\"]*?)\s*from\s*|(?:const|let|var)\s+(?P<bound>[^;='\"]+?)\s*=\s*(?:await\s+)?"
    r"(?:require|import)\s*\(\s*)(?P<quote>['\"])(?P<module>[^'\"\n]+)(?P=quote)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_KEYWORDS = frozenset({"as", "from", "import", "type"})

_SOURCE = r"\.[cm]?[jt]sx?"
_PATTERN = "|".join(
    (
        r"(?:^|/)__(?:tests|mocks|snapshots)__/",
        rf"[^/]\.(?:test|spec){_SOURCE}(?:\.snap)?$",
        r"(?:^|/)(?i:(?:vitest|jest)\.(?:[\w-]+\.)*(?:config|workspace|projects|setup|preset)(?:\.[\w-]+)*\.(?:[cm]?[jt]s|json))$",
        rf"(?:^|/)(?i:(?:vitest|jest|mocha|test)[.-]?(?:global)?[.-]?(?:setup|teardown|environment)\w*{_SOURCE})$",
        rf"(?:^|/)(?i:setup[.-]?(?:tests?|jest|vitest|mocha)\w*{_SOURCE})$",
        r"(?:^|/)(?i:\.mocharc\.(?:[cm]?js|json[c5]?|ya?ml)|\.mocharc|mocha\.opts)$",
    )
)
is_test = match_path(_PATTERN)
"""Whether a file is a test, a mock or a snapshot, or configures tests."""
is_node_test = match_path(
    rf"{_PATTERN}|(?:^|/)test/.*[^/]{_SOURCE}$|(?:^|/)(?:test-[^/]+|[^/]+[-_]test|test)\.[cm]?[jt]s$"
)
"""The same for ``node --test``, which has more names and the folder ``test``."""
is_mocha_test = match_path(rf"{_PATTERN}|^test/.*[^/]{_SOURCE}$")
"""The same for mocha, which by default runs the folder ``test``."""
is_source = match_path(rf"[^/]{_SOURCE}$")
"""Whether a path is a source file, not a folder, by its name."""


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each file with and without its ending, its name, and the names that a failing test imports from it."""
    own = [source for source in sources if _LANGUAGES.search(source)]
    modules = {module for source in own for module in _list_modules(source)}
    yield from (*own, *sorted(modules), *sorted(posixpath.basename(module) for module in modules if "/" in module))
    for test in tests:
        for found in _IMPORT.finditer(read_text(root / test)):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(test), found["module"]))
            if found["module"].startswith(".") and set(_list_modules(path)) & modules:
                yield from (w for w in _WORD.findall(found["named"] or found["bound"]) if w not in _KEYWORDS)


def _list_modules(path: str) -> tuple[str, ...]:
    """Return a module's path without its ending, and for an index also its folder."""
    stem = _LANGUAGES.sub("", path)
    return (stem, posixpath.dirname(stem)) if posixpath.basename(stem) == "index" and "/" in stem else (stem,)


class Manifest(msgspec.Struct, rename="camel"):
    """The relevant parts of a ``package.json``."""

    scripts: dict[str, object] = {}
    dependencies: dict[str, object] = {}
    dev_dependencies: dict[str, object] = {}
    version: str = ""
    jest: object = msgspec.UNSET
    mocha: object = msgspec.UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """A command of a script that runs a test runner."""

    script: str
    variables: tuple[str, ...]
    arguments: tuple[str, ...]
    """The arguments after the name that cdd keeps."""
    before: str
    """The commands that the script and its package manager run first."""

    def explain(self, tool: str) -> str:
        """Return why ``tool`` runs the tests, and which part of the script does not run."""
        why = f"the script {self.script!r} of {MANIFEST} calls {tool}"
        if not self.before:
            return why
        whole = f"test_command: npm run {self.script}"
        return f"{why} (without `{self.before}` before it; {whole} in .cdd/config.yaml runs all of the script)"

    def build_command(self, *words: str) -> tuple[str, ...]:
        """Return a command with the variables of the script."""
        return ("env", *self.variables, *words) if self.variables else words


def spell_path(path: str) -> str:
    """Return a path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def spell_pattern(path: str) -> str:
    """Return a pattern that matches only the file or what is in the folder; no program takes it for an option."""
    return re.escape(path) + ("$" if is_source(path) else r"\/")


_MOCHA_REPORTER = environment.REPORTERS / "mocha_reporter.cjs"
# Passed as a ``data:`` address, so that tests cannot change it.
_NODE_REPORTER = quote((environment.REPORTERS / "node_reporter.mjs").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmTool:
    """A test runner from npm: how a project shows that it uses it, and how cdd calls it."""

    name: str
    drops: tuple[str, ...] = ()
    """Words after the name in a script that are dropped: subcommands, and options whose meaning differs by tool."""
    adds: tuple[str, ...] = ()
    """Words that follow the name instead."""
    adds_since: tuple[int, str] = (0, "")
    """A major version, and an option that exists since then."""
    configuration: tuple[str, ...] = ()
    """Patterns of its configuration files."""
    options: tuple[str, ...] = ()
    """The options for cdd's report, whose file is ``{report}``."""
    spell: Callable[[str], str] = spell_path
    """Returns a path as the tool expects it in a command."""
    folder_options: tuple[str, ...] = ()
    """Options for a selection that contains folders."""

    def find(self, folder: Path) -> FrameworkMatch | None:
        """Look for the tool: a script calls it, or it is a dependency or configured and scripts call no other tool."""
        manifest = _read_manifest(folder)
        if manifest is None:
            return None
        call = next(_find_calls(manifest, self.name, drops=self.drops), None)
        why = self._explain_without_script(folder, manifest) if call is None else call.explain(self.name)
        if why is None:
            return None
        program, missing = _find_program(folder, self.name)
        since, option = self.adds_since
        added = (option,) if option and _find_major_version(folder, self.name) >= since else ()
        argv = (*program, *self.adds, *(call.arguments if call else ()), *added)
        argv = call.build_command(*argv) if call else argv
        return FrameworkMatch(manifest=folder / MANIFEST, argv=argv, why=why + missing)

    def _explain_without_script(self, folder: Path, manifest: Manifest) -> str | None:
        if any(next(_find_calls(manifest, name), None) for name in _TOOLS):
            return None
        if self.name in {**manifest.dependencies, **manifest.dev_dependencies}:
            return f"{self.name} is a dependency in {MANIFEST}"
        if getattr(manifest, self.name, msgspec.UNSET) is not msgspec.UNSET:
            return f"{MANIFEST} has the key {self.name!r}"
        files = (path for pattern in self.configuration for path in sorted(folder.glob(pattern)))
        return next((f"there is {path.name}" for path in files), None)

    def build_arguments(self, files: tuple[str, ...], results: Path) -> tuple[str, ...]:
        """Ask for a report, and select the files and folders. Paths can match further files, which then run too."""
        options = [option.replace("{report}", str(results / REPORT)) for option in self.options]
        folders = () if all(map(is_mocha_test, files)) else self.folder_options
        return (*options, *folders, *map(self.spell, files))


VITEST = NpmTool(
    name="vitest",
    drops=("run", "watch", "dev", "--run", "-w"),
    adds=("run",),
    adds_since=(2, "--includeTaskLocation"),
    configuration=("vitest.config.*", "vitest.workspace.*"),
    # A coverage threshold would fail a run of some of the tests.
    options=("--reporter=json", "--outputFile={report}", "--coverage.enabled=false", "--bail=0"),
)
JEST = NpmTool(
    name="jest",
    configuration=("jest.config.*",),
    # Without --ci, a test would write its missing snapshot itself.
    options=("--json", "--outputFile={report}", "--testLocationInResults", "--ci", "--coverage=false", "--bail=0"),
    spell=spell_pattern,
)
MOCHA = NpmTool(
    name="mocha",
    drops=("-w",),
    configuration=(".mocharc*",),
    options=(f"--reporter={_MOCHA_REPORTER}", "--reporter-option=output={report}", "--no-bail", "--no-color"),
    folder_options=("--recursive",),
)
NODE = NpmTool(
    name="node",
    options=(f"--test-reporter=data:text/javascript,{_NODE_REPORTER}", "--test-reporter-destination={report}"),
)

_MANAGERS = {
    "pnpm-lock.yaml": (("pnpm", "exec"), "pnpm install"),
    "yarn.lock": (("yarn", "exec"), "yarn install"),
    "bun.lockb": (("bun", "x", "--no-install"), "bun install"),
    "bun.lock": (("bun", "x", "--no-install"), "bun install"),
    "package-lock.json": (("npx", "--no-install"), "npm install"),
}
"""Lock file of a package manager -> how it runs an installed program, and how it installs."""


def find_node(folder: Path) -> FrameworkMatch | None:
    """Look for a script with ``node --test``; nothing else shows its use."""
    manifest = _read_manifest(folder)
    call = next(_find_calls(manifest, "node"), None) if manifest else None
    if call is None:
        return None
    options: list[str] = []
    paths: list[str] = []
    for word in call.arguments:
        is_value = bool(options) and options[-1] in _NODE_VALUED
        (options if word.startswith("-") or is_value else paths).append(word)
    argv, why = call.build_command("node", *options), call.explain("node --test")
    return FrameworkMatch(manifest=folder / MANIFEST, argv=argv, paths=tuple(paths), why=why)


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        return msgspec.json.decode(read_ordinary(folder / MANIFEST, limit_bytes=_LIMIT_BYTES), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _find_calls(manifest: Manifest, tool: str, *, drops: tuple[str, ...] = ()) -> Iterator[ScriptCall]:
    """Yield the commands that call the tool: from the script ``test``, then ``test:...``, then all others."""
    scripts = {name: text for name, text in manifest.scripts.items() if isinstance(text, str)}
    for name in sorted(scripts, key=lambda name: (name != "test", not name.startswith("test"), name)):
        before = [f"npm run pre{name}"] if f"pre{name}" in scripts else []
        for command in filter(None, map(str.strip, _CHAIN.split(scripts[name]))):
            if call := _parse_call(command, tool, drops=drops):
                yield replace(call, script=name, before=" && ".join(before))
            before.append(command)


def _parse_call(command: str, tool: str, *, drops: tuple[str, ...]) -> ScriptCall | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    program = re.compile(rf"(?:.*/)?_?{tool}(?:\.[cm]?js)?")  # its name, or a file of its package
    found = (at for at, word in enumerate(words) if program.fullmatch(word) and _INSTALLS.isdisjoint(words[:at]))
    at = next(found, None)
    if at is None or (tool == "node" and "--test" not in words):
        return None
    arguments, is_value = list[str](), False
    for word in words[at + 1 :]:
        if is_value and not word.startswith("-"):
            is_value = False
            continue
        is_value = _WITH_VALUE.fullmatch(word) is not None
        arguments += [word] if word not in drops and not _DROPPED.fullmatch(word) else []
    variables = [word for word in words[:at] if _VARIABLE.fullmatch(word)]
    if options := words[words.index("node") + 1 : at] if "node" in words[:at] else []:
        variables.append(f"NODE_OPTIONS={shlex.join(options)}")
    return ScriptCall(script="", variables=tuple(variables), arguments=tuple(arguments), before="")


def _find_program(folder: Path, name: str) -> tuple[tuple[str, ...], str]:
    """Return the command of an installed program, or that of the package manager and how to install it."""
    upwards = list_folders_to_top(folder)
    for place in upwards:
        program = place / MODULES / ".bin" / name
        if program.is_file():
            return (str(program),), ""
    found = (lock for place in upwards for lock in _MANAGERS if (place / lock).is_file())
    runs, installs = _MANAGERS[next(found, "package-lock.json")]
    has_plug_and_play = any((place / ".pnp.cjs").is_file() for place in upwards)
    return (*runs, name), "" if has_plug_and_play else f"; it is not installed: run `{installs}` in {folder}"


def _find_major_version(folder: Path, name: str) -> int:
    manifests = (_read_manifest(place / MODULES / name) for place in list_folders_to_top(folder))
    major = next((found.version.split(".")[0] for found in manifests if found is not None), "")
    return int(major) if major.isdecimal() else 0
