"""The report of a test run, which any test may have written: ``ReportError`` or counts that add up."""

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random

from cdd_agent.model.conversation import JSON
from pytest_tdd_agent.codec import ReportError, case_from_line, dump, failure_from_line, load
from pytest_tdd_agent.recording.assembly import Assembler
from pytest_tdd_agent.recording.spool import find_running_tests
from pytest_tdd_agent.report import OUTCOMES, count_outcomes
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_bytes, as_json, bent, nested, pick, text, value
from tests.fuzz.trial import Broken, Target, stored

_TOKENS = (
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    "null",
    "1e999",
    "NaN",
    "-1",
    "9" * 400,
    "9" * 5000,
    '"schema":1,',
    '"passed"',
    "\\ud800",
    "\0",
)


def _maybe(random: Random, usual: JSON) -> JSON:
    return usual if random.random() < 0.985 else value(random)


def _failure(random: Random) -> JSON:
    frame: JSON = {"path": "a.py", "line": _maybe(random, 3), "function": "f"}
    return {
        "phase": _maybe(random, pick(random, ("setup", "call", "teardown", "collect"))),
        "kind": "assertion",
        "origin": _maybe(random, pick(random, ("test", "project", "third_party"))),
        "exception": "AssertionError",
        "message": _maybe(random, text(random)),
        "missing_name": _maybe(random, None),
        "path": "a.py",
        "line": _maybe(random, 3),
        "frames": _maybe(random, [frame] * random.randint(0, 2)),
        "text": text(random),
    }


def _case(random: Random) -> dict[str, JSON]:
    outcome = pick(random, OUTCOMES)
    return {
        "nodeid": _maybe(random, f"tests/test_a.py::test_{random.randint(0, 9)}"),
        "outcome": _maybe(random, outcome),
        "file": "tests/test_a.py",
        "line": _maybe(random, 3),
        "duration_s": _maybe(random, 0.25),
        "phases": _maybe(random, {"setup": 0.1, "call": _maybe(random, 0.1), "teardown": 0}),
        "reruns": _maybe(random, random.randint(0, 1)),
        "failure": _failure(random) if outcome in ("failed", "error") else _maybe(random, None),
    }


def make(random: Random) -> bytes:
    """A report, a line of its tests or of its stream, most often bent."""
    cases = [_case(random) for _ in range(random.randint(0, 3))]
    counts: dict[str, JSON] = {name: sum(case["outcome"] == name for case in cases) for name in OUTCOMES}
    flaky = sum(case["outcome"] == "passed" and case["reruns"] == 1 for case in cases)
    tests: list[JSON] = [*cases]
    document: JSON = {
        "schema": _maybe(random, 1),
        "complete": _maybe(random, True),
        "exit_status": _maybe(random, 0),
        "nonce": "n",
        "python": "3.11",
        "pytest": "9",
        "rootdir": "/p",
        "started_at": "t",
        "duration_s": _maybe(random, 1.5),
        "gate": _maybe(random, None),
        "collect_errors": _maybe(
            random, [{"nodeid": "a", "failure": _failure(random)}] if random.random() < 0.2 else []
        ),
        "fingerprints": _maybe(random, {"a.py": "abc"}),
        "summary": _maybe(random, {**counts, "collected": len(cases), "deselected": 0, "flaky": flaky}),
        "tests": _maybe(random, tests),
    }
    kind = random.random()
    if kind < 0.2:
        document = _case(random)
    elif kind < 0.3:
        document = {
            "event": pick(random, ("begin", "test", "retry")),
            "nodeid": _maybe(random, "a::b"),
            "outcome": "passed",
        }
    elif kind < 0.32:
        document = value(random)
    written = as_json(random, document)
    if random.random() < 0.01:
        written = '{"schema": 1, "summary": ' + nested(random, pick(random, ("[", '{"a":')), closing="]")
    return as_bytes(random, bent(random, written, tokens=_TOKENS) if random.random() < 0.5 else written)


@cache
def _folder() -> Path:
    """A folder in memory, for this process."""
    memory = Path("/dev/shm")
    made = tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def read(data: bytes) -> None:
    """Load it as a report, and its lines as those of a spool, a stream and records."""
    find_running_tests(data.splitlines())
    assembler = Assembler("n")
    assembler.feed(data)
    recording = assembler.finish()
    if recording.problem is None:
        raise Broken("records without a digest are trusted")
    for line in data.decode("utf-8", "replace").splitlines():
        for read_line in (case_from_line, failure_from_line):
            with suppress(ReportError):
                read_line(line)
    path = _folder() / "report.json"
    path.write_bytes(data)
    report = load(path)
    counts = count_outcomes(report)
    if sum(counts[outcome] for outcome in OUTCOMES) != len(report.tests):
        raise Broken("the counts do not add up")
    dump(report, path)
    if load(path) != report:
        raise Broken("the report is another one after it was written")


TARGET = Target(make=make, read=read, allowed=(ReportError,), corpus=stored("report"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` files."""
    return TARGET.run(count, seed)
