"""The cycle: takes one work item through its phases until the gate is open or the attempts are used up.

The model can end an attempt, but only the gate can end a phase. After each attempt the files are saved as a snapshot
and the state is saved, before anything depends on them: a killed cycle continues with the attempt it was in.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import assert_never

from cdd_agent.agent.hooks import hear_prompts
from cdd_agent.evidence.copies import CleanCopies
from cdd_agent.git.tree_store import Description
from cdd_agent.model.conversation import HearUser
from cdd_agent.tdd.baseline import take_baseline
from cdd_agent.tdd.briefing import keep_interruption
from cdd_agent.tdd.context import Context, Phase, WorkItem
from cdd_agent.tdd.phase_run import Ending, How, OtherItem, PhaseOver, PhaseRun, SavedState
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.work.state import RunState, add_file, add_guidance, enter_phase


class Cycle:
    """One work item on its way through its phases."""

    def __init__(self, item: WorkItem, state: RunState, *, context: Context, save: Callable[[RunState], None]) -> None:
        """Does nothing before ``run``. The item's step is in progress in ``state``, at any point of its cycle.

        ``save`` saves a state durably.
        """
        self._item = item
        self._saved = SavedState(state, item.number, save=save)
        hear = partial(self._hear, context.hear) if context.hear is not None else None
        self._context = replace(context, hear=hear, record_file=self._save_file)

    def _hear(self, hear: HearUser) -> tuple[str, ...]:
        """Return what the user says during an attempt; save it for the later ones and for the phases to come."""
        said = hear_prompts(hear, hooks=self._context.hooks)
        for words in said:
            self._saved.save(add_guidance(self._saved.state, self._item.number, words=words))
        return said

    def _save_file(self, path: str, is_new: bool) -> None:
        """Save the name of a file that the agent wrote."""
        path = self._context.to_repository_path(path)
        self._saved.save(add_file(self._saved.state, self._item.number, path=path, is_new=is_new))

    def run(self) -> Ending:
        """Run all phases that have not landed, and return how the cycle ended."""
        self._begin_or_resume()
        nested = set(self._context.snapshots.nested)
        with closing(CleanCopies(self._context.workplace.tree, self._context.suite)) as copies:
            # Not a loop over the phases: GREEN may send the step back to RED.
            while (phase := self._find_phase()) is not None:
                following = self._begin_phase(phase, copies=copies, nested=nested).run()
                match following:
                    case PhaseOver():
                        pass
                    case OtherItem(item=item):
                        self._item = item
                    case Ending():
                        return following
                    case _:
                        assert_never(following)
        return Ending(state=self._saved.state, how=How.DONE)

    def _find_phase(self) -> Phase | None:
        """Return the first phase that has not landed."""
        return next((each for each in self._item.phases if each not in self._saved.step.commits), None)

    def _begin_or_resume(self) -> None:
        saved, item = self._saved, self._item
        saved.save(keep_interruption(saved.state, self._make_recovery()))
        recovery, phase = self._make_recovery(), self._find_phase()
        if recovery.has_begun():
            recovery.restore()
        else:
            assert phase is not None
            saved.save(enter_phase(saved.state, item.number, phase=phase, checkpoint=recovery.begin()))

    def _begin_phase(self, phase: Phase, *, copies: CleanCopies, nested: set[str]) -> PhaseRun:
        item, context, saved = self._item, self._context, self._saved
        tip = self._make_recovery().refs.read_tip()
        assert tip is not None
        trailers = context.checkpoint(Description(kind="run", ticket=item.ticket, step=item.number, phase=phase))
        context.store.place = f"{item.ticket} {item.number_key.lower()} {item.number}"
        baseline = take_baseline(item, phase, step=saved.step, tip=tip, context=context)
        saved.save(enter_phase(saved.state, item.number, phase=phase, baseline=baseline.report_path))
        return PhaseRun(
            item=item,
            phase=phase,
            saved=saved,
            context=context,
            baseline=baseline,
            trailers=trailers,
            copies=copies,
            nested=nested,
        )

    def _make_recovery(self) -> StepRecovery:
        return StepRecovery(self._item.ticket, self._saved.step, context=self._context)
