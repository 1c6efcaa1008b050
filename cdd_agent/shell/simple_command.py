"""Split a simple command of a syntax tree into words, assignments and redirections, and judge their effect."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdd_agent.shell.programs import judge_words
from cdd_agent.shell.words import (
    READ,
    CommandContext,
    Effect,
    Folders,
    Word,
    combine,
    expand_braces,
    judge_read,
    judge_write,
    make_unknown_word,
    make_word,
    other_effect,
    parse_word,
)
from cdd_agent.shell.wrappers import judge_variable

if TYPE_CHECKING:
    from tree_sitter import Node

_WORDS = """
    word string raw_string ansi_c_string translated_string number concatenation simple_expansion expansion
    command_substitution process_substitution arithmetic_expansion extglob_pattern brace_expression regex array
    variable_name special_variable_name test_operator
"""
WORD_TYPES = frozenset(_WORDS.split())
"""The types of nodes that are words."""
_SUBSHELLS = frozenset({"command_substitution", "process_substitution"})
_CONTAINERS = frozenset(
    {"command", "command_name", "declaration_command", "unset_command", "test_command"}
    | {"binary_expression", "unary_expression", "parenthesized_expression", "postfix_expression"}
)
_PLAIN_EXPANSION = re.compile(
    r"\$\{#?\w+\}|\$\{\w+(?::?[-+?][\w./ -]*|[%#]{1,2}[\w.*?/-]*|//?[\w.-]*/[\w.-]*|\^{1,2}|,{1,2}|:\d+(?::\d+)?)\}"
)
_PLAIN_ARITHMETIC = re.compile(r"(?:\$\(\(|\(\()[\d\s+*/%()<>=!&|-]*\)\)")
_COMPARES_NUMBERS = re.compile(r"-(?:eq|ne|lt|le|gt|ge)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A simple command, or a construct such as a function definition, and its effect."""

    text: str
    """The canonical spelling."""
    effect: Effect
    folders: Folders
    is_exact: bool
    """Whether its text and folder determine its effect."""
    start: int
    """The range in the line, in bytes; ``end`` is exclusive."""
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """A redirection of input or output."""

    operator: str
    target: Word | None
    """The file; None for a stream or a here-document."""


@dataclass(slots=True)
class CommandParts:
    """The parts of a simple command, in source order."""

    words: list[Word] = field(default_factory=list)
    assignments: list["Node"] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The canonical spelling of each part."""
    is_opaque: bool = False
    """Whether an expansion can run a command."""


def get_text(node: "Node") -> str:
    """Return the source text of a node."""
    return (node.text or b"").decode("utf-8", "surrogateescape").strip(" \t\n")


def split_command(nodes: Sequence["Node"]) -> CommandParts:
    """Split the command that consists of these nodes."""
    parts = CommandParts()
    for node in sorted(nodes, key=lambda node: node.start_byte):
        _add_node(node, parts)
    return parts


def _add_node(node: "Node", parts: CommandParts) -> None:
    if node.type in _CONTAINERS:
        for child in node.children:
            _add_node(child, parts)
    elif node.type == "variable_assignment":
        parts.assignments.append(node)
        parts.shown.append(get_text(node))
        if parts.words:
            parts.words.append(parse_word(get_text(node)))
    elif node.type == "file_redirect":
        _add_redirect(node, parts)
    elif node.type in ("heredoc_redirect", "herestring_redirect"):
        parts.redirects.append(Redirect(operator="<<", target=None))
        parts.shown.append(get_text(node))
        for child in node.children:
            if node.type == "heredoc_redirect" and (child.type in WORD_TYPES or child.type == "file_redirect"):
                _add_node(child, parts)
            parts.is_opaque = parts.is_opaque or _is_opaque(child)
    elif node.type in WORD_TYPES:
        parts.is_opaque = parts.is_opaque or _is_opaque(node)
        words = _parse_words(node)
        parts.words += words
        parts.shown += [word.canonical for word in words]
    elif not node.is_named and get_text(node):
        parts.words.append(make_word(get_text(node)))
        parts.shown.append(get_text(node))


def _add_redirect(node: "Node", parts: CommandParts) -> None:
    operator = next((get_text(child) for child in node.children if not child.is_named), "")
    targets = [child for child in node.children if child.type in WORD_TYPES]
    number = "".join(get_text(child) for child in node.children if child.type == "file_descriptor")
    target = None
    if targets:
        first = get_text(targets[0])
        is_stream = operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", first)
        words = _parse_words(targets[0])
        target = None if is_stream else words[0] if len(words) == 1 else make_unknown_word(first)
        parts.is_opaque = parts.is_opaque or _is_opaque(targets[0])
        parts.shown.append(f"{number}{operator}{first if target is None else target.canonical}")
    else:
        parts.shown.append(f"{number}{operator}")
    parts.redirects.append(Redirect(operator=operator, target=target))
    # The parser attaches words behind the target to the redirection; they belong to the command.
    for more in targets[1:]:
        _add_node(more, parts)


def _parse_words(node: "Node") -> tuple[Word, ...]:
    text = get_text(node)
    if node.type in _SUBSHELLS:
        return (make_unknown_word(text, is_inside=node.type == "process_substitution"),)
    return expand_braces(text)


def _is_opaque(node: "Node") -> bool:
    """Return whether an expansion can do more than insert a value; commands in it are judged separately."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if here.type in _SUBSHELLS:
            continue
        if here.type == "subscript":
            return True
        if here.type == "expansion" and not _PLAIN_EXPANSION.fullmatch(get_text(here)):
            return True
        if here.type == "arithmetic_expansion" and not is_plain_arithmetic(get_text(here)):
            return True
        waiting += here.children
    return False


def is_plain_arithmetic(text: str) -> bool:
    """Return whether an arithmetic expression contains only numbers."""
    # bash evaluates the value of a name as an expression, and a subscript in it can run commands.
    return bool(_PLAIN_ARITHMETIC.fullmatch(text))


def judge_parts(parts: CommandParts, context: CommandContext, *, functions: frozenset[str]) -> Effect:
    """Return the effect of a simple command with its assignments and redirections."""
    effects = [_judge_redirect(redirect, context) for redirect in parts.redirects]
    if parts.is_opaque:
        effects.append(other_effect("an expansion in it can run commands"))
    name = parts.words[0].value if parts.words else None
    if name not in ("export", "declare", "typeset", "local", "readonly"):
        effects += [_judge_assignment(node, context, lasts=not parts.words) for node in parts.assignments]
    if name in functions:
        effects.append(other_effect(f"{name} is a function of this line"))
    if name == "[[":
        effects.append(_judge_condition(parts.words))
    elif parts.words:
        effects.append(judge_words(parts.words, context))
    return combine(effects)


def _judge_redirect(redirect: Redirect, context: CommandContext) -> Effect:
    if redirect.target is None:
        return READ
    if redirect.operator == "<":
        return judge_read(redirect.target, context)
    return judge_write(redirect.target, context, truncates=redirect.operator not in (">>", "&>>", "<>"))


def _judge_assignment(node: "Node", context: CommandContext, *, lasts: bool) -> Effect:
    names = [get_text(child) for child in node.children if child.type == "variable_name"]
    values = [child for child in node.children if child.type in WORD_TYPES and child.type != "variable_name"]
    # A subscript is evaluated and can run commands.
    if not names or any(child.type == "subscript" for child in node.children):
        return other_effect("it sets an element of an array")
    value = parse_word(get_text(values[0])).value if values else ""
    effect = judge_variable(names[0], value, context=context, lasts=lasts)
    is_opaque = any(map(_is_opaque, values))
    return combine((effect, other_effect("an expansion in it can run commands"))) if is_opaque else effect


def _judge_condition(words: Sequence[Word]) -> Effect:
    # `[[` evaluates the operands of numeric comparisons, and the value of a name can run commands.
    for at, word in enumerate(words):
        if word.text in ("-v", "-R"):
            return other_effect("testing a name can run commands")
        if _COMPARES_NUMBERS.fullmatch(word.text):
            sides = (words[at - 1].text, *(after.text for after in words[at + 1 : at + 2]))
            if not all(re.fullmatch(r"-?\d+|\$[#?]|\$\{#\w+\}", side) for side in sides):
                return other_effect("arithmetic can run commands")
    return READ


def iter_nodes(root: "Node") -> Iterator["Node"]:
    """Yield every node of the tree, in no particular order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children
