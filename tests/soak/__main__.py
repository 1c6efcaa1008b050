"""``python -m tests.soak``: every part of the soak with its bar, and one table at the end.

``--quick`` tries a hundredth of everything; ``--only WORD`` the parts with that word in their name; ``--seed N``
repeats a run. Exit status 1 if a bar is missed. A part that cannot run here says why, and misses nothing.
"""

import argparse
import random
import sys

from tests.soak.table import PARTS, carried_out, printed


def main(arguments: list[str]) -> int:
    """Print progress, then the table."""
    options = argparse.ArgumentParser(prog="python -m tests.soak")
    options.add_argument("--quick", action="store_true", help="a hundredth of everything")
    options.add_argument("--only", default="", metavar="WORD", help="parts with this word in their name")
    options.add_argument("--seed", type=int, help="of the random inputs; a new one each time if left out")
    chosen = options.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    parts = [part for part in PARTS if chosen.only in part.what or chosen.only in part.place]
    print(f"seed {seed}")
    rows = []
    for number, part in enumerate(parts, start=1):
        print(f"[{number}/{len(parts)}] {part.what} ...", flush=True)
        row = carried_out(part, quick=chosen.quick, seed=seed, tell=lambda line: print(line, flush=True))
        rows.append(row)
        print(f"    {row.verdict}: {row.figures.tried:,} tried, {row.found}", flush=True)
    print(f"\n{printed(rows)}")
    return int(any(row.verdict == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
