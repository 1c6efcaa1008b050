"""Tests that a user gives: which files and settings come along."""

from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.given_tests import read_tests, write_settings


def test_all_files_but_caches_and_links_are_taken(tmp_path: Path) -> None:
    for name in ("test_a.py", "data/a.bin", "__pycache__/test_a.pyc", ".hidden/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff")
    (tmp_path / "link.py").symlink_to("test_a.py")
    assert read_tests(tmp_path) == {"tests/test_a.py": b"\xff", "tests/data/a.bin": b"\xff"}
    assert read_tests(tmp_path / "test_a.py") == {"tests/test_a.py": b"\xff"}


@pytest.mark.parametrize("name", ["none", "empty", "data"])
def test_a_folder_without_tests_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text("{}")
    with pytest.raises(UsageError, match=r"does not exist|has no tests in Python"):
        read_tests(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "pyproject.toml",
            '[tool.pytest.ini_options]\naddopts = "-q --cov --import-mode=importlib"\nmarkers = ["a: b"]\n',
        ),
        ("pyproject.toml", '[tool.pytest]\naddopts = ["-q", "--import-mode", "importlib"]\nmarkers = ["a: b"]\n'),
        ("setup.cfg", "[tool:pytest]\naddopts = --import-mode importlib\nmarkers =\n    a: b\ntestpaths = other\n"),
        ("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n    a: b\n"),
    ],
)
def test_settings_come_along_but_not_those_about_the_other_project(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / file).write_text(text)
    written = write_settings(tmp_path / "tests")
    expected = (
        "[pytest]\npythonpath = src\ntestpaths = tests\naddopts = --import-mode=importlib\nmarkers = \n    a: b\n"
    )
    written = written.replace("-mode importlib", "-mode=importlib")
    assert written.replace("markers = a", "markers = \n    a") == expected


def test_options_that_choose_tests_and_paths_to_them_come_along(tmp_path: Path) -> None:
    (tmp_path / "test" / "lib").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -ra --cov=src -m 'not slow' -p no:cov\npythonpath = . src test/lib\nnorecursedirs = bad\n"
    )
    assert write_settings(tmp_path / "test") == (
        "[pytest]\npythonpath = src . test/lib\ntestpaths = test\naddopts = -m 'not slow' -p no:cov\n"
        "norecursedirs = bad\n"
    )


def test_the_nearest_conftest_above_the_tests_comes_along(tmp_path: Path) -> None:
    tests = tmp_path / "project" / "test"
    tests.mkdir(parents=True)
    for path in (tmp_path / "conftest.py", tmp_path / "project" / "conftest.py", tests / "test_a.py"):
        path.write_text(path.parent.name)
    assert {*read_tests(tests)} == {"test/test_a.py"}, "pytest does not know where the project ends"
    (tmp_path / "project" / "pytest.ini").write_text("[pytest]\n")
    assert read_tests(tests) == {"conftest.py": b"project", "test/test_a.py": b"test"}


def test_a_folder_keeps_the_usual_names_and_gets_one_of_them_else(tmp_path: Path) -> None:
    for name, expected in (("tests", "tests"), ("test", "test"), ("checks", "tests")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test_a.py").write_text("")
        assert {*read_tests(tmp_path / name)} == {f"{expected}/test_a.py"}
        assert f"testpaths = {expected}\n" in write_settings(tmp_path / name)
