"""The hooks that a commit in a repository would run: what the user has to approve before they take part."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cdd_agent.git.failure import GitUnable
from cdd_agent.git.hardening import Setting, parse_listing
from cdd_agent.git.repository import Repository
from cdd_agent.guarded import hook_runners
from cdd_agent.storage import read_ordinary
from cdd_agent.trust import Offer

OF_A_COMMIT = (
    "pre-auto-gc",
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-index-change",
    "post-rewrite",
    "reference-transaction",
)
"""All that ``git commit`` can run."""

_SHOWN_LINES = 6
_SHOWN_NAMES = 8
_MOST_FILES = 2_000
_SHOWN_BYTES = 4_000
_LIMIT_BYTES = 200_000_000
"""Of all of them: a hook may be a program of its own, with all it needs in it."""


def offer(repository: Repository) -> Offer | None:
    """What would run at a commit; None if there are no hooks, or if they are the user's own.

    The user's own are those that the user's git configuration names, outside of the repository. What a hook calls
    elsewhere is the hook's affair, except for what lies beside it in the work tree and what the usual runners are told.
    """
    settings = parse_listing(repository.git("config", "--list", "-z", "--show-scope", "--show-origin"))
    folder = _folder(settings, repository)
    hooks = [] if folder is None else _hooks_in(folder)
    named = [f"{each.key} = {each.value}" for each in settings if each.is_of_the_repository and _of_hook(each)]
    if not hooks and not named:
        return None
    held: dict[Path, bytes] = {}
    for path in (*hooks, *_read_by_hooks(repository, folder=folder)):
        held[path] = _content(path, limit_bytes=_LIMIT_BYTES - sum(map(len, held.values())))
    names = [_shown_path(path, repository) for path in held]
    shown = [line for path, name in zip(hooks, names, strict=False) for line in (name, *_beginning(held[path]))]
    told = _some(names[len(hooks) :])
    digests = [f"{name}\0{hashlib.sha256(held[path]).hexdigest()}" for path, name in zip(held, names, strict=True)]
    return Offer(
        subject="hooks",
        source=_shown_path(folder, repository) if folder is not None and hooks else "git's configuration",
        shown=(*shown, *named, *((f"told what to run by {told}",) if told else ())),
        content="\n".join((*digests, *named)).encode("utf-8", "surrogateescape"),
    )


def _folder(settings: Sequence[Setting], repository: Repository) -> Path | None:
    """The folder of hooks that is not the user's own."""
    said = [each for each in settings if each.key == "core.hookspath" and each.scope != "command"]
    if not said:
        return repository.place.common_dir / "hooks"
    folder = (repository.root / os.path.expanduser(said[-1].value)).resolve()
    inside = any(folder.is_relative_to(own) for own in (repository.root.resolve(), repository.place.common_dir))
    return folder if inside or said[-1].is_of_the_repository else None


def _of_hook(setting: Setting) -> bool:
    """Whether newer versions of git take a hook from it, without any file."""
    return setting.key.startswith("hook.")


def _can_run(path: Path) -> bool:
    """Whether git would run the file."""
    return path.is_file() and os.access(path, os.X_OK)


def _read_by_hooks(repository: Repository, *, folder: Path | None) -> list[Path]:
    """The files that hook runners obey, and all that lies beside the hooks if they are part of the work tree."""
    root = repository.root.resolve()
    is_inside = folder is not None and folder.is_relative_to(root) and not folder.is_relative_to(root / ".git")
    folders = dict.fromkeys((*(root / name for name in hook_runners.FOLDERS), *((folder,) if is_inside else ())))
    found = [root / name for name in hook_runners.FILES if (root / name).is_file()]
    for top in folders:
        for inside, _, names in os.walk(str(top)):
            found += [Path(inside, name) for name in sorted(names) if Path(inside, name).is_file()]
            if len(found) > _MOST_FILES:
                raise GitUnable(
                    f"{top} holds more than {_MOST_FILES} files: too much to be approved as commit hooks.",
                    hint="keep hooks in a folder of their own, or turn them off: git config core.hooksPath /dev/null",
                )
    own = set() if folder is None else set(_hooks_in(folder))
    return [path for path in dict.fromkeys(found) if path not in own]


def _hooks_in(folder: Path) -> list[Path]:
    """What git runs at a commit, of what lies in its folder of hooks."""
    return [folder / name for name in OF_A_COMMIT if _can_run(folder / name)]


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _content(path: Path, *, limit_bytes: int) -> bytes:
    """The bytes of a file, or of what a link leads to; ``GitUnable`` if they cannot be had."""
    try:
        return read_ordinary(path, limit_bytes=limit_bytes, through_links=True)
    except OSError as error:
        raise GitUnable(
            f"The hook file {path} cannot be shown to you for approval: {error.strerror or error}.",
            hint=f"see what it is: ls -lL {path}; then make it an ordinary file, or remove it",
        ) from error


def _beginning(content: bytes) -> list[str]:
    """The first lines that do something, indented, and how many more there are."""
    head, size = content[:_SHOWN_BYTES], len(content)
    if b"\0" in head:
        return [f"  a program of {size:,} bytes"]
    lines = [line.strip() for line in head.decode("utf-8", "replace").splitlines()]
    saying = [line for line in lines if line and (not line.startswith("#") or line.startswith("#!"))]
    more = size > len(head) or len(saying) > _SHOWN_LINES
    left = f"  ... {size:,} bytes in all" if more else ""
    return [f"  {line}" for line in saying[:_SHOWN_LINES]] + ([left] if left else [])


def _shown_path(path: Path, repository: Repository) -> str:
    """``path`` relative to the work tree where it lies in it."""
    root = repository.root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
