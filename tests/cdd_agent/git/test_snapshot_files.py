"""What is told of a file, and when it is read again."""

import hashlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.git.snapshot import FileState, FileStates

SHA1, SHA256 = "0" * 40, "0" * 64
LONG_AGO = 1_700_000_000


def blob(data: bytes, kind: str = "sha1") -> str:
    return hashlib.new(kind, b"blob %d\0" % len(data) + data).hexdigest()


def test_a_file_is_told_with_the_id_that_git_would_give_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\n")
    (tmp_path / "a").chmod(0o640)
    files = FileStates(tmp_path)
    assert files.inspect("a", like=SHA1) == FileState(blob=blob(b"one\r\n"), bits=0o640)
    assert files.inspect("a", like=SHA256) == FileState(blob=blob(b"one\r\n", "sha256"), bits=0o640)
    assert files.read_bits("a") == 0o640


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("elsewhere", path), lambda _: None])
def test_what_is_no_ordinary_file_is_none_and_nobody_waits_for_it(
    tmp_path: Path, *, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "a")
    assert FileStates(tmp_path).inspect("a", like=SHA1) is None
    assert FileStates(tmp_path).read_bits("a") is None


def test_a_file_that_was_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """It may change again within the grain of its times."""
    path = tmp_path / "a"
    files = FileStates(tmp_path)
    for data in (b"one", b"two", b"six"):
        path.write_bytes(data)
        os.utime(path, (LONG_AGO, LONG_AGO))
        found = files.inspect("a", like=SHA1)
        assert found is not None
        assert found.blob == blob(data)


def test_a_file_that_stays_as_it_is_is_read_once() -> None:
    old = Path(os.__file__)
    files = FileStates(old.parent)
    first = files.inspect(old.name, like=SHA1)
    assert first is not None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # no file can be opened
    try:
        again, other = files.inspect(old.name, like=SHA1), FileStates(old.parent).inspect(old.name, like=SHA1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert again == first
    assert other is None
