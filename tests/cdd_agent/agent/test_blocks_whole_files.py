from pathlib import Path

import pytest

from cdd_agent.agent.blocks import BlocksWritten, FileBlock, WholeFiles
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import Marks
from cdd_agent.workspace.files import Workspace

MARKS = Marks("kvqtzh")
KEY = "AKIA" + "Q7ZP" * 4


def files(root: Path, *, locked: str = "") -> WholeFiles:
    return WholeFiles(Workspace(root), lambda path: "It is locked." if path == locked else None, max_characters=1000)


def block(path: str, content: str) -> FileBlock:
    return FileBlock(path=path, content=content, line=1)


def test_a_file_is_given_whole_and_marked_and_one_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "src").mkdir()
    assert files(tmp_path).render(["a.py", "b.py", "src", "a.py"], marks=MARKS) == (
        "<data-kvqtzh a.py>\nx = 1\n</data-kvqtzh>\n\nThese files do not exist yet: b.py"
    )


def test_only_what_was_given_is_replaced_and_only_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    made = files(tmp_path)
    (refusal,) = made.write_blocks([block("a.py", "x = 2\n")]).refused
    assert (refusal.must_be_shown, "you have not seen it" in refusal.why) == (True, True)
    made.render(["a.py"], marks=MARKS)
    (tmp_path / "a.py").write_text("x = 3\n")
    (refusal,) = made.write_blocks([block("a.py", "x = 2\n")]).refused
    assert (refusal.must_be_shown, "has changed since" in refusal.why) == (True, True)
    made.render(["a.py"], marks=MARKS)
    assert made.write_blocks([block("a.py", "x = 2\n")]).refused == ()
    assert made.write_blocks([block("a.py", "x = 4\n")]).refused == ()
    assert (tmp_path / "a.py").read_text() == "x = 4\n"


def test_a_file_that_comes_back_as_it_was_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    made = files(tmp_path)
    made.render(["a.py"], marks=MARKS)
    before = (tmp_path / "a.py").stat().st_mtime_ns
    assert made.write_blocks([block("a.py", "x = 1\n"), block("b.py", "y = 1\n")]).refused == ()
    assert (tmp_path / "a.py").stat().st_mtime_ns == before
    assert (tmp_path / "b.py").read_text() == "y = 1\n"


def test_all_are_written_or_none(tmp_path: Path) -> None:
    made = files(tmp_path, locked="b.py")
    (refusal,) = made.write_blocks([block("a.py", "x = 1\n"), block("b.py", "")]).refused
    assert (refusal.path, "It is locked" in refusal.why) == ("b.py", True)
    assert list(tmp_path.iterdir()) == []


def test_none_is_written_if_a_file_is_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    (refusal,) = files(tmp_path).write_blocks([block("a.py", "x = 1\n"), block("notes/deep/b.py", "")]).refused
    assert (refusal.path, "notes is a file" in refusal.why) == ("notes/deep/b.py", True)
    assert not (tmp_path / "a.py").exists()


def test_two_names_of_one_file_are_refused(tmp_path: Path) -> None:
    (refusal,) = files(tmp_path).write_blocks([block("a.py", ""), block(str(tmp_path / "a.py"), "")]).refused
    assert "named twice" in refusal.why


def test_what_a_block_cannot_say_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb")
    made = files(tmp_path)
    made.render(["a.txt"], marks=MARKS)
    assert made.write_blocks([block("a.txt", "c\nb\nd\n")]) == BlocksWritten()
    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbfc\r\nb\r\nd"


def test_a_file_in_a_declared_encoding_comes_back_in_it_and_differences_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("# coding: latin-1\nA = 'ü'\n".encode("latin-1"))
    made = files(tmp_path)
    assert "A = 'ü'" in made.render(["a.py"], marks=MARKS)
    written = made.write_blocks([block("a.py", "# coding: utf-8\nA = 'üß'\n")])
    assert (tmp_path / "a.py").read_bytes() == "# coding: latin-1\nA = 'üß'\n".encode("latin-1")
    assert [remark.partition(":")[0] for remark in written.remarks] == ["a.py", "a.py"]
    (refusal,) = made.write_blocks([block("a.py", "# coding: latin-1\nA = '€'\n")]).refused
    assert (
        "a.py is in latin-1, which cannot hold every character. Line 2 of the new text contains € (U+20AC)"
        in refusal.why
    )


def test_a_key_in_a_file_is_masked_and_survives(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f'KEY = "{KEY}"\nx = 1\n')
    made = files(tmp_path)
    assert "[masked: AWS key]" in made.render(["a.py"], marks=MARKS)
    assert made.write_blocks([block("a.py", 'KEY = "[masked: AWS key]"\nx = 2\n')]).refused == ()
    assert (tmp_path / "a.py").read_text() == f'KEY = "{KEY}"\nx = 2\n'
    (refusal,) = made.write_blocks([block("a.py", "x = 3\n")]).refused
    assert "masked" in refusal.why


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x" * 1001, "has 1,001 characters"),
        (b"caf\xe9\n", "has bytes that are not UTF-8"),
        (b"\x1b[2J\n", "contains characters that an answer cannot reproduce"),
        (b"<data-abcdef>\n", "contains characters that an answer cannot reproduce"),
        (b"a\0b", "is a binary file"),
    ],
)
def test_a_file_that_could_not_come_back_as_it_is_is_refused(tmp_path: Path, *, data: bytes, said: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        files(tmp_path).render(["a.txt"], marks=MARKS)


def test_a_locked_file_of_any_size_is_shown_to_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("line\n" * 1000)
    assert files(tmp_path, locked="a.txt").render(["a.txt"], marks=MARKS).count("line\n") == 1000
