"""Everything that a repository brings and that waits for the user's approval."""

from cdd_agent import settings
from cdd_agent.doctor.check import Premises
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.git import hooks
from cdd_agent.testrun import approved
from cdd_agent.testrun.frameworks import properties
from cdd_agent.trust import Offer


def offers(premises: Premises) -> tuple[Offer, ...]:
    """What is there now, in the order in which a run comes to it; nothing of it is run."""
    try:
        of_hooks = hooks.offer(premises.repository())
    except EnvironmentMissing:  # without a work tree there are no commits
        of_hooks = None
    found = (
        settings.offered(premises.root),
        properties.offered(premises.root),
        approved.offered(premises.root, environment=premises.environment),
        of_hooks,
    )
    return tuple(offer for offer in found if offer is not None)
