"""Every command does something."""

from cdd_agent.repl.actions import ACTIONS
from cdd_agent.repl.commands import COMMANDS


def test_every_command_of_the_help_has_an_action_and_no_other() -> None:
    assert [command.name for command in COMMANDS if command.name not in ACTIONS] == []
    assert set(ACTIONS) == {command.name for command in COMMANDS}
