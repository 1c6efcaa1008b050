"""git: what only looks, what changes its folder, and what throws work away. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from cdd_agent.shell.words import READ, Finding, Setting, Word, joined, of_value, other, reads

Loses: TypeAlias = Callable[[Sequence[str], Setting], str]
"""What the arguments of a subcommand would lose, as a clause; empty: nothing that is known. ``?`` is unknown."""

_UNKNOWN = "?"
_LOOKS = frozenset(
    [
        "status",
        "log",
        "diff",
        "show",
        "rev-parse",
        "ls-files",
        "ls-tree",
        "cat-file",
        "blame",
        "annotate",
        "describe",
        "shortlog",
        "grep",
        "merge-base",
        "name-rev",
        "rev-list",
        "for-each-ref",
        "show-ref",
        "diff-tree",
        "diff-index",
        "diff-files",
        "whatchanged",
        "count-objects",
        "check-ignore",
        "check-attr",
        "cherry",
        "range-diff",
        "version",
        "show-branch",
        "verify-commit",
    ]
)
_BAD_WHILE_LOOKING = (
    "--output",
    "--ext-diff",
    "--textconv",
    "--open-files-in-pager",
    "--filters",
    "--no-index",
    "--contents",
    "--exclude-from",
    "--ignore-revs-file",
    "--show-signature",
)
_LISTS: Mapping[str, frozenset[str]] = {
    "branch": frozenset(["-a", "-r", "-v", "-vv", "-l", "--list", "--all", "--remotes", "--show-current", "--verbose"]),
    "tag": frozenset(["-l", "--list", "-n"]),
    "remote": frozenset(["-v", "--verbose", "get-url"]),
    "stash": frozenset(["list", "show"]),
    "reflog": frozenset(["show"]),
    "worktree": frozenset(["list"]),
    "config": frozenset(["--get", "--get-all", "--list", "-l", "--get-regexp"]),
    "notes": frozenset(["list", "show"]),
    "submodule": frozenset(["status", "summary"]),
    "bisect": frozenset(["log"]),
}
"""Subcommand -> the words with one of which at its beginning it only lists."""
_LIST_BARE = frozenset({"branch", "tag", "remote", "reflog", "notes", "submodule"})
"""Those that list without any word, too."""
_SETTING_NAME = re.compile(r"[A-Za-z][\w-]*\.(?:[\w./-]+\.)?[A-Za-z][\w-]*")
_CONFIG_OPTIONS = re.compile(
    r"--(?:get|get-all|get-regexp|list|global|local|system|worktree|show-origin|show-scope|name-only|null|bool|int)|-[lz]"
)


_MOST_FOLDERS = 20
"""Options before a subcommand, of which each may go to another folder."""
_TAKE = frozenset({"-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--super-prefix"})


def judge_git(words: Sequence[Word], setting: Setting) -> Finding:
    """git with its subcommand; what it runs by itself is told by the repository's configuration, not by its text."""
    arguments = list(words[1:])
    before: list[Finding] = []
    while arguments and (arguments[0].value or "-").startswith("-"):
        option = arguments.pop(0).value
        if option == "-C" and arguments:
            folder = arguments.pop(0)
            before.append(reads(folder, setting))
            places = setting.places(folder.value) if folder.value is not None and folder.is_exact else None
            is_told = places is not None and len(before) < _MOST_FOLDERS
            setting = replace(setting, folders=frozenset(places or ()) if is_told else None)
        elif option not in ("--no-pager", "--no-optional-locks", "--version", "--literal-pathspecs"):
            if option in _TAKE and arguments:
                arguments.pop(0)
            before.append(other("git is told to work another way than usual"))
    if not arguments:
        return joined(before) if before or len(words) > 1 else other()
    name, rest = arguments[0].value or _UNKNOWN, arguments[1:]
    values = [_UNKNOWN if word.value is None or word.is_pattern else word.value for word in rest]
    return joined((*before, _judge(name, rest, values=values, setting=setting)))


def _judge(name: str, rest: Sequence[Word], *, values: list[str], setting: Setting) -> Finding:
    """One subcommand with its arguments."""
    if name in _LOOKS:
        return _looks(name, rest, values=values, setting=setting)
    if _lists(name, values):
        return READ
    loses = _LOSERS[name](values, setting) if name in _LOSERS else ""
    return other(f"git {name} changes more than the files of the project", loses=loses)


def _looks(name: str, rest: Sequence[Word], *, values: list[str], setting: Setting) -> Finding:
    """A subcommand that only looks, unless an option makes it do more."""
    options = [value for value in _before_dashes(values) if value.startswith(("-", _UNKNOWN))]
    is_bad = any(map(_may_do_more, options))
    runs_pager = name == "grep" and any(option[:1] == "-" != option[1:2] and "O" in option for option in options)
    if is_bad or runs_pager or _UNKNOWN in options:
        return other(f"this option of git {name} is not known to be harmless")
    skipped = name in ("grep", "log", "rev-parse", "describe")
    paths = [word for word in rest if word.value is not None and word.value.startswith(("/", "..", "~"))]
    ranges = [word for word in paths if not (skipped and not (word.value or "").startswith(("/", "../")))]
    glued = [of_value(option[2:]) for option in options if _GLUED_PATH.match(option) and name in ("grep", "ls-files")]
    return joined(reads(word, setting) for word in (*ranges, *glued))


_GLUED_PATH = re.compile(r"-[fX].")


def _may_do_more(option: str) -> bool:
    """Whether an option is, or may be short for, one that makes a subcommand do more than look."""
    name = option.partition("=")[0]
    return len(name) > 2 and any(bad.startswith(name) for bad in _BAD_WHILE_LOOKING)


def _lists(name: str, values: list[str]) -> bool:
    """Whether a subcommand that can do both is told to list."""
    if name not in _LISTS:
        return False
    if not values:
        return name in _LIST_BARE
    if _UNKNOWN in values or any(map(_may_do_more, values)):
        return False
    match name:
        case "config":
            reads_one = len(values) == 1 and _SETTING_NAME.fullmatch(values[0]) is not None
            options = [value for value in values if value.startswith("-")]
            lists = any(option in _LISTS[name] for option in options)
            return reads_one or (lists and all(map(_CONFIG_OPTIONS.fullmatch, options)))
        case "remote":
            return values[0] in _LISTS[name] and (values[0] == "get-url" or len(values) == 1)
        case "reflog":
            return values[0] in _LISTS[name] or values[0].startswith("-")
        case "stash" | "worktree" | "notes" | "submodule" | "bisect":
            return values[0] in _LISTS[name]
    asks = {"--list", "-l", "--contains", "--merged", "--no-merged", "--points-at"}
    rest = [value for value in values if value not in _LISTS[name]]
    return not rest or (values[0] in asks and not any(value.startswith(("-", _UNKNOWN)) for value in rest))


def _before_dashes(values: Sequence[str]) -> list[str]:
    """What stands before ``--``."""
    return list(values[: values.index("--")] if "--" in values else values)


def _has(values: Sequence[str], letters: str, *words: str) -> bool:
    """Whether one of the options is given, its letter in any cluster, its word in any shortened form."""
    for value in values:
        if value == _UNKNOWN:
            return True
        if value.startswith("--") and any(word.startswith(value.partition("=")[0]) for word in words if value != "--"):
            return True
        if value.startswith("-") and not value.startswith("--") and any(letter in value for letter in letters):
            return True
    return False


def _always(what: str) -> Loses:
    return lambda values, setting: what


def _with(what: str, letters: str, *words: str) -> Loses:
    """Loses if one of these options is given, or may be."""
    return lambda values, setting: what if _has(values, letters, *words) else ""


def _first(what: str, *names: str) -> Loses:
    """Loses if the first word that is no option is one of these, or may be."""

    def loses(values: Sequence[str], setting: Setting) -> str:
        first = next((value for value in values if not value.startswith("-")), "")
        return what if first in (*names, _UNKNOWN) else ""

    return loses


def _checkout(values: Sequence[str], setting: Setting) -> str:
    """A checkout that makes a branch, or goes to one, loses nothing; one that names files does."""
    what = "changes to files would be overwritten"
    if _has(values, "fBp", "--force", "--ours", "--theirs", "--patch", "--merge", "--pathspec-from-file"):
        return what
    names = [value for value in values if not value.startswith("-")]
    if "--" in values or (len(names) > 1 and "-b" not in values and "--orphan" not in values):
        return what
    is_file = any(setting.ground.look(place) for name in names for place in setting.places(name) or ())
    is_pattern = any(name.startswith(":") or set(name) & set("*?[") for name in names)
    return what if "-b" not in values and (is_file or is_pattern or setting.folders is None) else ""


def _clean(values: Sequence[str], setting: Setting) -> str:
    """A clean that only says what it would do loses nothing."""
    tries = any(
        value in ("-n", "--dry-run") and (at == 0 or values[at - 1] not in ("-e", "--exclude"))
        for at, value in enumerate(_before_dashes(values))
    )
    return "" if tries else "files that git does not know would be deleted"


def _push(values: Sequence[str], setting: Setting) -> str:
    """A push that deletes, or replaces what is there."""
    replaces = any(value.startswith(("+", ":")) for value in values)
    options = ("--force", "--force-with-lease", "--force-if-includes", "--delete", "--mirror", "--prune")
    return "commits on the server could be lost" if replaces or _has(values, "fd", *options) else ""


_WORK = "changes that are not committed would be lost"
_COMMITS = "commits could be lost"
_UNFINISHED = _with("what is in progress would be thrown away", "", "--abort", "--quit", "--skip")

_LOSERS: Mapping[str, Loses] = {
    "reset": _always(_WORK),
    "restore": _always(_WORK),
    "checkout": _checkout,
    "checkout-index": _always(_WORK),
    "read-tree": _always(_WORK),
    "clean": _clean,
    "stash": _always("changes would be taken away from the files, or thrown away"),
    "switch": _with(_WORK, "fC", "--force", "--discard-changes", "--force-create", "--merge"),
    "rm": _always("files would be removed"),
    "mv": _with("what lies there would be replaced", "f", "--force"),
    "push": _push,
    "branch": _with(_COMMITS, "dDMCf", "--delete", "--force"),
    "tag": _with("tags would be lost", "df", "--delete", "--force"),
    "update-ref": _always(_COMMITS),
    "symbolic-ref": _with(_COMMITS, "d", "--delete"),
    "reflog": _first("the way back to commits would be lost", "expire", "delete"),
    "gc": _with("the way back to commits would be lost", "", "--prune", "--aggressive"),
    "prune": _always("the way back to commits would be lost"),
    "filter-branch": _always(_COMMITS),
    "filter-repo": _always(_COMMITS),
    "replace": _always(_COMMITS),
    "worktree": _first("a work tree would be removed", "remove", "prune"),
    "submodule": _first(_WORK, "deinit", "update", "foreach"),
    "remote": _first("what is known of the server would be lost", "remove", "rm", "prune"),
    "notes": _first("notes would be lost", "remove", "prune", "merge"),
    "bisect": _first("changes could be lost", "reset", "run"),
    "commit": _with("the commit before it would be replaced", "", "--amend"),
    "rebase": lambda values, setting: _COMMITS if values[:1] != ["--continue"] else "",
    "merge": _UNFINISHED,
    "cherry-pick": _UNFINISHED,
    "revert": _UNFINISHED,
    "am": _UNFINISHED,
    "pull": _with(_COMMITS, "rf", "--rebase", "--force"),
    "fetch": _with(_COMMITS, "pf", "--prune", "--force"),
    "apply": _with(_WORK, "R", "--reverse"),
}
