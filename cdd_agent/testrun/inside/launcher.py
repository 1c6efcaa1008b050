"""Starts pytest in the project's interpreter, like ``python -m pytest`` but with the installed pytest.

``python -m`` puts the current folder first on the path, where a file ``pytest.py`` of the project would replace pytest.
``PytestSuite`` runs a copy of this file, which is Python 3.8 and needs only pytest. It adds the folder ``plugins`` to
the path itself: through PYTHONPATH, programs that tests start would get it too.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run pytest with the arguments of this program, after those for the launcher.

    The launcher's arguments are the folder for bytecode, or an empty text, and the module names of the copies of
    ``run_plugin`` and of the plugin.
    """
    # pytest searches all objects for garbage when it ends, which takes a fifth of a short run; these modules stay.
    gc.disable()
    plugins = Path(__file__).with_name("plugins")
    sys.path[0] = str(plugins)
    cache = sys.argv.pop(1)
    if cache:
        os.environ["CDD_BYTECODE"] = cache
    import_module(sys.argv.pop(1))  # run_plugin changes how pytest itself is loaded
    plugin = sys.argv.pop(1)
    # Imported before pytest starts to rewrite assertions, which would double the time.
    for module in (f"{plugin}.plugin", f"{plugin}.audit"):
        import_module(module)

    import pytest

    if hasattr(gc, "freeze"):  # PyPy has none
        gc.freeze()
    gc.enable()
    sys.path[0] = os.getcwd()
    sys.path.append(str(plugins))
    sys.argv[0] = str(Path(pytest.__file__).with_name("__main__.py"))
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":  # processes that tests spawn import this file again
    sys.exit(main())
