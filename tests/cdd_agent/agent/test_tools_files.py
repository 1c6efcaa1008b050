import os
from pathlib import Path

import pytest

from cdd_agent.agent.tools import Tool, ToolOutput, make_file_tools
from cdd_agent.model.conversation import JSON
from cdd_agent.workspace.files import Workspace


def anywhere(_: str) -> str | None:
    return None


class Files:
    """The three tools over a folder, called by name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in make_file_tools(Workspace(root), anywhere)}

    def call(self, name: str, **fields: JSON) -> ToolOutput:
        return self.tools[name].run(fields)

    def read(self, path: str, **fields: JSON) -> ToolOutput:
        return self.call("Read", file_path=path, **fields)

    def write(self, path: str, content: str) -> ToolOutput:
        return self.call("Write", file_path=path, content=content)

    def edit(self, path: str, old: str, new: str, **fields: JSON) -> ToolOutput:
        return self.call("Edit", file_path=path, old_string=old, new_string=new, **fields)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "table.py").write_text("def row():\n    return 1\n")
    return Files(tmp_path)


def test_the_tools_come_in_a_fixed_order_and_name_their_file(files: Files) -> None:
    assert list(files.tools) == ["Read", "Write", "Edit"]
    assert files.tools["Read"].subject({"file_path": "src/table.py"}) == "src/table.py"


def test_a_file_is_shown_with_line_numbers(files: Files) -> None:
    assert files.read("src/table.py").text == "     1\tdef row():\n     2\t    return 1"


def test_a_part_of_a_file_is_shown_with_how_to_read_on(files: Files) -> None:
    (files.root / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 3001)))
    assert files.read("long.txt", offset=3, limit=2).text == (
        "     3\tline 3\n     4\tline 4\n(2996 more lines; continue with offset 5)"
    )
    assert files.read("long.txt", limit=9999).text.endswith("(1000 more lines; continue with offset 2001)")
    output = files.read("long.txt", offset=3001)
    assert output.is_error
    assert "has only 3000 lines" in output.text


def test_what_numbered_lines_cannot_show_is_told(files: Files) -> None:
    (files.root / "odd.txt").write_bytes(b"caf\xe9\r\nend")
    assert files.read("odd.txt").text == (
        "     1\tcaf\\xe9\n     2\tend\n"
        "(lines end with CRLF; Edit and Write keep that)\n"
        "(the file is not UTF-8, so only ASCII can be added; Edit and Write keep that)\n"
        "(bytes without a character are shown as \\xNN; Edit keeps them, but cannot match them)\n"
        "(no newline at the end of the file)"
    )
    (files.root / "empty.txt").touch()
    assert files.read("empty.txt").text == "(the file is empty)"


def test_a_very_long_line_is_cut(files: Files) -> None:
    (files.root / "wide.txt").write_text("x" * 5000 + "\n")
    assert files.read("wide.txt").text.endswith("x [... 3000 more characters]")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", ".git/config", "src/none.py", "src"])
def test_what_may_not_be_read_is_an_answer_with_a_hint(files: Files, path: str) -> None:
    output = files.read(path)
    assert output.is_error
    assert output.text.endswith(")")


def test_a_new_file_is_created_with_its_folders(files: Files) -> None:
    assert files.write("src/new/cell.py", "x = 1\ny = 2\n").text == "Created src/new/cell.py: 2 lines."
    assert (files.root / "src/new/cell.py").read_text() == "x = 1\ny = 2\n"


def test_a_file_that_was_not_read_is_not_overwritten(files: Files) -> None:
    output = files.write("src/table.py", "x = 1\n")
    assert output.is_error
    assert "you have not read it" in output.text
    files.read("src/table.py")
    assert files.write("src/table.py", "x = 1\n").text == "Overwrote src/table.py: 1 line, 2 lines before."


def test_a_file_that_changed_since_it_was_read_is_not_overwritten(files: Files) -> None:
    files.read("src/table.py")
    (files.root / "src/table.py").write_text("by somebody else\n")
    assert "changed since you read it" in files.write("src/table.py", "x = 1\n").text
    assert (files.root / "src/table.py").read_text() == "by somebody else\n"


def test_what_an_agent_wrote_it_knows(files: Files) -> None:
    files.write("a.txt", "one\n")
    assert not files.write("a.txt", "two\n").is_error
    assert not files.edit("a.txt", "two", "three").is_error
    assert not files.write("a.txt", "four\n").is_error


def test_an_edit_shows_the_place_as_it_reads_now(files: Files) -> None:
    assert files.edit("src/table.py", "return 1", "return 2").text == (
        "Edited src/table.py at line 2. The lines are now:\n     1\tdef row():\n     2\t    return 2"
    )


def test_an_exact_edit_needs_no_reading_but_does_not_count_as_it(files: Files) -> None:
    assert not files.edit("src/table.py", "return 1", "return 2").is_error
    assert "you have not read it" in files.write("src/table.py", "").text


def test_a_loose_edit_or_one_of_many_places_needs_a_file_that_was_read(files: Files) -> None:
    (files.root / "a.txt").write_text("one \none\n")
    assert "you have not read it" in files.edit("a.txt", "one", "two", replace_all=True).text
    assert "you have not read it" in files.edit("a.txt", "one\none\n", "two\n").text
    files.read("a.txt")
    output = files.edit("a.txt", "one\none\n", "two\n")
    assert "ignoring white space at the ends of lines" in output.text
    assert (files.root / "a.txt").read_text() == "two\n"


def test_an_edit_of_a_reformatted_file_is_done_where_its_text_still_stands_once(files: Files) -> None:
    files.read("src/table.py")
    (files.root / "src/table.py").write_text("import os\n\n\ndef row():\n    return 1\n")
    assert not files.edit("src/table.py", "return 1", "return 2").is_error
    assert "changed since" in files.write("src/table.py", "").text


def test_an_edit_of_several_places_shows_all_of_them(files: Files) -> None:
    (files.root / "long.py").write_text("".join(f"x{n} = 0\n" for n in range(60)))
    further: list[JSON] = [{"old_string": "x58 = 0", "new_string": "x58 = 2"}]
    text = files.edit("long.py", "x5 = 0", "x5 = 1", edits=further).text
    assert "     6\tx5 = 1\n" in text
    assert "     9\tx8 = 0\n   ...\n    56\tx55 = 0\n" in text
    assert "    59\tx58 = 2\n" in text


def test_all_places_are_counted(files: Files) -> None:
    files.write("a.txt", "one\none\n")
    assert "at 2 places, first at line 1" in files.edit("a.txt", "one", "two", replace_all=True).text


def test_an_edit_keeps_every_other_byte(files: Files) -> None:
    (files.root / "odd.txt").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nx = 1\r\nend")
    files.edit("odd.txt", "x = 1\n", "x = 1\ny = 2\n")
    assert (files.root / "odd.txt").read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\nx = 1\r\ny = 2\r\nend"


def test_a_written_file_keeps_what_its_text_cannot_say(files: Files) -> None:
    path = files.root / "odd.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\ny = 2\r\nend = 3")
    path.chmod(0o755)
    files.read("odd.py")
    answer = files.write("odd.py", "x = 1\ny = 3\n\nend = 3\n").text
    assert answer == "Overwrote odd.py: 4 lines, 3 lines before. It ends without a newline, as before."
    assert path.read_bytes() == b"\xef\xbb\xbfx = 1\r\ny = 3\r\n\r\nend = 3"
    assert path.stat().st_mode & 0o777 == 0o755
    assert not files.write("odd.py", "x = 'é'\r\nend = 3").is_error
    assert path.read_bytes() == "\ufeffx = 'é'\r\nend = 3".encode()


def test_utf_16_is_read_searched_and_written(files: Files) -> None:
    path = files.root / "wide.txt"
    path.write_bytes("\ufeffname=é\r\n".encode("utf-16-le"))
    assert files.read("wide.txt").text.startswith("     1\tname=é\n(lines end with CRLF;")
    assert not files.edit("wide.txt", "é", "€").is_error
    assert path.read_bytes() == "\ufeffname=€\r\n".encode("utf-16-le")


def test_every_place_of_a_crlf_file_is_replaced(files: Files) -> None:
    (files.root / "a.txt").write_bytes(b"a\r\nb\r\na\r\nb\r\n")
    files.read("a.txt")
    assert not files.edit("a.txt", "a\nb", "a\nx\nb", replace_all=True).is_error
    assert (files.root / "a.txt").read_bytes() == b"a\r\nx\r\nb\r\na\r\nx\r\nb\r\n"


def test_a_new_file_is_utf_8_with_line_feeds(files: Files) -> None:
    answer = files.write("new.py", "\ufeff# coding: latin-1\r\nx = 'é'\r\n").text
    assert answer == (
        "Created new.py: 1 line. The byte order mark was left out: a new file gets none. The encoding line "
        "`# coding: latin-1` was left out: a new file is in UTF-8. Its lines end with LF, as in every new file."
    )
    assert (files.root / "new.py").read_bytes() == "x = 'é'\n".encode()


@pytest.mark.parametrize("text", ["a\0b\n", "half \ud83d\n", "\udce9\n"])
def test_characters_that_no_text_file_holds_are_refused(files: Files, text: str) -> None:
    assert files.write("new.txt", text).is_error
    assert not (files.root / "new.txt").exists()


def test_a_miss_in_a_file_of_another_encoding_can_be_sent(files: Files) -> None:
    (files.root / "odd.txt").write_bytes(b"caf\xe9 one\n")
    output = files.edit("odd.txt", "cafe one\n", "x\n")
    assert output.is_error
    assert "caf\\xe9 one" in output.text


def test_python_that_could_be_parsed_stays_so(files: Files) -> None:
    output = files.edit("src/table.py", "return 1", "return (1")
    assert output.is_error
    assert "would no longer be valid Python" in output.text
    assert "line 2: '(' was never closed" in output.text
    files.read("src/table.py")
    assert files.write("src/table.py", "def row(:\n").is_error
    assert (files.root / "src/table.py").read_text() == "def row():\n    return 1\n"


def test_python_that_could_not_be_parsed_may_be_mended_step_by_step(files: Files) -> None:
    (files.root / "broken.py").write_text("def a(:\n    pass\ndef b(:\n    pass\n")
    assert not files.edit("broken.py", "def a(:", "def a():").is_error
    assert not files.edit("broken.py", "def b(:", "def b():").is_error


def test_a_warning_of_the_compiler_is_no_error(files: Files) -> None:
    assert not files.edit("src/table.py", "return 1", 'return "\\d"').is_error


def test_where_this_agent_may_not_write_it_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("assert 1\n")

    def sources_only(path: str) -> str | None:
        return "tests are locked in GREEN." if path.startswith("tests/") else None

    _, write, edit = make_file_tools(Workspace(tmp_path), sources_only)
    for output in (
        write.run({"file_path": "tests/new.py", "content": ""}),
        write.run({"file_path": str(tmp_path / "tests/new.py"), "content": ""}),
        edit.run({"file_path": "./tests/test_a.py", "old_string": "1", "new_string": "True"}),
    ):
        assert output.is_error
        assert "may not be written: tests are locked in GREEN." in output.text
    assert not write.run({"file_path": "src/a.py", "content": ""}).is_error


def test_two_agents_do_not_share_what_they_have_read(files: Files) -> None:
    files.read("src/table.py")
    assert Files(files.root).write("src/table.py", "").is_error


KEY = f"AKIA{'Q' * 16}"


def test_a_key_is_not_shown_and_the_reader_is_told(files: Files) -> None:
    (files.root / "a.py").write_text(f"x = 1\nKEY = '{KEY}'\n")
    assert files.read("a.py").text == (
        "     1\tx = 1\n     2\tKEY = '[masked: AWS key]'\n"
        "(1 text shaped like a key, masked as [masked: ...]; Edit keeps them, but cannot match them)"
    )
    assert "masked as" not in files.read("a.py", limit=1).text


def test_an_edit_beside_a_key_keeps_it_and_shows_it_masked(files: Files) -> None:
    (files.root / "a.py").write_text(f"x = 1\nKEY = '{KEY}'\ny = 1\n")
    output = files.edit("a.py", "x = 1", "x = 2")
    assert not output.is_error
    assert KEY not in output.text
    assert (files.root / "a.py").read_text() == f"x = 2\nKEY = '{KEY}'\ny = 1\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("KEY = '[masked: AWS key]'", "KEY = ''", "old_string contains [masked: AWS key]"),
        ("x = 1", "x = '[masked: AWS key]'", "new_string contains [masked: AWS key]"),
        ("masked: AWS", "x", "overlaps a masked text"),
        (KEY, "x", "not in the file"),
        (KEY[:5], "x", "not in the file"),
        ("z", KEY, "not in the file"),
        ("x = 1\nKEY = 'x'\n", "KEY = 'y'\n", "nearest lines"),
    ],
)
def test_no_edit_reaches_a_key_puts_a_mask_in_its_place_or_feels_its_way_along_it(
    files: Files, old: str, new: str, *, why: str
) -> None:
    source = f"x = 1\nKEY = '{KEY}'\n"
    (files.root / "a.py").write_text(source)
    output = files.edit("a.py", old, new)
    assert output.is_error
    assert why in output.text
    if KEY not in (old, new):
        assert KEY not in output.text
    assert (files.root / "a.py").read_text() == source


def test_a_mask_is_not_written_as_if_it_were_the_file(files: Files) -> None:
    (files.root / "a.py").write_text(f"KEY = '{KEY}'\n")
    files.read("a.py")
    for path in ("a.py", "b.py"):
        output = files.write(path, "KEY = '[masked: AWS key]'\nx = 1\n")
        assert output.is_error
        assert "edit the lines around it" in output.text
    assert (files.root / "a.py").read_text() == f"KEY = '{KEY}'\n"
    assert not (files.root / "b.py").exists()


def test_a_text_that_only_reads_like_a_mask_is_text(files: Files) -> None:
    (files.root / "a.py").write_text("x = '[masked: AWS key]'\n")
    assert not files.edit("a.py", "x = '[masked: AWS key]'", "y = '[masked: AWS key]'").is_error
    assert (files.root / "a.py").read_text() == "y = '[masked: AWS key]'\n"


@pytest.mark.slow
def test_a_file_larger_than_what_is_read_at_once_is_paged_through(files: Files) -> None:
    (files.root / "large.txt").write_text("".join(f"{number:05} {'x' * 200}\n" for number in range(1, 4001)))
    seen: list[str] = []
    offset = 1
    while True:
        output = files.read("large.txt", offset=offset)
        assert not output.is_error
        assert len(output.text) <= 256 * 1024 + 200
        rows = [row.split("\t")[1][:5] for row in output.text.split("\n") if "\t" in row]
        seen += rows
        offset += len(rows)
        if "more lines" not in output.text:
            break
        assert f"continue with offset {offset})" in output.text
    assert seen == [f"{number:05}" for number in range(1, 4001)]
    output = files.edit("large.txt", "00001", "x")
    assert output.is_error
    assert "larger than 256 KB" in output.text


def test_a_file_too_large_even_for_pages_is_refused(files: Files) -> None:
    with (files.root / "huge.txt").open("wb") as stream:
        stream.truncate(17 * 1024 * 1024)
    output = files.read("huge.txt")
    assert output.is_error
    assert "larger than 16384 KB" in output.text


def test_pytest_configuration_is_locked_in_any_spelling(tmp_path: Path) -> None:
    _, write, _ = make_file_tools(Workspace(tmp_path), lambda path: "locked." if path.endswith("conftest.py") else None)
    assert write.run({"file_path": "src/ConfTest.py", "content": ""}).is_error
    assert not write.run({"file_path": "src/Conf.py", "content": ""}).is_error


def test_a_file_of_any_size_is_refused_before_it_is_read(files: Files) -> None:
    """The reading of it would end for want of memory."""
    path = files.root / "big.bin"
    path.touch()
    os.truncate(path, 1 << 42)
    assert "you have not read it" in files.write("big.bin", "x").text


def test_a_file_that_has_grown_since_it_was_read_is_refused_too(files: Files) -> None:
    files.read("src/table.py")
    os.truncate(files.root / "src" / "table.py", 1 << 42)
    assert "is larger than 256 KB" in files.write("src/table.py", "x").text


def test_the_given_check_decides_which_code_a_python_file_may_have(files: Files) -> None:
    newer = "type Row = int\n"

    def find_error(content: bytes) -> str | None:
        return "line 1: none of the project's Python" if b"match" in content else None

    tools = make_file_tools(Workspace(files.root), anywhere, find_error=find_error)
    files.tools = {tool.spec.name: tool for tool in tools}
    files.read("src/table.py")
    assert not files.write("src/table.py", newer).is_error
    assert "none of the project's Python" in files.edit("src/table.py", "int", "match").text
    assert "none of the project's Python" in files.write("src/table.py", "match x:\n    case 1: pass\n").text
    assert (files.root / "src" / "table.py").read_text() == newer
