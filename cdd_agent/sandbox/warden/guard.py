"""Paths that stay as they are: looked at before a run and after it, when nothing of the run is alive any more.

A sandbox can protect what is there; a file that is not there yet has nothing to be protected by. What came to be, or
was changed, is set aside and never deleted where there is a place for it: a user may have made it in the meantime.
"""

import os
import stat

_FILE_CAP_BYTES = 1 << 20
_ENTRIES = 300
"""Of a folder with more than that, folders inside it counted too, nothing more is looked at."""

_Picture = tuple[object, ...] | None
"""What a path was: None if missing, else its kind and what is needed to know it again and to put it back."""


class Guard:
    """Knows what its paths were, and puts them back."""

    def __init__(self, kept: list[tuple[str, str]], aside: str | None) -> None:
        """Look at each path, given as a folder and a name below it."""
        self._aside = aside
        self._before = [
            (root, name, _links_above(root, name), _picture(os.path.join(root, name))) for root, name in kept
        ]

    def mend(self) -> list[str]:
        """Put back what is no more as it was; one remark each."""
        remarks: list[str] = []
        for root, name, links, before in self._before:
            try:
                new_links = [link for link in _links_above(root, name) if link not in links]
                if new_links:
                    remarks.append(self._remove(new_links[0], shown=os.path.relpath(new_links[0], root)))
                self._compare(os.path.join(root, name), before, shown=name, remarks=remarks)
            except OSError as error:
                remarks.append(f"{name} may have been changed by a program in the sandbox: {error}")
        return remarks

    def _compare(self, path: str, before: _Picture, *, shown: str, remarks: list[str]) -> None:
        if before is not None and before[0] == "unwatched":
            return
        now = _picture(path)
        if now == before:
            return
        if before is not None and now is not None and before[0] == now[0] == "folder":
            old, new = dict(before[1]), dict(now[1])  # type: ignore[call-overload]
            for entry in sorted({*old, *new}):
                self._compare(os.path.join(path, entry), old.get(entry), shown=f"{shown}/{entry}", remarks=remarks)
            return
        if now is not None:
            remarks.append(self._remove(path, shown=shown, was_there=before is not None))
        else:
            remarks.append(f"{shown} was removed by a program in the sandbox, and is put back")
        if before is not None:
            _put_back(path, before)

    def _remove(self, path: str, *, shown: str, was_there: bool = False) -> str:
        """Move a path out of the way; the remark that tells of it."""
        what = "was changed" if was_there else "came to be"
        place = self._place(os.path.basename(path))
        if place is not None:
            try:
                os.rename(path, place)
            except OSError:
                pass  # on another file system
            else:
                return f"{shown} {what} while a program ran in the sandbox, and is set aside as {place}"
        _delete(path)
        return f"{shown} {what} while a program ran in the sandbox, and is removed"

    def _place(self, name: str) -> str | None:
        """A free name to set something aside; None if there is no folder for it, or only by way of a link."""
        if self._aside is None:
            return None
        try:
            os.makedirs(self._aside, mode=0o700, exist_ok=True)
        except OSError:
            return None
        if os.path.islink(self._aside) or os.path.islink(os.path.dirname(self._aside)):
            return None
        places = (os.path.join(self._aside, f"{number}-{name}") for number in range(1, 10_000))
        return next((place for place in places if not os.path.lexists(place)), None)


def _links_above(root: str, name: str) -> list[str]:
    """The folders between ``root`` and the last part of ``name`` that are links."""
    parts = name.split("/")[:-1]
    above = [os.path.join(root, *parts[:end]) for end in range(1, len(parts) + 1)]
    return [path for path in above if os.path.islink(path)]


def _picture(path: str, left: list[int] | None = None) -> _Picture:
    """What a path is; ``left`` holds how many more entries are looked at."""
    left = [_ENTRIES] if left is None else left
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return "link", os.readlink(path)
        if stat.S_ISDIR(status.st_mode):
            names = os.listdir(path)
            left[0] -= len(names)
            if left[0] < 0:
                return ("unwatched",)
            return "folder", tuple((name, _picture(os.path.join(path, name), left)) for name in sorted(names))
        if stat.S_ISREG(status.st_mode) and status.st_size <= _FILE_CAP_BYTES:
            with open(path, "rb") as stream:
                return "file", stat.S_IMODE(status.st_mode), stream.read(_FILE_CAP_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError:
        return ("unwatched",)
    return "unwatched" if stat.S_ISREG(status.st_mode) else "special", status.st_size


def _put_back(path: str, before: tuple[object, ...]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    match before:
        case ("link", str(target)):
            os.symlink(target, path)
        case ("folder", tuple(entries)):
            os.mkdir(path)
            for name, picture in entries:
                if picture is not None:
                    _put_back(os.path.join(path, name), picture)
        case ("file", int(mode), bytes(content)):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(content)
            os.chmod(path, mode)
        case _:
            pass


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
