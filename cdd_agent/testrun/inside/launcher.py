"""Starts pytest in the project's interpreter, like ``python -m pytest`` but with the installed pytest.

``python -m`` puts the current folder first on the path, where a file ``pytest.py`` of the project would replace pytest.
``PytestSuite`` runs a copy of this file, which is Python 3.8 and needs only pytest. It adds the folder ``plugins`` to
the path itself: through PYTHONPATH, programs that tests start would get it too.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest


def main() -> int:
    """Run pytest as the file ``task.json`` says. A program that a test starts may read the command line of its parent.

    ``bytecode`` is the folder for it, or an empty text, ``modules`` are the copies of ``run_plugin`` and of the plugin,
    ``arguments`` those of pytest, ``ignored`` what git ignores, or null. ``hides_run``: tests and what they start do
    not see that pytest runs them.
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
    for module in (f"{plugin}.plugin", f"{plugin}.audit"):
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
    return int(pytest.main(sys.argv[1:], plugins=[_make_cover()] if task["hides_run"] else []))


def _make_cover() -> object:
    import pytest
    from _pytest import runner

    class Cover:
        """Hides pytest's variables and log handlers, except from tests that use them."""

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            """Keep the variables if a test file or ``conftest.py`` names one of them."""
            plugins = session.config.pluginmanager.get_plugins()
            files = {getattr(each, "__file__", None) or "" for each in plugins} | {str(e.fspath) for e in session.items}
            own = [Path(file) for file in files if file.startswith(os.getcwd()) and file.endswith(".py")]
            if not any(b"PYTEST_" in file.read_bytes() for file in own if file.is_file()):
                for name in ("PYTEST_VERSION", "PYTEST_CURRENT_TEST"):
                    os.environ.pop(name, None)
                vars(runner)["_update_current_test_var"] = lambda *_: None

        @pytest.hookimpl(hookwrapper=True)
        def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, None, None]:
            """Hide the log handlers from a test without ``caplog``; no record is printed because of that."""
            root, last = logging.getLogger(), logging.lastResort
            own = [each for each in root.handlers if type(each).__module__ == "_pytest.logging"]
            hidden = [] if "caplog" in pyfuncitem.fixturenames else own
            root.handlers[:] = [each for each in root.handlers if each not in hidden]
            logging.lastResort = logging.NullHandler()
            yield
            logging.lastResort = last
            root.handlers[:] = [*hidden, *root.handlers]

    return Cover()


if __name__ == "__main__":  # processes that tests spawn import this file again
    sys.exit(main())
