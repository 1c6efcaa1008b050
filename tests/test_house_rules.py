"""Sizes, names and docstrings of both packages. No exemptions."""

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cdd_agent", "pytest_tdd_agent")

MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 6
MAX_POSITIONAL = 2
MIN_MODULES_IN_A_FOLDER = 3
MAX_DEPTH = 2
MAX_DEPTH_OF_FRAMEWORKS = 3

BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager", "handler", "base", "core", "engine"}
PARTICIPLE = re.compile(
    r"_?(?!is_|has_|can_)(?:\w+_)?(kept|told|laid|worked|said|given|taken|gone|left|made|held|found|shown|put|written|meant|spelled|lent"
    r"|drawn|seen|begun|known|led|sent|bound|chosen|judged|asked|looked|named)(?:_\w+)?"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module, parsed once."""

    path: Path
    name: str
    """Path below the repository."""
    text: str
    tree: ast.Module
    functions: tuple[tuple[Function, bool], ...]
    """Every function, and whether it is a method."""
    classes: tuple[ast.ClassDef, ...]
    handlers: tuple[ast.ExceptHandler, ...]


@cache
def modules() -> tuple[Module, ...]:
    """Return the modules of both packages."""
    return tuple(parse(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


@pytest.fixture(scope="module", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Let go of the trees after the last test; a garbage collector would go through them in all later tests."""
    yield
    modules.cache_clear()


def parse(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(statements(tree))
    classes = tuple(node for node in nodes if isinstance(node, ast.ClassDef))
    methods = {id(item) for node in classes for item in node.body}
    return Module(
        path=path,
        name=str(path.relative_to(ROOT)),
        text=text,
        tree=tree,
        functions=tuple((node, id(node) in methods) for node in nodes if isinstance(node, Function)),
        classes=classes,
        handlers=tuple(node for node in nodes if isinstance(node, ast.ExceptHandler)),
    )


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and handlers in ``node``. Expressions, most of a tree, hold none of them."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


def breaches(rule: Callable[[Module], object]) -> dict[str, object]:
    """Return module -> what ``rule`` finds wrong with it, for those where it finds anything."""
    found = {module.name: rule(module) for module in modules()}
    return {name: wrong for name, wrong in found.items() if wrong}


def has_decorator(node: Function, *names: str) -> bool:
    return any(getattr(item, "id", getattr(item, "attr", "")) in names for item in node.decorator_list)


def test_functions_are_short() -> None:
    def long(module: Module) -> list[str]:
        return [
            node.name
            for node, _ in module.functions
            if (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
        ]

    assert breaches(long) == {}


def test_functions_take_few_parameters() -> None:
    def wide(module: Module) -> list[str]:
        found = []
        for node, is_method in module.functions:
            if node.name.startswith(("pytest_", "__exit__")):
                continue
            receiver = 1 if is_method and not has_decorator(node, "staticmethod") else 0
            positional = len(node.args.posonlyargs) + len(node.args.args) - receiver
            if positional + len(node.args.kwonlyargs) > MAX_PARAMETERS:
                found.append(f"{node.name}: too many parameters")
            if positional > MAX_POSITIONAL:
                found.append(f"{node.name}: more than {MAX_POSITIONAL} parameters without a keyword")
        return found

    assert breaches(wide) == {}


def test_parts_are_put_together_not_inherited() -> None:
    bases = {node.name: _bases(node) for module in modules() for node in module.classes}

    def is_exception(name: str) -> bool:
        return name == "Exception" or any(map(is_exception, bases.get(name, ())))

    def heirs(module: Module) -> list[str]:
        return [
            node.name for node in module.classes if bases.keys() & set(_bases(node)) and not is_exception(node.name)
        ]

    assert breaches(heirs) == {}


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def test_a_module_s_name_says_what_it_holds() -> None:
    assert breaches(lambda module: set(module.path.stem.strip("_").split("_")) & BANNED_NAMES) == {}


def test_no_class_looks_like_a_test_to_pytest() -> None:
    def odd(module: Module) -> list[str]:
        names = [node.name for node in module.classes]
        return [name for name in names if name.startswith(("Test", "Abstract")) or name.endswith(("Impl", "Mixin"))]

    assert breaches(odd) == {}


def test_public_things_have_docstrings() -> None:
    def bare(module: Module) -> list[str]:
        public = [node for node in module.classes if not node.name.startswith("_")]
        found = [] if ast.get_docstring(module.tree) else ["the module"]
        found += [node.name for node in public if not ast.get_docstring(node)]
        own = [
            item for node in module.tree.body if node in public and isinstance(node, ast.ClassDef) for item in node.body
        ]
        return found + [
            node.name
            for node in [*module.tree.body, *own]
            if isinstance(node, Function) and not node.name.startswith("_") and not ast.get_docstring(node)
        ]

    assert breaches(bare) == {}


def test_nothing_is_left_open() -> None:
    def left(module: Module) -> list[str]:
        return [word for word in ("TODO", "FIXME", "XXX") if word in module.text]

    assert breaches(left) == {}


def test_a_folder_holds_three_modules_or_more() -> None:
    folders = Counter(module.path.parent for module in modules() if module.path.name != "__init__.py")
    assert {str(folder.relative_to(ROOT)): n for folder, n in folders.items() if n < MIN_MODULES_IN_A_FOLDER} == {}


def test_folders_are_not_deep() -> None:
    def deep(module: Module) -> int:
        depth = len(Path(module.name).parts) - 2
        frameworks = module.name.startswith("cdd_agent/testrun/frameworks/")
        return depth if depth > (MAX_DEPTH_OF_FRAMEWORKS if frameworks else MAX_DEPTH) else 0

    assert breaches(deep) == {}


def test_no_two_classes_share_a_name() -> None:
    names = Counter(node.name for module in modules() for node in module.classes)
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_functions_are_named_by_verbs() -> None:
    def participles(module: Module) -> list[str]:
        return [
            node.name
            for node, _ in module.functions
            if PARTICIPLE.fullmatch(node.name) and not has_decorator(node, "property", "cached_property", "setter")
        ]

    assert breaches(participles) == {}


def test_broad_excepts_stand_in_the_two_places_that_need_them() -> None:
    """Around one tool call and around one command at the prompt; the plugin guards pytest against itself once."""
    allowed = {"cdd_agent/agent/tools.py", "cdd_agent/repl/session.py", "pytest_tdd_agent/plugin.py"}
    found = {
        module.name
        for module in modules()
        for node in module.handlers
        if node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception")
    }
    assert found <= allowed


def test_no_test_replaces_what_it_tests() -> None:
    """Fakes stand in for our own ports only."""
    banned = {"Mock", "MagicMock", "patch", "mocker"}
    word = re.compile(rf"\b({'|'.join(banned)})\b")
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if word.search(text):  # few files hold one, in text that is no code
            names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names & banned)]
    assert found == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone count too: import-linter leaves the latter out."""
    names = {
        module.name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in modules()
    }
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, module in names.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[name] |= {each if each in names else node.module for each in whole} & names.keys() - {name}
    graphlib.TopologicalSorter(graph).prepare()


def test_each_option_of_git_is_marked_by_a_tuple() -> None:
    """``Runner`` refuses a bare word that begins with ``-``; this finds it also where no test runs the call."""

    def begins_with_dash(node: ast.expr) -> bool:
        first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
        return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.startswith("-")

    def unmarked(module: Module) -> list[int]:
        calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
        to_git = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "git")
        return [call.lineno for call in to_git if any(map(begins_with_dash, call.args))]

    assert breaches(unmarked) == {}


STARTS = re.compile(
    r"(subprocess\.(Popen|run|call|check_\w+|get\w*output)|os\.(exec\w+|spawn\w+|posix_spawnp?|system|popen|fork(pty)?)"
    r"|(pty|multiprocessing|webbrowser|runpy)(\..+)?|asyncio\.(create_)?subprocess.*|concurrent\.futures\.Process.*)"
)
STARTED = {
    "cdd_agent/git/push.py Push.run": "git, with branch and remote of git's settings, after the user said yes; no push "
    "if the repository names programs for it",
    "cdd_agent/repl/prompt.py _run_editor": "the user's EDITOR, on a file of cdd outside the project",
    "cdd_agent/repl/review_actions.py show_in_program": "the program in the user's CDD_DIFF; its input is a pipe",
    "cdd_agent/repl/workflow_actions.py open_shell": "the user's SHELL, which the user asked for",
    "cdd_agent/repl/workflow_actions.py run_in_shell": "a command that the user typed",
    "cdd_agent/testrun/interpreter.py run_outside": "a Python outside of the work tree, isolated and in /; its pip "
    "downloads wheels, and neither builds nor installs them",
    "cdd_agent/testrun/inside/calls.py CallSession.pytest_sessionfinish": "a copy of the test process, in its sandbox",
    "cdd_agent/testrun/inside/calls.py CallSession._guess_calls": "a copy of the test process, in its sandbox",
    "cdd_agent/runs/jobs.py Jobs.submit": "cdd itself, isolated, with the modules of this process",
    "cdd_agent/runs/cluster.py _run": "cdd itself on a worker, isolated, with the modules of the worker",
    "pytest_tdd_agent/parent/process.py Child.run": "the pytest that the user has started, with the same arguments",
    "pytest_tdd_agent/fingerprint.py _list_ignored_files": "git in the test process, as project code is; it starts no "
    "program of the configuration",
}
"""Where a process is started outside a sandbox, and why its input is the user's and not the project's."""


def _is_hidden(name: ast.alias) -> bool:
    """Return whether a module that starts processes gets another name."""
    return name.asname is not None and name.name in ("os", "subprocess", "asyncio")


def test_nothing_else_is_started_outside_the_sandbox() -> None:
    """The sandboxes themselves and the one runner of git start processes too; they are the mechanism."""

    def starts(node: ast.AST, where: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inside = f"{where}.{child.name}".lstrip(".") if isinstance(child, Function | ast.ClassDef) else where
            match child:
                case ast.Attribute() if STARTS.fullmatch(ast.unparse(child)):
                    yield where
                case ast.ImportFrom() if any(STARTS.fullmatch(f"{child.module}.{each.name}") for each in child.names):
                    yield where
                case ast.Import() if any(STARTS.fullmatch(each.name) or _is_hidden(each) for each in child.names):
                    yield where
            if not isinstance(child, ast.AnnAssign):  # annotations of attributes
                yield from starts(child, inside)
            elif child.value is not None:
                yield from starts(child.value, inside)

    mechanism = ("cdd_agent/sandbox/", "cdd_agent/git/runner.py")
    others = [module for module in modules() if not module.name.startswith(mechanism)]
    assert {f"{module.name} {where}" for module in others for where in starts(module.tree, "")} == set(STARTED)
