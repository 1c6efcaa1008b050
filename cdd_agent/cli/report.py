"""The story of a ticket as a page of text, and as one HTML file that needs no network and no script.

The tags of the page are in the template ``report.html``; this module makes the records that it shows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.cells import set_cell_size
from rich.text import Text

from cdd_agent.errors import format_count
from cdd_agent.events import FileDiffed
from cdd_agent.generation.metrics import Metric
from cdd_agent.repl.dialogs import format_duration
from cdd_agent.repl.render import create_table, format_cost
from cdd_agent.repl.review_actions import describe_place
from cdd_agent.repl.rows import wrap
from cdd_agent.repl.screen import Screen
from cdd_agent.review import Comment, DiffLine, list_lines
from cdd_agent.runs.story import JudgedAttempt, Spent, StepRun, StepStory, Story
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import clean
from cdd_agent.work.finding import Finding
from cdd_agent.work.wording import explain, format_reason
from pytest_tdd_agent.report import Reason

if TYPE_CHECKING:
    import jinja2

_MOST_DIFF_LINES = 2_000
_NODE = (176, 64)
"""Width and height of a step in the picture."""
_GAP = (16, 36)
_COLUMNS = 2
"""So many fit on a telephone, where a picture that is wider would be cut."""
_LABEL = (22, 2)
"""Columns of text in a line of a step's title, and lines."""
_REPORTS = {
    "unchanged": "its report is unchanged",
    "none": "no tests had to run",
    "changed or missing": "its report is changed or missing",
}
_REACHED = {True: ", reached", False: ", NOT reached", None: ""}
_ROW_KINDS = {"+": "added", "-": "removed", "@": "heading", "\\": "heading", " ": "same"}


def show_story(story: Story, *, screen: Screen) -> None:
    """Show the story as text."""
    screen.line(f"{story.title}  ({story.ticket})", style="bold")
    screen.fields(_list_facts(story))
    if story.metrics:
        screen.gap()
        _show_metrics(story.metrics, screen=screen)
    for problem in story.problems:
        screen.note(problem)
    unit = story.state.unit.capitalize()
    for step in story.steps:
        screen.gap()
        screen.line(f"{unit} {step.execution.step_number}  {step.execution.title}: {_describe(step)}", style="bold")
        for run in step.runs:
            _show_run(run, screen=screen)
        for comment in step.comments:
            screen.line(f"{_describe_comment(comment, step)}: {comment.text}", indent=2)
    if story.forks:
        screen.gap()
        screen.line("Forks", style="bold")
    for depth, text in story.forks:
        screen.line(text, indent=2 * depth + 2)
    screen.gap()
    table = create_table("phase", "time", "tests", "calls", "tokens", "cost")
    for row in _list_costs(story):
        table.add_row(*map(clean, row))
    screen.show(table)
    if story.slowest_tests:
        screen.gap()
        screen.line("Slowest tests of the last run")
        for nodeid, seconds in story.slowest_tests[:5]:
            screen.line(f"{seconds:7.2f} s  {nodeid}", indent=2)


def _show_run(run: StepRun, *, screen: Screen) -> None:
    if run.heading:
        screen.line(run.heading, indent=2, style="bold")
    for attempt in run.attempts:
        gate = "open" if attempt.is_open else "closed"
        symbol = screen.symbols["note" if attempt.is_expected else gate]
        took = format_duration(attempt.spent.duration_s)
        told = f"{attempt.phase.upper()} attempt {attempt.number} {attempt.verdict}, {took}  {attempt.evidence}"
        screen.line(f"{symbol} {told}", indent=2)
        for text in (*map(format_reason, attempt.reasons), *map(explain, attempt.findings)):
            screen.line(text, indent=6)
    for landed in run.landed.commits if run.landed else ():
        screen.line(f"{landed.commit[:10]} {landed.subject}", indent=2)


def _explain(record: Finding | Reason) -> str:
    return format_reason(record) if isinstance(record, Reason) else explain(record)


def _list_facts(story: Story) -> list[tuple[str, str]]:
    state, spent = story.state, story.spent
    refused = sum(each.verdict == "closed" for each in story.attempts)
    done = sum(step.status == "completed" for step in state.parts)
    return [
        ("status", f"{state.status.replace('_', ' ')}: {done} of {format_count(len(state.parts), state.unit)}"),
        ("time", f"{state.started_at} to {state.completed_at or 'now'}"),
        ("model", f"{state.model or 'unknown'}; sandbox {state.sandbox or 'unknown'}"),
        ("attempts", f"{len(story.attempts)}, {refused} of them refused"),
        ("files", f"{len(story.files)} changed"),
        ("cost", f"{spent.usage.tokens:,} tokens; {format_cost(spent.usage) or 'nothing'}"),
    ]


def _show_metrics(metrics: Iterable[Metric], *, screen: Screen) -> None:
    table = create_table("measure", "value", "target")
    for each in metrics:
        table.add_row(each.name, each.value, f"{each.target}{_REACHED[each.is_reached]}")
    screen.show(table)


def _describe_metric(metric: Metric) -> str:
    target = f" (target: {metric.target}{_REACHED[metric.is_reached]})" if metric.target else ""
    return f"{metric.value}{target}"


def _describe(step: StepStory) -> str:
    error = f" ({step.execution.error})" if step.execution.error else ""
    return f"{step.execution.status}{error}{', ' + step.execution.review if step.execution.review else ''}"


def _describe_comment(comment: Comment, step: StepStory) -> str:
    where = describe_place(comment, step.places.get(comment.id))
    return f"{comment.author} on {where}{' (resolved)' if comment.resolved else ''}"


def _list_costs(story: Story) -> Iterator[tuple[str, ...]]:
    yield from (_format_spent(name, spent) for name, spent in story.phases.items())
    yield _format_spent("all", story.spent)
    yield from (_format_spent(f"besides: fork {name}", spent) for name, spent in story.fork_costs.items())


def _format_spent(name: str, spent: Spent) -> tuple[str, ...]:
    usage = spent.usage
    times = (format_duration(seconds) if seconds else "" for seconds in (spent.duration_s, spent.tests_s))
    return (name, *times, str(usage.calls or ""), f"{usage.tokens:,}", format_cost(usage))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBar:
    """One attempt in the time line."""

    attempt: JudgedAttempt
    times: str
    """When it began and how long it took; empty if the journal does not tell."""
    start: float
    width: float
    """Both in percent of the time of all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBox:
    """One step in the picture, at its upper left corner."""

    step: StepStory
    x: int
    y: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPicture:
    """The steps as boxes, and the arrows between them."""

    boxes: tuple[StepBox, ...]
    arrows: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    """Start and end of each, as x and y."""
    told: str
    """The same in words."""
    box_width: int = _NODE[0]
    box_height: int = _NODE[1]

    @property
    def width(self) -> int:
        """Its width in pixels."""
        return max((box.x for box in self.boxes), default=0) + self.box_width + 2

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return max((box.y for box in self.boxes), default=0) + self.box_height + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLines:
    """The changes of one file, with the comments on them."""

    file: FileDiffed
    kind: str
    step: StepStory
    rows: tuple[tuple[DiffLine, tuple[Comment, ...]], ...]
    """Each line, and the comments below it."""
    others: tuple[Comment, ...]
    """The comments on lines that are not shown."""
    left_out: int
    count: int
    """The number of comments."""


def format_page(story: Story) -> str:
    """Return the story as one page of HTML. All texts are escaped, and keys in them masked."""
    page = create_environment()
    page.filters |= {
        "anchor": _name,
        "comment": _describe_comment,
        "described": _describe,
        "details": _format_details,
        "explain": _explain,
        "line_kind": _ROW_KINDS.__getitem__,
        "told_report": lambda report: _REPORTS.get(report, report),
    }
    return page.get_template("report.html").render(
        story=story,
        facts=[*_list_facts(story), *((each.name, _describe_metric(each)) for each in story.metrics)],
        bars=tuple(_list_bars(story)),
        picture=_draw_steps(story),
        changes=[(step, tuple(_list_other_comments(step)), tuple(_list_changes(step))) for step in story.steps],
        costs=[(name, texts) for name, *texts in _list_costs(story)],
    )


def create_environment() -> "jinja2.Environment":
    """Return the environment of the templates beside this module, which escapes all texts and masks keys in them."""
    import jinja2  # most commands do not need it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = format_count
    return environment


def _finalize(value: object) -> object:
    """Return what the page may show of a value of the template: numbers, its own macros, and cleaned text."""
    from markupsafe import Markup

    if isinstance(value, (int, float, Markup)):
        return value
    if isinstance(value, str):
        return clean(mask(value).text)
    raise TypeError(f"The template shows a {type(value).__name__}, which is neither text nor a number.")


def _list_bars(story: Story) -> Iterator[TimeBar]:
    """Yield a bar for each attempt, as wide as its share of all attempts."""
    total, before = sum(each.spent.duration_s for each in story.attempts) or 1.0, 0.0
    for each in story.attempts:
        times = f"{each.started[11:19]}, {format_duration(each.spent.duration_s)}" if each.started else ""
        width = each.spent.duration_s / total * 100
        yield TimeBar(attempt=each, times=times, start=round(before, 2), width=round(width, 2))
        before += width


def _name(attempt: JudgedAttempt) -> str:
    phase, stamp = (
        "".join(filter(keep, text)) for keep, text in ((str.isalnum, attempt.phase), (str.isdigit, attempt.started))
    )
    return f"attempt-{attempt.step}-{phase}-{attempt.number}-{stamp}"


def _draw_steps(story: Story) -> StepPicture:
    """Draw the steps as boxes, each below the steps that it depends on."""
    depends = {step.execution.step_number: step.depends_on for step in story.steps}
    levels: dict[int, int] = {}
    for _ in depends:  # as many rounds as there are steps: enough for any order, and an end for a circle
        levels = {number: max((levels.get(each, 0) + 1 for each in depends[number]), default=0) for number in depends}
    places: dict[int, tuple[int, int]] = {}
    row = 0
    for level in sorted(set(levels.values())):
        numbers = [number for number in depends if levels[number] == level]
        for at, number in enumerate(numbers):
            x, y = at % _COLUMNS * (_NODE[0] + _GAP[0]), (row + at // _COLUMNS) * (_NODE[1] + _GAP[1])
            places[number] = (2 + x, 2 + y)
        row += -(-len(numbers) // _COLUMNS)
    middle, bottom = _NODE[0] // 2, _NODE[1]
    arrows = (
        ((places[each][0] + middle, places[each][1] + bottom), (places[number][0] + middle, places[number][1]))
        for number, needed in depends.items()
        for each in needed
        if each in places
    )
    told = (
        f"{number} {'depends on ' + ', '.join(map(str, needed)) if needed else 'depends on nothing'}"
        for number, needed in depends.items()
    )
    boxes = (_draw_box(step, places[step.execution.step_number]) for step in story.steps)
    return StepPicture(boxes=tuple(boxes), arrows=tuple(arrows), told="; ".join(told))


def _draw_box(step: StepStory, place: tuple[int, int]) -> StepBox:
    width, most = _LABEL
    title = f"{step.execution.step_number}. {clean(mask(step.execution.title).text)}"
    rows = [str(row).rstrip() for row in wrap(Text(title), width)]  # some characters are as wide as two
    rows = rows if len(rows) <= most else [*rows[: most - 1], f"{set_cell_size(rows[most - 1], width - 1).rstrip()}…"]
    return StepBox(step=step, x=place[0], y=place[1], rows=(*rows, step.execution.status))


def _format_details(attempt: JudgedAttempt) -> str:
    _, time, tests, calls, tokens, cost = _format_spent("", attempt.spent)
    told = [f"{calls} calls, {tokens} tokens, {cost}" if calls else "", f"{tests} in tests" if tests else ""]
    return "; ".join(filter(None, (time, *told)))


def _list_other_comments(step: StepStory) -> Iterator[Comment]:
    """Yield the comments that are on no file of the last changes."""
    landed = [run.landed for run in step.runs if run.landed is not None]
    shown = {path for file in (landed[-1].files if landed else ()) for path in (file.path, file.old_path)}
    yield from (each for each in step.comments if each.id not in step.places or step.places[each.id].path not in shown)


def _list_changes(step: StepStory) -> Iterator[tuple[StepRun, tuple[ChangedLines, ...]]]:
    landed = [run for run in step.runs if run.landed is not None]
    # Comments move to the lines where they are now, so only the last changes have them.
    without = replace(step, comments=())
    for run in landed:
        about = step if run is landed[-1] else without
        yield run, tuple(_list_file(file, about) for file in (run.landed.files if run.landed else ()))


def _list_file(file: FileDiffed, step: StepStory) -> ChangedLines:
    paths = {"old": file.old_path, "new": file.path}
    own = [each for each in step.comments if each.id in step.places and step.places[each.id].path == paths[each.side]]
    # Masked as a whole, because a key can have several lines.
    lines = list(list_lines(msgspec.structs.replace(file, hunks=mask(file.hunks).text)))
    rows, placed = list[tuple[DiffLine, tuple[Comment, ...]]](), set[str]()
    for line in lines[:_MOST_DIFF_LINES]:
        numbers = {"old": line.old, "new": line.new}
        here = tuple(each for each in own if numbers[each.side] == step.places[each.id].end)
        rows.append((line, here))
        placed.update(each.id for each in here)
    return ChangedLines(
        file=file,
        kind="" if file.source else file.kind,
        step=step,
        rows=tuple(rows),
        others=tuple(each for each in own if each.id not in placed),
        left_out=max(0, len(lines) - _MOST_DIFF_LINES),
        count=len(own),
    )
