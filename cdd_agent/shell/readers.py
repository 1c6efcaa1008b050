"""The effect of git and of programs that read files, such as grep, sed and awk.

Some options make them write files or run programs. Only options and scripts that are known to be harmless count as
reading.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cdd_agent.shell.words import (
    READ,
    CommandContext,
    Effect,
    Word,
    combine,
    judge_read,
    judge_write,
    make_word,
    other_effect,
)

Judge: TypeAlias = Callable[[Sequence[Word], CommandContext], Effect]
"""Returns the effect of a command, given its words with the program's name first."""

LossCheck: TypeAlias = Callable[[Sequence[str], CommandContext], str]
"""Returns the loss that the arguments of a git subcommand would cause: a clause, or empty.

An unknown argument is ``?``.
"""

_UNKNOWN = "?"
_QUERIES = """
    status log diff show rev-parse ls-files ls-tree cat-file blame annotate describe shortlog grep merge-base name-rev
    rev-list for-each-ref show-ref diff-tree diff-index diff-files whatchanged count-objects check-ignore check-attr
    cherry range-diff version show-branch verify-commit
"""
_UNSAFE_IN_QUERIES = """
    --output --ext-diff --textconv --open-files-in-pager --filters --no-index --contents --exclude-from
    --ignore-revs-file --show-signature
"""
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
"""Subcommand -> the first words that make it only list."""
_LIST_WITHOUT_ARGUMENTS = frozenset({"branch", "tag", "remote", "reflog", "notes", "submodule"})
_SETTING_NAME = re.compile(r"[A-Za-z][\w-]*\.(?:[\w./-]+\.)?[A-Za-z][\w-]*")
_CONFIG_OPTIONS = re.compile(
    r"--(?:get|get-all|get-regexp|list|global|local|system|worktree|show-origin|show-scope|name-only|null|bool|int)|-[lz]"
)
_MAX_FOLDER_OPTIONS = 20
_OPTIONS_WITH_VALUE = frozenset(
    {"-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--super-prefix"}
)
_GLUED_PATH = re.compile(r"-[fX].")


def judge_git(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of a git command.

    The programs that git starts by itself depend on the repository's configuration and are not considered.
    """
    arguments = list(words[1:])
    before: list[Effect] = []
    while arguments and (arguments[0].value or "-").startswith("-"):
        option = arguments.pop(0).value
        if option == "-C" and arguments:
            folder = arguments.pop(0)
            before.append(judge_read(folder, context))
            context = context.move_to(folder)
            if len(before) >= _MAX_FOLDER_OPTIONS:
                context = replace(context, folders=None)
        elif option not in ("--no-pager", "--no-optional-locks", "--version", "--literal-pathspecs"):
            if option in _OPTIONS_WITH_VALUE and arguments:
                arguments.pop(0)
            before.append(other_effect("an option changes how git works"))
    if not arguments:
        return combine(before) if before or len(words) > 1 else other_effect()
    name, rest = arguments[0].value or _UNKNOWN, arguments[1:]
    values = [_UNKNOWN if word.value is None or word.is_pattern else word.value for word in rest]
    if name in _QUERIES.split():
        effect = _judge_query(name, rest, values=values, context=context)
    elif _is_listing(name, values):
        effect = READ
    else:
        loses = _LOSSES[name](values, context) if name in _LOSSES else ""
        effect = other_effect(f"git {name} changes more than the files of the project", loses=loses)
    return combine((*before, effect))


def _judge_query(name: str, rest: Sequence[Word], *, values: list[str], context: CommandContext) -> Effect:
    options = [value for value in _take_before_dashes(values) if value.startswith(("-", _UNKNOWN))]
    runs_pager = name == "grep" and any(option[:1] == "-" != option[1:2] and "O" in option for option in options)
    if runs_pager or _UNKNOWN in options or any(map(_is_unsafe_in_query, options)):
        return other_effect(f"an option of git {name} is not known to be harmless")
    # In these commands `..` and `~` may be part of a revision, such as `..main`, not of a path.
    takes_revisions = name in ("grep", "log", "rev-parse", "describe")
    starts = ("/", "../") if takes_revisions else ("/", "..", "~")
    paths = [word for word in rest if word.value is not None and word.value.startswith(starts)]
    if name in ("grep", "ls-files"):
        paths += [make_word(option[2:]) for option in options if _GLUED_PATH.match(option)]
    return combine(judge_read(word, context) for word in paths)


def _is_unsafe_in_query(option: str) -> bool:
    # git accepts every unambiguous abbreviation of a long option.
    name = option.partition("=")[0]
    return len(name) > 2 and any(unsafe.startswith(name) for unsafe in _UNSAFE_IN_QUERIES.split())


def _is_listing(name: str, values: list[str]) -> bool:
    if name not in _LISTS:
        return False
    if not values:
        return name in _LIST_WITHOUT_ARGUMENTS
    if _UNKNOWN in values or any(map(_is_unsafe_in_query, values)):
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
    filters = {"--list", "-l", "--contains", "--merged", "--no-merged", "--points-at"}
    rest = [value for value in values if value not in _LISTS[name]]
    return not rest or (values[0] in filters and not any(value.startswith(("-", _UNKNOWN)) for value in rest))


def _take_before_dashes(values: Sequence[str]) -> list[str]:
    return list(values[: values.index("--")] if "--" in values else values)


def _has_option(values: Sequence[str], letters: str, *words: str) -> bool:
    # Letters count in any cluster and words in any abbreviation; an unknown argument may be any option.
    for value in values:
        if value == _UNKNOWN:
            return True
        if value.startswith("--") and any(word.startswith(value.partition("=")[0]) for word in words if value != "--"):
            return True
        if value.startswith("-") and not value.startswith("--") and any(letter in value for letter in letters):
            return True
    return False


def _always(loss: str) -> LossCheck:
    return lambda values, context: loss


def _with_option(loss: str, letters: str, *words: str) -> LossCheck:
    return lambda values, context: loss if _has_option(values, letters, *words) else ""


def _with_verb(loss: str, *names: str) -> LossCheck:
    def check(values: Sequence[str], context: CommandContext) -> str:
        verb = next((value for value in values if not value.startswith("-")), "")
        return loss if verb in (*names, _UNKNOWN) else ""

    return check


def _check_checkout(values: Sequence[str], context: CommandContext) -> str:
    # Creating or switching to a branch loses nothing; naming files overwrites them.
    loss = "changes to files would be overwritten"
    if _has_option(values, "fBp", "--force", "--ours", "--theirs", "--patch", "--merge", "--pathspec-from-file"):
        return loss
    names = [value for value in values if not value.startswith("-")]
    if "--" in values or (len(names) > 1 and "-b" not in values and "--orphan" not in values):
        return loss
    is_file = any(context.project.look(path) for name in names for path in context.resolve(name) or ())
    is_pattern = any(name.startswith(":") or set(name) & set("*?[") for name in names)
    return loss if "-b" not in values and (is_file or is_pattern or context.folders is None) else ""


def _check_clean(values: Sequence[str], context: CommandContext) -> str:
    # After `-e`, `-n` is a pattern, not a dry run.
    is_dry_run = any(
        value in ("-n", "--dry-run") and (at == 0 or values[at - 1] not in ("-e", "--exclude"))
        for at, value in enumerate(_take_before_dashes(values))
    )
    return "" if is_dry_run else "untracked files would be deleted"


def _check_push(values: Sequence[str], context: CommandContext) -> str:
    replaces = any(value.startswith(("+", ":")) for value in values)
    options = ("--force", "--force-with-lease", "--force-if-includes", "--delete", "--mirror", "--prune")
    return "commits on the server could be lost" if replaces or _has_option(values, "fd", *options) else ""


_WORK = "uncommitted changes would be lost"
_COMMITS = "commits could be lost"
_UNFINISHED = _with_option("the operation in progress would be discarded", "", "--abort", "--quit", "--skip")

_LOSSES: Mapping[str, LossCheck] = {
    "reset": _always(_WORK),
    "restore": _always(_WORK),
    "checkout": _check_checkout,
    "checkout-index": _always(_WORK),
    "read-tree": _always(_WORK),
    "clean": _check_clean,
    "stash": _always("uncommitted changes would be removed from the files or discarded"),
    "switch": _with_option(_WORK, "fC", "--force", "--discard-changes", "--force-create", "--merge"),
    "rm": _always("files would be removed"),
    "mv": _with_option("an existing file would be replaced", "f", "--force"),
    "push": _check_push,
    "branch": _with_option(_COMMITS, "dDMCf", "--delete", "--force"),
    "tag": _with_option("tags would be lost", "df", "--delete", "--force"),
    "update-ref": _always(_COMMITS),
    "symbolic-ref": _with_option(_COMMITS, "d", "--delete"),
    "reflog": _with_verb("unreachable commits would be lost", "expire", "delete"),
    "gc": _with_option("unreachable commits would be lost", "", "--prune", "--aggressive"),
    "prune": _always("unreachable commits would be lost"),
    "filter-branch": _always(_COMMITS),
    "filter-repo": _always(_COMMITS),
    "replace": _always(_COMMITS),
    "worktree": _with_verb("a work tree would be removed", "remove", "prune"),
    "submodule": _with_verb(_WORK, "deinit", "update", "foreach"),
    "remote": _with_verb("information about the server would be lost", "remove", "rm", "prune"),
    "notes": _with_verb("notes would be lost", "remove", "prune", "merge"),
    "bisect": _with_verb("changes could be lost", "reset", "run"),
    "commit": _with_option("the previous commit would be replaced", "", "--amend"),
    "rebase": lambda values, context: _COMMITS if values[:1] != ["--continue"] else "",
    "merge": _UNFINISHED,
    "cherry-pick": _UNFINISHED,
    "revert": _UNFINISHED,
    "am": _UNFINISHED,
    "pull": _with_option(_COMMITS, "rf", "--rebase", "--force"),
    "fetch": _with_option(_COMMITS, "pf", "--prune", "--force"),
    "apply": _with_option(_WORK, "R", "--reverse"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """The known options of a program."""

    bad: str = ""
    """Letters of options that make it do more than read."""
    bad_long: tuple[str, ...] = ()
    """The long options that do so; any abbreviation counts."""
    text: str = ""
    """Letters of options whose value is not a path."""
    file: str = ""
    """Letters of options whose value is a path."""
    skipped: int = 0
    """Number of leading arguments that are not paths, such as a pattern."""
    instead: str = ""
    """Letters of options that replace the skipped arguments."""
    instead_long: tuple[str, ...] = ()
    """The long options that do so."""
    takes_paths: bool = True


@dataclass(slots=True)
class Arguments:
    """The parsed arguments of a command."""

    positional: list[Word] = field(default_factory=list)
    letters: set[str] = field(default_factory=set)
    long: list[str] = field(default_factory=list)
    files: list[Word] = field(default_factory=list)
    """Values of options that are, or may be, paths."""
    unclear: list[Word] = field(default_factory=list)
    """Words that may expand to options."""

    def is_bad(self, spec: OptionSpec) -> bool:
        """Return whether an option makes the program do more than read, or may."""
        is_restricted = bool(spec.bad or spec.bad_long)
        return (
            not self.letters.isdisjoint(spec.bad)
            or any(_may_abbreviate(option, bad) for option in self.long for bad in spec.bad_long)
            or (is_restricted and bool(self.unclear))
        )


def _may_abbreviate(option: str, full: str) -> bool:
    name = option.partition("=")[0]
    return full.startswith(name) or (not full.startswith("--") and name == full)


def parse_arguments(words: Sequence[Word], spec: OptionSpec = OptionSpec()) -> Arguments:
    """Parse the arguments that follow the program's name."""
    parsed = Arguments()
    rest = iter(words[1:])
    for word in rest:
        value = word.value
        if value is None or (word.is_pattern and value[0] in "*?["):
            parsed.positional.append(word)
            if not word.is_inside:
                parsed.unclear.append(word)
        elif value == "--":
            parsed.positional.extend(rest)
        elif value.startswith("--"):
            parsed.long.append(value)
            if "=" in value:
                parsed.files.append(make_word(value.partition("=")[2]))
        elif value.startswith("-") and len(value) > 1:
            _parse_letters(value[1:], rest, parsed=parsed, spec=spec)
        else:
            parsed.positional.append(word)
    return parsed


def _parse_letters(cluster: str, rest: Iterator[Word], *, parsed: Arguments, spec: OptionSpec) -> None:
    """Parse a cluster of letters; the value of the last letter is glued to it or is the next word."""
    for at, letter in enumerate(cluster):
        parsed.letters.add(letter)
        if letter in spec.text + spec.file:
            glued = cluster[at + 1 :]
            value = make_word(glued) if glued else next(rest, None)
            if value is not None and not value.is_single:
                parsed.positional.append(value)
                parsed.unclear.append(value)
            elif value is not None and letter in spec.file:
                parsed.files.append(value)
            return
    if "/" in cluster or ".." in cluster:
        parsed.files.append(make_word(cluster[1:]))


_FILE_READERS = """
    cat nl tac rev cut paste comm cmp fold expand unexpand fmt od hexdump md5sum sha1sum sha224sum sha256sum sha384sum
    sha512sum b2sum cksum sum stat ls dir vdir df basename dirname realpath readlink strings column join wc du diff look
"""
_PRINTERS = """
    echo : true false pwd expr seq sleep uname whoami id groups nproc uptime arch tty which type printenv locale cal
    free lscpu break continue return exit shift times numfmt tr
"""
_GREP = OptionSpec(text="ABCmedD", file="f", skipped=1, instead="ef", instead_long=("--regexp", "--file"))

READERS: Mapping[str, OptionSpec] = {
    **dict.fromkeys(_FILE_READERS.split(), OptionSpec()),
    **dict.fromkeys(_PRINTERS.split(), OptionSpec(takes_paths=False)),
    "wait": OptionSpec(bad="p", takes_paths=False),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _GREP),
    **dict.fromkeys(("head", "tail"), OptionSpec(text="nc")),
    "date": OptionSpec(bad="sf", bad_long=("--set", "--file"), text="dI", takes_paths=False),
    "file": OptionSpec(bad="CmzZ", bad_long=("--compile", "--magic-file", "--uncompress", "--uncompress-noreport")),
    "jq": OptionSpec(
        bad="L", bad_long=("--library-path",), file="f", skipped=1, instead="f", instead_long=("--from-file",)
    ),
    "rg": OptionSpec(
        bad="z",
        bad_long=("--pre", "--pre-glob", "--hostname-bin", "--search-zip"),
        text="ABCEegjmMrtTd",
        file="f",
        skipped=1,
        instead="ef",
        instead_long=("--regexp", "--file", "--files", "--type-list"),
    ),
    "sort": OptionSpec(
        bad="oT", bad_long=("--output", "--compress-program", "--temporary-directory", "--files0-from"), text="kSt"
    ),
    **dict.fromkeys(
        ("fd", "fdfind"),
        OptionSpec(
            bad="xX", bad_long=("--exec", "--exec-batch", "--search-path", "--base-directory"), text="dteEgj", skipped=1
        ),
    ),
    "tree": OptionSpec(bad="oR", text="LPI", bad_long=("--output",)),
}


def judge_reader(words: Sequence[Word], context: CommandContext, *, name: str) -> Effect:
    """Return the effect of one of ``READERS``."""
    spec = READERS[name]
    parsed = parse_arguments(words, spec)
    if parsed.is_bad(spec):
        return other_effect(f"an option of {name} is not known to be harmless")
    if not spec.takes_paths:
        return READ
    is_replaced = any(_may_abbreviate(option, full) for option in parsed.long for full in spec.instead_long)
    skipped = 0 if is_replaced or not parsed.letters.isdisjoint(spec.instead) else spec.skipped
    return combine(judge_read(path, context) for path in (*parsed.files, *parsed.positional[skipped:]))


_PRINTS = re.compile(
    r"(?:\d+|\$|/[\w .^$*-]*/)?(?:,(?:\d+|\$|\+\d+|/[\w .^$*-]*/))?[pdq=]"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s([/|,#@])(?:(?!\1)[^\\\n]|\\[^\n])*\1(?:(?!\1)[^\\\n]|\\[^\n])*\1[gpiI0-9]*"
    r"|/[\w .^$*\"'(),=-]*/s/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/[gpiI0-9]*"
    r"|/[\w .^$*\"'(),=-]*/d"
)
"""A sed command that only prints and changes text."""
_HIDDEN_SEPARATOR = re.compile(r"\[\^?\]?[^\]]*[/|,#@]")
"""A bracket that may contain the separator of a substitution, where it is an ordinary character."""
_SED_LETTERS = re.compile(r"-[nErsuz]+")
_SED_IN_PLACE = re.compile(r"-[nErsuz]*i[.\w~]*|--i[a-z-]*(?:=[.\w~]*)?")
_SED_SCRIPT_FOLLOWS = re.compile(r"-[nErsuz]*e")


def judge_sed(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of sed; its scripts can run programs and write files, and ``-i`` writes in place."""
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
    is_unclear = is_unclear or any(map(_may_be_option, positional))
    harmless = all(script.value is not None and _is_harmless_script(script.value) for script in scripts)
    if in_place:
        paths = _judge_in_place(positional, context)
    else:
        paths = combine(judge_read(path, context) for path in positional)
    if is_unclear or not scripts or not harmless:
        return combine((other_effect("the effect of this sed script is not clear"), paths))
    return paths


def _may_be_option(word: Word) -> bool:
    return not (word.is_inside or word.is_exact) and (word.value is None or word.value[0] in "*?[")


def _is_harmless_script(text: str) -> bool:
    if _PRINTS.fullmatch(text) and not _HIDDEN_SEPARATOR.search(text):
        return True
    # In a bracket, `;` does not end a command.
    return "[" not in text and all(_PRINTS.fullmatch(part.strip()) for part in re.split(r"[;\n]", text))


def _judge_in_place(files: Sequence[Word], context: CommandContext) -> Effect:
    are_many = len(files) > 1 or any(not file.is_exact for file in files)
    loss = Effect(kind="write", loses="many files would be changed at once" if are_many else "")
    return combine((loss, *(judge_write(file, context) for file in files)))


_AWK_ACTS = re.compile(r"[|>@]|system|getline|ARGV")
_AWK_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def judge_awk(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of awk; its programs can run programs and write files."""
    parsed = parse_arguments(words, OptionSpec(text="Fv"))
    first = next(iter(parsed.positional), None)
    program = first.value if first is not None and first not in parsed.unclear else None
    if not parsed.letters <= {"F", "v"} or parsed.long or program is None or _may_act(program):
        return other_effect("the effect of this awk program is not clear")
    paths = (path for path in parsed.positional[1:] if not _AWK_ASSIGNMENT.match(path.value or ""))
    return combine(judge_read(path, context) for path in paths)


def _may_act(program: str) -> bool:
    # Before the first block, `>` compares; inside a block it can write a file.
    pattern, brace, blocks = program.partition("{")
    return _AWK_ACTS.search(pattern.replace(">", "") + brace + blocks) is not None


def judge_uniq(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of uniq and xxd, which write to their second file."""
    parsed = parse_arguments(words, OptionSpec(text="fsw" if words[0].value == "uniq" else "lsocg"))
    if parsed.unclear or len(parsed.positional) > 1 or "r" in parsed.letters:
        return other_effect("it may write to its second file")
    return combine(judge_read(path, context) for path in parsed.positional)


SPECIAL_READERS: Mapping[str, Judge] = {
    "sed": judge_sed,
    **dict.fromkeys(("awk", "gawk", "mawk"), judge_awk),
    **dict.fromkeys(("uniq", "xxd"), judge_uniq),
}
