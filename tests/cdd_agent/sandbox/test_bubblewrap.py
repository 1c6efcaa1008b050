import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.bubblewrap import binds
from cdd_agent.sandbox.port import Access, Command
from tests.cdd_agent.sandbox.conftest import Ground, at

PATHS = st.lists(st.sampled_from([Path("/a"), Path("/a/b"), Path("/a/b/c"), Path("/d"), Path("/d/e")]), max_size=5)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="bwrap")


@given(PATHS, PATHS)
def test_the_longer_path_decides_and_of_equal_ones_read_only(writable: list[Path], readable: list[Path]) -> None:
    found = binds(Access(read_write=tuple(writable), read_only=tuple(readable)))
    assert dict(found) == {path: path not in readable for path in (*writable, *readable)}
    assert [len(path.parts) for path, _ in found] == sorted(len(path.parts) for path, _ in found)


def test_programs_of_the_system_and_a_home_of_ones_own_are_there(ground: Ground) -> None:
    result = ground.bash("echo $HOME; touch ~/x /tmp/y && ls ~ /tmp; id -u; date +%Z >/dev/null && echo ok; echo $PPID")
    assert result.output.startswith("/home/sandbox\n/home/sandbox:\nx\n\n/tmp:\n")
    assert "\nok\n" in result.output


def test_nothing_of_the_system_can_be_written_to_and_no_rights_are_left(ground: Ground) -> None:
    result = ground.bash(
        "for f in /x /usr/x /etc/x /bin/x; do touch $f 2>/dev/null && echo wrote $f; done;"
        "unshare -Ur true 2>/dev/null && echo user namespace; mount -t tmpfs x /tmp 2>/dev/null && echo mounted;"
        "grep CapEff /proc/self/status"
    )
    assert result.output.split() == ["CapEff:", "0000000000000000"]


def test_other_processes_cannot_be_seen(ground: Ground) -> None:
    numbers = [int(line) for line in ground.bash("ls /proc | grep -E '^[0-9]+$'").output.split()]
    assert len(numbers) < 10
    assert max(numbers) < 20


def test_loopback_works_inside_and_leads_nowhere_else(ground: Ground) -> None:
    code = (
        "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1);"
        "c = socket.create_connection(s.getsockname()); s.accept()[0].sendall(b'x'); print(c.recv(1))"
    )
    assert ground.python(code).output == "b'x'\n"


def test_a_folder_inside_a_read_only_one_can_be_written_to(ground: Ground) -> None:
    cache = ground.project / ".git" / "cache"
    cache.mkdir()
    access = Access(read_write=(ground.project, cache), read_only=(ground.project / ".git",))
    result = ground.sandbox.run(
        Command(
            argv=("bash", "-c", "echo a > .git/cache/x; echo b > .git/config"),
            cwd=ground.project,
            access=access,
            timeout_s=20,
        )
    )
    assert (cache / "x").read_text() == "a\n"
    assert "Read-only file system" in result.output


def test_gits_folder_can_neither_be_moved_nor_replaced(ground: Ground) -> None:
    result = ground.bash("mv .git g; rm -rf .git; ln -sfn /tmp .git; ls -d .git/config")
    assert result.output.endswith(".git/config\n")
    assert (ground.project / ".git" / "config").read_text() == "[core]\n"


def test_the_network_is_there_only_if_it_is_asked_for(ground: Ground) -> None:
    def interfaces(*, network: bool) -> str:
        access = Access(read_write=(ground.project,), network=network)
        argv = ("bash", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | xargs")
        return at("bwrap").run(Command(argv=argv, cwd=ground.project, access=access, timeout_s=20)).output

    assert interfaces(network=False).split() == ["lo"]
    here = [line.partition(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    assert interfaces(network=True).split() == here


def test_what_a_user_changes_meanwhile_in_a_folder_that_programs_can_only_read_stays(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="bwrap")
    plan = ground.project / "tickets" / "plan.md"
    plan.parent.mkdir()
    plan.write_text("old\n")
    command = Command(
        argv=("sh", "-c", "touch begun; until grep -q new tickets/plan.md; do sleep 0.05; done"),
        cwd=ground.project,
        access=Access(read_write=(ground.project,), read_only=(plan.parent,), kept=(plan.parent,)),
        timeout_s=20,
    )
    with ThreadPoolExecutor() as threads:
        running = threads.submit(ground.sandbox.run, command)
        while not (ground.project / "begun").exists() and not running.done():
            time.sleep(0.01)
        plan.write_text("new\n")
        assert (running.result().exit_status, running.result().remarks) == (0, ())
    assert plan.read_text() == "new\n"
