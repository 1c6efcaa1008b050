"""Records calls of functions while tests run, varies their arguments, and answers the calls: a pytest plugin.

``evidence/differential.py`` and ``evidence/outside.py`` write a copy of it and of the modules that it needs, which are
Python 3.8, into a clean copy, and beside them a file with the task. The first run records calls and answers them; a run
of other code answers the same calls.
"""

from __future__ import annotations

import inspect
import json
import os
import selectors
import signal
import sys
import tempfile
import threading
import time
import warnings
from types import FunctionType
from typing import TYPE_CHECKING

import pytest

from .answers import ROOT, answer, find_function, invoke, is_inside, shorten
from .effects import answer_with_effects
from .guesses import Guesser
from .returned import follow_calls
from .values import (
    Encoder,
    computed,
    encode_bytes,
    list_texts,
    mix,
    override_methods,
    show,
    use_earlier,
    vary_calls,
    vary_functions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import CodeType, FrameType
    from typing import Any

    from .values import Answer, Call, Node

_MOST_TESTS = 3
_TEST_S = 2.0
"""For one test, so that a loop in it leaves time for the others."""
_MOST_SEEN = 400
_MOST_LOOKS = 2_000
"""Calls of one function that are examined; a busy function repeats most of them."""
_MOST_CALLS = 40
_MOST_IN_TESTS = 10
_MOST_FURTHER = 100
_MOST_STEPS = 20
_MOST_BYTES = 20_000
"""Of a file that an argument names."""
_MOST_GUESSED = 20
"""Functions without calls."""
_GUESSES_S = 2.0
"""Processor time for the answers to guesses."""
_MOST_BUILT = 10_000
_OF_TESTS = ("PYTEST_", "PYTHON", "CDD_", "PATH")
"""Beginnings of the names of variables that only a test run has, and of those that programs need."""
_INNER, _NONE, _OTHER = -3, -2, -1
"""Kinds of code besides those of wanted functions, which have an index: of a function in one of them, and others."""
_MOST_INNER = 6
"""Calls of functions that are defined in another one, at each depth."""


class Patience:
    """A limit of processor time, so that a busy machine changes no result, and of three times as much time in all."""

    def __init__(self, seconds: float) -> None:
        """Begin now."""
        self._cpu, self._end = time.process_time() + seconds, time.monotonic() + 3 * seconds

    @property
    def is_over(self) -> bool:
        """Whether one of the two is used up."""
        return time.process_time() > self._cpu or time.monotonic() > self._end


class CallRecorder:
    """A profiler that records the calls of wanted functions, and how the objects in their arguments were made."""

    def __init__(self, task: dict[str, Any]) -> None:
        """``task``: ``functions``: path, line, name, whether it changed, whether calls by the product count, whether
        calls may be guessed, and whether the product names it; ``inner``: path and line of functions in one of these,
        its index, and how deep they are in it; ``constants`` of their code; ``product``: its paths.
        """
        self.functions, self.constants = task["functions"], task["constants"]
        self.patience, self.patience_of_test = Patience(task["seconds"]), Patience(_TEST_S)
        self.left_out = 0
        self.test = ""
        self.tests: list[list[str]] = [[] for _ in self.functions]
        self.calls: list[dict[str, Call]] = [{} for _ in self.functions]
        self._looks = [0 for _ in self.functions]
        self._wanted = {(os.path.join(ROOT, each[0]), each[1]): index for index, each in enumerate(self.functions)}
        self.inner: list[dict[int, dict[str, Any]]] = [{} for _ in self.functions]
        """Depth -> arguments and line of the functions in each function that tests call."""
        self.running_inside: set[int] = set()
        """Functions whose inner functions run changed code, or are changed."""
        self._inner = {(os.path.join(ROOT, path), line): (index, depth) for path, line, index, depth in task["inner"]}
        self._product = {os.path.join(ROOT, path) for path in task["product"]}
        self._kinds: dict[int, tuple[CodeType, int]] = {}
        self._built: dict[int, tuple[object, Node]] = {}
        self._running: dict[int, tuple[CodeType, Call]] = {}
        self._marked = 0
        """The id of the frame whose calls were marked last."""

    def watch(self, frame: FrameType, *event: object) -> None:
        """Handle an event of ``sys.setprofile``."""
        if event[0] != "call":
            return
        if self.patience_of_test.is_over or self.patience.is_over:  # under a profiler, one test could take minutes
            sys.setprofile(None)
            return
        code = frame.f_code
        known = self._kinds.get(id(code))
        if known is None:  # the code is stored too, so that no other gets its id
            path = os.path.abspath(code.co_filename)
            other = _OTHER if code.co_varnames[:1] == ("self",) else _NONE
            other = _INNER if (path, code.co_firstlineno) in self._inner else other
            kind = self._wanted.get((path, code.co_firstlineno), other)
            known = self._kinds[id(code)] = (code, kind if is_inside(path) else _NONE)
        if known[1] != _NONE:
            try:
                self._record(frame, known[1]) if known[1] != _INNER else self._record_inner(frame)
            except BaseException:  # noqa: BLE001 (any method of a value may run here, and raise anything)
                self.left_out += known[1] >= 0

    def _record_inner(self, frame: FrameType) -> None:
        """Record the arguments of a function that is defined in a wanted one."""
        index, depth = self._find_inner(frame.f_code)
        found = self.inner[index].setdefault(depth, {})
        if len(found) < _MOST_INNER and self._is_called_by_test(frame):
            args, named = _read_arguments(frame)
            encoder = Encoder(self._built, product=self._product)
            values = {key: encoder.encode(value) for key, value in named.items()}
            text = json.dumps([[*map(encoder.encode, args)], values, frame.f_code.co_firstlineno])
            found.setdefault(text, json.loads(text))

    def _find_inner(self, code: CodeType) -> tuple[int, int]:
        return self._inner[os.path.abspath(code.co_filename), code.co_firstlineno]

    def _record(self, frame: FrameType, index: int) -> None:
        by_test = self._is_called_by_test(frame)
        if index == _OTHER and not by_test and frame.f_code.co_name != "__init__":
            return
        name = self.functions[index][2] if index != _OTHER else frame.f_code.co_name
        if index != _OTHER and self.functions[index][3]:
            if self.test not in self.tests[index] and len(self.tests[index]) < _MOST_TESTS:
                self.tests[index].append(self.test)
            if self._marked != id(frame.f_back):  # else it is a loop, and no call was recorded since
                self._mark_callers(frame)
                self._marked = id(frame.f_back)
        if index != _OTHER:
            if not (by_test or self.functions[index][4]):
                return
            self._looks[index] += 1
            if len(self.calls[index]) >= _MOST_SEEN or self._looks[index] > _MOST_LOOKS:
                return
        args, named = _read_arguments(frame)
        this, encoder = args[0] if args else None, Encoder(self._built, product=self._product)
        found, node = self._built.get(id(this), (None, None))
        is_start = frame.f_code.co_name == "__init__" and found is not this
        if is_start and len(self._built) < _MOST_BUILT:
            self._built[id(this)] = (this, encoder.encode_new(type(this), args[1:], named=named))
        if index != _OTHER:
            if is_start:
                name, args = name.rpartition(".")[0], args[1:]
            module = frame.f_globals["__name__"]
            _drop_defaults(find_function(module, name), args, named=named)
            values = {key: encoder.encode(value) for key, value in named.items()}
            call = {"function": index, "module": module, "name": name, "by_test": by_test, "is_recorded": True}
            call.update(is_start=is_start, args=[encoder.encode(value) for value in args], named=values)
            call["files"] = _read_files(call)
            text = json.dumps(call)  # at once: more steps of its objects follow
            more = {"is_relevant": self.functions[index][3], "test": self.test}
            call = self.calls[index].setdefault(text, {**json.loads(text), **more})
            self._running[id(frame)] = (frame.f_code, call)
            self._marked = 0
        if by_test and node and found is this and len(node[4]) < _MOST_STEPS:
            values = {key: encoder.encode(value) for key, value in named.items()}
            step = json.dumps([frame.f_code.co_name, [encoder.encode(value) for value in args[1:]], values])
            node[4].append(json.loads(step))  # a copy: the object may be among the arguments

    def _mark_callers(self, frame: FrameType) -> None:
        caller = frame.f_back
        # Pytest calls tests and fixtures through pluggy: above it there are only frames of pytest.
        while caller is not None and caller.f_globals.get("__name__") != "pluggy._callers":
            code, call = self._running.get(id(caller), (None, {}))
            if code is caller.f_code:
                call["is_relevant"] = True
            if self._kinds.get(id(caller.f_code), (None, _NONE))[1] == _INNER:
                self.running_inside.add(self._find_inner(caller.f_code)[0])
            caller = caller.f_back

    @property
    def objects(self) -> list[Node]:
        """The nodes of the objects that tests have constructed, with what they did to them."""
        return [node for _, node in self._built.values()]

    def select_calls(self) -> list[list[Call]]:
        """Return the calls of each function to answer: those in which changed code ran."""
        return [[call for call in calls.values() if call["is_relevant"]][:_MOST_CALLS] for calls in self.calls]

    def follow_calls(self) -> Iterator[list[Call]]:
        """Yield calls of each function with calls of what they return, if changed code may run in these."""
        for index, calls in enumerate(self.calls):
            is_wanted = self.functions[index][3] or index in self.running_inside
            own = [call for call in calls.values() if call["by_test"] and is_wanted]
            inner = {depth: [*levels.values()] for depth, levels in self.inner[index].items()}
            yield [*follow_calls(own, inner, constants=self.constants)]

    def guess_calls(self) -> Iterator[list[Call]]:
        """Yield calls for each function without relevant calls, which may not fit it."""
        selected = self.select_calls()
        modules = {file: name for name, file in _list_origins()}
        known = [call for calls in self.calls for call in calls.values()]
        guesser = Guesser(known, self.objects, constants=self.constants)
        for index, (path, _, name, _, _, may_guess, is_used) in enumerate(self.functions):
            module = modules.get(os.path.join(ROOT, path))
            if may_guess and not selected[index] and module is not None:
                call = {"function": index, "module": module, "name": name, "by_test": not is_used, "test": ""}
                call.update(is_recorded=False, is_guessed=True, is_start=False, files={})
                guessed = guesser.guess(module, name)
                yield [{**call, "guess": kinds, "args": args, "named": named} for kinds, args, named in guessed]

    def has_enough(self, names: set[str]) -> bool:
        """Return whether no more calls are needed of the functions that a test names."""
        own = [self.calls[index] for index, each in enumerate(self.functions) if _last(each) in names]
        return bool(own) and all(sum(e["is_relevant"] for e in calls.values()) >= _MOST_CALLS for calls in own)

    def _is_called_by_test(self, frame: FrameType) -> bool:
        caller = frame.f_back
        while caller is not None and not is_inside(caller.f_code.co_filename):
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


def _read_files(call: Call) -> dict[str, tuple[str, int]]:
    """Return the small files outside the project that the arguments name, with content and permissions."""
    found = {}
    for path in list_texts([call["args"], call["named"]]):
        is_outside = path.startswith(tempfile.gettempdir() + os.sep) and not is_inside(path)
        is_file = is_outside and os.path.isfile(path) and not os.path.islink(path)
        if is_file and os.path.getsize(path) <= _MOST_BYTES:
            with open(path, "rb") as stream:
                found[path] = (encode_bytes(stream.read()), os.stat(path).st_mode)
    return found


def _drop_defaults(function: Callable[..., Any], args: list[Any], *, named: dict[str, Any]) -> None:
    """Remove arguments that are defaults, because the other code may have other defaults."""
    parameters = list(inspect.signature(function).parameters.values())
    while args and len(args) <= len(parameters) and args[-1] is parameters[len(args) - 1].default:
        args.pop()
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and named.get(each.name, each.empty) is each.default:
            del named[each.name]


def _read_until(reader: int, end: float) -> bytes:
    """Return what comes next from a pipe; nothing at its end, or if nothing comes until a time."""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        return os.read(reader, 65536) if selector.select(max(0.0, end - time.monotonic())) else b""


def _read_names(function: object) -> set[str]:
    return set(getattr(getattr(function, "__code__", None), "co_names", ()))


class CallSession:
    """The hooks of a run that records calls and answers them, or only answers those of the task."""

    def __init__(self, task: dict[str, Any], answers: str) -> None:
        """``task``: as for ``CallRecorder``, with the ``seconds`` to record and to answer, or the ``calls`` to answer.
        ``computed``: names of attributes that a property computes in one of the two trees only.
        ``as_test``: calls by the tests in ``targets`` are answered twice as if the test made them, and the answers go
        to a file of their own. ``alone``: all calls are answered.

        The file ``answers`` gets a line with the calls, for each a line with its index, its answer and its text, and
        a last line with -1.
        """
        self.task, self.answers = task, answers
        computed.update(task["computed"])
        self.recorder = None if "calls" in task else CallRecorder(task)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool | None:
        """Run no test if the calls are known: the test files are imported all the same."""
        return True if self.recorder is None else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the targets first, then the tests that name a function, then those whose class does."""
        items.sort(key=lambda item: (not self._is_target(item.nodeid), self._rank(item)))

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
        self.recorder.patience_of_test = Patience(_TEST_S)
        yield
        has_run = all(self.recorder.tests[index] for index, each in enumerate(self.recorder.functions) if each[3])
        is_far = self._rank(item) == 2 and not self._is_target(item.nodeid)
        if self.recorder.patience.is_over or (has_run and is_far):
            item.session.shouldstop = "enough calls are recorded"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Answer the calls, and write down each answer at once, because a call may end the process."""
        os.chdir(ROOT)
        if self.task["as_test"]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about threads
                child = os.fork() if self.task["alone"] else 0
            if child:
                self._wait(child)  # its answers and what they left behind must not change the others
            else:
                found = self._find_calls(as_test=True)
                self._write(f"{self.answers}.tests", found, answers=_answer_in_tests(found["calls"]))
                if self.task["alone"]:
                    os._exit(0)
        if self.task["alone"]:
            found = self._find_calls(as_test=False)
            self._write(self.answers, found, answers=_answer_alone(found["calls"]))

    def _wait(self, child: int) -> None:
        end = time.monotonic() + self.task["seconds"]
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.001)

    def _write(self, path: str, found: dict[str, Any], *, answers: Iterator[tuple[int, Call, Answer]]) -> None:
        patience = Patience(self.task["seconds"] / 2)
        with open(path, "w", encoding="ascii", buffering=1) as stream:
            stream.write(json.dumps(found) + "\n")
            for index, call, parts in answers:
                stream.write(json.dumps([index, parts, shorten(show(call))]) + "\n")
                if patience.is_over:
                    break
            stream.write(json.dumps([-1, [], ""]) + "\n")

    def _find_calls(self, *, as_test: bool) -> dict[str, Any]:
        """Return the task of a run that answers the same calls in the same way."""
        if self.recorder is None:
            return self.task
        recorded = self.recorder.select_calls()
        found = {**self.task, "as_test": as_test, "alone": not as_test}
        found.update(tests=self.recorder.tests, left_out=self.recorder.left_out)
        if as_test:
            own = [[call for call in calls if call["by_test"] and self._is_target(call["test"])] for calls in recorded]
            modules = {name: os.path.relpath(file, ROOT) for name, file in _list_origins() if is_inside(file)}
            calls = [*mix([calls[:_MOST_IN_TESTS] for calls in own])]
            found["further"] = [*mix(map(self._vary, own, recorded))]
            return {**found, "calls": calls, "root": ROOT, "path": [*map(str, sys.path)], "modules": modules}
        varied = vary_functions(recorded, constants=self.recorder.constants)
        overridden = map(override_methods, recorded)
        used = (use_earlier(calls, self.recorder.objects) for calls in recorded)
        more = [*self._guess_calls(), *mix(self.recorder.follow_calls())] if self.task["guesses"] else []
        return {**found, "calls": [*mix(recorded), *mix(used), *mix(varied), *mix(overridden), *more]}

    def _guess_calls(self) -> list[Call]:
        """Return calls of functions that tests do not call, with each of the types that these functions accept."""
        assert self.recorder is not None
        found: list[Call] = []
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # a call may end the process, or change what other calls use
            try:
                self._answer_guesses(writer)
            finally:
                os._exit(0)
        os.close(writer)
        data, end = b"", time.monotonic() + self.task["seconds"]
        # Not until the end of the pipe: a call may never end in C, or leave a process that holds the pipe.
        while (part := _read_until(reader, end)) and time.monotonic() < end:
            data += part
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = [json.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
        for answered in lines[:_MOST_GUESSED]:
            codes = [(call, parts[0][0] if parts else "") for call, parts in answered]
            fit = [(call, code) for call, code in codes if code not in ("unfit", "missing", "endless")]
            for guess in dict.fromkeys(call["guess"] for call, code in fit if code == "returns"):
                own = [call for call, _ in fit if call["guess"] == guess]
                found += [*own, *vary_calls(own, constants=self.recorder.constants, most=_MOST_FURTHER)]
        return found

    def _answer_guesses(self, writer: int) -> None:
        """Write a line for each function: its calls with their answers."""
        assert self.recorder is not None
        patience = Patience(_GUESSES_S)
        with os.fdopen(writer, "w", buffering=1) as stream:
            for calls in self.recorder.guess_calls():
                answered = [(call, [] if patience.is_over else answer_with_effects(call)) for call in calls]
                if not patience.is_over:  # a type that was not tried may be the right one
                    stream.write(json.dumps(answered) + "\n")

    def _vary(self, own: list[Call], recorded: list[Call]) -> list[Call]:
        """Return calls like those of the targets that no test makes."""
        assert self.recorder is not None
        known = [[call["args"], call["named"], call["files"]] for call in recorded]
        varied = vary_calls(own, constants=self.recorder.constants, most=_MOST_FURTHER)
        return [call for call in varied if [call["args"], call["named"], call["files"]] not in known]

    def _is_target(self, test: str) -> bool:
        return test.partition("[")[0] in self.task["targets"]


def _list_origins() -> list[tuple[str, str]]:
    """Return the loaded modules with their files."""
    found = [(name, getattr(module, "__file__", None)) for name, module in [*sys.modules.items()]]
    return [(name, file) for name, file in found if isinstance(file, str)]


def _answer_alone(calls: list[Call]) -> Iterator[tuple[int, Call, Answer]]:
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]  # code may behave in another way under test
    for index, call in enumerate(calls):
        yield index, call, answer_with_effects(call)


def _answer_in_tests(calls: list[Call]) -> Iterator[tuple[int, Call, Answer]]:
    """Answer each call twice, as if its test made it.

    The second time, all else is different on which an honest result may depend: the current folder, the program's
    arguments and variables, the caller's names, and the results of earlier calls.
    """
    texts = [{*list_texts([call["args"], call["named"]])} - {*call["files"]} for call in calls]
    is_named = [any(map(_is_file, each)) for each in texts]
    variables, arguments = dict(os.environ), [*sys.argv]
    try:
        for name in ("", "other"):
            if name:
                os.chdir(tempfile.mkdtemp())
                sys.argv[:] = [name]
                for variable in [each for each in os.environ if not each.startswith(_OF_TESTS)]:
                    del os.environ[variable]
            for index, call in enumerate(calls):
                os.environ["PYTEST_CURRENT_TEST"] = f"{call['test']} (call)"
                parts = answer(call, invoke=_disguise(call["test"], name=name))
                yield index, call, [["unfit", "names a file"]] if is_named[index] else parts
    finally:
        os.chdir(ROOT)
        sys.argv[:] = arguments
        os.environ.clear()
        os.environ.update(variables)


def _is_file(text: str) -> bool:
    """Return whether a text names a file or folder, or a place for one. The project's root has an empty name."""
    path = os.path.join(ROOT, text)
    folder = os.path.dirname(path) if os.path.isabs(text) else ""
    return text != "" and (os.path.lexists(path) or (folder != os.sep and os.path.isdir(folder)))


def _disguise(test: str, *, name: str) -> Callable[..., Any]:
    """Return ``invoke`` as a function of the test's module, or of one that differs from it in its names."""
    file, _, function = test.partition("[")[0].partition("::")
    folder, base = os.path.split(file)
    path = os.path.join(ROOT, folder, f"test_{name}.py" if name else base)
    code = invoke.__code__.replace(co_filename=path, co_name=f"test_{name}" if name else function)
    modules = (vars(each) for each in [*sys.modules.values()] if getattr(each, "__file__", None) == f"{ROOT}/{file}")
    space = {**next(modules, {}), "__name__": os.path.splitext(os.path.basename(path))[0], "__file__": path}
    return FunctionType(code, space)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run in this process, without the workers of xdist."""
    for name, value in (("numprocesses", None), ("dist", "no"), ("tx", [])):
        if hasattr(config.option, name):
            setattr(config.option, name, value)


def pytest_configure(config: pytest.Config) -> None:
    """Read the task, and register the hooks."""
    stem = os.path.splitext(__file__)[0]
    with open(f"{stem}.json", encoding="utf-8") as stream:
        config.pluginmanager.register(CallSession(json.load(stream), f"{stem}.jsonl"))
