"""The words of findings and reasons: one template for each case. Nothing reads what these templates make.

``pytest_tdd_agent.wording`` says how a template names the parts of a record, and has the cases of the gate.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from cdd_agent.work.finding import Finding
from pytest_tdd_agent import wording
from pytest_tdd_agent.report import Clause, Part, Reason

TEMPLATES: dict[str, str] = {}
"""Case -> template. Besides its parts, a finding's template can name its fields, such as ``places`` and ``seconds``."""


def explain(record: Finding | Reason) -> str:
    """Return a finding or a reason in English."""
    templates = {**wording.TEMPLATES, **TEMPLATES}
    if isinstance(record, Reason):
        return record.message or wording.fill(wording.as_clause(record), templates)
    figures: dict[str, Part] = {"places": record.places, "functions": record.functions}
    figures |= {name: value for name in ("calls", "runs", "seconds") if (value := getattr(record, name)) is not None}
    return wording.fill(Clause(record.case, {**figures, **record.parts}), templates)


def format_reason(reason: Reason) -> str:
    """Return a reason as ``code: message``, as it is shown in lists."""
    return f"{reason.code}: {explain(reason)}"


def change_texts(parts: Mapping[str, Part], change: Callable[[str], str]) -> dict[str, Part]:
    """Return the parts with ``change`` applied to all texts, for example to hide secret values."""

    def apply(value: str | Clause) -> str | Clause:
        return change(value) if isinstance(value, str) else replace(value, parts=change_texts(value.parts, change))

    def apply_to_all(value: Part) -> Part:
        if isinstance(value, tuple):
            return tuple(map(apply, value))
        return apply(value) if isinstance(value, (str, Clause)) else value

    return {name: apply_to_all(value) for name, value in parts.items()}
