import pytest

from cdd_agent.errors import ExitCode
from cdd_agent.model import failure as failures
from cdd_agent.model.failure import Failure

NOW = "2026-01-31T12:00:00Z"


def status(code: int, retry_after_s: float | None = None, may_retry: bool = True) -> Failure:
    return Failure(cause="status", status=code, message="m", retry_after_s=retry_after_s, may_retry=may_retry)


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 529])
def test_a_passing_failure_is_waited_out_twice_as_long_each_time(code: int) -> None:
    assert [failures.wait_s(status(code), number) for number in (1, 2, 3)] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 413, 422])
def test_a_lasting_failure_is_not_retried(code: int) -> None:
    assert failures.wait_s(status(code), 1) is None


def test_the_pause_that_the_server_asks_for_is_kept_up_to_a_minute() -> None:
    assert failures.wait_s(status(429, 60.0), 1) == 60.0
    assert failures.wait_s(status(429, 61.0), 1) is None


def test_a_server_may_forbid_another_try() -> None:
    assert failures.wait_s(status(529, may_retry=False), 1) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("Sat, 31 Jan 2026 12:00:30 GMT", 30.0), ("soon", None), (None, None)],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    assert failures.retry_after_s({} if value is None else {"retry-after": value}, now=NOW) == seconds


def test_an_address_is_shown_without_its_password() -> None:
    assert failures.shown_url("https://ann:secret@host:8080/api/?key=1") == "https://host:8080/api"


def test_an_address_that_is_none_is_shown_without_its_password_too() -> None:
    assert failures.shown_url("http://ann:secret@host:bad") == "host:bad"


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 408, 409, 413, 418, 429, 500, 529])
def test_every_status_has_a_sentence_with_its_number_and_a_hint(code: int) -> None:
    error = failures.explain(status(code), model="claude-x", url="https://host", tries=3)
    assert f"({code}) after 3 tries: m" in str(error)
    assert len(error.hint) > 20
    assert error.exit_code == ExitCode.ENVIRONMENT


def test_a_failure_without_a_message_has_no_stray_colon() -> None:
    error = failures.explain(Failure(cause="timeout", message=""), model="m", url="https://host", tries=1)
    assert str(error) == "https://host did not answer in time."


def test_a_long_pause_is_told() -> None:
    error = failures.explain(status(429, 3600.0), model="m", url="https://host", tries=1)
    assert "the server asks to wait 3600 s" in str(error)
