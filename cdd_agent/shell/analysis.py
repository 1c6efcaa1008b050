"""Judge a command line before it runs: each of its statements separately, the line by its strictest one.

tree-sitter parses the line. A statement is harmless if the table knows all programs in it and their files lie in the
project. Safety does not depend on this: the sandbox limits every command. The class decides which commands need the
user's permission.
"""

import hashlib
import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from cdd_agent.shell import programs
from cdd_agent.untrusted.paths import explain_protection, find_dotted_part, find_private_part, is_secret

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

CommandClass: TypeAlias = Literal["read", "write", "tests", "other"]
"""``read``, ``write`` and ``tests`` stay in the project; nothing is known about ``other``."""
CLASSES: tuple[CommandClass, ...] = get_args(CommandClass)
"""From harmless to strictest."""

MAX_BYTES = 25_000
"""Longer lines are not parsed."""
# On malformed text, tree-sitter's error recovery takes quadratic time or worse in the number of these characters.
_MAX_SPECIAL = 800
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_SPECIAL = re.compile(rb"[|&;()<>{}\[\]`*!$'\"\\#]")
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]\\\n|[ \t\n])*")
"""Blanks, line ends, and line continuations after a blank."""
_WITHOUT_GAPS = frozenset({"string", "concatenation", "heredoc_body", "expansion"})
_MAX_HERE_DOCUMENTS = 20
_MAX_NODES = 15_000
_MAX_FOLDERS = 8
_MAX_DEPTH = 4
"""How deeply programs that run other commands may be nested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The project in which commands would run."""

    root: str
    """Its absolute folder, as commands find it."""
    files: str
    """The real path of the folder with its files."""
    test_command: tuple[str, ...] = ("pytest",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePart:
    """One statement of a line, and its class."""

    text: str
    """The canonical spelling."""
    pattern: str
    """The same with ``<file>`` for each file of the project and ``<number>`` for each number: what an always covers."""
    kind: CommandClass
    why: str
    """Why it is not harmless: a clause, or empty."""
    content: bytes
    """The pattern and folders to which a permission is bound; the whole line, too, if the effect depends on it."""
    start: int
    """The range in the line, in characters; ``end`` is exclusive."""
    end: int


def judge(line: str, project: Project) -> tuple[LinePart, ...]:
    """Return the statements of ``line`` and their classes if ``bash -c`` runs it in the project's folder."""
    source = line.encode("utf-8", "surrogateescape")
    root = _parse(source)
    if root is None:
        return (_make_whole(line, "it is too long to check"),)
    if root.has_error or _CONTROL.search(source) or _has_gaps(root, source):
        return (_make_whole(line, "it cannot be parsed"),)
    bound = "" if all(map(_is_plain, _walk(root))) else hashlib.sha256(source).hexdigest()
    judge = _Judge(project)
    parts = []
    for node in map(judge.narrow, _split(root)):
        text, folders = _get_canonical(node), judge.get_folders()
        pattern = text if bound else judge.generalize(node)
        kind, why = judge.judge_statement(node)
        content = "\0".join((folders, pattern, bound)).encode("utf-8", "surrogateescape")
        start, end = (len(source[:at].decode("utf-8", "surrogateescape")) for at in (node.start_byte, node.end_byte))
        parts.append(LinePart(text=text, pattern=pattern, kind=kind, why=why, content=content, start=start, end=end))
    return tuple(parts)


def _has_gaps(root: "Node", source: bytes) -> bool:
    """Return whether the tree leaves out a part of the text, which bash runs nevertheless."""
    at = 0
    for node in _walk(root):
        if node.child_count and node.type not in _WITHOUT_GAPS:
            continue
        if at <= node.start_byte and not _BETWEEN_WORDS.fullmatch(source[at : node.start_byte]):
            return True
        at = max(at, node.end_byte)
    return not _BETWEEN_WORDS.fullmatch(source[at:])


def _make_whole(line: str, why: str) -> LinePart:
    content = f"\0{line}\0".encode("utf-8", "surrogateescape")
    return LinePart(text=line, pattern=line, kind="other", why=why, content=content, start=0, end=len(line))


def _parse(source: bytes) -> "Node | None":
    """Return the root of the syntax tree; None if the text is too long."""
    if len(source) > MAX_BYTES or source.count(b"<<") > _MAX_HERE_DOCUMENTS:
        return None
    if len(_SPECIAL.findall(source)) > _MAX_SPECIAL:
        return None
    root = _load_parser().parse(source).root_node
    return root if root.descendant_count <= _MAX_NODES else None


@cache
def _load_parser() -> "Parser":
    # Imported here because most replayed runs never need it.
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _split(root: "Node") -> Iterator["Node"]:
    """Yield the statements of a line in order; one question to the user is about one of them."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in ("program", "list"):
            waiting += reversed(node.named_children)
        elif node.type != "comment":
            yield node


def _walk(node: "Node") -> Iterator["Node"]:
    """Yield a node and everything in it, in source order."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        yield here
        waiting += reversed(here.children)


def _get_text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape").strip(" \t\n")


_WORDS = frozenset({"word", "string", "raw_string", "concatenation", "number"})
_EXPANSIONS = """
    ansi_c_string translated_string simple_expansion expansion command_substitution process_substitution
    arithmetic_expansion brace_expression extglob_pattern
"""
_RUN_TIME = frozenset(_EXPANSIONS.split())
"""Types of words whose value is known only at run time."""


def _get_value(word: "Node") -> str | None:
    """Return the argument that a program receives, wildcards unexpanded; None if it is known only at run time."""
    text = _get_text(word)
    if word.type == "process_substitution":  # a pipe, whose other end is judged separately
        return "/dev/stdin"
    if any(node.type in _RUN_TIME for node in _walk(word)):
        return None
    has_braces = any(child.type == "word" and _get_text(child) == "{" for child in word.children)
    try:
        values = shlex.split(text)
    except ValueError:
        return None
    if len(values) != 1 or (has_braces and "{}" not in text):
        return None
    return os.path.expanduser(values[0]) if text.startswith("~") else values[0]


def _get_words(command: "Node") -> list[str | None]:
    name = command.child_by_field_name("name")
    rest = command.children_by_field_name("argument")
    return [_get_value(node) for node in ((name.children[0], *rest) if name is not None and name.children else rest)]


def _get_canonical(statement: "Node") -> str:
    """Return one spelling for all equal simple commands, or the source text."""
    values = _get_literal_words(statement)
    return _get_text(statement) if values is None else shlex.join(values)


def _get_literal_words(statement: "Node") -> list[str] | None:
    is_simple = statement.type == "command" and all(_is_literal(child) for child in statement.children)
    return [value or "" for value in _get_words(statement)] if is_simple else None


def _is_literal(node: "Node") -> bool:
    is_word = node.type in _WORDS or node.type == "command_name"
    return is_word and not any(letter in _get_text(node) for letter in "*?[~{$`")


_PLAIN_NODES = """
    program list pipeline redirected_statement negated_command command command_name file_redirect file_descriptor
    string_content comment
"""
_PLAIN = frozenset(_PLAIN_NODES.split())


def _is_plain(node: "Node") -> bool:
    """Return whether a node has the same effect in every line."""
    if node.type == "command_name":
        return _get_text(node) not in programs.CHANGES_SHELL - {"cd"}
    return not node.is_named or node.type in _PLAIN or node.type in _WORDS


_STRUCTURE = """
    subshell compound_statement if_statement elif_clause else_clause while_statement for_statement do_group
    case_statement case_item variable_assignments variable_name special_variable_name array test_operator
    binary_expression unary_expression postfix_expression parenthesized_expression test_command regex
    declaration_command heredoc_start heredoc_body heredoc_content heredoc_end heredoc_redirect herestring_redirect
"""
_KNOWN = frozenset(_STRUCTURE.split())
_HARMLESS = _PLAIN | _KNOWN | _WORDS | _RUN_TIME | {"variable_assignment", "unset_command", "file_redirect"}
_PLAIN_EXPANSION = re.compile(r"\$\{[#]?\w+([-:+?%#/^,][^@`$\[]*)?\}")
_DELIMITER = re.compile(r"\w+|'\w+'|\"\w+\"")
_PROGRAM = re.compile(r"[\w./+-]+|\[|\[\[|:")
_PLAIN_OPTION = re.compile(r"--?[A-Za-z-]+")
_INTERPRETER = re.compile(r"python(3(\.\d+)?)?|pytest|py\.test")
_SYSTEM_FOLDERS = ("/bin", "/usr/bin")
_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero", "/dev/urandom"})
_WILDCARD = re.compile(r"[*?\[]|\{\}")
_UNCLEAR_FILE = "which file it {} is not clear from its text"

_Effect: TypeAlias = tuple[CommandClass, str]
_READS: _Effect = ("read", "")


def _get_strictest(effects: Iterable[_Effect]) -> _Effect:
    return max(effects, key=lambda effect: CLASSES.index(effect[0]), default=_READS)


@dataclass(slots=True)
class _Judge:
    """Judges the statements of one line, in order."""

    project: Project
    folders: set[str] = field(init=False)
    """The folders in which a command may run: the project's, and each one that an earlier ``cd`` names."""

    def __post_init__(self) -> None:
        self.folders = {self.project.root}

    def get_folders(self) -> str:
        """Return the folders as part of a permission's content."""
        return "|".join(sorted(self.folders)).removeprefix(self.project.root)

    def narrow(self, statement: "Node") -> "Node":
        """Return the first command of a pipeline if only that one is not harmless, else the statement."""
        # Where output goes changes nothing about a command; where its input comes from does.
        if statement.type != "pipeline":
            return statement
        kinds = [self.judge_statement(node)[0] for node in statement.named_children]
        return statement.named_children[0] if kinds[0] == "other" and "other" not in kinds[1:] else statement

    def generalize(self, statement: "Node") -> str:
        """Return the canonical spelling with placeholders, which no quoted word looks like."""
        values = _get_literal_words(statement)
        if not values:
            return _get_canonical(statement)
        return " ".join((shlex.quote(values[0]), *map(self._generalize_word, values[1:])))

    def _generalize_word(self, value: str) -> str:
        if value.isascii() and value.isdigit():
            return "<number>"
        # A word without these may name a task, as in `npm run build`, whatever files there are.
        is_name = value.startswith("-") or not {"/", "."}.intersection(value)
        if is_name or not any(os.path.lexists(self._find_place(path)) for path in self._resolve(value)):
            return shlex.quote(value)
        return (
            "<file>" if self._judge_read(value) == _READS and not self._explain_outside(value) else shlex.quote(value)
        )

    def judge_statement(self, statement: "Node") -> _Effect:
        """Return the class of a statement by everything in it."""
        return _get_strictest(self._judge_node(node) for node in _walk(statement))

    def _judge_node(self, node: "Node") -> _Effect:
        if node.type == "command":
            return self._judge_command(node)
        if node.type == "file_redirect":
            return self._judge_redirect(node)
        why = _explain_construct(node)
        return ("other", why) if why else _READS

    def _judge_command(self, node: "Node") -> _Effect:
        kind, why = self.judge_words(_get_words(node))
        assignments = [child for child in node.children if child.type == "variable_assignment"]
        # The tests and the project's interpreter run the project's code: a variable gives them no more power.
        if kind == "tests":
            return kind, why
        unclear = next(filter(None, map(_explain_assignment, assignments)), "")
        return ("other", unclear) if unclear and kind != "other" else (kind, why)

    def judge_words(self, values: Sequence[str | None], *, depth: int = 0) -> _Effect:
        """Return the class of a simple command; a word that is known only at run time is None."""
        name, *rest = values or [""]
        if name is None or not _PROGRAM.fullmatch(name):
            return ("other", "which program it runs is not clear from its text")
        if self._is_test_run(values):
            return ("tests", "")
        folder, _, base = name.rpartition("/")
        if depth > _MAX_DEPTH or (folder and folder not in _SYSTEM_FOLDERS):
            return ("other", f"{name} is not known to be harmless")
        return self._judge_program(base, rest, depth=depth)

    def _judge_program(self, name: str, rest: list[str | None], *, depth: int) -> _Effect:
        if name == "cd":
            return self._move(rest)
        if name in programs.WRITERS:
            options = [value for value in rest if value is not None and value.startswith("-")]
            # The value of an option may be a path: `--target-directory=/etc`.
            if not all(map(_PLAIN_OPTION.fullmatch, options)):
                return ("other", f"an option of {name} is not known to be harmless")
            return _get_strictest([("write", ""), *(self._judge_write(each) for each in rest if each not in options)])
        reading = programs.look_up(name, rest)
        if reading is None:
            return (
                "other",
                f"{name} is not known to be harmless" + (" with these arguments" * programs.is_known(name)),
            )
        effects = [self._judge_read(value) for value in reading.files]
        if reading.inner:
            kind, why = self.judge_words(reading.inner, depth=depth + 1)
            # Which files it would write is known only at run time.
            effects.append(
                ("other", f"{name} can name any file") if kind == "write" and name in programs.FINDERS else (kind, why)
            )
        if reading.line:
            effects += [(part.kind, part.why) for part in judge(reading.line, self.project)]
        return _get_strictest(effects)

    def _is_test_run(self, values: Sequence[str | None]) -> bool:
        """Return whether a command runs the tests or the project's interpreter."""
        wanted = self.project.test_command
        if tuple(values[: len(wanted)]) == wanted:
            return True
        folder, _, base = (values[0] or "").rpartition("/")
        return _INTERPRETER.fullmatch(base) is not None and not (folder and self._explain_outside(folder))

    def _move(self, rest: Sequence[str | None]) -> _Effect:
        target = rest[0] if len(rest) == 1 else None
        if target is None or target == "-" or len(self.folders) > _MAX_FOLDERS:
            return ("other", "the folder that it changes to is not clear from its text")
        self.folders |= set(self._resolve(target))
        why = self._explain_outside(target)
        return ("other", why) if why else _READS

    def _resolve(self, path: str) -> list[str]:
        """Return the absolute paths that a path may mean."""
        return [posixpath.normpath(posixpath.join(folder, path)) for folder in self.folders]

    def _find_place(self, path: str) -> str:
        """Return where the file of an absolute path is, which need not exist."""
        root = self.project.root
        return self.project.files + path[len(root) :] if _is_below(path, root) else path

    def _explain_outside(self, value: str) -> str:
        """Return why a path may be outside the project, or an empty text."""
        paths = self._resolve(value)
        if not all(_is_below(path, self.project.root) for path in paths):
            return f"{value} is outside the project"
        # The path is not normalized: `link/..` is the parent of the link's target.
        spelled = [posixpath.join(folder, value) for folder in self.folders]
        if not all(_is_below(os.path.realpath(self._find_place(path)), self.project.files) for path in spelled):
            return f"{value} leads out of the project"
        return ""

    def _judge_read(self, value: str | None) -> _Effect:
        if value is None:
            return ("other", _UNCLEAR_FILE.format("reads"))
        if any(part[0] == "." and _WILDCARD.search(part) for part in value.split("/") if part):
            return ("other", f"{value} may match files that hold secrets")
        # The value of an option may be a path, too: `--file=PATH`, `-fPATH`.
        for text in {value, value.partition("=")[2], re.sub(r"^-\w", "", value)} - _DEVICES:
            wildcard = _WILDCARD.search(text)
            path = posixpath.dirname(text[: wildcard.start()]) if wildcard else text
            # Much that looks like a path is a pattern or a date; what does not exist is not read.
            if not path or not any(os.path.lexists(self._find_place(each)) for each in self._resolve(path)):
                continue
            why = self._explain_outside(path)
            if why:
                return ("other", why)
            inside = [each[len(self.project.root) + 1 :] for each in self._resolve(path)]
            if any(is_secret(each) or find_private_part(each) is not None for each in inside if each):
                return ("other", f"the model may not read {path}")
        return _READS

    def _judge_write(self, value: str | None) -> _Effect:
        if value is None:
            return ("other", _UNCLEAR_FILE.format("writes"))
        if value in _DEVICES:
            return _READS
        why = self._explain_outside(value)
        for path in self._resolve(value) if not why else ():
            inside = path[len(self.project.root) + 1 :]
            protection = "is private to git and cdd" if find_private_part(inside) else explain_protection(inside)
            why = why or (f"{value} {protection}" if protection is not None else "")
            dotted = find_dotted_part(inside)
            why = why or (f"{dotted} begins with a dot, as settings of tools do" if dotted is not None else "")
        if any(part[0] == "." and _WILDCARD.search(part) for part in value.split("/") if part):
            why = why or f"{value} may match files that are private to git and cdd"
        return ("other", why) if why else ("write", "")

    def _judge_redirect(self, node: "Node") -> _Effect:
        operator = next((_get_text(child) for child in node.children if not child.is_named), "")
        targets = [child for child in node.named_children if child.type != "file_descriptor"]
        # The parser attaches words behind the target to the redirection; they belong to the command.
        if len(targets) > 1:
            return ("other", "the end of a redirection is not clear")
        if not targets or (operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", _get_text(targets[0]))):
            return _READS
        value = _get_value(targets[0])
        return self._judge_read(value) if operator == "<" else self._judge_write(value)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _explain_construct(node: "Node") -> str:
    """Return why a node that is no command and no redirection is not harmless, or an empty text."""
    why = ""
    match node.type:
        case "variable_assignment" if node.parent is None or node.parent.type != "command":
            why = _explain_assignment(node)
        case "unset_command" | "for_statement":
            names = [_get_text(child) for child in node.named_children if child.type in ("variable_name", "word")]
            why = _explain_names(names[:1] if node.type == "for_statement" else names)
        case "declaration_command" if any(child.type in _WORDS for child in node.named_children):
            why = "an option of a declaration is not known to be harmless"
        case "heredoc_redirect" if not _is_clear_heredoc(node):
            why = "the end of a here-document is not clear"
        case "expansion" if not _PLAIN_EXPANSION.fullmatch(_get_text(node)):
            why = "an expansion in it can run commands"
        case "arithmetic_expansion" if "[" in _get_text(node):
            why = "an expansion in it can run commands"
        case kind if node.is_named and kind not in _HARMLESS:
            why = "its effect is not clear from its text"
    return why


def _explain_assignment(node: "Node") -> str:
    names = [_get_text(child) for child in node.children if child.type == "variable_name"]
    return _explain_names(names) if names else "it sets an element of an array"


def _explain_names(names: Sequence[str]) -> str:
    unknown = [name for name in names if not programs.is_harmless_name(name)]
    return f"{unknown[0]} can change the behavior of programs" if unknown else ""


def _is_clear_heredoc(node: "Node") -> bool:
    """Return whether bash sees the end of a here-document where the parser does."""
    starts = [_get_text(child) for child in node.children if child.type == "heredoc_start"]
    has_arguments = any(child.type in _WORDS for child in node.children)
    # The parser does not read backticks in the text, which bash runs.
    has_commands = "`" in _get_text(node) and starts[:1] != [] and starts[0][0] not in "'\""
    is_known = len(starts) == 1 and _DELIMITER.fullmatch(starts[0]) is not None
    return is_known and not has_arguments and not has_commands
