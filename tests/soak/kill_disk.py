"""A disk that fills up under ``cdd exec``: it says so, loses nothing, and goes on once there is room again.

The disk is a small tmpfs in a mount namespace of its own: nothing has to be unmounted, and root is not needed where
users may make namespaces. By hand: ``unshare -m python -m tests.soak.kill_disk /tmp/some-new-folder 0 64``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fuzz.figures import Figures
from tests.soak.kill_stage import LONGEST_S, Stage, Trial, build

_SIZE_BYTES = 24_000_000
_APART = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def why_not() -> str:
    """Why no small disk can be made here; empty if one can."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run([*_APART, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"no tmpfs can be mounted: {tried.stderr.decode().strip()}"


def full_disk(folder: Path, *, rooms_kb: tuple[int, ...]) -> Figures:
    """Run with so much room on the disk, once for each of ``rooms_kb``; ``folder`` is a new one."""
    cannot = why_not()
    if cannot:
        return Figures(tried=0, cannot=cannot)
    command = [*_APART, sys.executable, "-m", __name__, str(folder), *map(str, rooms_kb)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3 * LONGEST_S * len(rooms_kb))
    problems = json.loads(ended.stdout)
    return Figures(tried=len(rooms_kb), bad=len(problems), example=next(iter(problems), ""))


def _tried(folder: Path, rooms_kb: list[int]) -> list[str]:
    """What went wrong, in a process whose mounts nobody else sees."""
    folder.mkdir(parents=True)
    stage = build(folder)
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES}", "tmpfs", str(disk)], check=True)
    problems = []
    for room_kb in rooms_kb:
        trial = _moved(stage.trial(f"room-{room_kb}"), disk)
        problems += [f"{room_kb} KB: {problem}" for problem in _with_room(trial, stage, room_kb=room_kb)]
        trial.drop()
    return problems


def _with_room(trial: Trial, stage: Stage, *, room_kb: int) -> list[str]:
    """What is wrong with a run that has so much room, and with going on from it once there is more."""
    filler = trial.folder / "filler"
    free = os.statvfs(trial.folder)
    filler.write_bytes(bytes(max(free.f_bavail * free.f_frsize - room_kb * 1024, 0)))
    said = trial.finish()
    problems = trial.torn()
    if "Traceback" in said or "defect" in said or (said and "No space left" not in said and "room" not in said):
        problems.append(f"it did not say what is wrong: {said}")
    filler.unlink()
    for _ in range(2):  # an attempt whose tests had no room for their report is a closed one; the next run goes on
        failed = trial.finish()
        if not failed:
            break
    end = trial.end()
    problems += [failed] if failed else []
    problems += [f"ended as {end}"] if end != stage.expected else []
    return problems + [f"left over: {name}" for name in trial.leftovers()] + trial.torn()


def _moved(trial: Trial, disk: Path) -> Trial:
    """The trial, moved to another disk, where its settings are approved anew."""
    shutil.copytree(trial.folder, disk / trial.folder.name, symlinks=True)
    shutil.copy(trial.folder.parent / "recording.yaml", disk)
    trial.drop()
    moved = Trial(folder=disk / trial.folder.name, python=trial.python)
    moved.approve()
    return moved


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_tried(Path(sys.argv[1]), [int(room) for room in sys.argv[2:]])))
