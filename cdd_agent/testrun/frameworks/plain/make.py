"""``make test``: whatever it runs, only its exit status is known."""

import re
from pathlib import Path

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results

MANIFESTS = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which GNU make looks for them."""

_TARGET = re.compile(rb"^(?:[\w./-]+ +)*test(?: +[\w./-]+)* *::?(?!=)", re.MULTILINE)
_NO_RULE = re.compile(r"^make: \*\*\* No rule to make target .*", re.MULTILINE)
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
    """No test by name; a problem only if make could not begin."""
    found = _NO_RULE.search(ended.output)
    problem = found[0].removeprefix("make: *** ") if found and ended.exit_status else None
    return Results(is_structured=False, problem=problem)


def is_test(path: str) -> bool:
    """Whether a file is one of the tests, as far as its name says, or the makefile."""
    return path in MANIFESTS or _TEST_FILES.search(path) is not None


MAKE = Framework(
    name="make", looked_for="a Makefile with a target test", find=find, arguments=arguments, read=read, is_test=is_test
)
