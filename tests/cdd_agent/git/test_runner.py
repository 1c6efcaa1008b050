from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.git.repository import Repository, format_lines
from cdd_agent.git.runner import Argument, Call, GitRefused, build_argv, run_once

ODD = ("--output=x", "-", "--", "--upload-pack=x", "HEAD")
WORDS = st.text(alphabet="-a=\0\n ^", max_size=5) | st.sampled_from(ODD)
OPTIONS = st.lists(st.sampled_from(("-z", "--quiet", "--")), max_size=3).map(tuple)


@pytest.mark.slow
def test_git_is_given_all_of_a_long_input_however_slowly_it_reads(repository: Repository) -> None:
    """More than a pipe holds, and work for longer than the first look at whether git has ended."""
    asked = repository.git("rev-parse", "HEAD")
    listed = repository.git("cat-file", ("--batch",), stdin=asked.encode() * 30_000)
    assert listed.count("first\n") == 30_000


def test_git_without_input_waits_for_none(repository: Repository) -> None:
    assert repository.git("hash-object", ("--stdin",)).strip() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@given(st.lists(WORDS | OPTIONS, max_size=6))
def test_no_word_becomes_an_option_unless_the_caller_marked_it(arguments: list[Argument]) -> None:
    at = next((at for at, each in enumerate(arguments) if isinstance(each, tuple) and "--" in each), len(arguments))
    names, paths = ([each for each in part if isinstance(each, str)] for part in (arguments[:at], arguments[at:]))
    try:
        argv = build_argv("rev-list", arguments)
    except GitRefused:
        assert any(word.startswith("-") for word in names) or any("\0" in word for word in (*names, *paths))
    else:
        before = argv[: argv.index("--")] if at < len(arguments) else argv
        options = {option for each in arguments if isinstance(each, tuple) for option in each}
        assert {word for word in before if word.startswith("-")} <= options
        assert argv[2:] == [word for each in arguments for word in ((each,) if isinstance(each, str) else each)]


@given(st.lists(WORDS, max_size=4))
def test_each_name_is_one_line_of_git_s_input_and_no_option(names: list[str]) -> None:
    try:
        lines = format_lines(names).decode().splitlines(keepends=True)
    except GitRefused:
        assert any(name.startswith("-") or "\n" in name for name in names)
    else:
        assert lines == [f"{name}\n" for name in names]
        assert not any(line.startswith("-") for line in lines)


def test_a_name_among_the_options_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="only options"):
        build_argv("log", [("-1", "HEAD")])


def test_a_name_that_is_an_option_is_refused_before_git_starts(repository: Repository, tmp_path: Path) -> None:
    target = tmp_path / "overwritten"
    with pytest.raises(GitRefused, match="not the name of a commit"):
        repository.git("-c", "alias.x=!touch ran", "x")
    for word in (f"--output={target}", f"--output={target}..HEAD", "--all", "-"):
        with pytest.raises(GitRefused, match="not the name of a commit"):
            repository.git("log", word)
        with pytest.raises(GitRefused, match="not the name of a commit"):
            run_once(Call(verb="rev-list", arguments=(word,)), folder=repository.root)
    assert not target.exists()


def test_a_file_whose_name_begins_like_an_option_is_a_file(repository: Repository) -> None:
    for name in ("-x.txt", "--output=x"):
        (repository.root / name).write_text("x\n")
    repository.git("add", ("--",), "-x.txt", "--output=x")
    assert repository.git("ls-files", ("--",), "-x.txt", "--output=x").split() == ["--output=x", "-x.txt"]
