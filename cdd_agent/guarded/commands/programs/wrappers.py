"""Programs that run the command they are given: it counts as much as if it stood alone, and some make it count more."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cdd_agent.guarded.commands.classes import READ, Finding, joined, other
from cdd_agent.guarded.commands.paths import Setting, reads, writes
from cdd_agent.guarded.commands.words import Word, unknown

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
            return joined((other(), _within(words[at:], setting, inner=inner)))
        if value == "--":
            at += 1
            break
        found = options.fullmatch(value)
        if found is None or not value.startswith(("-", "+")):
            break
        at += 2 if found.lastgroup == "takes" else 1
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
            next(rest, None)
        elif value is not None and value.startswith("-"):
            findings.append(other("an option of env is not known to be harmless"))
        elif value is not None and (found := _ASSIGNMENT.fullmatch(value)):
            findings.append(assigns(found[1], found[2], setting=setting, lasts=False))
        else:
            findings.append(inner(words[at:], setting))
            break
    return joined(findings)


_XARGS = re.compile(
    r"-[0rtx]+|--(?:null|no-run-if-empty)|-[nPLIds].+|(?P<takes>-[nPLIds])|--(?:max-args|max-procs|delimiter)=.+"
)


def judge_xargs(words: Sequence[Word], setting: Setting, *, inner: Inner) -> Finding:
    """xargs: the command within gets words that nobody knows, but for paths that a search prints."""
    at, stands_for = 1, ""
    while at < len(words) and (found := _XARGS.fullmatch(words[at].value or "")):
        option = words[at].value or ""
        takes = found.lastgroup == "takes"
        if option.startswith("-I"):
            stands_for = ((words[at + 1].value or "") if takes and at + 1 < len(words) else option[2:]) or "{}"
        at += 2 if takes else 1
    command = list(words[at:])
    if not command:
        return READ
    given = unknown("...", is_inside=setting.feeds_paths)
    if stands_for:
        command = [given if stands_for in (word.value or "") else word for word in command]
    else:
        command.append(given)
    found_within = inner(command, setting)
    if (command[0].value or "-").startswith("-"):
        return joined((other("an option of xargs is not known to be harmless"), inner(command[1:], setting)))
    return found_within


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
        if is_root and value in ("-H", "-L", "-P"):
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
        command.append(unknown(word.text, is_inside=True) if "{}" in (word.value or "") else word)
    return inner(command, setting) if command else other()


_SHELL_OPTIONS = re.compile(r"-[eulxf]*c|-[eulxf]+")


def judge_shell(words: Sequence[Word], setting: Setting) -> Finding:
    """bash and sh: ``-c`` and a text that is known is judged as a command line of its own."""
    at = 1
    while at < len(words):
        value = words[at].value
        if value == "-o" and at + 1 < len(words) and words[at + 1].value in ("pipefail", "errexit", "nounset"):
            at += 2
            continue
        if value is None or not _SHELL_OPTIONS.fullmatch(value):
            break
        at += 1
        if value.endswith("c"):
            if at >= len(words):
                break
            script = words[at]
            if script.value is None:
                return replace(other("a script can do anything"), lines=_as_far_as_told((script,)))
            return Finding(kind="read", lines=(script.value,))
    return other("a script can do anything")


def _as_far_as_told(words: Sequence[Word]) -> tuple[str, ...]:
    """Words that are not known as the line that they may be, for what that would lose at the least."""
    text = " ".join(word.text[1:-1] if word.text[:1] == '"' else word.value or word.text for word in words)
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
