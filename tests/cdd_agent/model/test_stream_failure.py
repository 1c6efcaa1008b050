import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import ExitCode, ModelError, UsageError
from cdd_agent.model.stream import (
    AnswerLimits,
    Cause,
    RequestFailed,
    check_key,
    choose_pause_s,
    explain,
    parse_retry_after,
    redact_url,
)

NOW = "2026-01-31T12:00:00Z"


def status(code: int, retry_after_s: float | None = None, may_retry: bool = True) -> RequestFailed:
    return RequestFailed(cause="status", status=code, message="m", retry_after_s=retry_after_s, may_retry=may_retry)


@pytest.mark.parametrize("code", [408, 409, 429, 500, 502, 529])
def test_a_passing_failure_is_waited_out_twice_as_long_each_time(code: int) -> None:
    assert [choose_pause_s(status(code), number, chance=0.5) for number in (1, 2, 3)] == [1.0, 2.0, 4.0]


def test_the_pauses_of_many_programs_are_spread() -> None:
    assert [choose_pause_s(status(529), 3, chance=chance) for chance in (0.0, 0.5, 1.0)] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("code", [300, 307, 400, 401, 402, 403, 404, 413, 422])
def test_a_lasting_failure_is_not_retried(code: int) -> None:
    assert choose_pause_s(status(code), 1, chance=0.5) is None


@pytest.mark.parametrize(
    ("cause", "passes"),
    [("connection", True), ("timeout", True), ("cut", True), ("garbled", False), ("too_large", False)],
)
def test_what_broke_off_may_pass_and_what_makes_no_sense_does_not(cause: Cause, passes: bool) -> None:
    assert RequestFailed(cause=cause, message="").is_transient is passes


def test_a_server_gets_at_least_the_pause_that_it_asks_for() -> None:
    assert choose_pause_s(status(429, 60.0), 1, chance=0.5) == 60.0
    assert choose_pause_s(status(429, 3600.0), 1, chance=0.5) == 3600.0
    assert choose_pause_s(status(429, 0.0), 2, chance=0.5) == 2.0


def test_a_server_may_forbid_another_try() -> None:
    assert choose_pause_s(status(529, may_retry=False), 1, chance=0.5) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0.5 ", 0.5),
        ("-3", 0.0),
        ("86400", 86_400.0),
        ("9" * 30, 1e30),
        ("Sat, 31 Jan 2026 12:00:30 GMT", 30.0),
        ("Sat, 31 Jan 2026 11:00:00 GMT", 0.0),
        ("Sat, 31 Jan 2026 12:00:30", 30.0),
        ("Sat, 31 Jan 99999 12:00:30 GMT", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@given(st.text() | st.from_regex(r"\A[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ \S*\Z"))
def test_no_retry_after_is_an_error_of_its_own(value: str) -> None:
    pause = parse_retry_after(value, now=NOW)
    assert pause is None or pause >= 0


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 408, 409, 413, 418, 429, 500, 529])
def test_every_status_has_a_sentence_with_its_number_and_a_hint(code: int) -> None:
    error = explain(status(code), model="claude-x", url="https://host", tries=3)
    assert f"({code}) after 3 tries: m" in str(error)
    assert len(error.hint) > 20
    assert error.exit_code == ExitCode.ENVIRONMENT


def test_a_failure_without_a_message_has_no_stray_colon() -> None:
    error = explain(RequestFailed(cause="timeout", message=""), model="m", url="https://host", tries=1)
    assert str(error) == "https://host did not answer in time."


def test_a_long_pause_is_told() -> None:
    error = explain(status(429, 3600.0), model="m", url="https://host", tries=1)
    assert "the server asks to wait 3600 s" in str(error)


def test_a_redirect_is_told_as_what_it_is() -> None:
    error = explain(status(307), model="m", url="https://host", tries=1)
    assert "https://host redirects to another address (307), which cdd does not follow" in str(error)
    assert "ANTHROPIC_BASE_URL" in error.hint


@pytest.mark.parametrize(("cause", "variable"), [("too_large", "ANSWER_BYTES"), ("too_slow", "TOTAL_S")])
def test_a_limit_that_was_reached_names_its_variable(cause: Cause, variable: str) -> None:
    error = explain(RequestFailed(cause=cause, message="m"), model="m", url="https://host", tries=1)
    assert f"export CDD_MODEL_{variable}=" in error.hint


def test_the_usual_limits() -> None:
    usual = AnswerLimits.from_environment({})
    assert (usual.idle_s, usual.total_s, usual.answer_bytes, usual.tries) == (60, 600, 4_000_000, 4)
    assert usual.pings_s == 180


def test_each_limit_has_a_variable() -> None:
    told = {"CDD_MODEL_IDLE_S": "300", "CDD_MODEL_TOTAL_S": "1800.5", "CDD_MODEL_ANSWER_BYTES": "8000000"}
    assert AnswerLimits.from_environment(told) == AnswerLimits(idle_s=300, total_s=1800.5, answer_bytes=8_000_000)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e30", "a lot", "1,5"])
@pytest.mark.parametrize("name", ["IDLE_S", "TOTAL_S", "ANSWER_BYTES"])
def test_what_is_no_limit_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"CDD_MODEL_{name}={value} is not a number") as caught:
        AnswerLimits.from_environment({f"CDD_MODEL_{name}": value})
    assert f"unset CDD_MODEL_{name}" in caught.value.hint


def test_an_address_is_shown_without_its_password() -> None:
    assert redact_url("https://ann:secret@host:8080/api/?key=1") == "https://host:8080/api"


def test_an_address_that_is_none_is_shown_without_its_password_too() -> None:
    assert redact_url("http://ann:secret@host:bad") == "host:bad"


@pytest.mark.parametrize("key", ["", "sk-ant-a b", "sk-ant-\u00fc", "sk-ant-a\nb"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ModelError) as caught:
        check_key(key)
    assert "sk-ant" not in str(caught.value)
    assert "export ANTHROPIC_API_KEY=" in caught.value.hint
