"""What a folder holds, to be compared."""

import hashlib
import os
import stat
from pathlib import Path


def describe_files(
    root: Path, *, leave_out: tuple[str, ...] = (), times: bool = False
) -> dict[str, tuple[object, ...]]:
    """Return path -> type, permissions and content of everything below ``root``, with ``times`` also when it changed.

    Folders named in ``leave_out`` are left out at any depth.
    """
    found: dict[str, tuple[object, ...]] = {}
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in leave_out)
        for name in sorted((*subfolders, *names)):
            path = Path(folder, name)
            about = path.lstat()
            content = b""
            if stat.S_ISLNK(about.st_mode):
                content = os.fsencode(os.readlink(path))
            elif stat.S_ISREG(about.st_mode):
                content = path.read_bytes()
            changed = (about.st_mtime_ns,) if times and not stat.S_ISDIR(about.st_mode) else ()
            found[path.relative_to(root).as_posix()] = (
                oct(about.st_mode),
                hashlib.sha256(content).hexdigest(),
                *changed,
            )
    return found
