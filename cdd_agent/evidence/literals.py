"""Special-cased test inputs: added branches that hold a target test's input and give just what that test expects. Pure.

A false alarm costs an honest author an attempt, a miss is one check of several: whatever may be a rule of the product
is let pass. That is a literal that the ticket states, a table or a chain of branches with an entry that no target
names, and everything trivial. A table or chain of examples only, with nothing computed beside it, may be all there is
to implement: a reviewer has to look at it.

Python source as the checks look at it: parsed, told apart from its earlier version, names resolved. Pure.

What tests state by example: the literals they put in, and the literal they expect for them. Pure.

An expression counts as its normal form, ``ast.unparse`` of it, so that ``"a"`` and ``'a'`` are one.
"""

import ast
import contextlib
import difflib
import functools
import io
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeAlias

from cdd_agent.evidence.request import Findings, Request, is_python
from pytest_tdd_agent.report import Reason

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_MOST_LINES = 2000
_MOST_PAIRS = 50_000
"""Of equal lines before and after; the time to compare them grows with it."""


def parse(text: str | None) -> ast.Module | None:
    """The tree of a source; None if this interpreter cannot parse it, or there is none."""
    if text is None:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def added_lines(old: str | None, new: str) -> frozenset[int]:
    """The 1-based lines of code in ``new`` that are not in ``old``; comments and docstrings are no code."""
    return _edits(old, new)[0]


def touched_lines(old: str | None, new: str) -> frozenset[int]:
    """The added lines, and those beside which a line of code was removed."""
    return frozenset().union(*_edits(old, new))


@functools.lru_cache(maxsize=64)
def _edits(old: str | None, new: str) -> tuple[frozenset[int], frozenset[int]]:
    """The lines of ``new`` that were added, and those beside which lines were removed."""
    before, now = _code_lines(old or ""), _code_lines(new)
    texts = [text for _, text in now]
    added: set[int] = set()
    beside: set[int] = set()
    for kind, first, last in _differences([text for _, text in before], texts):
        added.update(number for number, _ in now[first:last])
        if kind == "delete":
            beside.update(number for number, _ in now[max(first - 1, 0) : first + 1])
    return frozenset(added), frozenset(beside)


def _differences(before: list[str], now: list[str]) -> Iterator[tuple[str, int, int]]:
    """Kind of an edit, and the lines of ``now`` that it covers, from 0, the last one excluded.

    Where to find the shortest edits would take long, lines are only counted: one that is there more often is added.
    """
    old, new = Counter(before), Counter(now)
    if max(len(before), len(now)) <= _MOST_LINES and sum(old[line] * new[line] for line in new) <= _MOST_PAIRS:
        matcher = difflib.SequenceMatcher(None, before, now, autojunk=False)
        yield from ((kind, first, last) for kind, _, _, first, last in matcher.get_opcodes() if kind != "equal")
        return
    for at, line in enumerate(now):
        old[line] -= 1
        if old[line] < 0:
            yield "insert", at, at + 1


def _code_lines(text: str) -> list[tuple[int, str]]:
    """Number and text of the lines as Python counts them, without comments, docstrings and what is blank then."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    tree = parse(text)
    if tree is not None:
        for number, column in _comments("\n".join(lines)):
            lines[number - 1] = lines[number - 1][:column]
        for number in docstring_lines(tree):
            lines[number - 1] = ""
    return [(number, line.rstrip()) for number, line in enumerate(lines, start=1) if line.strip()]


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Line and column of every comment."""
    with contextlib.suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start


def docstring_lines(tree: ast.Module) -> frozenset[int]:
    """The lines on which docstrings, and other texts that are statements by themselves, and nothing else stand."""
    found: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str):
                found |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    shared = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not isinstance(node, ast.Expr))
    return frozenset(found - {node.lineno for node in shared})


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name -> the dotted name that an import anywhere in the file gives it."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """The dotted name that an expression stands for, ``getattr`` with a constant included; empty if it is no name."""
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=owner, attr=attribute):
            found = dotted(owner, names)
            return f"{found}.{attribute}" if found else ""
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(attribute)), *_]):
            found = dotted(owner, names)
            return f"{found}.{attribute}" if found else ""
        case _:
            return ""


def docstrings(tree: ast.Module) -> set[int]:
    """The ids of the constants that are docstrings, or statements by themselves."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


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


_Inputs: TypeAlias = frozenset[frozenset[str]]
"""Literals that together lead into a branch; any of these sets will do."""
_MOST = 1000
"""Sets of a condition that are looked at."""


@dataclass(frozen=True, slots=True)
class _Branch:
    """One way through the code: where ``inputs`` are met, one of ``results`` is given."""

    line: int
    inputs: _Inputs
    results: frozenset[str]

    def met_by(self, example: Example) -> frozenset[str]:
        """What of the example leads into the branch."""
        return frozenset().union(*(together for together in self.inputs if together <= example.inputs))


@dataclass(frozen=True, slots=True)
class _Family:
    """Branches that decide the same thing together, and the statements or the table they are made of."""

    nodes: Sequence[ast.AST]
    branches: list[_Branch]


def special_cases(request: Request) -> Findings:
    """A reason for each branch of the change that is made for a target's input; a notice if nothing is beside them."""
    stated = examples_of(request)
    if not stated:
        return Findings()
    reasons: list[Reason] = []
    notices: list[str] = []
    for change in filter(is_python, request.changes):
        tree = parse(change.new)
        if tree is None or change.new is None:
            continue
        added = added_lines(change.old, change.new)
        for family in _families(tree):
            made = _made_for_tests(family, stated, added=added, text=request.stated)
            if len(made) > 1 and len(made) == _asking(family) and not _computes(tree, family):
                line = made[0][0].line
                notices.append(
                    f"{change.path}:{line} holds the examples of the target tests and no more: see whether there is a "
                    "rule behind them."
                )
                continue
            reasons += [_refusal(change.path, branch, example=example) for branch, example in made]
    return Findings(reasons=tuple(dict.fromkeys(reasons)), notices=tuple(dict.fromkeys(notices)))


def _refusal(path: str, branch: _Branch, *, example: Example) -> Reason:
    shown = ", ".join(sorted(branch.met_by(example)))
    message = (
        f"{path}:{branch.line} gives {example.expected} for {shown}, which is just what a target test puts in and "
        "expects. Implement the rule that gives this value for all inputs of its kind."
    )
    return Reason(code="special_cased", nodeid=None, message=message)


def _asking(family: _Family) -> int:
    """How many of its branches ask for a literal."""
    return sum(bool(branch.inputs) for branch in family.branches)


def _computes(tree: ast.Module, family: _Family) -> bool:
    """Whether the functions with the family, or those that look into the table, also give something they compute."""
    inside = (inner for node in family.nodes for inner in ast.walk(node))
    own = {id(inner) for inner in inside if isinstance(inner, (ast.expr, ast.pattern))}
    names = {
        _last_name(node.targets[0]) for node in ast.walk(tree) if isinstance(node, ast.Assign) and id(node.value) in own
    } - {""}

    def uses(node: ast.AST) -> bool:
        inside = list(ast.walk(node))
        return any(id(inner) in own or _last_name(inner) in names for inner in inside)

    functions = [node for node in ast.walk(tree) if isinstance(node, Function) and uses(node)]
    return any(not uses(value) and _is_computed(value) for function in functions for value in _given(function))


def _given(function: Function) -> Iterator[ast.expr]:
    """What a function returns or yields; for a name, what is assigned to it."""
    nodes = list(ast.walk(function))
    values = [node.value for node in nodes if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None]
    named = {value.id for value in values if isinstance(value, ast.Name)}
    yield from values
    for node in nodes:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id in named for to in node.targets):
            yield node.value


def _is_computed(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_computed(value.body) or _is_computed(value.orelse)
    return not (is_literal(value) or isinstance(value, (ast.Name, ast.Attribute, ast.JoinedStr)))


def examples_of(request: Request) -> tuple[Example, ...]:
    """What the target tests state by example."""
    found: list[Example] = []
    for file, source in request.tests.items():
        inside = [target for target in request.targets if target.partition("::")[0] == file]
        names = {target.rpartition("::")[2] if "[" not in target else _function_name(target) for target in inside}
        found += examples(source, names)
    return tuple(found)


def _function_name(target: str) -> str:
    """The function in a node id with parameters, which may hold any text."""
    return target.partition("[")[0].rpartition("::")[2]


def _made_for_tests(
    family: _Family, stated: tuple[Example, ...], *, added: Collection[int], text: str
) -> list[tuple[_Branch, Example]]:
    """The added branches that are examples of the tests; none if one of them asks for what is no example."""
    if any(branch.inputs and not any(map(branch.met_by, stated)) for branch in family.branches):
        return []
    made = []
    for branch in family.branches:
        example = next((example for example in stated if _fits(branch, example, text=text)), None)
        if branch.line in added and example is not None:
            made.append((branch, example))
    return made


def _fits(branch: _Branch, example: Example, *, text: str) -> bool:
    """Whether the branch gives what the example expects for one of its inputs, and the ticket states neither."""
    met = branch.met_by(example)
    is_made = bool(met) and example.expected in branch.results and example.expected not in met
    return is_made and not any(_is_stated(literal, text) for literal in (*met, example.expected))


def _is_stated(literal: str, text: str) -> bool:
    """Whether the ticket says the literal, or all that a container holds: as a word or number of its own."""
    leaves = [node for node in ast.walk(ast.parse(literal)) if isinstance(node, ast.Constant) and not is_trivial(node)]
    return bool(leaves) and all(_says(text, str(leaf.value)) for leaf in leaves)


def _says(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(word)}(?!\w|\.\d)", text) is not None


def _families(tree: ast.Module) -> Iterator[_Family]:
    """Branches that decide the same thing together: the entries of a table, a chain, the cases of a match."""
    constants = _constants(tree)
    looked_up = _looked_up(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys, values=values) if id(node) in looked_up:
                pairs = ((key, value) for key, value in zip(keys, values, strict=True) if key is not None)
                yield _Family([node], [_Branch(key.lineno, _whole(key), _results([value])) for key, value in pairs])
            case ast.Match(cases=cases):
                parts = ((case.pattern, _results_of_body(case.body)) for case in cases)
                yield _Family(
                    [case.pattern for case in cases],
                    [_Branch(pattern.lineno, _pattern(pattern), results) for pattern, results in parts],
                )
            case ast.IfExp(test=test, body=body):
                yield _Family([node], [_Branch(node.lineno, _condition(test, constants), _results([body]))])
            case ast.List(elts=items) | ast.Tuple(elts=items) if id(node) in looked_up:
                places = (_whole(ast.Constant(value=at)) for at in range(len(items)))
                rows = zip(places, items, strict=True)
                yield _Family([node], [_Branch(item.lineno, at, _results([item])) for at, item in rows])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If() | ast.For() | ast.Try() | ast.With():
                for block in _blocks(node):
                    chains = [branch for statement in block for branch in _chain(statement, constants)]
                    tests = [statement.test for statement in block if isinstance(statement, ast.If)]
                    yield _Family(tests, chains)
            case _:
                pass


def _blocks(node: Function | ast.If | ast.For | ast.Try | ast.With) -> Iterator[list[ast.stmt]]:
    """The statements in a row inside ``node``; an ``elif`` belongs to the chain before it."""
    yield node.body
    rest = getattr(node, "orelse", [])
    if not (len(rest) == 1 and isinstance(rest[0], ast.If) and isinstance(node, ast.If)):
        yield rest


def _chain(statement: ast.stmt, constants: dict[str, ast.expr]) -> Iterator[_Branch]:
    """The branches of an ``if`` with all its ``elif``."""
    while isinstance(statement, ast.If):
        yield _Branch(statement.lineno, _condition(statement.test, constants), _results_of_body(statement.body))
        if len(statement.orelse) != 1:
            return
        statement = statement.orelse[0]


def _looked_up(tree: ast.Module) -> set[int]:
    """The ids of the tables from which an entry is taken by a key that only the run knows."""
    tables: dict[str, list[ast.expr]] = {}
    used: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value):
                tables.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), value=ast.expr() as value):
                tables.setdefault(name, []).append(value)
            case ast.Subscript(value=table, slice=ast.Name() | ast.Attribute() | ast.Tuple() | ast.Call()):
                used.append(table)
            case ast.Call(func=ast.Attribute(value=table, attr="get" | "setdefault" | "pop"), args=[key, *_]):
                used += [] if isinstance(key, ast.Constant) else [table]
            case _:
                pass
    names = {_last_name(table) for table in used}
    return {id(table) for table in used} | {id(value) for name in names for value in tables.get(name, ())}


def _last_name(node: ast.AST) -> str:
    """``TABLE`` of ``self.TABLE``."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Name -> the literal that the module gives it."""
    plain = (node for node in tree.body if isinstance(node, ast.Assign) and is_literal(node.value))
    return {node.targets[0].id: node.value for node in plain if isinstance(node.targets[0], ast.Name)}


def _whole(node: ast.expr) -> _Inputs:
    """A literal, given as it is or as its parts; nothing of anything else."""
    if not is_literal(node) or is_trivial(node):
        return frozenset()
    parts = (inner for inner in ast.walk(node) if isinstance(inner, ast.Constant) and not is_trivial(inner))
    return frozenset({frozenset({ast.unparse(node)}), frozenset(map(ast.unparse, parts))} - {frozenset()})


def _condition(test: ast.expr, constants: dict[str, ast.expr]) -> _Inputs:
    """The literals that a condition asks for with ``==``, ``is`` or ``in``, alone or joined by ``and``, ``or``."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            return frozenset().union(*(_condition(value, constants) for value in values))
        case ast.BoolOp(values=values):
            asked = [inputs for value in values if (inputs := _condition(value, constants))]
            return (
                frozenset(frozenset().union(*chosen) for chosen in islice(product(*asked), _MOST))
                if asked
                else frozenset()
            )
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.In()], comparators=[right]):
            sides = [constants.get(side.id, side) if isinstance(side, ast.Name) else side for side in (left, right)]
            if isinstance(test.ops[0], ast.In):
                sides = list(getattr(sides[1], "elts", ()))
            return frozenset().union(*(_whole(side) for side in sides))
        case _:
            return frozenset()


def _pattern(pattern: ast.pattern) -> _Inputs:
    """The literals of a pattern, one of an ``or`` at a time."""
    if isinstance(pattern, ast.MatchOr):
        return frozenset().union(*(_pattern(part) for part in pattern.patterns))
    values = (node.value for node in ast.walk(pattern) if isinstance(node, ast.MatchValue))
    parts = frozenset().union(*(literals(value) for value in values))
    return frozenset({parts}) if parts else frozenset()


def _results_of_body(body: list[ast.stmt]) -> frozenset[str]:
    """The literals that the statements of a branch return, yield, print or keep."""
    given: list[ast.expr] = []
    for statement in body:
        match statement:
            case ast.Return(value=ast.expr() as value) | ast.Assign(value=value) | ast.AugAssign(value=value):
                given.append(value)
            case ast.Expr(value=ast.Yield(value=ast.expr() as value)):
                given.append(value)
            case ast.Expr(value=ast.Call(args=args)):
                given.extend(args)
            case _:
                pass
    return _results(given)


def _results(values: list[ast.expr]) -> frozenset[str]:
    return frozenset(ast.unparse(value) for value in values if is_literal(value) and not is_trivial(value))
