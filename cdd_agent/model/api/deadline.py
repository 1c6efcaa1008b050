"""The moment by which an answer must be whole, kept at each single wait on the network.

The time-outs of the HTTP library are those of one read or one write: a server that sends or takes a byte now and
then, of its headers as of its answer, is never too slow for them.
"""

import math
import ssl
import time
from typing import Any

import httpcore2
import httpx2

_PIECE_BYTES = 4096
"""Written at once: what a socket that can be written to takes without another wait."""


class Deadline(httpcore2.NetworkBackend):
    """Connects as the library does; no wait on one of these connections goes on when the time is over.

    What it cannot cut short is the look-up of a name, and the packets of one record within two layers of encryption,
    as to a server behind a proxy at ``https://``.
    """

    def __init__(self, inner: httpcore2.NetworkBackend) -> None:
        """Over ``inner``; there is time without end until ``start``."""
        self._inner = inner
        self._ends_s = math.inf

    @classmethod
    def put_under(cls, transport: httpx2.HTTPTransport) -> "Deadline":
        """The deadline of all that ``transport`` does from now on; ``AttributeError`` if it cannot be given one."""
        pool = transport._pool  # the library takes a backend for a pool, and hands out no transport over such a pool
        deadline = cls(pool._network_backend)
        pool._network_backend = deadline
        return deadline

    @property
    def is_over(self) -> bool:
        """Whether nothing is waited for any more."""
        return time.monotonic() >= self._ends_s

    def start(self, total_s: float) -> None:
        """From now on there are ``total_s`` seconds."""
        self._ends_s = time.monotonic() + total_s

    def wait_s(self, usual_s: float | None) -> float:
        """How long to wait instead of ``usual_s``; raises the library's time-out if the time is over."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise httpcore2.ReadTimeout("the time of the answer is over")
        return left_s if usual_s is None else min(usual_s, left_s)

    def connect_tcp(self, host: str, port: int, *_: Any, **named: Any) -> httpcore2.NetworkStream:
        """A connection under this deadline; the library names all else that it says."""
        named["timeout"] = self.wait_s(named.get("timeout"))
        return _Timed(self._inner.connect_tcp(host, port, **named), deadline=self)


class _Timed(httpcore2.NetworkStream):
    """A connection whose every wait ends with the deadline."""

    def __init__(self, inner: httpcore2.NetworkStream, *, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.wait_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], self._deadline.wait_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, *timeout: Any, **named: Any
    ) -> httpcore2.NetworkStream:
        usual_s = timeout[0] if timeout else named.get("timeout")
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.wait_s(usual_s))
        return _Timed(inner, deadline=self._deadline)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)
