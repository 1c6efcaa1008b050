"""What a copy of a project is lent of what git does not hold, and what a cache of compiled code must not lend.

Parts of the product's files that decide how tests are run, and digests of all that GREEN may not change.

What the tools of a language need of this machine: what they read, where they may write, what they must be told.

In a sandbox home is another folder, and there is no network: where compilers and fetched packages are is said by
variables, caches go to a private folder, and of the folders in the user's home only those are let in that hold no
password. What a build needs has to have been fetched before.

"""

import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun import reach
from cdd_agent.testrun.suite import Conventions, digest
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

_DEEPEST = 4
_MODULES = "node_modules"
CACHES = (".vite", ".vite-temp", ".cache")
"""Folders in ``node_modules`` that tools write to while they run tests."""
_COPIED_NOT = frozenset({".git", ".cdd", "target", _MODULES})
_LEFT_OUT = frozenset({".git", ".cdd", "target", "build", "dist"})


def lend_modules(root: Path, *, copy: Path) -> tuple[Path, ...]:
    """Let the installed packages that count in a project be found in its copy; the folders that hold them.

    Of a project in a folder of a repository those of the repository are lent too, as far as the copy has the folders
    that they lie in.
    """
    top = top_of(root)
    inside = root.relative_to(top)
    copied = copy.parents[len(inside.parts) - 1] if inside.parts else copy
    between = (folder for folder in root.parents if folder.is_relative_to(top) and (folder / _MODULES).is_dir())
    lent = []
    for folder in dict.fromkeys((*_holders(root), *between, *_holders(top))):
        modules, place = (folder / _MODULES).resolve(), copied / folder.relative_to(top)
        if place.is_dir() and not os.path.lexists(place / _MODULES):
            _lend(modules, place / _MODULES, own=_Own(top=top, copied=copied))
            lent.append(modules)
    return tuple(lent)


def top_of(root: Path) -> Path:
    """The top of the repository that a project lies in; itself if there is none."""
    return next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), root)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """A repository and its copy: what a link to a package of the repository's own leads to there."""

    top: Path
    copied: Path

    def in_copy(self, link: Path) -> Path | None:
        """Where a link leads in the copy; None if it does not lead to a package of the repository's."""
        target = link.resolve()
        if not link.is_symlink() or not target.is_relative_to(self.top):
            return None
        inside = target.relative_to(self.top)
        return self.copied / inside if _MODULES not in inside.parts and (self.copied / inside).is_dir() else None


def _lend(modules: Path, place: Path, *, own: _Own) -> None:
    """One link to the packages; if some of them are links to the repository's own, a folder of links to each."""
    entries = [path for path in modules.iterdir() if path.name not in CACHES]
    scoped = [inner for path in entries if _is_scope(path) for inner in path.iterdir()]
    if not any(map(own.in_copy, (*entries, *scoped))):
        place.symlink_to(modules)
        return
    place.mkdir()
    for path in (*(path for path in entries if not _is_scope(path)), *scoped):
        link = place / path.relative_to(modules)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(own.in_copy(path) or path)


def _is_scope(path: Path) -> bool:
    return path.name.startswith("@") and path.is_dir() and not path.is_symlink()


def copy_without(root: Path, copy: Path, *, left_out: frozenset[str]) -> None:
    """A copy of a project's files without those ``left_out`` (relative, posix), what was built and what was fetched."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(root)
        return {name for name in names if name in _COPIED_NOT or (inside / name).as_posix() in left_out}

    shutil.copytree(root, copy, ignore=ignored, symlinks=True)


def _holders(root: Path) -> Iterator[Path]:
    """The folders of the project that hold installed packages."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if (folder / _MODULES).is_dir():
            yield folder
        if depth < _DEEPEST:
            with os.scandir(folder) as entries:
                inner = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [(each, depth + 1) for each in inner if each.name != _MODULES and each.name not in _LEFT_OUT]


def forget_own(cache: Path, root: Path) -> None:
    """Let cargo compile the project's own crates again, whatever the dates of their sources are."""
    for manifest in (*root.glob("Cargo.toml"), *root.glob("*/Cargo.toml"), *root.glob("*/*/Cargo.toml")):
        try:
            package = tomllib.loads(read_ordinary(manifest, limit_bytes=1_000_000).decode()).get("package")
        except (OSError, ValueError, RecursionError):
            continue
        name = package.get("name") if isinstance(package, dict) else None
        if isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum():
            for known in cache.glob(f"*/.fingerprint/{name}-*"):
                shutil.rmtree(known, ignore_errors=True)


def shown(part: str, root: Path) -> str:
    """A word of a command as one types it in ``root``."""
    path = Path(part)
    inside = path.relative_to(root) if path.is_absolute() and path.is_relative_to(root) else None
    return shlex.quote(part if inside is None else str(inside))


_LIMIT_BYTES = 8_000_000
_MOST_FILES = 100_000
_BUILT = frozenset({"target", "build", "dist", "out", "obj", "bin", "coverage", ".gradle", ".next", ".nuxt", "vendor"})
"""Folders of what was built or fetched, unless tests of the project lie there."""
_TEST_KEYS = ("jest", "mocha", "vitest", "ava", "nyc", "c8")
_SCRIPT = re.compile(r"(?:pre|post)?test\b.*")
_VITE = re.compile(r"\btest\s*:")
_SUREFIRE = re.compile(r"<plugin>(?:(?!</plugin>).)*?maven-(?:surefire|failsafe)-plugin.*?</plugin>", re.DOTALL)
_CARGO_KEYS = (("package", ("autotests", "autobenches", "build")), ("lib", ("test", "doctest", "harness")))

SHARED = frozenset(
    {
        *("package.json", "Cargo.toml", "pom.xml"),
        *(f"vite.config.{ending}" for ending in ("js", "ts", "mjs", "mts", "cjs", "cts")),
    }
)
"""Files of which a part configures the tests."""


def parts(folder: Path) -> Mapping[str, str]:
    """Digests of those parts of the files in ``folder``, by keys such as ``package.json[tests]``."""
    found = {}
    for name in sorted(SHARED):
        try:
            data = read_ordinary(folder / name, limit_bytes=_LIMIT_BYTES)
        except OSError:
            continue
        part = _PARTS.get(name, _of_vite)(data)
        if part:
            found[f"{name}[tests]"] = digest(part)
    return found


def _of_package(data: bytes) -> bytes:
    """What a ``package.json`` says of tests: the keys of frameworks, and scripts that run them."""
    try:
        tables = msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data
    told: dict[str, object] = {key: tables[key] for key in _TEST_KEYS if key in tables}
    scripts = tables.get("scripts")
    if isinstance(scripts, dict):
        told |= {f"scripts.{name}": text for name, text in scripts.items() if _SCRIPT.fullmatch(str(name))}
    return msgspec.json.encode(told, order="deterministic") if told else b""


def _of_cargo(data: bytes) -> bytes:
    """What a ``Cargo.toml`` says of targets of tests, of their harness and of the program that builds beforehand."""
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return data
    told: dict[str, object] = {key: tables[key] for key in ("test", "bench") if key in tables}
    for table, keys in _CARGO_KEYS:
        inner = tables.get(table)
        if isinstance(inner, dict):
            told |= {f"{table}.{key}": inner[key] for key in keys if key in inner}
    profiles = tables.get("profile")
    if isinstance(profiles, dict):
        told |= {f"profile.{key}": value for key, value in profiles.items() if key in ("test", "dev")}
    return repr(sorted(told.items())).encode() if told else b""


def _of_maven(data: bytes) -> bytes:
    """What a ``pom.xml`` says of the plugins that run tests."""
    return "\n".join(_SUREFIRE.findall(data.decode("utf-8", "replace"))).encode()


def _of_vite(data: bytes) -> bytes:
    """All of a configuration of vite's that says something of tests: it is a program."""
    return data if _VITE.search(data.decode("utf-8", "replace")) else b""


_PARTS: Mapping[str, Callable[[bytes], bytes]] = {
    "package.json": _of_package,
    "Cargo.toml": _of_cargo,
    "pom.xml": _of_maven,
}


def fingerprints(root: Path, conventions: Conventions) -> dict[str, str]:
    """Test file, or part of a file that configures tests -> sha256, for everything below ``root``; links by target."""
    found: dict[str, str] = {}
    for path in _files(root, conventions):
        name = path.relative_to(root).as_posix()
        if conventions.is_test(name):
            found[name] = _digest(path)
        elif path.name in conventions.shared:
            folder = name.removesuffix(path.name)
            found |= {f"{folder}{key}": told for key, told in conventions.parts(path.parent).items()}
    return dict(sorted(found.items()))


def is_built(path: str, is_test: Callable[[str], bool]) -> bool:
    """Whether a file, relative to the project, lies where builds put what they make: a compiled test is no source."""
    parts = path.split("/")
    return any(_is_of_builds("/".join(parts[:end]), is_test) for end in range(1, len(parts)))


def _is_of_builds(folder: str, is_test: Callable[[str], bool]) -> bool:
    return folder.rpartition("/")[2] in _BUILT and not is_test(f"{folder}/any")


def _files(root: Path, conventions: Conventions) -> Iterator[Path]:
    count = 0
    for folder, subfolders, names in os.walk(root):
        inside = Path(folder).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in IGNORED_FOLDERS and not _is_of_builds(f"{prefix}{name}", conventions.is_test)
        )
        for name in sorted(names):
            count += 1
            yield Path(folder, name)
        if count > _MOST_FILES:
            return


def _digest(path: Path) -> str:
    if path.is_symlink():
        return digest(b"link " + os.fsencode(os.readlink(path)))
    try:
        return digest(read_ordinary(path, limit_bytes=256_000_000))
    except OSError as error:
        return digest(f"unreadable {error.errno}".encode())


_CONFIGURATION = tuple(map(Path, ("/etc/maven", "/etc/gradle", "/etc/java-17-openjdk", "/etc/java-11-openjdk")))
_HIGHEST = 8
_UNTRACKED = tuple(
    f"-Daether.{name}.trackingFilename=cdd.untracked" for name in ("enhancedLocalRepository", "lrm.enhanced")
)
"""What lets Maven take a fetched file whichever mirror it came from: the user's settings, which name the mirrors, may
hold passwords and are not read in the sandbox. The first is the name up to Maven 3, the second that of Maven 4."""
MODULES = "node_modules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What one command needs."""

    path: Path
    """Its program."""
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """What follows the command, before what the framework adds."""


Rule = Callable[[Path, Mapping[str, str]], Tools]


def tools_for(
    framework: str, program: str, *, cache: Path, root: Path, environment: Mapping[str, str] = os.environ
) -> Tools:
    """The tools of ``framework``, whose command begins with ``program``; ``cache`` is the folder they may keep."""
    found = shutil.which(program, path=environment.get("PATH", os.defpath))
    path = Path(os.path.abspath(root / (found or program)))
    rule = _RULES.get(framework, _any)
    own = rule(cache, environment)
    is_javascript = framework in _JAVASCRIPT or framework == "make"
    modules = modules_in(root) if is_javascript else ()
    node = shutil.which("node", path=environment.get("PATH", os.defpath)) if is_javascript else None
    programs = (path, *((Path(node),) if node else ()))
    python = reach.before_asked(path) if framework == "unittest" else ()
    installed = [folder for each in programs for folder in _installed(each)]
    writes = [folder / name for folder in modules for name in CACHES]
    return Tools(
        path=path,
        reads=tuple(each for each in (*installed, *python, *own.reads, *modules) if each.exists()),
        writes=(cache, *own.writes, *writes),
        variables={"PYTHONDONTWRITEBYTECODE": "1", **own.variables},
        arguments=own.arguments,
    )


def prepare(tools: Tools) -> None:
    """Make the folders that are to be written to, as what is not there cannot be let in."""
    for folder in tools.writes:
        if folder.name not in CACHES or folder.parent.is_dir():
            folder.mkdir(exist_ok=True, parents=True)


def _installed(program: Path) -> tuple[Path, ...]:
    """The folder that a program outside of the system's was installed to: of nvm, asdf, or wherever a link leads.

    Only its own folder if that of its installation is the user's home, or a folder in it such as ``.cargo``.
    """
    real = program.resolve()
    prefix, home = real.parent.parent, Path.home()
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return ()
    is_too_much = home in (prefix, prefix.parent) or prefix in home.parents
    return (real.parent,) if is_too_much else (prefix,)


def modules_in(root: Path) -> tuple[Path, ...]:
    """The folders of installed packages that count in ``root``, those that links lead to."""
    found = []
    for folder in (root, *root.parents)[:_HIGHEST]:
        if (folder / MODULES).is_dir():
            found.append((folder / MODULES).resolve())
        if (folder / ".git").exists():
            break
    return tuple(found)


def home_of(environment: Mapping[str, str], name: str, *, usual: str) -> Path:
    """A folder that a variable names, else the usual one in the user's home."""
    told = environment.get(name)
    return Path(told) if told else Path(environment.get("HOME") or Path.home()) / usual


def _rust(cache: Path, environment: Mapping[str, str]) -> Tools:
    cargo, rustup = (home_of(environment, f"{name}_HOME", usual=f".{name.lower()}") for name in ("CARGO", "RUSTUP"))
    return Tools(
        path=cargo,
        reads=(*(cargo / name for name in ("bin", "registry", "git", "config.toml", "config")), rustup),
        variables={
            "CARGO_HOME": str(cargo),
            "RUSTUP_HOME": str(rustup),
            "CARGO_NET_OFFLINE": "true",
            "CARGO_TARGET_DIR": str(cache),
        },
    )


def _go(cache: Path, environment: Mapping[str, str]) -> Tools:
    path = home_of(environment, "GOPATH", usual="go")
    modules = Path(environment.get("GOMODCACHE") or path / "pkg" / "mod")
    return Tools(
        path=path,
        reads=(modules,),
        variables={
            "GOPATH": str(path),
            "GOMODCACHE": str(modules),
            "GOCACHE": str(cache),
            "GOPROXY": "off",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-mod=mod" if not environment.get("GOFLAGS") else environment["GOFLAGS"],
        },
    )


def _maven(cache: Path, environment: Mapping[str, str]) -> Tools:
    repository = Path(environment.get("HOME") or Path.home()) / ".m2" / "repository"
    wrapper = repository.parent / "wrapper"
    return Tools(
        path=repository,
        reads=(repository, wrapper, *_CONFIGURATION, *_java_home(environment)),
        variables={**_java(environment), "MAVEN_USER_HOME": str(repository.parent)},
        arguments=("-o", f"-Dmaven.repo.local={repository}", *_UNTRACKED),
    )


def _gradle(cache: Path, environment: Mapping[str, str]) -> Tools:
    home = home_of(environment, "GRADLE_USER_HOME", usual=".gradle")
    return Tools(
        path=home,
        reads=(home / "caches", home / "wrapper", *_CONFIGURATION, *_java_home(environment)),
        variables={
            **_java(environment),
            "GRADLE_USER_HOME": str(cache),
            "GRADLE_RO_DEP_CACHE": str(home / "caches"),
        },
        arguments=("--offline",),
    )


def _java_home(environment: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(environment["JAVA_HOME"]) for _ in range(1) if environment.get("JAVA_HOME"))


def _java(environment: Mapping[str, str]) -> dict[str, str]:
    return {"JAVA_HOME": environment["JAVA_HOME"]} if environment.get("JAVA_HOME") else {}


def _dotnet(cache: Path, environment: Mapping[str, str]) -> Tools:
    packages = home_of(environment, "NUGET_PACKAGES", usual=".nuget/packages")
    root = home_of(environment, "DOTNET_ROOT", usual=".dotnet")
    told = {"DOTNET_ROOT": str(root)} if root.is_dir() else {}
    return Tools(
        path=root,
        reads=(packages, root),
        variables={
            **told,
            "NUGET_PACKAGES": str(packages),
            "DOTNET_CLI_HOME": str(cache),
            "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
            "DOTNET_NOLOGO": "1",
        },
    )


def _none(cache: Path, environment: Mapping[str, str]) -> Tools:
    return Tools(path=cache)


def _any(cache: Path, environment: Mapping[str, str]) -> Tools:
    """What every language needs: a makefile may run anything."""
    all_of = [rule(cache, environment) for rule in (_rust, _go, _maven, _gradle, _dotnet)]
    variables: dict[str, str] = {}
    for each in all_of:
        variables |= each.variables
    return Tools(path=cache, reads=tuple(path for each in all_of for path in each.reads), variables=variables)


_JAVASCRIPT = frozenset({"vitest", "jest", "mocha", "node"})
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_JAVASCRIPT, _none),
    **dict.fromkeys(("cargo", "nextest"), _rust),
    "go": _go,
    "maven": _maven,
    "gradle": _gradle,
    "dotnet": _dotnet,
    "unittest": _none,
}
