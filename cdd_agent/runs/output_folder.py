"""The output folder of a generation: whether one can begin or continue there, and its first commit."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from cdd_agent.errors import CddError, UsageError, format_count
from cdd_agent.generation.generation_report import GRAPH
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.generation.skeleton import NO_TESTS, make_skeleton
from cdd_agent.git.commits import commit_paths, require_identity
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.storage import write_atomic
from cdd_agent.tickets.graph import Graph
from cdd_agent.tickets.graph_file import encode_graph, parse_graph
from cdd_agent.workspace.files import ConfinedFolder

_GIVEN = "given"
"""The value of the first commit's trailer ``Tests`` if the user has given the tests."""
_BEGUN = ".cdd-begun"
"""The file that an output folder has until its first commit is made."""


def is_output(folder: Path, plan: GenerationPlan) -> bool:
    """Return whether ``folder`` holds a generation of this graph's package."""
    return plan.slug in _list_generated(folder)


def _list_generated(folder: Path) -> tuple[str, ...]:
    """Return the names of the generations that began the repository in ``folder``, if there is one."""
    head = _read_head(folder)
    if head is None:
        return ()
    form = ("--format=%(trailers:key=Ticket,valueonly,separator=%x20)", "--max-parents=0")
    return tuple(Repository.find(folder).git("log", form, head).split())


def has_user_tests(folder: Path) -> bool:
    """Return whether the user has given the tests of the generation in ``folder``."""
    head = _read_head(folder)
    if head is None:
        return False
    form = ("--format=%(trailers:key=Tests,valueonly,separator=%x20)", "--max-parents=0")
    return _GIVEN in Repository.find(folder).git("log", form, head).split()


def was_interrupted(folder: Path) -> bool:
    """Return whether the creation of an output folder was interrupted."""
    return (folder / _BEGUN).is_file() and not folder.is_symlink() and _read_head(folder) is None


def _read_head(folder: Path) -> CommitId | None:
    """Return the commit of the repository whose top ``folder`` is; None if there is none."""
    if (folder / ".git").exists():
        with suppress(CddError):
            repository = Repository.find(folder)
            if repository.root.resolve() == folder.resolve():  # git takes one around it if .git is incomplete
                return repository.read_head()
    return None


def read_planned_graph(folder: Path) -> Graph | None:
    """Return the graph that the last commit of an output folder has; None if there is none that can be read."""
    head = _read_head(folder)
    if head is not None:
        objects = Repository.find(folder).objects
        with suppress(CddError):
            entry = objects.find_entry(head, GRAPH)
            return None if entry is None else parse_graph(objects.require(entry.id).text, path=GRAPH)[0]
    return None


def prepare_output(
    folder: Path, plan: GenerationPlan, *, keeps_graph: bool = False, more: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Create the repository of a new generation, or finish that if it was interrupted; else change nothing.

    ``keeps_graph``: the plan's graph says more than its file, so it is committed with the skeleton. So are the files
    ``more``, path -> content: tests that the user gives.
    """
    if not is_output(folder, plan):
        files = {path: text.encode() for path, text in make_skeleton(plan.graph, plan.layout).items()}
        if keeps_graph:
            files[GRAPH] = encode_graph(plan.graph)
        if plan.has_user_tests:
            del files[NO_TESTS]  # they can have another folder
        create_repository(folder, {**files, **more}, plan=plan)
    (folder / _BEGUN).unlink(missing_ok=True)


def create_repository(folder: Path, files: Mapping[str, bytes], *, plan: GenerationPlan) -> Repository:
    """Create a repository with the scaffold and the skeleton, committed; raises ``UsageError`` if that cannot be."""
    if not was_interrupted(folder):
        require_free(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / _BEGUN, b"")
        except OSError as error:
            happened = f"{folder} cannot be written: {error.strerror or error}."
            raise UsageError(happened, hint="name another folder: --out DIR") from error
    repository = Repository.create(folder, again=True)
    require_identity(repository)
    inside = ConfinedFolder(folder)
    for path, content in files.items():
        inside.write(path, content)
    count = format_count(len(plan.nodes), "node")
    message = f"chore: scaffold and skeleton of {plan.layout.package} ({count})\n\nTicket: {plan.slug}\n"
    if plan.has_user_tests:
        message += f"Tests: {_GIVEN}\n"
    commit_paths(repository, message, paths=tuple(files))
    return repository


def require_no_link(folder: Path) -> None:
    """Raise ``UsageError`` if ``folder`` is a link, which can lead elsewhere the next time."""
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link.", hint=f"name the folder that it leads to: --out {folder.resolve()}")


def require_free(folder: Path) -> None:
    """Raise ``UsageError`` unless a repository can be created in ``folder``, which need not exist."""
    another = "name another folder: --out DIR"
    require_no_link(folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint=another)
    if names := _list_generated(folder):
        raise UsageError(f"{folder} holds the generation of another graph: {names[0]}.", hint=another)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty, and cdd has not generated what is in it.", hint=another)
    around = next((path for path in folder.resolve().parents if (path / ".git").exists()), None)
    if around is not None:
        raise UsageError(f"{folder} is inside the repository {around}.", hint="name a folder outside of it: --out DIR")
