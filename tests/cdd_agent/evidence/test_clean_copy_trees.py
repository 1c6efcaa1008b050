import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

from cdd_agent.evidence import clean_copy
from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.git.run_tree import GitExport
from cdd_agent.testrun.access import SHOWN_PRIVATE, Original
from cdd_agent.testrun.suite import PLAIN_LAYOUT
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.steps import FILES, report_of

TEST = "def test_it():\n    assert f('\u00e9') == 7\n"


def test_a_change_is_read_from_the_trees_without_tests_and_configuration(make: Make) -> None:
    red = {"tests/test_product.py": TEST, "checks.py": "x = 1\n", "gone.py": "x = 1\n"}
    step = make(
        red, {"data.bin": "1", "product.py": "x = '\u00e9'\n", "old.py": "", "checks.py": "", "conftest.py": ""}
    )
    found = clean_copy.list_product_changes(
        step.repository, layout=PLAIN_LAYOUT, red=step.red, green=step.green, tests=("checks.py",)
    )
    assert found == (
        ProductChange(path="data.bin", old=None, new=None),
        ProductChange(path="old.py", old=FILES["old.py"], new=""),
        ProductChange(path="product.py", old=None, new="x = '\u00e9'\n"),
    )
    (deleted,) = clean_copy.list_product_changes(
        step.repository, layout=PLAIN_LAYOUT, red=step.green, green=step.red, tests=("checks.py",)
    )[2:]
    assert deleted == ProductChange(path="product.py", old="x = '\u00e9'\n", new=None)


def test_paths_are_relative_to_the_project(make: Make) -> None:
    step = make({"tests/test_product.py": TEST}, {"product.py": "x = 1\n"}, inside="tests/sums")
    layout = clean_copy.find_layout(step.repository, step.suite)
    project = layout.project
    assert project == "tests/sums"
    (change,) = clean_copy.list_product_changes(step.repository, layout=layout, red=step.red, green=step.green)
    assert change.path == "product.py"
    targets = ("tests/test_product.py::test_it", "tests/gone.py::test_it")
    sources = clean_copy.read_sources(step.repository, project=project, tree=step.red, paths=targets)
    assert sources == {"tests/test_product.py": TEST}
    assert list(clean_copy.read_product_sources(step.repository, project=project, tree=step.red)) == [FILES["old.py"]]


def test_newly_passing_tests_are_those_that_failed_or_were_not_there() -> None:
    before = report_of(("a.py::test_old",), failed=("a.py::test_red", "a.py::test_still"))
    after = report_of(("a.py::test_old", "a.py::test_red", "b.py::test_hidden"), failed=("a.py::test_still",))
    assert clean_copy.find_newly_passing(after, baseline=before) == ("a.py::test_red", "b.py::test_hidden")
    known = replace(before, old_failures=("a.py::test_red",))
    assert clean_copy.find_newly_passing(after, baseline=known) == ("b.py::test_hidden",)
    only = replace(before, old_failures=("a.py::test_red", "b.py::test_hidden"))
    assert clean_copy.find_newly_passing(after, baseline=only) == ("a.py::test_red", "b.py::test_hidden")


def test_a_copy_adds_to_the_exported_history_the_objects_of_its_commit(make: Make, tmp_path: Path) -> None:
    step = make({"tests/deep/test_product.py": TEST, "src/a/same.py": "s = 1\n"}, {"src/a/product.py": "x = 1\n"})
    base = step.repository.read_head()
    assert base is not None
    export = GitExport(folder=tmp_path / "git" / "sale")
    export.update(step.repository, base, branch="main", shown_at=SHOWN_PRIVATE)
    original = Original(root=step.repository.root, git=export.folder)
    suite = step.suite.in_run_tree(step.suite.root, original=original)
    with clean_copy.clean_copy(step.repository, suite, green=step.green, red=step.red) as copy:
        objects = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(export.folder / "objects")}
        call = partial(subprocess.run, check=True, capture_output=True, text=True, cwd=copy.root, env=objects)
        call(["git", "fsck", "--full", "--strict"])
        listed = call(["git", "ls-tree", "-r", "--name-only", "HEAD"]).stdout.split()
        assert {"src/a/product.py", "src/a/same.py", "tests/deep/test_product.py"} <= set(listed)
        assert call(["git", "status", "--porcelain"]).stdout == ""
