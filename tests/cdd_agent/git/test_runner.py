import pytest

from cdd_agent.git.repository import Repository


@pytest.mark.slow
def test_git_is_given_all_of_a_long_input_however_slowly_it_reads(repository: Repository) -> None:
    """More than a pipe holds, and work for longer than the first look at whether git has ended."""
    asked = repository.git("rev-parse", "HEAD")
    listed = repository.git("cat-file", "--batch", stdin=asked.encode() * 30_000)
    assert listed.count("first\n") == 30_000


def test_git_without_input_waits_for_none(repository: Repository) -> None:
    assert repository.git("hash-object", "--stdin").strip() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
