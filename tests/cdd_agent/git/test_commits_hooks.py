"""The hooks that a commit would run, as the user is shown them."""

import os
import subprocess
from pathlib import Path

import pytest

from cdd_agent.config.trust import Offer
from cdd_agent.git import commits
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository, is_unborn, require_usable
from cdd_agent.git.runner import GitUnable

EVERY_HOOK = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
]
"""Of githooks(5)."""


def plant(path: Path, script: str = "true") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n# what it is for\n\n{script}\n")
    path.chmod(0o755)
    return path


def offered(repository: Repository) -> Offer:
    found = commits.offer_hooks(repository)
    assert found is not None
    return found


@pytest.fixture
def users_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "users.gitconfig"
    path.touch()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(path))
    return path


def test_a_repository_without_hooks_offers_none(repository: Repository) -> None:
    (repository.root / ".git" / "hooks" / "pre-commit.sample").touch(0o755)
    (repository.root / ".git" / "hooks" / "pre-push").touch(0o755)
    (repository.root / ".git" / "hooks" / "commit-msg").touch(0o644)
    assert commits.offer_hooks(repository) is None


def test_a_hook_is_shown_with_what_it_does(repository: Repository) -> None:
    plant(repository.root / ".git" / "hooks" / "pre-commit", "make lint")
    offer = offered(repository)
    assert offer.subject == "hooks"
    assert offer.source == ".git/hooks"
    assert offer.shown == (".git/hooks/pre-commit", "  #!/bin/sh", "  make lint")


def test_a_long_hook_and_a_program_say_how_long_they_are(repository: Repository) -> None:
    plant(repository.root / ".git" / "hooks" / "pre-commit", "\n".join(f"step{number}" for number in range(20)))
    program = plant(repository.root / ".git" / "hooks" / "commit-msg")
    program.write_bytes(b"\x7fELF\0" + bytes(2_000))
    shown = offered(repository).shown
    assert "  step4" in shown
    assert "  step5" not in shown
    assert any("bytes in all" in line for line in shown)
    assert "  a program of 2,005 bytes" in shown


def test_any_change_makes_another_offer(repository: Repository) -> None:
    hook = plant(repository.root / ".git" / "hooks" / "pre-commit")
    digests = {offered(repository).digest}
    hook.write_text(hook.read_text() + "# at the very end\n")
    digests.add(offered(repository).digest)
    hook.rename(hook.with_name("commit-msg"))
    digests.add(offered(repository).digest)
    plant(hook)
    digests.add(offered(repository).digest)
    (repository.root / ".pre-commit-config.yaml").write_text("repos: []\n")
    digests.add(offered(repository).digest)
    (repository.root / ".pre-commit-config.yaml").write_text("repos: [evil]\n")
    digests.add(offered(repository).digest)
    plant(repository.root / ".husky" / "pre-commit")
    digests.add(offered(repository).digest)
    plant(repository.root / ".husky" / "_" / "h")
    digests.add(offered(repository).digest)
    (repository.root / "lefthook-local.yml").write_text("pre-commit: evil\n")
    digests.add(offered(repository).digest)
    assert len(digests) == 9
    told = "configured by .pre-commit-config.yaml, lefthook-local.yml, .husky/pre-commit, .husky/_/h"
    assert told in offered(repository).shown


def test_all_beside_hooks_of_the_work_tree_is_part_of_the_offer(repository: Repository) -> None:
    repository.git("config", "core.hooksPath", "ci/hooks")
    plant(repository.root / "ci" / "hooks" / "pre-commit")
    before = offered(repository).digest
    plant(repository.root / "ci" / "hooks" / "lib" / "common.sh")
    assert offered(repository).digest != before


def test_a_hook_behind_a_link_counts_with_what_it_leads_to(repository: Repository) -> None:
    script = plant(repository.root / "scripts" / "check.sh")
    (repository.root / ".git" / "hooks" / "pre-commit").symlink_to("../../scripts/check.sh")
    before = offered(repository).digest
    script.write_text("#!/bin/sh\nevil\n")
    assert offered(repository).digest != before


@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_hooks_in_the_work_tree_are_the_repository_s_whoever_names_them(
    repository: Repository, users_configuration: Path, *, scope: str
) -> None:
    plant(repository.root / ".githooks" / "pre-commit")
    where = (("--file",), str(users_configuration)) if scope == "--global" else (("--local",),)
    repository.git("config", *where, "core.hooksPath", ".githooks")
    assert offered(repository).source == ".githooks"


def test_hooks_that_the_user_keeps_for_all_repositories_need_no_approval(
    repository: Repository, users_configuration: Path, *, tmp_path: Path
) -> None:
    plant(tmp_path / "mine" / "pre-commit")
    repository.git("config", ("--file",), str(users_configuration), "core.hooksPath", str(tmp_path / "mine"))
    assert commits.offer_hooks(repository) is None


def test_hooks_elsewhere_that_the_repository_names_do(repository: Repository, tmp_path: Path) -> None:
    plant(tmp_path / "shared" / "pre-commit")
    repository.git("config", "core.hooksPath", str(tmp_path / "shared"))
    assert offered(repository).source == str(tmp_path / "shared")


def test_hooks_that_stand_in_the_configuration_are_shown_too(repository: Repository) -> None:
    repository.git("config", "hook.lint.command", "touch mark")
    repository.git("config", "hook.lint.event", "pre-commit")
    offer = offered(repository)
    assert offer.source == "git's configuration"
    assert "hook.lint.command = touch mark" in offer.shown


def test_what_a_commit_runs_is_what_is_shown(repository: Repository, tmp_path: Path) -> None:
    for name in EVERY_HOOK:
        plant(repository.root / ".git" / "hooks" / name, f"touch '{tmp_path}/ran-{name}'")
    (repository.root / "a.txt").write_text("changed\n")
    subprocess.run(["git", "commit", "-qam", "by hand"], cwd=repository.root, check=True)
    (repository.root / "a.txt").write_text("changed again\n")
    repository.may_run_hooks = lambda: True
    commit_paths(repository, "by the program", paths=["a.txt"])
    ran = {path.name.removeprefix("ran-") for path in tmp_path.glob("ran-*")}
    assert "pre-commit" in ran
    assert ran <= set(commits.COMMIT_HOOKS)


def test_no_hook_runs_unless_it_may(repository: Repository, tmp_path: Path) -> None:
    for name in EVERY_HOOK:
        plant(repository.root / ".git" / "hooks" / name, f"touch '{tmp_path}/ran-{name}'")
    (repository.root / "a.txt").write_text("changed\n")
    assert commits.offer_hooks(repository) is not None
    commit_paths(repository, "change", paths=["a.txt"])
    assert list(tmp_path.glob("ran-*")) == []


def test_a_pipe_where_hooks_or_their_runners_are_read_is_waited_for_by_nobody(repository: Repository) -> None:
    plant(repository.root / ".git" / "hooks" / "commit-msg")
    (repository.root / ".husky").mkdir()
    for name in (".git/hooks/pre-commit", ".husky/pre-commit", ".pre-commit-config.yaml"):
        os.mkfifo(repository.root / name, 0o755)
    assert offered(repository).shown[0] == ".git/hooks/commit-msg"


def test_a_hook_that_is_too_large_to_be_read_is_an_error(repository: Repository) -> None:
    hook = plant(repository.root / ".git" / "hooks" / "pre-commit")
    os.truncate(hook, 200_000_001)
    with pytest.raises(GitUnable, match="for approval: It has more than"):
        commits.offer_hooks(repository)


@pytest.mark.parametrize("name", ["HEAD", "packed-refs", "objects/info/alternates"])
def test_a_pipe_in_the_place_of_a_file_of_gits_is_waited_for_by_nobody(repository: Repository, name: str) -> None:
    place, path = repository.location, repository.root / ".git" / name
    if name == "packed-refs":
        (place.git_dir / "refs" / "heads" / "main").unlink()
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert not is_unborn(place)
    require_usable(place)


def test_files_that_hooks_and_the_configuration_name_are_known(
    repository: Repository, users_configuration: Path
) -> None:
    users_configuration.write_text(
        '[alias]\n\tship = "!sh tools/ship.sh"\n[branch "main"]\n\tmerge = refs/heads/notes.py\n'
    )
    plant(repository.root / ".git" / "hooks" / "post-merge", '"$(git rev-parse --show-toplevel)"/tools/check.sh')
    plant(repository.root / ".git" / "hooks" / "pre-push", "python -m tools.lint src")
    plant(repository.root / ".git" / "hooks" / "pre-commit.sample", "tools/sample.sh")
    (repository.root / ".pre-commit-config.yaml").write_text("entry: python tools/all.py\nfiles: src/cart.py\n")
    found = commits.list_programs_of_git(repository)
    for path in ("tools/ship.sh", "tools/check.sh", "tools/lint.py", "tools/all.py"):
        assert found.names(path), path
    for path in ("tools/sample.sh", "tools/check.sh.txt", "tools/check", "src/cart.py", "notes.py", "src/a.py", "t.sh"):
        assert not found.names(path), path


@pytest.mark.parametrize("is_absolute", [False, True])
def test_all_files_in_the_folder_of_hooks_are_known(
    repository: Repository, users_configuration: Path, *, is_absolute: bool
) -> None:
    folder = f"{repository.root}/githooks" if is_absolute else "githooks"
    users_configuration.write_text(f"[core]\n\thooksPath = {folder}\n")
    plant(repository.root / "githooks" / "pre-commit", "make lint")
    found = commits.list_programs_of_git(repository)
    for path in ("githooks/post-checkout", "githooks/lib/more.sh", "GitHooks/pre-push"):
        assert found.names(path), path
    assert not found.names("src/githooks/a.py")
