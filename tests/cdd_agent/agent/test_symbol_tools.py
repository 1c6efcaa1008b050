from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from cdd_agent.agent.editing import KnownFiles
from cdd_agent.agent.symbol_tools import RenameRules, make_symbol_tools
from cdd_agent.agent.tools import ToolOutput
from cdd_agent.model.conversation import JSON
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.workspace.files import Workspace

STATS = '''\
"""Statistics."""


def mean(values: list[float]) -> float:
    """Return the arithmetic mean."""
    return sum(values) / len(values)


class Report:
    @property
    def title(self) -> str:
        return "mean"

    def write(self, values: list[float]) -> str:
        raise NotImplementedError
'''
USER = "from stats import mean\n\nprint(mean([1.0]))  # the mean\n"
KEY = "sk-ant-api03-" + "a1B2" * 24


class Tools:
    """The tools in a folder with two files."""

    def __init__(
        self,
        root: Path,
        *,
        locked: str = "",
        kept: str = "",
        watch: Callable[[Collection[str]], Callable[[], str]] = lambda _: str,
    ) -> None:
        self.root = root
        for name, text in (("stats.py", STATS), ("user.py", USER)):
            (root / name).write_text(text)
        self.known = KnownFiles()
        made = make_symbol_tools(
            Symbols(Index(root)),
            Workspace(root),
            may_write=lambda path: f"{path} is locked." if path == locked else None,
            known=self.known,
            rules=RenameRules(
                keep_name=lambda symbol: "the graph names it." if symbol.name == kept else "", watch_tests=watch
            ),
        )
        self._tools = {tool.spec.name: tool for tool in made}

    def run(self, tool: str, /, **fields: JSON) -> ToolOutput:
        return self._tools[tool].run(fields)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture(name="tools")
def _tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def test_a_definition_is_found_with_its_place_signature_and_state(tools: Tools) -> None:
    assert tools.run("FindSymbol", name="mean").text == (
        "stats.py:4-6 mean: def mean(values: list[float]) -> float:  # Return the arithmetic mean."
    )
    assert "(not yet generated)" in tools.run("FindSymbol", name="Report.write").text
    shown = tools.run("FindSymbol", name="mean", include_body=True).text
    assert "     6\t    return sum(values) / len(values)" in shown
    missing = tools.run("FindSymbol", name="median")
    assert (missing.is_error, "Nothing defines median" in missing.text) == (True, True)


def test_a_file_is_listed_in_the_order_of_its_lines(tools: Tools) -> None:
    rows = tools.run("SymbolsOverview", file_path="stats.py").text.splitlines()
    assert [row.split(":")[0].split(" ")[0] or row.split()[0] for row in rows] == ["4-6", "9-15", "10-12", "14-15"]
    assert tools.run("SymbolsOverview", file_path="../stats.py").is_error


def test_uses_are_listed_by_file(tools: Tools) -> None:
    text = tools.run("FindReferences", name="mean").text
    assert text.splitlines()[1:] == [
        "user.py",
        "     1: from stats import mean",
        "     3: print(mean([1.0]))  # the mean",
    ]


def test_a_body_is_replaced_and_the_rest_stays(tools: Tools) -> None:
    output = tools.run("ReplaceSymbolBody", file_path="stats.py", name="mean", body="return 0.0")
    assert "     6\t    return 0.0" in output.text
    assert tools.read("stats.py") == STATS.replace("sum(values) / len(values)", "0.0")


def test_code_is_inserted_beside_a_definition(tools: Tools) -> None:
    tools.run("InsertAfterSymbol", file_path="stats.py", name="Report.title", code="def size(self):\n    return 1")
    tools.run("InsertBeforeSymbol", file_path="stats.py", name="mean", code="LIMIT = 3")
    text = tools.read("stats.py")
    assert '        return "mean"\n\n    def size(self):\n        return 1\n\n    def write' in text
    assert text.index("LIMIT = 3") < text.index("def mean")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return (", "never closed"),
        ("# ... rest of the code unchanged", "placeholder"),
        ("return [masked: Anthropic key]", "stands for a key"),
        ("return 'a\u202eb'", "U+202E"),
        ("return sum(values) / len(values)", "changes nothing"),
    ],
)
def test_what_edit_refuses_is_refused_here_too(tools: Tools, body: str, why: str) -> None:
    output = tools.run("ReplaceSymbolBody", file_path="stats.py", name="mean", body=body)
    assert (output.is_error, why in output.text) == (True, True), output.text
    assert tools.read("stats.py") == STATS


def test_a_key_in_the_code_is_hidden_and_stays(tools: Tools) -> None:
    keyed = STATS.replace('return "mean"', f'return "{KEY}"')
    (tools.root / "stats.py").write_text(keyed)
    assert KEY not in tools.run("FindSymbol", name="Report.title", include_body=True).text
    output = tools.run("ReplaceSymbolBody", file_path="stats.py", name="Report.title", body="return 'x'")
    assert (output.is_error, tools.read("stats.py")) == (True, keyed)
    shown = tools.run("InsertAfterSymbol", file_path="stats.py", name="Report.title", code="LIMIT = 1")
    assert (shown.is_error, KEY in shown.text, KEY in tools.read("stats.py")) == (False, False, True)


def test_a_locked_file_is_not_changed(tmp_path: Path) -> None:
    tools = Tools(tmp_path, locked="stats.py")
    assert "stats.py is locked" in tools.run("ReplaceSymbolBody", file_path="stats.py", name="mean", body="pass").text
    assert tools.read("stats.py") == STATS


def test_a_file_that_the_agent_knows_stays_known_after_its_edit(tools: Tools) -> None:
    tools.known.note("stats.py", STATS.encode())
    tools.run("ReplaceSymbolBody", file_path="stats.py", name="mean", body="return 0.0")
    assert tools.known.is_current("stats.py", tools.read("stats.py").encode())
    tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert tools.known.is_current("stats.py", tools.read("stats.py").encode())
    assert "user.py" not in tools.known


def test_a_rename_changes_all_files_and_names_what_it_leaves(tools: Tools) -> None:
    output = tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert output.changed == ("stats.py", "user.py")
    assert tools.read("user.py") == "from stats import average\n\nprint(average([1.0]))  # the mean\n"
    assert "user.py:3: print(average([1.0]))  # the mean" in output.text


def test_a_rename_names_the_other_files_that_contain_the_name(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project.scripts]\nmean = "stats:mean"\nmeans = "stats:main"\n')
    output = tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert 'pyproject.toml:2: mean = "stats:mean"' in output.text
    assert "means" not in output.text


def test_a_rename_that_reaches_a_locked_file_is_refused_with_the_list(tmp_path: Path) -> None:
    tools = Tools(tmp_path, locked="user.py")
    output = tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert (output.is_error, "user.py is locked" in output.text, tools.read("stats.py")) == (True, True, STATS)


def test_a_name_that_must_stay_is_not_renamed(tmp_path: Path) -> None:
    tools = Tools(tmp_path, kept="mean")
    output = tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert (output.is_error, "the graph names it" in output.text, tools.read("user.py")) == (True, True, USER)


def test_a_rename_after_which_tests_fail_is_taken_back(tmp_path: Path) -> None:
    watched: list[tuple[tuple[str, ...], str]] = []

    def watch(paths: Collection[str]) -> Callable[[], str]:
        def find_broken() -> str:
            watched.append((tuple(paths), tools.read("user.py")))
            return "tests fail that passed before: tests/test_user.py::test_print"

        return find_broken

    tools = Tools(tmp_path, watch=watch)
    output = tools.run("RenameSymbol", file_path="stats.py", name="mean", new_name="average")
    assert watched == [(("stats.py", "user.py"), USER.replace("mean", "average", 2))]
    assert (output.is_error, "tests/test_user.py::test_print" in output.text) == (True, True)
    assert (tools.read("stats.py"), tools.read("user.py")) == (STATS, USER)
