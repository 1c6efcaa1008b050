from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.sources import Language, Sources, shorten, strip_terminal_codes
from tests.cdd_agent.testrun.frameworks.compiled_samples import written


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    names = (
        "src/a.rs",
        "src/bin/b.rs",
        "target/c.rs",
        "src/target/d.rs",
        ".git/e.rs",
        "node_modules/f/src/g.rs",
        "h.txt",
    )
    language = Language(suffixes=(".rs",), built=("target", "bin"), is_test=lambda _: False)
    return Sources(written(tmp_path, dict.fromkeys(names, "x\nfn one()\n")), language)


def test_what_was_built_or_fetched_is_not_the_project_s_unless_it_lies_in_src(sources: Sources) -> None:
    assert sources.files() == ("src/a.rs", "src/bin/b.rs", "src/target/d.rs")


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ("src/a.rs", "src/a.rs"),
        ("./src/a.rs", "src/a.rs"),
        ("member/src/a.rs", "src/a.rs"),
        ("target/c.rs", None),
        ("../a.rs", None),
        ("/etc/passwd", None),
        ("src/none.rs", None),
        ("src/a.rs\0", None),
        ("node_modules/f/src/g.rs", None),
    ],
)
def test_a_file_is_own_by_where_it_lies(sources: Sources, told: str, *, path: str | None) -> None:
    assert sources.find_own(told) == path


def test_an_absolute_path_is_own_below_the_root(sources: Sources) -> None:
    assert sources.find_own(f"{sources.root}/src/a.rs") == "src/a.rs"


def test_a_link_is_not_followed(sources: Sources) -> None:
    (sources.root / "src/link.rs").symlink_to("a.rs")
    assert sources.find_own("src/link.rs") is None
    assert sources.text("src/link.rs") == ""


def test_a_line_is_known_if_it_is_the_only_one(sources: Sources) -> None:
    assert sources.find_line("src/a.rs", r"\bfn one\b") == 2
    assert sources.find_line("src/a.rs", r"\bfn two\b") == 0
    (sources.root / "src/two.rs").write_text("fn one()\nfn one()\n")
    assert sources.find_line("src/two.rs", r"\bfn one\b") == 0


def test_colors_are_taken_off() -> None:
    assert strip_terminal_codes("\x1b[1m\x1b[31merror\x1b[0m\r\n") == "error\n"


def test_what_is_long_keeps_both_ends() -> None:
    short = shorten("a" * 5000 + "b" * 5000, 900)
    assert len(short) < 920
    assert (short[0], short[-1]) == ("a", "b")
