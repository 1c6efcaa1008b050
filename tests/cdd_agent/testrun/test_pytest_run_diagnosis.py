from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun import pytest_run
from pytest_tdd_agent.report import CollectError, Failure
from tests.cdd_agent.evidence.requests import EMPTY

ARGUMENTS = """\
ERROR: usage: __main__.py [options] [file_or_dir] [file_or_dir] [...]
__main__.py: error: unrecognized arguments: --cov=src --cov-report=term
  config source: via addopts config
  inifile: /p/pytest.ini
  rootdir: /p
"""
WARNING = """\
ERROR: while parsing the following warning configuration:

  nosuch::x

This error occurred:

invalid action: 'nosuch'

"""
CONFTEST = """\
ImportError while loading conftest '/p/conftest.py'.
conftest.py:1: in <module>
    import nosuch
E   ModuleNotFoundError: No module named 'nosuch'
"""


@pytest.mark.parametrize(
    ("output", "reason", "what_to_do"),
    [
        (ARGUMENTS, "unrecognized arguments: --cov=src --cov-report=term", "-m pip install PLUGIN"),
        ("ERROR: Error importing plugin \"x\": No module named 'x'\n", 'Error importing plugin "x"', "PLUGIN"),
        (
            "ERROR: Missing required plugins: a, b>=2\n",
            "Missing required plugins: a, b>=2",
            "/py -m pip install a 'b>=2'",
        ),
        (
            "ERROR: /p/x.ini: 'minversion' requires pytest-9.0, actual pytest-8.0'",
            "/p/x.ini: 'minversion'",
            "'pytest>=9.0'",
        ),
        (WARNING, "while parsing the following warning configuration: nosuch::x This error", "correct pytest's"),
        (CONFTEST, "ImportError while loading conftest '/p/conftest.py': ModuleNotFoundError: No", "fix that file"),
    ],
)
def test_a_refusal_is_one_line_with_what_to_do(output: str, reason: str, *, what_to_do: str) -> None:
    found = pytest_run.find_refusal(output)
    assert found is not None
    assert found.startswith(reason)
    assert what_to_do in pytest_run.suggest_fix(found, Path("/py"))


def test_an_environment_of_uv_is_told_what_uv_takes(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.9.0\n")
    python = tmp_path / "bin/python"
    assert pytest_run.suggest_fix("Missing required plugins: a", python) == f"uv pip install --python {python} a"


def test_only_what_an_absent_plugin_can_cause_counts_as_that() -> None:
    found = [pytest_run.find_refusal(output) or "" for output in (ARGUMENTS, WARNING, CONFTEST)]
    assert [pytest_run.is_absent_plugin(reason) for reason in found] == [True, False, False]
    assert pytest_run.find_refusal("1 passed in 0.1s\n") is None


def test_an_end_by_a_signal_has_its_name() -> None:
    assert pytest_run.describe_exit(-11) == "pytest was ended by SIGSEGV"
    assert pytest_run.describe_exit(-99) == "pytest was ended by signal 99"
    assert pytest_run.describe_exit(3) == "pytest ended with status 3"


def test_a_module_that_is_newer_than_the_links_of_an_installation_is_named(tmp_path: Path) -> None:
    sources, links = tmp_path / "src" / "sums", tmp_path / "build" / "links" / "sums"
    for folder in (sources, links, sources / "inner"):
        folder.mkdir(parents=True)
    for name in ("__init__.py", "new.py", "old.py", "inner/__init__.py"):
        (sources / name).touch()
    for name in ("__init__.py", "old.py"):
        (links / name).symlink_to(sources / name)
    (tmp_path / "linked").symlink_to(sources)

    def explain(name: str, *, folder: Path = links, kind: str = "missing_module") -> str | None:
        failure = Failure("collect", kind, "test", "ImportError", "", missing_name=name)
        report = replace(EMPTY, collect_errors=(CollectError("tests/test_sums.py", failure),))
        return pytest_run.explain_outdated_links(report, {"sums": str(folder / "__init__.py")}, root=tmp_path)

    assert explain("sums.new") == (
        "sums.new cannot be imported, although there is src/sums/new.py: sums is imported from links in "
        "build/links/sums, which an installation made before that file."
    )
    assert "src/sums/inner/__init__.py" in (explain("sums.inner", kind="import_error") or "")
    others = [explain(name) for name in ("sums.old", "sums.absent", "sums.old.inner", "sums", "new")]
    others += [explain("sums.new", kind="syntax_error")]
    others += [explain("sums.new", folder=folder) for folder in (sources, tmp_path / "linked")]
    assert others == [None] * 8
