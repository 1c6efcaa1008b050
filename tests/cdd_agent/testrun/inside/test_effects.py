"""Effects of a call besides its result, and calls on objects of subclasses."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdd_agent.testrun.inside import calls
from cdd_agent.testrun.inside.effects import answer_with_effects
from cdd_agent.testrun.inside.guesses import Guesser
from cdd_agent.testrun.inside.values import Encoder, override_methods
from tests.cdd_agent.evidence.requests import tell_answer

if TYPE_CHECKING:
    from cdd_agent.testrun.inside.values import Call

TEXT = "one\ntwo\n"


def write(path: str) -> None:
    Path(path, "new").write_text("x", encoding="utf-8")
    Path(path, "a.txt").write_text("other", encoding="utf-8")


def remove(path: str) -> None:
    shutil.rmtree(path)


def leave_a_variable(name: str) -> None:
    os.environ["CDD_TRIAL"] = name


def leave_the_folder(path: str) -> None:
    os.chdir(path)


def count_lines(path: str) -> int:
    return len(Path(path).read_text(encoding="utf-8").splitlines())


def leak(path: str) -> int:
    return len(list(open(path, encoding="utf-8")))


def read(lines: list[str], done: Callable[[], None]) -> Iterator[str]:
    try:
        yield from lines
    finally:
        done()


def read_carelessly(lines: list[str], done: Callable[[], None]) -> Iterator[str]:
    yield from lines
    done()


@contextlib.contextmanager
def enter(names: list[str]) -> Iterator[None]:
    names.append("in")
    yield
    names.pop()


class Invoice:
    def __init__(self, amount: int) -> None:
        self.amount = amount

    def tax(self) -> int:
        return self.amount // 5

    def total(self) -> int:
        return self.amount + self.tax()

    def total_of_its_own(self) -> int:
        return self.amount + Invoice.tax(self)

    def inlined_total(self) -> int:
        return self.amount + self.amount // 5


def make_call(name: str, *args: object, files: dict[str, tuple[str, int]] | None = None) -> "Call":
    nodes = [Encoder({}).encode(value) for value in args]
    found: Call = {"function": 0, "module": __name__, "name": name, "args": nodes, "named": {}, "by_test": True}
    return {**found, "is_recorded": True, "is_start": False, "files": files or {}}


def list_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.is_file()}


def test_files_that_a_call_leaves_or_removes_are_told_and_undone(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    text = tell_answer(answer_with_effects(make_call("write", str(tmp_path))))
    assert text == f"returns None and leaves {tmp_path}/a.txt: other and leaves {tmp_path}/new: x"
    assert list_files(tmp_path) == {"a.txt": TEXT}
    text = tell_answer(answer_with_effects(make_call("remove", str(tmp_path))))
    assert text == f"returns None and removes {tmp_path} and removes {tmp_path}/a.txt"
    assert list_files(tmp_path) == {"a.txt": TEXT}


ANSWERS = """
import json, sys

from inside.effects import answer_with_effects

print(answer_with_effects(json.loads(sys.argv[1]))[0][0])
"""


def test_a_call_that_would_remove_what_answers_it_shows_nothing(tmp_path: Path) -> None:
    # In a copy: a call that is not stopped here would remove the program that is being tested.
    copy = Path(shutil.copytree(Path(calls.__file__).parent, tmp_path / "inside"))
    (tmp_path / "removing.py").write_text("from shutil import rmtree as remove\n", encoding="utf-8")
    (copy / "other.txt").write_text(TEXT, encoding="utf-8")
    before = list_files(copy)
    call = make_call("remove", str(tmp_path)) | {"module": "removing"}
    command = [sys.executable, "-B", "-c", ANSWERS, json.dumps(call)]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "unfit\n"
    assert list_files(copy) == before


def test_variables_and_the_current_folder_are_told_and_restored(tmp_path: Path) -> None:
    folder = os.getcwd()
    text = tell_answer(answer_with_effects(make_call("leave_a_variable", "x")))
    assert text == "returns None and sets the variable CDD_TRIAL to x"
    assert "CDD_TRIAL" not in os.environ
    text = tell_answer(answer_with_effects(make_call("leave_the_folder", str(tmp_path))))
    assert text == f"returns None and changes the current folder to {tmp_path}"
    assert os.getcwd() == folder


def test_a_call_finds_the_file_that_its_argument_named(tmp_path: Path) -> None:
    path = str(tmp_path / "gone" / "a.txt")
    files = {path: (base64.b64encode(TEXT.encode()).decode(), 0o644)}
    assert tell_answer(answer_with_effects(make_call("count_lines", path, files=files))) == "returns 2"
    assert tell_answer(answer_with_effects(make_call("leak", path, files=files))) == "returns 2 and leaves a file open"


def test_an_early_end_shows_what_is_not_cleaned_up() -> None:
    seen: list[int] = []
    careful, careless = (
        tell_answer(answer_with_effects(make_call(name, ["a", "b"], lambda: seen.append(1))))
        for name in ("read", "read_carelessly")
    )
    both = "returns iterator of ['a', 'b'] and calls functions that then hold [1]"
    assert careful == f"{both}, and if it is closed after one item and calls functions that then hold [1]"
    assert careless == both
    assert tell_answer(answer_with_effects(make_call("enter", []))).endswith(
        ", and if it is left by an exception and changes its arguments to (['in'])"
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("total", "returns 121"),
        ("total_of_its_own", "returns 120 without the method of the subclass"),
        ("inlined_total", "returns 120"),
    ],
)
def test_a_method_that_does_without_the_one_of_the_subclass_is_told(name: str, answer: str) -> None:
    invoice = Encoder({}).encode_new(Invoice, [100], named={})
    call = {**make_call(f"Invoice.{name}"), "args": [invoice]}
    (own,) = (each for each in override_methods([call]) if each["args"][0][1][3] == "tax")
    assert tell_answer(answer_with_effects(own)) == answer


def double(number: int) -> int:
    return number * 2


def choose(value: object, flag: bool = False) -> object:
    return None if flag else value


def test_arguments_are_guessed_by_name_annotation_and_otherwise_by_each_type() -> None:
    guesser = Guesser([make_call("count_lines", "a.txt"), make_call("double", 41)], [], constants=(99,))
    (kinds,) = {kinds for kinds, _, _ in guesser.guess(__name__, "leave_the_folder")}
    assert kinds == ""
    assert {args[0][1] for _, args, _ in guesser.guess(__name__, "leave_the_folder")} == {"a.txt"}, "by its name"
    assert {args[0][1] for _, args, _ in guesser.guess(__name__, "double")} == {41}
    assert {"str", "int", "list of int"} <= {kinds for kinds, _, _ in guesser.guess(__name__, "choose")}
    assert list(guesser.guess(__name__, "Invoice.total")) == [], "no test makes such an object"


def never_end(number: int) -> int:
    return sum(itertools.repeat(0 * number))  # no signal is handled meanwhile


@pytest.mark.slow
def test_a_guessed_call_that_never_ends_leaves_the_guesses_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # the session deletes them for good
    path = str(Path(__file__).relative_to(Path.cwd()))
    functions = [[path, 1, name, True, True, True, True] for name in ("double", "never_end")]
    task = {
        "functions": functions,
        "inner": [],
        "constants": [],
        "computed": [],
        "product": [],
        "seconds": 1.0,
        "guesses": True,
    }
    answers = tmp_path / "answers"
    calls.CallSession({**task, "as_test": False, "alone": True}, str(answers)).pytest_sessionfinish()
    first, *lines = map(json.loads, answers.read_text(encoding="ascii").splitlines())
    assert {call["name"] for call in first["calls"]} == {"double"}
    assert lines[-1][0] == -1
