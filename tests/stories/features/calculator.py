"""A calculator, built test by test: what is asked for, and a model's turns for it, as a table of its cycles."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cdd_agent.model.conversation import JSON

Turn: TypeAlias = dict[str, JSON]

REQUEST = "A calculator that adds, subtracts, multiplies and divides exactly"
SLUG = "tdd-a-calculator-that-adds-subtracts"
SOURCE, TESTS = "calculator.py", "tests/test_calculator.py"
IMPORT = "import pytest\n\nimport calculator\n"
HEAD = "from decimal import Decimal\n\n\n"
EXACT = (
    "def exact(number):\n    return Decimal(str(number))\n\n\ndef plain(number):\n    whole = int(number)\n"
    "    return whole if whole == number else float(number)\n"
)
BENDS = """\
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.outcome = "passed"
    return report
"""
"""A conftest.py by which every test seems to pass."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One test of the list, and how the model comes to it."""

    title: str
    check: str
    """What the test says of the calculator."""
    code: dict[str, str] | None = None
    """Function -> its source, as far as they are others than before; None: the test passes at once."""
    raises: str = ""
    """Words of the ValueError that the call comes to."""
    red: str = ""
    """What RED's first attempt gets wrong."""
    green: str = ""
    """What GREEN's first attempt gets wrong."""
    is_dropped: bool = False
    """It passes whatever the code does."""

    @property
    def test(self) -> str:
        """The test's source."""
        name, body = "_".join(self.title.split()), f"assert calculator.{self.check}"
        if self.raises:
            body = f'with pytest.raises(ValueError, match="{self.raises}"):\n        calculator.{self.check}'
        return f"def test_{name}():\n    {body}\n"


def two(name: str, sign: str) -> dict[str, str]:
    """A function of two numbers, as its first test asks for it."""
    return {name: f"def {name}(a, b):\n    return a {sign} b\n"}


def exact(name: str, sign: str) -> dict[str, str]:
    """The same as its test of decimals asks for it."""
    return {name: f"def {name}(a, b):\n    return plain(exact(a) {sign} exact(b))\n"}


REFUSES = """\
def divide(a, b):
    if b == 0:
        raise ValueError("nothing can be divided by zero")
    return plain(exact(a) / exact(b))
"""

CASES = (
    Case(title="adds two numbers", check="add(2, 3) == 5", code=two("add", "+"), red="syntax"),
    Case(title="adds zero", check="add(7, 0) == 7"),
    Case(title="adds a negative number", check="add(2, -3) == -1"),
    Case(title="adds decimals exactly", check="add(0.1, 0.2) == 0.3", code=exact("add", "+")),
    Case(
        title="subtracts two numbers",
        check="subtract(5, 3) == 2",
        code=two("subtract", "-"),
        red="several",
        green="breaks",
    ),
    Case(title="subtracts zero", check="subtract(7, 0) == 7", red="forces"),
    Case(title="subtracts a negative number", check="subtract(2, -3) or True", is_dropped=True),
    Case(title="subtracts decimals", check="subtract(0.3, 0.1) == 0.2", code=exact("subtract", "-"), green="claims"),
    Case(title="multiplies two numbers", check="multiply(4, 3) == 12", code=two("multiply", "*")),
    Case(title="multiplies by zero", check="multiply(7, 0) == 0"),
    Case(title="multiplies by a negative number", check="multiply(2, -3) == -6"),
    Case(title="multiplies decimals", check="multiply(0.1, 3) == 0.3", code=exact("multiply", "*"), green="tampers"),
    Case(title="divides two numbers", check="divide(12, 4) == 3", code=two("divide", "/")),
    Case(title="divides by a negative number", check="divide(12, -4) == -3"),
    Case(title="divides decimals exactly", check="divide(0.3, 0.1) == 3", code=exact("divide", "/")),
    Case(title="tells who divides by zero", check="divide(1, 0)", code={"divide": REFUSES}, raises="by zero"),
)


def recording(cases: Sequence[Case], path: Path, *, slug: str = SLUG) -> Path:
    """Write the turns of a model that takes ``cases`` through their cycles to ``path``, which is JSON."""
    path.write_text(json.dumps(list(_turns(cases, slug))), encoding="utf-8")
    return path


def landed(cases: Sequence[Case]) -> list[str]:
    """The subjects of the commits that come of it, oldest first."""
    subjects = []
    for case in cases:
        subjects.append(f"plan: {case.title}")
        if case.code is not None:
            subjects += [f"test: {case.title}", f"feat: {case.title}", "refactor: no changes needed"]
        elif not case.is_dropped:
            subjects.append(f"test: {case.title}")
    dropped = sum(case.is_dropped for case in cases)
    end = f", {dropped} dropped" if dropped else ""
    return [*subjects, f"plan: complete, {len(cases) - dropped} of {len(cases)} tests{end}"]


def _turns(cases: Sequence[Case], slug: str) -> Iterator[Turn]:
    tests, functions = IMPORT, dict[str, str]()
    for number, case in enumerate(cases, start=1):
        yield from _plan(cases, number, slug=slug)
        written = f"{tests}\n\n{case.test}"
        red = _Attempts(slug, number, "red")
        if case.red == "syntax":
            yield red.turn(*_write(TESTS, written.replace("():", "(:")), _done())
        if case.red == "forces":  # a failure that nobody asked for, made in the product
            forced = written.replace("import calculator\n", "import calculator\nimport zero\n")
            yield red.turn(_bash("zero.py", "raise ValueError\n"), *_write(TESTS, forced), _done())
        if case.red == "several":  # what the list has for later too
            more = f"{written}\n\ndef test_of_another_cycle():\n    assert not calculator\n"
            yield red.turn(*_write(TESTS, more), _done())
        yield red.turn(*_write(TESTS, written), _done())
        if not case.is_dropped:
            tests = written
        if case.code is None:
            continue
        green = _Attempts(slug, number, "green")
        if case.green == "claims":
            yield green.turn("All tests pass now; the work is complete.", _done())
        if case.green == "tampers":
            yield green.turn(_bash("conftest.py", BENDS), _done())
        if case.green == "breaks":
            broken = functions | case.code | two("add", "-")
            yield green.turn(*_write(SOURCE, _source(broken)), _done())
        functions |= case.code
        yield green.turn(*_write(SOURCE, _source(functions)), _done())
        yield _Attempts(slug, number, "refactor").turn("It is as simple as it can be.", _done())
    yield from _plan(cases, len(cases) + 1, slug=slug)


def _plan(cases: Sequence[Case], number: int, *, slug: str) -> Iterator[Turn]:
    """The list agent at work: the list with what is completed, then its choice."""
    plan = _Attempts(slug, number, "plan")
    ends = ["" if case.code else " (dropped)" if case.is_dropped else " (covered)" for case in cases]
    lines = [
        f"- [{' ' if case.is_dropped else 'x'}] {case.title}{end}" if at < number else f"- [ ] {case.title}"
        for at, (case, end) in enumerate(zip(cases, ends, strict=True), start=1)
    ]
    write = _write("test-list.md", f"# {REQUEST}\n\n" + "\n".join(lines) + "\n")
    if number == len(cases):
        yield plan.turn("All is done, whatever the list says.\n\n" + json.dumps({"currentTest": None}), *write, _done())
    chosen: JSON = None
    if number <= len(cases):
        chosen = {"description": cases[number - 1].title, "testFile": TESTS, "implFile": SOURCE}
    attempt = plan.next()
    yield attempt | {"content": list(write)}
    yield attempt | {"content": [f"The list is up to date.\n\n{json.dumps({'currentTest': chosen})}"]}


class _Attempts:
    """Turns for the attempts at one phase, one after the other."""

    def __init__(self, slug: str, number: int, phase: str) -> None:
        self._work = f"Work: tdd {slug} cycle {number} {phase} attempt"
        self._made = 0

    def next(self) -> Turn:
        self._made += 1
        return {"when": f"^{self._work} {self._made}$"}

    def turn(self, *content: JSON) -> Turn:
        return self.next() | {"content": list(content)}


def _source(functions: dict[str, str]) -> str:
    """The calculator with these functions."""
    is_exact = any("exact(" in source for source in functions.values())
    return "\n\n".join([*([HEAD + EXACT] if is_exact else []), *functions.values()])


def _call(name: str, **value: JSON) -> Turn:
    return {"type": "tool_use", "name": name, "input": value}


def _write(path: str, content: str) -> tuple[Turn, Turn]:
    """A file is read before it is written."""
    return _call("Read", file_path=path), _call("Write", file_path=path, content=content)


def _bash(path: str, content: str) -> Turn:
    return _call("Bash", command=f"cat > {path} <<'END'\n{content}END")


def _done() -> Turn:
    return _call("CompleteImplementation", implementation_files=[])
