"""Sixteen defects that an executor of this kind is known to have had, each shown not to be one of ours.

Each is tried below by the test of its number; behind most stands a whole room of tests, which is named too.

| # | the defect | and besides the test below |
|---|---|---|
| 1 | no test is run | ``tests/cdd_agent/tdd/test_cycle.py`` |
| 2 | it stops after every step | ``tests/cdd_agent/runs/plan_steps/test_executor.py`` |
| 3 | a file is cut at a fence in it | ``tests/cdd_agent/agent/test_blocks.py`` |
| 4 | it writes outside the project | ``tests/security/test_paths.py`` |
| 5 | the final newline is lost | ``tests/cdd_agent/agent/test_blocks.py`` |
| 6 | long files are shown cut, and taken back so | ``tests/cdd_agent/agent/test_blocks_whole_files.py`` |
| 7 | an answer without a file completes a step | ``tests/cdd_agent/runs/plan_steps/test_in_blocks.py`` |
| 8 | a skipped step counts as completed | ``tests/cdd_agent/runs/plan_steps/test_executor.py`` |
| 9 | leaving half-way completes the run | ``tests/cdd_agent/work/test_state.py`` |
| 10 | a damaged state reads as none | ``tests/cdd_agent/work/test_state_file.py`` |
| 11 | the state is written in place, steps are known by number | ``tests/cdd_agent/work/test_state_reconcile.py`` |
| 12 | a later dependency, or a cycle, is waited for for ever | ``tests/cdd_agent/tickets/test_plan_order.py`` |
| 13 | comments and unknown keys of the spec are dropped | ``tests/cdd_agent/tickets/test_spec.py`` |
| 14 | its own templates are not valid | ``tests/cdd_agent/tickets/test_ticket.py`` |
| 15 | a long conversation is not summed up | ``tests/cdd_agent/conversation/test_dialog_compaction.py`` |
| 16 | Ctrl-C ends everything | ``tests/cdd_agent/repl/test_session.py`` |
"""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import cdd_agent
from cdd_agent.config.settings import Settings
from cdd_agent.conversation.dialog import compact, needs_compaction
from cdd_agent.errors import DocumentError
from cdd_agent.events import GateJudged, RunFinished, SuiteFinished
from cdd_agent.model.conversation import Conversation, Text
from cdd_agent.repl.render import show_steps
from cdd_agent.storage import write_atomic
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import create
from cdd_agent.work.state import Status
from cdd_agent.work.state_file import save_state
from tests.cdd_agent.runs.plan_steps.conftest import FEATURE, ONE, SPEC, Grounds, MakeWork, Work, plan
from tests.fakes.cases import soak_after
from tests.fakes.demo import captured
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, green, red, writes

ROOT = Path(__file__).parents[4]


def run_all(work: Work, *answers: object, in_blocks: bool = False, max_attempts: int = 1) -> ScriptedModel:
    turns = [says(f"{answer}") if isinstance(answer, str) else answer for answer in answers]
    model = ScriptedModel(turns)  # type: ignore[arg-type]
    executor = work.executor(model, edit_format="blocks" if in_blocks else "tools", max_attempts=max_attempts)
    with executor.running():
        executor.run_all()
    return model


def test_each_line_of_the_table_names_a_test_that_is_there() -> None:
    rows = re.findall(r"^\| (\d+) \| .* ``(tests/[\w/]+\.py)`` \|$", __doc__ or "", re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 17))
    for number, path in rows:
        assert (ROOT / path).is_file(), path
        assert [name for name in globals() if name.startswith(f"test_{int(number):02}_")], number


def test_01_every_phase_is_judged_by_a_run_of_all_tests(work: MakeWork, project: Project) -> None:
    made = work(FEATURE)
    breaks = says(
        call("Write", "toolu_1", file_path="discount.py", content=CODE),
        call("Bash", "toolu_2", command="echo 'def total(prices): return 0' > prices.py"),
        call("CompleteImplementation", "toolu_3", implementation_files=[]),
    )
    run_all(made, red(), breaks)
    assert made.statuses == {1: "failed"}
    assert "broke_others" in (made.saved.execution(1).error or "")
    gates = [event for event in project.seen if isinstance(event, SuiteFinished) and "gate" in event.purpose]
    assert len(gates) == len([event for event in project.seen if isinstance(event, GateJudged)]) == 2


def test_02_a_plan_is_carried_out_without_a_stop_after_each_step(chained: Work) -> None:
    assert set(chained.statuses.values()) == {"completed"}
    assert [str(event.status) for event in chained.project.seen if isinstance(event, RunFinished)] == ["completed"]


README = "# T\n\n```sh\nmake\n```\n\nThe end.\n"
SOURCE = "x = 1\n\n"


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["blocks", "tools"])
def written(request: pytest.FixtureRequest, grounds: Grounds) -> Project:
    """A project in which the model wrote both files, in fenced blocks or by tools; never to be changed."""
    tools = says(
        call("Write", "toolu_1", file_path="README.md", content=README),
        call("Write", "toolu_2", file_path="a.py", content=SOURCE),
        call("CompleteImplementation", "toolu_3", implementation_files=[]),
    )
    blocks = f"````markdown:README.md\n{README}````\n```python:a.py\n{SOURCE}```\n"
    in_blocks = request.param
    answer = blocks if in_blocks else tools
    name = f"written {in_blocks}"
    named = ONE.replace("`discount.py`", "`README.md`, `a.py`")
    return grounds.make(name, named, lambda work: run_all(work, answer, in_blocks=in_blocks)).project


def test_03_a_file_with_fences_in_it_is_written_whole(written: Project) -> None:
    assert written.git("show", "HEAD:README.md") + "\n" == README


@soak_after(1, "in_blocks", [True, False])
def test_04_nothing_is_written_outside_the_project(work: MakeWork, *, project: Project, in_blocks: bool) -> None:
    outside = project.folder.parent
    (project.folder / "link").symlink_to(outside)
    project.git("add", "link")
    project.git("commit", "-qm", "link")
    paths = ["../escaped.py", f"{outside}/escaped.py", "link/escaped.py"]
    calls = [call("Write", f"toolu_{number}", file_path=path, content="x = 1\n") for number, path in enumerate(paths)]
    blocks = [f"```python:{path}\nx = 1\n```\n" for path in paths]
    made = work(ONE)
    model = run_all(made, *(blocks if in_blocks else [says(*calls)]), "No.", in_blocks=in_blocks)
    assert model.queue == [], "each of them was refused"
    assert made.statuses == {1: "failed"}
    assert not (outside / "escaped.py").exists()


def test_05_the_final_newline_stays(written: Project) -> None:
    assert (written.folder / "a.py").read_text() == SOURCE


@pytest.mark.slow
def test_06_a_long_file_is_shown_whole_or_refused_and_never_cut(work: MakeWork, project: Project) -> None:
    long = "".join(f"line_{number} = {number}\n" for number in range(1500))
    project.write({"discount.py": long})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "long")
    changed = long.replace("line_7 = 7\n", "line_7 = 8\n")
    model = run_all(work(ONE), f"```discount.py\n{changed}```\n", in_blocks=True)
    *_, told = model.requests[0].messages[0].content
    assert isinstance(told, Text)
    assert long in told.text
    assert project.git("show", "--format=", "--numstat", "HEAD", "--", "discount.py") == "1\t1\tdiscount.py"


def test_07_an_answer_without_a_whole_file_completes_nothing(work: MakeWork) -> None:
    made = work(ONE)
    answers = ["I have done it.", "```python\nx = 1\n```\n", "```a.py\nx = 1\n"]
    model = run_all(made, *answers, "No.", in_blocks=True, max_attempts=3)
    assert model.queue == [], "none of them was enough"
    assert made.statuses == {1: "failed"}


@pytest.mark.slow
def test_08_a_skipped_step_is_skipped_and_the_reasons_are_shown(work: MakeWork) -> None:
    made = work(plan((1, "First", "none"), (2, "Second", "1"), (3, "Third", "none")))
    executor = made.executor(ScriptedModel([says("It cannot be done.")]))
    with executor.running():
        executor.skip(1, reason="skipped by the user")
        executor.run_all()
    assert made.statuses == {1: "skipped", 2: "skipped", 3: "failed"}
    with captured(width=200) as (screen, shown):
        show_steps(made.saved, screen=screen)
    assert "Step 1 skipped: skipped by the user" in shown.getvalue()
    assert "Step 2 skipped: it depends on a part that was not completed" in shown.getvalue()
    assert "Step 3 failed: GREEN was refused 1 time; the last reasons: no_change" in shown.getvalue()


@pytest.fixture
def begun(grounds: Grounds, tmp_path: Path) -> Work:
    """The first of two steps is completed."""

    def run(work: Work) -> None:
        executor = work.executor(ScriptedModel([writes("a.md", "a")]))
        with executor.running():
            executor.run_step(executor.step(1))

    return grounds.make("begun", plan((1, "First", "none"), (2, "Second", "1")), run).copy(tmp_path / "project")


def test_09_a_run_that_is_left_half_way_is_in_progress(begun: Work) -> None:
    assert (begun.saved.status, begun.saved.completed_at) == (Status.IN_PROGRESS, None)


def test_10_a_damaged_state_is_refused_and_left_as_it_is(completed: Work) -> None:
    made = completed
    for damage in (b"", b"{", b'{"schema": 1, "ticket_slug": "sale"', b"null", b"[]"):
        made.ticket.state_path.write_bytes(damage)
        with pytest.raises(DocumentError):
            made.executor()
        assert made.ticket.state_path.read_bytes() == damage


def test_11_the_state_is_replaced_whole_and_steps_are_known_by_what_they_are(begun: Work) -> None:
    made = begun
    before = made.ticket.state_path.stat().st_ino
    made.ticket.plan_path.write_text(plan((1, "New", "none"), (2, "First", "1"), (3, "Second", "2")))
    moved = made.executor().state
    assert {number: step.status for number, step in moved.step_executions.items()} == {
        1: "pending",
        2: "completed",
        3: "pending",
    }
    save_state(made.ticket.state_path, moved)
    assert made.ticket.state_path.stat().st_ino != before
    assert "write_atomic" in save_state.__code__.co_names
    assert write_atomic.__module__ == "cdd_agent.storage"


def test_12_a_later_dependency_is_run_first_and_a_cycle_is_told_at_once(chained: Work) -> None:
    made = chained
    assert made.project.log[1:] == ["docs: Second", "docs: Third", "docs: First"]
    made.ticket.plan_path.write_text(plan((1, "First", "2"), (2, "Second", "1")))
    with pytest.raises(DocumentError, match=r"wait for each other|cycle"):
        made.executor()


def test_13_the_spec_keeps_its_comments_and_the_keys_that_nobody_knows() -> None:
    text = SPEC + "priority: high  # ask Ada\n# the end\n"
    assert spec.update(text, {"status": "done"}, path="spec.yaml") == text.replace("refined", "done")


@pytest.mark.parametrize("kind", spec.TYPES)
def test_14_every_template_is_a_valid_spec(tmp_path: Path, kind: str) -> None:
    made = create(tmp_path, "a", title="A", type=kind)
    assert spec.load(made.spec_path).type == kind


def test_15_a_long_conversation_goes_on_from_a_summary_by_itself() -> None:
    percent = Settings().compact_at_percent
    assert needs_compaction(900_000, "claude-opus-5-5", percent=percent)
    assert not needs_compaction(1_000, "claude-opus-5-5", percent=percent)
    long = Conversation("You are Socrates.")
    long.say("We decided on a dot as the separator. " * 200)
    short = compact(long, model=ScriptedModel([says("Separator: a dot.")]), emit=lambda _: None, agent="socrates")
    assert "Separator: a dot." in f"{short.messages}"
    assert len(f"{short.messages}") < len(f"{long.messages}") / 5


@pytest.mark.slow
def test_16_ctrl_c_ends_the_attempt_at_once_and_the_step_goes_on(work: MakeWork, project: Project) -> None:
    made = work(FEATURE)
    half = replace(says(call("Write", file_path=TEST_FILE, content=TEST)))
    executor = made.executor(ScriptedModel([half, KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt), executor.running():
        executor.run_all()
    assert (made.statuses, project.status) == ({1: "in_progress"}, "")
    run_all(made, red(), green())
    assert made.statuses == {1: "completed"}
    package = Path(cdd_agent.__file__).parent
    folders = ("agent", "model", "tdd", "testrun", "workflows")  # a prompt may wait; a call of the model blocks nothing
    theirs = ("answers.py", "inert.py", "values.py")  # call and imitate a project's own async code
    paths = [path for folder in folders for path in (package / folder).rglob("*.py") if path.name not in theirs]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(source) for source in sources if "async" in source]
    assert sources
    assert not [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
