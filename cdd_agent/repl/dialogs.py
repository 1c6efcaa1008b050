"""The dialogs with Socrates and the Planner, and the review of completed steps."""

import re
from collections.abc import Iterator
from typing import Literal

from rich.text import Text

from cdd_agent.errors import DocumentError, UsageError, format_count, suggest
from cdd_agent.repl.render import show_plan
from cdd_agent.repl.screen import Screen
from cdd_agent.review import FileDiff, describe_size
from cdd_agent.tickets import spec
from cdd_agent.tickets.plan import Plan
from cdd_agent.tickets.spec import Spec
from cdd_agent.untrusted.text import clean
from cdd_agent.work.state import is_unverified, load_state
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.scout import TicketProposal
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.review import Evidence, LandedCommit, Review, StepToReview

WORDS = {
    "approve": ("a",),
    "next": ("n", ""),
    "previous": ("p",),
    "diff": ("d",),
    "view": ("v",),
    "examples": ("e",),
    "exit": (),
}
"""The words of a review -> their short forms. A number goes to that step; ``diff`` may name a file."""
MOST_LINES = 80
"""How many lines of diff of a step are shown by default."""
_KIND_LETTERS = {"created": "A", "modified": "M", "deleted": "D"}


def continue_spec(socrates: Socrates, words: str, *, screen: Screen) -> None:
    """Pass ``words`` to Socrates; without words, start the questions or repeat the last one.

    What the spec lacks is shown before the first question and after an answer without a question.
    """
    if words:
        socrates.hear(words)
    elif socrates.missing:
        if not socrates.conversation.messages:
            _show_missing(socrates, screen=screen)
            socrates.open(somebody_answers=True)
        elif socrates.question is not None:
            socrates.ask_again()
        else:
            screen.stream(socrates.ask_again())
            screen.end_prose()
    missing = socrates.missing
    if not missing:
        _show_complete(socrates, screen=screen)
    elif socrates.question is not None:
        if not words:
            text = "Type a number, your own words, or later to skip the question. Enter shows it again."
            screen.line(text, style="dim")
    elif words:
        screen.line(f"{screen.symbols['todo']} Not complete; still missing: {'; '.join(missing)}", style="bold")
        screen.line("Write what you want, or what to change.", style="dim")


def _show_missing(socrates: Socrates, *, screen: Screen) -> None:
    slug, wanted = socrates.ticket.slug, spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(f"{screen.symbols['todo']} The spec of {slug} is not complete. It lacks:", style="bold")
    for lack in spec.find_missing(wanted):
        screen.line(f"{screen.symbols['note']} {lack}", indent=2)
    _show_vague_criteria(wanted, screen=screen)
    screen.line(f"To be complete it needs {spec.COMPLETE}.", style="dim")
    screen.gap()


def _show_vague_criteria(wanted: Spec, *, screen: Screen) -> None:
    for remark in spec.find_vague_criteria(wanted):
        screen.note(str(remark), indent=2)


def _show_complete(socrates: Socrates, *, screen: Screen) -> None:
    wanted = spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(f"{screen.symbols['open']} The spec of {socrates.ticket.slug} is complete:", style="bold green")
    for criterion in wanted.acceptance_criteria:
        screen.line(Text.assemble((criterion.id, "bold"), f"  {clean(criterion.text)}"), indent=2, hang=6)
    _show_vague_criteria(wanted, screen=screen)
    screen.line("Write what to change, or continue: /plan", style="bold")


def continue_plan(planner: Planner, words: str, *, screen: Screen) -> None:
    """Let the Planner change the plan as ``words`` say; without words, show the plan or draft the first one.

    Raises ``DocumentError`` with line numbers for an invalid plan, after showing what could be read.
    """
    path = planner.ticket.plan_path
    if not path.exists() or words:
        plan = planner.draft(words)
    else:
        plan = planner.load()
        problems = planner.find_problems(plan)
        if problems:
            if plan.steps:
                _show_plan(plan, planner, screen=screen)
            raise DocumentError(str(path), problems, hint="edit the file, or write what the Planner should change")
        for warning in planner.find_warnings(plan):
            screen.note(str(warning))
    _show_plan(plan, planner, screen=screen)
    screen.line("Write what to change, or continue: /exec", style="bold")


def _show_plan(plan: Plan, planner: Planner, *, screen: Screen) -> None:
    folder = planner.ticket.folder
    path = planner.ticket.plan_path.relative_to(folder.parent.parent)
    screen.gap()
    screen.line(f"The plan of {planner.ticket.slug} (full text: {path}):", style="bold")
    show_plan(plan, screen=screen, criteria=planner.criteria, created=planner.find_new_files(plan))
    screen.gap()


def show_proposal(proposal: TicketProposal, *, screen: Screen) -> None:
    """Show the ticket that Scout proposes."""
    screen.gap()
    head = Text.assemble((proposal.slug, "bold cyan"), "  ", (clean(proposal.title), "bold"))
    screen.line(head, hang=len(proposal.slug) + 2)
    rows = ((criterion, "") for criterion in proposal.criteria)
    for text, name in (*rows, (", ".join(proposal.tests), "tests"), (", ".join(proposal.files), "files")):
        if text:
            screen.line(Text.assemble((f"{name:<7}" if name else "- ", "dim"), clean(text)), indent=2, hang=7)


def start_review(review: Review, *, screen: Screen) -> bool:
    """Show the first step without a decision, or the overview. Return whether a decision is left to make."""
    if not review.remaining:
        show_overview(review.steps, screen=screen)
        screen.line(f"All {len(review.steps)} completed steps of {review.ticket.slug} are approved.", style="bold")
        _show_end(review, screen=screen)
        return False
    _show_current_step(review, screen=screen)
    return True


def handle_review_input(review: Review, words: str, *, screen: Screen) -> bool:
    """Carry out a line. Return whether the review stays active."""
    word, argument = _parse(words, review)
    match word:
        case "exit":
            screen.line("Left the review. Return with /review.")
            return False
        case "approve":
            if not approve(review, screen=screen):
                return False
        case "examples":
            review.add_examples()
            show_choices(review, screen=screen)
            return True
        case "diff":
            for file in _find_files(review.step, argument):
                show_file(file, screen=screen)
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


def approve(review: Review, *, screen: Screen) -> bool:
    """Approve the current step, and return whether another one is left. ``UsageError`` if it changed meanwhile."""
    number = review.step.number
    _require_unchanged(review)
    review.approve()
    screen.line(f"{screen.symbols['open']} Step {number} approved.", style="bold green")
    if not review.remaining:
        show_overview(review.steps, screen=screen)
        screen.line("Every completed step is approved.", style="bold")
        _show_end(review, screen=screen)
    return review.remaining > 0


def _show_end(review: Review, *, screen: Screen) -> None:
    for text in review.finish():
        screen.line(text)


_WISH = re.compile(
    r"(?:/*(?:(?P<fork>fork)|change|iterate))(?:\s+this)?\s*:?\s+(?P<wish>.+)", re.IGNORECASE | re.DOTALL
)


def parse_wish(words: str) -> tuple[Literal["iterate", "fork"], str] | None:
    """Return what the user wants to be different in a step of a review, and where: in it, or in a fork of it.

    None for another line.

    >>> parse_wish("change this: name it minutes"), parse_wish("//fork: use a table")
    (('iterate', 'name it minutes'), ('fork', 'use a table'))
    """
    found = _WISH.fullmatch(words.strip())
    return ("fork" if found["fork"] else "iterate", found["wish"].strip()) if found else None


def _show_current_step(review: Review, *, screen: Screen) -> None:
    show_step(review.step, screen=screen)
    show_choices(review, screen=screen)


def show_choices(review: Review, *, screen: Screen) -> None:
    """Show the words of a review."""
    facts = (fact for commit in review.step.commits for each in commit.evidence for fact in each.examples)
    has_examples = any(fact.endswith(": passes") for fact in facts)
    more = ", view (v)" if screen.has_full_screen else ""
    more += ", examples (e): add them to the tests" if has_examples else ""
    text = f"approve (a), next (n), previous (p), diff (d) [FILE]{more} or exit; {review.remaining} left to review"
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
        text = f"{symbol} Step {step.number}  {step.title}  ({size})  {decision}"
        screen.line(text, style="green" if step.decision else "")


def show_step(step: StepToReview, *, screen: Screen, most_lines: int = MOST_LINES) -> None:
    """Show a step with its commits, evidence and files, and up to ``most_lines`` lines of its diffs."""
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
            show_file(file, screen=screen)
            room -= lines
        else:
            _show_file_name(file, screen=screen)
            screen.line(f"{format_count(lines, 'line')}; to show: diff {file.path}", style="dim", indent=4)


def show_file(file: FileDiff, *, screen: Screen) -> None:
    """Show the diff of a file."""
    _show_file_name(file, screen=screen)
    if file.hunks:
        screen.show_diff(file.hunks)
    elif file.added is None:
        screen.line("binary file; git cannot show the change", style="dim", indent=4)


def _show_file_name(file: FileDiff, *, screen: Screen) -> None:
    counts = "" if file.added is None else f"  {file.counts}"
    name = f"{_KIND_LETTERS[file.kind]} {clean(file.path)}"
    screen.line(Text.assemble((name, "bold cyan"), counts), indent=2)


def describe_commits(step: StepToReview) -> Iterator[str]:
    """Yield the commits of a step with their evidence, as lines for the viewer."""
    for commit in step.commits:
        yield clean(f"{commit.commit[:8]}  {commit.subject}")
        for evidence in commit.evidence:
            yield clean(f"    {_format_evidence(evidence)}")
            for fact in (*evidence.examples, *evidence.findings):
                yield from (f"      {line}" for line in clean(fact).splitlines())
        if not commit.evidence:
            yield "    no handoff note, so no evidence for this commit"


def _show_commit(commit: LandedCommit, *, screen: Screen) -> None:
    screen.line(f"{screen.symbols['commit']} {commit.commit[:8]}  {commit.subject}", style="bold", indent=2)
    if not commit.is_in_history:
        screen.line("HEAD no longer contains this commit; the current files may differ", style="red", indent=4)
    for evidence in commit.evidence:
        is_good = evidence.is_open and evidence.report == "unchanged"
        screen.line(_format_evidence(evidence), style="green" if is_good else "yellow", indent=4)
        for example in evidence.examples:
            screen.line(example, style="dim", indent=6)
        for finding in evidence.findings:
            screen.line(finding, style="yellow" if is_unverified(finding) else "dim", indent=6)
    if not commit.evidence:
        screen.line("no handoff note, so no evidence for this commit", style="red", indent=4)


def _format_evidence(evidence: Evidence) -> str:
    verdict = "gate open" if evidence.is_open else "gate closed"
    tries = "" if evidence.tries == 1 else f" at try {evidence.tries}"
    reports = {"unchanged": "its report is unchanged", "none": "without a report"}
    report = reports.get(evidence.report, "its report was changed or removed")
    return f"{evidence.phase.upper()}: {verdict}{tries}; {report}"


def _find_files(step: StepToReview, path: str) -> tuple[FileDiff, ...]:
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
