"""Keeps the bytecode of a project's files between the runs of gates, which trust no bytecode that tests could write.

A process of its own compiles the files and runs nothing of the project. Runs only read the result, by the digest of
each source. It is kept as long as cdd runs.
"""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cdd_agent.sandbox.port import Command, Sandbox
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import build_access, build_user_base_variable
from cdd_agent.testrun.interpreter import Interpreter

_LEAST_BYTES = 30_000
"""Of sources: the process takes as long as pytest takes to compile these."""
_MOST_BYTES = 2_000_000
"""Of one source."""


@dataclass(kw_only=True)
class CompiledSources:
    """The bytecode of the sources seen so far, for one interpreter."""

    folder: Path | None = None
    """Where it is; None: nowhere yet."""
    _known: set[str] = field(default_factory=set)

    def add(self, files: Iterable[Path], *, interpreter: Interpreter, sandbox: Sandbox, timeout_s: float) -> None:
        """Compile the Python files that are new or have changed, if they are many."""
        found: dict[str, bytes] = {}
        for file in files:
            if any(part.endswith("-packages") for part in file.parts):
                continue  # installed in the project's folder
            try:
                content = read_ordinary(file, limit_bytes=_MOST_BYTES)
            except OSError:
                continue
            is_test = file.name.startswith(("test_", "conftest.py")) or file.name.endswith("_test.py")
            found[f"{'rewritten' if is_test else 'plain'}-{hashlib.sha256(content).hexdigest()}"] = content
        new = found.keys() - self._known
        if sum(len(found[name]) for name in new) < _LEAST_BYTES:
            return
        self._known |= new
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="cdd-compiled-")).resolve()
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="cdd-sources-", ignore_cleanup_errors=True) as name:
            place = Path(name).resolve()
            (place / "sources").mkdir()
            for each in new:
                (place / "sources" / each).write_bytes(found[each])
            program = shutil.copy(Path(__file__).parent / "inside" / "compiler.py", place)
            command = Command(
                argv=(str(interpreter.path), "-B", str(program), str(place / "sources"), str(self.folder)),
                cwd=place,
                access=build_access(place, interpreter, read_write=(self.folder,)),
                variables=build_user_base_variable(interpreter.user_base),
                timeout_s=timeout_s,
            )
            sandbox.run(command)
