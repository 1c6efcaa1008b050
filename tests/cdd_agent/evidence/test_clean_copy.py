import os
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git.repository import CDD_IDENTITY, Repository
from cdd_agent.testrun.access import Original
from tests.cdd_agent.evidence.conftest import Make
from tests.fakes.suite import FakeSuite

RED = {
    "tests/test_product.py": "def test_it(): assert False\n",
    "tests/data/rows.csv": "1;2\n",
    "pyproject.toml": '[project]\nname = "sums"\n\n[tool.pytest.ini_options]\naddopts = "-ra"\n',
    "setup.cfg": "[metadata]\nname = sums\n",
}


def test_the_product_is_greens_and_the_tests_are_reds(make: Make) -> None:
    green = {
        "product.py": "x = 1\n",
        "tests/test_product.py": "def test_it(): pass\n",
        "tests/test_more.py": "",
        "conftest.py": "collect_ignore = ['tests']\n",
        "pyproject.toml": RED["pyproject.toml"].replace("-ra", "-k nothing"),
        "setup.cfg": "[metadata]\nname = total\n",
        "key.secret": "ignored",
    }
    step = make(RED, green)
    with clean_copy(step.repository, step.suite, green=step.green, red=step.red) as copy:
        held = {path.relative_to(copy.root).as_posix() for path in copy.root.rglob("*") if path.is_file()}
        assert copy.root.name == step.suite.root.name
        assert {"product.py", "old.py", "tests/data/rows.csv"} <= held
        assert held.isdisjoint({"tests/test_more.py", "conftest.py", "key.secret"})
        for name in ("tests/test_product.py", "pyproject.toml"):
            assert (copy.root / name).read_text() == RED[name]
        assert (copy.root / "setup.cfg").read_text() == green["setup.cfg"], "nothing of pytest's in it"
    assert not copy.root.parent.exists()


def test_the_copy_goes_when_something_fails(make: Make) -> None:
    step = make(RED, {"product.py": "x = 1\n"})
    roots = []

    def use() -> None:
        with clean_copy(step.repository, step.suite, green=step.green, red=step.red) as copy:
            roots.append(copy.root)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use()
    assert not roots[0].parent.exists()
    assert step.repository.git("status", ("--porcelain",)).split() == ["??", "product.py"]


def test_the_copy_is_a_repository_of_its_own(make: Make) -> None:
    step = make(RED, {"product.py": "x = 1\n"})
    before = step.repository.git("count-objects", ("-v",))
    with clean_copy(step.repository, step.suite, green=step.green, red=step.red) as copy:
        own = Repository(copy.root)
        assert own.read_branch() == step.repository.read_branch()
        assert own.git("status", ("--porcelain",)) == ""
        assert "product.py" in own.git("ls-tree", ("--name-only",), "HEAD").split()
    assert step.repository.git("count-objects", ("-v",)) == before


def test_a_project_inside_the_work_tree_is_copied_with_all_around_it(make: Make) -> None:
    step = make(RED, {"product.py": "x = 1\n", "tests/test_product.py": ""}, inside="services/sums")
    with clean_copy(step.repository, step.suite, green=step.green, red=step.red) as copy:
        assert copy.root.parts[-3:] == ("project", "services", "sums")
        assert (copy.root / "tests" / "test_product.py").read_text() == RED["tests/test_product.py"]


@pytest.mark.slow
def test_the_copy_has_the_files_of_submodules(make: Make) -> None:
    step = make(RED, {"product.py": "x = 1\n"})
    (step.repository.root / "library").mkdir()
    library = Repository.create(step.repository.root / "library")
    (library.root / "table.csv").write_text("1,2\n")
    library.git("add", "table.csv")
    library.git("commit", ("--quiet", "-m"), "library", variables=CDD_IDENTITY)
    step.repository.git("add", "library", "product.py")
    green = step.repository.git("write-tree").strip()
    (library.root / "table.csv").write_text("being edited\n")
    with clean_copy(step.repository, step.suite, green=green, red=step.red) as copy:
        assert (copy.root / "library" / "table.csv").read_text() == "1,2\n"
        assert Repository(copy.root).git("status", ("--porcelain",)) == ""


def test_the_setup_prepares_the_copy_and_changes_neither_tests_nor_what_is_committed(make: Make) -> None:
    made = "mkdir made; touch made/data.csv conftest.py pytest.py tests/test_more.py; echo >product.py"
    step = make(RED, {"product.py": "x = 1\n"})
    assert isinstance(step.suite, FakeSuite)
    suite = replace(step.suite, setup=made)
    with clean_copy(step.repository, suite, green=step.green, red=step.red) as copy:
        assert (copy.root / "made" / "data.csv").exists()
        assert (copy.root / "product.py").read_text() == "x = 1\n"
        assert not any((copy.root / name).exists() for name in ("conftest.py", "pytest.py", "tests/test_more.py"))


def test_a_copy_has_of_ignored_files_what_the_user_approved_and_nothing_that_a_run_left(
    make: Make, tmp_path: Path
) -> None:
    step = make({}, {"product.py": "x = 1\n"})
    users = tmp_path / "users"
    step.repository.git("worktree", "add", ("--quiet", "--detach"), str(users))
    for name in ("data.secret", "other.secret", "conftest.secret", "tests/more.secret"):
        (users / name).write_text("the user's")
        (step.suite.root / name).write_text("of a run")
    step.repository.source = users
    step.repository.read_included = lambda: b"/data.secret\n/tests/more.secret\n"
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=users))
    for has_included, names in ((True, {"data.secret", "tests/more.secret"}), (False, set[str]())):
        with clean_copy(step.repository, suite, green=step.green, red=step.red, has_included=has_included) as copy:
            found = {path.relative_to(copy.root).as_posix(): path.read_text() for path in copy.root.rglob("*.secret")}
            assert found == dict.fromkeys(names, "the user's")


@pytest.mark.slow
def test_links_that_git_does_not_track_lead_to_what_is_in_the_copy(make: Make, tmp_path: Path) -> None:
    step = make({"src/shop/__init__.py": "", "tests/test_shop.py": ""}, {"gone.py": ""})
    users = tmp_path / "users"
    for name in ("src/shop/__init__.py", "tests/test_shop.py", "src/shop/untracked.py", "build/shop/fast.so"):
        (users / name).parent.mkdir(parents=True, exist_ok=True)
        (users / name).write_bytes(b"\x7fELF" if name.endswith(".so") else b"")
    (tmp_path / "elsewhere").touch()
    for name, leads in {
        "build/shop/__init__.py": users / "src" / "shop" / "__init__.py",
        "build/shop/untracked.py": users / "src" / "shop" / "untracked.py",
        "build/shop/test_shop.py": users / "tests" / "test_shop.py",
        "build/all": users / "src",
        "build/circle": users / "build" / "circle",
        "build/elsewhere": tmp_path / "elsewhere",
        "gone.py": users / "src" / "shop" / "__init__.py",  # in RED
        "conftest.py": users / "src" / "shop" / "__init__.py",
        "pytest.py": users / "src" / "shop" / "__init__.py",
        ".venv/shop.py": users / "src" / "shop" / "__init__.py",
    }.items():
        (users / name).parent.mkdir(exist_ok=True)
        (users / name).symlink_to(leads)
    suite = step.suite.in_run_tree(step.suite.root, original=Original(root=users))
    with clean_copy(step.repository, suite, green=step.red, red=step.green) as copy:
        links = {
            path.relative_to(copy.root).as_posix(): os.readlink(path)
            for path in copy.root.rglob("*")
            if path.is_symlink()
        }
        assert links == {
            "build/all": "../src",
            "build/shop/__init__.py": "../../src/shop/__init__.py",
            "build/shop/test_shop.py": "../../tests/test_shop.py",
        }
        assert (copy.root / "build" / "shop" / "fast.so").is_file()
