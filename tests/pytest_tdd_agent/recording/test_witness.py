import pytest

from pytest_tdd_agent.recording.witness import Guard
from tests.fakes.cases import soak_after

from ..conftest import TWO_WORKERS, Project

SUITE = """
import unittest
import pytest
from product import leave, parse

def test_passes(): pass
def test_assertion(): assert parse("1") == 2
def test_setup(no_such_fixture): pass
@pytest.fixture
def falls():
    yield
    parse("x")
def test_teardown(falls): pass
def test_call_and_teardown(falls): assert False
def test_skipped(): pytest.skip("why")
@pytest.mark.xfail
def test_xfailed(): assert False
@pytest.mark.xfail
def test_xpassed(): pass
@pytest.mark.xfail(strict=True)
def test_strict(): pass
@pytest.mark.parametrize("x", ["a::b", "c d", "\\xe9"])
def test_odd_ids(x): assert x == "c d"
def test_raises():
    with pytest.raises(KeyError):
        parse("x")
def test_product(): parse("x")
def test_subtests(subtests):
    with subtests.test("one"):
        assert parse("1") == 2
    with subtests.test("two"):
        pass
def test_subtests_pass(subtests):
    with subtests.test("one"):
        pass
def test_subtest_skips_itself(subtests):
    with subtests.test("one"):
        assert parse("1") == 1
    with subtests.test("two"):
        pytest.skip("why")
    with subtests.test("three"):
        pytest.xfail("why")
@pytest.mark.parametrize("error", [pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest])
def test_subtest_skipped_by_product(subtests, error):
    with subtests.test("one"):
        assert parse("1") == 1
    with subtests.test("two"):
        assert leave(error) == 1
class Old(unittest.TestCase):
    def test_skips_part(self):
        for value in (1, 2):
            with self.subTest(value=value):
                self.assertEqual(parse("1"), 1)
                if value == 2: self.skipTest("why")
    def test_part_skipped_by_product(self):
        with self.subTest(): self.assertEqual(parse("1"), 1)
        with self.subTest(): self.assertEqual(leave(unittest.SkipTest), 1)
    def test_method(self): self.assertEqual(parse("1"), 2)
    def test_parts(self):
        for value in (1, 2):
            with self.subTest(value=value):
                self.assertEqual(value, 1)
class Unprintable(Exception):
    def __str__(self): raise RuntimeError
def test_unprintable(): raise Unprintable
"""

PRODUCT = '''
def parse(text):
    """Reads.

    >>> parse("1")
    2
    """
    return int(text)

def leave(error):
    __tracebackhide__ = True
    raise error("no")
'''

OUTCOMES = {
    "test_passes": ("passed", None, None),
    "test_assertion": ("failed", "assertion", "test"),
    "test_setup": ("error", "fixture_missing", "test"),
    "test_teardown": ("error", "exception", "project"),
    "test_call_and_teardown": ("error", "exception", "project"),
    "test_skipped": ("skipped", None, None),
    "test_xfailed": ("xfailed", None, None),
    "test_xpassed": ("xpassed", None, None),
    "test_strict": ("failed", "xpass_strict", "test"),
    "test_odd_ids[a::b]": ("failed", "assertion", "test"),
    "test_odd_ids[c d]": ("passed", None, None),
    "test_odd_ids[\\xe9]": ("failed", "assertion", "test"),
    "test_raises": ("failed", "wrong_exception", "project"),
    "test_product": ("failed", "exception", "project"),
    "test_subtests": ("failed", "assertion", "test"),
    "test_subtests_pass": ("passed", None, None),
    "test_subtest_skips_itself": ("passed", None, None),
    **{
        f"test_subtest_skipped_by_product[{name}]": ("skipped", None, None)
        for name in ("Skipped", "XFailed", "SkipTest")
    },
    "Old::test_skips_part": ("passed", None, None),
    "Old::test_part_skipped_by_product": ("skipped", None, None),
    "Old::test_method": ("failed", "assertion", "test"),
    "Old::test_parts": ("failed", "assertion", "test"),
    "test_unprintable": ("failed", "exception", "test"),
    "product.parse": ("failed", "assertion", "test"),
}

UNCOLLECTED = {
    "test_syntax.py": "syntax_error",
    "test_module.py": "missing_module",
    "test_name.py": "import_error",
    "test_other.py": "collection_error",
}


@soak_after(1, "processes", ((), TWO_WORKERS), ids=["one process", "two workers"])
def test_each_outcome_and_failure_is_reported(project: Project, processes: tuple[str, ...]) -> None:
    project.write(
        test_suite=SUITE,
        product=PRODUCT,
        test_syntax="x = (",
        test_module="import no_such",
        test_name="from product import no_such",
        test_other="1 / 0",
    )
    run = project.pytest("--continue-on-collection-errors", "--doctest-modules", *processes)
    assert run.status == 1, run.output
    found = {
        name: (case.outcome, case.failure and case.failure.kind, case.failure and case.failure.origin)
        for name, case in run.cases.items()
    }
    assert found == OUTCOMES
    assert {error.nodeid: error.failure.kind for error in run.report.collect_errors} == UNCOLLECTED
    report = run.report
    assert (report.complete, report.collected, report.exit_status) == (True, len(OUTCOMES), 1)
    assert run.events.count("begin") == run.events.count("test") == run.events.count("start") * len(OUTCOMES)
    assert run.events[-2:] == ["finish", "end"]
    product = run.cases["test_product"].failure
    assert product is not None
    assert (product.path, product.line, product.exception) == ("product.py", 8, "ValueError")
    assert [frame.function for frame in product.frames] == ["test_product", "parse"]
    assert "invalid literal" in product.message
    assert "invalid literal" in product.text
    assert run.cases["test_passes"].line == 6
    assert set(run.cases["test_passes"].phases) == {"setup", "call", "teardown"}


def test_a_guard_keeps_exceptions_and_lets_interrupts_pass() -> None:
    guard = Guard()
    with guard:
        raise ValueError("first")
    with guard:
        raise ValueError("second")
    assert guard.fault == "ValueError: first"
    with pytest.raises(KeyboardInterrupt), guard:
        raise KeyboardInterrupt


def test_a_failure_that_cannot_be_described_does_not_spoil_the_report(project: Project) -> None:
    project.write(
        test_a="class Odd(OSError):\n    errno = property(lambda self: 1 / 0)\ndef test_a(): raise Odd\n"
        "def test_b(): pass\n"
    )
    run = project.pytest()
    failure = run.cases["test_a"].failure
    assert failure is not None
    assert (failure.kind, run.cases["test_b"].outcome, run.report.complete) == ("exception", "passed", True)
