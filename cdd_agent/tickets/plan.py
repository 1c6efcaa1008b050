"""A plan: steps with dependencies, and the rules that a plan must keep before it is carried out.

The text of a plan is read and printed by ``plan_markdown``; this module holds its records and is pure.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cdd_agent.errors import Problem

Kind: TypeAlias = Literal["feature", "bug", "refactor", "docs", "chore"]
"""What a step is; it chooses the phases the step goes through."""

KINDS: tuple[Kind, ...] = ("feature", "bug", "refactor", "docs", "chore")

TEST_FIRST: frozenset[Kind] = frozenset({"feature", "bug"})
"""The kinds that begin with a failing test."""

SIZES = frozenset(["xs", "s", "m", "l", "xl", "tiny", "trivial", "small", "medium", "large", "low", "high"])
"""The sizes that are known, in lower case; any other is kept with a warning."""

LARGE = frozenset(["l", "xl", "large", "high"])
"""The sizes of a step that is better split."""

MANY_STEPS = 20
"""More than these in a plan are worth a warning."""

MANY_FILES = 8
"""More than these in a step are worth a warning."""

_KIND_OF_TYPE: dict[str, Kind] = {
    "bug": "bug",
    "refactor": "refactor",
    "doc": "docs",
    "docs": "docs",
    "chore": "chore",
    "spike": "chore",
}

_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")


def kind_of_ticket(ticket_type: str) -> Kind:
    """The kind of a step that names none, in a ticket of this type: a doc ticket has docs steps, and so on."""
    return _KIND_OF_TYPE.get(ticket_type, "feature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One unit of work that ends in a commit."""

    number: int
    """As its heading says; unique in a valid plan, not necessarily ascending."""
    title: str
    done: bool = False
    """Whether its box is ticked: a mirror of the run's state, for the reader of the plan."""
    depends_on: tuple[int, ...] = ()
    """Numbers of the steps that must be completed first."""
    files: tuple[str, ...] = ()
    """Paths relative to the project, or none where the plan leaves them open."""
    tests: tuple[str, ...] = ()
    """Node ids or paths of test files."""
    criteria: tuple[str, ...] = ()
    """Ids of the acceptance criteria it serves."""
    kind: Kind = "feature"
    size: str = ""
    """A guess of the writer's, as written."""
    description: str = ""
    """Free Markdown without blank lines round it; newlines are ``\\n`` whatever the file has."""
    line: int = field(default=0, compare=False)
    """1-based line of its heading; 0 in a plan made in code."""
    key_lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Field name -> 1-based line that gives it."""

    @property
    def text_sha256(self) -> str:
        """Digest of what the step asks for.

        Its number, title, box, size and dependencies are left out: renumbering, renaming or ticking it off does not
        change the work.
        """
        asked = [self.files, self.tests, self.criteria, self.kind, self.description]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()

    def line_of(self, name: str) -> int:
        """The line that gives the field ``name``, or the step's heading if none does."""
        return self.key_lines.get(name, self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a spec is to be met."""

    title: str
    overview: str = ""
    steps: tuple[Step, ...] = ()
    """In the order of the file."""
    risks: str = ""
    source: str | None = field(default=None, compare=False, repr=False)
    """The text it was read from, byte for byte; None in a plan made in code."""

    def step(self, number: int) -> Step | None:
        """The first step of this number."""
        return next((step for step in self.steps if step.number == number), None)


def problems(plan: Plan, *, criteria: Sequence[str]) -> tuple[Problem, ...]:
    """Everything that must be mended before the plan is carried out, by line.

    ``criteria``: the ids of the spec's acceptance criteria.
    """
    if not plan.steps:
        return (Problem(line=0, message="the plan has no steps", hint="write `### Step 1: what to do`"),)
    found = [
        *_duplicates(plan),
        *_dependency_problems(plan),
        *_criteria_problems(plan, criteria),
        *(problem for step in plan.steps for problem in _step_problems(step)),
    ]
    return tuple(sorted(found, key=lambda problem: problem.line))


def warnings(plan: Plan) -> tuple[Problem, ...]:
    """What is odd in the plan but does not stop it, by line."""
    found = [warning for step in plan.steps for warning in _step_warnings(step)]
    if len(plan.steps) > MANY_STEPS:
        message = f"the plan has {len(plan.steps)} steps, more than {MANY_STEPS}"
        found.append(Problem(line=0, message=message, hint="make several tickets of it"))
    return tuple(sorted(found, key=lambda warning: warning.line))


def _step_warnings(step: Step) -> Iterable[Problem]:
    size = step.size.lower()
    if step.size and size not in SIZES:
        yield Problem(
            line=step.line_of("size"),
            message=f"step {step.number} has the unknown size '{step.size}'",
            hint="small, medium and large are known; it is kept as written",
        )
    if size in LARGE:
        yield Problem(
            line=step.line_of("size"),
            message=f"step {step.number} is {size}",
            hint="split it: a step is one failing test or a few, and the code that passes them",
        )
    if len(step.files) > MANY_FILES:
        yield Problem(
            line=step.line_of("files"),
            message=f"step {step.number} names {len(step.files)} files, more than {MANY_FILES}",
            hint="split it",
        )
    if not step.description:
        yield Problem(
            line=step.line,
            message=f"step {step.number} has no description",
            hint="say below its keys what to do, and what to look out for",
        )


def _duplicates(plan: Plan) -> Iterable[Problem]:
    first: dict[int, Step] = {}
    for step in plan.steps:
        if first.setdefault(step.number, step) is not step:
            yield Problem(
                line=step.line,
                message=f"step {step.number} is there twice, first in line {first[step.number].line}",
                hint=f"give '{step.title}' a number of its own, such as {max(s.number for s in plan.steps) + 1}",
            )


def _dependency_problems(plan: Plan) -> Iterable[Problem]:
    numbers = {step.number for step in plan.steps}
    known = ", ".join(str(number) for number in sorted(numbers))
    for step in plan.steps:
        for wanted in step.depends_on:
            if wanted not in numbers:
                yield Problem(
                    line=step.line_of("depends_on"),
                    message=f"step {step.number} depends on step {wanted}, which is not there",
                    hint=f"the steps are {known}",
                )
    cycle = _cycle({step.number: tuple(n for n in step.depends_on if n in numbers) for step in plan.steps})
    if cycle:
        first = next(step for step in plan.steps if step.number == cycle[0])
        yield Problem(
            line=first.line_of("depends_on"),
            message=f"the steps wait for each other: {' -> '.join(str(number) for number in cycle)}",
            hint="remove one of these dependencies",
        )


def _cycle(depends: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """One round trip such as ``(1, 3, 1)``, where 1 depends on 3 and 3 on 1; empty if there is none."""
    waiting = dict(depends)
    while free := [number for number, needs in waiting.items() if not any(need in waiting for need in needs)]:
        for number in free:
            del waiting[number]
    if not waiting:
        return ()
    walk = [next(iter(waiting))]
    while walk.count(walk[-1]) == 1:
        walk.append(next(need for need in waiting[walk[-1]] if need in waiting))
    return tuple(walk[walk.index(walk[-1]) :])


def _criteria_problems(plan: Plan, criteria: Sequence[str]) -> Iterable[Problem]:
    served = {criterion for step in plan.steps for criterion in step.criteria}
    listed = ", ".join(criteria) or "none"
    for step in plan.steps:
        if not step.criteria:
            yield Problem(
                line=step.line,
                message=f"step {step.number} names no acceptance criterion",
                hint=f"write `- Criteria: {criteria[0] if criteria else 'AC-1'}`; the spec has {listed}",
            )
        for criterion in step.criteria:
            if criterion not in criteria:
                yield Problem(
                    line=step.line_of("criteria"),
                    message=f"step {step.number} names the criterion {criterion}, which the spec does not have",
                    hint=f"the spec has {listed}",
                )
    for criterion in criteria:
        if criterion not in served:
            yield Problem(
                line=0,
                message=f"no step serves the criterion {criterion}",
                hint=f"add it to a step: `- Criteria: {criterion}`",
            )


def _step_problems(step: Step) -> Iterable[Problem]:
    if not step.title:
        yield Problem(
            line=step.line,
            message=f"step {step.number} has no title",
            hint=f"write `### Step {step.number}: what to do`",
        )
    if step.kind in TEST_FIRST and not step.tests:
        yield Problem(
            line=step.line_of("tests"),
            message=f"step {step.number} is a {step.kind} step and names no tests",
            hint="write `- Tests: tests/test_it.py::test_name`, or `- Kind: docs` if nothing can be tested",
        )
    for name, paths in (("files", step.files), ("tests", step.tests)):
        for path in paths:
            if is_outside(path.partition("::")[0]):
                yield Problem(
                    line=step.line_of(name),
                    message=f"step {step.number} names {path}, which is outside the project",
                    hint="write a path relative to the project's folder, without `..`",
                )


def is_outside(path: str) -> bool:
    """Whether a path, as a plan writes it, leads out of the project."""
    return _OUTSIDE.match(path) is not None or ".." in re.split(r"[/\\]", path)
