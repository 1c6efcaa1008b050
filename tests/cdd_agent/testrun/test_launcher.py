import ast
from pathlib import Path
from types import ModuleType

import pytest

from cdd_agent.testrun import launcher, run_plugin

STANDARD = {"__future__", "importlib", "os", "pathlib", "sys", "typing"}


@pytest.mark.parametrize("module", [launcher, run_plugin])
def test_what_runs_in_the_projects_interpreter_is_python_3_8_and_needs_nothing_but_pytest(module: ModuleType) -> None:
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), feature_version=(3, 8))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).partition(".")[0] for name in modules} - STANDARD == {"pytest"}
