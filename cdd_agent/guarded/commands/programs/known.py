"""One simple command: which program it is, under which name soever, and what that does with its words. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdd_agent.guarded.commands.classes import READ, Finding, joined, other
from cdd_agent.guarded.commands.paths import Folders, Setting, writes
from cdd_agent.guarded.commands.programs.git_subcommands import judge_git
from cdd_agent.guarded.commands.programs.readers import READERS, SPECIAL_READERS, Judge, judge_reader
from cdd_agent.guarded.commands.programs.testers import TESTERS
from cdd_agent.guarded.commands.programs.wrappers import (
    WRAPPERS,
    assigns,
    judge_env,
    judge_eval,
    judge_find,
    judge_foreign_shell,
    judge_shell,
    judge_wrapper,
    judge_xargs,
)
from cdd_agent.guarded.commands.programs.writers import WRITERS
from cdd_agent.guarded.commands.words import Word, of_value

_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
_OF_ENVIRONMENT = re.compile(r"(?:\./)?(?:\.venv|venv|env)/bin/(python[\d.]*|pytest|py\.test)")
_SHELLS = frozenset({"bash", "sh", "dash"})
_FOREIGN_SHELLS = frozenset({"zsh", "ksh", "mksh", "ash", "rbash", "fish"})
_WRAPPERS_OF_THEIR_OWN = {"env": judge_env, "xargs": judge_xargs, "find": judge_find}
_DEEPEST = 20
"""Wrappers in one another."""


def judge_words(words: Sequence[Word], setting: Setting) -> Finding:
    """What a command does, its name first. What is not known is of the class ``other``."""
    if len(words) > _DEEPEST and _nesting(words) > _DEEPEST:
        return other()
    name = _name_of(words[0])
    if name is None:
        rest = next((words[at:] for at, word in enumerate(words) if word.value is not None), ())
        untold = other("which program runs cannot be told from its text")
        return joined((untold, judge_words(rest, setting))) if rest and _name_of(rest[0]) else untold
    if name in READERS:
        return judge_reader(words, setting, name=name)
    if name in WRAPPERS:
        return judge_wrapper(words, setting, name=name, inner=judge_words)
    if name in _WRAPPERS_OF_THEIR_OWN:
        return _WRAPPERS_OF_THEIR_OWN[name](words, setting, inner=judge_words)
    if name == "command":
        return _judge_command(words, setting)
    if name in _JUDGES:
        return _JUDGES[name](words, setting)
    return other(f"{words[0].value} is not known to be harmless")


def _nesting(words: Sequence[Word]) -> int:
    """How many of the words name a program that runs another, at most so deep they are nested."""
    wraps = (*WRAPPERS, *_WRAPPERS_OF_THEIR_OWN, "command", "jobs")
    return sum(_name_of(word) in wraps for word in words)


def _name_of(word: Word) -> str | None:
    """The program that a word names; None if that is known only when it runs, or it is not one of the system's."""
    value = word.value
    if not word.is_exact or not value:
        return None
    folder, slash, name = value.rpartition("/")
    if not slash or folder in _SYSTEM_FOLDERS:
        return "mkfs" if name.startswith("mkfs.") else name
    found = _OF_ENVIRONMENT.fullmatch(value)
    return found[1] if found else value


def folders_after(words: Sequence[Word], setting: Setting) -> Folders:
    """The folders in which the shell may be when a command that moves it has gone well."""
    target = _target(words)
    if words[0].value != "cd" or target is None:
        return None
    places = setting.places(target)
    return None if places is None else frozenset(places)


def _target(words: Sequence[Word]) -> str | None:
    """Where cd goes; None if that cannot be told."""
    targets = [word for word in words[1:] if word.value not in ("-P", "-L", "--")]
    value = targets[0].value if len(targets) == 1 and targets[0].is_exact else None
    return None if value is None or value.startswith("-") else value


def _judge_cd(words: Sequence[Word], setting: Setting) -> Finding:
    """cd and its like: harmless within the project."""
    target = _target(words)
    if target is None and words[0].value != "popd":
        return replace(other("which folder it goes to cannot be told from its text"), moves=True)
    if target is not None and (setting.is_outside(target) or setting.is_led_out(target)):
        return replace(other(f"{target} is not known to lie in the project"), moves=True)
    return replace(READ, moves=True)


def _judge_command(words: Sequence[Word], setting: Setting) -> Finding:
    """``command``: passes over functions, or says what a name is."""
    at = 2 if len(words) > 1 and words[1].value in ("-p", "--") else 1
    if len(words) > 1 and words[1].value in ("-v", "-V"):
        return READ
    if at >= len(words) or (words[at].value or "-").startswith("-"):
        return other()
    return judge_words(words[at:], setting)


def _judge_jobs(words: Sequence[Word], setting: Setting) -> Finding:
    """jobs, which runs a command with ``-x``."""
    if all(re.fullmatch(r"-[lnprs]+|%\S+", word.value or "") for word in words[1:]):
        return READ
    return joined((other("it can run a command"), judge_words(words[2:], setting) if words[2:] else READ))


_UNARY = re.compile(r"-[abcdefghknoprstuwxzGLNOS]")
_BINARY = re.compile(r"=|==|!=|<|>|-(?:eq|ne|gt|ge|lt|le|nt|ot|ef)")


def _judge_test(words: Sequence[Word], setting: Setting) -> Finding:
    """test: ``-v`` evaluates what it is given, and nobody knows what a word that is not known will ask."""
    values = [word.value if word.is_exact else None for word in words[1:]]
    if words[0].value == "[" and values[-1:] == ["]"]:
        values.pop()
    if values[:1] == ["!"]:
        values.pop(0)
    match values:
        case [] | [_]:
            return READ
        case [str(operator), _] if _UNARY.fullmatch(operator):
            return READ
        case [_, str(operator), _] if _BINARY.fullmatch(operator):
            return READ
    return READ if None not in values and "-v" not in values and "-R" not in values else other()


def _judge_printf(words: Sequence[Word], setting: Setting) -> Finding:
    """printf, which sets a variable with ``-v``."""
    first = words[1].value if len(words) > 1 else ""
    return READ if first is not None and (first == "--" or not first.startswith("-")) else other()


def _judge_read(words: Sequence[Word], setting: Setting) -> Finding:
    """read, mapfile and unset: harmless for variables of the shell's own."""
    names = [word.value for word in words[1:]]
    if any(name is None or not re.fullmatch(r"-[rsa]+|-[dntu].*|\d+|[a-z_][a-z0-9_]*|", name) for name in names):
        return replace(other("it sets variables that programs may obey"), taints=True)
    return READ


def _judge_set(words: Sequence[Word], setting: Setting) -> Finding:
    """set: the options that make a script stop, or tell what it does."""
    rest = [word.value or "" for word in words[1:]]
    known = all(re.fullmatch(r"[-+][euxf]*o?|pipefail|errexit|nounset|xtrace", value) for value in rest)
    return READ if known and rest else replace(other(), taints=True)


def _judge_export(words: Sequence[Word], setting: Setting) -> Finding:
    """export and its like, where the parser takes them for any other command."""
    findings = []
    for word in words[1:]:
        name, equals, value = (word.value or "").partition("=")
        known = word.value is not None and not name.startswith("-")
        findings.append(assigns(name, value if equals else None, setting=setting, lasts=True) if known else other())
    return replace(joined(findings), taints=True)


def _judge_trap(words: Sequence[Word], setting: Setting) -> Finding:
    """trap: what it keeps for later is judged as if it ran now."""
    scripts = [word.value for word in words[1:2] if word.is_exact and word.value not in (None, "-", "--")]
    return replace(other("it runs something later"), lines=tuple(filter(None, scripts)), moves=True, taints=True)


def _judge_changing(words: Sequence[Word], setting: Setting) -> Finding:
    """What makes the words after it mean something else, or reads commands from a file."""
    return replace(other("it can change what the commands after it mean"), moves=True, taints=True)


def _judge_unpacker(words: Sequence[Word], setting: Setting) -> Finding:
    """Programs that put files in place: where they are told to write outside, or over a file, they do."""
    name = (words[0].value or "").rpartition("/")[2]
    told, is_file = _PUTS[name]
    there: list[Word] = []
    for at, word in enumerate(words):
        found = told.fullmatch(word.value or "")
        if found is not None:
            there += [of_value(found["glued"])] if found["glued"] else words[at + 1 : at + 2]
    put = joined(writes(word, setting, truncates=is_file) for word in there)
    return joined((other(f"{words[0].value} is not known to be harmless"), put))


_PUTS: Mapping[str, tuple[re.Pattern[str], bool]] = {
    "tar": (re.compile(r"(?:-C|--directory=?)(?P<glued>.*)"), False),
    "unzip": (re.compile(r"-d(?P<glued>.*)"), False),
    "7z": (re.compile(r"-o(?P<glued>.+)"), False),
    "cpio": (re.compile(r"(?:-D|--directory=?)(?P<glued>.*)"), False),
    "curl": (re.compile(r"(?:-[fgikLsSv]*o|--output=?)(?P<glued>.*)"), True),
    "wget": (re.compile(r"(?:-[cqv]*[oO]|--output-(?:document|file)=?)(?P<glued>.*)"), True),
}
"""Name -> what says where it puts things, glued to its value or before it, and whether that is one file."""


_JUDGES: Mapping[str, Judge] = {
    **SPECIAL_READERS,
    **WRITERS,
    **TESTERS,
    "git": judge_git,
    **dict.fromkeys(_SHELLS, judge_shell),
    **dict.fromkeys(_FOREIGN_SHELLS, judge_foreign_shell),
    "eval": judge_eval,
    **dict.fromkeys(("cd", "pushd", "popd"), _judge_cd),
    **dict.fromkeys(("test", "["), _judge_test),
    "printf": _judge_printf,
    "jobs": _judge_jobs,
    **dict.fromkeys(("read", "mapfile", "readarray", "unset"), _judge_read),
    "set": _judge_set,
    **dict.fromkeys(("export", "declare", "typeset", "local", "readonly"), _judge_export),
    "trap": _judge_trap,
    **dict.fromkeys(("source", ".", "alias", "unalias", "shopt", "enable", "hash", "umask", "let"), _judge_changing),
    **dict.fromkeys(_PUTS, _judge_unpacker),
}


def feeds_paths(words: Sequence[Word], *, is_fed: bool) -> bool:
    """Whether a command prints nothing but paths in the project, given that it only reads.

    ``is_fed``: the one before it in the pipe does.
    """
    values = [word.value or "" for word in words]
    match values:
        case ["find", *rest]:
            return not any(value.startswith(("-printf", "-print0f", "-ls")) for value in rest)
        case ["git", "ls-files", *rest]:
            return not any(
                value.startswith(("--format", "-s", "--stage", "-t", "-v", "--debug", "-e")) for value in rest
            )
        case ["grep" | "rg", *rest]:
            letters = "".join(value for value in rest if value.startswith("-") and not value.startswith("--"))
            long = [value for value in rest if value.startswith("--") and not value.startswith("--include")]
            if ("l" in letters or "--files-with-matches" in long or "--files" in long) and not set(letters) & set(
                "0Zc"
            ):
                return set(long) <= {"--files-with-matches", "--files"}
            return is_fed and values[0] == "grep" and set(letters) <= set("-vEFi") and not long
        case ["sort" | "head" | "tail" | "uniq", *rest]:
            return is_fed and not any(value.startswith(("-c", "--count")) for value in rest)
    return False
