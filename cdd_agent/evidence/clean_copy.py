"""A copy of the project outside its folder: the product as it is now, tests and configuration as RED left them.

The copy is a folder made through a private index, and a repository of its own: products and tests may call git. The
user's index, HEAD, stash, configuration and list of work trees are never touched, and nothing but a temporary folder is
left even by ``kill -9``. What git does not hold, such as ignored files, is not in it; neither is compiled code that an
earlier run may have planted.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cdd_agent.evidence.trees import entries, layout_of
from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository, encoded, private_index
from cdd_agent.git.snapshot import OURSELVES
from cdd_agent.testrun.suite import Layout, Suite


@contextlib.contextmanager
def clean_copy(repository: Repository, suite: Suite, *, green: str, red: str) -> Iterator[Suite]:
    """The suite in a copy of the tree ``green`` with the protected files of ``red``; gone after the block."""
    layout = layout_of(repository, suite)
    with tempfile.TemporaryDirectory(prefix="cdd-copy-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve() / repository.root.resolve().name
        with private_index() as index:
            repository.git("read-tree", green, variables=index)
            swaps = _restored(
                entries(repository, green), entries(repository, red), layout=layout, repository=repository
            )
            repository.git("update-index", "-z", "--index-info", stdin=encoded("".join(swaps)), variables=index)
            repository.git("checkout-index", "--all", "--force", f"--prefix={folder}{os.sep}", variables=index)
            folder.mkdir(exist_ok=True)
            _make_repository(folder, like=repository, index=Path(index["GIT_INDEX_FILE"]))
        root = folder / layout.project
        root.mkdir(parents=True, exist_ok=True)
        yield suite.in_copy(root, reads=(repository.place.common_dir / "objects",))


def _make_repository(folder: Path, *, like: Repository, index: Path) -> None:
    """Let git know the copy: one commit of all that is in it, on a branch of the same name, with borrowed objects.

    A copy for which that fails is still of use.
    """
    with contextlib.suppress(GitError, OSError):
        copy = Repository.create(folder, branch=like.branch() or "main", template=False)
        information = folder / ".git" / "objects" / "info"
        information.mkdir(parents=True, exist_ok=True)
        (information / "alternates").write_text(f"{like.place.common_dir / 'objects'}\n")
        shutil.copyfile(index, folder / ".git" / "index")
        copy.git("update-index", "-q", "--refresh")
        copy.git("commit", "--quiet", "--allow-empty", "--message=copy", variables=OURSELVES)


def _restored(
    green: Mapping[str, tuple[str, str]], red: Mapping[str, tuple[str, str]], *, layout: Layout, repository: Repository
) -> Iterator[str]:
    """The lines for ``update-index`` that bring tests and configuration back to what they were in ``red``."""
    for path in sorted({*green, *red}):
        before, now = red.get(path), green.get(path)
        if before == now:
            continue
        is_shared = path.rpartition("/")[2] in layout.conventions.shared and _configures_anew(
            (before, now), path=path, layout=layout, repository=repository
        )
        if not (is_shared or layout.is_test(path)):
            continue
        mode, object_id = before or ("0", "0" * len(now[1] if now else ""))
        yield f"{mode} {object_id}\t{path}\0"


def _configures_anew(
    entries: tuple[tuple[str, str] | None, ...], *, path: str, layout: Layout, repository: Repository
) -> bool:
    """Whether the part of a file that configures the tests differs."""
    sections = []
    for entry in entries:
        with tempfile.TemporaryDirectory(prefix="cdd-section-", ignore_cleanup_errors=True) as folder:
            if entry is not None:
                text = repository.git("cat-file", "blob", entry[1])
                (Path(folder) / path.rpartition("/")[2]).write_bytes(encoded(text))
            sections.append(layout.conventions.parts(Path(folder)))
    return sections[0] != sections[1]
