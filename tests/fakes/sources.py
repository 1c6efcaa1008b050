"""The program's own source, for tests of what it may never contain: each module is parsed only where it may matter."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "cdd_agent"
PLUGIN = PACKAGE.with_name("pytest_tdd_agent")


@cache
def modules(*packages: Path) -> tuple[Path, ...]:
    """Return the modules of the packages, or of ``cdd_agent``."""
    return tuple(path for package in packages or (PACKAGE,) for path in sorted(package.rglob("*.py")))


@cache
def text_of(module: Path) -> str:
    """Return the source of a module."""
    return module.read_text(encoding="utf-8")


@cache
def nodes_of(module: Path) -> tuple[ast.AST, ...]:
    """Return everything that a module is written of."""
    return tuple(ast.walk(ast.parse(text_of(module))))


def nodes_with(*words: str, packages: tuple[Path, ...] = ()) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the nodes of each module that has one of the words in its text.

    Parsing all modules takes seconds, and every worker that runs one of these tests would do it.
    """
    for module in modules(*packages):
        if any(word in text_of(module) for word in words):
            for node in nodes_of(module):
                yield module, node
