"""Show the work on a screen: events as they happen, plans as trees, and the status of tickets and steps.

``summarize_ticket`` and ``list_steps`` return the same status as plain values, for ``cdd --json status``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

from msgspec.structs import replace
from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from cdd_agent import events
from cdd_agent.errors import UsageError, format_count
from cdd_agent.events import Event, FileDiffed, StepListed, TicketListed
from cdd_agent.model.budget import read_ticket_usage
from cdd_agent.repl.rows import LEAST_WIDTH, wrap
from cdd_agent.repl.screen import Screen
from cdd_agent.runs.places import find_resume
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.tickets.plan import Plan, Step, sort_by_dependencies
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import clean
from cdd_agent.work.finding import Finding, list_unverified
from cdd_agent.work.state import Phase, RunState, Status, StepExecution, Usage
from cdd_agent.work.state_file import load_state
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Reason

READY = "getting ready"
WAITING = "waiting for the model"
CHECKING = "checking the result"
SAVING = "saving"
MOST_CHANGED_LINES = 20
"""Of the diff of one change."""
ASKS_DEVELOPER = "AskDeveloper"
"""The tool that asks the user. Its question is shown at the end of the turn."""
COMMAND_WENT_WELL = "exit status 0"
"""The first line of a successful Bash call, which is not shown."""

_AT_THE_PROMPT = ("socrates", "planner", "scout", "architect")
_SPEAKERS = {"green": "Implementer"}

_GUIDE_WIDTH = 4
_MIN_STEP_WIDTH = 36
"""Least width for the text of a step, however deep in the tree."""
_MIN_WIDTH_FOR_COMMITS = 76
_GAP = 2
"""Between two columns."""
_MOST_FILES = 5
"""How many files of a step in progress are named."""
_PHASE_STYLE = {"red": "bold red", "green": "bold green", "refactor": "bold blue"}
_STATUS_LOOK = {
    Status.COMPLETED: ("open", "green"),
    Status.FAILED: ("closed", "bold red"),
    Status.SKIPPED: ("note", "yellow"),
    Status.IN_PROGRESS: ("tool", "bold cyan"),
    Status.PENDING: ("todo", "dim"),
}


def summarize_ticket(ticket: Ticket) -> TicketListed:
    """Return the progress of a ticket; ``problem`` says why its files are invalid."""
    listed = TicketListed(
        ticket=ticket.slug, title="", missing=(), has_plan=False, status="", steps=0, completed=0, failed=0, problem=""
    )
    has_plan = ticket.plan_path.exists()
    try:
        state = load_state(ticket.state_path)
        if ticket.has_documents:
            wanted = spec.load(ticket.spec_path)
            listed = replace(listed, title=wanted.title, missing=spec.find_missing(wanted))
            if has_plan:
                plan_markdown.load_valid(ticket.plan_path, wanted)
        elif state is not None and state.origin is not None:
            listed = replace(listed, title=state.origin.title)
    except UsageError as error:
        return replace(listed, title="", missing=(), problem=error.happened)
    listed = replace(listed, has_plan=has_plan)
    if state is None:
        return listed
    counts = Counter(step.status for step in state.parts)
    completed, failed = counts[Status.COMPLETED], counts[Status.FAILED]
    return replace(listed, status=state.status, steps=len(state.parts), completed=completed, failed=failed)


def list_steps(ticket: Ticket) -> Iterator[StepListed]:
    """Yield the steps of a started ticket in the order of the plan. Raises ``DocumentError`` for an invalid state."""
    state = load_state(ticket.state_path)
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
            unverified=tuple(map(explain, _list_unverified(step))),
            files=step.files,
        )


def _list_unverified(step: StepExecution) -> tuple[Finding, ...]:
    return list_unverified(each for attempt in step.attempts if attempt.is_open for each in attempt.evidence)


def show_files(files: Iterable[FileDiffed], *, screen: Screen) -> None:
    """Show the diff of each file."""
    for file in files:
        show_file_name(file, screen=screen)
        if file.hunks:
            screen.show_diff(file.hunks)
        elif file.added is None:
            screen.line("binary file; git cannot show the change", style="dim", indent=4)


def show_file_name(file: FileDiffed, *, screen: Screen) -> None:
    """Show the kind of change of a file, its path, and the numbers of changed lines."""
    counts = "" if file.added is None else f"  {file.counts}"
    name = clean(file.name).replace("\n", "<U+000A>")
    screen.line(Text.assemble((name, "bold cyan"), counts), indent=2)


def show_plan(
    plan: Plan, *, screen: Screen, criteria: Sequence[str] = (), created: Collection[str] = frozenset()
) -> None:
    """Show the steps of a plan as a tree, then each criterion with the steps that serve it.

    A step hangs below the last of its dependencies. ``criteria`` are the ids of the spec's criteria in their order,
    ``created`` the files that do not exist yet.
    """
    deepest = max(1, (screen.console.width - _MIN_STEP_WIDTH) // _GUIDE_WIDTH)
    tree = Tree(Text(clean(plan.title) or "Plan", style="bold"), guide_style="dim")
    branches: dict[int, list[Tree]] = {}  # step -> the nodes from the root down to it
    new = set(created)
    for step in _sort_steps(plan):
        above = next((number for number in reversed(branches) if number in step.depends_on), None)
        branch = [tree] if above is None else branches[above]
        if len(branch) > deepest:  # too narrow to go deeper: the step is a sibling, and says which step it follows
            branch, above = branch[:deepest], None
        after = () if step.depends_on == (above,) else step.depends_on
        node = branch[-1].add(_draw_step(step, after=after, new=new))
        branches.setdefault(step.number, [*branch, node])
        new -= {*step.files, *_group_tests(step)}
    screen.show(tree)
    screen.gap()
    serving: dict[str, list[str]] = {name: [] for name in criteria}
    for step in plan.steps:
        for name in step.criteria:
            serving.setdefault(name, []).append(str(step.number))
    for name, numbers in serving.items():
        text = f"step{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}" if numbers else "no step"
        screen.line(Text.assemble((f"{clean(name)}: ", "bold"), (text, "" if numbers else "red")))


def _sort_steps(plan: Plan) -> tuple[Step, ...]:
    by_number: dict[int, Step] = {}
    for step in plan.steps:
        by_number.setdefault(step.number, step)
    known = {n: [d for d in step.depends_on if d in by_number] for n, step in by_number.items()}
    duplicates = (step for step in plan.steps if by_number[step.number] is not step)
    return (*(by_number[number] for number in sort_by_dependencies(known)), *duplicates)


def _draw_step(step: Step, *, after: Sequence[int], new: Collection[str]) -> Group:
    def mark_new(path: str) -> Text:
        return Text.assemble(clean(path), (" (new)", "green") if path in new else "")

    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    for path in step.files:
        rows.add_row("files" if path == step.files[0] else "", mark_new(path))
    for number, (path, names) in enumerate(_group_tests(step).items()):
        tests = Text("\n").join([mark_new(path), *(Text(f"  {clean(name)}") for name in names)])
        rows.add_row("" if number else "tests", tests)
    if step.criteria:
        rows.add_row("for", clean(", ".join(step.criteria)))
    title = Text.assemble((f"{step.number}", "bold cyan"), "  ", (clean(step.title), "bold"))
    waits = f"after {', '.join(map(str, after))}" if after else ""
    facts = ", ".join(part for part in (step.kind, clean(step.size), waits) if part)
    return Group(title, Text(facts, style="dim"), *([rows] if rows.row_count else []))


def _group_tests(step: Step) -> dict[str, list[str]]:
    """Return test file -> the tests in it that the step names."""
    groups: dict[str, list[str]] = {}
    for test in step.tests:
        path, _, name = test.partition("::")
        groups.setdefault(path, []).extend([name] if name else [])
    return groups


def format_time(time: str, *, with_seconds: bool = False) -> str:
    """Return a stored time as day and time of day here."""
    pattern = "%d %b %H:%M:%S" if with_seconds else "%d %b %H:%M"
    return datetime.fromisoformat(time).astimezone().strftime(pattern).lstrip("0")


class Renderer:
    """Prints events; its ``write`` is an ``Emit``."""

    def __init__(self, screen: Screen) -> None:
        """Print to ``screen``."""
        self._screen = screen
        self._header = ""
        self._steps = 0
        self._unit = "Step"
        self._is_in_tool = False
        self._speaker = ""
        self._reasons: dict[tuple[str, Reason], int] = {}
        """Phase and reason -> the attempt of the present step at which it was shown."""

    def write(self, event: Event) -> None:
        """Print one event, unless the command that asked for it shows it."""
        for show in (self._show_turn, self._show_tool, self._show_test_run, self._show_document, self._show_run):
            show(event)

    def _line(self, text: str | Text, *, style: str = "", deeper: int = 0) -> None:
        self._screen.line(text, style=style, indent=self._screen.indent + deeper)

    def _name_speaker(self, agent: str) -> None:
        """Show who speaks, where several agents do; the prompt names the others."""
        if agent not in ("", *_AT_THE_PROMPT, self._speaker):
            self._line(f"{_SPEAKERS.get(agent, agent.replace('_', ' ').capitalize())}:", style="bold dim")
        self._speaker = agent

    def _show_turn(self, event: Event) -> None:
        screen = self._screen
        match event:
            case events.TextDelta(text=text, agent=agent):
                self._name_speaker(agent)
                screen.stream(text)
            case events.Waiting(what=what):
                screen.say(what)
            case events.ThinkingDelta():
                screen.say("the model is thinking")
            case events.TurnEnded():
                screen.end_prose()
            case events.Notice(text=text):
                screen.note(text, indent=screen.indent)
            case events.EngineDropped(engine=engine, why=why):
                screen.note(f"{engine} is not asked again in this run: {why}", indent=screen.indent)
            case events.Compacted(before_tokens=before, after_characters=after):
                text = f"The conversation ({before:,} tokens) was replaced by a summary of {after:,} characters."
                screen.note(text, indent=screen.indent)
            case events.RetryScheduled(why=why, wait_s=wait, number=number, limit=limit, withdrawn=withdrawn):
                void = "; the partial answer above is discarded" if withdrawn else ""
                next_try = f"try {number} of {limit}" if limit else f"try {number}"
                screen.note(f"{why}{void}; {next_try} in {wait:.0f} s", indent=screen.indent)
                screen.say(f"{why}; {next_try} in", for_s=wait)

    def _show_tool(self, event: Event) -> None:
        screen = self._screen
        match event:
            case events.ToolCalled(name=name, subject=subject):
                self._is_in_tool = True
                if name == ASKS_DEVELOPER:
                    return
                call = f"{name} {' '.join(subject.split())}"
                row = Text(clean(f"{screen.symbols['tool']} {call}").rstrip(), style="dim")
                width = screen.console.width - screen.indent
                if row.cell_len > width:
                    row.truncate(width - 1)
                    row.append(screen.symbols["cut"])
                self._line(row)
                screen.say(call)
            case events.FileChanged(diff=diff) if screen.shows_changes:
                screen.indent += 2
                screen.show_diff(diff, most=MOST_CHANGED_LINES)
                screen.indent -= 2
            case events.ToolReturned(ok=ok, summary=summary):
                self._is_in_tool = False
                if not ok or (event.name == "Bash" and summary != COMMAND_WENT_WELL):
                    self._line(summary, style="dim" if ok else "red", deeper=2)
                screen.say(WAITING)

    def _show_test_run(self, event: Event) -> None:
        screen = self._screen
        match event:
            case events.SuiteStarted(framework=framework, purpose=purpose):
                screen.say(f"{framework}: {purpose}")
            case events.SuiteFinished(framework=framework, purpose=purpose):
                words = ("passed", "failed", "error" if event.errors == 1 else "errors", "skipped")
                numbers = zip((event.passed, event.failed, event.errors, event.skipped), words, strict=True)
                text = ", ".join(f"{number} {word}" for number, word in numbers if number)
                nothing = "no test was collected" if event.exit_status is None else f"exit status {event.exit_status}"
                took = f"; reused: {event.reused}" if event.reused else f" in {event.duration_s:.1f} s"
                text = event.problem or f"{text or nothing}{took}"
                head = "" if self._is_in_tool else f"{screen.symbols['tool']} {framework}, {purpose}: "
                style = "dim" if event.problem is None else "red"
                self._line(head + text, style=style, deeper=2 if self._is_in_tool else 0)
                screen.say(WAITING if self._is_in_tool else CHECKING)
            case events.GateJudged(is_expected=True):
                screen.say(SAVING)
            case events.GateJudged(phase=phase, open=is_open):
                screen.say(SAVING)
                word, color = ("open", "green") if is_open else ("closed", "red")
                badge = f"{screen.symbols[word]} {phase.upper()} gate {word}"
                self._line(Text.assemble((badge, f"bold reverse {color}"), f"  {clean(event.evidence)}"))
                for reason in event.reasons:
                    first = self._reasons.setdefault((phase, reason), event.attempt)
                    message = explain(reason) if first == event.attempt else f"the same as at attempt {first}"
                    self._line(Text.assemble((clean(reason.code), "bold red"), ": ", clean(message)), deeper=2)
            case events.Diagnosed(cause=cause, why=why, votes=votes):
                self._line(Text.assemble((f"cause: {cause}", "bold"), f"  {clean(why)}"))
                for vote in votes:
                    self._line(vote, deeper=2)
            case events.Committed(commit=commit, subject=subject):
                self._line(f"{screen.symbols['commit']} {commit[:8]}  {subject}", style="bold")
            case events.RolledBack(kept=ref, why=why):
                text = f"{screen.symbols['back']} Rolled back: {why.rstrip('.')}. The work is saved in {ref}"
                self._line(text, style="yellow")

    def _show_document(self, event: Event) -> None:
        screen = self._screen
        match event:
            case events.GuidanceGiven(text=text):
                screen.line(Text.assemble(("you  ", "bold cyan"), clean(text)), indent=screen.indent, hang=5)
            case events.QuestionAsked(question=question, options=options):
                screen.gap()
                self._line(question, style="bold")
                for number, option in enumerate(options, start=1):
                    screen.line(Text.assemble((f"{number}", "bold cyan"), f"  {clean(option)}"), indent=2, hang=3)
            case events.SpecProposed(diff=diff):
                screen.show_diff(diff)
            case events.SpecSaved(changed=changed, missing=missing):
                keys = ", ".join(key.replace("_", " ") for key in changed) or "no change"
                still = f"; still missing: {', '.join(missing)}" if missing else ""
                self._line(f"{screen.symbols['open']} spec.yaml saved: {keys}{still}", style="green")
            case events.PlanDrafted(number=number, problems=()):
                self._line(f"{screen.symbols['open']} Draft {number} accepted: plan.md saved", style="green")
            case events.GraphDrafted(number=number, nodes=nodes, problems=()):
                count = format_count(nodes, "node")
                self._line(f"{screen.symbols['open']} Draft {number} has no problems: {count}", style="green")
            case (
                events.PlanDrafted(number=number, problems=problems)
                | events.GraphDrafted(number=number, problems=problems)
            ):
                self._line(f"{screen.symbols['closed']} Draft {number} refused", style="bold reverse red")
                for problem in problems:
                    self._line(problem, style="red", deeper=2)

    def _show_run(self, event: Event) -> None:
        screen = self._screen
        match event:
            case events.RunStarted(model=model, sandbox=sandbox, unit=unit):
                screen.indent, self._unit = 0, unit.capitalize()
                header = f"model {model}, sandbox {sandbox}"
                if header != self._header:
                    self._header = header
                    screen.line(header, style="dim")
                screen.say("preparing the tree in which the run works")
            case events.RunFinished(workflow=workflow, ticket=ticket, status=status, duration_s=duration):
                screen.indent = 0
                if status != "in_progress":
                    screen.gap()
                    style = "bold green" if status == "completed" else "bold red"
                    screen.line(f"{workflow} {ticket}: {status} in {duration:.0f} s", style=style)
            case events.AttemptStarted(phase=phase, number=number, limit=limit):
                text = f"{phase.upper()}{' again,' if event.is_again else ''} attempt {number} of {limit}"
                screen.line(text, style=_PHASE_STYLE.get(phase, "bold"), indent=2)
                screen.indent = 4
                screen.say(WAITING)
            case events.StepStarted(number=number, total=total, title=title):
                self._steps, self._speaker = total, ""
                self._reasons.clear()
                screen.gap()
                screen.line(f"{self._unit} {number}/{total}  {title}", style="bold")
                screen.indent = 2
            case events.StepFinished(status=status):
                screen.indent = 0
                looks = {"completed": ("open", "bold green"), "failed": ("closed", "bold red")}
                symbol, style = looks.get(status, ("note", "yellow"))
                place = f"{event.number}/{self._steps}" if self._steps else str(event.number)
                # The last gate has already shown its reasons.
                error = event.brief or event.error
                why = f": {error}" if error else ""
                screen.line(f"{screen.symbols[symbol]} {self._unit} {place} {status}{why}", style=style)


def show_tickets(tickets: Sequence[Ticket], *, screen: Screen) -> None:
    """Show all tickets with their progress."""
    if not tickets:
        screen.line(screen.as_typed("No tickets yet. Create one: cdd new SLUG"))
        return
    table = create_table("ticket", "title", "spec", "plan", "steps done")
    listed = [summarize_ticket(ticket) for ticket in tickets]
    for ticket in listed:
        if ticket.problem:
            table.add_row(ticket.ticket, Text("not valid", style="bold red"))
            continue
        missing = len(ticket.missing)
        steps = f"{ticket.completed} of {ticket.steps}, {ticket.percent} %" if ticket.steps else ""
        table.add_row(
            ticket.ticket,
            clean(ticket.title),
            Text(f"{missing} missing", style="yellow") if missing else Text("complete", style="green"),
            Text("yes", style="green") if ticket.has_plan else Text("no", style="dim"),
            f"{steps}, one failed" if ticket.failed else steps,
        )
    screen.show(table)
    for ticket in listed:
        if ticket.problem:
            screen.line(screen.as_typed(f"what is not valid: cdd status {ticket.ticket}"))


def show_other_runs(runs: Iterable[Ticket], *, screen: Screen) -> None:
    """Show for each run without a ticket the command that continues it, or that shows a completed one."""
    for run in runs:
        listed = summarize_ticket(run)
        if listed.status == Status.COMPLETED:
            screen.line(screen.as_typed(f"{run.slug}  {listed.title}: complete. Its parts: cdd status {run.slug}"))
        else:
            screen.line(screen.as_typed(f"{run.slug} has no ticket and is not complete: {find_resume(run)}"))


def show_ticket(ticket: Ticket, *, screen: Screen, journal: Path) -> None:
    """Show the progress of a ticket and the next command. Raises ``DocumentError`` for invalid files.

    ``journal`` is the ticket's, which has what its conversations used.
    """
    if not ticket.has_documents:
        _show_other_run(ticket, screen=screen)
        return
    wanted = spec.load(ticket.spec_path)
    missing = spec.find_missing(wanted)
    state = load_state(ticket.state_path)
    screen.line(Text.assemble((ticket.slug, "bold"), f"  {clean(wanted.title)}"))
    if missing:
        screen.line(f"spec   {'; '.join(missing)}", style="yellow", indent=2, hang=7)
        screen.line(screen.as_typed(f"next   cdd spec {ticket.slug}"), indent=2)
        return
    if state is not None:
        show_steps(state, screen=screen, used=read_ticket_usage(state, journal))
        if ticket.plan_path.exists():
            plan_markdown.load_valid(ticket.plan_path, wanted)
        return
    count = len(wanted.acceptance_criteria)
    screen.line(f"spec   complete, {count} {'criterion' if count == 1 else 'criteria'}", indent=2)
    if ticket.plan_path.exists():
        plan = plan_markdown.load_valid(ticket.plan_path, wanted)
        screen.line(f"plan   {format_count(len(plan.steps), 'step')}, not started", indent=2)
        show_plan(plan, screen=screen, criteria=wanted.criterion_ids)
        screen.line(screen.as_typed(f"next   cdd exec {ticket.slug}"), indent=2)
    else:
        screen.line("plan   none yet", indent=2)
        screen.line(screen.as_typed(f"next   cdd plan {ticket.slug}"), indent=2)


def _show_other_run(run: Ticket, *, screen: Screen) -> None:
    state = load_state(run.state_path)
    title = state.origin.title if state is not None and state.origin is not None else ""
    screen.line(Text.assemble((run.slug, "bold"), f"  {clean(title)}"))
    if state is None:
        screen.line("nothing has begun", indent=2)
        return
    show_steps(state, screen=screen)
    if state.status != Status.COMPLETED:
        screen.line(screen.as_typed(f"next   {find_resume(run)}"), indent=2)


def show_steps(state: RunState, *, screen: Screen, used: Usage | None = None, before: RunState | None = None) -> None:
    """Show the steps of a run with phases, gates, commits and errors, and what was ``used``: by the run, or more.

    ``before`` is the state when the command began that shows them: errors since then are on the screen already.
    """
    landings = (each for step in state.step_executions.values() for each in step.list_landings())
    known = {attempt.phase for each in landings for attempt in each.attempts}
    phases = [phase for phase in get_args(Phase) if phase in known]
    width = screen.console.width
    rows = [[Text(heading, style="dim") for heading in (state.unit, "title", "status", *phases)]]
    for number, step in state.step_executions.items():
        symbol, style = _STATUS_LOOK[step.status]
        status = Text(f"{screen.symbols[symbol]} {step.status.replace('_', ' ')}", style=style)
        gates = (_draw_gate(step, phase, screen=screen, width=width) for phase in phases)
        rows.append([Text(str(number)), Text(clean(step.title)), status, *gates])
    screen.show(Text("\n").join(_align_steps(rows, width=width)), wrap=False)
    unit = state.unit.capitalize()
    for number, step in state.step_executions.items():
        is_new = before is not None and before.step_executions.get(number) != step
        if step.error and step.status in {Status.FAILED, Status.SKIPPED} and not is_new:
            screen.line(f"{unit} {number} {step.status}: {step.error}", style=_STATUS_LOOK[step.status][1])
        if step.status == Status.IN_PROGRESS and step.files:
            more = len(step.files) - _MOST_FILES
            shown = ", ".join(step.files[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")
            screen.line(f"{unit} {number} has written so far: {shown}", style="dim")
        for finding in _list_unverified(step):
            screen.line(f"{unit} {number}: {explain(finding)}", style="yellow")
    done, total = len(state.numbers(Status.COMPLETED)), len(state.step_executions)
    if (total or state.beyond) and (state.model is not None or done):
        used = used or state.usage
        parts = (
            f"{state.status.replace('_', ' ')}: {_describe_progress(state)}",
            f"model {state.model}" if state.model else "",
            f"sandbox {state.sandbox}" if state.sandbox else "",
            f"{used.tokens - used.output_tokens:,} tokens read, {used.output_tokens:,} written" if used.tokens else "",
            format_cost(used),
        )
        screen.line("; ".join(part for part in parts if part), style="dim")


def _describe_progress(state: RunState) -> str:
    done, total = sum(step.status == Status.COMPLETED for step in state.parts), len(state.parts)
    gone = {step.step_number for each in state.beyond for step in each.steps} - state.step_executions.keys()
    unit = state.unit
    noun = unit if len(gone) == 1 else f"{unit}s"
    undone = f"; undone: {noun} {', '.join(map(str, sorted(gone)))}" if gone else ""
    tests = [step.status == Status.COMPLETED for step in state.step_executions.values() if step.is_integration]
    if tests:
        count = format_count(len(tests), "subgraph")
        undone = f"; integration tests of {sum(tests)} of {count}{undone}"
    if not total:
        return f"no {unit} has begun{undone}"
    # A run of listed tests has a step for each test that it has chosen, so all can be done before its end.
    if done == total and not tests and state.status != Status.COMPLETED:
        return f"{format_count(done, unit)} done, the next is open{undone}"
    return f"{done} of {format_count(total, unit)}, {done * 100 // total} %{undone}"


def _align_steps(rows: Sequence[Sequence[Text]], *, width: int) -> Iterator[Text]:
    """Yield the lines of a table whose second column is wrapped if the width needs it."""
    # rich's own table takes 1 ms a row, which is most of the time of a status with 1,000 steps.
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    others = sum(widths) - widths[1] + _GAP * (len(widths) - 1)
    widths[1] = min(widths[1], max(LEAST_WIDTH, width - others))
    for first, title, *rest in rows:
        parts = [title] if title.cell_len <= widths[1] else wrap(title, widths[1])
        for at, part in enumerate(parts):
            line = Text()
            for cell, columns in zip([first, part, *rest] if at == 0 else [Text(), part], widths, strict=False):
                line.append_text(cell)
                line.pad_right(columns + _GAP - cell.cell_len)
            line.rstrip()
            yield line


def _has_open_gate(step: StepExecution, phase: Phase) -> bool:
    return any(attempt.phase == phase and attempt.is_open for attempt in step.attempts)


def _draw_gate(step: StepExecution, phase: Phase, *, screen: Screen, width: int) -> Text:
    # An iteration has only the phases that its change needed.
    step = next((each for each in step.list_landings() if _has_open_gate(each, phase)), step)
    attempts = [attempt for attempt in step.attempts if attempt.phase == phase]
    if not attempts:
        return Text()
    verdict = attempts[-1].verdict
    style = "green" if verdict == "open" else "red"
    text = Text.assemble((f"{len(attempts)}{screen.symbols[verdict]}", style))
    # Phases can share a commit; only the first of them shows it.
    commits = list(step.commits.values())
    is_own = phase in step.commits and commits.index(step.commits[phase]) == list(step.commits).index(phase)
    if is_own and width >= _MIN_WIDTH_FOR_COMMITS:
        text.append(f" {step.commits[phase][:7]}")
    return text


def format_cost(used: Usage) -> str:
    """Return the cost as text, such as ``0.42 USD``; empty if nothing was used."""
    if used.cost_usd is not None:
        return f"{used.cost_usd:.2f} USD"
    if not used.tokens:
        return ""
    return f"at least {used.known_usd:.2f} USD" if used.known_usd else "cost unknown"


def create_table(*headings: str, no_wrap: bool = False) -> Table:
    """Return an empty table without lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=no_wrap)
    return table
