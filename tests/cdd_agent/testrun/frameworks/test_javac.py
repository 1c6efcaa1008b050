from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.jvm import LANGUAGE
from cdd_agent.testrun.frameworks.sources import Sources
from tests.cdd_agent.testrun.frameworks.compiled_samples import written

SYMBOL = "cannot find symbol\n  symbol:"
TEST = "src/test/java/demo/NewTest.java"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return written(tmp_path, {TEST: "", "src/main/java/demo/Sums.java": "", "src/test/kotlin/demo/ATest.kt": ""})


@pytest.mark.parametrize(
    ("said", "kind", "name"),
    [
        ("package demo.nothere does not exist", "missing_module", "demo.nothere"),
        (f"{SYMBOL}  method multiply(int,int)\n  location: class demo.Sums", "attribute_error", "demo.Sums.multiply"),
        ("cannot find symbol\n  symbol:   class Shapes\n  location: class demo.NewTest", "name_error", "Shapes"),
        ("cannot find symbol\n  symbol: class Gone\n  location: package demo", "import_error", "demo.Gone"),
        ("cannot find symbol\n  symbol:   variable missing\n  location: class NewTest", "name_error", "missing"),
        (f"{SYMBOL}  method go()\n  location: variable c of type demo.Sums", "attribute_error", "demo.Sums.go"),
        ("method add in class demo.Sums cannot be applied to given types;", "signature_mismatch", "demo.Sums.add"),
        (
            "constructor Sums in class demo.Sums cannot be applied to given types;",
            "signature_mismatch",
            "demo.Sums.Sums",
        ),
        ("no suitable method found for add(int)", "signature_mismatch", "add"),
        ("';' expected", "syntax_error", None),
        ("illegal start of type", "syntax_error", None),
        ("reached end of file while parsing", "syntax_error", None),
        ("incompatible types: int cannot be converted to java.lang.String", "collection_error", None),
    ],
)
def test_an_error_says_what_is_missing(root: Path, said: str, *, kind: str, name: str | None) -> None:
    first, _, rest = said.partition("\n")
    shown = f"[ERROR] {root}/{TEST}:[10,13] {first}\n{rest}\n[INFO] 1 error\n"
    (error,) = Sources(root, LANGUAGE).read_errors(shown)
    assert (error.nodeid, error.failure.line, error.failure.origin) == (TEST, 10, "test")
    assert (error.failure.kind, error.failure.missing_name) == (kind, name)
    plain = f":compileTestJava{root}/{TEST}:10: error: {first}\n        code;\n            ^\n{rest}\n1 error\n"
    (error,) = Sources(root, LANGUAGE).read_errors(plain)
    assert (error.nodeid, error.failure.kind, error.failure.missing_name) == (TEST, kind, name)


@pytest.mark.parametrize(
    "line",
    [
        "e: file://{root}/src/test/kotlin/demo/ATest.kt:12:5 Unresolved reference 'multiply'.",
        "e: {root}/src/test/kotlin/demo/ATest.kt: (12, 5): Unresolved reference: multiply",
        "[ERROR] {root}/src/test/kotlin/demo/ATest.kt:[12,5] Unresolved reference: multiply",
    ],
)
def test_kotlin_s_compilers_are_understood(root: Path, line: str) -> None:
    """Lines as Kotlin's documentation shows them, of both compilers."""
    (error,) = Sources(root, LANGUAGE).read_errors(line.format(root=root) + "\n")
    assert (error.nodeid, error.failure.line) == ("src/test/kotlin/demo/ATest.kt", 12)
    assert (error.failure.kind, error.failure.missing_name) == ("name_error", "multiply")


def test_a_package_is_the_project_s_by_where_it_would_be(root: Path) -> None:
    def whose(package: str) -> bool | None:
        said = f"[ERROR] {root}/{TEST}:[1,1] package {package} does not exist\n"
        return Sources(root, LANGUAGE).read_errors(said)[0].failure.missing_in_project

    assert (whose("demo.nothere"), whose("org.mockito"), whose("java.demo")) == (True, False, False)


def test_what_maven_says_twice_is_said_once(root: Path) -> None:
    said = f"[ERROR] {root}/{TEST}:[1,1] package demo.x does not exist\n"
    (error,) = Sources(root, LANGUAGE).read_errors(said + "[INFO] 1 error\n" + said)
    assert error.failure.text == "package demo.x does not exist"
