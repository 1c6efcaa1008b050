"""What ``docs/reference/model.md`` says of errors is what they say."""

import re
from pathlib import Path

import pytest

from cdd_agent.errors import ModelError
from cdd_agent.model.stream import AnswerLimits, Cause, RequestFailed, StreamedTurn, check_key, explain

DOC = (Path(__file__).parents[3] / "docs/reference/model.md").read_text(encoding="utf-8")
SAID = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", DOC.partition("## What errors say")[2], re.MULTILINE))

CAUSES: dict[str, Cause] = {
    "no connection, a proxy or a certificate that fails": "connection",
    "nothing heard in time": "timeout",
    "cut off": "cut",
    "not a stream of events, no strict JSON, compressed": "garbled",
    "too large": "too_large",
    "too slow": "too_slow",
}


def error(what: str) -> str:
    """The error for a row of the table."""
    if what == "no key":
        with pytest.raises(ModelError) as caught:
            check_key("")
        return str(caught.value)
    if what.startswith("events"):
        with pytest.raises(ModelError) as caught:
            StreamedTurn().feed({"type": "message_start"})
        return str(caught.value)
    cause = CAUSES.get(what, "status")
    status = int(found[1]) if (found := re.search(r"\((\d+)\)", SAID[what])) else 0
    failure = RequestFailed(cause=cause, status=status, message="m")
    return str(explain(failure, model="MODEL", url="https://server", tries=1)).replace("https://server", "SERVER")


@pytest.mark.parametrize("what", [what for what in SAID if what not in {"what happened", "---"}])
def test_each_error_says_what_the_page_says(what: str) -> None:
    assert error(what).startswith(SAID[what])


def test_the_table_knows_every_cause_and_every_status_with_words_of_its_own() -> None:
    assert set(CAUSES) <= set(SAID)
    assert {"401", "402", "403", "404", "408", "413", "429", "529"} <= set(SAID)


def test_the_limits_are_the_usual_ones() -> None:
    usual = AnswerLimits()
    for limit, variable in (
        (f"{usual.idle_s:g} s", "CDD_MODEL_IDLE_S"),
        (f"{usual.total_s:g} s", "CDD_MODEL_TOTAL_S"),
        (f"{usual.answer_bytes:,} bytes", "CDD_MODEL_ANSWER_BYTES"),
    ):
        assert f"| {limit} | `{variable}` |" in DOC
    assert usual.tries == 4
    assert "There are three more tries, after 1, 2 and 4 seconds" in DOC
