from pathlib import Path

import pytest

from cdd_agent.errors import DocumentError
from cdd_agent.testrun.project import FILE, Properties, offer_properties, read_properties


def test_the_two_keys_are_read_once_the_user_has_approved_just_these_lines(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("# how\ntest.command = make check\nbash.timeout: 30\nother=1\n")
    offer = offer_properties(tmp_path)
    assert offer is not None
    assert offer.shown == ("test.command=make check", "bash.timeout=30")
    assert read_properties(tmp_path, allows=lambda _: True) == Properties(command="make check", timeout_s=30.0)
    assert read_properties(tmp_path, allows=lambda _: False) == Properties()
    (tmp_path / FILE).write_text("other=2\ntest.command=make check\nbash.timeout=30\n")
    again = offer_properties(tmp_path)
    assert again is not None
    assert again.digest == offer.digest, "other keys are nobody's business"


@pytest.mark.parametrize("text", [None, "", "other=1\n", "test.command=\n"])
def test_without_the_keys_nothing_is_asked(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / FILE).write_text(text)
    assert offer_properties(tmp_path) is None
    assert read_properties(tmp_path, allows=lambda _: pytest.fail("asked")) == Properties()


@pytest.mark.parametrize("value", ["soon", "0", "-1", "1e99"])
def test_a_time_that_is_none_is_an_error_that_quotes_it(tmp_path: Path, value: str) -> None:
    (tmp_path / FILE).write_text(f"\nbash.timeout={value}\n")
    with pytest.raises(DocumentError) as wrong:
        read_properties(tmp_path, allows=lambda _: True)
    assert f"bash.timeout must be a positive number of seconds, not '{value}'" in str(wrong.value)
