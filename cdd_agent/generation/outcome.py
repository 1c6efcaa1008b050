"""What became of the nodes and subgraphs of a planning graph. Pure.

All numbers of the report, the README and the checkpoint come from these records.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cdd_agent.tickets.graph import ImportCycle, NodeId
from cdd_agent.work.state import Ground, Status

NodeStatus: TypeAlias = Literal["pending", "in_progress", "passed", "failed", "skipped"]
"""The words of the checkpoint; a step of a run that is completed is a node that passed."""
NODE_STATUSES: Mapping[Status, NodeStatus] = {
    Status.PENDING: "pending",
    Status.IN_PROGRESS: "in_progress",
    Status.COMPLETED: "passed",
    Status.FAILED: "failed",
    Status.SKIPPED: "skipped",
}
"""Status of a step -> status of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutcome:
    """What became of one leaf."""

    id: NodeId
    title: str
    """The step's title, such as ``stats.descriptive.calculate_mean``."""
    status: NodeStatus
    number: int = 0
    """The step's number."""
    text_sha256: str = ""
    """The digest of the step's text."""
    timestamp: str = ""
    """When it ended, in ISO form; empty if it has not."""
    passed: int = 0
    failed: int = 0
    """Tests of the node, in their last run."""
    flaky: int = 0
    """Tests that failed once and passed when they ran again."""
    rounds: int = 0
    """Attempts after the first one."""
    refused: int = 0
    """Attempts whose code was refused."""
    duration_s: float = 0
    reason: str = ""
    """Why it failed or was skipped."""
    root_cause: str = ""
    advice: str = ""
    """What to do about it."""
    unproved: str = ""
    """Why nothing proves it although it passed."""
    coverage: float | None = None
    """Percent of its lines that the tests run; None if not measured."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """Phase -> commit id."""

    @property
    def tests(self) -> int:
        """The number of its tests."""
        return self.passed + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphOutcome:
    """What became of the subgraphs that land together."""

    id: str
    """The id, or the ids joined."""
    name: str
    nodes: tuple[NodeOutcome, ...]
    landed: str = ""
    """The id of the merge commit; empty if it has not landed."""
    is_proved: bool = False
    tag: str = ""
    paths: int = 0
    """Integration tests, one per path from an entry to an exit node."""
    paths_passed: int = 0

    def count(self, status: NodeStatus) -> int:
        """Return the number of nodes with a status."""
        return sum(node.status == status for node in self.nodes)

    @property
    def proved(self) -> int:
        """The number of nodes that passed and are proved."""
        if not self.is_proved:
            return 0
        return sum(node.status == "passed" and not node.unproved for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The repository was installed in a new environment, and each of its modules can be imported there."""

    modules: int
    tests: int
    passed: int
    """Tests that passed in that environment."""
    coverage: Mapping[tuple[str, str], float] = field(default_factory=dict, repr=False)
    """Path and qualified name of a function or class -> percent of its lines that the tests run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInstalled:
    """The repository cannot be installed, imported, or its tests do not run, because of what is in it."""

    act: Literal["install", "import", "test"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotVerified:
    """Whether it can be installed is unknown, because something outside of it is missing."""

    reason: str


InstallationCheck: TypeAlias = Installed | NotInstalled | NotVerified


@dataclass(frozen=True, slots=True, kw_only=True)
class Localization:
    """The questions of the agents about the code."""

    answers: Mapping[str, int] = field(default_factory=dict)
    """Engine -> questions that it has answered."""
    symbol_ms: float | None = None
    """The median time in which a symbol was shown; None: none was asked for."""
    search_ms: float | None = None
    """That of a search in the graph."""
    queries: int = 0
    """The questions in debugging attempts."""
    rounds: int = 0
    """The attempts with a question."""


Edge: TypeAlias = tuple[NodeId, NodeId]
"""A node, and one that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """The dependencies that the graph plans between nodes that passed, compared with those of the code."""

    confirmed: tuple[Edge, ...] = ()
    """Planned, and in the code."""
    entered: tuple[Edge, ...] = ()
    """Planned and not visible in the code, but every test that enters the first node enters the second one, too."""
    missing: tuple[Edge, ...] = ()
    """Planned, and not in the code."""
    unknown: tuple[Edge, ...] = ()
    """Planned; the code has calls that could be meant, and only a run shows their targets."""
    extra: Mapping[Edge, str] = field(default_factory=dict)
    """Not planned -> its place in the code, as path and line."""
    unused: Mapping[NodeId, str] = field(default_factory=dict)
    """Node that other nodes or nothing outside should need, and no code uses -> its place."""
    actual: Mapping[NodeId, tuple[NodeId, ...]] = field(default_factory=dict)
    """Node that passed -> all nodes that its code uses."""

    @property
    def planned(self) -> int:
        """The number of planned dependencies."""
        return len(self.confirmed) + len(self.entered) + len(self.missing) + len(self.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOutcome:
    """The result of a generation so far."""

    package: str
    subgraphs: tuple[SubgraphOutcome, ...]
    """In the order in which they land."""
    generated_at: str = ""
    """In ISO form."""
    graph_path: str = "docs/rpg.json"
    output: str = ""
    """The name of the folder."""
    command: str = ""
    """What to type to go on."""
    duration_s: float = 0
    model: str = ""
    given_tests: tuple[int, int] | None = None
    """Of the tests that the user has given, those that pass and all; None if cdd wrote the tests."""
    regressions: int = 0
    """Attempts that made tests fail which had passed; each was reverted."""
    diagnoses: Mapping[Ground, int] = field(default_factory=dict)
    """What diagnoses of failing tests were based on -> how many."""
    dependencies: Dependencies | None = None
    """None: not compared."""
    localization: Localization = field(default_factory=Localization)
    circular_imports: tuple[ImportCycle, ...] = ()
    missing_packages: tuple[str, ...] = ()
    """Packages that the code imports, and that are not installed or not listed in the graph."""
    installation: InstallationCheck = NotVerified(reason="The generation has not ended.")
    warnings: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    """The lines of ``git log --oneline``."""

    @property
    def nodes(self) -> Iterator[NodeOutcome]:
        """All nodes, in the order in which they land."""
        return (node for subgraph in self.subgraphs for node in subgraph.nodes)

    @property
    def counts(self) -> Counter[NodeStatus]:
        """Status -> number of nodes."""
        return Counter(node.status for node in self.nodes)

    @property
    def proved(self) -> int:
        """The number of nodes that passed and are proved."""
        return sum(subgraph.proved for subgraph in self.subgraphs)
