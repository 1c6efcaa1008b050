"""``plan.md``: a plan or ``DocumentError``."""

from random import Random

from cdd_agent.errors import DocumentError
from cdd_agent.tickets import plan, plan_markdown
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import bent, pick, plain, text
from tests.fuzz.trial import Target, stored_texts

_KEYS = (
    *(
        "Depends on",
        "Files",
        "Tests",
        "Criteria",
        "Kind",
        "Size",
        "Description",
        "Dependencies",
        "Estimated time",
        "Fils",
    ),
    *("files_affected", "**Files**", "__Tests__", "Acceptance criteria"),
)
_VALUES = (
    *(
        "none",
        "1, 2",
        "1-3",
        "Step 1 and #2",
        "`a.py`, `b.py` (new)",
        "src/a.py; src/b.py",
        "``a`b``",
        "[a](b.md)",
        "AC-1",
    ),
    *(
        "feature",
        "docs",
        "small",
        "1-999, 1-999",
        "1-2000",
        "999999999",
        "",
        "TBD: later",
        "a and b & c + d",
        "(see 1)",
    ),
)
_HEADINGS = (
    "# Implementation Plan: CSV",
    "## Overview",
    "## Steps",
    "## Risks",
    "## Notes",
    "### Tasks:",
    "# **Risks**",
)
_STEPS = (
    "### Step {}: {}",
    "## Step {}. {}",
    "### [x] Step {} - {}",
    "#### {}. {}",
    "### Step {}",
    "# Step {}: {}",
    "### Step {}a: {}",
)
_LINES = (
    "- [ ] done",
    "* [x]",
    "1. [X] complete",
    "  - `a.py`",
    "    src/b.py",
    "```",
    "~~~python",
    "<!-- a",
    "b -->",
    "---",
    "",
)


def _line(random: Random) -> str:
    kind = random.random()
    if kind < 0.45:
        bullet = pick(random, ("- ", "* ", "", "  - ", "**"))
        return f"{bullet}{pick(random, _KEYS)}: {pick(random, _VALUES) if random.random() < 0.8 else text(random)}"
    if kind < 0.6:
        return pick(random, _LINES)
    if kind < 0.7:
        return pick(random, _HEADINGS)
    if kind < 0.85:
        return pick(random, _STEPS).format(random.choice([1, 1, 2, 3, 0, 10**8, 10**12]), text(random, most=2))
    return text(random)


def make(random: Random) -> str:
    """A plan, most often bent."""
    lines = [pick(random, _HEADINGS[:3]), *(_line(random) for _ in range(random.randint(0, 14)))]
    if random.random() < 0.5:
        lines[1:1] = [
            "## Steps",
            f"### Step 1: {plain(random)}",
            "- Files: `a.py`",
            "- Tests: `t.py`",
            "- Criteria: AC-1",
            "",
        ]
    document = "\n".join(lines)
    return bent(random, document) if random.random() < 0.6 else document


def read(document: str) -> None:
    """Read it, and look for problems."""
    found = plan_markdown.parse(document, path="plan.md")
    plan.find_problems(found, criteria=("AC-1",))
    plan.find_warnings(found)


TARGET = Target(make=make, read=read, allowed=(DocumentError,), corpus=stored_texts("plan"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` plans."""
    return TARGET.run(count, seed)
