""""""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.sandbox.backends import _show_text, describe_confinement, drop_missing
from cdd_agent.sandbox.port import Access, Command
from tests.cdd_agent.sandbox.conftest import PYTHON, Ground


def test_what_is_missing_is_not_mounted(tmp_path: Path) -> None:
    there, missing, nowhere = tmp_path / "there", tmp_path / "missing", tmp_path / "nowhere"
    there.mkdir()
    nowhere.symlink_to(missing)
    access = drop_missing(Access(read_write=(there, missing), read_only=(nowhere, there), network=True))
    assert access == Access(read_write=(there,), read_only=(there,), network=True)


def test_the_words_do_not_deny_a_network_that_is_allowed() -> None:
    assert "no network" in describe_confinement(Access())
    assert "no network" not in describe_confinement(Access(network=True))


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
