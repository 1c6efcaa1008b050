"""Steps that are worked out ahead: each in a fork and in its own process, while the run is at an earlier step.

Only the changes of a phase are taken over, with what the checks of its gate found there. The run brings them into its
own files when it reaches the step, and tests them there, so steps land in the order of the plan. Changes that do not
fit any more are made again by the model.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from cdd_agent.agent.loop import AgentRun
from cdd_agent.clock import Clock
from cdd_agent.config.options import Options
from cdd_agent.errors import CddError, join_first
from cdd_agent.events import Emit, Notice
from cdd_agent.git.commits import commit_tree
from cdd_agent.git.fork import Fork, Forks, make_name
from cdd_agent.git.repository import CommitId
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.runs.jobs import Job, JobResult, Jobs
from cdd_agent.runs.places import locate_run
from cdd_agent.tdd.context import Brought, Context, Phase
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution, StepKey, Usage, replace_step
from cdd_agent.work.state_file import load_state, save_state

_SHOWN = 5


FindCommand: TypeAlias = Callable[[Path, int], tuple[str, ...]]
"""Returns the command of cdd that carries out a step in the fork at a folder."""


class Ahead:
    """Works out steps of one ticket ahead of the run."""

    def __init__(
        self, ticket: Ticket, *, forks: Forks, options: Options, clock: Clock, emit: Emit, command: FindCommand
    ) -> None:
        """``options`` are those of the run. It may have ``options.jobs`` processes.

        With the run itself, these are more steps than agents may work at once: the tests of one run meanwhile.
        """
        self._ticket = ticket
        self._forks = forks
        self._options = options
        self._clock = clock
        self._emit = emit
        self._command = command
        self._jobs = Jobs(most=options.jobs, key=options.key)
        self._begun: dict[int, JobResult | None] = {}
        """Steps whose job was submitted -> how it ended; None: it has not been seen to end."""
        self._found: StepExecution | None = None
        """The step that was taken, from the state of its fork, while its changes fit."""

    def begin(self, steps: Iterable[StepKey], state: RunState, *, base: CommitId) -> None:
        """Start processes for the first of ``steps``, which are ready to run on ``base``, until there are enough."""
        for step in steps:
            if step.number in self._begun:
                continue
            if self._options.jobs == 1 or not self._jobs.has_room:
                return
            try:
                self._start(step, state, base=base)
            except CddError as error:
                self._emit(Notice(text=f"Step {step.number} waits for its turn. {error.happened}"))

    def _start(self, step: StepKey, state: RunState, *, base: CommitId) -> None:
        fork = self._find(step.number)
        is_gone = fork is not None and not self._forks.find_project(fork).is_dir()
        if fork is not None and (is_gone or self._load_step(fork).text_sha256 != step.text_sha256):
            self._drop(fork)
            fork = None
        if fork is None:
            fork = self._make_fork(step, state, base=base)
        elif self._load_step(fork).status in (Status.COMPLETED, Status.FAILED):
            return
        folder, number = self._forks.find_project(fork), step.number
        arguments = tuple(self._list_arguments(folder, number))
        self._jobs.submit(Job(number=number, folder=folder, arguments=arguments, log=self._log_path(number)))
        self._begun[number] = None
        self._emit(Notice(text=f"Step {step.number} is worked out meanwhile, in the fork {fork.name}."))

    def _list_arguments(self, folder: Path, number: int) -> Iterator[str]:
        """Yield the arguments of cdd that run a step in the project ``folder`` as this run would."""
        recording = self._options.find_recording()
        yield from ("--project", str(folder))
        chosen = {"--sandbox": self._options.sandbox, "--model": self._options.model, "--replay": recording}
        for option, value in chosen.items():
            if value is not None:
                yield from (option, os.path.abspath(value) if value is recording else str(value))
        yield from self._command(folder, number)
        yield from ("--yes", "--anyway", "--jobs", str(self._options.jobs))
        for path in self._options.allow_files:
            yield from ("--allow-file", path)

    def _make_fork(self, step: StepKey, state: RunState, *, base: CommitId) -> Fork:
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
        state = replace_step(state, replace(state.execution(step.number), usage=Usage()))  # only its own is added later
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
                self._begun[result.job.number] = result
                if result.job.number == number:
                    break
        return self._begun.pop(number, None)

    def bring(self, number: int, phase: Phase, *, context: Context) -> Brought | None:
        """Bring the changes for a phase of a step into the run's files; return None if there are none that fit."""
        found = self._found
        if found is None or found.step_number != number or not found.commits.get(phase):
            return None
        text = next((each.summary for each in reversed(found.attempts) if each.phase == phase), "")
        done = Brought(
            run=AgentRun(end="completed", text=text, turns=0, calls=0, usage=Usage()),
            evidence=next((each.evidence for each in found.attempts if each.phase == phase and each.is_open), None),
            examples=self._find_examples(number) if phase == "green" else None,
        )
        commit = found.commits[phase]
        if phase != next(name for name, other in found.commits.items() if other == commit):
            return done  # the phase changed nothing, so its note is on the commit of the one before
        repository = context.workplace.tree
        parent = CommitId(repository.objects.require(f"{commit}^").id)
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
        fork = self._find(number)
        if fork is None:
            return None
        reports = self._forks.find_records(fork).folder / "reports" / self._ticket.slug
        return next(reports.glob(f"step-{number}-*green-examples.json"), None)

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
