"""Runs of a framework of the tests' own, a shell script: what comes of its results, and what it may reach."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.frameworks.catalog import MAKE
from cdd_agent.testrun.frameworks.framework import FinishedRun, Framework, FrameworkMatch, ParsedResults
from cdd_agent.testrun.frameworks.suite import CommandSuite
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import Case, CollectError, Failure
from tests.fakes.cases import soak_after


def read(ended: FinishedRun) -> ParsedResults:
    """One line a test: ``name outcome``."""
    lines = [line.split() for line in (ended.output + _written(ended)).splitlines()]
    cases = [
        Case(nodeid=f"test/a.sh::{name}", outcome=outcome, file="test/a.sh", line=0, duration_s=0.0)
        for name, outcome in lines
    ]
    return ParsedResults(tests=tuple(cases))


def _written(ended: FinishedRun) -> str:
    path = ended.results / "found"
    return path.read_text() if path.exists() else ""


SHELL = Framework(
    name="shell",
    discovery="run.sh",
    find=lambda _: None,
    arguments=lambda targets, results: (str(results / "found"), *targets),
    read=read,
    is_test=lambda path: path.startswith("test/"),
    old_reports=lambda root: tuple(root.glob("old/*.xml")),
    variables=(("COLOR", "no"),),
)


@pytest.fixture
def suite(tmp_path: Path) -> CommandSuite:
    root = tmp_path / "project"
    (root / "test").mkdir(parents=True)
    (root / "test" / "a.sh").write_text("one\n")
    (root / "run.sh").write_text('echo "one passed"\n')
    return CommandSuite(
        root=root,
        framework=SHELL,
        finding=FrameworkMatch(manifest=root / "run.sh", argv=("sh", "run.sh"), why="there is run.sh"),
        sandbox=PlainSandbox(),
        timeout_s=20,
        cache=tmp_path / "build" / "shell",
    )


def script(suite: CommandSuite, text: str) -> None:
    (suite.root / "run.sh").write_text(text)


def outcomes(suite: CommandSuite, *targets: str) -> dict[str, str]:
    run = suite.run(targets)
    assert run.report is not None, run.problem
    return {case.nodeid.partition("::")[2]: case.outcome for case in run.report.tests}


def test_results_become_a_report_that_says_what_ran_and_what_the_tests_were(
    suite: CommandSuite, tmp_path: Path
) -> None:
    run = suite.run(keep=tmp_path / "kept" / "report.json")
    assert run.report is not None
    assert load(tmp_path / "kept" / "report.json") == run.report
    assert (run.report.framework, run.report.structured, run.report.complete) == ("shell", True, True)
    assert (run.report.sandbox, run.report.collected, run.report.pytest) == ("none", 1, "")
    assert list(run.report.fingerprints) == ["test/a.sh"]
    assert run.report.nonce


def test_targets_and_a_private_folder_are_given_to_the_command(suite: CommandSuite) -> None:
    script(suite, 'echo "$2 passed" > "$1"; test "$COLOR" = no || exit 9\n')
    assert outcomes(suite, "./two/") == {"two": "passed"}


@pytest.mark.parametrize(
    ("targets", "kept"),
    [
        (("test/a.sh::b",), ["b > c", "b #2"]),
        (("./test/a.sh::a", "test/a.sh::b #2"), ["a", "b #2"]),
        (("test/a.sh::b", "test"), ["a", "b > c", "b #2"]),
        (("test/a.sh::gone",), []),
    ],
)
def test_of_the_files_that_ran_only_the_tests_count_that_were_asked_for(
    suite: CommandSuite, targets: tuple[str, ...], *, kept: list[str]
) -> None:
    def some(_: FinishedRun) -> ParsedResults:
        names = ("a", "b > c", "b", "b")
        cases = (Case(f"test/a.sh::{name}", "passed", file="test/a.sh", line=0, duration_s=0.0) for name in names)
        return ParsedResults(tests=tuple(cases))

    found = replace(suite, framework=replace(SHELL, read=some))
    assert [name for name in outcomes(found, *targets) if name != "b"] == kept


def test_result_files_of_an_earlier_run_are_gone_before_the_next(suite: CommandSuite) -> None:
    (suite.root / "old").mkdir()
    (suite.root / "old" / "a.xml").write_text("")
    script(suite, 'test -e old/a.xml && echo "old failed" || echo "new passed"\n')
    assert outcomes(suite) == {"new": "passed"}


def test_tests_of_one_name_are_told_apart(suite: CommandSuite) -> None:
    script(suite, 'echo "one failed"; echo "one passed"\n')
    assert outcomes(suite) == {"one": "failed", "one #2": "passed"}


@soak_after(
    1,
    ("text", "told"),
    [("echo broken; exit 3\n", "broken"), ("exit 3\n", "no output"), ("sleep 20\n", "did not end within 0.5 s")],
)
def test_a_run_without_results_is_a_problem(suite: CommandSuite, text: str, told: str) -> None:
    def nothing(_: FinishedRun) -> ParsedResults:
        return ParsedResults()

    script(suite, text)
    timed = replace(suite, framework=replace(SHELL, read=nothing)).with_timeout(0.5 if "sleep" in text else 20)
    run = timed.run()
    assert run.report is None
    assert told in (run.problem or "")


def test_results_without_a_failure_need_the_exit_status_0(suite: CommandSuite) -> None:
    script(suite, 'echo "one passed" > "$1"; exit 3\n')
    run = suite.run()
    assert (run.report, run.problem) == (None, f"`{suite.command}` ended with status 3 although no test failed")

    def read_explained(_: FinishedRun) -> ParsedResults:
        case = Case("test/a.sh::one", "passed", file="test/a.sh", line=0, duration_s=0.0)
        return ParsedResults(tests=(case,), explains_status=True)

    assert outcomes(replace(suite, framework=replace(SHELL, read=read_explained))) == {"one": "passed"}
    script(suite, 'echo "one failed" > "$1"; exit 3\n')
    assert outcomes(suite) == {"one": "failed"}


def test_a_program_that_is_not_there_is_said(suite: CommandSuite) -> None:
    gone = replace(suite, finding=replace(suite.finding, argv=("no-such-program",)))
    assert "no-such-program cannot be started" in (gone.run().problem or "")


def test_of_make_only_the_exit_status_is_known(suite: CommandSuite) -> None:
    (suite.root / "Makefile").write_text(".PHONY: test\ntest:\n\t@exit 1\n")
    finding = MAKE.find(suite.root)
    assert finding is not None
    run = replace(suite, framework=MAKE, finding=finding, accepts_exit_status=True).run()
    assert run.report is not None
    assert (run.report.structured, run.report.exit_status != 0, run.report.tests) == (False, True, ())


class Recorder:
    """Keeps the command, and prints nothing."""

    level = "none"

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def run(self, command: Command) -> Result:
        self.commands.append(command)
        return Result(exit_status=0, head="", dropped_bytes=0, timed_out=False, duration_s=0.0, level=self.level)


def test_tests_configuration_and_installed_packages_stay_as_they_are(suite: CommandSuite) -> None:
    (suite.root / "node_modules").mkdir()
    recorder = Recorder()
    suite.with_sandbox(recorder).run()
    access = recorder.commands[0].access
    for name in ("test/a.sh", "run.sh", "node_modules"):
        assert suite.root / name in access.read_only
    assert suite.root in access.read_write
    command = suite.build_access(tests_too=True)
    assert {suite.root / "test", suite.root / "test" / "a.sh"} & set(command.read_only)
    assert suite.root / "test" / "a.sh" not in suite.build_access().read_only
    assert suite.cache not in command.read_write, "what tests are judged by is no command's to write"


def test_a_test_that_a_build_has_compiled_can_be_compiled_again(suite: CommandSuite) -> None:
    for name in ("out/a.test.sh", "test/out/b.test.sh"):
        (suite.root / name).parent.mkdir(exist_ok=True)
        (suite.root / name).write_text("")
    recorder = Recorder()
    known = replace(SHELL, is_test=lambda path: path.endswith(".test.sh") or path.startswith("test/"))
    replace(suite, framework=known, sandbox=recorder).run()
    locked = recorder.commands[0].access.read_only
    assert suite.root / "out" / "a.test.sh" not in locked
    assert suite.root / "test" / "out" / "b.test.sh" in locked


def test_a_copy_is_lent_the_installed_packages_and_built_from_nothing(suite: CommandSuite, tmp_path: Path) -> None:
    for folder in ("node_modules/a", "packages/b/node_modules/c"):
        (suite.root / folder).mkdir(parents=True)
    copy = tmp_path / "copy"
    (copy / "packages" / "b").mkdir(parents=True)
    other = suite.with_root(copy)
    for package in ("node_modules/a", "packages/b/node_modules/c"):
        assert (copy / package).resolve() == suite.root / package
    assert (other.root, other.cache, other.finding.manifest) == (copy, None, copy / "run.sh")
    assert suite.root / "node_modules" in other.reads


def test_other_tests_run_beside_one_that_does_not_compile(suite: CommandSuite) -> None:
    why = Failure(phase="collect", kind="missing_module", origin="test", exception="", message="m")

    def compiled(ended: FinishedRun) -> ParsedResults:
        if (ended.root / "test" / "b.sh").exists():
            return ParsedResults(collect_errors=(CollectError(nodeid="test/b.sh", failure=why),))
        return read(ended)

    (suite.root / "test" / "b.sh").write_text("two\n")
    run = replace(suite, framework=replace(SHELL, name="cargo", hides_other_tests=True, read=compiled)).run()
    assert run.report is not None
    assert [error.nodeid for error in run.report.collect_errors] == ["test/b.sh"]
    assert [case.nodeid for case in run.report.tests] == ["test/a.sh::one"]
    assert (suite.root / "test" / "b.sh").exists()


def test_files_that_cannot_be_loaded_are_left_out_one_after_the_other(suite: CommandSuite) -> None:
    """mocha names but one of them in a run, and then runs no test of any file."""

    def loaded(ended: FinishedRun) -> ParsedResults:
        broken = sorted(path for path in (ended.root / "test").iterdir() if path.read_text() == "broken")
        if not broken:
            return read(ended)
        why = Failure(phase="collect", kind="syntax_error", origin="test", exception="", message=f"in {broken[0]}")
        return ParsedResults(collect_errors=(CollectError(nodeid=f"test/{broken[0].name}", failure=why),))

    for name in ("b.sh", "c.sh", "d.sh"):
        (suite.root / "test" / name).write_text("broken")
    run = replace(suite, framework=replace(SHELL, name="mocha", hides_other_tests=True, read=loaded)).run()
    assert run.report is not None
    told = {error.nodeid: error.failure.message for error in run.report.collect_errors}
    assert told == {f"test/{name}": f"in {suite.root}/test/{name}" for name in ("b.sh", "c.sh", "d.sh")}
    assert [case.nodeid for case in run.report.tests] == ["test/a.sh::one"]


def test_a_person_types_the_command_as_in_the_project(suite: CommandSuite) -> None:
    finding = replace(suite.finding, argv=(str(suite.root / "bin" / "a tool"), "run"))
    assert replace(suite, finding=finding).command == "'bin/a tool' run"
