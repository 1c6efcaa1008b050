"""The stub for a missing name: it accepts every operation. It does nothing, answers wrongly, or has useless effects.

cdd copies the text of this module into modules of a clean copy, where the project's Python runs it. It is therefore
Python 3.8.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator

LATER: set[str] = set()
"""The names of functions that return a coroutine."""


class Stub:
    """An object that can be called, indexed, iterated, entered and computed with, and returns more stubs.

    Its truth value and all its comparisons are ``truth``. Other uses, such as opening it as a file, raise.
    With an ``answer``, a tuple of one value, calls return that value, which also takes most uses of a stub, and a stub
    equals itself only. A class is then called for stubs, whose methods answer. With ``acts``, calls have effects.
    """

    def __init__(self, name: str, truth: bool, *, answer: tuple[object, ...] = (), acts: bool = False) -> None:
        """Create a stub; ``name`` appears in the node ids of tests that have it as a parameter."""
        self.__name__ = name
        self.__truth__ = truth
        self.__answer__ = answer
        self.__acts__ = acts

    def __getattr__(self, name: str) -> Stub:
        """Return the same stub for a name each time, and no special methods."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = Stub(name, self.__truth__, answer=self.__answer__, acts=self.__acts__)
        return found

    def __repr__(self) -> str:
        """Return a text that tests do not look for."""
        return "<stub>"

    def __hash__(self) -> int:
        """Return the identity, although with ``truth`` all stubs are equal."""
        return id(self)

    def __iter__(self) -> Iterator[Stub]:
        """Yield one stub or none."""
        return iter([_make_another(self)] if self.__truth__ else [])

    async def __aiter__(self) -> AsyncIterator[Stub]:
        """Yield one stub or none."""
        for each in self:
            yield each

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Add no base class, so a class can name a stub as its base."""
        return ()


def _await(one: Stub) -> Generator[None, None, Stub]:
    """Return a stub at once."""
    yield from ()
    return _make_another(one)


# Only what a stub returns can be awaited: ``unittest.mock.patch`` replaces whatever can be by an async function.
_RESULT = type("Stub", (Stub,), {"__await__": _await})


def _make_another(one: Stub, *given: object) -> Stub:
    if type(one) not in (Stub, _RESULT):
        return one  # an answer
    made: Stub = _RESULT(one.__name__, one.__truth__, answer=one.__answer__, acts=one.__acts__)
    return made


def _call(one: Stub, *given: object, **named: object) -> object:
    if one.__acts__:
        _act(*given, *named.values())
    is_class = one.__name__[:1].isupper()
    result = _make_answer(one, one.__answer__[0]) if one.__answer__ and not is_class else _make_another(one)
    return _wait(result) if one.__name__ in LATER else result


async def _wait(result: object) -> object:
    return result


def _make_answer(one: Stub, value: object) -> object:
    """Return the value as an object that can also be called, entered and so on."""
    base = type(value)
    if value is None or base is bool:
        return value
    lent = [f"__{name}__" for name in _LENT.split()]
    others = {name: getattr(_RESULT, name) for name in lent if not hasattr(base, name)}
    made = type("Stub", (base,), others)(value)
    vars(made).update(vars(one))
    return made


def _act(*given: object) -> None:
    """Print, log, and use what a test gives: call it, add to it, or write to it."""
    import logging
    import os
    import sys
    from contextlib import suppress

    print("stub")  # noqa: T201
    print("stub", file=sys.stderr)  # noqa: T201
    logging.getLogger().error("stub")
    uses = (("__call__", 0), ("__call__", 1), ("append", 1), ("add", 1), ("__setitem__", 2))
    for each in given:
        for name, count in uses:
            with suppress(Exception):
                getattr(each, name)(*["stub"] * count)
        with suppress(OSError):
            if isinstance(each, os.PathLike):
                with open(os.path.join(each, "stub") if os.path.isdir(each) else each, "a", encoding="utf-8") as file:
                    file.write("stub")


async def _make_another_later(one: Stub) -> Stub:
    return _make_another(one)


def _do_nothing(one: Stub, *given: object) -> None:
    """Return None, which as the result of ``__exit__`` lets exceptions propagate."""


async def _do_nothing_later(one: Stub, *given: object) -> None:
    """Return None, for ``async with``."""


def _get_truth(one: Stub, *given: object) -> bool:
    return one.__truth__


def _equals(one: Stub, other: object) -> bool:
    return one is other if one.__answer__ else one.__truth__


def _differs(one: Stub, other: object) -> bool:
    return one is not other if one.__answer__ else one.__truth__


def _get_number(one: Stub) -> int:
    return int(one.__truth__)


def _get_fraction(one: Stub) -> float:
    return float(one.__truth__)


_LENT = "call getattr getitem setitem iter len contains enter exit await aenter aexit"
_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
for _answer, _names in (
    (_call, "call"),
    (_make_another, f"getitem enter neg pos abs invert round {_BINARY} r{_BINARY.replace(' ', ' r')}"),
    (_make_another_later, "aenter"),
    (_do_nothing, "setitem delitem exit"),
    (_do_nothing_later, "aexit"),
    (_equals, "eq"),
    (_differs, "ne"),
    (_get_truth, "bool lt le gt ge contains"),
    (_get_number, "len int index"),
    (_get_fraction, "float"),
):
    for _name in _names.split():
        setattr(Stub, f"__{_name}__", _answer)
