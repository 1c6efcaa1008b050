"""Findings of checks, as records. ``wording`` makes their English, which nothing reads again.

Earlier versions kept sentences. The last functions make records of those, for all files that may still have some.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias, get_args

import msgspec

from pytest_tdd_agent.report import Part, Reason

Check: TypeAlias = Literal[
    "clean_copy",
    "expectations",
    "mutants",
    "canary",
    "plain_run",
    "calls",
    "outside",
    "stubs",
    "product_runs",
    "readable",
    "suspicious",
    "values",
    "examples",
    "no_change",
    "run",
]
"""The subject of a finding. ``run``: the run of cdd itself, such as results that were reused."""
CheckName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,39}\Z")]
"""A ``Check``, or one that a later version of cdd has."""
Outcome: TypeAlias = Literal["confirmed", "unverified", "review", "noted"]
"""The change holds; the check could not tell; a person should review something; a fact that decides nothing."""
_RAN_OUT = re.compile(
    r"The agent used up its limit in this attempt \((?P<turns>\d{1,9}) turns?, (?P<tool_calls>\d{1,9}) tool calls?\)"
)
"""An old sentence, by which cdd offers to split a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found about a change that it does not refuse. A refusal is a ``Reason``."""

    check: CheckName
    outcome: Outcome
    case: str
    """The template that says it."""
    places: tuple[str, ...] = ()
    """Places in the change, such as ``shop.py:12``."""
    functions: tuple[str, ...] = ()
    calls: int | None = None
    """How many calls were compared."""
    runs: int | None = None
    """How many test runs it took."""
    seconds: float | None = None
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)
    """What else its template names -> value."""

    @property
    def is_of_known_check(self) -> bool:
        """Whether this version of cdd has the check."""
        return self.check in get_args(Check)

    @property
    def is_unverified(self) -> bool:
        """Whether something was not verified."""
        return self.outcome == "unverified"


def list_unverified(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings of checks that could not tell, without duplicates."""
    return tuple(dict.fromkeys(finding for finding in findings if finding.is_unverified))


def read_old_reason(sentence: str) -> Reason:
    """Return the reason that an earlier version kept as ``code: message``."""
    code, _, text = sentence.partition(": ")
    return Reason(code=code, nodeid=None, case="text", parts={"text": text})


def read_old_finding(sentence: str, *, check: Check = "run") -> Finding:
    """Return what an earlier version kept as one line: of its facts only whether something was not verified."""
    if (ran_out := _RAN_OUT.match(sentence)) is not None:
        used = {name: int(count) for name, count in ran_out.groupdict().items()}
        return Finding(check="run", outcome="noted", case="ran_out", parts=used)
    outcome: Outcome = "unverified" if "not verified" in sentence.lower() else "noted"
    if check == "examples" and sentence.endswith(": passes"):
        outcome = "confirmed"
    return Finding(check=check, outcome=outcome, case="text", parts={"text": sentence})
