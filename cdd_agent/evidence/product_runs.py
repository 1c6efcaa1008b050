"""Find out during which tests code of the product runs, also in the processes that they start.

In a clean copy, each module and function of the product first writes the running test to a file. pytest names that test
in an environment variable, which child processes inherit, and which is not set while tests are collected.
"""

import ast
import secrets
from collections.abc import Sequence

from cdd_agent.evidence.clean_copy import Findings, list_test_functions
from cdd_agent.evidence.mutation import TimedRuns, TimeUp, report_unverified
from cdd_agent.evidence.source import list_functions
from cdd_agent.git.runner import GitError
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.python_source import ForeignModule, decode, parse, split_lines
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.sources import encode_source

_MOST_BYTES = 10_000_000
_MOST_FILES = 2_000
# The log is found from the module, because a sandbox may show the copy at another path.
_TRACE = """
import os as _cdd_os
def _cdd_trace(seen=set(), log=_cdd_os.path.join(_cdd_os.path.dirname(_cdd_os.path.abspath(__file__)), {log!r})):
    import io, os
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if test and test not in seen:
        seen.add(test)
        with io.open(log, "a", encoding="utf-8", errors="surrogateescape") as lines:
            lines.write(test + chr(10))
_cdd_trace()
"""


def find_tests_of_product(nodeids: Sequence[str], *, tree: str, runs: TimedRuns) -> tuple[frozenset[str], Findings]:
    """Return those of the tests that run code of the product before their teardown; none if the run fails.

    A finding says so if that could not be tried.
    """
    try:
        with runs.copy(green=tree, red=tree) as copy:
            log = copy.root / f".cdd-{secrets.token_hex(8)}"
            _add_traces(copy, log=log.name)
            runs.run(copy, "new tests, to see if they run the product", tests=list_test_functions(nodeids))
            lines = read_ordinary(log, limit_bytes=_MOST_BYTES).decode("utf-8", "surrogateescape").splitlines()
    except (TimeUp, GitError, OSError) as error:
        return frozenset(), report_unverified("product_runs", error)
    found = {test for test, _, phase in (line.rpartition(" ") for line in lines) if phase != "(teardown)"}
    return frozenset(nodeids) & found, Findings()


def _add_traces(copy: Suite, *, log: str) -> None:
    files = ConfinedFolder(copy.root.resolve())
    for path in sorted(copy.root.resolve().rglob("*.py"))[:_MOST_FILES]:
        name = path.relative_to(files.root).as_posix()
        if path.is_symlink() or copy.conventions.is_test(name):
            continue
        up = "../" * name.count("/")
        traced = add_trace(decode(path.read_bytes()), log=up + log)
        if traced is not None:
            files.write(name, encode_source(traced))


def add_trace(source: str, *, log: str) -> str | None:
    """Return a module that writes the running test to ``log``, relative to it; None if it cannot be altered."""
    tree = parse(source)
    if tree is None:
        return None
    lines = [line.encode() for line in split_lines(source)]
    places: dict[tuple[int, int], bytes] = {}
    for function in list_functions(tree):
        at = int(ast.get_docstring(function, clean=False) is not None)
        for statement in function.body[at : at + 1]:
            places[_find_start(statement, lines)] = _make_call(statement, lines)
    first = [isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body]
    at = len(first) - first[::-1].index(True) if any(first) else int(ast.get_docstring(tree) is not None)
    start = _find_start(tree.body[at], lines) if at < len(tree.body) else (len(lines), len(lines[-1]))
    places[start] = f"\n{_TRACE.format(log=log)}\n".encode()
    for (number, column), text in sorted(places.items(), reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:column] + text + line[column:]
    traced = b"\n".join(lines).decode()
    return traced if isinstance(tree, ForeignModule) or parse(traced) is not None else None


def _find_start(statement: ast.stmt, lines: list[bytes]) -> tuple[int, int]:
    """Return the 1-based line and the column of a statement, in bytes."""
    decorators = getattr(statement, "decorator_list", None)
    if decorators:
        number = min(each.lineno for each in decorators)
        return number, lines[number - 1].index(b"@")
    return statement.lineno, statement.col_offset


def _make_call(statement: ast.stmt, lines: list[bytes]) -> bytes:
    """Return what is inserted before a statement: one with a body of its own needs its own line."""
    number, column = _find_start(statement, lines)
    has_body = hasattr(statement, "body") or hasattr(statement, "cases")
    return b"_cdd_trace()\n" + lines[number - 1][:column] if has_body else b"_cdd_trace(); "
