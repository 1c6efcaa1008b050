"""Compiles sources with the project's interpreter, as pytest and Python would, and runs none of them.

``CompiledSources`` runs a copy of this file, which is Python 3.8 and needs only pytest. ``run_plugin`` reads the result
in later runs.
"""

from __future__ import annotations

import marshal
import sys
import warnings
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def main() -> None:
    """Compile the files of one folder into another; leave out what cannot be compiled, or only with a warning."""
    sources, folder = map(Path, sys.argv[1:])
    made = folder / f"{sys.implementation.cache_tag}-{pytest.__version__}"
    made.mkdir(exist_ok=True)
    warnings.simplefilter("error")  # a later run would not repeat it
    for source in sources.iterdir():
        try:
            if source.name.startswith("rewritten"):
                _, code = rewrite._rewrite_test(source, None)  # type: ignore[arg-type]
            else:
                code = compile(source.read_bytes(), str(source), "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, Warning):
            continue
        # Of a source whose content is known: the second field says that nothing is to be checked.
        content = MAGIC_NUMBER + b"\1\0\0\0" + bytes(8) + marshal.dumps(code)
        (made / source.name).write_bytes(content)


if __name__ == "__main__":
    main()
