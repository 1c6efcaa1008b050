"""Requests for the checks that look at sources only."""

from cdd_agent.evidence.clean_copy import CheckRequest, ProductChange
from pytest_tdd_agent.report import SuiteReport

EMPTY = SuiteReport(
    complete=True,
    exit_status=0,
    nonce="",
    python="3.11.7",
    pytest="9.2.0",
    rootdir="/project",
    started_at="2026-01-31T12:00:00Z",
    duration_s=0.0,
)


def request(
    new: str, *, old: str | None = None, test: str = "", stated: str = "", elsewhere: tuple[str, ...] = ()
) -> CheckRequest:
    """One changed file ``product.py`` and one target ``tests/test_product.py::test_it``."""
    return CheckRequest(
        targets=("tests/test_product.py::test_it",),
        changes=(ProductChange(path="product.py", old=old, new=new),),
        tests={"tests/test_product.py": test},
        stated=stated,
        red="HEAD",
        green="HEAD",
        baseline=EMPTY,
        elsewhere=lambda: elsewhere,
    )
