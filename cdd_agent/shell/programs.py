"""The effect of a simple command: which program its first word names, and what the program does with the others.

Test runs and commands that create files in the project are harmless, commands that lose work are not. A program or an
option that is not known has the class ``other``. Everything here is pure.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdd_agent.shell.readers import (
    READERS,
    SPECIAL_READERS,
    Judge,
    OptionSpec,
    judge_git,
    judge_reader,
    parse_arguments,
)
from cdd_agent.shell.words import (
    READ,
    STREAMS,
    CommandContext,
    Effect,
    Folders,
    Word,
    combine,
    judge_read,
    judge_write,
    make_word,
    other_effect,
)
from cdd_agent.shell.wrappers import (
    WRAPPERS,
    judge_env,
    judge_eval,
    judge_find,
    judge_foreign_shell,
    judge_shell,
    judge_variable,
    judge_wrapper,
    judge_xargs,
)

_TESTS = Effect(kind="tests")
_WRITE = Effect(kind="write")
_FLAGS = re.compile(r"-[xqvslhV]+|-r[A-Za-z]+|-p ?no:\w+|-n(?:\d+|auto)|-k.+|-m.+")
_LONG_FLAGS = re.compile(
    r"--(?:exitfirst|quiet|verbose|collect-only|co|no-header|no-summary|last-failed|lf|failed-first|ff|new-first|nf"
    r"|stepwise|sw|stepwise-skip|sw-skip|showlocals|strict-markers|strict-config|strict|disable-warnings|no-cov"
    r"|disable-pytest-warnings|runxfail|version|help|fixtures|markers|setup-show|setup-plan|full-trace|cache-show"
    r"|doctest-modules|continue-on-collection-errors"
    r"|(?:tb|maxfail|durations|durations-min|capture|color|timeout|verbosity|show-capture|deselect|numprocesses)=.+)"
)
_OPTIONS_WITH_VALUE = frozenset(
    {"-k", "-m", "-n", "-r", "--tb", "--maxfail", "--durations", "--color", "--timeout", "--deselect"}
)
_UNITTEST_FLAGS = re.compile(r"-[vqfbch]+|--(?:verbose|quiet|failfast|buffer|catch|locals)")
_PYTHON_FLAGS = re.compile(r"-[BusqIE]+|-W(?:error|ignore|default|always|once|module)|-Xdev")


def _judge_pytest(words: Sequence[Word], context: CommandContext) -> Effect:
    # Options that load plugins, another configuration or other folders are deliberately not known.
    rest = iter(words[1:])
    effects = [_TESTS]
    for word in rest:
        value = word.value
        if value == "-p":
            after = next(rest, None)
            if after is None or not re.fullmatch(r"no:\w+", after.value or ""):
                return other_effect("an option of pytest is not known to be harmless")
        elif value in _OPTIONS_WITH_VALUE:
            after = next(rest, None)
            if after is None or not after.is_single:
                return other_effect("an option of pytest is not clear from its text")
        elif value is not None and value.startswith("-"):
            if not (_FLAGS.fullmatch(value) or _LONG_FLAGS.fullmatch(value)):
                return other_effect(f"{value.partition('=')[0]} of pytest is not known to be harmless")
        else:
            effects.append(_judge_test_target(word, context))
    return combine(effects)


def _judge_test_target(word: Word, context: CommandContext) -> Effect:
    value = word.value
    if value is None or value.startswith("@") or (word.is_pattern and value[0] in "*?["):
        return other_effect("the tests it runs are not clear from its text")
    return judge_read(replace(word, value=value.partition("::")[0]), context)


def _judge_python(words: Sequence[Word], context: CommandContext) -> Effect:
    at = 1
    while at < len(words) and words[at].is_exact and _PYTHON_FLAGS.fullmatch(words[at].value or ""):
        at += 1
    start = [word.value for word in words[at : at + 2]]
    if start[:1] in (["--version"], ["-V"]) and len(words) == at + 1:
        return READ
    if start == ["-m", "pytest"]:
        return _judge_pytest(words[at + 1 :], context)
    if start == ["-m", "unittest"]:
        return _judge_unittest(words[at + 2 :], context)
    return other_effect("a Python program can do anything")


def _judge_unittest(words: Sequence[Word], context: CommandContext) -> Effect:
    for word in words:
        value = word.value
        if not word.is_exact or value is None or (value.startswith("-") and not _UNITTEST_FLAGS.fullmatch(value)):
            return other_effect("an option of unittest is not known to be harmless")
    tests = (make_word(word.value or "") for word in words if word.text[0] != "-")
    return combine((_TESTS, *(judge_read(test, context) for test in tests)))


_MODE = re.compile(r"[ugoa]*[+-][rwxX]+|0?[0-7]{3}")


def _judge_maker(words: Sequence[Word], context: CommandContext) -> Effect:
    # mkdir, touch and rmdir lose nothing: rmdir removes only empty folders.
    parsed = parse_arguments(words, OptionSpec(text="mdt", file="r"))
    written = (judge_write(path, context) for path in parsed.positional)
    return combine((*written, *(judge_read(path, context) for path in parsed.files)))


def _judge_remover(words: Sequence[Word], context: CommandContext) -> Effect:
    removed = (judge_write(path, context, follows=False) for path in parse_arguments(words).positional)
    return combine((Effect(kind="write", loses="the files it names would be removed"), *removed))


def _judge_truncate(words: Sequence[Word], context: CommandContext) -> Effect:
    parsed = parse_arguments(words, OptionSpec(text="s", file="r"))
    loss = Effect(kind="write", loses="the files it names would be truncated")
    return combine((loss, *(judge_write(path, context) for path in parsed.positional)))


_COPY_OPTIONS = OptionSpec(
    bad="tTlsSZ",
    bad_long=("--target-directory", "--no-target-directory", "--parents", "--link", "--symbolic-link", "--suffix"),
)


def _judge_copier(words: Sequence[Word], context: CommandContext) -> Effect:
    # The last argument of cp and mv is a file to replace or a folder to fill.
    parsed = parse_arguments(words, _COPY_OPTIONS)
    moves = words[0].value == "mv"
    if len(parsed.positional) < 2 or parsed.is_bad(_COPY_OPTIONS):
        every = (judge_write(path, context, truncates=True) for path in (*parsed.positional, *parsed.files))
        return combine((other_effect("where it writes is not clear from its text"), combine(every)))
    *sources, target = parsed.positional
    if moves and target.value in STREAMS:
        return Effect(kind="outside", why=f"{target.value} is outside the project")
    sourced = (judge_write(path, context, follows=False) if moves else judge_read(path, context) for path in sources)
    never_overwrites = "n" in parsed.letters and parsed.letters.isdisjoint("fiu") and not parsed.long
    return combine((_WRITE, *sourced, _judge_target(sources, target, context=context, truncates=not never_overwrites)))


def _judge_target(sources: Sequence[Word], target: Word, *, context: CommandContext, truncates: bool) -> Effect:
    if not target.is_exact or not context.is_folder(target):
        return judge_write(target, context, truncates=truncates)
    if any(not source.is_exact for source in sources):
        loses = f"files in {target.value} could be overwritten" if truncates else ""
        return combine((judge_write(target, context), Effect(kind="write", loses=loses)))
    names = (posixpath.basename((source.value or "").rstrip("/")) for source in sources)
    return combine(judge_write(make_word(f"{target.value}/{name}"), context, truncates=truncates) for name in names)


def _judge_install(words: Sequence[Word], context: CommandContext) -> Effect:
    parsed = parse_arguments(words, OptionSpec(text="mogS", file="t"))
    targets = [*parsed.positional[-1:], *parsed.files]
    written = (judge_write(path, context, truncates=not context.is_folder(path)) for path in targets)
    return combine((other_effect("install is not known to be harmless"), *written))


def _judge_tee(words: Sequence[Word], context: CommandContext) -> Effect:
    parsed = parse_arguments(words, OptionSpec(bad="-"))
    appends = "a" in parsed.letters or any("--append".startswith(option) for option in parsed.long)
    return combine((_WRITE, *(judge_write(path, context, truncates=not appends) for path in parsed.positional)))


def _judge_dd(words: Sequence[Word], context: CommandContext) -> Effect:
    targets = [word for word in words[1:] if word.value is None or word.value.startswith("of=")]
    files = (word if word.value is None else make_word(word.value.removeprefix("of=")) for word in targets)
    loses = "the file it writes to would be overwritten" if targets else ""
    return combine((other_effect(loses=loses), *(judge_write(path, context, truncates=True) for path in files)))


def _judge_link(words: Sequence[Word], context: CommandContext) -> Effect:
    parsed = parse_arguments(words, OptionSpec(file="t"))
    replaces = "f" in parsed.letters or any("--force".startswith(option) for option in parsed.long)
    link = other_effect("a link can lead anywhere", loses="an existing file would be replaced" if replaces else "")
    return combine((link, *(judge_write(path, context) for path in (*parsed.positional, *parsed.files))))


def _judge_chmod(words: Sequence[Word], context: CommandContext) -> Effect:
    values = [word.value or "" for word in words[1:]]
    if len(values) < 2 or not _MODE.fullmatch(values[0]) or any(value.startswith("-") for value in values[1:]):
        every = [word for word in words[1:] if not (word.value or "").startswith("-")]
        return combine((other_effect(), *(judge_write(path, context) for path in every)))
    return combine(judge_write(path, context) for path in words[2:])


_REMOVING = ("--del", "--remove-source")
_UNDOES = frozenset({"revert", "purge", "strip", "abandon", "undo", "restore", "clean", "unstash", "--delete", "-C"})


def _judge_other_version_control(words: Sequence[Word], context: CommandContext) -> Effect:
    removes = any(word.value is None or word.value.startswith(_REMOVING) or word.value in _UNDOES for word in words[1:])
    loses = "changes could be lost" if removes else ""
    effect = other_effect(f"{words[0].canonical} is not known to be harmless", loses=loses)
    last = words[-1]
    if words[0].value == "rsync" and len(words) > 2 and last.value is not None and ":" not in last.value:
        return combine((effect, judge_write(last, context, truncates=True)))
    return effect


_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
_VENV_PROGRAM = re.compile(r"(?:\./)?(?:\.venv|venv|env)/bin/(python[\d.]*|pytest|py\.test)")
_SHELLS = frozenset({"bash", "sh", "dash"})
_FOREIGN_SHELLS = frozenset({"zsh", "ksh", "mksh", "ash", "rbash", "fish"})
_SPECIAL_WRAPPERS = {"env": judge_env, "xargs": judge_xargs, "find": judge_find}
_MAX_WRAPPERS = 20


def judge_words(words: Sequence[Word], context: CommandContext) -> Effect:
    """Return the effect of a command, given its words with the program's name first."""
    # Each wrapper judges the rest of the line again; a long chain of them would take too long.
    wrappers = (*WRAPPERS, *_SPECIAL_WRAPPERS, "command", "jobs")
    if len(words) > _MAX_WRAPPERS and sum(_get_program_name(word) in wrappers for word in words) > _MAX_WRAPPERS:
        return other_effect()
    name = _get_program_name(words[0])
    if name is None:
        unclear = other_effect("the program it runs is not clear from its text")
        rest = next((words[at:] for at, word in enumerate(words) if word.value is not None), ())
        return combine((unclear, judge_words(rest, context))) if rest and _get_program_name(rest[0]) else unclear
    if name in READERS:
        return judge_reader(words, context, name=name)
    if name in WRAPPERS:
        return judge_wrapper(words, context, name=name, inner=judge_words)
    if name in _SPECIAL_WRAPPERS:
        return _SPECIAL_WRAPPERS[name](words, context, inner=judge_words)
    if name in _JUDGES:
        return _JUDGES[name](words, context)
    if name in _FIXED_EFFECTS:
        return _FIXED_EFFECTS[name]
    return other_effect(f"{words[0].value} is not known to be harmless")


def _get_program_name(word: Word) -> str | None:
    """Return the name of a system program or of a program in the project's environment; None if it is not clear."""
    value = word.value
    if not word.is_exact or not value:
        return None
    folder, slash, name = value.rpartition("/")
    if not slash or folder in _SYSTEM_FOLDERS:
        return "mkfs" if name.startswith("mkfs.") else name
    match = _VENV_PROGRAM.fullmatch(value)
    return match[1] if match else value


def find_folders_after(words: Sequence[Word], context: CommandContext) -> Folders:
    """Return the folders in which the shell may be after a command such as cd succeeded."""
    target = _find_cd_target(words)
    if words[0].value != "cd" or target is None:
        return None
    return context.move_to(make_word(target)).folders


def _find_cd_target(words: Sequence[Word]) -> str | None:
    targets = [word for word in words[1:] if word.value not in ("-P", "-L", "--")]
    value = targets[0].value if len(targets) == 1 and targets[0].is_exact else None
    return None if value is None or value.startswith("-") else value


def _judge_cd(words: Sequence[Word], context: CommandContext) -> Effect:
    target = _find_cd_target(words)
    if target is None and words[0].value != "popd":
        return replace(other_effect("its target folder is not clear from its text"), moves=True)
    if target is not None and (context.is_outside(target) or context.is_linked_outside(target)):
        return replace(other_effect(f"{target} may be outside the project"), moves=True)
    return replace(READ, moves=True)


def _judge_command(words: Sequence[Word], context: CommandContext) -> Effect:
    at = 2 if len(words) > 1 and words[1].value in ("-p", "--") else 1
    if len(words) > 1 and words[1].value in ("-v", "-V"):
        return READ
    if at >= len(words) or (words[at].value or "-").startswith("-"):
        return other_effect()
    return judge_words(words[at:], context)


def _judge_jobs(words: Sequence[Word], context: CommandContext) -> Effect:
    # `jobs -x` runs a command.
    if all(re.fullmatch(r"-[lnprs]+|%\S+", word.value or "") for word in words[1:]):
        return READ
    return combine((other_effect("it can run a command"), judge_words(words[2:], context) if words[2:] else READ))


_UNARY = re.compile(r"-[abcdefghknoprstuwxzGLNOS]")
_BINARY = re.compile(r"=|==|!=|<|>|-(?:eq|ne|gt|ge|lt|le|nt|ot|ef)")


def _judge_test(words: Sequence[Word], context: CommandContext) -> Effect:
    # `test -v` evaluates its argument, and an unknown word could become that operator.
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
    return READ if None not in values and "-v" not in values and "-R" not in values else other_effect()


def _judge_printf(words: Sequence[Word], context: CommandContext) -> Effect:
    # `printf -v` sets a variable.
    first = words[1].value if len(words) > 1 else ""
    return READ if first is not None and (first == "--" or not first.startswith("-")) else other_effect()


def _judge_read(words: Sequence[Word], context: CommandContext) -> Effect:
    # Programs do not read variables with lower-case names.
    names = [word.value for word in words[1:]]
    if any(name is None or not re.fullmatch(r"-[rsa]+|-[dntu].*|\d+|[a-z_][a-z0-9_]*|", name) for name in names):
        return replace(other_effect("it sets variables that may affect programs"), taints=True)
    return READ


def _judge_set(words: Sequence[Word], context: CommandContext) -> Effect:
    rest = [word.value or "" for word in words[1:]]
    known = all(re.fullmatch(r"[-+][euxf]*o?|pipefail|errexit|nounset|xtrace", value) for value in rest)
    return READ if known and rest else replace(other_effect(), taints=True)


def _judge_export(words: Sequence[Word], context: CommandContext) -> Effect:
    # Reached if the parser takes export or declare for an ordinary command.
    effects = []
    for word in words[1:]:
        name, equals, value = (word.value or "").partition("=")
        known = word.value is not None and not name.startswith("-")
        effects.append(
            judge_variable(name, value if equals else None, context=context, lasts=True) if known else other_effect()
        )
    return replace(combine(effects), taints=True)


def _judge_trap(words: Sequence[Word], context: CommandContext) -> Effect:
    # The script of a trap is judged as if it ran now.
    scripts = [word.value for word in words[1:2] if word.is_exact and word.value not in (None, "-", "--")]
    return replace(other_effect("it runs a command later"), lines=tuple(filter(None, scripts)), moves=True, taints=True)


def _judge_unpacker(words: Sequence[Word], context: CommandContext) -> Effect:
    name = (words[0].value or "").rpartition("/")[2]
    option, is_file = _OUTPUT_OPTIONS[name]
    targets: list[Word] = []
    for at, word in enumerate(words):
        match = option.fullmatch(word.value or "")
        if match is not None:
            targets += [make_word(match["glued"])] if match["glued"] else words[at + 1 : at + 2]
    written = (judge_write(target, context, truncates=is_file) for target in targets)
    return combine((other_effect(f"{words[0].value} is not known to be harmless"), *written))


_OUTPUT_OPTIONS: Mapping[str, tuple[re.Pattern[str], bool]] = {
    "tar": (re.compile(r"(?:-C|--directory=?)(?P<glued>.*)"), False),
    "unzip": (re.compile(r"-d(?P<glued>.*)"), False),
    "7z": (re.compile(r"-o(?P<glued>.+)"), False),
    "cpio": (re.compile(r"(?:-D|--directory=?)(?P<glued>.*)"), False),
    "curl": (re.compile(r"(?:-[fgikLsSv]*o|--output=?)(?P<glued>.*)"), True),
    "wget": (re.compile(r"(?:-[cqv]*[oO]|--output-(?:document|file)=?)(?P<glued>.*)"), True),
}
"""Program -> the option that names its output, and whether the output is a file rather than a folder."""


_FIXED_EFFECTS: Mapping[str, Effect] = {
    **dict.fromkeys(
        ("mkfs", "wipefs", "mkswap", "blkdiscard"),
        other_effect("it erases the device or file it names", loses="everything on it would be lost"),
    ),
    **dict.fromkeys(
        ("source", ".", "alias", "unalias", "shopt", "enable", "hash", "umask", "let"),
        replace(other_effect("it can change the meaning of later commands"), moves=True, taints=True),
    ),
}
_JUDGES: Mapping[str, Judge] = {
    **SPECIAL_READERS,
    **dict.fromkeys(("pytest", "py.test"), _judge_pytest),
    **dict.fromkeys(("python", "python3", *(f"python3.{minor}" for minor in range(8, 20))), _judge_python),
    **dict.fromkeys(("mkdir", "touch", "rmdir"), _judge_maker),
    **dict.fromkeys(("rm", "unlink", "shred", "srm"), _judge_remover),
    "truncate": _judge_truncate,
    **dict.fromkeys(("cp", "mv"), _judge_copier),
    "install": _judge_install,
    "tee": _judge_tee,
    "dd": _judge_dd,
    "ln": _judge_link,
    "chmod": _judge_chmod,
    **dict.fromkeys(("hg", "svn", "jj", "bzr", "fossil", "rsync"), _judge_other_version_control),
    "command": _judge_command,
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
    **dict.fromkeys(_OUTPUT_OPTIONS, _judge_unpacker),
}


def is_path_source(words: Sequence[Word], *, is_fed: bool) -> bool:
    """Return whether a read-only command prints only paths of the project.

    ``is_fed``: its standard input contains only such paths.
    """
    values = [word.value or "" for word in words]
    match values:
        case ["find", *rest]:
            return not any(value.startswith(("-printf", "-print0f", "-ls")) for value in rest)
        case ["git", "ls-files", *rest]:
            others = ("--format", "-s", "--stage", "-t", "-v", "--debug", "-e")
            return not any(value.startswith(others) for value in rest)
        case ["grep" | "rg", *rest]:
            letters = set("".join(value for value in rest if value.startswith("-") and not value.startswith("--")))
            long = {value for value in rest if value.startswith("--") and not value.startswith("--include")}
            names_files = {"--files-with-matches", "--files"}
            if ("l" in letters or long & names_files) and not letters & set("0Zc"):
                return long <= names_files
            return is_fed and values[0] == "grep" and letters <= set("-vEFi") and not long
        case ["sort" | "head" | "tail" | "uniq", *rest]:
            return is_fed and not any(value.startswith(("-c", "--count")) for value in rest)
    return False
