"""Makes a call and returns its outcome as text.

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

    from .values import Call, Value

MOST_TEXT = 2000
_CALL_S = 1.0
MISSING = "missing"
"""The answer if the code has no such function."""
UNFIT = "unfit: "
"""Begins the answer if the function does not expect such arguments, or they cannot be built."""
ENDLESS = "does not end within "
UNREADABLE = "returns a value that, when it is read, "
LEAK = " and leaves a file open"
GIVES = ", which gives its block "
CALLED = ", which can be called"
UNHASHABLE = ", which cannot be hashed"
"""Said of a new object of the project."""
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


def answer(call: Call, *, invoke: Callable[..., Value] = invoke) -> str:
    """Make a call, and return its outcome as text: result, printed text and changed arguments, or exception."""
    try:
        function = find_function(call["module"], call["name"])
    except BaseException:  # noqa: BLE001 (the import runs code of the project)
        return MISSING
    printed, stage, around = io.StringIO(), "", ""
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
                return f"{UNFIT}{type(error).__name__}"
            result = invoke(function, args, named=named)
            stage = UNREADABLE
            if levels:
                results = call_results(result, levels, explain=functools.partial(_explain, call=call))
                text = f"returns {results}{_format_changes((before[0], around), args, named=named)}"
            else:
                is_function = callable(result) and not isinstance(result, _BLOCKS)
                text = f"returns {describe(result)}{CALLED if is_function else ''}"
                text += UNHASHABLE if call["is_start"] and type(result).__hash__ is None else ""
                changes = _format_changes(before, args, named=named)
                text += _enter_block(result, function, call=call)
                text += changes + _find_sharing(result, function, call=call)
                text += _end_early(result, function, call=call)
    except NoFunctionError:
        return f"{UNFIT}returns no function"
    except _TimeOver:
        return f"{ENDLESS}{_CALL_S:g} s"
    except BaseException as error:  # noqa: BLE001 (an exception is an outcome)
        text = _describe_error(error, is_recorded=call["is_recorded"])
        text = text if text.startswith(UNFIT) else f"{stage}{text}"
        text += f" and calls functions that then hold {_format_holdings()}" if _format_holdings() != around else ""
    text += f" and prints {_read_printed(printed)!r}" if printed.getvalue() else ""
    return f"{shorten(text)}{LEAK if warned else ''}"


def _explain(error: BaseException, *, call: Call) -> str:
    """Return an exception of a call of a result as text; raise one that says nothing about the function."""
    text = _describe_error(error, is_recorded=False)
    if isinstance(error, (_TimeOver, KeyboardInterrupt)) or text.startswith(UNFIT):
        raise error
    head, _, message = text.partition(": ")
    # An `assert` may become a `raise`, and in a list of outcomes the two are not told apart.
    return head if message in show(call) or isinstance(error, AssertionError) else text


def _read_printed(printed: io.StringIO) -> str:
    """Return what was printed, without the lines of code of a traceback, which any change of the code moves."""
    text = printed.getvalue()
    return re.sub(r"^  .*\n", "", text, flags=re.MULTILINE) if "Traceback (most recent call last)" in text else text


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


def place_files(call: Call) -> None:
    """Write the files that the arguments of a call named when it was recorded. They are old."""
    for path, (content, mode) in call.get("files", {}).items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(content))
        os.chmod(path, mode)
        os.utime(path, (_LONG_AGO, _LONG_AGO))


def _enter_block(result: Value, function: Callable[..., Any], *, call: Call) -> str:
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
        return f"{GIVES}{asyncio.run(enter(function(*args, **named)))}"
    if not isinstance(result, AbstractContextManager):
        return ""
    args, named = _build_arguments(call)
    with function(*args, **named) as given:
        return f"{GIVES}{read(given)}"


class _EarlyEndError(Exception):
    """Ends a block early."""


def _end_early(result: Value, function: Callable[..., Any], *, call: Call) -> str:
    """Return what another call does when its iterator is closed after one item, or its block ends with an exception."""
    if not isinstance(result, (Iterator, AbstractContextManager)):
        return ""
    args, named = _build_arguments(call)
    before, text = _format_state(args, named), ""
    if isinstance(result, Iterator):
        again = function(*args, **named)
        for _ in again:
            break
        getattr(again, "close", bool)()
        how = "is closed after one item"
    else:
        again, how = function(*args, **named), "is left by an exception"
        text = " and stops the exception"
        try:
            with again:
                raise _EarlyEndError
        except _EarlyEndError:
            text = ""
    text += _format_changes(before, args, named=named)
    return f", and if it {how}{text}" if text else ""


def _build_arguments(call: Call) -> tuple[list[Value], dict[str, Value]]:
    held.clear()
    return [build(node) for node in call["args"]], {name: build(node) for name, node in call["named"].items()}


def _format_state(args: Sequence[object], named: dict[str, object]) -> tuple[str, str]:
    """Return the arguments as text, and what their functions hold."""
    arguments = ", ".join([*map(describe, args), *(f"{name}={describe(value)}" for name, value in named.items())])
    return arguments, _format_holdings()


def _format_holdings() -> str:
    return ", ".join(map(describe, held))


def _format_changes(before: tuple[str, str], args: Sequence[object], *, named: dict[str, object]) -> str:
    arguments, around = _format_state(args, named)
    text = f" and changes its arguments to ({arguments})" if arguments != before[0] else ""
    return f"{text} and calls functions that then hold {around}" if around != before[1] else text


def _describe_error(error: BaseException, *, is_recorded: bool) -> str:
    """Return the type and, if a ``raise`` of the project states it, the message.

    An operation on a value of the wrong kind fails in another way after any change of the code. So does taking apart
    a value of another length.
    """
    if _is_stated(error):
        return f"raises {type(error).__name__}: {error}"
    is_unfit = isinstance(error, (TypeError, AttributeError, NameError, RecursionError, MemoryError))
    is_unfit = is_unfit or (not is_recorded and "values to unpack" in str(error))
    # Which of these a system call raises depends on the function that makes it.
    is_any = isinstance(error, OSError) and not is_recorded
    return f"{UNFIT if is_unfit else 'raises '}{'OSError' if is_any else type(error).__name__}"


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
