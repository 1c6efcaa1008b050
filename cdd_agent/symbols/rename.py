"""Renames: the checks that no engine makes, the plan as data, and writing it so that all files change or none."""

import ast
import builtins
import io
import keyword
import re
import sys
import sysconfig
import tokenize
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from cdd_agent.errors import CddError, UsageError, join_first
from cdd_agent.symbols.answers import EngineAnswer
from cdd_agent.symbols.definitions import SourceFile
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.name_scan import Scan, is_exported, make_edit
from cdd_agent.symbols.scopes import FileNames, NameScope, NameUse, list_parts
from cdd_agent.symbols.symbol import Symbol, SymbolServerError, TextEdit

RemainderKind: TypeAlias = Literal["string", "comment", "code"]
_Place: TypeAlias = tuple[int, int]
_MOST_LISTED = 12
_BY_HAND = "change the places of the definition and its uses with Edit"
_MOST_SHOWN_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedFile:
    """The bytes of a file before and after."""

    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """A place that has the old name after a rename."""

    path: str
    line: int
    column: int
    text: str
    """The line."""
    kind: RemainderKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamePlan:
    """The changes of a rename, and the places that it leaves."""

    symbol: Symbol
    new: str
    changes: Mapping[str, RenamedFile]
    """Path -> bytes."""
    count: int
    """Number of replacements."""
    remaining: tuple[Remainder, ...]
    """Strings, comments, attributes of unknown values, and other things with this name."""
    answer: EngineAnswer[TextEdit]
    """Who found the replacements, and whether more than names was compared."""


def check_name(symbol: Symbol, new: str) -> None:
    """Raise ``UsageError`` unless a definition may have this name."""
    hint = "choose a name such as load_table"
    if not new.isidentifier() or keyword.iskeyword(new):
        what = "is a keyword of Python" if keyword.iskeyword(new) else "is not a name in Python"
        raise UsageError(f"{new!r} {what}. Nothing was changed.", hint=hint)
    if unicodedata.normalize("NFKC", new) != new:
        normal = unicodedata.normalize("NFKC", new)
        raise UsageError(f"Python reads {new!r} as {normal!r}. Nothing was changed.", hint=f"send {normal}")
    if new == symbol.last_name:
        raise UsageError(f"{symbol.name} already has this name. Nothing was changed.", hint=hint)
    old = symbol.last_name
    if old.startswith("__") and old.endswith("__"):
        raise UsageError(f"Python itself calls {old}, so it keeps its name. Nothing was changed.", hint="leave it")
    if new.startswith("__") and new.endswith("__"):
        raise UsageError(f"Names such as {new} have a meaning for Python. Nothing was changed.", hint=hint)
    if symbol.name != old and any(each.startswith("__") and not each.endswith("__") for each in (new, old)):
        happened = f"{new if new.startswith('__') else old} is private to its class. Nothing was changed."
        raise UsageError(happened, hint="edit the class with Edit")


def find_collisions(scan: Scan, new: str, *, index: Index) -> tuple[str, ...]:
    """Return the places, as ``path:line: reason``, where the new name means something else already."""
    if scan.family:
        found = [*_find_in_classes(scan, new, index=index)]
    else:
        owners = {use.name.scope.resolve(scan.symbol.last_name) for use in scan.uses if use.name.kind != "attribute"}
        owners |= {scan.files[path].module for path in scan.exporters}
        found = [*_find_bindings(scan, new, owners=owners)]
        found += _find_stars(scan, new)
        paths = index.list_paths()
        for path in sorted(scan.exporters):
            folder, _, last = path.rpartition("/")
            module = f"{folder}/{new}".lstrip("/")
            if last == "__init__.py" and {f"{module}.py", f"{module}/__init__.py"}.intersection(paths):
                found.append(f"{path}: the package has a module {new}")
    return tuple(dict.fromkeys([*found, *_find_captured(scan, new)]))


def _find_bindings(scan: Scan, new: str, *, owners: Collection[NameScope]) -> Iterator[str]:
    """Yield where a scope that has the old name binds the new one, or uses one from outside of the file."""
    for path, file in scan.files.items():
        for use in file.uses:
            if use.name == new and use.kind not in ("attribute", "keyword", "string"):
                bound = (use.source.bound if use.source is not None else new) == new
                if bound and use.scope.resolve(new) in owners:
                    what = "binds" if use.is_stored or use.source is not None else "uses another"
                    yield f"{path}:{use.line}: {what} {new}"
        if file.module in owners and new in file.module.bound and not any(use.name == new for use in file.uses):
            yield f"{path}: binds {new}"


def _find_captured(scan: Scan, new: str) -> Iterator[str]:
    """Yield the uses that a variable of the new name, in a scope between, would take over."""
    for use in scan.uses:
        if use.name.kind in ("name", "import", "definition"):
            owner = use.name.scope.resolve(scan.symbol.last_name)
            for scope in use.name.scope.list_around():
                if scope is owner:
                    break
                if new in scope.bound:
                    yield f"{use.path}:{use.name.line}: {scope.name or 'the scope'} binds {new} too"


def _find_stars(scan: Scan, new: str) -> Iterator[str]:
    """Yield where ``import *`` brings the old name and would not bring the new one, or the other way round."""
    old, own = scan.symbol.last_name, scan.files[scan.symbol.path]
    if own.exports is None and is_exported(own, new) and not is_exported(own, old):
        for path in sorted(scan.starred):
            for use in scan.files[path].uses:
                if use.name == new and use.scope.resolve(new) is scan.files[path].module and use.receiver is None:
                    yield f"{path}:{use.line}: its import * would bring {new}"
    for path in sorted(scan.exporters if new.startswith("_") else ()):
        has_star = any(each.name == "*" for each in scan.files[path].imports)
        others = [file for source, file in scan.files.items() if source in scan.exporters - {path}]
        if has_star and any(file.exports is None and is_exported(file, old) for file in others):
            yield f"{path}: its import * does not bring {new}, which begins with an underscore"


def _find_in_classes(scan: Scan, new: str, *, index: Index) -> Iterator[str]:
    """Yield where a related class has a member of the new name."""
    related = {(each.path, each.name): each for each in (*scan.family, *scan.ancestors)}
    for path, name in related:
        for member in index.list_last_read(path):
            if member.name == f"{name}.{new}":
                yield f"{path}:{member.line}: {member.name} exists"
        if path not in scan.files:
            with suppress(UsageError):
                scan.files[path] = FileNames(index.read_source(path), {new})
    for each, base in _list_outer_bases(scan, new):
        yield f"{each.path}:{each.line}: {each.name} inherits {new} from {base}"
    for path, file in scan.files.items():
        for use in file.uses:
            if use.name == new and use.kind == "attribute" and use.is_stored and _is_own(use, related, path=path):
                yield f"{path}:{use.line}: an attribute {new} is assigned"


def _is_own(use: NameUse, related: Collection[tuple[str, str]], *, path: str) -> bool:
    """Return whether a method of a class in ``related`` assigns to its own attribute."""
    for scope in use.scope.list_around():
        if scope.receiver and isinstance(use.receiver, ast.Name) and use.receiver.id == scope.receiver:
            return scope.parent is not None and (path, scope.parent.name) in related
    return False


def list_edits(scan: Scan, new: str, *, found: Iterable[TextEdit]) -> set[TextEdit]:
    """Return the replacements that an engine ``found``, and those that engines leave out."""
    edits = set(found)
    return edits | {make_edit(use, new) for use in scan.uses if use.is_added}


def make_changes(edits: Collection[TextEdit], symbol: Symbol, *, new: str, index: Index) -> dict[str, RenamedFile]:
    """Return path -> the bytes of each file with its replacements.

    Raises ``SymbolServerError`` for a replacement that is not at the old name or not in the project, and
    ``UsageError`` if a file could not be parsed or could not hold the name any longer.
    """
    by_path: dict[str, list[TextEdit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    unknown = by_path.keys() - set(index.list_paths())
    if unknown:
        happened = (
            f"The planned rename changes {min(unknown)}, which is not a file of the project. Nothing was changed."
        )
        raise SymbolServerError(happened, hint=_BY_HAND)
    return {
        path: _change_file(
            SourceFile(path, index.read(path), is_parsed=False), by_path[path], old=symbol.last_name, new=new
        )
        for path in sorted(by_path)
    }


def _change_file(source: SourceFile, edits: Collection[TextEdit], *, old: str, new: str) -> RenamedFile:
    allowed = {new, f"{old} as {new}", f"{new} as {old}", f"{new}={old}", f"{old}={new}"}
    text, changes, end = source.text, list[tuple[int, int, str]](), 0
    for edit in sorted(edits, key=lambda each: (each.line, each.column)):
        start = source.starts[edit.line - 1] + edit.column if 0 < edit.line <= len(source.starts) else len(text)
        stop = start + edit.end_column - edit.column
        is_old = unicodedata.normalize("NFKC", text[start:stop]) == old
        if not is_old or edit.new not in allowed or start < end or edit.line != edit.end_line:
            where = f"{text[start:stop][:80]!r} in {source.path}:{edit.line}"
            happened = f"The planned rename replaces {where}, which is not {old}. Nothing was changed."
            raise SymbolServerError(happened, hint=_BY_HAND)
        changes.append((start, stop, edit.new))
        end = stop
    try:
        changed = source.change(changes, name=old, hint="choose another name")
    except UnicodeEncodeError as error:
        happened = f"{source.path} is in {source.codec}, which cannot hold {new}. Nothing was changed."
        raise UsageError(happened, hint="choose a name in ASCII") from error
    return RenamedFile(old=source.content, new=changed.content)


def list_remaining(index: Index, name: str, *, changes: Mapping[str, RenamedFile]) -> tuple[Remainder, ...]:
    """Return all places that have a name after the changes, in the order of paths and lines."""
    # Outside of a class, its private attributes are written with its name.
    private = f"_{re.escape(name.lstrip('_'))}__"
    word, found = re.compile(rf"(?<!\w)(?:{re.escape(name)}(?!\w)|{private}(?=\w))"), list[Remainder]()
    for path in index.list_paths():
        try:
            content = changes[path].new if path in changes else index.read(path)
            if name.isascii() and name.encode() not in content:
                continue
            source = SourceFile(path, content, is_parsed=False)
        except UsageError:
            continue
        hits = [source.find_place(hit.start()) for hit in word.finditer(source.shown)]
        kinds = _classify(source) if hits else []
        for line, column in hits:
            kind: RemainderKind = next((kind for start, end, kind in kinds if start <= (line, column) < end), "code")
            text = source.lines[line - 1][:_MOST_SHOWN_LINE]
            found.append(Remainder(path=path, line=line, column=column, text=text, kind=kind))
    return tuple(found)


def _classify(source: SourceFile) -> list[tuple[_Place, _Place, RemainderKind]]:
    """Return start, end and kind of the comments and strings."""
    found: list[tuple[_Place, _Place, RemainderKind]] = []
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO("\n".join(source.lines) + "\n").readline):
            kind = tokenize.tok_name[token.type]
            if kind == "COMMENT":
                found.append((token.start, token.end, "comment"))
            elif kind == "STRING" or kind.endswith("STRING_MIDDLE"):
                found.append((token.start, token.end, "string"))
    return found


def require_readable(scan: Scan) -> None:
    """Raise ``UsageError`` if a file that has the name cannot be read, because the rename would be incomplete."""
    if scan.unknown:
        listed = join_first(sorted(scan.unknown.values()), most=_MOST_LISTED, separator="\n  ")
        happened = f"{scan.symbol.name} cannot be renamed completely: files with this name are unknown:\n  {listed}"
        raise UsageError(f"{happened}\nNothing was changed.", hint="correct these files first")


def require_own(scan: Scan, *, index: Index) -> None:
    """Raise ``UsageError`` if code outside of the project uses a definition by its name."""
    name = scan.symbol.last_name
    reason = "pytest calls it by this name" if name.startswith("pytest_") and scan.symbol.kind != "variable" else ""
    hint = "keep the name"
    if any(_is_fixture(each, index) for each in scan.targets):
        reason = "it is a fixture, and tests get it by this name"
        hint = f'write @pytest.fixture(name="{name}") first; then only the function is renamed'
    for each, base in _list_outer_bases(scan, name):
        reason = f"{base} has it too, from which {each.name} in {each.path}:{each.line} inherits"
    if reason:
        raise UsageError(f"{scan.symbol.name} keeps its name: {reason}. Nothing was changed.", hint=hint)


def _list_outer_bases(scan: Scan, member: str) -> Iterator[tuple[Symbol, str]]:
    """Yield the related classes with a base, builtin or of the standard library, that has a member."""
    for each in (*scan.family, *scan.ancestors):
        for base, origin in zip(each.bases, each.base_imports, strict=True):
            builtin = None if origin else getattr(builtins, base.partition("[")[0], None)
            if (isinstance(builtin, type) and hasattr(builtin, member)) or _is_in_library(origin, member):
                yield each, base


def _is_fixture(symbol: Symbol, index: Index) -> bool:
    """Return whether tests name a function of pytest in their parameters."""
    source = index.read_source(symbol.path)
    nodes = (each.node for each, known in zip(source.definitions, source.symbols, strict=True) if known == symbol)
    made = (
        each for node in nodes for each in (*getattr(node, "decorator_list", ()), getattr(node, "value", None)) if each
    )
    return any(_makes_fixture(each, source.imports) for each in made)


def _makes_fixture(node: ast.expr, imports: Mapping[str, str]) -> bool:
    """Return whether a decorator, or a value, makes a fixture that has no other name than the function."""
    while isinstance(node, ast.Call):
        if any(each.arg == "name" and not _is_none(each.value) for each in node.keywords):
            return False
        node = node.func
    name = ".".join(list_parts(node))
    return imports.get(name, name).rpartition(".")[2] == "fixture"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_in_library(dotted: str, member: str, *, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether a class of the standard library has a member. Its source is read: an import would run code."""
    module, _, last = dotted.rpartition(".")
    if module in sys.builtin_module_names:  # nothing of it is a file
        return hasattr(getattr(import_module(module), last, None), member)
    source = None if dotted in seen else _read_library(module)
    if source is None:
        return False
    seen |= {dotted}
    stars = {f"{each[:-1]}{last}" for each in source.imports if each.endswith("*")}
    waiting = {source.imports[last]} if last in source.imports else stars
    for each in source.symbols:
        if each.name == f"{last}.{member}":
            return True
        if each.name == last:
            bases = zip(each.bases, each.base_imports, strict=True)
            waiting |= {origin or f"{module}.{base.partition('[')[0]}" for base, origin in bases}
    known = (f"{source.package}{each}" if each.startswith(".") else each for each in waiting)
    return any(_is_in_library(each, member, seen=seen) for each in known)


class _LibraryModule(NamedTuple):
    """A module of the standard library, without its tree."""

    package: str
    """By which its relative imports begin."""
    symbols: tuple[Symbol, ...]
    imports: Mapping[str, str]


@cache
def _read_library(module: str) -> _LibraryModule | None:
    """Return a module of the standard library, if it is one in Python."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        path = Path(sysconfig.get_path("stdlib"), *module.split("."))
        for each, package in ((path.with_suffix(".py"), module.rpartition(".")[0]), (path / "__init__.py", module)):
            with suppress(OSError, UsageError):
                source = SourceFile(str(each), each.read_bytes())
                return _LibraryModule(package, source.symbols, source.imports)
    return None


def require_free(scan: Scan, new: str, *, index: Index) -> None:
    """Raise ``UsageError`` with all places where the new name means something else already."""
    collisions = find_collisions(scan, new, index=index)
    if collisions:
        listed = join_first(collisions, most=_MOST_LISTED, separator="\n  ")
        happened = f"{scan.symbol.name} cannot become {new}, which means something else:\n  {listed}"
        raise UsageError(f"{happened}\nNothing was changed.", hint="choose another name")


def apply_rename(
    plan: RenamePlan,
    *,
    read: Callable[[str], bytes],
    write: Callable[[str, bytes], None],
    check: Callable[[], str] = str,
) -> None:
    """Write all files of a plan, then ``check``, which returns what fails, such as the affected tests.

    If anything fails or is interrupted, all files get their old bytes again. Raises ``UsageError`` if a file has
    changed since the plan was made, or the check fails.
    """
    for path, change in plan.changes.items():
        if read(path) != change.old:
            happened = f"{path} has changed since the rename was planned. Nothing was changed."
            raise UsageError(happened, hint="plan the rename again")
    begun = list[str]()
    try:
        for path, change in plan.changes.items():
            begun.append(path)
            write(path, change.new)
        problem = check()
        if problem:
            happened = (
                f"After {plan.symbol.name} was renamed to {plan.new}, {problem}. All files have their old bytes again."
            )
            raise UsageError(happened, hint="change what needs the old name first, or leave the name")
    except BaseException as error:
        _restore(plan, begun, write=write, error=error)
        raise


def _restore(
    plan: RenamePlan, paths: Collection[str], *, write: Callable[[str, bytes], None], error: BaseException
) -> None:
    """Write the old bytes. A second interruption does not stop it; a file that cannot be written does not either."""
    lost = list[str]()
    for path in paths:
        for is_last in (False, True):
            try:
                write(path, plan.changes[path].old)
            except BaseException as again:  # noqa: BLE001 - an interruption must not leave half of a rename
                if is_last:
                    lost.append(f"{path} ({again or type(again).__name__})")
                continue
            break
    if lost:
        listed = join_first(lost, most=_MOST_LISTED)
        happened = f"The rename to {plan.new} failed ({error}), and the old content could not be written to {listed}."
        raise CddError(happened, hint="restore these files with git") from error


def make_plan(scan: Scan, new: str, *, index: Index, answer: EngineAnswer[TextEdit]) -> RenamePlan:
    """Return the plan with the replacements of an engine; raises as ``make_changes`` does."""
    edits = list_edits(scan, new, found=answer.places)
    changes = make_changes(edits, scan.symbol, new=new, index=index)
    return RenamePlan(
        symbol=scan.symbol,
        new=new,
        changes=changes,
        count=len(edits),
        remaining=list_remaining(index, scan.symbol.last_name, changes=changes),
        answer=answer,
    )
