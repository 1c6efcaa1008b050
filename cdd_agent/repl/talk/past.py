"""What lies behind a run, for people: its history, where it stands, what a rollback would do, and notes mended."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from cdd_agent.errors import AlreadyAtWork
from cdd_agent.events import Notice
from cdd_agent.events.past import HandoffListed, RunStanding
from cdd_agent.git.notes.exchange import merge_fetched
from cdd_agent.git.notes.history import Damage
from cdd_agent.git.notes.repair import Applied, Repair
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.workflows.orchestration.past.account import account, listed, where
from cdd_agent.workflows.orchestration.past.going import settle
from cdd_agent.workflows.orchestration.past.rollback import Site, Way

Typed: TypeAlias = Callable[[str], str]
"""Says a command of the shell as it is typed where this is read."""

MOST_ROWS = 20
"""Of the history, unless more are asked for."""
_MOST_LAID_OUT = 200
_MOST_FILES = 30
_HEADINGS: Mapping[str, int] = {"cycle": 5, "phase": 8, "result": 6, "retries": 7, "commit": 10}
"""Of a history, with the width of what stands below."""
_SHORT = 10
_STYLES = {"PASS": "green", "FAIL": "cyan", "CLOSED": "bold red"}
_SIGNS = {"created": "+", "deleted": "-", "modified": "~"}


def show_history(rows: Sequence[HandoffListed], *, left_out: int, screen: Screen) -> None:
    """What the phases handed over, newest first, under the name of their run; how many are left out."""
    lay_out = _lines if len(rows) > _MOST_LAID_OUT else _table
    for ticket, handoffs in groupby(rows, key=lambda row: row.ticket):
        screen.line(Text(clean(ticket), style="bold"), indent=0, hang=2)
        screen.show(lay_out(tuple(handoffs)), wrap=lay_out is _table)
    if left_out:
        screen.line(f"{left_out} earlier ones are not shown; with -n 0 all are.", style="dim", indent=0, hang=2)


def _table(rows: Sequence[HandoffListed]) -> Table:
    """The rows, folded at the width."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True)
    table.add_column("test", overflow="fold")
    if any(row.error for row in rows):
        table.add_column("error", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _lines(rows: Sequence[HandoffListed]) -> Text:
    """The same as lines of any length, for more rows than anybody looks at; a table of thousands takes seconds."""
    lines = ["  ".join(f"{heading:<{width}}" for heading, width in _HEADINGS.items()) + "  test"]
    for row in rows:
        told = [each if isinstance(each, str) else each.plain for each in _cells(row)]
        placed = (f"{cell:<{width}}" for cell, width in zip(told, _HEADINGS.values(), strict=False))
        lines.append("  ".join((*placed, *told[len(_HEADINGS) :])).rstrip())
    return Text("\n".join(lines))


def _cells(row: HandoffListed) -> tuple[str | Text, ...]:
    """One phase."""
    made_up = " (made up from the commit)" if row.reconstructed else ""
    return (
        str(row.cycle),
        row.phase,
        Text(row.result, style=_STYLES.get(row.result, "dim")),
        str(row.retries or ""),
        row.commit[:_SHORT],
        clean(row.description) + made_up,
        Text(clean(row.error.partition("\n")[0]), style="red"),
    )


def show_standing(stands: RunStanding, *, screen: Screen, typed: Typed = str) -> None:
    """Where the run stands, and what to type next."""
    rows = [("run", stands.run), *(_landed(stands, stands.last) if stands.last else _not_landed(stands))]
    if stands.at_work:
        rows.append(("at work", stands.at_work))
    rows.append(("next", typed(f"{stands.next}{_phase_after(stands)}")))
    for name, told in rows:
        style = "bold red" if name == "error" else ""
        screen.line(Text.assemble((f"{name:<8} ", "dim"), (clean(told), style)), indent=0, hang=9)


def _landed(stands: RunStanding, last: HandoffListed) -> list[tuple[str, str]]:
    """The rows that tell of the phase that landed last, and of the list."""
    total = len(stands.completed) + len(stands.pending)
    rows = [
        ("cycle", f"{last.cycle}, {last.phase}: {last.description}"),
        ("commit", last.commit[:_SHORT]),
        ("tests", f"{len(stands.completed)} of {total} of the list are done" if total else "no list is told"),
    ]
    if stands.pending:
        more = f"; and {len(stands.pending) - 3} more" if len(stands.pending) > 3 else ""
        rows.append(("open", "; ".join(stands.pending[:3]) + more))
    if last.error:
        tries = f" after {last.retries + 1} attempts" if last.retries else ""
        rows.append(("error", f"{last.phase} failed{tries}: {stands.details or last.error}"))
    return rows


def _not_landed(stands: RunStanding) -> list[tuple[str, str]]:
    """The rows of a run that has no commit yet."""
    return [("cycle", "1, PLAN: nothing has landed yet"), *([("error", stands.details)] if stands.details else [])]


def _phase_after(stands: RunStanding) -> str:
    """What it goes on with, where it goes on by a command."""
    following = "PLAN" if stands.last is None else stands.last.following
    return f"   (goes on with {following})" if not stands.at_work and following != "COMPLETE" else ""


def show_damages(damages: Sequence[Damage], *, screen: Screen, typed: Typed = str) -> None:
    """Which notes are not in what was shown, and what mends them."""
    for damage in damages[:3]:
        screen.line(f"{screen.symbols['note']} {damage.what}", style="yellow", indent=0, hang=2)
    if damages:
        more = f"{len(damages)} things are wrong with the notes." if len(damages) > 3 else ""
        screen.line(f"{more} See what can be mended: {typed('cdd tdd repair-notes')}".strip(), indent=0, hang=2)


def show_way(way: Way, *, screen: Screen) -> None:
    """What a rollback would do: commits that go and come, files, what follows."""
    receipt = way.receipt
    screen.line(f"{receipt.branch}: {receipt.source[:_SHORT]} -> {receipt.target[:_SHORT]}", style="bold", indent=0)
    for word, style, commits in (("go", "red", way.going), ("come back", "green", way.coming)):
        if commits:
            screen.line(f"Commits that {word}, {len(commits)}:", indent=0)
        for commit, subject in commits[:_MOST_FILES]:
            screen.line(Text.assemble((commit[:_SHORT], style), f" {clean(subject)}"), indent=2, hang=11)
        _left_out(len(commits), screen=screen)
    if way.changes:
        screen.line(f"Files that change, {len(way.changes)}:", indent=0)
    for change in way.changes[:_MOST_FILES]:
        screen.line(f"{_SIGNS[change.kind]} {change.path}", indent=2, hang=2)
    _left_out(len(way.changes), screen=screen)
    if receipt.loose:
        screen.line("Work of the run that is in no commit changes too, and is kept:", indent=0, hang=2)
        for path in receipt.loose[:_MOST_FILES]:
            screen.line(path, indent=2, hang=2)
        _left_out(len(receipt.loose), screen=screen)
    if way.pushed:
        told = f"{way.pushed} of those commits may be in another repository already: a push will need --force."
        screen.line(told, style="yellow", indent=0, hang=2)
    if way.following and way.following != "COMPLETE":
        screen.line(f"The run then goes on with {way.following}.", indent=0)
    screen.line(f"All of it is kept under {receipt.ref}; your own changes and files stay.", indent=0, hang=2)


def show_repairs(repairs: Sequence[Repair], *, applied: Applied | None, screen: Screen, typed: Typed = str) -> None:
    """What is wrong with the notes, what is done about it, and how to go back."""
    for each in repairs:
        mark, style = ("tool", "") if each.mends else ("note", "yellow")
        screen.line(f"{screen.symbols[mark]} {each}", style=style, indent=0, hang=2)
    if applied is not None and applied.undo is not None:
        screen.line("The notes are changed. To go back to how they were:", style="bold", indent=0, hang=2)
        screen.show(Text(f"  {applied.undo}"), wrap=False)
    elif applied is not None and repairs:
        screen.line("The notes are as they were.", indent=0)
    elif not repairs:
        screen.line("Nothing is wrong with the notes.", indent=0)
    elif any(each.mends for each in repairs):
        told = f"Nothing was changed yet. To do it: {typed('cdd tdd repair-notes --apply')}"
        screen.line(told, style="bold", indent=0, hang=2)


def told_history(site: Site, *, most: int) -> tuple[tuple[HandoffListed, ...], int, tuple[Damage, ...]]:
    """The newest handoffs, ``most`` of them or, for 0, all; how many more there are; what is wrong with any note."""
    told = account(site.repository)
    total = sum(len(entry.handoffs) for entry in told.entries)
    rows = listed(told.entries, most=most or None)
    return rows, total - len(rows), told.damages


def told_standing(site: Site) -> tuple[RunStanding, tuple[Damage, ...]]:
    """Where the run stands, and what is wrong with any note."""
    return where(site.repository, site.root, locks=site.runs.parent / "locks")


def say_done(way: Way, *, screen: Screen, typed: Typed = str) -> None:
    """Where a rollback has led, and what can be typed."""
    receipt = way.receipt
    screen.line(f"{receipt.branch} is at {receipt.target[:_SHORT]}.", style="bold", indent=0)
    if way.following and way.following != "COMPLETE":
        screen.line(f"Go on with {way.following}: {typed('cdd tdd resume')}", indent=0, hang=2)
    screen.line(f"If it was a mistake: {typed('cdd tdd rollback --undo')}", indent=0, hang=2)


def settled(site: Site) -> Site:
    """``site``, a rollback that was cut off gone to its end, unless somebody is at work there."""
    with contextlib.suppress(AlreadyAtWork):
        settle(site)
    return site


def take_in(ref: str, *, site: Site) -> None:
    """Unite the notes that were fetched into ``ref`` with those that are there, and tell how many changed."""
    count = merge_fetched(site.repository, ref)
    site.emit(Notice(text=f"Taken in from {ref}: the notes on {count} commit{'' if count == 1 else 's'} changed."))


def _left_out(count: int, *, screen: Screen) -> None:
    if count > _MOST_FILES:
        screen.line(f"and {count - _MOST_FILES} more", indent=2)
