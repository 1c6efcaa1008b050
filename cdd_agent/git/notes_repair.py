"""Repair of handoff notes: find the damage, plan a repair for each, and apply all repairs in one change of the ref.

Lost notes are recovered from what is left of them: the history of the notes, objects that no ref names, patches that
were committed again, and the trailers of commits. A note is reconstructed from trailers only as a last resort. What
cannot be decided stays as it is and is reported. The old notes are always kept under a backup ref.
"""

import contextlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from cdd_agent.events import NoteDamaged, NotesRepaired
from cdd_agent.git import notes as noted
from cdd_agent.git.notes import REF, REF_NAME, Note, NotesDamaged
from cdd_agent.git.repository import CommitId, Entry, Repository, encode_text, format_lines, has_ref
from cdd_agent.git.runner import GitRefused, GitUnable
from cdd_agent.installation import suggest_upgrade
from cdd_agent.storage import read_ordinary
from cdd_agent.work.handoff import (
    NUMBER_KEYS,
    PHASE_OF,
    CurrentTest,
    Handoff,
    encode,
    next_phase_after,
    phase_name,
    sequence,
)

LIMIT_COMMITS = 5_000
_CHUNK = 20_000
_REFLOG_BYTES = 100_000_000
_MESSAGE = "Notes repaired by 'cdd tdd repair-notes'"
_NAMES_AN_OBJECT = re.compile(rb"(?!0+\s)([0-9a-f]{40}|[0-9a-f]{64})\s*")
_SUBJECT = "Notes "
"""Start of the message of a commit of notes, by git or by cdd."""
_OWN = ("--exclude=refs/notes/*", "--exclude=refs/cdd/*", "--exclude=refs/remotes/*", "--exclude=refs/stash", "--all")
"""The user's branches and tags, and the HEADs of the work trees."""
_TRAILER = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*): (?P<value>.*\S)\s*")
_REFLOG_ENTRY = re.compile(rb"[0-9a-f]{40,64} ([0-9a-f]{40,64}) .*")


def find_traces(repository: Repository) -> tuple[tuple[CommitId, Handoff], ...]:
    """Return commit and handoff of each phase that landed on the user's branches, tags and work trees, newest first.

    The handoffs have what the trailers of the commits say, without the evidence.
    """
    log = ("-z", "--basic-regexp", "--grep=^Handoff-Id: ", "--format=%H%n%B", *_OWN)
    traces: list[tuple[CommitId, Handoff]] = []
    for entry in repository.git("log", log).split("\0"):
        commit, _, message = entry.partition("\n")
        for block in _parse_trailers(message):
            with contextlib.suppress(KeyError, ValueError, msgspec.ValidationError):
                traces.append((CommitId(commit), _reconstruct_handoff(commit, message, trailers=block)))
    return tuple(traces)


def _parse_trailers(message: str) -> Iterator[dict[str, str]]:
    """Yield each block of trailers; only paragraphs that consist entirely of trailers count."""
    for paragraph in re.split(r"\n\s*\n", message):
        matches = [_TRAILER.fullmatch(line) for line in paragraph.strip("\n").split("\n")]
        blocks: list[dict[str, str]] = [{}]
        for key, value in [(each["key"], each["value"]) for each in matches if each] if all(matches) else []:
            if key in blocks[-1]:  # squashing puts the trailers of several commits into one paragraph
                blocks.append({})
            blocks[-1][key] = value
        yield from blocks


def _reconstruct_handoff(commit: str, message: str, *, trailers: Mapping[str, str]) -> Handoff:
    """Return the handoff that ``trailers`` describe; raises an error for a missing or impossible trailer."""
    phase = phase_name(PHASE_OF[trailers["Phase"]])
    cycle = msgspec.convert(next(trailers[key] for key in NUMBER_KEYS if key in trailers), type=int, strict=False)
    if cycle < 1:
        raise ValueError(cycle)
    subject = message.partition("\n")[0]
    handoff = Handoff(
        seq=sequence(phase, cycle=cycle),
        id=trailers["Handoff-Id"],
        ticket=trailers["Ticket"],
        phase=phase,
        next_phase=next_phase_after(phase),
        cycle_number=cycle,
        current_test=CurrentTest(description=subject.partition(": ")[2] or subject, test_file="", impl_file=""),
        completed_tests=(),
        pending_tests=(),
        test_result=None,
        error=None,
        error_details=None,
        retry_count=0,
        commit=commit,
        checkpoint=None,
        gate=None,
        reconstructed=True,
    )
    return msgspec.convert(msgspec.to_builtins(handoff), type=Handoff)  # msgspec checks values only when it decodes


def read_past_versions(repository: Repository, top: str, *, of: Collection[CommitId]) -> dict[CommitId, list[bytes]]:
    """Return commit -> earlier versions of its note, newest first; empty if the history of the notes is damaged."""
    log = ("--raw", "-z", "-m", "--root", "--no-abbrev", "--no-renames", "--format=")
    try:
        fields = repository.git("log", log, top).split("\0")
    except (GitRefused, GitUnable):
        return {}
    blobs: dict[CommitId, list[str]] = {}
    for about, path in zip(fields[0::2], fields[1::2], strict=False):
        commit = CommitId(path.replace("/", ""))
        if commit in of:
            blobs.setdefault(commit, []).append(about.split(" ")[3])
    content = noted.read_objects(repository, {blob for each in blobs.values() for blob in each})
    return {commit: [content[blob] for blob in each if blob in content] for commit, each in blobs.items()}


def find_tips(repository: Repository, ref: str) -> Iterator[tuple[str, str]]:
    """Yield possible earlier tips of ``ref`` and where each was found: in its reflog, then among all objects."""
    with contextlib.suppress(OSError):
        reflog = read_ordinary(repository.location.common_dir / "logs" / ref, limit_bytes=_REFLOG_BYTES)
        for line in reversed(reflog.split(b"\n")):
            if entry := _REFLOG_ENTRY.fullmatch(line):
                yield entry[1].decode(), "the last good entry of its reflog"
    listing = repository.git("cat-file", ("--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"))
    commits = [line.removeprefix("commit ") for line in listing.splitlines() if line.startswith("commit ")]
    times: dict[str, int] = {}
    parents: set[str] = set()
    for start in range(0, len(commits), _CHUNK):
        for commit, data in noted.read_objects(repository, commits[start : start + _CHUNK]).items():
            header, _, message = data.decode("utf-8", "replace").partition("\n\n")
            time = re.search(r"^committer .* (\d+) [+-]\d{4}$", header, re.MULTILINE)
            if message.startswith(_SUBJECT) and time:
                times[commit] = int(time[1])
                parents.update(re.findall(r"^parent (\w+)$", header, re.MULTILINE))
    # Of several commits in the same second, one without children is the newest.
    for commit in sorted(times, key=lambda commit: (times[commit], commit not in parents), reverse=True):
        yield commit, "the newest notes among the objects that no ref names"


def find_same_patches(repository: Repository, commits: Collection[CommitId]) -> dict[CommitId, list[CommitId]]:
    """Return commit -> later commits on the user's branches with the same patch, except for empty patches."""
    if not commits:
        return {}
    times = repository.git("log", ("--no-walk=unsorted", "--stdin", "--format=%ct"), stdin=format_lines(commits))
    since = min(int(line) for line in times.split())
    walk = ("--no-merges", "--format=%H", f"--max-age={since}", f"--max-count={LIMIT_COMMITS}", *_OWN)
    others = [CommitId(line) for line in repository.git("log", walk).split()]
    diff = ("--stdin", "--root", "--patch", "--full-index")
    diffs = repository.git("diff-tree", diff, stdin=format_lines(sorted({*commits, *others})))
    ids = repository.git("patch-id", ("--stable",), stdin=encode_text(diffs)).splitlines()
    patches = {commit: patch for patch, commit in (line.split(" ") for line in ids)}
    return {
        commit: [other for other in others if other != commit and patches.get(other) == patches[commit]]
        for commit in commits
        if commit in patches
    }


def write_notes_commit(
    repository: Repository, base: str | None, *, notes: Iterable[Note], changes: Mapping[CommitId, tuple[str, ...]]
) -> str:
    """Write a commit of the ``notes`` in ``base`` with ``changes``: commit -> new lines, or none to remove the note."""
    if base is not None and not changes:
        return base
    texts = {commit: noted.format_note(lines).encode() for commit, lines in changes.items() if lines}
    paths = {note.commit: note.paths for note in notes}
    entries: dict[str, Entry | None] = {path: None for commit in changes for path in paths.get(commit, ())}
    for commit, text in texts.items():
        entries[paths.get(commit, (commit,))[0]] = Entry("100644", repository.blobs.write(text))
    tree = repository.edit_tree(base or repository.trees.write(b""), entries)
    return repository.git("commit-tree", tree, *((("-p",), base) if base else ()), ("-m",), _MESSAGE).strip()


def replace_tip(repository: Repository, new: str, *, found: str | None, now: str) -> NotesRepaired:
    """Set the ref of notes to ``new``, and return the backup ref of its old content and the command that undoes it.

    ``found`` is the commit that the ref names, if any; then git changes both refs at once, and only if it still does.
    """
    file = repository.location.common_dir / REF
    backup = _find_free_ref(repository, now)
    why = (("-m",), "cdd: notes repaired")
    if found is not None:
        both = f"create {backup} {found}\nupdate {REF} {new} {found}\n"
        repository.git("update-ref", *why, ("--stdin",), stdin=both.encode())
        return NotesRepaired(backup=backup, undo=f"git update-ref {REF} {backup}")
    content = noted.read_loose_ref(repository, REF)
    if content is None and not has_ref(repository.location, REF):
        repository.git("update-ref", *why, REF, new, "0" * len(new))
        return NotesRepaired(backup=None, undo=f"git update-ref -d {REF}")
    saved = repository.blobs.write(b"broken\n" if content is None else content)
    repository.git("update-ref", backup, saved, "0" * len(saved))
    if content is None or _NAMES_AN_OBJECT.fullmatch(content):
        repository.git("update-ref", *why, REF, new)
    else:
        _overwrite_ref(file, new)
    return NotesRepaired(backup=backup, undo=f"git cat-file blob {backup} > {shlex.quote(str(file))}")


def _overwrite_ref(file: Path, new: str) -> None:
    # git refuses to update a ref whose file is damaged. Replace the file as git would: lock, write, rename.
    lock = file.with_name(f"{file.name}.lock")
    try:
        stream = lock.open("x")
    except FileExistsError as error:
        raise NotesDamaged(f"{lock} exists: another git process is running, or was killed.") from error
    with stream:
        stream.write(f"{new}\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(lock, file)


def _find_free_ref(repository: Repository, now: str) -> str:
    name = f"{noted.BACKUPS}/{re.sub(r'[^0-9A-Za-z]', '', now)}"
    existing = repository.list_refs(f"{noted.BACKUPS}/")
    return next(each for each in (name, *(f"{name}-{number}" for number in range(2, 10**6))) if each not in existing)


def plan_repairs(repository: Repository) -> tuple[NoteDamaged, ...]:
    """Return the problems and the repairs that ``apply_repairs`` would make; changes nothing."""
    return tuple(_RepairPlan(repository).repairs)


def apply_repairs(repository: Repository, *, now: str) -> tuple[tuple[NoteDamaged, ...], NotesRepaired]:
    """Repair the notes in one change of their ref, and return the repairs; the backup ref is named after ``now``.

    Reads the notes back, and raises ``NotesDamaged`` with the undo command if they differ from the plan.
    """
    with noted.lock_notes(repository):
        plan = _RepairPlan(repository)
        changes = plan.list_changes()
        if not changes and plan.base == plan.tip and not plan.is_broken:
            return tuple(plan.repairs), NotesRepaired(backup=None, undo=None)
        new = write_notes_commit(repository, plan.base, notes=plan.before.values(), changes=changes)
        result = replace_tip(repository, new, found=plan.tip, now=now)
        plan.require_applied(undo=f"{result.undo}")
        return tuple(plan.repairs), result


class _RepairPlan:
    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.repairs: list[NoteDamaged] = []
        self.tip: str | None = None
        """The commit that the ref names, whether or not its notes are readable."""
        self.base: str | None = None
        """The commit whose notes are repaired."""
        self.before: dict[CommitId, Note] = {}
        """The notes in ``base``."""
        self.is_broken = False
        """Whether the ref does not name readable notes."""
        traces = find_traces(repository)
        self._check_lock()
        self._choose_base(expects_notes=bool(traces))
        self.notes = {commit: note for commit, note in self.before.items() if note.damage is None}
        """The readable and the repaired notes."""
        # A note of a newer version of cdd may hold anything, so the traces of its commit are not missing.
        newer = {commit for commit, note in self.before.items() if note.damage and note.damage.kind == "newer"}
        self.traces = tuple((commit, trace) for commit, trace in traces if commit not in newer)
        unreadable = self._restore_past_versions()
        self._reattach_dangling()
        self._reconstruct_missing(unreadable)

    def list_changes(self) -> dict[CommitId, tuple[str, ...]]:
        """Return commit -> lines of each note that differs from ``base``, without lines if it is to be removed."""
        planned, before = self._list_planned(), {commit: note.lines for commit, note in self.before.items()}
        return {each: planned.get(each, ()) for each in before | planned if planned.get(each) != before.get(each)}

    def _list_planned(self) -> dict[CommitId, tuple[str, ...]]:
        """Return commit -> lines of each note after the repair."""
        unchanged = {commit: note for commit, note in self.before.items() if note.damage is not None}
        return {commit: note.lines for commit, note in (unchanged | self.notes).items()}

    def require_applied(self, *, undo: str) -> None:
        """Raise ``NotesDamaged`` unless the notes in the repository are the planned ones."""
        planned = self._list_planned()
        tip = noted.read_tip(self.repository)
        actual = {note.commit: note.lines for note in noted.read_notes(self.repository, tip)} if tip else {}
        if actual != planned:
            odd = min(commit for commit in {*actual, *planned} if actual.get(commit) != planned.get(commit))
            raise NotesDamaged(f"The repaired note on {odd} is not as planned.", hint=f"undo the repair: {undo}")

    def _report(self, what: str, action: str, *, commit: CommitId | None = None, mends: bool = True) -> None:
        self.repairs.append(NoteDamaged(what=what, commit=commit, action=action, mends=mends))

    def _set_note(self, commit: CommitId, lines: Iterable[str]) -> None:
        unique = tuple(dict.fromkeys(lines))
        self.notes[commit] = Note(commit=commit, lines=unique, handoffs=noted.decode_handoffs(unique))

    def _check_lock(self) -> None:
        if lock := noted.find_stale_lock(self.repository.location):
            what = f"cdd cannot write notes: {lock} has existed for more than ten minutes."
            # cdd never removes it, because another git process may hold it.
            self._report(what, f"If no git is running here, remove it: rm {lock}", mends=False)

    def _choose_base(self, *, expects_notes: bool) -> None:
        """Use the current notes, or else the last readable ones."""
        try:
            self.tip = noted.read_tip(self.repository)
            if self.tip is not None:
                self.base, self.before = self.tip, self._read(self.tip)
                return
            what = f"{REF} does not exist, but there are commits that had notes."
        except NotesDamaged as error:
            what, self.is_broken = error.happened, True
        if not self.is_broken and not expects_notes:
            return
        for tip, source in find_tips(self.repository, REF):
            with contextlib.suppress(NotesDamaged):
                notes = self._read(tip)
                if any(note.handoffs for note in notes.values()):
                    self.base, self.before = tip, notes
                    self._report(what, f"It is set to {tip}, {source}, with {len(notes)} notes.")
                    return
        action = "No earlier version can be found, so it is reconstructed from the commits."
        if not self.is_broken:
            action += f" If another repository has it, fetch it from there instead: git fetch REMOTE {REF}:{REF}"
        self._report(what, action)

    def _read(self, tip: str) -> dict[CommitId, Note]:
        return {note.commit: note for note in noted.read_notes(self.repository, tip)}

    def _restore_past_versions(self) -> dict[CommitId, str]:
        """Restore the last readable version of each unreadable note; return commit -> problem for the others."""
        unreadable = {}
        for commit, note in self.before.items():
            if note.damage is not None and note.damage.kind == "newer":
                upgrade = f"It stays as it is; to read it: {suggest_upgrade()}"
                self._report(note.damage.what, upgrade, commit=commit, mends=False)
            elif note.damage is not None:
                unreadable[commit] = note.damage.what
        versions = read_past_versions(self.repository, self.base, of=unreadable) if self.base and unreadable else {}
        for commit, what in list(unreadable.items()):
            past = (noted.decode_note(commit, data) for data in versions.get(commit, []))
            readable = next((note for note in past if note.damage is None), None)
            if readable is not None:
                self._set_note(commit, readable.lines)
                self._report(what, "Its last readable version is restored.", commit=commit)
                del unreadable[commit]
        return unreadable

    def _reattach_dangling(self) -> None:
        reach = noted.check_reachability(self.repository, self.notes.values())
        successors = {commit: self._find_successors(self.notes[commit]) for commit in reach.dangling}
        unknown = [commit for commit, found in successors.items() if not found and commit not in reach.gone]
        patches = find_same_patches(self.repository, unknown)
        for commit, damage in reversed(reach.dangling.items()):
            found = successors[commit]
            if not found:
                found = [each for each in patches.get(commit, []) if each not in {*self.before, *self.notes}]
            if len(found) == 1:
                action = f"It is moved to {found[0]}, which replaced that commit."
                self._report(damage.what, action, commit=commit)
                known = self.notes.get(found[0])
                self._set_note(found[0], (*(known.lines if known else ()), *self.notes[commit].lines))
                if commit in reach.gone:
                    del self.notes[commit]
                continue
            why = f"{len(found)} commits may have replaced that commit: {', '.join(found)}"
            action = f"{why if found else 'No similar commit was found'}. It stays as it is; {_removal(commit)}"
            self._report(damage.what, action, commit=commit, mends=False)

    def _find_successors(self, note: Note) -> list[CommitId]:
        """Return the commits whose trailers describe the handoffs of ``note``, and that have no such note."""
        landed = [each for each in note.handoffs if each.has_landed]
        ids = {each.id for each in landed}
        by_id = []
        for commit, trace in self.traces:
            known = noted.identify_handoffs(self.notes[commit]) if commit in self.notes else frozenset()
            if trace.id in ids and not noted.identify_handoffs(note) <= known:
                by_id.append(commit)
        if by_id:
            return list(dict.fromkeys(by_id))
        phases = {(each.ticket, each.phase, each.cycle_number) for each in landed}
        by_phase = [
            commit for commit, trace in self.traces if (trace.ticket, trace.phase, trace.cycle_number) in phases
        ]
        return [commit for commit in dict.fromkeys(by_phase) if commit not in self.before and commit not in self.notes]

    def _reconstruct_missing(self, unreadable: Mapping[CommitId, str]) -> None:
        """Reconstruct missing handoffs from trailers, and report the remaining unreadable notes."""
        added: Counter[CommitId] = Counter()
        for commit, trace in self.traces:
            note = self.notes.get(commit)
            if note is None or trace.id not in {each.id for each in note.handoffs}:
                self._set_note(commit, (*(note.lines if note else ()), encode(trace)))
                added[commit] += 1
        for commit, count in added.items():
            what = unreadable.get(commit, f"The commit {commit} has the trailers of a handoff but no note.")
            subject = "It is" if count == 1 else f"Its {count} handoffs are"
            self._report(what, f"{subject} reconstructed from the trailers, without the evidence.", commit=commit)
        for commit, what in unreadable.items():
            if commit not in self.notes:
                action = f"Its content cannot be recovered. It stays as it is; {_removal(commit)}"
                self._report(what, action, commit=commit, mends=False)


def _removal(commit: CommitId) -> str:
    return f"to remove it: git notes --ref={REF_NAME} remove {commit}"
