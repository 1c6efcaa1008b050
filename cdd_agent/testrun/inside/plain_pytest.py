"""Starts pytest without cdd's plugin and any other module of cdd: pytest's own results are what is judged.

``PytestSuite`` runs a copy of this file, which is Python 3.8 and needs only pytest. Like ``python -m pytest``, it puts
the current folder first on the path, but only after pytest is imported, so that no file of the project replaces it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    import pytest


def main() -> int:
    """Run pytest as the file ``task.json`` says. A program that a test starts may read the command line of its parent.

    ``arguments`` are those of pytest. ``hides_run``: tests and what they start do not see that pytest runs them.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "task.json"), encoding="utf-8") as stream:
        task = json.load(stream)
    os.unlink(stream.name)
    sys.path[:] = [entry for entry in sys.path if entry != folder]

    import pytest

    sys.path.insert(0, os.getcwd())
    sys.argv[:] = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *task["arguments"]]
    globals()["__file__"] = sys.argv[0]  # processes that tests spawn import this file
    plugins = [_make_observer(folder), *([_make_cover()] if task["hides_run"] else [])]
    return int(pytest.main(sys.argv[1:], plugins=plugins))


def _make_observer(folder: str) -> object:
    import pytest

    class Observer:
        """Notes from where modules were imported. It has nothing to do with results."""

        @pytest.hookimpl(tryfirst=True)
        def pytest_sessionfinish(self) -> None:
            """Write module -> file."""
            here = os.getcwd()
            files = ((name, getattr(module, "__file__", None)) for name, module in [*sys.modules.items()])
            found = {name: os.path.join(here, file) for name, file in files if isinstance(file, str)}
            content = {"root": here + os.sep, "modules": found}
            with open(os.path.join(folder, f"origins-{os.getpid()}.json"), "w", encoding="ascii") as stream:
                json.dump(content, stream)

    return Observer()


def _make_cover() -> object:
    import pytest
    from _pytest import runner

    class Cover:
        """Hides pytest's variables and log handlers, except from tests that use them."""

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            """Keep the variables if a test file or ``conftest.py`` names one of them."""
            plugins = session.config.pluginmanager.get_plugins()
            files = {getattr(each, "__file__", None) or "" for each in plugins} | {str(e.fspath) for e in session.items}
            own = [file for file in files if file.startswith(os.getcwd()) and file.endswith(".py")]
            if not any(b"PYTEST_" in _read(file) for file in own):
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


def _read(file: str) -> bytes:
    if not os.path.isfile(file):
        return b""
    with open(file, "rb") as stream:
        return stream.read()


if __name__ == "__main__":  # processes that tests spawn import this file again
    sys.exit(main())
