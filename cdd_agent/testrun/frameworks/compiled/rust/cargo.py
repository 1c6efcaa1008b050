"""``cargo test``, read from its text: results as JSON are for unstable Rust only."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.compiled.rust import programs, rustc
from cdd_agent.testrun.frameworks.compiled.rust.programs import Program
from cdd_agent.testrun.frameworks.compiled.sources import Sources, only, plain, split_target
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from pytest_tdd_agent.report import Case, Failure

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


def find(folder: Path) -> Finding | None:
    """A manifest of a package or of a workspace."""
    manifest = folder / programs.LOOKED_FOR
    try:
        tables = tomllib.loads(read_ordinary(manifest, limit_bytes=4_000_000).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if "package" not in tables and "workspace" not in tables:
        return None
    whole = ("--workspace",) if "workspace" in tables else ()
    return Finding(manifest=manifest, argv=("cargo", "test", *whole), why=f"there is a {manifest.name}")


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
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


def read(ended: Ended) -> Results:
    """Errors of the compiler, which nothing has run after, or the results of each program of tests."""
    sources = programs.sources_of(ended.root)
    building, sections = _parts(plain(ended.output))
    errors = rustc.compile_errors("\n".join(building), sources) if not sections else ()
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
        _case(name, result, text=outputs.get(name, ""), program=program, sources=sources) for name, result in results
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


def _case(name: str, result: str, *, text: str, program: Program | None, sources: Sources) -> Case:
    name = _NOTE.sub("", name)
    doc = _DOC.match(name) if program is None else None
    if program is None:
        shown = doc["file"] if doc else "src/lib.rs"
        file, line = sources.own(shown) or shown, int(doc["line"]) if doc else 0
        program, name = Program(source=file, shown=file), f"doc {doc['item'] if doc else name}".strip()
    else:
        file, line = programs.place_of(program, name, sources=sources)
    failure = None
    if result == "FAILED":
        failure = programs.why_failed(text, name=name, program=program, sources=sources)
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
    looked_for=programs.LOOKED_FOR,
    find=find,
    arguments=arguments,
    read=read,
    is_test=rustc.is_test,
    variables=programs.VARIABLES,
)
