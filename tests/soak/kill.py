"""``kill -9`` at every write of a whole ``cdd exec``, and at random: what is gone on with ends as if nothing had been.

By hand: ``python -m tests.soak.kill every_write 50``, or ``random_kills 200``, or ``random_signals 200``.
"""

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.figures import Figures
from tests.soak.kill_points import Point, points_of, why_not
from tests.soak.kill_stage import LONGEST_S, Stage, Trial, build

_CHAIN = 40
"""Kills that one project takes at most before it is gone on with to its end."""


def every_write(limit: int | None, share: int | None = None) -> Figures:
    """Kill a run at each call that changes a file or starts a command; ``limit``: at so many of them, evenly spread.

    Each of two processes, whose ``share`` is 0 or 1, takes every other one.
    """
    cannot = why_not()
    if cannot:
        return Figures(tried=0, cannot=cannot)
    with _staged() as stage:
        counted = stage.trial("counted")
        points = points_of(counted)
        counted.drop()
        picked = points if limit is None else _spread(points, limit)
        picked = picked if share is None else picked[share::2]
        tally = _Tally(stage)
        for point in picked:
            trial = stage.trial("trial")
            with trial.start(*point.fails_with("signal=SIGKILL")) as process:
                _, errors = process.communicate()
            problems = _after_end(trial, process.returncode, errors, sent=signal.SIGKILL)
            problems += _after_resume(trial, stage)
            tally.count(problems, example=str(point))
            trial.drop()
        return tally.figures(kind="kills", notes=(f"points of a run: {len(points)}, killed at {len(picked)} of them",))


def random_kills(count: int, seed: int) -> Figures:
    """Kill runs ``count`` times at random moments; a project is killed again and again while it is gone on with."""
    return _ended_at_random(count, seed, signals=(signal.SIGKILL,))


def random_signals(count: int, seed: int) -> Figures:
    """Tell runs ``count`` times at random moments to end, as Ctrl-C, ``kill`` or a closed terminal does."""
    return _ended_at_random(count, seed, signals=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def _ended_at_random(count: int, seed: int, *, signals: tuple[signal.Signals, ...]) -> Figures:
    chance = random.Random(seed)
    with _staged() as stage:
        tally = _Tally(stage)
        chains = 0
        while tally.tried < count:
            chains += 1
            trial, problems, moments = stage.trial("trial"), list[str](), list[str]()
            for _ in range(min(_CHAIN, count - tally.tried)):
                sent = chance.choice(signals)
                after_s = 0.1 + chance.random() * chance.random() * stage.whole_s
                moments.append(f"{sent.name} {after_s:.2f} s")
                code, errors, took_s = _ended(trial, after_s=after_s, sent=sent)
                problems += _after_end(trial, code, errors, sent=sent)
                tally.count([], example="", took_s=took_s)
                if code == 0 or problems:
                    break
            problems += _after_resume(trial, stage)
            tally.spoil(problems, example=f"seed {seed}, chain {chains}, ended by {', '.join(moments)}")
            trial.drop()
        return tally.figures(kind="ends", notes=(f"projects taken to their end: {chains}",))


class _Tally:
    """What was tried, what broke, and how long it took."""

    def __init__(self, stage: Stage) -> None:
        self.tried = 0
        self._bad = 0
        self._example = ""
        self._durations_s: list[float] = []
        self._began = time.monotonic()
        self._whole_s = stage.whole_s

    def count(self, problems: list[str], *, example: str, took_s: float = 0.0) -> None:
        """Count one end, which came ``took_s`` after the signal."""
        self.tried += 1
        self._durations_s.append(took_s)
        self.spoil(problems, example=example)

    def spoil(self, problems: list[str], *, example: str) -> None:
        if problems:
            self._bad += 1
            self._example = self._example or f"{example}: {'; '.join(problems)}"
            sys.stderr.write(f"{example}: {'; '.join(problems)}\n")

    def figures(self, *, kind: str, notes: tuple[str, ...]) -> Figures:
        took = time.monotonic() - self._began
        ordered = sorted(self._durations_s) or [0.0]
        each_s = took / max(self.tried, 1)
        cost = f"{each_s:.1f} s for each of {self.tried} {kind}; an undisturbed run: {self._whole_s:.1f} s"
        return Figures(
            tried=self.tried,
            bad=self._bad,
            example=self._example,
            slowest_s=ordered[-1],
            p99_s=ordered[int(0.99 * (len(ordered) - 1))],
            notes=(*notes, cost),
        )


@contextlib.contextmanager
def _staged() -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="cdd-soak-"))
    try:
        yield build(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ended(trial: Trial, *, after_s: float, sent: signal.Signals) -> tuple[int, bytes, float]:
    """Exit code and errors of a run that gets a signal after some time, unless it has ended by then.

    And the seconds from the signal to the end.
    """
    took_s = 0.0
    with trial.start() as process:
        try:
            _, errors = process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            sent_at = time.monotonic()
            process.send_signal(sent)
            process.wait(timeout=LONGEST_S)
            took_s = time.monotonic() - sent_at
            _, errors = process.communicate()
    return process.returncode, errors, took_s


def _after_end(trial: Trial, code: int, errors: bytes, *, sent: signal.Signals) -> list[str]:
    """What is wrong with the way a run ended, with the files it left and with what it had started."""
    in_order = code == 128 + sent and b"Traceback" not in errors
    untold = code == -sent  # killed, or before the program has heard of signals
    said = [] if code == 0 or in_order or untold else [f"exit {code}: {errors.decode(errors='replace')}"]
    return said + trial.torn() + trial.survivors()


def _after_resume(trial: Trial, stage: Stage) -> list[str]:
    """What differs, once the run was gone on with, from one that nothing disturbed."""
    failed = trial.finish()
    if failed:
        return [failed]
    end = trial.end()
    differing = [] if end == stage.expected else [f"ended as {end} instead of {stage.expected}"]
    return differing + [f"left over: {name}" for name in trial.leftovers()] + trial.torn()


def _spread(points: tuple[Point, ...], limit: int) -> tuple[Point, ...]:
    """At most ``limit`` of the points, from the first to the last."""
    step = max(1.0, len(points) / limit)
    return tuple(points[int(index * step)] for index in range(min(limit, len(points))))


if __name__ == "__main__":
    name, number = sys.argv[1], int(sys.argv[2])
    at_random = {"random_kills": random_kills, "random_signals": random_signals}.get(name)
    found = every_write(number or None) if at_random is None else at_random(number, seed=int(time.time()))
    sys.stdout.write(f"{found}\n")
