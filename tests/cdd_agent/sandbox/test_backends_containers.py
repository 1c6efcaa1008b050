"""By a program that stands in for a client: this shows what would be asked of a server, not that one would do it."""

import os
import resource
import shlex
import socket
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.backends import IMAGE, ContainerSandbox
from cdd_agent.sandbox.port import Access, Command, Limits
from tests.cdd_agent.sandbox.conftest import Ground

LIMITS = Limits(memory_bytes=6, cpu_s=7, file_bytes=8, open_files=9, processes=10)
ROOTLESS = "echo true"
"""The answer of a podman that does not run as root."""

CLIENT = """#!/bin/bash
echo "$@" >> {log}
case "$1" in
    version | info) {server} ;;
    image) test -e {log}.image && echo "[]" ;;
    import) cat > {log}.image; echo sha256:0 ;;
    run) while test "$1" != {image}; do
             test "$1" = --workdir && cd "$2"
             shift
         done
         shift
         exec "$@" ;;
    kill) echo killed ;;
esac
"""


def client(folder: Path, *, name: str = "docker", server: str = "echo 28.0") -> Path:
    program = folder / name
    program.write_text(CLIENT.format(log=shlex.quote(str(folder / "log")), server=server, image=IMAGE))
    program.chmod(0o755)
    return program


def asked(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_a_client_without_a_server_is_no_sandbox(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="does not answer"):
        ContainerSandbox(client(tmp_path, server="echo Cannot connect >&2; exit 1"))
    with pytest.raises(EnvironmentMissing, match="does not answer"):
        ContainerSandbox(client(tmp_path, server="exit 0"))


def test_the_image_is_made_once_of_nothing_and_never_fetched(tmp_path: Path) -> None:
    ContainerSandbox(client(tmp_path))
    ContainerSandbox(client(tmp_path))
    assert [line.split()[0] for line in asked(tmp_path)] == ["version", "image", "import", "version", "image"]
    assert (tmp_path / "log.image").read_bytes() == bytes(10_240)


def run_line(folder: Path) -> list[str]:
    return next(line for line in asked(folder) if line.startswith("run ")).split()


def test_a_run_is_a_container_that_may_do_nothing_else(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    sandbox = ContainerSandbox(client(tmp_path))
    os.mkfifo(ground.outside / "pipe")
    readable = (ground.project / ".git", ground.outside)
    access = Access(read_write=(ground.project,), read_only=readable, overlaid=(ground.outside,))
    command = Command(
        argv=("pwd",), cwd=ground.project, access=access, variables={"A": "b"}, timeout_s=20, limits=LIMITS
    )
    result = sandbox.run(command)
    assert (result.output, result.level) == (f"{ground.project}\n", "docker")
    line = run_line(tmp_path)
    for words in (
        ("--rm",),
        ("--pull", "never"),
        ("--read-only",),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--network", "none"),
        ("--user", f"{os.getuid()}:{os.getgid()}"),
        ("--env", "A=b"),
        (
            "--ulimit",
            "core=0",
            "--ulimit",
            "cpu=7",
            "--ulimit",
            "fsize=8",
            "--ulimit",
            "nofile=9",
            "--ulimit",
            "nproc=",
        ),
        ("--memory", "6b", "--pids-limit", "10"),
        ("--env", "HOME=/home/sandbox"),
        ("--volume", f"{ground.project}:{ground.project}"),
        ("--volume", f"{ground.project}/.git:{ground.project}/.git:ro"),
        ("--volume", f"{ground.outside}:{ground.outside}:ro"),
        ("--volume", f"/dev/null:{ground.outside}/pipe:ro"),
    ):
        assert " ".join(words) in " ".join(line)
    assert line.index(f"{ground.project}:{ground.project}") < line.index(
        f"{ground.project}/.git:{ground.project}/.git:ro"
    )
    assert "--userns" not in line


@pytest.mark.parametrize(("answer", "maps"), [(ROOTLESS, True), ("echo false", False)])
def test_podman_keeps_the_number_of_a_user_and_not_of_root(tmp_path: Path, *, answer: str, maps: bool) -> None:
    sandbox = ContainerSandbox(client(tmp_path, name="podman", server=answer))
    sandbox.run(Command(argv=("true",), cwd=tmp_path, access=Access(), timeout_s=20))
    assert ("--userns keep-id" in " ".join(run_line(tmp_path))) is maps


def test_no_limit_is_above_that_of_the_engine(tmp_path: Path) -> None:
    sandbox, above = ContainerSandbox(client(tmp_path)), 2**40
    limits = Limits(memory_bytes=6, cpu_s=7, file_bytes=8, open_files=above, processes=above)
    sandbox.run(Command(argv=("true",), cwd=tmp_path, access=Access(), timeout_s=20, limits=limits))
    asked_for = dict(word.split("=") for word in run_line(tmp_path) if word.startswith(("nofile=", "nproc=")))
    for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(number)[1]
        assert hard == resource.RLIM_INFINITY or int(asked_for[name]) == hard


@pytest.mark.slow
def test_a_container_that_takes_too_long_is_killed_by_its_name(tmp_path: Path) -> None:
    sandbox = ContainerSandbox(client(tmp_path))
    result = sandbox.run(Command(argv=("sleep", "60"), cwd=tmp_path, access=Access(), timeout_s=0.5))
    assert result.timed_out
    assert result.duration_s < 30
    line = run_line(tmp_path)
    assert asked(tmp_path)[-1] == f"kill {line[line.index('--name') + 1]}"


def test_the_client_gets_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key")
    sandbox = ContainerSandbox(client(tmp_path))
    result = sandbox.run(Command(argv=("env",), cwd=tmp_path, access=Access(), timeout_s=20))
    assert "canary-key" not in result.output


def test_the_client_passes_on_what_the_program_reads(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"read by the program")
        ours.shutdown(socket.SHUT_WR)
        command = Command(argv=("cat",), cwd=tmp_path, access=Access(), timeout_s=20, stdin=theirs.fileno())
        assert ContainerSandbox(client(tmp_path)).run(command).output == "read by the program"
    assert "--interactive" in run_line(tmp_path)
