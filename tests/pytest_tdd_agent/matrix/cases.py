"""One project that fails in every way there is, and what the report has to say of each of its tests.

What is said is ``OUTCOME`` or ``OUTCOME: PHASE KIND of ORIGIN [MISSING NAME]``. It is the same with every
interpreter and every release of pytest, serial and under xdist, but for the ``DIFFERENCES``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.pytest_tdd_agent.matrix.environments import Environment

SETTINGS = """\
[pytest]
pythonpath = . lib
norecursedirs = lib
asyncio_mode = strict
addopts = --doctest-modules --doctest-glob=*.rst --continue-on-collection-errors
"""

PRODUCT = '''\
class Box:
    pass


def add(left, right):
    return left + right


def check(value):
    assert value == 2


def later():
    raise NotImplementedError


def pick(items):
    return items["none"]


def doubled(value):
    """
    >>> doubled(2)
    5
    """
    return 2 * value


def imported():
    """
    >>> import no_such
    """


def right():
    """
    >>> right()
    """
'''

FAILING = {
    "assertion": ("assert 1 == 2", "call assertion of test"),
    "assertion_in_product": ("product.check(1)", "call assertion of project"),
    "missing_module": ("import no_such", "call missing_module of test [no_such]"),
    "missing_submodule": ("import json.no_such", "call missing_module of test [json.no_such]"),
    "import_error": ("from json import no_such", "call import_error of test [json.no_such]"),
    "attribute_of_module": ("product.no_such", "call attribute_error of test [product.no_such]"),
    "attribute_of_class": ("product.Box.lid", "call attribute_error of test [product.Box.lid]"),
    "attribute_of_object": ("product.Box().lid", "call attribute_error of test [product.Box.lid]"),
    "attribute_of_none": ("None.lid", "call exception of test"),
    "name_error": ("no_such", "call name_error of test [no_such]"),
    "unbound_local": ("x\n    x = 1", "call name_error of test [x]"),
    "too_many_arguments": ("product.add(1, 2, 3)", "call signature_mismatch of test [product.add]"),
    "missing_argument": ("product.add(1)", "call signature_mismatch of test [product.add]"),
    "unknown_keyword": ("product.add(1, to=2)", "call signature_mismatch of test [product.add.to]"),
    "type_error": ("product.add(1, 'a')", "call exception of project"),
    "key_error": ("product.pick({})", "call exception of project"),
    "not_implemented": ("product.later()", "call not_implemented of project"),
    "recursion": ("def f(): f()\n    f()", "call recursion of test"),
    "system_exit": ("raise SystemExit(0)", "call system_exit of test"),
    "memory": ("raise MemoryError", "call resource of test"),
    "full_disk": ("import errno; raise OSError(errno.ENOSPC, 'full')", "call resource of test"),
    "os_error": ("open('no/such/file')", "call exception of test"),
    "timeout": ("raise TimeoutError", "call timeout of test"),
    "plugin_timeout": ("pytest.fail('Timeout (>1.0s) from pytest-timeout.')", "call timeout of test"),
    "pytest_fail": ("pytest.fail('no')", "call pytest_fail of test"),
    "did_not_raise": ("with pytest.raises(ValueError): pass", "call did_not_raise of test"),
    "did_not_warn": ("with pytest.warns(UserWarning): pass", "call did_not_warn of test"),
    "match": (
        "with pytest.raises(ValueError, match='zz'): raise ValueError('b')",
        "call raises_match_mismatch of test",
    ),
    "wrong_exception": ("with pytest.raises(ValueError): product.pick({})", "call wrong_exception of project"),
    "wrong_missing": (
        "with pytest.raises(ValueError): product.no_such",
        "call wrong_exception of test [product.no_such]",
    ),
    "after_raises": ("with pytest.raises(KeyError): product.pick({})\n    raise ValueError", "call exception of test"),
    "chained": ("try: product.pick({})\n    except KeyError as e: raise ValueError from e", "call exception of test"),
    "unprintable": (
        "class Odd(Exception):\n        def __str__(self): raise RuntimeError\n    raise Odd",
        "call exception of test",
    ),
    "not_ascii": ("raise ValueError('\\u00fc \\0')", "call exception of test"),
    "group": ("raise ExceptionGroup('two', [ValueError(), KeyError()])", "call exception of test"),
    "skip_in_product": ("import unittest; raise unittest.SkipTest('not now')", ""),
}
"""Name of a file -> the body of its test, and what is said of it after ``failed: ``; empty: skipped."""

UNCOLLECTABLE = {
    "syntax_error": ("def test_it(:\n    pass\n", "collect syntax_error of test"),
    "syntax_error_in_product": ("import broken\n", "collect syntax_error of project"),
    "missing_module": ("import no_such\n", "collect missing_module of test [no_such]"),
    "import_error": ("from product import no_such\n", "collect import_error of test [product.no_such]"),
    "name_error": ("no_such\n", "collect collection_error of test [no_such]"),
    "key_error": ("import product\nproduct.pick({})\n", "collect collection_error of project"),
}
"""Name of a file that cannot be collected -> its text, and what is said of the error."""

MODULES = {
    "test_phases": (
        """\
import pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.fixture
def unfit():
    assert 1 == 2

@pytest.fixture
def untidy():
    yield
    assert 1 == 2

def test_missing(no_such_fixture): pass
def test_setup(broken): pass
def test_assertion(unfit): pass
def test_teardown(untidy): pass
def test_both(untidy): raise ValueError
def test_passes(): pass
""",
        {
            "test_missing": "error: setup fixture_missing of test",
            "test_setup": "error: setup exception of test",
            "test_assertion": "error: setup assertion of test",
            "test_teardown": "error: teardown assertion of test",
            "test_both": "error: teardown assertion of test",
            "test_passes": "passed",
        },
    ),
    "test_marks": (
        """\
import pytest

@pytest.mark.skip
def test_skip(): pass
@pytest.mark.skipif(True, reason="so")
def test_skipif(): pass
def test_skips(): pytest.skip("now")
@pytest.mark.xfail
def test_xfail(): assert 0
@pytest.mark.xfail(run=False)
def test_not_run(): assert 0
@pytest.mark.xfail(raises=KeyError)
def test_other(): raise ValueError
def test_xfails(): pytest.xfail("so")
@pytest.mark.xfail
def test_xpass(): pass
@pytest.mark.xfail(strict=True, reason="why")
def test_strict(): pass
@pytest.mark.xfail(strict=True)
def test_strict_xfail(): assert 0
""",
        {
            "test_skip": "skipped",
            "test_skipif": "skipped",
            "test_skips": "skipped",
            "test_xfail": "xfailed",
            "test_not_run": "xfailed",
            "test_other": "failed: call exception of test",
            "test_xfails": "xfailed",
            "test_xpass": "xpassed",
            "test_strict": "failed: call xpass_strict of test",
            "test_strict_xfail": "xfailed",
        },
    ),
    "test_unittest": (
        """\
import unittest

class Box(unittest.TestCase):
    def test_passes(self): self.assertEqual(1, 1)
    def test_equal(self): self.assertEqual(1, 2)
    def test_raises(self):
        with self.assertRaises(ValueError): pass
    def test_wrong(self):
        with self.assertRaises(ValueError): {}["a"]
    def test_parts(self):
        for part in (1, 2):
            with self.subTest(part=part): self.assertEqual(part, 1)
    def test_good_parts(self):
        for part in (1, 2):
            with self.subTest(part=part): self.assertTrue(part)
    @unittest.skip("so")
    def test_skip(self): pass
    @unittest.expectedFailure
    def test_xfail(self): self.fail()
    @unittest.expectedFailure
    def test_xpass(self): pass

class SetUp(unittest.TestCase):
    def setUp(self): raise ValueError
    def test_it(self): pass

class SetUpClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise ValueError
    def test_it(self): pass

class Loop(unittest.IsolatedAsyncioTestCase):
    async def test_it(self): self.assertEqual(1, 2)
    async def test_passes(self): pass
""",
        {
            "Box::test_passes": "passed",
            "Box::test_equal": "failed: call assertion of test",
            "Box::test_raises": "failed: call did_not_raise of test",
            "Box::test_wrong": "failed: call wrong_exception of test",
            "Box::test_parts": "failed: call assertion of test",
            "Box::test_good_parts": "passed",
            "Box::test_skip": "skipped",
            "Box::test_xfail": "xfailed",
            "Box::test_xpass": "failed: call xpass_strict of test",
            "SetUp::test_it": "failed: call exception of test",
            "SetUpClass::test_it": "error: setup exception of test",
            "Loop::test_it": "failed: call assertion of test",
            "Loop::test_passes": "passed",
        },
    ),
    "test_subtests": (
        """\
def test_parts(subtests):
    for part in range(3):
        with subtests.test(part=part): assert part != 1

def test_good_parts(subtests):
    for part in range(3):
        with subtests.test(part=part): assert part < 3

def test_after(subtests):
    with subtests.test("good"): pass
    raise ValueError
""",
        {
            "test_parts": "failed: call assertion of test",
            "test_good_parts": "passed",
            "test_after": "failed: call exception of test",
        },
    ),
    "test_again": (
        """\
import pytest

TRIES = []

@pytest.mark.flaky(reruns=1)
def test_flaky():
    TRIES.append(1)
    assert len(TRIES) == 2

@pytest.mark.flaky(reruns=1)
def test_fails(): assert 0
""",
        {"test_flaky": "passed", "test_fails": "failed: call assertion of test"},
    ),
    "test_asyncio": (
        """\
import asyncio, pytest

@pytest.mark.asyncio
async def test_fails():
    await asyncio.sleep(0)
    assert 1 == 2

@pytest.mark.asyncio
async def test_wrong():
    with pytest.raises(ValueError):
        await asyncio.sleep(0)
        {}["a"]

@pytest.mark.asyncio
async def test_passes(): await asyncio.sleep(0)
""",
        {
            "test_fails": "failed: call assertion of test",
            "test_wrong": "failed: call wrong_exception of test",
            "test_passes": "passed",
        },
    ),
    "test_ids": (
        """\
import pytest

@pytest.mark.parametrize("good", [True, False], ids=["a::b.py::c", "c d [e] / f"])
class TestOdd:
    class TestInner:
        def test_it(self, good): assert good

@pytest.mark.parametrize("text", ["\\u00fc", "a\\nb", "-", "0" * 40])
def test_text(text): assert text == "-"
""",
        {
            "TestOdd::TestInner::test_it[a::b.py::c]": "passed",
            "TestOdd::TestInner::test_it[c d [e] / f]": "failed: call assertion of test",
            "test_text[\\xfc]": "failed: call assertion of test",
            "test_text[a\\nb]": "failed: call assertion of test",
            "test_text[-]": "passed",
            f"test_text[{'0' * 40}]": "failed: call assertion of test",
        },
    ),
}
"""Name of a file -> its text, and what is said of each of its tests."""

CRASH = "tests/test_crash.py::test_it"
CRASHING = "import os\n\ndef test_it(worker_id): os._exit(1)\n"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is said otherwise in some environments."""

    nodeid: str
    said: str | None
    """None: the test is not there."""
    where: Callable[[Environment], bool]
    why: str


def before(*release: int) -> Callable[[Environment], bool]:
    """Return the condition that the interpreter is older."""
    return lambda environment: environment.interpreter_release < release


DIFFERENCES = (
    Difference(
        nodeid="tests/test_attribute_of_class.py::test_it",
        said="failed: call attribute_error of test [Box.lid]",
        where=before(3, 10),
        why="an AttributeError holds the object since 3.10; before, only the message says of what class it is",
    ),
    Difference(
        nodeid="tests/test_attribute_of_object.py::test_it",
        said="failed: call attribute_error of test [Box.lid]",
        where=before(3, 10),
        why="as above",
    ),
    Difference(
        nodeid="tests/test_group.py::test_it",
        said="failed: call name_error of test [ExceptionGroup]",
        where=before(3, 11),
        why="Python has exception groups since 3.11",
    ),
)


def files(*, parallel: bool) -> dict[str, str]:
    """Return the files of the project; a test that kills its process is only among them where there are workers."""
    found = {"pytest.ini": SETTINGS, "product.py": PRODUCT, "lib/broken.py": "x = (\n"}
    for name, (body, _) in FAILING.items():
        found[f"tests/test_{name}.py"] = f"import product, pytest\n\ndef test_it():\n    {body}\n"
    for name, (text, _) in UNCOLLECTABLE.items():
        found[f"tests/test_bad_{name}.py"] = text
    for name, (text, _) in MODULES.items():
        found[f"tests/{name}.py"] = text
    found["docs/guide.rst"] = ">>> 1 + 1\n3\n"
    if parallel:  # a lone surrogate in a message ends xdist's workers, with or without the plugin
        found["tests/test_crash.py"] = CRASHING
    return found


def expected(environment: Environment, *, parallel: bool) -> dict[str, str]:
    """Return node id -> what is said of it; of a file that cannot be collected, by its path."""
    said = {
        f"tests/test_{name}.py::test_it": f"failed: {text}" if text else "skipped"
        for name, (_, text) in FAILING.items()
    }
    said |= {f"tests/test_bad_{name}.py": f"error: {text}" for name, (_, text) in UNCOLLECTABLE.items()}
    for name, (_, tests) in MODULES.items():
        said |= {f"tests/{name}.py::{test}": text for test, text in tests.items()}
    said |= {
        "product.py::product.doubled": "failed: call assertion of test",
        "product.py::product.imported": "failed: call missing_module of test [no_such]",
        "product.py::product.right": "passed",
        "docs/guide.rst::guide.rst": "failed: call assertion of test",
    }
    if parallel:
        said[CRASH] = "failed: call crash of test"
    for difference in DIFFERENCES:
        if difference.where(environment):
            said.pop(difference.nodeid)
            said |= {difference.nodeid: difference.said} if difference.said else {}
    return said
