"""A defect of ours leaves a file to report."""

import errno
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from cdd_agent import __version__, storage
from cdd_agent.errors import ExitCode
from cdd_agent.repl import session
from tests.fakes.demo import RECORDING, SLUG
from tests.fakes.program import ROOT, command, environment


def test_the_file_holds_the_traceback_and_the_version() -> None:
    try:
        raise ZeroDivisionError("a defect")
    except ZeroDivisionError as error:
        path = session.save_crash_report(error)
        happened, hint = session.describe_crash(error, path)
    text = path.read_text(encoding="utf-8")
    path.unlink()
    assert text.startswith(f"cdd {__version__}, Python 3.")
    assert "Traceback" in text
    assert "ZeroDivisionError: a defect" in text
    assert happened == "cdd has a bug: ZeroDivisionError: a defect"
    assert str(path) in hint


def test_a_full_disk_is_no_defect_of_ours() -> None:
    error = session.as_environment_error(OSError(errno.ENOSPC, "No space left on device", "state.json"))
    assert error is not None
    assert error.happened == "No space left on device: state.json."
    assert error.exit_code == ExitCode.ENVIRONMENT


def test_a_disk_that_is_full_is_told_with_what_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree := tmp_path / ".cdd" / "worktrees" / "sale").mkdir(parents=True)
    (tree / "big").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(storage, "_LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(storage, "_MENTIONED_BYTES", 0)
    error = session.as_environment_error(OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "state.json")))
    assert error is not None
    assert f"The run tree {tree} holds" in error.happened
    assert error.hint.startswith(f"remove it: rm -r {tree}/big, then run the same command again")


def test_too_long_arguments_are_no_defect_of_ours() -> None:
    error = session.as_environment_error(OSError(errno.E2BIG, "Argument list too long: the variable X has ...", "git"))
    assert error is not None
    assert error.happened == "Argument list too long: the variable X has ...: git."


def test_a_file_where_a_folder_has_to_be_is_named_itself(tmp_path: Path) -> None:
    (tmp_path / "green").touch()
    with pytest.raises(NotADirectoryError) as caught:
        (tmp_path / "green" / "run" / "state.json").read_bytes()
    error = session.as_environment_error(caught.value)
    assert error is not None
    assert error.happened == f"Not a directory: {tmp_path / 'green'}."


@pytest.mark.parametrize("gone", [".cdd/worktrees/sale", ".cdd/reports", "cdd-scratch-1"])
def test_a_folder_of_cdd_that_somebody_deletes_is_named(tmp_path: Path, *, gone: str) -> None:
    (tmp_path / gone).parent.mkdir(exist_ok=True, parents=True)
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / gone / "cdd-index-1" / "index").read_bytes()
    error = session.as_environment_error(caught.value)
    assert error is not None
    assert error.happened == f"{tmp_path / gone} was deleted while cdd used it."
    assert error.hint.startswith("run the same command again")


def test_other_errors_are() -> None:
    assert session.as_environment_error(FileNotFoundError(errno.ENOENT, "No such file", "/nowhere/a")) is None
    assert session.as_environment_error(OSError(errno.EBADF, "Bad file descriptor")) is None
    assert session.as_environment_error(ValueError("a defect")) is None


def test_the_first_of_the_errors_that_copying_a_folder_has_gathered_counts(tmp_path: Path) -> None:
    gathered = shutil.Error([("a", "/full/a", "[Errno 28] No space left on device: 'a' -> '/full/a'"), ("b", "c", "x")])
    error = session.as_environment_error(gathered)
    assert error is not None
    assert error.happened == "No space left on device: /full/a."
    assert session.as_environment_error(shutil.Error("it exists")) is None


def test_a_defect_for_whose_report_there_is_no_room_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    error = ZeroDivisionError("a defect")
    happened, hint = session.describe_crash(error, session.save_crash_report(error))
    assert happened.endswith("ZeroDivisionError: a defect")
    assert hint.endswith("the report could not be written")


@pytest.mark.slow
def test_a_defect_during_exec_in_a_script_offers_to_do_the_step_by_hand(planned: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import cdd_agent.work.journal\n\ncdd_agent.work.journal.Journal.write = lambda *_: 1 // 0\n", encoding="ascii"
    )
    own = environment(tmp_path, PYTHONPATH=os.pathsep.join([str(broken), str(ROOT)]), TMPDIR=str(tmp_path))
    told = command("--project", str(planned), "--replay", str(RECORDING), "exec", SLUG, "--yes")
    done = subprocess.run(told, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 70, done.stderr
    assert "cdd has a bug: ZeroDivisionError" in done.stderr
    assert "or do the step yourself, then open cdd exec in a terminal and type: done N" in done.stderr
    (report,) = tmp_path.glob("cdd-crash-*.txt")
    assert "Traceback" in report.read_text(encoding="utf-8")
