import os
import socket
from pathlib import Path

import pytest

from cdd_agent.sandbox.landlock import NOT_STOPPED
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


def test_what_it_does_not_stop_is_told_and_is_so(ground: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(5)
        code = f"import socket; socket.socket(2, 2).sendto(b'out', {listener.getsockname()!r})"
        result = ground.python(code)
        assert NOT_STOPPED in result.limits
        assert listener.recv(10) == b"out"
