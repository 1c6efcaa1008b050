"""The events of a run that hooks get, and what their answers do."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.hooks import HookEvent, HookReply
from cdd_agent.runs.plan_steps import PlanSteps
from cdd_agent.runs.run import Run
from tests.cdd_agent.runs.plan_steps.conftest import MakeWork, Work, plan
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import Project, writes

TWO = plan((1, "First", "none"), (2, "Second", "1"))


@dataclass(frozen=True, kw_only=True)
class ScriptedHooks:
    """Answers each event with a scripted reply."""

    replies: Mapping[str, HookReply] = field(default_factory=dict)
    seen: list[tuple[str, str, Mapping[str, object]]] = field(default_factory=list)

    def run(self, event: HookEvent, fields: Mapping[str, object], *, subject: str = "") -> HookReply:
        self.seen.append((event, subject, fields))
        return self.replies.get(event, HookReply())


def run_with(work: Work, hooks: ScriptedHooks, model: ScriptedModel, *, max_attempts: int = 1) -> Run[PlanSteps]:
    executor = work.executor(model, max_attempts=max_attempts)
    executor.context = replace(executor.context, hooks=hooks)
    with executor.running():
        executor.run_all()
    return executor


def test_hooks_get_the_events_of_a_step_in_order(work: MakeWork) -> None:
    hooks = ScriptedHooks()
    run_with(work(plan((1, "First", "none"))), hooks, ScriptedModel([writes("a.md", "# a\n")]))
    assert [(event, subject) for event, subject, _ in hooks.seen] == [
        ("TaskStart", ""),
        ("PreToolUse", "Write"),
        ("FileChanged", "a.md"),
        ("PostToolUse", "Write"),
        ("PreToolUse", "CompleteImplementation"),
        ("PostToolUse", "CompleteImplementation"),
        ("Stop", ""),
        ("TaskCompletion", ""),
    ]
    assert hooks.seen[0][2] == {"task_id": "sale/1", "task_subject": "First"}
    assert hooks.seen[-1][2] == {"task_id": "sale/1", "task_subject": "First", "status": "completed", "error": ""}


def test_a_step_that_a_hook_blocks_does_not_start(work: MakeWork) -> None:
    made = work(TWO)
    with pytest.raises(GateClosed, match="A hook blocked step 1: not on Fridays"):
        run_with(made, ScriptedHooks(replies={"TaskStart": HookReply(block="not on Fridays")}), ScriptedModel([]))
    assert not made.ticket.state_path.exists()
    assert not made.project.log, "spec and plan are committed when a step starts"


@pytest.mark.slow
def test_a_hook_ends_the_run_after_a_step_which_stays_completed(work: MakeWork) -> None:
    made = work(TWO)
    hooks = ScriptedHooks(replies={"TaskCompletion": HookReply(block="deploy first")})
    with pytest.raises(GateClosed, match="A hook ended the run after step 1: deploy first"):
        run_with(made, hooks, ScriptedModel([writes("a.md", "# a\n")]))
    assert made.statuses == {1: "completed", 2: "pending"}


def test_a_written_file_is_saved_before_a_hook_gets_it(work: MakeWork) -> None:
    made = work(plan((1, "First", "none")))
    saved = list[tuple[str, tuple[str, ...]]]()

    class Watching(ScriptedHooks):
        def run(self, event: HookEvent, fields: Mapping[str, object], *, subject: str = "") -> HookReply:
            if event in ("FileChanged", "TaskCompletion"):
                step = made.saved.execution(1)
                saved.append((step.status, step.files_created))
            return HookReply()

    run_with(made, Watching(), ScriptedModel([writes("a.md", "# a\n")]))
    assert saved == [("in_progress", ("a.md",)), ("completed", ("a.md",))]


def test_words_that_a_hook_blocks_change_no_step(work: MakeWork) -> None:
    made = work(plan((1, "First", "none")))
    run_with(made, ScriptedHooks(), ScriptedModel([says("No.")]))
    hooks = ScriptedHooks(replies={"UserPromptSubmit": HookReply(context="in cents")})
    executor = made.executor(ScriptedModel([]))
    blocking = ScriptedHooks(replies={"UserPromptSubmit": HookReply(block="no secrets")})
    executor.context = replace(executor.context, hooks=blocking)
    with pytest.raises(UsageError, match="A hook blocked your message: no secrets"):
        executor.retry(1, guidance="a secret")
    assert (made.statuses, made.saved.execution(1).guidance) == ({1: "failed"}, "")
    executor.context = replace(executor.context, hooks=hooks)
    executor.retry(1, guidance="Round.")
    assert (made.statuses, made.saved.execution(1).guidance) == (
        {1: "pending"},
        "Round.\n\nA hook of the user adds:\nin cents",
    )


def test_what_hooks_add_reaches_the_model(work: MakeWork, project: Project) -> None:
    replies = {
        "TaskStart": HookReply(context="Prices are in cents."),
        "PostToolUse": HookReply(context="Update the changelog."),
        "GateClosed": HookReply(context="See the wiki."),
    }
    model = ScriptedModel([says("No."), says(call("Glob", pattern="*")), writes("a.md", "# a\n")])
    run_with(work(plan((1, "First", "none"))), ScriptedHooks(replies=replies), model, max_attempts=2)
    first, second, third = (str(request.messages) for request in model.requests[:3])
    assert "Prices are in cents." in first
    assert "See the wiki." not in first
    assert "See the wiki." in second
    assert "A hook adds: Update the changelog." in third
