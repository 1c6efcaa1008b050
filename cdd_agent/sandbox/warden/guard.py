"""Paths that stay as they are: looked at before a run and after it, when nothing of the run is alive any more.

A sandbox can protect what is there; a file that is not there yet has nothing to be protected by. What came to be, or
was changed, is set aside if there is a place: a user may have made it in the meantime. Nothing of it is read, so that
mending takes no longer for much than for little; and as this happens outside every sandbox, no link is followed that
was not there before.
"""

import os
import stat

from cdd_agent.sandbox.warden.below import Spot, open_root, ways
from cdd_agent.sandbox.warden.picture import Budget, Picture, names_in, take

_KEPT_BYTES = 8 << 20
"""Of all files together; of those beyond that a change is noticed, and cannot be put back."""


_MOST_REMOVED = 200
"""A folder with more entries in all stays, under another name, where nothing can be set aside."""


class Guard:
    """Knows what its paths were, and puts them back."""

    def __init__(self, kept: list[tuple[str, str]], aside: str | None) -> None:
        """Look at each path, given as a folder and a name below it; a link stands with what it leads to."""
        self._aside = None if aside is None else os.path.realpath(aside)
        self._remarks: list[str] = []
        budget = Budget(_KEPT_BYTES)
        names = dict.fromkeys((root, way) for root, name in kept for way in ways(root, name))
        before = []
        for root, name in names:
            try:
                before.append((root, name, _taken(root, name, budget=budget)))
            except OSError:
                continue  # nobody may look there
        self._before = sorted(before, key=lambda seen: seen[2] is None or not stat.S_ISLNK(seen[2].kind))

    def mend(self) -> list[str]:
        """Put back what is no more as it was, links first; one remark each."""
        self._remarks = []
        for root, name, before in self._before:
            try:
                self._look(root, name, before=before)
            except OSError as error:
                self._remarks.append(f"{name} may have been changed by a program in the sandbox: {error}")
        return self._remarks

    def _look(self, root: str, name: str, *, before: Picture | None) -> None:
        """Compare what is at ``name``; a link that has come to be on the way is out of it first."""
        if before is None and not os.path.exists(root):
            return
        try:
            folder = open_root(root)
        except PermissionError:
            os.chmod(root, 0o700)
            folder = open_root(root)
        *above, last = name.split("/")
        try:
            for number, part in enumerate(above, start=1):
                spot = Spot(folder, part, shown="/".join(above[:number]))
                if not self._is_passable(spot, is_needed=before is not None):
                    return
                inner = _entered(spot)
                os.close(folder)
                folder = inner
            self._compare(Spot(folder, last, shown=name), before)
        finally:
            os.close(folder)

    def _is_passable(self, spot: Spot, *, is_needed: bool) -> bool:
        """Whether a folder is at a spot on the way; one that is needed is made."""
        status = spot.status()
        if status is not None and not stat.S_ISDIR(status.st_mode):
            if not is_needed and not stat.S_ISLNK(status.st_mode):
                return False
            self._remarks.append(self._set_aside(spot, was_there=False))
            status = None
        if status is None and is_needed:
            os.mkdir(spot.name, dir_fd=spot.folder)
        return status is not None or is_needed

    def _compare(self, spot: Spot, before: Picture | None) -> None:
        status = spot.status()
        if before is None:
            if status is not None:
                self._remarks.append(self._set_aside(spot, was_there=False))
            return
        if status is not None and isinstance(before.content, dict) and stat.S_ISDIR(status.st_mode):
            if self._compare_entries(spot, before.content):
                return
        elif status is not None and before.is_at(spot, status):
            return
        if status is None:
            said, end = f"{spot.shown} was removed by a program in the sandbox", ", and is put back"
        else:
            said, end = self._set_aside(spot, was_there=True), ""
        is_whole = before.put_back(spot)
        self._remarks.append(said + (end if is_whole else "; not all of it could be kept to put it back"))

    def _compare_entries(self, spot: Spot, before: dict[str, Picture]) -> bool:
        """Compare each entry of a folder, unless there are so many new ones that it is no more the folder it was."""
        folder = _entered(spot)
        try:
            names = names_in(folder, known=len(before))
            for name in () if names is None else sorted({*names, *before}):
                self._compare(spot.inside(folder, name), before.get(name))
        finally:
            os.close(folder)
        return names is not None

    def _set_aside(self, spot: Spot, *, was_there: bool) -> str:
        """Move what is at a spot out of the way; the remark that tells of it."""
        what = "was changed" if was_there else "came to be"
        said = f"{spot.shown} {what} while a program ran in the sandbox, and is"
        place = self._moved(spot)
        if self._aside is None:
            try:
                Spot(spot.folder, os.path.basename(place), shown=place).remove([_MOST_REMOVED])
            except OSError:
                pass  # it is not in the way any more
            else:
                return f"{said} removed"
        return f"{said} set aside as {place}"

    def _moved(self, spot: Spot) -> str:
        """Move what is at a spot to the folder for that; if that cannot be, give it a name that nobody obeys."""
        if self._aside is not None:
            try:
                folder = _made(self._aside)
                try:
                    return os.path.join(self._aside, spot.move(folder, before="-"))
                finally:
                    os.close(folder)
            except OSError:
                pass  # it is a link now, or on another file system
        return os.path.join(os.path.dirname(spot.shown), spot.move(spot.folder, after=".cdd-"))


def _taken(root: str, name: str, *, budget: Budget) -> Picture | None:
    """What is at a name; None if that, or a folder above it, is missing."""
    *above, last = name.split("/")
    try:
        folder = open_root(root)
    except FileNotFoundError:
        return None
    try:
        for part in above:
            inner = Spot(folder, part, shown=name).opened()
            os.close(folder)
            folder = inner
        return take(Spot(folder, last, shown=name), budget)
    except (FileNotFoundError, NotADirectoryError):
        return None
    finally:
        os.close(folder)


def _entered(spot: Spot) -> int:
    """A descriptor of the folder at a spot, even if the run took away the right to look into it."""
    try:
        return spot.opened()
    except PermissionError:
        spot.allow()
        return spot.opened()


def _made(path: str) -> int:
    """A descriptor of a folder, of which the last two parts are made if missing, and are no links."""
    above, last = os.path.split(path)
    top, middle = os.path.split(above)
    folder = open_root(top)
    for name in (middle, last):
        try:
            spot = Spot(folder, name, shown=name)
            if spot.status() is None:
                os.mkdir(name, 0o700, dir_fd=folder)
            inner = spot.opened()
        finally:
            os.close(folder)
        folder = inner
    return folder
