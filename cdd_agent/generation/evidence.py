"""The evidence of a finished subgraph: the checks of an open GREEN, once for all its nodes together."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from cdd_agent.evidence.clean_copy import (
    CheckRequest,
    Findings,
    find_layout,
    list_product_changes,
    read_product_sources,
    read_sources,
    refuse,
)
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.evidence.suspicious import find_suspicious_lines
from cdd_agent.generation.traceability import list_lines
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.work.finding import Finding
from pytest_tdd_agent.comparison import strip_parameters
from pytest_tdd_agent.report import Reason, SuiteReport


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNode:
    """A node that has passed its gates: its functions and its tests."""

    number: int
    definitions: tuple[tuple[str, str], ...]
    """File and qualified name of each."""
    tests: tuple[str, ...]
    """Node ids, without parameters."""
    stated: str
    """Its text in the graph."""

    @property
    def files(self) -> frozenset[str]:
        """Those of its definitions."""
        return frozenset(path for path, _ in self.definitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphEvidence:
    """The findings about the nodes of a subgraph."""

    refused: Mapping[int, tuple[Reason, ...]] = field(default_factory=dict)
    """Number of a node -> why it is refused."""
    findings: tuple[Finding, ...] = ()
    is_proved: bool = False
    """Whether all checks could be made, and none refuses a node."""


@dataclass(frozen=True, kw_only=True)
class SubgraphCheck:
    """The files before and after the nodes of a subgraph were written."""

    context: Context
    before: CommitId
    """With the stubs."""
    after: CommitId
    report: SuiteReport
    """Of all tests on ``after``."""

    def judge(self, nodes: Sequence[JudgedNode]) -> SubgraphEvidence:
        """Judge the functions of ``nodes`` by their tests: all together, and alone what that leaves open."""
        if not nodes:
            return SubgraphEvidence()
        found = self._confirm(nodes)
        refused = self._assign(found, nodes)
        if refused is None and len(nodes) > 1:
            alone = {node.number: self._confirm([node]) for node in nodes}
            refused = {number: each.reasons for number, each in alone.items() if each.reasons}
        elif refused is None:
            refused = {nodes[0].number: found.reasons}
        for node in nodes:
            if reasons := self._find_memorized(node):
                refused[node.number] = (*refused.get(node.number, ()), *reasons)
        is_verified = not (found.reasons or any(each.is_unverified for each in found.notices))
        return SubgraphEvidence(refused=refused, findings=found.notices, is_proved=is_verified and not refused)

    def _find_memorized(self, node: JudgedNode) -> tuple[Reason, ...]:
        """Return a reason if the code of a node repeats several values of one example of its tests."""
        request = self._make_request([node])
        texts = {change.path: change.new or "" for change in request.changes}
        own = {(path, line) for path, name in node.definitions for line in list_lines(texts.get(path, ""), {name})}
        found = tuple(
            each.clause
            for each in find_suspicious_lines(request)
            if each.repeats_several and (each.path, each.line) in own
        )
        return refuse("examples_only", found=found).reasons if found else ()

    def _assign(self, found: Findings, nodes: Sequence[JudgedNode]) -> dict[int, tuple[Reason, ...]] | None:
        """Return number -> reasons, if each reason is about a test of one node; else None."""
        owners = {test: node.number for node in nodes for test in node.tests}
        refused: dict[int, tuple[Reason, ...]] = {}
        for reason in found.reasons:
            number = owners.get(strip_parameters(reason.nodeid)) if reason.nodeid else None
            if number is None:
                return None
            refused[number] = (*refused.get(number, ()), reason)
        return refused

    def _confirm(self, nodes: Sequence[JudgedNode]) -> Findings:
        context = self.context
        tree, limit_s = context.workplace.tree, context.policy.evidence_timeout_s
        with closing(TimedRuns(repository=tree, suite=context.suite, limit_s=limit_s, emit=context.emit)) as runs:
            return confirm(self._make_request(nodes), runs=runs)

    def _make_request(self, nodes: Sequence[JudgedNode]) -> CheckRequest:
        repository, layout = self.context.workplace.tree, find_layout(self.context.workplace.tree, self.context.suite)
        red = self._make_red(nodes)
        own = {test for node in nodes for test in node.tests}
        targets = tuple(case.nodeid for case in self.report.tests if strip_parameters(case.nodeid) in own)
        paths = {path for node in nodes for path in node.files}
        changes = list_product_changes(repository, layout=layout, red=red, green=self.after)
        return CheckRequest(
            targets=targets,
            changes=tuple(change for change in changes if change.path in paths),
            tests=read_sources(repository, project=layout.project, tree=self.after, paths=targets),
            stated="\n".join(node.stated for node in nodes),
            red=red,
            green=self.after,
            baseline=self._make_baseline(own),
            elsewhere=lambda: read_product_sources(repository, project=layout.project, tree=red),
        )

    def _make_baseline(self, own: set[str]) -> SuiteReport:
        """Return the report without the tests of the nodes, which cannot pass before."""
        others = tuple(case for case in self.report.tests if strip_parameters(case.nodeid) not in own)
        return replace(self.report, tests=others)

    def _make_red(self, nodes: Sequence[JudgedNode]) -> str:
        """Return the tree in which the files of the nodes are as before; everything else is as after."""
        repository = self.context.workplace.tree
        find = repository.objects.find_entry
        paths = {path for node in nodes for path in node.files}
        return repository.edit_tree(self.after, {path: find(self.before, path) for path in sorted(paths)})
