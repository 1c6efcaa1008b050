"""``python -m tests.verdicts [words]``: how an attempt with each cheat and each honest change is judged.

Only the changes with one of the words in their name, or all. ``--labels`` proves the labels too, ``--write`` records
the changes that are misjudged today. ``--examiner`` asks a second agent, whose only example is the hidden script. Exit
status 1 if a label is wrong, or if other changes are misjudged than ``misjudged.txt`` names.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from cdd_agent.errors import CddError
from cdd_agent.sandbox.choice import choose
from cdd_agent.sandbox.port import LEVELS
from cdd_agent.testrun.interpreter import find_interpreter
from tests.fakes.lean import lean_python
from tests.verdicts.change import Change, read_changes
from tests.verdicts.judge import Outcome, Place, find_mislabels, judge
from tests.verdicts.misjudged import PATH, find_differences, read_misjudged, write_misjudged


def examine(change: Change, *, folder: Path, place: Place, labels: bool) -> tuple[Change, Outcome, list[str]]:
    """Judge a change in a separate folder. Return also what is wrong with its label, if that is asked for."""
    own = folder / change.name
    own.mkdir(parents=True)
    wrong = find_mislabels(change, own, place=place) if labels else []
    try:
        return change, judge(change, own / "project", place=place), wrong
    except CddError as error:
        wrong.append(f"not judged: {error}")
        return change, Outcome(is_open=False, reasons=("not_judged",), notices=()), wrong


def main(arguments: list[str]) -> int:
    """Print a line for each change, then the figures."""
    options = argparse.ArgumentParser(prog="python -m tests.verdicts")
    options.add_argument("--level", choices=("auto", *LEVELS), default="auto", help="of the sandbox (default: auto)")
    options.add_argument("--labels", action="store_true", help="prove that each change is what it is called")
    options.add_argument("--examiner", action="store_true", help="with one that knows the hidden script")
    options.add_argument("--why", action="store_true", help="print reasons and notices in full")
    options.add_argument("--write", action="store_true", help=f"record what is misjudged in {PATH.name}")
    options.add_argument("--jobs", type=int, default=os.cpu_count(), help="attempts at the same time")
    options.add_argument("words", nargs="*", help="changes with one of these words in their name")
    chosen = options.parse_args(arguments)
    changes, began = read_changes(*chosen.words), time.monotonic()
    outcomes: dict[str, Outcome] = {}
    mislabels = 0
    with tempfile.TemporaryDirectory(prefix="cdd-verdicts-") as name:
        folder = Path(name)
        os.environ.update(CDD_PYTHON=str(lean_python(folder / "lean")), XDG_STATE_HOME=str(folder / "state"))
        (folder / "bytecode").mkdir()
        place = Place(
            interpreter=find_interpreter(folder),
            bytecode=folder / "bytecode",
            sandbox=choose(chosen.level, unattended=False),
            has_examiner=chosen.examiner,
        )

        # Not threads: the first refusal of a change ends the test runs of its whole process.
        with ProcessPoolExecutor(chosen.jobs) as executor:
            for change, outcome, wrong in executor.map(
                partial(examine, folder=folder, place=place, labels=chosen.labels), changes
            ):
                outcomes[change.name] = outcome
                mislabels += bool(wrong)
                mark = "" if outcome.is_right(change) else "   MISJUDGED"
                print(f"{change.name:<48} {outcome.summary}{mark}", flush=True)
                for line in (*wrong, *((*outcome.reasons, *outcome.notices) if chosen.why else ())):
                    print(f"    {line}", flush=True)
    wrong_ones = (change.name for change in changes if not outcomes[change.name].is_right(change))
    misjudged = {name: outcomes[name] for name in wrong_ones}
    for kind in ("cheat", "honest"):
        names = [change.name for change in changes if change.kind == kind]
        right = [name for name in names if name not in misjudged]
        print(f"{kind}: {len(right)} of {len(names)} judged rightly")
    if chosen.write and not chosen.examiner:
        others = {name: summary for name, summary in read_misjudged().items() if name not in outcomes}
        write_misjudged({**others, **{name: outcome.summary for name, outcome in misjudged.items()}})
    differences = [] if chosen.examiner else find_differences(outcomes, misjudged=misjudged)
    for line in differences:
        print(line)
    print(f"{mislabels} wrong labels, {time.monotonic() - began:.0f} s")
    return int(bool(differences or mislabels))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
