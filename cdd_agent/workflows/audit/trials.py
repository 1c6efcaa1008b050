"""Which commits have to be run, and beside which, so that a handoff's claims about tests can be judged."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from cdd_agent.events import Emit
from cdd_agent.evidence.trees import entries, layout_of
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.rules.verdict import files_named
from cdd_agent.testrun.suite import Layout, Suite
from cdd_agent.workflows.audit.claim import Claim, unknown
from cdd_agent.workflows.audit.judgment import (
    Trial,
    began_red,
    of_covered_red,
    of_files,
    of_green,
    of_red,
    of_refactor,
)
from cdd_agent.workflows.audit.placement import PHASES, Chain, Handed, Standing
from cdd_agent.workflows.audit.reruns import Evidence, Reruns
from cdd_agent.workflows.audit.span import Commit, Span
from pytest_tdd_agent.report import SuiteReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the history tells of a phase."""

    repository: Repository
    span: Span
    layout: Layout

    def before(self, handed: Handed, chain: Chain) -> Commit | None:
        """The commit that a phase is compared with; None if there is none."""
        earlier = [chain.landed[phase].commit for phase in _earlier(handed.phase) if phase in chain.landed]
        if handed.standing is Standing.LATER:
            return handed.commit
        if earlier and handed.phase != "red":
            return earlier[-1]
        if handed.standing is Standing.ADOPTED and (earlier or handed.base):
            return earlier[-1] if earlier else self._commit(handed.base)
        return self._commit(handed.commit.parent)

    def _commit(self, name: str | None) -> Commit | None:
        return self.span.commits.get(CommitId(name or ""))

    def item(self, handed: Handed, chain: Chain) -> WorkItem:
        """The work item as far as note and history tell."""
        green, handoff = chain.landed.get("green"), handed.handoff
        named = (*handoff.pending_tests, *handoff.completed_tests) if handoff is not None else ()
        about = handoff.current_test if handoff is not None else None
        made = self.files(green.commit, self.before(green, chain)) if green is not None else frozenset()
        sources = (about.impl_file,) if about is not None and about.impl_file else ()
        is_test = self.layout.conventions.is_test
        is_feature = green is not None and green.commit.subject.startswith("feat:")
        return WorkItem(
            ticket=handed.ticket,
            number=handed.cycle,
            title=about.description if about is not None else "",
            goal="",
            kind="feature" if is_feature else "bug",
            phases=PHASES,
            tests=named or ((about.test_file,) if about is not None and about.test_file else ()),
            sources=(*sources, *sorted(path for path in made.difference(sources) if not is_test(path))),
        )

    def files(self, commit: Commit, before: Commit | None) -> frozenset[str]:
        """What differs between two commits, relative to the project."""
        if before is None:
            paths = list(entries(self.repository, commit.id))
        else:
            paths = [change.path for change in self.repository.changes(before.id, commit.id)]
        return frozenset(self.layout.name(path) for path in paths)

    def changed_tests(self, handed: Handed, before: Commit) -> frozenset[str]:
        """What differs of files that the note names as tests, whatever they are called."""
        handoff = handed.handoff
        if handoff is None:
            return frozenset()
        about = handoff.current_test
        tests = tuple(filter(None, (about.test_file, *handoff.pending_tests, *handoff.completed_tests)))
        named = files_named(tests, apart_from=(about.impl_file,))
        files = self.files(handed.commit, before)
        return frozenset(path for path in files if any(path == name or path.startswith(f"{name}/") for name in named))


class Trials:
    """Has tests run, and judges what they say of handoffs."""

    def __init__(self, *, repository: Repository, span: Span, suite: Callable[[], Suite], emit: Emit) -> None:
        """Nothing is run yet; ``suite`` is asked for with the first run."""
        self._repository = repository
        self._span = span
        self._suite = suite
        self._emit = emit

    @cached_property
    def _reruns(self) -> Reruns:
        return Reruns(repository=self._repository, suite=self._suite(), emit=self._emit)

    @cached_property
    def _lending(self) -> Reruns:
        return self._reruns.lending()

    @cached_property
    def _past(self) -> Past:
        layout = layout_of(self._repository, self._reruns.suite)
        return Past(repository=self._repository, span=self._span, layout=layout)

    @property
    def are_vain(self) -> bool:
        """Whether tests were to be run, and no run has come to a report."""
        return "_reruns" in self.__dict__ and self._reruns.has_tried and not self._reruns.has_run

    def began_red(self, handed: Handed, chain: Chain) -> bool:
        """Whether the tests of a GREEN failed on the commit before it."""
        return began_red(self._trial(handed, chain=chain, reruns=self._reruns, report=None))

    def claims(self, handed: Handed, chain: Chain, *, report: SuiteReport | None) -> Iterator[Claim]:
        """What the tests say of a phase that has landed; nothing of one that rests on none.

        ``report`` is the one that the gate judged by, if it is still there.
        """
        if handed.phase == "plan" or (handed.phase == "red" and handed.standing is Standing.LATER):
            return
        squashed = _squashed(handed, chain)
        if squashed:
            yield unknown("run", f"{squashed}: what it was before is not in the history any more.")
            return
        claim = self._judged(handed, chain, report=report, reruns=self._reruns)
        if claim.holds is False:
            again = self._judged(handed, chain, report=report, reruns=self._lending)
            if again.holds and self._lending.has_lent:
                claim = unknown("run", "It is so only with files that git ignores, which nobody else has.")
        yield claim
        before = self._past.before(handed, chain)
        if handed.phase != "red" and before is not None:
            now, then = self._of(handed.commit, handed), self._of(before, handed)
            yield of_files(now, then, named=self._past.changed_tests(handed, before))

    def _judged(self, handed: Handed, chain: Chain, *, report: SuiteReport | None, reruns: Reruns) -> Claim:
        """The claim about the run of one phase."""
        lay = partial(self._trial, chain=chain, reruns=reruns)
        trial = lay(handed, report=report)
        match handed.phase:
            case "red":
                return of_covered_red(trial) if handed.is_covered else of_red(trial)
            case "green":
                red = chain.landed.get("red")
                return of_green(trial, red=lay(red, report=None) if red is not None else None)
            case _:
                return of_refactor(trial)

    def _trial(self, handed: Handed, *, chain: Chain, reruns: Reruns, report: SuiteReport | None) -> Trial:
        """The phase with what its tests say, and those of the commit before it."""
        before = self._past.before(handed, chain)
        now = self._of(handed.commit, handed, reruns=reruns)
        return Trial(
            item=self._past.item(handed, chain),
            now=now,
            before=self._of(before, handed, reruns=reruns) if before is not None else None,
            files=self._past.files(handed.commit, before),
            recorded=report,
            knows_sources="green" in chain.landed,
        )

    def _of(self, commit: Commit, handed: Handed, *, reruns: Reruns | None = None) -> Evidence:
        """What the tests of a commit say, which is that of the phase or the one before it."""
        called = handed.called if commit.id == handed.commit.id else f"before {handed.called}"
        return (reruns or self._reruns).of(commit, called=called)


def _earlier(phase: Phase | None) -> tuple[Phase, ...]:
    """The phases before this one that have a commit to compare with."""
    return PHASES[1 : PHASES.index(phase)] if phase is not None else ()


def _squashed(handed: Handed, chain: Chain) -> str:
    """What to say of a phase that shares its commit with another of its cycle; empty if it has its own."""
    if handed.standing is not Standing.OWN:
        return ""
    others = (
        other.phase_name
        for other in chain.landed.values()
        if other is not handed and other.standing is Standing.OWN and other.commit.id == handed.commit.id
    )
    other = next(others, None)
    return f"It was squashed with {other} into one commit" if other is not None else ""
