"""What tests state by example: the literals they put in, and the literal they expect for them. Pure.

An expression counts as its normal form, ``ast.unparse`` of it, so that ``"a"`` and ``'a'`` are one.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from cdd_agent.evidence.code.source import Function, parse

_TRIVIAL = (None, True, False, 0, 1, -1, 2, Ellipsis)
_EQUALITY = frozenset({"assertEqual", "assertEquals", "assertIs", "assertListEqual", "assertDictEqual"})


@dataclass(frozen=True, slots=True)
class Example:
    """One assertion: ``inputs`` give ``expected``; normal forms of literals that are not trivial."""

    inputs: frozenset[str]
    expected: str


def examples(source: str, functions: Collection[str] = ()) -> tuple[Example, ...]:
    """The examples in a test file; only of the test functions of these names, if any is there."""
    tree = parse(source)
    if tree is None:
        return ()
    every = [node for node in ast.walk(tree) if isinstance(node, Function)]
    chosen = [node for node in every if node.name in functions] or every
    known = _bound_literals(tree.body)
    return tuple(dict.fromkeys(example for node in chosen for example in _of_function(node, known)))


def literals(node: ast.AST) -> frozenset[str]:
    """The literals in an expression that are not trivial, containers and what is in them alike."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr) and is_literal(inner) and not is_trivial(inner):
            found.add(ast.unparse(inner))
    return frozenset(found)


def is_literal(node: ast.expr) -> bool:
    """Whether the expression is built of constants only, with calls such as ``Decimal("3.5")`` and f-strings aside."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return is_literal(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return all(is_literal(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and is_literal(key) for key in keys) and all(is_literal(v) for v in values)
        case ast.Call(func=ast.Name() | ast.Attribute(), args=[_, *_] as items, keywords=[]):
            return all(is_literal(item) for item in items)
        case _:
            return False


def is_trivial(node: ast.expr) -> bool:
    """Whether a literal is too common to say anything: 0, 1, 2, None, a single character, an empty container."""
    match node:
        case ast.Constant(value=str() | bytes() as text):
            return len(text) < 2
        case ast.Constant(value=value):
            return any(value == common for common in _TRIVIAL)
        case ast.UnaryOp(operand=operand):
            return is_trivial(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items) | ast.Call(args=items):
            return len(items) < 2 and all(is_trivial(item) for item in items)
        case ast.Dict(values=values):
            return not values
        case _:
            return False


def _bound_literals(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Name -> the literal that one plain assignment gives it."""
    found: dict[str, ast.expr] = {}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_literal(value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if is_literal(value):
                found[name] = value
            case _:
                pass
    return found


def _bound(function: Function) -> dict[str, ast.expr]:
    """Name -> what a plain assignment in the function gives it, of whatever kind."""
    plain = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    return {node.targets[0].id: node.value for node in plain if isinstance(node.targets[0], ast.Name)}


def _of_function(function: Function, known: dict[str, ast.expr]) -> Iterator[Example]:
    known = known | _bound_literals(function.body)
    given = known | _bound(function)
    for decorator in function.decorator_list:
        for table in _tables(decorator, known):
            yield from _rows(table)
    for node in ast.walk(function):
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right])):
                yield from _equality(left, right, known=known, given=given)
            case ast.Call(func=ast.Attribute(attr=method), args=[left, right, *_]) if method in _EQUALITY:
                yield from _equality(left, right, known=known, given=given)
            case ast.For(iter=table):
                yield from _rows(_resolved(table, known))
            case _:
                pass


def _tables(decorator: ast.expr, known: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """The lists of values of a ``parametrize``, or ``expand``, or hypothesis' ``example``."""
    if not isinstance(decorator, ast.Call):
        return
    name = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else getattr(decorator.func, "id", "")
    if name == "parametrize":
        values = decorator.args[1:2] + [word.value for word in decorator.keywords if word.arg == "argvalues"]
        yield from (_resolved(value, known) for value in values)
    elif name in ("expand", "parameterized"):
        yield from (_resolved(value, known) for value in decorator.args[:1])


def _resolved(node: ast.expr, known: dict[str, ast.expr]) -> ast.expr:
    """The literal that a name stands for, or the expression itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        node = node.func.value
    return known.get(node.id, node) if isinstance(node, ast.Name) else node


def _rows(table: ast.expr) -> Iterator[Example]:
    """Of each row of a table, every value as what the others give."""
    rows: list[list[ast.expr]] = []
    if isinstance(table, ast.Dict):
        rows = [[key, value] for key, value in zip(table.keys, table.values, strict=True) if key is not None]
    elif isinstance(table, (ast.List, ast.Tuple)):
        for row in table.elts:
            if isinstance(row, ast.Call) and "param" in ast.unparse(row.func):
                rows.append(list(row.args))
            elif isinstance(row, (ast.List, ast.Tuple)):
                rows.append(list(row.elts))
    for cells in rows:
        for position, cell in enumerate(cells):
            others = frozenset().union(*(literals(other) for at, other in enumerate(cells) if at != position))
            if is_literal(cell) and not is_trivial(cell) and others:
                yield Example(others, ast.unparse(cell))


def _equality(
    left: ast.expr, right: ast.expr, *, known: dict[str, ast.expr], given: dict[str, ast.expr]
) -> Iterator[Example]:
    """The example of a comparison between a call and what it is to give, whichever side is which."""
    for actual, expected in ((left, right), (right, left)):
        value = _resolved(expected, known)
        if not is_literal(value) or is_trivial(value):
            continue
        named = (given[node.id] for node in ast.walk(actual) if isinstance(node, ast.Name) and node.id in given)
        inputs = _arguments(actual).union(*(_arguments(bound) | literals(bound) for bound in named))
        inputs -= {ast.unparse(value)}
        if inputs:
            yield Example(inputs, ast.unparse(value))


def _arguments(node: ast.expr) -> frozenset[str]:
    """The literals given to the calls in an expression; not the keys by which a result is taken apart."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    given = (value for call in calls for value in (*call.args, *(word.value for word in call.keywords)))
    return frozenset().union(*(literals(value) for value in given))
