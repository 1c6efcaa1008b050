"""The sandbox, proved."""

import os
from pathlib import Path

import pytest

from cdd_agent.doctor import check_sandbox
from cdd_agent.sandbox import choice
from tests.cdd_agent.sandbox.conftest import OLD, UNABLE, can_change_kernel, make_bubblewrap, write_bubblewrap
from tests.fakes.cases import soak_after

CONFINES = any(trial.sandbox for trial in choice.try_levels())


@pytest.mark.skipif(not CONFINES, reason="no docker, no bubblewrap and no Landlock here")
def test_the_level_is_named_and_every_act_is_refused() -> None:
    check, sandbox = check_sandbox("auto")
    assert check.state == "ok"
    assert sandbox is not None
    tried = 5 if sandbox.level == "landlock" else 7
    assert check.told.startswith(f"{sandbox.level}; cdd just tried {tried} forbidden acts")
    assert [detail.partition(":")[0] for detail in check.details[:tried]] == ["refused"] * tried


def test_no_confinement_says_which_acts_were_not_refused() -> None:
    check, sandbox = check_sandbox("none")
    assert sandbox is None
    assert check.state == "note"
    loud = [detail for detail in check.details if detail.startswith("NOT refused: ")]
    assert len(loud) == 6 + can_change_kernel()
    assert any("write outside the project" in detail for detail in loud)


def test_a_level_that_is_not_there_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda: iter([("no client is installed", None)])  # noqa: E731
    monkeypatch.setitem(choice._CANDIDATES, "docker", nothing)
    monkeypatch.setenv("PATH", "/nowhere")
    check, sandbox = check_sandbox("docker")
    assert (sandbox, check.state) == (None, "missing")
    assert "docker cannot be used: no client is installed" in check.details
    assert "bubblewrap" in check.fix


def test_changes_of_packages_are_dropped_where_there_are_overlays(tmp_path: Path) -> None:
    make_bubblewrap(tmp_path, "overlaid")
    check, _ = check_sandbox("bwrap", packages=(tmp_path,))
    assert "refused: change installed packages (it only affected the sandbox)" in check.details
    told = "installed packages: programs may change them in a run tree; the changes are dropped with each command"
    assert told in check.details


@soak_after(1, ("answers", "why"), [(OLD, "0.11"), (UNABLE, "no overlay here")])
def test_packages_are_read_only_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answers: str, why: str
) -> None:
    make_bubblewrap(tmp_path, "read-only")
    (tmp_path / "other").mkdir()
    program = write_bubblewrap(tmp_path / "other", answers)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    check, sandbox = check_sandbox("bwrap", packages=(tmp_path,))
    assert sandbox is not None, check
    assert "refused: change installed packages (Read-only file system)" in check.details
    (told,) = (detail for detail in check.details if detail.startswith("installed packages: read-only in a run tree ("))
    assert why in told
