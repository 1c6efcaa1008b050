import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.model.api.strict_json import MOST_DEEP, read_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_json_writes_is_read_equal(value: dict[str, object]) -> None:
    assert read_object(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"b": {"a": 1, "\\u0061": 2}}', "'a' is there twice"),
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "too large"),
        ('{"a": 1} {}', "Extra data"),
        ('{"a": 1', "delimiter"),
        ("[1]", "a list, not an object"),
        ("null", "a NoneType, not an object"),
        ("", "Expecting value"),
        ('{"a": "\\ud800"}', "surrogates"),
        ('{"\\udfff": 1}', "surrogates"),
        ('{"a": "\n"}', "control character"),
        (nested(MOST_DEEP + 1), "too deeply"),
        (nested(200_000), "too deeply"),
        ('{"a":' + "[" * 200_000, "too deeply"),
        ("\ufeff{}", "BOM"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_object(text)


def test_nesting_is_read_up_to_its_limit() -> None:
    assert read_object(nested(MOST_DEEP))


@given(st.text() | st.text(alphabet='{}[]",:0123456789.eE+-truefalsn\\u '))
def test_nothing_but_an_object_or_a_value_error_comes_out(text: str) -> None:
    try:
        value = read_object(text)
    except ValueError:
        return
    assert isinstance(value, dict)
