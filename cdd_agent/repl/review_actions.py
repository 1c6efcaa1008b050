"""The review of completed steps: its dialog, the diff viewer, and comments with ``/comment``."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rich.text import Text

from cdd_agent.errors import CddError, UsageError, format_count, suggest
from cdd_agent.events import FileDiffed
from cdd_agent.git.push import Push
from cdd_agent.git.repository import resolve_revision
from cdd_agent.repl.question import confirm
from cdd_agent.repl.render import show_file_name, show_files
from cdd_agent.repl.screen import Screen
from cdd_agent.review import WHOLE, Anchors, Comment, Comments, LeftFork, Place, describe_size, parse_place
from cdd_agent.runs.places import list_runs
from cdd_agent.runs.review import Evidence, LandedCommit, Review, StepToReview, TicketEnd, load_commit
from cdd_agent.untrusted.text import clean, format_line
from cdd_agent.work.state_file import load_state
from cdd_agent.work.wording import explain

if TYPE_CHECKING:
    from cdd_agent.compose import Composition
    from cdd_agent.repl.diff_view import ReviewDecision
    from cdd_agent.repl.state import SessionState

WORDS = {
    "approve": ("a",),
    "next": ("n", ""),
    "previous": ("p",),
    "diff": ("d",),
    "view": ("v",),
    "examples": ("e",),
    "exit": ("q",),
}
"""The words of a review -> their short forms. A number goes to that step; ``diff`` may name a file."""
MOST_LINES = 80
"""How many lines of diff of a step are shown by default."""
PAGER = "CDD_DIFF"
"""The variable that names a program to show diffs, such as ``delta``, in place of the viewer."""

WHOLE_COMMIT = "commit"
"""What to type in place of ``FILE:LINE`` to comment on the whole commit."""
_NEEDS_ID = {"reply": "ID TEXT", "edit": "ID TEXT", "resolve": "ID"}
"""The arguments of these words of ``/comment``."""
_MOST_LINES_OF_CODE = 3
_MOST_FILES_AT_END = 20


def start_review(review: Review, *, screen: Screen, asks: bool = False) -> bool:
    """Show the first step without a decision, or the overview. Return whether a decision is left to make.

    ``asks``: the user can be asked whether to push at the end of the ticket; here and below.
    """
    if not review.remaining:
        show_overview(review.steps, screen=screen)
        screen.line(f"Every completed step of {review.ticket.slug} is approved.", style="bold")
        _show_end(review, screen=screen, asks=asks)
        return False
    _show_current_step(review, screen=screen)
    return True


def handle_review_input(review: Review, words: str, *, screen: Screen, asks: bool = False) -> bool:
    """Carry out a line. Return whether the review stays active."""
    word, argument = _parse(words, review)
    match word:
        case "exit":
            screen.line("Left the review. Return with /review.")
            return False
        case "approve":
            if not approve(review, screen=screen, asks=asks):
                return False
        case "examples":
            review.add_examples()
            show_choices(review, screen=screen)
            return True
        case "diff":
            show_files(_find_files(review.step, argument), screen=screen)
            show_choices(review, screen=screen)
            return True
        case "view":
            raise UsageError("The viewer needs a terminal.", hint="type diff, or start cdd in a terminal")
        case "step":
            review.go_to(int(argument))
        case _:
            review.at = (review.at + (1 if word == "next" else -1)) % len(review.steps)
    screen.gap()
    _show_current_step(review, screen=screen)
    return True


def approve(review: Review, *, screen: Screen, asks: bool = False) -> bool:
    """Approve the current step, and return whether any is left. Raises ``UsageError`` if it changed meanwhile."""
    number = review.step.number
    _require_unchanged(review)
    review.approve()
    unit = review.step.unit.capitalize()
    screen.line(f"{screen.symbols['open']} {unit} {number} approved.", style="bold green")
    if not review.remaining:
        show_overview(review.steps, screen=screen)
        screen.line("Every completed step is approved.", style="bold")
        _show_end(review, screen=screen, asks=asks)
    return review.remaining > 0


def _show_end(review: Review, *, screen: Screen, asks: bool) -> None:
    if (end := review.finish()) is not None:
        show_end(end, screen=screen, asks=asks)
    else:
        show_undecided(review.list_undecided(), screen=screen)


def show_undecided(waiting: Sequence[str], *, screen: Screen) -> None:
    """Show what a review leaves to decide, each with a command."""
    if waiting:
        screen.line("Still undecided:", style="bold")
        for text in waiting:
            screen.line(screen.as_typed(text), indent=2)


def show_end(end: TicketEnd, *, screen: Screen, asks: bool = False) -> None:
    """Show the end of a ticket and what is still to decide.

    With ``asks``, ask whether to remove forks and to push; otherwise show the commands.
    """
    for number, text in enumerate(end.lines):
        screen.line(screen.as_typed(text))
        if number == 0:
            for file in end.files[:_MOST_FILES_AT_END]:
                show_file_name(file, screen=screen)
    show_undecided(end.undecided, screen=screen)
    for fork in end.forks:
        _close_fork(fork, screen=screen, asks=asks)
    if end.push is None:
        return
    wanted = f"push {end.push.branch} to {end.push.remote} ({end.push.destination})? [y/N]"
    if asks and not end.push.refusal and _is_agreed(wanted, screen):
        _push(end.push, screen=screen)
        return
    screen.line(f"To push it: {end.push.command}")


def _close_fork(fork: LeftFork, *, screen: Screen, asks: bool) -> None:
    # A fork that does not go is shown and not raised: the ticket is at its end.
    if fork.is_merged and asks and _is_agreed(f"remove the work tree of the merged fork {fork.name}? [y/N]", screen):
        try:
            fork.remove()
        except CddError as error:
            screen.error(error.happened, hint=error.hint)
        else:
            screen.line(f"Removed the fork {fork.name}.")
        return
    has = "is merged, and still has" if fork.is_merged else "is not merged, and has"
    screen.line(screen.as_typed(f"The fork {fork.name} {has} a work tree. To remove it: cdd fork drop {fork.name}"))


def _push(push: Push, *, screen: Screen) -> None:
    # A push that fails is shown and not raised: the ticket is at its end, and the review has ended.
    try:
        with screen.lend():  # git and ssh may ask for a password in the terminal
            push.run(lambda line: screen.line(line, style="dim", indent=2))
    except KeyboardInterrupt:
        screen.gap()
        screen.line(f"The push was stopped. To push it: {push.command}", style="yellow")
    except CddError as error:
        screen.error(error.happened, hint=error.hint)
    else:
        screen.line(f"{screen.symbols['open']} Pushed {push.branch} to {push.remote}.", style="bold green")


def _is_agreed(question: str, screen: Screen) -> bool:
    try:
        return confirm(question, screen=screen)
    except KeyboardInterrupt:  # the review has ended; only this is refused
        return False


_WISH = re.compile(
    r"(?:/*(?:(?P<fork>fork)|change|iterate))(?:\s+this)?\s*(?::|(?<=\w)(?=\s|$))(?P<wish>.*)",
    re.IGNORECASE | re.DOTALL,
)


def parse_wish(words: str) -> tuple[Literal["iterate", "fork"], str] | None:
    """Return what the user wants to be different in a step of a review, and where: in it, or in a fork of it.

    None for another line. Raises ``UsageError`` if the words are missing.

    >>> parse_wish("change this: name it minutes"), parse_wish("//fork: use a table")
    (('iterate', 'name it minutes'), ('fork', 'use a table'))
    """
    found = _WISH.fullmatch(words.strip())
    if found is None:
        return None
    if not (wish := found["wish"].strip()):
        example = "fork: use a table" if found["fork"] else "change this: name it minutes"
        raise UsageError("It does not say what should be different.", hint=f"for example: {example}")
    return ("fork" if found["fork"] else "iterate", wish)


def _show_current_step(review: Review, *, screen: Screen) -> None:
    show_step(review.step, screen=screen)
    show_choices(review, screen=screen)


def show_choices(review: Review, *, screen: Screen) -> None:
    """Show the words of a review."""
    facts = (fact for commit in review.step.commits for each in commit.evidence for fact in each.examples)
    has_examples = any(fact.outcome == "confirmed" for fact in facts)
    more = ", view (v)" if screen.has_full_screen else ""
    more += ", examples (e): add them to the tests" if has_examples else ""
    more += " or exit"
    text = "approve (a), change this: WORDS, fork: WORDS, next (n), previous (p), diff (d) [FILE]"
    text += f"{more}; {review.remaining} left to review"
    screen.line(text, style="bold")


def _require_unchanged(review: Review) -> None:
    # Another process may have run the step again since it was shown.
    state, step = load_state(review.ticket.state_path), review.step
    commits = state.execution(step.number).commits.values() if state is not None else ()
    if set(commits) != {shown.commit for shown in step.commits}:
        hint = f"review it again: cdd review {review.ticket.slug}"
        raise UsageError(f"Step {step.number} has changed since it was shown, so it was not approved.", hint=hint)


def show_overview(steps: tuple[StepToReview, ...], *, screen: Screen) -> None:
    """Show size and decision of each step in one line."""
    for step in steps:
        symbol = screen.symbols["open" if step.decision else "todo"]
        size, decision = describe_size(step.files), step.decision or "not reviewed"
        text = f"{symbol} {step.unit.capitalize()} {step.number}  {step.title}  ({size})  {decision}"
        screen.line(text, style="green" if step.decision else "")


def show_step(step: StepToReview, *, screen: Screen, most_lines: int = MOST_LINES, rest: str = "diff {}") -> None:
    """Show a step with its commits, evidence and files, and up to ``most_lines`` lines of its diffs.

    ``rest`` is what the user types to see another file.
    """
    decision = f"  {step.decision}" if step.decision else ""
    screen.line(f"{step.heading}{decision}", style="bold")
    for commit in step.commits:
        _show_commit(commit, screen=screen)
    if not step.commits:
        screen.line("no commit: the user marked the step as done", style="yellow", indent=2)
    screen.line(describe_size(step.files), style="bold", indent=2)
    room = most_lines
    for file in step.files:
        lines = file.hunks.count("\n") + 1 if file.hunks else 0
        if lines <= room:
            show_files((file,), screen=screen)
            room -= lines
        else:
            show_file_name(file, screen=screen)
            screen.line(f"{format_count(lines, 'line')}; to show: {rest.format(file.path)}", style="dim", indent=4)


def describe_commits(step: StepToReview) -> Iterator[str]:
    """Yield the commits of a step with their evidence, as lines for the viewer."""
    for commit in step.commits:
        yield clean(f"{commit.commit[:8]}  {commit.subject}")
        for depth, text, _ in _list_evidence(commit):
            yield from (f"{' ' * depth}{line}" for line in clean(text).splitlines())


def _show_commit(commit: LandedCommit, *, screen: Screen) -> None:
    screen.line(f"{screen.symbols['commit']} {commit.commit[:8]}  {commit.subject}", style="bold", indent=2)
    if not commit.is_in_history:
        screen.line("HEAD no longer contains this commit; the current files may differ", style="red", indent=4)
    for depth, text, style in _list_evidence(commit):
        screen.line(text, style=style, indent=depth)


def _list_evidence(commit: LandedCommit) -> Iterator[tuple[int, str, str]]:
    """Yield indentation, text and style of each line of evidence for a commit."""
    for evidence in commit.evidence:
        is_good = evidence.is_open and evidence.report == "unchanged"
        yield 4, _format_evidence(evidence), "green" if is_good else "yellow"
        yield from ((6, explain(example), "dim") for example in evidence.examples)
        yield from ((6, explain(found), "yellow" if found.is_unverified else "dim") for found in evidence.findings)
    if not commit.evidence:
        yield 4, "no handoff note, so no evidence for this commit", "red"


def _format_evidence(evidence: Evidence) -> str:
    verdict = "gate open" if evidence.is_open else "gate closed"
    tries = "" if evidence.tries == 1 else f" at try {evidence.tries}"
    reports = {"unchanged": "its report is unchanged", "none": "without a report"}
    report = reports.get(evidence.report, "its report was changed or removed")
    return f"{evidence.phase.upper()}: {verdict}{tries}; {report}"


def _find_files(step: StepToReview, path: str) -> tuple[FileDiffed, ...]:
    files = tuple(file for file in step.files if path in ("", file.path))
    if path and not files:
        known = (file.path for file in step.files)
        hint = suggest(path, known, text="did you mean: diff {}", otherwise="diff alone shows all files", cutoff=0.3)
        raise UsageError(f"Step {step.number} did not change {path!r}.", hint=hint)
    return files


def _parse(words: str, review: Review) -> tuple[str, str]:
    first, _, argument = words.strip().partition(" ")
    word = next((word for word, others in WORDS.items() if first.lower() in (word, *others)), None)
    if word is not None and (word == "diff" or not argument):
        return word, argument.strip()
    numbers = [str(step.number) for step in review.steps]
    if first in numbers and not argument:
        return "step", first
    if first.isdecimal() and not argument:
        raise UsageError(f"Step {first} is not completed.", hint=f"completed steps: {', '.join(numbers)}")
    question = suggest(first.lower(), WORDS, text="did you mean {}? ")
    known = "approve, next, previous, diff [FILE], view, change this: WORDS, fork: WORDS, the number of a step, exit"
    hint = f"{question}Type one of: {known}"
    raise UsageError(f"Unknown input {words!r} for a review.", hint=hint)


def view_step(session: "SessionState", review: Review) -> "ReviewDecision | None":
    """Show the current step on the whole screen, and return what the user decided.

    None if nobody decided: without a terminal, for a step without commits, and with a program that ``CDD_DIFF`` names,
    which only shows the diff.
    """
    return show_full_screen(review.step, session.project.comments(), ticket=review.ticket.slug, screen=session.screen)


def show_full_screen(
    step: StepToReview, comments: Comments, *, ticket: str = "", screen: Screen
) -> "ReviewDecision | None":
    """Show a step, or without a ``ticket`` a commit, about which nothing can be decided; as ``view_step`` does."""
    if not (screen.has_full_screen and step.commits and step.base):
        return None
    if pager := os.environ.get(PAGER):
        show_in_program(pager, step, screen=screen)
        return None
    from cdd_agent.repl.diff_view import ACTIONS, DiffView

    actions, head = ACTIONS if ticket else frozenset(), tuple(describe_commits(step))
    with screen.lend():
        return DiffView(step, head=head, comments=comments, ticket=ticket, actions=actions).run()


def find_commit(name: str, project: "Composition") -> StepToReview | None:
    """Return the commit ``name`` to show in a review; None if it is, or may be meant as, the name of a ticket.

    Raises ``UsageError`` for another word that does not name a commit.
    """
    if name in (run.slug for run in list_runs(project.root)):
        return None
    try:
        resolve_revision(project.repository, name)
    except UsageError as error:
        if re.fullmatch(r"[a-z0-9-]+", name):  # the error about tickets lists them
            return None
        hint = "cdd status lists the tickets, git log --oneline the commits"
        raise UsageError(f"{name!r} is neither a ticket nor a commit.", hint=hint) from error
    return load_commit(project.repository, name, project=project.root)


def show_in_program(pager: str, step: StepToReview, *, screen: Screen) -> None:
    """Give the diff of a step to a program of the user. Raises ``UsageError`` if it cannot be started."""
    # The lines are from the repository; the program may pass escape sequences on to the terminal.
    names = {"created": ("/dev/null", "b/{}"), "modified": ("a/{}", "b/{}"), "deleted": ("a/{}", "/dev/null")}
    parts = []
    for file in step.files:
        source, path = clean(file.old_path), clean(file.path)
        old, new = (name.format(each) for name, each in zip(names[file.kind], (source, path), strict=True))
        parts.append(f"diff --git a/{source} b/{path}\n--- {old}\n+++ {new}\n{clean(file.hunks)}\n")
    with screen.lend():
        try:
            subprocess.run(shlex.split(pager), input="".join(parts).encode(), check=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"Cannot run {pager!r}, which {PAGER} names: {error}.", hint=f"unset {PAGER}") from error


def format_feedback(comments: Iterable[Comment], words: str) -> str:
    """Return the user's words and the open comments, as guidance for the model."""
    lines = []
    for each in comments:
        if not each.resolved:
            code = f", `{each.lines[0].strip()}`" if each.lines else ""
            said = "; ".join((each.text, *(f"{reply.author}: {reply.text}" for reply in each.replies)))
            lines.append(f"- [{each.id}] {each.place}{code}: {said}")
    return "\n".join((words, *(("The reviewer's comments on your change:", *lines) if lines else ()))).strip()


def comment(session: "SessionState", argument: str) -> None:
    """Add a comment, reply to one, edit one, resolve one, or list them.

    In a review the comment is on the last commit of the step; elsewhere on HEAD.
    """
    comments, review = session.project.comments(), session.agent
    first, _, rest = argument.partition(" ")
    identifier, _, words = rest.strip().partition(" ")
    if first in _NEEDS_ID and not (words.strip() if first != "resolve" else identifier):
        raise UsageError(f"/comment {first} needs {_NEEDS_ID[first]}.", hint="/comment list shows the ids")
    match first:
        case "" | "list":
            shown = (
                comments.list_of_step(review.ticket.slug, review.step.number) if isinstance(review, Review) else None
            )
            show_comments(shown if shown is not None else comments.list_all(), comments, screen=session.screen)
            return
        case "reply":
            changed = comments.reply(identifier, words)
        case "edit":
            changed = comments.edit(identifier, words)
        case "resolve":
            changed = comments.resolve(identifier)
        case _:
            commits = review.step.commits if isinstance(review, Review) else ()
            commit = commits[-1].commit if commits else "HEAD"
            changed = comments.add(parse_target(first), rest, commit=commit)
    show_comments((changed,), comments, screen=session.screen)


def parse_target(text: str) -> Place:
    """Return the place of a new comment: lines, or the whole commit. Raises ``UsageError``."""
    return WHOLE if text == WHOLE_COMMIT else parse_place(text)


def show_comments(shown: Iterable[Comment], comments: Comments, *, screen: Screen) -> None:
    """Show comments with their replies, and where their lines are in HEAD now."""
    shown = tuple(shown)
    if not shown:
        screen.line(screen.as_typed("No comments yet. To write one: /comment FILE:LINE TEXT"))
        return
    anchors = Anchors(comments.repository, "HEAD")
    for each in shown:
        show_comment(each, anchors.find(each), screen=screen)


def show_comment(each: Comment, place: Place | None, *, screen: Screen) -> None:
    """Show a comment. ``place`` is where its lines are now; None for an outdated comment."""
    head = Text.assemble((each.id, "bold cyan"), "  ", (format_line(describe_place(each, place)), "bold"))
    head.append("  resolved" if each.resolved else "", "green")
    screen.line(head)
    for line in each.lines[:_MOST_LINES_OF_CODE]:
        screen.line(f"| {clean(line)}", style="dim", indent=4)
    if len(each.lines) > _MOST_LINES_OF_CODE:
        screen.line("| ...", style="dim", indent=4)
    for author, text in ((each.author, each.text), *((reply.author, reply.text) for reply in each.replies)):
        screen.line(Text.assemble((f"{author:<6}", "cyan"), clean(text)), indent=2, hang=6)


def describe_place(each: Comment, place: Place | None) -> str:
    """Return where the comment was written and where its lines are now.

    >>> each = Comment(id="1", commit="2" * 40, file="a.py", start=3, end=3, text="?", time="")
    >>> describe_place(each, Place("b.py", 4, 5)), describe_place(each, None)
    ('b.py:4-5 (was a.py:3)', 'a.py:3 in 22222222, outdated')
    """
    if place is None:
        return f"{each.place} in {each.commit[:8]}, outdated"
    if place == WHOLE:
        return f"{each.place} {each.commit[:8]}"
    return each.place if str(place) == each.place else f"{place} (was {each.place})"
