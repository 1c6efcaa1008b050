"""What the user's ignored files mean for a run: which of them it gets, and the values that no commit may hold."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cdd_agent.config.options import Choose
from cdd_agent.config.trust import Offer, Trust
from cdd_agent.errors import join_first
from cdd_agent.git.ignored import (
    INCLUDE_FILE,
    NO_IGNORED_FILES,
    IgnoredGroup,
    list_suspects,
    offer_included,
    relativize,
    select_ignored,
)
from cdd_agent.git.origin import is_machine_code
from cdd_agent.git.repository import Repository
from cdd_agent.git.runner import GitError
from cdd_agent.storage import private_folder, read_ordinary, write_atomic
from cdd_agent.untrusted.known_values import KnownValues
from cdd_agent.untrusted.paths import PRIVATE_FOLDERS, is_environment, is_secret
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

_NOT_READ = PRIVATE_FOLDERS | IGNORED_FOLDERS
_MOST_FILE_BYTES = 2_000_000
_MOST_BYTES = 8_000_000
"""Of the files whose values are compared with a commit; the smallest are read first: settings and keys are small."""


def read_ignored_values(repository: Repository, paths: Iterable[str]) -> KnownValues:
    """Return the values in ignored files and folders of a work tree that are in no file of its HEAD."""
    head, root = repository.read_head(), repository.root.resolve()

    def is_public(text: str) -> bool:
        # By standard input, because everyone can see the arguments of a process.
        with contextlib.suppress(GitError):
            repository.git("grep", ("--quiet", "--fixed-strings", "-f", "-"), head or "HEAD", stdin=text.encode())
            return True
        return False

    sizes = {}
    for path in _walk_files(root, paths):
        with contextlib.suppress(OSError):
            sizes[path] = (root / path).lstat().st_size
    values, left_bytes = KnownValues(is_public=is_public), _MOST_BYTES
    tracked = repository.git("ls-files", ("-z",)).split("\0") if sizes else ()
    parts = {part for path in (*sizes, *tracked) for part in path.split("/")}
    names = {name for part in parts for name in (part, *part.split("."))}
    for path, size in sorted(sizes.items(), key=lambda each: each[1]):
        left_bytes -= size
        if left_bytes < 0:
            break
        with contextlib.suppress(OSError):
            content = read_ordinary(root / path, limit_bytes=_MOST_FILE_BYTES)
            if is_secret(path) or not is_machine_code(content, path=path):  # whose words are names of a compiler
                values.add(path, content, names=names)
    return values


def _walk_files(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the files of ``paths``, without those in caches, environments, and cdd's own folder."""

    def is_left_out(path: str) -> bool:
        return not _NOT_READ.isdisjoint(path.split("/")) or is_environment(root / path)

    for path in (path for path in paths if not is_left_out(path.rstrip("/"))):
        if not (root / path).is_dir() or (root / path).is_symlink():
            yield path
            continue
        for folder, folders, names in os.walk(root / path):
            inside = os.path.relpath(folder, root)
            folders[:] = [name for name in folders if not is_left_out(f"{inside}/{name}")]
            yield from (f"{inside}/{name}" for name in names)


_INCLUSIONS = (
    "none: runs work without them; a test that fails and names one of them is reported",
    "all: runs get a copy of them; the agent and the tests can read them",
    "choose: some of them",
)
_MOST_GROUPS = 12
_SHOWN_PATHS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludedFiles:
    """The user's decision about which ignored files runs get: the list in ``INCLUDE_FILE``, and its approval."""

    user: Repository
    project: Path
    """The folder with ``.cdd``."""
    trust: Trust

    @property
    def prefix(self) -> str:
        """The project's folder in the work tree, with a slash at the end; empty for the top."""
        return relativize(self.project, self.user)

    def list_offers(self, *, is_described: bool = True) -> tuple[Offer, ...]:
        """Return the lists of the project and of the work tree around it, as the user has to approve them."""
        here = self.project.resolve()
        folders = dict.fromkeys((self.user.root.resolve(), here))
        offer = partial(offer_included, self.user, shown_from=here, is_described=is_described)
        return tuple(found for folder in folders if (found := offer(folder)) is not None)

    def read(self) -> bytes:
        """Return the approved patterns, relative to the top of the work tree; asks about a list that is new.

        Raises ``NotApproved`` for a list about which the user has not decided and cannot be asked.
        """
        offers = self.list_offers(is_described=False)
        if any(self.trust.approvals.find_decision(offer) is None for offer in offers):
            offers = self.list_offers()
        return b"".join(offer.content for offer in offers if self.trust.allows(offer))

    def has_decided(self, *, choose: Choose | None) -> bool:
        """Return whether the user has decided, and ask once if there are files to decide about."""
        approvals = self.trust.approvals
        if self.list_offers(is_described=False):
            return True
        if approvals.folder is None or approvals.find_decision(NO_IGNORED_FILES) is not None:
            return approvals.folder is not None
        if choose is None:
            return False
        found = select_ignored(self.user, accepts=lambda path: path.startswith(self.prefix))
        groups = found.group_others()
        if not groups:
            return False
        suspects = list_suspects(self.user, (path for group in groups for path in group.paths))
        chosen = _choose_groups(groups, secret=found.secret, suspects=suspects, choose=choose)
        lines = "".join(f"{line}\n" for group in chosen for line in group.list_patterns(project=self.prefix))
        if lines:
            file = private_folder(self.project) / Path(INCLUDE_FILE).name
            write_atomic(file, lines.encode("utf-8", "surrogateescape"))
        for offer in self.list_offers(is_described=False) or (NO_IGNORED_FILES,):
            approvals.record(offer, approved=True)
        return True


def _choose_groups(
    groups: tuple[IgnoredGroup, ...], *, secret: tuple[str, ...], suspects: tuple[str, ...], choose: Choose
) -> tuple[IgnoredGroup, ...]:
    rows = [f"  {group.describe()}" for group in groups[:_MOST_GROUPS]]
    rows += [f"  and {len(groups) - _MOST_GROUPS} more groups"] if len(groups) > _MOST_GROUPS else []
    named = join_first(secret, most=_SHOWN_PATHS)
    seem = f"\nThese seem to hold secrets: {join_first(suspects, most=_SHOWN_PATHS)}." if suspects else ""
    apart = f"\nNot meant: {named}. Each needs its own line in {INCLUDE_FILE}." if secret else ""
    answer = choose(
        "Git ignores these files, and no build made them. Runs work in a copy of the project, where the agent and the "
        f"tests can read what is copied. Do your tests need them?\n{chr(10).join(rows)}{seem}{apart}",
        _INCLUSIONS,
    )
    if answer < 2:
        return groups if answer else ()
    left, chosen = list(groups), list[IgnoredGroup]()
    while left and (number := choose("Copy which?", ("done", *(group.describe() for group in left)))):
        chosen.append(left.pop(number - 1))
    return tuple(chosen)
