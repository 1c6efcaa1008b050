from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.tickets.plan import find_dependents, find_ready, sort_by_dependencies

graphs = st.lists(st.sets(st.integers(0, 11)), max_size=12).flatmap(
    lambda sets: st.permutations(range(len(sets))).map(
        lambda names: {names[i]: [names[n] for n in sorted(sets[i]) if n < i] for i in reversed(range(len(sets)))}
    )
)


def test_what_depends_on_nothing_keeps_its_place() -> None:
    assert sort_by_dependencies({3: (), 1: (), 2: ()}) == (3, 1, 2)


def test_a_dependency_on_a_later_one_is_done_first() -> None:
    assert sort_by_dependencies({1: (2,), 2: (), 3: ()}) == (2, 1, 3)


def test_a_dependency_named_twice_counts_once() -> None:
    assert sort_by_dependencies({1: (2, 2), 2: ()}) == (2, 1)


def test_those_that_wait_for_each_other_come_last() -> None:
    assert sort_by_dependencies({1: (2,), 2: (4,), 3: (2,), 4: (3, 5), 5: ()}) == (5, 1, 2, 3, 4)


@given(graphs)
def test_everything_comes_once_and_after_what_it_depends_on(depends: dict[int, list[int]]) -> None:
    done = sort_by_dependencies(depends)

    assert sorted(done) == sorted(depends)
    for name, needs in depends.items():
        assert all(done.index(need) < done.index(name) for need in needs)


@given(graphs)
def test_each_is_the_first_of_those_that_were_ready(depends: dict[int, list[int]]) -> None:
    done = sort_by_dependencies(depends)

    for place, name in enumerate(done):
        assert find_ready(depends, completed=done[:place])[0] == name


def test_ready_is_what_waits_for_nothing() -> None:
    assert find_ready({1: (), 2: (1,), 3: (2,), 4: ()}, completed={1}) == (2, 4)


def test_downstream_is_all_that_would_miss_it() -> None:
    assert find_dependents({1: (), 2: (1,), 3: (2,), 4: (), 5: (4, 3)}, [2]) == (3, 5)


def test_downstream_of_nothing_is_nothing() -> None:
    assert find_dependents({1: (), 2: (1,)}, []) == ()
