"""Describe why a request to the model failed, and decide whether and when to send it again. Pure.

A ``RequestFailed`` is one failed try: an HTTP status, a network error, an answer that breaks off, cannot be read, or
exceeds a limit. ``choose_pause_s`` decides about another try; ``explain`` writes the error for the user.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from cdd_agent.config.settings import DEFAULT_MODEL
from cdd_agent.errors import ModelError, UsageError

LONGEST_WAIT_S = 60.0
"""The longest pause that cdd chooses; it asks the user before a longer one that a server requests."""
LONGEST_ASKED_S = 86_400.0
"""cdd does not even ask about a longer pause."""

Cause: TypeAlias = Literal["status", "connection", "timeout", "cut", "garbled", "too_large", "too_slow"]

STATUS_OF_ERROR_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The API's error types. In the middle of a stream an error has a type and no status; other types mean 500."""

_LARGEST_LIMIT = 1e9
_SET_KEY = "export ANTHROPIC_API_KEY=... (keys are made at https://platform.claude.com)"
_WITHOUT_MODEL = "these work without a model: cdd demo, cdd --replay FILE, cdd status, pytest --tdd-agent"
_AGAIN = "run the same command again"
_NEW_CONVERSATION = "start the step again, which begins a new conversation, or"
_STATUS_WORDS = {408: "request timed out", 409: "conflict", 429: "rate limit reached", 529: "overloaded"}

_CAUSES: dict[Cause, tuple[str, str, str]] = {
    "connection": (
        "no connection",
        "Could not connect to {url}{rest}.",
        f"check the network, ANTHROPIC_BASE_URL and HTTPS_PROXY, then {_AGAIN}",
    ),
    "timeout": (
        "no answer in time",
        "{url} did not answer in time{rest}.",
        f"{_AGAIN} in a few minutes; for a slow server: export CDD_MODEL_IDLE_S=300",
    ),
    "cut": (
        "the answer broke off",
        "The answer from {url} broke off before its end{rest}.",
        f"{_AGAIN}; no tool call of the broken answer was run",
    ),
    "garbled": (
        "the answer could not be read",
        "Could not read the answer from {url}{rest}.",
        "check that ANTHROPIC_BASE_URL names a server that speaks the Messages API",
    ),
    "too_large": (
        "the answer is too large",
        "The answer from {url} exceeds the size limit{rest}.",
        f"{_AGAIN}; if it happens every time: export CDD_MODEL_ANSWER_BYTES=8000000",
    ),
    "too_slow": (
        "the answer took too long",
        "The answer from {url} exceeds the time limit{rest}.",
        f"{_AGAIN}; for a slow server: export CDD_MODEL_TOTAL_S=1800",
    ),
}
"""Cause -> summary, error, hint. ``{rest}`` is the number of tries and the message of the failure."""

_STATUSES = {
    401: ("{url} refused the API key (401){rest}.", f"{_SET_KEY}; {_WITHOUT_MODEL}"),
    402: ("The account cannot pay (402){rest}.", f"add credit; {_WITHOUT_MODEL}"),
    403: (
        "The API key may not use {model} at {url} (403){rest}.",
        "choose another model with --model ID, or use a key that is allowed to",
    ),
    404: (
        "{url} knows no model {model!r} (404){rest}.",
        f"choose another with --model ID (the default is {DEFAULT_MODEL}); if ANTHROPIC_BASE_URL is set, "
        "it must not end in /v1",
    ),
    413: ("The request is too large for {url} (413){rest}.", f"{_NEW_CONVERSATION} split it into smaller steps"),
    429: (
        "The rate limit of the API key is reached (429){rest}{pause}.",
        f"wait, then {_AGAIN}: it continues where it stopped",
    ),
}
_REDIRECTED = (
    "{url} redirects to another address ({status}), which cdd does not follow{rest}.",
    "set ANTHROPIC_BASE_URL to the other address, if you trust it with your key and your code",
)
_UNAVAILABLE = (
    "{url} could not answer: {words} ({status}){rest}{pause}.",
    f"{_AGAIN} in a few minutes: it continues where it stopped",
)
_REFUSED = (
    "{url} refused the request to {model} ({status}){rest}.",
    f"{_NEW_CONVERSATION} choose another model with --model ID",
)


@dataclass(kw_only=True, eq=False, repr=False)
class RequestFailed(Exception):
    """One try failed. The adapter catches this and decides whether to try again."""

    cause: Cause
    message: str
    """The words of the server or of the network library. They may hold the key until the adapter removes it."""
    status: int = 0
    """The HTTP status, also of an error in the middle of a stream; 0 if there was none."""
    retry_after_s: float | None = None
    """The pause that the server requested."""
    may_retry: bool = True
    """False if the server forbade another try."""

    @property
    def is_transient(self) -> bool:
        """Return whether the same request may succeed a little later."""
        if self.cause == "status":
            return self.may_retry and (self.status in (408, 409, 429) or self.status >= 500)
        return self.may_retry and self.cause in ("connection", "timeout", "cut")

    @property
    def is_busy(self) -> bool:
        """Return whether the service is overloaded, or the rate limit is reached; both pass within minutes."""
        return self.cause == "status" and self.status in (429, 529)

    @property
    def summary(self) -> str:
        """The failure in a few words."""
        if self.cause != "status":
            return _CAUSES[self.cause][0]
        return f"{_describe_status(self.status)} ({self.status})"

    def __str__(self) -> str:
        """Return the summary: the message may hold the key."""
        return self.summary


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """How long an answer may take and how large it may get. Only the user's environment can change these."""

    idle_s: float = 60.0
    """Longest wait for the next byte."""
    total_s: float = 600.0
    """From the request to the end of the answer."""
    answer_bytes: int = 4_000_000
    """Size of the stream as it is sent."""
    tries: int = 4
    """The first try and three more, after 1, 2 and 4 seconds."""
    busy_s: float = 300.0
    """All pauses of one request together while the service is busy, however many tries that takes."""

    @property
    def pings_s(self) -> float:
        """Longest wait while only pings arrive: they show that the server is alive, not that it makes progress."""
        return 3 * self.idle_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AnswerLimits":
        """Read ``CDD_MODEL_IDLE_S``, ``_TOTAL_S``, ``_ANSWER_BYTES`` and ``_BUSY_S``, or raise ``UsageError``."""
        usual = cls()
        return cls(
            idle_s=_read_limit("CDD_MODEL_IDLE_S", environment, default=usual.idle_s),
            total_s=_read_limit("CDD_MODEL_TOTAL_S", environment, default=usual.total_s),
            answer_bytes=int(_read_limit("CDD_MODEL_ANSWER_BYTES", environment, default=usual.answer_bytes)),
            busy_s=_read_limit("CDD_MODEL_BUSY_S", environment, default=usual.busy_s, least=0.0),
        )


def choose_pause_s(failed: RequestFailed, number: int, *, chance: float) -> float | None:
    """Return the seconds to wait after the ``number``-th try failed, or None if another try would fail as well.

    1, 2, 4 ... 60 seconds, but never less than the server requested. ``chance`` (0 to 1) moves the pause by up to a
    quarter, so that programs that failed together do not retry together.
    """
    if not failed.is_transient:
        return None
    own_s: float = 2.0 ** min(number - 1, 10) * (0.75 + chance / 2)
    return max(min(own_s, LONGEST_WAIT_S), failed.retry_after_s or 0.0)


def parse_retry_after(value: str, *, now: str) -> float | None:
    """Return the seconds until the end of a ``Retry-After`` header, a number or a date; None for anything else."""
    value = value.strip()
    # float() alone would also take "nan", "inf" and "1e400".
    if re.fullmatch(r"[+-]?[0-9]{1,99}(\.[0-9]{0,9})?", value):
        return max(float(value), 0.0)
    try:
        date = parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max((date - datetime.fromisoformat(now)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):  # IndexError: an empty date, in Python 3.11
        return None


def check_key(key: str) -> None:
    """Raise ``ModelError`` if ``key`` is empty or cannot be written into a header."""
    if not key:
        raise ModelError("No model is available: ANTHROPIC_API_KEY is not set.", hint=f"{_SET_KEY}; {_WITHOUT_MODEL}")
    if not key.isascii() or not key.isprintable() or " " in key:
        happened = "The API key cannot be sent: it holds a space, a line break or a character outside ASCII."
        raise ModelError(happened, hint=f"copy it again, then {_SET_KEY}")


def explain(failed: RequestFailed, *, model: str, url: str, tries: int) -> ModelError:
    """Return the error for the user: what happened after how many tries, and what to do about it."""
    status = failed.status
    if failed.cause != "status":
        _, happened, hint = _CAUSES[failed.cause]
    elif status in _STATUSES:
        happened, hint = _STATUSES[status]
    elif 300 <= status < 400:
        happened, hint = _REDIRECTED
    else:
        happened, hint = _UNAVAILABLE if status in (408, 409) or status >= 500 else _REFUSED
    after = f" after {tries} tries" if tries > 1 else ""
    asked_s = failed.retry_after_s
    sentence = happened.format(
        url=redact_url(url),
        model=model,
        status=status,
        words=_describe_status(status),
        rest=after + (f": {failed.message}" if failed.message else ""),
        pause="" if asked_s is None else f"; the server asks to wait {asked_s:.0f} s",
    )
    return ModelError(sentence, hint=hint)


def redact_url(url: str) -> str:
    """Return ``url`` without user name, password and query, so that it can be shown."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return url.rpartition("@")[2]
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}".rstrip("/")


def _describe_status(status: int) -> str:
    return _STATUS_WORDS.get(status) or ("server error" if status >= 500 else "refused")


def _read_limit(variable: str, environment: Mapping[str, str], *, default: float, least: float = 1e-3) -> float:
    value = environment.get(variable)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= _LARGEST_LIMIT:
        hint = f"unset {variable} or correct it"
        raise UsageError(f"{variable}={value} is not a number from {least:g} to {_LARGEST_LIMIT:.0f}.", hint=hint)
    return number
