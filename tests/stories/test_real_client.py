"""The same recordings, played by a loopback server to the real SDK over streamed HTTP."""

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.trust import Approvals
from cdd_agent.model import recording as recorded
from cdd_agent.model.conversation import ToolCall
from cdd_agent.model.recording import RecordedTurn
from cdd_agent.shell.permission import CommandAnswer, Permission
from tests.fakes.messages_server import Fault, MessagesServer
from tests.fakes.program import EXAMPLES, KEY, ROOT, Demo, command, environment
from tests.stories.conftest import Cdd, git
from tests.stories.test_kill import planned


def judged(folder: Path, name: str) -> list[tuple[str, str, str, list[object]]]:
    steps = json.loads((folder / "tickets" / name / "execution-state.json").read_text())["step_executions"]
    return [
        (number, attempt["phase"], attempt["outcome"]["type"], attempt["reasons"])
        for number, step in steps.items()
        for attempt in step["attempts"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["csv-export", "minutes-lost"], indirect=True)
def test_the_real_client_comes_to_the_same_commits(demo: Demo, cdd: Cdd, tmp_path: Path) -> None:
    folder = tmp_path / demo.name
    turns = recorded.load_recording(EXAMPLES / demo.name / "recording.yaml")
    with MessagesServer(turns) as server:
        arguments = ("--model", "claude-loopback", "demo", demo.name, "--keep", str(folder))
        result = cdd(*arguments, ANTHROPIC_BASE_URL=server.base_url, ANTHROPIC_API_KEY=KEY)
    assert result.returncode == 0, result.stdout + result.stderr
    live = Demo(demo.name, folder, result=result)
    assert live.tree == demo.tree
    assert live.subjects == demo.subjects
    assert judged(folder, demo.name) == judged(demo.folder, demo.name)
    assert server.playback.unused == ()
    assert all(request.body["stream"] is True for request in server.requests)


USERS_KEY = "sk-ant-api03-USERS-canary-0123456789abcdefghijklmnopqrstuvwxyz"
FILES_KEY = "sk-ant-api03-FILES-canary-0123456789abcdefghijklmnopqrstuvwxyz"

SHORT = pytest.mark.parametrize("demo", ["minutes-lost"], indirect=True)


LOOKS = "cat notes.txt; env; cat /proc/[0-9]*/environ"


def prying(turns: Iterable[RecordedTurn]) -> list[RecordedTurn]:
    """The turns, of which the first of the Executor also looks for keys in every way that its tools give it."""
    pried = list(turns)
    at = next(number for number, turn in enumerate(pried) if "executor" in (turn.when or "") and turn.calls)
    looks = (
        ToolCall(id="look_1", name="Read", input={"file_path": "notes.txt"}),
        ToolCall(id="look_2", name="Grep", input={"pattern": "canary"}),
        ToolCall(id="look_3", name="Bash", input={"command": LOOKS}),
    )
    pried[at] = replace(pried[at], content=(*looks, *pried[at].content))
    return pried


class Sitting:
    """A project with a key in a file of it, worked on by runs whose environment holds another one."""

    def __init__(self, folder: Path, home: Path, *, name: str) -> None:
        self.folder = folder
        self.home = home
        self.name = name
        self.told = ""
        self.asked = ""
        (folder / "notes.txt").write_text(f"the key: {FILES_KEY}\n", encoding="ascii")
        git(folder, "add", "notes.txt")
        git(folder, "commit", "--quiet", "-m", "notes")
        yes = Permission(
            root=folder,
            approvals=Approvals(folder, environment=environment(home)),
            ask=lambda _: CommandAnswer(verdict="always"),
            report=self.fail,
        )
        assert yes.check_command(LOOKS) is None

    def fail(self, text: str) -> None:
        """What was allowed could not be kept."""
        pytest.fail(text)

    def run(self, *faults: Fault | None, kill_at: bytes = b"", **variables: str) -> int:
        """The exit code of ``cdd exec`` with the real client, killed once a line of its output holds ``kill_at``."""
        turns = prying(recorded.load_recording(EXAMPLES / self.name / "recording.yaml"))
        recording = self.home / "recording.yaml"
        with MessagesServer(turns, faults=faults) as server:
            given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": USERS_KEY, "TMPDIR": str(self.home)}
            with subprocess.Popen(
                command("--model", "m", "--record", str(recording), "--yes", "--json", "exec", self.name),
                cwd=self.folder,
                env=environment(self.home, **given | variables),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    self.told += line.decode()
                    if kill_at and kill_at in line:
                        process.kill()
            self.asked += json.dumps([request.body for request in server.requests])
            for request in server.requests:
                assert request.headers.pop("authorization") == f"Bearer {USERS_KEY}"
                self.asked += json.dumps(request.headers)
        return process.returncode

    def kept(self) -> Iterator[tuple[str, bytes]]:
        """Everything that is left, with where it is: files, and what git holds, unpacked."""
        for top in (self.folder, self.home):
            for path in top.rglob("*"):
                # The committed file is in the run tree, too.
                if path.is_file() and not path.is_symlink() and path.name != "notes.txt":
                    yield str(path), path.read_bytes()
        blob = git(self.folder, "rev-parse", "HEAD:notes.txt")
        listed = git(self.folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
        for line in listed.splitlines():
            name, kind = line.split()
            if name != blob:
                done = subprocess.run(["git", "cat-file", kind, name], cwd=self.folder, capture_output=True, check=True)
                yield f"{kind} {name}", done.stdout
        yield "output", self.told.encode()
        yield "requests", self.asked.encode()


def _crashing(folder: Path) -> str:
    """A search path on which the program fails once it has begun, with its whole environment in the message."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\nimport cdd_agent.work.journal\n\n\ndef broken(*_, **__):\n    held = dict(os.environ)\n"
        "    raise ZeroDivisionError(str(held))\n\n\ncdd_agent.work.journal.Journal.write = broken\n",
        encoding="ascii",
    )
    return os.pathsep.join([str(folder), str(ROOT)])


@SHORT
@pytest.mark.slow
def test_no_key_is_left_anywhere_by_a_run_that_fails_is_killed_crashes_and_goes_on(demo: Demo, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    sitting = Sitting(planned(demo, tmp_path / "project"), home, name=demo.name)
    said = f"no such key: {USERS_KEY} (Bearer {USERS_KEY})"
    assert sitting.run(Fault(status=401, message=said)) == 4
    assert (
        sitting.run(Fault(status=500, message=said), None, Fault(error_after=3, message=said), kill_at=b'"GateJudged"')
        == -9
    )
    assert sitting.run(PYTHONPATH=_crashing(tmp_path / "broken")) == 70
    assert sitting.run() == 0
    assert "no such key: (the key) (Bearer (the key))" in sitting.told
    assert "[masked: Anthropic key]" in sitting.asked
    assert any(path.name.startswith("cdd-crash-") for path in home.iterdir())
    assert (home / "recording.yaml").stat().st_size > 1000

    forms = [form.encode() for key in (USERS_KEY, FILES_KEY) for form in (key, key[:20])]
    forms += [base64.b64encode(form)[:24] for form in forms]
    places = list(sitting.kept())
    assert len(places) > 100
    assert [place for place, content in places if any(form in content for form in forms)] == []
    assert git(sitting.folder, "status", "--porcelain") == ""
