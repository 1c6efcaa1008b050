import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent import storage
from cdd_agent.workspace.files import ConfinedFolder, DirectoryEntry


@pytest.fixture
def beneath(tmp_path: Path) -> ConfinedFolder:
    """A folder with a file, links of every kind beside it, and a secret next door."""
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "table.py").write_bytes(b"x = 1\n")
    (tmp_path / "secret.txt").write_bytes(b"outside")
    for name, target in {
        "inside": "src",
        "outside": "..",
        "file": "src/table.py",
        "away": str(tmp_path / "secret.txt"),
        "dangling": str(tmp_path / "new.txt"),
        "loop": "loop",
        "magic": "/proc/self/cwd",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return ConfinedFolder(root)


def outside(beneath: ConfinedFolder) -> list[str]:
    return sorted(path.name for path in beneath.root.parent.iterdir())


def test_files_are_read_whole_or_in_part(beneath: ConfinedFolder) -> None:
    assert beneath.read("src/table.py") == b"x = 1\n"
    assert beneath.read("./src//table.py", 3) == b"x ="
    assert stat.S_ISREG(beneath.stat("src/table.py").st_mode)
    assert stat.S_ISDIR(beneath.stat("").st_mode)
    assert stat.S_ISLNK(beneath.stat("dangling").st_mode)
    assert [beneath.exists(name) for name in ("", ".", "src", "src/none", "dangling")] == [
        True,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("inside/table.py", "outside/secret.txt", "outside/root/src/table.py", "file", "away", "dangling", "loop"),
        *(
            "magic",
            "magic/x",
            "../secret.txt",
            "src/../../secret.txt",
            "src/..",
            "/etc/passwd",
            "src/table.py/x",
            "src\0x",
        ),
        *("\ud800", "..", "none/x"),
    ],
)
def test_no_link_is_followed_and_nothing_climbs(beneath: ConfinedFolder, name: str) -> None:
    acts: tuple[Callable[[], object], ...] = (lambda: beneath.read(name), lambda: beneath.list_entries(name))
    for act in acts:
        with pytest.raises(OSError):  # noqa: PT011 - which error it is, the kernel decides
            act()
    assert outside(beneath) == ["root", "secret.txt"]


@pytest.mark.parametrize(
    "name",
    ["inside/new.py", "outside/new.py", "away", "dangling", "loop", "magic/new.py", "../new.py", "src", "pipe", ""],
)
def test_nothing_is_written_through_a_link_or_onto_what_is_no_file(beneath: ConfinedFolder, name: str) -> None:
    before = sorted(path.name for path in beneath.root.rglob("*"))
    with pytest.raises(OSError):  # noqa: PT011 - which error it is, the kernel decides
        beneath.write(name, b"x")
    assert outside(beneath) == ["root", "secret.txt"]
    assert sorted(path.name for path in beneath.root.rglob("*")) == before
    assert (beneath.root.parent / "secret.txt").read_bytes() == b"outside"


def test_a_pipe_is_refused_without_waiting(beneath: ConfinedFolder) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        beneath.read("pipe")
    with pytest.raises(OSError, match="a folder"):
        beneath.read("src")


def test_writing_makes_folders_and_leaves_nothing_else(beneath: ConfinedFolder) -> None:
    beneath.write("a/b/new.py", b"1")
    beneath.write("a/b/new.py", b"2")
    beneath.write("top.py", b"3")
    assert beneath.read("a/b/new.py") == b"2"
    assert os.listdir(beneath.root / "a" / "b") == ["new.py"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(beneath.stat("a/b/new.py").st_mode) == 0o666 & ~umask


def test_the_permissions_of_a_file_are_kept_and_its_other_names_are_not_written(beneath: ConfinedFolder) -> None:
    path = beneath.root / "src" / "table.py"
    path.chmod(0o755)
    (beneath.root / "same").hardlink_to(path)
    beneath.write("src/table.py", b"y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert (beneath.root / "same").read_bytes() == b"x = 1\n"


def test_a_name_of_full_length_can_be_written(beneath: ConfinedFolder) -> None:
    beneath.write("n" * 255, b"x")
    beneath.write("\U0001f40d" * 63, b"y")
    assert (beneath.read("n" * 255), beneath.read("\U0001f40d" * 63)) == (b"x", b"y")


KILLED = """
import os, sys
from pathlib import Path
from cdd_agent.workspace.files import ConfinedFolder

os.fsync = lambda handle: os._exit(9)
ConfinedFolder(Path(sys.argv[1])).write("new.py", b"x")
"""


def test_what_a_killed_write_leaves_is_known_as_a_leftover(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, cwd=Path(__file__).parents[3])
    assert ended.returncode == 9
    (left,) = os.listdir(tmp_path)
    assert storage.is_leftover(left)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(beneath: ConfinedFolder) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, old[1]))
    try:
        with pytest.raises(OSError) as refusal:  # noqa: PT011 - the number is asserted below
            beneath.write("src/table.py", b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)
    assert refusal.value.errno == errno.EFBIG
    assert sorted(os.listdir(beneath.root / "src")) == ["deep", "table.py"]
    assert beneath.read("src/table.py") == b"x = 1\n"


def test_a_link_is_removed_and_not_what_it_leads_to(beneath: ConfinedFolder) -> None:
    beneath.unlink("away")
    assert not beneath.exists("away")
    with pytest.raises(OSError):  # noqa: PT011 - which error it is, the kernel decides
        beneath.unlink("outside/secret.txt")
    with pytest.raises(FileNotFoundError):
        beneath.unlink("src/none")
    assert outside(beneath) == ["root", "secret.txt"]


def test_a_folder_is_listed_with_the_kinds_of_its_entries(beneath: ConfinedFolder) -> None:
    assert set(beneath.list_entries("src")) == {DirectoryEntry("deep", "folder"), DirectoryEntry("table.py", "file")}
    assert {entry.name: entry.kind for entry in beneath.list_entries()} == {
        **dict.fromkeys(("inside", "outside", "file", "away", "dangling", "loop", "magic"), "link"),
        "src": "folder",
        "pipe": "other",
    }


def test_no_descriptor_is_left_open(beneath: ConfinedFolder) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in ("src/table.py", "away", "outside/x", "none/x", "pipe", "src", "\0"):
        for act in (beneath.read, beneath.list_entries, beneath.stat, lambda path: beneath.write(path, b"x")):
            try:
                act(name)
            except OSError:
                continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_folders_made_at_the_same_time_are_shared(beneath: ConfinedFolder) -> None:
    threads = [threading.Thread(target=beneath.write, args=(f"shared/deep/{number}.py", b"x")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(beneath.root / "shared" / "deep")) == 8
