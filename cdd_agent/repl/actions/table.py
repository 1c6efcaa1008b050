"""Which command does what."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from cdd_agent.repl.actions import agents, audit, figures, green, project, talks, tdd
from cdd_agent.repl.sitting import Sitting

Action: TypeAlias = Callable[[Sitting, str], None]
"""Carries a command out, given its argument; raises ``CddError``."""

ACTIONS: Mapping[str, Action] = {
    "spec": agents.open_spec,
    "plan": agents.open_plan,
    "exec": agents.open_exec,
    "review": agents.open_review,
    "green": green.green,
    "tdd": tdd.tdd,
    "audit": audit.audit,
    "back": agents.back,
    "new": project.new,
    "status": project.status,
    "cost": figures.show_cost,
    "model": figures.model,
    "compact": talks.compact,
    "clear": talks.clear,
    "resume": talks.resume,
    "doctor": project.doctor,
    "help": project.show_help,
    "exit": project.leave,
}
"""Name of a command -> what it does."""
