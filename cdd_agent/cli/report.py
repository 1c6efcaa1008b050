"""The story of a ticket as a page of text, and as one HTML file that needs no network and no script."""

import html
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
from rich.cells import set_cell_size
from rich.text import Text

from cdd_agent.errors import format_count
from cdd_agent.events import FileDiffed
from cdd_agent.history.story import JudgedAttempt, Spent, StepRun, StepStory, Story
from cdd_agent.repl.dialogs import format_duration
from cdd_agent.repl.render import create_table, format_cost
from cdd_agent.repl.review_actions import describe_place
from cdd_agent.repl.rows import wrap
from cdd_agent.repl.screen import Screen
from cdd_agent.review import Comment, DiffLine, list_lines
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import clean

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
_ROW_KINDS = {"+": "added", "-": "removed", "@": "heading", "\\": "heading", " ": "same"}


def show_story(story: Story, *, screen: Screen) -> None:
    """Show the story as text."""
    screen.line(f"{story.title}  ({story.ticket})", style="bold")
    screen.fields(_list_facts(story))
    for problem in story.problems:
        screen.note(problem)
    for step in story.steps:
        screen.gap()
        screen.line(f"Step {step.execution.step_number}  {step.execution.title}: {_describe(step)}", style="bold")
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
        symbol = screen.symbols["note" if attempt.is_expected else "open" if attempt.is_open else "closed"]
        took = format_duration(attempt.spent.duration_s)
        told = f"{attempt.phase.upper()} attempt {attempt.number} {attempt.verdict}, {took}  {attempt.evidence}"
        screen.line(f"{symbol} {told}", indent=2)
        for text in (*attempt.reasons, *attempt.findings):
            screen.line(text, indent=6)
    for landed in run.landed.commits if run.landed else ():
        screen.line(f"{landed.commit[:10]} {landed.subject}", indent=2)


def _list_facts(story: Story) -> list[tuple[str, str]]:
    state, spent = story.state, story.spent
    refused = sum(each.verdict == "closed" for each in story.attempts)
    done = sum(step.execution.status == "completed" for step in story.steps)
    return [
        ("status", f"{state.status.replace('_', ' ')}: {done} of {format_count(len(story.steps), 'step')}"),
        ("time", f"{state.started_at} to {state.completed_at or 'now'}"),
        ("model", f"{state.model or 'unknown'}; sandbox {state.sandbox or 'unknown'}"),
        ("attempts", f"{len(story.attempts)}, {refused} of them refused"),
        ("files", f"{len(story.files)} changed"),
        ("cost", f"{spent.usage.tokens:,} tokens; {format_cost(spent.usage) or 'nothing'}"),
    ]


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


def format_page(story: Story) -> str:
    """Return the story as one page of HTML. All texts of others are escaped, and keys in them masked."""
    sections = {
        "time": ("Time line", _draw_time(story)),
        "steps": ("Steps", _draw_steps(story)),
        "evidence": ("Evidence", "".join(map(_format_step, story.steps))),
        "changes": ("Changes", "".join(map(_format_changes, story.steps))),
        "cost": ("Tokens and cost", _format_costs(story)),
        "tests": ("Durations of tests", _format_tests(story)),
    }
    if story.forks:
        rows = (f'<li style="margin-left: {depth}rem">{_escape(text)}</li>' for depth, text in story.forks)
        sections["forks"] = ("Forks", f"<ul>{''.join(rows)}</ul>")
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, (title, _) in sections.items())
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{content}</section>'
        for name, (title, content) in sections.items()
    )
    facts = "".join(f"<tr><th scope=row>{name}</th><td>{_escape(text)}</td></tr>" for name, text in _list_facts(story))
    criteria = "".join(f"<li>{_escape(name)}: {_escape(text)}</li>" for name, text in story.criteria.items())
    problems = "".join(f"<p><strong>{_escape(problem)}</strong></p>" for problem in story.problems)
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_escape(story.title)}: report</title><style>{style}</style></head>
<body><a class="skip" href="#main">Skip to the report</a>
<header><h1>{_escape(story.title)}</h1><p class="dim">Ticket {_escape(story.ticket)}</p>
<p>{_escape(story.description)}</p><ul>{criteria}</ul>
<nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="main" tabindex="-1"><table>{facts}</table>{problems}{body}</main></body></html>
"""


def _escape(text: str) -> str:
    return html.escape(clean(mask(text).text))


def _draw_time(story: Story) -> str:
    """Draw a bar for each attempt, as wide as its share of all attempts, with the commits between them."""
    total = sum(each.spent.duration_s for each in story.attempts) or 1.0
    rows, before = [], 0.0
    for each in story.attempts:
        left, width = before / total * 100, each.spent.duration_s / total * 100
        before += each.spent.duration_s
        times = f"{each.started[11:19]}, {format_duration(each.spent.duration_s)}" if each.started else ""
        landed = f", commit {_escape(each.commit[:10])}" if each.commit else ""
        rows.append(
            f'<li><span><a href="#{_name(each)}">{each.name}</a> <b class="{each.verdict}">{each.verdict}</b>'
            f'<br><span class="dim">{times}{landed}</span></span>'
            f'<div class="track" aria-hidden="true"><span class="{each.verdict}" '
            f'style="margin-left:{left:.2f}%;width:{width:.2f}%"></span></div></li>'
        )
    return f'<ol class="time">{"".join(rows)}</ol>' if rows else "<p>No attempt was made.</p>"


def _name(attempt: JudgedAttempt) -> str:
    stamp = "".join(filter(str.isdigit, attempt.started))
    return f"attempt-{attempt.step}-{attempt.phase}-{attempt.number}-{stamp}"


def _draw_steps(story: Story) -> str:
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
    lines = "".join(
        f'<path d="M{places[each][0] + _NODE[0] // 2} {places[each][1] + _NODE[1]} '
        f'L{places[number][0] + _NODE[0] // 2} {places[number][1]}" marker-end="url(#arrow)"/>'
        for number, needed in depends.items()
        for each in needed
        if each in places
    )
    boxes = "".join(_draw_box(step, places[step.execution.step_number]) for step in story.steps)
    width = max((x for x, _ in places.values()), default=0) + _NODE[0] + 2
    height = max((y for _, y in places.values()), default=0) + _NODE[1] + 2
    told = "; ".join(
        f"{number} {'depends on ' + ', '.join(map(str, needed)) if needed else 'depends on nothing'}"
        for number, needed in depends.items()
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Picture of the steps">'
        f'<svg aria-label="Steps: {told}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8"/></marker></defs>{lines}{boxes}</svg></div>'
    )


def _draw_box(step: StepStory, place: tuple[int, int]) -> str:
    number, (x, y) = step.execution.step_number, place
    width, most = _LABEL
    title = f"{number}. {clean(mask(step.execution.title).text)}"
    rows = [str(row).rstrip() for row in wrap(Text(title), width)]  # some characters are as wide as two
    rows = rows if len(rows) <= most else [*rows[: most - 1], f"{set_cell_size(rows[most - 1], width - 1).rstrip()}…"]
    texts = "".join(
        f'<text x="{x + 10}" y="{y + 18 + 16 * at}">{html.escape(row)}</text>'
        for at, row in enumerate([*rows, step.execution.status])
    )
    return (
        f'<a href="#step-{number}"><g class="{step.execution.status}"><title>{_escape(step.execution.title)}</title>'
        f'<rect x="{x}" y="{y}" width="{_NODE[0]}" height="{_NODE[1]}" rx="6"/>{texts}</g></a>'
    )


def _format_step(step: StepStory) -> str:
    number = step.execution.step_number
    serves = f"; serves {_escape(', '.join(step.criteria))}" if step.criteria else ""
    heading = f"Step {number}: {_escape(step.execution.title)}"
    runs = "".join(map(_format_run, step.runs))
    return f'<h3 id="step-{number}">{heading}</h3><p>{_escape(_describe(step))}{serves}</p>{runs}'


def _format_run(run: StepRun) -> str:
    commits = "".join(
        f"<li><code>{landed.commit[:10]}</code> {_escape(landed.subject)}"
        f"{'' if landed.is_in_history else ' (not in the history of HEAD)'}<ul>"
        + "".join(
            f"<li>{_escape(each.phase.upper())}: the note says {'open' if each.is_open else 'closed'} after "
            f"{format_count(each.tries, 'attempt')}; {_REPORTS.get(each.report, each.report)}"
            + "".join(f"<br>{_escape(text)}" for text in (*each.findings, *each.examples))
            + "</li>"
            for each in landed.evidence
        )
        + "</ul></li>"
        for landed in (run.landed.commits if run.landed else ())
    )
    return f"{_format_run_heading(run)}{''.join(map(_format_attempt, run.attempts))}<ul>{commits}</ul>"


def _format_run_heading(run: StepRun) -> str:
    return f"<h4>{_escape(run.heading)}</h4>" if run.heading else ""


def _format_attempt(attempt: JudgedAttempt) -> str:
    texts = [f"<li>{_escape(text)}</li>" for text in (*attempt.reasons, *attempt.findings)]
    _, time, tests, calls, tokens, cost = _format_spent("", attempt.spent)
    told = [f"{calls} calls, {tokens} tokens, {cost}" if calls else "", f"{tests} in tests" if tests else ""]
    spent = "; ".join(filter(None, (time, *told)))
    return (
        f'<details id="{_name(attempt)}"{"" if attempt.is_open else " open"}><summary>{attempt.phase.upper()} attempt '
        f'{attempt.number}: <b class="{attempt.verdict}">{attempt.verdict}</b> {_escape(attempt.evidence)}</summary>'
        f'<div><ul>{"".join(texts)}</ul><p class="dim">{_escape(spent)}</p></div></details>'
    )


def _format_changes(step: StepStory) -> str:
    landed = [run for run in step.runs if run.landed is not None]
    files = landed[-1].landed.files if landed and landed[-1].landed else ()
    shown = {path for file in files for path in (file.path, file.old_path)}
    others = [each for each in step.comments if each.id not in step.places or step.places[each.id].path not in shown]
    whole = "".join(_format_comment(each, step) for each in others)
    # Comments move to the lines where they are now, so only the last changes have them.
    without = replace(step, comments=())
    diffs = "".join(
        _format_run_heading(run)
        + "".join(_format_file(file, step if run is landed[-1] else without) for file in run.landed.files)
        for run in landed
        if run.landed
    )
    return f"<h3>Step {step.execution.step_number}</h3>{whole}{diffs or '<p>No landed changes.</p>'}"


def _format_file(file: FileDiffed, step: StepStory) -> str:
    paths = {"old": file.old_path, "new": file.path}
    own = [each for each in step.comments if each.id in step.places and step.places[each.id].path == paths[each.side]]
    lines = list(list_lines(msgspec.structs.replace(file, hunks=mask(file.hunks).text)))
    rows, placed = [], set[str]()
    for line in lines[:_MOST_DIFF_LINES]:
        rows.append(_format_line(line))
        numbers = {"old": line.old, "new": line.new}
        here = [each for each in own if numbers[each.side] == step.places[each.id].end]
        rows += [f'<tr class="comment"><td colspan="3">{_format_comment(each, step)}</td></tr>' for each in here]
        placed.update(each.id for each in here)
    others = "".join(_format_comment(each, step) for each in own if each.id not in placed)
    if len(lines) > _MOST_DIFF_LINES:
        others += f"<p>{len(lines) - _MOST_DIFF_LINES} more lines are left out.</p>"
    remarks = f", {format_count(len(own), 'comment')}" if own else ""
    kind = f"renamed from <code>{_escape(file.source)}</code>" if file.source else file.kind
    return (
        f"<details><summary><code>{_escape(file.path)}</code> {kind}, {file.counts}{remarks}</summary>"
        f'<div>{others}<div class="scroll" tabindex="0" role="region" aria-label="Diff of {_escape(file.path)}">'
        f'<table class="diff">{"".join(rows)}</table></div></div></details>'
    )


def _format_line(line: DiffLine) -> str:
    sign = line.kind if line.kind in "+- " else ""
    return (
        f'<tr class="{_ROW_KINDS[line.kind]}"><td class="n">{line.old or ""}</td><td class="n">{line.new or ""}</td>'
        f"<td>{html.escape(sign + clean(line.text))}</td></tr>"
    )


def _format_comment(comment: Comment, step: StepStory) -> str:
    replies = "".join(f"<br>{_escape(each.author)}: {_escape(each.text)}" for each in comment.replies)
    return f"<p><b>{_escape(_describe_comment(comment, step))}</b>: {_escape(comment.text)}{replies}</p>"


def _format_costs(story: Story) -> str:
    first, *others = ("phase", "time", "tests", "calls", "tokens", "cost")
    heads = f"<th scope=col>{first}</th>" + "".join(f'<th scope=col class="number">{name}</th>' for name in others)
    rows = "".join(
        f"<tr><th scope=row>{_escape(name)}</th>"
        + "".join(f'<td class="number">{_escape(text.removeprefix("cost "))}</td>' for text in texts)
        + "</tr>"
        for name, *texts in _list_costs(story)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Cost"><table><tr>{heads}</tr>{rows}</table></div>'
    )


def _format_tests(story: Story) -> str:
    if not story.slowest_tests:
        return "<p>No report of a test run is on this machine.</p>"
    most = story.slowest_tests[0][1] or 1.0
    rows = "".join(
        f'<tr><td>{_escape(nodeid)}<span class="bar" aria-hidden="true" style="width:{seconds / most * 100:.1f}%">'
        f'</span></td><td class="number">{seconds:.3f} s</td></tr>'
        for nodeid, seconds in story.slowest_tests
    )
    return f"<p>The slowest tests of the last judged run.</p><table>{rows}</table>"
