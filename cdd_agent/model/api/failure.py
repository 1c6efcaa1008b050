"""Why a request to the model failed: whether to ask again, after how long, and what to tell the user. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, TypeAlias

from cdd_agent.errors import ModelError
from cdd_agent.model.api.endpoint import shown_url
from cdd_agent.settings import DEFAULT_MODEL

LONGEST_WAIT_S = 60.0
"""A longer pause that a server asks for is waited for only if a person says so."""

LONGEST_ASKED_S = 86_400.0
"""A pause above it is not worth asking about."""

Cause: TypeAlias = Literal["status", "connection", "timeout", "cut", "garbled", "too_large", "too_slow"]
"""A status of HTTP; no connection; nothing heard in time; an answer that broke off; one that makes no sense; one
that went beyond what an answer may take."""

_STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_WITHOUT_MODEL = "what works without a model: cdd demo, cdd --replay FILE, cdd status, pytest --tdd-agent"
_SET_KEY = "export ANTHROPIC_API_KEY=... (keys are made at https://platform.claude.com)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One try that failed."""

    cause: Cause
    message: str
    """What the server or the network said, on one line, without the key."""
    status: int = 0
    """Of HTTP, or the one that an error in the middle of a stream stands for; 0: there was none."""
    retry_after_s: float | None = None
    may_retry: bool = True
    """False if the server forbade another try."""

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed a little later."""
        if self.cause == "status":
            return self.may_retry and (self.status in (408, 409, 429) or self.status >= 500)
        return self.may_retry and self.cause in ("connection", "timeout", "cut")

    @property
    def summary(self) -> str:
        """The failure in a few words."""
        match self.cause:
            case "status":
                return f"{_status_words(self.status)} ({self.status})"
            case "connection":
                return "no connection"
            case "timeout":
                return "no answer in time"
            case "cut":
                return "the answer broke off"
            case "garbled":
                return "the answer could not be read"
            case "too_large":
                return "the answer is too large"
            case "too_slow":
                return "the answer took too long"


class TryFailed(Exception):
    """One try failed; caught where it is decided whether there is another."""

    def __init__(self, failure: Failure) -> None:
        """``failure`` says why."""
        super().__init__(failure.summary)
        self.failure = failure


def wait_s(failure: Failure, number: int, *, chance: float) -> float | None:
    """Seconds to wait after the ``number``-th try failed; nothing: another try would be in vain.

    1, 2, 4 ... give or take a quarter as ``chance`` (0 to 1) says, so that programs that failed together do not come
    back together; but never less than the server asks for.
    """
    if not failure.is_transient:
        return None
    own: float = 2.0 ** (number - 1) * (0.75 + chance / 2)
    return max(own, failure.retry_after_s or 0.0)


def retry_after_s(headers: Mapping[str, str], *, now: str) -> float | None:
    """The pause that the server asks for, as seconds or as a date; None if it asks for none, or in words.

    ``now`` as the clock gives it.
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[+-]?[0-9]{1,99}(\.[0-9]{0,9})?", value):
        return max(float(value), 0.0)
    try:
        at = parsedate_to_datetime(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return max((at - datetime.fromisoformat(now)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def status_of(kind: str) -> int:
    """The HTTP status that stands for an error type of the API, which names it alone in the middle of a stream."""
    return _STATUS_OF_KIND.get(kind, 500)


def no_key() -> ModelError:
    """The error of a program that has neither a key nor a recording."""
    return ModelError("No model is available: ANTHROPIC_API_KEY is not set.", hint=f"{_SET_KEY}; {_WITHOUT_MODEL}")


def unusable_key() -> ModelError:
    """The error of a key that cannot be written into a header."""
    return ModelError(
        "The API key cannot be sent: it holds a space, a line break or a character outside ASCII.",
        hint=f"copy it again, then {_SET_KEY}",
    )


def explain(failure: Failure, *, model: str, url: str, tries: int) -> ModelError:
    """The error for the user: what happened, and what to do about it."""
    where = shown_url(url)
    after = f" after {tries} tries" if tries > 1 else ""
    said = f": {failure.message}" if failure.message else ""
    match failure.cause:
        case "status" if 300 <= failure.status < 400:
            happened = f"{where} sends requests on ({failure.status}), which is not followed{said}."
            hint = "set ANTHROPIC_BASE_URL to the address that is meant, if you trust it with your key and your code"
        case "status":
            return _explain_status(failure, model, where=where, rest=f"{after}{said}")
        case "connection":
            happened = f"There is no connection to {where}{after}{said}."
            hint = "check the network, ANTHROPIC_BASE_URL and HTTPS_PROXY, then run the same command again"
        case "timeout":
            happened = f"{where} did not answer in time{after}{said}."
            hint = "run the same command again in a few minutes; for a slow server: export CDD_MODEL_IDLE_S=300"
        case "cut":
            happened = f"The answer from {where} broke off before its end{after}{said}."
            hint = "run the same command again; nothing of the broken answer was carried out"
        case "garbled":
            happened = f"The answer from {where} could not be read{said}."
            hint = "check that ANTHROPIC_BASE_URL names a server that speaks the Messages API"
        case "too_large":
            happened = f"The answer from {where} is larger than one may be{said}."
            hint = "run the same command again; if it happens every time: export CDD_MODEL_ANSWER_BYTES=8000000"
        case "too_slow":
            happened = f"The answer from {where} did not end in time{said}."
            hint = "run the same command again; for a slow server: export CDD_MODEL_TOTAL_S=1800"
    return ModelError(happened, hint=hint)


def _explain_status(failure: Failure, model: str, *, where: str, rest: str) -> ModelError:
    match failure.status:
        case 401:
            return ModelError(f"{where} refused the API key (401){rest}.", hint=f"{_SET_KEY}; {_WITHOUT_MODEL}")
        case 402:
            return ModelError(f"The account cannot pay (402){rest}.", hint=f"add credit; {_WITHOUT_MODEL}")
        case 403:
            return ModelError(
                f"The API key may not use {model} at {where} (403){rest}.",
                hint="choose another model with --model ID, or use a key that is allowed to",
            )
        case 404:
            return ModelError(
                f"{where} knows no model {model!r} (404){rest}.",
                hint=f"choose another with --model ID (the default is {DEFAULT_MODEL}); if ANTHROPIC_BASE_URL is set, "
                "it must not end in /v1",
            )
        case 413:
            return ModelError(
                f"The request is too large for {where} (413){rest}.",
                hint="start the step again, which begins a new conversation, or split it into smaller steps",
            )
        case 429:
            return ModelError(
                f"The rate limit of the API key is reached (429){rest}{_pause(failure)}.",
                hint="wait, then run the same command again: it goes on where it stopped",
            )
        case status if status in (408, 409) or status >= 500:
            return ModelError(
                f"{where} could not answer: {_status_words(status)} ({status}){rest}{_pause(failure)}.",
                hint="run the same command again in a few minutes: it goes on where it stopped",
            )
        case status:
            return ModelError(
                f"{where} refused the request to {model} ({status}){rest}.",
                hint="start the step again, which begins a new conversation, or choose another model with --model ID",
            )


def _pause(failure: Failure) -> str:
    """The pause that the server asks for, where it is worth telling."""
    return "" if failure.retry_after_s is None else f"; the server asks to wait {failure.retry_after_s:.0f} s"


def _status_words(status: int) -> str:
    match status:
        case 408:
            return "request timed out"
        case 409:
            return "conflict"
        case 429:
            return "rate limit reached"
        case 529:
            return "overloaded"
        case _:
            return "server error" if status >= 500 else "refused"
