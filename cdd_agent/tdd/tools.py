"""The tools of the model in one phase: they refuse to change locked files, and run the project's tests."""

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from msgspec import Meta

from cdd_agent.agent.editing import KnownFiles, MayWrite
from cdd_agent.agent.symbol_tools import KeepName, RenameRules, make_symbol_tools
from cdd_agent.agent.tools import (
    Tool,
    ToolOutput,
    define_tool,
    make_bash_tool,
    make_blocked_tool,
    make_completion_tool,
    make_file_tools,
    make_run_tests_tool,
    make_search_tools,
)
from cdd_agent.errors import UsageError, join_first, suggest
from cdd_agent.model.conversation import JSON
from cdd_agent.sandbox.port import Access
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.foreign import make_syntax_check
from cdd_agent.testrun.impact import load_impact
from cdd_agent.testrun.suite import SuiteRun
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.state import StepExecution
from cdd_agent.work.wording import explain
from cdd_agent.workspace.outline import list_definitions
from pytest_tdd_agent.comparison import is_inside, strip_parameters
from pytest_tdd_agent.report import Clause, count_outcomes

MAX_LOCKED_FILES = 40
"""Maximum number of files that the sandbox locks one by one."""

_MAX_CANDIDATES = 5
_REFUSED_WRITE = re.compile("|".join(re.escape(os.strerror(code)) for code in (errno.EROFS, errno.EACCES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOffer:
    """The choices and additions for the tools of one attempt."""

    after_writing: tuple[str, ...] = ()
    """After the last Write or Edit of a turn, the results of these tests are reported."""
    shown: tuple[str, ...] = ()
    """The files that count as read."""
    list_tests: Callable[[], tuple[str, ...]] = tuple
    """Returns the node ids of the baseline's tests, which may still be running when the tools are made."""
    widen: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda targets: targets
    """Returns the tests that the gate runs, if they contain the given ones: it can use the results then."""
    answer: Callable[["CommentAnswer"], None] | None = None
    """Adds AnswerComment."""
    has_symbols: bool = False
    """Adds the tools that find and change definitions."""
    keep_name: KeepName = lambda _: ""
    further: tuple[Tool, ...] = ()
    """Tools of the workflow."""


def make_tools(locks: PhaseLocks, context: Context, *, offer: ToolOffer = ToolOffer()) -> tuple[Tool, ...]:
    """Return Read, Write, Edit, Bash, Glob, Grep, RunTests, CompleteImplementation and ReportBlocked, in that order.

    The policy may leave Bash out; PLAN, in which nothing runs, has neither Bash nor RunTests. RunTests finds tests of
    the baseline by a part of their name. What else is offered follows at the end.
    """

    def run_tests(targets: tuple[str, ...], *, widens: bool = True) -> str:
        targets = _find_targets(targets, known=offer.list_tests(), locks=locks, context=context)
        if (refusal := _refuse_tests(context)) is not None:
            return refusal
        targets = offer.widen(targets) if widens else targets
        return _format_run(context.run_targets("RunTests", targets=targets))

    def report_tests() -> str:
        return f"Results of the tests to pass: {run_tests(offer.after_writing, widens=False)}"

    runs_programs = locks.phase != "plan"
    seen = KnownFiles({name: context.workspace.read(name) for name in offer.shown})
    check, find_error = make_lock_check(locks, context), make_syntax_check(context.suite)
    read, *writing = make_file_tools(context.workspace, check, known=seen, find_error=find_error)
    shell = make_bash_tool(
        context.suite.sandbox,
        context.workspace.root,
        access=_make_access(locks, context),
        permission=context.permission,
        variables=context.suite.variables,
        timeout_s=context.suite.timeout_s,
    )
    symbol_tools: tuple[Tool, ...] = ()
    if offer.has_symbols and context.symbols is not None:
        symbol_tools = make_symbol_tools(
            context.symbols,
            context.workspace,
            may_write=check,
            known=seen,
            rules=RenameRules(keep_name=offer.keep_name, watch_tests=partial(_watch_tests, context)),
            find_error=find_error,
        )
    return (
        read,
        *(replace(tool, follow_up=report_tests) if offer.after_writing else tool for tool in writing),
        *((_with_lock_hint(shell, locks),) if context.policy.has_commands and runs_programs else ()),
        *make_search_tools(context.workspace),
        *((make_run_tests_tool(run_tests),) if runs_programs else ()),
        make_completion_tool(),
        make_blocked_tool(),
        *((make_answer_tool(offer.answer),) if offer.answer is not None else ()),
        *symbol_tools,
        *offer.further,
    )


def _refuse_tests(context: Context) -> str | None:
    """Return why the agent may not run tests, or None if it may."""
    return context.permission.check_activity("tests") if context.permission is not None else None


def _watch_tests(context: Context, paths: Collection[str]) -> Callable[[], str]:
    """Run the tests that enter these files, or all; return a function that says which of them fail later.

    Raises ``UsageError`` if the agent may run none.
    """
    if (refusal := _refuse_tests(context)) is not None:
        raise UsageError(f"Nothing was renamed, because its tests may not run. {refusal}", hint="leave the name")
    entered = load_impact(context.impact_path).files
    files = {
        test.partition("::")[0] for key, tests in entered.items() if key.partition("::")[0] in paths for test in tests
    }
    targets = tuple(sorted(files))

    def list_passing() -> frozenset[str]:
        report = context.run_targets("the tests that a rename can break", targets=targets).report
        cases = () if report is None else report.tests
        return frozenset(case.nodeid for case in cases if case.outcome == "passed")

    before = list_passing()

    def find_broken() -> str:
        broken = sorted(before - list_passing()) if before else ()
        return f"tests fail that passed before: {join_first(broken, most=_MAX_CANDIDATES)}" if broken else ""

    return find_broken


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentAnswer:
    """Answer a comment of the reviewer. The reviewer sees it once the gate has accepted your change."""

    comment_id: Annotated[str, Meta(min_length=1, description="the id in brackets before the comment")]
    text: Annotated[
        str, Meta(min_length=1, description="what you changed, or why you did not, in one or two sentences")
    ]
    resolves: Annotated[bool, Meta(description="true if your change does what the comment asks for")] = False


class CommentAnswers:
    """The model's answers to the reviewer's comments in one attempt."""

    def __init__(self, item: WorkItem, *, step: StepExecution, context: Context) -> None:
        """Start without answers. Only an iteration has comments to answer."""
        self._item = item
        self._comments = context.comments if step.iterates else None
        self._answers: list[CommentAnswer] = []

    def list_open(self) -> tuple[str, ...]:
        """Return the ids of the open comments."""
        if self._comments is None:
            return ()
        found = self._comments.list_of_step(self._item.ticket, self._item.number)
        return tuple(comment.id for comment in found if not comment.resolved)

    def note(self, answer: CommentAnswer) -> None:
        """Remember an answer. Raises ``UsageError`` for a comment that is not open."""
        known = self.list_open()
        if answer.comment_id not in known:
            raise UsageError(f"No open comment has the id {answer.comment_id}.", hint=f"open: {', '.join(known)}")
        self._answers.append(answer)

    def save(self) -> None:
        """Save the answers, when the gate has accepted the change to which they belong."""
        for answer in self._answers if self._comments is not None else ():
            assert self._comments is not None
            self._comments.reply(answer.comment_id, mask(answer.text).text, author="ai")
            if answer.resolves:
                self._comments.resolve(answer.comment_id)


def make_answer_tool(answer: Callable[[CommentAnswer], None]) -> Tool:
    """Return the tool AnswerComment; ``answer`` raises ``UsageError`` for an unknown comment."""

    def run(given: CommentAnswer) -> ToolOutput:
        answer(given)
        return ToolOutput(text="Noted.")

    return define_tool("AnswerComment", CommentAnswer, run=run, subject=lambda given: given.comment_id)


def make_lock_check(locks: PhaseLocks, context: Context) -> MayWrite:
    """Return a function that says why a path of the project may not be written, or None if it may."""

    def check(path: str) -> str | None:
        path = context.to_repository_path(path)
        if context.snapshots.is_excluded(path):
            return "It belongs to the ticket, which a step never changes."
        reason = locks.explain(path) or context.workplace.tree.explain_fixed([path]).get(path)
        if reason is None and locks.kinds is not None and (context.choose is None or path in context.declined):
            reason = locks.kinds.explain(path)
            if reason is not None:
                refused = context.refuse_waiting({path: reason}, kinds=locks.kinds)
                reason = Clause("write_needs_approval", {"why": reason, "by": refused.parts["by"]})
        if reason is not None:
            return explain(reason)
        return None if context.permission is None else context.permission.check_activity("write")

    return check


def _format_run(run: SuiteRun) -> str:
    if run.report is None:
        return f"{run.problem}\n{run.output}"
    count = ", ".join(f"{number} {word}" for word, number in count_outcomes(run.report).items() if number)
    reused = (f"No test ran again: {run.reused}.",) if run.reused else ()
    lines = (count or "no test was collected", *reused, *run.notices, "", format_failures(run.report))
    return "\n".join(lines).rstrip()


def _with_lock_hint(tool: Tool, locks: PhaseLocks) -> Tool:
    """Return Bash, which says why a test could not write beside the tests: the locks prevent it, not the code."""

    def run(fields: Mapping[str, JSON]) -> ToolOutput:
        output = tool.run(fields)
        refusals = "".join(line for line in output.text.splitlines(keepends=True) if _REFUSED_WRITE.search(line))
        if locks.phase == "red" or not any(map(locks.layout.is_test, re.findall(r"[\w./-]+", refusals))):
            return output
        hint = (
            "Commands find the tests read-only. RunTests runs tests that write beside them, and drops what they write."
        )
        return replace(output, text=f"{output.text}\n\n{hint}")

    return replace(tool, run=run)


def _find_targets(
    targets: tuple[str, ...], *, known: tuple[str, ...], locks: PhaseLocks, context: Context
) -> tuple[str, ...]:
    """Return the tests that the model means. Raises ``UsageError`` for an option, and for a name of several tests."""
    found: list[str] = []
    inside = context.to_repository_path("")
    for given in targets:
        _require_test(given, context)
        path, colons, names = given.partition("::")
        path = path.removeprefix(inside) if inside and not context.workspace.exists(path) else path
        target = f"{path}{colons}{names}"
        # pytest finds classes and all cases of a parametrized test; a test that nobody has run yet is named in full.
        is_given = context.workspace.exists(path) and (not names or any(_is_of(target, each) for each in known))
        if is_given or not context.suite.conventions.is_python:
            found.append(target)
        else:
            found.append(find_test(target, (*known, *_list_tests_in_files(target, locks=locks, context=context))))
    return tuple(dict.fromkeys(found))


def _is_of(target: str, nodeid: str) -> bool:
    return nodeid == target or is_inside(nodeid, target)


def find_test(name: str, known: Iterable[str]) -> str:
    """Return the test, class or file of ``known`` node ids whose end is ``name``; else ``name``, if it may be a path.

    A name may be separated by dots or colons, and may lack the parameters of a test. Raises ``UsageError`` if several
    tests fit, or if none does.

    >>> find_test("test_a.Cart.test_sum", ["tests/test_a.py::Cart::test_sum[1]", "tests/test_a.py::Cart::test_sum[2]"])
    'tests/test_a.py::Cart::test_sum'
    """
    wanted, parameters = _split_name(name)
    nodes: dict[tuple[str, ...], str] = {}
    for nodeid in known:
        parts, found = _split_name(nodeid)
        file = nodeid.partition("::")[0]
        folders = len(_split_name(file)[0])
        bare = strip_parameters(nodeid)
        for end in range(folders, len(parts) + 1):
            nodes[parts[:end]] = "::".join(bare.split("::")[: end - folders + 1])
        if found:
            nodes[(*parts, found)] = nodeid
    ending = (*wanted, parameters) if parameters else wanted
    fitting = {node for parts, node in nodes.items() if parts[len(parts) - len(ending) :] == ending and ending}
    if not fitting and "::" in name:  # the class is left out
        file = name.partition("::")[0]
        last = ending[len(_split_name(file)[0]) :]
        fitting = {
            node for parts, node in nodes.items() if _is_of(file, node) and parts[len(parts) - len(last) :] == last
        }
    if name in fitting or len(fitting) == 1:
        return name if name in fitting else fitting.pop()
    if fitting:
        shown = join_first(sorted(fitting), most=_MAX_CANDIDATES)
        raise UsageError(f"{name} fits several tests: {shown}.", hint="name one of them in full")
    if name.partition("::")[0].endswith(".py"):
        return name
    bases = sorted({strip_parameters(nodeid) for nodeid in known})
    by_name = {base.rpartition("::")[2]: base for base in bases}
    nearest = suggest(wanted[-1] if wanted else name, by_name, otherwise="")
    hint = (
        f"did you mean {by_name[nearest]}?"
        if nearest
        else "name a test file, or a test such as tests/test_a.py::test_b"
    )
    raise UsageError(f"There is no test {name}.", hint=hint)


def _split_name(name: str) -> tuple[tuple[str, ...], str]:
    """Return the parts of a path, of a node id or of a dotted name, and the parameters."""
    bare, bracket, parameters = name.partition("[")
    bare = bare.replace(".py::", "::").removesuffix(".py")
    return tuple(filter(None, re.split(r"::|[./]", bare))), bracket + parameters


def _list_tests_in_files(target: str, *, locks: PhaseLocks, context: Context) -> Iterator[str]:
    """Yield the node ids of the functions and methods in test files that have the last part of ``target`` as name."""
    parts = _split_name(target)[0]
    for path in context.workspace.list_files() if parts else ():
        if not (path.endswith(".py") and locks.layout.is_test(context.to_repository_path(path))):
            continue
        text, scope = "", ""
        with suppress(UsageError):  # of a binary file
            text = context.workspace.read_text(path).text
        for each in list_definitions(path, text) if parts[-1] in text else ():
            scope = each.name if each.depth == 0 else scope
            if each.name == parts[-1]:
                yield f"{path}::{each.name}" if each.depth == 0 else f"{path}::{scope}::{each.name}"


def _require_test(target: str, context: Context) -> None:
    # The model could pass an option that loads a plugin, or @file, which pytest reads options from.
    if target.startswith(("-", "@")):
        raise UsageError(
            f"{target} is an option, not a test.", hint="give test files or node ids, such as tests/test_a.py::test_b"
        )
    context.workspace.resolve(target.partition("::")[0])


def _make_access(locks: PhaseLocks, context: Context) -> Access:
    # Files that do not exist yet, or beyond the maximum, cannot be locked here: the verdict finds their changes.
    tests = locks.tests if locks.phase != "red" else ()
    locked = [context.workplace.tree.root / path for path in tests]
    return context.suite.build_access(locked=tuple(locked[:MAX_LOCKED_FILES]), tests_too=locks.phase != "red")
