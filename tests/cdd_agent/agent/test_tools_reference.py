import re
from pathlib import Path

import pytest

from cdd_agent.agent.editing import KnownFiles
from cdd_agent.agent.symbol_tools import make_symbol_tools
from cdd_agent.agent.tools import (
    Tool,
    make_bash_tool,
    make_blocked_tool,
    make_completion_tool,
    make_file_tools,
    make_run_tests_tool,
    make_search_tools,
)
from cdd_agent.conversation.architect import Architect, LibraryDescription
from cdd_agent.conversation.dialog import Dialog
from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import GateClosed
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.localize import LocalizationLog, Localizer, Round
from cdd_agent.generation.plan import list_open
from cdd_agent.generation.search import GraphSearch
from cdd_agent.model.budget import Budget
from cdd_agent.model.conversation import ToolSpec
from cdd_agent.sandbox.port import Access
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.tdd.tools import make_answer_tool
from cdd_agent.tickets import ticket as tickets
from cdd_agent.workspace.files import Workspace
from tests.fakes.clock import FakeClock
from tests.fakes.graphs import leaf, make_graph
from tests.fakes.model import ScriptedModel, says

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "tools.md"


def make_localization_tools(folder: Path) -> tuple[Tool, ...]:
    """The tools that say where a fault may be."""
    graph = make_graph(leaf("sell"))
    return Round(
        localizer=Localizer(graph, Layout.of(graph, "app"), search=lambda: GraphSearch(graph)),
        node=graph.leaves[0],
        number=2,
        log=LocalizationLog(folder / "log.json", clock=FakeClock()),
        definitions=Index(folder),
        workspace=Workspace(folder),
        status_of=lambda _: "pending",
    ).make_tools()


def of_conversations(workspace: Workspace) -> list[ToolSpec]:
    """The tools that only Socrates, the Planner or the Architect has, in the form that a model gets."""
    ticket = tickets.create(workspace.root, "sale", title="A sale", type="feature")
    model = ScriptedModel([says("For whom?"), *[says("No.")] * 3])
    dialog = Dialog(workspace=workspace, model=model, budget=Budget(), emit=lambda _: None)
    Socrates(ticket, dialog=dialog).open(somebody_answers=True)
    ticket.spec_path.write_text("title: A sale\ndescription: d\nacceptance_criteria:\n- THE SYSTEM SHALL sell\n")
    with pytest.raises(GateClosed):
        Planner(ticket, dialog=dialog, max_drafts=1).draft()
    architect = Architect(dialog=dialog.of("architect"), max_drafts=1)
    with pytest.raises(GateClosed):
        architect.draft(LibraryDescription(text="A sale", source="words"), find_problems=list_open, show=lambda _: None)
    architect.answer(make_graph(leaf("sell")), find_open=list_open)
    return [tool for request in model.requests for tool in request.tools if tool.name not in ("Read", "Glob", "Grep")]


def test_the_reference_names_every_tool_and_every_input_in_order(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tools = [
        *make_file_tools(workspace, lambda _: None),
        *make_search_tools(workspace),
        make_bash_tool(PlainSandbox(), tmp_path, access=Access(read_write=(tmp_path,))),
        make_run_tests_tool(lambda _: ""),
        make_completion_tool(),
        make_blocked_tool(),
        make_answer_tool(lambda _: None),
    ]
    offered = []
    symbols = Symbols(Index(tmp_path))
    of_symbols = make_symbol_tools(symbols, workspace, may_write=lambda _: None, known=KnownFiles())
    further = (tool.spec for tool in (*make_localization_tools(tmp_path), *of_symbols))
    for tool in (*(tool.spec for tool in tools), *of_conversations(workspace), *further):
        inputs = tool.input_schema["properties"]
        assert isinstance(inputs, dict)
        offered.append((tool.name, list(inputs)))
    sections = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[2:]
    documented = [
        (section.split("\n", 1)[0], re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) for section in sections
    ]
    assert documented == offered
