"""The results of a generation: what became of its nodes, and the files that say so and make the code a package."""

import ast
import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias, get_args

from cdd_agent.errors import UsageError
from cdd_agent.events import SymbolAnswered
from cdd_agent.generation.assembly import Assembly
from cdd_agent.generation.dependencies import compare_dependencies
from cdd_agent.generation.generation_report import CHECKPOINT, write_checkpoint
from cdd_agent.generation.installation import InstallationTrial, ask_environment, download_wheels
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.localize import LogEntry, load_entries
from cdd_agent.generation.outcome import (
    NODE_STATUSES,
    Dependencies,
    GenerationOutcome,
    InstallationCheck,
    Installed,
    Localization,
    NodeOutcome,
    NotVerified,
    SubgraphOutcome,
)
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.generation.traceability import TracedResults
from cdd_agent.git.repository import EXECUTABLE, CommitId, Repository, has_ref
from cdd_agent.runs.graph_nodes import list_passing_paths
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.tdd.step import load_report
from cdd_agent.tickets.graph import Group, NodeId, find_import_cycles
from cdd_agent.untrusted.python_source import parse
from cdd_agent.work.journal import journal_path, read_timed
from cdd_agent.work.state import AttemptRecord, Ground, RunState, Status, StepExecution
from cdd_agent.work.wording import format_reason
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import SuiteReport, list_failing

Coverage: TypeAlias = Mapping[tuple[str, str], float]
"""As in ``Installed``."""
TAG = "phase4-subgraph-"
"""The beginning of the tag of a subgraph that is complete and proved."""
NOTHING_TO_WRITE = "nothing to write: the skeleton has all of it"
"""Why a node has passed without an attempt."""


def make_tag(subgraph: str) -> str:
    """Return the tag of a subgraph, whose id can have characters that git refuses in names.

    >>> make_tag("data_loading"), make_tag("Daten laden")
    ('phase4-subgraph-data_loading', 'phase4-subgraph-Daten-laden-1647')
    """
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", subgraph).strip("-")
    digest = hashlib.sha256(subgraph.encode("utf-8", "surrogateescape")).hexdigest()[:4]
    return f"{TAG}{subgraph}" if words == subgraph else f"{TAG}{words}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """The interpreter, sandbox and user of a trial of the installation."""

    python: Path
    """The interpreter with which the tests run."""
    sandbox: Sandbox
    variables: Mapping[str, str]
    """Those of the user, which say where packages come from."""
    confirm: Callable[[tuple[str, ...]], bool]
    """Asks whether packages that the graph lists may be downloaded."""


@dataclass(frozen=True, kw_only=True)
class GenerationResults:
    """The results so far, read from the state, the reports and the repository."""

    plan: GenerationPlan
    state: RunState
    home: Repository
    records: Path
    """The folder of the records, to which the paths of reports are relative."""
    resume: str
    """The command that continues the generation."""
    tests: TracedResults | None = None
    """The results of the tests that the user gives, if the repository has such."""

    def describe(self, *, now: str, installation: InstallationCheck | None = None) -> GenerationOutcome:
        """Return what became of every node and subgraph."""
        layout = self.plan.layout
        coverage = installation.coverage if isinstance(installation, Installed) else {}
        return GenerationOutcome(
            package=layout.package,
            subgraphs=tuple(self._describe_group(group, coverage) for group in self.plan.groups),
            generated_at=now,
            output=self.home.root.name,
            command=self.resume,
            duration_s=60 * self.state.usage.minutes,
            model=self.state.model or "",
            given_tests=self.tests.count() if self.tests is not None else None,
            regressions=self._count_regressions(),
            diagnoses=self._count_diagnoses(),
            missing_packages=self._list_missing(),
            circular_imports=find_import_cycles(self.plan.graph, layout.module_of),
            installation=installation or NotVerified(reason="No node has passed."),
            log=tuple(self.home.git("log", ("--first-parent", "--format=%h %s")).splitlines()),
        )

    def _describe_group(self, group: Group, coverage: Coverage) -> SubgraphOutcome:
        by_title = {step.title: step for step in self.state.step_executions.values()}
        titles = [self.plan.layout.title_of(self.plan.graph.by_id[name]) for name in group.nodes]
        tags = [tag for tag in map(make_tag, group.ids) if self._has_landed(f"refs/tags/{tag}")]
        nodes = tuple(self._describe_node(by_title[title], coverage) for title in titles if title in by_title)
        # Given tests prove each node by itself, and what the skeleton completes needs no proof.
        is_tagless = self.tests is not None or all(node.reason == NOTHING_TO_WRITE for node in nodes)
        return SubgraphOutcome(
            id=group.name,
            name=group.name,
            nodes=nodes,
            landed=self.find_landing(group),
            is_proved=is_tagless or len(tags) == len(group.ids),
            tag=" ".join(tags),
            paths=0 if self.plan.has_user_tests else len(self.plan.list_paths(group)),
            paths_passed=self._count_paths(group),
        )

    def _has_landed(self, ref: str) -> bool:
        """Return whether the user's branch contains the commit of a ref; one that was taken back keeps its tag."""
        return has_ref(self.home.location, ref) and self.home.is_ancestor(ref, of="HEAD")

    def _count_paths(self, group: Group) -> int:
        """Return how many paths pass in the last run of the integration tests."""
        step = self.plan.find_integration(self.state, group)
        judged = [attempt for attempt in step.attempts if attempt.report] if step is not None else []
        report = load_report(judged[-1], root=self.records) if judged else None
        return 0 if report is None else len(list_passing_paths(report, self.plan.find_integration_path(group)))

    def find_landing(self, group: Group) -> str:
        """Return the commit with which a subgraph landed; empty if it has not."""
        form = "--format=%H%x00%(trailers:key=Ticket,valueonly,separator=)%x00%(trailers:key=Landing,valueonly)"
        for line in self.home.git("log", ("--first-parent", "-z", form)).split("\0\0"):
            commit, _, rest = line.strip("\0\n").partition("\0")
            if [part.strip() for part in rest.split("\0")] == [self.plan.slug, group.name]:
                return commit
        return ""

    def _describe_node(self, step: StepExecution, coverage: Coverage) -> NodeOutcome:
        node, is_passed = self.plan.by_title[step.title], step.status == Status.COMPLETED
        if self.tests is not None:
            passing, failing_tests = self.tests.list_entering(step.title)
            tests, failing = (*passing, *failing_tests), len(failing_tests)
        else:
            tests = tuple(self.list_tests(step))
            failing = self._count_failing(step, tests) if step.status != Status.COMPLETED else 0
        tried = [attempt for attempt in _list_attempts(step) if attempt.phase == "green"]
        reasons = tried[-1].reasons if tried and step.status == Status.FAILED else ()
        cause = step.attempts[-1].diagnosis if step.attempts and step.status != Status.COMPLETED else None
        is_written = bool(step.commits) or not is_passed
        return NodeOutcome(
            id=node.id,
            title=step.title,
            status=NODE_STATUSES[step.status],
            number=step.step_number,
            text_sha256=step.text_sha256,
            timestamp=step.completed_at or "",
            passed=len(tests) - failing,
            failed=failing,
            rounds=max(0, len(tried) - 1),
            refused=sum(not attempt.is_open for attempt in tried),
            duration_s=60 * step.usage.minutes,
            reason=step.error or ("" if is_written else NOTHING_TO_WRITE),
            unproved=self.tests.explain_doubt(step.title) if self.tests and is_passed and is_written else "",
            flaky=len(self._list_flaky().intersection(tests) | _list_flaky_targets(step)),
            coverage=coverage.get((self.plan.layout.map_path(node.file_path), node.name)),
            root_cause=cause.why if cause is not None else "".join(map(format_reason, reasons[:1])),
            advice=cause.advice if cause is not None else "",
            commits=dict(step.commits) if step.status == Status.COMPLETED else {},
        )

    def _list_attempts(self) -> Iterator[AttemptRecord]:
        for step in self.state.step_executions.values():
            yield from _list_attempts(step)

    def _list_flaky(self) -> set[str]:
        """Return the tests that failed and passed when they ran again, without parameters."""
        findings = (found for each in self._list_attempts() for found in each.evidence if found.case == "flaky_tests")
        names = (found.parts["tests"] for found in findings)
        return {strip_parameters(str(name)) for each in names if isinstance(each, Sequence) for name in each}

    def _count_regressions(self) -> int:
        return sum(any(reason.code == "broke_others" for reason in each.reasons) for each in self._list_attempts())

    def _count_diagnoses(self) -> dict[Ground, int]:
        found = Counter(each.diagnosis.by for each in self._list_attempts() if each.diagnosis is not None)
        return {ground: found[ground] for ground in get_args(Ground) if found[ground]}

    def _list_missing(self) -> tuple[str, ...]:
        """Return the missing packages that caused nodes to be skipped."""
        skipped = self.state.numbers(Status.SKIPPED)
        last = (self.state.execution(number).attempts[-1:] for number in skipped)
        causes = (each.diagnosis for attempts in last for each in attempts if each.diagnosis is not None)
        return tuple(dict.fromkeys(name for cause in causes for name in cause.packages))

    def list_tests(self, step: StepExecution) -> Iterator[str]:
        """Yield the tests that the commits of RED added for a node, without parameters."""
        path = self.plan.find_test_path(self.plan.by_title[step.title])
        for each in step.list_landings():
            if commit := each.commits.get("red"):
                before = self._read_test_names(f"{commit}^", path)
                names = self._read_test_names(commit, path)
                yield from (f"{path}::{name}" for name in names if name not in before)

    def _read_test_names(self, commit: str, path: str) -> tuple[str, ...]:
        """Return the tests in a file of a commit, as node ids have them after the file; none if it is not there."""
        entry = self.home.objects.find_entry(commit, path) if self.home.objects.read(commit) is not None else None
        tree = parse(self.home.objects.require(entry.id).text) if entry is not None else None
        return tuple(_list_test_names(tree)) if isinstance(tree, ast.Module) else ()

    def _count_failing(self, step: StepExecution, tests: tuple[str, ...]) -> int:
        judged = [attempt for attempt in step.attempts if attempt.phase == "green" and attempt.report]
        report = load_report(judged[-1], root=self.records) if judged else None
        if report is None:
            return len(tests)
        return len({strip_parameters(nodeid) for nodeid in list_failing(report)}.intersection(tests))


def _list_attempts(step: StepExecution) -> Iterator[AttemptRecord]:
    """Yield the attempts of all landings, newest first, with those that were taken back because a test was wrong."""
    for each in step.list_landings():
        yield from (*each.returned, *each.attempts)


def _list_flaky_targets(step: StepExecution) -> set[str]:
    """Return the flaky tests of a node, which RED has written anew since."""
    reasons = (reason for attempt in _list_attempts(step) for reason in attempt.reasons)
    return {strip_parameters(each.nodeid) for each in reasons if each.code == "flaky_target" and each.nodeid}


@dataclass(frozen=True, kw_only=True)
class RepositoryFiles:
    """Writes the files around the code of a generation."""

    results: GenerationResults
    installer: Installer
    reports: Path
    """The folder of the reports of the run, and of the logs of its agents' questions."""
    tip: CommitId
    """The commit with the code."""
    report: SuiteReport | None
    """Of all tests on it."""
    now: str

    def is_needed(self) -> bool:
        """Return whether the repository lacks the files, or has them of other results."""
        home = self.results.home
        known = home.objects.find_entry(self.tip, CHECKPOINT)
        outcome = self.results.describe(now=self.now)
        return known is None or home.objects.require(known.id).data != write_checkpoint(outcome)

    def write(self) -> Mapping[str, bytes]:
        """Try the installation, and return path -> content of all files."""
        with tempfile.TemporaryDirectory(prefix="cdd-assembly-") as name:
            folder = Path(name).resolve()
            environment = ask_environment(self.installer.python, sandbox=self.installer.sandbox, folder=folder)
            sources = self._read_sources()
            make = partial(
                Assembly,
                graph=self.results.plan.graph,
                layout=self.results.plan.layout,
                files=sources,
                environment=environment,
                specification=self.results.plan.specification,
                report=self.report,
            )
            first = make(outcome=self.results.describe(now=self.now))
            check = self._try_installation(first, folder=folder)
            outcome = self.results.describe(now=self.now, installation=check)
            found = self._compare(sources, exported=first.info.scripts.values())
            journal = journal_path(self.results.home.root, self.results.plan.slug)
            asked = measure_localization(self.reports, journal=journal)
            return make(outcome=replace(outcome, dependencies=found, localization=asked)).write()

    def _compare(self, sources: Mapping[str, str], *, exported: Iterable[str]) -> Dependencies:
        """Compare the dependencies of the code with those of the graph."""
        plan, tests, entering = self.results.plan, self.results.tests, dict[NodeId, Collection[str]]()
        if tests is not None:
            entering = {node.id: tests.list_entering(title)[0] for title, node in plan.by_title.items()}
        steps = self.results.state.step_executions.values()
        passed = {step.title for step in steps if step.status == Status.COMPLETED}
        return compare_dependencies(
            plan.graph,
            plan.layout,
            files=sources,
            passed=[node.id for title, node in plan.by_title.items() if title in passed],
            exported=exported,
            entering=entering,
        )

    def _read_sources(self) -> dict[str, str]:
        objects = self.results.home.objects
        files = objects.list_files(self.tip)
        return {path: objects.require(entry.id).text for path, entry in files.items() if path.startswith(f"{SOURCES}/")}

    def _try_installation(self, assembly: Assembly, *, folder: Path) -> InstallationCheck:
        copy = folder / "copy"
        self._copy_to(copy, more=assembly.write())
        installer = self.installer
        download = partial(
            download_wheels, python=installer.python, project=self.results.home.root, variables=installer.variables
        )
        trial = InstallationTrial(
            python=installer.python, sandbox=installer.sandbox, folder=folder, copy=copy, download=download
        )
        return trial.check(
            self.results.plan.layout.modules, requirements=assembly.requirements, confirm=installer.confirm
        )

    def _copy_to(self, folder: Path, *, more: Mapping[str, bytes]) -> None:
        folder.mkdir()
        inside, objects = ConfinedFolder(folder), self.results.home.objects
        for path, entry in objects.list_files(self.tip).items():
            if entry.mode in ("100644", EXECUTABLE):
                inside.write(path, objects.require(entry.id).data)
        for path, content in more.items():
            inside.write(path, content)


def measure_localization(reports: Path, *, journal: Path) -> Localization:
    """Summarize the questions about the code in the logs of nodes, in ``reports``, and in the journal of a run."""
    logs = sorted(reports.glob("*-localization.json"))
    entries = [(path, entry) for path in logs for entry in _list_queries(path)]
    answers = Counter(entry.engine for _, entry in entries if entry.has_found)
    times: dict[str, list[float]] = {}
    for _, entry in entries:
        times.setdefault(entry.query.tool, []).append(entry.took_ms)
    for event in _list_answers(journal):
        answers[event.engine] += 1
        if event.question == "definition":
            times.setdefault("FindSymbol", []).append(event.duration_ms)
    medians = {tool: median(found) for tool, found in times.items()}
    return Localization(
        answers=answers,
        symbol_ms=medians.get("FindSymbol", medians.get("ViewCode")),
        search_ms=medians.get("SearchGraph"),
        queries=len(entries),
        rounds=len({(path, entry.query.round) for path, entry in entries}),
    )


def _list_queries(path: Path) -> tuple[LogEntry, ...]:
    """Return the queries of a log; none of a damaged one, which must not keep the report from being written."""
    with suppress(UsageError):
        return load_entries(path)
    return ()


def _list_answers(journal: Path) -> Iterator[SymbolAnswered]:
    """Yield the answers about symbols in a journal; those before a damaged line count."""
    with suppress(ValueError, OSError):
        for _, event in read_timed(journal):
            if isinstance(event, SymbolAnswered):
                yield event


def _list_test_names(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _list_test_names(node, f"{prefix}{node.name}::")
