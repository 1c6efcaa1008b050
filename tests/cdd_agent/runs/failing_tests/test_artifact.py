import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cdd_agent.runs
from cdd_agent.errors import GateClosed
from cdd_agent.runs.artifact import ChangedFiles, Component, Detail, GreenArtifact, Results, encode, encode_event

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


def test_the_schema_that_is_shipped_is_the_record_s_and_fits() -> None:
    shipped = Path(cdd_agent.runs.__file__).with_name("artifact.schema.json")
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
