"""Signs that something in the process bends what tests come to: hooks of the project, patched functions, other bodies.

Code under test shares the process with pytest, so a sign is evidence, never proof, and what matters is which signs a
run has that its baseline has not. So a sign says the same in every run of the same code, and does not name the test
where the project does the same to all of them.

The code behind a value, and where it lies as the user knows it.

Whether the tests ran what was collected.

Functions of pytest and of what it stands on that have been replaced.

What the plugin's own package holds, and whether anything of it has been replaced while the tests ran.

The hooks of the audit, and the signs it has seen.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache, partial
from json import dumps, loads
from operator import is_
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Collection, Generator, Iterator, Mapping, Sequence

import pytest

from .fingerprint import IGNORED_FOLDERS, PACKAGES_FOLDERS, STANDARD_LIBRARY
from .options import read_options
from .report import Sign

if TYPE_CHECKING:
    from pluggy import Result

    from .recording.witness import Guard

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where this plugin lies."""

_INSTALLED = IGNORED_FOLDERS | PACKAGES_FOLDERS
_CACHED = type(lru_cache(maxsize=None)(len))
WRAPPERS = frozenset({FunctionType, MethodType, staticmethod, classmethod, property, partial, _CACHED})
"""Types of values that ``codes_of`` looks into."""


class Places:
    """Where code lies, as the user knows it."""

    def __init__(self, root: str) -> None:
        """Take them relative to ``root``, the root directory of the run."""
        self._roots = tuple({path.rstrip(os.sep) + os.sep for path in (root, os.path.realpath(root))})
        self._known: dict[str, str | None] = {}

    def of_user(self, file: str) -> str | None:
        """Return the place of a file that is not installed: below the root its path, elsewhere only its name."""
        if file not in self._known:
            self._known[file] = self._of_user(file)
        return self._known[file]

    def of_project(self, file: str) -> str | None:
        """Return the place of a file below the root that is not installed there."""
        return self.of_user(file) if file.startswith(self._roots) else None

    def of_module(self, name: str) -> str | None:
        """Return the place of a module that is loaded and not installed."""
        module = sys.modules.get(name)
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        return self.of_user(file) if isinstance(file, str) else None

    def label(self, value: object) -> str | None:
        """Return what of the user's a function or class is, None if it is not the user's."""
        if issubclass(type(value), type):
            place = self.of_module(str(vars(value).get("__module__")))
            return None if place is None else f"a class of {place}"
        for code in codes_of(value):
            place = self.of_user(code.co_filename)
            if place is not None:
                return f"{code.co_name} of {place}"
        return None

    def _of_user(self, file: str) -> str | None:
        if not os.path.isabs(file) or file.startswith(OWN_FOLDER):
            return None
        inside = next((file[len(root) :] for root in self._roots if file.startswith(root)), None)
        parts = (file if inside is None else inside).split(os.sep)
        if not _INSTALLED.isdisjoint(parts[:-1]):
            return None
        if inside is None:
            return None if file.startswith(STANDARD_LIBRARY) else parts[-1]
        return "/".join(parts)


def codes_of(value: object) -> tuple[CodeType, ...]:
    """Return the code that runs when a value is called, or read as a property; of a wrapper also what it wraps.

    Nothing of the value is asked but what Python itself keeps of its own types.
    """
    found: list[CodeType] = []
    pending = [value]
    while pending and len(found) < 10:
        one = pending.pop()
        if type(one) is FunctionType:
            found.append(one.__code__)
            pending.append(one.__dict__.get("__wrapped__"))
        elif type(one) is MethodType or type(one) is staticmethod or type(one) is classmethod:
            pending.append(one.__func__)
        elif type(one) is property:
            pending += [one.fget, one.fset, one.fdel]
        elif type(one) is partial:
            pending.append(one.func)
        elif type(one) is _CACHED:
            pending.append(one.__wrapped__)
        elif one is not None and not issubclass(type(one), type):
            found += call_of(type(one))
    return tuple(found)


def call_of(kind: type) -> list[CodeType]:
    """Return the code that makes values of a class callable."""
    call = vars(kind).get("__call__")
    return [call.__code__] if type(call) is FunctionType else []


class Bodies:
    """What became of the functions of the tests of one process."""

    def __init__(self, places: Places) -> None:
        """Begin before collection."""
        self.running: pytest.Item | None = None
        self.raised: set[str] = set()
        """Node ids of tests that an exception has left, unless they were run again without one."""
        self.replaced: set[str] = set()
        self.not_called: set[str] = set()
        self._places = places
        self.collected: dict[int, CodeType | None] = {}

    def collect(self, items: Sequence[pytest.Item]) -> None:
        """Note the functions of the tests."""
        self.collected = {id(item): _code_of(item) for item in items}

    def begin(self, item: pytest.Item) -> None:
        """Note that a test is about to run."""
        self.settle()
        self.running = item

    def complete(self, item: pytest.Item) -> None:
        """Note that a test has run and no exception left it, and look at what ran."""
        if not item.__dict__.get("_excinfo"):  # where pytest keeps what a unittest method raised
            self.running = None
            if self.raised:
                self.raised.discard(item.nodeid)
        if _code_of(item) is not self.collected.get(id(item)):
            self._look_at(item)

    def settle(self) -> None:
        """Note that the last test, if it has not completed, was left by an exception."""
        if self.running is not None:
            self.raised.add(self.running.nodeid)
            self.running = None

    def _look_at(self, item: pytest.Item) -> None:
        function = item.__dict__.get("_obj")
        before = self.collected.get(id(item))
        if function is None or before is None:
            return
        codes = codes_of(function)
        around = codes[: codes.index(before)] if before in codes else codes  # a plugin may wrap what was collected
        places = [(code.co_name, self._places.of_user(code.co_filename)) for code in around]
        own = [f"{name} of {place}" for name, place in places if place is not None]
        if own or not codes or (around and not os.path.isabs(around[0].co_filename)):
            self.replaced.add(own[0] if own else "code made while the tests ran")


def _code_of(item: pytest.Item) -> CodeType | None:
    """Return the code of a test's function; None if it is something else that can be called."""
    target = item.__dict__.get("_obj")
    if type(target) is MethodType:
        target = target.__func__
    return target.__code__ if type(target) is FunctionType else None


class Completion:
    """The last hook to be called when a test runs: it is reached only if no exception left the test."""

    def __init__(self, bodies: Bodies) -> None:
        """Tell these."""
        self._bodies = bodies

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Note that the test has completed."""
        self._bodies.complete(item)


class BodyWatch:
    """Sees whether a test's function is called, where a hook of the project may answer in its place."""

    def __init__(self, bodies: Bodies) -> None:
        """Tell these."""
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


class Runner:
    """The functions of pytest and its like, as they were when the run began."""

    def __init__(self, places: Places) -> None:
        """Note them all, but for those that are the user's already."""
        self._places = places
        self._before: dict[str, tuple[CodeType, ...]] = {}
        self._plain: dict[type, bool] = {}
        for name, value in self._values():
            codes = (value.__code__,) if type(value) is FunctionType and not value.__dict__ else codes_of(value)
            if codes and not [1 for code in codes if places.of_user(code.co_filename) is not None]:
                self._before[name] = codes

    def patches(self) -> Iterator[tuple[str, str]]:
        """Yield each function that has been replaced, by its dotted name, and what is there now."""
        before = self._before
        for name, value in self._values():
            if type(value) is FunctionType and name in before and before[name] == (value.__code__,):
                continue  # the most, and the cheapest to tell
            now = self._replacement(name, value)
            if now is not None:
                yield name, now

    def _replacement(self, name: str, value: object) -> str | None:
        label = self._places.label(value)
        if label is not None or issubclass(type(value), type):
            return label
        codes = codes_of(value)
        before = self._before.get(name, codes)
        if codes == before or (type(value) is FunctionType and os.path.isabs(codes[0].co_filename)):
            return None  # as it was, or the work of an installed plugin
        return f"{codes[0].co_name}, made while the tests ran" if codes else f"{type(value).__name__}, not a function"

    def _values(self) -> Iterator[tuple[str, object]]:
        """What modules and their classes hold, but for plain values where no function was."""
        before, plain = self._before, self._plain
        for module_name, module in list(sys.modules.items()):
            is_runner = module_name.split(".", 1)[0] in _RUNNERS and isinstance(module, ModuleType)
            if not is_runner or self._places.of_module(module_name) is not None:
                continue  # a project may be one of these modules itself
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
    """The modules and classes of a package as they were when the run began.

    Nobody has a reason to change them, so everything counts: what a name stands for, the code and the defaults of its
    functions, what its tables hold, and names that were added, which could stand before a builtin.
    """

    def __init__(self, places: Places, *, package: str = _OWN_PACKAGE) -> None:
        """Note what is loaded of the package, by identity."""
        self._places = places
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

    def breaks(self) -> Iterator[tuple[str, str]]:
        """Yield each name that is not what it was, dotted, and what is there now."""
        for owner_name, owner in self._owners.items():
            before = self._before[owner_name]
            now = dict(owner)
            name = owner_name.replace(self._package, "pytest_tdd_agent", 1)
            for key in before:
                if key not in now:
                    yield f"{name}.{key}", "no longer there"
            for key, value in now.items():
                if (
                    _is_added(f"{owner_name}.{key}", value)
                    if key not in before
                    else _is_changed(key, value, before=before[key])
                ):
                    yield f"{name}.{key}", self._places.label(value) or "not what it was"


def _parts(key: str, value: object) -> tuple[object, ...]:
    """Return what a value is made of that can be changed in place; Python itself keeps books in its ``__names__``."""
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
        return getattr(old, "__module__", None) not in _CLOCKS  # libraries that stop the time replace it everywhere
    now = _parts(key, value)
    return len(now) != len(parts) or not all(map(is_, now, parts))


def _is_added(name: str, value: object) -> bool:
    """Say whether a new name is anything else than a submodule that was imported, or what Python keeps."""
    if type(value) is ModuleType:
        return sys.modules.get(name) is not value
    return not _is_dunder(name.rpartition(".")[2]) or isinstance(value, type) or bool(codes_of(value))


def _is_dunder(key: str) -> bool:
    return key.startswith("__") and key.endswith("__")


SIGNS = {
    "outcome_overridden": "An exception left a test, and the report says that it passed.",
    "project_hook": "A hook of pytest that can bend what tests come to is implemented in the project.",
    "patched_runner": "A function of pytest, of what it stands on, or of this plugin has been replaced.",
    "replaced_body": "A test ran other code than the function that was collected.",
    "body_not_called": "A test passed although its function was never called.",
    "item_dropped": "Collected tests were left out without pytest being told.",
}
"""Code of a sign -> what it means; a closed list."""

SIGNS_CAP = 100
"""So many signs a report has at most."""
_HANDED_OVER = "tdd_agent_audit"  # where an xdist worker puts its findings, as JSON text

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
"""They configure, add or show. What they patch or register is seen for itself."""


def register(config: pytest.Config, guard: Guard) -> Auditor:
    """Watch this process, from now on; return who knows the signs when the run ends."""
    auditor = Auditor(config, guard)
    config.pluginmanager.register(auditor, "tdd-agent-auditor")
    config.pluginmanager.register(Completion(auditor.bodies), "tdd-agent-completion")
    return auditor


class Auditor:
    """The hooks of every process that runs tests, and of the one that controls them."""

    def __init__(self, config: pytest.Config, guard: Guard) -> None:
        """Take pytest's functions for granted as they are now."""
        self._config = config
        self._guard = guard
        self._places = Places(str(config.rootpath))
        self._before: list[pytest.Item] = []
        self._deselected: set[int] = set()
        self._found: set[tuple[str, str | None, str]] = set()
        self._raised: set[str] = set()
        self.bodies = Bodies(self._places)
        with guard:
            self._patches = Runner(self._places).patches
            self._breaks = Seal(self._places).breaks

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Note what was collected, before any hook can leave something out."""
        self._before = list(items)
        with self._guard:
            self.bodies.collect(items)
        yield

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note what is left out openly."""
        self._deselected.update(map(id, items))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what was left out in silence, and watch the tests' functions where the project may not call them."""
        with self._guard:
            left = self._deselected.union(map(id, session.items))
            if any(id(item) not in left for item in self._before):
                self._found.add(("item_dropped", None, "collected tests are left out of the run, and no hook is told"))
            self._before, self._deselected = [], set()
            answers = self._config.pluginmanager.hook.pytest_pyfunc_call.get_hookimpls()
            if any(self._place_of(impl) is not None for impl in answers if not impl.hookwrapper):
                self._config.pluginmanager.register(BodyWatch(self.bodies), "tdd-agent-body-watch")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Note that a test is about to run."""
        self.bodies.begin(item)

    def pytest_keyboard_interrupt(self) -> None:
        """Let the test that was running go: it has no outcome."""
        self.bodies.running = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the findings of an xdist worker."""
        with self._guard:
            output: dict[str, str] = getattr(node, "workeroutput", {})
            raised, found = loads(output.get(_HANDED_OVER, "[[], []]"))
            self._raised.update(raised)
            self._found.update((code, nodeid, message) for code, nodeid, message in found)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """Hand over a worker's findings; in the end, let no gate be open that was opened by replaced functions.

        ``signs`` has seen what was replaced before the verdict; this is for what was replaced so that it is not asked.
        """
        output: dict[str, object] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            with self._guard:
                self._look()
                output[_HANDED_OVER] = dumps([sorted(self._raised), sorted(self._found, key=str)[:SIGNS_CAP]])
        yield
        with self._guard:
            is_gate = output is None and self._config.option.tdd_agent_gate is not None
            if is_gate and session.exitstatus == 0 and any(self._breaks()):
                session.exitstatus = 1
                read_options(self._config).report.unlink()

    def signs(self, not_passed: Collection[str]) -> tuple[Sign, ...]:
        """Return all signs of the run, sorted; the report says of these node ids that they did not pass."""
        with self._guard:
            self._look()
            message = "an exception left the test, and the report says that it passed"
            self._found.update(
                ("outcome_overridden", nodeid, message) for nodeid in self._raised.difference(not_passed)
            )
        return tuple(Sign(*found) for found in sorted(self._found, key=str)[:SIGNS_CAP])

    def _look(self) -> None:
        """Gather what this process shows."""
        self.bodies.settle()
        self._raised |= self.bodies.raised
        for what in self.bodies.replaced:
            self._found.add(("replaced_body", None, f"tests run {what} instead of the function that was collected"))
        for nodeid in self.bodies.not_called:
            self._found.add(("body_not_called", nodeid, "a hook answered for the test and did not call its function"))
        for name, now in (*self._patches(), *self._breaks()):
            self._found.add(("patched_runner", None, f"{name} is {now}"))
        for hook, caller in list(vars(self._config.pluginmanager.hook).items()):
            if hook.startswith("pytest_") and hook not in _HARMLESS_HOOKS:
                places = {self._place_of(impl) for impl in caller.get_hookimpls()} - {None}
                self._found.update(("project_hook", None, f"{hook} is implemented in {place}") for place in places)

    def _place_of(self, impl: object) -> str | None:
        """Return where in the project a hook implementation lies, None if it is not the project's."""
        codes = codes_of(getattr(impl, "function", None))
        places = (self._places.of_project(code.co_filename) for code in codes)
        return next((place for place in places if place is not None), None)


__all__ = ["SIGNS", "SIGNS_CAP", "Auditor", "register"]
