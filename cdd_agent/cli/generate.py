"""The command ``cdd generate``: a repository from a planning graph."""

import json
import shlex
import sys
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdd_agent.cli.invocation import Invocation, headless, on_workers
from cdd_agent.errors import GateClosed, Interrupted, UsageError, format_count, suggest

if TYPE_CHECKING:
    from cdd_agent.generation.plan import GenerationPlan
    from cdd_agent.generation.traceability import TracedResults
    from cdd_agent.repl.generation_actions import Preview
    from cdd_agent.tickets.graph import Graph, Node, NodeId
    from cdd_agent.work.state import RunState

_MOST_SHOWN = 40
"""Answers of the Architect."""


@click.command(short_help="Generate a tested repository from a planning graph.")
@click.argument("graph", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="The folder to create.")
@click.option(
    "--tests",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Tests that exist already: generate the code that they test, and write none.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be generated, and write nothing.")
@click.option("--only-skeleton", is_flag=True, help="Write the modules with their signatures, and no code.")
@click.option("--keep-failed", is_flag=True, help="Leave nodes that failed, and those that need them.")
@click.option("--start-from-node", "start", metavar="NODE", help="Leave the nodes before NODE, an id or a title.")
@click.option("--rollback", metavar="SUBGRAPH", help="Go back to before SUBGRAPH landed; generate nothing.")
@click.option(
    "--max-usd",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="The most dollars for this generation, in place of the setting max_usd_per_ticket.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The interpreter with which the tests run.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Let up to N agents work at once, on nodes that do not need each other.",
)
@on_workers
@click.option("--node", type=int, hidden=True)
@click.option("--no-review", is_flag=True, help="Approve each subgraph that lands, without asking.")
@click.option("--install", is_flag=True, help="Download the packages that the graph lists, without asking.")
@click.option("--anyway", is_flag=True, help="Generate it although modules import each other in a circle.")
@headless
def generate(invocation: Invocation, **given: Any) -> None:
    """Generate the repository that the planning graph GRAPH describes, node by node, test first.

    The same command continues a generation: nodes that have passed stay. Exit code 1 if nodes are left, 3 if the budget
    is spent.
    """
    from cdd_agent.generation.plan import adopt_answers, load_plan
    from cdd_agent.runs.output_folder import has_user_tests, read_planned_graph

    request = GenerateRequest(**given)
    plan = replace(load_plan(request.graph), has_user_tests=request.tests is not None or has_user_tests(request.out))
    if (known := read_planned_graph(request.out)) is not None:
        plan = replace(plan, graph=adopt_answers(plan.graph, known))
    command = GenerateCommand(invocation, request, plan=plan)
    if request.node is None:
        command.carry_out()
    else:
        command.work_ahead(request.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """The arguments of the command, besides those that every run has."""

    graph: Path
    out: Path
    tests: Path | None
    """The folder of tests that exist; None: cdd writes tests, or has taken them when the generation began."""
    dry_run: bool
    only_skeleton: bool
    keep_failed: bool
    start: str | None
    """The node before which all stay as they are."""
    rollback: str | None
    """The subgraph to take back."""
    node: int | None
    """The number of the node to work out in a fork, for a run that continues meanwhile; None for a run."""


def _show_source(graph: "Graph", id: "NodeId", *, name: str) -> str:
    """Return the beginning of an answer, on one line."""
    from cdd_agent.untrusted.text import shorten

    node = graph.by_id[id]
    sources = {each.name: each.signature for each in node.definitions}
    return shorten(sources.get(name) or node.code, 100)


class GenerateCommand:
    """One call of the command."""

    def __init__(self, invocation: Invocation, request: GenerateRequest, *, plan: "GenerationPlan") -> None:
        """Reads and writes nothing yet."""
        self._invocation = invocation
        self._request = request
        self._plan = plan

    def carry_out(self) -> None:
        """Show what is to be done, ask, and do it; raises ``GateClosed`` if nodes are left."""
        from cdd_agent.runs.output_folder import (
            has_user_tests,
            is_output,
            prepare_output,
            require_free,
            require_no_link,
        )

        request, plan = self._request, self._plan
        start = None if request.start is None else self._find_node(request.start)
        require_no_link(request.out)
        is_new = not is_output(request.out, plan)
        if request.rollback is not None:
            self._roll_back(request.rollback, is_new=is_new)
            return
        if not is_new and plan.has_user_tests and not has_user_tests(request.out):
            raise UsageError(
                f"{request.out} was begun without --tests, so cdd writes the tests there.",
                hint=f"continue without it: {self._format_command()}; or name another folder: --out DIR",
            )
        if is_new and not self._is_interrupted:
            require_free(request.out)
        more = {**self._read_data(), **self._read_tests()} if is_new else {}
        if is_new or request.dry_run:
            self._show_preview()
        self._require_straight_imports()
        if request.dry_run or (is_new and not self._invocation.is_agreed(f"Generate it in {request.out}?")):
            return
        has_answers = is_new and self._ask_architect()
        prepare_output(request.out, self._plan, keeps_graph=has_answers, more=more)
        if request.only_skeleton:
            self._check_skeleton()
        else:
            self._generate(start)

    def work_ahead(self, number: int) -> None:
        """Work out a node in this fork, for a run that takes it over."""
        with self._inside.work_on(self._plan.slug):
            run = self._inside.project.node_run(self._plan, resume=self._format_command())
            with run.running():
                run.run_step(run.step(number))

    @property
    def _is_interrupted(self) -> bool:
        from cdd_agent.runs.output_folder import was_interrupted

        return was_interrupted(self._request.out)

    @cached_property
    def _inside(self) -> Invocation:
        """The same call in the output folder."""
        invocation = self._invocation
        inside = replace(invocation, options=replace(invocation.options, project=self._request.out.resolve()))
        vars(inside).update(screen=invocation.screen, sink=invocation.sink)
        return inside

    def _format_command(self, *, is_absolute: bool = False) -> str:
        """Return the command that continues; ``is_absolute``: from any folder."""
        request, options = self._request, self._invocation.options
        graph, out = (path.absolute() if is_absolute else path for path in (request.graph, request.out))
        words = ["cdd", "generate", str(graph), "--out", str(out)]
        if options.max_usd is not None:
            words += ["--max-usd", f"{options.max_usd:g}"]
        if options.python is not None:
            words += ["--python", str(options.python.absolute())]
        words += [
            option
            for option, is_given in (
                ("--no-review", options.no_review),
                ("--install", options.install),
                ("--anyway", options.anyway),
            )
            if is_given
        ]
        return shlex.join(words)

    def _read_data(self) -> dict[str, bytes]:
        """Return the files of the package that no node writes; they are beside the graph."""
        from cdd_agent.generation.data_files import find_data_folder, read_data

        return read_data(self._plan.graph, self._plan.layout, folder=find_data_folder(self._request.graph))

    def _read_tests(self) -> dict[str, bytes]:
        """Return the given tests with pytest's settings for them; none if cdd writes the tests."""
        from cdd_agent.generation.given_tests import SETTINGS, read_tests, write_settings

        place = self._request.tests
        if place is None:
            return {}
        return {**read_tests(place), SETTINGS: write_settings(place).encode()}

    def _find_node(self, name: str) -> "Node":
        """Return the leaf with this id or title; raise ``UsageError`` if there is none."""
        plan = self._plan
        leaves = {str(node.id): node for node in plan.nodes}
        found = leaves.get(name) or plan.by_title.get(name)
        if found is None:
            near = suggest(name, (*leaves, *plan.by_title), text="did you mean: --start-from-node {}")
            hint = near or f"list the nodes: cdd graph show {shlex.quote(str(self._request.graph))}"
            raise UsageError(f"The graph has no function or class {name!r} to generate.", hint=hint)
        return found

    # Before the first request

    def _show_preview(self) -> None:
        preview = self._make_preview()
        if self._invocation.as_json:
            sys.stdout.write(json.dumps({"event": "GenerationPlanned", **preview.as_fields()}) + "\n")
        else:
            preview.show(self._invocation.screen)

    def _make_preview(self) -> "Preview":
        from cdd_agent.config import settings
        from cdd_agent.generation.estimate import estimate_answers, estimate_nodes
        from cdd_agent.generation.plan import list_open
        from cdd_agent.model.budget import Ceilings
        from cdd_agent.repl.generation_actions import Preview
        from cdd_agent.runs.graph_nodes import adapt_policy
        from cdd_agent.tdd.context import Policy

        options = self._invocation.options
        # A new repository has no settings yet, and those of the current folder do not count there.
        replay = options.find_recording()
        model = options.model if replay is None else f"replay:{replay.name}"
        own = settings.load(self._request.out, allows=lambda _: False, model=model)
        policy = adapt_policy(Policy.from_settings(own))
        estimates = [estimate_nodes(self._plan.count_phases(), model=own.model, policy=policy)]
        if questions := len(list_open(self._plan.graph)):
            asked = own.architect_model or own.model
            estimates.insert(0, estimate_answers(questions, model=asked, max_drafts=own.max_drafts))
        return Preview(
            plan=self._plan,
            estimates=tuple(estimates),
            ceiling=Ceilings.from_settings(own).limit_run(options.max_usd).ticket,
        )

    def _ask_architect(self) -> bool:
        """Let the Architect say what the graph leaves open, and show it; return whether it has said anything.

        Without an answer, the skeleton has what ``cdd graph check`` names.
        """
        from cdd_agent.errors import ModelError, TurnMissing
        from cdd_agent.generation.plan import list_open
        from cdd_agent.tickets.graph import NodeId

        asked = list_open(self._plan.graph)
        if not asked:
            return False
        project, screen = self._invocation.project, self._invocation.screen
        with nullcontext() if self._invocation.at_prompt else closing(project), screen.working("asking the Architect"):
            try:
                graph = project.architect(is_optional=True).answer(self._plan.graph, find_open=list_open)
            except TurnMissing:
                return False
            except ModelError as error:
                if not self._request.only_skeleton:
                    raise
                screen.note(f"{error.happened} {format_count(len(asked), 'gap')} of the graph stays open.")
                return False
        left = {(each.node, each.name) for each in list_open(graph)}
        answered = dict.fromkeys((each.node, each.name) for each in asked if (each.node, each.name) not in left)
        self._plan = replace(self._plan, graph=graph)
        if answered and not self._invocation.as_json:
            screen.line(f"The Architect has closed {format_count(len(answered), 'gap')} of the graph:")
            rows = [f"{name} ({id}): {_show_source(graph, NodeId(id), name=name)}" for id, name in answered]
            screen.items(rows, most=_MOST_SHOWN)
        return bool(answered)

    def _require_straight_imports(self) -> None:
        """Raise ``UsageError`` if modules import each other in a circle, unless the user wants it anyway."""
        from cdd_agent.tickets.graph import find_import_cycles, format_import_cycle

        found = find_import_cycles(self._plan.graph, self._plan.layout.module_of)
        if found and not self._invocation.options.anyway:
            listed = "".join(f"\n  {format_import_cycle(self._plan.graph, each)}" for each in found)
            raise UsageError(
                f"{self._request.graph} has circular imports:{listed}",
                hint="move one of the nodes to another module; or generate it with imports inside of functions: the "
                "same command with --anyway",
            )

    # The work

    def _check_skeleton(self) -> None:
        """Import each module of the skeleton; raise ``GateClosed`` if one cannot be imported."""
        from cdd_agent.generation.installation import import_skeleton
        from cdd_agent.runs.node_diagnosis import find_python

        with closing(self._inside.project) as project, self._inside.screen.working("importing the modules"):
            modules, python = self._plan.layout.modules, find_python(project.suite)
            imported = import_skeleton(project.root, modules, python=python, sandbox=project.sandbox)
        out, lines = self._request.out, [f"  {name}: {said}" for name, said in imported.failed.items()]
        lines += [f"  the package {name} is not installed" for name in imported.missing]
        if lines:
            raise GateClosed(
                "\n".join((f"The skeleton is in {out}, but not every module can be imported:", *lines)),
                hint="correct the module-level code or the requirements of the graph, and name another folder",
            )
        self._invocation.screen.line(f"The skeleton is in {out}: {format_count(len(modules), 'module')} imported.")

    def _roll_back(self, name: str, *, is_new: bool) -> None:
        """Take a subgraph back, and everything that landed after it, if the user agrees."""
        from cdd_agent.cli.inspect import go_back

        plan, request = self._plan, self._request
        if is_new:
            raise UsageError(f"{request.out} holds no generation of this graph.", hint=self._format_command())
        group = next((group for group in plan.groups if name == group.name or name in group.ids), None)
        if group is None:
            names = [each for group in plan.groups for each in group.ids]
            hint = suggest(
                name, names, text="did you mean: --rollback {}", otherwise=f"name one of: {', '.join(names)}"
            )
            raise UsageError(f"The graph has no subgraph {name!r}.", hint=hint)
        with closing(self._inside.project) as project:
            move = project.back.plan_landing(plan.slug, group.name)
            go_back(project.back, move, invocation=self._inside, dry_run=request.dry_run)

    def _generate(self, start: "Node | None") -> None:
        """Generate the nodes that are left, and show the result."""
        from cdd_agent.repl.generation_actions import Boundary, GenerationProgress, summarize

        plan, invocation = self._plan, self._inside
        project = invocation.project
        # At the prompt, the project of the session is another one, so nobody else closes this one.
        with closing(project) if invocation.at_prompt else nullcontext(), invocation.work_on(plan.slug):
            generation = project.generation(plan, resume=self._format_command(is_absolute=True))
            generation.continues = Boundary(generation, project=project, screen=invocation.screen).decide
            if not invocation.as_json:
                progress = GenerationProgress(plan, generation.run.state, screen=invocation.screen)
                project.publisher.listeners.append(progress.write)
            try:
                state = generation.carry_out(keeps_failed=self._request.keep_failed, start=start)
            except KeyboardInterrupt as stop:
                if invocation.at_prompt:  # the session reports it
                    raise
                told = summarize(plan, generation.run.state)
                raise Interrupted(f"Stopped, and everything is saved: {told}.", hint=self._hint()) from stop
        if not invocation.as_json:
            invocation.screen.gap()
            told = f"{summarize(plan, state)}; {generation.count_proved()} proved: {self._request.out}"
            invocation.screen.line(told, style="bold")
        self._require_all(state)
        if generation.tests is not None:
            self._require_tests(generation.tests)

    def _hint(self) -> str:
        return f"continue: {self._format_command()}"

    def _require_tests(self, results: "TracedResults") -> None:
        """Raise ``GateClosed`` unless all given tests pass."""
        if results.failing:
            raise GateClosed(
                results.summarize(),
                hint=f"see why: cd {shlex.quote(str(self._request.out))} && python -m pytest; the report is in "
                "docs/generation_report.md",
            )
        if not self._invocation.as_json:
            self._invocation.screen.line(results.summarize())

    def _require_all(self, state: "RunState") -> None:
        """Raise ``GateClosed`` unless all nodes have passed."""
        from cdd_agent.repl.generation_actions import has_all, summarize

        if not has_all(self._plan, state):
            told = summarize(self._plan, state)
            raise GateClosed(f"The repository is not complete: {told}.", hint=self._hint())
