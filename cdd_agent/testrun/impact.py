"""Which tests a change to a file can break: those that entered its functions in the last run of all tests.

The map is advice to the model and no evidence: it knows neither code that runs on import nor other processes.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from cdd_agent.errors import format_count, join_first
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.work.records import find_records

_LIMIT_BYTES = 32_000_000
_MOST_NAMED = 8
"""Tests of one file with tests that are named."""
_MOST_ROWS = 60
"""Files of the product that are described."""
_MOST_FILES = 12
"""Files with tests that are named for one file of the product."""


class ImpactMap(msgspec.Struct, frozen=True, kw_only=True):
    """The tests that entered each file of a project."""

    schema: Literal[1] = 1
    files: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Path of a file, relative to the project -> node ids without parameters, sorted."""

    def update(self, entered: Mapping[str, Collection[str]], *, ran: Iterable[str]) -> "ImpactMap":
        """Return the map after another run of the tests ``ran``, which entered these files."""
        anew = {nodeid.partition("[")[0] for nodeid in ran}
        known = {path: {test for test in tests if test not in anew} for path, tests in self.files.items()}
        for path, tests in entered.items():
            known.setdefault(path, set()).update(tests)
        return ImpactMap(files={path: tuple(sorted(tests)) for path, tests in sorted(known.items()) if tests})

    def find_tests(self, path: str, *, but: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """Return file with tests -> its tests that enter ``path``, without those in ``but``."""
        found: dict[str, tuple[str, ...]] = {}
        for test in self.files.get(path, ()):
            file, _, name = test.partition("::")
            if test not in but and file not in but:
                found[file] = (*found.get(file, ()), name)
        return found

    def describe(self, paths: Iterable[str], *, but: Collection[str] = ()) -> str:
        """Return the tests that enter each of the files, one line a file; empty if none is known."""
        rows = []
        for path in dict.fromkeys(paths):
            found = self.find_tests(path, but=but)
            parts = [_describe_tests(file, names) for file, names in found.items()]
            if parts:
                rows.append(f"- `{path}`: {join_first(parts, most=_MOST_FILES)}")
        return join_first(rows, most=_MOST_ROWS, separator="\n")


def _describe_tests(file: str, names: tuple[str, ...]) -> str:
    if len(names) <= _MOST_NAMED:
        return f"{file} ({', '.join(names)})"
    return f"{file} ({format_count(len(names), 'test')})"


def find_impact(project: Path) -> Path:
    """Return the file with the map of a project."""
    return find_records(project).folder / "impact.json"


def load_impact(path: Path) -> ImpactMap:
    """Return the map in a file; an empty one if there is none that can be read, because the next run makes it again."""
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(read_ordinary(path, limit_bytes=_LIMIT_BYTES), type=ImpactMap)
    return ImpactMap()


def save_impact(found: ImpactMap, path: Path) -> None:
    """Save the map."""
    write_atomic(path, msgspec.json.encode(found))
