"""What each module of a skeleton defines: the definitions of the graph, with bodies that raise. Pure."""

import ast
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdd_agent.evidence.source import Function, read_last_name
from cdd_agent.generation.layout import INIT, Layout, name_module
from cdd_agent.generation.signatures import (
    choose_stub_error,
    is_class_type,
    list_stubs,
    list_type_names,
    parse_code,
    read_signature,
    write_header,
)
from cdd_agent.tickets.graph import Definition, Graph, Node, NodeId
from cdd_agent.untrusted.python_source import split_lines

_DATA_BASES = ("Enum", "Flag", "IntEnum", "IntFlag", "NamedTuple", "Protocol", "StrEnum", "TypedDict")
"""Classes whose heirs are complete without a method."""


class GlobalName(NamedTuple):
    """A top-level name of a module, or the module itself if the name is empty."""

    module: str
    name: str


@dataclass(kw_only=True)
class PlannedModule:
    """A module before its imports are known."""

    path: str
    name: str
    docstring: str = ""
    code: str = ""
    """Without its docstring and ``from __future__``; empty if it cannot be compiled."""
    future: dict[str, str] = field(default_factory=dict)
    """What its code imports from ``__future__`` -> as an alias, such as ``annotations as _annotations``."""
    has_all_imports: bool = False
    """Whether the code imports everything that its definitions need."""
    unreadable: str = ""
    """Code that cannot be compiled, which becomes a comment."""
    groups: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """Top-level name -> its definitions."""
    pieces: dict[str, list[ast.stmt]] = field(default_factory=dict)
    """Qualified name -> the definitions of one name of a leaf, which are in ``groups`` too."""
    needs: dict[str, list[GlobalName]] = field(default_factory=dict)
    """Qualified name -> everything that its node depends on."""
    raising: set[str] = field(default_factory=set)
    """Qualified names of the definitions that have a stub."""

    @property
    def is_package(self) -> bool:
        """Whether it is an ``__init__.py``."""
        return self.path.endswith(INIT)

    @property
    def evaluates_annotations(self) -> bool:
        """Whether the annotations of its definitions run when it is imported: not if the skeleton adds the imports."""
        return self.has_all_imports and "annotations" not in self.future

    @property
    def can_export(self) -> bool:
        """Whether it is a package, and no code says what it exports."""
        return self.is_package and not (self.code or self.unreadable or self.has_all_imports)

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def read_modules(graph: Graph, layout: Layout) -> dict[str, PlannedModule]:
    """Return name -> module for all modules and packages, sorted."""
    paths = {real for _, real in layout.rows}
    for path in [*paths]:
        parts = path.split("/")[:-1]
        paths |= {"/".join(parts[:end]) + INIT for end in range(2, len(parts) + 1)}
    has_all = graph.metadata.get("has_all_imports") is True
    found = sorted((name_module(path), path) for path in paths)
    modules = {name: PlannedModule(path=path, name=name, has_all_imports=has_all) for name, path in found}
    classes = _read_composites(graph, layout, modules=modules)
    known = list_type_names(graph)
    leaves = [(node, each) for node in graph.leaves for each in node.definitions]
    # A class is there before its methods.
    for node, definition in sorted(leaves, key=lambda pair: pair[1].name.count(".")):
        module = modules[layout.module_of(definition.file_path)]
        statements = _stub_definition(definition, node=node, known=known, module=module)
        _insert(definition.name.split("."), statements, module=module, classes=classes)
        module.pieces.setdefault(definition.name, []).extend(statements)
        module.needs.setdefault(definition.name, []).extend(_list_needs(node, graph=graph, layout=layout))
    order: dict[str, list[str]] = {}
    for _, definition in leaves:
        order.setdefault(layout.module_of(definition.file_path), []).append(definition.name.partition(".")[0])
    for name, tops in order.items():
        modules[name].groups = _sort_groups(modules[name].groups, tops)
    return modules


def _read_composites(
    graph: Graph, layout: Layout, *, modules: Mapping[str, PlannedModule]
) -> dict[tuple[str, str], ast.ClassDef]:
    """Give modules their docstrings and code. Return module and name -> class, for classes that are composites."""
    children: dict[NodeId | None, set[str]] = {}
    for node in graph.leaves:
        children.setdefault(node.parent, set()).add(node.file_path)
    classes = dict[tuple[str, str], ast.ClassDef]()
    for node in graph.nodes:
        files = [node.file_path] if node.file_path else [*children.get(node.id, ())]
        if node.node_type == "leaf" or len(files) != 1:
            continue
        module = modules[layout.module_of(files[0])]
        if is_class_type(node.type):
            classes[module.name, node.name] = _read_class(node)
            continue
        module.docstring = module.docstring or node.docstring
        code = parse_code(node.code) if node.file_path else None
        if code is None:
            module.unreadable += node.code.encode("utf-8", "replace").decode()
        else:
            module.docstring = module.docstring or ast.get_docstring(code) or ""
            module.code += _take_out_future(node.code, code, module=module)
    return classes


def _take_out_future(code: str, tree: ast.Module, *, module: PlannedModule) -> str:
    """Return module-level code without its docstring and without ``from __future__``, which goes to ``module``."""
    lines = split_lines(code)
    for each in tree.body:
        is_future = isinstance(each, ast.ImportFrom) and each.module == "__future__"
        if isinstance(each, ast.ImportFrom) and is_future:
            module.future |= {alias.name: ast.unparse(alias) for alias in each.names}
        if is_future or (each is tree.body[0] and ast.get_docstring(tree) is not None):
            first, last = each.lineno - 1, each.end_lineno or each.lineno
            lines[first:last] = ["" for _ in lines[first:last]]
    text = "\n".join(lines).strip("\n")
    return text and f"{text}\n"


def _read_class(node: Node) -> ast.ClassDef:
    definition = Definition(
        name=node.name, file_path=node.file_path, docstring=node.docstring, signature=node.signature
    )
    signature = read_signature(definition, type=node.type) if node.signature else None
    found = [each for each in signature.statements if isinstance(each, ast.ClassDef)] if signature is not None else []
    own = found[-1] if found else _make_class(node.name)
    code = parse_code(node.code)
    own.body = [*(code.body if code is not None else ()), *own.body]
    _add_docstring(own, node.docstring)
    _stub_bodies([own], error=choose_stub_error(node.docstring))
    return own


def _make_class(name: str) -> ast.ClassDef:
    made = ast.parse(f"class {name}: pass").body[0]
    assert isinstance(made, ast.ClassDef)
    return made


def _stub_definition(
    definition: Definition, *, node: Node, known: Collection[str], module: PlannedModule
) -> list[ast.stmt]:
    """Return the statements of a definition, with its docstring and with bodies that raise."""
    statements = [*read_signature(definition, type=node.type, known=known).statements]
    last = definition.name.rpartition(".")[2]
    own = [each for name, each in list_stubs(statements) if name == last and isinstance(each, Function | ast.ClassDef)]
    functions = [each for each in own if isinstance(each, Function)]
    if functions and all(has_decorator(each, "overload") for each in functions):
        statements += ast.parse(f"def {last}(*args, **kwargs): ...").body
        own.append(statements[-1])  # type: ignore[arg-type]
    documented = next((each for each in own if not has_decorator(each, "overload")), None)
    # A definition without a docstring repeats its signature there.
    if documented is not None and definition.docstring != write_header(documented):
        _add_docstring(documented, definition.docstring)
    # The methods of a class that was extracted are all known, though they can be below ``if``.
    for each in own if not module.has_all_imports else ():
        has_methods = any(isinstance(x, Function) for x in each.body)
        if isinstance(each, ast.ClassDef) and not has_methods and not _is_data(each):
            each.body += ast.parse("def __init__(self, *args, **kwargs): ...").body
    if _stub_bodies(statements, error=choose_stub_error(definition.docstring)):
        module.raising.add(definition.name)
    return statements


def has_decorator(node: ast.AST, name: str) -> bool:
    """Return whether a definition has a decorator of this name, called or not."""
    decorators = getattr(node, "decorator_list", ())
    return any(read_last_name(each.func if isinstance(each, ast.Call) else each) == name for each in decorators)


def _is_data(node: ast.ClassDef) -> bool:
    return any(read_last_name(base) in _DATA_BASES for base in node.bases) or has_decorator(node, "dataclass")


def clean_docstring(docstring: str) -> str:
    """Return a docstring without indentation, and without halves of characters: no class can have those."""
    return inspect.cleandoc(docstring.encode("utf-8", "replace").decode())


def _add_docstring(node: Function | ast.ClassDef, docstring: str) -> None:
    text = clean_docstring(docstring)
    if not text:
        return
    if ast.get_docstring(node, clean=False) is not None:
        del node.body[0]
    node.body.insert(0, ast.Expr(ast.Constant(text)))


def _stub_bodies(body: Iterable[ast.stmt], *, error: str) -> bool:
    """Let every function raise, and return whether there is one. Overloads and protocols keep their ``...``."""
    found = False
    for name, each in list_stubs(body):
        if isinstance(each, ast.ClassDef) and not any(read_last_name(base) == "Protocol" for base in each.bases):
            found |= _stub_bodies(each.body, error=error)
        elif isinstance(each, Function) and not has_decorator(each, "overload"):
            docstring = each.body[:1] if ast.get_docstring(each, clean=False) is not None else []
            # The gate reads the missing name in the message of a NameError.
            shown = f'("name {name!r} is not defined")' if error == "NameError" else ""
            each.body = [*docstring, *ast.parse(f"raise {error}{shown}").body]
            found = True
    return found


def _insert(
    names: Sequence[str],
    statements: list[ast.stmt],
    *,
    module: PlannedModule,
    classes: Mapping[tuple[str, str], ast.ClassDef],
) -> None:
    """Add a definition to its module or, in place of one that is there, to its class."""
    top, *inner = names
    if not inner:
        module.groups.setdefault(top, []).extend(statements)
        return
    if top not in module.groups:
        module.groups[top] = [classes.get((module.name, top)) or _make_class(top)]
    body = module.groups[top]
    for depth, name in enumerate(names[:-1]):
        owner = next(
            (each for found, each in list_stubs(body) if found == name and isinstance(each, ast.ClassDef)), None
        )
        if owner is None:
            owner = classes.get((module.name, ".".join(names[: depth + 1]))) or _make_class(name)
            body.append(owner)
        body = owner.body
    old = [each for each in body if any(name == names[-1] for name, _ in list_stubs([each]))]
    place = body.index(old[0]) if old else len(body)
    body[place:place] = statements
    body[:] = [each for each in body if each not in old and not _is_empty(each)]


def _is_empty(node: ast.stmt) -> bool:
    is_ellipsis = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
    return is_ellipsis or isinstance(node, ast.Pass)


def _list_needs(node: Node, *, graph: Graph, layout: Layout) -> Iterator[GlobalName]:
    for id in node.dependencies:
        target = graph.by_id.get(id)
        if target is None or not target.file_path or target.id == node.parent:
            continue
        module = layout.module_of(target.file_path)
        if target.node_type == "leaf" or is_class_type(target.type):
            yield GlobalName(module, target.name.partition(".")[0])
        elif not layout.map_path(target.file_path).endswith(INIT):
            yield GlobalName(module, "")


def _sort_groups(groups: Mapping[str, list[ast.stmt]], tops: Iterable[str]) -> dict[str, list[ast.stmt]]:
    """Return the groups in the order of the graph, but those first that others need when the module is imported."""
    order, seen = dict[str, list[ast.stmt]](), set[str]()

    def add(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        early = list_early(groups[name])
        for other in groups:
            if other in early:
                add(other)
        order[name] = groups[name]

    for top in tops:
        add(top)
    return order


def list_early(statements: Iterable[ast.AST]) -> set[str]:
    """Return the names of the module that are needed when it is imported."""
    found = set[str]()
    for each in statements:
        if isinstance(each, ast.ClassDef):
            head = [*each.decorator_list, *each.bases, *(keyword.value for keyword in each.keywords)]
            own = {name for name, _ in list_stubs(each.body)}
            found |= list_early(head) | (list_early(each.body) - own)
        else:
            found |= {node.id for node in iterate_early(each) if isinstance(node, ast.Name)}
    return found


def iterate_early(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when the module is imported: no bodies of functions, no annotations."""
    yield node
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            inner: Iterable[ast.AST | None] = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        case ast.Lambda():
            inner = [*node.args.defaults, *node.args.kw_defaults]
        case ast.AnnAssign():
            inner = [node.target, node.value]
        case _:
            inner = ast.iter_child_nodes(node)
    for each in inner:
        if each is not None:
            yield from iterate_early(each)
