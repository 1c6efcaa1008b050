"""What a step costs with all checks on."""

from pathlib import Path

import pytest

from cdd_agent.sandbox.port import ISOLATING_LEVELS
from tests.bench.step import BAR_TARGETS, Size, execute

_HOOK = r"""
printf '#!/bin/sh\nexit 0\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
digest=$("$0" "$@" exec sale --yes 2>&1 | sed -n 's/.*--digest //p')
"$0" "$@" trust --digest "$digest"
"""


@pytest.mark.slow
def test_a_cycle_with_all_checks_takes_few_processes_and_few_runs(tmp_path: Path) -> None:
    """RED with stubs, GREEN with an Examiner, a REFACTOR that changes the code, and a commit hook."""
    done = execute(Size(files=2, tests=2, steps=1), tmp_path / "step", prepare=_HOOK)
    # Each test run has cdd list the ignored files, so that it does not start git itself.
    assert len(done.list_git()) <= 66, "\n".join(done.list_git())
    purposes = done.list_runs(1)
    assert {"new tests with stubs", "further examples"} <= set(purposes)
    (begun,) = (event for event in done.events if event["event"] == "RunStarted")
    assert begun["sandbox"] not in ISOLATING_LEVELS or "the same calls of the other code" in purposes
    green = purposes[
        purposes.index("targets in a clean copy") : len(purposes) - purposes[::-1].index("all tests for the gate") - 1
    ]
    of_targets = [purpose for purpose in green if "examples" not in purpose and "other code" not in purpose]
    assert len(of_targets) <= BAR_TARGETS, of_targets
    assert sum(purpose.startswith("all tests") for purpose in purposes) == 3, "the baseline, GREEN and REFACTOR"
