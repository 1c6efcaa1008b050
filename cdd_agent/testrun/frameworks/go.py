"""Go: reads the events of ``go test -json``, and the compiler's messages, which older versions print between them."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.testrun.frameworks.framework import FinishedRun, Results
from cdd_agent.testrun.frameworks.sources import (
    CompilerError,
    Sources,
    collect_errors,
    own_frames,
    read_text,
    shorten,
    split_target,
    strip_terminal_codes,
    unique,
)
from pytest_tdd_agent.failure import MESSAGE_CAP
from pytest_tdd_agent.report import Case, Failure, Frame

MANIFEST = "go.mod"

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
_RULES = (
    (r"(?P<name>[\w.]+) undefined \(type (?P<owner>[\w.*\[\]]+) has no ", "attribute_error"),
    (r"unknown field '?(?P<name>\w+)'? in struct literal of type (?P<owner>[\w.]+)", "attribute_error"),
    (r"undefined: (?P<name>\w+\.\w+)", "attribute_error"),
    (r"(?P<name>\w+\.\w+) undefined", "attribute_error"),
    (r"undefined: (?P<name>\w+)", "name_error"),
    (r"undeclared name: (?P<name>\w+)", "name_error"),
    (r"(?:not enough|too many) arguments in call to (?P<name>[\w.]+)", "signature_mismatch"),
    (
        r"(?:no required module provides package|cannot find module providing package|package) (?P<name>[^\s:;]+)",
        "missing_module",
    ),
    (r"(?:syntax error|expected |missing |illegal |unexpected )", "syntax_error"),
)
"""Beginning of a compiler message -> kind."""
_NOT_IMPLEMENTED = re.compile(r"(?:not (?:yet )?implemented|unimplemented|todo)\b", re.IGNORECASE)


def is_test(path: str) -> bool:
    """Return whether a file holds tests or their data."""
    return path.endswith("_test.go") or "testdata" in path.split("/")[:-1]


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each package, by its folder and as it is imported.

    A test in the same folder as a source may use any of its names, so all words of such a test are listed too.
    """
    module = _read_module(root)
    folders = {posixpath.dirname(source) for source in sources if source.endswith(".go")}
    for folder in sorted(folders):
        path = posixpath.join(module, folder) if module else folder
        yield path.rstrip("/")
        yield posixpath.basename(path.rstrip("/"))
    for test in tests:
        if posixpath.dirname(test) in folders:
            yield from _IDENTIFIER.findall(read_text(root / test))


def build_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for the packages of ``targets``, and for tests by name if each target names one.

    Subtests are selected by their parent.
    """
    parts = [split_target(target) for target in targets]
    folders = [file.rpartition("/")[0] if file.endswith(".go") else f"{file}/..." for file, _ in parts]
    packages = unique(f"./{folder}" if folder not in ("", "/...", "./...") else "./." for folder in folders)
    names = unique(name.partition("/")[0].partition(" > ")[0] for _, name in parts)
    is_exact = all(_TEST.fullmatch(name) for name in names) and names
    chosen = ("-run", f"^({'|'.join(names)})$") if is_exact else ()
    return ("-json", "-count=1", *chosen, *(packages or ("./...",)))


class _Event(msgspec.Struct, rename="pascal"):
    """One line of ``go test -json``."""

    action: str
    package: str = ""
    test: str = ""
    output: str = ""
    elapsed: float = 0.0
    import_path: str = ""


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class _Events:
    """The events of a run, sorted. Tests are (package, test)."""

    ended: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """Test -> action and seconds, in the order in which they ended."""
    begun: dict[tuple[str, str], bool] = field(default_factory=dict)
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
            self.begun[key] = True
        elif event.action in _OUTCOMES:
            if event.test:
                self.ended[key] = (event.action, event.elapsed)
            else:
                self.packages[event.package] = event.action

    @property
    def compiler(self) -> str:
        """The compiler's messages."""
        return "".join(self.compiler_lines)

    def silent_packages(self) -> list[str]:
        """Return a problem for each package that failed without a failed test: its ``TestMain`` or ``init`` exited."""
        failed = {package for (package, _), (action, _) in self.ended.items() if action == "fail"}
        failed |= {package for package, _ in self.begun.keys() - self.ended.keys()}
        return [
            f"package {package} failed outside of its tests: {_last_line(self.output.get((package, ''), []))}"
            for package, action in self.packages.items()
            if action == "fail" and package not in failed and not self._is_unbuilt(package)
        ]

    def _is_unbuilt(self, package: str) -> bool:
        printed = "".join(self.output.get((package, ""), [])) + self.compiler
        return any(match["package"] == package for match in _CANNOT_BUILD.finditer(printed))


def _last_line(lines: list[str]) -> str:
    printed = [line.strip() for line in lines if line.strip() and not line.startswith(("FAIL", "exit status"))]
    return printed[-1] if printed else "no output"


def read(run: FinishedRun) -> Results:
    """Read the tests of each package, and the packages that cannot be built."""
    events = _Events()
    for line in strip_terminal_codes(run.output).splitlines(keepends=True):
        events.add(line)
    sources = Sources(run.root, suffixes=(".go",), built=("vendor",))
    module = _read_module(run.root)
    places = _Places(sources, module)
    ended = dict(events.ended)
    unfinished = [key for key in events.begun if key not in ended]
    # A panic ends the process: the test has begun, its package has failed, and no event says how the test ended.
    ended |= {key: ("fail", 0.0) for key in unfinished if events.packages.get(key[0]) == "fail"}
    tests = [_convert(key, how, output=events.output.get(key, []), places=places) for key, how in ended.items()]
    errors = collect_errors(_parse_compiler(events.compiler, module), sources, is_test=_is_test_source)
    unbuilt = [match["package"] for match in _CANNOT_BUILD.finditer(events.compiler)]
    problems = [f"package {name} cannot be built: {events.compiler.strip()[:500]}" for name in unbuilt if not errors]
    problems += [f"{key[1]} of {key[0]} was begun and has no result" for key in unfinished if key not in ended]
    problems += events.silent_packages()
    if not events.packages and not errors and not problems and run.exit_status:
        problems.append(f"go ended without a result: {run.output.strip()[:500] or 'no output'}")
    return Results(
        tests=tuple(_explain_parents(tests)), collect_errors=errors, problem="; ".join(sorted(problems)) or None
    )


def _explain_parents(tests: list[Case]) -> Iterator[Case]:
    """Yield the tests; one that failed only because a subtest did gets that one's failure."""
    failures = {case.nodeid: case.failure for case in reversed(tests) if case.failure and case.failure.message}
    for case in tests:
        if case.failure is None or case.failure.message:
            yield case
            continue
        found = [failure for nodeid, failure in failures.items() if nodeid.startswith(case.nodeid + "/")]
        unexplained = replace(case.failure, message="it failed and said nothing")
        yield replace(case, failure=found[-1] if found else unexplained)


def _read_module(root: Path) -> str:
    """Return the module's path; empty if it cannot be read."""
    found = _MODULE.search(read_text(root / MANIFEST))
    return found[1] if found else ""


class _Places:
    """Maps tests to files and lines; events name only their package."""

    def __init__(self, sources: Sources, module: str) -> None:
        self.sources = sources
        self._module = module
        self._known: dict[str, dict[str, tuple[str, int]]] = {}

    def find(self, package: str, function: str) -> tuple[str, int]:
        """Return file and line of a test; the package's folder if no file declares it."""
        folder = package.removeprefix(self._module).strip("/") if package.startswith(self._module) else package
        if folder not in self._known:
            self._known[folder] = dict(self._functions(folder))
        return self._known[folder].get(function, (folder or ".", 0))

    def _functions(self, folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
        for path in self.sources.files():
            if path.endswith("_test.go") and path.rpartition("/")[0] == folder:
                text = self.sources.text(path)
                for match in re.finditer(rf"^func ({_TEST.pattern})\(", text, re.MULTILINE):
                    yield match[1], (path, text.count("\n", 0, match.start()) + 1)


def _convert(key: tuple[str, str], ended: tuple[str, float], *, output: list[str], places: _Places) -> Case:
    (package, name), (action, seconds) = key, ended
    file, line = places.find(package, name.partition("/")[0])
    failure = _describe_failure("".join(output), file=file, sources=places.sources) if action == "fail" else None
    return Case(
        nodeid=f"{file}::{name}",
        outcome=_OUTCOMES[action],
        file=file,
        line=line,
        duration_s=seconds,
        failure=failure,
    )


def _describe_failure(text: str, *, file: str, sources: Sources) -> Failure:
    """Return the failure of a test, from what it printed."""
    panic = _PANIC.search(text)
    frames = _parse_frames(text, sources) if panic else ()
    path, line = None, None
    if panic:
        message = panic["message"]
        kind = _classify_panic(message)
        path, line = (frames[-1].path, frames[-1].line) if frames else (None, None)
    else:
        logged = list(_LOGGED.finditer(text))
        kind = "assertion"
        message = "\n".join(match["message"] for match in logged) or _strip_headings(text)
        if logged:
            folder = file.rpartition("/")[0] if file.endswith(".go") else file
            path = sources.own(f"{folder}/{logged[-1]['file']}" if folder else logged[-1]["file"])
            line = int(logged[-1]["line"]) if path else None
    return Failure(
        phase="call",
        kind=kind,
        origin="test" if not panic or path is None or path.endswith("_test.go") else "project",
        exception="panic" if panic else "",
        message=message[:MESSAGE_CAP],
        path=path,
        line=line,
        frames=frames,
        text=shorten(text.strip("\n")),
    )


def _classify_panic(message: str) -> str:
    if message.startswith("test timed out"):
        return "timeout"
    if "stack overflow" in message:
        return "recursion"
    return "not_implemented" if _NOT_IMPLEMENTED.match(message) else "exception"


def _strip_headings(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("=== ", "--- ")))


def _parse_frames(text: str, sources: Sources) -> tuple[Frame, ...]:
    """Return the project's calls of the goroutine that panicked, which is printed first."""
    first = text.partition("goroutine ")[2].partition("\n\n")[0]
    calls = (
        (sources.own(match["path"]), int(match["line"]), match["function"].partition("(")[0])
        for match in _FRAME.finditer(first)
    )
    return own_frames(calls)[0]


def _is_test_source(path: str) -> bool:
    return path.endswith("_test.go")


def _parse_compiler(text: str, module: str) -> Iterator[CompilerError]:
    for match in _ERROR.finditer(text):
        kind, name = _find_missing(match["message"])
        yield CompilerError(
            path=match["path"],
            line=int(match["line"]),
            kind=kind,
            message=match["message"],
            text=match[0],
            missing_name=name,
            is_own=name.startswith(module) if name and kind == "missing_module" and module else None,
        )


def _find_missing(message: str) -> tuple[str, str | None]:
    """Return the kind of an error, and the name that does not exist."""
    for pattern, kind in _RULES:
        if found := re.match(pattern, message):
            parts = found.groupdict()
            name, owner = parts.get("name"), parts.get("owner")
            return kind, f"{owner.lstrip('*')}.{name.rpartition('.')[2]}" if owner and name else name
    return "collection_error", None
