"""GREEN on its own: code for tests that fail already."""

import shlex

from cdd_agent.errors import UsageError
from cdd_agent.repl.sitting import Sitting
from cdd_agent.repl.talk.artifact import show_artifact
from cdd_agent.workflows.green.request import wanted_below

_ANEW = "--anew"
_ALLOW_DIRTY = "--allow-dirty"


def green(sitting: Sitting, argument: str) -> None:
    """Make the tests that are named pass, or go on with that; whoever listens goes on listening."""
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UsageError(
            f"The tests cannot be read: {error}.", hint="quote what has spaces: /green 'tests/a b.py'"
        ) from error
    named = [word for word in words if word not in (_ANEW, _ALLOW_DIRTY)]
    wanted = wanted_below(sitting.crew.root, named)
    sitting.crew.follow(wanted.run_of(wanted.project or sitting.crew.root))
    run = sitting.crew.workshop.green(wanted)
    run.allows_dirty = run.allows_dirty or _ALLOW_DIRTY in words
    artifact = run.run(anew=_ANEW in words)
    show_artifact(artifact, screen=sitting.screen)
    artifact.require_green(wanted.ways.go_on)
