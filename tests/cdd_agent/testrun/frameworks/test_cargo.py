import shutil
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import CARGO
from tests.cdd_agent.testrun.frameworks.compiled_samples import (
    DATA,
    blocked,
    case,
    ended,
    failure,
    kept,
    outcomes,
    reason,
    run,
    written,
)

LIB = "src/lib.rs::tests::"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "rust" / "demo", tmp_path / "demo"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two packages with files of the same names, as they were when the kept output was made."""
    files = {"Cargo.toml": '[workspace]\nmembers = ["alpha", "beta-two"]\n'}
    for package, program in (("alpha", "public-6bc4a2b8ee31257f"), ("beta-two", "public-2871f930b79c9423")):
        files[f"{package}/Cargo.toml"] = f'[package]\nname = "{package}"\n'
        files[f"{package}/src/lib.rs"] = "pub mod shapes;\n/// ```\n/// assert_eq!(1, 2);\n/// ```\npub fn one() {}\n"
        files[f"{package}/src/shapes.rs"] = "mod tests {\n    #[test]\n    fn areas() {}\n}\n"
        files[f"{package}/tests/public.rs"] = "#[test]\nfn same() {}\n"
        files[f"target/debug/deps/{program}.d"] = f"/x/{program}: {package}/tests/public.rs\n"
    for package, program in (("alpha", "alpha-e62994b938fd5803"), ("beta-two", "beta_two-f507faedd8044542")):
        files[f"target/debug/deps/{program}.d"] = f"/x/{program}: {package}/src/lib.rs {package}/src/shapes.rs\n"
    return written(tmp_path, files)


def test_every_test_of_every_program_is_read(demo: Path) -> None:
    results = CARGO.read(ended(demo, kept("rust/cargo.txt", demo)))
    assert outcomes(results) == {
        "src/lib.rs::doc add": "passed",
        "src/lib.rs::doc add #2": "failed",
        LIB + "adds": "passed",
        LIB + "adds_wrongly": "failed",
        LIB + "says_no": "failed",
        LIB + "is_to_do": "failed",
        LIB + "is_not_there": "failed",
        LIB + "explodes": "failed",
        LIB + "panics": "failed",
        LIB + "panics_otherwise": "failed",
        LIB + "waits": "skipped",
        LIB + "unwraps": "failed",
        LIB + "returns_an_error": "failed",
        LIB + "deeper::nested": "passed",
        "tests/inner/mod.rs::inner::inside": "passed",
        "tests/public.rs::adds_in_public": "passed",
        "tests/public.rs::fails_in_public": "failed",
    }
    assert case(results, "src/lib.rs::doc add #2").line == 9
    assert case(results, LIB + "explodes").line == 59
    assert case(results, "tests/inner/mod.rs::inner::inside").line == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (LIB + "adds_wrongly", ("assertion", "test", "src/lib.rs", 40)),
        (LIB + "says_no", ("assertion", "test", "src/lib.rs", 45)),
        ("tests/public.rs::fails_in_public", ("assertion", "test", "tests/public.rs", 12)),
        (LIB + "is_to_do", ("not_implemented", "project", "src/lib.rs", 17)),
        (LIB + "is_not_there", ("not_implemented", "project", "src/lib.rs", 21)),
        (LIB + "explodes", ("exception", "project", "src/lib.rs", 25)),
        (LIB + "unwraps", ("exception", "test", "src/lib.rs", 82)),
        (LIB + "panics", ("did_not_raise", "test", None, None)),
        (LIB + "panics_otherwise", ("raises_match_mismatch", "project", "src/lib.rs", 25)),
        ("src/lib.rs::doc add #2", ("did_not_raise", "test", None, None)),
    ],
)
def test_a_panic_says_why(demo: Path, name: str, *, expected: tuple[str, str, str | None, int | None]) -> None:
    assert reason(CARGO.read(ended(demo, kept("rust/cargo.txt", demo))), name) == expected


def test_what_a_test_printed_is_kept_apart_from_why_it_failed(demo: Path) -> None:
    found = failure(CARGO.read(ended(demo, kept("rust/cargo.txt", demo))), LIB + "adds_wrongly")
    assert found.output == "printed by the test"
    assert found.message == "assertion `left == right` failed: one and one\n  left: 2\n right: 3"
    assert "/rustc/" not in found.text


def test_the_way_to_a_panic_is_told_by_own_calls(demo: Path) -> None:
    found = failure(CARGO.read(ended(demo, kept("rust/cargo.txt", demo))), LIB + "is_to_do")
    assert [(frame.function, frame.line) for frame in found.frames] == [
        ("demo::tests::is_to_do", 50),
        ("demo::later", 17),
    ]


def test_in_a_workspace_programs_of_the_same_name_are_told_apart(workspace: Path) -> None:
    results = CARGO.read(ended(workspace, kept("rust/cargo-workspace.txt", workspace)))
    assert sorted(outcomes(results)) == [
        "alpha/src/lib.rs::doc one",
        "alpha/src/shapes.rs::shapes::tests::areas",
        "alpha/tests/public.rs::same",
        "beta-two/src/lib.rs::doc one",
        "beta-two/src/shapes.rs::shapes::tests::areas",
        "beta-two/tests/public.rs::same",
    ]
    assert reason(results, "beta-two/src/shapes.rs::shapes::tests::areas") == (
        "exception",
        "project",
        "beta-two/src/shapes.rs",
        1,
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("imports", ("import_error", "alpha.two", 1, True)),
        ("names", ("attribute_error", "alpha.Shape", 6, True)),
        ("arguments", ("signature_mismatch", "alpha.one", 3, None)),
        ("method", ("attribute_error", "Vec.nope", 3, None)),
        ("syntax", ("syntax_error", None, 3, None)),
        ("types", ("collection_error", None, 3, None)),
    ],
)
def test_what_does_not_compile_is_a_collect_error(
    workspace: Path, name: str, *, expected: tuple[str, str | None, int | None, bool | None]
) -> None:
    results = CARGO.read(ended(workspace, kept(f"rust/cargo-{name}.txt", workspace), exit_status=101))
    assert results.tests == ()
    assert blocked(results) == {"alpha/tests/public.rs": expected}


def test_a_line_that_a_test_printed_is_no_result(demo: Path) -> None:
    fake = "test tests::faked ... ok\n     Running tests/faked.rs (target/debug/deps/faked-0)\n\nrunning 1 test"
    output = kept("rust/cargo.txt", demo).replace("printed by the test", fake)
    results = CARGO.read(ended(demo, output))
    assert len(results.tests) == 17
    assert results.problem is None


def test_a_program_that_dies_is_a_problem(demo: Path) -> None:
    output = kept("rust/cargo.txt", demo)
    cut = output[: output.index("test tests::explodes")] + (
        "error: test failed, to rerun pass `--lib`\n\nCaused by:\n"
        "  process didn't exit successfully: `/x/demo-8` (signal: 6, SIGABRT: process abort signal)\n"
    )
    problem = CARGO.read(ended(demo, cut)).problem or ""
    assert problem.startswith("the tests of src/lib.rs ended early")
    assert "SIGABRT" in problem


def test_output_that_was_cut_off_is_a_problem(demo: Path) -> None:
    output = kept("rust/cargo.txt", demo).replace("test tests::adds ... ok\n", "")
    assert CARGO.read(ended(demo, output)).problem == "src/lib.rs started 12 tests, but 11 results can be read"


def test_a_package_that_cannot_be_had_is_a_problem(demo: Path) -> None:
    """As cargo 1.95 says it."""
    said = "error: no matching package named `serde` found\nlocation searched: crates.io index\n"
    assert CARGO.read(ended(demo, said, exit_status=101)).problem == (
        "cargo built nothing: no matching package named `serde` found location searched: crates.io index"
    )


def test_a_program_with_its_own_main_has_one_result(demo: Path) -> None:
    header = "     Running tests/own.rs (target/debug/deps/own-1)\n"
    assert outcomes(CARGO.read(ended(demo, header + "all is well\n", exit_status=0))) == {
        "tests/own.rs::main": "passed"
    }
    failed = header + "oh no\nerror: test failed, to rerun pass `--test own`\n"
    assert outcomes(CARGO.read(ended(demo, failed))) == {"tests/own.rs::main": "failed"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), ()),
        (("tests/public.rs",), ("--test=public",)),
        (("a/tests/x/main.rs", "tests/y.rs"), ("--test=x", "--test=y")),
        (("src/lib.rs",), ()),
        (("src/lib.rs", "tests/public.rs"), ()),
        (("tests",), ("--test=*",)),
        (("--release", "-p", "tests/-x.rs"), ()),
    ],
)
def test_files_select_their_programs(files: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert CARGO.arguments(files, Path("/r")) == ("--no-fail-fast", *expected)


def test_a_manifest_says_that_there_are_tests(tmp_path: Path) -> None:
    assert CARGO.find(tmp_path) is None
    (tmp_path / "Cargo.toml").write_text("[workspace]\nmembers = ['a']\n")
    found = CARGO.find(tmp_path)
    assert found is not None
    assert found.argv == ("cargo", "test", "--workspace")


def test_tests_are_told_from_what_they_test() -> None:
    assert [
        CARGO.is_test(path) for path in ("tests/a.rs", "x/tests/b/mod.rs", "src/tests.rs", ".cargo/config.toml")
    ] == [True] * 4
    assert [CARGO.is_test(path) for path in ("src/lib.rs", "Cargo.toml", "src/attests/a.rs")] == [False] * 3


@pytest.mark.slow
@pytest.mark.needs("cargo", "--version")
def test_a_real_run_is_read(tmp_path: Path) -> None:
    root = written(
        tmp_path / "tiny",
        {
            "Cargo.toml": '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "pub fn later() { todo!() }\n#[test]\nfn one() {}\n#[test]\nfn two() { later() }\n",
        },
    )
    results = run(CARGO, root, "src/lib.rs")
    assert outcomes(results) == {"src/lib.rs::one": "passed", "src/lib.rs::two": "failed"}
    assert reason(results, "src/lib.rs::two") == ("not_implemented", "project", "src/lib.rs", 1)
    (root / "src/lib.rs").write_text("#[test]\nfn one() {\n    assert_eq!(crate::multiply(2), 4);\n}\n")
    assert blocked(run(CARGO, root)) == {"src/lib.rs": ("attribute_error", "multiply", 3, True)}
