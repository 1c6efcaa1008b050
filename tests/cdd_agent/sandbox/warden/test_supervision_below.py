""""""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.warden.supervision import FolderEntry, open_root, resolve_links

PARTS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "l", "m"]), min_size=1, max_size=4).map("/".join)


def test_a_way_names_each_link_and_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "a").symlink_to("x/../b")
    (tmp_path / "b").symlink_to(tmp_path / "c")
    assert resolve_links(str(tmp_path), "a/f/g") == ["a", "b", "c/f/g"]
    assert resolve_links(str(tmp_path), "x/f") == ["x/f"]


def test_a_way_ends_where_it_leaves_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("../elsewhere")
    (root / "again").symlink_to("../root/in")
    assert resolve_links(str(root), "out/f") == ["out"]
    assert resolve_links(str(root), "again/f") == ["again", "in/f"]


@given(PARTS, PARTS)
def test_no_way_passes_a_link_or_leaves_the_folder(
    tmp_path_factory: pytest.TempPathFactory, first: str, second: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "a").mkdir()
    (root / "l").symlink_to(first or ".")
    (root / "m").symlink_to(second or ".")
    for name in ("l/b", "m/a/b", "a/b"):
        for way in resolve_links(str(root), name):
            assert not {"", ".", ".."} & set(way.split("/"))
            above = [root.joinpath(*way.split("/")[:end]) for end in range(1, len(way.split("/")))]
            assert not any(path.is_symlink() for path in above)


def test_what_is_moved_lands_on_nothing(tmp_path: Path) -> None:
    folder = open_root(str(tmp_path))
    for number in range(150):
        (tmp_path / "f").write_text(str(number))
        FolderEntry(folder, "f", shown="f").move(folder, after=".old-")
    os.close(folder)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted(map(str, range(150)))


def test_a_link_is_not_opened_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("/")
    folder = open_root(str(tmp_path))
    with pytest.raises(NotADirectoryError):
        FolderEntry(folder, "l", shown="l").open()
    os.close(folder)
