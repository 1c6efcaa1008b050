"""The project's tests, collected and not run: that shows whether pytest starts with the project's configuration."""

import re
from pathlib import Path

from cdd_agent.doctor.check import Check, State
from cdd_agent.testrun.run import PytestSuite
from cdd_agent.testrun.suite import Suite
from pytest_tdd_agent.report import OUTCOMES, summary

_COLLECTED = re.compile(
    r"(?P<count>\d+) tests? collected(?:.*? / (?P<errors>\d+) errors?)?|(?P<none>no tests collected)"
)
_ERRORS = re.compile(r"(\d+) errors? in ")


def _ran(suite: Suite) -> Check:
    """How many tests there are of a framework that has to run them to tell, and that its results can be read."""
    run = suite.run()
    if run.report is None:
        fix = f"see why: {suite.command}"
        return Check(name="tests", state="missing", told=run.problem or "nothing was run", fix=fix)
    if not run.report.structured:
        told = f"{suite.command} tells no results of single tests, only its exit status"
        fix = "let that count, accept_unstructured: true in .cdd/config.yaml, or name a framework that tells more"
        state: State = "ok" if suite.conventions.accepts_exit_status else "missing"
        return Check(name="tests", state=state, told=told, fix="" if state == "ok" else fix)
    if run.report.collect_errors:
        files = ", ".join(error.nodeid for error in run.report.collect_errors[:5])
        fix = f"see what is wrong: {suite.command}"
        return Check(name="tests", state="missing", told=f"{suite.command} cannot load {files}", fix=fix)
    count = ", ".join(f"{number} {word}" for word, number in summary(run.report).items() if number and word in OUTCOMES)
    told = f"{suite.command} runs {len(run.report.tests)}: {count}" if count else f"{suite.command} finds none yet"
    return Check(name="tests", state="ok" if count else "note", told=told, details=run.notices)


def collect(suite: Suite) -> Check:
    """How many tests there are, or why they cannot be collected; what cannot collect them runs them."""
    if not isinstance(suite, PytestSuite):
        return _ran(suite)
    run = suite.run(("--collect-only", "-q"))
    command = f"{_shown(suite.interpreter.path, suite.root)} -m pytest"
    found = _COLLECTED.search(run.output)
    errors = (found and found["errors"]) or (_ERRORS.search(run.output) or ("", ""))[1]
    if errors:
        count = "1 error" if errors == "1" else f"{errors} errors"
        fix = f"see what is wrong: {command} --collect-only -q"
        return Check(name="tests", state="missing", told=f"{command} cannot collect them: {count}", fix=fix)
    if found is None:
        told, _, advice = (run.problem or "pytest said nothing").partition("; ")
        fix = advice or f"see why: {command} --collect-only -q"
        return Check(name="tests", state="missing", told=told, fix=fix)
    if found["none"]:
        return Check(name="tests", state="note", told=f"{command} finds none yet", details=run.notices)
    return Check(name="tests", state="ok", told=f"{command} collects {found['count']}", details=run.notices)


def _shown(path: Path, root: Path) -> str:
    """``path`` as one would type it in ``root``."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
