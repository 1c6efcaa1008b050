"""``python -m tests.libraries.rebuild``: libraries are rebuilt from their planning graphs, and pass their own tests.

First the skeleton, then the true bodies, node by node in order: as by a model that answers with the true bodies. What
differs from the library afterwards is the fault of the graph or of the skeleton. Exit status 1 if a module of the
skeleton cannot be imported, the code differs, or a test that passed with the library does not pass.
"""

import ast
import copy
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.generation.extract import extract_graph
from cdd_agent.generation.late_code import write_late_code
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.package_files import PackageFiles, read_package
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.generation.skeleton import make_skeleton
from cdd_agent.tickets.graph import Definition, Graph, Node
from cdd_agent.untrusted.python_source import decode
from tests.libraries.catalog import REBUILT, Library
from tests.libraries.workshop import Workshop, lay_plugins

Function = ast.FunctionDef | ast.AsyncFunctionDef
SHOWN = 5
IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(name, type(error).__name__, *str(error).splitlines()[:1])
"""


@dataclass(frozen=True, kw_only=True)
class Rebuilding:
    """A library, its graph and its skeleton."""

    package: PackageFiles
    graph: Graph
    layout: Layout
    skeleton: Mapping[str, bytes]
    """Path below the import root -> content."""

    @classmethod
    def of(cls, package: PackageFiles, folder: Path) -> "Rebuilding":
        """``folder``: what contains the package."""
        graph = extract_graph(package).graph
        layout = Layout.of(graph, package.package)
        data = graph.metadata.get("data", ())
        assert isinstance(data, list | tuple)
        texts = make_skeleton(graph, layout)
        modules = {path: text.encode() for path, text in texts.items() if path.startswith(f"{SOURCES}/")}
        copied = {path: (folder / path.removeprefix(f"{SOURCES}/")).read_bytes() for path in data}
        files = {path.removeprefix(f"{SOURCES}/"): content for path, content in (modules | copied).items()}
        return cls(package=package, graph=graph, layout=layout, skeleton=files)

    def rebuild(self) -> Iterator[tuple[Node, Mapping[str, bytes]]]:
        """Yield each node in order, and the files after its bodies are written."""
        plan = GenerationPlan(graph=self.graph, layout=self.layout, source=Path("graph.json"))
        files = dict(self.skeleton)
        written = list[str]()
        for node in plan.nodes:
            for each in node.definitions:
                path = self.layout.map_path(each.file_path).removeprefix(f"{SOURCES}/")
                original = decode(self.package.sources[each.file_path.removeprefix(f"{SOURCES}/")])
                files[path] = restore_bodies(files[path].decode(), original, definition=each).encode()
            written += self.layout.name_definitions(node)
            for path in {path for path in files if path.endswith(".py")}:
                files[path] = write_late_code(files[path].decode(), written).encode()
            yield node, files


def restore_bodies(text: str, original: str, *, definition: Definition) -> str:
    """Return a module in which the functions of a definition have the bodies that they have in ``original``."""
    tops = {name.partition(".")[0] for name, _ in list_functions(ast.parse(definition.signature).body)}
    truth = group(list_functions(ast.parse(original).body))
    stubs = group(list_functions(ast.parse(text).body))
    edits = [
        (stub, function)
        for name, functions in truth.items()
        if name.partition(".")[0] in tops
        for stub, function in zip(stubs[name], functions, strict=True)
    ]
    lines = text.split("\n")
    for stub, function in sorted(edits, key=lambda pair: -pair[0].lineno):
        first, last = stub.body[0].lineno, stub.body[-1].end_lineno or 0
        header = lines[stub.lineno - 1]
        lines[first - 1 : last] = write_body(function, indent=header[: len(header) - len(header.lstrip())])
    return "\n".join(lines)


def list_functions(body: Iterable[ast.stmt], owner: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions of a block with their qualified names, without those inside of functions."""
    for each in body:
        if isinstance(each, Function):
            yield owner + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from list_functions(each.body, f"{owner}{each.name}.")
        else:
            inner = [node for node in ast.iter_child_nodes(each) if isinstance(node, ast.stmt | ast.ExceptHandler)]
            for node in inner:
                yield from list_functions(node.body if isinstance(node, ast.ExceptHandler) else [node], owner)


def group(functions: Iterable[tuple[str, Function]]) -> dict[str, list[Function]]:
    """Return name -> functions."""
    found: dict[str, list[Function]] = {}
    for name, function in functions:
        found.setdefault(name, []).append(function)
    return found


def write_body(function: Function, *, indent: str) -> list[str]:
    """Return the lines of a body whose header has this indentation."""
    bare = copy.copy(function)
    bare.decorator_list = []
    wrapped: ast.stmt = bare
    levels = (len(indent) - len(indent.rstrip(" "))) // 4
    for _ in range(levels):
        wrapped = ast.ClassDef(name="_", bases=[], keywords=[], body=[wrapped], decorator_list=[])
    lines = ast.unparse(wrapped).split("\n")
    header = next(at for at, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ")))
    return textwrap.indent("\n".join(lines[header + 1 :]), indent[: len(indent) - 4 * levels]).split("\n")


def has_same_code(text: str, other: str) -> bool:
    """Return whether two modules differ in nothing but layout, comments and the indentation of docstrings."""
    one, two = (normalize(ast.parse(each)) for each in (text, other))
    return ast.dump(one) == ast.dump(two)


def normalize(tree: ast.Module) -> ast.Module:
    """Return a tree with clean docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node, clean=False) is not None:
            node.body[0] = ast.Expr(ast.Constant((ast.get_docstring(node) or "").strip()))
    return tree


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What differs between a library and the one that was rebuilt from its graph."""

    nodes: int
    tests: int
    """Those that pass with the library."""
    lost: tuple[str, ...]
    """Those of them that do not pass afterwards."""
    not_imported: tuple[str, ...]
    """Modules of the skeleton that cannot be imported, as those of the library can, and why."""
    differing: tuple[str, ...]
    """Modules with other code."""


def examine(library: Library) -> Finding:
    """Rebuild a library, and run its tests on both."""
    workshop = Workshop(library)
    workshop.prepare()
    original = workshop.take_package()
    name = library.import_name
    path = original / name if (original / name).is_dir() else original / f"{name}.py"
    package = read_package(str(path), search=())
    rebuilding = Rebuilding.of(package, original)
    skeleton, rebuilt = workshop.folder / "skeleton", workshop.folder / "rebuilt"
    lay(skeleton, rebuilding.skeleton)
    *_, (_, files) = rebuilding.rebuild()
    lay(rebuilt, files)
    # The graph does not contain the tests inside of the package.
    package = replace(package, sources={path: text for path, text in package.sources.items() if path in files})
    broken = {line.partition(" ")[0] for line in import_all(original, package, site=workshop.site)}
    failing = import_all(skeleton, package, site=workshop.site)
    own = ("own_tests",) if (workshop.project / "own_tests").exists() else ()
    runs = [
        workshop.pytest(folder.name, "-p", "no:pytest_tdd_agent", *own, first=folder) for folder in (original, rebuilt)
    ]
    before, after = (run.outcomes for run in runs)
    passed = [test for test, outcome in before.items() if outcome == "passed"]
    texts = ((path, decode(content)) for path, content in package.sources.items())
    return Finding(
        nodes=len(rebuilding.graph.leaves),
        tests=len(passed),
        lost=tuple(test for test in passed if after.get(test) != "passed"),
        not_imported=tuple(line for line in failing if line.partition(" ")[0] not in broken),
        differing=tuple(path for path, text in texts if not has_same_code(text, files[path].decode())),
    )


def lay(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def import_all(folder: Path, package: PackageFiles, *, site: Path) -> list[str]:
    """Return a line for each module that cannot be imported from a folder: its name, and why."""
    paths = [path.removesuffix(".py").removesuffix("/__init__") for path in package.sources]
    names = [path.replace("/", ".") for path in paths if "-" not in path and not path.endswith("__main__")]
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{folder}{os.pathsep}{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", IMPORT, *names]
    done = subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main(names: list[str]) -> int:
    """Rebuild the libraries, or those named, and print a table; 1 if something differs."""
    lay_plugins()
    print(
        f"{'library':<24} {'nodes':>6} {'tests':>6} {'lost':>6} {'not imported':>13} {'differing':>10} {'seconds':>8}"
    )
    status = 0
    for library in REBUILT:
        if names and library.name not in names:
            continue
        began = time.monotonic()
        found = examine(library)
        print(
            f"{library.pin:<24} {found.nodes:>6} {found.tests:>6} {len(found.lost):>6} {len(found.not_imported):>13}"
            f" {len(found.differing):>10} {time.monotonic() - began:>8.0f}",
            flush=True,
        )
        for line in (*found.lost[:SHOWN], *found.not_imported[:SHOWN], *found.differing[:SHOWN]):
            print(f"    {line[:300]}")
        status |= bool(found.lost or found.not_imported or found.differing or not found.tests)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
