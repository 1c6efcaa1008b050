"""Steps that are worked out ahead: each in a fork and in its own process, while the run is at an earlier step.

Only the changes of a phase are taken over, with what the checks of its gate found there. The run brings them into its
own files when it reaches the step, and tests them there, so steps land in the order of the plan. Changes that do not
fit any more are made again by the model.

On a cluster, the process works on a copy of the fork, and the fork gets its commits. What the checks found elsewhere
does not count. A process there also gets a share of what the run may use. The fork's state counts the share as used
until the result says what was: whatever ends a worker or this process, the run never exceeds its limits.
"""

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from cdd_agent.agent.loop import AgentRun
from cdd_agent.clock import Clock
from cdd_agent.config.options import Options
from cdd_agent.config.settings import Settings
from cdd_agent.errors import BudgetSpent, CddError, EnvironmentMissing, UsageError, join_first
from cdd_agent.events import Emit, Notice
from cdd_agent.generation.localize import load_entries
from cdd_agent.git.commits import commit_tree
from cdd_agent.git.fork import Fork, Forks, make_name
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.budget import KINDS, Ceilings
from cdd_agent.runs.jobs import Job, JobPool, JobResult
from cdd_agent.runs.parcels import LOG, Sending, take_result
from cdd_agent.runs.places import locate_run
from cdd_agent.storage import write_atomic
from cdd_agent.tdd.context import Brought, Context, Phase
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.finding import Finding
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution, StepKey, Usage, replace_step
from cdd_agent.work.state_file import load_state, save_state

_SHOWN = 5
_MOST_LOSSES = 3
"""How often a worker may be lost with the job of a step, before the run itself carries the step out."""


FindCommand: TypeAlias = Callable[[Path, int], tuple[str | Path, ...]]
"""Returns the command of cdd that carries out a step in the fork at a folder. Its paths are the folder, and files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgram:
    """How cdd is started for one step of a run."""

    options: Options
    """Those of the run."""
    settings: Settings
    """Those of the run, for a job on another machine."""
    ceilings: Ceilings
    """The limits of the run."""
    sandbox: str
    """The level of the run's sandbox."""
    python: str
    """The interpreter of the tests on another machine; empty: cdd's own."""
    command: FindCommand

    def list_arguments(self, folder: Path, number: int, *, is_remote: bool) -> Iterator[str | Path]:
        """Yield the arguments of cdd that run a step in the project ``folder`` as the run would."""
        options, recording = self.options, self.options.find_recording()
        yield from ("--project", folder)
        # The shell of a worker may choose other ones.
        sandbox, model = (self.sandbox, self.settings.model) if is_remote else (options.sandbox, options.model)
        for option, value in (("--sandbox", sandbox), ("--model", model)):
            if value is not None:
                yield from (option, value)
        if recording is not None:
            yield from ("--replay", Path(os.path.abspath(recording)))
        yield from self.command(folder, number)
        yield from ("--yes", "--anyway", "--jobs", "1" if is_remote else str(options.jobs))
        for path in options.allow_files:
            yield from ("--allow-file", path)


class Ahead:
    """Works out steps of one ticket ahead of the run."""

    def __init__(
        self, ticket: Ticket, *, forks: Forks, clock: Clock, emit: Emit, program: StepProgram, jobs: JobPool
    ) -> None:
        """The processes that ``jobs`` starts run ``program``.

        With the run itself, these are more steps than agents may work at once: the tests of one run meanwhile.
        """
        self._ticket = ticket
        self._forks = forks
        self._clock = clock
        self._emit = emit
        self._program = program
        self._jobs = jobs
        self._begun: dict[int, JobResult | None] = {}
        """Steps whose job was submitted -> how it ended; None: it has not been seen to end."""
        self._used = Usage()
        """The usage of the run."""
        self._lost: dict[int, Usage] = {}
        """Step -> the shares that were lost with earlier jobs; the state of its fork counts that of the job, too."""
        self._losses: Counter[int] = Counter()
        """How often a worker was lost with the job of a step."""
        self._found: StepExecution | None = None
        """The step that was taken, from the state of its fork, while its changes fit."""

    @property
    def takes_present(self) -> bool:
        """Whether a job also works out the step that the run is at."""
        return self._jobs.is_remote

    def begin(self, steps: Iterable[StepKey], state: RunState, *, base: CommitId) -> None:
        """Start processes for the first of ``steps``, which are ready to run on ``base``, until there are enough."""
        self._used = state.usage
        for step in steps:
            if step.number in self._begun:
                continue
            if not self._jobs.has_room:
                return
            try:
                self._start(step, state, base=base)
            except EnvironmentMissing:  # no scheduler, no worker: the user asked for them
                raise
            except CddError as error:
                self._emit(Notice(text=f"Step {step.number} waits for its turn. {error.happened}"))

    def _start(self, step: StepKey, state: RunState, *, base: CommitId) -> None:
        fork, used = self._find(step.number), Usage()
        known = None if fork is None else self._load_step(fork)
        if fork is not None and known is not None:
            is_gone = not self._forks.find_project(fork).is_dir()
            has_ended = known.status in (Status.COMPLETED, Status.FAILED)
            # A process here may have begun the step, and its files are not sent.
            is_underway = self._jobs.is_remote and not has_ended and known.status != Status.PENDING
            if is_gone or is_underway or known.text_sha256 != step.text_sha256:
                used = known.usage if self._jobs.is_remote else used
                self._drop(fork)
                fork = None
            elif has_ended:
                return
        if fork is None:
            fork = self._make_fork(step, state, base=base, used=used)
        self._submit(fork)
        self._emit(Notice(text=f"Step {step.number} is worked out meanwhile, in the fork {fork.name}."))

    def _submit(self, fork: Fork) -> None:
        folder, number, is_remote = self._forks.find_project(fork), fork.step, self._jobs.is_remote
        arguments = tuple(self._program.list_arguments(folder, number, is_remote=is_remote))
        parcel = self._pack(fork, arguments) if is_remote else b""
        log = self._log_path(number)
        try:
            self._jobs.submit(Job(number=number, folder=folder, arguments=arguments, log=log, parcel=parcel))
        except EnvironmentMissing:  # no worker is left, so nothing was sent
            if is_remote:
                self._return_share(fork)
            raise
        self._begun[number] = None

    def _pack(self, fork: Fork, arguments: tuple[str | Path, ...]) -> bytes:
        """Return the parcel of a step, with its share of the limits, which the fork's state counts as used."""
        ticket, repository = self._ticket_in(fork), self._forks.repository
        state = load_state(ticket.state_path)
        assert state is not None
        share, step = self._plan_share(), state.execution(fork.step)
        # The meter of the job continues from what the run has used.
        limits = {f"max_{kind}_per_ticket": share[kind] + _measure(self._used, kind) for kind in share}
        sending = Sending(
            repository=repository,
            head=CommitId(fork.base),
            project=PurePosixPath(self._forks.project.relative_to(repository.root.resolve())),
            folder=self._forks.find_project(fork),
            ticket=ticket,
            state=replace_step(replace(state, usage=self._used), replace(step, usage=Usage())),
            settings=replace(self._program.settings, **limits),  # type: ignore[arg-type]
            arguments=arguments,
            python=self._program.python,
        )
        parcel, usd = sending.pack(), share.get("usd", 0.0)
        reserved, self._lost[fork.step] = Usage(), step.usage
        if self._program.options.find_recording() is None:  # which costs nothing
            reserved = Usage(
                input_tokens=int(share.get("tokens", 0)),
                calls=int(share.get("calls", 0)),
                minutes=share.get("minutes", 0.0),
                cost_usd=usd or None,
                known_usd=usd,
            )
        save_state(ticket.state_path, replace_step(state, replace(step, usage=step.usage + reserved)))
        return parcel

    def _return_share(self, fork: Fork) -> None:
        """Let the fork's state count what it did before its job was packed."""
        path = self._ticket_in(fork).state_path
        state = load_state(path)
        assert state is not None
        step = replace(state.execution(fork.step), usage=self._lost.pop(fork.step))
        save_state(path, replace_step(state, step))

    def _plan_share(self) -> dict[str, float]:
        """Return the limits of a job, by kind: its part of what nobody has used, or may be using."""
        ceilings, total = self._program.ceilings, self._used + self.measure_reserved()
        parts = max(1, self._jobs.most - len(self._jobs.running)) + 1  # the run itself gets a part, too
        shares: dict[str, float] = {}
        for kind in KINDS:
            if not (limit := getattr(ceilings.ticket, kind)):
                continue
            share = min((limit - _measure(total, kind)) / parts, getattr(ceilings.step, kind) or limit)
            shares[kind] = int(share) if isinstance(limit, int) else share
            if shares[kind] <= 0:
                raise BudgetSpent(f"No {kind} are left for it.", hint=f"raise max_{kind}_per_ticket")
        return shares

    def measure_reserved(self, *, without: int | None = None) -> Usage:
        """Return what jobs have used, or may be using, whose steps the run has not reached; ``without``: this step's.

        A share that was lost, in this process or an earlier one, counts as used.
        """
        mine = (
            fork for fork in self._forks.list_all() if (fork.ticket, fork.is_abandoned) == (self._ticket.slug, False)
        )
        ahead = (fork for fork in mine if fork.direction == _direction(fork.step) and fork.step != without)
        return sum((self._load_step(fork).usage for fork in ahead), start=Usage())

    def _make_fork(self, step: StepKey, state: RunState, *, base: CommitId, used: Usage) -> Fork:
        fork = Fork(
            name=make_name(f"{self._ticket.slug} step {step.number}", self._clock.now()),
            ticket=self._ticket.slug,
            step=step.number,
            direction=_direction(step.number),
            base=base,
            parent=state.branch or "",
        )
        self._forks.create(fork)
        ticket = self._ticket_in(fork)
        ticket.folder.mkdir(parents=True, exist_ok=True)
        for path in (self._ticket.spec_path, self._ticket.plan_path) if ticket.has_documents else ():
            shutil.copyfile(path, ticket.folder / path.name)
        for number in state.numbers(Status.IN_PROGRESS):
            known = state.execution(number)
            fresh = StepExecution(step_number=number, title=known.title, text_sha256=known.text_sha256)
            state = replace_step(state, fresh)
        # Only its own usage is added later.
        state = replace_step(state, replace(state.execution(step.number), usage=used))
        save_state(ticket.state_path, replace(state, current_step=None, branch=fork.branch))
        return fork

    def take(self, number: int) -> Usage:
        """Wait until step ``number`` is worked out, if a process has begun it, and return the usage of that."""
        fork = self._find(number)
        self._found = None
        if fork is None:
            return Usage()
        result = self._wait(number)
        step = self._load_step(fork)
        if step.status == Status.COMPLETED:
            self._found = step
        else:
            died = result.why if result is not None else ""
            why = step.error or f"{died} See {self._log_path(number)}.".lstrip()
            self._emit(Notice(text=f"Step {number} could not be worked out ahead, so it runs now. {why}"))
        return step.usage

    def _wait(self, number: int) -> JobResult | None:
        """Wait for the job of a step, and return its result; None if this process has submitted none."""
        if number in self._begun and self._begun[number] is None:
            if number in self._jobs.running:
                self._emit(Notice(text=f"Waiting for step {number}, which is being worked out."))
            for result in self._jobs.as_completed():
                if not self._take_result(result):
                    continue
                self._begun[result.job.number] = result
                if result.job.number == number:
                    break
        return self._begun.pop(number, None)

    def _take_result(self, result: JobResult) -> bool:
        """Bring what a job has made elsewhere into its fork; return False if the job was lost, and runs again."""
        if not self._jobs.is_remote:
            return True
        number = result.job.number
        fork = self._find(number)
        if fork is None:
            return True
        if result.is_lost:
            self._losses[number] += 1
            again = self._losses[number] < _MOST_LOSSES
            self._emit(Notice(text=f"{result.why} " + self._describe_loss(fork, again=again)))
            if again:
                try:
                    self._submit(fork)
                except BudgetSpent as error:
                    self._emit(Notice(text=f"Step {number} waits for its turn. {error.happened}"))
                    return True
            return not again
        if result.parcel:
            try:
                self._import(fork, result.parcel)
            except CddError as error:
                self._emit(Notice(text=error.happened))
        return True

    def _describe_loss(self, fork: Fork, *, again: bool) -> str:
        used, then = self._load_step(fork).usage, f"Step {fork.step} runs again elsewhere." if again else ""
        if not used.tokens and not used.known_usd:
            return then
        share = f"{used.tokens:,} tokens, {used.known_usd:,.2f} USD"
        return f"Its share ({share}) counts as used, since nobody knows what was. {then}".rstrip()

    def _import(self, fork: Fork, parcel: bytes) -> None:
        ticket, tree = self._ticket_in(fork), self._forks.open(fork)
        state = load_state(ticket.state_path)
        assert state is not None
        step = state.execution(fork.step)
        found = take_result(parcel, known=step, repository=tree, base=CommitId(fork.base))
        used = found.step.usage + self._lost.pop(fork.step)
        save_state(ticket.state_path, replace_step(state, replace(found.step, usage=used)))
        # The tip of the branch keeps the commits, and the files follow, so that the user can read the fork.
        if found.step.commits:
            self._forks.move(fork, CommitId([*found.step.commits.values()][-1]))
        for name, content in found.logs.items():
            path = self._find_reports(fork) / name
            write_atomic(path, content, is_durable=False)
            try:
                load_entries(path)
            except UsageError:  # a later report would read it
                path.unlink()

    def bring(self, number: int, phase: Phase, *, context: Context) -> Brought | None:
        """Bring the changes for a phase of a step into the run's files; return None if there are none that fit."""
        found = self._found
        if found is None or found.step_number != number or not found.commits.get(phase):
            return None
        self.keep_queries(number, context.reports)
        text = next((each.summary for each in reversed(found.attempts) if each.phase == phase), "")
        done = Brought(
            run=AgentRun(end="completed", text=text, turns=0, calls=0, usage=Usage()),
            evidence=next(_list_evidence(found, phase), None),
            examples=self._find_examples(number) if phase == "green" else None,
        )
        commit = found.commits[phase]
        if phase != next(name for name, other in found.commits.items() if other == commit):
            return done  # the phase changed nothing, so its note is on the commit of the one before
        repository = context.workplace.tree
        parent = CommitId(repository.objects.require(f"{commit}^").id)
        commit = self._drop_ticket(commit, parent=parent, repository=repository)
        files = context.snapshots.take_unsaved().commit
        merged = repository.merge_trees(
            commit_tree(repository, files, parent=parent, message="the run's files"), commit
        )
        if merged is None:
            self._found = None
            text = f"The work on step {number} does not fit the commits that have landed since, so it is done again."
            self._emit(Notice(text=text))
            return None
        brought = context.snapshots.restore(Snapshot(ref="", commit=CommitId(merged)))
        paths = join_first([change.path for change in brought], most=_SHOWN)
        self._emit(Notice(text=f"Brought in from the fork: {paths}."))
        return done

    def _drop_ticket(self, commit: str, *, parent: CommitId, repository: Repository) -> str:
        """Return a commit without changes of the ticket, whose files the run changes itself, and does not snapshot.

        The last step of a plan is also the end of the ticket, which its spec says.
        """
        if not self._ticket.has_documents:
            return commit
        top = self._forks.repository.root.resolve()
        inside = f"{self._ticket.folder.resolve().relative_to(top)}/"
        changed = [each.path for each in repository.list_changes(parent, commit) if each.path.startswith(inside)]
        if not changed:
            return commit
        tree = repository.edit_tree(commit, {path: repository.objects.find_entry(parent, path) for path in changed})
        return commit_tree(repository, tree, parent=parent, message="without the ticket")

    def add_attempts(self, state: RunState) -> RunState:
        """Return ``state`` with the refused attempts at the step that was taken, before the one that was brought."""
        if self._found is None:
            return state
        step = state.execution(self._found.step_number)
        returned = tuple(replace(each, report=None, checkpoint=None) for each in self._found.returned)
        attempts = list[AttemptRecord]()
        for own in step.attempts:
            before = [each for each in self._found.attempts if each.phase == own.phase and not each.is_open]
            # Their reports and files are in the fork, which goes.
            attempts += [replace(each, report=None, checkpoint=None) for each in before]
            attempts.append(replace(own, number=len(before) + own.number))
        return replace_step(state, replace(step, attempts=tuple(attempts), returned=(*returned, *step.returned)))

    def _find_examples(self, number: int) -> Path | None:
        return next(self._list_reports(number, "*green-examples.json"), None)

    def _list_reports(self, number: int, pattern: str) -> Iterator[Path]:
        """Yield the files among the reports of a step's fork whose name, after the number, fits ``pattern``."""
        fork = self._find(number)
        if fork is not None:
            yield from self._find_reports(fork).glob(f"step-{number}-{pattern}")

    def _find_reports(self, fork: Fork) -> Path:
        return self._forks.find_records(fork).folder / "reports" / self._ticket.slug

    def keep_queries(self, number: int, reports: Path) -> None:
        """Copy the log of where a step's agents looked for faults to ``reports``; the original goes with the fork."""
        for path in self._list_reports(number, f"*{LOG}"):
            write_atomic(reports / path.name, path.read_bytes(), is_durable=False)

    def discard(self, number: int, *, is_landed: bool) -> None:
        """Remove the fork of a step that ends or begins anew; its work stays under a ref unless it has landed."""
        if number in self._begun:
            self._jobs.cancel(number)
            del self._begun[number]
        if (fork := self._find(number)) is not None and self._drop(fork) and is_landed and self._found is not None:
            self._forks.forget(fork)
        self._found = None

    def close(self) -> None:
        """End the processes; a later run continues them."""
        self._jobs.cancel()
        self._begun.clear()

    def _log_path(self, number: int) -> Path:
        reports = find_records(self._forks.project).folder / "reports" / self._ticket.slug
        return reports / f"step-{number}-ahead.log"

    def _drop(self, fork: Fork) -> bool:
        try:
            self._forks.drop(fork)
        except CddError as error:
            self._emit(Notice(text=f"The fork {fork.name} is left. {error.happened}"))
            return False
        return True

    def _find(self, number: int) -> Fork | None:
        mine = (self._ticket.slug, number, _direction(number), False)
        known = self._forks.list_all()
        return next((f for f in known if (f.ticket, f.step, f.direction, f.is_abandoned) == mine), None)

    def _ticket_in(self, fork: Fork) -> Ticket:
        if not self._ticket.has_documents:
            return locate_run(self._forks.find_project(fork), self._ticket.slug)
        inside = self._ticket.folder.resolve().relative_to(self._forks.project)
        return replace(self._ticket, folder=self._forks.find_project(fork) / inside)

    def _load_step(self, fork: Fork) -> StepExecution:
        """Return the step as the fork's state has it; one that has not begun if the state is lost or damaged."""
        state = None
        with contextlib.suppress(CddError):
            state = load_state(self._ticket_in(fork).state_path)
        fresh = StepExecution(step_number=fork.step, title="", text_sha256="")
        return fresh if state is None else state.step_executions.get(fork.step, fresh)


def _direction(number: int) -> str:
    return f"step {number} of the plan, ahead of the run"


def _list_evidence(step: StepExecution, phase: Phase) -> Iterator[tuple[Finding, ...]]:
    """Yield the findings of the checks of a phase whose gate opened here: an attempt elsewhere has no report."""
    yield from (each.evidence for each in step.attempts if each.phase == phase and each.is_open and each.report)


def _measure(usage: Usage, kind: str) -> float:
    return {"tokens": usage.tokens, "usd": usage.known_usd, "calls": usage.calls, "minutes": usage.minutes}[kind]
