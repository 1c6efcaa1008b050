"""The language server of ty, over standard input and output. It finds uses and plans renames, and changes no file."""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from cdd_agent.errors import UsageError
from cdd_agent.installation import suggest_addition
from cdd_agent.sandbox.port import Access, Command, Sandbox
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.rpc import HINT, LIFE_S, LengthFraming, SandboxedServer, ServerConnection, Talk
from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServerError, TextEdit
from cdd_agent.symbols.watched_files import AnswerContradictsFiles, Change, Position, SourceLines, WatchedFiles
from cdd_agent.untrusted.python_source import decode
from cdd_agent.untrusted.text import clean, shorten

VERSION = "0.0.108"
"""ty is not stable before 1.0, so the extra ``lsp`` asks for this version; other ones are not used."""
_ENCODINGS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
"""How a server counts columns -> the encoding, and the bytes of one unit."""
_CHANGES: dict[Change, int] = {"created": 1, "changed": 2, "removed": 3}
_LONGEST_LINE = 10_000_000

_T = TypeVar("_T")


class TyProgram(NamedTuple):
    """The program, if it can be used."""

    program: Path | None
    version: str
    problem: str
    """Why it is not used, and what to type."""


def find_ty() -> TyProgram:
    """Return the ty that is installed beside cdd; another one, such as the project's, is never started."""
    from importlib import metadata

    advice = suggest_addition(f"ty=={VERSION}")
    try:
        version = metadata.version("ty")
        from ty import find_ty_bin

        program = Path(find_ty_bin())
    except (ImportError, OSError):
        return TyProgram(None, "", f"ty is not installed: {advice}")
    if version != VERSION:
        return TyProgram(None, version, f"ty {version} is installed, and {VERSION} is needed: {advice}")
    return TyProgram(program, version, "")


class _Position(msgspec.Struct, frozen=True):
    line: int
    character: int


class _Range(msgspec.Struct, frozen=True):
    start: _Position
    end: _Position


class _Location(msgspec.Struct, frozen=True):
    uri: str
    range: _Range


class _Replacement(msgspec.Struct, frozen=True, rename="camel"):
    range: _Range
    new_text: str


class _WorkspaceEdit(msgspec.Struct, frozen=True):
    changes: dict[str, list[_Replacement]] = {}


class _Capabilities(msgspec.Struct, frozen=True, rename="camel"):
    position_encoding: str = "utf-16"


class _Greeting(msgspec.Struct, frozen=True):
    capabilities: _Capabilities


_GREETING = msgspec.json.Decoder(_Greeting)
_LOCATIONS: "msgspec.json.Decoder[list[_Location] | None]" = msgspec.json.Decoder(list[_Location] | None)
_CHANGED: "msgspec.json.Decoder[_WorkspaceEdit | None]" = msgspec.json.Decoder(_WorkspaceEdit | None)


class TyServer:
    """Asks ty."""

    name = "ty"

    def __init__(self, index: Index, *, sandbox: Sandbox, find_program: Callable[[], TyProgram] = find_ty) -> None:
        """Start nothing before the first question."""
        self._index = index
        self._find_program = find_program
        self._watched = WatchedFiles(index)
        self._encoding = "utf-16"
        self._is_new = True
        self._shown = set[str]()
        """Files whose text was sent."""
        self._server = SandboxedServer(
            self.name,
            sandbox=sandbox,
            make_command=self._make_command,
            greet=self._greet,
            talk=Talk(framing=LengthFraming(), answers={"client/registerCapability": None}),
        )

    def find_references(self, symbol: Symbol) -> tuple[Reference, ...]:
        """Return the places that use a symbol, without its definition."""
        sources = SourceLines(self._index)
        raw = self._ask("textDocument/references", symbol, sources=sources, context={"includeDeclaration": True})
        places = set[Position]()
        for each in _decode(raw, _LOCATIONS) or ():
            path = self._find_path(each.uri)
            if path in sources:  # not a module of an installed package
                places.add(self._read_position(each.range.start, path, sources=sources))
        definition = Position(symbol.path, symbol.name_line, symbol.name_column)
        if definition not in places:
            happened = f"ty does not know {symbol.name} in {symbol.path}:{symbol.name_line}."
            raise AnswerContradictsFiles(happened, hint=HINT)
        return sources.make_references(places - {definition}, name=symbol.last_name)

    def plan_rename(self, symbol: Symbol, new: str) -> tuple[TextEdit, ...]:
        """Return the replacements, also that of the definition, which rename a symbol."""
        sources = SourceLines(self._index)
        raw = self._ask("textDocument/rename", symbol, sources=sources, newName=new)
        answer = _decode(raw, _CHANGED)
        if answer is None:
            raise SymbolServerError(f"ty does not rename {symbol.name}.", hint=HINT)
        edits = set[TextEdit]()
        for uri, changes in answer.changes.items():
            path = self._find_path(uri)
            if path not in sources:
                shown = path or "a file outside of the project"
                raise SymbolServerError(f"ty would rename {symbol.name} in {shown!r:.200}.", hint=HINT)
            for each in changes:
                start = self._read_position(each.range.start, path, sources=sources)
                end = self._read_position(each.range.end, path, sources=sources)
                edits.add(
                    TextEdit(
                        path=path,
                        line=start.line,
                        column=start.column,
                        end_line=end.line,
                        end_column=end.column,
                        new=each.new_text,
                    )
                )
        found = tuple(sorted(edits, key=lambda each: (each.path, each.line, each.column)))
        sources.require_rename(found, symbol, new=new)
        return found

    def note_changes(self, paths: Collection[str]) -> None:
        """Tell ty with the next question that files have changed."""
        self._watched.note(paths)

    def close(self) -> None:
        """End ty."""
        self._server.close()

    def _ask(self, method: str, symbol: Symbol, *, sources: SourceLines, **parameters: object) -> msgspec.Raw:
        def ask(connection: ServerConnection, deadline: float) -> msgspec.Raw:
            self._report_changes(connection)
            # How columns are counted is known only now.
            return connection.request(method, {**self._locate(symbol, sources), **parameters}, deadline=deadline)

        return self._server.ask(ask)

    def _report_changes(self, connection: ServerConnection) -> None:
        changes = self._watched.take()
        for path in changes.keys() & self._shown:  # first, because what was sent hides the file itself
            self._shown.remove(path)
            connection.notify("textDocument/didClose", {"textDocument": {"uri": self._find_uri(path)}})
        if not self._is_new:  # a server that has just started reads all files
            events = [{"uri": self._find_uri(path), "type": _CHANGES[change]} for path, change in changes.items()]
            if events:
                connection.notify("workspace/didChangeWatchedFiles", {"changes": events})
        self._is_new = False
        for path in changes:
            self._show_text(path, connection)

    def _show_text(self, path: str, connection: ServerConnection) -> None:
        """Send the text of a file that is not in UTF-8, which ty does not read by itself."""
        try:
            content = self._index.read(path)
            content.decode("utf-8")
        except UsageError:  # it was removed
            return
        except UnicodeDecodeError:
            document = {"uri": self._find_uri(path), "languageId": "python", "version": 1, "text": decode(content)}
            connection.notify("textDocument/didOpen", {"textDocument": document})
            self._shown.add(path)

    def _make_command(self) -> Command:
        program = self._find_program()
        if program.program is None:
            raise SymbolServerError(f"{program.problem}.", hint=HINT)
        self._watched.forget()
        self._shown.clear()
        self._is_new = True
        return Command(
            argv=(str(program.program), "server"),
            cwd=self._index.root,
            access=Access(read_only=(self._index.root, program.program)),
            timeout_s=LIFE_S,
        )

    def _greet(self, connection: ServerConnection, deadline: float) -> None:
        uri = self._index.root.as_uri()
        parameters = {
            "processId": None,
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": "project"}],
            # Units of UTF-32 are characters of Python.
            # A project may let ty check a part of its files alone.
            "initializationOptions": {"configuration": {"src": {"include": ["**/*"]}}},
            "capabilities": {"general": {"positionEncodings": ["utf-32", "utf-16", "utf-8"]}},
        }
        greeting = _decode(connection.request("initialize", parameters, deadline=deadline), _GREETING)
        self._encoding = greeting.capabilities.position_encoding
        if self._encoding not in _ENCODINGS:
            raise SymbolServerError(f"ty counts columns in {self._encoding!r:.50}.", hint=HINT)
        connection.notify("initialized", {})

    def _locate(self, symbol: Symbol, sources: SourceLines) -> dict[str, object]:
        lines = sources.read(symbol.path)
        if symbol.name_line > len(lines):
            raise AnswerContradictsFiles(f"{symbol.path} has no line {symbol.name_line}.", hint=HINT)
        before = lines[symbol.name_line - 1][: symbol.name_column]
        codec, size_bytes = _ENCODINGS[self._encoding]
        position = {
            "line": symbol.name_line - 1,
            "character": len((sources.find_mark(symbol.path, symbol.name_line) + before).encode(codec)) // size_bytes,
        }
        return {"textDocument": {"uri": self._find_uri(symbol.path)}, "position": position}

    def _read_position(self, position: _Position, path: str, *, sources: SourceLines) -> Position:
        lines, line = sources.read(path), position.line + 1
        if not (0 < line <= len(lines) and 0 <= position.character <= _LONGEST_LINE):
            raise AnswerContradictsFiles(f"{path} has no line {line}.", hint=HINT)
        mark = sources.find_mark(path, line)
        codec, size_bytes = _ENCODINGS[self._encoding]
        before = (mark + lines[line - 1]).encode(codec)[: position.character * size_bytes]
        return Position(path, line, len(before.decode(codec, "replace")) - len(mark))

    def _find_uri(self, path: str) -> str:
        return (self._index.root / path).as_uri()

    def _find_path(self, uri: str) -> str:
        """Return the path of a file in the project; an empty text for any other."""
        parts = urlsplit(uri)
        root = f"{self._index.root}{os.sep}"
        path = unquote(parts.path, errors="surrogateescape")
        return path.removeprefix(root) if parts.scheme == "file" and path.startswith(root) else ""


def _decode(raw: msgspec.Raw, decoder: "msgspec.json.Decoder[_T]") -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SymbolServerError(f"ty gave no valid answer: {shorten(clean(str(error)), 200)}.", hint=HINT) from error
