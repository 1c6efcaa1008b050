"""``go test -json``: one event a line, and what the compiler says, which older versions print beside them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.sources import Sources, capped, only, plain, split_target
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP
from pytest_tdd_agent.report import Case, CollectError, Failure, Frame

MANIFEST = "go.mod"

_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_TEST = re.compile(r"(?:Test|Fuzz|Example|Benchmark)\w*")
_COMPILER = re.compile(
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
"""Beginning of a message of the compiler -> kind."""
_STRUCTURAL = ("attribute_error", "name_error", "signature_mismatch", "missing_module")
_NOT_IMPLEMENTED = re.compile(r"(?:not (?:yet )?implemented|unimplemented|todo)\b", re.IGNORECASE)


class _Event(msgspec.Struct, rename="pascal"):
    """One line; other fields are ignored."""

    action: str
    package: str = ""
    test: str = ""
    output: str = ""
    elapsed: float = 0.0
    import_path: str = ""


_decode = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True, kw_only=True)
class _Run:
    """What the events say."""

    ended: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """(package, test) -> outcome and seconds, in the order in which they ended."""
    begun: dict[tuple[str, str], bool] = field(default_factory=dict)
    output: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    """Package -> what it came to."""
    compiler: list[str] = field(default_factory=list)


def find(folder: Path) -> Finding | None:
    """A module."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    return Finding(manifest=manifest, argv=("go", "test"), why=f"there is a {MANIFEST}")


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """The packages of ``targets``, and their tests by name if each target names one; sub-tests by their parents."""
    parts = [split_target(target) for target in targets]
    folders = [file.rpartition("/")[0] if file.endswith(".go") else f"{file}/..." for file, _ in parts]
    packages = only(f"./{folder}" if folder not in ("", "/...", "./...") else "./." for folder in folders) or ("./...",)
    names = only(name.partition("/")[0].partition(" > ")[0] for _, name in parts)
    is_exact = all(_TEST.fullmatch(name) for name in names) and names
    chosen = ("-run", f"^({'|'.join(names)})$") if is_exact else ()
    return ("-json", "-count=1", *chosen, *packages)


def read(ended: Ended) -> Results:
    """The tests of each package, and the packages that cannot be built."""
    run = _events(plain(ended.output))
    sources = Sources(ended.root, suffixes=(".go",), made=("vendor",))
    module = _module(ended.root)
    files = _Files(sources, run, module=module)
    tests = [files.case(package, name, ended=outcome) for (package, name), outcome in run.ended.items()]
    died = [key for key in run.begun if key not in run.ended and run.packages.get(key[0]) == "fail"]
    tests += [files.case(package, name, ended=("fail", 0.0)) for package, name in died]
    tests = _with_reasons(tests)
    compiler = "".join(run.compiler)
    errors = _compile_errors(compiler, sources, module=module)
    unbuilt = [match["package"] for match in _CANNOT_BUILD.finditer(compiler)]
    problems = [f"package {name} cannot be built: {compiler.strip()[:500]}" for name in unbuilt if not errors]
    problems += [
        f"{key[1]} of {key[0]} was begun and has no result" for key in run.begun.keys() - run.ended.keys() - {*died}
    ]
    problems += _silent(run)
    if not run.packages and not errors and not problems and ended.exit_status:
        problems.append(f"go ended without a result: {ended.output.strip()[:500] or 'no output'}")
    return Results(tests=tuple(tests), collect_errors=errors, problem="; ".join(sorted(problems)) or None)


def _with_reasons(tests: list[Case]) -> list[Case]:
    """A test that failed only because a sub-test did has that one's failure."""
    failures = {case.nodeid: case.failure for case in reversed(tests) if case.failure and case.failure.message}

    def reason(case: Case) -> Case:
        if case.failure is None or case.failure.message:
            return case
        found = [failure for nodeid, failure in failures.items() if nodeid.startswith(case.nodeid + "/")]
        return replace(
            case, failure=found[-1] if found else replace(case.failure, message="it failed and said nothing")
        )

    return [reason(case) for case in tests]


def _silent(run: _Run) -> list[str]:
    """Packages that failed without a failed test: ``TestMain`` or ``init`` ended the process."""
    failed = {package for (package, _), (action, _) in run.ended.items() if action == "fail"}
    failed |= {package for package, _ in run.begun.keys() - run.ended.keys()}
    return [
        f"package {package} failed outside of its tests: {_last(run.output.get((package, ''), []))}"
        for package, action in run.packages.items()
        if action == "fail" and package not in failed and not _is_unbuilt(package, run)
    ]


def _is_unbuilt(package: str, run: _Run) -> bool:
    printed = "".join(run.output.get((package, ""), [])) + "".join(run.compiler)
    return any(match["package"] == package for match in _CANNOT_BUILD.finditer(printed))


def _last(lines: list[str]) -> str:
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("FAIL", "exit status"))]
    return said[-1] if said else "no output"


def _events(output: str) -> _Run:
    """The events of a run; a line that is none is the compiler's."""
    run = _Run()
    for line in output.splitlines(keepends=True):
        try:
            event = _decode(line) if line.startswith("{") else None
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            event = None
        if event is None:
            run.compiler.append(line)
            continue
        key = (event.package, event.test)
        if event.action == "build-output":
            run.compiler.append(event.output)
        elif event.action == "output":
            run.output.setdefault(key, []).append(event.output)
            if not event.test and _CANNOT_BUILD.match(event.output):
                run.compiler.append(event.output)
        elif event.action == "run" and event.test:
            run.begun[key] = True
        elif event.action in _OUTCOMES:
            if event.test:
                run.ended[key] = (event.action, event.elapsed)
            else:
                run.packages[event.package] = event.action
    return run


def _module(root: Path) -> str:
    """The module's path; empty if it cannot be read."""
    try:
        text = read_ordinary(root / MANIFEST, limit_bytes=1_000_000).decode("utf-8", "replace")
    except OSError:
        return ""
    found = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    return found[1] if found else ""


class _Files:
    """Which file of a package each test is written in."""

    def __init__(self, sources: Sources, run: _Run, *, module: str) -> None:
        self._sources = sources
        self._module = module
        self._output = run.output
        self._known: dict[str, dict[str, tuple[str, int]]] = {}

    def case(self, package: str, name: str, *, ended: tuple[str, float]) -> Case:
        action, seconds = ended
        file, line = self._place(package, name.partition("/")[0])
        failure = None
        if action == "fail":
            text = "".join(self._output.get((package, name), []))
            failure = _why_failed(text, file=file, sources=self._sources)
        return Case(
            nodeid=f"{file}::{name}",
            outcome=_OUTCOMES[action],
            file=file,
            line=line,
            duration_s=seconds,
            failure=failure,
        )

    def _place(self, package: str, function: str) -> tuple[str, int]:
        """File and line of a test; the package's folder if it is in none of its files."""
        folder = package.removeprefix(self._module).strip("/") if package.startswith(self._module) else package
        if folder not in self._known:
            self._known[folder] = dict(self._functions(folder))
        return self._known[folder].get(function, (folder or ".", 0))

    def _functions(self, folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
        for path in self._sources.files():
            if path.endswith("_test.go") and path.rpartition("/")[0] == folder:
                text = self._sources.text(path)
                for match in re.finditer(rf"^func ({_TEST.pattern})\(", text, re.MULTILINE):
                    yield match[1], (path, text.count("\n", 0, match.start()) + 1)


def _why_failed(text: str, *, file: str, sources: Sources) -> Failure:
    """The failure of a test, from what it printed."""
    panic = _PANIC.search(text)
    frames = _frames(text, sources) if panic else ()
    logged = list(_LOGGED.finditer(text))
    path, line, message = None, None, ""
    if panic:
        message = panic["message"]
        kind = _kind_of_panic(message)
        path, line = (frames[-1].path, frames[-1].line) if frames else (None, None)
        origin = "test" if path is None or path.endswith("_test.go") else "project"
    else:
        kind, origin = "assertion", "test"
        message = "\n".join(match["message"] for match in logged) or _said(text)
        if logged:
            folder = file.rpartition("/")[0] if file.endswith(".go") else file
            path = sources.own(f"{folder}/{logged[-1]['file']}" if folder else logged[-1]["file"])
            line = int(logged[-1]["line"]) if path else None
    return Failure(
        phase="call",
        kind=kind,
        origin=origin,
        exception="panic" if panic else "",
        message=message[:MESSAGE_CAP],
        path=path,
        line=line,
        frames=frames,
        text=capped(text.strip("\n")),
    )


def _kind_of_panic(message: str) -> str:
    if message.startswith("test timed out"):
        return "timeout"
    if "stack overflow" in message:
        return "recursion"
    return "not_implemented" if _NOT_IMPLEMENTED.match(message) else "exception"


def _said(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("=== ", "--- ")))


def _frames(text: str, sources: Sources) -> tuple[Frame, ...]:
    """Own calls of the goroutine that panicked, the innermost last."""
    first = text.partition("goroutine ")[2].partition("\n\n")[0]
    found = []
    for match in _FRAME.finditer(first):
        path = sources.own(match["path"])
        if path is not None:
            found.append(Frame(path=path, line=int(match["line"]), function=match["function"].partition("(")[0]))
    return tuple(reversed(found[:FRAMES_CAP]))


def _compile_errors(text: str, sources: Sources, *, module: str) -> tuple[CollectError, ...]:
    """One for each file: the first error that is no missing name, as that one is not expected, else the first."""
    found: dict[str, list[Failure]] = {}
    for match in _COMPILER.finditer(text):
        path = sources.own(match["path"])
        kind, name = _rule(match["message"])
        is_own = name.startswith(module) if name and kind == "missing_module" and module else None
        found.setdefault(path or match["path"], []).append(
            Failure(
                phase="collect",
                kind=kind,
                origin="third_party" if path is None else "test" if path.endswith("_test.go") else "project",
                exception="",
                message=match["message"][:MESSAGE_CAP],
                missing_name=name,
                path=path,
                line=int(match["line"]) if path else None,
                text=capped(match[0]),
                missing_in_project=is_own,
            )
        )
    return tuple(
        CollectError(
            nodeid=path, failure=next((each for each in failures if each.kind not in _STRUCTURAL), failures[0])
        )
        for path, failures in found.items()
    )


def _rule(message: str) -> tuple[str, str | None]:
    for pattern, kind in _RULES:
        if found := re.match(pattern, message):
            parts = found.groupdict()
            name, owner = parts.get("name"), parts.get("owner")
            return kind, f"{owner.lstrip('*')}.{name.rpartition('.')[2]}" if owner and name else name
    return "collection_error", None


def is_test(path: str) -> bool:
    """Whether a file holds tests, or what they read."""
    return path.endswith("_test.go") or "testdata" in path.split("/")[:-1]


GO = Framework(name="go", looked_for=MANIFEST, find=find, arguments=arguments, read=read, is_test=is_test)
