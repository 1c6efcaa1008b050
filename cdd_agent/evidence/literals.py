"""Find branches of a change that handle a target test's input and return exactly the expected value. Pure.

The module has two parts: the examples in tests, and the branches that repeat them.
A false alarm costs an honest author an attempt, and other checks follow. Therefore everything that may be a rule of the
product is accepted: literals in the ticket, tables or chains with an entry that no target names, trivial values. If a
table or chain holds only examples, and nothing is computed next to it, a notice asks the reviewer. Literals are
compared in their normal form, ``ast.unparse``, in which ``"a"`` and ``'a'`` are equal.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeAlias

from cdd_agent.evidence.clean_copy import CheckRequest, Findings, is_python
from cdd_agent.evidence.source import (
    Function,
    find_changed_lines,
    list_functions,
    parse,
    read_last_name,
    read_names,
)
from pytest_tdd_agent.report import Reason

_TRIVIAL = (None, True, False, 0, 1, -1, 2, Ellipsis)
_EQUALITY = frozenset({"assertEqual", "assertEquals", "assertIs", "assertListEqual", "assertDictEqual"})


@dataclass(frozen=True, slots=True)
class StatedExample:
    """One assertion: ``inputs`` give ``expected``. Both are normal forms of literals that are not trivial."""

    inputs: frozenset[str]
    expected: str


def find_examples(source: str, functions: Collection[str] = ()) -> tuple[StatedExample, ...]:
    """Return the examples in a test file, only those of the named functions if any exists."""
    tree = parse(source)
    if tree is None:
        return ()
    every = list_functions(tree)
    chosen = [node for node in every if node.name in functions] or every
    known = _read_literals(tree.body)
    return tuple(dict.fromkeys(example for node in chosen for example in _examples_in(node, known)))


def find_literals(node: ast.AST) -> frozenset[str]:
    """Return the literals in an expression that are not trivial, containers and their items."""
    expressions = (inner for inner in ast.walk(node) if isinstance(inner, ast.expr))
    return frozenset(ast.unparse(inner) for inner in expressions if is_literal(inner) and not is_trivial(inner))


def is_literal(node: ast.expr) -> bool:
    """Return whether the expression consists of constants. Calls such as ``Decimal("3.5")`` may contain them."""
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
    """Return whether a literal is too common: 0, 1, 2, None, a single character, an empty container."""
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


def _list_assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Return each target of an assignment with the value."""
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((target, value) for target in targets)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield target, value


def _read_literals(body: list[ast.stmt]) -> dict[str, ast.expr]:
    assigned = _list_assignments(body)
    return {target.id: value for target, value in assigned if isinstance(target, ast.Name) and is_literal(value)}


def _examples_in(function: Function, known: dict[str, ast.expr]) -> Iterator[StatedExample]:
    known = known | _read_literals(function.body)
    assigned = _list_assignments(ast.walk(function))
    values = known | {target.id: value for target, value in assigned if isinstance(target, ast.Name)}
    for decorator in function.decorator_list:
        for table in _find_parameter_tables(decorator, known):
            yield from _examples_of_rows(table)
    for node in ast.walk(function):
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right])):
                yield from _examples_of_equality(left, right, known=known, values=values)
            case ast.Call(func=ast.Attribute(attr=method), args=[left, right, *_]) if method in _EQUALITY:
                yield from _examples_of_equality(left, right, known=known, values=values)
            case ast.For(iter=table):
                yield from _examples_of_rows(_resolve(table, known))


def _find_parameter_tables(decorator: ast.expr, known: dict[str, ast.expr]) -> Iterator[ast.expr]:
    if not isinstance(decorator, ast.Call):
        return
    name = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else getattr(decorator.func, "id", "")
    if name == "parametrize":
        values = decorator.args[1:2] + [word.value for word in decorator.keywords if word.arg == "argvalues"]
        yield from (_resolve(value, known) for value in values)
    elif name in ("expand", "parameterized"):
        yield from (_resolve(value, known) for value in decorator.args[:1])


def _resolve(node: ast.expr, known: dict[str, ast.expr]) -> ast.expr:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        node = node.func.value
    return known.get(node.id, node) if isinstance(node, ast.Name) else node


def _examples_of_rows(table: ast.expr) -> Iterator[StatedExample]:
    """Return an example for every value in each row: the other values give it."""
    rows: list[list[ast.expr]] = []
    if isinstance(table, ast.Dict):
        rows = [[key, value] for _, key, value in _list_entries(table)]
    elif isinstance(table, (ast.List, ast.Tuple)):
        for row in table.elts:
            if isinstance(row, ast.Call) and "param" in ast.unparse(row.func):
                rows.append(list(row.args))
            elif isinstance(row, (ast.List, ast.Tuple)):
                rows.append(list(row.elts))
    for cells in rows:
        for position, cell in enumerate(cells):
            others = frozenset().union(*map(find_literals, cells[:position] + cells[position + 1 :]))
            if is_literal(cell) and not is_trivial(cell) and others:
                yield StatedExample(others, ast.unparse(cell))


def _examples_of_equality(
    left: ast.expr, right: ast.expr, *, known: dict[str, ast.expr], values: dict[str, ast.expr]
) -> Iterator[StatedExample]:
    for actual, expected in ((left, right), (right, left)):
        value = _resolve(expected, known)
        if not is_literal(value) or is_trivial(value):
            continue
        named = (values[node.id] for node in ast.walk(actual) if isinstance(node, ast.Name) and node.id in values)
        inputs = _find_arguments(actual).union(*(_find_arguments(each) | find_literals(each) for each in named))
        inputs -= {ast.unparse(value)}
        if inputs:
            yield StatedExample(inputs, ast.unparse(value))


def _find_arguments(node: ast.expr) -> frozenset[str]:
    """Return the literals in arguments of calls. Keys of a subscript on the result do not count."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    arguments = (value for call in calls for value in (*call.args, *(word.value for word in call.keywords)))
    return frozenset().union(*map(find_literals, arguments))


_Inputs: TypeAlias = frozenset[frozenset[str]]
"""Sets of literals. All literals of one set together lead into a branch."""
_MOST_SETS = 1000


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch of the code: for ``inputs``, it returns one of ``results``."""

    line: int
    inputs: _Inputs
    results: frozenset[str]

    def match(self, example: StatedExample) -> frozenset[str]:
        """Return the inputs of the example that lead into the branch."""
        return frozenset().union(*(together for together in self.inputs if together <= example.inputs))


@dataclass(frozen=True, slots=True)
class _Family:
    nodes: Sequence[ast.AST]
    branches: list[_Branch]


def find_special_cases(request: CheckRequest) -> Findings:
    """Return a reason for each branch made for a target's input, or a notice if the code holds only examples."""
    stated = _find_stated_examples(request)
    if not stated:
        return Findings()
    reasons: list[Reason] = []
    notices: list[str] = []
    for change in filter(is_python, request.changes):
        tree = parse(change.new)
        if tree is None or change.new is None:
            continue
        added, _ = find_changed_lines(change.old, change.new)
        for family in _find_families(tree):
            special = _find_special_branches(family, stated, added=added, text=request.stated)
            conditional = [branch for branch in family.branches if branch.inputs]
            if len(special) > 1 and len(special) == len(conditional) and not _computes(tree, family):
                notices.append(
                    f"{change.path}:{special[0][0].line} handles only the examples of the target tests. Check whether "
                    "a rule is behind them."
                )
                continue
            for branch, example in special:
                message = (
                    f"{change.path}:{branch.line} returns {example.expected} for "
                    f"{', '.join(sorted(branch.match(example)))}, exactly the expected value and input of a target "
                    "test. Implement the rule behind the example."
                )
                reasons.append(Reason(code="special_cased", nodeid=None, message=message))
    return Findings(reasons=tuple(dict.fromkeys(reasons)), notices=tuple(dict.fromkeys(notices)))


def _computes(tree: ast.Module, family: _Family) -> bool:
    """Return whether functions that contain the family, or use its table, also return a computed value."""
    inside = (inner for node in family.nodes for inner in ast.walk(node))
    own = {id(inner) for inner in inside if isinstance(inner, (ast.expr, ast.pattern))}
    tables = {read_last_name(target) for target, value in _list_assignments(ast.walk(tree)) if id(value) in own}

    def uses(node: ast.AST) -> bool:
        return not tables.isdisjoint(read_names(node)) or any(id(inner) in own for inner in ast.walk(node))

    results = (value for function in list_functions(tree) if uses(function) for value in _list_results(function))
    return any(not uses(value) and _is_computed(value) for value in results)


def _list_results(function: Function) -> Iterator[ast.expr]:
    nodes = list(ast.walk(function))
    values = [node.value for node in nodes if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]
    names = {value.id for value in values if isinstance(value, ast.Name)}
    yield from values
    yield from (value for target, value in _list_assignments(nodes) if read_last_name(target) in names)


def _is_computed(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_computed(value.body) or _is_computed(value.orelse)
    return not (is_literal(value) or isinstance(value, (ast.Name, ast.Attribute, ast.JoinedStr)))


def _find_stated_examples(request: CheckRequest) -> tuple[StatedExample, ...]:
    examples: list[StatedExample] = []
    for file, source in request.tests.items():
        targets = [target for target in request.targets if target.partition("::")[0] == file]
        # Parameters in brackets may contain any text, even "::".
        names = {target.partition("[")[0].rpartition("::")[2] for target in targets}
        examples += find_examples(source, names)
    return tuple(examples)


def _find_special_branches(
    family: _Family, stated: tuple[StatedExample, ...], *, added: Collection[int], text: str
) -> list[tuple[_Branch, StatedExample]]:
    """Return the added branches that match examples. If a branch matches none, there may be a rule: return nothing."""
    if any(branch.inputs and not any(map(branch.match, stated)) for branch in family.branches):
        return []
    special = []
    for branch in family.branches:
        for example in stated if branch.line in added else ():
            inputs = branch.match(example)
            # A branch that returns its own input is probably a rule.
            is_equal = bool(inputs) and example.expected in branch.results and example.expected not in inputs
            if is_equal and not any(_is_stated(literal, text) for literal in (*inputs, example.expected)):
                special.append((branch, example))
                break
    return special


def _is_stated(literal: str, text: str) -> bool:
    """Return whether the ticket contains the literal, or all items of a container, as separate words."""
    leaves = [node for node in ast.walk(ast.parse(literal)) if isinstance(node, ast.Constant) and not is_trivial(node)]
    return bool(leaves) and all(
        re.search(rf"(?<![\w.]){re.escape(str(leaf.value))}(?!\w|\.\d)", text) is not None for leaf in leaves
    )


def _find_families(tree: ast.Module) -> Iterator[_Family]:
    """Return the branches that belong together: the entries of a table, a chain of ifs, the cases of a match."""
    constants = _read_literals(tree.body)
    looked_up = _find_tables(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Dict() | ast.List() | ast.Tuple() if id(node) in looked_up:
                entries = _list_entries(node)
                yield _Family(
                    [node],
                    [_Branch(line, _inputs_of_literal(key), _keep_literals([value])) for line, key, value in entries],
                )
            case ast.Match(cases=cases):
                parts = [(case.pattern, case.body) for case in cases]
                yield _Family(
                    [pattern for pattern, _ in parts],
                    [_Branch(each.lineno, _inputs_of_pattern(each), _find_results(body)) for each, body in parts],
                )
            case ast.IfExp(test=test, body=body):
                inputs = _inputs_of_condition(test, constants)
                yield _Family([node], [_Branch(node.lineno, inputs, _keep_literals([body]))])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If() | ast.For() | ast.Try() | ast.With():
                for block in _split_blocks(node):
                    chains = [branch for statement in block for branch in _split_chain(statement, constants)]
                    tests = [statement.test for statement in block if isinstance(statement, ast.If)]
                    yield _Family(tests, chains)


def _list_entries(table: ast.Dict | ast.List | ast.Tuple) -> Iterator[tuple[int, ast.expr, ast.expr]]:
    """Return line, key and value of each entry; the key of a list's item is its index."""
    if isinstance(table, ast.Dict):
        pairs = zip(table.keys, table.values, strict=True)
        yield from ((key.lineno, key, value) for key, value in pairs if key is not None)
    else:
        yield from ((item.lineno, ast.Constant(value=index), item) for index, item in enumerate(table.elts))


def _split_blocks(node: Function | ast.If | ast.For | ast.Try | ast.With) -> Iterator[list[ast.stmt]]:
    """Return the blocks of statements inside ``node``. An ``elif`` belongs to the chain before it."""
    yield node.body
    rest = getattr(node, "orelse", [])
    if not (len(rest) == 1 and isinstance(rest[0], ast.If) and isinstance(node, ast.If)):
        yield rest


def _split_chain(statement: ast.stmt, constants: dict[str, ast.expr]) -> Iterator[_Branch]:
    while isinstance(statement, ast.If):
        yield _Branch(statement.lineno, _inputs_of_condition(statement.test, constants), _find_results(statement.body))
        if len(statement.orelse) != 1:
            return
        statement = statement.orelse[0]


def _find_tables(tree: ast.Module) -> set[int]:
    """Return the ids of tables that are subscripted with a variable key."""
    used: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=table, slice=ast.Name() | ast.Attribute() | ast.Tuple() | ast.Call()):
                used.append(table)
            case ast.Call(func=ast.Attribute(value=table, attr="get" | "setdefault" | "pop"), args=[key, *_]):
                used += [] if isinstance(key, ast.Constant) else [table]
    names = {read_last_name(table) for table in used} - {""}
    assigned = (value for target, value in _list_assignments(ast.walk(tree)) if read_last_name(target) in names)
    return {id(table) for table in (*used, *assigned)}


def _inputs_of_literal(node: ast.expr) -> _Inputs:
    if not is_literal(node) or is_trivial(node):
        return frozenset()
    parts = (inner for inner in ast.walk(node) if isinstance(inner, ast.Constant) and not is_trivial(inner))
    return frozenset({frozenset({ast.unparse(node)}), frozenset(map(ast.unparse, parts))} - {frozenset()})


def _inputs_of_condition(test: ast.expr, constants: dict[str, ast.expr]) -> _Inputs:
    """Return the literals that a condition compares with by ``==``, ``is`` or ``in``, joined by ``and`` and ``or``."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            return frozenset().union(*(_inputs_of_condition(value, constants) for value in values))
        case ast.BoolOp(values=values):
            asked = [inputs for value in values if (inputs := _inputs_of_condition(value, constants))]
            joined = frozenset(frozenset[str]().union(*chosen) for chosen in islice(product(*asked), _MOST_SETS))
            return joined - {frozenset()}
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.In()], comparators=[right]):
            sides = [constants.get(side.id, side) if isinstance(side, ast.Name) else side for side in (left, right)]
            if isinstance(test.ops[0], ast.In):
                sides = list(getattr(sides[1], "elts", ()))
            return frozenset().union(*(_inputs_of_literal(side) for side in sides))
        case _:
            return frozenset()


def _inputs_of_pattern(pattern: ast.pattern) -> _Inputs:
    """Return the literals of a pattern. The alternatives of an ``or`` are separate sets."""
    if isinstance(pattern, ast.MatchOr):
        return frozenset().union(*(_inputs_of_pattern(part) for part in pattern.patterns))
    values = (node.value for node in ast.walk(pattern) if isinstance(node, ast.MatchValue))
    parts = frozenset().union(*(find_literals(value) for value in values))
    return frozenset({parts}) if parts else frozenset()


def _find_results(body: list[ast.stmt]) -> frozenset[str]:
    values: list[ast.expr] = []
    for statement in body:
        match statement:
            case ast.Return(value=ast.expr() as value) | ast.Assign(value=value) | ast.AugAssign(value=value):
                values.append(value)
            case ast.Expr(value=ast.Yield(value=ast.expr() as value)):
                values.append(value)
            case ast.Expr(value=ast.Call(args=args)):
                values.extend(args)
    return _keep_literals(values)


def _keep_literals(values: list[ast.expr]) -> frozenset[str]:
    return frozenset(ast.unparse(value) for value in values if is_literal(value) and not is_trivial(value))
