"""Judge a command line before it runs: each simple command separately, the line by its strictest part.

tree-sitter parses the line. Where bash might read the same text differently, the line has the class ``other``, as have
unknown programs. Safety does not depend on this: the sandbox limits every command. The class decides which commands
need the user's permission.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from cdd_agent.shell.programs import find_folders_after, is_path_source
from cdd_agent.shell.simple_command import (
    WORD_TYPES,
    SimpleCommand,
    get_text,
    is_plain_arithmetic,
    iter_nodes,
    judge_parts,
    split_command,
)
from cdd_agent.shell.words import READ, CommandClass, CommandContext, Effect, Folders, Project, other_effect
from cdd_agent.shell.wrappers import judge_variable

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 25_000
"""Longer lines are not parsed."""
_MAX_HERE_DOCUMENTS = 20
# On malformed text, tree-sitter's error recovery takes quadratic time or worse in the number of these characters.
_MAX_SPECIAL = 800
_SPECIAL = re.compile(rb"[|&;()<>{}\[\]`*!$'\"\\#]")
_MAX_DEPTH = 60
_MAX_NODES = 15_000
_MAX_COMMANDS = 1_000
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]\\\n|[ \t\n])*")
"""Blanks, line ends, and line continuations after a blank."""
_DELIMITER = re.compile(rb"\w+|'\w+'|\"\w+\"")
_DESCRIPTOR = re.compile(rb"\d+|\{[A-Za-z_]\w*\}")
_REST_OF_LINE = re.compile(rb"[^'\"\\`$()\n]*\n")
_ARITHMETIC = (b"((", b"[[", b"$[", b"let")


def parse_line(source: bytes) -> "Node | None":
    """Return the root of the syntax tree; None if the text is too long or nested too deeply."""
    if len(source) > MAX_BYTES or source.count(b"<<") > _MAX_HERE_DOCUMENTS:
        return None
    if len(_SPECIAL.findall(source)) > _MAX_SPECIAL:
        return None
    root = _load_parser().parse(source).root_node
    waiting = [(root, 0)]
    nodes = commands = 0
    while waiting:
        node, depth = waiting.pop()
        nodes, commands = nodes + 1, commands + (node.type == "command")
        if depth > _MAX_DEPTH or nodes > _MAX_NODES or commands > _MAX_COMMANDS:
            return None
        # A chain of `&&` nests, but is followed without recursion.
        waiting += [(child, depth + (child.type != "list")) for child in node.children]
    return root


@cache
def _load_parser() -> "Parser":
    # Imported here because most replayed runs never need it.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def find_doubts(root: "Node", source: bytes) -> Iterator[str]:
    """Yield the reasons why bash may read the text differently from the tree."""
    if root.has_error:
        yield "it cannot be parsed"
    if any(byte < 32 and byte not in (9, 10) for byte in source) or 127 in source:
        yield "it contains control characters"
    if b"$[" in source:
        yield "it contains obsolete arithmetic syntax"
    at = 0
    for leaf in _iter_leaves(root):
        if not _BETWEEN_WORDS.fullmatch(source[at : leaf.start_byte]):
            yield "the text between its words is not clear"
            return
        at = max(at, leaf.end_byte)
        text, before = source[leaf.start_byte : leaf.end_byte], source[max(leaf.start_byte - 1, 0) : leaf.start_byte]
        is_separate = before in (b"", *_SEPARATORS)
        if leaf.type == "comment" and not is_separate:
            yield "the start of a comment is not clear"
        # In `a1>f`, the 1 belongs to the word before it.
        if leaf.type == "file_descriptor" and not (is_separate and _DESCRIPTOR.fullmatch(text)):
            yield "the start of a redirection is not clear"
        if leaf.type == "heredoc_start" and not _is_plain_heredoc(leaf, source):
            yield "the end of a here-document is not clear"
    if not _BETWEEN_WORDS.fullmatch(source[at:]):
        yield "the text behind its words is not clear"


_SEPARATORS = tuple(bytes([byte]) for byte in b" \t\n;&|()")


def _iter_leaves(root: "Node") -> Iterator["Node"]:
    """Yield the innermost nodes in source order; a quoted or composed word is one leaf."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.child_count == 0 or node.type in ("string", "concatenation", "heredoc_body", "expansion"):
            yield node
        else:
            waiting += reversed(node.children)


def _is_plain_heredoc(start: "Node", source: bytes) -> bool:
    holder = start.parent
    delimiter = source[start.start_byte : start.end_byte]
    if holder is None or not _DELIMITER.fullmatch(delimiter) or any(mark in source for mark in _ARITHMETIC):
        return False
    rest = _REST_OF_LINE.match(source, start.end_byte)
    ends = [child for child in holder.children if child.type == "heredoc_end"]
    if rest is None or len(ends) != 1 or b"<<" in rest[0]:
        return False
    strips_tabs = any(child.type == "<<-" for child in holder.children)
    at = rest.end()
    for line in source[at:].splitlines(keepends=True):
        content = line.lstrip(b"\t") if strips_tabs else line
        if content.rstrip(b"\n") == delimiter.strip(b"'\""):
            return ends[0].start_byte == at + len(line) - len(content)
        at += len(line)
    return False


_MAX_FOLDERS = 8
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command", "variable_assignment"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_STRUCTURE = """
    program list pipeline command_name redirected_statement heredoc_start heredoc_body heredoc_content heredoc_end
    subshell compound_statement if_statement elif_clause else_clause while_statement for_statement c_style_for_statement
    do_group case_statement case_item function_definition negated_command variable_assignments variable_name
    special_variable_name comment string_content array file_descriptor binary_expression unary_expression
    postfix_expression parenthesized_expression test_operator ERROR
"""
_KNOWN_TYPES = frozenset(_STRUCTURE.split()) | _COMMANDS | _REDIRECTS | WORD_TYPES
_SUBSHELLS = frozenset({"subshell", "command_substitution", "process_substitution"})
_LOOPS = frozenset({"while_statement", "for_statement", "c_style_for_statement"})
_MAY_NOT_RUN = _LOOPS | {"if_statement", "elif_clause", "case_statement", "function_definition", "negated_command"}
_BRACES = frozenset("{}")
_RESERVED = frozenset(
    {"!", "if", "then", "elif", "else", "fi", "do", "done", "while", "until", "for", "case", "esac", "select", "in"}
)


class FoldersAfter(NamedTuple):
    """The folders in which the shell may be after a command."""

    success: Folders
    """If the command succeeded."""
    any_result: Folders


class TreeWalk:
    """Walks a syntax tree in source order and judges its commands in the folders where they may run."""

    def __init__(self, root: "Node", project: Project) -> None:
        """Prepare a walk from ``root``."""
        self._root = root
        self._project = project
        self._functions = frozenset(filter(None, map(_get_function_name, iter_nodes(root))))
        self._feeds_paths = False
        self.commands: list[SimpleCommand] = []
        self.doubts: list[str] = []
        """Why the line as a whole is not known to be harmless."""
        self.taints = bool(self._functions)
        """Whether a command may change the meaning of later commands."""

    def run(self, folders: Folders) -> FoldersAfter:
        """Judge all commands of a line that starts in one of ``folders``."""
        return self._visit(self._root, folders, is_bound=False)

    def _visit(self, node: "Node", folders: Folders, *, is_bound: bool) -> FoldersAfter:
        """Visit a node; ``is_bound``: its effect depends on the text around it."""
        if node.type not in _KNOWN_TYPES:
            self.doubts.append(f"it contains unsupported syntax: {node.type}")
        if node.type == "list":
            return self._visit_chain(node, folders, is_bound=is_bound)
        if node.type == "pipeline":
            return self._visit_pipeline(node, folders, is_bound=is_bound)
        if node.type in _COMMANDS or node.type in _REDIRECTS:
            return self._visit_command([node], folders, is_bound=is_bound)
        if node.type == "redirected_statement":
            redirects = [child for child in node.children if child.type in _REDIRECTS]
            bodies = [child for child in node.children if child.is_named and child.type not in _REDIRECTS]
            return self._visit_with_redirects(bodies, redirects, folders=folders, is_bound=is_bound)
        if node.type in _SUBSHELLS:
            self._visit_sequence(node.children, folders, is_bound=is_bound)
            return FoldersAfter(folders, folders)
        after = self._visit_compound(node, folders, is_bound=is_bound)
        return FoldersAfter(after.any_result, after.any_result) if node.type in _MAY_NOT_RUN else after

    def _visit_compound(self, node: "Node", folders: Folders, *, is_bound: bool) -> FoldersAfter:
        text = get_text(node)
        context = CommandContext(project=self._project, folders=folders)
        if node.type == "function_definition":
            self._add_construct(node, other_effect("it redefines a command"), folders=None)
            is_bound, folders = True, None
        elif node.type == "for_statement":
            names = [get_text(child) for child in node.children if child.type == "variable_name"]
            effect = judge_variable(names[0], None, context=context, lasts=True) if names else other_effect()
            if effect != READ:
                self._add_construct(node, effect, folders=folders)
        elif node.type == "c_style_for_statement" or (text.startswith("((") and not is_plain_arithmetic(text)):
            self._add_construct(node, other_effect("arithmetic can run commands"), folders=folders)
            self.doubts.append("arithmetic can run commands")
        elif node.type == "heredoc_body" and _may_run_commands(node):
            self.doubts.append("its here-document runs commands")
        count, after = len(self.commands), self._visit_sequence(node.children, folders, is_bound=is_bound)
        if node.type not in _LOOPS or after.any_result == folders:
            return after
        # The next iteration starts in the folder where the previous one ended.
        del self.commands[count:]
        return self._visit_sequence(node.children, None, is_bound=is_bound)

    def _visit_sequence(self, nodes: Sequence["Node"], folders: Folders, *, is_bound: bool) -> FoldersAfter:
        after = FoldersAfter(folders, folders)
        for node in nodes:
            if node.is_named:
                after = self._visit(node, after.any_result, is_bound=is_bound)
        return after

    def _visit_chain(
        self, node: "Node", folders: Folders, *, is_bound: bool, redirects: Sequence["Node"] = ()
    ) -> FoldersAfter:
        """Visit commands joined by ``&&`` and ``||``; redirections behind them belong to the last one."""
        links: list[tuple[str, Node]] = []
        first = node
        while first.type == "list" and first.child_count:
            operator = next((child.type for child in first.children if not child.is_named), "")
            links += [(operator, child) for child in reversed(first.children[1:]) if child.is_named]
            first = first.children[0]
        after = self._visit(first, folders, is_bound=is_bound)
        for number, (operator, command) in enumerate(reversed(links), start=1):
            start = after.success if operator == "&&" else after.any_result
            if redirects and number == len(links):
                then = self._visit_with_redirects([command], redirects, folders=start, is_bound=is_bound)
            else:
                then = self._visit(command, start, is_bound=is_bound)
            success = then.success if operator == "&&" else _merge_folders(after.success, then.success)
            after = FoldersAfter(success, _merge_folders(after.any_result, then.any_result))
        return after

    def _visit_pipeline(self, node: "Node", folders: Folders, *, is_bound: bool) -> FoldersAfter:
        self._feeds_paths, is_first = False, True
        for child in node.children:
            if not child.is_named:
                continue
            count, fed = len(self.commands), self._feeds_paths
            self._visit(child, folders, is_bound=is_bound or not is_first)
            is_single = child.type == "command" and len(self.commands) == count + 1 and self.commands[-1].effect == READ
            self._feeds_paths = is_single and is_path_source(split_command([child]).words, is_fed=fed)
            is_first = False
        self._feeds_paths = False
        return FoldersAfter(folders, folders)

    def _visit_with_redirects(
        self, bodies: Sequence["Node"], redirects: Sequence["Node"], *, folders: Folders, is_bound: bool
    ) -> FoldersAfter:
        if all(body.type in _COMMANDS for body in bodies):
            return self._visit_command([*bodies, *redirects], folders, is_bound=is_bound)
        if len(bodies) == 1 and bodies[0].type == "list":
            return self._visit_chain(bodies[0], folders, is_bound=is_bound, redirects=redirects)
        after = self._visit_sequence(bodies, folders, is_bound=True)
        self._visit_command(redirects, _merge_folders(folders, after.any_result), is_bound=True)
        return after

    def _visit_command(self, nodes: Sequence["Node"], folders: Folders, *, is_bound: bool) -> FoldersAfter:
        parts = split_command(nodes)
        is_fed, self._feeds_paths = self._feeds_paths, False
        context = CommandContext(project=self._project, folders=folders, feeds_paths=is_fed)
        effect = judge_parts(parts, context, functions=self._functions)
        self.taints = self.taints or effect.taints
        first = parts.words[0].text if parts.words else ""
        if first in _RESERVED or any(word.text in _BRACES for word in parts.words):
            self.doubts.append("the parser takes syntax for a word")
        is_known = all(word.value is not None for word in parts.words) and "$" not in "".join(map(get_text, nodes))
        self.commands.append(
            SimpleCommand(
                text=" ".join(parts.shown),
                effect=effect,
                folders=folders,
                is_exact=not is_bound and is_known and folders is not None and len(folders) == 1,
                start=min(node.start_byte for node in nodes),
                end=max(node.end_byte for node in nodes),
            )
        )
        for node in nodes:
            self._visit_inner(node, folders)
        if effect.moves:
            success = find_folders_after(parts.words, context)
            return FoldersAfter(success, _merge_folders(folders, success))
        return FoldersAfter(folders, folders)

    def _visit_inner(self, node: "Node", folders: Folders) -> None:
        # Words, assignments and redirections may contain commands.
        for child in node.children:
            if child.type in _REDIRECTS or child.type == "variable_assignment":
                self._visit_inner(child, folders)
            elif child.is_named:
                self._visit(child, folders, is_bound=True)

    def _add_construct(self, node: "Node", effect: Effect, *, folders: Folders) -> None:
        # A permission for a construct holds only for its own line: is_exact is false.
        self.taints = True
        text, start, end = get_text(node), node.start_byte, node.end_byte
        command = SimpleCommand(text=text, effect=effect, folders=folders, is_exact=False, start=start, end=end)
        self.commands.append(command)


def _merge_folders(first: Folders, second: Folders) -> Folders:
    if first is None or second is None or len(first | second) > _MAX_FOLDERS:
        return None
    return first | second


def _get_function_name(node: "Node") -> str | None:
    if node.type != "function_definition":
        return None
    return next((get_text(child) for child in node.children if child.type == "word"), None)


def _may_run_commands(heredoc: "Node") -> bool:
    siblings = heredoc.parent.children if heredoc.parent is not None else []
    is_quoted = any(child.type == "heredoc_start" and get_text(child)[:1] in ("'", '"') for child in siblings)
    return not is_quoted and re.search(r"`|\$\(|\$\{", get_text(heredoc)) is not None


_MAX_LINE_DEPTH = 4
"""How deeply ``bash -c`` may be nested."""
_TOO_LONG = Effect(kind="other", why="it is too long to check", loses="its effects are not known")
_BREAKS = re.compile(r"[;&|(){}`\n]+|(?:^|(?<=\s))(?:!|if|then|elif|else|do|while|until)(?=\s)")
_MAX_FRAGMENTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePart:
    """One simple command of a line, and its effect."""

    text: str
    """The canonical spelling."""
    effect: Effect
    content: bytes
    """The text and folder to which a permission is bound, and the whole line if they do not determine the effect."""
    start: int
    """The range in the line, in characters; ``end`` is exclusive."""
    end: int

    @property
    def kind(self) -> CommandClass:
        """The class of its effect."""
        return self.effect.kind


def judge(line: str, project: Project) -> tuple[LinePart, ...]:
    """Return the parts of ``line`` and their effects if ``bash -c`` runs it in the project's folder."""
    whole = hashlib.sha256(line.encode("utf-8", "surrogateescape")).hexdigest()
    return tuple(_LineJudge(project, whole).judge(line, frozenset({project.root}), depth=0))


@dataclass(frozen=True, slots=True)
class _LineJudge:
    project: Project
    whole: str
    """The sha256 of the outermost line."""

    def judge(self, line: str, folders: Folders, *, depth: int) -> Iterator[LinePart]:
        """Yield the parts of a line and of the lines that it runs."""
        source = line.encode("utf-8", "surrogateescape")
        root = parse_line(source) if depth <= _MAX_LINE_DEPTH else None
        if root is None:
            yield self._make_whole(line, _TOO_LONG)
            return
        walk = TreeWalk(root, self.project)
        walk.run(folders)
        doubts = [*walk.doubts, *find_doubts(root, source)]
        for command in walk.commands:
            part = self._make_part(command, source, is_bound=walk.taints or bool(doubts) or not command.is_exact)
            yield part
            for inner in command.effect.lines:
                for within in self.judge(inner, command.folders, depth=depth + 1):
                    yield replace(within, start=part.start, end=part.end)
        if doubts:
            yield self._make_whole(line, other_effect(doubts[0]))
            yield from self._judge_fragments(line, depth=depth)

    def _judge_fragments(self, line: str, *, depth: int) -> Iterator[LinePart]:
        """Yield what the pieces of a doubtful line would lose or change outside the project."""
        pieces = [piece for piece in _BREAKS.split(line) if piece.strip()]
        if len(pieces) > _MAX_FRAGMENTS:
            yield self._make_whole(line, _TOO_LONG)
        elif pieces != [line]:
            for piece in pieces:
                for part in self.judge(piece, None, depth=depth + 1):
                    if part.effect.loses or part.kind == "outside":
                        yield replace(part, start=0, end=len(line))

    def _make_part(self, command: SimpleCommand, source: bytes, *, is_bound: bool) -> LinePart:
        folder = "" if command.folders is None else "|".join(sorted(command.folders)).removeprefix(self.project.root)
        content = "\0".join((folder, command.text, self.whole if is_bound else ""))
        start, end = (len(source[:at].decode("utf-8", "surrogateescape")) for at in (command.start, command.end))
        return LinePart(
            text=command.text,
            effect=command.effect,
            content=content.encode("utf-8", "surrogateescape"),
            start=start,
            end=end,
        )

    def _make_whole(self, line: str, effect: Effect) -> LinePart:
        content = f"\0{line}\0{self.whole}".encode("utf-8", "surrogateescape")
        return LinePart(text=line, effect=effect, content=content, start=0, end=len(line))
