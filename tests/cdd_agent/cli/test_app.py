"""The command line as a whole: how it answers, and how it ends when something is wrong."""

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from cdd_agent import __version__
from cdd_agent.cli.app import run
from cdd_agent.config.settings import Settings
from cdd_agent.git.repository import Repository
from cdd_agent.runs.cluster import PARCEL, RESULT
from cdd_agent.runs.parcels import Sending, take_result
from cdd_agent.runs.places import locate_run
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepExecution, StepKey, pending_steps
from tests.fakes.cases import soak_after
from tests.fakes.demo import RECORDING, SLUG

ROOT = Path(__file__).parent.parent.parent.parent
REPLAY = ("--replay", str(RECORDING))


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, and standard input that is at its end."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))


def process(*arguments: str, **variables: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC")}
    return subprocess.Popen(
        [sys.executable, "-m", "cdd_agent", *arguments],
        cwd=ROOT,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def in_project(folder: Path, *arguments: str) -> int:
    return run(["--project", str(folder), *arguments])


# What is asked for wrongly.


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["statsu"]) == 2
    assert "error: No such command 'statsu'. Did you mean 'status'?\n" in capsys.readouterr().err


def test_a_missing_argument_shows_how_the_command_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spec"]) == 2
    assert "hint: cdd spec [OPTIONS] SLUG; cdd spec --help shows more" in capsys.readouterr().err


def test_a_group_without_a_command_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["comment"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: cdd comment needs one of its commands: add, edit, list, reply, resolve.\n"
    )


def test_a_project_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert in_project(tmp_path / "nowhere", "status") == 2
    assert "nowhere" in capsys.readouterr().err


@soak_after(2, "command", ["exec x", "trust", "green tests", "tdd run text"])
def test_the_option_of_earlier_versions_to_work_in_the_users_files_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--in-place"]) == 2
    error = capsys.readouterr().err
    assert "--in-place was removed: every run works in a run tree." in error
    assert ".cdd/worktree-include" in error


@soak_after(1, "command", ["spec", "plan", "exec", "status"])
def test_an_unknown_ticket_names_the_nearest_and_leaves_no_trace(
    command: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_project(finished, command, "minutes-last") == 2
    assert "the nearest is 'minutes-lost'" in capsys.readouterr().err
    assert not (find_records(finished).folder / "journal" / "minutes-last").exists()


def test_an_option_of_all_commands_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["exec", "sale", "--sandbox", "none"]) == 2
    assert "hint: it goes before the command: cdd --sandbox ... exec" in capsys.readouterr().err


# What is wrong with the files.


@soak_after(1, "command", ["spec", "plan", "exec", "status"])
def test_an_invalid_spec_is_told_with_file_and_line(
    command: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = find(finished, SLUG).spec_path
    path.write_text("title: x\ntype: bgu\n", encoding="utf-8")
    assert in_project(finished, command, SLUG) == 2
    told = capsys.readouterr().err
    assert f"{path} is not valid" in told.replace("\n", " ")
    assert "line 2: " in told
    assert "bug" in told


@pytest.mark.slow
def test_an_invalid_plan_is_told_with_file_and_line(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = find(finished, SLUG).plan_path
    path.write_text(path.read_text(encoding="utf-8").replace("AC-1", "AC-9"), encoding="utf-8")
    assert in_project(finished, "exec", SLUG) == 2
    told = capsys.readouterr().err
    assert f"{path} is not valid" in told.replace("\n", " ")
    assert "line " in told
    assert "AC-9" in told


@soak_after(1, "command", ["exec", "status"])
def test_a_damaged_state_is_told_and_kept(command: str, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = find(finished, SLUG).state_path
    path.write_text('{"schema": 1', encoding="utf-8")
    assert in_project(finished, command, SLUG) == 2
    assert "incomplete or damaged" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == '{"schema": 1'
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1


def test_uncommitted_changes_are_refused_with_both_ways_out(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find(finished, SLUG).state_path.unlink()
    source = finished / "durations" / "reading.py"
    source.write_text(source.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert in_project(finished, *REPLAY, "exec", SLUG) == 2
    told = capsys.readouterr().err
    assert "durations/reading.py" in told
    assert "commit or stash them, or run with --allow-dirty" in told
    assert source.read_text(encoding="utf-8").endswith("# mine\n")


# What is missing around it.


@soak_after(1, "flags", [(), ("--json",)])
def test_without_key_and_recording_it_says_how_and_what_works_without(
    flags: tuple[str, ...], finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_project(finished, *flags, "plan", SLUG) == 4
    output = capsys.readouterr()
    assert output.out == ""
    assert "export ANTHROPIC_API_KEY=" in output.err
    assert "cdd demo" in output.err


def test_outside_of_git_it_offers_git_init(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / ".git").rename(tmp_path / "git")
    assert in_project(finished, *REPLAY, "exec", SLUG) == 4
    assert f"hint: git init {finished}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recording", "told"),
    [
        (None, "There is no recording"),
        ("[]", "has no turn left"),
        ("- when: nothing like it\n  content: [hello]\n", "has no turn that matches"),
        ("- content: 3\n", "recording"),
    ],
)
@soak_after(1, "flags", [(), ("--json",)])
def test_a_recording_that_does_not_fit_is_told(
    recording: str | None,
    told: str,
    *,
    flags: tuple[str, ...],
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "recording.yaml"
    if recording is not None:
        path.write_text(recording, encoding="utf-8")
    assert in_project(finished, *flags, "--replay", str(path), "plan", SLUG) == 4
    assert told in capsys.readouterr().err


# How it ends.


@pytest.mark.slow
def test_a_defect_of_ours_ends_with_70_and_a_file_to_report(finished: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import cdd_agent.tickets.ticket\n\n\ndef broken(*_, **__):\n    raise ZeroDivisionError('a defect')\n\n\n"
        "cdd_agent.tickets.ticket.list_tickets = broken\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(broken), str(ROOT)])
    with process("--project", str(finished), "status", PYTHONPATH=path, TMPDIR=str(tmp_path)) as ended:
        _, told = ended.communicate(timeout=60)
    assert ended.returncode == 70
    assert b"Traceback" not in told
    report = next(tmp_path.glob("cdd-crash-*.txt"))
    assert str(report).encode() in told
    assert "ZeroDivisionError: a defect" in report.read_text(encoding="utf-8")


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_nothing_half_done(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with process("demo", "minutes-lost", "--json", "--keep", str(folder)) as ended:
        assert ended.stdout is not None
        while b"SuiteStarted" not in (line := ended.stdout.readline()):
            assert line
        ended.send_signal(signal.SIGINT)
        _, told = ended.communicate(timeout=60)
    assert ended.returncode == 130
    assert told == b"error: Stopped.\nhint: your work is saved; run the same command again to continue\n"
    status = subprocess.run(["git", "status", "--short"], cwd=folder, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_a_reader_who_has_gone_away_is_no_error() -> None:
    with process("demo", "minutes-lost") as ended:
        assert ended.stdout is not None
        assert ended.stderr is not None
        ended.stdout.readline()
        ended.stdout.close()
        assert ended.stderr.read() == b""
    assert ended.returncode == 141


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_is_full_is_an_error_of_the_environment(finished: Path) -> None:
    arguments = [sys.executable, "-m", "cdd_agent", "--project", str(finished), "status"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(arguments, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == 4
    assert ended.stderr.startswith(b"error: No space left on device.\nhint: free space on that disk (df -h ")


def in_shell(folder: Path, command: str) -> "subprocess.CompletedProcess[str]":
    """What became of ``cdd`` with the words and redirections of ``command``, begun in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = f"cd {folder} && {sys.executable} -m cdd_agent {command}"
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("status >&-", 0),
        ("status <&-", 0),
        ("<&-", 0),
        ("status nope 2>&-", 2),
        ("nope <&- >&- 2>&-", 2),
        ("--version >&-", 0),
        ("status nope 2>/dev/full", 2),
    ],
)
def test_a_standard_stream_that_is_closed_changes_no_exit_code(command: str, code: int, *, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    ended = in_shell(tmp_path, command)
    assert (ended.returncode, ended.stderr) == (code, "")


def test_no_file_of_ours_gets_the_number_of_a_closed_stream() -> None:
    code = (
        "import os, sys; from cdd_agent import __main__ as m; os.closerange(0, 3); sys.stdin = sys.stdout = None;"
        "m._fill_standard_streams(); filled = [os.get_inheritable(number) for number in range(3)];"
        "sys.exit(os.open('/', os.O_RDONLY) if all(filled) else 99)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert 3 <= ended.returncode < 99


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_version_that_cannot_be_written_is_told_like_any_other_output(tmp_path: Path) -> None:
    ended = in_shell(tmp_path, "--version >/dev/full")
    assert ended.returncode == 4
    assert ended.stderr.startswith("error: No space left on device.\nhint: free space on that disk (df -h ")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "", "demo"])
def test_a_current_folder_that_has_been_removed_is_told(command: str, *, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    ended = in_shell(
        tmp_path / "gone", f"--version && rmdir {tmp_path}/gone && {sys.executable} -m cdd_agent {command}"
    )
    assert ended.returncode == 4
    assert ended.stderr.startswith("error: The current folder does not exist: ")


def test_with_json_standard_output_holds_event_lines_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_project(project, *REPLAY, "--json", "spec", SLUG) == 1
    output = capsys.readouterr()
    assert all("event" in json.loads(line) for line in output.out.splitlines())
    assert output.out
    assert output.err.startswith("error: The spec is not complete")


def test_the_package_s_version_is_told_after_other_options_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--no-color", "--version"]) == 0
    assert capsys.readouterr().out == f"cdd {__version__}\n"


def test_a_worker_runs_the_command_of_a_job_and_leaves_its_result(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository.find(project)
    head = repository.read_head()
    assert head is not None
    key = StepKey(number=1, title="add", text_sha256="ab")
    sending = Sending(
        repository=repository,
        head=head,
        project=PurePosixPath(),
        folder=project,
        ticket=locate_run(project, "sums"),
        state=RunState(ticket_slug="sums", started_at="now", step_executions=pending_steps([key])),
        settings=Settings(max_drafts=7),
        arguments=("--project", project, "status", "sums"),
        python="",
    )
    for words, status, shown in (
        (sending.arguments, 0, "add"),
        (("--project", project, "exec", "nothing"), 2, "nothing"),
    ):
        job = tmp_path / f"job-{status}"
        job.mkdir()
        (job / PARCEL).write_bytes(replace(sending, arguments=words).pack())
        assert run(["work", str(job)]) == status
        told = capsys.readouterr()
        assert shown in told.out + told.err
        step = StepExecution(step_number=1, title="add", text_sha256="ab")
        result = (job / RESULT).read_bytes()
        assert take_result(result, known=step, repository=repository, base=head).step == step
