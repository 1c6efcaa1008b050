"""Order things that depend on each other. Pure, and generic over their ids."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from cdd_agent.errors import UsageError

Id = TypeVar("Id", bound=Hashable)


def sort_by_dependencies(depends: Mapping[Id, Iterable[Id]]) -> tuple[Id, ...]:
    """Return each id after those it depends on; raise ``UsageError`` for a cycle or an unknown dependency."""
    needs = {name: tuple(wanted) for name, wanted in depends.items()}
    for name, wanted in needs.items():
        for missing in (need for need in wanted if need not in needs):
            hint = f"add {missing}, or remove the dependency"
            raise UsageError(f"{name} depends on {missing}, which does not exist.", hint=hint)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        cycle = " -> ".join(str(name) for name in reversed(error.args[1]))
        raise UsageError(f"these wait for each other: {cycle}.", hint="remove one of these dependencies") from error
    done: dict[Id, None] = {}
    while ready := find_ready(needs, completed=done):
        done[ready[0]] = None
    return tuple(done)


def find_ready(depends: Mapping[Id, Iterable[Id]], *, completed: Collection[Id]) -> tuple[Id, ...]:
    """Return the ids that are not completed, but whose dependencies are, in the order of the mapping."""
    return tuple(
        name for name, needs in depends.items() if name not in completed and all(need in completed for need in needs)
    )


def find_dependents(depends: Mapping[Id, Iterable[Id]], roots: Iterable[Id]) -> tuple[Id, ...]:
    """Return all ids that depend on a root, directly or not, in the order of the mapping, without the roots."""
    needs = {name: set(wanted) for name, wanted in depends.items()}
    excluded = set(roots)
    reached = set(excluded)
    while new := {name for name in needs.keys() - reached if not reached.isdisjoint(needs[name])}:
        reached |= new
    return tuple(name for name in needs if name in reached - excluded)
