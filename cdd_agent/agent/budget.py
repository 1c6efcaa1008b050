"""How much one run of an agent may use.

The most that a step, or a ticket, may use, and the error for what would be more. Pure.

What one answer of a model used, as totals that can be added up. Pure.

What was used on a ticket before this sitting.

A model that counts what it is used for, and is not asked any more once a limit is reached.

Two scopes are counted: a step (or a conversation), which begins anew with each one, and the ticket, which goes on over
all sittings. A call is refused before it is sent; what one call uses is known only afterwards, so a limit is passed by
one call at most.

A limit on the time of work that a model asks for: an expression, or a piece of text, can be made to take years.

The limit is an alarm signal, which cuts into a search of ``re`` too, on every Python from 3.11 on: such a search looks
for signals now and then. So does Ctrl-C, which passes as it would without a limit.
"""

import json
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from cdd_agent.clock import Clock
from cdd_agent.config.settings import CONFIG_FILE, Settings
from cdd_agent.errors import BudgetSpent, UsageError
from cdd_agent.events import AnswerLost, Emit, Event, TurnEnded, decode
from cdd_agent.model import conversation, prices
from cdd_agent.model.conversation import Model, Request, Turn, Usage
from cdd_agent.storage import read_ordinary
from cdd_agent.work import state_file
from cdd_agent.work.state import UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one run, checked before the model is asked again."""

    max_turns: int = 20
    max_answer_tokens: int = 16_000
    """Of one turn."""
    max_calls_per_turn: int = 10
    """Tool calls above it are answered with an error and not run."""
    max_calls_total: int | None = None
    """Tool calls of all turns together, those that fail included; the run ends with the last. Nothing: no limit."""
    max_tokens_total: int | None = None
    """Of all turns together, read and written, cached or not; nothing: no limit."""
    max_failed_turns: int = 3
    """Turns in a row that came to nothing (every call failed, cut off, empty); then the run is stuck."""

    def after(self, calls: int) -> "Budget":
        """What is left of it once so many tool calls were made."""
        most = self.max_calls_total
        return self if most is None else replace(self, max_calls_total=max(0, most - calls))


Scope: TypeAlias = Literal["step", "ticket"]
"""A step of a plan or one conversation; all that is done on a ticket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The limits of one scope; 0: none."""

    tokens: int = 0
    usd: float = 0.0
    calls: int = 0
    minutes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The limits of both scopes."""

    step: Ceiling = Ceiling()
    ticket: Ceiling = Ceiling()

    @classmethod
    def of(cls, settings: Settings) -> "Ceilings":
        """What the settings say."""
        return cls(
            step=Ceiling(
                tokens=settings.max_tokens_per_step,
                usd=settings.max_usd_per_step,
                calls=settings.max_calls_per_step,
                minutes=settings.max_minutes_per_step,
            ),
            ticket=Ceiling(
                tokens=settings.max_tokens_per_ticket,
                usd=settings.max_usd_per_ticket,
                calls=settings.max_calls_per_ticket,
                minutes=settings.max_minutes_per_ticket,
            ),
        )

    @property
    def has_usd(self) -> bool:
        """Whether dollars are limited at all."""
        return bool(self.step.usd or self.ticket.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One scope as it stands."""

    scope: Scope
    name: str
    """As a person is told: ``step 2 of sale``."""
    ceiling: Ceiling
    used: UsageTotals


def spent(account: Account, *, next_tokens: int, go_on: str) -> BudgetSpent | None:
    """The error if nothing more may be used, or not the ``next_tokens`` of a request; None if they may.

    Of a cost that is known in part, the part counts. ``go_on`` is the command to type once there is room.
    """
    for kind, limit, used, told in _limits(account):
        if limit and used >= limit:
            setting = f"max_{kind}_per_{account.scope}"
            happened = f"{account.name} has used {told}, and {setting} is {limit:,}."
            return BudgetSpent(f"{happened[0].upper()}{happened[1:]}", hint=_way_out(setting, go_on))
    room = account.ceiling.tokens - account.used.tokens
    if account.ceiling.tokens and next_tokens > room:
        setting = f"max_tokens_per_{account.scope}"
        happened = (
            f"{account.name} has {room:,} tokens left, as {setting} is {account.ceiling.tokens:,}, "
            f"and the next request alone has about {next_tokens:,}."
        )
        return BudgetSpent(f"{happened[0].upper()}{happened[1:]}", hint=_way_out(setting, go_on))
    return None


def _limits(account: Account) -> Iterator[tuple[str, float, float, str]]:
    """Kind, limit, what is used of it, and the same in words."""
    used, ceiling = account.used, account.ceiling
    yield "tokens", ceiling.tokens, used.tokens, f"{used.tokens:,} tokens"
    yield "usd", ceiling.usd, used.known_usd, f"{used.known_usd:,.2f} USD"
    yield "calls", ceiling.calls, used.calls, f"{used.calls:,} calls of the model"
    yield "minutes", ceiling.minutes, used.minutes, f"{used.minutes:,.1f} minutes"


def _way_out(setting: str, go_on: str) -> str:
    return f"raise {setting} in {CONFIG_FILE}, then go on with: {go_on}"


def of_answer(event: TurnEnded | AnswerLost) -> UsageTotals:
    """What the event tells of; that it was a call is not counted."""
    usage = Usage(
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cache_read_tokens=event.cache_read_tokens,
        cache_write_tokens=event.cache_write_tokens,
    )
    return of_usage(usage, cost_usd=event.cost_usd)


def of_usage(usage: Usage, *, cost_usd: float | None) -> UsageTotals:
    """The tokens and what they cost; no tokens have no cost, known or unknown."""
    return UsageTotals(**asdict(usage), cost_usd=cost_usd if usage.total else None, known_usd=cost_usd or 0.0)


LIMIT_BYTES = 64_000_000
"""Of a journal that is read for this: the words of some ten thousand turns."""

CARRIES_OUT = "executor"
"""The agent whose usage is in the ticket's state."""


def talked(journal: Path) -> UsageTotals:
    """What conversations on a ticket have used, as far as its journal tells.

    Lines that cannot be read are passed over, and so is a journal that is no ordinary file or too large.
    """
    try:
        lines = read_ordinary(journal, limit_bytes=LIMIT_BYTES).splitlines()
    except OSError:
        return UsageTotals()
    total = UsageTotals()
    for line in lines:
        if b'"TurnEnded"' in line:
            total += _of_turn(line)
    return total


def carried_out(state: Path) -> UsageTotals:
    """What the steps of a ticket have used, as its state tells; nothing if it cannot be read."""
    try:
        saved = state_file.load(state)
    except UsageError:
        return UsageTotals()
    return UsageTotals() if saved is None else saved.usage


def _of_turn(line: bytes) -> UsageTotals:
    """What the turn in a line of the journal used, if it was one of a conversation."""
    try:
        event = decode(line)
    except ValueError:
        return UsageTotals()
    if not isinstance(event, TurnEnded) or event.agent == CARRIES_OUT:
        return UsageTotals()
    counts = (event.input_tokens, event.output_tokens, event.cache_read_tokens, event.cache_write_tokens)
    if min(*counts, event.cost_usd or 0) < 0:
        return UsageTotals()
    return replace(of_answer(event), calls=1)


BYTES_PER_TOKEN = 3
"""Of a request as it is sent: rather too few than too many, so that rather too many tokens are expected."""

NO_LIMITS = Ceilings()


class Tally:
    """What a ticket has used in all, counted by every meter of this process that works for it."""

    def __init__(self, used: UsageTotals) -> None:
        """Begin with what was ``used`` in earlier sittings."""
        self.used = used
        self._talks: dict[str, Tally] = {}

    def add(self, used: UsageTotals) -> None:
        """Count some more."""
        self.used += used

    def talk(self, name: str) -> "Tally":
        """What one conversation about the ticket has used in this sitting, whoever holds it, with whatever model."""
        return self._talks.setdefault(name, Tally(UsageTotals()))


class Meter:
    """The model port round another model."""

    def __init__(
        self,
        inner: Model,
        *,
        clock: Clock,
        ticket: str,
        go_on: str,
        ceilings: Ceilings = NO_LIMITS,
        tally: Tally | None = None,
    ) -> None:
        """Nothing is used yet, but what the ``tally`` of the ticket says; without one only this meter works for it.

        ``go_on`` is the command that goes on with the work. Until ``begin`` is called the step is one conversation,
        the same for all meters of that command and ``tally``.
        """
        self.name = inner.name
        self._inner = inner
        self._ceilings = ceilings
        self._clock = clock
        self._ticket_name, self._go_on = f"the ticket {ticket}", go_on
        self._tally = tally
        self._step_name = f"this conversation about {ticket}"
        self._step = Tally(UsageTotals()) if tally is None else tally.talk(go_on)
        self._ticket = UsageTotals()
        self._is_in_step = False
        self._since: float | None = None

    @property
    def step(self) -> UsageTotals:
        """What the step, or the conversation, has used."""
        return self._step.used + self._running()

    @property
    def ticket(self) -> UsageTotals:
        """What the ticket has used by this meter, and by those before it that it goes on from."""
        return self._ticket + self._running()

    def resume(self, ticket: UsageTotals) -> None:
        """Go on where an earlier sitting on the ticket ended."""
        self.pause()
        self._ticket = ticket

    def begin(self, name: str, *, used: UsageTotals) -> None:
        """Begin a step, or go on with one that has ``used`` something; its time runs from the next call on."""
        self.pause()
        self._step_name, self._step, self._is_in_step = name, Tally(used), True

    def pause(self) -> None:
        """No time passes until the next step begins."""
        running, self._since, self._is_in_step = self._running(), None, False
        self._add(running)

    def check(self) -> None:
        """Raise what the inner model raises, and ``BudgetSpent`` if a limit is reached."""
        self._inner.check()
        self._require_room(0)

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The inner model's turn, counted; raises ``BudgetSpent`` instead where there is no room for the request."""
        self._require_room(expected_tokens(request))

        def hear(event: Event) -> None:
            if isinstance(event, AnswerLost):
                self._add(of_answer(event))
            emit(event)

        began = self._clock.monotonic()
        if self._is_in_step and self._since is None:
            self._since = began
        self._add(UsageTotals(calls=1))
        try:
            turn = self._inner.reply(request, emit=hear)
        finally:
            if not self._is_in_step:
                self._add(UsageTotals(minutes=_minutes(began, self._clock.monotonic())))
        self._add(of_usage(turn.usage, cost_usd=prices.cost_usd(self.name, turn.usage)))
        return turn

    def _require_room(self, next_tokens: int) -> None:
        """Raise ``BudgetSpent`` for the first limit that is in the way."""
        step = Account(scope="step", name=self._step_name, ceiling=self._ceilings.step, used=self.step)
        everything = self.ticket if self._tally is None else self._tally.used + self._running()
        ticket = Account(scope="ticket", name=self._ticket_name, ceiling=self._ceilings.ticket, used=everything)
        for account in (step, ticket):
            error = spent(account, next_tokens=next_tokens, go_on=self._go_on)
            if error is not None:
                raise error

    def _add(self, used: UsageTotals) -> None:
        self._step.add(used)
        self._ticket += used
        if self._tally is not None:
            self._tally.add(used)

    def _running(self) -> UsageTotals:
        """The time of the step that is not added yet."""
        passed = 0.0 if self._since is None else _minutes(self._since, self._clock.monotonic())
        return UsageTotals(minutes=passed)


def expected_tokens(request: Request) -> int:
    """About how many tokens ``request`` has, rather too many than too few: nobody has counted them yet."""
    body = json.dumps(conversation.encode_request(request, model=""), ensure_ascii=False)
    return math.ceil(len(body.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def without_price(model: str, ceilings: Ceilings) -> str | None:
    """What to say of a model whose cost no limit of dollars can hold; None where there is nothing to say."""
    if not ceilings.has_usd or prices.window(model) is not None:
        return None
    return (
        f"The price of {model} is not known: max_usd_per_step and max_usd_per_ticket cannot be checked; "
        "the limits of tokens, calls and minutes hold."
    )


def _minutes(since_s: float, until_s: float) -> float:
    return (until_s - since_s) / 60


T = TypeVar("T")


class _TimeIsUp(BaseException):
    """Not an ``Exception``: nothing on the way takes it for an error of its own."""


def within(seconds: float, work: Callable[[], T], *, hint: str) -> T:
    """What ``work`` returns; ``UsageError`` with ``hint`` if it takes longer.

    Only for the main thread, where agents work, and for work that may be cut off anywhere.
    """
    is_running = True

    def ring(_number: int, _frame: object) -> None:
        if is_running:
            raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return work()
    except _TimeIsUp as error:
        raise UsageError(f"It was given up after {seconds:g} s.", hint=hint) from error
    finally:
        is_running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
