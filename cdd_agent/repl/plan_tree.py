"""A plan as a tree: each step below the one it comes after, and which criterion is served where."""

from collections.abc import Collection, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from cdd_agent.errors import UsageError
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.tickets.plan import Plan, Step
from cdd_agent.work.order import order

_GUIDE_WIDTH = 4
_LEAST_WIDTH = 36
"""Of the text of a step, however deep it hangs."""


def show_plan(
    plan: Plan, *, screen: Screen, criteria: Sequence[str] = (), created: Collection[str] = frozenset()
) -> None:
    """The steps of a plan as a tree, then each criterion with the steps that serve it.

    A step hangs below the last of those it depends on. ``criteria``: the ids of the spec's criteria, in their order.
    ``created``: files that are not there yet.
    """
    deepest = max(1, (screen.console.width - _LEAST_WIDTH) // _GUIDE_WIDTH)
    tree = Tree(Text(clean(plan.title) or "Plan", style="bold"), guide_style="dim")
    ways: dict[int, list[Tree]] = {}  # step -> the nodes from the top down to it
    new = set(created)
    for step in _in_order(plan):
        above = next((number for number in reversed(ways) if number in step.depends_on), None)
        way = [tree] if above is None else ways[above]
        if len(way) > deepest:  # no room below: it hangs beside the step it comes after, and says so
            way, above = way[:deepest], None
        after = () if step.depends_on == (above,) else step.depends_on
        node = way[-1].add(_label(step, after=after, new=new))
        ways.setdefault(step.number, [*way, node])
        new -= {*step.files, *_by_file(step)}
    screen.show(tree)
    screen.gap()
    _show_coverage(plan, screen=screen, criteria=criteria)


def _in_order(plan: Plan) -> tuple[Step, ...]:
    """The steps as they are carried out; as in the file where they cannot be."""
    by_number: dict[int, Step] = {}
    for step in plan.steps:
        by_number.setdefault(step.number, step)
    try:
        numbers = order({n: [d for d in step.depends_on if d in by_number] for n, step in by_number.items()})
    except UsageError:  # they wait for each other
        numbers = tuple(by_number)
    twice = (step for step in plan.steps if by_number[step.number] is not step)
    return (*(by_number[number] for number in numbers), *twice)


def _label(step: Step, *, after: Sequence[int], new: Collection[str]) -> Group:
    """What is shown of one step."""
    waits = f"after {', '.join(str(number) for number in after)}" if after else ""
    told = ", ".join(part for part in (step.kind, clean(step.size), waits) if part)
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for path in step.files:
        rows.add_row("files" if path == step.files[0] else "", _path(path, new))
    tests = _by_file(step)
    for path, names in tests.items():
        listed = Text("\n").join([_path(path, new), *(Text(f"  {clean(name)}") for name in names)])
        rows.add_row("tests" if path == next(iter(tests)) else "", listed)
    if step.criteria:
        rows.add_row("for", clean(", ".join(step.criteria)))
    title = Text.assemble((f"{step.number}", "bold cyan"), "  ", (clean(step.title), "bold"))
    return Group(title, Text(told, style="dim"), *([rows] if rows.row_count else []))


def _by_file(step: Step) -> dict[str, list[str]]:
    """Test file -> the tests in it that the step names."""
    found: dict[str, list[str]] = {}
    for test in step.tests:
        path, _, name = test.partition("::")
        found.setdefault(path, []).extend([name] if name else [])
    return found


def _path(path: str, new: Collection[str]) -> Text:
    return Text.assemble(clean(path), (" (new)", "green") if path in new else "")


def _show_coverage(plan: Plan, *, screen: Screen, criteria: Sequence[str]) -> None:
    """Each criterion with the steps that serve it."""
    served: dict[str, list[int]] = {name: [] for name in criteria}
    for step in plan.steps:
        for name in step.criteria:
            served.setdefault(name, []).append(step.number)
    for name, numbers in served.items():
        steps = "step" if len(numbers) == 1 else "steps"
        told = f"{steps} {', '.join(str(number) for number in numbers)}" if numbers else "no step"
        screen.line(Text.assemble((f"{clean(name)}: ", "bold"), (told, "" if numbers else "red")), indent=0, hang=2)
