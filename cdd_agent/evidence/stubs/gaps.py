"""What is not there when a test fails for want of a name: where, under which name, and how it is filled. Pure."""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from cdd_agent.evidence.code.source import Function, parse
from cdd_agent.evidence.stubs import inert
from cdd_agent.testrun.suite import modules_of
from pytest_tdd_agent.failure import kind_inside
from pytest_tdd_agent.report import Failure

Read: TypeAlias = Callable[[str], str | None]
"""A file, relative to the project -> its text; None if there is none."""

_DEFINITION = Function | ast.ClassDef
_ROOTS = ("", "src/", "lib/")


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """One thing that is not there, or only raises that it is not implemented."""

    path: str
    """The module it is missing in, relative to the project."""
    name: str
    """Its name there, dotted if a class has it; empty: the module itself is missing."""

    @property
    def what(self) -> str:
        """How a sentence calls it."""
        return f"{self.name} in {self.path}" if self.name else self.path


def gap_of(failure: Failure, *, sources: Sequence[str], read: Read) -> Gap | None:
    """What has to be filled for a test to get beyond this failure; None if that cannot be told, or it is another's.

    ``sources``: the files that the work item is to bring, which may not be there yet.
    """
    missing = failure.missing_name or ""
    match kind_inside(failure):
        case "missing_module":
            path = _absent(missing, sources, read=read) or _inside_package(missing, sources, read=read)
            return Gap(path, "") if path else None
        case "import_error" | "attribute_error":
            path = _absent(missing, sources, read=read, is_whole=True)
            return Gap(path, "") if path else _in_module(missing, sources, read=read)
        case "signature_mismatch":
            gap = _in_module(missing, sources, read=read)
            return gap and _of_definition(gap, text=read(gap.path))
        case "name_error" if failure.origin == "project" and failure.path and missing.isidentifier():
            return Gap(failure.path, missing)
        case "not_implemented" if failure.origin == "project" and failure.path and failure.line:
            name = ".".join(_definitions_at(parse(read(failure.path)), failure.line))
            return Gap(failure.path, _callable(name)) if name else None
        case _:
            return None


def _absent(module: str, sources: Sequence[str], *, read: Read, is_whole: bool = False) -> str | None:
    """The source that is not there and is this module or, unless ``is_whole``, lies in this package."""
    absent = {source: modules_of((source,)) for source in sources if read(source) is None}
    exact = (source for source, names in absent.items() if module in names)
    inside = (source for source, names in absent.items() if any(name.startswith(f"{module}.") for name in names))
    return next(exact, None) or (None if is_whole else next(inside, None))


def _inside_package(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    """Where a module is to be made that lies in a package that is there."""
    package, _, name = module.rpartition(".")
    home = _home(package, sources, read=read) if package else None
    if home is None or not home.endswith("/__init__.py"):
        return None
    place = home.removesuffix("__init__.py") + f"{name}.py"
    return place if read(place) is None else None


def _in_module(missing: str, sources: Sequence[str], *, read: Read) -> Gap | None:
    """A dotted name told apart into the longest module that is there and a name in it."""
    parts = missing.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        home = _home(".".join(parts[:end]), sources, read=read)
        if home is not None:
            return Gap(home, ".".join(parts[end:]))
    return None


def _home(module: str, sources: Sequence[str], *, read: Read) -> str | None:
    """The file that a module is."""
    path = module.replace(".", "/")
    named = [source for source in sources if module in modules_of((source,))]
    usual = [f"{root}{path}{end}" for root in _ROOTS for end in (".py", "/__init__.py")]
    return next((place for place in (*named, *usual) if read(place) is not None), None)


def _of_definition(gap: Gap, *, text: str | None) -> Gap | None:
    """The function that a call does not fit, or its class; what follows its name is a keyword."""
    scope: ast.AST | None = parse(text)
    found: list[str] = []
    for part in gap.name.split("."):
        scope = next((node for node in _definitions(scope) if node.name == part), None)
        if scope is None:
            break
        found.append(part)
    return Gap(gap.path, _callable(".".join(found))) if found else None


def _definitions_at(tree: ast.AST | None, line: int) -> list[str]:
    """The names of the classes, outermost first, and of the function that a line lies in."""
    for node in _definitions(tree):
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            return [node.name, *_definitions_at(node, line)]
    return []


def _definitions(scope: ast.AST | None) -> Iterator[_DEFINITION]:
    """The functions and classes of a module or a class; those inside of functions are nobody else's."""
    if isinstance(scope, (ast.Module, ast.ClassDef)):
        yield from (node for node in scope.body if isinstance(node, _DEFINITION))


def _callable(name: str) -> str:
    """The class, if the name is that of a method which Python itself calls: a stub of it is no method."""
    owner, _, last = name.rpartition(".")
    return owner if owner and last.startswith("__") and last.endswith("__") else name


_MAKE = """

_cdd_made = {{"__name__": "stub"}}
exec({source!r}, _cdd_made)
_cdd_stub = _cdd_made["Stub"]
"""
_ANY_NAME = """

def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return globals().setdefault(name, _cdd_stub(name, {truth}))
"""


def filled(text: str | None, names: Iterable[str], *, truth: bool) -> str:
    """The source of a module with stubs under these names; of one that is not there, under whatever name is asked.

    ``truth``: the answer of the stubs to everything.
    """
    made = "" if text is None else text
    made += _MAKE.format(source=_source())
    if text is None:
        made += _ANY_NAME.format(truth=truth)
    for name in names:
        if name:
            made += f"{name} = _cdd_stub({name.rpartition('.')[2]!r}, {truth})\n"
    return made


@cache
def _source() -> str:
    return Path(inert.__file__).read_text(encoding="utf-8")
