"""``make test``, or any other command: only its exit status is known."""

import re
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Finding, FinishedRun, Results

MANIFESTS = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which GNU make looks for them."""

_TARGET = re.compile(rb"^(?:[\w./-]+ +)*test(?: +[\w./-]+)* *::?(?!=)", re.MULTILINE)
_NO_RULE = re.compile(r"^make: \*\*\* No rule to make target .*", re.MULTILINE)
_NOTHING_DONE = re.compile(
    r"^g?make: (?P<said>(?!\*\*\*)[^\n:]*['`\"\u00ab\u2018\u201e](?:test|check)['\"\u00bb\u2019\u201c][^\n:]*)\.$",
    re.MULTILINE,
)
"""That the target is up to date or that nothing is to be done for it, in any of make's languages."""
_TEST_FILES = re.compile(r"(?:^|/)(?:tests?|specs?|t)/|(?:^|/)test[_-][^/]*$|[_.-](?:test|spec)s?\.\w+$")


def find(folder: Path) -> Finding | None:
    """Look for a makefile with a target ``test``; make reads only the first one."""
    for name in MANIFESTS:
        try:
            text = read_ordinary(folder / name, limit_bytes=4_000_000)
        except OSError:
            continue
        found = Finding(manifest=folder / name, argv=("make", "test"), why=f"{name} has a target test")
        return found if _TARGET.search(text) else None
    return None


def build_arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Add nothing: only the makefile knows how to select a test."""
    return ()


def read(run: FinishedRun) -> Results:
    """Return no tests, and a problem if make could not start or ran nothing and still succeeded."""
    missing, idle = _NO_RULE.search(run.output), _NOTHING_DONE.search(run.output)
    problem = missing[0].removeprefix("make: *** ") if missing and run.exit_status else None
    if idle is not None and not run.exit_status:
        problem = (
            f"make ran nothing, as it says: {idle['said']}. The target has to run the tests each time (.PHONY: test)"
        )
    return Results(is_structured=False, problem=problem)


def is_test(path: str) -> bool:
    """Return whether a file is the makefile or, by its name, a test."""
    return path in MANIFESTS or _TEST_FILES.search(path) is not None
