"""Opening the agents, going back to one, and giving words to the one that listens.

Who answers, and what it takes: the model, its prices, tokens and dollars.

Tickets, what a run needs, the list of commands, and the end.

Conversations as a whole: resuming those of an earlier session, shortening one, beginning one anew.

Which command does what.

What a project has that completes a line, from tickets to files, looked up when it is asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from rich.text import Text

from cdd_agent.agent.loop import INTERRUPTED
from cdd_agent.agent.quoting import Marks, with_files
from cdd_agent.agent.sessions import Earlier, Talk, earlier_sessions, last_session, load
from cdd_agent.errors import UsageError
from cdd_agent.model import prices
from cdd_agent.model.conversation import AssistantMessage, Conversation, Usage, UserMessage
from cdd_agent.model.conversation import Text as Words
from cdd_agent.repl import dialogs, executor_view, progress, workflow_actions
from cdd_agent.repl.commands import at_prompt, help_lines
from cdd_agent.repl.render import show_ticket, show_tickets
from cdd_agent.repl.screen import Screen, show_checks
from cdd_agent.repl.state import NAMES, Sitting, made, name_of, tell_left_out
from cdd_agent.review import Review
from cdd_agent.tickets.ticket import Ticket, all_tickets, create, find
from cdd_agent.untrusted.text import clean
from cdd_agent.work import state_file
from cdd_agent.work.lock import holding_ticket
from cdd_agent.work.state import UsageTotals
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution.executor import Executor
from cdd_agent.workspace.files import Workspace

MOST_LINES = 12
"""Of what an agent said last, on the screen."""
MOST_CHARACTERS = 150
"""Of what the user said last, on the screen."""
_STOPPED = {
    ("/tdd run ", "/tdd resume "): "what landed stays, nothing is half done. Go on with: /tdd resume",
    ("/green ",): "nothing is half done. The same command goes on from there.",
    ("/audit ",): "nothing was changed. The same command begins again.",
}
"""How lines begin -> where Ctrl-C leaves them."""


def open_spec(sitting: Sitting, argument: str) -> None:
    """Begin to question a ticket or go on with it, or say that it is complete."""
    ticket = sitting.ticket(argument)
    alive = sitting.alive("socrates", slug=ticket.slug)
    socrates = alive if isinstance(alive, Socrates) else sitting.crew.socrates(ticket)
    socrates.check()
    sitting.listen(socrates)
    with holding_ticket(sitting.crew.root, ticket.folder):
        dialogs.question(socrates, "", screen=sitting.screen)


def open_plan(sitting: Sitting, argument: str) -> None:
    """Draft a plan, or show the one that is there, and stay: the user can say what to change."""
    ticket = sitting.ticket(argument)
    alive = sitting.alive("planner", slug=ticket.slug)
    planner = alive if isinstance(alive, Planner) else sitting.crew.planner(ticket)
    planner.check()
    sitting.listen(planner)
    with holding_ticket(sitting.crew.root, ticket.folder):
        dialogs.plan(planner, "", screen=sitting.screen)


def open_exec(sitting: Sitting, argument: str) -> None:
    """Say where the plan stands and wait for a word, or show the end of a finished one."""
    _greet(sitting, sitting.ticket(argument))


def open_review(sitting: Sitting, argument: str) -> None:
    """Show the first completed step that nothing was decided about, or that all are approved."""
    _show_review(sitting, sitting.ticket(argument))


def back(sitting: Sitting, _argument: str) -> None:
    """Return to the agent before, its conversation as it was; from the first one, to the plain prompt."""
    earlier = sitting.take_earlier()
    if earlier is None and sitting.agent is None:
        raise UsageError("There is no agent to go back to.", hint="/spec, /plan or /exec with a ticket opens one")
    if earlier is None:
        sitting.leave(for_good=True)
        sitting.screen.line("Nobody listens now; /spec, /plan or /exec comes back.", indent=0, hang=2)
        return
    name, slug = earlier
    ticket = find(sitting.crew.root, slug)
    agent = sitting.alive(name, slug=slug)
    if agent is None:
        reopen = _show_review if name == "review" else _greet
        reopen(sitting, ticket, goes_back=True)
        return
    sitting.listen(agent, goes_back=True)
    sitting.screen.line(f"Back in /{NAMES[name]} {slug}.", style="bold", indent=0)
    show_last_words(agent, sitting=sitting)


def speak(sitting: Sitting, words: str) -> None:
    """Give plain words to the agent that listens, with the files that they name."""
    agent = sitting.agent
    match agent:
        case Socrates() | Planner() if words:
            sitting.crew.transcript.typed(words)
            told = _enclosed(words, agent, sitting=sitting)
            with holding_ticket(sitting.crew.root, agent.ticket.folder):
                if isinstance(agent, Socrates):
                    dialogs.question(agent, told, screen=sitting.screen)
                else:
                    dialogs.plan(agent, told, screen=sitting.screen)
        case Socrates() if agent.conversation.messages:
            dialogs.question(agent, "", screen=sitting.screen)
        case Executor():
            if not executor_view.say(agent, words, screen=sitting.screen):
                sitting.leave()
        case Review():
            if not dialogs.say(agent, words, screen=sitting.screen):
                sitting.leave()
        case _ if words:
            raise UsageError("No agent is listening.", hint="/spec, /plan or /exec with a ticket; /help shows all")


def show_last_words(agent: Socrates | Planner, *, sitting: Sitting, typed: str = "") -> None:
    """What was said last in the conversation of ``agent``, shortly, and what can be said now.

    ``typed`` is what the user said last.
    """
    screen = sitting.screen
    is_open = _is_unanswered(agent.conversation)
    if typed and not is_open:
        _show_typed(typed, screen=screen)
    if isinstance(agent, Socrates) and agent.question is not None:
        dialogs.question(agent, "", screen=screen)
        return
    said = _last_words(agent.conversation)
    if said:
        screen.stream("\n".join(said.splitlines()[-MOST_LINES:]))
        screen.end_prose()
    if typed and is_open:
        _show_typed(typed, screen=screen)
    if is_open:
        what = "That" if typed else "What was said last"
        told = f"{what} has no answer yet: say it again, or in plain words how to go on."
    elif said:
        told = "Say in plain words how to go on."
    else:
        told = "Nothing was said yet: say in plain words what you want."
    screen.line(told, style="bold", indent=0, hang=2)


def _show_typed(words: str, *, screen: Screen) -> None:
    """What the user said, in one row or two."""
    line = " ".join(words.split())
    cut = line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 3]}..."
    screen.line(Text.assemble(("you  ", "bold cyan"), clean(cut)), indent=0, hang=5)


def _is_unanswered(conversation: Conversation) -> bool:
    """Whether the model has not come to an answer to what was said last."""
    match conversation.messages:
        case (*_, UserMessage(content=content)):
            return any(isinstance(block, Words) or block.content == INTERRUPTED for block in content)
    return False


def stopped(sitting: Sitting, words: str) -> None:
    """Say where Ctrl-C leaves the user who typed ``words``."""
    screen = sitting.screen
    told = next((told for begun, told in _STOPPED.items() if f"{words} ".startswith(begun)), None)
    if told is not None:
        screen.line(f"Stopped; {told}", style="yellow", indent=0, hang=2)
        return
    match sitting.agent:
        case Executor() as executor:
            screen.line("Stopped; nothing is half done.", style="yellow", indent=0)
            executor_view.say_what_is_next(executor, screen=screen)
        case Socrates() | Planner():
            told = "Stopped. What was said so far is kept; say in plain words how to go on."
            screen.line(told, style="yellow", indent=0, hang=2)
        case Review() | None:
            screen.line("Stopped; nothing is half done.", style="yellow", indent=0)


def _greet(sitting: Sitting, ticket: Ticket, *, goes_back: bool = False) -> None:
    """Open the Executor, which reads the ticket's files as they are now."""
    executor = sitting.crew.executor(ticket)
    sitting.listen(executor, goes_back=goes_back)
    if not executor_view.greet(executor, screen=sitting.screen):
        sitting.leave(for_good=True)


def _show_review(sitting: Sitting, ticket: Ticket, *, goes_back: bool = False) -> None:
    """Open a review of what is completed now."""
    review = sitting.crew.review(ticket)
    sitting.listen(review, goes_back=goes_back)
    if not dialogs.greet(review, screen=sitting.screen):
        sitting.leave(for_good=True)


def _enclosed(words: str, agent: Socrates | Planner, *, sitting: Sitting) -> str:
    """``words`` with the files that they name."""

    def tell(text: str) -> None:
        sitting.screen.line(f"{sitting.screen.symbols['note']} {text}", style="yellow", indent=0, hang=2)

    return with_files(words, Workspace(sitting.crew.root), marks=Marks(agent.conversation.token), tell=tell)


def _last_words(conversation: Conversation) -> str:
    """What the agent said last, in words; empty if nothing."""
    for message in reversed(conversation.messages):
        if isinstance(message, AssistantMessage):
            said = "".join(block.text for block in message.content if isinstance(block, Words)).strip()
            if said:
                return said
    return ""


_SAMPLE_TOKENS = 1_000
"""Few enough for the price of a short prompt."""


def show_cost(sitting: Sitting, _argument: str) -> None:
    """What this sitting has used, and what carrying out the ticket in work has."""
    _show_used("this sitting", sitting.crew.standing.used, screen=sitting.screen)
    if sitting.slug:
        state = state_file.load(find(sitting.crew.root, sitting.slug).state_path)
        if state is not None:
            _show_used(f"all of /exec {sitting.slug}", state.usage, screen=sitting.screen)


def model(sitting: Sitting, argument: str) -> None:
    """Show who answers, how much it can read and what it costs; or let another model answer from now on."""
    if not argument:
        _show_model(sitting)
        return
    if len(argument.split()) > 1:
        raise UsageError(f"{argument!r} is not the id of a model.", hint=f"/model {argument.split(maxsplit=1)[0]}")
    sitting.crew.use_model(argument)
    sitting.crew.standing.model = argument
    sitting.crew.standing.tokens = 0
    sitting.screen.line(f"{argument} answers from now on; the conversations go on.", indent=0, hang=2)
    sitting.replace_agents()
    if prices.window(argument) is None:
        near = get_close_matches(argument, prices.known(), n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        told = f"Its price is not known, so its cost is not either, and no limit in dollars holds.{meant}"
        sitting.screen.line(f"{sitting.screen.symbols['note']} {told}", style="yellow", indent=0, hang=2)


def _show_model(sitting: Sitting) -> None:
    """Model, context and prices."""
    name = sitting.crew.model_name
    size = prices.window(name)
    sitting.screen.line(f"model    {name}", indent=0)
    if size is None:
        sitting.screen.line("context  of unknown size", indent=0)
        told = f"not known; known are those of {', '.join(prices.known())}"
        sitting.screen.line(f"prices   {told}", indent=0, hang=9)
        return
    filled = sitting.place.context_percent
    told = f", {filled} % of them filled" if filled is not None else ""
    sitting.screen.line(f"context  {size:,} tokens{told}", indent=0)
    each = {
        "read": Usage(input_tokens=_SAMPLE_TOKENS),
        "written": Usage(output_tokens=_SAMPLE_TOKENS),
        "read from the cache": Usage(cache_read_tokens=_SAMPLE_TOKENS),
        "written to it": Usage(cache_write_tokens=_SAMPLE_TOKENS),
    }
    million = 1_000_000 // _SAMPLE_TOKENS
    told = ", ".join(f"{(prices.cost_usd(name, usage) or 0.0) * million:.2f} {word}" for word, usage in each.items())
    when = prices.prices().date
    sitting.screen.line(f"prices   in USD per million tokens: {told} (of {when})", indent=0, hang=9)


def _show_used(what: str, used: UsageTotals, *, screen: Screen) -> None:
    """Calls, tokens and dollars."""
    if not used.tokens and not used.calls:
        screen.line(f"{what}: nothing was asked of a model", indent=0, hang=2)
        return
    read = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    parts = (
        "1 call" if used.calls == 1 else f"{used.calls} calls",
        f"{read:,} tokens read",
        f"{used.cache_read_tokens:,} of them from the cache" if used.cache_read_tokens else "",
        f"{used.output_tokens:,} written",
        progress.cost(used),
    )
    screen.line(f"{what}: {'; '.join(part for part in parts if part)}", indent=0, hang=2)


def status(sitting: Sitting, argument: str) -> None:
    """The tickets, or where one stands."""
    if argument:
        show_ticket(find(sitting.crew.root, argument), screen=sitting.screen, typed=at_prompt)
    else:
        show_tickets(all_tickets(sitting.crew.root), screen=sitting.screen, typed=at_prompt)


def new(sitting: Sitting, argument: str) -> None:
    """Make a ticket and take it into work."""
    slug, _, title = argument.partition(" ")
    if not slug:
        raise UsageError("A ticket needs a name.", hint="/new export-as-csv Export as CSV")
    title = title.strip() or slug.replace("-", " ").capitalize()
    ticket = create(sitting.crew.root, slug, title=title, type="feature")
    sitting.work_on(ticket)
    shown = ticket.spec_path.relative_to(sitting.crew.root)
    told = f"Made {shown}. Write down there what you want, or let Socrates ask you: /spec"
    sitting.screen.line(told, indent=0, hang=2)


def doctor(sitting: Sitting, _argument: str) -> None:
    """What a run needs, looked at."""
    sitting.screen.say("looking at what a run needs")
    show_checks(sitting.crew.checks(), screen=sitting.screen)


def show_help(sitting: Sitting, _argument: str) -> None:
    """What can be typed."""
    for typed, told in help_lines():
        sitting.screen.line(f"{typed:<18} {told}".rstrip(), indent=2, hang=19)


def leave(sitting: Sitting, _argument: str) -> None:
    """The session is over; everything is saved already."""
    sitting.is_over = True


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


Action: TypeAlias = Callable[[Sitting, str], None]
"""Carries a command out, given its argument; raises ``CddError``."""

ACTIONS: Mapping[str, Action] = {
    "spec": open_spec,
    "plan": open_plan,
    "exec": open_exec,
    "review": open_review,
    "green": workflow_actions.green,
    "tdd": workflow_actions.tdd,
    "audit": workflow_actions.audit,
    "back": back,
    "new": new,
    "status": status,
    "cost": show_cost,
    "model": model,
    "compact": compact,
    "clear": clear,
    "resume": resume,
    "doctor": doctor,
    "help": show_help,
    "exit": leave,
}
"""Name of a command -> what it does."""
