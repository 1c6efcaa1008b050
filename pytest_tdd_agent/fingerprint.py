"""Digests of what a GREEN run may not change: tests, their data, pytest's configuration, what could shadow pytest.

The only side effects are reading files and asking git once which it ignores.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Iterator, Mapping

IGNORED_FOLDERS = frozenset(
    {
        ".cdd",
        ".eggs",
        ".git",
        ".hg",
        ".hypothesis",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tdd-agent",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "venv",
    }
)
"""Never looked into: caches, environments and the tool's own files. A folder that holds ``pyvenv.cfg`` is one too."""

PACKAGES_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""What is installed lies in a folder of such a name."""

STANDARD_LIBRARY = tuple({sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib")})
"""Folders of the standard library; ``PACKAGES_FOLDERS`` may lie in them."""

_CONFIGURATION = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_TEST_FOLDERS = frozenset({"test", "tests"})
_TEST_FILE = re.compile(r"(test_.*|.*_test)\.py")
_RUNNER = (
    "pytest|_pytest|pluggy|iniconfig|py|exceptiongroup|xdist|execnet|unittest|doctest|pytest_tdd_agent|"
    "sitecustomize|usercustomize"
)
_SHADOW = re.compile(rf"(?:src/)?(?:(?:{_RUNNER})(?:/__init__)?(?:\.py[cd]?|(?:\.[\w-]+)?\.(?:so|pyd))|[^/]+\.pth)")
_STARTUP = re.compile(r"(?:src/)?(?:[^/]+\.pth|(?:site|user)customize\b.*)")
_LEFTOVER = re.compile(r".*\.py[co]|\.coverage.*|\.DS_Store")
_SECTIONS = {
    "pyproject.toml": ("pyproject.toml[tool.pytest]", re.compile(r"\[+\s*tool\s*\.\s*pytest\b")),
    "setup.cfg": ("setup.cfg[tool:pytest]", re.compile(r"\[tool:pytest\]")),
    "tox.ini": ("tox.ini[pytest]", re.compile(r"\[pytest\]")),
}
_PRESENT = sha256(b"present").hexdigest()
_IGNORED_BY_GIT = ("git", "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
_GIT_TIMEOUT_S = 20.0
_HEADER = re.compile(r"\[[^\],]+\]+\s*(#.*)?$")
_DOTTED_KEY = re.compile(r"(tool\.)?pytest\b")


def is_protected(path: str) -> bool:
    """Say whether a file belongs to the tests or configures pytest; ``path`` is posix and relative to the root.

    ``pyproject.toml``, ``setup.cfg`` and ``tox.ini`` are not, as most of each is the product's: ``digests`` covers
    pytest's section of them. ``testing`` is a test folder only in the root; elsewhere it is what a package offers its
    users.
    """
    *folders, name = path.split("/")
    if name in _CONFIGURATION or _TEST_FILE.fullmatch(name):
        return True
    return folders[:1] == ["testing"] or not _TEST_FOLDERS.isdisjoint(folders)


def shadows_runner(path: str) -> bool:
    """Say whether a file could stand in for pytest, what runs the tests with it, or what Python loads when it starts.

    Only in the folders that are commonly on the import path, the root and ``src``: ``src/pkg/pytest.py`` is the
    product's. ``path`` is posix and relative to the root.
    """
    return _SHADOW.fullmatch(path) is not None


def digests(root: Path, *, inifile: Path | None = None) -> dict[str, str]:
    """Return protected file -> sha256 of its bytes, sorted by name, for everything below ``root``.

    Pytest's section of a shared configuration file in ``root`` has a key such as ``pyproject.toml[tool.pytest]``.
    ``inifile`` is the configuration in use; it counts too if it lies above ``root``, as ``../pyproject.toml[...]``.
    Of a module that shadows the runner no more counts than that it is there: a project may be one of these modules.
    What tests write may lie beside them: files that git ignores are left out, but not Python files and configuration,
    as pytest would load those.
    """
    found = dict(_configuration_digests(root))
    if inifile is not None and root not in inifile.parents:
        found.update(_digests_above(inifile, root=root))
    ignored = _ignored_by_git(root)
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        is_shadow = shadows_runner(name)
        is_test = is_protected(name) and not _LEFTOVER.fullmatch(path.name) and not _is_output(name, ignored)
        if is_shadow or is_test:
            digest = _PRESENT if is_shadow and not _STARTUP.fullmatch(name) else _digest(path)
            if digest is not None:
                found[name] = digest
    return dict(sorted(found.items()))


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted names whose digest differs, the added and the removed ones included."""
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(str(root)):
        here = Path(folder)
        subfolders[:] = [
            name
            for name in subfolders
            if name not in IGNORED_FOLDERS and not os.path.lexists(os.path.join(folder, name, "pyvenv.cfg"))
        ]
        for name in names:
            yield here / name


def _ignored_by_git(root: Path) -> frozenset[str]:
    """Return the files below ``root`` that git ignores, whole folders by name; none without git or a repository."""
    try:
        answer = subprocess.run(
            _IGNORED_BY_GIT,
            cwd=str(root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return frozenset()
    names = answer.stdout.split(b"\0") if answer.returncode == 0 else []
    return frozenset(os.fsdecode(name).rstrip("/") for name in names if name.rstrip(b"/"))


def _is_output(name: str, ignored: frozenset[str]) -> bool:
    """Say whether a file, or a folder it is in, is ignored, and pytest would not load it."""
    if name.endswith(".py") or name.rsplit("/", 1)[-1] in _CONFIGURATION:
        return False
    parts = name.split("/")
    return any("/".join(parts[:end]) in ignored for end in range(1, len(parts) + 1))


def _digest(path: Path) -> str | None:
    """Return the digest of a regular file; of what else has the name (a socket, a lost link) no more than its kind."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return sha256(f"mode {stat.S_IFMT(mode):o}".encode()).hexdigest()
        return sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return sha256(b"dangling link").hexdigest() if path.is_symlink() else None
    except OSError as error:
        return sha256(f"unreadable {error.errno}".encode()).hexdigest()


def _configuration_digests(root: Path) -> Iterator[tuple[str, str]]:
    for name, (key, header) in _SECTIONS.items():
        try:
            text = (root / name).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        section = _section(text, header)
        if section:
            yield key, sha256(section.encode("utf-8", "surrogateescape")).hexdigest()


def _digests_above(inifile: Path, *, root: Path) -> Iterator[tuple[str, str]]:
    folder = os.path.relpath(str(inifile.parent), str(root)).replace(os.sep, "/")
    if inifile.name in _SECTIONS:
        own = _SECTIONS[inifile.name][0]
        yield from ((f"{folder}/{key}", digest) for key, digest in _configuration_digests(inifile.parent) if key == own)
        return
    whole = _digest(inifile)
    if whole is not None:
        yield f"{folder}/{inifile.name}", whole


def _section(text: str, header: re.Pattern[str]) -> str:
    """Return the lines below every header that matches, and TOML's dotted keys of pytest, without comments.

    Raw text, the same on every version: Python before 3.11 has no TOML parser.
    """
    kept = []
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if _HEADER.match(bare):
            inside = header.match(bare) is not None
        if inside or _DOTTED_KEY.match(bare):
            kept.append(line.rstrip())
    return "\n".join(kept)
