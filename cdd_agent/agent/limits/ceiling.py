"""The most that a step, or a ticket, may use, and the error for what would be more. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cdd_agent.errors import BudgetSpent
from cdd_agent.settings import CONFIG_FILE, Settings
from cdd_agent.work.state import UsageTotals

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
