"""Adds the Examiner's further examples of a completed step to the project's tests."""

from pathlib import PurePosixPath

from cdd_agent.errors import GateClosed, UsageError, join_first
from cdd_agent.events import Committed
from cdd_agent.evidence.examiner import Examples
from cdd_agent.git.commits import commit_paths, require_identity
from cdd_agent.git.landing import BranchMoved
from cdd_agent.git.repository import CommitId
from cdd_agent.tdd.context import Context
from cdd_agent.tdd.examination import load_examples
from cdd_agent.tdd.step import MAX_SUBJECT, StepRecovery, alone_on
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import Status, StepExecution, load_state
from pytest_tdd_agent.report import list_failing

_MAX_MOVES = 3
_MOST_SHOWN = 3


def add_examples(ticket: Ticket, number: int, *, context: Context) -> CommitId:
    """Commit the examples that pass, in a new test file beside the step's tests, and land the commit.

    They have to pass on the user's HEAD. Raises ``UsageError`` if there are none, or if they are tests already;
    ``GateClosed`` if one fails or a hook of the user refuses; ``LandingConflict`` if the user has to decide.
    """
    with alone_on(ticket.folder, context=context):
        state = load_state(ticket.state_path)
        step = None if state is None else state.step_executions.get(number)
        if step is None or step.status != Status.COMPLETED:
            raise UsageError(f"Step {number} is not completed.", hint=f"see the steps: cdd status {ticket.slug}")
        examples = load_examples(StepRecovery(ticket.slug, step, context=context).report_path("examples"))
        names = [] if examples is None else [example.name for example in examples.select("passes")]
        if examples is None or not names:
            happened = f"The Examiner has no further examples of step {number} that pass."
            raise UsageError(happened, hint=f"see why: cdd review {ticket.slug}")
        return _add(examples, names, step=step, context=context)


def _add(examples: Examples, names: list[str], *, step: StepExecution, context: Context) -> CommitId:
    workplace, tree = context.workplace, context.workplace.tree
    require_identity(context.repository)
    for _ in range(_MAX_MOVES):
        workplace.carries = False
        tip = workplace.begin()
        path = _name_file(examples.beside, number=step.step_number)
        content = examples.extract(names).encode()
        if context.workspace.exists(path) and context.workspace.read(path) == content:
            raise UsageError(f"{path} has these examples already.", hint=f"to add them again: git rm {path}")
        context.workspace.write(path, content)
        run = context.run_suite("the further examples", targets=(path,))
        failing = () if run.report is None else list_failing(run.report)
        if run.report is None or failing:
            (context.suite.root / path).unlink(missing_ok=True)
            why = run.problem or f"{join_first(failing, most=_MOST_SHOWN)} fails"
            raise GateClosed(
                f"The further examples do not pass any more: {why}.", hint="compare the code with the step"
            )
        subject = f"test: further examples of step {step.step_number}: {step.title}"[:MAX_SUBJECT]
        made = commit_paths(tree, f"{subject}\n", paths=(context.to_repository_path(path),))
        commit = workplace.adapt(made, tip=tip)
        try:
            workplace.land(commit, made=made, tip=tip)
        except BranchMoved:
            continue
        context.emit(Committed(phase="examples", commit=commit, subject=subject))
        return commit
    raise BranchMoved("Your branch keeps moving.", hint="run the same command again when it rests")


def _name_file(beside: str, *, number: int) -> str:
    """Return the path of a test file beside another one, whose name follows the same pattern.

    >>> _name_file("tests/price_test.py", number=2)
    'tests/price_examples_2_test.py'
    """
    path = PurePosixPath(beside)
    stem, ending = (path.stem[:-5], "_test") if path.stem.endswith("_test") else (path.stem, "")
    return (path.parent / f"{stem}_examples_{number}{ending}.py").as_posix()
