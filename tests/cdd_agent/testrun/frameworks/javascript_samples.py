"""Small projects of each tool, run for real, and what such runs wrote, which is kept beside them.

``python -m tests.cdd_agent.testrun.frameworks.javascript_samples`` runs them and writes it anew.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cdd_agent.storage import exclusive_lock
from cdd_agent.testrun.frameworks.catalog import JEST, MOCHA, NODE, VITEST
from cdd_agent.testrun.frameworks.framework import FinishedRun, Framework, ParsedResults
from pytest_tdd_agent.report import Case, Failure
from tests.fakes.tools import why_not

NONE: Mapping[str, str] = {}
DATA = Path(__file__).parent / "data" / "javascript"
KEPT = DATA / "kept"
PLACE = "/project"
"""What stands in kept files for the folder of the project."""
INSTALLED = Path(__file__).parents[4] / ".venv" / "peers" / "javascript"
"""Where tools are installed once, outside the projects."""
REQUIREMENTS = ("vitest@3.2.7", "jest@30.5.2", "mocha@11.8.0")
BROKEN = ("describe", "export", "missing", "syntax", "third", "top")
"""Files of the project for mocha that cannot be loaded, each of which ends a run."""


def copied(tool: str, folder: Path) -> Path:
    """The project for a tool, in a folder of its own."""
    return Path(shutil.copytree(DATA / tool, folder / tool))


def kept(root: Path, name: str) -> str:
    """What a run wrote, as if it had been in ``root``."""
    return (KEPT / name).read_text(encoding="utf-8").replace(PLACE, str(root))


def ended(root: Path, *, exit_status: int = 1, output: str = "", files: Mapping[str, str] = NONE) -> FinishedRun:
    """A run that ended and wrote ``files``: names and texts."""
    results = Path(tempfile.mkdtemp(dir=root.parent))
    for name, text in files.items():
        Path(results, name).write_text(text, encoding="utf-8")
    return FinishedRun(root=root, results=results, output=output, exit_status=exit_status)


def run(framework: Framework, root: Path, *files: str, path: str = "") -> FinishedRun:
    """Run a project's tests for real, in a bare environment."""
    found = framework.find(root)
    assert found is not None
    results = Path(tempfile.mkdtemp(dir=root.parent))
    environment = {"PATH": path + os.environ["PATH"], "HOME": str(results), **dict(framework.variables)}
    process = subprocess.run(
        found.build_command(framework.arguments(files, results), is_selected=bool(files), folder=root),
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    output = process.stdout.decode("utf-8", errors="replace")
    return FinishedRun(root=root, results=results, output=output, exit_status=process.returncode)


def expected(tool: str, what: str) -> dict[str, str]:
    """What a tool's project comes to: ``tests`` as ``outcomes``, or ``unloaded``."""
    told: dict[str, dict[str, dict[str, str]]] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
    return told[tool][what]


def outcomes(results: ParsedResults) -> dict[str, str]:
    """Node id -> outcome, and for a failure also kind and what was missing."""
    return {case.nodeid: _shown(case) for case in results.tests}


def unloaded(results: ParsedResults) -> dict[str, str]:
    """Node id of what could not be loaded -> kind and what was missing."""
    return {error.nodeid: reason(error.failure) for error in results.collect_errors}


def _shown(case: Case) -> str:
    return case.outcome if case.failure is None else f"{case.outcome}: {reason(case.failure)}"


def reason(failure: Failure) -> str:
    """Kind, origin and what was missing."""
    return " ".join(filter(None, (failure.kind, failure.origin, failure.missing_name)))


def why(results: ParsedResults, nodeid: str) -> Failure:
    """Why one test failed."""
    case = next(case for case in results.tests if case.nodeid == nodeid)
    assert case.failure is not None
    return case.failure


def install() -> str | None:
    """Install the tools that are not there, once for all workers; why that cannot be done, if it cannot."""
    if (problem := why_not("npm", "--version")) is not None:
        return problem
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(INSTALLED.with_suffix(".lock"), purpose="Installing packages", wait_s=400.0):
        if (INSTALLED / ".ready").exists():
            return None
        (INSTALLED / "package.json").write_text('{"private": true}\n')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *REQUIREMENTS]
        if subprocess.run(command, cwd=INSTALLED, check=False, timeout=400).returncode:
            return f"npm cannot install {' '.join(REQUIREMENTS)}"
        (INSTALLED / ".ready").touch()
    return None


def link(root: Path) -> None:
    """Let a project find the installed tools."""
    (root / "node_modules").symlink_to(INSTALLED / "node_modules")


def _keep(ended: FinishedRun, name: str) -> None:
    text = next((file.read_text() for file in ended.results.iterdir()), ended.output)
    (KEPT / name).write_text(text.replace(str(ended.root), PLACE).replace(str(INSTALLED), PLACE))


def _main() -> None:
    KEPT.mkdir(exist_ok=True)
    problem = install()
    if problem:
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory() as name:
        for framework in (VITEST, JEST, MOCHA, NODE):
            root = copied(framework.name, Path(name))
            link(root)
            _keep(run(framework, root), f"{framework.name}.{'jsonl' if framework in (MOCHA, NODE) else 'json'}")
            if framework is MOCHA:
                for broken in BROKEN:
                    _keep(run(framework, root, f"broken/{broken}.test.js"), f"mocha-{broken}.txt")


if __name__ == "__main__":
    _main()
