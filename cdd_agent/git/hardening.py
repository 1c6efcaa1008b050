"""What a call of git is given so that nothing a repository brings along is run: settings, flags, environment. Pure.

A repository's own configuration can name programs: for filters, drivers, hooks, signing, transports. They are another
person's code, and git runs them in commands that only seem to read. What the user has in his own configuration stays,
and so do the commit hooks where a caller asks for them.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOTES_REF = "refs/notes/tdd-handoffs"
"""Where handoff notes lie: what git carries over to a commit that it makes in the place of another."""

_ALWAYS = (
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("core.pager", "cat"),
    ("core.filesRefLockTimeout", "3000"),  # git waits 0.1 s for another writer; a busy machine needs more
    ("core.packedRefsTimeout", "5000"),
    ("advice.addEmbeddedRepo", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("diff.external", ""),
    ("diff.ignoreSubmodules", "dirty"),
    ("i18n.logOutputEncoding", "UTF-8"),
    ("log.showSignature", "false"),
    ("notes.rewriteRef", NOTES_REF),
    ("notes.rewriteMode", "concatenate"),
    ("notes.rewrite.amend", "true"),
    ("notes.rewrite.rebase", "true"),
    ("safe.bareRepository", "explicit"),
    ("submodule.recurse", "false"),
)
_NO_HOOKS = (("core.hooksPath", os.devnull), ("protocol.allow", "never"))
_UNSIGNED = (("commit.gpgSign", "false"), ("tag.gpgSign", "false"))

_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv")
_NOT_INSIDE = "--ignore-submodules=dirty"
"""git looks at what changed inside a submodule by running git there, under that repository's configuration."""

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "blame": ("--no-textconv",),
    "diff": (*_NO_PROGRAMS, _NOT_INSIDE),
    "diff-files": (*_NO_PROGRAMS, _NOT_INSIDE),
    "diff-index": (*_NO_PROGRAMS, _NOT_INSIDE),
    "diff-tree": _NO_PROGRAMS,
    "grep": ("--no-textconv",),
    "log": _NO_PROGRAMS,
    "show": _NO_PROGRAMS,
    "status": (_NOT_INSIDE,),
}

_NAMES_A_PROGRAM = re.compile(
    r"core\.(editor|pager|sshcommand|askpass|gitproxy|alternaterefscommand)"
    r"|sequence\.editor|interactive\.difffilter|pager\..*|alias\..*"
    r"|diff\.(external|.*\.(command|textconv))|(diff|merge)tool\..*\.(cmd|path)|merge\..*\.driver"
    r"|filter\..*\.(clean|smudge|process)"
    r"|gpg\.program|gpg\..*\.(program|defaultkeycommand)"
    r"|credential\.(.*\.)?helper|remote\..*\.(uploadpack|receivepack|vcs|proxy)|uploadpack\.packobjectshook"
    r"|protocol\.ext\.allow|submodule\..*\.update|trailer\..*\.(command|cmd)|gc\.recentobjectshook",
    re.DOTALL,
)
_FILTER = re.compile(r"filter\.(?P<name>.*)\.(clean|smudge|process)", re.DOTALL)
_HOOK = re.compile(r"hook\.(?P<name>.*)\.[^.]*", re.DOTALL)
_INSTEAD: Mapping[str, str] = {
    "protocol.ext.allow": "never",
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.x509.program": "gpgsm",
    "gpg.ssh.program": "ssh-keygen",
}
"""Key -> what git takes where nothing is set; no text stands for the rest."""

_KEPT = frozenset(
    {
        *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
        *("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
    }
)
"""Who the user is, where his own configuration lies and how far a repository is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSetting:
    """One entry of git's configuration."""

    scope: str
    """``system``, ``global``, ``local``, ``worktree`` or ``command``."""
    origin: str
    """``file:PATH`` for an entry of a file."""
    key: str
    """Section and name in lower case, what is between them as it is written."""
    value: str

    @property
    def is_of_the_repository(self) -> bool:
        """Whether it came with the repository; the rest is the user's."""
        return self.scope in ("local", "worktree")


def parse_settings(text: str) -> tuple[GitSetting, ...]:
    """The entries that ``git config --list -z --show-scope --show-origin`` prints."""
    fields = text.split("\0")
    found = []
    for scope, origin, entry in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        key, _, value = entry.partition("\n")
        found.append(GitSetting(scope=scope, origin=origin, key=key, value=value))
    return tuple(found)


def build_overrides(found: Sequence[GitSetting]) -> tuple[tuple[str, str], ...]:
    """Key and value of each setting that takes the place of a program named by the repository.

    Where the user's own configuration has the key too, its values come back after it.
    """
    own = [setting for setting in found if setting.scope in ("system", "global")]
    made: list[tuple[str, str]] = []
    for key in _programs_named(found):
        made.append((key, "none" if key.startswith("submodule.") else _INSTEAD.get(key, "")))
        made += [(setting.key, setting.value) for setting in own if setting.key == key]
    made += [(f"filter.{name}.required", "false") for name in list_disabled_filters(found)]
    return tuple(made)


def build_hook_overrides(found: Iterable[GitSetting]) -> tuple[tuple[str, str], ...]:
    """What turns off the hooks that newer versions of git take from any configuration."""
    names = dict.fromkeys(match["name"] for setting in found if (match := _HOOK.fullmatch(setting.key)))
    return tuple((f"hook.{name}.enabled", "false") for name in names)


def list_disabled_filters(found: Sequence[GitSetting]) -> tuple[str, ...]:
    """Names of the filters that only the repository's own configuration defines."""
    own = {_filter_of(setting.key) for setting in found if not setting.is_of_the_repository}
    names = dict.fromkeys(_filter_of(key) for key in _programs_named(found))
    return tuple(name for name in names if name is not None and name not in own)


def list_active_filters(found: Sequence[GitSetting]) -> frozenset[str]:
    """Names of the filters that are run: those of the user's own configuration."""
    names = {_filter_of(setting.key) for setting in found} - {None, *list_disabled_filters(found)}
    return frozenset(name for name in names if name is not None)


def build_settings(found: Sequence[GitSetting], *, hooks: bool, signs: bool) -> tuple[tuple[str, str], ...]:
    """All settings that a call is given, the later ones in force."""
    made = (*_ALWAYS, *build_overrides(found), *(() if signs else _UNSIGNED))
    return made if hooks else (*made, *_NO_HOOKS, *build_hook_overrides(found))


def build_command(arguments: Sequence[str]) -> list[str]:
    """The command line of ``git ARGUMENTS``, with the flags that keep it from running drivers."""
    verb, *rest = arguments
    return ["git", verb, *_FLAGS.get(verb, ()), *rest]


def build_environment(given: Mapping[str, str], *, settings: Sequence[tuple[str, str]], hooks: bool) -> dict[str, str]:
    """The variables of a call: the user's without those that steer git, and the settings.

    The settings are variables, as a name on the command line ends at its first ``=``. Hooks inherit what is set here,
    so theirs holds only what git itself needs.
    """
    made = {
        name: value
        for name, value in given.items()
        if name in _KEPT or not name.startswith(("GIT_", "ANTHROPIC_", "SSH_ASKPASS"))
    }
    made |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": "true",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for number, (key, value) in enumerate(settings):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    if not hooks:
        made |= {
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_ASKPASS": "true",
        }
    return made


def _programs_named(found: Iterable[GitSetting]) -> tuple[str, ...]:
    """Keys of the repository's own configuration that name a program, each once."""
    theirs = (setting.key for setting in found if setting.is_of_the_repository)
    return tuple(dict.fromkeys(key for key in theirs if _NAMES_A_PROGRAM.fullmatch(key)))


def _filter_of(key: str) -> str | None:
    """The name of the filter that ``key`` defines, if it does."""
    match = _FILTER.fullmatch(key)
    return None if match is None else match["name"]
