"""What both conversations work with, and how their system prompts are made."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.agent.loop import AgentRun, run_agent
from cdd_agent.agent.quoted import Marks
from cdd_agent.agent.tool import Tool
from cdd_agent.agent.tools.files import file_tools
from cdd_agent.agent.tools.search import search_tools
from cdd_agent.errors import BudgetSpent
from cdd_agent.events import Emit
from cdd_agent.model.conversation import Conversation, draw_token
from cdd_agent.model.port import Model
from cdd_agent.workspace.files import Workspace

PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A project that can be read, and a model to talk with."""

    workspace: Workspace
    model: Model
    budget: Budget
    """Of one answer."""
    emit: Emit
    may_save: Callable[[], bool] | None = None
    """Asks the developer, who has seen a change, whether to save it; None: nobody is there, and it is saved."""

    def conversation(self, agent: str, *, ticket: str) -> Conversation:
        """A new conversation; the prompt's last line names agent and ticket, by which a recording finds its turns."""
        role = (PROMPTS / f"{agent}.md").read_text(encoding="utf-8").strip()
        marks = Marks(draw_token())
        return Conversation(f"{role}\n\n{marks.rule}\n\nWork: {agent} {ticket}", token=marks.token)

    def ask(self, conversation: Conversation, *own: Tool, agent: str) -> AgentRun:
        """Let the model answer, with the reading tools and its ``own``; raises ``BudgetSpent`` if it never ends."""
        read, _write, _edit = file_tools(self.workspace, lambda _path: "A conversation changes no files.")
        tools: Sequence[Tool] = (read, *search_tools(self.workspace), *own)
        run = run_agent(conversation, tools, model=self.model, budget=self.budget, emit=self.emit, agent=agent)
        if run.end in {"out_of_turns", "out_of_tokens", "stuck"}:
            raise BudgetSpent(
                f"{agent} used {run.turns} turns and {run.calls} tool calls without coming to an answer.",
                hint="ask again in other words, or raise max_turns in .cdd/config.yaml",
            )
        return run
