"""Where the work stands, as the events tell it: phase and gate, who answers, how full its context is, what it cost."""

from dataclasses import replace

from cdd_agent.events import (
    AnswerLost,
    AttemptStarted,
    Compacted,
    Event,
    GateJudged,
    RunStarted,
    StepFinished,
    StepStarted,
    TurnEnded,
)
from cdd_agent.model.prices import window
from cdd_agent.repl.status_line import Place
from cdd_agent.work.state import UsageTotals


class Standing:
    """Follows the events of one sitting; its ``write`` is an ``Emit``."""

    def __init__(self, *, model: str = "") -> None:
        """``model`` answers until an event says otherwise."""
        self.model = model
        self.phase = ""
        self.gate = ""
        self.tokens = 0
        """Of the last request and its answer."""
        self.used = UsageTotals()
        """By all agents of the sitting."""

    def write(self, event: Event) -> None:
        """Take in what happened."""
        match event:
            case TurnEnded() | AnswerLost():
                self._count(event)
            case Compacted():
                self.tokens = 0
            case RunStarted(model=model):
                self.model = model
            case StepStarted() | StepFinished(status="completed" | "skipped"):
                self.phase = self.gate = ""  # what is shown next to it is the step that comes now
            case AttemptStarted(phase=phase):
                self.phase, self.gate, self.tokens = phase, "", 0
            case GateJudged(phase=phase, open=is_open):
                self.phase, self.gate = phase, "open" if is_open else "closed"
            case _:
                pass

    def fill(self, place: Place, *, tokens: int | None = None) -> Place:
        """``place`` with what it has room for; ``tokens``: of the conversation there, if it has one of its own."""
        is_in_exec = place.agent == "exec"
        return replace(
            place,
            phase=self.phase if is_in_exec else "",
            gate=self.gate if is_in_exec else "",
            model=self.model,
            context_percent=percent(self.model, tokens=self.tokens if tokens is None else tokens),
            cost=cost(self.used),
        )

    def _count(self, event: TurnEnded | AnswerLost) -> None:
        """Add what an answer took."""
        used = UsageTotals(
            input_tokens=event.input_tokens,
            output_tokens=event.output_tokens,
            cache_read_tokens=event.cache_read_tokens,
            cache_write_tokens=event.cache_write_tokens,
            calls=1,
            cost_usd=event.cost_usd,
            known_usd=event.cost_usd or 0.0,
        )
        self.used += used
        self.tokens = used.tokens
        self.model = event.model or self.model


def percent(model: str, *, tokens: int) -> int | None:
    """How much of the context of ``model`` the ``tokens`` fill; None while there are none, or its size is not known."""
    size = window(model)
    return min(100, tokens * 100 // size) if size and tokens else None


def cost(used: UsageTotals) -> str:
    """What was used in dollars, as a person reads it; empty while nothing was."""
    if used.cost_usd is not None:
        return f"{used.cost_usd:.2f} USD"
    if not used.tokens:
        return ""
    return f"at least {used.known_usd:.2f} USD" if used.known_usd else "cost unknown"
