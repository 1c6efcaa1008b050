"""Rust tests: where one is written, and why one failed, from what it printed. For cargo and nextest alike."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdd_agent.testrun.frameworks.compiled.rust.rustc import compile_errors, is_test
from cdd_agent.testrun.frameworks.compiled.sources import Sources, capped
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP
from pytest_tdd_agent.report import Failure, Frame

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
