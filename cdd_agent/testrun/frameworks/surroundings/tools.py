"""What the tools of a language need of this machine: what they read, where they may write, what they must be told.

In a sandbox home is another folder, and there is no network: where compilers and fetched packages are is said by
variables, caches go to a private folder, and of the folders in the user's home only those are let in that hold no
password. What a build needs has to have been fetched before.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdd_agent.testrun import reach
from cdd_agent.testrun.frameworks.surroundings.lent import CACHES

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
