"""The artifact of GREEN on its own: what was made, and what the tests said last. Read and written as JSON."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal, TypeAlias

import msgspec

from cdd_agent.bounds import json_source
from cdd_agent.errors import DocumentError, GateClosed, Problem
from cdd_agent.work.state_file import writable
from pytest_tdd_agent.failure import KINDS

LIMIT_BYTES = 50_000_000

Status: TypeAlias = Literal["passed", "failed", "error", "skipped"]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Scope: TypeAlias = Literal["all", "target_files", "targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFiles:
    """What the commit holds, relative to the work tree; empty if everything was taken back."""

    created: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One test of the last run, or a file that could not be collected."""

    name: str
    """Its node id."""
    status: Status
    message: str = ""
    """Why it did not pass."""
    kind: str | None = None
    """One of ``pytest_tdd_agent.failure.KINDS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The last run of tests that judged an iteration; before the first one, the run that showed them failing."""

    passed: Count
    failed: Count
    errors: Count
    skipped: Count
    """Expected failures too."""
    total: Count
    test_details: tuple[Detail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A class or function that the commit adds to a module."""

    name: str
    file_path: str
    type: Literal["class", "function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenArtifact:
    """What one run of GREEN came to."""

    v: Literal[1] = 1
    spec_id: str
    request_id: str
    targets: tuple[str, ...]
    """The tests that were to pass."""
    test_files: tuple[str, ...]
    """The files they are in."""
    outcome: Literal["green", "partial", "failed", "blocked"]
    """All targets pass; some do and that is kept; all is taken back; the model gave up and all is taken back."""
    implementation_files: ChangedFiles
    components: tuple[Component, ...]
    commit: str | None
    iterations: Count
    scope: Scope
    """Which tests the last run ran: all, those in the files of the targets, or the targets alone."""
    test_results: Results
    passing_tests: Count
    all_tests_pass: bool
    """Whether it is green, nothing of the last run failed, and something passed."""
    error: str | None = None
    """Why it is not green."""

    def require_green(self, again: str) -> None:
        """Raise ``GateClosed`` unless all targets pass; ``again`` is the command that tries once more."""
        if self.error is None:
            return
        if self.outcome == "blocked":
            raise GateClosed(f"{self.error}.", hint=f"change the tests, or what stands in the way, then: {again}")
        left = "what fails still can be tried again by name" if self.outcome == "partial" else f"try again: {again}"
        raise GateClosed(f"{self.error}.", hint=left)


def problems(artifact: GreenArtifact) -> Iterator[str]:
    """What in an artifact contradicts itself."""
    results = artifact.test_results
    counts: Counter[str] = Counter(detail.status for detail in results.test_details)
    told = {"passed": results.passed, "failed": results.failed, "error": results.errors, "skipped": results.skipped}
    for status, number in told.items():
        if counts[status] != number:
            yield f"test_results says {number} {status}, test_details has {counts[status]}"
    if results.total != len(results.test_details):
        yield f"test_results.total is {results.total}, test_details has {len(results.test_details)}"
    if artifact.passing_tests != results.passed:
        yield f"passing_tests is {artifact.passing_tests}, test_results.passed is {results.passed}"
    if artifact.all_tests_pass != (artifact.outcome == "green" and all_pass(results)):
        yield f"all_tests_pass is {artifact.all_tests_pass}, which outcome and test_results contradict"
    if (artifact.outcome == "green") != (artifact.error is None):
        yield f"the outcome is {artifact.outcome} and the error is {artifact.error!r:.80}"
    if (artifact.commit is not None) != (artifact.outcome in ("green", "partial")):
        yield f"the outcome is {artifact.outcome} and the commit is {artifact.commit}"
    yield from _odd_values(artifact)


def _odd_values(artifact: GreenArtifact) -> Iterator[str]:
    """Values that this program would not have written."""
    if not artifact.targets or not artifact.spec_id or not artifact.request_id:
        yield "targets, spec_id and request_id have to say something"
    for detail in artifact.test_results.test_details:
        if detail.kind is not None and detail.kind not in KINDS:
            yield f"{detail.name} has the kind {detail.kind!r:.40}, which is none"
        if detail.kind is not None and detail.status in ("passed", "skipped"):
            yield f"{detail.name} is {detail.status} and has the kind of a failure"
    files = artifact.implementation_files
    for path in (*files.created, *files.edited, *files.deleted, *artifact.test_files):
        if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            yield f"{path!r:.80} is no path in the project"


def all_pass(results: Results) -> bool:
    """Whether nothing failed and something passed."""
    return not (results.failed or results.errors) and results.passed > 0


def encode(artifact: GreenArtifact) -> bytes:
    """``artifact`` as indented JSON; text that UTF-8 cannot hold is escaped."""
    return msgspec.json.format(encode_line(artifact), indent=2) + b"\n"


def encode_line(artifact: GreenArtifact) -> bytes:
    """``artifact`` as JSON on one line; raises ``ValueError`` for one that contradicts itself."""
    found = list(problems(artifact))
    if found:
        raise ValueError("; ".join(found))
    return msgspec.json.encode(writable(msgspec.to_builtins(artifact)))


def encode_event(artifact: GreenArtifact) -> bytes:
    """``artifact`` as a program is told it, among events: JSON on one line."""
    return msgspec.json.encode({"event": "GreenArtifact", "artifact": msgspec.Raw(encode_line(artifact))})


def decode(data: bytes, *, path: str) -> GreenArtifact:
    """The artifact in ``data``; ``DocumentError`` with all that is wrong with it."""
    try:
        json_source.check(data.decode("utf-8"), limit_bytes=LIMIT_BYTES)
        artifact = msgspec.json.decode(data, type=GreenArtifact)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DocumentError(path, (Problem(line=0, message=str(error)),), hint=_HINT) from error
    found = tuple(Problem(line=0, message=problem) for problem in problems(artifact))
    if found:
        raise DocumentError(path, found, hint=_HINT)
    return artifact


_HINT = "see the form: cdd schema green-artifact"


def schema() -> bytes:
    """The JSON Schema of an artifact."""
    made = msgspec.json.schema(GreenArtifact)
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cdd green-artifact"}
    return msgspec.json.format(msgspec.json.encode(about | made), indent=2) + b"\n"
