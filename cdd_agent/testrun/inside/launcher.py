"""Starts pytest in the project's interpreter, like ``python -m pytest`` but with the installed pytest.

``python -m`` puts the current folder first on the path, where a file ``pytest.py`` of the project would replace pytest.
``PytestSuite`` runs a copy of this file, which is Python 3.8 and needs only pytest. It adds the folder ``plugins`` to
the path itself: through PYTHONPATH, programs that tests start would get it too.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run pytest as the file ``task.json`` says. A program that a test starts may read the command line of its parent.

    ``bytecode`` is the folder for it, or an empty text, ``modules`` are the copies of ``run_plugin`` and of the plugin,
    ``arguments`` those of pytest, ``ignored`` what git ignores, or null.
    """
    # Standard output is the stream of records; all that pytest and the tests print goes to standard error.
    os.environ["PYTEST_TDD_AGENT_RECORDS"] = str(os.dup(1))
    os.dup2(2, 1)
    file = Path(__file__).with_name("task.json")
    task = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    # pytest searches all objects for garbage when it ends, which takes a fifth of a short run; these modules stay.
    gc.disable()
    plugins = Path(__file__).with_name("plugins")
    sys.path[0] = str(plugins)
    if task["bytecode"]:
        os.environ["CDD_BYTECODE"] = task["bytecode"]
    run_plugin, plugin = task["modules"]
    import_module(run_plugin)  # it changes how pytest itself is loaded
    # Imported before pytest starts to rewrite assertions, which would double the time.
    for module in (f"{plugin}.plugin", f"{plugin}.tampering"):
        import_module(module)
    if task["ignored"] is not None:
        known = import_module(f"{plugin}.fingerprint").KNOWN_IGNORED
        known[os.getcwd()] = frozenset(name.rstrip("/") for name in task["ignored"])

    import pytest

    if hasattr(gc, "freeze"):  # PyPy has none
        gc.freeze()
    gc.enable()
    sys.path[0] = os.getcwd()
    sys.path.append(str(plugins))
    sys.argv[:] = [str(Path(pytest.__file__).with_name("__main__.py")), *task["arguments"]]
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":  # processes that tests spawn import this file again
    sys.exit(main())
