"""What the doctor found, on a screen."""

from cdd_agent.doctor import Check
from cdd_agent.repl.screen import show_checks
from tests.fakes.demo import captured

WELL = Check(name="git", state="ok", told="git version 2.39.5")
ILL = Check(name="model", state="missing", told="There is no key.", fix="export ANTHROPIC_API_KEY=...")
NOTE = Check(name="sandbox", state="note", told="none", details=("NOT refused: change .git", "docker was not taken"))


def shown(*checks: Check, width: int = 80) -> tuple[bool, list[str]]:
    with captured(width) as (screen, stream):
        is_well = show_checks(checks, screen=screen)
    return is_well, stream.getvalue().splitlines()


def test_a_line_for_each_and_what_they_come_to() -> None:
    is_well, lines = shown(WELL, NOTE)
    assert is_well
    assert lines == [
        "✔ git          git version 2.39.5",
        "• sandbox      none",
        "               NOT refused: change .git",
        "               docker was not taken",
        "",
        "Everything that a run needs is there.",
    ]


def test_what_to_type_stands_below_what_is_missing() -> None:
    is_well, lines = shown(WELL, ILL)
    assert not is_well
    assert lines[1:3] == ["✘ model        There is no key.", "               fix: export ANTHROPIC_API_KEY=..."]
    assert lines[-1] == "1 problem, each with its fix."


def test_it_fits_a_narrow_terminal() -> None:
    long = Check(name="git", state="missing", told="word " * 30, fix="type " * 30)
    assert all(len(line) <= 50 for line in shown(long, width=50)[1])


def test_what_a_repository_says_is_cleaned() -> None:
    _, lines = shown(
        Check(name="git", state="ok", told="on \x1b[31mbranch\u202e", details=("\x07",), fix="\x1b]0;x\x07")
    )
    assert not any("\x1b" in line or "\x07" in line for line in lines)
