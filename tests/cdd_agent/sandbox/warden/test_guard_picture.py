""""""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.warden.guard import ByteBudget, PathState, capture
from cdd_agent.sandbox.warden.supervision import FolderEntry, open_root

Tree = bytes | dict[str, "Tree"]
NAMES = st.text(alphabet="abc. -", min_size=1, max_size=6).filter(lambda name: name.strip("."))
TREES = st.recursive(st.binary(max_size=20), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=8)


def grow(path: Path, tree: Tree) -> None:
    if isinstance(tree, bytes):
        path.write_bytes(tree)
        return
    path.mkdir()
    for name, inner in tree.items():
        grow(path / name, inner)


def read(path: Path) -> Tree:
    return {inner.name: read(inner) for inner in path.iterdir()} if path.is_dir() else path.read_bytes()


def picture(root: Path, *, budget_bytes: int = 1 << 20) -> tuple[FolderEntry, PathState]:
    spot = FolderEntry(open_root(str(root)), "top", shown="top")
    found = capture(spot, ByteBudget(budget_bytes))
    assert found is not None
    return spot, found


@given(TREES)
def test_what_is_put_back_is_what_was_there(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    root = tmp_path_factory.mktemp("root")
    grow(root / "top", tree)
    spot, before = picture(root)
    shutil.rmtree(root / "top") if (root / "top").is_dir() else (root / "top").unlink()
    assert before.restore(spot)
    os.close(spot.folder)
    assert read(root / "top") == tree


def test_what_was_not_kept_is_known_and_not_put_back(tmp_path: Path) -> None:
    (tmp_path / "top").write_bytes(b"four")
    spot, before = picture(tmp_path, budget_bytes=3)
    status = spot.read_status()
    assert status is not None
    assert before.is_unchanged(spot, status)
    (tmp_path / "top").unlink()
    assert not before.restore(spot)
    os.close(spot.folder)


def test_nothing_is_no_picture(tmp_path: Path) -> None:
    folder = open_root(str(tmp_path))
    assert capture(FolderEntry(folder, "top", shown="top"), ByteBudget(1)) is None
    os.close(folder)
