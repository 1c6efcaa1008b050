"""Asking a person whether what an agent proposes is to be saved."""

from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.terminal.typed_ahead import forget_typed_ahead


def may_save(*, screen: Screen) -> bool:
    """Whether to save the change that was just shown, which is yes unless the answer is no.

    Raises ``KeyboardInterrupt`` where no answer comes.
    """
    forget_typed_ahead()
    while True:
        try:
            said = screen.ask("Save this? [Y/n]").strip().lower()
        except EOFError as error:
            raise KeyboardInterrupt from error
        if said in {"y", "yes", "n", "no", ""}:
            return said not in {"n", "no"}
