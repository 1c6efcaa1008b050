import functools
import sys
import types
from pathlib import Path
from types import ModuleType

import pytest

from pytest_tdd_agent.tampering import SIGNS, SIGNS_CAP, CodeLocations, Seal, codes_of
from pytest_tdd_agent.wording import explain
from tests.fakes.cases import soak_after

from .conftest import TWO_WORKERS, XDIST, Project

PROCESSES = soak_after(1, "processes", ((), XDIST), ids=["one process", "xdist"])
WORKERS = soak_after(1, "processes", [(), TWO_WORKERS], ids=["one process", "two workers"])


def signs(project: Project, *args: str) -> dict[str, list[tuple[str | None, str]]]:
    """Code -> node id and message of each sign of a run."""
    found: dict[str, list[tuple[str | None, str]]] = {}
    run = project.pytest("--tdd-agent-audit", *args)
    assert "do not trust the report" not in run.output, run.output
    for sign in run.report.signs:
        found.setdefault(sign.code, []).append((sign.nodeid, explain(sign)))
    assert set(found) <= set(SIGNS)
    return found


@PROCESSES
def test_a_project_without_tricks_has_no_signs(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        conftest="""
import pytest
@pytest.fixture
def one(): return 1
def pytest_configure(config): config.addinivalue_line("markers", "slow: takes long")
def pytest_addoption(parser): parser.addoption("--fast", action="store_true")
def pytest_report_header(): return "hello"
def pytest_generate_tests(metafunc): pass
""",
        test_a="""
import pytest, unittest
def test_one(one): assert one == 1
def test_fails(one): assert one == 2
def test_skips(): pytest.skip("why")
def test_interrupted_by_setup(no_such_fixture): pass
@pytest.mark.xfail
def test_expected(): assert 0
class Old(unittest.TestCase):
    def test_fails(self): self.fail()
    def test_parts(self):
        for number in range(2):
            with self.subTest(number=number): self.assertEqual(number, 0)
""",
    )
    assert signs(project, *processes) == {}


@PROCESSES
def test_a_test_module_that_the_product_puts_in_place_of_the_file_is_named(
    project: Project, processes: tuple[str, ...]
) -> None:
    project.write(
        product="""
import os, sys, types
def add(a, b): return 0
forged = types.ModuleType("test_b")
forged.__file__ = os.path.abspath("test_b.py")
exec(compile("def test_b(): pass", forged.__file__, "exec"), vars(forged))
sys.modules["test_b"] = forged
""",
        test_a="from product import add\ndef test_a(): assert add(0, 0) == 0\n",
        test_b="from product import add\ndef test_b(): assert add(2, 3) == 5\n",
    )
    message = "add of the loaded module test_b.py is not what the file says"
    assert signs(project, *processes) == {"replaced_module": [(None, message)]}


@WORKERS
def test_hooks_of_the_project_are_named_with_their_file_once(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        conftest="pytest_plugins = ['plugged']\n",
        plugged="""
class Hooks:
    def pytest_runtest_setup(self): pass
def pytest_configure(config):
    for number in range(3):
        config.pluginmanager.register(Hooks())
""",
        inner__conftest="def pytest_runtest_teardown(): pass\n",
        inner__test_a="def test_a(): pass\n",
    )
    assert signs(project, *processes) == {
        "project_hook": [
            (None, "pytest_runtest_setup is implemented in plugged.py"),
            (None, "pytest_runtest_teardown is implemented in inner/conftest.py"),
        ]
    }


@pytest.mark.slow
def test_hooks_of_what_is_installed_below_the_root_are_not_the_projects(project: Project) -> None:
    project.put(".venv/lib/site-packages/installed.py", "def pytest_runtest_setup(): pass\n")
    project.write(test_a="def test_a(): pass\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(project.folder / ".venv/lib/site-packages"), prepend=":")
        assert signs(project, "-p", "installed") == {}


@PROCESSES
def test_a_report_that_hides_an_exception_is_named(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        conftest="""
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if "honest" not in item.name:
        outcome.get_result().outcome = "passed"
""",
        test_a="""
import unittest
def test_a(): assert 0
def test_honest(): assert 0
def test_passes(): pass
class Old(unittest.TestCase):
    def test_b(self): self.fail()
""",
    )
    hidden = signs(project, *processes)["outcome_overridden"]
    message = "an exception left the test, but the report says that it passed"
    assert hidden == [("test_a.py::Old::test_b", message), ("test_a.py::test_a", message)]


@pytest.mark.slow
def test_a_test_that_passes_when_it_is_run_again_hides_nothing(project: Project) -> None:
    project.write(test_a="seen = []\ndef test_a():\n    seen.append(1)\n    assert len(seen) > 1\n")
    message = "a plugin ran the test again after it failed, and then it passed"
    assert signs(project, "--tdd-agent-flaky", "2") == {"passed_on_rerun": [("test_a.py::test_a", message)]}


@PROCESSES
def test_a_plugin_that_runs_a_test_again_without_a_word_rescues_no_target(
    project: Project, processes: tuple[str, ...]
) -> None:
    project.put("tries.py", "import itertools\nnumbers = itertools.count()\n")
    project.write(test_a="import tries\ndef test_a(): assert next(tries.numbers) == 1\n")
    project.put(
        "site-packages/again.py",
        "from _pytest.runner import runtestprotocol\n\n\ndef pytest_runtest_protocol(item, nextitem):\n"
        "    runtestprotocol(item, log=False, nextitem=nextitem)\n",
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(project.folder / "site-packages"), prepend=":")
        run = project.pytest("-p", "again", "--tdd-agent-gate", "green", *processes)
    assert (run.status, run.codes, run.cases["test_a"].outcome) == (1, ["flaky_target"], "passed")


@pytest.mark.slow
def test_a_test_that_was_interrupted_hides_nothing(project: Project) -> None:
    project.write(test_a="def test_a(): raise KeyboardInterrupt\n")
    assert signs(project) == {}


REPLACEMENTS = {
    "a function": ("Case.countTestCases = fake", "fake of product.py"),
    "code in place": ("Case.countTestCases.__code__ = fake.__code__", "fake of product.py"),
    "a partial": ("Case.countTestCases = functools.partial(fake)", "fake of product.py"),
    "a property": ("Case.countTestCases = property(fake)", "fake of product.py"),
    "what a decorator hides": ("Case.countTestCases = functools.lru_cache(maxsize=2)(fake)", "fake of product.py"),
    "an object": ("Case.countTestCases = Fake()", "__call__ of product.py"),
    "a mock": ("Case.countTestCases = mock.MagicMock()", "MagicMock, not a function"),
    "nothing": ("Case.countTestCases = None", "NoneType, not a function"),
    "text": (
        "exec('def made(self): pass', made); Case.countTestCases = made['made']",
        "made, made while the tests ran",
    ),
}
PRODUCT = """
import functools, unittest.suite
from unittest import mock
Case = unittest.case.TestCase
made = {{}}
def fake(self=None): pass
class Fake:
    def __call__(self): pass
def cheat():
    {cheat}
"""
TEST = "def test_a():\n    from product import cheat\n    cheat()\n"


@soak_after(1, ("cheat", "what"), REPLACEMENTS.values(), ids=REPLACEMENTS)
def test_a_function_of_the_runner_that_is_replaced_is_named(project: Project, cheat: str, what: str) -> None:
    project.write(product=PRODUCT.format(cheat=cheat), test_a=TEST)
    assert signs(project) == {"patched_runner": [(None, f"unittest.case.TestCase.countTestCases is {what}")]}


@pytest.mark.slow
@PROCESSES
def test_a_class_of_the_runner_that_is_replaced_is_named(project: Project, processes: tuple[str, ...]) -> None:
    project.write(product=PRODUCT.format(cheat="unittest.suite.TestSuite = Fake"), test_a=TEST)
    found = signs(project, *processes)
    assert found == {"patched_runner": [(None, "unittest.suite.TestSuite is a class of product.py")]}


def test_what_tests_patch_for_a_while_or_outside_the_runner_is_no_sign(project: Project) -> None:
    project.write(
        test_a="""
import json, os, sys, unittest
from unittest import mock
def test_patches(monkeypatch):
    monkeypatch.setattr(unittest.TestCase, "countTestCases", lambda self: 1)
    monkeypatch.setattr(os, "write", None)
    monkeypatch.setitem(sys.modules, "_pytest.nothing", None)
def test_patches_for_good():
    json.dumps = json.loads = None
    sys.modules["pytest.nothing"] = None
    sys.modules["_pytest.odd"] = mock.MagicMock()
    sys.modules["odd"] = object()
"""
    )
    assert signs(project) == {}


LAST_WORD = """
import sys, types
from pytest_tdd_agent import plugin, report
def judge(phase, *args, **named): return report.Verdict(phase=phase, open=True)
plugin.gate = types.SimpleNamespace(judge=judge)
"""


def test_a_gate_that_judges_for_itself_no_more_does_not_open(project: Project) -> None:
    project.write(product=LAST_WORD, test_a="import product\ndef test_a(): assert 0\n")
    run = project.pytest("--tdd-agent-gate", "green")
    assert run.status == 1
    path = run.folder / run.name
    assert not path.exists() or not run.verdict.open, "a caller may look at the report alone"


OWN = """
import time
from datetime import datetime
from time import perf_counter
RULES = {"green": len}
def judge(phase, report=None, *, baseline=None): return [phase, report, baseline]
class Verdict:
    def text(self): return "closed"
"""


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Seal, ModuleType]:
    """A package of this name, sealed, with its module ``gate``."""
    package, gate = ModuleType("tdd_agent_4711"), ModuleType("tdd_agent_4711.gate")
    exec(compile(OWN, "/x/site-packages/tdd_agent_4711/gate.py", "exec"), gate.__dict__)
    for module in (package, gate):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    package.__dict__["gate"] = gate
    return Seal(CodeLocations(str(tmp_path)), package="tdd_agent_4711"), gate


@pytest.mark.parametrize(
    ("cheat", "name"),
    [
        ("package.gate = types.SimpleNamespace(judge=gate.judge)", "gate"),
        ("exec(compile('def judge(*args): return []', gate.__file__, 'exec'), gate.__dict__)", "gate.judge"),
        ("gate.judge.__code__ = (lambda *args, **named: []).__code__", "gate.judge"),
        ("gate.judge.__defaults__ = (1,)", "gate.judge"),
        ("gate.judge.__kwdefaults__['baseline'] = 1", "gate.judge"),
        ("gate.RULES['green'] = list", "gate.RULES"),
        ("gate.Verdict.text = lambda self: 'open'", "gate.Verdict.text"),
        ("gate.Verdict.__eq__ = lambda self, other: True", "gate.Verdict.__eq__"),
        ("gate.Verdict = type('Verdict', (), {})", "gate.Verdict"),
        ("gate.any = lambda found: False", "gate.any"),
        ("del gate.judge", "gate.judge"),
        ("gate.__class__ = type('Module', (types.ModuleType,), {})", "gate"),
    ],
)
def test_whatever_is_replaced_in_the_plugins_own_package_is_named(
    sealed: tuple[Seal, ModuleType], cheat: str, name: str
) -> None:
    seal, gate = sealed
    gate.__dict__["__file__"] = "gate.py"
    before = dict(seal.find_breaks())
    exec(cheat, {"gate": gate, "package": sys.modules["tdd_agent_4711"], "types": types})
    assert before == {}
    assert list(dict(seal.find_breaks())) == [f"pytest_tdd_agent.{name}"]


def test_what_python_and_libraries_do_to_every_module_breaks_no_seal(
    sealed: tuple[Seal, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    seal, gate = sealed
    late = ModuleType("tdd_agent_4711.gate.late")
    monkeypatch.setitem(sys.modules, late.__name__, late)
    gate.__dict__.update(
        late=late, __warningregistry__={"version": 1}, datetime=type("Stopped", (), {}), perf_counter=lambda: 0.0
    )
    monkeypatch.delitem(sys.modules, gate.__name__)
    assert dict(seal.find_breaks()) == {}


SWAP = """
import sys
def work():
    tests = sys._getframe(1).f_globals
    tests["test_b"].__code__ = (lambda: None).__code__
"""


@PROCESSES
def test_a_test_whose_body_is_replaced_is_seen(project: Project, processes: tuple[str, ...]) -> None:
    project.write(product=SWAP, test_a="from product import work\ndef test_a(): work()\ndef test_b(): assert 0\n")
    message = "tests run <lambda> of product.py instead of the collected function"
    assert signs(project, *processes) == {"replaced_body": [(None, message)]}


WRAPPER = """
import functools
def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **named): return function(*args, **named)
    return wrapper
def pytest_collection_modifyitems(items):
    for item in items:
        item.obj = wrapped(item.obj)
"""


@pytest.mark.slow
def test_a_wrapper_around_tests_is_seen_if_it_is_the_projects_and_not_if_it_is_installed(project: Project) -> None:
    project.write(deco=WRAPPER, test_a="from deco import wrapped\n@wrapped\ndef test_a(): pass\ndef test_b(): pass\n")
    message = "tests run wrapper of deco.py instead of the collected function"
    assert signs(project, "-p", "deco")["replaced_body"] == [(None, message)]
    project.put("site-packages/installed.py", WRAPPER)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(project.folder / "site-packages"), prepend=":")
        assert signs(project, "-p", "installed") == {}


@pytest.mark.slow
def test_a_hook_of_the_project_that_calls_the_function_is_told_from_one_that_does_not(project: Project) -> None:
    project.write(
        conftest="""
import asyncio, inspect, threading
def pytest_pyfunc_call(pyfuncitem):
    if "answered" in pyfuncitem.name:
        return True
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
    else:
        worker = threading.Thread(target=pyfuncitem.obj)
        worker.start()
        worker.join()
    return True
""",
        test_a="""
async def test_async(): pass
def test_plain(): pass
def test_answered(): assert 0
class Container:
    pass
class TestMethods:
    def test_method(self): pass
""",
    )
    message = "a hook answered for the test without calling its function"
    assert signs(project)["body_not_called"] == [("test_a.py::test_answered", message)]


@PROCESSES
def test_tests_that_are_left_out_in_silence_are_seen_once(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        conftest="def pytest_collection_modifyitems(items): del items[1:]\n",
        test_a="def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n",
    )
    message = "collected tests were removed from the run without being reported as deselected"
    assert signs(project, *processes)["item_dropped"] == [(None, message)]
    project.write(conftest="")
    assert signs(project, "-k", "test_a", "--deselect", "test_a.py::test_b", *processes) == {}


@pytest.mark.slow
def test_the_number_of_signs_is_limited(project: Project) -> None:
    project.write(
        conftest=FORCED, test_a="import pytest\n@pytest.mark.parametrize('x', range(150))\ndef test_a(x): assert 0\n"
    )
    assert len(project.pytest("--tdd-agent-audit").report.signs) == SIGNS_CAP


FORCED = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    outcome.get_result().outcome = "passed"
"""


def test_a_place_is_the_users_unless_it_is_installed(tmp_path: Path) -> None:
    places = CodeLocations(str(tmp_path))
    assert (
        places.find_user_file(str(tmp_path / "src/a.py"))
        == places.find_project_file(str(tmp_path / "src/a.py"))
        == "src/a.py"
    )
    assert places.find_user_file("/elsewhere/b.py") == "b.py"
    assert places.find_project_file("/elsewhere/b.py") is None
    for file in (str(tmp_path / ".venv/lib/a.py"), "/x/site-packages/a.py", "<string>", functools.__file__):
        assert places.find_user_file(file) is None, file


def test_code_is_found_behind_wrappers() -> None:
    def one(_: object) -> None: ...

    def two(_: object) -> None: ...

    two.__dict__["__wrapped__"] = one
    assert codes_of(two) == (two.__code__, one.__code__)
    for wrapper in (property, staticmethod, functools.partial, functools.lru_cache(maxsize=None)):
        assert codes_of(wrapper(one)) == (one.__code__,)
    assert codes_of(CodeLocations("/").find_user_file) == (CodeLocations.find_user_file.__code__,)
    assert codes_of(None) == codes_of(len) == codes_of(dict) == codes_of("text") == ()
