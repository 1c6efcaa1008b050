"""The files and the output are of real runs: Gradle 4.4.1, JUnit 4.13.2."""

from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import GRADLE
from tests.cdd_agent.testrun.frameworks.compiled_samples import DATA, blocked, ended, kept, outcomes, reason, written

SUMS = "src/test/java/demo/SumsTest.java"
NEW = "src/test/java/demo/NewTest.java"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    names = {"src/main/java/demo/Sums.java": "Sums.java", SUMS: "SumsTest.java"}
    texts = {path: (DATA / "jvm" / name).read_text() for path, name in names.items()}
    return written(tmp_path / "demo", {**texts, "build.gradle": ""})


@pytest.fixture
def reported(demo: Path) -> Path:
    """The project, and what its test task left in it."""
    names = {"TEST-demo.SumsTest.xml": "SumsTest", "TEST-demo.SumsTest$Inner.xml": "Inner"}
    files = {f"build/test-results/test/{path}": kept(f"jvm/gradle-{name}.xml", demo) for path, name in names.items()}
    return written(demo, files)


def test_every_test_is_called_by_its_class_s_file(reported: Path) -> None:
    results = GRADLE.read(ended(reported, ""))
    assert outcomes(results)[f"{SUMS}::adds"] == "passed"
    assert outcomes(results)[f"{SUMS}::waits"] == "skipped"
    assert outcomes(results)[f"{SUMS}::Inner.nested"] == "passed"
    assert len(results.tests) == 9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("addsWrongly", ("assertion", "test", SUMS, 17)),
        ("explodes", ("exception", "project", "src/main/java/demo/Sums.java", 9)),
        ("isToDo", ("not_implemented", "project", "src/main/java/demo/Sums.java", 13)),
        ("throwsNothing", ("did_not_raise", "test", None, None)),
        ("takesLong", ("timeout", "test", SUMS, 42)),
    ],
)
def test_a_failure_says_why(reported: Path, name: str, *, expected: tuple[str, str, str | None, int | None]) -> None:
    assert reason(GRADLE.read(ended(reported, "")), f"{SUMS}::{name}") == expected


def test_what_does_not_compile_is_a_collect_error(demo: Path) -> None:
    written(demo, {NEW: ""})
    results = GRADLE.read(ended(demo, kept("jvm/gradle-compile-error.txt", demo)))
    assert blocked(results) == {NEW: ("missing_module", "demo.nothere", 3, True)}


def test_files_of_an_earlier_run_are_known(reported: Path) -> None:
    assert len(GRADLE.old_reports(reported)) == 2


def test_a_build_that_fails_without_a_failed_test_is_a_problem(demo: Path) -> None:
    said = "FAILURE: Build failed with an exception.\n\n* What went wrong:\nCould not resolve x.\n> No cached version\n"
    assert (
        GRADLE.read(ended(demo, said)).problem
        == "Gradle failed outside of the tests: Could not resolve x. No cached version"
    )


def test_what_was_never_fetched_is_told_with_the_way_to_fetch_it(demo: Path) -> None:
    said = "* What went wrong:\nCould not resolve x.\n> No cached version of x available for offline mode.\n"
    problem = GRADLE.read(ended(demo, said)).problem or ""
    assert "available for offline mode. Tests run without network: run `gradle test` yourself once" in problem


def test_a_project_without_the_test_that_was_asked_for_is_no_problem(reported: Path) -> None:
    (reported / "build/test-results/test/TEST-demo.SumsTest.xml").unlink()
    said = "* What went wrong:\nExecution failed for task ':b:test'.\n> No tests found for given includes: [a.B]\n"
    assert outcomes(GRADLE.read(ended(reported, said))) == {f"{SUMS}::Inner.nested": "passed"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((SUMS, "ATest.java"), ("--tests", "demo.SumsTest", "--tests", "ATest")),
        (("src/test",), ()),
        (("--init-script=x",), ()),
    ],
)
def test_files_become_filters_of_the_task(files: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert GRADLE.arguments(files, Path("/r")) == (*expected, "--continue", "--no-daemon", "--console=plain")


def test_the_project_s_own_gradle_comes_first(tmp_path: Path) -> None:
    written(tmp_path, {"settings.gradle.kts": "", "gradlew": ""})
    found = GRADLE.find(tmp_path)
    assert found is not None
    assert (found.argv, found.manifest.name) == (("./gradlew", "test"), "settings.gradle.kts")
