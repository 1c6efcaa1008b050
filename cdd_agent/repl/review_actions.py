"""Comments at the prompt and on the command line: ``/comment``, and how comments are shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

from cdd_agent.repl.screen import Screen
from cdd_agent.review.anchors import Anchors
from cdd_agent.review.comments import WHOLE, Comment, Comments, Place, parse_place
from cdd_agent.untrusted.text import clean, format_line
from cdd_agent.workflows.execution.review import Review

if TYPE_CHECKING:
    from cdd_agent.repl.state import SessionState

WHOLE_COMMIT = "commit"
"""What to type in place of ``FILE:LINE`` to comment on the whole commit."""
_MOST_LINES_OF_CODE = 3


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
    now = f"{place.path}:{place.start}" + (f"-{place.end}" if place.end > place.start else "")
    return now if now == each.place else f"{now} (was {each.place})"
