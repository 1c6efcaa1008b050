"""The skeleton of a repository: every module of a planning graph, before any body is written. Pure.

Each function has its signature and docstring, and a body that raises. Imports follow the dependencies. Where modules
need each other, the import that closes the circle is inside the functions; where a package would import its modules in
a circle, it imports them when they are first used.

Code that calls a stub when its module is imported is a comment until the stub is written (``late_code``).
"""

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cdd_agent.evidence.source import Function
from cdd_agent.generation.assembly import describe_project, write_pyproject
from cdd_agent.generation.contents import GlobalName, PlannedModule, clean_docstring, has_decorator, read_modules
from cdd_agent.generation.import_plan import ModuleImports, list_names, plan_imports
from cdd_agent.generation.imports import Available, Use, find_candidates
from cdd_agent.generation.late_code import Scope, Waits, group_by_lines, list_bindings, read_scopes, write_comment
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.signatures import MARK, list_stubs, parse_code
from cdd_agent.tickets.graph import Graph, NodeId
from cdd_agent.untrusted.python_source import parse, split_lines, with_deep_stack

MOST_COLUMNS = 100
"""Longer headers of functions get a line for each parameter."""
_LAZY_EXPORTS = """
_HOMES = {{
{homes}}}


def __getattr__(name: str) -> object:
    \"\"\"Import a name when it is first used: some of these modules need this package.\"\"\"
    if name not in _HOMES:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    return getattr(import_module(_HOMES[name]), name)
"""

GITIGNORE = """\
*.egg-info/
*.pyc
.coverage
.mypy_cache/
.pytest_cache/
.venv/
__pycache__/
build/
dist/
"""
NO_TESTS = "tests/.gitkeep"
"""The file that keeps the folder of the tests while there are none."""
PYTEST_INI = f"""\
[pytest]
addopts = --import-mode=importlib
pythonpath = {SOURCES}
testpaths = tests
"""


@with_deep_stack
def make_skeleton(graph: Graph, layout: Layout) -> Mapping[str, str]:
    """Return path in the repository -> text, sorted by path."""
    texts = {
        **_write_modules(read_modules(graph, layout)),
        ".gitignore": GITIGNORE,
        "pyproject.toml": write_pyproject(describe_project(graph, layout), layout, has_readme=False),
        "pytest.ini": PYTEST_INI,
        NO_TESTS: "",
    }
    return dict(sorted(texts.items()))


@with_deep_stack
def list_complete(graph: Graph, layout: Layout) -> tuple[NodeId, ...]:
    """Return the leaves that the skeleton already completes, such as enumerations and constants."""
    modules = read_modules(graph, layout).values()
    stubbed = {(module.name, name) for module in modules for name in module.raising}
    return tuple(
        node.id
        for node in graph.leaves
        if not any((layout.module_of(each.file_path), each.name) in stubbed for each in node.definitions)
    )


def has_same_code(text: str, other: str) -> bool:
    """Return whether two modules differ in nothing but docstrings, comments and layout.

    >>> has_same_code("def f(): 'A.'", "def f():\\n    'B.'"), has_same_code("def f(): 'A.'", "def f(x): 'A.'")
    (True, False)
    """
    trees = [parse(each) for each in (text, other)]
    for node in (inner for tree in trees if tree is not None for inner in ast.walk(tree)):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Pass()
    return None not in trees and len({ast.dump(tree) for tree in trees if tree is not None}) == 1


@dataclass(kw_only=True)
class _Writer:
    """Writes one module."""

    module: PlannedModule
    imports: ModuleImports
    waits: Waits
    scope: Scope
    late: list[list[str]] = field(default_factory=list)
    """Number of a marker -> the lines in its place."""
    marker: str = "late_"
    """The beginning of markers: the source has it nowhere."""

    def write(self) -> str:
        """Return the text."""
        module = self.module
        tree = parse_code(module.code)
        late = self._find_late(tree.body if tree is not None else ())
        groups = {name: self._write_group(statements) for name, statements in module.groups.items()}
        lines, marked = split_lines(module.code), set[str]()
        passes = (
            {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Pass)} if tree is not None else set[int]()
        )
        edits = dict[range, list[str]]()
        for number in sorted(passes):
            mark = MARK.fullmatch(lines[number - 1])  # elsewhere it is part of a text
            if mark is not None and mark[2] in groups and mark[2] not in marked:
                marked.add(mark[2])
                edits[range(number, number + 1)] = textwrap.indent(groups[mark[2]], mark[1]).split("\n")
            elif mark is not None:
                edits[range(number, number + 1)] = [f"{mark[1]}pass" if mark[1] else ""]
        for span, (waits, bound) in late.items():
            if not any(each.start in span for each in edits):
                edits[span] = write_comment(lines[span.start - 1 : span.stop - 1], waits=waits, bound=bound)
        for span in sorted(edits, key=lambda each: each.start, reverse=True):
            lines[span.start - 1 : span.stop - 1] = edits[span]
        blocks = ["\n".join(lines).strip("\n"), *(text for name, text in groups.items() if name not in marked)]
        if module.unreadable:
            blocks.append("\n".join(f"# {line}".rstrip() for line in split_lines(module.unreadable)))
        head = [self._write_docstring(), *self._write_imports()]
        text = "\n\n".join(filter(None, head))
        body = "\n\n\n".join(filter(None, blocks))
        exports = self._write_exports()
        between = "\n\n\n" if body.startswith(("class", "def", "@", "async")) else "\n\n"
        return between.join(filter(None, [text, body])) + "\n" * bool(text or body) + exports

    def _write_docstring(self) -> str:
        text = clean_docstring(self.module.docstring)
        shown = text + "\n" if "\n" in text else text
        return ast.unparse(ast.Module(body=[ast.Expr(ast.Constant(shown))], type_ignores=[])) if text else ""

    def _write_imports(self) -> list[str]:
        """Return the blocks of import lines: future, standard library, own package, and those for types alone."""
        statements = [each for group in self.module.groups.values() for each in group]
        names = dict(self.module.future)
        if not self.module.has_all_imports and _has_annotation(statements):
            names.setdefault("annotations", "annotations")
        future = [_write_from("__future__", names.values())] if names else []
        if self.module.has_all_imports:
            return ["\n".join(future)]
        standard = _find_standard(
            statements, known={*self.scope.names, *self.module.groups, *self.imports.typed.values()}
        )
        if self.imports.typed:
            standard.add(GlobalName("typing", "TYPE_CHECKING"))
        own = {**self.imports.top}
        if self.imports.is_lazy:
            standard.add(GlobalName("importlib", "import_module"))
        else:
            own |= {GlobalName(source, name): name for name, source in self.imports.exports.items()}
        typed = textwrap.indent("\n".join(_write_import_lines(self.imports.typed)), "    ")
        blocks = [future, _write_import_lines({symbol: symbol.name for symbol in standard}), _write_import_lines(own)]
        return [*("\n".join(block) for block in blocks), f"if TYPE_CHECKING:\n{typed}" if typed else ""]

    def _write_exports(self) -> str:
        """Return ``__all__`` of a package, and the function that imports its exports late."""
        if not self.module.can_export:
            return ""
        names = sorted({*self.imports.exports, *(name for name in self.module.groups if not name.startswith("_"))})
        start = "\n" if self.module.docstring or self.module.groups or self.imports.exports else ""
        listed = f"__all__ = [{', '.join(map(repr, names))}]".replace("'", '"')
        if len(listed) > MOST_COLUMNS:
            listed = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]"
        if not self.imports.is_lazy:
            return f"{start}{listed}\n"
        homes = "".join(f'    "{name}": "{source}",\n' for name, source in self.imports.exports.items())
        return f"{start}{listed}\n{_LAZY_EXPORTS.format(homes=homes)}"

    def _find_late(self, body: Iterable[ast.stmt]) -> dict[range, tuple[tuple[str, ...], list[str]]]:
        """Return lines -> the stubs that they wait for and the names they bind, for all that waits."""
        found = dict[range, tuple[tuple[str, ...], list[str]]]()
        for span, several in group_by_lines(body):
            waits = {path for each in several for path in self.waits.list_waits(each, self.scope)}
            if waits:
                found[span] = tuple(sorted(waits)), [name for each in several for name in list_bindings(each)]
        return found

    def _write_group(self, statements: list[ast.stmt]) -> str:
        """Return the source of the definitions of one name."""
        source = "\n".join(map(ast.unparse, statements))
        while self.marker in source:
            self.marker += "_"
        body = self._defer(statements, self.scope)
        for each in body:
            _indent_docstrings(each, depth=0)
        text = _write_headers("\n\n\n".join(map(ast.unparse, body)))

        def place(marker: re.Match[str]) -> str:
            return textwrap.indent("\n".join(self.late[int(marker[2])]), marker[1]) + "\n"

        text = re.sub(rf"^( *)@?{self.marker}(\d+)\n+", place, f"{text}\n", flags=re.MULTILINE).rstrip("\n")
        waits = self.waits.list_waits_of_definition(statements, self.scope)
        if not waits:
            return text
        names = dict.fromkeys(name for name, _ in list_stubs(statements))
        return "\n".join(write_comment(text.split("\n"), waits=waits, bound=names))

    def _defer(self, body: Iterable[ast.stmt], scope: Scope, *, owner: str = "") -> list[ast.stmt]:
        """Replace decorators and class-level code that wait for stubs by markers. ``owner``: the class, with a dot."""
        found = list[ast.stmt]()
        for each in body:
            if isinstance(each, Function | ast.ClassDef):
                for at, decorator in enumerate(each.decorator_list):
                    waits = self.waits.list_waits(_decorate(decorator), scope)
                    if waits:
                        lines = write_comment([f"@{ast.unparse(decorator)}"], waits=waits, bound=[])
                        each.decorator_list[at] = self._mark(lines).value
                if isinstance(each, ast.ClassDef):
                    qualified = owner + each.name
                    inner = self.waits.enter(each, scope, qualified=qualified)
                    each.body = self._defer(each.body, inner, owner=f"{qualified}.")
                found.append(each)
                continue
            waits = () if isinstance(each, ast.If | ast.Try) else self.waits.list_waits(each, scope)
            if waits:
                bound = list_bindings(each)
                scope.late |= dict.fromkeys(bound, waits)
                found.append(self._mark(write_comment(ast.unparse(each).split("\n"), waits=waits, bound=bound)))
            else:
                found.append(each)
        return found

    def _mark(self, lines: list[str]) -> ast.Expr:
        self.late.append(lines)
        return ast.Expr(ast.Name(f"{self.marker}{len(self.late) - 1}", ast.Load()))


def _decorate(decorator: ast.expr) -> ast.stmt:
    """Return a function with one decorator."""
    made = ast.parse("def f(): ...").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.decorator_list = [decorator]
    return made


def _has_annotation(statements: Iterable[ast.AST]) -> bool:
    nodes = [node for each in statements for node in ast.walk(each)]
    return any(getattr(node, "annotation", None) or getattr(node, "returns", None) for node in nodes)


def _find_standard(statements: Iterable[ast.AST], *, known: Collection[str]) -> set[GlobalName]:
    """Return what signatures use of the standard library, where one object alone can be meant."""
    nodes = [node for each in statements for node in ast.walk(each)]
    attributes: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, set()).add(node.attr)
    bound = {name for each in statements for name in list_bindings(each)}
    found = set[GlobalName]()
    for name in list_names(statements) - {*known, *bound, *dir(builtins)}:
        inside = frozenset(attributes.get(name, ()))
        candidates = find_candidates(Use(name=name, line=0, attributes=inside, is_bare=not inside), Available())
        found |= {GlobalName(each.module, each.name) for each in candidates[:1] if len(candidates) == 1}
    return found


def _write_import_lines(symbols: Mapping[GlobalName, str]) -> list[str]:
    """Return sorted import lines, one for each module."""
    whole, names = list[str](), dict[str, list[str]]()
    for symbol, local in sorted(symbols.items()):
        parent, _, last = symbol.module.rpartition(".")
        source, name = (symbol.module, symbol.name) if symbol.name else (parent, last)
        if source:
            names.setdefault(source, []).append(name if local in ("", name) else f"{name} as {local}")
        else:
            whole.append(f"import {name}" if local in ("", name) else f"import {name} as {local}")
    return [*whole, *(_write_from(source, names[source]) for source in sorted(names))]


def _write_from(source: str, names: Iterable[str]) -> str:
    line = f"from {source} import {', '.join(sorted(names))}"
    if len(line) <= MOST_COLUMNS:
        return line
    return f"from {source} import (\n" + "".join(f"    {name},\n" for name in sorted(names)) + ")"


def _indent_docstrings(node: ast.AST, *, depth: int) -> None:
    """Indent the further lines of docstrings as their code; ``ast.unparse`` writes them as they are."""
    if isinstance(node, Function | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        text = clean_docstring(ast.get_docstring(node, clean=False) or "")
        if "\n" in text and isinstance(first, ast.Expr):
            indent = "    " * (depth + 1)
            lines = [f"{indent}{line}" if line else "" for line in text.split("\n")]
            first.value = ast.Constant("\n".join([lines[0].removeprefix(indent), *lines[1:], indent]))
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            _indent_docstrings(each, depth=depth + 1)


def _write_headers(text: str) -> str:
    """Write the headers of functions as formatters do: spaces around defaults, and no long lines."""
    lines = text.split("\n")
    for node in reversed([each for each in ast.walk(ast.parse(text)) if isinstance(each, Function)]):
        line = lines[node.lineno - 1]
        start = re.match(r"\s*(async )?def \w+(?=\()", line)
        if start is None:
            continue
        parts, end = _list_parameters(node.args), f") -> {ast.unparse(node.returns)}:" if node.returns else "):"
        header = f"{start[0]}({', '.join(parts)}{end}"
        if len(header) > MOST_COLUMNS and parts:
            indent = start[0][: len(start[0]) - len(start[0].lstrip())]
            rows = "".join(f"{indent}    {part},\n" for part in parts)
            header = f"{start[0]}(\n{rows}{indent}{end}".replace("*,,\n", "*,\n")
        lines[node.lineno - 1] = header
    return "\n".join(lines)


def _list_parameters(arguments: ast.arguments) -> list[str]:
    """Return the source of each parameter, with the marks ``/`` and ``*``."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parts = [_write_parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        parts.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg is not None:
        parts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += map(_write_parameter, arguments.kwonlyargs, arguments.kw_defaults)
    return [*parts, *([f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg is not None else [])]


def _write_parameter(arg: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(arg)
    return f"{ast.unparse(arg)}{' = ' if arg.annotation is not None else '='}{ast.unparse(default)}"


def _add_local_imports(module: PlannedModule, imports: ModuleImports) -> None:
    """Put the imports that would close a circle into the functions that need them."""
    for qualified, symbols in imports.local.items():
        lines = ast.parse("\n".join(_write_import_lines(symbols))).body
        waiting = [each for _, each in list_stubs(module.pieces[qualified])]
        for each in waiting:
            if isinstance(each, ast.ClassDef):
                waiting += [inner for _, inner in list_stubs(each.body)]
            elif isinstance(each, Function) and not has_decorator(each, "overload"):
                place = 1 if ast.get_docstring(each, clean=False) is not None else 0
                each.body[place:place] = lines


def _write_modules(modules: Mapping[str, PlannedModule]) -> dict[str, str]:
    plan = plan_imports(modules)
    for module in modules.values():
        _add_local_imports(module, plan[module.name])
    scopes = read_scopes(modules, plan)
    waits = Waits(modules=modules, scopes=scopes)
    waits.find_late()
    return {
        module.path: _Writer(module=module, imports=plan[name], waits=waits, scope=scopes[name]).write()
        for name, module in modules.items()
    }
