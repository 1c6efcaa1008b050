"""What of the user's stands in a way back: changes that are not committed, files that would be written over."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from cdd_agent.errors import UsageError

MOST = 20
"""Paths that an error lists."""


def require_free(
    root: Path, *, paths: Collection[str], added: Collection[str], going: Collection[str], uncommitted: Iterable[str]
) -> None:
    """Raise ``UsageError`` with the list unless every one of ``paths`` can change without the loss of anything.

    ``added`` are those that are not tracked now: nothing may be in their place but ``going``, what goes by itself.
    ``uncommitted`` is the user's own.
    """
    own = set(uncommitted)
    found = {path for path in own if path in paths}
    for path in added:
        found.update(_in_the_way(root, path, going=going))
    if not found:
        return
    shown = sorted(found)
    more = f"\n  and {len(shown) - MOST} more" if len(shown) > MOST else ""
    listed = "".join(f"\n  {path}" for path in shown[:MOST])
    raise UsageError(
        f"These files hold what is in no commit, and the rollback would change them:{listed}{more}\n"
        "Nothing was touched.",
        hint="commit them, move them away, or put them aside: git stash push --include-untracked -- PATH; then again",
    )


def _in_the_way(root: Path, path: str, *, going: Collection[str]) -> Iterator[str]:
    """What is at ``path``, or where one of its folders has to be; ignored files too."""
    target = root / path
    for folder in list(target.relative_to(root).parents)[-2::-1]:
        place = root / folder
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            if folder.as_posix() not in going:
                yield folder.as_posix()
            return
    if target.is_dir() and not target.is_symlink():
        for here, folders, files in os.walk(target):
            links = [name for name in folders if (Path(here) / name).is_symlink()]
            inside = (Path(here, name).relative_to(root).as_posix() for name in (*files, *links))
            yield from (name for name in inside if name not in going)
    elif os.path.lexists(target) and path not in going:
        yield path
