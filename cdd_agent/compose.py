"""The composition root: the only module that chooses real adapters and puts the parts together."""

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from msgspec import structs

from cdd_agent.agent.editing import report_change
from cdd_agent.agent.hooks import SandboxedHooks, offer_hooks
from cdd_agent.agent.loop import hide_keys
from cdd_agent.agent.sessions import Transcript, make_session_id
from cdd_agent.audit.auditor import Auditor
from cdd_agent.clock import Clock, SystemClock
from cdd_agent.config import settings
from cdd_agent.config.options import Options
from cdd_agent.config.trust import Approvals, Trust, find_user_folder, load_secret
from cdd_agent.conversation import architect
from cdd_agent.conversation.architect import Architect
from cdd_agent.conversation.dialog import Dialog
from cdd_agent.conversation.planner import Planner
from cdd_agent.conversation.scout import Scout
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import CddError, EnvironmentMissing, UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.git import commits
from cdd_agent.git.fork import Forks, find_home
from cdd_agent.git.ignored import list_packages, may_read
from cdd_agent.git.landing import Landings
from cdd_agent.git.repository import CommitId, CopyLimits, Repository
from cdd_agent.git.run_tree import GitExport, Kept, RunTrees
from cdd_agent.git.tree_store import Checkpoint, Checkpoints, Description, TreeStore
from cdd_agent.hooks import NO_HOOKS, Hooks
from cdd_agent.model import budget
from cdd_agent.model.anthropic import AnthropicModel, Endpoint
from cdd_agent.model.budget import Budget, Ceilings, Meter, Tally, format_unknown_price
from cdd_agent.model.conversation import Model, RoleModel, derive_token
from cdd_agent.model.recording import PrivateData, RecordingModel, ReplayModel
from cdd_agent.model.stream import AnswerLimits, redact_url
from cdd_agent.review import Comments
from cdd_agent.runs.ahead import Ahead, FindCommand, StepProgram
from cdd_agent.runs.back import Back
from cdd_agent.runs.cluster import SLOTS, Cluster, ClusterJobs, Requirement, describe_machine, format_python
from cdd_agent.runs.failing_tests import FailingTests
from cdd_agent.runs.feature import Feature
from cdd_agent.runs.fork import TicketForks
from cdd_agent.runs.generation import Generation
from cdd_agent.runs.generation_results import Installer
from cdd_agent.runs.graph_nodes import GraphNodes
from cdd_agent.runs.jobs import Jobs, SharedModel, SharedSandbox, Slots
from cdd_agent.runs.listed_tests import ListedTests
from cdd_agent.runs.node_diagnosis import find_python
from cdd_agent.runs.places import find_run, locate_run
from cdd_agent.runs.plan_steps import PlanSteps, require_prerequisites, suggest_project
from cdd_agent.runs.private_branch import PrivateBranch
from cdd_agent.runs.request import Wanted
from cdd_agent.runs.review import Review, add_examples
from cdd_agent.runs.run import Run, Source
from cdd_agent.sandbox.choice import choose, resolve_level
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Sandbox
from cdd_agent.shell.permission import Permission
from cdd_agent.storage import private_folder, read_ordinary, write_atomic
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.serena import SerenaServer
from cdd_agent.symbols.symbol import SymbolServer
from cdd_agent.symbols.ty import TyServer
from cdd_agent.tdd.context import Context, Policy, ResumeCommands
from cdd_agent.tdd.ignored_files import IncludedFiles
from cdd_agent.tdd.workplace import Workplace
from cdd_agent.testrun.access import SHOWN_PRIVATE, Original
from cdd_agent.testrun.project import NoFramework, SuiteContext, make_suite
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.root import find_root
from cdd_agent.testrun.store import ReportStore
from cdd_agent.testrun.suite import Suite, run_setup
from cdd_agent.tickets.ticket import Ticket, list_tickets
from cdd_agent.work.journal import Publisher, journal_path
from cdd_agent.work.records import Records, find_records
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import Memory, read_memory

SourceT = TypeVar("SourceT", bound=Source)

_SEEN_BYTES = 10_000
"""Size of the list of notices that the user has seen today."""
_TOOLS_ONLY = "edit_format: blocks applies to cdd exec and cdd green; the agents of cdd tdd work with tools."


class Composition:
    """One project: its adapters, each made when it is first used, and the agents that work on it."""

    def __init__(
        self,
        options: Options,
        *,
        emit: Emit,
        environment: Mapping[str, str] = os.environ,
        around: "Composition | None" = None,
    ) -> None:
        """Reads and runs nothing yet. Events go to ``emit``.

        ``around``: the composition of the user's project, if this one is of a fork, which shares its approvals,
        settings, tests and model.
        """
        self.options = options
        self._around = around
        self.environment = environment
        if options.python is not None:
            self.environment = {**environment, "CDD_PYTHON": str(options.python)}
        self.clock: Clock = SystemClock()
        self.publisher = Publisher(emit, clock=self.clock)
        """Gets each event, and passes it on."""
        self.emit = hide_keys(self.publisher.write, key=options.key)
        self.tallies: dict[str, Tally] = {}
        """Slug -> usage of the ticket by all agents."""
        self.transcript: Transcript | None = None
        """Saves conversations for a later session."""
        self.measure_talks: Callable[[], tuple[str, dict[str, int]]] = lambda: ("", {})
        """Returns the session at the prompt, and the number of messages of each conversation, for checkpoints."""
        self.has_told_memory = False
        """The user has been told which conventions of the project every agent gets."""
        self._told: set[str] = set()
        self._symbol_servers = WeakSet[SymbolServer]()  # one that nobody uses any more ends by itself
        self._cluster: Cluster | None = None

    def follow(self, slug: str) -> None:
        """Also write the following events to the journal of ``slug``, or of the fork in which it is carried out."""
        fork = self.forks.find_current(slug) if self.root == self.home else None
        self.publisher.follow(journal_path(self.forks.enter(fork) if fork else self.root, slug))

    def close(self) -> None:
        """Close the journals, end the language servers, and leave the cluster."""
        self.publisher.close()
        for server in tuple(self._symbol_servers):
            server.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def make_symbol_servers(self, index: Index, *, sandbox: Sandbox) -> tuple[SymbolServer, ...]:
        """Return the engines for uses and renames in the order of the settings. Each starts at its first question."""
        if isinstance(sandbox, SharedSandbox):
            sandbox = sandbox.inner
        ty = TyServer(index, sandbox=sandbox)
        program = Path(self.settings.serena).expanduser()
        state = find_user_folder(self.environment) / "serena"
        serena = SerenaServer(index, sandbox=sandbox, program=program, state=state) if self.settings.serena else None
        orders: dict[str, tuple[SymbolServer | None, ...]] = {
            "auto": (ty, serena),
            "serena": (serena, ty),
            "ty": (ty,),
            "index": (),
        }
        servers = tuple(each for each in orders[self.settings.symbols] if each is not None)
        self._symbol_servers.update(servers)
        return servers

    def _make_symbols(self, index: Index, *, sandbox: Sandbox) -> Symbols:
        return Symbols(index, servers=self.make_symbol_servers(index, sandbox=sandbox), emit=self.emit)

    def _make_token(self, *names: str) -> str:
        return derive_token(self._secret, str(self.root), *names)

    @cached_property
    def _secret(self) -> bytes:
        return load_secret(self.environment)

    def _notify(self, text: str) -> None:
        self.emit(Notice(text=text))

    def _notify_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._notify(text)

    def notify_once_a_day(self, text: str) -> None:
        """Show a notice, unless the user has seen it today in this project."""
        path = (
            find_user_folder(self.environment) / "seen" / hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()
        )
        today = self.clock.now()[:10]
        line = f"{today} {hashlib.sha256(text.encode()).hexdigest()}"
        try:
            seen = read_ordinary(path, limit_bytes=_SEEN_BYTES).decode().splitlines()
        except (OSError, UnicodeDecodeError):
            seen = []
        if line in seen:
            return
        self._notify(text)
        with contextlib.suppress(OSError, CddError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(
                path, "\n".join([*(each for each in seen if each.startswith(today)), line]).encode(), mode=0o600
            )

    @cached_property
    def root(self) -> Path:
        """The project's folder."""
        return find_root(self.options, self.environment)

    @cached_property
    def records(self) -> Records:
        """Where the records of the project lie."""
        return find_records(self.root, environment=self.environment)

    @cached_property
    def home(self) -> Path:
        """The user's folder, whose settings, environment and approvals count in its forks too."""
        return find_home(self.root)

    @cached_property
    def forks(self) -> Forks:
        """The forks of the project."""
        return Forks(self.home, read_included=self._read_included)

    def _read_included(self) -> bytes:
        return self.included.read()

    def ticket_forks(self) -> TicketForks:
        """Return what makes, compares, merges and drops forks of tickets."""
        return TicketForks(self.forks, self.home, clock=self.clock)

    @cached_property
    def settings(self) -> settings.Settings:
        """The settings of the project."""
        if self._around is not None:
            return self._around.settings
        return settings.load(
            self.home,
            allows=self.trust.allows,
            environment=self.environment,
            model=self.options.model,
            report=self._notify_once,
        )

    @cached_property
    def trust(self) -> Trust:
        """The user's approvals of files that the repository contains."""
        if self._around is not None:
            return self._around.trust
        return Trust(
            Approvals(self.home, environment=self.environment, decided_by=self.options.as_command("trust")),
            ask=self.options.ask,
            report=self._notify,
            brings=self._brings,
        )

    def _brings(self, program: Path) -> bool:
        try:
            return self.forks.repository.brings(program)
        except CddError:  # no usable repository: nobody knows where the program comes from
            return True

    @cached_property
    def repository(self) -> Repository:
        """The project's repository; its hooks run if the user approves them."""
        repository = Repository.find(self.root)
        if self.root != self.home:  # a fork, on a branch of its own
            repository.runner.user = self.forks.repository.runner
        repository.may_run_hooks = partial(commits.may_run_hooks, repository, allows=self.trust.allows)
        repository.read_included = self.forks.read_included
        return repository

    @cached_property
    def included(self) -> IncludedFiles:
        """The ignored files that runs get because the user approved a list of them."""
        return IncludedFiles(user=self.forks.repository, project=self.home, trust=self.trust)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the user's files."""
        root = self.root.resolve()
        if any(os.path.lexists(folder / ".git") for folder in (root, *root.parents)):
            return Checkpoints.of_repository(self.repository, root)
        own = hashlib.sha256(os.fsencode(root)).hexdigest()
        return Checkpoints.without_git(root, private=find_user_folder(self.environment) / "checkpoints" / own)

    @cached_property
    def back(self) -> Back:
        """The moves to points of the past."""
        return Back(self.checkpoints, emit=self.emit)

    def save_files(self, about: Description) -> Checkpoint:
        """Make a checkpoint of the user's files and of the positions in the conversations."""
        session, talks = self.measure_talks()
        return self.checkpoints.create(structs.replace(about, session=session, talks=talks))

    def _save_before_phase(self, about: Description) -> str:
        """Make a checkpoint, and return the trailers of the phase's commit that name it and the session."""
        made = self.save_files(about)
        return f"Session: {made.about.session or self._run_id}\nCheckpoint: {made.number}\n"

    @cached_property
    def _run_id(self) -> str:
        """The name of a run that no prompt began, so that its commits can be found together."""
        return f"run/{make_session_id(self.clock.now())}"

    @cached_property
    def sandbox(self) -> Sandbox:
        """Where programs run that the user has not started."""
        found = choose(
            resolve_level(self.options.sandbox, environment=self.environment),
            unattended=not self.options.attended,
            report=self.notify_once_a_day,
        )
        slots = self._find_slots("tests")
        return found if slots is None else SharedSandbox(found, slots=slots)

    def _find_slots(self, name: str) -> Slots | None:
        """Return what limits this process on a worker of a cluster; None elsewhere."""
        folder = self.environment.get(SLOTS)
        return Slots(Path(folder, name)) if folder else None

    def _connect(self, scheduler: str) -> Cluster:
        """Return the cluster of a scheduler, whose workers fit this project."""
        if self._cluster is not None:  # of an earlier command at the prompt
            self._cluster.close()
        level, python = self.sandbox.level, self._find_other_python()
        here = describe_machine(sandbox=level, python="")
        if isinstance(self.suite, PytestSuite):
            interpreter = self.suite.interpreter
            here = structs.replace(here, python=format_python(interpreter.python, interpreter.pytest))
        here = structs.replace(here, has_key=self.options.find_recording(self.environment) is None)
        requirement = Requirement(here=here, sandbox=level, python=python)
        self._cluster = Cluster.connect(scheduler, requirement=requirement, emit=self.emit)
        return self._cluster

    def _find_other_python(self) -> str:
        """Return the path of the interpreter that runs the tests, if it is not cdd's own."""
        python = find_python(self.suite)
        return "" if python == Path(sys.executable) else str(python)

    def hooks(self, session: str, *, suite: Suite | None = None) -> Hooks:
        """Return the hooks for a run of ``suite``, or for a conversation, in which the project is read-only.

        Hooks that the user declines do not run.
        """
        offer = offer_hooks(self.settings.hooks, self.home)
        if offer is None or not self.trust.allows(offer):
            return NO_HOOKS
        return SandboxedHooks(
            settings=self.settings.hooks,
            project=self.root,
            root=self.root if suite is None else suite.root,
            sandbox=self.sandbox if suite is None else suite.sandbox,
            make_access=suite.build_access if suite is not None else lambda: Access(read_only=(self.root,)),
            variables=suite.variables if suite is not None else {},
            session=session,
            transcript=journal_path(self.root, session),
            emit=self.emit,
            approved=offer,
            allows=self.trust.allows,
        )

    @cached_property
    def suite(self) -> Suite:
        """The project's tests in a sandbox; an interpreter of the repository runs only after the user's approval."""
        if self._around is not None:
            return self._around.suite.in_run_tree(self.root, original=Original(root=self.home))
        suite = make_suite(
            SuiteContext(
                root=self.home,
                environment=self.environment,
                settings=self.settings,
                trust=self.trust,
                sandbox=self.sandbox,
                choose=self.options.choose,
                tell=self._notify,
            )
        )
        return suite if self.root == self.home else suite.in_run_tree(self.root, original=Original(root=self.home))

    @cached_property
    def permission(self) -> Permission:
        """The rules by which the model's commands need the user's approval."""
        return Permission(
            root=self.root,
            approvals=self.trust.approvals,
            ask=self.options.ask_command,
            report=self._notify,
            asks_all=self.settings.approvals == "all",
            test_command=self.suite.command,
        )

    @cached_property
    def model(self) -> Model:
        """The model: a recording if the options name one, else Anthropic's API; recorded on request."""
        if self._around is not None:
            return self._around.model  # the same one, so that a recording continues
        replay = self.options.find_recording(self.environment)
        model: Model
        if replay is not None:
            model = ReplayModel.load(replay)
        else:
            endpoint = Endpoint.from_environment(self.environment)
            if endpoint.is_in_the_clear:
                self._notify(f"Key and code are sent unencrypted to {redact_url(endpoint.url)}.")
            model = AnthropicModel(
                self.settings.model,
                key=self.options.key,
                clock=self.clock,
                endpoint=endpoint,
                limits=AnswerLimits.from_environment(self.environment),
                may_wait=self.options.may_wait,
            )
            warning = format_unknown_price(model.name, self._ceilings)
            if warning is not None:
                self._notify(warning)
        if self.options.record is None:
            return model
        private = PrivateData.on_this_machine(self.root, key=self.options.key)
        return RecordingModel(model, self.options.record, private=private)

    def use_model(self, name: str) -> None:
        """Use the model ``name`` for new agents; raises ``UsageError`` while a recording is played back."""
        if self.options.find_recording(self.environment) is not None:
            raise UsageError(
                "A recording is being played back, so the model cannot be changed.",
                hint=f"start without --replay and CDD_REPLAY: cdd --model {name}",
            )
        self.options = replace(self.options, model=name)
        for cached in ("settings", "model"):
            self.__dict__.pop(cached, None)

    def change_setting(self, name: str, text: str) -> None:
        """Write a setting to the project's file; it holds for new agents. Raises ``UsageError``."""
        settings.change_file(self.home, name, text=text, approvals=self.trust.approvals)
        if name == "model" and self.options.find_recording(self.environment) is None:
            self.options = replace(self.options, model=None)
            self.__dict__.pop("model", None)
        for cached in ("settings", "suite", "permission"):
            self.__dict__.pop(cached, None)

    def find_setting_sources(self) -> dict[str, str]:
        """Return the settings that do not have their defaults from cdd -> where they come from."""
        return settings.find_sources(
            self.home, allows=self.trust.allows, environment=self.environment, model=self.options.model
        )

    def asking_nobody(self) -> "Composition":
        """Return the same project for ``cdd doctor``; to its parts, whatever is not approved yet counts as missing."""
        options = replace(self.options, ask=None, attended=True)
        return Composition(options, emit=lambda _: None, environment=self.environment)

    def socrates(self, ticket: Ticket) -> Socrates:
        """Return Socrates for a ticket."""
        return Socrates(ticket, dialog=self.dialog(ticket, command="spec"))

    def planner(self, ticket: Ticket) -> Planner:
        """Return the Planner for a ticket."""
        dialog = self.dialog(ticket, command="plan")
        return Planner(ticket, dialog=dialog, max_drafts=self.settings.max_drafts)

    def architect(self, ticket: Ticket | None = None, *, is_optional: bool = False) -> Architect:
        """Return the Architect for a graph, which may be that of a ticket.

        ``is_optional``: a recording may lack its turns.
        """
        command, is_replay = "graph draft", self.options.find_recording(self.environment) is not None
        meter = (
            self._make_ticket_meter(ticket, command=command) if ticket else self._make_meter("the graph", go_on="cdd")
        )
        other = "" if is_replay else self.settings.architect_model
        model = RoleModel(meter, other=other, is_optional=is_optional)
        name = ticket.slug if ticket else "graph"
        # A draft is about a new repository, so its conversation cannot be resumed.
        dialog = replace(self._make_dialog(meter, name), model=model, transcript=None, outline_tokens=0)
        return Architect(dialog=dialog.of(architect.AGENT, name), max_drafts=self.settings.max_drafts)

    def dialog(self, ticket: Ticket, *, command: str) -> Dialog:
        """Return the context of a conversation that ``cdd COMMAND`` holds about a ticket."""
        return self._make_dialog(self._make_ticket_meter(ticket, command=command), ticket.slug)

    def scout(self) -> Scout:
        """Return Scout, who talks about the project without a ticket."""
        meter = self._make_meter("the project", go_on="cdd")
        return Scout(self.root, dialog=self._make_dialog(meter, "project"))

    def _make_dialog(self, meter: Meter, session: str) -> Dialog:
        limits = self.settings
        return Dialog(
            workspace=Workspace(self.root, list_ignored=self._list_ignored, may_read=self._may_read),
            model=meter,
            budget=Budget.from_settings(limits),
            emit=self.emit,
            objection=self.options.objection,
            memory=self.memory(),
            make_token=self._make_token,
            hooks=self.hooks(session),
            transcript=self.transcript,
            outline_tokens=limits.context_tokens,
            compact_at_percent=limits.compact_at_percent,
        )

    def _list_ignored(self) -> tuple[str, ...]:
        try:
            return self.repository.list_ignored_in(self.root)
        except EnvironmentMissing:  # a conversation needs no repository
            return ()

    def _may_read(self, path: str) -> bool:
        """Return whether a conversation may read a file of the project: what git ignores only as in a run tree."""
        if any((self.root / path).is_relative_to(ticket.folder) for ticket in list_tickets(self.root)):
            return True
        try:
            return may_read(self.repository, f"{self.included.prefix}{path}")
        except EnvironmentMissing:  # a conversation needs no repository
            return True

    def memory(self) -> Memory:
        """Return the conventions of the project; report them the first time."""
        memory = read_memory(self.root)
        if memory.summary and not self.has_told_memory:
            self.emit(Notice(text=memory.summary))
        self.has_told_memory = True
        return memory

    def executor(self, ticket: Ticket) -> Run[PlanSteps]:
        """Return the run of a ticket's plan; if the user has switched to a fork, it works there.

        The project may be a folder inside the work tree. Its files and tests are those of the folder; checkpoints and
        commits cover the whole tree.
        """
        if (inside := self._enter_to_work(ticket)) is not None:
            return inside[0].executor(inside[1])
        if not self.options.anyway:
            require_prerequisites(ticket, project=self.root)
        source = PlanSteps(ticket, repository=self.repository, refactor=self.settings.refactor == "always")
        meter = self._make_ticket_meter(ticket, command="exec", model=self._share_model(ticket))
        try:
            run = self.make_run(source, meter=meter, left_out=source.files.list_folders())
        except NoFramework as missing:
            raise suggest_project(missing, ticket, root=self.root) from missing
        run.work_ahead(self._make_ahead(ticket, lambda _, number: ("exec", ticket.slug, "--step", str(number))))
        return run

    def _make_ahead(self, ticket: Ticket, command: FindCommand) -> Ahead:
        options = self.options
        most = options.jobs if options.jobs > 1 else 0
        # In a fork, nothing is worked out ahead.
        scheduler = None if self._fork else options.scheduler
        program = StepProgram(
            options=options,
            settings=self.settings,
            ceilings=self._ceilings,
            sandbox=self.sandbox.level,
            python=self._find_other_python() if scheduler else "",
            command=command,
        )
        jobs = ClusterJobs(self._connect(scheduler), most=most) if scheduler else Jobs(most=most, key=options.key)
        return Ahead(ticket, forks=self.forks, clock=self.clock, emit=self.emit, program=program, jobs=jobs)

    def orchestrator(self, feature: Feature) -> Run[ListedTests]:
        """Return the run of a feature, test by test."""
        if (inside := self._enter_to_work(feature.ticket)) is not None:
            return inside[0].orchestrator(replace(feature, folder=inside[1].folder))
        if self.settings.edit_format != "tools":
            self.emit(Notice(text=_TOOLS_ONLY))
        return self.make_run(ListedTests(feature, repository=self.repository, project=self.root))

    def green(self, wanted: Wanted, *, anew: bool = False) -> Run[FailingTests]:
        """Return the run of GREEN on failing tests, which may belong to a folder below the project's.

        ``anew`` undoes an interrupted run first.
        """
        if wanted.project not in (None, self.root):
            self.emit(Notice(text=f"These tests belong to {wanted.project}: using the settings of that project."))
            options = replace(self.options, project=wanted.project)
            below = Composition(options, emit=self.emit, environment=self.environment)
            return below.green(wanted, anew=anew)
        ticket = wanted.find_run(self.root)
        if (inside := self._enter_to_work(ticket)) is not None:
            return inside[0].green(replace(wanted, project=None), anew=anew)
        source = FailingTests(wanted, self.settings.green, ticket=ticket, anew=anew)
        tally = Tally(budget.read_step_usage(ticket.state_path))
        return self.make_run(
            source, meter=self._make_meter(f"the ticket {ticket.slug}", go_on=source.commands.resume, tally=tally)
        )

    def generation(self, plan: GenerationPlan, *, resume: str) -> Generation:
        """Return the generation of a graph in this project, which has its skeleton; ``resume`` continues it."""
        branch = PrivateBranch(home=self.repository, trees=self._find_run_trees(), slug=plan.slug)
        ticket = locate_run(self.root, plan.slug)
        commands = ResumeCommands(resume=resume, restart=resume, unit="node")
        source = GraphNodes(plan, ticket=ticket, branch=branch, commands=commands)
        context = self.context(source, branch=branch)
        home, _ = self._choose_workplace(plan.slug, left_out=())
        installer = Installer(
            python=find_python(context.suite),
            sandbox=self.sandbox,
            variables=self.environment,
            confirm=self._confirm_packages,
        )
        meter = self._make_meter(
            f"the generation of {plan.layout.package}", go_on=resume, model=self._share_model(ticket)
        )
        run = self._make_run(source, context, meter=meter)
        graph, python = plan.source.resolve(), self.options.python
        named = () if python is None else ("--python", str(python.absolute()))
        run.work_ahead(
            self._make_ahead(
                ticket, lambda folder, number: ("generate", graph, "--out", folder, "--node", str(number), *named)
            )
        )
        return Generation(run, branch=branch, home=home, installer=installer, emit=self.emit)

    def node_run(self, plan: GenerationPlan, *, resume: str) -> Run[GraphNodes]:
        """Return the run of a generation in this fork, for single nodes."""
        commands = ResumeCommands(resume=resume, restart=resume, unit="node")
        ticket = locate_run(self.root, plan.slug)
        source = GraphNodes(plan, ticket=ticket, branch=None, commands=commands)
        meter = self._make_meter(
            f"the generation of {plan.layout.package}", go_on=resume, model=self._share_model(ticket)
        )
        return self._make_run(source, self.context(source), meter=meter)

    def _confirm_packages(self, packages: tuple[str, ...]) -> bool:
        """Return whether packages that a graph lists may be downloaded."""
        if self.options.install:
            return True
        if self.options.choose is None:
            return False
        question = f"The graph lists {', '.join(packages)}. Download them for a trial of the installation?"
        return self.options.choose(question, ("no", "yes")) == 1

    def make_run(self, source: SourceT, *, meter: Meter | None = None, left_out: tuple[str, ...] = ()) -> Run[SourceT]:
        """Return the run of a source; snapshots leave out ``left_out``. Without a ``meter``, it gets one of its own."""
        return self._make_run(source, self.context(source, left_out=left_out), meter=meter)

    def _make_run(self, source: SourceT, context: Context, *, meter: Meter | None = None) -> Run[SourceT]:
        return Run(
            source,
            context=context,
            clock=self.clock,
            meter=meter or self._make_meter(f"the ticket {source.ticket.slug}", go_on=source.commands.resume),
            allow_dirty=self.options.allow_dirty,
            is_attended=self.options.attended,
        )

    def context(
        self, source: Source, *, left_out: tuple[str, ...] = (), branch: PrivateBranch | None = None
    ) -> Context:
        """Return the context of the cycles of a run; snapshots leave out ``left_out``.

        The run lands in the user's branch, or in a private one.
        """
        self.back.finish()  # a run works from where the branch is
        repository, name = branch.repository if branch is not None else self.repository, source.ticket.slug
        repository.may_run_hooks()  # ask the user before the work begins, not at the first commit
        policy = source.adapt_policy(Policy.from_settings(self.settings))
        if self.options.find_recording(self.environment) is not None:
            # A recording plays the turns of all models, and begins an attempt with its first turn.
            policy = replace(policy, examiner_model="", continues_interrupted=False)
        workplace, suite = self._choose_workplace(name, left_out=left_out, branch=branch)
        if policy.test_timeout_s is not None:
            suite = suite.with_timeout(policy.test_timeout_s)
        suite = suite.with_test_limit(policy.seconds_per_test)
        if policy.traces:
            suite = suite.with_tracing()
        list_ignored = partial(workplace.tree.list_ignored_in, suite.root)
        workspace = Workspace(
            suite.root, shown_at=self.root, on_write=partial(report_change, emit=self.emit), list_ignored=list_ignored
        )
        inside = suite.root.resolve().relative_to(workplace.tree.root.resolve())
        allowed = [path for given in self.options.allow_files for path in (given, str(inside / given))]
        is_shown = suite.sandbox.level in ISOLATING_LEVELS
        return Context(
            repository=repository,
            workplace=workplace,
            snapshots=TreeStore(workplace.tree, left_out=left_out),
            workspace=workspace,
            symbols=self._make_symbols(Index(suite.root, list_ignored=list_ignored), sandbox=suite.sandbox),
            suite=suite,
            model=self.model,
            policy=policy,
            brief=source.brief,
            source=source.workflow,
            commands=source.commands,
            permission=replace(
                self.permission, root=self.root if is_shown else suite.root, tree=suite.root, is_free=is_shown
            ),
            project=self.root,
            records=self.records,
            reports=self.records.folder / "reports" / name,
            choose=self.options.choose,
            hear=self.options.hear,
            emit=self.emit,
            memory=self.memory(),
            # On a private branch the user's files do not change.
            checkpoint=self._save_before_phase if branch is None else lambda _: f"Session: {self._run_id}\n",
            token=self._make_token(),
            hooks=self.hooks(name, suite=suite),
            comments=self.comments(),
            allowed=set(map(os.path.normpath, allowed)),
            fork=self._fork,
            store=self._store,
        )

    @cached_property
    def _store(self) -> ReportStore:
        """The reports of earlier test runs of the repository, in all its work trees."""
        return ReportStore(folder=self.records.repository / "reports")

    @property
    def _fork(self) -> str:
        return "" if self.root == self.home else self.repository.root.name

    def _choose_workplace(
        self, name: str, *, left_out: tuple[str, ...], branch: PrivateBranch | None = None
    ) -> tuple[Workplace, Suite]:
        """Return the place of a run, and its tests there."""
        repository = branch.repository if branch is not None else self.repository
        most_mb, files = self.settings.run_tree_copy_mb, self.settings.run_tree_copy_files
        repository.copy_limits = CopyLimits(size_bytes=most_mb * 1_000_000, files=files)
        repository.read_included()  # ask the user before the work begins
        has_decided = self.root != self.home or self.included.has_decided(choose=self.options.choose)
        home = self.home
        shown = f"{self._fork}.{name}" if self._fork else name
        is_shown = self.suite.sandbox.level in ISOLATING_LEVELS
        export = GitExport(folder=private_folder(home) / "git" / shown) if is_shown else None
        workplace = Workplace(
            user=repository,
            run_tree=self._find_run_trees().tree(name),
            landings=self._make_landings(repository, branch),
            export=export,
            shown_git=SHOWN_PRIVATE / "git" / shown,
            emit=self.emit,
            choose=self.options.choose,
            is_private=branch is not None,
            left_out=tuple(f"{folder}/" for folder in left_out),
            can_mount=is_shown,
            has_decided=has_decided,
            project=self.included.prefix,
            kept=Kept(size_bytes=self.settings.run_trees_mb * 1_000_000),
        )
        root = workplace.tree.root / self.root.resolve().relative_to(self.repository.root.resolve())
        original = Original(
            root=home,
            git=None if export is None else export.folder,
            folders=list_packages(self.forks.repository),
            list_shared=lambda: workplace.mounted,
            list_ignored=partial(workplace.tree.list_ignored_in, root),
        )
        suite = self.suite.in_run_tree(root, original=original)
        workplace.setup = partial(run_setup, suite) if suite.setup else None
        return workplace, suite

    def _make_landings(self, repository: Repository, branch: PrivateBranch | None) -> Landings:
        folder, files = self.records.landing, private_folder(self.root) / "landing"
        if branch is not None:  # beside those of the user's branch: both can be under way
            folder, files = folder / branch.slug, files / branch.slug
        return Landings(repository, folder, files=files)

    def _enter(self, ticket: Ticket) -> "tuple[Composition, Ticket] | None":
        """Return the project in a fork, and the ticket there, if ``ticket`` is in one or is carried out in one."""
        fork = self.forks.find_around(ticket.folder) or (
            self.forks.find_current(ticket.slug) if self.root == self.home else None
        )
        if fork is not None and fork.is_merging and self.ticket_forks().finish_merges():
            return self._enter(ticket)
        if fork is None or self.forks.find_project(fork) == self.root:
            return None
        root = self.forks.enter(fork)
        options = replace(self.options, project=root)
        below = Composition(options, emit=self.emit, environment=self.environment, around=self)
        return below, find_run(root, ticket.slug)

    def _enter_to_work(self, ticket: Ticket) -> "tuple[Composition, Ticket] | None":
        """Return as ``_enter``, and tell the user where the run works."""
        inside = self._enter(ticket)
        if inside is not None:
            self._notify(f"Working in the fork {inside[0].repository.root.name.removeprefix('fork-')}.")
        return inside

    def find_run_tree(self, name: str) -> Repository | None:
        """Return the run tree of a ticket or run, or None if there is none."""
        trees = self._find_run_trees()
        return trees.tree(name).repository if trees.has(name) else None

    def _find_run_trees(self) -> RunTrees:
        return RunTrees(self.repository, private_folder(self.root) / "worktrees", fork=self._fork)

    def make_copied_suite(self, root: Path) -> Suite:
        """Return the tests of commits in clean copies of the project at ``root``."""
        # As in a run tree, a clean copy gets the user's modules that git ignores, such as those of a build.
        return self.suite.in_run_tree(root, original=Original(root=root, folders=list_packages(self.repository)))

    def auditor(self) -> Auditor:
        """Return the auditor, which checks handoff notes against history and tests."""
        self.repository.read_included()  # ask the user before the work begins
        return Auditor(
            repository=self.repository,
            suite=lambda: self.make_copied_suite(self.root),
            project=self.root,
            emit=self.emit,
        )

    def comments(self) -> Comments:
        """Return the comments on commits of the project."""
        return Comments(self.forks.repository, self.home, clock=self.clock)

    def review(self, ticket: Ticket) -> Review:
        """Return the review of a ticket's completed steps."""
        if (inside := self._enter(ticket)) is not None:
            return inside[0].review(inside[1])
        add = partial(self.add_examples, ticket)
        left, trees = self.ticket_forks().list_remaining if self.root == self.home else None, self._find_run_trees()
        return Review(ticket, repository=self.repository, project=self.root, add=add, trees=trees, list_forks=left)

    def add_examples(self, ticket: Ticket, number: int) -> CommitId:
        """Add the further examples of a step to the tests, in a commit that lands on the user's branch."""
        return add_examples(ticket, number, context=self.executor(ticket).context)

    def _make_meter(self, work: str, *, go_on: str, tally: Tally | None = None, model: Model | None = None) -> Meter:
        ceilings = self._ceilings
        return Meter(model or self.model, clock=self.clock, work=work, go_on=go_on, ceilings=ceilings, tally=tally)

    @property
    def _ceilings(self) -> Ceilings:
        return Ceilings.from_settings(self.settings).limit_run(self.options.max_usd)

    def _share_model(self, ticket: Ticket) -> Model:
        """Return the model for a run that may have other processes, which share its requests."""
        slots = self._find_slots("model")
        if slots is None and self.options.jobs > 1:
            slots = Slots(self.records.repository / "requests" / ticket.slug, most=self.options.jobs)
        return self.model if slots is None else SharedModel(self.model, slots=slots)

    def _make_ticket_meter(self, ticket: Ticket, *, command: str, model: Model | None = None) -> Meter:
        # All agents of a ticket share one tally, so its limits hold for their sum.
        if ticket.slug not in self.tallies:
            talked = budget.read_conversation_usage(journal_path(self.root, ticket.slug))
            self.tallies[ticket.slug] = Tally(talked + budget.read_step_usage(ticket.state_path))
        tally = self.tallies[ticket.slug]
        go_on = f"cdd {command} {ticket.slug}"
        return self._make_meter(f"the ticket {ticket.slug}", go_on=go_on, tally=tally, model=model)
