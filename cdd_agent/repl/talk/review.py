"""What is said while a person reviews: one completed step after the other, its evidence, its diff, and a decision."""

import difflib

from rich.text import Text

from cdd_agent.errors import UsageError
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.review.diff import FileDiff
from cdd_agent.review.evidence import Evidence
from cdd_agent.review.review import Review
from cdd_agent.review.subject import Landed, StepToReview
from cdd_agent.work import state_file

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
