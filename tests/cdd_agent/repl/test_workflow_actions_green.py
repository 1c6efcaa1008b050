"""What /green shows at the end of a run."""

from dataclasses import replace

import pytest

from cdd_agent.repl.workflow_actions import show_artifact
from cdd_agent.runs.artifact import ChangedFiles, GreenArtifact, Results
from tests.fakes.demo import captured

PASSING = Results(passed=4, failed=0, errors=0, skipped=0, total=4, test_details=())
REFUSED = GreenArtifact(
    spec_id="S",
    request_id="R",
    targets=("t.py",),
    test_files=("t.py",),
    outcome="failed",
    implementation_files=ChangedFiles(),
    components=(),
    commit=None,
    iterations=3,
    scope="all",
    test_results=PASSING,
    passing_tests=4,
    all_tests_pass=False,
    error="expectation_ignored: t.py::t",
)


def show(artifact: GreenArtifact) -> str:
    with captured(width=100) as (screen, stream):
        show_artifact(artifact, screen=screen)
    return stream.getvalue()


def test_a_change_that_is_refused_is_not_called_a_failing_test() -> None:
    assert "✘ the tests pass, but the change was refused; all changes were undone" in show(REFUSED)


@pytest.mark.parametrize("results", [replace(PASSING, failed=1), replace(PASSING, errors=1)])
def test_tests_that_fail_are_called_so(results: Results) -> None:
    assert "✘ the tests fail; all changes were undone" in show(replace(REFUSED, test_results=results))
