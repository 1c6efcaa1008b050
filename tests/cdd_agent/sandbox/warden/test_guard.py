from pathlib import Path

import pytest

from cdd_agent.sandbox.warden.guard import Guard


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("mine\n")
    (folder / ".git" / "config").chmod(0o640)
    (folder / ".git" / "hooks" / "pre-commit").write_text("mine\n")
    (folder / ".envrc").symlink_to("elsewhere")
    return folder


def guard(root: Path, *names: str, aside: bool = True) -> Guard:
    return Guard([(str(root), name) for name in names], str(root / ".cdd/aside") if aside else None)


def aside(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / ".cdd/aside").iterdir() if path.is_file()}


def test_what_stays_as_it_is_is_no_remark(root: Path) -> None:
    assert guard(root, ".git/config", ".git/hooks", ".mcp.json", ".envrc", ".vscode").mend() == []
    assert not (root / ".cdd").exists()


def test_what_came_to_be_is_set_aside_and_never_lost(root: Path) -> None:
    before = guard(root, ".mcp.json", ".vscode", ".git/hooks")
    (root / ".mcp.json").write_text("bad")
    (root / ".vscode").mkdir()
    (root / ".vscode/settings.json").write_text("bad too")
    (root / ".git/hooks/post-commit").write_text("worst")
    said = before.mend()
    assert [remark.partition(" came")[0] for remark in said] == [".mcp.json", ".vscode", ".git/hooks/post-commit"]
    assert not (root / ".mcp.json").exists()
    assert not (root / ".vscode").exists()
    assert not (root / ".git/hooks/post-commit").exists()
    assert (root / ".cdd/aside/1-.vscode/settings.json").read_text() == "bad too"
    assert aside(root) == {"1-.mcp.json": "bad", "1-post-commit": "worst"}
    assert before.mend() == []


def test_what_was_changed_or_removed_is_put_back(root: Path) -> None:
    before = guard(root, ".git/config", ".git/hooks", ".envrc")
    (root / ".git/config").write_text("theirs")
    (root / ".git/hooks/pre-commit").unlink()
    (root / ".envrc").unlink()
    (root / ".envrc").write_text("export A=1")
    assert len(before.mend()) == 3
    assert (root / ".git/config").read_text() == "mine\n"
    assert (root / ".git/config").stat().st_mode & 0o777 == 0o640
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"
    assert (root / ".envrc").is_symlink()
    assert aside(root) == {"1-config": "theirs", "1-.envrc": "export A=1"}


def test_a_folder_that_was_replaced_is_put_back_whole(root: Path) -> None:
    before = guard(root, ".git/hooks")
    (root / ".git/hooks").rename(root / "moved")
    (root / ".git/hooks").symlink_to("../moved")
    assert len(before.mend()) == 1
    assert not (root / ".git/hooks").is_symlink()
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"


def test_a_link_on_the_way_is_no_way_round_and_what_it_leads_to_is_not_touched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users/settings.json").write_text("the user's own")
    before = guard(root, ".vscode/settings.json")
    (root / ".vscode").symlink_to(tmp_path / "users")
    assert before.mend() == [
        f".vscode came to be while a program ran in the sandbox, and is set aside as {root}/.cdd/aside/1-.vscode"
    ]
    assert not (root / ".vscode").exists()
    assert (tmp_path / "users/settings.json").read_text() == "the user's own"


def test_without_a_place_for_it_it_is_removed(root: Path) -> None:
    before = guard(root, ".mcp.json", ".vscode", aside=False)
    (root / ".mcp.json").write_text("bad")
    (root / ".vscode/deep").mkdir(parents=True)
    assert [remark.rpartition(" ")[2] for remark in before.mend()] == ["removed", "removed"]
    assert not (root / ".vscode").exists()


def test_what_is_too_large_is_left_alone(root: Path) -> None:
    (root / "large").write_bytes(bytes(2 << 20))
    for number in range(400):
        (root / f"many/{number // 100}").mkdir(parents=True, exist_ok=True)
        (root / f"many/{number // 100}/{number}").touch()
    before = guard(root, "large", "many")
    (root / "large").write_bytes(b"")
    (root / "many/3/399").write_text("other")
    assert before.mend() == []


def test_a_folder_cannot_be_filled_up_to_hide_something_in_it(root: Path) -> None:
    before = guard(root, ".git/hooks")
    for number in range(400):
        (root / f".git/hooks/{number}").touch()
    (root / ".git/hooks/pre-commit").write_text("theirs")
    assert len(before.mend()) == 1
    assert [path.name for path in (root / ".git/hooks").iterdir()] == ["pre-commit"]
    assert (root / ".git/hooks/pre-commit").read_text() == "mine\n"
