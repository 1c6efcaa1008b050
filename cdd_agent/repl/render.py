"""Events as lines on a terminal, printed as they happen; nothing that was printed is ever drawn over."""

import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from cdd_agent.events import (
    AttemptStarted,
    Committed,
    Event,
    GateJudged,
    Notice,
    PlanDrafted,
    RetryScheduled,
    RolledBack,
    RunFinished,
    RunStarted,
    SpecSaved,
    StepFinished,
    StepStarted,
    SuiteFinished,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from cdd_agent.repl.clean import clean

_SYMBOLS = {"open": "✔", "closed": "✘", "tool": "→", "commit": "●", "back": "↶", "note": "•", "cut": "…"}
_ASCII = {"open": "+", "closed": "x", "tool": ">", "commit": "*", "back": "<", "note": "-", "cut": "~"}
_PHASE_STYLE = {"red": "red", "green": "green", "refactor": "blue"}
_STATUS_STYLE = {"completed": "bold green", "failed": "bold red", "skipped": "yellow"}


class Screen:
    """Prints events; its ``write`` is an ``Emit``."""

    def __init__(self, stream: TextIO = sys.stdout, *, color: bool | None = None) -> None:
        """``color`` None: as the terminal and ``NO_COLOR`` say."""
        self.console = Console(
            file=stream,
            no_color=None if color is None else not color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
        self._symbols = _SYMBOLS if _can_encode(stream) else _ASCII
        self._indent = 0
        self._is_mid_line = False

    def write(self, event: Event) -> None:
        """Print one event."""
        match event:
            case TextDelta(text=text):
                self._stream(text)
            case TurnEnded():
                self._end_line()
            case ToolCalled() | ToolReturned():
                self._tool(event)
            case SuiteFinished():
                self._suite(event)
            case GateJudged():
                self._verdict(event)
            case Committed(commit=commit, subject=subject):
                self.line(f"{self._symbols['commit']} {commit[:8]}  {subject}", style="bold")
            case RolledBack(kept=kept, why=why):
                self.line(
                    f"{self._symbols['back']} {why}: files are back at the checkpoint; kept: {kept}", style="yellow"
                )
            case Notice(text=text):
                self.line(f"{self._symbols['note']} {text}", style="yellow")
            case RetryScheduled(why=why, wait_s=wait, number=number, limit=limit):
                self.line(f"{self._symbols['note']} {why}; try {number} of {limit} in {wait:g} s", style="yellow")
            case SpecSaved() | PlanDrafted():
                self._document(event)
            case RunStarted() | RunFinished() | StepStarted() | StepFinished() | AttemptStarted():
                self._progress(event)
            case _:
                pass

    def line(self, text: str, *, style: str = "", indent: int | None = None) -> None:
        """Print ``text`` at the present indentation, wrapped at the width of the terminal."""
        self._end_line()
        depth = self._indent if indent is None else indent
        width = max(20, self.console.width - depth)
        for part in Text(clean(text), style=style).wrap(self.console, width) or [Text()]:
            part.rstrip()
            self.console.print(Text(" " * depth if part else "") + part, soft_wrap=True)

    def _stream(self, text: str) -> None:
        """Print a piece of the model's text where the last one ended."""
        margin = " " * self._indent
        shown = clean(text).replace("\n", f"\n{margin}")
        if not self._is_mid_line:
            shown = margin + shown.lstrip("\n")
        self.console.print(Text(shown, style="italic" if self._indent else ""), end="", soft_wrap=True)
        self._is_mid_line = True

    def _end_line(self) -> None:
        """Go to a fresh line if text stands on this one."""
        if self._is_mid_line:
            self.console.print()
            self._is_mid_line = False

    def _tool(self, event: ToolCalled | ToolReturned) -> None:
        """One line for a tool as it begins, and its error below it if it has one."""
        if isinstance(event, ToolReturned):
            if not event.ok:
                self.line(event.summary, style="red", indent=self._indent + 2)
            return
        subject = " ".join(event.subject.split())
        room = max(20, self.console.width - self._indent - len(event.name) - 4)
        shown = subject if len(subject) <= room else subject[: room - 1] + self._symbols["cut"]
        self.line(f"{self._symbols['tool']} {event.name} {shown}".rstrip(), style="dim")

    def _suite(self, event: SuiteFinished) -> None:
        """Counts of a test run."""
        if event.problem is not None:
            self.line(f"{self._symbols['closed']} {event.purpose}: {event.problem}", style="red")
            return
        errors = "error" if event.errors == 1 else "errors"
        counts = {"passed": event.passed, "failed": event.failed, errors: event.errors, "skipped": event.skipped}
        told = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test was collected"
        told = f"{event.purpose}: {told} in {event.duration_s:.1f} s"
        self.line(f"{self._symbols['tool']} {told}", style="dim")

    def _verdict(self, event: GateJudged) -> None:
        """A gate's answer with its reasons."""
        word = "open" if event.open else "closed"
        style = "bold green" if event.open else "bold red"
        self.line(f"{self._symbols[word]} {event.phase.upper()} gate {word}: {event.evidence}", style=style)
        for reason in event.reasons:
            self.line(reason, style="red", indent=self._indent + 2)

    def _document(self, event: SpecSaved | PlanDrafted) -> None:
        """What became of a spec or a plan."""
        match event:
            case SpecSaved(changed=changed, missing=missing):
                still = f"; still missing: {', '.join(missing)}" if missing else "; complete"
                self.line(
                    f"{self._symbols['open']} spec saved ({', '.join(changed) or 'no change'}){still}", style="green"
                )
            case PlanDrafted(number=number, problems=()):
                self.line(f"{self._symbols['open']} plan draft {number} accepted and saved", style="green")
            case PlanDrafted(number=number, problems=problems):
                self.line(f"{self._symbols['closed']} plan draft {number} refused", style="bold red")
                for problem in problems:
                    self.line(problem, style="red", indent=self._indent + 2)

    def _progress(self, event: RunStarted | RunFinished | StepStarted | StepFinished | AttemptStarted) -> None:
        """Where the run is."""
        match event:
            case RunStarted(workflow=workflow, ticket=ticket, model=model, sandbox=sandbox):
                self._indent = 0
                self.line(f"{workflow} {ticket}  (model {model}, sandbox {sandbox})", style="dim")
            case RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=duration):
                self._indent = 0
                self.line(f"{workflow} {ticket}: {status} in {duration:.0f} s", style=_STATUS_STYLE.get(status, "bold"))
            case StepStarted(number=number, total=total, title=title):
                self._indent = 0
                self.line("")
                self.line(f"Step {number}/{total}  {title}", style="bold")
            case StepFinished(number=number, status=status, error=error):
                self._indent = 2
                told = f": {error}" if error else ""
                self.line(f"Step {number} {status}{told}", style=_STATUS_STYLE.get(status, ""))
                self._indent = 0
            case AttemptStarted(phase=phase, number=number, limit=limit):
                self._indent = 2
                self.line(f"{phase.upper()} attempt {number} of {limit}", style=_PHASE_STYLE.get(phase, ""))
                self._indent = 4


def _can_encode(stream: TextIO) -> bool:
    """Whether the stream can write our symbols."""
    try:
        "".join(_SYMBOLS.values()).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
