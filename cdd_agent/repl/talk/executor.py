"""What is said between a person and the Executor: where the plan stands, and the words that move it."""

import difflib

from cdd_agent.errors import UsageError
from cdd_agent.repl.commands import EXECUTOR_WORDS, executor_word
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.status import show_steps
from cdd_agent.work.state import Status
from cdd_agent.workflows.execution.executor import Executor


def greet(executor: Executor, *, screen: Screen) -> bool:
    """Say where the plan stands; whether anything is left to do."""
    for remark in executor.remarks:
        screen.line(f"{screen.symbols['note']} {remark}", style="yellow", indent=0, hang=2)
    if not executor.is_new and executor.state.numbers(Status.IN_PROGRESS, Status.PENDING):
        screen.line(f"Going on with {executor.ticket.slug} where it stopped.", style="bold", indent=0)
    show_steps(executor.state, screen=screen)
    return say_what_is_next(executor, screen=screen)


def say(executor: Executor, words: str, *, screen: Screen) -> bool:
    """Carry out one of the Executor's words; whether it goes on listening."""
    word = executor_word(words)
    failed = executor.state.numbers(Status.FAILED)
    match word:
        case None:
            raise _unknown(words)
        case "exit":
            screen.line("Left the Executor; /exec comes back to where it is.", indent=0)
            return False
        case "status":
            show_steps(executor.state, screen=screen)
        case "continue" if failed:
            raise UsageError(f"Step {failed[0]} failed, so there is nothing to go on with.", hint="retry, skip or exit")
        case _:
            _carry_out(word, executor)
            if not executor.state.numbers(Status.PENDING, Status.IN_PROGRESS):
                screen.gap()
                show_steps(executor.state, screen=screen)
    screen.gap()
    return say_what_is_next(executor, screen=screen)


def step_in_work(executor: Executor) -> str:
    """``2/3``: the step that the next word is about, of how many; empty if none is left."""
    step = executor.next_step()
    numbers = [step.number] if step is not None else executor.state.numbers(Status.FAILED)
    return f"{numbers[0]}/{len(executor.state.step_executions)}" if numbers else ""


def say_what_is_next(executor: Executor, *, screen: Screen) -> bool:
    """Say what the next word would do; whether there is anything left to do."""
    state = executor.state
    step = executor.next_step()
    failed, pending = state.numbers(Status.FAILED), state.numbers(Status.PENDING)
    total = len(state.step_executions)
    other = "skip, status, exit"
    if failed:
        told = f"Step {failed[0]}/{total} failed and was rolled back. Type: retry, {other}"
    elif step is not None:
        verb = "goes on with" if state.numbers(Status.IN_PROGRESS) else "runs"
        told = f"Enter {verb} step {step.number}/{total}: {step.title}. Or type: {other}"
    elif pending:
        told = f"Step {pending[0]}/{total} waits for a step that was skipped. Type: {other}"
    else:
        told = f"{len(state.numbers(Status.COMPLETED))} of {total} steps are completed; nothing is left to do."
    screen.line(told, style="bold", indent=0, hang=2)
    return bool(failed or step or pending)


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


def _unknown(words: str) -> UsageError:
    """The error for what the Executor does not know, with the nearest of its words."""
    near = difflib.get_close_matches(words.strip().lower(), EXECUTOR_WORDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"The Executor does not know {words!r}.",
        hint=f"{meant}It knows: continue (or Enter), retry, skip, status, exit",
    )
