from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.javascript import is_test
from cdd_agent.testrun.frameworks.javascript_results import ErrorContext, describe_error, find_printed_error
from pytest_tdd_agent.report import Frame


@pytest.fixture
def setting(tmp_path: Path) -> ErrorContext:
    return ErrorContext(root=tmp_path, file="test/a.test.js", is_test=is_test)


def test_the_innermost_own_place_is_where_it_was_thrown(setting: ErrorContext) -> None:
    root = setting.root
    stack = (
        f"TypeError: no\n    at deep (file://{root}/src/a%20b.js?v=1:4:18)\n"
        f"    at Object.<anonymous> ({root}/test/a.test.js:7:47)\n"
        f"    at run (file://{root}/node_modules/@vitest/runner/dist/hooks.js:1:1)\n    at node:internal/timers:483:21"
    )
    found = describe_error(stack, setting)
    assert (found.origin, found.path, found.line) == ("project", "src/a b.js", 4)
    assert found.frames == (Frame("test/a.test.js", 7, "Object.<anonymous>"), Frame("src/a b.js", 4, "deep"))
    assert (found.exception, found.message) == ("TypeError", "no")


def test_what_a_package_threw_is_a_third_party_s(setting: ErrorContext) -> None:
    root = setting.root
    stack = f"Error: no\n    at f ({root}/node_modules/left-pad/index.js:1:1)\n    at {root}/test/a.test.js:7:47"
    found = describe_error(stack, setting)
    assert (found.origin, found.path, found.line) == ("third_party", "test/a.test.js", 7)


def test_the_runner_s_own_frames_are_looked_through(setting: ErrorContext) -> None:
    root = setting.root
    chai = f"file://{root}/node_modules/chai/index.js"
    stack = f"AssertionError: no\n    at Proxy.f ({chai}:1:1)\n    at {root}/test/a.test.js:7:4"
    assert describe_error(stack, setting).origin == "test"


@pytest.mark.parametrize(
    ("said", "missing", "is_own"),
    [
        ("Cannot find module '../src/b' from 'test/deep/a.test.js'", "test/src/b", True),
        ("Cannot find module '/src/b.js' imported from test/a.test.js", "src/b.js", True),
        ("Cannot find module '#lib/b'", "#lib/b", True),
        ("Cannot find module '@/b'", "@/b", True),
        ("Cannot find package 'left-pad'", "left-pad", False),
        ("Cannot find package '@scope/left-pad'", "@scope/left-pad", False),
        ("Cannot find module 'src/b'", "src/b", True),
        ("Cannot find module 'lodash/b'", "lodash/b", False),
    ],
)
def test_a_missing_module_is_named_as_a_file_of_the_project_or_is_somebody_else_s(
    said: str, missing: str, *, is_own: bool, setting: ErrorContext
) -> None:
    (setting.root / "src").mkdir()
    found = describe_error(f"Error: {said}", setting)
    assert (found.kind, found.missing_name, found.missing_in_project) == ("missing_module", missing, is_own)


def test_colours_are_not_read(setting: ErrorContext) -> None:
    found = describe_error("\x1b[31mReferenceError\x1b[0m: \x1b[1madd\x1b[22m is not defined", setting)
    assert (found.kind, found.missing_name, found.missing_in_project) == ("name_error", "add", True)


def test_what_is_no_error_is_told_as_it_is(setting: ErrorContext) -> None:
    found = describe_error("just a string", setting)
    assert (found.exception, found.kind, found.message, found.path) == ("Error", "exception", "just a string", None)


def test_the_last_error_that_was_printed_is_what_the_process_died_of() -> None:
    said = "Error: x\n    at x\nfile:///p/a.js:2\nb();\n^\n\nReferenceError: b is not defined\n    at y\n\nNode.js v2"
    assert find_printed_error(said) == "ReferenceError: b is not defined\n    at y\nfile:///p/a.js:2"
    assert find_printed_error("nothing of the kind\n") == "nothing of the kind"
