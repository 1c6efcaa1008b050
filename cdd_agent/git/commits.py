"""Commits that the program makes, finds again and takes back, without touching what else the user has staged.

The hooks that a commit in a repository would run: what the user has to approve before they take part.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cdd_agent.config.trust import Offer
from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.git.hardening import Setting, filters_put_aside, parse_listing
from cdd_agent.git.repository import CommitId, Repository, encoded, private_index, resolved
from cdd_agent.git.runner import GitError, GitUnable
from cdd_agent.storage import read_ordinary
from cdd_agent.untrusted import paths

_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024
"""A pointer of Git LFS is smaller than this."""


def require_identity(repository: Repository) -> None:
    """Raise ``EnvironmentMissing`` unless git knows who commits."""
    try:
        repository.git("var", "GIT_AUTHOR_IDENT")
        repository.git("var", "GIT_COMMITTER_IDENT")
    except GitError as error:
        raise EnvironmentMissing(
            "git does not know who commits here.",
            hint="git config user.name 'Your Name' && git config user.email you@example.org",
        ) from error


def require_base(repository: Repository) -> CommitId:
    """HEAD, to commit after and to go back to.

    Raises ``EnvironmentMissing`` if there is no commit yet, or if git does not know who commits.
    """
    require_identity(repository)
    head = repository.head()
    if head is None:
        raise EnvironmentMissing(
            "This repository has no commit yet, so there is nothing to go back to.",
            hint="make one: git commit --allow-empty -m start",
        )
    return head


def commit_paths(repository: Repository, message: str, *, paths: Iterable[str], allow_empty: bool = False) -> CommitId:
    """Commit the present content of ``paths`` and nothing else; the rest of the user's index stays as it is.

    Returns HEAD as it is if none of them differs from it, unless a commit of nothing is asked for by ``allow_empty``;
    what is staged of them follows, as after a commit. The user's
    commit hooks and signing take part; their refusal is a ``GateClosed`` with their words. Raises ``GitUnable`` for a
    file that would be committed unconverted.
    """
    named = tuple(paths)
    _require_convertible(repository, named)
    head = repository.head()
    with private_index() as index:
        if head is not None:
            repository.git("read-tree", head, variables=index)
        add = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        repository.git(*add, stdin=_listed(named), variables=index)
        tree = repository.git("write-tree", variables=index).strip()
        if head is not None and not allow_empty and tree == repository.git("rev-parse", f"{head}^{{tree}}").strip():
            refresh_index(repository, named)
            return head
        try:
            empty = ("--allow-empty",) if allow_empty else ()
            repository.git("commit", "--quiet", *empty, "-F", "-", stdin=message.encode(), variables=index, hooks=True)
        except GitUnable:
            raise
        except GitError as error:
            raise GateClosed(
                f"The commit was refused. {error.happened}", hint="mend what the hook names, then retry the step"
            ) from error
    refresh_index(repository, named)
    made = repository.head()
    if made is None:
        raise GitError("git commit reported success but HEAD names no commit.", hint="run: git status")
    return made


def remarks(repository: Repository) -> Iterator[str]:
    """What the user should know of this repository before the program works in it."""
    for name in filters_put_aside(repository.runner.configuration()):
        yield (
            f"The filter {name!r} is a program that only this repository's own configuration names: it is not run, and "
            "files that need it are not committed."
        )
    pointers = tuple(_lfs_pointers(repository))
    if pointers:
        more = f" and {len(pointers) - 3} more" if len(pointers) > 3 else ""
        yield (
            f"Git LFS has not brought the content of {', '.join(pointers[:3])}{more}: tests see pointers in its place, "
            "and checkpoints keep them. To bring it: git lfs pull"
        )


def refresh_index(repository: Repository, paths: Iterable[str]) -> None:
    """Make the user's index agree with HEAD for ``paths``, and only for them."""
    if listed := _listed(paths):  # git takes none as all
        repository.git("reset", "--quiet", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=listed)


def move_head(repository: Repository, to: CommitId, *, expected: CommitId, why: str) -> None:
    """Make the present branch name ``to`` if it still names ``expected``; index follows, work tree does not."""
    paths = [change.path for change in repository.changes(expected, to)]
    old, new = resolved(repository, expected), resolved(repository, to)
    repository.git("update-ref", "-m", f"cdd: {why}", "HEAD", new, old)
    refresh_index(repository, paths)


def find_by_trailer(repository: Repository, key: str, *, value: str, since: CommitId | None) -> CommitId | None:
    """The newest commit after ``since`` whose trailer ``key`` is ``value``."""
    span = "HEAD" if since is None else f"{resolved(repository, since)}..HEAD"
    log = repository.git("log", f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)", span)
    for line in log.splitlines():
        commit, _, found = line.partition(" ")
        if found.strip() == value:
            return CommitId(commit)
    return None


def _require_convertible(repository: Repository, paths: Iterable[str]) -> None:
    """Raise ``GitUnable`` if git would have to convert one of ``paths`` by a filter that is not run."""
    aside = filters_put_aside(repository.runner.configuration())
    if not aside:
        return
    told = repository.git("check-attr", "-z", "--stdin", "filter", stdin=_listed(paths)).split("\0")
    for path, name in zip(told[0::3], told[2::3], strict=False):
        if name in aside:
            raise GitUnable(
                f"{path} is converted by the filter {name!r}, a program that only this repository's own configuration "
                "names. It is not run, and the file is not committed without it.",
                hint="if you trust it, put it into your own configuration: git lfs install, or: "
                f'git config --global filter.{name}.clean "$(git config filter.{name}.clean)"',
            )


def _lfs_pointers(repository: Repository) -> Iterator[str]:
    """Tracked files of Git LFS that hold a pointer instead of their content."""
    magic = {"GIT_LITERAL_PATHSPECS": "0"}
    for name in repository.git("ls-files", "-z", "--", ":(attr:filter=lfs)", variables=magic).split("\0"):
        with contextlib.suppress(OSError):
            if read_ordinary(repository.root / name, limit_bytes=_POINTER_BYTES).startswith(_POINTER):
                yield name


def _listed(paths: Iterable[str]) -> bytes:
    """Paths as git reads them from its input."""
    return encoded("".join(f"{path}\0" for path in paths))


def uncommitted(repository: Repository) -> tuple[str, ...]:
    """Paths that are staged, changed or untracked, in git's order, but for repositories that only lie in here."""
    apart = repository.apart()
    return tuple(path for path in repository.uncommitted() if path not in apart)


def require_undisturbed(repository: Repository, changed: Sequence[str]) -> None:
    """Raise ``UsageError`` if work cannot begin because of the user's: paths ``changed`` and not committed.

    A merge, rebase or the like in progress is never allowed: the first commit would conclude it.
    """
    require_finished(repository)
    if changed:
        shown = "".join(f"\n  {path}" for path in changed[:10])
        more = f"\n  and {len(changed) - 10} more" if len(changed) > 10 else ""
        raise UsageError(
            f"There are uncommitted changes of yours in this project:{shown}{more}\nNothing was touched.",
            hint="commit or stash them, or run with --allow-dirty: they then stay as they are, and out of all commits",
        )


def require_finished(repository: Repository) -> None:
    """Raise ``UsageError`` while a merge, rebase or the like of the user's, or a rollback of ours, is in progress."""
    unfinished = repository.unfinished()
    if unfinished is not None:
        state, ends = unfinished
        raise UsageError(f"In this project {state} is in progress.\nNothing was touched.", hint=f"end it first: {ends}")


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
    folders = dict.fromkeys((*(root / name for name in paths.FOLDERS), *((folder,) if is_inside else ())))
    found = [root / name for name in paths.FILES if (root / name).is_file()]
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
