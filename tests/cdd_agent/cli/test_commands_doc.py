"""docs/reference/commands.md says what the program says.

``python -m tests.cdd_agent.cli.test_commands_doc`` writes the help texts into it, and that of ``cdd`` into the file
that is printed before anything is loaded.
"""

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from cdd_agent.cli.app import cdd
from cdd_agent.repl.commands import COMMANDS, EXECUTOR_WORDS
from tests.fakes.cases import soak_after
from tests.fakes.program import ROOT

PAGE = ROOT / "docs" / "reference" / "commands.md"
KEPT = ROOT / "cdd_agent" / "cli" / "help.txt"
BY_CLICK = "from cdd_agent.cli.app import run; run(['--help'])"
DO = "run: python -m tests.cdd_agent.cli.test_commands_doc"
_BLOCK = re.compile(r"(<!-- help: (?P<name>[a-z ]+) -->\n```text\n).*?(```\n)", re.DOTALL)


def help_texts() -> Mapping[str, str]:
    """Command as it is typed -> what ``--help`` prints."""
    context = cdd.make_context("cdd", [], resilient_parsing=True, terminal_width=80)
    texts = {"cdd": cdd.get_help(context)}
    for name, command in cdd.commands.items():
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        texts[f"cdd {name}"] = command.get_help(inner)
    return texts


def help_on_a_terminal() -> str:
    """What ``cdd --help`` prints on a terminal of 80 columns or more."""
    return cdd.get_help(cdd.make_context("cdd", [], resilient_parsing=True, terminal_width=78)) + "\n"


def written(page: str) -> str:
    """``page`` with the help texts of the program."""
    texts = help_texts()
    return _BLOCK.sub(lambda block: f"{block[1]}{texts[block['name']]}\n{block[3]}", page)


def test_the_help_texts_on_the_page_are_the_program_s() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), DO


def test_the_help_that_is_kept_is_the_program_s() -> None:
    assert KEPT.read_text(encoding="ascii") == help_on_a_terminal(), DO


@soak_after(1, "columns", ["50", "79", "80", "120"])
def test_help_is_the_program_s_at_any_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    by_click = subprocess.run([sys.executable, "-c", BY_CLICK], cwd=ROOT, capture_output=True, text=True, check=True)
    program = [sys.executable, "-m", "cdd_agent", "--help"]
    assert subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout == by_click.stdout


@pytest.mark.parametrize("name", ["cdd", *(f"cdd {name}" for name, each in cdd.commands.items() if not each.hidden)])
def test_every_command_stands_on_the_page(name: str) -> None:
    assert f"<!-- help: {name} -->" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_slash_command_stands_on_the_page_as_help_shows_it(command: object) -> None:
    name, argument = getattr(command, "name", ""), getattr(command, "argument", "")
    assert f"| `{f'/{name} {argument}'.strip()}` |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("word", EXECUTOR_WORDS)
def test_every_word_of_the_executor_stands_on_the_page(word: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{said}`" in page for said in (word, *filter(None, EXECUTOR_WORDS[word])))


if __name__ == "__main__":
    KEPT.write_text(help_on_a_terminal(), encoding="ascii")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
