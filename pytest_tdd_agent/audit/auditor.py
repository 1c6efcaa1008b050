"""The hooks of the audit, and the signs it has seen."""

from __future__ import annotations

from json import dumps, loads
from typing import TYPE_CHECKING, Collection, Generator, Sequence

import pytest

from ..options import read_options
from ..report import Sign
from .bodies import Bodies, BodyWatch, Completion
from .code import Places, codes_of
from .runner import Runner
from .seal import Seal

if TYPE_CHECKING:
    from ..recording.witness import Guard

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
