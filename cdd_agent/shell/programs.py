"""One simple command: which program it is, under which name soever, and what that does with its words. Pure.

Runs of the project's tests: pytest and unittest with the options that only choose tests and how to tell of them.

Programs that write files: harmless where they make something new in the project, asked about where work is lost.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdd_agent.shell.readers import (
    READERS,
    SPECIAL_READERS,
    Arguments,
    Judge,
    Options,
    judge_git,
    judge_reader,
    taken_apart,
)
from cdd_agent.shell.words import READ, STREAMS, Finding, Folders, Setting, Word, joined, of_value, other, reads, writes
from cdd_agent.shell.wrappers import (
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

TESTS = Finding(kind="tests")

_FLAGS = re.compile(r"-[xqvslhV]+|-r[A-Za-z]+|-p ?no:\w+|-n(?:\d+|auto)|-k.+|-m.+")
_LONG_FLAGS = re.compile(
    r"--(?:exitfirst|quiet|verbose|collect-only|co|no-header|no-summary|last-failed|lf|failed-first|ff|new-first|nf"
    r"|stepwise|sw|stepwise-skip|sw-skip|showlocals|strict-markers|strict-config|strict|disable-warnings|no-cov"
    r"|disable-pytest-warnings|runxfail|version|help|fixtures|markers|setup-show|setup-plan|full-trace|cache-show"
    r"|doctest-modules|continue-on-collection-errors"
    r"|(?:tb|maxfail|durations|durations-min|capture|color|timeout|verbosity|show-capture|deselect|numprocesses)=.+)"
)
_TAKE_TEXT = frozenset({"-k", "-m", "-n", "-r", "--tb", "--maxfail", "--durations", "--color", "--timeout"})
_TAKE_TEST = frozenset({"--deselect"})
_UNITTEST_FLAGS = re.compile(r"-[vqfbch]+|--(?:verbose|quiet|failfast|buffer|catch|locals)")
_PYTHON_FLAGS = re.compile(r"-[BusqIE]+|-W(?:error|ignore|default|always|once|module)|-Xdev")


def judge_pytest(words: Sequence[Word], setting: Setting) -> Finding:
    """pytest; what loads plugins, other configuration or other folders is not among the options that are known."""
    rest = iter(words[1:])
    findings = [TESTS]
    for word in rest:
        value = word.value
        if value == "-p":
            after = next(rest, None)
            if after is None or not re.fullmatch(r"no:\w+", after.value or ""):
                return other("this option of pytest is not known to be harmless")
        elif value in _TAKE_TEXT or value in _TAKE_TEST:
            after = next(rest, None)
            if after is None or not after.is_single:
                return other("an option of pytest cannot be told from its text")
        elif value is not None and value.startswith("-"):
            if not (_FLAGS.fullmatch(value) or _LONG_FLAGS.fullmatch(value)):
                return other(f"{value.partition('=')[0]} of pytest is not known to be harmless")
        else:
            findings.append(_test_target(word, setting))
    return joined(findings)


def _test_target(word: Word, setting: Setting) -> Finding:
    """A test file, a folder or a node id."""
    value = word.value
    if value is None or value.startswith("@") or (word.is_pattern and value[0] in "*?["):
        return other("which tests it runs cannot be told from its text")
    file = value.partition("::")[0]
    return reads(Word(text=word.text, value=file, is_pattern=word.is_pattern), setting)


def judge_python(words: Sequence[Word], setting: Setting) -> Finding:
    """python: its version, or one of the modules that run tests; code and scripts can do anything."""
    at = 1
    while at < len(words) and words[at].is_exact and _PYTHON_FLAGS.fullmatch(words[at].value or ""):
        at += 1
    told = [word.value for word in words[at : at + 2]]
    if told[:1] in (["--version"], ["-V"]) and len(words) == at + 1:
        return READ
    if told == ["-m", "pytest"]:
        return judge_pytest(words[at + 1 :], setting)
    if told == ["-m", "unittest"]:
        return _judge_unittest(words[at + 2 :], setting)
    return other("a program of Python's can do anything")


def _judge_unittest(words: Sequence[Word], setting: Setting) -> Finding:
    """unittest with names of modules, tests and files."""
    for word in words:
        value = word.value
        if not word.is_exact or value is None or (value.startswith("-") and not _UNITTEST_FLAGS.fullmatch(value)):
            return other("an option of unittest is not known to be harmless")
    return joined((TESTS, *(reads(of_value(word.value or ""), setting) for word in words if word.text[0] != "-")))


TESTERS: Mapping[str, Judge] = {
    **dict.fromkeys(("pytest", "py.test"), judge_pytest),
    **dict.fromkeys(("python", "python3", *(f"python3.{minor}" for minor in range(8, 20))), judge_python),
}


WRITE = Finding(kind="write")

_MODE = re.compile(r"[ugoa]*[+-][rwxX]+|0?[0-7]{3}")
_REMOVES = "what it names would be removed"


def judge_maker(words: Sequence[Word], setting: Setting) -> Finding:
    """mkdir, touch and rmdir: nothing that holds anything is lost."""
    found = taken_apart(words, Options(text="mdt", file="r"))
    return joined((*(writes(path, setting, truncates=False) for path in found.positional), *_values(found, setting)))


def judge_remover(words: Sequence[Word], setting: Setting) -> Finding:
    """rm, unlink, shred: whatever they name is gone."""
    found = taken_apart(words, Options())
    gone = Finding(kind="write", loses=_REMOVES)
    return joined((gone, *(writes(path, setting, truncates=False, follows=False) for path in found.positional)))


def judge_truncate(words: Sequence[Word], setting: Setting) -> Finding:
    """truncate: what lies there loses its end."""
    found = taken_apart(words, Options(text="s", file="r"))
    cut = Finding(kind="write", loses="what it names would be cut off")
    return joined((cut, *(writes(path, setting, truncates=False) for path in found.positional)))


def judge_copier(words: Sequence[Word], setting: Setting) -> Finding:
    """cp and mv: the last word is a file that is replaced, or a folder that takes the others in."""
    known = Options(
        bad="tTlsSZ",
        bad_long=(
            "--target-directory",
            "--no-target-directory",
            "--parents",
            "--link",
            "--symbolic-link",
            "--suffix",
        ),
    )
    found = taken_apart(words, known)
    moves = words[0].value == "mv"
    if len(found.positional) < 2 or found.is_bad(known):
        every = joined(writes(path, setting, truncates=True) for path in (*found.positional, *found.files))
        return joined((other("where it writes cannot be told from its text"), every))
    *sources, target = found.positional
    keeps = "n" in found.letters and found.letters.isdisjoint("fiu") and not found.long
    if moves and target.value in STREAMS:
        return Finding(kind="outside", why=f"{target.value} is outside the project")
    taken = (
        writes(path, setting, truncates=False, follows=False) if moves else reads(path, setting) for path in sources
    )
    return joined((WRITE, *taken, _lands(sources, target, setting=setting, keeps=keeps)))


def _lands(sources: Sequence[Word], target: Word, *, setting: Setting, keeps: bool) -> Finding:
    """What it means that ``sources`` come to ``target``."""
    places = setting.places(target.value) if target.is_exact and target.value is not None else None
    if not places or any(setting.ground.look(place) != "folder" for place in places):
        return writes(target, setting, truncates=not keeps)
    if any(not source.is_exact for source in sources):
        loses = "" if keeps else f"what lies in {target.value} could be overwritten"
        return joined((writes(target, setting, truncates=False), Finding(kind="write", loses=loses)))
    named = [of_value(f"{target.value}/{posixpath.basename((source.value or '').rstrip('/'))}") for source in sources]
    return joined(writes(path, setting, truncates=not keeps) for path in named)


def judge_installer(words: Sequence[Word], setting: Setting) -> Finding:
    """install: what its last word names, if it is a file, is replaced."""
    found = taken_apart(words, Options(text="mogS", file="t"))
    targets = [*found.positional[-1:], *found.files]
    there = (writes(path, setting, truncates=_is_no_folder(path, setting)) for path in targets)
    return joined((other("install is not known to be harmless"), *there))


def _is_no_folder(word: Word, setting: Setting) -> bool:
    places = setting.places(word.value) if word.value is not None else None
    return not places or any(setting.ground.look(place) != "folder" for place in places)


def judge_tee(words: Sequence[Word], setting: Setting) -> Finding:
    """tee: what lies there is replaced, unless it is appended to."""
    found = taken_apart(words, Options(bad="-"))
    appends = "a" in found.letters or any("--append".startswith(option) for option in found.long)
    return joined((WRITE, *(writes(path, setting, truncates=not appends) for path in found.positional)))


def judge_dd(words: Sequence[Word], setting: Setting) -> Finding:
    """dd: what ``of=`` names is replaced."""
    targets = [word for word in words[1:] if word.value is None or word.value.startswith("of=")]
    written = (word if word.value is None else of_value(word.value.removeprefix("of=")) for word in targets)
    loses = "what it writes to would be overwritten" if targets else ""
    return joined((other(loses=loses), *(writes(path, setting, truncates=True) for path in written)))


def judge_link(words: Sequence[Word], setting: Setting) -> Finding:
    """ln: a link can make a path of the project lead anywhere."""
    found = taken_apart(words, Options(file="t"))
    replaces = "f" in found.letters or any("--force".startswith(option) for option in found.long)
    ends = (*found.positional, *found.files)
    led = other("a link can lead anywhere", loses="what lies there would be replaced" if replaces else "")
    return joined((led, *(writes(path, setting, truncates=False) for path in ends)))


def judge_mode(words: Sequence[Word], setting: Setting) -> Finding:
    """chmod of files that are named, one mode for all."""
    values = [word.value or "" for word in words[1:]]
    if len(values) < 2 or not _MODE.fullmatch(values[0]) or any(value.startswith("-") for value in values[1:]):
        every = [word for word in words[1:] if not (word.value or "").startswith("-")]
        return joined((other(), *(writes(path, setting, truncates=False) for path in every)))
    return joined(writes(path, setting, truncates=False) for path in words[2:])


def judge_wiper(words: Sequence[Word], setting: Setting) -> Finding:
    """Programs that make file systems, or wipe them."""
    return other("it wipes what it is given", loses="all that lies there")


_REMOVING = ("--del", "--remove-source")
_UNDOES = frozenset({"revert", "purge", "strip", "abandon", "undo", "restore", "clean", "unstash", "--delete", "-C"})


def judge_other_version_control(words: Sequence[Word], setting: Setting) -> Finding:
    """Version control but git's, and programs that make one folder like another."""
    gone = any(word.value is None or word.value.startswith(_REMOVING) or word.value in _UNDOES for word in words[1:])
    told = other(f"{words[0].canonical} is not known to be harmless", loses="changes could be lost" if gone else "")
    last = words[-1]
    if words[0].value == "rsync" and len(words) > 2 and last.value is not None and ":" not in last.value:
        return joined((told, writes(last, setting, truncates=True)))
    return told


def _values(found: Arguments, setting: Setting) -> tuple[Finding, ...]:
    """What it means to read the values of options that are paths."""
    return tuple(reads(path, setting) for path in found.files)


WRITERS: Mapping[str, Judge] = {
    **dict.fromkeys(("mkdir", "touch", "rmdir"), judge_maker),
    **dict.fromkeys(("rm", "unlink", "shred", "srm"), judge_remover),
    "truncate": judge_truncate,
    **dict.fromkeys(("cp", "mv"), judge_copier),
    "install": judge_installer,
    "tee": judge_tee,
    "dd": judge_dd,
    "ln": judge_link,
    "chmod": judge_mode,
    **dict.fromkeys(("mkfs", "wipefs", "mkswap", "blkdiscard"), judge_wiper),
    **dict.fromkeys(("hg", "svn", "jj", "bzr", "fossil", "rsync"), judge_other_version_control),
}


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
