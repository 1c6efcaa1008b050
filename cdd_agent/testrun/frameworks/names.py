"""Under which names tests use what is in sources: what RED may find missing, language by language."""

import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.suite import modules_of

_LIMIT_BYTES = 2_000_000
_JS = re.compile(r"\.(?:d\.)?[cm]?[jt]sx?$|\.(?:vue|svelte)$")
_IMPORT = re.compile(
    r"(?:import\s+(?:type\s+)?(?P<named>[^;'\"]*?)\s*from\s*|(?:const|let|var)\s+(?P<bound>[^;='\"]+?)\s*=\s*(?:await\s+)?"
    r"(?:require|import)\s*\(\s*)(?P<quote>['\"])(?P<module>[^'\"\n]+)(?P=quote)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_NOT_A_NAME = frozenset({"as", "from", "import", "type"})
_RUST_TYPE = re.compile(r"\b(?:struct|enum|trait|union|type)\s+([A-Za-z_]\w*)")
_GO_MODULE = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)
_SOURCE_ROOT = re.compile(r"(?:^|.*/)src/\w+/(?:java|kotlin|groovy|scala)/(?P<inside>.+)\.\w+$")


def names_of(framework: str, root: Path) -> Callable[[Iterable[str], Iterable[str]], tuple[str, ...]]:
    """Of sources in ``root``, and the test files that fail, the names that may be missing; each language has a rule."""
    rule = _RULES.get(framework)
    if rule is None:
        return modules_of

    def names(sources: Iterable[str], tests: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule(root, tuple(sources), tests=tuple(tests))))

    return names


def _text(path: Path) -> str:
    try:
        return read_ordinary(path, limit_bytes=_LIMIT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _javascript(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """The file with and without its ending, its name, and what a failing test takes from it by an import."""
    modules = {stem for source in sources if _JS.search(source) for stem in _stems(source)}
    for source in sources:
        if _JS.search(source):
            yield source
    yield from sorted(modules)
    yield from sorted(posixpath.basename(module) for module in modules if "/" in module)
    for test in tests:
        for found in _IMPORT.finditer(_text(root / test)):
            asked = posixpath.normpath(posixpath.join(posixpath.dirname(test), found["module"]))
            if found["module"].startswith(".") and set(_stems(asked)) & modules:
                yield from (w for w in _WORD.findall(found["named"] or found["bound"]) if w not in _NOT_A_NAME)


def _stems(path: str) -> tuple[str, ...]:
    """A module's path without its ending; of an index, its folder's too."""
    stem = _JS.sub("", path)
    return (stem, posixpath.dirname(stem)) if posixpath.basename(stem) == "index" and "/" in stem else (stem,)


def _rust(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """The module in its crate, or the crate; the module's last name; types that the source has already."""
    for source in sources:
        folder, inside = _crate_of(root, source)
        if not source.endswith(".rs") or inside is None:
            continue
        crate = _crate_name(root / folder)
        parts = [part for part in inside.removesuffix(".rs").split("/") if part not in ("lib", "main", "mod")]
        yield ".".join((crate, *parts))
        if parts:
            yield ".".join(parts)
            yield parts[-1]
        yield from _RUST_TYPE.findall(_text(root / source))


def _crate_of(root: Path, source: str) -> tuple[str, str | None]:
    """The nearest folder with a manifest, and where the source is in its ``src``."""
    folder = posixpath.dirname(source)
    while folder and not (root / folder / "Cargo.toml").is_file():
        folder = posixpath.dirname(folder)
    inside = posixpath.relpath(source, folder or ".")
    return folder, inside.removeprefix("src/") if inside.startswith("src/") else None


def _crate_name(folder: Path) -> str:
    try:
        tables = tomllib.loads(_text(folder / "Cargo.toml"))
    except (ValueError, RecursionError):
        return ""
    named = [tables.get(table) for table in ("lib", "package")]
    names = [table["name"] for table in named if isinstance(table, dict) and isinstance(table.get("name"), str)]
    return names[0].replace("-", "_") if names else ""


def _go(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """The package, by its folder and as it is imported; in a test beside a source, every name may be the package's."""
    module = _GO_MODULE.search(_text(root / "go.mod"))
    folders = {posixpath.dirname(source) for source in sources if source.endswith(".go")}
    for folder in sorted(folders):
        path = posixpath.join(module[1], folder) if module else folder
        yield path.rstrip("/")
        yield posixpath.basename(path.rstrip("/"))
    for test in tests:
        if posixpath.dirname(test) in folders:
            yield from _WORD.findall(_text(root / test))


def _java(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """The class, with its package and alone; of Kotlin also what a failing test names, as functions have no class."""
    for source in sources:
        found = _SOURCE_ROOT.match(source)
        inside = found["inside"] if found else source.rpartition(".")[0]
        yield inside.replace("/", ".")
        yield posixpath.basename(inside)
    if any(source.endswith(".kt") for source in sources):
        for test in tests:
            if test.endswith(".kt"):
                yield from _WORD.findall(_text(root / test))


def _dotnet(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """The class, with its folders as namespace and alone."""
    for source in sources:
        if source.endswith((".cs", ".fs", ".vb")):
            inside = source.rpartition(".")[0]
            yield inside.replace("/", ".")
            yield posixpath.basename(inside)


_RULES = {
    **dict.fromkeys(("vitest", "jest", "mocha", "node"), _javascript),
    **dict.fromkeys(("cargo", "nextest"), _rust),
    **dict.fromkeys(("maven", "gradle"), _java),
    "go": _go,
    "dotnet": _dotnet,
}
