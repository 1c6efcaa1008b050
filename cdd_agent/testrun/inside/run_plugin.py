"""The plugin that goes with every run of ours: compiled code is kept by content, and the run goes on to its end.

``PytestSuite`` runs a copy of this file; it is Python 3.8. xdist's workers load it too. PYTEST_DONT_REWRITE: launcher
imports it before pytest.

Python tells bytecode from its source by size and whole seconds, so it can be of the version before an edit. In the
processes that have this plugin it is told by a hash of the source; programs that tests start read it and write none.
Without a cache of ours the project's sources are compiled anew: bytecode beside them may be anybody's.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import source_hash
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_CHECKED_HASH = b"\x03\0\0\0"
"""The second field of compiled code that is told by a hash; what follows is 8 bytes, as are time and size."""
_HAS_CACHE = bool(os.environ.get("PYTHONPYCACHEPREFIX"))
_PROJECT = os.getcwd() + os.sep
_INSTALLED = tuple(os.path.join(prefix, "lib", "python3") for prefix in (sys.prefix, sys.base_prefix))
"""What is installed is told by time and size, as anywhere: reading all its sources for each run would take long."""

_read = SourceFileLoader.get_data
_write = SourceFileLoader.set_data
_hashes: dict[str, bytes] = {}


class _ByContent(SourceFileLoader):
    """What Python's own loader is made to do."""

    def get_data(self, path: str) -> bytes:
        """Read a file for an import; take the hash of a source."""
        content = _read(self, path)
        if path == self.path and not path.startswith(_INSTALLED):
            _hashes[path] = source_hash(content)
        return content

    def set_data(self, path: str, data: bytes, *, _mode: int = 0o666) -> None:  # type: ignore[override]
        """Keep what was compiled just now from the source that ``get_data`` read.

        A loader of the project that reads its sources by itself keeps nothing.
        """
        source = str(self.path)
        if source.startswith(_INSTALLED):
            _keep(self, path, data=data, mode=_mode)
        elif source.startswith(_PROJECT) and source in _hashes:
            if data[4:8] != _CHECKED_HASH:
                data = data[:4] + _CHECKED_HASH + _hashes[source] + data[16:]
            _keep(self, path, data=data, mode=_mode)


def _is_of_project(source: str) -> bool:
    """Whether a source is the project's own."""
    return source.startswith(_PROJECT) and not source.startswith(_INSTALLED)


def _keep(loader: SourceFileLoader, path: str, *, data: bytes, mode: int) -> None:
    """Write compiled code whole or not at all: Python keeps what a full disk cuts off, and fails on it ever after."""
    _write(loader, path, data, _mode=mode)
    try:
        if os.path.getsize(path) != len(data):
            os.unlink(path)
    except OSError:
        pass


class _Anew(SourceFileLoader):
    """What Python's own loader is made to do where there is no cache."""

    def get_data(self, path: str) -> bytes:
        """Read a file for an import, but no compiled code of the project's."""
        if path != self.path and _is_of_project(str(self.path)):
            raise FileNotFoundError(path)
        return _read(self, path)


if not _HAS_CACHE:
    SourceFileLoader.get_data = _Anew.get_data  # type: ignore[method-assign, assignment]
else:
    SourceFileLoader.get_data = _ByContent.get_data  # type: ignore[method-assign, assignment]
    SourceFileLoader.set_data = _ByContent.set_data  # type: ignore[method-assign, assignment]
    sys.dont_write_bytecode = sys.pycache_prefix is None  # what is not meant for the cache is not written elsewhere


def pytest_addoption() -> None:
    """Without a cache of ours, take no test module either that pytest, or whoever, has compiled before.

    Pytest looks for it by a name, which is one of its own then.
    """
    if not _HAS_CACHE:
        from _pytest.assertion import rewrite

        rewrite.PYC_TAIL = f".{os.urandom(8).hex()}.pyc"


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Undo ``--stepwise``, which no option of the command line can."""
    for name in ("stepwise", "stepwise_skip", "stepwise_reset"):
        if hasattr(config.option, name):
            setattr(config.option, name, False)
