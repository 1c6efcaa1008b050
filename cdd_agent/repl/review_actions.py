"""The diff viewer of a review, and comments: ``/comment``, and how comments are shown."""

import os
import shlex
import subprocess
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

from cdd_agent.errors import UsageError
from cdd_agent.repl import dialogs
from cdd_agent.repl.screen import Screen
from cdd_agent.review import WHOLE, Anchors, Comment, Comments, Place, parse_place
from cdd_agent.untrusted.text import clean, format_line
from cdd_agent.workflows.execution.review import Review, StepToReview

if TYPE_CHECKING:
    from cdd_agent.repl.diff_view import ReviewDecision
    from cdd_agent.repl.state import SessionState

PAGER = "CDD_DIFF"
"""The variable that names a program to show diffs, such as ``delta``, in place of the viewer."""

WHOLE_COMMIT = "commit"
"""What to type in place of ``FILE:LINE`` to comment on the whole commit."""
_MOST_LINES_OF_CODE = 3


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
    from cdd_agent.repl.diff_view import DiffView, Subject

    subject = Subject(
        title=step.heading,
        head=tuple(dialogs.describe_commits(step)),
        files=step.files,
        base=step.base,
        commit=step.commits[-1].commit,
        ticket=ticket,
        step=step.number,
        actions=frozenset({"approve", "iterate", "fork"}) if ticket else frozenset(),
    )
    with screen.lend():
        return DiffView(subject, comments=comments).run()


def show_in_program(pager: str, step: StepToReview, *, screen: Screen) -> None:
    """Give the diff of a step to a program of the user. Raises ``UsageError`` if it cannot be started."""
    # The lines are from the repository; the program may pass escape sequences on to the terminal.
    names = {"created": ("/dev/null", "b/{}"), "modified": ("a/{}", "b/{}"), "deleted": ("a/{}", "/dev/null")}
    parts = []
    for file in step.files:
        old, new = (name.format(clean(file.path)) for name in names[file.kind])
        parts.append(
            f"diff --git a/{clean(file.path)} b/{clean(file.path)}\n--- {old}\n+++ {new}\n{clean(file.hunks)}\n"
        )
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
    """Add a comment, reply to one, resolve one, or list them.

    In a review the comment is on the last commit of the step; elsewhere on HEAD.
    """
    comments, review = session.project.comments(), session.agent
    first, _, rest = argument.partition(" ")
    identifier, _, words = rest.strip().partition(" ")
    match first:
        case "" | "list":
            shown = (
                comments.list_of_step(review.ticket.slug, review.step.number) if isinstance(review, Review) else None
            )
            show_comments(shown if shown is not None else comments.list_all(), comments, screen=session.screen)
            return
        case "reply":
            changed = comments.reply(identifier, words)
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
        screen.line("No comments yet. To write one: /comment FILE:LINE TEXT")
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
