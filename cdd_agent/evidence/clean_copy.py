"""A copy of the project outside its folder: the product as it is now, tests and configuration as RED left them.

The copy is a plain folder made through a private index. The user's index, HEAD, stash, configuration and list of work
trees are never touched, and nothing but a temporary folder is left even by ``kill -9``. What git does not hold, such as
ignored files, is not in it; neither is compiled code that an earlier run may have planted.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from cdd_agent.evidence.trees import entries, project_in
from cdd_agent.git.repository import Repository, encoded, private_index
from cdd_agent.testrun.run import Suite
from pytest_tdd_agent.fingerprint import digests, is_protected

_SHARED = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})
"""Files of which a section configures pytest; the rest is the product's."""


@contextlib.contextmanager
def clean_copy(repository: Repository, suite: Suite, *, green: str, red: str) -> Iterator[Suite]:
    """The suite in a copy of the tree ``green`` with the protected files of ``red``; gone after the block."""
    project = project_in(repository, suite)
    with tempfile.TemporaryDirectory(prefix="cdd-copy-") as temporary:
        folder = Path(temporary).resolve() / repository.root.resolve().name
        with private_index() as index:
            repository.git("read-tree", green, variables=index)
            swaps = _restored(
                entries(repository, green), entries(repository, red), project=project, repository=repository
            )
            repository.git("update-index", "-z", "--index-info", stdin=encoded("".join(swaps)), variables=index)
            repository.git("checkout-index", "--all", "--force", f"--prefix={folder}{os.sep}", variables=index)
        root = folder / project
        root.mkdir(parents=True, exist_ok=True)
        yield replace(suite, root=root, bytecode=None)


def _restored(
    green: Mapping[str, tuple[str, str]], red: Mapping[str, tuple[str, str]], *, project: str, repository: Repository
) -> Iterator[str]:
    """The lines for ``update-index`` that bring tests and configuration back to what they were in ``red``."""
    for path in sorted({*green, *red}):
        before, now = red.get(path), green.get(path)
        if before == now:
            continue
        inside = path.removeprefix(f"{project}/") if project else path
        is_shared = path.rpartition("/")[2] in _SHARED and _configures_anew(
            before, now, path=path, repository=repository
        )
        if not (is_shared or is_protected(path) or is_protected(inside)):
            continue
        mode, object_id = before or ("0", "0" * len(now[1] if now else ""))
        yield f"{mode} {object_id}\t{path}\0"


def _configures_anew(
    before: tuple[str, str] | None, now: tuple[str, str] | None, *, path: str, repository: Repository
) -> bool:
    """Whether pytest's section of a configuration file differs."""
    sections = []
    for entry in (before, now):
        with tempfile.TemporaryDirectory(prefix="cdd-section-") as folder:
            if entry is not None:
                text = repository.git("cat-file", "blob", entry[1])
                (Path(folder) / path.rpartition("/")[2]).write_bytes(encoded(text))
            sections.append(digests(Path(folder)))
    return sections[0] != sections[1]
