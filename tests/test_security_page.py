"""Pages of weaknesses and losses against the tests: each one known has its row, and each row its test."""

import ast
import re
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (ROOT / "docs" / "security.md", ROOT / "docs" / "reference" / "losses.md")
KNOWN = {
    *(f"W{number}" for number in range(1, 51)),
    *(f"F{number}" for number in range(1, 41)),
    *(f"L{number}" for number in range(1, 24)),
}
"""Rows that no change may lose; later ones are on the pages only."""
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> dict[str, str]:
    """Name of a row -> its last column, which names the tests."""
    found: dict[str, str] = {}
    for line in (line for page in DOCUMENTS for line in page.read_text(encoding="utf-8").splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[WFL]\d+", cells[0]):
            assert cells[0] not in found, f"{cells[0]} has two rows"
            found[cells[0]] = cells[-1]
    return found


@lru_cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_each_weakness_fault_and_loss_has_one_row() -> None:
    assert set(rows()) >= KNOWN


def test_every_row_names_tests_that_exist() -> None:
    for row, cell in rows().items():
        named = TEST.findall(cell)
        assert named, row
        for file, function in named:
            assert (ROOT / file).is_file(), file
            assert function in functions(file), f"{file} has no {function}"
