import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.access import Original
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.store import Looked, ReportStore, Scene
from cdd_agent.testrun.suite import NoReport, SuiteRun
from pytest_tdd_agent.report import Case, Failure
from tests.fakes.suite import FakeSuite, with_report

FILES = {
    "README.md": "# Prices\n",
    "pytest.ini": "[pytest]\n",
    "prices.py": "def total(prices):\n    return sum(prices)\n",
    "data/ignored.csv": "1,2\n",
    "tests/test_prices.py": "from prices import total\n",
}


@pytest.fixture
def suite(tmp_path: Path) -> FakeSuite:
    """Return the suite of a project with an environment and a repository."""
    root, packages = tmp_path / "project", tmp_path / "packages"
    for name, content in {**FILES, ".git/HEAD": "ref: refs/heads/main\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    packages.mkdir()
    (packages / "colors.py").write_text("red = 1\n")
    python = Interpreter(path=tmp_path / "bin" / "python", origin="", python="3.11", pytest="9", reads=(packages,))
    return FakeSuite(root=root, interpreter=python)


def describe(store: ReportStore, suite: FakeSuite, *targets: str) -> Scene:
    scene = store.describe(suite, targets)
    assert scene is not None
    return scene


def keep(
    store: ReportStore,
    suite: FakeSuite,
    *,
    reads: tuple[str, ...] = ("tests/test_prices.py",),
    run: SuiteRun | None = None,
) -> None:
    """Keep the report of a run that opens the files ``reads``."""
    scene = describe(store, suite)
    with store.watch(scene) as looked:
        for path in reads:
            (suite.root / path).read_bytes()
    store.add(scene, run or with_report("tests/test_prices.py::test_total"), looked=looked, purpose="all tests")


def find(store: ReportStore, suite: FakeSuite, *targets: str) -> str | None:
    """Return why a report is used again, if one is."""
    run = store.find(describe(store, suite, *targets))
    return None if run is None else run.reused


def test_the_same_tests_on_the_same_files_are_not_run_again(suite: FakeSuite) -> None:
    store = ReportStore(place="attempt 1")
    keep(store, suite)
    assert find(store, suite) == "the same tests on the same files, from all tests in attempt 1"
    assert find(store, suite, "tests/test_prices.py") is None, "another selection"
    assert find(store, replace(suite, interpreter=replace(suite.interpreter, path=Path("/other")))) is None


def change_times(path: Path) -> None:
    os.utime(path, (1, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "an ignored file": lambda top: (top / "project/data/ignored.csv").write_text("1,3\n"),
    "the configuration": lambda top: (top / "project/pytest.ini").write_text("[pytest]\naddopts = -x\n"),
    "a mode": lambda top: (top / "project/prices.py").chmod(0o755),
    "an empty folder": lambda top: (top / "project/empty").mkdir(),
    "a new conftest": lambda top: (top / "project/conftest.py").write_text(""),
    "a deleted file": lambda top: (top / "project/README.md").unlink(),
    "a file in place of a link": lambda top: (top / "project/latest").symlink_to("prices.py"),
    "a package": lambda top: (top / "packages/colors.py").write_text("red = 2\n"),
    "a new package": lambda top: (top / "packages/shapes.py").write_text(""),
}


def test_a_change_to_anything_that_a_run_can_see_is_a_new_run(suite: FakeSuite, tmp_path: Path) -> None:
    store, known = ReportStore(), []
    for what, change in CHANGES.items():
        keep(store, suite)
        change(tmp_path)
        if find(store, suite) is not None:
            known.append(what)
    assert known == []


def test_a_variable_that_a_run_gets_counts(suite: FakeSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ReportStore()
    keep(store, suite)
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    assert find(store, suite) is None


def test_a_link_out_of_the_project_counts_with_its_target(suite: FakeSuite, tmp_path: Path) -> None:
    store, outside = ReportStore(), tmp_path / "outside.json"
    outside.write_text("1")
    (suite.root / "settings.json").symlink_to(outside)
    keep(store, suite)
    assert find(store, suite) is not None
    outside.write_text("2")
    assert find(store, suite) is None
    (suite.root / "more").symlink_to(tmp_path)
    assert store.describe(suite, ()) is None, "nobody knows what is in another folder"


def test_a_file_that_keeps_its_times_counts_by_its_content(suite: FakeSuite) -> None:
    store, path = ReportStore(), suite.root / "prices.py"
    change_times(path)
    keep(store, suite)
    path.write_text(path.read_text().replace("sum", "max"))
    change_times(path)
    assert find(store, suite) is None


def test_a_commit_matters_only_to_a_run_that_looks_at_git(suite: FakeSuite) -> None:
    store = ReportStore()
    keep(store, suite)
    keep(blind := ReportStore(), suite, reads=("tests/test_prices.py", ".git/HEAD"))
    assert find(blind, suite) is not None
    (suite.root / ".git/HEAD").write_text("ref: refs/heads/other\n")
    assert find(store, suite) is not None
    assert find(blind, suite) is None
    assert blind.find(describe(blind, suite), spans_commits=True) is not None


def test_of_an_exported_history_only_the_files_count_that_a_run_opened(suite: FakeSuite, tmp_path: Path) -> None:
    export = tmp_path / "export"
    for name in ("objects/pack", "refs"):
        (export / name).mkdir(parents=True)
    (export / "HEAD").write_text("ref: refs/heads/main\n")
    (export / "packed-refs").write_text("1 refs/heads/main\n")
    suite = replace(suite, original=Original(root=suite.root, git=export))
    asked, read, listed = ReportStore(), ReportStore(), ReportStore()
    for store, path in (
        (asked, export / "HEAD"),
        (read, export / "packed-refs"),
        (listed, export / "objects" / "pack"),
    ):
        scene = describe(store, suite)
        with store.watch(scene) as looked:
            os.close(os.open(path, os.O_RDONLY))
        store.add(scene, with_report("tests/test_prices.py::test_total"), looked=looked, purpose="all tests")
    (export / "packed-refs").write_text("2 refs/heads/main\n")
    assert [find(store, suite) is not None for store in (asked, read, listed)] == [True, False, False]


def test_empty_folders_that_a_run_leaves_are_removed_where_only_cdd_works(suite: FakeSuite) -> None:
    store = ReportStore()
    (suite.root / "logs").mkdir()
    scene = describe(store, suite)
    for name in (".benchmarks/linux", "logs/new", "made"):
        (suite.root / name).mkdir(parents=True)
    (suite.root / "made" / "here.txt").write_text("")
    suite.answers.append(with_report("tests/test_prices.py::test_total"))
    store.run(scene, suite, keep=None, purpose="all tests")
    left = {str(path.relative_to(suite.root)) for path in suite.root.rglob("*") if path.is_dir()}
    assert left == {".git", "data", "logs", "made", "tests"}


def test_a_document_matters_only_to_tests_that_can_look_at_it(suite: FakeSuite) -> None:
    def find_after(*, reads: tuple[str, ...] = (), test: str = FILES["tests/test_prices.py"]) -> str | None:
        (suite.root / "README.md").write_text("# Prices\n")
        (suite.root / "tests/test_prices.py").write_text(test)
        store = ReportStore()
        keep(store, suite, reads=("tests/test_prices.py", *reads))
        (suite.root / "README.md").write_text("# Prices, and more\n")
        return find(store, suite)

    assert find_after() == "no test reads README.md, from all tests"
    assert find_after(reads=("README.md",)) is None
    assert find_after(test="assert os.path.getsize('readme.md') > 3") is None, "only its size is asked for"
    assert find_after(test="for path in ROOT.iterdir(): path.stat()") is None
    assert find_after(test="subprocess.run(['make', 'lint'])") is None


def test_what_the_kernel_did_not_report_counts_as_seen(suite: FakeSuite) -> None:
    store = ReportStore()
    scene = describe(store, suite)
    store.add(scene, with_report("t.py::a"), looked=Looked(), purpose="all tests")
    assert find(store, suite) is not None
    (suite.root / "README.md").write_text("")
    assert find(store, suite) is None


def test_results_that_depend_on_chance_or_time_are_not_kept(suite: FakeSuite) -> None:
    store, run = ReportStore(), with_report("t.py::a")
    assert run.report is not None
    flaky = Case("t.py::b", "passed", "t.py", 1, 0.1, reruns=1)
    late = Failure("call", "timeout", "test", "TimeoutError", "the test did not end within 5 s")
    for cases in ((flaky,), (replace(flaky, outcome="failed", reruns=0, failure=late),)):
        keep(store, suite, run=replace(run, report=replace(run.report, tests=cases)))
    keep(store, suite, run=replace(run, report=replace(run.report, complete=False)))
    keep(store, suite, run=replace(run, report=None, failed=NoReport(happened="it ended early")))
    assert find(store, suite) is None


def test_another_process_uses_a_report(suite: FakeSuite, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    keep(ReportStore(folder=folder), suite)
    other = ReportStore(folder=folder)
    assert find(other, suite) is not None
    assert find(ReportStore(folder=tmp_path / "none"), suite) is None


def test_a_process_does_not_read_the_files_of_its_own_records(suite: FakeSuite, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    store = ReportStore(folder=folder)
    keep(store, suite)
    (path,) = folder.iterdir()
    path.write_bytes(b"damaged")
    assert find(store, suite) is not None
    (suite.root / "prices.py").write_text("price = 7\n")
    assert find(store, suite) is None
    assert path.exists(), "a damaged file that is read is deleted"


def test_a_damaged_record_is_as_none(suite: FakeSuite, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    keep(ReportStore(folder=folder), suite)
    (path,) = folder.iterdir()
    data = path.read_bytes()
    for damaged in (data[:-9], b"", b"{}"):
        path.write_bytes(damaged)
        assert find(ReportStore(folder=folder), suite) is None
    keep(ReportStore(folder=folder), suite)
    assert find(ReportStore(folder=folder), suite) is not None


def test_a_folder_that_cannot_be_written_costs_only_a_later_run(suite: FakeSuite, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ReportStore(folder=tmp_path / "file" / "records")
    keep(store, suite)
    assert find(store, suite) is not None, "in memory"


def test_a_name_that_is_not_utf_8_costs_only_a_later_run(suite: FakeSuite, tmp_path: Path) -> None:
    (suite.root / "\udcff.json").write_text("")
    store = ReportStore(folder=tmp_path / "records")
    keep(store, suite)
    assert find(store, suite) is not None, "in memory"


def test_old_records_make_room(suite: FakeSuite, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    store = ReportStore(folder=folder)
    for number in range(30):
        (suite.root / "prices.py").write_text(f"price = {number}\n")
        keep(store, suite)
    assert len(list(folder.iterdir())) == 24
    assert find(ReportStore(folder=folder), suite) is not None, "the newest"


def test_caches_of_earlier_runs_are_deleted_where_only_cdd_works(suite: FakeSuite) -> None:
    store, cache = ReportStore(), suite.root / "__pycache__" / "prices.pyc"
    keep(store, suite)
    cache.parent.mkdir()
    cache.write_bytes(b"planted")
    assert find(store, suite) is not None
    assert not cache.exists()
