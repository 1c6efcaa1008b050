from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.framework import Ended
from cdd_agent.testrun.frameworks.plain import MAKE


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("test:\n\ttrue\n", True),
        ("test: build\n", True),
        ("check test::\n", True),
        ("test := x\n", False),
        ("test-all:\n", False),
        ("all:\n\techo test: x\n", False),
    ],
)
def test_a_target_of_that_name_is_what_counts(tmp_path: Path, text: str, *, is_found: bool) -> None:
    (tmp_path / "Makefile").write_text(text)
    assert (MAKE.find(tmp_path) is not None) == is_found


def test_the_makefile_is_the_one_that_make_would_take(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n")
    (tmp_path / "GNUmakefile").write_text("all:\n")
    assert MAKE.find(tmp_path) is None


def test_nothing_is_known_but_the_exit_status(tmp_path: Path) -> None:
    results = MAKE.read(Ended(root=tmp_path, results=tmp_path, output="1 passed\n", exit_status=0))
    assert (results.tests, results.problem, results.is_structured) == ((), None, False)
    assert MAKE.arguments(("--eval=x",), tmp_path) == ()


def test_a_target_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    said = "make: *** No rule to make target 'test'.  Stop.\n"
    results = MAKE.read(Ended(root=tmp_path, results=tmp_path, output=said, exit_status=2))
    assert results.problem == "No rule to make target 'test'.  Stop."
