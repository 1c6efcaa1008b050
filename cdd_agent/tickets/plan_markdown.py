"""``plan.md`` read, printed and ticked off.

People edit the file by hand, so reading is tolerant about form; what cannot be understood is an error with its line,
never dropped. A plan that is printed unchanged comes out byte for byte as it was read.
"""

import dataclasses
import re
from pathlib import Path

from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.tickets import document
from cdd_agent.tickets.plan import KINDS, Kind, Plan, Step
from cdd_agent.tickets.plan_outline import Block, blocks, read_lines
from cdd_agent.tickets.plan_step import MOST_STEPS, StepReader, trimmed

_PLAN_PREFIX = re.compile(r"(?:implementation\s+)?plan\s*[:\u2013\u2014-]\s*", re.IGNORECASE)
_LIMIT_BYTES = 1_000_000
_MOST_LINES = 40_000


def load(path: Path, *, default_kind: Kind = "feature") -> Plan:
    """The plan in the file ``path``; ``UsageError`` if there is none."""
    return parse(load_text(path), path=str(path), default_kind=default_kind)


def load_text(path: Path) -> str:
    """The text of the file ``path``, with its line ends as they are; ``UsageError`` if there is none."""
    try:
        return document.load_text(path, limit_bytes=_LIMIT_BYTES)
    except FileNotFoundError as error:
        raise UsageError(f"There is no plan at {path}.", hint=f"write one with: cdd plan {path.parent.name}") from error


def parse(text: str, *, path: str, default_kind: Kind = "feature") -> Plan:
    """The plan that ``text`` states; ``default_kind`` is given to steps that name none.

    Raises ``DocumentError``, naming ``path``, for what cannot be understood. Whether the plan can be carried out is
    for ``plan.problems`` to say.
    """
    if too_large := _too_large(text):
        raise DocumentError(path, (Problem(line=0, message=too_large),), hint="make several tickets of it")
    lines, unclosed = read_lines(text)
    found, odd = blocks(lines)
    if (count := sum(block.name == "step" for block in found)) > MOST_STEPS:
        problem = Problem(line=0, message=f"it has {count} steps; a plan has at most {MOST_STEPS}")
        raise DocumentError(path, (problem,), hint="make several tickets of it")
    readers = [StepReader(block, default_kind) for block in found if block.name == "step"]
    problems = [*unclosed, *odd, *(problem for reader in readers for problem in reader.problems)]
    if problems:
        problems.sort(key=lambda problem: problem.line)
        raise DocumentError(path, tuple(problems), hint=f"mend the lines above in {path}, then try again")
    titles = [block.text for block in found if block.name == "title"]
    return Plan(
        title=_PLAN_PREFIX.sub("", titles[0], count=1) if titles else "",
        overview=_section_text(found, "overview"),
        steps=tuple(reader.step for reader in readers),
        risks=_section_text(found, "risks"),
        source=text,
    )


def _too_large(text: str) -> str:
    """What there is too much of, if anything."""
    if len(text) > _LIMIT_BYTES:
        return f"it has {len(text)} characters; a plan has at most {_LIMIT_BYTES}"
    count = text.count("\n") + text.count("\r") - text.count("\r\n")
    return f"it has {count} lines; a plan has at most {_MOST_LINES}" if count > _MOST_LINES else ""


def _section_text(found: list[Block], name: str) -> str:
    texts = (trimmed([line.text for line in block.lines]) for block in found if block.name == name)
    return "\n\n".join(text for text in texts if text)


def render(plan: Plan) -> str:
    """The plan as Markdown that reads back as the same plan.

    A plan read from a file and not changed gives that file's text. Raises ``UsageError`` if a text in the plan would
    read back as something else, such as a description with a step heading in it.
    """
    if plan.source is not None and any(parse(plan.source, path="plan.md", default_kind=kind) == plan for kind in KINDS):
        return plan.source
    plan = _tidy(plan)
    parts = [f"# Implementation Plan: {plan.title}\n", "## Overview\n"]
    parts += [f"{plan.overview}\n"] if plan.overview else []
    parts += ["## Steps\n", *(_render_step(step) for step in plan.steps), "## Risks\n"]
    parts += [f"{plan.risks}\n"] if plan.risks else []
    text = "\n".join(parts)
    if (again := parse(text, path="plan.md")) != plan:
        pairs = zip(plan.steps, again.steps, strict=False)
        changed = next((f"step {step.number}" for step, read in pairs if step != read), "its overview or risks")
        raise UsageError(
            f"the plan cannot be written as Markdown: {changed} would read back differently.",
            hint="put lines that look like headings or keys into a fence, and quote no backticks in paths",
        )
    return text


def _render_step(step: Step) -> str:
    lines = [
        f"### Step {step.number}: {step.title}",
        f"- [{'x' if step.done else ' '}] done",
        f"- Depends on: {', '.join(str(number) for number in step.depends_on) or 'none'}",
        f"- Files: {', '.join(f'`{path}`' for path in step.files) or 'none'}",
        f"- Tests: {', '.join(f'`{test}`' for test in step.tests) or 'none'}",
        f"- Criteria: {', '.join(step.criteria) or 'none'}",
        f"- Kind: {step.kind}",
        f"- Size: {step.size}".rstrip(),
    ]
    return "\n".join(lines) + (f"\n\n{step.description}\n" if step.description else "\n")


def _tidy(plan: Plan) -> Plan:
    """The plan as it can stand in a file: titles on one line, texts without blank lines round them."""
    steps = tuple(
        dataclasses.replace(
            step,
            title=" ".join(step.title.split()),
            size=" ".join(step.size.split()),
            depends_on=tuple(dict.fromkeys(step.depends_on)),
            files=tuple(dict.fromkeys(step.files)),
            tests=tuple(dict.fromkeys(step.tests)),
            criteria=tuple(dict.fromkeys(step.criteria)),
            description=_text(step.description),
        )
        for step in plan.steps
    )
    title = " ".join(plan.title.split())
    return Plan(title=title, overview=_text(plan.overview), steps=steps, risks=_text(plan.risks))


def _text(text: str) -> str:
    return trimmed(re.split(r"\r\n|\r|\n", text))
