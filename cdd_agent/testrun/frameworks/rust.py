"""Rust: finds, runs and reads ``cargo test``, which prints only text, and ``cargo nextest run`` (JUnit XML)."""

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from cdd_agent.testrun.frameworks.framework import (
    FinishedRun,
    FrameworkMatch,
    ParsedResults,
    XmlCase,
    number_cases,
    read_junit,
)
from cdd_agent.testrun.frameworks.sources import (
    Call,
    Language,
    Meaning,
    Sources,
    classify,
    match_path,
    match_rule,
    read_text,
    shorten,
)
from cdd_agent.testrun.project_files import get_table, read_toml
from pytest_tdd_agent.report import Case, Failure

MANIFEST = "Cargo.toml"
VARIABLES = (("CARGO_TERM_COLOR", "never"), ("RUST_BACKTRACE", "1"))
"""Only a backtrace shows whether the test or the code under test panicked."""
JUNIT = "nextest.xml"
PROFILE = "cdd-agent"

_INTEGRATION = re.compile(r"(?:^|/)tests/(?P<program>\w[\w.-]*?)(?:\.rs|/.*)?$")
_TYPE = re.compile(r"\b(?:struct|enum|trait|union|type)\s+([A-Za-z_]\w*)")

_PANIC = re.compile(
    r"^thread '[^\n]*?' (?:\(\d+\) )?panicked at (?:'(?P<old>.*?)', )?(?P<path>[^\n]+?):(?P<line>\d+):\d+(?::\n|\n|\Z)"
    r"(?P<message>.*?)(?=^stack backtrace:|^note: |\Z)",
    re.MULTILINE | re.DOTALL,
)
_FRAME = re.compile(r"^ +\d+: (?P<function>.+)\n +at (?P<path>.+?):(?P<line>\d+)(?::\d+)?$", re.MULTILINE)
_NOT_RAISED = re.compile(r"test did not panic as expected|Test executable succeeded, but it's marked `should_panic`")
_OTHER_MESSAGE = re.compile(r"panic did not contain expected string(?P<told>(?:\n +[^\n]+)*)")

_BLOCK = re.compile(
    r"^ +(?:Running (?:unittests )?(?P<source>\S+) \((?P<binary>[^\n]+)\)|Doc-tests (?P<docs>\S+))$"
    r"|^running (?P<count>\d+) tests?\n(?P<listing>.*?)(?:^(?:failures|successes):\n(?P<details>.*?))?"
    r"(?P<end>^test result: [^\n]* finished in [\d.]+s$|(?=^error: (?:test|doctest|bench) failed)|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""The header of a program or of a crate's documentation, or all that libtest prints below it.

A header that a test prints is in the details of a block.
"""
_RESULT = re.compile(
    r"^test (?P<name>\S.*?) \.\.\. (?:(?P<result>ok|FAILED|ignored|bench:).*"
    # A test that writes to the terminal puts its output between its name and its result.
    r"|.*\n(?:(?!test ).*\n)*?(?P<late>ok|FAILED|ignored))$",
    re.MULTILINE,
)
_BEGUN = re.compile(r"^test (?P<name>\S.*?) \.\.\. ", re.MULTILINE)
_OUTPUT = re.compile(r"^---- (?P<name>\S.*?) stdout ----$", re.MULTILINE)
_DIED = re.compile(r"^error: (?:test|doctest|bench) failed, to rerun pass|^error: \d+ targets? failed", re.MULTILINE)
_EXIT = re.compile(r"^ *(?P<message>.*process didn't exit successfully.*?) *$", re.MULTILINE)
_NOTE = re.compile(r" - (?:should panic|compile fail|compile)$")
_DOC = re.compile(r"^(?P<file>.+?) - (?P<item>.*?) ?\(line (?P<line>\d+)\)$")
_OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped", "bench:": "passed"}

_SKIPPED = re.compile(r"^ +SKIP \[[^\]]*\] \([^)]*\) (?P<program>\S+) (?P<name>\S+)$", re.MULTILINE)
_STARTED = re.compile(r"^ +Starting (?P<count>\d+) tests? across", re.MULTILINE)
_SILENT_ENDS = (("test timeout", "timeout"), ("test abort", "crash"))
"""Beginning of nextest's failure type -> kind, for tests that could not print anything."""
_TARGET_FOLDERS = {"bin": "src/bin", "example": "examples", "bench": "benches"}

_COMPILE_ERROR = re.compile(
    r"^error(?:\[(?P<code>E\d{4})\])?: (?P<message>[^\n]+)\n"
    r"(?P<rest> *--> (?P<path>[^\n]+?):(?P<line>\d+):\d+(?:\n(?!error|warning|\n)[^\n]*)*)",
    re.MULTILINE,
)
# A source file with unit tests inside is not a test.
is_test = match_path(r"(?:^|/)(?:(?:tests|benches)/.|tests?\.rs$)|_tests?\.rs$|^\.config/nextest\.toml$|^\.cargo/")


def find_cargo(folder: Path) -> FrameworkMatch | None:
    """Look for the manifest of a package or a workspace."""
    tables = read_toml(folder / MANIFEST)
    if "package" not in tables and "workspace" not in tables:
        return None
    whole = ("--workspace",) if "workspace" in tables else ()
    return FrameworkMatch(manifest=folder / MANIFEST, argv=("cargo", "test", *whole), why=f"there is a {MANIFEST}")


def find_nextest(folder: Path) -> FrameworkMatch | None:
    """Look for a manifest, if nextest is installed on the path or beside cargo's own programs."""
    found = find_cargo(folder)
    beside = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo", "bin", "cargo-nextest")
    if found is None or (shutil.which("cargo-nextest") is None and not os.access(beside, os.X_OK)):
        return None
    argv = ("cargo", "nextest", "run", *found.argv[2:])
    return replace(found, argv=argv, why=f"{found.why}, and cargo-nextest is installed")


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each module with and without its crate, or the crate, and the types that its source defines."""
    for source in sources:
        folder = posixpath.dirname(source)
        while folder and not (root / folder / MANIFEST).is_file():
            folder = posixpath.dirname(folder)
        inside = posixpath.relpath(source, folder or ".")
        if not source.endswith(".rs") or not inside.startswith("src/"):
            continue
        names = list_crate_names(root / folder / MANIFEST)
        crate = names[-1].replace("-", "_") if names else ""  # the library's name, if it differs from the package's
        module = inside.removeprefix("src/").removesuffix(".rs")
        parts = [part for part in module.split("/") if part not in ("lib", "main", "mod")]
        yield ".".join((crate, *parts))
        if parts:
            yield ".".join(parts)
            yield parts[-1]
        yield from _TYPE.findall(read_text(root / source))


def build_cargo_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Run all tests even after a failure, and select ``files``."""
    return ("--no-fail-fast", *_select(files))


def build_nextest_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Add a profile for cdd to the project's configuration, in a file in ``results``."""
    settings = results / "nextest.toml"
    settings.write_text(
        f"[profile.{PROFILE}]\nfail-fast = false\nretries = 0\nstatus-level = 'skip'\nfinal-status-level = 'none'\n"
        f"failure-output = 'never'\n[profile.{PROFILE}.junit]\npath = '{results / JUNIT}'\n",
        encoding="utf-8",
    )
    return ("--tool-config-file", f"cdd:{settings}", "--profile", PROFILE, *_select(files))


def _select(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options that select the test programs of ``files``; unit tests in sources cannot be selected."""
    programs = [found["program"] for file in files if (found := _INTEGRATION.search(file))]
    if len(programs) < len(files):
        return ("--test=*",) if all(file.endswith("tests") for file in files) else ()
    return tuple(f"--test={program}" for program in dict.fromkeys(programs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A test program, built from one file and the modules below it."""

    source: str
    """That file, relative to the project."""
    shown: str
    """The same file relative to its package, as the tool names it."""
    sources: Sources

    def make_case(self, name: str, outcome: str, *, text: str = "") -> Case:
        """Return the case of a test; ``text`` is the output of a failed test."""
        file, line = self.find_test(name)
        failure = self.describe_failure(text, name) if outcome == "failed" else None
        return Case(f"{file}::{name}", outcome, file=file, line=line, duration_s=0.0, failure=failure)

    def find_test(self, name: str) -> tuple[str, int]:
        """Return file and line of the test ``name``, by its modules; ``source`` if no file has their names."""
        *modules, function = name.split("::")
        folder = PurePosixPath(self.source).parent
        inner = (folder.joinpath(*modules[:count]) for count in range(len(modules), 0, -1))
        paths = (self.sources.find_own(path) for stem in inner for path in (f"{stem}.rs", f"{stem}/mod.rs"))
        file = next(filter(None, paths), self.source)
        return file, self.sources.find_line(file, rf"\bfn {re.escape(function)}\s*[<(]")

    def describe_failure(self, text: str, name: str) -> Failure:
        """Return the failure of the test ``name``, from its output."""
        panics = list(_PANIC.finditer(text))
        panic = panics[-1] if panics else None
        if panic is None and (errors := self.sources.read_errors(text)):  # an example in documentation
            return errors[0].failure
        kind, message = _classify(text, panic)
        calls = self._list_calls(text[panic.end() :] if panic else "")
        frames, is_foreign = self.sources.select_own_frames(calls)
        path = self.sources.find_own(panic["path"]) if panic else None
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
            inside, (module, colons, _) = frames[-1].function.partition("::")[2], name.rpartition("::")
            is_in_test = inside.replace("::{{closure}}", "") == name or (module and inside.startswith(module + colons))
            origin = "test" if is_in_test or is_test(frames[-1].path) else "project"
        shown = _FRAME.sub(lambda frame: "" if frame["path"].startswith("/rustc/") else frame[0], text)
        return replace(
            self.sources.describe_failure(kind, message, text=shown, calls=calls),
            origin=origin,
            exception="panic" if panic else "",
            path=path,
            line=line,
            output=shorten(text[: panic.start()].strip("\n") if panic else ""),
        )

    def _list_calls(self, text: str) -> list[Call]:
        calls: list[Call] = []
        package = self.source.removesuffix(self.shown) if self.source.endswith(self.shown) else ""
        for match in _FRAME.finditer(text):
            file = match["path"]
            if file.startswith("/rustc/") or "/rustlib/src/" in file:
                continue
            path = self.sources.find_own(package + file.removeprefix("./") if file.startswith("./") else file)
            # A closure's frame repeats that of the function around it, unless the panic is in the closure.
            if path is None or "{{closure}}" not in match["function"] or not any(own for own, _, _ in calls):
                calls.append((path, int(match["line"]), match["function"]))
        return calls


def _classify(text: str, panic: re.Match[str] | None) -> tuple[str, str]:
    if found := _NOT_RAISED.search(text):
        return "did_not_raise", found[0].removeprefix("note: ")
    if found := _OTHER_MESSAGE.search(text):
        return "raises_match_mismatch", found[0]
    if panic is None:
        return "exception", text.strip().splitlines()[0] if text.strip() else "it failed without a message"
    message = (panic["old"] or panic["message"]).strip("\n")
    return classify("rust.panic", message).kind, message


def read_cargo(run: FinishedRun) -> ParsedResults:
    """Read the results of each test program, or the compile errors if nothing ran."""
    sources, output = Sources(run.root, LANGUAGE), run.plain_output
    sections: list[_Section] = []
    for block in _BLOCK.finditer(output):
        if block["count"] is None:
            sections.append(_Section(header=block, sources=sources))
        elif sections:
            sections[-1].blocks.append(block)
    if not sections:
        return _read_unbuilt(run)
    ends = (*(section.header.start() for section in sections[1:]), len(output))
    read = [section.read(output[section.header.end() : end]) for section, end in zip(sections, ends, strict=True)]
    tests = sorted((case for cases, _ in read for case in cases), key=lambda case: (case.file, case.line))
    # The documentation of one item can have several examples, hence the numbers.
    return ParsedResults(tests=number_cases(tests), problem="; ".join(each for _, each in read if each) or None)


def _read_unbuilt(run: FinishedRun) -> ParsedResults:
    """Return the compile errors of a run without tests, or the reason why nothing was built."""
    output = run.plain_output
    lines = [line.strip() for line in output[output.find("\nerror") + 1 :].splitlines() if line.strip()]
    reason = " ".join(line.removeprefix("error: ") for line in lines[:6] if not line.startswith("-->"))
    found = ParsedResults(collect_errors=Sources(run.root, LANGUAGE).read_errors(output))
    return run.conclude(found, f"cargo built nothing: {reason[:600] or 'no output'}")


@dataclass(slots=True, kw_only=True)
class _Section:
    """The output of one test program, or of the documentation tests of a crate."""

    header: re.Match[str]
    sources: Sources
    blocks: list[re.Match[str]] = field(default_factory=list)

    def read(self, text: str) -> tuple[list[Case], str | None]:
        """Return the tests in the section, whose whole text is ``text``, and the problem if some are missing."""
        exited = _EXIT.search(text)
        program = None if self.header["docs"] else self._find_program()
        if program is not None and not self.blocks:
            return [_read_own_main(program.source, text, message=exited[1] if exited else "it failed")], None
        cases = [case for block in self.blocks for case in self._read_block(block, program)]
        called = self.header["source"] or f"the documentation of {self.header['docs']}"
        if not self.blocks or not self.blocks[-1]["end"]:
            names = {case.nodeid.partition("::")[2] for case in cases}
            begun = [each["name"] for block in self.blocks for each in _BEGUN.finditer(block["listing"])]
            last = f" in {begun[-1]}" if begun and begun[-1] not in names else ""
            return cases, f"the tests of {called} ended early{last}{f': {exited[1]}' if exited else ''}"
        expected = sum(int(block["count"]) for block in self.blocks)
        if len(cases) != expected:
            return cases, f"{called} started {expected} tests, but {len(cases)} results can be read"
        return cases, None

    def _read_block(self, block: re.Match[str], program: Program | None) -> Iterator[Case]:
        found = [
            (_NOTE.sub("", each["name"]), each["result"] or each["late"]) for each in _RESULT.finditer(block["listing"])
        ]
        outputs = _split_outputs(block["details"] or "", {name for name, result in found if result == "FAILED"})
        for name, result in found:
            text, outcome = outputs.get(name, ""), _OUTCOMES[result]
            if program is not None:
                yield program.make_case(name, outcome, text=text)
                continue
            doc = _DOC.match(name)
            path = doc["file"] if doc else "src/lib.rs"
            path, item = self.sources.find_own(path) or path, f"doc {doc['item'] if doc else name}".strip()
            example = Program(source=path, shown=path, sources=self.sources).make_case(item, outcome, text=text)
            yield replace(example, line=int(doc["line"]) if doc else 0)

    def _find_program(self) -> Program:
        """Return the program; cargo writes its file and package into the ``.d`` file beside it."""
        shown, binary = self.header["source"], self.header["binary"]
        built_from = ""
        if not Path(binary).is_absolute() and ".." not in Path(binary).parts:
            rule = self.sources.text(f"{binary}.d").partition("\n")[0]
            built_from = rule.partition(": ")[2].partition(" ")[0]
        own = self.sources.find_own
        return Program(source=own(built_from) or own(shown) or shown, shown=shown, sources=self.sources)


def _read_own_main(file: str, text: str, *, message: str) -> Case:
    """Return the one result of a program with ``harness = false``."""
    if _DIED.search(text) is None:
        return Case(f"{file}::main", "passed", file, line=0, duration_s=0.0)
    failure = Failure(
        "call", "exception", "test", exception="", message=message, path=file, text=text.strip("\n")[-5000:]
    )
    return Case(f"{file}::main", "failed", file, line=0, duration_s=0.0, failure=failure)


def _split_outputs(details: str, failed: set[str]) -> dict[str, str]:
    """Return the output of each failed test."""
    text = details.rpartition("\nfailures:\n")[0]
    heads: dict[str, re.Match[str]] = {}
    for head in _OUTPUT.finditer(text):
        if head["name"] in failed:
            heads.setdefault(head["name"], head)
    ends = [*(head.start() for head in heads.values()), len(text)][1:]
    return {name: text[head.end() : end] for (name, head), end in zip(heads.items(), ends, strict=True)}


def read_nextest(run: FinishedRun) -> ParsedResults:
    """Read the JUnit file, or the compile errors if nothing ran."""
    sources = Sources(run.root, LANGUAGE)
    started = _STARTED.search(run.plain_output)
    if started is None:
        return _read_unbuilt(run)
    cases, problem = read_junit(run.results / JUNIT)
    if problem is None and len(cases) != int(started["count"]):
        problem = f"nextest started {started['count']} tests, but wrote {len(cases)} results"
    packages = {names[0]: path.removesuffix(MANIFEST) for path, names in _list_manifests(sources).items() if names}
    tests = []
    for case in cases:
        program = _find_program(case.classname, packages, sources=sources)
        file, line = program.find_test(case.name)
        failure = _describe_case(case, program) if case.outcome in ("failed", "error") else None
        nodeid, duration_s = f"{file}::{case.name}", case.duration_s
        tests.append(Case(nodeid, case.outcome, file, line, duration_s, reruns=case.reruns, failure=failure))
    for match in _SKIPPED.finditer(run.plain_output):  # the JUnit file omits skipped tests
        program, name = _find_program(match["program"], packages, sources=sources), match["name"]
        skipped = program.make_case(name, "skipped")
        function = re.escape(name.rpartition("::")[2])
        ignored = rf"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn {function}\b"
        if re.search(ignored, sources.text(skipped.file)):  # otherwise the selection left it out
            tests.append(skipped)
    return ParsedResults(tests=tuple(tests), problem=problem)


def _find_program(called: str, packages: dict[str, str], *, sources: Sources) -> Program:
    """Return the program that nextest calls ``package::kind/target``; ``packages`` are name -> folder."""
    package, _, target = called.partition("::")
    folder = packages.get(package, "")
    kind, slash, name = target.partition("/")
    candidates: tuple[str, ...] = ("src/lib.rs", "src/main.rs")
    if slash and (place := _TARGET_FOLDERS.get(kind)):
        candidates = (f"{place}/{name}.rs", f"{place}/{name}/main.rs", "src/main.rs")
    elif target:
        candidates = (f"tests/{target}.rs", f"tests/{target}/main.rs")
    shown = next((path for path in candidates if sources.find_own(folder + path) == folder + path), candidates[0])
    return Program(source=folder + shown, shown=shown, sources=sources)


def _describe_case(case: XmlCase, program: Program) -> Failure:
    ending = next((kind for start, kind in _SILENT_ENDS if case.type.startswith(start)), None)
    if ending is not None and "panicked at" not in case.text:
        message, text = case.message or case.type, shorten(case.output)
        return Failure("call", ending, "project", exception="", message=message, text=text)
    is_all = "panicked at" in case.text and "panic did not contain expected string" not in case.output
    text = case.text if is_all else f"{case.text}\n{case.output}"
    return program.describe_failure(text.strip("\n"), case.name)


def _explain(sources: Sources, match: re.Match[str]) -> Meaning:
    text = f"{match['code'] or ''}: {match['message']}\n{match['rest']}"
    kind, parts = match_rule("rust.compiler", text) or ("collection_error", {})
    if kind == "signature_mismatch":
        return Meaning(kind, _find_call(match["rest"]))
    owner, name = parts.get("owner"), parts.get("name") or parts.get("path")
    inside = owner or parts.get("path")
    is_own = _is_own(inside, sources) if inside else None
    return Meaning(kind, _join_path(owner or parts.get("type"), name) if name else None, is_own)


def _is_own(path: str, sources: Sources) -> bool:
    """Return whether a path begins in this crate or in another crate of the project."""
    first = path.lstrip("&").partition("::")[0]
    crates = (name.replace("-", "_") for manifest in _list_manifests(sources).values() for name in manifest)
    return first in ("crate", "self", "super", "") or first in crates


def _list_manifests(sources: Sources) -> dict[str, tuple[str, ...]]:
    """Map each manifest to the names in it."""
    paths = (path for path in sources.files() if path.rpartition("/")[2] == MANIFEST)
    return {path: list_crate_names(sources.root / path) for path in paths}


def list_crate_names(manifest: Path) -> tuple[str, ...]:
    """Return the names of package and library in a manifest."""
    tables = read_toml(manifest)
    names = (get_table(tables, table).get("name") for table in ("package", "lib"))
    return tuple(name for name in names if isinstance(name, str))


def _find_call(block: str) -> str | None:
    """Return the called function: rustc puts its first ``^`` below the call."""
    for code, marks in pairwise(block.splitlines()):
        margin, mark, _ = marks.partition("^")
        if mark and margin.strip() == "|" and (found := re.match(r"[\w:]+", code[len(margin) :])):
            return _join_path("", found[0])
    return None


def _join_path(owner: str | None, name: str) -> str:
    """Return a Rust path with dots, without generics, references and ``crate::``."""
    plain = re.sub(r"<.*>|^&(?:mut )?|^dyn |^impl ", "", owner or "")
    path = f"{plain}::{name}" if plain else name
    return path.removeprefix("crate::").removeprefix("self::").removeprefix("super::").replace("::", ".")


LANGUAGE = Language(
    suffixes=(".rs", MANIFEST),
    built=("target", "vendor"),
    is_test=is_test,
    error=_COMPILE_ERROR,
    explain=_explain,
    elsewhere=MANIFEST,
)
