"""Mending handoff notes: what is wrong, what would be done about each thing, and doing it all in one change of the ref.

Nothing is made up that can be found, what cannot be decided stays and is told, and all that was there is kept.

What is left of notes elsewhere: trailers of commits, patches, the past of the notes, and objects nobody names.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cdd_agent.git.notes import NOTES_REF, REF, NotesDamaged, lines_of, owner, stale_lock, tip, unreadable, writing
from cdd_agent.git.notes_history import (
    Note,
    change_ref,
    contents,
    dangling,
    decoded,
    identities,
    newest_first,
    notes_commit,
    read_notes,
    shallow_at,
    undoing,
    unreachable,
)
from cdd_agent.git.repository import CommitId, Repository, encoded, listing
from cdd_agent.git.runner import GitError, GitTimeout
from cdd_agent.storage import read_ordinary
from cdd_agent.work.handoff import CurrentTest, Handoff, PhaseName, encode, following, sequence

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that is wrong, and what is done about it."""

    what: str
    """A sentence."""
    commit: CommitId | None
    """Whose note it is about; None for the ref and its lock."""
    action: str
    """A sentence; of what stays as it is, one that says what to type."""
    mends: bool = True
    """Whether anything is done."""

    def __str__(self) -> str:
        """Both sentences."""
        return f"{self.what} {self.action}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done."""

    repairs: tuple[Repair, ...]
    backup: str | None
    """The ref under which the notes are kept as they were; None if they were not changed, or there were none."""
    undo: str | None
    """The command that goes back to them; None if the notes were not changed."""

    def __str__(self) -> str:
        """How to go back."""
        if self.undo is None:
            return "The notes are as they were."
        kept = f"The notes as they were are kept as {self.backup}; to" if self.backup else "To"
        return f"{kept} go back: {self.undo}"


@dataclass(kw_only=True)
class _Plan:
    """The notes as they are to be, while they are put together."""

    repository: Repository
    found: str | None = None
    """What the ref names, whether its notes can be read or not."""
    base: str | None = None
    """The commit whose notes are taken, if there is one."""
    before: dict[CommitId, Note] = field(default_factory=dict)
    notes: dict[CommitId, Note] = field(default_factory=dict)
    """Those that can be read, or could be mended."""
    told: list[Repair] = field(default_factory=list)
    is_broken: bool = False
    """Whether the ref names no notes that can be read."""
    lock: Path | None = None
    """To be removed."""

    def put(self, commit: CommitId, lines: Iterable[str]) -> None:
        """Let these be the note on ``commit``."""
        made = tuple(dict.fromkeys(lines))
        known = self.before.get(commit)
        paths = known.paths if known else ()
        self.notes[commit] = Note(commit=commit, paths=paths, lines=made, handoffs=decoded(made), damage=None)

    def changes(self) -> dict[CommitId, tuple[str, ...]]:
        """Commit -> the lines of its note, none to remove it; only those that are others than in ``base``."""
        kept = {commit for commit, note in self.before.items() if note.damage is not None}
        made: dict[CommitId, tuple[str, ...]] = {
            commit: note.lines
            for commit, note in self.notes.items()
            if commit not in self.before or self.before[commit].lines != note.lines
        }
        return made | {commit: () for commit in self.before if commit not in self.notes and commit not in kept}


def plan(repository: Repository) -> tuple[Repair, ...]:
    """What is wrong with the notes and what ``apply`` would do about it; changes nothing."""
    return tuple(_planned(repository).told)


def apply(repository: Repository, *, now: str) -> Applied:
    """Mend the notes in one change of their ref, which is kept as it was under a name that holds ``now``.

    Reads the notes back; raises ``NotesDamaged`` with the command that undoes it if they are not what was planned.
    """
    with writing(repository):
        made = _planned(repository)
        if made.lock is not None:
            made.lock.unlink(missing_ok=True)
        changes = made.changes()
        if not changes and made.base == made.found and not made.is_broken:
            return Applied(repairs=tuple(made.told), backup=None, undo=None)
        new = notes_commit(repository, made.base, notes=made.before.values(), changes=changes)
        backup = change_ref(repository, new, found=made.found, now=now)
        undo = undoing(repository, backup, found=made.found)
        _require_same(repository, made, undo=undo)
        return Applied(repairs=tuple(made.told), backup=backup, undo=undo)


def _planned(repository: Repository) -> _Plan:
    made = _Plan(repository=repository)
    found = traces(repository)
    _lock(made)
    _base(made, expects_notes=bool(found))
    newer = {commit for commit, note in made.before.items() if note.damage is not None and note.damage.kind == "newer"}
    left = tuple(trace for trace in found if trace.commit not in newer)
    made.notes = {commit: note for commit, note in made.before.items() if note.damage is None}
    unread = _past(made)
    _reattached(made, left)
    _missing(made, left, unread=unread)
    return made


def _lock(made: _Plan) -> None:
    """The lock that a killed git left; one that may be held stays."""
    lock = stale_lock(made.repository.place, REF)
    if lock is None:
        return
    holder = owner(lock, place=made.repository.place)
    what = f"No note can be written: {lock} has been there for more than ten minutes."
    if holder is None:
        made.lock = lock
        made.told.append(Repair(what=what, commit=None, action="Nobody holds it: it is removed."))
    else:
        action = f"It stays, as {holder} may hold it; once that has ended: rm {lock}"
        made.told.append(Repair(what=what, commit=None, action=action, mends=False))


def _base(made: _Plan, *, expects_notes: bool) -> None:
    """The notes as they are, or were at last when they could be read."""
    try:
        made.found = tip(made.repository)
        if made.found is not None:
            made.base, made.before = made.found, _noted(made.repository, made.found)
            return
    except NotesDamaged as error:
        what, made.is_broken = error.happened, True
    else:
        if not expects_notes:
            return
        what = f"There is no {REF}, but commits that had notes are there."
    for candidate in candidates(made.repository, REF):
        try:
            before = _noted(made.repository, candidate.commit)
        except NotesDamaged:
            continue
        if any(note.handoffs for note in before.values()):
            made.base, made.before = candidate.commit, before
            action = f"It is set to {candidate.commit}, {candidate.found}, with {len(before)} notes."
            made.told.append(Repair(what=what, commit=None, action=action))
            return
    action = "No earlier one can be found: it is made anew of what the commits tell."
    if not made.is_broken:
        action += f" If another repository has it, bring it from there instead: git fetch REMOTE {REF}:{REF}"
    made.told.append(Repair(what=what, commit=None, action=action))


def _noted(repository: Repository, top: str) -> dict[CommitId, Note]:
    return {note.commit: note for note in read_notes(repository, top)}


def _past(made: _Plan) -> dict[CommitId, str]:
    """Notes that cannot be read, as they were when they could; commit -> what is wrong with each of the rest."""
    bad = {commit: note.damage for commit, note in made.before.items() if note.damage is not None}
    for damage in [each for each in bad.values() if each.kind == "newer"]:
        upgrade = "It stays as it is; to read it: pip install --upgrade cdd-agent"
        made.told.append(Repair(what=damage.what, commit=damage.commit, action=upgrade, mends=False))
    lost = {commit: damage.what for commit, damage in bad.items() if damage.kind == "unreadable"}
    versions = past_versions(made.repository, made.base, of=lost) if made.base and lost else {}
    for commit, what in list(lost.items()):
        texts = (data.decode("utf-8", "surrogateescape") for data in versions.get(commit, []))
        good = next((text for text in texts if unreadable(text) is None and decoded(lines_of(text))), None)
        if good is not None:
            made.put(commit, lines_of(good))
            action = "It is put back as it was when it could be read last."
            made.told.append(Repair(what=what, commit=commit, action=action))
            del lost[commit]
    return lost


def _reattached(made: _Plan, left: Iterable[Trace]) -> None:
    """Notes whose commit is no longer part of the history, on the one that took its place."""
    by_seq = sorted(made.notes.values(), key=lambda note: -note.handoffs[-1].seq)
    ordered, gone = newest_first(made.repository, [note.commit for note in by_seq])
    if shallow_at(made.repository):
        gone = ()
    lost = {*gone, *unreachable(made.repository, ordered)}
    astray = dangling([made.notes[commit] for commit in (*ordered, *gone)], lost=lost, gone=set(gone))
    heirs = {commit: _heirs(made, made.notes[commit], left=left) for commit in astray}
    unknown = [commit for commit, found in heirs.items() if not found and commit not in gone]
    patches = same_patches(made.repository, unknown)
    for commit, damage in reversed(astray.items()):
        found = heirs[commit] or [each for each in patches.get(commit, []) if each not in {*made.before, *made.notes}]
        if len(found) == 1:
            action = f"It is put on {found[0]}, which has taken the place of that commit."
            made.told.append(Repair(what=damage.what, commit=commit, action=action))
            known = made.notes.get(found[0])
            made.put(found[0], (*(known.lines if known else ()), *made.notes[commit].lines))
            if commit in gone:
                del made.notes[commit]
            continue
        among = (
            f"{len(found)} commits may have taken its place: {', '.join(found)}" if found else "No commit is like it"
        )
        action = f"{among}. It stays as it is; to remove it: git notes --ref={NOTES_REF} remove {commit}"
        made.told.append(Repair(what=damage.what, commit=commit, action=action, mends=False))


def _heirs(made: _Plan, note: Note, *, left: Iterable[Trace]) -> list[CommitId]:
    """The commits whose trailers say that they landed what ``note`` hands over, and that have no such note."""
    landed = [each for each in note.handoffs if each.has_landed]
    ids = {each.id for each in landed}
    by_id = [trace.commit for trace in left if trace.id in ids and not identities(note) <= _said(made, trace.commit)]
    if by_id:
        return list(dict.fromkeys(by_id))
    places = {(each.ticket, each.phase, each.cycle_number) for each in landed}
    by_place = [trace.commit for trace in left if (trace.ticket, trace.phase, trace.cycle) in places]
    return [commit for commit in dict.fromkeys(by_place) if commit not in made.before and commit not in made.notes]


def _said(made: _Plan, commit: CommitId) -> frozenset[tuple[str, str | None]]:
    """What tells the lines of the note on ``commit`` from others."""
    return identities(made.notes[commit]) if commit in made.notes else frozenset()


def _missing(made: _Plan, left: Iterable[Trace], *, unread: Mapping[CommitId, str]) -> None:
    """Notes that landed commits should have, made up from their trailers; what is left of those that are damaged."""
    added: Counter[CommitId] = Counter()
    for trace in left:
        note = made.notes.get(trace.commit)
        if note is None or trace.id not in {each.id for each in note.handoffs}:
            made.put(trace.commit, (*(note.lines if note else ()), encode(made_up(trace))))
            added[trace.commit] += 1
    for commit, count in added.items():
        what = unread.get(commit, f"The commit {commit} has trailers of a handoff and no note.")
        subject = "It is" if count == 1 else f"Its {count} handoffs are"
        action = f"{subject} made up from the trailers, without the evidence."
        made.told.append(Repair(what=what, commit=commit, action=action))
    for commit in [commit for commit in unread if commit not in made.notes]:
        action = (
            f"Nothing tells what it was. It stays as it is; to remove it: git notes --ref={NOTES_REF} remove {commit}"
        )
        made.told.append(Repair(what=unread[commit], commit=commit, action=action, mends=False))


def _require_same(repository: Repository, made: _Plan, *, undo: str) -> None:
    """Raise ``NotesDamaged`` unless the notes that are read back are those that were planned."""
    kept = {commit: note for commit, note in made.before.items() if note.damage is not None}
    wanted = {commit: note.lines for commit, note in (kept | made.notes).items()}
    top = tip(repository)
    found = {note.commit: note.lines for note in read_notes(repository, top)} if top else {}
    if found != wanted:
        odd = sorted(commit for commit in {*found, *wanted} if found.get(commit) != wanted.get(commit))
        raise NotesDamaged(f"The mended note on {odd[0]} reads otherwise than planned.", hint=f"go back: {undo}")
