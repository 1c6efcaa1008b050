"""A run in a copy sees the copy: paths of installed packages, and PYTHONPATH, that lead into the project lead there.

An editable install names the project's folder, whatever a copy holds. Without this the tests of an old commit would
judge the product of today.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cdd_agent.sandbox.port import Command, Result, Sandbox
from cdd_agent.testrun.run import PytestSuite
from cdd_agent.testrun.suite import Suite

_SITECUSTOMIZE = """\
import os, sys

HERE, ROOTS, COPY = {here!r}, {roots!r}, {copy!r}


def is_of_environment(path, root):
    parts = path[len(root):].strip(os.sep).split(os.sep)
    folders = [os.path.join(root, *parts[:end]) for end in range(1, len(parts) + 1)]
    marks = [os.path.join(folder, mark) for folder in folders for mark in ("pyvenv.cfg", "conda-meta")]
    return any(part.endswith("-packages") for part in parts) or any(map(os.path.exists, marks))


def moved(path):
    for root in ROOTS:
        if isinstance(path, str) and (path + os.sep).startswith(root + os.sep) and not is_of_environment(path, root):
            return COPY + path[len(root):]
    return path


sys.path[:] = [moved(path) for path in sys.path if path != HERE]
for finder in list(sys.meta_path):
    module = sys.modules.get(getattr(finder, "__module__", ""))
    mapping = getattr(module, "MAPPING", None)
    if getattr(module, "__name__", "").startswith("__editable__") and isinstance(mapping, dict):
        mapping.update((name, moved(path)) for name, path in list(mapping.items()))
this = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    pass
finally:
    sys.modules.setdefault("sitecustomize", this)
"""
"""Python 3.8, run at every start of the interpreter, once its path is made; then comes the one that is there else."""


@contextmanager
def seeing_itself(copy: Suite, *, top: Path, copied: Path) -> Iterator[Suite]:
    """``copy`` with what leads into the work tree ``top`` leading into ``copied``, but for environments in it."""
    if not isinstance(copy, PytestSuite):
        yield copy
        return
    roots = tuple(dict.fromkeys(map(str, (top, top.resolve()))))
    with tempfile.TemporaryDirectory(prefix="cdd-audit-", ignore_cleanup_errors=True) as folder:
        here = Path(folder).resolve()
        text = _SITECUSTOMIZE.format(here=str(here), roots=roots, copy=str(copied))
        (here / "sitecustomize.py").write_text(text, encoding="utf-8", errors="surrogateescape")
        yield copy.shut_in(_Redirected(copy.sandbox, here))


class _Redirected:
    """A sandbox in which every Python begins by moving its paths."""

    def __init__(self, sandbox: Sandbox, here: Path) -> None:
        self.level = sandbox.level
        self._sandbox = sandbox
        self._here = here

    def run(self, command: Command) -> Result:
        """Run the program with our folder before all others on Python's path."""
        given = [entry for entry in command.variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        variables = {**command.variables, "PYTHONPATH": os.pathsep.join((str(self._here), *given))}
        access = replace(command.access, read_only=(*command.access.read_only, self._here))
        return self._sandbox.run(replace(command, variables=variables, access=access))
