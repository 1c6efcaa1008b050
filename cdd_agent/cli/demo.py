"""``cdd demo``: play an example in a new folder: a ticket from spec to commits, or a graph to a repository."""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.text import Text

import cdd_agent
from cdd_agent.cli.chat import run_at_prompt
from cdd_agent.cli.fork import fork
from cdd_agent.cli.generate import generate
from cdd_agent.cli.invocation import Invocation
from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.events import Notice
from cdd_agent.generation.plan import load_plan
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.installation import suggest_upgrade
from cdd_agent.repl.render import show_plan, show_steps
from cdd_agent.repl.screen import Screen
from cdd_agent.runs.places import find_run
from cdd_agent.runs.run import Run, Source
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import AttemptRecord, RunState, Status
from cdd_agent.work.state_file import load_state

_WHO = ("AUTHOR", "COMMITTER")
_EMAIL = "demo@localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Words of the developer about a step that was carried out."""

    step: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The content of ``demo.yaml`` of an example."""

    title: str
    ticket: str = ""
    """Empty: the example is a planning graph."""
    answers: tuple[str, ...] = ()
    """The developer's answers to Socrates, in order."""
    wish: Wish | None = None
    """A change that the developer asks for in the review."""
    fork: Wish | None = None
    """What a fork of the step does differently. The developer keeps the fork."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoExample:
    """An example: a project with a ticket or a planning graph, a recording, and a script."""

    name: str
    folder: Path
    script: Script

    @property
    def recording(self) -> Path:
        """The recorded turns of the model."""
        return self.folder / "recording.yaml"

    @property
    def graph(self) -> Path:
        """The planning graph, if the example is one."""
        return self.folder / "graph.json"


def find_examples() -> tuple[DemoExample, ...]:
    """Return the examples by name, from the installed package or from a checkout."""
    package = Path(cdd_agent.__file__).parent
    for home in (package / "examples", package.parent / "tickets.example"):
        if home.is_dir():
            scripts = {
                path.parent: msgspec.yaml.decode(path.read_bytes(), type=Script)
                for path in sorted(home.glob("*/demo.yaml"))
            }
            return tuple(DemoExample(name=at.name, folder=at, script=script) for at, script in scripts.items())
    raise EnvironmentMissing("The examples are not installed.", hint=f"install cdd again: {suggest_upgrade()}")


def play(invocation: Invocation, example: DemoExample, *, folder: Path | None) -> None:
    """Carry out an example in ``folder``, which must not exist."""
    if folder is not None and folder.exists():
        raise UsageError(f"{folder} already exists.", hint="name a folder that does not exist yet")
    # The user need not approve this project: cdd creates it, and hooks in it come from the user's git templates.
    options = replace(invocation.options, ask=lambda offer, changed: True)
    if options.replay is None and options.model is None:
        options = replace(options, replay=example.recording)
    invocation = replace(invocation, options=options)
    if example.script.ticket:
        _play_ticket(invocation, example, folder=folder)
    else:
        _play_graph(invocation, example, folder=folder)


def _play_ticket(invocation: Invocation, example: DemoExample, *, folder: Path | None) -> None:
    """Carry the example's ticket from spec to commits. The script answers for the developer."""
    project = _create_project(example.folder / "project", folder)
    invocation = replace(invocation, options=replace(invocation.options, project=project))
    script = example.script
    with invocation.open_ticket(script.ticket) as (composition, ticket):
        composition.emit(Notice(text=f"{script.title}, in {composition.root}"))
        _show_heading(invocation, "spec: Socrates questions the ticket")
        socrates = composition.socrates(ticket)
        socrates.open(somebody_answers=True)
        for answer in script.answers:
            composition.emit(Notice(text=f"developer: {answer}"))
            socrates.hear(answer)
        _show_heading(invocation, "plan: the Planner writes the steps")
        planner = composition.planner(ticket)
        plan = planner.draft()
        if not invocation.as_json:
            show_plan(plan, screen=invocation.screen, criteria=planner.criteria, created=planner.find_new_files(plan))
        _show_heading(invocation, "exec: the Executor carries them out, test first")
        executor = composition.executor(ticket)
        with executor.running():
            executor.run_all()
        refused = _list_refused(executor.state)
        if script.fork is not None:
            _show_heading(invocation, f"review: the developer wants to see step {script.fork.step} done in another way")
            _keep_fork(script.fork, ticket, invocation=invocation)
        if script.wish is not None:
            _show_heading(invocation, f"review: the developer wants a change in step {script.wish.step}")
            composition.emit(Notice(text=f"developer: {script.wish.words}"))
            executor = composition.executor(ticket)
            with executor.running():
                executor.retry(script.wish.step, guidance=script.wish.words)
                executor.run_all()
    if not invocation.as_json:
        _show_summary(invocation.screen, executor, refused=refused, repository=composition.repository)
    if executor.state.status != Status.COMPLETED:
        hint = f"cd {composition.root} && cdd status {script.ticket}"
        raise GateClosed("The demo did not complete its ticket.", hint=hint)


def _play_graph(invocation: Invocation, example: DemoExample, *, folder: Path | None) -> None:
    """Generate the repository of the example's graph. Nodes that fail are part of the example."""
    output = folder.resolve() if folder else Path(tempfile.mkdtemp(prefix="cdd-demo-")) / example.name
    arguments = [str(example.graph), "--out", str(output), "--yes"]
    if invocation.options.jobs > 1:
        arguments += ["--jobs", str(invocation.options.jobs)]
    if invocation.options.scheduler is not None:
        arguments += ["--scheduler", invocation.options.scheduler]
    if not invocation.as_json:
        words = ("cdd", "--replay", str(invocation.options.replay), "generate", *arguments)
        invocation.screen.line(f"$ {shlex.join(words)}", style="bold")
    with _identify(), generate.make_context("generate", arguments, obj=invocation) as context:
        try:
            generate.invoke(context)
        except GateClosed as partly:
            invocation.sink(Notice(text=partly.happened))
    state = load_state(find_run(output, load_plan(example.graph).slug).state_path)
    if not invocation.as_json and state is not None:
        _show_refused(_list_refused(state), unit="node", screen=invocation.screen)
        commands = ("less docs/generation_report.md", "git log --graph --oneline")
        _show_commands(output, commands, screen=invocation.screen)


@contextmanager
def _identify() -> Iterator[None]:
    """Give git a name and an address for commits: the user may have none, and the repository does not exist yet."""
    name = os.environ.get("USER") or "demo"
    given = {f"GIT_{who}_NAME": name for who in _WHO} | {f"GIT_{who}_EMAIL": _EMAIL for who in _WHO}
    added = given.keys() - os.environ.keys()
    os.environ.update({key: given[key] for key in added})
    try:
        yield
    finally:
        for key in added:
            del os.environ[key]


def _keep_fork(wish: Wish, ticket: Ticket, *, invocation: Invocation) -> None:
    """Carry a step out in a fork, compare it with the first one, merge it and drop it, as a user does."""
    project = invocation.project

    def enter(*words: str) -> None:
        if not invocation.as_json:
            invocation.screen.line(f"$ cdd {shlex.join(words)}", style="bold")
        json = ("--json",) if invocation.as_json else ()
        run_at_prompt((*words, "--yes", *json), project=project, screen=invocation.screen, commands={"fork": fork})

    enter("fork", ticket.slug, str(wish.step), wish.words)
    project.follow(ticket.slug)
    forked = project.executor(ticket)
    with forked.running():
        forked.run_all()
    name = project.forks.list_all()[-1].name.split("-", 2)[2]  # without date and time
    enter("fork", "compare", name)
    enter("fork", "merge", name, "--theirs")
    project.follow(ticket.slug)
    enter("fork", "drop", name)


def _create_project(source: Path, keep: Path | None) -> Path:
    project = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="cdd-demo-")) / "project"
    shutil.copytree(source, project, ignore=shutil.ignore_patterns("__pycache__"))
    repository = Repository.create(project)
    repository.git("config", "user.name", os.environ.get("USER") or "demo")
    repository.git("config", "user.email", _EMAIL)
    commit_paths(repository, "The project as it was", paths=repository.list_uncommitted())
    return repository.root


def _show_heading(invocation: Invocation, text: str) -> None:
    if not invocation.as_json:
        invocation.screen.gap()
        invocation.screen.line(f" {text} ", style="bold reverse")


def _list_refused(state: RunState) -> tuple[tuple[int, AttemptRecord], ...]:
    """Return each attempt that a gate refused, with the number of its step."""
    attempts = ((number, each) for number, step in state.step_executions.items() for each in step.attempts)
    return tuple((number, attempt) for number, attempt in attempts if not attempt.is_open)


def _show_summary(
    screen: Screen, executor: Run[Source], *, refused: tuple[tuple[int, AttemptRecord], ...], repository: Repository
) -> None:
    screen.gap()
    screen.line(" result ", style="bold reverse")
    show_steps(executor.state, screen=screen, used=executor.read_usage())
    screen.gap()
    screen.line("Commits, oldest first. The note of each holds its evidence:", style="bold")
    for line in repository.git("log", ("--reverse", "--format=%h %s")).splitlines():
        screen.line(line, indent=2, hang=8)
    _show_refused(refused, unit="step", screen=screen)
    commands = ("git log --stat", "git notes --ref=tdd-handoffs show HEAD")
    _show_commands(repository.root, commands, screen=screen)


def _show_refused(refused: tuple[tuple[int, AttemptRecord], ...], *, unit: str, screen: Screen) -> None:
    screen.gap()
    screen.line("Attempts that a gate refused:", style="bold")
    for number, attempt in refused:
        codes = ", ".join(dict.fromkeys(reason.code for reason in attempt.reasons))
        screen.line(f"{unit} {number}, {attempt.phase.upper()}, attempt {attempt.number}: {codes}", indent=2)


def _show_commands(root: Path, commands: tuple[str, ...], *, screen: Screen) -> None:
    screen.gap()
    screen.line(f"The project is in {root}. Try:", style="bold")
    python = shlex.quote(sys.executable)
    for command in (*commands, f"{python} -m pytest -q", f"{python} -m cdd_agent"):
        screen.show(Text(f"  cd {root} && {command}"), wrap=False)
