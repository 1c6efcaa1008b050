"""The hooks that a commit in a repository would run: what the user has to approve before they take part."""

import hashlib
import os
from pathlib import Path

from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository
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

_USERS_OWN = ("system", "global")
_SHOWN_LINES = 6
_SHOWN_BYTES = 4_000


def offer(repository: Repository) -> Offer | None:
    """What would run at a commit; None if there are no hooks, or if they are the user's own.

    The user's own are those in a folder outside of the repository that the user's git configuration names for all
    repositories. What a hook calls elsewhere is the hook's affair, except for what the usual runners are told.
    """
    scope, folder = _folder(repository)
    inside = any(folder.is_relative_to(own) for own in (repository.root.resolve(), repository.place.common_dir))
    hooks = [folder / name for name in OF_A_COMMIT if _can_run(folder / name)]
    if not hooks or (scope in _USERS_OWN and not inside):
        return None
    files = [*hooks, *_configuration(repository.root)]
    names = [_shown_path(path, repository) for path in files]
    shown = [line for path, name in zip(hooks, names, strict=False) for line in (name, *_beginning(path))]
    told = names[len(hooks) :]
    content = "".join(f"{name}\0{_digest(path)}\n" for path, name in zip(files, names, strict=True))
    return Offer(
        subject="hooks",
        source=_shown_path(folder, repository),
        shown=(*shown, *((f"told what to run by {', '.join(told)}",) if told else ())),
        content=os.fsencode(content),
    )


def _folder(repository: Repository) -> tuple[str, Path]:
    """Which configuration names the hooks' folder, empty for none, and the folder."""
    try:
        named = repository.git("config", "--show-scope", "--type=path", "-z", "--get-all", "core.hooksPath").split("\0")
    except GitError:
        named = []
    said = [(scope, path) for scope, path in zip(named[0::2], named[1::2], strict=False) if scope != "command"]
    if not said:
        return "", repository.place.common_dir / "hooks"
    scope, path = said[-1]
    return scope, (repository.root / path).resolve()


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


def _digest(path: Path) -> str:
    """sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _beginning(path: Path) -> list[str]:
    """The first lines that do something, indented, and how many more there are."""
    with path.open("rb") as stream:
        head = stream.read(_SHOWN_BYTES)
    size = path.stat().st_size
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
