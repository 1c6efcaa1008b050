"""A copy of the project outside its folder: the product as it is now, tests and configuration as RED left them.

The copy is a folder made through a private index, and a repository of its own: products and tests may call git. The
user's index, HEAD, stash, configuration and list of work trees are never touched, and nothing but a temporary folder is
left even by ``kill -9``. What git does not hold, such as ignored files, is not in it; neither is compiled code that an
earlier run may have planted.

What the history says of a change: the files of two trees, read through git and never from the work tree.

Files of the project that git does not hold, lent to a clean copy: do the tests need them?

Python modules and pytest's configuration are not lent: they could bend the run that the copy is made to check.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from cdd_agent.evidence.request import PYTHON, ProductChange
from cdd_agent.git.repository import Repository, encoded, private_index
from cdd_agent.git.runner import GitError
from cdd_agent.git.snapshot import OURSELVES
from cdd_agent.testrun.suite import Layout, Suite
from cdd_agent.untrusted.paths import is_marked_as_environment
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, is_protected
from pytest_tdd_agent.report import SuiteReport


def newly_passing(report: SuiteReport, *, baseline: SuiteReport) -> tuple[str, ...]:
    """Node ids of the tests that pass now and failed, or could not be collected, in the baseline.

    Those that failed before RED already count only if there are no others: one that fails now and then proves nothing.
    """
    before = {case.nodeid: case.outcome for case in baseline.tests}
    passing = (case.nodeid for case in report.tests if case.outcome == "passed")
    found = tuple(nodeid for nodeid in passing if before.get(nodeid, "failed") in ("failed", "error"))
    return tuple(nodeid for nodeid in found if nodeid not in baseline.old_failures) or found


def project_in(repository: Repository, suite: Suite) -> str:
    """The project's folder relative to the work tree; empty if it is the work tree."""
    inside = suite.root.resolve().relative_to(repository.root.resolve()).as_posix()
    return "" if inside == "." else inside


def layout_of(repository: Repository, suite: Suite) -> Layout:
    """Which files of the work tree are the project's tests."""
    return Layout(project=project_in(repository, suite), conventions=suite.conventions)


def entries(repository: Repository, tree: str) -> dict[str, tuple[str, str]]:
    """Path -> mode and object id of everything in a tree."""
    listed = repository.git("ls-tree", "-r", "-z", "--full-tree", tree).split("\0")
    found = {}
    for entry in filter(None, listed):
        about, _, path = entry.partition("\t")
        mode, _, object_id = about.split(" ")
        found[path] = (mode, object_id)
    return found


def product_changes(
    repository: Repository, *, layout: Layout, red: str, green: str, tests: Collection[str] = ()
) -> tuple[ProductChange, ...]:
    """What differs between two trees and is neither protected nor one of ``tests`` (files, relative to the project).

    Only the texts of Python sources are read.
    """
    found = []
    for change in repository.changes(red, green, submodules=False):
        path = os.path.relpath(change.path, layout.project or ".")
        if layout.is_test(change.path) or path in tests:
            continue
        is_read = path.endswith(PYTHON)
        old = _text(repository, red, path=change.path) if is_read and change.kind != "created" else None
        new = _text(repository, green, path=change.path) if is_read and change.kind != "deleted" else None
        found.append(ProductChange(path=path, old=old, new=new))
    return tuple(found)


def sources_of_tests(repository: Repository, *, project: str, tree: str, targets: Collection[str]) -> dict[str, str]:
    """File of a target, relative to the project -> its source in ``tree``."""
    files = dict.fromkeys(target.partition("::")[0] for target in targets)
    return sources_in(repository, project=project, tree=tree, paths=files)


def sources_in(repository: Repository, *, project: str, tree: str, paths: Iterable[str]) -> dict[str, str]:
    """Those of ``paths``, relative to the project, that ``tree`` holds -> their content."""
    held = entries(repository, tree)
    places = {path: f"{project}/{path}" if project else path for path in paths}
    return {path: _text(repository, tree, path=place) for path, place in places.items() if place in held}


def product_sources(repository: Repository, *, project: str, tree: str) -> Iterator[str]:
    """The Python sources of the product in ``tree``, one after the other."""
    inside = f"{project}/" if project else ""
    for path in entries(repository, tree):
        if path.startswith(inside) and path.endswith(".py") and not is_protected(path.removeprefix(inside)):
            yield _text(repository, tree, path=path)


def _text(repository: Repository, tree: str, *, path: str) -> str:
    """A file's content; bytes that are no UTF-8 are kept as git's paths are."""
    return repository.git("cat-file", "blob", f"{tree}:{path}")


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


MOST_FILES = 2000
MOST_BYTES = 200_000_000
_NOT_LENT = (".py", ".pyw", ".pyc", ".pyo", ".pyd", ".so", ".pth")
_CONFIGURATION = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "setup.cfg", "tox.ini"}
)


def lend(repository: Repository, project: Path, *, copy: Path) -> tuple[str, ...] | None:
    """Copy what git ignores below ``project`` into ``copy``; the names that are new there; None if too many."""
    files = []
    left = MOST_BYTES
    for path in _ignored(repository, project):
        left -= path.lstat().st_size
        files.append(path)
        if len(files) > MOST_FILES or left < 0:
            return None
    lent = []
    for path in files:
        name = path.relative_to(project)
        place = copy / name
        if os.path.lexists(place) or not place.parent.resolve().is_relative_to(copy):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
        lent.append(name.as_posix())
    return tuple(lent)


def _ignored(repository: Repository, project: Path) -> Iterator[Path]:
    """The ignored files below ``project``, without caches and environments."""
    for name in repository.ignored():
        path = repository.root.resolve() / name
        if not (path.is_relative_to(project) or project.is_relative_to(path)):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(project if project.is_relative_to(path) else path, below=project)
        elif _is_lent(path) and not IGNORED_FOLDERS.intersection(path.relative_to(project).parts):
            yield path


def _files(folder: Path, *, below: Path) -> Iterator[Path]:
    if IGNORED_FOLDERS.intersection(folder.relative_to(below).parts) or is_marked_as_environment(folder):
        return
    for here, subfolders, names in os.walk(folder):
        kept = (name for name in subfolders if name not in IGNORED_FOLDERS)
        subfolders[:] = [name for name in kept if not is_marked_as_environment(Path(here, name))]
        yield from filter(_is_lent, (Path(here) / name for name in names))


def _is_lent(path: Path) -> bool:
    is_kind = path.is_symlink() or path.is_file()
    return is_kind and path.name not in _CONFIGURATION and not path.name.endswith(_NOT_LENT)
