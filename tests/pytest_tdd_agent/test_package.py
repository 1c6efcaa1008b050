import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_tdd_agent
from pytest_tdd_agent.failure import KINDS
from pytest_tdd_agent.gate import CODES

PACKAGE = Path(pytest_tdd_agent.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_module_is_python_3_8_and_puts_off_its_annotations(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"), feature_version=(3, 8))
    futures = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    }
    assert futures == {"annotations"} or len(tree.body) == 1  # a docstring annotates nothing


def test_reading_a_report_needs_no_pytest() -> None:
    code = "import pytest_tdd_agent.gate, sys; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=False).returncode == 0


@pytest.mark.parametrize(("page", "table"), [("plugin.md", CODES), ("report.md", KINDS)])
def test_the_reference_lists_what_the_program_knows(page: str, table: dict[str, str]) -> None:
    text = (PACKAGE.parent / "docs/reference" / page).read_text(encoding="utf-8")
    assert "\n".join(f"| `{name}` | {meaning} |" for name, meaning in table.items()) in text


def test_the_reference_names_every_option() -> None:
    text = (PACKAGE.parent / "docs/reference/plugin.md").read_text(encoding="utf-8")
    declared = re.findall(r'"(--tdd-agent[a-z-]*)"', (PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    documented = re.findall(r"^\| `(--tdd-agent[a-z-]*)", text, re.MULTILINE)
    assert sorted(documented) == sorted(declared)
