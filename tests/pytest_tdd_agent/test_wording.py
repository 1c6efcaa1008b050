import pytest

from pytest_tdd_agent.report import Clause, Part
from pytest_tdd_agent.wording import fill


@pytest.mark.parametrize(
    ("template", "parts", "text"),
    [
        ("{name} failed", {"name": "test_a"}, "test_a failed"),
        ("{names}", {"names": tuple("abcdefg")}, "a, b, c, d, e and 2 more"),
        ("{names:2;}", {"names": tuple("abc")}, "a; b; and 1 more"),
        ("{count:test} in {seconds:.1f} s", {"count": 2, "seconds": 1.23}, "2 tests in 1.2 s"),
        ("It {why}.", {"why": Clause("other", {"n": 1})}, "It has 1 line."),
    ],
)
def test_a_template_names_parts(template: str, parts: dict[str, Part], text: str) -> None:
    assert fill(Clause("case", parts), {"case": template, "other": "has {n:line}"}) == text


def test_a_record_of_a_stranger_never_raises() -> None:
    templates = {"case": "{count:.1f} of {missing} in {__class__}"}
    assert fill(Clause("case", {"count": "many"}), templates) == "many of ? in ?"
    assert fill(Clause("unknown", {"a": 1}), templates) == "unknown (a: 1)"
