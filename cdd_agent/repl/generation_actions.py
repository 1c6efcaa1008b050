"""What a generation shows: the plan before it begins, and its results."""

from collections.abc import Sequence

from rich.text import Text

from cdd_agent.errors import format_count
from cdd_agent.generation.estimate import Estimate
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.repl.render import create_table
from cdd_agent.repl.screen import Screen
from cdd_agent.untrusted.text import clean
from cdd_agent.work.state import RunState, Status

_MOST_PATHS = 40


def show_preview(plan: GenerationPlan, estimates: Sequence[Estimate], *, screen: Screen) -> None:
    """Show what will be generated: subgraphs and nodes in order, files, and the estimated usage."""
    layout = plan.layout
    files = format_count(len(layout.rows), "file")
    screen.line(f"{layout.package}: {format_count(len(plan.nodes), 'node')} in {files}", style="bold")
    number = 0
    for group in plan.groups:
        screen.gap()
        screen.line(Text.assemble((clean(group.name), "bold"), (f"  {format_count(len(group.nodes), 'node')}", "dim")))
        for name in group.nodes:
            number += 1
            node = plan.graph.by_id[name]
            screen.line(f"{number:>4}  {clean(layout.title_of(node))}  {layout.map_path(node.file_path)}")
    moved = [(old, new) for old, new in layout.rows if old != new]
    if moved:
        screen.gap()
        screen.line("Paths of the graph, and where they go", style="bold")
        screen.items([f"{clean(old)} -> {new}" for old, new in moved], most=_MOST_PATHS)
    screen.gap()
    show_estimates(estimates, screen=screen)


def show_estimates(estimates: Sequence[Estimate], *, screen: Screen) -> None:
    """Show the estimated requests, tokens and costs of each role."""
    for each in estimates:
        table = create_table(f"{each.role}: {clean(each.model)}", "requests", "tokens", "cost")
        for at, name in enumerate(("least", "likely", "most")):
            cost = "unknown" if each.usd is None else f"${each.usd[at]:,.2f}"
            table.add_row(name, f"{getattr(each.requests, name):,}", f"{getattr(each.tokens, name):,}", cost)
        screen.show(table)


def summarize(plan: GenerationPlan, state: RunState) -> str:
    """Return how many nodes have passed, failed and were skipped, in one sentence."""
    steps = [step.status for step in state.step_executions.values() if step.title in plan.by_title]
    counts = {status: steps.count(status) for status in (Status.COMPLETED, Status.FAILED, Status.SKIPPED)}
    text = f"{counts[Status.COMPLETED]} of {format_count(len(plan.nodes), 'node')} passed"
    text += f", {counts[Status.FAILED]} failed" if counts[Status.FAILED] else ""
    text += f", {counts[Status.SKIPPED]} skipped" if counts[Status.SKIPPED] else ""
    return text
