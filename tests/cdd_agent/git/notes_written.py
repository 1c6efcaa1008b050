"""Commits and handoffs to try notes on."""

import shutil
from pathlib import Path

from cdd_agent.git.notes import REF, Note, append_line, survey_notes
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.work.handoff import (
    PHASE_OF,
    CurrentTest,
    GateSummary,
    Handoff,
    PhaseName,
    encode,
    next_phase_after,
    sequence,
)
from tests.cdd_agent.git.hostile.repository import plain


def copied(template: Path, folder: Path) -> Repository:
    """A copy of a repository, to be changed."""
    shutil.copytree(template, folder, symlinks=True)
    repository = Repository(folder)
    repository.git("update-index", ("-q", "--refresh"))  # the index knows the files by their inodes
    return repository


def handoff(commit: str, *, phase: PhaseName = "RED", cycle: int = 1, base: str = "b0") -> Handoff:
    """What lands with a phase of a step that began at ``base``."""
    return Handoff(
        seq=sequence(phase, cycle=cycle),
        id=f"{phase.lower()}-{cycle}-{base}",
        ticket="csv",
        phase=phase,
        next_phase=next_phase_after(phase),
        cycle_number=cycle,
        current_test=CurrentTest(description="Header", test_file="tests/test_csv.py", impl_file="ledger/csv.py"),
        completed_tests=(),
        pending_tests=(),
        test_result="FAIL" if phase == "RED" else "PASS",
        error=None,
        error_details=None,
        retry_count=0,
        commit=commit,
        checkpoint=None,
        gate=GateSummary(phase=PHASE_OF[phase], open=True, reasons=(), report_sha256=None),
    )


def message(said: Handoff) -> str:
    """The message of the commit that it lands with."""
    trailers = {"Ticket": said.ticket, "Phase": said.phase, "Step": said.cycle_number, "Handoff-Id": said.id}
    return "feat: Header\n\n" + "".join(f"{key}: {value}\n" for key, value in trailers.items())


def commit_of(repository: Repository, text: str, *, name: str) -> CommitId:
    """A commit of a file of this name on the present branch."""
    (repository.root / f"{name}.txt").write_text(f"{name}\n")
    plain(repository.root, "add", f"{name}.txt")
    plain(repository.root, "commit", "--quiet", "--allow-empty", "-m", text)
    return head(repository)


def landed(repository: Repository, *, phase: PhaseName = "RED", cycle: int = 1) -> CommitId:
    """A commit as a phase leaves it: a file, trailers and a note."""
    said = handoff("c0", phase=phase, cycle=cycle)
    commit = commit_of(repository, message(said), name=said.id)
    append_line(repository, commit, line=encode(handoff(commit, phase=phase, cycle=cycle)))
    return commit


def head(repository: Repository) -> CommitId:
    return CommitId(plain(repository.root, "rev-parse", "HEAD").stdout.decode().strip())


def top(repository: Repository) -> str:
    """The commit that holds the notes, as git itself says."""
    return plain(repository.root, "rev-parse", REF).stdout.decode().strip()


def note(repository: Repository, commit: str, *, text: bytes) -> None:
    """Put any bytes on a commit, as another program may have."""
    path = repository.root / ".git" / "note"
    path.write_bytes(text)
    blob = plain(repository.root, "hash-object", "-w", str(path)).stdout.decode().strip()
    listed = plain(repository.root, "ls-tree", "-r", "-z", REF).stdout.decode().split("\0")
    kept = [entry for entry in listed if entry and entry.partition("\t")[2].replace("/", "") != commit]
    tree = tree_of(repository, [*kept, f"100644 blob {blob}\t{commit}"])
    made = plain(repository.root, "commit-tree", tree, "-p", top(repository), "-m", "Notes added by 'git notes add'")
    plain(repository.root, "update-ref", "-m", "other", REF, made.stdout.decode().strip())


def tree_of(repository: Repository, entries: list[str]) -> str:
    index = {"GIT_INDEX_FILE": str(repository.root / ".git" / "index-of-a-test")}
    repository.git("read-tree", ("--empty",), variables=index)
    repository.git(
        "update-index", ("-z", "--index-info"), stdin="".join(f"{each}\0" for each in entries).encode(), variables=index
    )
    return repository.git("write-tree", variables=index).strip()


def blob_of(repository: Repository, commit: str) -> str:
    """The object that holds the note on a commit."""
    return plain(repository.root, "notes", f"--ref={REF}", "list", commit).stdout.decode().strip()


def lose(repository: Repository, name: str) -> None:
    """Take a loose object away."""
    (repository.location.common_dir / "objects" / name[:2] / name[2:]).unlink()


def broken(repository: Repository) -> None:
    """The ref names nothing that is an object."""
    (repository.location.common_dir / REF).write_text("junk\n")


def emptied(repository: Repository) -> None:
    """As after a power cut."""
    (repository.location.common_dir / REF).write_text("")


def names_nothing(repository: Repository) -> None:
    """The ref names an object that is not there."""
    (repository.location.common_dir / REF).write_text("1" * 40 + "\n")


def names_nothing_packed(repository: Repository) -> None:
    """The same of a ref that has no file of its own."""
    plain(repository.root, "pack-refs", "--all")
    packed = repository.location.common_dir / "packed-refs"
    packed.write_text(packed.read_text().replace(top(repository), "1" * 40))


def read_history(repository: Repository) -> tuple[Note, ...]:
    """Return the commits with notes, newest first; none of the notes may be damaged."""
    survey = survey_notes(repository)
    assert survey.damages == ()
    return survey.entries
