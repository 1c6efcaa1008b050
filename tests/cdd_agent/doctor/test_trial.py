"""The plugin, tried."""

from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.doctor import check_plugin
from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.supervised import PlainSandbox


class Silent:
    """A sandbox in which nothing ever reports."""

    level = "none"

    def run(self, command: Command) -> Result:
        return Result(exit_status=3, head="Killed", dropped_bytes=0, timed_out=False, duration_s=0.0, level=self.level)


def test_two_tests_are_told_apart_and_nothing_is_left_behind(project: Composition) -> None:
    before = sorted(Path(project.root).rglob("*"))
    assert check_plugin(project.suite).state == "ok"
    assert sorted(Path(project.root).rglob("*")) == before
    assert isinstance(project.suite.sandbox, PlainSandbox)


@pytest.mark.slow
def test_a_project_s_own_configuration_takes_no_part(project: Composition) -> None:
    (project.root / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    assert check_plugin(project.suite).state == "ok"


def test_no_report_is_told(project: Composition) -> None:
    check = check_plugin(project.suite.with_sandbox(Silent()))
    assert check.state == "missing"
    assert "status 3" in check.told
