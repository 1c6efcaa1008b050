"""What a word means: as bash says, or unknown."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdd_agent.shell.words import expand_braces, parse_word

LETTERS = st.text(alphabet=st.sampled_from("ab-/.=,:'\"\\$`~#!{}*?[]()é x"), max_size=8)
ENDS = st.sampled_from(["", "'a b'", '"a b"', r"\ ", r"\'", '"\\$x"', "''", '""', "a{b,c}", "{}", "~", "~/a"])


@settings(max_examples=20)
@given(st.lists(st.builds(lambda one, two, end: f"{one}{end}{two}", LETTERS, LETTERS, ENDS), min_size=60, max_size=60))
def test_a_word_that_is_known_is_what_bash_makes_of_it(texts: list[str]) -> None:
    known = [text for text in texts if text and all(word.is_exact for word in expand_braces(text))]
    script = "".join(f"printf '%s\\0' {text}\nprintf '\\1\\0'\n" for text in known)
    told = subprocess.run(["bash", "-c", script], capture_output=True, check=False, cwd="/").stdout.decode()
    given = [word.split("\0")[:-1] for word in told.split("\1\0")[:-1]]
    assert given == [[word.value for word in expand_braces(text)] for text in known]


@pytest.mark.parametrize(
    "text", ["$x", "${x}", "$(ls)", "`ls`", '"$x"', '"`ls`"', "$'a'", '$"a"', "{a,b}{c,d}", "a{1..3}", "'open", '"open']
)
def test_what_is_known_only_when_it_runs_is_unknown(text: str) -> None:
    assert [word.value for word in expand_braces(text)] == [None]


@pytest.mark.parametrize("text", ["*", "a?", "[ab]c", "src/*.py"])
def test_wildcards_are_a_pattern_and_quoted_ones_are_none(text: str) -> None:
    assert parse_word(text).is_pattern
    assert not parse_word(f"'{text}'").is_pattern


def test_all_spellings_of_a_word_have_one_canonical_form() -> None:
    assert {parse_word(text).canonical for text in ("a b".replace(" ", r"\ "), "'a b'", '"a b"', "a' 'b")} == {"'a b'"}
    assert parse_word("'$x'").canonical != parse_word('"$x"').canonical
