"""``cargo nextest run``: one process a test, and results as JUnit XML. It runs no documentation tests."""

import os
import re
import shutil
from pathlib import Path

from cdd_agent.testrun.frameworks.compiled.rust import cargo, programs, rustc
from cdd_agent.testrun.frameworks.compiled.rust.programs import Program
from cdd_agent.testrun.frameworks.compiled.sources import Sources, capped, plain
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.junit_xml import JunitCase, read_junit
from pytest_tdd_agent.report import Case, Failure

JUNIT = "nextest.xml"
PROFILE = "cdd-agent"

_SKIPPED = re.compile(r"^ +SKIP \[[^\]]*\] \([^)]*\) (?P<program>\S+) (?P<name>\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^ +Starting (?P<count>\d+) tests? across", re.MULTILINE)
_ENDING = (
    (r"test timeout", "timeout"),
    (r"test abort", "crash"),
)
"""Beginning of nextest's word for a failure -> kind, where the test itself could say nothing."""


def find(folder: Path) -> Finding | None:
    """A manifest, where nextest is installed."""
    found = cargo.find(folder)
    if found is None or not _is_installed():
        return None
    whole = found.argv[2:]
    why = f"{found.why}, and cargo-nextest is installed"
    return Finding(manifest=found.manifest, argv=("cargo", "nextest", "run", *whole), why=why)


def _is_installed() -> bool:
    """Whether cargo would find it, on the path or among its own programs."""
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    return shutil.which("cargo-nextest") is not None or os.access(home / "bin" / "cargo-nextest", os.X_OK)


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """A profile of ours beside the project's own configuration, written to a file in ``results``."""
    settings = results / "nextest.toml"
    settings.write_text(
        f"[profile.{PROFILE}]\nfail-fast = false\nretries = 0\nstatus-level = 'skip'\nfinal-status-level = 'none'\n"
        f"failure-output = 'never'\n[profile.{PROFILE}.junit]\npath = '{results / JUNIT}'\n",
        encoding="utf-8",
    )
    return ("--tool-config-file", f"cdd:{settings}", "--profile", PROFILE, *cargo.selection(targets))


def read(ended: Ended) -> Results:
    """The JUnit file; without one, what the compiler says."""
    sources = programs.sources_of(ended.root)
    output = plain(ended.output)
    started = _STARTED.search(output)
    if started is None:
        errors = rustc.compile_errors(output, sources)
        problem = None if errors or not ended.exit_status else cargo.first_error(output.splitlines())
        return Results(collect_errors=errors, problem=problem)
    cases, problem = read_junit(ended.results / JUNIT)
    if problem is None and len(cases) != int(started["count"]):
        problem = f"of {started['count']} tests that were started the results of {len(cases)} are there"
    built = _Programs(sources)
    tests = [_case(case, built.of(case.classname), sources=sources) for case in cases]
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
            for name in rustc.names_in(sources.text(path))[:1]
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
        file, _ = programs.place_of(self.of(program), name, sources=self._sources)
        function = re.escape(name.rpartition("::")[2])
        marked = rf"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn {function}\b"
        return re.search(marked, self._sources.text(file)) is not None


def _case(case: JunitCase, program: Program, *, sources: Sources) -> Case:
    file, line = programs.place_of(program, case.name, sources=sources)
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
    return programs.why_failed(text.strip("\n"), name=case.name, program=program, sources=sources)


def _skipped(name: str, program: Program, *, sources: Sources) -> Case:
    file, line = programs.place_of(program, name, sources=sources)
    return Case(nodeid=f"{file}::{name}", outcome="skipped", file=file, line=line, duration_s=0.0)


NEXTEST = Framework(
    name="nextest",
    looked_for=f"{programs.LOOKED_FOR}, and cargo-nextest installed",
    find=find,
    arguments=arguments,
    read=read,
    is_test=rustc.is_test,
    variables=programs.VARIABLES,
)
