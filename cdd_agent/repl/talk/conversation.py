"""What is said around Socrates and the Planner: what their conversation came to, and what can be typed next."""

from rich.text import Text

from cdd_agent.errors import DocumentError
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.plan_tree import show_plan
from cdd_agent.tickets import spec
from cdd_agent.tickets.plan import Plan
from cdd_agent.tickets.spec import Spec
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates

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
