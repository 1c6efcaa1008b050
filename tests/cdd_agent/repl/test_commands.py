"""What is typed after a slash, and to the Executor."""

from pathlib import Path

import pytest

from cdd_agent.cli.app import cdd, run
from cdd_agent.errors import UsageError
from cdd_agent.git.repository import Repository
from cdd_agent.repl.commands import (
    COMMANDS,
    IN_SHELL,
    as_prompt_command,
    as_shell_command,
    find_command_within,
    is_guidance,
    is_question,
    list_help,
    match_executor_word,
    parse_command,
    parse_executor_line,
)
from tests.fakes.demo import ProjectCrew, captured, open_session


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
    assert as_prompt_command("cdd review x, or: git log --oneline") == "/review x, or: git log --oneline"


def test_help_names_every_command() -> None:
    typed = " ".join(line for line, _ in list_help())
    assert [command.name for command in COMMANDS if f"/{command.name}" not in typed] == []


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("", ("continue", None, "")),
        (" R ", ("retry", None, "")),
        ("retry 2", ("retry", 2, "")),
        ("retry step 2", ("retry", 2, "")),
        ("r #2 use the csv module", ("retry", 2, "use the csv module")),
        ("retry use the csv module", ("retry", None, "use the csv module")),
        ("retry 2nd time lucky", ("retry", None, "2nd time lucky")),
        ("skip 3", ("skip", 3, "")),
        ("split step 2 by file", ("split", 2, "by file")),
        ("split the parser in two", ("", None, "split the parser in two")),
        ("commit fix it", ("commit", None, "fix it")),
        ("use the csv module", ("", None, "use the csv module")),
        ("keep the old name", ("", None, "keep the old name")),
        ("no, 2 spaces", ("", None, "no, 2 spaces")),
    ],
)
def test_a_line_for_the_executor_is_a_word_of_its_or_guidance(line: str, meant: tuple[str, int | None, str]) -> None:
    assert parse_executor_line(line) == meant
    assert is_guidance(line) is (not meant[0])


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("contine", "did you mean continue?"),
        ("status 2", "Type one of: continue (or Enter)"),
        ("skip the docs", "for example: skip 2"),
        ("retry two", "for example: retry 2"),
        ("split x", "for example: split 2"),
        ("whatever", "or a sentence for the model"),
    ],
)
def test_a_line_that_is_neither_is_refused_with_the_words_to_type(line: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_executor_line(line)
    assert hint in refused.value.hint
    assert not is_guidance(line)


def test_commands_are_no_guidance() -> None:
    assert not is_guidance("/plan split step 2")
    assert not is_guidance("use tabs, then /undo")
    assert not is_guidance("!make clean all")


def test_a_hint_is_what_the_reader_can_type_at_the_prompt_and_in_a_shell() -> None:
    assert {command.name for command in COMMANDS} & set(cdd.commands) == IN_SHELL
    in_shell = "did you mean: cdd new SLUG"
    assert as_shell_command(in_shell) == in_shell
    assert as_prompt_command(as_shell_command("create one: /new SLUG")) == "create one: /new SLUG"
    assert as_shell_command("continue: /resume 20260101-120000-abc") == "continue: cdd --resume 20260101-120000-abc"
    assert as_prompt_command("continue: cdd --resume 20260101-120000-abc") == "continue: /resume 20260101-120000-abc"
    assert as_shell_command("rm -r /tmp/new; ls /status/x ./plan") == "rm -r /tmp/new; ls /status/x ./plan"


def test_an_error_outside_of_the_prompt_names_shell_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Repository.create(tmp_path)
    with captured() as (screen, stream):
        session = open_session(ProjectCrew(tmp_path, screen=screen), screen=screen, read=lambda _: "/exit")
        session.run(first="/review nope")
        outside = stream.getvalue()
        session.run(first="")
        session.handle("/review nope")
    assert "cdd new" in outside
    assert "cdd new" not in stream.getvalue()[len(outside) :]
    assert "/new" in stream.getvalue()[len(outside) :]
    assert run(["--project", str(tmp_path), "spec", "nope", "--yes"]) == 2
    assert "cdd new" in capsys.readouterr().err


def test_a_command_behind_other_words_is_found_but_no_path_and_no_quotation() -> None:
    rows = {
        "q/fork merge x": "/fork merge x",
        "continue /undo": "/undo",
        "continue, /undo now": "/undo now",
        "skip 2 /fork merge x": "/fork merge x",
        "c/und": "/und",
        "yes/exit now": "/exit now",
        "use tabs /undo": "/undo",
        "quit;/exit": "/exit",
        "not src/review/ but /review": "/review",
        "commit fix /undo handling": "/undo handling",
        "/undo": None,
        "yes/or no": None,
        "retry 2 write to /tmp/x": None,
        "put it in docs/new": None,
        "see https://x/status": None,
        'the route `/status` and "/new"': None,
        "a / b": None,
    }
    assert {line: find_command_within(line) for line in rows} == rows
    assert is_question("what does /undo do?")
