"""Whether tests that pass at once are worth keeping: they have to fail when the code they are about is altered."""

import ast
from collections.abc import Collection, Sequence

from cdd_agent.evidence.clean_copy import clean_copy
from cdd_agent.evidence.code.source import Function, parse
from cdd_agent.evidence.mutation import ALL_RAISE, mutants_of, survival
from cdd_agent.evidence.request import PYTHON, ProductChange
from cdd_agent.evidence.runs import Runs, TimeUp, run_altered, silence
from cdd_agent.evidence.trees import project_in, sources_in
from cdd_agent.git.failure import GitError
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.suite import Suite
from pytest_tdd_agent.comparison import function_of

MOST = 5
"""Mutants that are tried."""


def notices_changes(
    targets: tuple[str, ...],
    sources: Sequence[str],
    *,
    tree: str,
    repository: Repository,
    suite: Suite,
    time_box_s: float,
) -> bool:
    """Whether some test of ``targets`` fails under one of a few mutants of the code in ``tree`` that they name.

    The code is what the functions and classes of ``sources`` (Python files, relative to the project) hold that the
    targets' own sources name; all of it if none is named. False, too, if that cannot be found out in time.
    """
    project = project_in(repository, suite)
    files = dict.fromkeys(target.partition("::")[0] for target in targets)
    texts = sources_in(repository, project=project, tree=tree, paths=[*files, *sources])
    named = {name for file in files for name in _names_in(texts.get(file, ""))}
    changes = [
        ProductChange(path=path, old=_without(texts[path], named), new=texts[path])
        for path in sources
        if path.endswith(PYTHON) and path in texts
    ]
    mutants = mutants_of(changes, most=MOST).chosen
    telling = [mutant for mutant in mutants if mutant.how != ALL_RAISE] or list(mutants)
    if not targets or not telling:
        return False
    runs = Runs(limit_s=time_box_s, emit=silence)
    selection = tuple(dict.fromkeys(map(function_of, targets)))
    try:
        with clean_copy(repository, suite, green=tree, red=tree) as copy:
            found = survival(
                telling, run=lambda mutant: run_altered(copy, mutant, tests=selection, runs=runs), targets=targets
            )
    except (TimeUp, GitError, OSError):
        return False
    return found.noticed is not None


def _names_in(source: str) -> set[str]:
    """Every name and attribute in a source."""
    tree = parse(source)
    if tree is None:
        return set()
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _without(source: str, named: Collection[str]) -> str | None:
    """The source without its functions of these names, so that just those count as changed; None if it has none."""
    tree = parse(source)
    if tree is None:
        return None
    wanted = [node for node in ast.walk(tree) if isinstance(node, Function) and node.name in named]
    gone = {line for node in wanted for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = source.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, start=1) if number not in gone) if gone else None
