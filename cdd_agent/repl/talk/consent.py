"""Asking a person whether what an agent proposes is to be saved."""

from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.terminal.typed_ahead import forget_typed_ahead


def objection(*, screen: Screen) -> str | None:
    """What the developer has against saving the change that was just shown, in their words, which may be none at all.

    None: it is to be saved, which Enter says too. Raises ``KeyboardInterrupt`` where no answer comes.
    """
    forget_typed_ahead()
    while True:
        said, _, why = screen.ask("Save this? [Y/n, or n and why]").strip().partition(" ")
        match said.lower().rstrip(",:"):
            case "" | "y" | "yes":
                return None
            case "n" | "no":
                return why.strip()
        screen.line("Enter saves it; n and your words say what should be different.", indent=0)
