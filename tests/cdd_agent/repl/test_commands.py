"""What is typed after a slash, and to the Executor."""

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.repl.commands import COMMANDS, as_prompt_command, list_help, match_executor_word, parse_command


def test_a_command_is_its_name_and_the_rest_of_the_line() -> None:
    command, argument = parse_command("/new export-as-csv  Export as CSV ")
    assert (command.name, argument) == ("new", "export-as-csv  Export as CSV")


def test_the_beginning_of_a_name_is_enough_if_no_other_begins_so() -> None:
    assert parse_command("/stat csv-export")[0].name == "status"


@pytest.mark.parametrize(("line", "meant"), [("/spek", "/spec"), ("/stauts", "/status"), ("/ex", "/exec or /exit")])
def test_an_unknown_command_names_the_nearest(line: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_command(line)
    assert f"did you mean {meant}?" in refused.value.hint


@pytest.mark.parametrize("line", ["/", "/qqqq"])
def test_where_nothing_is_near_the_help_is(line: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_command(line)
    assert refused.value.hint == "/help lists the commands"


@pytest.mark.parametrize(
    ("words", "word"),
    [("", "continue"), (" N ", "continue"), ("next", "continue"), ("r", "retry"), ("st", "status"), ("what?", None)],
)
def test_the_executor_listens_to_words_and_their_short_forms(words: str, word: str | None) -> None:
    assert match_executor_word(words) == word


def test_a_hint_names_commands_as_they_are_typed_here() -> None:
    assert as_prompt_command("make it with: cdd new x") == "make it with: /new x"
    assert as_prompt_command("cdd exec x --retry 2") == "cdd exec x --retry 2"
    assert as_prompt_command("cdd schema") == "cdd schema"


def test_help_names_every_command() -> None:
    typed = " ".join(line for line, _ in list_help())
    assert [command.name for command in COMMANDS if f"/{command.name}" not in typed] == []
