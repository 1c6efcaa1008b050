from pathlib import Path

from cdd_agent.testrun.frameworks.javascript_reports import find_group_titles, find_importer, split_titles
from cdd_agent.testrun.frameworks.sources import read_text


def test_titles_joined_by_spaces_are_told_apart_by_the_source(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text(
        "describe('shelf', () => { describe.only(\"in the\\n hall\", () => {}); context(`it's`, () => {}); })"
    )
    (tmp_path / "b.js").write_text("describe('a b'); describe('a'); describe('b c');")
    shelf, letters = find_group_titles(tmp_path / "a.js"), find_group_titles(tmp_path / "b.js")
    assert split_titles("shelf it's", shelf) == ("shelf", "it's")
    assert split_titles("shelf of books", shelf) == ("shelf of books",)
    assert split_titles("a b c", letters) == ("a", "b c")
    assert split_titles("a b", letters) == ("a b",)
    assert split_titles("a b", find_group_titles(tmp_path / "missing.js")) == ("a b",)
    assert split_titles("", letters) == ()


def test_the_one_test_that_imports_what_is_missing_is_found(tmp_path: Path) -> None:
    said = "The requested module '../src/a.js' does not provide an export named 'put'"
    (tmp_path / "node_modules").mkdir()
    for name in ("node_modules/x.test.js", "a.test.js", "a.js"):
        (tmp_path / name).write_text("import { put } from '../src/a.js';")
    (tmp_path / "b.test.js").write_text("import { take } from '../src/a.js';")
    assert find_importer(tmp_path, said) == "a.test.js"
    assert find_importer(tmp_path, "Unexpected token") is None
    (tmp_path / "c.test.js").write_text("import { put } from '../src/a.js';")
    assert find_importer(tmp_path, said) is None


def test_what_is_no_ordinary_file_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.js").symlink_to("/etc/passwd")
    assert read_text(tmp_path / "a.js") == ""
    assert read_text(tmp_path / "b.js") == ""
