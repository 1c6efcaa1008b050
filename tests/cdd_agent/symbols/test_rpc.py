import gc
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Access, Command
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.sandbox.warden.supervision import is_alive
from cdd_agent.symbols.rpc import LengthFraming, LineFraming, SandboxedServer, ServerConnection, ServerGone, Talk
from cdd_agent.symbols.symbol import SymbolServerError
from tests.fakes.cases import soak_after
from tests.fakes.language_server import count_starts, write_server
from tests.fakes.program import ROOT

SOON_S = 15.0
ECHO = """
while True:
    message = read()
    if "id" in message and "method" in message:
        send(id=message["id"], result=message["params"])
"""


def make_server(folder: Path, body: str, *, speaks: str = "lsp", answer_s: float = SOON_S) -> SandboxedServer:
    argv = write_server(folder, body, speaks=speaks)
    return SandboxedServer(
        "fake",
        sandbox=PlainSandbox(),
        make_command=lambda: Command(argv=argv, cwd=folder, access=Access(), timeout_s=60),
        greet=lambda connection, deadline: None,
        talk=Talk(
            framing=LengthFraming() if speaks == "lsp" else LineFraming(),
            answers={"client/registerCapability": None},
            answer_s=answer_s,
        ),
    )


def ask(server: SandboxedServer, value: object = 1, *, method: str = "echo") -> object:
    def question(connection: ServerConnection, deadline: float) -> object:
        answer: object = json.loads(bytes(connection.request(method, value, deadline=deadline)))
        return answer

    return server.ask(question)


@pytest.mark.parametrize("speaks", ["lsp", "mcp"])
def test_answers_of_any_size_come_in_the_order_of_the_questions(tmp_path: Path, *, speaks: str) -> None:
    server = make_server(tmp_path, ECHO, speaks=speaks)
    values = [1, {"text": "two\nlines \U0001f600"}, ["x" * 1_000_000] * 3, None]
    assert [ask(server, value) for value in values] == values
    assert count_starts(tmp_path) == 1
    server.close()
    assert server.connection is None


STRANGE = """
message = read()
send(method="window/logMessage", params={"message": "x" * 100_000})
send(id=message["id"] + 7, result="an answer to nobody")
send(id=str(message["id"]), result="a text is no number")
send(id=51, method="client/registerCapability", params={})
send(id="52", method="workspace/applyEdit", params={})
answers = read(), read()
send(id=message["id"], result=answers)
read()
"""


@pytest.mark.parametrize("speaks", ["lsp", "mcp"])
def test_other_messages_are_skipped_and_requests_of_the_server_are_answered(tmp_path: Path, *, speaks: str) -> None:
    server = make_server(tmp_path, STRANGE, speaks=speaks)
    registered, refused = ask(server)  # type: ignore[misc]
    server.close()
    assert registered == {"jsonrpc": "2.0", "id": 51, "result": None}  # type: ignore[has-type]
    assert refused == {"jsonrpc": "2.0", "id": "52", "error": {"code": -32601, "message": "Method not found"}}  # type: ignore[has-type]


JUNK = """
message = read()
for line in (b"", b"Downloading ...", b"\\x1b[2J\\xff\\xfe", b"[" * 100_000, b"{}", b"null", b'{"id": 1.5}', b"[1]"):
    write(line + b"\\n")
send(id=message["id"], result="well")
read()
"""


def test_lines_that_are_no_messages_are_skipped(tmp_path: Path) -> None:
    server = make_server(tmp_path, JUNK, speaks="mcp")
    assert ask(server) == "well"
    server.close()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"Content-Length: 99999999999\r\n\r\n", "sent a message of 99,999,999,999 bytes"),
        (b"Content-Length: -5\r\n\r\n{}", "sent a header without the length"),
        (b"Content-Type: text\r\n\r\n{}", "sent a header without the length"),
        (b"x" * 5_000, "sent a header without an end"),
    ],
)
def test_what_cannot_be_read_ends_the_server(tmp_path: Path, *, sent: bytes, why: str) -> None:
    server = make_server(tmp_path, f"read(); write({sent!r}); read(); time.sleep(60)")
    with pytest.raises(ServerGone, match=why):
        ask(server)
    server.close()


def test_a_server_that_dies_is_started_once_more_and_asked_again(tmp_path: Path) -> None:
    server = make_server(tmp_path, f"if starts == 1:\n    read()\n    sys.exit('broken')\n{ECHO}")
    assert ask(server, "again") == "again"
    assert count_starts(tmp_path) == 2
    server.close()
    with pytest.raises(ServerGone, match="fake has ended 2 times"):
        ask(server)


def test_why_a_server_died_is_reported_without_escape_sequences(tmp_path: Path) -> None:
    server = make_server(tmp_path, "read(); sys.exit('\\x1b[31mno \\u202e room')")
    with pytest.raises(ServerGone, match=r"^fake has ended: no <U\+202E> room\.$"):
        ask(server)
    assert count_starts(tmp_path) == 2


@soak_after(
    3,
    "body",
    [
        "read(); time.sleep(60)",
        "while True: send(method='log', params=1)",
        "while True: send(id=1000, method='client/registerCapability')",
        "read(); write(b'Content-Length: 10\\r\\n\\r\\n{'); time.sleep(60)",
        "os.close(0); time.sleep(60)",
    ],
    ids=["silent", "talks", "deaf", "asks", "stops"],
)
def test_a_server_that_does_not_answer_in_time_is_ended_and_asked_no_more(tmp_path: Path, *, body: str) -> None:
    server = make_server(tmp_path, body, answer_s=0.3)
    began = time.monotonic()
    with pytest.raises(SymbolServerError, match=r"fake (did not answer echo in time|does not read what it is sent)"):
        ask(server, "x" * 3_000_000)
    assert time.monotonic() - began < SOON_S
    assert server.connection is None


def test_an_error_is_an_answer(tmp_path: Path) -> None:
    body = "send(id=read()['id'], error={'code': 1, 'message': 'no\\x1b[2J such\\nthing'})\n"
    server = make_server(tmp_path, body + ECHO)
    with pytest.raises(SymbolServerError, match=r"^fake refused echo: no such thing\.$"):
        ask(server)
    assert ask(server, 2) == 2
    assert count_starts(tmp_path) == 1
    server.close()


def test_a_program_that_cannot_be_started_is_an_error_of_the_engine(tmp_path: Path) -> None:
    server = SandboxedServer(
        "fake",
        sandbox=PlainSandbox(),
        make_command=lambda: Command(argv=("/nowhere/ty",), cwd=tmp_path, access=Access(), timeout_s=9),
        greet=lambda connection, deadline: connection.notify("initialized", {}),
        talk=Talk(framing=LengthFraming()),
    )
    with pytest.raises(SymbolServerError, match="No such program"):
        ask(server)


PROGRAM = """
import sys, time
from pathlib import Path
from tests.cdd_agent.symbols.test_rpc import STUBBORN, ask, make_server
print(ask(make_server(Path(sys.argv[1]), STUBBORN)), flush=True)
time.sleep(60)
"""
STUBBORN = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
send(id=read()["id"], result=[os.getpid(), child.pid])
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_server_is_left_when_cdd_is_gone(tmp_path: Path, *, how: signal.Signals) -> None:
    cdd = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert cdd.stdout is not None
    with cdd.stdout as out:
        pids = json.loads(out.readline())
    assert [is_alive(pid) for pid in pids] == [True, True]
    cdd.send_signal(how)
    cdd.wait()
    deadline = time.monotonic() + SOON_S
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_a_server_ends_when_nobody_uses_it_any_more(tmp_path: Path) -> None:
    pids = ask(make_server(tmp_path, STUBBORN))
    assert isinstance(pids, list)
    gc.collect()
    deadline = time.monotonic() + SOON_S
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [is_alive(pid) for pid in pids] == [False, False]
