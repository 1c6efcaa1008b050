import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread

import httpcore2
import httpx2
import pytest

from cdd_agent.model.api.deadline import Deadline
from cdd_agent.model.api.endpoint import Endpoint
from cdd_agent.model.api.failure import Cause, TryFailed
from cdd_agent.model.api.patience import Patience
from cdd_agent.model.api.sdk import Connection
from cdd_agent.model.conversation import JSON
from cdd_agent.model.secret import Secret
from tests.fakes.messages_server import STREAM_HEAD, Fault, MessagesServer

TOTAL_S = 0.8
SOON_S = TOTAL_S + 5
"""What a busy machine may add; what the server sends would take longer."""
DRIP = tuple(part for _ in range(180) for part in (b"a", 0.05))


def failed(url: str, *, idle_s: float, said: str = "go") -> tuple[Cause, float]:
    """How a request to ``url`` failed, and after how many seconds."""
    body: dict[str, JSON] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": said}]}
    patience = Patience(idle_s=idle_s, total_s=TOTAL_S)
    with closing(Connection(Endpoint(url=url), key=Secret("a-key-of-nobody"), patience=patience)) as connection:
        began_s = time.monotonic()
        with pytest.raises(TryFailed) as caught:
            list(connection.answer(body, now="2026-01-31T12:00:00Z"))
        return caught.value.failure.cause, time.monotonic() - began_s


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param((b"HTTP/1.1 200 OK\r\nx-a: ", *DRIP), id="headers"),
        pytest.param(DRIP, id="status line"),
        pytest.param((STREAM_HEAD, *DRIP), id="answer"),
        pytest.param((9.0,), id="nothing"),
    ],
)
def test_a_server_that_is_never_silent_for_long_has_no_more_than_the_total(sent: tuple[bytes | float, ...]) -> None:
    with MessagesServer(faults=[Fault(raw=sent)]) as server:
        cause, took_s = failed(server.base_url, idle_s=0.5 if sent != (9.0,) else 60)
    assert cause == "too_slow"
    assert TOTAL_S <= took_s < SOON_S


def test_of_an_error_that_drips_the_status_is_told_in_time() -> None:
    with MessagesServer(faults=[Fault(raw=(b"HTTP/1.1 500 No\r\nconnection: close\r\n\r\n", *DRIP))]) as server:
        cause, took_s = failed(server.base_url, idle_s=0.5)
    assert cause == "status"
    assert took_s < SOON_S


def test_silence_within_the_total_is_a_failure_that_may_pass() -> None:
    with MessagesServer(faults=[Fault(raw=(9.0,))]) as server:
        cause, took_s = failed(server.base_url, idle_s=0.3)
    assert cause == "timeout"
    assert took_s < TOTAL_S


@contextmanager
def listening_slowly() -> Iterator[str]:
    """A server that reads a little now and then, and says nothing."""
    is_over = Event()

    def read() -> None:
        with listener.accept()[0] as accepted:
            while not is_over.wait(0.05):
                accepted.recv(4096)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = Thread(target=read)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


def test_a_server_that_takes_the_request_byte_by_byte_has_no_more_than_the_total() -> None:
    with listening_slowly() as url:
        cause, took_s = failed(url, idle_s=0.7, said="x" * 20_000_000)
    assert cause == "too_slow"
    assert took_s < SOON_S


@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:9"])
def test_no_connection_is_begun_once_the_time_is_over(proxy: str | None) -> None:
    with httpx2.HTTPTransport(proxy=proxy, trust_env=False) as transport:
        deadline = Deadline.put_under(transport)
        deadline.start(0)
        assert deadline.is_over
        with pytest.raises(httpx2.TimeoutException):
            transport.handle_request(httpx2.Request("GET", "http://127.0.0.1:9"))


def test_what_is_waited_for_is_the_usual_time_or_what_is_left() -> None:
    deadline = Deadline(httpcore2.SyncBackend())
    assert deadline.wait_s(7) == 7
    deadline.start(5)
    assert deadline.wait_s(3) == 3
    assert 4 < deadline.wait_s(60) <= 5
    assert 4 < deadline.wait_s(None) <= 5
