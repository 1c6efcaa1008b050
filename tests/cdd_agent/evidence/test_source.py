import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdd_agent.evidence.source import find_changed_lines, find_docstrings, read_imports, resolve_name
from cdd_agent.untrusted.python_source import parse


def test_what_cannot_be_parsed_is_no_tree() -> None:
    assert parse("def f(:\n") is None
    assert parse(None) is None
    assert parse("\0") is None


def test_added_lines_are_those_that_were_not_there() -> None:
    assert find_changed_lines("a\nb\nc\n", "a\nx\nb\nc\ny\n")[0] == {2, 5}
    assert find_changed_lines(None, "a\nb\n")[0] >= {1, 2}
    assert find_changed_lines("a\r\nb  \r\n", "a\nb\n")[0] == frozenset()


def test_lines_beside_removed_ones_are_touched() -> None:
    assert find_changed_lines("a\nb\nc\n", "a\nc\n")[1] == {1, 2}


def test_names_are_resolved_through_imports_and_getattr() -> None:
    tree = ast.parse("import os as o\nfrom os import _exit as bye\no._exit\nbye\ngetattr(o, '_exit')\n")
    names = read_imports(tree)
    found = [resolve_name(node.value, names) for node in tree.body if isinstance(node, ast.Expr)]
    assert found == ["os._exit"] * 3


def test_docstrings_are_told_from_other_constants() -> None:
    tree = ast.parse('"""Text."""\nx = "value"\n')
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert [node.value for node in constants if id(node) not in find_docstrings(tree)] == ["value"]


def test_comments_and_docstrings_are_no_code() -> None:
    old = 'def f():\n    """Old."""\n    # old\n    return "# 1"\n'
    new = 'def f():\n    """New.\n\n    More.\n    """\n    # new\n    return "# 1"  # why\n\n\n# end\n'
    assert find_changed_lines(old, new)[1] == find_changed_lines(new, old)[1] == frozenset()
    assert find_changed_lines(old, new.replace("# 1", "# 2"))[1] == {7}


@pytest.mark.parametrize(("count", "kinds"), [(1500, 3), (20_000, 5000)])
def test_large_files_are_compared_by_counting_lines(count: int, kinds: int) -> None:
    old = [f"    'a{number % kinds}': 1," for number in range(count)]
    new = [*old[:700], "    'new': 2,", *old[700:]]
    started = time.monotonic()
    assert find_changed_lines("\n".join(old), "\n".join(new))[0] == {701}
    assert time.monotonic() - started < 5


@pytest.mark.slow
def test_sources_can_be_parsed_in_several_threads_at_once() -> None:
    text, threshold = "x = [" + "f(1, [2, 3]), " * 300 + "]\n", gc.get_threshold()

    def let_others_run(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(let_others_run)  # in the middle of a tree
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(parse, [text] * 20))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_run)
