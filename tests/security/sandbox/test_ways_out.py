"""What must not get out of the sandbox: published weaknesses of such programs, and faults that a test suite brings."""

import ast
import inspect
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.agent.tools import make_bash_tool
from cdd_agent.compose import Composition
from cdd_agent.config import settings
from cdd_agent.config.options import Options
from cdd_agent.errors import DocumentError, EnvironmentMissing
from cdd_agent.sandbox import choice
from cdd_agent.sandbox.backends import list_binds
from cdd_agent.sandbox.port import Access, Limits
from cdd_agent.sandbox.supervised import PlainSandbox, make_default_limits
from cdd_agent.sandbox.warden.kernel import landlock_version
from cdd_agent.testrun.access import build_access
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from pytest_tdd_agent.codec import load
from tests.cdd_agent.sandbox.conftest import CONFINED, Ground, at
from tests.fakes.cases import soak_after
from tests.fakes.project import QUICK
from tests.fakes.sources import nodes_with
from tests.security.corpus.commands import GIT, OUTSIDE


@pytest.fixture
def boxed(tmp_path: Path) -> Ground:
    return Ground.lay(tmp_path, level="bwrap")


def suite(ground: Ground, interpreter: Interpreter) -> PytestSuite:
    (ground.project / "pytest.ini").write_text(QUICK)
    (ground.project / ".cdd").mkdir(exist_ok=True)
    return PytestSuite(
        root=ground.project,
        interpreter=interpreter,
        sandbox=ground.sandbox,
        timeout_s=60,
        bytecode=ground.project / ".cdd" / "bytecode",
    )


@soak_after(1, "name", [".vscode/settings.json", ".cdd/config.yaml", ".git/config", ".github/workflows/ci.yml"])
def test_a_protected_file_stays_as_it_is(boxed: Ground, interpreter: Interpreter, name: str) -> None:
    ground, path = boxed, boxed.project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    tool = make_bash_tool(ground.sandbox, ground.project, access=build_access(ground.project, interpreter))
    top = name.partition("/")[0]
    for command in (f"echo bad > {name}", f"rm -rf {top}; mkdir -p {path.parent}; echo bad > {name}", f"mv {top} away"):
        tool.run({"command": command})
        assert path.read_text() == "mine"
    tool.run({"command": f"mv {top} x; ln -s x {top}; echo bad > x/{path.relative_to(ground.project / top)}"})
    assert path.read_text() == "mine"


def lay_commands(ground: Ground) -> str:
    """Write each command to a file, each with a folder of its own outside; return the command that runs them all."""
    (ground.project / "commands").mkdir()
    for number, command in enumerate(OUTSIDE):
        (ground.outside / str(number)).mkdir()
        (ground.outside / str(number) / "secret").write_text("hunter2")
        text = command.replace("OUT", str(ground.outside / str(number)))
        (ground.project / "commands" / f"{number:02}").write_text(text)
    # Each in a shell of its own, so that none can end, trap or redirect the others.
    return 'for file in commands/*; do bash -c "$(<"$file")" </dev/null 2>&1; echo; echo "ran $file"; done'


def reached(ground: Ground, output: str) -> list[str]:
    """Return the commands that wrote into their folder outside or read its secret."""
    said = re.split(r"\nran commands/\d\d(?:\n|$)", output)[:-1]
    assert len(said) == len(OUTSIDE), output
    found = []
    for number, command in enumerate(OUTSIDE):
        folder = ground.outside / str(number)
        is_whole = [path.name for path in folder.iterdir()] == ["secret"] and (
            folder / "secret"
        ).read_text() == "hunter2"
        if "hunter2" in said[number] or not is_whole:
            found.append(command)
    return found


def git_is_whole(ground: Ground) -> bool:
    git = ground.project / ".git"
    return (git / "config").read_text() == "[core]\n" and list((git / "hooks").iterdir()) == []


@soak_after(1, "confined", ("bwrap", "landlock"), indirect=True)
def test_no_obfuscated_command_gets_out(confined: Ground, interpreter: Interpreter) -> None:
    """Nothing reads a command to see what it does: each runs, and whatever it means lands inside."""
    assert len(OUTSIDE) + len(GIT) >= 50
    tool = make_bash_tool(confined.sandbox, confined.project, access=build_access(confined.project, interpreter))
    # Landlock cannot protect a folder inside a writable one; there, git's folder is not in the run tree.
    has_git = confined.sandbox.level != "landlock"
    for command in GIT if has_git else ():
        tool.run({"command": command})
        assert git_is_whole(confined), command
    told = tool.run({"command": lay_commands(confined), "timeout_s": 60}).text
    assert reached(confined, told) == []
    assert not has_git or git_is_whole(confined)


@pytest.mark.slow
def test_the_same_commands_do_get_out_where_nothing_confines(tmp_path: Path) -> None:
    """So that a corpus which no longer works is noticed."""
    ground = Ground.lay(tmp_path, level="none")
    assert reached(ground, ground.bash(lay_commands(ground)).output) == list(OUTSIDE)
    for command in GIT:
        ground.bash(command)
        assert not git_is_whole(ground), command
        shutil.rmtree(ground.project / ".git")
        (ground.project / ".git" / "hooks").mkdir(parents=True)
        (ground.project / ".git" / "config").write_text("[core]\n")


def test_five_hundred_parts_are_as_confined_as_one(confined: Ground) -> None:
    parts = " ; ".join(["true"] * 250 + ["true && true || true"] * 250 + [f"echo x > {confined.outside}/x"])
    confined.bash(parts)
    assert not (confined.outside / "x").exists()


PATHS = st.lists(
    st.sampled_from(["p", "p/.git", "p/.git/hooks", "p/src", "p/src/a.py", "q"]).map(lambda n: Path("/") / n)
)


@given(PATHS, PATHS)
def test_what_is_both_writable_and_read_only_is_read_only(writable: list[Path], readable: list[Path]) -> None:
    binds = list_binds(Access(read_write=tuple(writable), read_only=tuple(readable)))
    assert not any(bind.is_writable for bind in binds if bind.shown in readable)


def test_no_program_is_started_through_a_shell_of_ours() -> None:
    starters = ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")
    found = []
    for path, node in nodes_with("shell", *starters):
        if isinstance(node, ast.Call):
            shell = any(
                word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
                for word in node.keywords
            )
            if shell or ast.unparse(node.func) in starters:
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_no_safety_rests_on_a_list_of_commands() -> None:
    """A deny list is no control: the tool that runs commands looks at none of their words."""
    source = inspect.getsource(make_bash_tool)
    assert re.findall(r"\bre\.|fnmatch|shlex|startswith|split\(", source) == []
    tool = make_bash_tool(PlainSandbox(), Path("/"), access=Access())
    assert tool.run({"command": "true; false || true # rm -rf /"}).text == "exit status 0"


@soak_after(2, "host", ["127.0.0.1", "127.0.0.1\0.example.org", "localhost"])
def test_no_name_of_a_host_opens_the_network(confined: Ground, host: str) -> None:
    """There is no proxy that could be fooled by a name: there is no network."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listener.setblocking(False)
        code = f"import socket; socket.create_connection(({host!r}, {listener.getsockname()[1]}), 2); print('open')"
        assert "open\n" not in confined.python(code).output
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_no_datagram_leaves_and_so_no_question_of_dns(boxed: Ground) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.2)
        boxed.python(f"import socket; socket.socket(2, 2).sendto(b'out', {listener.getsockname()!r})")
        with pytest.raises(TimeoutError):
            listener.recv(10)


def test_no_socket_file_outside_can_be_reached(boxed: Ground) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(boxed.outside / "s")
        listener.bind(path)
        listener.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
        assert "FileNotFoundError" in boxed.python(code).output


def test_no_key_is_in_the_environment_of_any_process_that_can_be_seen(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary-of-the-test")
    code = (
        "import os\npid = os.getpid()\nseen = 0\n"
        "while pid > 1 or pid == os.getpid():\n"
        "    try: print(open(f'/proc/{pid}/environ', 'rb').read()); seen += 1\n"
        "    except OSError as error: print(error)\n"
        "    pid = int(open(f'/proc/{pid}/stat').read().rpartition(') ')[2].split()[1])\n"
        f"    if pid == {os.getpid()}: break\n"
        "try: print(open('/proc/1/environ', 'rb').read())\nexcept OSError as error: print(error)\n"
    )
    result = ground.python(code)
    assert "LANG" in result.output or "PATH" in result.output
    assert "sk-canary" not in result.output


def test_nothing_falls_back_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> choice._Candidates:
        yield "it is not here", None

    monkeypatch.setattr(choice, "_trials_by_level", {})
    for level in choice._CANDIDATES:
        monkeypatch.setitem(choice._CANDIDATES, level, absent)
        with pytest.raises(EnvironmentMissing, match="it is not here"):
            choice.choose(level, unattended=False)
    with pytest.raises(EnvironmentMissing, match="an unattended run needs one"):
        choice.choose("auto", unattended=True)
    heard: list[str] = []
    choice.choose("auto", unattended=False, report=heard.append)
    assert "NOT CONFINED" in heard[0]


@pytest.mark.slow
def test_the_whole_program_refuses_a_level_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, interpreter: Interpreter
) -> None:
    def absent() -> choice._Candidates:
        yield "it is not here", None

    monkeypatch.setattr(choice, "_trials_by_level", {})
    for level in choice._CANDIDATES:
        monkeypatch.setitem(choice._CANDIDATES, level, absent)
    environment = {"CDD_PYTHON": str(interpreter.path), "CDD_SANDBOX": "bwrap", "XDG_STATE_HOME": str(tmp_path / "s")}

    def level_of(options: Options, **more: str) -> str:
        project = Composition(options, emit=lambda _: None, environment={**environment, **more})
        return project.suite.sandbox.level

    (tmp_path / "test_it.py").write_text("")
    here = Options(project=tmp_path)
    with pytest.raises(EnvironmentMissing, match="sandbox bwrap cannot be used"):
        level_of(replace(here, attended=True))
    with pytest.raises(EnvironmentMissing, match="an unattended run needs one"):
        level_of(here, CDD_SANDBOX="auto")
    assert level_of(replace(here, attended=True), CDD_SANDBOX="auto") == "none"
    assert level_of(replace(here, sandbox="none")) == "none"


def test_no_repository_lowers_the_level(tmp_path: Path) -> None:
    (tmp_path / ".cdd").mkdir()
    (tmp_path / ".cdd" / "config.yaml").write_text("sandbox: none\n")
    with pytest.raises(DocumentError, match="unknown setting 'sandbox'"):
        settings.load(tmp_path, allows=lambda _: True, environment={})


def test_a_test_that_signals_every_process_ends_none_of_ours(boxed: Ground, interpreter: Interpreter) -> None:
    (boxed.project / "test_all.py").write_text(
        "import os, signal\n"
        "def test_all():\n"
        # without a namespace of its own the last line would be meant for everybody
        "    assert sum(name.isdigit() for name in os.listdir('/proc')) < 20\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    try: os.kill(-1, signal.SIGTERM)\n"
        "    except ProcessLookupError: pass\n"
    )
    with subprocess.Popen(["sleep", "60"]) as other:
        report = suite(boxed, interpreter).run().report
        assert other.poll() is None
        other.kill()
    assert report is None or [case.outcome for case in report.tests] == ["passed"]


@pytest.mark.skipif(landlock_version() < 6, reason="Landlock 6 (Linux 6.12) is needed to shut signals in")
def test_a_signal_does_not_leave_landlock(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="landlock")
    with subprocess.Popen(["sleep", "60"]) as other:
        told = ground.python(f"import os; os.kill({other.pid}, {int(signal.SIGTERM)})").output
        assert other.poll() is None
        other.kill()
    assert "PermissionError" in told


DESCENDANTS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def wait():
    with open("started", "a") as stream: stream.write("x")
    while True: time.sleep(1)
def own_group(): os.setpgid(0, 0); wait()
def own_session(): os.setsid(); wait()
def forked_twice(): os.fork() or wait()
def daemon():
    os.setsid()
    os.fork() or os.execv(sys.executable, [sys.executable, "-I", "-S", "-c",
        "import signal, time; signal.signal(15, signal.SIG_IGN); open('started', 'a').write('x'); time.sleep(1000)"])
def deaf(): wait()
def forking_on():
    os.setsid()
    with open("started", "a") as stream: stream.write("x")
    begun = time.monotonic()
    while time.monotonic() < begun + 60:  # a test that is killed must not leave it for ever
        if os.fork(): os._exit(0)
        time.sleep(REST_S)
for kind in (own_group, own_session, forked_twice, daemon, deaf, forking_on):
    if os.fork() == 0:
        kind()
        os._exit(0)
while len(open("started").read() if os.path.exists("started") else "") < 6: time.sleep(0.01)
"""


def living_in(folder: Path) -> list[str]:
    """The processes whose current folder is ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd") == str(folder):
                    found.append(entry.name)
            except OSError:
                continue
    return found


@soak_after(1, "waits", [False, True], ids=["left behind", "timed out"])
def test_no_descendant_of_six_kinds_is_left(ground: Ground, *, waits: bool) -> None:
    started = time.monotonic()
    rest_s = 0.01 if waits else 0  # a processor kept busy for three seconds would show no more
    code = f"REST_S = {rest_s}\n{DESCENDANTS}" + ("time.sleep(1000)" if waits else "")
    result = ground.python(code, timeout_s=3 if waits else 20)
    assert len((ground.project / "started").read_text()) >= 6
    assert (result.timed_out, result.survivors) == (waits, 0)
    assert living_in(ground.project) == []
    if waits:
        assert time.monotonic() - started < 3 + 20  # not 1000


def test_output_without_end_costs_little_memory(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from tests.cdd_agent.sandbox.conftest import Ground\n"
        f"ground = Ground.lay(Path({str(tmp_path / 'own')!r}), level='none')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "result = ground.run('head', '-c', '300M', '/dev/zero', timeout_s=60)\n"
        "grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(grown, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, result.dropped_bytes)\n"
    )
    root = Path(__file__).parents[3]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout
    grown_kb, warden_kb, dropped = map(int, told.split())
    assert ground.sandbox.level == "none"
    assert grown_kb < 10_000
    assert warden_kb < 120_000  # of the interpreter before it becomes the warden too
    assert dropped == 300 * 2**20 - 64_000


@soak_after(1, "ground", ("bwrap", "landlock", "none"), indirect=True)
def test_memory_time_files_and_descriptors_have_an_end(ground: Ground) -> None:
    limits = Limits(memory_bytes=1 << 28, cpu_s=1, file_bytes=1 << 20, open_files=32, processes=4096)

    def told(code: str) -> str:
        result = ground.python(code, limits=limits)
        return f"{result.output}{result.exit_status}"

    assert "MemoryError" in told("x = bytearray(1 << 30)")
    assert told("import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])").startswith("1\n")
    if ground.sandbox.level == "bwrap":  # burning a second of a processor on each rung would show no more
        assert told("while True: pass").removesuffix("\n") in ("-24", "-9", "152", "137")
    assert "File too large" in told(
        "import signal; signal.signal(25, signal.SIG_IGN); open('x', 'wb').write(bytes(2 << 20))"
    )
    assert "Too many open files" in told("import os; [os.dup(0) for _ in range(64)]")
    assert "x" in ground.bash("echo x").output


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel holds root to no number of processes")
def test_the_number_of_processes_has_an_end(ground: Ground) -> None:
    bomb = "import os, signal\nfor _ in range(200): os.fork() or signal.pause()"
    assert "BlockingIOError" in ground.python(bomb, limits=replace(make_default_limits(20), processes=50)).output


def test_a_test_that_deletes_everything_deletes_nothing_outside(boxed: Ground, interpreter: Interpreter) -> None:
    (boxed.outside / "mine").write_text("mine")
    (boxed.project / "test_delete.py").write_text(
        "import os, shutil, subprocess\n"
        "def test_delete():\n"
        f"    for folder in ({str(boxed.outside)!r}, os.path.expanduser('~'), '/tmp', '.'):\n"
        "        shutil.rmtree(folder, ignore_errors=True)\n"
        "    delete = ('rm', '-rf', '--one-file-system', '--no-preserve-root')\n"
        "    subprocess.run([*delete, '/', '/etc', '/tmp', '.'], stderr=subprocess.DEVNULL)\n"
        "    os.chdir('/')\n"
    )
    run = suite(boxed, interpreter).run()
    assert "did not end" not in (run.problem or "")
    assert (boxed.outside / "mine").read_text() == "mine"
    assert (boxed.project / ".git" / "config").exists()
    assert (boxed.project / "test_delete.py").exists()


def test_a_test_cannot_change_the_tests_that_judge_it(boxed: Ground, interpreter: Interpreter) -> None:
    names = ("test_it.py", "tests/test_more.py", "conftest.py", "pytest.ini", "pyproject.toml")
    (boxed.project / "tests").mkdir()
    for name in names:
        (boxed.project / name).write_text("")
    judged = suite(boxed, interpreter)
    (boxed.project / "test_it.py").write_text(
        "import pytest\n"
        f"@pytest.mark.parametrize('name', {names!r})\n"
        "def test_it(name):\n"
        "    with pytest.raises(OSError): open(name, 'a')\n"
        "def test_beside(): open('tests/output.txt', 'w')\n"
    )
    kept = boxed.outside / "report.json"
    judged.run(keep=kept)
    report = load(kept)
    assert {case.outcome for case in report.tests} == {"passed"}
    assert report.sandbox == "bwrap"


@pytest.mark.slow
def test_a_project_is_tested_the_same_on_every_rung(tmp_path: Path, interpreter: Interpreter, bytecode: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    plain = replace(suite(ground, interpreter), bytecode=bytecode)
    (ground.project / "lib.py").write_text("def half(x): return x // 2\n")
    (ground.project / "test_it.py").write_text(
        "import os, subprocess, sys, tempfile, pytest\nfrom lib import half\n"
        "def test_passes(tmp_path): (tmp_path / 'x').write_text('x'); assert half(4) == 2\n"
        "def test_fails(): assert half(3) == 1.5\n"
        "def test_writes(): open('made', 'w').close(); tempfile.mkstemp()\n"
        "def test_starts(): subprocess.run([sys.executable, '-c', 'import lib; assert lib.half(2) == 1'], check=True)\n"
        "@pytest.mark.skip\ndef test_skipped(): pass\n"
        "def test_knows_its_user(): import getpass; assert getpass.getuser() and os.path.expanduser('~')\n"
    )

    def outcomes(tests: PytestSuite) -> dict[str, str]:
        outcome = tests.run()
        assert outcome.report is not None, outcome
        return {case.nodeid: case.outcome for case in outcome.report.tests}

    expected = outcomes(plain)
    assert len(expected) == 6
    for level in CONFINED:
        assert outcomes(plain.with_sandbox(at(level))) == expected, level
