"""Surefire's files and Maven's output are of real runs: Maven 3.8.7, Surefire 2.22.3, JUnit 4.13.2."""

import shutil
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import MAVEN
from tests.cdd_agent.testrun.frameworks.compiled_samples import (
    DATA,
    blocked,
    ended,
    failure,
    kept,
    outcomes,
    reason,
    run,
    written,
)

SUMS = "src/test/java/demo/SumsTest.java"
BROKEN = "src/test/java/demo/BrokenSetupTest.java"
NEW = "src/test/java/demo/NewTest.java"
DEBIAN = Path("/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin/2.22.3")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    names = {"src/main/java/demo/Sums.java": "Sums.java", SUMS: "SumsTest.java", BROKEN: "BrokenSetupTest.java"}
    texts = {path: (DATA / "jvm" / name).read_text() for path, name in names.items()}
    return written(tmp_path / "demo", {**texts, "pom.xml": (DATA / "jvm" / "pom.xml").read_text()})


@pytest.fixture
def reported(demo: Path) -> Path:
    """The project, and what Surefire left in it."""
    names = "SumsTest", "BrokenSetupTest"
    folder = "target/surefire-reports"
    return written(demo, {f"{folder}/TEST-demo.{name}.xml": kept(f"jvm/surefire-{name}.xml", demo) for name in names})


def test_every_test_is_called_by_its_class_s_file(reported: Path) -> None:
    results = MAVEN.read(ended(reported, ""))
    assert outcomes(results) == {
        f"{SUMS}::explodes": "failed",
        f"{SUMS}::isToDo": "failed",
        f"{SUMS}::throwsNothing": "failed",
        f"{SUMS}::adds": "passed",
        f"{SUMS}::waits": "skipped",
        f"{SUMS}::addsWrongly": "failed",
        f"{SUMS}::throwsAnother": "failed",
        f"{SUMS}::takesLong": "failed",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("addsWrongly", ("assertion", "test", SUMS, 17)),
        ("explodes", ("exception", "project", "src/main/java/demo/Sums.java", 9)),
        ("isToDo", ("not_implemented", "project", "src/main/java/demo/Sums.java", 13)),
        ("throwsNothing", ("did_not_raise", "test", None, None)),
        ("throwsAnother", ("wrong_exception", "project", "src/main/java/demo/Sums.java", 9)),
        ("takesLong", ("timeout", "test", SUMS, 42)),
    ],
)
def test_a_failure_says_why(reported: Path, name: str, *, expected: tuple[str, str, str | None, int | None]) -> None:
    assert reason(MAVEN.read(ended(reported, "")), f"{SUMS}::{name}") == expected


def test_what_a_test_printed_is_kept(reported: Path) -> None:
    assert failure(MAVEN.read(ended(reported, "")), f"{SUMS}::addsWrongly").output == "printed by the test\n"


def test_a_class_that_cannot_be_set_up_is_a_collect_error(reported: Path) -> None:
    results = MAVEN.read(ended(reported, ""))
    assert blocked(results) == {BROKEN: ("exception", None, 9, None)}
    assert results.collect_errors[0].failure.phase == "setup"


def test_what_does_not_compile_is_a_collect_error(demo: Path) -> None:
    written(demo, {NEW: ""})
    results = MAVEN.read(ended(demo, kept("jvm/maven-compile-error.txt", demo)))
    assert results.tests == ()
    assert blocked(results) == {NEW: ("collection_error", None, 13, None)}


def test_files_of_an_earlier_run_are_known(reported: Path) -> None:
    assert sorted(path.name for path in MAVEN.old_reports(reported)) == [
        "TEST-demo.BrokenSetupTest.xml",
        "TEST-demo.SumsTest.xml",
    ]


def test_a_link_in_the_folder_of_reports_is_not_followed(reported: Path) -> None:
    folder = reported / "target/surefire-reports"
    folder.rename(reported / "elsewhere")
    folder.symlink_to("../elsewhere")
    assert MAVEN.old_reports(reported) == ()


def test_a_build_that_fails_without_a_failed_test_is_a_problem(demo: Path) -> None:
    said = "[INFO] BUILD FAILURE\n[ERROR] Plugin x or one of its dependencies could not be resolved\n"
    problem = MAVEN.read(ended(demo, said)).problem
    assert problem == "Maven failed outside of the tests: Plugin x or one of its dependencies could not be resolved"


def test_what_was_never_fetched_is_told_with_the_way_to_fetch_it(demo: Path) -> None:
    said = "[ERROR] Plugin x could not be resolved: Cannot access central in offline mode. -> [Help 1]\n"
    assert MAVEN.read(ended(demo, said)).problem == (
        "Maven failed outside of the tests: Plugin x could not be resolved: Cannot access central in offline mode. "
        "Tests run without network: run `mvn test` yourself once, so that it fetches its packages"
    )


def test_a_virtual_machine_that_died_is_a_problem(reported: Path) -> None:
    said = "[ERROR] The forked VM terminated without properly saying goodbye. VM crash or System.exit called?\n"
    assert MAVEN.read(ended(reported, said)).problem == "The forked VM terminated without properly saying goodbye"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((SUMS,), "demo/SumsTest"),
        ((SUMS, "b/src/test/java/ATest.java"), "demo/SumsTest,ATest"),
        (("src/test/java/demo",), None),
        (("-Dexec=x", SUMS), None),
    ],
)
def test_files_become_classes(files: tuple[str, ...], expected: str | None) -> None:
    last = MAVEN.arguments(files, Path("/r"))[-1]
    assert last == (f"-Dtest={expected}" if expected else "-DtrimStackTrace=false")


def test_the_project_s_own_maven_comes_first(demo: Path) -> None:
    (demo / "mvnw").touch()
    found = MAVEN.find(demo)
    assert found is not None
    assert found.argv == ("./mvnw", "-B", "test")


@pytest.mark.slow
@pytest.mark.needs("mvn", "--version")
@pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="Debian's repository has no Surefire: apt-get install libsurefire-java junit4"
)
def test_a_real_run_is_read(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = "<mirror><id>debian</id><mirrorOf>*</mirrorOf><url>file:///usr/share/maven-repo</url></mirror>"
    written(demo.parent, {"settings.xml": f"<settings><mirrors>{mirror}</mirrors></settings>"})
    monkeypatch.setenv("MAVEN_ARGS", "")
    written(
        demo, {".mvn/maven.config": f"-s\n{demo.parent}/settings.xml\n-Dmaven.repo.local={demo.parent}/repository\n"}
    )
    shutil.rmtree(demo / "target", ignore_errors=True)
    results = run(MAVEN, demo)
    assert outcomes(results)[f"{SUMS}::adds"] == "passed"
    assert reason(results, f"{SUMS}::explodes") == ("exception", "project", "src/main/java/demo/Sums.java", 9)
