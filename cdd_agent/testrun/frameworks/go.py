"""Go: runs ``go test -json``, and reads its events and the compiler's messages between them."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults
from cdd_agent.testrun.frameworks.sources import Language, Meaning, Sources, classify, match_path, read_text
from pytest_tdd_agent.report import Case, Failure

MANIFEST = "go.mod"

is_test = match_path(r"_test\.go$|(?:^|/)testdata/")
_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_TEST = re.compile(r"(?:Test|Fuzz|Example|Benchmark)\w*")
_MODULE = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_ERROR = re.compile(
    r"^(?:vet: )?(?P<path>[^\s:][^:\n]*\.go):(?P<line>\d+):(?:\d+:)? (?P<message>[^\n]+(?:\n\t[^\n]+)*)", re.MULTILINE
)
_CANNOT_BUILD = re.compile(r"^FAIL\t(?P<package>\S+) \[(?P<why>build|setup) failed\]", re.MULTILINE)
_STATUS = re.compile(r"FAIL|exit status")
_LOGGED = re.compile(r"^ {4,}(?P<file>[\w.-]+\.go):(?P<line>\d+): (?P<message>.*)$", re.MULTILINE)
_FRAME = re.compile(r"^(?P<function>\S[^(\n]*).*\n\t(?P<path>/.+\.go):(?P<line>\d+)", re.MULTILINE)
_PANIC = re.compile(r"^panic: (?P<message>.*?)(?: \[recovered\].*)?$", re.MULTILINE)


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each package, by its folder and as it is imported.

    A test in the same folder as a source can use any of its names, so also yield all words of such a test.
    """
    module = _read_module(root)
    folders = {posixpath.dirname(source) for source in sources if source.endswith(".go")}
    for folder in sorted(folders):
        path = posixpath.join(module, folder).rstrip("/")
        yield from (path, posixpath.basename(path))
    for test in tests:
        if posixpath.dirname(test) in folders:
            yield from _IDENTIFIER.findall(read_text(root / test))


def build_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for the packages of ``files``."""
    folders = [file.rpartition("/")[0] if file.endswith(".go") else f"{file}/..." for file in files]
    packages = dict.fromkeys(f"./{folder}" if folder not in ("", "/...", "./...") else "./." for folder in folders)
    return ("-json", "-count=1", *(packages or ("./...",)))


class _GoEvent(msgspec.Struct, rename="pascal"):
    action: str
    package: str = ""
    test: str = ""
    output: str = ""
    elapsed: float = 0.0


@dataclass(slots=True)
class _GoTest:
    """The events of a test, or of a package if it has no name."""

    package: str
    name: str
    action: str = ""
    """The last one: ``run`` if the test has begun and not ended."""
    seconds: float = 0.0
    lines: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        """The printed lines together."""
        return "".join(self.lines)


def _collect_events(output: str) -> tuple[list[_GoTest], str]:
    """Return tests and packages in the order in which they ended, and the lines of the compiler in between."""
    found: dict[tuple[str, str], _GoTest] = {}
    compiler: list[str] = []
    for line in output.splitlines(keepends=True):
        try:
            event = msgspec.json.decode(line, type=_GoEvent) if line.startswith("{") else None
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            event = None
        if event is None or event.action == "build-output":
            compiler.append(line if event is None else event.output)
            continue
        key = (event.package, event.test)
        test = found.setdefault(key, _GoTest(*key))
        if event.action == "output":
            test.lines.append(event.output)
            if not event.test and _CANNOT_BUILD.match(event.output):
                compiler.append(event.output)
        elif event.action in ("run", *_OUTCOMES):
            test.action, test.seconds = event.action, event.elapsed
            found[key] = found.pop(key)
    return list(found.values()), "".join(compiler)


def read(run: FinishedRun) -> ParsedResults:
    """Read the tests of each package, and the packages that cannot be built."""
    events, compiler = _collect_events(run.plain_output)
    sources, module = Sources(run.root, LANGUAGE), _read_module(run.root)
    errors = sources.read_errors(compiler)
    unbuilt = [match["package"] for match in _CANNOT_BUILD.finditer(compiler)]
    problems = [f"package {name} cannot be built: {compiler.strip()[:500]}" for name in unbuilt if not errors]
    locate = cache(lambda folder: dict(_locate_tests(folder, sources)))
    failed = {event.package for event in events if not event.name and event.action == "fail"}
    tests, explained = list[Case](), set(unbuilt)
    for event in (event for event in events if event.name and event.action):
        if event.action == "run" and event.package not in failed:
            problems.append(f"{event.name} of {event.package} began and has no result")
            continue
        # A panic ends the process: the test has begun, its package has failed, and no event says how the test ended.
        outcome = _OUTCOMES.get(event.action, "failed")
        folder = event.package.removeprefix(module).strip("/") if event.package.startswith(module) else event.package
        file, at = locate(folder).get(event.name.partition("/")[0], (folder or ".", 0))
        failure = _describe_failure(event.output, file=file, sources=sources) if outcome == "failed" else None
        tests.append(Case(f"{file}::{event.name}", outcome, file, at, event.seconds, failure=failure))
        explained |= {event.package} if failure else set()
    # Such a package failed without a failed test: its ``TestMain`` or ``init`` exited.
    for event in (event for event in events if not event.name and event.package in failed - explained):
        said = [text for line in event.output.splitlines() if (text := line.strip()) and not _STATUS.match(line)]
        problems.append(f"package {event.package} failed outside of its tests: {said[-1] if said else 'no output'}")
    explained_tests, problem = tuple(_explain_parents(tests)), "; ".join(sorted(problems)) or None
    found = ParsedResults(tests=explained_tests, collect_errors=errors, problem=problem)
    return run.conclude(found, f"go ended without a result: {run.output.strip()[:500] or 'no output'}")


def _explain_parents(tests: list[Case]) -> Iterator[Case]:
    """Yield the tests; a test that failed only because of a subtest gets the subtest's failure."""
    failures = {case.nodeid: case.failure for case in reversed(tests) if case.failure and case.failure.message}
    for case in tests:
        if case.failure is None or case.failure.message:
            yield case
            continue
        found = [failure for nodeid, failure in failures.items() if nodeid.startswith(case.nodeid + "/")]
        yield replace(case, failure=[replace(case.failure, message="it failed without a message"), *found][-1])


def _read_module(root: Path) -> str:
    found = _MODULE.search(read_text(root / MANIFEST))
    return found[1] if found else ""


def _locate_tests(folder: str, sources: Sources) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the tests of a package, each with its file and line; events name only the package."""
    for path in sources.files():
        if is_test(path) and path.rpartition("/")[0] == folder:
            text = sources.text(path)
            for match in re.finditer(rf"^func ({_TEST.pattern})\(", text, re.MULTILINE):
                yield match[1], (path, text.count("\n", 0, match.start()) + 1)


def _describe_failure(text: str, *, file: str, sources: Sources) -> Failure:
    if panic := _PANIC.search(text):
        kind = classify("go.panic", panic["message"]).kind
        # The goroutine that panicked is printed first.
        calls = sources.list_calls(_FRAME, text.partition("goroutine ")[2].partition("\n\n")[0])
        return sources.describe_failure(kind, panic["message"], text=text, calls=calls, exception="panic")
    logged = list(_LOGGED.finditer(text))
    if not logged:
        lines = (line.strip() for line in text.splitlines())
        message = "\n".join(line for line in lines if line and not line.startswith(("=== ", "--- ")))
        return sources.describe_failure("assertion", message, text=text)
    message = "\n".join(match["message"] for match in logged)
    folder = file.rpartition("/")[0] if file.endswith(".go") else file
    path = sources.find_own(f"{folder}/{logged[-1]['file']}" if folder else logged[-1]["file"])
    failure = sources.describe_failure("assertion", message, text=text)
    return replace(failure, path=path, line=int(logged[-1]["line"]) if path else None)


def _explain(sources: Sources, match: re.Match[str]) -> Meaning:
    missing, module = classify("go.compiler", match["message"], default="collection_error"), _read_module(sources.root)
    if missing.name is None or missing.kind != "missing_module" or not module:
        return missing
    return missing._replace(is_own=missing.name.startswith(module))


LANGUAGE = Language(suffixes=(".go",), built=("vendor",), is_test=is_test, error=_ERROR, explain=_explain)
