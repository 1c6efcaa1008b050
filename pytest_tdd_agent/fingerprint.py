"""Compute digests of the files that GREEN must not change: tests, their data, pytest's configuration, shadow modules.

The only side effects are reading files and asking git which files it ignores.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from hashlib import sha256
from importlib.machinery import PathFinder
from pathlib import Path
from posixpath import normpath
from typing import Collection, Iterator, Mapping

from .system import bind_builtins

bind_builtins(globals())


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
"""Folders that are never searched: caches, environments and the tools' own files."""

_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
"""Names that mark a folder as a virtual or conda environment."""

PACKAGES_FOLDERS = frozenset({"site-packages", "dist-packages"})
"""Names of folders that contain installed packages."""

STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
"""Folder of the standard library; it may contain ``PACKAGES_FOLDERS``."""

_CONFIGURATION = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
_TEST_FOLDERS = frozenset({"test", "tests"})
_TEST_FILE = re.compile(r"(test_.*|.*_test)\.py")
_TEST_WORD = re.compile(r"(?:^|[/_.-])(?:tests?|checks?|specs?|e2e)(?:$|[/_.-])")
_MEANINGLESS = re.compile(r"\[[^]]*\]|\W|_|py$")
_RUNNER = (
    "pytest|_pytest|pluggy|iniconfig|py|exceptiongroup|xdist|execnet|unittest|doctest|pytest_tdd_agent|"
    "sitecustomize|usercustomize"
)
_METADATA = r"[^/]+\.(?:egg|dist)-info/entry_points\.txt|[^/]+\.(?:pth|egg-link)"
_SHADOW = re.compile(rf"(?:{_RUNNER})(?:/__init__)?(?:\.py[cd]?|(?:\.[\w-]+)?\.(?:so|pyd))|{_METADATA}")
_STARTUP = re.compile(rf"{_METADATA}|(?:site|user)customize\b.*")
_MODULE = re.compile(r"([^\W\d]\w*)(?:/__init__)?(?:\.pyc?|(?:\.[\w-]+)?\.(?:so|pyd))")
_SHADOWING = "[module]"  # in the key of a module that shadows an installed one
_EARLY = "[import path]"  # in the key of a file for which the same holds as in the root, because it is on the path too
_USUAL_ENTRIES = ("", "src")
_LEFTOVER = re.compile(r".*\.pyo|\.coverage.*|\.DS_Store")
_SECTIONS = {
    "pyproject.toml": "pyproject.toml[tool.pytest]",
    "setup.cfg": "setup.cfg[tool:pytest]",
    "tox.ini": "tox.ini[pytest]",
}
_PRESENT = sha256(b"present").hexdigest()
_NO_PROGRAMS = (
    "-c",
    "core.fsmonitor=false",
)  # the only program that a repository's configuration can make this command run
_IGNORED_BY_GIT = (
    *("git", *_NO_PROGRAMS, "ls-files"),
    *("--others", "--ignored", "--exclude-standard", "--directory", "-z"),
)
_GIT_TIMEOUT_S = 20.0
KNOWN_IGNORED: dict[str, frozenset[str]] = {}
"""Folder -> what git ignores in it, if the program that starts pytest knows that: git is not asked then."""
_HEADER = re.compile(r"\[[^\],]+\]+\s*(#.*)?$")
_KEY = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_KEYS = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\[\[?\s*({_KEYS})\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(rf"({_KEYS})\s*=")
_STRING = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|#.*""")


def is_protected(path: str, *, python_files: Collection[str] = (), testpaths: Collection[str] = ()) -> bool:
    """Return whether a file belongs to the tests or configures pytest; ``path`` is posix and relative to the root.

    ``pyproject.toml``, ``setup.cfg`` and ``tox.ini`` do not count, because most of each belongs to the product;
    ``compute_digests`` covers pytest's section. ``testing`` is a test folder only in the root; elsewhere it belongs to
    a package. ``python_files`` and ``testpaths`` are pytest's settings. A pattern like ``*.py`` matches the product too
    and does not count. A path in ``testpaths`` counts only if it contains tests, checks, specs or e2e, because ``.`` or
    ``src`` contain the product too.
    """
    folder, _, name = path.rpartition("/")
    if name in _CONFIGURATION or _TEST_FILE.fullmatch(name):
        return True
    of_tests = tuple(normpath(each) for each in testpaths if _TEST_WORD.search(each))
    return (
        _is_in_test_folder(folder, of_tests)
        or any(_is_match(path, pattern) for pattern in python_files)
        or any(fnmatchcase(path, each) for each in of_tests)
    )


@lru_cache  # a project has many more files than folders
def _is_in_test_folder(folder: str, testpaths: tuple[str, ...]) -> bool:
    folders = folder.split("/")
    if folders[0] == "testing" or not _TEST_FOLDERS.isdisjoint(folders):
        return True
    starts = ["/".join(folders[:end]) for end in range(1, len(folders) + 1)]
    return any(fnmatchcase(start, testpath) for testpath in testpaths for start in starts if start)


def _is_match(path: str, pattern: str) -> bool:
    # As in pytest, a pattern without a slash applies to the name.
    name = pattern.rpartition("/")[2]
    if not path.endswith(".py") or not _MEANINGLESS.sub("", name):
        return False
    if name == pattern:
        return fnmatchcase(path.rpartition("/")[2], pattern)
    return fnmatchcase(f"/{path}", f"*/{pattern}")


def is_runner_shadow(path: str) -> bool:
    """Return whether Python could load a file instead of pytest or its libraries, when it starts, or as a plugin.

    Only files directly in the root and ``src`` count, which are commonly on the import path: ``src/pkg/pytest.py``
    belongs to the product. ``path`` is posix and relative to the root. A key of ``compute_digests`` counts too if it
    is that of such a file in another folder of the import path.
    """
    return path.endswith(_EARLY) or any(_SHADOW.fullmatch(inside) for inside in _iterate_inside(path, _USUAL_ENTRIES))


def _iterate_inside(path: str, entries: Collection[str]) -> Iterator[str]:
    """Yield the path relative to each folder of the import path that contains it."""
    for entry in entries:
        prefix = f"{entry}/" if entry else ""
        if path.startswith(prefix):
            yield path[len(prefix) :]


def list_import_entries(root: Path, path: Collection[str]) -> tuple[str, ...]:
    """Return the folders below ``root`` that are on an import path, and those that usually are.

    Environments, installed packages and folders of tests are left out.
    """
    found = dict.fromkeys(_USUAL_ENTRIES)
    top = os.path.realpath(str(root))
    for entry in path:
        inside = os.path.relpath(os.path.realpath(entry), top).replace(os.sep, "/")
        parts = inside.split("/")
        is_left_out = parts[0] in ("..", ".") or is_protected(f"{inside}/any") or not PACKAGES_FOLDERS.isdisjoint(parts)
        folders = (os.path.join(top, *parts[:end]) for end in range(1, len(parts) + 1))
        if not is_left_out and IGNORED_FOLDERS.isdisjoint(parts) and not any(map(_is_environment, folders)):
            found[inside] = None
    return tuple(found)


def compute_digests(
    root: Path,
    *,
    inifile: Path | None = None,
    python_files: Collection[str] = (),
    testpaths: Collection[str] = (),
    entries: Collection[str] = _USUAL_ENTRIES,
) -> dict[str, str]:
    """Return protected file -> sha256 of its bytes, sorted by name, for everything below ``root``.

    Pytest's section of a shared configuration file in ``root`` has a key such as ``pyproject.toml[tool.pytest]``.
    ``inifile`` is the configuration in use; it counts too if it lies above ``root``, as ``../pyproject.toml[...]``.
    For a module that shadows the test runner only its presence counts, because the project itself may be that module.
    The same holds for a module with the name of an installed one (key ``mock[module]``). Both are looked for in
    ``entries``, folders of the import path relative to ``root``; see ``list_import_entries``. Ignored
    files are left out, because tests may write them, except Python files and configuration, which pytest would load.
    For a link to a folder the target's name counts, and also the target's content if the link is a test folder.
    """
    found = dict(_iterate_section_digests(root))
    if inifile is not None and root not in inifile.parents:
        found.update(_iterate_digests_above(inifile, root=root))
    is_test = partial(is_protected, python_files=python_files, testpaths=testpaths)
    installed = _list_installed_paths()
    folders = [root]
    for top in folders:
        ignored = _list_ignored_files(top)
        start = "" if top == root else f"{top.relative_to(root).as_posix()}/"
        for own, is_link in _iterate_files(top):
            name, digest = start + own, None
            inside = [each for each in _iterate_inside(name, entries) if _SHADOW.fullmatch(each)]
            if inside:
                digest = _compute_digest(top / own) if any(map(_STARTUP.fullmatch, inside)) else _PRESENT
                name += "" if is_runner_shadow(name) else _EARLY
            elif is_test(f"{name}/" if is_link else name):
                path, is_output = top / own, _is_output(own, ignored)
                digest = None if is_output or _is_leftover(path) else _compute_digest(path)
                if is_link and not is_test(f"{name.rpartition('/')[0]}/") and not _is_recursive(path):
                    folders.append(path)
            elif top == root:
                keys = (_find_shadow_key(each, installed, root=root) for each in _iterate_inside(name, entries))
                key = next((each for each in keys if each is not None), None)
                name, digest = (name, None) if key is None else (key, _PRESENT)
            if digest is not None:
                found[name] = digest
    return dict(sorted(found.items()))


def find_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted names with a different digest, including added and removed ones.

    A removed shadow module does not count as a change.
    """
    differing = (name for name in {*before, *after} if before.get(name) != after.get(name))
    return tuple(sorted(name for name in differing if name in after or not name.endswith(_SHADOWING)))


def _iterate_files(root: Path) -> Iterator[tuple[str, bool]]:
    """Yield the paths of files relative to ``root``, and those of links to folders with True; follow no link."""
    for folder, subfolders, names in os.walk(str(root)):
        inside = "" if folder == str(root) else os.path.relpath(folder, str(root)).replace(os.sep, "/") + "/"
        subfolders[:] = [
            name
            for name in subfolders
            if name not in IGNORED_FOLDERS and not _is_environment(os.path.join(folder, name))
        ]
        yield from ((inside + name, False) for name in names)
        yield from ((inside + name, True) for name in subfolders if os.path.islink(os.path.join(folder, name)))


def _is_environment(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, mark)) for mark in _ENVIRONMENT_MARKS)


def _is_linked_folder(path: Path) -> bool:
    return os.path.islink(str(path)) and path.is_dir()


def _is_recursive(link: Path) -> bool:
    """Return whether a link points to a folder that contains it."""
    target = os.path.realpath(str(link))
    return os.path.commonpath([target, os.path.realpath(str(link.parent))]) == target


def _is_leftover(path: Path) -> bool:
    # Python loads compiled code outside its cache only without a source file.
    return _LEFTOVER.fullmatch(path.name) is not None or (path.suffix == ".pyc" and path.with_suffix(".py").exists())


def _list_installed_paths() -> list[str]:
    return [
        entry
        for entry in sys.path
        if f"{entry}{os.sep}".startswith(STANDARD_LIBRARY) or not PACKAGES_FOLDERS.isdisjoint(Path(entry).parts)
    ]


def _find_shadow_key(name: str, installed: list[str], *, root: Path) -> str | None:
    """Return the key of a module that shadows a different installed one."""
    module = _MODULE.fullmatch(name)
    if module is None:
        return None
    try:
        spec = PathFinder.find_spec(module[1], installed)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    origin, own = os.path.realpath(spec.origin), os.path.realpath(str(root)) + os.sep
    is_own = origin.startswith(own) and PACKAGES_FOLDERS.isdisjoint(Path(origin[len(own) :]).parts)
    return None if is_own else module[1] + _SHADOWING


def _list_ignored_files(root: Path) -> frozenset[str]:
    """Return the files and whole folders below ``root`` that git ignores; empty without git or a repository."""
    if str(root) in KNOWN_IGNORED:
        return KNOWN_IGNORED[str(root)]
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
    """Return whether a file, or a folder above it, is ignored and pytest would not load it."""
    if name.endswith((".py", ".pyc")) or name.rsplit("/", 1)[-1] in _CONFIGURATION:
        return False
    parts = name.split("/")
    return any("/".join(parts[:end]) in ignored for end in range(1, len(parts) + 1))


def _compute_digest(path: Path) -> str | None:
    """Return the digest of a file; for a socket or a dangling link, that of its type."""
    try:
        if _is_linked_folder(path):
            return sha256(b"link to " + os.fsencode(os.readlink(str(path)))).hexdigest()
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return sha256(f"mode {stat.S_IFMT(mode):o}".encode()).hexdigest()
        return sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return sha256(b"dangling link").hexdigest() if path.is_symlink() else None
    except OSError as error:
        return sha256(f"unreadable {error.errno}".encode()).hexdigest()


def _iterate_section_digests(root: Path) -> Iterator[tuple[str, str]]:
    for name, key in _SECTIONS.items():
        try:
            text = (root / name).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        section = _extract_toml_section(text) if name == "pyproject.toml" else _extract_section(text, key[len(name) :])
        if section:
            yield key, sha256(section.encode("utf-8", "surrogateescape")).hexdigest()


def _iterate_digests_above(inifile: Path, *, root: Path) -> Iterator[tuple[str, str]]:
    folder = os.path.relpath(str(inifile.parent), str(root)).replace(os.sep, "/")
    if inifile.name in _SECTIONS:
        own = _SECTIONS[inifile.name]
        yield from (
            (f"{folder}/{key}", digest) for key, digest in _iterate_section_digests(inifile.parent) if key == own
        )
        return
    whole = _compute_digest(inifile)
    if whole is not None:
        yield f"{folder}/{inifile.name}", whole


def _extract_section(text: str, header: str) -> str:
    """Return the lines below every header that starts so, without comments."""
    lines = []
    inside = False
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if _HEADER.match(bare):
            inside = bare.startswith(header)
        if inside:
            lines.append(line.rstrip())
    return "\n".join(lines)


def _extract_toml_section(text: str) -> str:
    """Return the lines about ``tool.pytest``, without comments; the whole text if they cannot be separated.

    It works on raw text and so gives the same result on every version: Python before 3.11 has no TOML parser.
    """
    lines: list[str] = []
    table: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    is_in_text, depth = False, 0
    for line in text.splitlines():
        bare = line.strip()
        if not is_in_text:
            if not bare or bare.startswith("#"):
                continue
            header, assignment = (_TABLE.match(bare), _ASSIGNMENT.match(bare)) if depth == 0 else (None, None)
            if header is not None:
                table = path = _split_key(header[1])
            elif assignment is not None:
                path = (*table, *_split_key(assignment[1]))
            if "\\" in "".join(path[:2]) or (path == ("tool",) and header is None and "pytest" in text):
                return text
        if path[:2] == ("tool", "pytest"):
            lines.append(line.rstrip())
        if (bare.count('"""') + bare.count("'''")) % 2:
            is_in_text = not is_in_text
        elif not is_in_text and (depth or _TABLE.match(bare) is None):
            plain = _STRING.sub("", bare)
            depth = max(0, depth + sum(map(plain.count, "[{")) - sum(map(plain.count, "]}")))
    return "\n".join(lines)


def _split_key(keys: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, keys))
