"""A change of a file is reported with its diff."""

from pathlib import Path

import pytest

from cdd_agent.agent.editing import MAX_SHOWN_LINES, report_change
from cdd_agent.events import Event, FileChanged
from cdd_agent.workspace.files import Workspace, Written


@pytest.mark.parametrize(
    ("before", "after", "diff"),
    [
        (None, b"a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b"),
        (b"a\nb\n", b"a\nc\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c"),
        (b"a\r\n", b"b\r\n", "@@ -1 +1 @@\n-a\n+b"),
        (None, b"\0\1", ""),
        (b"x\n", b"y\n" * (MAX_SHOWN_LINES + 1), ""),
        (b"\xff", b"y", "@@ -1 +1 @@\n-\udcff\n+y"),
    ],
)
def test_the_diff_has_hunks_only(before: bytes | None, after: bytes, diff: str) -> None:
    seen: list[Event] = []
    report_change(Written("a.py", before, after), emit=seen.append)
    assert seen == [FileChanged(path="a.py", diff=diff)]


def test_a_workspace_reports_what_it_writes(tmp_path: Path) -> None:
    written: list[Written] = []
    workspace = Workspace(tmp_path, on_write=written.append)
    workspace.write("new/a.txt", b"1")
    workspace.write("./new/a.txt", b"2")
    assert written == [("new/a.txt", None, b"1"), ("new/a.txt", b"1", b"2")]
