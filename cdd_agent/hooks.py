"""Hooks: the events of a run, to which commands of the user react.

Settings, input and output have the form of Claude Code's hooks, so that the same scripts work. ``Hooks`` is the port of
the code that acts; ``parse_reply`` interprets what a command printed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta, Struct

from cdd_agent.untrusted.documents import load_json
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.text import clean

HookEvent: TypeAlias = Literal[
    "TaskStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "FileChanged",
    "GateClosed",
    "TaskCompletion",
    "Stop",
    "PreCompact",
]
MAX_CHARACTERS = 10_000
"""The most that the model gets from one hook."""
BLOCKING_STATUS = 2
_TAKES_PLAIN_TEXT = {"UserPromptSubmit", "TaskStart"}
"""Events whose hooks may print context for the model without JSON."""


class HookCommand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that runs when an event matches."""

    command: Annotated[str, Meta(min_length=1)]
    type: Literal["command"] = "command"
    timeout: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """In seconds."""


class HookGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands for the events that match."""

    hooks: tuple[HookCommand, ...]
    matcher: str = ""
    """A regular expression for the whole subject of the event; empty or ``*``: every event."""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a matcher that is not a regular expression."""
        try:
            re.compile(self._pattern)
        except re.error as error:
            raise ValueError(f"matcher {self.matcher!r} is not a regular expression: {error}") from error

    @property
    def _pattern(self) -> str:
        return ".*" if self.matcher in ("", "*") else self.matcher

    def matches(self, subject: str) -> bool:
        """Return whether the hooks run for an event with this subject; one without a subject always matches."""
        return not subject or re.fullmatch(self._pattern, subject, re.DOTALL) is not None


HookSettings: TypeAlias = dict[HookEvent, tuple[HookGroup, ...]]


def describe_hooks(hooks: HookSettings) -> Iterator[str]:
    """Yield a line for each hook, such as ``PreToolUse Bash: python3 check.py``."""
    for event, groups in hooks.items():
        for group in groups:
            subject = f" {group.matcher}" if group.matcher else ""
            yield from (f"{event}{subject}: {hook.command}" for hook in group.hooks)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReply:
    """The answer of the hooks to an event. Texts are cleaned, without keys, and at most ``MAX_CHARACTERS`` long."""

    block: str = ""
    """Why the action must not happen; empty: it may."""
    context: str = ""
    """Text for the model."""
    stop: str = ""
    """Why the whole run must end; empty: it goes on."""
    message: str = ""
    """Text for the user."""


class Hooks(Protocol):
    """Runs the hooks of an event."""

    def run(self, event: HookEvent, fields: Mapping[str, object], *, subject: str = "") -> HookReply:
        """Run the hooks that match ``subject`` in order, up to the first that blocks, and return their joint answer.

        ``fields`` are added to the fields that every event has. Raises ``GateClosed`` if a hook stops the run, and
        ``UsageError`` if the hooks are not the ones that the user approved.
        """
        ...


class NoHooks:
    """The hooks of a project that has none."""

    def run(self, event: HookEvent, fields: Mapping[str, object], *, subject: str = "") -> HookReply:
        """Return an answer that changes nothing."""
        return HookReply()


NO_HOOKS = NoHooks()


def parse_reply(event: HookEvent, *, exit_status: int, output: str, errors: str) -> HookReply:
    """Return the answer of a command that printed ``output`` and, to standard error, ``errors``.

    Exit status 2 blocks, with ``errors`` as the reason. Any other failure is only a message. A command that succeeds
    may print a JSON object.

    >>> parse_reply("PreToolUse", exit_status=2, output="", errors="not on Fridays").block
    'not on Fridays'
    """
    if exit_status == BLOCKING_STATUS:
        return HookReply(block=_shorten(errors) or "the hook gave no reason")
    if exit_status != 0:
        return HookReply(message=f"failed with exit status {exit_status}: {_shorten(errors or output) or 'no output'}")
    if not output.lstrip().startswith("{"):
        return HookReply(context=_shorten(output) if event in _TAKES_PLAIN_TEXT else "")
    try:
        answer = load_json(output)
    except ValueError as error:
        return HookReply(message=f"printed an object that is not valid JSON: {_shorten(str(error))}")
    assert isinstance(answer, dict)
    return _read_answer(answer)


def _read_answer(answer: Mapping[str, object]) -> HookReply:
    found = answer.get("hookSpecificOutput")
    specific: Mapping[str, object] = found if isinstance(found, dict) else {}
    reason = _shorten(specific.get("permissionDecisionReason")) or _shorten(answer.get("reason"))
    block = ""
    if answer.get("decision") in ("block", "deny") or specific.get("permissionDecision") == "deny":
        block = reason or "the hook gave no reason"
    elif specific.get("permissionDecision") == "ask":
        # Nobody may be there to answer, and going on would ignore the hook.
        block = f"a person has to decide about this{reason and f': {reason}'}"
    elif "updatedInput" in specific:
        block = "the hook wants another input (updatedInput), which cdd does not support"
    stop = (_shorten(answer.get("stopReason")) or "the hook gave no reason") if answer.get("continue") is False else ""
    context, message = _shorten(specific.get("additionalContext")), _shorten(answer.get("systemMessage"))
    return HookReply(block=block, context=context, stop=stop, message=message)


def _shorten(text: object) -> str:
    shown = clean(mask(text).text).strip() if isinstance(text, str) else ""
    left_out = len(shown) - MAX_CHARACTERS
    return shown if left_out <= 0 else f"{shown[:MAX_CHARACTERS]}\n[... {left_out} characters left out ...]"
