"""The page on events names each line and its keys. ``python -m tests.cdd_agent.test_events_doc`` writes its tables."""

import re
from typing import get_args

import msgspec

from cdd_agent.events import Answer, Event
from tests.fakes.program import ROOT

PAGE = ROOT / "docs" / "reference" / "events.md"
_START, _END = "<!-- {} -->\n\n", "\n<!-- end -->"


def format_rows(kinds: tuple[type[msgspec.Struct], ...]) -> str:
    rows = ["| event | meaning | keys |", "|---|---|---|"]
    for kind in kinds:
        first = (kind.__doc__ or "").partition("\n")[0].replace("``", "`")
        rows.append(f"| `{kind.__name__}` | {first} | {' '.join(f'`{name}`' for name in kind.__struct_fields__)} |")
    return "\n".join(rows) + "\n"


def write_tables(text: str) -> str:
    for name, kinds in (("events", get_args(Event)), ("answers", get_args(Answer))):
        before, start, rest = text.partition(_START.format(name))
        text = before + start + format_rows(kinds) + rest[rest.index(_END) :]
    return text


def test_the_page_names_each_line_with_its_keys() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == write_tables(text), "update it: python -m tests.cdd_agent.test_events_doc"


def test_no_command_prints_a_line_that_the_page_lacks() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "cdd_agent").rglob("*.py"))
    named = set(re.findall(r'"event": "([A-Z]\w+)"', sources)) - {"GateJudged"}  # an example in a docstring
    assert len(named) > 5
    assert all(f"| `{name}` |" in PAGE.read_text(encoding="utf-8") for name in named)


if __name__ == "__main__":
    PAGE.write_text(write_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
