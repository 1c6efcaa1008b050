"""The dialogs with Socrates, the Planner and the Executor: what each shows, and how it takes the user's words."""

from collections.abc import Iterable

from rich.text import Text

from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.scout import TicketProposal
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import DocumentError, UsageError, join_first
from cdd_agent.repl.commands import (
    TAKE_A_STEP,
    ExecutorLine,
    as_prompt_command,
    match_executor_word,
    parse_executor_line,
)
from cdd_agent.repl.render import show_plan, show_steps
from cdd_agent.repl.screen import Screen
from cdd_agent.runs.plan_steps import PlanSteps, count_exhausted
from cdd_agent.runs.review import DEFAULT_MESSAGE, Intervention
from cdd_agent.runs.run import Run
from cdd_agent.tickets import spec
from cdd_agent.tickets.plan import Plan, find_dependents
from cdd_agent.tickets.spec import Spec
from cdd_agent.untrusted.text import clean
from cdd_agent.work.state import RunState, Status, Usage

MOST_FILES_SHOWN = 8
MOST_CHANGES_SHOWN = 10


def continue_spec(socrates: Socrates, words: str, *, screen: Screen) -> None:
    """Pass ``words`` to Socrates; without words, start the questions or repeat the last one.

    What the spec lacks is shown before the first question and after an answer without a question.
    """
    if words:
        socrates.hear(words)
    elif socrates.missing:
        if not socrates.conversation.messages:
            _show_missing(socrates, screen=screen)
            socrates.open(somebody_answers=True)
        elif socrates.question is not None:
            socrates.ask_again()
        else:
            screen.stream(socrates.ask_again())
            screen.end_prose()
    missing = socrates.missing
    if not missing:
        _show_complete(socrates, screen=screen)
    elif socrates.question is not None:
        if not words:
            text = "Type a number, your own words, or later to skip the question. Enter shows it again."
            screen.line(text, style="dim")
    elif words:
        screen.line(f"{screen.symbols['todo']} Not complete; still missing: {'; '.join(missing)}", style="bold")
        screen.line("Write what you want, or what to change.", style="dim")


def _show_missing(socrates: Socrates, *, screen: Screen) -> None:
    slug, wanted = socrates.ticket.slug, spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(f"{screen.symbols['todo']} The spec of {slug} is not complete. It lacks:", style="bold")
    for lack in spec.find_missing(wanted):
        screen.line(f"{screen.symbols['note']} {lack}", indent=2)
    _show_vague_criteria(wanted, screen=screen)
    screen.line(f"To be complete it needs {spec.COMPLETE}.", style="dim")
    screen.gap()


def _show_vague_criteria(wanted: Spec, *, screen: Screen) -> None:
    for remark in spec.find_vague_criteria(wanted):
        screen.note(str(remark), indent=2)


def _show_complete(socrates: Socrates, *, screen: Screen) -> None:
    wanted = spec.load(socrates.ticket.spec_path)
    screen.gap()
    screen.line(f"{screen.symbols['open']} The spec of {socrates.ticket.slug} is complete:", style="bold green")
    for criterion in wanted.acceptance_criteria:
        screen.line(Text.assemble((criterion.id, "bold"), f"  {clean(criterion.text)}"), indent=2, hang=6)
    _show_vague_criteria(wanted, screen=screen)
    screen.line(screen.as_typed("Write what to change, or continue: /plan"), style="bold")


def continue_plan(planner: Planner, words: str, *, screen: Screen) -> None:
    """Let the Planner change the plan as ``words`` say; without words, show the plan or draft the first one.

    Raises ``DocumentError`` with line numbers for an invalid plan, after showing what could be read.
    """
    path = planner.ticket.plan_path
    if not path.exists() or words:
        plan = planner.draft(words)
    else:
        plan = planner.load()
        problems = planner.find_problems(plan)
        if problems:
            if plan.steps:
                _show_plan(plan, planner, screen=screen)
            raise DocumentError(str(path), problems, hint="edit the file, or write what the Planner should change")
        for warning in planner.find_warnings(plan):
            screen.note(str(warning))
    _show_plan(plan, planner, screen=screen)
    screen.line(screen.as_typed("Write what to change, or continue: /exec"), style="bold")


def _show_plan(plan: Plan, planner: Planner, *, screen: Screen) -> None:
    folder = planner.ticket.folder
    path = planner.ticket.plan_path.relative_to(folder.parent.parent)
    screen.gap()
    screen.line(f"The plan of {planner.ticket.slug} (full text: {path}):", style="bold")
    show_plan(plan, screen=screen, criteria=planner.criteria, created=planner.find_new_files(plan))
    screen.gap()


def show_proposal(proposal: TicketProposal, *, screen: Screen) -> None:
    """Show the ticket that Scout proposes."""
    screen.gap()
    head = Text.assemble((proposal.slug, "bold cyan"), "  ", (clean(proposal.title), "bold"))
    screen.line(head, hang=len(proposal.slug) + 2)
    rows = ((criterion, "") for criterion in proposal.criteria)
    for text, name in (*rows, (", ".join(proposal.tests), "tests"), (", ".join(proposal.files), "files")):
        if text:
            screen.line(Text.assemble((f"{name:<7}" if name else "- ", "dim"), clean(text)), indent=2, hang=7)


def show_summary(
    state: RunState,
    *,
    screen: Screen,
    used: Usage | None = None,
    before: RunState | None = None,
    is_at_prompt: bool = False,
) -> None:
    """Show the steps, files and duration of a run, and the next command as it is typed there.

    ``used`` and ``before`` are as for ``show_steps``.
    """
    show_steps(state, screen=screen, used=used, before=before)
    rows = []
    for kind, paths in _group_files(state).items():
        if paths:
            rows.append((kind, f"{len(paths)}: {join_first(paths, most=MOST_FILES_SHOWN)}"))
    times = {number: step.usage.minutes * 60 for number, step in state.step_executions.items()}
    each = [f"step {number} {format_duration(seconds)}" for number, seconds in times.items() if seconds]
    if each:
        total = format_duration(sum(times.values()))
        rows.append(("time", total if len(each) == 1 else f"{total} in all: {', '.join(each)}"))
    command = _next_command(state, is_at_prompt=is_at_prompt)
    rows.append(("next", as_prompt_command(command) if is_at_prompt else command))
    screen.fields(rows)


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(0.4), format_duration(61), format_duration(7265)
    ('0.4 s', '1 min 1 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _group_files(state: RunState) -> dict[str, list[str]]:
    """Return ``created``, ``modified`` and ``deleted`` -> the files, compared with the state before the run."""
    existed: dict[str, bool] = {}
    exists: dict[str, bool] = {}
    completed = map(state.execution, state.numbers(Status.COMPLETED))
    for step in (landing for each in completed for landing in reversed([*each.list_landings()])):
        for paths, before, after in (
            (step.files_created, False, True),
            (step.files_modified, True, True),
            (step.files_deleted, True, False),
        ):
            for path in paths:
                existed.setdefault(path, before)
                exists[path] = after
    changes = {path: (existed[path], exists[path]) for path in sorted(exists)}
    kinds = {"created": (False, True), "modified": (True, True), "deleted": (True, False)}
    return {kind: [path for path in changes if changes[path] == change] for kind, change in kinds.items()}


def _next_command(state: RunState, *, is_at_prompt: bool) -> str:
    retry = "retry" if is_at_prompt else f"cdd exec {state.ticket_slug} --retry"
    for number in state.numbers(Status.FAILED):
        return f"change the plan or the code, then: {retry} {number}"
    if state.numbers(Status.PENDING, Status.IN_PROGRESS):
        return f"cdd exec {state.ticket_slug}"
    for number in state.numbers(Status.SKIPPED):
        return f"cdd exec {state.ticket_slug} --retry {number} runs the skipped step"
    since = f" {state.base_commit[:7]}.." if state.base_commit else ""
    return f"cdd review {state.ticket_slug}, or: git log --oneline{since}"


def start_execution(executor: Run[PlanSteps], *, screen: Screen) -> bool:
    """Show the progress of the plan. Return whether anything is left to do."""
    _show_remarks(executor, screen=screen)
    if not executor.source.is_new and executor.state.numbers(Status.IN_PROGRESS, Status.PENDING):
        screen.line(f"Continuing {executor.ticket.slug}.", style="bold")
    show_steps(executor.state, screen=screen, used=executor.read_usage())
    _explain_changes(executor, screen=screen)
    screen.gap()
    return show_choices(executor, screen=screen)


def handle_executor_input(executor: Run[PlanSteps], words: str, *, screen: Screen) -> bool:
    """Carry out a line. Return whether the Executor stays active."""
    line = parse_executor_line(words.strip() or executor.postponed)
    before, failed = executor.state, executor.state.numbers(Status.FAILED)
    if line.text and line.word != "commit":
        line = _guide(executor, line)
    word = line.word
    match word:
        case "exit":
            executor.postponed = ""
            screen.line("Left the Executor. Return with /exec.")
            return False
        case "status":
            show_steps(executor.state, screen=screen, used=executor.read_usage())
        case "commit":
            Intervention(executor).commit_changes(line.text)
        case "keep":
            Intervention(executor).keep_changes()
            screen.line("The next steps take your changes along and do not commit them.")
        case "leave":
            Intervention(executor).leave_changes()
            screen.line("The next steps run without your changes, which stay as they are.")
        case "continue" if failed:
            raise UsageError(f"Step {failed[0]} failed.", hint="type retry, skip, exit, or a sentence for the model")
        case "continue" | "retry" | "skip" | "done" if _has_new_documents(executor, screen=screen):
            pass
        case "continue" | "retry" if _is_blocked_by_changes(executor, word, screen=screen):
            screen.gap()
            screen.line(
                "Type: commit, keep or leave, and the step runs. Or: status, exit. "
                "Or change the files yourself and press Enter.",
                style="bold",
            )
            executor.postponed = word if line.number is None else f"{word} {line.number}"
            return True
        case _:
            executor.postponed = ""
            _carry_out(word, line.number, executor=executor)
            if not executor.state.numbers(Status.PENDING, Status.IN_PROGRESS):
                screen.gap()
                used = executor.read_usage()
                show_summary(executor.state, screen=screen, used=used, before=before, is_at_prompt=True)
    if word in ("commit", "keep", "leave") and executor.postponed:
        return handle_executor_input(executor, executor.postponed, screen=screen)
    screen.gap()
    return show_choices(executor, screen=screen)


def parse_split(executor: Run[PlanSteps], words: str) -> str | None:
    """Return what the Planner has to do if a line asks to plan a step anew, in smaller steps; None for another line.

    Raises ``UsageError`` if the step does not exist or is completed.
    """
    if match_executor_word(words.strip().partition(" ")[0]) != "split":
        return None
    line = parse_executor_line(words)
    if line.word != "split":
        return None
    step = executor.step(line.number or _choose_step(executor))
    if executor.state.execution(step.number).status == Status.COMPLETED:
        hint = "to change it: /review, then: change this: WORDS"
        raise UsageError(f"Step {step.number} is completed, so it is not split.", hint=hint)
    request = f"Split step {step.number}, {step.title!r}, into smaller steps, each with its own tests."
    return f"{request} Leave the other steps as they are. {line.text}".rstrip()


def list_completed(before: RunState, after: RunState) -> tuple[int, ...]:
    """Return the steps that were completed between two states."""
    earlier = {number: step.completed_at for number, step in before.step_executions.items()}
    done = (after.execution(number) for number in after.numbers(Status.COMPLETED))
    return tuple(step.step_number for step in done if step.completed_at != earlier.get(step.step_number))


def _guide(executor: Run[PlanSteps], line: ExecutorLine) -> ExecutorLine:
    """Save the guidance of a line, and return the line by which the step that it is for runs."""
    failed, step = executor.state.numbers(Status.FAILED), executor.find_next_step()
    number = line.number or next(iter(failed), None) or (step.number if step is not None else None)
    if number is None:
        raise UsageError("All steps are done.", hint="to change one of them: /review, then: change this: WORDS")
    executor.guide(number, line.text)
    if line.word == "retry" or number in failed:
        return ExecutorLine("retry", number=number)
    return ExecutorLine("continue")


def format_current_step(executor: Run[PlanSteps]) -> str:
    """Return the current step and the number of steps, ``2/3``; empty if none is left."""
    step = executor.find_next_step()
    numbers = [step.number] if step is not None else executor.state.numbers(Status.FAILED)
    return f"{numbers[0]}/{len(executor.state.step_executions)}" if numbers else ""


def show_choices(executor: Run[PlanSteps], *, screen: Screen) -> bool:
    """Show what the user can type now. Return whether anything is left to do."""
    state, step, outdated = executor.state, executor.find_next_step(), executor.list_stale_steps()
    failed, pending = state.numbers(Status.FAILED), state.numbers(Status.PENDING)
    skipped, completed = state.numbers(Status.SKIPPED), state.numbers(Status.COMPLETED)
    total = len(state.step_executions)
    if failed:
        text = _describe_failure(executor, failed[0])
    elif step is not None:
        is_begun = state.execution(step.number).status == Status.IN_PROGRESS
        verb, phase = ("continues", executor.find_phase(step)) if is_begun else ("runs", "")
        at = f", with {phase}" if phase else ""
        text = f"Enter {verb} step {step.number}/{total}: {step.title}{at}. Or type: skip, status, exit"
    elif pending:
        blocking = executor.list_blocking_steps(pending[0])
        ended = [n for n in blocking if state.execution(n).status != Status.PENDING] or list(blocking)
        text = (
            f"Step {pending[0]}/{total} waits for step {ended[0]}, which was {state.execution(ended[0]).status}. "
            f"Type: retry {ended[0]}, done {ended[0]}, skip {pending[0]}, status, exit"
        )
    elif outdated:
        numbers = _join(outdated)
        text = f"All steps are completed, but the text of step {numbers} has changed. Type: retry {outdated[0]}, exit"
    elif skipped:
        text = f"Only skipped steps are left: {_join(skipped)}. Type: retry {skipped[0]}, done {skipped[0]}, exit"
    else:
        text = f"{len(completed)} of {total} steps are completed; nothing is left to do."
        text += " Review them: /review" if completed else ""
    screen.line(screen.as_typed(text), style="bold")
    return bool(failed or step or pending or outdated or skipped)


def _join(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, numbers))


def _describe_failure(executor: Run[PlanSteps], number: int) -> str:
    state = executor.state
    step = f"Step {number}/{len(state.step_executions)}"
    if "already_green" in (state.execution(number).error or ""):
        return (
            f"{step} was rolled back: its test passes without a change, so the code may already exist. "
            f"Type: done {number} (all tests must pass), retry, skip, status, exit"
        )
    waiting = [
        n for n in find_dependents(executor.source.depends, (number,)) if state.execution(n).status == Status.PENDING
    ]
    waits = f"; steps {_join(waiting)} wait for it" if waiting else ""
    if len(waiting) == 1:
        waits = f"; step {waiting[0]} waits for it"
    split = (
        f"split {number} (the Planner makes smaller steps of it), "
        if count_exhausted(executor.state.execution(number))
        else ""
    )
    words = f"{split}retry, skip, status, exit, or say what to do differently"
    return f"{step} failed and was rolled back{waits}. Type: {words}"


def _show_remarks(executor: Run[PlanSteps], *, screen: Screen) -> None:
    for remark in executor.source.remarks:
        screen.note(remark)
    executor.reported_remarks = executor.source.remarks


def _explain_changes(executor: Run[PlanSteps], *, screen: Screen) -> None:
    if executor.source.changed:
        screen.line("The next steps use the new text. To change the plan with the Planner: /plan", style="yellow")
    for number in executor.list_stale_steps():
        screen.line(f"retry {number} runs step {number} again with its new text.", style="yellow")


def _has_new_documents(executor: Run[PlanSteps], *, screen: Screen) -> bool:
    before = executor.source.documents.plan_sha256, executor.source.documents.spec_sha256
    executor.read()
    if before == (executor.source.documents.plan_sha256, executor.source.documents.spec_sha256):
        return False
    _show_remarks(executor, screen=screen)
    _explain_changes(executor, screen=screen)
    return True


def _is_blocked_by_changes(executor: Run[PlanSteps], word: str, *, screen: Screen) -> bool:
    changes = Intervention(executor).list_blocking_changes(anew=word == "retry")
    if not changes:
        return False
    screen.line("You have uncommitted changes. cdd did not touch them:", style="yellow")
    screen.items(changes, most=MOST_CHANGES_SHOWN)
    choices = {
        "commit": f'commits only these changes, as "{DEFAULT_MESSAGE}"; or type: commit MESSAGE',
        "keep": "takes them along: the tests see them, and the next steps do not commit them",
        "leave": "runs the next steps without them",
    }
    for choice, text in choices.items():
        screen.line(f"{choice:<8}{text}", indent=2, hang=8)
    return True


def _carry_out(word: str, number: int | None, *, executor: Run[PlanSteps]) -> None:
    with executor.running():
        if number is None and word in TAKE_A_STEP:
            number = _choose_step(executor)
        match word, number:
            case "skip", int(number):
                executor.skip(number, reason="skipped by the user")
                return
            case "done", int(number):
                Intervention(executor).mark_done(executor.step(number))
                return
            case "retry", int(number):
                executor.retry(number)
        step = executor.find_next_step() if number is None else executor.step(number)
        if step is not None:
            executor.run_step(step)


def _choose_step(executor: Run[PlanSteps]) -> int:
    """Return the step that a word without a number means: failed, next, pending, stale or skipped, in this order."""
    numbers, step = executor.state.numbers, executor.find_next_step()
    following = (step.number,) if step is not None else ()
    open_steps = (*numbers(Status.FAILED), *following, *numbers(Status.PENDING))
    candidates = (*open_steps, *executor.list_stale_steps(), *numbers(Status.SKIPPED))
    if not candidates:
        raise UsageError("All steps are done.", hint="type status to list them")
    return int(candidates[0])
