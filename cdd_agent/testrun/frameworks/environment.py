"""Provides the environment of the tests: toolchains, configuration, and packages that git ignores.

A sandbox has another home folder and no network. Variables therefore name the compilers and the fetched
packages, caches go to a private folder, and only those folders of the user's home are readable that hold no passwords.
Packages must have been fetched before.
"""

import json
import os
import posixpath
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from cdd_agent.config.trust import find_top
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun import access, inside
from cdd_agent.testrun.frameworks.sources import walk_files
from cdd_agent.testrun.interpreter import list_folders_to_top
from cdd_agent.testrun.project_files import get_table, read_toml
from cdd_agent.testrun.suite import Conventions, digest
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

MODULES = "node_modules"
MODULE_CACHES = (".vite", ".vite-temp", ".cache")
"""Folders in ``node_modules`` that tools write to while they run tests."""
REPORTERS = Path(inside.__file__).parent
"""The folder of cdd's reporters for JavaScript tools."""
_DEEPEST = 4
"""How many folders downwards to look for ``node_modules`` in the original of a copy."""
_UNTRACKED = tuple(
    f"-Daether.{name}.trackingFilename=cdd.untracked" for name in ("enhancedLocalRepository", "lrm.enhanced")
)
"""Options that let Maven 3 and 4 use a fetched file from any mirror.

The user's settings name the mirrors. They can contain passwords, so the sandbox does not have them.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Program, files, variables and arguments that one command needs."""

    path: Path = Path()
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """Arguments after the command, before those of the framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The files, variables and arguments of a language's tools, as templates over variables, HOME and cache."""

    inherits: Mapping[str, str] = field(default_factory=dict)
    """Variable -> its value unless the user's environment has one; not set for a folder that does not exist."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Variable -> its value, which replaces any other one."""
    reads: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    uses_modules: bool = False
    """Whether the tools use node and the packages in ``node_modules``."""

    def find(self, root: Path, *, cache: Path) -> Tools:
        """Return the tools for a command in ``root``, besides its program."""
        variables: dict[str, str] = {}
        known = {"HOME": os.environ.get("HOME") or str(Path.home()), "cache": str(cache)}
        for name, default in self.inherits.items():
            known[name] = os.environ.get(name) or default.format_map(known)
            if os.path.isdir(known[name]) or not known[name].startswith("/"):
                variables[name] = known[name]
        variables |= {name: value.format_map(known) for name, value in self.sets.items()}
        paths = (path.format_map(known) for path in self.reads)
        arguments = tuple(argument.format_map(known) for argument in self.arguments)
        tools = Tools(reads=tuple(map(Path, filter(None, paths))), variables=variables, arguments=arguments)
        return _add_modules(tools, root) if self.uses_modules else tools


def _add_modules(tools: Tools, root: Path) -> Tools:
    holders = (folder / MODULES for folder in list_folders_to_top(root))
    # A repository can bring a link that leads to any folder of the user.
    modules = tuple(real for folder in holders if (real := folder.resolve()).is_dir() and MODULES in real.parts)
    node = shutil.which("node")
    installed = _find_installation(Path(node)) if node else ()
    caches = tuple(folder / name for folder in modules for name in MODULE_CACHES)
    return replace(tools, reads=(*tools.reads, *installed, *modules, REPORTERS), writes=caches)


def find_tools(toolchains: tuple[Toolchain, ...], program: str, *, cache: Path, root: Path) -> Tools:
    """Return the tools for a command that begins with ``program`` and runs in ``root``."""
    path = Path(os.path.abspath(root / (shutil.which(program) or program)))
    reads = access.guess_reads(path) if path.name.startswith("python") else _find_installation(path)
    tools = [each.find(root, cache=cache) for each in toolchains]
    variables = {name: value for each in tools for name, value in each.variables.items()}
    return Tools(
        path=path,
        reads=tuple(path for path in (*reads, *chain.from_iterable(each.reads for each in tools)) if path.exists()),
        writes=(cache, *chain.from_iterable(each.writes for each in tools)),
        variables={"PYTHONDONTWRITEBYTECODE": "1", **variables},
        # A command that could run any tool has none of their arguments.
        arguments=tools[0].arguments if len(tools) == 1 else (),
    )


def _find_installation(program: Path) -> tuple[Path, ...]:
    """Return the folder where a program outside of the system's folders is installed, for example by nvm or asdf."""
    real = program.resolve()
    prefix, home = real.parent.parent, Path.home()
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return ()
    # The home folder and folders in it such as .cargo can hold passwords.
    is_too_much = home in (prefix, prefix.parent) or prefix in home.parents
    return (real.parent,) if is_too_much else (prefix,)


RUST = Toolchain(
    inherits={"CARGO_HOME": "{HOME}/.cargo", "RUSTUP_HOME": "{HOME}/.rustup"},
    sets={"CARGO_TARGET_DIR": "{cache}", "CARGO_NET_OFFLINE": "true"},
    reads=(
        *(f"{{CARGO_HOME}}/{name}" for name in ("bin", "registry", "git", "config.toml", "config")),
        "{RUSTUP_HOME}",
    ),
)
GO = Toolchain(
    inherits={"GOPATH": "{HOME}/go", "GOMODCACHE": "{GOPATH}/pkg/mod", "GOFLAGS": "-mod=mod"},
    sets={"GOCACHE": "{cache}", "GOPROXY": "off", "GOTOOLCHAIN": "local"},
    reads=("{GOMODCACHE}",),
)
_JAVA = ("/etc/maven", "/etc/gradle", "/etc/java-17-openjdk", "/etc/java-11-openjdk", "{JAVA_HOME}")
MAVEN = Toolchain(
    inherits={"JAVA_HOME": "/none"},
    sets={"MAVEN_USER_HOME": "{HOME}/.m2"},
    reads=("{HOME}/.m2/repository", "{HOME}/.m2/wrapper", *_JAVA),
    arguments=("-o", "-Dmaven.repo.local={HOME}/.m2/repository", *_UNTRACKED),
)
GRADLE = Toolchain(
    inherits={"GRADLE_USER_HOME": "{HOME}/.gradle", "JAVA_HOME": "/none"},
    sets={"GRADLE_USER_HOME": "{cache}", "GRADLE_RO_DEP_CACHE": "{GRADLE_USER_HOME}/caches"},
    reads=("{GRADLE_USER_HOME}/caches", "{GRADLE_USER_HOME}/wrapper", *_JAVA),
    arguments=("--offline",),
)
DOTNET = Toolchain(
    inherits={"NUGET_PACKAGES": "{HOME}/.nuget/packages", "DOTNET_ROOT": "{HOME}/.dotnet"},
    sets={"DOTNET_CLI_HOME": "{cache}", "DOTNET_CLI_TELEMETRY_OPTOUT": "1", "DOTNET_NOLOGO": "1"},
    reads=("{NUGET_PACKAGES}", "{DOTNET_ROOT}"),
)


JAVASCRIPT = Toolchain(uses_modules=True)
TOOLCHAINS = (JAVASCRIPT, RUST, GO, MAVEN, GRADLE, DOTNET)


_BUILT = frozenset({"target", "build", "dist", "out", "obj", "bin", "coverage", ".gradle", ".next", ".nuxt", "vendor"})
"""Folders of build output and fetched packages, unless they contain tests of the project."""
_VITE = re.compile(rb"\btest\s*:")
_SUREFIRE = re.compile(rb"<plugin>(?:(?!</plugin>).)*?maven-(?:surefire|failsafe)-plugin.*?</plugin>", re.DOTALL)
_NPM_KEYS = r"jest|mocha|vitest|ava|nyc|c8|scripts\.(?:pre|post)?test\b.*"
_CARGO_KEYS = r"test|bench|package\.(?:autotests|autobenches|build)|lib\.(?:test|doctest|harness)|profile\.(?:test|dev)"


def digest_parts(folder: Path) -> Mapping[str, str]:
    """Return digests of the parts of files that configure tests, by keys such as ``package.json[tests]``."""
    found = {}
    for name in sorted(SHARED):
        try:
            data = read_ordinary(folder / name, limit_bytes=8_000_000)
        except OSError:
            continue
        if part := _PARTS[name](data):
            found[f"{name}[tests]"] = digest(part)
    return found


def _select_part(data: bytes, *, parse: Callable[[str], dict[str, object]], keys: str) -> bytes:
    """Return the entries whose keys, or whose table and key joined by a dot, match ``keys``."""
    try:
        tables = parse(data.decode())
        inner = {f"{name}.{key}": value for name in tables for key, value in get_table(tables, name).items()}
        found = {name: value for name, value in (tables | inner).items() if re.fullmatch(keys, name)}
        return json.dumps(found, sort_keys=True, default=str).encode() if found else b""
    except (ValueError, RecursionError):
        return data


_PARTS: Mapping[str, Callable[[bytes], bytes]] = {
    "package.json": partial(_select_part, parse=msgspec.json.Decoder(dict[str, object]).decode, keys=_NPM_KEYS),
    "Cargo.toml": partial(_select_part, parse=tomllib.loads, keys=_CARGO_KEYS),
    "pom.xml": lambda data: b"\n".join(_SUREFIRE.findall(data)),
    # Vite's configuration is a program, which cannot be divided.
    **dict.fromkeys(
        (f"vite.config.{ending}" for ending in ("js", "ts", "mjs", "mts", "cjs", "cts")),
        lambda data: data if _VITE.search(data) else b"",
    ),
}
SHARED = frozenset(_PARTS)
"""Files with a part that configures the tests."""


def fingerprint(root: Path, conventions: Conventions) -> dict[str, str]:
    """Map each test file below ``root``, and each part of a file that configures tests, to its SHA-256."""

    def is_skipped(folder: str) -> bool:
        return posixpath.basename(folder) in IGNORED_FOLDERS or _is_build_folder(folder, conventions.is_test)

    found: dict[str, str] = {}
    for name in walk_files(root, is_skipped=is_skipped):
        folder, slash, file = name.rpartition("/")
        if conventions.is_test(name):
            found[name] = _digest_file(root / name)
        elif file in conventions.shared:
            parts = conventions.digest_parts(root / folder)
            found |= {f"{folder}{slash}{key}": sha256 for key, sha256 in parts.items()}
    return dict(sorted(found.items()))


def is_built(path: str, is_test: Callable[[str], bool]) -> bool:
    """Return whether a file is in a folder of build output, where a compiled test is not a source."""
    folders = path.split("/")
    return any(_is_build_folder("/".join(folders[:end]), is_test) for end in range(1, len(folders)))


def _is_build_folder(folder: str, is_test: Callable[[str], bool]) -> bool:
    return posixpath.basename(folder) in _BUILT and not is_test(f"{folder}/any")


def _digest_file(path: Path) -> str:
    if path.is_symlink():  # its target is what a change would replace
        return digest(b"link " + os.fsencode(os.readlink(path)))
    try:
        return digest(read_ordinary(path, limit_bytes=256_000_000))
    except OSError as error:
        return digest(f"unreadable {error.errno}".encode())


_NOT_COPIED = frozenset({".git", ".cdd", "target", MODULES})
_NOT_SEARCHED = frozenset({".git", ".cdd", "target", "build", "dist", MODULES})


def link_modules(root: Path, *, copy: Path) -> tuple[Path, ...]:
    """Link the installed packages of a project into its copy; return the folders that hold them.

    A project in a folder of a repository also uses the packages of the repository, if the copy contains their folders.
    Packages that are folders of the repository themselves are those of the copy.
    """
    root, top = root.resolve(), find_top(root)
    inside = root.relative_to(top)
    copied = copy.parents[len(inside.parts) - 1] if inside.parts else copy
    between = (folder for folder in list_folders_to_top(root) if (folder / MODULES).is_dir())
    linked = []
    for folder in dict.fromkeys((*_find_holders(root), *between, *_find_holders(top))):
        modules, place = (folder / MODULES).resolve(), copied / folder.relative_to(top) / MODULES
        if not place.parent.is_dir() or os.path.lexists(place) or MODULES not in modules.parts:
            continue
        # A folder, not a link to one: git ignores only folders by a pattern like `node_modules/`.
        place.mkdir()
        for package in _list_packages(modules):
            target, link = package.resolve(), place / package.relative_to(modules)
            is_own = (
                package.is_symlink() and target.is_relative_to(top) and MODULES not in target.relative_to(top).parts
            )
            own = copied / target.relative_to(top) if is_own else package
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(own if own.is_dir() else package)
        linked.append(modules)
    return tuple(linked)


def _list_packages(modules: Path) -> Iterator[Path]:
    """Yield the packages in ``node_modules``, also those in scopes such as ``@types``."""
    for path in modules.iterdir():
        is_scope = path.name.startswith("@") and path.is_dir() and not path.is_symlink()
        if path.name not in MODULE_CACHES:
            yield from path.iterdir() if is_scope else (path,)


def _find_holders(root: Path) -> Iterator[Path]:
    """Yield the folders that hold installed packages."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if (folder / MODULES).is_dir():
            yield folder
        if depth < _DEEPEST:
            with os.scandir(folder) as entries:
                inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [(each, depth + 1) for each in inner if each.name not in _NOT_SEARCHED]


def copy_without(root: Path, copy: Path, *, left_out: frozenset[str]) -> None:
    """Copy a project's sources without the files ``left_out`` (relative, posix)."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(root)
        return {name for name in names if name in _NOT_COPIED or (inside / name).as_posix() in left_out}

    shutil.copytree(root, copy, ignore=ignored, symlinks=True)


def forget_own_crates(cache: Path, root: Path) -> None:
    """Make cargo compile the project's own crates again, since it would not notice a change with an old date."""
    for manifest in (*root.glob("Cargo.toml"), *root.glob("*/Cargo.toml"), *root.glob("*/*/Cargo.toml")):
        name = get_table(read_toml(manifest), "package").get("name")
        if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum():
            for known in cache.glob(f"*/.fingerprint/{name}-*"):
                if known.parent.resolve().is_relative_to(cache.resolve()):  # tests can write links there
                    shutil.rmtree(known, ignore_errors=True)


def show_word(word: str, root: Path) -> str:
    """Return a word of a command as the user would type it in ``root``."""
    path = Path(word)
    inside = path.relative_to(root) if path.is_absolute() and path.is_relative_to(root) else None
    return shlex.quote(word if inside is None else str(inside))
