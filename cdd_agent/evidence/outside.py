"""Outside of a test run, the product must give the same results.

Calls that the targets make are recorded and answered in the test process, then in a plain Python process: without
pytest, without the tests on disk or on the path, under another path, with other arguments and variables. Results that
depend on the surroundings in an ordinary way (files, current folder, variables, earlier calls, what test files set up)
are left out.

``check_origins`` tells from where a run in a clean copy imported the project's modules: only a module of the copy has
been checked.
"""

import ast
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.errors import format_count, join_first
from cdd_agent.evidence.clean_copy import COMPILED, CheckRequest, Findings, list_test_functions, note, refuse
from cdd_agent.evidence.differential import (
    ENDLESS,
    MISSING,
    MOST_TEXT,
    UNFIT,
    UNREADABLE,
    Answered,
    ComparedTrees,
    NotComparedError,
    Recorded,
    find_changed_code,
    list_changed_behavior,
    list_watched,
    make_task,
    read_product,
    run_calls,
    select_tests,
)
from cdd_agent.evidence.mutation import SHORTEST_S, TimedRuns
from cdd_agent.evidence.source import Function, name_definitions, parse
from cdd_agent.sandbox.port import ISOLATING_LEVELS
from cdd_agent.testrun import inside
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, list_modules
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.untrusted.paths import is_environment
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.fingerprint import PACKAGES_FOLDERS

_SECONDS = 4.0
"""For the tests that are recorded; each run answers for half of it."""
_MOST_BYTES = 10_000_000
_MOST_SHOWN = 3
_PACKAGE = "cdd_calls_"
"""The beginning of the name of the package that answers calls; as ``run_calls`` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The result of the comparison."""

    findings: Findings = field(default_factory=Findings)
    compared: str = ""
    """The number of calls that have the same results, and their functions. Empty if there are none."""
    changes: Findings = field(default_factory=Findings)
    """What else the change changes."""


class _TargetCall(msgspec.Struct):
    module: str
    name: str


class _TargetCalls(msgspec.Struct):
    calls: list[_TargetCall]
    root: str
    path: list[str]
    modules: dict[str, str]
    """Loaded module of the project -> its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StableAnswers:
    texts: Mapping[int, str]
    """Index of a call -> its answer, if it has the same one twice."""
    shown: Mapping[int, str]
    lacking: Mapping[str, str]
    """Module that cannot be imported -> the module that it lacks."""


def compare_outside(
    request: CheckRequest, *, copy: Suite, runs: TimedRuns, trees: ComparedTrees | None = None
) -> Outside:
    """Compare the calls of the targets with the same calls in a plain process. Raises ``TimeUp`` and ``OSError``.

    With ``trees``, the code before answers the recorded calls too. Like a differential run, it makes calls without what
    tests replace for them, so the sandbox has to isolate it.
    """
    if not isinstance(copy, PytestSuite) or copy.sandbox.level not in ISOLATING_LEVELS:
        return Outside()
    suite = replace(copy, hash_seed="1")
    comparison = _Comparison(request=request, suite=suite, runs=runs, trees=trees)
    try:
        found = comparison.compare()
    except NotComparedError as error:
        found = Outside(findings=note(f"Not compared with a plain Python process: {error.happened}."))
    if trees is None or found.findings.reasons:
        return found
    return replace(found, changes=list_changed_behavior(trees, runs=runs, recorded=comparison.recorded))


@dataclass(slots=True, kw_only=True)
class _Comparison:
    request: CheckRequest
    suite: PytestSuite
    runs: TimedRuns
    trees: ComparedTrees | None
    recorded: Recorded | None = None
    """The answers for the comparison with the code before, which need no second recording."""

    def compare(self) -> Outside:
        """Compare the calls, in two processes more if results differ."""
        tests = list_test_functions(self.request.targets)
        answered = self._record(tests)
        task, in_tests = msgspec.json.decode(answered.task, type=dict[str, object]), _read(answered.lines)
        try:
            recording = msgspec.json.decode(answered.task, type=_TargetCalls)
        except msgspec.DecodeError as error:
            raise NotComparedError(f"the calls cannot be read: {error}", hint="") from error
        paths = {change.path for change in self.request.changes}
        recording.modules = {name: path for name, path in recording.modules.items() if path in paths}
        if not (recording.calls or recording.modules):
            return Outside()
        plain = self._answer_plainly(task, recording=recording)
        if (reason := self._find_import(plain, recording=recording)) is not None:
            return Outside(findings=reason)
        both = [index for index, text in in_tests.texts.items() if index in plain.texts]
        differing = [index for index in both if in_tests.texts[index] != plain.texts[index]]
        if differing:
            # Some results depend on what test files do when they are imported, or on what tests did.
            files = tuple(dict.fromkeys(test.partition("::")[0] for test in tests))
            again, _ = run_calls(self.suite, "the same calls without the tests", task=task, tests=files, runs=self.runs)
            assert again is not None
            fresh = _read(again.lines)
            prepared = self._answer_plainly(task, recording=recording, targets=files)
            counting = [
                index
                for index in differing
                if fresh.texts.get(index) == in_tests.texts[index]
                and prepared.texts.get(index, fresh.texts[index]) != fresh.texts[index]
            ]
            if counting:
                call = min(counting, key=lambda index: (len(in_tests.shown[index]), index))
                file = recording.modules.get(recording.calls[call].module, recording.calls[call].module)
                what = f"{in_tests.shown[call]} of {file}"
                return Outside(findings=_refuse_call(what, in_tests=in_tests.texts[call], plain=plain.texts[call]))
        names = dict.fromkeys(recording.calls[index].name for index in both if index not in differing)
        count = len(both) - len(differing)
        return Outside(
            compared=f"{format_count(count, 'call')} of {join_first(tuple(names), most=_MOST_SHOWN)}" if count else ""
        )

    def _record(self, tests: tuple[str, ...]) -> Answered:
        """Record the calls of the targets, and with them those for the comparison with the code before."""
        sources, code = dict(read_product(self.suite)), find_changed_code(self.request.changes)
        own = {
            (change.path, name): code.functions.get((change.path, name), False)
            for change in self.request.changes
            for name, node in name_definitions(parse(sources.get(change.path, "")))
            if isinstance(node, Function)
        }
        watched = list_watched(replace(code, functions=own), sources)
        task = {**make_task(code, watched, product=sources), "as_test": True, "targets": tests}
        if self.trees is not None and not code.is_new:
            files = [test.partition("::")[0] for test in tests]
            others = select_tests(self.suite, self.trees.tests, code=code, watched=watched)
            tests = tuple(dict.fromkeys((*files, *others)))
        else:
            task |= {"alone": False, "seconds": _SECONDS}
        answered, alone = run_calls(self.suite, "calls of the targets", task=task, tests=tests, runs=self.runs)
        assert answered is not None
        if alone is not None:
            self.recorded = Recorded(watched=watched, tests=tests, answered=alone)
        return answered

    def _answer_plainly(
        self, task: Mapping[str, object], *, recording: _TargetCalls, targets: tuple[str, ...] = ()
    ) -> _StableAnswers:
        """Answer the calls in a plain process; with ``targets``, in one that has collected and removed their tests."""
        left_s = self.runs.left_s
        own = Path(inside.__file__)
        with tempfile.TemporaryDirectory(prefix="app-", ignore_cleanup_errors=True) as name:
            top = Path(name).resolve()
            root, run = top / "code" / self.suite.root.name, top / "run"
            (run / "empty").mkdir(parents=True)
            root.mkdir(parents=True)
            self._copy_files(root, tests=run / "kept" if targets else None)
            package = f"{_PACKAGE}plain"
            for file in ("__init__.py", "answers.py", "values.py"):
                (run / package).mkdir(exist_ok=True)
                shutil.copyfile(own.with_name(file), run / package / file)
            shutil.copyfile(own.with_name("plain.py"), run / "main.py")
            # What depends on the path alone is left out by the second process, which finds the project at its path.
            shown = self.suite.original.root if self.suite.original is not None and targets else root
            rest = {
                "package": package,
                "root": str(shown),
                "modules": [*recording.modules],
                "path": self._list_path(recording, root, shown=shown),
                "tests": str(run / "kept") if targets else "",
                "targets": targets,
            }
            (run / "task.json").write_bytes(encode_json({**task, **rest}))
            limit_s = max(SHORTEST_S, min(left_s, self.suite.timeout_s))
            ended = self.suite.with_timeout(limit_s).run_program(run / "main.py", root, is_shown=shown != root)
            self.runs.use(ended.duration_s)
            try:
                lines = ConfinedFolder(run).read("answers.jsonl", _MOST_BYTES).splitlines()
                answers = [msgspec.json.decode(line, type=tuple[int, str, str]) for line in lines]
            except (OSError, ValueError, msgspec.DecodeError) as error:
                raise NotComparedError(f"it left no answers: {error}", hint="") from error
        if not answers or answers[-1][0] != -1:
            raise NotComparedError(f"it ended early: {join_first(ended.output.splitlines()[-1:], most=1)}", hint="")
        return _read(answers)

    def _copy_files(self, root: Path, *, tests: Path | None) -> None:
        """Copy the product to ``root``, and its tests to ``tests`` or nowhere."""
        is_test, source = self.suite.conventions.is_test, self.suite.root
        if (source / ".git").is_dir():  # git needs its empty folders too
            shutil.copytree(source / ".git", root / ".git", symlinks=True)
        for folder, subfolders, names in os.walk(source):
            subfolders[:] = [
                each for each in subfolders if each not in (".git", "__pycache__") and not each.startswith(_PACKAGE)
            ]
            linked = [each for each in subfolders if os.path.islink(os.path.join(folder, each))]
            for name in (*names, *linked):
                file = Path(folder, name)
                inside = file.relative_to(source).as_posix()
                top = tests if is_test(inside) else root
                if top is not None:
                    (top / inside).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, top / inside, follow_symlinks=False)

    def _list_path(self, recording: _TargetCalls, root: Path, *, shown: Path) -> list[str]:
        """Return the folders of the project from which the tests import, in the copy."""
        found = []
        for entry in recording.path:
            inside = os.path.relpath(entry, recording.root)
            own = root / inside
            if not inside.startswith("..") and own.is_dir():
                found.append(str(shown / inside))
        return found

    def _find_import(self, plain: _StableAnswers, *, recording: _TargetCalls) -> Findings | None:
        """Return a refusal if a module of the product cannot be imported without one of the tests."""
        for module, lacking in plain.lacking.items():
            if module in recording.modules and lacking and self._is_of_tests(lacking, recording):
                message = (
                    f"{module} imports {lacking}, which belongs to the tests, so it cannot be used without them. "
                    "Implement the behavior in the product."
                )
                return refuse("only_under_test", message)
        return None

    def _is_of_tests(self, module: str, recording: _TargetCalls) -> bool:
        entries = [os.path.relpath(entry, recording.root) for entry in recording.path]
        folders = [self.suite.root / entry for entry in entries if not entry.startswith("..")]
        inside = module.replace(".", "/")
        return any((folder / path).exists() for folder in folders for path in (f"{inside}.py", inside) if inside)


def _read(lines: Iterable[tuple[int, str, str]]) -> _StableAnswers:
    texts: dict[int, list[str]] = {}
    shown, lacking = {}, {}
    for index, text, call in lines:
        if index == -2:
            lacking[call] = text
        elif index >= 0:
            texts.setdefault(index, []).append(text)
            shown[index] = call
    stable = {index: found[0] for index, found in texts.items() if found[0] == found[-1] and len(found) == 2}
    fit = {index: text for index, text in stable.items() if not _is_unfit(text)}
    return _StableAnswers(texts=fit, shown=shown, lacking=lacking)


def _refuse_call(call: str, *, in_tests: str, plain: str) -> Findings:
    message = (
        f"{call} {in_tests} in a test run, and {plain} in a plain Python process: without pytest, without the "
        "tests, in another folder. Remove what makes the result depend on being tested."
    )
    return refuse("only_under_test", message)


def _is_unfit(text: str) -> bool:
    """Return whether an answer shows nothing.

    A slow call may end in one process and not in another. A very long answer is about objects of the whole process.
    """
    return text == MISSING or text.startswith((UNFIT, UNREADABLE, ENDLESS)) or len(text) > MOST_TEXT


_UNVERIFIED = "Not verified: "


def check_origins(origins: Mapping[str, str], request: CheckRequest, *, copy: Suite, runs: TimedRuns) -> Findings:
    """Return what a run in ``copy`` did not verify, because it imported a module from elsewhere or a compiled one.

    A new module of the product that the tests import in place of one of theirs is a reason to refuse the change.
    """
    top = find_top(copy.root)
    others = [find_top(runs.suite.root)]
    if (original := runs.suite.original) is not None:
        # The run tree has the original's parts at the same places.
        inside = len(runs.suite.root.relative_to(others[0]).parts)
        others.append((original.root, *original.root.parents)[inside])
    own = {name: path for name, path in origins.items() if _is_below(path, top)}
    elsewhere = {name: path for name, path in origins.items() if name not in own and _is_of(path, others)}
    for change in request.changes:
        names = list_modules((change.path,))
        helper = _find_helper(names, request, copy=copy) if change.old is None else None
        if helper is not None and own.get(helper) == str(copy.root / change.path):
            message = f"The tests import {change.path} in place of {helper}.py of the tests. Rename it."
            return refuse("shadows_tests", message)
        if not any(name in own for name in names):
            elsewhere |= {name: origins[name] for name in names if name in origins}
    if elsewhere:
        shown = [f"{name} was loaded from {path}" for name, path in sorted(elsewhere.items())]
        listed = join_first(shown, most=_MOST_SHOWN, separator="; ")
        return note(f"{_UNVERIFIED}{listed}, not from the clean copy.")
    compiled = [name for name, path in own.items() if path.endswith(COMPILED) and _is_of(path, [top])]
    return note(f"Compiled part not verified: {join_first(compiled, most=_MOST_SHOWN)}.") if compiled else Findings()


def warn_of_origins(origins: Mapping[str, str], root: Path) -> tuple[str, ...]:
    """Return in lines what no clean copy could verify, by a run in the project's own folder ``root``."""
    top, lines = find_top(root), []
    for name, path in sorted(origins.items()):
        files = [f"{name.replace('.', '/')}{ending}" for ending in (".py", "/__init__.py")]
        is_own = any((root / folder / file).is_file() for folder in ("", "src") for file in files)
        if is_own and not _is_below(path, top) and name.partition(".")[0] not in sys.stdlib_module_names:
            lines.append(f"{name} is imported from {path}, not from the project, so a clean copy cannot verify it")
        elif path.endswith(COMPILED) and _is_of(path, [top]):
            lines.append(f"{name} is compiled, so a clean copy verifies only the rest")
    return tuple(lines[:_MOST_SHOWN])


def _find_helper(names: Iterable[str], request: CheckRequest, *, copy: Suite) -> str | None:
    """Return the name of a module that the tests import and that is among them, too."""
    trees = [tree for text in request.tests.values() if (tree := parse(text)) is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for name in imported.intersection(names):
        files = copy.root.rglob(f"{name}.py") if name.isidentifier() else ()
        if any(copy.conventions.is_test(file.relative_to(copy.root).as_posix()) for file in files):
            return name
    return None


def is_unloaded(notice: str) -> bool:
    """Return whether a notice says that a module was loaded from elsewhere."""
    return notice.startswith(_UNVERIFIED)


def _is_below(path: str, folder: Path) -> bool:
    return path.startswith(f"{folder}{os.sep}")


def _is_of(path: str, tops: Collection[Path]) -> bool:
    """Return whether a file belongs to a project in one of the work trees, not to an environment in it."""
    return any(
        _is_below(path, top)
        and PACKAGES_FOLDERS.isdisjoint(path.split(os.sep))
        and not any(is_environment(folder) for folder in Path(path).parents if _is_below(str(folder), top))
        for top in tops
    )
