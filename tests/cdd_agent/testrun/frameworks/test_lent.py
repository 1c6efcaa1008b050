"""Packages that are installed in a project, and where a copy of it finds them."""

from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.environment import link_modules


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of two packages of its own, ``@s/a`` and ``b``, as npm links them, and one that was fetched."""
    top = tmp_path / "repository"
    for folder in (".git", "node_modules/@s", "node_modules/fetched", "node_modules/.vite", "packages/a", "packages/b"):
        (top / folder).mkdir(parents=True)
    (top / "node_modules/@s/a").symlink_to("../../packages/a")
    (top / "node_modules/b").symlink_to("../packages/b")
    return top


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    top = tmp_path / "copy"
    for name in ("a", "b"):
        (top / "packages" / name).mkdir(parents=True)
    return top


def test_a_package_of_the_repository_s_own_is_found_in_the_copy(repository: Path, copied: Path) -> None:
    assert link_modules(repository, copy=copied) == (repository / "node_modules",)
    modules = copied / "node_modules"
    assert (modules / "@s" / "a").resolve() == copied / "packages" / "a"
    assert (modules / "b").resolve() == copied / "packages" / "b"
    assert (modules / "fetched").resolve() == repository / "node_modules" / "fetched"
    assert not (modules / ".vite").exists(), "what a tool keeps there of the project is not the copy's"


def test_git_ignores_the_packages_of_a_copy_by_a_pattern_for_folders(repository: Path, copied: Path) -> None:
    for link in ("@s/a", "b"):
        (repository / "node_modules" / link).unlink()
    link_modules(repository, copy=copied)
    assert not (copied / "node_modules").is_symlink()
    assert (copied / "node_modules" / "fetched").resolve() == repository / "node_modules" / "fetched"


def test_a_project_in_the_repository_is_lent_what_lies_above_it_too(repository: Path, copied: Path) -> None:
    own = repository / "packages" / "a" / "node_modules"
    (own / "only").mkdir(parents=True)
    (repository / "packages" / "b" / "node_modules").mkdir()
    found = link_modules(repository / "packages" / "a", copy=copied / "packages" / "a")
    assert set(found) == {own, repository / "node_modules", repository / "packages" / "b" / "node_modules"}
    assert (copied / "packages" / "a" / "node_modules" / "only").is_dir()
    assert (copied / "node_modules" / "b").resolve() == copied / "packages" / "b"


def test_a_package_that_the_copy_has_not_is_the_original_s(repository: Path, copied: Path) -> None:
    (copied / "packages" / "b").rmdir()
    link_modules(repository / "packages" / "a", copy=copied / "packages" / "a")
    assert (copied / "node_modules" / "b").resolve() == repository / "packages" / "b"
    assert (copied / "node_modules" / "@s" / "a").resolve() == copied / "packages" / "a"


def test_a_project_deep_in_the_repository_is_lent_its_own(repository: Path, copied: Path) -> None:
    deep = Path("one/two/three/four/five/six")
    (repository / deep / "node_modules" / "only").mkdir(parents=True)
    (copied / deep).mkdir(parents=True)
    link_modules(repository / deep, copy=copied / deep)
    assert (copied / deep / "node_modules" / "only").is_dir()
    assert (copied / "node_modules").is_dir()


def test_packages_of_a_folder_that_is_no_repository_s_are_not_looked_for_above(tmp_path: Path) -> None:
    project, copied = tmp_path / "work" / "project", tmp_path / "copy"
    for folder in (tmp_path / "work" / "node_modules", project, copied):
        folder.mkdir(parents=True)
    assert link_modules(project, copy=copied) == ()
    assert list(copied.iterdir()) == []
