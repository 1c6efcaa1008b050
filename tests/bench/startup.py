"""What it costs to start the program, beside an interpreter that does nothing."""

import sys
from pathlib import Path

from tests.bench.measure import compare, spend


def show(folder: Path, *, rounds: int) -> None:
    """Print the figures."""
    python = sys.executable
    cdd = [python, "-m", "cdd_agent"]
    (folder / "tickets").mkdir(parents=True)
    commands = {
        "python -c pass": [python, "-c", "pass"],
        "cdd --version": [*cdd, "--version"],
        "cdd --help": [*cdd, "--help"],
        "cdd status (no tickets)": [*cdd, "status"],
    }
    for argv in commands.values():
        spend(argv, folder)
    print(f"start-up, CPU to `python -c pass`, {rounds} rounds")
    for name, cost in compare(commands, folder, rounds=rounds).items():
        print(f"  {name:<28} {cost.shown}")
