"""Keeps the reports of test runs, and returns one again for the same tests if everything that a run can see is equal.

``Scene`` describes what a run can see. The files of the work tree count by their content, with what git ignores. The
environment of the interpreter and other folders outside count by the attributes of their files, which no program can
choose. The date counts too. Git's own folder differs before and after each commit, so only those of its files count
that the run opened, which the kernel reports (see ``watch``).

A run outside an isolating sandbox can see anything, so its report is not used again. Nor is that of a run that did not
end by itself, or in which a test passed only in a rerun.

The reports are among cdd's records: no clone brings any, and programs in the sandbox cannot write there.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath

import msgspec

import pytest_tdd_agent
from cdd_agent.sandbox.backends import CONFIGURATION
from cdd_agent.sandbox.port import Access
from cdd_agent.sandbox.supervised import PASSED_VARIABLES
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.testrun.access import find_git_folders, find_top
from cdd_agent.testrun.suite import Suite, SuiteRun
from cdd_agent.testrun.watch import CHANGED, OPENED, Watch
from pytest_tdd_agent.codec import ReportError, from_json, to_json
from pytest_tdd_agent.report import SuiteReport, list_rescued

_SCHEMA = 1
_MOST_FILES = 50_000
_MOST_BYTES = 1_000_000_000
"""Of contents to read; more take longer than most test runs."""
_MOST_OUTSIDE = 120_000
"""Files outside the work tree."""
_MOST_KEPT = 24
"""Reports in memory, and files in the folder."""
_RECORD_BYTES = 30_000_000
_KEPT_BYTES = 100_000_000
_TICK_NS = 50_000_000
_SECOND_NS = 1_000_000_000
"""A file that changed more recently may change again without new times; where the file system has only seconds."""
_CACHES = frozenset({"__pycache__", ".pytest_cache"})
"""Folders that earlier runs leave, and that are deleted before a run in a tree of cdd's own."""
_SYSTEM = (
    *("/var/lib/dpkg/status", "/var/lib/rpm", "/lib/apk/db/installed", "/var/lib/pacman/local", "/nix/var/nix/db"),
    *("/etc", "/etc/ld.so.cache", "/etc/localtime", "/usr/local/bin", "/usr/local/lib"),
)
"""Files that change with the system's programs, which are too many to read."""
_DOCUMENTS = (".adoc", ".html", ".jpg", ".md", ".png", ".rst", ".svg", ".txt")
"""The ends of names of files that can change without a new run, if tests cannot have seen them."""
_LISTS = (b"walk(", b"glob(", b"iterdir", b"scandir", b"listdir", b"subprocess", b"os.system")
"""Text of code that can see files without naming or opening them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one run of tests can see, as digests."""

    rest: str
    """Tests, options, interpreter, variables, sandbox, and all files outside the work tree."""
    files: Mapping[str, str]
    """Path in the work tree -> mode and content."""
    git: Mapping[str, str]
    """File at the top of git's own folder -> content."""
    git_folders: tuple[Path, ...]
    """That folder, where a run would open it, and those in it; empty: unknown."""
    top: Path
    """The work tree."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    rest: str
    files: dict[str, str]
    git: dict[str, str]
    origin: str
    """The run that made the report."""
    notices: tuple[str, ...]
    opened: tuple[str, ...] | None
    """Files of the work tree that the run opened, with ``.git/`` before those of git's folder; None: unknown."""
    report: dict[str, object]
    entered: dict[str, frozenset[str]]
    """As in ``SuiteRun``."""


@dataclass(kw_only=True)
class Looked:
    """The files that a run opened, once it has ended."""

    opened: tuple[str, ...] | None = None


@dataclass(kw_only=True)
class ReportStore:
    """The reports of one repository."""

    folder: Path | None = None
    """Where the records lie; None: in memory only."""
    place: str = ""
    """The work during which tests run now, for the origin of their reports."""
    _records: list[_Record] = field(default_factory=list)
    _saved: set[str] = field(default_factory=set)
    """The names of the files of ``_records``, which need not be read."""
    _digests: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)

    def describe(self, suite: Suite, targets: tuple[str, ...]) -> Scene | None:
        """Describe what a run of ``targets`` would see now; None if that cannot be known cheaply.

        The tree must be cdd's own: caches of earlier runs are deleted in it.
        """
        signature = suite.signature
        if signature is None:
            return None
        top = find_top(suite.root.resolve())
        try:
            access = suite.build_access()
            files = self._read_files(top, but=_list_mount_points(access, suite))
            git, git_folders = _describe_git(suite, top)
            rest = [*signature, "--", *targets, "--", *_describe_machine(), *_describe_outside(access, suite, top=top)]
        except (OSError, _UnknownError):
            return None
        digest = hashlib.sha256("\0".join(rest).encode("utf-8", "surrogateescape")).hexdigest()
        return Scene(rest=digest, files=files, git=git, git_folders=git_folders, top=top)

    def find(self, scene: Scene, *, spans_commits: bool = False) -> SuiteRun | None:
        """Return the report of a run that saw the same files, except documents that it cannot have seen.

        ``spans_commits``: git's own folder may differ, as for a baseline on the files that the last gate has judged.
        """
        found = list[_Record]()
        for record in chain([each for each in self._records if each.rest == scene.rest], self._load(scene.rest)):
            if record.files == scene.files and (spans_commits or _has_same_git(record, scene)):
                return _make_run(record, "the same tests on the same files")
            found.append(record)
        # A document that no test reads: of what a docs step changes, tests run only what these files can reach.
        for record in found:
            changed = _list_modified(record.files, scene.files)
            are_documents = changed and all(path.lower().endswith(_DOCUMENTS) for path in changed)
            if are_documents and _has_same_git(record, scene) and _is_out_of_sight(changed, record=record, scene=scene):
                return _make_run(record, f"no test reads {', '.join(changed)}")
        return None

    def run(
        self, scene: Scene | None, suite: Suite, *, targets: tuple[str, ...] = (), keep: Path | None, purpose: str
    ) -> SuiteRun:
        """Run the tests, and keep the report for the ``scene`` that they see, if it is known."""
        if scene is None:
            return suite.run(targets, keep=keep)
        with self.watch(scene) as looked:
            run = suite.run(targets, keep=keep)
        _remove_new_folders(scene)
        self.add(scene, run, looked=looked, purpose=purpose)
        return run

    @contextmanager
    def watch(self, scene: Scene) -> Iterator[Looked]:
        """Find out which files a run opens that takes place in the block."""
        looked = Looked()
        inner = {f"{scene.top}/{path}".rstrip("/"): path for path in scene.files if path.endswith("/")}
        folders = {str(scene.top): "", **inner}
        git_folders = [str(folder) for folder in scene.git_folders]
        try:
            watch = Watch([*folders, *git_folders], events=OPENED, has_many=True)
        except OSError:
            yield looked
            return
        try:
            yield looked
        finally:
            seen = watch.close()
        if seen is None or not git_folders:
            return
        # The file .git of a run tree is read by cdd; programs find another one there, in git's folder.
        opened = {f"{folders[place]}{name}" for place, name in seen if place in folders} - {".git"}
        opened |= {f".git/{name if place == git_folders[0] else ''}" for place, name in seen if place in git_folders}
        looked.opened = tuple(sorted(opened))

    def add(self, scene: Scene, run: SuiteRun, *, looked: Looked, purpose: str) -> None:
        """Keep the report of a run that ended by itself, if nothing in it depends on chance."""
        if run.report is None or not _is_lasting(run.report) or run.outdated is not None:
            return
        record = _Record(
            schema=_SCHEMA,
            rest=scene.rest,
            files=dict(scene.files),
            git=dict(scene.git),
            origin=f"{purpose}{f' in {self.place}' if self.place else ''}",
            notices=run.notices,
            opened=looked.opened,
            report=to_json(run.report),
            entered={path: frozenset(tests) for path, tests in run.entered.items()},
        )
        self._records = [record, *self._records][:_MOST_KEPT]
        self._save(record)

    def _read_files(self, top: Path, *, but: Collection[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        waiting, left_bytes, newest_ns = [""], _MOST_BYTES, time.time_ns()
        while waiting:
            inside = waiting.pop()
            with os.scandir(top / inside) as entries:
                listed = [(entry, entry.stat(follow_symlinks=False)) for entry in entries]
            for entry, about in listed:
                path = f"{inside}{entry.name}"
                if path == ".git" or path in but:
                    continue
                if stat.S_ISDIR(about.st_mode):
                    if entry.name in _CACHES:
                        shutil.rmtree(entry.path)
                        continue
                    waiting.append(f"{path}/")
                    found[f"{path}/"] = f"{about.st_mode:o}"
                elif stat.S_ISLNK(about.st_mode):
                    found[path] = f"{about.st_mode:o} {_follow(entry.path, top=top)}"
                elif stat.S_ISREG(about.st_mode):
                    digest, size = self._digest(entry.path, about, now_ns=newest_ns, left_bytes=left_bytes)
                    left_bytes -= size
                    found[path] = f"{about.st_mode:o} {digest}"
                else:
                    raise _UnknownError(path)
            if len(found) > _MOST_FILES:
                raise _UnknownError("too many files")
        return found

    def _digest(self, path: str, about: os.stat_result, *, now_ns: int, left_bytes: int) -> tuple[str, int]:
        """Return the digest of a file, and how many bytes of it were read."""
        stamp = _stamp(about)
        known, digest = self._digests.get(path, ((), ""))
        if known == stamp:
            return digest, 0
        if about.st_size > left_bytes:
            raise _UnknownError("too many bytes")
        digest = hashlib.sha256(read_ordinary(Path(path), limit_bytes=about.st_size)).hexdigest()
        newest_ns = max(about.st_mtime_ns, about.st_ctime_ns)
        if newest_ns < now_ns - (_TICK_NS if newest_ns % _SECOND_NS else _SECOND_NS):
            self._digests[path] = stamp, digest
        return digest, about.st_size

    def _load(self, rest: str) -> Iterator[_Record]:
        if self.folder is None:
            return
        for path in self._list_files(f"{rest[:20]}-*.json"):
            if path.name in self._saved:
                continue
            try:
                data = read_ordinary(path, limit_bytes=_RECORD_BYTES)
                record = msgspec.json.decode(data, type=_Record)
                from_json(record.report)
            except (OSError, ValueError, msgspec.DecodeError, ReportError, RecursionError):
                with contextlib.suppress(OSError):
                    path.unlink()  # damaged
                continue
            if record.rest == rest and record.schema == _SCHEMA:
                yield record

    def _save(self, record: _Record) -> None:
        if self.folder is None:
            return
        seen = (sorted(record.files.items()), sorted(record.git.items()))
        try:
            body = msgspec.json.encode(record)
            files = hashlib.sha256(msgspec.json.encode(seen)).hexdigest()
        except UnicodeEncodeError:  # a name that is not UTF-8; the record in memory is enough
            return
        # A full disk costs a run of the tests later, and nothing else.
        with contextlib.suppress(OSError):
            if len(body) < _RECORD_BYTES:
                name = f"{record.rest[:20]}-{files[:20]}.json"
                write_atomic(self.folder / name, body)
                self._saved.add(name)
            left_bytes = _KEPT_BYTES
            for place, path in enumerate(self._list_files("*.json")):
                left_bytes -= path.stat().st_size
                if place >= _MOST_KEPT or left_bytes < 0:
                    path.unlink()

    def _list_files(self, pattern: str) -> list[Path]:
        """Return the records, the newest first."""
        found = []
        for path in self.folder.glob(pattern) if self.folder is not None else ():
            with contextlib.suppress(OSError):
                found.append((path.lstat().st_mtime_ns, path))
        return [path for _, path in sorted(found, reverse=True)]


class _UnknownError(Exception):
    """The files that a run can see cannot be described cheaply."""


def _is_lasting(report: SuiteReport) -> bool:
    """Return whether the same run would give the same results, as far as one run can tell."""
    by_chance = bool(report.unstable or list_rescued(report)) or any(case.reruns or case.tries for case in report.tests)
    timed_out = any(case.failure is not None and case.failure.kind == "timeout" for case in report.tests)
    return report.complete and not by_chance and not timed_out


def _make_run(record: _Record, why: str) -> SuiteRun:
    reused = f"{why}, from {record.origin}"
    return SuiteRun(
        report=from_json(record.report),
        output="",
        duration_s=0.0,
        notices=record.notices,
        entered=record.entered,
        reused=reused,
    )


def _has_same_git(record: _Record, scene: Scene) -> bool:
    if record.git == scene.git:
        return True
    if record.opened is None:
        return False
    opened = [path.removeprefix(".git/") for path in record.opened if path.startswith(".git/")]
    # Git reads HEAD and its configuration for any question; neither differs while the branch stays the same.
    return all(name in record.git and record.git[name] == scene.git.get(name) for name in opened)


def _remove_new_folders(scene: Scene) -> None:
    """Remove empty folders that a run has left, such as mount points: no commit holds them, so later runs lack them."""
    for folder, _, _ in os.walk(scene.top, topdown=False):
        inside = os.path.relpath(folder, scene.top)
        if f"{inside}/" not in scene.files and inside != "." and inside.partition("/")[0] != ".git":
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(folder)


def _list_modified(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files whose content alone differs; none if there is another difference."""
    if before.keys() != after.keys():
        return ()
    changed = tuple(path for path, about in after.items() if before[path] != about)
    is_content = all(after[path].partition(" ")[0] == before[path].partition(" ")[0] for path in changed)
    return changed if is_content else ()


def _is_out_of_sight(changed: Collection[str], *, record: _Record, scene: Scene) -> bool:
    """Return whether the run of ``record`` cannot have noticed the content, size or times of the ``changed`` files.

    It opened none of them, and no code that it opened in the work tree names one, or asks for files that it does not
    name: the kernel does not report who asks for a file's size.
    """
    protected = record.report.get("fingerprints")
    if record.opened is None or not isinstance(protected, dict) or {*record.opened, *protected} & {*changed}:
        return False
    words = {word for path in changed for word in _list_names(path)} | {*_LISTS}
    for path in record.opened:
        if path.endswith(".py") and path in scene.files:
            try:
                source = read_ordinary(scene.top / path, limit_bytes=_RECORD_BYTES, through_links=True).lower()
            except OSError:
                return False
            if any(word in source for word in words):
                return False
    return True


def _list_names(path: str) -> Iterator[bytes]:
    pure = PurePosixPath(path.lower())
    yield from (os.fsencode(name) for name in (pure.stem, pure.suffix, *pure.parts[:-1]) if name)


def _stamp(about: os.stat_result) -> tuple[int, ...]:
    """Return the attributes that are others after each change; no program can choose the last one."""
    return about.st_mode, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _follow(link: str, *, top: Path) -> str:
    """Return where a link leads, with the attributes of a file outside of the work tree."""
    leads, target = os.readlink(link), Path(os.path.realpath(link))
    if target.is_relative_to(top):
        return leads
    if target.is_dir():
        raise _UnknownError(link)
    with contextlib.suppress(OSError):
        return f"{leads} {_stamp(target.stat())}"
    return leads


def _describe_git(suite: Suite, top: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return digests of the files of the git folder that programs find in the work tree, and its folders to watch."""
    export = suite.original.git if suite.original is not None else None
    folder = export or next((each for each in reversed(find_git_folders(top)) if each.is_dir()), top / ".git")
    if not folder.is_dir():
        return {"": secrets.token_hex(8)}, ()
    found = {}
    for name in ("HEAD", "packed-refs", "index", "config", "shallow"):
        with contextlib.suppress(OSError):
            found[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    # A server of containers may run in a virtual machine, whose kernel tells this one nothing.
    if suite.sandbox.level == "docker":
        return found, ()
    if export is not None:  # without loose refs and objects
        return found, tuple(folder / name for name in ("", "objects", "objects/pack", "refs"))
    # What is read in other folders of a whole git folder is not reported, so all of it counts.
    return {"": hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()}, (folder,)


def _describe_machine() -> Iterator[str]:
    """Yield what else decides results: the day, variables, the machine, its programs, and cdd itself."""
    yield datetime.now().astimezone().strftime("%Y-%m-%d %z")
    yield from (f"{name}={os.environ[name]}" for name in (*PASSED_VARIABLES, "PYTHONPATH") if name in os.environ)
    yield " ".join(os.uname())
    yield str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    for path in (*_SYSTEM, *CONFIGURATION, *os.environ.get("PATH", os.defpath).split(os.pathsep)):
        with contextlib.suppress(OSError):
            yield f"{path} {_stamp(os.stat(path))}"
    yield _describe_program()


@cache
def _describe_program() -> str:
    """Return a digest of the plugin and of what runs beside it in the test process."""
    digest = hashlib.sha256()
    for folder in (Path(pytest_tdd_agent.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _list_mount_points(access: Access, suite: Suite) -> frozenset[str]:
    """Return the paths in the work tree at which a run finds folders of the project that it is a copy of."""
    tops = [at for path, at in access.shown_at.items() if suite.root.is_relative_to(path)]
    return frozenset(
        str(path.relative_to(top))
        for top in tops
        for path in access.overlaid
        if path != top and path.is_relative_to(top)
    )


def _describe_outside(access: Access, suite: Suite, *, top: Path) -> Iterator[str]:
    """Yield digests of the folders and files outside the work tree that a run can use."""
    original, gits = suite.original, {*find_git_folders(top)}
    yield f"{original.root if original is not None else suite.root}"
    if original is not None and original.git is not None:
        gits |= {original.git, original.git / "gitfile"}
    chosen = sorted({path for path in (*access.read_only, *access.read_write) if path not in gits})
    for path in chosen:
        is_inner = any(other in path.parents for other in chosen)
        if not (path.is_relative_to(top) or is_inner):
            yield f"{path} {_digest_outside(path)}"


_WATCHED: dict[Path, tuple[Watch, str]] = {}
"""Folder outside the work tree -> its digest, which is right until the watch reports an event."""
_MOST_WATCHED = 8


def _digest_outside(path: Path) -> str:
    if path in _WATCHED:
        watch, known = _WATCHED[path]
        if not watch.is_triggered():
            return known
        watch.close()
        del _WATCHED[path]
    watching = None
    if path.is_dir() and len(_WATCHED) < _MOST_WATCHED:
        with contextlib.suppress(OSError):  # before the files are read
            folders = [str(path), *(found for found, about in _walk(path) if len(about) == 1)]
            watching = Watch(folders, events=CHANGED)
    files, digest = sorted(_walk(path)), hashlib.sha256()
    for found, about in files:
        digest.update(f"{found} {about}\0".encode("utf-8", "surrogateescape"))
    if watching is not None:
        _WATCHED[path] = watching, digest.hexdigest()
    return digest.hexdigest()


def _walk(path: Path) -> Iterable[tuple[str, tuple[int, ...]]]:
    about = path.stat()
    yield str(path), _stamp(about)
    waiting, left = [str(path)] if stat.S_ISDIR(about.st_mode) else [], _MOST_OUTSIDE
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                about, left = entry.stat(follow_symlinks=False), left - 1
                if left < 0:
                    raise _UnknownError(str(path))
                if not stat.S_ISDIR(about.st_mode):
                    yield entry.path, _stamp(about)
                elif entry.name != "__pycache__":
                    waiting.append(entry.path)
                    yield entry.path, (about.st_mode,)
