"""The order in which things that depend on each other are done; pure, and generic over what names them."""

import heapq
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

from cdd_agent.errors import UsageError

Id = TypeVar("Id", bound=Hashable)


def order(depends: Mapping[Id, Iterable[Id]]) -> tuple[Id, ...]:
    """Every id after those it depends on; where that leaves a choice, the order of the mapping.

    Raises ``UsageError`` for a dependency that is not there and for a cycle, which it names.
    """
    needs = _checked(depends)
    place = {name: index for index, name in enumerate(needs)}
    names = list(needs)
    dependents = _dependents(needs)
    open_needs = {name: len(needs[name]) for name in names}
    free = [place[name] for name in names if not open_needs[name]]
    done: list[Id] = []
    while free:
        name = names[heapq.heappop(free)]
        done.append(name)
        for dependent in dependents[name]:
            open_needs[dependent] -= 1
            if not open_needs[dependent]:
                heapq.heappush(free, place[dependent])
    if len(done) < len(names):
        cycle = _cycle({name: needs[name] for name in names if open_needs[name]})
        raise UsageError(
            f"these wait for each other: {' -> '.join(str(name) for name in cycle)}.",
            hint="remove one of these dependencies",
        )
    return tuple(done)


def ready(depends: Mapping[Id, Iterable[Id]], *, completed: Collection[Id]) -> tuple[Id, ...]:
    """What is not completed itself and waits for nothing that is not, in the order of the mapping."""
    return tuple(
        name for name, needs in depends.items() if name not in completed and all(need in completed for need in needs)
    )


def downstream(depends: Mapping[Id, Iterable[Id]], roots: Iterable[Id]) -> tuple[Id, ...]:
    """What depends on any of ``roots``, directly or not, without these themselves, in the order of the mapping."""
    dependents = _dependents({name: tuple(needs) for name, needs in depends.items()})
    given = set(roots)
    reached: set[Id] = set()
    waiting = deque(given)
    while waiting:
        for dependent in dependents.get(waiting.popleft(), ()):
            if dependent not in reached:
                reached.add(dependent)
                waiting.append(dependent)
    return tuple(name for name in depends if name in reached and name not in given)


def _checked(depends: Mapping[Id, Iterable[Id]]) -> dict[Id, tuple[Id, ...]]:
    needs = {name: tuple(dict.fromkeys(wanted)) for name, wanted in depends.items()}
    for name, wanted in needs.items():
        for missing in (need for need in wanted if need not in needs):
            raise UsageError(
                f"{name} depends on {missing}, which is not there.",
                hint=f"add {missing}, or remove the dependency",
            )
    return needs


def _dependents(needs: Mapping[Id, Collection[Id]]) -> dict[Id, list[Id]]:
    dependents: dict[Id, list[Id]] = {name: [] for name in needs}
    for name, wanted in needs.items():
        for need in wanted:
            dependents.setdefault(need, []).append(name)
    return dependents


def _cycle(needs: Mapping[Id, Collection[Id]]) -> tuple[Id, ...]:
    """One round trip in ``needs``, each of which depends on another one in it."""
    seen: dict[Id, int] = {}
    walk: list[Id] = []
    name = next(iter(needs))
    while name not in seen:
        seen[name] = len(walk)
        walk.append(name)
        name = next(need for need in needs[name] if need in needs)
    return (*walk[seen[name] :], name)
