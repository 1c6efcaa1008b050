import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from cdd_agent import storage
from cdd_agent.errors import FolderMoved, UsageError
from cdd_agent.storage import (
    Log,
    exclusive_lock,
    find_full_disk,
    hold_in_place,
    is_leftover,
    keep_from_links,
    load_record,
    private_folder,
    read_holder,
    read_ordinary,
    require_in_place,
    scratch,
    sweep,
    write_atomic,
)

HOLDER = """
import subprocess, sys
from pathlib import Path
from cdd_agent.storage import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), purpose="Testing"):
    child = subprocess.Popen(["sleep", "60"])
    print(child.pid, flush=True)
    sys.stdin.read()
"""
SCRATCH = """
import sys, tempfile
from cdd_agent.storage import scratch
with scratch():
    print(tempfile.mkdtemp(prefix="cdd-index-"), flush=True)
    sys.stdin.read()
"""
SWEPT_MEANWHILE = """
import sys
from pathlib import Path
from cdd_agent.storage import sweep, write_atomic
path = Path(sys.argv[1])
beside = []
def look(event, _):
    if event == "os.rename":
        beside.append((len(list(path.parent.glob(".*.tmp"))), sweep([path.parent])))
sys.addaudithook(look)
write_atomic(path, b"whole")
print(beside)
"""
TAKEN_AWAY = """
import sys
from pathlib import Path
from cdd_agent.storage import write_atomic
path = Path(sys.argv[1])
left = [1]
def look(event, arguments):
    if event == "os.rename" and left:
        left.clear()
        Path(arguments[0]).unlink()
        path.parent.rmdir()
sys.addaudithook(look)
write_atomic(path, b"whole")
print(path.read_bytes())
"""
NO_FILE = {"link": "It is a link", "dangling link": "It is a link", "folder": "It is a folder", "pipe": "It is a pipe"}


@contextmanager
def process(code: str, *arguments: str) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    """A process that runs ``code`` until its input ends, and the first line it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        yield started, started.stdout.readline().strip()
        started.kill()


def make(kind: str, path: Path) -> None:
    makers: dict[str, Callable[[], None]] = {
        "link": lambda: path.symlink_to(__file__),
        "dangling link": lambda: path.symlink_to("nowhere"),
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    makers[kind]()


# Writing and reading.


def test_atomic_write(tmp_path: Path) -> None:
    """A reader finds complete content each time, while the file is written again and again."""
    path, contents = tmp_path / "state.json", {letter * 1_000_000 for letter in (b"a", b"b")}
    write_atomic(path, b"a" * 1_000_000)
    seen, is_over = set[bytes](), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for content in [*contents] * 20:
        write_atomic(path, content, is_durable=False)
    is_over.set()
    reader.join()
    assert seen <= contents
    assert seen


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": "one"}', b'{"text": "\xff"}', b"[" * 99_999])
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "moves.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"moves\.json is damaged") as caught:
        load_record(tmp_path / "moves.json", empty=_Record(), limit_bytes=1_000_000)
    assert caught.value.hint.startswith("move it away: mv ")


class _Record(msgspec.Struct):
    schema: int = 1
    text: str = ""


def test_a_file_is_written_with_its_folders_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["b.txt"]


def test_a_file_whose_name_is_as_long_as_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomic(path, b"one")
    assert path.read_bytes() == b"one"


def test_a_file_is_written_though_somebody_takes_its_temporary_file_and_folder_away(tmp_path: Path) -> None:
    with process(TAKEN_AWAY, str(tmp_path / "run" / "state.json")) as (_, content):
        assert content == "b'whole'"


def test_permissions_of_a_file_that_is_there_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    write_atomic(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o751


@pytest.mark.parametrize("kind", NO_FILE)
def test_what_is_no_ordinary_file_is_neither_replaced_nor_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "execution-state.json"
    make(kind, path)
    before = sorted(os.listdir(tmp_path)), path.lstat().st_ino
    with pytest.raises(OSError, match=NO_FILE[kind]) as written:
        write_atomic(path, b"data")
    with pytest.raises(OSError, match=r"link|folder|pipe|symbolic"):
        read_ordinary(path, limit_bytes=10)
    assert written.value.filename == str(path)
    assert (sorted(os.listdir(tmp_path)), path.lstat().st_ino) == before


def test_a_file_that_cannot_be_replaced_is_named_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File exists") as error:
        write_atomic(Path("/dev/null/state.json"), b"data")
    assert error.value.filename == "/dev/null/state.json"
    with pytest.raises(OSError, match="File name too long"):
        write_atomic(tmp_path / ("n" * 256), b"data")
    assert os.listdir(tmp_path) == []


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"12345")
    assert read_ordinary(path, limit_bytes=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes") as error:
        read_ordinary(path, limit_bytes=4)
    assert error.value.errno == errno.EFBIG


def test_a_file_far_above_the_limit_is_refused_by_its_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, 64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="more than 33554432 bytes"):
            read_ordinary(path, limit_bytes=32 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


# What killed processes leave.


def test_only_what_killed_writes_left_is_swept(tmp_path: Path) -> None:
    handle, own = tempfile.mkstemp(prefix=".plan.md.cdd-", suffix=".tmp", dir=tmp_path)
    os.close(handle)
    kept = {".plan.md.tmp", "plan.md.cdd-abcdefgh.tmp", ".cdd-abcdefgh.tmp", ".x.cdd-abc.tmp", "notes.tmp"}
    for name in kept:
        (tmp_path / name).touch()
    (tmp_path / ".folder.cdd-abcdefgh.tmp").mkdir()
    assert sweep([tmp_path, tmp_path / "not there"]) == (Path(own),)
    assert set(os.listdir(tmp_path)) == kept | {".folder.cdd-abcdefgh.tmp"}
    assert is_leftover(Path(own).name)


def test_a_write_in_progress_is_not_swept(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with process(SWEPT_MEANWHILE, str(path)) as (_, beside):
        assert beside == "[(1, ())]"
    assert path.read_bytes() == b"whole"


def test_temporary_files_of_a_killed_process_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with process(SCRATCH) as (lives, folder), process(SCRATCH) as (killed, other):
        killed.kill()
        killed.wait()
        assert Path(other).is_dir()
        with scratch() as own:
            assert own.parent == tmp_path
            assert tempfile.gettempdir() == str(own)
            assert not Path(other).exists()
            assert Path(folder).is_dir(), lives.pid
    assert not own.exists()
    assert tempfile.gettempdir() == str(tmp_path)


# Locks.


def test_a_second_process_is_told_who_holds_the_lock_since_when_and_by_what(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with process(HOLDER, str(path), "exec", "csv") as (holder, _):
        told = read_holder(path)
        assert told is not None
        with (
            pytest.raises(UsageError, match="Testing is already in progress: ") as error,
            exclusive_lock(path, purpose="Testing"),
        ):
            pass
    assert f"pid {holder.pid} on {os.uname().nodename} since 20" in error.value.happened
    assert "exec csv" in error.value.happened
    assert f"kill {holder.pid}" in error.value.hint


def test_the_lock_ends_with_the_process_though_its_child_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with process(HOLDER, str(path)) as (holder, child):
        holder.kill()
        holder.wait()
        try:
            os.kill(int(child), 0)
            with exclusive_lock(path, purpose="Testing") as was_killed:
                assert was_killed
        finally:
            os.kill(int(child), signal.SIGKILL)
    with exclusive_lock(path, purpose="Testing") as was_killed:
        assert not was_killed


def test_the_file_of_a_lock_stays_and_says_nothing_once_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "x.lock"
    with exclusive_lock(path, purpose="Testing"):
        inode = path.stat().st_ino
    with exclusive_lock(path, purpose="Testing"):
        assert path.stat().st_ino == inode
    assert path.read_bytes() == b""
    assert read_holder(path) is None


def test_a_block_of_the_same_process_waits_in_vain_too(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with (
        exclusive_lock(path, purpose="Testing"),
        pytest.raises(UsageError, match=f"pid {os.getpid()} "),
        exclusive_lock(path, purpose="Testing", wait_s=0.05),
    ):
        pass


def test_a_lock_whose_folder_was_removed_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with exclusive_lock(path, purpose="Testing"):
        path.unlink()
        with exclusive_lock(path, purpose="Testing"):
            assert path.exists()


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_lock_file_that_is_none_is_refused_without_waiting(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    make(kind, path)
    with pytest.raises(OSError, match=r"symbolic|Is a directory|pipe"), exclusive_lock(path, purpose="Testing"):
        pass


def lay_run_tree(project: Path) -> Path:
    """A run tree in which one file is large, and one folder has many files."""
    tree = project / ".cdd" / "worktrees" / "sale"
    (tree / "many").mkdir(parents=True)
    for number in range(20):
        (tree / "many" / str(number)).touch()
    (tree / "data.log").write_bytes(b"x" * 3_000_000)
    (project / ".cdd" / "worktrees" / "another").mkdir()
    return tree


def test_a_disk_with_room_is_not_full(tmp_path: Path) -> None:
    lay_run_tree(tmp_path)
    assert find_full_disk(tmp_path) is None
    assert find_full_disk(tmp_path / "nowhere" / "at" / "all") is None


@pytest.mark.parametrize("place", ["", "src/gone/a.py", ".cdd/worktrees/sale", ".cdd/worktrees/sale/many/new"])
def test_a_full_disk_is_told_with_the_run_tree_on_it_and_what_to_remove(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = lay_run_tree(tmp_path)
    monkeypatch.setattr(storage, "_LEAST_FREE_BYTES", 1 << 62)
    full = find_full_disk(tmp_path / place)
    assert full is not None
    assert (full.lacks, full.tree) == ("room", None), "the run tree takes little of it"
    assert full.hint == f"see how much room is left: df -h {full.folder}"
    monkeypatch.setattr(storage, "_MENTIONED_BYTES", 1_000_000)
    full = find_full_disk(tmp_path / place)
    assert full is not None
    assert full.happened.endswith(f" is full. The run tree {tree} holds 3.0 MB, 3.0 MB of them in data.log.")
    assert full.hint == f"remove it: rm -r {tree}/data.log"


def test_a_disk_without_inodes_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = lay_run_tree(tmp_path)
    if not os.statvfs(tmp_path).f_files:
        pytest.skip("this file system has no fixed number of inodes")
    monkeypatch.setattr(storage, "_LEAST_FREE_INODES", 1 << 62)
    monkeypatch.setattr(storage, "_MENTIONED_SHARE", 0)
    full = find_full_disk(tmp_path)
    assert full is not None
    assert "has room, but no inodes left for new files." in full.happened
    assert full.happened.endswith(f"The run tree {tree} holds 22 files, 20 files of them in many.")
    assert full.hint == f"remove it: rm -r {tree}/many"


def test_a_name_that_cannot_be_shown_is_not_in_the_command_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = lay_run_tree(tmp_path)
    (tree / "data.log").rename(tree / "data\u202e\n; rm -rf ~")
    monkeypatch.setattr(storage, "_LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(storage, "_MENTIONED_BYTES", 0)
    full = find_full_disk(tmp_path)
    assert full is not None
    assert full.hint == f"remove the run tree, which cdd makes again: rm -rf {tree}"


_AFTER: tuple[Callable[[Path], object], ...] = (
    lambda top: write_atomic(top / "state.json", b"{}"),
    lambda top: (top / "file").write_bytes(b"new"),
    lambda top: (top / "file").read_bytes(),
    lambda top: os.close(os.open(os.fsencode(top / "file"), os.O_RDONLY)),
    lambda top: (top / "new").mkdir(),
    lambda top: (top / "file").unlink(),
    lambda top: (top / "file").rename(top.with_name("taken")),
    lambda top: top.with_name("brought").rename(top / "new"),
    lambda top: os.link(top.with_name("brought"), top / "new"),
    lambda top: (top / "new").symlink_to("file"),
    lambda top: (top / "file").chmod(0o600),
    lambda top: os.utime(top / "file"),
    lambda top: os.truncate(top / "file", 0),
    lambda top: (top / "inner").rmdir(),
    lambda top: shutil.rmtree(top / "inner"),
    shutil.rmtree,
    lambda top: shutil.copytree(top.with_name("tree"), top / "new"),
    lambda top: shutil.move(top / "file", top.with_name("taken")),
    lambda top: Log(top / "log"),
    private_folder,
    lambda top: subprocess.run(["true"], check=True),
)
"""What somebody may still do in a folder that was replaced."""


def test_nothing_is_done_at_the_path_of_a_held_folder_that_was_replaced(tmp_path: Path) -> None:
    top, other = tmp_path / "project", tmp_path / "project-2"
    for folder in (top, other):
        (folder / "inner").mkdir(parents=True)
        (folder / "file").write_bytes(b"old")
    (tmp_path / "brought").touch()
    (tmp_path / "tree").mkdir()
    with hold_in_place(top):
        require_in_place()
        (top / "file").write_bytes(b"mine")
        subprocess.run(["sh", "-ec", "mv project moved; cp -a project-2 project"], cwd=tmp_path, check=True)
        before = [(path, path.lstat().st_mtime_ns) for path in sorted(top.rglob("*"))]
        for act in _AFTER:
            with pytest.raises(FolderMoved, match=f"{top} was moved to {tmp_path}/moved while"):
                act(top)
        assert [(path, path.lstat().st_mtime_ns) for path in sorted(top.rglob("*"))] == before
        (other / "file").write_bytes(b"a folder whose name begins the same is another")
        (tmp_path / "moved" / "file").read_bytes()
    assert (top / "file").read_bytes() == b"old", "after the block it is a folder like any other"


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("mv project moved", "was moved to .*/moved while cdd worked in it. cdd stopped"),
        ("mv project moved; ln -s moved project", "there is now a link"),
        ("mv project moved; touch project", "there is now something else"),
        ("rm -r project", "was deleted or moved"),
        ("rm -r project; mkdir project", "was deleted or moved .* there is now something else"),
    ],
)
def test_the_error_says_where_a_held_folder_is(act: str, told: str, tmp_path: Path) -> None:
    (top := tmp_path / "project").mkdir()
    with hold_in_place(top), hold_in_place(top):
        subprocess.run(["sh", "-ec", act], cwd=tmp_path, check=True)
        with pytest.raises(FolderMoved, match=told) as error:
            require_in_place()
        assert str(top) in error.value.hint
    require_in_place()


@pytest.mark.parametrize("act", ["mv tickets moved; ln -s other tickets", "mv tickets/a b; ln -s ../other/a tickets"])
def test_a_link_in_the_way_to_a_folder_stops_what_is_written_there(act: str, tmp_path: Path) -> None:
    for name in ("tickets/a", "other/a"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "tickets" / "a"
    with keep_from_links(folder), keep_from_links(folder):
        subprocess.run(["sh", "-ec", act], cwd=tmp_path, check=True)
        with pytest.raises(FolderMoved, match=f"{folder} leads to {tmp_path}/other/a") as error:
            write_atomic(folder / "state.json", b"{}")
        assert "ls -ld" in error.value.hint
    assert list((tmp_path / "other" / "a").iterdir()) == []


def test_a_folder_that_may_not_lead_elsewhere_may_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(parents=True)
    (tmp_path / "tickets").symlink_to("real")
    with keep_from_links(tmp_path / "tickets" / "a"):
        (tmp_path / "tickets" / "a").rmdir()
        write_atomic(tmp_path / "tickets" / "a" / "state.json", b"{}")
    assert (tmp_path / "real" / "a" / "state.json").read_bytes() == b"{}"
