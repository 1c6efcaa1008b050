"""The user's part between two steps: review the completed ones, or work by hand.

A review shows commits, evidence and diff of each step, and records the person's decision. ``add_examples`` adds the
Examiner's further examples of a step to the project's tests.

In an ``Intervention`` the user commits or keeps changes, or marks a step as done. The gate judges manual work like the
model's: no step is completed without a run of all tests.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cdd_agent.agent.sessions import archive_sessions
from cdd_agent.clock import SystemClock
from cdd_agent.errors import CddError, GateClosed, UsageError, format_count, join_first
from cdd_agent.events import Committed, FileDiffed, GateJudged, StepFinished, StepReviewed, StepStarted
from cdd_agent.evidence.examiner import Examples
from cdd_agent.git.commits import commit_paths, cut_subject, require_finished, require_identity
from cdd_agent.git.landing import BranchMoved
from cdd_agent.git.notes import read_note
from cdd_agent.git.push import Push, find_push
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import RunTrees
from cdd_agent.review import Comments, LeftFork, count_lines, describe_size, diff_commits, resolve_recorded
from cdd_agent.runs.run import Run, Source
from cdd_agent.storage import read_ordinary
from cdd_agent.tdd import verdict
from cdd_agent.tdd.context import Context, WorkItem, summarize_evidence
from cdd_agent.tdd.examination import load_examples
from cdd_agent.tdd.locks import alone_on
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tickets.ticket import Ticket, list_tickets
from cdd_agent.work import state as states
from cdd_agent.work.finding import Finding
from cdd_agent.work.outcome import Closed, Open
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution, lock_ticket, review_step
from cdd_agent.work.state_file import load_state, save_state
from pytest_tdd_agent.codec import LIMIT_BYTES
from pytest_tdd_agent.gate import judge
from pytest_tdd_agent.report import Reason, Verdict, list_failing


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of one phase, from its commit's note."""

    phase: str
    is_open: bool
    tries: int
    report: str
    """``unchanged``, ``changed or missing``, or ``none``."""
    examples: tuple[Finding, ...] = ()
    """The Examiner's examples with their outcomes."""
    findings: tuple[Finding, ...] = ()
    """The findings of the other checks."""


def read_evidence(repository: Repository, commit: CommitId, *, reports: Collection[str]) -> tuple[Evidence, ...]:
    """Read the evidence of each phase from the notes on ``commit``. ``reports``: the result of ``hash_reports``.

    Lines that are not handoffs, or that lack a gate, do not count, because anyone with push access can write them.
    """
    evidence: dict[str, Evidence] = {}
    for handoff in sorted(read_note(repository, commit).handoffs, key=lambda handoff: handoff.seq):
        if handoff.gate is not None:
            digest = handoff.gate.report_sha256
            report = "unchanged" if digest in reports else "changed or missing"
            evidence[handoff.phase] = Evidence(
                phase=handoff.phase.lower(),
                is_open=handoff.gate.open,
                tries=handoff.retry_count + 1,
                report="none" if digest is None else report,
                examples=handoff.gate.examples,
                findings=handoff.gate.evidence,
            )
    return tuple(evidence.values())


def hash_reports(folder: Path) -> frozenset[str]:
    """Return the digests of the readable reports in ``folder``."""
    digests: set[str] = set()
    for path in folder.rglob("*.json"):
        with suppress(OSError):
            digests.add(hashlib.sha256(read_ordinary(path, limit_bytes=LIMIT_BYTES)).hexdigest())
    return frozenset(digests)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCommit:
    """One commit of a step."""

    commit: CommitId
    subject: str
    evidence: tuple[Evidence, ...]
    is_in_history: bool
    """Whether HEAD contains it. Not so after a rebase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepToReview:
    """A completed step."""

    number: int
    title: str
    commits: tuple[LandedCommit, ...]
    files: tuple[FileDiffed, ...]
    """The changes from before the step to its last commit."""
    decision: str | None
    """The person's decision, or None."""
    base: str = ""
    """The commit before the step; empty if it is not known."""
    total: int = 0
    """The number of steps of its plan."""
    unit: str = "step"
    """The word for a part of the run."""

    @property
    def heading(self) -> str:
        """Number and title of a step, or the subject of another commit."""
        return f"{self.unit.capitalize()} {self.number}/{self.total}  {self.title}" if self.number else self.title

    def as_event(self, ticket: str) -> StepReviewed:
        """Return the step as plain values."""
        added, removed = count_lines(self.files)
        return StepReviewed(
            ticket=ticket,
            number=self.number,
            title=self.title,
            commits=tuple(landed.commit for landed in self.commits),
            files=tuple(file.path for file in self.files),
            added=added,
            removed=removed,
            decision=self.decision,
        )


def load_completed_steps(ticket: Ticket, repository: Repository, *, project: Path) -> tuple[StepToReview, ...]:
    """Load the ticket's completed steps in the order of the plan.

    Raises ``UsageError`` if no step is completed, or if commits of a step no longer exist.
    """
    state = load_state(ticket.state_path)
    if state is None or not (done := [state.execution(number) for number in state.numbers(Status.COMPLETED)]):
        unit, resume = ("step", f"cdd exec {ticket.slug}") if state is None else (state.unit, state.resume)
        raise UsageError(f"{ticket.slug} has no completed {unit} to review.", hint=resume)
    reports = hash_reports(find_records(project).folder / "reports")  # also those of a fork that was merged
    total = len(state.step_executions)
    return tuple(replace(_load_step(step, repository, reports=reports), total=total, unit=state.unit) for step in done)


def load_earlier_landing(
    step: StepToReview, commits: Sequence[CommitId], *, repository: Repository, project: Path
) -> StepToReview:
    """Load the ``commits`` of ``step`` from before an iteration. Raises ``UsageError`` if one no longer exists."""
    reports = hash_reports(find_records(project).folder / "reports")
    landed = tuple(_load_landed(resolve_recorded(repository, each), repository, reports=reports) for each in commits)
    base = repository.git("rev-parse", ("--verify",), f"{landed[0].commit}^").strip()
    return replace(step, commits=landed, files=diff_commits(repository, base, after=landed[-1].commit), base=base)


def load_commit(repository: Repository, name: str, *, project: Path) -> StepToReview:
    """Load one commit as if it were a step: its number is 0. Raises ``UsageError`` if it does not exist."""
    commit = resolve_recorded(repository, name)
    parents = repository.git("log", ("-1", "--format=%P"), commit, ("--",)).split()
    if not parents:
        raise UsageError(f"{commit[:10]} is the first commit; it has nothing to compare with.", hint="git show " + name)
    landed = _load_landed(commit, repository, reports=hash_reports(find_records(project).folder / "reports"))
    return StepToReview(
        number=0,
        title=landed.subject,
        commits=(landed,),
        files=diff_commits(repository, parents[0], after=commit),
        decision=None,
        base=parents[0],
    )


def _load_landed(commit: CommitId, repository: Repository, *, reports: Collection[str]) -> LandedCommit:
    return LandedCommit(
        commit=commit,
        subject=repository.git("log", ("-1", "--format=%s"), commit, ("--",)).strip(),
        evidence=read_evidence(repository, commit, reports=reports),
        is_in_history=not repository.git("rev-list", ("--max-count=1",), commit, ("--not",), "HEAD", ("--",)),
    )


def _load_step(step: StepExecution, repository: Repository, *, reports: Collection[str]) -> StepToReview:
    commits = tuple(
        _load_landed(resolve_recorded(repository, commit), repository, reports=reports)
        for commit in dict.fromkeys(step.commits.values())
    )
    base = step.base_commit
    files = diff_commits(repository, base, after=commits[-1].commit) if base and commits else ()
    return StepToReview(
        number=step.step_number, title=step.title, commits=commits, files=files, decision=step.review, base=base or ""
    )


def approve_step(ticket: Ticket, number: int, *, project: Path) -> RunState:
    """Record that the user approves step ``number`` and return the saved state.

    Raises ``UsageError`` if the ticket has not run, the step is not completed, or another process holds the ticket.
    """
    with lock_ticket(project, ticket.folder):
        state = load_state(ticket.state_path)
        if state is None:
            raise UsageError(f"{ticket.slug} has not been carried out yet.", hint=f"cdd exec {ticket.slug}")
        decided = review_step(state, number, decision="approved")
        save_state(ticket.state_path, decided)
        return decided


def archive_finished(project: Path, *, present: str = "") -> tuple[str, ...]:
    """Archive the sessions of tickets whose every step is approved, except ``present``, and return their ids."""
    finished = set()
    for ticket in list_tickets(project):
        with suppress(CddError):  # a damaged state is reported where it is needed
            state = load_state(ticket.state_path)
            if state is not None and state.is_approved:
                finished.add(ticket.slug)
    return archive_sessions(project, finished, present=present)


_UNDECIDED = {
    Status.FAILED: "failed",
    Status.SKIPPED: "skipped",
    Status.IN_PROGRESS: "unfinished",
    Status.PENDING: "pending",
}
"""Status of a step that is not completed -> the word for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketEnd:
    """The end of a ticket whose every step is approved."""

    lines: tuple[str, ...]
    """The size of all changes, the removed run tree, and the commands that may follow."""
    files: tuple[FileDiffed, ...]
    """The changes of the whole ticket."""
    undecided: tuple[str, ...] = ()
    """As ``Review.list_undecided`` returns it."""
    forks: tuple[LeftFork, ...] = ()
    push: Push | None
    """The push that the user may want; None if there is nothing to push, or no remote."""


class Review:
    """A session that goes through the completed steps of one ticket."""

    def __init__(
        self,
        ticket: Ticket,
        *,
        repository: Repository,
        project: Path,
        add: Callable[[int], CommitId] | None = None,
        trees: RunTrees | None = None,
        list_forks: Callable[[str], Iterable[LeftFork]] | None = None,
    ) -> None:
        """Start at the first undecided step. ``add`` adds the further examples of a step to the tests.

        ``trees`` has the run tree of the ticket, ``list_forks`` returns its forks. Raises ``UsageError`` if no step is
        completed.
        """
        self.ticket = ticket
        self._repository = repository
        self._project = project
        self._add = add
        self._trees = trees
        self._list_forks = list_forks
        self.steps = load_completed_steps(ticket, repository, project=project)
        self.at = next((index for index, step in enumerate(self.steps) if step.decision is None), 0)

    @property
    def step(self) -> StepToReview:
        """The current step."""
        return self.steps[self.at]

    @property
    def remaining(self) -> int:
        """The number of undecided steps."""
        return sum(step.decision is None for step in self.steps)

    @property
    def position(self) -> str:
        """The current step and the number of steps, such as ``2/3``."""
        return f"{self.at + 1}/{len(self.steps)}"

    def go_to(self, number: int) -> None:
        """Make the completed step ``number`` the current one."""
        self.at = next(at for at, step in enumerate(self.steps) if step.number == number)

    def add_examples(self, number: int | None = None) -> CommitId:
        """Add the further examples of a step, by default the current one, to the tests; see ``add_examples``."""
        if self._add is None:
            raise UsageError("Nothing can be committed here.", hint=f"cdd review {self.ticket.slug}")
        return self._add(self.step.number if number is None else number)

    def finish(self) -> TicketEnd | None:
        """End a ticket whose every step is approved: remove its run tree if nothing in it is missing on a branch.

        Returns None if steps are left.
        """
        state = load_state(self.ticket.state_path)
        landed = [each.commit for step in self.steps for each in step.commits if each.is_in_history]
        if state is None or not (state.is_approved and landed and state.base_commit):
            return None
        repository = self._repository
        # An iteration of an early step may be the last commit; of its step, only its own commits are known.
        later = repository.git("rev-list", ("--topo-order",), f"{state.base_commit}..HEAD").split()
        last = next((commit for commit in later if commit in landed), landed[-1])
        commits = repository.git("rev-list", ("--no-merges",), f"{state.base_commit}..{last}").split()
        files = diff_commits(repository, state.base_commit, after=last)
        told = [f"The whole ticket: {describe_size(files)} in {format_count(len(commits), 'commit')}."]
        told += ["Its run tree is removed."] if self._remove_tree() else []
        told.append(f"What happened: cdd report {self.ticket.slug} --html report.html")
        branch = repository.read_branch() or ""
        if branch.startswith("fork/"):
            told.append(f"To take it over: cdd fork merge {branch.removeprefix('fork/')}")
            return TicketEnd(lines=tuple(told), files=files, undecided=self.list_undecided(), push=None)
        forks = tuple(self._list_forks(self.ticket.slug)) if self._list_forks is not None else ()
        undecided, push = self.list_undecided(), find_push(repository)
        return TicketEnd(lines=tuple(told), files=files, undecided=undecided, forks=forks, push=push)

    def list_undecided(self) -> tuple[str, ...]:
        """Return what waits for the user besides forks and the push, each with a command."""
        slug, state = self.ticket.slug, load_state(self.ticket.state_path)
        waiting: list[str] = []
        for status, word in _UNDECIDED.items():
            if numbers := state.numbers(status) if state is not None else ():
                shown = join_first(tuple(map(str, numbers)), most=_MOST_SHOWN)
                waiting.append(
                    f"{word} step{'' if len(numbers) == 1 else 's'} {shown}: {state.resume if state else slug}"
                )
        comments = Comments(self._repository, self._project, clock=SystemClock()).list_all()
        if count := sum(each.ticket == slug and not each.resolved for each in comments):
            waiting.append(f"{format_count(count, 'open comment')}: cdd comment list")
        if count := len(self._repository.list_uncommitted()):
            waiting.append(f"{format_count(count, 'uncommitted file')}: git status")
        return tuple(waiting)

    def _remove_tree(self) -> bool:
        name, trees = self.ticket.slug, self._trees
        if trees is None or not trees.has(name) or trees.open(name).list_uncommitted():
            return False
        return trees.remove_unused(name)

    def approve(self, number: int | None = None) -> None:
        """Approve a step, by default the current one, and go to the next undecided one."""
        number = self.step.number if number is None else number
        state = approve_step(self.ticket, number, project=self._project)
        self.steps = tuple(replace(step, decision=state.execution(step.number).review) for step in self.steps)
        following = [*range(self.at + 1, len(self.steps)), *range(self.at)]
        self.at = next((index for index in following if self.steps[index].decision is None), self.at)


_MAX_MOVES = 3
_MOST_SHOWN = 3


def add_examples(ticket: Ticket, number: int, *, context: Context) -> CommitId:
    """Commit the examples that pass, in a new test file beside the step's tests, and land the commit.

    They have to pass on the user's HEAD. Raises ``UsageError`` if there are none, or if they are tests already;
    ``GateClosed`` if one fails or a hook of the user refuses; ``LandingConflict`` if the user has to decide.
    """
    with alone_on(ticket.folder, context=context):
        state = load_state(ticket.state_path)
        step = None if state is None else state.step_executions.get(number)
        if step is None or step.status != Status.COMPLETED:
            raise UsageError(f"Step {number} is not completed.", hint=f"see the steps: cdd status {ticket.slug}")
        examples = load_examples(StepRecovery(ticket.slug, step, context=context).examples_path)
        names = [] if examples is None else [example.name for example in examples.select("passes")]
        if examples is None or not names:
            happened = f"The Examiner has no further examples of step {number} that pass."
            raise UsageError(happened, hint=f"see why: cdd review {ticket.slug}")
        return _add(examples, names, step=step, context=context)


def _add(examples: Examples, names: list[str], *, step: StepExecution, context: Context) -> CommitId:
    workplace, tree = context.workplace, context.workplace.tree
    require_identity(context.repository)
    for _ in range(_MAX_MOVES):
        workplace.carries = False
        tip = workplace.begin()
        path = _name_file(examples.beside, number=step.step_number)
        content = examples.extract(names).encode()
        if context.workspace.exists(path) and context.workspace.read(path) == content:
            raise UsageError(f"{path} has these examples already.", hint=f"to add them again: git rm {path}")
        context.workspace.write(path, content)
        run = context.run_suite("the further examples", targets=(path,))
        failing = () if run.report is None else list_failing(run.report)
        if run.report is None or failing:
            (context.suite.root / path).unlink(missing_ok=True)
            why = run.problem or f"{join_first(failing, most=_MOST_SHOWN)} fails"
            raise GateClosed(
                f"The further examples do not pass any more: {why}.", hint="compare the code with the step"
            )
        subject = cut_subject(f"test: further examples of step {step.step_number}: {step.title}")
        made = commit_paths(tree, f"{subject}\n", paths=(context.to_repository_path(path),))
        commit = workplace.adapt(made, tip=tip)
        try:
            workplace.land(commit, made=made, tip=tip)
        except BranchMoved:
            continue
        context.emit(Committed(phase="examples", commit=commit, subject=subject))
        return commit
    raise BranchMoved("Your branch keeps moving.", hint="run the same command again when it rests")


def _name_file(beside: str, *, number: int) -> str:
    """Return the path of a test file beside another one, whose name follows the same pattern.

    >>> _name_file("tests/price_test.py", number=2)
    'tests/price_examples_2_test.py'
    """
    path = PurePosixPath(beside)
    stem, ending = (path.stem[:-5], "_test") if path.stem.endswith("_test") else (path.stem, "")
    return (path.parent / f"{stem}_examples_{number}{ending}.py").as_posix()


DEFAULT_MESSAGE = "chore: changes made by hand"


class Intervention:
    """The user's actions between the steps of a run."""

    def __init__(self, run: Run[Source]) -> None:
        """Changes nothing."""
        self._run = run
        self._context = run.context

    def list_blocking_changes(self, *, anew: bool) -> tuple[str, ...]:
        """Return the user's uncommitted changes if they prevent the next step.

        ``anew``: a step will be restarted. A step that resumes is not refused: its own files are among the changes.
        """
        run = self._run
        may_stay = run.allows_dirty or run.keeps_changes or run.leaves_changes
        if may_stay or self._find_underway() is not None:
            return ()
        return run.source.list_changes(run.context) if anew or run.find_next_step() is not None else ()

    def commit_changes(self, message: str = "") -> None:
        """Commit the user's changes and nothing else, as the user; the user's hooks run.

        Raises ``UsageError`` if there are none, or if a file has staged and unstaged changes; ``GateClosed`` if a hook
        refuses the commit.
        """
        run, repository = self._run, self._context.repository
        with alone_on(run.ticket.folder, context=self._context):
            require_finished(repository)
            paths = _choose_paths(repository, run.source.list_changes(run.context))
            require_identity(repository)
            subject = message.strip() or DEFAULT_MESSAGE
            try:
                commit = commit_paths(repository, f"{subject}\n", paths=paths)
            except GateClosed as refused:
                hint = "fix what the hook reports, then type commit again"
                raise GateClosed(refused.happened, hint=hint) from refused
            self._context.emit(Committed(phase="by hand", commit=commit, subject=subject.split("\n", 1)[0]))

    def keep_changes(self) -> None:
        """Let the next steps take the user's changes along, which are never committed."""
        self._require_changes("keep")
        self._run.keeps_changes, self._run.leaves_changes = True, False

    def leave_changes(self) -> None:
        """Let the next steps run without the user's changes."""
        self._require_changes("leave out")
        self._run.keeps_changes, self._run.leaves_changes = False, True

    def _require_changes(self, verb: str) -> None:
        if not self._run.source.list_changes(self._context):
            raise UsageError(
                f"All files are committed, so you cannot {verb} changes.", hint="press Enter to continue with the plan"
            )

    def mark_done(self, item: WorkItem) -> None:
        """Complete a step if all tests pass on the committed files, else raise ``UsageError`` or ``GateClosed``."""
        run, context, number = self._run, self._context, item.number
        status = run.state.execution(number).status
        if status in {Status.COMPLETED, Status.IN_PROGRESS}:
            hint = "press Enter to continue with the plan, or type retry to restart a step"
            raise UsageError(f"Step {number} is {status.replace('_', ' ')}.", hint=hint)
        run.require_dependencies(number)
        run.require_clean(allow_dirty=False)
        state = states.retry_step(run.source.start(run.state, number, context=context), number)
        now, head = run.clock.now, context.repository.read_head()
        state = states.start_step(state, item.key, now=now(), base_commit=head)
        context.emit(StepStarted(number=number, total=item.total, title=item.title))
        judged, record = self._judge(item, state=state)
        if not judged.open:
            codes = ", ".join(dict.fromkeys(reason.code for reason in judged.reasons))
            hint = f"fix and commit it, or let the agent do it: retry {number}"
            raise GateClosed(f"Step {number} is not done: {codes}.", hint=hint)
        state = states.record_attempt(state, number, attempt=record)
        state = states.end_step(state, number, status=Status.COMPLETED, now=now())
        run.save(run.unskip_dependents(state, number))
        context.emit(StepFinished(number=number, status=Status.COMPLETED, error=None))

    def _judge(self, item: WorkItem, *, state: RunState) -> tuple[Verdict, AttemptRecord]:
        context = self._context
        recovery = StepRecovery(item.ticket, state.execution(item.number), context=context)
        path = recovery.report_path("by-hand")
        context.workplace.carries = False
        context.workplace.begin()
        run = context.run_suite("all tests, for a step done by hand", keep=path)
        if run.report is None:
            judged = verdict.judge_incomplete_run("green", run)
        else:
            judged = judge("green", run.report, targets=item.tests)
        evidence = summarize_evidence(judged, run.report)
        context.emit(GateJudged(phase="green", attempt=1, open=judged.open, reasons=judged.reasons, evidence=evidence))
        by_hand = Reason(code="by_hand", nodeid=None, case="" if item.tests else "by_hand_untested")
        return judged, AttemptRecord(
            phase="green",
            number=1,
            outcome=Open() if judged.open else Closed(),
            reasons=judged.reasons or (by_hand,),
            report=None if run.report is None else str(path.relative_to(context.records.folder)),
        )

    def _find_underway(self) -> int | None:
        begun = self._run.state.numbers(Status.IN_PROGRESS)
        return next((number for number in begun if self._run.make_recovery(number).is_underway()), None)


def _choose_paths(repository: Repository, changes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ``changes`` to commit; raises ``UsageError`` if there are none, or if the commit would lose some."""
    if not changes:
        raise UsageError("You have no uncommitted changes.", hint="press Enter to continue with the plan")
    flags = repository.git("ls-files", ("-v", "-z")).split("\0")
    # skip-worktree, assume-unchanged
    hidden = {entry[2:] for entry in flags if entry[:1] == "S" or entry[:1].islower()}
    paths = tuple(path for path in dict.fromkeys(changes) if path not in hidden)
    if not paths:
        happened = f"git is set to ignore these changes: {', '.join(changes)}."
        raise UsageError(happened, hint="type keep to continue without them")
    options = ("--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
    fields = [field for field in repository.git("status", options).split("\0") if field[3:] in paths]
    there = {path for path in paths if (repository.root / path).is_symlink() or (repository.root / path).is_file()}
    # A commit would hold either the staged or the present content; the other would be lost.
    torn = [f[3:] for f in fields if f[0] != " " and (f[1] != " " or (f[0] == "D" and f[3:] in there))]
    if torn:
        raise UsageError(
            f"The staged content differs from the file: {', '.join(torn)}.\nNothing was touched.",
            hint="commit the staged content with git commit, or stage the files with git add; then press Enter",
        )
    return paths
