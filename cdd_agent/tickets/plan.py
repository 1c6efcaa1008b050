"""A plan: steps with dependencies, their order, and the rules that it must follow before cdd executes it. Pure.

``plan_markdown`` reads the text of a plan.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal, TypeAlias, get_args

from cdd_agent.errors import Problem

Kind: TypeAlias = Literal["feature", "bug", "refactor", "docs", "chore"]
"""The kind of work of a step. It decides which phases the step goes through."""
KINDS: tuple[Kind, ...] = get_args(Kind)
TEST_FIRST: frozenset[Kind] = frozenset({"feature", "bug"})
"""The kinds that start with a failing test."""
SIZES = frozenset(["xs", "s", "m", "l", "xl", "tiny", "trivial", "small", "medium", "large", "low", "high"])
"""Known sizes in lower case. Any other size is kept, with a warning."""
LARGE = frozenset(["l", "xl", "large", "high"])
"""Sizes of a step that should be split."""
MANY_STEPS = 20
"""A plan with more steps gets a warning."""
MANY_FILES = 8
"""A step with more files gets a warning."""
_KIND_OF_TYPE: dict[str, Kind] = {**{kind: kind for kind in KINDS}, "doc": "docs", "spike": "chore"}
_OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")


def choose_default_kind(ticket_type: str) -> Kind:
    """Return the default kind of the steps of a ticket: a doc ticket has docs steps, and so on."""
    return _KIND_OF_TYPE.get(ticket_type, "feature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One unit of work that ends in a commit."""

    number: int
    """The number in the heading. Unique in a valid plan, but not necessarily ascending."""
    title: str
    done: bool = False
    """Whether the user ticked the box. The state file, not the box, decides what is done."""
    depends_on: tuple[int, ...] = ()
    """Numbers of the steps that must be completed first."""
    files: tuple[str, ...] = ()
    """Paths relative to the project; none if the plan leaves them open."""
    tests: tuple[str, ...] = ()
    """Node ids or paths of test files."""
    criteria: tuple[str, ...] = ()
    """Ids of the acceptance criteria that the step implements."""
    kind: Kind = "feature"
    size: str = ""
    """The author's estimate, unchanged."""
    description: str = ""
    """Markdown without blank lines around it. Line ends are ``\\n``, whatever the file has."""
    line: int = field(default=0, compare=False)
    """1-based line of the heading; 0 in a plan made in code."""
    key_lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Field name -> 1-based line of its key."""

    def line_of(self, name: str) -> int:
        """Return the line of the key ``name``, or the line of the heading if the step does not have it."""
        return self.key_lines.get(name, self.line)

    def problem(self, name: str, message: str, *, hint: str) -> Problem:
        """Return a problem of the key ``name``, or of the heading. ``message`` follows the step's number."""
        return Problem(line=self.line_of(name), message=f"step {self.number} {message}", hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps that implement a spec."""

    title: str
    steps: tuple[Step, ...] = ()
    """In the order of the file."""


def find_problems(plan: Plan, *, criteria: Sequence[str]) -> tuple[Problem, ...]:
    """Return every broken rule, by line, if the spec has ``criteria`` with these ids; the plan cannot be executed."""
    if not plan.steps:
        return (Problem(line=0, message="the plan has no steps", hint="write `### Step 1: what to do`"),)
    problems = [
        *_check_numbers(plan),
        *_check_dependencies(plan),
        *_check_criteria(plan, criteria),
        *(problem for step in plan.steps for problem in _check_step(step)),
    ]
    return tuple(sorted(problems, key=lambda problem: problem.line))


def find_warnings(plan: Plan) -> tuple[Problem, ...]:
    """Return every peculiarity that does not stop the plan, by line."""
    warnings = [warning for step in plan.steps for warning in _check_peculiarities(step)]
    if len(plan.steps) > MANY_STEPS:
        message = f"the plan has {len(plan.steps)} steps, more than {MANY_STEPS}"
        warnings.append(Problem(line=0, message=message, hint="split it into several tickets"))
    return tuple(sorted(warnings, key=lambda warning: warning.line))


def _check_peculiarities(step: Step) -> Iterable[Problem]:
    size = step.size.lower()
    if step.size and size not in SIZES:
        hint = "known sizes are small, medium and large; yours is kept"
        yield step.problem("size", f"has the unknown size '{step.size}'", hint=hint)
    if size in LARGE:
        hint = "split it: a step is one or a few failing tests, and the code that makes them pass"
        yield step.problem("size", f"is {size}", hint=hint)
    if len(step.files) > MANY_FILES:
        yield step.problem("files", f"names {len(step.files)} files, more than {MANY_FILES}", hint="split it")
    if not step.description:
        yield step.problem("", "has no description", hint="describe the work below the keys")


def _check_numbers(plan: Plan) -> Iterable[Problem]:
    first: dict[int, Step] = {}
    for step in plan.steps:
        if first.setdefault(step.number, step) is not step:
            hint = f"give '{step.title}' another number, such as {max(s.number for s in plan.steps) + 1}"
            yield step.problem("", f"exists twice, first in line {first[step.number].line}", hint=hint)


def _check_dependencies(plan: Plan) -> Iterable[Problem]:
    numbers = {step.number for step in plan.steps}
    known = ", ".join(str(number) for number in sorted(numbers))
    for step in plan.steps:
        for wanted in step.depends_on:
            if wanted not in numbers:
                message = f"depends on step {wanted}, which does not exist"
                yield step.problem("depends_on", message, hint=f"the steps are {known}")
    try:
        TopologicalSorter({step.number: step.depends_on for step in plan.steps}).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]  # each step depends on the next one
        first = next(step for step in plan.steps if step.number == cycle[0])
        message = f"the steps wait for each other: {' -> '.join(str(number) for number in cycle)}"
        yield Problem(line=first.line_of("depends_on"), message=message, hint="remove one of these dependencies")


def _check_criteria(plan: Plan, criteria: Sequence[str]) -> Iterable[Problem]:
    implemented = {criterion for step in plan.steps for criterion in step.criteria}
    known = ", ".join(criteria) or "none"
    for step in plan.steps:
        if not step.criteria:
            hint = f"write `- Criteria: {criteria[0] if criteria else 'AC-1'}`; the spec has {known}"
            yield step.problem("", "names no acceptance criterion", hint=hint)
        for criterion in step.criteria:
            if criterion not in criteria:
                message = f"names the criterion {criterion}, which the spec does not have"
                yield step.problem("criteria", message, hint=f"the spec has {known}")
    for criterion in criteria:
        if criterion not in implemented:
            message = f"no step implements the criterion {criterion}"
            yield Problem(line=0, message=message, hint=f"add it to a step: `- Criteria: {criterion}`")


def _check_step(step: Step) -> Iterable[Problem]:
    if not step.title:
        yield step.problem("", "has no title", hint=f"write `### Step {step.number}: what to do`")
    if step.kind in TEST_FIRST and not step.tests:
        hint = "write `- Tests: tests/test_it.py::test_name`, or `- Kind: docs` if nothing can be tested"
        yield step.problem("tests", f"is a {step.kind} step and names no tests", hint=hint)
    for name, paths in (("files", step.files), ("tests", step.tests)):
        for path in paths:
            if is_outside(path.partition("::")[0]):
                hint = "write a path relative to the project folder, without `..`"
                yield step.problem(name, f"names {path}, which is outside the project", hint=hint)


def is_outside(path: str) -> bool:
    """Return whether a path in a plan leads out of the project."""
    return _OUTSIDE.match(path) is not None or ".." in re.split(r"[/\\]", path)


def sort_by_dependencies(depends: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Return the number of each step after those it depends on; steps that wait for each other come last."""
    done: dict[int, None] = {}
    while ready := find_ready(depends, completed=done):
        done[ready[0]] = None
    return (*done, *(number for number in depends if number not in done))


def find_ready(depends: Mapping[int, Collection[int]], *, completed: Collection[int]) -> tuple[int, ...]:
    """Return the steps that are not completed, but whose dependencies are, in the order of the mapping."""
    return tuple(
        number for number, needs in depends.items() if number not in completed and set(needs) <= set(completed)
    )


def find_dependents(depends: Mapping[int, Collection[int]], roots: Iterable[int]) -> tuple[int, ...]:
    """Return all steps that depend on a root, directly or not, in the order of the mapping, without the roots."""
    excluded = set(roots)
    reached = set(excluded)
    while new := {number for number in depends.keys() - reached if not reached.isdisjoint(depends[number])}:
        reached |= new
    return tuple(number for number in depends if number in reached - excluded)
