"""Programs that write files: harmless where they make something new in the project, asked about where work is lost."""

import posixpath
import re
from collections.abc import Mapping, Sequence

from cdd_agent.guarded.commands.classes import Finding, joined, other
from cdd_agent.guarded.commands.paths import STREAMS, Setting, reads, writes
from cdd_agent.guarded.commands.programs.readers import Arguments, Judge, Options, taken_apart
from cdd_agent.guarded.commands.words import Word, of_value

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
