"""JSON looked through before it is decoded: readers differ in what they make of a key that is there twice."""

import json

from cdd_agent.bounds.unfit import UnfitError, check_size


def check(text: str, *, limit_bytes: int) -> None:
    """Raise ``UnfitError`` for what no reader should see, and another ``ValueError`` for what is no JSON."""
    check_size(text, limit_bytes=limit_bytes)
    try:
        json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise UnfitError("it is nested too deeply") from error


def _once(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise UnfitError(f"the key '{name:.80}' is there twice")
        seen.add(name)
