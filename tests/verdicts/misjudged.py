"""The table of changes that are known to be misjudged, so that a check that is mended shows."""

from collections.abc import Collection, Mapping

from tests.verdicts.change import FOLDER

PATH = FOLDER / "misjudged.txt"
_HEAD = """\
# Changes that are known to be misjudged, and how they were judged when this was written.
# Written by: python -m tests.verdicts --write
"""


def read_misjudged() -> dict[str, str]:
    """Return name of a change -> how it was judged."""
    lines = PATH.read_text(encoding="utf-8").splitlines() if PATH.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {name: summary for name, summary in pairs}


def write_misjudged(table: Mapping[str, str]) -> None:
    """Write the table in the order of names."""
    lines = (f"{name:<48} {table[name]}\n" for name in sorted(table))
    PATH.write_text(_HEAD + "".join(lines), encoding="utf-8")


def find_differences(tried: Collection[str], *, misjudged: Collection[str]) -> list[str]:
    """Return a line for each change that is judged otherwise than the table says."""
    table, found = read_misjudged(), []
    for name in sorted(tried):
        if name in misjudged and name not in table:
            found.append(f"{name} is misjudged now")
        if name in table and name not in misjudged:
            found.append(f"{name} is judged rightly now: remove its line from {PATH.name}")
    return found
