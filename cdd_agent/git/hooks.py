"""The hooks that a commit in a repository would run: what the user has to approve before they take part."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cdd_agent.git.failure import GitUnable
from cdd_agent.git.hardening import Setting, parse_listing
from cdd_agent.git.repository import Repository
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

_READ_BY_HOOKS = (
    ".husky",
    ".lefthook.yaml",
    ".lefthook.yml",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    "lefthook.yaml",
    "lefthook.yml",
)
"""Where the usual hook runners are told what to run; in a folder, its files."""

_SHOWN_LINES = 6
_SHOWN_BYTES = 4_000
_LIMIT_BYTES = 200_000_000
"""A hook may be a program of its own, with all it needs in it."""


def offer(repository: Repository) -> Offer | None:
    """What would run at a commit; None if there are no hooks, or if they are the user's own.

    The user's own are those that the user's git configuration names, outside of the repository. What a hook calls
    elsewhere is the hook's affair, except for what the usual runners are told.
    """
    settings = parse_listing(repository.git("config", "--list", "-z", "--show-scope", "--show-origin"))
    folder = _folder(settings, repository)
    hooks = [] if folder is None else [folder / name for name in OF_A_COMMIT if _can_run(folder / name)]
    named = [f"{each.key} = {each.value}" for each in settings if each.is_of_the_repository and _of_hook(each)]
    if not hooks and not named:
        return None
    held = {path: _content(path) for path in (*hooks, *_configuration(repository.root))}
    names = [_shown_path(path, repository) for path in held]
    shown = [line for path, name in zip(hooks, names, strict=False) for line in (name, *_beginning(held[path]))]
    told = names[len(hooks) :]
    digests = [f"{name}\0{hashlib.sha256(held[path]).hexdigest()}" for path, name in zip(held, names, strict=True)]
    return Offer(
        subject="hooks",
        source=_shown_path(folder, repository) if folder is not None and hooks else "git's configuration",
        shown=(*shown, *named, *((f"told what to run by {', '.join(told)}",) if told else ())),
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


def _configuration(root: Path) -> list[Path]:
    """The files of the work tree that hook runners obey."""
    found = []
    for name in _READ_BY_HOOKS:
        path = root / name
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [each for each in inside if each.is_file()]
    return found


def _content(path: Path) -> bytes:
    """The bytes of a file, or of what a link leads to; ``GitUnable`` if they cannot be had."""
    try:
        return read_ordinary(Path(os.path.realpath(path)), limit_bytes=_LIMIT_BYTES)
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
