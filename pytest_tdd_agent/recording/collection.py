"""The hooks of the controlling process that note which tests there are to run, and what could not be collected."""

from __future__ import annotations

from hashlib import sha256
from typing import Sequence

import pytest

from .. import codec
from ..report import CollectError
from .spool import Spool
from .stream import Stream
from .witness import DESELECTED, Guard, failure_of


class Collected:
    """What was collected, and what of it has not ended."""

    def __init__(self, stream: Stream, *, spool: Spool, guard: Guard, is_each: bool) -> None:
        """Begin with nothing; ``is_each``: every worker of xdist runs every test."""
        self._is_each = is_each
        self._stream = stream
        self._spool = spool
        self._guard = guard
        self.errors: dict[str, CollectError] = {}
        """By node id."""
        self.collected = 0
        self.deselected = 0
        self.awaited: dict[str, int] = {}
        """Node id -> how many tests of it were collected and have not ended."""

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count the tests that are left out."""
        self.deselected += len(items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests that will run."""
        with self._guard:
            self._collected([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note the tests that will run; every worker collects the same."""
        with self._guard:
            if not self.collected:
                self._collected(ids)
            elif self._is_each:
                self._spool.share(ids)

    def _collected(self, ids: Sequence[str]) -> None:
        names = sorted(ids)
        self.awaited.update(dict.fromkeys(names, 1))
        self.collected = len(self.awaited)
        if self.collected != len(names):
            twins = [name for name, following in zip(names, names[1:]) if name == following]
            for name in twins:
                self.awaited[name] += 1
            self._spool.share(twins)
        digest = sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()
        self._stream.send("collected", count=len(names), sha256=digest, nodeids=names)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over how many tests an xdist worker left out; every worker has the same."""
        with self._guard:
            output: dict[str, object] = getattr(node, "workeroutput", {})
            self.deselected = max(self.deselected, int(str(output.get(DESELECTED, 0))))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected, once."""
        if report.failed and report.nodeid not in self.errors:
            with self._guard:
                found = failure_of(report, "collect")
                self.errors[report.nodeid] = CollectError(report.nodeid, found)
                self._stream.send("collect_error", nodeid=report.nodeid, failure=codec.failure_to_json(found))
