"""How long an answer may take and how large it may get. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from cdd_agent.errors import UsageError

_MOST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of one answer, which the user's environment may set and no file of a project."""

    idle_s: float = 60.0
    """Without a byte from the server; with nothing but its pings, three times as long."""
    total_s: float = 600.0
    """From the request to the end of the answer."""
    answer_bytes: int = 4_000_000
    """Of the stream as it is sent."""
    tries: int = 4
    """The first one and three more, after 1, 2 and 4 seconds."""

    @property
    def pings_s(self) -> float:
        """For so long pings alone keep a stream open: they show that the server lives, not that it gets on."""
        return 3 * self.idle_s

    @classmethod
    def named_by(cls, environment: Mapping[str, str]) -> "Patience":
        """What ``CDD_MODEL_IDLE_S``, ``CDD_MODEL_TOTAL_S`` and ``CDD_MODEL_ANSWER_BYTES`` say, else the defaults.

        Raises ``UsageError`` for what is not a number above 0.
        """
        usual = cls()
        return cls(
            idle_s=_told("CDD_MODEL_IDLE_S", environment, usual=usual.idle_s),
            total_s=_told("CDD_MODEL_TOTAL_S", environment, usual=usual.total_s),
            answer_bytes=int(_told("CDD_MODEL_ANSWER_BYTES", environment, usual=usual.answer_bytes)),
        )


def _told(variable: str, environment: Mapping[str, str], *, usual: float) -> float:
    """The number that ``variable`` says, or the usual one."""
    value = environment.get(variable)
    if not value:
        return usual
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 1e-3 <= number <= _MOST:
        raise UsageError(
            f"{variable}={value} is not a number from 0.001 to {_MOST:.0f}.", hint=f"unset {variable} or correct it"
        )
    return number
