"""The examples: each a project with a ticket, played in a new folder from spec to commits."""

import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.text import Text

import cdd_agent
from cdd_agent.cli.invocation import Invocation
from cdd_agent.compose import Composition
from cdd_agent.config.trust import Offer
from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.events import Notice
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.repl.render import format_reason, show_plan, show_steps
from cdd_agent.repl.screen import Screen
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.state import RunState, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """``demo.yaml`` of an example."""

    title: str
    ticket: str
    answers: tuple[str, ...]
    """What the developer answers to Socrates, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoExample:
    """A project, a ticket in it, and what is said about it."""

    name: str
    folder: Path
    script: Script

    @property
    def recording(self) -> Path:
        """The turns of the model."""
        return self.folder / "recording.yaml"


def find_examples() -> tuple[DemoExample, ...]:
    """The examples by name: inside an installed package, beside the package in a checkout."""
    package = Path(cdd_agent.__file__).parent
    for home in (package / "examples", package.parent / "tickets.example"):
        if home.is_dir():
            return tuple(
                DemoExample(name=path.parent.name, folder=path.parent, script=_script(path))
                for path in sorted(home.glob("*/demo.yaml"))
            )
    raise EnvironmentMissing("The examples are not installed.", hint="reinstall cdd-agent, or run from a checkout")


def play(invocation: Invocation, example: DemoExample, *, folder: Path | None) -> None:
    """Carry the example's ticket from spec to commits in ``folder``, with the developer's part from its script."""
    made = _copied(example.folder / "project", folder)
    options = replace(invocation.options, project=made, ask=_made_here)
    if options.replay is None and options.model is None:
        options = replace(options, replay=example.recording)
    invocation = replace(invocation, options=options)
    script = example.script
    with invocation.ticket(script.ticket) as (composition, ticket):
        composition.adapters.emit(Notice(text=f"{script.title}, in {composition.adapters.root}"))
        _heading(invocation, "spec: Socrates questions the ticket")
        _converse(composition, ticket, answers=script.answers)
        _heading(invocation, "plan: the Planner writes the steps")
        planner = composition.planner(ticket)
        plan = planner.draft()
        if not invocation.as_json:
            show_plan(plan, screen=invocation.screen, criteria=planner.criteria, created=planner.find_new_files(plan))
        _heading(invocation, "exec: the Executor carries them out, test first")
        executor = composition.executor(ticket)
        with executor.running():
            executor.run_all()
    if not invocation.as_json:
        _summary(invocation.screen, executor.state, repository=composition.adapters.repository)
    if executor.state.status != Status.COMPLETED:
        raise GateClosed(
            "The demo did not complete its ticket.",
            hint=f"cd {composition.adapters.root} && cdd status {script.ticket}",
        )


def _copied(source: Path, keep: Path | None) -> Path:
    """A new git repository with the files of ``source`` in one commit."""
    if keep is not None and keep.exists():
        raise UsageError(f"{keep} exists already.", hint="name a folder that does not exist yet")
    project = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="cdd-demo-")) / "project"
    shutil.copytree(source, project, ignore=shutil.ignore_patterns("__pycache__"))
    repository = Repository.create(project)
    repository.git("config", "user.name", os.environ.get("USER") or "demo")
    repository.git("config", "user.email", "demo@localhost")
    commit_paths(repository, "The project as it was", paths=repository.list_uncommitted())
    return repository.root


def _made_here(_offer: Offer, _changed: bool) -> bool:
    """Yes: the program made the project itself, and a hook in it comes from the user's own git templates."""
    return True


def _script(path: Path) -> Script:
    """The script at ``path``."""
    return msgspec.yaml.decode(path.read_bytes(), type=Script)


def _converse(composition: Composition, ticket: Ticket, *, answers: tuple[str, ...]) -> None:
    """Let Socrates ask and the script answer until the spec is complete."""
    socrates = composition.socrates(ticket)
    socrates.open(somebody_answers=True)
    for answer in answers:
        composition.adapters.emit(Notice(text=f"developer: {answer}"))
        socrates.hear(answer)


def _heading(invocation: Invocation, text: str) -> None:
    """Set off a part of the demo."""
    if not invocation.as_json:
        invocation.screen.gap()
        invocation.screen.line(f" {text} ", style="bold reverse", indent=0)


def _summary(screen: Screen, state: RunState, *, repository: Repository) -> None:
    """The steps, the commits, what was refused, and where the project lies."""
    screen.gap()
    screen.line(" what came of it ", style="bold reverse", indent=0)
    show_steps(state, screen=screen)
    screen.gap()
    screen.line("Commits, oldest first, each with a note that holds its evidence:", style="bold")
    for line in repository.git("log", "--reverse", "--format=%h %s").splitlines():
        screen.line(line, indent=2, hang=8)
    screen.gap()
    screen.line("Attempts that a gate refused, and why:", style="bold")
    for number, step in state.step_executions.items():
        for attempt in step.attempts:
            if attempt.verdict == "closed":
                screen.line(f"step {number}, {attempt.phase.upper()}, attempt {attempt.number}", indent=2)
                for reason in attempt.reasons:
                    screen.line(format_reason(reason), indent=4, hang=2)
    screen.gap()
    screen.line(f"The project lies in {repository.root}", style="bold")
    python = shlex.quote(sys.executable)
    commands = ("git log --stat", "git notes --ref=tdd-handoffs show HEAD")
    for command in (*commands, f"{python} -m pytest -q", f"{python} -m cdd_agent"):
        screen.show(Text(f"  cd {repository.root} && {command}"), wrap=False)
