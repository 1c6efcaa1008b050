from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import FRAMEWORKS
from pytest_tdd_agent.missing_names import covers

BY_NAME = {each.name: each for each in FRAMEWORKS}


@pytest.mark.parametrize(
    ("framework", "files", "sources", "missing"),
    [
        ("node", {}, ("src/sum.js",), {"src/sum.js": "missing_module", "src/sum.js.add": "import_error"}),
        ("vitest", {}, ("src/sum.ts",), {"src/sum": "missing_module", "src/sum.js": "missing_module"}),
        ("jest", {}, ("src/sum/index.js",), {"src/sum": "missing_module"}),
        ("jest", {"a.test.js": "const { add } = require('./sum');\n"}, ("sum.js",), {"add": "attribute_error"}),
        ("jest", {"a.test.js": "import { add as plus } from './sum';\n"}, ("sum.js",), {"plus": "attribute_error"}),
        ("mocha", {"a.test.js": "const sum = require('./sum');\n"}, ("sum.js",), {"sum.add": "attribute_error"}),
        ("cargo", {"Cargo.toml": '[package]\nname = "my-sum"\n'}, ("src/lib.rs",), {"my_sum.add": "import_error"}),
        (
            "cargo",
            {"Cargo.toml": '[package]\nname = "my-sum"\n', "src/calc.rs": "pub struct Calc;\n"},
            ("src/calc.rs",),
            {"my_sum.calc": "missing_module", "my_sum.calc.add": "attribute_error", "Calc.push": "attribute_error"},
        ),
        (
            "nextest",
            {"core/Cargo.toml": '[package]\nname = "a"\n[lib]\nname = "b"\n'},
            ("core/src/lib.rs",),
            {"b.add": "import_error"},
        ),
        (
            "go",
            {"go.mod": "module ex.org/m\n", "calc/a_test.go": "func TestA() { Add(1) }\n"},
            ("calc/add.go",),
            {"ex.org/m/calc": "missing_module", "calc.Add": "attribute_error", "Add": "name_error"},
        ),
        (
            "maven",
            {},
            ("src/main/java/org/a/Calc.java",),
            {"Calc": "name_error", "org.a": "missing_module", "Calc.add": "attribute_error"},
        ),
        ("unittest", {}, ("src/a/b.py",), {"a.b.c": "import_error"}),
    ],
)
def test_what_tests_call_the_things_in_a_source_is_expected(
    tmp_path: Path, framework: str, *, files: Mapping[str, str], sources: tuple[str, ...], missing: Mapping[str, str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    names = BY_NAME[framework].list_names(sources, [name for name in files if "test" in name], root=tmp_path)
    for name, kind in missing.items():
        assert any(covers(expected, name, kind=kind) for expected in names), (name, names)


@pytest.mark.parametrize("framework", ["node", "cargo", "go", "maven", "dotnet", "unittest"])
def test_without_sources_nothing_is_expected(tmp_path: Path, framework: str) -> None:
    (tmp_path / "a.test.js").write_text("const { add } = require('./sum');\n")
    assert BY_NAME[framework].list_names((), ["a.test.js"], root=tmp_path) == ()


def test_what_comes_from_another_module_is_not_expected(tmp_path: Path) -> None:
    (tmp_path / "a.test.js").write_text("const { read } = require('fs');\nimport { mul } from './mul.js';\n")
    names = BY_NAME["node"].list_names(("sum.js",), ["a.test.js"], root=tmp_path)
    assert {"read", "mul"}.isdisjoint(names)
