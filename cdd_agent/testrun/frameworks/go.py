"""Go: runs ``go test -json``, and reads its events and the compiler's messages between them."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import msgspec

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults
from cdd_agent.testrun.frameworks.sources import (
    Language,
    Meaning,
    Sources,
    classify,
    match_path,
    read_text,
)
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
_LOGGED = re.compile(r"^ {4,}(?P<file>[\w.-]+\.go):(?P<line>\d+): (?P<message>.*)$", re.MULTILINE)
_FRAME = re.compile(r"^(?P<function>\S.*)\n\t(?P<path>/.+\.go):(?P<line>\d+)", re.MULTILINE)
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


_decode = msgspec.json.Decoder(_GoEvent).decode


@dataclass(slots=True)
class _Events:
    """The events of a run so far. The key of a test is (package, test)."""

    ended: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Test -> action and seconds, in the order in which they ended."""
    begun: list[tuple[str, str]] = field(default_factory=list)
    output: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    """Package -> its last action."""
    compiler_lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Add one line of output; any other line comes from the compiler."""
        try:
            event = _decode(line) if line.startswith("{") else None
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            event = None
        if event is None:
            self.compiler_lines.append(line)
            return
        key = (event.package, event.test)
        if event.action == "build-output":
            self.compiler_lines.append(event.output)
        elif event.action == "output":
            self.output.setdefault(key, []).append(event.output)
            if not event.test and _CANNOT_BUILD.match(event.output):
                self.compiler_lines.append(event.output)
        elif event.action == "run" and event.test:
            self.begun.append(key)
        elif event.action in _OUTCOMES and event.test:
            self.ended[key] = (event.action, event.elapsed)
        elif event.action in _OUTCOMES:
            self.packages[event.package] = event.action

    def list_silent_packages(self) -> list[str]:
        """Return a problem for each package that failed without a failed test: its ``TestMain`` or ``init`` exited."""
        explained = {package for (package, _), (action, _) in self.ended.items() if action == "fail"}
        explained |= {package for package, _ in set(self.begun) - self.ended.keys()}
        compiler, found = "".join(self.compiler_lines), []
        for package, action in self.packages.items():
            lines = self.output.get((package, ""), [])
            unbuilt = (match["package"] for match in _CANNOT_BUILD.finditer("".join(lines) + compiler))
            if action == "fail" and package not in explained and package not in unbuilt:
                said = [line.strip() for line in lines if line.strip() and not line.startswith(("FAIL", "exit status"))]
                found.append(f"package {package} failed outside of its tests: {said[-1] if said else 'no output'}")
        return found


def read(run: FinishedRun) -> ParsedResults:
    """Read the tests of each package, and the packages that cannot be built."""
    events = _Events()
    for line in run.plain_output.splitlines(keepends=True):
        events.add(line)
    sources = Sources(run.root, LANGUAGE)
    module = _read_module(run.root)
    unfinished = [key for key in dict.fromkeys(events.begun) if key not in events.ended]
    # A panic ends the process: the test has begun, its package has failed, and no event says how the test ended.
    died = {key: ("fail", 0.0) for key in unfinished if events.packages.get(key[0]) == "fail"}
    locate = cache(lambda folder: dict(_locate_tests(folder, sources)))
    tests = []
    for key, (action, seconds) in {**events.ended, **died}.items():
        package, name = key
        folder = package.removeprefix(module).strip("/") if package.startswith(module) else package
        file, at = locate(folder).get(name.partition("/")[0], (folder or ".", 0))
        output = "".join(events.output.get(key, []))
        failure = _describe_failure(output, file=file, sources=sources) if action == "fail" else None
        tests.append(Case(f"{file}::{name}", _OUTCOMES[action], file, at, seconds, failure=failure))
    compiler = "".join(events.compiler_lines)
    errors = sources.read_errors(compiler)
    unbuilt = [match["package"] for match in _CANNOT_BUILD.finditer(compiler)]
    problems = [f"package {name} cannot be built: {compiler.strip()[:500]}" for name in unbuilt if not errors]
    problems += [f"{key[1]} of {key[0]} began and has no result" for key in unfinished if key not in died]
    problems += events.list_silent_packages()
    explained, problem = tuple(_explain_parents(tests)), "; ".join(sorted(problems)) or None
    found = ParsedResults(tests=explained, collect_errors=errors, problem=problem)
    return run.conclude(found, lambda: f"go ended without a result: {run.output.strip()[:500] or 'no output'}")


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
        first = text.partition("goroutine ")[2].partition("\n\n")[0]
        calls = (
            (own, int(call["line"]), call["function"].partition("(")[0])
            for call in _FRAME.finditer(first)
            if (own := sources.find_own(call["path"]))
        )
        return replace(sources.describe_failure(kind, panic["message"], text=text, calls=calls), exception="panic")
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
