"""Requests for the checks that look at sources only."""

from collections.abc import Iterable
from dataclasses import replace

from cdd_agent.events import Event, Notice
from cdd_agent.evidence.clean_copy import CheckRequest, Findings, ProductChange
from cdd_agent.evidence.differential import describe
from cdd_agent.work.wording import explain
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


def tell(findings: Findings) -> tuple[str, ...]:
    """Return the notices in words."""
    return tuple(map(explain, findings.notices))


def leave_confirmed(findings: Findings, seen: list[Event] | None) -> Findings:
    """Return the findings without what the checks confirmed, which ``seen`` gets as a user does."""
    confirmed = [notice for notice in findings.notices if notice.outcome == "confirmed"]
    if seen is not None:
        seen += [Notice(text=explain(notice)) for notice in confirmed]
    return replace(findings, notices=tuple(each for each in findings.notices if each not in confirmed))


def tell_answer(parts: Iterable[Iterable[str]]) -> str:
    """Return the answer to a call in words."""
    return explain(describe(tuple(map(tuple, parts))))
