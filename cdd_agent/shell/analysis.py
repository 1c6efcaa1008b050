"""One way through a syntax tree, in the order of its text: the simple commands, and the folders they may run in.

The syntax tree of a command line, and where it may not be what bash makes of the same text.

A command line judged: each simple command in it by itself, the whole by its strictest part.

What does not parse, has a variable in place of a program's name, or is not known, is of the class ``other``. No safety
rests on this: whatever a command does, it does in the sandbox. It decides what a person is asked about.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from cdd_agent.shell.programs import feeds_paths, folders_after
from cdd_agent.shell.simple_command import (
    WORDS,
    Simple,
    all_nodes,
    is_plain_arithmetic,
    judge_pieces,
    take_apart,
    text_of,
)
from cdd_agent.shell.words import READ, CommandClass, Finding, Folders, Ground, Setting, joined, other
from cdd_agent.shell.wrappers import assigns

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


_MOST_FOLDERS = 8
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command", "variable_assignment"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_STRUCTURE = frozenset(
    [
        "program",
        "list",
        "pipeline",
        "command_name",
        "redirected_statement",
        "heredoc_start",
        "heredoc_body",
        "heredoc_content",
        "heredoc_end",
        "subshell",
        "compound_statement",
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "do_group",
        "case_statement",
        "case_item",
        "function_definition",
        "negated_command",
        "variable_assignments",
        "variable_name",
        "special_variable_name",
        "comment",
        "string_content",
        "array",
        "file_descriptor",
        "binary_expression",
        "unary_expression",
        "postfix_expression",
        "parenthesized_expression",
        "test_operator",
        "ERROR",
    ]
)
_KNOWN = _STRUCTURE | _COMMANDS | _REDIRECTS | WORDS
_SHELLS_OF_THEIR_OWN = frozenset({"subshell", "command_substitution", "process_substitution"})
"""What leaves the folder as it is."""
_MAY_NOT_RUN = frozenset(
    [
        "if_statement",
        "elif_clause",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_statement",
        "function_definition",
    ]
)
_LOOPS = frozenset({"while_statement", "for_statement", "c_style_for_statement"})
_BRACES = frozenset("{}")
_RESERVED = frozenset(
    {"!", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "for", "case", "esac", "select", "in"}
)


class After(NamedTuple):
    """The folders that the shell may be in after a command."""

    well: Folders
    """If it has gone well."""
    anyhow: Folders


class Walk:
    """One way through a tree."""

    def __init__(self, root: "Node", ground: Ground) -> None:
        """Nothing is judged yet."""
        self._root = root
        self._ground = ground
        self._functions = frozenset(filter(None, map(_function_name, all_nodes(root))))
        self._feeds = False
        self.found: list[Simple] = []
        self.doubts: list[str] = []
        """Why the whole line is not known to be harmless."""
        self.taints = bool(self._functions)
        """Whether some command may change what those after it mean."""

    def run(self, folders: Folders) -> After:
        """Find everything, beginning in one of ``folders``."""
        return self._statement(self._root, folders, is_bound=False)

    def _statement(self, node: "Node", folders: Folders, *, is_bound: bool) -> After:
        """A node that is, or holds, commands; ``is_bound``: what they do depends on what stands around them."""
        if node.type not in _KNOWN:
            self.doubts.append(f"it holds what nobody has thought of: {node.type}")
        if node.type == "list":
            return self._chain(node, folders, is_bound=is_bound)
        if node.type == "pipeline":
            return self._pipeline(node, folders, is_bound=is_bound)
        if node.type in _COMMANDS or node.type in _REDIRECTS:
            return self._simple([node], folders, is_bound=is_bound)
        if node.type == "redirected_statement":
            return self._redirected(node, folders, is_bound=is_bound)
        if node.type in _SHELLS_OF_THEIR_OWN:
            self._sequence(node.children, folders, is_bound=is_bound)
            return After(folders, folders)
        after = self._compound(node, folders, is_bound=is_bound)
        return After(after.anyhow, after.anyhow) if node.type in (*_MAY_NOT_RUN, "negated_command") else after

    def _compound(self, node: "Node", folders: Folders, *, is_bound: bool) -> After:
        """A loop, a condition, a function, a group, or a word that may hold commands."""
        text = text_of(node)
        setting = Setting(ground=self._ground, folders=folders)
        if node.type == "function_definition":
            self._add(node, other("it gives commands another name"), folders=None)
            is_bound, folders = True, None
        elif node.type == "for_statement":
            names = [text_of(child) for child in node.children if child.type == "variable_name"]
            finding = assigns(names[0], None, setting=setting, lasts=True) if names else other()
            if finding != READ:
                self._add(node, finding, folders=folders)
        elif node.type == "c_style_for_statement" or (text.startswith("((") and not is_plain_arithmetic(text)):
            self._add(node, other("arithmetic can run commands"), folders=folders)
            self.doubts.append("arithmetic can run commands")
        elif node.type == "heredoc_body" and _is_expanded(node):
            self.doubts.append("its here-document runs commands")
        count, after = len(self.found), self._sequence(node.children, folders, is_bound=is_bound)
        if node.type not in _LOOPS or after.anyhow == folders:
            return after
        del self.found[count:]  # it runs again, from where it has gone to
        return self._sequence(node.children, None, is_bound=is_bound)

    def _sequence(self, nodes: Sequence["Node"], folders: Folders, *, is_bound: bool) -> After:
        """One after the other, whether they go well or not."""
        after = After(folders, folders)
        for node in nodes:
            if node.is_named:
                after = self._statement(node, after.anyhow, is_bound=is_bound)
        return after

    def _chain(self, node: "Node", folders: Folders, *, is_bound: bool, redirects: Sequence["Node"] = ()) -> After:
        """Commands joined by ``&&`` and ``||``, however many; redirections behind them are the last one's."""
        links: list[tuple[str, Node]] = []
        first = node
        while first.type == "list" and first.child_count:
            operator = next((child.type for child in first.children if not child.is_named), "")
            links += [(operator, child) for child in reversed(first.children[1:]) if child.is_named]
            first = first.children[0]
        after = self._statement(first, folders, is_bound=is_bound)
        for number, (operator, command) in enumerate(reversed(links), start=1):
            begins = after.well if operator == "&&" else after.anyhow
            if redirects and number == len(links):
                then = self._together([command], redirects, folders=begins, is_bound=is_bound)
            else:
                then = self._statement(command, begins, is_bound=is_bound)
            well = then.well if operator == "&&" else _either(after.well, then.well)
            after = After(well, _either(after.anyhow, then.anyhow))
        return after

    def _pipeline(self, node: "Node", folders: Folders, *, is_bound: bool) -> After:
        """Commands of which each reads what the one before prints."""
        self._feeds, is_first = False, True
        for child in node.children:
            if not child.is_named:
                continue
            count, fed = len(self.found), self._feeds
            self._statement(child, folders, is_bound=is_bound or not is_first)
            is_single = child.type == "command" and len(self.found) == count + 1 and self.found[-1].finding == READ
            self._feeds = is_single and feeds_paths(take_apart([child]).words, is_fed=fed)
            is_first = False
        self._feeds = False
        return After(folders, folders)

    def _redirected(self, node: "Node", folders: Folders, *, is_bound: bool) -> After:
        """A statement and where its input comes from and its output goes."""
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        bodies = [child for child in node.children if child.is_named and child.type not in _REDIRECTS]
        return self._together(bodies, redirects, folders=folders, is_bound=is_bound)

    def _together(
        self, bodies: Sequence["Node"], redirects: Sequence["Node"], *, folders: Folders, is_bound: bool
    ) -> After:
        """Redirections are part of a simple command; beside anything else they stand by themselves."""
        if all(body.type in _COMMANDS for body in bodies):
            return self._simple([*bodies, *redirects], folders, is_bound=is_bound)
        if len(bodies) == 1 and bodies[0].type == "list":
            return self._chain(bodies[0], folders, is_bound=is_bound, redirects=redirects)
        after = self._sequence(bodies, folders, is_bound=True)
        self._simple(redirects, _either(folders, after.anyhow), is_bound=True)
        return after

    def _simple(self, nodes: Sequence["Node"], folders: Folders, *, is_bound: bool) -> After:
        """A simple command, and the commands in its words."""
        pieces = take_apart(nodes)
        fed, self._feeds = self._feeds, False
        setting = Setting(ground=self._ground, folders=folders, feeds_paths=fed)
        finding = judge_pieces(pieces, setting, functions=self._functions)
        self.taints = self.taints or finding.taints
        first = pieces.words[0].text if pieces.words else ""
        if first in _RESERVED or any(word.text in _BRACES for word in pieces.words):
            self.doubts.append("the parser takes for a word what may be none")
        is_exact = not is_bound and all(word.value is not None for word in pieces.words)
        raw = "".join(map(text_of, nodes))
        self.found.append(
            Simple(
                text=" ".join(pieces.shown),
                finding=finding,
                folders=folders,
                is_exact=is_exact and folders is not None and len(folders) == 1 and "$" not in raw,
                start=min(node.start_byte for node in nodes),
                end=max(node.end_byte for node in nodes),
            )
        )
        for node in nodes:
            self._inside(node, folders)
        if finding.moves:
            well = folders_after(pieces.words, setting)
            return After(well, _either(folders, well))
        return After(folders, folders)

    def _inside(self, node: "Node", folders: Folders) -> None:
        """The commands in the words, variables and redirections of a simple command."""
        for child in node.children:
            if child.type in _REDIRECTS or child.type == "variable_assignment":
                self._inside(child, folders)
            elif child.is_named:
                self._statement(child, folders, is_bound=True)

    def _add(self, node: "Node", finding: Finding, *, folders: Folders) -> None:
        """What is no simple command, and does something all the same; it holds for its own line only."""
        self.taints = True
        text = text_of(node)
        self.found.append(
            Simple(
                text=text,
                finding=finding,
                folders=folders,
                is_exact=False,
                start=node.start_byte,
                end=node.end_byte,
            )
        )


def _either(first: Folders, second: Folders) -> Folders:
    """One of two sets of folders, whichever; any folder if there are too many."""
    if first is None or second is None or len(first | second) > _MOST_FOLDERS:
        return None
    return first | second


def _function_name(node: "Node") -> str | None:
    """The name that a definition gives."""
    if node.type != "function_definition":
        return None
    return next((text_of(child) for child in node.children if child.type == "word"), None)


def _is_expanded(body: "Node") -> bool:
    """Whether bash looks for commands in a here-document, and may find some."""
    siblings = body.parent.children if body.parent is not None else []
    quoted = any(child.type == "heredoc_start" and text_of(child)[:1] in ("'", '"') for child in siblings)
    return not quoted and re.search(r"`|\$\(|\$\{", text_of(body)) is not None


_DEEPEST_LINE = 4
"""Lines within lines: ``bash -c`` in ``bash -c``."""
_TOO_LONG = Finding(kind="other", why="it is longer than is looked through", loses="what it would change is not known")
_BREAKS = re.compile(r"[;&|(){}`\n]+|(?:^|(?<=\s))(?:!|if|then|elif|else|do|while|until)(?=\s)")
_MOST_FRAGMENTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One simple command of a line, and what is known about it."""

    text: str
    """In the spelling that all ways to write it have in common."""
    finding: Finding
    content: bytes
    """What a yes to it holds for: its text and folder, and, where these do not say all, the whole line."""
    start: int
    """Where it stands in the line, in characters; ``end`` is one behind."""
    end: int

    @property
    def kind(self) -> CommandClass:
        """Its class."""
        return self.finding.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """What is known about a line before it runs."""

    line: str
    parts: tuple[Part, ...]

    @property
    def kind(self) -> CommandClass:
        """The class of its strictest part."""
        return joined(part.finding for part in self.parts).kind

    @property
    def loses(self) -> str:
        """What would be lost, as a clause; empty: nothing that is known."""
        return joined(part.finding for part in self.parts).loses


def judge(line: str, ground: Ground) -> Judgment:
    """What ``line`` would do, run by ``bash -c`` in the project's folder."""
    first = frozenset({ground.root})
    whole = hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()
    return Judgment(line=line, parts=tuple(_parts(line, ground, folders=first, outermost=whole, depth=0)))


def _parts(line: str, ground: Ground, *, folders: Folders, outermost: str, depth: int) -> Iterator[Part]:
    """The parts of a line that begins in one of ``folders``, and those of the lines that it runs in its turn."""
    source = line.encode("utf-8", "surrogateescape")
    root = parsed(source) if depth <= _DEEPEST_LINE else None
    if root is None:
        yield _whole(line, _TOO_LONG, outermost=outermost)
        return
    walk = Walk(root, ground)
    walk.run(folders)
    unclear = [*walk.doubts, *doubts(root, source)]
    for simple in walk.found:
        bound = walk.taints or bool(unclear) or not simple.is_exact
        part = _part(simple, source, ground=ground, outermost=outermost if bound else "")
        yield part
        for inner in simple.finding.lines:
            for within in _parts(inner, ground, folders=simple.folders, outermost=outermost, depth=depth + 1):
                yield replace(within, start=part.start, end=part.end)
    if unclear:
        yield _whole(line, other(unclear[0]), outermost=outermost)
        yield from _fragments(line, ground, outermost=outermost, depth=depth)


def _fragments(line: str, ground: Ground, *, outermost: str, depth: int) -> Iterator[Part]:
    """What a line that is not understood may do to work or outside, each of its pieces taken for a line."""
    pieces = [piece for piece in _BREAKS.split(line) if piece.strip()]
    if len(pieces) > _MOST_FRAGMENTS:
        yield _whole(line, _TOO_LONG, outermost=outermost)
    elif pieces != [line]:
        for piece in pieces:
            for part in _parts(piece, ground, folders=None, outermost=outermost, depth=depth + 1):
                if part.finding.loses or part.kind == "outside":
                    yield replace(part, start=0, end=len(line))


def _part(simple: Simple, source: bytes, *, ground: Ground, outermost: str) -> Part:
    """A simple command as a part of its line; ``outermost``, if any, is the sha256 of what a yes holds for besides."""
    folder = "" if simple.folders is None else "|".join(sorted(simple.folders)).removeprefix(ground.root)
    return Part(
        text=simple.text,
        finding=simple.finding,
        content="\0".join((folder, simple.text, outermost)).encode("utf-8", "surrogateescape"),
        start=_characters(source, simple.start),
        end=_characters(source, simple.end),
    )


def _characters(source: bytes, at: int) -> int:
    """A place in bytes as one in characters."""
    return at if source.isascii() else len(source[:at].decode("utf-8", "surrogateescape"))


def _whole(line: str, finding: Finding, *, outermost: str) -> Part:
    """A line that is not taken apart."""
    content = f"\0{line}\0{outermost}".encode("utf-8", "surrogateescape")
    return Part(text=line, finding=finding, content=content, start=0, end=len(line))
