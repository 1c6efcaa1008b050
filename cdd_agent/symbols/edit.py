"""Exact edits of Python files: the bytes of one body change, or new lines come beside a definition. Pure.

Everything else stays byte for byte. After each edit the file is parsed again, and every other definition must have the
tree that it had.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cdd_agent.errors import UsageError
from cdd_agent.symbols.definitions import LINE_END, DefinitionNode, NamedNode, SourceFile, list_blocks, list_targets
from cdd_agent.symbols.new_code import NewCode, choose_body
from cdd_agent.symbols.symbol import Symbol
from cdd_agent.untrusted.python_source import ForeignModule, find_first_line, find_syntax_error
from cdd_agent.untrusted.text import format_code_point

_SPACE = " \t\f"
_INDENT = re.compile(r"[ \t\f]*")
_BEFORE = re.compile(r"(?:[ \t\f;]|\\(?:\r\n?|\n))*\Z")
"""What separates a statement from one before it in the same line."""
_REST = re.compile(r"[ \t\f]*(?P<semicolon>;)?[ \t\f]*(?P<comment>#[^\r\n]*)?")
_COMMENT = re.compile(r"[ \t\f]*#[^\r\n]*")
_USUAL_UNIT = "    "
_NOT_IN_PARTS = "edit it with Edit instead"


def replace_body(content: bytes, symbol: Symbol, *, code: str) -> bytes:
    """Return the file with another body for a function or class, or another assignment for a variable.

    ``code``: the statements of the body, or the whole definition; only its body is taken. Decorators, signature,
    comments before and after the statements, and the docstring stay, unless ``code`` has a docstring.
    Raises ``UsageError`` if the code is wrong, or the file cannot be edited exactly.
    """
    edit = _ChangeAtDefinition(content, symbol)
    node = edit.found.node
    new = NewCode(code)
    if not isinstance(node, DefinitionNode):
        return edit.replace_statement(new)
    return edit.apply(*edit.plan_body(node, new))


def insert_after(content: bytes, symbol: Symbol, *, code: str) -> bytes:
    """Return the file with new statements after a definition, at its indentation; raises ``UsageError``."""
    edit = _ChangeAtDefinition(content, symbol)
    return edit.insert(NewCode(code), is_after=True)


def insert_before(content: bytes, symbol: Symbol, *, code: str) -> bytes:
    """Return the file with new statements before a definition, its decorators and the comments above it."""
    edit = _ChangeAtDefinition(content, symbol)
    return edit.insert(NewCode(code), is_after=False)


class _ChangeAtDefinition:
    """One edit at a definition."""

    def __init__(self, content: bytes, symbol: Symbol) -> None:
        self.source = source = SourceFile(symbol.path, content)
        if isinstance(source.tree, ForeignModule):
            happened = f"{symbol.path} cannot be parsed: {find_syntax_error(source.shown)}."
            raise UsageError(happened, hint=_NOT_IN_PARTS)
        self.position = _locate(source, symbol)
        self.found: NamedNode = source.definitions[self.position]
        node = self.found.node
        self.first = find_first_line(node)
        self.indent = self._read_indent(self.first)
        start = source.starts[node.lineno - 1]
        ends = Counter(LINE_END.findall(source.text))
        own = LINE_END.search(source.text, start)
        self.line_end = own[0] if own is not None else next(iter(ends), "\n")

    def _read_indent(self, line: int) -> str:
        """Return the indentation of a line; a form feed starts it anew."""
        found = _INDENT.match(self.source.text, self.source.starts[line - 1])
        return found[0].rpartition("\f")[2] if found is not None else ""

    def _find_start(self, node: ast.stmt) -> int:
        """Return the offset where a statement begins, with its decorators."""
        line = find_first_line(node)
        if line == node.lineno:
            return self.source.find_offset(line, node.col_offset)
        return (
            self.source.starts[line - 1]
            + len(self.source.lines[line - 1])
            - len(self.source.lines[line - 1].lstrip(_SPACE))
        )

    def _find_end(self, node: ast.stmt) -> int:
        return self.source.find_offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _is_alone(self, start: int) -> bool:
        """Return whether only white space is before an offset in its line."""
        line = self.source.text[:start]
        begin = max(line.rfind("\n"), line.rfind("\r")) + 1
        # A line that is continued by a backslash is a part of the one before.
        return not line[begin:].strip(_SPACE) and not re.search(r"\\(?:\r\n?|\n)\Z", line[:begin])

    def find_unit(self) -> str:
        """Return one level of indentation in the file; empty if it has none."""
        waiting: list[list[ast.stmt]] = [self.source.tree.body]
        while waiting:
            for node in waiting.pop():
                for block in list_blocks(node):
                    inner, outer = (self._read_indent(find_first_line(each)) for each in (block[0], node))
                    if inner.startswith(outer) and inner != outer:
                        return inner.removeprefix(outer)
                    waiting.append(block)
        return ""

    def plan_body(self, node: DefinitionNode, new: NewCode) -> tuple[tuple[int, int], list[str]]:
        """Return start and end of the text to replace, and the lines for it; the first one continues a line."""
        statements = choose_body(new, node, around=self.found.name.split(".")[:-1])
        unit, is_kept = self.find_unit(), _has_docstring(node.body) and not _has_docstring(statements)
        first = node.body[0]
        start, end = self._find_start(first), self._find_end(node.body[-1])
        rest = _REST.match(self.source.text, end)
        if rest is not None and rest["comment"] and new.has_comment_beside(statements[-1]):
            end = rest.end()
        if not self._is_alone(start):  # the body is in the line of its header
            indent = self.indent + (unit or _USUAL_UNIT)
            kept = [indent + self.source.text[start : self._find_end(first)]] if is_kept else []
            return (self._skip_back(start), end), ["", *kept, *new.render(statements, indent=indent, unit=unit)]
        indent = self._read_indent(find_first_line(first))
        rows = new.render(statements, indent=indent, unit=unit)
        above, below = self._list_comments_above(start), self._list_comments_below(end)
        if is_kept:
            above = []
            if len(node.body) == 1:
                rest = _REST.match(self.source.text, self._find_end(first))
                end = rest.end() if rest is not None else self._find_end(first)
                return (end, end), ["", *rows]
            start = self._find_start(node.body[1])
            if not self._is_alone(start):
                return (self._skip_back(start), end), ["", *rows]
            above = self._list_comments_above(start)
        while len(rows) > 1 and (rows[0].strip() in above or not rows[0]):
            above, rows = above[above.index(rows[0].strip()) + 1 if rows[0] else 0 :], rows[1:]
        while len(rows) > 1 and (rows[-1].strip() in below or not rows[-1]):
            below, rows = below[: below.index(rows[-1].strip()) if rows[-1] else None], rows[:-1]
        return (start, end), [rows[0].removeprefix(indent), *rows[1:]]

    def _skip_back(self, start: int) -> int:
        """Return the offset after the colon or statement before ``start`` in the same line."""
        found = _BEFORE.search(self.source.text, 0, start)
        return found.start() if found is not None else start

    def _list_comments_above(self, start: int) -> list[str]:
        """Return the comments between the code before an offset and its line, without their indentation."""
        line, found = self.source.find_place(start)[0] - 1, list[str]()
        while line > 0 and (_COMMENT.fullmatch(text := self.source.lines[line - 1]) or not text.strip(_SPACE)):
            found.insert(0, text.strip())
            line -= 1
        return [text for text in found if text]

    def _list_comments_below(self, end: int) -> list[str]:
        return [self.source.lines[line - 1].strip() for line in self._iterate_comments_below(end)]

    def _iterate_comments_below(self, end: int) -> Iterator[int]:
        """Yield the lines after an offset with comments that are indented more deeply than the definition."""
        for line in range(self.source.find_place(end)[0] + 1, len(self.source.lines) + 1):
            text = self.source.lines[line - 1]
            if _COMMENT.fullmatch(text):
                own = self._read_indent(line)
                if len(own.expandtabs()) <= len(self.indent.expandtabs()):
                    return
                yield line
            elif text.strip(_SPACE):
                return

    def replace_statement(self, new: NewCode) -> bytes:
        """Replace the assignment of a variable by another one."""
        node, name = self.found.node, ", ".join(_list_names(self.found.node))
        match new.statements:
            case [ast.Assign() | ast.AnnAssign() as only] if _list_names(only) == _list_names(node):
                pass
            case _:
                hint = f"send one assignment, such as {name} = ..."
                raise UsageError(f"The new code does not assign {name}. Nothing was changed.", hint=hint)
        start, end = self._find_start(node), self._find_end(node)
        rest = _REST.match(self.source.text, end)
        if rest is not None and rest["comment"] and new.has_comment_beside(only):
            end = rest.end()
        rows = new.render([only], indent=self.indent, unit=self.find_unit())
        return self.apply((start, end), [rows[0].removeprefix(self.indent), *rows[1:]])

    def insert(self, new: NewCode, *, is_after: bool) -> bytes:
        """Insert statements beside the definition, with as many blank lines as there are between others."""
        node, source = self.found.node, self.source
        rest = _REST.match(source.text, self._find_end(node))
        end = rest.end() if rest is not None else self._find_end(node)
        is_last = end == len(source.text)
        if not self._is_alone(self._find_start(node)) or not (is_last or LINE_END.match(source.text, end)):
            happened = f"{self.found.name} shares a line of {source.path} with another statement."
            raise UsageError(f"{happened} Nothing was changed.", hint=_NOT_IN_PARTS)
        self._refuse_twins(new.statements)
        rows = new.render(new.statements, indent=self.indent, unit=self.find_unit())
        is_spaced = any(isinstance(each, DefinitionNode) for each in (node, *new.statements))
        blank = [""] * (self._count_usual_blank() if is_spaced else 0)
        if is_after:
            line = max([node.end_lineno or node.lineno, *self._iterate_comments_below(end)])
            more = blank[self._count_blank(line + 1, 1) :] if node is not self.found.block[-1] else []
            if line >= len(source.starts):  # the last line has no end
                return self.apply((len(source.text), len(source.text)), ["", *blank, *rows], is_beside=True)
            return self.apply((source.starts[line], source.starts[line]), [*blank, *rows, *more, ""], is_beside=True)
        line = self.first
        while line > 1 and self._is_own_comment(line - 1):
            line -= 1
        more = blank[self._count_blank(line - 1, -1) :] if node is not self.found.block[0] else []
        return self.apply(
            (source.starts[line - 1], source.starts[line - 1]), [*more, *rows, *blank, ""], is_beside=True
        )

    def _is_own_comment(self, line: int) -> bool:
        """Return whether a line is a comment about what is below it, and not the interpreter or the encoding."""
        text = self.source.lines[line - 1]
        is_first = line <= 2 and (text.startswith("#!") or re.search(r"coding[:=]", text) is not None)
        return _COMMENT.fullmatch(text) is not None and not is_first and self._read_indent(line) == self.indent

    def _count_blank(self, line: int, step: int) -> int:
        """Return the number of blank lines from ``line`` on, upwards or downwards."""
        count = 0
        while 0 < line + count * step <= len(self.source.lines):
            if self.source.lines[line + count * step - 1].strip(_SPACE):
                break
            count += 1
        return count

    def _count_usual_blank(self) -> int:
        """Return how many blank lines are most often between the definitions of the block."""
        block, counts = self.found.block, Counter[int]()
        for above, below in pairwise(block):
            if isinstance(above, DefinitionNode) and isinstance(below, DefinitionNode):
                line = find_first_line(below) - 1
                while _COMMENT.fullmatch(self.source.lines[line - 1]):
                    line -= 1
                counts[self._count_blank(line, -1)] += 1
        del counts[0]  # overloads, or definitions of one line
        usual = 2 if block is self.source.tree.body else 1
        return max(counts, key=lambda each: (counts[each], each == usual)) if counts else usual

    def _refuse_twins(self, statements: Sequence[ast.stmt]) -> None:
        """Refuse a definition that would replace one of the same block: most often, a call was repeated."""
        known = {each.name: each for each in self.found.block if isinstance(each, DefinitionNode)}
        for each in statements:
            twin = known.get(each.name) if isinstance(each, DefinitionNode) and not each.decorator_list else None
            if twin is not None and not twin.decorator_list:
                happened = f"{self.source.path} defines {twin.name} already, in line {twin.lineno}."
                hint = "replace the body of that definition, or choose another name"
                raise UsageError(f"{happened} Nothing was changed.", hint=hint)

    def apply(self, place: tuple[int, int], rows: Sequence[str], *, is_beside: bool = False) -> bytes:
        """Replace a part of the text by lines; refuse it if anything else in the file would change.

        ``is_beside``: the lines are statements beside the definition, and not its body.
        """
        (start, end), source, text = place, self.source, self.line_end.join(rows)
        _require_encodable(source, text)
        changed = source.change([(start, end, text)], name=self.found.name, hint="correct the new code")
        first = source.find_place(start)[0] + _count_lines(text[: len(text) - len(text.lstrip("\r\n"))])
        lines = range(first, first + _count_lines(text.strip("\r\n")) + 1) if is_beside else None
        if not self._is_rest_same(changed, lines=lines):
            happened = f"The change would reach more of {source.path} than {self.found.name}. Nothing was changed."
            raise UsageError(happened, hint=_NOT_IN_PARTS)
        return changed.content

    def _is_rest_same(self, changed: SourceFile, *, lines: range | None) -> bool:
        """Return whether two trees differ only in statements within ``lines``, or else in the body of the definition.

        Both trees are changed.
        """
        if lines is not None:
            for block in _list_all_blocks(changed.tree):
                block[:] = [each for each in block if not _is_within(each, lines)]
        elif self.position >= len(changed.definitions):
            return False
        else:
            for found in (self.found, changed.definitions[self.position]):
                if isinstance(found.node, DefinitionNode):
                    found.node.body = []
                else:
                    found.block.remove(found.node)
        return is_same_tree(self.source.tree, changed.tree)


def _count_lines(text: str) -> int:
    """Return the number of line ends."""
    return len(LINE_END.findall(text))


def _locate(source: SourceFile, symbol: Symbol) -> int:
    """Return the position of a symbol among the definitions of a file, which may have changed since it was found."""
    same = [at for at, each in enumerate(source.definitions) if each.name == symbol.name]
    if symbol.index is None and len(same) > 1:
        listed = ", ".join(
            f"{symbol.name}[{n}] in line {source.definitions[at].node.lineno}" for n, at in enumerate(same)
        )
        happened = f"{symbol.name} is ambiguous: {symbol.path} defines {listed}. Nothing was changed."
        raise UsageError(happened, hint=f"name one of them, such as {symbol.name}[0]")
    if (symbol.index or 0) >= len(same):
        happened = f"{symbol.path} does not define {symbol.reference} any longer. Nothing was changed."
        raise UsageError(happened, hint="list the definitions of the file again")
    return same[symbol.index or 0]


def _list_names(node: ast.stmt) -> list[str]:
    return [each.id for each in list_targets(node)] if isinstance(node, ast.Assign | ast.AnnAssign) else []


def _has_docstring(body: Sequence[ast.stmt]) -> bool:
    match body[0]:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _list_all_blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    found = [tree.body]
    for block in found:
        found += [inner for node in block for inner in list_blocks(node)]
    return found


def _is_within(node: ast.stmt, lines: range) -> bool:
    return find_first_line(node) in lines and (node.end_lineno or node.lineno) in lines


def _require_encodable(source: SourceFile, text: str) -> None:
    """Raise ``UsageError`` for the first character that the encoding of the file cannot hold."""
    try:
        text.encode(source.codec)
    except UnicodeEncodeError as error:
        letter, line = text[error.start], text.count("\n", 0, error.start) + 1
        shown = letter if letter.isprintable() else ""
        which = f"which cannot hold {shown}({format_code_point(letter)}), in line {line} of the new code"
        raise UsageError(
            f"{source.path} is in {source.codec}, {which}. Nothing was changed.",
            hint="write it as an escape sequence or in ASCII",
        ) from error


def is_same_tree(one: ast.AST, other: ast.AST) -> bool:
    """Return whether two trees have the same ``ast.dump``."""
    waiting: list[tuple[object, object]] = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, ast.AST):
            waiting += [(getattr(left, field, None), getattr(right, field, None)) for field in left._fields]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            waiting += zip(left, right, strict=True)
        # 0.0 is equal to -0.0, and nan to nothing.
        elif (left != right or isinstance(left, float | complex)) and repr(left) != repr(right):
            return False
    return True
