"""The JSON Schema of the report says what the program writes and reads, and the reference pages say the same."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import pytest_tdd_agent
from pytest_tdd_agent.codec import ReportError, from_json, to_json
from pytest_tdd_agent.failure import KINDS
from pytest_tdd_agent.gate import CODES
from pytest_tdd_agent.report import (
    OUTCOMES,
    PHASES,
    SCHEMA,
    Case,
    Clause,
    CollectError,
    Failure,
    Frame,
    Part,
    Reason,
    Sign,
    StreamProblem,
    SuiteReport,
    Verdict,
)
from pytest_tdd_agent.tampering import SIGNS
from pytest_tdd_agent.wording import PROBLEMS
from tests.fakes.cases import soak_after
from tests.pytest_tdd_agent.conftest import Project

PACKAGE = Path(pytest_tdd_agent.__file__).parent
REFERENCE = PACKAGE.parent / "docs" / "reference"
DOCUMENT = json.loads((PACKAGE / "report.schema.json").read_text(encoding="utf-8"))
DEFS = DOCUMENT["$defs"]
EVENTS = {form["properties"]["event"]["const"]: form for form in DEFS["event"]["oneOf"]}


def strict(value: object) -> object:
    """A schema that takes no key it does not list: what the program writes has to be listed."""
    if isinstance(value, list):
        return [strict(item) for item in value]
    if not isinstance(value, dict):
        return value
    closed = {"additionalProperties": False} if isinstance(value.get("properties"), dict) else {}
    return {**{key: strict(item) for key, item in value.items()}, **closed}


STRICT = strict(DOCUMENT)
assert isinstance(STRICT, dict)
report_form = Draft202012Validator(STRICT)
event_form = Draft202012Validator({"$ref": "#/$defs/event", "$defs": STRICT["$defs"]})


def problems(form: Draft202012Validator, value: object) -> list[str]:
    """What does not fit, after the way through JSON."""
    return [f"{error.json_path}: {error.message}" for error in form.iter_errors(json.loads(json.dumps(value)))]


def failure(kind: str) -> Failure:
    at = (Frame("test_a.py", 3, "test_x"),)
    return Failure("call", kind, "test", "E", "no", "a.b", "test_a.py", 3, at, "text", "output", False)


PARTS: dict[str, Part] = {
    "name": "a",
    "count": 2,
    "seconds": 0.5,
    "names": ("a", Clause("nothing")),
    "why": Clause("nothing"),
}
FULL = SuiteReport(
    complete=True,
    exit_status=1,
    nonce="n",
    python="3.11.7",
    pytest="9.2.0",
    rootdir="/project",
    started_at="2026-01-01T00:00:00Z",
    duration_s=0.5,
    tests=(
        Case(
            "a::x",
            "failed",
            "a",
            1,
            0.1,
            {"setup": 0, "call": 0.1},
            1,
            failure("assertion"),
            ("assertion", "error"),
            "why",
        ),
        *(Case(f"a::{outcome}", outcome, "a", 1, 0.1) for outcome in OUTCOMES),
        *(Case(f"a::{kind}", "failed", "a", 0, 0.1, failure=failure(kind)) for kind in KINDS),
    ),
    collect_errors=(CollectError("b", Failure("collect", "syntax_error", "test", "SyntaxError", "")),),
    fingerprints={"a": "0" * 64},
    collected=2,
    gate=Verdict("red", False, tuple(Reason(code, None, parts=PARTS) for code in CODES)),
    old_failures=("a::old",),
    warnings=1,
    audited=True,
    signs=tuple(Sign(code, "a::x", parts=PARTS) for code in SIGNS),
    sandbox="bwrap",
    supervised=True,
    problem=StreamProblem("after_end", "a::x", {"event": "why"}),
)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(DOCUMENT)


@pytest.mark.parametrize("phase", PHASES)
def test_a_report_with_everything_in_it_fits(phase: str) -> None:
    assert problems(report_form, {**to_json(FULL), "gate": {"phase": phase, "open": True, "reasons": []}}) == []
    assert problems(report_form, to_json(FULL)) == []


def test_a_report_with_nothing_in_it_fits() -> None:
    assert problems(report_form, to_json(SuiteReport(False, 4, "", "", "", "/", "2026-01-01T00:00:00Z", 0))) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 2}, "$.schema: 1 was expected"),
        ({"complete": "yes"}, "$.complete: 'yes' is not of type 'boolean'"),
        ({"warnings": -1}, "$.warnings: -1 is less than the minimum of 0"),
        ({"fingerprints": {"a": "b"}}, "$.fingerprints.a: 'b' does not match '^[0-9a-f]{64}$'"),
        ({"color": "red"}, "$: Additional properties are not allowed ('color' was unexpected)"),
    ],
)
def test_what_does_not_fit_is_found(change: dict[str, object], told: str) -> None:
    assert problems(report_form, {**to_json(FULL), **change}) == [told]


@pytest.mark.parametrize(
    ("form", "place"),
    [
        (DOCUMENT, ()),
        (DEFS["summary"], ("summary",)),
        (DEFS["test"], ("tests", 0)),
        (DEFS["failure"], ("tests", 0, "failure")),
        (DEFS["frame"], ("tests", 0, "failure", "frames", 0)),
        (DEFS["collect_error"], ("collect_errors", 0)),
        (DEFS["verdict"], ("gate",)),
        (DEFS["reason"], ("gate", "reasons", 0)),
        (DEFS["sign"], ("signs", 0)),
    ],
    ids=["report", "summary", "test", "failure", "frame", "collect_error", "verdict", "reason", "sign"],
)
def test_the_keys_that_a_reader_can_do_without_are_the_optional_ones(
    form: Mapping[str, Mapping[str, object]], place: tuple[str | int, ...]
) -> None:
    assert {key for key in form["properties"] if is_needed(key, place)} == set(form["required"])


def is_needed(key: str, place: tuple[str | int, ...]) -> bool:
    document = json.loads(json.dumps(to_json(FULL)))
    value = document
    for step in place:
        value = value[step]
    del value[key]
    try:
        from_json(document)
    except ReportError:
        return True
    return False


@pytest.mark.parametrize(("name", "table"), [("kind", KINDS), ("reason_code", CODES), ("sign_code", SIGNS)])
def test_the_closed_lists_are_the_program_s(name: str, table: dict[str, str]) -> None:
    assert {form["const"]: form["description"] for form in DEFS[name]["oneOf"]} == table


def test_the_words_for_outcomes_phases_and_the_number_are_the_program_s() -> None:
    assert DEFS["outcome"]["enum"] == list(OUTCOMES)
    assert DEFS["verdict"]["properties"]["phase"]["enum"] == list(PHASES)
    assert DOCUMENT["properties"]["schema"]["const"] == SCHEMA


def test_the_events_are_those_that_the_program_sends() -> None:
    sources = [PACKAGE / "plugin.py", *(PACKAGE / "recording").glob("*.py")]
    calls = re.compile(r'\bsend(?:_case)?\(\s*"(\w+)"')
    sent = {name for path in sources for name in calls.findall(path.read_text(encoding="utf-8"))}
    assert set(EVENTS) == {*sent, "begin"}


RUNS = {
    "a closed gate": """
        import warnings, pytest
        tries = []
        @pytest.fixture
        def broken():
            raise OSError
        def test_passes():
            warnings.warn("old")
        def test_fails():
            print("seen")
            assert 1 == 2
        def test_error(broken): ...
        @pytest.mark.skip
        def test_skipped(): ...
        @pytest.mark.xfail
        def test_xfailed():
            assert False
        def test_flaky():
            tries.append(1)
            assert len(tries) > 1
        def test_missing():
            import fractions
            fractions.nothing
    """,
    "a run that is stopped": """
        import pytest
        def test_stops():
            pytest.exit("enough")
    """,
}


@soak_after(1, "name", RUNS)
def test_what_a_run_writes_fits(project: Project, name: str) -> None:
    project.write(test_a=RUNS[name].replace("\n        ", "\n"), test_b="import no_such_module")
    run = project.pytest("--tdd-agent-gate", "green", "--tdd-agent-flaky", "2", "--tdd-agent-expects", "x")
    text = (project.folder / "out/report.json").read_text(encoding="utf-8")
    assert problems(report_form, json.loads(text)) == []
    assert [(line, found) for line in run.stream if (found := problems(event_form, line))] == []
    assert not run.verdict.open


def test_a_run_in_which_a_plugin_fails_or_runs_tests_again_fits(project: Project) -> None:
    project.write(
        test_a="def test_x(): ...",
        conftest=(
            "import pytest\n"
            "@pytest.hookimpl(hookwrapper=True)\n"
            "def pytest_runtest_makereport(item, call):\n"
            "    report = (yield).get_result()\n"
            "    report.outcome = 'rerun' if call.when == 'call' else report.outcome\n"
            "def pytest_runtest_logfinish():\n"
            "    raise OSError\n"
        ),
    )
    stream = project.pytest().stream
    assert [(line, found) for line in stream if (found := problems(event_form, line))] == []
    assert {"rerun", "internal_error"} <= {str(line["event"]) for line in stream}


def test_the_reference_explains_every_key() -> None:
    page = (REFERENCE / "report.md").read_text(encoding="utf-8")
    document, _, stream = page.partition("\n## Stream\n")
    forms = [
        DOCUMENT,
        *(DEFS[name] for name in ("test", "failure", "frame", "collect_error", "verdict", "sign", "problem")),
    ]
    keys = {key for form in forms for key in form["properties"]}
    assert sorted(key for key in keys if f"`{key}`" not in document and f'"{key}":' not in document) == []
    for name, form in EVENTS.items():
        row = next((line for line in stream.splitlines() if line.startswith(f"| `{name}` |")), "")
        assert [key for key in form["properties"] if key != "event" and f"`{key}`" not in row] == [], name
        assert row, name


def test_the_reference_lists_the_signs() -> None:
    page = (REFERENCE / "plugin.md").read_text(encoding="utf-8")
    assert "\n".join(f"| `{code}` | {meaning} |" for code, meaning in SIGNS.items()) in page


def test_the_reference_lists_the_problems_of_records() -> None:
    page = (REFERENCE / "report.md").read_text(encoding="utf-8")
    assert page.endswith("\n".join(f"| `{code}` | {meaning} |" for code, meaning in PROBLEMS.items()) + "\n")


def test_the_reference_names_every_setting() -> None:
    page = (REFERENCE / "plugin.md").read_text(encoding="utf-8")
    declared = re.findall(r'addini\(\s*"(\w+)"', (PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assert re.findall(r"^\| `(tdd_agent_\w+)`", page, re.MULTILINE) == declared
