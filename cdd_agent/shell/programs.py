"""The table of programs: which ones only read, which ones write files, and which ones run another command.

A row names the options that make a program do more than read. Whatever is not in the table is asked about, so a
missing row costs a question and no safety; the sandbox limits every command.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import dropwhile
from typing import TypeAlias

_NO_FILES = """
    [ [[ : true false test echo printf pwd expr seq sleep uname whoami id groups nproc uptime arch tty which type date
    printenv locale cal free lscpu break continue return exit shift times numfmt tr wait jobs
"""
_PRINTERS = frozenset(_NO_FILES.split())
"""Programs whose arguments are not files."""

_FILE_READERS = """
    cat nl tac rev cut paste comm cmp fold expand unexpand fmt od hexdump md5sum sha1sum sha224sum sha256sum sha384sum
    sha512sum b2sum cksum sum stat ls dir vdir df basename dirname realpath readlink strings column join wc du diff look
    head tail grep egrep fgrep
"""
_READERS: Mapping[str, re.Pattern[str] | None] = {
    **dict.fromkeys(_FILE_READERS.split()),
    "fd": re.compile(r"-\w*[xX]|--(e|s|b)"),
    "file": re.compile(r"-\w*[CmzZ]|--(c|m|u)"),
    "find": re.compile(r"-(delete|exec|ok|fprint|fls|files0)"),
    "jq": re.compile(r"-\w*L|--l"),
    "rg": re.compile(r"-\w*z|--(pre|hostname-bin|search-zip)"),
    "sort": re.compile(r"-\w*[oT]|--(o|co|t|files0)"),
    "tree": re.compile(r"-\w*[oR]|--o"),
}
"""Program -> the beginnings of options that make it do more than read, or None if it has no such option."""

_ACTS_OF_PRINTERS: Mapping[str, re.Pattern[str]] = {
    "date": re.compile(r"-\w*[sf]|--[sf]"),
    "jobs": re.compile(r"-x"),
    "printf": re.compile(r"-v"),
    "wait": re.compile(r"-p"),
}

WRITERS = frozenset({"chmod", "cp", "mkdir", "mv", "rm", "rmdir", "tee", "touch"})
"""Programs that change only the files which their arguments name."""

_WRAPPERS: Mapping[str, int] = {"command": 0, "nohup": 0, "time": 0, "timeout": 1}
"""Program that runs its arguments as a command -> the number of arguments before the command."""
_XARGS_VALUES = frozenset({"-I", "-L", "-P", "-d", "-n"})
_XARGS_FLAGS = frozenset({"-0", "-r", "-t", "--no-run-if-empty", "--null"})
_SHELL_COMMAND = re.compile(r"-[elu]*c")

FINDERS = frozenset({"find", "xargs"})
"""Programs that choose the files of the command that they run."""

_BUILTINS = """
    . alias builtin cd declare enable eval exec export getopts hash local mapfile popd pushd read readarray readonly set
    shopt source trap typeset unalias unset
"""
CHANGES_SHELL = frozenset(_BUILTINS.split())
"""Builtins after which a later command may mean something else."""

_NAME = r"[a-z_]\w*"
_SETTINGS = re.compile(r"(-[eufvx]*o? ?(pipefail)? ?)+")
_READ_ARGUMENTS = re.compile(rf"(-r )?{_NAME}( {_NAME})*")
_HARMLESS_NAME = re.compile(
    rf"{_NAME}|LANG|LANGUAGE|LC_\w+|TZ|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|TERM|CI|PYTHON(UTF8|UNBUFFERED|HASHSEED)"
)
# Programs read these names, too.
_READ_BY_PROGRAMS = re.compile(r".*_proxy")

_SUBCOMMANDS = """
    annotate blame cat-file check-attr check-ignore cherry count-objects describe diff diff-files diff-index diff-tree
    for-each-ref grep log ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status
    var version whatchanged
"""
_GIT_READERS = frozenset(_SUBCOMMANDS.split())
_GIT_ACTS = re.compile(r"-\w*O|--(o(?!ne|nly|rder)|ext|text|contents|filters)|-f")
_GIT_FORMS: Mapping[str, re.Pattern[str]] = {
    "branch": re.compile(r"(-[arv]+|--all|--remotes|--list|--show-current|--verbose| )*"),
    "config": re.compile(r"(--global |--local |--system )?(--get(-all|-regexp)? [\w.-]+|-l|--list|[\w-]+\.[\w.-]+)"),
    "notes": re.compile(r"(list|show)( .*)?|"),
    "reflog": re.compile(r"(show )?(-\d+)?"),
    "remote": re.compile(r"-v|"),
    "stash": re.compile(r"(list|show)( .*)?"),
    "tag": re.compile(r"(-l|--list)( .*)?|"),
    "worktree": re.compile(r"list( .*)?"),
}
"""Subcommand of git that reads or writes -> the arguments with which it only reads."""

_SED_OPTION = re.compile(r"-[nErsuz]+|--quiet|--silent|--regexp-extended")
_ADDRESS = r"(\d+|\$|/[\w .^$*-]*/)"
_SED_COMMAND = re.compile(
    rf"\s*({_ADDRESS}(,({_ADDRESS}|\+\d+))?)?\s*"
    r"([pdq=]|s(?P<mark>[/|,#@])((?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)((?!(?P=mark))[^\\\n]|\\[^\n])*(?P=mark)[gpiI0-9]*)\s*"
)
"""A sed command that only prints and changes text."""
_HIDDEN_SEPARATOR = re.compile(r"\[\^?\]?[^\]]*[/|,#@;\n]")
"""A bracket that may contain a separator, where it is an ordinary character."""
_AWK_OPTION = re.compile(r"-F.*|-v")
_AWK_ACTS = re.compile(r"[|>@]|system|getline|ARGV")


Arguments: TypeAlias = list[str | None]
"""The arguments of a program; None for one that is known only at run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The work of a command that only reads."""

    files: Arguments = field(default_factory=list)
    """Arguments that may be paths; None for one that is known only at run time."""
    inner: Arguments = field(default_factory=list)
    """The words of a command that it runs, if any."""
    line: str = ""
    """The line that it gives to a shell, if any."""


def look_up(name: str, arguments: Arguments) -> Reading | None:
    """Return what a command reads and runs, or None if it is not known to be harmless."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(arguments)
    count = _WRAPPERS.get(name)
    if count is None:
        return _look_up_reader(name, arguments)
    if name == "command" and arguments[:1] in (["-v"], ["-V"]):
        return Reading()
    has_options = any((value or "-").startswith("-") for value in arguments[: count + 1])
    return Reading(inner=arguments[count:]) if arguments[count:] and not has_options else None


def _look_up_reader(name: str, arguments: Arguments) -> Reading | None:
    if name not in _PRINTERS and name not in _READERS:
        return None
    acts = _READERS.get(name) or _ACTS_OF_PRINTERS.get(name)
    if acts is not None and any(acts.match(value) for value in arguments if value is not None):
        return None
    if acts is not None and name in _READERS and None in arguments:  # It may be an option.
        return None
    return Reading(files=[] if name in _PRINTERS else arguments)


def _look_up_xargs(arguments: Arguments) -> Reading | None:
    rest = list(arguments)
    while rest and (rest[0] or "-").startswith("-"):
        option = rest.pop(0)
        if option in _XARGS_VALUES and rest and rest[0] is not None:
            rest.pop(0)
        elif option not in _XARGS_FLAGS and (option or "")[:2] not in _XARGS_VALUES:
            return None
    return Reading(inner=rest or ["echo"])


def _look_up_find(arguments: Arguments) -> Reading | None:
    ends = [at for at, value in enumerate(arguments) if value in (";", "+")]
    if "-exec" not in arguments or len(ends) != 1 or arguments.count("-exec") != 1:
        return _look_up_reader("find", arguments)
    start, end = arguments.index("-exec"), ends[0]
    own = _look_up_reader("find", arguments[:start] + arguments[end + 1 :])
    return None if own is None else replace(own, inner=arguments[start + 1 : end])


def is_harmless_name(name: str) -> bool:
    """Return whether a variable has no effect on what programs do besides their output."""
    return _HARMLESS_NAME.fullmatch(name) is not None and _READ_BY_PROGRAMS.fullmatch(name) is None


def _sets_harmless_name(value: str) -> bool:
    name, equals, _ = value.partition("=")
    return bool(equals) and is_harmless_name(name)


def _look_up_builtin(arguments: Arguments, *, plain: re.Pattern[str]) -> Reading | None:
    text = " ".join(value if value is not None else "?" for value in arguments)
    return Reading() if plain.fullmatch(text) else None


def _look_up_uniq(arguments: Arguments) -> Reading | None:
    files = [value for value in arguments if value is None or not value.startswith("-")]
    # It writes to its second file.
    return Reading(files=files) if len(files) < 2 and None not in files else None


def _look_up_env(arguments: Arguments) -> Reading | None:
    rest = list(dropwhile(lambda value: value is not None and _sets_harmless_name(value), arguments))
    return None if rest and (rest[0] or "-").startswith("-") else Reading(inner=rest)


def _look_up_shell(arguments: Arguments) -> Reading | None:
    is_line = len(arguments) == 2 and _SHELL_COMMAND.fullmatch(arguments[0] or "") is not None
    return Reading(line=arguments[1]) if is_line and arguments[1] else None


def _look_up_git(arguments: Arguments) -> Reading | None:
    folders: Arguments = []
    rest = list(arguments)
    while rest and (rest[0] or "").startswith("-"):
        option = rest.pop(0)
        if option == "-C" and rest:
            folders.append(rest.pop(0))
        elif option not in ("--no-pager", "-P", "--version"):
            return None
    name, *own = rest or ["version"]
    known = [value for value in own if value is not None]
    if name is None or len(known) < len(own) or any(map(_GIT_ACTS.match, known)):
        return None
    form = _GIT_FORMS.get(name)
    only_reads = form.fullmatch(" ".join(known)) is not None if form is not None else name in _GIT_READERS
    return Reading(files=[*folders, *own]) if only_reads else None


def _look_up_script(arguments: Arguments, *, name: str) -> Reading | None:
    option = _SED_OPTION if name == "sed" else _AWK_OPTION
    rest = list(arguments)
    while rest and (rest[0] or "").startswith("-"):
        first = rest.pop(0) or ""
        if not option.fullmatch(first):
            return None
        if first in ("-v", "-F") and rest and rest.pop(0) is None:
            return None
    script, *files = rest or [None]
    if script is None or any((value or "-")[0] in "-*?[" for value in files):
        return None
    return Reading(files=files) if _only_prints(name, script) else None


def _only_prints(name: str, script: str) -> bool:
    if name == "sed":
        has_hidden = _HIDDEN_SEPARATOR.search(script) is not None
        return not has_hidden and all(_SED_COMMAND.fullmatch(part) for part in re.split(r"[;\n]", script))
    # Before the first block, `>` compares; inside a block it can write a file.
    pattern, brace, blocks = script.partition("{")
    return _AWK_ACTS.search(pattern.replace(">", "") + brace + blocks) is None


_SPECIAL: Mapping[str, Callable[[Arguments], Reading | None]] = {
    "env": _look_up_env,
    "find": _look_up_find,
    "git": _look_up_git,
    "read": partial(_look_up_builtin, plain=_READ_ARGUMENTS),
    "sed": partial(_look_up_script, name="sed"),
    "set": partial(_look_up_builtin, plain=_SETTINGS),
    "uniq": _look_up_uniq,
    "xargs": _look_up_xargs,
    **dict.fromkeys(("awk", "gawk", "mawk"), partial(_look_up_script, name="awk")),
    **dict.fromkeys(("bash", "sh"), _look_up_shell),
}
"""Program -> its own rule."""


def is_known(name: str) -> bool:
    """Return whether the table has a program, whatever its arguments."""
    return any(name in table for table in (_PRINTERS, _READERS, _WRAPPERS, _SPECIAL))
