from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.rust import LANGUAGE
from cdd_agent.testrun.frameworks.sources import Sources
from tests.cdd_agent.testrun.frameworks.compiled_samples import written


@pytest.mark.parametrize(
    ("message", "marked", "kind", "name"),
    [
        ("error[E0425]: cannot find function `four` in this scope", "not found in this scope", "name_error", "four"),
        ("error[E0412]: cannot find type `Thing` in this scope", "not found in this scope", "name_error", "Thing"),
        ("error[E0425]: cannot find function `v` in module `crate::m`", "not found", "attribute_error", "m.v"),
        ("error[E0422]: cannot find struct, variant or union type `G` in crate `a`", "", "attribute_error", "a.G"),
        ("error: cannot find macro `MACRO` in this scope", "", "name_error", "MACRO"),
        ("error[E0432]: unresolved import `crate::h`", "no `h` in the root", "import_error", "h"),
        ("error[E0432]: unresolved import `crate::h`", "could not find `h` in the crate root", "missing_module", "h"),
        (
            "error[E0432]: unresolved import `s`",
            "use of unresolved module or unlinked crate `s`",
            "missing_module",
            "s",
        ),
        ("error[E0433]: failed to resolve: use of undeclared type `Foo`", "", "name_error", "Foo"),
        ("error[E0433]: failed to resolve: could not find `x` in `m`", "", "attribute_error", "m.x"),
        ("error[E0433]: failed to resolve: use of undeclared crate or module `x`", "", "missing_module", "x"),
        ("error[E0433]: cannot find module or crate `x` in this scope", "", "missing_module", "x"),
        (
            "error[E0599]: no method named `n` found for struct `Vec<i32>` in the current scope",
            "",
            "attribute_error",
            "Vec.n",
        ),
        ("error[E0599]: no method named `n` found for reference `&a::B`", "", "attribute_error", "a.B.n"),
        ("error[E0599]: no function or associated item named `n` found for type `i32`", "", "attribute_error", "i32.n"),
        ("error[E0599]: no variant or associated item named `R` found for enum `C`", "", "attribute_error", "C.R"),
        ("error[E0609]: no field `f` on type `Vec<i32>`", "unknown field", "attribute_error", "Vec.f"),
        ("error[E0560]: struct `P` has no field named `z`", "", "attribute_error", "P.z"),
        ("error[E0583]: file not found for module `m`", "", "missing_module", "m"),
        ("error[E0603]: function `p` is private", "", "import_error", "p"),
        ("error: expected one of `!` or `::`, found `x`", "", "syntax_error", None),
        ("error: this file contains an unclosed delimiter", "", "syntax_error", None),
        ("error[E0308]: mismatched types", "expected `i32`", "collection_error", None),
        ("error: unused variable: `x`", "", "collection_error", None),
    ],
)
def test_an_error_says_what_is_missing(
    tmp_path: Path, message: str, *, marked: str, kind: str, name: str | None
) -> None:
    written(tmp_path, {"tests/t.rs": "", "Cargo.toml": '[package]\nname = "my-crate"\n'})
    block = f"{message}\n --> tests/t.rs:7:5\n  |\n7 | code\n  | ^^^^ {marked}\n\n"
    (error,) = Sources(tmp_path, LANGUAGE).read_errors(block)
    assert (error.nodeid, error.failure.kind, error.failure.missing_name) == ("tests/t.rs", kind, name)
    assert (error.failure.line, error.failure.phase, error.failure.origin) == (7, "collect", "test")


def test_a_name_of_an_own_crate_would_be_the_project_s(tmp_path: Path) -> None:
    written(tmp_path, {"tests/t.rs": "", "Cargo.toml": '[package]\nname = "my-crate"\n'})

    def whose(path: str) -> bool | None:
        block = f"error[E0432]: unresolved import `{path}`\n --> tests/t.rs:1:5\n  |\n  | ^ no `x` in `y`\n\n"
        return Sources(tmp_path, LANGUAGE).read_errors(block)[0].failure.missing_in_project

    assert [whose("my_crate::x"), whose("crate::x"), whose("std::x")] == [True, True, False]


def test_a_real_mistake_comes_before_a_missing_name(tmp_path: Path) -> None:
    written(tmp_path, {"tests/t.rs": ""})
    text = (
        "error[E0425]: cannot find function `four` in this scope\n --> tests/t.rs:1:1\n\n"
        "error[E0308]: mismatched types\n --> tests/t.rs:2:1\n\n"
    )
    (error,) = Sources(tmp_path, LANGUAGE).read_errors(text)
    assert error.failure.exception == "E0308"
    assert "four" in error.failure.text


def test_a_warning_is_no_error(tmp_path: Path) -> None:
    assert Sources(tmp_path, LANGUAGE).read_errors("warning: unused import: `x`\n --> src/lib.rs:1:5\n\n") == ()


def test_an_error_in_another_package_is_a_third_party_s(tmp_path: Path) -> None:
    text = "error[E0425]: cannot find value `x` in this scope\n --> /root/.cargo/registry/src/i/d/src/lib.rs:1:1\n\n"
    (error,) = Sources(tmp_path, LANGUAGE).read_errors(text)
    assert (error.nodeid, error.failure.origin, error.failure.path) == ("Cargo.toml", "third_party", None)
