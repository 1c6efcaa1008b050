"""The commands /tdd, /green and /audit, and what they show: history, status, repairs and audits."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from cdd_agent.audit.handoffs import CLAIMS, AuditedHandoff
from cdd_agent.clock import SystemClock
from cdd_agent.errors import AlreadyAtWork, ExitCode, UsageError, format_count, join_first
from cdd_agent.events import Emit, HandoffListed, NoteDamaged, NoteRepaired, NotesRepaired, Notice, RunStanding
from cdd_agent.git import notes_repair
from cdd_agent.git.landing import LandingWaits
from cdd_agent.git.notes import Damage, merge_fetched
from cdd_agent.git.repository import Repository
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.repl.render import create_table, show_files
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.terminal import wait_for
from cdd_agent.review import diff_commits
from cdd_agent.runs.artifact import GreenArtifact
from cdd_agent.runs.back import Back
from cdd_agent.runs.history import find_status, list_handoffs, read_reachable_notes
from cdd_agent.runs.places import find_run
from cdd_agent.untrusted.text import clean
from cdd_agent.work.records import find_records
from cdd_agent.work.state_file import load_state

if TYPE_CHECKING:
    from cdd_agent.repl.state import SessionState

MOST_FAILING = 5
_MOST_FILES = 30
_SHORT = 10
_SHORT_IN_AUDIT = 8
_ROW = "{:<5}  {:<8}  {:<6}  {:<7}  {:<10}  "
"""The columns of a phase in the history, before its test."""
_RESULT_CELLS = (17, 23)
_STYLES = {"PASS": "green", "FAIL": "cyan", "CLOSED": "bold red"}
_CLAIM_LOOK = {True: ("open", "green"), False: ("closed", "bold red"), None: ("note", "yellow")}
_SCOPES = {
    "all": "all tests",
    "target_files": "only the files of the requested tests",
    "targets": "only the requested tests",
}
_OUTCOMES = {
    "green": "the tests pass",
    "partial": "some of the tests pass and no other broke; the changes are kept",
    "failed": "the tests fail; all changes were undone",
    "refused": "the tests pass, but the change was refused; all changes were undone",
    "blocked": "the model gave up; all changes were undone",
}


def show_tree(session: "SessionState", argument: str) -> None:
    """Show where the run of a ticket works."""
    slug, tree = _find_run_tree(session, argument)
    subject = tree.git("log", ("-1", "--format=%h %s")).strip()
    changed = tree.list_uncommitted()
    session.screen.fields(
        [
            ("run tree", str(tree.root)),
            ("on", subject),
            ("changed", f"{format_count(len(changed), 'file')}; see them: /diff {slug}" if changed else "nothing"),
        ]
    )


def show_diff(session: "SessionState", argument: str) -> None:
    """Show the commits of a step as a diff; without its number, the changes that have not landed, or the last step."""
    if argument.isdecimal():
        _show_step(session, int(argument))
        return
    slug = argument or session.slug or session.find_ticket("").slug
    state = load_state(find_run(session.project.root, slug).state_path) if not argument else None
    landed = [number for number, step in state.step_executions.items() if step.commits] if state is not None else []
    # The end of a review removes the run tree, and what landed can still be shown.
    if not landed or session.project.find_run_tree(slug) is not None:
        slug, tree = _find_run_tree(session, argument)
        snapshot = TreeStore(tree).take(f"refs/cdd/tests/{slug}/shown", message="for a diff")
        if files := diff_commits(tree, str(tree.read_head()), after=snapshot.commit):
            show_files(files, screen=session.screen)
            return
        session.screen.line(f"The run of {slug} has changed nothing that has not landed.")
    if landed:
        _show_step(session, landed[-1])


def _show_step(session: "SessionState", number: int) -> None:
    ticket = session.find_ticket("")
    state = load_state(ticket.state_path)
    if state is None:
        raise UsageError(f"{ticket.slug} has not been carried out yet.", hint=f"/exec {ticket.slug}")
    step = state.execution(number)
    commits = list(step.commits.values())
    if not commits or step.base_commit is None:
        hint = "/diff shows the changes that have not landed"
        raise UsageError(f"Step {number} of {ticket.slug} has no commits.", hint=hint)
    session.screen.line(f"Step {number}  {step.title}", style="bold")
    files = diff_commits(session.project.repository, step.base_commit, after=commits[-1])
    show_files(files, screen=session.screen)


def open_shell(session: "SessionState") -> None:
    """Open the user's shell in the run tree of the current ticket."""
    slug, tree = _find_run_tree(session, "")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("A shell needs a terminal.", hint=f"cd {tree.root}")
    session.screen.line(f"The run tree of {slug}: what you change here, a run that continues may undo. exit returns.")
    with contextlib.suppress(FileNotFoundError):
        subprocess.run([_find_shell()], cwd=tree.root, check=False)


def _find_shell() -> str:
    return os.environ.get("SHELL") or "/bin/sh"


def run_in_shell(session: "SessionState", command: str) -> ExitCode:
    """Run a command of the user in the user's own shell and files, outside of any sandbox."""
    given = None if sys.stdin.isatty() else subprocess.DEVNULL  # the rest of a script is not for the command
    try:
        process = subprocess.Popen([_find_shell(), "-c", command], cwd=session.project.root, stdin=given)
    except OSError as error:
        raise UsageError(f"Cannot start the shell {_find_shell()}: {error.strerror}.", hint="set SHELL") from error
    if status := wait_for(process):
        session.screen.line(f"exit status {status}", style="red")
    return ExitCode.CLOSED if status else ExitCode.DONE


def _find_run_tree(session: "SessionState", argument: str) -> tuple[str, Repository]:
    slug = argument or session.slug or session.find_ticket("").slug
    tree = session.project.find_run_tree(slug)
    if tree is None:
        slug = session.find_ticket(slug).slug
        raise UsageError(f"{slug} has no run tree yet.", hint=f"/exec {slug} makes one")
    return slug, tree


def show_artifact(artifact: GreenArtifact, *, screen: Screen) -> None:
    """Show the outcome of a GREEN run, its files, the last test run, and the failing tests."""
    results, files = artifact.test_results, artifact.implementation_files
    screen.gap()
    symbol, style = ("open", "bold green") if artifact.outcome == "green" else ("closed", "bold red")
    times = format_count(artifact.iterations, "iteration")
    has_passed = results.passed and not (results.failed or results.errors)
    outcome = "refused" if artifact.outcome == "failed" and has_passed else artifact.outcome
    screen.line(f"{screen.symbols[symbol]} {_OUTCOMES[outcome]}, after {times}", style=style)
    errors = "error" if results.errors == 1 else "errors"
    counts = {"passed": results.passed, "failed": results.failed, errors: results.errors, "skipped": results.skipped}
    counted = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test ran"
    failing = [detail for detail in results.test_details if detail.status in ("failed", "error")]
    rows = [
        ("created", ", ".join(files.created)),
        ("edited", ", ".join(files.edited)),
        ("deleted", ", ".join(files.deleted)),
        ("added", ", ".join(f"{part.type} {part.name}" for part in artifact.components)),
        ("commit", artifact.commit[:8] if artifact.commit else ""),
        ("tests", f"{counted} (the last run: {_SCOPES[artifact.scope]})"),
        ("", join_first([f"{each.name}: {each.kind}" for each in failing], most=MOST_FAILING, separator="\n")),
    ]
    screen.fields((word, text) for word, text in rows if text)


class RunHistory:
    """Shows and changes the history of a run, for the prompt and the command line."""

    def __init__(self, root: Path, *, screen: Screen, emit: Emit, as_json: bool = False) -> None:
        """With ``as_json``, results go to ``emit`` and are not shown."""
        self.back = Back.of_project(root, emit=emit)
        self._root, self._repository = root, self.back.repository
        self._screen = screen
        self._emit = emit
        self._as_json = as_json

    def show_status(self) -> None:
        """Show the progress of the run and the damaged notes."""
        self._finish_pending()
        locks = find_records(self._root).folder / "locks"
        status, damages = find_status(self._repository, self._root, locks=locks)
        if self._as_json:
            self._emit(status)
        else:
            show_run_status(status, screen=self._screen)
        show_damages(damages, screen=self._screen)

    def show_phases(self, most: int) -> None:
        """Show the newest phases, and the damaged notes. ``most`` 0 shows all."""
        self._finish_pending()
        notes = read_reachable_notes(self._repository)
        rows = list_handoffs(notes.entries, most=most or None)
        if self._as_json:
            for row in rows:
                self._emit(row)
        else:
            hidden = sum(len(entry.handoffs) for entry in notes.entries) - len(rows)
            show_history(rows, hidden=hidden, screen=self._screen)
        show_damages(notes.damages, screen=self._screen)

    def repair_notes(self, fetched: str | None, *, applies: bool) -> None:
        """Show the repairs of the notes, and their result if it ``applies`` them. Merge the ref ``fetched`` first."""
        self._finish_pending()
        if fetched is not None:
            count = merge_fetched(self._repository, fetched)
            self._emit(Notice(text=f"Merged {fetched}: the notes of {format_count(count, 'commit')} changed."))
        applied = None
        if applies:
            repairs, applied = notes_repair.apply_repairs(self._repository, now=SystemClock().now())
        else:
            repairs = notes_repair.plan_repairs(self._repository)
        if not self._as_json:
            show_repairs(repairs, applied=applied, screen=self._screen)
            return
        for each in repairs:
            is_repaired = applies and each.mends
            self._emit(NoteRepaired(what=each.what, commit=each.commit, action=each.action) if is_repaired else each)
        if applied is not None:
            self._emit(applied)

    def _finish_pending(self) -> None:
        """Finish a move that was interrupted, unless another cdd process is at work, or it waits for its branch."""
        with contextlib.suppress(AlreadyAtWork, LandingWaits):
            self.back.finish()


def show_history(rows: Sequence[HandoffListed], *, hidden: int, screen: Screen) -> None:
    """Show the phases of each run, newest first. ``hidden`` is the number of phases that are not in ``rows``."""
    # Not a table: with thousands of rows, rich takes several seconds for one.
    heading = _ROW.format("cycle", "phase", "result", "retries", "commit") + "test"
    failed = "  error" if any(row.error for row in rows) else ""
    for ticket, handoffs in groupby(rows, key=lambda row: row.ticket):
        screen.line(Text(clean(ticket), style="bold"))
        screen.line(f"{heading}{failed}", style="dim")
        for row in handoffs:
            columns = _ROW.format(row.cycle, row.phase, row.result, row.retries or "", row.commit[:_SHORT])
            text = Text(
                columns + clean(row.description) + (" (reconstructed from the commit)" if row.reconstructed else "")
            )
            text.stylize(_STYLES.get(row.result, "dim"), *_RESULT_CELLS)
            first, *_ = clean(row.error).splitlines() or [""]
            text.append(f"  {first}".rstrip(), "red")
            screen.line(text, hang=len(columns))
    if hidden:
        screen.line(f"{hidden} older phases are not shown; -n 0 shows all.", style="dim")


def show_run_status(status: RunStanding, *, screen: Screen) -> None:
    """Show the progress of a run and the next command."""
    last = status.last
    rows = [("run", status.run)]
    if last is None:
        rows += [("cycle", "1, PLAN: no phase is finished yet"), ("error", status.details)]
    else:
        total = len(status.completed) + len(status.pending)
        tries = f" after {last.retries + 1} attempts" if last.retries else ""
        rows += [
            ("cycle", f"{last.cycle}, {last.phase}: {last.description}"),
            ("commit", last.commit[:_SHORT]),
            ("tests", f"{len(status.completed)} of {total} are done" if total else "the list is unknown"),
            ("open", join_first(status.pending, most=3, separator="; ")),
            ("error", f"{last.phase} failed{tries}: {status.details or last.error}" if last.error else ""),
        ]
    phase = "PLAN" if last is None else last.following
    following = f"   (continues with {phase})" if not status.at_work and phase != "COMPLETE" else ""
    rows += [("at work", status.at_work), ("next", screen.as_typed(f"{status.next}{following}"))]
    screen.fields(((name, text) for name, text in rows if text), error="error")


def show_damages(damages: Sequence[Damage], *, screen: Screen) -> None:
    """Show the damaged notes, which the history lacks, and the command that repairs them."""
    for damage in damages[:3]:
        screen.note(str(damage.what))
    if damages:
        count = f"{len(damages)} notes have problems. " if len(damages) > 3 else ""
        screen.line(f"{count}Show the repairs: {screen.as_typed('cdd tdd repair-notes')}")


def show_repairs(repairs: Sequence[NoteDamaged], *, applied: NotesRepaired | None, screen: Screen) -> None:
    """Show the problems of the notes and their repairs; if they were ``applied``, also how to undo them."""
    for each in repairs:
        symbol, style = ("tool", "") if each.mends else ("note", "yellow")
        screen.line(f"{screen.symbols[symbol]} {each.what} {each.action}", style=style)
    if applied is not None and applied.undo is not None:
        screen.line("The notes are repaired. To undo that:", style="bold")
        screen.show(Text(f"  {applied.undo}"), wrap=False)
    elif applied is not None and repairs:
        screen.line("The notes are unchanged.")
    elif not repairs:
        screen.line("The notes have no problems.")
    elif any(each.mends for each in repairs):
        text = f"Nothing was changed yet. Apply the repairs: {screen.as_typed('cdd tdd repair-notes --apply')}"
        screen.line(text, style="bold")


def show_audit(audited: Sequence[AuditedHandoff], *, screen: Screen) -> None:
    """Show a table of handoffs and claims for each ticket, then each claim that does not hold, then the totals."""
    for ticket, handoffs in groupby(audited, key=lambda each: each.ticket):
        screen.gap()
        screen.line(Text(clean(ticket) or "no ticket", style="bold"))
        table = create_table("cycle", "phase", "commit", *CLAIMS, no_wrap=True)
        for each in handoffs:
            marks: dict[str, Text] = {}
            for claim in each.claims:
                symbol, style = _CLAIM_LOOK[claim.holds]
                marks.setdefault(claim.name, Text(screen.symbols[symbol], style=style))
            cells = (marks.get(name, Text()) for name in CLAIMS)
            table.add_row(str(each.cycle or ""), each.phase, each.commit[:_SHORT_IN_AUDIT], *cells)
        screen.show(table)
    screen.gap()
    for each in audited:
        for claim in each.claims:
            if not claim.holds:
                symbol, style = _CLAIM_LOOK[claim.holds]
                step = f"{each.phase} of {each.ticket}, cycle {each.cycle}, " if each.phase else ""
                head = f"{screen.symbols[symbol]} {clean(step)}{each.commit[:_SHORT_IN_AUDIT]}: {claim.name}: "
                screen.line(Text.assemble((head, style)) + clean(claim.text))
    claims = [claim for each in audited for claim in each.claims]
    failed, unknown = (sum(claim.holds is holds for claim in claims) for holds in (False, None))
    text = f"{format_count(len(audited), 'handoff')}, {format_count(len(claims), 'claim')}: "
    if failed:
        screen.line(f"{text}{failed} false.", style="bold red")
    elif unknown:
        screen.line(f"{text}{unknown} unknown, the rest true.", style="bold yellow")
    else:
        screen.line(f"{text}all true.", style="bold green")
