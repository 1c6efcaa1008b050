import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import EnvironmentMissing, GateClosed
from cdd_agent.events import Change
from cdd_agent.git.commits import (
    MessageRefused,
    commit_paths,
    cut_subject,
    find_by_trailer,
    find_refusing_hook,
    list_own_uncommitted,
    require_identity,
    wrap,
)
from cdd_agent.git.repository import Repository
from tests.fakes.cases import soak_after


def test_a_commit_takes_the_named_paths_and_leaves_the_rest_of_the_index(repository: Repository) -> None:
    root = repository.root
    (root / "a.txt").write_text("changed\n")
    (root / "new name.txt").write_text("new\n")
    (root / "staged.txt").write_text("the user's\n")
    repository.git("add", "staged.txt")
    (root / "sub" / "b.txt").write_text("unstaged\n")
    before = repository.read_head()

    made = commit_paths(repository, "change", paths=["a.txt", "new name.txt"])

    assert before is not None
    assert set(repository.list_changes(before, made)) == {
        Change(path="a.txt", kind="modified"),
        Change(path="new name.txt", kind="created"),
    }
    status = sorted(repository.git("status", ("--porcelain",)).splitlines())
    assert status == [" M sub/b.txt", "A  staged.txt"]


def test_a_subject_is_cut_before_a_word_and_in_a_long_word_at_a_mark() -> None:
    name = "test_total_adds_all_the_prices_of_the_basket_even_if_some_are_negative"
    cases = {
        "feat: short": "feat: short",
        "feat: " + "ten percent off " * 6: "feat: ten percent off ten percent off ten percent off ten percent off…",
        f"fix: make {name} pass": "fix: make test_total_adds_all_the_prices_of_the_basket_even_if_some_…",
        "docs: " + "x" * 90: "docs: " + "x" * 65 + "…",
    }
    for text, cut in cases.items():
        assert cut_subject(text) == cut


def test_a_body_is_wrapped_like_its_lists_and_even_in_long_words() -> None:
    word = "tests/shop/test_prices.py::test_total_adds_all_the_prices_of_the_basket_even_if_some"
    text = f"Adds prices.\n\n- {'one item ' * 12}\n{word}\n[ ] AC-1: {'the system shall ' * 6}\nM {word}\n{'y' * 200}"
    lines = wrap(text).split("\n")
    assert max(map(len, lines)) <= 72
    assert lines[:3] == ["Adds prices.", "", f"- {'one item ' * 7}one"]
    assert [line for line in lines if line.startswith("  ")] == [
        "  item " + "one item " * 3 + "one item",
        "    shall the system shall the system shall",
        "  basket_even_if_some",
    ]
    assert "tests/shop/test_prices.py::test_total_adds_all_the_prices_of_the_basket_" in lines
    assert "".join(wrap(word).split("\n")) == word


@given(st.text(max_size=400), st.text(alphabet="ab _/- ", max_size=400))
def test_wrapping_loses_no_character_but_spaces(text: str, words: str) -> None:
    for each in (text, words):
        wrapped = wrap(each)
        assert all(len(line) <= 72 for line in wrapped.split("\n"))
        assert "".join(wrapped.split()) == "".join(each.split())
        assert len(cut_subject(" ".join(each.split()))) <= 72


def test_the_hook_that_refused_is_read_from_the_events_of_git() -> None:
    def event(kind: str, child: int, sid: str = "a", **more: object) -> str:
        return json.dumps({"event": kind, "sid": sid, "child_id": child, **more})

    started = [event("child_start", number, child_class="hook", hook_name=name) for number, name in enumerate(HOOKS)]
    nested = [event("child_start", 1, "a/b", child_class="hook", hook_name="x"), event("child_exit", 1, "a/b", code=1)]
    other = [event("child_start", 7, child_class="editor"), event("child_exit", 7, code=1)]
    passed = [event("child_exit", number, code=0) for number in range(3)]
    assert find_refusing_hook("") == ""
    assert find_refusing_hook("\n".join([*started, *passed, *nested, *other])) == ""
    for number, name in enumerate(HOOKS):
        assert find_refusing_hook("\n".join([*started, event("child_exit", number, code=1)])) == name


HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")


@soak_after(2, "name", HOOKS[::-1])
def test_a_refusal_of_the_message_is_told_from_one_of_the_files(repository: Repository, name: str) -> None:
    for each in HOOKS:  # each calls git, whose events are not those of the commit
        hook = repository.root / ".git" / "hooks" / each
        hook.write_text(
            f"#!/bin/sh\ngit rev-parse --verify -q nothing\ntest {each} != {name} || {{ echo no; exit 3; }}\n"
        )
        hook.chmod(0o755)
    repository.may_run_hooks = lambda *_: True
    (repository.root / "a.txt").write_text("changed\n")

    with pytest.raises(GateClosed, match="no") as refused:
        commit_paths(repository, "change", paths=["a.txt"])

    assert isinstance(refused.value, MessageRefused) == (name != "pre-commit")
    if name == "commit-msg":
        assert "Your hook commit-msg refused the message of the commit" in refused.value.happened
        message = repository.root / ".git" / "COMMIT_EDITMSG"
        assert f"cat {message}" in refused.value.hint
        assert message.read_text() == "change\n"


def test_a_deleted_path_is_committed_as_deleted(repository: Repository) -> None:
    (repository.root / "sub" / "b.txt").unlink()
    before = repository.read_head()
    made = commit_paths(repository, "delete", paths=["sub/b.txt"])
    assert before is not None
    assert repository.list_changes(before, made) == (Change(path="sub/b.txt", kind="deleted"),)
    assert repository.list_uncommitted() == ()


def test_an_environment_that_git_does_not_ignore_is_no_work_of_the_user(repository: Repository) -> None:
    for name in ("env/pyvenv.cfg", "env/bin/pip", "sub/c/conda-meta/x.json", "sub/c/bin/pip", "environment.py"):
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).touch()
    assert list_own_uncommitted(repository) == ("environment.py",)


def test_a_ticket_is_no_change_of_the_product(repository: Repository) -> None:
    for name in ("tickets/one/spec.yaml", "tickets/.gitignore", "tickets/package.py"):
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).touch()
    assert len(list_own_uncommitted(repository)) == 3
    assert list_own_uncommitted(repository, project=repository.root) == ("tickets/package.py",)


def test_a_commit_without_a_change_is_head_itself(repository: Repository) -> None:
    assert commit_paths(repository, "nothing", paths=["a.txt"]) == repository.read_head()


def test_a_commit_of_what_head_holds_already_leaves_it_staged_so(repository: Repository) -> None:
    repository.git("rm", ("--quiet", "--cached"), "a.txt")
    assert commit_paths(repository, "again", paths=["a.txt"]) == repository.read_head()
    assert repository.list_uncommitted() == ()


def test_without_any_path_nothing_that_is_staged_is_touched(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    repository.git("commit", ("--quiet", "--allow-empty", "-m"), "empty")
    empty = repository.read_head()
    assert empty is not None
    (repository.root / "staged.txt").write_text("the user's\n")
    repository.git("add", "staged.txt")

    repository.git("update-ref", "HEAD", head, empty)
    assert commit_paths(repository, "nothing", paths=[]) == head
    assert repository.git("status", ("--porcelain",)) == "A  staged.txt\n"


def test_a_hook_that_refuses_closes_the_gate_with_its_words(repository: Repository) -> None:
    hook = repository.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'no tabs, please' >&2\nexit 1\n")
    hook.chmod(0o755)
    repository.may_run_hooks = lambda: True
    (repository.root / "a.txt").write_text("changed\n")
    head = repository.read_head()
    with pytest.raises(GateClosed, match="no tabs, please"):
        commit_paths(repository, "change", paths=["a.txt"])
    assert repository.read_head() == head


def test_a_commit_is_found_by_its_trailer(repository: Repository) -> None:
    base = repository.read_head()
    (repository.root / "a.txt").write_text("changed\n")
    made = commit_paths(repository, "change\n\nHandoff-Id: abc123\n", paths=["a.txt"])
    assert find_by_trailer(repository, "Handoff-Id", value="abc123", since=base) == made
    assert find_by_trailer(repository, "Handoff-Id", value="abc", since=base) is None
    assert find_by_trailer(repository, "Handoff-Id", value="abc123", since=made) is None


def test_missing_identity_is_an_error_that_says_how_to_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    repository = Repository.create(tmp_path)
    repository.git("config", "user.useConfigOnly", "true")
    with pytest.raises(EnvironmentMissing, match="your name and email"):
        require_identity(repository)
