import subprocess
import sys

from cdd_agent.git.notes.store import append_line, read_lines
from cdd_agent.git.repository import Repository

WRITER = """
import sys
from pathlib import Path
from cdd_agent.git.notes.store import append_line
from cdd_agent.git.repository import Repository
repository = Repository(Path(sys.argv[1]))
for number in range(5):
    append_line(repository, repository.head(), line=f'{{"writer": "{sys.argv[2]}", "number": {number}}}')
"""


def test_lines_are_appended_in_order_and_git_shows_them(repository: Repository) -> None:
    head = repository.head()
    assert head is not None
    append_line(repository, head, line='{"seq":1}')
    append_line(repository, head, line='{"seq":2}')
    assert read_lines(repository, head) == ('{"seq":1}', '{"seq":2}')
    shown = subprocess.run(
        ["git", "notes", "--ref=tdd-handoffs", "show", "HEAD"],
        cwd=repository.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == '{"seq":1}\n{"seq":2}\n'


def test_the_same_line_is_kept_once(repository: Repository) -> None:
    head = repository.head()
    assert head is not None
    append_line(repository, head, line='{"seq":1}')
    append_line(repository, head, line='{"seq":1}')
    assert read_lines(repository, head) == ('{"seq":1}',)


def test_no_character_of_a_line_tears_it(repository: Repository) -> None:
    head = repository.head()
    assert head is not None
    torn, half = '{"title":"a\u2028b\x85c\x0bd"}', '{"title":"\ud800"}'
    for line in (torn, half, half, '{"seq":3}'):
        append_line(repository, head, line=line)
    assert read_lines(repository, head) == (torn, '{"title":"\\ud800"}', '{"seq":3}')


def test_a_commit_without_a_note_has_no_lines(repository: Repository) -> None:
    head = repository.head()
    assert head is not None
    assert read_lines(repository, head) == ()


def test_no_line_is_lost_when_processes_write_at_once(repository: Repository) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(repository.root), name], stderr=subprocess.PIPE)
        for name in ("one", "two", "three")
    ]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], errors
    head = repository.head()
    assert head is not None
    assert len(set(read_lines(repository, head))) == 15
