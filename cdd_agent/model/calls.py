"""Tool calls that a server sent in a form that could not be carried out or sent back to it. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from cdd_agent.model.conversation import JSON, AssistantBlock, AssistantMessage, Message, ToolCall, Turn

_KEY = "not_run_because"
_LONGEST_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def unusable(why: str) -> dict[str, JSON]:
    """The input of a call that must not be run: no tool takes it, and a recording keeps it."""
    return {_KEY: why}


def why_unusable(call: ToolCall) -> str | None:
    """Why ``call`` must not be run; None for a call like any other."""
    why = call.input.get(_KEY) if len(call.input) == 1 else None
    return why if isinstance(why, str) else None


def mended(turn: Turn, said: Iterable[Message]) -> Turn:
    """``turn`` with call ids that neither it nor ``said`` has twice, and with names that may be sent back.

    A server refuses every later request of a conversation that breaks these rules. An id from an earlier turn is
    merely replaced, as small servers count anew each time; of two calls with one id in a turn, the second is not run.
    """
    taken = {
        block.id
        for message in said
        if isinstance(message, AssistantMessage)
        for block in message.content
        if isinstance(block, ToolCall)
    }
    seen: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}
    content: list[AssistantBlock] = []
    for block in turn.content:
        if not isinstance(block, ToolCall):
            content.append(block)
            continue
        call = replace(block, id=_free(_fit(block.id), taken, numbers=numbers), name=_fit(block.name))
        if block.id in seen:
            call = replace(call, input=unusable(f"its id {block.id[:_LONGEST_NAME]} is that of another call"))
        seen.add(block.id)
        taken.add(call.id)
        content.append(call)
    return replace(turn, content=tuple(content))


def _free(wanted: str, taken: set[str], *, numbers: dict[str, Iterator[int]]) -> str:
    """``wanted``, with a number behind it if it is taken; ``numbers`` holds those not tried yet, for each id."""
    free = wanted
    while free in taken:
        free = f"{wanted}-{next(numbers.setdefault(wanted, count(2)))}"
    return free


def _fit(name: str) -> str:
    """``name`` in the characters and the length that the API takes."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"
