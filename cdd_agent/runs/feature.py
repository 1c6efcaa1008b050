"""A feature: one request, the folder of its run, and its history in the handoff notes.

A run whose state is missing or outdated is rebuilt from the commits and notes that HEAD leads to. Only the test results
for a baseline are not in the notes; they come from a new run of the tests.
"""

import contextlib
import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import CddError, UsageError
from cdd_agent.git.notes import NotesDamaged, find_missing_ref, read_tip, survey_notes
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.places import REQUEST, RESUME, list_other_runs, locate_run
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tickets.ticket import Ticket, list_tickets
from cdd_agent.work.handoff import Handoff
from cdd_agent.work.state import RunState, Status, StepExecution
from cdd_agent.work.state_file import load_state

SOURCE = "tdd"
"""The name of the source of a feature's run, in its state and its notes."""
BEGIN = 'cdd tdd run "DESCRIPTION"'
LIMIT_BYTES = 100_000
"""Of a request."""
_PREFIX = f"{SOURCE}-"
"""The beginning of a feature's name. It tells the source only in notes without one."""
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,83}")
"""Pattern of a run's name, which comes from a note and becomes part of paths and refs."""
_MAX_SLUG_CHARACTERS = 40
_FIX = re.compile(r"\W*(?:bug\s*)?fix(?:es|ed)?\b|\W*(?:bug|repair|correct)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A request and the folder of its run."""

    slug: str
    text: str
    """The request."""
    folder: Path

    @property
    def ticket(self) -> Ticket:
        """The run as a ticket, whose state it keeps."""
        return Ticket(slug=self.slug, folder=self.folder, has_documents=False)

    @property
    def request_path(self) -> Path:
        """The file with the request."""
        return self.folder / REQUEST

    @property
    def is_fix(self) -> bool:
        """Whether the request asks for a repair; then GREEN's commits begin with ``fix:``."""
        return _FIX.match(self.text) is not None

    def save(self) -> None:
        """Write the request, unless the file exists."""
        if not self.request_path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.request_path, self.text.encode("utf-8", "replace"))


def make_feature(root: Path, text: str, *, taken: Collection[str] = ()) -> Feature:
    """Return a feature for ``text`` with a name that is not ``taken``, without writing anything.

    If an unfinished feature has the same text, return that. Raises ``UsageError`` for an empty or oversized request,
    and if another feature is unfinished.
    """
    text = text.encode("utf-8", "replace").decode("utf-8").strip()
    if not text:
        example = 'describe the feature: cdd tdd run "a calculator that adds and subtracts"'
        raise UsageError("The request is empty.", hint=example)
    if len(text.encode()) > LIMIT_BYTES:
        hint = "put the details into a file of the project, commit it, and name it in the request"
        raise UsageError(f"The request has more than {LIMIT_BYTES:,} bytes.", hint=hint)
    unfinished = find_latest(root)
    if unfinished is not None and not is_complete(unfinished):
        if unfinished.text == text:
            return unfinished
        hint = f"continue it: {RESUME}; or delete it first: rm -r {shlex.quote(str(unfinished.folder))}"
        raise UsageError(f"The run {unfinished.slug} is not complete.", hint=hint)
    slug = make_slug(text)
    names = (slug, *(f"{slug}-{number}" for number in range(2, 10_000)))
    free = next(name for name in names if name not in taken and not locate_run(root, name).folder.exists())
    return Feature(slug=free, text=text, folder=locate_run(root, free).folder)


def make_slug(text: str) -> str:
    """Return a feature's name, made from the first words of its request.

    >>> make_slug("Calculator with Add/Subtract!")
    'tdd-calculator-with-add-subtract'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = SOURCE
    for word in words:
        if len(slug) + 1 + len(word) > _MAX_SLUG_CHARACTERS:
            break
        slug += f"-{word}"
    return slug if words and slug != SOURCE else f"{_PREFIX}{(words or ['feature'])[0][:30]}"


def locate_feature(root: Path, slug: str, *, text: str) -> Feature:
    """Return the feature with this name, even if its folder does not exist.

    Raises ``UsageError`` for an invalid name, and for that of a run with another source.
    """
    is_valid = _SLUG.fullmatch(slug) is not None and all(ticket.slug != slug for ticket in list_tickets(root))
    run = locate_run(root, slug) if is_valid else None
    if run is None or _read_source(run) not in ("", SOURCE):
        raise UsageError(
            f"{slug!r:.100} is not the name of a run of cdd tdd.", hint="list the runs in the notes: cdd tdd history"
        )
    return Feature(slug=slug, text=text, folder=run.folder)


def _read_source(run: Ticket) -> str:
    """Return the source in the state of a run; empty if it has none that can be read."""
    with contextlib.suppress(CddError):
        state = load_state(run.state_path)
        return "" if state is None else state.source
    return ""


def is_of_feature(handoff: Handoff) -> bool:
    """Return whether a note is of a feature's run: as its source says, or in older ones the name of the run."""
    has_source = handoff.source == SOURCE or (not handoff.source and handoff.ticket.startswith(_PREFIX))
    # Whoever can push can write a note with any source and any name.
    return has_source and _SLUG.fullmatch(handoff.ticket) is not None


def find_latest(root: Path) -> Feature | None:
    """Return the feature whose request was saved last."""
    runs = {path: run for run in list_other_runs(root) if (path := run.folder / REQUEST).is_file()}
    by_time = sorted(runs, key=lambda path: (path.stat().st_mtime_ns, path.parent.name), reverse=True)
    newest = next((path for path in by_time if _read_source(runs[path]) in ("", SOURCE)), None)
    if newest is None:
        return None
    try:
        text = read_ordinary(newest, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{newest} cannot be read: {error.strerror}.", hint=f"inspect it: ls -l {newest}") from error
    return Feature(slug=newest.parent.name, text=text, folder=newest.parent)


def load_feature_state(feature: Feature) -> RunState | None:
    """Return the saved state of a feature; raises ``DocumentError`` if it is damaged."""
    return load_state(feature.ticket.state_path, without=f"and continue from the handoff notes: {RESUME}")


def is_complete(feature: Feature) -> bool:
    """Return whether all cycles are done; raises ``DocumentError`` if the state is damaged."""
    state = load_feature_state(feature)
    return state is not None and state.status == Status.COMPLETED


def list_completed(state: RunState) -> tuple[StepExecution, ...]:
    """Return the completed cycles in order, without the last PLAN, which chose no test."""
    done = (state.execution(number) for number in state.numbers(Status.COMPLETED))
    return tuple(step for step in done if "red" in step.commits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedHandoff:
    """One line of a note, and the commit of the note."""

    commit: CommitId
    handoff: Handoff


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureHistory:
    """The handoffs of one run in HEAD's history."""

    slug: str
    text: str
    """The request from the first commit; empty if that is missing."""
    lines: tuple[CommittedHandoff, ...]
    """Oldest first, at least one."""

    @property
    def is_complete(self) -> bool:
        """Whether the last PLAN found that all tests are done."""
        last = self.lines[-1].handoff
        return last.next_phase == "COMPLETE" and last.phase == "PLAN" and last.error is None


def read_history(repository: Repository, *, slug: str | None = None) -> FeatureHistory | None:
    """Return the history of this or the latest run from the notes on HEAD's commits; ``NotesDamaged`` if unreadable."""
    survey = survey_notes(repository)
    for damage in survey.damages:
        if damage.kind in ("unreadable", "newer"):
            raise NotesDamaged(damage.what)
    entries = {entry.commit: entry for entry in survey.entries}
    if not entries or repository.read_head() is None:
        return None
    found: list[CommittedHandoff] = []
    for commit in repository.git("rev-list", ("--topo-order",), "HEAD").split():
        entry = entries.get(CommitId(commit))
        if entry is None:
            continue
        handoffs = [each for each in entry.handoffs if is_of_feature(each)]
        if handoffs and slug is None:
            slug = max(handoffs, key=lambda each: each.seq).ticket
        own = sorted((each for each in handoffs if each.ticket == slug), key=lambda each: each.seq)
        found += [CommittedHandoff(commit=entry.commit, handoff=each) for each in reversed(own)]
    if not found or slug is None:
        return None
    return FeatureHistory(slug=slug, text=_read_request(repository, found), lines=tuple(reversed(found)))


def _read_request(repository: Repository, handoffs: Iterable[CommittedHandoff]) -> str:
    plans = [each for each in handoffs if each.handoff.phase == "PLAN" and each.handoff.error is None]
    if not plans:
        return ""
    first = min(plans, key=lambda each: each.handoff.cycle_number)
    _, _, body = repository.git("log", ("-1", "--format=%B"), first.commit).strip().partition("\n")
    return body.strip().rpartition("\n\n")[0].strip()


def list_used_names(repository: Repository) -> frozenset[str]:
    """Return the names of the tickets and runs in HEAD's history."""
    if repository.read_head() is None:
        return frozenset()
    log = ("--grep=^Ticket: ", "--format=%(trailers:key=Ticket,valueonly,separator=%x0A)")
    return frozenset(repository.git("log", log, "HEAD").split())


def begin_feature(root: Path, repository: Repository, *, text: str) -> Feature:
    """Return a feature for ``text`` with a name that no run has used; raises as ``make_feature`` does."""
    return make_feature(root, text, taken=list_used_names(repository))


def find_resumable(root: Path, repository: Repository) -> Feature:
    """Return the run to continue: the one saved last, else the latest in the notes; ``UsageError`` if there is none."""
    known = find_latest(root)
    if known is not None:
        return known
    history = read_history(repository)
    missing = find_missing_ref(repository) if history is None and read_tip(repository) is None else None
    if missing is not None:
        raise missing
    begin = f"begin one: {BEGIN}"
    if history is None or history.is_complete:
        happened = "There is no run to continue." if history is None else f"{history.slug} is complete."
        raise UsageError(happened, hint=begin)
    if not history.text:
        raise UsageError(f"The request of {history.slug} is unknown: its first commit is missing.", hint=begin)
    return locate_feature(root, history.slug, text=history.text)
