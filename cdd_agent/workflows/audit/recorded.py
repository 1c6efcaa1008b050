"""The reports that phases were judged by, as far as they are still on this machine."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.recovery import label
from cdd_agent.workflows.audit.claim import Claim, false, true, unknown
from cdd_agent.workflows.audit.placement import Handed
from pytest_tdd_agent.codec import LIMIT_BYTES, ReportError, load
from pytest_tdd_agent.report import SuiteReport

_MOST_FOLDERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is left of the evidence of one handoff."""

    claim: Claim | None
    """None: the phase rests on no report."""
    report: SuiteReport | None
    """Only if its digest is the note's."""


def recorded(handed: Handed, *, reports: Path) -> Recorded:
    """The report of a handoff, looked for below ``reports`` by its name and told by its digest."""
    gate = handed.handoff.gate if handed.handoff is not None else None
    if handed.handoff is None or gate is None or handed.phase == "plan":
        return Recorded(claim=None, report=None)
    attempt = handed.handoff.retry_count + 1
    files = tuple(_files(reports, f"-{handed.phase}-{attempt}"))
    own = "" if handed.base is None else f"{label(handed.cycle, handed.base)}-{handed.phase}-{attempt}"
    mine = [path for path in files if path.parent.name == handed.ticket and path.name.partition(".")[0] == own]
    if gate.report_sha256 is None:
        if mine and gate.open and handed.phase in ("red", "green"):
            return Recorded(claim=false("report", f"It names no report, and {mine[0].name} is there."), report=None)
        return Recorded(claim=None, report=None)
    for path in (*mine, *(path for path in files if path not in mine)):
        if _digest(path) == gate.report_sha256:
            return _read(path)
    if mine:
        return Recorded(claim=false("report", f"{mine[0].name} is not the report whose digest it has."), report=None)
    told = "The report is not on this machine, so that only the tests themselves can be asked."
    return Recorded(claim=unknown("report", told), report=None)


def _read(path: Path) -> Recorded:
    """The report in a file that has the right digest."""
    told = f"{path.parent.name}/{path.name} has the digest."
    try:
        return Recorded(claim=true("report", told), report=load(path))
    except ReportError:
        return Recorded(claim=true("report", told), report=None)


def _files(reports: Path, suffix: str) -> Iterator[Path]:
    """The reports whose name, without its endings, ends in ``suffix``; no link is followed."""
    try:
        with os.scandir(reports) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))[:_MOST_FOLDERS]
        for folder in folders:
            names = sorted(os.listdir(folder))
            yield from (Path(folder, name) for name in names if name.partition(".")[0].endswith(suffix))
    except OSError:
        return


def _digest(path: Path) -> str:
    """sha256 of a file's bytes; empty if it cannot be read."""
    try:
        return hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest()
    except OSError:
        return ""
