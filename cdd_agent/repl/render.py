"""Events as lines on a screen, printed as they happen.

Where tickets and steps stand, as plain values: what ``cdd --json status`` prints.

A plan as a tree: each step below the one it comes after, and which criterion is served where.

Where tickets and steps stand.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from cdd_agent.errors import UsageError
from cdd_agent.events import (
    AttemptStarted,
    ClaimChecked,
    Committed,
    Compacted,
    Event,
    GateJudged,
    HandoffListed,
    HandoffsAudited,
    NoteDamaged,
    NoteRepaired,
    NotesRepaired,
    Notice,
    PlanDrafted,
    QuestionAsked,
    RetryScheduled,
    RollbackPlanned,
    RolledBack,
    RunFinished,
    RunStanding,
    RunStarted,
    SpecProposed,
    SpecSaved,
    StepFinished,
    StepListed,
    StepReviewed,
    StepStarted,
    SuiteFinished,
    SuiteStarted,
    TextDelta,
    ThinkingDelta,
    TicketListed,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from cdd_agent.repl.progress import cost
from cdd_agent.repl.screen import Screen
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import clean
from cdd_agent.work import state_file
from cdd_agent.work.order import order
from cdd_agent.work.state import Phase, RunState, Status, StepExecution


def ticket_listed(ticket: Ticket) -> TicketListed:
    """How far ``ticket`` is; one whose files are not valid says why."""
    try:
        wanted, state = spec.load(ticket.spec_path), state_file.load(ticket.state_path)
    except UsageError as error:
        return TicketListed(
            ticket=ticket.slug,
            title="",
            missing=(),
            has_plan=False,
            status="",
            steps=0,
            completed=0,
            failed=0,
            problem=error.happened,
        )
    return TicketListed(
        ticket=ticket.slug,
        title=wanted.title,
        missing=spec.find_missing(wanted),
        has_plan=ticket.plan_path.exists(),
        status="" if state is None else state.status,
        steps=0 if state is None else len(state.step_executions),
        completed=0 if state is None else len(state.numbers(Status.COMPLETED)),
        failed=0 if state is None else len(state.numbers(Status.FAILED)),
        problem="",
    )


def steps_listed(ticket: Ticket) -> Iterator[StepListed]:
    """The steps of the run of ``ticket``, in the order of the plan; raises ``DocumentError`` for a damaged state."""
    state = state_file.load(ticket.state_path)
    for number, step in state.step_executions.items() if state else ():
        yield StepListed(
            ticket=ticket.slug,
            number=number,
            title=step.title,
            status=step.status,
            phase=step.phase or "",
            attempts=tuple(f"{tried.phase} {tried.number} {tried.verdict}" for tried in step.attempts),
            commits=tuple(f"{phase} {commit}" for phase, commit in step.commits.items()),
            error=step.error or "",
            tokens=step.usage.tokens,
            cost_usd=step.usage.cost_usd,
        )


_GUIDE_WIDTH = 4
_LEAST_WIDTH = 36
"""Of the text of a step, however deep it hangs."""


def show_plan(
    plan: Plan, *, screen: Screen, criteria: Sequence[str] = (), created: Collection[str] = frozenset()
) -> None:
    """The steps of a plan as a tree, then each criterion with the steps that serve it.

    A step hangs below the last of those it depends on. ``criteria``: the ids of the spec's criteria, in their order.
    ``created``: files that are not there yet.
    """
    deepest = max(1, (screen.console.width - _LEAST_WIDTH) // _GUIDE_WIDTH)
    tree = Tree(Text(clean(plan.title) or "Plan", style="bold"), guide_style="dim")
    ways: dict[int, list[Tree]] = {}  # step -> the nodes from the top down to it
    new = set(created)
    for step in _in_order(plan):
        above = next((number for number in reversed(ways) if number in step.depends_on), None)
        way = [tree] if above is None else ways[above]
        if len(way) > deepest:  # no room below: it hangs beside the step it comes after, and says so
            way, above = way[:deepest], None
        after = () if step.depends_on == (above,) else step.depends_on
        node = way[-1].add(_label(step, after=after, new=new))
        ways.setdefault(step.number, [*way, node])
        new -= {*step.files, *_by_file(step)}
    screen.show(tree)
    screen.gap()
    _show_coverage(plan, screen=screen, criteria=criteria)


def _in_order(plan: Plan) -> tuple[Step, ...]:
    """The steps as they are carried out; as in the file where they cannot be."""
    by_number: dict[int, Step] = {}
    for step in plan.steps:
        by_number.setdefault(step.number, step)
    try:
        numbers = order({n: [d for d in step.depends_on if d in by_number] for n, step in by_number.items()})
    except UsageError:  # they wait for each other
        numbers = tuple(by_number)
    twice = (step for step in plan.steps if by_number[step.number] is not step)
    return (*(by_number[number] for number in numbers), *twice)


def _label(step: Step, *, after: Sequence[int], new: Collection[str]) -> Group:
    """What is shown of one step."""
    waits = f"after {', '.join(str(number) for number in after)}" if after else ""
    told = ", ".join(part for part in (step.kind, clean(step.size), waits) if part)
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for path in step.files:
        rows.add_row("files" if path == step.files[0] else "", _path(path, new))
    tests = _by_file(step)
    for path, names in tests.items():
        listed = Text("\n").join([_path(path, new), *(Text(f"  {clean(name)}") for name in names)])
        rows.add_row("tests" if path == next(iter(tests)) else "", listed)
    if step.criteria:
        rows.add_row("for", clean(", ".join(step.criteria)))
    title = Text.assemble((f"{step.number}", "bold cyan"), "  ", (clean(step.title), "bold"))
    return Group(title, Text(told, style="dim"), *([rows] if rows.row_count else []))


def _by_file(step: Step) -> dict[str, list[str]]:
    """Test file -> the tests in it that the step names."""
    found: dict[str, list[str]] = {}
    for test in step.tests:
        path, _, name = test.partition("::")
        found.setdefault(path, []).extend([name] if name else [])
    return found


def _path(path: str, new: Collection[str]) -> Text:
    return Text.assemble(clean(path), (" (new)", "green") if path in new else "")


def _show_coverage(plan: Plan, *, screen: Screen, criteria: Sequence[str]) -> None:
    """Each criterion with the steps that serve it."""
    served: dict[str, list[int]] = {name: [] for name in criteria}
    for step in plan.steps:
        for name in step.criteria:
            served.setdefault(name, []).append(step.number)
    for name, numbers in served.items():
        steps = "step" if len(numbers) == 1 else "steps"
        told = f"{steps} {', '.join(str(number) for number in numbers)}" if numbers else "no step"
        screen.line(Text.assemble((f"{clean(name)}: ", "bold"), (told, "" if numbers else "red")), indent=0, hang=2)


_PHASE_STYLE = {"red": "bold red", "green": "bold green", "refactor": "bold blue"}

WAITING = "waiting for the model"
SAVING = "saving"
ASKS_DEVELOPER = "AskDeveloper"
"""The tool whose question is shown for itself, set off, once the turn is over."""
COMMAND_WENT_WELL = "exit status 0"
"""What Bash answers first, and nobody needs to see."""


def reason_text(reason: str) -> Text:
    """One reason of a gate: its code set off from its message."""
    code, colon, message = clean(reason).partition(": ")
    return Text.assemble((code, "bold red"), colon, message)


class Renderer:
    """Prints events; its ``write`` is an ``Emit``."""

    def __init__(self, screen: Screen) -> None:
        """Nothing is printed yet."""
        self._screen = screen
        self._header = ""
        self._steps = 0
        self._unit = "Step"
        self._is_in_tool = False

    def write(self, event: Event) -> None:
        """Print one event."""
        match event:
            case TextDelta(text=text):
                self._screen.stream(text)
            case ThinkingDelta():
                self._screen.say("the model is thinking")
            case TurnEnded():
                self._screen.end_prose()
            case ToolCalled() | ToolReturned() | SuiteStarted() | SuiteFinished():
                self._tool(event)
            case GateJudged():
                self._verdict(event)
            case Committed(commit=commit, subject=subject):
                self._screen.line(f"{self._screen.symbols['commit']} {commit[:8]}  {subject}", style="bold", hang=2)
            case RolledBack() | Notice() | RetryScheduled() | Compacted():
                self._remark(event)
            case QuestionAsked(question=question, options=options):
                self._question(question, options)
            case SpecProposed() | SpecSaved() | PlanDrafted():
                self._document(event)
            case RunStarted() | RunFinished() | StepStarted() | StepFinished() | AttemptStarted():
                self._progress(event)
            case (StepReviewed() | TicketListed() | StepListed() | ClaimChecked() | HandoffsAudited()) | (
                HandoffListed() | RunStanding() | RollbackPlanned() | NoteDamaged() | NoteRepaired() | NotesRepaired()
            ):
                pass  # shown by whoever was asked for it

    def _tool(self, event: ToolCalled | ToolReturned | SuiteStarted | SuiteFinished) -> None:
        """One line for a tool or a test run, and below it what came of it, if that is worth a line."""
        match event:
            case ToolCalled(name=name, subject=subject):
                self._is_in_tool = True
                if name == ASKS_DEVELOPER:
                    return
                self._screen.line(self._cut(f"{self._screen.symbols['tool']} {name} {' '.join(subject.split())}"))
                self._screen.say(f"{name} {' '.join(subject.split())}")
            case ToolReturned(ok=ok, summary=summary):
                self._is_in_tool = False
                if not ok or (event.name == "Bash" and summary != COMMAND_WENT_WELL):
                    style = "dim" if ok else "red"
                    self._screen.line(summary, style=style, indent=self._screen.indent + 2, hang=2)
                self._screen.say(WAITING)
            case SuiteStarted(purpose=purpose, framework=framework):
                self._screen.say(f"{framework}: {purpose}")
            case SuiteFinished():
                self._suite(event)
                self._screen.say(WAITING)

    def _cut(self, told: str) -> Text:
        """``told`` as one row."""
        row = Text(clean(told).rstrip(), style="dim")
        width = self._screen.console.width - self._screen.indent
        if row.cell_len > width:
            row.truncate(width - 1)
            row.append(self._screen.symbols["cut"])
        return row

    def _suite(self, event: SuiteFinished) -> None:
        """The counts of a test run, below the tool that ran it or on a line of its own."""
        errors = "error" if event.errors == 1 else "errors"
        counts = {"passed": event.passed, "failed": event.failed, errors: event.errors, "skipped": event.skipped}
        told = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test was collected"
        told = event.problem or f"{told} in {event.duration_s:.1f} s"
        style = "dim" if event.problem is None else "red"
        if self._is_in_tool:
            self._screen.line(told, style=style, indent=self._screen.indent + 2, hang=2)
        else:
            run = f"{event.framework}, {event.purpose}"
            self._screen.line(f"{self._screen.symbols['tool']} {run}: {told}", style=style, hang=2)

    def _verdict(self, event: GateJudged) -> None:
        """A gate's answer, set off from everything around it, with its reasons."""
        self._screen.say(SAVING)
        word, color = ("open", "green") if event.open else ("closed", "red")
        badge = f"{self._screen.symbols[word]} {event.phase.upper()} gate {word}"
        self._screen.line(Text.assemble((badge, f"bold reverse {color}"), f"  {clean(event.evidence)}"), hang=2)
        for reason in event.reasons:
            self._screen.line(reason_text(reason), indent=self._screen.indent + 2, hang=2)

    def _remark(self, event: RolledBack | Notice | RetryScheduled | Compacted) -> None:
        """Something to know besides the work itself."""
        match event:
            case RolledBack(kept=kept, why=why):
                told = f"Rolled back: {why}. What was there is kept in {kept}"
                self._screen.line(f"{self._screen.symbols['back']} {told}", style="yellow", hang=2)
            case Compacted(before_tokens=before, after_characters=after):
                told = f"The conversation ({before:,} tokens) goes on from a summary of {after:,} characters."
                self._screen.line(f"{self._screen.symbols['note']} {told}", style="yellow", hang=2)
            case Notice(text=text):
                self._screen.line(f"{self._screen.symbols['note']} {text}", style="yellow", hang=2)
            case RetryScheduled(why=why, wait_s=wait, number=number, limit=limit, withdrawn=withdrawn):
                void = "; what was said of this answer does not count" if withdrawn else ""
                told = f"{why}{void}; try {number} of {limit} in {wait:.0f} s"
                self._screen.line(f"{self._screen.symbols['note']} {told}", style="yellow", hang=2)
                self._screen.say(f"try {number} of {limit} in", for_s=wait)

    def _question(self, question: str, options: tuple[str, ...]) -> None:
        """One question with the answers to choose from, set off."""
        self._screen.gap()
        self._screen.line(question, style="bold", hang=2)
        for number, option in enumerate(options, start=1):
            self._screen.line(Text.assemble((f"{number}", "bold cyan"), f"  {clean(option)}"), indent=2, hang=3)

    def _document(self, event: SpecProposed | SpecSaved | PlanDrafted) -> None:
        """What is to become, or became, of a spec or a plan."""
        match event:
            case SpecProposed(diff=diff):
                self._screen.show_diff(diff)
            case SpecSaved(changed=changed, missing=missing):
                keys = ", ".join(key.replace("_", " ") for key in changed) or "no change"
                still = f"; still missing: {', '.join(missing)}" if missing else ""
                self._screen.line(
                    f"{self._screen.symbols['open']} spec.yaml saved: {keys}{still}", style="green", hang=2
                )
            case PlanDrafted(number=number, problems=()):
                self._screen.line(
                    f"{self._screen.symbols['open']} Draft {number} accepted: plan.md saved", style="green", hang=2
                )
            case PlanDrafted(number=number, problems=problems):
                badge = f"{self._screen.symbols['closed']} Draft {number} refused"
                self._screen.line(Text(badge, style="bold reverse red"))
                for problem in problems:
                    self._screen.line(problem, style="red", indent=self._screen.indent + 2, hang=2)

    def _progress(self, event: RunStarted | RunFinished | StepStarted | StepFinished | AttemptStarted) -> None:
        """Where the run is."""
        match event:
            case RunStarted(workflow=workflow, model=model, sandbox=sandbox):
                self._screen.indent, self._unit = 0, "Cycle" if workflow == "tdd" else "Step"
                header = f"model {model}, sandbox {sandbox}"
                if header != self._header:
                    self._header = header
                    self._screen.line(header, style="dim")
                self._screen.say("getting ready")
            case RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=duration):
                self._screen.indent = 0
                if status != "in_progress":
                    self._screen.gap()
                    style = "bold green" if status == "completed" else "bold red"
                    self._screen.line(f"{workflow} {ticket}: {status} in {duration:.0f} s", style=style)
            case StepStarted(number=number, total=total, title=title):
                self._screen.indent, self._steps = 0, total
                self._screen.gap()
                self._screen.line(f"{self._unit} {number}/{total}  {title}", style="bold", hang=2)
                self._screen.indent = 2
            case StepFinished():
                self._end_step(event)
            case AttemptStarted(phase=phase, number=number, limit=limit):
                self._screen.indent = 2
                self._screen.line(f"{phase.upper()} attempt {number} of {limit}", style=_PHASE_STYLE.get(phase, "bold"))
                self._screen.indent = 4
                self._screen.say(WAITING)

    def _end_step(self, event: StepFinished) -> None:
        """How a step ended, and why if it is not completed."""
        symbol, style = {
            "completed": (self._screen.symbols["open"], "bold green"),
            "failed": (self._screen.symbols["closed"], "bold red"),
        }.get(event.status, (self._screen.symbols["note"], "yellow"))
        number = f"{event.number}/{self._steps}" if self._steps else str(event.number)
        told = f": {event.error}" if event.error else ""
        self._screen.line(f"{symbol} {self._unit} {number} {event.status}{told}", style=style, indent=0, hang=2)
        self._screen.indent = 0


_STYLE = {
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.SKIPPED: "yellow",
    Status.IN_PROGRESS: "bold cyan",
    Status.PENDING: "dim",
}
_SYMBOL = {
    Status.COMPLETED: "open",
    Status.FAILED: "closed",
    Status.SKIPPED: "note",
    Status.IN_PROGRESS: "tool",
    Status.PENDING: "todo",
}


_WIDTH_FOR_COMMITS = 76


def show_tickets(tickets: Sequence[Ticket], *, screen: Screen, typed: Callable[[str], str] = str) -> None:
    """Every ticket with how far it is; one whose files are not valid is named so and stops nothing.

    ``typed`` says a command of the shell as it is typed where this is read.
    """
    if not tickets:
        screen.line(typed("There are no tickets yet. Make one with: cdd new SLUG"), indent=0)
        return
    table = _table("ticket", "title", "spec", "plan", "steps done")
    for ticket in map(ticket_listed, tickets):
        if ticket.problem:
            told = typed(f"not valid; cdd status {ticket.ticket} tells more")
            table.add_row(ticket.ticket, Text(told, style="bold red"))
        else:
            table.add_row(*_cells(ticket))
    screen.show(table)


def show_ticket(ticket: Ticket, *, screen: Screen, typed: Callable[[str], str] = str) -> None:
    """One ticket: what its spec lacks, or its steps, and what to type next; raises ``DocumentError``.

    ``typed`` is that of ``show_tickets``.
    """
    wanted = spec.load(ticket.spec_path)
    missing = spec.find_missing(wanted)
    state = state_file.load(ticket.state_path)
    screen.line(Text.assemble((ticket.slug, "bold"), f"  {clean(wanted.title)}"), indent=0, hang=2)
    if missing:
        screen.line(f"spec   {'; '.join(missing)}", style="yellow", indent=2, hang=7)
        screen.line(typed(f"next   cdd spec {ticket.slug}"), indent=2)
    elif state is not None:
        show_steps(state, screen=screen)
    elif ticket.plan_path.exists():
        plan = plan_markdown.load(ticket.plan_path)
        screen.line(f"spec   complete, {len(wanted.acceptance_criteria)} criteria", indent=2)
        screen.line(f"plan   {len(plan.steps)} steps, none of them run", indent=2)
        show_plan(plan, screen=screen, criteria=wanted.criterion_ids)
        screen.line(typed(f"next   cdd exec {ticket.slug}"), indent=2)
    else:
        screen.line(f"spec   complete, {len(wanted.acceptance_criteria)} criteria", indent=2)
        screen.line("plan   not made", indent=2)
        screen.line(typed(f"next   cdd plan {ticket.slug}"), indent=2)


def show_steps(state: RunState, *, screen: Screen) -> None:
    """The steps of a run with phases, gates and commits, why one failed or was skipped, and what it all took."""
    phases = dict.fromkeys(attempt.phase for step in state.step_executions.values() for attempt in step.attempts)
    table = _table("step", "title", "status", *phases)
    for number, step in state.step_executions.items():
        status = f"{screen.symbols[_SYMBOL[step.status]]} {step.status.replace('_', ' ')}"
        gates = [_gate(step, phase, screen=screen) for phase in phases]
        table.add_row(str(number), clean(step.title), Text(status, style=_STYLE[step.status], no_wrap=True), *gates)
    screen.show(table)
    for number, step in state.step_executions.items():
        if step.error and step.status in {Status.FAILED, Status.SKIPPED}:
            told = f"Step {number} {step.status}: {step.error}"
            screen.line(told, style=_STYLE[step.status], indent=0, hang=2)
    if state.model is not None:
        screen.line(_took(state), style="dim", indent=0, hang=2)


def _cells(ticket: TicketListed) -> tuple[str | Text, ...]:
    """The row of one ticket."""
    missing = len(ticket.missing)
    steps = f"{ticket.completed} of {ticket.steps}" if ticket.status else ""
    return (
        ticket.ticket,
        clean(ticket.title),
        Text(f"{missing} missing", style="yellow") if missing else Text("complete", style="green"),
        Text("yes", style="green") if ticket.has_plan else Text("no", style="dim"),
        f"{steps}, one failed" if ticket.failed else steps,
    )


def _gate(step: StepExecution, phase: Phase, *, screen: Screen) -> Text:
    """How many attempts ``phase`` took, whether its gate opened, and, where there is room, the commit it led to."""
    attempts = [attempt for attempt in step.attempts if attempt.phase == phase]
    if not attempts:
        return Text()
    verdict = attempts[-1].verdict
    style = "green" if verdict == "open" else "red"
    told = Text(f"{len(attempts)}{screen.symbols[verdict]}", style=style, no_wrap=True)
    commits = list(step.commits.values())
    is_own = phase in step.commits and commits.index(step.commits[phase]) == list(step.commits).index(phase)
    if is_own and screen.console.width >= _WIDTH_FOR_COMMITS:
        told.append(f" {step.commits[phase][:7]}", style="default")
    return told


def _took(state: RunState) -> str:
    """Model, sandbox, tokens and cost of a run."""
    used = state.usage
    parts = [
        f"model {state.model}",
        f"sandbox {state.sandbox}" if state.sandbox else "",
        f"{used.tokens - used.output_tokens:,} tokens read, {used.output_tokens:,} written",
        cost(used),
    ]
    return f"{state.status.replace('_', ' ')}; " + "; ".join(part for part in parts if part)


def _table(*headings: str) -> Table:
    """An empty table in the house's form."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
