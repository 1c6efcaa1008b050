"""What the note on a commit says, and whether its report still is what it was."""

from pathlib import Path

from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.review import hash_reports, read_evidence
from cdd_agent.tickets.ticket import find
from cdd_agent.work.records import find_records
from cdd_agent.work.state_file import load_state
from tests.fakes.demo import SLUG


def landed(folder: Path) -> tuple[Repository, dict[str, CommitId], Path]:
    state = load_state(find(folder, SLUG).state_path)
    assert state is not None
    commits = {phase: CommitId(commit) for phase, commit in state.execution(1).commits.items()}
    return Repository.find(folder), commits, find_records(folder).folder / "reports" / SLUG


def test_a_landed_phase_has_an_open_gate_and_its_report(finished: Path) -> None:
    repository, commits, reports = landed(finished)
    (red,) = read_evidence(repository, commits["red"], reports=hash_reports(reports))
    assert (red.phase, red.is_open, red.tries, red.report) == ("red", True, 1, "unchanged")


def test_a_report_that_was_changed_is_seen(finished: Path) -> None:
    repository, commits, reports = landed(finished)
    for report in reports.rglob("*.json"):
        report.write_bytes(report.read_bytes() + b" ")
    (red,) = read_evidence(repository, commits["red"], reports=hash_reports(reports))
    assert red.report == "changed or missing"


def test_a_report_that_cannot_be_read_stands_for_nothing(finished: Path) -> None:
    repository, commits, reports = landed(finished)
    for report in [*reports.rglob("*.json")]:
        report.unlink()
        report.symlink_to("/proc/self/mem")
    (red,) = read_evidence(repository, commits["red"], reports=hash_reports(reports))
    assert red.report == "changed or missing"


def test_lines_that_are_no_notes_are_passed_over(finished: Path) -> None:
    repository, commits, reports = landed(finished)
    for line in ("{", "[]", "[" * 5000, '{"seq": "x"}', "words"):
        append_line(repository, commits["red"], line=line)
    assert [each.phase for each in read_evidence(repository, commits["red"], reports=hash_reports(reports))] == ["red"]


def test_a_commit_without_a_note_has_no_evidence(finished: Path) -> None:
    repository, commits, reports = landed(finished)
    first = CommitId(repository.git("rev-parse", ("--verify",), f"{commits['red']}^").strip())
    assert read_evidence(repository, first, reports=hash_reports(reports)) == ()
