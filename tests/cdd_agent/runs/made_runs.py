"""A run of two cycles as the cycle leaves it, made without a model: commits, notes, state, reports, checkpoints."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cdd_agent.errors import CddError
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.notes import append_line
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.tree_store import Checkpoint, TreeStore
from cdd_agent.runs.back import Back
from cdd_agent.tdd.step import StepRefs, snapshot_ref
from cdd_agent.work.handoff import (
    PHASE_OF,
    CurrentTest,
    ErrorDetails,
    GateSummary,
    Handoff,
    NextPhase,
    PhaseName,
    encode,
    sequence,
)
from cdd_agent.work.outcome import Open
from cdd_agent.work.records import find_records
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution
from cdd_agent.work.state_file import save_state
from tests.fakes.reasons import make_reason

SLUG = "tdd-calculator"
TITLES = ("adds two numbers", "subtracts", "divides")


def said(
    phase: PhaseName, cycle: int, *, commit: str, following: NextPhase, error: str | None = None, retries: int = 0
) -> Handoff:
    """What a phase of a run hands over."""
    done = cycle - 1 if phase != "REFACTOR" else cycle
    result = {"PLAN": None, "RED": "FAIL", "GREEN": "PASS", "REFACTOR": "PASS"}[phase]
    return Handoff(
        seq=sequence(phase, cycle=cycle),
        id=f"{phase.lower()}-{cycle}",
        ticket=SLUG,
        phase=phase,
        next_phase=following,
        cycle_number=cycle,
        current_test=CurrentTest(description=TITLES[cycle - 1], test_file="test_calc.py", impl_file="calc.py"),
        completed_tests=TITLES[:done],
        pending_tests=TITLES[done:],
        test_result=None if error else msgspec.convert(result, type=Handoff.__annotations__["test_result"]),
        error=None if error is None else make_reason(error),
        error_details=None
        if error is None
        else ErrorDetails(type="assertion", reasons=(make_reason(error), make_reason("other: and more"))),
        retry_count=retries,
        commit=commit,
        checkpoint=None,
        gate=GateSummary(phase=PHASE_OF[phase], open=error is None, reasons=(), report_sha256=None),
    )


class Run:
    """A run that a test lets go on phase by phase."""

    def __init__(self, repository: Repository, root: Path) -> None:
        self.repository = repository
        self.events: list[object] = []
        self.snapshots = TreeStore(repository)
        self.root = root
        self.commits: dict[str, CommitId] = {}
        """``red 1`` -> its commit."""
        self.state = RunState(
            ticket_slug=SLUG,
            started_at="2026-01-31T12:00:00Z",
            base_commit=repository.read_head(),
            branch=repository.read_branch(),
        )
        (find_records(root).folder / "runs" / SLUG).mkdir(parents=True, exist_ok=True)
        (find_records(root).folder / "runs" / SLUG / "request.md").write_text("A calculator.")

    @property
    def back(self) -> Back:
        """The ways back, as a new process sees them."""
        return Back.of_project(self.root, emit=self.events.append)

    @property
    def state_path(self) -> Path:
        return find_records(self.root).folder / "runs" / SLUG / "execution-state.json"

    @property
    def step(self) -> StepExecution:
        assert self.state.current_step is not None
        return self.state.execution(self.state.current_step)

    def save(self, state: RunState) -> None:
        self.state = state
        save_state(self.state_path, state)

    def keep(self, step: StepExecution, *, current: bool = True) -> None:
        steps = {**self.state.step_executions, step.step_number: step}
        self.save(replace(self.state, step_executions=steps, current_step=step.step_number if current else None))

    def begin(self, cycle: int) -> None:
        """As ``Cycle`` does."""
        step = StepExecution(
            step_number=cycle,
            title=TITLES[cycle - 1],
            text_sha256=f"{cycle}",
            status=Status.IN_PROGRESS,
            base_commit=self.repository.read_head(),
            phase="plan",
        )
        ref = snapshot_ref(SLUG, step, name="start")
        StepRefs(ticket=SLUG, step=step, repository=self.repository, snapshots=self.snapshots).freeze_ignore_rules()
        self.snapshots.take(ref, message="start")
        self.report(ref.rpartition("/")[2].replace("-start", "-baseline"))
        self.keep(replace(step, checkpoint=ref))

    def report(self, name: str) -> str:
        path = find_records(self.root).folder / "reports" / SLUG / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"of": name}))
        return f"reports/{SLUG}/{name}.json"

    def land(self, phase: PhaseName, files: Mapping[str, str], *, following: NextPhase) -> CommitId:
        """Commit ``files`` as a phase of the cycle in work, with its note."""
        cycle = self.step.step_number
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        trailers = f"Ticket: {SLUG}\nPhase: {phase}\nCycle: {cycle}\nHandoff-Id: {phase.lower()}-{cycle}\n"
        title = f"{PHASE_OF[phase]}: {TITLES[cycle - 1]}\n\n{trailers}"
        commit = commit_paths(self.repository, title, paths=files, allow_empty=not files)
        append_line(self.repository, commit, line=encode(said(phase, cycle, commit=commit, following=following)))
        checkpoint = snapshot_ref(SLUG, self.step, name=f"{PHASE_OF[phase]}-1")
        self.snapshots.take(checkpoint, message="landed")
        attempt = AttemptRecord(
            phase=PHASE_OF[phase],
            number=1,
            outcome=Open(),
            checkpoint=checkpoint,
            report=self.report(checkpoint.rpartition("/")[2]) if phase != "PLAN" else None,
            answer='{"currentTest": ...}' if phase == "PLAN" else None,
        )
        step = self.step
        commits = {**step.commits, PHASE_OF[phase]: commit}
        self.keep(replace(step, attempts=(*step.attempts, attempt), commits=commits, phase=PHASE_OF[phase]))
        self.commits[f"{PHASE_OF[phase]} {cycle}"] = commit
        return commit

    def complete(self) -> None:
        self.keep(replace(self.step, status=Status.COMPLETED), current=False)

    def cycle(
        self, number: int, *, until: PhaseName = "REFACTOR", landed: Callable[[CommitId], object] = lambda _: None
    ) -> None:
        """A whole cycle, or its beginning; ``landed`` hears of each commit."""
        self.begin(number)
        boxes = "".join(f"- [{'x' if at < number else ' '}] {title}\n" for at, title in enumerate(TITLES, start=1))
        parts: tuple[tuple[PhaseName, dict[str, str], NextPhase], ...] = (
            ("PLAN", {"test-list.md": boxes}, "RED"),
            ("RED", {"test_calc.py": f"# tests up to {number}\n", f"tests/data{number}.txt": "d\n"}, "GREEN"),
            ("GREEN", {"calc.py": f"# code up to {number}\n"}, "REFACTOR"),
            ("REFACTOR", {}, "PLAN"),
        )
        for phase, files, following in parts:
            landed(self.land(phase, files, following=following))
            if phase == until:
                break
        if until == "REFACTOR":
            self.complete()


def begun_in(folder: Path) -> Run:
    """A run of which nothing has landed, in a new project with one commit."""
    folder.mkdir()
    repository = Repository.create(folder)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    (folder / "README.md").write_text("Calculator\n")
    (folder / ".gitignore").write_text("*.log\n")
    commit_paths(repository, "first", paths=["README.md", ".gitignore"])
    return Run(repository, repository.root)


def two_cycles(run: Run) -> Run:
    """``run`` with two of its cycles completed."""
    run.cycle(1)
    run.cycle(2)
    return run


def copied(run: Run, folder: Path) -> Run:
    """The same in another folder."""
    shutil.copytree(run.root, folder, symlinks=True)
    made = Run(Repository.find(folder), folder.resolve())
    made.state, made.commits = run.state, dict(run.commits)
    return made


RECORDS = ".git/cdd/main/root/"


def work_tree(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Every file but git's and the locks, with cdd's records: permissions and content."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        is_gits = name.startswith(".git/") and not name.startswith(RECORDS)
        if is_gits or name.startswith(f"{RECORDS}locks") or (path.is_dir() and not path.is_symlink()):
            continue
        found[name] = (path.lstat().st_mode, path.readlink().as_posix() if path.is_symlink() else path.read_bytes())
    return found


def history(repository: Repository) -> tuple[str, ...]:
    """HEAD, its branch, and the index."""
    return (
        repository.git("rev-parse", "HEAD").strip(),
        repository.read_branch() or "",
        repository.git("ls-files", ("--stage",)),
    )


def back(run: Run, name: str) -> str:
    """Roll back, and return the ref that keeps what went."""
    plan = run.back.plan_commit(name)
    run.back.go(plan)
    assert plan.effects is not None
    return plan.effects.kept


def undo(run: Run) -> Checkpoint:
    """Undo the last rollback, or the last undo, as ``cdd tdd rollback --undo`` does."""
    return run.back.go(run.back.plan_return(is_redo=run.back.is_undone()))


def refused(run: Run, name: str) -> CddError:
    """The error, after which everything is as it was."""
    before = work_tree(run.root), history(run.repository), run.repository.git("for-each-ref")
    with pytest.raises(CddError) as caught:
        run.back.plan_commit(name)
    assert (work_tree(run.root), history(run.repository), run.repository.git("for-each-ref")) == before
    return caught.value


def own_files(run: Run) -> dict[str, object]:
    """Uncommitted work of every kind: changed, staged, untracked, ignored, private, a link, an empty folder."""
    (run.root / "README.md").write_bytes(b"mine\r\n\xff")
    (run.root / "staged.txt").write_text("staged\n")
    run.repository.git("add", "staged.txt")
    (run.root / "staged.txt").write_text("and changed\n")
    (run.root / "new.txt").write_text("untracked\n")
    (run.root / "private.txt").write_text("secret\n")
    (run.root / "private.txt").chmod(0o600)
    (run.root / "link").symlink_to("new.txt")
    (run.root / "debug.log").write_text("ignored\n")
    (run.root / "tests" / "mine").mkdir()
    (run.root / "tests" / "mine" / "notes.txt").write_text("in a folder that goes\n")
    names = ("README.md", "staged.txt", "new.txt", "private.txt", "link", "debug.log", "tests/mine/notes.txt")
    return {name: work_tree(run.root)[name] for name in names}
