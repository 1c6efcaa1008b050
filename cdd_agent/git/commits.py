"""Commits that the program makes, finds again and takes back, without touching what else the user has staged."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.git.failure import GitError, GitUnable
from cdd_agent.git.hardening import filters_put_aside
from cdd_agent.git.repository import CommitId, Repository, encoded, private_index, resolved
from cdd_agent.storage import read_ordinary

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
