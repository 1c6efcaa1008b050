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


def test_a_signature_of_several_lines_is_shown_whole_in_one() -> None:
    python = (
        "def f(\n    a: int,  # one\n    *,\n    b: list[\n        str\n    ] = (),\n) -> None:\n    return None\n\n\n"
        "def g(x='('):\n    pass\n\n\nasync def h(x): return x\n\n\n"
        "class C(\n    Base,\n    metaclass=M,\n):\n    x = 1\n"
    )
    assert outline_file("a.py", python).splitlines() == [
        "def f(a: int, *, b: list[str] = ()) -> None:  [1-8]",
        "def g(x='('):  [11-12]",
        "async def h(x): return x  [15-15]",
        "class C(Base, metaclass=M):  [18-22]",
    ]
    script = "export function add(\n  left,\n  right,\n) {\n  return left + right;\n}\n"
    assert outline_file("a.js", script) == "export function add(left, right) {  [1-6]"
    long = f"def f({', '.join(f'argument_{number}: int' for number in range(40))}):\n    pass\n"
    assert outline_file("a.py", long).endswith("...  [1-2]")


def make(folder: Path, *paths: str, text: str = "") -> Workspace:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Workspace(folder)


def test_a_heap_of_data_is_one_row_with_a_count(tmp_path: Path) -> None:
    make(tmp_path, "src/a.py", text=PYTHON)
    make(tmp_path, *(f"data/{number % 50}/{number}.csv" for number in range(400)), "data/schema.json")
    make(tmp_path, *(f"src/fixtures_{number}.json" for number in range(9)), "src/one.yaml", "README.md", "setup.cfg")
    for number in range(8):
        path = tmp_path / "src" / "locale" / str(number) / "messages.mo"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\xde\x12\x04\x95\0\0")
    assert outline_project(Workspace(tmp_path), limit=2_000).splitlines() == [
        "README.md (0 lines)",
        "data/ (401 files: .csv, .json)",
        "setup.cfg (0 lines)",
        "src/*.json (9 files)",
        "src/a.py (16 lines)",
        "  class Entry:",
        "    def amount(self) -> int:",
        "  def parse(text):",
        "src/locale/ (8 files: .mo)",
        "src/one.yaml (0 lines)",
    ]


def test_definitions_of_tests_give_way_to_those_of_the_product(tmp_path: Path) -> None:
    tests = "".join(f"def test_number_{number}():\n    assert True\n\n\n" for number in range(30))
    make(tmp_path, "tests/test_a.py", text=tests)
    workspace = make(tmp_path, "src/a.py", text=PYTHON)
    assert "test_number_29" in outline_project(workspace, limit=2_000)
    assert outline_project(workspace, limit=200).splitlines()[-2:] == [
        "  def parse(text):",
        "tests/test_a.py (120 lines)",
    ]


def test_very_many_tests_are_counted_before_the_product_is(tmp_path: Path) -> None:
    make(tmp_path, *(f"tests/unit/test_{number}.py" for number in range(300)))
    workspace = make(tmp_path, "src/a.py", text=PYTHON)
    outline = outline_project(workspace, limit=500)
    assert outline.splitlines()[-1] == "tests/ (300 files: .py)"
    assert "  def parse(text):" in outline


def test_a_heap_of_generated_modules_hides_no_module_beside_it(tmp_path: Path) -> None:
    make(tmp_path, *(f"src/generated/m{number}.py" for number in range(300)), text="DATA = 1\n")
    workspace = make(tmp_path, "src/a.py", text=PYTHON)
    outline = outline_project(workspace, limit=500)
    assert outline.splitlines()[-2:] == ["  def parse(text):", "src/generated/*.py (300 files)"]
