"""What both conversations work with, and how their system prompts are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.agent.loop import AgentRun, run_agent
from cdd_agent.agent.quoted import Marks
from cdd_agent.agent.talk.compaction import compact, needs_compaction
from cdd_agent.agent.talk.enclosure import conventions
from cdd_agent.agent.talk.recall import Talk, without_thoughts
from cdd_agent.agent.talk.transcript import Transcript
from cdd_agent.agent.tool import Tool
from cdd_agent.agent.tools.files import file_tools
from cdd_agent.agent.tools.search import search_tools
from cdd_agent.errors import BudgetSpent
from cdd_agent.events import Emit
from cdd_agent.model.conversation import Conversation, Message, draw_token
from cdd_agent.model.port import Model
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import NO_MEMORY, Memory

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A project that can be read, and a model to talk with."""

    workspace: Workspace
    model: Model
    budget: Budget
    """Of one answer."""
    emit: Emit
    objection: Callable[[], str | None] | None = None
    """Asks the developer, who has seen a change, what speaks against saving it; None: nobody is there, it is saved."""
    memory: Memory = NO_MEMORY
    """Conventions of the project, with which every conversation begins."""
    transcript: Transcript | None = None
    """Keeps what is said for a later session; None: nobody would go on with it."""
    compact_at_percent: int = 0
    """How full of a conversation the model's context may be before a summary takes its place; 0: any."""

    def conversation(self, agent: str, *, ticket: str) -> Conversation:
        """A new conversation; the prompt's last line names agent and ticket, by which a recording finds its turns."""
        return self._conversation(agent, ticket=ticket, token=draw_token())

    def begun_anew(self, agent: str, *, ticket: str) -> Conversation:
        """A new conversation in the place of an earlier one, from now on also for a later session."""
        conversation = self.conversation(agent, ticket=ticket)
        self._copy(conversation, agent, ticket=ticket)
        return conversation

    def resumed(self, talk: Talk) -> Conversation:
        """A conversation of an earlier session, to be gone on with; the transcript has all of it from now on."""
        conversation = self._conversation(talk.agent, ticket=talk.ticket, token=talk.token, messages=talk.messages)
        self._copy(conversation, talk.agent, ticket=talk.ticket)
        return conversation

    def compacted(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """A conversation that begins with the conventions and a summary of ``conversation``; the model is asked."""
        summary = compact(conversation, model=self.model, emit=self.emit, agent=agent)
        shorter = self._conversation(agent, ticket=ticket, token=summary.token, messages=summary.messages)
        self._copy(shorter, agent, ticket=ticket)
        return shorter

    def fitting(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """``conversation``, or a summary of it in its place if it fills too much of the model's context."""
        is_long = needs_compaction(conversation.tokens, self.model.name, percent=self.compact_at_percent)
        return self.compacted(conversation, agent, ticket=ticket) if is_long else conversation

    def for_another_model(self, conversation: Conversation, agent: str, *, ticket: str) -> Conversation:
        """``conversation`` without thoughts, which only the model that had them can use."""
        messages = without_thoughts(conversation.messages)
        other = self._conversation(agent, ticket=ticket, token=conversation.token, messages=messages)
        self._copy(other, agent, ticket=ticket)
        return other

    def _conversation(self, agent: str, *, ticket: str, token: str, messages: tuple[Message, ...] = ()) -> Conversation:
        """A conversation with the role of ``agent``, what is said in it kept in the transcript."""
        role = (PROMPTS / f"{agent}.md").read_text(encoding="utf-8").strip()
        marks = Marks(token)
        keep = None
        if self.transcript is not None:
            keep = self.transcript.keeper(
                agent, ticket=ticket, model=lambda: self.model.name, token=token, is_begun=bool(messages)
            )
        return Conversation(
            f"{role}\n\n{marks.rule}\n\nWork: {agent} {ticket}",
            token=token,
            preface=conventions(self.memory, marks=marks),
            keep=keep,
            messages=messages,
        )

    def _copy(self, conversation: Conversation, agent: str, *, ticket: str) -> None:
        """Begin the transcript of ``conversation`` with what it has."""
        if self.transcript is not None:
            self.transcript.copy(conversation, agent, ticket=ticket, model=self.model.name)

    def ask(self, conversation: Conversation, *own: Tool, agent: str) -> AgentRun:
        """Let the model answer, with the reading tools and its ``own``; raises ``BudgetSpent`` if it never ends."""
        read, _write, _edit = file_tools(self.workspace, lambda _path: "A conversation changes no files.")
        tools: Sequence[Tool] = (read, *search_tools(self.workspace), *own)
        run = run_agent(conversation, tools, model=self.model, budget=self.budget, emit=self.emit, agent=agent)
        if run.end in {"out_of_turns", "out_of_tokens", "stuck"}:
            more = ", or raise max_turns in .cdd/config.yaml" if run.end == "out_of_turns" else ""
            again = "; nothing of the last ones worked" if run.end == "stuck" else ""
            raise BudgetSpent(
                f"{agent} used {run.turns} turns and {run.calls} tool calls without coming to an answer{again}.",
                hint=f"ask again in other words{more}",
            )
        return run
