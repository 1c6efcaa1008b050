from pathlib import Path

from cdd_agent.runs.failing_tests import MAX_RELATED_CHARACTERS, find_related_code
from cdd_agent.workspace.files import Workspace
from tests.cdd_agent.testrun.test_project_detection import lay


def code(root: Path, *tests: str) -> tuple[str, ...]:
    return find_related_code(tests, workspace=Workspace(root), is_test=lambda name: "test" in name)


def test_code_is_what_the_tests_name_most_often_first(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "tests/test_cart.py": "from shop.cart import Cart\nfrom shop import prices\ncart = Cart()\n",
            "tests/test_other.py": "import other\n",
            "tests/cart_test_data.py": "a = 1\n",
            "src/shop/cart.py": "a = 1\n",
            "src/shop/prices.py": "a = 1\n",
            "src/shop/__init__.py": "a = 1\n",
            "src/shop/empty.py": "",
            "src/other.py": "a = 1\n",
            "src/__init__.py": "a = 1\n",
        },
    )
    named = ("src/shop/__init__.py", "src/shop/cart.py", "src/shop/prices.py")
    assert code(tmp_path, "tests/test_cart.py") == named
    assert code(tmp_path, "tests") == (*named[:2], "src/other.py", "src/shop/prices.py")


def test_code_in_another_language_is_known_by_its_name_too(tmp_path: Path) -> None:
    lay(tmp_path, {"cart.test.js": "import {total} from './cart.js'\n", "cart.js": "let a\n", "x/index.ts": "let a\n"})
    assert code(tmp_path, "cart.test.js") == ("cart.js",)


def test_what_could_not_come_back_in_an_answer_is_left_out(tmp_path: Path) -> None:
    lay(tmp_path, {"test_a.py": "import large, escape, plain", "plain.py": "a = 1\n", "escape.py": "a = '\x1b'\n"})
    lay(tmp_path, {"large.py": "#" * (MAX_RELATED_CHARACTERS + 1)})
    (tmp_path / "latin.py").write_bytes(b"a = '\xe9'\n")
    assert code(tmp_path, "test_a.py") == ("plain.py",)
