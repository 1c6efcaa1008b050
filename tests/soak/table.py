"""The parts of the soak: what each tries, how often, and what came of it as rows of one table."""

import importlib
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.fuzz.figures import Figures, merged

Told: TypeAlias = Callable[[str], None]
"""Takes a line of progress."""

PULSE_S = 30.0
_QUICK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing to try."""

    what: str
    place: str
    """``module:function`` that gives the figures."""
    count: int
    """How often, in full; 0: as often as there is something to try."""
    promise: str
    """What must never happen, in a few words."""
    arguments: Literal["count, seed", "limit"] = "count, seed"
    is_split: bool = True
    """Whether two processes may share the work."""
    p99_limit_s: float = 0.0
    """Time that 99 of 100 inputs may take at most; 0: any."""

    def asked(self, *, quick: bool) -> int:
        """How often it is to be tried."""
        return max(10, self.count // _QUICK) if quick else self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of a part."""

    part: Part
    asked: int
    figures: Figures
    took_s: float

    @property
    def verdict(self) -> str:
        """``kept``, ``MISSED`` or ``not run``."""
        if self.figures.cannot:
            return "not run"
        is_slow = 0 < self.part.p99_limit_s < self.figures.p99_s
        return "MISSED" if self.figures.bad or is_slow or self.figures.tried < self.asked else "kept"

    @property
    def found(self) -> str:
        """The figures in a few words."""
        if self.figures.cannot:
            return self.figures.cannot
        times = f", p99 {_shown(self.figures.p99_s)}" if self.figures.p99_s else ""
        times += f", slowest {_shown(self.figures.slowest_s)}" if self.figures.slowest_s else ""
        return f"{self.figures.bad}{times}"


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


_READERS = (
    ("plan.md", "plan", "another exception, a lost byte", 0.005),
    ("spec.yaml", "spec", "another exception, a value that is no text", 0.0),
    ("execution-state.json", "state", "another exception, another state when written", 0.0),
    ("a recording, YAML and JSON", "recording", "another exception, other turns when printed", 0.0),
    ("input of the tools", "tool_input", "an exception", 0.0),
    ("files in an answer, fenced", "blocks", "another exception, a lost byte", 0.005),
    ("planning graphs", "graph", "another exception, another graph when read back, a wrong order", 0.005),
    ("report of a test run", "report", "another exception, counts that do not add up", 0.0),
    (".cdd/config.yaml", "settings", "another exception, a number without end", 0.0),
    ("handoff notes", "notes", "a line torn or lost", 0.0),
    ("answers of language servers", "server_answers", "another exception, a place without the name", 0.0),
)

PARTS = (
    *(
        Part(what=what, place=f"tests.fuzz.parsers.{name}:run", count=100_000, promise=promise, p99_limit_s=limit)
        for what, name, promise, limit in _READERS
    ),
    Part(what="inputs of a megabyte", place="tests.fuzz.large:run", count=1_500, promise="more than 1 s of CPU"),
    Part(what="the model's stream (SSE)", place="tests.fuzz.sse:run", count=100_000, promise="another exception"),
    Part(what="strings as paths", place="tests.fuzz.paths:run", count=1_000_000, promise="an escape"),
    Part(
        what="opens while links are swapped",
        place="tests.fuzz.paths:race",
        count=30_000,
        promise="an escape",
        is_split=False,
    ),
    Part(
        what="output through clean()", place="tests.fuzz.terminal:run", count=1_000_000, promise="a control character"
    ),
    Part(
        what="kill -9 at every write of a run",
        place="tests.soak.kill:every_write",
        count=0,
        promise="a torn file, a step twice or skipped, another tree, a process left behind",
        arguments="limit",
        is_split=False,
    ),
    Part(what="kill -9 at random moments", place="tests.soak.kill:random_kills", count=1_000, promise="as above"),
    Part(
        what="Ctrl-C, TERM and HUP at random moments",
        place="tests.soak.kill:random_signals",
        count=200,
        promise="as above, later than 1 s",
        p99_limit_s=1.0,
    ),
    Part(
        what="a disk that fills up",
        place="tests.soak.table:disks_that_fill_up",
        count=30,
        promise="a torn file, a silent loss",
        is_split=False,
    ),
)


def disks_that_fill_up(count: int, seed: int) -> Figures:
    """Run on ``count`` disks that have nothing to 4 MB of room left; small rooms come more often."""
    from tests.soak.kill_disk import full_disk

    chance = random.Random(seed)
    rooms_kb = (0, *(int(4096 * chance.random() ** 3) for _ in range(count - 1)))
    with tempfile.TemporaryDirectory(prefix="cdd-soak-") as folder:
        return full_disk(Path(folder) / "new", rooms_kb=rooms_kb)


def carried_out(part: Part, *, quick: bool, seed: int, tell: Told) -> Row:
    """Try ``part`` in processes of its own, so that even a crash of the interpreter is a figure."""
    asked = part.asked(quick=quick)
    started = time.monotonic()
    module, _, name = part.place.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return Row(part=part, asked=asked, figures=Figures(tried=0, cannot=f"it is not there: {error}"), took_s=0.0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(function, *arguments) for arguments in _arguments(part, asked, seed=seed, quick=quick)]
        _wait(futures, part, started=started, tell=tell)
        try:
            figures = merged(tuple(future.result() for future in futures))
        except BrokenProcessPool:
            figures = Figures(tried=0, bad=1, example=f"a process died without a word; seed {seed}")
        except Exception as error:  # noqa: BLE001 - the other parts are still to be tried
            figures = Figures(tried=0, bad=1, example=f"seed {seed}: {type(error).__name__}: {error}")
    return Row(part=part, asked=asked, figures=figures, took_s=time.monotonic() - started)


def _arguments(part: Part, asked: int, *, seed: int, quick: bool) -> list[tuple[object, ...]]:
    """The arguments of each call: one, or two that share the count."""
    if part.arguments == "limit":
        limit = asked if quick else None
        return [(limit, share) for share in range(2)] if part.is_split else [(limit,)]
    if part.is_split:
        return [(asked // 2, seed), (asked - asked // 2, seed + 1)]
    return [(asked, seed)]


def _wait(futures: Iterable[Future[Figures]], part: Part, *, started: float, tell: Told) -> None:
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, timeout=PULSE_S)
        if waiting:
            tell(f"    {part.what}: still at it after {time.monotonic() - started:.0f} s")


def printed(rows: Iterable[Row]) -> str:
    """The table, with what is to be said of single rows below."""
    lines = [("what", "tried", "bar: never", "found", "time", "")]
    notes: list[str] = []
    for row in rows:
        took = f"{row.took_s:.0f} s"
        lines.append((row.part.what, f"{row.figures.tried:,}", row.part.promise, row.found, took, row.verdict))
        notes += [f"{row.part.what}: {note}" for note in (*row.figures.notes, row.figures.example) if note]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rules = ["  ".join("-" * width for width in widths)]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([shown[0], *rules, *shown[1:], *([""] if notes else []), *notes])
