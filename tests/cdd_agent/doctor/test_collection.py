"""The tests of a project, collected."""

from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.doctor import check_tests
from tests.fakes.cases import soak_after


def test_tests_are_counted_and_not_run(project: Composition) -> None:
    (project.root / "test_mark.py").write_text("def test_mark():\n    open('mark', 'w')\n")
    check = check_tests(project.suite)
    assert (check.state, check.fix) == ("ok", "")
    assert check.told.endswith("-m pytest collects 3")
    assert not (project.root / "mark").exists()


@pytest.mark.slow
def test_none_yet_is_worth_knowing_and_nothing_is_missing(project: Composition) -> None:
    (project.root / "test_one.py").unlink()
    check = check_tests(project.suite)
    assert (check.state, check.told.endswith("finds no tests yet")) == ("note", True)


@pytest.mark.slow
@soak_after(
    1,
    ("name", "text", "told"),
    [
        ("test_two.py", "import not_there\n", "1 error"),
        pytest.param("conftest.py", "import not_there\n", "No module named 'not_there'", marks=pytest.mark.slow),
        ("pytest.ini", "[pytest]\nminversion = 99\n", "'minversion' requires pytest-99"),
        ("conftest.py", "import os\nos._exit(3)\n", "status 3"),
    ],
)
def test_what_keeps_them_from_being_collected_is_said(project: Composition, name: str, *, text: str, told: str) -> None:
    (project.root / name).write_text(text)
    check = check_tests(project.suite)
    assert check.state == "missing"
    assert told in check.told
    assert check.fix


@pytest.mark.slow
def test_a_plugin_that_the_options_want_is_said_and_does_not_stop_it(project: Composition) -> None:
    (project.root / "pytest.ini").write_text("[pytest]\naddopts = --cov\n")
    check = check_tests(project.suite)
    assert check.state == "ok"
    assert any("--cov" in detail for detail in check.details)


@pytest.mark.slow
def test_a_package_in_src_that_is_not_installed_is_named_with_the_command_that_installs_it(
    project: Composition,
) -> None:
    (project.root / "src" / "till").mkdir(parents=True)
    (project.root / "src" / "till" / "__init__.py").write_text("")
    for name in ("test_one.py", "conftest.py"):
        (project.root / name).write_text("import till\n")
        check = check_tests(project.suite)
        assert (check.state, check.told) == ("missing", "no test can import till, which is in src and not installed")
        assert check.fix.endswith(f"-m pip install -e {project.root}")


@pytest.mark.slow
def test_a_module_that_is_imported_from_elsewhere_is_named(project: Composition, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "till.py").write_text("")
    (project.root / "src").mkdir()
    (project.root / "src" / "till.py").write_text("")
    (project.root / "test_one.py").write_text(
        f"import sys\nsys.path.insert(0, {str(elsewhere)!r})\nimport till\ndef test_one(): pass\n"
    )
    assert check_tests(project.suite).details == (
        f"till is imported from {elsewhere}/till.py, not from the project, so a clean copy cannot verify it",
    )
