"""Which files are tests or decide how they are run, by their names alone.

From targets to what a framework is told to run: files, and patterns of names. Pure.

The tools know a test by a pattern over its titles joined by spaces, for all files of a run at once. So what is selected
may be more than the targets, and never less.


What can only be told by the text of test files, where a tool's report leaves it out.

The JSON that jest and vitest write of a run: one format, jest's, which both call JSON. Pure but for one file.

The events of ``node --test`` as our reporter writes them, one a line, and what they come to. Pure.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Results
from cdd_agent.testrun.frameworks.javascript_errors import Setting, failure, printed, relative, without_colour
from pytest_tdd_agent.report import FAILING, Case, CollectError, Failure

_FOLDERS = frozenset({"__tests__", "__mocks__", "__snapshots__"})
_TEST = re.compile(r".+\.(?:test|spec)\.[cm]?[jt]sx?(?:\.snap)?")
_CONFIGURATION = re.compile(
    r"(?:vitest|jest)\.(?:[\w-]+\.)*(?:config|workspace|projects|setup|preset)(?:\.[\w-]+)*\.(?:[cm]?[jt]s|json)"
    r"|(?:vitest|jest|mocha|test)[.-]?(?:global)?[.-]?(?:setup|teardown|environment)\w*\.[cm]?[jt]sx?"
    r"|setup[.-]?(?:tests?|jest|vitest|mocha)\w*\.[cm]?[jt]sx?"
    r"|\.mocharc\.(?:[cm]?js|json[c5]?|ya?ml)|\.mocharc|mocha\.opts",
    re.IGNORECASE,
)
_NODES = re.compile(r"(?:test-.+|.+[-_]test|test)\.[cm]?[jt]s")
_NODES_FOLDER = "test"
_SOURCE = re.compile(r".+\.[cm]?[jt]sx?")


def is_test(path: str) -> bool:
    """Whether a file is one of the tests, their mocks and snapshots, or configures and prepares them.

    ``package.json`` is not, as most of what it says is the product's.
    """
    folders, name = posixpath.split(path)
    return (
        not _FOLDERS.isdisjoint(folders.split("/"))
        or _TEST.fullmatch(name) is not None
        or _CONFIGURATION.fullmatch(name) is not None
    )


def is_nodes_test(path: str) -> bool:
    """Whether a file is a test for ``node --test``, which also has names of its own and the folder ``test``."""
    folders, name = posixpath.split(path)
    is_in_folder = _NODES_FOLDER in folders.split("/") and _SOURCE.fullmatch(name) is not None
    return is_test(path) or is_in_folder or _NODES.fullmatch(name) is not None


def is_mochas_test(path: str) -> bool:
    """Whether a file is a test for mocha, which runs what it finds in the folder ``test`` if nothing else is said."""
    folders, name = posixpath.split(path)
    return is_test(path) or (folders.split("/")[0] == _NODES_FOLDER and _SOURCE.fullmatch(name) is not None)


def is_file(target: str) -> bool:
    """Whether a target without a test's name is a file, not a folder, by its name."""
    return _SOURCE.fullmatch(posixpath.basename(target)) is not None


SEPARATOR = " > "
"""Between the titles of a node id."""
SELECTED = "selected"
"""What the name of a result file begins with if tests were left out by their names."""

_REPEATED = re.compile(r" \(\d+\)\Z")
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Files and folders to run, and the names of tests in them; no names: all of them."""

    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def result(self, name: str) -> str:
        """The name of the file to write results to, which says whether tests are left out."""
        return f"{SELECTED}-{name}" if self.names else name


def select(targets: Iterable[str]) -> Selection:
    """The selection that has all targets in it: node ids, files and folders."""
    pairs = [target.partition("::")[::2] for target in targets]
    paths = tuple(dict.fromkeys(path for path, _ in pairs if path))
    is_named = all(path and name for path, name in pairs)
    return Selection(paths=paths, names=tuple(dict.fromkeys(name for _, name in pairs)) if is_named else ())


def spelled(path: str) -> str:
    """A path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def escaped(text: str) -> str:
    """A pattern of JavaScript's that matches just ``text``."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def full_names(names: Iterable[str]) -> str:
    """A pattern for whole names, titles being joined by spaces; it does not matter which `` > `` is part of a title."""
    return rf"(?:^|\s)(?:{'|'.join(map(_joined, _unnumbered(names)))})$"


def titles(names: Iterable[str]) -> str:
    """A pattern for each title on the way to the tests, for a tool that asks at each level whether to go on."""
    found: dict[str, None] = {}
    for name in _unnumbered(names):
        parts = name.split(SEPARATOR)
        found.update(dict.fromkeys(parts))
        found.update(dict.fromkeys(SEPARATOR.join(parts[start:]) for start in range(len(parts))))
    return rf"^(?:{'|'.join(map(escaped, found))})$"


def numbered(names: Iterable[str]) -> list[str]:
    """The same names, those that come again told apart by a number: ``name (2)``."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return told


def _unnumbered(names: Iterable[str]) -> list[str]:
    """Each name, and what it is without a number that ``numbered`` may have put there."""
    return list(dict.fromkeys(told for name in names for told in (name, _REPEATED.sub("", name))))


def _joined(name: str) -> str:
    return rf"(?:{re.escape(SEPARATOR)}| )".join(map(escaped, name.split(SEPARATOR))).replace(r"\ ", " ")


_LIMIT_BYTES = 2 * 1024 * 1024
_FILES_CAP = 2000
_SOURCES_LEFT_OUT = frozenset({"node_modules", ".git", "dist", "build", "coverage"})
_DESCRIBE = re.compile(
    r"\b(?:describe|context|suite)(?:\.(?:only|skip))?\s*\(\s*(?P<quote>[\"'`])(?P<title>(?:\\.|(?!(?P=quote)).)*)(?P=quote)",
    re.DOTALL,
)
_SPECIFIER = re.compile(r"(?:module|package) ['\"](?P<specifier>[^'\"\n]+)['\"]")
_EXPORT = re.compile(r"export named ['\"](?P<name>[^'\"\n]+)['\"]")


def text_of(path: Path) -> str:
    """The text of an ordinary file; nothing if it cannot be read."""
    try:
        return read_ordinary(path, limit_bytes=_LIMIT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


class Describes:
    """The titles of groups in test files, which a report gives joined by spaces."""

    def __init__(self, root: Path) -> None:
        """Nothing is read before it is asked for."""
        self._root = root
        self._titles: dict[str, tuple[str, ...]] = {}

    def split(self, joined: str, file: str) -> tuple[str, ...]:
        """The titles that ``joined`` is made of; if the file does not tell, it is taken for one."""
        if not joined:
            return ()
        if file not in self._titles:
            found = _DESCRIBE.finditer(text_of(self._root / file))
            plain = {re.sub(r"\\(.)", r"\1", match["title"]) for match in found}
            self._titles[file] = tuple(sorted(filter(None, plain), key=len, reverse=True))
        return _split(joined, self._titles[file], left=64) or (joined,)


def _split(joined: str, titles: tuple[str, ...], *, left: int) -> tuple[str, ...] | None:
    """Titles that make up ``joined``, longest first; None if there are none."""
    if joined in titles:
        return (joined,)
    for title in titles if left else ():
        if joined.startswith(f"{title} "):
            rest = _split(joined[len(title) + 1 :], titles, left=left - 1)
            if rest is not None:
                return (title, *rest)
    return None


def importer(root: Path, said: str, *, is_test: Callable[[str], bool]) -> str | None:
    """The one test file that imports what an error message says is missing; None if there is none, or more."""
    module, name = _SPECIFIER.search(said), _EXPORT.search(said)
    if module is None:
        return None
    wanted = [module["specifier"], *([name["name"]] if name else [])]
    found = []
    for path in _test_files(root, is_test):
        text = text_of(root / path)
        if all(word in text for word in wanted):
            found.append(path)
    return found[0] if len(found) == 1 else None


def _test_files(root: Path, is_test: Callable[[str], bool]) -> Iterator[str]:
    seen = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if name not in _SOURCES_LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name).relative_to(root).as_posix()
            seen += 1
            if seen > _FILES_CAP:
                return
            if is_test(path):
                yield path


LIMIT_BYTES = 64 * 1024 * 1024
"""Of a result file that is read."""
_TAIL_LINES = 12
_OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "pending": "skipped",
    "skipped": "skipped",
    "disabled": "skipped",
    "todo": "xfailed",
}
_SUITE_FAILED = "Test suite failed to run"
_HOOK = "_callCircusHook"
"""jest's function that a hook is called by: it stands in the stack of what a hook threw."""


class _Location(msgspec.Struct):
    line: int = 0


class _Assertion(msgspec.Struct, rename="camel"):
    title: str
    status: str
    ancestor_titles: list[str] = []
    failure_messages: list[str] | None = None
    failure_details: list[object] | None = None
    duration: float | None = None
    location: _Location | None = None
    failing: bool = False
    invocations: int | None = None


class _File(msgspec.Struct, rename="camel"):
    name: str
    status: str = ""
    message: str | None = None
    assertion_results: list[_Assertion] = []


class _WrittenRun(msgspec.Struct, rename="camel"):
    test_results: list[_File]
    was_interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What is one tool's own in the format."""

    tool: str
    result: str
    """Name of the file that it is told to write, as without a selection."""
    is_test: Callable[[str], bool]


def found_result(ended: Ended, result: str) -> tuple[Path, bool]:
    """The result file of a run, and whether tests were left out of it by their names."""
    selected = ended.results / f"{SELECTED}-{result}"
    return (selected, True) if selected.is_symlink() or selected.exists() else (ended.results / result, False)


def unwritten(ended: Ended, tool: str) -> str:
    """Why there are no results, with what was printed last."""
    return f"{tool} ended with status {ended.exit_status} and wrote no results{last_words(ended.output)}"


def last_words(output: str) -> str:
    """``: `` and the last lines that were printed; nothing if there are none."""
    lines = [line.rstrip() for line in without_colour(output).splitlines() if line.strip()]
    return ":\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else ""


def unexplained(ended: Ended, results: Results, *, tool: str) -> Results:
    """The same results, with a problem if the command failed and nothing in them says why."""
    is_explained = bool(results.collect_errors) or any(case.outcome in FAILING for case in results.tests)
    if results.problem is not None or ended.exit_status == 0 or is_explained:
        return results
    what = "no test failed" if results.tests else "no test ran"
    problem = f"{tool} ended with status {ended.exit_status} though {what}{last_words(ended.output)}"
    return Results(tests=results.tests, collect_errors=results.collect_errors, problem=problem)


def read(ended: Ended, form: Format) -> Results:
    """The results of a run of jest or vitest."""
    path, is_selected = found_result(ended, form.result)
    try:
        run = msgspec.json.decode(read_ordinary(path, limit_bytes=LIMIT_BYTES), type=_WrittenRun)
    except FileNotFoundError:
        return Results(problem=unwritten(ended, form.tool))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Results(problem=f"The results that {form.tool} wrote cannot be read: {error}")
    tests = tuple(_cases(run, ended.root, form=form, is_selected=is_selected))
    errors = tuple(_errors(run, ended.root, form=form))
    problem = f"{form.tool} was interrupted{last_words(ended.output)}" if run.was_interrupted else None
    return unexplained(ended, Results(tests=tests, collect_errors=errors, problem=problem), tool=form.tool)


def _cases(run: _WrittenRun, root: Path, *, form: Format, is_selected: bool) -> Iterator[Case]:
    pairs = [(relative(file.name, root), test) for file in run.test_results for test in file.assertion_results]
    ids = numbered(f"{file}::{SEPARATOR.join((*test.ancestor_titles, test.title))}" for file, test in pairs)
    for nodeid, (file, test) in zip(ids, pairs, strict=True):
        outcome = _OUTCOMES.get(test.status, "error")
        if not (is_selected and outcome == "skipped"):  # those of other names; a target that is skipped is among them
            yield _written_case(
                nodeid, test, outcome=outcome, setting=Setting(root=root, file=file, is_test=form.is_test)
            )


def _written_case(nodeid: str, test: _Assertion, *, outcome: str, setting: Setting) -> Case:
    said = "\n".join(test.failure_messages or ())
    is_hooks = _HOOK in said and "_callCircusTest" not in said.partition(_HOOK)[0]
    if is_hooks and outcome == "failed":
        outcome = "error"
        setting = Setting(root=setting.root, file=setting.file, is_test=setting.is_test, phase="setup")
    if outcome == "passed" and test.failing:
        outcome = "xfailed"
    why = failure(said, setting, is_expectation=_is_matchers(test)) if outcome in FAILING else None
    return Case(
        nodeid=nodeid,
        outcome=outcome,
        file=setting.file,
        line=test.location.line if test.location else 0,
        duration_s=max(test.duration or 0.0, 0.0) / 1000,
        reruns=max((test.invocations or 1) - 1, 0),
        failure=why,
    )


def _is_matchers(test: _Assertion) -> bool:
    return any(isinstance(detail, dict) and "matcherResult" in detail for detail in test.failure_details or ())


def _errors(run: _WrittenRun, root: Path, *, form: Format) -> Iterator[CollectError]:
    """Files that could not be loaded, and those that failed although none of their tests did."""
    for file in run.test_results:
        said = without_colour(file.message or "")
        has_failed = any(_OUTCOMES.get(test.status, "error") in FAILING for test in file.assertion_results)
        is_of_file = not file.assertion_results or _SUITE_FAILED in said or not has_failed
        if file.status == "failed" and is_of_file:
            name = relative(file.name, root)
            setting = Setting(root=root, file=name, is_test=form.is_test, phase="collect")
            yield CollectError(name, failure(_of_suite(said) or _UNSAID.format(form.tool), setting))


_UNSAID = "The file failed, though none of its tests did, and {} does not say why: perhaps a hook after them"


def _of_suite(said: str) -> str:
    """What jest says under the heading that a file could not be run, without its indentation."""
    _, found, rest = said.partition(f"● {_SUITE_FAILED}")
    lines = (rest if found else said).strip("\n").splitlines()
    text = "\n".join(line.removeprefix("    ") for line in lines).strip("\n")
    details = text.partition("\nDetails:\n")[2]
    if text.startswith("Jest encountered an unexpected token") and details:
        return f"{details.strip()}\n\n{text}"
    return text


REPORTER = """
const KEPT = new Set(["test:enqueue", "test:start", "test:pass", "test:fail", "test:stderr"]);
const plain = (error, depth) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  const { name, message, stack, failureType, exitCode, cause } = error;
  const told = { name, message, stack, failureType };
  for (const key in told) told[key] = told[key] === undefined ? undefined : String(told[key]);
  return { ...told, exitCode, cause: cause === undefined || depth > 8 ? undefined : plain(cause, depth + 1) };
};
export default async function* (source) {
  for await (const { type, data } of source) {
    if (!KEPT.has(type)) continue;
    const { name, nesting, file, line, message, details, skip, todo } = data;
    const marks = { skip: skip === true ? "" : skip, todo: todo === true ? "" : todo };
    const error = details?.error ? plain(details.error, 0) : undefined;
    const told = { isSuite: details?.type === "suite", duration: details?.duration_ms, error, ...marks };
    yield JSON.stringify({ type, name, nesting, file, line, message, ...told }) + "\\n";
  }
  yield '{"type":"end"}\\n';
}
"""
"""A module for ``--test-reporter``; the last line says that the run came to its end."""

_EVENTS_LEFT_OUT = "test name does not match pattern"
_USES_RUNNER = re.compile(r"['\"]node:test['\"]")


class _Error(msgspec.Struct, rename="camel"):
    name: str | None = None
    message: str | None = None
    stack: str | None = None
    failure_type: str = ""
    exit_code: int | None = None
    cause: "_Error | None" = None


class _Event(msgspec.Struct, rename="camel"):
    type: str
    name: str = ""
    nesting: int = 0
    file: str = ""
    line: int = 0
    message: str = ""
    is_suite: bool = False
    duration: float = 0.0
    skip: str | bool | None = None
    todo: str | bool | None = None
    error: _Error | None = None


@dataclass(slots=True)
class _EventsRun:
    """What is known after some of the events."""

    root: Path
    is_selected: bool
    titles: dict[str, list[str]] = field(default_factory=dict)
    """File -> those of what has begun, outermost first."""
    parents: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    """Those with a test that ended."""
    printed: dict[str, list[str]] = field(default_factory=dict)
    """File -> what it printed as errors."""
    open: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """What has begun and has not ended."""
    tests: list[Case] = field(default_factory=list)
    errors: list[CollectError] = field(default_factory=list)
    exited: list[str] = field(default_factory=list)
    """Files that ended well, though the tests in them did not."""


def results(text: str, ended: Ended, *, is_selected: bool) -> Results:
    """What the events in ``text`` come to; ``ValueError`` for a line that is none.

    ``is_selected``: tests were left out by their names.
    """
    run = _EventsRun(root=ended.root, is_selected=is_selected)
    is_whole = False
    for line in text.splitlines():
        event = msgspec.json.decode(line, type=_Event)
        is_whole = event.type == "end"
        _take(event, run)
    ids = numbered(case.nodeid for case in run.tests)
    tests = tuple(replace(case, nodeid=nodeid) for case, nodeid in zip(run.tests, ids, strict=True))
    return Results(tests=tests, collect_errors=tuple(run.errors), problem=_problem(run, is_whole=is_whole))


def _problem(run: _EventsRun, *, is_whole: bool) -> str | None:
    if not is_whole:
        return "node --test was cut off: its events have no end"
    if run.exited:
        return f"{run.exited[0]} ended before its tests did, as process.exit() lets it"
    if run.open:
        file, _, name = next(iter(run.open))
        return f"{relative(file, run.root)}::{name} has begun and has not ended"
    return None


def _take(event: _Event, run: _EventsRun) -> None:
    if event.type == "test:stderr":
        run.printed.setdefault(relative(event.file, run.root), []).append(event.message)
    elif _is_of_file(event, run.root):
        if event.type in ("test:pass", "test:fail"):
            _take_file(event, run)
    elif event.type == "test:enqueue":
        key = (event.file, event.nesting, event.name)
        run.open[key] = run.open.get(key, 0) + 1
    elif event.type == "test:start":
        run.titles.setdefault(event.file, [])[event.nesting :] = [event.name]
    elif event.type in ("test:pass", "test:fail"):
        _take_end(event, run)


def _is_of_file(event: _Event, root: Path) -> bool:
    """Whether an event is about a whole file, which node reports as a test with the file's path for its name."""
    return event.nesting == 0 and bool(event.file) and event.file in (event.name, str(root / event.name))


def _take_file(event: _Event, run: _EventsRun) -> None:
    file = relative(event.file, run.root)
    if event.error is None:
        if event.file in run.files or run.is_selected:  # none of its tests may be among those that were asked for
            return
        if _USES_RUNNER.search(text_of(Path(event.file))) and event.skip is None:
            run.exited.append(file)
        else:
            run.tests.append(_events_case(event, nodeid=file, file=file, outcome=_outcome(event)))
    elif event.error.failure_type != "subtestsFailed":
        said = printed("".join(run.printed.get(file, ()))) or _text(event.error)
        run.errors.append(CollectError(file, failure(said, _setting(run, file, phase="collect"))))


def _take_end(event: _Event, run: _EventsRun) -> None:
    key = (event.file, event.nesting, event.name)
    if run.open.get(key, 0) > 1:
        run.open[key] -= 1
    else:
        run.open.pop(key, None)
    run.files.add(event.file)
    above = tuple(run.titles.get(event.file, ())[: event.nesting])
    run.parents.update((event.file, above[:depth]) for depth in range(1, len(above) + 1))
    if event.skip == _EVENTS_LEFT_OUT:
        return
    file = relative(event.file, run.root)
    path = (*above, event.name)
    nodeid = f"{file}::{SEPARATOR.join(path)}"
    is_group = event.is_suite or (event.file, path) in run.parents
    if not is_group:
        run.tests.append(_judged(event, run, nodeid=nodeid))
    elif event.error is not None and event.error.failure_type not in ("subtestsFailed", "cancelledByParent"):
        if event.is_suite and event.error.failure_type != "hookFailed":
            run.errors.append(CollectError(nodeid, _failure(event.error, run, file=file, phase="collect")))
        else:
            run.tests.append(_judged(event, run, nodeid=nodeid))


def _judged(event: _Event, run: _EventsRun, *, nodeid: str) -> Case:
    file = relative(event.file, run.root)
    outcome = _outcome(event)
    why = None
    if outcome in ("failed", "error") and event.error is not None:
        why = _failure(event.error, run, file=file, phase=_phase(event.error))
    return _events_case(event, nodeid=nodeid, file=file, outcome=outcome, why=why)


def _events_case(event: _Event, *, nodeid: str, file: str, outcome: str, why: Failure | None = None) -> Case:
    duration_s = max(event.duration, 0.0) / 1000
    return Case(nodeid=nodeid, outcome=outcome, file=file, line=event.line, duration_s=duration_s, failure=why)


def _outcome(event: _Event) -> str:
    if event.skip not in (None, False):
        return "skipped"
    if event.todo not in (None, False):
        return "xfailed" if event.error else "xpassed"
    if event.error is None:
        return "passed"
    return "error" if _phase(event.error) != "call" else "failed"


def _phase(error: _Error) -> str:
    if error.failure_type == "cancelledByParent":
        return "setup"
    if error.failure_type == "hookFailed":
        return "teardown" if "after" in (error.message or "") else "setup"
    return "call"


def _failure(error: _Error, run: _EventsRun, *, file: str, phase: str) -> Failure:
    return failure(_text(error.cause or error), _setting(run, file, phase=phase))


def _text(error: _Error) -> str:
    said = f"{error.name}: {error.message}" if error.name else error.message or ""
    return error.stack if error.stack and (error.message or "") in error.stack else "\n".join(_lines(said, error.stack))


def _lines(*texts: str | None) -> Iterator[str]:
    return (text for text in texts if text)


def _setting(run: _EventsRun, file: str, *, phase: str) -> Setting:
    return Setting(root=run.root, file=file, is_test=is_nodes_test, phase=phase)
