import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import UNITTEST
from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults
from tests.cdd_agent.testrun.frameworks.compiled_samples import blocked, case, failure, outcomes, reason, written
from tests.fakes.cases import soak_after

SUMS = "def add(a, b):\n    return a + b\n\n\ndef later():\n    raise NotImplementedError\n"
TESTS = """import unittest

import sums


class SumsTest(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(sums.add(1, 1), 2)

    def test_adds_wrongly(self):
        print("printed")
        self.assertEqual(sums.add(1, 1), 3)

    def test_is_to_do(self):
        sums.later()

    def test_misses(self):
        sums.multiply(1, 2)

    def test_raises_nothing(self):
        with self.assertRaises(ValueError):
            sums.add(1, 1)

    @unittest.skip("slow")
    def test_waits(self):
        pass

    @unittest.expectedFailure
    def test_known(self):
        self.fail()

    @unittest.expectedFailure
    def test_mended(self):
        pass

    def test_parts(self):
        for n in (1, 2):
            with self.subTest(n=n):
                self.assertEqual(n, 1)

    def test_some_skipped(self):
        for n in (1, 2):
            with self.subTest(n=n):
                n == 2 and self.skipTest("two")

    def test_all_skipped(self):
        for n in (1, 2):
            with self.subTest(n=n):
                self.skipTest("never")

    def test_failed_and_skipped(self):
        for n in (1, 2):
            with self.subTest(n=n):
                self.skipTest("two") if n == 2 else self.fail()


class Prepared(unittest.TestCase):
    def setUp(self):
        raise RuntimeError("no file")

    def test_x(self):
        pass


class Unready(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise RuntimeError("no database")

    def test_never(self):
        pass
"""
FILE = "tests/test_sums.py"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return written(tmp_path / "demo", {"sums.py": SUMS, FILE: TESTS})


def run(root: Path, *files: str) -> ParsedResults:
    """With this interpreter, in which nothing but the standard library can be imported."""
    results = Path(tempfile.mkdtemp(dir=root.parent))
    argv = [sys.executable, "-S", *UNITTEST.arguments(files, results)]
    process = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    return UNITTEST.read(
        FinishedRun(root=root, results=results, output=process.stdout + process.stderr, exit_status=process.returncode)
    )


def test_every_test_is_called_as_pytest_would(demo: Path) -> None:
    results = run(demo)
    assert outcomes(results) == {
        f"{FILE}::Prepared::test_x": "error",
        f"{FILE}::SumsTest::test_adds": "passed",
        f"{FILE}::SumsTest::test_adds_wrongly": "failed",
        f"{FILE}::SumsTest::test_all_skipped": "skipped",
        f"{FILE}::SumsTest::test_failed_and_skipped": "failed",
        f"{FILE}::SumsTest::test_is_to_do": "failed",
        f"{FILE}::SumsTest::test_known": "xfailed",
        f"{FILE}::SumsTest::test_mended": "xpassed",
        f"{FILE}::SumsTest::test_misses": "failed",
        f"{FILE}::SumsTest::test_parts": "failed",
        f"{FILE}::SumsTest::test_raises_nothing": "failed",
        f"{FILE}::SumsTest::test_some_skipped": "passed",
        f"{FILE}::SumsTest::test_waits": "skipped",
    }
    assert case(results, f"{FILE}::SumsTest::test_adds").line == 7


def test_a_failure_says_why(demo: Path) -> None:
    results = run(demo)
    assert reason(results, f"{FILE}::SumsTest::test_adds_wrongly") == ("assertion", "test", FILE, 12)
    assert reason(results, f"{FILE}::SumsTest::test_is_to_do") == ("not_implemented", "project", "sums.py", 6)
    assert reason(results, f"{FILE}::SumsTest::test_misses") == ("attribute_error", "test", FILE, 18)
    assert reason(results, f"{FILE}::SumsTest::test_raises_nothing")[0] == "did_not_raise"
    assert failure(results, f"{FILE}::SumsTest::test_misses").missing_name == "sums.multiply"
    assert failure(results, f"{FILE}::SumsTest::test_adds_wrongly").output == "printed\n"
    assert failure(results, f"{FILE}::Prepared::test_x").phase == "setup"


def test_what_cannot_be_imported_or_set_up_is_a_collect_error(demo: Path) -> None:
    written(demo, {"tests/test_new.py": "import unittest\nfrom sums import divide\n", "tests/test_bad.py": "def x(:\n"})
    assert blocked(run(demo)) == {
        "tests/test_new.py": ("import_error", "sums.divide", 2, True),
        "tests/test_bad.py": ("syntax_error", None, 1, None),
        f"{FILE}::Unready": (
            "exception",
            None,
            TESTS.splitlines().index('        raise RuntimeError("no database")') + 1,
            None,
        ),
    }


@soak_after(1, "path", [FILE, "tests"])
def test_a_file_or_a_folder_is_run_alone(demo: Path, path: str) -> None:
    written(demo, {"test_other.py": TESTS})
    assert {test.file for test in run(demo, path).tests} == {FILE}


@pytest.mark.slow
def test_tests_in_a_package_are_found_from_the_top(demo: Path) -> None:
    written(demo, {"tests/__init__.py": ""})
    assert len(run(demo).tests) == 13
    assert len(run(demo, FILE).tests) == 13


def test_a_process_that_ends_in_a_test_is_a_problem(demo: Path) -> None:
    text = "import os, unittest\nclass A(unittest.TestCase):\n    def test_a(self):\n        os._exit(0)\n"
    written(demo, {"tests/test_a.py": text})
    assert run(demo, "tests/test_a.py").problem == "unittest ended early in tests/test_a.py::A::test_a (exit status 0)"


def test_an_interpreter_that_does_not_start_is_a_problem(tmp_path: Path) -> None:
    ended = FinishedRun(root=tmp_path, results=tmp_path, output="Fatal Python error: x\n", exit_status=1)
    assert UNITTEST.read(ended).problem == "unittest ended with status 1 and wrote no results:\nFatal Python error: x"


def test_a_project_is_found_by_what_its_tests_import(tmp_path: Path) -> None:
    assert UNITTEST.find(tmp_path) is None
    written(
        tmp_path,
        {FILE: "import pytest\nimport unittest\n", ".venv/bin/python": "", ".venv/lib/test_x.py": "import unittest"},
    )
    assert UNITTEST.find(tmp_path) is None
    written(tmp_path, {FILE: "import unittest\n", "pyproject.toml": ""})
    found = UNITTEST.find(tmp_path)
    assert found is not None
    assert (found.manifest, found.argv) == (tmp_path / "pyproject.toml", (str(tmp_path / ".venv/bin/python"),))
    assert found.why == f"{FILE} imports unittest"
