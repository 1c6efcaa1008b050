import marshal
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.pytest_run import PytestSuite
from tests.cdd_agent.testrun.conftest import outcomes
from tests.fakes.cases import soak_after
from tests.fakes.lean import lean_python

THREE = "from code_here import add\ndef test_one(): assert add(1, 2) == 3\n"


def write(path: Path, text: str, *, at_s: float = 1_700_000_000) -> None:
    """Write a file in the second that is always the same one."""
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def plain_pytest(folder: Path) -> int:
    variables = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True).returncode


@pytest.mark.slow
def test_an_edit_within_the_same_second_is_judged_as_it_is_now_where_pytest_runs_the_old_code(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "test_a.py").write_text(THREE)
    code = tmp_path / "code_here.py"
    write(code, "def add(a, b): return a + b\n")
    assert plain_pytest(tmp_path) == 0
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}
    write(code, "def add(a, b): return a - b\n", at_s=1_700_000_000.9)
    assert plain_pytest(tmp_path) == 0, "this is the fault: the old code ran"
    assert outcomes(suite.run()) == {"test_a.py::test_one": "failed"}


@pytest.mark.slow
def test_an_edit_of_a_test_within_the_same_second_is_judged_as_it_is_now(tmp_path: Path, suite: PytestSuite) -> None:
    for number, expected in ((3, "passed"), (4, "failed")):
        write(tmp_path / "test_a.py", f"def test_one(): assert 1 + 2 == {number}\n")
        assert outcomes(suite.run()) == {"test_a.py::test_one": expected}


@pytest.mark.slow
def test_code_outside_the_project_and_by_another_name_of_a_folder_is_the_present_one(
    tmp_path: Path, suite: PytestSuite, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, library = tmp_path / "project", tmp_path / "library"
    project.mkdir()
    library.mkdir()
    (tmp_path / "linked").symlink_to(library)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "linked"))
    (project / "test_a.py").write_text(THREE)
    for operator, expected in (("-", "failed"), ("+", "passed")):
        write(library / "code_here.py", f"def add(a, b): return a {operator} b\n")
        assert outcomes(replace(suite, root=project).run()) == {"test_a.py::test_one": expected}


@pytest.mark.slow
def test_a_module_that_a_test_writes_twice_or_compiles_itself_is_the_present_one(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "test_a.py").write_text(
        "import importlib, os, py_compile, subprocess, sys\n"
        "def write(text):\n"
        "    open('made.py', 'w').write(text)\n"
        "    os.utime('made.py', (1, 1))\n"
        "def test_one():\n"
        "    write('N = 1')\n"
        "    import made\n"
        "    write('N = 2')\n"
        "    assert importlib.reload(made).N == 2\n"
        "    assert subprocess.check_output([sys.executable, '-c', 'import made; print(made.N)']) == b'2\\n'\n"
        "    write('N = 3')\n"
        "    py_compile.compile('made.py')\n"
    )
    (tmp_path / "made.py").write_text("N = 1")
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}
    write(tmp_path / "made.py", "N = 4", at_s=1)
    (tmp_path / "test_a.py").write_text("from made import N\ndef test_one(): assert N == 4\n")
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}


@pytest.mark.parametrize("workers", ["", pytest.param("-n1", marks=pytest.mark.slow)])
def test_what_is_imported_is_compiled_once_and_told_from_its_source_by_content(
    tmp_path: Path, suite: PytestSuite, *, workers: str, request: pytest.FixtureRequest
) -> None:
    if workers:
        suite = replace(suite, interpreter=request.getfixturevalue("with_xdist"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {workers}\n")
    (tmp_path / "code_here.py").write_text("def add(a, b): return a + b\n")
    (tmp_path / "test_a.py").write_text(THREE)
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}
    assert suite.bytecode is not None
    (kept,) = (suite.bytecode / tmp_path.relative_to("/")).rglob("code_here.*.pyc")
    assert kept.read_bytes()[4:8] == b"\x03\0\0\0"
    before = kept.stat().st_mtime_ns
    suite.run()
    assert kept.stat().st_mtime_ns == before
    assert not list(suite.bytecode.rglob("tdd_agent_*")), "the plugin has a new name each time"
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.slow
def test_a_program_that_a_test_starts_reads_installed_bytecode_and_writes_none(
    tmp_path: Path, suite: PytestSuite
) -> None:
    (tmp_path / "test_a.py").write_text(
        "import subprocess, sys\n"
        "def test_one():\n"
        "    asks = 'import sys; print(sys.pycache_prefix, sys.dont_write_bytecode)'\n"
        "    assert subprocess.check_output([sys.executable, '-c', asks]) == b'None True\\n'\n"
    )
    assert outcomes(suite.run()) == {"test_a.py::test_one": "passed"}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["", pytest.param("-n1", marks=pytest.mark.slow)])
def test_without_a_cache_no_compiled_code_of_the_project_is_believed(
    tmp_path: Path, suite: PytestSuite, *, workers: str, request: pytest.FixtureRequest
) -> None:
    if workers:
        suite = replace(suite, interpreter=request.getfixturevalue("with_xdist"))
    write(tmp_path / "code_here.py", "N = 1\n", at_s=1)
    write(tmp_path / "test_a.py", "import code_here\ndef test_one(): assert (code_here.N, 1) == (1, 1)\n", at_s=1)
    assert plain_pytest(tmp_path) == 0
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {workers}\n")
    assert {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")} >= {"code_here", "test_a"}

    write(tmp_path / "code_here.py", "N = 2\n", at_s=1)
    anew = replace(suite, bytecode=None)
    assert outcomes(anew.run()) == {"test_a.py::test_one": "failed"}

    write(tmp_path / "test_a.py", "import code_here\ndef test_one(): assert (code_here.N, 1) == (2, 1)\n", at_s=1)
    assert outcomes(anew.run()) == {"test_a.py::test_one": "passed"}


@pytest.mark.slow
def test_installed_plugins_are_not_compiled_again_for_each_run(tmp_path: Path, suite: PytestSuite) -> None:
    python = lean_python(tmp_path / "lean")
    plugin = next((tmp_path / "lean" / "lib").glob("python*/site-packages")) / "pytest_numbers.py"
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_numbers\n")
    (project / "test_a.py").write_text("import pytest_numbers\ndef test_one(): assert pytest_numbers.N == 2\n")
    plugin.write_text("N = 1")
    subprocess.run([python, "-m", "pytest", "-q"], cwd=project, env={"PATH": os.environ["PATH"]}, check=False)
    (compiled,) = plugin.parent.rglob("pytest_numbers.*.pyc")
    # It can be told from its source now: a compiler would not have made it so.
    compiled.write_bytes(compiled.read_bytes()[:16] + marshal.dumps(compile("N = 2", str(plugin), "exec")))
    interpreter = replace(suite.interpreter, path=python)
    run = replace(suite, root=project, interpreter=interpreter).without_cache().run()
    assert outcomes(run) == {"test_a.py::test_one": "passed"}


@soak_after(1, "plugin", ["", "import cdd_agent.testrun.inside.run_plugin"])
def test_compiled_code_that_a_full_disk_cuts_off_is_not_kept_where_python_keeps_it(tmp_path: Path, plugin: str) -> None:
    (tmp_path / "code_here.py").write_text("".join(f"def f{n}(): return {n}\n" for n in range(50)))
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (500, -1)); import code_here"
    variables = {"PYTHONPATH": str(Path(__file__).parents[4]), "CDD_BYTECODE": str(tmp_path / "cache")}
    variables["PYTHONPYCACHEPREFIX"] = variables["CDD_BYTECODE"]
    codes = [
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=variables, check=False, capture_output=True)
        for code in (f"{plugin}\n{full}", "import code_here")
    ]
    assert codes[0].returncode == 0, codes[0].stderr
    assert (codes[1].returncode == 0) == bool(plugin), codes[1].stderr
