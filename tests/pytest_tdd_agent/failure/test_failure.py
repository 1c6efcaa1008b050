from __future__ import annotations

import doctest
import errno
import sys
from pathlib import Path

import pytest

from pytest_tdd_agent.codec import failure_from_line, failure_to_line
from pytest_tdd_agent.failure import (
    FRAMES_CAP,
    KINDS,
    MESSAGE_CAP,
    Places,
    classify,
    describe,
    find_stage,
    format_message,
    from_text,
)
from pytest_tdd_agent.missing_names import covers, is_in_project
from pytest_tdd_agent.report import Failure

TEST = "tests/test_a.py"
OWNER = "test_a." if sys.version_info >= (3, 10) else ""  # before, the exception names the class only
CASE = "__import__('unittest').TestCase()"
PATCH = "import pathlib; from unittest import mock; mock.patch"


def failing(root: Path, code: str, *, file: str = TEST, phase: str = "call") -> Failure:
    """Run code as if it were a file of the project, and describe the exception it ends with."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    try:
        exec(compile(code, str(path), "exec"), {"__name__": "test_a", "pytest": pytest})
    except BaseException as error:  # noqa: BLE001 - that is what is described
        return describe(error, phase=phase, places=Places(str(root)), test_file=TEST, source=lambda _: code.encode())
    raise AssertionError("the code was to fail")


@pytest.mark.parametrize(
    ("code", "kind", "missing_name"),
    [
        ("assert 1 == 2", "assertion", None),
        ("import no_such.module", "missing_module", "no_such"),
        ("from json import no_such", "import_error", "json.no_such"),
        ("import json; json.no_such", "attribute_error", "json.no_such"),
        ("class Box: pass\nBox().lid", "attribute_error", f"{OWNER}Box.lid"),
        ("class Box: pass\nBox.lid", "attribute_error", f"{OWNER}Box.lid"),
        (f"{PATCH}('json.no_such').start()", "attribute_error", "json.no_such"),
        (f"{PATCH}.object(pathlib.Path, 'no_such').start()", "attribute_error", "pathlib.Path.no_such"),
        (f"class Box: pass\n{PATCH}.object(Box(), 'lid').start()", "attribute_error", f"{OWNER}Box.lid"),
        ("pytest.MonkeyPatch().setattr('json.no_such', 1)", "attribute_error", "json.no_such"),
        ("import json; pytest.MonkeyPatch().setattr(json, 'no_such', 1)", "attribute_error", "json.no_such"),
        ("None.lid", "exception", None),
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
        ("with pytest.raises(ValueError, match='^zz$'): int('b')", "raises_match_mismatch", None),
        ("with pytest.raises(ValueError) as e: int('b')\ne.match('zz')", "raises_match_mismatch", None),
        ("import warnings\nwith pytest.warns(UserWarning, match='zz'): warnings.warn('b')", "did_not_warn", None),
        ("with pytest.warns(UserWarning): no_such", "name_error", "no_such"),
        (f"{CASE}.assertEqual(1, 2)", "assertion", None),
        (f"with {CASE}.assertRaises(ValueError): pass", "did_not_raise", None),
        (f"with {CASE}.assertWarns(UserWarning): pass", "did_not_warn", None),
        (f"with {CASE}.assertRaisesRegex(ValueError, 'zz'): int('b')", "raises_match_mismatch", None),
        (f"with {CASE}.assertRaises(ValueError): {{}}['a']", "wrong_exception", None),
        (f"with {CASE}.assertLogs(): pass", "assertion", None),
        (f"with {CASE}.subTest(x=1): assert False", "assertion", None),
        ("pytest.fail('no', pytrace=False)", "pytest_fail", None),
        ("pytest.fail('Unexpected success', pytrace=False)", "xpass_strict", None),
        ("raise KeyboardInterrupt", "exception", None),
        ("with pytest.raises(ValueError): raise KeyboardInterrupt", "exception", None),
        ("with pytest.raises(ValueError): raise MemoryError", "resource", None),
        ("with pytest.raises(ValueError): raise TimeoutError", "timeout", None),
        ("with pytest.raises(ValueError): raise SystemExit", "wrong_exception", None),
        ("def f(): {}['a']\nwith pytest.raises(ValueError): f()", "wrong_exception", None),
        ("with pytest.raises(ValueError) as e: int('b')\nraise KeyError from e.value", "exception", None),
        ("raise BrokenPipeError", "exception", None),
        ("import asyncio; raise asyncio.TimeoutError", "timeout", None),
        ("import concurrent.futures as c; raise c.TimeoutError", "timeout", None),
        ("import socket; raise socket.timeout", "timeout", None),
        ("import subprocess as s; raise s.TimeoutExpired('a', 1)", "timeout", None),
        (
            "class DeadlineExceeded(Exception): __module__ = 'hypothesis.errors'\nraise DeadlineExceeded",
            "timeout",
            None,
        ),
        ("exec('x = (')", "syntax_error", None),
        ("with pytest.raises(ValueError): exec('x = (')", "wrong_exception", None),
        ("from importlib.metadata import version; version('no-such')", "exception", None),
        ("raise ImportError('install it')", "import_error", None),
        ("import os.path.no_such", "missing_module", "os.path.no_such"),
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
    "code",
    [
        "None.lid",
        "len(None)",
        "one, two = None",
        "x = None\nx[0]",
        "None + 1",
        "for _ in None: pass",
        "x = None\nx()",
        "float(None)",
        "import json; json.loads(None)",
        "with pytest.raises(ValueError):\n    None.lid",
    ],
)
def test_what_a_test_cannot_do_with_none_shows_code_that_returns_nothing(tmp_path: Path, code: str) -> None:
    assert find_stage(failing(tmp_path, code), ()) == "behavioral"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import no_such", "missing_module"),
        ("from json import no_such", "import_error"),
        ("no_such", "collection_error"),
        ("assert False", "collection_error"),
        ("exec('x = (')", "syntax_error"),
        ("pytest.fail('no')", "pytest_fail"),
        ("pytest.skip('no')", "collection_error"),
        ("from _pytest.pathlib import ImportPathMismatchError as E; raise E('a', 'b', 'c')", "collection_error"),
        ("from importlib.metadata import version; version('no-such')", "collection_error"),
        ("raise pytest.Collector.CollectError('odd')", "collection_error"),
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
    failure = describe(failed.value, phase="call", places=Places("/p"), test_file="src/a.py", source=lambda _: None)
    assert (failure.kind, failure.path, failure.line) == ("assertion", "src/a.py", 5)
    assert failure.message == r"Expected '3\n', got '2\n'"


def test_an_exception_in_a_doctest_is_described_itself() -> None:
    case = doctest.DocTestParser().get_doctest(">>> import no_such\n", {}, "t", "/p/src/a.py", 4)
    with pytest.raises(doctest.UnexpectedException) as failed:
        doctest.DebugRunner().run(case, clear_globs=False)
    failure = describe(failed.value, phase="call", places=Places("/p"), test_file="src/a.py", source=lambda _: None)
    assert (failure.kind, failure.missing_name, failure.path) == ("missing_module", "no_such", "src/a.py")


def test_what_a_doctest_calls_is_the_product_and_what_it_says_is_the_test(tmp_path: Path) -> None:
    product = tmp_path / "src/a.py"
    product.parent.mkdir()
    product.write_text("def f():\n    raise ValueError('x')\n")
    names: dict[str, object] = {}
    exec(compile(product.read_text(), str(product), "exec"), names)
    origins = []
    for text in (">>> f()\n", ">>> no_such\n", ">>> 1\n2\n"):
        case = doctest.DocTestParser().get_doctest(text, names, "t", str(product), 4)
        with pytest.raises((doctest.UnexpectedException, doctest.DocTestFailure)) as failed:
            doctest.DebugRunner().run(case, clear_globs=False)
        error = failed.value.with_traceback(None)  # without this very file, which is not of the project
        failure = describe(
            error, phase="call", places=Places(str(tmp_path)), test_file="src/a.py", source=lambda _: None
        )
        assert (failure.path, failure.line) == ("src/a.py", 5)
        origins.append(failure.origin)
    assert origins == ["project", "test", "test"]


def test_of_several_doctest_failures_the_first_is_described() -> None:
    from _pytest.doctest import MultipleDoctestFailures

    case = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "t", "/p/a.py", 4)
    with pytest.raises(doctest.DocTestFailure) as failed:
        doctest.DebugRunner().run(case, clear_globs=False)
    error = MultipleDoctestFailures([failed.value.with_traceback(None)])
    failure = describe(error, phase="call", places=Places("/p"), test_file="a.py", source=lambda _: None)
    assert (failure.kind, failure.exception, failure.origin) == ("assertion", "DocTestFailure", "test")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are of Python 3.11")
@pytest.mark.parametrize(
    ("code", "kind", "exception"),
    [
        ("raise ExceptionGroup('', [AssertionError(1)])", "assertion", "AssertionError"),
        ("raise ExceptionGroup('', [ExceptionGroup('', [AssertionError(1)])])", "assertion", "AssertionError"),
        ("raise ExceptionGroup('', [AssertionError(1), AssertionError(2)])", "assertion", "AssertionError"),
        ("raise ExceptionGroup('', [AssertionError(1), KeyError(2)])", "exception", "ExceptionGroup"),
        ("raise BaseExceptionGroup('', [SystemExit(1)])", "system_exit", "SystemExit"),
        ("with pytest.raises(ValueError): raise ExceptionGroup('', [KeyError(1)])", "wrong_exception", "KeyError"),
        (
            "import asyncio\nasync def fail(): raise KeyError\nasync def main():\n"
            "    async with asyncio.TaskGroup() as group: group.create_task(fail())\n"
            "with pytest.raises(ValueError): asyncio.run(main())",
            "wrong_exception",
            "KeyError",
        ),
    ],
)
def test_a_group_of_one_kind_is_described_by_its_member(
    tmp_path: Path, code: str, *, kind: str, exception: str
) -> None:
    failure = failing(tmp_path, code)
    assert (failure.kind, failure.exception, failure.origin) == (kind, exception, "test")


@pytest.mark.skipif(not hasattr(pytest, "RaisesGroup"), reason="RaisesGroup is of pytest 8.4")
@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are of Python 3.11")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("pass", "did_not_raise"),
        ("raise ExceptionGroup('', [KeyError()])", "raises_match_mismatch"),
        ("raise KeyError", "wrong_exception"),
        ("no_such", "wrong_exception"),
    ],
)
def test_a_group_that_is_expected_has_the_kinds_of_raises(tmp_path: Path, body: str, kind: str) -> None:
    failure = failing(tmp_path, f"with pytest.RaisesGroup(ValueError):\n    {body}")
    assert (failure.kind, failure.line) == (kind, 2 if kind == "wrong_exception" else failure.line)
    assert failure.missing_name == ("no_such" if body == "no_such" else None)


def test_the_import_error_of_a_conftest_file_is_described_itself(tmp_path: Path) -> None:
    code = (
        "from _pytest.config import ConftestImportFailure as E\nfrom pathlib import Path\nimport sys\n"
        "try:\n    import no_such\nexcept ImportError as error:\n"
        "    info = sys.exc_info() if 'excinfo' in E.__init__.__code__.co_varnames else None\n"
        "    raise E(*((Path('c'), info) if info else (Path('c'),)), **({} if info else {'cause': error})) from error\n"
    )
    failure = failing(tmp_path, code, file="tests/conftest.py", phase="collect")
    assert (failure.kind, failure.missing_name, failure.origin) == ("missing_module", "no_such", "test")
    assert (failure.path, failure.line) == ("tests/conftest.py", 5)


def test_an_assertion_without_a_message_says_its_source(tmp_path: Path) -> None:
    failure = failing(tmp_path, "def check(x):\n    assert x == 2\ncheck(1)", file="tests/checks.py")
    assert failure.message == "assert x == 2"
    assert failing(tmp_path, "raise ValueError").message == ""


def test_an_exception_without_a_place_has_that_of_its_cause(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="b") as caught:
        exec(compile("int('b')", str(tmp_path / "src/a.py"), "exec"), {})
    error = RuntimeError("lost")
    error.__cause__ = caught.value
    failure = describe(error, phase="call", places=Places(str(tmp_path)), test_file=TEST, source=lambda _: None)
    assert (failure.kind, failure.path, failure.origin) == ("exception", "src/a.py", "project")
    error.__cause__ = None
    failure = describe(error, phase="call", places=Places(str(tmp_path)), test_file=TEST, source=lambda _: None)
    assert (failure.path, failure.origin, failure.frames) == (None, "third_party", ())


def test_code_without_a_file_is_looked_through_to_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failure = failing(tmp_path, "names = {}\nexec('def f(): 1 / 0', names)\nnames['f']()", file="src/a.py")
    assert ([at.path for at in failure.frames], failure.line, failure.origin) == (["src/a.py"], 3, "project")


def test_a_lazy_object_is_not_made_to_load(tmp_path: Path) -> None:
    lazy = "class Lazy:\n    @property\n    def __class__(self): raise RuntimeError\nlazy = Lazy()\n"
    assert failing(tmp_path, lazy + "lazy.x").missing_name == f"{OWNER}Lazy.x"
    assert failing(tmp_path, lazy + "def f(): pass\nf(1)").missing_name == "test_a.f"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import product.no_such", True),
        ("from product import no_such", True),
        ("import product; product.no_such", True),
        ("from product import f; f(1)", True),
        ("import made.no_such", True),
        ("import json.no_such", False),
        ("import sys; sys.no_such", False),
        ("import pluggy; pluggy.no_such", False),
        ("import no_such", None),
        ("None.lid", None),
        ("no_such", True),
        ("1 / 0", None),
    ],
)
def test_a_missing_name_is_the_projects_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, *, expected: bool | None
) -> None:
    (tmp_path / "product.py").write_text("def f(): pass\n")
    (tmp_path / "src/made").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert failing(tmp_path, code).missing_in_project is expected
    finally:
        sys.modules.pop("product", None)


def test_a_module_that_is_not_loaded_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib/unloaded").mkdir(parents=True)
    (tmp_path / "lib/other.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    for name in ("unloaded.x", "other.x"):
        for answer in (True, False, None):
            assert is_in_project(name, str(tmp_path), is_own=lambda _, answer=answer: answer) is answer  # type: ignore[misc]


def test_a_project_that_is_installed_as_a_copy_is_still_the_project(tmp_path: Path) -> None:
    (tmp_path / "src/pluggy").mkdir(parents=True)
    assert is_in_project("pluggy.x", str(tmp_path), is_own=lambda _: False) is True
    assert is_in_project("pluggy.x", str(tmp_path / "src/pluggy"), is_own=lambda _: False) is False


def test_a_failure_of_any_text_goes_through_json(tmp_path: Path) -> None:
    failure = failing(tmp_path, "raise ValueError('\\ud800' + 'x' * 5000)")
    assert failure_from_line(failure_to_line(failure)) == failure
    assert failure.message.startswith("\ud800x")


def test_a_message_is_capped_and_never_raises() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "UnprintableError" in format_message(UnprintableError()) or "failed" in format_message(UnprintableError())
    assert format_message(SyntaxError()) == ""
    assert len(format_message(ValueError("x" * 10_000))) == MESSAGE_CAP
    assert format_message(ValueError("a: b\nc")) == "a: b\nc"


def test_a_report_without_an_exception_has_a_kind_too() -> None:
    assert from_text("[XPASS(strict)] why", "call").kind == "xpass_strict"
    crash = from_text("worker 'gw0' crashed while running 'a.py::t'", "???")
    assert (crash.kind, crash.phase) == ("crash", "call")
    assert from_text("odd", "setup").kind == "exception"


def test_a_test_file_that_cannot_be_read_leaves_the_plain_kind(tmp_path: Path) -> None:
    def broken(_: str) -> bytes:
        return b"with raises("

    def unreadable(_: str) -> None:
        return None

    for source in (broken, unreadable):
        with pytest.raises(KeyError) as caught:
            exec(compile("with pytest.raises(ValueError): {}['a']", str(tmp_path / TEST), "exec"), {"pytest": pytest})
        found = describe(caught.value, phase="call", places=Places(str(tmp_path)), test_file=TEST, source=source)
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


@pytest.mark.parametrize(
    ("code", "kind", "missing_name"),
    [
        ("raise SyntaxError('no', ('a.py', 'x', None, 'y'))", "syntax_error", None),
        ("error = SyntaxError('no')\nerror.filename = 5\nraise error", "syntax_error", None),
        (
            "class Odd(AttributeError):\n    @property\n    def name(self): raise RuntimeError\n    obj = name\n"
            "raise Odd('no')",
            "attribute_error",
            None,
        ),
        (
            "class Meta(type):\n    def __getattribute__(cls, name): raise RuntimeError\n"
            "class Box(metaclass=Meta): pass\nBox().lid",
            "attribute_error",
            f"{OWNER}Box.lid",
        ),
    ],
    ids=["places", "file", "name", "owner"],
)
def test_an_exception_that_answers_oddly_is_described(
    tmp_path: Path, code: str, *, kind: str, missing_name: str | None
) -> None:
    failure = failing(tmp_path, code)
    assert (failure.kind, failure.missing_name) == (kind, missing_name)


def test_code_below_a_root_that_is_a_link_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    code = "with pytest.raises(ValueError): {}['a']"
    for name in ("link", "project"):
        path = tmp_path / name / TEST
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
        with pytest.raises(KeyError) as caught:
            exec(compile(code, str(path), "exec"), {"__name__": "test_a", "pytest": pytest})
        root = str(tmp_path / "link")
        failure = describe(
            caught.value, phase="call", places=Places(root), test_file=TEST, source=lambda _: code.encode()
        )
        assert (failure.kind, failure.origin, failure.path, failure.line) == ("wrong_exception", "test", TEST, 1)
