"""Sizes, names and docstrings of both packages, as docs/architecture.md states them. No exemptions."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cdd_agent", "pytest_tdd_agent")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CLASS_LINES = 200
MAX_METHODS = 12
MAX_PARAMETERS = 6
MAX_POSITIONAL = 2
MAX_MODULES_IN_A_FOLDER = 10

BANNED_NAMES = {"utils", "helpers", "common", "misc", "manager", "handler", "base", "core", "engine"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def breaches(rule: Callable[[Path], object]) -> dict[str, object]:
    """Module -> what ``rule`` finds wrong with it, for those where it finds anything."""
    found = {shown(path): rule(path) for path in MODULES}
    return {name: wrong for name, wrong in found.items() if wrong}


def functions(tree: ast.Module) -> Iterator[tuple[Function, bool]]:
    """Each function, and whether it is a method."""
    methods = {id(item) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node, id(node) in methods


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def length(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def has_decorator(node: Function, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in node.decorator_list)


def test_modules_are_short() -> None:
    def long(path: Path) -> int:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        return lines if lines > MAX_MODULE_LINES else 0

    assert breaches(long) == {}


def test_functions_are_short() -> None:
    def long(path: Path) -> list[str]:
        return [node.name for node, _ in functions(tree_of(path)) if length(node) > MAX_FUNCTION_LINES]

    assert breaches(long) == {}


def test_functions_take_few_parameters() -> None:
    def wide(path: Path) -> list[str]:
        found = []
        for node, is_method in functions(tree_of(path)):
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


def test_classes_are_small() -> None:
    def large(path: Path) -> list[str]:
        methods = {node: sum(isinstance(item, Function) for item in node.body) for node in classes(tree_of(path))}
        return [
            f"{node.name}: {length(node)} lines, {count} methods"
            for node, count in methods.items()
            if length(node) > MAX_CLASS_LINES or count > MAX_METHODS
        ]

    assert breaches(large) == {}


def test_parts_are_put_together_not_inherited() -> None:
    bases = {node.name: _bases(node) for path in MODULES for node in classes(tree_of(path))}

    def is_exception(name: str) -> bool:
        return name == "Exception" or any(map(is_exception, bases.get(name, ())))

    def heirs(path: Path) -> list[str]:
        found = classes(tree_of(path))
        return [node.name for node in found if bases.keys() & set(_bases(node)) and not is_exception(node.name)]

    assert breaches(heirs) == {}


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def test_a_module_s_name_says_what_it_holds() -> None:
    assert breaches(lambda path: set(path.stem.strip("_").split("_")) & BANNED_NAMES) == {}


def test_no_class_looks_like_a_test_to_pytest() -> None:
    def odd(path: Path) -> list[str]:
        names = [node.name for node in classes(tree_of(path))]
        return [name for name in names if name.startswith(("Test", "Abstract")) or name.endswith(("Impl", "Mixin"))]

    assert breaches(odd) == {}


def test_public_things_have_docstrings() -> None:
    def bare(path: Path) -> list[str]:
        tree = tree_of(path)
        public = [node for node in classes(tree) if not node.name.startswith("_")]
        found = [] if ast.get_docstring(tree) else ["the module"]
        found += [node.name for node in public if not ast.get_docstring(node)]
        own = [item for node in tree.body if node in public and isinstance(node, ast.ClassDef) for item in node.body]
        return found + [
            node.name
            for node in [*tree.body, *own]
            if isinstance(node, Function) and not node.name.startswith("_") and not ast.get_docstring(node)
        ]

    assert breaches(bare) == {}


def test_nothing_is_left_open() -> None:
    def left(path: Path) -> list[str]:
        text = path.read_text(encoding="utf-8")
        return [word for word in ("TODO", "FIXME", "XXX") if word in text]

    assert breaches(left) == {}


@pytest.mark.parametrize("top", [*PACKAGES, "tests"])
def test_a_folder_holds_few_modules(top: str) -> None:
    full = {}
    for folder in (ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())):
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > MAX_MODULES_IN_A_FOLDER:
            full[shown(folder)] = len(modules)
    assert full == {}


def test_broad_excepts_stand_in_the_two_places_that_need_them() -> None:
    """Around one tool call and around one command at the prompt; the plugin guards pytest against itself once."""
    allowed = {"cdd_agent/agent/tool.py", "cdd_agent/repl/session.py", "pytest_tdd_agent/plugin.py"}
    found = set()
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception")
            ):
                found.add(shown(path))
    assert found <= allowed


def test_no_test_replaces_what_it_tests() -> None:
    """Fakes stand in for our own ports only."""
    banned = {"Mock", "MagicMock", "patch", "mocker"}
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        names = {node.id for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name)}
        found += [f"{shown(path)}: {name}" for name in sorted(names & banned)]
    assert found == []
