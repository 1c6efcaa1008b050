import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import UsageError
from cdd_agent.workspace.files import Hit, Hits, Workspace, glob, grep


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    for path, content in {
        "setup.py": "import os\n",
        "src/table.py": "def row():\r\n    return 1\r\n",
        "src/deep/er/cell.py": "def cell():\n    return row()",
        "src/notes.md": "caf\udce9\n",
        "src/odd[1].py": "",
        ".git/config": "def hidden\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode("utf-8", "surrogateescape"))
    (root / "picture.png").write_bytes(b"def \0")
    (tmp_path / "outside.py").write_text("def outside(): ...\n")
    (root / "escape.py").symlink_to(tmp_path / "outside.py")
    os.mkfifo(root / "pipe.py")
    return Workspace(root)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("*.py", ("setup.py", "src/deep/er/cell.py", "src/odd[1].py", "src/table.py")),
        ("src/*.py", ("src/odd[1].py", "src/table.py")),
        ("src/**/*.py", ("src/deep/er/cell.py", "src/odd[1].py", "src/table.py")),
        ("./src/*.md", ("src/notes.md",)),
        ("**/er/*", ("src/deep/er/cell.py",)),
        ("src/deep/**", ("src/deep/er/cell.py",)),
        ("src/d**.py", ()),
        ("src/**.py", ("src/deep/er/cell.py", "src/odd[1].py", "src/table.py")),
        ("{src/{notes,table},setup}.{md,py}", ("setup.py", "src/notes.md", "src/table.py")),
        ("?etup.py", ("setup.py",)),
        ("[rst]etup.py", ("setup.py",)),
        ("[!s]etup.py", ()),
        ("odd[[]1].py", ("src/odd[1].py",)),
        ("[a-z]etup.py", ("setup.py",)),
        ("[?--]etup.py", ()),
        ("*[]]*", ("src/odd[1].py",)),
        ("[]etup.py", ()),
        ("[!]etup.py", ()),
        ("*.{md,png}", ("picture.png", "src/notes.md")),
        ("Setup.py", ()),
        ("config", ()),
    ],
)
def test_a_pattern_finds_the_files_it_names_sorted(workspace: Workspace, pattern: str, paths: tuple[str, ...]) -> None:
    assert glob(workspace, pattern) == paths


def test_a_search_stays_in_the_folder_or_file_that_it_is_given(workspace: Workspace) -> None:
    (workspace.root / "src" / "deep" / "link").symlink_to("er")
    for top in ("src/deep", "./src/deep/", "src/deep/link", str(workspace.root / "src" / "deep")):
        assert glob(workspace, "*.py", top=top) == ("src/deep/er/cell.py",)
    assert glob(workspace, "*.toml", top="") == glob(workspace, "*.toml")
    assert glob(workspace, "er/*.py", top="src/deep") == ("src/deep/er/cell.py",)
    assert glob(workspace, "*", top="src/table.py") == ("src/table.py",)
    assert {hit.path for hit in grep(workspace, ".", top="src/table.py").shown} == {"src/table.py"}
    assert grep(workspace, ".", files="*.md", top="src/deep").total == 0
    for outside in ("missing", "/etc", "..", "src/dee"):
        with pytest.raises(UsageError):
            glob(workspace, "*", top=outside)


def test_ignored_files_and_folders_are_not_found(workspace: Workspace) -> None:
    ignoring = Workspace(workspace.root, list_ignored=lambda: ("src/deep/", "setup.py"))
    assert glob(ignoring, "*.py") == ("src/odd[1].py", "src/table.py")
    assert grep(ignoring, "import|cell").total == 0


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "src/../../*", "", " ", "{a"])
def test_a_pattern_that_leaves_the_project_or_cannot_be_read_is_refused(workspace: Workspace, pattern: str) -> None:
    with pytest.raises(UsageError):
        glob(workspace, pattern)


def test_lines_that_match_are_found_with_their_numbers(workspace: Workspace) -> None:
    hits = grep(workspace, r"return \w+", files="*.py")
    assert hits == Hits(
        shown=(
            Hit(path="src/deep/er/cell.py", line=2, text="    return row()"),
            Hit(path="src/table.py", line=2, text="    return 1"),
        ),
        total=2,
        unread=0,
    )


def test_binary_files_private_folders_and_links_outside_are_not_searched(workspace: Workspace) -> None:
    hits = grep(workspace, "def ")
    assert [hit.path for hit in hits.shown] == ["src/deep/er/cell.py", "src/table.py"]
    assert hits.unread == 1


def test_a_hit_that_has_become_a_link_outside_by_the_time_it_is_told_is_left_out(workspace: Workspace) -> None:
    class Late(Workspace):
        def list_files(self, *, most: int | None = None) -> tuple[str, ...]:
            found = super().list_files(most=most)
            (self.root / "src" / "table.py").unlink()
            (self.root / "src" / "table.py").symlink_to(self.root.parent / "outside.py")
            return found

    late = Late(workspace.root)
    assert "src/table.py" not in glob(late, "src/*.py")
    assert [hit.path for hit in grep(Late(workspace.root), "def ").shown] == ["src/deep/er/cell.py"]


def test_no_pattern_finds_its_way_along_a_key(tmp_path: Path) -> None:
    key = f"ghp_{'k' * 36}"
    (tmp_path / "a.py").write_text(f"TOKEN = '{key}'\n")
    workspace = Workspace(tmp_path)
    assert grep(workspace, "ghp_k").total == 0
    assert grep(workspace, "TOKEN").shown[0].text == "TOKEN = '[masked: GitHub token]'"
    assert grep(workspace, "TOKEN").masked == 1
    assert grep(workspace, "nothing").masked == 0


def test_hits_above_the_limit_are_counted_and_long_lines_cut(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("x" * 1000 + "\n" + "x\n" * 9)
    hits = grep(Workspace(tmp_path), "x", limit=3)
    assert (len(hits.shown), hits.total) == (3, 10)
    assert len(hits.shown[0].text) == 300


def test_an_expression_that_is_not_valid_is_refused_with_the_reason(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="missing \\)") as refusal:
        grep(workspace, "row(")
    assert "backslash" in refusal.value.hint


def test_an_expression_that_the_compiler_warns_of_is_searched_for(workspace: Workspace) -> None:
    assert grep(workspace, "[[]row").total == 0


@pytest.mark.parametrize(("pattern", "path"), [("*a" * 14 + "b", "a" * 60), ("**/a/" * 14 + "ab", "a/" * 30 + "a")])
def test_no_pattern_takes_longer_than_its_length_would_let_expect(tmp_path: Path, pattern: str, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    started = time.process_time()
    assert glob(Workspace(tmp_path), pattern) == ()
    assert glob(Workspace(tmp_path), pattern[:-1]) == (path,)
    assert time.process_time() - started < 2


def test_a_line_feed_in_a_name_is_a_character_like_others(tmp_path: Path) -> None:
    (tmp_path / "a\nb").mkdir()
    (tmp_path / "a\nb" / "c\nd.py").write_text("def row\n")
    for pattern in ("**", "*.py", "a?b/*", "a[\n]b/**", "a[!x]b/c*"):
        assert glob(Workspace(tmp_path), pattern) == ("a\nb/c\nd.py",)
    assert grep(Workspace(tmp_path), "def").total == 1


@pytest.mark.parametrize("pattern", ["{a,aa}" * 30, "a}", "{a,b"])
def test_braces_that_do_not_match_or_are_too_many_are_refused(workspace: Workspace, pattern: str) -> None:
    with pytest.raises(UsageError, match="brace"):
        glob(workspace, pattern)


@given(st.text(alphabet="*?[]{},!^-ab/.\\", max_size=12))
def test_any_pattern_is_an_answer_or_a_refusal(tmp_path_factory: pytest.TempPathFactory, pattern: str) -> None:
    root = tmp_path_factory.getbasetemp() / "globbed"
    root.mkdir(exist_ok=True)
    (root / "ab").touch()
    try:
        found = glob(Workspace(root), pattern)
    except UsageError:
        return
    assert set(found) <= {"ab"}
