import os
from pathlib import Path

import pytest

from cdd_agent import storage
from cdd_agent.errors import ExitCode
from cdd_agent.git.runner import (
    GitRefused,
    GitTimeout,
    GitUnable,
    explain_failure,
    explain_index_lock,
    parse_index_lock,
)


@pytest.mark.parametrize(
    ("said", "told", "typed"),
    [
        ("error: gpg failed to sign the data\nfatal: failed to write commit object", "sign", "commit.gpgSign"),
        ("fatal: empty ident name (for <>) not allowed", "your name and email", "user.email"),
        ("fatal: unable to auto-detect email address (got 'a@b.(none)')", "your name and email", "user.email"),
        ("error: insufficient permission for adding an object to repository database", "is not writable", "chown"),
        ("fatal: Unable to create '/p/.git/x.lock': Read-only file system", "is not writable", "chown"),
        ("error: file write error: No space left on device", "disk is full", "df"),
        ("fatal: sha1 file '/p/index.lock' write error. Out of diskspace", "disk is full", "df"),
        ("error: unable to write file 'a.txt'", "disk may be full", "df"),
        (
            "git-lfs: Permission denied\nerror: external filter 'git-lfs clean' failed 126",
            "A filter",
            "git lfs install",
        ),
        ("fatal: x.bin: clean filter 'lfs' failed", "filter", "git lfs install"),
        ("fatal: bad object HEAD", "damaged", "git fsck"),
        ("error: object file .git/objects/ab/cd is empty", "damaged", "git fsck"),
        ("error: inflate: data stream error\nerror: loose object ab is corrupt", "damaged", "git fsck"),
        ("fatal: unable to read tree 1234", "damaged", "git fsck"),
        ("fatal: could not fetch 12 from promisor remote", "partial clone", "git fetch --refetch --no-filter"),
        (
            "fatal: cannot lock ref 'refs/cdd/x': Unable to create '/p/x.lock': File exists.",
            "holds a lock",
            "try again",
        ),
    ],
)
def test_a_state_that_git_names_is_told_with_what_to_type(said: str, told: str, typed: str) -> None:
    error = explain_failure("commit", said, status=128)
    assert isinstance(error, GitUnable)
    assert told in error.happened
    assert said in error.happened, "its own words stay"
    assert typed in error.hint
    assert error.exit_code == ExitCode.ENVIRONMENT


_NO_INODES = (
    "fatal: update_ref failed for ref 'refs/cdd/x/y': cannot lock ref 'refs/cdd/x/y': unable to create directory for "
    ".git/refs/cdd/x/y",
    "fatal: Unable to create '/p/.git/index.lock': No space left on device",
    "error: could not lock config file .git/config: No space left on device",
    "error: unable to create temporary file: No space left on device\nfatal: unable to write note object",
    "fatal: cannot create directory at '/p/out': No space left on device",
)


@pytest.mark.parametrize("said", _NO_INODES)
def test_a_full_disk_is_told_however_git_says_it(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "another git process" not in explain_failure("add", said, status=128, folder=tmp_path).happened.lower()
    monkeypatch.setattr(storage, "_LEAST_FREE_BYTES", 1 << 62)
    error = explain_failure("add", said, status=128, folder=tmp_path)
    assert error.happened.startswith(f"The disk of {tmp_path} is full. git add failed: {said}")
    assert "df -h" in error.hint
    other = explain_failure("add", "fatal: bad object HEAD", status=128, folder=tmp_path)
    assert "damaged" in other.happened, "the disk is not the reason for everything"
    hook = explain_failure("commit", said, status=1, hooks=True, folder=tmp_path)
    assert type(hook) is GitRefused


def test_what_a_hook_says_is_no_state_of_the_repository() -> None:
    for words in ("no tabs, please", "config.yaml is empty", "cannot lock, permission denied, bad object"):
        error = explain_failure("commit", words, status=1, hooks=True)
        assert type(error) is GitRefused
        assert error.happened == f"git commit failed: {words}"


def test_a_refusal_without_words_names_its_status() -> None:
    assert "exit status 3" in explain_failure("status", "", status=3).happened


@pytest.mark.parametrize(
    ("age_s", "told"), [(0, "0 seconds"), (1, "1 second"), (125, "2 minutes"), (3_700, "1 hour"), (200_000, "2 days")]
)
def test_the_lock_of_the_index_is_named_with_its_age(tmp_path: Path, *, age_s: int, told: str) -> None:
    lock = tmp_path / "index.lock"
    lock.touch()
    now = lock.stat().st_mtime
    os.utime(lock, (now - age_s, now - age_s))
    said = f"fatal: Unable to create '{lock}': File exists.\n\nAnother git process seems to be running"
    assert parse_index_lock(said) == lock
    error = explain_failure("reset", said, status=128)
    assert f"{lock} has existed for {told}" in error.happened
    assert error.hint.endswith(f"rm {lock}")
    assert lock.exists()


def test_a_lock_that_is_gone_has_no_age(tmp_path: Path) -> None:
    assert "has existed. Another" in explain_index_lock(tmp_path / "index.lock").happened


def test_a_time_out_says_nothing_about_what_was_asked() -> None:
    assert not issubclass(GitTimeout, GitRefused | GitUnable)
    assert GitTimeout("x", hint="y").exit_code == ExitCode.ENVIRONMENT
