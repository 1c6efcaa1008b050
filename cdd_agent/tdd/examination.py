"""The Examiner's conversation about a step, and its examples in the step's evidence.

It is asked once a step. Later attempts have to pass the same examples.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import structs

from cdd_agent.agent.loop import run_agent
from cdd_agent.errors import BudgetSpent, ModelError, TurnMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.evidence import examiner
from cdd_agent.evidence.clean_copy import CheckRequest, Findings, note
from cdd_agent.evidence.examiner import Examples
from cdd_agent.evidence.mutation import TimedRuns, TimeUp, find_obstacle
from cdd_agent.git.runner import GitError
from cdd_agent.model.conversation import Conversation, Marks, RoleModel
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Clause, Reason
from pytest_tdd_agent.wording import as_clause

AGENT = "examiner"
_PROMPT = Path(__file__).parent / "prompts" / "examiner.md"
_SECOND_LOOK = _PROMPT.with_name("second_look.md")
_BLIND = _PROMPT.with_name("blind_examples.md")
_MAX_TURNS = 3
_LIMIT_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The examination of one step."""

    item: WorkItem
    context: Context
    path: Path
    """The file of the examples."""

    def examine(self, request: CheckRequest, *, found: Findings, is_first: bool, runs: TimedRuns) -> Findings:
        """Return a refusal if a further example fails. ``is_first``: none has failed in an earlier attempt.

        The reasons of the other checks, ``found``, are all ``DOUBTS``: they stay unless enough examples pass.
        """
        policy = self.context.policy
        if not policy.max_examples or not request.targets or not runs.limit_s:
            return Findings(reasons=found.reasons)
        examined = self._try_examples(request, found=found, is_first=is_first, runs=runs)
        return self._conclude(examined, doubts=found.reasons)

    def _conclude(self, examined: Findings, *, doubts: tuple[Reason, ...]) -> Findings:
        """Return the reasons of the examples, else the ``doubts`` of other checks unless enough examples pass."""
        for notice in examined.notices:  # the note has the examples themselves
            self.context.emit(Notice(text=explain(notice)))
        examples = load_examples(self.path)
        passing = examples.select("passes") if examples is not None and not examples.problem else ()
        if examined.reasons or len(passing) < examiner.LEAST:
            return Findings(reasons=examined.reasons or doubts)
        kept = (note("examples", "not_refused", outcome="noted", doubt=as_clause(doubt)) for doubt in doubts)
        return sum(kept, start=Findings())

    def _try_examples(self, request: CheckRequest, *, found: Findings, is_first: bool, runs: TimedRuns) -> Findings:
        examples = load_examples(self.path) or Examples(source="", listed=())
        try:
            if not runs.suite.conventions.is_python:
                return self._report_problem(examples, Clause("examples_need_pytest"))
            criteria = self._list_criteria(request)
            if not examples.listed:
                told = (notice for notice in found.notices if notice.outcome != "confirmed")
                signs = [*map(explain, told), *map(explain, found.reasons)]
                examples = self._obtain_about(request, criteria=criteria, signs=signs)
            tried = examiner.try_examples(examples, request=request, runs=runs)
        except TurnMissing:
            return self._report_problem(examples, Clause("no_recorded_turn"))
        except (TimeUp, GitError, OSError) as error:
            return self._report_problem(examples, find_obstacle(error))
        except (ModelError, BudgetSpent, UsageError) as error:
            return self._report_problem(examples, error.happened.rstrip("."))
        tried, findings = examiner.judge_examples(tried, criteria=criteria, is_first=is_first)
        self._save(structs.replace(tried, problem="", doubts=found.reasons))
        return findings

    def _list_criteria(self, request: CheckRequest) -> dict[str, str]:
        return examiner.list_criteria(dict(self.item.criteria), title=self.item.title, targets=request.targets)

    def _report_problem(self, examples: Examples, why: str | Clause) -> Findings:
        problem = note("examples", "not_examined", outcome="noted", why=why)
        self._save(structs.replace(examples, problem=problem.notices[0]))
        return problem

    def answer_doubt(self, reason: str, *, request: CheckRequest) -> Findings | None:
        """Return the examples that stay although the author of the change, in ``request``, doubts them.

        If none does, the result is that of the examination without them. The Examiner looks again once. After that a
        person decides. None: nobody could decide.
        """
        examples = load_examples(self.path)
        if examples is None:
            return None
        if examples.was_doubted:
            return self._end_doubt(request) if self._ask_person(examples, reason) else None
        marks, criteria = Marks(self.context.token), self._list_criteria(request)
        question = examiner.format_doubt(examples, reason, request=request, criteria=criteria, marks=marks)
        try:
            answer = self._ask(self._begin("second look", marks=marks, prompt=_SECOND_LOOK), question)
        except (TurnMissing, ModelError, BudgetSpent) as error:
            self.context.emit(Notice(text=f"The Examiner could not look again: {error.happened}"))
            return None
        self._save(examiner.apply_decisions(examples, answer))
        return self._end_doubt(request)

    def _end_doubt(self, request: CheckRequest) -> Findings:
        """Judge the examples that are left by their known results."""
        examples = load_examples(self.path)
        assert examples is not None
        examples, findings = examiner.judge_examples(examples, criteria=self._list_criteria(request), is_first=False)
        self._save(examples)
        reasons = tuple(
            replace(reason, case="keeps_example", parts={"reason": as_clause(reason)}) for reason in findings.reasons
        )
        return self._conclude(replace(findings, reasons=reasons), doubts=examples.reasons)

    def _ask_person(self, examples: Examples, reason: str) -> bool:
        """Return whether a person withdraws the failing examples."""
        failing = [example.name for example in examples.select(*examiner.REFUTING)]
        if self.context.choose is None:
            return False
        happened = f"The model says that a further example is wrong: {reason}\n\n{examples.extract(failing)}"
        is_withdrawn = self.context.choose(happened, ("keep it: the step fails", "withdraw it")) == 1
        if is_withdrawn:
            self._save(examples.update(dict.fromkeys(failing, ("withdrawn", Clause("person_decided")))))
        return is_withdrawn

    def find_visible_example(self) -> str:
        """Return the example that the author of the change may see; empty if there is none."""
        examples = load_examples(self.path)
        shown = [] if examples is None else [each.name for each in examples.select("passes", *examiner.REFUTING)]
        if examples is None or examples.shown not in shown:
            return ""
        return examples.extract([examples.shown])

    def try_blind_examples(self, request: CheckRequest, *, runs: TimedRuns) -> Examples | None:
        """Return examples that follow from ``request.stated`` alone, with their results; None if there are none.

        They say whether the change or its failing tests are wrong, so the Examiner sees neither. ``request.targets``
        are these tests.
        """
        if not self.context.policy.max_examples or not runs.limit_s or not runs.suite.conventions.is_python:
            return None
        examples = load_examples(self.path)
        try:
            if examples is None:
                marks = Marks(self.context.token)
                question = examiner.format_blind_question(
                    request.stated, most=self.context.policy.max_examples, marks=marks
                )
                conversation = self._begin("cause", marks=marks, prompt=_BLIND)
                examples = self._obtain(request, question, conversation=conversation, criteria={examiner.GOAL: ""})
            tried = examiner.try_examples(examples, request=request, runs=runs)
        except TurnMissing:
            return None
        except (TimeUp, GitError, OSError) as error:
            self.context.emit(Notice(text=f"No further examples: {explain(find_obstacle(error))}"))
            return None
        except (ModelError, BudgetSpent, UsageError) as error:
            self.context.emit(Notice(text=f"No further examples: {error.happened}"))
            return None
        self._save(tried)
        return tried

    def _obtain_about(self, request: CheckRequest, *, criteria: dict[str, str], signs: Iterable[str]) -> Examples:
        marks, most = Marks(self.context.token), self.context.policy.max_examples
        question = examiner.format_question(request, criteria=criteria, most=most, signs=signs, marks=marks)
        conversation = self._begin("examples", marks=marks)
        return self._obtain(request, question, conversation=conversation, criteria=criteria)

    def _obtain(
        self, request: CheckRequest, question: str, *, conversation: Conversation, criteria: dict[str, str]
    ) -> Examples:
        examples = examiner.obtain_examples(
            lambda text: self._ask(conversation, text),
            question,
            criteria=criteria,
            most=self.context.policy.max_examples,
        )
        examples = structs.replace(examples, beside=request.targets[0].partition("::")[0])
        self._save(examples)
        return examples

    def _begin(self, purpose: str, *, marks: Marks, prompt: Path = _PROMPT) -> Conversation:
        role = prompt.read_text(encoding="utf-8").strip()
        work = f"Work: {AGENT} {self.item.ticket} step {self.item.number} {purpose}"
        return Conversation(f"{role}\n\n{marks.rule}\n\n{work}", token=marks.token)

    def _ask(self, conversation: Conversation, text: str) -> str:
        context, policy = self.context, self.context.policy
        conversation.say(text)
        model = RoleModel(context.model, other=policy.examiner_model, is_optional=True)
        budget = replace(policy.budget, max_turns=_MAX_TURNS)
        return run_agent(conversation, (), model=model, budget=budget, emit=context.emit, agent=AGENT).text

    def _save(self, examples: Examples) -> None:
        write_atomic(self.path, msgspec.json.format(msgspec.json.encode(examples)))


def load_examples(path: Path) -> Examples | None:
    """Return the examples of a step, or None if there are none that can be read."""
    try:
        return msgspec.json.decode(read_ordinary(path, limit_bytes=_LIMIT_BYTES), type=Examples)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
