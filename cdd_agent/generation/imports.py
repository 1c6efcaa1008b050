"""The imports of a generated module: which names lack one, and their order. Pure.

The skeleton has an import for each edge of the graph. A body may need more, such as ``math``. An import is added only
if exactly one object can be meant. Of several candidates, the uses of the name decide, as in ``datetime.today()``.
"""

import ast
import builtins
import importlib
import itertools
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import TypeGuard

from cdd_agent.generation.layout import Layout
from cdd_agent.symbols.scopes import read_all_names
from cdd_agent.tickets.graph import Graph
from cdd_agent.untrusted.python_source import Import, list_imports, parse, with_deep_stack

_NAMED = (
    *("abc", "base64", "bisect", "calendar", "collections", "collections.abc", "contextlib", "copy", "csv"),
    *("dataclasses", "datetime", "decimal", "difflib", "enum", "fnmatch", "fractions", "functools", "graphlib"),
    *("hashlib", "heapq", "importlib", "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator"),
    *("pathlib", "pickle", "queue", "random", "re", "shutil", "statistics", "string", "struct", "tempfile"),
    *("textwrap", "threading", "time", "types", "typing", "uuid", "warnings", "weakref"),
)
"""Modules of the standard library whose public names are candidates. Importing them has no effect."""
_ALIASED = ("collections", "collections.abc", "contextlib", "re")
"""Modules for some of whose classes ``typing`` has old names."""
_MODULES = sys.stdlib_module_names - {"antigravity", "this", "idlelib", "lib2to3", "turtledemo"}
_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "sns": "seaborn", "tf": "tensorflow"}
"""Usual names of foreign modules."""
_MODULE_NAMES = frozenset(
    {"__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__path__", "__annotations__"}
    | {"__builtins__", "__debug__", "__class__", "__module__", "__qualname__", "__dict__"}
)
_MOST_COLUMNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a module uses a name that it does not define."""

    name: str
    line: int
    """The first."""
    attributes: frozenset[str]
    """The ``x`` of all uses as ``name.x``."""
    is_bare: bool
    """Whether it is also used without an attribute, as in a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The names that a generated module may import, besides those of the standard library."""

    symbols: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Name -> the modules of the graph that define it at their top level, without those that need this module."""
    modules: Collection[str] = ()
    """Modules of the graph with dots, without those that need this module."""
    installed: Collection[str] = ()
    """Import names of foreign packages that the graph lists."""


@dataclass(frozen=True, kw_only=True)
class ImportSources:
    """The modules of a graph, and which of them need which."""

    symbols: Mapping[str, frozenset[str]]
    """Name -> the modules that define it at their top level."""
    needed_by: Mapping[str, frozenset[str]]
    """Module -> the modules with a node that needs a node of it."""
    installed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, graph: Graph, layout: Layout, *, installed: Collection[str] = ()) -> "ImportSources":
        """Read a graph. ``installed`` is that of ``Available``."""
        symbols, needed_by = dict[str, set[str]](), dict[str, set[str]]()
        for node in graph.leaves:
            for each in node.definitions:
                module = layout.module_of(each.file_path)
                needed_by.setdefault(module, set())
                if "." not in each.name:
                    symbols.setdefault(each.name, set()).add(module)
                for needed in (graph.by_id[id] for id in node.dependencies if id in graph.by_id):
                    for other in needed.definitions:
                        needed_by.setdefault(layout.module_of(other.file_path), set()).add(module)
        return cls(
            symbols={name: frozenset(found) for name, found in symbols.items()},
            needed_by={name: frozenset(found) for name, found in needed_by.items()},
            installed=frozenset(installed),
        )

    def find_available(self, module: str) -> "Available":
        """Return what a module may import: nothing from modules that need it, which would be a circle."""
        closed, queue = {module}, [module]
        while queue:
            for each in self.needed_by.get(queue.pop(), ()):
                if each not in closed:
                    closed.add(each)
                    queue.append(each)
        symbols = {name: modules - closed for name, modules in self.symbols.items()}
        return Available(symbols=symbols, modules=self.needed_by.keys() - closed, installed=self.installed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedModule:
    """A module with its missing imports."""

    text: str
    added: tuple[Import, ...] = ()
    open: Mapping[str, tuple[Import, ...]] = field(default_factory=dict)
    """Undefined name -> its candidates: none, or more than one."""


@with_deep_stack
def add_imports(text: str, available: Available) -> CompletedModule:
    """Return the module with an import for each undefined name that has exactly one candidate."""
    added, left = list[Import](), dict[str, tuple[Import, ...]]()
    for use in find_undefined(text):
        candidates = find_candidates(use, available)
        if len(candidates) == 1:
            added.append(candidates[0])
        else:
            left[use.name] = candidates
    tops = {module.partition(".")[0] for modules in available.symbols.values() for module in modules}
    tops |= {module.partition(".")[0] for module in available.modules}
    completed = _change(text, added, local=tops) if added else text
    if added and completed == text:  # its first lines cannot be changed
        return CompletedModule(
            text=text, open={**left, **{each.alias or each.name or each.module: (each,) for each in added}}
        )
    return CompletedModule(text=completed, added=tuple(added), open=left)


# Undefined names


@with_deep_stack
def find_undefined(text: str) -> tuple[Use, ...]:
    """Return the names that a module uses and nothing defines, sorted; none if it is not valid Python.

    None either if it has ``from module import *``, which defines names that cannot be known here.
    """
    tree = parse(text)
    if tree is None:
        return ()
    names = read_all_names(tree)
    if names.has_star:
        return ()
    attributes = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    uses = dict[str, list[tuple[ast.Name, str | None]]]()
    for node in names.list_free():
        name = node.id
        if not (name in names.module.bound or name in _MODULE_NAMES or hasattr(builtins, name)):
            uses.setdefault(name, []).append((node, attributes.get(id(node))))
    return tuple(
        Use(
            name=name,
            line=min(node.lineno for node, _ in found),
            attributes=frozenset(attribute for _, attribute in found if attribute is not None),
            is_bare=any(attribute is None for _, attribute in found),
        )
        for name, found in sorted(uses.items())
    )


# Candidates


def find_candidates(use: Use, available: Available) -> tuple[Import, ...]:
    """Return the imports that would define a name and fit all its uses, sorted."""
    found = {Import(module, use.name) for module in available.symbols.get(use.name, ())}
    if not use.is_bare:
        found |= {_import_module(each) for each in available.modules if each.rpartition(".")[2] == use.name}
        found |= {Import(each) for each in available.installed if each == use.name}
        usual = _ALIASES.get(use.name, "")
        if usual.partition(".")[0] in available.installed:
            found.add(Import(usual, alias=use.name))
        if use.name in _MODULES and not use.name.startswith("_") and _fits(_load(use.name), use):
            found.add(Import(use.name))
    found |= {Import(module, use.name) for module in _NAMED if _is_public_in(module, use)}
    return tuple(sorted(found))


def _import_module(name: str) -> Import:
    package, _, last = name.rpartition(".")
    return Import(package, last) if package else Import(last)


def _is_public_in(module: str, use: Use) -> bool:
    found = _load(module)
    public = _list_public(module)
    if found is None or use.name not in public:
        return False
    if module == "typing" and any(use.name in _list_public(other) for other in _ALIASED):
        return False
    return _fits(getattr(found, use.name), use)


def _fits(value: object, use: Use) -> bool:
    """Return whether an object has all attributes that are used; a module that is not loaded has."""
    return value is None or all(hasattr(value, attribute) for attribute in use.attributes)


@cache
def _load(module: str) -> ModuleType | None:
    return importlib.import_module(module) if module in _NAMED else None


@cache
def _list_public(module: str) -> frozenset[str]:
    found = _load(module)
    names = getattr(found, "__all__", None)
    if names is not None:
        return frozenset(names)
    return frozenset(
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", module) in _homes(module)
    )


def _homes(module: str) -> tuple[str | None, ...]:
    """Return where the objects of a module without ``__all__`` say that they are from."""
    return (module, f"_{module}", None)


# Order


@with_deep_stack
def sort_imports(text: str, *, local: Collection[str]) -> str:
    """Return the module with its imports sorted in groups, each once: standard library, foreign, ``local`` packages.

    Only statements at the beginning move. None does if one of them has a comment, which belongs to its line, if a name
    is imported from two places, or if a statement shares its line.
    """
    return _change(text, (), local=local)


def _change(text: str, added: Iterable[Import], *, local: Collection[str]) -> str:
    """Return the text with further imports and sorted ones; as it is if that is not certain to be right."""
    tree = parse(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if tree is None or "\r" in text.replace("\r\n", ""):
        return text
    lines, block = text.split(newline), _find_block(tree)
    if not block:
        start = (tree.body[0].end_lineno or 0) if ast.get_docstring(tree, clean=False) is not None else 0
        if not start:  # a shebang, an encoding and other comments of the beginning stay there
            start = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
        space = [""] if start < len(lines) and lines[start].strip() else []
        new = [*([""] if start else []), *_render(added, local=local), *space]
        changed = [*lines[:start], *(new if added else []), *lines[start:]]
    else:
        first, end = block[0].lineno - 1, block[-1].end_lineno or 0
        whole = _render({*added, *_read_imports(block)}, local=local)
        if _can_move(block, lines[first:end]):
            changed = [*lines[:first], *whole, *lines[end:]]
        else:
            changed = [*lines[:end], *_render(added, local=local), *lines[end:]]
    result = newline.join(changed)
    return result if _is_same(result, tree, added=added) else text


def _find_block(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports at the beginning, after the docstring."""
    body = tree.body[1:] if ast.get_docstring(tree, clean=False) is not None else tree.body
    found = list[ast.Import | ast.ImportFrom]()
    for node in body:
        if not _is_import(node):
            break
        found.append(node)
    return found


def _is_import(node: ast.stmt) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _read_imports(block: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[Import]:
    return (each for node in block for each in list_imports(node))


def _can_move(block: Sequence[ast.Import | ast.ImportFrom], lines: Sequence[str]) -> bool:
    found = {*_read_imports(block)}
    bound = Counter(each.alias or each.name for each in found if each.name or each.alias)
    is_clear = all(count == 1 for count in bound.values()) and not any(each.name == "*" for each in found)
    return is_clear and not any(sign in line for line in lines for sign in ("#", ";", "\\"))


def _is_same(text: str, tree: ast.Module, *, added: Iterable[Import]) -> bool:
    """Return whether a text has the statements of ``tree``, and imports exactly what it did and what was added."""
    now = parse(text)
    if now is None or ast.get_docstring(now, clean=False) != ast.get_docstring(tree, clean=False):
        return False
    imports = {*_read_imports(_find_block(tree)), *added}
    is_whole = {*_read_imports(_find_block(now))} == imports
    return is_whole and [*map(ast.dump, _list_rest(now))] == [*map(ast.dump, _list_rest(tree))]


def _list_rest(tree: ast.Module) -> Iterator[ast.stmt]:
    return itertools.dropwhile(_is_import, tree.body[ast.get_docstring(tree, clean=False) is not None :])


def _render(imports: Iterable[Import], *, local: Collection[str]) -> list[str]:
    """Return the lines of imports, sorted, in groups with an empty line in between."""
    groups: dict[int, list[Import]] = {}
    for each in sorted({*imports}, key=_rank):
        groups.setdefault(_choose_group(each.module, local), []).append(each)
    lines = list[str]()
    for _, found in sorted(groups.items()):
        lines += [""] if lines else []
        lines += [str(each) for each in found if not each.name]
        for module, names in itertools.groupby((each for each in found if each.name), key=lambda each: each.module):
            lines += _render_names(module, [*names])
    return lines


def _rank(each: Import) -> tuple[str, int, str, str]:
    """Order by module; names as other tools do: constants, classes, the rest."""
    is_constant, is_class = each.name.isupper() and len(each.name) > 1, each.name[:1].isupper()
    return (
        each.module,
        2 - 2 * is_constant - (is_class and not is_constant),
        each.name.casefold(),
        f"{each.name} {each.alias}",
    )


def _choose_group(module: str, local: Collection[str]) -> int:
    top = module.partition(".")[0]
    if top == "__future__":
        return 0
    if not top:  # a relative import
        return 4
    if top in local:
        return 3
    return 1 if top in sys.stdlib_module_names else 2


def _render_names(module: str, imports: Sequence[Import]) -> list[str]:
    """Return the statements for the names of one module: each name with an alias has its own."""
    plain = ", ".join(each.name for each in imports if not each.alias)
    line = f"from {module} import {plain}"
    if len(line) > _MOST_COLUMNS:
        line = "\n".join((f"from {module} import (", *(f"    {name}," for name in plain.split(", ")), ")"))
    statements = (str(each) if each.alias else line for each in imports)
    return "\n".join(dict.fromkeys(statements)).split("\n")
