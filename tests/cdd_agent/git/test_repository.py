import contextlib
import os
import time
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError, GitTimeout
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words


def test_a_repository_is_found_from_a_folder_inside_it(repository: Repository) -> None:
    assert Repository.find(repository.root / "sub").root == repository.root


def test_a_folder_outside_git_is_an_error_that_offers_git_init(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        Repository.find(tmp_path)
    assert "git init" in caught.value.hint


def test_a_new_repository_has_no_head_but_a_branch(tmp_path: Path) -> None:
    empty = Repository.create(tmp_path)
    assert empty.read_head() is None
    assert empty.read_branch() == "main"


def test_a_detached_head_has_no_branch(repository: Repository) -> None:
    repository.git("checkout", ("--quiet", "--detach"))
    assert repository.read_branch() is None


def test_loose_and_packed_refs_are_listed_without_git(repository: Repository) -> None:
    for name in ("packed/1", "packed/2", "kept"):
        repository.git("update-ref", f"refs/cdd/{name}", "HEAD")
    repository.git("pack-refs", ("--all",))
    repository.git("update-ref", ("-d",), "refs/cdd/packed/2")
    repository.git("update-ref", "refs/cdd/loose/deep/3", "HEAD")
    (repository.location.common_dir / "refs" / "cdd" / "kept.lock").touch()
    names = {"refs/cdd/packed/1", "refs/cdd/kept", "refs/cdd/loose/deep/3"}
    assert repository.list_ref_names("refs/cdd/") == names == repository.list_refs("refs/cdd/").keys()
    assert repository.list_ref_names("refs/cdd/loose/") == {"refs/cdd/loose/deep/3"}
    assert not repository.list_ref_names("refs/other/")


def test_variables_of_the_user_do_not_reach_git(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert repository.read_head() is not None


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE"])
def test_a_variable_that_names_another_repository_is_refused_at_the_start(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str
) -> None:
    place = {"GIT_DIR": repository.location.git_dir, "GIT_WORK_TREE": repository.root}[name]
    monkeypatch.setenv(name, str(place))
    assert Repository.find(repository.root / "sub").root == repository.root
    monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(EnvironmentMissing, match=f"{name} is {tmp_path}, but") as refused:
        Repository.find(repository.root)
    assert "unset GIT_DIR" in refused.value.hint


def test_a_folder_whose_repository_is_named_by_a_variable_only_can_be_connected(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.setenv("GIT_DIR", str(repository.location.git_dir))
    with pytest.raises(EnvironmentMissing, match="cdd ignores GIT_DIR, which you have set") as refused:
        Repository.find(tmp_path / "files")
    assert refused.value.hint.endswith(f"echo gitdir: {repository.location.git_dir} > {tmp_path / 'files'}/.git")


def run_alias(repository: Repository, **alias: str) -> str:
    """Run a command of the shell as a command of git."""
    ((name, command),) = alias.items()
    repository.settings = lambda: ((f"alias.{name}", command),)
    return repository.git(name)


def test_no_key_reaches_git_and_so_no_hook(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary")
    assert "canary" not in run_alias(repository, env="!env")


@soak_after(
    1,
    ("begun", "named"),
    [
        (("merge", "--no-commit", "other"), "a merge"),
        (("cherry-pick", "other"), "a cherry-pick"),
        (("rebase", "other"), "a rebase"),
        (("bisect", "start"), "a bisect"),
    ],
)
def test_what_the_user_has_not_finished_is_named(repository: Repository, *, begun: tuple[str, ...], named: str) -> None:
    assert repository.find_unfinished() is None
    for branch in ("other", "main"):
        repository.git(
            "checkout", ("--quiet", "-B"), branch, repository.git("rev-list", ("--max-parents=0",), "HEAD").strip()
        )
        (repository.root / "a.txt").write_text(f"of {branch}\n")
        commit_paths(repository, branch, paths=["a.txt"])
    with contextlib.suppress(GitError):
        run_words(repository, *begun)
    unfinished = repository.find_unfinished()
    assert unfinished is not None
    assert unfinished[0] == named


def test_conflicts_without_a_merge_are_unfinished_too(repository: Repository) -> None:
    (repository.root / "a.txt").write_text("stashed\n")
    repository.git("stash")
    (repository.root / "a.txt").write_text("committed\n")
    commit_paths(repository, "other", paths=["a.txt"])
    with contextlib.suppress(GitError):
        repository.git("stash", "pop")
    unfinished = repository.find_unfinished()
    assert unfinished is not None
    assert unfinished[0] == "a merge with conflicts"


def test_a_hook_that_never_ends_is_stopped_with_all_it_started(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = repository.root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nsleep 61 &\necho $! > pid\nsleep 60\n")
    hook.chmod(0o755)
    repository.may_run_hooks = lambda: True
    monkeypatch.setattr("cdd_agent.git.runner.HOOKS_TIMEOUT_S", 1.0)
    with pytest.raises(GitTimeout, match=r"git commit (.|\n)*did not end within 1 seconds"):
        repository.git("commit", ("--allow-empty", "-m"), "slow", hooks=True)
    state = Path(f"/proc/{(repository.root / 'pid').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_an_error_of_git(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdd_agent.git.runner.TIMEOUT_S", 0.2)
    with pytest.raises(GitError, match="did not end within"):
        run_alias(repository, slow="!sleep 30")


def test_endless_configuration_is_an_error_soon(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(repository.root / "endless")
    with (repository.root / ".git" / "config").open("a") as file:
        file.write("[include]\n\tpath = ../endless\n")
    monkeypatch.setattr("cdd_agent.git.runner.LOCATE_TIMEOUT_S", 0.2)
    with pytest.raises(GitError, match="did not end within") as caught:
        Repository(repository.root).read_head()
    assert "an included configuration file" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["sleep 62", "sleep 62 >/dev/null 2>&1", "exec setsid sleep 30"])
def test_what_a_hook_leaves_running_neither_holds_a_commit_nor_outlives_it(repository: Repository, rest: str) -> None:
    hook = repository.root / ".git" / "hooks" / "post-commit"
    hook.write_text(f"#!/bin/sh\necho said >&2\n{rest} &\necho $! > pid\n")
    hook.chmod(0o755)
    repository.may_run_hooks = lambda: True
    before, begun = repository.read_head(), time.monotonic()
    repository.git("commit", ("--allow-empty", "-m"), "quick", hooks=True)
    assert time.monotonic() - begun < 25
    assert repository.read_head() != before
    state = Path(f"/proc/{(repository.root / 'pid').read_text().strip()}/stat")
    assert "setsid" in rest or not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.slow
def test_what_git_said_before_something_held_its_pipes_is_told(repository: Repository) -> None:
    said = run_alias(repository, held="!echo said; sleep 62 &")
    assert said == "said\n"


def test_git_starts_no_housekeeping_of_its_own(repository: Repository, tmp_path: Path) -> None:
    """It would go on in the background, in a session of its own."""
    trace = tmp_path / "trace"
    repository.may_run_hooks = lambda: True
    repository.git("config", "gc.auto", "1")
    repository.git("commit", ("--allow-empty", "-m"), "more", hooks=True, variables={"GIT_TRACE": str(trace)})
    assert "git commit" in trace.read_text()
    assert "git gc" not in trace.read_text()
    assert "git maintenance" not in trace.read_text()


@pytest.mark.parametrize(
    ("tracked", "link", "is_brought"),
    [
        ((), None, False),
        ((".venv/bin/python",), None, True),
        ((".venv/lib/site-packages/x.pth",), None, True),
        (("sub/x.py",), None, False),
        (("tools/env/bin/python",), ("tools/env", ".venv"), True),
        (("tools/env/lib/x.pth",), ("tools/env", ".venv"), True),
    ],
)
def test_a_program_is_brought_if_something_of_its_environment_is_tracked(
    tmp_path: Path, tracked: tuple[str, ...], *, link: tuple[str, str] | None, is_brought: bool
) -> None:
    repository = Repository.create(tmp_path)
    folder = tmp_path / (link[0] if link else ".venv")
    for file in (folder / "bin" / "python", folder / "pyvenv.cfg", *(tmp_path / name for name in tracked)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    if link is not None:
        (tmp_path / link[1]).symlink_to(link[0])
    for name in tracked:
        repository.git("add", ("--force",), name)
    assert repository.brings(tmp_path / ".venv" / "bin" / "python") is is_brought


def test_a_tracked_link_and_another_repository_bring_what_they_lead_to(tmp_path: Path) -> None:
    for name in ("project", "project/inner"):
        (tmp_path / name).mkdir()
    repository = Repository.create(tmp_path / "project")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    (repository.root / ".venv").symlink_to("../env")
    assert not repository.brings(repository.root / ".venv" / "bin" / "python")
    repository.git("add", ".venv")
    assert repository.brings(repository.root / ".venv" / "bin" / "python")
    inner = Repository.create(repository.root / "inner").root / "env" / "bin"
    inner.mkdir(parents=True)
    assert repository.brings(inner / "python")
