"""The sandbox, proved."""

import os

import pytest

from cdd_agent.doctor import check_sandbox
from cdd_agent.sandbox import choice

CONFINES = any(trial.passed for trial in choice.try_levels())


@pytest.mark.skipif(not CONFINES, reason="no docker, no bubblewrap and no Landlock here")
def test_the_level_is_named_and_every_act_is_refused() -> None:
    check, sandbox = check_sandbox("auto")
    assert check.state == "ok"
    assert sandbox is not None
    assert check.told.startswith(f"{sandbox.level}; cdd just tried 5 forbidden acts")
    assert [detail.partition(":")[0] for detail in check.details[:5]] == ["refused"] * 5


def test_no_confinement_says_which_acts_were_not_refused() -> None:
    check, sandbox = check_sandbox("none")
    assert sandbox is None
    assert check.state == "note"
    loud = [detail for detail in check.details if detail.startswith("NOT refused: ")]
    assert len(loud) == (4 if os.getuid() else 5)  # only root may change the kernel's settings
    assert any("write outside the project" in detail for detail in loud)


def test_a_level_that_is_not_there_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda: iter([("no client is installed", None)])  # noqa: E731
    monkeypatch.setitem(choice._CANDIDATES, "docker", nothing)
    monkeypatch.setenv("PATH", "/nowhere")
    check, sandbox = check_sandbox("docker")
    assert (sandbox, check.state) == (None, "missing")
    assert "docker cannot be used: no client is installed" in check.details
    assert "bubblewrap" in check.fix
