"""Comments, saved in a real project, and found again when its code moves."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.review import WHOLE, Anchors, Comment, Comments, Place, parse_place
from cdd_agent.work.records import find_records
from tests.fakes.clock import FakeClock

TABLE = [f"def column_{number}():\n    return {number}\n\n" for number in range(6)]
LINE = 8
"""Of ``TABLE``: what ``column_2`` returns."""

Commit = Callable[..., str]


@pytest.fixture
def comments(tmp_path: Path) -> Comments:
    repository = Repository.create(tmp_path)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    return Comments(repository, tmp_path, clock=FakeClock())


@pytest.fixture
def commit(comments: Comments) -> Commit:
    def write(files: dict[str, str | None], message: str = "work") -> str:
        for name, text in files.items():
            path = comments.repository.root / name
            path.unlink() if text is None else path.write_text(text)
        return commit_paths(comments.repository, message, paths=files)

    return write


def find(comments: Comments, comment: Comment, at: str) -> Place | None:
    return Anchors(comments.repository, at).find(comment)


def test_a_comment_keeps_its_lines_and_the_step_of_its_commit(comments: Comments, commit: Commit) -> None:
    made = commit({"table.py": "".join(TABLE)}, "feat: table\n\nTicket: csv\nStep: 2\n")
    comment = comments.add(Place("table.py", LINE, LINE), " Why 2? ", commit="HEAD")
    assert (comment.commit, comment.text, comment.author, comment.resolved) == (made, "Why 2?", "user", False)
    assert comment.lines == ("    return 2",)
    assert comment.before == ("    return 1", "", "def column_2():")
    assert comment.after == ("", "def column_3():", "    return 3")
    assert comments.list_of_step("csv", 2) == (comment,)
    (line,) = (find_records(comments.repository.root).folder / f"comments/{made}.jsonl").read_text().splitlines()
    assert json.loads(line)["file"] == "table.py"


def test_replies_and_a_resolution_are_saved_with_the_comment(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "".join(TABLE)})
    comment = comments.add(WHOLE, "Too long.", commit="HEAD")
    comments.edit(comment.id[:5], "Too long, I think. ")
    comments.reply(comment.id[:5], "Shortened.", author="ai")
    comments.resolve(comment.id)
    (found,) = comments.list_all()
    assert (found.text, found.resolved) == ("Too long, I think.", True)
    assert [(reply.author, reply.text) for reply in found.replies] == [("ai", "Shortened.")]
    assert not comments.resolve(comment.id, resolved=False).resolved


def test_a_line_keeps_its_comment_when_lines_come_before_it(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "".join(TABLE)})
    comment = comments.add(Place("table.py", LINE, LINE), "?", commit="HEAD")
    moved = commit({"table.py": "import csv\n\n" + "".join(TABLE)})
    assert find(comments, comment, moved) == Place("table.py", LINE + 2, LINE + 2)


def test_a_moved_line_is_found_by_its_text_in_the_file(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "".join(TABLE)})
    comment = comments.add(Place("table.py", LINE - 1, LINE), "?", commit="HEAD")
    moved = commit({"table.py": "".join([*TABLE[:2], *TABLE[3:], TABLE[2]])})
    assert find(comments, comment, moved) == Place("table.py", 16, 17)


def test_an_edited_line_is_found_by_its_likeness(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "".join(TABLE)})
    comment = comments.add(Place("table.py", LINE, LINE), "?", commit="HEAD")
    moved = commit({"table.py": "".join(TABLE).replace("return 2", "return 2 + 1")})
    assert find(comments, comment, moved) == Place("table.py", LINE, LINE)


@pytest.mark.slow
def test_a_range_is_found_by_the_half_of_its_lines_that_is_unchanged(comments: Comments, commit: Commit) -> None:
    text = "".join(TABLE)
    commit({"table.py": text})
    comment = comments.add(Place("table.py", LINE - 1, LINE), "Document it.", commit="HEAD")
    head, body = comment.lines
    for change, place in (
        ({head: f"{head}\n    # two\n"}, (LINE - 1, LINE + 2)),
        ({body: "    x = 1\n    y = x * 5\n    return y / 7 - 3"}, (LINE - 1, LINE - 1)),
        ({head: "# of the table\ndef second_column(self, *args):"}, (LINE + 1, LINE + 1)),
        ({head: "class Column:", body: "    pass"}, None),
    ):
        changed = text
        for old, new in change.items():
            changed = changed.replace(old, new)
        assert find(comments, comment, commit({"table.py": changed})) == (place and Place("table.py", *place)), change


def test_a_line_is_found_in_the_file_to_which_it_moved(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "".join(TABLE)})
    comment = comments.add(Place("table.py", LINE - 1, LINE - 1), "?", commit="HEAD")
    moved = commit({"table.py": None, "columns.py": "# all\n" + "".join(TABLE)})
    assert find(comments, comment, moved) == Place("columns.py", LINE, LINE)


def test_a_comment_on_code_that_is_gone_is_outdated(comments: Comments, commit: Commit) -> None:
    first = commit({"table.py": "".join(TABLE)})
    comment = comments.add(Place("table.py", LINE - 1, LINE), "?", commit="HEAD")
    assert find(comments, comment, commit({"table.py": "".join([*TABLE[:2], *TABLE[3:]])})) is None
    assert find(comments, comments.add(WHOLE, "All of it.", commit=first), "HEAD") == WHOLE


def test_a_removed_line_is_one_of_the_commit_before(comments: Comments, commit: Commit) -> None:
    base = commit({"table.py": "".join(TABLE)})
    commit({"table.py": "".join(TABLE[1:])})
    comment = comments.add(Place("table.py", 1, 1), "Still used.", commit="HEAD", side="old", base=base)
    assert comment.lines == ("def column_0():",)
    assert find(comments, comment, base) == Place("table.py", 1, 1)


def test_what_cannot_be_commented_is_refused_with_a_hint(comments: Comments, commit: Commit) -> None:
    commit({"table.py": "one\n"})
    for place, message in ((Place("tabel.py", 1, 1), "has no file tabel.py"), (Place("table.py", 2, 2), "has 1 lines")):
        with pytest.raises(UsageError, match=message):
            comments.add(place, "?", commit="HEAD")
    with pytest.raises(UsageError, match="no text"):
        comments.add(Place("table.py", 1, 1), "  ", commit="HEAD")
    for text in ("table.py", "table.py:0", "table.py:5-3"):
        with pytest.raises(UsageError, match="does not name lines"):
            parse_place(text)
    with pytest.raises(UsageError, match="No comment has the id 'abc'"):
        comments.reply("abc", "?")


def test_a_damaged_file_is_named_with_its_line_and_is_not_overwritten(comments: Comments, commit: Commit) -> None:
    made = commit({"table.py": "one\n"})
    comments.add(WHOLE, "?", commit="HEAD")
    path = find_records(comments.repository.root).folder / f"comments/{made}.jsonl"
    damaged = path.read_text() + '{"id": 1}\n'
    path.write_text(damaged)
    with pytest.raises(DocumentError, match="line 2"):
        comments.add(WHOLE, "again", commit="HEAD")
    assert path.read_text() == damaged
    path.write_text(damaged.splitlines()[0].replace('"schema":1', '"schema":2') + "\n")
    with pytest.raises(DocumentError, match="newer cdd"):
        comments.list_all()
