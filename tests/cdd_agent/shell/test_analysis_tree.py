"""When the parser is loaded, what it is not given, and where it is not believed."""

import subprocess
import sys

import pytest

from cdd_agent.shell.analysis import MAX_BYTES, find_doubts, parse_line
from tests.fakes.program import ROOT


def doubted(source: str) -> list[str]:
    root = parse_line(source.encode())
    assert root is not None
    return list(find_doubts(root, source.encode()))


def test_the_parser_is_loaded_with_the_first_command_only() -> None:
    code = (
        "import sys, cdd_agent.compose, cdd_agent.cli.chat, cdd_agent.tdd.attempt\n"
        "assert not any(name.startswith(('tree_sitter', 'cdd_agent.shell.analysis')) for name in sys.modules)\n"
        "from cdd_agent.shell.analysis import judge\n"
        "assert 'tree_sitter' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("source", ["x" * (MAX_BYTES + 1), "a;" * 900, "cat <<E;" * 30, "(" * 900])
def test_what_would_take_the_parser_long_is_not_given_to_it(source: str) -> None:
    assert parse_line(source.encode()) is None


@pytest.mark.parametrize(
    "source",
    [
        "ls -la | head; cat a && (cd b)",
        "echo 'a # b' \"c\nd\" # e",
        "ls \\\n  -la",
        "cat <<'EOF' > f && ls\n$(rm x)\nEOF\nls",
        "cat <<-EOF\n\ta\n\tEOF\nls",
        "cat <<EOF | head\n$x\nEOF",
    ],
)
def test_a_plain_line_is_believed(source: str) -> None:
    assert doubted(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "ls )",
        "echo 'open",
        "r\\\nm x",
        "ls\r\nrm x",
        "ls \x0b x",
        'cat <<E"O"F\na\nEOF',
        "cat <<\\EOF\na\nEOF",
        "cat <<A <<B\na\nA\nb\nB",
        'cat <<A "x\ny"\na\nA',
        "cat <<A\na\n",
        "echo $[1<<A]\nrm x\nA",
    ],
)
def test_what_bash_may_read_otherwise_is_doubted(source: str) -> None:
    assert doubted(source) != []
