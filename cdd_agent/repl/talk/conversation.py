"""What is said around Socrates and the Planner: what their conversation came to, and what can be typed next."""

from rich.text import Text

from cdd_agent.errors import DocumentError
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.status import show_plan
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, kind_of_ticket, problems
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates


def question(socrates: Socrates, words: str, *, screen: Screen) -> None:
    """Let Socrates answer ``words``, or begin if there are none; a complete spec is shown, and can be talked about."""
    if words:
        socrates.hear(words)
    elif socrates.missing:
        socrates.open(somebody_answers=True)
    if socrates.missing:
        return
    wanted = spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(
        f"{screen.symbols['open']} The spec of {socrates.ticket.slug} is complete:", style="bold green", indent=0
    )
    for criterion in wanted.acceptance_criteria:
        screen.line(Text.assemble((criterion.id, "bold"), f"  {clean(criterion.text)}"), indent=2, hang=6)
    screen.line("Say in plain words what to change, or go on: /plan", style="bold", indent=0, hang=2)


def plan(planner: Planner, words: str, *, screen: Screen) -> None:
    """Let the Planner draft as ``words`` say; without words, show the plan that is there, or draft the first one."""
    path = planner.ticket.plan_path
    if path.exists() and not words:
        _show(_saved(planner), planner, screen=screen)
    else:
        _show(planner.draft(words), planner, screen=screen)


def _saved(planner: Planner) -> Plan:
    """The plan on disk; raises ``DocumentError`` for one that cannot be carried out."""
    path = planner.ticket.plan_path
    wanted = spec.load(planner.ticket.spec_path)
    saved = plan_markdown.load(path, default_kind=kind_of_ticket(wanted.type))
    found = problems(saved, criteria=wanted.criterion_ids)
    if found:
        raise DocumentError(str(path), found, hint="mend the file, or say in plain words what the Planner is to change")
    return saved


def _show(saved: Plan, planner: Planner, *, screen: Screen) -> None:
    """The steps of a plan, where it lies, and what can be said to it."""
    folder = planner.ticket.folder
    shown = planner.ticket.plan_path.relative_to(folder.parent.parent)
    screen.gap()
    screen.line(f"The plan of {planner.ticket.slug}, in full in {shown}:", style="bold", indent=0, hang=2)
    show_plan(saved, screen=screen)
    screen.line("Say in plain words what to change, or go on: /exec", style="bold", indent=0, hang=2)
