"""Find code of a change that could deceive the process that tests it. Pure.

Code is suspicious if no product needs it. A kind of code that the product had before the change is accepted: a pytest
plugin, for example, imports pytest.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cdd_agent.evidence.clean_copy import (
    CheckRequest,
    Findings,
    ProductChange,
    is_python,
)
from cdd_agent.evidence.source import (
    Function,
    find_docstrings,
    list_functions,
    list_lines,
    parse,
    read_imports,
    resolve_name,
)
from pytest_tdd_agent.report import Reason

_INSTEAD = {
    "exit": "Return or raise instead. Call sys.exit only in the program's main function.",
    "test_tool": "Use test tools in tests only.",
    "under_test": "Make the product behave the same in tests and in production.",
    "stack": "Pass the information as an argument.",
    "equality": "Compare the values that make two objects equal, and return NotImplemented for other types.",
    "outcome": "Return a value or raise the product's own exception. Only tests decide their outcome.",
    "patch": "Do not change attributes of pytest, unittest or builtins.",
    "descriptor": "Open the file and use the file object.",
    "test_files": "Take the path as an argument. Do not name test files in the product.",
    "trace": "Leave tracing to debuggers and coverage tools.",
}

_TOOLS = frozenset({"pytest", "_pytest", "pluggy", "unittest", "pytest_tdd_agent", "xdist"})
_STACK_CALLS = (
    *("sys._getframe", "sys._current_frames", "inspect.stack", "inspect.currentframe", "inspect.getouterframes"),
    *("traceback.extract_stack", "traceback.walk_stack", "gc.get_objects", "gc.get_referrers"),
)
_CALLS = {
    **dict.fromkeys(("os._exit", "os.abort"), "exit"),
    **dict.fromkeys(_STACK_CALLS, "stack"),
    **dict.fromkeys(("sys.settrace", "sys.setprofile", "threading.settrace", "threading.setprofile"), "trace"),
}
_OUTCOMES = re.compile(r"(_?pytest(\.outcomes)?\.(skip|xfail|exit|fail|importorskip)|unittest(\.case)?\.SkipTest)")
_TEST_PATH = re.compile(r"(^|/)tests?/|(^|/)test_\w+\.py$|(^|/)conftest\.py$")
_OPENERS = re.compile(r"(^|\.)(open|fdopen|Path|read_text|read_bytes|glob|rglob|listdir|scandir|walk)$")
_TEXTS = {
    "test_files": (r"tdd[-_]agent", "{!r} names the report of the tests"),
    "under_test": (
        r"\A(PYTEST_(CURRENT_TEST|VERSION|XDIST_\w+|ADDOPTS)|TDD_AGENT\w*)\Z",
        "the variable {} reveals that a test is running",
    ),
    "descriptor": (r"/(proc/self|dev)/fd\b", "{!r} reaches the open files of the process"),
}
"""Kind -> pattern of a text, and what the text does."""
_FD_CALLS = frozenset({"os.write", "os.fdopen", "open", "os.closerange", "os.close", "os.pwrite", "os.ftruncate"})
_FD_PROBES = frozenset({"os.fstat", "os.dup", "os.lseek"})
_EQUAL_FOR_ALL = {"__eq__": (True, False), "__ne__": (True, False), "__contains__": (True,)}
_STATED = {
    "test_tool": r"pytest|_pytest|unittest|pluggy|xdist|plugins?|fixtures?",
    "stack": r"(sys\.)?_getframe|_current_frames|(inspect\.)?currentframe|(call )?stacks?|frames?|traceback",
    "trace": r"tracers?|traces?|tracing|settrace|profil(e|es|er|ers|ing)|coverage|debuggers?",
    "exit": r"(os\.)?_exit|(os\.)?forks?|(os\.)?abort|daemons?|child process(es)?",
}
"""Kind of code -> the words in a step that ask for it."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One suspicious line."""

    line: int
    kind: str
    what: str


def find_suspicious_code(request: CheckRequest) -> Findings:
    """Refuse each suspicious line, except kinds that the product had before the change."""
    reasons: list[Reason] = []
    known: set[str] | None = None
    for change in filter(is_python, request.changes):
        for suspicion in _find_new(change, stated=request.stated):
            if known is None:
                known = {old.kind for text in request.elsewhere() for old in find_suspicions(text)}
            if suspicion.kind not in known:
                message = f"{change.path}:{suspicion.line}: {suspicion.what}. {_INSTEAD[suspicion.kind]}"
                reasons.append(Reason(code="suspicious_code", nodeid=None, message=message))
    return Findings(reasons=tuple(dict.fromkeys(reasons)))


def _find_new(change: ProductChange, *, stated: str) -> tuple[Suspicion, ...]:
    before = {old.kind for old in find_suspicions(change.old or "")}
    now = find_suspicions(change.new or "", stated=stated)
    patterns = {kind: rf"(?<!\w)({words})(?!\w)" for kind, words in _STATED.items()}
    requested = {kind for kind, pattern in patterns.items() if re.search(pattern, stated, re.IGNORECASE)}
    return tuple(each for each in now if each.kind not in before | requested)


def find_suspicions(text: str, *, stated: str = "") -> tuple[Suspicion, ...]:
    """Return the suspicious lines of a source in order. There are none if it cannot be parsed."""
    tree = parse(text)
    if tree is None:
        return ()
    names = read_imports(tree)
    prose = find_docstrings(tree)
    forking = _find_forking_lines(tree, names)
    found: list[Suspicion] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found += _check_import(node)
        elif isinstance(node, ast.Call):
            found += _check_call(node, names, stated=stated)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            found += _check_assignment(node, names)
        elif isinstance(node, ast.ClassDef):
            found += _check_class(node)
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            found += _check_text(node)
        elif isinstance(node, (ast.Compare, ast.Subscript)):
            found += _check_lookup(node, names)
        elif isinstance(node, ast.Attribute) and node.attr in ("f_back", "tb_frame"):
            found.append(Suspicion(node.lineno, "stack", f"{node.attr} inspects the caller's frames"))
        elif isinstance(node, ast.For):
            found += _check_loop(node, names)
    # A forked child process must end with os._exit.
    suspicious = (each for each in found if not (each.kind == "exit" and each.line in forking))
    return tuple(sorted(dict.fromkeys(suspicious), key=lambda each: each.line))


def _check_import(node: ast.Import | ast.ImportFrom) -> Iterator[Suspicion]:
    relative = isinstance(node, ast.ImportFrom) and node.level
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    for module in modules:
        if not relative and module.partition(".")[0] in _TOOLS:
            yield Suspicion(node.lineno, "test_tool", f"the product imports {module}")


def _check_call(node: ast.Call, names: dict[str, str], *, stated: str) -> Iterator[Suspicion]:
    called = resolve_name(node.func, names)
    first = node.args[0] if node.args else None
    if called in _CALLS:
        yield Suspicion(node.lineno, _CALLS[called], f"{called} is called")
    if _OUTCOMES.fullmatch(called):
        yield Suspicion(node.lineno, "outcome", f"{called} is called, which ends a test before it has passed")
    if called in ("importlib.import_module", "__import__") and _is_tool(first):
        yield Suspicion(node.lineno, "test_tool", "the product imports a test tool")
    if called in ("setattr", "delattr") and first is not None and _is_machinery(resolve_name(first, names)):
        yield Suspicion(node.lineno, "patch", f"an attribute of {resolve_name(first, names)} is replaced")
    is_number = isinstance(first, ast.Constant) and type(first.value) is int
    if called in _FD_CALLS and is_number and int(getattr(first, "value", 0)) >= 3:
        yield Suspicion(node.lineno, "descriptor", f"{called} is called with the number of a file descriptor")
    if _OPENERS.search(called or getattr(node.func, "attr", "")):
        for word in (inner for argument in node.args for inner in ast.walk(argument)):
            text = _read_text(word)
            if _TEST_PATH.search(text) and text not in stated:
                yield Suspicion(node.lineno, "test_files", f"the product names {text!r}")


def _read_text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _is_tool(node: ast.expr | None) -> bool:
    return _read_text(node).partition(".")[0] in _TOOLS


def _is_machinery(owner: str) -> bool:
    return owner.partition(".")[0] in (_TOOLS - {"xdist"}) | {"builtins", "__builtins__"}


def _check_assignment(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, names: dict[str, str]
) -> Iterator[Suspicion]:
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
    for target in targets:
        owner = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else None
        name = resolve_name(owner, names) if owner is not None else ""
        # gettext.install and Python's prompt both set builtins._
        is_underscore = name == "builtins" and isinstance(target, ast.Attribute) and target.attr == "_"
        if name and _is_machinery(name) and not is_underscore:
            yield Suspicion(target.lineno, "patch", f"{ast.unparse(target)} is replaced")


def _check_class(node: ast.ClassDef) -> Iterator[Suspicion]:
    """Find comparisons that ignore the other object."""
    constant: dict[str, object] = {}
    for item in node.body:
        match item:
            case ast.FunctionDef(name=name):
                returned = (inner.value for inner in ast.walk(item) if isinstance(inner, ast.Return))
                results = {value.value if isinstance(value, ast.Constant) else None for value in returned}
                if len(results) == 1 and results != {None}:
                    constant[name] = results.pop()
                elif name in ("__eq__", "__ne__") and _ignores_other(item):
                    constant[name] = True
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=ast.Constant(value=value))):
                constant[name] = value
    for name, values in _EQUAL_FOR_ALL.items():
        if constant.get(name) in values and name in constant:
            yield Suspicion(node.lineno, "equality", f"{node.name}.{name} ignores the other object")
    true = {name for name, value in constant.items() if value is True}
    if true & {"__lt__", "__le__"} and true & {"__gt__", "__ge__"}:
        yield Suspicion(node.lineno, "equality", f"{node.name} is both less and greater than everything")


def _ignores_other(function: Function) -> bool:
    """Return whether a comparison returns a value without using its second argument."""
    if len(function.args.args) != 2:
        return False
    other = function.args.args[1].arg
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    is_answer = any(not (isinstance(value, ast.Name) and value.id == "NotImplemented") for value in values)
    return is_answer and not any(isinstance(node, ast.Name) and node.id == other for node in ast.walk(function))


def _check_text(node: ast.Constant) -> Iterator[Suspicion]:
    text = _read_text(node)
    for kind, (pattern, what) in _TEXTS.items():
        if re.search(pattern, text):
            yield Suspicion(node.lineno, kind, what.format(text))


def _check_lookup(node: ast.Compare | ast.Subscript, names: dict[str, str]) -> Iterator[Suspicion]:
    """Find lookups of a test tool among the loaded modules or in the command line."""
    parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.value, node.slice]
    inside = {resolve_name(inner, names) for part in parts for inner in ast.walk(part)}
    if inside & {"sys.modules", "sys.argv"} and any(_is_tool(part) for part in parts):
        yield Suspicion(node.lineno, "under_test", f"{ast.unparse(node)} checks whether a test is running")


def _check_loop(node: ast.For, names: dict[str, str]) -> Iterator[Suspicion]:
    is_range = isinstance(node.iter, ast.Call) and resolve_name(node.iter.func, names) == "range"
    if not is_range or not isinstance(node.target, ast.Name):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and resolve_name(inner.func, names) in _FD_CALLS | _FD_PROBES:
            first = inner.args[0] if inner.args else None
            if isinstance(first, ast.Name) and first.id == node.target.id:
                yield Suspicion(inner.lineno, "descriptor", "file descriptors are tried by their numbers")


def _find_forking_lines(tree: ast.Module, names: dict[str, str]) -> set[int]:
    lines: set[int] = set()
    for function in list_functions(tree):
        calls = (resolve_name(inner.func, names) for inner in ast.walk(function) if isinstance(inner, ast.Call))
        if not {"os.fork", "os.forkpty", "pty.fork"}.isdisjoint(calls):
            lines |= set(list_lines(function))
    return lines
