"""The screen of a generation: the preview, the progress, the question after a subgraph, and the result."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from cdd_agent.clock import Clock, SystemClock
from cdd_agent.errors import format_count
from cdd_agent.events import AnswerLost, Event, StepFinished, StepStarted, TurnEnded
from cdd_agent.generation.estimate import Estimate, Limit, compare_with_limits
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.git.repository import CommitId
from cdd_agent.model.budget import Ceiling, totals_from_answer
from cdd_agent.repl.render import create_table, format_cost, show_files
from cdd_agent.repl.screen import Screen
from cdd_agent.review import diff_commits
from cdd_agent.runs.generation import Generation
from cdd_agent.tickets.graph import Group, find_import_cycles, format_import_cycle
from cdd_agent.untrusted.text import clean
from cdd_agent.work.state import RunState, Status, review_step

if TYPE_CHECKING:
    from cdd_agent.compose import Composition

_MOST_PATHS = 40
_NODES_PER_LINE = 10
_BAR = 20
_ENDED = (Status.COMPLETED, Status.FAILED, Status.SKIPPED)


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The nodes, files and expected usage of a generation, before the first request."""

    plan: GenerationPlan
    estimates: tuple[Estimate, ...]
    ceiling: Ceiling
    """The limits of the whole run."""

    @property
    def _limits(self) -> tuple[Limit, ...]:
        return tuple(compare_with_limits(self.estimates, self.ceiling))

    def _list_nodes(self) -> Iterator[tuple[int, Group, str, str]]:
        """Yield position, group, title and path of each node, in order."""
        number, plan = 0, self.plan
        for group in plan.groups:
            for name in group.nodes:
                number += 1
                node = plan.graph.by_id[name]
                yield number, group, plan.layout.title_of(node), plan.layout.map_path(node.file_path)

    def as_fields(self) -> dict[str, object]:
        """Return the preview as JSON."""
        cycles = find_import_cycles(self.plan.graph, self.plan.layout.module_of)
        return {
            "package": self.plan.layout.package,
            "nodes": [
                {"position": number, "subgraphs": list(group.ids), "title": title, "file": path}
                for number, group, title, path in self._list_nodes()
            ],
            "estimates": [asdict(each) for each in self.estimates],
            "limits": [asdict(each) for each in self._limits],
            "import_cycles": [asdict(each) for each in cycles],
        }

    def show(self, screen: Screen) -> None:
        """Show subgraphs and nodes in order, their files, and the estimated usage beside the limits."""
        plan, shown = self.plan, None
        files = format_count(len(plan.layout.rows), "file")
        screen.line(f"{plan.layout.package}: {format_count(len(plan.nodes), 'node')} in {files}", style="bold")
        for number, group, title, path in self._list_nodes():
            if group != shown:
                shown = group
                screen.gap()
                count = format_count(len(group.nodes), "node")
                screen.line(Text.assemble((clean(group.name), "bold"), (f"  {count}", "dim")))
            screen.line(f"{number:>4}  {clean(title)}  {path}")
        moved = [(old, new) for old, new in plan.layout.rows if old != new]
        if moved:
            screen.gap()
            screen.line("Paths of the graph, and where they go", style="bold")
            screen.items([f"{clean(old)} -> {new}" for old, new in moved], most=_MOST_PATHS)
        screen.gap()
        self._show_usage(screen)
        for cycle in find_import_cycles(plan.graph, plan.layout.module_of):
            screen.note(format_import_cycle(plan.graph, cycle))

    def _show_usage(self, screen: Screen) -> None:
        for each in self.estimates:
            table = create_table(f"{each.role}: {clean(each.model)}", "requests", "tokens", "cost")
            for at, name in enumerate(("least", "likely", "most")):
                cost = "unknown" if each.usd is None else f"${each.usd[at]:,.2f}"
                table.add_row(name, f"{getattr(each.requests, name):,}", f"{getattr(each.tokens, name):,}", cost)
            screen.show(table)
        limits = self._limits
        if limits:
            told = ", ".join(f"{_format_amount(each.amount, each.noun)} ({each.name})" for each in limits)
            screen.line(f"The limits of the run: {told}.", hang=2)
        for limit in limits:
            if limit.likely > limit.amount:
                how = "cannot end" if limit.least > limit.amount else "will likely not end"
                expected = _format_amount(max(limit.least, limit.likely), limit.noun)
                text = f"The run {how} within {limit.name}: it likely needs {expected}. It stops at the limit, and the "
                screen.note(f"{text}same command continues when you have raised it.")


def _format_amount(amount: float, noun: str) -> str:
    return f"${amount:,.2f}" if noun == "USD" else f"{amount:,.0f} {noun}"


class GenerationProgress:
    """Shows how far a generation is: a bar on a terminal, else a line now and then. Its ``write`` is an ``Emit``."""

    def __init__(self, plan: GenerationPlan, state: RunState, *, screen: Screen, clock: Clock | None = None) -> None:
        """Begin with ``state``, which earlier processes have reached."""
        self._screen = screen
        self._clock = clock or SystemClock()
        steps = state.step_executions
        self._nodes = {number for number, step in steps.items() if step.title in plan.by_title}
        """Not the integration tests."""
        self._ended = self._nodes.intersection(state.numbers(*_ENDED))
        self._here: set[int] = set()
        """The nodes that ended in this process."""
        self._since_s = self._clock.monotonic()
        self._used = state.usage
        self._node = ""

    def write(self, event: Event) -> None:
        """Follow an event of the run."""
        match event:
            case StepStarted(number=number, title=title):
                self._node = title
                self._ended.discard(number)
            case StepFinished(number=number) if number in self._nodes:
                self._ended.add(number)
                self._here.add(number)
                if not self._screen.has_status and len(self._here) % _NODES_PER_LINE == 0:
                    self._screen.line(self._describe_done(), style="dim")
            case TurnEnded() | AnswerLost():
                self._used += totals_from_answer(event)
            case _:
                return
        self._screen.set_status(self._draw_bar())

    def _describe_done(self) -> str:
        done, total = len(self._ended), len(self._nodes)
        left = self._estimate_rest()
        return f"Completed {done}/{total} nodes ({done * 100 // max(1, total)}%){f', ETA: {left}' if left else ''}"

    def _draw_bar(self) -> str:
        done, total = len(self._ended), len(self._nodes)
        full = done * _BAR // max(1, total)
        bar = self._screen.symbols["full"] * full + self._screen.symbols["empty"] * (_BAR - full)
        left = self._estimate_rest()
        parts = (f"{bar} {done}/{total} nodes", f"ETA {left}" if left else "", format_cost(self._used), self._node)
        return "  ".join(clean(part) for part in parts if part)

    def _estimate_rest(self) -> str:
        """Return how long the rest takes if its nodes take as long as those of this process; empty if unknown."""
        done, left = len(self._here), len(self._nodes) - len(self._ended)
        if not done or not left:
            return ""
        seconds = (self._clock.monotonic() - self._since_s) * left / done
        if seconds < 90:
            return f"{seconds:.0f} s"
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Boundary:
    """The end of a subgraph, where the user may review it."""

    def __init__(self, generation: Generation, *, project: "Composition", screen: Screen) -> None:
        """Ask nothing yet."""
        self._generation = generation
        self._project = project
        self._screen = screen

    def decide(self, group: Group, commit: CommitId) -> bool:
        """Let the user review a subgraph that has landed with ``commit``, and return whether the run continues."""
        choose = self._project.options.choose
        if self._project.options.no_review:
            self._approve(group)
            return True
        if choose is None:
            return True
        choices = (
            "continue: its nodes are not reviewed yet",
            "approve: its nodes count as reviewed, and the run continues",
            "changes: show what it changed",
            "stop: the same command continues later",
        )
        while (answer := choose(f"{group.name} has landed. What now?", choices)) == choices.index(choices[2]):
            show_files(diff_commits(self._project.repository, f"{commit}^1", after=commit), screen=self._screen)
        if answer == 1:
            self._approve(group)
        return answer != len(choices) - 1

    def _approve(self, group: Group) -> None:
        # Not by a review, which needs the lock that the run holds.
        run, plan = self._generation.run, self._generation.plan
        titles = {plan.layout.title_of(plan.graph.by_id[name]) for name in group.nodes}
        for number in run.state.numbers(Status.COMPLETED):
            if run.state.execution(number).title in titles:
                run.save(review_step(run.state, number, decision="approved"))


def has_all(plan: GenerationPlan, state: RunState) -> bool:
    """Return whether all nodes have passed."""
    passed = {state.execution(number).title for number in state.numbers(Status.COMPLETED)}
    return passed.issuperset(plan.by_title)


def summarize(plan: GenerationPlan, state: RunState) -> str:
    """Return how many nodes have passed, failed, were skipped and are left, in one sentence."""
    steps = [step.status for step in state.step_executions.values() if step.title in plan.by_title]
    passed, failed, skipped = (steps.count(each) for each in _ENDED)
    left = len(plan.nodes) - passed - failed - skipped
    text = f"{passed} of {format_count(len(plan.nodes), 'node')} passed"
    text += f", {failed} failed" if failed else ""
    text += f", {skipped} skipped" if skipped else ""
    return text + (f", {left} left" if left else "")
