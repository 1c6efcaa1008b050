import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.errors import CddError, ModelError, UsageError
from cdd_agent.events import Committed, GateJudged, Notice, RolledBack
from cdd_agent.git.runner import GitUnable
from cdd_agent.model.conversation import Text, ToolCall, Turn
from cdd_agent.model.recording import RecordedTurn
from cdd_agent.model.replay import ReplayModel
from cdd_agent.tdd.context import Kind
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import (
    CODE,
    TEST,
    TEST_FILE,
    TIDY,
    Project,
    content_as_it_is,
    green,
    item,
    red,
    runs,
    writes,
)

DOCS = item("docs", tests=())
"""Work of a single phase."""

TIDIES = says(
    call("Read", file_path="discount.py"),
    call("Write", "toolu_W2", file_path="discount.py", content=TIDY),
    call("CompleteImplementation", implementation_files=[]),
)


def judged(project: Project) -> list[tuple[str, bool, list[str]]]:
    """Phase, whether its gate opened, and the codes of the reasons, of every attempt."""
    return [
        (event.phase, event.open, [reason.partition(":")[0] for reason in event.reasons])
        for event in project.seen
        if isinstance(event, GateJudged)
    ]


def files_of(project: Project, commit: str) -> list[str]:
    return project.git("show", "--format=", "--name-only", commit).splitlines()


def refs(project: Project, under: str) -> list[str]:
    return project.git("for-each-ref", "--format=%(refname)", f"refs/cdd/{under}/").splitlines()


def test_the_phases_land_in_their_order_each_with_what_it_changed(real_project: Project) -> None:
    project = real_project
    step, why = project.run(item(), context=project.context(ScriptedModel([red(), green(), TIDIES])))
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off", "refactor: Ten percent off"]
    assert [files_of(project, step.commits[phase]) for phase in ("red", "green", "refactor")] == [
        [TEST_FILE],
        ["discount.py"],
        ["discount.py"],
    ]
    assert project.status == ""
    committed = [event.commit for event in project.seen if isinstance(event, Committed)]
    assert committed == list(step.commits.values())


def test_every_commit_carries_trailers_and_a_note_with_its_evidence(project: Project) -> None:
    step, _ = project.run(item(), context=project.context(ScriptedModel([red(), green(), content_as_it_is()])))
    for phase, following, result in (("red", "GREEN", "FAIL"), ("green", "REFACTOR", "PASS")):
        commit = step.commits[phase]
        trailers = project.git("log", "-1", "--format=%(trailers:only)", commit).splitlines()
        assert trailers[:3] == ["Ticket: sale", f"Phase: {phase.upper()}", "Cycle: 1"]
        note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()[0])
        assert trailers[3] == f"Handoff-Id: {note['id']}"
        assert set(note) == {
            *("v", "seq", "id", "ticket", "phase", "nextPhase", "cycleNumber", "currentTest", "completedTests"),
            *("pendingTests", "testResult", "error", "errorDetails", "retryCount", "commit", "checkpoint", "gate"),
        }
        assert (note["phase"], note["nextPhase"], note["testResult"]) == (phase.upper(), following, result)
        assert (note["commit"], note["retryCount"], note["ticket"]) == (commit, 0, "sale")
        assert note["currentTest"]["testFile"] == TEST_FILE
        assert note["gate"]["open"] is True
        assert len(note["gate"]["report_sha256"]) == 64


def test_a_refactoring_that_changes_nothing_makes_no_commit(project: Project) -> None:
    step, why = project.run(item(), context=project.context(ScriptedModel([red(), green(), content_as_it_is()])))
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert step.commits["refactor"] == step.commits["green"]
    lines = project.git("notes", "--ref=tdd-handoffs", "show", step.commits["green"]).splitlines()
    handoffs = [json.loads(line) for line in lines]
    assert [(note["phase"], note["nextPhase"]) for note in handoffs] == [
        ("GREEN", "REFACTOR"),
        ("REFACTOR", "COMPLETE"),
    ]
    assert {note["commit"] for note in handoffs} == {step.commits["green"]}


@pytest.mark.parametrize(("kind", "prefix"), [("docs", "docs"), ("chore", "chore"), ("refactor", "refactor")])
def test_what_needs_no_new_test_is_one_phase(project: Project, *, kind: Kind, prefix: str) -> None:
    model = ScriptedModel([writes("README.md", "# Prices\n")])
    _, why = project.run(item(kind, tests=()), context=project.context(model))
    assert why is None
    assert project.log == [f"{prefix}: Ten percent off"]
    assert [phase for phase, *_ in judged(project)] == ["refactor" if kind == "refactor" else "green"]


def test_a_step_that_is_itself_a_refactoring_is_not_done_by_saying_so(project: Project) -> None:
    context = project.context(ScriptedModel([says("All is well as it is.")]), max_attempts=1)
    _, why = project.run(item("refactor", tests=()), context=context)
    assert why is not None
    assert judged(project) == [("refactor", False, ["no_change"])]


def test_a_bug_may_show_itself_by_the_exception_that_the_product_raises(project: Project) -> None:
    test = "from prices import total\n\n\ndef test_none():\n    assert total(None) == 0\n"
    model = ScriptedModel(
        [
            writes("tests/test_none.py", test),
            runs("printf 'def total(prices):\\n    return sum(prices or ())\\n' > prices.py"),
        ]
    )
    context = project.context(model)
    _, why = project.run(item("bug", tests=("tests/test_none.py::test_none",), refactor=False), context=context)
    assert why is None
    assert project.log == ["test: Ten percent off", "fix: Ten percent off"]


def test_an_answer_without_any_change_is_a_failed_attempt(project: Project) -> None:
    step, why = project.run(item(), context=project.context(ScriptedModel([says("I am done.")]), max_attempts=1))
    assert why is not None
    assert judged(project) == [("red", False, ["no_change"])]
    assert step.attempts[0].report is None
    assert project.log == []


def test_when_red_never_opens_everything_is_as_before_and_the_work_is_kept(project: Project) -> None:
    project.write({"notes.txt": "mine\n"})
    project.git("add", "notes.txt")
    before = (project.git("rev-parse", "HEAD"), project.git("write-tree"), project.status)
    passing = writes(TEST_FILE, "def test_discount():\n    pass\n")
    again = runs(f"echo '# again' >> {TEST_FILE} && git add -A")
    _, why = project.run(item(), context=project.context(ScriptedModel([passing, again]), max_attempts=2))
    assert why is not None
    assert "RED was refused 2 times" in why
    assert "already_green" in why
    assert (project.git("rev-parse", "HEAD"), project.git("write-tree"), project.status) == before
    (kept,) = refs(project, "attempts")
    assert "# again" in project.git("show", f"{kept}:{TEST_FILE}")


def test_when_green_never_opens_its_red_leaves_the_branch_too(project: Project) -> None:
    before = (project.git("rev-parse", "HEAD"), project.git("write-tree"))
    wrong = writes("discount.py", "def discount(price):\n    return price\n")
    context = project.context(ScriptedModel([red(), wrong]), max_attempts=1)
    step, why = project.run(item(), context=context)
    assert why is not None
    assert (project.git("rev-parse", "HEAD"), project.git("write-tree")) == before
    assert project.status == ""
    assert not (project.folder / TEST_FILE).exists()
    (abandoned,) = refs(project, "abandoned")
    assert project.git("rev-parse", abandoned) == step.commits["red"]
    (kept,) = refs(project, "attempts")
    assert "return price" in project.git("show", f"{kept}:discount.py")


def test_a_refactoring_refused_each_time_is_given_up_and_green_stays(project: Project) -> None:
    breaks = says(
        call("Bash", command="echo 'discount = None' >> discount.py"),
        call("CompleteImplementation", implementation_files=[]),
    )
    context = project.context(ScriptedModel([red(), green(), breaks]), max_attempts=1)
    step, why = project.run(item(), context=context)
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert (project.folder / "discount.py").read_text() == CODE
    assert project.status == ""
    assert step.commits["refactor"] == step.commits["green"]
    assert any("is skipped" in event.text for event in project.seen if isinstance(event, Notice))


def test_sources_changed_in_red_are_refused_put_back_and_kept(project: Project) -> None:
    cheats = runs("echo '# red' >> prices.py")
    context = project.context(ScriptedModel([cheats, red(), green(), content_as_it_is()]))
    _, why = project.run(item(), context=context)
    assert why is None
    assert judged(project)[0][:2] == ("red", False)
    assert judged(project)[0][2][0] == "source_changed"
    assert project.git("diff", "HEAD~2", "--stat", "--", "prices.py") == ""
    (kept,) = refs(project, "attempts")
    assert "# red" in project.git("show", f"{kept}:prices.py")


def test_tests_changed_in_green_are_refused_and_put_back(project: Project) -> None:
    cheats = runs(f"sed -i 's/ == 90/ == 100/' {TEST_FILE}; printf 'def discount(p): return p\\n' > discount.py")
    mends = runs("printf 'def discount(p): return p - 10\\n' > discount.py")
    context = project.context(ScriptedModel([red(), cheats, mends, content_as_it_is()]))
    _, why = project.run(item(), context=context)
    assert why is None
    assert judged(project)[1] == ("green", False, ["protected_changed"])
    assert (project.folder / TEST_FILE).read_text() == TEST


def test_the_next_attempt_is_told_why_the_last_one_was_refused(project: Project) -> None:
    model = ScriptedModel([says("Done!"), red(), green(), content_as_it_is()])
    project.run(item(), context=project.context(model))
    assert model.requests[1].system.splitlines()[-1] == "Work: executor sale step 1 red attempt 2"
    (message,) = model.requests[1].messages
    (text,) = message.content
    assert isinstance(text, Text)
    assert "Attempt 1 was refused by the gate:\n" in text.text
    assert "\n- no_change: " in text.text


def test_files_that_a_test_run_leaves_behind_are_nobodys_work(project: Project) -> None:
    leaves = "import pathlib\n\n\ndef test_leaves():\n    pathlib.Path('prices.db').write_text(str(id(object())))\n"
    project.write({"tests/test_leaves.py": leaves})
    project.git("add", "-A")
    project.git("commit", "--quiet", "-m", "leaves")
    context = project.context(ScriptedModel([red(), green(), content_as_it_is()]), max_attempts=1)
    step, why = project.run(item(), context=context)
    assert why is None
    assert files_of(project, step.commits["red"]) == [TEST_FILE]
    assert project.status == ""


def test_an_ignore_rule_that_the_model_changes_hands_no_file_of_the_users_over(project: Project) -> None:
    project.write({".gitignore": ".env\n"})
    project.git("add", ".gitignore")
    project.git("commit", "--quiet", "-m", "rules")
    project.write({".env": "SECRET=1\n"})
    context = project.context(
        ScriptedModel([runs("sed -i /.env/d .gitignore; rm .cdd/.gitignore; echo hi > README.md")])
    )
    step, why = project.run(DOCS, context=context)
    assert why is None
    assert files_of(project, step.commits["green"]) == [".gitignore", "README.md"]
    assert project.status == "?? .env"
    assert (project.folder / ".env").read_text() == "SECRET=1\n"


def test_a_repository_that_the_model_makes_is_left_as_it_is_and_told(project: Project) -> None:
    context = project.context(ScriptedModel([runs("git init -q inner; echo hi > README.md")]))
    step, why = project.run(DOCS, context=context)
    assert why is None
    assert files_of(project, step.commits["green"]) == ["README.md"]
    assert (project.folder / "inner" / ".git").is_dir()
    assert any(
        "inner/ is a separate git repository" in event.text for event in project.seen if isinstance(event, Notice)
    )


def test_a_commit_hook_that_refuses_closes_the_attempt_and_its_words_reach_the_model(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ngrep -q licence README.md || { echo 'no licence line'; exit 1; }\n")
    hook.chmod(0o755)
    model = ScriptedModel([writes("README.md", "# Prices\n"), runs("echo licence >> README.md")])
    _, why = project.run(DOCS, context=project.context(model))
    assert why is None
    assert judged(project)[1] == ("green", False, ["commit_refused"])
    assert project.log == ["docs: Ten percent off"]
    (text,) = model.requests[1].messages[0].content
    assert isinstance(text, Text)
    assert "no licence line" in text.text


def test_a_commit_that_fails_without_any_hook_is_not_the_models_to_mend(project: Project) -> None:
    project.git("config", "commit.gpgsign", "true")
    project.git("config", "gpg.program", "/bin/false")
    with pytest.raises(GitUnable, match="could not sign the commit"):
        project.run(DOCS, context=project.context(ScriptedModel([writes("README.md", "# Prices\n")])))
    assert (project.folder / "README.md").exists(), "the attempt stays, to be landed by the next run"


class TestGitUsedByTheAgent:
    """What the agent does to the history itself."""

    def test_its_commit_of_just_its_work_is_adopted_after_the_gate(self, project: Project) -> None:
        commits = runs("echo '# Prices' > README.md && git add -A && git commit -qm 'wip: my words'")
        step, why = project.run(DOCS, context=project.context(ScriptedModel([commits])))
        assert why is None
        assert project.log == ["wip: my words"]
        note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", "HEAD"))
        assert (note["phase"], note["commit"]) == ("GREEN", step.commits["green"])
        assert project.status == ""

    def test_its_commit_of_refused_work_is_taken_back(self, project: Project) -> None:
        commits = runs("echo '# red' >> tests/test_prices.py && git commit -qam 'sneaky'")
        context = project.context(ScriptedModel([commits, writes("README.md", "# Prices\n")]))
        _, why = project.run(DOCS, context=context)
        assert why is None
        assert project.log == ["docs: Ten percent off"]
        assert project.status == ""
        assert any("Removed commit" in event.text for event in project.seen if isinstance(event, Notice))
        kept = [ref for ref in refs(project, "attempts") if "commits" in ref]
        assert project.git("log", "-1", "--format=%s", kept[0]) == "sneaky"

    def test_its_own_branch_is_left_and_the_work_lands_on_the_users(self, project: Project) -> None:
        commits = runs("echo '# Prices' > README.md && git checkout -qb mine && git add -A && git commit -qm wip")
        _, why = project.run(DOCS, context=project.context(ScriptedModel([commits])))
        assert why is None
        assert project.git("symbolic-ref", "--short", "HEAD") == "main"
        assert project.log == ["docs: Ten percent off"]
        assert project.status == ""

    def test_its_commit_never_takes_the_users_changes_along(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE})
        commits = runs("echo '# Prices' > README.md && git add -A && git commit -qm wip")
        _, why = project.run(DOCS, context=project.context(ScriptedModel([commits])))
        assert why is None
        assert project.log == ["docs: Ten percent off"]
        assert project.status == " M prices.py"
        assert (project.folder / "prices.py").read_text() == FILES_MINE

    def test_history_it_threw_away_is_back(self, project: Project) -> None:
        project.git("commit", "--quiet", "--allow-empty", "-m", "mine")
        throws = runs("echo '# Prices' > README.md && git reset -q --hard HEAD~1")
        _, why = project.run(DOCS, context=project.context(ScriptedModel([throws])))
        assert why is None
        assert project.log == ["mine", "docs: Ten percent off"]


FILES_MINE = "def total(prices):\n    return sum(prices)  # mine\n"


class TestUncommittedChangesOfTheUsers:
    """They were allowed at the start."""

    def test_they_are_in_no_commit_and_stay_as_they_are(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE, "notes.txt": "mine\n", "run.log": "ignored\n"})
        project.git("add", "notes.txt")
        before = project.status
        context = project.context(ScriptedModel([red(), green()]))
        step, why = project.run(item(refactor=False), context=context)
        assert why is None
        assert [files_of(project, commit) for commit in step.commits.values()] == [[TEST_FILE], ["discount.py"]]
        assert project.status == before
        assert (project.folder / "prices.py").read_text() == FILES_MINE
        assert (project.folder / "run.log").read_text() == "ignored\n"

    def test_an_attempt_that_touches_them_is_refused_and_they_are_put_back(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE, "run.log": "ignored\n"})
        context = project.context(ScriptedModel([runs("echo '# agent' >> prices.py")]), max_attempts=1)
        _, why = project.run(DOCS, context=context)
        assert why is not None
        assert "user_file_changed: prices.py" in why
        assert (project.folder / "prices.py").read_text() == FILES_MINE
        assert (project.folder / "run.log").read_text() == "ignored\n"
        assert project.status == " M prices.py"


def played(phase: str, turns: list[tuple[str, Turn]]) -> list[RecordedTurn]:
    """Turns of one phase by the number of the attempt, found by the last line of the prompt."""
    return [
        RecordedTurn(
            number=number,
            content=tuple(block for block in turn.content if isinstance(block, Text | ToolCall)),
            stop_reason="tool_use" if turn.calls else "end_turn",
            when=f"^Work: executor sale step 1 {phase} attempt {attempt}$",
        )
        for number, (attempt, turn) in enumerate(turns, start=1)
    ]


def story() -> ReplayModel:
    """RED, a GREEN in words only, GREEN, and no refactoring."""
    return ReplayModel(
        [
            *played("red", [("1", red())]),
            *played("green", [("1", says("It is done.")), ("2", green())]),
            *played("refactor", [("1", content_as_it_is())]),
        ]
    )


SAVES = 11
"""States that the story saves on its way."""


def test_the_story_saves_as_often_as_the_crashes_below_assume(project: Project) -> None:
    saved: list[RunState] = []
    _, why = project.run(item(), context=project.context(story()), save=saved.append)
    assert why is None
    assert len(saved) == SAVES


QUICK = {7}
"""A landing; the soak has all of them, and the shorter story below has the other moments of a phase."""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(SAVES)]
)
def test_a_crash_at_any_save_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]

    def crash(state: RunState) -> None:
        if len(saved) > number:
            raise OSError("No space left on device")
        saved.append(state)

    with pytest.raises(OSError, match="No space"):
        project.run(item(), context=project.context(story()), state=saved[-1], save=crash)
    step, why = project.run(item(), context=project.context(story()), state=saved[-1], save=saved.append)
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert [attempt.phase for attempt in step.attempts] == ["red", "green", "green", "refactor"]
    assert (project.folder / "discount.py").read_text() == CODE
    assert project.status == ""


@pytest.mark.parametrize("number", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 8))])
def test_an_interruption_right_after_any_save_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]

    def stop(state: RunState) -> None:
        saved.append(state)
        if len(saved) > number:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.run(item(), context=project.context(story()), state=saved[-1], save=stop)
    step, why = project.run(item(), context=project.context(story()), state=saved[-1], save=saved.append)
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert [attempt.phase for attempt in step.attempts] == ["red", "green", "green", "refactor"]
    assert project.status == ""


@pytest.mark.parametrize("number", [1, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 4))])
def test_a_crash_at_any_save_of_a_single_phase_changes_nothing_in_the_end(project: Project, number: int) -> None:
    saved = [project.start()]
    turns = [("1", says("It is done.")), ("2", writes("README.md", "# Prices\n"))]

    def crash(state: RunState) -> None:
        if len(saved) > number:
            raise OSError("No space left on device")
        saved.append(state)

    with pytest.raises(OSError, match="No space"):
        project.run(DOCS, context=project.context(ReplayModel(played("green", turns))), state=saved[-1], save=crash)
    step, why = project.run(
        DOCS, context=project.context(ReplayModel(played("green", turns))), state=saved[-1], save=saved.append
    )
    assert why is None
    assert (len(step.attempts), project.log, project.status) == (2, ["docs: Ten percent off"], "")


def test_a_killed_run_loses_its_half_done_attempt_and_nothing_else(project: Project) -> None:
    saved = [project.start()]
    stops = project.context(ScriptedModel([says("It is done."), KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        project.run(DOCS, context=stops, state=saved[-1], save=saved.append)
    StepRecovery("sale", saved[-1].execution(1), context=stops).checkpoints.mark_running()
    project.write({"half.py": "", "README.md": "half\n"})
    for command in (("checkout", "-qb", "half"), ("add", "-A")):
        project.git(*command)
    context = project.context(ScriptedModel([writes("README.md", "# Prices\n")]))
    step, why = project.run(DOCS, context=context, state=saved[-1])
    assert why is None
    assert (len(step.attempts), project.log, project.status) == (2, ["docs: Ten percent off"], "")
    assert project.git("symbolic-ref", "--short", "HEAD") == "main"
    (kept,) = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert project.git("show", f"{kept}:README.md") == "half"


@pytest.mark.parametrize("end", ["kill", "ctrl-c"])
def test_an_end_right_after_a_commit_is_saved_leaves_commit_and_index_in_order(
    end: str, *, project: Project, tmp_path: Path
) -> None:
    kept = tmp_path / "state.json"

    def save(state: RunState) -> None:
        state_file.save(kept, state)
        if "red" in state.execution(1).commits:
            if end == "kill":
                os._exit(9)
            raise KeyboardInterrupt

    context = project.context(ScriptedModel([red()]))
    if end == "kill" and (process := os.fork()):
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    else:
        with pytest.raises(KeyboardInterrupt):
            project.run(item(refactor=False), context=context, save=save)
    state = state_file.load(kept)
    assert state is not None
    step, why = project.run(item(refactor=False), context=project.context(ScriptedModel([green()])), state=state)
    assert (why, len(step.attempts), project.status) == (None, 2, "")
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]


def test_what_a_person_committed_after_a_kill_is_not_taken_back(project: Project) -> None:
    state = stopped_in_green(project)
    step, context = state.execution(1), project.context(ScriptedModel([green()]))
    StepRecovery("sale", step, context=context).checkpoints.mark_running()
    project.write({"mine.txt": "mine\n", "half.py": ""})
    for command in (("add", "mine.txt"), ("commit", "-qm", "my own")):
        project.git(*command)
    with pytest.raises(UsageError, match=r"HEAD is at (.|\n)*Nothing was touched") as refused:
        project.run(item(refactor=False), context=context, state=state)
    assert "git branch mine && git reset --keep" in refused.value.hint
    assert "--retry 1" in refused.value.hint
    assert (project.log, project.status) == (["test: Ten percent off", "my own"], "?? half.py")
    StepRecovery("sale", step, context=context).undo_if_underway(branch="main", why="anew")
    assert (project.log, project.status) == (["test: Ten percent off", "my own"], "")
    assert (project.folder / "mine.txt").read_text() == "mine\n"
    (*_, kept) = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert "half.py" in project.git("ls-tree", "--name-only", kept)


def test_what_a_commit_hook_reformats_is_where_the_next_phase_goes_on_from(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text(f"#!/bin/sh\necho '# formatted' >> {TEST_FILE}\ngit add {TEST_FILE}\n")
    hook.chmod(0o755)
    state = stopped_in_green(project)
    assert project.status == ""
    assert any("A commit hook changed files" in event.text for event in project.seen if isinstance(event, Notice))
    hook.unlink()
    context = project.context(ScriptedModel([green()]))
    assert project.run(item(refactor=False), context=context, state=state)[1] is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]


def interrupted_at(number: int, stop: CddError | KeyboardInterrupt) -> ScriptedModel:
    turns: list[Turn | CddError | KeyboardInterrupt] = [
        says(call("Write", file_path=TEST_FILE, content=TEST)),
        says("The test is written."),
        says(call("Write", file_path="discount.py", content=CODE)),
        says("The code is written."),
    ]
    return ScriptedModel([*turns[:number], stop])


def no_answer() -> ModelError:
    return ModelError("Overloaded.", hint="wait")


@pytest.mark.parametrize(
    ("number", "stop"),
    [
        *((number, KeyboardInterrupt) for number in (0, 3)),
        *(pytest.param(number, KeyboardInterrupt, marks=pytest.mark.slow) for number in (1, 2)),
        (3, no_answer),
    ],
)
def test_an_interrupted_attempt_leaves_nothing_and_the_next_run_goes_on(
    project: Project, *, number: int, stop: Callable[[], CddError | KeyboardInterrupt]
) -> None:
    saved = [project.start()]
    context = project.context(interrupted_at(number, stop()))
    with pytest.raises((KeyboardInterrupt, ModelError)):
        project.run(item(refactor=False), context=context, state=saved[-1], save=saved.append)
    assert project.log == ["test: Ten percent off"][: number // 2]
    assert project.status == "", "an interrupted attempt leaves no half-written file"
    kept = [event.kept for event in project.seen if isinstance(event, RolledBack)]
    assert len(kept) == number % 2, "what was written is kept"

    rest = ScriptedModel([red(), green()][number // 2 :])
    _, why = project.run(item(refactor=False), context=project.context(rest), state=saved[-1])
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    assert project.status == ""


def stopped_in_green(project: Project) -> RunState:
    saved = [project.start()]
    with pytest.raises(KeyboardInterrupt):
        project.run(
            item(),
            context=project.context(ScriptedModel([red(), KeyboardInterrupt()])),
            state=saved[-1],
            save=saved.append,
        )
    return saved[-1]


def test_what_a_person_changed_since_the_interruption_is_not_run_over(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"prices.py": FILES_MINE})
    with pytest.raises(UsageError, match=r"Files were changed since step 1 was interrupted:\n  prices.py"):
        project.run(item(refactor=False), context=project.context(ScriptedModel([green()])), state=state)
    assert (project.folder / "prices.py").read_text() == FILES_MINE
    project.git("stash")
    context = project.context(ScriptedModel([green()]))
    assert project.run(item(refactor=False), context=context, state=state)[1] is None


def test_once_everything_is_put_aside_the_steps_own_files_are_brought_back(project: Project) -> None:
    saved = [project.start()]
    model = ScriptedModel([red(), writes("discount.py", "def discount(): pass\n"), KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        project.run(item(refactor=False), context=project.context(model), state=saved[-1], save=saved.append)
    assert project.status == "?? discount.py", "a refused attempt is where the next goes on from"
    project.git("stash", "--include-untracked")
    context = project.context(ScriptedModel([TIDIES]))
    assert project.run(item(refactor=False), context=context, state=saved[-1])[1] is None
    assert (project.folder / "discount.py").read_text() == TIDY


def test_what_a_person_committed_since_the_interruption_is_not_taken_back(project: Project) -> None:
    state = stopped_in_green(project)
    project.write({"prices.py": FILES_MINE})
    project.git("commit", "--quiet", "-am", "mine")
    with pytest.raises(UsageError, match=r"Step 1 was interrupted at commit .*, but HEAD is at") as refused:
        project.run(item(), context=project.context(ScriptedModel([green()])), state=state)
    assert "--retry 1" in refused.value.hint
    assert project.log == ["test: Ten percent off", "mine"]
