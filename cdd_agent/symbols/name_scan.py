"""The last engine: uses of a definition by the scopes of its name in each file, and through imports. No types.

A use is sure if scopes and imports lead to the definition; likely, if it is an attribute of an unknown value and no
other definition of the project or method of a builtin type has that name. All others are left out.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from cdd_agent.errors import UsageError, join_first
from cdd_agent.symbols.definitions import SourceFile
from cdd_agent.symbols.index import Index, list_modules
from cdd_agent.symbols.scopes import FileNames, ImportedName, NameScope, NameUse, list_parts
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServerError, TextEdit
from cdd_agent.symbols.watched_files import AnswerContradictsFiles

_STAR = re.compile(rb"import[ \t]*\(?[ \t]*\*")
_BUILTIN_TYPES = (str, bytes, bytearray, list, tuple, dict, set, frozenset, int, float, complex, object, type)
_BUILTIN_NAMES = frozenset(name for each in _BUILTIN_TYPES for name in dir(each))
_MOST_SHOWN_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolUse:
    """A use of the definition that is asked for."""

    path: str
    name: NameUse
    is_sure: bool
    is_alias: bool = False
    """Whether it is an import of the same name from elsewhere, as in ``try: ... except ImportError: ...``."""

    @property
    def is_added(self) -> bool:
        """Whether engines leave such uses out of their renames, though no types are needed to be sure."""
        match self.name.receiver:
            case ast.Call(func=ast.Name(id="super")):
                return self.is_sure
            case _:
                return self.name.kind in ("pattern", "string") or self.is_repeated

    @property
    def is_repeated(self) -> bool:
        """Whether it is in ``import name as name``, by which a package says that it exports the name."""
        source = self.name.source
        return source is not None and source.has_as and source.bound == source.name == self.name.name


@dataclass(kw_only=True)
class Scan:
    """All uses of a definition."""

    symbol: Symbol
    uses: list[SymbolUse]
    files: dict[str, FileNames]
    """The files that have the name, or import everything from another one."""
    exporters: frozenset[str] = frozenset()
    """The files in which the name at module level is the definition."""
    starred: frozenset[str] = frozenset()
    """The files with ``import *`` of one of them."""
    family: tuple[Symbol, ...] = ()
    """Of a member of a class: the classes that inherit it, override it, or from which it is inherited."""
    ancestors: tuple[Symbol, ...] = ()
    """All classes from which the family inherits."""
    targets: tuple[Symbol, ...] = ()
    """The definition, its twins, and the overrides in the family."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Path -> why the uses in a file that has the name are unknown."""

    def require_files(self, places: Iterable[Reference]) -> None:
        """Raise ``AnswerContradictsFiles`` if an answer has no place in a file that certainly uses the definition."""
        known = {self.symbol.path, *(each.path for each in places)}
        # Serena leaves out imports, and uses by another name.
        used = (each for each in self._sure if each.name.kind != "import" and each.path not in known)
        self._refuse((each.path, each.name.line) for each in used)

    def require_all(self, places: Iterable[TextEdit]) -> None:
        """Raise ``AnswerContradictsFiles`` if a rename leaves out a use that is sure; it need not know ``__all__``.

        It also has to rename a variable everywhere in its scope, or nowhere.
        """
        known = {(each.path, each.line, each.column) for each in places}
        missing = [
            (each.path, each.name.line)
            for each in self._sure
            if (each.path, each.name.line, each.name.column) not in known
        ]
        for path, file in self.files.items() if not self.family else ():
            left: dict[NameScope, set[tuple[str, int]]] = {}
            changed = set[NameScope]()
            for use in file.uses:
                if use.name == self.symbol.last_name and use.kind in ("name", "definition"):
                    owner = use.scope.resolve(use.name)
                    if (path, use.line, use.column) in known:
                        changed.add(owner)
                    else:
                        left.setdefault(owner, set()).add((path, use.line))
            missing += (place for owner in changed for place in left.get(owner, ()))
        self._refuse(missing)

    @property
    def _sure(self) -> Iterator["SymbolUse"]:
        return (each for each in self.uses if each.is_sure and not each.is_added)

    def _refuse(self, missing: Iterable[tuple[str, int]]) -> None:
        places = [f"{path}:{line}" for path, line in sorted(set(missing))]
        if places:
            happened = f"It leaves out {join_first(places, most=5)}, where {self.symbol.name} is used."
            raise AnswerContradictsFiles(happened, hint="ask another engine")


class NameScan:
    """Answers by names alone. Its answers are unverified."""

    name = "name scan"

    def __init__(self, index: Index) -> None:
        """Read the files of ``index``."""
        self._index = index
        self._last: tuple[int, Scan, str] | None = None
        """Generation of the index, the scan, and the other name in it."""

    def find_references(self, symbol: Symbol) -> tuple[Reference, ...]:
        """Return the uses of a definition, sure and likely ones."""
        return self.list_references(self.scan(symbol))

    def list_references(self, scan: Scan) -> tuple[Reference, ...]:
        """Return the uses of a scan without the definition itself."""
        found = (each for each in scan.uses if each.name.kind != "definition" and not _is_definition(scan, each))
        return tuple(make_reference(scan.files[each.path], each.name) for each in found)

    def plan_rename(self, symbol: Symbol, new: str) -> tuple[TextEdit, ...]:
        """Return the replacements at all uses, sure and likely ones."""
        return tuple(make_edit(each, new) for each in self.scan(symbol).uses)

    def note_changes(self, paths: Collection[str]) -> None:
        """Do nothing: the index sees changes by itself."""

    def close(self) -> None:
        """Do nothing: no program runs."""

    def scan(self, symbol: Symbol, *, also: str = "") -> Scan:
        """Read all files with the name of a definition; ``also``: another name whose bindings are wanted."""
        self._index.refresh()
        if self._last is not None:
            generation, last, other = self._last
            if generation == self._index.generation and last.symbol == symbol and also in ("", other):
                return last
        scan = self._read(symbol, also=also)
        self._last = self._index.generation, scan, also
        return scan

    def _read(self, symbol: Symbol, *, also: str) -> Scan:
        names = {symbol.last_name, also} - {""}
        scan = Scan(symbol=symbol, uses=[], files={})
        project = _ModuleMap(self._index)
        word = re.compile(rb"(?<!\w)%b(?!\w)" % re.escape(symbol.last_name.encode()))
        for path in project.paths:
            try:
                content = self._index.read(path)
            except UsageError as error:
                scan.unknown[path] = error.happened
                continue
            # A name in other than ASCII has other bytes in other encodings.
            has_name = bool(word.search(content)) or not (symbol.last_name.isascii() or content.isascii())
            if not has_name and not _STAR.search(content):
                continue
            try:
                scan.files[path] = FileNames(SourceFile(path, content), names)
            except UsageError as error:
                if has_name:
                    scan.unknown[path] = error.happened
        if symbol.path not in scan.files:
            raise SymbolServerError(
                scan.unknown.get(symbol.path, f"{symbol.path} does not hold {symbol.last_name} any longer."),
                hint="find the definition again",
            )
        outer = symbol.name.rpartition(".")[0]
        around = next((each for each in project.list_file(symbol.path) if each.name == outer), None)
        if not outer:
            _ModuleScan(scan, project).run()
        elif around is not None and around.kind == "class":
            _scan_members(scan, project, owner=around)
        else:
            _scan_local(scan, project, outer=outer)
        scan.uses.sort(key=lambda each: (each.path, each.name.line, each.name.column))
        return scan


_ClassKey: TypeAlias = tuple[str, str, int | None]


def _key(each: Symbol) -> _ClassKey:
    return each.path, each.name, each.index


class _ModuleMap:
    """The modules and classes of the index, as of one question."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.paths = index.list_paths()
        self._packages = {path.rpartition("/")[0] for path in self.paths if path.rpartition("/")[2] == "__init__.py"}

    def list_file(self, path: str) -> tuple[Symbol, ...]:
        return self._index.list_last_read(path)

    def find(self, name: str) -> tuple[Symbol, ...]:
        return self._index.find(name)

    @cached_property
    def _modules(self) -> dict[str, list[str]]:
        """Dotted name -> the files that are imported by it: a name begins where no package is around."""
        found: dict[str, list[str]] = {}
        for path in self.paths:
            folders = path.split("/")[:-1]
            for at, dotted in enumerate(list_modules(path)):
                if "/".join(folders[:at]) not in self._packages or at == 0:
                    found.setdefault(dotted, []).append(path)
        return found

    def resolve(self, dotted: str, *, level: int = 0, path: str = "") -> list[str]:
        """Return the files of a module that ``path`` imports."""
        if not level:
            return self._modules.get(dotted, [])
        folders = path.split("/")[:-1]
        if level > len(folders) + 1:
            return []
        base = "/".join([*folders[: len(folders) - level + 1], *(dotted.split(".") if dotted else ())])
        wanted = [f"{base}.py", f"{base}.pyi", f"{base}/__init__.py".lstrip("/")]
        return [each for each in wanted if each in self._known]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.paths)

    @cached_property
    def classes(self) -> list[Symbol]:
        return [each for path in self.paths for each in self.list_file(path) if each.kind == "class"]

    def list_family(self, owner: Symbol, member: str) -> tuple[Symbol, ...]:
        """Return the classes related to ``owner`` that have ``member`` from each other."""
        waiting, found = [owner], dict[_ClassKey, Symbol]()
        while waiting:
            each = waiting.pop()
            if _key(each) not in found:
                found[_key(each)] = each
                waiting += self._children.get(_key(each), ())
                waiting += (parent for parent in self.list_ancestors([each]) if self._defines(parent, member))
        return tuple(found.values())

    def list_ancestors(self, classes: Iterable[Symbol]) -> tuple[Symbol, ...]:
        """Return the classes of the project that these inherit from."""
        waiting, found = [*classes], dict[_ClassKey, Symbol]()
        while waiting:
            for parent in self._parents.get(_key(waiting.pop()), ()):
                if _key(parent) not in found:
                    found[_key(parent)] = parent
                    waiting.append(parent)
        return tuple(found.values())

    def _defines(self, each: Symbol, member: str) -> bool:
        return any(other.name == f"{each.name}.{member}" for other in self.list_file(each.path))

    @cached_property
    def _by_name(self) -> dict[str, list[Symbol]]:
        found: dict[str, list[Symbol]] = {}
        for each in self.classes:
            found.setdefault(each.last_name, []).append(each)
        return found

    @cached_property
    def _parents(self) -> dict[_ClassKey, list[Symbol]]:
        return {_key(each): self._list_parents(each) for each in self.classes if each.bases}

    @cached_property
    def _children(self) -> dict[_ClassKey, list[Symbol]]:
        found: dict[_ClassKey, list[Symbol]] = {}
        for each in self.classes:
            for parent in self._parents.get(_key(each), ()):
                found.setdefault(_key(parent), []).append(each)
        return found

    def _list_parents(self, each: Symbol) -> list[Symbol]:
        found = list[Symbol]()
        for base, origin in zip(each.bases, each.base_imports, strict=True):
            known = self._by_name.get(re.sub(r"\[.*", "", base, flags=re.DOTALL).rpartition(".")[2], [])
            own = [other for other in known if other.path == each.path]
            if origin and not own:
                known = self._find_imported(origin, path=each.path, seen=set())
            found += [other for other in own or known if other != each]
        return found

    def _find_imported(self, origin: str, *, path: str, seen: set[tuple[str, str]]) -> list[Symbol]:
        """Return the classes that a file imports under a dotted name; of another library, none."""
        if (origin, path) in seen:
            return []
        seen.add((origin, path))
        dotted = origin.lstrip(".")
        module, _, last = dotted.rpartition(".")
        known = self._by_name.get(last, [])
        files = self.resolve(module, level=len(origin) - len(dotted), path=path)
        found = [each for each in known if each.name == last and each.path in files]
        if not files:
            found = [each for each in known if dotted in (f"{name}.{each.name}" for name in list_modules(each.path))]
        for passing in files if not found else ():  # a file that imports the class from another one
            imports = self._read_imports(passing)
            stars = (f"{each[:-1]}{last}" for each in imports if each.endswith("*"))
            for further in [imports[last]] if last in imports else stars:
                found += self._find_imported(further, path=passing, seen=seen)
        return found

    def _read_imports(self, path: str) -> Mapping[str, str]:
        try:
            return self._index.read_source(path).imports
        except UsageError:
            return {}


class _ModuleScan:
    """Finds the uses of a definition at module level."""

    def __init__(self, scan: Scan, project: _ModuleMap) -> None:
        self._scan, self._project, self._name = scan, project, scan.symbol.name
        scan.exporters = frozenset(self._list_exporters())
        scan.starred = frozenset(
            path
            for path, file in scan.files.items()
            if any(each.name == "*" and self._leads_to(each, file) for each in file.imports)
        )
        scan.targets = tuple(each for each in project.list_file(scan.symbol.path) if each.name == self._name)

    def run(self) -> None:
        """Add the uses to the scan."""
        for path, file in self._scan.files.items():
            owners = {
                each.scope.resolve(self._name)
                for each in file.imports
                if each.bound == each.name == self._name and self._leads_to(each, file)
            }
            if path in self._scan.exporters:
                owners.add(file.module)
            for use in file.uses:
                is_alias = self._is_alias(use, file) and use.scope in owners
                if use.name == self._name and (is_alias or self._is_use(use, file, owners=owners)):
                    self._scan.uses.append(SymbolUse(path=path, name=use, is_sure=True, is_alias=is_alias))

    def _is_use(self, use: NameUse, file: FileNames, *, owners: Collection[NameScope]) -> bool:
        match use.kind:
            case "name" | "definition":
                return use.scope.resolve(self._name) in owners
            case "import":
                return use.source is not None and use.source.name == self._name and self._leads_to(use.source, file)
            case "attribute":
                return self._is_attribute_of_module(use, file)
            case "string":
                return use.scope is file.module and file.path in self._scan.exporters
            case _:
                return False

    def _is_alias(self, use: NameUse, file: FileNames) -> bool:
        """Return whether the same name is imported from elsewhere, as after ``except ImportError``."""
        source = use.source
        if source is None or source.has_as or source.bound != use.name:
            return False
        return not (source.name and self._leads_to(source, file))

    def _list_exporters(self) -> set[str]:
        found, is_changed = {self._scan.symbol.path}, True
        while is_changed:
            is_changed = False
            for path, file in self._scan.files.items():
                if path not in found and any(self._exports(each, file, found=found) for each in file.imports):
                    found.add(path)
                    is_changed = True
        return found

    def _exports(self, each: ImportedName, file: FileNames, *, found: Collection[str]) -> bool:
        """Return whether an import at module level binds the name to the definition."""
        is_star = each.name == "*" and "code" not in file.module.bound.get(self._name, ())
        if each.scope is not file.module or not (is_star or each.bound == each.name == self._name):
            return False
        sources = self._project.resolve(each.module, level=each.level, path=file.path)
        known = (self._scan.files[path] for path in sources if path in found)
        return any(not is_star or is_exported(source, self._name) for source in known)

    def _leads_to(self, each: ImportedName, file: FileNames) -> bool:
        found = self._project.resolve(each.module, level=each.level, path=file.path)
        return not self._scan.exporters.isdisjoint(found)

    def _is_attribute_of_module(self, use: NameUse, file: FileNames) -> bool:
        """Return whether an attribute is that of a module in which the name is the definition."""
        first, *rest = list_parts(use.receiver) or [""]
        owner = use.scope.resolve(first)
        for each in file.imports:
            if each.bound == first and each.scope is owner:
                whole = [each.module, each.name, *rest]
                for parts in [whole] if each.name else [whole, [first, *rest]]:  # with another name, and without
                    dotted = ".".join(filter(None, parts))
                    found = self._project.resolve(dotted, level=each.level, path=file.path)
                    if not self._scan.exporters.isdisjoint(found):
                        return True
        return False


def is_exported(file: FileNames, name: str) -> bool:
    """Return whether ``import *`` of a file brings a name."""
    return name in file.exports if file.exports is not None else not name.startswith("_")


def _scan_members(scan: Scan, project: _ModuleMap, *, owner: Symbol) -> None:
    """Find the uses of a method or variable of a class."""
    name = scan.symbol.last_name
    scan.family = project.list_family(owner, name)
    scan.ancestors = project.list_ancestors(scan.family)
    keys = {(each.path, each.name) for each in scan.family}
    scan.targets = tuple(
        each
        for path in sorted({path for path, _ in keys})
        for each in project.list_file(path)
        if each.last_name == name and (path, each.name.rpartition(".")[0]) in keys
    )
    others = {each.last_name for each in project.classes if (each.path, each.name) not in keys}
    names = frozenset(each.last_name for each in scan.family) - others
    known = {each for each in project.find(name) if each.last_name == name}
    is_unique = known <= set(scan.targets) and name not in _BUILTIN_NAMES and not hasattr(builtins, name)
    for path, file in scan.files.items():
        for use in file.uses:
            if use.name != name:
                continue
            answer: bool | None = False
            if use.kind in ("name", "definition"):
                inside = use.scope.resolve(name)
                answer = inside.kind == "class" and (path, inside.name) in keys
            elif use.kind == "string":
                answer = use.scope.kind == "class" and (path, use.scope.name) in keys
            elif use.kind in ("keyword", "pattern") and use.receiver is not None:
                is_field = use.kind == "pattern" or scan.symbol.kind == "variable"
                answer = None if is_field and (list_parts(use.receiver) or [""])[-1] in names else False
            elif use.kind == "attribute" and use.receiver is not None:
                answer = _is_member(use.receiver, use.scope, path=path, keys=keys, names=names)
                answer = False if answer is None and not is_unique else answer
            if answer is not False:
                scan.uses.append(SymbolUse(path=path, name=use, is_sure=answer is True))


def _is_member(
    receiver: ast.expr, scope: NameScope, *, path: str, keys: Collection[tuple[str, str]], names: Collection[str]
) -> bool | None:
    """Return whether a value is of the family; None if its class is unknown."""
    scopes = (each for each in scope.list_around() if each.parent is not None and each.parent.kind == "class")
    method = next(scopes, None)
    around = method.parent if method is not None and method.kind == "function" else None
    match receiver:
        case ast.Name(id=word):
            if method is not None and around is not None and word == method.receiver and scope.resolve(word) is method:
                return (path, around.name) in keys
            owner = scope.resolve(word)
            # A parameter or a variable may have the name of a class.
            is_class = word in names and (owner.kind != "function" or "import" in owner.bound[word])
            return True if is_class or owner.types.get(word, "") in names else None
        case ast.Call(func=ast.Name(id="super")):
            return around is not None and (path, around.name) in keys
        case ast.Call(func=called):
            return True if (list_parts(called) or [""])[-1] in names else None
        case ast.Attribute(value=ast.Name(id=module), attr=word):
            is_imported = "import" in scope.resolve(module).bound.get(module, ())
            return True if word in names and is_imported else None
        case _:
            return None


def _scan_local(scan: Scan, project: _ModuleMap, *, outer: str) -> None:
    """Find the uses of a function inside of another one."""
    name = scan.symbol.last_name
    scan.targets = tuple(each for each in project.list_file(scan.symbol.path) if each.name == scan.symbol.name)
    for use in scan.files[scan.symbol.path].uses:
        if use.name == name and use.kind in ("name", "definition"):
            inside = use.scope.resolve(name)
            if inside.kind == "function" and inside.name == outer:
                scan.uses.append(SymbolUse(path=scan.symbol.path, name=use, is_sure=True))


def _is_definition(scan: Scan, use: SymbolUse) -> bool:
    places = {(each.path, each.name_line, each.name_column) for each in scan.targets}
    return (use.path, use.name.line, use.name.column) in places


def make_reference(file: FileNames, use: NameUse) -> Reference:
    """Return a use as a reference."""
    text = file.texts[use.line][:_MOST_SHOWN_LINE]
    return Reference(path=file.path, line=use.line, column=use.column, text=text, inside=use.scope.name)


def make_edit(use: SymbolUse, new: str) -> TextEdit:
    """Return the replacement at a use."""
    name = use.name
    text = f"{name.name} as {new}" if use.is_alias else new
    end = name.column + len(name.name)
    return TextEdit(path=use.path, line=name.line, column=name.column, end_line=name.line, end_column=end, new=text)
