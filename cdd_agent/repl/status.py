"""Where tickets and steps stand."""

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from cdd_agent.events import TicketListed
from cdd_agent.repl.actions.listing import ticket_listed
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.plan_tree import show_plan
from cdd_agent.repl.standing import cost
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work import state_file
from cdd_agent.work.state import Phase, RunState, Status, StepExecution

_STYLE = {
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.SKIPPED: "yellow",
    Status.IN_PROGRESS: "bold cyan",
    Status.PENDING: "dim",
}
_SYMBOL = {
    Status.COMPLETED: "open",
    Status.FAILED: "closed",
    Status.SKIPPED: "note",
    Status.IN_PROGRESS: "tool",
    Status.PENDING: "todo",
}


_WIDTH_FOR_COMMITS = 76


def show_tickets(tickets: Sequence[Ticket], *, screen: Screen, typed: Callable[[str], str] = str) -> None:
    """Every ticket with how far it is; one whose files are not valid is named so and stops nothing.

    ``typed`` says a command of the shell as it is typed where this is read.
    """
    if not tickets:
        screen.line(typed("There are no tickets yet. Make one with: cdd new SLUG"), indent=0)
        return
    table = _table("ticket", "title", "spec", "plan", "steps done")
    for ticket in map(ticket_listed, tickets):
        if ticket.problem:
            told = typed(f"not valid; cdd status {ticket.ticket} tells more")
            table.add_row(ticket.ticket, Text(told, style="bold red"))
        else:
            table.add_row(*_cells(ticket))
    screen.show(table)


def show_ticket(ticket: Ticket, *, screen: Screen, typed: Callable[[str], str] = str) -> None:
    """One ticket: what its spec lacks, or its steps, and what to type next; raises ``DocumentError``.

    ``typed`` is that of ``show_tickets``.
    """
    wanted = spec.load(ticket.spec_path)
    missing = spec.find_missing(wanted)
    state = state_file.load(ticket.state_path)
    screen.line(Text.assemble((ticket.slug, "bold"), f"  {clean(wanted.title)}"), indent=0, hang=2)
    if missing:
        screen.line(f"spec   {'; '.join(missing)}", style="yellow", indent=2, hang=7)
        screen.line(typed(f"next   cdd spec {ticket.slug}"), indent=2)
    elif state is not None:
        show_steps(state, screen=screen)
    elif ticket.plan_path.exists():
        plan = plan_markdown.load(ticket.plan_path)
        screen.line(f"spec   complete, {len(wanted.acceptance_criteria)} criteria", indent=2)
        screen.line(f"plan   {len(plan.steps)} steps, none of them run", indent=2)
        show_plan(plan, screen=screen, criteria=wanted.criterion_ids)
        screen.line(typed(f"next   cdd exec {ticket.slug}"), indent=2)
    else:
        screen.line(f"spec   complete, {len(wanted.acceptance_criteria)} criteria", indent=2)
        screen.line("plan   not made", indent=2)
        screen.line(typed(f"next   cdd plan {ticket.slug}"), indent=2)


def show_steps(state: RunState, *, screen: Screen) -> None:
    """The steps of a run with phases, gates and commits, why one failed or was skipped, and what it all took."""
    phases = dict.fromkeys(attempt.phase for step in state.step_executions.values() for attempt in step.attempts)
    table = _table("step", "title", "status", *phases)
    for number, step in state.step_executions.items():
        status = f"{screen.symbols[_SYMBOL[step.status]]} {step.status.replace('_', ' ')}"
        gates = [_gate(step, phase, screen=screen) for phase in phases]
        table.add_row(str(number), clean(step.title), Text(status, style=_STYLE[step.status], no_wrap=True), *gates)
    screen.show(table)
    for number, step in state.step_executions.items():
        if step.error and step.status in {Status.FAILED, Status.SKIPPED}:
            told = f"Step {number} {step.status}: {step.error}"
            screen.line(told, style=_STYLE[step.status], indent=0, hang=2)
    if state.model is not None:
        screen.line(_took(state), style="dim", indent=0, hang=2)


def _cells(ticket: TicketListed) -> tuple[str | Text, ...]:
    """The row of one ticket."""
    missing = len(ticket.missing)
    steps = f"{ticket.completed} of {ticket.steps}" if ticket.status else ""
    return (
        ticket.ticket,
        clean(ticket.title),
        Text(f"{missing} missing", style="yellow") if missing else Text("complete", style="green"),
        Text("yes", style="green") if ticket.has_plan else Text("no", style="dim"),
        f"{steps}, one failed" if ticket.failed else steps,
    )


def _gate(step: StepExecution, phase: Phase, *, screen: Screen) -> Text:
    """How many attempts ``phase`` took, whether its gate opened, and, where there is room, the commit it led to."""
    attempts = [attempt for attempt in step.attempts if attempt.phase == phase]
    if not attempts:
        return Text()
    verdict = attempts[-1].verdict
    style = "green" if verdict == "open" else "red"
    told = Text(f"{len(attempts)}{screen.symbols[verdict]}", style=style, no_wrap=True)
    commits = list(step.commits.values())
    is_own = phase in step.commits and commits.index(step.commits[phase]) == list(step.commits).index(phase)
    if is_own and screen.console.width >= _WIDTH_FOR_COMMITS:
        told.append(f" {step.commits[phase][:7]}", style="default")
    return told


def _took(state: RunState) -> str:
    """Model, sandbox, tokens and cost of a run."""
    used = state.usage
    parts = [
        f"model {state.model}",
        f"sandbox {state.sandbox}" if state.sandbox else "",
        f"{used.tokens - used.output_tokens:,} tokens read, {used.output_tokens:,} written",
        cost(used),
    ]
    return f"{state.status.replace('_', ' ')}; " + "; ".join(part for part in parts if part)


def _table(*headings: str) -> Table:
    """An empty table in the house's form."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
