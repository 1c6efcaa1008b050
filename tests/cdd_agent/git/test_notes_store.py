import subprocess
import sys

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.git.notes import append_line, lock_notes, read_handoffs, read_note
from cdd_agent.git.repository import CommitId, Repository
from tests.cdd_agent.git.hostile.repository import plain
from tests.cdd_agent.git.notes_written import commit_of, head, landed
from tests.fakes.cases import soak_after

WRITER = """
import sys
from pathlib import Path
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import Repository
repository = Repository(Path(sys.argv[1]))
for number in range(5):
    append_line(repository, repository.read_head(), line=f'{{"writer": "{sys.argv[2]}", "number": {number}}}')
"""


def test_lines_are_appended_in_order_and_git_shows_them(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    append_line(repository, head, line='{"seq":1}')
    append_line(repository, head, line='{"seq":2}')
    assert read_note(repository, head).lines == ('{"seq":1}', '{"seq":2}')
    shown = subprocess.run(
        ["git", "notes", "--ref=tdd-handoffs", "show", "HEAD"],
        cwd=repository.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == '{"seq":1}\n{"seq":2}\n'


def test_the_same_line_is_kept_once(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    append_line(repository, head, line='{"seq":1}')
    append_line(repository, head, line='{"seq":1}')
    assert read_note(repository, head).lines == ('{"seq":1}',)


def test_no_character_of_a_line_tears_it(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    torn, half = '{"title":"a\u2028b\x85c\x0bd"}', '{"title":"\ud800"}'
    for line in (torn, half, half, '{"seq":3}'):
        append_line(repository, head, line=line)
    assert read_note(repository, head).lines == (torn, '{"title":"\\ud800"}', '{"seq":3}')


def test_a_commit_without_a_note_has_no_lines(repository: Repository) -> None:
    head = repository.read_head()
    assert head is not None
    assert read_note(repository, head).lines == ()


def test_no_line_is_lost_when_processes_write_at_once(repository: Repository) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(repository.root), name], stderr=subprocess.PIPE)
        for name in ("one", "two")
    ]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    head = repository.read_head()
    assert head is not None
    assert len(set(read_note(repository, head).lines)) == 10


WRITER_OF_MANY = """
import sys
from pathlib import Path
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository
repository = Repository(Path(sys.argv[1]))
for commit in sys.argv[2:]:
    append_line(repository, CommitId(commit), line=f'{{"on":"{commit}"}}')
"""


@pytest.mark.slow
def test_sixty_notes_that_four_processes_add_at_once_are_all_kept(repository: Repository) -> None:
    tree = repository.git("write-tree").strip()
    commits = [repository.git("commit-tree", tree, ("-m",), str(number)).strip() for number in range(60)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER_OF_MANY, str(repository.root), *commits[first::4]], stderr=subprocess.PIPE
        )
        for first in range(4)
    ]
    errors = [writer.communicate(timeout=240)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0], errors
    listed = plain(repository.root, "notes", "--ref=tdd-handoffs", "list").stdout.decode().splitlines()
    assert {line.split(" ")[1] for line in listed} == set(commits)
    assert all(read_note(repository, CommitId(commit)).lines == (f'{{"on":"{commit}"}}',) for commit in commits[::20])


def test_a_note_follows_its_commit_when_that_is_amended(repository: Repository) -> None:
    commit = landed(repository)
    lines = read_note(repository, commit).lines
    with lock_notes(repository):
        repository.git("commit", ("--amend", "--quiet", "-m"), "test: in other words")
    assert head(repository) != commit
    assert read_note(repository, head(repository)).lines == lines


@soak_after(1, "ours", [True, False], ids=["by-this-program", "by-plain-git"])
def test_notes_follow_their_commits_through_a_rebase(repository: Repository, *, ours: bool) -> None:
    """The control shows that it is the setting of this program that keeps them."""
    old = [landed(repository, phase=phase) for phase in ("RED", "GREEN")]
    lines = [read_note(repository, commit).lines for commit in old]
    plain(repository.root, "config", "notes.rewrite.rebase", "false")
    plain(repository.root, "checkout", "--quiet", "-b", "base", "main~2")
    commit_of(repository, "chore: before", name="before")
    plain(repository.root, "checkout", "--quiet", "main")
    if ours:
        with lock_notes(repository):
            repository.git("rebase", ("--quiet",), "base")
    else:
        plain(repository.root, "rebase", "--quiet", "base")
    new = [CommitId(commit) for commit in plain(repository.root, "log", "--format=%H", "-2").stdout.decode().split()]
    assert set(new).isdisjoint(old)
    assert [read_note(repository, commit).lines for commit in reversed(new)] == (lines if ours else [(), ()])


def test_the_lines_of_squashed_commits_are_all_readable_on_the_one_that_is_left(repository: Repository) -> None:
    old = [landed(repository, phase=phase) for phase in ("RED", "GREEN")]
    lines = [line for commit in old for line in read_note(repository, commit).lines]
    todo = repository.root / ".git" / "todo"
    todo.write_text(f"pick {old[0]}\nsquash {old[1]}\n")
    with lock_notes(repository):
        repository.git("rebase", ("--quiet", "-i"), "HEAD~2", variables={"GIT_SEQUENCE_EDITOR": f"cp {todo}"})
    squashed = head(repository)
    shown = plain(repository.root, "notes", "--ref=tdd-handoffs", "show", "HEAD").stdout.decode()
    assert shown.split("\n\n") != [shown], "git puts an empty line between them"
    assert list(read_note(repository, squashed).lines) == lines
    assert [each.phase for each in read_handoffs(repository, squashed)] == ["RED", "GREEN"]
    append_line(repository, squashed, line='{"seq":3}')
    assert len(read_note(repository, squashed).lines) == 3


def test_only_one_changes_notes_at_a_time(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = landed(repository)
    monkeypatch.setattr("cdd_agent.git.notes.LOCK_WAIT_S", 0.1)
    with lock_notes(repository), pytest.raises(UsageError, match="already in progress"):
        append_line(repository, commit, line="{}")
