"""The effect of programs that run another command, such as env, xargs, find, sudo and bash.

The inner command is judged as if it stood alone; some of these programs make its effect worse.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cdd_agent.shell.words import (
    READ,
    CommandContext,
    Effect,
    Word,
    combine,
    judge_read,
    judge_write,
    make_unknown_word,
    make_word,
    other_effect,
)

Inner: TypeAlias = Callable[[Sequence[Word], CommandContext], Effect]
"""Judges the inner command."""

_HARMLESS_NAMES = """
    LANG LANGUAGE TZ COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR TERM CI PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED
    PYTHONHASHSEED PYTHONUTF8 PYTHONFAULTHANDLER PYTHONTRACEMALLOC
"""
_SHELL_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_NETWORK_NAMES = re.compile(r"\w*_proxy")


def judge_variable(name: str, value: str | None, *, context: CommandContext, lasts: bool) -> Effect:
    """Return the effect of setting a variable; unless it ``lasts``, it is set for one command only."""
    if name in _HARMLESS_NAMES.split() or name.startswith("LC_"):
        return READ
    if name == "PYTHONPATH" and value and not any(context.is_outside(entry) for entry in value.split(":")):
        return READ
    if lasts and _SHELL_VARIABLE.fullmatch(name) and not _NETWORK_NAMES.fullmatch(name):
        return READ
    return replace(other_effect(f"{name} can change the behavior of programs"), taints=lasts)


def judge_wrapper(words: Sequence[Word], context: CommandContext, *, name: str, inner: Inner) -> Effect:
    """Return the effect of one of ``WRAPPERS``."""

    def judge_inner(rest: Sequence[Word]) -> Effect:
        return inner(rest, context) if rest else other_effect()

    options, minimum = WRAPPERS[name]
    at = 1
    while at < len(words):
        value = words[at].value
        if value is None:
            return combine((other_effect(), judge_inner(words[at + 1 :])))
        if value == "--":
            at += 1
            break
        match = options.fullmatch(value)
        if match is None or not value.startswith(("-", "+")):
            break
        if match.lastgroup == "takes":
            if at + 1 < len(words) and not words[at + 1].is_single:
                minimum = other_effect(f"an option of {name} is not clear from its text")
            at += 1
        at += 1
    rest = words[at:]
    if name in ("timeout", "chroot") and rest:
        rest = rest[1:]
    if rest and (rest[0].value or "").startswith("-"):
        arguments = [word for word in rest if not (word.value or "-").startswith("-")]
        return combine((other_effect(f"an option of {name} is not known"), judge_inner(arguments)))
    return combine((minimum, judge_inner(rest)))


def judge_env(words: Sequence[Word], context: CommandContext, *, inner: Inner) -> Effect:
    """Return the effect of env, which sets variables and runs a command or prints the environment."""
    effects: list[Effect] = []
    rest = iter(range(1, len(words)))
    for at in rest:
        value = words[at].value
        if value in ("-i", "-", "--ignore-environment", "-0", "--null"):
            continue
        if value in ("-u", "--unset"):
            after = next(rest, None)
            if after is not None and after < len(words) and not words[after].is_single:
                effects.append(other_effect("an option of env is not clear from its text"))
        elif value is not None and (split := _SPLITS.fullmatch(value)):
            texts = [split[1], *(word.value or word.text for word in words[at + 1 :])]
            effects.append(
                replace(other_effect("env splits a text into arguments"), lines=(" ".join(filter(None, texts)),))
            )
            break
        elif value is not None and (moved := _CHDIR.fullmatch(value)):
            after = None if moved[1] else next(rest, None)
            folder = (
                make_word(moved[1]) if moved[1] else words[after] if after is not None else make_unknown_word(value)
            )
            effects += [other_effect("env changes the folder"), judge_read(folder, context)]
            context = context.move_to(folder)
        elif value is not None and value.startswith("-"):
            effects.append(other_effect("an option of env is not known to be harmless"))
        elif value is not None and (assignment := _ASSIGNMENT.fullmatch(value)):
            effects.append(judge_variable(assignment[1], assignment[2], context=context, lasts=False))
        else:
            effects.append(inner(words[at:], context))
            break
    return combine(effects)


_SPLITS = re.compile(r"(?:-[iv0]*S|--split-string=?)(.*)", re.DOTALL)
_CHDIR = re.compile(r"(?:-C|--chdir=?)(.*)", re.DOTALL)
_XARGS = re.compile(
    r"-[0rtx]+|--(?:null|no-run-if-empty)|-[nPLIds].+|(?P<takes>-[nPLIds])|--(?:max-args|max-procs|delimiter)=.+"
    r"|(?P<unusual>-[aE].+|-[eil].*|-[op]|--(?:arg-file|eof|replace|max-lines|max-chars|process-slot-var)=.*"
    r"|--(?:eof|replace|max-lines|interactive|open-tty|verbose|exit))"
    r"|(?P<unusual_takes>-[aE]|--(?:arg-file|max-args|max-procs|max-chars|delimiter|process-slot-var))",
    re.DOTALL,
)


def judge_xargs(words: Sequence[Word], context: CommandContext, *, inner: Inner) -> Effect:
    """Return the effect of xargs, whose inner command gets unknown arguments, or paths that a search prints."""
    at, placeholder = 1, ""
    before: list[Effect] = []
    while at < len(words) and (match := _XARGS.fullmatch(words[at].value or "")):
        option = words[at].value or ""
        group = match.lastgroup or ""
        takes = group.endswith("takes")
        if group.startswith("unusual") or (takes and not all(word.is_single for word in words[at + 1 : at + 2])):
            before.append(other_effect("an option of xargs is not known to be harmless"))
        if option.startswith("-I"):
            placeholder = ((words[at + 1].value or "") if takes and at + 1 < len(words) else option[2:]) or "{}"
        elif option.startswith(("-i", "--replace")):
            placeholder = option.removeprefix("--replace").removeprefix("-i").removeprefix("=") or "{}"
        at += 2 if takes else 1
    command = list(words[at:])
    if not command:
        return combine(before)
    if placeholder:
        command = [_substitute(word, placeholder, is_inside=context.feeds_paths) for word in command]
    else:
        command.append(make_unknown_word("...", is_inside=context.feeds_paths))
    if (command[0].value or "-").startswith("-"):
        return combine((other_effect("an option of xargs is not known to be harmless"), inner(command[1:], context)))
    return combine((*before, inner(command, context)))


def _substitute(word: Word, mark: str, *, is_inside: bool) -> Word:
    value = word.value or ""
    if mark not in value:
        return word
    # Text before the path decides where it leads; text behind it cannot leave the project without `..`.
    rest = value.removeprefix(mark)
    return make_unknown_word(word.text, is_inside=is_inside and rest != value and ".." not in rest and mark not in rest)


_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})


def judge_find(words: Sequence[Word], context: CommandContext, *, inner: Inner) -> Effect:
    """Return the effect of find, which can delete files, write lists of them, and run a command for each."""
    effects: list[Effect] = []
    rest: Iterator[Word] = iter(words[1:])
    is_root = True
    for word in rest:
        value = word.value
        if value is None or (word.is_pattern and value[0] in "*?["):
            effects.append(other_effect("an argument of find is not clear from its text"))
            continue
        if (is_root and value in ("-H", "-L", "-P", "--")) or (is_root and value.startswith("-O")):
            continue
        if is_root and value == "-D":
            next(rest, None)
            continue
        is_root = is_root and not value.startswith(("-", "(", "!"))
        if is_root:
            effects.append(judge_read(word, context))
        elif value == "-delete":
            effects.append(Effect(kind="write", loses="every file it finds would be deleted"))
        elif value in _FIND_WRITES:
            effects += [judge_write(target, context, truncates=True) for target in (next(rest, None),) if target]
        elif value in _FIND_ACTIONS:
            effects.append(_judge_exec(rest, context, inner=inner))
        elif value == "-files0-from":
            effects.append(other_effect("the folders it searches are not clear from its text"))
    return combine(effects)


def _judge_exec(rest: Iterator[Word], context: CommandContext, *, inner: Inner) -> Effect:
    command: list[Word] = []
    for word in rest:
        if word.value == ";" or (word.value == "+" and command and command[-1].is_inside):
            break
        command.append(_substitute(word, "{}", is_inside=True))
    return inner(command, context) if command else other_effect()


_SHELL_LETTERS = re.compile(r"-[eulxfc]+")
_SHELL_TAKES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_SHELL_MODES = frozenset({"pipefail", "errexit", "nounset"})


def judge_shell(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of bash or sh; a known text after ``-c`` is judged as another command line."""
    at, is_text, is_usual = 1, False, True
    while at < len(words) and (value := words[at].value) is not None and value.startswith(("-", "+")):
        at += 1
        if value in _SHELL_TAKES:
            is_usual = is_usual and value == "-o" and {word.value for word in words[at : at + 1]} <= _SHELL_MODES
            at += 1
        elif value == "--":
            break
        else:
            is_usual = is_usual and _SHELL_LETTERS.fullmatch(value) is not None
            is_text = is_text or (value[:2] != "--" and value[0] == "-" and "c" in value)
    anything = other_effect("a script can do anything")
    if not is_text or at >= len(words):
        return anything
    script = words[at]
    if script.value is None or not is_usual:
        return replace(anything, lines=_guess_line((script,)))
    return Effect(kind="read", lines=(script.value,))


def judge_foreign_shell(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of another shell; its text is judged as if it were bash, to find losses."""
    return combine((other_effect(f"{words[0].value} is not known to be harmless"), judge_shell(words, context)))


def _guess_line(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the line that unknown words may be, to find the losses it would cause."""
    text = " ".join(word.value or (word.text[1:-1] if word.text[:1] in ('"', "'") else word.text) for word in words)
    return (text,) if text.strip() else ()


def judge_eval(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of eval; its words, if known, are another command line."""
    if any(not word.is_exact for word in words[1:]):
        return replace(other_effect(), lines=_guess_line(words[1:]), moves=True, taints=True)
    return Effect(kind="read", lines=(" ".join(word.value or "" for word in words[1:]),), moves=True, taints=True)


_ROOT = other_effect("it would run with another user's permissions")
_OTHER = other_effect("another program controls how it runs")

WRAPPERS: Mapping[str, tuple[re.Pattern[str], Effect]] = {
    "time": (re.compile(r"-p"), READ),
    "nohup": (re.compile(r"(?!)"), READ),
    "setsid": (re.compile(r"-[cfw]+"), READ),
    "builtin": (re.compile(r"(?!)"), READ),
    "exec": (re.compile(r"-[cl]+|(?P<takes>-a)"), READ),
    "nice": (re.compile(r"-\d+|-n.+|(?P<takes>-n)|--adjustment=.+"), READ),
    "ionice": (re.compile(r"-[cn].+|(?P<takes>-[cn])|-t"), READ),
    "stdbuf": (re.compile(r"-[ioe].+|(?P<takes>-[ioe])"), READ),
    "timeout": (
        re.compile(r"-[sk].+|(?P<takes>-[sk])|--(?:signal|kill-after)=.+|--preserve-status|--foreground|-v"),
        READ,
    ),
    "sudo": (re.compile(r"-[AbEHnPSksi]+|(?P<takes>-[ugpCDhrtTU])"), _ROOT),
    "doas": (re.compile(r"-[ns]+|(?P<takes>-[uC])"), _ROOT),
    "busybox": (re.compile(r"(?!)"), _OTHER),
    "toybox": (re.compile(r"(?!)"), _OTHER),
    "coproc": (re.compile(r"(?!)"), _OTHER),
    "chroot": (re.compile(r"--.+"), _OTHER),
    "strace": (re.compile(r"-[fqtv]+|(?P<takes>-[eop])"), _OTHER),
    "watch": (re.compile(r"-[dtegx]+|(?P<takes>-n)"), _OTHER),
    "parallel": (re.compile(r"-.+"), _OTHER),
    "unbuffer": (re.compile(r"(?!)"), _OTHER),
    "caffeinate": (re.compile(r"-.+"), _OTHER),
}
"""Program -> its options, with the group ``takes`` for those with a value, and its own effect."""
