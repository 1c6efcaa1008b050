"""JavaScript: finds kind, missing name and location of a failure in an error's text."""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from cdd_agent.testrun.frameworks.sources import match_rule, strip_terminal_codes
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.report import Failure, Frame

_TEXT_READ_CAP = 100_000
_MESSAGE_READ_CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A failure kind, and the missing member, export or name in the message."""

    name: str
    missing: str | None = None
    module: str | None = None
    """The module as the import spells it."""
    importer: str | None = None
    """The file with that import, if the message names it."""


_EXPECTATION = re.compile(r"expect(?:\.\w+)?\(|assert(?:\.\w+)?\(")
_ASSERTION_CLASSES = ("AssertionError", "JestAssertionError", "AssertionFailedError")
_NOTHING_THROWN = re.compile(
    r"Received function did not throw|Missing expected (?:exception|rejection)|instead of reject"
    r"|to throw an error\s*$|\] to throw (?:error|'?\w+'?)(?: matching .*| including .*)?\s*$"
    r"|resolved instead of rejected|to throw an error, but it didn't|the function to throw an error\.\s+But it didn't"
)
_THROWN = re.compile(
    r"to throw (?:error )?.*? but got (?P<vitest>['\"].*)|Received message:\s+(?P<jest>.*)"
    r"|Input:\s+'(?:\w+: )?(?P<node>.*)",
    re.DOTALL,
)
_OTHER_CLASS = re.compile(r"to throw .* but .* was thrown|Received constructor: |to be (?:an? )?instance of")
_STRUCTURAL = ("attribute_error", "name_error", "not_implemented", "missing_module", "import_error")
_GENERATED = re.compile(r"(?:__vi(?:te_ssr)?_import_\d+__|_[\w$]*|\(intermediate value\)|\{\})\.")


def classify(message: str, *, name: str, is_expectation: bool = False) -> Kind:
    """Return the kind of an error by the first rule that matches; ``name`` is its class or empty.

    ``is_expectation`` is for an error that, according to the tool, a matcher threw.
    """
    message = message.strip()[:_MESSAGE_READ_CAP]
    if is_expectation or name in _ASSERTION_CLASSES or (name in ("", "Error") and _EXPECTATION.match(message)):
        return _classify_expectation(message)
    found = match_rule("javascript.message", message) or match_rule("javascript.error", f"{name}: {message}")
    if found is None:
        return Kind(name="exception")
    kind, parts = found
    missing = _clean_name(spelled) if (spelled := parts.get("name")) else None
    return Kind(name=kind, missing=missing, module=parts.get("module"), importer=parts.get("importer"))


def _classify_expectation(message: str) -> Kind:
    thrown = _THROWN.search(message)
    if thrown:
        inner = next(text for text in thrown.groups() if text is not None).strip().strip("'\"")
        kind = classify(inner, name="")
        if kind.name in _STRUCTURAL:
            return kind
    if not thrown and _NOTHING_THROWN.search(message):
        return Kind(name="did_not_raise")
    if _OTHER_CLASS.search(message):
        return Kind(name="wrong_exception" if "throw" in message or "error" in message else "assertion")
    return Kind(name="raises_match_mismatch" if thrown else "assertion")


def _clean_name(name: str) -> str | None:
    """Return a name as the source spells it, without the compiler's additions."""
    inner = re.fullmatch(r"\(0\s*,\s*(.+)\)", name)
    found = re.search(r"[\w$#.]+\Z", _GENERATED.sub("", inner[1] if inner else name, count=1))
    return found[0].strip(".") if found else None


_HEAD = re.compile(r"(?:Uncaught )?(?P<name>[A-Z][\w$]*)(?: ?\[[^\]\n]*\])?: (?P<message>.*)", re.DOTALL)
_STACK = re.compile(r"^\s+at .*:\d+\)?$|^\s+at .*\(<anonymous>\)$", re.MULTILINE)
_PLACE = re.compile(
    r"^[^\S\n]*(?:at (?:async )?(?:(?P<function>[^\n(]*?) \()?|At file: )?"
    r"(?P<path>[^\s()'\"][^()'\"\n]*?\.(?:[cm]?[jt]sx?|vue|svelte))(?:\?[^\s:]*)?:(?P<line>\d+)(?::\d+)?\)?:?$",
    re.MULTILINE,
)
_BABEL = re.compile(r"(?P<path>/\S+?\.[cm]?[jt]sx?): [^\n]*\((?P<line>\d+):\d+\)")
_PRINTED = re.compile(r"^(?:\w+Error|Error)(?: ?\[[^\]\n]*\])?: .*", re.MULTILINE)
_ABOVE = re.compile(r"^(?:/|file://)[^\n]*:\d+$", re.MULTILINE)
_AFTER = re.compile(r"\n\s*\nNode\.js v.*", re.DOTALL)
_RUNNERS = {
    *("vitest", "@vitest", "jest", "@jest", "mocha", "chai", "expect", "vite", "vite-node", "tinypool", "tinyspy"),
    *("yargs", "emittery"),
}
"""Packages and scopes of test runners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """The test that threw an error."""

    root: Path
    file: str
    """The test file, relative to the root."""
    is_test: Callable[[str], bool]
    phase: str = "call"


def describe_error(text: str, context: ErrorContext, *, is_expectation: bool = False) -> Failure:
    """Return the failure of an error; ``text`` is its class, message and stack as the tool shows them.

    ``is_expectation`` is for an error that, according to the tool, a matcher threw.
    """
    text = strip_terminal_codes(text[:_TEXT_READ_CAP]).strip("\n")
    stack = _STACK.search(text)
    head = text[: stack.start()] if stack else text
    found = _HEAD.match(head)
    name, message = (found["name"], found["message"]) if found else ("", head)
    places = _parse_places(text, context.root)
    own = [place for place in places if _is_own(place.path)]
    inner = places[0].path if places else context.file
    is_in_test = inner == context.file or context.is_test(inner)
    origin = "third_party" if places and not _is_own(inner) else "test" if is_in_test else "project"
    kind = classify(message, name=name, is_expectation=is_expectation)
    if context.phase == "collect" and kind.name == "exception":
        kind = replace(kind, name="collection_error")
    if kind.name == "timeout" and message.strip() == "STACK_TRACE_ERROR":  # vitest's stand-in for a message
        message = "A time limit was exceeded"
    missing = _find_missing(kind, context)
    return Failure(
        phase=context.phase,
        kind=kind.name,
        origin=origin,
        exception=name or "Error",
        message=message.strip()[:MESSAGE_CAP],
        missing_name=missing,
        path=own[0].path if own else context.file if context.phase == "collect" else None,
        line=own[0].line if own else None,
        frames=tuple(reversed(own[:FRAMES_CAP])),
        text=text[:TEXT_CAP],
        missing_in_project=_is_in_project(kind, missing, root=context.root, origin=origin),
    )


def find_printed_error(text: str) -> str:
    """Return the error that ended a process, from its output, followed by the location that is printed above it."""
    text = strip_terminal_codes(text[-_TEXT_READ_CAP:])
    heads = list(_PRINTED.finditer(text))
    if not heads:
        return text.strip("\n")
    head = heads[-1]
    places = list(_ABOVE.finditer(text[: head.start()]))
    error = _AFTER.sub("", text[head.start() :]).strip("\n")
    return f"{error}\n{places[-1][0]}" if places else error


def make_relative(path: str, root: Path) -> str:
    """Return a file as node ids name it: posix, and relative if it is below the root."""
    path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    path = path.partition("?")[0]
    for folder in (str(root).rstrip("/"), str(root.resolve()).rstrip("/")):
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/")
    return path if path.startswith(("/", "node:")) else posixpath.normpath(path)


def _parse_places(text: str, root: Path) -> list[Frame]:
    """Return the places of the stack, innermost first, without those in node and in the test runner."""
    frames = []
    for place in (*_BABEL.finditer(text), *_PLACE.finditer(text)):
        path = make_relative(place["path"], root)
        package = f"/{path}".rpartition("/node_modules/")[2].partition("/")[0] if "node_modules/" in path else ""
        if not path.startswith("node:") and package not in _RUNNERS and not package.startswith("jest-"):
            frames.append(Frame(path, int(place["line"]), place.groupdict().get("function") or ""))
    return frames


def _is_own(path: str) -> bool:
    return not path.startswith(("/", "../", "node:")) and "node_modules" not in path.split("/")


def _find_missing(kind: Kind, context: ErrorContext) -> str | None:
    """Return the missing name; for a module, its file relative to the root if the import shows it."""
    module = kind.module
    if module is None:
        return kind.missing
    if module.startswith("."):
        importer = make_relative(kind.importer, context.root) if kind.importer else context.file
        module = posixpath.normpath(posixpath.join(posixpath.dirname(importer), module))
    elif module.startswith(("/", "file://")):
        module = make_relative(module, context.root)
        # Vite's paths begin at the root of the project, so their first folder need not exist in the file system.
        if module.startswith("/") and not Path("/", *Path(module).parts[1:2]).is_dir():
            module = module.removeprefix("/")
    return f"{module}.{kind.missing}" if kind.missing else module


def _is_in_project(kind: Kind, missing: str | None, *, root: Path, origin: str) -> bool | None:
    if missing is None:
        return None
    if kind.module is None:
        return origin != "third_party" if kind.name == "name_error" else None
    if "/node_modules/" in f"/{kind.module}":
        return False
    if kind.module.startswith((".", "/", "#", "@/", "~", "file://")):
        return True
    first = kind.module.split("/")[0]
    return "/" in kind.module and not first.startswith("@") and first not in ("", "..") and (root / first).is_dir()
