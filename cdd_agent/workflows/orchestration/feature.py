"""A feature that is asked for, and where its run is kept: ``.cdd/tdd/SLUG/``.

A run as the commits and notes that HEAD leads to tell of it: to go on without its state, or after other commits.

What a note says is enough for that; of the evidence only what a baseline tells is made anew, by running the tests.
"""

import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.config.settings import private_folder
from cdd_agent.errors import UsageError
from cdd_agent.git.notes import NotesDamaged, tip
from cdd_agent.git.notes_history import Entry, left_behind, survey
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.verdict import RedVerdict
from cdd_agent.work import state_file
from cdd_agent.work.handoff import PHASE_OF, Handoff
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution
from cdd_agent.workflows.orchestration import test_list
from cdd_agent.workflows.orchestration.test_list import Choice

PREFIX = "tdd-"
"""What the names of all features begin with, and the ``ticket`` of their notes."""
BEGIN = 'cdd tdd run "WHAT IT SHALL DO"'
RESUME = "cdd tdd resume"
LIMIT_BYTES = 100_000
"""Of a request."""

RUN = rf"{PREFIX}[a-z0-9][a-z0-9-]{{0,79}}"
"""The name of a run, as a pattern: it comes from a note, and becomes a part of paths and refs."""
_SLUG = re.compile(RUN)
_LONGEST_SLUG = 40
_FIX = re.compile(r"\W*(?:bug\s*)?fix(?:es|ed)?\b|\W*(?:bug|repair|correct)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One request and the folder of its run."""

    slug: str
    text: str
    """As it was asked for."""
    folder: Path

    @property
    def state_path(self) -> Path:
        """How far its cycles have come."""
        return self.folder / "execution-state.json"

    @property
    def request_path(self) -> Path:
        """The request."""
        return self.folder / "request.md"

    @property
    def is_fix(self) -> bool:
        """Whether the request asks for a repair, so that GREEN's commits are fixes."""
        return _FIX.match(self.text) is not None

    def keep(self) -> None:
        """Write the request down, unless it is."""
        if not self.request_path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.request_path, self.text.encode("utf-8", "replace"))


def new(root: Path, text: str, *, taken: Collection[str] = ()) -> Feature:
    """The feature that ``text`` asks for, under a name that is not ``taken``; nothing is written yet.

    The one in work if it asks for the same. Raises ``UsageError`` for an empty or endless request, and while another
    one is not complete.
    """
    text = text.encode("utf-8", "replace").decode("utf-8").strip()
    if not text or len(text.encode()) > LIMIT_BYTES:
        if not text:
            example = 'say what is wanted: cdd tdd run "a calculator that adds and subtracts"'
            raise UsageError("The request is empty.", hint=example)
        raise UsageError(
            f"The request has more than {LIMIT_BYTES:,} bytes.",
            hint="put the details into a file of the project, commit it, and name it in the request: agents read it",
        )
    unfinished = latest(root)
    if unfinished is not None and not is_complete(unfinished):
        if unfinished.text == text:
            return unfinished
        raise UsageError(
            f"The run {unfinished.slug} is not complete.",
            hint=f"go on with it: {RESUME}; or give it up first: rm -r {shlex.quote(str(unfinished.folder))}",
        )
    slug, folder = slug_of(text), _home(root)
    names = (slug, *(f"{slug}-{number}" for number in range(2, 10_000)))
    free = next(name for name in names if name not in taken and not (folder / name).exists())
    return Feature(slug=free, text=text, folder=folder / free)


def slug_of(text: str) -> str:
    """The name of what a text asks for: its first words.

    >>> slug_of("Calculator with Add/Subtract!")
    'tdd-calculator-with-add-subtract'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = PREFIX.rstrip("-")
    for word in words:
        if len(slug) + 1 + len(word) > _LONGEST_SLUG:
            break
        slug += f"-{word}"
    return slug if words and slug != PREFIX.rstrip("-") else f"{PREFIX}{(words or ['feature'])[0][:30]}"


def at(root: Path, slug: str, *, text: str) -> Feature:
    """The feature of this name, whether anything of it is there or not; ``UsageError`` for a name that is none."""
    if _SLUG.fullmatch(slug) is None:
        raise UsageError(f"{slug!r:.100} is no name of a run.", hint="see what the notes say: cdd tdd history")
    return Feature(slug=slug, text=text, folder=_home(root) / slug)


def latest(root: Path) -> Feature | None:
    """The feature whose request was written down last; None if there is none here."""
    folder = _home(root)
    requests = [path for path in folder.glob(f"{PREFIX}*/request.md") if _SLUG.fullmatch(path.parent.name)]
    if not requests:
        return None
    newest = max(requests, key=lambda path: (path.stat().st_mtime_ns, path.parent.name))
    try:
        text = read_ordinary(newest, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{newest} cannot be read: {error.strerror}.", hint=f"look at it: ls -l {newest}") from error
    return Feature(slug=newest.parent.name, text=text, folder=newest.parent)


def state_of(feature: Feature) -> RunState | None:
    """How far the cycles of a feature have come; None if nothing says. ``DocumentError`` if its state is damaged."""
    return state_file.load(feature.state_path, without=f"and go on from what the notes tell: {RESUME}")


def is_complete(feature: Feature) -> bool:
    """Whether all of its cycles are done; raises ``DocumentError`` if its state is damaged."""
    state = state_of(feature)
    return state is not None and state.status == Status.COMPLETED


def completed(state: RunState) -> tuple[StepExecution, ...]:
    """The cycles of tests that are completed, in their order; the last PLAN, which chose none, is not one."""
    done = (state.execution(number) for number in state.numbers(Status.COMPLETED))
    return tuple(step for step in done if "red" in step.commits)


def _home(root: Path) -> Path:
    return private_folder(root) / "tdd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """One line of a note, and the commit that the note is on."""

    commit: CommitId
    handoff: Handoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Recollection:
    """What is known of one run."""

    slug: str
    text: str
    """The request, as far as the first commit tells it."""
    lines: tuple[Handed, ...]
    """Oldest first, at least one."""

    @property
    def last(self) -> Handoff:
        """Where the run stands."""
        return self.lines[-1].handoff

    @property
    def is_complete(self) -> bool:
        """Whether the last word was that all is done."""
        return self.last.next_phase == "COMPLETE" and self.last.phase == "PLAN" and self.last.error is None


def recollect(repository: Repository, *, slug: str | None = None) -> Recollection | None:
    """The run of this name, else the one that was at work last, as far as HEAD's history tells of it.

    Raises ``NotesDamaged`` where notes cannot be read; those on commits that are gone are none of this history.
    """
    entries = {entry.commit: entry for entry in _entries(repository)}
    if not entries or repository.head() is None:
        return None
    found: list[Handed] = []
    for commit in repository.git("rev-list", "--topo-order", "HEAD").split():
        entry = entries.get(CommitId(commit))
        if entry is None:
            continue
        mine = [
            each for each in entry.handoffs if each.ticket.startswith(PREFIX) and each.ticket == (slug or each.ticket)
        ]
        if mine and slug is None:
            slug = max(mine, key=lambda each: each.seq).ticket
            mine = [each for each in mine if each.ticket == slug]
        ordered = sorted(mine, key=lambda each: each.seq)  # of the same phase, as they were written
        found += [Handed(commit=entry.commit, handoff=each) for each in reversed(ordered)]
    if not found or slug is None:
        return None
    return Recollection(slug=slug, text=_text(repository, found), lines=tuple(reversed(found)))


def _entries(repository: Repository) -> tuple[Entry, ...]:
    """All notes that can be read; raises ``NotesDamaged`` for one that cannot."""
    found = survey(repository)
    for damage in found.damages:
        if damage.kind in ("unreadable", "newer"):
            raise NotesDamaged(damage.what)
    return found.entries


def names_taken(repository: Repository) -> frozenset[str]:
    """The names of the runs that HEAD's history tells of."""
    if repository.head() is None:
        return frozenset()
    log = ("log", "--grep", f"^Ticket: {PREFIX}", "--format=%(trailers:key=Ticket,valueonly,separator=%x0A)", "HEAD")
    return frozenset(repository.git(*log).split())


def rebuilt(told: Recollection, *, now: str, context: Context) -> RunState:
    """The state of the run that goes on from HEAD, where the last phase landed or other commits follow it."""
    head, steps = context.repository.head(), dict[int, StepExecution]()
    cycles: dict[int, list[Handed]] = {}
    for each in told.lines:
        cycles.setdefault(each.handoff.cycle_number, []).append(each)
    for number in sorted(cycles):
        steps[number] = _step(number, cycles[number], now=now, context=context)
    last = steps[max(steps)]
    is_over = told.is_complete
    if last.status == Status.IN_PROGRESS:
        steps[last.step_number] = replace(_from_head(last, head=head, context=context), base_commit=head)
    return RunState(
        ticket_slug=told.slug,
        status=Status.COMPLETED if is_over else Status.IN_PROGRESS,
        completed_at=now if is_over else None,
        started_at=now,
        base_commit=head,
        branch=context.repository.branch(),
        step_executions=steps,
    )


def _step(number: int, lines: list[Handed], *, now: str, context: Context) -> StepExecution:
    """One cycle as its notes tell of it."""
    last = lines[-1].handoff
    landed = [each for each in lines if each.handoff.error is None]
    commits: dict[str, str] = {PHASE_OF[each.handoff.phase]: str(each.commit) for each in landed}
    title = next((each.handoff.current_test.description for each in landed), last.current_test.description)
    is_over = _is_over(last)
    answer = _choice(landed, context=context)
    if answer is None and not is_over:
        commits = {}  # which test was chosen, nobody can tell any more: PLAN chooses again
    attempts: list[AttemptRecord] = []
    if "plan" in commits:
        attempts.append(AttemptRecord(phase="plan", number=1, verdict="open", answer=answer))
    if any(_is_covered(each.handoff) for each in landed):
        attempts.append(AttemptRecord(phase="red", number=1, verdict="open", finding=RedVerdict.ALREADY_GREEN))
    return StepExecution(
        step_number=number,
        title=title,
        text_sha256="",
        status=Status.COMPLETED if is_over else Status.IN_PROGRESS,
        started_at=now,
        completed_at=now if is_over else None,
        attempts=tuple(attempts),
        commits=commits,
    )


def _from_head(step: StepExecution, *, head: CommitId | None, context: Context) -> StepExecution:
    """``step`` going on from HEAD: what landed stays, and the next phase takes a baseline of its own.

    The reports named here are not there: whoever looks for one has the tests run.
    """
    step = replace(step, base_commit=head)
    if not step.commits or head is None:
        return step
    *earlier, latest = step.commits
    made = []
    for phase in ("red", "green"):
        if phase in step.commits:
            report = recovery.report_path(step, f"{phase}-1", context=context)
            shown = str(report.relative_to(context.repository.root))
            made.append(AttemptRecord(phase=phase, number=1, verdict="open", report=shown))
    commits = {**{phase: step.commits[phase] for phase in earlier}, latest: str(head)}
    return replace(step, commits=commits, attempts=(*step.attempts, *made))


def _is_over(last: Handoff) -> bool:
    """Whether a cycle whose last word this is has nothing left to do."""
    if last.error is not None and last.phase != "REFACTOR":
        return False
    return last.phase == "REFACTOR" or last.next_phase == "COMPLETE" or _is_covered(last)


def _is_covered(handoff: Handoff) -> bool:
    """Whether RED found that there was nothing to do."""
    return handoff.phase == "RED" and handoff.next_phase == "PLAN" and handoff.error is None


def _choice(landed: Sequence[Handed], *, context: Context) -> str | None:
    """The answer of PLAN that the notes of its cycle tell of; None if they do not say which test it chose."""
    if not landed:
        return None
    first = landed[0].handoff
    if first.phase == "PLAN" and first.next_phase == "COMPLETE":
        return test_list.written(None)
    named = next((each.handoff for each in landed if each.handoff.current_test.test_file), first)
    test_file = named.current_test.test_file or _test_file_of(landed, context=context)
    if not test_file:
        return None
    test = named.current_test
    return test_list.written(Choice(description=test.description, test_file=test_file, impl_file=test.impl_file))


def _test_file_of(landed: Iterable[Handed], *, context: Context) -> str:
    """The file of the test, by what RED committed; empty if it has not."""
    inside = context.in_repository("")
    for each in landed:
        if each.handoff.phase == "RED":
            listed = context.repository.git("diff-tree", "--no-commit-id", "--name-only", "-r", "-z", each.commit)
            changed = [path.removeprefix(inside) for path in listed.split("\0") if path.startswith(inside)]
            return next((path for path in changed if test_list.is_test_file(path)), "")
    return ""


def _text(repository: Repository, newest_first: Iterable[Handed]) -> str:
    """The request, which stands between subject and trailers of the first PLAN's commit."""
    plans = [each for each in newest_first if each.handoff.phase == "PLAN" and each.handoff.error is None]
    if not plans:
        return ""
    first = min(plans, key=lambda each: each.handoff.cycle_number)
    _, _, body = repository.git("log", "-1", "--format=%B", first.commit).strip().partition("\n")
    return body.strip().rpartition("\n\n")[0].strip()


def to_begin(root: Path, repository: Repository, *, text: str) -> Feature:
    """The feature that ``text`` asks for, under a name that no run has had; raises as ``feature.new`` does."""
    return new(root, text, taken=names_taken(repository))


def to_resume(root: Path, repository: Repository) -> Feature:
    """The run that is gone on with: the one whose request was written down last, else the one the notes tell of.

    Raises ``UsageError`` if there is none, ``NotesDamaged`` if there are commits of one and no notes.
    """
    known = latest(root)
    if known is not None:
        return known
    told = recollect(repository)
    left = left_behind(repository) if told is None and tip(repository) is None else None
    if left is not None:
        raise left
    begin = f"begin one: {BEGIN}"
    if told is None or told.is_complete:
        happened = "There is no run to go on with." if told is None else f"{told.slug} is complete."
        raise UsageError(happened, hint=begin)
    if not told.text:
        raise UsageError(f"Nothing tells what {told.slug} was asked for: its first commit is not here.", hint=begin)
    return at(root, told.slug, text=told.text)
