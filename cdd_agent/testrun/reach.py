"""What an interpreter has to be able to read beyond the system's programs: its own files, and what its paths name.

An interpreter inside the project can name anything, in a ``.pth`` file for example, so that what it names is looked at
before it is let into a sandbox.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.storage import read_ordinary

QUESTION = """\
import glob, json, os, site, sys
def found():
    yield os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield prefix
    for entry in filter(os.path.exists, filter(None, sys.path)):
        yield entry
        if os.path.isdir(entry):
            for item in os.scandir(entry):
                if item.is_symlink():
                    target = os.path.realpath(item.path)
                    folder = os.path.dirname(target)
                    yield folder if os.path.basename(folder).endswith("-packages") else target
        for path in glob.glob(os.path.join(glob.escape(entry), "*.dist-info", "direct_url.json")):
            with open(path) as stream:
                told = json.load(stream)
            url = told.get("url", "")
            if told.get("dir_info", {}).get("editable") and url.startswith("file:///"):
                yield url[7:]
reads = sorted(set(os.path.abspath(path) for path in found()))
user = site.getuserbase() if site.ENABLE_USER_SITE else ""
"""
"""Python 3.8, run by the interpreter that is asked: binds ``reads`` and ``user``."""

_SYSTEM = frozenset(
    map(
        Path,
        ("/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/var"),
    )
)
_USUAL_HIDDEN = frozenset(
    {
        *(".asdf", ".cache", ".conda", ".local", ".mise", ".nix-profile", ".nox", ".pixi", ".pyenv", ".rye"),
        *(".tox", ".venv", ".venvs", ".virtualenvs"),
    }
)
"""Hidden folders in which interpreters and packages lie."""
_FILE_CAP_BYTES = 1 << 16


def before_asked(python: Path) -> tuple[Path, ...]:
    """What ``python`` needs to start at all, as far as can be told without running it."""
    return fit(_guessed(python))


def _guessed(python: Path) -> Iterator[Path]:
    prefix = python.parent.parent
    yield prefix
    yield python.resolve().parent.parent
    for key, _, value in (line.partition("=") for line in _lines(prefix / "pyvenv.cfg")):
        if key.strip() == "home":
            yield Path(value.strip()).parent
    for packages in prefix.glob("lib/python3*/site-packages"):
        for entry in packages.iterdir() if packages.is_dir() else ():
            if entry.is_symlink():
                yield entry.resolve().parent
            elif entry.suffix == ".pth":
                for line in _lines(entry):
                    if line.startswith("/"):
                        yield Path(line.strip())


def _lines(path: Path) -> list[str]:
    """Of a small file; none of anything else, which could be waited for or read without an end."""
    try:
        data = read_ordinary(path, limit_bytes=_FILE_CAP_BYTES, through_links=True)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()


def fit(paths: Iterable[Path], *, home: Path | None = None) -> tuple[Path, ...]:
    """Those of ``paths`` that exist and may be read in a sandbox, without any that lies in another of them.

    No folder of the system's that holds other things too, not the user's home or what that lies in, and of the hidden
    folders there none but those that tools for Python make.
    """
    home = Path.home() if home is None else home
    chosen = [path for path in sorted(set(paths)) if path.exists() and _may_be_read(path, home=home)]
    return tuple(path for path in chosen if not any(other in path.parents for other in chosen))


def _may_be_read(path: Path, *, home: Path) -> bool:
    for each in (path, path.resolve()):
        if not each.is_absolute() or each in _SYSTEM or home == each or each in home.parents:
            return False
        inside = each.relative_to(home).parts if each.is_relative_to(home) else ()
        if inside and inside[0].startswith(".") and inside[0] not in _USUAL_HIDDEN:
            return False
    return True


def user_base(told: str) -> dict[str, str]:
    """The variable by which Python finds the user's own packages where home is another folder."""
    return {"PYTHONUSERBASE": told} if told and os.path.isdir(told) else {}
