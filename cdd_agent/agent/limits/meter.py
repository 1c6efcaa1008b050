"""A model that counts what it is used for, and is not asked any more once a limit is reached.

Two scopes are counted: a step (or a conversation), which begins anew with each one, and the ticket, which goes on over
all sittings. A call is refused before it is sent; what one call uses is known only afterwards, so a limit is passed by
one call at most.
"""

import json
import math

from cdd_agent.agent.limits.ceiling import Account, Ceilings, spent
from cdd_agent.agent.limits.used import of_answer, of_usage
from cdd_agent.clock import Clock
from cdd_agent.events import AnswerLost, Emit, Event
from cdd_agent.model import prices, wire
from cdd_agent.model.conversation import Turn
from cdd_agent.model.port import Model, Request
from cdd_agent.work.state import UsageTotals

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
    body = json.dumps(wire.encode_request(request, model=""), ensure_ascii=False)
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
