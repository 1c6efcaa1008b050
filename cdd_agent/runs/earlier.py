"""Records that cdd does not find where it keeps them: an earlier version left them in ``.cdd``, or others brought them.

At the first start in a project, records in ``.cdd`` move to the place of ``work.records``, if something that no clone
or archive can bring shows that an earlier version wrote them here for this user: a report with the user's signature, or
a conversation whose marks come from the user's secret. A decision of the user about the folder shows nothing: another
archive can be unpacked into it later. Git must not track any of the records. Others stay where they are and are never
read, until the user has seen what is in them.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cdd_agent.config.trust import Offer, digest_file, load_secret
from cdd_agent.errors import AlreadyAtWork, CddError, format_count, join_first
from cdd_agent.git.fork import Forks, find_home
from cdd_agent.git.repository import Repository
from cdd_agent.model.conversation import derive_token
from cdd_agent.storage import RECORDS, exclusive_lock, hold, read_holder, read_ordinary
from cdd_agent.tickets.ticket import find as find_ticket
from cdd_agent.tickets.ticket import list_tickets
from cdd_agent.untrusted.paths import STATE_FILE
from cdd_agent.work.records import (
    OLD_NAMES,
    Records,
    claim,
    find_records,
    has_earlier_records,
    list_old,
    list_set_aside,
    locate_outside,
    locate_records,
    merge_folder,
    move_file,
    read_stage,
    save_stage,
)
from cdd_agent.work.state import RunState, Status, lock_ticket
from cdd_agent.work.state_file import TAKE_OVER, load_foreign, seal_state

COMMAND = TAKE_OVER
_PATIENCE_S = 30.0
_TOKEN = re.compile(rb'"token":"([a-z]{6})"')
_OPENED = re.compile(rb'^\{"kind":"opened","agent":"[^"]*".*')
_LOOKED_BYTES = 1_000_000
_MOST_LOOKED = 200
"""Conversations that are searched for the user's marks."""
_PEOPLES = frozenset({"config.yaml", "commands", ".gitignore", "worktree-include"})
"""What people write in ``.cdd`` and share."""
_MOST_SHOWN = 6
_WORDS = 60


def begin(root: Path, *, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Set the records of others aside and move those of an earlier version, once; return messages to the user.

    Raises ``AlreadyAtWork`` while an earlier version is at work.
    """
    records, told = locate_records(root, environment=environment), list[str]()
    for folder in root.parents:
        if folder.name == "worktrees" and folder.parent.name == ".cdd":  # a fork: its project has the list of forks
            told += begin(folder.parent.parent, environment=environment)
    if (aside := claim(records, environment=environment)) is not None:
        told.append(
            f"{records.top} held records that your cdd did not write. They are set aside in {aside}, and cdd does not "
            f"read them. To see them, and to take them back if they are yours: {COMMAND}"
        )
    if records.top.is_dir() and not os.access(records.top, os.W_OK):  # there is nowhere to move anything
        return tuple(told)
    with exclusive_lock(records.top / "begin.lock", purpose="The first start of cdd", wait_s=_PATIENCE_S):
        state = read_stage(records)
        old = list_old(root) if state != "done" else ()
        has_any = bool(old) or (state != "done" and bool(_list_unsealed(root, records)))
        is_of_user = bool(state) or (has_any and _is_of_user(root, records, environment=environment))
        if old and not is_of_user:
            told.append(
                f"{root / '.cdd'} holds {_summarize(root / '.cdd')}. Nothing shows that cdd wrote them for you, so cdd "
                f"does not read them. To see them, and to take them over if they are yours: {COMMAND}"
            )
        elif old:
            told.append(f"cdd's records moved from {root / '.cdd'} to {records.folder}: {_summarize(root / '.cdd')}.")
            _require_free(root)
            save_stage(records, "moving")
            _move_old(root, records)
        for outside in _list_outside(root, records, environment=environment):
            told.append(f"cdd's records moved from {outside} to {records.folder}: {_summarize(outside)}.")
            save_stage(records, "moving")
            (outside / "stage").unlink(missing_ok=True)
            merge_folder(outside, records.folder)
        if state != "done" and records.top.name != RECORDS and records != locate_outside(root, environment=environment):
            told.append(f"cdd keeps its records in {records.folder}, because you may not write them in git's folder.")
        if state != "done":
            if has_any and is_of_user:
                _seal_untracked(root, records)
            save_stage(records, "done")
    return tuple(told)


def _list_outside(root: Path, records: Records, *, environment: Mapping[str, str]) -> list[Path]:
    """Return the folders with records from when the project was in no repository, or git's folder was not writable."""
    places = [locate_outside(root, environment=environment)]
    if records.top.name == RECORDS:
        places.append(replace(records, top=locate_outside(records.top.parent, environment=environment).top))
    return [each.folder for each in places if each.folder != records.folder and each.folder.is_dir()]


def _is_of_user(root: Path, records: Records, *, environment: Mapping[str, str]) -> bool:
    """Return whether an earlier version of cdd has worked here for this user, and git brought none of its records."""
    try:
        if any(_list_tracked(root)):
            return False
    except CddError:  # git cannot say
        return False
    if has_earlier_records(records, environment=environment):
        return True
    return _has_own_marks(root, load_secret(environment))


def _list_unsealed(root: Path, records: Records) -> dict[Path, tuple[RunState, bytes]]:
    """Return the readable states without a valid seal, of tickets and of runs of ``cdd tdd``, and their bytes."""
    paths = sorted(records.folder.glob(f"tdd/*/{STATE_FILE}"))
    with contextlib.suppress(OSError):
        for ticket in list_tickets(root):
            with contextlib.suppress(CddError):  # a link
                paths.append(find_ticket(root, ticket.slug).state_path)
    found = ((path, load_foreign(path)) for path in paths)
    return {path: state for path, state in found if state is not None}


def _seal_untracked(root: Path, records: Records) -> None:
    with contextlib.suppress(CddError):  # git cannot say
        tracked = {tuple(path.split("/")[-3:]) for path in map(str.casefold, _list_all_tracked(root))}
        for path, (_, data) in _list_unsealed(root, records).items():
            if tuple(str(path).casefold().split("/")[-3:]) not in tracked:
                seal_state(path, data)


def _list_all_tracked(root: Path) -> list[str]:
    if locate_records(root) == locate_outside(root):
        return []
    return Repository.find(root).git("ls-files", ("-z",)).split("\0")


def _list_tracked(root: Path) -> Iterator[str]:
    """Yield the paths in ``.cdd``, in any case, that git tracks and no person shares; a repository there counts too."""
    for path in _list_all_tracked(root):
        parts = path.casefold().split("/")
        if ".cdd" in parts and not _PEOPLES.intersection(parts[parts.index(".cdd") + 1 :][:1]):
            yield path


def _has_own_marks(root: Path, secret: bytes) -> bool:
    """Return whether a saved conversation has the token that cdd derives from the user's secret for this folder."""
    own = {derive_token(secret, str(path)) for path in (root, root.resolve())}
    patterns = ("reports/*/*.conversation", "sessions/*/transcript.jsonl", "archive/*.jsonl", "archive/*/*.jsonl")
    paths = [path for pattern in patterns for path in _glob(root / ".cdd", pattern)]
    for path in paths[:_MOST_LOOKED]:
        with contextlib.suppress(OSError):
            data = read_ordinary(path, limit_bytes=64 * _LOOKED_BYTES)[:_LOOKED_BYTES]
            if own.intersection(found.decode() for found in _TOKEN.findall(data)):
                return True
            if any(_is_own_line(line, root=root, secret=secret) for line in data.splitlines() if _OPENED.match(line)):
                return True
    return False


def _is_own_line(line: bytes, *, root: Path, secret: bytes) -> bool:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        opened = json.loads(line)
        names = str(opened["agent"]), str(opened["ticket"])
        return opened["token"] in {derive_token(secret, str(path), *names) for path in (root, root.resolve())}
    return False


def _require_free(root: Path) -> None:
    """Raise ``AlreadyAtWork`` while an earlier version of cdd works on a ticket, whose records would move away."""
    for path in sorted((root / ".cdd" / "locks").glob("*.lock")):
        try:
            with hold(path):
                pass
        except BlockingIOError as error:
            raise AlreadyAtWork(
                f"An earlier version of cdd works in {root}, so its records cannot move yet: "
                f"{read_holder(path) or 'by an unknown process'}.",
                hint="wait for it to end, then run the same command again",
            ) from error


def _move_old(root: Path, records: Records) -> None:
    if find_home(root) == root:
        forks = Forks(root)
        with contextlib.suppress(CddError):  # a damaged list, or no repository: it stays where it is
            if (root / ".cdd" / "forks.json").exists():
                forks.adopt(root / ".cdd" / "forks.json")
        for fork in forks.list_all():
            inside = forks.find_project(fork) if not fork.is_abandoned else root
            if inside != root and inside.is_dir():
                _move_folder(inside / ".cdd", forks.find_records(fork))
                save_stage(forks.find_records(fork), "done")
    _move_folder(root / ".cdd", records)


def _move_folder(source: Path, records: Records) -> None:
    for name in OLD_NAMES if not source.is_symlink() else ():
        path = source / name
        if name == "landing/journal.json":
            move_file(path, records.landing / "journal.json")
        elif path.is_dir() and not path.is_symlink():
            merge_folder(path, records.folder / name)
        elif name != "forks.json":
            move_file(path, records.folder / name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRecords:
    """Records that cdd does not read."""

    folder: Path
    """``.cdd`` of the project, a folder beside that of cdd's records, or the state of a ticket."""
    offer: Offer
    """Shows what is in them."""


def list_foreign(root: Path) -> tuple[ForeignRecords, ...]:
    """Return the records that cdd does not read: in ``.cdd``, set aside, and states of tickets without a seal."""
    records = find_records(root)
    folders = [*list_set_aside(records.top)]
    if list_old(root):
        folders.append(root / ".cdd")
    found = [ForeignRecords(folder=folder, offer=_describe(folder)) for folder in folders]
    for path, (state, data) in _list_unsealed(root, records).items():
        found.append(ForeignRecords(folder=path, offer=_describe_state(state, data, path=path)))
    return tuple(found)


def take_over(found: ForeignRecords, root: Path) -> str:
    """Make records the user's own, and return a sentence about what became of them.

    Of a file that is there already, the user's own stays in use.
    """
    records = find_records(root)
    if found.folder.name == STATE_FILE:
        with lock_ticket(root, found.folder.parent):
            if seal_state(found.folder, found.offer.content):
                return f"Taken over: {found.folder} counts as written by your cdd now."
        return f"{found.folder} has changed since it was shown, so it was not taken over."
    with exclusive_lock(records.top / "begin.lock", purpose="Taking over records", wait_s=_PATIENCE_S):
        if found.folder.name == ".cdd":
            _require_free(root)
            _move_old(root, records)
            left = len(list_old(root))
        else:
            (found.folder / "owner.json").unlink(missing_ok=True)
            left = merge_folder(found.folder, records.top)
        for path in records.top.glob(f"*/*/tdd/*/{STATE_FILE}"):
            if (state := load_foreign(path)) is not None:
                seal_state(path, state[1])
    if left or (found.folder.exists() and found.folder.name != ".cdd"):
        # Beside old records, `.cdd` has the settings of the project and the work trees of runs.
        names = list_old(root) if found.folder.name == ".cdd" else (found.folder,)
        return (
            f"Taken over, except for files that your own records have too: they stay in {found.folder}. "
            f"To delete them: rm -r {shlex.join(map(str, names))}"
        )
    return f"Taken over: they are in {records.folder} now."


def _describe(folder: Path) -> Offer:
    digest, newest = hashlib.sha256(), 0.0
    for path in _list_files(folder):
        with contextlib.suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
        name = os.fsencode(path.relative_to(folder))
        digest.update(b"%d %b %b\n" % (len(name), name, digest_file(path).encode()))
    last = datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%d %H:%M") if newest else "never"
    shown = [f"{_summarize(folder)}; last changed {last}"]
    for path in _glob(folder, "sessions/*/transcript.jsonl")[-_MOST_SHOWN:]:
        shown.append(f"session {path.parent.name}: {_read_words(path)}")
    for path in _glob(folder, "comments/*.jsonl")[-_MOST_SHOWN:]:
        shown.append(f"comments on {path.stem[:10]}: {_read_words(path)}")
    return Offer(subject="records", source=str(folder), shown=tuple(shown), content=digest.digest())


def _describe_state(state: RunState, data: bytes, *, path: Path) -> Offer:
    """Show the guidance, which the model would get as the user's words, and the user's decisions."""
    done = f"{len(state.numbers(Status.COMPLETED))} of {format_count(len(state.step_executions), 'step')} done"
    approved = [str(number) for number, step in state.step_executions.items() if step.review]
    checked = sum(bool(attempt.evidence) for step in state.step_executions.values() for attempt in step.attempts)
    shown = [
        f"state of {state.ticket_slug}: {state.status}, {done}; {format_count(checked, 'attempt')} with evidence",
        f"approved after a review: {join_first([f'step {number}' for number in approved], most=_MOST_SHOWN)}"
        if approved
        else "no step is approved",
    ]
    for number, step in state.step_executions.items():
        if step.guidance:
            shown.append(f"guidance to step {number}, as your words: {step.guidance!r}")
    return Offer(subject="records", source=str(path), shown=tuple(shown), content=data)


def _summarize(folder: Path) -> str:
    """Return how many records of each kind are in a folder, of one project or of all."""
    counts = (
        (len(_glob(folder, "sessions/*/transcript.jsonl")), "session"),
        (len(_glob(folder, "journal/*/events.jsonl")), "journal"),
        (len(_glob(folder, "comments/*.jsonl")), "commented commit"),
        (len(_glob(folder, "reports/*/*.json")), "report"),
    )
    found = [format_count(count, noun) for count, noun in counts if count]
    return join_first(found, most=len(counts)) if found else "other records"


def _glob(folder: Path, pattern: str) -> list[Path]:
    # Below the records of a repository, those of a project are two folders deeper.
    found = {*folder.glob(pattern), *folder.glob(f"*/*/{pattern}")}
    return sorted(path for path in found if _is_really_in(folder, path))


def _is_really_in(folder: Path, path: Path) -> bool:
    """Return whether a file is below a folder, and not elsewhere by a link."""
    between = (each for each in (path, *path.parents) if each.is_relative_to(folder) and each != folder)
    return path.is_file() and not any(each.is_symlink() for each in between)


def _list_files(folder: Path) -> Iterator[Path]:
    for name in OLD_NAMES if folder.name == ".cdd" else ("",):
        paths = sorted((folder / name).rglob("*")) if (folder / name).is_dir() else [folder / name]
        yield from (path for path in paths if _is_really_in(folder, path))


def _read_words(path: Path) -> str:
    """Return the first text in a file of JSON lines that somebody typed."""
    with contextlib.suppress(OSError, ValueError):
        for line in read_ordinary(path, limit_bytes=64 * _LOOKED_BYTES)[:_LOOKED_BYTES].splitlines():
            if isinstance(text := json.loads(line).get("text"), str):
                return repr(text[:_WORDS])
    return "no words"
