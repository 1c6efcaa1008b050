"""Published weaknesses of programs that call git, and the faults of its repositories, each tried against this one."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import cache, partial
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.git.commits import commit_paths, find_by_trailer, list_warnings, refresh_index, require_identity
from cdd_agent.git.notes import REF_NAME, append_line, read_note
from cdd_agent.git.repository import CommitId, Repository, require_usable, resolve_revision
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from pytest_tdd_agent.fingerprint import compute_digests
from tests.cdd_agent.git.hostile.repository import COMMANDS, CONFIGURED, HOOKS, Hostile, plain, plant, run_plain
from tests.fakes.cases import soak_after
from tests.fakes.command_line import run_words
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, item, writes
from tests.fakes.sources import PACKAGE, modules, nodes_of, nodes_with, text_of

REFUSED = {"fetch": "not allowed", "merge": "merge", "merge-tree": "merge", "index-pack": "early EOF"}
"""Command -> what git says: it cannot be carried out without what it is not allowed to run, or without its input."""


@pytest.fixture
def hostile(tmp_path: Path) -> Hostile:
    return plant(tmp_path)


def made(folder: Path) -> Repository:
    """A repository with one commit of ``a.txt``."""
    folder.mkdir(parents=True, exist_ok=True)
    repository = Repository.create(folder)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    (folder / "a.txt").write_text("one\n")
    commit_paths(repository, "first", paths=["a.txt"])
    return repository


def head_of(repository: Repository) -> CommitId:
    head = repository.read_head()
    assert head is not None
    return head


# A program that only reads git's state runs what the repository's configuration names.


PATTERNS = {"GIT_LITERAL_PATHSPECS": "0"}
"""It knows no other paths."""


@pytest.mark.slow
def test_no_command_runs_what_a_repository_brings_along(
    hostile: Hostile, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "control").mkdir()
    control = plant(tmp_path / "control")
    by_plain_git, by_us = {}, {}
    repository = Repository(hostile.root)
    for command in COMMANDS:
        control.ready()
        run_plain(control.root, command)
        by_plain_git[command] = control.marks
        hostile.ready()
        said = REFUSED.get(command[0])
        refused = nullcontext() if said is None else pytest.raises(GitError, match=rf"not allowed|{said}")
        with refused:
            run_words(repository, *command, variables=PATTERNS if command[0] == "check-ignore" else {})
        by_us[command] = hostile.marks
    assert {command: marks for command, marks in by_us.items() if marks} == {}
    ran = {command for command, marks in by_plain_git.items() if marks}
    what = set[str]().union(*by_plain_git.values())
    record_property("marks", f"{len(ran)} of {len(COMMANDS)} commands under plain git, 0 under ours")
    assert len(COMMANDS) >= 28
    assert len(ran) >= 20, "the control has to show that what is planted can be run"
    assert {
        "core.fsmonitor",
        "diff.external",
        "filter.single.clean",
        "filter.lasting.process",
        "filter.a=b.clean",
    } <= what
    assert {"diff.shown.textconv", "diff.driven.command", "merge.driven.driver", "gpg.program", "protocol.ext"} <= what
    assert {"filter.included.clean", "filter.of-the-work-tree", "fsmonitor.of-the-submodule"} <= what
    assert {"hook.reference-transaction", "hook.post-index-change"} <= what


@cache
def verbs() -> dict[str, str]:
    """Return each git command that the program calls, the first word of what ``.git(...)`` gets, and a module of it."""
    found: dict[str, str] = {}
    for module in modules():
        if ".git(" in text_of(module) or "Call(" in text_of(module):
            found |= dict.fromkeys(_verbs_in(nodes_of(module)), str(module))
    return found


def _verbs_in(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    for node in nodes:
        verb: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "git":
            verb = node.args[:1]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Call":
            verb = [keyword.value for keyword in node.keywords if keyword.arg == "verb"]
        yield from (each.value for each in verb if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_every_command_of_the_program_is_among_those_that_were_tried() -> None:
    used = verbs()
    assert {"commit", "checkout-index", "update-index", "status", "config"} <= set(used)
    tried = {command[0] for command in COMMANDS}
    assert set(used) - tried == {"init"}, "a new repository brings nothing along; all else has to be tried"


def test_git_is_called_in_one_place_only() -> None:
    """By name in an argument list, or through a shell."""
    found = set()
    for module, node in nodes_with('"git"', "'git'", "shell", "system", "popen"):
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1:
            words = [each.value if isinstance(each, ast.Constant) else each for each in node.elts[:2]]
            is_command = isinstance(node, ast.List) or isinstance(words[1], str)
            if words[0] == "git" and is_command:
                found.add(module.relative_to(PACKAGE).as_posix())
        if isinstance(node, ast.keyword) and node.arg == "shell":
            found.add(f"{module}: shell=")
        if isinstance(node, ast.Attribute) and node.attr in {"system", "popen"} and ast.unparse(node.value) == "os":
            found.add(f"{module}: os.{node.attr}")
    assert found == {"git/hardening.py"}


def test_what_the_program_does_to_a_repository_runs_nothing(hostile: Hostile) -> None:
    run_plain(hostile.root, ["config", "commit.gpgSign", "false"])
    repository = Repository(hostile.root)
    snapshots = TreeStore(repository)
    hostile.ready()

    require_usable(repository.location)
    require_identity(repository)
    assert any("'single'" in remark for remark in list_warnings(repository))
    assert repository.find_unfinished() is None
    assert repository.list_nested()
    repository.list_uncommitted()
    repository.list_ignored()
    snapshots.freeze_ignored("refs/cdd/ignored")
    kept = snapshots.take("refs/cdd/kept", message="kept")
    hostile.root.joinpath("a.single").write_text("other\n")
    assert [change.path for change in snapshots.restore(kept)] == ["a.single"]
    assert hostile.root.joinpath("a.single").read_text() == "x\nx\n"
    commit = commit_paths(repository, "ours\n\nHandoff-Id: 1\n", paths=["g.txt"])
    assert find_by_trailer(repository, "Handoff-Id", value="1", since=None) == commit
    append_line(repository, commit, line="{}")
    assert read_note(repository, commit).lines == ("{}",)
    refresh_index(repository, ["g.txt"])
    snapshots.forget("refs/cdd/*")
    assert hostile.marks == set()


def test_the_plugin_asks_what_is_ignored_and_runs_nothing(hostile: Hostile) -> None:
    hostile.ready()
    (hostile.root / "test_it.py").write_text("def test_it():\n    pass\n")
    assert "test_it.py" in compute_digests(hostile.root)
    assert hostile.marks == set()


@pytest.mark.slow
def test_a_configuration_that_changes_while_the_program_runs_is_read_again(hostile: Hostile) -> None:
    repository = made(hostile.root.parent / "later")
    assert repository.list_uncommitted() == ()
    plain(repository.root, "config", "filter.late.clean", f"touch {hostile.root}/marks/late; cat")
    (repository.root / ".gitattributes").write_text("* filter=late\n")
    (repository.root / "a.txt").write_text("two\n")
    hostile.ready()
    assert set(repository.list_uncommitted()) == {".gitattributes", "a.txt"}
    assert hostile.marks == set()
    run_plain(repository.root, ["status"])
    assert hostile.marks == {"late"}


@pytest.mark.slow
def test_an_included_file_that_appears_later_is_read_too(hostile: Hostile) -> None:
    repository = made(hostile.root.parent / "later")
    included = repository.root / ".git" / "later"
    plain(repository.root, "config", "include.path", str(included))
    plain(repository.root, "config", "includeIf.onbranch:main.path", str(included))
    assert repository.list_uncommitted() == ()
    included.write_text(f'[filter "late"]\n\tclean = touch {hostile.root}/marks/late; cat\n')
    (repository.root / ".gitattributes").write_text("* filter=late\n")
    (repository.root / "a.txt").write_text("two\n")
    hostile.ready()
    assert "a.txt" in repository.list_uncommitted()
    assert hostile.marks == set()


@pytest.mark.slow
def test_another_repository_in_the_place_of_the_first_is_never_asked(hostile: Hostile, tmp_path: Path) -> None:
    repository = made(tmp_path / "main")
    linked = tmp_path / "linked"
    plain(repository.root, "worktree", "add", "--quiet", "--detach", str(linked))
    work = Repository.find(linked)
    work.may_run_hooks = lambda: True
    (linked / ".git").write_text(f"gitdir: {hostile.root}/.git\n")
    hostile.ready()
    assert work.git("rev-parse", ("--git-dir",)).strip() == str(repository.root / ".git" / "worktrees" / "linked")
    (linked / "a.txt").write_text("two\n")
    assert work.list_uncommitted() == ("a.txt",)
    with pytest.raises(GitUnable, match="names another repository") as caught:
        commit_paths(work, "taken", paths=["a.txt"])
    assert "ls -ld" in caught.value.hint
    assert hostile.marks == set()


@pytest.mark.slow
def test_another_work_tree_that_the_configuration_names_later_is_never_touched(
    hostile: Hostile, tmp_path: Path
) -> None:
    repository = Repository.find(made(tmp_path / "project").root)
    repository.may_run_hooks = lambda: True
    plain(repository.root, "config", "core.worktree", str(hostile.root))
    (repository.root / "a.txt").write_text("two\n")
    kept = TreeStore(repository).take("refs/cdd/kept", message="kept")
    assert set(plain(repository.root, "ls-tree", "--name-only", kept.commit).stdout.split()) == {b"a.txt"}
    with pytest.raises(GitUnable, match="names another repository"):
        commit_paths(repository, "taken", paths=["a.txt"])


def test_hooks_in_the_work_tree_run_only_for_a_commit_and_only_if_they_may(hostile: Hostile) -> None:
    for key in ("commit.gpgSign", "log.showSignature"):
        run_plain(hostile.root, ["config", key, "false"])
    repository = Repository(hostile.root)
    hostile.ready()
    commit_paths(repository, "ours", paths=["g.txt"])
    assert hostile.marks == set()
    repository.may_run_hooks = lambda: True
    hostile.ready()
    commit_paths(repository, "ours again", paths=["g.txt"])
    commits = {f"hook.{name}" for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit")}
    assert commits <= hostile.marks <= {f"hook.{name}" for name in HOOKS}, "hooks run, and nothing of the configuration"
    hostile.ready()
    repository.list_uncommitted()
    TreeStore(repository).take("refs/cdd/kept", message="kept")
    assert hostile.marks == set()


def test_every_program_of_the_configuration_is_put_aside_whatever_it_is_called(hostile: Hostile) -> None:
    """Also what no command of today would run: the value in force is none of the repository's."""
    repository = Repository(hostile.root)
    left = {}
    for key in CONFIGURED:
        value = repository.git("config", ("--get",), key).strip()
        if "/programs/" in value:
            left[key] = value
    assert left == {}


@pytest.mark.slow
def test_what_the_user_configured_for_all_repositories_stays(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    own.write_text('[filter "single"]\n\tclean = sed s/^/own:/\n[credential]\n\thelper = first\n\thelper = second\n')
    repository = Repository(hostile.root)
    hostile.ready()
    assert repository.git("config", ("--get",), "filter.single.clean").strip() == "sed s/^/own:/"
    assert repository.git("config", ("--get-all",), "credential.helper").split()[-2:] == ["first", "second"]
    (hostile.root / "a.single").write_text("text\n")
    blob = repository.git("hash-object", ("-w",), "a.single").strip()
    assert repository.git("cat-file", "blob", blob) == "own:text\n"
    assert hostile.marks == set()


def test_a_file_is_not_committed_without_the_filter_that_only_the_repository_names(hostile: Hostile) -> None:
    repository = Repository(hostile.root)
    hostile.ready()
    before = repository.read_head()
    with pytest.raises(GitUnable, match=r"a\.single needs the filter 'single'") as caught:
        commit_paths(repository, "ours", paths=["a.single"])
    assert "git config --global filter.single.clean" in caught.value.hint
    assert repository.read_head() == before
    assert hostile.marks == set()


def test_a_git_that_ignores_our_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one takes no settings from variables, and would run what is planted."""
    repository = made(tmp_path / "project")
    old = tmp_path / "bin" / "git"
    old.parent.mkdir()
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    old.write_text(f'#!/bin/sh\nunset GIT_CONFIG_COUNT\nexec {real} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    with pytest.raises(EnvironmentMissing, match="too old"):
        Repository(repository.root).list_uncommitted()


@pytest.mark.slow
def test_a_clean_copy_of_a_hostile_repository_runs_nothing(hostile: Hostile, interpreter: Interpreter) -> None:
    repository = Repository(hostile.root)
    hostile.ready()
    kept = TreeStore(repository).take("refs/cdd/kept", message="kept")
    suite = PytestSuite(root=hostile.root, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=None)
    with clean_copy(repository, suite, green=kept.commit, red=kept.commit) as copied:
        assert (copied.root / "a.single").read_text() == (hostile.root / "a.single").read_text()
        assert Repository.find(copied.root).list_uncommitted() == ()
    assert hostile.marks == set()


# A name that begins with a dash, or holds what a shell would run, is passed on to git.

ODD_BRANCHES = ("-x", "--help", "x$(touch${IFS}p)", "x;touch-p", "`touch-p`", "a'b\"c", "ü-ñ", "HEAD-x")


@soak_after(1, "name", ["--output=p", "-x", "--all", "-", "main;x", "a..b", "@{-1}", "", "x y", "p:a.txt"])
def test_a_name_that_git_could_take_for_anything_else_is_refused(tmp_path: Path, *, name: str) -> None:
    repository = made(tmp_path / "project")
    head = head_of(repository)
    before = sorted(path.name for path in repository.root.iterdir())
    for use in (
        lambda: resolve_revision(repository, name),
        lambda: repository.list_changes(name, head),
        lambda: repository.list_changes(head, name),
        lambda: find_by_trailer(repository, "Handoff-Id", value="1", since=CommitId(name)),
        lambda: append_line(repository, CommitId(name), line="{}"),
    ):
        with pytest.raises(UsageError, match="does not name a commit"):
            use()
    assert sorted(path.name for path in repository.root.iterdir()) == before
    assert repository.read_head() == head


def test_a_name_that_is_a_commit_is_passed_on_as_its_id(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    head = head_of(repository)
    for name in ("main", "HEAD", "refs/heads/main", head):
        assert resolve_revision(repository, name) == head


@soak_after(1, "name", ODD_BRANCHES)
def test_a_branch_of_any_name_is_worked_on_and_never_run(
    tmp_path: Path, *, name: str, interpreter: Interpreter
) -> None:
    repository = made(tmp_path / "project")
    head, branch = head_of(repository), f"refs/heads/{name}"
    plain(repository.root, "update-ref", branch, head)
    plain(repository.root, "symbolic-ref", "HEAD", branch)
    assert repository.read_branch() == name
    snapshots = TreeStore(repository)
    kept = snapshots.take("refs/cdd/kept", message=name)
    (repository.root / "a.txt").write_text("two\n")
    commit = commit_paths(repository, f"{name}\n\nHandoff-Id: 1\n", paths=["a.txt"])
    assert find_by_trailer(repository, "Handoff-Id", value="1", since=head) == commit
    assert plain(repository.root, "rev-parse", branch).stdout.decode().strip() == commit
    plain(repository.root, "reset", "--quiet", "--soft", head)
    snapshots.restore(kept)
    suite = PytestSuite(
        root=repository.root, interpreter=interpreter, sandbox=PlainSandbox(), timeout_s=60, bytecode=None
    )
    with clean_copy(repository, suite, green=kept.commit, red=kept.commit) as copied:
        assert (copied.root / "a.txt").read_text() == "one\n"
    assert {path.name for path in repository.root.iterdir()} == {".git", "a.txt"}


@soak_after(2, "ref", ["refs/heads/main", "HEAD", "--stdin", "-d", "refs/tags/v1", "refs/notes/n"])
def test_a_snapshot_is_never_kept_in_the_place_of_a_branch(tmp_path: Path, *, ref: str) -> None:
    """The state file names the checkpoints, and it may be somebody else's."""
    repository = made(tmp_path / "project")
    head, snapshots = head_of(repository), TreeStore(repository)
    for use in (partial(snapshots.take, message="x"), snapshots.find, snapshots.forget):
        with pytest.raises(UsageError, match="is not a snapshot"):
            use(ref)
    assert repository.read_head() == head


@soak_after(2, "path", ["../outside.txt", "link/outside.txt", "*", ":(top)*", ".git/config", "/etc/hostname"])
def test_a_path_is_never_a_pattern_and_never_outside(tmp_path: Path, *, path: str) -> None:
    repository = made(tmp_path / "project")
    head = head_of(repository)
    (tmp_path / "outside.txt").write_text("not the project's\n")
    (repository.root / "link").symlink_to(tmp_path)
    (repository.root / "a.txt").write_text("the user's own, not to be committed\n")
    with suppress(GitError):
        commit_paths(repository, "taken", paths=[path])
    assert repository.read_head() == head
    assert set(repository.list_uncommitted()) == {"a.txt", "link"}


def test_a_new_repository_is_only_made_where_there_is_none(tmp_path: Path) -> None:
    """And only for demonstrations and generations: no tool of the model's makes one."""
    repository = made(tmp_path / "project")
    with pytest.raises(UsageError, match="is already a git repository"):
        Repository.create(repository.root)
    makers = {module.relative_to(PACKAGE).as_posix() for module in modules() if "Repository.create(" in text_of(module)}
    assert makers == {"cli/demo.py", "runs/output_folder.py"}


# The user's uncommitted work is overwritten, put aside or deleted.

ALLOWED = frozenset(
    {
        *("cat-file", "check-attr", "check-ignore", "check-ref-format", "config", "diff-files", "diff-tree"),
        *("for-each-ref", "grep", "log"),
        *("ls-files", "ls-tree", "merge-base", "patch-id", "remote", "rev-list", "rev-parse", "show", "status"),
        *("var", "version"),
        *("checkout-index", "commit", "commit-tree", "hash-object", "init", "notes", "read-tree", "reset"),
        *("index-pack", "merge-file", "merge-tree", "pack-objects"),  # write objects and files of ours
        *("symbolic-ref", "update-index", "update-ref", "write-tree"),
    }
)
"""What reads, then what writes: no ``checkout``, ``stash`` or ``branch``, and these only in trees of ours:"""
_IN_RUN_TREES = frozenset({"clean", "worktree"})
"""In ``git/run_tree.py`` only, where nothing is the user's."""
_IN_FORKS = frozenset({"add", "merge", "restore"})
"""In ``git/fork.py`` only, and there in the work tree of a fork."""


def calls_of_git() -> Iterator[tuple[str, ast.Call]]:
    for module, node in nodes_with(".git("):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "git":
            yield module.relative_to(PACKAGE).as_posix(), node


def test_no_call_of_git_can_overwrite_put_aside_or_delete_the_users_work() -> None:
    assert set(verbs()) <= ALLOWED | _IN_RUN_TREES | _IN_FORKS
    unresolved = [f"{where}: {ast.unparse(node)}" for where, node in calls_of_git() if not _begins_with_a_word(node)]
    assert unresolved == [], "each command has to be readable from the code"
    for where, node in calls_of_git():
        words = [
            each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        in_run_tree = where == "git/run_tree.py" or words[:2] == ["worktree", "list"]
        assert in_run_tree or words[:1] not in (["clean"], ["worktree"]), where
        in_fork = where == "git/fork.py" and not ast.unparse(node).startswith("self.repository")
        assert in_fork or not set(words[:1]) & _IN_FORKS, where
        dangerous = {"--hard", "--merge", "--keep", "-u", "--reset", "-D", "--delete"} & set(words)
        # A worker of a cluster fills the repository that it has just made in a temporary folder.
        in_new_folder = where == "runs/parcels.py" and words[:1] == ["read-tree"]
        assert where == "git/run_tree.py" or in_new_folder or not dangerous, where
        match words[:1]:
            case ["remote"]:
                assert words[1:2] == ["get-url"], where
            case ["reset"]:
                assert "--pathspec-from-file=-" in words, f"{where}: the index of named paths, never the files"
            case ["checkout-index"]:
                assert "--stdin" in words or any(word.startswith("--prefix=") for word in words), where


def _begins_with_a_word(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def test_whole_folders_are_deleted_only_where_the_program_made_them() -> None:
    """No work tree, with content or without, is ever removed."""
    found = {module.relative_to(PACKAGE).as_posix() for module in modules() if "rmtree" in text_of(module)}
    # Run trees, exports, prepared files, records of dropped forks and of undone moves, and caches of test runs and of
    # earlier versions.
    own = {"git/fork.py", "git/run_tree.py", "git/landing.py", "runs/back.py", "testrun/store.py", "work/records.py"}
    temporary = {*("storage.py", "testrun/pytest_run.py", "testrun/plain_run.py", "testrun/frameworks/environment.py")}
    assert found == temporary | own


def test_a_work_tree_inside_the_project_stays_with_all_that_is_in_it(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    snapshots = TreeStore(repository)
    kept = snapshots.take("refs/cdd/kept", message="kept")
    for name in ("linked", "locked"):
        plain(repository.root, "worktree", "add", "--quiet", "-b", name, name)
        (repository.root / name / "untracked.txt").write_text("work\n")
        (repository.root / name / "a.txt").write_text("changed\n")
    plain(repository.root, "worktree", "lock", "locked")
    plain(repository.root / "linked", "add", "a.txt")
    before = everything(repository.root)
    snapshots.restore(kept)
    snapshots.forget("refs/cdd/*")
    assert everything(repository.root) == before
    assert plain(repository.root, "worktree", "list").stdout.count(b"\n") == 3


def everything(root: Path) -> dict[str, bytes]:
    """Each file of the work tree with its bytes and permission bits; what git and the program keep is left out."""
    return {
        path.relative_to(root).as_posix(): oct(path.lstat().st_mode).encode()
        + (os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes())
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or path.is_file()) and not {".git", ".cdd", "__pycache__"} & set(path.parts)
    }


def history(root: Path) -> dict[str, bytes]:
    """What the user has in the history: each ref but ours, stash, reflog, HEAD, and the index byte for byte."""
    refs = plain(root, "for-each-ref").stdout.split(b"\n")
    git = root / ".git"
    return {
        "refs": b"\n".join(line for line in refs if b"refs/cdd/" not in line and b"refs/notes/" not in line),
        "stash": plain(root, "stash", "list").stdout,
        "HEAD": (git / "HEAD").read_bytes(),
        "reflog": (git / "logs" / "HEAD").read_bytes(),
        "index": (git / "index").read_bytes(),
    }


def made_dirty(root: Path) -> None:
    """Staged, unstaged, both, deleted, renamed, untracked, ignored, a link, an odd mode, and a stash."""
    (root / "a.txt").write_text("stashed\n")
    plain(root, "stash")
    for name in ("staged.txt", "both.txt", "gone.txt", "mode.sh", "moved.txt"):
        (root / name).write_text(f"{name}\n")
    plain(root, "add", ".")
    plain(root, "commit", "--quiet", "-m", "more")
    (root / "staged.txt").write_text("staged\n")
    (root / "both.txt").write_text("staged\n")
    plain(root, "add", "staged.txt", "both.txt")
    (root / "both.txt").write_text("and changed\r\n")
    (root / "a.txt").write_text("unstaged\n")
    (root / "gone.txt").unlink()
    plain(root, "mv", "moved.txt", "new place.txt")
    (root / "mode.sh").chmod(0o755)
    (root / "untracked.bin").write_bytes(bytes(range(256)))
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("*.log\n")
    (root / "ignored.log").write_text("ignored\n")
    (root / "link").symlink_to("nowhere")


def test_snapshots_leave_a_dirty_work_tree_as_it_is_bit_for_bit(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    root = repository.root
    made_dirty(root)
    files, past, status = everything(root), history(root), plain(root, "--no-optional-locks", "status", "--porcelain")
    snapshots = TreeStore(repository)
    snapshots.freeze_ignored("refs/cdd/ignored")
    kept = snapshots.take("refs/cdd/kept", message="kept")
    assert snapshots.list_changes_since(kept) == ()
    for name in ("a.txt", "both.txt", "untracked.bin"):
        (root / name).write_text("ruined\n")
    (root / "link").unlink()
    (root / "made.txt").write_text("made\n")
    snapshots.restore(kept)
    repository.list_uncommitted()
    repository.list_ignored()
    repository.list_nested()
    assert everything(root) == files
    assert history(root) == past
    assert plain(root, "--no-optional-locks", "status", "--porcelain").stdout == status.stdout


def test_a_commit_leaves_what_else_is_staged_and_changed_as_it_is(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    root = repository.root
    made_dirty(root)
    (root / "ours.py").write_text("ours = 1\n")
    files = everything(root)
    before = plain(root, "ls-files", "--stage").stdout.splitlines()
    stash = history(root)["stash"]
    base = head_of(repository)
    commit = commit_paths(repository, "feat: ours", paths=["ours.py"])
    assert [change.path for change in repository.list_changes(base, commit)] == ["ours.py"]
    after = plain(root, "ls-files", "--stage").stdout.splitlines()
    assert [line for line in after if not line.endswith(b"ours.py")] == before
    assert everything(root) == files
    assert history(root)["stash"] == stash


@soak_after(1, "lands", [True, False], ids=["that-lands", "that-fails"])
def test_a_step_leaves_the_users_uncommitted_work_as_it_is(project: Project, *, lands: bool) -> None:
    root = project.folder
    (root / "a.txt").write_text("a\n")
    plain(root, "add", "a.txt")
    plain(root, "commit", "--quiet", "-m", "a")
    made_dirty(root)
    files, past = everything(root), history(root)
    staged = plain(root, "ls-files", "--stage").stdout.splitlines()
    turns = [writes("README.md", "# Prices\n")] if lands else [writes("tests/test_prices.py", "def test_no(): 1 / 0\n")]
    _, why = project.run(
        item("docs", tests=()), context=project.context(ScriptedModel(turns), max_attempts=1), state=project.start()
    )
    assert (why is None) is lands
    after = everything(root)
    assert ("README.md" in after) is lands
    after.pop("README.md", None)
    assert after == files
    now = plain(root, "ls-files", "--stage").stdout.splitlines()
    assert [line for line in now if not line.endswith(b"README.md")] == staged
    assert history(root)["stash"] == past["stash"]
    if not lands:
        assert history(root) == past


# Two processes write notes at once: git itself loses some and says nothing.

WRITER = """
import sys
from pathlib import Path
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository
repository = Repository(Path(sys.argv[1]))
for commit in sys.argv[2:]:
    append_line(repository, CommitId(commit), line=f'{{"on": "{commit}"}}')
"""


@pytest.mark.slow
def test_no_note_is_lost_when_two_processes_write_to_one_ref(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    stream = "".join(f"commit refs/heads/many\ncommitter A <a@b> {number} +0000\ndata 1\nx\n" for number in range(80))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository.root, input=stream, text=True, check=True)
    commits = repository.git("rev-list", "refs/heads/many").split()
    assert len(commits) == 80
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(repository.root), *share], stderr=subprocess.PIPE, text=True
        )
        for share in (commits[0::2], commits[1::2])
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=240)
        assert writer.returncode == 0, errors
    kept = {commit for commit in commits if read_note(repository, CommitId(commit)).lines == (f'{{"on": "{commit}"}}',)}
    assert len(kept) == 80


def test_a_note_that_cannot_be_read_is_not_written_over(tmp_path: Path) -> None:
    repository = made(tmp_path / "project")
    head = head_of(repository)
    append_line(repository, head, line='{"seq": 1}')
    blob = plain(repository.root, "notes", f"--ref={REF_NAME}", "list", head).stdout.decode().split()[0]
    held = repository.location.common_dir / "objects" / blob[:2] / blob[2:]
    held.rename(tmp_path / "put aside")
    with pytest.raises(GitError):
        append_line(repository, head, line='{"seq": 2}')
    (tmp_path / "put aside").rename(held)
    assert read_note(repository, head).lines == ('{"seq": 1}',)
