from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.sandbox import choice
from cdd_agent.sandbox.choice import choose, resolve_level, try_levels
from cdd_agent.sandbox.port import Command, Level, Result, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox


class Leaky:
    """Runs programs as they are and calls itself confined."""

    def __init__(self, level: Level) -> None:
        self.level: str = level

    def run(self, command: Command) -> Result:
        return PlainSandbox().run(command)


@pytest.fixture
def rungs(monkeypatch: pytest.MonkeyPatch) -> "dict[Level, list[str]]":
    """A ladder on which every rung is absent; and how often each was tried."""
    tried: dict[Level, list[str]] = {"bwrap": [], "docker": [], "landlock": []}

    def absent(level: Level) -> choice._Candidates:
        tried[level].append("tried")
        yield f"there is no {level}", None

    monkeypatch.setattr(choice, "_trials_by_level", {})
    for level in tried:
        monkeypatch.setitem(choice._CANDIDATES, level, partial(absent, level))
    return tried


def offer(monkeypatch: pytest.MonkeyPatch, level: Level, sandbox: Sandbox) -> None:
    def candidates() -> Iterator[tuple[str, object]]:
        yield f"the {level} of the test", lambda: sandbox

    monkeypatch.setitem(choice._CANDIDATES, level, candidates)


def test_what_is_asked_for_is_the_option_then_the_variable_then_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_level("bwrap", environment={"CDD_SANDBOX": "none"}) == "bwrap"
    assert resolve_level(None, environment={"CDD_SANDBOX": "landlock"}) == "landlock"
    assert resolve_level(None, environment={}) == "auto"
    with pytest.raises(UsageError, match="CDD_SANDBOX=chroot is not a level"):
        resolve_level(None, environment={"CDD_SANDBOX": "chroot"})


def test_the_first_rung_that_passes_is_taken(rungs: "dict[Level, list[str]]") -> None:
    del rungs
    choice._CANDIDATES["landlock"] = choice._find_landlock
    if next(try_levels("landlock")).sandbox is None:
        pytest.skip("the kernel has no Landlock that passes the self-test")
    heard: list[str] = []
    assert choose("auto", unattended=True, report=heard.append).level == "landlock"
    (told,) = heard
    assert told.startswith("Sandbox landlock. Not usable: bwrap: there is no bwrap; docker: there is no docker.")
    assert "bubblewrap confines more: apt-get install bubblewrap" in told
    assert [trial.reason for trial in try_levels()] == ["there is no bwrap", "there is no docker", ""]


def test_a_program_that_is_there_and_not_taken_is_told(
    rungs: "dict[Level, list[str]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    del rungs
    choice._CANDIDATES["docker"] = choice._find_bubblewraps
    offer(monkeypatch, "bwrap", Leaky("bwrap"))
    heard: list[str] = []
    if not any(trial.sandbox for trial in try_levels("docker")):
        pytest.skip("no bwrap that passes the self-test")
    assert choose("auto", unattended=True, report=heard.append) is next(try_levels("docker")).sandbox
    assert len(heard) == 1
    assert heard[0].startswith("Sandbox docker. Not usable: bwrap: the bwrap of the test did not pass")


def test_bubblewrap_is_tried_before_a_container_whose_start_takes_five_times_as_long(
    rungs: "dict[Level, list[str]]",
) -> None:
    del rungs
    assert [trial.level for trial in try_levels()] == ["bwrap", "docker", "landlock"]


def test_a_rung_is_tried_once_in_a_process(rungs: "dict[Level, list[str]]") -> None:
    for _ in range(3):
        assert [trial.sandbox for trial in try_levels()] == [None] * 3
    assert rungs == {"docker": ["tried"], "bwrap": ["tried"], "landlock": ["tried"]}


def test_a_level_that_is_asked_for_is_never_replaced(rungs: "dict[Level, list[str]]") -> None:
    with pytest.raises(EnvironmentMissing, match="sandbox bwrap cannot be used: bwrap: there is no bwrap") as caught:
        choose("bwrap", unattended=False)
    assert "apt-get install bubblewrap" in caught.value.hint
    assert rungs["landlock"] == []


def test_nothing_confines_and_nobody_watches_is_refused(rungs: "dict[Level, list[str]]") -> None:
    del rungs
    with pytest.raises(EnvironmentMissing, match="an unattended run needs one") as caught:
        choose("auto", unattended=True)
    assert "cdd --sandbox none" in caught.value.hint
    assert choose("none", unattended=True).level == "none"


def test_nothing_confines_and_somebody_watches_is_said_aloud(rungs: "dict[Level, list[str]]") -> None:
    del rungs
    heard: list[str] = []
    assert choose("auto", unattended=False, report=heard.append).level == "none"
    assert heard[0].startswith("NOT CONFINED")
    assert "there is no docker" in heard[0]
    assert "there is no landlock" in heard[0]
    assert "apt-get install bubblewrap" in heard[1]


def test_a_rung_that_lets_one_act_pass_is_not_taken(
    rungs: "dict[Level, list[str]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    del rungs
    offer(monkeypatch, "bwrap", Leaky("bwrap"))
    (trial,) = try_levels("bwrap")
    assert trial.sandbox is None
    assert trial.reason == ("the bwrap of the test did not pass the self-test: write outside the project: it was done")
    with pytest.raises(EnvironmentMissing, match="did not pass the self-test"):
        choose("bwrap", unattended=False)


def test_a_program_that_does_not_start_is_told(
    rungs: "dict[Level, list[str]]", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del rungs
    (tmp_path / "bwrap").write_text("#!/nowhere/at/all\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(choice._CANDIDATES, "bwrap", choice._find_bubblewraps)
    trial = next(try_levels("bwrap"))
    assert trial.candidate == str(tmp_path / "bwrap")
    assert "bwrap does not start" in trial.reason
