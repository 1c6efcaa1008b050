"""Events as lines on a screen, printed as they happen."""

from rich.text import Text

from cdd_agent.events import (
    AttemptStarted,
    ClaimChecked,
    Committed,
    Compacted,
    Event,
    GateJudged,
    HandoffsAudited,
    Notice,
    PlanDrafted,
    QuestionAsked,
    RetryScheduled,
    RolledBack,
    RunFinished,
    RunStarted,
    SpecProposed,
    SpecSaved,
    StepFinished,
    StepListed,
    StepReviewed,
    StepStarted,
    SuiteFinished,
    SuiteStarted,
    TextDelta,
    ThinkingDelta,
    TicketListed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from cdd_agent.events.past import HandoffListed, NoteDamaged, NoteRepaired, NotesRepaired, RollbackPlanned, RunStanding
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen

_PHASE_STYLE = {"red": "bold red", "green": "bold green", "refactor": "bold blue"}

WAITING = "waiting for the model"
SAVING = "saving"
ASKS_DEVELOPER = "AskDeveloper"
"""The tool whose question is shown for itself, set off, once the turn is over."""
COMMAND_WENT_WELL = "exit status 0"
"""What Bash answers first, and nobody needs to see."""


def reason_text(reason: str) -> Text:
    """One reason of a gate: its code set off from its message."""
    code, colon, message = clean(reason).partition(": ")
    return Text.assemble((code, "bold red"), colon, message)


class Renderer:
    """Prints events; its ``write`` is an ``Emit``."""

    def __init__(self, screen: Screen) -> None:
        """Nothing is printed yet."""
        self._screen = screen
        self._header = ""
        self._steps = 0
        self._unit = "Step"
        self._is_in_tool = False

    def write(self, event: Event) -> None:
        """Print one event."""
        match event:
            case TextDelta(text=text):
                self._screen.stream(text)
            case ThinkingDelta():
                self._screen.say("the model is thinking")
            case TurnEnded():
                self._screen.end_prose()
            case ToolCalled() | ToolReturned() | SuiteStarted() | SuiteFinished():
                self._tool(event)
            case GateJudged():
                self._verdict(event)
            case Committed(commit=commit, subject=subject):
                self._screen.line(f"{self._screen.symbols['commit']} {commit[:8]}  {subject}", style="bold", hang=2)
            case RolledBack() | Notice() | RetryScheduled() | Compacted():
                self._remark(event)
            case QuestionAsked(question=question, options=options):
                self._question(question, options)
            case SpecProposed() | SpecSaved() | PlanDrafted():
                self._document(event)
            case RunStarted() | RunFinished() | StepStarted() | StepFinished() | AttemptStarted():
                self._progress(event)
            case (StepReviewed() | TicketListed() | StepListed() | ClaimChecked() | HandoffsAudited()) | (
                HandoffListed() | RunStanding() | RollbackPlanned() | NoteDamaged() | NoteRepaired() | NotesRepaired()
            ):
                pass  # shown by whoever was asked for it

    def _tool(self, event: ToolCalled | ToolReturned | SuiteStarted | SuiteFinished) -> None:
        """One line for a tool or a test run, and below it what came of it, if that is worth a line."""
        match event:
            case ToolCalled(name=name, subject=subject):
                self._is_in_tool = True
                if name == ASKS_DEVELOPER:
                    return
                self._screen.line(self._cut(f"{self._screen.symbols['tool']} {name} {' '.join(subject.split())}"))
                self._screen.say(f"{name} {' '.join(subject.split())}")
            case ToolReturned(ok=ok, summary=summary):
                self._is_in_tool = False
                if not ok or (event.name == "Bash" and summary != COMMAND_WENT_WELL):
                    style = "dim" if ok else "red"
                    self._screen.line(summary, style=style, indent=self._screen.indent + 2, hang=2)
                self._screen.say(WAITING)
            case SuiteStarted(purpose=purpose, framework=framework):
                self._screen.say(f"{framework}: {purpose}")
            case SuiteFinished():
                self._suite(event)
                self._screen.say(WAITING)

    def _cut(self, told: str) -> Text:
        """``told`` as one row."""
        row = Text(clean(told).rstrip(), style="dim")
        width = self._screen.console.width - self._screen.indent
        if row.cell_len > width:
            row.truncate(width - 1)
            row.append(self._screen.symbols["cut"])
        return row

    def _suite(self, event: SuiteFinished) -> None:
        """The counts of a test run, below the tool that ran it or on a line of its own."""
        errors = "error" if event.errors == 1 else "errors"
        counts = {"passed": event.passed, "failed": event.failed, errors: event.errors, "skipped": event.skipped}
        told = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test was collected"
        told = event.problem or f"{told} in {event.duration_s:.1f} s"
        style = "dim" if event.problem is None else "red"
        if self._is_in_tool:
            self._screen.line(told, style=style, indent=self._screen.indent + 2, hang=2)
        else:
            run = f"{event.framework}, {event.purpose}"
            self._screen.line(f"{self._screen.symbols['tool']} {run}: {told}", style=style, hang=2)

    def _verdict(self, event: GateJudged) -> None:
        """A gate's answer, set off from everything around it, with its reasons."""
        self._screen.say(SAVING)
        word, color = ("open", "green") if event.open else ("closed", "red")
        badge = f"{self._screen.symbols[word]} {event.phase.upper()} gate {word}"
        self._screen.line(Text.assemble((badge, f"bold reverse {color}"), f"  {clean(event.evidence)}"), hang=2)
        for reason in event.reasons:
            self._screen.line(reason_text(reason), indent=self._screen.indent + 2, hang=2)

    def _remark(self, event: RolledBack | Notice | RetryScheduled | Compacted) -> None:
        """Something to know besides the work itself."""
        match event:
            case RolledBack(kept=kept, why=why):
                told = f"Rolled back: {why}. What was there is kept in {kept}"
                self._screen.line(f"{self._screen.symbols['back']} {told}", style="yellow", hang=2)
            case Compacted(before_tokens=before, after_characters=after):
                told = f"The conversation ({before:,} tokens) goes on from a summary of {after:,} characters."
                self._screen.line(f"{self._screen.symbols['note']} {told}", style="yellow", hang=2)
            case Notice(text=text):
                self._screen.line(f"{self._screen.symbols['note']} {text}", style="yellow", hang=2)
            case RetryScheduled(why=why, wait_s=wait, number=number, limit=limit, withdrawn=withdrawn):
                void = "; what was said of this answer does not count" if withdrawn else ""
                told = f"{why}{void}; try {number} of {limit} in {wait:.0f} s"
                self._screen.line(f"{self._screen.symbols['note']} {told}", style="yellow", hang=2)
                self._screen.say(f"try {number} of {limit} in", for_s=wait)

    def _question(self, question: str, options: tuple[str, ...]) -> None:
        """One question with the answers to choose from, set off."""
        self._screen.gap()
        self._screen.line(question, style="bold", hang=2)
        for number, option in enumerate(options, start=1):
            self._screen.line(Text.assemble((f"{number}", "bold cyan"), f"  {clean(option)}"), indent=2, hang=3)

    def _document(self, event: SpecProposed | SpecSaved | PlanDrafted) -> None:
        """What is to become, or became, of a spec or a plan."""
        match event:
            case SpecProposed(diff=diff):
                self._screen.show_diff(diff)
            case SpecSaved(changed=changed, missing=missing):
                keys = ", ".join(key.replace("_", " ") for key in changed) or "no change"
                still = f"; still missing: {', '.join(missing)}" if missing else ""
                self._screen.line(
                    f"{self._screen.symbols['open']} spec.yaml saved: {keys}{still}", style="green", hang=2
                )
            case PlanDrafted(number=number, problems=()):
                self._screen.line(
                    f"{self._screen.symbols['open']} Draft {number} accepted: plan.md saved", style="green", hang=2
                )
            case PlanDrafted(number=number, problems=problems):
                badge = f"{self._screen.symbols['closed']} Draft {number} refused"
                self._screen.line(Text(badge, style="bold reverse red"))
                for problem in problems:
                    self._screen.line(problem, style="red", indent=self._screen.indent + 2, hang=2)

    def _progress(self, event: RunStarted | RunFinished | StepStarted | StepFinished | AttemptStarted) -> None:
        """Where the run is."""
        match event:
            case RunStarted(workflow=workflow, model=model, sandbox=sandbox):
                self._screen.indent, self._unit = 0, "Cycle" if workflow == "tdd" else "Step"
                header = f"model {model}, sandbox {sandbox}"
                if header != self._header:
                    self._header = header
                    self._screen.line(header, style="dim")
                self._screen.say("getting ready")
            case RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=duration):
                self._screen.indent = 0
                if status != "in_progress":
                    self._screen.gap()
                    style = "bold green" if status == "completed" else "bold red"
                    self._screen.line(f"{workflow} {ticket}: {status} in {duration:.0f} s", style=style)
            case StepStarted(number=number, total=total, title=title):
                self._screen.indent, self._steps = 0, total
                self._screen.gap()
                self._screen.line(f"{self._unit} {number}/{total}  {title}", style="bold", hang=2)
                self._screen.indent = 2
            case StepFinished():
                self._end_step(event)
            case AttemptStarted(phase=phase, number=number, limit=limit):
                self._screen.indent = 2
                self._screen.line(f"{phase.upper()} attempt {number} of {limit}", style=_PHASE_STYLE.get(phase, "bold"))
                self._screen.indent = 4
                self._screen.say(WAITING)

    def _end_step(self, event: StepFinished) -> None:
        """How a step ended, and why if it is not completed."""
        symbol, style = {
            "completed": (self._screen.symbols["open"], "bold green"),
            "failed": (self._screen.symbols["closed"], "bold red"),
        }.get(event.status, (self._screen.symbols["note"], "yellow"))
        number = f"{event.number}/{self._steps}" if self._steps else str(event.number)
        told = f": {event.error}" if event.error else ""
        self._screen.line(f"{symbol} {self._unit} {number} {event.status}{told}", style=style, indent=0, hang=2)
        self._screen.indent = 0
