import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.untrusted.paths import fold_name


@pytest.mark.parametrize(
    "name",
    [
        ".GIT",
        ".Git",
        ".git.",
        ".git ",
        ".git. .",
        ".g\u200bit",
        "\ufeff.git",
        ".\uff47it",
        ".gi\U000e0074t",
        ".git\ufe0f",
        ".git::$INDEX_ALLOCATION",
    ],
)
def test_every_spelling_of_a_name_is_the_same(name: str) -> None:
    assert fold_name(name) == ".git"


@pytest.mark.parametrize("name", [".", "..", "...", ".gitignore", "git", "digit", ".g\u0131t", ".gitt"])
def test_other_names_stay_other_names(name: str) -> None:
    assert fold_name(name) != ".git"


def test_composed_and_decomposed_names_are_the_same() -> None:
    assert fold_name(unicodedata.normalize("NFD", "caf\u00e9.py")) == fold_name("CAF\u00c9.py")


@given(st.text(max_size=20))
def test_folding_twice_is_folding_once_but_for_what_a_colon_hid(name: str) -> None:
    once = fold_name(name)
    assert fold_name(once) == once or ":" in unicodedata.normalize("NFKC", name) or once.strip(". ") == ""
