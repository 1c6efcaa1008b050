"""A small real project with tests that fail, and a run of GREEN on them as the program makes it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cdd_agent.config.settings import GreenSettings
from cdd_agent.errors import CddError
from cdd_agent.model.conversation import Model, Turn
from cdd_agent.runs.artifact import GreenArtifact
from cdd_agent.runs.failing_tests import FailingTests
from cdd_agent.runs.request import Wanted, describe_purpose, resolve_in_project
from cdd_agent.runs.run import Run
from cdd_agent.tdd.context import Context
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState
from cdd_agent.work.state_file import load_state
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import QUICK, Project

CART = "class Cart:\n    def __init__(self):\n        self.prices = []\n\n    def total(self):\n        return 0\n"
MENDED = CART.replace("return 0", "return sum(self.prices)")
TESTS = """\
from cart import Cart


def test_empty():
    assert Cart().total() == 0


def test_total():
    cart = Cart()
    cart.prices += [1, 2]
    assert cart.total() == 3


def test_no_negative_price():
    cart = Cart()
    cart.prices.append(-1)
    try:
        cart.total()
    except ValueError:
        return
    assert False, "no ValueError"
"""
OTHER = "from cart import Cart\n\n\ndef test_is_a_class():\n    assert isinstance(Cart, type)\n"
BARE: Mapping[str, str] = {"pytest.ini": QUICK, ".gitignore": "__pycache__/\n"}
CARTS: Mapping[str, str] = {"cart.py": CART, "tests/test_cart.py": TESTS, "tests/test_other.py": OTHER}
THREE = GreenSettings(max_iterations=3)
TOTAL = "tests/test_cart.py::test_total"
NEGATIVE = "tests/test_cart.py::test_no_negative_price"


@dataclass(frozen=True)
class Green:
    """A run as a new process would make it."""

    made: Run[FailingTests]

    @property
    def context(self) -> Context:
        return self.made.context

    @property
    def ticket(self) -> Ticket:
        return self.made.ticket

    def run(self) -> GreenArtifact:
        self.made.run()
        return self.made.source.make_artifact(self.made)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """The project, and runs of GREEN in it."""

    project: Project

    def green(
        self,
        targets: Iterable[str] = (TOTAL,),
        *,
        model: Model,
        settings: GreenSettings = THREE,
        allow_dirty: bool = False,
        anew: bool = False,
        evidence_timeout_s: float = 0,
        adapt: Callable[[Context], Context] = lambda context: context,
        **purpose: Any,
    ) -> Green:
        """A run as a new process would make it; ``adapt`` changes its context, ``purpose`` are the user's words."""
        project = self.project
        wanted = Wanted(targets=resolve_in_project(project.folder, tuple(targets)))
        wanted = describe_purpose(project.folder, wanted, **purpose)
        source = FailingTests(wanted, settings, ticket=wanted.find_run(project.folder), anew=anew)
        context = project.context(model)
        policy = replace(context.policy, evidence_timeout_s=evidence_timeout_s)
        context = replace(
            context,
            policy=source.adapt_policy(policy),
            brief=source.brief,
            source=source.workflow,
            commands=source.commands,
            reports=find_records(project.folder).folder / "reports" / wanted.slug,
        )
        return Green(Run(source, context=adapt(context), clock=FakeClock(), allow_dirty=allow_dirty))

    def saved(self, green: Green) -> RunState:
        """The state on disk."""
        state = load_state(green.ticket.state_path)
        assert state is not None
        return state


MakeShop = Callable[[Mapping[str, str]], Shop]


@pytest.fixture
def make_shop(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> MakeShop:
    def make(files: Mapping[str, str]) -> Shop:
        return Shop(
            project=Project.make(tmp_path / "shop", interpreter=interpreter, bytecode=bytecode, files={**BARE, **files})
        )

    return make


@pytest.fixture
def make_real_shop(tmp_path: Path, *, interpreter: Interpreter, bytecode: Path) -> MakeShop:
    """Make a shop whose tests run as a user's do."""

    def make(files: Mapping[str, str]) -> Shop:
        return Shop(
            project=Project.make(
                tmp_path / "shop", interpreter=interpreter, bytecode=bytecode, files={**BARE, **files}, runs_pytest=True
            )
        )

    return make


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop(CARTS)


def plays(*turns: Turn | CddError) -> ScriptedModel:
    """A model that says these turns."""
    return ScriptedModel(turns)
