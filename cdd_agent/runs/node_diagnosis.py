"""Why the tests of a node fail: rules say it, else the results of further examples, else votes, else a person.

Only rules are applied to the first failure: most failures are gone at the next attempt, and a model that is asked costs
more than that. If the same failure stands after two attempts, and again after four, the others are asked. Whatever they
answer, only a gate lets a change land.
"""

import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from cdd_agent.agent.loop import run_agent
from cdd_agent.errors import BudgetSpent, ModelError, TurnMissing, UsageError, format_count
from cdd_agent.events import Notice
from cdd_agent.evidence.clean_copy import CheckRequest, find_layout, list_product_changes
from cdd_agent.evidence.examiner import LEAST, Examples
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.generation.diagnosis import Facts, diagnose
from cdd_agent.generation.installation import ask_environment
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.generation.requirements import Environment, list_required
from cdd_agent.generation.traceability import list_failures
from cdd_agent.generation.votes import Ballot, Cut, FailureEvidence, identify_symptom, read_vote
from cdd_agent.model.conversation import Conversation, Marks, RoleModel
from cdd_agent.runs.node_localization import NodeLocalization
from cdd_agent.storage import load_record, write_atomic
from cdd_agent.tdd.context import Context, Phase, SuiteTask, WorkItem
from cdd_agent.tdd.examination import Examination
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tdd.phase_task import list_attempts
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import summarize_attempt
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from cdd_agent.tickets.graph import Node
from cdd_agent.untrusted.text import clean, fence, shorten
from cdd_agent.work.state import Cause, Diagnosis, Ground, StepExecution
from cdd_agent.work.wording import explain
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.codec import ReportError, load
from pytest_tdd_agent.report import SuiteReport, list_failing

AGENT = "voter"
_PROMPT = Path(__file__).parent / "prompts" / "vote.md"
_ASKED_AFTER = (2, 4)
"""Attempts with the same failure after which others than the rules are asked."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?")
_MORE_RUNS = 2
"""Runs of the failed tests before others are asked."""
_SHOWN = 200
"""Characters of the failure of an example."""
_MOST_BALLOT_BYTES = 1_000_000
_CHOICES: tuple[tuple[Cause, str], ...] = (
    ("unknown", "leave it: this part fails, and the others go on"),
    ("code", "the code: the next attempt corrects it"),
    ("test", "the test: the tests are written anew"),
    ("environment", "the environment: this part is skipped"),
)
_ADVICE: dict[Cause, str] = {
    "code": "Correct the code: compare it with the docstring, not only with the tests.",
    "test": "Derive the tests from the docstring and the signature anew, at least as many.",
    "environment": "See what the failing tests need, and provide it.",
}


class _BallotFile(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = 1
    ballots: dict[str, Ballot] = {}
    """Name of a symptom -> votes."""


@dataclass(frozen=True, kw_only=True)
class NodeDiagnosis:
    """Finds out why the tests of one node fail."""

    plan: GenerationPlan
    node: Node
    item: WorkItem
    phase: Phase
    context: Context
    localization: NodeLocalization
    """Of GREEN's faults."""
    read_step: Callable[[], StepExecution]
    """Returns the step as it is saved: without the attempt that is judged."""

    def find(self, report: SuiteReport, rerun: SuiteReport | None) -> Diagnosis | None:
        """Return why the tests of a closed attempt fail; None if there is nothing to say."""
        python, required = find_python(self.context.suite), list_required(self.plan.graph)
        modules = (module.partition(".")[0] for module in self.plan.layout.modules)
        environment = Environment()
        if any(failure.kind == "missing_module" for _, failure in list_failures(report)):
            with tempfile.TemporaryDirectory(prefix="cdd-environment-") as name:
                environment = ask_environment(python, sandbox=self.context.suite.sandbox, folder=Path(name).resolve())
        facts = Facts(
            report=report,
            rerun=rerun,
            own=frozenset({"tests", "test", "conftest", *modules}),
            environment=environment,
            required=required,
            install=f"{shlex.quote(str(python))} -m pip install",
        )
        found = diagnose(facts, judges=(self._ask_others,) if self.phase == "green" else ())
        if found.kind == "environment" and self.phase == "red" and not required:
            # Nothing but these tests needs the package.
            return replace(found, kind="test", advice="Write the tests without it.")
        return None if found.kind == "unknown" and found.by == "rule" else found

    def _ask_others(self, facts: Facts) -> Diagnosis | None:
        """Return what examples, votes or a person say; None if it is too early to ask, or nobody can be asked."""
        step, report = self.read_step(), facts.report
        varying = _list_varying(report, facts.rerun)
        alike, last = self._count_alike(step, report, varying=varying)
        if alike < _ASKED_AFTER[0] or not self._is_about_own_tests(step, report):
            return None
        if alike not in _ASKED_AFTER:
            return last if last is not None and last.by != "rule" else None
        if step.times_sent_back >= self.context.policy.max_returns:
            return None  # no answer could bring other tests
        if (flaky := self._run_again(facts)) is not None:
            return flaky
        inquiry = _Inquiry(diagnosis=self, step=step, report=report, varying=varying)
        # Examples can be wrong too, so what they say once is left to the votes if the failure stays.
        found = inquiry.judge_by_examples() if alike == _ASKED_AFTER[0] else None
        return found or inquiry.judge_by_votes()

    def _run_again(self, facts: Facts) -> Diagnosis | None:
        """Return ``flaky`` if a failed test passes when it runs again, which costs less than a question."""
        before = self.context.snapshots.take_unsaved()
        for _ in range(_MORE_RUNS):
            targets = list_failing(facts.report)
            task = SuiteTask(
                context=self.context, purpose="failed tests again", targets=targets, before=before, is_anew=True
            )
            again = task.run().report
            found = diagnose(replace(facts, rerun=again)) if again is not None else None
            if found is not None and found.kind == "flaky":
                return found
        return None

    def _count_alike(
        self, step: StepExecution, report: SuiteReport, *, varying: frozenset[str]
    ) -> tuple[int, Diagnosis | None]:
        """Return how many attempts in a row fail in the same way, and the diagnosis of the one before this."""
        earlier, root = list_attempts("green", step), self.context.records.folder
        symptoms, alike = _list_symptoms(report, varying), 1
        for attempt in reversed(earlier):
            before = load_report(attempt, root=root)
            if not symptoms or before is None or _list_symptoms(before, varying) != symptoms:
                break
            alike += 1
        return alike, earlier[-1].diagnosis if earlier else None

    def _is_about_own_tests(self, step: StepExecution, report: SuiteReport) -> bool:
        """Return whether only tests that RED has added fail, and the error is not that of an import."""
        path, before = self.plan.find_test_path(self.node), set[str]()
        if step.baseline is not None:
            with suppress(ReportError):
                before.update(list_failing(load(self.context.records.folder / step.baseline)))
        failing = list_failing(report)
        is_own = all(each in before and each.partition("::")[0] == path for each in failing)
        return is_own and not report.collect_errors


@dataclass(frozen=True, kw_only=True)
class _Inquiry:
    """The questions about one failure that stays."""

    diagnosis: NodeDiagnosis
    step: StepExecution
    report: SuiteReport
    varying: frozenset[str]

    @property
    def _context(self) -> Context:
        return self.diagnosis.context

    @property
    def _recovery(self) -> StepRecovery:
        return StepRecovery(self.diagnosis.item.ticket, self.step, context=self._context)

    @cached_property
    def _examples(self) -> Examples | None:
        """Further examples with their results on the present code."""
        context, item, red = self._context, self.diagnosis.item, self.step.commits.get("red")
        if red is None:
            return None
        tree, limit_s = context.workplace.tree, context.policy.evidence_timeout_s
        green, layout = context.snapshots.take_unsaved().commit, find_layout(tree, context.suite)
        request = CheckRequest(
            targets=list_failing(self.report),
            changes=list_product_changes(tree, layout=layout, red=red, green=green),
            tests={},
            stated=self._stated,
            red=red,
            green=green,
            baseline=self.report,
        )
        path = self._recovery.report_path("cause-examples")
        with closing(TimedRuns(repository=tree, suite=context.suite, limit_s=limit_s, emit=context.emit)) as runs:
            return Examination(item=item, context=context, path=path).try_blind_examples(request, runs=runs)

    @cached_property
    def _stated(self) -> str:
        return self.diagnosis.plan.describe(self.diagnosis.node)

    @cached_property
    def _evidence(self) -> FailureEvidence:
        plan, node, workspace = self.diagnosis.plan, self.diagnosis.node, self._context.workspace
        path = plan.find_test_path(node)
        failing = {each.partition("[")[0].rpartition("::")[2] for each in list_failing(self.report)}
        others = Examples(source=read_present(path, workspace), listed=()).extract(failing)
        test = re.sub(r"\n{4,}", "\n\n\n", others)
        files = {each: read_present(each, workspace) for each in plan.list_files(node)}
        return FailureEvidence(
            stated=self._stated,
            test=f"# {path}\n{test}",
            code="\n\n".join(f"# {each}\n{text}" for each, text in files.items()),
            failure=format_failures(self.report),
            outcomes=_format_outcomes(self._examples) if self._examples is not None else "",
        )

    def judge_by_examples(self) -> Diagnosis | None:
        """Return the cause if the further examples are clear about it."""
        if self._examples is None:
            return None
        passing, failing = self._examples.select("passes"), self._examples.select("fails")
        count = format_count(len(passing) + len(failing), "further example")
        if failing:
            shown = shorten(clean(f"{failing[0].name}: {explain(failing[0].why)}"), _SHOWN)
            why = f"The code fails {len(failing)} of {count} that follow from its docstring, such as {shown}."
            return _make("code", why, by="examples")
        if len(passing) < LEAST:
            return None
        return _make("test", f"The code passes {count} that follow from its docstring.", by="examples")

    def judge_by_votes(self) -> Diagnosis | None:
        """Return the cause by majority, else by a person, else ``unknown``; None if no model can be asked."""
        path, key = self._recovery.report_path("votes"), self._key
        ballots = load_record(path, empty=_BallotFile(), limit_bytes=_MOST_BALLOT_BYTES).ballots
        ballot = ballots.get(key, Ballot())
        try:
            while (cut := ballot.next_cut) is not None:
                ballot = ballot.add(read_vote(cut, self._ask(cut, number=len(ballot.votes) + 1)))
                # Saved one by one, so that a run that is killed does not ask again.
                write_atomic(path, msgspec.json.encode(_BallotFile(ballots={**ballots, key: ballot})))
        except TurnMissing:
            return None
        except (ModelError, BudgetSpent) as error:
            self._context.emit(Notice(text=f"No vote on the failure: {error.happened}"))
            return None
        if ballot.majority is not None:
            count = f"{ballot.counts[ballot.majority]} of {format_count(len(ballot.votes), 'vote')}"
            why = f"{count} say that the cause is the {ballot.majority}."
            return _make(ballot.majority, why, by="votes", ballot=ballot)
        exported = self._export(ballot)
        if ballot.person is None and self._context.choose is not None:
            ballot = msgspec.structs.replace(ballot, person=self._ask_person(ballot, exported))
            write_atomic(path, msgspec.json.encode(_BallotFile(ballots={**ballots, key: ballot})))
        if ballot.person is None:
            why = f"Nobody could say why the tests fail: {ballot.describe()}. The debug context is {exported}."
            return _make("unknown", why, by="votes", ballot=ballot)
        word = "to leave it" if ballot.person == "unknown" else f"that the cause is the {ballot.person}"
        why = f"A person decided {word}: {ballot.describe()}."
        return _make(ballot.person, why, by="person", ballot=ballot)

    @cached_property
    def _key(self) -> str:
        symptoms = _list_symptoms(self.report, self.varying)
        return identify_symptom(symptoms, code=self._evidence.code, test=self._evidence.test)

    def _ask(self, cut: Cut, *, number: int) -> str:
        context, item = self._context, self.diagnosis.item
        marks = Marks(context.token)
        role = _PROMPT.read_text(encoding="utf-8").strip()
        work = f"Work: {AGENT} {item.ticket} {item.title} vote {number}"
        # Each is a new conversation: nobody sees how the others have voted.
        conversation = Conversation(f"{role}\n\n{marks.rule}\n\n{work}", token=marks.token)
        conversation.say(self._evidence.format_question(cut, marks=marks))
        budget = replace(context.policy.budget, max_turns=1)
        model = RoleModel(context.model, is_optional=True)
        return run_agent(conversation, (), model=model, budget=budget, emit=context.emit, agent=AGENT).text

    def _ask_person(self, ballot: Ballot, exported: str) -> Cause:
        assert self._context.choose is not None
        failing = ", ".join(map(clean, list_failing(self.report)))
        votes = "".join(f"\n  {vote}" for vote in ballot.votes)
        question = (
            f"The same tests of {clean(self.diagnosis.item.title)} fail again: {failing}\n"
            f"The votes on the cause have no majority:{votes}\nThe debug context is {exported}. Which part is wrong?"
        )
        return _CHOICES[self._context.choose(question, tuple(text for _, text in _CHOICES))][0]

    def _export(self, ballot: Ballot) -> str:
        """Write the debug context for a person, and return its path, or why there is none."""
        parts = ["\n".join(f"- {vote}" for vote in ballot.votes), "The planning graph:", fence(self._stated)]
        if self._examples is not None:
            parts += ["Further examples:", fence(self._evidence.outcomes)]
        try:
            path = self.diagnosis.localization.export_debug_context(self.report, votes="\n\n".join(parts))
        except UsageError as error:  # a file of the node cannot be shown
            return f"missing: {error.happened.rstrip('.')}"
        project = self._context.project
        return str(path.relative_to(project) if path.is_relative_to(project) else path)


def _list_varying(report: SuiteReport, rerun: SuiteReport | None) -> frozenset[str]:
    """Return the tests whose message differs between two runs of the same files, such as by a random number."""
    again = dict(list_failures(rerun)) if rerun is not None else {}
    return frozenset(
        nodeid for nodeid, failure in list_failures(report) if again.get(nodeid, failure).message != failure.message
    )


def _list_symptoms(report: SuiteReport, varying: Collection[str]) -> frozenset[tuple[str, ...]]:
    """Return the symptoms as in ``Trial``, without numbers in messages of the tests in ``varying``."""
    symptoms = summarize_attempt((), report).symptoms
    return frozenset(
        (nodeid, *rest, _NUMBER.sub("", message)) if nodeid in varying else (nodeid, *rest, message)
        for nodeid, *rest, message in symptoms
    )


def _make(cause: Cause, why: str, *, by: Ground, ballot: Ballot | None = None) -> Diagnosis:
    votes = () if ballot is None else ballot.votes
    return Diagnosis(kind=cause, why=why, advice=_ADVICE.get(cause, ""), by=by, votes=votes)


def _format_outcomes(examples: Examples) -> str:
    rows = [explain(each.clause) for each in examples.listed]
    return "\n".join((*rows, "", examples.extract([each.name for each in examples.listed])))


def read_present(path: str, workspace: Workspace) -> str:
    """Return a file as it is; empty if it is missing or no text."""
    with suppress(UsageError, OSError):
        return workspace.read_text(path).text
    return ""


def find_python(suite: Suite) -> Path:
    """Return the interpreter that runs the tests."""
    return suite.interpreter.path if isinstance(suite, PytestSuite) else Path(sys.executable)
