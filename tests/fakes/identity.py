"""An identity for commits, on machines where git has none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def git_identity() -> Iterator[None]:
    """Let git know a name and an email during the block."""
    with pytest.MonkeyPatch.context() as environment:
        for who in ("AUTHOR", "COMMITTER"):
            environment.setenv(f"GIT_{who}_NAME", "Ada")
            environment.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
        yield
