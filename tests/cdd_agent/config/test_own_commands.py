"""Own commands: what a file says, and which files count."""

from pathlib import Path

import pytest

from cdd_agent.config.own_commands import MAX_SIZE_BYTES, OwnCommand, list_own_commands
from cdd_agent.errors import UsageError


def make(content: str) -> OwnCommand:
    return OwnCommand(name="x", source="x.md", content=content, offer=None)


@pytest.mark.parametrize(
    ("content", "description", "sent"),
    [
        ("---\ndescription: Say it\nmodel: other\n---\nSay $ARGUMENTS!\n", "Say it", "Say this!"),
        ('---\ndescription: "Say it"\n---\nSay\n', "Say it", "Say\n\nthis"),
        ("# Say\n\nit\n", "Say", "# Say\n\nit\n\nthis"),
        ("---\nnever closed\n", "---", "---\nnever closed\n\nthis"),
    ],
)
def test_the_text_behind_the_head_is_sent_with_the_words(content: str, description: str, sent: str) -> None:
    assert make(content).description == description
    assert make(content).expand("this") == sent


def test_a_file_without_text_sends_nothing() -> None:
    with pytest.raises(UsageError, match=r"x\.md has no text"):
        make("---\ndescription: nothing\n---\n").expand("this")


def test_the_user_s_own_file_wins_and_needs_no_approval(tmp_path: Path) -> None:
    theirs, mine = tmp_path / ".cdd" / "commands", tmp_path / "home" / "cdd" / "commands"
    for folder in (theirs, mine):
        folder.mkdir(parents=True)
        (folder / "both.md").write_text(str(folder))
    (theirs / "theirs.md").write_text("theirs")
    (theirs / "large.md").write_text("x" * (MAX_SIZE_BYTES + 1))
    (theirs / "Not A Name.md").write_text("x")
    (theirs / "linked.md").symlink_to(theirs / "theirs.md")
    found = list_own_commands(tmp_path, environment={"XDG_CONFIG_HOME": str(tmp_path / "home")})
    assert sorted(found) == ["both", "theirs"]
    assert (found["both"].offer, found["both"].content) == (None, str(mine))
    assert found["theirs"].offer is not None
