""""""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.warden.guard import Budget, Picture, take
from cdd_agent.sandbox.warden.supervision import Spot, open_root

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


def picture(root: Path, *, budget_bytes: int = 1 << 20) -> tuple[Spot, Picture]:
    spot = Spot(open_root(str(root)), "top", shown="top")
    found = take(spot, Budget(budget_bytes))
    assert found is not None
    return spot, found


@given(TREES)
def test_what_is_put_back_is_what_was_there(tmp_path_factory: pytest.TempPathFactory, tree: Tree) -> None:
    root = tmp_path_factory.mktemp("root")
    grow(root / "top", tree)
    spot, before = picture(root)
    shutil.rmtree(root / "top") if (root / "top").is_dir() else (root / "top").unlink()
    assert before.put_back(spot)
    os.close(spot.folder)
    assert read(root / "top") == tree


def test_what_was_not_kept_is_known_and_not_put_back(tmp_path: Path) -> None:
    (tmp_path / "top").write_bytes(b"four")
    spot, before = picture(tmp_path, budget_bytes=3)
    status = spot.status()
    assert status is not None
    assert before.is_at(spot, status)
    (tmp_path / "top").unlink()
    assert not before.put_back(spot)
    os.close(spot.folder)


def test_nothing_is_no_picture(tmp_path: Path) -> None:
    folder = open_root(str(tmp_path))
    assert take(Spot(folder, "top", shown="top"), Budget(1)) is None
    os.close(folder)
