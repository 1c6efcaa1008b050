"""Every tool's project, by what a real run of it wrote, and by real runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import JEST, MOCHA, NODE, VITEST
from cdd_agent.testrun.frameworks.framework import Framework
from tests.cdd_agent.testrun.frameworks.javascript_samples import (
    BROKEN,
    copied,
    ended,
    expected,
    install,
    kept,
    link,
    outcomes,
    run,
    unloaded,
    why,
)

FILES = {"vitest": "vitest.json", "jest": "jest.json", "mocha": "mocha.jsonl", "node": "node.jsonl"}
NESTED = "test/calc.test.js::shelf > deeper > is nested"


@pytest.mark.parametrize("framework", [VITEST, JEST, MOCHA, NODE], ids=lambda it: it.name)
def test_what_a_real_run_wrote_is_read(framework: Framework, *, tmp_path: Path) -> None:
    root = copied(framework.name, tmp_path)
    found = framework.read(ended(root, files={"report.json": kept(root, FILES[framework.name])}))
    assert found.problem is None
    assert outcomes(found) == expected(framework.name, "tests")
    if framework is not MOCHA:  # which runs nothing then
        assert unloaded(found) == expected(framework.name, "unloaded")


@pytest.mark.slow
@pytest.mark.needs("node", "--version", HOME="/nonexistent")
def test_node_runs_its_project(tmp_path: Path) -> None:
    root = copied("node", tmp_path)
    found = NODE.read(run(NODE, root))
    assert found.problem is None
    assert outcomes(found) == expected("node", "tests")
    assert unloaded(found) == expected("node", "unloaded")


@pytest.mark.slow
@pytest.mark.parametrize("framework", [VITEST, JEST, MOCHA], ids=lambda it: it.name)
def test_an_installed_tool_runs_its_project(framework: Framework, *, tmp_path: Path) -> None:
    root = _ready(framework, tmp_path)
    found = framework.read(run(framework, root))
    assert found.problem is None
    assert outcomes(found) == expected(framework.name, "tests")
    if framework is not MOCHA:
        assert unloaded(found) == expected(framework.name, "unloaded")


@pytest.mark.slow
@pytest.mark.parametrize("framework", [VITEST, JEST, MOCHA], ids=lambda it: it.name)
def test_an_installed_tool_runs_single_files(framework: Framework, *, tmp_path: Path) -> None:
    root = _ready(framework, tmp_path)
    found = outcomes(framework.read(run(framework, root, "test/calc.test.js")))
    assert found[NESTED] == "passed"
    assert {name.partition("::")[0] for name in found} == {"test/calc.test.js"}


@pytest.mark.slow
def test_mocha_reports_hooks_and_reruns_also_in_parallel(tmp_path: Path) -> None:
    root = _ready(MOCHA, tmp_path)
    sources = {
        "hooks": "before(() => { throw new Error('no'); }); it('never runs', () => {});",
        "late": "describe('a b', () => { after(() => { throw null; }); it('runs', () => {}); });",
        "again": "let n = 0; it('again', function () { this.retries(2); if (n++ < 1) throw new Error('no'); });",
    }
    for name, source in sources.items():
        (root / "test" / f"{name}.test.js").write_text(source)
    alone = MOCHA.read(run(MOCHA, root, "test/hooks.test.js"))
    assert outcomes(alone) == {"test/hooks.test.js::never runs": "error: exception test"}
    assert why(alone, "test/hooks.test.js::never runs").phase == "setup"
    parallel = replace(MOCHA, variables=(*MOCHA.variables, ("MOCHA_OPTIONS", "--parallel")))
    others = parallel.read(run(parallel, root, "test/late.test.js", "test/again.test.js"))
    assert outcomes(others) == {
        "test/late.test.js::a b > runs": "error: exception test",
        "test/again.test.js::again": "passed",
    }
    assert why(others, "test/late.test.js::a b > runs").phase == "teardown"
    assert [case.reruns for case in others.tests if case.outcome == "passed"] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("framework", [VITEST, JEST, MOCHA], ids=lambda it: it.name)
def test_a_file_that_looks_like_an_option_is_a_file(framework: Framework, *, tmp_path: Path) -> None:
    root = _ready(framework, tmp_path)
    head = "import { test } from 'vitest';" if framework is VITEST else "globalThis.test ??= globalThis.it;"
    (root / "--version.test.js").write_text(f'{head} test("runs", () => {{}});')
    assert outcomes(framework.read(run(framework, root, "--version.test.js")))["--version.test.js::runs"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_mocha_says_which_file_it_could_not_load(name: str, *, tmp_path: Path) -> None:
    root = _ready(MOCHA, tmp_path)
    file = f"broken/{name}.test.js"
    found = MOCHA.read(run(MOCHA, root, file))
    assert (found.problem, found.tests) == (None, ())
    assert unloaded(found) == {file: expected("mocha", "unloaded")[file]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "file"), [(JEST, "exit.test.js"), (MOCHA, "exits.test.js")], ids=["jest", "mocha"]
)
def test_a_run_that_is_left_by_process_exit_has_no_results(framework: Framework, file: str, *, tmp_path: Path) -> None:
    root = _ready(framework, tmp_path)
    (root / "test" / file).write_text(
        'it("one", () => {}); it("two", () => { process.exit(0); }); it("three", () => {});'
    )
    process = run(framework, root, f"test/{file}")
    assert process.exit_status == 0
    assert (framework.read(process).problem or "").startswith(
        f"{framework.name} ended with status 0 and wrote no results"
    )


@pytest.mark.slow
def test_vitest_writes_where_it_is_told_whatever_its_configuration_says(tmp_path: Path) -> None:
    root = _ready(VITEST, tmp_path)
    (root / "vitest.config.js").write_text(
        "export default { test: { reporters: [['json', {outputFile: './old.json'}]], outputFile: {json: './old.json'}, "
        "bail: 1, coverage: {enabled: true} } };"
    )
    assert outcomes(VITEST.read(run(VITEST, root, "test/calc.test.js")))[NESTED] == "passed"
    assert not (root / "old.json").exists()


def _ready(framework: Framework, folder: Path) -> Path:
    """The project for a tool that is installed from npm, once for all."""
    problem = install()
    if problem:
        pytest.skip(problem)
    root = copied(framework.name, folder)
    link(root)
    return root
