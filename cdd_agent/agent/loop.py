"""The loop of an agent: ask the model, run the tools it calls, answer it, until a tool or the model ends the run.

A run of an agent without tools: it answers with whole files in fenced blocks, which are written all or not at all.

What is wrong with an answer goes back to the model as a message, until an answer is right, or names no file, or a
limit is reached; the same thing wrong for the third time is a limit too. An answer that names no file changes nothing,
whatever it says.

What a run lets out: events in which no key is, neither that of the model's service nor a text shaped like one.

A server, or a model, can repeat what it was sent. So every text of every event is looked through before a screen, a
journal or a program that reads the events gets it, and the pieces in which a model's text comes are cut anew, so that
none ends inside a key.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, assert_never

from cdd_agent.agent.blocks import Block, Refusal, WholeFiles, parse
from cdd_agent.agent.budget import Budget
from cdd_agent.agent.quoting import Marks
from cdd_agent.agent.tool import Tool, ToolOutput
from cdd_agent.errors import UsageError
from cdd_agent.events import (
    Emit,
    Event,
    Notice,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from cdd_agent.model.conversation import (
    Conversation,
    Model,
    Request,
    Text,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    why_unusable,
)
from cdd_agent.model.prices import cost_usd
from cdd_agent.model.secret import Secret, hidden

_GAP = re.compile(r"[^!-~]")
"""What no key holds, if it is not one of ``_WITH_GAPS``."""


_WITH_GAPS = re.compile(r"-----BEGIN|(?i:secret_?access_?key)")
"""Where a key may begin, or the name of one, with white space in it: all that follows is held back."""


def without_keys(emit: Emit, *, key: Secret | None) -> Emit:
    """``emit`` as it may be given any event: ``key`` and texts shaped like keys do not get to it."""

    def hide(value: object) -> object:
        if isinstance(value, str):
            return hidden(value, key=key)
        return tuple(map(hide, value)) if isinstance(value, tuple) else value

    def tell(event: Event) -> None:
        hidden: dict[str, Any] = {field.name: hide(getattr(event, field.name)) for field in fields(event)}
        emit(replace(event, **hidden))

    return tell


class Pieces:
    """The text of one turn on its way to who listens, in pieces that end where no key can go on."""

    def __init__(self, emit: Emit) -> None:
        """Nothing is held back yet."""
        self._emit = emit
        self._held: dict[type[TextDelta | ThinkingDelta], str] = {TextDelta: "", ThinkingDelta: ""}

    def write(self, event: Event) -> None:
        """Give ``event`` on; of a piece of text what is whole, with what was held back before it."""
        if not isinstance(event, TextDelta | ThinkingDelta):
            self.end()
            self._emit(event)
            return
        kind, held = type(event), self._held[type(event)]
        text = held + event.text
        end = max(_gaps(text, after=len(held)), default=0)
        self._held[kind] = text[end:]
        if end or not text:
            self._emit(kind(text=text[:end]))

    def end(self) -> None:
        """Give on what is held back: nothing follows it."""
        for kind, held in self._held.items():
            self._held[kind] = ""
            if held:
                self._emit(kind(text=held))


def _gaps(text: str, *, after: int) -> Iterator[int]:
    """The ends of gaps behind ``after``, as far as nothing that may have gaps itself has begun."""
    begun = _WITH_GAPS.search(text)
    return (gap.end() for gap in _GAP.finditer(text, after, begun.start() if begun else len(text)))


End: TypeAlias = Literal["completed", "answered", "refused", "stuck", "out_of_turns", "out_of_calls", "out_of_tokens"]
"""A tool ended the run; the model ended it in words; it declined; turn after turn came to nothing; a limit."""

CUT_OFF = (
    "Your answer was cut off at the limit of one answer; a tool call in it, if there was one, was not run. "
    "Go on in smaller pieces: shorter files, several edits."
)
CUT_OFF_WITHOUT_TOOLS = (
    "Your answer was cut off at the limit of one answer. Nothing of it was written: a file counts only if its block is "
    "whole. Send all files again in one answer, without explanations, and change fewer of them if they do not fit."
)
EMPTY = "Your answer was empty. Go on, or say in words that you are done and what came of it."
STOPPED = "[The user stopped this answer here.]"
INTERRUPTED = "Interrupted: the user stopped this turn before the call had an answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """How a run of an agent ended."""

    end: End
    text: str
    """The words of the last turn."""
    turns: int
    calls: int
    """Tool calls, those that failed included."""
    usage: Usage
    ended_by: ToolCall | None = None
    """The call of a tool that ended the run."""


def run_agent(
    conversation: Conversation, tools: Sequence[Tool], *, model: Model, budget: Budget, emit: Emit, agent: str
) -> AgentRun:
    """Carry ``conversation`` on until the run ends; whatever interrupts it, every tool call in it is answered.

    Of an answer that the user stops, the words that were shown stay in the conversation, with a line that says so.
    What a tool answers is marked with the conversation's token as text that others wrote.
    Turns in a row that come to nothing, by failed calls or an answer that is cut off or empty, end the run as stuck.
    The last message of ``conversation`` is the user's. Raises what ``model`` raises.
    """
    specs = tuple(tool.spec for tool in tools)
    usage, calls, failed_turns, text = Usage(), 0, 0, ""

    def ended(end: End, turns: int, *, by: ToolCall | None = None) -> AgentRun:
        return AgentRun(end=end, text=text, turns=turns, calls=calls, usage=usage, ended_by=by)

    for number in range(1, budget.max_turns + 1):
        if budget.max_tokens_total is not None and usage.total >= budget.max_tokens_total:
            return ended("out_of_tokens", number - 1)
        request = Request(
            system=conversation.system,
            messages=conversation.messages,
            tools=specs,
            max_tokens=budget.max_answer_tokens,
        )
        turn = _asked(request, model=model, conversation=conversation, emit=emit)
        usage, calls, text = usage + turn.usage, calls + len(turn.calls), turn.text
        emit(turn_ended(turn, model=model.name, agent=agent))
        if turn.stop_reason == "max_tokens":
            emit(Notice(text=f"The model's answer was cut off at max_tokens ({budget.max_answer_tokens}); it goes on."))
        if turn.text.strip() or turn.calls:  # no server takes back thoughts that lead to nothing
            conversation.hear(turn)
        if turn.calls:
            left = budget.after(calls - len(turn.calls))
            outputs = _answer_calls(turn, tools, conversation=conversation, budget=left, emit=emit)
            ending = [call for call, output in zip(turn.calls, outputs, strict=True) if output.ends_run]
            if ending:
                return ended("completed", number, by=ending[0])
            if budget.after(calls).max_calls_total == 0:
                return ended("out_of_calls", number)
            came_to_nothing = all(output.is_error for output in outputs)
        else:
            end = _end_in_words(turn)
            if end is not None:
                return ended(end, number)
            if turn.stop_reason != "pause_turn":
                cut_off = CUT_OFF if tools else CUT_OFF_WITHOUT_TOOLS
                conversation.say(cut_off if turn.stop_reason == "max_tokens" else EMPTY)
            came_to_nothing = True
        failed_turns = failed_turns + 1 if came_to_nothing else 0
        if failed_turns == budget.max_failed_turns:
            return ended("stuck", number)
    return ended("out_of_turns", budget.max_turns)


def _asked(request: Request, *, model: Model, conversation: Conversation, emit: Emit) -> Turn:
    """The model's turn; if the user stops it, what was shown of it is kept as the model's words."""
    shown: list[str] = []

    def show(event: Event) -> None:
        match event:
            case TextDelta(text=text):
                shown.append(text)
            case RetryScheduled(withdrawn=True):
                shown.clear()
        emit(event)

    pieces = Pieces(show)
    try:
        turn = model.reply(request, emit=pieces.write)
    except KeyboardInterrupt:
        words = "".join(shown).rstrip()
        if words.strip():
            said = Text(text=f"{words}\n\n{STOPPED}")
            conversation.hear(Turn(content=(said,), stop_reason="end_turn", usage=Usage()))
        raise
    pieces.end()
    return turn


def _end_in_words(turn: Turn) -> End | None:
    """How a turn without calls ends the run; None if the model is to go on."""
    match turn.stop_reason:
        case "refusal":
            return "refused"
        case "max_tokens" | "pause_turn":
            return None
        case "end_turn" | "stop_sequence" | "tool_use":
            return "answered" if turn.text.strip() else None
        case _:
            assert_never(turn.stop_reason)


def _answer_calls(
    turn: Turn, tools: Sequence[Tool], *, conversation: Conversation, budget: Budget, emit: Emit
) -> list[ToolOutput]:
    """Run the tool calls of ``turn`` in order and answer all of them in one message, even if one is interrupted."""
    by_name = {tool.spec.name: tool for tool in tools}
    marks = Marks(conversation.token)
    outputs: list[ToolOutput] = []
    try:
        for position, call in enumerate(turn.calls):
            tool = by_name.get(call.name)
            subject = tool.subject(call.input) if tool else ""
            emit(ToolCalled(call_id=call.id, name=call.name, subject=subject))
            refusal = _not_run(turn, position, by_name=by_name, budget=budget)
            output = by_name[call.name].run(call.input) if refusal is None else _error(refusal)
            returned = _tool_returned(call, output)
            if refusal is None:
                text = marks.around(output.text, source=f"{call.name} {subject}", exact=output.exact)
                output = replace(output, text=text)
            outputs.append(output)
            emit(returned)
    finally:
        given = [*outputs, *(_error(INTERRUPTED) for _ in turn.calls[len(outputs) :])]
        conversation.answer(
            ToolResult(tool_use_id=call.id, content=output.text, is_error=output.is_error)
            for call, output in zip(turn.calls, given, strict=True)
        )
    return outputs


def _not_run(turn: Turn, position: int, *, by_name: Mapping[str, Tool], budget: Budget) -> str | None:
    """Why the call at ``position`` of ``turn`` is not run; None if it is."""
    if turn.stop_reason != "tool_use":
        return f"Not run: the turn ended with {turn.stop_reason}, so the call may be incomplete."
    if budget.max_calls_total is not None and position >= budget.max_calls_total:
        return "Not run: no tool call is left in this run."
    if position >= budget.max_calls_per_turn:
        return f"Not run: one turn may call {budget.max_calls_per_turn} tools. Call it again."
    call = turn.calls[position]
    why = why_unusable(call)
    if why is not None:
        return f"Not run: {why}. Send the whole call again."
    return None if call.name in by_name else _unknown(call, tuple(by_name))


def _error(text: str) -> ToolOutput:
    """An answer that says what went wrong."""
    return ToolOutput(text=text, is_error=True)


def _unknown(call: ToolCall, names: tuple[str, ...]) -> str:
    """What to say of a call to a tool that is not there."""
    lowered = {name.casefold(): name for name in names}
    near = get_close_matches(call.name.casefold(), lowered, n=1, cutoff=0.5)
    meant = f" Did you mean {lowered[near[0]]}?" if near else ""
    return f"There is no tool {call.name}.{meant} The tools are: {', '.join(names) or 'none'}."


def turn_ended(turn: Turn, *, model: str, agent: str) -> TurnEnded:
    """The event of a finished turn, with what it cost."""
    return TurnEnded(
        agent=agent,
        text=turn.text,
        stop_reason=turn.stop_reason,
        model=model,
        cost_usd=cost_usd(model, turn.usage),
        **asdict(turn.usage),
    )


def _tool_returned(call: ToolCall, output: ToolOutput) -> ToolReturned:
    """The event of a tool that has run."""
    summary = next(iter(output.text.splitlines()), "")
    return ToolReturned(call_id=call.id, name=call.name, ok=not output.is_error, summary=summary)


REFUSED = "Nothing of your answer was written:"
AGAIN = "Send all files of the answer again, each whole."


def run_without_tools(
    conversation: Conversation, files: WholeFiles, *, model: Model, budget: Budget, emit: Emit, agent: str
) -> AgentRun:
    """Carry ``conversation`` on until an answer is written, or names no file, or ``budget`` is used up.

    How its last turn ended. Raises what ``model`` raises.
    """
    marks = Marks(conversation.token)
    used, told, number = 0, list[str](), 0
    while True:
        number += 1
        left = None if budget.max_tokens_total is None else budget.max_tokens_total - used
        one = replace(budget, max_turns=1, max_tokens_total=left)
        run = run_agent(conversation, (), model=model, budget=one, emit=emit, agent=agent)
        used += run.usage.total
        if run.end not in ("answered", "out_of_turns"):
            return run
        wrong = ""  # it has been told already: empty, or cut off
        if run.end == "answered":
            wrong = _wrong_with(run.text, files, marks=marks, number=number, emit=emit)
            if not wrong:
                return run
            conversation.say(wrong)
        told.append(wrong)
        if number == budget.max_turns or told.count(wrong) == budget.max_failed_turns:
            return run


def _wrong_with(text: str, files: WholeFiles, *, marks: Marks, number: int, emit: Emit) -> str:
    """What the model is told is wrong with its answer; empty once the files that it names, if any, are written."""
    try:
        blocks = parse(text)
    except UsageError as error:
        return f"{REFUSED} {error.happened} ({error.hint})\n{AGAIN}"
    refused = files.take(blocks)
    _tell(blocks, refused, number=number, emit=emit)
    return _refusal(refused, files=files, marks=marks) if refused else ""


def _refusal(refused: Sequence[Refusal], *, files: WholeFiles, marks: Marks) -> str:
    """What the model is told of blocks that cannot be written, with the files that it has to know first."""
    rows = [f"- {refusal.path}: {refusal.why}" for refusal in refused]
    parts = ["\n".join([REFUSED, *rows, AGAIN])]
    for refusal in refused:
        if refusal.must_be_given:
            try:
                parts.append(files.give([refusal.path], marks=marks))
            except UsageError as error:
                parts.append(f"{error.happened} Leave that file as it is.")
    return "\n\n".join(parts)


def _tell(blocks: Sequence[Block], refused: Sequence[Refusal], *, number: int, emit: Emit) -> None:
    """Emit one call for each block, as a tool that writes would have it."""
    why = {refusal.path: refusal.why for refusal in refused}
    for place, block in enumerate(blocks, start=1):
        call_id = f"block-{number}-{place}"
        emit(ToolCalled(call_id=call_id, name="Write", subject=block.path))
        lines = block.content.count("\n")
        told = f"{block.path}: {'1 line' if lines == 1 else f'{lines} lines'}"
        if refused:
            told = why.get(block.path, f"{block.path} waits for the other files of the answer")
        emit(ToolReturned(call_id=call_id, name="Write", ok=not refused, summary=told.split("\n", 1)[0]))
