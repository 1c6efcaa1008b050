"""Prices of known models, and limits on the tokens, money, calls and time that agents may use.

A model that is not in ``prices.json``, such as a replayed recording, has an unknown cost, which is not the same as 0.

``Budget`` limits one run of an agent. ``Meter`` wraps a model and counts two scopes: a step or conversation, and the
ticket over all its sessions. It refuses a call before it is sent once a limit is reached; the usage of a call is known
only afterwards, so a limit can be exceeded by one call.
"""

import json
import math
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from cdd_agent.clock import Clock
from cdd_agent.config.settings import CONFIG_FILE, Settings
from cdd_agent.errors import BudgetSpent, TurnMissing, UsageError
from cdd_agent.events import AnswerLost, Emit, Event, TurnEnded, decode
from cdd_agent.model import conversation
from cdd_agent.model.conversation import Model, Request, Turn
from cdd_agent.storage import read_ordinary
from cdd_agent.work.state import RunState, Usage
from cdd_agent.work.state_file import load_state

_FILE = Path(__file__).with_name("prices.json")
_DATE = re.compile(r"-\d{8}\Z", re.ASCII)
"""The end of the id of a dated release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Dollars per ``Prices.usd_per_tokens`` tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    up_to_prompt_tokens: int | None = None
    """The longest prompt at this price, including cached tokens; None means any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrices:
    """The prices and limits of one family of models."""

    context_window: int
    """Tokens of a request and its answer together."""
    max_output: int
    """Tokens of one answer."""
    tiers: tuple[Tier, ...]
    """From the shortest prompts to those of any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The content of the file."""

    date: str
    """The date of the prices."""
    source: str
    usd_per_tokens: int
    models: dict[str, ModelPrices]


@cache
def load_prices() -> Prices:
    """Read the file, once."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Prices)


def list_priced_models() -> tuple[str, ...]:
    """Return the ids of the model families with a known price."""
    return tuple(load_prices().models)


def find_context_window(model: str) -> int | None:
    """Return the tokens of the model's context window, or None for an unknown model."""
    family = _find_family(model)
    return None if family is None else family.context_window


def cost_usd(model: str, usage: Usage) -> float | None:
    """Return the cost of one turn, or None for an unknown model.

    For the usage of several turns it is an upper bound, because their prompts together choose the tier.
    """
    family = _find_family(model)
    if family is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    tier = next(tier for tier in family.tiers if tier.up_to_prompt_tokens is None or prompt <= tier.up_to_prompt_tokens)
    dollars = (
        usage.input_tokens * tier.input
        + usage.output_tokens * tier.output
        + usage.cache_read_tokens * tier.cache_read
        + usage.cache_write_tokens * tier.cache_write
    )
    return dollars / load_prices().usd_per_tokens


def make_answer_lost(model: str, usage: Usage) -> AnswerLost:
    """Return the event for an answer that costs money but did not become a turn."""
    return AnswerLost(model=model, cost_usd=cost_usd(model, usage), **usage.token_counts)


def _find_family(model: str) -> ModelPrices | None:
    return load_prices().models.get(_DATE.sub("", model))


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run of an agent, checked before each call of the model."""

    max_turns: int = 20
    max_answer_tokens: int = 16_000
    """Tokens of one answer."""
    max_calls_per_turn: int = 10
    """Further tool calls of a turn are answered with an error."""
    max_calls_total: int | None = None
    """Tool calls in all turns, including failed ones; None means no limit."""
    max_tokens_total: int | None = None
    """Input and output tokens of all turns, cached or not; None means no limit."""
    max_failed_turns: int = 3
    """Consecutive turns without progress (every call failed, answer cut off or empty) until the run is stuck."""

    @classmethod
    def from_settings(cls, settings: Settings) -> "Budget":
        """Return the limits in the settings."""
        return cls(
            max_turns=settings.max_turns,
            max_answer_tokens=settings.max_tokens,
            max_calls_per_turn=settings.max_calls_per_turn,
        )

    def subtract_calls(self, calls: int) -> "Budget":
        """Return the budget that remains after ``calls`` tool calls."""
        limit = self.max_calls_total
        return self if limit is None else replace(self, max_calls_total=max(0, limit - calls))


Scope: TypeAlias = Literal["step", "ticket"]
"""A step of a plan or one conversation; or all work on a ticket."""

KINDS = ("tokens", "usd", "calls", "minutes")
"""The scope of the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The limits of one scope; 0 means no limit."""

    tokens: int = 0
    usd: float = 0.0
    calls: int = 0
    minutes: float = 0.0
    usd_option: str = ""
    """The option of the command that sets ``usd``; empty if the settings do."""

    def require_room(self, used: Usage, *, scope: Scope, name: str, next_tokens: int, go_on: str) -> None:
        """Raise ``BudgetSpent`` if a limit is reached, or if ``next_tokens`` would exceed it.

        ``name`` is that of the scope in messages, such as ``step 2 of sale``, and ``go_on`` the command that continues
        the work. Of a cost that is known only in part, the known part counts.
        """
        for kind, limit, amount, text in (
            ("tokens", self.tokens, used.tokens, f"{used.tokens:,} tokens"),
            ("usd", self.usd, used.known_usd, f"{used.known_usd:,.2f} USD"),
            ("calls", self.calls, used.calls, f"{used.calls:,} model calls"),
            ("minutes", self.minutes, used.minutes, f"{used.minutes:,.1f} minutes"),
        ):
            setting, room = f"max_{kind}_per_{scope}", limit - amount
            where = f"raise {setting} in {CONFIG_FILE}"
            if kind == "usd" and self.usd_option:
                setting, where = self.usd_option, f"raise {self.usd_option}"
            happened = f"{name[0].upper()}{name[1:]} has used {text}, and {setting} is {limit:,}."
            if kind == "tokens" and 0 < room < next_tokens:
                left = f"{room:,} tokens left ({setting} is {limit:,})"
                happened = f"{name[0].upper()}{name[1:]} has {left}, but the next request needs about {next_tokens:,}."
            elif not limit or room > 0:
                continue
            raise BudgetSpent(happened, hint=f"{where}, then continue with: {go_on}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The limits of both scopes."""

    step: Ceiling = Ceiling()
    ticket: Ceiling = Ceiling()

    @classmethod
    def from_settings(cls, settings: Settings) -> "Ceilings":
        """Return the limits in the settings."""
        scopes = cls.__dataclass_fields__
        limits = {scope: {kind: getattr(settings, f"max_{kind}_per_{scope}") for kind in KINDS} for scope in scopes}
        return cls(**{scope: Ceiling(**of_scope) for scope, of_scope in limits.items()})

    def limit_run(self, usd: float | None) -> "Ceilings":
        """Return the limits with that of the option ``--max-usd`` for a whole run, if it was given."""
        return self if usd is None else replace(self, ticket=replace(self.ticket, usd=usd, usd_option="--max-usd"))


def totals_from_answer(event: TurnEnded | AnswerLost) -> Usage:
    """Return the usage of an answer; the call itself is not counted."""
    usage = Usage(**{kind: getattr(event, kind) for kind in Usage().token_counts})
    return totals_from_usage(usage, cost_usd=event.cost_usd)


def totals_from_usage(usage: Usage, *, cost_usd: float | None) -> Usage:
    """Return ``usage`` with its cost; without tokens the cost is not unknown but zero."""
    return replace(usage, cost_usd=cost_usd if usage.tokens else None, known_usd=cost_usd or 0.0)


MAX_JOURNAL_BYTES = 64_000_000
"""Size of a journal with about ten thousand turns."""
_TALKERS = ("socrates", "planner", "scout", "architect")
"""The agents of conversations; the usage of all others is saved in the state of the run that they work for."""


def read_conversation_usage(journal: Path) -> Usage:
    """Return the usage of the conversations about a ticket, according to the readable lines of its journal."""
    try:
        lines = read_ordinary(journal, limit_bytes=MAX_JOURNAL_BYTES).splitlines()
    except OSError:
        return Usage()
    total = Usage()
    for line in lines:
        if b'"TurnEnded"' not in line:
            continue
        try:
            event = decode(line)
        except ValueError:
            continue
        if isinstance(event, TurnEnded) and event.agent in _TALKERS:
            used = totals_from_answer(event)
            # Anyone can write the journal; negative usage would raise the limit.
            if min(*used.token_counts.values(), event.cost_usd or 0) >= 0:
                total += replace(used, calls=1)
    return total


def read_step_usage(state: Path) -> Usage:
    """Return the usage of a ticket's steps, according to its state; zero if that cannot be read."""
    try:
        saved = load_state(state)
    except UsageError:
        return Usage()
    return Usage() if saved is None else saved.usage


def read_ticket_usage(state: RunState, journal: Path) -> Usage:
    """Return everything that a ticket has used: its conversations by the journal, its steps by the state.

    The state also counts what other processes have done for the steps, whose turns are not in this journal.
    """
    return read_conversation_usage(journal) + state.usage


BYTES_PER_TOKEN = 3
"""A low estimate, which yields a high estimate of the tokens of a request."""

NO_LIMITS = Ceilings()


class Tally:
    """The usage of a ticket, shared by all meters of this process that work for it."""

    def __init__(self, used: Usage) -> None:
        """Start with the usage of earlier sessions."""
        self.used = used
        self._conversations: dict[str, Tally] = {}

    def get_conversation(self, name: str) -> "Tally":
        """Return the tally of one conversation in this session, whichever agent and model it is with."""
        return self._conversations.setdefault(name, Tally(Usage()))


class Meter:
    """A model that counts the usage of another model and refuses calls beyond the limits."""

    def __init__(
        self,
        inner: Model,
        *,
        clock: Clock,
        work: str,
        go_on: str,
        ceilings: Ceilings = NO_LIMITS,
        tally: Tally | None = None,
    ) -> None:
        """Wrap ``inner``.

        ``work`` names the whole, such as ``the ticket sale``; ``go_on`` is the command that continues it. ``tally``
        holds the usage that other meters share. Until ``begin`` is called, the step is one conversation, shared by all
        meters of that command and ``tally``.
        """
        self.name = inner.name
        self.reserved = Usage()
        """What others may be using, within the same limits of the ticket."""
        self._inner = inner
        self._ceilings = ceilings
        self._clock = clock
        self._work, self._go_on = work, go_on
        self._tally = tally
        self._step_name = f"this conversation about {work}"
        self._step = Tally(Usage()) if tally is None else tally.get_conversation(go_on)
        self._ticket = Usage()
        self._is_in_step = False
        self._since: float | None = None

    @property
    def step(self) -> Usage:
        """The usage of the step or conversation."""
        return self._step.used + self._measure_elapsed()

    @property
    def ticket(self) -> Usage:
        """The usage of the ticket, counted by this meter and, after ``resume``, in earlier sessions."""
        return self._ticket + self._measure_elapsed()

    def resume(self, ticket: Usage) -> None:
        """Continue from the usage of earlier sessions."""
        self.pause()
        self._ticket = ticket

    def begin(self, name: str, *, used: Usage) -> None:
        """Begin or continue a step; its time starts with the next call."""
        self.pause()
        self._step_name, self._step, self._is_in_step = name, Tally(used), True

    def pause(self) -> None:
        """Stop the clock until the next step begins."""
        elapsed, self._since, self._is_in_step = self._measure_elapsed(), None, False
        self.add(elapsed)

    def check(self) -> None:
        """Check the inner model and the limits; raise ``BudgetSpent`` if a limit is reached."""
        self._inner.check()
        self._require_room(0)

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """Return the inner model's turn and count it; raise ``BudgetSpent`` if it could exceed a limit."""
        self._require_room(estimate_tokens(request))

        def hear(event: Event) -> None:
            if isinstance(event, AnswerLost):
                self.add(totals_from_answer(event))
            emit(event)

        began = self._clock.monotonic()
        if self._is_in_step and self._since is None:
            self._since = began
        self.add(Usage(calls=1))
        try:
            turn = self._inner.reply(request, emit=hear)
        except TurnMissing:
            self.add(Usage(calls=-1))  # nobody was asked
            raise
        finally:
            if not self._is_in_step:
                self.add(Usage(minutes=(self._clock.monotonic() - began) / 60))
        self.add(totals_from_usage(turn.usage, cost_usd=cost_usd(request.model or self.name, turn.usage)))
        return turn

    def _require_room(self, next_tokens: int) -> None:
        ceilings, go_on = self._ceilings, self._go_on
        total = self.ticket if self._tally is None else self._tally.used + self._measure_elapsed()
        ceilings.step.require_room(self.step, scope="step", name=self._step_name, next_tokens=next_tokens, go_on=go_on)
        ceilings.ticket.require_room(
            total + self.reserved, scope="ticket", name=self._work, next_tokens=next_tokens, go_on=go_on
        )

    def add(self, used: Usage) -> None:
        """Count what was used."""
        self._step.used += used
        self._ticket += used
        if self._tally is not None:
            self._tally.used += used

    def _measure_elapsed(self) -> Usage:
        # The time of the step that is not added yet.
        minutes = 0.0 if self._since is None else (self._clock.monotonic() - self._since) / 60
        return Usage(minutes=minutes)


def estimate_tokens(request: Request) -> int:
    """Return a high estimate of the tokens of ``request``."""
    body = json.dumps(conversation.encode_request(request, model=""), ensure_ascii=False)
    return math.ceil(len(body.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def format_unknown_price(model: str, ceilings: Ceilings) -> str | None:
    """Return a warning if dollars are limited but the price of ``model`` is not known."""
    if not (ceilings.step.usd or ceilings.ticket.usd) or find_context_window(model) is not None:
        return None
    names = f"max_usd_per_step and {ceilings.ticket.usd_option or 'max_usd_per_ticket'}"
    unknown = f"The price of {model} is not known, so {names} have no effect."
    return f"{unknown} The limits on tokens, calls and minutes still apply."


# Not an Exception: `except Exception` in the work must not catch it.
class _TimeLimitReached(BaseException):
    pass


def run_within(seconds: float, work: Callable[[], T], *, hint: str) -> T:
    """Return the result of ``work``, which may be interrupted anywhere; raise ``UsageError`` after ``seconds``."""
    is_running = True

    def ring(_number: int, _frame: object) -> None:
        if is_running:
            raise _TimeLimitReached

    # A model's regular expression can take years. Since Python 3.11, `re` checks for signals during a search.
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return work()
    except _TimeLimitReached as error:
        raise UsageError(f"Stopped after {seconds:g} s.", hint=hint) from error
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
