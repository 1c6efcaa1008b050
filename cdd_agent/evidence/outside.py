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
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from cdd_agent.evidence.changed_code import find_changed_code, list_watched, read_product, select_tests, select_users
from cdd_agent.evidence.clean_copy import COMPILED, CheckRequest, Findings, list_test_functions, locate, note, refuse
from cdd_agent.evidence.differential import (
    Answer,
    Answered,
    ComparedTrees,
    NotComparedError,
    Recorded,
    describe,
    get_code,
    list_changed_behavior,
    make_task,
    run_calls,
)
from cdd_agent.evidence.mutation import SHORTEST_S, TimedRuns
from cdd_agent.evidence.source import Function, list_prose, name_definitions
from cdd_agent.sandbox.port import ISOLATING_LEVELS
from cdd_agent.testrun import inside
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.foreign import learn_syntax
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite, list_modules
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.untrusted.paths import is_environment
from cdd_agent.untrusted.python_source import list_imports, parse, with_deep_stack
from cdd_agent.workspace.files import ConfinedFolder
from pytest_tdd_agent.fingerprint import PACKAGES_FOLDERS
from pytest_tdd_agent.report import Clause, Part

_SECONDS = 4.0
"""For the tests that are recorded; each run answers for half of it."""
_MOST_BYTES = 10_000_000
_MOST_SHOWN = 3
_LONG_AGO = 1_000_000_000
_FEWEST_FURTHER, _MOST_ALIKE = 10, 0.95
"""How many further calls there have to be, and which part of them has the same answer."""
_FEWEST_IN_A_ROW = 3
_ECHO: Answer = (("echo",),)
"""The kind of an answer that is an argument."""
_MOST_TEXT = 2000
"""A text that is longer is about objects of the whole process; as in ``testrun/inside/answers.py``."""
_PACKAGE = "cdd_calls_"
"""The beginning of the name of the package that answers calls; as ``run_calls`` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The result of the comparison."""

    findings: Findings = field(default_factory=Findings)
    compared: Findings = field(default_factory=Findings)
    """The calls that have the same results."""
    changes: Findings = field(default_factory=Findings)
    """What else the change changes."""


class TargetCall(msgspec.Struct):
    """A call, with its arguments as nodes (see ``testrun/inside/values.py``)."""

    function: int
    module: str
    name: str
    args: list[object]
    named: dict[str, object]
    files: dict[str, list[object]] = {}
    """The files that its arguments name."""


class TargetCalls(msgspec.Struct):
    """Calls that the targets make. An answer has the index of its call; the further calls follow the others."""

    calls: list[TargetCall]
    further: list[TargetCall]
    """Calls with other arguments, which no test makes."""
    root: str
    path: list[str]
    modules: dict[str, str]
    """Loaded module of the project -> its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAnswers:
    """The answers of a process to calls."""

    answers: Mapping[int, Answer]
    """Index of a call -> its answer, if it has the same one twice."""
    shown: Mapping[int, str]
    further: Mapping[int, Answer]
    """Index of a further call -> its only answer."""
    lacking: Mapping[str, str]
    """Module that cannot be imported -> the module that it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memorized:
    """A function that answers the tests' examples, and all other calls in one way."""

    name: str
    module: str
    example: Clause
    """A call of a test, and its answer."""
    count: int
    further: Clause
    """The number of other calls, and one of them."""
    values: frozenset[str]
    """The arguments of the tests' calls."""
    may_be_complete: bool
    """Whether these arguments look like all that there are."""
    are_names: bool


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
        found = Outside(findings=note("outside", "no_plain_process", why=error.clause))
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
        task = msgspec.json.decode(answered.task, type=dict[str, object])
        try:
            recording = msgspec.json.decode(answered.task, type=TargetCalls)
        except msgspec.DecodeError as error:
            raise NotComparedError("unreadable_calls", error=str(error)) from error
        in_tests = read_answers(answered.lines, recording)
        paths = {change.path for change in self.request.changes}
        recording.modules = {name: path for name, path in recording.modules.items() if path in paths}
        if not (recording.calls or recording.modules):
            return Outside()
        plain = self._answer_plainly(task, recording=recording)
        if (reason := self._find_import(plain, recording=recording)) is not None:
            return Outside(findings=reason)
        both = [index for index in in_tests.answers if index in plain.answers]
        differing = [index for index in both if in_tests.answers[index] != plain.answers[index]]
        if differing:
            # Some results depend on what test files do when they are imported, or on what tests did.
            files = tuple(dict.fromkeys(test.partition("::")[0] for test in tests))
            again, _ = run_calls(self.suite, "the same calls without the tests", task=task, tests=files, runs=self.runs)
            assert again is not None
            fresh = read_answers(again.lines, recording)
            prepared = self._answer_plainly(task, recording=recording, targets=files)
            counting = [
                index
                for index in differing
                if fresh.answers.get(index) == in_tests.answers[index]
                and prepared.answers.get(index, fresh.answers[index]) != fresh.answers[index]
            ]
            if counting:
                call = min(counting, key=lambda index: (len(in_tests.shown[index]), index))
                place = self._locate(recording.calls[call].module, recording.calls[call].name, recording=recording)
                asked, (one, other) = in_tests.shown[call], (describe(each.answers[call]) for each in (in_tests, plain))
                case = "differs_outside"
                found = refuse("only_under_test", case, call=asked, place=place, in_tests=one, plain=other)
                return Outside(findings=found)
        alike = {index: plain.answers[index] for index in both if index not in differing}
        shown = {**plain.shown, **in_tests.shown}
        memorized = find_memorized(recording, alike, further=plain.further, shown=shown)
        findings = Findings()
        if memorized is not None:
            place = self._locate(memorized.module, memorized.name, recording=recording)
            findings = self._judge_memorized(memorized, place=place)
        if not alike:
            return Outside(findings=findings)
        names = tuple(dict.fromkeys(recording.calls[index].name for index in alike))
        compared = note("outside", "same_outside", outcome="confirmed", functions=names, calls=len(alike))
        return Outside(findings=findings, compared=compared)

    def _record(self, tests: tuple[str, ...]) -> Answered:
        """Record the calls of the targets, and with them those for the comparison with the code before."""
        sources, code = dict(read_product(self.suite)), find_changed_code(self.request.changes)
        learn_syntax(select_users(code, sources), suite=self.suite)
        own = {
            (change.path, name): code.functions.get((change.path, name), False)
            for change in self.request.changes
            for name in _list_functions(sources.get(change.path, ""))
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
        self, task: Mapping[str, object], *, recording: TargetCalls, targets: tuple[str, ...] = ()
    ) -> StableAnswers:
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
            for file in ("__init__.py", "answers.py", "returned.py", "values.py"):
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
                answers = [msgspec.json.decode(line, type=tuple[int, Answer, str]) for line in lines]
            except (OSError, ValueError, msgspec.DecodeError) as error:
                raise NotComparedError("left_no_answers", error=str(error)) from error
        if not answers or answers[-1][0] != -1:
            raise NotComparedError("process_ended_early", output=tuple(ended.output.splitlines()[-1:]))
        return read_answers(answers, recording)

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
            inside = "" if folder == str(source) else f"{os.path.relpath(folder, source)}/"
            made = set[Path]()
            for name in (*names, *linked):
                top = tests if is_test(f"{inside}{name}") else root
                if top is None:
                    continue
                target = os.path.join(top, inside)
                if top not in made:
                    made.add(top)
                    os.makedirs(target, exist_ok=True)
                shutil.copy(os.path.join(folder, name), f"{target}{name}", follow_symlinks=False)
                os.utime(f"{target}{name}", (_LONG_AGO, _LONG_AGO), follow_symlinks=False)  # as after an installation

    def _list_path(self, recording: TargetCalls, root: Path, *, shown: Path) -> list[str]:
        """Return the folders of the project from which the tests import, in the copy."""
        found = []
        for entry in recording.path:
            inside = os.path.relpath(entry, recording.root)
            own = root / inside
            if not inside.startswith("..") and own.is_dir():
                found.append(str(shown / inside))
        return found

    def _locate(self, module: str, name: str, *, recording: TargetCalls) -> str:
        return locate(recording.modules.get(module, module), name, changes=self.request.changes)

    def _judge_memorized(self, memorized: Memorized, *, place: str) -> Findings:
        """Refuse answers to examples alone, unless the examples may be all that there is to answer."""
        sources = (*(change.old or "" for change in self.request.changes), *self.request.tests.values())
        prose = " ".join([self.request.stated, *(each for text in sources for each in list_prose(text))])
        is_stated = all(re.search(rf"(?<!\w){re.escape(value)}(?!\w)", prose) for value in memorized.values)
        parts: dict[str, Part] = {"function": memorized.name, "place": place, "count": memorized.count}
        parts |= {"example": memorized.example, "further": memorized.further}
        found = Clause("memorized", parts)
        if is_stated:
            return note("outside", "memorized_stated", outcome="review", found=found)
        if memorized.may_be_complete:
            return note("outside", "memorized_complete", outcome="review", found=found)
        return refuse("examples_only", "memorized_names" if memorized.are_names else "", found=found)

    def _find_import(self, plain: StableAnswers, *, recording: TargetCalls) -> Findings | None:
        """Return a refusal if a module of the product cannot be imported without one of the tests."""
        for module, lacking in plain.lacking.items():
            if module in recording.modules and lacking and self._is_of_tests(lacking, recording):
                path = recording.modules[module]
                lines = [text for change in self.request.changes if change.path == path for text in [change.new or ""]]
                at = [number for text in lines for number in _find_imports(text, lacking)]
                place = f"{path}:{at[0]}" if at else path
                return refuse("only_under_test", "imports_tests", place=place, module=lacking)
        return None

    def _is_of_tests(self, module: str, recording: TargetCalls) -> bool:
        entries = [os.path.relpath(entry, recording.root) for entry in recording.path]
        folders = [self.suite.root / entry for entry in entries if not entry.startswith("..")]
        inside = module.replace(".", "/")
        return any((folder / path).exists() for folder in folders for path in (f"{inside}.py", inside) if inside)


@with_deep_stack
def _list_functions(text: str) -> tuple[str, ...]:
    """Return the dotted names of the functions in a source."""
    return tuple(name for name, node in name_definitions(parse(text)) if isinstance(node, Function))


def _find_imports(text: str, module: str) -> Iterator[int]:
    """Yield the lines that import a module or a part of it."""
    top = module.partition(".")[0]
    for node in ast.walk(parse(text) or ast.Module(body=[], type_ignores=[])):
        tops = [each.module.lstrip(".").partition(".")[0] for each in list_imports(node)]
        if isinstance(node, ast.stmt) and top in tops:
            yield node.lineno


def read_answers(lines: Iterable[tuple[int, Answer, str]], recording: TargetCalls) -> StableAnswers:
    """Read the lines of a process, which may have had no time for the second answers to all calls."""
    answers: dict[int, list[Answer]] = {}
    first = len(recording.calls)
    most = first + len(recording.further)
    shown, lacking = {}, {}
    for index, answer, call in lines:
        if index == -2:
            lacking[call] = get_code(answer)
        elif 0 <= index < most:  # code of the project may have written lines too
            answers.setdefault(index, []).append(answer)
            shown[index] = call
    twice = {at: found[0] for at, found in answers.items() if at < first and len(found) == 2 and found[0] == found[1]}
    fit = {index: answer for index, answer in twice.items() if not _is_unfit(answer)}
    further = {at: found[0] for at, found in answers.items() if at >= first and not _is_unfit(found[0])}
    return StableAnswers(answers=fit, shown=shown, lacking=lacking, further=further)


def find_memorized(
    recording: TargetCalls, known: Mapping[int, Answer], *, further: Mapping[int, Answer], shown: Mapping[int, str]
) -> Memorized | None:
    """Return a function with different answers to the tests' calls, and the same answer to all similar calls.

    ``known`` and ``further`` are the answers by index.
    """
    for function in dict.fromkeys(recording.calls[index].function for index in known):
        own = [index for index in known if recording.calls[index].function == function]
        others = [at for at in further if recording.further[at - len(recording.calls)].function == function]
        calls = [recording.calls[index] for index in own]
        nodes = [node for call in calls for node in (*call.args, *call.named.values())]
        # An object on which methods were called may hold what it answers, like a dictionary. Other files do not exist.
        if len(others) < _FEWEST_FURTHER or _has_steps(nodes) or any(call.files for call in calls):
            continue
        are_names = all(map(_is_name, nodes))
        kinds = {index: _classify(shown[index], known[index]) for index in own}
        expected = {kind for each in kinds.values() for kind in each}
        usual = _find_usual([_classify(shown[at], further[at]) for at in others], expected, are_names=are_names)
        apart = {min(kinds[index]): index for index in own if usual not in kinds[index]}
        if usual is None or not apart:
            continue
        alike = [at for at in others if usual in _classify(shown[at], further[at])]
        example, other = (min(some, key=lambda each: len(shown[each])) for some in (apart.values(), alike))
        # Names may form a list without a rule. Then a test or the code says what all others get.
        is_error = get_code(further[other]) == "states" and further[other][0][1:2] != ("NotImplementedError",)
        is_asked = usual in expected or is_error
        has_none = get_code(further[other]) in ("raises", "states") or further[other][0] == ("returns", "None")
        least = 1 if has_none and not are_names else 2
        if len(apart) >= least and not (is_asked and are_names):
            found = recording.calls[example]
            own = [index for index in own if usual not in kinds[index]]
            return Memorized(
                name=found.name,
                module=found.module,
                example=Clause("answered_call", {"call": shown[example], "answer": describe(known[example])}),
                further=Clause("answered_call", {"call": shown[other], "answer": describe(further[other])}),
                count=len(alike),
                values=frozenset(_list_leaves(nodes)),
                are_names=are_names,
                may_be_complete=_may_be_complete([recording.calls[index] for index in own], [kinds[at] for at in own]),
            )
    return None


def _find_usual(others: Collection[Set[Answer]], expected: Set[Answer], *, are_names: bool) -> Answer | None:
    """Return the answer of all other calls, or of nearly all if tests expect those of the rest, and not this one."""
    ((usual, count),) = Counter(kind for each in others for kind in each).most_common(1)
    is_rest_expected = usual not in expected and all(usual in each or each & expected for each in others)
    is_nearly_all = count >= _MOST_ALIKE * len(others) and is_rest_expected
    return usual if count == len(others) or (is_nearly_all and not are_names) else None


def _may_be_complete(calls: Sequence[TargetCall], kinds: Sequence[Set[Answer]]) -> bool:
    """Return whether the arguments are numbers in a row, from 0 or 1, or names that are each other's answers.

    ``kinds`` are those of the answers.
    """
    leaves = [leaf for call in calls for leaf in _list_leaves([call.args, call.named])]
    if len(leaves) == len(calls) >= _FEWEST_IN_A_ROW and all(map(str.isdecimal, leaves)):
        numbers = sorted(map(int, leaves))
        return numbers[0] <= 1 and numbers[-1] - numbers[0] == len(numbers) - 1
    values: Set[Answer] = {(("returns", repr(leaf)),) for leaf in leaves}
    return all(_ECHO not in each and each <= values for each in kinds)


def _has_steps(part: object) -> bool:
    match part:
        case ["new", _, _, _, [_, *_]]:
            return True
        case list():
            return any(map(_has_steps, part))
        case dict():
            return any(map(_has_steps, part.values()))
    return False


def _is_name(node: object) -> bool:
    match node:
        case ["is", str(text)]:
            return len(text.split()) < 2  # others are sentences
        case ["is", bool() | None] | ["member" | "ref", *_]:
            return True
        case ["new", _, list(args), dict(named), _]:
            return all(map(_is_name, (*args, *named.values())))
    return False


def _list_leaves(part: object) -> Iterator[str]:
    """Yield the values in a node, or in a list or dictionary of nodes, as text."""
    match part:
        case ["is" | "float" | "bytes", value]:
            yield str(value)
        case list() | dict():
            for each in part.values() if isinstance(part, dict) else part:
                yield from _list_leaves(each)


def _classify(shown: str, answer: Answer) -> Set[Answer]:
    """Return the kinds of an answer: kinds do not depend on the values of the arguments."""
    match answer:
        case (("raises" | "states", name, *_), *_):
            return {(("raises", name),)}
        # A call that is given the usual answer may return it for another reason.
        case (("returns", result),) if re.search(rf"[(=] ?{re.escape(result)}[,)]", shown):
            return {answer, _ECHO}
        case _:
            return {answer}


def _is_unfit(answer: Answer) -> bool:
    """Return whether an answer shows nothing.

    A slow call may end in one process and not in another. A very long answer is about objects of the whole process.
    """
    has_result = get_code(answer) not in ("", "missing", "unfit", "unreadable", "endless")
    return not has_result or any(len(text) > _MOST_TEXT for part in answer for text in part)


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
            return refuse("shadows_tests", path=change.path, helper=helper)
        if not any(name in own for name in names):
            elsewhere |= {name: origins[name] for name in names if name in origins}
    if elsewhere:
        found = [Clause("loaded_from", {"module": name, "path": path}) for name, path in sorted(elsewhere.items())]
        return note("clean_copy", "loaded_elsewhere", found=tuple(found))
    compiled = tuple(name for name, path in own.items() if path.endswith(COMPILED) and _is_of(path, [top]))
    return note("clean_copy", "compiled", modules=compiled) if compiled else Findings()


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
