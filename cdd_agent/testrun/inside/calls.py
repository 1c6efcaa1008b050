"""Records calls of functions while tests run, varies their arguments, and answers the calls: a pytest plugin.

``evidence/differential.py`` writes a copy of it and of ``values``, which are Python 3.8, into a clean copy, and beside
them a file with the task. The first run records calls and answers them; a run of other code answers the same calls.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import io
import json
import linecache
import os
import re
import signal
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

import pytest

from .values import Encoder, build, describe, find, mix, show, vary_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import CodeType, FrameType
    from typing import Any

    from .values import Call, Node, Value

_MOST_TEXT = 2000
_MOST_TESTS = 3
_MOST_SEEN = 400
_MOST_CALLS = 40
_MOST_STEPS = 20
_MOST_BUILT = 10_000
_CALL_S = 1.0
MISSING = "missing"
"""The answer if the code has no such function."""
UNFIT = "unfit: "
"""Begins the answer if the function does not expect such arguments, or they cannot be built."""


class _TimeOver(BaseException):
    """A call takes too long."""


def _shorten(text: str) -> str:
    text = re.sub(r"\b0x[0-9a-fA-F]{6,}", "0x...", text).replace(os.getcwd(), ".")
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... {hashlib.sha256(text.encode()).hexdigest()}"


def _find_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function as its definition takes its arguments: a method with ``self``. A package may export it."""
    try:
        owner, _, last = name.rpartition(".")
        found = inspect.getattr_static(find(module, owner) if owner else importlib.import_module(module), last)
    except (ImportError, AttributeError):
        if "." not in module:
            raise
        return _find_function(module.rpartition(".")[0], name)
    if isinstance(found, property):
        return lambda *args: (found.fset if len(args) > 1 else found.fget)(*args)
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    function: Callable[..., Any] = found.func if isinstance(found, functools.cached_property) else found
    return function


def answer(call: Call) -> str:
    """Make a call, and return its outcome as text: result, printed text and changed arguments, or exception."""
    try:
        function = _find_function(call["module"], call["name"])
    except BaseException:  # noqa: BLE001 (the import runs code of the project)
        return MISSING
    printed, stage = io.StringIO(), ""
    try:
        with _limit_time(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                before = _format_arguments(*_build_arguments(call))
                args, named = _build_arguments(call)  # again: iterators have been read
            except (_TimeOver, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 (constructors of the project)
                return f"{UNFIT}{type(error).__name__}"
            result = function(*args, **named)
            stage = "returns a value that, when it is read, "
            text = f"returns {describe(result)}"
            after = _format_arguments(args, named)
            text += f" and changes its arguments to ({after})" if after != before else ""
            text += _find_sharing(result, function, call=call)
    except _TimeOver:
        return f"does not end within {_CALL_S:g} s"
    except BaseException as error:  # noqa: BLE001 (an exception is an outcome)
        text = _describe_error(error, is_recorded=call["is_recorded"])
        text = text if text.startswith(UNFIT) else f"{stage}{text}"
    return _shorten(f"{text} and prints {printed.getvalue()!r}" if printed.getvalue() else text)


def _find_sharing(result: Value, function: Callable[..., Any], *, call: Call) -> str:
    """Return what another call returns after the result was emptied, if that differs: calls may share a result."""
    if type(result) not in (list, dict, set):
        return ""
    before, saved = describe(result), result.copy()
    result.clear()
    args, named = _build_arguments(call)
    again = describe(function(*args, **named))
    result.extend(saved) if isinstance(result, list) else result.update(saved)
    return f" and returns {again} after a caller has emptied it" if again != before else ""


def _build_arguments(call: Call) -> tuple[list[Value], dict[str, Value]]:
    return [build(node) for node in call["args"]], {name: build(node) for name, node in call["named"].items()}


def _format_arguments(args: Sequence[object], named: dict[str, object]) -> str:
    return ", ".join([*map(describe, args), *(f"{name}={describe(value)}" for name, value in named.items())])


def _describe_error(error: BaseException, *, is_recorded: bool) -> str:
    """Return the type and, if a ``raise`` of the project states it, the message.

    An operation on a value of the wrong kind fails in another way after any change of the code.
    """
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    source = linecache.getline(frame.f_code.co_filename, line)
    if _is_inside(frame.f_code.co_filename) and source.lstrip().startswith("raise"):
        return f"raises {type(error).__name__}: {error}"
    is_unfit = isinstance(error, (TypeError, AttributeError, NameError, RecursionError, MemoryError))
    # Which of these a system call raises depends on the function that makes it.
    is_any = isinstance(error, OSError) and not is_recorded
    return f"{UNFIT if is_unfit else 'raises '}{'OSError' if is_any else type(error).__name__}"


@contextlib.contextmanager
def _limit_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _TimeOver

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _CALL_S, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_ROOT = os.getcwd() + os.sep
_NONE, _OTHER = -2, -1
"""Kinds of code besides those of wanted functions, which have an index."""


def _is_inside(path: str) -> bool:
    return path.startswith(_ROOT) and "site-packages" not in path


class Recorder:
    """A profiler that records the calls of wanted functions, and how the objects in their arguments were made."""

    def __init__(self, task: dict[str, Any]) -> None:
        """``task``: ``functions``: path, line, name, whether it changed and whether calls by the product count;
        ``constants`` of their code; ``product``: its paths.
        """
        self.functions, self.constants = task["functions"], task["constants"]
        self.left_out = 0
        self.test = ""
        self.tests: list[list[str]] = [[] for _ in self.functions]
        self.calls: list[dict[str, Call]] = [{} for _ in self.functions]
        self._wanted = {(_ROOT + each[0], each[1]): index for index, each in enumerate(self.functions)}
        self._product = {_ROOT + path for path in task["product"]}
        self._kinds: dict[int, tuple[CodeType, int]] = {}
        self._built: dict[int, tuple[object, Node]] = {}
        self._running: dict[int, tuple[CodeType, Call]] = {}

    def watch(self, frame: FrameType, *event: object) -> None:
        """Handle an event of ``sys.setprofile``."""
        if event[0] != "call":
            return
        code = frame.f_code
        known = self._kinds.get(id(code))
        if known is None:  # the code is stored too, so that no other gets its id
            path = os.path.abspath(code.co_filename)
            kind = self._wanted.get((path, code.co_firstlineno), _OTHER if code.co_varnames[:1] == ("self",) else _NONE)
            known = self._kinds[id(code)] = (code, kind if _is_inside(path) else _NONE)
        if known[1] != _NONE:
            try:
                self._record(frame, known[1])
            except BaseException:  # noqa: BLE001 (any method of a value may run here, and raise anything)
                self.left_out += known[1] != _OTHER

    def _record(self, frame: FrameType, index: int) -> None:
        by_test = self._is_called_by_test(frame)
        name = self.functions[index][2] if index != _OTHER else frame.f_code.co_name
        if index != _OTHER and self.functions[index][3]:
            if self.test not in self.tests[index] and len(self.tests[index]) < _MOST_TESTS:
                self.tests[index].append(self.test)
            self._mark_callers(frame)
        if index != _OTHER and (len(self.calls[index]) >= _MOST_SEEN or not (by_test or self.functions[index][4])):
            return
        args, named = _read_arguments(frame)
        this, encoder = args[0] if args else None, Encoder(self._built)
        found, node = self._built.get(id(this), (None, None))
        is_start = frame.f_code.co_name == "__init__" and found is not this
        if is_start and len(self._built) < _MOST_BUILT:
            self._built[id(this)] = (this, encoder.encode_new(type(this), args[1:], named=named))
        if index != _OTHER:
            if is_start:
                name, args = name.rpartition(".")[0], args[1:]
            module = frame.f_globals["__name__"]
            _drop_defaults(_find_function(module, name), args, named=named)
            values = {key: encoder.encode(value) for key, value in named.items()}
            call = {"function": index, "module": module, "name": name, "by_test": by_test, "is_recorded": True}
            call.update(is_start=is_start, args=[encoder.encode(value) for value in args], named=values)
            text = json.dumps(call)  # at once: more steps of its objects follow
            call = self.calls[index].setdefault(text, {**json.loads(text), "is_relevant": self.functions[index][3]})
            self._running[id(frame)] = (frame.f_code, call)
        if by_test and node and found is this and len(node[4]) < _MOST_STEPS:
            values = {key: encoder.encode(value) for key, value in named.items()}
            node[4].append([frame.f_code.co_name, [encoder.encode(value) for value in args[1:]], values])

    def _mark_callers(self, frame: FrameType) -> None:
        caller = frame.f_back
        while caller is not None:
            code, call = self._running.get(id(caller), (None, {}))
            if code is caller.f_code:
                call["is_relevant"] = True
            caller = caller.f_back

    def select_calls(self) -> list[list[Call]]:
        """Return the calls of each function to answer: those in which changed code ran."""
        return [[call for call in calls.values() if call["is_relevant"]][:_MOST_CALLS] for calls in self.calls]

    def has_enough(self, names: set[str]) -> bool:
        """Return whether no more calls are needed of the functions that a test names."""
        own = [self.calls[index] for index, each in enumerate(self.functions) if _last(each) in names]
        return bool(own) and all(sum(e["is_relevant"] for e in calls.values()) >= _MOST_CALLS for calls in own)

    def _is_called_by_test(self, frame: FrameType) -> bool:
        caller = frame.f_back
        while caller is not None and not _is_inside(caller.f_code.co_filename):
            caller = caller.f_back
        return caller is None or caller.f_code.co_filename not in self._product


def _last(function: Sequence[Any]) -> str:
    name: str = function[2]
    return name.rpartition(".")[2]


def _read_arguments(frame: FrameType) -> tuple[list[Any], dict[str, Any]]:
    names, rest, others, values = inspect.getargvalues(frame)
    count = frame.f_code.co_argcount
    args = [*(values[name] for name in names[:count]), *(values[rest] if rest else ())]
    return args, {**{name: values[name] for name in names[count:]}, **(values[others] if others else {})}


def _drop_defaults(function: Callable[..., Any], args: list[Any], *, named: dict[str, Any]) -> None:
    """Remove arguments that are defaults, because the other code may have other defaults."""
    parameters = list(inspect.signature(function).parameters.values())
    while args and len(args) <= len(parameters) and args[-1] is parameters[len(args) - 1].default:
        args.pop()
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and named.get(each.name, each.empty) is each.default:
            del named[each.name]


def _read_names(function: object) -> set[str]:
    return set(getattr(getattr(function, "__code__", None), "co_names", ()))


class CallSession:
    """The hooks of a run that records calls and answers them, or only answers those of the task."""

    def __init__(self, task: dict[str, Any], answers: str) -> None:
        """``task``: as for ``Recorder``, with the ``seconds`` to record and to answer, or the ``calls`` to answer.

        The file ``answers`` gets a line with the calls, for each a line with its index, its answer and its text, and
        a last line with -1.
        """
        self.task, self.answers = task, answers
        self.recorder = None if "calls" in task else Recorder(task)
        self.end = time.monotonic() + task["seconds"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool | None:
        """Run no test if the calls are known: the test files are imported all the same."""
        return True if self.recorder is None else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the tests first that name a function, then those whose class does."""
        items.sort(key=self._rank)

    def _rank(self, item: pytest.Item) -> int:
        names = {_last(function) for function in self.task.get("functions", ())}
        if not names.isdisjoint(_read_names(getattr(item, "obj", None))):
            return 0
        methods = vars(getattr(item, "cls", None) or object).values()
        return 2 if all(names.isdisjoint(_read_names(each)) for each in methods) else 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test, such as one of many cases, if enough calls of the functions that it names are recorded."""
        if self.recorder is not None and self.recorder.has_enough(_read_names(getattr(item, "obj", None))):
            pytest.skip("enough calls are recorded")

    # Innermost, because each call of pytest's own code would cost time too.
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_fixture_setup(self) -> Generator[None, None, None]:
        """Record calls of a fixture."""
        yield from self._record()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_pyfunc_call(self) -> Generator[None, None, None]:
        """Record calls of a test function."""
        yield from self._record()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Record calls of a test of another kind, such as one of ``unittest``."""
        if isinstance(item, pytest.Function) and type(item).runtest is pytest.Function.runtest:
            yield
        else:
            yield from self._record()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """Record calls of the end of fixtures."""
        yield from self._record()

    def _record(self) -> Generator[None, None, None]:
        assert self.recorder is not None
        before = sys.getprofile()  # a test may ask for a fixture
        threading.setprofile(self.recorder.watch)
        sys.setprofile(self.recorder.watch)
        yield
        sys.setprofile(before)
        threading.setprofile(before)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        """Name the running test, and stop when enough calls are recorded."""
        assert self.recorder is not None
        self.recorder.test = item.nodeid
        yield
        has_run = all(self.recorder.tests[index] for index, each in enumerate(self.recorder.functions) if each[3])
        if time.monotonic() > self.end or (has_run and self._rank(item) == 2):
            item.session.shouldstop = "enough calls are recorded"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Answer the calls, and write down each answer at once, because a call may end the process."""
        os.chdir(_ROOT)
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            del os.environ[name]  # code may behave in another way under test
        found = self.task if self.recorder is None else self._vary()
        end = time.monotonic() + self.task["seconds"] / 2
        with open(self.answers, "w", encoding="ascii", buffering=1) as stream:
            stream.write(json.dumps(found) + "\n")
            for index, call in enumerate(found["calls"]):
                if time.monotonic() > end:
                    break
                text = answer(call)
                stream.write(json.dumps([index, text, _shorten(show(call))]) + "\n")
            stream.write(json.dumps([-1, "", ""]) + "\n")

    def _vary(self) -> dict[str, Any]:
        assert self.recorder is not None
        recorded = self.recorder.select_calls()
        varied = [vary_calls(calls, constants=self.recorder.constants) for calls in recorded]
        calls = [*mix(recorded), *mix(varied)]
        found = {"calls": calls, "tests": self.recorder.tests, "left_out": self.recorder.left_out}
        return {**found, "seconds": self.task["seconds"]}


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run in this process, without the workers of xdist."""
    for name, value in (("numprocesses", None), ("dist", "no"), ("tx", [])):
        if hasattr(config.option, name):
            setattr(config.option, name, value)


def pytest_configure(config: pytest.Config) -> None:
    """Read the task, and register the hooks."""
    stem = os.path.splitext(__file__)[0]
    with open(f"{stem}.json", encoding="ascii") as stream:
        config.pluginmanager.register(CallSession(json.load(stream), f"{stem}.jsonl"))
