"""What real runs of the tools printed and wrote, kept beside the tests, and runs that begin from it."""

import os
import subprocess
import tempfile
from pathlib import Path

from cdd_agent.testrun.frameworks.framework import FinishedRun, Framework, ParsedResults, XmlCase, read_junit
from pytest_tdd_agent.report import Case, Failure

DATA = Path(__file__).parent / "data" / "compiled"
PLACE = "@ROOT@"
"""What stands in kept files for the folder of the project."""


def kept(name: str, root: Path) -> str:
    """What a run printed or wrote, as if it had been in ``root``."""
    return (DATA / name).read_text(encoding="utf-8").replace(PLACE, str(root))


def written(root: Path, files: dict[str, str]) -> Path:
    """``root`` with files in it: path -> text."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def ended(root: Path, output: str, *, exit_status: int = 1, results: Path | None = None) -> FinishedRun:
    """A run in ``root`` that printed ``output``."""
    return FinishedRun(root=root, results=results or root / "no-results", output=output, exit_status=exit_status)


def parse_junit(data: bytes) -> tuple[tuple[XmlCase, ...], str | None]:
    """Read a JUnit file with this content."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "junit.xml")
        path.write_bytes(data)
        return read_junit(path)


def run(framework: Framework, root: Path, *files: str) -> ParsedResults:
    """Run a project's tests for real, and read what came of it."""
    found = framework.find(root)
    assert found is not None
    results = Path(tempfile.mkdtemp(dir=root.parent))
    process = subprocess.run(
        found.build_command(framework.arguments(files, results), is_selected=bool(files), folder=root),
        cwd=root,
        env={**os.environ, **dict(framework.variables)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    output = process.stdout.decode("utf-8", "replace")
    return framework.read(FinishedRun(root=root, results=results, output=output, exit_status=process.returncode))


def outcomes(results: ParsedResults) -> dict[str, str]:
    """Node id -> outcome."""
    assert results.problem is None, results.problem
    return {case.nodeid: case.outcome for case in results.tests}


def case(results: ParsedResults, nodeid: str) -> Case:
    """One test of a run."""
    return next(case for case in results.tests if case.nodeid == nodeid)


def failure(results: ParsedResults, nodeid: str) -> Failure:
    """Why one test failed."""
    found = case(results, nodeid).failure
    assert found is not None
    return found


def reason(results: ParsedResults, nodeid: str) -> tuple[str, str, str | None, int | None]:
    """Kind, origin and place of a test's failure."""
    found = failure(results, nodeid)
    return found.kind, found.origin, found.path, found.line


def blocked(results: ParsedResults) -> dict[str, tuple[str, str | None, int | None, bool | None]]:
    """File that does not compile -> kind, missing name, line, and whether the name would be the project's."""
    assert results.problem is None, results.problem
    found = {error.nodeid: error.failure for error in results.collect_errors}
    return {name: (why.kind, why.missing_name, why.line, why.missing_in_project) for name, why in found.items()}
