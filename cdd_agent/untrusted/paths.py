"""Decides by name which paths an agent may not write, and which files hold secrets.

Agents write the protected files in no case: those of git and cdd, environments, and what every Python runs when it
starts. Whether another file may land that programs obey, ``tdd/kinds.py`` decides. ``docs/reference/tools.md`` lists
the names.

Names are compared as the most forgiving file system would, at any depth, so that no alternative spelling gets past.
Only ``find_protected_paths`` and ``is_environment`` read the file system.
"""

import os
import re
import unicodedata
from enum import StrEnum
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

_VARIATION_SELECTORS = range(0xFE00, 0xFE10)


@lru_cache(maxsize=4096)  # a search folds the names of the same folders for every file
def fold_name(name: str) -> str:
    """Normalize case, width, invisible characters and trailing dots of a component; ``.`` and ``..`` stay."""
    if name.strip(".") == "":
        return name
    # For NTFS, a colon begins the name of a stream of the same file.
    plain = name if name.isascii() else _strip_invisible(name)
    return plain.lower().partition(":")[0].rstrip(". \t\r\n")


def _strip_invisible(name: str) -> str:
    visible = "".join(
        letter
        for letter in name
        if unicodedata.category(letter) != "Cf" and ord(letter) not in _VARIATION_SELECTORS and letter != "\u034f"
    )
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


PRIVATE_FOLDERS = frozenset({".git", ".cdd"})
"""Folders of git and of cdd, which agents neither read nor write."""
STATE_FILE = "execution-state.json"
"""A file that anyone may read and only cdd may write, including its copies."""

GIT_FILES = frozenset({".gitattributes", ".gitmodules", ".hg"})
"""Settings by which git runs programs, or shows a reviewer something else than the change."""
ENVIRONMENT_FOLDERS = frozenset(
    {".conda", ".hatch", ".nox", ".pixi", ".tox", ".venv", "__pycache__", "__pypackages__", "venv"}
)
"""Folders with the tests' interpreter or with compiled code. A folder with one of ``ENVIRONMENT_MARKS`` counts too."""
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""Files that identify a virtual environment, and a conda environment."""

_PRIVATE_NAMES = PRIVATE_FOLDERS | {"git~1"}
_CUSTOMIZE = frozenset({"sitecustomize", "usercustomize"})
"""Modules that every Python with their folder on its path loads."""
_NOT_WALKED = PRIVATE_FOLDERS | ENVIRONMENT_FOLDERS | {"node_modules"}


def find_private_part(path: str) -> str | None:
    """Return the first component of a relative path that names a private folder, in its original spelling."""
    return next((part for part in path.split("/") if fold_name(part) in _PRIVATE_NAMES), None)


def is_state(path: str) -> bool:
    """Return whether a path is that of a ticket's state, or of a copy beside it."""
    return fold_name(path.rpartition("/")[2]).startswith(STATE_FILE)


class Protection(StrEnum):
    """Why agents may not write to a path, as the end of the sentence "it ..."."""

    PRIVATE = "belongs to git or cdd"
    STATE = "is the state of a ticket, which only cdd writes"
    ENVIRONMENT = "holds the interpreter of the tests, or compiled code"
    STARTUP = "is run by every Python that has its folder on the path"
    BUILD = "is made by a build or an installation, and Python or pytest may load it"


def explain_protection(path: str) -> Protection | None:
    """Return why agents may not write to a relative path, or None if they may.

    The phases decide about tests and pytest's configuration.
    """
    names = [fold_name(part) for part in path.split("/") if part not in ("", ".")]
    if not (_PRIVATE_NAMES | GIT_FILES).isdisjoint(names):
        return Protection.PRIVATE
    if any(name.startswith(STATE_FILE) for name in names):  # folding can have made a slash in a name
        return Protection.STATE
    if any(name in ENVIRONMENT_FOLDERS or name in ENVIRONMENT_MARKS for name in names):
        return Protection.ENVIRONMENT
    if any(name.partition(".")[0] in _CUSTOMIZE or name.endswith(".pth") for name in names):
        return Protection.STARTUP
    return None


_CACHES = frozenset({".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"})
_LEFT = frozenset({".coverage", ".ds_store", ".eslintcache"})
"""Files that tools leave behind."""
_NOT_SETTINGS = _CACHES | frozenset(
    {
        *(".", "..", ".build", ".bundle", ".cache", ".dart_tool", ".gradle", ".kotlin", ".next", ".nuxt"),
        *(".nyc_output", ".parcel-cache", ".svelte-kit", ".tmp", ".turbo"),
    }
)
"""Folders that build tools fill."""
_BUILT = re.compile(r"/(?:[^/]+\.(?:egg-info|dist-info|egg)|\.eggs|build/(?:lib|bdist)[^/]*)/|\.(?:egg-link|pyd|so)/$")


def is_cached(path: str) -> bool:
    """Return whether a relative path is in a cache of Python or of a test tool, or names one, or compiled Python."""
    names = [fold_name(name) for name in path.split("/")]
    is_left = names[-1] in _LEFT or names[-1].startswith(".coverage.") or names[-1].endswith((".pyc", ".pyo"))
    return is_left or not _CACHES.isdisjoint(names[:-1])


def find_dotted_part(path: str) -> str | None:
    """Return the first component that begins with a dot, as settings of tools do; caches do not count."""
    if is_cached(path):
        return None
    names = ((name, fold_name(name)) for name in path.split("/"))
    return next((name for name, folded in names if folded.startswith(".") and folded not in _NOT_SETTINGS), None)


def explain_build(path: str) -> Protection | None:
    """Return ``Protection.BUILD`` if a build or an installation made a relative path, or else None.

    Python or pytest may load such a file in place of sources, or load plugins because of it.
    """
    joined = "".join(f"/{fold_name(part)}" for part in path.split("/")) + "/"
    return Protection.BUILD if _BUILT.search(joined) is not None else None


# Most files of a project have such a name. It protects none in a folder without protection.
_USUAL = re.compile(r"(?!(?:site|user)customize\.)[a-z0-9_]+\.(?:py|pyi|md|rst|txt|html|css|js|ts|c|h|go|rs|java)")


def find_protected_paths(root: Path, *, with_dots: bool = False) -> tuple[Path, ...]:
    """Return the protected paths below ``root``, sorted, including private folders.

    ``with_dots``: names that begin with a dot count too, as those of settings do, except caches. A protected folder or
    environment is named without its content, and links are not followed. Compiled code is not included, since tests
    write it.
    """
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        for name, is_folder in _list_entries(root / folder):
            if not is_folder and _USUAL.fullmatch(name):
                continue
            path = f"{folder}/{name}" if folder else name
            if find_private_part(name) is not None or (is_folder and is_environment(root / path)):
                found.append(path)
            elif fold_name(name) in _NOT_WALKED:
                continue
            elif explain_protection(path) is not None or (with_dots and find_dotted_part(name) is not None):
                found.append(path)
            elif is_folder:
                folders.append(path)
    return tuple(root / path for path in sorted(found))


def is_environment(folder: Path) -> bool:
    """Return whether a folder is an environment for running tests, by its name or by a file in it."""
    name = fold_name(folder.name)
    by_name = name in ENVIRONMENT_FOLDERS and name != "__pycache__"
    return by_name or is_marked_as_environment(folder)


def is_marked_as_environment(folder: Path) -> bool:
    """Return whether a folder contains a file that identifies an environment."""
    return any(os.path.lexists(folder / mark) for mark in ENVIRONMENT_MARKS)


def _list_entries(folder: Path) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as opened:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in opened]
    except OSError:
        return []


_SAMPLE = re.compile(r"(?:^|[._-])(?:example|sample|template|dist)(?:[._-]|$)")
"""Part of the name of an environment file that is only an example."""
_COPY = re.compile(r"(?:~|\.(?:bak|old|orig|save))+$")
"""Endings of copies that an editor or a person made."""

_FILES = (
    *("*.jks", "*.kdbx", "*.key", "*.keystore", "*.p12", "*.pem", "*.pfx", "*.ppk", "*.tfstate", ".boto"),
    *(".dev.vars", ".dockercfg", ".flaskenv", ".git-credentials", ".htpasswd", ".my.cnf", ".netrc", ".npmrc"),
    *(".pgpass", ".pypirc", ".s3cfg", ".vault-token", ".yarnrc.yml", "_netrc", "client_secret*.json"),
    *("credentials", "credentials.json", "credentials.toml", "credentials.yaml", "credentials.yml", "id_dsa"),
    *("id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_rsa", "secrets.json", "secrets.toml"),
    *("secrets.yaml", "secrets.yml", "service-account*.json", "service_account*.json"),
)
_STAGES = ("env.dev", "env.development", "env.local", "env.prod", "env.production", "env.staging", "env.test")
_SHOWABLE = ("*.tfvars", "*.tfvars.json", ".dev.vars.*", *_STAGES)
"""Settings files that include secrets, unless the name says that they are examples."""
_SECRET_PATHS = (".aws/config", ".aws/credentials", ".docker/config.json", ".kube/config")
_ENVIRONMENTS = frozenset({".env", ".env.d", ".envs"})
"""Folders of environment files. A Python environment can have the same name, hence ``_SOURCES``."""
_SOURCES = (".md", ".py", ".pyi")
_FOLDERS = frozenset({".azure", ".gnupg", ".ssh"})


_is_secret_file, _is_showable = (re.compile("|".join(map(translate, names))).match for names in (_FILES, _SHOWABLE))


def is_secret(path: str) -> bool:
    """Return whether a path names a file of secrets or a copy, in any spelling; example environment files are not."""
    names = [fold_name(part) for part in path.split("/")]
    name = names[-1] = _COPY.sub("", names[-1]) or names[-1]
    if name.startswith(".env") or name.endswith(".env") or _is_showable(name):
        return _SAMPLE.search(name) is None
    is_of_environment = not _ENVIRONMENTS.isdisjoint(names[:-1]) and not name.endswith(_SOURCES)
    if is_of_environment and not any(map(_SAMPLE.search, names)):
        return True
    if not _FOLDERS.isdisjoint(names[:-1]) or "/".join(names[-2:]) in _SECRET_PATHS:
        return True
    return _is_secret_file(name) is not None
