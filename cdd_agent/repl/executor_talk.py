"""What is said between a person and the Executor: where the plan stands, and the words that move it."""

from cdd_agent.errors import UsageError
from cdd_agent.repl.commands import executor_word
from cdd_agent.repl.render import Screen
from cdd_agent.repl.status import steps_table
from cdd_agent.work.state import Status
from cdd_agent.workflows.execution.executor import Executor


def greet(executor: Executor, *, screen: Screen) -> bool:
    """Say where the plan stands; whether anything is left to do."""
    for remark in executor.remarks:
        screen.line(remark, style="yellow", indent=0)
    if not executor.is_new:
        screen.console.print(steps_table(executor.state))
    return _say_what_is_next(executor, screen=screen)


def say(executor: Executor, words: str, *, screen: Screen) -> bool:
    """Carry out one of the Executor's words; whether it goes on listening."""
    word = executor_word(words)
    failed = executor.state.numbers(Status.FAILED)
    if word is None:
        raise UsageError(f"The Executor does not know {words!r}.", hint="continue, retry, skip, status or exit")
    if word == "exit":
        screen.line("Left the Executor; /exec comes back to where it is.", indent=0)
        return False
    if word == "status":
        screen.console.print(steps_table(executor.state))
        return True
    if word == "continue" and failed:
        raise UsageError(f"Step {failed[0]} failed.", hint="retry, skip or exit")
    _carry_out(word, executor)
    if not executor.state.numbers(Status.PENDING, Status.IN_PROGRESS):
        screen.console.print(steps_table(executor.state))
    return _say_what_is_next(executor, screen=screen)


def _carry_out(word: str, executor: Executor) -> None:
    """Skip a step, or run one."""
    with executor.running():
        if word == "skip":
            executor.skip(_meant(executor), reason="skipped by the user")
            return
        if word == "retry":
            executor.retry(_meant(executor))
        step = executor.next_step()
        if step is not None:
            executor.run_step(step)


def _meant(executor: Executor) -> int:
    """The step that ``retry`` and ``skip`` mean: the failed one, else the next one, else one that waits for another."""
    waiting = executor.state.numbers(Status.FAILED)
    step = executor.next_step()
    if not waiting and step is not None:
        return step.number
    for number in (*waiting, *executor.state.numbers(Status.PENDING)):
        return number
    raise UsageError("No step is left.", hint="status shows all of them")


def _say_what_is_next(executor: Executor, *, screen: Screen) -> bool:
    """Say what the next word would do; whether there is anything left to do."""
    state = executor.state
    step = executor.next_step()
    failed, pending = state.numbers(Status.FAILED), state.numbers(Status.PENDING)
    total = len(state.step_executions)
    if failed:
        told = f"Step {failed[0]} failed. Type retry, skip or exit."
    elif step is not None:
        verb = "go on with" if state.numbers(Status.IN_PROGRESS) else "run"
        told = f"Press Enter to {verb} step {step.number} of {total}: {step.title}   (or: skip, status, exit)"
    elif pending:
        told = f"Step {pending[0]} waits for a step that was skipped. Type skip to leave it out too, or exit."
    else:
        told = f"{len(state.numbers(Status.COMPLETED))} of {total} steps are completed; nothing is left to do."
    screen.line(told, style="bold", indent=0)
    return bool(failed or step or pending)
