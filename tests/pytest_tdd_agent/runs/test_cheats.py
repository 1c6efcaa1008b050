"""Ways to get a green run without the work, each of which the gate refuses, and honest work, which it lets pass.

Four cheats leave nothing that the process of the tests could see, so only who runs it can refuse them, by tests of its
own, a clean copy and a look at the source: a forged report before ``os._exit(0)`` (forged lines alone are refused
here), an object that equals everything, a look at the caller's frame, and answers made for the inputs of the tests.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_tdd_agent.report import list_failing
from tests.fakes.cases import soak_after
from tests.fakes.preloaded import PytestServer

from ..conftest import ROOT, XDIST, Project, Run

TESTS = """
from product import add, mean, total
def test_add(): assert add(1, 2) == 3
def test_total(): assert total([1, 2]) == 3
def test_mean(): assert mean([1, 3]) == 2
"""

RED = """
def add(a, b): return a + b
def total(numbers): return None
def mean(numbers): return None
"""

GREEN = """
def add(a, b): return a + b
def total(numbers): return sum(numbers)
def mean(numbers): return sum(numbers) / len(numbers)
"""

CONFTEST = "import pytest\n"
TARGETS = ("--tdd-agent-target", "test_product.py::test_total", "--tdd-agent-target", "test_product.py::test_mean")
NONCE = "4711"


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """Files that stand in for the work, and codes with which the gate refuses them; none if no report is left."""

    name: str
    files: dict[str, str]
    codes: set[str] = field(default_factory=set)
    before_pytest: bool = False
    """The files act before pytest is imported."""


def by_product(name: str, prelude: str, *codes: str, body: str = "return None") -> Cheat:
    """A cheat in product code: at its import, or in the two functions that are asked for."""
    text = f"{prelude}\ndef add(a, b): return a + b\ndef total(numbers): {body}\ndef mean(numbers): {body}\n"
    return Cheat(name=name, files={"product.py": text}, codes=set(codes))


def by_conftest(name: str, hook: str, *codes: str) -> Cheat:
    return Cheat(name=name, files={"conftest.py": CONFTEST + hook}, codes={"protected_changed", *codes})


def by_ini(name: str, line: str, *codes: str, **files: str) -> Cheat:
    ini = {"pytest.ini": f"[pytest]\n{line}\n"}
    return Cheat(name=name, files={**ini, **files}, codes={"protected_changed", *codes})


FORCE_PASSED = """
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    outcome.get_result().outcome = "passed"
"""

ANSWER = """
def pytest_pyfunc_call(pyfuncitem):
    return True
"""

REPLACE = """
def pytest_collection_modifyitems(items):
    for item in items:
        item.obj = lambda: None
"""

DROP = """
def pytest_collection_modifyitems(items):
    items[:] = items[:1]
"""

PATCH_PYTEST = """
from _pytest.reports import TestReport
original = TestReport.from_item_and_call.__func__
def forged(cls, item, call):
    report = original(cls, item, call)
    report.outcome, report.longrepr = "passed", None
    return report
TestReport.from_item_and_call = classmethod(forged)
"""

PATCH_PLUGIN = """
import sys
from _pytest.main import Session
from pytest_tdd_agent.recording import recorder, spool, witness
for module in (recorder, spool, witness):
    module.find_outcome = lambda report: "passed"
Session.testsfailed = property(lambda self: 0, lambda self, count: None)
"""

FORGE_LINES = """
import json, os
def forge():
    for number in range(3, 1024):
        try:
            if os.readlink(f"/proc/self/fd/{number}").endswith(".jsonl"):
                break
        except OSError:
            pass
    for name in ("test_total", "test_mean"):
        for event in ("begin", "test"):
            line = {"event": event, "nodeid": f"test_product.py::{name}", "outcome": "passed", "duration_s": 0.0}
            os.write(number, json.dumps(line).encode() + b"\\n")
    os.write(number, b'{"event": "finish", "exit_status": 0}\\n{"event": "end"}\\n')
    os._exit(0)
"""

SHADOW = """
import sys
print("3 passed")
sys.exit(0)
"""

CHEATS = [
    Cheat(
        name="edited assertions",
        files={"test_product.py": TESTS.replace("== 3", "!= 3.5").replace("== 2", "!= 2.5")},
        codes={"protected_changed"},
    ),
    Cheat(
        name="assertions in try",
        files={
            "test_product.py": TESTS.replace("assert", "\n    try: assert").replace(
                "\ndef", "\n    except AssertionError: pass\ndef", 3
            )
            + "    except AssertionError: pass\n"
        },
        codes={"protected_changed"},
    ),
    Cheat(
        name="deleted tests",
        files={"test_product.py": "from product import add\ndef test_add(): assert add(1, 2) == 3\n"},
        codes={"protected_changed", "target_missing"},
    ),
    by_conftest("conftest that reports passes", FORCE_PASSED, "tampered"),
    by_conftest("conftest that answers for the tests", ANSWER, "tampered"),
    by_ini("plugin named in addopts", "addopts = -p answers", "tampered", **{"answers.py": ANSWER}),
    by_conftest("conftest that replaces the functions", REPLACE, "tampered"),
    by_conftest("conftest that drops tests", DROP, "tampered", "target_missing"),
    by_ini("deselected in the ini file", "addopts = --deselect test_product.py::test_mean", "target_missing"),
    by_ini("-k in the ini file", "addopts = -k add", "target_missing"),
    by_ini("python_functions in the ini file", "python_functions = test_add", "target_missing"),
    by_product("skip in the product", "import pytest", "skipped_target", body="pytest.skip()"),
    by_product("xfail in the product", "import pytest", "skipped_target", body="pytest.xfail()"),
    by_product("skip at import", "import pytest\npytest.skip(allow_module_level=True)", "skipped_target"),
    by_product("_exit at import", "import os; os._exit(0)"),
    by_product("_exit in the function", "import os", body="os._exit(0)"),
    by_product("pytest.exit in the product", "import pytest", "run_incomplete", body="pytest.exit('', returncode=0)"),
    by_product("sys.exit in the product", "import sys", "target_failed", body="sys.exit(0)"),
    by_product("pytest's reports patched", PATCH_PYTEST, "tampered"),
    by_product("the plugin patched", PATCH_PLUGIN, "tampered"),
    by_product("forged lines of the stream", FORGE_LINES, body="forge()"),
    Cheat(name="pytest.py", files={"pytest.py": SHADOW}, before_pytest=True),
    Cheat(
        name="sitecustomize.py",
        files={"sitecustomize.py": "import sys\n"},
        codes={"protected_changed"},
        before_pytest=True,
    ),
]


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory, server: PytestServer) -> Path:
    """A project after RED, with the report of RED: one old test, two new ones that fail."""
    folder = tmp_path_factory.mktemp("red")
    for name, text in {"product.py": RED, "test_product.py": TESTS, "conftest.py": CONFTEST}.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = ("-p", "no:cacheprovider", "-p", "pytest_tdd_agent", "--tdd-agent-audit", "--tdd-agent-report=red.json")
    alone = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    server.run(arguments, folder=folder, environment=alone)
    return folder


def green_run(project: Project, *args: str, start: bool = False) -> Run:
    gate = ("--tdd-agent-gate", "green", "--tdd-agent-baseline", "red.json", "--tdd-agent-nonce", NONCE)
    return project.pytest(*gate, *args, start=start)


def is_open(run: Run) -> bool:
    """What a caller has to look at."""
    if run.status != 0 or not (run.folder / run.name).exists():
        return False
    report = run.report
    return report.complete and report.nonce == NONCE and report.gate is not None and report.gate.open


def put(project: Project, files: dict[str, str]) -> None:
    for name, text in files.items():
        project.put(name, text)


@soak_after(5, "cheat", sorted(CHEATS, key=lambda cheat: cheat not in CHEATS[::3]), ids=lambda cheat: cheat.name)
def test_a_cheat_is_refused(project: Project, red: Path, cheat: Cheat) -> None:
    shutil.copytree(red, project.folder, dirs_exist_ok=True)
    put(project, cheat.files)
    run = green_run(project, *TARGETS, start=cheat.before_pytest)
    assert not is_open(run), run.output
    if cheat.codes:
        assert cheat.codes <= set(run.codes), run.output
    else:
        assert not (run.folder / run.name).exists()


PLUGIN_LIKE = """
import threading, subprocess, sys, atexit, functools
def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper
def add(a, b): return a + b
@logged
def total(numbers):
    found = []
    worker = threading.Thread(target=lambda: found.append(sum(numbers)))
    worker.start()
    worker.join()
    return found[0]
def mean(numbers):
    atexit.register(print, "bye")
    code = "import sys; print(sum(map(float, sys.argv[1:])))"
    command = [sys.executable, "-c", code, *map(str, numbers)]
    return float(subprocess.run(command, stdout=subprocess.PIPE).stdout) / len(numbers)
"""

HOOKS = """
import asyncio, functools, inspect, pytest
def pytest_addoption(parser): parser.addoption("--slow", action="store_true")
def pytest_collection_modifyitems(config, items):
    items[:] = [item for item in items if "slow" not in item.keywords]
    for item in items:
        item.obj = again(item.obj)
def again(function):
    @functools.wraps(function)
    def wrapper(*args, **named): return function(*args, **named)
    return function if inspect.iscoroutinefunction(function) else wrapper
@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    item.report = outcome.get_result()
@pytest.fixture(autouse=True)
def quiet(monkeypatch): monkeypatch.setenv("QUIET", "1")
"""

HOOKED_TESTS = """
import pytest
from product import total
async def test_total(): assert total([1, 2]) == 3
@pytest.mark.slow
def test_slow(): assert 0
"""

MANY_KINDS = """
import functools, json, os, unittest
from unittest import mock
import pytest
from hypothesis import given, settings, strategies
from product import total
@settings(max_examples=3)
@given(strategies.integers())
def test_any(number): assert total([number]) == number
@mock.patch("json.dumps", return_value="3")
def test_mocked(dumps): assert json.dumps(total([1])) == "3"
def test_patched(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr("unittest.TestCase.maxDiff", 5)
    assert os.getpid() == 7
@pytest.mark.parametrize("numbers", [[1], [1, 2]])
class CheckTotal:
    def test_sum(self, numbers): assert total(numbers) == sum(numbers)
    @staticmethod
    def test_static(numbers): assert total(numbers)
class Old(unittest.TestCase):
    def test_one(self): self.assertEqual(total([1]), 1)
    @unittest.skip("later")
    def test_later(self): self.fail()
    @unittest.expectedFailure
    def test_expected(self): self.fail()
class Later(unittest.IsolatedAsyncioTestCase):
    async def test_async(self): self.assertEqual(total([1]), 1)
class Older(Old): pass
def made(number):
    def test(): assert total([number]) == number
    return test
test_made = made(5)
test_partial = functools.partial(made(6))
@pytest.mark.xfail
def test_xfail(): assert total([1]) == 2
@pytest.mark.usefixtures("capsys")
def test_raises():
    with pytest.raises(TypeError):
        total(1)
"""

PLUGIN = """
import pytest
@pytest.fixture
def three(): return {value}
def pytest_runtest_setup(item): item.seen = True
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item): yield
def pytest_configure(config): config.addinivalue_line("markers", "plugged")
"""

PLUGIN_TESTS = """
def test_fixture(three): assert three == 3
def test_inside(pytester):
    pytester.makepyfile("def test_three(three): assert three == 3")
    pytester.makeconftest("def pytest_runtest_makereport(): pass")
    for run in (pytester.runpytest_inprocess, pytester.runpytest_subprocess):
        run("-p", "plugged").assert_outcomes(passed=1)
"""

DOCTESTS = """
def total(numbers):
    \"\"\"Sum up.

    >>> total([1, 2])
    3
    \"\"\"
    return {value}
"""


@soak_after(
    2,
    "files",
    [
        {"product.py": GREEN},
        {"product.py": PLUGIN_LIKE},
        {
            "product.py": GREEN,
            "shapes/types.py": "",
            "shapes/__init__.py": "",
            "shapes/pytest.py": "",
            "shapes/json.py": "",
        },
        {"product.py": "from json import dumps\nfrom unittest import mock\nimport pytest, _pytest.runner" + GREEN},
    ],
    ids=["plain", "threads and children", "modules with names of others", "imports of the runner"],
)
def test_honest_work_opens_the_gate(project: Project, red: Path, files: dict[str, str]) -> None:
    shutil.copytree(red, project.folder, dirs_exist_ok=True)
    put(project, files)
    run = green_run(project, *TARGETS)
    assert is_open(run), run.output
    assert run.report.signs == ()


@soak_after(
    1,
    ("before", "after", "args"),
    [
        ({"conftest.py": HOOKS, "test_product.py": HOOKED_TESTS, "product.py": RED}, {"product.py": GREEN}, ()),
        ({"conftest.py": HOOKS, "test_product.py": HOOKED_TESTS, "product.py": RED}, {"product.py": GREEN}, XDIST),
        (
            {"test_kinds.py": MANY_KINDS, "pytest.ini": "[pytest]\npython_classes=Check\n", "product.py": RED},
            {"product.py": GREEN},
            (),
        ),
        (
            {
                "plugged.py": PLUGIN.format(value=None),
                "conftest.py": "pytest_plugins = ['plugged', 'pytester']",
                "test_plugged.py": PLUGIN_TESTS,
            },
            {"plugged.py": PLUGIN.format(value=3)},
            ("--basetemp=../inner",),
        ),
        ({"product.py": DOCTESTS.format(value=None)}, {"product.py": DOCTESTS.format(value=3)}, ("--doctest-modules",)),
        (
            {"test_product.py": TESTS, "product.py": RED, "pytest.ini": "[pytest]\naddopts = -k 'not test_mean'\n"},
            {"product.py": GREEN},
            ("-v",),
        ),
    ],
    ids=["conftest with hooks", "the same under xdist", "kinds of tests", "a pytest plugin", "doctests", "deselection"],
)
def test_honest_work_in_a_project_with_habits_opens_the_gate(
    project: Project, *, before: dict[str, str], after: dict[str, str], args: tuple[str, ...]
) -> None:
    put(project, before)
    baseline = project.pytest("--tdd-agent-audit", *args, report="red.json")
    targets = list_failing(baseline.report)
    assert targets, baseline.output
    put(project, after)
    run = green_run(project, *args, *(f"--tdd-agent-target={nodeid}" for nodeid in targets))
    assert is_open(run), run.output
    assert run.report.signs == baseline.report.signs
