"""Differential run: the code before and after a change answers the same calls, and the answers are compared.

These are calls that tests make to the changed functions, and calls like them (see ``testrun/inside/values.py``). Tests
run in a clean copy of one tree; copies of both trees answer. Calls that the product makes count too, if the function is
public, takes the same parameters, and answers all recorded calls alike: other functions are details of their callers.
"""

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from cdd_agent.errors import CddError
from cdd_agent.evidence.changed_code import (
    ChangedCode,
    Watched,
    find_changed_code,
    list_watched,
    read_product,
    select_tests,
    select_users,
)
from cdd_agent.evidence.clean_copy import Findings, ProductChange, list_test_functions, locate, note, refuse
from cdd_agent.evidence.mutation import (
    TimedRuns,
    TimeUp,
    find_obstacle,
    find_unnoticed_functions,
    report_unverified,
    run_mutant,
)
from cdd_agent.evidence.readable import check_sources
from cdd_agent.git.run_tree import delete_folder
from cdd_agent.git.runner import GitError
from cdd_agent.sandbox.port import ISOLATING_LEVELS
from cdd_agent.testrun import inside
from cdd_agent.testrun.foreign import learn_syntax
from cdd_agent.testrun.suite import Suite
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.work.wording import TEMPLATES, explain
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.report import Clause, Part

Answer: TypeAlias = tuple[tuple[str, ...], ...]
"""What a call does, as ``testrun/inside/answers.py`` says it: parts, each a code and texts."""
MISSING: Answer = (("missing",),)
_ASSERTION = "AssertionError"
_MOST_TEXT, _MOST_PARTS = 300, 10
_MOST_BYTES = 30_000_000
_SECONDS = 10.0
"""For the tests that are recorded; each run answers for half of it."""


_MOST_TIME = 0.5
"""The part of the remaining time that the runs may use; the rest is for the other checks."""


class NotComparedError(CddError):
    """A run gave no answers."""

    def __init__(self, case: str, **parts: Part) -> None:
        """State why, as the case of a clause and its parts."""
        self.clause = Clause(case, parts)
        super().__init__(explain(self.clause), hint="review the change")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTrees:
    """A change to compare. Paths are relative to the project."""

    before: str
    after: str
    changes: tuple[ProductChange, ...]
    tests: tuple[str, ...]
    """Files of tests that pass."""
    records_after: bool = False
    """Whether the tests pass only after the change. Then their own calls may have other answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A call with different answers."""

    path: str
    function: str
    """Its dotted name."""
    call: str
    before: Answer
    after: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a differential run; functions are dotted names."""

    calls: int
    """Number of calls with two answers."""
    functions: tuple[str, ...]
    """The functions of these calls."""
    differences: tuple[Difference, ...]
    """The one with the shortest call of each function."""
    unstable: tuple[str, ...]
    """Functions that answer in another way when they run again."""
    internal: tuple[str, ...]
    """Functions that only the product calls, and that answer a recorded call in another way."""
    left_out: int = 0
    """Number of calls with arguments that cannot be rebuilt."""
    unnoticed: Findings = field(default_factory=Findings)
    """Changed functions that no test needs."""
    unhashable: tuple[str, ...] = ()
    """Classes whose objects can no longer be hashed."""
    idle: tuple[str, ...] = ()
    """Changed functions that no test runs, or only with arguments that cannot be rebuilt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answers of a run to calls."""

    task: bytes
    """The calls, as the task of a run that answers the same ones."""
    lines: list[tuple[int, Answer, str]]
    """Index of a call, its answer and its text."""
    has_ended: bool
    """Whether it ended by itself or for its time, not by a call that ended the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The calls of tests in one tree, and its answers to them."""

    watched: tuple[Watched, ...]
    tests: tuple[str, ...]
    answered: Answered


def refuse_changed_behavior(trees: ComparedTrees, *, runs: TimedRuns) -> Findings:
    """Refuse a change of structure that changes an answer. Notices say what was compared, and what was not."""
    paths = [change.path for change in trees.changes]
    findings = check_sources(paths, before=trees.before, after=trees.after, runs=runs)
    if findings.reasons:
        return findings
    found = _try_to_compare(trees, runs=runs)
    if not isinstance(found, Comparison):
        return findings + found
    if found.differences:
        places = [locate(each.path, each.function, changes=trees.changes) for each in found.differences]
        listed, at = _list_differences(found), tuple(dict.fromkeys(places))
        findings += refuse("behavior_changed", differences=listed, places=at)
    elif not found.calls and not found.idle:
        findings += note("calls", "no_calls")
    elif found.calls:
        case = "same_answers_of_some" if found.left_out else "same_answers"
        names, rest = found.functions, found.left_out
        findings += note("calls", case, outcome="confirmed", functions=names, calls=found.calls, left_out=rest)
    if found.unhashable:
        findings += note("calls", "unhashable", outcome="review", classes=found.unhashable)
    for case, functions in (("unstable", found.unstable), ("internal", found.internal), ("idle", found.idle)):
        if functions:
            findings += note("calls", case, functions=functions)
    return findings if findings.reasons else findings + found.unnoticed


def list_changed_behavior(trees: ComparedTrees, *, runs: TimedRuns, recorded: Recorded | None = None) -> Findings:
    """Return a notice of what the change changes besides the tests' own examples."""
    found = _try_to_compare(trees, runs=runs, recorded=recorded)
    if not isinstance(found, Comparison):
        return found
    if not found.differences:
        return Findings()
    functions = tuple(each.function for each in found.differences)
    listed = _list_differences(found)
    return note("calls", "also_changed", outcome="review", functions=functions, differences=listed)


def _try_to_compare(
    trees: ComparedTrees, *, runs: TimedRuns, recorded: Recorded | None = None
) -> Comparison | Findings:
    code = find_changed_code(trees.changes)
    # New code has no earlier results to compare with.
    if not runs.limit_s or not code.names or (trees.records_after and code.is_new):
        return Findings()
    need = Clause("needs_pytest") if runs.suite.conventions.framework != "pytest" else None
    # A test may replace what deletes files or sends mail. No test does so for these calls, and their paths are varied.
    if need is None and runs.suite.sandbox.level not in ISOLATING_LEVELS:
        need = Clause("needs_sandbox", {"levels": " or ".join(sorted(ISOLATING_LEVELS))})
    if need is not None:
        return Findings() if trees.records_after else note("calls", "not_compared", why=need)
    try:
        return compare(trees, code, runs=runs, recorded=recorded)
    except TimeUp as error:
        return report_unverified("calls", error)
    except NotComparedError as error:
        return note("calls", "not_compared", why=error.clause)
    except (GitError, OSError) as error:
        return note("calls", "not_compared", why=find_obstacle(error))


def _list_differences(found: Comparison) -> tuple[Clause, ...]:
    return tuple(
        Clause("difference", {"call": _cut(each.call), "before": describe(each.before), "after": describe(each.after)})
        for each in found.differences
    )


def describe(answer: Answer) -> Clause | str:
    """Return an answer in a form that can be explained."""
    told: Clause | str = ""
    # The code that was called may have written the answer. Only texts are checked for secret values, so no other code.
    known = [part for part in answer[:_MOST_PARTS] if part and f"call_{part[0]}" in TEMPLATES]
    for code, *texts in reversed(known):
        case = "raises" if code == "states" and texts[-1:] == [""] else code
        told = Clause(f"call_{case}", {**dict(zip(("text", "other"), map(_cut, texts), strict=False)), "then": told})
    return told


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."


class _Call(msgspec.Struct):
    function: int
    by_test: bool
    is_recorded: bool
    args: list[object]
    named: dict[str, object]
    guess: str | None = None
    """The types of the arguments, if they are guessed."""
    is_guessed: bool = False
    then: list[object] = []
    """The calls of what it returns."""
    is_lenient: bool = False
    """Whether these have arguments that the returned function may not expect."""

    @property
    def overrides(self) -> bool:
        """Whether it is a call of a method on an object of a subclass that cdd made."""
        match self.args:
            case [["new", ["sub", *_], *_], *_]:
                return True
        return False

    @property
    def values(self) -> dict[tuple[int, int | str], str]:
        """The function and the place of each argument -> its value."""
        given: list[tuple[int | str, object]] = [*enumerate(self.args), *self.named.items()]
        return {(self.function, at): repr(value) for at, value in given}


class _Recording(msgspec.Struct):
    calls: list[_Call]
    tests: list[list[str]]
    """Some tests that run each function, if it is a changed one."""
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    task: Mapping[str, object]
    """The recording, as the task of a run that answers the same calls."""
    recording: _Recording
    answers: Mapping[int, Answer]
    """Index of a call -> its answer."""
    shown: Mapping[int, str]
    """Index of a call -> its text."""


def make_task(
    code: ChangedCode, watched: Iterable[Watched], *, product: Iterable[str], guesses: bool = False
) -> dict[str, object]:
    """Return the task of a run that records calls and answers them; with ``guesses`` also others."""
    listed = [*watched]
    functions = [(e.path, e.line, e.name, e.is_changed, e.counts_inside, e.may_guess, e.is_used) for e in listed]
    task = {
        "guesses": guesses,
        "functions": functions,
        "inner": [(e.path, line, index, depth) for index, e in enumerate(listed) for line, depth in e.inner],
        "constants": code.constants,
        "computed": sorted(code.computed),
        "product": [*product],
        "seconds": _SECONDS,
    }
    return {**task, "as_test": False, "alone": True, "targets": ()}


def compare(
    trees: ComparedTrees, code: ChangedCode, *, runs: TimedRuns, recorded: Recorded | None = None
) -> Comparison:
    """Record calls of one tree, if that is not done, and compare the answers of both.

    Raises ``TimeUp``, ``GitError`` and ``OSError``.
    """
    first_tree, other = (trees.after, trees.before) if trees.records_after else (trees.before, trees.after)
    part = runs.take_part(_MOST_TIME)
    if recorded is None:
        with runs.copy(green=first_tree, red=trees.before) as copy:
            sources = dict(read_product(copy))
            learn_syntax(select_users(code, sources), suite=copy)
            watched = list_watched(code, sources)
            tests = select_tests(copy, trees.tests, code=code, watched=watched)
            task = make_task(code, watched, product=sources, guesses=not trees.records_after)
            first = _answer(copy, "calls of the changed code", task=task, tests=tests, runs=part)
    else:
        watched, tests = recorded.watched, recorded.tests
        first = _read_answers(recorded.answered, "calls of the changed code")
    with runs.copy(green=other, red=trees.before) as copy:
        second = _answer(copy, "the same calls of the other code", task=first.task, tests=tests, runs=part)
        unnoticed = (
            Findings() if trees.records_after else _find_unnoticed(copy, trees, recording=first.recording, runs=runs)
        )
    again = first
    if any(second.answers.get(index, answer) != answer for index, answer in first.answers.items()):
        again = _answer_once_more(first_tree, trees.before, task=first.task, tests=tests, runs=part)
        if again.answers != first.answers:  # the first run left files and other traces of the tests
            first, again = again, _answer_once_more(first_tree, trees.before, task=first.task, tests=tests, runs=part)
    found = _compare_answers((first, second, again), watched, records_after=trees.records_after)
    ran = first.recording.tests if found.calls else []
    has_run = {(each.path, each.name) for each, by in zip(watched, ran, strict=False) if by}
    has_run |= {(each.path, each.name) for each in watched if each.name in found.functions}
    idle = tuple(sorted(name for path, name in code.functions.keys() - has_run))
    return replace(found, idle=idle, left_out=first.recording.left_out, unnoticed=unnoticed)


def _answer_once_more(
    tree: str, red: str, *, task: Mapping[str, object], tests: tuple[str, ...], runs: TimedRuns
) -> _Answers:
    with runs.copy(green=tree, red=red) as copy:
        return _answer(copy, "the same calls once more", task=task, tests=tests, runs=runs)


def _find_unnoticed(copy: Suite, trees: ComparedTrees, *, recording: _Recording, runs: TimedRuns) -> Findings:
    tests = list_test_functions(test for tests in recording.tests for test in tests if not test.startswith("-"))
    run = partial(run_mutant, copy, tests=tests, runs=runs)
    try:
        return Findings() if not tests else find_unnoticed_functions(trees.changes, run=run, targets=())
    except TimeUp as error:
        return report_unverified("mutants", error)


def _answer(
    copy: Suite, purpose: str, *, task: Mapping[str, object], tests: tuple[str, ...], runs: TimedRuns
) -> _Answers:
    """Answer the calls of the task; if it has none, record them first."""
    _, answered = run_calls(copy, purpose, task=task, tests=tests, runs=runs)
    assert answered is not None
    return _read_answers(answered, purpose)


def _read_answers(answered: Answered, purpose: str) -> _Answers:
    try:
        recording = msgspec.json.decode(answered.task, type=_Recording)
        task = msgspec.json.decode(answered.task, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise NotComparedError("no_answers", purpose=purpose, problem=str(error)) from error
    answers = {index: answer for index, answer, _ in answered.lines if index >= 0}
    if not answered.has_ended:
        answers[len(answers)] = (("ends",),)
    shown = {index: call for index, _, call in answered.lines}
    return _Answers(task=task, recording=recording, answers=answers, shown=shown)


def run_calls(
    copy: Suite, purpose: str, *, task: Mapping[str, object], tests: tuple[str, ...], runs: TimedRuns
) -> tuple[Answered | None, Answered | None]:
    """Run tests with the plugin that records and answers calls. Raises ``NotComparedError`` and ``TimeUp``.

    Return the answers as tests get them, and those of the calls alone; None: the task does not ask for them.
    """
    files, package = ConfinedFolder(copy.root.resolve()), f"cdd_calls_{secrets.token_hex(4)}"
    for name in ("__init__.py", "answers.py", "calls.py", "effects.py", "guesses.py", "returned.py", "values.py"):
        files.write(f"{package}/{name}", Path(inside.__file__).with_name(name).read_bytes())
    files.write(f"{package}/calls.json", encode_json(task))
    run = runs.run(copy, purpose, tests=(f"-p{package}.calls", *tests), is_usual=False)
    found: list[Answered | None] = []
    try:
        for key, name in (("as_test", "calls.jsonl.tests"), ("alone", "calls.jsonl")):
            if not task[key]:
                found.append(None)
                continue
            calls, *lines = files.read(f"{package}/{name}", _MOST_BYTES).splitlines()
            answers = [msgspec.json.decode(line, type=tuple[int, Answer, str]) for line in lines]
            is_whole = bool(answers) and answers[-1][0] < 0
            has_ended = is_whole or run.duration_s >= copy.timeout_s
            found.append(Answered(task=calls, lines=answers, has_ended=has_ended))
    except (OSError, ValueError, msgspec.DecodeError) as error:
        raise NotComparedError("no_answers", purpose=purpose, problem=run.problem or str(error)) from error
    finally:  # a copy is used again only if it has the same files
        with contextlib.suppress(OSError):
            delete_folder(files.root / package)
    return found[0], found[1]


def _compare_answers(
    answers: tuple[_Answers, _Answers, _Answers], watched: Sequence[Watched], *, records_after: bool
) -> Comparison:
    first, second, _ = answers
    compared: Counter[int] = Counter()
    unstable: set[int] = set()
    followed: set[int] = set()
    """Functions whose results answer their own calls in another way when these are made again."""
    differing: dict[int, list[tuple[_Call, Difference]]] = {}
    guessed: dict[int, dict[str, bool]] = {}
    # A file that is part of a cycle is found to be open at any later call.
    before = (second if records_after else first).answers
    may_leak = any(has_code(answer, "leaks") for answer in before.values())
    unexpected = _find_unexpected(first.recording.calls, before)
    for index, call in enumerate(first.recording.calls):
        if call.guess is not None:
            guessed.setdefault(call.function, {}).setdefault(call.guess, False)
        shown = first.shown.get(index) or second.shown.get(index, "")
        one, other, once_more = (_drop_value(each.answers.get(index, MISSING), shown) for each in answers)
        if may_leak:
            one, other, once_more = (_drop(answer, "leaks") for answer in (one, other, once_more))
        old, new = (other, one) if records_after else (one, other)
        is_expected = not records_after and unexpected.isdisjoint(call.values.items())
        is_idle = _shows_nothing(call, old, new=new, is_expected=is_expected)
        if is_idle or not 0 <= call.function < len(watched):
            continue
        compared[call.function] += 1
        if once_more not in (one, MISSING):
            (followed if call.then else unstable).add(call.function)
        differs = is_other_behavior(old, new) and once_more == one and not (records_after and call.is_recorded)
        if differs:
            at = watched[call.function]
            difference = Difference(path=at.path, function=at.name, call=shown, before=old, after=new)
            differing.setdefault(call.function, []).append((call, difference))
        if call.guess is not None:
            guessed[call.function][call.guess] |= differs
    for key in [key for key, types in guessed.items() if not all(types.values())]:
        differing.pop(key, None)  # it may expect the types with which nothing differs
    differing = _drop_followed(differing, unstable=followed)
    internal = {
        key
        for key, found in differing.items()
        if any((c.is_recorded or c.is_guessed) and not c.by_test for c, _ in found)
    }
    smallest: list[Difference] = []
    for key in differing.keys() - unstable:
        counting = [each for call, each in differing[key] if call.by_test or key not in internal]
        smallest += sorted(counting, key=lambda each: (len(each.call), each.call))[:1]
    for key in unstable:
        del compared[key]
    return Comparison(
        calls=compared.total(),
        functions=_list_function_names(watched, compared),
        differences=tuple(sorted(smallest, key=lambda each: (len(each.call), each.call))),
        unstable=_list_function_names(watched, unstable),
        unhashable=() if records_after else _list_unhashable(first, second, watched=watched),
        internal=_list_function_names(
            watched, {key for key in internal if not any(c.by_test for c, _ in differing[key])}
        ),
    )


def _drop_followed(
    differing: Mapping[int, list[tuple[_Call, Difference]]], *, unstable: Set[int]
) -> dict[int, list[tuple[_Call, Difference]]]:
    """Drop the differences in calls of results from functions whose calls of results are unstable."""
    stable = {
        key: [(call, each) for call, each in found if not (call.then and key in unstable)]
        for key, found in differing.items()
    }
    return {key: found for key, found in stable.items() if found}


def has_code(answer: Answer, code: str) -> bool:
    """Return whether an answer has a part with this code."""
    return any(part[:1] == (code,) for part in answer)


def get_code(answer: Answer) -> str:
    """Return the code of the first part; empty if there is none."""
    return answer[0][0] if answer and answer[0] else ""


def _drop(answer: Answer, code: str) -> Answer:
    return tuple(part for part in answer if part[:1] != (code,))


def _split(answer: Answer, code: str) -> tuple[Answer, Answer]:
    """Return the parts before the one with this code, and the others."""
    at = next((at for at, part in enumerate(answer) if part[:1] == (code,)), len(answer))
    return answer[:at], answer[at:]


def _shows_nothing(call: _Call, old: Answer, *, new: Answer, is_expected: bool) -> bool:
    """Return whether two answers cannot be compared. ``is_expected``: the code before expects such arguments."""
    is_guess = call.guess is not None or call.is_lenient
    # A caller need not expect that guessed arguments, such as an empty list, let an operation fail.
    is_unstated = is_guess and get_code(old) == "raises"
    is_unfit = get_code(old) == "unfit" or (get_code(new) == "unfit" and (is_guess or not is_expected))
    # The code after may do without a method, but if it runs, it is the one of the subclass.
    is_undone = call.overrides and (not has_code(new, "past") or has_code(old, "past"))
    return MISSING in (old, new) or is_unstated or is_unfit or is_undone


def is_other_behavior(old: Answer, new: Answer) -> bool:
    """Return whether two answers to a call show another behavior. To be faster is none."""
    (old_head, old_rest), (new_head, new_rest) = (_split(answer, "gives") for answer in (old, new))
    # What else it is, a ``with`` block does not see.
    is_generated = (("returns", "<context manager>"),) in (old_head, new_head)
    is_same = old_rest == new_rest and (old_head == new_head or (bool(old_rest) and is_generated))
    is_same |= _are_like_functions(old, new) or _are_like_assertions(old, new) or _are_like_assertions(new, old)
    return not (is_same or get_code(old) == "endless")


def _are_like_functions(old: Answer, new: Answer) -> bool:
    """Return whether two answers differ only in what a function is called, or is: a caller calls it.

    A wrapper may get the name of its function, and must not lose it.
    """
    if not any("<function " in text for part in old for text in part):
        new = tuple(tuple(re.sub(r"<function [\w<>]+>", "<function>", text) for text in part) for part in new)
    (old_head, old_rest), (new_head, new_rest) = (_split(answer, "called") for answer in (old, new))
    text = "".join(old_head[0][1:]) if len(old_head) == 1 and get_code(old_head) == "returns" else ""
    is_private = re.fullmatch(r"<function>|_\w+(\(.*\))?|partial\(.*\)", text) is not None
    return old_rest == new_rest and (old_head == new_head or (bool(old_rest) and is_private))


def _are_like_assertions(plain: Answer, stated: Answer) -> bool:
    """Return whether an ``assert`` fails in one answer, and a ``raise`` states the message in the other."""
    without = (part[:2] if part[:2] == ("states", _ASSERTION) else part for part in stated)
    return plain == tuple(("raises", _ASSERTION) if part == ("states", _ASSERTION) else part for part in without)


def _find_unexpected(calls: Sequence[_Call], answers: Mapping[int, Answer]) -> Set[tuple[tuple[int, int | str], str]]:
    """Return the places and values that the code before does not expect in calls that are otherwise recorded ones.

    It may never reach such a value if another argument is empty, and the code after may.
    """
    recorded = [call.values.items() for call in calls if call.is_recorded]
    unfit = [call.values.items() for index, call in enumerate(calls) if get_code(answers.get(index, ())) == "unfit"]
    changes = (each - known for each in unfit for known in recorded if len(each) == len(known))
    return {place for change in changes if len(change) == 1 for place in change}


def _list_unhashable(first: _Answers, second: _Answers, *, watched: Sequence[Watched]) -> tuple[str, ...]:
    """Return the classes whose objects the code before could hash. A class that becomes a dataclass often loses it."""
    pairs = {index: (answer, second.answers.get(index, ())) for index, answer in first.answers.items()}
    code = "unhashable"
    lost = {index for index, (old, new) in pairs.items() if has_code(new, code) and not has_code(old, code)}
    calls = first.recording.calls
    keys = {calls[index].function for index in lost if get_code(pairs[index][0]) == "returns" and index < len(calls)}
    return tuple(name.rpartition(".")[0] for name in _list_function_names(watched, keys))


def _drop_value(answer: Answer, shown: str) -> Answer:
    """Return an answer without the message of an exception that only names an argument of the call.

    An operation that fails, such as a look-up, may name it too. Whether an object can be hashed is told apart.
    """
    answer = _drop(answer, "unhashable")
    is_named = len(answer) == 1 and get_code(answer) == "states" and "".join(answer[0][2:]) in shown
    return (("raises", *answer[0][1:2]),) if is_named else answer


def _list_function_names(watched: Sequence[Watched], keys: Iterable[int]) -> tuple[str, ...]:
    return tuple(watched[key].name for key in sorted(keys) if 0 <= key < len(watched))
