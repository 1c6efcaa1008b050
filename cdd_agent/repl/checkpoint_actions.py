"""Checkpoints and moves to points of the past, at the prompt and on the command line.

``/undo``, ``/redo``, ``/checkpoint``, ``/rewind``, ``cdd checkpoint`` and ``cdd tdd rollback``.
"""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec
from rich.text import Text

from cdd_agent.errors import CddError, UsageError, format_count, join_first
from cdd_agent.events import CHANGE_LETTERS, Change, Notice, RollbackPlanned, RolledBack, encode
from cdd_agent.git.tree_store import Checkpoint, Description, RestorePlan
from cdd_agent.repl.question import confirm
from cdd_agent.repl.render import format_time, show_files
from cdd_agent.repl.screen import Screen
from cdd_agent.review import diff_trees
from cdd_agent.runs.back import Back, MovePlan
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.work.state import Status
from cdd_agent.work.state_file import load_state

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.repl.state import SessionState

WORDS = {
    "list": "list the checkpoints, newest first",
    "diff": "ID [ID]: show the changes since a checkpoint, or between two",
    "restore": "ID: make the files those of a checkpoint; the conversation stays",
    "undo": "return to where you were before the last restore, rewind, /undo or rollback",
    "redo": "redo what was undone last",
    "prune": "delete the oldest checkpoints without a name",
}
"""The words after ``/checkpoint`` -> their help texts; another word is the name of a new checkpoint."""
KEPT = 100
KEPT_DAYS = 30
_MOST_SHOWN = 20
_MOST_CHOICES = 15
_MOST_FILES = 30
_NAMED_FILES = 3
_MOST_STEPS = 5
_MOST_WORDS = 40
_SHORT = 10


class CheckpointView:
    """Shows and changes the checkpoints of a project."""

    def __init__(self, back: Back, *, screen: Screen, as_json: bool = False) -> None:
        """With ``as_json``, results are lines of JSON on standard output."""
        self.back = back
        self.checkpoints = back.checkpoints
        self._screen = screen
        self._as_json = as_json

    def report(self, made: Checkpoint) -> None:
        """Show a new checkpoint."""
        if self._as_json:
            self._print(made, ())
            return
        name = f" {clean(made.about.name)}" if made.about.name else ""
        self._screen.line(f"{self._screen.symbols['open']} Checkpoint {made.number}{name}", style="green")
        self._show_skipped(made.about.skipped.items())

    def show_all(self, most: int = _MOST_SHOWN) -> None:
        """List the newest checkpoints; ``most`` 0 lists all."""
        known = self.checkpoints.list_all()
        shown = known[-most:][::-1]
        changes = self.checkpoints.list_changes_since(shown)
        for each in shown:
            if self._as_json:
                self._print(each, changes[each.number])
            else:
                self._screen.line(Text(f"{each.number:>4}  {describe(each, changes[each.number])}"), hang=6)
        if not known and not self._as_json:
            by_hand = self._screen.as_typed("cdd checkpoint create")
            self._screen.line(f"No checkpoints yet. cdd makes one before each phase; by hand: {by_hand}")
        elif len(shown) < len(known) and not self._as_json:
            self._screen.line(f"{len(known) - len(shown)} older ones are not shown; -n 0 shows all.", style="dim")

    def show_diff(self, name: str, other: str | None = None) -> None:
        """Show what has changed since a checkpoint, or between two."""
        one, two = self.checkpoints.find(name), None if other is None else self.checkpoints.find(other)
        before, after, changes = self.checkpoints.compare(one, two)
        paths = {change.path for change in changes}
        files = [file for file in diff_trees(self.checkpoints.repository, before, after=after) if file.path in paths]
        if self._as_json:
            for file in files:
                sys.stdout.write(f"{encode(file).decode()}\n")
        elif files:
            show_files(files, screen=self._screen)
        else:
            self._screen.line("Nothing differs.")

    def show_plan(self, plan: MovePlan) -> None:
        """Show what a move would change."""
        if plan.effects is not None and self._as_json:
            sys.stdout.write(f"{encode(plan.effects).decode()}\n")
        elif plan.effects is not None and not plan.steps:
            show_effects(plan.effects, screen=self._screen)
        if plan.restore is not None and not self._as_json:
            self._show_restore(plan.restore, plan=plan)

    def _show_restore(self, restore: RestorePlan, *, plan: MovePlan) -> None:
        target, screen = restore.target, self._screen
        when = format_time(target.about.time, with_seconds=True)
        screen.line(f"To checkpoint {target.number}, {clean(target.about.label)}, {when}:", style="bold")
        rows = [f"{CHANGE_LETTERS[change.kind]} {clean(change.path)}" for change in restore.changes]
        screen.line(f"Files that change, {len(rows)}:" if rows else "No file changes.")
        screen.items(rows, most=_MOST_FILES)
        self._show_skipped(target.about.skipped.items())
        if plan.steps:
            taken = join_first(plan.steps, most=_MOST_STEPS)
            screen.line(f"Taken back first, with their commits: {taken}.", style="yellow")
        head = self.checkpoints.repository.read_head() if target.about.head else None
        if plan.effects is None and head != target.about.head:
            moved = f"the branch was at {str(target.about.head)[:10]} then and is at {str(head)[:10]}."
            suggestion = self.back.suggest_undo() if head else ""
            screen.line(f"HEAD and the index stay: {moved} {suggestion}", style="yellow")

    def report_move(self, plan: MovePlan, before: Checkpoint) -> None:
        """Show that a move was made, and how to undo it."""
        effects, screen = plan.effects, self._screen
        if self._as_json:
            if effects is not None:
                why = ": ".join(_describe_done(plan))
                done = RolledBack(checkpoint=effects.target, kept=effects.kept, why=why)
                sys.stdout.write(f"{encode(done).decode()}\n")
            if plan.restore is not None:
                self._print(before, ())
            return
        if effects is not None:
            said, command = _describe_done(plan)
            typed = screen.as_typed(command)
            if plan.move.kind == "step" and typed != command:  # the prompt has shorter commands for steps
                typed = "/undo" if plan.move.turn == "undo" else "/redo"
            screen.line(f"{screen.symbols['back']} {said}: {typed}", style="bold")
            if effects.next and effects.next != "COMPLETE":
                screen.line(f"Continue with {effects.next}: {screen.as_typed('cdd tdd resume')}")
        if plan.restore is not None:
            other = "redo" if plan.move.turn == "undo" else "undo"
            saved = f"Restored. The files before are checkpoint {before.number}."
            command = screen.as_typed(f"cdd checkpoint {other}")
            screen.line(f"{screen.symbols['back']} {saved} {other.capitalize()}: {command}", style="bold")

    def _show_skipped(self, skipped: Iterable[tuple[str, str]]) -> None:
        rows = [f"{clean(path)}: {why}" for path, why in skipped]
        if rows:
            self._screen.line("Left out, and never changed by a restore:", style="dim")
            self._screen.items(rows, most=_MOST_FILES)

    def _print(self, each: Checkpoint, changes: Iterable[Change]) -> None:
        fields = msgspec.to_builtins(each.about)
        changed = msgspec.to_builtins(tuple(changes))
        line = {"event": "CheckpointListed", "number": each.number, "ref": each.ref, **fields, "changes": changed}
        sys.stdout.write(json.dumps(line) + "\n")


def ask_about(plan: MovePlan) -> str:
    """Return the question whether to go where ``plan`` leads."""
    move = plan.move
    if plan.restore is not None:
        return f"Restore these files{' and cut the conversation' if cuts_talks(plan) else ''}?"
    match move.turn:
        case "":
            return "Roll back?" if move.kind == "rollback" else f"Take {move.what} back?"
        case "undo":
            return f"Undo {move.what}?" if move.kind == "rollback" else f"Bring {move.what} back?"
        case "redo":
            return f"Redo {move.what}?" if move.kind == "rollback" else f"Take {move.what} back?"
        case _:
            assert_never(move.turn)


def cuts_talks(plan: MovePlan) -> bool:
    """Return whether the conversations at the prompt go back too."""
    return plan.restore is not None and bool(plan.move.turn or plan.move.kind == "rewind")


def _describe_done(plan: MovePlan) -> tuple[str, str]:
    """Return what a move did to the branch, and the command that undoes it."""
    move = plan.move
    what = f"{move.what[:1].upper()}{move.what[1:]}"
    if move.kind == "step":
        if move.turn == "undo":
            return f"{what} is back. To take it back again", "cdd checkpoint redo"
        return f"{what} was taken back. To bring it back", "cdd checkpoint undo"
    match move.turn:
        case "undo":
            return f"{what} was undone. To redo it", "cdd checkpoint redo"
        case "redo":
            return f"{what} was redone. To undo it", "cdd checkpoint undo"
        case "":
            if move.kind == "rollback":
                return f"{move.branch} is at {move.target[:_SHORT]}. Undo the rollback", "cdd tdd rollback --undo"
            return f"Took back {format_count(len(plan.steps), 'step')}. To have them again", "/redo"
        case _:
            assert_never(move.turn)


def show_effects(effects: RollbackPlanned, *, screen: Screen) -> None:
    """Show the effects of a move on the branch: commits, files, and the next phase."""
    screen.line(f"{effects.branch}: {effects.source[:_SHORT]} -> {effects.target[:_SHORT]}", style="bold")
    for heading, style, commits in (("Removed", "red", effects.going), ("Restored", "green", effects.coming)):
        rows = [Text.assemble((each.commit[:_SHORT], style), f" {clean(each.subject)}") for each in commits]
        if rows:
            screen.line(f"{heading} commits, {len(rows)}:")
            screen.items(rows, most=_MOST_FILES, hang=11)
    if changes := [f"{CHANGE_LETTERS[change.kind]} {clean(change.path)}" for change in effects.files]:
        screen.line(f"Changed files, {len(changes)}:")
        screen.items(changes, most=_MOST_FILES)
    if effects.pushed:
        text = (
            f"Another repository may already have {effects.pushed} of those commits: the next push will need --force."
        )
        screen.line(text, style="yellow")
    if effects.next and effects.next != "COMPLETE":
        screen.line(f"The run then continues with {effects.next}.")
    screen.line(f"Everything is saved under {effects.kept}. Your own changes and files stay.")


def describe(each: Checkpoint, changes: tuple[Change, ...]) -> str:
    """Return a checkpoint in one line: time, ticket, occasion, and the files that changed since."""
    names = join_first([clean(change.path) for change in changes], most=_NAMED_FILES)
    since = f"{format_count(len(changes), 'file')} changed since: {names}" if changes else "nothing changed since"
    about = each.about
    where = " ".join(filter(None, (clean(about.ticket), clean(about.label))))
    return f"{format_time(about.time, with_seconds=True)}  {where}  {since}"


def save_before(session: "SessionState", words: str) -> None:
    """Make a checkpoint before the user's message; if that fails, say so and make no more in this session."""
    if session.unsaved:  # it may take long to fail, as in a home folder
        return
    try:
        session.project.save_files(Description(kind="talk", ticket=session.slug, words=shorten(words, _MOST_WORDS)))
    except CddError as error:
        session.unsaved = error.happened
        session.project.emit(Notice(text=f"/rewind cannot return to here: {error.happened} {error.hint}"))


def prune_old(project: "Composition", *, now: datetime | None = None) -> int:
    """Delete what cdd saved before phases and messages long ago, and return how many refs that were.

    The checkpoints of tickets that are not done stay. Those of forks that are gone, and the snapshots of attempts in
    them, do not. Does nothing if ``project`` has made no checkpoint, or if the state of a ticket cannot be read.
    """
    if "checkpoints" not in vars(project):  # without git, opening them would create a repository
        return 0
    checkpoints, limit = project.checkpoints, (now or datetime.now(UTC)) - timedelta(days=KEPT_DAYS)
    try:
        states = {ticket.slug: load_state(ticket.state_path) for ticket in list_tickets(project.root)}
        spared = {slug for slug, state in states.items() if state is None or state.status != Status.COMPLETED}

        def is_old(each: Checkpoint) -> bool:
            about, root = each.about, Path(each.about.root)
            if about.name or about.kind not in ("run", "talk") or datetime.fromisoformat(about.time) >= limit:
                return False
            if checkpoints.is_own(each):
                return about.ticket not in spared
            return root.parent.parts[-2:] == (".cdd", "worktrees") and not root.exists()

        deleted = checkpoints.delete(filter(is_old, checkpoints.list_all(everywhere=True)))
        return deleted + project.forks.forget_snapshots(before=limit)
    except CddError:
        return 0


def checkpoint(session: "SessionState", argument: str) -> None:
    """Make a checkpoint, or carry out one of ``WORDS``."""
    first, *rest = argument.split() or [""]
    view = _open_view(session)
    match first, rest:
        case "list", []:
            view.show_all()
        case "diff", [name, *others] if len(others) <= 1:
            view.show_diff(name, *others)
        case "restore", [name]:
            go_back(session, view.back.plan_files(view.checkpoints.find(name)))
        case (("undo" | "redo"), []):
            go_back(session, view.back.plan_return(is_redo=first == "redo"))
        case "prune", []:
            session.screen.line(f"Deleted {format_count(view.checkpoints.prune(keep=KEPT), 'checkpoint')}.")
        case word, _ if word in WORDS:
            happened = f"/checkpoint {argument} lacks words, or has too many."
            raise UsageError(happened, hint=f"/checkpoint {word} {WORDS[word]}")
        case _:
            name = require_name(" ".join(rest) if first == "create" else argument)
            view.report(session.project.save_files(Description(kind="manual", ticket=session.slug, name=name)))


def require_name(name: str) -> str:
    """Return the name of a new checkpoint, which may be empty. Raises ``UsageError`` if it can be mistaken."""
    if name.isdecimal() or name in WORDS or not name.isprintable():
        raise UsageError(
            f"{name!r:.60} cannot be the name of a checkpoint.",
            hint="use other words: cdd checkpoint create before cleanup",
        )
    return name


def rewind(session: "SessionState", argument: str) -> None:
    """Restore the files of a checkpoint, and cut the conversations to the messages that they had then.

    If only whole steps were committed since, their commits are taken back first, as /undo does.
    """
    view = _open_view(session)
    if argument:
        target = view.checkpoints.find(argument)
    else:
        choose = session.project.options.choose
        known = view.checkpoints.list_all()[-_MOST_CHOICES:][::-1]
        if not known:
            raise UsageError("There is nothing to rewind to yet.", hint="make a checkpoint: /checkpoint NAME")
        if choose is None:
            raise UsageError(
                "cdd cannot ask you here.", hint="name a checkpoint: /rewind ID; /checkpoint list shows them"
            )
        changes = view.checkpoints.list_changes_since(known)
        rows = tuple(describe(each, changes[each.number]) for each in known)
        number = choose("Rewind files and conversation to which point?", ("nothing: stay here", *rows))
        if number == 0:
            session.screen.line("Nothing was changed.")
            return
        target = known[number - 1]
    go_back(session, view.back.plan_rewind(target))


def undo(session: "SessionState", _argument: str) -> None:
    """Take the last step back."""
    go_back(session, session.project.back.plan_step())


def redo(session: "SessionState", _argument: str) -> None:
    """Return to the point that was left last."""
    go_back(session, session.project.back.plan_return())


def _open_view(session: "SessionState") -> CheckpointView:
    return CheckpointView(session.project.back, screen=session.screen)


def go_back(session: "SessionState", plan: MovePlan) -> None:
    """Go where ``plan`` leads, after the user has seen what changes."""
    view, screen = _open_view(session), session.screen
    view.show_plan(plan)
    if not session.project.options.attended:
        raise UsageError("cdd cannot ask you here. Nothing was changed.", hint="type it at the prompt in a terminal")
    if not confirm(f"{ask_about(plan)} [y/N]", screen=screen):
        screen.line("Nothing was changed.")
        return
    name, talks = session.measure_talks()
    before = view.back.go(plan, session=name, talks=talks)
    if plan.effects is not None:
        session.read_again()
    view.report_move(plan, before)
    if plan.restore is None or not cuts_talks(plan):
        return
    cut, stay = session.cut_talks(plan.restore.target, before=before)
    if cut:
        done = "Cut" if cut > 0 else "Brought back"
        screen.line(f"{done} {format_count(abs(cut), 'message')} of the conversation.")
    if stay:
        screen.line(f"Not cut, because the checkpoint was made elsewhere: {', '.join(stay)}.", style="dim")
