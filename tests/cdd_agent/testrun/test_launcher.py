import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cdd_agent.testrun import launcher, run_plugin
from cdd_agent.testrun.run import Suite
from tests.cdd_agent.testrun.conftest import outcomes

STANDARD = {"__future__", "importlib", "json", "os", "pathlib", "sys", "typing"}


@pytest.mark.parametrize("module", [launcher, run_plugin])
def test_what_runs_in_the_projects_interpreter_is_python_3_8_and_needs_nothing_but_pytest(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), feature_version=(3, 8))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in modules} - STANDARD == {"pytest"}


def test_an_overlay_is_imported_in_place_of_files_that_stay_as_they_are(
    tmp_path: Path, suite: Suite, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    (project / "src/pack").mkdir(parents=True)
    installed.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "linked"))
    (tmp_path / "linked").symlink_to(installed)
    (project / "pytest.ini").write_text("[pytest]\npythonpath = src\naddopts = -n1\n")
    disk = {project / "src/pack/__init__.py": b"N = 1\n", installed / "other_here.py": b"M = 1\n"}
    for path, content in disk.items():
        path.write_bytes(content)
    (project / "test_a.py").write_text(
        "import os\nfrom pack import N\nfrom other_here import M\n"
        "def test_disk(): assert (N, M) == (1, 1) and 'PYTEST_XDIST_WORKER' in os.environ\n"
        "def test_overlay(): assert (N, M) == (2, 'gr\u00fcn') and 'PYTEST_XDIST_WORKER' not in os.environ\n"
    )
    overlay = {project / "src/pack/__init__.py": b"N = 2\n", installed / "other_here.py": "M = 'gr\u00fcn'\n".encode()}
    suite = replace(suite, root=project)
    for laid, passes in ((overlay, "test_overlay"), (None, "test_disk")):
        found = outcomes(suite.run(overlay=laid))
        assert [name for name, outcome in found.items() if outcome == "passed"] == [f"test_a.py::{passes}"]
    assert {path: path.read_bytes() for path in disk} == disk
