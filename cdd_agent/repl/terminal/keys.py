"""What keys do at the prompt, beside what prompt_toolkit's emacs and vi modes know already."""

from collections.abc import Callable

from prompt_toolkit.application.run_in_terminal import run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import emacs_mode, has_focus, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from cdd_agent.errors import UsageError
from cdd_agent.repl.terminal.completion import completes_file, lacks_argument
from cdd_agent.repl.terminal.history import ProjectHistory
from cdd_agent.repl.terminal.paste import Pastes

CLEARED = "Cleared; the up arrow brings it back."


def prompt_keys(pastes: Pastes, history: ProjectHistory, *, say: Callable[[str], None]) -> KeyBindings:
    """The keys of the prompt; ``say`` shows a word to the user until the next key."""
    keys = KeyBindings()
    at_prompt = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=at_prompt)
    def _send(event: KeyPressEvent) -> None:
        if _may_send(event.current_buffer):
            event.current_buffer.validate_and_handle()

    @keys.add("c-j", filter=at_prompt)
    @keys.add("escape", "enter", filter=at_prompt & emacs_mode)
    def _break_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("<bracketed-paste>", filter=at_prompt)
    def _paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        event.current_buffer.insert_text(pastes.taken(text))

    @keys.add("c-c", filter=at_prompt)
    def _clear_or_stop(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if not buffer.text:
            event.app.exit(exception=KeyboardInterrupt(), style="class:aborting")
            return
        history.remember(buffer.text)
        buffer.reset()
        say(CLEARED)

    @keys.add("c-x", "c-e", filter=at_prompt)
    @keys.add("v", filter=at_prompt & vi_navigation_mode)
    def _edit(event: KeyPressEvent) -> None:
        event.app.create_background_task(_edit_in_terminal(event.current_buffer, pastes=pastes, say=say))

    return keys


def _may_send(buffer: Buffer) -> bool:
    """Whether Enter sends the line: not if it only takes a file from the menu, or a command that needs more."""
    is_chosen = buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    buffer.complete_state = None
    if not is_chosen:
        return True
    if lacks_argument(buffer.text):
        buffer.insert_text(" ")
        return False
    return not completes_file(buffer.document.text_before_cursor)


async def _edit_in_terminal(buffer: Buffer, *, pastes: Pastes, say: Callable[[str], None]) -> None:
    """Let the user edit the line, its pastes in full, in an editor of theirs."""
    from cdd_agent.repl.terminal.editor import edited

    def edit() -> None:
        text = edited(pastes.whole(buffer.text))
        buffer.document = Document(text, len(text))  # before any key that was pressed meanwhile is read

    try:
        await run_in_terminal(edit)
    except UsageError as error:
        say(f"{error.happened} {error.hint[:1].upper()}{error.hint[1:]}.")
