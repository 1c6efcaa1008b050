"""The same recordings, played by a loopback server to the real SDK over streamed HTTP."""

import json
from pathlib import Path

from cdd_agent.model import recorded
from tests.fakes.messages_server import MessagesServer
from tests.stories.conftest import EXAMPLES, Cdd, Demo

KEY = "sk-ant-canary-0123456789"


def judged(folder: Path, name: str) -> list[tuple[str, str, str, list[str]]]:
    steps = json.loads((folder / "tickets" / name / "execution-state.json").read_text())["step_executions"]
    return [
        (number, attempt["phase"], attempt["verdict"], attempt["reasons"])
        for number, step in steps.items()
        for attempt in step["attempts"]
    ]


def test_the_real_client_comes_to_the_same_commits(demo: Demo, cdd: Cdd, tmp_path: Path) -> None:
    folder = tmp_path / demo.name
    turns = recorded.load(EXAMPLES / demo.name / "recording.yaml")
    with MessagesServer(turns) as server:
        arguments = ("--model", "claude-loopback", "demo", demo.name, "--keep", str(folder))
        result = cdd(*arguments, ANTHROPIC_BASE_URL=server.base_url, ANTHROPIC_API_KEY=KEY)
    assert result.returncode == 0, result.stdout + result.stderr
    live = Demo(demo.name, folder, result=result)
    assert live.tree == demo.tree
    assert live.subjects == demo.subjects
    assert judged(folder, demo.name) == judged(demo.folder, demo.name)
    assert server.playback.left == ()
    assert all(request.body["stream"] is True for request in server.requests)

    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert KEY.encode() not in written
    assert KEY not in result.stdout + result.stderr
