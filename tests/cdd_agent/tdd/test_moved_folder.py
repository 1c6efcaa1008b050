"""The project's folder is moved, or another takes its place, in the middle of a run."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.errors import FolderMoved
from cdd_agent.events import Event
from cdd_agent.storage import hold_in_place
from tests.cdd_agent.tdd.test_cycle_interruptions import story
from tests.fakes.cases import soak_after
from tests.fakes.project import CODE, Project, item

EVENTS = 34
"""Number of events of the story before its last gate."""


COPY = "cp -a project copied; mv project moved; mv copied project"
EMPTY = "mv project moved; mkdir project"
LINK = "cp -a project another; mv project moved; ln -s another project"


def list_content(folder: Path) -> dict[str, tuple[int, ...]]:
    """Each path below a folder, with what changes whenever it is written."""
    found: dict[str, tuple[int, ...]] = {}
    for top, folders, names in os.walk(folder):
        for path in (Path(top, name) for name in (*folders, *names)):
            about = path.lstat()
            found[str(path)] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


@soak_after(3, ("number", "move"), [(9, COPY), (21, LINK), (30, EMPTY), *((n, COPY) for n in range(EVENTS))])
def test_the_run_stops_and_writes_nothing_where_the_folder_was(number: int, move: str, *, project: Project) -> None:
    folder, moved = project.folder, project.folder.with_name("moved")
    left: list[dict[str, tuple[int, ...]]] = []

    def notice(event: Event) -> None:
        project.seen.append(event)
        if len(project.seen) > number and not left:
            # By another process: what this one does is watched.
            subprocess.run(["sh", "-ec", move], cwd=folder.parent, check=True)
            left.append(list_content(folder.resolve()))

    with hold_in_place(folder), pytest.raises(FolderMoved) as stopped:
        project.run(item(), context=replace(project.context(story()), emit=notice))
    assert list_content(folder.resolve()) == left[0]
    assert f"was moved to {moved}" in stopped.value.happened

    folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
    moved.rename(folder)
    with hold_in_place(folder):
        assert project.git("fsck", "--no-dangling") == ""


def test_without_a_move_the_same_run_ends_well(project: Project) -> None:
    with hold_in_place(project.folder):
        _, why = project.run(item(), context=project.context(story()))
    assert why is None
    assert (project.folder / "discount.py").read_text() == CODE
    assert len(project.seen) > EVENTS
