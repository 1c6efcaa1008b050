import re
from pathlib import Path

from cdd_agent.agent.tools.completion import completion_tool
from cdd_agent.agent.tools.files import file_tools
from cdd_agent.agent.tools.run_tests import run_tests_tool
from cdd_agent.agent.tools.search import search_tools
from cdd_agent.agent.tools.shell import shell_tool
from cdd_agent.sandbox.plain import PlainSandbox
from cdd_agent.sandbox.port import Access
from cdd_agent.workspace.files import Workspace

REFERENCE = Path(__file__).parents[4] / "docs" / "reference" / "tools.md"


def test_the_reference_names_every_tool_and_every_input_in_order(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    tools = [
        *file_tools(workspace, lambda _: None),
        *search_tools(workspace),
        shell_tool(PlainSandbox(), tmp_path, access=Access(read_write=(tmp_path,))),
        run_tests_tool(lambda _: ""),
        completion_tool(),
    ]
    offered = []
    for tool in tools:
        inputs = tool.spec.input_schema["properties"]
        assert isinstance(inputs, dict)
        offered.append((tool.spec.name, list(inputs)))
    sections = re.split(r"^## ", REFERENCE.read_text(encoding="utf-8"), flags=re.MULTILINE)[2:]
    documented = [
        (section.split("\n", 1)[0], re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) for section in sections
    ]
    assert documented == offered
