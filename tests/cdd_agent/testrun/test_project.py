"""From a project's folder to the suite that everybody works with."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.settings import Settings
from cdd_agent.config.trust import Approvals, Offer, Trust
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.frameworks.suite import CommandSuite
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.project import SuiteContext, make_suite
from cdd_agent.testrun.pytest_run import PytestSuite
from tests.fakes.approval import users_folder


class Asked:
    """Says yes, and keeps what it was asked."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def __call__(self, offer: Offer, changed: bool) -> bool:
        self.sources.append(offer.source)
        return True


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def around(tmp_path: Path, interpreter: Interpreter, *, asked: Asked, told: list[str]) -> SuiteContext:
    root = tmp_path / "project"
    root.mkdir()
    environment = {**users_folder(tmp_path), "CDD_PYTHON": str(interpreter.path)}
    return SuiteContext(
        root=root,
        environment=environment,
        settings=Settings(),
        trust=Trust(Approvals(root, environment=environment), ask=asked, report=told.append),
        sandbox=PlainSandbox(),
        choose=None,
        tell=told.append,
    )


@pytest.mark.slow
def test_a_python_project_is_tested_by_pytest_as_ever(around: SuiteContext, told: list[str]) -> None:
    (around.root / "one.py").touch()
    suite = make_suite(around)
    assert isinstance(suite, PytestSuite)
    assert (suite.timeout_s, suite.conventions.framework, told) == (120.0, "pytest", [])


def test_another_framework_is_said_once_with_what_is_not_checked(around: SuiteContext, told: list[str]) -> None:
    (around.root / "go.mod").write_text("module a\n")
    suite = make_suite(around)
    assert isinstance(suite, CommandSuite)
    assert suite.cache == around.root / ".cdd" / "build" / "go"
    assert len(told) == 1
    assert "`go test`, as there is a go.mod" in told[0]
    assert "need pytest" in told[0]


def test_tdd_properties_count_once_they_are_approved(around: SuiteContext, asked: Asked) -> None:
    (around.root / "go.mod").write_text("module a\n")
    (around.root / "tdd.properties").write_text("test.command=go test -race\nbash.timeout=7\n")
    suite = make_suite(around)
    assert asked.sources == ["tdd.properties"]
    assert (suite.command, suite.timeout_s) == ("go test -race", 7.0)


def test_the_settings_count_over_tdd_properties(around: SuiteContext) -> None:
    (around.root / "go.mod").write_text("module a\n")
    (around.root / "tdd.properties").write_text("test.command=go test -race\nbash.timeout=7\n")
    suite = make_suite(replace(around, settings=Settings(test_command="make check", test_timeout_s=9)))
    assert (suite.command, suite.timeout_s, suite.conventions.framework) == ("make check", 9, "command")
    named = make_suite(replace(around, settings=Settings(framework="go", accept_unstructured=True)))
    assert (named.command, named.conventions.accepts_exit_status) == ("go test", True)


def test_a_command_that_runs_pytest_narrows_all_tests_and_what_does_not_count_is_told(
    around: SuiteContext, told: list[str]
) -> None:
    (around.root / "tests").mkdir()
    suite = make_suite(replace(around, settings=Settings(test_command="uv run pytest -x -q -m fast tests")))
    assert isinstance(suite, PytestSuite)
    assert (suite.options, suite.selects) == (("-q",), ("-m", "fast", "tests"))
    assert "test_command narrows them to `-m fast tests`" in suite.conventions.discovery
    assert len(told) == 1
    assert "have no effect: `-x`." in told[0]
    told.clear()
    make_suite(replace(around, settings=Settings(test_command="pytest tests")))
    assert told == []


@pytest.mark.slow
def test_the_interpreter_that_a_command_names_is_asked_about_and_taken(
    around: SuiteContext, asked: Asked, *, full_environment: Path
) -> None:
    (around.root / ".ci").symlink_to(full_environment)
    named = {name: value for name, value in around.environment.items() if name != "CDD_PYTHON"}
    settings = Settings(test_command=".ci/bin/python -m pytest")
    suite = make_suite(replace(around, environment=named, settings=settings))
    assert isinstance(suite, PytestSuite)
    assert suite.interpreter.path == around.root / ".ci" / "bin" / "python"
    assert suite.interpreter.origin == "test_command"
    assert asked.sources == [".ci/bin/python"]


@pytest.mark.parametrize(("reruns", "is_told"), [(0, False), (1, False), (3, True)])
def test_that_tests_of_other_frameworks_are_not_run_again_is_told_if_it_is_asked_for(
    around: SuiteContext, told: list[str], *, reruns: int, is_told: bool
) -> None:
    (around.root / "go.mod").write_text("module a\n")
    make_suite(replace(around, settings=Settings(test_reruns=reruns)))
    text = "test_reruns is for pytest only: cdd does not rerun failing tests of go."
    assert (text in told) == is_told


class Chooses:
    """Chooses the same number each time, and counts the questions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0

    def __call__(self, question: str, choices: tuple[str, ...]) -> int:
        self.count += 1
        return self.number


def test_a_choice_among_several_is_kept_for_the_project_and_told(around: SuiteContext, told: list[str]) -> None:
    (around.root / "go.mod").write_text("module a\n")
    (around.root / "pom.xml").write_text("<project/>")
    chooses = Chooses(1)
    assert make_suite(replace(around, choose=chooses)).conventions.framework == "maven"
    assert "maven runs the tests here from now on" in told[0]
    assert "framework: NAME in .cdd/config.yaml says otherwise" in told[0]
    told.clear()
    again = Trust(Approvals(around.root, environment=around.environment), ask=None, report=told.append)
    later = replace(around, choose=None, trust=again)
    assert make_suite(later).conventions.framework == "maven"
    assert len(told) == 1
    assert "as you chose it for this project" in told[0]
    assert make_suite(replace(later, settings=Settings(framework="go"))).conventions.framework == "go"
    assert make_suite(replace(around, choose=chooses)).conventions.framework == "maven"
    assert chooses.count == 1


def test_a_framework_that_was_not_there_when_it_was_chosen_is_asked_about_anew(around: SuiteContext) -> None:
    for name, text in {"go.mod": "module a\n", "pom.xml": "<project/>"}.items():
        (around.root / name).write_text(text)
    assert make_suite(replace(around, choose=Chooses(1))).conventions.framework == "maven"
    (around.root / "Cargo.toml").write_text('[package]\nname = "a"\n')
    with pytest.raises(EnvironmentMissing, match="has several test frameworks"):
        make_suite(around)
    asks = Chooses(0)
    assert make_suite(replace(around, choose=asks)).conventions.framework in {"cargo", "nextest"}
    (around.root / "Cargo.toml").unlink()
    assert make_suite(replace(around, choose=asks)).conventions.framework == "maven"
    assert asks.count == 1


def test_a_choice_is_not_kept_where_the_project_holds_the_user_s_folder(around: SuiteContext) -> None:
    (around.root / "go.mod").write_text("module a\n")
    (around.root / "pom.xml").write_text("<project/>")
    inside = {**around.environment, "XDG_STATE_HOME": str(around.root / "state")}
    trust = Trust(Approvals(around.root, environment=inside), ask=None, report=print)
    asks = Chooses(0)
    for _ in range(2):
        assert make_suite(replace(around, trust=trust, choose=asks)).conventions.framework == "go"
    assert asks.count == 2


def test_unittest_runs_where_the_interpreter_has_no_pytest(around: SuiteContext, bare_environment: Path) -> None:
    (around.root / "test_a.py").write_text(
        "import unittest\n\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\n"
    )
    python = str(bare_environment / "bin" / "python")
    bare = replace(around, environment={**around.environment, "CDD_PYTHON": python})
    suite = make_suite(bare)
    run = suite.run()
    assert run.report is not None, run.problem
    assert {case.nodeid: case.outcome for case in run.report.tests} == {"test_a.py::A::test_a": "passed"}
    assert run.report.framework == "unittest"
    (around.root / "test_a.py").write_text("import pytest\n")
    with pytest.raises(EnvironmentMissing, match="cannot import pytest"):
        make_suite(bare)
