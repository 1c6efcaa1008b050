"""What a run came to: its steps, the files it changed, how long it took, what it used, and what to type next."""

from collections.abc import Iterable

from rich.text import Text

from cdd_agent.repl.commands import at_prompt
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.status import show_steps
from cdd_agent.work.state import RunState, Status

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
