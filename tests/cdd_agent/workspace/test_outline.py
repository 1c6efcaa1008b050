from pathlib import Path

from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.outline import list_definitions, outline_file, outline_project, show_parts

PYTHON = """\
import os


class Entry:
    day = 1

    @property
    def amount(self) -> int:
        def inner():
            return 1

        return inner()


def parse(text):
    return text
"""
SCRIPT = """\
export class Entry {
  amount() {
    if (this.x) {
      return 1;
    }
  }
}

const parse = (text) => {
  return text;
};
"""


def test_an_outline_of_python_has_classes_functions_and_methods_with_their_lines() -> None:
    assert outline_file("a.py", PYTHON).splitlines() == [
        "class Entry:  [4-12]",
        "  def amount(self) -> int:  [7-12]",
        "def parse(text):  [15-16]",
    ]


def test_an_outline_of_another_language_follows_the_indentation() -> None:
    assert outline_file("a.js", SCRIPT).splitlines() == [
        "export class Entry {  [1-7]",
        "  amount() {  [2-6]",
        "const parse = (text) => {  [9-11]",
    ]
    assert [each.name for each in list_definitions("a.js", SCRIPT)] == ["Entry", "amount", "text"]


def test_python_that_cannot_be_parsed_is_outlined_like_another_language() -> None:
    assert outline_file("a.py", "def f(:\n    return 1\n") == "def f(:  [1-2]"
    assert outline_file("a.py", "") == ""


def test_the_parts_of_a_file_are_its_beginning_and_those_that_are_named() -> None:
    text = show_parts("a.py", PYTHON, names={"parse"}, limit=1_000)
    assert text.endswith("\n\n     1\timport os\n\n    15\tdef parse(text):\n    16\t    return text")
    assert "day = 1" not in text
    assert show_parts("a.py", PYTHON, names={"parse"}, limit=60) == "class Entry:  [4-12]\n...\n\n     1\timport os"


def test_the_outline_of_a_project_fits_into_its_limit(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(PYTHON)
    (tmp_path / "notes.txt").write_text("one:\n  two\n")
    workspace = Workspace(tmp_path)
    full = "notes.txt (2 lines)\nsrc/a.py (16 lines)\n  class Entry:\n    def amount(self) -> int:\n  def parse(text):"
    assert outline_project(workspace, limit=1_000) == full
    assert outline_project(workspace, limit=80) == full.replace("\n    def amount(self) -> int:", "")
    assert outline_project(workspace, limit=50) == "notes.txt (2 lines)\nsrc/a.py (16 lines)"
    assert outline_project(workspace, limit=20) == "notes.txt\nsrc/a.py"
    assert outline_project(workspace, limit=10) == "2 files"
