"""Further examples, with which an agent, the Examiner, tries to refute a change.

The Examiner's word counts nothing: only its examples do. An example of new behavior cites a criterion and fails without
the change because the behavior is missing. An example of a rule that must stay passes without the change, and counts
only if it fails with it. Both must give the same result twice. The author of the change does not see them until one has
failed twice. All functions but ``try_examples`` are pure.
"""

import ast
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from cdd_agent.errors import UsageError, join_first
from cdd_agent.evidence.canaries import add_test_file, describe_failure
from cdd_agent.evidence.clean_copy import CheckRequest, Findings, list_test_functions, note, refuse
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.evidence.source import Function, list_lines, name_definitions
from cdd_agent.model.conversation import Marks
from cdd_agent.untrusted.python_source import find_first_line, parse, split_lines, with_deep_stack
from cdd_agent.work.finding import Finding, read_old_finding, read_old_reason
from cdd_agent.work.wording import explain
from pytest_tdd_agent.failure import STRUCTURAL, find_effective_kind, find_stage
from pytest_tdd_agent.gate import strip_parameters
from pytest_tdd_agent.report import Clause, Failure, Reason, SuiteReport

LEAST = 3
"""So many examples are asked for at least. If fewer pass, the doubts of other checks stay."""
_MOST_CHARACTERS = 40_000
"""Of the tests, and of the change, in the question."""
_MOST_SHOWN = 4
_MOST_WORDS = 200
"""Characters of a reason for withdrawing an example."""
_NO_BEHAVIOR = ("syntax_error", "fixture_missing", "missing_module", "timeout", "crash", "resource")
_FILE = re.compile(r"^```(?:python|py)\b[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DECISION = re.compile(r"^\W*(keep|withdraw)\W+(\w+)\W*(.*)$", re.MULTILINE | re.IGNORECASE)

Outcome: TypeAlias = Literal["untried", "unused", "undecided", "withdrawn", "passes", "fails", "stays", "regressed"]
"""``unused`` is decided without the change, and stays. ``undecided`` is about one change, and the next is tried.

An example that passes without the change ``stays`` as it is with it, or has ``regressed``.
"""
REFUTING: tuple[Outcome, ...] = ("fails", "regressed")
"""The outcomes that refuse a change."""
GOAL = "GOAL"
"""An example cites this if it shows the purpose of a step without criteria."""
KEPT = "KEPT"
"""An example cites this if it guards a rule without an id."""


Decision: TypeAlias = tuple[Outcome, str | Clause]
"""An outcome, and why."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One further test."""

    name: str
    criterion: str
    """The id of the criterion that it cites."""
    outcome: Outcome = "untried"
    why: str | Clause = ""
    """Why it is not used, was withdrawn, or fails."""
    held_before: bool = False
    """Whether it passes without the change."""

    @property
    def clause(self) -> Clause:
        """The example and its outcome."""
        why = Clause("with_reason", {"why": self.why}) if self.why else ""
        return Clause(f"example_{self.outcome}", {"criterion": self.criterion, "name": self.name, "because": why})

    @property
    def fact(self) -> Finding:
        """The example and its outcome."""
        clause, has_passed = self.clause, self.outcome in ("passes", "stays")
        outcome: Literal["confirmed", "noted"] = "confirmed" if has_passed else "noted"
        return Finding(check="examples", outcome=outcome, case=clause.case, parts=clause.parts)


class Examples(msgspec.Struct, frozen=True, kw_only=True):
    """The further examples of one step."""

    schema: Literal[1, 2] = 2
    """1: sentences in place of records."""
    source: str
    """A test file with one function per example."""
    listed: tuple[Example, ...]
    shown: str = ""
    """The name of the example that the author of the change has seen."""
    was_doubted: bool = False
    """Whether the Examiner has looked at its examples again."""
    beside: str = ""
    """The test file beside which they run."""
    problem: Finding | str = ""
    """Why the last change was not examined."""
    doubts: tuple[Reason | tuple[str, str], ...] = ()
    """The doubts of other checks about the last change, which stay unless enough examples pass."""

    @property
    def facts(self) -> tuple[Finding, ...]:
        """The result of the last examination."""
        problem = read_old_finding(self.problem, check="examples") if isinstance(self.problem, str) else self.problem
        return (problem,) if self.problem else tuple(example.fact for example in self.listed)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The doubts."""
        return tuple(each if isinstance(each, Reason) else read_old_reason(": ".join(each)) for each in self.doubts)

    def select(self, *outcomes: Outcome) -> tuple[Example, ...]:
        """Return the examples with one of these outcomes."""
        return tuple(example for example in self.listed if example.outcome in outcomes)

    def update(self, changed: Mapping[str, Decision]) -> "Examples":
        """Return the examples with other outcomes; ``changed`` maps a name to its outcome and the reason."""
        pairs = ((each, changed.get(each.name, (each.outcome, each.why))) for each in self.listed)
        listed = tuple(replace(example, outcome=outcome, why=why) for example, (outcome, why) in pairs)
        return replace(self, listed=listed)

    def extract(self, names: Collection[str]) -> str:
        """Return the file without the other examples and tests."""
        lines, listed = split_lines(self.source), {example.name for example in self.listed}
        tests = (each for each in _list_functions(self.source) if each.name in listed or each.name.startswith("test"))
        others = (range(find_first_line(test), list_lines(test).stop) for test in tests if test.name not in names)
        left_out = {line for each in others for line in each}
        return "\n".join(line for number, line in enumerate(lines, start=1) if number not in left_out).strip() + "\n"


def _list_functions(source: str) -> list[Function]:
    return [node for node in getattr(parse(source), "body", ()) if isinstance(node, Function)]


def list_criteria(stated: Mapping[str, str], *, title: str, targets: Iterable[str]) -> dict[str, str]:
    """Return the criteria of a step. If none are stated, they are its title and what each target shows."""
    shown = {
        f"TEST-{number}": f"what {target} shows" for number, target in enumerate(list_test_functions(targets), start=1)
    }
    return dict(stated) or {GOAL: title, **shown}


@with_deep_stack
def format_question(
    request: CheckRequest, *, criteria: Mapping[str, str], most: int, signs: Iterable[str], marks: Marks
) -> str:
    """Return the question to the Examiner; ``signs`` are findings in the change that prove nothing."""
    parts = [*_describe_work(request, criteria=criteria, marks=marks)]
    found = "\n".join(f"- {sign}" for sign in signs)
    parts += [f"Signs, which prove nothing:\n{marks.wrap(found, source='checks')}"] if found else []
    count = f"{LEAST} to {most}" if most > LEAST else str(most)
    parts.append(f"Write {count} further example{'' if most == 1 else 's'} that would refute it.")
    return "\n\n".join(parts)


def format_blind_question(stated: str, *, most: int, marks: Marks) -> str:
    """Return the question to the Examiner who may see nothing but what a change is for."""
    count = f"{LEAST} to {most}" if most > LEAST else str(most)
    return f"The part:\n{marks.wrap(stated[:_MOST_CHARACTERS], source='the part')}\n\nWrite {count} examples."


def _describe_work(request: CheckRequest, *, criteria: Mapping[str, str], marks: Marks) -> Iterator[str]:
    """Yield the step, its criteria, the docstrings, the visible tests and the change."""
    lines = request.stated.splitlines()
    # A step of a plan lists its criteria with their ids already.
    rows = "\n".join(row for name, text in criteria.items() if (row := f"- {name}: {text}") not in lines)
    step = "\n".join(line for line in lines if line not in criteria.values()).strip()
    documented = "\n\n".join(_list_docstrings(request))[:_MOST_CHARACTERS]
    if step:
        yield f"The step:\n{marks.wrap(step, source='the step')}"
    if rows:
        yield f"Its criteria:\n{marks.wrap(rows, source='criteria')}"
    if documented:
        yield f"The docstrings before the change:\n{marks.wrap(documented, source='docstrings')}"
    yield "The tests that the author of the change can see:"
    yield from (marks.wrap(text[:_MOST_CHARACTERS], source=path) for path, text in request.tests.items())
    yield f"The change, which passes these tests:\n{marks.wrap(_format_change(request), source='the change')}"


def _list_docstrings(request: CheckRequest) -> Iterator[str]:
    """Yield the docstrings of the changed files, which say more of a function than its title if a user wrote them."""
    for change in request.changes:
        tree = parse(change.old)
        functions = [(name, node) for name, node in name_definitions(tree) if isinstance(node, Function)]
        documented = [(change.path, tree), *functions] if tree is not None else []
        yield from (f"{name}: {text}" for name, node in documented if (text := ast.get_docstring(node)))


def _format_change(request: CheckRequest) -> str:
    parts = []
    for change in request.changes:
        old, new = (change.old or "").splitlines(), (change.new or "").splitlines()
        lines = difflib.unified_diff(old, new, change.path, change.path, n=20, lineterm="")
        parts.append("\n".join(lines) or f"{change.path}: not a Python source")
    return "\n".join(parts)[:_MOST_CHARACTERS]


Ask: TypeAlias = Callable[[str], str]
"""Asks the Examiner a question, in one conversation."""


def obtain_examples(ask: Ask, question: str, *, criteria: Collection[str], most: int) -> Examples:
    """Ask for examples, and once more if the answer cannot be used. Raises ``UsageError`` if the second cannot."""
    try:
        return parse_answer(ask(question), criteria=criteria, most=most)
    except UsageError as error:
        return parse_answer(ask(f"{error.happened} Please {error.hint}."), criteria=criteria, most=most)


def parse_answer(answer: str, *, criteria: Collection[str], most: int) -> Examples:
    """Return the examples in the last code block of an answer. Raises ``UsageError`` if there are none."""
    hint = "send the whole file again, in one block that begins with ```python"
    blocks = _FILE.findall(answer if answer.endswith("\n") else f"{answer}\n")
    if not blocks:
        raise UsageError("The answer contains no Python file.", hint=hint)
    source = str(blocks[-1])
    if parse(source) is None:
        raise UsageError("The file of the answer is not valid Python.", hint=hint)
    found: dict[str, Example] = {}
    for test in _list_functions(source):
        words = (ast.get_docstring(test) or "").split()
        cited = words[0].rstrip(":,.").upper() if words else ""
        criterion = next((name for name in (*criteria, KEPT) if name.upper() == cited), None)
        if criterion is not None:
            found.setdefault(test.name, Example(name=test.name, criterion=criterion))
    if not found:
        known = join_first((*criteria, KEPT), most=_MOST_SHOWN + 1)
        raise UsageError(f"No function of the file has a docstring that begins with one of {known}.", hint=hint)
    return Examples(source=source, listed=tuple(found.values())[:most])


_Result: TypeAlias = Failure | str
"""The failure of an example, or its outcome."""


def try_examples(examples: Examples, *, request: CheckRequest, runs: TimedRuns) -> Examples:
    """Run the examples without the change, to find out which count, then with it.

    Examples that counted earlier only run with the change. Raises ``TimeUp``, ``GitError`` or ``OSError``; raises
    ``UsageError`` if they cannot run without the change.
    """
    trial = _Trial(request=request, runs=runs, examples=examples)
    if untried := {example.name: example for example in examples.select("untried")}:
        before = trial.run(request.red, untried, purpose="further examples without the change")
        if before is None:
            happened = "The further examples do not run to their end without the change."
            raise UsageError(happened, hint="see the output of the tests")
        paths, files = [change.path for change in request.changes], list(request.tests)
        expects = runs.suite.conventions.list_names(paths, files)
        held = {name for name in untried if before[name] == ("passed", "passed")}
        flaws = {name: _find_flaw(before[name], expects=expects) for name in untried if name not in held}
        flaws |= {
            name: flaw or Clause("no_rule_that_held") for name, flaw in flaws.items() if untried[name].criterion == KEPT
        }
        examples = examples.update({name: ("unused", flaw) for name, flaw in flaws.items() if flaw})
        examples = replace(
            examples,
            listed=tuple(
                replace(each, held_before=each.name in held) if each.name in untried else each
                for each in examples.listed
            ),
        )
    names = [example.name for example in examples.select(*_TRIED)]
    after = trial.run(request.green, names, purpose="further examples") if names else {}
    # Without the change, the run ends and both results are alike: the change is what makes an example doubtful.
    doubtful = names if after is None else [name for name in names if after[name].count("passed") == 1]
    words = set(re.findall(r"\w+", " ".join(request.tests.values())))
    judged = {name: _judge(after[name], words=words) for name in names if after is not None and name not in doubtful}
    for name in doubtful:
        alone = trial.run(request.green, [name], purpose=f"further example {name}")
        judged[name] = _judge_alone(None if alone is None else alone[name], words=words)
    held_before = {example.name for example in examples.listed if example.held_before}
    for name in held_before.intersection(judged):
        judged[name] = _judge_older_rule(name, judged[name], trial=trial)
    return examples.update(judged)


_TRIED: tuple[Outcome, ...] = ("untried", "undecided", "passes", "fails", "stays", "regressed")


def _judge_older_rule(name: str, judged: Decision, *, trial: "_Trial") -> Decision:
    """Return the outcome of an example that passes without the change, given its outcome with the change.

    Before it refuses the change, it runs alone once more, with the change and without it.
    """
    outcome, why = judged
    if outcome != "fails":
        return ("stays", "") if outcome == "passes" else judged
    request = trial.request
    alone = trial.run(request.green, [name], purpose=f"further example {name} again")
    without = trial.run(request.red, [name], purpose=f"further example {name} without the change")
    has_failed = alone is None or "passed" not in alone[name]
    if has_failed and without is not None and without[name] == ("passed", "passed"):
        return "regressed", Clause("passes_without", {"why": why})
    return "undecided", Clause("changes_results")


@dataclass(frozen=True, kw_only=True)
class _Trial:
    request: CheckRequest
    runs: TimedRuns
    examples: Examples

    def run(self, product: str, names: Collection[str], *, purpose: str) -> dict[str, tuple[_Result, _Result]] | None:
        """Run each example twice with the tree ``product``. None: the run did not end."""
        source = self.examples.extract(names)
        with self.runs.copy(green=product, red=self.request.red) as copy:
            files = [add_test_file(copy.root, self.request.targets, source=source) for _ in range(2)]
            if None in files:
                happened = "A link leads from the folder of the target tests out of the project."
                raise UsageError(happened, hint="replace it by the folder")
            first, second = (file or "" for file in files)
            report = self.runs.run(copy, purpose, tests=(first, second), is_altered=True).report
        if report is None:
            return None
        return {
            name: (_read_result(report, first, name=name), _read_result(report, second, name=name)) for name in names
        }


def _read_result(report: SuiteReport, file: str, *, name: str) -> _Result:
    cases = [case for case in report.tests if strip_parameters(case.nodeid) == f"{file}::{name}"]
    failures = [case.failure for case in cases if case.failure is not None and case.outcome != "passed"]
    failures += [error.failure for error in report.collect_errors if file.startswith(error.nodeid)]
    outcomes = [case.outcome for case in cases if case.outcome != "passed"]
    return failures[0] if failures else "not collected" if not cases else outcomes[0] if outcomes else "passed"


def _differ(results: tuple[_Result, _Result]) -> bool:
    first, second = ((each.phase, each.kind, each.exception) if isinstance(each, Failure) else each for each in results)
    return first != second


def _find_flaw(results: tuple[_Result, _Result], *, expects: Collection[str]) -> Clause | None:
    """Return why an example does not count, by its results without the change; None if it does."""
    result = results[0]
    if _differ(results):
        return Clause("runs_differ")
    if not isinstance(result, Failure):
        return Clause("is_outcome", {"outcome": result})
    kind = find_effective_kind(result)
    has_run = result.phase == "call" and kind not in _NO_BEHAVIOR and not _lacks_name(result)
    if has_run or find_stage(result, tuple(expects)) is not None:
        return None
    return Clause("fails_otherwise", {"failure": describe_failure(result)})


def _lacks_name(failure: Failure) -> bool:
    """Return whether a test uses a name that the project does not have, or calls it in a way that does not fit."""
    is_in_test = failure.phase == "collect" or failure.origin == "test"
    return is_in_test and find_effective_kind(failure) in STRUCTURAL and failure.missing_in_project is not None


def _judge(results: tuple[_Result, ...], *, words: Collection[str]) -> Decision:
    """Return the outcome of an example that counts, by its results with the change.

    The change must not be able to choose that an example stays undecided. ``words`` are those of the visible tests.
    """
    result = next((each for each in results if each != "passed"), None)
    if result is None:
        return "passes", ""
    if not isinstance(result, Failure):
        return "fails", Clause("is_outcome", {"outcome": result})
    if _demands_more(result, words):
        return "undecided", Clause("demands_more", {"failure": describe_failure(result)})
    return "fails", describe_failure(result)


def _judge_alone(results: tuple[_Result, _Result] | None, *, words: Collection[str]) -> Decision:
    """Return the outcome of an example that ran alone, because its results differ or a run did not end."""
    if results is None:
        return "fails", Clause("does_not_end")
    if results[0] == "passed" != results[1]:
        return "undecided", Clause("runs_differ")
    return _judge(results[:1], words=words)


def _demands_more(failure: Failure, words: Collection[str]) -> bool:
    """Return whether an example uses a name or a call that the visible tests, which define the interface, do not."""
    if failure.origin != "test":
        return False
    kind = find_effective_kind(failure)
    if kind in ("name_error", "fixture_missing", "syntax_error", "signature_mismatch"):
        return True
    missing = (failure.missing_name or "").rpartition(".")[2]
    return kind in STRUCTURAL and failure.missing_in_project is not None and missing not in words


def judge_examples(examples: Examples, *, criteria: Mapping[str, str], is_first: bool) -> tuple[Examples, Findings]:
    """Return a refusal if an example fails, else a notice of what was examined.

    The first refusal names the criteria only. A later one (not ``is_first``) shows one example, which stays the same
    until it passes.
    """
    failing = {example.name: example for example in examples.select(*REFUTING)}
    if not failing:
        return examples, _report(examples)
    if is_first:
        cited = dict.fromkeys((example.outcome, example.criterion) for example in failing.values())
        reasons = (_explain_criterion(examples, name, outcome=outcome, criteria=criteria) for outcome, name in cited)
        return examples, sum(reasons, start=Findings())
    example = failing.get(examples.shown) or next(iter(failing.values()))
    code, wrong = "example_failed", _name_unmet(example.criterion, criteria)
    if example.outcome == "regressed":
        code, wrong = "example_regressed", Clause("breaks", {"rule": _name_rule(example.criterion, criteria)})
    source = examples.extract([example.name])
    found = refuse(code, "example_shown", wrong=wrong, why=example.why, source=source)
    return replace(examples, shown=example.name), found


def _name_unmet(cited: str, criteria: Mapping[str, str]) -> Clause:
    text = criteria.get(cited, "")
    return Clause("unmet_text" if text else "unmet", {"criterion": cited, "text": text})


def _name_rule(cited: str, criteria: Mapping[str, str]) -> Clause:
    if cited == KEPT:
        return Clause("kept_rule")
    text = criteria.get(cited, "")
    return Clause("criterion_text" if text else "criterion", {"criterion": cited, "text": text})


def _explain_criterion(
    examples: Examples, criterion: str, *, outcome: Outcome, criteria: Mapping[str, str]
) -> Findings:
    if outcome == "regressed":
        rule = _name_rule(criterion, criteria)
        own = [example for example in examples.select("regressed") if example.criterion == criterion]
        return refuse("example_regressed", "rule_broken", rule=rule, count=len(own))
    own = [example for example in examples.select("passes", "fails") if example.criterion == criterion]
    count = sum(example.outcome == "fails" for example in own)
    unmet, case = _name_unmet(criterion, criteria), "one_example_failed" if count == 1 else ""
    return refuse("example_failed", case, unmet=unmet, failed=count, count=len(own))


def _report(examples: Examples) -> Findings:
    passing, left_out = examples.select("passes"), examples.select("unused", "undecided", "withdrawn")
    staying = examples.select("stays")
    listed = tuple(each.clause for each in left_out)
    kept = Clause("examples_kept", {"count": len(staying)})
    if not passing:
        return note("examples", "none_counts", outcome="noted", listed=(*listed, *([kept] if staying else [])))
    return note(
        "examples",
        "examined",
        outcome="confirmed",
        count=len(passing),
        passed=tuple(f"{each.criterion} {each.name}" for each in passing),
        left_out=Clause("left_out", {"listed": listed}) if listed else "",
        kept=Clause("also_kept", {"kept": kept}) if staying else "",
    )


def format_doubt(
    examples: Examples, reason: str, *, request: CheckRequest, criteria: Mapping[str, str], marks: Marks
) -> str:
    """Return the question whether the failing examples are right, which the author of the change doubts."""
    failing = examples.select(*REFUTING)
    results = "\n".join(f"{each.name} (cites {each.criterion}): {explain(each.why)}" for each in failing)
    shown = examples.extract([each.name for each in failing])
    question = (
        "Answer for each example: would a reader who knows only the step, its criteria, the docstrings and the visible "
        "tests expect its result without doubt? If another result could be right too, withdraw it."
    )
    if examples.select("regressed"):
        question += (
            " An example that passes without the change refutes it only if its rule must still hold after this step. "
            "If the step asks for the new result, withdraw it."
        )
    return "\n\n".join(
        (
            *_describe_work(request, criteria=criteria, marks=marks),
            f"These further examples fail:\n{marks.wrap(shown, source='examples')}",
            f"Their results:\n{marks.wrap(results, source='tests')}",
            f"The author of the change says:\n{marks.wrap(reason, source='the author of the change')}",
            f"{question} Answer with one line for each: `keep NAME: reason` or `withdraw NAME: reason`.",
        )
    )


def apply_decisions(examples: Examples, answer: str) -> Examples:
    """Withdraw the failing examples that the answer names after `withdraw`. The others stay."""
    failing = {example.name for example in examples.select(*REFUTING)}
    decisions = {name: (word.lower(), why.strip()) for word, name, why in _DECISION.findall(answer)}
    withdrawn: dict[str, Decision] = {
        name: ("withdrawn", why[:_MOST_WORDS])
        for name, (word, why) in decisions.items()
        if word == "withdraw" and name in failing
    }
    return replace(examples.update(withdrawn), was_doubted=True)
