import os
import pty
import socket
from pathlib import Path

import pytest

from cdd_agent.sandbox.backends import NOT_STOPPED, LandlockSandbox
from cdd_agent.sandbox.port import Access, Command
from cdd_agent.sandbox.warden.kernel import landlock_version
from tests.cdd_agent.sandbox.conftest import Ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="landlock")


def test_home_and_temporary_files_are_its_own_and_gone_afterwards(ground: Ground) -> None:
    result = ground.bash("echo x > ~/x; mktemp; echo $HOME $TMPDIR")
    made, home, temporary = result.output.split()
    assert Path(made).parent == Path(temporary)
    assert not Path(home).exists()
    assert not Path(temporary).exists()


def test_it_works_in_the_project_and_nowhere_else(ground: Ground) -> None:
    (ground.outside / "secret").write_text("secret")
    result = ground.bash(
        "mkdir -p a/b && echo x > a/b/c && mv a/b/c d && cat d;"
        f"cat {ground.outside}/secret; echo x > {ground.outside}/x; ls {ground.outside}; ln d {ground.outside}/d;"
        f"mv d {ground.outside}/e; truncate -s0 {ground.outside}/secret; ls /root /home"
    )
    assert result.output.startswith("x\n")
    assert [path.name for path in ground.outside.iterdir()] == ["secret"]
    assert (ground.outside / "secret").read_text() == "secret"
    assert "secret\nsecret" not in result.output
    assert result.output.count("denied") >= 6


def test_tools_may_read_the_configuration_above_a_copy_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    copy = home / "api" / ".cdd" / "worktrees" / "run"
    copy.mkdir(parents=True)
    files = (
        "home/pyproject.toml",
        "home/api/Cargo.toml",
        "home/api/notes.txt",
        "home/.env",
        "setup.cfg",
        "config.toml",
    )
    for name in files:
        (tmp_path / name).write_text(f"{name}\n")
    (home / "tox.ini").symlink_to(".env")
    (home / ".cargo").symlink_to(tmp_path)
    names = " ".join(str(tmp_path / name) for name in (*files, "home/tox.ini", "home/.cargo/config.toml"))
    access = Access(read_write=(copy,), shown_at={copy: home, home / ".cdd": Path("/run/cdd")})
    command = Command(argv=("sh", "-c", f"cat {names}"), cwd=copy, access=access, timeout_s=20)
    output = LandlockSandbox().run(command).output
    assert [line for line in output.splitlines() if line in files] == ["home/pyproject.toml", "home/api/Cargo.toml"]


@pytest.mark.skipif(os.getuid() != 0, reason="root's capabilities: not run as root")
def test_root_has_no_capabilities_in_it(ground: Ground) -> None:
    assert ground.bash("grep -E 'CapEff|CapBnd' /proc/self/status").output.split()[1::2] == ["0" * 16] * 2


@pytest.mark.skipif(landlock_version() < 6, reason="Landlock 6 (Linux 6.12) is needed for sockets without a file")
def test_sockets_without_a_file_cannot_be_reached(ground: Ground) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"\0cdd-test-{os.getpid()}"
        listener.bind(name)
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        assert "PermissionError" in ground.python(code).output


@pytest.mark.skipif(os.path.ismount("/dev/shm") is False, reason="no /dev/shm")
def test_what_it_does_not_stop_is_told_and_is_so(ground: Ground) -> None:
    secret, shared = ground.outside / "f", Path(f"/dev/shm/cdd-test-{os.getpid()}")
    secret.touch(mode=0o600)
    path = str(ground.outside / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(5)
        code = "import os, socket, sys; os.chmod(sys.argv[1], 0o644); open(sys.argv[2], 'w').close()\n"
        code += "socket.socket(socket.AF_UNIX).connect(sys.argv[3])"
        try:
            result = ground.python(code, str(secret), str(shared), path)
            assert NOT_STOPPED in result.limits
            assert result.output == ""
            assert secret.stat().st_mode & 0o777 == 0o644
            assert shared.exists()
            listener.accept()[0].close()
        finally:
            shared.unlink(missing_ok=True)


def test_git_works_whatever_the_system_has_configured(ground: Ground) -> None:
    who = "-c user.name=a -c user.email=a@example.org"
    told = ground.bash(
        f"git init -q r && cd r && touch a && git add a && git {who} commit -qm one && git log --format=%s"
    )
    assert told.output == "one\n"
    assert ground.bash("cd r && env -u GIT_CONFIG_NOSYSTEM git log --format=%s").output == "one\n"


def test_a_terminal_of_the_user_can_be_neither_written_nor_read(ground: Ground) -> None:
    master, slave = pty.openpty()
    try:
        os.write(master, b"an answer\n")
        told = ground.bash(f"echo FAKE > {os.ttyname(slave)}; timeout 2 head -c 9 {os.ttyname(slave)}; echo > /dev/tty")
        assert "an answer" not in told.output
        os.set_blocking(master, False)
        shown = b""
        try:
            while more := os.read(master, 1000):
                shown += more
        except BlockingIOError:
            pass
        assert b"FAKE" not in shown
    finally:
        os.close(master)
        os.close(slave)
