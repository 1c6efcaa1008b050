"""The tests that a user gives for a generation: their files, and pytest's settings for them."""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.errors import UsageError, format_size
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.package_files import walk
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.plain_run import read_folder_settings, split_words

_FOLDERS = ("tests", "test")
"""Names that a folder with tests keeps; any other becomes the first one."""
SETTINGS = "pytest.ini"
_CONFTEST = "conftest.py"
_OPTIONS = ("--asyncio-mode", "--import-mode", "-k", "-m", "-p", "-W")
"""Options in ``addopts`` that decide which tests run, and how; each has a value."""
MOST_FILES = 20_000
MOST_BYTES = 200_000_000
_HINT = "name the folder with the tests: --tests DIR"
_OWN = frozenset({"testpaths", "pythonpath", "addopts", "minversion", "required_plugins", "cache_dir"})
"""Settings that name folders, versions or plugins of the other project."""


def read_tests(place: Path) -> dict[str, bytes]:
    """Return path in the repository -> content of the files in a folder with tests, or of a single file.

    The nearest ``conftest.py`` above it in its project is among them; links, caches and hidden files are not. Raises
    ``UsageError``.
    """
    if not place.exists():
        raise UsageError(f"{place} does not exist.", hint=_HINT)
    above = (folder / _CONFTEST for folder in _list_folders(place) if folder != place.resolve())
    found = {path: _CONFTEST for path in above if path.is_file() and not path.is_symlink()}
    chosen = dict([*found.items()][:1])
    for path in [place] if place.is_file() else walk(place):
        chosen[path] = f"{_name_folder(place)}/{path.name if place.is_file() else path.relative_to(place).as_posix()}"
    files, size = dict[str, bytes](), 0
    for path, inside in chosen.items():
        try:
            files[inside] = read_ordinary(path, limit_bytes=MOST_BYTES)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint=_HINT) from error
        size += len(files[inside])
        if size > MOST_BYTES or len(files) > MOST_FILES:
            happened = f"{place} has more than {format_size(MOST_BYTES)}, or than {MOST_FILES:,} files."
            raise UsageError(happened, hint=_HINT)
    if not any(path.endswith(".py") for path in files):
        raise UsageError(f"{place} has no tests in Python.", hint=_HINT)
    return files


def write_settings(place: Path) -> str:
    """Return the ``pytest.ini`` of a repository with the settings that pytest takes for the tests at ``place``.

    >>> write_settings(Path("/nowhere/tests"))
    '[pytest]\\npythonpath = src\\ntestpaths = tests\\n'
    """
    settings = {"pythonpath": SOURCES, "testpaths": _name_folder(place)}
    for folder in _list_folders(place):
        found = read_folder_settings(folder) or {}
        paths = [_move(folder / path, place.resolve()) for path in split_words(found.get("pythonpath"))]
        settings["pythonpath"] = " ".join(dict.fromkeys(filter(None, [settings["pythonpath"], *paths])))
        options = [*_select_options(split_words(found.get("addopts")))]
        settings |= {"addopts": shlex.join(options)} if options else {}
        settings |= {key: _format(value) for key, value in found.items() if key not in _OWN}
    return "[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())


def _list_folders(place: Path) -> list[Path]:
    """Return the folders of a project from that of its tests to that with pytest's settings, or its top.

    If neither is found, it is the folder of the tests alone.
    """
    top = place.resolve() if place.is_dir() else place.resolve().parent
    found = list[Path]()
    for folder in (top, *top.parents):
        found.append(folder)
        if read_folder_settings(folder) is not None or (folder / ".git").exists():
            return found
    return [top]


def _move(path: Path, place: Path) -> str:
    """Return where a folder is in the repository: in that of the tests, or the one around it; else empty."""
    path = path.resolve()
    if path == place.parent:
        return "."
    return Path(_name_folder(place), path.relative_to(place)).as_posix() if path.is_relative_to(place) else ""


def _name_folder(place: Path) -> str:
    """Return the name of the folder of the tests in the repository."""
    return place.name if place.is_dir() and place.name in _FOLDERS else _FOLDERS[0]


def _select_options(words: Iterable[str]) -> Iterator[str]:
    """Yield those of the options that decide which tests run, and how, with their values.

    >>> [*_select_options(["-ra", "--cov", "-m", "not slow", "-pno:x", "--asyncio-mode=auto"])]
    ['-m', 'not slow', '-pno:x', '--asyncio-mode=auto']
    """
    is_value = False
    for word in words:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        if is_value or name in _OPTIONS:
            yield word
        is_value = not is_value and word in _OPTIONS


def _format(value: object) -> str:
    if isinstance(value, list):
        return "".join(f"\n    {each}" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return "\n    ".join(str(value).strip().splitlines())
