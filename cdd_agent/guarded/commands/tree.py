"""The syntax tree of a command line, and where it may not be what bash makes of the same text."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST_BYTES = 25_000
"""Of a line; what is longer is not looked through."""
_MOST_HERE_DOCUMENTS = 20
_MOST_MARKS = 800
"""In a line; the time of a parser that looks for its way in a text without sense grows with their square, or worse."""
_MARKS = re.compile(rb"[|&;()<>{}\[\]`*!$'\"\\#]")
_DEEPEST = 60
_MOST_NODES = 15_000
_MOST_COMMANDS = 1_000

_CONTINUED = re.compile(rb"(?:[ \t]\\\n|[ \t\n])*")
"""What stands between two words: blanks, line ends, and lines that are continued after a blank."""
_DELIMITER = re.compile(rb"\w+|'\w+'|\"\w+\"")
_DESCRIPTOR = re.compile(rb"\d+|\{[A-Za-z_]\w*\}")
_REST_OF_LINE = re.compile(rb"[^'\"\\`$()\n]*\n")
_ARITHMETIC = (b"((", b"[[", b"$[", b"let")


def parsed(source: bytes) -> "Node | None":
    """The root of the tree; None if the text is longer or more deeply nested than anything that is looked through."""
    if len(source) > MOST_BYTES or source.count(b"<<") > _MOST_HERE_DOCUMENTS:
        return None
    if len(_MARKS.findall(source)) > _MOST_MARKS:
        return None
    root = _parser().parse(source).root_node
    return root if _is_small(root) else None


@cache
def _parser() -> "Parser":
    """Made when the first command comes; replaying without one never loads it."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _is_small(root: "Node") -> bool:
    """Whether it holds no more, and is no deeper, than is gone through; a chain of ``&&`` does not count as deep."""
    waiting = [(root, 0)]
    nodes = commands = 0
    while waiting:
        node, depth = waiting.pop()
        nodes, commands = nodes + 1, commands + (node.type == "command")
        if depth > _DEEPEST or nodes > _MOST_NODES or commands > _MOST_COMMANDS:
            return False
        waiting += [(child, depth + (child.type != "list")) for child in node.children]
    return True


def doubts(root: "Node", source: bytes) -> Iterator[str]:
    """Why the tree may not be what bash makes of the text."""
    if root.has_error:
        yield "it cannot be parsed"
    if any(byte < 32 and byte not in (9, 10) for byte in source) or 127 in source:
        yield "it holds control characters"
    if b"$[" in source:
        yield "it holds arithmetic of an old kind"
    at = 0
    for leaf in leaves(root):
        gap = source[at : leaf.start_byte]
        if not _CONTINUED.fullmatch(gap):
            yield "between its words stands what is none"
            return
        at = max(at, leaf.end_byte)
        if leaf.type == "comment" and source[leaf.start_byte - 1 : leaf.start_byte] not in (b"", *_BEFORE_COMMENT):
            yield "where a comment begins is not clear"
        if leaf.type == "file_descriptor" and not _is_descriptor(leaf, source):
            yield "where a redirection begins is not clear"
        if leaf.type == "heredoc_start" and not _is_plain(leaf, source):
            yield "where a here-document ends is not clear"
    if not _CONTINUED.fullmatch(source[at:]):
        yield "behind its words stands what is none"


_BEFORE_COMMENT = tuple(bytes([byte]) for byte in b" \t\n;&|()")


def _is_descriptor(leaf: "Node", source: bytes) -> bool:
    """Whether a number before a redirection stands by itself; what stands before it makes a word of both."""
    before = source[leaf.start_byte - 1 : leaf.start_byte] if leaf.start_byte else b""
    return (
        before in (b"", *_BEFORE_COMMENT) and _DESCRIPTOR.fullmatch(source[leaf.start_byte : leaf.end_byte]) is not None
    )


def leaves(root: "Node") -> Iterator["Node"]:
    """The nodes that hold no others, in the order of the text; a word that holds some is one."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.child_count == 0 or node.type in ("string", "concatenation", "heredoc_body", "expansion"):
            yield node
        else:
            waiting += reversed(node.children)


def _is_plain(start: "Node", source: bytes) -> bool:
    """Whether a here-document begins and ends where anybody would say that it does."""
    holder = start.parent
    delimiter = source[start.start_byte : start.end_byte]
    if holder is None or not _DELIMITER.fullmatch(delimiter) or any(mark in source for mark in _ARITHMETIC):
        return False
    rest = _REST_OF_LINE.match(source, start.end_byte)
    ends = [child for child in holder.children if child.type == "heredoc_end"]
    if rest is None or len(ends) != 1 or b"<<" in rest[0]:
        return False
    strips = any(child.type == "<<-" for child in holder.children)
    at = rest.end()
    for line in source[at:].splitlines(keepends=True):
        told = line.lstrip(b"\t") if strips else line
        if told.rstrip(b"\n") == delimiter.strip(b"'\""):
            return ends[0].start_byte == at + len(line) - len(told)
        at += len(line)
    return False
