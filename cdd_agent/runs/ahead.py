"""Steps that are worked out ahead: each in a fork, by a separate process, while the run is at an earlier step.

Only the changes of a phase are taken over, with what the checks of its gate found there. The run brings them into its
own files when it reaches the step, and tests them there, so steps land in the order of the plan. Changes that do not
fit any more are made again by the model.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cdd_agent.agent.loop import AgentRun
from cdd_agent.clock import Clock
from cdd_agent.config.options import Options
from cdd_agent.errors import CddError, join_first
from cdd_agent.events import Emit, Notice
from cdd_agent.git.commits import commit_tree
from cdd_agent.git.fork import Fork, Forks, make_name
from cdd_agent.git.repository import CommitId
from cdd_agent.git.tree_store import Snapshot
from cdd_agent.model.conversation import Model, Request, Turn
from cdd_agent.storage import hold
from cdd_agent.tdd.context import Brought, Context, Phase
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted import keys
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, Usage, replace_step
from cdd_agent.work.state_file import load_state, save_state

_SHOWN = 5
_POLL_S = 0.02
_PATIENCE_S = 10.0
"""How long a process may take to save its state after a signal to stop."""
_CHILD = (
    "import os, sys; sys.path[:] = sys.argv[2].split(os.pathsep);"
    "from cdd_agent.sandbox.warden.kernel import end_with_parent; end_with_parent(int(sys.argv[1]));"
    "from cdd_agent.__main__ import main; sys.argv[:3] = ['cdd']; main()"
)


def build_program() -> list[str]:
    """Return the command that runs cdd with the modules of this process, and ends when this process does."""
    # The fork contains the model's code, where the current folder and relative entries of PYTHONPATH lead.
    return [sys.executable, "-I", "-c", _CHILD, str(os.getpid()), os.pathsep.join(map(os.path.abspath, sys.path))]


class SharedModel:
    """A model for several processes, which together make a limited number of requests at the same time.

    While one process runs tests, another one can ask the model, so more steps are under way than requests.
    """

    def __init__(self, inner: Model, *, folder: Path, most: int) -> None:
        """The processes lock files in ``folder``; a lock ends with its process."""
        self.name = inner.name
        self._inner = inner
        self._slots = [folder / f"{number}.lock" for number in range(most)]

    def check(self) -> None:
        """Check the inner model."""
        self._inner.check()

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the model's turn, when it is this process's turn to ask."""
        with self._wait_for_slot():
            return self._inner.reply(request, emit=emit)

    @contextlib.contextmanager
    def _wait_for_slot(self) -> Iterator[None]:
        self._slots[0].parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as lock:
            while True:
                for slot in self._slots:
                    slot.touch()
                    with contextlib.suppress(BlockingIOError):
                        lock.enter_context(hold(slot))
                        break
                else:
                    time.sleep(_POLL_S)
                    continue
                break
            yield


class Ahead:
    """Works out steps of one ticket ahead of the run."""

    def __init__(self, ticket: Ticket, *, forks: Forks, options: Options, clock: Clock, emit: Emit) -> None:
        """``options`` are those of the run. It may have ``options.jobs`` processes.

        With the run itself, these are more steps than agents may work at once: the tests of one run meanwhile.
        """
        self._ticket = ticket
        self._forks = forks
        self._options = options
        self._clock = clock
        self._emit = emit
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._found: StepExecution | None = None
        """The step that was taken, from the state of its fork, while its changes fit."""

    def begin(self, steps: Iterable[StepKey], state: RunState, *, base: CommitId) -> None:
        """Start processes for the first of ``steps``, which are ready to run on ``base``, until there are enough."""
        for step in steps:
            if step.number in self._running:
                continue
            at_work = sum(process.poll() is None for process in self._running.values())
            if at_work >= self._options.jobs or self._options.jobs == 1:
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
        folder = self._forks.find_project(fork)
        key = self._options.key
        log_path = self._log_path(step.number)
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._running[step.number] = subprocess.Popen(
                [*build_program(), *self._list_arguments(folder, step.number)],
                cwd=folder,
                env=os.environ if key is None else {**os.environ, keys.VARIABLE: key.reveal()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal is for the run, which then ends its processes
            )
        self._emit(Notice(text=f"Step {step.number} is worked out meanwhile, in the fork {fork.name}."))

    def _list_arguments(self, folder: Path, number: int) -> Iterator[str]:
        """Yield the arguments of cdd that run a step in the project ``folder`` as this run would."""
        recording = self._options.find_recording()
        yield from ("--project", str(folder))
        chosen = {"--sandbox": self._options.sandbox, "--model": self._options.model, "--replay": recording}
        for option, value in chosen.items():
            if value is not None:
                yield from (option, os.path.abspath(value) if value is recording else str(value))
        yield from ("exec", self._ticket.slug, "--step", str(number), "--yes", "--anyway")
        yield from ("--jobs", str(self._options.jobs))
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
        for path in (self._ticket.spec_path, self._ticket.plan_path):
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
        process, fork = self._running.get(number), self._find(number)
        self._found = None
        if fork is None:
            return Usage()
        if process is not None:
            if process.poll() is None:
                self._emit(Notice(text=f"Waiting for step {number}, which is being worked out."))
            process.wait()
            del self._running[number]  # not before: an interrupted wait must not leave the process behind
        step = self._load_step(fork)
        if step.status == Status.COMPLETED:
            self._found = step
        else:
            why = f" {step.error}" if step.error else f" See {self._log_path(number)}."
            self._emit(Notice(text=f"Step {number} could not be worked out ahead, so it runs now.{why}"))
        return step.usage

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

    def _find_examples(self, number: int) -> Path | None:
        fork = self._find(number)
        if fork is None:
            return None
        reports = self._forks.find_records(fork).folder / "reports" / self._ticket.slug
        return next(reports.glob(f"step-{number}-*green-examples.json"), None)

    def discard(self, number: int, *, is_landed: bool) -> None:
        """Remove the fork of a step that ends or begins anew; its work stays under a ref unless it has landed."""
        if (process := self._running.pop(number, None)) is not None:
            _end((process,))
        if (fork := self._find(number)) is not None and self._drop(fork) and is_landed and self._found is not None:
            self._forks.forget(fork)
        self._found = None

    def close(self) -> None:
        """End the processes; a later run continues them."""
        _end(self._running.values())
        self._running.clear()

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
        inside = self._ticket.folder.resolve().relative_to(self._forks.project)
        return replace(self._ticket, folder=self._forks.find_project(fork) / inside)

    def _load_step(self, fork: Fork) -> StepExecution:
        """Return the step as the fork's state has it; one that has not begun if the state is lost or damaged."""
        state = None
        with contextlib.suppress(CddError):
            state = load_state(self._ticket_in(fork).state_path)
        fresh = StepExecution(step_number=fork.step, title="", text_sha256="")
        return fresh if state is None else state.step_executions.get(fork.step, fresh)


def _end(processes: Collection["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        process.kill()
        process.wait()


def _direction(number: int) -> str:
    return f"step {number} of the plan, ahead of the run"
