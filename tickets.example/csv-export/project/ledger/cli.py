"""The command line."""

from pathlib import Path

from ledger import entries

USAGE = "usage: ledger total FILE"


def main(arguments: list[str]) -> int:
    """Run one command and return the exit status."""
    match arguments:
        case ["total", path]:
            print(entries.total(_load(path)))
            return 0
        case _:
            print(USAGE)
            return 2


def _load(path: str) -> list[entries.Entry]:
    return entries.read(Path(path).read_text(encoding="utf-8").splitlines())
