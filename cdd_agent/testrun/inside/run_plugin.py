"""The pytest plugin of every run: it validates bytecode by content, lets runs continue to their end, and notes which
tests enter which files.

Python matches bytecode to its source by size and whole seconds, so after a quick edit it can use the old version. This
plugin stores a hash of the source instead, in cdd's own cache. Programs that tests start read the bytecode of installed
code where Python keeps it, and write none. Without a cache, the project's sources are compiled again, because anyone
could have written the bytecode beside them.

``PytestSuite`` runs a copy of this file, which is Python 3.8; xdist's workers load it too. PYTEST_DONT_REWRITE: the
launcher imports it before pytest.
"""

from __future__ import annotations

import inspect
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
    from collections.abc import Iterator
    from pathlib import Path
    from types import CodeType, FrameType
    from typing import Any

    import pytest

_CHECKED_HASH = b"\x03\0\0\0"
"""The second field of bytecode that is checked by hash; the hash has 8 bytes, like time and size together."""
# Not PYTHONPYCACHEPREFIX, with which a program that a test starts would compile all that it imports.
_CACHE = os.environ.get("CDD_BYTECODE")
_TRACES = os.environ.get("CDD_TRACES") == "1"
"""Whether the functions that tests enter are noted too, not only their files."""
_COMPILED = os.environ.get("CDD_COMPILED")
_PROJECT = os.getcwd() + os.sep
_SEPARATOR = os.sep
_modules = sys.modules
_INSTALLED = tuple(os.path.join(prefix, "lib", "python3") for prefix in (sys.prefix, sys.base_prefix))
"""Installed packages are checked by time and size as usual: hashing all their sources would be slow."""

_read = SourceFileLoader.get_data
_write = SourceFileLoader.set_data
# Tests may replace these while they import a module or for good.
_open, _stat, _unlink, _getpid, _quote = open, os.stat, os.unlink, os.getpid, json.encoder.encode_basestring_ascii
_settrace = sys.settrace
_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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
        if _stat(path).st_size != len(data):
            _unlink(path)
    except OSError:
        pass


def _read_compiled(kind: str, source: bytes) -> bytes:
    """Return bytecode that no test can have written, or raise ``FileNotFoundError``."""
    folder = _COMPILED
    if folder is None:
        raise FileNotFoundError(kind)
    # The caller has imported pytest, or a plugin that needs it; a test may replace what an import statement calls.
    tag = f"{sys.implementation.cache_tag}-{_modules['pytest'].__version__}"
    with _open(f"{folder}{_SEPARATOR}{tag}{_SEPARATOR}{kind}-{sha256(source).hexdigest()}", "rb") as stream:
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


class _Entered:
    """Which test enters functions of which files of the project, for a run without a cache, which is one for evidence.

    From Python 3.12 on, Python reports each function's first call in a test, which costs 2 to 3 % of the time. Before,
    only coverage knows, so nothing is known unless the project measures it. Where functions are to be noted, each call
    is traced there.
    """

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        """Test without parameters -> absolute paths, and functions as ``path::name``."""
        self._names: dict[int, str] = {}
        """Number of a function's code -> the function."""
        self._codes: list[CodeType] = []
        """Kept, so that no other code gets the number of one."""
        self.is_last = False
        self._test = ""
        self._entered: list[CodeType] = []
        self._coverage: Any = None
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._tool = self._register_tool()

    def _register_tool(self) -> int | None:
        for tool in (3, 4):  # the numbers that Python keeps for no kind of tool
            try:
                self._monitoring.use_tool_id(tool, "tdd-agent")
            except (AttributeError, ValueError):
                continue
            self._monitoring.register_callback(tool, self._monitoring.events.PY_START, self._note)
            return tool
        return None

    def _note(self, code: CodeType, _: int) -> object:
        if self._test:
            self.files[self._test].add(code.co_filename)
            if _TRACES:
                self.files[self._test].add(self._names[id(code)])
            self._entered.append(code)
        return self._monitoring.DISABLE

    def _trace(self, frame: FrameType, *_: object) -> None:
        name = self._names.get(id(frame.f_code))
        if name is not None and self._test:
            self.files[self._test].update((frame.f_code.co_filename, name))

    def watch(self, code: CodeType, owner: str = "") -> None:
        """Report calls of the functions in ``code``, but not that of a module or a class body."""
        for inner in code.co_consts if self._tool is not None or _TRACES else ():
            if isinstance(inner, type(code)):
                if inner.co_flags & inspect.CO_OPTIMIZED:
                    if self._tool is not None:
                        self._monitoring.set_local_events(self._tool, inner, self._monitoring.events.PY_START)
                    if _TRACES:
                        self._names[id(inner)] = f"{inner.co_filename}::{owner}{inner.co_name}"
                        self._codes.append(inner)
                self.watch(inner, f"{owner}{inner.co_name}.")

    def begin(self, nodeid: str) -> None:
        """Attribute what is entered from now on to a test."""
        self._test = nodeid.partition("[")[0]
        self.files.setdefault(self._test, set())
        # Not restart_events, which would restart the events of coverage too.
        for code in self._entered:
            self._monitoring.set_local_events(self._tool, code, 0)
            self._monitoring.set_local_events(self._tool, code, self._monitoring.events.PY_START)
        self._entered.clear()
        if self._tool is None and _TRACES:
            # Again for each test: one that traces itself ends this.
            _settrace(self._trace)
            _modules["threading"].settrace(self._trace)  # pytest has imported it
        elif self._tool is None and "coverage" in sys.modules:
            self._follow_coverage(nodeid)

    def _follow_coverage(self, nodeid: str) -> None:
        self._coverage = getattr(sys.modules["coverage"].Coverage, "current", lambda: None)()
        # Contexts that the project itself switches stay as they are.
        if self._coverage is not None and not self._coverage.get_option("run:dynamic_context"):
            self._coverage.switch_context(nodeid)

    def end(self) -> None:
        """Read what coverage knows after the last test, while it still measures."""
        if self._coverage is None or not self.is_last:
            return
        data = self._coverage.get_data()
        for file in data.measured_files():
            for contexts in data.contexts_by_lineno(file).values():
                for context in contexts:
                    # pytest-cov adds the phase after a bar, and coverage a static context before one.
                    for test in context.partition("[")[0].split("|"):
                        if test in self.files:
                            self.files[test].add(file)


_entered = None if _CACHE else _Entered()
_compile = SourceFileLoader.get_code


def _get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
    code = _compile(self, fullname)
    is_own = self.path.startswith(_PROJECT) and not self.path.startswith(_INSTALLED)
    if _entered is not None and code is not None and is_own:
        _entered.watch(code)
    return code


if _entered is not None:
    SourceFileLoader.get_code = _get_code  # type: ignore[method-assign, assignment]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Attribute the calls that follow to this test."""
    if _entered is not None:
        _entered.begin(nodeid)


def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Attribute the calls while a file is imported to the file."""
    if _entered is not None and _TRACES and collector.nodeid:
        _entered.begin(collector.nodeid)
    yield


vars(pytest_make_collect_report)["pytest_impl"] = {"hookwrapper": True}


def pytest_runtest_protocol(nextitem: pytest.Item | None) -> None:
    """Remember whether this is the last test."""
    if _entered is not None:
        _entered.is_last = nextitem is None


def pytest_runtest_logfinish() -> None:
    """Ask coverage after the last test; it has ended when the session finishes."""
    if _entered is not None:
        _entered.end()


def _list_entered() -> dict[str, list[str]]:
    """Return file of the project, relative to it -> tests that entered it."""
    found: dict[str, list[str]] = {}
    for test, files in () if _entered is None else _entered.files.items():
        for file in files:
            if file.startswith(_PROJECT) and not file.startswith(_INSTALLED):
                found.setdefault(file[len(_PROJECT) :], []).append(test)
    return found


def pytest_sessionfinish() -> None:
    """In a run without a cache, which is one for evidence, note the files of modules, and which tests entered files."""
    if not _CACHE:
        found: dict[str, object] = {}
        for name, module in [*_modules.items()]:
            file = getattr(module, "__file__", None)
            if isinstance(file, str):
                found[name] = file if file.startswith(_SEPARATOR) else _PROJECT + file
        content = {"root": _PROJECT, "modules": found, "entered": _list_entered()}
        # Each worker of xdist writes a file.
        with _open(f"{_FOLDER}{_SEPARATOR}origins-{_getpid()}.json", "w", encoding="ascii") as stream:
            stream.write(_encode(content))


def _encode(value: object) -> str:
    """Return JSON; the functions of ``json`` may be replaced by now."""
    if isinstance(value, dict):
        return f"{{{','.join([f'{_quote(key)}:{_encode(value[key])}' for key in value])}}}"
    return f"[{','.join([_quote(each) for each in value])}]" if isinstance(value, list) else _quote(str(value))


# Not ``pytest.hookimpl``: the launcher imports this module before pytest. Another hook may end the process.
vars(pytest_sessionfinish)["pytest_impl"] = {"tryfirst": True}


def pytest_cmdline_main(config: pytest.Config) -> None:
    """Undo ``--stepwise``, which no command-line option can."""
    for name in ("stepwise", "stepwise_skip", "stepwise_reset"):
        if hasattr(config.option, name):
            setattr(config.option, name, False)
