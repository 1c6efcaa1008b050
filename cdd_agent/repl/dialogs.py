"""What lies behind a run, for people: its history, where it stands, what a rollback would do, and notes mended.

What a run of GREEN came to, as a person reads it.

What is said around Socrates and the Planner: what their conversation came to, and what can be typed next.

What is said while a person reviews: one completed step after the other, its evidence, its diff, and a decision.
"""

import contextlib
import difflib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from cdd_agent.errors import AlreadyAtWork, DocumentError, UsageError
from cdd_agent.events import HandoffListed, Notice, RunStanding
from cdd_agent.git.notes_history import Damage, merge_fetched
from cdd_agent.git.notes_repair import Applied, Repair
from cdd_agent.history.rollback import Site, Way, settle
from cdd_agent.history.runs import account, listed, where
from cdd_agent.repl.render import show_plan
from cdd_agent.repl.screen import Screen
from cdd_agent.review import Evidence, FileDiff, Landed, Review, StepToReview
from cdd_agent.tickets import spec
from cdd_agent.tickets.plan import Plan
from cdd_agent.tickets.spec import Spec
from cdd_agent.untrusted.text import clean
from cdd_agent.work import state_file
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.green.artifact import GreenArtifact

MOST_FAILING = 5
"""Tests that are named."""

_SCOPES = {
    "all": "all tests",
    "target_files": "the tests of the targets' files only",
    "targets": "the targets only",
}
_OUTCOMES = {
    "green": "the tests pass",
    "partial": "some of the tests pass, and that is kept; no other was broken",
    "failed": "the tests do not pass; all was taken back",
    "blocked": "the model gave up; all was taken back",
}


def show_artifact(artifact: GreenArtifact, *, screen: Screen) -> None:
    """Outcome, files, what the last run of tests said, and what fails."""
    results, files = artifact.test_results, artifact.implementation_files
    screen.gap()
    symbol, style = ("open", "bold green") if artifact.outcome == "green" else ("closed", "bold red")
    times = "1 iteration" if artifact.iterations == 1 else f"{artifact.iterations} iterations"
    told = f"{screen.symbols[symbol]} {_OUTCOMES[artifact.outcome]}, after {times}"
    screen.line(told, style=style, indent=0, hang=2)
    for word, paths in (("created", files.created), ("edited", files.edited), ("deleted", files.deleted)):
        if paths:
            _row(word, ", ".join(paths), screen=screen)
    if artifact.components:
        _row("added", ", ".join(f"{part.type} {part.name}" for part in artifact.components), screen=screen)
    if artifact.commit:
        _row("commit", artifact.commit[:8], screen=screen)
    counts = {"passed": results.passed, "failed": results.failed, "errors": results.errors, "skipped": results.skipped}
    counted = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test was run"
    _row("tests", f"{counted} (the last run: {_SCOPES[artifact.scope]})", screen=screen)
    failing = [detail for detail in results.test_details if detail.status in ("failed", "error")]
    for detail in failing[:MOST_FAILING]:
        _row("", f"{detail.name}: {detail.kind}", screen=screen)
    if len(failing) > MOST_FAILING:
        _row("", f"and {len(failing) - MOST_FAILING} more", screen=screen)


def _row(word: str, told: str, *, screen: Screen) -> None:
    screen.line(Text.assemble((f"{word:<9}", "dim"), clean(told)), indent=0, hang=9)


_HOW_TO_ANSWER = "A number, your own words, or later to leave it open; Enter shows it again."


def question(socrates: Socrates, words: str, *, screen: Screen) -> None:
    """Let Socrates answer ``words``; without any, begin, or show again what was asked.

    What the spec lacks is said before the first question, and wherever Socrates stops without one; a complete spec is
    shown, and can be talked about.
    """
    if words:
        socrates.hear(words)
    elif socrates.missing:
        _begin(socrates, screen=screen)
    missing = socrates.missing
    if not missing:
        _show_complete(socrates, screen=screen)
    elif socrates.question is not None:
        if not words:
            screen.line(_HOW_TO_ANSWER, style="dim", indent=0, hang=2)
    elif words:
        told = f"{screen.symbols['todo']} Not complete; it lacks {'; '.join(missing)}"
        screen.line(told, style="bold", indent=0, hang=2)
        screen.line("Say in plain words what you want, or what to change.", style="dim", indent=0, hang=2)


def plan(planner: Planner, words: str, *, screen: Screen) -> None:
    """Let the Planner draft as ``words`` say; without words, show the plan that is there, or draft the first one.

    A plan that is there is shown with what is odd in it. Raises ``DocumentError``, with the lines, for one that cannot
    be carried out, once it is shown as far as it can be understood.
    """
    path = planner.ticket.plan_path
    if not path.exists() or words:
        _show(planner.draft(words), planner, screen=screen)
        return
    saved = planner.saved()
    found = planner.problems(saved)
    if found:
        if saved.steps:
            _show_tree(saved, planner, screen=screen)
        raise DocumentError(str(path), found, hint="mend the file, or say in plain words what the Planner is to change")
    for warning in planner.warnings(saved):
        screen.line(f"{screen.symbols['note']} {warning}", style="yellow", indent=0, hang=2)
    _show(saved, planner, screen=screen)


def _begin(socrates: Socrates, *, screen: Screen) -> None:
    """Say what the spec lacks and let Socrates ask; what was asked before is shown again."""
    if not socrates.conversation.messages:
        _show_missing(socrates, screen=screen)
        socrates.open(somebody_answers=True)
    elif socrates.question is not None:
        socrates.ask_again()
    else:
        screen.stream(socrates.ask_again())
        screen.end_prose()


def _show_missing(socrates: Socrates, *, screen: Screen) -> None:
    """What the spec lacks, what is weak in it, and the rules."""
    slug, wanted = socrates.ticket.slug, spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(f"{screen.symbols['todo']} The spec of {slug} is not complete. It lacks:", style="bold", indent=0)
    for lack in spec.find_missing(wanted):
        screen.line(f"{screen.symbols['note']} {lack}", indent=2, hang=2)
    _show_remarks(wanted, screen=screen)
    screen.line(f"To be complete it needs {spec.COMPLETE}.", style="dim", indent=0, hang=2)
    screen.gap()


def _show_remarks(wanted: Spec, *, screen: Screen) -> None:
    """What is weak in a spec."""
    for remark in spec.find_vague_criteria(wanted):
        screen.line(f"{screen.symbols['note']} {remark}", style="yellow", indent=2, hang=2)


def _show_complete(socrates: Socrates, *, screen: Screen) -> None:
    """The criteria of a complete spec, and what can be done with it."""
    wanted = spec.load(socrates.ticket.spec_path)
    screen.gap()
    told = f"{screen.symbols['open']} The spec of {socrates.ticket.slug} is complete:"
    screen.line(told, style="bold green", indent=0)
    for criterion in wanted.acceptance_criteria:
        screen.line(Text.assemble((criterion.id, "bold"), f"  {clean(criterion.text)}"), indent=2, hang=6)
    _show_remarks(wanted, screen=screen)
    screen.line("Say in plain words what to change, or go on: /plan", style="bold", indent=0, hang=2)


def _show(saved: Plan, planner: Planner, *, screen: Screen) -> None:
    """The steps of a plan, where it lies, and what can be said to it."""
    _show_tree(saved, planner, screen=screen)
    screen.line("Say in plain words what to change, or go on: /exec", style="bold", indent=0, hang=2)


def _show_tree(saved: Plan, planner: Planner, *, screen: Screen) -> None:
    """The steps of a plan as a tree, and where it lies."""
    folder = planner.ticket.folder
    shown = planner.ticket.plan_path.relative_to(folder.parent.parent)
    screen.gap()
    screen.line(f"The plan of {planner.ticket.slug}, in full in {shown}:", style="bold", indent=0, hang=2)
    show_plan(saved, screen=screen, criteria=planner.criteria, created=planner.created(saved))
    screen.gap()


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


WORDS = {"approve": ("a",), "next": ("n", ""), "previous": ("p",), "diff": ("d",), "exit": ()}
"""What a review listens to -> other ways to say it; a number goes to that step, ``diff`` may name a file."""

MOST_LINES = 80
"""Of all the diffs of a step that are shown unasked."""

_SIGN = {"created": "A", "modified": "M", "deleted": "D"}


def greet(review: Review, *, screen: Screen) -> bool:
    """Show the first step that is open, or that all are decided about; whether anything is left to decide."""
    if not review.left:
        show_overview(review.steps, screen=screen)
        screen.line(f"All {len(review.steps)} completed steps of {review.ticket.slug} are approved.", style="bold")
        return False
    show_step(review.step, count=len(review.steps), screen=screen)
    _say_what_is_next(review, screen=screen)
    return True


def say(review: Review, words: str, *, screen: Screen) -> bool:
    """Carry out one of the words of a review; whether it goes on listening."""
    word, argument = _understood(words, review)
    match word:
        case "exit":
            screen.line("Left the review; /review comes back to what is open.", indent=0)
            return False
        case "approve":
            number = review.step.number
            _require_as_shown(review)
            review.approve()
            screen.line(f"{screen.symbols['open']} Step {number} approved.", style="bold green", indent=0)
            if not review.left:
                show_overview(review.steps, screen=screen)
                screen.line("Nothing is left to review.", style="bold", indent=0)
                return False
        case "diff":
            for file in _files(review.step, argument):
                show_file(file, screen=screen)
            _say_what_is_next(review, screen=screen)
            return True
        case "step":
            review.at = next(at for at, step in enumerate(review.steps) if step.number == int(argument))
        case _:
            review.at = (review.at + (1 if word == "next" else -1)) % len(review.steps)
    screen.gap()
    show_step(review.step, count=len(review.steps), screen=screen)
    _say_what_is_next(review, screen=screen)
    return True


def _require_as_shown(review: Review) -> None:
    """Raise ``UsageError`` if the step has other commits by now than those that were shown."""
    state, step = state_file.load(review.ticket.state_path), review.step
    landed = state.execution(step.number).commits.values() if state is not None else ()
    if set(landed) != {shown.commit for shown in step.commits}:
        raise UsageError(
            f"Step {step.number} is not what was shown any more, so it was not approved.",
            hint=f"look at it as it is now: cdd review {review.ticket.slug}",
        )


def show_overview(steps: tuple[StepToReview, ...], *, screen: Screen) -> None:
    """A line for each step: what it changed and what was decided about it."""
    for step in steps:
        symbol = screen.symbols["open" if step.decision else "todo"]
        told = f"{symbol} Step {step.number}  {step.title}  ({_size(step.files)})  {step.decision or 'not reviewed'}"
        screen.line(told, style="green" if step.decision else "", indent=0, hang=2)


def show_step(step: StepToReview, *, count: int, screen: Screen, most_lines: int = MOST_LINES) -> None:
    """One step: its commits and what they rest on, its files, and as much of its diff as is not too long to read."""
    decided = f"  {step.decision}" if step.decision else ""
    screen.line(f"Step {step.number}/{count}  {step.title}{decided}", style="bold", indent=0, hang=2)
    for landed in step.commits:
        _show_commit(landed, screen=screen)
    if not step.commits:
        screen.line("no commit: it was marked as done by hand", style="yellow", indent=2, hang=2)
    screen.line(_size(step.files), style="bold", indent=2)
    room = most_lines
    for file in step.files:
        lines = file.hunks.count("\n") + 1 if file.hunks else 0
        if lines <= room:
            show_file(file, screen=screen)
            room -= lines
        else:
            _show_head(file, screen=screen)
            screen.line(f"{lines} lines of diff; see them: diff {file.path}", style="dim", indent=4, hang=2)


def show_file(file: FileDiff, *, screen: Screen) -> None:
    """What changed in one file."""
    _show_head(file, screen=screen)
    if file.hunks:
        screen.show_diff(file.hunks)
    elif file.added is None:
        screen.line("no text; git shows that it changed, not how", style="dim", indent=4)


def _show_head(file: FileDiff, *, screen: Screen) -> None:
    """The line above the diff of a file."""
    counts = "" if file.added is None else f"  +{file.added} -{file.removed}"
    screen.line(Text.assemble((f"{_SIGN[file.kind]} {clean(file.path)}", "bold cyan"), counts), indent=2, hang=2)


def _show_commit(landed: Landed, *, screen: Screen) -> None:
    """One commit and its evidence; what there is no note of is said as plainly."""
    told = f"{screen.symbols['commit']} {landed.commit[:8]}  {landed.subject}"
    screen.line(told, style="bold", indent=2, hang=2)
    if not landed.is_in_history:
        told = "not in the history of HEAD any more: what is there now may be something else"
        screen.line(told, style="red", indent=4, hang=2)
    for evidence in landed.evidence:
        good = evidence.is_open and evidence.report == "as it was"
        screen.line(_evidence(evidence), style="green" if good else "yellow", indent=4, hang=2)
    if not landed.evidence:
        screen.line("no handoff note: nothing says on what evidence it landed", style="red", indent=4, hang=2)


def _evidence(evidence: Evidence) -> str:
    """One phase's evidence in a line."""
    verdict = "gate open" if evidence.is_open else "gate closed"
    tries = "" if evidence.tries == 1 else f" at try {evidence.tries}"
    report = {"as it was": "its report is kept and unchanged", "none": "without a report"}.get(
        evidence.report, "its report was changed or removed since"
    )
    return f"{evidence.phase.upper()}: {verdict}{tries}; {report}"


def _size(files: tuple[FileDiff, ...]) -> str:
    """How much was changed, in words."""
    added, removed = (sum(count or 0 for count in counts) for counts in _counts(files))
    return f"{len(files)} {'file' if len(files) == 1 else 'files'}, +{added} -{removed}"


def _counts(files: tuple[FileDiff, ...]) -> tuple[list[int | None], list[int | None]]:
    """Lines added and removed, by file."""
    return [file.added for file in files], [file.removed for file in files]


def _files(step: StepToReview, path: str) -> tuple[FileDiff, ...]:
    """The file that is named, or all of the step; raises ``UsageError`` with the nearest path."""
    if not path:
        return step.files
    found = tuple(file for file in step.files if file.path == path)
    if not found:
        near = difflib.get_close_matches(path, [file.path for file in step.files], n=1, cutoff=0.3)
        hint = f"did you mean: diff {near[0]}" if near else "diff alone shows all of them"
        raise UsageError(f"Step {step.number} did not change {path!r}.", hint=hint)
    return found


def _understood(words: str, review: Review) -> tuple[str, str]:
    """The word of ``WORDS`` that is said, or ``step``, with what stands behind it; raises ``UsageError``."""
    said, _, argument = words.strip().partition(" ")
    word = next((word for word, others in WORDS.items() if said.lower() in (word, *others)), None)
    numbers = {str(step.number) for step in review.steps}
    if word is not None and (word == "diff" or not argument):
        return word, argument.strip()
    if said in numbers and not argument:
        return "step", said
    if said.isdecimal() and not argument:
        known = ", ".join(str(step.number) for step in review.steps)
        raise UsageError(f"Step {said} is not completed, so there is nothing to review.", hint=f"completed: {known}")
    near = difflib.get_close_matches(said.lower(), WORDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"A review does not know {words!r}.",
        hint=f"{meant}It knows: approve, next, previous, diff [FILE], the number of a step, exit",
    )


def _say_what_is_next(review: Review, *, screen: Screen) -> None:
    """The words that can be said now."""
    told = f"approve (a), next (n), previous (p), diff (d) [FILE] or exit; {review.left} left to review"
    screen.line(told, style="bold", indent=0, hang=2)
