"""Finds a package by its folder, file or name, and reads its sources. Nothing of it is imported or run."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cdd_agent.errors import UsageError, format_size, join_first
from cdd_agent.storage import read_ordinary

COMPILED = (".so", ".pyd", ".dll", ".dylib")
"""How the names of compiled modules end."""
MOST_FILES = 50_000
MOST_BYTES = 50_000_000
"""Of all sources together; the text of most of them becomes part of the graph."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_HINT = "name its folder, such as: cdd graph from src/stats"


@dataclass(frozen=True, kw_only=True)
class PackageFiles:
    """The files of one package or module."""

    package: str
    """The import name."""
    sources: Mapping[str, bytes]
    """Path, which begins with the package's folder or is that of the module -> content."""
    others: tuple[str, ...] = ()
    """The paths of the files that are no Python sources."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """What else is known of it, for the metadata of the graph."""
    place: Path = Path()
    """The folder in which the package is."""


def list_search_path(project: Path) -> tuple[str, ...]:
    """Return the folders in which packages are found by name: those of the project's environment, then cdd's own."""
    own = sorted(project.glob(".venv/lib/python3*/site-packages"))
    return (*map(str, own), *sys.path)


def read_package(name: str, *, search: Sequence[str]) -> PackageFiles:
    """Read a package. ``name``: a folder, a file, or the name of a module or distribution in one of ``search``."""
    path = Path(name)
    if path.exists() or "/" in name or name.endswith(".py"):
        if not path.exists():
            raise UsageError(f"There is no file {name}.", hint=_HINT)
        return _read(path.resolve(), metadata={})
    found = _find_module(name, search) if name.isidentifier() else None
    distribution = _find_distribution(name, search, module=found)
    if found is None:
        found = _choose_module(name, distribution, search=search)
    return _read(found.resolve(), metadata=_describe(distribution))


def _find_module(name: str, search: Sequence[str]) -> Path | None:
    """Return the folder or file of a module; raise ``UsageError`` for one that has no sources."""
    if name in sys.builtin_module_names:
        raise UsageError(f"{name} is built into Python, and has no sources in Python.", hint=_HINT)
    spec = PathFinder.find_spec(name, [*search])
    if spec is None:
        return None
    if spec.origin is None:
        places = [*(spec.submodule_search_locations or ())]
        happened = (
            f"{name} is a folder without __init__.py, which several distributions can share: {', '.join(places)}."
        )
        raise UsageError(happened, hint=_HINT)
    if spec.origin.endswith(COMPILED):
        raise UsageError(f"{name} is compiled ({spec.origin}), and has no sources in Python.", hint=_HINT)
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _find_distribution(name: str, search: Sequence[str], *, module: Path | None) -> Distribution | None:
    """Return the distribution of this name, or the one that provides a module."""
    found = [*distributions(path=[*search])] if _NAME.fullmatch(name) else []
    named = [each for each in found if _normalize(each.metadata["Name"] or "") == _normalize(name)]
    if named or module is None:
        return named[0] if named else None
    return next((each for each in found if name in _list_modules(each)), None)


def _list_modules(distribution: Distribution) -> list[str]:
    """Return the import names that a distribution provides."""
    paths = (path.parts for path in distribution.files or () if path.suffix in (".py", *COMPILED))
    tops = {parts[0].partition(".")[0] for parts in paths if parts[0] not in ("..", "__pycache__")}
    tops |= set((distribution.read_text("top_level.txt") or "").split())
    return sorted(name for name in tops if name.isidentifier())


def _choose_module(name: str, distribution: Distribution | None, *, search: Sequence[str]) -> Path:
    if distribution is None:
        hint = "name the folder of a package, a plan.md or a tasks.json"
        raise UsageError(f"Neither a file, a module nor a distribution has the name {name!r}.", hint=hint)
    modules = _list_modules(distribution)
    if len(modules) > 1:
        hint = f"name one of them: cdd graph from {modules[0]}"
        raise UsageError(f"The distribution {name} has several packages: {join_first(modules, most=9)}.", hint=hint)
    found = _find_module(modules[0], search) if modules else None
    if found is None:
        raise UsageError(f"The distribution {name} has no package in Python.", hint=_HINT)
    return found


def _describe(distribution: Distribution | None) -> Mapping[str, object]:
    """Return what a distribution says about itself, without what only its extras need."""
    if distribution is None:
        return {}
    requirements = [each for each in distribution.requires or () if "extra" not in each.partition(";")[2]]
    facts = {
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "description": distribution.metadata["Summary"],
        "requirements": requirements,
    }
    return {key: value for key, value in facts.items() if value}


def _read(top: Path, *, metadata: Mapping[str, object]) -> PackageFiles:
    """Read a file, or a folder with everything in it."""
    if top.suffix in COMPILED:
        raise UsageError(f"{top} is compiled, and has no sources in Python.", hint=_HINT)
    package = top.name.removesuffix(".py")
    is_package = top.is_dir() and (top / "__init__.py").is_file()
    if not is_package and (top.is_dir() or top.suffix != ".py"):
        inside = sorted(str(each.parent) for each in [*top.glob("*/__init__.py"), *top.glob("src/*/__init__.py")])
        hint = f"name the package: cdd graph from {inside[0]}" if inside else _HINT
        raise UsageError(f"{top} is neither a package nor a module: it has no __init__.py.", hint=hint)
    if not package.isidentifier():
        raise UsageError(f"{package!r} is not the name of a module in Python.", hint="rename a copy of it")
    if (top.parent / "__init__.py").is_file():
        happened = f"{top} is a part of the package {top.parent.name}."
        raise UsageError(happened, hint=f"name the whole package: cdd graph from {top.parent}")
    sources, others, size = dict[str, bytes](), list[str](), 0
    for path in [top] if not is_package else walk(top):
        name = path.relative_to(top.parent).as_posix()
        if path.suffix != ".py":
            others.append(name)
        else:
            try:
                sources[name] = read_ordinary(path, limit_bytes=MOST_BYTES)
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint=_HINT) from error
            size += len(sources[name])
        if size > MOST_BYTES or len(sources) + len(others) > MOST_FILES:
            happened = f"{top} has more than {format_size(MOST_BYTES)} of sources, or than {MOST_FILES:,} files."
            raise UsageError(happened, hint="name a smaller package")
    return PackageFiles(package=package, sources=sources, others=tuple(others), metadata=metadata, place=top.parent)


def walk(top: Path) -> Iterator[Path]:
    """Yield the ordinary files below a folder, without links, hidden folders and compiled copies of the sources."""
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(each for each in folders if each != "__pycache__" and not each.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                yield path
