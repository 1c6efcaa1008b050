"""The pytest plugin of every run: it validates bytecode by content and lets runs continue to their end.

Python matches bytecode to its source by size and whole seconds, so after a quick edit it can use the old version. This
plugin stores a hash of the source instead, in cdd's own cache. Programs that tests start read the bytecode of installed
code where Python keeps it, and write none. Without a cache, the project's sources are compiled again, because anyone
could have written the bytecode beside them.

``PytestSuite`` runs a copy of this file, which is Python 3.8; xdist's workers load it too. PYTEST_DONT_REWRITE: the
launcher imports it before pytest.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
from hashlib import sha256
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import source_hash
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType
    from typing import Any

    import pytest

_CHECKED_HASH = b"\x03\0\0\0"
"""The second field of bytecode that is checked by hash; the hash has 8 bytes, like time and size together."""
# Not PYTHONPYCACHEPREFIX, with which a program that a test starts would compile all that it imports.
_CACHE = os.environ.get("CDD_BYTECODE")
_PROJECT = os.getcwd() + os.sep
_INSTALLED = tuple(os.path.join(prefix, "lib", "python3") for prefix in (sys.prefix, sys.base_prefix))
"""Installed packages are checked by time and size as usual: hashing all their sources would be slow."""

_read = SourceFileLoader.get_data
_write = SourceFileLoader.set_data
_hashes: dict[str, bytes] = {}


class _ByContent(SourceFileLoader):
    """Methods for Python's own loader that validate bytecode by content."""

    def get_data(self, path: str) -> bytes:
        """Read a file for an import, and remember the hash of a source."""
        content = _read(self, path)
        if path == self.path and not path.startswith(_INSTALLED):
            _hashes[path] = source_hash(content)
        return content

    def set_data(self, path: str, data: bytes, *, _mode: int = 0o666) -> None:  # type: ignore[override]
        """Save bytecode with the hash of the source that ``get_data`` read.

        If a loader of the project reads sources in its own way, nothing is saved.
        """
        source = str(self.path)
        if source.startswith(_INSTALLED):
            _write_whole(self, path, data=data, mode=_mode)
        elif source.startswith(_PROJECT) and source in _hashes:
            if data[4:8] != _CHECKED_HASH:
                data = data[:4] + _CHECKED_HASH + _hashes[source] + data[16:]
            _write_whole(self, path, data=data, mode=_mode)


def _write_whole(loader: SourceFileLoader, path: str, *, data: bytes, mode: int) -> None:
    _write(loader, path, data, _mode=mode)
    # On a full disk, Python leaves a truncated file and fails on it in every later run.
    try:
        if os.path.getsize(path) != len(data):
            os.unlink(path)
    except OSError:
        pass


def _read_compiled(kind: str, source: bytes) -> bytes:
    """Return bytecode that no test can have written, or raise ``FileNotFoundError``."""
    folder = os.environ.get("CDD_COMPILED")
    if folder is None:
        raise FileNotFoundError(kind)
    import pytest  # the caller has imported it, or a plugin that needs it

    tag = f"{sys.implementation.cache_tag}-{pytest.__version__}"
    with open(os.path.join(folder, tag, f"{kind}-{sha256(source).hexdigest()}"), "rb") as stream:
        return stream.read()


class _WithoutCache(SourceFileLoader):
    """The method for Python's own loader that ignores bytecode in the project."""

    def get_data(self, path: str) -> bytes:
        """Read a file for an import; bytecode of the project only from where cdd compiled it."""
        source = str(self.path)
        if path != source and source.startswith(_PROJECT) and not source.startswith(_INSTALLED):
            return _read_compiled("plain", _read(self, source))
        return _read(self, path)


if not _CACHE:
    SourceFileLoader.get_data = _WithoutCache.get_data  # type: ignore[method-assign, assignment]
else:
    SourceFileLoader.get_data = _ByContent.get_data  # type: ignore[method-assign, assignment]
    SourceFileLoader.set_data = _ByContent.set_data  # type: ignore[method-assign, assignment]
    sys.dont_write_bytecode = sys.pycache_prefix is None  # no bytecode outside the cache


def pytest_addoption() -> None:
    """Use the cache: only now, because everything so far is compiled already.

    Without one, pytest's bytecode of test modules is not used; that of installed plugins is as it was installed.
    """
    if _CACHE:
        sys.pycache_prefix, sys.dont_write_bytecode = _CACHE, False
    else:
        from _pytest.assertion import rewrite

        read = rewrite._read_pyc

        def read_installed(source: Path, *rest: Any) -> CodeType | None:
            if str(source).startswith(_INSTALLED):
                return read(source, *rest)
            # With this setting, assertions are rewritten in another way.
            hooks = (each for each in sys.meta_path if isinstance(each, rewrite.AssertionRewritingHook))
            if any(hook.config.getini("enable_assertion_pass_hook") for hook in hooks):
                return None
            return _read_rewritten(source)

        vars(rewrite)["_read_pyc"] = read_installed


def _read_rewritten(source: Path) -> CodeType | None:
    try:
        code: CodeType = marshal.loads(_read_compiled("rewritten", source.read_bytes())[16:])
        import_module("_imp")._fix_co_filename(code, str(source))
    except (ImportError, AttributeError, OSError, EOFError, ValueError, TypeError):
        return None
    return code


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that did not end in an earlier run."""
    names = os.environ.get("CDD_LEFT_OUT", "").splitlines()
    left_out = [item for item in items if item.nodeid in names]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish() -> None:
    """In a run without a cache, which is one of a copy, write down from where modules were imported."""
    if not _CACHE:
        origins = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
        found = {name: os.path.abspath(file) for name, file in origins.items() if isinstance(file, str)}
        # Each worker of xdist writes a file.
        name = os.path.join(os.path.dirname(os.path.dirname(__file__)), f"origins-{os.getpid()}.json")
        with open(name, "w", encoding="ascii") as stream:
            json.dump({"root": _PROJECT, "modules": found}, stream)


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Undo ``--stepwise``, which no command-line option can."""
    for name in ("stepwise", "stepwise_skip", "stepwise_reset"):
        if hasattr(config.option, name):
            setattr(config.option, name, False)
