"""A run brought in line with a plan that was edited since: which execution belongs to which step."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from cdd_agent.work.state import RunState, Status, StepExecution, StepKey, pending_steps

_Key = Callable[[StepKey | StepExecution], object]


def reconcile(state: RunState, steps: Sequence[StepKey]) -> tuple[RunState, tuple[str, ...]]:
    """The run over ``steps``, and a sentence for each thing a person should know.

    Executions are matched by title, then by the digest of the text, then by number. New steps are pending, and
    told, as are steps that are gone. A completed step whose text has changed is stale: it stays completed, with
    the text it was done by, and is reported.
    """
    matches = _matches(tuple(state.step_executions.values()), steps)
    executions: dict[int, StepExecution] = {}
    notices: list[str] = []
    for step in steps:
        known = matches.get(step.number)
        if known is None:
            executions |= pending_steps([step])
            notices.append(f"step {step.number} '{step.title}' is new")
            continue
        if known.text_sha256 != step.text_sha256:
            notices += _changed(known, step)
        executions[step.number] = _renewed(known, step)
    kept = {known.step_number: number for number, known in matches.items()}
    notices += [_gone(known) for known in state.step_executions.values() if known.step_number not in kept]
    current = None if state.current_step is None else kept.get(state.current_step)
    return replace(state, step_executions=executions, current_step=current), tuple(notices)


def _matches(known: Sequence[StepExecution], steps: Sequence[StepKey]) -> dict[int, StepExecution]:
    """Number of the new step -> its execution; a title or digest counts only where it is the only one on both sides."""
    found: dict[int, StepExecution] = {}
    keys: tuple[_Key, ...] = (_title, lambda step: step.text_sha256, _number)
    for key in keys:
        taken = {execution.step_number for execution in found.values()}
        open_known = [execution for execution in known if execution.step_number not in taken]
        open_steps = [step for step in steps if step.number not in found]
        counts = Counter(key(execution) for execution in open_known)
        wanted = Counter(key(step) for step in open_steps)
        by_key = {key(execution): execution for execution in open_known if counts[key(execution)] == 1}
        found |= {
            step.number: by_key[key(step)] for step in open_steps if wanted[key(step)] == 1 and key(step) in by_key
        }
    return found


def _title(step: StepKey | StepExecution) -> object:
    return " ".join(step.title.lower().split())


def _number(step: StepKey | StepExecution) -> object:
    return step.number if isinstance(step, StepKey) else step.step_number


def _renewed(known: StepExecution, step: StepKey) -> StepExecution:
    """The execution under the step's number; work that was begun keeps the digest of the text it was begun with."""
    begun = known.status in (Status.COMPLETED, Status.IN_PROGRESS)
    text = known.text_sha256 if begun else step.text_sha256
    return replace(known, step_number=step.number, title=step.title, text_sha256=text)


def _gone(known: StepExecution) -> str:
    """What is said of a step that the plan no longer has."""
    stays = {
        Status.COMPLETED: "its commits stay",
        Status.IN_PROGRESS: "its commits stay, and so do its changes to files",
    }
    if known.status in stays:
        status, what = known.status.replace("_", " "), stays[known.status]
        return f"step {known.step_number} '{known.title}' is {status} and no longer in the plan; {what}"
    return f"step {known.step_number} '{known.title}' is no longer in the plan"


def _changed(known: StepExecution, step: StepKey) -> list[str]:
    match known.status:
        case Status.COMPLETED:
            return [f"step {step.number} '{step.title}' is stale: its text changed after it was completed"]
        case Status.IN_PROGRESS:
            return [f"step {step.number} '{step.title}' goes on, but its text changed after it was started"]
        case _:
            return []
