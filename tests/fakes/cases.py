"""Cases of a parametrized test: a few for the suite, the others for the soak."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Case = TypeVar("Case")
_ParameterSet = type(pytest.param())


def soak_after(
    quick: int,
    names: str | tuple[str, ...],
    cases: Iterable[Case],
    *,
    ids: Iterable[str] | Callable[[Case], object] | None = None,
    indirect: bool = False,
) -> pytest.MarkDecorator:
    """Parametrize a test as ``pytest.mark.parametrize`` does; the cases after the first ``quick`` ones are slow."""
    is_single = isinstance(names, str) and "," not in names
    sets = []
    for number, case in enumerate(cases):
        marks = [] if number < quick else [pytest.mark.slow]
        if isinstance(case, _ParameterSet):
            sets.append(pytest.param(*case.values, marks=[*case.marks, *marks], id=case.id))
        else:
            values: object = (case,) if is_single else case
            assert isinstance(values, tuple)
            sets.append(pytest.param(*values, marks=marks))
    return pytest.mark.parametrize(names, sets, ids=ids, indirect=indirect)
