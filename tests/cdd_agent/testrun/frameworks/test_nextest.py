import shutil
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import CARGO, NEXTEST
from tests.cdd_agent.testrun.frameworks.compiled_samples import DATA, blocked, ended, kept, outcomes, reason, run


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "rust" / "demo", tmp_path / "demo"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """What nextest 0.9.148 wrote."""
    (tmp_path / "results").mkdir()
    shutil.copy(DATA / "rust" / "nextest.xml", tmp_path / "results" / "nextest.xml")
    return tmp_path / "results"


def test_it_calls_every_test_as_cargo_does(demo: Path, results: Path) -> None:
    nextest = NEXTEST.read(ended(demo, kept("rust/nextest.txt", demo), results=results))
    cargo = outcomes(CARGO.read(ended(demo, kept("rust/cargo.txt", demo))))
    assert outcomes(nextest) == {name: what for name, what in cargo.items() if "::doc " not in name}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adds_wrongly", ("assertion", "test", "src/lib.rs", 40)),
        ("is_to_do", ("not_implemented", "project", "src/lib.rs", 17)),
        ("panics", ("did_not_raise", "test", None, None)),
        ("panics_otherwise", ("raises_match_mismatch", "project", "src/lib.rs", 25)),
    ],
)
def test_it_says_why_as_cargo_does(
    demo: Path, results: Path, *, name: str, expected: tuple[str, str, str | None, int | None]
) -> None:
    nextest = NEXTEST.read(ended(demo, kept("rust/nextest.txt", demo), results=results))
    assert reason(nextest, f"src/lib.rs::tests::{name}") == expected


def test_a_file_with_fewer_tests_than_were_started_is_a_problem(demo: Path, results: Path) -> None:
    output = kept("rust/nextest.txt", demo).replace("Starting 14", "Starting 15")
    read = NEXTEST.read(ended(demo, output, results=results))
    assert read.problem == "nextest started 15 tests, but wrote 14 results"


def test_a_test_that_was_not_asked_for_is_not_skipped(demo: Path, results: Path) -> None:
    output = kept("rust/nextest.txt", demo) + "        SKIP [         ] (─────) demo tests::adds_later\n"
    read = NEXTEST.read(ended(demo, output, results=results))
    assert "src/lib.rs::tests::adds_later" not in outcomes(read)


def test_a_test_that_dies_or_takes_too_long_is_told_by_nextest(demo: Path, results: Path) -> None:
    """Types of failure as in nextest's documentation of its JUnit files."""
    (results / "nextest.xml").write_text(
        "<testsuites><testsuite name='demo'>"
        "<testcase name='a' classname='demo'><failure type='test timeout'/></testcase>"
        "<testcase name='b' classname='demo::public'><failure type='test abort with signal 6 (SIGABRT)'/></testcase>"
        "</testsuite></testsuites>"
    )
    read = NEXTEST.read(ended(demo, "    Starting 2 tests across 2 binaries\n", results=results))
    assert reason(read, "src/lib.rs::a")[0] == "timeout"
    assert reason(read, "tests/public.rs::b")[0] == "crash"


def test_its_profile_lies_beside_the_project_s_own_configuration(tmp_path: Path) -> None:
    arguments = NEXTEST.arguments(("tests/public.rs",), tmp_path)
    assert arguments[:4] == ("--tool-config-file", f"cdd:{tmp_path}/nextest.toml", "--profile", "cdd-agent")
    assert arguments[4:] == ("--test=public",)
    assert f"path = '{tmp_path}/nextest.xml'" in (tmp_path / "nextest.toml").read_text()


@pytest.mark.needs("cargo", "nextest", "--version")
def test_a_real_run_is_read(demo: Path) -> None:
    assert outcomes(run(NEXTEST, demo, "tests/public.rs"))["tests/public.rs::adds_in_public"] == "passed"
    (demo / "tests/public.rs").write_text("use demo::multiply;\n")
    assert blocked(run(NEXTEST, demo)) == {"tests/public.rs": ("import_error", "demo.multiply", 1, True)}
