import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.storage import exclusive, write_atomic

HOLDER = """
import sys, time
from pathlib import Path
from cdd_agent.storage import exclusive
with exclusive(Path(sys.argv[1]), purpose="Testing"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_written_with_its_folders_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_atomic(path, b"one")
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["b.txt"]


def test_permissions_of_a_file_that_is_there_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    write_atomic(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o751


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "keep").write_text("x")
    with pytest.raises(OSError, match="target"):
        write_atomic(folder, b"data")
    assert os.listdir(tmp_path) == ["target"]


def test_a_second_process_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"pid {holder.pid}"), exclusive(path, purpose="Testing"):
            pass
        holder.kill()
        holder.communicate()
    with exclusive(path, purpose="Testing"):
        pass
