"""The input and the result of the evidence checks, and the clean copy of the project in which tests run again.

The copy holds the product of one commit, with the tests and configuration of another. It is a temporary folder
outside the project, with its own repository, because products and tests may call git. It holds only files that git
tracks, links to them, modules that the user has built, and ignored files that the user approved: nothing that git does
not track and that a run may have planted. The user's index, HEAD, stash and configuration stay unchanged. ``kill -9``
leaves the temporary folder behind, nothing else.
"""

import contextlib
import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.evidence.source import find_definition
from cdd_agent.git.ignored import copy_ignored, select_ignored
from cdd_agent.git.origin import BuildOrigin
from cdd_agent.git.repository import (
    CDD_IDENTITY,
    SUBMODULE,
    CopyLimits,
    Entry,
    ObjectReader,
    Repository,
    is_sparse,
    private_index,
    read_files,
)
from cdd_agent.git.run_tree import GitExport, delete_folder, write_files, write_git_folder, write_submodules
from cdd_agent.git.runner import GitError
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import SHOWN_PRIVATE
from cdd_agent.testrun.suite import ProjectLayout, Suite, run_setup
from cdd_agent.untrusted.paths import explain_build, explain_protection, is_environment
from cdd_agent.untrusted.python_source import PYTHON, decode
from cdd_agent.work.finding import Check, Finding, Outcome
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS, is_protected
from pytest_tdd_agent.report import FAILING, Part, Reason, SuiteReport, list_rescued

CODES = {
    "vacuous_test": "The new tests pass with a stub in place of the missing name that does nothing or answers wrongly, "
    "or run no assertion if it returns nothing.",
    "unreadable_source": "The change adds a source that cannot be read, or makes one unreadable.",
    "suspicious_code": "The change adds code that writes into a test tool or names the report of the tests.",
    "canary_failed": "Tests with a known result, added to the targets, were reported incorrectly.",
    "report_differs": "A target passes by cdd's report, and not by the JUnit XML and exit status of a plain pytest.",
    "not_reproduced": "A target fails in a clean copy with RED's tests and configuration.",
    "expectation_ignored": "A target passes although the values that it expects were altered.",
    "unproven_change": "No target test fails when the changed code is altered.",
    "shadows_tests": "The tests import a new module of the product in place of one of theirs.",
    "only_under_test": "The product gives another result where it cannot see pytest.",
    "examples_only": "A function answers the tests' calls, and gives all similar calls the same answer.",
    "example_failed": "A further example of a criterion fails.",
    "example_regressed": "A further example passes without the change and fails with it.",
    "behavior_changed": "A change of structure changes the result of a call.",
}
DOUBTS = frozenset({"examples_only"})
"""Codes of reasons that no longer count if enough further examples pass."""

_TREE = "40000"
_LINK = "120000"
_MOST_LINKS = 8
"""How many links one after the other are followed."""
_MOST_MODULE_BYTES = 10_000_000
"""Of a module that git does not track."""
COMPILED = (".pyd", ".so")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductChange:
    """One changed file of the product. ``path`` is relative to the project. Only Python sources have texts."""

    path: str
    old: str | None
    """The text before. None: the file is new."""
    new: str | None
    """The text now. None: the file was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A GREEN with an open gate, and the input of its checks. Paths and node ids are relative to the project."""

    targets: tuple[str, ...]
    """Node ids of tests that the change made pass. Empty: only the changed code itself is checked."""
    changes: tuple[ProductChange, ...]
    tests: Mapping[str, str]
    """File of a target -> its source."""
    stated: str
    """The step's text. The product may contain the literals that it names."""
    red: str
    """Commit or tree before the change, with the tests."""
    green: str
    baseline: SuiteReport
    elsewhere: Callable[[], Iterable[str]] = tuple
    """Returns the product's sources before the change. Called only if a check found something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The result of the checks."""

    reasons: tuple[Reason, ...] = ()
    """The reasons to refuse the change, with codes from ``CODES``. Empty: it is confirmed."""
    notices: tuple[Finding, ...] = ()

    def __add__(self, other: "Findings") -> "Findings":
        """Combine two results."""
        return Findings(reasons=self.reasons + other.reasons, notices=self.notices + other.notices)


def note(
    check: Check,
    case: str,
    *,
    outcome: Outcome = "unverified",
    places: tuple[str, ...] = (),
    functions: tuple[str, ...] = (),
    calls: int | None = None,
    **parts: Part,
) -> Findings:
    """Return a finding that does not refuse the change. Its fields are those of ``Finding``."""
    finding = Finding(
        check=check, outcome=outcome, case=case, places=places, functions=functions, calls=calls, parts=parts
    )
    return Findings(notices=(finding,))


def refuse(code: str, case: str = "", *, nodeid: str | None = None, **parts: Part) -> Findings:
    """Return a reason to refuse the change."""
    return Findings(reasons=(Reason(code=code, nodeid=nodeid, case=case, parts=parts),))


def locate(path: str, name: str, *, changes: Iterable["ProductChange"]) -> str:
    """Return the place of a changed function or class, such as ``shop.py:12``; otherwise only its file."""
    line = next((find_definition(change.new, name) for change in changes if change.path == path), None)
    return f"{path}:{line}" if line is not None else path


def is_python(change: ProductChange) -> bool:
    """Return whether the change results in a Python source."""
    return change.new is not None and change.path.endswith(PYTHON)


def list_test_functions(nodeids: Iterable[str]) -> tuple[str, ...]:
    """Return the tests without parameters, which may contain a path or the time."""
    return tuple(dict.fromkeys(map(strip_parameters, nodeids)))


def find_not_passing(wanted: Sequence[str], report: SuiteReport) -> tuple[str, ...]:
    """Return the tests that did not pass.

    Parameters vary between runs. A test that the report does not name therefore counts as passed if at least as many
    tests of its function passed as are wanted.
    """
    reported = {case.nodeid for case in report.tests}
    passed = {case.nodeid for case in report.tests if case.outcome == "passed"}
    passed_of, wanted_of = Counter(map(strip_parameters, passed)), Counter(map(strip_parameters, wanted))

    def has_passed(nodeid: str) -> bool:
        function = strip_parameters(nodeid)
        return nodeid in passed or (nodeid not in reported and passed_of[function] >= wanted_of[function])

    return tuple(nodeid for nodeid in wanted if not has_passed(nodeid))


def find_newly_passing(report: SuiteReport, *, baseline: SuiteReport) -> tuple[str, ...]:
    """Return the node ids of tests that pass now and did not pass in the baseline.

    A test that failed before RED may be flaky, so it counts only if no other test passes newly.
    """
    before = {case.nodeid: case.outcome for case in baseline.tests}
    passing = (case.nodeid for case in report.tests if case.outcome == "passed")
    rescued = list_rescued(report)
    newly = tuple(n for n in passing if before.get(n, "failed") in FAILING and n not in rescued)
    return tuple(nodeid for nodeid in newly if nodeid not in baseline.old_failures) or newly


def find_layout(repository: Repository, suite: Suite) -> ProjectLayout:
    """Return the layout that tells the project's tests from other files of the work tree."""
    inside = suite.root.resolve().relative_to(repository.root.resolve()).as_posix()
    return ProjectLayout(project="" if inside == "." else inside, conventions=suite.conventions)


def list_product_changes(
    repository: Repository, *, layout: ProjectLayout, red: str, green: str, tests: Collection[str] = ()
) -> tuple[ProductChange, ...]:
    """List the changes between two trees, except test files and ``tests``. Only Python sources have texts."""
    changes = []
    for full_path, (before, after) in repository.objects.compare(red, green).items():
        path = os.path.relpath(full_path, layout.project or ".")
        if layout.is_test(full_path) or path in tests or SUBMODULE in (before and before.mode, after and after.mode):
            continue
        is_read = path.endswith(PYTHON)
        old = _read_python(repository, red, path=full_path) if is_read and before else None
        new = _read_python(repository, green, path=full_path) if is_read and after else None
        changes.append(ProductChange(path=path, old=old, new=new))
    return tuple(changes)


def read_through_links(repository: Repository, tree: str, *, path: str) -> bytes | None:
    """Return the content of a file in a tree. None: it is not there, or a link that leads out of the tree.

    Python runs what a link leads to, whatever that is called. ``path`` is relative to the work tree.
    """
    for _ in range(_MOST_LINKS):
        entry = repository.objects.find_entry(tree, path)
        if entry is None or entry.mode == SUBMODULE:
            return None
        found = repository.objects.require(entry.id)
        if entry.mode != _LINK:
            return found.data
        path = os.path.normpath(os.path.join(os.path.dirname(path), found.text))
    return None


def _read_python(repository: Repository, tree: str, *, path: str) -> str:
    return decode(read_through_links(repository, tree, path=path) or b"")


def read_sources(repository: Repository, *, project: str, tree: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the files of ``paths``, which may be node ids, relative to the project -> content in ``tree``."""
    files = dict.fromkeys(path.partition("::")[0] for path in paths)
    entries = {path: repository.objects.find_entry(tree, f"{project}/{path}" if project else path) for path in files}
    return {path: _read_text(repository, entry, path=path) for path, entry in entries.items() if entry is not None}


def read_product_sources(repository: Repository, *, project: str, tree: str) -> Iterator[str]:
    """Iterate over the product's Python sources in ``tree``."""
    inside = f"{project}/" if project else ""
    for path, entry in repository.objects.list_files(tree).items():
        if path.startswith(inside) and path.endswith(PYTHON) and not is_protected(path.removeprefix(inside)):
            yield _read_text(repository, entry, path=path)


def _read_text(repository: Repository, entry: Entry, *, path: str) -> str:
    found = repository.objects.require(entry.id)
    return decode(found.data) if path.endswith(PYTHON) else found.text


@contextlib.contextmanager
def clean_copy(
    repository: Repository, suite: Suite, *, green: str, red: str, has_included: bool = True
) -> Iterator[Suite]:
    """Copy the tree ``green`` with the protected files of ``red``, and return the suite in the copy.

    ``has_included``: with the ignored files that the user approved for run trees.
    """
    with make_folder(repository) as place:
        yield place.fill(suite, green=green, red=red, has_included=has_included)


@contextlib.contextmanager
def make_folder(repository: Repository) -> Iterator["CopyFolder"]:
    """Make a temporary folder for a copy, and delete it with all its files after the block."""
    with (
        tempfile.TemporaryDirectory(prefix="cdd-copy-", ignore_cleanup_errors=True) as temporary,
        private_index() as index,
    ):
        folder = Path(temporary).resolve() / repository.root.resolve().name
        folder.mkdir()
        yield CopyFolder(repository=repository, folder=folder, index=index)


@dataclass(frozen=True, kw_only=True)
class CopyFolder:
    """A folder for a copy, and the index of what git has written there."""

    repository: Repository
    folder: Path
    index: Mapping[str, str]

    def fill(self, suite: Suite, *, green: str, red: str, has_included: bool = True) -> Suite:
        """Write the copy, and return the suite in it. Of a copy that is here, files that stay the same are kept."""
        repository, folder, index = self.repository, self.folder, self.index
        layout = find_layout(repository, suite)
        export = GitExport(folder=suite.original.git) if suite.original and suite.original.git else None
        found = repository.objects.require(green)
        tree = repository.objects.require(f"{green}^{{tree}}").id
        protected = find_protected_entries(repository, green=green, red=red, layout=layout)
        if protected:
            tree = repository.edit_tree(green, protected)
        if is_sparse(repository):
            read_files(repository, tree, index=index)
        write_files(repository, tree, folder=folder, index=index)
        passing = Path(index["GIT_INDEX_FILE"]).with_name("submodules")
        write_submodules(repository, folder, indexes=passing, variables=index)
        # A snapshot is a commit without history, as the copy's shall be.
        is_fit = not protected and found.kind == "commit" and not found.data.split(b"\n", 2)[1].startswith(b"parent")
        commit = found.id if is_fit else None
        _make_repository(folder, commit, like=repository, tree=tree, index=index, export=export)
        root = folder / layout.project
        root.mkdir(parents=True, exist_ok=True)
        _add_untracked(suite, folder, layout=layout, repository=repository, red=red)
        if has_included and suite.original is not None and repository.read_included():
            copy_ignored_files(repository, suite, copy=root)
        # The copy borrows objects, so the sandbox must let tests read them.
        copy = suite.with_root(root, reads=(_find_objects(repository, export),))
        if copy.setup:
            run_setup(copy, tests_too=True)  # if it fails, the tests show what that means
            write_files(repository, tree, folder=folder, index=index)
            _remove_planted_tests(repository, folder, index=index, layout=layout)
        return copy

    def clear(self) -> None:
        """Delete what git did not write. Raises ``OSError`` or ``GitError`` if that is not possible."""
        delete_folder(self.folder / ".git")
        for path in _list_others(self.repository, self.folder, index=self.index):
            (self.folder / path).unlink()


def _add_untracked(suite: Suite, folder: Path, *, layout: ProjectLayout, repository: Repository, red: str) -> None:
    """Add links and modules of the user's work tree that git does not track.

    The links are those to what is in the copy. An installation may consist of them, such as setuptools' strict editable
    mode, and they bring no code. A module, compiled or written by a build as ``_version.py`` is, is added only from
    where nobody but the user writes.
    """
    project = suite.root if suite.original is None else suite.original.root
    top, run_top = (
        path.parents[layout.project.count("/")] if layout.project else path for path in (project, suite.root)
    )
    links, modules = list[str](), list[str]()
    for entry in _walk_untouched(top):
        if entry.is_symlink():
            links.append(os.path.relpath(entry.path, top))
        elif entry.name.endswith((*COMPILED, ".py")):
            modules.append(os.path.relpath(entry.path, top))
    for path in links:
        leads = _follow(top / path, top=top.resolve())
        is_left_out = leads is None or layout.shadows_tool(path) or (layout.is_test(path) and not layout.is_test(leads))
        # The change may have deleted a link that git tracks.
        if leads is not None and not is_left_out and not _is_tracked(repository, path, trees=(red, "HEAD")):
            _add_link(folder / path, folder / leads)
    if suite.original is None or not suite.conventions.is_python:
        return
    missing = [path for path in modules if _is_free(folder / path)]
    sources = [path for path in missing if not path.endswith(COMPILED) and not _is_special(path, layout)]
    ignored = repository.match_ignored(sources)  # the commit lacks the user's other untracked files
    if ignored and run_top == top:  # not a run tree, which has no others
        ignored &= select_ignored(repository).chosen.keys()
    origin = BuildOrigin(top, list_tracked=frozenset)
    for path in missing:
        with contextlib.suppress(OSError):
            is_compiled = path.endswith(COMPILED) and origin.comes_from_build(path)
            if is_compiled or (path in ignored and _is_provided(path, top, run_top=run_top)):
                shutil.copyfile(top / path, folder / path)


def _is_free(file: Path) -> bool:
    """Return whether a copy has the folder of a file, but not the file."""
    with contextlib.suppress(OSError, RuntimeError):  # there is no such folder, or it is a circle of links
        # Through a link of the change, the file would be written where the link leads.
        return not os.path.lexists(file) and file.parent.resolve(strict=True) == file.parent
    return False


def _is_special(path: str, layout: ProjectLayout) -> bool:
    """Return whether a module changes how tests run."""
    is_of_tests = layout.is_test(path) or layout.shadows_tool(path)
    return is_of_tests or explain_build(path) is not None or explain_protection(path) is not None


def _is_provided(path: str, top: Path, *, run_top: Path) -> bool:
    """Return whether a run begins with the user's module."""
    # A program may have left a pipe in the run tree, which nobody writes to, or a file of any size.
    provided, own = (read_ordinary(each / path, limit_bytes=_MOST_MODULE_BYTES) for each in (run_top, top))
    return provided == own


def _walk_untouched(top: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files and links below ``top``, without caches, environments and what tools keep for themselves."""
    waiting = [str(top)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif entry.name not in IGNORED_FOLDERS and not is_environment(Path(entry.path)):
                    waiting.append(entry.path)


def _follow(link: Path, *, top: Path) -> str | None:
    """Return where a link leads, relative to ``top``; None if that is nothing inside."""
    try:
        return link.resolve(strict=True).relative_to(top).as_posix()
    except (OSError, RuntimeError, ValueError):
        return None


def _is_tracked(repository: Repository, path: str, *, trees: Iterable[str]) -> bool:
    return any(repository.objects.find_entry(tree, path) is not None for tree in trees)


def _add_link(source: Path, target: Path) -> None:
    """Add a link to ``target``, if that is in the copy."""
    with contextlib.suppress(OSError, RuntimeError):  # a file or a circle of links of the change is in the way
        # Through a link of the change, a program would reach what is not in the copy.
        is_inside = source.parent.resolve() == source.parent and target.resolve() == target
        if is_inside and target.exists():
            source.parent.mkdir(parents=True, exist_ok=True)
            source.symlink_to(os.path.relpath(target, source.parent))


def _remove_planted_tests(
    repository: Repository, folder: Path, *, index: Mapping[str, str], layout: ProjectLayout
) -> None:
    """Delete files that git does not track and that change how tests run: the setup runs code of the change."""
    for path in _list_others(repository, folder, index=index):
        if layout.is_test(path) or layout.shadows_tool(path):
            (folder / path).unlink()


def _list_others(repository: Repository, folder: Path, *, index: Mapping[str, str]) -> list[str]:
    """List the files in ``folder`` that are not in the index."""
    listed = repository.git("ls-files", ("--others", "-z"), variables={**index, "GIT_WORK_TREE": str(folder)})
    return listed.split("\0")[:-1]


def _find_objects(repository: Repository, export: GitExport | None) -> Path:
    return repository.location.common_dir / "objects" if export is None else export.folder / "objects"


def _make_repository(
    folder: Path, commit: str | None, *, like: Repository, tree: str, index: Mapping[str, str], export: GitExport | None
) -> None:
    """Create a repository in the copy: one commit with everything, on a branch of the same name, borrowing objects.

    None: the commit is made.
    """
    with contextlib.suppress(GitError, OSError):  # most tests do not call git, so a copy without it is still useful
        information = folder / ".git" / "objects" / "info"
        information.mkdir(parents=True)
        (information / "alternates").write_text(f"{_find_objects(like, export)}\n")
        if export is not None:
            _add_objects(like.objects, commit or tree, held=export.read_head(), folder=information.parent)
        if commit is None:
            variables = {**CDD_IDENTITY, "GIT_OBJECT_DIRECTORY": str(information.parent)}
            commit = like.git("commit-tree", tree, ("-m",), "copy", variables=variables).strip()
        write_git_folder(folder / ".git", commit, branch=like.read_branch() or "main")
        shutil.copyfile(index["GIT_INDEX_FILE"], folder / ".git" / "index")
        if export is not None:
            shown = SHOWN_PRIVATE / export.folder.parent.name / export.folder.name / "objects"
            (information / "alternates").write_text(f"{shown}\n")


def _add_objects(objects: ObjectReader, name: str, *, held: str | None, folder: Path) -> None:
    """Write the objects of a commit or tree into the folder ``folder`` of objects, but none of the commit ``held``."""
    tree = objects.require(f"{name}^{{tree}}").id
    for each in (name, *_list_new_objects(objects, tree, held=held)):
        found = objects.require(each)
        file = folder / found.id[:2] / found.id[2:]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(zlib.compress(f"{found.kind} {len(found.data)}\0".encode() + found.data, 1))


def _list_new_objects(objects: ObjectReader, tree: str, *, held: str | None) -> Iterator[str]:
    """Yield the id of ``tree``, and of what is in it and not at the same place in the tree or commit ``held``."""
    before = objects.read_tree(held) if held else {}
    yield tree
    for name, entry in objects.read_tree(tree).items():
        old = before.get(name)
        if entry == old or entry.mode == SUBMODULE:
            continue
        if entry.mode == _TREE:
            inside = old.id if old is not None and old.mode == _TREE else None
            yield from _list_new_objects(objects, entry.id, held=inside)
        else:
            yield entry.id


def find_protected_entries(
    repository: Repository, *, green: str, red: str, layout: ProjectLayout
) -> dict[str, Entry | None]:
    """Return path -> entry in ``red`` of the protected files that are others in ``green``; None if it lacks one."""
    found = {}
    for path, (now, before) in repository.objects.compare(green, red).items():
        is_shared = path.rpartition("/")[2] in layout.conventions.shared and _has_other_configuration(
            (before, now), path=path, layout=layout, repository=repository
        )
        if is_shared or layout.is_test(path):
            found[path] = before
    return found


def _has_other_configuration(
    entries: tuple[Entry | None, ...], *, path: str, layout: ProjectLayout, repository: Repository
) -> bool:
    sections = []
    for entry in entries:
        with tempfile.TemporaryDirectory(prefix="cdd-section-", ignore_cleanup_errors=True) as folder:
            if entry is not None:
                (Path(folder) / path.rpartition("/")[2]).write_bytes(repository.objects.require(entry.id).data)
            sections.append(layout.conventions.digest_parts(Path(folder)))
    return sections[0] != sections[1]


def explain_failure(error: GitError | OSError) -> str:
    """Return the first line of why no clean copy could be made, without a full stop."""
    why = error.happened if isinstance(error, GitError) else str(error)
    return why.strip().partition("\n")[0].rstrip(".")


_LIMITS = CopyLimits(files=2000)
# Python modules and pytest's configuration could change the run that the copy exists to check.
_NOT_COPIED = (".py", ".pyw", ".pyc", ".pyo")
_CONFIGURATION = frozenset(
    {"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "setup.cfg", "tox.ini"}
)


def find_user(repository: Repository) -> Repository:
    """Return the work tree of the user to which a run tree belongs, or the repository itself."""
    if repository.source == repository.root:
        return repository
    user = Repository(repository.source)
    user.read_included = repository.read_included
    return user


def copy_ignored_files(repository: Repository, suite: Suite, *, copy: Path) -> tuple[str, ...] | None:
    """Copy ignored files of the project into ``copy``. Return the names that are new there, or None if too many.

    They are those of the user that a run tree gets, without Python modules and configuration of tests.
    """
    inside = suite.root.resolve().relative_to(repository.root.resolve()).parts
    top, prefix = (copy, *copy.parents)[len(inside)], "".join(f"{part}/" for part in inside)

    def accepts(path: str) -> bool:
        alters_run = path.rpartition("/")[2] in _CONFIGURATION or path.endswith(_NOT_COPIED)
        alters_run = alters_run or explain_build(path) is not None or explain_protection(path) is not None
        return not alters_run

    found = copy_ignored(find_user(repository), top, accepts=accepts, limits=_LIMITS)
    return None if found.shared else tuple(path.removeprefix(prefix) for path in found.copied)
