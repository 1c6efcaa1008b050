"""Completion at the prompt: commands and what they take, the Executor's words, and files after ``@`` in any line.

The files of a project that a person can name: as git knows them, else as they lie there.
"""

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.repl.commands import COMMANDS, EXECUTOR_WORDS, TAKE_A_STEP, TDD_WORDS, Command, executor_word
from cdd_agent.repl.status_line import Place
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from multiprocessing.pool import AsyncResult

    from cdd_agent.git.repository import Repository

MOST_LISTED = 20_000
"""Files that are looked at; of a larger project the first ones."""
DEEPEST = 12
"""Folders within each other that are walked into where there is no git."""
WALK_S = 2.0

REMEMBERED_S = 2.0
"""How long a listing is taken for true."""
FIRST_LISTING_S = 1.0
"""How long the first listing is waited for."""
NEXT_LISTING_S = 0.2
"""How long a newer one is waited for before the old one serves."""


def project_files(root: Path, repository: "Callable[[], Repository]") -> list[str]:
    """Paths below ``root`` that are tracked, or untracked and not ignored; without a repository, those found there.

    Raises ``GitError`` if git cannot say.
    """
    try:
        found = repository()
    except EnvironmentMissing:
        return list(_walked(root))
    listed = found.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate").split("\0")
    start = os.path.relpath(root, found.root).replace(os.sep, "/")
    within = "" if start == "." else f"{start}/"
    names = (path.removeprefix(within) for path in listed if path.startswith(within) and not path.endswith("/"))
    present = (name for name in names if name and os.path.lexists(root / name))
    return [name for _, name in zip(range(MOST_LISTED), present, strict=False)]


def _walked(root: Path) -> Iterator[str]:
    """Files below ``root``, those near it first; hidden folders and what tools make are left out."""
    from cdd_agent.workspace.files import SKIPPED_FOLDERS

    end = time.monotonic() + WALK_S
    count = 0
    folders = [("", 0)]
    for within, depth in folders:
        for entry in _entries(root / within):
            name = f"{within}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth < DEEPEST and entry.name not in SKIPPED_FOLDERS and not entry.name.startswith("."):
                    folders.append((f"{name}/", depth + 1))
                continue
            yield name
            count += 1
            if count == MOST_LISTED or time.monotonic() > end:
                return


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    """What lies in ``folder``, by name; nothing if it may not be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


class Remembered:
    """A listing that takes a while, kept for a moment, and asked for again beside what waits for it."""

    def __init__(self, ask: Callable[[], list[str]]) -> None:
        """Nothing is asked yet."""
        self._ask = ask
        self._known: list[str] | None = None
        self._asked_at = -REMEMBERED_S
        self._running: AsyncResult[list[str]] | None = None
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        """Whether a listing is not done yet, so that the next answer may be another one."""
        return self._running is not None

    def __call__(self) -> list[str]:
        """The newest listing there is; an older one, or an empty one, if the next is not done in time or fails."""
        with self._lock:
            if self._running is None and time.monotonic() - self._asked_at >= REMEMBERED_S:
                self._asked_at = time.monotonic()
                self._running = _started(self._ask)
            running = self._running
        if running is not None:
            running.wait(FIRST_LISTING_S if self._known is None else NEXT_LISTING_S)
            self._keep(running)
        return self._known or []

    def _keep(self, asked: "AsyncResult[list[str]]") -> None:
        """Take what ``asked`` has found for known, unless it has not ended, or failed."""
        with self._lock:
            if self._running is asked and asked.ready():
                self._running = None
                if asked.successful():
                    self._known = asked.get()


def _started(ask: Callable[[], list[str]]) -> "AsyncResult[list[str]]":
    """What ``ask`` will have said, in a thread that the end of the program does not wait for."""
    from multiprocessing.pool import ThreadPool

    pool = ThreadPool(1)
    asked = pool.apply_async(ask)
    pool.close()
    return asked


MOST_OFFERED = 50
"""In one menu."""
_LOOK_S = 0.05
"""How often it is looked whether the line has changed while something slow is asked."""

_FILE_WORD = re.compile(r"(?<![^\s(\[])@(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)|(?P<plain>[^\s\"]*))\Z")
_COMMAND = re.compile(r"/(?P<name>[\w-]*)\Z")
_SAID = re.compile(r"(?P<word>[a-z]*)(?: (?P<rest>\d*))?\Z")
_TESTS_FOLLOW = re.compile(r"/green [^\n]*\Z")
_TEST = re.compile(r"(?<![a-z])(?:tests?|specs?)(?![a-z])|Tests?\b|Spec\b")
"""What the paths of tests have in them."""
_INCOMPLETE = frozenset({"/tdd run", "/tdd rollback"})
"""Words of a command that need more."""
_CALL = re.compile(r"/(?P<name>[\w-]+) (?P<rest>[^\n]*)\Z")

T = TypeVar("T")

Described: TypeAlias = tuple[str, str]
"""What is typed, and what it is, in a few words."""


def _none() -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Functions that may be slow and may fail: they are called beside the prompt, and one that fails offers nothing."""

    slugs: Callable[[], Iterable[Described]] = _none
    """Tickets with their titles."""
    steps: Callable[[str], Iterable[Described]] = lambda _: ()
    """The numbers and titles of a ticket's steps."""
    sessions: Callable[[], Iterable[Described]] = _none
    """Earlier sittings that can be taken up again."""
    models: Callable[[], Iterable[Described]] = _none
    """Whose prices are known."""
    handoffs: Callable[[], Iterable[Described]] = _none
    """Commits of a run that can be gone back to, and the phase that each landed."""
    files: Callable[[], Iterable[str]] = _none
    """Paths relative to the project, with forward slashes; secrets among them are not offered."""


class PromptCompleter(Completer):
    """Completes commands, their arguments and files; what is slow runs beside the prompt, and is left there."""

    def __init__(self, candidates: Candidates, *, place: Callable[[], Place] = Place) -> None:
        """``candidates`` are asked each time, but for files, which are remembered for a moment.

        ``place``: where the user is, as the Executor's words are completed only there.
        """
        self._candidates = candidates
        self._place = place
        self._files = Remembered(lambda: list(candidates.files()))
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="completion")

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can follow the text before the cursor; nothing where a candidate function fails."""
        asked = self._pool.submit(self._found, document.text_before_cursor)
        return [] if asked.exception() is not None else asked.result()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same, without the prompt waiting: it goes on at once when the line changes or ends."""
        found = await self._asked(document)
        while found == [] and self._files.is_running and _wants_files(document.text_before_cursor):
            found = await self._asked(document)
        for completion in found or []:
            yield completion

    async def _asked(self, document: Document) -> list[Completion] | None:
        """What can follow, or None if it failed or if the line is another one before that is known."""
        asked = asyncio.wrap_future(self._pool.submit(self._found, document.text_before_cursor))
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=_LOOK_S)
                if get_app().current_buffer.text != document.text:
                    return None
            return asked.result() if asked.exception() is None else None
        finally:
            asked.cancel()

    def _found(self, text: str) -> list[Completion]:
        """What can follow ``text``."""
        if word := _FILE_WORD.search(text):
            return list(_files(word, self._files()))
        if command := _COMMAND.match(text):
            return list(_commands(command["name"]))
        if call := _CALL.match(text):
            return list(self._arguments(call["name"], call["rest"]))
        place = self._place()
        if (said := _SAID.match(text)) and place.agent == "exec":
            return list(self._of_the_executor(said["word"], said["rest"], slug=place.ticket))
        return []

    def _of_the_executor(self, word: str, rest: str | None, *, slug: str) -> Iterator[Completion]:
        """What a word to the Executor can become, or the steps that it takes."""
        if rest is not None:
            yield from _described(rest, self._candidates.steps(slug) if executor_word(word) in TAKE_A_STEP else ())
        elif word:
            yield from _described(word, ((known, "") for known in EXECUTOR_WORDS if known.startswith(word)))

    def _arguments(self, name: str, rest: str) -> Iterator[Completion]:
        """What can stand in the place of the last word of ``rest``, which begins with what follows the command."""
        command = next((command for command in COMMANDS if command.name == name), None)
        if command is None:
            return
        *before, last = rest.split(" ")
        yield from islice(_described(last, self._fitting(command, before)), MOST_OFFERED)

    def _fitting(self, command: Command, before: list[str]) -> Iterable[Described]:
        """What the word after those ``before`` can be, behind the name of ``command``."""
        match command.argument, before:
            case "[SLUG]", []:
                return self._candidates.slugs()
            case "[SESSION]", []:
                return self._candidates.sessions()
            case "[MODEL]", []:
                return self._candidates.models()
            case "[WORD ...]", []:
                return TDD_WORDS.items()
            case "[WORD ...]", ["rollback"]:
                return self._candidates.handoffs()
            case "TEST...", _:
                return ((path, "") for path in self._files() if _TEST.search(path))
            case _:
                return []


def _wants_files(text: str) -> bool:
    """Whether the names of files complete ``text``."""
    return _FILE_WORD.search(text) is not None or _TESTS_FOLLOW.match(text) is not None


def completes_file(text: str) -> bool:
    """Whether ``text`` ends in the middle of a file's name, or right behind it.

    >>> completes_file("look at @src/a"), completes_file("me@host"), completes_file("/status")
    (True, False, False)
    """
    return _FILE_WORD.search(text.removesuffix('"')) is not None


def lacks_argument(text: str) -> bool:
    """Whether ``text`` is the name of a command that does nothing without an argument.

    >>> lacks_argument("/new"), lacks_argument("/status"), lacks_argument("/new a"), lacks_argument("/tdd run")
    (True, False, False, True)
    """
    if text in _INCOMPLETE:
        return True
    named = _COMMAND.match(text)
    command = next((command for command in COMMANDS if named and command.name == named["name"]), None)
    return command is not None and command.argument[:1] not in ("", "[")


def quoted(path: str) -> str:
    r"""``path`` as it stands in a line: as it is, or in quotes if it holds blanks or what nobody can see.

    >>> quoted("src/a.py"), quoted("my notes.md"), quoted("a\tb")
    ('@src/a.py', '@"my notes.md"', '@"a\\tb"')
    """
    if path.isprintable() and not set(path) & set(' "\\'):
        return f"@{path}"
    shown = (_escaped(character) for character in path)
    return f'@"{"".join(shown)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _commands(begun: str) -> Iterator[Completion]:
    """Commands whose names fit ``begun``, with what they do; a single letter is the first one."""
    fit = [command for command in COMMANDS if len(begun) > 1 or command.name.startswith(begun)]
    for command in _best(begun, fit, name=lambda command: command.name):
        shown = f"/{command.name} {command.argument}".rstrip()
        yield Completion(
            command.name, start_position=-len(begun), display=clean(shown), display_meta=clean(command.help)
        )


def _described(begun: str, found: Iterable[Described]) -> Iterator[Completion]:
    """Candidates that fit ``begun``, with what they are; such as could not be typed are left out."""
    typed = [one for one in found if one[0].isprintable() and " " not in one[0]]
    for text, told in _best(begun, typed, name=lambda one: one[0]):
        yield Completion(text, start_position=-len(begun), display_meta=clean(" ".join(told.split())))


def _files(word: re.Match[str], paths: Iterable[str]) -> Iterator[Completion]:
    """Files that fit what follows an ``@``, neither secrets nor what is private to git and this program."""
    from cdd_agent.untrusted.paths import is_secret, private_part

    begun = word["quoted"] or word["plain"] or ""
    offered = 0
    for path in _best(begun, paths, name=str) if begun else sorted(paths, key=_from_the_top):
        if is_secret(path) or private_part(path):
            continue
        text = quoted(path)
        yield Completion(text, start_position=-len(word[0]), display=clean(text[1:]))
        offered += 1
        if offered == MOST_OFFERED:
            return


def _best(wanted: str, found: Iterable[T], *, name: Callable[[T], str]) -> list[T]:
    """What fits ``wanted``, the nearest first."""
    if not wanted:
        return list(found)
    letters = re.compile("".join(f"[^{one}]*+{one}" for one in map(re.escape, wanted.lower())))  # never goes back
    ranked = []
    for place, one in enumerate(found):
        shown = name(one).lower()
        if letters.match(shown):
            ranked.append((_distance(shown, wanted.lower()), len(shown) if "/" in shown else 0, place, one))
    return [one for *_, one in sorted(ranked, key=lambda entry: entry[:3])]


def _from_the_top(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _distance(shown: str, wanted: str) -> int:
    """How far ``shown`` is from what is wanted: 0 if its last part begins so, more if it only holds the letters."""
    last = shown.rpartition("/")[2]
    fits = (last.startswith(wanted), shown.startswith(wanted), wanted in last, wanted in shown)
    return next((rank for rank, holds in enumerate(fits) if holds), len(fits))
