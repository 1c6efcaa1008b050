import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.sandbox.backends import _HIDDEN_OF_KERNEL, list_binds
from cdd_agent.sandbox.port import Access, Command
from tests.cdd_agent.sandbox.conftest import Ground, at

PATHS = st.lists(st.sampled_from([Path("/a"), Path("/a/b"), Path("/a/b/c"), Path("/d"), Path("/d/e")]), max_size=5)


@given(PATHS, PATHS)
def test_folders_on_the_way_to_what_is_read_only_are_mounts_and_nothing_becomes_writable_by_that(
    writable: list[Path], readable: list[Path]
) -> None:
    access = Access(read_write=tuple(writable), read_only=tuple(readable))
    found = {bind.shown: bind.is_writable for bind in list_binds(access)}
    for added in found.keys() - {*writable, *readable}:
        nearest = next(folder for folder in added.parents if folder in (*writable, *readable))
        assert found[nearest]
        assert any(added in path.parents for path in readable)
    for path in readable:
        above = [folder for folder in path.parents if folder in (*writable, *readable)][:1]
        is_inside = above != [] and above[0] not in readable
        assert not is_inside or all(folder in found for folder in path.parents if above[0] in folder.parents)


def test_the_folders_that_are_mounted_for_that_are_few() -> None:
    readable = tuple(Path(f"/a/{number}/b/c") for number in range(300))
    access = Access(read_write=(Path("/a"),), read_only=readable)
    assert len(list_binds(access)) == 1 + 300 + 120


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="bwrap")


@given(PATHS, PATHS)
def test_the_longer_path_decides_and_of_equal_ones_read_only(writable: list[Path], readable: list[Path]) -> None:
    found = list_binds(Access(read_write=tuple(writable), read_only=tuple(readable)))
    modes = {bind.shown: bind.is_writable for bind in found}
    assert modes.items() >= {path: path not in readable for path in (*writable, *readable)}.items()
    assert [len(bind.shown.parts) for bind in found] == sorted(len(bind.shown.parts) for bind in found)


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


def test_the_kernels_settings_cannot_be_changed_and_what_engines_hide_is_hidden(ground: Ground) -> None:
    hidden = [path for path in _HIDDEN_OF_KERNEL if os.path.isfile(path)]
    folders = [path for path in _HIDDEN_OF_KERNEL if os.path.isdir(path)]
    result = ground.bash(
        "find /proc/sys /proc/bus /proc/fs /proc/irq /proc/sysrq-trigger -type f -writable 2>/dev/null;"
        f"cat {' '.join(hidden)} </dev/null; find {' '.join(folders)} -mindepth 1; ls /sys /sys/devices/system;"
        "ls -d /sys/devices/system/cpu/cpu*/thermal_throttle/* 2>/dev/null; cat /proc/sys/kernel/ostype"
    )
    assert result.output.split() == ["/sys:", "devices", "/sys/devices/system:", "cpu", "Linux"]


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


def test_only_the_loopback_network_is_there(ground: Ground) -> None:
    argv = ("bash", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | xargs")
    command = Command(argv=argv, cwd=ground.project, access=Access(read_write=(ground.project,)), timeout_s=20)
    assert at("bwrap").run(command).output.split() == ["lo"]


def test_what_a_user_changes_meanwhile_in_a_folder_that_programs_can_only_read_stays(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="bwrap")
    plan = ground.project / "tickets" / "plan.md"
    plan.parent.mkdir()
    plan.write_text("old\n")
    command = Command(
        argv=("sh", "-c", "touch begun; until grep -q new tickets/plan.md; do sleep 0.05; done"),
        cwd=ground.project,
        access=Access(read_write=(ground.project,), read_only=(plan.parent,)),
        timeout_s=20,
    )
    with ThreadPoolExecutor() as threads:
        running = threads.submit(ground.sandbox.run, command)
        while not (ground.project / "begun").exists() and not running.done():
            time.sleep(0.01)
        plan.write_text("new\n")
        assert (running.result().exit_status, running.result().remarks) == (0, ())
    assert plan.read_text() == "new\n"


def test_a_folder_with_something_read_only_in_it_can_neither_be_moved_nor_replaced(ground: Ground) -> None:
    for name in ("tests/unit/test_a.py", "backend/.venv/bin/python", "src/a.py"):
        (ground.project / name).parent.mkdir(parents=True, exist_ok=True)
        (ground.project / name).write_text("mine\n")
    locked = tuple(ground.project / name for name in ("tests/unit/test_a.py", "backend/.venv", "gone/test_b.py"))
    script = """
        for top in tests/unit tests backend; do mv $top away; rm -rf $top; ln -sfn /tmp $top; done
        mkdir -p tests/unit backend/.venv/bin
        echo evil > tests/unit/test_a.py; echo evil > backend/.venv/bin/python
        echo free > tests/unit/data && mv tests/unit/data src/data && mv src lib && echo free
    """
    result = ground.sandbox.run(
        Command(
            argv=("bash", "-c", script),
            cwd=ground.project,
            access=Access(read_write=(ground.project,), read_only=locked),
            timeout_s=20,
        )
    )
    assert (ground.project / "tests/unit/test_a.py").read_text() == "mine\n"
    assert (ground.project / "backend/.venv/bin/python").read_text() == "mine\n"
    assert result.output.endswith("free\n")
    assert (ground.project / "lib/data").read_text() == "free\n"


def test_what_a_user_changes_of_gits_meanwhile_stays_where_programs_can_only_read(ground: Ground) -> None:
    config = ground.project / ".git" / "config"
    script = "touch begun; until grep -q mine .git/config; do sleep 0.05; done"
    access = Access(read_write=(ground.project,), read_only=(config.parent,))
    with ThreadPoolExecutor() as threads:
        command = Command(argv=("sh", "-c", script), cwd=ground.project, access=access, timeout_s=20)
        running = threads.submit(ground.sandbox.run, command)
        while not (ground.project / "begun").exists() and not running.done():
            time.sleep(0.01)
        config.write_text("mine\n")
        assert (running.result().exit_status, running.result().remarks) == (0, ())
    assert config.read_text() == "mine\n"


def test_what_is_only_in_memory_has_a_bound(ground: Ground) -> None:
    command = "for f in /tmp /run ~ /dev/shm /dev; do stat -f -c '%b %S' $f; done; touch /dev/x; echo a > /dev/shm/x"
    *sizes, refused = ground.bash(command).output.splitlines()
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    told = [int(blocks) * int(size) for blocks, size in map(str.split, sizes)]
    assert sum(told[:4]) <= machine * 3 // 4
    assert min(told) > 0
    assert "Read-only" in refused
