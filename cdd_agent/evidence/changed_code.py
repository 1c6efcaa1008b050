"""Find the definitions that a change alters, and the functions that use them."""

import ast
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.evidence.source import Function, name_definitions, read_last_name, read_names
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.python_source import PYTHON, decode, find_first_line, measure_depth, parse, with_deep_stack

_MOST_FUNCTIONS = 300
_MOST_STEPS = 4
_MOST_CONSTANTS = 30
_MOST_LEVELS = 200
"""Depth of code whose constants are listed."""
_PROPERTIES = {"property", "cached_property"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCode:
    """The definitions that differ. Docstrings, comments and format do not count."""

    functions: Mapping[tuple[str, str], bool]
    """Path and dotted name of those before the change -> whether they still take the same parameters."""
    names: frozenset[str]
    """By which other code uses what changed."""
    variables: frozenset[str]
    """The names of variables among them; code that uses a changed variable counts as changed."""
    constants: tuple[str | int | float, ...]
    is_new: bool
    """Whether all of it is new, no part of a class that existed before."""
    computed: frozenset[str]
    """Names of attributes that objects store before or after the change, and that a property computes otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A function whose calls are recorded: the changed ones, and those that use them."""

    path: str
    name: str
    line: int
    is_changed: bool
    counts_inside: bool
    """Whether calls by the product count."""
    may_guess: bool = False
    """Whether callers may use it as before, so that calls can be guessed if no test calls it."""
    is_used: bool = False
    """Whether other functions of these use its name."""
    inner: tuple[tuple[int, int], ...] = ()
    """Line and depth of the functions that are defined in it."""


@with_deep_stack
def find_changed_code(changes: Iterable[ProductChange]) -> ChangedCode:
    """Find the changed definitions of Python sources: functions, methods, classes, and values of names."""
    functions: dict[tuple[str, str], bool] = {}
    names: set[str] = set()
    variables: set[str] = set()
    constants: dict[str, str | int | float] = {}
    is_new = True
    changes = tuple(changes)
    trees = [(parse(change.old), parse(change.new)) for change in changes]
    for change, (old_tree, new_tree) in zip(changes, trees, strict=True):
        old, new = _index_definitions(old_tree), _index_definitions(new_tree)
        for key in sorted(old.keys() | new.keys()):
            name, before, after = key[0], old.get(key), new.get(key)
            if _dump(before) == _dump(after):
                continue
            is_new &= before is None and (name.rpartition(".")[0], 0) not in old
            names |= _list_names(name, before or after)
            variables |= set() if isinstance(before or after, Function) else _list_names(name, before or after)
            for one, other in ((before, after), (after, before)):
                constants |= {repr(value): value for value in _list_constants(one, other)[:_MOST_CONSTANTS]}
            if isinstance(before, Function):
                is_same = _list_parameters(before) == _list_parameters(after)
                functions[change.path, name] = is_same and functions.get((change.path, name), True)
    return ChangedCode(
        functions=functions,
        names=frozenset(names),
        variables=frozenset(variables),
        constants=tuple(constants.values()),
        is_new=is_new,
        computed=_find_computed(trees),
    )


def _find_computed(trees: Sequence[tuple[ast.Module | None, ast.Module | None]]) -> frozenset[str]:
    """Return the names of public attributes that are properties in one version, and stored in the other."""
    # Over all files, because a class may move.
    old, new = [before for before, _ in trees], [after for _, after in trees]
    properties, properties_after = (set[str]().union(*map(_list_properties, side)) for side in (old, new))
    stored, stored_after = (set[str]().union(*map(_list_stored, side)) for side in (old, new))
    found = set()
    for names, stores in ((properties - properties_after, stored_after), (properties_after - properties, stored)):
        found |= stores & {name.rpartition(".")[2] for name in names}
    return frozenset(name for name in found if not name.startswith("_"))


def _list_properties(tree: ast.Module | None) -> set[str]:
    """Return the dotted names of properties."""
    functions = ((name, node) for name, node in name_definitions(tree) if isinstance(node, Function))
    return {name for name, node in functions if _PROPERTIES & set(map(read_last_name, node.decorator_list))}


def _list_stored(tree: ast.Module | None) -> set[str]:
    """Return the attributes that code assigns to objects, and the fields of classes."""
    nodes = [*ast.walk(tree)] if tree is not None else []
    fields = {read_last_name(each.target) for each in nodes if isinstance(each, ast.AnnAssign)}
    return fields | {each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)}


def _read_used(node: Function) -> set[str]:
    """Return the names and attributes that a function uses, without its parameters."""
    attributes = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return attributes | (read_names(node) - set(_list_parameters(node) or ()))


def _index_definitions(tree: ast.Module | None) -> dict[tuple[str, int], ast.AST]:
    """Return dotted name and number -> definition. The getter and the setter of a property have one name."""
    numbers: Counter[str] = Counter()
    found = {}
    for name, node in name_definitions(tree):
        found[name, numbers[name]] = node
        numbers[name] += 1
    return found


def _dump(node: ast.AST | None) -> str:
    if not isinstance(node, Function):
        return ast.dump(node) if node is not None else ""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return "".join(map(ast.dump, (node.args, *node.decorator_list, *body)))


def _list_names(name: str, node: ast.AST | None) -> set[str]:
    """Return the names by which code uses a definition: for special methods and attributes also the class."""
    owner, _, last = name.partition("<")[0].rpartition(".")
    own = {owner.rpartition(".")[2]} - {""}
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return own if _is_special(last) else {last}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
        case _:
            return own | ({last} if last else read_names(node))


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _list_constants(node: ast.AST | None, other: ast.AST | None) -> list[str | int | float]:
    """Return the constants of ``node``, those of the smallest parts that ``other`` does not have first."""
    # The time grows with the square of the depth. Tables and generated expressions are deep; rules are not.
    if node is None or max(measure_depth(each) for each in (node, other) if each is not None) > _MOST_LEVELS:
        return []
    known = {ast.dump(each) for each in ast.walk(other)} if other is not None else set()
    parts = {ast.dump(each): each for each in ast.walk(node)}
    differing = [parts[dump] for dump in sorted(parts.keys() - known, key=len)]
    stated = {id(each.value) for each in parts.values() if isinstance(each, ast.Expr)}  # docstrings
    nodes = (each for part in differing for each in ast.walk(part) if isinstance(each, ast.Constant))
    found = [each.value for each in nodes if id(each) not in stated]
    # A word that a pattern matches looks like the pattern without its special characters.
    plain = [(each, re.sub(r"\(\?\w+\)|\W", "", each)) if isinstance(each, str) else (each,) for each in found]
    values = {repr(each): each for pair in plain for each in pair}.values()
    return [each for each in values if isinstance(each, (str, int, float)) and not isinstance(each, bool)]


def _list_parameters(node: ast.AST | None) -> list[str] | None:
    return (
        [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)] if isinstance(node, Function) else None
    )


@with_deep_stack
def list_watched(code: ChangedCode, sources: Mapping[str, str]) -> tuple[Watched, ...]:
    """List the changed functions in ``sources`` and those that use them, directly or through others, nearest first."""
    definitions: dict[str, list[tuple[str, Function, set[str]]]] = {}
    found: dict[tuple[str, int], Watched] = {}
    uses: dict[tuple[str, int], set[str]] = {}
    names: set[str] = {*code.names}
    for _ in range(_MOST_STEPS):
        users: set[str] = set()
        for path in [path for path, text in sources.items() if any(name in text for name in names)]:
            if path not in definitions:
                listed = name_definitions(parse(sources[path]))
                definitions[path] = [
                    (name, node, _read_used(node)) for name, node in listed if isinstance(node, Function)
                ]
            for name, node, used in definitions[path]:
                key, line = (path, name), find_first_line(node)
                is_used = key in code.functions or not used.isdisjoint(names)
                if is_used and (path, line) not in found and len(found) < _MOST_FUNCTIONS:
                    is_public = all(_is_special(part) or not part.startswith("_") for part in name.split("."))
                    found[path, line] = Watched(
                        path=path,
                        name=name,
                        line=line,
                        is_changed=key in code.functions or not used.isdisjoint(code.variables),
                        counts_inside=is_public and code.functions.get(key, False),
                        may_guess=is_public and code.functions.get(key, True),
                        inner=tuple(_list_inner(node)),
                    )
                    uses[path, line] = used
                    users |= _list_names(name, node)
        names = users
    return tuple(
        replace(each, is_used=any(each.name.rpartition(".")[2] in used for at, used in uses.items() if at != key))
        for key, each in found.items()
    )


def _list_inner(node: ast.AST, depth: int = 1) -> Iterator[tuple[int, int]]:
    """Yield line and depth of the functions that are defined in a function."""
    for each in ast.iter_child_nodes(node):
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield find_first_line(each), depth
                yield from _list_inner(each, depth + 1)
            case ast.Lambda():
                yield each.lineno, depth
                yield from _list_inner(each, depth + 1)
            case _:
                yield from _list_inner(each, depth)


def read_product(copy: Suite) -> Iterator[tuple[str, str]]:
    """Yield the path and the source of each module of the product."""
    for folder, subfolders, names in os.walk(copy.root):
        subfolders.sort()
        inside = "" if folder == str(copy.root) else f"{os.path.relpath(folder, copy.root)}/"
        for name in sorted(name for name in names if name.endswith(PYTHON)):
            file = os.path.join(folder, name)
            if not copy.conventions.is_test(f"{inside}{name}") and stat.S_ISREG(os.lstat(file).st_mode):
                with open(file, "rb") as stream:
                    yield f"{inside}{name}", decode(stream.read())


def select_users(code: ChangedCode, sources: Mapping[str, str]) -> list[str]:
    """Return the sources that name something that changed."""
    return [text for text in sources.values() if any(name in text for name in code.names)]


def select_tests(
    copy: Suite, tests: Sequence[str], *, code: ChangedCode, watched: Iterable[Watched]
) -> tuple[str, ...]:
    """Return the test files that name one of the functions, or all of them if there is none."""
    names = {each.name.rpartition(".")[2] for each in watched} | code.names
    files = {path: copy.root / path for path in tests if (copy.root / path).is_file()}
    texts = {path: decode(file.read_bytes()) for path, file in files.items()}
    return tuple(path for path, text in texts.items() if any(name in text for name in names)) or tuple(texts)
