import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cdd_agent import __version__
from cdd_agent.model.conversation import Request
from cdd_agent.runs.jobs import Job, Jobs, SharedModel, SharedSandbox, Slots, build_program
from cdd_agent.sandbox.port import Access, Command
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.storage import hold
from tests.fakes.model import ScriptedModel, says

_SOON_S = 0.1
PYTHON = (sys.executable, "-I", "-S", "-c")


def job(folder: Path, number: int, code: str) -> Job:
    return Job(number=number, folder=folder, arguments=(code,), log=folder / "logs" / f"{number}.log")


def test_each_job_has_a_result_when_it_ends_whatever_ended_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    jobs = Jobs(most=3, program=PYTHON)
    jobs.submit(job(tmp_path, 1, "import os; print(os.getcwd()); open('pipe').read()"))
    jobs.submit(job(tmp_path, 2, "raise SystemExit(4)"))
    jobs.submit(job(tmp_path, 3, "import os; os.kill(os.getpid(), 9)"))
    found = {}
    for result in jobs.as_completed():
        found[result.job.number] = result.why
        if len(found) == 2:
            assert jobs.running == (1,)
            assert jobs.has_room
            (tmp_path / "pipe").write_text("go on")
    assert [*found][-1] == 1
    assert found == {1: "", 2: "Its process ended with exit status 4.", 3: "Its process was killed by signal 9."}
    assert (tmp_path / "logs" / "1.log").read_text() == f"{tmp_path}\n"
    assert list(jobs.as_completed()) == []


def test_a_cancelled_job_leaves_no_process_and_no_result(tmp_path: Path) -> None:
    jobs = Jobs(most=2, program=PYTHON)
    for number in (1, 2):
        jobs.submit(job(tmp_path, number, "import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
    assert not jobs.has_room
    jobs.cancel(1)
    assert jobs.running == (2,)
    jobs.submit(job(tmp_path, 1, ""))
    assert next(jobs.as_completed()).job.arguments == ("",)
    jobs.cancel()
    assert [*map(str, jobs.running), *jobs.as_completed()] == []
    for number in (1, 2):
        for pid in (tmp_path / "logs" / f"{number}.log").read_text().split():
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)


def test_an_interrupted_wait_loses_no_result(tmp_path: Path) -> None:
    jobs, pipe = Jobs(most=1, program=PYTHON), tmp_path / "pipe"
    os.mkfifo(pipe)
    read = f"open({str(pipe)!r}).read()"

    def wait() -> None:
        jobs.submit(job(tmp_path, 1, f"import os; {read}; os.kill(os.getppid(), 2); {read}"))
        pipe.write_text("you may interrupt")
        next(jobs.as_completed())

    with pytest.raises(KeyboardInterrupt):
        wait()
    pipe.write_text("you may end")
    assert [result.why for result in jobs.as_completed()] == [""]


def test_processes_together_make_as_many_requests_at_once_as_there_are_jobs(tmp_path: Path) -> None:
    inner = ScriptedModel([says("one"), says("two")])
    model = SharedModel(inner, slots=Slots(tmp_path / "requests", most=2))
    request = Request(system="", messages=())
    model.reply(request, emit=lambda _: None)
    asking = threading.Thread(target=model.reply, args=(request,), kwargs={"emit": lambda _: None})
    with hold(tmp_path / "requests" / "0.lock"):
        (tmp_path / "requests" / "1.lock").touch()
        with hold(tmp_path / "requests" / "1.lock"):  # two other processes are asking
            asking.start()
            asking.join(_SOON_S)
            assert len(inner.requests) == 1
        asking.join()
    assert len(inner.requests) == 2


def test_processes_together_run_as_many_programs_at_once_as_there_are_slots(tmp_path: Path) -> None:
    (tmp_path / "0.lock").touch()
    sandbox = SharedSandbox(PlainSandbox(), slots=Slots(tmp_path))
    command = Command(argv=(*PYTHON, "print('ran')"), cwd=tmp_path, access=Access(), timeout_s=60)
    results: list[str] = []
    running = threading.Thread(target=lambda: results.append(sandbox.run(command).output))
    with hold(tmp_path / "0.lock"):  # another process runs tests
        assert sandbox.inner.run(command).output == "ran\n"
        running.start()
        running.join(_SOON_S)
        assert results == []
    running.join()
    assert results == ["ran\n"]


def test_the_program_that_works_ahead_imports_nothing_from_the_fork(tmp_path: Path) -> None:
    fork = tmp_path / "fork"
    (fork / "src").mkdir(parents=True)
    for folder in (fork, fork / "src"):
        for name in ("sitecustomize", "usercustomize", "msgspec", "cdd_agent", "types", "click", "re"):
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    variables = {**os.environ, "PYTHONPATH": f"src{os.pathsep}.", "PYTHONSTARTUP": "re.py"}
    for argument, said in (("--version", __version__), ("status", "No tickets yet")):
        done = subprocess.run(
            [*build_program(), argument], cwd=fork, env=variables, capture_output=True, text=True, check=False
        )
        assert said in done.stdout + done.stderr
    assert not (tmp_path / "ran").exists()
