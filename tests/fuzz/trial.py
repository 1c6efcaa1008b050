"""A reader tried with many inputs: which exceptions it may raise, what must hold of its results, how long it takes.

Each input has a random generator of its own, made from seed and index, so that any one can be had again:
``python -m tests.fuzz plan --seed 7 --index 12``.
"""

import signal
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import thread_time
from types import FrameType
from typing import Generic, TypeVar

from tests.fuzz.figures import Figures

T = TypeVar("T")

CORPUS = Path(__file__).parent / "corpus"
PATIENCE_S = 20.0
"""After this much time an input is given up, and counted as bad."""


class Broken(AssertionError):
    """A law of the reader does not hold for an input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Generic[T]):
    """A reader and how to try it."""

    make: Callable[[Random], T]
    read: Callable[[T], object]
    """Calls the reader, then checks the laws of what it returns; raises ``Broken`` where one does not hold."""
    allowed: tuple[type[Exception], ...]
    """What the reader is documented to raise."""
    corpus: tuple[T, ...] = ()
    """Inputs that were read wrongly once; they come first, whatever the seed."""

    def input(self, seed: int, index: int) -> T:
        """The input number ``index`` of ``seed``."""
        if index < len(self.corpus):
            return self.corpus[index]
        return self.make(Random((seed << 32) + index))

    def run(self, count: int, seed: int) -> Figures:
        """Try ``count`` inputs and the whole corpus."""
        taken = array("d")
        bad, example = 0, ""
        for index in range(max(count, len(self.corpus))):
            given = self.input(seed, index)
            started = thread_time()
            wrong = self.judge(given)
            taken.append(thread_time() - started)
            if wrong:
                bad += 1
                example = example or f"seed {seed}, index {index}: {wrong}; input {shown(given)}"
        ordered = sorted(taken)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return Figures(tried=len(ordered), bad=bad, example=example, slowest_s=ordered[-1], p99_s=p99)

    def judge(self, given: T) -> str:
        """What is wrong with how ``given`` is read; empty if nothing is."""
        try:
            with deadline(PATIENCE_S):
                self.read(given)
        except self.allowed:
            return ""
        except Exception as error:  # noqa: BLE001 - any other exception is what is looked for
            return f"{type(error).__name__}: {error!s:.200}"
        return ""


def shown(given: object) -> str:
    """The beginning of an input, or why it cannot be shown."""
    try:
        return f"{given!r:.300}"
    except (ValueError, RecursionError) as error:
        return f"({error!s:.80})"


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise ``TimeoutError`` in what takes longer; without effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stored(name: str) -> tuple[bytes, ...]:
    """The inputs that are kept for a reader, in the order of their file names."""
    return tuple(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))


def stored_texts(name: str) -> tuple[str, ...]:
    """The same as texts, lone surrogates included."""
    return tuple(data.decode("utf-8", "surrogatepass") for data in stored(name))
