"""The slash commands and the words of the Executor: names, arguments, help texts, and how a line is parsed.

What each command does is in ``actions``. Completion needs the tables alone, before anything else is loaded.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from cdd_agent.errors import UsageError, suggest
from cdd_agent.untrusted.text import clean

if TYPE_CHECKING:
    from cdd_agent.config.own_commands import OwnCommand


class SlashCommand(NamedTuple):
    """One slash command."""

    name: str
    argument: str
    """As help shows it; empty for none."""
    help: str


COMMANDS = (
    SlashCommand("spec", "[SLUG]", "Socrates asks questions until the ticket's spec is complete; words make a ticket"),
    SlashCommand("plan", "[SLUG]", "the Planner writes a plan from the complete spec"),
    SlashCommand("exec", "[SLUG]", "the Executor carries out the plan, test first"),
    SlashCommand("review", "[SLUG]", "see what completed steps changed, and approve them"),
    SlashCommand("comment", "FILE:LINE TEXT", "comment on a line; list, reply ID TEXT, edit ID TEXT, resolve ID"),
    SlashCommand("fork", "[DIRECTION]", "try a step in another way; list, switch, compare, merge, drop"),
    SlashCommand("green", "TEST...", "write the code for tests that already fail"),
    SlashCommand("tdd", "[WORD ...]", "run TEXT, resume, status, history, rollback COMMIT, repair-notes"),
    SlashCommand(
        "graph",
        "WORD FILE",
        "draft TEXT: draft a planning graph; from PACKAGE or PLAN; check FILE; show FILE: as a tree or a picture",
    ),
    SlashCommand("generate", "GRAPH --out DIR", "generate a tested repository from a planning graph, node by node"),
    SlashCommand("audit", "[RANGE]", "check the claims of handoff notes by running the tests again"),
    SlashCommand("tree", "[SLUG]", "show where the run of a ticket works; ! opens a shell there"),
    SlashCommand("diff", "[STEP]", "show what the run has changed and not landed yet, or what a step has changed"),
    SlashCommand("undo", "", "take the last step back: its commits and exactly their files, after a preview"),
    SlashCommand("redo", "", "bring back the step that was undone last"),
    SlashCommand("checkpoint", "[NAME]", "save your files as they are; list, diff ID, restore ID, undo, redo, prune"),
    SlashCommand("rewind", "[ID]", "choose a checkpoint: its files come back, and the conversation is cut there"),
    SlashCommand(
        "config", "[NAME [VALUE]]", "show the settings that begin with NAME, or change one: /config diffs off"
    ),
    SlashCommand("permissions", "[remove N]", "list what you have allowed or declined here, or take one back"),
    SlashCommand("back", "", "return to the previous agent and its conversation"),
    SlashCommand("new", "SLUG [TITLE]", "create a ticket"),
    SlashCommand("status", "[SLUG]", "show all tickets, or the progress of one"),
    SlashCommand("report", "[SLUG]", "tell what happened in a ticket; --html FILE writes a page"),
    SlashCommand("cost", "", "show the tokens and dollars of this session and of the ticket"),
    SlashCommand("model", "[MODEL]", "show the model and its prices, or use another model"),
    SlashCommand("compact", "", "replace the conversation by a summary"),
    SlashCommand("clear", "", "start a new conversation with the same agent"),
    SlashCommand("resume", "[SESSION]", "continue the last session, or the one named"),
    SlashCommand("doctor", "", "check everything a run needs, and test the sandbox"),
    SlashCommand("help", "", "show this list"),
    SlashCommand("exit", "", "leave; everything is already saved"),
)


def describe_own_commands(own: Mapping[str, "OwnCommand"]) -> tuple[SlashCommand, ...]:
    """Return the commands of the user and the project that do not have a name of cdd's."""
    taken = {command.name for command in COMMANDS}
    return tuple(
        SlashCommand(name, "[WORDS]", clean(command.description)) for name, command in own.items() if name not in taken
    )


_SHORT_FORMS = {"set": "config"}

RUN_AS_IN_SHELL = ("fork", "green", "tdd", "graph", "generate", "audit", "status", "report", "doctor")
"""The commands that are the same as those of the command line, with all options."""

IN_SHELL = frozenset({*RUN_AS_IN_SHELL, "spec", "plan", "exec", "review", "comment", "checkpoint", "new"})
"""The commands that the command line has too."""
_WORDS_BEFORE = {"comment": ("add", "list|add|reply|edit|resolve"), "checkpoint": ("create", "list|diff|restore|.*do")}
"""Command -> the word that only the command line needs before the argument, and the other words."""

TDD_WORDS = {
    "run": "TEXT: build the feature that TEXT describes",
    "resume": "continue with the next phase; WORDS: guidance for the model",
    "status": "show the progress of the run",
    "history": "list the phases of the run, newest first",
    "rollback": "COMMIT: go back to COMMIT; --undo reverts the last rollback",
    "repair-notes": "check the handoff notes; --apply repairs them",
}
"""The words after ``/tdd`` -> their help texts."""

FORK_WORDS = {
    "start": "SLUG [STEP] DIRECTION: try a step in another way",
    "list": "show the forks as a tree",
    "switch": "NAME: carry the plan out in this fork; main: in your own branch",
    "compare": "A [B]: show two forks side by side",
    "diff": "the same as compare",
    "merge": "NAME: merge a fork into your branch",
    "drop": "NAME: remove a fork; its work stays under a ref",
}
"""The words after ``/fork`` -> their help texts; other words are a direction."""

GRAPH_WORDS = {
    "draft": "TEXT, FILE or SLUG: the Architect drafts a graph; --out FILE",
    "from": "PACKAGE, PLAN or TASKS: make a graph of a package, a plan.md or a tasks.json; --out FILE",
    "check": "FILE: say what is wrong with a planning graph",
    "show": "FILE: show it as a tree; --mermaid, --html PAGE",
}
"""The words after ``/graph`` -> their help texts."""

EXECUTOR_WORDS = {
    "continue": ("c", "next", "n", ""),
    "retry": ("r", "again"),
    "skip": ("s",),
    "done": ("d",),
    "split": (),
    "commit": (),
    "keep": ("k",),
    "leave": ("l",),
    "status": ("st",),
    "exit": ("quit", "q"),
}
"""The words of the Executor -> their short forms."""

TAKE_A_STEP = frozenset({"retry", "skip", "done", "split"})
"""The words that the number of a step may follow."""


def parse_command(line: str, own: Iterable[SlashCommand] = ()) -> tuple[SlashCommand, str]:
    """Return the command and the argument of a line that starts with a slash. ``own`` are commands besides cdd's.

    An unambiguous beginning of a name is enough. Raises ``UsageError`` with the nearest names.
    """
    name, _, argument = line[1:].strip().partition(" ")
    name = _SHORT_FORMS.get(name, name)
    by_name = {command.name: command for command in (*own, *COMMANDS)}
    matches = [known for known in by_name if name and known.startswith(name)]
    if name in by_name or len(matches) == 1:
        return by_name[name if name in by_name else matches[0]], argument.strip()
    near = " or /".join(matches) or suggest(name, by_name)
    question = f"did you mean /{near}? " if near else ""
    raise UsageError(f"Unknown command /{name}.", hint=f"{question}/help lists the commands")


_DESCRIPTION = re.compile(
    r"(tdd\s+run|graph\s+draft)\s+((?:--\S+\s+)*)(.*?)((?:\s+--(?:allow-dirty|in-place|out[\s=]\S+))*)", re.DOTALL
)
"""A command, options, the description of a feature or a library, which needs no quotes, and options."""


def split_words(line: str) -> list[str]:
    """Return the words of a command as a shell passes them on.

    >>> split_words("tdd run the user's cart --allow-dirty")
    ['tdd', 'run', '--allow-dirty', "the user's cart"]
    >>> split_words("graph draft the user's cart --out g.json")
    ['graph', 'draft', '--out', 'g.json', "the user's cart"]
    """
    if described := _DESCRIPTION.fullmatch(line):
        command, before, text, behind = described.groups()
        return [*command.split(), *before.split(), *behind.split(), text]
    try:
        return shlex.split(line)
    except ValueError as error:
        hint = "quote names with spaces: /green 'tests/a b.py'"
        raise UsageError(f"Cannot parse the line: {error}.", hint=hint) from error


def as_prompt_command(hint: str) -> str:
    """Return ``hint`` with shell commands as they are typed at the prompt. Those with options it does not have stay.

    A comma or a semicolon ends a command.

    >>> as_prompt_command("draft it again: cdd plan csv-export")
    'draft it again: /plan csv-export'
    >>> as_prompt_command("decide again: cdd --sandbox none trust")
    'decide again: /permissions'
    """
    hint = hint.replace("cdd --resume ", "/resume ")
    hint = re.sub(r"decide again: cdd\b(?: --sandbox \w+)? trust$", "decide again: /permissions", hint)
    names = "|".join(command.name for command in COMMANDS)
    return re.sub(rf"\bcdd (?=(?:{'|'.join(RUN_AS_IN_SHELL)})\b|(?:{names})\b(?![^,;]* --))", "/", hint)


def refuse_shell_command(words: str, slugs: Collection[str]) -> None:
    """Raise ``UsageError`` if the user typed a command for the shell at the prompt, which would go to the model.

    Words about a command are for the model: its name ends the line, or a ticket or an option follows.

    >>> refuse_shell_command("cdd exec should be faster", {"csv-export"})
    """
    name, *rest = words.split()[1:] or [""]
    is_command = words.startswith("cdd ") and (name in IN_SHELL or name.startswith("--"))
    if is_command and (not rest or rest[0] in slugs or any(word.startswith("--") for word in rest)):
        here = as_prompt_command(words)
        hint = f"type: {here if here != words else f'!{words}'}"
        raise UsageError(f"{words!r} is a command for the shell.", hint=hint)


def as_shell_command(hint: str) -> str:
    """Return ``hint`` with slash commands as they are typed in a shell; it says of others that the prompt has them.

    >>> as_shell_command("create one: /new csv-export"), as_shell_command("see tests/new")
    ('create one: cdd new csv-export', 'see tests/new')
    >>> as_shell_command("/comment a.py:3 Why?"), as_shell_command("/comment list shows them")
    ('cdd comment add a.py:3 Why?', 'cdd comment list shows them')
    >>> as_shell_command("/undo takes it back")
    '/undo takes it back (at the prompt of cdd)'
    """
    names = "|".join(command.name for command in COMMANDS)
    is_elsewhere = False

    def convert(match: re.Match[str]) -> str:
        nonlocal is_elsewhere
        name, rest = match["name"], match["rest"]
        if name == "resume":
            return f"cdd --resume{rest}"
        if name not in IN_SHELL:
            is_elsewhere = True
            return match[0]
        word, known = _WORDS_BEFORE.get(name, ("", ""))
        needs_word = word and rest and not re.match(rf" (?:{known})\b", f"{rest}{hint[match.end() :]}")
        return f"cdd {name}{f' {word}' if needs_word else ''}{rest}"

    converted = re.sub(rf"(?<![\w/.~-])/(?P<name>{names})\b(?![\w/.-])(?P<rest> ?)", convert, hint)
    return f"{converted} (at the prompt of cdd)" if is_elsewhere else converted


def match_executor_word(line: str) -> str | None:
    """Return the word of ``EXECUTOR_WORDS`` that a line means, or None.

    >>> match_executor_word("N"), match_executor_word("what?")
    ('continue', None)
    """
    typed = line.strip().lower()
    return next((word for word, others in EXECUTOR_WORDS.items() if typed == word or typed in others), None)


_STEP = re.compile(r"(?:step\s+)?#?(\d{1,9})\b\s*", re.IGNORECASE)
_MOST_WORDS = 2
"""A line of more words that begins with a word of the Executor without an argument is guidance."""


class ExecutorLine(NamedTuple):
    """A line that was typed to the Executor."""

    word: str
    """One of ``EXECUTOR_WORDS``; empty if the line is guidance for the model."""
    number: int | None = None
    """The step that it names."""
    text: str = ""
    """A message for ``commit``; guidance for ``retry`` and alone; what else the Planner gets for ``split``."""


def parse_executor_line(line: str) -> ExecutorLine:
    """Return what a line means to the Executor. Raises ``UsageError`` for a line that is neither.

    >>> parse_executor_line("r 2 use the csv module")
    ExecutorLine(word='retry', number=2, text='use the csv module')
    """
    first, _, rest = line.strip().partition(" ")
    word, rest = match_executor_word(first), rest.strip()
    if word == "commit" or (word is not None and not rest):
        return ExecutorLine(word, text=rest)
    named = _STEP.match(rest)
    is_sentence = word == "split" and named is None and " " in rest  # "split the parser in two" is guidance
    if word in TAKE_A_STEP and not is_sentence:
        text = rest[named.end() :] if named else rest
        takes_words = word in ("retry", "split") and (named is not None or " " in text)
        if text and not takes_words:
            raise UsageError(f"{rest!r} is not the number of a step.", hint=f"for example: {word} 2")
        return ExecutorLine(word, number=int(named[1]) if named else None, text=text)
    if len(line.split()) > (_MOST_WORDS if word is not None else 1):
        return ExecutorLine("", text=line.strip())
    question = suggest(first.lower(), EXECUTOR_WORDS, text="did you mean {}? ")
    words_known = "continue (or Enter), retry, skip, done, split, commit, keep, leave, status, exit"
    raise UsageError(
        f"Unknown input {line.strip()!r} for the Executor.",
        hint=f"{question}Type one of: {words_known}; or a sentence for the model, or a question",
    )


def is_guidance(line: str) -> bool:
    """Return whether a line that was typed while the Executor works is for the model."""
    return _is_for_model(line) and find_command_within(line) is None


def _is_for_model(line: str) -> bool:
    if line.startswith(("/", "!")):
        return False
    try:
        return not parse_executor_line(line).word
    except UsageError:
        return False


_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"")
_COMMAND_WITHIN = re.compile(r"(?<![\w/.~:@*-])/([a-z-]+)(?![\w/.*-])")
_JOINED = re.compile(r"\s*(\w+)\s*\d*[\s;,&|]*(/[a-z-]+)(?![\w/.*-])")


def find_command_within(line: str) -> str | None:
    """Return the command with a slash that a line contains behind other words, and the rest of the line; or None.

    Commands in quotes are words for the model. So are paths.

    >>> find_command_within("q/fork merge x"), find_command_within("use tabs /undo")
    ('/fork merge x', '/undo')
    >>> find_command_within('add the route "/status"'), find_command_within("see tests/new and /new/page")
    (None, None)
    """
    if line.startswith("/"):
        return None
    bare = _QUOTED.sub(lambda found: "x" * len(found[0]), line)
    names = {command.name for command in COMMANDS}
    joined = _JOINED.match(bare)
    if joined is not None and (joined[2][1:] in names or _is_executor_word_before_command(*joined.groups())):
        return line[joined.start(2) :].strip()
    found = next((each for each in _COMMAND_WITHIN.finditer(bare) if each[1] in names), None)
    return line[found.start() :].strip() if found is not None else None


def _is_executor_word_before_command(word: str, command: str) -> bool:
    try:
        parse_command(command)
    except UsageError:
        return False
    return match_executor_word(word) is not None


def is_question(line: str) -> bool:
    """Return whether a line asks something: it ends with a question mark and is not a command of the Executor.

    >>> is_question("why did it fail?"), is_question("retry 2 or not?")
    (True, False)
    """
    return line.rstrip().endswith(("?", "\N{FULLWIDTH QUESTION MARK}")) and _is_for_model(line)


def list_help(own: Iterable[SlashCommand] = ()) -> tuple[tuple[str, str], ...]:
    """Return the lines of /help: what to type, and what it does."""
    return (
        *((f"/{command.name} {command.argument}".rstrip(), command.help) for command in (*COMMANDS, *own)),
        ("", ""),
        ("words", "without an agent: a question about the project, or a change that you want"),
        ("in /spec", "a number or your own words; later skips the question, Enter shows it again"),
        ("@path", "in a message: give the agent that file"),
        ("! COMMAND", "run a command in your own shell, in the project"),
        ("!", "open a shell in the run tree; exit returns"),
        ("in /plan", "say what the plan should do differently"),
        ("in /exec", "Enter or continue runs a step; retry N, skip N, done N, status, exit"),
        ("", "a sentence tells the model what to do, while it works or at its next attempt"),
        ("", "commit, keep or leave changes that you made by hand"),
        ("", "a question, with its question mark, is answered and runs nothing; so in /review"),
        ("in /review", "approve, next, previous, diff [FILE], the number of a step, exit"),
        ("", "change this: WORDS runs the step again with your words; fork: WORDS does it in another way"),
        ("", ""),
        ("Ctrl-C", "stops the current command; the session continues. While cdd works, Esc does the same"),
        ("Ctrl-D", "leaves, like /exit"),
    )
