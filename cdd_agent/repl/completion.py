"""Completion at the prompt: commands, their arguments, the Executor's words, and files after ``@``.

The prompt loads this module before the rest of cdd, so whatever only a menu needs is imported inside functions.
"""

import asyncio
import contextlib
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.repl.commands import (
    COMMANDS,
    EXECUTOR_WORDS,
    FORK_WORDS,
    GRAPH_WORDS,
    TAKE_A_STEP,
    TDD_WORDS,
    SlashCommand,
    describe_own_commands,
    match_executor_word,
)
from cdd_agent.repl.terminal import PromptStatus
from cdd_agent.runs.places import find_run
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.text import clean

T = TypeVar("T")

MOST_LISTED = 20_000
MOST_HANDOFFS = 200
MOST_OFFERED = 50

REMEMBERED_S = 2.0
"""The lifetime of a list of files; ten times as long as listing them took, if that is longer."""
_POLL_S = 0.05
"""How often to check whether the line has changed while a slow function runs."""

_FILE_WORD = re.compile(r"(?<![^\s(\[])@(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)|(?P<plain>[^\s\"]*))\Z")
_COMMAND = re.compile(r"/(?P<name>[\w-]*)\Z")
_EXECUTOR_LINE = re.compile(r"(?P<word>[a-z]*)(?: (?P<rest>\d*))?\Z")
_TEST_PATH = re.compile(r"(?<![a-z])(?:tests?|specs?)(?![a-z])|Tests?\b|Spec\b")
_GRAPH_PATH = re.compile(r"\.json$")
_WORDS = {"tdd": TDD_WORDS, "fork": FORK_WORDS, "graph": GRAPH_WORDS}
_CALL = re.compile(r"/(?P<name>[\w-]+) (?P<rest>[^\n]*)\Z")
_INCOMPLETE = frozenset({"/tdd run", "/tdd rollback"})


def list_project_files(root: Path) -> list[str]:
    """Return the paths below ``root`` that git does not ignore; without a repository, all. Raises ``GitError``."""
    from cdd_agent.git.repository import Repository

    try:
        repository = Repository.find(root)
    except EnvironmentMissing:
        from cdd_agent.workspace.files import Workspace

        return list(Workspace(root).list_files(most=MOST_LISTED))
    listed = repository.git("ls-files", ("-z", "--cached", "--others", "--exclude-standard", "--deduplicate")).split(
        "\0"
    )
    start = os.path.relpath(root, repository.root).replace(os.sep, "/")
    within = "" if start == "." else f"{start}/"
    names = (path.removeprefix(within) for path in listed if path.startswith(within) and not path.endswith("/"))
    return list(islice((name for name in names if name and os.path.lexists(root / name)), MOST_LISTED))


Described: TypeAlias = tuple[str, str]
"""A text to insert and its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Functions that return what completes a line. They run in the background; one that fails offers nothing."""

    slugs: Callable[[], Iterable[Described]] = lambda: ()
    steps: Callable[[str], Iterable[Described]] = lambda _: ()
    """Numbers and titles of a ticket's steps."""
    sessions: Callable[[], Iterable[Described]] = lambda: ()
    models: Callable[[], Iterable[Described]] = lambda: ()
    commands: Callable[[], Iterable[SlashCommand]] = lambda: ()
    """Those of the user and of the project."""
    settings: Callable[[], Iterable[Described]] = lambda: ()
    """Names and defaults."""
    handoffs: Callable[[], Iterable[Described]] = lambda: ()
    """Commits of a run that can be rolled back to, and the phase of each."""
    files: Callable[[], Iterable[str]] = lambda: ()
    """Paths relative to the project, with forward slashes. Secret files among them are not offered."""


def find_candidates(root: Path) -> Candidates:
    """Return the candidates of the project in ``root``."""

    def list_slugs() -> Iterator[Described]:
        from cdd_agent.errors import CddError
        from cdd_agent.tickets import spec

        for ticket in list_tickets(root):
            try:
                title = spec.load(ticket.spec_path).title
            except (CddError, OSError):
                title = ""
            yield ticket.slug, title

    def list_steps(slug: str) -> Iterator[Described]:
        from cdd_agent.work.state_file import load_state

        state = load_state(find_run(root, slug).state_path)
        for number, step in state.step_executions.items() if state else ():
            yield str(number), f"{step.title} ({step.status.replace('_', ' ')})"

    def list_sessions() -> Iterable[Described]:
        from cdd_agent.repl.actions import describe_sessions

        return describe_sessions(root)

    def list_models() -> Iterator[Described]:
        from cdd_agent.model.budget import find_context_window, list_priced_models

        for name in list_priced_models():
            yield name, f"reads {find_context_window(name) or 0:,} tokens"

    def list_settings() -> Iterator[Described]:
        from cdd_agent.config.settings import Settings, flatten

        for name, default in flatten(Settings()).items():
            yield name, f"default: {default}"

    def list_commands() -> Iterable[SlashCommand]:
        from cdd_agent.config.own_commands import list_own_commands

        return describe_own_commands(list_own_commands(root))

    return Candidates(
        commands=list_commands,
        slugs=list_slugs,
        steps=list_steps,
        sessions=list_sessions,
        models=list_models,
        settings=list_settings,
        handoffs=lambda: _list_handoffs(root),
        files=lambda: list_project_files(root),
    )


def _list_handoffs(root: Path) -> Iterator[Described]:
    from cdd_agent.git.repository import Repository
    from cdd_agent.runs.history import list_handoffs, read_reachable_notes

    notes = read_reachable_notes(Repository.find(root))
    offered: set[str] = set()
    for row in list_handoffs(notes.entries, most=MOST_HANDOFFS):
        if row.commit not in offered:
            yield row.commit[:10], f"cycle {row.cycle}, {row.phase}: {row.description}"
        offered.add(row.commit)


class PromptCompleter(Completer):
    """Completes the line without ever blocking the prompt."""

    def __init__(self, candidates: Candidates, *, status: Callable[[], PromptStatus] = PromptStatus) -> None:
        """Complete from ``candidates``. ``status`` tells whether the Executor is active."""
        self._candidates = candidates
        self._status = status
        self._files: list[str] = []
        self._listed_until = 0.0
        self._lock = threading.Lock()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return what can follow the cursor; nothing if a candidate function fails."""
        return self._ask(document).result()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield what can follow the cursor; stop as soon as the line changes."""
        answer = asyncio.wrap_future(self._ask(document))
        try:
            while not answer.done():
                await asyncio.wait({answer}, timeout=_POLL_S)
                if get_app().current_buffer.text != document.text:
                    return
            for completion in answer.result():
                yield completion
        finally:
            answer.cancel()

    def _ask(self, document: Document) -> Future[list[Completion]]:
        answer: Future[list[Completion]] = Future()

        def complete() -> None:
            found: list[Completion] = []
            with contextlib.suppress(Exception):
                found = self._complete(document.text_before_cursor)
            if answer.set_running_or_notify_cancel():
                answer.set_result(found)

        # Unlike the threads of an executor, this one does not delay the exit of the process.
        threading.Thread(target=complete, name="completion", daemon=True).start()
        return answer

    def _list_files(self) -> list[str]:
        with self._lock:
            started = time.monotonic()
            if started >= self._listed_until:
                self._files = list(self._candidates.files())
                now = time.monotonic()
                self._listed_until = now + max(REMEMBERED_S, 10 * (now - started))
            return self._files

    def _complete(self, text: str) -> list[Completion]:
        if file := _FILE_WORD.search(text):
            return list(_complete_file(file, self._list_files()))
        if name := _COMMAND.match(text):
            return list(_complete_command(name["name"], (*COMMANDS, *self._candidates.commands())))
        if call := _CALL.match(text):
            *before, last = call["rest"].split(" ")
            command = next((command for command in COMMANDS if command.name == call["name"]), None)
            found = () if command is None else self._list_arguments(command, before)
            return list(islice(_complete_described(last, found), MOST_OFFERED))
        status = self._status()
        line = _EXECUTOR_LINE.match(text)
        if line is None or status.agent != "exec":
            return []
        if line["rest"] is not None:
            takes_step = match_executor_word(line["word"]) in TAKE_A_STEP
            steps = self._candidates.steps(status.ticket) if takes_step else ()
            return list(_complete_described(line["rest"], steps))
        words = ((known, "") for known in EXECUTOR_WORDS if line["word"] and known.startswith(line["word"]))
        return list(_complete_described(line["word"], words))

    def _list_arguments(self, command: SlashCommand, before: list[str]) -> Iterable[Described]:
        match command.argument, before:
            case "[SLUG]", []:
                return self._candidates.slugs()
            case "[SESSION]", []:
                return self._candidates.sessions()
            case "[MODEL]", []:
                return self._candidates.models()
            case "[NAME [VALUE]]", []:
                return self._candidates.settings()
            case "[WORD ...]" | "[DIRECTION]" | "WORD FILE", []:
                return _WORDS[command.name].items()
            case "[WORD ...]", ["rollback"]:
                return self._candidates.handoffs()
            case "TEST..." | "WORD FILE" as files, _:
                wanted = _TEST_PATH if files == "TEST..." else _GRAPH_PATH
                return ((path, "") for path in self._list_files() if wanted.search(path))
            case _:
                return []


def is_file_prefix(text: str) -> bool:
    """Return whether ``text`` ends in the middle of the name of a file, or right after it.

    >>> is_file_prefix("look at @src/a"), is_file_prefix("me@host"), is_file_prefix("/status")
    (True, False, False)
    """
    return _FILE_WORD.search(text.removesuffix('"')) is not None


def is_missing_argument(text: str) -> bool:
    """Return whether ``text`` is a command that requires an argument and has none.

    >>> is_missing_argument("/new"), is_missing_argument("/status"), is_missing_argument("/new a")
    (True, False, False)
    """
    if text in _INCOMPLETE:
        return True
    named = _COMMAND.match(text)
    command = next((command for command in COMMANDS if named and command.name == named["name"]), None)
    return command is not None and command.argument[:1] not in ("", "[")


def quote_path(path: str) -> str:
    r"""Return a path as it is typed after ``@``, in quotes if it has blanks or invisible characters.

    >>> quote_path("src/a.py"), quote_path("my notes.md"), quote_path("a\tb")
    ('@src/a.py', '@"my notes.md"', '@"a\\tb"')
    """
    if path.isprintable() and not set(path) & set(' "\\'):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{"".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in escaped)}"'


def _complete_command(prefix: str, commands: Iterable[SlashCommand]) -> Iterator[Completion]:
    # One letter matches only the beginning of a name; otherwise the menu would show nearly every command.
    fit = [command for command in commands if len(prefix) > 1 or command.name.startswith(prefix)]
    for command in _rank(prefix, fit, name=lambda command: command.name):
        shown = f"/{command.name} {command.argument}".rstrip()
        yield Completion(command.name, start_position=-len(prefix), display=shown, display_meta=command.help)


def _complete_described(prefix: str, found: Iterable[Described]) -> Iterator[Completion]:
    typed = [candidate for candidate in found if candidate[0].isprintable() and " " not in candidate[0]]
    for text, description in _rank(prefix, typed, name=lambda candidate: candidate[0]):
        yield Completion(text, start_position=-len(prefix), display_meta=clean(" ".join(description.split())))


def _complete_file(word: re.Match[str], paths: Iterable[str]) -> Iterator[Completion]:
    from cdd_agent.untrusted.paths import find_private_part, is_secret

    prefix = word["quoted"] or word["plain"] or ""
    ranked = _rank(prefix, paths, name=str) if prefix else sorted(paths, key=lambda path: (path.count("/"), path))
    public = (path for path in ranked if not (is_secret(path) or find_private_part(path)))
    for path in islice(public, MOST_OFFERED):
        text = quote_path(path)
        yield Completion(text, start_position=-len(word[0]), display=clean(text[1:]))


def _rank(wanted: str, found: Iterable[T], *, name: Callable[[T], str]) -> list[T]:
    """Return the items whose names contain the letters of ``wanted`` in order, best match first."""
    if not wanted:
        return list(found)
    wanted = wanted.lower()
    # Possessive quantifiers never backtrack, so the search takes linear time.
    letters = re.compile("".join(f"[^{letter}]*+{letter}" for letter in map(re.escape, wanted)))
    ranked = []
    for position, item in enumerate(found):
        shown = name(item).lower()
        if letters.match(shown):
            last = shown.rpartition("/")[2]
            fits = (last.startswith(wanted), shown.startswith(wanted), wanted in last, wanted in shown, True)
            ranked.append((fits.index(True), len(shown) if "/" in shown else 0, position, item))
    return [item for *_, item in sorted(ranked, key=lambda entry: entry[:3])]
