"""What a project has that completes a line, from tickets to files, looked up when it is asked for."""

from collections.abc import Iterator
from pathlib import Path

from cdd_agent.repl.completion import Candidates
from cdd_agent.tickets.ticket import all_tickets

MOST_HANDOFFS = 200
"""Of a long history."""


def candidates_of(root: Path) -> Candidates:
    """What completes a line over the project in ``root``."""
    return Candidates(
        slugs=lambda: _slugs(root),
        steps=lambda slug: _steps(root, slug),
        sessions=lambda: _sessions(root),
        models=_models,
        handoffs=lambda: _handoffs(root),
        files=lambda: _files(root),
    )


def _slugs(root: Path) -> Iterator[tuple[str, str]]:
    """The tickets with their titles; one whose spec is not valid has none."""
    from cdd_agent.errors import CddError
    from cdd_agent.tickets import spec

    for ticket in all_tickets(root):
        try:
            title = spec.load(ticket.spec_path).title
        except (CddError, OSError):
            title = ""
        yield ticket.slug, title


def _steps(root: Path, slug: str) -> Iterator[tuple[str, str]]:
    """The steps of a ticket that has been begun, with how far each has come."""

    from cdd_agent.tickets.ticket import find
    from cdd_agent.work import state_file

    state = state_file.load(find(root, slug).state_path)
    for number, step in state.step_executions.items() if state else ():
        yield str(number), f"{step.title} ({step.status.replace('_', ' ')})"


def _sessions(root: Path) -> Iterator[tuple[str, str]]:
    """The sessions that can be resumed."""

    from cdd_agent.repl.actions import described

    yield from described(root)


def _models() -> Iterator[tuple[str, str]]:
    """The models whose prices are known, with how much they can read."""

    from cdd_agent.model import prices

    for name in prices.known():
        yield name, f"reads {prices.window(name) or 0:,} tokens"


def _handoffs(root: Path) -> Iterator[tuple[str, str]]:
    """The commits of runs and tickets that HEAD comes from, newest first, each by the last phase it landed."""
    from cdd_agent.git.repository import Repository
    from cdd_agent.history.runs import account, listed

    told: set[str] = set()
    for row in listed(account(Repository.find(root)).entries, most=MOST_HANDOFFS):
        if row.commit not in told:
            yield row.commit[:10], f"cycle {row.cycle}, {row.phase}: {row.description}"
        told.add(row.commit)


def _files(root: Path) -> list[str]:
    """The files that a message can name."""
    from cdd_agent.git.repository import Repository
    from cdd_agent.repl.completion import project_files

    return project_files(root, lambda: Repository.find(root))
