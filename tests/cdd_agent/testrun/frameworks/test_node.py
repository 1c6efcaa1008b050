import json
import subprocess
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import NODE
from tests.cdd_agent.testrun.frameworks.javascript_samples import copied, ended, kept, outcomes, run, unloaded, why

pytestmark = pytest.mark.needs("node", "--version", HOME="/nonexistent")


def scripted(folder: Path, script: str = "node --test", **files: str) -> Path:
    """A project with a script, and files whose names end in ``.test.mjs``."""
    (folder / "project").mkdir()
    (folder / "project" / "package.json").write_text(json.dumps({"scripts": {"test": script}}))
    for name, text in files.items():
        (folder / "project" / f"{name}.test.mjs").write_text("import { test } from 'node:test';\n" + text)
    return folder / "project"


@pytest.mark.slow
def test_node_s_junit_report_names_no_file_which_is_why_it_is_not_read(tmp_path: Path) -> None:
    root = scripted(tmp_path, a="test('one', () => {});")
    command = ["node", "--test", "--test-reporter=junit"]
    report = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    assert '<testcase name="one"' in report
    if version.startswith("v20."):
        assert "a.test.mjs" not in report


def test_a_file_is_run_alone(tmp_path: Path) -> None:
    root = copied("node", tmp_path)
    found = NODE.read(run(NODE, root, "test/missing.test.js"))
    assert (found.tests, unloaded(found)) == ((), {"test/missing.test.js": "missing_module test src/nowhere.js"})


def test_a_file_that_is_left_by_process_exit_is_a_problem(tmp_path: Path) -> None:
    root = copied("node", tmp_path)
    process = run(NODE, root, "exits/exit.js")
    assert process.exit_status == 0
    assert NODE.read(process).problem == "node --test ended early in exits/exit.js (exit status 0)"


def test_only_skip_and_todo_are_told_apart(tmp_path: Path) -> None:
    text = (
        "test.only('o', () => {}); test('p', () => {}); test.skip('s', () => {}); test('t', {todo: 'later'}, () => x);"
    )
    found = NODE.read(run(NODE, scripted(tmp_path, a=text)))
    got = outcomes(found)
    assert (got["a.test.mjs::p"], got["a.test.mjs::s"], got["a.test.mjs::t"]) == ("passed", "skipped", "xfailed")


def test_a_script_without_tests_of_node_s_is_one_test(tmp_path: Path) -> None:
    root = scripted(tmp_path)
    (root / "plain.test.mjs").write_text("import assert from 'node:assert'; assert.ok(true);")
    assert outcomes(NODE.read(run(NODE, root))) == {"plain.test.mjs": "passed"}


def test_what_cannot_be_written_as_json_is_no_trouble(tmp_path: Path) -> None:
    text = (
        "import assert from 'node:assert'; const round = {n: 1n}; round.self = round;"
        "test('big', () => { assert.deepEqual(round, 2n); }); test('null', () => { throw null; });"
    )
    found = NODE.read(run(NODE, scripted(tmp_path, a=text)))
    assert found.problem is None
    assert outcomes(found) == {
        "a.test.mjs::big": "failed: assertion test",
        "a.test.mjs::null": "failed: exception test",
    }


def test_what_the_tests_print_is_no_event(tmp_path: Path) -> None:
    text = """console.log('{"type":"end"}'); test('one', () => { console.log('<testsuites>'); });"""
    found = NODE.read(run(NODE, scripted(tmp_path, a=text)))
    assert (found.problem, outcomes(found)) == (None, {"a.test.mjs::one": "passed"})


@pytest.mark.slow
def test_a_file_that_looks_like_an_option_is_a_file(tmp_path: Path) -> None:
    root = scripted(tmp_path, **{"--version": "test('runs', () => {});"})
    assert outcomes(NODE.read(run(NODE, root, "--version.test.mjs"))) == {"--version.test.mjs::runs": "passed"}


@pytest.mark.slow
def test_the_files_of_the_script_are_run_unless_others_are_asked_for(tmp_path: Path) -> None:
    root = scripted(tmp_path, "NODE_ENV=test node --no-warnings --test 'b*.test.mjs'", a="test('a');", b="test('b');")
    assert outcomes(NODE.read(run(NODE, root))) == {"b.test.mjs::b": "passed"}
    assert outcomes(NODE.read(run(NODE, root, "a.test.mjs"))) == {"a.test.mjs::a": "passed"}


def test_no_word_of_a_script_is_run_by_the_shell(tmp_path: Path) -> None:
    root = scripted(tmp_path, "node --test '$(touch stolen).mjs' 'a*.test.mjs'", a="test('a');")
    run(NODE, root)
    assert not (root / "stolen").exists()


def test_where_and_why_a_test_failed_is_told(tmp_path: Path) -> None:
    root = copied("node", tmp_path)
    found = NODE.read(ended(root, files={"report.json": kept(root, "node.jsonl")}))
    deep = why(found, "test/calc.test.js::shelf > reads a property of undefined")
    assert (deep.exception, deep.path, deep.line, deep.phase) == ("TypeError", "src/calc.js", 4, "call")
    assert why(found, "test/calc.test.js::cleaned > runs").phase == "teardown"
    assert why(found, "test/calc.test.js::prepared > never runs").phase == "setup"


def test_a_run_that_was_cut_off_is_a_problem(tmp_path: Path) -> None:
    root = copied("node", tmp_path)
    lines = kept(root, "node.jsonl").splitlines(keepends=True)
    found = NODE.read(ended(root, files={"report.json": "".join(lines[:-1])}))
    assert found.problem == "node --test ended early (exit status 1)"
    found = NODE.read(ended(root, files={"report.json": lines[0][:20]}))
    assert found.problem == "node --test ended early (exit status 1)"
    found = NODE.read(ended(root, files={"report.json": "{}\n"}))
    assert (found.problem or "").startswith("The results that node --test wrote cannot be read: ")
    found = NODE.read(ended(root, files={"report.json": ""}, output="out of memory", exit_status=134))
    assert found.problem == "node --test ended with status 134 and wrote no results:\nout of memory"


def test_a_test_that_begins_and_never_ends_is_a_problem(tmp_path: Path) -> None:
    begun = {"event": "begun", "titles": ["a"], "file": str(tmp_path / "a.test.js")}
    lines = f'{json.dumps(begun)}\n{{"event":"over"}}\n'
    found = NODE.read(ended(tmp_path, exit_status=0, files={"report.json": lines}))
    assert found.problem == "node --test ended early in a.test.js::a (exit status 0)"
