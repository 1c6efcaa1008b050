"""Programs that only read, as long as none of a few options makes them do more. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cdd_agent.shell.words import READ, Finding, Setting, Word, joined, of_value, other, reads, writes

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
