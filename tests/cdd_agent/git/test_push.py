"""A push as the user's own git makes it."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from cdd_agent.config.trust import Offer
from cdd_agent.errors import GateClosed
from cdd_agent.git.commits import may_run_hooks
from cdd_agent.git.push import Push, find_push
from cdd_agent.git.repository import Repository


def plain(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def remote(repository: Repository, tmp_path: Path) -> Path:
    """The empty repository that is the remote ``origin``."""
    plain(tmp_path, "init", "-q", "--bare", "remote")
    plain(repository.root, "remote", "add", "origin", str(tmp_path / "remote"))
    return tmp_path / "remote"


def require_push(repository: Repository) -> Push:
    push = find_push(Repository(repository.root))
    assert push is not None
    return push


def test_a_push_runs_with_the_hooks_of_the_user_and_is_not_offered_again(repository: Repository, remote: Path) -> None:
    hook = repository.root / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho hooked >&2\n")
    hook.chmod(0o755)
    with pytest.raises(GateClosed, match="hooks of the repository that are not approved"):
        require_push(repository).run(lambda _: None)
    push, lines = require_push(repository), list[str]()
    offers: list[Offer | None] = []

    def allow(offer: Offer | None) -> bool:
        offers.append(offer)
        return True

    push.repository.may_run_hooks = partial(may_run_hooks, push.repository, allows=allow)
    assert push.command == f"git push origin {push.branch}"
    push.run(lines.append)
    assert "hooked" in lines
    assert [offer and (offer.subject, offer.shown[0]) for offer in offers] == [("push hooks", ".git/hooks/pre-push")]
    assert plain(remote, "rev-parse", push.branch) == repository.read_head()
    assert find_push(Repository(repository.root)) is None


def test_no_program_that_the_repository_names_is_run(repository: Repository, remote: Path, tmp_path: Path) -> None:
    for key in ("remote.origin.receivepack", "core.sshCommand", "credential.helper", "core.askPass"):
        plain(repository.root, "config", key, f"touch {tmp_path}/ran; false")
        push = require_push(repository)
        assert push.programs == (key.lower(),)
        with pytest.raises(GateClosed, match=key.lower()) as refused:
            push.run(lambda _: None)
        assert refused.value.hint == f"push yourself: {push.command}"
        plain(repository.root, "config", "--unset", key)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["project", "git's folder", "hooks", "config", "work tree", "gitfile"])
def test_no_program_of_a_repository_on_this_machine_is_run(repository: Repository, tmp_path: Path, where: str) -> None:
    top = {"project": repository.root, "git's folder": repository.root / ".git"}.get(where, tmp_path / "other")
    remote = top / "brought"
    plain(tmp_path, "init", "-q", *(() if where in ("work tree", "gitfile") else ("--bare",)), str(remote))
    git_folder = remote / ".git" if where in ("work tree", "gitfile") else remote
    if where == "config":
        plain(remote, "config", "core.hooksPath", "evil")
    evil = git_folder / ("evil" if where == "config" else "hooks") / "update"
    evil.parent.mkdir(exist_ok=True)
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    if where == "gitfile":
        (remote / ".git").rename(tmp_path / "moved")
        (remote / ".git").write_text(f"gitdir: {tmp_path}/moved\n")
    address = f"file://{remote}" if where == "hooks" else os.path.relpath(remote, repository.root)
    plain(repository.root, "remote", "add", "origin", address)
    with pytest.raises(GateClosed, match="git would run that repository's hooks") as refused:
        require_push(repository).run(lambda _: None)
    assert refused.value.hint.startswith("push yourself: git push origin")
    assert not (tmp_path / "ran").exists()


def test_no_push_is_offered_without_a_remote_or_a_branch(repository: Repository, tmp_path: Path) -> None:
    assert find_push(repository) is None
    plain(repository.root, "config", "remote.--all.url", str(tmp_path))
    assert find_push(Repository(repository.root)) is None
    plain(repository.root, "remote", "add", "origin", str(tmp_path))
    plain(repository.root, "checkout", "-q", "--detach")
    assert find_push(Repository(repository.root)) is None


def test_the_remote_is_the_one_that_git_would_take(repository: Repository, tmp_path: Path) -> None:
    for name in ("backup", "origin", "mine"):
        plain(repository.root, "remote", "add", name, str(tmp_path))
    branch = repository.read_branch()
    assert require_push(repository).remote == "origin"
    plain(repository.root, "config", f"branch.{branch}.remote", "backup")
    assert require_push(repository).remote == "backup"
    plain(repository.root, "config", f"branch.{branch}.pushRemote", "mine")
    assert require_push(repository).remote == "mine"


def test_a_failure_names_its_cause_and_what_to_type(
    repository: Repository, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = require_push(repository)
    push.run(lambda _: None)
    plain(repository.root, "commit", "-q", "--amend", "-m", "other")
    with pytest.raises(GateClosed, match="origin has commits that you do not have") as behind:
        push.run(lambda _: None)
    assert behind.value.hint == f"git pull --rebase origin {push.branch}, then: {push.command}"
    # Nothing listens on this port.
    plain(repository.root, "remote", "set-url", "origin", "http://127.0.0.1:9/x.git")
    with pytest.raises(GateClosed, match="origin cannot be reached"):
        push.run(lambda _: None)
    plain(repository.root, "remote", "set-url", "origin", str(remote / "nowhere"))
    with pytest.raises(GateClosed, match="origin is not there"):
        push.run(lambda _: None)
    plain(repository.root, "remote", "set-url", "origin", str(remote))
    plain(remote, "config", "receive.hideRefs", "refs/heads")
    plain(repository.root, "reset", "-q", "--soft", plain(remote, "rev-parse", push.branch))
    plain(repository.root, "commit", "-q", "--allow-empty", "-m", "more")
    with pytest.raises(GateClosed, match="origin refuses the commits"):
        push.run(lambda _: None)
