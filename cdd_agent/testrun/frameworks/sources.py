"""Finds the project's own source files behind the names that compilers and stack traces use for them."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS
from pytest_tdd_agent.report import CollectError, Failure, Frame

FILES_CAP = 100_000
SOURCE_CAP_BYTES = 2_000_000
STRUCTURAL = frozenset({"missing_module", "import_error", "attribute_error", "name_error", "signature_mismatch"})
"""Kinds of failures for names that do not exist yet."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def strip_terminal_codes(output: str) -> str:
    """Return ``output`` without colors and with ``\\n`` as line ends."""
    return _ANSI.sub("", output).replace("\r\n", "\n")


def shorten(text: str, cap: int = TEXT_CAP) -> str:
    """Return the beginning and the end of ``text`` if it is longer than ``cap`` characters."""
    return text if len(text) <= cap else f"{text[: cap * 2 // 3]}\n[...]\n{text[-cap // 3 :]}"


def read_text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=SOURCE_CAP_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def walk_files(root: Path, *, is_skipped: Callable[[str], bool]) -> Iterator[str]:
    """Yield the files below ``root``, up to a cap, without folders that are skipped. Paths are posix and relative."""
    count = 0
    for folder, folders, names in os.walk(root):
        inside = "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
        folders[:] = sorted(name for name in folders if not is_skipped(f"{inside}{name}"))
        yield from (f"{inside}{name}" for name in sorted(names))
        count += len(names)
        if count > FILES_CAP:
            return


def list_own_files(folder: Path, *patterns: str) -> Iterator[Path]:
    """Yield files by patterns, without those in hidden folders and in folders of environments and packages."""
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        around = path.relative_to(folder).parts[:-1]
        if IGNORED_FOLDERS.isdisjoint(around) and not any(name.startswith(".") for name in around) and path.is_file():
            yield path


def match_path(pattern: str) -> Callable[[str], bool]:
    """Return a predicate of paths (posix, relative): whether ``pattern`` is found in them."""
    compiled = re.compile(pattern)
    return lambda path: compiled.search(path) is not None


class Meaning(NamedTuple):
    """The meaning of an error's message."""

    kind: str
    name: str | None = None
    """The name that does not exist, its parts joined by dots."""
    is_own: bool | None = None
    """Whether that name would be the project's."""


@cache
def _load_rules(source: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    sections = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text(encoding="utf-8"))
    language, name = source.split(".")
    return tuple((kind, re.compile(pattern)) for kind, pattern in sections[language][name])


def match_rule(source: str, message: str) -> tuple[str, dict[str, str | None]] | None:
    """Return kind and groups of the first rule in ``kinds.toml`` for a message of ``source``, such as ``go.panic``."""
    found = ((kind, pattern.match(message)) for kind, pattern in _load_rules(source))
    return next(((kind, match.groupdict()) for kind, match in found if match), None)


def classify(source: str, message: str, *, default: str = "exception") -> Meaning:
    """Return the meaning of a message by the rules in ``kinds.toml``."""
    kind, parts = match_rule(source, message) or (default, {})
    name, owner = parts.get("name"), parts.get("owner")
    return Meaning(kind, f"{owner}.{name}" if owner and name else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """The names of a language's files, and the form of its compiler's errors."""

    suffixes: tuple[str, ...]
    built: tuple[str, ...]
    """Folders of build output and fetched packages."""
    is_test: Callable[[str], bool]
    error: re.Pattern[str] = re.compile(r"(?!)")
    """Matches one error, with ``path``, ``message``, groups that begin with ``line``, maybe ``code`` and ``text``."""
    explain: Callable[["Sources", re.Match[str]], Meaning] = lambda _, match: Meaning("collection_error")
    """Returns the meaning of an error."""
    elsewhere: str = ""
    """Node id for files outside the project; by default the compiler's name for them."""


Call = tuple[str | None, int, str]
"""A call in a stack: own file or None, line, function."""


class Sources:
    """The source files below one folder. Files are looked up on demand; links are not followed."""

    def __init__(self, root: Path, language: Language) -> None:
        """Use the files of ``language``, outside its folders of output and packages."""
        self.root = root.absolute()
        self.language = language
        self._built = frozenset((*language.built, "node_modules"))
        self._files: tuple[str, ...] | None = None
        self._texts: dict[str, str] = {}
        self._stems: dict[str, str] = {}

    def files(self) -> tuple[str, ...]:
        """Return every source file, posix and relative to the folder, up to a cap."""
        if self._files is None:
            found = walk_files(self.root, is_skipped=lambda folder: self._is_built(tuple(folder.split("/"))))
            self._files = tuple(sorted(name for name in found if name.endswith(self.language.suffixes)))
        return self._files

    def find_own(self, path: str) -> str | None:
        """Return the project's file that a tool calls ``path``, relative to the folder; None for other files."""
        name = PurePosixPath(path.strip())
        if "\0" in path or ".." in name.parts:
            return None
        if name.is_absolute():
            for root in (self.root, self.root.resolve()):
                if name.is_relative_to(root.as_posix()):
                    return self._find_existing(name.relative_to(root.as_posix()))
            return None
        # Compilers name files from the top of a workspace, which can be above this folder.
        ends = (PurePosixPath(*name.parts[at:]) for at in range(len(name.parts)))
        return next(filter(None, map(self._find_existing, ends)), None)

    def _find_existing(self, path: PurePosixPath) -> str | None:
        if self._is_built(path.parts[:-1]):
            return None
        try:
            here = self.root / path
            return path.as_posix() if here.is_file() and not here.is_symlink() else None
        except (OSError, ValueError):
            return None

    def _is_built(self, folders: tuple[str, ...]) -> bool:
        # Below src, a package can be called "build" or "target".
        outer = folders[: folders.index("src")] if "src" in folders else folders
        return any(name in self._built for name in outer) or any(name.startswith(".") for name in folders)

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        if path not in self._texts:
            self._texts[path] = read_text(self.root / path)
        return self._texts[path]

    def find_stem(self, stem: str) -> str | None:
        """Return the first source file whose path without its ending is ``stem`` or ends with it."""
        if not self._stems:
            for path in reversed(self.files()):
                parts = path.rpartition(".")[0].split("/")
                self._stems |= {"/".join(parts[at:]): path for at in range(len(parts))}
        return self._stems.get(stem)

    def find_line(self, path: str, pattern: str) -> int:
        """Return the 1-based line of the only match of ``pattern`` in ``path``; 0 if there is none or more."""
        text = self.text(path)
        found = [match.start() for match in re.finditer(pattern, text, re.MULTILINE)]
        return text.count("\n", 0, found[0]) + 1 if len(found) == 1 else 0

    @staticmethod
    def select_own_frames(calls: Iterable[Call]) -> tuple[tuple[Frame, ...], bool]:
        """Return the project's calls of a stack, the innermost last, and whether a library call was inside them.

        ``calls`` begin with the innermost.
        """
        found: list[Frame] = []
        is_foreign = False
        for path, line, function in calls:
            if path is None:
                is_foreign = is_foreign or not found
            else:
                found.append(Frame(path=path, line=line, function=function))
        return tuple(reversed(found[:FRAMES_CAP])), is_foreign

    def list_calls(self, frame: re.Pattern[str], text: str) -> list[Call]:
        """Return the project's own calls in a stack trace, by a pattern with ``path``, ``line`` and ``function``."""
        found = ((self.find_own(match["path"].replace("\\", "/")), match) for match in frame.finditer(text))
        return [(path, int(match["line"]), match["function"]) for path, match in found if path is not None]

    def describe_failure(
        self, kind: str, message: str, *, text: str, calls: Iterable[Call] = (), exception: str = "", output: str = ""
    ) -> Failure:
        """Return the failure of a test: a library is to blame for an exception in calls inside the project's own."""
        frames, is_foreign = self.select_own_frames(calls)
        at = frames[-1] if frames else None
        origin = "test" if at is None or self.language.is_test(at.path) else "project"
        return Failure(
            phase="call",
            kind=kind,
            origin="third_party" if is_foreign and kind not in ("assertion", "did_not_raise") else origin,
            exception=exception,
            message=message[:MESSAGE_CAP],
            path=at.path if at else None,
            line=at.line if at else None,
            frames=frames,
            text=shorten(text.strip("\n")),
            output=shorten(output),
        )

    def read_errors(self, output: str) -> tuple[CollectError, ...]:
        """Read the compiler's errors: for each file the first that is not about a missing name, or else the first.

        RED expects a missing name; another mistake in the same file must not hide behind it.
        """
        found: dict[str, list[Failure]] = {}
        language = self.language
        for match in language.error.finditer(output):
            groups, name = match.groupdict(), match["path"].replace("\\", "/")
            path, meaning = self.find_own(name), language.explain(self, match)
            line = next(int(text) for group, text in groups.items() if group.startswith("line") and text)
            failure = Failure(
                phase="collect",
                kind=meaning.kind,
                origin="third_party" if path is None else "test" if language.is_test(path) else "project",
                exception=groups.get("code", "") or ("error" if "code" in groups else ""),
                message=match["message"][:MESSAGE_CAP],
                missing_name=meaning.name,
                path=path,
                line=line if path else None,
                text=shorten((groups.get("text") or match[0]).strip()),
                missing_in_project=meaning.is_own,
            )
            found.setdefault(path or language.elsewhere or name, []).append(failure)
        collected = []
        for nodeid, failures in found.items():
            first = next((failure for failure in failures if failure.kind not in STRUCTURAL), failures[0])
            text = shorten("\n\n".join(dict.fromkeys(failure.text for failure in failures)))
            collected.append(CollectError(nodeid, replace(first, text=text)))
        return tuple(collected)
