"""Which files tests failed for because a copy lacks them, from what the failures say."""

from pathlib import Path

import pytest

from cdd_agent.testrun.missing_files import CopyPlaces, find_missing_files
from pytest_tdd_agent.report import CollectError, Failure, SuiteReport
from tests.fakes.suite import make_failed_report

LEFT_OUT = ("config/test.yml", "data/deep/table.csv", "data/a.csv", "db.sqlite", "shop/local_settings.py", ".env.test")


@pytest.fixture
def places(tmp_path: Path) -> CopyPlaces:
    for top in ("user", "copy"):
        (tmp_path / top / "tests").mkdir(parents=True)
        (tmp_path / top / "tests" / "data.json").touch()
    for name in LEFT_OUT:
        (tmp_path / "user" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "user" / name).touch()
    return CopyPlaces(user=tmp_path / "user", copy=tmp_path / "copy", left_out=LEFT_OUT)


def fail(message: str, **more: str) -> SuiteReport:
    failure = Failure(phase="call", kind="error", origin="project", exception="Error", message=message, **more)  # type: ignore[arg-type]
    return make_failed_report(failure)


def test_a_missing_file_is_found_in_the_words_of_any_language(places: CopyPlaces) -> None:
    texts = {
        "[Errno 2] No such file or directory: 'config/test.yml'": "config/test.yml",
        f"[Errno 2] No such file or directory: '{places.copy}/config/test.yml'": "config/test.yml",
        f"no such file: '{places.user}/tests/../data/a.csv'": "data/a.csv",
        "ENOENT: no such file or directory, open './config/test.yml'": "config/test.yml",
        "open config/test.yml: no such file or directory": "config/test.yml",
        "java.io.FileNotFoundException: config/test.yml (No such file or directory)": "config/test.yml",
        "unable to open database file\n    sqlite3.connect('file:db.sqlite?mode=ro')\n    'db.sqlite'": "db.sqlite",
        "table.csv not found.": "data/deep/table.csv",
        "[Errno 2] No such file or directory: '../deep/table.csv'": "data/deep/table.csv",
        "[Errno 2] No such file or directory: 'data'": "data",
        "assert exists('.env.test')": ".env.test",
        "No such file: (ROOT / 'config' / 'test.yml'), '/x/config/test.yml' or config/test.yml": "config/test.yml",
        "Could not find file 'C:\\\\x' or config\\\\test.yml": "config/test.yml",
    }
    assert {text: list(find_missing_files(fail(text), places)) for text in texts} == {
        text: [path] for text, path in texts.items()
    }
    assert find_missing_files(fail("No such file: 'db.sqlite'"), places) == {"db.sqlite": "t.py::test"}


def test_only_what_the_user_has_and_the_copy_lacks_is_named(places: CopyPlaces) -> None:
    (places.user / "notes.txt").touch()
    for text in (
        "No such file or directory: 'tests/data.json'",
        "No such file or directory: 'other/test.yml.bak'",
        "No such file or directory: '/etc/config/test.yml'",
        "No such file or directory: '../../user/config/test.yml'",
        "No such file or directory: 'notes.txt'",
        "assert data == 1",
        "\0" * 10,
    ):
        assert find_missing_files(fail(text), places) == {}, text
    passed = fail("No such file: 'db.sqlite'")
    assert find_missing_files(passed, CopyPlaces(user=places.user, copy=places.user, left_out=LEFT_OUT)) == {}


def test_files_outside_the_project_count_where_they_are_asked_for(tmp_path: Path) -> None:
    user, tree = tmp_path / "home" / "user", tmp_path / "home" / "user" / ".cdd" / "worktrees" / "copy"
    (tree / "tests").mkdir(parents=True)
    for name in ("lib/tool/.git", "lib/tool/a.json", "../shared/b.json", "notes.txt"):
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).touch()
    for link, target in (("link.json", "../shared/b.json"), ("links", "../shared"), ("inner", "notes.txt")):
        for top in (user, tree):
            (top / link).symlink_to(target)
    copied = CopyPlaces(user=user, copy=tree, has_others=True)
    texts = {
        "No such file or directory: 'lib/tool/a.json'": "lib/tool/a.json",
        "No such file or directory: '../shared/b.json'": "../shared/b.json",
        f"No such file or directory: '{user}/tests/../../shared/b.json'": "../shared/b.json",
        f"No such file or directory: '{tree}/tests/../../shared/b.json'": "../shared/b.json",
        f"No such file or directory: '{tree.parent}/shared/b.json'": "../shared/b.json",
        "No such file or directory: 'link.json'": "link.json",
        "No such file or directory: 'links/b.json'": "links/b.json",
        "No such file or directory: 'inner'": None,
        "../shared/b.json:1014: FileNotFoundError": None,
        f"File '{user.parent}/shared/b.json', line 3\nFileNotFoundError": None,
        "No such file or directory: 'notes.txt'": None,
        "No such file or directory: '../shared/other.json'": None,
        "assert '../shared/b.json' == '..'": None,
    }
    found = {text: next(iter(find_missing_files(fail(text), copied)), None) for text in texts}
    assert found == texts
    others = {path: copied.find_other(path) for path in ("lib/tool/a.json", "../shared/b.json", "links", "notes.txt")}
    assert others == {"lib/tool/a.json": "lib/tool", "../shared/b.json": "..", "links": "..", "notes.txt": ""}
    assert find_missing_files(fail("No such file: 'lib/tool/a.json'"), CopyPlaces(user=user, copy=tree)) == {}


def test_a_missing_module_is_named_by_its_file(places: CopyPlaces) -> None:
    failure = Failure(
        phase="collect",
        kind="missing_module",
        origin="project",
        exception="ModuleNotFoundError",
        message="No module named 'shop.local_settings'",
        missing_name="shop.local_settings",
    )
    report = fail("1 == 2")
    report = type(report)(**{**vars(report), "collect_errors": (CollectError(nodeid="tests/t.py", failure=failure),)})
    assert find_missing_files(report, places) == {"shop/local_settings.py": "tests/t.py"}


def test_where_a_failure_does_not_name_the_file_the_code_does(places: CopyPlaces) -> None:
    (places.copy / "t.py").write_text("def test():\n    sqlite3.connect('db.sqlite').execute('select 1')\n")
    assert list(find_missing_files(fail("unable to open database file"), places)) == ["db.sqlite"]
    assert find_missing_files(fail("2 != 3"), places) == {}
    (places.copy / "t.py").unlink()
    (places.copy / "t.py").symlink_to("/etc/passwd")
    assert find_missing_files(fail("unable to open database file"), places) == {}


def test_a_run_without_a_report_names_it_in_its_output(places: CopyPlaces) -> None:
    output = "ImportError while loading conftest\nE   FileNotFoundError: No such file or directory: 'config/test.yml'"
    assert find_missing_files(None, places, output=output) == {"config/test.yml": "The run"}
    assert find_missing_files(None, places, output="killed") == {}


def test_paths_of_a_package_are_relative_to_it(places: CopyPlaces) -> None:
    inner = CopyPlaces(user=places.user, copy=places.copy, project="data/", left_out=LEFT_OUT)
    assert list(find_missing_files(fail("No such file: 'deep/table.csv'"), inner)) == ["data/deep/table.csv"]


def test_a_failure_of_any_length_is_read_within_bounds(places: CopyPlaces) -> None:
    report = fail("No such file " + "a/b " * 1_000_000 + "'db.sqlite'")
    assert find_missing_files(report, places) == {}
