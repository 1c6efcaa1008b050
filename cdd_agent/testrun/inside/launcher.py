"""What starts pytest in the project's interpreter: as ``python -m pytest`` would, but with the pytest installed there.

``python -m`` puts the current folder before everything else, so that a file ``pytest.py`` of the project would be taken
for pytest. ``PytestSuite`` runs a copy of this file; it knows nothing but pytest, and is Python 3.8. ``plugins``
beside it goes onto the path here and not through PYTHONPATH, so that programs which tests start do not get it; xdist's
workers do. Processes that tests spawn import this file again, hence the guard at its end.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run pytest with the arguments of this program, and only then with the current folder on the path.

    The first arguments name the cache for compiled code, if there is one, and the copies of ``run_plugin``, which has
    to be there before pytest is imported, and of the plugin, which is imported before pytest begins to rewrite what it
    imports: that would take as long again. The cache is for what comes after: all this is compiled already.
    """
    plugins = Path(__file__).with_name("plugins")
    sys.path[0] = str(plugins)
    cache = sys.argv.pop(1)
    if cache:
        os.environ["PYTHONPYCACHEPREFIX"] = cache
    import_module(sys.argv.pop(1))
    plugin = sys.argv.pop(1)
    for module in (f"{plugin}.plugin", f"{plugin}.audit"):
        import_module(module)

    import pytest

    if cache:
        sys.pycache_prefix, sys.dont_write_bytecode = cache, False
    sys.path[0] = os.getcwd()
    sys.path.append(str(plugins))
    sys.argv[0] = str(Path(pytest.__file__).with_name("__main__.py"))
    return int(pytest.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
