"""The composition root: the only place that picks real adapters and puts the parts together."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from cdd_agent.agent import budget
from cdd_agent.agent.budget import Budget, Ceilings, Meter, Tally, without_price
from cdd_agent.agent.loop import without_keys
from cdd_agent.agent.sessions import Transcript
from cdd_agent.audit.auditor import Auditor
from cdd_agent.clock import Clock, SystemClock
from cdd_agent.config import settings
from cdd_agent.config.options import Options
from cdd_agent.config.trust import Approvals, Trust
from cdd_agent.doctor import Premises
from cdd_agent.errors import UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.git import commits
from cdd_agent.git.repository import Repository
from cdd_agent.git.snapshot import Snapshots
from cdd_agent.journal import journal_path
from cdd_agent.model.anthropic import AnthropicModel, Endpoint
from cdd_agent.model.conversation import Model
from cdd_agent.model.failure import AnswerLimits, redact_url
from cdd_agent.model.replay import Private, RecordingModel, ReplayModel
from cdd_agent.review import Review
from cdd_agent.sandbox.choice import asked_for, choose
from cdd_agent.shell.permission import Permission
from cdd_agent.tdd.context import BriefFor, Context, Policy
from cdd_agent.testrun.frameworks.detect import NoFramework
from cdd_agent.testrun.frameworks.project import Circumstances, suite_of
from cdd_agent.testrun.root import find_root
from cdd_agent.testrun.suite import Suite
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.conversation.desk import Desk
from cdd_agent.workflows.conversation.planner import Planner
from cdd_agent.workflows.conversation.socrates import Socrates
from cdd_agent.workflows.execution import executor
from cdd_agent.workflows.execution.documents import meant_elsewhere, ticket_folders
from cdd_agent.workflows.execution.executor import brief_for
from cdd_agent.workflows.green.request import Wanted
from cdd_agent.workflows.green.run import Green
from cdd_agent.workflows.green.run import brief_for as brief_for_green
from cdd_agent.workflows.orchestration import agents
from cdd_agent.workflows.orchestration.feature import RESUME, Feature
from cdd_agent.workflows.orchestration.orchestrator import Orchestrator
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.memory import Memory, read_memory


class Adapters:
    """What one project is worked on with, each part made when it is first asked for."""

    def __init__(self, options: Options, *, emit: Emit, environment: Mapping[str, str] = os.environ) -> None:
        """Nothing is read or run yet."""
        self.options = options
        self.environment = environment
        self.emit = without_keys(emit, key=options.key)
        self.clock: Clock = SystemClock()

    @cached_property
    def root(self) -> Path:
        """The project's folder, as the options tell it."""
        return find_root(self.options, self.environment)

    @cached_property
    def settings(self) -> settings.Settings:
        """The settings in force here."""
        return settings.load(
            self.root, allows=self.trust.allows, environment=self.environment, model=self.options.model
        )

    @cached_property
    def trust(self) -> Trust:
        """What the user has approved of what this repository brings."""
        return Trust(
            Approvals(self.root, environment=self.environment, decided_by=self.options.typed("trust")),
            ask=self.options.ask,
            tell=lambda text: self.emit(Notice(text=text)),
        )

    @cached_property
    def repository(self) -> Repository:
        """The project's git work tree; its hooks take part in commits as far as the user approves them."""
        repository = Repository.find(self.root)
        repository.may_run_hooks = lambda: self.trust.allows(commits.offer(repository))
        return repository

    @cached_property
    def suite(self) -> Suite:
        """The project's tests, shut in; no interpreter that the repository brings is run before it is approved."""
        sandbox = choose(
            asked_for(self.options.sandbox, environment=self.environment),
            unattended=not self.options.attended,
            tell=lambda text: self.emit(Notice(text=text)),
        )
        return suite_of(
            Circumstances(
                root=self.root,
                environment=self.environment,
                settings=self.settings,
                trust=self.trust,
                sandbox=sandbox,
                choose=self.options.choose,
                tell=lambda text: self.emit(Notice(text=text)),
            )
        )

    @cached_property
    def permission(self) -> Permission:
        """What the model's commands may do without a question, and whom to ask."""
        return Permission(
            root=self.root,
            level=self.suite.sandbox.level,
            approvals=self.trust.approvals,
            ask=self.options.ask_command,
            tell=lambda text: self.emit(Notice(text=text)),
            asks_all=self.settings.approvals == "all",
            test_command=self.suite.command,
        )

    @cached_property
    def model(self) -> Model:
        """Who answers: the recording if one is given, else Anthropic's API; recorded if that is asked for."""
        replay = self.options.recording(self.environment)
        model: Model
        if replay is not None:
            model = ReplayModel.load(replay)
        else:
            endpoint = Endpoint.from_environment(self.environment)
            if endpoint.is_in_the_clear:
                self.emit(Notice(text=f"Key and code go unencrypted to {redact_url(endpoint.url)}."))
            model = AnthropicModel(
                self.settings.model,
                key=self.options.key,
                clock=self.clock,
                endpoint=endpoint,
                limits=AnswerLimits.from_environment(self.environment),
                may_wait=self.options.may_wait,
            )
            told = without_price(model.name, Ceilings.of(self.settings))
            if told is not None:
                self.emit(Notice(text=told))
        return (
            model
            if self.options.record is None
            else RecordingModel(model, self.options.record, private=Private.here(self.root, key=self.options.key))
        )

    def use_model(self, name: str) -> None:
        """Let ``name`` answer whoever is made from now on; raises ``UsageError`` while a recording is played."""
        if self.options.recording(self.environment) is not None:
            raise UsageError(
                "A recording is played back here, and it answers whatever the model is called.",
                hint=f"start without --replay and CDD_REPLAY: cdd --model {name}",
            )
        self.options = replace(self.options, model=name)
        for made in ("settings", "model"):
            self.__dict__.pop(made, None)

    def premises(self) -> Premises:
        """The project as the doctor looks at it: nothing is asked of the user."""
        options = replace(self.options, ask=None, attended=True)
        asks_nobody = Adapters(options, emit=lambda _: None, environment=self.environment)
        return Premises(
            root=self.root,
            environment=self.environment,
            approvals=self.trust.approvals,
            sandbox=asked_for(self.options.sandbox, environment=self.environment),
            replay=self.options.recording(self.environment),
            record=self.options.record,
            settings=lambda: asks_nobody.settings,
            repository=lambda: asks_nobody.repository,
            suite=lambda: asks_nobody.suite,
            model=lambda: asks_nobody.model,
        )


_TOOLS_ONLY = "edit_format: blocks is for cdd exec and cdd green; the agents of cdd tdd work with tools."


class Composition:
    """One project with everybody who works on it."""

    def __init__(self, options: Options, *, emit: Emit, environment: Mapping[str, str] = os.environ) -> None:
        """Nothing is read or run yet."""
        self.adapters = Adapters(options, emit=emit, environment=environment)
        self._options = options
        self.tallies: dict[str, Tally] = {}
        """Slug -> what is used for the ticket, by whoever works for it."""
        self.transcript: Transcript | None = None
        """Keeps what is said in conversations for a later session, if there is to be one."""
        self.has_told_memory = False
        """Whether the user knows which conventions of the project every agent is given."""

    def socrates(self, ticket: Ticket) -> Socrates:
        """Socrates on one ticket."""
        return Socrates(ticket, desk=self.desk(ticket, command="spec"))

    def planner(self, ticket: Ticket) -> Planner:
        """The Planner on one ticket."""
        return Planner(ticket, desk=self.desk(ticket, command="plan"), max_drafts=self.adapters.settings.max_drafts)

    def desk(self, ticket: Ticket, *, command: str) -> Desk:
        """What the conversation that ``cdd COMMAND`` holds about a ticket works with."""
        adapters, limits = self.adapters, self.adapters.settings
        return Desk(
            workspace=Workspace(adapters.root),
            model=_meter(self, ticket, command=command),
            budget=_budget(limits),
            emit=adapters.emit,
            objection=self._options.objection,
            memory=self.memory(),
            transcript=self.transcript,
            compact_at_percent=limits.compact_at_percent,
        )

    def memory(self) -> Memory:
        """The conventions of the project as its files are now; the first time, whoever listens is told of them."""
        memory = read_memory(self.adapters.root)
        if memory.told and not self.has_told_memory:
            self.adapters.emit(Notice(text=memory.told))
        self.has_told_memory = True
        return memory

    def executor(self, ticket: Ticket) -> executor.Executor:
        """The Executor on one ticket.

        The project may be a folder inside the work tree: its files and tests are that folder's, while checkpoints
        and commits know the whole tree.
        """
        adapters, limits = self.adapters, self.adapters.settings
        policy = Policy(
            max_attempts=limits.max_attempts,
            budget=_budget(limits),
            evidence_timeout_s=limits.evidence_timeout_s,
            edit_format=limits.edit_format,
        )
        folders = ticket_folders(adapters.repository, ticket)
        try:
            context = self.context(ticket.slug, brief=brief_for(limits.edit_format), policy=policy, left_out=folders)
        except NoFramework as missing:
            raise meant_elsewhere(missing, ticket, root=adapters.root) from missing
        return executor.Executor(
            ticket,
            context=context,
            clock=adapters.clock,
            refactor=limits.refactor == "always",
            allow_dirty=self._options.allow_dirty,
            meter=_meter(self, ticket, command="exec"),
        )

    def orchestrator(self, feature: Feature) -> Orchestrator:
        """The orchestrator on one feature."""
        adapters, limits = self.adapters, self.adapters.settings
        if limits.edit_format != "tools":
            adapters.emit(Notice(text=_TOOLS_ONLY))
        policy = Policy(
            max_attempts=limits.max_attempts,
            budget=_budget(limits),
            evidence_timeout_s=limits.evidence_timeout_s,
            most_alike=2,
            is_strict=True,
            keeps_landed=True,
            one_test=True,
            takes_covered=True,
            commits_nothing=True,
        )
        brief = agents.brief_for(adapters.repository, Workspace(adapters.root))
        meter = Meter(
            adapters.model,
            clock=adapters.clock,
            ticket=feature.slug,
            go_on=RESUME,
            ceilings=Ceilings.of(limits),
        )
        return Orchestrator(
            feature,
            context=self.context(feature.slug, brief=brief, policy=policy),
            clock=adapters.clock,
            meter=meter,
            allow_dirty=self._options.allow_dirty,
            is_attended=self._options.attended,
        )

    def green(self, wanted: Wanted) -> Green:
        """GREEN on its own, for tests that fail; they may be those of a folder below the project's."""
        if wanted.project not in (None, self.adapters.root):
            self.adapters.emit(Notice(text=f"The project of these tests is {wanted.project}: its settings count."))
            options = replace(self.adapters.options, project=wanted.project)
            below = Composition(options, emit=self.adapters.emit, environment=self.adapters.environment)
            return below.green(wanted)
        adapters, limits, own = self.adapters, self.adapters.settings, self.adapters.settings.green
        policy = Policy(
            max_attempts=own.max_iterations,
            budget=replace(_budget(limits), max_calls_total=own.max_tool_calls),
            evidence_timeout_s=limits.evidence_timeout_s,
            gate_runs=() if own.full_suite_on_completion else wanted.files,
            targets_first=own.run_specific_test_first,
            tests_each_write=own.run_after_each_file,
            has_commands=False,
            keeps_part=own.continue_on_partial_success,
            edit_format=limits.edit_format,
        )
        brief = brief_for_green(Workspace(adapters.root), own, edit_format=limits.edit_format)
        context = self.context(wanted.slug, brief=brief, policy=policy)
        run = wanted.run_of(adapters.root)
        meter = Meter(
            adapters.model,
            clock=adapters.clock,
            ticket=run.slug,
            go_on=wanted.ways.go_on,
            ceilings=Ceilings.of(limits),
            tally=Tally(budget.carried_out(run.state_path)),
        )
        return Green(
            wanted,
            context=replace(context, suite=adapters.suite.within(own.test_timeout_s)),
            clock=adapters.clock,
            allow_dirty=self._options.allow_dirty,
            meter=meter,
        )

    def context(self, name: str, *, brief: BriefFor, policy: Policy, left_out: tuple[str, ...] = ()) -> Context:
        """What cycles work with; evidence is kept under ``name``, and ``left_out`` is no part of the product."""
        adapters, repository = self.adapters, self.adapters.repository
        repository.may_run_hooks()  # asked before the work begins, and again at each commit
        return Context(
            repository=repository,
            snapshots=Snapshots(repository, left_out=left_out),
            workspace=Workspace(adapters.root),
            suite=adapters.suite,
            model=adapters.model,
            policy=policy,
            brief=brief,
            permission=adapters.permission,
            reports=settings.private_folder(adapters.root) / "reports" / name,
            emit=adapters.emit,
            memory=self.memory(),
        )

    def auditor(self) -> Auditor:
        """Whoever holds handoff notes against history and tests."""
        adapters = self.adapters
        return Auditor(
            repository=adapters.repository,
            suite=lambda: adapters.suite,
            reports=settings.private_folder(adapters.root) / "reports",
            emit=adapters.emit,
        )

    def review(self, ticket: Ticket) -> Review:
        """The completed steps of one ticket, to be looked at."""
        return Review(ticket, repository=self.adapters.repository, project=self.adapters.root)


def _meter(project: Composition, ticket: Ticket, *, command: str) -> Meter:
    """The model as ``cdd COMMAND`` may use it for a ticket; all that is done for the ticket counts together."""
    adapters = project.adapters
    if ticket.slug not in project.tallies:
        talked = budget.talked(journal_path(adapters.root, ticket.slug))
        project.tallies[ticket.slug] = Tally(talked + budget.carried_out(ticket.state_path))
    return Meter(
        adapters.model,
        clock=adapters.clock,
        ticket=ticket.slug,
        go_on=f"cdd {command} {ticket.slug}",
        ceilings=Ceilings.of(adapters.settings),
        tally=project.tallies[ticket.slug],
    )


def _budget(limits: settings.Settings) -> Budget:
    """The limits of one run of an agent."""
    return Budget(
        max_turns=limits.max_turns,
        max_answer_tokens=limits.max_tokens,
        max_calls_per_turn=limits.max_calls_per_turn,
    )
