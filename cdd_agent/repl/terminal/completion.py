"""Completion at the prompt: slash commands with their help, then the slugs of the project's tickets."""

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from cdd_agent.repl.commands import COMMANDS


class CommandCompleter(Completer):
    """Completes a line that begins with a slash; leaves plain words alone."""

    def __init__(self, slugs: Callable[[], Iterable[str]]) -> None:
        """``slugs`` is asked each time, so that new tickets are there at once."""
        self._slugs = slugs

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can follow the text before the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/"):
            return
        name, blank, argument = text[1:].partition(" ")
        if not blank:
            for command in COMMANDS:
                if command.name.startswith(name):
                    yield Completion(
                        command.name,
                        start_position=-len(name),
                        display=f"/{command.name} {command.argument}",
                        display_meta=command.help,
                    )
            return
        if any(command.name == name and command.takes_slug for command in COMMANDS):
            for slug in self._slugs():
                if slug.startswith(argument):
                    yield Completion(slug, start_position=-len(argument))
