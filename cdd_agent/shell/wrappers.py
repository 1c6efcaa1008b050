"""Programs that run the command they are given: it counts as much as if it stood alone, and some make it count more."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cdd_agent.shell.words import READ, Finding, Setting, Word, joined, of_value, other, reads, unknown, writes

Inner: TypeAlias = Callable[[Sequence[Word], Setting], Finding]
"""Judges the command within."""

_HARMLESS_NAMES = frozenset(
    [
        "LANG",
        "LANGUAGE",
        "TZ",
        "COLUMNS",
        "LINES",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "TERM",
        "CI",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONHASHSEED",
        "PYTHONUTF8",
        "PYTHONFAULTHANDLER",
        "PYTHONTRACEMALLOC",
    ]
)
_SHELL_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_NETWORK_NAMES = re.compile(r"\w*_proxy")


def assigns(name: str, value: str | None, *, setting: Setting, lasts: bool) -> Finding:
    """What a variable does to the commands after it, or, if it does not last, to the one behind it."""
    if name in _HARMLESS_NAMES or name.startswith("LC_"):
        return READ
    if name == "PYTHONPATH" and value and not any(setting.is_outside(entry) for entry in value.split(":")):
        return READ
    if lasts and _SHELL_VARIABLE.fullmatch(name) and not _NETWORK_NAMES.fullmatch(name):
        return READ
    return replace(other(f"{name} can change what programs do"), taints=lasts)


def judge_wrapper(words: Sequence[Word], setting: Setting, *, name: str, inner: Inner) -> Finding:
    """One of ``WRAPPERS``; with nothing to run it only tells something, or is not understood."""
    options, least = WRAPPERS[name]
    at = 1
    while at < len(words):
        value = words[at].value
        if value is None:
            return joined((other(), _within(words[at + 1 :], setting, inner=inner)))
        if value == "--":
            at += 1
            break
        found = options.fullmatch(value)
        if found is None or not value.startswith(("-", "+")):
            break
        if found.lastgroup == "takes":
            if at + 1 < len(words) and not words[at + 1].is_single:
                least = other(f"an option of {name} cannot be told from its text")
            at += 1
        at += 1
    rest = words[at:]
    if name in ("timeout", "chroot") and rest:
        rest = rest[1:]
    if rest and (rest[0].value or "").startswith("-"):
        unread = [word for word in rest if not (word.value or "-").startswith("-")]
        return joined((other(f"an option of {name} is not known"), _within(unread, setting, inner=inner)))
    return joined((least, _within(rest, setting, inner=inner)))


def _within(words: Sequence[Word], setting: Setting, *, inner: Inner) -> Finding:
    return inner(words, setting) if words else other()


def judge_env(words: Sequence[Word], setting: Setting, *, inner: Inner) -> Finding:
    """env: variables and then a command, or nothing, which prints the environment."""
    findings: list[Finding] = []
    rest = iter(range(1, len(words)))
    for at in rest:
        value = words[at].value
        if value in ("-i", "-", "--ignore-environment", "-0", "--null"):
            continue
        if value in ("-u", "--unset"):
            after = next(rest, None)
            if after is not None and after < len(words) and not words[after].is_single:
                findings.append(other("an option of env cannot be told from its text"))
        elif value is not None and (split := _SPLITS.fullmatch(value)):
            texts = [split[1], *(word.value or word.text for word in words[at + 1 :])]
            findings.append(replace(other("env takes a text apart"), lines=(" ".join(filter(None, texts)),)))
            break
        elif value is not None and (moved := _MOVES.fullmatch(value)):
            after = None if moved[1] else next(rest, None)
            folder = of_value(moved[1]) if moved[1] else words[after] if after is not None else unknown(value)
            findings += [other("env goes to another folder"), reads(folder, setting)]
            places = setting.places(folder.value) if folder.value is not None and folder.is_exact else None
            setting = replace(setting, folders=None if places is None else frozenset(places))
        elif value is not None and value.startswith("-"):
            findings.append(other("an option of env is not known to be harmless"))
        elif value is not None and (found := _ASSIGNMENT.fullmatch(value)):
            findings.append(assigns(found[1], found[2], setting=setting, lasts=False))
        else:
            findings.append(inner(words[at:], setting))
            break
    return joined(findings)


_SPLITS = re.compile(r"(?:-[iv0]*S|--split-string=?)(.*)", re.DOTALL)
_MOVES = re.compile(r"(?:-C|--chdir=?)(.*)", re.DOTALL)
_XARGS = re.compile(
    r"-[0rtx]+|--(?:null|no-run-if-empty)|-[nPLIds].+|(?P<takes>-[nPLIds])|--(?:max-args|max-procs|delimiter)=.+"
    r"|(?P<unusual>-[aE].+|-[eil].*|-[op]|--(?:arg-file|eof|replace|max-lines|max-chars|process-slot-var)=.*"
    r"|--(?:eof|replace|max-lines|interactive|open-tty|verbose|exit))"
    r"|(?P<unusual_takes>-[aE]|--(?:arg-file|max-args|max-procs|max-chars|delimiter|process-slot-var))",
    re.DOTALL,
)


def judge_xargs(words: Sequence[Word], setting: Setting, *, inner: Inner) -> Finding:
    """xargs: the command within gets words that nobody knows, but for paths that a search prints."""
    at, stands_for = 1, ""
    before: list[Finding] = []
    while at < len(words) and (found := _XARGS.fullmatch(words[at].value or "")):
        option = words[at].value or ""
        takes = (found.lastgroup or "").endswith("takes")
        if (found.lastgroup or "").startswith("unusual") or (
            takes and not all(w.is_single for w in words[at + 1 : at + 2])
        ):
            before.append(other("an option of xargs is not known to be harmless"))
        if option.startswith("-I"):
            stands_for = ((words[at + 1].value or "") if takes and at + 1 < len(words) else option[2:]) or "{}"
        elif option.startswith(("-i", "--replace")):
            stands_for = option.removeprefix("--replace").removeprefix("-i").removeprefix("=") or "{}"
        at += 2 if takes else 1
    command = list(words[at:])
    if not command:
        return joined(before)
    if stands_for:
        command = [_filled(word, stands_for, is_inside=setting.feeds_paths) for word in command]
    else:
        command.append(unknown("...", is_inside=setting.feeds_paths))
    if (command[0].value or "-").startswith("-"):
        return joined((other("an option of xargs is not known to be harmless"), inner(command[1:], setting)))
    return joined((*before, inner(command, setting)))


def _filled(word: Word, mark: str, *, is_inside: bool) -> Word:
    """A word in which a path takes the place of ``mark``; what stands before the path decides where it leads."""
    value = word.value or ""
    if mark not in value:
        return word
    rest = value.removeprefix(mark)
    return unknown(word.text, is_inside=is_inside and rest != value and ".." not in rest and mark not in rest)


_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})


def judge_find(words: Sequence[Word], setting: Setting, *, inner: Inner) -> Finding:
    """find: it only looks, unless it deletes, writes what it finds, or runs a command for each."""
    findings: list[Finding] = []
    rest: Iterator[Word] = iter(words[1:])
    is_root = True
    for word in rest:
        value = word.value
        if value is None or (word.is_pattern and value[0] in "*?["):
            findings.append(other("an expression of find cannot be told from its text"))
            continue
        if (is_root and value in ("-H", "-L", "-P", "--")) or (is_root and value.startswith("-O")):
            continue
        if is_root and value == "-D":
            next(rest, None)
            continue
        is_root = is_root and not value.startswith(("-", "(", "!"))
        if is_root:
            findings.append(reads(word, setting))
        elif value == "-delete":
            findings.append(Finding(kind="write", loses="whatever it finds would be deleted"))
        elif value in _FIND_WRITES:
            findings += [writes(target, setting, truncates=True) for target in (next(rest, None),) if target]
        elif value in _FIND_ACTIONS:
            findings.append(_executed(rest, setting, inner=inner))
        elif value == "-files0-from":
            findings.append(other("which folders it searches cannot be told from its text"))
    return joined(findings)


def _executed(rest: Iterator[Word], setting: Setting, *, inner: Inner) -> Finding:
    """The command that find runs, up to the semicolon or plus that ends it."""
    command: list[Word] = []
    for word in rest:
        if word.value == ";" or (word.value == "+" and command and command[-1].is_inside):
            break
        command.append(_filled(word, "{}", is_inside=True))
    return inner(command, setting) if command else other()


_SHELL_LETTERS = re.compile(r"-[eulxfc]+")
_SHELL_TAKES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_SHELL_MODES = frozenset({"pipefail", "errexit", "nounset"})


def judge_shell(words: Sequence[Word], setting: Setting) -> Finding:
    """bash and sh: ``-c`` and a text that is known is judged as a command line of its own."""
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
    anything = other("a script can do anything")
    if not is_text or at >= len(words):
        return anything
    script = words[at]
    if script.value is None or not is_usual:
        return replace(anything, lines=_as_far_as_told((script,)))
    return Finding(kind="read", lines=(script.value,))


def judge_foreign_shell(words: Sequence[Word], setting: Setting) -> Finding:
    """A shell of another language: its text is judged for what it would lose at the least."""
    return joined((other(f"{words[0].value} is not known to be harmless"), judge_shell(words, setting)))


def _as_far_as_told(words: Sequence[Word]) -> tuple[str, ...]:
    """Words that are not known as the line that they may be, for what that would lose at the least."""
    text = " ".join(word.value or (word.text[1:-1] if word.text[:1] in ('"', "'") else word.text) for word in words)
    return (text,) if text.strip() else ()


def judge_eval(words: Sequence[Word], setting: Setting) -> Finding:
    """eval: its words, if they are known, are a command line."""
    if any(not word.is_exact for word in words[1:]):
        return replace(other(), lines=_as_far_as_told(words[1:]), moves=True, taints=True)
    return Finding(kind="read", lines=(" ".join(word.value or "" for word in words[1:]),), moves=True, taints=True)


_ROOT = other("it would run with another user's rights")
_OTHER = other("a program runs it in its own way")

WRAPPERS: Mapping[str, tuple[re.Pattern[str], Finding]] = {
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
"""Name -> its options, those followed by a value in the group ``takes``, and the least that it makes of a command."""
