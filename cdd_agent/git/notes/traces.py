"""What is left of notes elsewhere: trailers of commits, patches, the past of the notes, and objects nobody names."""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from cdd_agent.git.failure import GitError, GitTimeout
from cdd_agent.git.notes.history import contents
from cdd_agent.git.repository import CommitId, Repository, encoded, listing
from cdd_agent.storage import read_ordinary
from cdd_agent.work.handoff import CurrentTest, Handoff, PhaseName, following, sequence

LIMIT_COMMITS = 5_000
"""Whose patches are compared: the newest of them."""
_CHUNK = 20_000
"""Commits that are held in memory at once."""
_REFLOG_BYTES = 100_000_000
_SUBJECT = "Notes "
"""How git, and this program, begin the message of a commit of notes."""
_OURS = ("--exclude=refs/notes/*", "--exclude=refs/cdd/*", "--exclude=refs/remotes/*", "--exclude=refs/stash", "--all")
"""The branches and tags of the user, and what the work trees have checked out."""
_TRAILER = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*): (?P<value>.*\S)\s*")
_ENTRY = re.compile(rb"[0-9a-f]{40,64} ([0-9a-f]{40,64}) .*")
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What the trailers of one landed phase say."""

    commit: CommitId
    title: str
    """The subject of the commit without its prefix."""
    ticket: str = msgspec.field(name="Ticket")
    phase: PhaseName = msgspec.field(name="Phase")
    cycle: int = msgspec.field(name="Cycle")
    id: str = msgspec.field(name="Handoff-Id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A commit that may be the one that held all notes."""

    commit: str
    found: str
    """Where, in words."""


def traces(repository: Repository) -> tuple[Trace, ...]:
    """What landed on the user's branches, tags and work trees, newest first; more than one of a squashed commit."""
    log = ("log", "-z", "--basic-regexp", "--grep=^Handoff-Id: ", "--format=%H%n%B", *_OURS)
    found: list[Trace] = []
    for entry in repository.git(*log).split("\0"):
        commit, _, message = entry.partition("\n")
        found += _in_message(CommitId(commit), message)
    return tuple(found)


def made_up(trace: Trace) -> Handoff:
    """The handoff that a commit's trailers tell of, without what they do not say."""
    return Handoff(
        seq=sequence(trace.phase, cycle=trace.cycle),
        id=trace.id,
        ticket=trace.ticket,
        phase=trace.phase,
        next_phase=following(trace.phase),
        cycle_number=trace.cycle,
        current_test=CurrentTest(description=trace.title, test_file="", impl_file=""),
        completed_tests=(),
        pending_tests=(),
        test_result=None,
        error=None,
        error_details=None,
        retry_count=0,
        commit=trace.commit,
        checkpoint=None,
        gate=None,
        reconstructed=True,
    )


def past_versions(repository: Repository, top: str, *, of: Collection[CommitId]) -> dict[CommitId, list[bytes]]:
    """Commit -> what its note was, newest first, as far as the history of the notes can be read."""
    log = ("log", "--raw", "-z", "-m", "--root", "--no-abbrev", "--no-renames", "--format=", top)
    try:
        fields = repository.git(*log).split("\0") if of else []
    except GitTimeout:
        raise
    except GitError:  # something of it is missing
        return {}
    blobs: dict[CommitId, list[str]] = {}
    for about, path in zip(fields[0::2], fields[1::2], strict=False):
        commit = CommitId(path.replace("/", ""))
        if commit in of:
            blobs.setdefault(commit, []).append(about.split(" ")[3])
    held = contents(repository, {blob for each in blobs.values() for blob in each})
    return {commit: [held[blob] for blob in each if blob in held] for commit, each in blobs.items()}


def candidates(repository: Repository, ref: str) -> Iterator[Candidate]:
    """What may have been the tip of ``ref``, most likely first: of its reflog, then of all objects that there are."""
    with contextlib.suppress(OSError):
        reflog = read_ordinary(repository.place.common_dir / "logs" / ref, limit_bytes=_REFLOG_BYTES)
        for line in reversed(reflog.split(b"\n")):
            if entry := _ENTRY.fullmatch(line):
                yield Candidate(commit=entry[1].decode(), found="the last good entry of its reflog")
    listed = repository.git("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
    commits = [line.removeprefix("commit ") for line in listed.splitlines() if line.startswith("commit ")]
    known: dict[str, tuple[int, set[str]]] = {}
    for start in range(0, len(commits), _CHUNK):
        known |= _of_notes(contents(repository, commits[start : start + _CHUNK]))
    for commit in _newest(known):
        yield Candidate(commit=commit, found="the newest notes among the objects that nothing names")


def same_patches(repository: Repository, commits: Collection[CommitId]) -> dict[CommitId, list[CommitId]]:
    """Commit -> those on the user's branches, made after it, that change the same lines in the same way."""
    if not commits:
        return {}
    shown = repository.git("log", "--no-walk=unsorted", "--stdin", "--format=%ct", stdin=listing(commits))
    since = min(int(line) for line in shown.split())
    walk = ("log", "--no-merges", "--format=%H", f"--max-age={since}", f"--max-count={LIMIT_COMMITS}", *_OURS)
    others = [CommitId(line) for line in repository.git(*walk).split()]
    patches = _patch_ids(repository, {*commits, *others})
    by_patch: dict[str, list[CommitId]] = {}
    for other in others:
        if other in patches:
            by_patch.setdefault(patches[other], []).append(other)
    return {
        commit: [other for other in by_patch.get(patches[commit], []) if other != commit]
        for commit in commits
        if commit in patches
    }


def _patch_ids(repository: Repository, commits: Iterable[CommitId]) -> dict[CommitId, str]:
    """Commit -> what stays the same when it is moved; none of a commit that changes nothing."""
    diff = ("diff-tree", "--stdin", "--root", "--patch", "--full-index")
    patches = repository.git(*diff, stdin=listing(sorted(commits)))
    told = repository.git("patch-id", "--stable", stdin=encoded(patches))
    return {CommitId(commit): patch for patch, commit in (line.split(" ") for line in told.splitlines())}


def _in_message(commit: CommitId, message: str) -> Iterator[Trace]:
    """The blocks of trailers in a message: paragraphs that consist of nothing else."""
    title = message.partition("\n")[0].partition(": ")[2] or message.partition("\n")[0]
    for paragraph in re.split(r"\n\s*\n", message):
        matches = [_TRAILER.fullmatch(line) for line in paragraph.strip("\n").split("\n")]
        said: dict[str, str] = {}
        for key, value in [(each["key"], each["value"]) for each in matches if each] if all(matches) else []:
            if key in said:
                yield from _trace(commit, title, said=said)
                said = {}
            said[key] = value
        yield from _trace(commit, title, said=said)


def _trace(commit: CommitId, title: str, *, said: dict[str, str]) -> Iterator[Trace]:
    """The trace that these trailers are, if a note can be made of it."""
    with contextlib.suppress(msgspec.ValidationError):
        trace = msgspec.convert({**said, "commit": commit, "title": title}, type=Trace, strict=False)
        if trace.cycle > 0:
            msgspec.convert(msgspec.to_builtins(made_up(trace)), type=Handoff)
            yield trace


def _of_notes(commits: dict[str, bytes]) -> dict[str, tuple[int, set[str]]]:
    """Time and parents of those commits that hold notes by what their message says."""
    found = {}
    for commit, data in commits.items():
        about, _, message = data.decode("utf-8", "replace").partition("\n\n")
        time = re.search(r"^committer .* (\d+) [+-]\d{4}$", about, re.MULTILINE)
        if message.startswith(_SUBJECT) and time:
            found[commit] = (int(time[1]), set(re.findall(r"^parent (\w+)$", about, re.MULTILINE)))
    return found


def _newest(known: dict[str, tuple[int, set[str]]]) -> list[str]:
    """Commits by their time, newest first, one that is nobody's parent before the others of its second."""
    parents = {parent for _, named in known.values() for parent in named}
    return sorted(known, key=lambda commit: (known[commit][0], commit not in parents), reverse=True)
