"""Reading a duration."""

import re

_FORM = re.compile(r"(?:(?P<hours>\d+)\s*h)?\s*(?:(?P<minutes>\d+)\s*m)?")


def minutes(text):
    """Return the whole minutes of a duration; raise ValueError for anything else."""
    found = _FORM.match(text.strip())
    if found is None or not found.group():
        raise ValueError(f"not a duration: {text!r}")
    return int(found["hours"] or 0) * 60 + int(found["minutes"] or 0)
