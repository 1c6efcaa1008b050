"""One way through a syntax tree, in the order of its text: the simple commands, and the folders they may run in."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cdd_agent.guarded.commands.classes import READ, Finding, other
from cdd_agent.guarded.commands.paths import Folders, Ground, Setting
from cdd_agent.guarded.commands.programs.known import feeds_paths, folders_after
from cdd_agent.guarded.commands.programs.wrappers import assigns
from cdd_agent.guarded.commands.simple import (
    WORDS,
    Simple,
    all_nodes,
    is_plain_arithmetic,
    judge_pieces,
    take_apart,
    text_of,
)

if TYPE_CHECKING:
    from tree_sitter import Node

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
