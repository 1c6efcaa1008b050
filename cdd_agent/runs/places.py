"""Where runs are: a ticket's in its folder, every other one in cdd's records, in ``runs/SLUG``."""

from pathlib import Path
from urllib.parse import unquote

from cdd_agent.errors import UsageError, suggest
from cdd_agent.tickets import ticket as tickets
from cdd_agent.tickets.ticket import MOST_NAMED, Ticket
from cdd_agent.work.records import ROOT, find_records

RESUME = "cdd tdd resume"
REQUEST = "request.md"
"""The file of a feature's run, which is there before its state."""
_RUNS = "runs"
_EARLIER = ("tdd", "green")
"""Folders in the records where earlier versions kept the runs of these workflows."""


def locate_run(project: Path, slug: str) -> Ticket:
    """Return the folder of a run without a ticket; it need not exist."""
    folder = find_records(project).folder
    earlier = (folder / name / slug for name in _EARLIER)
    found = next((path for path in earlier if path.is_dir()), folder / _RUNS / slug)
    return Ticket(slug=slug, folder=found, has_documents=False)


def list_other_runs(project: Path) -> tuple[Ticket, ...]:
    """Return the runs without a ticket, sorted by slug."""
    folder = find_records(project).folder
    found = (path for name in (_RUNS, *_EARLIER) for path in (folder / name).glob("*") if path.is_dir())
    return tuple(
        Ticket(slug=path.name, folder=path, has_documents=False) for path in sorted(found, key=lambda path: path.name)
    )


def list_runs(project: Path) -> tuple[Ticket, ...]:
    """Return all tickets and all other runs."""
    return (*tickets.list_tickets(project), *list_other_runs(project))


def find_run(project: Path, slug: str) -> Ticket:
    """Return the ticket or the other run with this name; raise ``UsageError`` if there is none."""
    others = list_other_runs(project)
    other = next((run for run in others if run.slug == slug), None)
    try:
        return tickets.find(project, slug)
    except UsageError as error:
        if other is not None:
            return other
        if others:
            names = [run.slug for run in others]
            nearest = suggest(slug, names, cutoff=0.5)
            few = nearest or ", ".join(names[:MOST_NAMED]) + (" ..." if len(names) > MOST_NAMED else "")
            raise UsageError(error.happened, hint=f"{error.hint}; or name a run without a ticket: {few}") from None
        raise


def find_owner(project: Path, slug: str, *, top: Path) -> Path | None:
    """Return the folder of another project in the work tree ``top`` that has the run ``slug``; None if none has."""
    records = find_records(project)
    for folder in sorted(records.folder.parent.glob("*")):
        other = top / ("" if folder.name == ROOT else unquote(folder.name))
        is_other = other.is_dir() and other.resolve() != project.resolve()
        if is_other and any(run.slug == slug for run in list_runs(other)):
            return other
    return None
