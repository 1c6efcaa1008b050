"""Calls of the functions that a call returns: closures, the wrappers of a decorator, partial functions.

A call may have a key ``then``: a list of levels. A level is a list of steps: arguments as nodes, named ones, and the
number of a function or None. The functions that the call returns are called with the arguments of the first level, each
in turn or the one with the number; the functions that these calls return are called with those of the second level, and
so on. The plugin ``calls`` uses this module, which is Python 3.8.
"""

from __future__ import annotations

import base64
import inspect
import itertools
import marshal
from types import FunctionType
from typing import TYPE_CHECKING

from .values import StandIn, build, describe, find, vary_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .values import Call, Node, Value

    Step = list[Any]
    Level = list[Step]

_MOST_FUNCTIONS = 4
"""Functions that are called at each level."""
_MOST_ORDERED = 3
_MOST_FOLLOWED = 2
"""Recorded calls of a function whose results are called."""
_MOST_VARIED = 12
_THREE, _FOUR = ["is", 3], ["is", 4]
_SIMPLE: tuple[Level, ...] = (
    [[[_THREE], {}, None], [[_FOUR], {}, None], [[_THREE], {}, None]],
    [[[_THREE], {}, None], [[_THREE], {"key": _FOUR}, None], [[_THREE, _FOUR], {}, None]],
    [[[], {}, None], [[], {}, None]],
)
"""Steps for a wrapper of a function that takes any arguments."""


class NoFunctionError(Exception):
    """A call returns no function to call."""


def build_levels(call: Call) -> list[Level]:
    """Build the arguments of all levels."""

    def build_step(step: Step) -> Step:
        args, named, at = step
        return [[*map(build, args)], {key: build(node) for key, node in named.items()}, at]

    return [[*map(build_step, level)] for level in call.get("then", ())]


def call_results(result: Value, levels: Sequence[Level], *, explain: Callable[[BaseException], str]) -> str:
    """Call what a call returned, and return the outcomes as text. ``levels`` have values in place of nodes.

    ``explain`` returns an exception as text, or raises one that says nothing about the function. Raises
    ``NoFunctionError``.
    """
    functions, texts = _list_functions(result), []
    for level in levels:
        if not functions:
            raise NoFunctionError
        results, outcomes = [], []
        for args, named, at in level:
            for function in functions if at is None else functions[at : at + 1]:
                StandIn.given = (*args, *named.values())
                try:
                    results.append(function(*args, **named))
                    outcomes.append(describe(results[-1]))
                except BaseException as error:  # noqa: BLE001 (an exception is an outcome)
                    outcomes.append(explain(error))
        texts.append(", ".join(outcomes))
        functions = [each for one in results for each in _list_functions(one)][:_MOST_FUNCTIONS]
    return f"[{'] and then ['.join(texts)}]"


def _list_functions(result: Value) -> list[Value]:
    """Return the functions of a result, which may be one, or a list or dictionary with some."""
    parts = [*result.values()] if type(result) is dict else result if type(result) in (list, tuple) else [result]
    return [each for each in parts[:_MOST_FUNCTIONS] if callable(each)]


def follow_calls(calls: Sequence[Call], inner: dict[int, Level], *, constants: Sequence[Any]) -> Iterator[Call]:
    """Yield calls of one function with calls of what they return.

    ``inner``: depth -> the arguments that tests gave to the functions that are defined so deep in it, with their line.
    """
    calls = [{**call, "is_recorded": False} for call in calls[:_MOST_FOLLOWED]]
    for levels in _list_ways([inner.get(depth, []) for depth in range(1, max(inner, default=0) + 1)]):
        is_known = bool(levels) and all(levels)
        for call in calls:
            if is_known:
                yield {**call, "then": [*levels[:-1], levels[-1] * 2]}
            yield from _use_stand_ins(call, levels)
        if is_known and calls:
            yield from _vary_last(calls[0], levels, constants=constants)
            for call in vary_calls(calls, constants=constants, most=_MOST_VARIED):
                yield {**call, "then": levels, "is_lenient": True}


def _list_ways(levels: list[Level]) -> Iterator[list[Level]]:
    """Yield the levels with numbers of functions in place of lines: if there are several lines, in each order."""
    lines = sorted({line for _, _, line in levels[-1]}) if levels else []
    plain = [[[args, named, None] for args, named, _ in level] for level in levels]
    if not 1 < len(lines) <= _MOST_ORDERED:
        yield plain
        return
    for order in itertools.permutations(range(len(lines))):
        yield [*plain[:-1], [[args, named, order[lines.index(line)]] for args, named, line in levels[-1]]]


def _vary_last(call: Call, levels: list[Level], *, constants: Sequence[Any]) -> Iterator[Call]:
    """Yield the call with one other step in the last level, which is repeated then."""
    last = levels[-1]
    for place, (args, named, at) in enumerate(last):
        like = [{"args": args, "named": named, "is_start": False}]
        for each in vary_calls(like, constants=constants, most=_MOST_VARIED):
            varied = [*last[:place], [each["args"], each["named"], at], *last[place + 1 :]]
            yield {**call, "then": [*levels[:-1], varied + last], "is_lenient": True}


def _use_stand_ins(call: Call, levels: list[Level]) -> Iterator[Call]:
    """Yield calls with stand-ins in place of the only function that a decorator gets.

    It gets it with the call, or with the first call of what that returns. If no test calls that, it got it when the
    product was imported.
    """
    given = [*call["args"], *call["named"].values()]
    first = [args[0] for args, _, _ in levels[0] if len(args) == 1] if levels else []
    own, deep = ([node for node in nodes if _read_flags(node) is not None] for nodes in (given, first))
    is_deep = bool(deep) or (bool(levels) and not levels[0])
    if len(own) + is_deep != 1:
        return
    rest, is_async = levels[is_deep:], any((_read_flags(node) or 0) & inspect.CO_COROUTINE for node in own + deep)
    known = [rest[-1] * 2] if rest and all(rest) else []
    for last, answer in itertools.product([*known, *_SIMPLE], StandIn.ANSWERS):
        one, other = (["stand-in", answer, is_async, name] for name in ("first", "second"))
        if is_deep:
            yield {**call, "then": [[[[one], {}, None], [[other], {}, None]], *rest[:-1], last]}
        else:
            args = [one if node is own[0] else node for node in call["args"]]
            named = {key: one if node is own[0] else node for key, node in call["named"].items()}
            yield {**call, "args": args, "named": named, "then": [*rest[:-1], last]}


def _read_flags(node: Node) -> int | None:
    """Return the flags of a Python function, or None for a node of something else."""
    if node[0] == "code":
        flags: int = marshal.loads(base64.b64decode(node[3])).co_flags
        return flags
    found = find(node[1], node[2]) if node[0] == "ref" else None
    return found.__code__.co_flags if isinstance(found, FunctionType) else None
