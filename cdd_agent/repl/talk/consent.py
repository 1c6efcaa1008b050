"""Asking a person whether what an agent proposes is to be saved."""

from cdd_agent.repl.display.question import says_yes
from cdd_agent.repl.display.screen import Screen


def may_save(*, screen: Screen) -> bool:
    """Whether to save the change that was just shown, which is yes unless the answer is no.

    Raises ``KeyboardInterrupt`` where no answer comes.
    """
    return says_yes("Save this? [Y/n]", screen=screen, is_meant=True)
