"""Environments that tools keep outside a project: the files that a tool reaches, and the way without the tool."""

import base64
import hashlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdd_agent.config.trust import NotApproved
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.environment_tools import find_installed, list_tools
from cdd_agent.testrun.interpreter import (
    NO_ENVIRONMENT,
    Interpreter,
    KeptFinder,
    NamedEnvironment,
    find_interpreter,
    find_offer,
)
from tests.cdd_agent.sandbox.conftest import at
from tests.cdd_agent.testrun.conftest import Confined, program
from tests.fakes.approval import Answers, trust_in
from tests.fakes.cases import soak_after

FILES = {
    "poetry": {"pyproject.toml": '[tool.poetry]\nname = "My_Shop"\n'},
    "hatch": {"pyproject.toml": '[project]\nname = "My_Shop"\n[tool.hatch.envs.default]\n'},
    "pipenv": {"pyproject.toml": '[project]\nname = "My_Shop"\n', "Pipfile": ""},
}
KEPT = {
    "poetry": ".cache/pypoetry/virtualenvs/my-shop-q4Zk1x-py3.11",
    "hatch": ".local/share/hatch/env/virtual/my-shop/gjN2cQ6d/my-shop",
    "pipenv": ".local/share/virtualenvs/my_shop-yOb1Ksrl",
}
ANSWER = '{"python": "3.11.7", "pytest": "9.0.0", "packages": "/"}'


@dataclass(kw_only=True)
class Place:
    """A home folder with a tool that keeps an environment there, and a project of that tool."""

    top: Path
    tool: str
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """The questions to the user, with their choices."""

    @classmethod
    def make(cls, top: Path, tool: str, *, script: str = "") -> "Place":
        """The tool prints the environment unless ``script`` does something else."""
        made = cls(top=top, tool=tool)
        made.project.mkdir()
        for name, text in FILES[tool].items():
            (made.project / name).write_text(text)
        made.keep(KEPT[tool])
        program(made.home / f"opt/bin/{tool}", script or f': > "{top}/started"; echo {made.home / KEPT[tool]}')
        return made

    @property
    def home(self) -> Path:
        return self.top / "home"

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HOME": str(self.home), "PATH": f"{self.home}/opt/bin:/usr/bin:/bin"}

    @property
    def python(self) -> Path:
        return self.home / KEPT[self.tool] / "bin" / "python"

    def keep(self, folder: str) -> Path:
        """An environment in the home folder that answers as one with pytest would."""
        python = program(self.home / folder / "bin/python", f"echo '{ANSWER}'")
        (python.parent.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
        return python

    def find(self, sandbox: Sandbox | None, *, answer: int | None = None, ask: Answers | None = None) -> Interpreter:
        """Find the interpreter; the user chooses number ``answer``, or cannot be asked."""
        trust, _ = trust_in(self.project, temporary=self.top, ask=ask)

        def choose(question: str, choices: tuple[str, ...]) -> int:
            self.asked.append((question, choices))
            assert answer is not None
            return answer

        return find_interpreter(
            self.project,
            environment=self.environment,
            trust=trust,
            sandbox=sandbox,
            choose=None if answer is None else choose,
        )


class Cell:
    """A sandbox that keeps what it is to run."""

    level = "bwrap"

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def run(self, command: Command) -> Result:
        self.commands.append(command)
        return Result(exit_status=1, head="", dropped_bytes=0, timed_out=False, duration_s=0, level=self.level)


@pytest.mark.parametrize("tool", FILES)
def test_of_the_home_folder_a_tool_gets_its_settings_and_environments_only(tmp_path: Path, tool: str) -> None:
    place, cell = Place.make(tmp_path, tool), Cell()
    settings = {"poetry": ".config/pypoetry/config.toml", "hatch": ".config/hatch/config.toml"}
    for name in (".config/pypoetry/config.toml", ".config/pypoetry/auth.toml", ".config/hatch/config.toml", ".ssh/key"):
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).touch()
    secrets = {"POETRY_PYPI_TOKEN_MINE": "x", "HATCH_INDEX_AUTH": "x", "ANTHROPIC_API_KEY": "x", "PYTHONPATH": "src"}
    (found,) = list_tools(place.project)
    installed = find_installed(found, place.project, environment={**place.environment, **secrets})
    assert installed is not None
    assert installed.ask("", sandbox=cell) is None
    (command,) = cell.commands
    inside = {str(path.relative_to(place.home)) for path in command.access.read_only if path.is_relative_to(place.home)}
    own = {settings[tool]} if tool in settings else set()
    assert inside == {str(installed.folder.relative_to(place.home)), f"opt/bin/{tool}", *own}
    assert place.python.is_relative_to(installed.folder)
    assert not any(path.is_relative_to(place.top) for path in command.access.read_write)
    assert not command.variables.keys() & secrets.keys()


@soak_after(1, "tool", [*FILES])
def test_what_a_project_makes_a_tool_do_changes_nothing_outside(tmp_path: Path, *, tool: str) -> None:
    """As ``requires`` of hatch, plugins and custom collectors do."""
    place = Place.make(tmp_path, tool, script="sh ./plan.sh")
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/key").write_text("secret-of-the-user")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0)
        port = listener.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        (place.project / "plan.sh").write_text(
            f"cat {place.home}/.ssh/key > stolen; cp {place.home}/.ssh/key /tmp/copy && echo /tmp/read\n"
            f"echo x > {place.home}/{KEPT[tool]}/bin/python; rm -rf {place.home}; touch {tmp_path}/outside ran\n"
            f'/usr/bin/python3 -c "{connect}" && echo /tmp/connected\n'
            f"echo {place.home / KEPT[tool]}\n"
        )
        (found,) = list_tools(place.project)
        installed = find_installed(found, place.project, environment=place.environment)
        assert installed is not None
        assert installed.ask("", sandbox=at("bwrap")) == (place.home / KEPT[tool],)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert ANSWER in place.python.read_text()
    assert {path.name for path in place.project.iterdir()} == {*FILES[tool], "plan.sh"}
    assert not (tmp_path / "outside").exists()


def silent(_place: Place) -> Sandbox:
    return Cell()


def plain(_place: Place) -> Sandbox:
    return PlainSandbox()


class Landlock(PlainSandbox):
    """Says that it is landlock, under which socket files can be reached."""

    level = "landlock"


def landlock(_place: Place) -> Sandbox:
    return Landlock()


@pytest.mark.parametrize("make", [silent, plain, landlock])
@pytest.mark.parametrize("tool", FILES)
def test_a_tool_that_is_not_asked_is_not_started_and_the_user_chooses_once(
    tmp_path: Path, *, tool: str, make: Callable[[Place], Sandbox]
) -> None:
    place = Place.make(tmp_path, tool)
    other = place.keep("elsewhere/my-shop-1")
    assert place.find(make(place), answer=0).path == place.python
    (asked,) = place.asked
    assert asked[1] == (str(place.python.parent.parent), "none of these")
    assert place.find(make(place), answer=0).path == place.python
    assert place.find(make(place)).path == place.python
    assert place.asked == [asked]
    assert not (tmp_path / "started").exists()
    assert other.exists()


MARKED = {
    "poetry": (".cache/pypoetry/virtualenvs/my-shop-{}-py3.11", "", "-py3.12"),
    "hatch": (".local/share/hatch/env/virtual/my-shop/{}/my-shop", "", ""),
    "pipenv": (".local/share/virtualenvs/project-{}", "Pipfile", "-3.12"),
}


def mark_of(path: Path) -> str:
    """As in the names that hatch 1, poetry 1 and 2, and pipenv give to environments."""
    return base64.urlsafe_b64encode(hashlib.sha256(str(path).encode()).digest()).decode()[:8]


@pytest.mark.parametrize("make", [silent, plain, landlock])
@pytest.mark.parametrize("tool", FILES)
def test_the_one_environment_with_the_mark_of_the_project_s_path_is_found_unasked(
    tmp_path: Path, *, tool: str, make: Callable[[Place], Sandbox]
) -> None:
    place = Place.make(tmp_path, tool)
    pattern, file, _ = MARKED[tool]
    python = place.keep(pattern.format(mark_of(place.project / file)))
    assert place.find(make(place)).path == python
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("tool", ["poetry", "pipenv"])
def test_among_several_with_its_mark_the_user_chooses(tmp_path: Path, tool: str) -> None:
    place = Place.make(tmp_path, tool)
    pattern, file, other = MARKED[tool]
    both = [place.keep(pattern.format(mark_of(place.project / file)) + end) for end in ("", other)]
    assert place.find(PlainSandbox(), answer=1).path in both
    (asked,) = place.asked
    assert set(asked[1]) == {*(str(python.parent.parent) for python in both), "none of these"}


def test_of_hatch_s_environments_the_default_counts_or_the_one_that_the_test_command_names(tmp_path: Path) -> None:
    place = Place.make(tmp_path, "hatch")
    folder = f".local/share/hatch/env/virtual/my-shop/{mark_of(place.project)}"
    default, test, _ = (place.keep(f"{folder}/{name}") for name in ("my-shop", "hatch-test.py3.12", "docs"))
    finder = KeptFinder(project=place.project, environment=place.environment)
    assert [each.path for each in finder.find(NO_ENVIRONMENT)] == [default]
    assert [each.path for each in finder.find(NamedEnvironment(tool="hatch", name="hatch-test"))] == [test]
    assert list(finder.find(NamedEnvironment(tool="hatch", name="lint"))) == []


def test_none_of_the_environments_is_an_answer_that_lasts_too(tmp_path: Path) -> None:
    place = Place.make(tmp_path, "poetry")
    program(place.home / "opt/bin/python", "echo /gone/python")
    for _ in range(2):
        assert "poetry" not in place.find(PlainSandbox(), answer=1).origin
    assert len(place.asked) == 1


@pytest.mark.parametrize("make", [silent, plain, landlock])
def test_where_nobody_can_be_asked_the_error_says_what_to_type(
    tmp_path: Path, make: Callable[[Place], Sandbox]
) -> None:
    place = Place.make(tmp_path, "hatch")
    with pytest.raises(EnvironmentMissing, match="hatch knows which of its environments is the project's") as caught:
        place.find(make(place))
    assert f"CDD_PYTHON={place.python};" in caught.value.hint
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("sandbox", [PlainSandbox(), Cell()])
def test_without_an_environment_of_the_project_s_name_nobody_is_asked(tmp_path: Path, sandbox: Sandbox) -> None:
    place = Place.make(tmp_path, "poetry")
    (place.project / "pyproject.toml").write_text('[tool.poetry]\nname = "store"\n')
    place.keep(".cache/pypoetry/virtualenvs/storehouse-q4Zk1x-py3.11")
    assert "poetry" not in place.find(sandbox).origin


def test_an_environment_elsewhere_was_named_by_the_project_and_needs_approval(tmp_path: Path) -> None:
    place = Place.make(tmp_path, "poetry", script=f"echo {tmp_path}/planted")
    planted = program(tmp_path / "planted/bin/python", f": > {tmp_path}/ran")
    (tmp_path / "planted/pyvenv.cfg").touch()
    with pytest.raises(NotApproved, match=str(planted)):
        place.find(Confined())
    assert not (tmp_path / "ran").exists()
    answers = Answers(False)
    with pytest.raises(EnvironmentMissing, match="declined"):
        place.find(Confined(), ask=answers)
    assert [offer.source for offer in answers.asked] == [str(planted)]


def test_an_environment_in_the_project_that_a_tool_names_needs_approval(tmp_path: Path) -> None:
    place = Place.make(tmp_path, "hatch", script=f"echo {tmp_path}/project/envs/a")
    program(place.project / "envs/a/bin/python", f": > {tmp_path}/ran")
    (place.project / "envs/a/pyvenv.cfg").touch()
    with pytest.raises(NotApproved):
        place.find(Confined())
    assert not (tmp_path / "ran").exists()


def test_a_project_around_the_home_folder_does_not_show_it_to_a_tool(tmp_path: Path) -> None:
    place, cell = Place.make(tmp_path, "poetry"), Cell()
    for name, text in FILES["poetry"].items():
        (tmp_path / name).write_text(text)
    (tool,) = list_tools(tmp_path)
    installed = find_installed(tool, tmp_path, environment=place.environment)
    assert installed is not None
    assert installed.ask("", sandbox=cell) is None
    assert cell.commands == []


@pytest.mark.parametrize(
    ("tool", "settings", "variables"),
    [
        ("poetry", {".config/pypoetry/config.toml": '[virtualenvs]\npath = "{cache-dir}/envs"\n'}, {}),
        ("poetry", {".config/pypoetry/config.toml": 'cache-dir = "HOME/moved"\n'}, {}),
        ("poetry", {}, {"POETRY_VIRTUALENVS_PATH": "HOME/moved"}),
        ("poetry", {}, {"XDG_CACHE_HOME": "HOME/moved"}),
        ("hatch", {".config/hatch/config.toml": '[dirs.env]\nvirtual = "~/moved"\n'}, {}),
        ("hatch", {"hatch.toml": '[dirs]\ndata = "HOME/moved"\n'}, {"HATCH_CONFIG": "HOME/hatch.toml"}),
        ("hatch", {}, {"HATCH_DATA_DIR": "HOME/moved"}),
        ("pipenv", {}, {"WORKON_HOME": "HOME/moved"}),
    ],
)
def test_the_user_s_settings_say_where_a_tool_keeps_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tool: str, settings: dict[str, str], variables: dict[str, str]
) -> None:
    place = Place.make(tmp_path, tool)
    monkeypatch.setenv("HOME", str(place.home))
    for name, text in settings.items():
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).write_text(text.replace("HOME", str(place.home)))
    environment = {
        **place.environment,
        **{key: each.replace("HOME", str(place.home)) for key, each in variables.items()},
    }
    (found,) = list_tools(place.project)
    installed = find_installed(found, place.project, environment=environment)
    assert installed is not None
    assert "moved" in installed.folder.parts or installed.folder.name == "envs"
    kept = installed.folder / ("my-shop/x/my-shop" if tool == "hatch" else "my-shop-x")
    program(kept / "bin/python", "exit 1")
    (kept / "pyvenv.cfg").touch()
    assert installed.list_environments("") == (kept,)
    finder = KeptFinder(project=place.project, environment=environment)
    assert [each.path for each in finder.list_by_name(NO_ENVIRONMENT)] == [kept / "bin" / "python"]


def test_what_is_offered_for_approval_is_known_without_starting_a_tool(tmp_path: Path) -> None:
    place = Place.make(tmp_path, "poetry")
    program(place.project / ".tox/py/bin/python", "exit 1")
    (place.project / ".tox/py/pyvenv.cfg").touch()
    (place.project / ".tox/py/lib/python3.11/site-packages/pytest").mkdir(parents=True)
    assert find_offer(place.project, environment=place.environment) is None
    assert not (tmp_path / "started").exists()
