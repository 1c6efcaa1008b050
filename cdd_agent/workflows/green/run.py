"""GREEN on its own: one work item of a single phase, gone on with by the same command after any end.

How the implementer of GREEN is spoken to: who it is, how much code it is to write, and the tests themselves.

Which files a model without tools is given besides the tests: the code that these name, as far as there is room.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cdd_agent.agent.budget import Meter
from cdd_agent.clock import Clock
from cdd_agent.config.settings import GreenSettings
from cdd_agent.errors import CddError, EnvironmentMissing, UsageError
from cdd_agent.events import Notice
from cdd_agent.evidence.clean_copy import layout_of
from cdd_agent.git import commits
from cdd_agent.tdd import recovery
from cdd_agent.tdd.context import Brief, BriefFor, Context, Phase, WorkItem, rules_of, stated, told
from cdd_agent.tdd.cycle import Cycle, is_partial
from cdd_agent.tdd.verdict import named_test_files
from cdd_agent.untrusted.keys import mask
from cdd_agent.work import state as states
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState, Status, StepKey
from cdd_agent.workflows.green import request as requests
from cdd_agent.workflows.green.artifact import GreenArtifact, artifact_of
from cdd_agent.workflows.green.request import Request, Wanted
from cdd_agent.workspace.files import Workspace, decode

MOST_CHARACTERS = 24_000
"""Of all test files together, as the model is given them; what is left out it can read."""

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "implementer.md", "blocks": "implementer_blocks.md"}
"""How the model changes files -> who it is told it is."""

STYLES = {
    "minimal": "Write the simplest code that makes the tests pass, and nothing that no test asks for.",
    "standard": "Write code as a careful colleague would: what the tests ask for, inputs checked where the tests show "
    "that they matter, clear names, no speculation.",
    "comprehensive": "Write code that is complete for the behavior the tests are about: edge cases and errors of the "
    "same kind too, as long as every test passes.",
}
"""Setting ``style`` -> what the model is told."""


def manner(settings: GreenSettings) -> str:
    """How the code is to be written, as the settings say."""
    docstrings = "Give what you add docstrings" if settings.include_docstrings else "Write no docstrings"
    hints = "Annotate what you add with types" if settings.include_type_hints else "Write no type annotations"
    fitting = ", in the way of the code around it."
    return f"## Manner\n\n- {STYLES[settings.style]}\n- {docstrings}{fitting}\n- {hints}{fitting}"


def brief_for(workspace: Workspace, settings: GreenSettings, *, edit_format: str = "tools") -> BriefFor:
    """The brief of a run of GREEN; a model without tools is given the test files apart from it, with the others."""
    role = (_PROMPTS / _ROLES[edit_format]).read_text(encoding="utf-8")

    def brief(item: WorkItem, phase: Phase) -> Brief:
        asked = stated(item, heading="Tests to pass")
        files = named_test_files(item) if edit_format == "tools" else ()
        return Brief(
            phase=phase,
            agent="green",
            role=role,
            rules=f"{rules_of(phase)}\n\n{manner(settings)}",
            work=f"green {item.ticket}",
            task="Make these tests pass. What is asked for is what they say.",
            stated="\n\n".join((asked, *_sources(files, workspace=workspace))),
            source="tests to pass",
        )

    return brief


def readable(text: str) -> str:
    """``text`` as it may be sent: bytes that are no UTF-8 written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _sources(files: tuple[str, ...], *, workspace: Workspace) -> list[str]:
    """The test files as they are, as many as there is room for; folders are left to be read."""
    shown, room = [], MOST_CHARACTERS
    for name in files:
        try:
            text = readable(mask(decode(workspace.read(name))).text)
        except (CddError, OSError):
            continue
        if len(text) <= room:
            room -= len(text)
            shown.append(f"`{name}`:\n\n{text.rstrip()}")
    return shown


MOST_RELATED_CHARACTERS = 48_000
"""Of all files together."""
MOST_FILES = 20
_NAMED_BY_FOLDER = frozenset({"__init__", "__main__", "index", "main", "mod", "lib"})
"""Files that are called by the name of their folder."""
_PRIVATE = frozenset({"", "src", "lib", "app"})
"""Folders that no test names."""


def code_of(tests: Sequence[str], *, workspace: Workspace, is_test: Callable[[str], bool]) -> tuple[str, ...]:
    """The files that hold no tests and whose names stand in ``tests``, files or folders; those named most often first.

    What could not be given back as it is, in one answer, is left out.
    """
    listing = workspace.listing()
    files = [name for name in listing if any(name == test or name.startswith(f"{test.rstrip('/')}/") for test in tests)]
    counts: dict[str, int] = {}
    for word in re.findall(r"\w+", "\n".join(_text(name, workspace) for name in files)):
        counts[word] = counts.get(word, 0) + 1
    named = {name: counts[word] for name in listing if not is_test(name) and (word := _word(name)) in counts}
    found, room = list[str](), MOST_RELATED_CHARACTERS
    for name in sorted(named, key=lambda name: (-named[name], name)):
        text = _text(name, workspace)
        if text and len(text) <= room and len(found) < MOST_FILES and _can_come_back(text):
            found.append(name)
            room -= len(text)
    return tuple(found)


def _word(name: str) -> str:
    """What a test calls a file."""
    path = PurePosixPath(name)
    stem = path.name.partition(".")[0]
    return path.parent.name if stem in _NAMED_BY_FOLDER and path.parent.name not in _PRIVATE else stem


def _text(name: str, workspace: Workspace) -> str:
    """What is in a file; nothing of one that cannot be read or is no text."""
    try:
        return decode(workspace.read(name))
    except (CddError, OSError):
        return ""


def _can_come_back(text: str) -> bool:
    return all(letter in "\t\r\n\ufeff" or letter.isprintable() for letter in text)


NUMBER = 1
"""Of the only step."""


class Green:
    """Makes the tests that a user names pass."""

    def __init__(
        self, wanted: Wanted, *, context: Context, clock: Clock, allow_dirty: bool = False, meter: Meter | None = None
    ) -> None:
        """Nothing happens before ``run``. Without a ``meter`` round the model it is counted and has no limits."""
        self.wanted = wanted
        self.ticket = wanted.run_of(context.suite.root)
        self.clock = clock
        self.allows_dirty = allow_dirty
        """Whether the user's uncommitted changes stay, out of the commit."""
        self._meter = meter or Meter(context.model, clock=clock, ticket=self.ticket.slug, go_on=wanted.ways.go_on)
        self.context = replace(context, model=self._meter, ways=wanted.ways)
        self._metered: int | None = None
        self.state: RunState | None = None

    def run(self, *, anew: bool = False) -> GreenArtifact:
        """Begin, or go on where the last run was interrupted, until the tests pass or the iterations are used up.

        ``anew``: what an interrupted run has done is taken back first. Raises, before anything is touched,
        ``UsageError`` if a target does not fail or there are uncommitted changes besides tests, and what is raised
        where there is no model to ask, no git or no tests.
        """
        context, slug = self.context, self.ticket.slug
        with recovery.alone_on(self.ticket.folder, context=context):
            request, state = self._gone_on_with(anew=anew) or self._begun()
            self._save(state)
            remarks = (*self._remarks(), *commits.remarks(context.repository))
            with told("green", slug, context=context, clock=self.clock, remarks=remarks, settle=self._settled):
                why = self._carried_out(request)
        return artifact_of(request, self._present.execution(NUMBER), why=why, context=context)

    @property
    def _present(self) -> RunState:
        assert self.state is not None
        return self.state

    def _settled(self) -> RunState:
        """The state as a run leaves it, saved."""
        self._meter.pause()
        self._save(states.finish(self._present, now=self.clock.now()))
        return self._present

    def _carried_out(self, request: Request) -> str | None:
        """Why not all tests pass, once the cycle has ended and the state says so; None if they do."""
        self._meter.begin(f"the run {self.ticket.slug}", used=self._present.execution(NUMBER).usage)
        self._metered = NUMBER
        self._meter.check()
        item = replace(request.item(self.ticket.slug), shown=self._shown(request))
        ending = Cycle(item, self._present, context=self.context, save=self._save).run()
        last = ending.state.execution(NUMBER).attempts[-1]
        why = ending.why
        if why is None and is_partial(last):  # landed, and killed before the state could say so
            why = f"GREEN is kept in part; what is left: {'; '.join(last.reasons)}"
        now = self.clock.now()
        self._save(
            states.complete_step(ending.state, NUMBER, now=now)
            if why is None
            else states.fail_step(ending.state, NUMBER, error=why, now=now)
        )
        return why

    def _shown(self, request: Request) -> tuple[str, ...]:
        """The files that a model without tools is given; others look for themselves."""
        context = self.context
        if context.policy.edit_format == "tools":
            return ()
        tests, is_test = request.test_files, context.suite.conventions.is_test
        return (*tests, *code_of(tests, workspace=context.workspace, is_test=is_test))

    def _remarks(self) -> Iterator[str]:
        """What is judged by less than all tests."""
        if self.context.policy.gate_runs:
            files = ", ".join(self.context.policy.gate_runs)
            yield f"Only the tests of {files} judge (full_suite_on_completion is false): no others are run."

    def _gone_on_with(self, *, anew: bool) -> tuple[Request, RunState] | None:
        """The interrupted run, as it is to be gone on with; None if there is none, or it was taken back."""
        context, slug = self.context, self.ticket.slug
        known = state_file.load(self.ticket.state_path)
        self._meter.resume(known.usage if known else states.UsageTotals())
        self.state = known
        if known is None or not known.numbers(Status.IN_PROGRESS):
            return None
        step = known.execution(NUMBER)
        commits.require_finished(context.repository)
        if anew:
            recovery.take_back(slug, step, branch=known.branch, why="the run begins anew", context=context)
            return None
        lost = recovery.lost_checkpoint(step, context=context)
        if lost:
            raise UsageError(
                f"The run was begun, and its checkpoint {lost} is not in this repository.\nNothing was touched.",
                hint=f"begin it anew on what is committed now: {self.wanted.ways.anew}",
            )
        if not recovery.is_underway(slug, step, context=context):
            return None
        request = requests.kept(self.ticket)
        if request is None or sorted(request.targets) != sorted(self.wanted.targets):
            raise UsageError(
                f"What the interrupted run was asked for cannot be read: {requests.path_of(self.ticket)}.\n"
                "Nothing was touched.",
                hint=f"begin it anew: {self.wanted.ways.anew}",
            )
        context.emit(Notice(text=f"Going on with the interrupted run; iterations so far: {len(step.attempts)}."))
        return request, known

    def _begun(self) -> tuple[Request, RunState]:
        """A new run, once its tests are seen to fail; nothing is touched before that."""
        context, repository = self.context, self.context.repository
        commits.require_undisturbed(repository, () if self.allows_dirty else tuple(self._in_the_way()))
        head = commits.require_base(repository)
        self._meter.check()
        seen = context.run_targets("the tests to pass, as they are", targets=self.wanted.targets)
        if seen.was_refused:
            raise UsageError(f"The tests cannot be found: {seen.problem}.", hint="name test files, or tests in them")
        if seen.report is None:
            raise EnvironmentMissing(
                f"The tests cannot be run: {seen.problem}.\n{seen.output.strip()[-2000:]}",
                hint=f"make `{context.suite.command}` work in {context.suite.root}",
            )
        now = self.clock.now()
        request = self.wanted.settled(seen.report, now=now, head=head)
        requests.keep(self.ticket, request)
        key = StepKey(number=NUMBER, title=request.title, text_sha256="")
        fresh = RunState(
            ticket_slug=self.ticket.slug,
            started_at=now,
            base_commit=head,
            branch=repository.branch(),
            sandbox=context.suite.sandbox.level,
            model=context.model.name,
            step_executions=states.pending_steps((key,)),
        )
        return request, states.start_step(fresh, key, now=now, base_commit=head)

    def _in_the_way(self) -> Iterator[str]:
        """Uncommitted changes of the user's that are no tests: those are locked and stay as they are anyway."""
        context = self.context
        layout = layout_of(context.repository, context.suite)
        named = {context.in_repository(file) for file in self.wanted.files}
        for path in commits.uncommitted(context.repository):
            if path not in named and not layout.is_test(path):
                yield path

    def _save(self, state: RunState) -> None:
        """Make ``state`` the present one and write it, with what the model has used so far."""
        state = states.record_usage(state, self._metered, step=self._meter.step, ticket=self._meter.ticket)
        state_file.save(self.ticket.state_path, state)
        self.state = state
