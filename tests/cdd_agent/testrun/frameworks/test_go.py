import json
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import GO
from tests.cdd_agent.testrun.frameworks.compiled_samples import (
    DATA,
    blocked,
    case,
    ended,
    failure,
    kept,
    outcomes,
    reason,
    run,
    written,
)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """What go 1.19 was run on for the kept events."""
    files = {"sums.go": "sums.go", "sums_test.go": "sums_test.go", "shapes.go": "shapes/shapes.go"}
    files["shapes_test.go"] = "shapes/shapes_test.go"
    texts = {path: (DATA / "go" / f"{name}.txt").read_text() for name, path in files.items()}
    return written(tmp_path, {**texts, "go.mod": "module example.com/demo\n\ngo 1.19\n", "broken/broken_test.go": ""})


def test_every_test_is_called_by_the_file_it_is_written_in(demo: Path) -> None:
    results = GO.read(ended(demo, kept("go/events.jsonl", demo)))
    assert outcomes(results) == {
        "sums_test.go::TestAdds": "passed",
        "sums_test.go::TestAddsWrongly": "failed",
        "sums_test.go::TestTable/one_and_one": "passed",
        "sums_test.go::TestTable/two": "failed",
        "sums_test.go::TestTable": "failed",
        "sums_test.go::TestSkips": "skipped",
        "sums_test.go::ExampleAdd": "failed",
        "shapes/shapes_test.go::TestFirst": "passed",
        "shapes/shapes_test.go::TestArea": "failed",
    }
    assert case(results, "shapes/shapes_test.go::TestArea").line == 7


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sums_test.go::TestAddsWrongly", ("assertion", "test", "sums_test.go", 14)),
        ("sums_test.go::TestTable", ("assertion", "test", "sums_test.go", 22)),
        ("sums_test.go::ExampleAdd", ("assertion", "test", None, None)),
        ("shapes/shapes_test.go::TestArea", ("exception", "project", "sums.go", 5)),
    ],
)
def test_a_failure_says_why(demo: Path, name: str, *, expected: tuple[str, str, str | None, int | None]) -> None:
    assert reason(GO.read(ended(demo, kept("go/events.jsonl", demo))), name) == expected


def test_the_way_to_a_panic_is_told_by_own_calls(demo: Path) -> None:
    found = failure(GO.read(ended(demo, kept("go/events.jsonl", demo))), "shapes/shapes_test.go::TestArea")
    assert [frame.path for frame in found.frames] == ["shapes/shapes_test.go", "shapes/shapes.go", "sums.go"]


def test_a_package_that_does_not_compile_is_a_collect_error(demo: Path) -> None:
    results = GO.read(ended(demo, kept("go/events.jsonl", demo)))
    assert blocked(results) == {"broken/broken_test.go": ("collection_error", None, 15, None)}


@pytest.mark.parametrize(
    ("message", "kind", "name"),
    [
        ("undefined: Missing", "name_error", "Missing"),
        ("undefined: demo.Absent", "attribute_error", "demo.Absent"),
        ("t.Nope undefined (type *testing.T has no field or method Nope)", "attribute_error", "testing.T.Nope"),
        ("unknown field Z in struct literal of type Point", "attribute_error", "Point.Z"),
        (
            "not enough arguments in call to demo.Add\n\thave (number)\n\twant (int, int)",
            "signature_mismatch",
            "demo.Add",
        ),
        ("no required module provides package github.com/a/b; to add it:", "missing_module", "github.com/a/b"),
        ("package example.com/demo/x is not in GOROOT (/usr)", "missing_module", "example.com/demo/x"),
        ("syntax error: unexpected newline", "syntax_error", None),
        ("missing ',' in parameter list", "syntax_error", None),
        ("declared and not used: x", "collection_error", None),
    ],
)
def test_an_error_says_what_is_missing(demo: Path, message: str, *, kind: str, name: str | None) -> None:
    name_of_package = "example.com/demo/broken"
    said = f"broken/broken_test.go:3:5: {message}\n"
    text = f"# {name_of_package}\n{said}FAIL\t{name_of_package} [build failed]\n"
    (error,) = GO.read(ended(demo, text)).collect_errors
    assert (error.nodeid, error.failure.kind, error.failure.missing_name) == ("broken/broken_test.go", kind, name)


def test_newer_versions_tell_what_the_compiler_says_as_events(demo: Path) -> None:
    """Written from ``go doc cmd/test2json`` and ``go help buildjson`` of go 1.24."""
    package, test = "example.com/demo/broken", "example.com/demo/broken [example.com/demo/broken.test]"
    events = [
        {"ImportPath": test, "Action": "build-output", "Output": f"# {test}\n"},
        {"ImportPath": test, "Action": "build-output", "Output": "broken/broken_test.go:10:2: undefined: Missing\n"},
        {"ImportPath": test, "Action": "build-fail"},
        {"Action": "start", "Package": package},
        {"Action": "output", "Package": package, "Output": f"FAIL\t{package} [build failed]\n"},
        {"Action": "fail", "Package": package, "Elapsed": 0, "FailedBuild": test},
    ]
    results = GO.read(ended(demo, "".join(json.dumps(event) + "\n" for event in events)))
    assert blocked(results) == {"broken/broken_test.go": ("name_error", "Missing", 10, None)}


def test_a_test_that_was_begun_and_ended_the_process_has_failed(demo: Path) -> None:
    events = [
        {"Action": "run", "Package": "example.com/demo", "Test": "TestAdds"},
        {
            "Action": "output",
            "Package": "example.com/demo",
            "Test": "TestAdds",
            "Output": "panic: test timed out after 1s\n",
        },
        {"Action": "fail", "Package": "example.com/demo", "Elapsed": 1},
    ]
    results = GO.read(ended(demo, "".join(json.dumps(event) + "\n" for event in events)))
    assert outcomes(results) == {"sums_test.go::TestAdds": "failed"}
    assert failure(results, "sums_test.go::TestAdds").kind == "timeout"


def test_a_run_that_was_cut_off_is_a_problem(demo: Path) -> None:
    event = json.dumps({"Action": "run", "Package": "example.com/demo", "Test": "TestAdds"})
    assert GO.read(ended(demo, event + "\n")).problem == "TestAdds of example.com/demo began and has no result"


def test_a_package_that_fails_outside_of_its_tests_is_a_problem(demo: Path) -> None:
    events = [
        {"Action": "output", "Package": "example.com/demo", "Output": "no database\n"},
        {"Action": "fail", "Package": "example.com/demo"},
    ]
    results = GO.read(ended(demo, "".join(json.dumps(event) + "\n" for event in events)))
    assert results.problem == "package example.com/demo failed outside of its tests: no database"


def test_what_a_test_prints_is_no_event(demo: Path) -> None:
    results = GO.read(
        ended(demo, '{"Action": 1}\n{"Action": "pass", "Package": "p", "Elapsed": "x"}\n{\n', exit_status=0)
    )
    assert (results.tests, results.problem) == ((), None)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), ("./...",)),
        (("sums_test.go",), ("./.",)),
        (("shapes/shapes_test.go",), ("./shapes",)),
        (("shapes",), ("./shapes/...",)),
        (("a/x_test.go", "b/y_test.go", "a/z_test.go"), ("./a", "./b")),
        (("-exec=sh", "a_test.go"), ("./-exec=sh/...", "./.")),
    ],
)
def test_files_select_their_packages(files: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert GO.arguments(files, Path("/r")) == ("-json", "-count=1", *expected)


@pytest.mark.needs("go", "version")
def test_a_real_run_is_read(demo: Path) -> None:
    (demo / "broken/broken_test.go").unlink()
    assert outcomes(run(GO, demo, "sums_test.go"))["sums_test.go::TestAdds"] == "passed"
