import json

import pytest

from cdd_agent.untrusted.documents import UnfitError, check_json


@pytest.mark.parametrize("source", ["[]", '{"a": 1, "b": {"a": 2}}', '"a"', '[{"a": 1}, {"a": 2}]'])
def test_json_without_surprises_passes(source: str) -> None:
    check_json(source, limit_bytes=100)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        ('[{"x": {"a": 1, "\\u0061": 3}}]', "the key 'a' occurs twice"),
        ("[" * 99_000, "nested too deeply"),
        ('"' + "x" * 100_000 + '"', "it has 100002 bytes; at most 100000 are read"),
        ('"\ud800"', "it contains a lone surrogate (U+D800)"),
    ],
)
def test_what_readers_take_differently_is_refused(source: str, message: str) -> None:
    with pytest.raises(UnfitError) as error:
        check_json(source, limit_bytes=100_000)

    assert message in str(error.value)


def test_what_is_no_json_is_a_value_error() -> None:
    with pytest.raises(json.JSONDecodeError):
        check_json("{", limit_bytes=100)
