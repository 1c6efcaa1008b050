"""Runs that look after the same folder."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.warden import guard
from tests.cdd_agent.sandbox.conftest import Ground

HOOK = ".git/hooks/pre-commit"


def test_no_run_takes_what_another_made_for_the_users(tmp_path: Path) -> None:
    """The first makes a hook and ends soon; a second begins meanwhile, and ends later."""
    ground = Ground.lay(tmp_path, level="none")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ground.bash, f"echo evil > {HOOK}; sleep 0.6", kept=(HOOK,))
        while not (ground.project / HOOK).exists():
            time.sleep(0.01)
        second = pool.submit(ground.bash, "sleep 0.6", kept=(HOOK,))
        assert first.result().remarks
        assert second.result().remarks == ()
    assert not (ground.project / HOOK).exists()


def test_a_program_that_is_left_over_holds_no_turn(tmp_path: Path) -> None:
    ground = Ground.lay(tmp_path, level="none")
    seen = ground.bash("ls -l /proc/self/fd", kept=(HOOK,))
    assert str(ground.project) not in seen.output


def test_who_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PATIENCE_S", 0.1)
    has_begun, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with guard.lock_roots([str(tmp_path)]):
            has_begun.set()
            may_end.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    has_begun.wait(20)
    with (
        pytest.raises(EnvironmentMissing, match=f"Another run in {tmp_path} has not ended"),
        guard.lock_roots([str(tmp_path)]),
    ):
        pass
    may_end.set()
    thread.join()
    with guard.lock_roots([str(tmp_path), str(tmp_path / "missing")]) as held:
        assert len(held) == 1
