"""What the tools for definitions would cost and save in the recorded attempts after the first one.

Their descriptions are part of each request. In return, an edit need not quote what it replaces, and a definition can be
read without its file.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from cdd_agent.agent.editing import KnownFiles
from cdd_agent.agent.symbol_tools import make_symbol_tools
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.workspace.files import Workspace

Recorded: TypeAlias = dict[str, Any]
STORIES = ("csv-export", "ml-library")
_AGAIN = re.compile(r"attempt ([2-9]|\d\d)\b")
_EXAMPLES = Path(__file__).parents[2] / "tickets.example"


@dataclass
class Cost:
    """Bytes and calls of one story."""

    requests: int = 0
    edits: int = 0
    edit_bytes: int = 0
    body_bytes: int = 0
    """Of the same changes by ReplaceSymbolBody."""
    reads: int = 0
    read_bytes: int = 0


def _count_bytes(value: object) -> int:
    return len(json.dumps(value))


def _iterate_calls(story: str) -> Iterator[tuple[bool, Recorded]]:
    """Yield the calls of attempts after the first one, and whether each is the first of its request."""
    for turn in msgspec.yaml.decode((_EXAMPLES / story / "recording.yaml").read_bytes(), type=list[Recorded]):
        if _AGAIN.search(str(turn.get("when", ""))):
            calls = [each for each in turn["content"] if isinstance(each, dict) and each.get("type") == "tool_use"]
            yield from ((at == 0, call) for at, call in enumerate(calls))


def _find_body(text: str, new: str) -> tuple[str, str] | None:
    """Return name and body of the one function whose lines contain the new text of an edit."""
    at = text.find(new)
    if at < 0:
        return None
    first = text[:at].count("\n") + 1
    last = first + new.count("\n")
    found = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= last and (node.end_lineno or 0) >= first
    ]
    if len(found) != 1:
        return None
    lines = text.split("\n")[found[0].body[0].lineno - 1 : found[0].end_lineno]
    return found[0].name, "\n".join(lines)


def measure(story: str, folder: Path) -> Cost:
    """Count what the attempts of a story cost, with the files as the story leaves them."""
    cost = Cost()
    for is_first, call in _iterate_calls(story):
        cost.requests += is_first
        fields = call["input"]
        path = folder / str(fields.get("file_path", "-"))
        text = path.read_text() if path.is_file() and path.suffix == ".py" else ""
        if call["name"] == "Read":
            cost.reads += 1
            cost.read_bytes += len(text)
        elif call["name"] == "Edit" and (found := _find_body(text, str(fields["new_string"]))) is not None:
            cost.edits += 1
            cost.edit_bytes += _count_bytes(fields)
            cost.body_bytes += _count_bytes({"file_path": fields["file_path"], "name": found[0], "body": found[1]})
    return cost


def count_descriptions(folder: Path) -> int:
    """Return the bytes of the tools' descriptions in a request."""
    symbols = Symbols(Index(folder))
    tools = make_symbol_tools(symbols, Workspace(folder), may_write=lambda _: None, known=KnownFiles())
    return sum(_count_bytes(msgspec.to_builtins(tool.spec)) for tool in tools)


def show(folder: Path) -> bool:
    """Print the figures of each story."""
    print("\nsymbol tools: the attempts after the first one, as recorded and with the tools for definitions")
    described = count_descriptions(folder)
    print(f"  the descriptions of the tools: {described} bytes a request")
    for story in STORIES:
        kept = folder / story
        command = [sys.executable, "-m", "cdd_agent", "demo", story, "--keep", str(kept)]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
        cost = measure(story, kept)
        print(
            f"  {story}: {cost.requests} requests, {cost.requests * described} bytes of descriptions; "
            f"{cost.edits} edits of one function: {cost.edit_bytes} bytes by Edit, {cost.body_bytes} by "
            f"ReplaceSymbolBody; {cost.reads} reads: {cost.read_bytes} bytes"
        )
    return True
