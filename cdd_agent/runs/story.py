"""The story of a ticket: what its runs did and when, with evidence, changes, comments and cost. Read from its files."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from cdd_agent import events
from cdd_agent.errors import CddError, UsageError
from cdd_agent.generation.generation_report import GRAPH, MOST_CHECKPOINT_BYTES, read_metrics
from cdd_agent.generation.metrics import Metric
from cdd_agent.git.fork import Forks
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.model.budget import read_ticket_usage
from cdd_agent.review import Anchors, Comment, Comments, Place, Side
from cdd_agent.runs.fork import arrange
from cdd_agent.runs.review import StepToReview, load_completed_steps, load_earlier_landing
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd.phase_task import needs_no_test
from cdd_agent.tdd.step import load_report
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.finding import Finding
from cdd_agent.work.journal import dropped_journal_path, journal_path, read_timed
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepExecution, Usage
from cdd_agent.work.state_file import load_state
from pytest_tdd_agent.report import Reason

_MOST_TESTS = 15
_CONVERSATIONS: Mapping[str, str] = {"socrates": "spec", "planner": "plan"}
"""Agent -> the phase before the first step to which its turns belong."""


_ELSEWHERE = "not in this journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The cost of one or more attempts."""

    usage: Usage = field(default_factory=Usage)
    tests_s: float = 0.0
    """Duration of all test runs."""
    duration_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        """Add two costs."""
        return Spent(
            usage=self.usage + other.usage,
            tests_s=self.tests_s + other.tests_s,
            duration_s=self.duration_s + other.duration_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAttempt:
    """One attempt at a phase, as the journal tells of it."""

    step: int
    phase: str
    number: int
    started: str
    run: int = 1
    """The run of the step."""
    ended: str = ""
    """Empty if it was interrupted, like the next one."""
    is_open: bool | None = None
    is_expected: bool = False
    """Whether it was closed because an iteration asks for no new behavior."""
    reasons: tuple[Reason, ...] = ()
    evidence: str = ""
    findings: tuple[Finding, ...] = ()
    """The findings of the checks after the gate."""
    spent: Spent = field(default_factory=Spent)
    commit: str = ""

    @property
    def name(self) -> str:
        """Step, phase and number in words."""
        return f"step {self.step}, {self.phase.upper()}, attempt {self.number}"

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        if self.is_expected:
            return "not needed"
        if self.is_open is None:
            return "interrupted"
        return "open" if self.is_open else "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """The first run of a step, or an iteration."""

    number: int
    guidance: str = ""
    """The user's words that it began with."""
    attempts: tuple[JudgedAttempt, ...] = ()
    landed: StepToReview | None = None
    """Its commits, evidence and changes; None if it landed nothing, or if its commits no longer exist."""

    @property
    def heading(self) -> str:
        """Number and words of an iteration; empty for the first run."""
        words = " ".join(self.guidance.split())
        return "" if self.number == 1 else f"Iteration {self.number - 1}{': ' if words else ''}{words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStory:
    """What happened to one step."""

    execution: StepExecution
    depends_on: tuple[int, ...] = ()
    criteria: tuple[str, ...] = ()
    runs: tuple[StepRun, ...] = ()
    """Oldest first."""
    comments: tuple[Comment, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    """Id of a comment -> its lines in the last changes of the step; outdated comments are missing."""

    @property
    def attempts(self) -> tuple[JudgedAttempt, ...]:
        """The attempts of all runs."""
        return tuple(each for run in self.runs for each in run.attempts)

    @property
    def changed(self) -> frozenset[str]:
        """The paths that any run changed."""
        earlier = (file.path for run in self.runs[:-1] if run.landed for file in run.landed.files)
        return frozenset((*self.execution.files, *earlier))


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that a report shows."""

    ticket: str
    folder: str
    """The ticket's folder, relative to the work tree."""
    title: str
    description: str
    criteria: Mapping[str, str]
    """Id -> text."""
    state: RunState
    steps: tuple[StepStory, ...]
    usage: Usage
    """Everything that the ticket used, as ``cdd status`` shows it."""
    phases: Mapping[str, Spent]
    """Phase -> the sum of its attempts; ``spec`` and ``plan`` come first, the part that is not in the journal last."""
    fork_costs: Mapping[str, Spent]
    """``NAME, STATUS`` of a fork that is not merged -> its cost, which ``usage`` does not contain."""
    slowest_tests: tuple[tuple[str, float], ...]
    """Node id and seconds of the slowest tests in the last report."""
    forks: tuple[tuple[int, str], ...] = ()
    """Depth and text of each fork, below the branches that they were made from."""
    metrics: tuple[Metric, ...] = ()
    """Of a generation, as its last report has them."""
    problems: tuple[str, ...] = ()
    """The missing parts of the report, with reasons."""

    @property
    def attempts(self) -> tuple[JudgedAttempt, ...]:
        """The attempts at all steps in order of time."""
        return tuple(sorted((each for step in self.steps for each in step.attempts), key=lambda each: each.started))

    @property
    def files(self) -> frozenset[str]:
        """The changed paths, without the documents of the ticket."""
        changed = {path for step in self.steps for path in step.changed}
        return frozenset(path for path in changed if not path.startswith(f"{self.folder}/"))

    @property
    def spent(self) -> Spent:
        """The sum over all phases."""
        return replace(sum(self.phases.values(), Spent()), usage=self.usage)


def _read_forks(
    ticket: str, forks: Forks, *, project: Path
) -> tuple[tuple[tuple[int, str], ...], dict[str, Spent], tuple[str, ...]]:
    """Return depth and text of the forks of a ticket and of their branches, what each has cost, and problems."""
    known = tuple(each for each in forks.list_all() if each.ticket == ticket)
    statuses = forks.find_statuses(known) if known else {}
    rows, costs, problems = list[tuple[int, str]](), dict[str, Spent](), list[str]()
    for each, depth in arrange(known):
        rows.append((depth, each if isinstance(each, str) else f"{each.name} {statuses[each.name]}: {each.direction}"))
        if isinstance(each, str) or forks.find_project(each) == project:
            continue
        kept = dropped_journal_path(forks.project, ticket, fork=each.name)
        journal = _JournalReader()
        try:
            path = kept if each.is_abandoned else forks.find_records(each).locate_journal(ticket)
            journal.read(read_timed(path))
        except ValueError as error:
            problems.append(f"The journal of the fork {each.name} is damaged, so its cost is incomplete: {error}.")
        if statuses[each.name] != "merged" and (spent := _sum_phases(journal)):
            costs[f"{each.name}, {statuses[each.name]}"] = sum(spent.values(), Spent())
    return tuple(rows), costs, tuple(problems)


def load_story(ticket: Ticket, *, project: Path, comments: Comments, forks: Forks | None = None) -> Story:
    """Read the story of a ticket. Raises ``UsageError`` if it has not been carried out, or a file is damaged."""
    state = load_state(ticket.state_path)
    if state is None:
        hint = f"cdd exec {ticket.slug}" if ticket.has_documents else "cdd status"
        raise UsageError(f"{ticket.slug} has not been carried out yet, so there is nothing to report.", hint=hint)
    about = spec.load(ticket.spec_path) if ticket.has_documents else spec.Spec(title=_name_run(state))
    problems: list[str] = []
    landed: dict[int, StepToReview] = {}
    try:
        completed = load_completed_steps(ticket, comments.repository, project=project)
        landed = {step.number: step for step in completed}
    except UsageError as error:
        problems.append(f"No changes are shown. {error.happened}")
    planned = {}
    with suppress(UsageError):  # the state has the steps, too; a run without a ticket has no plan
        planned = {step.number: step for step in plan_markdown.load(ticket.plan_path).steps}
    journal = _JournalReader()
    try:
        journal.read(read_timed(journal_path(project, ticket.slug)))
    except ValueError as error:
        problems.append(f"The journal is damaged, so times and costs are incomplete: {error}.")
    if not journal.attempts:
        problems.append("The journal of this ticket is not on this machine: times and costs are missing.")

    def load(commits: Sequence[CommitId], last: StepToReview) -> StepToReview:
        return load_earlier_landing(last, commits, repository=comments.repository, project=project)

    steps = []
    for number, execution in state.step_executions.items():
        own = comments.list_of_step(ticket.slug, number)
        step = planned.get(number)
        steps.append(
            StepStory(
                execution=execution,
                depends_on=step.depends_on if step else (),
                criteria=step.criteria if step else (),
                runs=tuple(_arrange_runs(journal, execution, landed=landed.get(number), load=load)),
                comments=own,
                places=_place_comments(own, landed.get(number), repository=comments.repository),
            )
        )
    forked = _read_forks(ticket.slug, forks, project=project) if forks else ((), {}, ())
    return Story(
        ticket=ticket.slug,
        folder=os.path.relpath(ticket.folder.resolve(), comments.repository.root.resolve()),
        title=about.title,
        description=about.description,
        criteria={each.id: each.text for each in about.acceptance_criteria},
        state=state,
        steps=tuple(steps),
        usage=(used := read_ticket_usage(state, journal_path(project, ticket.slug))),
        phases=_add_rest(_sum_phases(journal), used),
        fork_costs=forked[1],
        forks=forked[0],
        metrics=load_metrics(project) if state.makes_project else (),
        slowest_tests=_list_slowest(state, root=find_records(project).folder),
        problems=(*problems, *forked[2]),
    )


def load_metrics(project: Path) -> tuple[Metric, ...]:
    """Return the measures of the last report of the generation in ``project``; none if there are none."""
    with suppress(OSError):
        return read_metrics(read_ordinary(project / GRAPH, limit_bytes=MOST_CHECKPOINT_BYTES))
    return ()


def _name_run(state: RunState) -> str:
    return state.origin.title if state.origin is not None else state.ticket_slug


def _place_comments(
    comments: Iterable[Comment], landed: StepToReview | None, *, repository: Repository
) -> dict[str, Place]:
    if landed is None or not landed.commits:
        return {}
    anchors: dict[Side, Anchors] = {"new": Anchors(repository, landed.commits[-1].commit)}
    if landed.base:
        anchors["old"] = Anchors(repository, landed.base)
    found = {each.id: anchors[each.side].find(each) for each in comments if each.side in anchors}
    return {name: place for name, place in found.items() if place is not None}


_LoadLanding: TypeAlias = Callable[[Sequence[CommitId], StepToReview], StepToReview]


def _arrange_runs(
    journal: "_JournalReader", execution: StepExecution, *, landed: StepToReview | None, load: _LoadLanding
) -> Iterator[StepRun]:
    """Yield the runs of a step; ``landed`` is the last that landed, ``load`` returns an earlier one by its commits."""
    step = execution.step_number
    landings = journal.landings.get(step, [])
    runs: dict[int, list[JudgedAttempt]] = {}
    for each in _complete([each for each in journal.attempts if each.step == step], execution):
        runs.setdefault(each.run, []).append(each)
    # After an iteration that was refused, the last landing is an earlier run's.
    recent = {each.commit for each in landed.commits} if landed else set[CommitId]()
    last = next((n for n, made in enumerate(landings, start=1) if not recent.isdisjoint(made)), max(runs, default=1))
    for number in sorted({*runs, last}):
        found = landed if number == last else None
        if landed is not None and number < last and landings[number - 1]:
            with suppress(CddError):  # its commits are gone
                found = load(landings[number - 1], landed)
        guidance = journal.guidance.get((step, number), "")
        yield StepRun(number=number, guidance=guidance, attempts=_add_noted(runs.get(number, ()), found), landed=found)


def _add_noted(attempts: Iterable[JudgedAttempt], landed: StepToReview | None) -> tuple[JudgedAttempt, ...]:
    """Return the attempts, with the findings of their notes where the state has none."""
    commits = landed.commits if landed else ()
    noted: dict[tuple[str, str], tuple[Finding, ...]] = {
        (made.commit, each.phase): each.findings for made in commits for each in made.evidence
    }
    return tuple(replace(each, findings=each.findings or noted.get((each.commit, each.phase), ())) for each in attempts)


def _complete(made: list[JudgedAttempt], execution: StepExecution) -> Iterator[JudgedAttempt]:
    """Yield the attempts with what only the state knows; without a journal, those of the state."""
    findings: dict[tuple[str, int], tuple[Finding, ...]] = {
        (each.phase, each.number): each.evidence for each in execution.attempts
    }
    if made:
        last = {(each.phase, each.number): each for each in made if each.run == made[-1].run}
        for each in made:
            key = (each.phase, each.number)
            yield replace(each, findings=findings.get(key, ())) if last.get(key) is each else each
        return
    for record in execution.attempts:
        yield JudgedAttempt(
            step=execution.step_number,
            phase=record.phase,
            number=record.number,
            started="",
            is_open=record.is_open,
            is_expected=needs_no_test(record, execution),
            reasons=record.reasons,
            findings=record.evidence,
        )


@dataclass(slots=True)
class _JournalReader:
    """Collects the attempts of a journal."""

    attempts: list[JudgedAttempt] = field(default_factory=list)
    others: dict[str, Spent] = field(default_factory=dict[str, Spent])
    """Phase -> what was spent outside of attempts."""
    guidance: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """Step and run -> the words that the run began with."""
    landings: dict[int, list[list[CommitId]]] = field(default_factory=dict[int, list[list[CommitId]]])
    """Step -> the commits of each run that completed it."""
    step: int = 0
    _commits: list[CommitId] = field(default_factory=list[CommitId])
    """Those of the step that is at work."""
    _is_at_work: bool = False

    def read(self, lines: Iterable[tuple[str, events.Event]]) -> None:
        for time, event in lines:
            self._add(time, event)

    def _add(self, time: str, event: events.Event) -> None:
        match event:
            case events.StepStarted(number=number, guidance=guidance):
                self._enter(number)
                self._is_at_work = False
                self.guidance[number, self._run] = guidance
            case events.StepFinished(status=status):
                if status == "completed":
                    self.landings.setdefault(self.step, []).append(self._commits)
                self._commits = []
            case events.AttemptStarted(phase=phase, number=number):
                self._enter(event.step or self.step)  # PLAN is before the start of its cycle
                attempt = JudgedAttempt(step=self.step, phase=phase, number=number, started=time, run=self._run)
                self.attempts.append(attempt)
                self._is_at_work = True
            case events.TurnEnded() | events.AnswerLost():
                agent = event.agent if isinstance(event, events.TurnEnded) else ""
                self._spend(Spent(usage=_count(event)), agent=agent)
            case events.SuiteFinished(duration_s=duration):
                self._spend(Spent(tests_s=duration))
            case events.GateJudged(open=is_open, reasons=reasons, evidence=evidence) if self._is_at_work:
                last = self.attempts[-1]
                self.attempts[-1] = replace(
                    last,
                    ended=time,
                    is_open=is_open,
                    is_expected=event.is_expected,
                    reasons=reasons,
                    evidence=evidence,
                    spent=last.spent + Spent(duration_s=_measure(last.started, time)),
                )
                self._is_at_work = False
            case events.Committed(phase=phase, commit=commit) if self.attempts and self.attempts[-1].phase == phase:
                self.attempts[-1] = replace(self.attempts[-1], commit=commit)
                self._commits.append(CommitId(commit))

    def _enter(self, step: int) -> None:
        if step != self.step:
            self.step, self._commits = step, []

    @property
    def _run(self) -> int:
        """The number of the run of the step that is at work."""
        return len(self.landings.get(self.step, ())) + 1

    def _spend(self, spent: Spent, *, agent: str = "") -> None:
        if self._is_at_work and agent not in _CONVERSATIONS:
            self.attempts[-1] = replace(self.attempts[-1], spent=self.attempts[-1].spent + spent)
            return
        phase: str = _CONVERSATIONS.get(agent, "between attempts")
        self.others[phase] = self.others.get(phase, Spent()) + spent


def _count(event: events.TurnEnded | events.AnswerLost) -> Usage:
    return Usage(
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cache_read_tokens=event.cache_read_tokens,
        cache_write_tokens=event.cache_write_tokens,
        calls=1,
        cost_usd=event.cost_usd,
        known_usd=event.cost_usd or 0.0,
    )


def _measure(started: str, ended: str) -> float:
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _sum_phases(journal: _JournalReader) -> dict[str, Spent]:
    phases: dict[str, Spent] = {name: journal.others[name] for name in ("spec", "plan") if name in journal.others}
    for each in journal.attempts:
        phases[each.phase] = phases.get(each.phase, Spent()) + each.spent
    rest = {name: spent for name, spent in journal.others.items() if name not in phases}
    return phases | rest


def _add_rest(phases: dict[str, Spent], used: Usage) -> dict[str, Spent]:
    """Return the phases, and what the ticket used beyond: by processes with other journals, as ``--jobs`` starts."""
    rest = used - sum(phases.values(), Spent()).usage
    return phases | ({_ELSEWHERE: Spent(usage=rest)} if rest.tokens > 0 else {})


def _list_slowest(state: RunState, *, root: Path) -> tuple[tuple[str, float], ...]:
    attempts = [each for step in state.step_executions.values() for each in step.attempts if each.report]
    report = load_report(attempts[-1], root=root) if attempts else None
    durations = [(case.nodeid, case.duration_s) for case in report.tests] if report else []
    return tuple(sorted(durations, key=lambda each: -each[1])[:_MOST_TESTS])
