import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cdd_agent.workflows.green
from cdd_agent.errors import GateClosed
from cdd_agent.workflows.green.artifact import (
    ChangedFiles,
    Component,
    Detail,
    GreenArtifact,
    Results,
    encode,
    encode_event,
    encode_line,
)

DETAILS = (
    Detail(name="t.py::a", status="passed"),
    Detail(name="t.py::b", status="failed", message="m", kind="assertion"),
)
RESULTS = Results(passed=1, failed=1, errors=0, skipped=0, total=2, test_details=DETAILS)
ARTIFACT = GreenArtifact(
    spec_id="S",
    request_id="R",
    targets=("t.py",),
    test_files=("t.py",),
    outcome="partial",
    implementation_files=ChangedFiles(created=("a.py",)),
    components=(Component(name="f", file_path="a.py", type="function"),),
    commit="abc",
    iterations=3,
    scope="all",
    test_results=RESULTS,
    passing_tests=1,
    all_tests_pass=False,
    error="not all",
)


def decode(data: bytes) -> GreenArtifact:
    return msgspec.json.decode(data, type=GreenArtifact)


def make_schema() -> bytes:
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "cdd green-artifact"}
    return msgspec.json.format(msgspec.json.encode(about | msgspec.json.schema(GreenArtifact)), indent=2) + b"\n"


@given(st.text(), st.text(), st.sampled_from(["green", "partial", "failed", "blocked"]))
def test_what_is_written_is_read_back(name: str, message: str, outcome: str) -> None:
    passed = Detail(name=name, status="passed")
    failed = Detail(name=f"{name}2", status="error", message=message, kind="crash")
    is_green = outcome == "green"
    made = replace(
        ARTIFACT,
        outcome=outcome,  # type: ignore[arg-type]
        commit="abc" if outcome in ("green", "partial") else None,
        error=None if is_green else "why",
        test_results=replace(RESULTS, failed=0, errors=1, test_details=(passed, failed)),
    )
    assert decode(encode(made)) == made
    assert decode(encode_line(made)) == made


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"passing_tests": 2}, "passing_tests is 2"),
        ({"all_tests_pass": True}, "all_tests_pass is True"),
        ({"error": None}, "the error is None"),
        ({"commit": None}, "the commit is None"),
        ({"targets": ()}, "must not be empty"),
        ({"test_results": replace(RESULTS, total=3)}, "total is 3"),
        ({"test_results": replace(RESULTS, passed=2), "passing_tests": 2}, "says 2 passed"),
        (
            {"test_results": replace(RESULTS, test_details=(DETAILS[0], replace(DETAILS[1], kind="odd")))},
            "has the unknown kind",
        ),
        (
            {"test_results": replace(RESULTS, test_details=(replace(DETAILS[0], kind="crash"), DETAILS[1]))},
            "is passed, but",
        ),
        ({"implementation_files": ChangedFiles(edited=("../x",))}, "is not a path in the project"),
    ],
)
def test_an_artifact_that_contradicts_itself_is_not_written(wrong: dict[str, object], told: str) -> None:
    made = replace(ARTIFACT, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=told):
        encode(made)


def test_the_schema_that_is_shipped_is_the_record_s_and_fits() -> None:
    shipped = Path(cdd_agent.workflows.green.__file__).with_name("artifact.schema.json")
    assert shipped.read_bytes() == make_schema()
    jsonschema.Draft202012Validator(json.loads(make_schema())).validate(json.loads(encode(ARTIFACT)))


def test_only_green_is_no_error() -> None:
    with pytest.raises(GateClosed, match=r"^not all\.$"):
        ARTIFACT.require_green("cdd green t.py")
    replace(ARTIFACT, error=None).require_green("cdd green t.py")
    with pytest.raises(GateClosed) as caught:
        replace(ARTIFACT, outcome="failed").require_green("cdd green t.py")
    assert caught.value.hint == "try again: cdd green t.py"


def test_among_events_it_is_one_of_them() -> None:
    line = encode_event(ARTIFACT)
    assert b"\n" not in line
    told = json.loads(line)
    assert told["event"] == "GreenArtifact"
    assert decode(json.dumps(told["artifact"]).encode()) == ARTIFACT
