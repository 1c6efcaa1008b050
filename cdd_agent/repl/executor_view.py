"""What is said between a person and the Executor: where the plan stands, and the words that move it.

What a run came to: its steps, the files it changed, how long it took, what it used, and what to type next.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from cdd_agent.errors import UsageError
from cdd_agent.repl.commands import EXECUTOR_WORDS, TAKE_A_STEP, at_prompt, executor_word
from cdd_agent.repl.render import show_steps
from cdd_agent.repl.screen import Screen
from cdd_agent.untrusted.text import clean
from cdd_agent.work.order import downstream
from cdd_agent.work.state import RunState, Status
from cdd_agent.workflows.execution import intervention
from cdd_agent.workflows.execution.executor import Executor, blocking_steps, stale

MOST_FILES_SHOWN = 8
"""Of one kind."""


def show_summary(state: RunState, *, screen: Screen, is_at_prompt: bool = False) -> None:
    """The steps with phases and commits, then files, time, and the next command, as it is typed there."""
    show_steps(state, screen=screen)
    for kind, paths in _files(state).items():
        if paths:
            _row(kind, _listed(paths), screen=screen)
    times = {number: step.usage.minutes * 60 for number, step in state.step_executions.items()}
    took = [f"step {number} {shown_time(seconds)}" for number, seconds in times.items() if seconds]
    if took:
        in_all = shown_time(sum(times.values()))
        _row("time", in_all if len(took) == 1 else f"{in_all} in all: {', '.join(took)}", screen=screen)
    following = _next(state, is_at_prompt=is_at_prompt)
    _row("next", at_prompt(following) if is_at_prompt else following, screen=screen)


def shown_time(seconds: float) -> str:
    """A duration as a person reads it.

    >>> shown_time(0.4), shown_time(61), shown_time(7265)
    ('0.4 s', '1 min 1 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _row(word: str, told: str, *, screen: Screen) -> None:
    """One line of the summary."""
    screen.line(Text.assemble((f"{word:<9}", "dim"), clean(told)), indent=0, hang=9)


def _files(state: RunState) -> dict[str, tuple[str, ...]]:
    """``created``, ``modified`` and ``deleted`` -> the files, as they differ from before the run."""
    before: dict[str, bool] = {}
    now: dict[str, bool] = {}
    for step in state.step_executions.values():
        for paths, was_there, is_there in (
            (step.files_created, False, True),
            (step.files_modified, True, True),
            (step.files_deleted, True, False),
        ):
            for path in paths:
                before.setdefault(path, was_there)
                now[path] = is_there
    kinds = {path: (before[path], now[path]) for path in sorted(now)}
    return {
        "created": tuple(path for path, kind in kinds.items() if kind == (False, True)),
        "modified": tuple(path for path, kind in kinds.items() if kind == (True, True)),
        "deleted": tuple(path for path, kind in kinds.items() if kind == (True, False)),
    }


def _listed(paths: Iterable[str]) -> str:
    """How many files, and the first of them."""
    names = list(paths)
    more = f" and {len(names) - MOST_FILES_SHOWN} more" if len(names) > MOST_FILES_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:MOST_FILES_SHOWN])}{more}"


def _next(state: RunState, *, is_at_prompt: bool = False) -> str:
    """The command that goes on from here."""
    again = "retry" if is_at_prompt else f"cdd exec {state.ticket_slug} --retry"
    for number in state.numbers(Status.FAILED):
        return f"change the plan or the code, then: {again} {number}"
    if state.numbers(Status.PENDING, Status.IN_PROGRESS):
        return f"cdd exec {state.ticket_slug}"
    for number in state.numbers(Status.SKIPPED):
        return f"cdd exec {state.ticket_slug} --retry {number} does what was skipped"
    since = f" {state.base_commit[:7]}.." if state.base_commit else ""
    return f"cdd review {state.ticket_slug}, or: git log --oneline{since}"


_NUMBER = re.compile(r"(?:step\s+)?#?(\d{1,9})", re.IGNORECASE)
MOST_CHANGES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A line as the Executor understands it."""

    word: str
    number: int | None = None
    """Of the step that is meant by name."""
    rest: str = ""
    """After ``commit``: the message."""


def greet(executor: Executor, *, screen: Screen) -> bool:
    """Say where the plan stands; whether anything is left to do."""
    _show_remarks(executor, screen=screen)
    if not executor.is_new and executor.state.numbers(Status.IN_PROGRESS, Status.PENDING):
        screen.line(f"Going on with {executor.ticket.slug} where it stopped.", style="bold", indent=0)
    show_steps(executor.state, screen=screen)
    _offer_to_plan_anew(executor, screen=screen)
    screen.gap()
    return say_what_is_next(executor, screen=screen)


def say(executor: Executor, words: str, *, screen: Screen) -> bool:
    """Carry out one of the Executor's words; whether it goes on listening."""
    said = _understood(words)
    failed = executor.state.numbers(Status.FAILED)
    match said.word:
        case "exit":
            screen.line("Left the Executor; /exec comes back to where it is.", indent=0)
            return False
        case "status":
            show_steps(executor.state, screen=screen)
        case "commit":
            intervention.commit_changes(executor, said.rest)
        case "keep":
            intervention.keep_changes(executor)
            told = "Your changes stay as they are, out of the commits of the next step, and locked for the model."
            screen.line(told, indent=0, hang=2)
        case "continue" if failed:
            raise UsageError(f"Step {failed[0]} failed, so there is nothing to go on with.", hint="retry, skip or exit")
        case "continue" | "retry" | "skip" | "done" if _is_news(executor, screen=screen):
            pass
        case "continue" | "retry" if _is_in_the_way(executor, said, screen=screen):
            screen.gap()
            told = "Type: commit, keep, status, exit; or put the files as you want them, and Enter looks again."
            screen.line(told, style="bold", indent=0, hang=2)
            return True
        case _:
            _carry_out(said, executor)
            if not executor.state.numbers(Status.PENDING, Status.IN_PROGRESS):
                screen.gap()
                show_summary(executor.state, screen=screen, is_at_prompt=True)
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
    failed, pending, old = state.numbers(Status.FAILED), state.numbers(Status.PENDING), stale(executor)
    skipped = state.numbers(Status.SKIPPED)
    total = len(state.step_executions)
    other = "skip, status, exit"
    if failed:
        told = _of_a_failure(executor, failed[0])
    elif step is not None:
        verb = "goes on with" if state.numbers(Status.IN_PROGRESS) else "runs"
        told = f"Enter {verb} step {step.number}/{total}: {step.title}. Or type: {other}"
    elif pending:
        told = _of_one_that_waits(executor, pending[0])
    elif old:
        shown = " and ".join(str(number) for number in old)
        told = f"All steps are completed, step {shown} by a text that has changed since. Type: retry {old[0]}, exit"
    elif skipped:
        shown = " and ".join(str(number) for number in skipped)
        told = f"Nothing is left but what was skipped, step {shown}. Type: retry {skipped[0]}, done {skipped[0]}, exit"
    else:
        told = f"{len(state.numbers(Status.COMPLETED))} of {total} steps are completed; nothing is left to do."
        told += " Look at them: /review" if state.numbers(Status.COMPLETED) else ""
    screen.line(told, style="bold", indent=0, hang=2)
    return bool(failed or step or pending or old or skipped)


def _of_a_failure(executor: Executor, number: int) -> str:
    """What to type after a step that failed."""
    state = executor.state
    total = len(state.step_executions)
    if "already_green" in (state.execution(number).error or ""):
        return (
            f"Step {number}/{total} was rolled back: its test passes before anything is changed, so what it asks for "
            f"may be there. Type: done {number} (all tests have to pass), retry, skip, status, exit"
        )
    waiting = [str(n) for n in downstream(executor.depends, (number,)) if state.execution(n).status == Status.PENDING]
    waits = ""
    if waiting:
        waits = (
            f"; step {waiting[0]} waits for it" if len(waiting) == 1 else f"; steps {' and '.join(waiting)} wait for it"
        )
    return f"Step {number}/{total} failed and was rolled back{waits}. Type: retry, skip, status, exit"


def _of_one_that_waits(executor: Executor, number: int) -> str:
    """What to type where a step waits for one that was left out."""
    state = executor.state
    total = len(state.step_executions)
    waits_for = blocking_steps(executor, executor.step(number))
    left_out = [n for n in waits_for if state.execution(n).status != Status.PENDING] or list(waits_for)
    status = state.execution(left_out[0]).status
    return (
        f"Step {number}/{total} waits for step {left_out[0]}, which was {status}. "
        f"Type: retry {left_out[0]}, done {left_out[0]}, skip {number}, status, exit"
    )


def _show_remarks(executor: Executor, *, screen: Screen) -> None:
    """What a person should know of the plan and the steps, once."""
    for remark in executor.remarks:
        screen.line(f"{screen.symbols['note']} {remark}", style="yellow", indent=0, hang=2)
    executor.told = executor.remarks


def _offer_to_plan_anew(executor: Executor, *, screen: Screen) -> None:
    """Where spec or plan have changed, say both ways on."""
    if executor.changed:
        told = "From here on they count as they are now; /plan shows the plan, and drafts it anew if you say how."
        screen.line(told, style="yellow", indent=0, hang=2)
    for number in stale(executor):
        screen.line(f"retry {number} does step {number} once more, by its new text.", style="yellow", indent=0, hang=2)


def _is_news(executor: Executor, *, screen: Screen) -> bool:
    """Whether spec or plan were changed since they were read last; if so, it is told and nothing is run."""
    before = executor.documents.plan_sha256, executor.documents.spec_sha256
    executor.read()
    if before == (executor.documents.plan_sha256, executor.documents.spec_sha256):
        return False
    _show_remarks(executor, screen=screen)
    _offer_to_plan_anew(executor, screen=screen)
    return True


def _is_in_the_way(executor: Executor, said: _Said, *, screen: Screen) -> bool:
    """Whether changes of the user's have to be decided about first; if so, they are listed with the ways on."""
    changes = intervention.in_the_way(executor, anew=said.word == "retry")
    if not changes:
        return False
    screen.line("These changes are yours and not committed; nothing was touched:", style="yellow", indent=0)
    for path in changes[:MOST_CHANGES_SHOWN]:
        screen.line(path, indent=2, hang=2)
    if len(changes) > MOST_CHANGES_SHOWN:
        screen.line(f"and {len(changes) - MOST_CHANGES_SHOWN} more", indent=2)
    ways = {
        "commit": f'commits just these, as "{intervention.MESSAGE}"; or say: commit WORDS',
        "keep": "leaves them as they are: tests run with them, no commit of the next step has them",
    }
    for word, what in ways.items():
        screen.line(f"{word:<8}{what}", indent=2, hang=8)
    return True


def _carry_out(said: _Said, executor: Executor) -> None:
    """Skip a step, take one as done, or run one."""
    with executor.running():
        number = _meant(executor) if said.number is None and said.word in TAKE_A_STEP else said.number
        match said.word, number:
            case "skip", int(number):
                executor.skip(number, reason="skipped by the user")
                return
            case "done", int(number):
                intervention.mark_done(executor, executor.step(number))
                return
            case "retry", int(number):
                executor.retry(number)
        step = executor.next_step() if number is None else executor.step(number)
        if step is not None:
            executor.run_step(step)


def _meant(executor: Executor) -> int:
    """The step that a word without a number means: the failed one, the next one, else one that waits or is stale."""
    waiting = executor.state.numbers(Status.FAILED)
    step = executor.next_step()
    if not waiting and step is not None:
        return step.number
    numbers = executor.state.numbers
    for number in (*waiting, *numbers(Status.PENDING), *stale(executor), *numbers(Status.SKIPPED)):
        return number
    raise UsageError("No step is left.", hint="status shows all of them")


def _understood(words: str) -> _Said:
    """What a line says; raises ``UsageError`` with the nearest word for what the Executor does not know."""
    first, _, rest = words.strip().partition(" ")
    word, rest = executor_word(first), rest.strip()
    number = _NUMBER.fullmatch(rest)
    if word == "commit":
        return _Said(word=word, rest=rest)
    if word is None or (rest and not (word in TAKE_A_STEP and number)):
        raise _unknown(words, word=word)
    return _Said(word=word, number=int(number[1]) if number else None)


def _unknown(words: str, *, word: str | None) -> UsageError:
    """The error for what the Executor does not know, with the nearest of its words."""
    if word in TAKE_A_STEP:
        return UsageError(f"The Executor does not know which step {words!r} means.", hint=f"say it by number: {word} 2")
    near = difflib.get_close_matches(words.strip().lower().partition(" ")[0], EXECUTOR_WORDS, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"The Executor does not know {words!r}.",
        hint=f"{meant}It knows: continue (or Enter), retry, skip, done, commit, keep, status, exit",
    )
