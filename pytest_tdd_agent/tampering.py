"""Find signs that something in the process manipulates test results.

Code under test shares the process with pytest, so a sign is evidence, not proof, and only signs that the baseline lacks
count. A sign therefore has the same text in every run of the same code, and names no test if the project affects all
of them.

``CodeLocations`` and ``codes_of`` find the code behind a value. ``Bodies`` checks that tests run their own functions.
``RunnerFunctions`` and ``Seal`` find replaced parts of pytest and of this plugin. ``TamperingWatch`` has the hooks.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from functools import lru_cache, partial
from operator import is_
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Collection, Generator, Iterable, Iterator, Mapping, Sequence

import pytest

from .codec import Value, read_sign, sign_to_json
from .fingerprint import IGNORED_FOLDERS, PACKAGES_FOLDERS, STANDARD_LIBRARY
from .loaded import ExpectedModule
from .options import find_report_path
from .report import RESCUED, Clause, Sign
from .sources import UnreadableSource
from .system import SEPARATOR, System, bind_builtins, decode_json, encode_json, read_bytes

if TYPE_CHECKING:
    from pluggy import Result

    from .recording.witness import Guard

bind_builtins(globals())


OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The folder that contains this plugin."""

_INSTALLED = IGNORED_FOLDERS | PACKAGES_FOLDERS
_CACHED = type(lru_cache(maxsize=None)(len))
WRAPPERS = frozenset({FunctionType, MethodType, staticmethod, classmethod, property, partial, _CACHED})
"""Types whose wrapped functions ``codes_of`` finds."""


class CodeLocations:
    """Locations of the user's code, as the user knows them."""

    def __init__(self, root: str) -> None:
        """Report locations relative to ``root``, the root directory of the run."""
        self._roots = tuple({path.rstrip(os.sep) + os.sep for path in (root, os.path.realpath(root))})
        self._known: dict[str, str | None] = {}

    def find_user_file(self, file: str) -> str | None:
        """Return the location of a file that is not installed: its path below the root, elsewhere only its name."""
        if file not in self._known:
            self._known[file] = self._find_user_file(file)
        return self._known[file]

    def find_project_file(self, file: str) -> str | None:
        """Return the location of a file below the root that is not installed there."""
        return self.find_user_file(file) if file.startswith(self._roots) else None

    def find_module(self, name: str) -> str | None:
        """Return the location of a loaded module that is not installed."""
        module = sys.modules.get(name)
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        return self.find_user_file(file) if isinstance(file, str) else None

    def label(self, value: object) -> Clause | None:
        """Return a description of a function or class of the user, None for other code."""
        if issubclass(type(value), type):
            place = self.find_module(str(vars(value).get("__module__")))
            return None if place is None else Clause("class_in", {"place": place})
        for code in codes_of(value):
            place = self.find_user_file(code.co_filename)
            if place is not None:
                return Clause("function_in", {"name": code.co_name, "place": place})
        return None

    def _find_user_file(self, file: str) -> str | None:
        if not _is_absolute(file) or file.startswith(OWN_FOLDER):
            return None
        inside = next((file[len(root) :] for root in self._roots if file.startswith(root)), None)
        parts = (file if inside is None else inside).split(SEPARATOR)
        if not _INSTALLED.isdisjoint(parts[:-1]):
            return None
        if inside is None:
            return None if file.startswith(STANDARD_LIBRARY) else parts[-1]
        return "/".join(parts)


def _is_absolute(path: str) -> bool:
    return path.startswith(SEPARATOR) or path[1:2] == ":"


def codes_of(value: object) -> tuple[CodeType, ...]:
    """Return the code that runs when a value is called or read as a property, including wrapped functions.

    Only attributes of Python's own types are read, because the value's class may answer anything.
    """
    found: list[CodeType] = []
    pending = [value]
    while pending and len(found) < 10:
        item = pending.pop()
        if type(item) is FunctionType:
            found.append(item.__code__)
            pending.append(item.__dict__.get("__wrapped__"))
        elif type(item) is MethodType or type(item) is staticmethod or type(item) is classmethod:
            pending.append(item.__func__)
        elif type(item) is property:
            pending += [item.fget, item.fset, item.fdel]
        elif type(item) is partial:
            pending.append(item.func)
        elif type(item) is _CACHED:
            pending.append(item.__wrapped__)
        elif item is not None and not issubclass(type(item), type):
            found += call_of(type(item))
    return tuple(found)


def call_of(kind: type) -> list[CodeType]:
    """Return the code of a class's ``__call__``."""
    call = vars(kind).get("__call__")
    return [call.__code__] if type(call) is FunctionType else []


class Bodies:
    """The test functions of one process, and which of them raised, were replaced or did not run."""

    def __init__(self, locations: CodeLocations) -> None:
        """Start before collection."""
        self.running: pytest.Item | None = None
        self.raised: set[str] = set()
        """Node ids of tests that an exception left, unless a rerun ended without one."""
        self.rescued: set[str] = set()
        """Node ids of tests that an exception left in one try, but not in a later one."""
        self.replaced: set[Clause] = set()
        self.not_called: set[str] = set()
        self._locations = locations
        self.collected: dict[int, CodeType | None] = {}

    def collect(self, items: Sequence[pytest.Item]) -> None:
        """Record the functions of the tests."""
        self.collected = {id(item): _code_of(item) for item in items}

    def begin(self, item: pytest.Item) -> None:
        """Record that a test is about to run."""
        self.settle()
        self.running = item

    def complete(self, item: pytest.Item) -> None:
        """Record that a test ended without an exception, and check its function."""
        if not item.__dict__.get("_excinfo"):  # pytest stores exceptions of unittest methods here
            self.running = None
            if item.nodeid in self.raised:
                self.raised.discard(item.nodeid)
                self.rescued.add(item.nodeid)
        if _code_of(item) is not self.collected.get(id(item)):
            self._check_replacement(item)

    def settle(self) -> None:
        """Record that an exception left the last test, unless it completed."""
        if self.running is not None:
            self.raised.add(self.running.nodeid)
            self.running = None

    def _check_replacement(self, item: pytest.Item) -> None:
        function = item.__dict__.get("_obj")
        before = self.collected.get(id(item))
        if function is None or before is None:
            return
        codes = codes_of(function)
        wrappers = codes[: codes.index(before)] if before in codes else codes  # a plugin may wrap the function
        locations = [(code.co_name, self._locations.find_user_file(code.co_filename)) for code in wrappers]
        own = [Clause("function_in", {"name": name, "place": place}) for name, place in locations if place is not None]
        if own or not codes or (wrappers and not _is_absolute(wrappers[0].co_filename)):
            self.replaced.add(own[0] if own else Clause("code_made_late"))


def _code_of(item: pytest.Item) -> CodeType | None:
    target = item.__dict__.get("_obj")
    if type(target) is MethodType:
        target = target.__func__
    return target.__code__ if type(target) is FunctionType else None


class FinishedBodies:
    """The last hook of a test call, which runs only if no exception left the test."""

    def __init__(self, bodies: Bodies) -> None:
        """Report to ``bodies``."""
        self._bodies = bodies

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Record that the test completed."""
        self._bodies.complete(item)


class BodyWatch:
    """Checks that a test's function is called, because a hook of the project may answer instead."""

    def __init__(self, bodies: Bodies) -> None:
        """Report to ``bodies``."""
        self._bodies = bodies

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Result[object], None]:
        """Watch for the first call of the function, in this thread and those it starts."""
        code = self._bodies.collected.get(id(pyfuncitem))
        if code is None or sys.getprofile() is not None:
            yield
            return
        called = False

        def watch(frame: FrameType, *event: object) -> None:
            nonlocal called
            called = called or (event[0] == "call" and frame.f_code is code)
            if called:
                sys.setprofile(None)

        threading.setprofile(watch)
        sys.setprofile(watch)
        outcome = yield
        sys.setprofile(None)
        threading.setprofile(None)
        if not called and outcome.excinfo is None:
            self._bodies.not_called.add(pyfuncitem.nodeid)


_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest", "doctest", "xdist"})


class RunnerFunctions:
    """The functions of pytest and related packages at the start of the run."""

    def __init__(self, locations: CodeLocations) -> None:
        """Record all functions except those that already belong to the user."""
        self._locations = locations
        self._before: dict[str, tuple[CodeType, ...]] = {}
        self._plain: dict[type, bool] = {}
        for name, value in self._iterate_values():
            codes = (value.__code__,) if type(value) is FunctionType and not value.__dict__ else codes_of(value)
            if codes and not [1 for code in codes if locations.find_user_file(code.co_filename) is not None]:
                self._before[name] = codes

    def find_patches(self) -> Iterator[tuple[str, Clause]]:
        """Yield the dotted name of each replaced function, and its replacement."""
        before = self._before
        for name, value in self._iterate_values():
            if type(value) is FunctionType and name in before and before[name] == (value.__code__,):
                continue  # the common case, and the cheapest check
            now = self._describe_replacement(name, value)
            if now is not None:
                yield name, now

    def _describe_replacement(self, name: str, value: object) -> Clause | None:
        label = self._locations.label(value)
        if label is not None or issubclass(type(value), type):
            return label
        codes = codes_of(value)
        before = self._before.get(name, codes)
        if codes == before or (type(value) is FunctionType and _is_absolute(codes[0].co_filename)):
            return None  # unchanged, or replaced by an installed plugin
        if codes:
            return Clause("function_made_late", {"name": codes[0].co_name})
        return Clause("not_a_function", {"type": type(value).__name__})

    def _iterate_values(self) -> Iterator[tuple[str, object]]:
        """Yield the values of modules and their classes, without plain values that replace no function."""
        before, plain = self._before, self._plain
        for module_name, module in list(sys.modules.items()):
            is_runner = module_name.split(".", 1)[0] in _RUNNERS and isinstance(module, ModuleType)
            if not is_runner or self._locations.find_module(module_name) is not None:
                continue  # the project itself may be pytest or one of its libraries
            pending: list[tuple[str, Mapping[str, object]]] = [(module_name, module.__dict__)]
            for owner, values in pending:
                for key, value in list(values.items()):
                    name, kind = f"{owner}.{key}", type(value)
                    if kind not in plain:
                        plain[kind] = not (kind in WRAPPERS or issubclass(kind, type) or call_of(kind))
                    if plain[kind] and name not in before:
                        continue
                    yield name, value
                    if kind is not FunctionType and isinstance(value, type) and value.__module__ == module_name:
                        pending += [(name, value.__dict__)] if owner == module_name else []


_OWN_PACKAGE = __name__.split(".", 1)[0]
_CLOCKS = frozenset({"time", "datetime"})


class Seal:
    """The modules and classes of a package at the start of the run.

    Nobody has a reason to change them, so every change counts: the value of a name, the code and defaults of functions,
    the content of tables, and new names, which could shadow a builtin.
    """

    def __init__(self, locations: CodeLocations, *, package: str = _OWN_PACKAGE) -> None:
        """Record the loaded modules of the package, by identity."""
        self._locations = locations
        self._package = package
        self._owners: dict[str, Mapping[str, object]] = {}
        for name, module in list(sys.modules.items()):
            if name.split(".", 1)[0] == package and isinstance(module, ModuleType):
                self._owners[name] = vars(module)
                for key, value in list(vars(module).items()):
                    if isinstance(value, type) and value.__module__ == name:
                        self._owners[f"{name}.{key}"] = vars(value)
        self._before = {
            name: {key: (value, _parts(key, value)) for key, value in owner.items()}
            for name, owner in self._owners.items()
        }

    def find_breaks(self) -> Iterator[tuple[str, Clause]]:
        """Yield the dotted name of each changed value, and its current value."""
        for owner_name, owner in self._owners.items():
            before = self._before[owner_name]
            now = dict(owner)
            name = owner_name.replace(self._package, "pytest_tdd_agent", 1)
            for key in before:
                if key not in now:
                    yield f"{name}.{key}", Clause("value_removed")
            for key, value in now.items():
                if (
                    _is_added(f"{owner_name}.{key}", value)
                    if key not in before
                    else _is_changed(key, value, before=before[key])
                ):
                    yield f"{name}.{key}", self._locations.label(value) or Clause("value_changed")


def _parts(key: str, value: object) -> tuple[object, ...]:
    """Return the parts of a value that can be changed in place, except those that Python itself changes."""
    if isinstance(value, type):
        return value.__mro__
    if isinstance(value, ModuleType):
        return (type(value),)
    if type(value) is FunctionType:
        named = value.__kwdefaults__ or {}
        return (*codes_of(value), value.__defaults__, *named, *named.values())
    if _is_dunder(key):
        return codes_of(value)
    if type(value) is dict:
        return (*value, *value.values())
    return tuple(value) if type(value) is list or type(value) is set else codes_of(value)


def _is_changed(key: str, value: object, *, before: tuple[object, tuple[object, ...]]) -> bool:
    old, parts = before
    if value is not old:
        return getattr(old, "__module__", None) not in _CLOCKS  # libraries that freeze time replace it everywhere
    now = _parts(key, value)
    return len(now) != len(parts) or not all(map(is_, now, parts))


def _is_added(name: str, value: object) -> bool:
    """Return whether a new name is neither an imported submodule nor one of Python's own."""
    if type(value) is ModuleType:
        return sys.modules.get(name) is not value
    return not _is_dunder(name.rpartition(".")[2]) or isinstance(value, type) or bool(codes_of(value))


def _is_dunder(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")


SIGNS = {
    "outcome_overridden": "An exception left a test, but the report says that it passed.",
    "project_hook": "The project implements a pytest hook that can change test results.",
    "patched_runner": "A function of pytest, of its dependencies, or of this plugin was replaced.",
    "replaced_body": "A test ran different code from the collected function.",
    "body_not_called": "A test passed, but its function was never called.",
    "replaced_module": "A test module differs from the source that was there before it was loaded.",
    "item_dropped": "Collected tests were removed without being reported as deselected.",
    RESCUED: "A test failed in one try and passed in a later one. Closes a gate only for its targets.",
}
"""Code of a sign -> its meaning; a closed list."""

SIGNS_CAP = 100
"""Most signs in a report."""
_WORKER_OUTPUT = "tdd_agent_audit"  # key in an xdist worker's output, for its findings as JSON text

_SOURCES = "tdd_agent_sources"  # key in an xdist worker's input, for the names of the test files that it reads
_SOURCES_CAP = 20
"""Most test files that are compared with their sources."""

_HARMLESS_HOOKS = frozenset(
    {
        "pytest_addhooks",
        "pytest_addoption",
        "pytest_assertrepr_compare",
        "pytest_configure",
        "pytest_generate_tests",
        "pytest_report_header",
        "pytest_terminal_summary",
    }
)
"""Hooks that only configure, add or show. The audit detects their patches and registrations separately."""


def register(config: pytest.Config, guard: Guard) -> TamperingWatch:
    """Start to watch this process; return the watch, which has the signs when the run ends."""
    watch = TamperingWatch(config, guard)
    config.pluginmanager.register(watch, "tdd-agent-tampering")
    config.pluginmanager.register(FinishedBodies(watch.bodies), "tdd-agent-completion")
    return watch


class TamperingWatch:
    """Hooks that collect signs, in every process that runs tests and in the controlling one."""

    def __init__(self, config: pytest.Config, guard: Guard) -> None:
        """Record pytest's functions as they are now."""
        self._config = config
        self._guard = guard
        self._path = str(find_report_path(config, config.option))
        self._locations = CodeLocations(str(config.rootpath))
        self._before: list[pytest.Item] = []
        self._deselected: set[int] = set()
        self._found: set[Sign] = set()
        self._raised: set[str] = set()
        self.bodies = Bodies(self._locations)
        self._sources: dict[str, bytes] = {}
        self.watch_sources(config.__dict__.get("workerinput", {}).get(_SOURCES, ()))
        with guard:
            self._patches = RunnerFunctions(self._locations).find_patches
            self._breaks = Seal(self._locations).find_breaks

    def watch_sources(self, names: Iterable[str]) -> None:
        """Read test files before they are loaded: those that changed last, because tests are written before the code.

        To compile one takes ten milliseconds, so a large project would wait for seconds.
        """
        root = str(self._config.rootpath)
        targets = {target.split("::", 1)[0] for target in self._config.option.tdd_agent_target}
        ages: list[tuple[bool, int, str]] = []
        for name in names:
            if name.endswith(".py"):
                with suppress(OSError):
                    ages.append((name not in targets, -os.stat(f"{root}{SEPARATOR}{name}").st_mtime_ns, name))
        for _, _, name in sorted(ages)[:_SOURCES_CAP]:
            with suppress(OSError):
                self._sources[name] = read_bytes(f"{root}{SEPARATOR}{name}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Tell an xdist worker which sources to read."""
        node.__dict__["workerinput"][_SOURCES] = list(self._sources)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, None, None]:
        """Compare a test module with its source once it is loaded."""
        yield
        with self._guard:
            module = collector.__dict__.get("_obj")
            if isinstance(collector, pytest.Module) and isinstance(module, ModuleType):
                self._check_module(module, collector.nodeid, path=str(collector.path))

    def _check_module(self, module: ModuleType, name: str, *, path: str) -> None:
        content = self._sources.pop(name, None)
        if content is None:
            return
        try:
            expected = ExpectedModule(
                content,
                path=path,
                config=self._config,
                find_codes=codes_of,
                is_installed=lambda file: _is_absolute(file) and self._locations.find_user_file(file) is None,
            )
        except UnreadableSource:
            return
        found = expected.find_difference(module)
        if found is not None:
            self._found.add(Sign("replaced_module", None, parts={"name": found, "module": name}))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Record the collected tests before a hook can remove some."""
        self._before = list(items)
        with self._guard:
            self.bodies.collect(items)
        yield

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Record reported deselections."""
        self._deselected.update(map(id, items))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record silent removals, and watch test functions if a project hook may not call them."""
        with self._guard:
            left = self._deselected.union(map(id, session.items))
            if any(id(item) not in left for item in self._before):
                self._found.add(Sign("item_dropped", None))
            self._before, self._deselected = [], set()
            implementations = self._config.pluginmanager.hook.pytest_pyfunc_call.get_hookimpls()
            if any(self._find_location(impl) is not None for impl in implementations if not impl.hookwrapper):
                self._config.pluginmanager.register(BodyWatch(self.bodies), "tdd-agent-body-watch")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Record that a test is about to run."""
        self.bodies.begin(item)

    def pytest_keyboard_interrupt(self) -> None:
        """Forget the running test; it has no outcome."""
        self.bodies.running = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add the findings of an xdist worker."""
        with self._guard:
            output: dict[str, str] = getattr(node, "workeroutput", {})
            sent = decode_json(output.get(_WORKER_OUTPUT, "[[], []]"))
            raised, found = sent if isinstance(sent, list) else ((), ())
            self._raised.update(raised)
            self._found.update(read_sign(Value(sign, "$")) for sign in found)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Send a worker's findings; in the controlling process, close a gate that replaced functions opened."""
        output: dict[str, object] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            with self._guard:
                self._collect_findings()
                found = [sign_to_json(sign) for sign in self._sort_signs()]
                output[_WORKER_OUTPUT] = encode_json([sorted(self._raised), found])
        yield
        with self._guard:
            # Functions may have been replaced so that ``find_signs`` was never called: check after the verdict too.
            is_gate = output is None and self._config.option.tdd_agent_gate is not None
            if is_gate and session.exitstatus == 0 and any(self._breaks()):
                session.exitstatus = 1
                System.unlink(self._path)

    def find_signs(self, not_passed: Collection[str]) -> tuple[Sign, ...]:
        """Return all signs of the run, sorted. ``not_passed`` has the node ids that did not pass in the report."""
        with self._guard:
            self._collect_findings()
            self._found.update(Sign("outcome_overridden", nodeid) for nodeid in self._raised.difference(not_passed))
        return self._sort_signs()

    def _sort_signs(self) -> tuple[Sign, ...]:
        return tuple(sorted(self._found, key=str)[:SIGNS_CAP])

    def _collect_findings(self) -> None:
        self.bodies.settle()
        self._raised |= self.bodies.raised
        for body in self.bodies.replaced:
            self._found.add(Sign("replaced_body", None, parts={"body": body}))
        for nodeid in self.bodies.rescued:
            self._found.add(Sign(RESCUED, nodeid))
        for nodeid in self.bodies.not_called:
            self._found.add(Sign("body_not_called", nodeid))
        for name, now in (*self._patches(), *self._breaks()):
            self._found.add(Sign("patched_runner", None, parts={"name": name, "now": now}))
        for hook, caller in list(vars(self._config.pluginmanager.hook).items()):
            if hook.startswith("pytest_") and hook not in _HARMLESS_HOOKS:
                places = {self._find_location(impl) for impl in caller.get_hookimpls()} - {None}
                for place in places:
                    self._found.add(Sign("project_hook", None, parts={"hook": hook, "place": place or ""}))

    def _find_location(self, impl: object) -> str | None:
        """Return the location of a hook implementation in the project, None if it is elsewhere."""
        codes = codes_of(getattr(impl, "function", None))
        places = (self._locations.find_project_file(code.co_filename) for code in codes)
        return next((place for place in places if place is not None), None)


__all__ = ["SIGNS", "SIGNS_CAP", "TamperingWatch", "register"]
