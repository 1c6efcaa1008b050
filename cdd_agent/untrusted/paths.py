"""Names that stay as they are: what git, this program, editors, agents, CI and Python itself obey without being asked.

An agent that could write them could run something later, outside every sandbox, or turn the approvals off.
``docs/reference/tools.md`` lists them. Names count in any spelling and at any depth. Pure, but for the two
functions that look at a folder.

Names by which the usual runners of commit hooks are told what to run, relative to the work tree. Pure.

Names as the most forgiving file system would compare them, so that no spelling of a guarded name gets past. Pure.

Files whose names say that they hold secrets: they are not read out to a model. Pure.
"""

import os
import re
import unicodedata
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

FOLDERS = (".git-hooks", ".githooks", ".husky", ".lefthook", ".lefthook-local")
"""All that lies in them, at any depth: hooks, and what hooks read."""

_LEFTHOOK = tuple(
    f"{stem}{local}.{kind}"
    for stem, local, kind in product(
        ("lefthook", ".lefthook", ".config/lefthook"), ("", "-local"), ("json", "jsonc", "toml", "yaml", "yml")
    )
)

FILES = (
    ".huskyrc",
    ".huskyrc.js",
    ".huskyrc.json",
    ".huskyrc.yaml",
    ".huskyrc.yml",
    ".local-overcommit.yml",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    "captainhook.json",
    "husky.config.js",
    "prek.toml",
    *_LEFTHOOK,
)


_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


def folded(name: str) -> str:
    """One component of a path with case, width, invisible characters, and dots and blanks at its end gone.

    What follows a colon is dropped: to NTFS it names a stream of the same file. ``.`` and ``..`` stay as they are.
    """
    if name.strip(".") == "":
        return name
    plain = name if name.isascii() else _unadorned(name)
    return plain.lower().partition(":")[0].rstrip(". \t\r\n")


def _unadorned(name: str) -> str:
    """``name`` without what cannot be seen, in compatibility form, its case folded."""
    visible = "".join(
        letter
        for letter in name
        if unicodedata.category(letter) != "Cf" and ord(letter) not in _VARIATION_SELECTORS and letter != "\u034f"
    )
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


PRIVATE_FOLDERS = frozenset({".git", ".cdd"})
"""Neither read nor written: git's own files and this program's."""

STATE_FILE = "execution-state.json"
"""Read by anybody, written (with all its copies) by the program alone."""

SETTINGS_FOLDERS = (
    ".amazonq",
    ".buildkite",
    ".circleci",
    ".claude",
    ".codex",
    ".config/mise",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".fleet",
    ".forgejo/workflows",
    ".gemini",
    ".gitea/workflows",
    ".github/actions",
    ".github/workflows",
    ".hg",
    ".idea",
    ".idx",
    ".junie",
    ".kiro",
    ".mise",
    ".opencode",
    ".roo",
    ".trae",
    ".vs",
    ".vscode",
    ".windsurf",
    ".woodpecker",
    ".zed",
    *FOLDERS,
)
"""Settings that start programs: of editors, of other agents, of CI, hooks kept in the project."""

SETTINGS_FILES = (
    ".aider.conf.yml",
    ".appveyor.yml",
    ".cirrus.yml",
    ".config/mise.toml",
    ".devcontainer.json",
    ".dir-locals-2.el",
    ".dir-locals.el",
    ".drone.yml",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".gitattributes",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".gitpod.yml",
    ".lldbinit",
    ".mcp.json",
    ".mise.local.toml",
    ".mise.toml",
    ".nvim.lua",
    ".nvimrc",
    ".pdbrc",
    ".pdm-python",
    ".pnpmfile.cjs",
    ".replit",
    ".tool-versions",
    ".travis.yml",
    ".vimrc",
    ".woodpecker.yaml",
    ".woodpecker.yml",
    ".yarnrc",
    "Jenkinsfile",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "mise.local.toml",
    "mise.toml",
    "opencode.json",
    "opencode.jsonc",
    *FILES,
)
"""The same in single files. ``.gitattributes`` is one: it decides what a diff shows, and which programs git runs."""

SETTINGS_ENDINGS = (".code-workspace",)
"""The same in files of any name that ends so."""

STARTUP_FILES = ("*.pth", "sitecustomize.py", "usercustomize.py")
"""Loaded by every Python that has their folder on its path."""

ENVIRONMENT_FOLDERS = frozenset(
    {".conda", ".hatch", ".nox", ".pixi", ".tox", ".venv", "__pycache__", "__pypackages__", "venv"}
)
"""Where the interpreter of the tests, or compiled code, may lie. A folder that holds one of the marks is one too."""

ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""What makes a folder an environment: a virtual one, one of conda's kind."""

_SETTINGS_FILES = (*(f"/{folded(name)}/" for name in SETTINGS_FILES), *(f"{ending}/" for ending in SETTINGS_ENDINGS))
_IN_SETTINGS_FOLDER = re.compile(f"/(?:{'|'.join(re.escape(folded(name)) for name in SETTINGS_FOLDERS)})/")
_COMPILED = "__pycache__"
_GIT_BY_OTHER_NAMES = frozenset({"git~1"})
_CUSTOMIZE = frozenset({"sitecustomize", "usercustomize"})
_NOT_WALKED = PRIVATE_FOLDERS | ENVIRONMENT_FOLDERS | {"node_modules"}


def private_part(path: str) -> str | None:
    """The first component of a relative path that names a private folder, as it is written there."""
    return next((part for part in path.split("/") if _is_private(folded(part))), None)


def protected_by(path: str) -> str | None:
    """Why no agent writes to a relative path, as the end of the sentence "it ..."; None if one may.

    Private folders are for ``private_part``; tests and pytest's configuration are the business of the phases.
    """
    names = [folded(part) for part in path.split("/") if part not in ("", ".")]
    if any(name.startswith(STATE_FILE) for name in names):
        return "is the state of a ticket, which only the program writes"
    if any(name in ENVIRONMENT_FOLDERS or name in ENVIRONMENT_MARKS for name in names):
        return "lies where the interpreter of the tests, or compiled code, is kept"
    if any(name.partition(".")[0] in _CUSTOMIZE or name.endswith(".pth") for name in names):
        return "is run by every Python that starts with that folder on its path"
    joined = "/" + "/".join(names) + "/"
    if joined.endswith(_SETTINGS_FILES) or _IN_SETTINGS_FOLDER.search(joined):
        return "holds settings of git, an editor, an agent or CI, which can start programs"
    return None


def must_not_appear(root: Path) -> tuple[Path, ...]:
    """Paths directly below ``root`` that are not there and that nothing run in a sandbox may bring into being.

    Patterns such as ``*.pth`` are not among them, but for the name that a project usually has: see ``protected_by``
    for judging what is new.
    """
    usual = (f"{root.name}{ending}" for ending in SETTINGS_ENDINGS)
    names = {*PRIVATE_FOLDERS, *SETTINGS_FOLDERS, *SETTINGS_FILES, *STARTUP_FILES[1:], *ENVIRONMENT_MARKS, *usual}
    return tuple(root / name for name in sorted(names) if not os.path.lexists(root / name))


def protected_paths(root: Path) -> tuple[Path, ...]:
    """What is below ``root`` and protected, private folders included: to be bound read-only. Sorted.

    Of a protected folder only the folder is named. Links are not followed; environments count by their name or by a
    mark in them, and are not looked into. Compiled code is not among them: tests write it.
    """
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        for name, is_folder in _entries(root / folder):
            path = f"{folder}/{name}" if folder else name
            if private_part(name) is not None or (is_folder and is_environment(root / path)):
                found.append(path)
            elif folded(name) in _NOT_WALKED:
                continue
            elif protected_by(path) is not None:
                found.append(path)
            elif is_folder:
                folders.append(path)
    return tuple(root / path for path in sorted(found))


def is_environment(folder: Path) -> bool:
    """Whether tests could be run with what is in a folder, by its name or by a mark in it."""
    name = folded(folder.name)
    by_name = name in ENVIRONMENT_FOLDERS and name != _COMPILED
    return by_name or is_marked_as_environment(folder)


def is_marked_as_environment(folder: Path) -> bool:
    """Whether a tool for environments has put its mark into a folder."""
    return any(os.path.lexists(folder / mark) for mark in ENVIRONMENT_MARKS)


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """The names in a folder, and whether each is a folder itself; none if it cannot be looked into."""
    try:
        with os.scandir(folder) as opened:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in opened]
    except OSError:
        return []


def _is_private(name: str) -> bool:
    return name in PRIVATE_FOLDERS or name in _GIT_BY_OTHER_NAMES


_SAMPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|dist)(?:[._-]|$)")
"""In the name of an environment file that only shows what could be set."""

_COPY = re.compile(r"(?:~|\.(?:bak|old|orig|save))+$")
"""At the end of the name of a copy that an editor or a person made."""

_FILES = (
    "*.jks",
    "*.kdbx",
    "*.key",
    "*.keystore",
    "*.p12",
    "*.pem",
    "*.pfx",
    "*.ppk",
    "*.tfstate",
    ".boto",
    ".dev.vars",
    ".dockercfg",
    ".flaskenv",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".vault-token",
    ".yarnrc.yml",
    "_netrc",
    "client_secret*.json",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "credentials.yaml",
    "credentials.yml",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "secrets.json",
    "secrets.toml",
    "secrets.yaml",
    "secrets.yml",
    "service-account*.json",
    "service_account*.json",
)
_STAGES = ("env.dev", "env.development", "env.local", "env.prod", "env.production", "env.staging", "env.test")
_SHOWABLE = ("*.tfvars", "*.tfvars.json", ".dev.vars.*", *_STAGES)
"""Files of settings with secrets among them, unless the name says that it is an example."""

_PLACES = (".aws/config", ".aws/credentials", ".docker/config.json", ".kube/config")
_ENVIRONMENTS = frozenset({".env", ".env.d", ".envs"})
"""Folders of environment files; one of Python's may be called so too."""
_SOURCES = (".md", ".py", ".pyi")
_FOLDERS = frozenset({".azure", ".gnupg", ".ssh"})


def is_secret(path: str) -> bool:
    """Whether a relative path names a file of secrets, in any spelling.

    ``.env`` and its kin count, except those called example, sample, template or dist; so do copies, ``id_rsa.bak``.
    """
    names = [folded(part) for part in path.split("/")]
    name = names[-1] = _COPY.sub("", names[-1]) or names[-1]
    if name.startswith(".env") or name.endswith(".env") or any(fnmatchcase(name, pattern) for pattern in _SHOWABLE):
        return _SAMPLE.search(name) is None
    is_of_environment = not _ENVIRONMENTS.isdisjoint(names[:-1]) and not name.endswith(_SOURCES)
    if is_of_environment and not any(map(_SAMPLE.search, names)):
        return True
    if not _FOLDERS.isdisjoint(names[:-1]) or "/".join(names[-2:]) in _PLACES:
        return True
    return any(fnmatchcase(name, pattern) for pattern in _FILES)
