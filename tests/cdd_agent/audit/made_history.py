"""Small histories with handoff notes, made by real cycles; and what edits them behind the program's back."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from cdd_agent.audit.auditor import Auditor
from cdd_agent.audit.handoffs import AuditedHandoff
from cdd_agent.events import Event, SuiteFinished
from cdd_agent.sandbox.port import Access, Sandbox
from cdd_agent.tdd.context import WorkItem
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.testrun.access import Original
from cdd_agent.testrun.suite import PYTEST, Suite, SuiteRun
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import TIDY, Project, green, item, red

NOTES = "refs/notes/tdd-handoffs"
TIDIES = says(
    call("Read", file_path="discount.py"),
    call("Write", "toolu_W2", file_path="discount.py", content=TIDY),
    call("CompleteImplementation", implementation_files=[]),
)
Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """A suite that runs no files a second time that it has run before: the same files, the same results."""

    suite: Suite
    known: dict[str, SuiteRun] = field(default_factory=dict)
    conventions = PYTEST
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.suite.root

    @property
    def sandbox(self) -> Sandbox:
        return self.suite.sandbox

    @property
    def timeout_s(self) -> float:
        return self.suite.timeout_s

    @property
    def command(self) -> str:
        return self.suite.command

    @property
    def signature(self) -> tuple[str, ...] | None:
        return self.suite.signature

    def run(self, targets: tuple[str, ...] = (), *, keep: Path | None = None) -> SuiteRun:
        key = hashlib.sha256(repr(targets).encode())
        for path in sorted(path for path in self.root.rglob("*") if path.is_file() and ".git" not in path.parts):
            key.update(path.relative_to(self.root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        if key.hexdigest() not in self.known:
            self.known[key.hexdigest()] = self.suite.run(targets, keep=keep)
        return self.known[key.hexdigest()]

    def with_root(self, root: Path, *, reads: tuple[Path, ...] = ()) -> "Remembered":
        return replace(self, suite=self.suite.with_root(root, reads=reads))

    @property
    def setup(self) -> str:
        return self.suite.setup

    @property
    def original(self) -> Original | None:
        return self.suite.original

    def in_run_tree(self, root: Path, *, original: Original) -> "Remembered":
        return replace(self, suite=self.suite.in_run_tree(root, original=original))

    def without_cache(self) -> "Remembered":
        return self

    def with_timeout(self, timeout_s: float) -> "Remembered":
        return self

    def with_test_limit(self, seconds: float | None) -> "Remembered":
        return self

    def with_tracing(self) -> "Remembered":
        return self

    def with_sandbox(self, sandbox: Sandbox) -> "Remembered":
        return replace(self, suite=self.suite.with_sandbox(sandbox))

    def build_access(self, *, locked: tuple[Path, ...] = (), tests_too: bool = False) -> Access:
        return self.suite.build_access(locked=locked, tests_too=tests_too)


KNOWN: dict[str, SuiteRun] = {}
"""What files came to in any test of this process."""


@dataclass(frozen=True, kw_only=True)
class History:
    """A project whose cycles have landed, and what an audit of it says."""

    project: Project
    seen: list[Event] = field(default_factory=list)

    def copy(self, folder: Path) -> "History":
        """The same in another folder, to be changed."""
        return History(project=self.project.copy(folder))

    def audit(self, revisions: str = "HEAD", *, suite: Suite | None = None) -> tuple[AuditedHandoff, ...]:
        """What an audit says."""
        known: Suite = Remembered(suite=self.project.suite, known=KNOWN)
        auditor = Auditor(
            repository=self.project.repository,
            suite=lambda: suite or known,
            project=self.project.folder,
            emit=self.seen.append,
        )
        return auditor.run(revisions)

    def wrong(self, revisions: str = "HEAD") -> list[tuple[str, str, str]]:
        """Phase, commit's subject and claim of all that does not hold."""
        return [
            (each.phase, self.project.git("log", "-1", "--format=%s", each.commit).partition(":")[0], claim.name)
            for each in self.audit(revisions)
            for claim in each.failed
        ]

    def runs(self) -> list[str]:
        """What tests were run for."""
        return [event.purpose for event in self.seen if isinstance(event, SuiteFinished)]

    def commit(self, prefix: str) -> str:
        """The newest commit whose subject begins so."""
        return self.project.git("log", "-1", f"--grep=^{prefix}:", "--format=%H")

    def commit_on(self, branch: str, prefix: str) -> str:
        """The same of another branch than the present one."""
        return self.project.git("log", "-1", f"--grep=^{prefix}:", "--format=%H", branch)

    def lines(self, prefix: str) -> list[Fields]:
        """The note on that commit."""
        told = self.project.git("notes", f"--ref={NOTES}", "show", self.commit(prefix))
        return [json.loads(line) for line in told.splitlines()]

    def write(self, prefix: str, *lines: Fields | str) -> None:
        """Another note on that commit."""
        told = "".join(f"{line if isinstance(line, str) else _compact(line)}\n" for line in lines)
        blob = self.project.repository.git("hash-object", ("-w", "--stdin"), stdin=told.encode()).strip()
        self.project.git("notes", f"--ref={NOTES}", "add", "-f", "-C", blob, self.commit(prefix))

    def forge(self, prefix: str, edit: Callable[[Fields], object], *, line: int = 0) -> None:
        """Edit one line of the note on that commit."""
        lines = self.lines(prefix)
        edit(lines[line])
        self.write(prefix, *lines)


def _compact(line: Fields) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def landed(project: Project) -> History:
    """RED, GREEN and REFACTOR of one item, each with a commit."""
    carry_out(project, item(), red(), green(), TIDIES)
    return History(project=project)


def carry_out(project: Project, work: WorkItem, *turns: object, **policy: object) -> str:
    """One cycle; how it ended."""
    context = project.context(ScriptedModel(turns))  # type: ignore[arg-type]
    context = replace(context, policy=replace(context.policy, **policy))  # type: ignore[arg-type]
    context.workplace.carries = context.policy.carries_changes
    return Cycle(work, project.start(work.number), context=context, save=lambda _: None).run().how
