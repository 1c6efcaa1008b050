"""The diff viewer over real commits, with keys from a pipe and a screen that is read back."""

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.repl.diff_view import HELP, Action, DiffView, ReviewDecision
from cdd_agent.review import Comments, Place, diff_commits
from cdd_agent.runs.review import LandedCommit, StepToReview
from cdd_agent.work.records import find_records
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock

ROWS, COLUMNS = 30, 90
ACTIONS: frozenset[Action] = frozenset({"approve", "iterate"})


class Viewer:
    """A viewer and its screen."""

    def __init__(self, project: Path, *, size: tuple[int, int] = (ROWS, COLUMNS)) -> None:
        self.comments = Comments(Repository.find(project), project, clock=FakeClock())
        base, commit = self.comments.repository.git("rev-list", ("--reverse",), "HEAD").split()
        landed = LandedCommit(commit=CommitId(commit), subject="change", evidence=(), is_in_history=True)
        files = diff_commits(self.comments.repository, base, after=commit)
        self.step = StepToReview(
            number=1, title="Table", commits=(landed,), files=files, decision=None, base=base, total=2
        )
        self.actions = ACTIONS
        self.size = size
        self.delays_s: list[float] = []
        """CPU time from each key to the screen. Other processes do not count."""

    def press(self, *keys: str) -> tuple[ReviewDecision, list[str]]:
        """Press the keys one after the other, each when the screen shows the one before; return the last screen."""
        rows, columns = self.size
        stream, screen = io.StringIO(), pyte.Screen(columns, rows)
        terminal, waiting = pyte.Stream(screen), list(keys)
        with create_pipe_input() as pipe:
            output = Vt100_Output(stream, lambda: Size(rows=rows, columns=columns), term="xterm", enable_cpr=False)
            with create_app_session(input=pipe, output=output):
                view = DiffView(self.step, head=("GREEN: gate open",), comments=self.comments, actions=self.actions)
                pressed_s, shown = time.process_time(), [""]

                def press_next(_: object) -> None:
                    nonlocal pressed_s
                    if view.application.is_done:
                        return
                    self.delays_s.append(time.process_time() - pressed_s)
                    terminal.feed(stream.getvalue())
                    stream.seek(0)
                    stream.truncate()
                    shown[:] = [line.rstrip() for line in screen.display]
                    pressed_s = time.process_time()
                    pipe.send_text(waiting.pop(0) if waiting else "q")

                view.application.after_render += press_next
                return view.run(), shown


@pytest.fixture(scope="module")
def reviewed_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("viewed")
    repository = Repository.create(project)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    (project / "table.py").write_text("".join(f"def column_{n}():\n    return {n}\n\n" for n in range(20)))
    (project / "old.txt").write_text("gone\n")
    commit_paths(repository, "first", paths=["table.py", "old.txt"])
    text = (
        (project / "table.py").read_text().replace("return 3\n", "return 3 + 1\n").replace("return 18", "return '18'")
    )
    (project / "table.py").write_text(text)
    (project / "old.txt").unlink()
    (project / "evil\x1b[2J.txt").write_text("\x1b[31mred \u202e\r\nnext\n")
    commit_paths(repository, "second", paths=["table.py", "old.txt", "evil\x1b[2J.txt"])
    return project


@pytest.fixture
def viewer(reviewed_project: Path) -> Iterator[Viewer]:
    viewer = Viewer(reviewed_project)
    yield viewer
    for path in (find_records(reviewed_project).folder / "comments").glob("*.jsonl"):
        path.unlink()


def find(screen: list[str], text: str) -> str:
    return next(row for row in screen if text in row)


def test_the_files_are_listed_with_evidence_above_and_keys_below(viewer: Viewer) -> None:
    decision, screen = viewer.press()
    assert decision == ReviewDecision("leave")
    assert screen[0].startswith(" Step 1/2  Table")
    assert screen[1:5] == [
        ">GREEN: gate open",
        " 3 files, +4 -3",
        "   A evil<U+001B>[2J.txt  +2 -0",
        "   D old.txt  +0 -1",
    ]
    assert "a approve  i iterate  c comment  ? keys  q leave" in screen[-1]


def test_lines_have_old_and_new_numbers_and_are_harmless(viewer: Viewer) -> None:
    _, screen = viewer.press()
    assert find(screen, "red") == "         1 + <U+001B>[31mred <U+202E>"
    _, screen = viewer.press("\t", "\t", "\t")
    assert find(screen, "return 3\x20".strip()) == "   11      -     return 3"
    assert find(screen, "return 3 + 1") == "        11 +     return 3 + 1"


@soak_after(
    1,
    ("keys", "row"),
    [
        (("j", "j", "j", "k"), "   A evil<U+001B>"),
        (("G",), "   59   59       return 19"),
        (("G", "g"), "GREEN"),
        (("\t", "\t"), " D old.txt"),
        (("\t", "\t", "\x1b[Z"), " A evil<U+001B>"),
        (("n", "n", "n"), "@@ -8,7 +8,7 @@"),
        (("n", "n", "n", "N"), "@@ -1 +0,0 @@"),
        ((*"\t\t\t:55", "\r"), "   55   55   def column_18():"),
        ((*"/return '", "\r"), "        56 +     return '18'"),
        (("j", "j", "j", "j", "\r"), " M table.py"),
        (("\x1b[6~", "\x1b[5~", "j"), "3 files"),
    ],
)
def test_a_key_moves_the_cursor(keys: tuple[str, ...], row: str, *, viewer: Viewer) -> None:
    _, screen = viewer.press(*keys)
    assert row.strip() in next(line for line in screen if line.startswith(">"))


def test_a_comment_is_written_answered_folded_and_resolved(viewer: Viewer) -> None:
    _, screen = viewer.press(*"/return 3 +", "\r", "c", *"Why + 1?", "\r", "r", *"It is.", "\r", "e", *" Or 2?", "\r")
    at = screen.index(find(screen, "return 3 + 1"))
    assert screen[at + 1 : at + 4] == [screen[at + 1], "   ┃ Why + 1? Or 2?", "   ┃ user: It is."]
    assert screen[at + 1].endswith(" user, open, 1 reply")
    (comment,) = viewer.comments.list_all()
    assert (comment.place, comment.text) == ("table.py:11", "Why + 1? Or 2?")
    _, screen = viewer.press("n", "n", "n", "n", "x", "\r")
    assert find(screen, "┃").endswith(" user, resolved, 1 reply: Why + 1? Or 2?")
    assert viewer.comments.list_all()[0].resolved


@pytest.mark.slow
def test_a_comment_on_the_whole_commit_can_be_edited_and_resolved_at_once(viewer: Viewer) -> None:
    viewer.press("c", *"All", "\r", "e", *" of it", "\r", "x")
    (comment,) = viewer.comments.list_all()
    assert (comment.place, comment.text, comment.resolved) == ("the whole commit", "All of it", True)


def test_sixty_columns_and_twenty_rows_are_enough(viewer: Viewer) -> None:
    viewer.size, viewer.actions = (20, 60), frozenset({"approve", "iterate", "fork"})
    keys = viewer.press()[1][-1]
    assert keys.split("  ")[1:] == ["a approve", "i iterate", "f fork", "? keys", "q leave"]
    assert max(len(text) for _, text in HELP) <= 60 - len(f"  {'':<17}")
    assert len(HELP) <= 18
    assert viewer.press("x")[1][-2:] == [" There is nothing to answer here. n goes to the next one, c", "writes one."]
    assert "'x' is not the number of a line. For example: :12" in viewer.press(":", "x", "\r")[1][-1]


@pytest.mark.slow
def test_a_range_and_a_removed_line_can_be_commented(viewer: Viewer) -> None:
    viewer.press(*"/return 3 +", "\r", "v", "k", "k", "c", *"Both", "\r", "r", *"Yes", "\r")
    viewer.press(*"/gone", "\r", "c", *"Still used", "\r")
    viewer.press("r", *"All of it", "\r")  # it begins a comment if it cannot reply to one, so "A" is text and not a key
    viewer.press("\t", "c", *"From a heading", "\r", "j", "c", *"From a comment", "\r")
    places = {comment.text: comment.place for comment in viewer.comments.list_all()}
    assert places == {
        "Both": "table.py:10-11",
        "Still used": "old.txt:1 (removed line)",
        "All of it": "the whole commit",
        "From a heading": "evil\x1b[2J.txt:1",
        "From a comment": "evil\x1b[2J.txt:1",
    }
    assert [reply.text for comment in viewer.comments.list_all() for reply in comment.replies] == ["Yes"]
    _, screen = viewer.press()
    assert find(screen, "All of it")


@pytest.mark.slow
def test_a_removed_line_of_a_renamed_file_keeps_its_comment(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    text = "".join(f"line {number}\n" for number in range(20))
    (tmp_path / "old.py").write_text(text)
    commit_paths(repository, "first", paths=["old.py"])
    (tmp_path / "old.py").rename(tmp_path / "new.py")
    (tmp_path / "new.py").write_text(text.replace("line 3\n", "three\n"))
    commit_paths(repository, "second", paths=["old.py", "new.py"])
    viewer = Viewer(tmp_path)
    _, screen = viewer.press(*"/line 3", "\r", "c", *"Why?", "\r")
    assert find(screen, " R old.py -> new.py  +1 -1")
    at = screen.index(find(screen, "- line 3"))
    assert screen[at + 2] == "   \u2503 Why?"
    assert [comment.place for comment in viewer.comments.list_all()] == ["old.py:4 (removed line)"]


def test_a_decision_ends_the_viewer(viewer: Viewer) -> None:
    assert viewer.press("a")[0] == ReviewDecision("approve")
    assert viewer.press("i", *"Use csv", "\r")[0] == ReviewDecision("iterate", "Use csv")
    decision, screen = viewer.press("i", "\r", "?", " ", "f")
    assert decision == ReviewDecision("leave")
    assert "You cannot fork here." in screen[-1]
    viewer.actions = frozenset()
    assert "You cannot approve here." in viewer.press("a")[1][-1]


def test_comments_outside_of_the_hunks_and_outdated_ones_are_shown(viewer: Viewer) -> None:
    viewer.comments.add(Place("table.py", 30, 30), "Not in a hunk.", commit=viewer.step.commits[-1].commit)
    _, screen = viewer.press("\t", "\t", "\t")
    assert find(screen, "open, on table.py:30")
    assert find(screen, "Not in a hunk.")


@pytest.mark.slow
def test_ten_thousand_changed_lines_open_in_a_second_and_a_key_takes_50_ms(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    for number in (0, 1):
        for name in ("one.py", "two.py"):
            lines = (
                f"def value_{n}(x: int) -> str:\n    return f'{{x}} {n + number}'  # the same\n" for n in range(2500)
            )
            (tmp_path / name).write_text("".join(lines))
        commit_paths(repository, "work", paths=["one.py", "two.py"])
    viewer = Viewer(tmp_path)
    assert sum((file.added or 0) + (file.removed or 0) for file in viewer.step.files) == 10_000
    started_s = time.process_time()
    viewer.press()
    assert time.process_time() - started_s < 1
    viewer.delays_s.clear()
    folds = ["\r", "\r", "j", "c", *"why", "\r", "x", "x", "/", "9", "\r", "/", "\r", ":", "7", "\r"]
    viewer.press("G", "g", *["\x1b[6~"] * 20, "\t", *"jjjjjjjjjjjnnnN", "\x1b[Z", *folds, *"gG")
    first, *delays = viewer.delays_s
    assert first < 1
    # Not the slowest one, which another process may have kept from the processor's cache.
    assert sorted(delays)[-2] < 0.05, delays
