"""Reads settings of a project, of which any may be missing, damaged or hostile: then they are empty."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from cdd_agent.storage import read_ordinary

_MOST_BYTES = 4_000_000


def read_toml(path: Path) -> dict[str, object]:
    """Read a TOML file; the result is empty if that fails."""
    try:
        return tomllib.loads(read_content(path).decode("utf-8"))
    except (ValueError, RecursionError):
        return {}


def read_content(path: Path) -> bytes:
    """Read a file of the project; the result is empty if that fails."""
    try:
        return read_ordinary(path, limit_bytes=_MOST_BYTES, through_links=True)
    except OSError:
        return b""


def get_table(inside: Mapping[str, object], *names: str) -> dict[str, object]:
    """Return the table that the names lead to, or an empty one."""
    found: object = inside
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}
