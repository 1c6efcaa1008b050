"""The chat prompt: reads a line, hands it to a command or to the agent that listens, and never ends by an error."""

import time

from cdd_agent.errors import CddError, ExitCode
from cdd_agent.repl import crash
from cdd_agent.repl.actions.agents import speak, stopped
from cdd_agent.repl.actions.table import ACTIONS
from cdd_agent.repl.commands import at_prompt, parse
from cdd_agent.repl.crew import Crew
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.place import Place, Read
from cdd_agent.repl.render import WAITING
from cdd_agent.repl.sitting import Sitting

LEAVES_WITHIN_S = 2.0
"""A second Ctrl-C at the prompt within this time leaves."""


class Session:
    """One sitting at the prompt."""

    def __init__(self, crew: Crew, *, screen: Screen, read: Read, somebody_types: bool = True) -> None:
        """Nothing is asked before ``run``; lines that nobody types are a script, and what fails in it counts."""
        self._sitting = Sitting(crew, screen=screen)
        self._screen = screen
        self._read = read
        self._somebody_types = somebody_types

    @property
    def place(self) -> Place:
        """Where the user is now."""
        return self._sitting.place

    def run(self, *, first: str = "") -> ExitCode:
        """Handle ``first``, then line after line, until the user leaves.

        The exit code is that of ``first`` if it opened no conversation, or of the last line of a script that failed.
        """
        code, last_stop = ExitCode.DONE, -LEAVES_WITHIN_S
        if first:
            code = self.handle(first)
            if code != ExitCode.DONE and self._sitting.agent is None:
                return code
        while not self._sitting.is_over:
            if self._somebody_types:
                self._screen.gap()
                code = ExitCode.DONE
            try:
                line = self._read(self.place)
            except KeyboardInterrupt:
                if not self._somebody_types:
                    return ExitCode.INTERRUPTED
                if time.monotonic() - last_stop < LEAVES_WITHIN_S:
                    return ExitCode.INTERRUPTED
                last_stop = time.monotonic()
                told = "Ctrl-C again, Ctrl-D or /exit leaves; /help shows what to type."
                self._screen.line(told, style="dim", indent=0)
            except EOFError:
                break
            else:
                code = self.handle(line) or code
        return code

    def handle(self, line: str) -> ExitCode:
        """Carry out one line; whatever goes wrong becomes a message, and Ctrl-C ends only this line."""
        words = line.strip()
        try:
            with self._screen.working(WAITING):
                if words.startswith("/"):
                    command, argument = parse(words)
                    ACTIONS[command.name](self._sitting, argument)
                else:
                    speak(self._sitting, words)
        except CddError as error:
            return _tell(error, screen=self._screen)
        except KeyboardInterrupt:
            self._sitting.is_over = not self._somebody_types
            stopped(self._sitting, words)
            return ExitCode.INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 (a defect in one command must not end the session)
            outside = crash.of_the_system(error)
            if outside is not None:
                return _tell(outside, screen=self._screen)
            happened, hint = crash.explain(error, crash.keep(error))
            self._screen.error(happened, hint=hint)
            return ExitCode.INTERNAL
        return ExitCode.DONE


def _tell(error: CddError, *, screen: Screen) -> ExitCode:
    """Say what went wrong; its exit code."""
    screen.error(error.happened, hint=at_prompt(error.hint))
    return error.exit_code
