"""What edit tools are compared by, each row of the comparison as one test: the bytes after it, or the refusal.

Every row is tried with the tool as a model calls it, over a file on disk.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from cdd_agent.agent.tools import ToolOutput, make_file_tools
from cdd_agent.model.conversation import JSON
from cdd_agent.workspace.files import Workspace

CODE = b"def one():\n    return 1\n\n\ndef two():\n    return 2\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An edit, and what it has to come to."""

    name: str
    before: bytes
    old: str
    new: str
    after: bytes | None = None
    """None: refused, and the file stays as it is."""
    said: tuple[str, ...] = ()


CASES = (
    Case(name="exact", before=CODE, old="return 2", new="return 3", after=CODE.replace(b"return 2", b"return 3")),
    Case(
        name="not there",
        before=CODE,
        old="def two():\n    return 7\n",
        new="x",
        said=("old_string is not in the file", "     5 | def two():", ">    6 |     return 2", "return 7"),
    ),
    Case(
        name="near miss refused",
        before=CODE,
        old="def twoo():\n    return 2\n",
        new="def too():\n    return 2\n",
        said=("old_string is not in the file", ">    5 | def two():"),
    ),
    Case(
        name="two matches",
        before=CODE,
        old="    return",
        new="    yield",
        said=("old_string occurs 2 times", "     2 |     return 1", "     6 |     return 2"),
    ),
    Case(
        name="tabs vs spaces",
        before=b"def one():\n\tif x:\n\t\treturn 1\n",
        old="    if x:\n        return 1\n",
        new="    if x:\n        return 2\n",
        after=b"def one():\n\tif x:\n\t\treturn 2\n",
        said=("ignoring the kind and depth of indentation",),
    ),
    Case(
        name="trailing space",
        before=b"a = 1  \nb = 2\t\nc = 3\n",
        old="a = 1\nb = 2\nc = 3\n",
        new="a = 1\nb = 2\nc = 4\n",
        after=b"a = 1  \nb = 2\t\nc = 4\n",
        said=("ignoring white space at the ends of lines",),
    ),
    Case(
        name="NBSP",
        before="a =\N{NO-BREAK SPACE}1\nb = 2\n".encode(),
        old="a = 1\nb = 2\n",
        new="a = 1\nb = 3\n",
        after="a =\N{NO-BREAK SPACE}1\nb = 3\n".encode(),
        said=("ignoring characters that look alike",),
    ),
    Case(
        name="uniformly outdented",
        before=b"class A:\n    def one(self):\n        return 1\n",
        old="def one(self):\n    return 1\n",
        new="def one(self):\n    return 2\n",
        after=b"class A:\n    def one(self):\n        return 2\n",
        said=("ignoring the kind and depth of indentation",),
    ),
    Case(
        name="CRLF file",
        before=CODE.replace(b"\n", b"\r\n"),
        old="def two():\n    return 2\n",
        new="def two():\n    x = 2\n    return x\n",
        after=CODE.replace(b"    return 2\n", b"    x = 2\n    return x\n").replace(b"\n", b"\r\n"),
    ),
    Case(
        name="byte order mark",
        before=b"\xef\xbb\xbf" + CODE,
        old="def one():\n",
        new="def uno():\n",
        after=b"\xef\xbb\xbf" + CODE.replace(b"one", b"uno"),
    ),
    Case(
        name="latin-1 byte elsewhere in file",
        before=b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + CODE,
        old="return 2",
        new="return 3",
        after=b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + CODE.replace(b"return 2", b"return 3"),
    ),
    Case(
        name="latin-1 letter in the new text",
        before=b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + CODE,
        old="# café\ndef one():\n    return 1\n",
        new="# café\ndef one():\n    return 'é'\n",
        after=b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + CODE.replace(b"return 1", b"return '\xe9'"),
    ),
    Case(
        name="letter that the encoding lacks",
        before=b"#!/usr/bin/env python\n# -*- coding: cp1252 -*-\n# \x93quoted\x94\n" + CODE,
        old="    return 1",
        new="    return 'č'",
        said=("a.py is in cp1252, which cannot hold every character", "Line 5", "č (U+010D)"),
    ),
    Case(
        name="typographic quotes in cp1252",
        before=b"# -*- coding: cp1252 -*-\n# \x93quoted\x94\n" + CODE,
        old='# "quoted"\ndef one():\n',
        new='# "quoted"\ndef uno():\n',
        after=b"# -*- coding: cp1252 -*-\n# \x93quoted\x94\n" + CODE.replace(b"one", b"uno"),
        said=("ignoring characters that look alike",),
    ),
    Case(
        name="Shift-JIS",
        before="# coding: shift_jis\n# 表示\n".encode("shift_jis") + CODE,
        old="# 表示\n",
        new="# 表示する\n",
        after="# coding: shift_jis\n# 表示する\n".encode("shift_jis") + CODE,
    ),
    Case(
        name="undeclared bytes",
        before=b"# caf\xe9\n" + CODE,
        old="return 2",
        new="return 'ü'",
        said=("a.py is not UTF-8 and declares no other encoding", "ü (U+00FC)"),
    ),
    Case(
        name="CR",
        before=CODE.replace(b"\n", b"\r"),
        old="def two():\n    return 2\n",
        new="def two():\n    x = 2\n    return x\n",
        after=CODE.replace(b"    return 2\n", b"    x = 2\n    return x\n").replace(b"\n", b"\r"),
    ),
    Case(
        name="mostly CRLF",
        before=CODE.replace(b"\n", b"\r\n").replace(b"1\r\n", b"1\n"),
        old="():\n    return 1\n\n\ndef two():\n",
        new="():\n    x = 1\n    return 1\n\n\ndef two():\n",
        after=CODE.replace(b"one():\n", b"one():\n    x = 1\n").replace(b"\n", b"\r\n").replace(b"n 1\r\n", b"n 1\n"),
    ),
    Case(
        name="encoding line that is new",
        before=CODE,
        old="def one():\n",
        new="# coding: latin-1\ndef uno():\n",
        after=CODE.replace(b"one", b"uno"),
        said=("The encoding line `# coding: latin-1` was left out: the file is in UTF-8, and that stays.",),
    ),
    Case(
        name="only an encoding line",
        before=CODE,
        old="def one():\n",
        new="\ufeff# coding: utf-8\ndef one():\n",
        said=(
            "The edit changes nothing.",
            "byte order mark was left out",
            "encoding line `# coding: utf-8` was left out",
        ),
    ),
    Case(
        name="no newline at EOF",
        before=CODE.rstrip(b"\n"),
        old="    return 2",
        new="    return 3",
        after=CODE.rstrip(b"\n").replace(b"return 2", b"return 3"),
    ),
    Case(
        name="old == new", before=CODE, old="return 2", new="return 2", said=("old_string and new_string are the same",)
    ),
)


class Edit:
    """The tool over one file, which the agent has read."""

    def __init__(self, folder: Path, before: bytes) -> None:
        self.path = folder / "a.py"
        self.path.write_bytes(before)
        self._tools = {tool.spec.name: tool for tool in make_file_tools(Workspace(folder), lambda _: None)}
        self._tools["Read"].run({"file_path": "a.py"})

    def __call__(self, **fields: JSON) -> ToolOutput:
        return self._tools["Edit"].run({"file_path": "a.py", **fields})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_edit(case: Case, tmp_path: Path) -> None:
    edit = Edit(tmp_path, case.before)
    answer = edit(old_string=case.old, new_string=case.new)
    assert answer.is_error == (case.after is None)
    assert edit.path.read_bytes() == (case.before if case.after is None else case.after)
    assert [part for part in case.said if part not in answer.text] == []


def test_batch_one_hit_one_miss_changes_nothing_and_says_which(tmp_path: Path) -> None:
    edit = Edit(tmp_path, CODE)
    answer = edit(
        old_string="return 1", new_string="return 8", edits=[{"old_string": "return 7", "new_string": "return 9"}]
    )
    assert answer.is_error
    assert answer.text.startswith("Edit 2 of 2 is not possible, so no edit was made: old_string is not in the file")
    assert edit.path.read_bytes() == CODE


def test_a_batch_whose_pieces_are_all_there_is_made_whole(tmp_path: Path) -> None:
    edit = Edit(tmp_path, CODE)
    more: JSON = [
        {"old_string": "return 2", "new_string": "return 9"},
        {"old_string": "return 9", "new_string": "pass"},
    ]
    answer = edit(old_string="return 1", new_string="return 8", edits=more)
    assert answer.text.startswith("Edited a.py at line 2; then at line 6; then at line 6. The lines are now:\n")
    assert edit.path.read_bytes() == CODE.replace(b"return 1", b"return 8").replace(b"return 2", b"pass")


def test_a_batch_may_pass_through_code_that_is_none(tmp_path: Path) -> None:
    edit = Edit(tmp_path, CODE)
    more: JSON = [{"old_string": "(:\n    return 1", "new_string": "(a):\n    return a"}]
    assert not edit(old_string="one():\n", new_string="one(:\n", edits=more).is_error
    assert b"def one(a):\n    return a\n" in edit.path.read_bytes()


def test_an_unknown_key_in_a_batch_is_told_and_nothing_is_changed(tmp_path: Path) -> None:
    edit = Edit(tmp_path, CODE)
    more: JSON = [{"old_string": "return 2", "new_string": "pass", "replaceAll": True}]
    answer = edit(old_string="return 1", new_string="return 8", edits=more)
    assert answer.is_error
    assert "unknown field `replaceAll` - at `$.edits[0]`" in answer.text
    assert edit.path.read_bytes() == CODE


def test_a_stand_in_for_code_is_refused_in_edit_and_write(tmp_path: Path) -> None:
    edit = Edit(tmp_path, CODE)
    answer = edit(old_string="    return 1", new_string="    # ... existing code ...")
    assert "Line 1 of the new text for a.py is a placeholder for omitted code" in answer.text
    write = {tool.spec.name: tool for tool in make_file_tools(Workspace(tmp_path), lambda _: None)}["Write"]
    answer = write.run({"file_path": "b.py", "content": "def a():\n    return 1\n\n\n# rest of the code unchanged\n"})
    assert "Line 5 of the new text for b.py" in answer.text
    assert edit.path.read_bytes() == CODE
    assert not (tmp_path / "b.py").exists()
