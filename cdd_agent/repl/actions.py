"""The slash commands: what each does, and how plain words and attached files reach the active agent."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from cdd_agent.agent.loop import INTERRUPTED
from cdd_agent.agent.sessions import EarlierSession, SavedConversation, list_sessions, load_last_session, load_session
from cdd_agent.config.own_commands import list_own_commands
from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.scout import AGENT as SCOUT
from cdd_agent.conversation.scout import Scout, TicketProposal, name_ticket
from cdd_agent.conversation.scout import create_ticket as create_proposed
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import ExitCode, UsageError
from cdd_agent.model.conversation import AssistantMessage, Conversation, Marks, UserMessage
from cdd_agent.model.conversation import Text as Words
from cdd_agent.repl import checkpoint_actions, config_actions, dialogs, review_actions, workflow_actions
from cdd_agent.repl.commands import (
    FORK_WORDS,
    RUN_AS_IN_SHELL,
    describe_own_commands,
    find_command_within,
    is_question,
    list_help,
    parse_command,
    split_words,
)
from cdd_agent.repl.question import confirm
from cdd_agent.repl.render import format_time
from cdd_agent.repl.state import AGENT_COMMANDS, SessionState, agent_name, create_agent, report_dropped
from cdd_agent.runs.places import require_ticket
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.review import Review
from cdd_agent.runs.run import Run
from cdd_agent.tickets.ticket import Ticket, create, find, list_tickets
from cdd_agent.untrusted.text import clean, shorten
from cdd_agent.work.state import Status, lock_ticket
from cdd_agent.workspace.files import Workspace

if TYPE_CHECKING:
    from cdd_agent.repl.diff_view import ReviewDecision

MOST_LINES = 12
MOST_CHARACTERS = 150
"""How much of the user's last message is repeated."""
_AFTER_STOP = {
    ("/tdd run ", "/tdd resume "): "finished phases stay committed. Continue with: /tdd resume",
    ("/green ",): "your files are in a consistent state. Run the same command to continue.",
    ("/generate ",): "nodes that have passed stay. Run the same command to continue.",
    ("/audit ",): "nothing was changed.",
}
"""How a line starts -> what Ctrl-C leaves behind."""
_NO_CONVERSATION = "ask a question about the project, or open /spec or /plan with a ticket"


def open_agent(session: SessionState, argument: str, *, name: str) -> None:
    """Start or continue the work of the agent ``name`` on a ticket. For Socrates, several words become a new ticket."""
    if name == "socrates" and len(argument.split()) > 1:
        argument = _create_ticket(session, name_ticket(session.project.root, argument), words=argument).slug
    if name == "review" and argument and (commit := review_actions.find_commit(argument, session.project)) is not None:
        if review_actions.show_full_screen(commit, session.project.comments(), screen=session.screen) is None:
            review_actions.show_step(commit, screen=session.screen, most_lines=sys.maxsize)
        return
    ticket = session.find_ticket(argument)
    if name != "review":
        require_ticket(ticket)
    if name in ("executor", "review"):
        _start(name, ticket, session=session)
        return
    agent = session.find_agent(name, slug=ticket.slug) or create_agent(name, ticket, project=session.project)
    agent.check()
    session.switch_to(agent)
    _continue(agent, "", session=session)


def _continue(agent: Socrates | Planner, message: str, *, session: SessionState) -> None:
    with lock_ticket(session.project.root, agent.ticket.folder):
        if isinstance(agent, Socrates):
            dialogs.continue_spec(agent, message, screen=session.screen)
        else:
            dialogs.continue_plan(agent, message, screen=session.screen)


def _start(name: str, ticket: Ticket, *, session: SessionState, goes_back: bool = False) -> None:
    """Start the Executor or a review, and leave it at once if nothing is left to do."""
    session.project.follow(ticket.slug)
    if name == "executor":
        executor = session.project.executor(ticket)
        session.switch_to(executor, goes_back=goes_back)
        has_work = dialogs.start_execution(executor, screen=session.screen)
    else:
        review = session.project.review(ticket)
        session.switch_to(review, goes_back=goes_back)
        if review.remaining and session.screen.has_full_screen:
            _view(review, session=session)
            return
        asks = session.project.options.attended
        has_work = review_actions.start_review(review, screen=session.screen, asks=asks)
    if not has_work:
        session.leave_agent(for_good=True)


def _view(review: Review, *, session: SessionState) -> None:
    """Let the user decide about step after step on the whole screen, until none is left or the user leaves."""
    while (decision := review_actions.view_step(session, review)) is not None and decision.action != "leave":
        if decision.action in ("iterate", "fork"):
            _do_as_decided(decision, review=review, session=session)
            return
        if not review_actions.approve(review, screen=session.screen, asks=session.project.options.attended):
            session.leave_agent()
            return
    review_actions.show_choices(review, screen=session.screen)


def _do_as_decided(decision: "ReviewDecision", *, review: Review, session: SessionState) -> None:
    """Run the current step again, as the user decided in the viewer, whose words would be lost with it."""
    if decision.text:
        head = "fork" if decision.action == "fork" else "change this"
        session.screen.line(f"{head}: {clean(decision.text)}", style="dim")
    _do_otherwise(decision.action, decision.text, review=review, session=session)


def _do_otherwise(action: str, words: str, *, review: Review, session: SessionState) -> None:
    """Run the current step again: with the user's words and the open comments, or in a fork with another direction."""
    number, slug = review.step.number, review.ticket.slug
    require_ticket(review.ticket)
    session.project.model.check()
    if action == "fork":
        session.run(["fork", "start", slug, str(number), words])
        session.switch_to(session.project.executor(find(session.project.root, slug)))
        send(session, "continue")
        return
    feedback = review_actions.format_feedback(session.project.comments().list_of_step(slug, number), words)
    session.switch_to(session.project.executor(review.ticket))
    send(session, f"retry {number} {feedback}")


def _review_completed(executor: Run[PlanSteps], number: int, *, session: SessionState) -> None:
    """Show the step that was completed; run the next one if it is approved, or this one again.

    With ``--no-review`` it is approved, because its gates opened.
    """
    waives = session.project.options.no_review
    if not (waives or session.screen.has_full_screen):
        return
    review = session.project.review(executor.ticket)
    review.go_to(number)
    if waives:
        review_actions.approve(review, screen=session.screen, asks=session.project.options.attended)
        executor.read()
        return
    decision = review_actions.view_step(session, review)
    if decision is not None and decision.action in ("iterate", "fork"):
        _do_as_decided(decision, review=review, session=session)
    elif decision is not None and decision.action == "approve":
        review_actions.approve(review, screen=session.screen, asks=session.project.options.attended)
        executor.read()
        if session.agent is executor and executor.find_next_step() is not None:
            send(session, "continue")


def go_back(session: SessionState, _argument: str) -> None:
    """Return to the previous agent and its conversation, or from the first one to the plain prompt."""
    if not session.previous:
        if session.agent is None:
            raise UsageError("No previous agent.", hint="open one: /spec, /plan or /exec with a ticket")
        session.leave_agent(for_good=True)
        session.screen.line("Left the agent. Return with /spec, /plan or /exec.")
        return
    name, slug = session.previous.pop()
    ticket = find(session.project.root, slug)
    agent = session.find_agent(name, slug=slug)
    if agent is None:
        _start(name, ticket, session=session, goes_back=True)
    else:
        session.switch_to(agent, goes_back=True)
        session.screen.line(f"Back in /{AGENT_COMMANDS[name]} {slug}.", style="bold")
        show_last_message(agent, session=session)


def carry_out(session: SessionState, line: str) -> ExitCode | None:
    """Carry out a line that starts with a slash; ``//fork: WORDS`` is about the step to review."""
    if wish := review_actions.parse_wish(line) if line.startswith("//") else None:
        agent = session.agent
        review = agent if isinstance(agent, Review) else session.project.review(session.find_ticket(""))
        _do_otherwise(*wish, review=review, session=session)
        return None
    own = list_own_commands(session.project.root, environment=session.project.environment)
    command, argument = parse_command(line, describe_own_commands(own))
    if argument in ("--help", "-h") and command.name not in RUN_AS_IN_SHELL:
        session.screen.line(f"/{command.name} {command.argument}".rstrip(), style="bold")
        session.screen.line(command.help, indent=2)
        return None
    if command.name in ACTIONS:
        return ACTIONS[command.name](session, argument)
    chosen = own[command.name]
    if not session.project.trust.allows(chosen.offer):
        return ExitCode.USAGE
    session.screen.line(f"{session.screen.symbols['tool']} {chosen.source}", style="dim")
    send(session, chosen.expand(argument))
    return None


def send_typed(session: SessionState, words: str) -> None:
    """Pass a line that the user has typed to the active agent, unless it was perhaps meant as a command."""
    command = find_command_within(words) if isinstance(session.agent, Run) and not is_question(words) else None
    if command is not None:
        happened, alone = f"This line contains the command {command}.", f"type the command alone: {command}"
        if not session.project.options.attended:
            hint = f"{alone}; in quotes, it is text for the model"
            raise UsageError(f"{happened} Nothing was sent.", hint=hint)
        session.screen.line(happened, style="yellow")
        if not confirm("Send the whole line to the model? [y/N]", screen=session.screen):
            session.screen.line(f"Nothing was sent. To run it, {alone}")
            return
    send(session, words)


def send(session: SessionState, words: str) -> None:
    """Pass plain words, with the files they name, to the active agent."""
    agent, screen = session.agent, session.screen
    match agent:
        case Socrates() | Planner() if words:
            checkpoint_actions.save_before(session, words)
            session.transcript.record_input(words)
            workspace, marks = Workspace(session.project.root), Marks(agent.conversation.token)
            message = attach_files(words, workspace, marks=marks, tell=screen.note)
            _continue(agent, message, session=session)
        case Socrates() if agent.conversation.messages:
            dialogs.continue_spec(agent, "", screen=screen)
        case Run() | Review() if is_question(words) and review_actions.parse_wish(words) is None:
            _answer_aside(agent, words, session=session)
        case Run():
            _send_to_executor(agent, words, session=session)
        case Review():
            if wish := review_actions.parse_wish(words):
                _do_otherwise(*wish, review=agent, session=session)
            elif words.strip().lower() in ("v", "view") and screen.has_full_screen:
                _view(agent, session=session)
            else:
                asks = session.project.options.attended
                if not review_actions.handle_review_input(agent, words, screen=screen, asks=asks):
                    session.leave_agent()
        case _ if words:
            _ask_scout(session, words)


def _send_to_executor(executor: Run[PlanSteps], words: str, *, session: SessionState) -> None:
    if request := dialogs.parse_split(executor, words):
        open_agent(session, executor.ticket.slug, name="planner")
        send(session, request)
        return
    before = executor.state
    if not dialogs.handle_executor_input(executor, words, screen=session.screen):
        session.leave_agent()
    completed, state = dialogs.list_completed(before, executor.state), executor.state
    if completed:
        _review_completed(executor, completed[0], session=session)
    elif state.is_approved and state.numbers(Status.COMPLETED) and not before.is_approved:  # the last step is skipped
        review = session.project.review(executor.ticket)
        review_actions.start_review(review, screen=session.screen, asks=session.project.options.attended)


def _ask_scout(session: SessionState, words: str) -> None:
    """Let Scout answer a question, or offer a ticket for a request."""
    proposal = _hear_scout(session, words)
    if proposal is not None:
        dialogs.show_proposal(proposal, screen=session.screen)
        _offer(session, proposal, words=words)


def _answer_aside(agent: Run[PlanSteps] | Review, words: str, *, session: SessionState) -> None:
    """Let Scout answer a question about the ticket at work: a question starts nothing that costs or changes code."""
    folder = os.path.relpath(agent.ticket.folder, session.project.root)
    try:
        proposal = _hear_scout(session, words, about=f"\n\n(I am at the ticket {agent.ticket.slug}, see {folder}.)")
    finally:
        session.transcript.switch_agent(agent_name(agent), ticket=agent.ticket.slug)
    if proposal is not None:
        how = "a sentence without a question mark" if isinstance(agent, Run) else "change this: WORDS"
        session.screen.line(f"Nothing was changed. To let the model change something, type {how}.")
    if isinstance(agent, Run):
        dialogs.show_choices(agent, screen=session.screen)


def _hear_scout(session: SessionState, words: str, *, about: str = "") -> TicketProposal | None:
    scout = session.scout = session.scout or session.project.scout()
    checkpoint_actions.save_before(session, words)
    session.transcript.switch_agent(SCOUT, ticket="")
    session.transcript.record_input(words)
    workspace, marks = Workspace(session.project.root), Marks(scout.conversation.token)
    return scout.hear(attach_files(words, workspace, marks=marks, tell=session.screen.note) + about)


_OFFERS = {
    "now": "change it now: one step, test first (RED, GREEN, REFACTOR)",
    "ticket": "make it a ticket, and let Socrates ask about open points",
    "nothing": "neither; I say what I want instead",
}


def _offer(session: SessionState, proposal: TicketProposal, *, words: str) -> None:
    offers = [offer for offer in _OFFERS if offer != "now" or proposal.size == "small"]
    choose = session.project.options.choose
    if choose is None:
        session.screen.line(f"Nothing was created. To create it: /new {proposal.slug} {proposal.title}")
        return
    match offers[choose("What should cdd do?", tuple(_OFFERS[offer] for offer in offers))]:
        case "now":
            ticket = _create_ticket(session, proposal, words=words)
            session.switch_to(session.project.executor(ticket))
            send(session, "continue")
        case "ticket":
            open_agent(
                session, _create_ticket(session, replace(proposal, size="large"), words=words).slug, name="socrates"
            )
        case _:
            session.screen.line("Nothing was created. Write what you want instead.")


def _create_ticket(session: SessionState, proposal: TicketProposal, *, words: str) -> Ticket:
    ticket = create_proposed(session.project.root, proposal, words=words)
    path = ticket.spec_path.relative_to(session.project.root)
    session.screen.line(f"{session.screen.symbols['open']} Created {path}", style="green")
    return ticket


def show_last_message(agent: Socrates | Planner | Scout, *, session: SessionState, typed: str = "") -> None:
    """Repeat the end of a conversation in short. ``typed`` is the user's last message."""
    screen = session.screen
    is_open = _is_unanswered(agent.conversation)
    from_user = Text.assemble(("you  ", "bold cyan"), clean(shorten(typed, MOST_CHARACTERS)))
    if typed and not is_open:
        screen.line(from_user, hang=5)
    if isinstance(agent, Socrates) and agent.question is not None:
        dialogs.continue_spec(agent, "", screen=screen)
        return
    answer = _last_answer(agent.conversation)
    if answer:
        screen.stream("\n".join(answer.splitlines()[-MOST_LINES:]))
        screen.end_prose()
    if typed and is_open:
        screen.line(from_user, hang=5)
    if is_open:
        text = "Your last message has no answer yet. Send it again, or write something else."
    elif answer:
        text = "Write a message to continue."
    else:
        text = "The conversation is empty. Write what you want."
    screen.line(text, style="bold")


def _is_unanswered(conversation: Conversation) -> bool:
    match conversation.messages:
        case (*_, UserMessage(content=content)):
            return any(isinstance(block, Words) or block.content == INTERRUPTED for block in content)
    return False


def _last_answer(conversation: Conversation) -> str:
    for message in reversed(conversation.messages):
        if isinstance(message, AssistantMessage):
            answer = "".join(block.text for block in message.content if isinstance(block, Words)).strip()
            if answer:
                return answer
    return ""


def report_stop(session: SessionState, words: str) -> None:
    """Say what Ctrl-C leaves behind after the line ``words``."""
    screen = session.screen
    text = next((text for starts, text in _AFTER_STOP.items() if f"{words} ".startswith(starts)), None)
    if text is not None:
        screen.line(f"Stopped; {text}", style="yellow")
    elif isinstance(session.agent, Socrates | Planner):
        screen.line("Stopped. The conversation so far is saved. Write a message to continue.", style="yellow")
    else:
        screen.line("Stopped. All work is in a consistent state.", style="yellow")
        if isinstance(session.agent, Run):
            dialogs.show_choices(session.agent, screen=screen)


def run_command(session: SessionState, argument: str, *, name: str) -> ExitCode:
    """Carry out a command as the command line does.

    /tdd alone shows the status of the run. /report without a ticket is about the current one.
    """
    if name == "fork":
        return _run_fork(session, argument.split())
    if name == "tdd":
        argument = argument or "status"
    if name == "report" and (not argument or argument.startswith("-")):
        argument = f"{session.find_ticket('').slug} {argument}"
    return session.run(split_words(f"{name} {argument}"))


def _run_fork(session: SessionState, words: list[str]) -> ExitCode:
    """Carry out ``/fork``, and leave the agent of a ticket that is carried out elsewhere from now on."""
    project = session.project
    if words and words[0] not in FORK_WORDS and words[0] not in {each.slug for each in list_tickets(project.root)}:
        words = [session.find_ticket("").slug, *words]
    current, agent = project.forks.find_current, session.agent
    before = current(agent.ticket.slug) if agent else None
    code = session.run(["fork", *words])
    if isinstance(agent, Run | Review) and current(agent.ticket.slug) != before:
        session.leave_agent(for_good=True)
        session.screen.line(f"Left the agent. Go on there: /exec {agent.ticket.slug}")
    return code


def create_ticket(session: SessionState, argument: str) -> None:
    """Create a ticket and make it the current one."""
    slug, _, title = argument.partition(" ")
    if not slug:
        raise UsageError("A ticket needs a name.", hint="/new export-as-csv Export as CSV")
    ticket = create(session.project.root, slug, title=title)
    session.leave_agent()
    session.slug = ticket.slug
    path = ticket.spec_path.relative_to(session.project.root)
    session.screen.line(f"Created {path}. Describe there what you want, or let Socrates ask you: /spec")


def show_help(session: SessionState, _argument: str) -> None:
    """Show what can be typed."""
    own = list_own_commands(session.project.root, environment=session.project.environment)
    for typed, text in list_help(describe_own_commands(own)):
        if typed and len(typed) <= _HELP_COLUMNS:
            session.screen.line(f"{typed:<{_HELP_COLUMNS}} {text}".rstrip(), indent=2, hang=_HELP_COLUMNS + 1)
        else:
            if typed:  # too long for its column
                session.screen.line(typed, indent=2)
            session.screen.line(text, indent=_HELP_COLUMNS + 3, hang=0)
    for command in own.values():
        if command.name in ACTIONS:
            session.screen.note(f"{command.source} is not used: /{command.name} is a command of cdd. Rename the file.")


def exit_session(session: SessionState, _argument: str) -> None:
    """End the session."""
    session.is_over = True


def resume_session(session: SessionState, argument: str) -> None:
    """Continue an earlier session with its conversations and its last active agent."""
    root, present = session.project.root, session.transcript.id
    earlier = load_session(root, argument, present=present) if argument else load_last_session(root, present=present)
    if earlier.agent not in (*AGENT_COMMANDS, SCOUT):
        raise UsageError(f"The session {earlier.id} has no conversation.", hint=_NO_CONVERSATION)
    ticket = find(root, earlier.ticket) if earlier.agent != SCOUT else None
    screen = session.screen
    screen.line(f"Continuing the session of {format_time(earlier.time)}: {_format_place(earlier)}", style="bold")
    last = None
    for talk in earlier.conversations:
        if talk.agent == SCOUT:
            session.scout = session.project.scout()
            session.scout.conversation = session.scout.dialog.resume(talk.token, talk.messages)
        if (talk.agent, talk.ticket) == (earlier.agent, earlier.ticket):
            last = talk
        elif talk.agent != SCOUT:
            _remember_agent(talk, session=session)
    if ticket is None:
        session.transcript.switch_agent(SCOUT, ticket="")
        if session.scout is not None:
            show_last_message(session.scout, session=session, typed=last.typed if last is not None else "")
    elif earlier.agent in ("executor", "review"):
        _start(earlier.agent, ticket, session=session)
    elif last is None:
        agent = create_agent(earlier.agent, ticket, project=session.project)
        session.switch_to(agent)
        show_last_message(agent, session=session)
    else:
        agent = _restore_agent(last, session=session)
        model = session.project.model.name
        if last.model != model:
            screen.note(f"The conversation started with {last.model}; now {model} answers.")
        session.switch_to(agent)
        show_last_message(agent, session=session, typed=last.typed)
    session.transcript.record_continuation(earlier.id)


def _remember_agent(talk: SavedConversation, *, session: SessionState) -> None:
    try:
        session.remember(_restore_agent(talk, session=session))
    except UsageError as error:
        report_dropped(talk.agent, talk.ticket, error=error, screen=session.screen)


def _restore_agent(talk: SavedConversation, *, session: SessionState) -> Socrates | Planner:
    agent = create_agent(talk.agent, find(session.project.root, talk.ticket), project=session.project)
    agent.conversation = agent.dialog.resume(talk.token, talk.messages)
    return agent


def compact(session: SessionState, _argument: str) -> None:
    """Replace the conversation by a summary."""
    agent = _require_conversation(session, verb="compact")
    if agent is None:
        return
    if not agent.conversation.messages:
        raise UsageError("The conversation is empty; there is nothing to compact.", hint="write a message first")
    agent.conversation = agent.dialog.summarize(agent.conversation)


def clear(session: SessionState, _argument: str) -> None:
    """Start a new conversation with the active agent."""
    if session.agent is None and session.scout is not None:
        session.scout = None
        session.screen.line("Started a new conversation.")
        return
    agent = _require_conversation(session, verb="clear")
    if agent is None:
        return
    agent.conversation = agent.dialog.restart()
    text = "Started a new conversation. spec.yaml and plan.md are unchanged. Write a message, or type"
    session.screen.line(f"{text} /{AGENT_COMMANDS[agent.dialog.agent]}.")


def _require_conversation(session: SessionState, *, verb: str) -> Socrates | Planner | Scout | None:
    """Return the agent with a conversation, or None after a message that says why it has none."""
    match session.agent or session.scout:
        case Socrates() | Planner() | Scout() as agent:
            return agent
        case Run():
            session.screen.line(f"The Executor starts a new conversation for each attempt; there is nothing to {verb}.")
        case Review():
            session.screen.line(f"A review has no conversation with a model to {verb}.")
        case None:
            raise UsageError("No agent is active.", hint=_NO_CONVERSATION)
    return None


def describe_sessions(project: Path) -> Iterable[tuple[str, str]]:
    """Yield the id of each session that can be resumed, with its time, agent, ticket and first words."""
    for session in list_sessions(project):
        words = f": {session.first_words}" if session.first_words else ""
        yield session.id, f"{format_time(session.time)}, {_format_place(session)}{words}"


def _format_place(session: EarlierSession) -> str:
    if session.agent == SCOUT:
        return "questions"
    return f"/{AGENT_COMMANDS.get(session.agent, session.agent)} {session.ticket}"


ACTIONS: Mapping[str, Callable[[SessionState, str], ExitCode | None]] = {
    **{command: partial(open_agent, name=name) for name, command in AGENT_COMMANDS.items()},
    **{name: partial(run_command, name=name) for name in RUN_AS_IN_SHELL},
    "tree": workflow_actions.show_tree,
    "comment": review_actions.comment,
    "diff": workflow_actions.show_diff,
    "undo": checkpoint_actions.undo,
    "redo": checkpoint_actions.redo,
    "checkpoint": checkpoint_actions.checkpoint,
    "rewind": checkpoint_actions.rewind,
    "config": config_actions.configure,
    "permissions": config_actions.manage_permissions,
    "back": go_back,
    "new": create_ticket,
    "cost": config_actions.show_cost,
    "model": config_actions.choose_model,
    "compact": compact,
    "clear": clear,
    "resume": resume_session,
    "help": show_help,
    "exit": exit_session,
}


MAX_FILE_BYTES = 64 * 1024
"""Size of one attached file."""
MAX_FILES = 10
"""Files attached to one message."""
MAX_MENTIONS = 100
"""Words with ``@`` that are checked in one message; pasted text may contain many more."""
_MAX_SHOWN = 120
"""Characters of an unknown name in a notice."""
_HELP_COLUMNS = 18
"""Columns of what can be typed, before its help."""

_MENTION = re.compile(r"(?<![^\s(\[])@(?:\"(?P<quoted>(?:[^\"\\\n]|\\.)+)\"|(?P<plain>[^\s\"]+))")
"""``@src/reading.py``, or ``@"my notes.md"``, at the start of a word."""
_PUNCTUATION = ".,;:!?)]}'*`"
"""Characters that may follow a path without belonging to it."""


def attach_files(message: str, workspace: Workspace, *, marks: Marks, tell: Callable[[str], None]) -> str:
    """Append the files that ``message`` mentions as ``@path``, each between the marks.

    A mention that is not a file of the project stays a word. ``tell`` gets a notice for every file that is left out.
    """
    mentions = islice(_MENTION.finditer(message), MAX_MENTIONS)
    parts = [message]
    missing: list[str] = []
    surplus: list[str] = []
    for path in dict.fromkeys(_find_path(mention, workspace) for mention in mentions):
        if not workspace.is_file(path):
            missing += [path] if "/" in path else []
            continue
        if len(parts) > MAX_FILES:
            surplus.append(path)
            continue
        try:
            text = workspace.read_text(path, cap_bytes=MAX_FILE_BYTES).text
        except UsageError as error:
            tell(f"@{path} is not attached: {error.happened}")
            continue
        parts.append(marks.wrap(text, source=path, exact=True))
    if surplus:
        notice = f"@{surplus[0]} is not attached: a message can have {MAX_FILES} files"
        tell(f"{notice}; {len(surplus) - 1} more are not attached." if len(surplus) > 1 else f"{notice}.")
    if missing:
        first = shorten(missing[0], _MAX_SHOWN)
        notice = f"The project has no file {first}; @{first} is sent as text"
        tell(f"{notice}, and so are {len(missing) - 1} more names." if len(missing) > 1 else f"{notice}.")
    return "\n\n".join(parts)


def _find_path(mention: re.Match[str], workspace: Workspace) -> str:
    if mention["quoted"]:
        return mention["quoted"].encode("latin-1", "backslashreplace").decode("unicode_escape", "replace")
    plain = mention["plain"]
    return plain if workspace.is_file(plain) else plain.rstrip(_PUNCTUATION)
