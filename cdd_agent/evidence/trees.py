"""What the history says of a change: the files of two trees, read through git and never from the work tree."""

import os
from collections.abc import Collection, Iterable, Iterator

from cdd_agent.evidence.request import PYTHON, ProductChange
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.suite import Layout, Suite
from pytest_tdd_agent.fingerprint import is_protected
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
