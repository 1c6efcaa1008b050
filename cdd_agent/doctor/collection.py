"""The project's tests, collected and not run: that shows whether pytest starts with the project's configuration."""

import re
from pathlib import Path

from cdd_agent.doctor.check import Check
from cdd_agent.testrun.run import Suite

_COLLECTED = re.compile(
    r"(?P<count>\d+) tests? collected(?:.*? / (?P<errors>\d+) errors?)?|(?P<none>no tests collected)"
)
_ERRORS = re.compile(r"(\d+) errors? in ")


def collect(suite: Suite) -> Check:
    """How many tests there are, or why they cannot be collected."""
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
