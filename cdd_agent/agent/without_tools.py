"""A run of an agent without tools: it answers with whole files in fenced blocks, which are written all or not at all.

What is wrong with an answer goes back to the model as a message, until an answer is right, or names no file, or a
limit is reached; the same thing wrong for the third time is a limit too. An answer that names no file changes nothing,
whatever it says.
"""

from collections.abc import Sequence
from dataclasses import replace

from cdd_agent.agent.editing.blocks import Block, parse
from cdd_agent.agent.editing.whole_files import Refusal, WholeFiles
from cdd_agent.agent.limits.budget import Budget
from cdd_agent.agent.loop import AgentRun, run_agent
from cdd_agent.agent.quoted import Marks
from cdd_agent.errors import UsageError
from cdd_agent.events import Emit, ToolCalled, ToolReturned
from cdd_agent.model.conversation import Conversation
from cdd_agent.model.port import Model

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
