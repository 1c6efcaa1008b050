from pathlib import Path

import pytest

from tests.fakes.tools import why_not

pytest_plugins = ["pytester"]


def shim(folder: Path, script: str) -> str:
    """Return a program that only looks for the tool whose name it has."""
    program = folder / "cargo"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_tool_that_runs_is_used() -> None:
    assert why_not("true") is None


def test_a_tool_that_is_not_there_is_named() -> None:
    assert why_not("no-such-tool", "--version") == "no-such-tool is not installed"


def test_a_tool_that_does_not_run_says_why(tmp_path: Path) -> None:
    cargo = shim(tmp_path, "echo 'error: no default is configured' >&2; echo 'help: rustup default' >&2; exit 1")
    assert why_not(cargo, "--version") == f"{cargo} does not run: error: no default is configured"


def test_a_tool_that_says_nothing_has_an_exit_status(tmp_path: Path) -> None:
    cargo = shim(tmp_path, "exit 3")
    assert why_not(cargo) == f"{cargo} does not run: exit status 3"


def test_a_file_that_is_no_program_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "cargo").write_bytes(b"")
    (tmp_path / "cargo").chmod(0o644)
    assert "Permission denied" in (why_not(str(tmp_path / "cargo")) or "")


def test_a_tool_is_tried_as_the_test_starts_it(tmp_path: Path) -> None:
    cargo = shim(tmp_path, 'test "$HOME" = /home/ada')
    assert why_not(cargo, HOME="/nowhere") is not None
    assert why_not(cargo, HOME="/home/ada") is None


def test_a_test_that_needs_it_is_skipped_with_those_words(pytester: pytest.Pytester, tmp_path: Path) -> None:
    cargo = shim(tmp_path, "echo 'error: no default is configured' >&2; exit 1")
    pytester.makepyfile(
        "import pytest\n"
        f"@pytest.mark.needs({cargo!r}, '--version')\ndef test_one(): assert 0\n"
        "@pytest.mark.needs('true')\ndef test_two(): pass\n"
    )
    result = pytester.runpytest_inprocess("-rs", "--strict-markers", "-p", "tests.fakes.tools")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*test_a_test_that_needs*: */cargo does not run: error: no default is configured"]
    )
