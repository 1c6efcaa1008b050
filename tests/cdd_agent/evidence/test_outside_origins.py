"""From where a run in a clean copy imported the project's modules."""

import os
import shutil
from pathlib import Path

import pytest

from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.outside import check_origins
from cdd_agent.testrun.access import Original
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import tell
from tests.fakes.cases import soak_after


@soak_after(
    2,
    ("origins", "notice"),
    [
        ({"shop.price": "COPY/src/shop/price.py", "json": "/usr/lib/python3/json/__init__.py"}, None),
        (
            {"shop.price": "COPY/src/shop/price.py", "shop.old": "TREE/src/shop/old.py"},
            "Not verified: shop.old was loaded from TREE/src/shop/old.py, not from the clean copy.",
        ),
        ({"src.shop.price": "COPY/src/shop/price.py", "shop.price": "/usr/lib/python3/shop/price.py"}, None),
        (
            {"shop.price": "/other/site-packages/shop/price.py"},
            "Not verified: shop.price was loaded from /other/site-packages/shop/price.py, not from the clean copy.",
        ),
        ({"shop.price": "COPY/src/shop/price.py", "yaml": "TREE/.venv/lib/site-packages/yaml/__init__.py"}, None),
        ({"shop.price": "COPY/src/shop/price.py", "zlib": "TREE/.tox/py/lib/python3.11/zlib.so"}, None),
        (
            {"shop.price": "COPY/src/shop/price.py", "shop._fast": "COPY/src/shop/_fast.so"},
            "Compiled part not verified: shop._fast.",
        ),
        ({}, None),
    ],
    ids=["all of the copy", "the work tree", "by another name", "installed", "package", "library", "compiled", "none"],
)
def test_a_module_from_elsewhere_is_not_verified(make: Make, origins: dict[str, str], notice: str | None) -> None:
    step = make({}, {"src/shop/price.py": "x = 1\n"})
    with step.runs().copy(green=step.green, red=step.red) as copy:
        places = {"COPY": str(copy.root), "TREE": str(step.suite.root)}
        for word, place in places.items():
            origins = {name: path.replace(word, place) for name, path in origins.items()}
            notice = notice and notice.replace(word, place)
        found = check_origins(origins, step.request(), copy=copy, runs=step.runs())
    assert tell(found) == (() if notice is None else (notice,))


def test_a_run_tells_from_where_it_imported_and_is_not_called_checked(make: Make, tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "shop.py").write_text("def price(amount):\n    return amount * 12 // 10\n")
    conftest = f"import sys\n\nsys.path.insert(0, {str(tmp_path / 'installed')!r})\n"
    test = "from shop import price\n\n\ndef test_price():\n    assert price(10) == 12\n"
    red = {"conftest.py": conftest, "tests/test_shop.py": test}
    step = make(red, {"shop.py": "def price(amount):\n    return amount * 1.2\n"}, runs_pytest=True)
    found = confirm(step.request("tests/test_shop.py::test_price"), runs=step.runs())
    assert found.reasons == ()
    assert tell(found) == (
        f"Not verified: shop was loaded from {tmp_path}/installed/shop.py, not from the clean copy.",
    )


@soak_after(
    1, ("statement", "is_refused"), [("from checks import same", True), ("from tests.checks import same", False)]
)
def test_a_module_in_place_of_one_of_the_tests_is_refused(make: Make, statement: str, *, is_refused: bool) -> None:
    red = {"tests/checks.py": "same = 1\n", "tests/test_shop.py": f"{statement}\n"}
    step = make(red, {"checks.py": "same = 2\n"})
    with step.runs().copy(green=step.green, red=step.red) as copy:
        origins = {"checks": str(copy.root / "checks.py")}
        found = check_origins(origins, step.request("tests/test_shop.py::test_a"), copy=copy, runs=step.runs())
    message = "The tests import checks.py in place of checks.py of the tests. Rename it."
    assert [(each.code, explain(each)) for each in found.reasons] == [("shadows_tests", message)] * is_refused


@pytest.mark.slow
def test_compiled_modules_of_the_users_project_are_in_the_copy(make: Make, tmp_path: Path) -> None:
    step = make({"src/shop/__init__.py": ""}, {"src/shop/price.py": "x = 1\n"})
    for name in ("src/shop/_fast.so", "src/gone/_fast.so", ".venv/_fast.so"):
        (tmp_path / "users" / name).parent.mkdir(parents=True)
        (tmp_path / "users" / name).write_bytes(b"\x7fELF\2\1\1compiled")
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=tmp_path / "users"))
    with clean_copy(step.repository, suite, green=step.green, red=step.red) as copy:
        assert [path.relative_to(copy.root).as_posix() for path in copy.root.rglob("*.so")] == ["src/shop/_fast.so"]


def test_no_module_of_the_user_is_written_through_a_link_of_the_change(make: Make, tmp_path: Path) -> None:
    step = make({"src/shop/__init__.py": ""}, {"src/shop/__init__.py": "x = 1\n"})
    (tmp_path / "elsewhere").mkdir()
    for name, leads in (("shop", tmp_path / "elsewhere"), ("circle", Path("circle"))):
        (tmp_path / "users" / "src" / name).mkdir(parents=True)
        (tmp_path / "users" / "src" / name / "_fast.so").write_bytes(b"compiled")
        (tmp_path / "users" / "src" / name / "linked.py").symlink_to(tmp_path / "users" / "src" / "shop" / "_fast.so")
        shutil.rmtree(step.suite.root / "src" / name, ignore_errors=True)
        (step.suite.root / "src" / name).symlink_to(leads)
    step.repository.git("add", ("--all",))
    tree = step.repository.git("write-tree").strip()
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=tmp_path / "users"))
    with clean_copy(step.repository, suite, green=tree, red=step.red) as copy:
        assert (copy.root / "src" / "shop").is_symlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_pipe_of_a_run_in_place_of_a_module_is_not_waited_for(make: Make, tmp_path: Path) -> None:
    step = make({"shop.py": ""}, {"price.py": "x = 1\n"})
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "_version.py").write_text("v = 1\n")
    os.mkfifo(step.suite.root / "_version.py")
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=tmp_path / "users"))
    with clean_copy(step.repository, suite, green=step.green, red=step.red) as copy:
        assert not (copy.root / "_version.py").exists()


@pytest.mark.slow
def test_modules_that_the_user_has_built_are_in_the_copy(make: Make, tmp_path: Path) -> None:
    step = make({"src/shop/__init__.py": "", "src/shop/gone.py": ""}, {"src/shop/price.py": "x = 1\n"})
    (step.suite.root / "src/shop/gone.py").unlink()
    written = {
        "src/shop/_version.py": "v = 1\n",
        "src/shop/other.py": "x = 1\n",
        "src/conftest.py": "",
        "pytest.py": "",
    }
    for name, text in written.items():
        (tmp_path / "users" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "users" / name).write_text(text)
        (step.suite.root / name).write_text(text)
    (tmp_path / "users/src/shop/left_out.py").write_text("")  # the run does not begin with it
    (tmp_path / "users/src/shop/gone.py").write_text("")
    (step.suite.root / "src/shop/other.py").write_text("x = 2\n")  # by the run
    (step.suite.root / "src/shop/planted.py").write_text("")
    for root in (tmp_path / "users", step.suite.root):
        (root / "src/shop/taken_along.py").write_text("")  # git does not ignore it
    (step.suite.root / ".gitignore").write_text("_*.py\nother.py\nplanted.py\npytest.py\nconftest.py\n")
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=tmp_path / "users"))
    tree = (
        step.repository.git("rm", ("-q", "--cached"), "src/shop/gone.py") or step.repository.git("write-tree").strip()
    )
    with clean_copy(step.repository, suite, green=tree, red=step.red) as copy:
        found = {path.name for path in (copy.root / "src").rglob("*.py")}
    assert found == {"__init__.py", "_version.py"}
