"""The plugin tried in a project's interpreter, on two tests of the program's own."""

from dataclasses import replace
from pathlib import Path

from cdd_agent.storage import scratch
from cdd_agent.testrun.run import PytestSuite
from cdd_agent.testrun.suite import Suite

TIMEOUT_S = 60.0
TESTS = "def test_that_passes():\n    assert True\n\n\ndef test_that_fails():\n    assert False\n"
_EXPECTED = {"test_that_passes": "passed", "test_that_fails": "failed"}


def try_plugin(suite: Suite) -> str | None:
    """None if both tests are reported as what they are, or if no plugin is needed; else what was wrong."""
    if not isinstance(suite, PytestSuite):
        return None
    with scratch() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "test_trial.py").write_text(TESTS, encoding="ascii")
        run = replace(suite, root=root, timeout_s=TIMEOUT_S, bytecode=None, flaky=0).run()
    if run.report is None:
        return run.problem or "there was no report"
    told = {case.nodeid.rpartition("::")[2]: case.outcome for case in run.report.tests}
    return None if told == _EXPECTED else f"two tests, one that passes and one that fails, were reported as {told}"
