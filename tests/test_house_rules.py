"""Sizes, names and docstrings of both packages, as docs/architecture.md states them. No exemptions."""

import ast
from collections.abc import Iterator
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


@pytest.fixture(params=MODULES, ids=shown)
def module(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> Iterator[tuple[Function, bool]]:
    """Each function, and whether it is a method."""
    methods = {id(item) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node, id(node) in methods


def length(node: Function | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_a_module_is_short(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES


def test_its_functions_are_short(module: Path) -> None:
    long = [
        f"{node.name}: {length(node)}" for node, _ in functions(tree_of(module)) if length(node) > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_its_functions_take_few_parameters(module: Path) -> None:
    wide = []
    for node, is_method in functions(tree_of(module)):
        if node.name.startswith(("pytest_", "__exit__")):
            continue
        receiver = 1 if is_method and not has_decorator(node, "staticmethod") else 0
        positional = len(node.args.posonlyargs) + len(node.args.args) - receiver
        if positional + len(node.args.kwonlyargs) > MAX_PARAMETERS:
            wide.append(f"{node.name}: too many parameters")
        if positional > MAX_POSITIONAL:
            wide.append(f"{node.name}: more than {MAX_POSITIONAL} parameters without a keyword")
    assert wide == []


def has_decorator(node: Function, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in node.decorator_list)


def test_its_classes_are_small(module: Path) -> None:
    large = []
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(item, Function) for item in node.body)
            if length(node) > MAX_CLASS_LINES or methods > MAX_METHODS:
                large.append(f"{node.name}: {length(node)} lines, {methods} methods")
    assert large == []


def test_its_name_says_what_it_holds(module: Path) -> None:
    words = set(module.stem.strip("_").split("_"))
    assert not words & BANNED_NAMES


def test_no_class_looks_like_a_test_to_pytest(module: Path) -> None:
    names = [node.name for node in ast.walk(tree_of(module)) if isinstance(node, ast.ClassDef)]
    assert [name for name in names if name.startswith(("Test", "Abstract")) or name.endswith(("Impl", "Mixin"))] == []


def test_its_public_things_have_docstrings(module: Path) -> None:
    tree = tree_of(module)
    bare = [] if ast.get_docstring(tree) else ["the module"]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            bare.append(node.name)
    bare += [
        node.name
        for node in [
            *tree.body,
            *(
                item
                for cls in tree.body
                if isinstance(cls, ast.ClassDef) and not cls.name.startswith("_")
                for item in cls.body
            ),
        ]
        if isinstance(node, Function) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert bare == []


def test_it_leaves_nothing_open(module: Path) -> None:
    text = module.read_text(encoding="utf-8")
    assert not any(word in text for word in ("TODO", "FIXME", "XXX"))


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
