import pytest

from cdd_agent.testrun.frameworks.catalog import JEST, MOCHA, NODE, VITEST
from cdd_agent.testrun.frameworks.javascript import is_source, is_test


@pytest.mark.parametrize(
    "path",
    [
        "src/calc.test.js",
        "src/calc.spec.tsx",
        "a.test.mts",
        "a.spec.cjs",
        "src/__tests__/calc.js",
        "src/__mocks__/fs.js",
        "src/__snapshots__/calc.test.js.snap",
        "vitest.config.ts",
        "vitest.workspace.json",
        "vitest.unit.config.mjs",
        "jest.config.js",
        "packages/a/jest.config.ts",
        "jest.setup.js",
        "vitest.setup.ts",
        "setupTests.ts",
        "test-setup.js",
        "globalSetup.test.js",
        ".mocharc.json",
        ".mocharc.yml",
        "test/mocha.opts",
    ],
)
def test_tests_and_what_configures_them_are_tests(path: str) -> None:
    assert is_test(path)
    assert all(framework.is_test(path) for framework in (VITEST, JEST, MOCHA, NODE))


@pytest.mark.parametrize(
    "path", ["package.json", "src/calc.js", "src/contest.js", "src/test.helper.css", "vite.config.ts", "src/setup.ts"]
)
def test_all_else_is_not(path: str) -> None:
    assert not any(framework.is_test(path) for framework in (VITEST, JEST, MOCHA, NODE))


def test_node_and_mocha_have_a_folder_for_tests() -> None:
    assert NODE.is_test("test/calc.js")
    assert NODE.is_test("lib/calc-test.mjs")
    assert NODE.is_test("test-calc.js")
    assert MOCHA.is_test("test/calc.js")
    assert not MOCHA.is_test("lib/test/calc.js")
    assert not JEST.is_test("test/calc.js")


def test_a_target_is_a_folder_unless_it_is_a_source() -> None:
    assert is_source("test/calc.js")
    assert not is_source("test/")
    assert not is_source("test/unit")
