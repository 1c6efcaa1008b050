"""The settings, flags and variables that keep git from running a repository's programs.

A repository's own configuration can name programs as filters, drivers, hooks, signing tools or transports. They are
untrusted code, and git runs them even in commands that seem to only read. Settings from the user's own configuration
stay in force, and so do commit hooks where a caller asks for them. A program that the user names by a relative path is
the repository's too, because git starts it in the work tree.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOTES_REF = "refs/notes/tdd-handoffs"
"""The ref of handoff notes, which git copies when it replaces a commit."""

_ALWAYS = (
    ("core.fsmonitor", "false"),
    ("core.trustctime", "true"),  # otherwise an edit that keeps size and time of a file stays unnoticed
    ("core.checkStat", "default"),
    ("core.quotePath", "false"),
    ("core.pager", "cat"),
    ("core.filesRefLockTimeout", "3000"),  # the default of 0.1 s is too short on a busy machine
    ("core.packedRefsTimeout", "5000"),
    ("advice.addEmbeddedRepo", "false"),
    ("checkout.workers", "0"),  # as many as processors; a tree of 100 files and more is written several times as fast
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
_SKIP_SUBMODULES = "--ignore-submodules=dirty"
"""Otherwise git runs git inside each submodule, with the configuration of that repository."""

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "blame": ("--no-textconv",),
    "diff": (*_NO_PROGRAMS, _SKIP_SUBMODULES),
    "diff-files": (*_NO_PROGRAMS, _SKIP_SUBMODULES),
    "diff-index": (*_NO_PROGRAMS, _SKIP_SUBMODULES),
    "diff-tree": _NO_PROGRAMS,
    "grep": ("--no-textconv",),
    "log": _NO_PROGRAMS,
    "show": _NO_PROGRAMS,
    "status": (_SKIP_SUBMODULES,),
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
_RUNS_ON_COMMIT = re.compile(r"hook\..*\.command", re.DOTALL)
_NAMES_WORK_TREE = re.compile(r"--show-(toplevel|cdup)|\$\(pwd|`pwd|\$\{?(PWD|GIT_WORK_TREE|GIT_DIR|GIT_PREFIX)\b")
_STARTS_ANOTHER = re.compile(r"env|exec|nice|command|time|nohup|stdbuf|timeout|xargs")
_READS_PROGRAM = re.compile(r"([a-z]{0,2}sh|python[\d.]*|perl|ruby|node|php|lua|tclsh)")
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_DEEPEST = 5
_NAMES_A_FILE = re.compile(r"mailmap\.file|core\.(attributesfile|excludesfile)|fsck\.skiplist|blame\.ignorerevsfile")
_OF_COMMITS = re.compile(
    r"(user|author|committer|commit|gpg|hook)\..*|core\.(hookspath|commentchar|commentstring)|i18n\.commitencoding",
    re.DOTALL,
)
"""Whose commits they are, how they are signed, and which hooks run."""
_MAX_FILE_BYTES = 10_000_000
_FILTER = re.compile(r"filter\.(?P<name>.*)\.(clean|smudge|process)", re.DOTALL)
_DRIVER = re.compile(r"merge\.(?P<name>.*)\.driver", re.DOTALL)
_HOOK = re.compile(r"hook\.(?P<name>.*)\.[^.]*", re.DOTALL)
_REPLACEMENTS: Mapping[str, str] = {
    "protocol.ext.allow": "never",
    "gpg.program": "gpg",
    "gpg.openpgp.program": "gpg",
    "gpg.x509.program": "gpgsm",
    "gpg.ssh.program": "ssh-keygen",
}
"""Key -> git's default; for other keys it is empty."""

_PASSED = frozenset(
    {
        *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"),
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"),
        *("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
    }
)
"""The user's identity and configuration files, and limits for finding a repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSetting:
    """One entry of git's configuration."""

    scope: str
    """``system``, ``global``, ``local``, ``worktree`` or ``command``."""
    origin: str
    """``file:PATH`` for an entry of a file."""
    key: str
    """Section and name in lower case; a subsection keeps its case."""
    value: str

    @property
    def is_from_repository(self) -> bool:
        """Whether it came with the repository, or names a program in it; others are the user's."""
        if self.scope in ("local", "worktree"):
            return True
        is_program = _NAMES_A_PROGRAM.fullmatch(self.key) or _RUNS_ON_COMMIT.fullmatch(self.key)
        return self.scope != "command" and is_program is not None and starts_in_work_tree(self.value)


def starts_in_work_tree(command: str, *, depth: int = 0) -> bool:
    """Return whether a command of the shell starts a program by a path that is relative to the work tree.

    >>> [starts_in_work_tree(each) for each in ("tools/clean %f", "sh tools/clean", "git-lfs clean", "~/bin/x")]
    [True, True, False, False]
    """
    if _NAMES_WORK_TREE.search(command) or depth > _DEEPEST:
        return True
    try:
        parser = shlex.shlex(command.removeprefix("!"), posix=True, punctuation_chars=True)
        parser.whitespace_split, parser.commenters = True, ""
        words = list(parser)
    except ValueError:  # a quote without an end
        words = command.split()
    starts = reads = is_code = False
    for word in ("", *words):
        if not word.strip("();<>|&{}"):
            starts, reads, is_code = True, False, False
        elif is_code:  # of a shell, or of another language, where a path is seldom a command
            if starts_in_work_tree(word, depth=depth + 1):
                return True
            reads = is_code = False
        elif starts and not _ASSIGNMENT.fullmatch(word):
            name = word.rpartition("/")[2]
            if "/" in word and "://" not in word and word[0] not in "/~$":
                return True
            starts, reads = _STARTS_ANOTHER.fullmatch(name) is not None, _READS_PROGRAM.fullmatch(name) is not None
        elif reads and word[0] == "-":
            is_code = word[-1] in "ce" and word[1] != "-"
            reads = word != "-m"
        elif reads:
            return word[0] not in "/~$%"
    return False


def parse_settings(text: str) -> tuple[GitSetting, ...]:
    """Parse the output of ``git config --list -z --show-scope --show-origin``."""
    fields = text.split("\0")
    settings = []
    for scope, origin, entry in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        key, _, value = entry.partition("\n")
        settings.append(GitSetting(scope=scope, origin=origin, key=key, value=value))
    return tuple(settings)


def build_overrides(settings: Sequence[GitSetting]) -> tuple[tuple[str, str], ...]:
    """Return settings that replace the repository's programs, followed by the user's own values of each key."""
    own = [setting for setting in settings if setting.scope in ("system", "global") and not setting.is_from_repository]
    keys = (setting.key for setting in settings if setting.is_from_repository)
    overrides: list[tuple[str, str]] = []
    for key in dict.fromkeys(key for key in keys if _NAMES_A_PROGRAM.fullmatch(key)):
        # A merge driver that fails leaves a conflict; without a program, git would end the merge.
        default = "none" if key.startswith("submodule.") else "false" if _DRIVER.fullmatch(key) else ""
        overrides.append((key, _REPLACEMENTS.get(key, default)))
        overrides += [(setting.key, setting.value) for setting in own if setting.key == key]
    files = [each for each in settings if each.is_from_repository and _NAMES_A_FILE.fullmatch(each.key)]
    for key in dict.fromkeys(each.key for each in files if not is_small_file(each.value)):
        overrides += [(key, ""), *((setting.key, setting.value) for setting in own if setting.key == key)]
    overrides += [(f"filter.{name}.required", "false") for name in list_disabled_filters(settings)]
    return tuple(overrides)


def adopt(own: Sequence[GitSetting], user: Sequence[GitSetting]) -> tuple[GitSetting, ...]:
    """Return the settings of a work tree, with those about commits as they are in the checkout of the user."""
    others = (setting for setting in own if not _OF_COMMITS.fullmatch(setting.key))
    return (*others, *(setting for setting in user if _OF_COMMITS.fullmatch(setting.key)))


def list_adopted(
    own: Sequence[GitSetting], user: Sequence[GitSetting], *, hooks_folder: str
) -> tuple[tuple[str, str], ...]:
    """Return keys and values that make git commit in a work tree as it would in the checkout of the user.

    They differ if conditions such as ``includeIf "onbranch:main"`` hold in one of the two only. ``hooks_folder`` is
    git's default.
    """
    defaults = {"core.hookspath": hooks_folder, "commit.gpgsign": "false"}
    found: list[tuple[str, str]] = []
    # cdd's own settings are in both.
    own, user = ([each for each in settings if each.scope != "command"] for settings in (own, user))
    for key in dict.fromkeys(setting.key for setting in (*own, *user) if _OF_COMMITS.fullmatch(setting.key)):
        here, there = ([each.value for each in settings if each.key == key] for settings in (own, user))
        if here == there:
            continue
        found += [(key, value) for value in there]
        if not there and key in defaults:
            found.append((key, defaults[key]))
        elif not there and (match := _HOOK.fullmatch(key)):
            found.append((f"hook.{match['name']}.enabled", "false"))
    return tuple(found)


def is_small_file(path: str) -> bool:
    """Return whether git can read a file in bounded time and memory, unlike ``/dev/zero`` or a pipe."""
    try:
        about = os.stat(os.path.expanduser(path))
    except (OSError, ValueError):
        return not os.path.isabs(path) or not os.path.lexists(path)
    return stat.S_ISREG(about.st_mode) and about.st_size <= _MAX_FILE_BYTES


def list_disabled_filters(settings: Sequence[GitSetting]) -> tuple[str, ...]:
    """Return the filters that only the repository's own configuration defines, and that are not run."""
    active = list_active_filters(settings)
    return tuple(name for name in _list_names(_FILTER, settings) if name not in active)


def list_disabled_drivers(settings: Sequence[GitSetting]) -> frozenset[str]:
    """Return the merge drivers that only the repository's own configuration defines, and that are not run."""
    own = [setting for setting in settings if not setting.is_from_repository]
    return frozenset(_list_names(_DRIVER, settings)) - frozenset(_list_names(_DRIVER, own))


def list_active_filters(settings: Iterable[GitSetting]) -> frozenset[str]:
    """Return the filters that are run: those of the user's own configuration."""
    own = (setting for setting in settings if not setting.is_from_repository)
    return frozenset(_list_names(_FILTER, own))


def build_settings(
    settings: Sequence[GitSetting], *, hooks: bool, signs: bool, adopted: Sequence[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the keys and values that a call sets; the last value of a key counts.

    ``adopted`` come first: they may be those of the repository, whose programs are replaced.
    """
    overrides = (*adopted, *_ALWAYS, *build_overrides(settings), *(() if signs else _UNSIGNED))
    if hooks:
        return overrides
    # Newer versions of git also run hooks that the configuration names.
    named = ((f"hook.{name}.enabled", "false") for name in _list_names(_HOOK, settings))
    return (*overrides, *_NO_HOOKS, *named)


def build_command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of ``git ARGUMENTS``, with flags that keep git from running drivers."""
    verb, *rest = arguments
    return ["git", verb, *_FLAGS.get(verb, ()), *rest]


def build_environment(given: Mapping[str, str], *, settings: Sequence[tuple[str, str]], hooks: bool) -> dict[str, str]:
    """Return the variables of a call: the user's, without those that control git, and the settings."""
    variables = {
        name: value
        for name, value in given.items()
        if name in _PASSED or not name.startswith(("GIT_", "ANTHROPIC_", "SSH_ASKPASS"))
    }
    variables |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_SEQUENCE_EDITOR": "true",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    variables |= format_settings(settings)
    if not hooks:  # hooks inherit the variables, and their own calls of git must not be restricted
        variables |= {
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_ASKPASS": "true",
        }
    return variables


def format_settings(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that give git these keys and values."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    # Not `git -c`, where a key ends at its first `=`, so keys that contain one could not be overridden.
    for number, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _list_names(pattern: re.Pattern[str], settings: Iterable[GitSetting]) -> Iterable[str]:
    """Return the ``name`` in each key that matches ``pattern``, once."""
    return dict.fromkeys(match["name"] for setting in settings if (match := pattern.fullmatch(setting.key)))
