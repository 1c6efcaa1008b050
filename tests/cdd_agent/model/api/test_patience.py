import pytest

from cdd_agent.errors import UsageError
from cdd_agent.model.api.patience import Patience


def test_the_usual_limits() -> None:
    usual = Patience.named_by({})
    assert (usual.idle_s, usual.total_s, usual.answer_bytes, usual.tries) == (60, 600, 4_000_000, 4)
    assert usual.pings_s == 180


def test_each_limit_has_a_variable() -> None:
    told = {"CDD_MODEL_IDLE_S": "300", "CDD_MODEL_TOTAL_S": "1800.5", "CDD_MODEL_ANSWER_BYTES": "8000000"}
    assert Patience.named_by(told) == Patience(idle_s=300, total_s=1800.5, answer_bytes=8_000_000)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e30", "a lot", "1,5"])
@pytest.mark.parametrize("name", ["IDLE_S", "TOTAL_S", "ANSWER_BYTES"])
def test_what_is_no_limit_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"CDD_MODEL_{name}={value} is not a number") as caught:
        Patience.named_by({f"CDD_MODEL_{name}": value})
    assert f"unset CDD_MODEL_{name}" in caught.value.hint
