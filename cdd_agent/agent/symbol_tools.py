"""The tools that find definitions and uses, and change exactly one definition: an edit without a quoted passage.

An edit changes the bytes of one definition and nothing else. A rename changes all files that use a name, or none.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Protocol, TypeAlias

from msgspec import Meta

from cdd_agent.agent import editing
from cdd_agent.agent.tools import FilePath, Tool, ToolOutput, define_tool, format_changed_lines, number_lines
from cdd_agent.errors import UsageError, format_count, join_first
from cdd_agent.symbols import edit
from cdd_agent.symbols.index import ENDINGS
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.rename import Remainder, RenamePlan
from cdd_agent.symbols.symbol import Reference, Symbol
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.python_source import find_syntax_error
from cdd_agent.untrusted.text import require_visible
from cdd_agent.workspace.files import Hit, Workspace, grep
from cdd_agent.workspace.text_file import TextFile

MOST_SYMBOLS = 40
"""Definitions in one answer."""
MOST_REFERENCES = 100
MOST_BODY_LINES = 400
_MOST_NAMED = 12

SymbolName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=300,
        description="name of a function, class or method, such as parse, Reader.parse, or parse[1] for one of several",
    ),
]
Code = Annotated[str, Meta(min_length=1, description="the code, indented or not: it gets the indentation of its place")]
OptionalPath = Annotated[str, Meta(description="only in this file or folder; empty: the whole project")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindSymbolInput:
    """Find the definitions with a name, with file, lines and signature; all of them, if there are several."""

    name: SymbolName
    file_path: OptionalPath = ""
    include_body: Annotated[bool, Meta(description="also show the code, with line numbers")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolsOverviewInput:
    """List the classes, functions and methods of a Python file with their lines and signatures."""

    file_path: FilePath


@dataclass(frozen=True, slots=True, kw_only=True)
class FindReferencesInput:
    """Find the places that use a definition."""

    name: SymbolName
    file_path: OptionalPath = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceSymbolBodyInput:
    """Replace the body of a function or class. Decorators, signature, and all other code stay, byte for byte.

    The docstring stays unless the new body has one.
    """

    file_path: FilePath
    name: SymbolName
    body: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertAfterSymbolInput:
    """Insert code after a definition, such as a method after another one."""

    file_path: FilePath
    name: SymbolName
    code: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertBeforeSymbolInput:
    """Insert code before a definition and its decorators."""

    file_path: FilePath
    name: SymbolName
    code: Code


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameSymbolInput:
    """Rename a definition and all its uses, in all files, or change nothing.

    Names the places that contain the name and stay as they are, such as comments.
    """

    file_path: FilePath
    name: SymbolName
    new_name: Annotated[str, Meta(min_length=1, max_length=300, description="the new name, without a module or class")]


KeepName: TypeAlias = Callable[[Symbol], str]
"""Returns why a definition may not be renamed; empty if it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameRules:
    """The names and tests that a rename must leave intact."""

    keep_name: KeepName = lambda _: ""
    watch_tests: Callable[[Collection[str]], Callable[[], str]] = lambda _: str
    """Is called before files change; returns a function that says which tests fail since then, or nothing."""


class _SymbolEdit(Protocol):
    def __call__(self, content: bytes, symbol: Symbol, *, code: str) -> bytes: ...


def make_symbol_tools(
    symbols: Symbols,
    workspace: Workspace,
    *,
    may_write: editing.MayWrite,
    known: editing.KnownFiles,
    rules: RenameRules = RenameRules(),
    find_error: editing.FindError = find_syntax_error,
) -> tuple[Tool, ...]:
    """Return the tools for one agent, in the order of their inputs above.

    ``known`` is the record that the file tools share.
    """
    tools = _SymbolTools(symbols, workspace, may_write=may_write, known=known, find_error=find_error)
    rename = partial(tools.rename, rules=rules)
    changing = (
        define_tool("ReplaceSymbolBody", ReplaceSymbolBodyInput, run=tools.replace_body, subject=_name_subject),
        define_tool("InsertAfterSymbol", InsertAfterSymbolInput, run=tools.insert_after, subject=_name_subject),
        define_tool("InsertBeforeSymbol", InsertBeforeSymbolInput, run=tools.insert_before, subject=_name_subject),
        define_tool("RenameSymbol", RenameSymbolInput, run=rename, subject=_name_rename),
    )
    return (
        define_tool("FindSymbol", FindSymbolInput, run=tools.find, subject=lambda inputs: inputs.name),
        define_tool("SymbolsOverview", SymbolsOverviewInput, run=tools.list_file, subject=lambda each: each.file_path),
        define_tool("FindReferences", FindReferencesInput, run=tools.find_references, subject=lambda each: each.name),
        *(replace(tool, use="changes") for tool in changing),
    )


def _name_subject(inputs: ReplaceSymbolBodyInput | InsertAfterSymbolInput | InsertBeforeSymbolInput) -> str:
    return f"{inputs.name} in {inputs.file_path}"


def _name_rename(inputs: RenameSymbolInput) -> str:
    return f"{inputs.name} to {inputs.new_name}"


class _SymbolTools:
    def __init__(
        self,
        symbols: Symbols,
        workspace: Workspace,
        *,
        may_write: editing.MayWrite,
        known: editing.KnownFiles,
        find_error: editing.FindError,
    ) -> None:
        self._symbols = symbols
        self._workspace = workspace
        self._may_write = may_write
        self._known = known
        self._find_error = find_error

    def find(self, inputs: FindSymbolInput) -> ToolOutput:
        found = self._symbols.find(inputs.name, path=inputs.file_path)
        if not found:
            self._symbols.find_one(inputs.name, path=inputs.file_path)  # raises, and names files that cannot be read
        rows = [_describe(symbol) for symbol in found[:MOST_SYMBOLS]]
        if inputs.include_body:
            rows = [f"{row}\n{self._show_code(symbol)}" for row, symbol in zip(rows, found, strict=False)]
        if len(found) > MOST_SYMBOLS:
            rows.append(f"... and {len(found) - MOST_SYMBOLS} more; name a file or the class around it")
        return ToolOutput(text="\n".join(rows))

    def _show_code(self, symbol: Symbol) -> str:
        if symbol.is_stub:
            return "   (not yet generated)"
        lines = editing.split_lines(mask(self._workspace.read_text(symbol.path).text).text)
        last = min(symbol.end_line, symbol.line + MOST_BODY_LINES - 1)
        cut = [f"   ... {symbol.end_line - last} more lines: Read shows them"] if last < symbol.end_line else []
        return "\n".join([*number_lines(lines, first=symbol.line, last=last), *cut])

    def list_file(self, inputs: SymbolsOverviewInput) -> ToolOutput:
        found = self._symbols.list_file(self._workspace.resolve(inputs.file_path))
        rows = [f"{'  ' * symbol.name.count('.')}{_describe(symbol, is_inside=True)}" for symbol in found]
        return ToolOutput(text="\n".join(rows) or f"{inputs.file_path} defines nothing.")

    def find_references(self, inputs: FindReferencesInput) -> ToolOutput:
        symbol = self._symbols.find_one(inputs.name, path=inputs.file_path)
        answer = self._symbols.find_references(symbol)
        head = f"{symbol.path}:{symbol.line} {symbol.name}: {format_count(len(answer.places), 'use')}"
        if not answer.is_verified:
            head += ", by name alone: some may mean another definition"
        shown = answer.places[:MOST_REFERENCES]
        rows = [head]
        for path, places in groupby(shown, key=lambda each: each.path):
            rows += [path, *map(_describe_reference, places)]
        if len(answer.places) > len(shown):
            files = sorted({each.path for each in answer.places[MOST_REFERENCES:]})
            rows.append(f"... and {len(answer.places) - len(shown)} more, in {join_first(files, most=_MOST_NAMED)}")
        return ToolOutput(text="\n".join(rows))

    def replace_body(self, inputs: ReplaceSymbolBodyInput) -> ToolOutput:
        return self._change(inputs.file_path, inputs.name, code=inputs.body, change=edit.replace_body)

    def insert_after(self, inputs: InsertAfterSymbolInput) -> ToolOutput:
        return self._change(inputs.file_path, inputs.name, code=inputs.code, change=edit.insert_after)

    def insert_before(self, inputs: InsertBeforeSymbolInput) -> ToolOutput:
        return self._change(inputs.file_path, inputs.name, code=inputs.code, change=edit.insert_before)

    def _change(self, path: str, name: str, *, code: str, change: "_SymbolEdit") -> ToolOutput:
        path = editing.require_writable(self._workspace, path, may_write=self._may_write)
        file = self._workspace.read_text(path)
        editing.require_no_mask(code, before=file.text, where="the code")
        editing.require_whole(code, before=mask(file.text).text, name=path)
        symbol = self._symbols.find_one(name, path=path)
        after = change(file.data, symbol, code=code)
        if after == file.data:
            raise UsageError("The edit changes nothing.", hint="change the code, or make no edit")
        text = TextFile(name=path, data=after).text
        editing.require_keys(file.text, text)
        require_visible(text, before=file.text)
        editing.require_python(path, before=file.data, after=after, find_error=self._find_error)
        self._write(path, before=file.data, after=after)
        return ToolOutput(
            text=f"Changed {path}. The lines are now:\n{format_changed_lines(mask(file.text).text, mask(text).text)}",
            exact=True,
        )

    def _write(self, path: str, *, before: bytes, after: bytes) -> None:
        is_known = self._known.is_current(path, before)
        self._workspace.write(path, after)
        if is_known:
            self._known.note(path, after)
        self._symbols.note_changes([path])

    def rename(self, inputs: RenameSymbolInput, *, rules: RenameRules) -> ToolOutput:
        symbol = self._symbols.find_one(inputs.name, path=self._workspace.resolve(inputs.file_path))
        if reason := rules.keep_name(symbol):
            raise UsageError(f"{symbol.name} cannot be renamed: {reason}", hint="keep the name")
        plan = self._symbols.plan_rename(symbol, inputs.new_name)
        self._require_writable_files(symbol, plan)
        find_broken = rules.watch_tests(plan.changes)
        self._symbols.apply(plan, write=self._workspace.write, check=find_broken)
        for path, change in plan.changes.items():
            if self._known.is_current(path, change.old):
                self._known.note(path, change.new)
        files = sorted(plan.changes)
        head = (
            f"Renamed {symbol.name} to {plan.new}: {format_count(plan.count, 'place')} in {join_first(files, most=12)}."
        )
        rows = [head if plan.answer.is_verified else f"{head} Uses were found by name alone."]
        # A definition is also named in other files: an entry point in pyproject.toml, an example in README.md.
        word = rf"(?<!\w){re.escape(symbol.last_name)}(?!\w)"
        others = [each for each in grep(self._workspace, word).shown if not each.path.endswith(ENDINGS)]
        left = [*map(_describe_place, plan.remaining), *map(_describe_place, others)]
        if left:
            rows.append("These places contain the name and stay as they are; check them:")
            rows.append(join_first(left, most=MOST_REFERENCES, separator="\n"))
        return ToolOutput(text="\n".join(rows), changed=tuple(files))

    def _require_writable_files(self, symbol: Symbol, plan: RenamePlan) -> None:
        refused = []
        for path in plan.changes:
            try:
                editing.require_writable(self._workspace, path, may_write=self._may_write)
            except UsageError as error:
                refused.append(error.happened)
        if refused:
            listed = join_first(refused, most=_MOST_NAMED, separator="\n")
            raise UsageError(
                f"Nothing was renamed. {symbol.name} is used in files that you may not change:\n{listed}",
                hint="keep the name",
            )


def _describe(symbol: Symbol, *, is_inside: bool = False) -> str:
    """Return a definition in one line; ``is_inside``: in a list of one file."""
    lines = f"{symbol.line}-{symbol.end_line}" if symbol.end_line > symbol.line else str(symbol.line)
    where = lines if is_inside else f"{symbol.path}:{lines}"
    named = "" if is_inside and symbol.index is None else f" {symbol.reference}:"
    stub = " (not yet generated)" if symbol.is_stub else ""
    return f"{where}{named} {symbol.header}{f'  # {symbol.summary}' if symbol.summary else ''}{stub}"


def _describe_reference(reference: Reference) -> str:
    inside = f" in {reference.inside}" if reference.inside else ""
    return f"{reference.line:>6}{inside}: {reference.text.strip()}"


def _describe_place(place: Remainder | Hit) -> str:
    return f"{place.path}:{place.line}: {place.text.strip()}"
