"""A plan held against the project it is for: the files it names can be written, and the tests it names are to come."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TypeAlias

from cdd_agent.errors import Problem, UsageError
from cdd_agent.tickets.plan import TEST_FIRST, Plan, Step, is_outside
from cdd_agent.workspace.files import Workspace, decode

Told: TypeAlias = tuple[str, str] | None
"""What a step does wrong, as words that fit behind its number, and what to write instead; None for nothing."""

_NAME = re.compile(r"[^\W\d]\w*")


def problems(plan: Plan, *, workspace: Workspace) -> tuple[Problem, ...]:
    """Every file that cannot become what the plan says, and every test id that pytest could not have, by line.

    What ``plan.find_problems`` finds without a project, a path outside of it, is not looked for.
    """
    there = _Names(workspace.listing())
    planned = _Names(path for step in plan.steps for _, path in _paths(step))
    found: list[Problem] = []
    for step in plan.steps:
        for field, path in _paths(step):
            told = (
                _not_writable(path, workspace)
                or _not_a_file(path, workspace, planned=planned)
                or there.other_case(path, known=there)
                or planned.other_case(path, known=there)
            )
            if told:
                found.append(_problem(step, field, told=told))
        found += [_problem(step, "tests", told=told) for test in step.tests if (told := _no_node_id(test))]
    return tuple(sorted(dict.fromkeys(found), key=lambda problem: problem.line))


def warnings(plan: Plan, *, workspace: Workspace, begun: Collection[str] = ()) -> tuple[Problem, ...]:
    """The tests to come that are there already, unless the step says so by naming them in its title or description.

    ``begun``: titles of steps whose tests may be there because they were run.
    """
    found: list[Problem] = []
    first: dict[str, Step] = {}
    for step in plan.steps:
        if step.kind not in TEST_FIRST or step.done or step.title in begun:
            continue
        for test in step.tests:
            name = test.split("[", 1)[0].rpartition("::")[2]
            if "::" not in test or name in step.description or name in step.title:
                continue
            hint = f"name it otherwise, or say in the description what becomes of {name}"
            if first.setdefault(test, step) is not step:
                message = f"names the test {test} of step {first[test].number}"
            elif _is_defined(test, workspace):
                message = f"is to add the test {test}, which is there already"
            else:
                continue
            found.append(_problem(step, "tests", told=(message, hint)))
    return tuple(found)


def created(plan: Plan, *, workspace: Workspace) -> frozenset[str]:
    """The files that the plan names and that are not there."""
    return frozenset(path for step in plan.steps for _, path in _paths(step) if not workspace.is_file(path))


class _Names:
    """Paths and the folders they lie in, found again whatever their case."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_folded: dict[str, str] = {}
        self.files: set[str] = set()
        self.folders: set[str] = set()
        for path in paths:
            self.files.add(path)
            self.folders.update(_folders(path))
            for name in (path, *_folders(path)):
                self._by_folded.setdefault(name.casefold(), name)

    def other_case(self, path: str, *, known: "_Names") -> Told:
        """That a part of ``path`` is here in another case, unless it is one of the ``known`` as it is written."""
        for name in (*_folders(path), path):
            here = self._by_folded.get(name.casefold(), name)
            if here != name and name not in known.files and name not in known.folders:
                return f"names {path}, which differs from {here} in its case only", f"write {here}{path[len(name) :]}"
        return None


def _paths(step: Step) -> Iterator[tuple[str, str]]:
    """Field and path of each file in the project that a step names, without the names of tests."""
    for field, named in (("files", step.files), ("tests", step.tests)):
        for path in dict.fromkeys(name.partition("::")[0] for name in named):
            if path and not is_outside(path):
                yield field, path


def _folders(path: str) -> list[str]:
    """The folders that ``path`` lies in, the outermost first, the project's own excepted."""
    return [str(folder) for folder in reversed(PurePosixPath(path).parents[:-1])]


def _problem(step: Step, field: str, *, told: tuple[str, str]) -> Problem:
    return Problem(line=step.line_of(field), message=f"step {step.number} {told[0]}", hint=told[1])


def _not_writable(path: str, workspace: Workspace) -> Told:
    """Why no agent could write the file; None if it could, and for what is outside the project anyway."""
    if "\\" in path:
        slashed = path.replace("\\", "/")
        return f"names {path}, which has a backslash", f"write {slashed}"
    try:
        workspace.writable(path)
    except UsageError as error:
        return f"names what cannot be written: {error.happened.rstrip('.')}", error.hint
    return None


def _not_a_file(path: str, workspace: Workspace, *, planned: _Names) -> Told:
    """Why the path cannot be a file: it is a folder, or a file stands where its folder would be."""
    if re.search(r"[*?]", path) and not workspace.exists(path):
        return f"names {path}, which is a pattern", "name each file"
    if path.endswith("/") or path in planned.folders or (workspace.exists(path) and not workspace.is_file(path)):
        return f"names {path}, which is a folder", "name the files in it that the step changes"
    for folder in _folders(path):
        if workspace.is_file(folder) or folder in planned.files:
            return f"names {path}, but {folder} is a file", "put it into a folder"
    if str(PurePosixPath(path)) != path:
        return f"names {path}, which has parts that mean nothing", f"write {PurePosixPath(path)}"
    return None


def _no_node_id(test: str) -> Told:
    """What is wrong with the form of a node id."""
    path, *names = test.split("[", 1)[0].split("::")
    why = next((f"'{name}' is no name of Python's" for name in names if not _NAME.fullmatch(name)), "")
    if names and not path.endswith(".py"):
        why = f"{path or 'its file'} is no Python file"
    elif "[" in test and not (names and test.endswith("]")):
        why = "brackets stand at the end of a test's name"
    hint = "write a test file, or a node id such as tests/test_it.py::test_name"
    return (f"names the test {test}, but {why}", hint) if why else None


def _is_defined(test: str, workspace: Workspace) -> bool:
    """Whether the file of a node id holds that function, in that class."""
    path, *names = test.split("[", 1)[0].split("::")
    try:
        body: list[ast.stmt] = ast.parse(decode(workspace.read(path))).body
    except (UsageError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for name in names:
        found = next((node for node in body if _is_named(node, name)), None)
        if found is None:
            return False
        body = found.body if isinstance(found, ast.ClassDef) else []
    return True


def _is_named(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
