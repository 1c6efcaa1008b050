"""Conversations as a whole: resuming those of an earlier session, shortening one, beginning one anew."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from cdd_agent.agent.talk.recall import Earlier, Talk, earlier_sessions, last_session, load
from cdd_agent.errors import UsageError
from cdd_agent.repl.actions.agents import open_exec, open_review, show_last_words
from cdd_agent.repl.sitting import NAMES, Sitting, made, name_of, tell_left_out
from cdd_agent.review.review import Review
from cdd_agent.tickets.ticket import find
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor

_NO_AGENT = "/spec or /plan with a ticket begins a conversation"


def resume(sitting: Sitting, argument: str) -> None:
    """Go on with the last session, or the one named: its conversations, and the agent that listened last."""
    root, present = sitting.crew.root, sitting.crew.transcript.id
    session = load(root, argument, present=present) if argument else last_session(root, present=present)
    if session.agent not in NAMES:
        raise UsageError(f"In the session {session.id} nobody was asked anything.", hint=_NO_AGENT)
    ticket = find(root, session.ticket)
    sitting.screen.line(f"Going on with the session of {_when(session)}: {_place(session)}", style="bold", indent=0)
    last = None
    for talk in session.talks:
        if (talk.agent, talk.ticket) == (session.agent, session.ticket):
            last = talk
        else:
            _take_up_quietly(talk, sitting=sitting)
    if session.agent in ("executor", "review"):
        reopen = open_exec if session.agent == "executor" else open_review
        reopen(sitting, ticket.slug)
    else:
        agent = made(session.agent, ticket, crew=sitting.crew)
        if last is not None:
            _take_up(last, agent, sitting=sitting)
        sitting.listen(agent)
        show_last_words(agent, sitting=sitting, typed="" if last is None else last.typed)
    sitting.crew.transcript.continued(session.id)


def compact(sitting: Sitting, _argument: str) -> None:
    """Let a summary take the place of the conversation."""
    agent = _talking(sitting, nothing_to="shorten")
    if agent is None:
        return
    if not agent.conversation.messages:
        raise UsageError("Nothing was said yet, so there is nothing to shorten.", hint="say something first")
    name, ticket = name_of(agent), agent.ticket
    desk = sitting.crew.desk(ticket, command=NAMES[name])
    agent.conversation = desk.compacted(agent.conversation, name, ticket=ticket.slug)


def clear(sitting: Sitting, _argument: str) -> None:
    """Begin a new conversation of the agent that listens."""
    agent = _talking(sitting, nothing_to="clear")
    if agent is None:
        return
    name, ticket = name_of(agent), agent.ticket
    agent.conversation = sitting.crew.desk(ticket, command=NAMES[name]).begun_anew(name, ticket=ticket.slug)
    told = (
        f"A new conversation; spec.yaml and plan.md are as they were. Say what you want, or /{NAMES[name]} begins it."
    )
    sitting.screen.line(told, indent=0, hang=2)


def described(project: Path) -> Iterable[tuple[str, str]]:
    """The sessions that can be resumed, with when they were, who listened and what was said first."""
    for session in earlier_sessions(project):
        words = f": {session.first_words}" if session.first_words else ""
        yield session.id, f"{_when(session)}, {_place(session)}{words}"


def _talking(sitting: Sitting, *, nothing_to: str) -> Socrates | Planner | None:
    """Who has the conversation that a command is about; of the Executor, why there is none, in words."""
    match sitting.agent:
        case Socrates() | Planner() as agent:
            return agent
        case Executor():
            told = f"Each attempt of the Executor is a conversation of its own, so there is nothing to {nothing_to}."
            sitting.screen.line(told, indent=0, hang=2)
            return None
        case Review():
            sitting.screen.line(f"A review is no conversation with a model: nothing to {nothing_to}.", indent=0)
            return None
        case None:
            raise UsageError("No agent is listening.", hint=_NO_AGENT)


def _take_up(talk: Talk, agent: Socrates | Planner, *, sitting: Sitting) -> None:
    """Let ``agent`` go on with ``talk``."""
    desk = sitting.crew.desk(agent.ticket, command=NAMES[talk.agent])
    if talk.model != sitting.crew.model_name:
        told = f"It was held with {talk.model}; {sitting.crew.model_name} goes on with it."
        sitting.screen.line(f"{sitting.screen.symbols['note']} {told}", style="yellow", indent=0, hang=2)
    agent.conversation = desk.resumed(talk)


def _take_up_quietly(talk: Talk, *, sitting: Sitting) -> None:
    """Have a conversation at hand that nobody listens in now; one whose ticket is not as it was is left out."""
    try:
        ticket = find(sitting.crew.root, talk.ticket)
        agent = made(talk.agent, ticket, crew=sitting.crew)
    except UsageError as error:
        tell_left_out(talk.agent, talk.ticket, error=error, screen=sitting.screen)
        return
    agent.conversation = sitting.crew.desk(ticket, command=NAMES[talk.agent]).resumed(talk)
    sitting.keep(agent)


def _place(session: Earlier) -> str:
    """``/spec minutes-lost``: who listened last, on what."""
    return f"/{NAMES.get(session.agent, session.agent)} {session.ticket}"


def _when(session: Earlier) -> str:
    """``31 Jan 14:05``, in local time."""
    return datetime.fromisoformat(session.time).astimezone().strftime("%d %b %H:%M").lstrip("0")
