"""Provides the environment of the tests: toolchains, configuration, and packages that git ignores.

A sandbox has another home folder and no network. Variables therefore name the compilers and the fetched
packages, caches go to a private folder, and only those folders of the user's home are readable that hold no passwords.
Packages must have been fetched before.
"""

import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun import access, inside
from cdd_agent.testrun.interpreter import get_table, read_toml
from cdd_agent.testrun.suite import Conventions, digest
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

MODULES = "node_modules"
MODULE_CACHES = (".vite", ".vite-temp", ".cache")
"""Folders in ``node_modules`` that tools write to while they run tests."""
REPORTERS = Path(inside.__file__).parent
"""The folder of cdd's reporters for JavaScript tools."""
_HIGHEST = 8
"""How many folders upwards to look for ``node_modules`` and lock files."""
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
class ToolLocations:
    """The folders in which a command runs and finds its tools."""

    root: Path
    program: Path
    cache: Path
    """The folder that the tools may keep between runs."""


Requirements = Callable[[ToolLocations], Tools]
"""Returns the files, variables and arguments that the tools of a language need, besides the program itself."""


def find_tools(requirements: Requirements, program: str, *, cache: Path, root: Path) -> Tools:
    """Return the tools for a command that begins with ``program`` and runs in ``root``."""
    found = shutil.which(program)
    path = Path(os.path.abspath(root / (found or program)))
    own = requirements(ToolLocations(root=root, program=path, cache=cache))
    return Tools(
        path=path,
        reads=tuple(each for each in (*_find_installation(path), *own.reads) if each.exists()),
        writes=(cache, *own.writes),
        variables={"PYTHONDONTWRITEBYTECODE": "1", **own.variables},
        arguments=own.arguments,
    )


def prepare(tools: Tools) -> None:
    """Create the writable folders, since a sandbox can mount only existing ones."""
    for folder in tools.writes:
        if folder.name not in MODULE_CACHES or folder.parent.is_dir():
            folder.mkdir(exist_ok=True, parents=True)


def _find_installation(program: Path) -> tuple[Path, ...]:
    """Return the folder where a program outside of the system's folders is installed, for example by nvm or asdf."""
    real = program.resolve()
    prefix, home = real.parent.parent, Path.home()
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return ()
    # The home folder and folders in it such as .cargo can hold passwords.
    is_too_much = home in (prefix, prefix.parent) or prefix in home.parents
    return (real.parent,) if is_too_much else (prefix,)


def iterate_upwards(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the top of the repository."""
    for place in (folder, *folder.parents)[:_HIGHEST]:
        yield place
        if (place / ".git").exists():
            return


def require_python(locations: ToolLocations) -> Tools:
    """Return the paths that a Python interpreter reads."""
    return Tools(reads=access.guess_reads(locations.program))


def require_javascript(locations: ToolLocations) -> Tools:
    """Return node and the installed packages."""
    node = shutil.which("node")
    holders = (folder / MODULES for folder in iterate_upwards(locations.root))
    modules = tuple(folder.resolve() for folder in holders if folder.is_dir())
    caches = tuple(folder / name for folder in modules for name in MODULE_CACHES)
    installed = _find_installation(Path(node)) if node else ()
    return Tools(reads=(*installed, *modules, REPORTERS), writes=caches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The files, variables and arguments of a language's tools, as templates over variables, HOME and cache."""

    inherits: Mapping[str, str]
    """Variable -> its value unless the user's environment has one."""
    finds: Mapping[str, str] = field(default_factory=dict)
    """The same for folders; one that does not exist is not set."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Variable -> its value, which replaces any other one."""
    reads: tuple[str, ...]
    arguments: tuple[str, ...] = ()

    def require(self, locations: ToolLocations) -> Tools:
        """Return the tools for a command."""
        variables: dict[str, str] = {}
        known = {"HOME": os.environ.get("HOME") or str(Path.home()), "cache": str(locations.cache)}
        for name, default in {**self.inherits, **self.finds}.items():
            known[name] = os.environ.get(name) or default.format_map(known)
            if name in self.inherits or os.path.isdir(known[name]):
                variables[name] = known[name]
        variables |= {name: value.format_map(known) for name, value in self.sets.items()}
        paths = (path.format_map(known) for path in self.reads)
        arguments = tuple(argument.format_map(known) for argument in self.arguments)
        return Tools(reads=tuple(map(Path, filter(None, paths))), variables=variables, arguments=arguments)


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
    inherits={},
    finds={"JAVA_HOME": ""},
    sets={"MAVEN_USER_HOME": "{HOME}/.m2"},
    reads=("{HOME}/.m2/repository", "{HOME}/.m2/wrapper", *_JAVA),
    arguments=("-o", "-Dmaven.repo.local={HOME}/.m2/repository", *_UNTRACKED),
)
GRADLE = Toolchain(
    inherits={"GRADLE_USER_HOME": "{HOME}/.gradle"},
    finds={"JAVA_HOME": ""},
    sets={"GRADLE_USER_HOME": "{cache}", "GRADLE_RO_DEP_CACHE": "{GRADLE_USER_HOME}/caches"},
    reads=("{GRADLE_USER_HOME}/caches", "{GRADLE_USER_HOME}/wrapper", *_JAVA),
    arguments=("--offline",),
)
DOTNET = Toolchain(
    inherits={"NUGET_PACKAGES": "{HOME}/.nuget/packages"},
    finds={"DOTNET_ROOT": "{HOME}/.dotnet"},
    sets={"DOTNET_CLI_HOME": "{cache}", "DOTNET_CLI_TELEMETRY_OPTOUT": "1", "DOTNET_NOLOGO": "1"},
    reads=("{NUGET_PACKAGES}", "{DOTNET_ROOT}"),
)


def require_anything(locations: ToolLocations) -> Tools:
    """Return the tools of all compiled languages, for a command that could run any of them."""
    tools = [each.require(locations) for each in (RUST, GO, MAVEN, GRADLE, DOTNET)]
    variables = {name: value for each in tools for name, value in each.variables.items()}
    return Tools(reads=tuple(path for each in tools for path in each.reads), variables=variables)


def require_make(locations: ToolLocations) -> Tools:
    """Return the tools of all languages, since a makefile can run any of them."""
    javascript, others = require_javascript(locations), require_anything(locations)
    return Tools(reads=(*javascript.reads, *others.reads), writes=javascript.writes, variables=others.variables)


_MOST_FILES = 100_000
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
    found: dict[str, str] = {}
    for path in _iterate_files(root, conventions):
        name = path.relative_to(root).as_posix()
        if conventions.is_test(name):
            found[name] = _digest_file(path)
        elif path.name in conventions.shared:
            folder = name.removesuffix(path.name)
            found |= {f"{folder}{key}": sha256 for key, sha256 in conventions.digest_parts(path.parent).items()}
    return dict(sorted(found.items()))


def is_built(path: str, is_test: Callable[[str], bool]) -> bool:
    """Return whether a file is in a folder of build output, where a compiled test is not a source."""
    folders = path.split("/")
    return any(_is_build_folder("/".join(folders[:end]), is_test) for end in range(1, len(folders)))


def _is_build_folder(folder: str, is_test: Callable[[str], bool]) -> bool:
    return folder.rpartition("/")[2] in _BUILT and not is_test(f"{folder}/any")


def _iterate_files(root: Path, conventions: Conventions) -> Iterator[Path]:
    count = 0
    for folder, subfolders, names in os.walk(root):
        inside, own = Path(folder).relative_to(root), sorted(name for name in subfolders if name not in IGNORED_FOLDERS)
        subfolders[:] = [name for name in own if not _is_build_folder((inside / name).as_posix(), conventions.is_test)]
        yield from (Path(folder, name) for name in sorted(names))
        count += len(names)
        if count > _MOST_FILES:
            return


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
    """
    top = find_repository_top(root)
    inside = root.relative_to(top)
    copied = copy.parents[len(inside.parts) - 1] if inside.parts else copy
    between = (folder for folder in root.parents if folder.is_relative_to(top) and (folder / MODULES).is_dir())
    linked = []
    for folder in dict.fromkeys((*_find_holders(root), *between, *_find_holders(top))):
        modules, place = (folder / MODULES).resolve(), copied / folder.relative_to(top)
        if place.is_dir() and not os.path.lexists(place / MODULES):
            _CopiedRepository(top=top, copied=copied).link(modules, place / MODULES)
            linked.append(modules)
    return tuple(linked)


def find_repository_top(root: Path) -> Path:
    """Return the top of the project's repository, or the project itself."""
    return next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CopiedRepository:
    top: Path
    copied: Path

    def link(self, modules: Path, place: Path) -> None:
        """Create a folder with links to packages, which lead to the copy for packages of the repository itself."""
        entries = [path for path in modules.iterdir() if path.name not in MODULE_CACHES]
        scoped = [inner for path in entries if _is_scope(path) for inner in path.iterdir()]
        # A folder, not a link to one: git ignores only folders by a pattern like `node_modules/`.
        place.mkdir()
        for path in (*(path for path in entries if not _is_scope(path)), *scoped):
            link = place / path.relative_to(modules)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(self.find_copy(path) or path)

    def find_copy(self, link: Path) -> Path | None:
        """Return where a link leads in the copy; None if it does not lead to a package of the repository."""
        target = link.resolve()
        if not link.is_symlink() or not target.is_relative_to(self.top):
            return None
        inside = target.relative_to(self.top)
        return self.copied / inside if MODULES not in inside.parts and (self.copied / inside).is_dir() else None


def _is_scope(path: Path) -> bool:
    return path.name.startswith("@") and path.is_dir() and not path.is_symlink()


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
                shutil.rmtree(known, ignore_errors=True)


def show_word(word: str, root: Path) -> str:
    """Return a word of a command as the user would type it in ``root``."""
    path = Path(word)
    inside = path.relative_to(root) if path.is_absolute() and path.is_relative_to(root) else None
    return shlex.quote(word if inside is None else str(inside))
