"""The project's own source files, and records that point into them.

Compilers and stack traces name files in their own way. Here such a name becomes a path relative to the project, or None
for a file that is not the project's.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP, TEXT_CAP
from pytest_tdd_agent.report import CollectError, Failure, Frame

FILES_CAP = 50_000
SOURCE_CAP_BYTES = 2_000_000
STRUCTURAL = frozenset({"missing_module", "import_error", "attribute_error", "name_error", "signature_mismatch"})
"""Kinds that say that something does not exist yet."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def strip_terminal_codes(output: str) -> str:
    """Return ``output`` without colors and with ``\\n`` as line ends."""
    return _ANSI.sub("", output).replace("\r\n", "\n")


def shorten(text: str, cap: int = TEXT_CAP) -> str:
    """Return the beginning and the end of ``text`` if it is longer than ``cap`` characters."""
    return text if len(text) <= cap else f"{text[: cap * 2 // 3]}\n[...]\n{text[-cap // 3 :]}"


def split_target(target: str) -> tuple[str, str]:
    """Return the file or folder of a target, and the test's name in it, empty if there is none."""
    file, _, name = target.partition("::")
    return file.removeprefix("./").rstrip("/"), name


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Return ``values`` in their order, each once."""
    return tuple(dict.fromkeys(values))


def read_text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=SOURCE_CAP_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


class Sources:
    """The source files below one folder. Files are looked up on demand; links are not followed."""

    def __init__(self, root: Path, *, suffixes: tuple[str, ...], built: tuple[str, ...] = ()) -> None:
        """``suffixes``: endings of source files; ``built``: folders of build output and fetched packages.

        A file in such a folder is not the project's own, unless the folder is inside one called ``src``: there a
        package may well be called ``build``.
        """
        self.root = root.absolute()
        self.suffixes = suffixes
        self._built = frozenset((*built, "node_modules"))
        self._files: tuple[str, ...] | None = None
        self._texts: dict[str, str] = {}

    def files(self) -> tuple[str, ...]:
        """Return every source file, posix and relative to the folder, up to a cap."""
        if self._files is None:
            self._files = tuple(sorted(self._walk()))
        return self._files

    def _walk(self) -> Iterator[str]:
        count = 0
        for folder, folders, names in os.walk(self.root):
            inside = Path(folder).relative_to(self.root).parts
            folders[:] = sorted(name for name in folders if not self._is_built((*inside, name)))
            for name in names:
                count += 1
                if name.endswith(self.suffixes):
                    yield (Path(folder) / name).relative_to(self.root).as_posix()
            if count > FILES_CAP:
                return

    def own(self, path: str) -> str | None:
        """Return the project's file that a tool calls ``path``, relative to the folder; None for other files."""
        told = PurePosixPath(path.strip())
        if "\0" in path or ".." in told.parts:
            return None
        if told.is_absolute():
            for root in (self.root, self.root.resolve()):
                if told.is_relative_to(root.as_posix()):
                    return self._existing(told.relative_to(root.as_posix()))
            return None
        # Compilers name files from the top of a workspace, which may be above this folder.
        ends = (PurePosixPath(*told.parts[at:]) for at in range(len(told.parts)))
        return next(filter(None, map(self._existing, ends)), None)

    def _existing(self, path: PurePosixPath) -> str | None:
        if self._is_built(path.parts[:-1]):
            return None
        try:
            here = self.root / path
            return path.as_posix() if here.is_file() and not here.is_symlink() else None
        except (OSError, ValueError):
            return None

    def _is_built(self, folders: tuple[str, ...]) -> bool:
        outer = folders[: folders.index("src")] if "src" in folders else folders
        return any(name in self._built for name in outer) or any(name.startswith(".") for name in folders)

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        if path not in self._texts:
            self._texts[path] = read_text(self.root / path)
        return self._texts[path]

    def line_of(self, path: str, pattern: str) -> int:
        """Return the 1-based line of the only match of ``pattern`` in ``path``; 0 if there is none or more."""
        text = self.text(path)
        found = [match.start() for match in re.finditer(pattern, text, re.MULTILINE)]
        return text.count("\n", 0, found[0]) + 1 if len(found) == 1 else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerError:
    """One error of a compiler."""

    path: str
    """The file as the compiler names it."""
    line: int
    kind: str
    message: str
    text: str
    code: str = ""
    missing_name: str | None = None
    """The name that does not exist, its parts joined by dots."""
    is_own: bool | None = None
    """Whether that name would be the project's."""


def collect_errors(
    errors: Iterable[CompilerError],
    sources: Sources,
    *,
    is_test: Callable[[str], bool],
    elsewhere: str = "",
    joins_texts: bool = False,
) -> tuple[CollectError, ...]:
    """Return one error for each file: the first that names nothing missing, else the first.

    A missing name is what RED expects; any other mistake in the same file must not hide behind it. ``elsewhere`` is the
    node id for files that are not the project's, by default the compiler's name of them.
    """
    found: dict[str, list[Failure]] = {}
    for error in errors:
        path = sources.own(error.path)
        failure = Failure(
            phase="collect",
            kind=error.kind,
            origin="third_party" if path is None else "test" if is_test(path) else "project",
            exception=error.code,
            message=error.message[:MESSAGE_CAP],
            missing_name=error.missing_name,
            path=path,
            line=error.line if path else None,
            text=shorten(error.text),
            missing_in_project=error.is_own,
        )
        found.setdefault(path or elsewhere or error.path, []).append(failure)
    collected = []
    for nodeid, failures in found.items():
        first = next((failure for failure in failures if failure.kind not in STRUCTURAL), failures[0])
        if joins_texts:
            first = replace(first, text=shorten("\n\n".join(failure.text for failure in failures)))
        collected.append(CollectError(nodeid=nodeid, failure=first))
    return tuple(collected)


def own_frames(calls: Iterable[tuple[str | None, int, str]]) -> tuple[tuple[Frame, ...], bool]:
    """Return the project's calls of a stack, the innermost last, and whether a library's call was inside of them.

    ``calls`` are (own file or None, line, function), the innermost first.
    """
    found: list[Frame] = []
    is_foreign = False
    for path, line, function in calls:
        if path is None:
            is_foreign = is_foreign or not found
        else:
            found.append(Frame(path=path, line=line, function=function))
    return tuple(reversed(found[:FRAMES_CAP])), is_foreign
