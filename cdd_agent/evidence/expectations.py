"""Alter what the target tests expect, and see whether they notice.

A target that passes although its expected values were altered does not look at the product's answer: the product
answers with whatever it is compared with, or reads it from the test. The altered values are those that an assertion
compares with something computed. They are literals in the assertion itself, or in what its names stand for: local and
module constants, rows of ``parametrize``, loops and fixtures, arguments of a helper that compares. Files with expected
content are altered, too. All functions before ``check_expectations`` are pure.
"""

import ast
import builtins
import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal, TypeAlias

from cdd_agent.evidence.clean_copy import CheckRequest, Findings, find_not_passing, list_test_functions, note, refuse
from cdd_agent.evidence.mutation import Mutant, TimedRuns, run_mutant
from cdd_agent.evidence.source import Function, list_definitions, list_functions, read_last_name
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.python_source import PYTHON, decode, parse, with_deep_stack
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS
from pytest_tdd_agent.report import Clause

Find: TypeAlias = Callable[[str], ast.Module | None]
"""Finds a module of the project by its dotted name; None: it belongs to a library."""
Rows: TypeAlias = Sequence[ast.expr]
_Within: TypeAlias = Literal["", "call", "file"]
"""Where an expression is: in a call or an operation, or in the path of a file whose whole content is compared."""

_FAIL_WITH_THREADS = ("-W", "error::pytest.PytestUnhandledThreadExceptionWarning")
"""Options of pytest: otherwise a target passes although an assertion failed in one of its threads."""
_MOST_CALLS = 3
"""How deep helpers are followed."""
_MOST_STEPS = 12
"""How often a name is replaced by what it stands for, and how deep expressions are read."""
_LITERAL, _CONSTANT, _MADE, _COMPUTED = range(4)
"""How constant an expression is. Made is an object of a class of the product, from literals: its class compares it."""
_UNEQUAL = (ast.NotEq, ast.NotIn, ast.IsNot)
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_ENDS = frozenset({"raises", "assertRaises", "assertRaisesRegex"})
_RAISES = _ENDS | {"warns", "assertWarns", "assertWarnsRegex"}
_OF_MOCKS = (
    "assert_called",
    "assert_any_call",
    "assert_has_calls",
    "assert_awaited",
    "assert_any_await",
    "assert_has_awaits",
)
_BUILTINS = frozenset(dir(builtins)) | {"__file__"}
_SHIFT = 7919
_READS = frozenset({"read", "read_bytes", "read_text"})


@dataclass(frozen=True, slots=True)
class Expectation:
    """One place in a test file that states what the product must answer."""

    start: int
    """Offsets in the file, in bytes."""
    end: int
    line: int
    values: tuple[str, str]
    """What replaces it in the first and in the second try."""
    is_exact: bool
    """Whether no other value can be right. A limit or a tolerance may be met by one of the values, but not by both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What one test expects."""

    places: tuple[Expectation, ...] = ()
    files: Mapping[str, bool] = field(default_factory=dict)
    """Files whose content it expects -> whether no other content can be right, as for ``Expectation.is_exact``."""

    @property
    def is_exact(self) -> bool:
        """Whether one try is enough."""
        return any(self.files.values()) or any(place.is_exact for place in self.places)

    def describe(self, source: str) -> Clause:
        """Return the first alteration; ``source`` is that of the test file."""
        if not self.places:
            return Clause("other_content", {"files": tuple(self.files)})
        first = self.places[0]
        before = source.encode()[first.start : first.end].decode()
        return Clause("other_expectation", {"line": first.line, "now": first.values[0], "before": before})


@with_deep_stack
def find_expectations(
    source: str, tests: Iterable[str], *, find: Find, files: Collection[str] = ()
) -> Mapping[str, Expected]:
    """Return what these tests of one file expect, without those that state no value.

    A test's name is that in its node id. ``files`` are files of the project that may hold expected content.
    """
    tree = parse(source)
    found: dict[str, Expected] = {}
    if tree is None:
        return found
    for test in tests:
        reader = _Reader(text=source, tree=tree, find=find, files=files)
        reader.read(test.split("::"))
        if reader.found or reader.named:
            found[test] = Expected(places=tuple(reader.found.values()), files=reader.named)
    return found


def alter_source(source: str, places: Iterable[Expectation], *, attempt: int) -> str:
    """Return a test file with other expected values; ``attempt`` is 0 or 1."""
    data = source.encode()
    for place in sorted(set(places), key=lambda each: each.start, reverse=True):
        data = data[: place.start] + place.values[attempt].encode() + data[place.end :]
    return data.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """What names stand for. A name with several values has each in turn."""

    names: Mapping[str, Rows]
    outer: "_Scope | None" = None
    is_passed: bool = False
    """Whether the values come from the outer scope, as arguments do."""
    depth: int = 0
    """Number of helpers around it."""

    def look_up(self, name: str) -> "tuple[Rows, _Scope] | None":
        """Return what a name stands for, and the scope in which that is to be read."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name], (scope.outer or scope) if scope.is_passed else scope
            scope = scope.outer
        return None


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads one test, and the helpers that it calls."""

    text: str
    tree: ast.Module
    find: Find
    files: Collection[str]
    found: dict[int, Expectation] = field(init=False, default_factory=dict)
    """Offset -> place."""
    named: dict[str, bool] = field(init=False, default_factory=dict)
    """As ``Expected.files``."""
    answers: dict[tuple[str, ...], list[tuple[ast.expr, _Scope, bool]]] = field(init=False, default_factory=dict)
    """What is computed -> what it is compared with, and whether that must be exactly so."""
    given: set[str] = field(init=False, default_factory=set)
    """Words of what is computed."""
    imported: Mapping[str, str] = field(init=False)
    starts: list[int] = field(init=False)
    """Offset of each line."""
    own: set[int] = field(init=False)
    """Ids of the nodes of this file. Those of imported helpers have no place in it."""

    def __post_init__(self) -> None:
        self.imported = dict(_list_imports(self.tree))
        self.own = {id(node) for node in ast.walk(self.tree)}
        self.starts = [0]
        for line in self.text.encode().splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def read(self, path: Sequence[str]) -> None:
        """Read a test; ``path`` are its classes and its name."""
        scope = _Scope(names=_read_names(self.tree, None))
        node: ast.AST | None = self.tree
        decorators: list[ast.expr] = []
        for name in path:
            # Of two definitions, Python keeps the last one.
            node = next((each for each in reversed(list_definitions(node)) if each.name == name), None)
            decorators += node.decorator_list if node is not None else []
            if isinstance(node, ast.ClassDef):
                scope = _Scope(names=_read_names(node, scope), outer=scope)
        if isinstance(node, Function):
            given = {**_read_fixtures(self.tree), **_read_parameters(decorators, scope)}
            self._read_function(node, _Scope(names=given, outer=scope, is_passed=True))
        for subject, compared in self.answers.items():
            # What a test itself compares with several values may be equal to anything: that is what it tests.
            stated = {text for side, where, _ in compared for text in self._list_values(side, where)}
            if len(stated) <= len(subject):
                # What the product is given too changes its answer as well.
                self.given = {name for text in subject for name in re.findall(r"\w+", text)}
                for side, where, is_exact in compared:
                    self._alter(side, where, is_exact=is_exact)
        # From a file that the product reads too, it may well answer whatever is there.
        subjects = " ".join(text for subject in self.answers for text in subject)
        self.named = {file: whole for file, whole in self.named.items() if file.rpartition("/")[2] not in subjects}

    def _list_values(self, side: ast.expr, scope: _Scope) -> tuple[str, ...]:
        """Return what an expression is in turn: once for each value of its names."""
        names = sorted({inner.id for inner in ast.walk(side) if isinstance(inner, ast.Name)})
        values = [meant[0] for meant in map(scope.look_up, names) if meant is not None]
        rows = zip_longest(*(map(ast.unparse, each) for each in values)) if values else [()]
        return tuple(f"{ast.unparse(side)} with {row}" for row in rows)

    def _read_function(self, function: Function, given: _Scope) -> None:
        scope = _Scope(names=_read_names(function, given), outer=given, depth=given.depth)
        # A block that has to raise may end before its assertions run.
        blocks = (node for node in ast.walk(function) if isinstance(node, (ast.With, ast.AsyncWith)) and _ends(node))
        unreached = {id(inner) for block in blocks for statement in block.body for inner in ast.walk(statement)}
        for node in ast.walk(function):
            if id(node) in unreached:
                continue
            match node:
                case ast.Assert(test=test):
                    self._read_condition(test, scope)
                case ast.If(test=ast.Compare(left=left, ops=[op], comparators=others), body=body):
                    if isinstance(op, _UNEQUAL) and _fails(body):
                        self._compare((left, *others), scope)
                case ast.Expr(value=ast.Call() as call) | ast.withitem(context_expr=ast.Call() as call):
                    self._read_call(call, scope)

    def _read_condition(self, test: ast.expr, scope: _Scope) -> None:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                for value in values:
                    self._read_condition(value, scope)
            case ast.Compare(left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(op=ast.Sub()) as off]), ops=[_]):
                self._compare((off.left, off.right), scope, is_exact=False)
            case ast.Compare(left=left, ops=ops, comparators=others):
                for first, op, second in zip((left, *others), ops, others, strict=False):
                    if not isinstance(op, _UNEQUAL):
                        # An altered text or list may still contain the answer.
                        is_part = isinstance(op, ast.In) and self._rank(second, scope) < self._rank(first, scope)
                        is_exact = not (is_part or isinstance(op, _ORDERED))
                        self._compare((first, second), scope, is_exact=is_exact)
            case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith"), args=args):
                self._compare((value, *args), scope)
            case ast.Call():
                self._read_call(test, scope, is_asserted=True)

    def _compare(self, sides: Sequence[ast.expr], scope: _Scope, *, is_exact: bool = True) -> None:
        """Alter the sides that are more constant than another one, with which they are compared."""
        ranks = [self._rank(side, scope) for side in sides]
        ranked = [*zip(sides, ranks, strict=True)]
        subject = tuple(text for side, rank in ranked if rank == max(ranks) for text in self._list_values(side, scope))
        self.answers.setdefault(subject, []).extend(
            (side, scope, is_exact) for side, rank in ranked if rank < max(ranks)
        )

    def _read_call(self, call: ast.Call, scope: _Scope, *, is_asserted: bool = False) -> None:
        """Alter the constants that a function compares with something computed; ``is_asserted``: it returns whether."""
        name = read_last_name(call.func)
        if name in _RAISES:
            texts = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "match")]
            for text in (text for text in texts if self._rank(text, scope) == _LITERAL):
                self._alter(text, scope)
            if call.args:  # a correct product may raise either exception, but not both
                self._add(call.args[0], ("BlockingIOError", "EOFError"), is_exact=False)
        elif (helper := self._find_helper(call.func)) is not None:
            if scope.depth < _MOST_CALLS:
                passed = _Scope(names=_bind(helper, call), outer=scope, is_passed=True, depth=scope.depth + 1)
                self._read_function(helper, passed)
        elif name.startswith(_OF_MOCKS) and isinstance(call.func, ast.Attribute):
            # The product computes the arguments of the mock. Names stay, because the product may be given them too.
            given = ast.Tuple(elts=[*call.args, *(word.value for word in call.keywords)])
            self.answers.setdefault(self._list_values(call, scope), []).append((given, scope, True))
        elif name.startswith("assert") or (is_asserted and self._is_of_library(call.func)):
            sides = call.args  # keywords are tolerances and messages
            if not name.startswith("assertNot"):
                self._compare(sides, scope, is_exact="equal" in name.lower() and len(sides) == 2)

    def _find_helper(self, called: ast.expr) -> Function | None:
        match called:
            case ast.Name(id=name):
                module, _, imported = self.imported.get(name, "").rpartition(".")
                tree = self.find(module) if module else self.tree
                named = [each for each in list_definitions(tree) if each.name == (imported or name)]
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                named = [each for each in list_functions(self.tree) if each.name == name]
            case _:
                return None
        return next((each for each in named if isinstance(each, Function)), None)

    def _is_of_library(self, called: ast.expr) -> bool:
        root = next((node.id for node in ast.walk(called) if isinstance(node, ast.Name)), "")
        return root in self.imported and self.find(self.imported[root]) is None

    def _rank(self, node: ast.expr, scope: _Scope, *, steps: int = 0) -> int:
        """Return how constant an expression is."""
        parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        least = _LITERAL
        match node:
            case ast.Name(id=name):
                meant = scope.look_up(name)
                if meant is None or steps > _MOST_STEPS:
                    is_known = name in _BUILTINS or self._is_of_library(node)
                    return _CONSTANT if meant is None and is_known else _COMPUTED
                parts, scope = list(meant[0]), meant[1]
                least = _LITERAL if parts else _COMPUTED
            case ast.Call(func=ast.Name(id=name), args=args, keywords=words) if name[:1].isupper() and (args or words):
                ranks = [self._rank(each, scope, steps=steps + 1) for each in (*args, *(word.value for word in words))]
                if self._is_of_library(node.func):
                    return max(_CONSTANT, *ranks)
                return _MADE if max(ranks) == _LITERAL and name in self.imported else _COMPUTED
            case ast.Call() | ast.Attribute() | ast.JoinedStr() | ast.FormattedValue():
                parts += [word.value for word in node.keywords] if isinstance(node, ast.Call) else []
                least = _CONSTANT
            case ast.Constant() | ast.List() | ast.Tuple() | ast.Set() | ast.Dict() | ast.UnaryOp() | ast.BinOp():
                pass
            case ast.Subscript() | ast.Starred():
                pass
            case _:
                return _COMPUTED
        rank = max((self._rank(part, scope, steps=steps + 1) for part in parts), default=least) or least
        is_whole = isinstance(node, (ast.Name, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Starred))
        return rank if is_whole or rank != _MADE else _COMPUTED

    def _alter(
        self, node: ast.expr, scope: _Scope, *, is_exact: bool = True, within: _Within = "", steps: int = 0
    ) -> None:
        """Alter the literals of an expression, and the literals that its names refer to."""
        if steps > _MOST_STEPS:
            return
        match node:
            case ast.Constant(value=str(text)) if within and (file := self._find_file(text)) is not None:
                self.named[file] = self.named.get(file, False) or (is_exact and within == "file")
            case ast.Constant(value=str(text)) if within and any(f"/{text}/" in f"/{file}" for file in self.files):
                pass  # a folder of such a file
            case ast.Constant(value=value):
                is_exact = is_exact and not within
                self._add(node, _alter_constant(value, is_exact=is_exact), is_exact=is_exact)
            case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Tuple(elts=[]):
                brackets = ast.unparse(node)
                filled = f"{brackets[0]}'altered'{': 1' * isinstance(node, ast.Dict)},{brackets[-1]}"
                self._add(node, (filled, filled), is_exact=is_exact)
            case ast.Name(id=name) if name not in self.given:
                values, where = scope.look_up(name) or ((), scope)
                for each in values:
                    self._alter(each, where, is_exact=is_exact, within=within, steps=steps + 1)
            case ast.JoinedStr():
                pass
            case ast.Call(func=ast.Attribute(value=path, attr=attr)) if attr in _READS and not within:
                self._alter(path, scope, is_exact=is_exact, within="file", steps=steps + 1)
            case _:
                for part in (*ast.iter_child_nodes(node), *getattr(node, "keywords", ())):
                    inner = part.value if isinstance(part, ast.keyword) else part
                    if isinstance(inner, ast.expr):
                        around: _Within = within or ("call" if isinstance(node, (ast.Call, ast.BinOp)) else "")
                        self._alter(inner, scope, is_exact=is_exact, within=around, steps=steps + 1)

    def _find_file(self, text: str) -> str | None:
        return next((file for file in self.files if text and f"/{file}".endswith(f"/{text}")), None)

    def _add(self, node: ast.expr, values: tuple[str, str], *, is_exact: bool) -> None:
        if id(node) in self.own and node.end_lineno is not None and node.end_col_offset is not None:
            start = self.starts[node.lineno - 1] + node.col_offset
            end = self.starts[node.end_lineno - 1] + node.end_col_offset
            self.found[start] = Expectation(start=start, end=end, line=node.lineno, values=values, is_exact=is_exact)


def alter_content(text: str, *, attempt: int) -> str:
    """Return a file's content with its first or last letter or digit replaced."""
    words = list(re.finditer(r"[A-Za-z0-9]", text))
    if not words:
        return f"{text}altered"
    place = words[-1 if attempt == 0 else 0]
    other = "7" if place[0].isdigit() and place[0] != "7" else "3" if place[0] == "7" else "q"
    return text[: place.start()] + ("k" if place[0] == other else other) + text[place.end() :]


def _alter_constant(value: object, *, is_exact: bool) -> tuple[str, str]:
    match value:
        case bool():
            return repr(not value), repr(not value)
        case int() | float() | complex():
            return repr(value + _SHIFT), repr(value - _SHIFT)
        case str():
            # Of a limit, or of a text that contains the answer: no other text is greater, or none is in it.
            return (repr(f"{value}altered"), repr("altered")) if is_exact else (repr("\U0010ffff"), repr(""))
        case bytes():
            return repr(value + b"altered"), repr(b"altered")
        case _:
            return "NotImplemented", "NotImplemented"


def _ends(block: ast.With | ast.AsyncWith) -> bool:
    calls = (item.context_expr for item in block.items)
    return any(isinstance(call, ast.Call) and read_last_name(call.func) in _ENDS for call in calls)


def _fails(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Raise) for statement in body for node in ast.walk(statement))


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Return each imported name, and what it is in full; a relative import keeps its dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in node.names)


def _read_names(node: ast.Module | ast.ClassDef | Function, scope: _Scope | None) -> Mapping[str, Rows]:
    """Return what names are set to, in a module, class or function."""
    names: defaultdict[str, list[ast.expr]] = defaultdict(list)
    waiting: list[ast.AST] = list(node.body)
    own = _Scope(names=names, outer=scope)
    while waiting:
        match inner := waiting.pop(0):
            case ast.Assign(targets=[target], value=ast.Subscript(value=table)) if isinstance(target, ast.Tuple):
                _set(target, _list_rows(table, own), names=names)
            case ast.Assign(targets=[target], value=value):
                _set(target, [value], names=names)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                _set(target, [value], names=names)
            case ast.NamedExpr(target=target, value=value):
                _set(target, [value], names=names)
            case ast.For(target=target, iter=rows):
                _set(target, _list_rows(rows, own), names=names)
        if not isinstance(inner, (Function, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(inner)
    return names


def _set(target: ast.expr, values: Rows, *, names: defaultdict[str, list[ast.expr]]) -> None:
    """Enter what a target is set to: one value, or each row in turn."""
    if isinstance(target, ast.Name):
        names[target.id] += values
    elif isinstance(target, (ast.Tuple, ast.List)):
        for column, part in enumerate(target.elts):
            cells = [row.elts[column] for row in map(_read_row, values) if column < len(row.elts)]
            _set(part, cells, names=names)


def _read_row(row: ast.expr) -> ast.Tuple:
    match row:
        case ast.Tuple() | ast.List():
            return ast.Tuple(elts=row.elts)
        case ast.Call(args=args) if read_last_name(row.func) == "param":
            return ast.Tuple(elts=args)
        case _:
            return ast.Tuple(elts=[])


def _list_rows(table: ast.expr, scope: _Scope, *, steps: int = 0) -> Rows:
    match table:
        case ast.List(elts=rows) | ast.Tuple(elts=rows) | ast.Set(elts=rows):
            return rows
        case ast.Call(func=ast.Attribute(value=inner, attr="items")):
            return _list_rows(inner, scope, steps=steps)
        case ast.Dict(keys=keys, values=values):
            return [ast.Tuple(elts=[key, value]) for key, value in zip(keys, values, strict=True) if key is not None]
        case ast.Name(id=name) if steps < _MOST_STEPS and (meant := scope.look_up(name)) is not None:
            return [row for value in meant[0] for row in _list_rows(value, meant[1], steps=steps + 1)]
        case _:
            return ()


def _read_parameters(decorators: Iterable[ast.expr], scope: _Scope) -> Mapping[str, Rows]:
    names: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for call in decorators:
        match call:
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[given, table, *_]):
                words = [str(node.value) for node in ast.walk(given) if isinstance(node, ast.Constant)]
                target: list[ast.expr] = [ast.Name(id=word) for word in re.findall(r"\w+", " ".join(words))]
                rows = [_read_row(row) if isinstance(row, ast.Call) else row for row in _list_rows(table, scope)]
                is_single = len(target) == 1 and not isinstance(given, (ast.Tuple, ast.List))
                _set(target[0] if is_single else ast.Tuple(elts=target), rows, names=names)
    return names


def _read_fixtures(tree: ast.Module) -> Mapping[str, Rows]:
    """Return what the file's fixtures return or yield."""
    found = {}
    for function in list_functions(tree):
        if any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list):
            values = [node.value for node in ast.walk(function) if isinstance(node, (ast.Return, ast.Yield))]
            found[function.name] = [value for value in values if value is not None]
    return found


def _bind(helper: Function, call: ast.Call) -> Mapping[str, Rows]:
    names = [argument.arg for argument in (*helper.args.posonlyargs, *helper.args.args)]
    if isinstance(call.func, ast.Attribute):
        names = names[1:]
    given: dict[str, Rows] = {name: [value] for name, value in zip(names, call.args, strict=False)}
    return given | {word.arg: [word.value] for word in call.keywords if word.arg is not None}


def check_expectations(request: CheckRequest, *, copy: Suite, runs: TimedRuns) -> Findings:
    """Run the targets with other expected values. Each that states one must fail."""
    project = _Project.read(copy)
    passing: dict[str, tuple[str, Expected]] = {}
    for file, source in request.tests.items():
        inside = f"{file}::"
        targets = [target for target in list_test_functions(request.targets) if target.startswith(inside)]
        names = [target.removeprefix(inside) for target in targets]
        found = find_expectations(source, names, find=project.find, files=project.data)
        passing |= {inside + name: (file, expected) for name, expected in found.items()}
    certain: list[str] = []
    if isinstance(copy, PytestSuite):
        copy = replace(copy, options=(*copy.options, *_FAIL_WITH_THREADS))
    for attempt in (0, 1):
        if not passing or certain:
            break
        texts = _alter_files(passing.values(), request.tests, copy=copy, attempt=attempt)
        altered = Mutant(where=Clause("expected_values"), how=Clause("values_changed"), texts=texts)
        report = run_mutant(copy, altered, tests=tuple(passing), runs=runs).report
        if report is None:
            return note("expectations", "expectations_did_not_end", outcome="noted")
        failing = set(list_test_functions(find_not_passing(request.targets, report)))
        passing = {target: found for target, found in passing.items() if target not in failing}
        exact = (target for target, (_, found) in passing.items() if found.is_exact)
        certain = [*exact] if attempt == 0 else [*passing]
    if not certain:
        return Findings()
    file, expected = passing[certain[0]]
    altered_place = expected.describe(request.tests[file])
    return refuse("expectation_ignored", nodeid=certain[0], test=certain[0], altered=altered_place)


def _alter_files(
    tests: Iterable[tuple[str, Expected]], sources: Mapping[str, str], *, copy: Suite, attempt: int
) -> dict[str, str]:
    """Return altered test files, and altered files with expected content."""
    texts, places = {}, defaultdict[str, list[Expectation]](list)
    for file, expected in tests:
        places[file] += expected.places
        for data in expected.files:
            content = ConfinedFolder(copy.root).read(data).decode("utf-8", "surrogateescape")
            texts[data] = alter_content(content, attempt=attempt)
    return texts | {file: alter_source(sources[file], each, attempt=attempt) for file, each in places.items()}


@dataclass(frozen=True, kw_only=True)
class _Project:
    """The files of the copy, as its tests name them; paths are relative to it."""

    copy: Suite
    paths: tuple[str, ...]

    @classmethod
    def read(cls, copy: Suite) -> "_Project":
        """List the files."""
        paths = []
        for folder, folders, names in os.walk(copy.root):
            folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
            paths += [os.path.relpath(os.path.join(folder, name), copy.root) for name in names]
        return cls(copy=copy, paths=tuple(sorted(paths)))

    @property
    def data(self) -> tuple[str, ...]:
        """The files in folders of tests that are not Python."""
        is_test = self.copy.conventions.is_test
        folders = {f"{path.rpartition('/')[0]}/" for path in self.paths if is_test(path) and "/" in path}
        return tuple(path for path in self.paths if not path.endswith(PYTHON) and path.startswith(tuple(folders)))

    def find(self, module: str) -> ast.Module | None:
        """Return a module of the tests, an empty one for the product's, and None for those of libraries."""
        inside = module.strip(".").replace(".", "/")
        ends = tuple(f"/{inside}{end}" for end in (".py", "/__init__.py"))
        found = next((path for path in self.paths if f"/{path}".endswith(ends)), None)
        if found is not None and self.copy.conventions.is_test(found):
            with contextlib.suppress(OSError, ValueError):
                return parse(decode(ConfinedFolder(self.copy.root).read(found)))
        if found is not None or module.startswith("."):
            return ast.Module(body=[], type_ignores=[])
        return self.find(module.rpartition(".")[0]) if "." in module else None
