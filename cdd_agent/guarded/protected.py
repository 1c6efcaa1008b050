"""Names that stay as they are: what git, this program, editors, agents, CI and Python itself obey without being asked.

An agent that could write them could run something later, outside every sandbox, or turn the approvals off.
``docs/reference/tools.md`` lists them. Names count in any spelling and at any depth. Pure, but for the two
functions that look at a folder.
"""

import os
from pathlib import Path

from cdd_agent.guarded.spelling import folded

PRIVATE_FOLDERS = frozenset({".git", ".cdd"})
"""Neither read nor written: git's own files and this program's."""

STATE_FILE = "execution-state.json"
"""Read by anybody, written (with all its copies) by the program alone."""

SETTINGS_FOLDERS = (
    ".circleci",
    ".claude",
    ".codex",
    ".continue",
    ".cursor",
    ".devcontainer",
    ".gemini",
    ".github/actions",
    ".github/workflows",
    ".hg",
    ".husky",
    ".idea",
    ".roo",
    ".vscode",
    ".windsurf",
    ".zed",
)
"""Settings that start programs: of editors, of other agents, of CI, hooks kept in the project."""

SETTINGS_FILES = (
    ".aider.conf.yml",
    ".envrc",
    ".gitattributes",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".mcp.json",
    ".pdm-python",
    ".pre-commit-config.yaml",
    ".travis.yml",
    "azure-pipelines.yml",
    "Jenkinsfile",
)
"""The same in single files. ``.gitattributes`` is one: it decides what a diff shows, and which programs git runs."""

STARTUP_FILES = ("*.pth", "sitecustomize.py", "usercustomize.py")
"""Loaded by every Python that has their folder on its path."""

ENVIRONMENT_FOLDERS = frozenset({".nox", ".tox", ".venv", "__pycache__", "venv"})
"""Where the interpreter of the tests, or compiled code, may lie. A folder that holds ``pyvenv.cfg`` is one too."""

ENVIRONMENT_MARK = "pyvenv.cfg"

_FOLDED_FILES = frozenset(folded(name) for name in SETTINGS_FILES)
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
    if any(name in ENVIRONMENT_FOLDERS for name in names) or ENVIRONMENT_MARK in names:
        return "lies where the interpreter of the tests, or compiled code, is kept"
    if any(name.partition(".")[0] in _CUSTOMIZE or name.endswith(".pth") for name in names):
        return "is run by every Python that starts with that folder on its path"
    joined = "/" + "/".join(names) + "/"
    if any(f"/{folder}/" in joined for folder in SETTINGS_FOLDERS) or (names and names[-1] in _FOLDED_FILES):
        return "holds settings of git, an editor, an agent or CI, which can start programs"
    return None


def must_not_appear(root: Path) -> tuple[Path, ...]:
    """Paths directly below ``root`` that are not there and that nothing run in a sandbox may bring into being.

    Patterns such as ``*.pth`` are not among them: see ``protected_by`` for judging what is new.
    """
    names = (*PRIVATE_FOLDERS, *SETTINGS_FOLDERS, *SETTINGS_FILES, *STARTUP_FILES[1:], ENVIRONMENT_MARK)
    return tuple(root / name for name in sorted(names) if not os.path.lexists(root / name))


def protected_paths(root: Path) -> tuple[Path, ...]:
    """What is below ``root`` and protected, private folders included: to be bound read-only. Sorted.

    Of a protected folder only the folder is named. Links are not followed; environments count when they have a
    ``pyvenv.cfg``, and are not looked into.
    """
    found: list[str] = []
    folders = [""]
    while folders:
        folder = folders.pop()
        for name, is_folder in _entries(root / folder):
            path = f"{folder}/{name}" if folder else name
            is_environment = is_folder and os.path.lexists(root / path / ENVIRONMENT_MARK)
            if is_environment or private_part(name) is not None:
                found.append(path)
            elif folded(name) in _NOT_WALKED:
                continue
            elif protected_by(path) is not None:
                found.append(path)
            elif is_folder:
                folders.append(path)
    return tuple(root / path for path in sorted(found))


def _entries(folder: Path) -> list[tuple[str, bool]]:
    """The names in a folder, and whether each is a folder itself; none if it cannot be looked into."""
    try:
        with os.scandir(folder) as opened:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in opened]
    except OSError:
        return []


def _is_private(name: str) -> bool:
    return name in PRIVATE_FOLDERS or name in _GIT_BY_OTHER_NAMES
