import ast

import pytest

from cdd_agent.evidence.product_runs import add_trace, find_tests_of_product
from tests.cdd_agent.evidence.conftest import Make

APP = '''"""A program."""
from __future__ import annotations

import argparse


def main(words: list[str] | None = None) -> None:
    """Run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.parse_args(words)


if __name__ == "__main__":
    main()
'''
TESTS = """import pathlib
import subprocess
import sys

import pytest

from lib import app


def run(*words):
    subprocess.run([sys.executable, "-m", "lib.app", *words], check=True)


def test_in_a_process():
    run("one", "--new")


def test_ends_the_program():
    app.main(["one", "--new"])


def test_reads_what_was_not_written(tmp_path):
    app.main(["one"])
    (tmp_path / "out").read_text()


@pytest.mark.parametrize("word", ["a b"])
def test_of_its_own(word):
    raise ValueError(word)


@pytest.fixture
def later():
    yield
    app.main(["one"])


def test_runs_it_too_late(later):
    pathlib.Path("missing").read_text()
"""


def test_tests_that_run_the_product_are_found_in_other_processes_too(make: Make) -> None:
    step = make({"lib/__init__.py": "", "lib/app.py": APP, "tests/test_app.py": TESTS}, {}, runs_pytest=True)
    report = step.suite.run().report
    assert report is not None
    failing = [case.nodeid for case in report.tests if case.outcome == "failed"]
    ran, _ = find_tests_of_product(failing, tree=step.red, runs=step.runs())
    assert {nodeid.partition("::test_")[2] for nodeid in ran} == {
        "in_a_process",
        "ends_the_program",
        "reads_what_was_not_written",
    }
    assert len(failing) == 5


def test_without_time_nothing_is_found(make: Make) -> None:
    step = make({}, {})
    ran, found = find_tests_of_product(["tests/test_old.py::test_old"], tree=step.red, runs=step.runs(limit_s=0))
    assert not ran
    assert [each.outcome for each in found.notices] == ["unverified"]


SHAPES = """\
'Doc.'; from __future__ import annotations; X = 'caf\u00e9'; Y = (lambda: 1)()


def one_line(a): 'Doc.'; return a


def outer(a):
    @ (lambda f: f)
    def inner(b):
        if b:
        \treturn b
        match b:
        \tcase 0: return 0

    return inner(a)


class Kind:
    def method(self): \\
        return '\u00e9' ; \x0c
"""


@pytest.mark.parametrize("source", [APP, SHAPES, "x = 1\n", "", "x = 1", "'Doc.'", "def f():\n    'Only this.'\n"])
def test_a_module_keeps_its_meaning(source: str) -> None:
    traced = add_trace(source, log=".log")
    assert traced is not None
    before, after = ast.parse(source), ast.parse(traced)
    assert ast.get_docstring(after) == ast.get_docstring(before)
    compile(traced, "app.py", "exec")
    functions = [node for node in ast.walk(after) if isinstance(node, ast.FunctionDef) and node.name != "_cdd_trace"]
    bodies = [node.body[int(ast.get_docstring(node) is not None) :] for node in functions]
    assert all(ast.unparse(body[0]) == "_cdd_trace()" for body in bodies if body)


def test_what_is_not_python_stays() -> None:
    assert add_trace("def f(:", log=".log") is None
