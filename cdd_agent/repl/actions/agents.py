"""Opening the agents, going back to one, and giving words to the one that listens."""

from rich.text import Text

from cdd_agent.agent.loop import INTERRUPTED
from cdd_agent.agent.quoted import Marks
from cdd_agent.agent.talk.enclosure import with_files
from cdd_agent.errors import UsageError
from cdd_agent.model.conversation import AssistantMessage, Conversation, UserMessage
from cdd_agent.model.conversation import Text as Words
from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.repl.sitting import NAMES, Sitting
from cdd_agent.repl.talk import conversation as conversation_talk
from cdd_agent.repl.talk import executor as executor_talk
from cdd_agent.repl.talk import review as review_talk
from cdd_agent.review.review import Review
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.work.hold import holding_ticket
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
        conversation_talk.question(socrates, "", screen=sitting.screen)


def open_plan(sitting: Sitting, argument: str) -> None:
    """Draft a plan, or show the one that is there, and stay: the user can say what to change."""
    ticket = sitting.ticket(argument)
    alive = sitting.alive("planner", slug=ticket.slug)
    planner = alive if isinstance(alive, Planner) else sitting.crew.planner(ticket)
    planner.check()
    sitting.listen(planner)
    with holding_ticket(sitting.crew.root, ticket.folder):
        conversation_talk.plan(planner, "", screen=sitting.screen)


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
                    conversation_talk.question(agent, told, screen=sitting.screen)
                else:
                    conversation_talk.plan(agent, told, screen=sitting.screen)
        case Socrates() if agent.conversation.messages:
            conversation_talk.question(agent, "", screen=sitting.screen)
        case Executor():
            if not executor_talk.say(agent, words, screen=sitting.screen):
                sitting.leave()
        case Review():
            if not review_talk.say(agent, words, screen=sitting.screen):
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
        conversation_talk.question(agent, "", screen=screen)
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
            executor_talk.say_what_is_next(executor, screen=screen)
        case Socrates() | Planner():
            told = "Stopped. What was said so far is kept; say in plain words how to go on."
            screen.line(told, style="yellow", indent=0, hang=2)
        case Review() | None:
            screen.line("Stopped; nothing is half done.", style="yellow", indent=0)


def _greet(sitting: Sitting, ticket: Ticket, *, goes_back: bool = False) -> None:
    """Open the Executor, which reads the ticket's files as they are now."""
    executor = sitting.crew.executor(ticket)
    sitting.listen(executor, goes_back=goes_back)
    if not executor_talk.greet(executor, screen=sitting.screen):
        sitting.leave(for_good=True)


def _show_review(sitting: Sitting, ticket: Ticket, *, goes_back: bool = False) -> None:
    """Open a review of what is completed now."""
    review = sitting.crew.review(ticket)
    sitting.listen(review, goes_back=goes_back)
    if not review_talk.greet(review, screen=sitting.screen):
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
