"""From what JavaScript threw, as text, to a failure: its kind, what was missing, and the place in own code. Pure."""

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cdd_agent.testrun.frameworks.javascript.reports.kinds import Kind, classify
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.report import Failure, Frame

_READ_CAP = 100_000
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
    text = _COLOUR.sub("", text[:_READ_CAP]).strip("\n")
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
    text = _COLOUR.sub("", text[-_READ_CAP:])
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
