"""Code from a model: its statements, checked, and its lines with the indentation of the place where they go. Pure."""

import ast
import io
import tokenize
from collections.abc import Sequence
from functools import cached_property

from cdd_agent.errors import UsageError
from cdd_agent.symbols.definitions import DefinitionNode
from cdd_agent.untrusted.python_source import NestedTooDeeply, find_first_line, parse_valid, split_lines

_SPACE = " \t\f"
_KINDS = {ast.ClassDef: "a class", ast.FunctionDef: "a function", ast.AsyncFunctionDef: "an async function"}
_WRAP = "if 1:\n"
MOST_CHARACTERS = 1_000_000


class NewCode:
    """Statements that a model sent, at any indentation."""

    def __init__(self, code: str) -> None:
        """Parse the code; raises ``UsageError`` with the line, 1-based in ``code``, and what is wrong."""
        lines = split_lines(code)
        while lines and not lines[-1].strip():
            lines.pop()
        first = next((line for line in lines if line.strip(_SPACE) and not line.strip(_SPACE).startswith("#")), "")
        if not first:
            raise UsageError("The new code has no statement.", hint="send at least one statement, such as pass")
        if len(code) > MOST_CHARACTERS:
            raise UsageError("The new code has more than a million characters.", hint="send less")
        self._extra = 1 if first[0] in _SPACE else 0
        """Lines of ``_text`` before those of the code."""
        self._text = _WRAP * self._extra + "\n".join(lines) + "\n"
        tree = self._parse()
        self.statements: list[ast.stmt] = tree.body
        if self._extra:
            wrapper = tree.body[0]
            if len(tree.body) > 1 or not isinstance(wrapper, ast.If) or wrapper.orelse:
                ends = wrapper.body[-1].end_lineno if isinstance(wrapper, ast.If) else 0
                after = range(ends or 0, len(lines) + 1)
                at = next((at for at in after if (line := lines[at - 1].strip(_SPACE)) and line[0] != "#"), len(lines))
                raise _refuse(at, "its indentation is less than that of the first statement", lines=lines)
            self.statements = wrapper.body

    def _parse(self) -> ast.Module:
        try:
            return parse_valid(self._text)
        except SyntaxError as error:
            at = max(1, (error.lineno or 1) - self._extra)
            raise _refuse(at, error.msg, lines=self._text.split("\n")[self._extra :]) from error
        except UnicodeEncodeError as error:
            at = self._text.count("\n", 0, error.start) + 1 - self._extra
            raise _refuse(at, "it contains half of a character", lines=()) from error
        except (NestedTooDeeply, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or "it is nested too deeply"
            raise UsageError(f"The new code cannot be parsed: {reason}.", hint="send valid Python") from error

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the parsed text, to which the lines of ``statements`` refer."""
        return self._text.split("\n")[:-1]

    @cached_property
    def _blank(self) -> frozenset[int]:
        lines = (at for at, line in enumerate(self.lines, start=1) if not line.strip(_SPACE))
        return frozenset(lines) - self._layout.inside_strings

    @cached_property
    def _layout(self) -> "_Layout":
        return _Layout(self._text, extra=self._extra)

    def has_comment_beside(self, statement: ast.stmt) -> bool:
        """Return whether a comment is in the last line of a statement."""
        return statement.end_lineno in self._layout.beside

    def render(self, statements: Sequence[ast.stmt], *, indent: str, unit: str) -> list[str]:
        """Return the lines from the comments above ``statements`` to the end, each with its new indentation.

        ``statements`` are all of the code, or the body of its only definition. ``unit``: one level of indentation;
        empty to keep that of the code. Lines that begin inside of a string stay as they are.
        """
        layout, first = self._layout, find_first_line(statements[0])
        old, prefix, level, start = _find_indent(self.lines[first - 1]), indent, layout.levels[first], first
        rows, column = list[str](), len(self.lines[first - 1].encode()[: statements[0].col_offset].decode())
        if column > len(old):  # the definition that was sent is written in one line
            rows, level, start = [indent + self.lines[first - 1][column:]], level + 1, first + 1
        while not rows and start - 1 > self._extra and ((start - 1) in self._blank or (start - 1) in layout.alone):
            start -= 1
        while start in self._blank:
            start += 1
        unit = unit or layout.unit
        prefixes = {at: indent + unit * max(0, each - level) for at, each in layout.levels.items() if at >= start}
        for at in range(start, len(self.lines) + 1):
            line = self.lines[at - 1]
            own = _find_indent(line)
            if at in layout.inside_strings:
                rows.append(line)
            elif at in self._blank:
                rows.append("")
            elif at in prefixes:
                prefix, old = prefixes[at], own
                rows.append(prefix + line[len(own) :])
            elif at in layout.alone:
                rows.append(self._choose_prefix(at, prefixes, otherwise=prefix) + line[len(own) :])
            else:  # a continued line
                more = own.removeprefix(old) if own.startswith(old) else ""
                rows.append(prefix + _convert(more, self._layout.unit, to=unit) + line[len(own) :])
        return rows

    def _choose_prefix(self, at: int, prefixes: dict[int, str], *, otherwise: str) -> str:
        """Return the new indentation of a comment: that of the nearest statement with the same old one."""
        own = _find_indent(self.lines[at - 1])
        after = next((each for each in sorted(prefixes) if each > at), None)
        if after is not None and _find_indent(self.lines[after - 1]) == own:
            return prefixes[after]
        before = (each for each in sorted(prefixes, reverse=True) if each < at)
        same = next((each for each in before if _find_indent(self.lines[each - 1]) == own), None)
        return prefixes[same] if same is not None else otherwise


class _Layout:
    """What kind each line of a text has, by its tokens."""

    def __init__(self, text: str, *, extra: int) -> None:
        self.levels: dict[int, int] = {}
        """Line that begins a statement -> its level of indentation."""
        self.alone: set[int] = set()
        """Lines with nothing but a comment."""
        self.beside: set[int] = set()
        """Lines with a comment beside code."""
        self.inside_strings: set[int] = set()
        self.unit = ""
        level, is_start, opened, indents = 0, True, list[int](), [""]
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = tokenize.tok_name[token.type]
            if kind == "INDENT":
                level += 1
                self.unit = self.unit or (token.string.removeprefix(indents[-1]) if level > extra else "")
                indents.append(token.string)
            elif kind == "DEDENT":
                level -= 1
                indents.pop()
            elif kind == "COMMENT":
                (self.alone if is_start else self.beside).add(token.start[0])
            elif kind == "NEWLINE":
                is_start = True
            elif kind not in ("NL", "ENDMARKER"):
                if is_start:
                    self.levels[token.start[0]] = level
                is_start = False
            if kind.endswith("STRING_START"):
                opened.append(token.start[0])
            elif kind == "STRING" or kind.endswith("STRING_END"):
                first = opened.pop() if kind != "STRING" else token.start[0]
                self.inside_strings.update(range(first + 1, token.end[0] + 1))


def _find_indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_SPACE))]


def _convert(more: str, unit: str, *, to: str) -> str:
    """Write levels of spaces as tabs, or tabs as spaces, if the file has the others."""
    if "\t" in to and "\t" not in more:
        levels, rest = divmod(len(more), len(unit) or 4)
        return to * levels + " " * rest
    return more if "\t" in to else more.replace("\t", to or "\t")


def _refuse(at: int, what: str, *, lines: Sequence[str]) -> UsageError:
    shown = f": {lines[at - 1].strip()[:200]}" if 0 < at <= len(lines) else ""
    hint = "send the code with consistent indentation and closed brackets"
    return UsageError(f"Line {at} of the new code is wrong: {what}{shown}. Nothing was changed.", hint=hint)


def choose_body(code: NewCode, node: DefinitionNode, *, around: Sequence[str]) -> list[ast.stmt]:
    """Return the statements that are the new body of ``node``: of its whole definition, if the code is that.

    ``around``: the names of the classes around it, which a model may have sent too. Raises ``UsageError`` if the code
    has more than the definition, or its body needs parameters that the definition does not have.
    """
    statements, inside = code.statements, [*around]
    while inside and len(statements) == 1 and isinstance(outer := statements[0], ast.ClassDef):
        if outer.name != inside.pop(0) or outer.name == node.name:
            break
        statements = outer.body
    same = [each for each in statements if isinstance(each, DefinitionNode) and each.name == node.name]
    if not same:
        return code.statements
    if len(statements) > 1 or type(same[0]) is not type(node):
        what = f"as {_KINDS[type(same[0])]}, and it is {_KINDS[type(node)]}"
        what = "with other statements besides" if len(statements) > 1 else what
        happened = f"The new code defines {node.name} itself, {what}. Nothing was changed."
        raise UsageError(happened, hint=f"send only the definition of {node.name}, or only its body")
    if not isinstance(node, ast.ClassDef) and not isinstance(same[0], ast.ClassDef):
        unknown = _list_parameters(same[0]) - _list_parameters(node)
        words = (each for part in same[0].body for each in ast.walk(part))
        used = sorted({each.id for each in words if isinstance(each, ast.Name) and each.id in unknown})
        if used:
            happened = f"The new body uses {used[0]}, which is not a parameter of {node.name}, whose signature stays."
            raise UsageError(
                f"{happened} Nothing was changed.", hint="change the signature first with Edit, then the body"
            )
    return same[0].body


def _list_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
