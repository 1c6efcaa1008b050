"""Read the assertions of new tests: which of them an empty result skips, and which calls are awaited. Pure.

A loop over an empty result runs none of the assertions in it, and ``all`` of nothing is true. A coroutine that nobody
awaits is true too, whatever its function would return.
"""

import ast
import builtins
import re
from collections.abc import Callable, Collection, Iterable

from cdd_agent.evidence.source import Function, list_functions, read_imports, read_last_name
from cdd_agent.untrusted.python_source import ForeignModule, parse, with_deep_stack

_JUDGES = re.compile(r"assert|raises|fail|warns|check|verif|expect|match|ensure|must|should|compare", re.IGNORECASE)
"""Names of functions that may judge a result."""
_LIBRARIES = ("asyncio", "anyio", "trio", "loop")
_OPTIONAL = (ast.For, ast.AsyncFor, ast.While, ast.If)
"""Statements that may skip what is in them."""


def find_awaited_names(trees: Iterable[ast.AST]) -> set[str]:
    """Return the last names of the functions whose calls are awaited, or handed to a library that runs them."""
    found = set[str]()
    for node in (each for tree in trees for each in ast.walk(tree)):
        match node:
            case ast.Await(value=ast.Call(func=called)):
                found.add(read_last_name(called))
            case ast.Call(func=ast.Attribute(value=owner), args=args) if read_last_name(owner) in _LIBRARIES:
                found |= {read_last_name(each.func) for each in args if isinstance(each, ast.Call)}
    return found - {""}


@with_deep_stack
def fail_when_asserting(text: str, tests: Collection[str], *, is_harmless: Callable[[str], bool]) -> str | None:
    """Return a test file in which the tests fail as soon as they run an assertion.

    Return None if one of the tests judges in other places than loops and conditions, or may do so in functions of other
    files. ``tests`` are names of functions; ``is_harmless`` tells of an imported dotted name whether it judges nothing.
    """
    tree = parse(text)
    if tree is None or isinstance(tree, ForeignModule):
        return None
    functions = [each for each in list_functions(tree) if each.name in tests]
    imported = {name for name, dotted in read_imports(tree).items() if is_harmless(dotted)}
    own = {each.name for each in list_functions(tree) if not any(map(_may_judge, ast.walk(each)))}
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    known = {*dir(builtins), *imported, *own, *classes, *tests}
    if not functions or not all(_may_skip_all(each, known) for each in functions):
        return None
    for function in functions:
        _Failing().visit(function)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _may_judge(node: ast.AST) -> bool:
    is_judge = isinstance(node, ast.Call) and _JUDGES.search(read_last_name(node.func)) is not None
    return is_judge or isinstance(node, (ast.Assert, ast.Raise))


def _may_skip_all(function: Function, known: Collection[str]) -> bool:
    """Return whether all assertions of a test are in parts that an empty result may skip."""
    asserts = [node for node in ast.walk(function) if _is_assertion(node)]
    others, waiting = list[ast.AST](), list[ast.AST]([function])
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _OPTIONAL) and _find_items(node) is None:
            others.append(node)
            waiting += ast.iter_child_nodes(node)
    called = {node.func.id for node in others if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return bool(asserts) and not any(map(_may_judge, others)) and called <= set(known)


def _is_assertion(node: ast.AST) -> bool:
    """Return whether a statement is an assertion, also of ``unittest``."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
            return name.startswith("assert")
        case _:
            return isinstance(node, ast.Assert)


def _find_items(node: ast.AST) -> ast.GeneratorExp | ast.ListComp | None:
    """Return what an assertion of the form ``all(... for ...)`` or ``not any(... for ...)`` asks of each item."""
    match node.test if isinstance(node, ast.Assert) else None:
        case (
            ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as items])
            | ast.UnaryOp(
                op=ast.Not(),
                operand=ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp() | ast.ListComp() as items]),
            )
        ):
            return items
        case _:
            return None


class _Failing(ast.NodeTransformer):
    """Makes each assertion fail; one about all items of a result if there is an item."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """Alter one assertion."""
        items = _find_items(node)
        if items is None:
            return ast.Assert(test=ast.Constant(value=False))
        items.elt = ast.Constant(value=isinstance(node.test, ast.UnaryOp))
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        """Alter an assertion of ``unittest``."""
        return ast.Assert(test=ast.Constant(value=False)) if _is_assertion(node) else node
