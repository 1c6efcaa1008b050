"""Makes a call and returns its outcome: a list of parts, each a code and texts.

Test runs and a plain program use a copy of it, which is Python 3.8 and does not need pytest. The current
folder at the first import is the project's.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import dis
import functools
import hashlib
import importlib
import inspect
import io
import linecache
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from time import monotonic, process_time
from typing import TYPE_CHECKING

from .returned import NoFunctionError, build_levels, call_results
from .values import build, describe, find, held, show

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .values import Answer, Call, Part, Value

MOST_TEXT = 2000
_CALL_S = 1.0
ROOT = os.getcwd()
_LONG_AGO = 1_000_000_000
_BLOCKS = (AbstractContextManager, AbstractAsyncContextManager)
"""Those of the standard library can be called too, as decorators."""


def is_inside(path: str) -> bool:
    """Return whether a path belongs to the project."""
    return path.startswith(ROOT + os.sep) and "site-packages" not in path


class _TimeOver(BaseException):
    """A call takes too long."""


def shorten(text: str) -> str:
    """Return a text without addresses and the project's path; a long one ends in its digest."""
    text = re.sub(r"\b0x[0-9a-fA-F]{6,}", "0x...", text).replace(ROOT, ".")
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}... {hashlib.sha256(text.encode()).hexdigest()}"


def find_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function as its definition takes its arguments: a method with ``self``. A package may export it."""
    try:
        owner, _, last = name.rpartition(".")
        found = inspect.getattr_static(find(module, owner) if owner else importlib.import_module(module), last)
    except (ImportError, AttributeError):
        if "." not in module:
            raise
        return find_function(module.rpartition(".")[0], name)
    if isinstance(found, property):
        return lambda *args: (found.fset if len(args) > 1 else found.fget)(*args)
    if isinstance(found, (classmethod, staticmethod)):
        found = found.__func__
    if isinstance(found, functools.cached_property):
        return lambda this: getattr(this, last)  # which finds what the object remembers
    function: Callable[..., Any] = found
    return function


def invoke(function: Callable[..., Value], args: Sequence[Value], *, named: dict[str, Value]) -> Value:
    """Call a function from a module that does not belong to the tests."""
    return function(*args, **named)


def answer(call: Call, *, invoke: Callable[..., Value] = invoke) -> Answer:
    """Make a call, and return its outcome: result, printed text and changed arguments, or exception.

    The code ``missing`` is for a function that the code does not have, ``unfit`` for arguments that the function does
    not expect or that cannot be built, and ``states`` for an exception that a ``raise`` of the project states.
    """
    try:
        function = find_function(call["module"], call["name"])
    except BaseException:  # noqa: BLE001 (the import runs code of the project)
        return [["missing"]]
    printed, around = io.StringIO(), ""
    stage: Answer = []
    warned: list[object] = []
    try:
        with _limit_time(), _isolate(printed, warned):
            try:
                place_files(call)
                before = _format_state(*_build_arguments(call))
                args, named = _build_arguments(call)  # again: iterators have been read
                levels = build_levels(call)
                around = _format_holdings()
            except (_TimeOver, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 (constructors of the project)
                return [["unfit", type(error).__name__]]
            result = invoke(function, args, named=named)
            stage = [["unreadable"]]
            if levels:
                results = call_results(result, levels, explain=functools.partial(_explain, call=call))
                parts = [["returns", results], *_list_changes((before[0], around), args, named=named)]
            else:
                is_function = callable(result) and not isinstance(result, _BLOCKS)
                parts = [["returns", describe(result)], *([["called"]] if is_function else [])]
                parts += [["unhashable"]] if call["is_start"] and type(result).__hash__ is None else []
                changes = _list_changes(before, args, named=named)
                parts += _enter_block(result, function, call=call)
                parts += changes + _find_sharing(result, function, call=call)
                parts += _end_early(result, function, call=call)
    except NoFunctionError:
        return [["unfit", "returns no function"]]
    except _TimeOver:
        return [["endless", f"{_CALL_S:g}"]]
    except BaseException as error:  # noqa: BLE001 (an exception is an outcome)
        part = _describe_error(error, is_recorded=call["is_recorded"])
        parts = [part] if part[0] == "unfit" else [*stage, part]
        parts += [["holds", _format_holdings()]] if _format_holdings() != around else []
    parts += [["prints", repr(_read_printed(printed))]] if printed.getvalue() else []
    return [*shorten_texts(parts), *([["leaks"]] if warned else [])]


def shorten_texts(parts: Answer) -> Answer:
    """Return the parts with short texts."""
    return [[code, *map(shorten, texts)] for code, *texts in parts]


def _explain(error: BaseException, *, call: Call) -> str:
    """Return an exception of a call of a result as text; raise one that says nothing about the function."""
    code, name, *message = _describe_error(error, is_recorded=False)
    if isinstance(error, (_TimeOver, KeyboardInterrupt)) or code == "unfit":
        raise error
    # An `assert` may become a `raise`, and in a list of outcomes the two are not told apart.
    is_known = not message or message[0] in show(call) or isinstance(error, AssertionError)
    return f"raises {name}" if is_known else f"raises {name}: {message[0]}"


def _read_printed(printed: io.StringIO) -> str:
    """Return what was printed, without the lines of code of a traceback, which any change of the code moves."""
    text = printed.getvalue()
    return re.sub(r"^  .*\n", "", text, flags=re.MULTILINE) if "Traceback (most recent call last)" in text else text


def _find_sharing(result: Value, function: Callable[..., Any], *, call: Call) -> Answer:
    """Return what another call returns after the result was emptied, if that differs: calls may share a result."""
    if type(result) not in (list, dict, set):
        return []
    before, saved = describe(result), result.copy()
    result.clear()
    args, named = _build_arguments(call)
    again = describe(function(*args, **named))
    result.extend(saved) if isinstance(result, list) else result.update(saved)
    return [["shares", again]] if again != before else []


def place_files(call: Call) -> None:
    """Write the files that the arguments of a call named when it was recorded. They are old."""
    for path, (content, mode) in call.get("files", {}).items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(content))
        os.chmod(path, mode)
        os.utime(path, (_LONG_AGO, _LONG_AGO))


def _enter_block(result: Value, function: Callable[..., Any], *, call: Call) -> Answer:
    """Return what another call gives to a ``with`` block."""

    async def enter(again: AbstractAsyncContextManager[Value]) -> str:
        async with again as given:
            return read(given)

    def read(given: Value) -> str:
        with contextlib.suppress(Exception):  # such as of a file that is open for writing
            return describe(given)
        return "a value that cannot be read"

    if isinstance(result, AbstractAsyncContextManager):
        args, named = _build_arguments(call)
        return [["gives", asyncio.run(enter(function(*args, **named)))]]
    if not isinstance(result, AbstractContextManager):
        return []
    args, named = _build_arguments(call)
    with function(*args, **named) as given:
        return [["gives", read(given)]]


class _EarlyEndError(Exception):
    """Ends a block early."""


def _end_early(result: Value, function: Callable[..., Any], *, call: Call) -> Answer:
    """Return what another call does when its iterator is closed after one item, or its block ends with an exception."""
    if not isinstance(result, (Iterator, AbstractContextManager)):
        return []
    args, named = _build_arguments(call)
    before, parts = _format_state(args, named), []
    if isinstance(result, Iterator):
        again = function(*args, **named)
        for _ in again:
            break
        getattr(again, "close", bool)()
        how = "closed"
    else:
        again, how = function(*args, **named), "left"
        parts = [["stops"]]
        try:
            with again:
                raise _EarlyEndError
        except _EarlyEndError:
            parts = []
    parts += _list_changes(before, args, named=named)
    return [[how], *parts] if parts else []


def _build_arguments(call: Call) -> tuple[list[Value], dict[str, Value]]:
    held.clear()
    return [build(node) for node in call["args"]], {name: build(node) for name, node in call["named"].items()}


def _format_state(args: Sequence[object], named: dict[str, object]) -> tuple[str, str]:
    """Return the arguments as text, and what their functions hold."""
    arguments = ", ".join([*map(describe, args), *(f"{name}={describe(value)}" for name, value in named.items())])
    return arguments, _format_holdings()


def _format_holdings() -> str:
    return ", ".join(map(describe, held))


def _list_changes(before: tuple[str, str], args: Sequence[object], *, named: dict[str, object]) -> Answer:
    arguments, around = _format_state(args, named)
    parts = [["changes", arguments]] if arguments != before[0] else []
    return [*parts, ["holds", around]] if around != before[1] else parts


def _describe_error(error: BaseException, *, is_recorded: bool) -> Part:
    """Return the type and, if a ``raise`` of the project states it, the message.

    An operation on a value of the wrong kind fails in another way after any change of the code. So does taking apart
    a value of another length.
    """
    if _is_stated(error):
        return ["states", type(error).__name__, str(error)]
    is_unfit = isinstance(error, (TypeError, AttributeError, NameError, RecursionError, MemoryError))
    is_unfit = is_unfit or (not is_recorded and "values to unpack" in str(error))
    # Which of these a system call raises depends on the function that makes it.
    is_any = isinstance(error, OSError) and not is_recorded
    return ["unfit" if is_unfit else "raises", "OSError" if is_any else type(error).__name__]


def _is_stated(error: BaseException) -> bool:
    """Return whether a ``raise`` of the project raised an exception."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    # Not by the text of the line: in `raise ValueError("no " + name)`, the sum may fail.
    is_raise = dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS" and is_inside(code.co_filename)
    return is_raise and not (isinstance(error, AssertionError) and _is_assert(code.co_filename, trace.tb_lineno))


@functools.lru_cache(maxsize=1000)
def _is_assert(path: str, line: int) -> bool:
    """Return whether a line may belong to an ``assert``, which raises with the same instruction as ``raise``."""
    try:
        nodes = [*ast.walk(ast.parse("".join(linecache.getlines(path))))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    raising = [node for node in nodes if isinstance(node, ast.Raise)]
    return not any(node.lineno <= line <= (node.end_lineno or line) for node in raising)


@contextlib.contextmanager
def _isolate(printed: io.StringIO, warned: list[object]) -> Iterator[None]:
    """Collect what is printed and warnings of open files; hide the input and other warnings, which pytest changes."""
    before, sys.stdin = sys.stdin, io.StringIO()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(printed))
            stack.enter_context(contextlib.redirect_stderr(printed))
            # Not record=True: code that answers only while pytest records warnings would answer here too.
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ResourceWarning)
            warnings.showwarning = lambda message, *_, **__: warned.append(message)
            yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _limit_time() -> Iterator[None]:
    """Stop a call after a time of the processor, so that a busy machine changes no answer, or after thrice as much."""
    cpu, start = process_time(), monotonic()

    def stop(*_: object) -> None:
        if process_time() - cpu >= _CALL_S or monotonic() - start >= 3 * _CALL_S:
            raise _TimeOver

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _CALL_S, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
