import doctest
import errno
from pathlib import Path

import pytest

from pytest_tdd_agent.failure import FRAMES_CAP, KINDS, MESSAGE_CAP, classify, covers, describe, from_text, message_of
from pytest_tdd_agent.report import Failure

TEST = "tests/test_a.py"


def failing(root: Path, code: str, *, file: str = TEST, phase: str = "call") -> Failure:
    """Run code as if it were a file of the project, and describe the exception it ends with."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    try:
        exec(compile(code, str(path), "exec"), {"__name__": "test_a", "pytest": pytest})
    except BaseException as error:  # noqa: BLE001 - that is what is described
        return describe(error, phase=phase, root=str(root), test_file=TEST, source=lambda _: code)
    raise AssertionError("the code was to fail")


@pytest.mark.parametrize(
    ("code", "kind", "missing_name"),
    [
        ("assert 1 == 2", "assertion", None),
        ("import no_such.module", "missing_module", "no_such"),
        ("from json import no_such", "import_error", "json.no_such"),
        ("import json; json.no_such", "attribute_error", "json.no_such"),
        ("class Box: pass\nBox().lid", "attribute_error", "test_a.Box.lid"),
        ("class Box: pass\nBox.lid", "attribute_error", "test_a.Box.lid"),
        ("None.lid", "attribute_error", "NoneType.lid"),
        ("raise AttributeError('odd')", "attribute_error", None),
        ("no_such", "name_error", "no_such"),
        ("def f():\n    x\n    x = 1\nf()", "name_error", "x"),
        ("def f(): pass\nf(1)", "signature_mismatch", "test_a.f"),
        ("def f(): pass\nf(b=1)", "signature_mismatch", "test_a.f.b"),
        ("import json\njson.dumps()", "signature_mismatch", "json.dumps"),
        ("1 + 'a'", "exception", None),
        ("raise NotImplementedError", "not_implemented", None),
        ("def f(): f()\nf()", "recursion", None),
        ("raise SystemExit(0)", "system_exit", None),
        ("raise MemoryError", "resource", None),
        (f"raise OSError({errno.ENOSPC}, 'full')", "resource", None),
        ("raise OSError(2, 'none')", "exception", None),
        ("raise TimeoutError", "timeout", None),
        ("pytest.fail('Timeout (>1.0s) from pytest-timeout.')", "timeout", None),
        ("pytest.fail('no')", "pytest_fail", None),
        ("with pytest.raises(ValueError): pass", "did_not_raise", None),
        ("with pytest.warns(UserWarning): pass", "did_not_warn", None),
        ("with pytest.raises(ValueError, match='zz'): int('b')", "raises_match_mismatch", None),
        ("raise AssertionError(\"Regex pattern 'a' does not match 'b'.\")", "raises_match_mismatch", None),
        ("with pytest.raises(ValueError):\n    {}['a']", "wrong_exception", None),
        ("with pytest.raises(ValueError):\n    no_such", "wrong_exception", "no_such"),
        ("pytest.raises(ValueError, lambda: {}['a'])", "wrong_exception", None),
        ("with pytest.raises(ValueError):\n    int('x')\n{}['a']", "exception", None),
        ("raise ValueError", "exception", None),
    ],
)
def test_an_exception_in_a_test_has_a_kind(tmp_path: Path, code: str, *, kind: str, missing_name: str | None) -> None:
    failure = failing(tmp_path, code)
    assert (failure.kind, failure.missing_name, failure.origin) == (kind, missing_name, "test")
    assert failure.kind in KINDS


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import no_such", "missing_module"),
        ("from json import no_such", "import_error"),
        ("no_such", "collection_error"),
        ("assert False", "collection_error"),
    ],
)
def test_a_file_that_cannot_be_imported_has_a_kind(tmp_path: Path, code: str, kind: str) -> None:
    assert failing(tmp_path, code, phase="collect").kind == kind


def test_a_syntax_error_is_placed_where_it_is_not_where_it_was_imported(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = (\n")
    at = str(tmp_path / "a.py")
    code = f"from pathlib import Path; compile(Path({at!r}).read_text(), {at!r}, 'exec')"
    failure = failing(tmp_path, code)
    assert (failure.kind, failure.origin, failure.path, failure.line) == ("syntax_error", "project", "a.py", 2)


def test_the_frames_are_those_of_the_users_own_code(tmp_path: Path) -> None:
    product = tmp_path / "src/a.py"
    installed = tmp_path / ".venv/lib/site-packages/b.py"
    for path, text in ((product, "def f(g):\n    g()\n"), (installed, "def g():\n    raise ValueError('x')\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    places = (str(product), str(installed))
    loads = "".join(f"exec(compile(Path({at!r}).read_text(), {at!r}, 'exec')); " for at in places)
    failure = failing(tmp_path, f"from pathlib import Path\n{loads}\nf(g)\n")
    assert [(at.path, at.line, at.function) for at in failure.frames] == [(TEST, 3, "<module>"), ("src/a.py", 2, "f")]
    assert (failure.path, failure.line, failure.origin) == ("src/a.py", 2, "third_party")
    assert failing(tmp_path, "import json; json.loads('{')").origin == "test"
    assert failing(tmp_path, "raise ValueError", file="src/b.py").origin == "project"
    assert failing(tmp_path, "raise ValueError", file="conftest.py").origin == "test"
    assert len(failing(tmp_path, "def f(): f()\nf()").frames) == FRAMES_CAP


def test_a_failed_doctest_is_an_assertion_at_its_line() -> None:
    case = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "t", "/p/src/a.py", 4)
    with pytest.raises(doctest.DocTestFailure) as failed:
        doctest.DebugRunner().run(case, clear_globs=False)
    failure = describe(failed.value, phase="call", root="/p", test_file="src/a.py", source=lambda _: None)
    assert (failure.kind, failure.path, failure.line) == ("assertion", "src/a.py", 5)
    assert failure.message == r"Expected '3\n', got '2\n'"


def test_an_exception_in_a_doctest_is_described_itself() -> None:
    case = doctest.DocTestParser().get_doctest(">>> import no_such\n", {}, "t", "/p/src/a.py", 4)
    with pytest.raises(doctest.UnexpectedException) as failed:
        doctest.DebugRunner().run(case, clear_globs=False)
    failure = describe(failed.value, phase="call", root="/p", test_file="src/a.py", source=lambda _: None)
    assert (failure.kind, failure.missing_name, failure.path) == ("missing_module", "no_such", "src/a.py")


def test_a_message_is_capped_and_never_raises() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "failed" in message_of(UnprintableError())
    assert len(message_of(ValueError("x" * 10_000))) == MESSAGE_CAP
    assert message_of(ValueError("a: b\nc")) == "a: b\nc"


def test_a_report_without_an_exception_has_a_kind_too() -> None:
    assert from_text("[XPASS(strict)] why", "call").kind == "xpass_strict"
    crash = from_text("worker 'gw0' crashed while running 'a.py::t'", "???")
    assert (crash.kind, crash.phase) == ("crash", "call")
    assert from_text("odd", "setup").kind == "exception"


def test_a_test_file_that_cannot_be_read_leaves_the_plain_kind(tmp_path: Path) -> None:
    def broken(_: str) -> str:
        return "with raises("

    def unreadable(_: str) -> None:
        return None

    for source in (broken, unreadable):
        with pytest.raises(KeyError) as caught:
            exec(compile("with pytest.raises(ValueError): {}['a']", str(tmp_path / TEST), "exec"), {"pytest": pytest})
        found = describe(caught.value, phase="call", root=str(tmp_path), test_file=TEST, source=source)
        assert found.kind == "exception"
    assert classify(KeyError("x"), phase="call") == ("exception", None)


@pytest.mark.parametrize(
    ("expected", "missing", "kind"),
    [
        ("ledger.export", "ledger.export", "missing_module"),
        ("ledger.export", "ledger", "missing_module"),
        ("ledger", "ledger.export", "missing_module"),
        ("ledger.export.to_csv", "ledger.export", "missing_module"),
        ("ledger.export", "ledger.export.to_csv", "import_error"),
        ("to_csv", "ledger.export.to_csv", "import_error"),
        ("ledger.export", "ledger.export.Sheet.rows", "attribute_error"),
        ("ledger.export.Sheet.rows", "Sheet.rows", "attribute_error"),
        ("ledger.export.to_csv", "ledger.export.to_csv.header", "signature_mismatch"),
        ("ledger.export.to_csv", "to_csv.header", "signature_mismatch"),
        ("header", "ledger.export.to_csv.header", "signature_mismatch"),
        ("to_csv", "to_csv", "name_error"),
    ],
)
def test_an_expected_name_covers_what_it_makes_missing(expected: str, missing: str, kind: str) -> None:
    assert covers(expected, missing, kind=kind)


@pytest.mark.parametrize(
    ("expected", "missing", "kind"),
    [
        ("ledger.export", "requests", "missing_module"),
        ("ledger.export", "export", "missing_module"),
        ("ledger.export", "ledger.exporter", "missing_module"),
        ("ledger.export.to_csv", "ledger.export.to_json", "import_error"),
        ("ledger.export.to_csv", "to_csv", "name_error"),
        ("rows", "Sheet.columns", "attribute_error"),
    ],
)
def test_an_expected_name_covers_nothing_else(expected: str, missing: str, kind: str) -> None:
    assert not covers(expected, missing, kind=kind)
