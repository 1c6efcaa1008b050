"""From the class and the message of what was thrown to a failure kind. The first rule that fits decides. Pure.

From what JavaScript threw, as text, to a failure: its kind, what was missing, and the place in own code. Pure.
"""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.report import Failure, Frame

_KINDS_READ_CAP = 10_000
_ANY = frozenset[str]()
_TYPE = frozenset({"", "TypeError"})
_REFERENCE = frozenset({"", "ReferenceError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A failure kind, and what a message says of the name that was not there."""

    name: str
    missing: str | None = None
    """A member, an export or a name."""
    module: str | None = None
    """As the import has it."""
    importer: str | None = None
    """The file with that import, if the message says it."""


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: str
    classes: frozenset[str] = _ANY
    """Those that it holds for; none: all of them."""


_MODULE = r"['\"](?P<module>[^'\"\n]+)['\"]"
_IMPORTER = r"['\"]?(?P<importer>(?:file://)?[^'\"\n]+?)['\"]?"
_NAME = r"['\"](?P<missing>[^'\"\n]+)['\"]"
_COMPILER = r"(?:.*\n){0,50}?.*TS"
_NOT_WRITTEN = r"(?:\S+ (?:is )?)?(?:[Nn]ot (?:yet )?implemented|NOT IMPLEMENTED|[Uu]nimplemented)\b|(?i:todo)\b"
_RULES = (
    _Rule("timeout", r"(?:Hook|Test) timed out in \d|test timed out after \d|Timeout of \d+ ?ms exceeded"),
    _Rule("timeout", r"(?:thrown: )?\"?Exceeded timeout of \d|STACK_TRACE_ERROR\b"),
    _Rule("assertion", r"Snapshot `.*` mismatched"),
    _Rule("xpass_strict", r"Expect test to fail|Failing test passed even though"),
    _Rule("system_exit", r"process\.exit (?:unexpectedly )?called with"),
    _Rule("resource", r".*(?:heap out of memory|reached heap limit)|E(?:MFILE|NFILE|NOSPC|NOMEM)\b"),
    _Rule("crash", r"A jest worker process.*was terminated|Jest worker encountered|Worker (?:terminated|exited)"),
    _Rule("recursion", r"Maximum call stack size exceeded"),
    _Rule("missing_module", rf"Cannot find (?:module|package) {_MODULE}(?: imported)? from {_IMPORTER}(?:$|\n)"),
    _Rule("missing_module", rf"Cannot find (?:module|package) {_MODULE}"),
    _Rule("missing_module", rf"Failed to resolve import {_MODULE} from {_IMPORTER}\. Does"),
    _Rule(
        "missing_module",
        r"Failed to load url (?P<module>\S+)(?: \(resolved id: [^\n]*?\))?(?: in (?P<importer>\S+?))?\.? Does",
    ),
    _Rule("missing_module", rf"{_COMPILER}2307: Cannot find module {_MODULE}"),
    _Rule("import_error", rf"The requested module {_MODULE} does not provide an export named {_NAME}"),
    _Rule("import_error", rf"{_COMPILER}2305: Module '{_MODULE}' has no exported member {_NAME}"),
    _Rule("attribute_error", rf"{_COMPILER}2(?:339|551): Property {_NAME} does not exist on"),
    _Rule("name_error", rf"{_COMPILER}2(?:304|552): Cannot find name {_NAME}"),
    _Rule("signature_mismatch", rf"{_COMPILER}255[45]: Expected [^\n]+ arguments?, but got"),
    _Rule("attribute_error", r"(?P<missing>[^\n]+?) is not a (?:function|constructor)\b", _TYPE),
    _Rule(
        "attribute_error",
        rf"Cannot (?:read|set) propert(?:y|ies) of (?:undefined|null) \((?:reading|setting) {_NAME}",
        _TYPE,
    ),
    _Rule("name_error", r"(?P<missing>[\w$]+) is not defined\b", _REFERENCE),
    _Rule("name_error", rf"Cannot access {_NAME} before initialization", _REFERENCE),
    _Rule("syntax_error", r"Parse failure: |Transform failed with|Jest encountered an unexpected token"),
    _Rule("syntax_error", r"", frozenset({"SyntaxError"})),
    _Rule("not_implemented", r"", frozenset({"NotImplementedError"})),
    _Rule("not_implemented", _NOT_WRITTEN, frozenset({"", "Error"})),
)
_COMPILED = tuple((rule, re.compile(rule.pattern)) for rule in _RULES)

_EXPECTATION = re.compile(r"expect(?:\.\w+)?\(|assert(?:\.\w+)?\(")
_ASSERTION_CLASSES = ("AssertionError", "JestAssertionError", "AssertionFailedError")
_NOTHING_THROWN = re.compile(
    r"Received function did not throw|Missing expected (?:exception|rejection)|instead of reject"
    r"|to throw an error\s*$|\] to throw (?:error|'?\w+'?)(?: matching .*| including .*)?\s*$"
    r"|resolved instead of rejected|to throw an error, but it didn't|the function to throw an error\.\s+But it didn't",
)
_THROWN = re.compile(
    r"to throw (?:error )?.*? but got (?P<vitest>['\"].*)|Received message:\s+(?P<jest>.*)"
    r"|Input:\s+'(?:\w+: )?(?P<node>.*)",
    re.DOTALL,
)
_OTHER_CLASS = re.compile(
    r"to throw .* but .* was thrown|Received constructor: |to be an? instance of|to be instance of"
)
_STRUCTURAL = ("attribute_error", "name_error", "not_implemented", "missing_module", "import_error")
_GENERATED = re.compile(r"(?:__vi(?:te_ssr)?_import_\d+__|_[\w$]*|\(intermediate value\)|\{\})\.")


def classify(message: str, *, name: str, is_expectation: bool = False) -> Kind:
    """The kind of what was thrown: ``name`` is its class, empty if that is not known.

    ``is_expectation``: the tool itself says that a matcher threw it.
    """
    message = message.strip()[:_KINDS_READ_CAP]
    if is_expectation or name in _ASSERTION_CLASSES or (name in ("", "Error") and _EXPECTATION.match(message)):
        return _of_expectation(message)
    for rule, pattern in _COMPILED:
        found = pattern.match(message) if not rule.classes or name in rule.classes else None
        if found:
            told = found.groupdict()
            return Kind(
                name=rule.kind,
                missing=_member(told.get("missing")),
                module=told.get("module"),
                importer=told.get("importer"),
            )
    return Kind(name="exception")


def _of_expectation(message: str) -> Kind:
    """An expectation that did not hold; if another error came because a name is not there, that decides."""
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


def _member(told: str | None) -> str | None:
    """A name as the source has it, without what a compiler put around it."""
    if told is None:
        return None
    inner = re.fullmatch(r"\(0\s*,\s*(.+)\)", told)
    name = _GENERATED.sub("", inner[1] if inner else told, count=1)
    found = re.search(r"[\w$#.]+\Z", name)
    return found[0].strip(".") if found else None


_THROWN_READ_CAP = 100_000
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
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
_RUNNERS = frozenset(
    {"vitest", "jest", "mocha", "chai", "expect", "vite", "vite-node", "tinypool", "tinyspy", "yargs", "emittery"}
)
_RUNNER_SCOPES = frozenset({"@vitest", "@jest"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where something was thrown, as far as that is known without looking at it."""

    root: Path
    file: str
    """The test file, relative to the root."""
    is_test: Callable[[str], bool]
    phase: str = "call"


def failure(text: str, setting: Setting, *, is_expectation: bool = False) -> Failure:
    """The failure that an error stands for, ``text`` being its class, message and stack as the tool shows them.

    ``is_expectation``: the tool says that a matcher threw it.
    """
    text = _COLOUR.sub("", text[:_THROWN_READ_CAP]).strip("\n")
    name, message = _head(text)
    places = _places(text, setting.root)
    own = [place for place in places if _is_own(place.path)]
    origin = _origin(places, setting)
    kind = classify(message, name=name, is_expectation=is_expectation)
    if setting.phase == "collect" and kind.name == "exception":
        kind = Kind(name="collection_error")
    importer = _relative(kind.importer, setting.root) if kind.importer else setting.file
    missing = _missing(kind, importer=importer, root=setting.root)
    return Failure(
        phase=setting.phase,
        kind=kind.name,
        origin=origin,
        exception=name or "Error",
        message=_told(message.strip(), kind)[:MESSAGE_CAP],
        missing_name=missing,
        path=own[0].path if own else setting.file if setting.phase == "collect" else None,
        line=own[0].line if own else None,
        frames=tuple(reversed(own[:FRAMES_CAP])),
        text=text[:TEXT_CAP],
        missing_in_project=_is_in_project(kind, missing, root=setting.root, origin=origin),
    )


def printed(text: str) -> str:
    """The error that a process died of, in what it printed: from its class on, with the place above that at its end."""
    text = _COLOUR.sub("", text[-_THROWN_READ_CAP:])
    heads = list(_PRINTED.finditer(text))
    if not heads:
        return text.strip("\n")
    head = heads[-1]
    places = list(_ABOVE.finditer(text[: head.start()]))
    said = _AFTER.sub("", text[head.start() :]).strip("\n")
    return f"{said}\n{places[-1][0]}" if places else said


def relative(path: str, root: Path) -> str:
    """A file as node ids have it: posix, and relative if it lies below the root."""
    return _relative(path, root)


def without_colour(text: str) -> str:
    """What is read of a text that was written for a terminal."""
    return _COLOUR.sub("", text)


def _head(text: str) -> tuple[str, str]:
    """Class and message; no class if the text does not begin with one."""
    stack = _STACK.search(text)
    said = text[: stack.start()] if stack else text
    found = _HEAD.match(said)
    return (found["name"], found["message"]) if found else ("", said)


def _told(message: str, kind: Kind) -> str:
    """The message; vitest puts a mark of its own in the place of a time limit's."""
    return "A time limit was exceeded" if kind.name == "timeout" and message == "STACK_TRACE_ERROR" else message


def _places(text: str, root: Path) -> list[Frame]:
    """Files of the stack, innermost first; those of node itself and of the runner are left out."""
    found = [*_BABEL.finditer(text), *_PLACE.finditer(text)]
    frames = []
    for place in found:
        path = _relative(place["path"], root)
        if path.startswith("node:") or _is_runners(path):
            continue
        function = place.groupdict().get("function") or ""
        frames.append(Frame(path, int(place["line"]), function))
    return frames


def _relative(path: str, root: Path) -> str:
    path = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    path = path.partition("?")[0]
    for folder in (str(root), str(root.resolve())):
        if path.startswith(folder.rstrip("/") + "/"):
            return path[len(folder.rstrip("/")) + 1 :]
    return path if path.startswith(("/", "node:")) else posixpath.normpath(path)


def _is_runners(path: str) -> bool:
    parts = path.split("/")
    if "node_modules" not in parts:
        return False
    package = parts[len(parts) - parts[::-1].index("node_modules") :][:1]
    name = package[0] if package else ""
    return name in _RUNNERS or name in _RUNNER_SCOPES or name.startswith("jest-")


def _is_own(path: str) -> bool:
    return not path.startswith(("/", "../", "node:")) and "node_modules" not in path.split("/")


def _origin(places: list[Frame], setting: Setting) -> str:
    if not places:
        return "test"
    if not _is_own(places[0].path):
        return "third_party"
    return "test" if places[0].path == setting.file or setting.is_test(places[0].path) else "project"


def _missing(kind: Kind, *, importer: str, root: Path) -> str | None:
    """The name that was not there; of a module, its file relative to the root, as far as the import says it."""
    if kind.module is None:
        return kind.missing
    module = kind.module
    if module.startswith("."):
        module = posixpath.normpath(posixpath.join(posixpath.dirname(importer), module))
    elif module.startswith(("/", "file://")):
        module = _relative(module, root)
        module = module.removeprefix("/") if module.startswith("/") and not _is_absolute_place(module) else module
    return f"{module}.{kind.missing}" if kind.missing else module


def _is_absolute_place(path: str) -> bool:
    """Whether a path begins at the top of the file system; vite's begin at the root of the project."""
    return Path("/", *Path(path).parts[1:2]).is_dir()


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
