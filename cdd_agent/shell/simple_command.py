"""One simple command of a syntax tree: its words, its variables, and where its input comes from and its output goes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdd_agent.shell.programs import judge_words
from cdd_agent.shell.words import (
    READ,
    Finding,
    Folders,
    Setting,
    Word,
    expanded,
    joined,
    literal,
    of_value,
    other,
    reads,
    unknown,
    writes,
)
from cdd_agent.shell.wrappers import assigns

if TYPE_CHECKING:
    from tree_sitter import Node

WORDS = frozenset(
    [
        "word",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "number",
        "concatenation",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
        "extglob_pattern",
        "brace_expression",
        "regex",
        "array",
        "variable_name",
        "special_variable_name",
        "test_operator",
    ]
)
_SHELLS_OF_THEIR_OWN = frozenset({"command_substitution", "process_substitution"})
_EXPRESSIONS = frozenset({"binary_expression", "unary_expression", "parenthesized_expression", "postfix_expression"})
_PLAIN_EXPANSION = re.compile(
    r"\$\{#?\w+\}|\$\{\w+(?::?[-+?][\w./ -]*|[%#]{1,2}[\w.*?/-]*|//?[\w.-]*/[\w.-]*|\^{1,2}|,{1,2}|:\d+(?::\d+)?)\}"
)
_PLAIN_ARITHMETIC = re.compile(r"(?:\$\(\(|\(\()[\d\s+*/%()<>=!&|-]*\)\)")
_COMPARES_NUMBERS = re.compile(r"-(?:eq|ne|lt|le|gt|ge)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A simple command, or what stands in the place of one, judged."""

    text: str
    """In canonical spelling."""
    finding: Finding
    folders: Folders
    is_exact: bool
    """Whether its text and folder say all that decides what it does."""
    start: int
    """In bytes; ``end`` is one behind."""
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirect:
    """Where input comes from, or output goes."""

    operator: str
    target: Word | None
    """None: another stream, or text that is given with it."""


@dataclass(slots=True)
class Pieces:
    """What a simple command is made of, in the order of its text."""

    words: list[Word] = field(default_factory=list)
    assignments: list["Node"] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """Canonical."""
    is_opaque: bool = False
    """Whether an expansion in it can run something."""


def text_of(node: "Node") -> str:
    """The source of a node."""
    return (node.text or b"").decode("utf-8", "surrogateescape").strip(" \t\n")


def take_apart(nodes: Sequence["Node"]) -> Pieces:
    """The pieces of the command that these nodes are, one after the other."""
    found = Pieces()
    for node in sorted(nodes, key=lambda node: node.start_byte):
        _take(node, found)
    return found


def _take(node: "Node", found: Pieces) -> None:
    if node.type == "command_name" or node.type in (
        "command",
        "declaration_command",
        "unset_command",
        "test_command",
        *_EXPRESSIONS,
    ):
        for child in node.children:
            _take(child, found)
    elif node.type == "variable_assignment":
        found.assignments.append(node)
        found.shown.append(text_of(node))
        if found.words:
            found.words.append(literal(text_of(node)))
    elif node.type == "file_redirect":
        _redirect(node, found)
    elif node.type in ("heredoc_redirect", "herestring_redirect"):
        found.redirects.append(Redirect(operator="<<", target=None))
        found.shown.append(text_of(node))
        for child in node.children:
            if node.type == "heredoc_redirect" and (child.type in WORDS or child.type == "file_redirect"):
                _take(child, found)
            found.is_opaque = found.is_opaque or is_opaque(child)
    elif node.type in WORDS:
        found.is_opaque = found.is_opaque or is_opaque(node)
        words = words_of(node)
        found.words += words
        found.shown += [word.canonical for word in words]
    elif not node.is_named and text_of(node):
        found.words.append(of_value(text_of(node)))
        found.shown.append(text_of(node))


def _redirect(node: "Node", found: Pieces) -> None:
    """A redirection; the words behind its target are the command's."""
    operator = next((text_of(child) for child in node.children if not child.is_named), "")
    targets = [child for child in node.children if child.type in WORDS]
    number = "".join(text_of(child) for child in node.children if child.type == "file_descriptor")
    target = None
    if targets:
        first = text_of(targets[0])
        is_stream = operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", first)
        target = None if is_stream else _only(words_of(targets[0]), first)
        found.is_opaque = found.is_opaque or is_opaque(targets[0])
        found.shown.append(f"{number}{operator}{first if target is None else target.canonical}")
    else:
        found.shown.append(f"{number}{operator}")
    found.redirects.append(Redirect(operator=operator, target=target))
    for more in targets[1:]:
        _take(more, found)


def _only(words: Sequence[Word], text: str) -> Word:
    return words[0] if len(words) == 1 else unknown(text)


def words_of(node: "Node") -> tuple[Word, ...]:
    """What a node stands for as words."""
    text = text_of(node)
    if node.type in ("process_substitution", "command_substitution"):
        return (unknown(text, is_inside=node.type == "process_substitution"),)
    return expanded(text)


def is_opaque(node: "Node") -> bool:
    """Whether an expansion in a node can do more than put a value in its place, commands in it left aside."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if here.type in _SHELLS_OF_THEIR_OWN:
            continue
        if here.type == "subscript":
            return True
        if here.type == "expansion" and not _PLAIN_EXPANSION.fullmatch(text_of(here)):
            return True
        if here.type == "arithmetic_expansion" and not is_plain_arithmetic(text_of(here)):
            return True
        waiting += here.children
    return False


def is_plain_arithmetic(text: str) -> bool:
    """Whether nothing but numbers is reckoned with: names can hold what runs commands."""
    return bool(_PLAIN_ARITHMETIC.fullmatch(text))


def judge_pieces(pieces: Pieces, setting: Setting, *, functions: frozenset[str]) -> Finding:
    """What a simple command does, its variables and redirections with it."""
    findings = [_redirected(redirect, setting) for redirect in pieces.redirects]
    if pieces.is_opaque:
        findings.append(other("an expansion in it can run commands"))
    name = pieces.words[0].value if pieces.words else None
    is_declaration = name in ("export", "declare", "typeset", "local", "readonly")
    if not is_declaration:
        lasts = not pieces.words
        findings += [assigned(node, setting, lasts=lasts) for node in pieces.assignments]
    if name in functions:
        findings.append(other(f"{name} is a function of this line"))
    if name == "[[":
        findings.append(_judge_condition(pieces.words))
    elif pieces.words:
        findings.append(judge_words(pieces.words, setting))
    return joined(findings)


def _redirected(redirect: Redirect, setting: Setting) -> Finding:
    if redirect.target is None:
        return READ
    if redirect.operator == "<":
        return reads(redirect.target, setting)
    truncates = redirect.operator not in (">>", "&>>", "<>")
    return writes(redirect.target, setting, truncates=truncates)


def assigned(node: "Node", setting: Setting, *, lasts: bool) -> Finding:
    """What an assignment does; one to an element of an array can run what stands in its brackets."""
    names = [text_of(child) for child in node.children if child.type == "variable_name"]
    values = [child for child in node.children if child.type in WORDS and child.type != "variable_name"]
    if not names or any(child.type == "subscript" for child in node.children):
        return other("an element of an array is set")
    value = literal(text_of(values[0])).value if values else ""
    found = assigns(names[0], value, setting=setting, lasts=lasts)
    opaque = any(is_opaque(child) for child in values)
    return joined((found, other("an expansion in it can run commands"))) if opaque else found


def _judge_condition(words: Sequence[Word]) -> Finding:
    """``[[``: numbers compared there are reckoned, and names can hold what runs commands."""
    for at, word in enumerate(words):
        if word.text in ("-v", "-R"):
            return other("a name that is looked up can run commands")
        if _COMPARES_NUMBERS.fullmatch(word.text):
            sides = (words[at - 1].text, *(after.text for after in words[at + 1 : at + 2]))
            if not all(re.fullmatch(r"-?\d+|\$[#?]|\$\{#\w+\}", side) for side in sides):
                return other("arithmetic can run commands")
    return READ


def all_nodes(root: "Node") -> Iterator["Node"]:
    """Every node, in no order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children
