"""Published weaknesses of path checks, each tried against this program.

A model's tools, and whatever else names a file by a string, go through one ``Workspace``.
"""

import ast
import os
import shutil
import stat
import tempfile
import unicodedata
from dataclasses import fields
from pathlib import Path

import pytest

from cdd_agent.agent.tools import (
    BashInput,
    Completion,
    EditInput,
    GlobInput,
    GrepInput,
    ReadInput,
    Replacement,
    RunTestsInput,
    Tool,
    ToolOutput,
    WriteInput,
    make_file_tools,
    make_search_tools,
)
from cdd_agent.errors import UsageError
from cdd_agent.evidence.clean_copy import copy_ignored_files
from cdd_agent.model.conversation import JSON
from cdd_agent.tdd.context import Phase
from cdd_agent.tdd.tools import make_tools
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.access import Original
from cdd_agent.tickets.ticket import find
from cdd_agent.untrusted.paths import GIT_FILES
from cdd_agent.workspace.files import Workspace
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project
from tests.fakes.sources import nodes_with
from tests.fuzz import paths


class Agent:
    """The file tools over a project, called by name; the agent has read nothing yet and may write everywhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        workspace = Workspace(root)
        offered = (*make_file_tools(workspace, lambda _: None), *make_search_tools(workspace))
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in offered}

    def call(self, name: str, **inputs: JSON) -> ToolOutput:
        return self.tools[name].run(inputs)

    def write(self, path: str) -> ToolOutput:
        return self.call("Write", file_path=path, content="planted")


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """In ``app``; beside it are a folder whose name begins alike and a secret."""
    for path, content in {
        "app/src/a.py": "x = 1\n",
        "app/.env": "KEY=secret-word\n",
        "app/.git/config": "[core]\n",
        "app-evil/x": "outside-word\n",
        "secret.txt": "outside-word\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return Agent(tmp_path / "app")


def outside(agent: Agent) -> dict[str, str]:
    """What lies beside the project, by path."""
    found = {}
    for folder, _, names in os.walk(agent.root.parent):
        for name in names:
            path = Path(folder) / name
            if not path.is_relative_to(agent.root):
                found[str(path.relative_to(agent.root.parent))] = path.read_text()
    return found


UNTOUCHED = {"app-evil/x": "outside-word\n", "secret.txt": "outside-word\n"}


def test_a_folder_whose_name_begins_like_the_projects_is_outside(agent: Agent) -> None:
    for path in (f"{agent.root}-evil/x", "../app-evil/x", f"{agent.root}/../app-evil/x"):
        assert agent.write(path).is_error
        assert "outside-word" not in agent.call("Read", file_path=path).text
    assert outside(agent) == UNTOUCHED


def test_no_input_of_a_tool_names_a_folder_outside_of_the_project(agent: Agent) -> None:
    inputs = (ReadInput, WriteInput, EditInput, GlobInput, GrepInput, BashInput, RunTestsInput, Completion)
    names = {field.name for shape in inputs for field in fields(shape)}
    assert names == {
        *("file_path", "offset", "limit", "content", "old_string", "new_string", "replace_all", "edits"),
        *("pattern", "glob", "path", "command", "timeout_s", "targets", "implementation_files", "summary"),
    }
    (agent.root / "folder").symlink_to(agent.root.parent / "app-evil")
    for path in ("..", "/", "src/../..", str(agent.root.parent), f"{agent.root}-evil", "folder", ".git", ".cdd"):
        for name in ("Glob", "Grep"):
            assert agent.call(name, pattern="*" if name == "Glob" else ".", path=path).is_error, path
    assert set(Replacement.__struct_fields__) == {"old_string", "new_string", "replace_all"}
    assert agent.call("Read", file_path="src/a.py", cwd="/").is_error


def test_a_link_planted_by_a_command_is_not_written_through(agent: Agent) -> None:
    (agent.root / "notes.txt").symlink_to(agent.root.parent / "new.txt")
    (agent.root / "folder").symlink_to(agent.root.parent / "app-evil")
    (agent.root / "up").symlink_to("..")
    for path in ("notes.txt", "folder/new.txt", "folder/x", "up/new.txt", "up/app-evil/new.txt"):
        assert agent.write(path).is_error
        assert agent.call("Edit", file_path=path, old_string="outside-word", new_string="x").is_error
    assert outside(agent) == UNTOUCHED


def test_a_file_of_secrets_is_refused_by_the_name_that_a_link_resolves_to(agent: Agent) -> None:
    (agent.root / "a").symlink_to(".env")
    (agent.root / "b").symlink_to("a")
    for path in ("a", "b", ".env", "./.env", f"{agent.root}/.env", ".ENV", ".e\u200bnv"):
        output = agent.call("Read", file_path=path)
        assert output.is_error
        assert "secret-word" not in output.text
    assert agent.call("Grep", pattern="secret-word").text.startswith("No line matches.")
    for old in ("KEY=", "secret-word", "KEY=s"):
        output = agent.call("Edit", file_path=".env", old_string=old, new_string="x")
        assert output.is_error
        assert "secret-word" not in output.text.replace(old, "")


@pytest.mark.parametrize("target", ["../new.txt", "/nowhere/at/all", "none/../../new.txt", "loop", "inside/none"])
def test_a_link_that_leads_nowhere_is_no_place_to_write(agent: Agent, target: str) -> None:
    (agent.root / "loop").symlink_to(target)
    assert agent.write("loop").is_error
    assert agent.write("loop/x").is_error
    assert (agent.root / "loop").is_symlink()
    assert outside(agent) == UNTOUCHED


@pytest.mark.parametrize(
    "pattern", ["*/../../x", "../*", "**/../../secret.txt", "{..,src}/../*", "/etc/*", "src/../../*"]
)
def test_no_pattern_leads_out_behind_a_wildcard(agent: Agent, pattern: str) -> None:
    for output in (agent.call("Glob", pattern=pattern), agent.call("Grep", pattern="outside-word", glob=pattern)):
        assert output.is_error or output.text.startswith("No ")
        assert "outside-word" not in output.text.removeprefix(pattern)
        assert "secret.txt" not in output.text.replace(pattern, "")


def test_links_to_folders_outside_are_not_searched(agent: Agent) -> None:
    (agent.root / "up").symlink_to("..")
    (agent.root / "leak.txt").symlink_to("../secret.txt")
    assert "secret.txt" not in agent.call("Glob", pattern="**").text
    assert "leak.txt" not in agent.call("Glob", pattern="**").text
    assert agent.call("Grep", pattern="outside-word").text == (
        "No line matches.\n(files not searched because they are binary, too large, secret or unreadable: 1)"
    )


@pytest.mark.parametrize(
    "path", ["..", "../", "./..", "src/..", "~", "~root/x", "", ".", "/", "//", "\0", "-", "\ud800"]
)
def test_every_string_is_a_path_however_little_it_looks_like_one(agent: Agent, path: str) -> None:
    for output in (
        agent.write(path) if path not in ("~", "~root/x", "-") else agent.write(f"../{path}"),
        agent.call("Read", file_path=path),
        agent.call("Edit", file_path=path, old_string="a", new_string="b"),
    ):
        assert output.is_error
    for output in (agent.call("Glob", pattern=path), agent.call("Grep", pattern="outside-word", glob=path)):
        assert "outside-word" not in output.text
        assert "secret.txt" not in output.text
    assert outside(agent) == UNTOUCHED


def test_a_tilde_is_a_name_like_any_other(agent: Agent) -> None:
    assert not agent.write("~/x").is_error
    assert (agent.root / "~" / "x").read_text() == "planted"


def test_nothing_in_a_shared_temporary_folder_has_a_fixed_name(tmp_path: Path) -> None:
    """Folders made by ``tempfile`` are for their owner alone, and so are files; the sandboxes' /tmp is their own."""
    drawn = {"TemporaryDirectory", "TemporaryFile", "mkdtemp", "mkstemp"}
    shared = ("/tmp/", "/var/tmp/", "/dev/shm/")
    used: set[str] = set()
    fixed: list[str] = []
    for module, node in nodes_with("tempfile", *shared):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tempfile":
            used.add(node.attr)
        if isinstance(node, ast.ImportFrom) and node.module == "tempfile":
            used |= {alias.name for alias in node.names}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(shared):
            fixed.append(f"{module}: {node.value}")
    assert used >= {"mkstemp"}
    assert used <= drawn | {"gettempdir", "tempdir"}
    assert fixed == []
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    handle, name = tempfile.mkstemp(dir=tmp_path)
    os.close(handle)
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o600


def test_a_file_that_is_lent_to_a_copy_stays_the_link_that_it_is(project: Project, tmp_path: Path) -> None:
    project.write({".gitignore": "data/\n", "data/word": "inside-word"})
    (tmp_path / "key").write_text("outside-word")
    (project.folder / "data" / "key").symlink_to(tmp_path / "key")
    (project.folder / "data" / "near").symlink_to("word")
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    copy.mkdir()
    project.repository.read_included = lambda: b"data/\n"
    suite = project.suite.in_run_tree(project.folder, original=Original(root=project.folder))
    copied = copy_ignored_files(project.repository, suite, copy=copy)
    assert set(copied or ()) == {"data/near", "data/word"}, "a link that leads out would reach the original"
    assert os.readlink(copy / "data" / "near") == "word"
    shutil.rmtree(copy / "data")
    elsewhere.mkdir()
    (copy / "data").symlink_to(elsewhere)
    assert copy_ignored_files(project.repository, suite, copy=copy) == ()
    assert list(elsewhere.iterdir()) == []


def test_no_archive_is_ever_unpacked() -> None:
    unpackers = {"tarfile", "zipfile", "zipimport"}
    found = []
    for module, node in nodes_with(*unpackers, "unpack_archive"):
        named = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        named |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        if named & unpackers or (isinstance(node, ast.Attribute) and node.attr == "unpack_archive"):
            found.append(str(module))
    assert found == []


@pytest.mark.parametrize("part", [".git", ".cdd", ".hg", ".gitmodules"])
@pytest.mark.parametrize(
    "spelled",
    [
        lambda name: name.upper(),
        lambda name: name.title(),
        lambda name: f"{name}.",
        lambda name: f"{name} ",
        lambda name: f"{name}::$INDEX_ALLOCATION",
        lambda name: f"{name[:2]}\u200b{name[2:]}",
        lambda name: f"{name}\ufe0f",
        lambda name: f".{chr(ord(name[1]) + 0xFEE0)}{name[2:]}",
        lambda name: unicodedata.normalize("NFKD", name.replace("i", "\u2170").replace("s", "\u017f")),
    ],
    ids=["upper", "title", "dot", "blank", "stream", "invisible", "selector", "wide", "compatible"],
)
def test_no_spelling_of_a_protected_name_is_another_name(agent: Agent, part: str, spelled: object) -> None:
    assert callable(spelled)
    for path in (f"{spelled(part)}/hooks/x", f"src/{spelled(part)}/config", f"./{spelled(part)}//x"):
        assert agent.write(path).is_error
    assert sorted(path.name for path in agent.root.iterdir()) == [".env", ".git", "src"]


PROTECTED = (
    *GIT_FILES,
    *("a.pth", "sitecustomize.py", "usercustomize.py", "src/sitecustomize.py", ".venv/bin/python", "pyvenv.cfg"),
    *(".pixi/envs/default/bin/python", "__pypackages__/3.11/lib/a.py", ".conda/conda-meta/history"),
    *("tickets/one/execution-state.json", "tickets/one/execution-state.json.bak", ".cdd/config.yaml", ".git/config"),
)


@soak_after(1, "is_there", [True, False], ids=["existing", "missing"])
def test_what_turns_approvals_off_or_starts_programs_is_neither_made_nor_changed(agent: Agent, is_there: bool) -> None:
    for path in PROTECTED:
        place = agent.root / path
        if is_there:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("before")
            agent.call("Read", file_path=path)
        for name in (path, f"./{path}", str(place), path.upper()):
            assert agent.write(name).is_error, name
            assert agent.call("Edit", file_path=name, old_string="before", new_string="after").is_error, name
        assert (place.read_text() if is_there else place.exists()) == (
            "before" if is_there else path == ".git/config" and True
        ), path


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_no_environment_is_written_to_whatever_it_is_called(agent: Agent, *, mark: str) -> None:
    (agent.root / "tools" / mark).parent.mkdir(parents=True)
    (agent.root / "tools" / mark).touch()
    runner = agent.root / "tools" / "lib" / "_pytest" / "runner.py"
    runner.parent.mkdir(parents=True)
    runner.write_text("x = 1\n")
    agent.call("Read", file_path="tools/lib/_pytest/runner.py")
    assert agent.call("Edit", file_path="tools/lib/_pytest/runner.py", old_string="x = 1", new_string="x = 2").is_error
    assert agent.write("tools/lib/_pytest/new.py").is_error
    assert "runner.py" not in agent.call("Glob", pattern="**/*.py").text
    assert [path.name for path in runner.parent.iterdir()] == ["runner.py"]
    assert runner.read_text() == "x = 1\n"


@pytest.mark.parametrize("phase", ["green", "refactor"])
@pytest.mark.parametrize("path", ["conftest.py", "src/conftest.py", "pytest.ini", "ConfTest.py", "tests/test_a.py"])
def test_tests_and_the_configuration_of_pytest_are_locked_outside_red(
    project: Project, phase: Phase, *, path: str
) -> None:
    context = project.context(ScriptedModel([]))
    tools = {tool.spec.name: tool for tool in make_tools(PhaseLocks(phase=phase), context)}
    assert tools["Write"].run({"file_path": path, "content": "x = 1\n"}).is_error
    assert not (project.folder / path).exists() or "x = 1" not in (project.folder / path).read_text()


@pytest.mark.parametrize(
    "slug", ["../other", "../../etc", "/etc", "-x", "--help", "a/b", ".", "..", "", "A", "a\0", "a\n"]
)
def test_a_slug_is_a_name_and_no_path(tmp_path: Path, slug: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "spec.yaml").touch()
    (tmp_path / "project" / "tickets").mkdir(parents=True)
    with pytest.raises(UsageError, match="not the name of a ticket"):
        find(tmp_path / "project", slug)


def test_random_paths_reach_nothing_outside_and_nothing_guarded() -> None:
    figures = paths.run(2_000, seed=20)
    assert (figures.bad, figures.example) == (0, "")


def test_the_random_paths_would_find_a_workspace_that_lets_them_through() -> None:
    class Trusting(Workspace):
        def resolve(self, path: str) -> str:
            return os.path.normpath(path)

        def resolve_writable(self, path: str) -> str:
            return os.path.normpath(path)

    assert paths.run(500, seed=20, make=Trusting).bad > 10


def test_a_race_against_the_check_is_lost() -> None:
    figures = paths.race(1_000)
    if figures.cannot:
        pytest.skip(figures.cannot)
    assert (figures.bad, figures.example) == (0, "")


@pytest.mark.slow
def test_a_million_random_paths_reach_nothing() -> None:
    figures = paths.run(1_000_000, seed=1)
    assert (figures.bad, figures.example) == (0, "")


@pytest.mark.slow
def test_thirty_thousand_openings_in_a_race_follow_no_link() -> None:
    figures = paths.race(30_000)
    if figures.cannot:
        pytest.skip(figures.cannot)
    assert (figures.bad, figures.example) == (0, "")
