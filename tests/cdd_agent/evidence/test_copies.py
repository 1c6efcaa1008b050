"""Copies that checks share: each gets the files of its trees, whatever the checks before it did to them."""

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.evidence.copies import CleanCopies, shows_writes
from cdd_agent.git.repository import CDD_IDENTITY, Repository
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.steps import Step
from tests.fakes.cases import soak_after

PRODUCT = "def double(number):\n    return number * 2\n"


@pytest.fixture
def step(make: Make) -> Step:
    return make({"tests/test_product.py": "def test_it(): assert False\n"}, {"product.py": PRODUCT})


def lend_twice(step: Step, change: Callable[[Path], object]) -> tuple[Path, Path]:
    """Lend a copy, change it, lend it again, and return both folders. The second must be as git wrote the first."""
    copies = CleanCopies(step.repository, step.suite)
    with copies.lend(green=step.green, red=step.red) as copy:
        first, made = copy.root, read(copy.root)
        change(first)
    with copies.lend(green=step.green, red=step.red) as copy:
        second = copy.root
        assert read(second) == made
    copies.close()
    assert not first.exists()
    assert not second.exists()
    return first, second


def read(root: Path) -> dict[str, tuple[int, str]]:
    """Everything in a folder but git's own files."""
    files = (path for path in root.rglob("*") if ".git" not in path.relative_to(root).parts)
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.read_text() if path.is_file() else "")
        for path in files
    }


def add(root: Path) -> None:
    (root / "conftest.py").write_text("collect_ignore = ['tests']\n")
    (root / ".pytest_cache").mkdir()
    (root / ".pytest_cache" / "cache").touch()
    (root / "tests" / "link").symlink_to("/")
    os.mkfifo(root / "pipe")
    hidden = root / "hidden"
    hidden.mkdir()
    (hidden / "file").touch()
    hidden.chmod(0)


def restore(root: Path) -> None:
    (root / "product.py").write_text("altered")
    (root / "product.py").write_text(PRODUCT)


def alter_without_a_trace(root: Path) -> None:
    about = (root / "product.py").stat()
    (root / "product.py").write_text(PRODUCT.replace("2", "3"))
    os.utime(root / "product.py", ns=(about.st_atime_ns, about.st_mtime_ns))


def test_checks_of_the_same_trees_use_one_copy_and_what_they_add_goes(step: Step) -> None:
    first, second = lend_twice(step, add)
    assert first == second


def test_a_file_that_a_check_has_put_back_is_clean(step: Step) -> None:
    first, second = lend_twice(step, restore)
    assert first == second


@soak_after(
    2,
    "change",
    [
        alter_without_a_trace,
        lambda root: (root / "product.py").unlink(),
        lambda root: (root / "product.py").chmod(0o755),
        lambda root: os.link(root / "product.py", root.parent / "second_name"),
        lambda root: (root / ".git" / "HEAD").write_text("ref: refs/heads/other\n"),
        lambda root: [(root / "product.py").unlink(), (root / "product.py").symlink_to("old.py")],
    ],
    ids=["content", "deleted", "mode", "second name", "git", "link"],
)
def test_a_copy_that_a_check_has_changed_is_made_anew(step: Step, change: Callable[[Path], object]) -> None:
    first, second = lend_twice(step, change)
    assert first != second


def write_through_memory(root: Path) -> None:
    with (root / "product.py").open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        content[:] = content[:].replace(b"2", b"3")


@soak_after(1, "folder", ["", "/dev/shm"], ids=["disk", "memory"])
def test_a_write_that_leaves_the_times_as_they_were_is_seen(
    step: Step, folder: str, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert not shows_writes(Path(folder).stat().st_dev, Path(folder))
    first, second = lend_twice(step, write_through_memory)
    assert first != second
    first, second = lend_twice(step, add)
    assert first == second


def test_other_trees_and_a_check_within_a_check_have_copies_of_their_own(step: Step) -> None:
    copies = CleanCopies(step.repository, step.suite)
    with (
        copies.lend(green=step.green, red=step.red) as one,
        copies.lend(green=step.green, red=step.red) as same,
        copies.lend(green=step.red, red=step.red) as other,
    ):
        assert len({one.root, same.root, other.root}) == 3
        assert not (other.root / "product.py").exists()


@pytest.mark.slow
def test_where_there_are_many_files_a_copy_is_changed_to_other_trees(step: Step) -> None:
    repository = step.repository
    repository.submodules = ()  # as in a run tree, where they are known
    index = {"GIT_INDEX_FILE": str(repository.root.parent / "index")}
    repository.git("read-tree", step.green, variables=index)
    repository.git("rm", ("--cached", "-q"), "product.py", variables=index)
    blob = repository.objects.require(f"{step.green}:product.py").id
    repository.git("update-index", ("--add", "--cacheinfo"), f"100755,{blob},product.py/inner.py", variables=index)
    other = repository.git("write-tree", variables=index).strip()

    def show(trees: tuple[str, str], copies: CleanCopies) -> tuple[Path, object]:
        with copies.lend(green=trees[0], red=trees[1]) as copy:
            found = copy.root, (read(copy.root), Repository.find(copy.root).git("status", ("--porcelain",)))
            add(copy.root)
        return found

    many = [(step.green, step.red), (other, other), (step.red, step.red), (step.green, step.red)]
    fresh = [show(trees, CleanCopies(repository, step.suite))[1] for trees in many]
    copies = CleanCopies(repository, step.suite, many_files=0)
    changed = [show(trees, copies) for trees in many]
    assert [content for _, content in changed] == fresh
    assert len({root for root, _ in changed}) == 1


@pytest.mark.slow
def test_another_commit_of_the_same_files_has_the_same_copy(step: Step) -> None:
    copies = CleanCopies(step.repository, step.suite)
    again = step.repository.git(
        "commit-tree", f"{step.green}^{{tree}}", ("-m",), "again", variables=CDD_IDENTITY
    ).strip()
    with copies.lend(green=step.green, red=step.red) as copy:
        first = copy.root
    with copies.lend(green=again, red=again) as copy:
        assert copy.root == first
    with copies.lend(green=step.red, red=step.red) as copy:
        assert copy.root != first


def test_the_copies_go_with_what_made_them(step: Step) -> None:
    copies = CleanCopies(step.repository, step.suite)
    with copies.lend(green=step.green, red=step.red) as copy:
        root = copy.root
    del copies
    assert not root.exists()
