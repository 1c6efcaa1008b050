import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Access, Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox


def run(code: str, folder: Path, *, timeout_s: float = 20, output_cap: int = 64_000) -> Result:
    return PlainSandbox().run(
        Command(
            argv=(sys.executable, "-c", code),
            cwd=folder,
            access=Access(read_write=(folder,)),
            timeout_s=timeout_s,
            output_cap=output_cap,
        )
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"


def test_output_and_status_are_those_of_the_program(tmp_path: Path) -> None:
    result = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert result.exit_status == 3
    assert sorted(result.output.split()) == ["err", "out"]
    assert not result.timed_out


def test_no_key_and_no_pytest_options_reach_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-canary")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    result = run("import os; print(sorted(os.environ))", tmp_path)
    assert "ANTHROPIC_API_KEY" not in result.output
    assert "PYTEST_ADDOPTS" not in result.output


def test_temporary_files_have_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    code = "import os, tempfile; print(tempfile.mkstemp()[1]); print(os.listdir(tempfile.gettempdir()))"
    made, others = run(code, tmp_path).output.splitlines()
    assert others == f"['{Path(made).name}']"
    assert Path(made).parent.parent == Path(tempfile.gettempdir())
    assert not Path(made).parent.exists()


def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    result = run(code, tmp_path, timeout_s=1.0)
    assert result.timed_out
    assert result.exit_status == -signal.SIGKILL
    assert result.duration_s < 10
    assert not is_alive(int(result.output))


def test_a_child_left_behind_is_ended_too(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    result = run(code, tmp_path)
    assert not result.timed_out
    assert not is_alive(int(result.output))


def test_long_output_keeps_its_head_and_tail(tmp_path: Path) -> None:
    result = run("print('first'); print('x' * 100_000); print('last')", tmp_path, output_cap=1_000)
    assert result.output.startswith("first")
    assert result.output.endswith("last\n")
    assert result.dropped_bytes > 90_000
    assert "bytes dropped" in result.output


def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        PlainSandbox().run(Command(argv=("/nowhere/at/all",), cwd=tmp_path, access=Access(), timeout_s=1))


def test_only_folders_that_the_program_closed_are_opened_again(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root / "a" / "b", root / "linked", root / "unlisted", other):
        folder.mkdir(parents=True)
    for folder in (root / "a", other):
        folder.chmod(0o550)
    code = "import os\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nos.chmod('unlisted', 0)\nos.chmod('.', 0o060)\n"
    code += "os.rmdir('linked')\nos.symlink('../other', 'linked')\n"
    read_only = (root / "a" / "b" / "test.py", root / "linked" / "test.py")
    access = Access(read_write=(root,), read_only=read_only)
    PlainSandbox().run(Command(argv=(sys.executable, "-c", code), cwd=root, access=access, timeout_s=20))
    folders = {name: tmp_path / name for name in ("root", "root/a", "root/a/b", "root/unlisted", "other")}
    modes = {name: f"{folder.stat().st_mode & 0o777:o}" for name, folder in folders.items()}
    (root / "unlisted").chmod(0o700)
    assert modes == {"root": "760", "root/a": "500", "root/a/b": "700", "root/unlisted": "0", "other": "550"}
