"""Where tickets and steps stand, as tables."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from cdd_agent.repl.clean import clean
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState, Status

_STYLE = {
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.SKIPPED: "yellow",
    Status.IN_PROGRESS: "cyan",
    Status.PENDING: "dim",
}


def steps_table(state: RunState) -> Table:
    """The steps of a run with their attempts and commits."""
    total = state.usage
    tokens = f"{total.input_tokens + total.cache_read_tokens:,} tokens read, {total.output_tokens:,} written"
    table = _table(
        f"{state.ticket_slug}: {state.status.replace('_', ' ')}", caption=f"{state.model or 'no model'}; {tokens}"
    )
    for heading in ("step", "title", "status", "attempts", "commits"):
        table.add_column(heading)
    for number, step in state.step_executions.items():
        phases = dict.fromkeys(attempt.phase for attempt in step.attempts)
        tried = {phase: sum(attempt.phase == phase for attempt in step.attempts) for phase in phases}
        commits = dict.fromkeys(commit[:8] for commit in step.commits.values())
        table.add_row(
            str(number),
            clean(step.title),
            Text(step.status.replace("_", " "), style=_STYLE[step.status]),
            " ".join(f"{phase} {count}" for phase, count in tried.items()),
            " ".join(commits),
        )
    return table


def tickets_table(tickets: Sequence[Ticket]) -> Table:
    """Every ticket with its title and how far it is."""
    table = _table("tickets" if tickets else "no tickets yet; make one with: cdd new SLUG")
    for heading in ("ticket", "title", "spec", "plan", "steps done"):
        table.add_column(heading)
    for ticket in tickets:
        wanted = spec.load(ticket.spec_path)
        missing = spec.missing(wanted)
        state = state_file.load(ticket.state_path)
        done = f"{len(state.numbers(Status.COMPLETED))} of {len(state.step_executions)}" if state else ""
        table.add_row(
            ticket.slug,
            clean(wanted.title),
            Text(f"{len(missing)} missing", style="yellow") if missing else Text("complete", style="green"),
            Text("yes", style="green") if ticket.plan_path.exists() else Text("no", style="dim"),
            done,
        )
    return table


def _table(title: str, *, caption: str | None = None) -> Table:
    """An empty table in the house's form."""
    return Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
