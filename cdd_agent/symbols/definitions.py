"""One Python file: its exact text, its tree, and its definitions as symbols. Pure."""

import ast
import re
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from cdd_agent.errors import UsageError
from cdd_agent.symbols.symbol import Symbol, SymbolKind
from cdd_agent.untrusted.python_source import (
    explain_unreadable,
    find_first_line,
    find_syntax_error,
    list_imports,
    parse,
    split_lines,
    with_deep_stack,
)
from cdd_agent.workspace.outline import join_header
from pytest_tdd_agent.sources import UnreadableSource, find_encoding

DefinitionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LINE_END = re.compile(r"\r\n?|\n")
"""Ends a line for Python."""
_SURROGATE = re.compile("[\ud800-\udfff]")
# A line may be continued between the keyword and the name.
_BEFORE_NAME = re.compile(r"(?:async(?:[ \t\f]|\\(?:\r\n?|\n))+)?(?:def|class|type)(?:[ \t\f]|\\(?:\r\n?|\n))+")
_MOST_SUMMARY = 200
_HINT = "edit it with Edit instead"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedNode:
    """A definition in a tree."""

    name: str
    """Qualified."""
    kind: SymbolKind
    node: ast.stmt
    target: ast.expr | None
    """The name that a variable's statement assigns."""
    block: list[ast.stmt]
    """The statements among which it is."""


class SourceFile:
    """A Python file, and where its tree is in its text."""

    def __init__(self, path: str, content: bytes, *, is_parsed: bool = True) -> None:
        """Read the bytes of a file; raises ``UsageError`` with the place if it cannot be parsed.

        Without ``is_parsed``, it is parsed when its tree is asked for.
        """
        self.path = path
        self.content = content
        try:
            self.encoding = find_encoding(content)
            # Python accepts bytes in comments that are not UTF-8. They must stay as they are.
            is_utf_8 = self.encoding.startswith("utf-8")
            self.text = content.decode(self.encoding, "surrogateescape" if is_utf_8 else "strict")
        except (UnreadableSource, UnicodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}.", hint=_HINT) from error
        self._is_plain = is_utf_8 and self.text == self.shown and b"\0" not in content
        reason = "" if self._is_plain else explain_unreadable(content)
        if reason:
            raise UsageError(f"{path} cannot be read: {reason}.", hint=_HINT)
        if is_parsed:
            _ = self.tree

    @cached_property
    def tree(self) -> ast.Module:
        """The tree of the text; raises ``UsageError`` with the place of a syntax error."""
        tree = parse(self.shown) if self._is_plain or find_syntax_error(self.content) is None else None
        if tree is None:
            reason = find_syntax_error(self.content) or "Python refuses it"
            reason = "it is nested too deeply" if reason in ("MemoryError", "RecursionError") else reason
            raise UsageError(f"{self.path} cannot be parsed: {reason}.", hint="correct that line with Edit first")
        return tree

    @cached_property
    def shown(self) -> str:
        """The text with a replacement character for each byte that cannot be decoded."""
        return _SURROGATE.sub("\ufffd", self.text)

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends."""
        return split_lines(self.shown)

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each line in ``text``."""
        return [0, *(found.end() for found in LINE_END.finditer(self.text))]

    def count_characters(self, line: int, column: int) -> int:
        """Return the column in characters of a column in bytes of UTF-8, as the tree has it."""
        text = self.lines[line - 1]
        return column if text.isascii() else len(text.encode()[:column].decode("utf-8", "replace"))

    def find_offset(self, line: int, column: int) -> int:
        """Return the offset in ``text`` of a line, and of a column in bytes of UTF-8."""
        return self.starts[line - 1] + self.count_characters(line, column)

    def find_place(self, offset: int) -> tuple[int, int]:
        """Return the line, 1-based, and the column in characters of an offset in ``text``."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1]

    @property
    def codec(self) -> str:
        """The encoding without its byte order mark."""
        return self.encoding.removesuffix("-sig")

    def change(self, changes: Sequence[tuple[int, int, str]], *, name: str, hint: str) -> "SourceFile":
        """Return the file with other texts at some places, given as start and end in ``text``, in order.

        All other bytes stay. ``name``: the definition that the change is about. Raises ``UnicodeEncodeError`` for a
        text that the encoding cannot hold, and ``UsageError`` if Python would not compile the file, or read it in
        another way.
        """
        content, text = self._splice(changes)
        try:
            changed = SourceFile(self.path, content)
        except UsageError as error:
            raise UsageError(f"With this change, {error.happened} Nothing was changed.", hint=hint) from error
        problem = _find_compile_error(changed)
        if problem and not _find_compile_error(self):
            happened = f"With this change, {self.path} cannot be compiled: {problem}. Nothing was changed."
            raise UsageError(happened, hint=hint)
        if changed.encoding != self.encoding or changed.text != text:
            happened = f"The change would reach more of {self.path} than {name}. Nothing was changed."
            raise UsageError(happened, hint=_HINT)
        return changed

    def _splice(self, changes: Sequence[tuple[int, int, str]]) -> tuple[bytes, str]:
        errors = "surrogateescape" if self.codec.startswith("utf-8") else "strict"
        old, new, end = list[str](), list[str](), 0
        for start, stop, text in (*changes, (len(self.text), len(self.text), "")):
            old += [self.text[end:start], self.text[start:stop]]
            new += [self.text[end:start], text]
            end = stop
        before, after = (b"".join(part.encode(self.codec, errors) for part in parts) for parts in (old, new))
        mark = self.content[: len(self.content) - len(before)]
        # Some encodings have several forms of one character.
        if mark + before != self.content or len(mark) > 3:
            happened = f"{self.path} is in {self.codec}, which cannot be edited in parts. Nothing was changed."
            raise UsageError(happened, hint=_HINT)
        return mark + after, "".join(new)

    @cached_property
    def definitions(self) -> tuple[NamedNode, ...]:
        """All definitions in the order of their lines; of a variable the first assignment."""
        return list_definitions(self.tree)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The definitions as symbols, in the same order."""
        counts, seen, found = Counter(each.name for each in self.definitions), Counter[str](), list[Symbol]()
        for each in self.definitions:
            index = seen[each.name] if counts[each.name] > 1 else None
            seen[each.name] += 1
            found.append(replace(self._make_symbol(each), index=index))
        return tuple(found)

    def _make_symbol(self, found: NamedNode) -> Symbol:
        node, first, place = found.node, find_first_line(found.node), found.target or found.node
        line, column = place.lineno, self.count_characters(place.lineno, place.col_offset)
        last = node.end_lineno or node.lineno
        if found.target is None and (before := _BEFORE_NAME.match(self.text, self.starts[line - 1] + column)):
            if "\\" in before[0]:
                line += len(LINE_END.findall(before[0]))
            column = before.end() - self.starts[line - 1]
        header_end, summary, bases = last, "", tuple[str, ...]()
        if isinstance(node, DefinitionNode):
            header_end = max(node.lineno, find_first_line(node.body[0]) - 1)
            if isinstance(node, ast.ClassDef):
                bases = tuple(map(ast.unparse, node.bases))
            summary = (ast.get_docstring(node) or "").partition("\n")[0][:_MOST_SUMMARY]
        return Symbol(
            path=self.path,
            name=found.name,
            kind=found.kind,
            line=first,
            end_line=last,
            name_line=line,
            name_column=column,
            header=join_header(self.lines, first=node.lineno, last=header_end),
            summary=summary,
            is_stub=is_stub(node),
            bases=bases,
            base_imports=tuple(map(self._find_import, bases)),
        )

    def _find_import(self, base: str) -> str:
        first, *rest = base.partition("[")[0].split(".")
        return ".".join([self.imports[first], *rest]) if first in self.imports else ""

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Name -> what it is imported as, such as ``.tables.Table``, at module level; also ``.tables.*`` -> itself."""
        found, waiting = dict[str, str](), [*self.tree.body]
        while waiting:
            node = waiting.pop()
            for each in list_imports(node):
                found[each.origin if each.name == "*" else each.bound] = each.origin
            if isinstance(node, ast.If | ast.Try):
                waiting += (inner for block in list_blocks(node) for inner in block)
        return found


@with_deep_stack
def _find_compile_error(source: SourceFile) -> str:
    """Return what a compiler refuses in a file that can be parsed, such as ``return`` outside of a function."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source.tree, "<source>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def is_stub(node: ast.stmt) -> bool:
    """Return whether a function does nothing but raise ``NotImplementedError``."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    match node.body[ast.get_docstring(node, clean=False) is not None :]:
        case [ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError")))]:
            return True
        case _:
            return False


@with_deep_stack
def list_definitions(tree: ast.Module) -> tuple[NamedNode, ...]:
    """Return the definitions of a module, also nested ones; the local variables of functions are none."""
    variables, found = set[str](), list[NamedNode]()
    for each in _walk(tree.body, prefix="", inside="module"):
        if each.kind != "variable" or each.name not in variables:
            found.append(each)
        if each.kind == "variable":
            variables.add(each.name)
    return tuple(found)


def _walk(block: list[ast.stmt], *, prefix: str, inside: str) -> Iterator[NamedNode]:
    for node in block:
        match node:
            case ast.ClassDef(name=name):
                yield NamedNode(name=prefix + name, kind="class", node=node, target=None, block=block)
                yield from _walk(node.body, prefix=f"{prefix}{name}.", inside="class")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                kind: SymbolKind = "method" if inside == "class" else "function"
                yield NamedNode(name=prefix + name, kind=kind, node=node, target=None, block=block)
                yield from _walk(node.body, prefix=f"{prefix}{name}.", inside="function")
            case ast.Assign() | ast.AnnAssign():
                for target in list_targets(node) if inside != "function" else ():
                    yield NamedNode(name=prefix + target.id, kind="variable", node=node, target=target, block=block)
            case _ if type(node).__name__ == "TypeAlias":  # Python 3.12 has it
                name = getattr(getattr(node, "name", None), "id", "")
                yield NamedNode(name=prefix + name, kind="variable", node=node, target=None, block=block)
            case _:
                for inner in list_blocks(node):
                    yield from _walk(inner, prefix=prefix, inside=inside)


def list_blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement such as ``if``, ``try`` or ``match``."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        inner = getattr(node, field, None)
        if isinstance(inner, list) and inner:
            if isinstance(inner[0], ast.stmt):
                yield inner
            else:
                for each in inner:
                    yield from list_blocks(each)


def list_targets(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.Name]:
    """Yield the names that an assignment binds."""
    waiting: list[ast.expr] = [*reversed(node.targets)] if isinstance(node, ast.Assign) else [node.target]
    while waiting:
        match waiting.pop():
            case ast.Name() as name:
                yield name
            case ast.Tuple(elts=inner) | ast.List(elts=inner):
                waiting += reversed(inner)
            case ast.Starred(value=value):
                waiting.append(value)
