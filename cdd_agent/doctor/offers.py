"""Everything that a repository brings and that waits for the user's approval."""

import shlex

from cdd_agent import settings
from cdd_agent.doctor.check import Premises
from cdd_agent.errors import CddError, EnvironmentMissing
from cdd_agent.git import hooks
from cdd_agent.testrun import approved
from cdd_agent.testrun.environments import NOTHING_MEANT, Meant
from cdd_agent.testrun.frameworks.project import offer_properties, read_properties
from cdd_agent.testrun.frameworks.pytest_command import parse_command
from cdd_agent.trust import Offer


def offers(premises: Premises) -> tuple[Offer, ...]:
    """What is there now, in the order in which a run comes to it; nothing of it is run."""
    try:
        of_hooks = hooks.offer(premises.repository())
    except EnvironmentMissing:  # without a work tree there are no commits
        of_hooks = None
    found = (
        settings.offered(premises.root),
        offer_properties(premises.root),
        approved.offered(premises.root, environment=premises.environment, meant=_meant(premises)),
        of_hooks,
    )
    return tuple(offer for offer in found if offer is not None)


def _meant(premises: Premises) -> Meant:
    """The environment that the test command names, as far as what says so is approved."""
    try:
        said = read_properties(premises.root, allows=lambda offer: premises.approvals.decision(offer) is True)
        command = premises.settings().test_command or said.command
        return parse_command(premises.root, shlex.split(command)).meant
    except (CddError, ValueError):  # what is wrong with them is told where they are used
        return NOTHING_MEANT
