"""Compares the dependencies of the generated code with those of the graph. Pure.

The code is cut into *units*: the definitions of nodes, and all other functions and classes of a module. The uses of a
unit that belongs to no node count for the nodes that use it.
"""

import ast
import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.import_plan import Bindings
from cdd_agent.generation.layout import INIT, Layout
from cdd_agent.generation.object_classes import CodePlace, Key, ObjectClasses
from cdd_agent.generation.outcome import Dependencies, Edge
from cdd_agent.generation.references import (
    Piece,
    References,
    SourceModule,
    Variable,
    drop_annotations,
    list_definitions,
    list_dotted,
    list_local_imports,
    make_piece,
    read_module,
)
from cdd_agent.generation.signatures import parse_code
from cdd_agent.symbols.scopes import read_all_names
from cdd_agent.tickets.graph import Graph, Node, NodeId, find_needs
from cdd_agent.untrusted.python_source import list_quoted_types, with_deep_stack

_MADE_BY = ("__init__", "__new__", "__post_init__")
"""Methods that run when a class is called."""
_BY_NAME: Mapping[str, int] = {
    **dict.fromkeys(("getattr", "hasattr"), 1),
    **dict.fromkeys(("attrgetter", "methodcaller", "import_module", "__import__"), 0),
}
"""Function that finds something by its name -> the position of the name."""
_BY_CODE = ("eval", "exec", "globals", "vars", "locals")
"""Functions with which code reaches any name."""


@with_deep_stack
def compare_dependencies(
    graph: Graph,
    layout: Layout,
    *,
    files: Mapping[str, str],
    passed: Collection[NodeId],
    exported: Iterable[str] = (),
    entering: Mapping[NodeId, Collection[str]] | None = None,
) -> Dependencies:
    """Compare the dependencies of the nodes that have passed.

    ``files``: path -> text of the code; ``exported``: import paths that are used from outside, as ``app.cli:main``;
    ``entering``: node -> the tests that enter it, where that was traced.
    """
    code = _Code(graph=graph, layout=layout, files=files)
    return _EdgeComparison(code=code, passed=frozenset(passed), entering=entering or {}).compare(exported)


@dataclass(kw_only=True)
class _Uses:
    """The uses of a unit."""

    certain: dict[Key, str] = field(default_factory=dict)
    """Unit -> place."""
    indirect: set[Key] = field(default_factory=set)
    """Units that only its annotations name, or that variables which it uses are made of."""
    names: set[str] = field(default_factory=set)
    """Attributes of objects whose class is unknown."""
    prefixes: set[str] = field(default_factory=set)
    """How the names begin that it looks up; an empty one: any name."""
    texts: set[str] = field(default_factory=set)
    """Texts that can be names."""


@dataclass(frozen=True, kw_only=True)
class _Code:
    """The code of a repository, and the nodes to which it belongs."""

    graph: Graph
    layout: Layout
    files: Mapping[str, str]

    @cached_property
    def modules(self) -> Mapping[str, SourceModule]:
        """The modules that can be parsed."""
        found = {}
        for path, text in self.files.items():
            source = read_module(path, text, cut=_cut_definitions) if path.endswith(".py") else None
            if source is not None:
                found[source.module.name] = source
        return found

    @cached_property
    def references(self) -> References:
        """What names refer to."""
        return References(self.modules)

    @cached_property
    def classes(self) -> ObjectClasses:
        """The classes and their members."""
        return ObjectClasses(modules=self.modules, references=self.references)

    @cached_property
    def owners(self) -> Mapping[Key, NodeId]:
        """Definition -> its node, also of classes that are composites."""
        found = {
            (self.layout.module_of(each.file_path), each.name): node.id
            for node in self.graph.leaves
            for each in node.definitions
        }
        composites = (node for node in self.graph.nodes if node.node_type == "composite" and node.file_path)
        keys = {(self.layout.module_of(node.file_path), node.name): node.id for node in composites}
        return {**{key: id for key, id in keys.items() if key in self.classes.definitions}, **found}

    @cached_property
    def units(self) -> Mapping[Key, tuple[ast.stmt, ...]]:
        """Definition that is a unit -> its statements, without those of units inside of it."""
        found: dict[Key, list[ast.stmt]] = {}
        for key, nodes in self.classes.definitions.items():
            if key in self.owners or "." not in key[1]:
                found[key] = [self._prune(node, key) for node in nodes]
        for key in self.owners:
            source = self.modules.get(key[0])
            if source is not None and key not in found and key[1] in source.variables:
                found[key] = source.variables[key[1]]
        return {key: tuple(statements) for key, statements in found.items()}

    def _prune(self, node: Function | ast.ClassDef, key: Key) -> ast.stmt:
        """Return a definition without the members that belong to other nodes."""
        if not isinstance(node, ast.ClassDef):
            return node
        pruned, body = copy.copy(node), list[ast.stmt]()
        for each in node.body:
            own = (key[0], f"{key[1]}.{each.name}") if isinstance(each, Function | ast.ClassDef) else key
            if own == key or own not in self.owners:
                body.append(self._prune(each, own) if isinstance(each, ast.ClassDef) else each)
        pruned.body = body or [ast.Pass()]
        return pruned

    def find_unit(self, key: Key) -> Key:
        """Return the unit that contains a definition."""
        while key not in self.units and "." in key[1]:
            key = (key[0], key[1].rpartition(".")[0])
        return key

    def find_place(self, key: Key) -> str:
        """Return path and line of a unit."""
        line = min((each.lineno for each in self.units.get(key, ())), default=1)
        return f"{self.modules[key[0]].module.path}:{line}" if key[0] in self.modules else key[0]

    @cached_property
    def uses(self) -> Mapping[Key, _Uses]:
        """Unit -> what it uses."""
        found = {key: self._read_uses(key) for key in self.units}
        for key in self.units.keys() - self.owners.keys():
            # Such as @render.register: the function is a part of what decorates it.
            decorating = (each for node in self.units[key] for each in getattr(node, "decorator_list", ()))
            for dotted in list_dotted(decorating):
                path = self.references.follow(self.modules[key[0]], dotted)
                if path and isinstance(piece := path[-1], Piece):
                    found[self.find_unit((piece.source.module.name, piece.name))].indirect.add(key)
        return found

    @cached_property
    def module_uses(self) -> Mapping[str, _Uses]:
        """Module -> what its code uses that belongs to no definition."""
        return {name: self._read_module(source) for name, source in self.modules.items()}

    def _read_module(self, source: SourceModule) -> _Uses:
        found = _Uses()
        body = [each for each in source.tree.body if not isinstance(each, Function | ast.ClassDef)]
        shown = [each for each in body if not _is_listing(each)]
        if not source.module.is_package:
            _read_texts(shown, found)
        for dotted, line in list_dotted(shown).items():
            self._add(dotted, source, found=found, line=line)
        return found

    def _read_uses(self, key: Key) -> _Uses:
        source, statements, found = self.modules[key[0]], self.units[key], _Uses()
        local = list_local_imports(statements, source)
        imports = Bindings(names={**source.typed.names, **local.names})
        bare = drop_annotations(statements)
        for dotted, line in list_dotted(bare, local=local.names).items():
            self._add(dotted, source, found=found, line=line, imports=imports)
        typed = _Uses()
        for dotted in list_dotted([*statements, *_list_quoted(statements)], local=imports.names):
            self._add(dotted, source, found=typed, imports=imports)
        found.indirect |= typed.certain.keys() - found.certain.keys()
        around = key[1].rpartition(".")[0]
        owner = (key[0], around) if (key[0], around) in self.classes.definitions else None
        place = CodePlace(source=source, owner=owner, around=owner, imports=imports)
        for statement in statements:
            self._read_attributes(statement, place, found=found)
        _read_texts(bare, found)
        return found

    def _read_attributes(self, statement: ast.stmt, place: CodePlace, *, found: _Uses) -> None:
        for each in self.classes.list_attributes(statement, place):
            if each.owner is None:
                found.names.add(each.name)
            elif each.owner.key is not None:
                member = self.classes.find_member(each.owner.key, each.name)
                if member is not None:
                    found.certain.setdefault(self.find_unit(member), f"{place.source.module.path}:{each.line}")

    def _add(
        self,
        dotted: tuple[str, ...],
        source: SourceModule,
        *,
        found: _Uses,
        line: int = 0,
        imports: Bindings | None = None,
    ) -> None:
        """Add to ``found`` what a dotted name uses."""
        path, place = self.references.follow(source, dotted, local=imports), f"{source.module.path}:{line}"
        if not path:
            return
        match path[-1]:
            case Piece() as piece:
                for key in self._list_targets(piece, dotted[len(path) :]):
                    found.certain.setdefault(key, place)
            case Variable() as variable if (own := (variable.source.module.name, variable.name)) in self.units:
                found.certain.setdefault(own, place)
            case Variable() as variable:
                behind = self.references.list_behind(variable)
                found.indirect |= {key for piece in behind for key in self._list_targets(piece, ())}
            case SourceModule() as module if len(path) == len(dotted):
                # The module itself is passed on: any of its names can be used.
                found.names |= module.owners.keys()

    def _list_targets(self, piece: Piece, rest: tuple[str, ...]) -> Iterator[Key]:
        """Yield the units that a use of a function or class reaches, with the attributes after it."""
        key = (piece.source.module.name, piece.name)
        yield self.find_unit(key)
        names = rest[:1] or _MADE_BY
        members = (self.classes.find_member(key, name) for name in names)
        yield from (self.find_unit(member) for member in members if member is not None)


def _cut_definitions(source: SourceModule) -> Iterator[Piece]:
    for each in list_definitions(source.tree.body):
        yield make_piece(source, [each], name=each.name, names=[each.name])


def _is_listing(node: ast.stmt) -> bool:
    """Return whether a statement lists the names that a module exports."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return any(read_last_name(each) == "__all__" for each in targets)


def _list_quoted(statements: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the expressions in annotations that are texts."""
    for node in (inner for each in statements for inner in ast.walk(each)):
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        for inner in list_quoted_types(annotation) if isinstance(annotation, ast.expr) else ():
            tree = parse_code(str(inner.value))
            yield from (each.value for each in (tree.body if tree else ()) if isinstance(each, ast.Expr))


def _read_texts(statements: Iterable[ast.AST], found: _Uses) -> None:
    """Add the texts that can be names, and the names that are looked up."""
    for node in (inner for each in statements for inner in ast.walk(each)):
        match node:
            case ast.Constant(value=str(text)):
                found.texts.add(text.rpartition(".")[2])
            case ast.Call(func=function, args=arguments):
                name = read_last_name(function)
                for each in arguments[(at := _BY_NAME[name]) : at + 1] if name in _BY_NAME else ():
                    if isinstance(each, ast.Constant):
                        found.names.add(str(each.value).rpartition(".")[2])
                    else:
                        found.prefixes.add(_find_prefix(each))
                if name in _BY_CODE:
                    found.prefixes.add("")
            case _:
                pass


def _find_prefix(node: ast.expr) -> str:
    """Return how a text begins that is made when the code runs."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
        case ast.BinOp(op=ast.Add(), left=ast.Constant(value=str(text))):
            return text
        case _:
            return ""


@dataclass(frozen=True, kw_only=True)
class _EdgeComparison:
    """Compares what nodes use with what they should need."""

    code: _Code
    passed: frozenset[NodeId]
    entering: Mapping[NodeId, Collection[str]]

    def compare(self, exported: Iterable[str]) -> Dependencies:
        """Return the comparison."""
        edges: dict[str, list[Edge]] = {"confirmed": [], "entered": [], "missing": [], "unknown": []}
        for edge in self._list_planned():
            edges[self._judge(edge)].append(edge)
        possible = {target for _, target in edges["unknown"]}
        unused = {id: place for id, place in self._list_unused({*exported}) if id not in possible}
        used = {
            id: dict.fromkeys((*self._reach[id].certain, *self._reach[id].indirect, *_follow(edges["entered"], id)))
            for id in self._reach
        }
        return Dependencies(
            **{name: tuple(found) for name, found in edges.items()},
            extra=dict(self._list_extra()),
            unused=unused,
            actual={node.id: tuple(sorted(used[node.id])) for node in self._leaves},
        )

    @cached_property
    def _leaves(self) -> tuple[Node, ...]:
        return tuple(node for node in self.code.graph.leaves if node.id in self.passed)

    @cached_property
    def _reach(self) -> Mapping[NodeId, "_NodeUses"]:
        """Node that has passed -> what it uses, directly or through code of no node."""
        return {node.id: self._find_uses(node) for node in self._leaves}

    def _find_uses(self, node: Node) -> "_NodeUses":
        code, found = self.code, _NodeUses()
        keys = [(code.layout.module_of(each.file_path), each.name) for each in node.definitions]
        waiting, seen = [code.find_unit(key) for key in keys], set[Key]()
        while waiting:
            key = waiting.pop()
            uses = code.uses.get(key)
            if uses is None:
                found.prefixes.add("")  # the code of the node is not where the graph has it
            if uses is None or key in seen:
                continue
            seen.add(key)
            for module in {key[0], *(target[0] for target in uses.certain)}:
                code_at_import = code.module_uses[module]
                found.loaded |= {code.owners[each] for each in code_at_import.certain if each in code.owners}
            found.names |= uses.names
            found.prefixes |= uses.prefixes
            for target, place in (*uses.certain.items(), *((each, "") for each in uses.indirect)):
                owner = code.owners.get(target)
                if owner is None or code.graph.by_id[owner].node_type == "composite":
                    waiting.append(target)
                if owner is None or owner == node.id:
                    continue
                if place:
                    found.certain.setdefault(owner, place)
                else:
                    found.indirect.add(owner)
        return found

    # Planned dependencies

    def _list_planned(self) -> Iterator[Edge]:
        """Yield the dependencies of the graph between nodes, or composites, in which something has passed."""
        graph = self.code.graph
        edges = ((node.id, id) for node in graph.nodes for id in node.dependencies if id in graph.by_id)
        for source, target in edges:
            is_part = self._contains(target, source) or self._contains(source, target)
            if not is_part and self._inside[source] and self._list_inside(target):
                yield source, target

    @cached_property
    def _inside(self) -> Mapping[NodeId, list[NodeId]]:
        """Node -> the leaves in it that have passed, or itself."""
        graph = self.code.graph
        found: dict[NodeId, list[NodeId]] = {node.id: [] for node in graph.nodes}
        for node in self._leaves:
            for id in (node.id, *self._list_around(node.id)):
                found[id].append(node.id)
        return found

    def _list_inside(self, id: NodeId) -> list[NodeId]:
        """Return the leaves in a node, or itself, that have passed, and the class that it is."""
        return [*self._inside[id], *([id] if id in self._keys and id not in self._inside[id] else [])]

    def _list_around(self, id: NodeId) -> Iterator[NodeId]:
        graph, positions = self.code.graph, self._positions
        at = graph.parents[positions[id]]
        while at is not None:
            yield graph.nodes[at].id
            at = graph.parents[at]

    @cached_property
    def _positions(self) -> Mapping[NodeId, int]:
        return {node.id: position for position, node in enumerate(self.code.graph.nodes)}

    def _contains(self, outer: NodeId, inner: NodeId) -> bool:
        return outer in self._list_around(inner)

    def _judge(self, edge: Edge) -> str:
        """Return what the code says about a planned dependency, as the name of a field."""
        sources, targets = self._inside[edge[0]], self._list_inside(edge[1])
        for source in sources:
            uses = self._reach[source]
            found = {*uses.certain, *uses.indirect, *uses.loaded}
            # A method is inside of its class, without a name for it.
            if any(target in found or self._is_around(target, source) for target in targets):
                return "confirmed"
        if not any(self._is_possible(target, self._reach[source]) for source in sources for target in targets):
            return "missing"
        for source in sources:
            tests = {*self.entering.get(source, ())}
            if tests and any(tests.issubset(self.entering.get(target, ())) for target in targets):
                return "entered"
        return "unknown"

    def _is_around(self, outer: NodeId, inner: NodeId) -> bool:
        """Return whether a definition of a node is inside of one of another node."""
        return any(
            module == other and name.startswith(f"{around}.")
            for module, name in self._keys.get(inner, ())
            for other, around in self._keys.get(outer, ())
        )

    @cached_property
    def _keys(self) -> Mapping[NodeId, list[Key]]:
        found: dict[NodeId, list[Key]] = {}
        for key, id in self.code.owners.items():
            found.setdefault(id, []).append(key)
        return found

    def _is_possible(self, id: NodeId, uses: "_NodeUses") -> bool:
        """Return whether code could use a node where only a run shows it."""
        names = {*self._list_names(id)}
        return bool(names & uses.names) or any(name.startswith(tuple(uses.prefixes)) for name in names)

    def _list_names(self, id: NodeId) -> Iterator[str]:
        """Yield the last parts of the names of a node's definitions, and the public members of its classes."""
        for module, name in self._keys.get(id, ()):
            yield name.rpartition(".")[2]
            for node in self.code.classes.definitions.get((module, name), ()):
                members = list_definitions(node.body) if isinstance(node, ast.ClassDef) else ()
                yield from (each.name for each in members if not each.name.startswith("_"))

    # Extra dependencies, and unused nodes

    def _list_extra(self) -> Iterator[tuple[Edge, str]]:
        needs = find_needs(self.code.graph)
        for node in self._leaves:
            for target, place in self._reach[node.id].certain.items():
                is_leaf = self.code.graph.by_id[target].node_type == "leaf"
                if is_leaf and target not in needs[node.id] and not self._is_around(target, node.id):
                    yield (node.id, target), place

    def _list_unused(self, exported: Collection[str]) -> Iterator[tuple[NodeId, str]]:
        """Yield the nodes that others should need, or that are private, and that no code uses."""
        code = self.code
        if len(code.modules) < sum(path.endswith(".py") for path in code.files):
            return  # a module that cannot be parsed can use anything
        needs = find_needs(code.graph)
        needed = {id for node in self._leaves for id in needs[node.id]}
        outside = {tuple(each.partition(":")[::2]) for each in exported} | {*self._list_exported()}
        for node in self._leaves:
            keys = [key for key in self._keys.get(node.id, ()) if key in code.units]
            is_wanted = node.id in needed or any(key[1].rpartition(".")[2].startswith("_") for key in keys)
            if keys and is_wanted and not any(key in outside or self._is_used(key, own=keys) for key in keys):
                yield node.id, code.find_place(keys[0])

    def _list_exported(self) -> Iterator[Key]:
        """Yield the definitions that module-level code of the graph exports: by ``__all__``, or from a package."""
        code = self.code
        for node in code.graph.nodes:
            source = code.modules.get(code.layout.module_of(node.file_path)) if node.file_path and node.code else None
            tree = parse_code(node.code) if source is not None else None
            if source is None or tree is None:
                continue
            names = {*read_all_names(tree).exports}
            if code.layout.map_path(node.file_path).endswith(INIT):
                imports = list_local_imports(tree.body, source)
                names |= imports.names.keys()
                names |= {name for star in imports.stars for name in getattr(code.modules.get(star), "owners", ())}
            for name in names:
                found = code.references.follow(source, (name,))
                if found and isinstance(found[-1], Piece):
                    yield found[-1].source.module.name, found[-1].name

    def _is_used(self, key: Key, *, own: Collection[Key]) -> bool:
        """Return whether other code uses a definition, or could where only a run shows it."""
        code, name = self.code, key[1].rpartition(".")[2]
        if name.startswith("__") and name.endswith("__"):
            return True  # Python calls it
        around = (key[0], key[1].rpartition(".")[0])
        if around in code.classes.definitions and code.classes.has_foreign_base(around):
            return True
        if any(getattr(each, "decorator_list", ()) for each in code.units[key]):
            return True  # a decorator can pass it on
        users, words = self._users.get(key, set()), self._words
        is_named = (words.names | words.texts if "" in words.prefixes else words.names).__contains__
        is_begun = any(prefix and name.startswith(prefix) for prefix in words.prefixes)
        return bool(users.difference(own)) or is_begun or (is_named(name) and self._has_outside(name, own))

    @cached_property
    def _users(self) -> Mapping[Key, set[Key]]:
        """Unit -> the units that use it; the code of a module is one without a name."""
        found: dict[Key, set[Key]] = {}
        modules = (((name, ""), uses) for name, uses in self.code.module_uses.items())
        for unit, uses in (*self.code.uses.items(), *modules):
            for target in (*uses.certain, *uses.indirect):
                found.setdefault(target, set()).add(unit)
        return found

    @cached_property
    def _words(self) -> _Uses:
        """All names, texts and beginnings of names that the code has."""
        found = _Uses()
        for uses in (*self.code.uses.values(), *self.code.module_uses.values()):
            found.names |= uses.names
            found.texts |= uses.texts
            found.prefixes |= uses.prefixes
        return found

    def _has_outside(self, name: str, own: Collection[Key]) -> bool:
        """Return whether other code than some units has a name."""
        others = (uses for unit, uses in self.code.uses.items() if unit not in own)
        return any(name in uses.names or name in uses.texts for uses in (*others, *self.code.module_uses.values()))


@dataclass(kw_only=True)
class _NodeUses:
    """The uses of a node: other nodes, and names that can be theirs."""

    certain: dict[NodeId, str] = field(default_factory=dict)
    indirect: set[NodeId] = field(default_factory=set)
    loaded: set[NodeId] = field(default_factory=set)
    """What code uses that runs when its module, or one that it uses, is imported."""
    names: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)


def _follow(edges: Iterable[Edge], start: NodeId) -> Iterator[NodeId]:
    return (target for source, target in edges if source == start)
