import os
import subprocess
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import MAKE
from cdd_agent.testrun.frameworks.framework import FinishedRun


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
    results = MAKE.read(FinishedRun(root=tmp_path, results=tmp_path, output="1 passed\n", exit_status=0))
    assert (results.tests, results.problem, results.is_structured) == ((), None, False)
    assert MAKE.arguments(("--eval=x",), tmp_path) == ()


def test_a_target_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    said = "make: *** No rule to make target 'test'.  Stop.\n"
    results = MAKE.read(FinishedRun(root=tmp_path, results=tmp_path, output=said, exit_status=2))
    assert results.problem == "No rule to make target 'test'.  Stop."


@pytest.mark.parametrize(
    "said",
    [
        "make: 'test' is up to date.",
        "make: Nothing to be done for 'test'.",
        "make: Für das Ziel \u201etest\u201c ist nichts zu tun.",
        "gmake: `test' is up to date.",
    ],
)
def test_a_run_that_did_nothing_is_no_run_that_passed(tmp_path: Path, said: str) -> None:
    results = MAKE.read(FinishedRun(root=tmp_path, results=tmp_path, output=f"{said}\n", exit_status=0))
    assert (results.problem or "").startswith("make ran nothing: ")
    assert (results.problem or "").endswith("(.PHONY: test)")


@pytest.mark.parametrize(
    "said",
    [
        "make[1]: Nothing to be done for 'test'.",
        "make: Entering directory '/a/test'",
        "make: Nothing to be done for 'lint'.",
        "Makefile:3: warning: overriding recipe for target 'test'",
        "x: make: 'test' is up to date.",
    ],
)
def test_what_make_says_besides_is_no_problem(tmp_path: Path, said: str) -> None:
    results = MAKE.read(FinishedRun(root=tmp_path, results=tmp_path, output=f"{said}\n", exit_status=0))
    assert results.problem is None


@pytest.mark.needs("make", "--version")
def test_a_folder_that_is_called_as_the_target_hides_it_from_make(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("test:\n\tfalse\n")
    (tmp_path / "test").mkdir()
    alone = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(["make", "test"], cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    ended = FinishedRun(root=tmp_path, results=tmp_path, output=done.stdout + done.stderr, exit_status=done.returncode)
    assert (done.returncode, (MAKE.read(ended).problem or "")[:16]) == (0, "make ran nothing")
