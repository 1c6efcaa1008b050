import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.sandbox import backends
from cdd_agent.sandbox.backends import BubblewrapSandbox, _show_text, drop_missing
from cdd_agent.sandbox.port import Access, Command, Result, Sandbox
from tests.cdd_agent.sandbox.conftest import OLD, PYTHON, UNABLE, Ground, make_bubblewrap, write_bubblewrap
from tests.fakes.cases import soak_after


def test_what_is_missing_is_not_mounted(tmp_path: Path) -> None:
    there, missing, nowhere = tmp_path / "there", tmp_path / "missing", tmp_path / "nowhere"
    there.mkdir()
    nowhere.symlink_to(missing)
    access = drop_missing(Access(read_write=(there, missing), read_only=(nowhere, there)))
    assert access == Access(read_write=(there,), read_only=(there,))


def show(ground: Ground) -> Access:
    """A tree that is shown at the project's path, with a folder of the project inside it."""
    tree, packages = ground.outside / "tree", ground.project / "lib" / ".venv"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "a.py").write_text("new")
    packages.mkdir(parents=True)
    (packages / "b.py").write_text("package")
    (ground.project / "secret").write_text("of the user")
    return Access(read_write=(tree,), read_only=(packages, *PYTHON), shown_at={tree: ground.project})


@pytest.mark.parametrize("level", ["docker", "bwrap"])
def test_a_tree_is_found_at_the_path_of_the_project(tmp_path: Path, level: str) -> None:
    ground = Ground.lay(tmp_path, level=level)
    access, project = show(ground), ground.project
    tree = ground.outside / "tree"
    code = f"pwd; cat {tree}/src/a.py $FILES lib/.venv/b.py; ls; echo changed > src/a.py; echo x > lib/.venv/b.py"
    result = ground.sandbox.run(
        Command(
            argv=("bash", "-c", code),
            cwd=tree / "src" / "..",
            access=access,
            variables={"FILES": f"{tree}/src/a.py", "OTHER": f"{tree}-2"},
            timeout_s=20,
        )
    )
    lines = result.output.splitlines()
    assert lines[:2] == [str(project), "newnewpackagelib"]
    assert lines[2] == "src"
    assert "Read-only file system" in lines[3]
    assert (tree / "src" / "a.py").read_text() == "changed\n"
    assert (project / "secret").read_text() == "of the user"
    assert not (project / "src").exists()
    assert (project / "lib" / ".venv" / "b.py").read_text() == "package"


@pytest.mark.parametrize("level", ["docker", "bwrap"])
def test_packages_are_found_in_a_part_of_a_tree_that_is_read_only_and_lacks_their_folder(
    tmp_path: Path, level: str
) -> None:
    ground = Ground.lay(tmp_path, level=level)
    access = show(ground)
    tree = ground.outside / "tree"
    access = replace(access, read_write=(tree / "src",), read_only=(tree, *access.read_only))
    code = "cat ../lib/.venv/b.py a.py; echo changed > a.py; echo x > ../b"
    result = ground.sandbox.run(Command(argv=("bash", "-c", code), cwd=tree / "src", access=access, timeout_s=20))
    assert result.output.startswith("packagenew")
    assert "Read-only file system" in result.output
    assert (tree / "src" / "a.py").read_text() == "changed\n"
    assert list((tree / "lib" / ".venv").iterdir()) == []


@pytest.mark.parametrize("level", ["landlock", "none"])
def test_without_a_root_folder_of_its_own_a_program_finds_the_tree_where_it_is(tmp_path: Path, level: str) -> None:
    ground = Ground.lay(tmp_path, level=level)
    access, tree = show(ground), ground.outside / "tree"
    result = ground.sandbox.run(
        Command(argv=("bash", "-c", "pwd; cat src/a.py"), cwd=tree, access=access, timeout_s=20)
    )
    assert result.output == f"{tree}\nnew"


def test_only_whole_names_of_folders_are_translated() -> None:
    access = Access(shown_at={Path("/p/.cdd/worktrees/x"): Path("/p"), Path("/p/.cdd/worktrees/x/in"): Path("/in")})
    text = "/p/.cdd/worktrees/x:/p/.cdd/worktrees/x-2/a --to=/p/.cdd/worktrees/x/in/b /p/.cdd/worktrees/x/inner"
    assert _show_text(text, access) == "/p:/p/.cdd/worktrees/x-2/a --to=/in/b /p/inner"


def install(folder: Path) -> tuple[Path, Path]:
    """A project and its packages, in folders whose names have a meaning for mounts."""
    project = folder / "a, b:c"
    packages = project / "node_modules"
    (packages / "pkg").mkdir(parents=True)
    (packages / "pkg" / "a.js").write_text("a")
    return project, packages


def run(sandbox: Sandbox, script: str, project: Path, *packages: Path) -> Result:
    access = Access(read_write=(project,), read_only=packages, overlaid=packages)
    return sandbox.run(Command(argv=("bash", "-c", script), cwd=project, access=access, timeout_s=20))


CHANGE = "cd node_modules; mkdir .cache; echo b | tee .cache/x > pkg/a.js; mv pkg/a.js b.js; cat .cache/x b.js; ls pkg"
NOTHING = "cat node_modules/pkg/a.js; ls -A node_modules"


def test_changes_of_packages_are_dropped_with_the_command(tmp_path: Path) -> None:
    sandbox, (project, packages) = make_bubblewrap(tmp_path, "overlaid"), install(tmp_path)
    assert run(sandbox, CHANGE, project, packages).output == "b\nb\n"
    assert run(sandbox, NOTHING, project, packages).output == "apkg\n"
    assert [path.relative_to(packages) for path in packages.rglob("*")] == [Path("pkg"), Path("pkg/a.js")]
    assert (packages / "pkg" / "a.js").read_text() == "a"


@soak_after(1, "answers", [OLD, UNABLE])
def test_packages_are_read_only_where_there_are_no_overlays(tmp_path: Path, answers: str) -> None:
    sandbox = BubblewrapSandbox(write_bubblewrap(tmp_path, answers))
    project, packages = install(tmp_path)
    (why,) = sandbox.find_obstacles((packages,)).values()
    assert ("0.11" if answers == OLD else "no overlay here") in why
    result = run(sandbox, CHANGE, project, packages)
    assert "Read-only file system" in result.output
    assert run(sandbox, NOTHING, project, packages).output == "apkg\n"


def test_a_folder_that_cannot_be_overlaid_is_read_only_beside_one_that_can(tmp_path: Path) -> None:
    sandbox, (project, packages) = make_bubblewrap(tmp_path, "overlaid"), install(tmp_path)
    # The kernel accepts no folder of /proc under an overlay.
    other = Path(f"/proc/{os.getpid()}/task").resolve()
    both = (packages, other)
    assert list(sandbox.find_obstacles(both)) == [other]
    access = Access(
        read_write=(project,), read_only=both, overlaid=both, shown_at={other: project / "b", project: project}
    )
    script = f"{CHANGE}; ls ../b"
    result = sandbox.run(Command(argv=("bash", "-c", script), cwd=project, access=access, timeout_s=20))
    assert result.output.startswith("b\nb\n")
    assert str(os.getpid()) in result.output.split()


def test_a_folder_with_mounts_in_it_is_not_overlaid_since_they_would_be_missing(tmp_path: Path) -> None:
    sandbox = make_bubblewrap(tmp_path, "overlaid")
    assert list(sandbox.find_obstacles((tmp_path, Path("/dev"))).values()) == ["another file system is mounted in it"]


@contextmanager
def listen(folder: Path) -> Iterator[int]:
    """A socket ``s`` with a listener, and a pipe ``p`` with a reader, whose descriptor this yields."""
    os.mkfifo(folder / "p")
    reader, place = os.open(folder / "p", os.O_RDONLY | os.O_NONBLOCK), os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/s")
        listener.listen()
        yield reader
    os.close(reader)
    os.close(place)


REACH = """cd node_modules/pkg; echo x | timeout 1 tee p >/dev/null
python3 -c "import socket; socket.socket(socket.AF_UNIX).connect('s'); print('connected')" 2>&1 | tail -n 1"""


@pytest.mark.parametrize("packages", ["overlaid", "read-only"])
def test_sockets_and_pipes_among_packages_cannot_be_reached(tmp_path: Path, packages: str) -> None:
    sandbox, (project, folder) = make_bubblewrap(tmp_path, packages), install(tmp_path)
    with listen(folder / "pkg") as reader:
        assert "connected" in run(sandbox, REACH, project).output
        assert os.read(reader, 9) == b"x\n"
        output = run(sandbox, REACH, project, folder).output
        assert os.read(reader, 9) == b""
    assert "connected" not in output
    assert "Connection refused" in output.splitlines()[-1]


def test_the_search_for_sockets_takes_the_topmost_first_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, packages = install(tmp_path)
    for place in (packages / "p", packages / "pkg" / "p", packages / "other" / "p"):
        place.parent.mkdir(exist_ok=True)
        os.mkfifo(place)
    (packages / "link").symlink_to("p")
    access = Access(read_only=(packages, packages / "other"), overlaid=(packages,), shown_at={project: Path("/p")})

    def find() -> list[str]:
        return [str(bind.shown) for bind in backends._mount(access) if bind.source == Path("/dev/null")]

    assert find() == ["/p/node_modules/p", "/p/node_modules/pkg/p"]
    os.mkfifo(packages / "pkg" / "q")
    assert sorted(find()) == ["/p/node_modules/p", "/p/node_modules/pkg/p", "/p/node_modules/pkg/q"]
    monkeypatch.setattr(backends, "_MOST_SEARCHED", 1)
    assert find() == ["/p/node_modules/p"]
    monkeypatch.setattr(backends, "_LONGEST_SEARCH_S", -1)
    assert find() == []
