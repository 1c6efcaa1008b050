"""Whether the tests ran what was collected."""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Generator, Sequence

import pytest

from .code import Places, codes_of

if TYPE_CHECKING:
    from pluggy import Result


class Bodies:
    """What became of the functions of the tests of one process."""

    def __init__(self, places: Places) -> None:
        """Begin before collection."""
        self.running: pytest.Item | None = None
        self.raised: set[str] = set()
        """Node ids of tests that an exception has left, unless they were run again without one."""
        self.replaced: set[str] = set()
        self.not_called: set[str] = set()
        self._places = places
        self.collected: dict[int, CodeType | None] = {}

    def collect(self, items: Sequence[pytest.Item]) -> None:
        """Note the functions of the tests."""
        self.collected = {id(item): _code_of(item) for item in items}

    def begin(self, item: pytest.Item) -> None:
        """Note that a test is about to run."""
        self.settle()
        self.running = item

    def complete(self, item: pytest.Item) -> None:
        """Note that a test has run and no exception left it, and look at what ran."""
        if not item.__dict__.get("_excinfo"):  # where pytest keeps what a unittest method raised
            self.running = None
            if self.raised:
                self.raised.discard(item.nodeid)
        if _code_of(item) is not self.collected.get(id(item)):
            self._look_at(item)

    def settle(self) -> None:
        """Note that the last test, if it has not completed, was left by an exception."""
        if self.running is not None:
            self.raised.add(self.running.nodeid)
            self.running = None

    def _look_at(self, item: pytest.Item) -> None:
        function = item.__dict__.get("_obj")
        before = self.collected.get(id(item))
        if function is None or before is None:
            return
        codes = codes_of(function)
        around = codes[: codes.index(before)] if before in codes else codes  # a plugin may wrap what was collected
        places = [(code.co_name, self._places.of_user(code.co_filename)) for code in around]
        own = [f"{name} of {place}" for name, place in places if place is not None]
        if own or not codes or (around and not os.path.isabs(around[0].co_filename)):
            self.replaced.add(own[0] if own else "code made while the tests ran")


def _code_of(item: pytest.Item) -> CodeType | None:
    """Return the code of a test's function; None if it is something else that can be called."""
    target = item.__dict__.get("_obj")
    if type(target) is MethodType:
        target = target.__func__
    return target.__code__ if type(target) is FunctionType else None


class Completion:
    """The last hook to be called when a test runs: it is reached only if no exception left the test."""

    def __init__(self, bodies: Bodies) -> None:
        """Tell these."""
        self._bodies = bodies

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Note that the test has completed."""
        self._bodies.complete(item)


class BodyWatch:
    """Sees whether a test's function is called, where a hook of the project may answer in its place."""

    def __init__(self, bodies: Bodies) -> None:
        """Tell these."""
        self._bodies = bodies

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Result[object], None]:
        """Watch for the first call of the function, in this thread and those it starts."""
        code = self._bodies.collected.get(id(pyfuncitem))
        if code is None or sys.getprofile() is not None:
            yield
            return
        called = False

        def watch(frame: FrameType, *event: object) -> None:
            nonlocal called
            called = called or (event[0] == "call" and frame.f_code is code)
            if called:
                sys.setprofile(None)

        threading.setprofile(watch)
        sys.setprofile(watch)
        outcome = yield
        sys.setprofile(None)
        threading.setprofile(None)
        if not called and outcome.excinfo is None:
            self._bodies.not_called.add(pyfuncitem.nodeid)
