import pytest

from cdd_agent.testrun.frameworks.javascript_results import Kind, classify
from pytest_tdd_agent.failure import KINDS


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("AssertionError", "expected 3 to be 4", Kind(name="assertion")),
        ("Error", "expect(received).toBe(expected)\n\nExpected: 4", Kind(name="assertion")),
        ("", "assert.strictEqual(received, expected)", Kind(name="assertion")),
        ("Error", "Snapshot `cart > total 1` mismatched", Kind(name="assertion")),
        ("AssertionError", "expected [Function] to throw an error", Kind(name="did_not_raise")),
        ("AssertionError", "expected [Function] to throw TypeError", Kind(name="did_not_raise")),
        ("AssertionError", "expected function to throw an error, but it didn't", Kind(name="did_not_raise")),
        ("AssertionError", 'promise resolved "1" instead of rejecting', Kind(name="did_not_raise")),
        ("AssertionError", "Missing expected rejection.", Kind(name="did_not_raise")),
        (
            "AssertionError",
            "expected [Function] to throw error including 'full' but got 'empty'",
            Kind(name="raises_match_mismatch"),
        ),
        (
            "AssertionError",
            "expected [Function] to throw 'RangeError' but 'TypeError: a' was thrown",
            Kind(name="wrong_exception"),
        ),
        ("TypeError", "(0 , _calc.nope) is not a function", Kind(name="attribute_error", missing="nope")),
        (
            "TypeError",
            "(0 , __vite_ssr_import_0__.nope) is not a function",
            Kind(name="attribute_error", missing="nope"),
        ),
        ("TypeError", "shelf.Book is not a constructor", Kind(name="attribute_error", missing="shelf.Book")),
        ("TypeError", "Cannot set properties of null (setting 'title')", Kind(name="attribute_error", missing="title")),
        ("ReferenceError", "add is not defined", Kind(name="name_error", missing="add")),
        ("Error", "shelf.put is not a function", Kind(name="exception")),
        (
            "SyntaxError",
            "The requested module './a.js' does not provide an export named 'b'",
            Kind(name="import_error", missing="b", module="./a.js"),
        ),
        (
            "Error",
            'Failed to resolve import "./a" from "src/b.test.ts". Does the file exist?',
            Kind(name="missing_module", module="./a", importer="src/b.test.ts"),
        ),
        (
            "Error",
            "Failed to load url ./a.js (resolved id: ./a.js) in /p/b.test.js. Does the file exist?",
            Kind(name="missing_module", module="./a.js", importer="/p/b.test.js"),
        ),
        (
            "TSError",
            "Unable to compile TypeScript:\nb.ts(1,2): error TS2305: Module '\"../src/a\"' has no exported member 'x'.",
            Kind(name="import_error", missing="x", module="../src/a"),
        ),
        ("", "a.ts:1:2 - error TS2554: Expected 1 arguments, but got 2.", Kind(name="signature_mismatch")),
        ("SyntaxError", "Unexpected token '='", Kind(name="syntax_error")),
        ("RangeError", "Maximum call stack size exceeded", Kind(name="recursion")),
        ("Error", "Test timed out in 5000ms.", Kind(name="timeout")),
        ("Error", "add() is not implemented", Kind(name="not_implemented")),
        ("Error", "TODO", Kind(name="not_implemented")),
        ("Error", "todos are not loaded", Kind(name="exception")),
        ("RangeError", "out", Kind(name="exception")),
        ("", "", Kind(name="exception")),
    ],
)
def test_a_message_says_what_kind_of_failure_it_is(name: str, message: str, *, kind: Kind) -> None:
    assert classify(message, name=name) == kind
    assert kind.name in KINDS


def test_an_expected_error_that_came_because_a_name_is_missing_is_that_of_the_name() -> None:
    said = "expected [Function] to throw error matching /full/ but got 'shelf.put is not a function'"
    assert classify(said, name="AssertionError") == Kind(name="attribute_error", missing="shelf.put")
    said = 'expect(received).toThrow(expected)\n\nExpected pattern: /full/\nReceived message: "add is not defined"'
    assert classify(said, name="Error") == Kind(name="name_error", missing="add")


def test_a_matcher_of_the_project_s_is_an_expectation() -> None:
    assert classify("2 is even", name="Error", is_expectation=True) == Kind(name="assertion")


def test_a_long_message_is_judged_in_no_time() -> None:
    assert classify("x\n" * 500_000, name="Error") == Kind(name="exception")
    assert classify("Cannot find module 'a" * 50_000, name="").name in KINDS
