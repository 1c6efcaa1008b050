"""Where runs are: a ticket's in its folder, every other one in cdd's records, in ``runs/SLUG``."""

from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from cdd_agent.errors import CddError, UsageError, format_count, suggest
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


def list_present(project: Path) -> tuple[Ticket, ...]:
    """Return the runs without a ticket that have begun and are not completed, or whose state cannot be read.

    A generation belongs to them when it is completed too: the whole project is its result.
    """
    return tuple(run for run in list_other_runs(project) if _is_present(run))


def _is_present(run: Ticket) -> bool:
    from cdd_agent.work.state import Status
    from cdd_agent.work.state_file import load_state

    try:
        state = load_state(run.state_path)
    except UsageError:
        return True
    if state is None:
        return (run.folder / REQUEST).is_file()
    return state.status != Status.COMPLETED or state.makes_project


def is_of_project(run: Ticket) -> bool:
    """Return whether a run makes the whole project."""
    from cdd_agent.work.state_file import load_state

    with suppress(UsageError):
        state = load_state(run.state_path)
        return state is not None and state.makes_project
    return False


def find_resume(run: Ticket) -> str:
    """Return the command that continues a run, or that shows it if no record says how it continues."""
    from cdd_agent.work.state_file import load_state

    with suppress(UsageError):
        state = load_state(run.state_path)
        if state is not None and (run.has_documents or state.origin is not None):
            return state.resume
        if (run.folder / REQUEST).is_file():
            return RESUME
    return f"cdd status {run.slug}"


def require_ticket(run: Ticket) -> Ticket:
    """Return ``run`` if it has a ticket; otherwise raise ``UsageError`` with the command that continues it."""
    if not run.has_documents:
        raise UsageError(
            f"{run.slug} is a run without a ticket: it has no spec and no plan.",
            hint=f"continue it: {find_resume(run)}",
        )
    return run


def find_ticket(project: Path, slug: str) -> Ticket:
    """Return the ticket with this name; raise ``UsageError`` if there is none, or only a run without a ticket."""
    other = next((run for run in list_other_runs(project) if run.slug == slug), None)
    try:
        return tickets.find(project, slug)
    except UsageError:
        if other is not None:
            require_ticket(other)
        raise


def find_run(project: Path, slug: str) -> Ticket:
    """Return the ticket or the other run with this name; raise ``UsageError`` if there is none."""
    others = list_other_runs(project)
    other = next((run for run in others if run.slug == slug), None)
    try:
        return tickets.find(project, slug)
    except UsageError as error:
        if other is not None:
            return other
        _refuse_without_records(project, slug)
        if others:
            names = [run.slug for run in others]
            nearest = suggest(slug, names, cutoff=0.5)
            few = nearest or ", ".join(names[:MOST_NAMED]) + (" ..." if len(names) > MOST_NAMED else "")
            raise UsageError(error.happened, hint=f"{error.hint}; or name a run without a ticket: {few}") from None
        raise


def _refuse_without_records(project: Path, slug: str) -> None:
    """Raise ``UsageError`` if there are handoff notes of a run whose records are missing, as in a clone."""
    # Only now: cdd status starts faster without them.
    from cdd_agent.git.notes import survey_notes
    from cdd_agent.git.repository import Repository

    noted = []
    with suppress(CddError):
        entries = survey_notes(Repository.find(project)).entries  # newest first
        noted = [entry.commit for entry in entries if any(each.ticket == slug for each in entry.handoffs)]
    if noted:
        raise UsageError(
            f"The records of the run {slug} are missing here; {format_count(len(noted), 'commit')} with handoff notes "
            f"of it {'is' if len(noted) == 1 else 'are'} left.",
            hint=f"see what its last commit did: cdd review {noted[0][:10]}; list its phases: cdd tdd history; "
            "check them: cdd audit",
        )


def find_owner(project: Path, slug: str, *, top: Path) -> Path | None:
    """Return the folder of another project in the work tree ``top`` that has the run ``slug``; None if none has."""
    records = find_records(project)
    for folder in sorted(records.folder.parent.glob("*")):
        other = top / ("" if folder.name == ROOT else unquote(folder.name))
        is_other = other.is_dir() and other.resolve() != project.resolve()
        if is_other and any(run.slug == slug for run in list_runs(other)):
            return other
    return None
