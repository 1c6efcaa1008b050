"""``make projects``: two runs in each of many kinds of project, at each level of the sandbox, and a table of them."""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.projects.bench import Missing, Step, approve, at_step, carry_out, lay, measure
from tests.projects.catalog import CASES, Case

LEVELS = ("bwrap", "landlock", "none")


def examine(case: Case, level: str, *, folder: Path) -> str:
    """What came of two runs: ``works`` and their seconds, or the first thing that went wrong."""
    place = lay(folder)
    place.write(case.files, step=0, newline=case.newline)
    try:
        place.git("config", "core.autocrlf", str(case.newline != "\n").lower())
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "start")
        case.arrange(place)
        case.install(place)
    except Missing as missing:
        return f"not run: {missing}"
    place.inside = case.inside
    approve(place, level=level)
    took = []
    for number in (1, 2):
        place.write({case.test: case.files[case.test]}, step=number, newline=case.newline)
        place.git("commit", "-q", "-m", f"step {number}", "--", case.test)
        text = at_step(case.files[case.code], number).replace("\n", case.newline)
        base = f"{case.inside}/" if case.inside != "." else ""
        names = [name.removeprefix(base) for name in (case.test, case.code)]
        step = Step(number=number, test=names[0], code=names[1], text=text, options=case.options)
        wrong, seconds = carry_out(place, step, level=level)
        if wrong and case.message and case.message in wrong[0]:
            return f"says: {case.message}"
        if wrong:
            return f"run {number}: {'; '.join(wrong)}"
        took.append(f"{seconds:.1f}")
    if case.limits_s is not None:
        ready_s, land_s = measure(place)
        took.append(f"run tree ready {ready_s:.2f} s, landing {land_s:.2f}")
        if ready_s > case.limits_s[0] or land_s > case.limits_s[1]:
            return f"slow: {took[-1]} s"
    return f"works ({' s, '.join(took)} s)"


def main(arguments: list[str]) -> int:
    """Print a line for each project and level; 1 if a run did not work."""
    options = argparse.ArgumentParser(prog="python -m tests.projects")
    options.add_argument("--level", choices=LEVELS, help="only this one")
    options.add_argument("--keep", action="store_true", help="leave the projects where they are, and name the folders")
    options.add_argument("words", nargs="*", help="projects with one of these words in their name")
    chosen = options.parse_args(arguments)
    began, bad = time.monotonic(), 0
    for case in CASES:
        if chosen.words and not any(word in case.name for word in chosen.words):
            continue
        for level in [chosen.level] if chosen.level else LEVELS:
            # Not in the checkout: a sandbox shows the environment there, and so what is in it.
            folder = Path(tempfile.mkdtemp(prefix="cdd-projects-"))
            found = examine(case, level, folder=folder)
            if chosen.keep:
                found += f" {folder}"
            else:
                shutil.rmtree(folder, ignore_errors=True)
            bad += not found.startswith(("works", "says", "not run"))
            print(f"{case.name:<24} {level:<9} {found}", flush=True)
    print(f"{bad} did not work, {time.monotonic() - began:.0f} s")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
