"""What each module of a skeleton imports. Pure.

Imports follow the dependencies of the nodes. Where modules need each other, the import that would close the circle is
inside the functions that need it.
"""

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.contents import GlobalName, PlannedModule, list_early
from cdd_agent.generation.signatures import parse_code
from cdd_agent.untrusted.python_source import list_imports


@dataclass(kw_only=True)
class ModuleImports:
    """The imports that the skeleton adds to a module. GlobalName -> local name."""

    top: dict[GlobalName, str] = field(default_factory=dict)
    typed: dict[GlobalName, str] = field(default_factory=dict)
    """Of annotations alone."""
    local: dict[str, dict[GlobalName, str]] = field(default_factory=dict)
    """Qualified name -> imports inside its functions."""
    exports: dict[str, str] = field(default_factory=dict)
    """Of a package: public name -> its module."""
    is_lazy: bool = False
    """Whether the exports are imported when they are first used."""


Edges: TypeAlias = dict[str, set[str]]
"""Module -> modules that it loads when it is imported, with their packages."""


def plan_imports(modules: Mapping[str, PlannedModule]) -> dict[str, ModuleImports]:
    """Return module -> the imports that it gets."""
    plan = {name: ModuleImports() for name in modules}
    classes = _find_unique_classes(modules)
    edges: Edges = {name: set() for name in modules}
    for name, module in modules.items():
        edges[name].update(*(_list_loaded(name, target) for target in _list_code_imports(module, modules)))
    movable = list[tuple[PlannedModule, str, GlobalName, bool]]()
    for module in modules.values():
        for qualified, symbol in _list_wanted(module, classes=classes):
            early, typed = list_early(module.pieces[qualified]), list_names(module.pieces[qualified])
            if symbol.name and symbol.name in early:
                plan[module.name].top[symbol] = ""
                edges[module.name] |= _list_loaded(module.name, symbol.module)
            else:
                movable.append((module, qualified, symbol, symbol.name in typed))
    needed = {(module.name, symbol) for module, qualified, symbol, _ in movable if symbol in module.needs[qualified]}
    has_circle = _has_circle(edges, ((name, symbol.module) for name, symbol in needed))
    for module, qualified, symbol, is_typed in movable:
        imports = plan[module.name]
        is_needed = symbol in module.needs[qualified]
        loaded = _list_loaded(module.name, symbol.module)
        is_free = is_needed and not (has_circle and _can_reach(edges, loaded, end=module.name))
        if symbol.module in edges[module.name] or is_free:
            imports.top[symbol] = ""
            edges[module.name] |= loaded
            continue
        if is_needed:
            imports.local.setdefault(qualified, {})[symbol] = ""
        if is_typed:
            imports.typed[symbol] = ""
    for module in modules.values():
        _name_imports(module, plan[module.name])
    _plan_exports(modules, plan, edges=edges)
    return plan


def _find_unique_classes(modules: Mapping[str, PlannedModule]) -> dict[str, GlobalName]:
    """Return name -> symbol for the classes whose name no other class has."""
    found: dict[str, list[GlobalName]] = {}
    for module in modules.values():
        for name, statements in module.groups.items():
            if any(isinstance(each, ast.ClassDef) for each in statements):
                found.setdefault(name, []).append(GlobalName(module.name, name))
    return {name: symbols[0] for name, symbols in found.items() if len(symbols) == 1}


def _list_wanted(module: PlannedModule, *, classes: Mapping[str, GlobalName]) -> Iterator[tuple[str, GlobalName]]:
    """Yield qualified name and symbol for what a module has to import, without what its code imports."""
    if module.has_all_imports:
        return
    own = read_bindings(module)
    for qualified, needs in module.needs.items():
        typed = list_names(module.pieces[qualified]) - own.names.keys() - module.groups.keys()
        wanted = [*needs, *(classes[name] for name in sorted(typed & classes.keys()))]
        for symbol in dict.fromkeys(wanted):
            if symbol.module != module.name and not own.has(symbol):
                yield qualified, symbol


def list_names(statements: Iterable[ast.AST]) -> set[str]:
    """Return the names in definitions without their bodies, also of annotations that are texts."""
    found = set[str]()
    for node in (inner for each in statements for inner in ast.walk(each)):
        match node:
            case ast.Name(id=name):
                found.add(name)
            case (
                ast.arg(annotation=ast.Constant(value=str(text)))
                | ast.FunctionDef(returns=ast.Constant(value=str(text)))
            ):
                found |= set(re.findall(r"[^\W\d]\w*", text))
            case _:
                pass
    return found


@dataclass(kw_only=True)
class Bindings:
    """The names that module-level code binds."""

    names: dict[str, GlobalName | None] = field(default_factory=dict)
    """Name -> what it is imported from; None for an assignment or a definition."""
    stars: list[str] = field(default_factory=list)
    """Modules of ``from M import *``."""
    modules: set[str] = field(default_factory=set)
    """All modules that are imported, or imported from."""

    def has(self, symbol: GlobalName) -> bool:
        """Return whether the code imports a symbol or its module, under any name."""
        return symbol.module in self.modules or (symbol.name in self.names and self.names[symbol.name] is not None)


def read_bindings(module: PlannedModule) -> Bindings:
    """Return the names that the code of a module binds."""
    tree = parse_code(module.code)
    nodes = (inner for each in (tree.body if tree is not None else ()) for inner in iterate_block(each))
    return collect_bindings(nodes, module)


def collect_bindings(nodes: Iterable[ast.AST], module: PlannedModule) -> Bindings:
    """Return the names that single nodes of a module bind."""
    found = Bindings()
    for node in nodes:
        match node:
            case ast.Import() | ast.ImportFrom():
                for each in list_imports(node):
                    source = _resolve_relative(each.module, module)
                    found.modules.add(source)
                    if each.name == "*":
                        found.stars.append(source)
                    elif each.name:
                        found.names[each.bound] = GlobalName(source, each.name)
                        found.modules.add(f"{source}.{each.name}")
                    else:
                        found.names[each.bound] = GlobalName(each.origin, "")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.names[name] = None
            case ast.Name(id=name, ctx=ast.Store()):
                found.names.setdefault(name, None)
            case _:
                pass
    return found


def _resolve_relative(name: str, module: PlannedModule) -> str:
    dotted = name.lstrip(".")
    parts, level = module.package.split("."), len(name) - len(dotted)
    return ".".join(filter(None, (*parts[: len(parts) - level + 1], dotted))) if level else name


def iterate_block(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run when the module is imported, without those inside of definitions."""
    yield node
    if isinstance(node, Function | ast.ClassDef | ast.Lambda):
        return
    inner = [*ast.iter_child_nodes(node)]
    if isinstance(node, ast.If) and read_last_name(node.test) == "TYPE_CHECKING":
        inner = [*node.orelse]
    for each in inner:
        yield from iterate_block(each)


def _list_code_imports(module: PlannedModule, modules: Mapping[str, PlannedModule]) -> set[str]:
    return {name for name in read_bindings(module).modules if name in modules} - {module.name}


def _has_circle(edges: Edges, more: Iterable[tuple[str, str]]) -> bool:
    everything: Edges = {name: {*targets} for name, targets in edges.items()}
    for source, target in more:
        everything[source] |= _list_loaded(source, target)
    try:
        graphlib.TopologicalSorter(everything).prepare()
    except graphlib.CycleError:
        return True
    return False


def _can_reach(edges: Mapping[str, Collection[str]], starts: Iterable[str], *, end: str) -> bool:
    """Return whether one of the modules imports another in the end."""
    waiting, seen = [*starts], set[str]()
    while waiting:
        name = waiting.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            waiting += edges.get(name, ())
    return False


def _name_imports(module: PlannedModule, imports: ModuleImports) -> None:
    """Give each symbol its local name: its own, unless that is taken."""
    local = {symbol: "" for each in imports.local.values() for symbol in each}
    names: dict[str, GlobalName | None] = {**read_bindings(module).names, **dict.fromkeys(module.groups)}
    chosen = dict[GlobalName, str]()
    for symbol in sorted({**imports.top, **imports.typed, **local}):
        parent, _, last = symbol.module.rpartition(".")
        parts = (last, symbol.name) if symbol.name else (parent.rpartition(".")[2], last)
        for name in (
            parts[1],
            "_".join(filter(None, parts)),
            f"{symbol.module}.{symbol.name}".strip(".").replace(".", "_"),
        ):
            if name not in names:
                break
        names[name] = symbol
        chosen[symbol] = name
    for each in (imports.top, imports.typed, *imports.local.values()):
        each.update({symbol: chosen[symbol] for symbol in each})


def _plan_exports(modules: Mapping[str, PlannedModule], plan: Mapping[str, ModuleImports], *, edges: Edges) -> None:
    """Choose what each package exports, and which packages would import their modules in a circle."""
    for module in modules.values():
        if not module.can_export:
            continue
        children = {name: each for name, each in modules.items() if name.rpartition(".")[0] == module.name}
        inside = {name: each for name, each in children.items() if not each.is_package}
        public = [(name, child) for child, each in inside.items() for name in each.groups if not name.startswith("_")]
        counts = Counter(name for name, _ in public)
        taken = {child.rpartition(".")[2] for child in children} | module.groups.keys()
        exports = {name: child for name, child in public if counts[name] == 1 and name not in taken}
        imports = plan[module.name]
        imports.exports, sources = dict(sorted(exports.items())), {*exports.values()}
        imports.is_lazy = _can_reach(edges, sources, end=module.name)
        if not imports.is_lazy:
            edges[module.name] |= sources


def _list_loaded(name: str, target: str) -> set[str]:
    """Return what an import of ``target`` loads: it and its packages, without those that ``name`` is in."""

    def list_all(path: str) -> set[str]:
        parts = path.split(".")
        return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}

    return (list_all(target) - list_all(name)) | {target}
