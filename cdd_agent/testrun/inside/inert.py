"""The stub of a name that is not there yet: everything can be done with it, and nothing comes of it.

The text of this module is put into modules of a clean copy and runs on the project's own Python: it imports nothing
else, and is Python 3.8.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator


class Stub:
    """It can be called, read, written, looped over, waited for, entered and computed with, and gives others like it.

    Whatever is asked of it or of those, each comparison and each question whether it is true, has the answer ``truth``.
    What else is done with it, such as opening it as a file, raises.
    """

    def __init__(self, name: str, truth: bool) -> None:
        """``name``: for the node ids of tests that have it as a parameter."""
        self.__name__ = name
        self.__truth__ = truth

    def __getattr__(self, name: str) -> Stub:
        """Another one, the same each time; Python's own questions get no answer."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = Stub(name, self.__truth__)
        return found

    def __repr__(self) -> str:
        """Nothing that a test would look for."""
        return "<stub>"

    def __hash__(self) -> int:
        """None is equal to another, or each is."""
        return id(self)

    def __iter__(self) -> Iterator[Stub]:
        """One, or none."""
        return iter([_another(self)] if self.__truth__ else [])

    async def __aiter__(self) -> AsyncIterator[Stub]:
        """The same for ``async for``."""
        for each in self:
            yield each

    def __await__(self) -> Generator[None, None, Stub]:
        """Done at once."""
        yield from ()
        return _another(self)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Nothing is inherited from it."""
        return ()


def _another(one: Stub, *given: object, **named: object) -> Stub:
    return Stub(one.__name__, one.__truth__)


async def _another_later(one: Stub) -> Stub:
    return _another(one)


def _nothing(one: Stub, *given: object) -> None:
    """Of a block that it manages too: exceptions go on."""


async def _nothing_later(one: Stub, *given: object) -> None:
    """The same for ``async with``."""


def _truth(one: Stub, *given: object) -> bool:
    return one.__truth__


def _number(one: Stub) -> int:
    return int(one.__truth__)


def _fraction(one: Stub) -> float:
    return float(one.__truth__)


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
for _answer, _names in (
    (_another, f"call getitem enter neg pos abs invert round {_BINARY} r{_BINARY.replace(' ', ' r')}"),
    (_another_later, "aenter"),
    (_nothing, "setitem delitem exit"),
    (_nothing_later, "aexit"),
    (_truth, "bool eq ne lt le gt ge contains"),
    (_number, "len int index"),
    (_fraction, "float"),
):
    for _name in _names.split():
        setattr(Stub, f"__{_name}__", _answer)
