"""What the plugin calls while tests run cannot be replaced by them."""

import contextlib
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import pytest_tdd_agent
from pytest_tdd_agent import codec, failure, gate
from pytest_tdd_agent.fingerprint import STANDARD_LIBRARY
from pytest_tdd_agent.recording.spool import Spool, Stream
from pytest_tdd_agent.report import Case, SuiteReport
from pytest_tdd_agent.system import BUILTINS, Silence, decode_json, encode_json, join_path, to_plain_text

_BEFORE_TESTS = ("pytest_tdd_agent.unstarted", "pytest_tdd_agent.parent", "pytest_tdd_agent.recording")


def test_every_module_that_works_while_tests_run_has_builtins_of_its_own() -> None:
    names = [each.name for each in pkgutil.walk_packages(pytest_tdd_agent.__path__, "pytest_tdd_agent.")]
    bound = [name for name in names if vars(importlib.import_module(name))["__builtins__"] is BUILTINS]
    assert sorted(set(names) - set(bound)) == sorted(_BEFORE_TESTS)


class _Odd(str):
    """A text whose methods lie."""

    def startswith(self, *_: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        raise ValueError(other)

    __hash__ = str.__hash__


class _OddError(AssertionError):
    def __str__(self) -> str:
        return _Odd("odd")


def _fail(root: Path) -> Iterator[tuple[BaseException, bytes]]:
    code = "import pytest\n\n\ndef ends(of):\n    {}\n"
    bodies = (
        "assert of == 1",
        "raise of",
        "import pytest_tdd_agent.no_such",
        "import no_such_module",
        "os.no_such",
        "ends(1, 2)",
        "with pytest.raises(KeyError): [][1]",
        "exec(compile('1 +', 'x.py', 'exec'))",
    )
    for body in bodies:
        space: dict[str, object] = {"__name__": "test_a", "os": os}
        exec(compile(code.format(body), str(root / "test_a.py"), "exec"), space)
        try:
            space["ends"](_OddError())  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - that is what is described
            yield error, code.format(body).encode()


@contextlib.contextmanager
def _watch_standard_library() -> Iterator[list[str]]:
    called: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        name, by = frame.f_code.co_filename, "" if caller is None else caller.f_code.co_filename
        if event == "call" and name.startswith(STANDARD_LIBRARY) and "pytest_tdd_agent" in by and "tests" not in by:
            called.append(f"{name}:{frame.f_code.co_name} from {by}")

    sys.setprofile(watch)
    try:
        yield called
    finally:
        sys.setprofile(None)


def test_no_python_code_of_the_standard_library_runs_from_a_failure_to_the_report(tmp_path: Path) -> None:
    places, errors = failure.Places(str(tmp_path)), list(_fail(tmp_path))
    stream, spool, path = Stream(tmp_path / "s.jsonl"), Spool(tmp_path / "s.part"), str(tmp_path / "r.json")
    with _watch_standard_library() as called:
        cases = []
        for number, (error, content) in enumerate(errors):
            sources = dict.fromkeys(["test_a.py"], content)
            found = failure.describe(error, phase="call", places=places, test_file="test_a.py", source=sources.get)
            stream.send("phase", failure=codec.failure_to_json(found))
            case = Case(f"test_a.py::t{number}", "failed", "test_a.py", 4, 0.5, {"call": 0.5}, failure=found)
            spool.add(codec.case_to_line(case))
            cases.append(case)
        again = [codec.case_from_line(line) for line, _ in spool.iterate_cases()]
        report = SuiteReport(True, 1, "", "3", "8", "/", "", 1.0, tests=tuple(cases), collected=len(cases))
        verdict = gate.judge("red", report, targets=["test_a.py"])
        codec.dump(report, path, counts={"failed": len(cases)}, lines=spool.iterate_lines())
        is_intact = spool.is_intact()
    stream.close()
    spool.close()

    assert called == []
    assert (again, is_intact, verdict.open) == (cases, True, False)
    assert "wrong_exception" in [case.failure.kind for case in cases if case.failure]
    assert [each["nodeid"] for each in json.loads(Path(path).read_text())["tests"]] == [case.nodeid for case in cases]


@pytest.mark.parametrize(
    "value", [None, True, 1, -2.5, "é\ud800\n", [], {}, {"a": [1, {"b": None}], "c": {}}, [[], ["x"]]]
)
def test_json_is_that_of_the_standard_library(value: object) -> None:
    assert encode_json(value) == json.dumps(value, separators=(",", ":"))
    assert encode_json(value, indent=" ") == json.dumps(value, indent=1)
    assert decode_json(f" {encode_json(value)}\n") == value


@pytest.mark.parametrize("text", ["", "{", "1 2", "nope", '{"a": 1}x'])
def test_what_is_no_json_raises_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        decode_json(text)


@pytest.mark.parametrize("path", ["a", "./a//b/", "../x", "../../../../y", "/z/../w", "", "."])
def test_a_path_is_joined_as_the_standard_library_does(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert join_path(os.getcwd(), path) == os.path.abspath(path)


def test_a_text_loses_the_methods_of_its_class() -> None:
    assert type(to_plain_text(_Odd("a"))) is str
    assert to_plain_text(_Odd("a")) == "a"


def test_warnings_as_errors_do_not_reach_the_parser() -> None:
    with Silence():
        compile(b"'\\d'", "<test>", "eval")  # pytest's settings here make errors of warnings
