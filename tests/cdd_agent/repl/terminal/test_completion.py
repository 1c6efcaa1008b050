"""Completion offers commands, then tickets, and leaves plain words alone."""

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from cdd_agent.repl.terminal.completion import CommandCompleter


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/st", ["status"]),
        ("/s", ["spec", "status"]),
        ("/exec ", ["csv-export", "csv-import"]),
        ("/exec csv-i", ["csv-import"]),
        ("/new c", []),
        ("/help ", []),
        ("csv", []),
        ("", []),
    ],
)
def test_what_can_follow_is_offered(typed: str, offered: list[str]) -> None:
    completer = CommandCompleter(lambda: ["csv-export", "csv-import"])
    found = completer.get_completions(Document(typed), CompleteEvent())
    assert [completion.text for completion in found] == offered
