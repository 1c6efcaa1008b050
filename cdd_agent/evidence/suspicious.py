"""Find lines with which a change may deceive its tests. Such a line proves nothing; the experiments do.

They are shown to the reviewer and to the Examiner. The gate closes only for code that writes into a test tool or names
the report of the tests, which no product does. A kind of code that the product had before the change is not
suspicious: a pytest plugin, for example, imports pytest. Pure.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from cdd_agent.evidence.clean_copy import CheckRequest, Findings, is_python, note
from cdd_agent.evidence.source import Function, find_changed_lines, find_docstrings, read_imports, resolve_name
from cdd_agent.untrusted.python_source import list_imports, parse, with_deep_stack
from pytest_tdd_agent.report import Clause, Reason

_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "pytest_tdd_agent", "xdist"})
_FRAMES, _TRACE, _END = "looks_at_callers", "traces", "ends_process"
_USES = {
    **dict.fromkeys(("sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe"), _FRAMES),
    **dict.fromkeys(("traceback.extract_stack", "traceback.walk_stack", "gc.get_objects", "gc.get_referrers"), _FRAMES),
    **dict.fromkeys(("sys.settrace", "sys.setprofile", "threading.settrace", "threading.setprofile"), _TRACE),
    **dict.fromkeys(("os._exit", "os.abort"), _END),
}
_FRAME_ATTRIBUTES = frozenset({"f_back", "f_locals", "tb_frame", "gi_frame", "cr_frame"})
_TEXTS = (
    (re.compile(r"\A(_?pytest|pluggy|unittest|xdist)(\.\w+)*\Z"), "names_tool"),
    (re.compile(r"\APYTEST_\w+\Z"), "asks_for_test"),
    (re.compile(r"/(proc/self|dev)/fd\b"), "reaches_files"),
    (re.compile(r"(^|/)tests?/|(^|/)test_\w+\.py$|(^|/)conftest\.py$"), "names_test_file"),
)
_REPORT = re.compile(r"tdd[-_]agent", re.IGNORECASE)
_TRIVIAL = (None, True, False, Ellipsis, 0, 1, -1, 2, 10, 100)
_FEWEST_IN_LIST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspiciousLine:
    """One line of a change that may deceive."""

    path: str
    line: int
    what: Clause
    is_tampering: bool = False
    """Whether it alone closes the gate."""

    @property
    def place(self) -> str:
        """The line, such as ``shop.py:12``."""
        return f"{self.path}:{self.line}"

    @property
    def repeats_several(self) -> bool:
        """Whether it repeats several values of one example of the tests."""
        values = self.what.parts.get("values", ())
        return self.what.case == "repeats_example" and isinstance(values, tuple) and len(values) > 1

    @property
    def clause(self) -> Clause:
        """The place, and what is there."""
        return Clause("suspicious_line", {"place": self.place, "what": self.what})


@with_deep_stack
def find_suspicious_lines(request: CheckRequest) -> tuple[SuspiciousLine, ...]:
    """Return the suspicious lines that the change adds, except kinds that the product had before."""
    found: list[SuspiciousLine] = []
    known: set[Clause] | None = None
    examples = [example for source in request.tests.values() for example in _list_examples(parse(source))]
    for change in filter(is_python, request.changes):
        new = change.new or ""
        added, _ = find_changed_lines(change.old, new)
        lines = [each for each in _find_in(change.path, new) if each.line in added]
        if lines and known is None:
            known = {old.what for text in request.elsewhere() for old in _find_in("", text)}
        before = {old.what for old in _find_in("", change.old or "")} | (known or set())
        found += [each for each in lines if each.what not in before]
        found += _find_repeated(change.path, new, examples=examples, lines=added, stated=request.stated)
    return tuple(dict.fromkeys(found))


def judge_suspicious_lines(lines: Iterable[SuspiciousLine]) -> Findings:
    """Refuse tampering, and report the others."""
    tampering = [each for each in lines if each.is_tampering]
    others = [each for each in lines if not each.is_tampering]
    findings = Findings(
        reasons=tuple(Reason(code="suspicious_code", nodeid=None, parts={"line": each.clause}) for each in tampering)
    )
    if others:
        places, shown = tuple(each.place for each in others), tuple(each.clause for each in others)
        findings += note("suspicious", "suspicious_lines", outcome="review", places=places, lines=shown)
    return findings


def _find_in(path: str, text: str) -> Iterator[SuspiciousLine]:
    tree = parse(text)
    if tree is None:
        return
    names, prose = read_imports(tree), find_docstrings(tree)
    for line, unused in _list_unused(tree):
        yield SuspiciousLine(path=path, line=line, what=Clause("unused_parameter", {"name": unused}))
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            if _REPORT.search(node.value):
                yield SuspiciousLine(path=path, line=line, what=Clause("names_report"), is_tampering=True)
            found = (what for kind, what in _TEXTS if kind.search(node.value))
            yield from (SuspiciousLine(path=path, line=line, what=Clause(what)) for what in found)
        elif any(_is_of_tool(owner, names) for owner in _find_owners(node, names)):
            yield SuspiciousLine(path=path, line=line, what=Clause("changes_tool"), is_tampering=True)
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and _imports_tool(node):
            yield SuspiciousLine(path=path, line=line, what=Clause("imports_tool"))
        elif isinstance(node, (ast.Name, ast.Attribute)) and (what := _USES.get(resolve_name(node, names))):
            yield SuspiciousLine(path=path, line=line, what=Clause(what))
        elif isinstance(node, ast.Attribute) and node.attr in _FRAME_ATTRIBUTES:
            yield SuspiciousLine(path=path, line=line, what=Clause(_FRAMES))


def _list_unused(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each parameter that a public function does not use.

    What others prescribe is left out: methods of classes with a base, decorated functions, and functions that are
    handed on. So are methods and functions that do nothing.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.bases and not node.keywords]
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    given = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}
    owners: list[ast.Module | ast.ClassDef] = [tree, *classes]
    for owner in owners:
        for node in owner.body:
            if not isinstance(node, Function) or node.name.startswith("_") or node.name in given:
                continue
            used = {inner.id for each in node.body for inner in ast.walk(each) if isinstance(inner, ast.Name)}
            if node.decorator_list or "locals" in used or all(map(_does_nothing, node.body)):
                continue
            parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            names = [each.arg for each in parameters][0 if owner is tree else 1 :]
            yield from ((node.lineno, name) for name in names if name not in used and not name.startswith("_"))


def _does_nothing(node: ast.stmt) -> bool:
    is_constant = isinstance(getattr(node, "value", None), (ast.Constant, type(None)))
    return isinstance(node, (ast.Pass, ast.Raise)) or (isinstance(node, (ast.Expr, ast.Return)) and is_constant)


def _find_owners(node: ast.AST, names: dict[str, str]) -> list[ast.expr]:
    """Return the objects of which a statement or call sets or deletes an attribute or item."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            pass
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            targets = [target]
        case ast.Call(func=called, args=[owner, *_]) if resolve_name(called, names) in ("setattr", "delattr"):
            return [owner]
        case _:
            return []
    return [target.value for target in targets if isinstance(target, (ast.Attribute, ast.Subscript))]


def _is_of_tool(owner: ast.expr, names: dict[str, str]) -> bool:
    """Return whether an object belongs to a test tool, by its name or through a look-up by name."""
    looked_up = (node.value for node in ast.walk(owner) if isinstance(node, ast.Constant))
    texts = (resolve_name(owner, names), *(text for text in looked_up if isinstance(text, str)))
    return any(text.partition(".")[0] in _TOOLS for text in texts)


def _imports_tool(node: ast.Import | ast.ImportFrom) -> bool:
    return any(each.module.partition(".")[0] in _TOOLS for each in list_imports(node))


def _find_repeated(
    path: str, text: str, *, examples: Iterable[frozenset[str]], lines: Collection[int], stated: str
) -> Iterator[SuspiciousLine]:
    """Find a whole example of the tests in the change. What the step names belongs to what is asked."""
    tree = parse(text)
    prose = find_docstrings(tree) if tree is not None else set()
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant)) if tree is not None else ()
    values = {repr(node.value): node.lineno for node in nodes if node.lineno in lines and id(node) not in prose}
    known = (each for each in examples if not all(str(ast.literal_eval(value)).strip() in stated for value in each))
    example = next((each for each in known if each <= values.keys()), None)
    if example is not None:
        first = min(values[value] for value in example)
        yield SuspiciousLine(path=path, line=first, what=Clause("repeats_example", {"values": tuple(sorted(example))}))


def _list_examples(tree: ast.Module | None) -> Iterator[frozenset[str]]:
    """Return the literals of each assertion, row of a table and longer list that has others than trivial ones."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.Assert, ast.Tuple, ast.List)):
            inside = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
            values = frozenset(repr(value) for value in inside if not _is_trivial(value))
            if len(values) >= (_FEWEST_IN_LIST if isinstance(node, ast.List) else 1):
                yield values


def _is_trivial(value: object) -> bool:
    return value in _TRIVIAL or (isinstance(value, (str, bytes)) and len(value) < 2)
