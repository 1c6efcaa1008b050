import ast
from pathlib import Path

from cdd_agent.testrun import launcher


def test_the_launcher_is_python_3_8_and_needs_nothing_but_pytest() -> None:
    tree = ast.parse(Path(launcher.__file__).read_text(encoding="utf-8"), feature_version=(3, 8))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert modules == {"__future__", "os", "sys", "pathlib", "pytest"}
