"""Added code that has no business in a product and deceives the process that tests it. Pure.

A kind of code that the product had before the change is the product's way of working: a pytest plugin imports pytest.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cdd_agent.evidence.literals import Function, docstrings, dotted, imported_names, parse
from cdd_agent.evidence.request import ProductChange, Request, is_python
from pytest_tdd_agent.report import Reason

_INSTEAD = {
    "exit": "Return or raise, so that the process goes on; end a program with sys.exit in its main function only.",
    "test_tool": "Leave the test tools to the tests; a product does not know pytest.",
    "under_test": "Let the product do the same whether it is tested or not.",
    "stack": "Pass what the function has to know as an argument.",
    "equality": "Compare the values that make two objects equal, and return NotImplemented for other types.",
    "outcome": "Return a value or raise an exception of the product's own; whether a test counts is the test's to say.",
    "patch": "Leave the attributes of pytest, unittest and builtins as they are.",
    "descriptor": "Open the file the product has to write and use that object.",
    "test_files": "Take the path as an argument; the product's own code does not know the project's tests.",
    "trace": "Leave tracing to debuggers and coverage tools.",
}
"""Kind of code -> what to do instead."""

_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "pytest_tdd_agent", "xdist"})
_CALLS = {
    "os._exit": "exit",
    "os.abort": "exit",
    "sys._getframe": "stack",
    "sys._current_frames": "stack",
    "inspect.stack": "stack",
    "inspect.currentframe": "stack",
    "inspect.getouterframes": "stack",
    "traceback.extract_stack": "stack",
    "traceback.walk_stack": "stack",
    "gc.get_objects": "stack",
    "gc.get_referrers": "stack",
    "sys.settrace": "trace",
    "sys.setprofile": "trace",
    "threading.settrace": "trace",
    "threading.setprofile": "trace",
}
_OUTCOMES = re.compile(r"(_?pytest(\.outcomes)?\.(skip|xfail|exit|fail|importorskip)|unittest(\.case)?\.SkipTest)")
_VARIABLES = re.compile(r"PYTEST_(CURRENT_TEST|VERSION|XDIST_\w+|ADDOPTS)|TDD_AGENT\w*")
_TEST_PATH = re.compile(r"(^|/)tests?/|(^|/)test_\w+\.py$|(^|/)conftest\.py$")
_REPORT = re.compile(r"tdd[-_]agent")
_OPENERS = re.compile(r"(^|\.)(open|fdopen|Path|read_text|read_bytes|glob|rglob|listdir|scandir|walk)$")
_DESCRIPTORS = re.compile(r"/(proc/self|dev)/fd\b")
_FD_CALLS = frozenset({"os.write", "os.fdopen", "open", "os.closerange", "os.close", "os.pwrite", "os.ftruncate"})
_EQUAL_FOR_ALL = {"__eq__": (True, False), "__ne__": (True, False), "__contains__": (True,)}
_STATED = {
    "test_tool": r"pytest|_pytest|unittest|pluggy|xdist|plugins?|fixtures?",
    "stack": r"(sys\.)?_getframe|_current_frames|(inspect\.)?currentframe|(call )?stacks?|frames?|traceback",
    "trace": r"tracers?|traces?|tracing|settrace|profil(e|es|er|ers|ing)|coverage|debuggers?",
    "exit": r"(os\.)?_exit|(os\.)?forks?|(os\.)?abort|daemons?|child process(es)?",
}
"""Kind of code -> words with which a step asks for it."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One place."""

    line: int
    kind: str
    what: str


def suspicious_code(request: Request) -> tuple[Reason, ...]:
    """A reason for each place of the change that no product needs and that this one did not have before."""
    found: list[Reason] = []
    known: set[str] | None = None
    for change in filter(is_python, request.changes):
        for suspicion in new_suspicions(change, stated=request.stated):
            if known is None:
                known = {old.kind for text in request.elsewhere() for old in suspicions(text)}
            if suspicion.kind not in known:
                message = f"{change.path}:{suspicion.line}: {suspicion.what}. {_INSTEAD[suspicion.kind]}"
                found.append(Reason(code="suspicious_code", nodeid=None, message=message))
    return tuple(dict.fromkeys(found))


def new_suspicions(change: ProductChange, *, stated: str = "") -> tuple[Suspicion, ...]:
    """What the file holds now of kinds that it did not hold before; what the ticket asks for is honest."""
    before = {old.kind for old in suspicions(change.old or "")}
    now = suspicions(change.new or "", stated=stated)
    return tuple(each for each in now if each.kind not in before and not _is_asked_for(each.kind, stated))


def _is_asked_for(kind: str, stated: str) -> bool:
    """Whether the text of the step names what this kind of code uses."""
    words = _STATED.get(kind)
    return words is not None and re.search(rf"(?<!\w)({words})(?!\w)", stated, re.IGNORECASE) is not None


def suspicions(text: str, *, stated: str = "") -> tuple[Suspicion, ...]:
    """All such places in a source, in the order of its lines; none if it cannot be parsed."""
    tree = parse(text)
    if tree is None:
        return ()
    names = imported_names(tree)
    prose = docstrings(tree)
    forking = _lines_that_fork(tree, names)
    found: list[Suspicion] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += _of_import(node)
        elif isinstance(node, ast.Call):
            found += _of_call(node, names, stated=stated)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            found += _of_assignment(node, names)
        elif isinstance(node, ast.ClassDef):
            found += _of_class(node)
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            found += _of_text(node)
        elif isinstance(node, (ast.Compare, ast.Subscript)):
            found += _of_lookup(node, names)
        elif isinstance(node, ast.Attribute) and node.attr in ("f_back", "tb_frame"):
            found.append(Suspicion(node.lineno, "stack", f"the caller's frames are looked at by {node.attr}"))
        elif isinstance(node, ast.For):
            found += _of_loop(node, names)
    kept = (each for each in found if not (each.kind == "exit" and each.line in forking))
    return tuple(sorted(dict.fromkeys(kept), key=lambda each: each.line))


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[Suspicion]:
    relative = isinstance(node, ast.ImportFrom) and node.level
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for module in modules:
        if not relative and module.partition(".")[0] in _TOOLS:
            yield Suspicion(node.lineno, "test_tool", f"the product imports {module}")


def _of_call(node: ast.Call, names: dict[str, str], *, stated: str) -> Iterator[Suspicion]:
    called = dotted(node.func, names)
    first = node.args[0] if node.args else None
    if called in _CALLS:
        yield Suspicion(node.lineno, _CALLS[called], f"{called} is called")
    if _OUTCOMES.fullmatch(called):
        yield Suspicion(node.lineno, "outcome", f"{called} is called, which makes a test end without having passed")
    if called in ("importlib.import_module", "__import__") and _is_tool(first):
        yield Suspicion(node.lineno, "test_tool", "the product imports a test tool")
    if called in ("setattr", "delattr") and first is not None and _is_machinery(dotted(first, names)):
        yield Suspicion(node.lineno, "patch", f"an attribute of {dotted(first, names)} is replaced")
    if called in _FD_CALLS and _is_foreign_descriptor(first):
        yield Suspicion(node.lineno, "descriptor", f"{called} is called for a file descriptor by its number")
    if _OPENERS.search(called or _method(node)):
        for word in (inner for argument in node.args for inner in ast.walk(argument)):
            text = word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else ""
            if _TEST_PATH.search(text) and text not in stated:
                yield Suspicion(node.lineno, "test_files", f"the product names {text!r}")


def _method(node: ast.Call) -> str:
    """The method of a call on an expression that is no name."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_tool(node: ast.expr | None) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_text and str(getattr(node, "value", "")).partition(".")[0] in _TOOLS


def _is_machinery(owner: str) -> bool:
    return owner.partition(".")[0] in (_TOOLS - {"xdist"}) | {"builtins", "__builtins__"}


def _is_foreign_descriptor(node: ast.expr | None) -> bool:
    is_number = isinstance(node, ast.Constant) and type(node.value) is int
    return is_number and int(getattr(node, "value", 0)) >= 3


def _of_assignment(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, names: dict[str, str]
) -> Iterator[Suspicion]:
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
    for target in targets:
        owner = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
        name = dotted(owner, names) if owner is not None else ""
        is_last_shown = name == "builtins" and isinstance(target, ast.Attribute) and target.attr == "_"
        if name and _is_machinery(name) and not is_last_shown:
            yield Suspicion(target.lineno, "patch", f"{ast.unparse(target)} is replaced")


def _of_class(node: ast.ClassDef) -> Iterator[Suspicion]:
    """Comparisons that give the same whatever they compare with."""
    constant: dict[str, object] = {}
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name):
                given = _constant_result(item)
                if given is not None:
                    constant[name] = given
                elif name in ("__eq__", "__ne__") and _ignores_other(item):
                    constant[name] = True
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=ast.Constant(value=value))):
                constant[name] = value
            case _:
                pass
    for name, values in _EQUAL_FOR_ALL.items():
        if constant.get(name) in values and name in constant:
            yield Suspicion(node.lineno, "equality", f"{node.name}.{name} gives the same whatever it is asked about")
    if any(constant.get(name) is True for name in ("__lt__", "__le__")) and any(
        constant.get(name) is True for name in ("__gt__", "__ge__")
    ):
        yield Suspicion(node.lineno, "equality", f"{node.name} is both less and greater than everything")


def _constant_result(function: Function) -> object:
    """The value that every ``return`` of the function gives; None if they differ or are no constants."""
    returns = [inner.value for inner in ast.walk(function) if isinstance(inner, ast.Return)]
    values = {inner.value if isinstance(inner, ast.Constant) else None for inner in returns}
    return values.pop() if len(values) == 1 else None


def _ignores_other(function: Function) -> bool:
    """Whether a comparison gives a value without a look at its second argument."""
    if len(function.args.args) != 2:
        return False
    other = function.args.args[1].arg
    gives = any(isinstance(node, ast.Return) and not _is_refusal(node.value) for node in ast.walk(function))
    return gives and not any(isinstance(node, ast.Name) and node.id == other for node in ast.walk(function))


def _is_refusal(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Name) and node.id == "NotImplemented"


def _of_text(node: ast.Constant) -> Iterator[Suspicion]:
    if isinstance(node.value, str) and _REPORT.search(node.value):
        yield Suspicion(node.lineno, "test_files", f"{node.value!r} leads to the report of the tests")
    if isinstance(node.value, str) and _VARIABLES.fullmatch(node.value):
        yield Suspicion(node.lineno, "under_test", f"the variable {node.value} says that a test is running")
    if isinstance(node.value, str) and _DESCRIPTORS.search(node.value):
        yield Suspicion(node.lineno, "descriptor", f"{node.value!r} reaches the files that the process has open")


def _of_lookup(node: ast.Compare | ast.Subscript, names: dict[str, str]) -> Iterator[Suspicion]:
    """A test tool looked for among the loaded modules, or in the command line."""
    parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.value, node.slice]
    inside = {dotted(inner, names) for part in parts for inner in ast.walk(part)}
    if inside & {"sys.modules", "sys.argv"} and any(_is_tool(part) for part in parts):
        yield Suspicion(node.lineno, "under_test", f"{ast.unparse(node)} finds out whether a test is running")


def _of_loop(node: ast.For, names: dict[str, str]) -> Iterator[Suspicion]:
    """Numbers of file descriptors tried out one after the other."""
    if not (isinstance(node.iter, ast.Call) and dotted(node.iter.func, names) == "range"):
        return
    if not isinstance(node.target, ast.Name):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and dotted(inner.func, names) in (*_FD_CALLS, "os.fstat", "os.dup", "os.lseek"):
            first = inner.args[0] if inner.args else None
            if isinstance(first, ast.Name) and first.id == node.target.id:
                yield Suspicion(inner.lineno, "descriptor", "file descriptors are tried out by their numbers")


def _lines_that_fork(tree: ast.Module, names: dict[str, str]) -> set[int]:
    """The lines of functions that fork: a child process does end with ``os._exit``."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function):
            calls = (dotted(inner.func, names) for inner in ast.walk(node) if isinstance(inner, ast.Call))
            if not {"os.fork", "os.forkpty", "pty.fork"}.isdisjoint(calls):
                found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found
