"""``cdd demo``: an example project and ticket in a new folder, carried from spec to commits by a recording."""

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec

import cdd_agent
from cdd_agent.cli.invocation import Invocation
from cdd_agent.compose import Composition
from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError
from cdd_agent.events import Notice
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.repl.status import steps_table
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.work.state import Status

DEFAULT = "csv-export"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """``demo.yaml`` of an example."""

    title: str
    ticket: str
    answers: tuple[str, ...]
    """What the developer answers to Socrates, in order."""


@click.command()
@click.argument("name", default=DEFAULT)
@click.option("--list", "listed", is_flag=True, help="Name the examples.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Where to put the project; must not exist."
)
@click.pass_obj
def demo(invocation: Invocation, name: str, *, listed: bool, keep: Path | None) -> None:
    """Run spec, plan and exec on the example NAME from its recording: real git, real tests, real gates, no key."""
    examples = {
        folder.name: folder for folder in sorted(examples_folder().iterdir()) if (folder / "demo.yaml").exists()
    }
    if listed:
        for known, folder in examples.items():
            invocation.screen.line(f"{known}  {_script(folder).title}")
        return
    if name not in examples:
        raise UsageError(f"There is no example {name!r}.", hint=f"cdd demo {' | '.join(examples)}")
    source = examples[name]
    project = _copied(source / "project", keep)
    options = replace(invocation.options, project=project)
    if options.replay is None and options.model is None:
        options = replace(options, replay=source / "recording.yaml")
    _play(replace(invocation, options=options), _script(source))


def examples_folder() -> Path:
    """Where the examples lie: inside an installed package, beside the package in a checkout."""
    package = Path(cdd_agent.__file__).parent
    for folder in (package / "examples", package.parent / "tickets.example"):
        if folder.is_dir():
            return folder
    raise EnvironmentMissing("The examples are not installed.", hint="reinstall cdd-agent, or run from a checkout")


def _script(folder: Path) -> Script:
    """The script of the example in ``folder``."""
    return msgspec.yaml.decode((folder / "demo.yaml").read_bytes(), type=Script)


def _copied(source: Path, keep: Path | None) -> Path:
    """A new git repository with the files of ``source`` in one commit."""
    if keep is not None and keep.exists():
        raise UsageError(f"{keep} exists already.", hint="name a folder that does not exist yet")
    project = keep.resolve() if keep else Path(tempfile.mkdtemp(prefix="cdd-demo-")) / "project"
    shutil.copytree(source, project, ignore=shutil.ignore_patterns("__pycache__"))
    repository = Repository.create(project)
    repository.git("config", "user.name", os.environ.get("USER", "demo"))
    repository.git("config", "user.email", "demo@localhost")
    commit_paths(repository, "The project as it was", paths=repository.uncommitted())
    return repository.root


def _play(invocation: Invocation, script: Script) -> None:
    """Carry the ticket from spec to commits, with the developer's part spoken from the script."""
    with invocation.project(script.ticket) as composition:
        ticket = find(composition.root, script.ticket)
        composition.emit(Notice(text=f"{script.title}, in {composition.root}"))
        _heading(invocation, "spec: Socrates questions the ticket")
        _converse(composition, ticket, answers=script.answers)
        _heading(invocation, "plan: the Planner writes the steps")
        composition.planner(ticket).draft()
        _heading(invocation, "exec: the Executor carries them out, test first")
        executor = composition.executor(ticket)
        with executor.running():
            executor.run_all()
        if not invocation.as_json:
            _summary(invocation, composition, slug=script.ticket)
        if executor.state.status != Status.COMPLETED:
            raise GateClosed(
                "The demo did not complete its ticket.", hint=f"cd {composition.root} && cdd status {script.ticket}"
            )


def _converse(composition: Composition, ticket: Ticket, *, answers: tuple[str, ...]) -> None:
    """Let Socrates ask and the script answer until the spec is complete."""
    socrates = composition.socrates(ticket)
    socrates.open(somebody_answers=True)
    for answer in answers:
        composition.emit(Notice(text=f"the developer answers: {answer}"))
        socrates.hear(answer)


def _heading(invocation: Invocation, text: str) -> None:
    """Set off a part of the demo."""
    if not invocation.as_json:
        invocation.screen.line("", indent=0)
        invocation.screen.line(text, style="bold reverse", indent=0)


def _summary(invocation: Invocation, composition: Composition, *, slug: str) -> None:
    """The commits, the evidence of each gate and where the project lies."""
    screen = invocation.screen
    _heading(invocation, "what came of it")
    state = composition.executor(find(composition.root, slug)).state
    screen.console.print(steps_table(state))
    screen.line("")
    screen.line("Commits, oldest first, each with a note that holds its evidence:", style="bold")
    for line in composition.repository.git("log", "--reverse", "--format=%h %s").splitlines():
        screen.line(line, indent=2)
    screen.line("")
    screen.line("Attempts that a gate refused, and why:", style="bold")
    for number, step in state.step_executions.items():
        for attempt in step.attempts:
            if attempt.verdict == "closed":
                screen.line(f"step {number}, {attempt.phase.upper()}, attempt {attempt.number}", indent=2, style="red")
                for reason in attempt.reasons:
                    screen.line(reason, indent=4)
    root = composition.root
    screen.line("")
    screen.line(f"The project lies in {root}", style="bold")
    for command in ("git log --stat", "git notes --ref=tdd-handoffs show HEAD", "python -m pytest -q", "cdd"):
        screen.line(f"cd {root} && {command}", indent=2)
