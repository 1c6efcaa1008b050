import pytest

from durations import minutes


@pytest.mark.parametrize(("text", "expected"), [("45m", 45), ("75m", 75), ("2h", 120), ("1h 30m", 90), (" 1h30m ", 90)])
def test_a_duration_is_read(text, expected):
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "h"])
def test_anything_else_is_an_error(text):
    with pytest.raises(ValueError):
        minutes(text)
