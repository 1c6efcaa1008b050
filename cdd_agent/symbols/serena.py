"""Serena, over the Model Context Protocol, for those who have it: it locates uses and plans renames.

It works on a copy of the Python files, so its own files, its edits and its caches never reach the project. The copy is
in UTF-8 with plain line ends. A rename changes the copy; the differences become edits, and the copy is restored.
"""

import contextlib
import json
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from cdd_agent.sandbox.port import Access, Command, Sandbox
from cdd_agent.storage import temporary_folder
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.rpc import ANSWER_S, HINT, LIFE_S, LineFraming, SandboxedServer, ServerConnection, Talk
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServerError, TextEdit
from cdd_agent.symbols.ty import TyProgram, find_ty
from cdd_agent.symbols.watched_files import AnswerContradictsFiles, Position, SourceLines, WatchedFiles
from cdd_agent.untrusted.python_source import split_lines
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.workspace.files import ConfinedFolder

INSTALL = "python3 -m venv ~/serena && ~/serena/bin/pip install serena-agent==2.1.0, then: serena: ~/serena/bin/serena"
"""2.1.0 is the version that was tried. Others are used too, because the user installs it."""
_PROTOCOL = "2025-06-18"
_FIND, _FIND_USES, _RENAME = "find_symbol", "find_referencing_symbols", "rename_symbol"
_START_S = 30.0
"""It imports 76 packages, and starts a language server."""
_MOST_CHARACTERS = 50_000_000
_MOST_COPY_BYTES = 20_000_000
_ARGUMENTS = (
    *("start-mcp-server", "--context", "ide", "--agent-interface", "tools", "--transport", "stdio"),
    *("--enable-web-dashboard", "false"),
)
_SHOWN_CHARACTERS = 200
_CONFIGURATION = """\
language_backend: LSP
web_dashboard: false
gui_log_window: false
projects: []
ls_specific_settings:
  python_ty:
    ls_path: {ty}
"""
_PROJECT = "project_name: project\nlanguage_servers: [python_ty]\nencoding: utf-8\n"
_USE_LINE = re.compile(r"^ *> *(\d{1,7}):", re.MULTILINE)
"""The number of a marked line, from 0; before it are lines without the mark."""
_ABOVE_16_BITS = re.compile("[\U00010000-\U0010ffff]")

_T = TypeVar("_T")


class _Tool(msgspec.Struct, frozen=True):
    name: str


class _ToolList(msgspec.Struct, frozen=True):
    tools: list[_Tool]


class _Content(msgspec.Struct, frozen=True):
    text: str = ""


class _ToolAnswer(msgspec.Struct, frozen=True, rename="camel"):
    content: list[_Content]
    is_error: bool = False


class _BodyLines(msgspec.Struct, frozen=True):
    start_line: int
    end_line: int


class _Found(msgspec.Struct, frozen=True):
    name_path: str
    relative_path: str
    body_location: _BodyLines


class _Use(msgspec.Struct, frozen=True):
    content_around_reference: str


_TOOLS = msgspec.json.Decoder(_ToolList)
_TOOL_ANSWER = msgspec.json.Decoder(_ToolAnswer)
_FOUND = msgspec.json.Decoder(list[_Found])
_USES = msgspec.json.Decoder(dict[str, dict[str, list[_Use]]])


class SerenaServer:
    """Asks Serena."""

    name = "Serena"

    def __init__(
        self,
        index: Index,
        *,
        sandbox: Sandbox,
        program: Path,
        state: Path,
        find_ty: Callable[[], TyProgram] = find_ty,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Start nothing before the first question. ``program`` is Serena's; its files are in a folder of ``state``."""
        self._index = index
        self._program = program
        self._state = state
        self._find_ty = find_ty
        self._watched = WatchedFiles(index)
        self._copy = Path()
        self._closing = contextlib.ExitStack()
        weakref.finalize(self, self._closing.close)
        self._server = SandboxedServer(
            self.name,
            sandbox=sandbox,
            make_command=self._make_command,
            greet=_greet,
            talk=Talk(framing=LineFraming(), answers={"ping": {}}, start_s=_START_S, answer_s=answer_s),
        )

    def find_references(self, symbol: Symbol) -> tuple[Reference, ...]:
        """Return the places that use a symbol, without its definition."""
        text = self._ask(_FIND_USES, symbol, max_answer_chars=_MOST_CHARACTERS)
        sources = SourceLines(self._index)
        marked_lines = set[tuple[str, int]]()
        for path, kinds in _decode(text.encode(), _USES).items():
            for use in chain.from_iterable(kinds.values()):
                # If a use has several lines, only the first is marked.
                marked = _USE_LINE.search(use.content_around_reference)
                if path not in sources or marked is None:
                    raise AnswerContradictsFiles(f"Serena names a use in {path!r:.200} without its line.", hint=HINT)
                marked_lines.add((path, int(marked[1]) + 1))
        definition = Position(symbol.path, symbol.name_line, symbol.name_column)
        places = set[Position]()
        for path, line in marked_lines:
            # Serena gives no columns. Without the name in the line, the position is refused below.
            found = sources.find_name(symbol.last_name, path=path, line=line) or [Position(path, line, 0)]
            places.update(each for each in found if each != definition)
        return sources.make_references(places, name=symbol.last_name)

    def plan_rename(self, symbol: Symbol, new: str) -> tuple[TextEdit, ...]:
        """Return the replacements, also that of the definition, which rename a symbol."""
        try:
            self._ask(_RENAME, symbol, new_name=new)
            edits = tuple(self._read_edits(symbol, new))
        finally:
            self._watched.note(self._index.list_paths())  # the next question restores the copy
        SourceLines(self._index).require_rename(edits, symbol, new=new)
        return edits

    def note_changes(self, paths: Collection[str]) -> None:
        """Copy files again before the next question."""
        self._watched.note(paths)

    def close(self) -> None:
        """End Serena, and remove its files."""
        self._server.close()
        self._closing.close()

    def _ask(self, tool: str, symbol: Symbol, **arguments: object) -> str:
        def ask(connection: ServerConnection, deadline: float) -> str:
            self._copy_files()
            found = _call(
                connection,
                _FIND,
                deadline=deadline,
                name_path_pattern=_write_pattern(symbol),
                relative_path=symbol.path,
            )
            # Serena numbers definitions of one name in its own way, so the place decides.
            names = [
                each.name_path
                for each in _decode(found.encode(), _FOUND)
                if each.relative_path == symbol.path
                and each.body_location.start_line < symbol.name_line <= each.body_location.end_line + 1
            ]
            if len(names) != 1:
                happened = (
                    f"Serena knows {len(names)} definitions of {symbol.name} in {symbol.path}:{symbol.name_line}."
                )
                raise AnswerContradictsFiles(happened, hint=HINT)
            return _call(
                connection, tool, deadline=deadline, name_path=names[0], relative_path=symbol.path, **arguments
            )

        return self._server.ask(ask)

    def _copy_files(self) -> None:
        copy = ConfinedFolder(self._copy)  # a link that Serena makes there could lead out of it
        for path, change in self._watched.take().items():
            content = b"" if change == "removed" else self._make_copy(path).encode("utf-8", "replace")
            with contextlib.suppress(OSError):
                if change != "removed" and copy.read(path, _MOST_COPY_BYTES) == content:
                    continue
            with contextlib.suppress(OSError):
                copy.unlink(path)
            if change != "removed":
                try:
                    copy.write(path, content, is_durable=False)
                except OSError as error:
                    self._watched.forget()
                    raise SymbolServerError(
                        f"Serena's copy of {path} cannot be written: {error}.", hint=HINT
                    ) from error

    def _make_copy(self, path: str) -> str:
        """Return a text with the same lines and columns, in which each character has 16 bits."""
        lines = SourceLines(self._index).read(path)
        # Serena counts the units of UTF-16 as characters.
        return _ABOVE_16_BITS.sub("\ufffd", "\n".join(lines))

    def _read_copy(self, path: str) -> str:
        try:
            return "\n".join(split_lines(ConfinedFolder(self._copy).read(path, _MOST_COPY_BYTES).decode("utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise AnswerContradictsFiles(f"Serena left no text in {path}: {error}.", hint=HINT) from error

    def _read_edits(self, symbol: Symbol, new: str) -> Iterator[TextEdit]:
        for path in self._index.list_paths():
            before, after = self._make_copy(path), self._read_copy(path)
            if before == after:
                continue
            old_lines, new_lines = before.split("\n"), after.split("\n")
            if len(old_lines) != len(new_lines):
                raise AnswerContradictsFiles(f"Serena adds or removes lines in {path}.", hint=HINT)
            for number, (old_line, new_line) in enumerate(zip(old_lines, new_lines, strict=True), start=1):
                if old_line != new_line:
                    yield from _compare_lines(
                        old_line, new_line, at=Position(path, number, 0), names=(symbol.last_name, new)
                    )

    def _make_command(self) -> Command:
        environment, interpreter = _find_environment(self._program)
        ty = self._find_ty()
        if ty.program is None:
            raise SymbolServerError(f"Serena needs ty, and {ty.problem}.", hint=HINT)
        if self._state.resolve().is_relative_to(self._index.root):  # the copy would be a part of what is copied
            raise SymbolServerError(f"Serena is not used in a project that contains {self._state}.", hint=HINT)
        self._closing.close()
        self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = self._closing.enter_context(temporary_folder(self._state)).resolve()
        home, own, self._copy = folder / "home", folder / "serena", folder / "project"
        for each in (home, own, self._copy / ".serena"):
            each.mkdir(parents=True)
        # JSON is YAML too.
        (own / "serena_config.yml").write_text(_CONFIGURATION.format(ty=json.dumps(str(ty.program))), encoding="utf-8")
        (self._copy / ".serena" / "project.yml").write_text(_PROJECT, encoding="utf-8")
        self._watched.forget()
        self._copy_files()
        return Command(
            argv=(str(self._program), *_ARGUMENTS, "--project", str(self._copy)),
            cwd=self._copy,
            access=Access(read_write=(folder,), read_only=(environment, *interpreter, ty.program)),
            timeout_s=LIFE_S,
            variables={"HOME": str(home), "SERENA_HOME": str(own), "SERENA_USAGE_REPORTING": "false"},
        )


def _find_environment(program: Path) -> tuple[Path, tuple[Path, ...]]:
    """Return the virtual environment of a program, and the folder of its interpreter."""
    real = Path(os.path.realpath(program))
    environment = real.parent.parent
    if not program.is_absolute() or not os.access(real, os.X_OK) or not real.is_file():
        raise SymbolServerError(f"The setting serena names {program}, which is not a program.", hint=INSTALL)
    if not (environment / "pyvenv.cfg").is_file():
        raise SymbolServerError(f"{program} is not in a virtual environment.", hint=INSTALL)
    interpreter = Path(os.path.realpath(environment / "bin" / "python")).parent.parent
    return environment, () if interpreter == Path("/usr") else (interpreter,)


def _greet(connection: ServerConnection, deadline: float) -> None:
    about = {"name": "cdd", "version": "1"}
    parameters = {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": about}
    connection.request("initialize", parameters, deadline=deadline)
    connection.notify("notifications/initialized", {})
    offered = {each.name for each in _decode(connection.request("tools/list", {}, deadline=deadline), _TOOLS).tools}
    if missing := [name for name in (_FIND, _FIND_USES, _RENAME) if name not in offered]:
        raise SymbolServerError(f"This version of Serena has no tool {', '.join(missing)}.", hint=INSTALL)


def _call(connection: ServerConnection, tool: str, *, deadline: float, **arguments: object) -> str:
    raw = connection.request("tools/call", {"name": tool, "arguments": arguments}, deadline=deadline)
    answer = _decode(raw, _TOOL_ANSWER)
    text = "".join(each.text for each in answer.content)
    if answer.is_error:
        # Among its reasons is that it does not know a symbol that the index knows.
        raise AnswerContradictsFiles(f"Serena's {tool} failed: {shorten(clean(text), _SHOWN_CHARACTERS)}", hint=HINT)
    return text


def _write_pattern(symbol: Symbol) -> str:
    return "/" + symbol.name.replace(".", "/")


def _compare_lines(before: str, after: str, *, at: Position, names: tuple[str, str]) -> Iterator[TextEdit]:
    """Yield the replacements of a name that make one line of another; raises if there are other differences."""
    old, new = names
    parts = re.split(rf"(?<!\w){re.escape(old)}(?!\w)", before)
    choice = f"({re.escape(old)}|{re.escape(new)})"
    matched = re.fullmatch(choice.join(map(re.escape, parts)), after)
    if matched is None:
        raise AnswerContradictsFiles(f"Serena changes more than the name {old} in {at.path}:{at.line}.", hint=HINT)
    column = 0
    for part, chosen in zip(parts, matched.groups(), strict=False):
        column += len(part)
        if chosen != old:
            yield TextEdit(
                path=at.path, line=at.line, column=column, end_line=at.line, end_column=column + len(old), new=new
            )
        column += len(old)


def _decode(raw: msgspec.Raw | bytes, decoder: "msgspec.json.Decoder[_T]") -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SymbolServerError(
            f"Serena gave no valid answer: {shorten(clean(str(error)), 200)}.", hint=HINT
        ) from error
