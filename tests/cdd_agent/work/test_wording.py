"""The words of findings and reasons."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import cdd_agent
from cdd_agent.events import GateJudged, decode, encode
from cdd_agent.evidence.clean_copy import CODES
from cdd_agent.work.finding import Finding
from cdd_agent.work.wording import TEMPLATES, add_messages, change_texts, explain
from pytest_tdd_agent import wording
from pytest_tdd_agent.report import Clause, Reason

MAKERS = {"Clause": 0, "NotComparedError": 0, "note": 1, "refuse": 1}
"""Function -> which of its arguments is a case."""


def list_cases() -> Iterator[str]:
    """Yield the cases that the product names."""
    for path in Path(cdd_agent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call):
                continue
            at = MAKERS.get(getattr(node.func, "id", ""))
            given = [] if at is None else node.args[at : at + 1]
            given += [keyword.value for keyword in node.keywords if keyword.arg == "case"]
            for part in given:
                chosen = [part.body, part.orelse] if isinstance(part, ast.IfExp) else [part]
                yield from (str(each.value) for each in chosen if isinstance(each, ast.Constant) and each.value)


def test_every_case_has_a_template() -> None:
    known = {*TEMPLATES, *wording.TEMPLATES}
    assert {*list_cases()} - known == set()
    assert [code for code in CODES if code not in known] == ["only_under_test"], "it always has a case"


def test_both_packages_name_their_cases_differently() -> None:
    assert TEMPLATES.keys().isdisjoint(wording.TEMPLATES)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (
            Finding(check="outside", outcome="confirmed", case="same_outside", calls=1, functions=("a", "b", "c", "d")),
            "Checked outside of a test run: 1 call of a, b, c and 1 more had the same result.",
        ),
        (
            Finding(
                check="suspicious", outcome="review", case="suspicious_lines", parts={"lines": (Clause("traces"), "x")}
            ),
            "To review in the change: traces the process; x.",
        ),
        (Finding(check="run", outcome="noted", case="of_tomorrow", parts={"a": 1}), "of_tomorrow (a: 1)"),
        (Finding(check="later", outcome="noted", case="text", parts={"text": "Fine."}), "later: Fine."),
    ],
)
def test_a_finding_is_explained_by_its_fields_and_parts(finding: Finding, words: str) -> None:
    assert explain(finding) == words


def test_json_for_people_has_the_words_of_each_record_which_nothing_reads_again() -> None:
    reason = Reason("no_change", None, parts={"text": ("a", Clause("none"))})
    finding = Finding(check="run", outcome="noted", case="text", parts={"text": "Fine."})
    event = GateJudged(phase="red", attempt=1, open=False, reasons=(reason,), evidence="")
    line = encode(event, complete=add_messages)
    assert json.loads(line)["reasons"][0]["message"].startswith("no file was changed")
    assert decode(line) == event
    plain = json.loads(msgspec.json.encode(finding))
    assert add_messages({"steps": (plain,)}) == {"steps": [{**plain, "message": "Fine."}]}


def test_all_texts_of_a_record_are_changed_also_inside_of_clauses() -> None:
    clause = Clause("mutant", {"where": "secret.py:1", "how": Clause("other_value", {"now": "secret", "before": "1"})})
    reason = Reason("unproven_change", None, parts={"tried": (clause, "secret"), "count": 2})
    changed = change_texts(reason.parts, lambda text: text.replace("secret", "***"))
    assert "secret" not in str(changed)
    assert changed["count"] == 2
