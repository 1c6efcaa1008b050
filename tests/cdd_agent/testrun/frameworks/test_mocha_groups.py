from pathlib import Path

from cdd_agent.testrun.frameworks.javascript_results import find_importer
from cdd_agent.testrun.frameworks.sources import read_text


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
