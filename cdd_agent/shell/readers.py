"""Programs that only read, as long as none of a few options makes them do more. Pure.

git: what only looks, what changes its folder, and what throws work away. Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cdd_agent.shell.words import READ, Finding, Setting, Word, joined, of_value, other, reads, writes

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


Judge: TypeAlias = Callable[[Sequence[Word], Setting], Finding]
"""Judges the words of a command, its name first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is known about the options of a program."""

    bad: str = ""
    """Letters that make it do more than read."""
    bad_long: tuple[str, ...] = ()
    """The same in words, each counting in any shortened form too."""
    text: str = ""
    """Letters that are followed by a value that is no path."""
    file: str = ""
    """Letters that are followed by a path."""
    skipped: int = 0
    """Positional words at the beginning that are no paths: a pattern, a filter."""
    instead: str = ""
    """Letters whose value stands in place of the skipped words."""
    instead_long: tuple[str, ...] = ()
    """The same in words."""
    takes_paths: bool = True


@dataclass(slots=True)
class Arguments:
    """The arguments of a command, taken apart."""

    positional: list[Word] = field(default_factory=list)
    letters: set[str] = field(default_factory=set)
    long: list[str] = field(default_factory=list)
    files: list[Word] = field(default_factory=list)
    """Values of options that are paths, or may be."""
    unknown: list[Word] = field(default_factory=list)
    """Words that may turn out to be options."""

    def is_bad(self, known: Options) -> bool:
        """Whether any of them makes the program do more than read, or may turn out to."""
        is_restricted = bool(known.bad or known.bad_long)
        return (
            not self.letters.isdisjoint(known.bad)
            or any(_may_mean(given, meant) for given in self.long for meant in known.bad_long)
            or (is_restricted and bool(self.unknown))
        )


def _may_mean(given: str, meant: str) -> bool:
    """Whether an option in words is that one, or a shortened form of it."""
    name = given.partition("=")[0]
    return meant.startswith(name) or (not meant.startswith("--") and name == meant)


def taken_apart(words: Sequence[Word], known: Options = Options()) -> Arguments:
    """The arguments after the name."""
    found = Arguments()
    rest = iter(words[1:])
    for word in rest:
        value = word.value
        if value is None or (word.is_pattern and value[0] in "*?["):
            found.positional.append(word)
            if not word.is_inside:
                found.unknown.append(word)
        elif value == "--":
            found.positional.extend(rest)
        elif value.startswith("--"):
            found.long.append(value)
            if "=" in value:
                found.files.append(of_value(value.partition("=")[2]))
        elif value.startswith("-") and len(value) > 1:
            _letters(value[1:], rest, found=found, known=known)
        else:
            found.positional.append(word)
    return found


def _letters(cluster: str, rest: Iterator[Word], *, found: Arguments, known: Options) -> None:
    """Take a cluster of letters apart; the last may be followed by its value, glued to it or as the next word."""
    for at, letter in enumerate(cluster):
        found.letters.add(letter)
        if letter in known.text + known.file:
            glued = cluster[at + 1 :]
            value = of_value(glued) if glued else next(rest, None)
            if value is not None and not value.is_single:
                found.positional.append(value)
                found.unknown.append(value)
            elif value is not None and letter in known.file:
                found.files.append(value)
            return
    if "/" in cluster or ".." in cluster:
        found.files.append(of_value(cluster[1:]))


_ANY = Options()
_NO_PATHS = Options(takes_paths=False)
_GREP = Options(text="ABCmedD", file="f", skipped=1, instead="ef", instead_long=("--regexp", "--file"))

READERS: Mapping[str, Options] = {
    **dict.fromkeys(
        [
            "cat",
            "nl",
            "tac",
            "rev",
            "cut",
            "paste",
            "comm",
            "cmp",
            "fold",
            "expand",
            "unexpand",
            "fmt",
            "od",
            "hexdump",
            "md5sum",
            "sha1sum",
            "sha224sum",
            "sha256sum",
            "sha384sum",
            "sha512sum",
            "b2sum",
            "cksum",
            "sum",
            "stat",
            "ls",
            "dir",
            "vdir",
            "df",
            "basename",
            "dirname",
            "realpath",
            "readlink",
            "strings",
            "column",
            "join",
            "wc",
            "du",
            "diff",
            "look",
        ],
        _ANY,
    ),
    **dict.fromkeys(
        [
            "echo",
            ":",
            "true",
            "false",
            "pwd",
            "expr",
            "seq",
            "sleep",
            "uname",
            "whoami",
            "id",
            "groups",
            "nproc",
            "uptime",
            "arch",
            "tty",
            "which",
            "type",
            "printenv",
            "locale",
            "cal",
            "free",
            "lscpu",
            "break",
            "continue",
            "return",
            "exit",
            "shift",
            "times",
            "numfmt",
            "tr",
        ],
        _NO_PATHS,
    ),
    "wait": Options(bad="p", takes_paths=False),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    **dict.fromkeys(("head", "tail"), Options(text="nc")),
    "date": Options(bad="sf", bad_long=("--set", "--file"), text="dI", takes_paths=False),
    "file": Options(bad="CmzZ", bad_long=("--compile", "--magic-file", "--uncompress", "--uncompress-noreport")),
    "jq": Options(
        bad="L", bad_long=("--library-path",), file="f", skipped=1, instead="f", instead_long=("--from-file",)
    ),
    "rg": Options(
        bad="z",
        bad_long=("--pre", "--pre-glob", "--hostname-bin", "--search-zip"),
        text="ABCEegjmMrtTd",
        file="f",
        skipped=1,
        instead="ef",
        instead_long=("--regexp", "--file", "--files", "--type-list"),
    ),
    "sort": Options(
        bad="oT", bad_long=("--output", "--compress-program", "--temporary-directory", "--files0-from"), text="kSt"
    ),
    **dict.fromkeys(
        ("fd", "fdfind"),
        Options(
            bad="xX",
            bad_long=("--exec", "--exec-batch", "--search-path", "--base-directory"),
            text="dteEgj",
            skipped=1,
        ),
    ),
    "tree": Options(bad="oR", text="LPI", bad_long=("--output",)),
}


def judge_reader(words: Sequence[Word], setting: Setting, *, name: str) -> Finding:
    """One of ``READERS``."""
    known = READERS[name]
    found = taken_apart(words, known)
    if found.is_bad(known):
        return other(f"this option of {name} is not known to be harmless")
    if not known.takes_paths:
        return READ
    is_given = any(_may_mean(given, meant) for given in found.long for meant in known.instead_long)
    skipped = 0 if is_given or not found.letters.isdisjoint(known.instead) else known.skipped
    paths = [*found.files, *found.positional[skipped:]]
    return joined(reads(path, setting) for path in paths)


_PRINTS = re.compile(
    r"(?:\d+|\$|/[\w .^$*-]*/)?(?:,(?:\d+|\$|\+\d+|/[\w .^$*-]*/))?[pdq=]"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s([/|,#@])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpiI0-9]*"
    r"|/[\w .^$*\"'(),=-]*/s/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/[gpiI0-9]*"
    r"|/[\w .^$*\"'(),=-]*/d"
)
"""A command of sed's that runs no program and writes no file."""
_HIDES = re.compile(r"\[\^?\]?[^\]]*[/|,#@]")
"""A bracket that may hold the mark between the parts of a substitution, where it would be no mark."""
_SED_LETTERS = re.compile(r"-[nErsuz]+")
_SED_IN_PLACE = re.compile(r"-[nErsuz]*i[.\w~]*|--i[a-z-]*(?:=[.\w~]*)?")
_SED_SCRIPT_FOLLOWS = re.compile(r"-[nErsuz]*e")


def judge_sed(words: Sequence[Word], setting: Setting) -> Finding:
    """sed, whose scripts can run programs and write files; ``-i`` writes in place."""
    scripts: list[Word] = []
    positional: list[Word] = []
    in_place = is_unclear = False
    rest = iter(words[1:])
    for word in rest:
        value = word.value
        if value is None or not value.startswith("-") or value == "-":
            positional.append(word)
        elif value == "--":
            positional.extend(rest)
        elif _SED_IN_PLACE.fullmatch(value):
            in_place = True
        elif _SED_SCRIPT_FOLLOWS.fullmatch(value):
            scripts.extend(script for script in (next(rest, None),) if script is not None)
        elif not _SED_LETTERS.fullmatch(value) and value not in ("--quiet", "--silent", "--regexp-extended"):
            is_unclear, in_place = True, in_place or "i" in value
    if not scripts:
        scripts, positional = positional[:1], positional[1:]
    is_unclear = is_unclear or not all(word.is_inside or word.is_exact or _starts_known(word) for word in positional)
    harmless = all(script.value is not None and _is_harmless_script(script.value) for script in scripts)
    paths = writes_in_place(positional, setting) if in_place else joined(reads(path, setting) for path in positional)
    if is_unclear or not scripts or not harmless:
        return joined((other("what this script of sed does cannot be told"), paths))
    return paths


def _starts_known(word: Word) -> bool:
    """Whether no option can come of a pattern."""
    return word.value is not None and word.value[0] not in "*?["


def _is_harmless_script(text: str) -> bool:
    """Whether each command of a script of sed's is known to do nothing but print and change text.

    What ends a command is not clear where a bracket may hide it.
    """
    if _PRINTS.fullmatch(text) and not _HIDES.search(text):
        return True
    return "[" not in text and all(_PRINTS.fullmatch(part.strip()) for part in re.split(r"[;\n]", text))


def writes_in_place(files: Sequence[Word], setting: Setting) -> Finding:
    """Files changed where they are; many at once could lose work."""
    are_many = len(files) > 1 or any(not file.is_exact for file in files)
    found = joined(writes(file, setting, truncates=False) for file in files)
    loses = Finding(kind="write", loses="many files would be changed at once" if are_many else "")
    return joined((loses, found))


_AWK = Options(text="Fv")
_ACTS = re.compile(r"[|>@]|system|getline|ARGV")


def judge_awk(words: Sequence[Word], setting: Setting) -> Finding:
    """awk, whose programs can run programs and write files."""
    found = taken_apart(words, _AWK)
    program = found.positional[0].value if found.positional and found.positional[0] not in found.unknown else None
    if not found.letters <= {"F", "v"} or found.long or program is None or _acts(program):
        return other("what this program of awk does cannot be told")
    assignments = re.compile(r"[A-Za-z_]\w*=")
    return joined(reads(path, setting) for path in found.positional[1:] if not assignments.match(path.value or ""))


def _acts(program: str) -> bool:
    """Whether a program of awk's may do more than print; before its first block nothing is printed, only compared."""
    pattern, brace, blocks = program.partition("{")
    return _ACTS.search(pattern.replace(">", "") + brace + blocks) is not None


def judge_uniq(words: Sequence[Word], setting: Setting) -> Finding:
    """uniq, which writes its second file; xxd is like it."""
    found = taken_apart(words, Options(text="fsw" if words[0].value == "uniq" else "lsocg"))
    if found.unknown or len(found.positional) > 1 or "r" in found.letters:
        return other("it would write its second file")
    return joined(reads(path, setting) for path in found.positional)


SPECIAL_READERS: Mapping[str, Judge] = {
    "sed": judge_sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), judge_awk),
    **dict.fromkeys(("uniq", "xxd"), judge_uniq),
}
