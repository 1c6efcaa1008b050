"""The command ``cdd generate``: a repository from a planning graph."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdd_agent.cli.invocation import Invocation, headless
from cdd_agent.errors import GateClosed

if TYPE_CHECKING:
    from cdd_agent.generation.plan import GenerationPlan
    from cdd_agent.work.state import RunState


@click.command(short_help="Generate a tested repository from a planning graph.")
@click.argument("graph", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder to create.")
@click.option("--dry-run", is_flag=True, help="Show what would be generated, and write nothing.")
@click.option("--only-skeleton", is_flag=True, help="Write the modules with their signatures, and no code.")
@click.option("--keep-failed", is_flag=True, help="Leave nodes that failed, and those that need them.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Let up to N agents work at once, on nodes that do not need each other.",
)
@click.option("--node", type=int, hidden=True)
@click.option("--anyway", is_flag=True, hidden=True)
@headless
def generate(
    invocation: Invocation,
    graph: Path,
    *,
    out: Path,
    dry_run: bool,
    only_skeleton: bool,
    keep_failed: bool,
    node: int | None,
) -> None:
    """Generate the repository that the planning graph GRAPH describes, node by node, test first.

    The same command continues a generation: nodes that have passed stay.
    """
    from cdd_agent.generation.plan import load_plan
    from cdd_agent.repl.generation_actions import summarize
    from cdd_agent.runs.generation import is_output, prepare_output

    plan = load_plan(graph)
    words = f"cdd generate {shlex.quote(str(graph))} --out {shlex.quote(str(out))}"
    inside = replace(invocation, options=replace(invocation.options, project=out.resolve()))
    if node is not None:  # of a run that works it out ahead, in a fork
        with inside.work_on(plan.slug):
            run = inside.project.node_run(plan, resume=words)
            with run.running():
                run.run_step(run.step(node))
        return
    is_new = not is_output(out, plan)
    if dry_run:
        _show_preview(plan, invocation)
        return
    if is_new:
        _show_preview(plan, invocation)
        if not invocation.is_agreed(f"Generate it in {out}?"):
            return
        prepare_output(out, plan)
    if only_skeleton:
        invocation.screen.line(f"The skeleton is in {out}.")
        return
    with inside.work_on(plan.slug):
        state = inside.project.generation(plan, resume=words).carry_out(keeps_failed=keep_failed)
    if not invocation.as_json:
        invocation.screen.gap()
        invocation.screen.line(summarize(plan, state), style="bold")
    _require_all(plan, state, again=words)


def _show_preview(plan: "GenerationPlan", invocation: Invocation) -> None:
    from cdd_agent.config.settings import Settings
    from cdd_agent.generation.estimate import estimate_nodes
    from cdd_agent.repl.generation_actions import show_preview
    from cdd_agent.runs.graph_nodes import adapt_policy
    from cdd_agent.tdd.context import Policy

    if invocation.as_json:
        return
    settings = Settings()
    model = invocation.options.model or settings.model
    policy = adapt_policy(Policy.from_settings(settings))
    show_preview(plan, [estimate_nodes(len(plan.nodes), model=model, policy=policy)], screen=invocation.screen)


def _require_all(plan: "GenerationPlan", state: "RunState", *, again: str) -> None:
    """Raise ``GateClosed`` unless all nodes have passed."""
    from cdd_agent.repl.generation_actions import summarize
    from cdd_agent.work.state import Status

    if len(state.numbers(Status.COMPLETED)) < len(plan.nodes):
        raise GateClosed(f"The repository is not complete: {summarize(plan, state)}.", hint=f"try again: {again}")
