import pytest

from pytest_tdd_agent.codec import load
from pytest_tdd_agent.gate import CODES
from tests.fakes.cases import soak_after

from ..conftest import ROOT, TWO_WORKERS, XDIST, Project

PRODUCT = "def double(x): return x + 1\n"
OLD_TEST = "from product import double\ndef test_one(): assert double(1) == 2\n"
NEW_TEST = OLD_TEST + "def test_two(): assert double(2) == 4\n"


def test_nothing_happens_without_an_option(project: Project) -> None:
    project.write(test_a="def test_a(): pass\n")
    run = project.plain("-p", "pytest_tdd_agent")
    assert run.status == 0
    assert "= tdd-agent =" not in run.output  # pytest itself lists the distribution
    assert not (project.folder / ".tdd-agent").exists()


def test_the_flag_alone_reports_to_a_folder_that_git_ignores(project: Project) -> None:
    project.write(test_a="def test_a(): pass\ndef test_b(): assert 0\n")
    run = project.plain("-p", "pytest_tdd_agent", "--tdd-agent", "--tdd-agent-nonce", "abc")
    assert run.status == 1
    shown = (
        "1 passed, 1 failed\n  assertion test_a.py:2: assert 0\n    test_a.py::test_b\nreport: .tdd-agent/report.json"
    )
    assert shown in run.output
    assert (project.folder / ".tdd-agent/.gitignore").read_text() == "*\n"
    report = run.report
    assert (report.nonce, report.complete, report.gate) == ("abc", True, None)
    assert list(report.fingerprints) == ["test_a.py"]
    assert report.rootdir == str(project.folder)
    assert run.stream[0]["nonce"] == "abc"


def test_a_cycle_of_red_green_and_refactor(project: Project) -> None:
    project.write(product=PRODUCT, test_a=OLD_TEST)
    assert project.pytest(report="base.json").status == 0
    gate = ("--tdd-agent-target", "test_a.py::test_two", "--tdd-agent-baseline")

    early = project.pytest("--tdd-agent-gate", "red", *gate, "base.json", report="early.json")
    assert (early.status, early.codes) == (1, ["target_missing"])
    assert "RED gate: closed" in early.output
    assert "target_missing: test_a.py::test_two is not in the run" in early.output

    project.write(test_a=NEW_TEST)
    red = project.pytest("--tdd-agent-gate", "red", *gate, "base.json", report="red.json")
    assert (red.status, red.codes, red.report.exit_status) == (0, [], 1)
    assert "RED gate: open" in red.output

    project.write(test_a=NEW_TEST.replace("== 4", "== 3"))
    cheat = project.pytest("--tdd-agent-gate", "green", *gate, "red.json", report="cheat.json")
    assert (cheat.status, cheat.codes, cheat.report.exit_status) == (1, ["protected_changed"], 0)

    project.write(test_a=NEW_TEST, product="def double(x): return x * 2\n")
    green = project.pytest("--tdd-agent-gate", "green", *gate, "red.json", report="green.json")
    assert (green.status, green.codes) == (0, [])

    project.write(product="def double(number): return 2 * number\n")
    refactored = project.pytest("--tdd-agent-gate", "refactor", "--tdd-agent-baseline", "green.json", *XDIST)
    assert (refactored.status, refactored.codes) == (0, [])


@pytest.mark.slow
def test_the_report_of_red_says_what_failed_before(project: Project) -> None:
    project.write(test_a="def test_old(): assert 0\n")
    base = project.pytest(report="base.json")
    assert base.report.old_failures == ()
    project.write(test_a="def test_old(): assert 0\ndef test_new(): assert 0\n")
    args = ("--tdd-agent-gate", "red", "--tdd-agent-baseline", "base.json")
    assert project.pytest(*args).report.old_failures == ("test_a.py::test_old",)


def test_red_accepts_a_file_that_needs_an_expected_module(project: Project) -> None:
    project.write(test_a="from ledger.export import to_csv\ndef test_csv(): assert to_csv([]) == ''\n")
    project.write(test_b="def test_b(): pass\n")
    args = ("-x", "--tdd-agent-gate", "red", "--tdd-agent-target", "test_a.py::test_csv")
    undeclared = project.pytest(*args)
    assert (undeclared.status, undeclared.codes) == (1, ["name_not_expected"])
    declared = project.pytest(*args, "--tdd-agent-expects", "ledger.export")
    assert (declared.status, declared.report.complete) == (0, True)
    assert declared.cases["test_b"].outcome == "passed"


def test_a_run_without_tests_closes_a_gate(project: Project) -> None:
    run = project.pytest("--tdd-agent-gate", "green")
    assert (run.status, run.codes, run.report.exit_status) == (1, ["no_tests"], 5)


@soak_after(
    1,
    ("body", "args", "status", "own"),
    [
        ("import pytest; pytest.exit('enough', returncode=0)", (), 1, 0),
        ("raise KeyboardInterrupt", (), 2, 2),
        ("pass", ("no_such.py",), 4, 4),
        ("pass", ("--collect-only",), 1, 0),
    ],
)
def test_a_run_that_ends_early_closes_a_gate(
    project: Project, body: str, *, args: tuple[str, ...], status: int, own: int
) -> None:
    project.write(test_a=f"def test_a(): pass\ndef test_b():\n    {body}\ndef test_c(): pass\n")
    run = project.pytest("--tdd-agent-gate", "green", *args)
    assert (run.status, run.codes, run.report.exit_status) == (status, ["run_incomplete"], own)


@pytest.mark.slow
def test_without_a_gate_a_collection_error_still_stops_pytest(project: Project) -> None:
    project.write(test_a="import no_such\n", test_b="def test_b(): pass\n")
    run = project.pytest()
    assert (run.status, run.report.complete, len(run.report.collect_errors)) == (2, False, 1)
    assert "incomplete run: " in run.output
    assert "interrupt" in run.events


@pytest.mark.slow
def test_a_process_that_dies_leaves_a_stream_that_names_the_test_and_no_report(project: Project) -> None:
    project.write(test_a="def test_a(): pass\n")
    assert project.pytest().status == 0
    project.write(test_a="import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n")
    run = project.pytest("--tdd-agent-gate", "green")
    assert run.status == 0
    assert not (project.folder / "out/report.json").exists()
    assert run.events == ["start", "collected", "begin", "test", "begin"]
    assert run.stream[-1]["nodeid"] == "test_a.py::test_b"


@pytest.mark.slow
def test_a_worker_that_dies_is_a_failure_of_its_test(project: Project) -> None:
    project.write(test_a="import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n")
    run = project.pytest(*XDIST, "--tdd-agent-gate", "green")
    assert (run.status, run.codes, run.report.complete) == (1, ["target_failed"], True)
    failure = run.cases["test_b"].failure
    assert failure is not None
    assert (failure.kind, failure.phase) == ("crash", "call")


def test_tests_that_tamper_with_the_process_do_not_harm_the_report(project: Project) -> None:
    project.write(
        test_a="""
import json, os
def test_patches(monkeypatch):
    monkeypatch.setattr(os, "write", None)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(json, "dumps", None)
def test_patches_for_good():
    json.dumps = json.loads = None
def test_forks():
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
    )
    run = project.pytest("--tdd-agent-gate", "green")
    assert (run.status, len(run.report.tests)) == (0, 3), run.output
    assert run.events.count("test") == 3


@pytest.mark.slow
def test_pytest_inside_a_test_leaves_the_report_alone(project: Project) -> None:
    project.write(
        inner__check="def test_inner(): assert 0\n",
        test_a="""
import subprocess, sys
def test_a():
    run = [sys.executable, "-m", "pytest", "-q", "--rootdir", ".", "inner/check.py"]
    assert subprocess.run(run).returncode == 1
""",
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTEST_ADDOPTS", "-p pytest_tdd_agent --tdd-agent-report out/report.json")
        run = project.plain("test_a.py", report="out/report.json")
    assert run.status == 0, run.output
    assert list(run.cases) == ["test_a"]
    assert run.events == ["start", "collected", "begin", "test", "finish", "end"]


@pytest.mark.slow
def test_deselected_tests_are_counted_with_and_without_xdist(project: Project) -> None:
    project.write(test_a="def test_a(): pass\ndef test_b(): pass\n")
    for processes in ((), TWO_WORKERS):
        report = project.pytest("-k", "not test_b", *processes).report
        assert (report.complete, report.collected, report.deselected) == (True, 1, 1)


@pytest.mark.slow
def test_an_installed_plugin_and_the_same_by_name_do_not_collide(project: Project) -> None:
    project.put(
        "site/pytest_tdd_agent-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pytest_tdd_agent\nVersion: 0\n"
    )
    project.put(
        "site/pytest_tdd_agent-0.dist-info/entry_points.txt", "[pytest11]\npytest_tdd_agent = pytest_tdd_agent\n"
    )
    project.write(test_a="def test_a(): pass\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
        environment.setenv("PYTHONPATH", f"{project.folder / 'site'}:{ROOT}")
        assert project.pytest().status == 0
        assert project.plain("--tdd-agent", "test_a.py").report.complete


@soak_after(
    1,
    ("args", "message"),
    [
        (("--tdd-agent-gate", "red", "--tdd-agent-baseline", "none.json"), "none.json: No such file or directory"),
        (("--tdd-agent-gate", "red", "--tdd-agent-baseline", "bad.json"), "bad.json: $.schema: 99 is newer"),
        (("--tdd-agent-target", "a.py"), "add --tdd-agent-gate"),
        (("--tdd-agent-report", "x.jsonl"), "x.jsonl: the suffix .jsonl is reserved for the stream"),
        (("--tdd-agent-report", "bad.json/report.json"), "bad.json"),
        (("--tdd-agent-gate", "blue"), "invalid choice: 'blue'"),
        ((*XDIST, "--dist", "each", "--tdd-agent-gate", "green"), "use --dist load, not each"),
        (("--tdd-agent", "-o", "tdd_agent_report=-"), "tdd_agent_report: - is not a file name"),
    ],
)
def test_options_that_cannot_be_followed_are_a_usage_error(
    project: Project, args: tuple[str, ...], message: str
) -> None:
    project.put("bad.json", '{"schema": 99}')
    run = project.plain("-p", "pytest_tdd_agent", *args)
    assert run.status == 4
    assert message in run.output


@pytest.mark.slow
def test_a_report_is_not_written_over_the_baseline_of_its_run(project: Project) -> None:
    project.write(test_a="def test_a(): pass\n")
    before = project.plain("-p", "pytest_tdd_agent", "--tdd-agent").report
    run = project.plain(
        "-p", "pytest_tdd_agent", "--tdd-agent-gate=red", "--tdd-agent-baseline=.tdd-agent/../.tdd-agent/report.json"
    )
    assert run.status == 4
    assert "Add --tdd-agent-report=red.json" in run.output
    assert run.report == before


@pytest.mark.slow
def test_a_report_outside_the_folder_does_not_move_the_root_directory(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.put("pytest.ini", "[pytest]\npython_files = check_*.py\n")
    project.write(check_a="def test_a(): assert 0\n")
    far = tmp_path_factory.mktemp("far") / "report.json"
    assert project.plain("-p", "pytest_tdd_agent", "--tdd-agent-report", str(far)).status == 1
    again = project.plain("-p", "pytest_tdd_agent", "--tdd-agent-report", str(far))
    assert again.status == 4
    assert f"Write --tdd-agent-report={far}" in again.output
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTEST_ADDOPTS", f"--tdd-agent-report {far}")
        assert project.plain("-p", "pytest_tdd_agent").status == 4
    assert project.plain("-p", "pytest_tdd_agent", "-c", "pytest.ini", "--tdd-agent-report", str(far)).status == 1
    assert project.plain("-p", "pytest_tdd_agent", f"--tdd-agent-report={far}").status == 1
    assert [case.nodeid for case in load(far).tests] == ["check_a.py::test_a"]


def test_a_fault_of_the_plugin_closes_the_gate_and_breaks_nothing(project: Project) -> None:
    project.write(
        conftest="import pytest_tdd_agent.recording.spool as t\nt.SpoolTally.finish = lambda self, nodeid: 1 / 0\n",
        test_a="def test_a(): pass\n",
    )
    free, gated = project.pytest(), project.pytest("--tdd-agent-gate", "green")
    assert free.status == 0
    assert (gated.status, gated.codes) == (1, ["run_incomplete"])
    assert "pytest_tdd_agent failed: ZeroDivisionError" in gated.output


@pytest.mark.slow
def test_a_long_list_of_reasons_is_cut_on_the_screen_only(project: Project) -> None:
    project.write(test_a="import pytest\n@pytest.mark.parametrize('x', range(30))\ndef test_a(x): assert 0\n")
    run = project.pytest("--tdd-agent-gate", "green")
    assert run.codes == ["target_failed"] * 30
    assert run.output.count("  target_failed: test_a.py") == 3
    assert "  target_failed: and 27 more in the report" in run.output
    names = "test_a.py::test_a[0], ::test_a[1], ::test_a[2]"
    assert f"  assertion test_a.py:3: assert 0\n    30 tests: {names} and 27 more\n" in run.output
    assert set(run.codes) <= set(CODES)
