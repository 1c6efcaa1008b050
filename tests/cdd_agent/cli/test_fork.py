"""``cdd fork``: a step is done in another way, compared, merged and dropped."""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.agent.sessions import Transcript, load_session
from cdd_agent.cli.app import run
from cdd_agent.git.fork import Fork, Forks
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import Checkpoints, Description
from cdd_agent.model.conversation import Conversation, Text, UserMessage
from cdd_agent.tickets.ticket import find
from cdd_agent.work.journal import journal_path
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState
from cdd_agent.work.state_file import load_state, save_state
from tests.fakes.cases import soak_after
from tests.fakes.clock import FakeClock
from tests.fakes.command_line import run_words
from tests.fakes.demo import RECORDING, SLUG, ProjectCrew, captured

DIRECTION = ("Carry it out in another way.", "Use one form")
SOURCE, TESTS = "durations/reading.py", "tests/test_reading.py"


def git(folder: Path, *arguments: str) -> str:
    return run_words(Repository.find(folder), *arguments)


def state(project: Path) -> RunState:
    loaded = load_state(find(project, SLUG).state_path)
    assert loaded is not None
    return loaded


def fork(project: Path, *words: str) -> Fork:
    """Make a fork on the command line and return its record."""
    assert run(["--project", str(project), "fork", SLUG, *words]) == 0
    return Forks(project).list_all()[-1]


def commit(folder: Path, path: str, text: str) -> None:
    (folder / path).write_text(text)
    git(folder, "add", path)
    git(folder, "commit", "-qm", f"change {path}")


def test_a_fork_is_worked_on_compared_merged_and_dropped(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, log = str(finished), git(finished, "log", "--format=%H")
    checkpoints = git(finished, *(own := ("for-each-ref", f"refs/cdd/checkpoints/{SLUG}/step-*")))
    made = fork(finished, "1", "Use", "one form")
    inside = Forks(finished).find_project(made)
    assert (made.direction, git(inside, "rev-parse", "HEAD").strip()) == ("Use one form", made.base)
    assert (inside / SOURCE).read_text() != (finished / SOURCE).read_text()
    forked = state(inside).execution(1)
    assert (forked.status, forked.commits) == ("pending", {})
    assert forked.guidance == "Use one form"

    with captured() as (screen, out):
        crew = ProjectCrew(finished, screen=screen, replay=RECORDING)
        vars(crew)["settings"] = replace(crew.settings, evidence_timeout_s=0)
        executor = crew.executor(find(finished, SLUG))
        with executor.running():
            executor.run_all()
        crew.close()
    assert f"Working in the fork {made.name}." in out.getvalue().replace("\n", " ")
    assert git(finished, "log", "--format=%H") == log
    assert git(finished, "status", "--porcelain") == ""
    assert git(finished, *own) == checkpoints
    assert git(inside, "log", "-1", "--format=%s|%D").startswith("fix: Minutes after hours need no unit|")
    assert state(inside).execution(1).status == "completed"
    sent = (find_records(inside).folder / "reports" / SLUG / "step-1-red.conversation").read_text()
    assert sent.count("Carry out step 1 of the plan.") == 2  # the fork's conversation begins with the first one's
    assert all(part in sent for part in DIRECTION)

    assert run(["--project", here, "review", SLUG, "--approve", "1"]) == 0
    assert f"To take it over: cdd fork merge {made.name}" in capsys.readouterr().out.replace("\n  ", " ")
    assert (state(inside).execution(1).review, state(finished).execution(1).review) == ("approved", None)

    assert run(["--project", here, "fork", "compare", "one-form", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()[-2:]]
    assert [(row["steps"], row["tests"], row["changes"]) for row in rows] == [
        ({"1": "completed"}, {"passed": 11}, "3 files, +21 -6")
    ] * 2
    assert [row["gates"][1] for row in rows] == ["GREEN open after 2 attempts"] * 2

    commit(inside, "README.md", "# From the fork\n")
    (finished / "notes.txt").write_text("mine\n")
    (finished / TESTS).write_text("mine, not committed\n")
    tokens = state(finished).usage.tokens
    assert run(["--project", here, "fork", "merge", "one-form"]) == 2
    assert "cdd cannot ask you here. Nothing was merged." in capsys.readouterr().err
    assert run(["--project", here, "fork", "merge", "one-form", "--yes"]) == 0
    assert git(finished, "status", "--porcelain") == f" M {TESTS}\n?? notes.txt\n"
    assert (finished / "README.md").read_text() == "# From the fork\n"
    assert state(finished).execution(1).commits == state(inside).execution(1).commits
    assert state(finished).usage.tokens == state(inside).usage.tokens > tokens
    assert run(["--project", here, "review", SLUG, "--json"]) == 0
    assert "merged" in listed(here, capsys)
    assert run([*(drop := ["--project", here, "fork", "drop", "one-form", "--yes"]), "--confirm", "one-form"]) == 2
    assert (inside.exists(), run(drop), inside.exists()) == (True, 0, False)
    shown = listed(here, capsys)
    assert f"{made.name}  merged\n" in shown
    assert f"kept: {made.kept}" in shown.replace("\n      ", " ")


@pytest.mark.slow
def test_a_step_that_was_iterated_later_is_done_in_the_fork(finished: Path) -> None:
    commit(finished, "README.md", "# Step 2\n")
    commit(finished, SOURCE, "iterated\n")
    last, _, base = git(finished, "log", "-3", "--format=%H").split()
    now, first = state(finished), state(finished).execution(1)
    second = replace(first, step_number=2, base_commit=base, commits={"green": last})
    iterated = replace(first, base_commit=last, commits={"refactor": last})
    save_state(find(finished, SLUG).state_path, replace(now, step_executions={1: iterated, 2: second}))
    inside = Forks(finished).find_project(fork(finished, "2", "Use one form"))
    assert git(inside, "rev-parse", "HEAD").strip() == base
    assert [each.status for each in state(inside).step_executions.values()] == ["completed", "pending"]


def listed(here: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["--project", here, "fork", "list"]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_conflicts_are_listed_resolved_or_aborted(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, made = str(finished), fork(finished, "Rename it")
    inside = Forks(finished).locate(made)
    commit(inside, "README.md", "# Theirs\n")
    commit(finished, "README.md", "# Ours\n")
    merge = ["--project", here, "fork", "merge", "rename"]
    assert run([*merge, "--yes"]) == 1
    told = capsys.readouterr()
    assert "Conflicts in 1 file:\n  README.md" in told.out
    assert f"cdd fork merge {made.name} --resolve, --ours or --theirs" in told.err.replace("\n", " ")
    assert run([*merge, "--resolve"]) == 0
    assert "<<<<<<<" in (inside / "README.md").read_text()
    assert run([*merge, "--abort"]) == 0
    assert (inside / "README.md").read_text() == "# Theirs\n"
    assert run([*merge, "--theirs", "--yes", "--json"]) == 0
    planned, again, merged = (json.loads(line) for line in capsys.readouterr().out.splitlines()[-3:])
    assert (planned["conflicts"], again["conflicts"], merged["event"]) == (["README.md"], [], "ForkMerged")
    commit(inside, ".gitattributes", "*.bin filter=lfs\n")
    commit(inside, "a.bin", f"version https://git-lfs.github.com/spec/v1\noid sha256:{0:064}\nsize 1\n")
    assert run([*merge, "--yes"]) == 0
    assert "Only pointers of Git LFS for now: a.bin. Their content: git lfs checkout" in capsys.readouterr().out
    assert (finished / "README.md").read_text() == "# Theirs\n"


def test_a_merge_by_one_side_is_tested_before_a_step_counts(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, made, text = str(finished), fork(finished, "Rename it"), (finished / SOURCE).read_text()
    inside, done = Forks(finished).locate(made), state(finished)
    commit(inside, SOURCE, "raise SystemExit\n")
    commit(finished, SOURCE, f"# Ours\n{text}")
    head = git(finished, "rev-parse", "HEAD")
    tip = git(inside, "rev-parse", "HEAD").strip()
    landed = replace(done.execution(1), commits={"green": tip}, review=None)
    save_state(find(inside, SLUG).state_path, replace(done, step_executions={1: landed}))
    merge = ["--project", here, "fork", "merge", "rename", "--yes"]
    assert run(["--project", here, "fork", "compare", "rename"]) == 0
    assert "raise SystemExit" in capsys.readouterr().out
    assert run([*merge, "--theirs"]) == 1
    assert "Nothing was merged. With the changes of both sides" in capsys.readouterr().err
    assert (git(finished, "rev-parse", "HEAD"), state(finished)) == (head, done)
    assert run([*merge, "--ours"]) == 0
    assert "takes over" in capsys.readouterr().out
    assert state(finished).execution(1).commits == {"green": tip}


@pytest.mark.slow
def test_a_report_has_the_cost_of_each_fork_also_when_it_was_dropped(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, report = fork(finished, "Use a table"), ["--project", str(finished), "report", SLUG, "--json"]
    journal = journal_path(Forks(finished).find_project(made), SLUG)
    journal.parent.mkdir(parents=True)
    shutil.copy(journal_path(finished, SLUG), journal)

    def read(name: str) -> dict[str, dict[str, dict[str, int]]]:
        capsys.readouterr()
        assert run(report) == 0
        costs: dict[str, dict[str, dict[str, int]]] = json.loads(capsys.readouterr().out)[name]
        return costs

    active = read("fork_costs")[f"{made.name}, active"]["usage"]["calls"]
    assert active == sum(phase["usage"]["calls"] for phase in read("phases").values()) > 0
    commit(Forks(finished).locate(made), "README.md", "# Not merged\n")
    assert run(["--project", str(finished), "fork", "drop", "table", "--confirm", made.name]) == 0
    assert read("fork_costs")[f"{made.name}, abandoned"]["usage"]["calls"] == active


KILLED = """
import os, sys
from cdd_agent.cli.app import run
from cdd_agent.work.records import find_records
count, point, words = 0, int(sys.argv[1]), sys.argv[2:]
def at_each(event, arguments):
    global count
    if event in ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "subprocess.Popen") or (
        event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        count += 1
        if count == point:
            os.kill(os.getpid(), 9)
sys.addaudithook(at_each)
status = run(words)
print(count)
sys.exit(int(status))
"""


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 30])
def test_a_merge_that_is_killed_at_any_point_is_finished_by_the_next_one(
    finished: Path, tmp_path: Path, *, most: int
) -> None:
    made = fork(finished, "Rename it")
    inside, before = Forks(finished).locate(made), git(finished, "rev-parse", "HEAD")
    commit(inside, "README.md", "# Theirs\n")
    commit(finished, "README.md", "# Ours\n")
    tip = git(inside, "rev-parse", "HEAD").strip()
    done = state(finished)
    landed = replace(done.execution(1), commits={"green": tip}, review=None)
    save_state(find(inside, SLUG).state_path, replace(done, step_executions={1: landed}))
    words = ["--project", str(finished), "fork", "merge", made.name, "--theirs", "--yes"]
    start = tmp_path / "start"
    subprocess.run(["cp", "-a", str(finished), str(start)], check=True)

    def attempt(point: int) -> subprocess.CompletedProcess[str]:
        subprocess.run(["rm", "-rf", str(finished)], check=True)
        subprocess.run(["cp", "-a", str(start), str(finished)], check=True)
        argv = [sys.executable, "-c", KILLED, str(point), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    points = range(1, int(attempt(-1).stdout.split()[-1]) + 1)
    outcome = git(finished, "rev-parse", "HEAD^{tree}")
    # The last writes are those that a kill used to cut off: the branch has moved, and the ticket not followed yet.
    for point in (points[-6], *random.Random(0).sample(points, k=most)):
        assert attempt(point).returncode == -9
        assert git(inside, "status", "--porcelain") == ""
        assert git(inside, "rev-parse", "HEAD").strip() == tip
        run(words)
        assert git(finished, "rev-parse", "HEAD^{tree}") == outcome, point
        assert git(finished, "rev-list", "--count", "--merges", f"{before.strip()}..HEAD") == "1\n", point
        assert (git(finished, "status", "--porcelain"), (finished / "README.md").read_text()) == ("", "# Theirs\n")
        assert state(finished).execution(1).commits == {"green": tip}, point
        assert Forks(finished).find_current(SLUG) is None
        assert not any(each.is_merging for each in Forks(finished).list_all())


def test_work_that_is_nowhere_else_is_dropped_only_by_its_full_name(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fork(finished, "Use a table")
    (Forks(finished).locate(made) / SOURCE).write_text("not committed\n")
    drop = ["--project", str(finished), "fork", "drop", "table"]
    for words in (["--yes"], ["--confirm", "table"]):
        assert run([*drop, *words]) == 2
        assert f"--confirm {made.name}" in capsys.readouterr().err.replace("\n", "").replace("   ", " ")
    assert run([*drop, "--confirm", made.name]) == 0
    assert git(finished, "show", f"refs/cdd/abandoned/{made.name}:{SOURCE}") == "not committed\n"
    assert run([*drop, "--confirm", made.name]) == 2
    assert "was dropped already" in capsys.readouterr().err


@pytest.mark.slow
def test_a_fork_of_a_fork_hangs_below_it_and_main_is_the_way_back(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, first = str(finished), fork(finished, "First way")
    second = fork(finished, "Second way")
    assert second.parent == first.branch
    rows = listed(here, capsys).splitlines()
    assert [rows[0], rows[1].strip(), rows[3]] == [
        "main",
        f"{first.name}  active",
        f"    {second.name}  active, current",
    ]
    assert run(["--project", here, "report", SLUG]) == 0
    assert f"    {first.name} active: First way\n      {second.name} active: Second way\n" in capsys.readouterr().out
    assert run(["--project", here, "report", SLUG, "--html", str(finished / "report.html")]) == 0
    assert f"{second.name} active: Second way</li>" in (finished / "report.html").read_text()
    assert run(["--project", here, "fork", "switch", "first"]) == 0
    assert Forks(finished).find_current(SLUG) == first
    assert run(["--project", here, "status", SLUG]) == 0
    assert f"in the fork {first.name} now" in capsys.readouterr().out.replace("\n", " ")
    shutil.rmtree(Forks(finished).locate(first))
    assert run(["--project", here, "exec", SLUG, "--yes"]) == 2
    assert f"The folder of the fork {first.name} is gone" in capsys.readouterr().err
    assert run(["--project", here, "fork", "switch", "main"]) == 0
    assert Forks(finished).find_current(SLUG) is None


@pytest.mark.slow
def test_the_conversations_about_the_ticket_are_cut_where_the_step_began(finished: Path) -> None:
    here = Transcript(finished, clock=FakeClock(), tell=lambda _: None)
    talks = (("socrates", SLUG, "abcdef"), ("planner", "another", "ghijkl"))
    for agent, ticket, token in talks:
        messages = [UserMessage(content=(Text(text=f"{agent} {number}"),)) for number in range(3)]
        conversation = Conversation("", token=token, messages=messages)
        here.copy_conversation(conversation, agent, ticket=ticket, model="m")
    (step,) = state(finished).step_executions.values()
    about = Description(kind="run", ticket=SLUG, step=1, session=here.id, talks={"abcdef": 1})
    git(finished, "checkout", "-q", "--detach", str(step.base_commit))
    Checkpoints.of_repository(Repository.find(finished), finished).create(about)
    git(finished, "checkout", "-q", "-")
    made = fork(finished, "In words")  # while the session is open
    here.close()
    inside = Forks(finished).find_project(made)
    (talk,) = load_session(inside, made.session).conversations
    assert (talk.agent, talk.ticket) == ("socrates", SLUG)
    assert [str(message.content) for message in talk.messages] == ["(Text(text='socrates 0'),)"]


@soak_after(
    2,
    ("words", "told"),
    [
        (["nope", "Another way"], "There is no ticket"),
        ([SLUG, "1"], "A fork needs a direction."),
        ([SLUG, "7", "Another way"], "7"),
        (["switch", "nope"], "There is no fork 'nope'."),
        (["compare", "main"], "Name at least one fork."),
        (["merge", "nope", "--theirs"], "make one: cdd fork SLUG DIRECTION"),
        (["merge", "nope", "--ours", "--theirs"], "--ours and --theirs cannot be combined."),
    ],
)
def test_what_cannot_be_done_is_refused(
    words: list[str], told: str, *, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--project", str(finished), "fork", *words]) == 2
    assert told in capsys.readouterr().err.replace("\n", " ")
    assert git(finished, "branch", "--list", "fork/*") == ""
