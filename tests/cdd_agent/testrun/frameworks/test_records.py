from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.jvm import LANGUAGE, describe_failure, find_class, has_package, is_test
from cdd_agent.testrun.frameworks.sources import Sources
from tests.cdd_agent.testrun.frameworks.compiled_samples import parse_junit, written


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    files = (
        "core/src/main/java/com/acme/Sums.java",
        "core/src/test/kotlin/com/acme/SumsTest.kt",
        "target/com/acme/Old.java",
    )
    return Sources(written(tmp_path, dict.fromkeys(files, "")), LANGUAGE)


def test_a_class_is_found_by_its_package(sources: Sources) -> None:
    assert sources.find_stem("com/acme/Sums") == "core/src/main/java/com/acme/Sums.java"
    assert sources.find_stem("com/acme/Old") is None
    assert [has_package(name, sources) for name in ("com.acme.x", "com.other", "org.acme")] == [True, False, False]


@pytest.mark.parametrize(
    ("thrown", "message", "kind"),
    [
        ("org.opentest4j.AssertionFailedError", "expected: <3> but was: <2>", "assertion"),
        ("org.junit.ComparisonFailure", "expected:<[a]> but was:<[b]>", "assertion"),
        ("org.opentest4j.AssertionFailedError", "Expected X to be thrown, but nothing was thrown.", "did_not_raise"),
        ("org.opentest4j.AssertionFailedError", "Unexpected exception type thrown ==> expected", "wrong_exception"),
        ("java.util.concurrent.TimeoutException", "m() timed out after 1 second", "timeout"),
        ("kotlin.NotImplementedError", "An operation is not implemented.", "not_implemented"),
        ("java.lang.UnsupportedOperationException", "Not yet implemented", "not_implemented"),
        ("java.lang.UnsupportedOperationException", "immutable", "exception"),
        ("java.lang.NoClassDefFoundError", "com/acme/Gone", "missing_module"),
        ("java.lang.StackOverflowError", "", "recursion"),
        ("java.lang.OutOfMemoryError", "Java heap space", "resource"),
        ("java.lang.NullPointerException", "x is null", "exception"),
    ],
)
def test_what_was_thrown_says_why(sources: Sources, thrown: str, *, message: str, kind: str) -> None:
    why = f'<error type="{thrown}" message="{message.replace("<", "")}">x</error>'
    text = f'<testcase name="t" classname="com.acme.SumsTest">{why}</testcase>'
    (case,), _ = parse_junit(text.encode())
    found = describe_failure(case, sources)
    assert (found.kind, found.exception) == (kind, thrown.rpartition(".")[2])
    assert found.missing_name == ("com.acme.Gone" if kind == "missing_module" else None)


def test_a_library_that_threw_is_to_blame_and_not_who_called_it(sources: Sources) -> None:
    trace = (
        "java.lang.IllegalStateException: no&#10;\tat org.dep.Pool.take(Pool.java:9)&#10;"
        "\tat app//com.acme.Sums.run(Sums.java:4)&#10;\tat com.acme.SumsTest.t(SumsTest.kt:7)&#10;"
    )
    (case,), _ = parse_junit(
        f"<testcase name='t'><error type='java.lang.IllegalStateException'>{trace}</error></testcase>".encode()
    )
    found = describe_failure(case, sources)
    assert (found.origin, found.path, found.line) == ("third_party", "core/src/main/java/com/acme/Sums.java", 4)


def test_tests_are_told_from_what_they_test() -> None:
    tests = (
        "src/test/resources/a.txt",
        "app/src/androidTest/java/A.kt",
        "src/integrationTest/java/B.java",
        "x/FooTest.java",
    )
    assert [is_test(path) for path in tests] == [True] * 4
    assert [is_test(path) for path in ("src/main/java/a/Latest.java", "pom.xml")] == [False] * 2


def test_a_file_names_its_class() -> None:
    assert find_class("src/test/kotlin/a/BTest.kt") == "a.BTest"
    assert find_class("src/test/java/a/-B.java") is None
    assert find_class("src/test/java/a") is None
