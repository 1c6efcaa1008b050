"""Whatever a program does in a run tree, the files of the user stay as they are."""

import socket
import subprocess

import pytest

from cdd_agent.sandbox.backends import ContainerSandbox
from cdd_agent.sandbox.port import Command, Sandbox
from cdd_agent.tdd.context import Context
from tests.cdd_agent.sandbox.conftest import at, get_bubblewrap
from tests.fakes import containers
from tests.fakes.cases import soak_after
from tests.fakes.files import describe_files
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

ACTS = {
    "everything is deleted": "rm -rf ./* ./.[!.]* {home} /tmp/* ~; true",
    "permissions are taken away": "chmod -R 000 . {home}; true",
    "hooks and settings are planted": """
        mkdir -p .git/hooks sub/.git sub/.vscode .vscode .venv/bin {home}/.git/hooks {home}/.vscode {home}/sub/.vscode
        for place in . {home}; do
            for name in .git/hooks/pre-commit sub/.git/config sub/.vscode/tasks.json .vscode/a .venv/bin/python; do
                echo bad > $place/$name
            done
        done; true""",
    "compiled code is planted": """
        mkdir -p __pycache__ {home}/__pycache__; echo x | tee __pycache__/a.pyc {home}/__pycache__/a.pyc; true""",
    "ignored files are destroyed": "rm -rf data.sqlite .env inner {home}/data.sqlite {home}/.env {home}/inner; true",
    "a nested repository is overwritten": "echo bad | tee inner/a.txt {home}/inner/a.txt inner/.git/config; true",
    "pipes and links are left": """
        mkfifo pipe; ln -s {home} away; ln -s {home}/prices.py copy.py; echo bad > copy.py; true""",
}


@pytest.fixture
def settled(project: Project) -> Project:
    """A project with everything that git does not know."""
    (project.folder / ".gitignore").write_text("*.sqlite\n.env\n.venv\n*.sock\n")
    project.git("add", ".gitignore")
    project.git("commit", "-q", "-m", "ignored")
    for name in ("data.sqlite", ".env", ".venv/pyvenv.cfg", ".venv/bin/python", "untracked.txt"):
        (project.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / name).write_text("mine\n")
    subprocess.run(["git", "init", "-q", str(project.folder / "inner")], check=True)
    (project.folder / "inner" / "a.txt").write_text("mine\n")
    (project.folder / "prices.py").write_text("# being edited\n")
    project.repository.read_included = lambda: b"*.sqlite\n"
    return project


def begin(project: Project, *, level: str) -> Context:
    """A run that has begun; at docker bubblewrap takes the place of the engine."""
    if level == "docker":
        (project.folder.parent / "engine").mkdir()
        sandbox: Sandbox = ContainerSandbox(
            containers.install(project.folder.parent / "engine", bwrap=get_bubblewrap().bwrap)
        )
    else:
        sandbox = at(level)
    context = project.confine(project.context(ScriptedModel([])), sandbox)
    context.workplace.begin()
    return context


def run(context: Context, script: str, *, tests_too: bool = False) -> str:
    argv = ("bash", "-c", f"echo began; {script}")
    access = context.suite.build_access(tests_too=tests_too)
    command = Command(argv=argv, cwd=context.workspace.root, access=access, timeout_s=20)
    output = context.suite.sandbox.run(command).output
    assert output.startswith("began\n")
    return output


def look(project: Project) -> object:
    """Content, mode and time of every file of the user, ignored ones included; and what git says of them."""
    files = describe_files(project.folder, leave_out=(".cdd", ".git"), times=True)
    hooks = sorted(path.name for path in (project.folder / ".git" / "hooks").glob("*"))
    return files, hooks, project.git("status", "--porcelain"), (project.folder / ".git" / "config").read_text()


@soak_after(1, "level", ("bwrap", "docker", "landlock"))
@soak_after(3, "act", ACTS)
def test_the_files_of_the_user_stay_and_the_tree_is_clean_again(settled: Project, *, act: str, level: str) -> None:
    before = look(settled)
    context = begin(settled, level=level)
    run(context, ACTS[act].format(home=settled.folder))
    assert look(settled) == before
    context.workplace.begin()
    tree = context.workplace.tree.root
    assert (tree / "prices.py").read_text() == settled.git("show", "HEAD:prices.py") + "\n"
    assert context.workplace.tree.list_uncommitted() == ()
    left = ("sub", ".vscode", ".venv", "inner", "__pycache__", "pipe", "away", "copy.py", ".env")
    assert [name for name in left if (tree / name).exists() or (tree / name).is_symlink()] == []
    assert (tree / "data.sqlite").read_text() == "mine\n"


@pytest.mark.slow
def test_a_tree_that_a_command_closed_is_open_to_the_next_one(settled: Project) -> None:
    context = begin(settled, level="bwrap")
    tests = context.workspace.root / "tests"
    assert tests in {path.parent for path in context.suite.build_access(tests_too=True).read_only}
    for closed in ("chmod 000 .", "chmod -R 000 ."):
        run(context, f"{closed}; true", tests_too=True)
        assert "test_total" in run(context, "cat tests/test_prices.py", tests_too=True)


@soak_after(1, "level", ["docker", "bwrap"])
def test_a_socket_in_the_project_cannot_be_reached(
    settled: Project, monkeypatch: pytest.MonkeyPatch, *, level: str
) -> None:
    monkeypatch.chdir(settled.folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("o.sock")
        listening.listen()
        # Among the packages too, which programs see.
        (settled.folder / ".venv" / "o.sock").hardlink_to("o.sock")
        context = begin(settled, level=level)
        assert "o.sock" in run(context, "ls .venv")
        code = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('connected')"
        places = f"o.sock {settled.folder}/o.sock {context.workspace.root}/o.sock .venv/o.sock"
        assert "connected" not in run(context, f'for place in {places}; do python3 -c "{code}" $place; done')


@pytest.mark.slow
def test_the_same_acts_reach_the_user_where_nothing_confines(settled: Project) -> None:
    """So that acts which no longer work are noticed."""
    before = look(settled)
    run(begin(settled, level="none"), ACTS["ignored files are destroyed"].format(home=settled.folder))
    assert look(settled) != before
