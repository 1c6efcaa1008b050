"""mocha: a JSON report, in which titles are joined by spaces, and which is not written if a file cannot load."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.javascript.files import is_mochas_test
from cdd_agent.testrun.frameworks.javascript.manifests import Tool, find_tool
from cdd_agent.testrun.frameworks.javascript.reports import sources, written
from cdd_agent.testrun.frameworks.javascript.reports.thrown import Setting, failure, printed, relative, without_colour
from cdd_agent.testrun.frameworks.javascript.selection import SEPARATOR, full_names, numbered, select, spelled
from pytest_tdd_agent.report import Case, CollectError

_TOOL = Tool(name="mocha", drops=("-w",), configuration=(".mocharc*",), key="mocha")
_RESULT = "mocha.json"
_HOOK = re.compile(r'"(?P<when>before|after) (?:each|all)" hook[^\n]*?(?: for "(?P<test>.*)"| in ".*")?', re.DOTALL)
_PHASES = {"before": "setup", "after": "teardown"}
_UNLOADED = re.compile(r"^\s*(?:✖ ERROR: ?|Exception during run: )(?P<said>.+)", re.MULTILINE | re.DOTALL)
_PLAIN_UNLOADED = re.compile(r"^(?P<said>(?:/|file://).+?:\d+\n.+)", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"imported from (?P<importer>\S+)|\[ @(?P<parsed>\S+) \]|^- (?P<required>/\S+)", re.MULTILINE)


class _Thrown(msgspec.Struct, frozen=True):
    name: str | None = None
    message: str | None = None
    stack: str | None = None


class _Test(msgspec.Struct, rename="camel"):
    title: str
    full_title: str
    file: str | None = None
    duration: float | None = None
    current_retry: int = 0
    err: _Thrown = _Thrown()

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other tests, as far as mocha does."""
        return self.file or "", self.full_title


class _Run(msgspec.Struct):
    tests: list[_Test]
    pending: list[_Test] = []
    failures: list[_Test] = []


def _find(folder: Path) -> Finding | None:
    return find_tool(folder, _TOOL)


def _arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Files come on top of those that mocha's configuration names, which is why the others may come along."""
    selection = select(targets)
    named = (f"--grep={full_names(selection.names)}",) if selection.names else ()
    recursive = () if all(map(is_mochas_test, selection.paths)) else ("--recursive",)
    return (
        "--reporter=json",
        f"--reporter-option=output={results / selection.result(_RESULT)}",
        "--no-bail",
        "--no-color",
        *recursive,
        *named,
        *map(spelled, selection.paths),
    )


def _read(ended: Ended) -> Results:
    path, _ = written.found_result(ended, _RESULT)
    try:
        run = msgspec.json.decode(read_ordinary(path, limit_bytes=written.LIMIT_BYTES), type=_Run)
    except FileNotFoundError:
        return _unloaded(ended)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Results(problem=f"The results that mocha wrote cannot be read: {error}")
    return written.unexplained(ended, Results(tests=tuple(_cases(run, ended.root))), tool="mocha")


def _cases(run: _Run, root: Path) -> Iterator[Case]:
    """The tests in their order; a hook that failed stands for the test that it was to prepare or to clean up after."""
    describes = sources.Describes(root)
    pending = Counter(test.key for test in run.pending)
    in_tests = {id(test) for test in run.tests}
    listed = Counter(test.key for test in run.tests)
    hooks = [(test, found) for test in run.failures if (found := _HOOK.fullmatch(test.title)) and not listed[test.key]]
    by_test = {_hooked(test, found): (test, _PHASES[found["when"]]) for test, found in hooks}
    tests = [*run.tests, *(test for test in map(_of_hook, hooks) if test.key not in listed)]
    ids = numbered(f"{relative(test.file or '', root)}::{_name(test, describes)}" for test in tests)
    for nodeid, test in zip(ids, tests, strict=True):
        hook = by_test.get(test.key)
        is_pending = id(test) in in_tests and pending[test.key] > 0 and not test.err.message
        if is_pending:
            pending[test.key] -= 1
        yield _case(nodeid, test, root=root, hook=hook, is_pending=is_pending)


def _case(nodeid: str, test: _Test, *, root: Path, hook: tuple[_Test, str] | None, is_pending: bool) -> Case:
    file = relative(test.file or "", root)
    thrown = test.err.stack or test.err.message
    outcome, why = "skipped" if is_pending else "passed", None
    if thrown:
        setting = Setting(root=root, file=file, is_test=is_mochas_test)
        outcome, why = "failed", failure(_text(test.err), setting)
    elif hook is not None:
        setting = Setting(root=root, file=file, is_test=is_mochas_test, phase=hook[1])
        outcome, why = "error", failure(_text(hook[0].err), setting)
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=file,
        line=0,
        duration_s=max(test.duration or 0.0, 0.0) / 1000,
        reruns=test.current_retry,
        failure=why,
    )


def _text(thrown: _Thrown) -> str:
    """Class, message and stack, as node shows them."""
    name, message, stack = thrown.name or "", thrown.message or "", thrown.stack or ""
    if message and message not in stack:
        stack = f"{message}\n{stack}"
    return stack if not name or stack.startswith(name) else f"{name}: {stack}"


def _hooked(hook: _Test, found: re.Match[str]) -> tuple[str, str]:
    """The key of the test that a hook was for; if it was for no certain one, the hook's own."""
    return _of_hook((hook, found)).key


def _of_hook(pair: tuple[_Test, re.Match[str]]) -> _Test:
    """The test that a hook was for, which did not run if that came before it."""
    hook, found = pair
    title = found["test"]
    if title is None:
        return _Test(title=hook.title, full_title=hook.full_title, file=hook.file)
    full_title = hook.full_title.removesuffix(hook.title) + title
    return _Test(title=title, full_title=full_title, file=hook.file)


def _name(test: _Test, describes: sources.Describes) -> str:
    above = test.full_title.removesuffix(test.title).strip()
    return SEPARATOR.join((*describes.split(above, test.file or ""), test.title))


def _unloaded(ended: Ended) -> Results:
    """The file that could not be loaded, for which mocha runs no test of any file."""
    output = without_colour(ended.output)
    found = _UNLOADED.search(output) or _PLAIN_UNLOADED.search(output)
    if ended.exit_status == 0 or found is None:
        return Results(problem=written.unwritten(ended, "mocha"))
    said = printed(found["said"])
    unset = Setting(root=ended.root, file="", is_test=is_mochas_test, phase="collect")
    first = failure(said, unset)
    named = _FILE.search(said)
    told = next((relative(path, ended.root) for path in named.groups() if path), "") if named else ""
    own = [frame.path for frame in first.frames if is_mochas_test(frame.path)]
    file = told if is_mochas_test(told) else own[0] if own else ""
    file = file or sources.importer(ended.root, said, is_test=is_mochas_test) or told or first.path or "."
    setting = Setting(root=ended.root, file=file, is_test=is_mochas_test, phase="collect")
    return Results(collect_errors=(CollectError(file, failure(said, setting)),))


MOCHA = Framework(
    name="mocha",
    looked_for="mocha in a package.json's dependencies or scripts, or a .mocharc file",
    find=_find,
    arguments=_arguments,
    read=_read,
    is_test=is_mochas_test,
    variables=(("NO_COLOR", "1"), ("FORCE_COLOR", "0")),
)
