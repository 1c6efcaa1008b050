"""Packages that are installed in a project, and where a copy of it finds them."""

from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.environment import JAVASCRIPT, forget_own_crates, link_modules


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


def test_a_link_called_node_modules_lets_no_other_folder_in(tmp_path: Path) -> None:
    home, installed = tmp_path / "home", tmp_path / "opt" / "node_modules"
    (home / "mail").mkdir(parents=True)
    (installed / "chai").mkdir(parents=True)
    (project := tmp_path / "project").mkdir()
    for target, is_read in ((home, False), (installed, True)):
        (project / "node_modules").symlink_to(target)
        tools = JAVASCRIPT.find(project, cache=tmp_path / "cache")
        assert (target in tools.reads, target / ".cache" in tools.writes) == (is_read, is_read)
        (copy := tmp_path / f"copy-{is_read}").mkdir()
        assert link_modules(project, copy=copy) == ((target,) if is_read else ())
        (project / "node_modules").unlink()


def test_no_build_result_behind_a_link_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "Cargo.toml").write_text('[package]\nname = "own"\n')
    cache, users = tmp_path / "cache", tmp_path / "users" / ".fingerprint" / "own-1"
    known = cache / "debug" / ".fingerprint" / "own-1"
    for folder in (users, known):
        folder.mkdir(parents=True)
    (cache / "link").symlink_to(tmp_path / "users")
    forget_own_crates(cache, tmp_path / "project")
    assert (users.exists(), known.exists()) == (True, False)
