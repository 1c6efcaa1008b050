"""Rust tests: where one is written, and why one failed, from what it printed. For cargo and nextest alike.

``cargo test``, read from its text: results as JSON are for unstable Rust only.

``cargo nextest run``: one process a test, and results as JUnit XML. It runs no documentation tests.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.junit_xml import JunitCase, read_junit
from cdd_agent.testrun.frameworks.rust_errors import compile_errors, is_test, names_in
from cdd_agent.testrun.frameworks.sources import Sources, capped, only, plain, split_target
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP
from pytest_tdd_agent.report import Case, Failure, Frame

VARIABLES = (("CARGO_TERM_COLOR", "never"), ("RUST_BACKTRACE", "1"))
"""Without a backtrace nobody can tell whether a test panicked or what it called."""
LOOKED_FOR = "Cargo.toml"

_PANIC = re.compile(
    r"^thread '[^\n]*?' (?:\(\d+\) )?panicked at (?:'(?P<old>.*?)', )?(?P<path>[^\n]+?):(?P<line>\d+):\d+(?::\n|\n|\Z)"
    r"(?P<message>.*?)(?=^stack backtrace:|^note: |\Z)",
    re.MULTILINE | re.DOTALL,
)
_FRAME = re.compile(r"^ +\d+: (?P<function>.+)\n +at (?P<path>.+?):(?P<line>\d+)(?::\d+)?$", re.MULTILINE)
_KINDS = (
    (r"assertion\b.* failed\b|assertion failed", "assertion"),
    (r"not yet implemented\b|not implemented\b", "not_implemented"),
    (r"memory allocation of ", "resource"),
)
"""Beginning of a panic's message -> kind."""
_NOT_RAISED = re.compile(r"test did not panic as expected|Test executable succeeded, but it's marked `should_panic`")
_OTHERWISE = re.compile(r"panic did not contain expected string(?P<told>(?:\n +[^\n]+)*)")


def sources_of(root: Path) -> Sources:
    """The Rust files and manifests below ``root``."""
    return Sources(root, suffixes=(".rs", LOOKED_FOR), made=("target", "vendor"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of tests that was built from one file and the modules below it."""

    source: str
    """That file, relative to the project."""
    shown: str
    """The same file as the tool names it: relative to its package."""

    @property
    def package(self) -> str:
        """The folder of its package with a slash behind it; empty for the project's."""
        return self.source.removesuffix(self.shown) if self.source.endswith(self.shown) else ""


def place_of(program: Program, name: str, *, sources: Sources) -> tuple[str, int]:
    """File and line of the test ``name``, by the modules it is in; the program's own file if they have none."""
    *modules, function = name.split("::")
    folder = PurePosixPath(program.source).parent
    file = program.source
    for count in range(len(modules), 0, -1):
        inner = folder.joinpath(*modules[:count])
        found = next(filter(None, map(sources.own, (f"{inner}.rs", f"{inner}/mod.rs"))), None)
        if found is not None:
            file = found
            break
    return file, sources.line_of(file, rf"\bfn {re.escape(function)}\s*[<(]")


def why_failed(text: str, *, name: str, program: Program, sources: Sources) -> Failure:
    """The failure of the test ``name``, from all that it printed."""
    panics = list(_PANIC.finditer(text))
    panic = panics[-1] if panics else None
    if panic is None and (errors := compile_errors(text, sources)):  # a doc test
        return errors[0].failure
    kind, message = _kind(text, panic)
    frames, is_foreign = _frames(text[panic.end() :] if panic else "", program, sources=sources)
    path = sources.own(panic["path"]) if panic else None
    line = int(panic["line"]) if panic and path else None
    if path is None and frames:
        path, line = frames[-1].path, frames[-1].line
    if panic is None or not frames:
        origin = "third_party" if panic and path is None else _origin_of_file(path or program.source, program)
    elif is_foreign and kind not in ("assertion", "not_implemented"):
        origin = "third_party"
    else:
        origin = "test" if _is_of_test(frames[-1], name) else "project"
    printed = text[: panic.start()] if panic else ""
    return Failure(
        phase="call",
        kind=kind,
        origin=origin if kind != "did_not_raise" else "test",
        exception="panic" if panic else "",
        message=message[:MESSAGE_CAP],
        path=path,
        line=line,
        frames=frames,
        text=capped(_without_library(text)),
        output=capped(printed.strip("\n")),
    )


def _kind(text: str, panic: re.Match[str] | None) -> tuple[str, str]:
    """Kind and message of a failed test."""
    if found := _NOT_RAISED.search(text):
        return "did_not_raise", found[0].removeprefix("note: ")
    if found := _OTHERWISE.search(text):
        return "raises_match_mismatch", found[0]
    if panic is None:
        return "exception", text.strip().splitlines()[0] if text.strip() else "it failed and said nothing"
    message = (panic["old"] or panic["message"]).strip("\n")
    return next((kind for start, kind in _KINDS if re.match(start, message)), "exception"), message


def _frames(text: str, program: Program, *, sources: Sources) -> tuple[tuple[Frame, ...], bool]:
    """Own calls on the way to a panic, the innermost last, and whether another package's were inside of those."""
    found: list[Frame] = []
    is_foreign = False
    for match in _FRAME.finditer(text):
        told = match["path"]
        if told.startswith("/rustc/") or "/rustlib/src/" in told:
            continue
        path = sources.own(program.package + told.removeprefix("./") if told.startswith("./") else told)
        if path is None:
            is_foreign = is_foreign or not found
        elif "{{closure}}" not in match["function"] or not found:
            found.append(Frame(path=path, line=int(match["line"]), function=match["function"]))
    return tuple(reversed(found[:FRAMES_CAP])), is_foreign


def _is_of_test(frame: Frame, name: str) -> bool:
    """Whether a call is in the module of the test ``name``, or in a file of tests."""
    inside = frame.function.partition("::")[2].replace("::{{closure}}", "")
    module = name.rpartition("::")[0]
    return is_test(frame.path) or inside == name or bool(module and inside.startswith(module + "::"))


def _origin_of_file(path: str, program: Program) -> str:
    return "test" if is_test(path) or path == program.source else "project"


def _without_library(text: str) -> str:
    """``text`` without the calls of Rust's own library."""
    return _FRAME.sub(lambda match: "" if match["path"].startswith("/rustc/") else match[0], text).strip("\n")


_HEADER = re.compile(r"^ +(?:Running (?P<unit>unittests )?(?P<source>\S+) \((?P<binary>.+)\)|Doc-tests (?P<docs>\S+))$")
_RUNNING = re.compile(r"^running (\d+) tests?$")
_RESULT = re.compile(r"^test (?P<name>\S.*?) \.\.\. (?P<result>ok|FAILED|ignored|bench:)(?P<more>.*)$")
_BEGUN = re.compile(r"^test (?P<name>\S.*?) \.\.\. ")
_OUTPUT = re.compile(r"^---- (?P<name>\S.*?) stdout ----$")
_ENDED = re.compile(r"^test result: .* finished in [\d.]+s$")
_DIED = re.compile(r"^error: (?:test|doctest|bench) failed, to rerun pass|^error: \d+ targets? failed")
_NOTE = re.compile(r" - (?:should panic|compile fail|compile)$")
_DOC = re.compile(r"^(?P<file>.+?) - (?P<item>.*?) ?\(line (?P<line>\d+)\)$")
_NAME = re.compile(r"(?:r#)?[A-Za-z_]\w*(?:::(?:r#)?[A-Za-z_]\w*)*")
_INTEGRATION = re.compile(r"(?:^|/)tests/(?P<program>\w[\w.-]*?)(?:\.rs|/.*)?$")
_OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped", "bench:": "passed"}


def find_cargo(folder: Path) -> Finding | None:
    """A manifest of a package or of a workspace."""
    manifest = folder / LOOKED_FOR
    try:
        tables = tomllib.loads(read_ordinary(manifest, limit_bytes=4_000_000).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if "package" not in tables and "workspace" not in tables:
        return None
    whole = ("--workspace",) if "workspace" in tables else ()
    return Finding(manifest=manifest, argv=("cargo", "test", *whole), why=f"there is a {manifest.name}")


def arguments_cargo(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """No stop at the first failure, and the programs and names that ``targets`` need: if in doubt, more than those."""
    return ("--no-fail-fast", *selection(targets))


def selection(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The options of cargo, and behind a ``--`` those of the programs, that select ``targets``."""
    parts = [split_target(target) for target in targets]
    names = [name if _NAME.fullmatch(name) and not name.startswith("doc ") else "" for _, name in parts]
    built = [_INTEGRATION.search(file) for file, _ in parts]
    options: tuple[str, ...] = ()
    if parts and all(built):
        options = only(f"--test={found['program']}" for found in built if found)
    elif parts and all(file.endswith("tests") for file, _ in parts):
        options = ("--test=*",)
    return (*options, "--", "--exact", *only(names)) if names and all(names) else options


def read_cargo(ended: Ended) -> Results:
    """Errors of the compiler, which nothing has run after, or the results of each program of tests."""
    sources = sources_of(ended.root)
    building, sections = _parts(plain(ended.output))
    errors = compile_errors("\n".join(building), sources) if not sections else ()
    tests: list[Case] = []
    problems: list[str] = []
    for section in sections:
        cases, problem = _read_program(section, sources)
        tests += cases
        problems += [problem] if problem else []
    if not sections and not errors and ended.exit_status:
        problems.append(first_error(building))
    return Results(tests=_numbered(tests), collect_errors=errors, problem="; ".join(problems) or None)


@dataclass(slots=True, kw_only=True)
class _Section:
    """What one program printed."""

    header: re.Match[str]
    lines: list[str] = field(default_factory=list)


def _parts(output: str) -> tuple[list[str], list[_Section]]:
    """What came before the first program ran, and each program's part.

    A line that looks like the next one's header is none while a program's results are not closed: a test printed it.
    """
    building: list[str] = []
    sections: list[_Section] = []
    is_open = False
    for line in output.splitlines():
        header = None if is_open else _HEADER.match(line)
        if header:
            sections.append(_Section(header=header))
            continue
        is_open = (is_open or _RUNNING.match(line) is not None) and not _ENDED.match(line) and not _DIED.match(line)
        (sections[-1].lines if sections else building).append(line)
    return building, sections


def _read_program(section: _Section, sources: Sources) -> tuple[list[Case], str | None]:
    program = _program(section.header, sources)
    results, begun, expected, closed = _results(section.lines)
    if not expected and not closed and program is not None and not any(map(_RUNNING.match, section.lines)):
        return [_whole_program(program, section.lines)], None
    outputs = _outputs(section.lines, {name for name, result in results if result == "FAILED"})
    cases = [
        _cargo_case(name, result, text=outputs.get(name, ""), program=program, sources=sources)
        for name, result in results
    ]
    if not closed:
        last = f" in {begun}" if begun else ""
        ending = next((line.strip() for line in section.lines if "process didn't exit successfully" in line), "")
        return cases, f"the tests of {_called(section.header)} ended early{last}{ending and f': {ending}'}"
    if len(results) != expected:
        return cases, f"of {expected} tests of {_called(section.header)} the results of {len(results)} can be read"
    return cases, None


def _called(header: re.Match[str]) -> str:
    return header["source"] or f"the documentation of {header['docs']}"


def _program(header: re.Match[str], sources: Sources) -> Program | None:
    """What was run; None for documentation. Which package it is of is in the file that cargo keeps beside it."""
    if header["docs"]:
        return None
    shown, binary = header["source"], header["binary"]
    built_from = ""
    if not Path(binary).is_absolute() and ".." not in Path(binary).parts:
        rule = sources.text(f"{binary}.d").partition("\n")[0]
        built_from = rule.partition(": ")[2].partition(" ")[0]
    return Program(source=sources.own(built_from) or sources.own(shown) or shown, shown=shown)


def _results(lines: list[str]) -> tuple[list[tuple[str, str]], str, int, bool]:
    """(Name, result) of each test, the one that was begun last, how many there should be, whether all has ended."""
    found: list[tuple[str, str]] = []
    expected, begun, is_listing, is_telling, closed = 0, "", False, False, False
    for line in lines:
        if count := _RUNNING.match(line):
            if not is_listing and not is_telling:
                expected, is_listing, closed = expected + int(count[1]), True, False
        elif _ENDED.match(line):
            is_listing, is_telling, closed = False, False, True
        elif line in ("failures:", "successes:"):
            is_listing, is_telling = False, True
        elif is_listing and (result := _RESULT.match(line)):
            found.append((result["name"], result["result"]))
            begun = ""
        elif is_listing and (start := _BEGUN.match(line)):
            begun = start["name"]
        elif is_listing and begun and line in ("ok", "FAILED", "ignored"):
            found.append((begun, line))
            begun = ""
    return found, begun, expected, closed


def _outputs(lines: list[str], failed: set[str]) -> dict[str, str]:
    """What each failed test printed."""
    names = {_NOTE.sub("", name): name for name in failed}
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        heading = _OUTPUT.match(line)
        if heading and heading["name"] in names and names[heading["name"]] not in found:
            current = found.setdefault(names[heading["name"]], [])
        elif line == "failures:":
            current = None
        elif current is not None:
            current.append(line)
    return {name: "\n".join(text) for name, text in found.items()}


def _cargo_case(name: str, result: str, *, text: str, program: Program | None, sources: Sources) -> Case:
    name = _NOTE.sub("", name)
    doc = _DOC.match(name) if program is None else None
    if program is None:
        shown = doc["file"] if doc else "src/lib.rs"
        file, line = sources.own(shown) or shown, int(doc["line"]) if doc else 0
        program, name = Program(source=file, shown=file), f"doc {doc['item'] if doc else name}".strip()
    else:
        file, line = place_of(program, name, sources=sources)
    failure = None
    if result == "FAILED":
        failure = why_failed(text, name=name, program=program, sources=sources)
    return Case(
        nodeid=f"{file}::{name}",
        outcome=_OUTCOMES[result],
        file=file,
        line=line,
        duration_s=0.0,
        failure=failure,
    )


def _whole_program(program: Program, lines: list[str]) -> Case:
    """The one result of a program that has its own ``main`` in the place of Rust's harness."""
    is_failed = any(map(_DIED.match, lines))
    failure = None
    if is_failed:
        text = "\n".join(lines)
        failure = Failure(
            phase="call",
            kind="exception",
            origin="test",
            exception="",
            message=next((line.strip() for line in lines if "process didn't exit successfully" in line), "it failed"),
            path=program.source,
            text=text[-5000:],
        )
    outcome = "failed" if is_failed else "passed"
    name = f"{program.source}::main"
    return Case(nodeid=name, outcome=outcome, file=program.source, line=0, duration_s=0.0, failure=failure)


def _numbered(cases: list[Case]) -> tuple[Case, ...]:
    """``cases`` with a number behind what is there before: several examples in the documentation of one thing."""

    def all_of() -> Iterator[Case]:
        seen: dict[str, int] = {}
        for case in sorted(cases, key=lambda case: (case.file, case.line)):
            count = seen[case.nodeid] = seen.get(case.nodeid, 0) + 1
            yield replace(case, nodeid=f"{case.nodeid} #{count}") if count > 1 else case

    return tuple(all_of())


def first_error(lines: list[str]) -> str:
    """What cargo says when it has not even begun to compile."""
    at = next((number for number, line in enumerate(lines) if line.startswith("error")), None)
    if at is None:
        return f"cargo ended without a result: {lines[-1].strip() if lines else 'no output'}"
    more = [line.strip() for line in lines[at + 1 : at + 6] if line.strip() and not line.startswith(" -->")]
    return "cargo built nothing: " + " ".join([lines[at].removeprefix("error: "), *more])[:600]


CARGO = Framework(
    name="cargo",
    looked_for=LOOKED_FOR,
    find=find_cargo,
    arguments=arguments_cargo,
    read=read_cargo,
    is_test=is_test,
    variables=VARIABLES,
)


JUNIT = "nextest.xml"
PROFILE = "cdd-agent"

_SKIPPED = re.compile(r"^ +SKIP \[[^\]]*\] \([^)]*\) (?P<program>\S+) (?P<name>\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^ +Starting (?P<count>\d+) tests? across", re.MULTILINE)
_ENDING = (
    (r"test timeout", "timeout"),
    (r"test abort", "crash"),
)
"""Beginning of nextest's word for a failure -> kind, where the test itself could say nothing."""


def find_nextest(folder: Path) -> Finding | None:
    """A manifest, where nextest is installed."""
    found = find_cargo(folder)
    if found is None or not _is_installed():
        return None
    whole = found.argv[2:]
    why = f"{found.why}, and cargo-nextest is installed"
    return Finding(manifest=found.manifest, argv=("cargo", "nextest", "run", *whole), why=why)


def _is_installed() -> bool:
    """Whether cargo would find it, on the path or among its own programs."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("cargo-nextest") is not None or os.access(home / "bin" / "cargo-nextest", os.X_OK)


def arguments_nextest(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """A profile of ours beside the project's own configuration, written to a file in ``results``."""
    settings = results / "nextest.toml"
    settings.write_text(
        f"[profile.{PROFILE}]\nfail-fast = false\nretries = 0\nstatus-level = 'skip'\nfinal-status-level = 'none'\n"
        f"failure-output = 'never'\n[profile.{PROFILE}.junit]\npath = '{results / JUNIT}'\n",
        encoding="utf-8",
    )
    return ("--tool-config-file", f"cdd:{settings}", "--profile", PROFILE, *selection(targets))


def read_nextest(ended: Ended) -> Results:
    """The JUnit file; without one, what the compiler says."""
    sources = sources_of(ended.root)
    output = plain(ended.output)
    started = _STARTED.search(output)
    if started is None:
        errors = compile_errors(output, sources)
        problem = None if errors or not ended.exit_status else first_error(output.splitlines())
        return Results(collect_errors=errors, problem=problem)
    cases, problem = read_junit(ended.results / JUNIT)
    if problem is None and len(cases) != int(started["count"]):
        problem = f"of {started['count']} tests that were started the results of {len(cases)} are there"
    built = _Programs(sources)
    tests = [_nextest_case(case, built.of(case.classname), sources=sources) for case in cases]
    tests += [
        _skipped(match["name"], built.of(match["program"]), sources=sources)
        for match in _SKIPPED.finditer(output)
        if built.is_ignored(match["program"], match["name"])
    ]
    return Results(tests=tuple(tests), problem=problem)


class _Programs:
    """The file that each program of tests is built from, by nextest's name of it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._packages = {
            name: path.removesuffix("Cargo.toml")
            for path in sources.files()
            if path.rpartition("/")[2] == "Cargo.toml"
            for name in names_in(sources.text(path))[:1]
        }

    def of(self, called: str) -> Program:
        package, _, target = called.partition("::")
        folder = self._packages.get(package, "")
        tried: tuple[str, ...]
        if target.startswith(("bin/", "example/", "bench/")):
            kind, _, name = target.partition("/")
            place = {"bin": "src/bin", "example": "examples", "bench": "benches"}[kind]
            tried = (f"{place}/{name}.rs", f"{place}/{name}/main.rs", "src/main.rs")
        elif target:
            tried = (f"tests/{target}.rs", f"tests/{target}/main.rs")
        else:
            tried = ("src/lib.rs", "src/main.rs")
        shown = next((path for path in tried if self._sources.own(folder + path) == folder + path), tried[0])
        return Program(source=folder + shown, shown=shown)

    def is_ignored(self, program: str, name: str) -> bool:
        """Whether a skipped test is one that says so itself, and not one that was not asked for."""
        file, _ = place_of(self.of(program), name, sources=self._sources)
        function = re.escape(name.rpartition("::")[2])
        marked = rf"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn {function}\b"
        return re.search(marked, self._sources.text(file)) is not None


def _nextest_case(case: JunitCase, program: Program, *, sources: Sources) -> Case:
    file, line = place_of(program, case.name, sources=sources)
    return Case(
        nodeid=f"{file}::{case.name}",
        outcome=case.outcome,
        file=file,
        line=line,
        duration_s=case.duration_s,
        reruns=case.reruns,
        failure=_failure(case, program, sources=sources) if case.outcome in ("failed", "error") else None,
    )


def _failure(case: JunitCase, program: Program, *, sources: Sources) -> Failure:
    ending = next((kind for start, kind in _ENDING if re.match(start, case.type)), None)
    if ending is not None and "panicked at" not in case.text:
        message = case.message or case.type
        return Failure(
            phase="call", kind=ending, origin="project", exception="", message=message, text=capped(case.output)
        )
    is_all = "panicked at" in case.text and "panic did not contain expected string" not in case.output
    text = case.text if is_all else f"{case.text}\n{case.output}"
    return why_failed(text.strip("\n"), name=case.name, program=program, sources=sources)


def _skipped(name: str, program: Program, *, sources: Sources) -> Case:
    file, line = place_of(program, name, sources=sources)
    return Case(nodeid=f"{file}::{name}", outcome="skipped", file=file, line=line, duration_s=0.0)


NEXTEST = Framework(
    name="nextest",
    looked_for=f"{LOOKED_FOR}, and cargo-nextest installed",
    find=find_nextest,
    arguments=arguments_nextest,
    read=read_nextest,
    is_test=is_test,
    variables=VARIABLES,
)
