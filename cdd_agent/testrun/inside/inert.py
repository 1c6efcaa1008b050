"""The stub for a missing name: it accepts every operation and has no effect.

cdd copies the text of this module into modules of a clean copy, where the project's Python runs it. It is therefore
Python 3.8 without further imports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator


class Stub:
    """An object that can be called, indexed, iterated, awaited, entered and computed with, and returns more stubs.

    Its truth value and all its comparisons are ``truth``. Other uses, such as opening it as a file, raise.
    """

    def __init__(self, name: str, truth: bool) -> None:
        """Create a stub; ``name`` appears in the node ids of tests that have it as a parameter."""
        self.__name__ = name
        self.__truth__ = truth

    def __getattr__(self, name: str) -> Stub:
        """Return the same stub for a name each time, and no special methods."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = Stub(name, self.__truth__)
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

    def __await__(self) -> Generator[None, None, Stub]:
        """Return a stub at once."""
        yield from ()
        return _make_another(self)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """Add no base class, so a class can name a stub as its base."""
        return ()


def _make_another(one: Stub, *given: object, **named: object) -> Stub:
    return Stub(one.__name__, one.__truth__)


async def _make_another_later(one: Stub) -> Stub:
    return _make_another(one)


def _do_nothing(one: Stub, *given: object) -> None:
    """Return None, which as the result of ``__exit__`` lets exceptions propagate."""


async def _do_nothing_later(one: Stub, *given: object) -> None:
    """Return None, for ``async with``."""


def _get_truth(one: Stub, *given: object) -> bool:
    return one.__truth__


def _get_number(one: Stub) -> int:
    return int(one.__truth__)


def _get_fraction(one: Stub) -> float:
    return float(one.__truth__)


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
for _answer, _names in (
    (_make_another, f"call getitem enter neg pos abs invert round {_BINARY} r{_BINARY.replace(' ', ' r')}"),
    (_make_another_later, "aenter"),
    (_do_nothing, "setitem delitem exit"),
    (_do_nothing_later, "aexit"),
    (_get_truth, "bool eq ne lt le gt ge contains"),
    (_get_number, "len int index"),
    (_get_fraction, "float"),
):
    for _name in _names.split():
        setattr(Stub, f"__{_name}__", _answer)
