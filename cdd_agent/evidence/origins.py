"""From where a run in a clean copy imported the project's modules: only a module of the copy has been checked."""

import ast
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from cdd_agent.errors import join_first
from cdd_agent.evidence.clean_copy import COMPILED, CheckRequest, Findings, note, refuse
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.evidence.source import parse
from cdd_agent.testrun.access import find_top
from cdd_agent.testrun.suite import Suite, list_modules
from cdd_agent.untrusted.paths import is_environment
from pytest_tdd_agent.fingerprint import PACKAGES_FOLDERS

_MOST_SHOWN = 3
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
