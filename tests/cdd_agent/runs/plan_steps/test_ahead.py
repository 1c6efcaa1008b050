import os
import subprocess
import threading
from pathlib import Path

from cdd_agent import __version__
from cdd_agent.model.conversation import Request
from cdd_agent.runs.ahead import SharedModel, build_program
from cdd_agent.storage import hold
from tests.fakes.model import ScriptedModel, says

_SOON_S = 0.1


def test_processes_together_make_as_many_requests_at_once_as_there_are_jobs(tmp_path: Path) -> None:
    inner = ScriptedModel([says("one"), says("two")])
    model = SharedModel(inner, folder=tmp_path / "requests", most=2)
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
