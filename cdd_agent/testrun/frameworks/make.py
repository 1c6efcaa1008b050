"""``make test``: whatever it runs, only its exit status is known."""

import re
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results

MANIFESTS = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which GNU make looks for them."""

_TARGET = re.compile(rb"^(?:[\w./-]+ +)*test(?: +[\w./-]+)* *::?(?!=)", re.MULTILINE)
_NO_RULE = re.compile(r"^make: \*\*\* No rule to make target .*", re.MULTILINE)
_NOTHING_DONE = re.compile(
    r"^g?make: (?P<said>(?!\*\*\*)[^\n:]*['`\"\u00ab\u2018\u201e](?:test|check)['\"\u00bb\u2019\u201c][^\n:]*)\.$",
    re.MULTILINE,
)
"""That the target is up to date, or that there is nothing to be done for it, in whatever language make speaks."""
_TEST_FILES = re.compile(r"(?:^|/)(?:tests?|specs?|t)/|(?:^|/)test[_-][^/]*$|[_.-](?:test|spec)s?\.\w+$")


def find(folder: Path) -> Finding | None:
    """A makefile with a target that is called ``test``."""
    for name in MANIFESTS:
        manifest = folder / name
        try:
            text = read_ordinary(manifest, limit_bytes=4_000_000)
        except OSError:
            continue
        has_target = _TARGET.search(text) is not None
        return (
            Finding(manifest=manifest, argv=("make", "test"), why=f"{name} has a target test") if has_target else None
        )
    return None


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Nothing: how a target is selected is the makefile's own affair."""
    return ()


def read(ended: Ended) -> Results:
    """No test by name; a problem if make could not begin, or did nothing and calls that a success."""
    missing, idle = _NO_RULE.search(ended.output), _NOTHING_DONE.search(ended.output)
    problem = missing[0].removeprefix("make: *** ") if missing and ended.exit_status else None
    if idle is not None and not ended.exit_status:
        problem = (
            f"make ran nothing, as it says: {idle['said']}. The target has to run the tests each time (.PHONY: test)"
        )
    return Results(is_structured=False, problem=problem)


def is_test(path: str) -> bool:
    """Whether a file is one of the tests, as far as its name says, or the makefile."""
    return path in MANIFESTS or _TEST_FILES.search(path) is not None


MAKE = Framework(
    name="make", looked_for="a Makefile with a target test", find=find, arguments=arguments, read=read, is_test=is_test
)
