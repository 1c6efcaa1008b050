"""Rust: finds, runs and reads ``cargo test`` (its text) and ``cargo nextest run`` (JUnit XML).

Stable Rust prints results only as text.
"""

import os
import posixpath
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from cdd_agent.testrun.frameworks.framework import Finding, FinishedRun, Results, number_repeated
from cdd_agent.testrun.frameworks.junit_xml import JunitCase, read_junit
from cdd_agent.testrun.frameworks.rust_errors import MANIFEST, crate_names, is_test, read_compile_errors
from cdd_agent.testrun.frameworks.sources import (
    Sources,
    own_frames,
    read_text,
    shorten,
    split_target,
    strip_terminal_codes,
    unique,
)
from pytest_tdd_agent.failure import MESSAGE_CAP
from pytest_tdd_agent.report import Case, Failure, Frame

VARIABLES = (("CARGO_TERM_COLOR", "never"), ("RUST_BACKTRACE", "1"))
"""Only a backtrace tells whether the test panicked or the code it called."""
JUNIT = "nextest.xml"
PROFILE = "cdd-agent"

_INTEGRATION = re.compile(r"(?:^|/)tests/(?P<program>\w[\w.-]*?)(?:\.rs|/.*)?$")
_NAME = re.compile(r"(?:r#)?[A-Za-z_]\w*(?:::(?:r#)?[A-Za-z_]\w*)*")
_TYPE = re.compile(r"\b(?:struct|enum|trait|union|type)\s+([A-Za-z_]\w*)")

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
_OTHER_MESSAGE = re.compile(r"panic did not contain expected string(?P<told>(?:\n +[^\n]+)*)")

_HEADER = re.compile(r"^ +(?:Running (?P<unit>unittests )?(?P<source>\S+) \((?P<binary>.+)\)|Doc-tests (?P<docs>\S+))$")
_RUNNING = re.compile(r"^running (\d+) tests?$")
_RESULT = re.compile(r"^test (?P<name>\S.*?) \.\.\. (?P<result>ok|FAILED|ignored|bench:)(?P<more>.*)$")
_BEGUN = re.compile(r"^test (?P<name>\S.*?) \.\.\. ")
_OUTPUT = re.compile(r"^---- (?P<name>\S.*?) stdout ----$")
_ENDED = re.compile(r"^test result: .* finished in [\d.]+s$")
_DIED = re.compile(r"^error: (?:test|doctest|bench) failed, to rerun pass|^error: \d+ targets? failed")
_EXITED = "process didn't exit successfully"
_NOTE = re.compile(r" - (?:should panic|compile fail|compile)$")
_DOC = re.compile(r"^(?P<file>.+?) - (?P<item>.*?) ?\(line (?P<line>\d+)\)$")
_OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped", "bench:": "passed"}

_SKIPPED = re.compile(r"^ +SKIP \[[^\]]*\] \([^)]*\) (?P<program>\S+) (?P<name>\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^ +Starting (?P<count>\d+) tests? across", re.MULTILINE)
_SILENT_ENDS = (("test timeout", "timeout"), ("test abort", "crash"))
"""Beginning of nextest's failure type -> kind, where the test itself could print nothing."""
_TARGET_FOLDERS = {"bin": "src/bin", "example": "examples", "bench": "benches"}


def find_cargo(folder: Path) -> Finding | None:
    """Look for the manifest of a package or a workspace."""
    tables = _read_manifest(folder)
    if "package" not in tables and "workspace" not in tables:
        return None
    whole = ("--workspace",) if "workspace" in tables else ()
    return Finding(manifest=folder / MANIFEST, argv=("cargo", "test", *whole), why=f"there is a {MANIFEST}")


def find_nextest(folder: Path) -> Finding | None:
    """Look for a manifest, if nextest is installed."""
    found = find_cargo(folder)
    if found is None or not _is_nextest_installed():
        return None
    why = f"{found.why}, and cargo-nextest is installed"
    return replace(found, argv=("cargo", "nextest", "run", *found.argv[2:]), why=why)


def _is_nextest_installed() -> bool:
    """Return whether cargo would find it: on the path or beside its own programs."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("cargo-nextest") is not None or os.access(home / "bin" / "cargo-nextest", os.X_OK)


def _read_manifest(folder: Path) -> dict[str, object]:
    try:
        return tomllib.loads(read_text(folder / MANIFEST))
    except (ValueError, RecursionError):
        return {}


def begins_build(folder: Path) -> bool:
    """Return whether the manifest in ``folder`` is a workspace's."""
    return re.search(r"^\[workspace\b", read_text(folder / MANIFEST), re.MULTILINE) is not None


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each module in its crate and alone, or the crate; and the types that its source already has."""
    for source in sources:
        folder = posixpath.dirname(source)
        while folder and not (root / folder / MANIFEST).is_file():
            folder = posixpath.dirname(folder)
        inside = posixpath.relpath(source, folder or ".")
        if not source.endswith(".rs") or not inside.startswith("src/"):
            continue
        names = crate_names(read_text(root / folder / MANIFEST))
        crate = names[-1].replace("-", "_") if names else ""  # the library's name, if it has one of its own
        module = inside.removeprefix("src/").removesuffix(".rs")
        parts = [part for part in module.split("/") if part not in ("lib", "main", "mod")]
        yield ".".join((crate, *parts))
        if parts:
            yield ".".join(parts)
            yield parts[-1]
        yield from _TYPE.findall(read_text(root / source))


def build_cargo_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Run all tests even after a failure, and select ``targets``."""
    return ("--no-fail-fast", *_select(targets))


def build_nextest_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Add a profile of cdd's to the project's configuration, written to a file in ``results``."""
    settings = results / "nextest.toml"
    settings.write_text(
        f"[profile.{PROFILE}]\nfail-fast = false\nretries = 0\nstatus-level = 'skip'\nfinal-status-level = 'none'\n"
        f"failure-output = 'never'\n[profile.{PROFILE}.junit]\npath = '{results / JUNIT}'\n",
        encoding="utf-8",
    )
    return ("--tool-config-file", f"cdd:{settings}", "--profile", PROFILE, *_select(targets))


def _select(targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return cargo's options, and after ``--`` those of the test programs, that select ``targets``."""
    parts = [split_target(target) for target in targets]
    names = [name if _NAME.fullmatch(name) and not name.startswith("doc ") else "" for _, name in parts]
    built = [_INTEGRATION.search(file) for file, _ in parts]
    options: tuple[str, ...] = ()
    if parts and all(built):
        options = unique(f"--test={found['program']}" for found in built if found)
    elif parts and all(file.endswith("tests") for file, _ in parts):
        options = ("--test=*",)
    return (*options, "--", "--exact", *unique(names)) if names and all(names) else options


def sources_of(root: Path) -> Sources:
    """Return the Rust files and manifests below ``root``."""
    return Sources(root, suffixes=(".rs", MANIFEST), built=("target", "vendor"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A test program, built from one file and the modules below it."""

    source: str
    """That file, relative to the project."""
    shown: str
    """The same file as the tool names it: relative to its package."""
    sources: Sources

    @property
    def package(self) -> str:
        """The folder of its package with a slash at the end; empty for the project's."""
        return self.source.removesuffix(self.shown) if self.source.endswith(self.shown) else ""

    def place_of(self, name: str) -> tuple[str, int]:
        """Return file and line of the test ``name``, by its modules; this file if no file has those names."""
        *modules, function = name.split("::")
        folder = PurePosixPath(self.source).parent
        file = self.source
        for count in range(len(modules), 0, -1):
            inner = folder.joinpath(*modules[:count])
            found = next(filter(None, map(self.sources.own, (f"{inner}.rs", f"{inner}/mod.rs"))), None)
            if found is not None:
                file = found
                break
        return file, self.sources.line_of(file, rf"\bfn {re.escape(function)}\s*[<(]")

    def describe_failure(self, text: str, name: str) -> Failure:
        """Return the failure of the test ``name``, from all that it printed."""
        panics = list(_PANIC.finditer(text))
        panic = panics[-1] if panics else None
        if panic is None and (errors := read_compile_errors(text, self.sources)):  # an example in documentation
            return errors[0].failure
        kind, message = _classify(text, panic)
        frames, is_foreign = self._parse_frames(text[panic.end() :] if panic else "")
        path = self.sources.own(panic["path"]) if panic else None
        line = int(panic["line"]) if panic and path else None
        if path is None and frames:
            path, line = frames[-1].path, frames[-1].line
        if kind == "did_not_raise":
            origin = "test"
        elif panic is None or not frames:
            is_near = is_test(path or self.source) or path in (None, self.source)
            origin = "third_party" if panic and path is None else "test" if is_near else "project"
        elif is_foreign and kind not in ("assertion", "not_implemented"):
            origin = "third_party"
        else:
            origin = "test" if _is_in_test(frames[-1], name) else "project"
        printed = text[: panic.start()] if panic else ""
        return Failure(
            phase="call",
            kind=kind,
            origin=origin,
            exception="panic" if panic else "",
            message=message[:MESSAGE_CAP],
            path=path,
            line=line,
            frames=frames,
            text=shorten(_FRAME.sub(lambda match: "" if _is_of_library(match) else match[0], text).strip("\n")),
            output=shorten(printed.strip("\n")),
        )

    def _parse_frames(self, text: str) -> tuple[tuple[Frame, ...], bool]:
        calls: list[tuple[str | None, int, str]] = []
        for match in _FRAME.finditer(text):
            told = match["path"]
            if _is_of_library(match) or "/rustlib/src/" in told:
                continue
            path = self.sources.own(self.package + told.removeprefix("./") if told.startswith("./") else told)
            # A closure's frame repeats that of the function around it, unless the panic is in the closure.
            if path is None or "{{closure}}" not in match["function"] or not any(own for own, _, _ in calls):
                calls.append((path, int(match["line"]), match["function"]))
        return own_frames(calls)


def _is_of_library(frame: re.Match[str]) -> bool:
    return frame["path"].startswith("/rustc/")


def _classify(text: str, panic: re.Match[str] | None) -> tuple[str, str]:
    """Return kind and message of a failed test."""
    if found := _NOT_RAISED.search(text):
        return "did_not_raise", found[0].removeprefix("note: ")
    if found := _OTHER_MESSAGE.search(text):
        return "raises_match_mismatch", found[0]
    if panic is None:
        return "exception", text.strip().splitlines()[0] if text.strip() else "it failed and said nothing"
    message = (panic["old"] or panic["message"]).strip("\n")
    return next((kind for start, kind in _KINDS if re.match(start, message)), "exception"), message


def _is_in_test(frame: Frame, name: str) -> bool:
    """Return whether a call is in the module of the test ``name`` or in a test file."""
    inside = frame.function.partition("::")[2].replace("::{{closure}}", "")
    module = name.rpartition("::")[0]
    return is_test(frame.path) or inside == name or bool(module and inside.startswith(module + "::"))


def read_cargo(run: FinishedRun) -> Results:
    """Read the results of each test program, or the compile errors if nothing ran."""
    sources = sources_of(run.root)
    building, sections = _split_output(strip_terminal_codes(run.output))
    errors = read_compile_errors("\n".join(building), sources) if not sections else ()
    tests: list[Case] = []
    problems: list[str] = []
    for section in sections:
        cases, problem = section.read(sources)
        tests += cases
        problems += [problem] if problem else []
    if not sections and not errors and run.exit_status:
        problems.append(_first_error(building))
    tests.sort(key=lambda case: (case.file, case.line))
    # The documentation of one item may have several examples.
    names = number_repeated((case.nodeid for case in tests), form="{name} #{count}")
    numbered = tuple(replace(case, nodeid=nodeid) for case, nodeid in zip(tests, names, strict=True))
    return Results(tests=numbered, collect_errors=errors, problem="; ".join(problems) or None)


def _split_output(output: str) -> tuple[list[str], list["_Section"]]:
    """Return the lines before the first program, and the section of each program.

    A header inside open results was printed by a test.
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


@dataclass(slots=True, kw_only=True)
class _Section:
    """What one test program, or the documentation tests of a crate, printed."""

    header: re.Match[str]
    lines: list[str] = field(default_factory=list)

    def read(self, sources: Sources) -> tuple[list[Case], str | None]:
        """Return the tests, and why they are not all."""
        program = self._program(sources)
        results, begun, expected, closed = _parse_results(self.lines)
        if not expected and not closed and program is not None and not any(map(_RUNNING.match, self.lines)):
            return [self._read_own_main(program)], None
        outputs = _parse_outputs(self.lines, {name for name, result in results if result == "FAILED"})
        cases = [
            _convert_line(_NOTE.sub("", name), result, text=outputs.get(name, ""), program=program, sources=sources)
            for name, result in results
        ]
        called = self.header["source"] or f"the documentation of {self.header['docs']}"
        if not closed:
            last = f" in {begun}" if begun else ""
            ending = self._exit_line()
            return cases, f"the tests of {called} ended early{last}{ending and f': {ending}'}"
        if len(results) != expected:
            return cases, f"of {expected} tests of {called} the results of {len(results)} can be read"
        return cases, None

    def _program(self, sources: Sources) -> Program | None:
        """Return the program; None for documentation.

        The header names the file relative to its package; cargo writes the package into the ``.d`` file
        beside the program.
        """
        if self.header["docs"]:
            return None
        shown, binary = self.header["source"], self.header["binary"]
        built_from = ""
        if not Path(binary).is_absolute() and ".." not in Path(binary).parts:
            rule = sources.text(f"{binary}.d").partition("\n")[0]
            built_from = rule.partition(": ")[2].partition(" ")[0]
        return Program(source=sources.own(built_from) or sources.own(shown) or shown, shown=shown, sources=sources)

    def _exit_line(self) -> str:
        return next((line.strip() for line in self.lines if _EXITED in line), "")

    def _read_own_main(self, program: Program) -> Case:
        """Return the one result of a program with ``harness = false``."""
        is_failed = any(map(_DIED.match, self.lines))
        failure = Failure(
            phase="call",
            kind="exception",
            origin="test",
            exception="",
            message=self._exit_line() or "it failed",
            path=program.source,
            text="\n".join(self.lines)[-5000:],
        )
        return Case(
            nodeid=f"{program.source}::main",
            outcome="failed" if is_failed else "passed",
            file=program.source,
            line=0,
            duration_s=0.0,
            failure=failure if is_failed else None,
        )


def _parse_results(lines: list[str]) -> tuple[list[tuple[str, str]], str, int, bool]:
    """Return (name, result) of each test, the test begun last, the expected number, and whether all has ended."""
    found: list[tuple[str, str]] = []
    expected, begun, is_listing, is_detailing, closed = 0, "", False, False, False
    for line in lines:
        if count := _RUNNING.match(line):
            if not is_listing and not is_detailing:
                expected, is_listing, closed = expected + int(count[1]), True, False
        elif _ENDED.match(line):
            is_listing, is_detailing, closed = False, False, True
        elif line in ("failures:", "successes:"):
            is_listing, is_detailing = False, True
        elif is_listing and (result := _RESULT.match(line)):
            found.append((result["name"], result["result"]))
            begun = ""
        elif is_listing and (start := _BEGUN.match(line)):
            begun = start["name"]
        elif is_listing and begun and line in ("ok", "FAILED", "ignored"):  # a test printed between name and result
            found.append((begun, line))
            begun = ""
    return found, begun, expected, closed


def _parse_outputs(lines: list[str], failed: set[str]) -> dict[str, str]:
    """Return what each failed test printed."""
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


def _convert_line(name: str, result: str, *, text: str, program: Program | None, sources: Sources) -> Case:
    if program is None:
        doc = _DOC.match(name)
        shown = doc["file"] if doc else "src/lib.rs"
        file, line = sources.own(shown) or shown, int(doc["line"]) if doc else 0
        program = Program(source=file, shown=file, sources=sources)
        name = f"doc {doc['item'] if doc else name}".strip()
    else:
        file, line = program.place_of(name)
    return Case(
        nodeid=f"{file}::{name}",
        outcome=_OUTCOMES[result],
        file=file,
        line=line,
        duration_s=0.0,
        failure=program.describe_failure(text, name) if result == "FAILED" else None,
    )


def _first_error(lines: list[str]) -> str:
    """Return what cargo says when it has compiled nothing."""
    at = next((number for number, line in enumerate(lines) if line.startswith("error")), None)
    if at is None:
        return f"cargo ended without a result: {lines[-1].strip() if lines else 'no output'}"
    more = [line.strip() for line in lines[at + 1 : at + 6] if line.strip() and not line.startswith(" -->")]
    return "cargo built nothing: " + " ".join([lines[at].removeprefix("error: "), *more])[:600]


def read_nextest(run: FinishedRun) -> Results:
    """Read the JUnit file, or the compile errors if nothing ran."""
    sources = sources_of(run.root)
    output = strip_terminal_codes(run.output)
    started = _STARTED.search(output)
    if started is None:
        errors = read_compile_errors(output, sources)
        problem = None if errors or not run.exit_status else _first_error(output.splitlines())
        return Results(collect_errors=errors, problem=problem)
    cases, problem = read_junit(run.results / JUNIT)
    if problem is None and len(cases) != int(started["count"]):
        problem = f"of {started['count']} tests that were started the results of {len(cases)} are there"
    packages = {
        name: path.removesuffix(MANIFEST)
        for path in sources.files()
        if path.rpartition("/")[2] == MANIFEST
        for name in crate_names(sources.text(path))[:1]
    }
    tests = [_convert_case(case, _find_program(case.classname, packages, sources=sources)) for case in cases]
    for match in _SKIPPED.finditer(output):  # the JUnit file leaves skipped tests out
        program, name = _find_program(match["program"], packages, sources=sources), match["name"]
        file, line = program.place_of(name)
        if _is_ignored(sources.text(file), name):
            tests.append(Case(nodeid=f"{file}::{name}", outcome="skipped", file=file, line=line, duration_s=0.0))
    return Results(tests=tuple(tests), problem=problem)


def _find_program(called: str, packages: dict[str, str], *, sources: Sources) -> Program:
    """Return the program that nextest calls ``package::kind/target``; ``packages`` are name -> folder."""
    package, _, target = called.partition("::")
    folder = packages.get(package, "")
    kind, _, name = target.partition("/")
    candidates: tuple[str, ...] = ("src/lib.rs", "src/main.rs")
    if kind in _TARGET_FOLDERS and "/" in target:
        place = _TARGET_FOLDERS[kind]
        candidates = (f"{place}/{name}.rs", f"{place}/{name}/main.rs", "src/main.rs")
    elif target:
        candidates = (f"tests/{target}.rs", f"tests/{target}/main.rs")
    shown = next((path for path in candidates if sources.own(folder + path) == folder + path), candidates[0])
    return Program(source=folder + shown, shown=shown, sources=sources)


def _is_ignored(source: str, name: str) -> bool:
    """Return whether a skipped test is marked so, and was not just left out by the selection."""
    function = re.escape(name.rpartition("::")[2])
    marked = rf"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn {function}\b"
    return re.search(marked, source) is not None


def _convert_case(case: JunitCase, program: Program) -> Case:
    file, line = program.place_of(case.name)
    return Case(
        nodeid=f"{file}::{case.name}",
        outcome=case.outcome,
        file=file,
        line=line,
        duration_s=case.duration_s,
        reruns=case.reruns,
        failure=_describe_case(case, program) if case.outcome in ("failed", "error") else None,
    )


def _describe_case(case: JunitCase, program: Program) -> Failure:
    ending = next((kind for start, kind in _SILENT_ENDS if case.type.startswith(start)), None)
    if ending is not None and "panicked at" not in case.text:
        message = case.message or case.type
        return Failure(
            phase="call", kind=ending, origin="project", exception="", message=message, text=shorten(case.output)
        )
    is_all = "panicked at" in case.text and "panic did not contain expected string" not in case.output
    text = case.text if is_all else f"{case.text}\n{case.output}"
    return program.describe_failure(text.strip("\n"), case.name)
