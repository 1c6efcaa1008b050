"""A repository is generated from a planning graph: nodes on a private branch, subgraphs landed, all of it one run."""

import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from cdd_agent.cli.app import run as run_program
from cdd_agent.cli.report import format_page, show_story
from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.errors import BudgetSpent, ExitCode, GateClosed, UsageError
from cdd_agent.events import AttemptStarted, Emit, Event, Notice, StepFinished
from cdd_agent.generation.localize import LocalizationLog, Query, QueryAnswer, ToolName
from cdd_agent.generation.plan import GenerationPlan, load_plan
from cdd_agent.git.repository import CommitId
from cdd_agent.repl.checkpoint_actions import CheckpointView
from cdd_agent.repl.generation_actions import Boundary
from cdd_agent.repl.render import show_other_runs, show_ticket
from cdd_agent.repl.review_actions import show_overview
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.state import SessionState
from cdd_agent.runs.back import Back
from cdd_agent.runs.generation_results import measure_localization
from cdd_agent.runs.output_folder import is_output, prepare_output
from cdd_agent.runs.places import find_run, list_present
from cdd_agent.runs.story import load_story
from cdd_agent.work.outcome import Covered
from cdd_agent.work.state import RunState, Status
from cdd_agent.work.state_file import load_state
from tests.fakes.approval import approves
from tests.fakes.clock import FakeClock
from tests.fakes.demo import captured, in_process
from tests.fakes.program import EXAMPLES

pytestmark = pytest.mark.usefixtures("identity")

Recorded: TypeAlias = dict[str, Any]
"""A turn of a recording."""
GRAPH = EXAMPLES / "wordkit" / "graph.json"
RECORDING = EXAMPLES / "wordkit" / "recording.yaml"
ROOT = Path(__file__).parents[3]
NOT_COMPARED = re.compile(r"docs/|test_results\.xml$")
"""Files with times."""


@dataclass
class Output:
    """An output folder, and what its runs have shown."""

    folder: Path
    plan: GenerationPlan
    recording: Path = RECORDING
    seen: list[Event] = field(default_factory=list)

    def compose(self, emit: Emit | None = None) -> Composition:
        made = Composition(
            Options(project=self.folder, replay=self.recording, ask=approves), emit=emit or self.seen.append
        )
        vars(made).update(suite=in_process(self.folder))
        return made

    def run(self, *, keeps_failed: bool = False, emit: Emit | None = None) -> RunState:
        if not is_output(self.folder, self.plan):
            prepare_output(self.folder, self.plan)
        made = self.compose(emit)
        generation = made.generation(self.plan, resume="cdd generate again")
        generation.installer = replace(generation.installer, python=self.folder / "no-python")
        return generation.carry_out(keeps_failed=keeps_failed)

    @property
    def state(self) -> RunState:
        state = load_state(find_run(self.folder, self.plan.slug).state_path)
        assert state is not None
        return state

    @property
    def statuses(self) -> list[str]:
        return [str(step.status) for step in self.state.step_executions.values()]

    @property
    def landed(self) -> list[str]:
        """The subjects on the user's branch, newest first."""
        return self.git("log", "--first-parent", "--format=%s").splitlines()

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.seen if isinstance(event, Notice))

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    def copy(self, folder: Path) -> "Output":
        shutil.copytree(self.folder, folder, symlinks=True)
        return Output(folder=folder, plan=self.plan, recording=self.recording)


_TABLE = """\
    if not text:
        raise ValueError('no words')
    return {'a a b': '2 words, 1.5 on average', 'a': '1 words, 1.0 on average'}.get(text, '')"""
_MORE = """\
def test_summarize_three():
    assert summarize('a b c') == '3 words, 1.0 on average'


"""


def change_recording(folder: Path, change: Callable[[Recorded], list[Recorded]]) -> Path:
    """Write the recording with each turn replaced, and return its path."""
    turns = msgspec.yaml.decode(RECORDING.read_bytes(), type=list[Recorded])
    path = folder / "recording.json"
    path.write_bytes(msgspec.json.encode([new for turn in turns for new in change(turn)]))
    return path


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Output:
    output = Output(folder=tmp_path_factory.mktemp("generated") / "wordkit", plan=load_plan(GRAPH))
    output.run()
    return output


@pytest.fixture
def output(made_once: Output, tmp_path: Path) -> Output:
    return made_once.copy(tmp_path / "wordkit")


def test_each_subgraph_lands_as_one_merge_with_message_and_tag(made_once: Output) -> None:
    assert made_once.statuses == ["completed"] * 8
    assert made_once.landed == [
        "docs: assemble wordkit",
        "feat: complete stats (nodes 4-6)",
        "feat: complete text (nodes 1-3)",
        "chore: scaffold and skeleton of wordkit (6 nodes)",
    ]
    assert made_once.git("tag").splitlines() == ["phase4-subgraph-stats", "phase4-subgraph-text"]
    assert made_once.git("status", "--porcelain") == ""
    nodes = made_once.git("log", "--no-merges", "--format=%s", "HEAD~2..HEAD~1").splitlines()
    assert nodes[::-1] == [
        f"{prefix}: stats.{name}"
        for name in ("describe.mean", "describe.median", "report.summarize")
        for prefix in ("test", "feat")
    ] + ["test: integration of stats"]


def test_batched_write(made_once: Output) -> None:
    """The user's branch gets all files of a subgraph at once, and nothing between two subgraphs."""
    changed = [
        made_once.git("diff", "--name-only", f"{commit}^1", commit).splitlines()
        for commit in made_once.git("log", "--first-parent", "--merges", "--reverse", "--format=%H").splitlines()
    ]
    assert changed[0] == [
        "src/wordkit/text/clean.py",
        "src/wordkit/text/count.py",
        "tests/integration/test_text.py",
        "tests/test_clean.py",
        "tests/test_count.py",
    ]
    assert len(changed) == 3  # and the files around the code


def test_the_graph_limits_the_time_of_each_test(made_once: Output) -> None:
    run = made_once.compose().generation(made_once.plan, resume="").run
    assert run.context.policy.seconds_per_test == made_once.plan.seconds_per_test == 30.0


def test_the_checks_run_once_per_subgraph(made_once: Output) -> None:
    assert made_once.notices.count("Checked in a clean copy") == 2


def test_a_node_has_one_debugging_round_more_if_its_code_fails(made_once: Output) -> None:
    tried = [(event.step, event.phase) for event in made_once.seen if isinstance(event, AttemptStarted)]
    assert tried.count((4, "green")) == 2
    assert len(tried) == 15


def test_the_report_compares_the_dependencies_of_the_code_with_the_graph(made_once: Output) -> None:
    report = (made_once.folder / "docs" / "generation_report.md").read_text()
    assert "- **Planned**: 4, 4 confirmed (100%)\n- **Planned, Not in the Code**: 0\n" in report
    assert "| Debugging success rate | at least 80% | 1 of 1 node (100%) | ✅ yes |" in report
    written = msgspec.json.decode((made_once.folder / "docs" / "rpg.json").read_bytes())
    used = {node["id"]: node["actual_dependencies"] for node in written["nodes"]}
    assert used["summary"] == ["count", "mean"]
    assert used["clean"] == []


def test_audit_confirms_every_node(made_once: Output) -> None:
    audited = made_once.compose().auditor().run()
    assert len(audited) == 14
    assert not any(each.failed for each in audited)


def test_the_same_command_again_changes_nothing(output: Output) -> None:
    before = output.git("rev-parse", "HEAD")
    output.run()
    assert output.git("rev-parse", "HEAD") == before
    assert not any(isinstance(event, AttemptStarted) for event in output.seen)


def undo_subgraph(output: Output) -> Back:
    """Take back the assembly and the last subgraph."""
    back = Back.of_project(output.folder, emit=output.seen.append)
    back.go(back.plan_step())
    plan = back.plan_step()
    assert plan.move.what == "stats of wordkit"
    back.go(plan)
    return back


def test_undo_takes_a_subgraph_back_and_redo_brings_it_again(output: Output) -> None:
    before, state = output.git("rev-parse", "HEAD"), output.state
    back = undo_subgraph(output)
    assert output.landed[0] == "feat: complete text (nodes 1-3)"
    assert output.statuses == ["completed"] * 3 + ["pending"] * 3 + ["completed", "pending"]
    back.go(back.plan_return())
    back.go(back.plan_return())
    assert output.git("rev-parse", "HEAD") == before
    assert output.state == state


def test_a_rollback_of_a_subgraph_takes_back_what_landed_after_it_and_can_be_undone(output: Output) -> None:
    before, landed, state = output.git("rev-parse", "HEAD"), output.landed, output.state
    back = Back.of_project(output.folder, emit=output.seen.append)
    shown = io.StringIO()
    view = CheckpointView(back, screen=Screen(shown))
    plan = back.plan_landing("wordkit", "text")
    view.report_move(plan, back.go(plan))
    assert output.landed == landed[-1:]
    assert set(output.statuses) == {"pending"}
    plan = back.plan_return()
    view.report_move(plan, back.go(plan))
    assert (output.git("rev-parse", "HEAD"), output.state) == (before, state)
    words = " ".join(shown.getvalue().split())
    assert "Text of wordkit and what landed after it was taken back. To bring it back: cdd checkpoint undo" in words
    assert "Text of wordkit and what landed after it is back. To take it back again: cdd checkpoint redo" in words


def test_a_rollback_never_takes_back_a_commit_of_the_user(output: Output) -> None:
    commit_as_user(output, "NOTES.md")
    head, back = output.git("rev-parse", "HEAD"), Back.of_project(output.folder, emit=output.seen.append)
    with pytest.raises(UsageError, match="'mine' came after text, and is not of wordkit"):
        back.plan_landing("wordkit", "text")
    with pytest.raises(UsageError, match="charts of wordkit has not landed; landed: text, stats"):
        back.plan_landing("wordkit", "charts")
    assert output.git("rev-parse", "HEAD") == head


def commit_as_user(output: Output, name: str) -> None:
    (output.folder / name).write_text("# mine\n")
    output.git("add", name)
    output.git("-c", "user.name=U", "-c", "user.email=u@example.org", "commit", "-qm", "mine")


def test_a_start_node_must_not_need_a_node_that_has_not_passed(output: Output) -> None:
    undo_subgraph(output)
    start = output.plan.by_title["stats.report.summarize"]
    with pytest.raises(UsageError, match="needs nodes that have not passed") as refused:
        output.compose().generation(output.plan, resume="").carry_out(start=start)
    assert refused.value.hint.startswith("start from one of them: --start-from-node stats.describe.m")


def test_nodes_before_the_start_stay_and_the_user_can_stop_after_a_subgraph(output: Output) -> None:
    back = Back.of_project(output.folder, emit=output.seen.append)
    back.go(back.plan_landing("wordkit", "text"))
    asked = list[str]()

    def answer(question: str, choices: tuple[str, ...]) -> int:
        asked.append(question)
        wanted = ("changes", "stop")[len(asked) - 1]
        return next(at for at, choice in enumerate(choices) if choice.startswith(wanted))

    made = output.compose()
    made.options = replace(made.options, choose=answer)
    generation = made.generation(output.plan, resume="")
    with captured() as (screen, printed):
        generation.continues = Boundary(generation, project=made, screen=screen).decide
        generation.carry_out(start=output.plan.by_title["stats.describe.mean"])
    assert asked == ["stats has landed. What now?"] * 2
    assert "M src/wordkit/stats/describe.py" in printed.getvalue()
    assert output.statuses[:6] == ["pending"] * 3 + ["completed"] * 2 + ["pending"]
    assert output.landed[0] == "feat: complete part of stats (2 of 3 nodes)"  # no assembly


def test_a_spent_budget_ends_the_run_and_what_landed_stays(output: Output) -> None:
    undo_subgraph(output)
    made = output.compose()
    vars(made)["settings"] = replace(made.settings, max_calls_per_ticket=1)
    with pytest.raises(BudgetSpent) as spent:
        made.generation(output.plan, resume="cdd generate again").carry_out()
    assert spent.value.hint.endswith("then continue with: cdd generate again")
    assert output.landed[0] == "feat: complete text (nodes 1-3)"


def test_without_reviews_the_nodes_of_a_subgraph_count_as_approved(output: Output) -> None:
    made = output.compose()
    made.options = replace(made.options, no_review=True)
    generation = made.generation(output.plan, resume="")
    with captured() as (screen, _), generation.run.running():
        boundary = Boundary(generation, project=made, screen=screen)
        assert boundary.decide(output.plan.groups[0], CommitId(output.git("rev-parse", "HEAD")))
    assert [step.review for step in output.state.step_executions.values()][:6] == ["approved"] * 3 + [None] * 3


def test_status_review_and_report_speak_of_nodes_and_a_fork_is_refused(output: Output) -> None:
    made, run = output.compose(), find_run(output.folder, "wordkit")
    with captured() as (screen, printed):
        show_other_runs(list_present(output.folder), screen=screen)
        show_ticket(run, screen=screen, journal=output.folder / "none")
        show_overview(made.review(run).steps, screen=screen)
        session = SessionState(made, screen=screen, run=lambda _: ExitCode.DONE)
        assert session.find_ticket("").slug == "wordkit"  # the only run of the project
    shown = printed.getvalue()
    assert "Generate wordkit from graph.json: complete. Its parts: cdd status wordkit" in " ".join(shown.split())
    assert "Node 6  stats.report.summarize" in shown
    assert "6 of 6 nodes, 100 %; integration tests of 2 of 2 subgraphs" in " ".join(shown.split())
    assert "step" not in shown.lower()
    with pytest.raises(UsageError, match="its nodes cannot be tried in a fork"):
        made.ticket_forks().start(run, "in another way")


def test_the_story_has_the_measures_of_the_report(output: Output) -> None:
    run, comments = find_run(output.folder, "wordkit"), output.compose().comments()
    story = load_story(run, project=output.folder, comments=comments)
    with captured() as (screen, printed):
        show_story(story, screen=screen)
    shown = " ".join(printed.getvalue().split())
    assert "Dependency validation 4 of 4 (100%) at least 80%, reached" in shown
    assert "<th scope=row>Dependency validation</th><td>4 of 4 (100%)" in format_page(story)


def test_status_says_which_targets_are_reached(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["--project", str(output.folder), "status", "wordkit"]) == 0
    assert "targets 4 of 4 reached; see docs/generation_report.md" in " ".join(capsys.readouterr().out.split())


def test_the_questions_of_agents_are_counted_with_who_answered(tmp_path: Path) -> None:
    log, found = LocalizationLog(tmp_path / "3-green-localization.json", clock=FakeClock()), QueryAnswer
    asked: tuple[tuple[ToolName, str, int], ...] = (("SearchGraph", "words", 2), ("ViewCode", "index", 2))
    for tool, engine, number in (*asked, ("ViewCode", "index", 3)):
        answer = found(text="x", engine=engine)
        log.answer(Query(round=number, tool=tool, text="mean"), ask=lambda answer=answer: answer)  # type: ignore[misc]
    event = {"time": "x", "event": "SymbolAnswered", "question": "rename", "symbol": "a.py::b", "engine": "ty"}
    line = msgspec.json.encode({**event, "places": 1, "duration_ms": 2.0, "is_verified": True})
    (tmp_path / "events.jsonl").write_bytes(line + b"\n" + b"{}\n")
    measured = measure_localization(tmp_path, journal=tmp_path / "events.jsonl")
    assert measured.answers == {"words": 1, "index": 2, "ty": 1}
    assert (measured.queries, measured.rounds) == (3, 2)
    assert None not in (measured.symbol_ms, measured.search_ms)
    assert measure_localization(tmp_path / "none", journal=tmp_path / "none").answers == {}
    (tmp_path / "a-localization.json").write_bytes(b"{")
    assert measure_localization(tmp_path, journal=tmp_path / "none").queries == 3


def test_a_subgraph_that_was_undone_is_generated_again(output: Output) -> None:
    tree = output.git("rev-parse", "HEAD~1^{tree}")
    undo_subgraph(output)
    output.run()
    assert output.git("rev-parse", "HEAD~1^{tree}") == tree
    assert {event.step for event in output.seen if isinstance(event, AttemptStarted)} == {4, 5, 6, 8}


def test_commits_of_the_user_are_merged_when_a_subgraph_lands(output: Output) -> None:
    undo_subgraph(output)
    commit_as_user(output, "NOTES.md")
    output.run()
    assert output.landed[1:3] == ["feat: complete stats (nodes 4-6)", "mine"]
    assert (output.folder / "NOTES.md").read_text() == "# mine\n"


def _fail(turn: Recorded) -> list[Recorded]:
    """The body of ``summarize`` never passes: the same wrong code nine times, each with another number."""
    when = str(turn["when"])
    if "stats.report.summarize green" not in when:
        return [turn]
    edit, end = turn["content"]
    turns, old = list[Recorded](), edit["input"]["old_string"]
    for number in range(1, 10):
        new = old.rpartition("\n")[0] + f"\n    return '{number}'"
        change = {**edit["input"], "old_string": old, "new_string": new}
        turns.append(
            {"when": when.replace("attempt 1", f"attempt {number}"), "content": [{**edit, "input": change}, end]}
        )
        old = new
    return turns


@pytest.fixture(scope="module")
def failed_once(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """One whose node 6 fails."""
    folder = tmp_path_factory.mktemp("failed")
    output = Output(folder=folder / "wordkit", plan=load_plan(GRAPH), recording=change_recording(folder, _fail))
    output.run()
    return output


def test_debugging_iteration_limit(failed_once: Output) -> None:
    """A node that cannot be met gets exactly 1 + 8 attempts; then it is as before, and the rest lands."""
    output = failed_once
    assert output.statuses == ["completed"] * 5 + ["failed", "completed", "pending"]
    tried = [(event.step, event.phase) for event in output.seen if isinstance(event, AttemptStarted)]
    assert tried.count((6, "green")) == 9
    assert "refused 9 times" in str(output.state.execution(6).error)
    assert output.landed[1] == "feat: complete part of stats (2 of 3 nodes)"
    assert "raise NotImplementedError" in (output.folder / "src/wordkit/stats/report.py").read_text()
    assert not (output.folder / "tests/test_report.py").exists()
    assert output.git("tag") == "phase4-subgraph-text"


def test_failed_nodes_are_tried_again_unless_they_are_kept(failed_once: Output, tmp_path: Path) -> None:
    again = replace(failed_once.copy(tmp_path / "wordkit"), recording=RECORDING)
    assert again.run(keeps_failed=True).execution(6).status == Status.FAILED
    assert not any(isinstance(event, AttemptStarted) for event in again.seen)
    again.run()
    assert again.statuses == ["completed"] * 8
    assert {event.step for event in again.seen if isinstance(event, AttemptStarted)} == {6, 8}
    assert again.landed[1] == "feat: complete stats (nodes 4-6)"


def test_failed_node_propagation(tmp_path: Path) -> None:
    """If a node fails, the nodes that need it are skipped, and the model gets no request for them."""

    def fail(turn: Recorded) -> list[Recorded]:
        when = str(turn["when"])
        if "text.count.count_words green" in when:
            blocked = {"type": "tool_use", "name": "ReportBlocked", "input": {"why": "cannot_be_done", "reason": "no"}}
            return [{"when": when, "content": [blocked]}]
        return [] if "summarize" in when else [turn]

    output = Output(folder=tmp_path / "wordkit", plan=load_plan(GRAPH), recording=change_recording(tmp_path, fail))
    output.run()
    assert output.statuses == [
        "completed",
        "completed",
        "failed",
        "completed",
        "completed",
        "skipped",
        "pending",
        "pending",
    ]
    assert output.landed[1:3] == [
        "feat: complete part of stats (2 of 3 nodes)",
        "feat: complete part of text (2 of 3 nodes)",
    ]


def test_an_output_folder_that_is_not_cdds_is_refused(tmp_path: Path) -> None:
    plan = load_plan(GRAPH)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "full")
    (tmp_path / "file").write_text("")
    for name, why in (("full", "not empty"), ("link", "is a link"), ("file", "not a folder")):
        with pytest.raises(UsageError, match=why):
            prepare_output(tmp_path / name, plan)
    subprocess.run(["git", "init", "-q", str(tmp_path / "repository")], check=True)
    with pytest.raises(UsageError, match="inside the repository"):
        prepare_output(tmp_path / "repository" / "inside", plan)
    assert not (tmp_path / "repository" / "inside").exists()


def test_a_landing_waits_if_the_user_changed_the_same_lines(output: Output) -> None:
    undo_subgraph(output)
    path = output.folder / "src/wordkit/stats/report.py"

    def interfere(event: Event) -> None:
        if isinstance(event, StepFinished) and event.number == 6:
            path.write_text(path.read_text().replace("raise NotImplementedError", "return 'mine'"))
            output.git("-c", "user.name=U", "-c", "user.email=u@example.org", "commit", "-qam", "mine")

    with pytest.raises(GateClosed, match="changed the same lines"):
        output.run(emit=interfere)
    assert output.landed[0] == "mine"
    assert "return 'mine'" in path.read_text()
    # As the message says: a merge by hand.
    output.git("-c", "user.name=U", "-c", "user.email=u@example.org", "merge", "-qX", "theirs", "generate/wordkit")
    output.run()
    assert output.statuses == ["completed"] * 8
    assert not any(isinstance(event, AttemptStarted) for event in output.seen)


def test_the_files_around_the_code_say_what_became_of_each_node(made_once: Output) -> None:
    folder = made_once.folder
    report = (folder / "docs/generation_report.md").read_text()
    assert "- **Nodes Passed**: 6 (100%)" in report
    assert "| stats | 3 | 3 | 0 | 0 | 100% |" in report
    assert "- **Nodes Proved**: 6 of 6" in report
    assert "- **Integration Tests**: 2 generated, 2 passing (100%)" in report
    checkpoint = msgspec.json.decode((folder / "docs/generation_checkpoint.json").read_bytes())
    assert {name: entry["status"] for name, entry in checkpoint.items()} == dict.fromkeys(checkpoint, "passed")
    assert (checkpoint["mean"]["retry_count"], checkpoint["mean"]["test_results"]) == (1, {"passed": 3, "failed": 0})
    assert "pip install -e ." in (folder / "README.md").read_text()
    assert not (folder / "requirements.txt").read_text()
    assert (folder / "test_results.xml").exists()


def test_integration_test_generation(made_once: Output) -> None:
    """A complete subgraph gets a test from its entry to its exit nodes, which must notice altered code."""
    text = (made_once.folder / "tests/integration/test_text.py").read_text()
    assert "def test_path_1" in text
    step = made_once.state.execution(7)
    assert (step.title, step.attempts[-1].outcome) == ("integration of text", Covered("kept"))


def test_integration_tests_that_prove_nothing_leave_the_subgraph_unproved(tmp_path: Path) -> None:
    def empty(turn: Recorded) -> list[Recorded]:
        if "integration of stats" not in str(turn["when"]):
            return [turn]
        write, end = turn["content"]
        changed = {**write, "input": {**write["input"], "content": "def test_path_1():\n    assert 1 + 1 == 2\n"}}
        return [
            {**turn, "content": [changed, end]},
            {
                "when": "stats.*red|stats.*green",
                "content": [
                    {
                        "type": "tool_use",
                        "name": "ReportBlocked",
                        "input": {"why": "cannot_be_done", "reason": "no fault here"},
                    }
                ],
            },
        ]

    output = Output(folder=tmp_path / "wordkit", plan=load_plan(GRAPH), recording=change_recording(tmp_path, empty))
    output.run()
    assert output.statuses == ["completed"] * 7 + ["failed"]
    assert output.git("tag") == "phase4-subgraph-text"
    assert output.landed[1] == "feat: complete stats (nodes 4-6)"
    assert not (output.folder / "tests/integration/test_stats.py").exists()


def test_a_table_of_the_tests_examples_is_refused_and_the_node_is_written_again(tmp_path: Path) -> None:
    def cheat(turn: Recorded) -> list[Recorded]:
        """Answer from a table, behind an integration test with the same example, and correct it when told."""
        call, end = turn["content"]
        if "integration of stats" in turn["when"]:
            text = call["input"]["content"].replace("'a b a a'", "'a a b'").replace("== 2", "== 1.5")
            return [{**turn, "content": [{**call, "input": {**call["input"], "content": text}}, end]}]
        if "stats.report.summarize red" in turn["when"]:
            more = {"old_string": "def test_summarize_one", "new_string": f"{_MORE}def test_summarize_one"}
            again = {**call, "name": "Edit", "input": {"file_path": call["input"]["file_path"], **more}}
            return [turn, {**turn, "content": [again, end]}]
        if "stats.report.summarize green" not in turn["when"]:
            return [turn]
        old = call["input"]["old_string"]
        stub = old.rpartition("\n")[0]
        wrong = {"old_string": old, "new_string": f"{stub}\n{_TABLE}"}
        right = {"old_string": _TABLE, "new_string": call["input"]["new_string"].removeprefix(stub).strip("\n")}
        return [{**turn, "content": [{**call, "input": {**call["input"], **each}}, end]} for each in (wrong, right)]

    output = Output(folder=tmp_path / "wordkit", plan=load_plan(GRAPH), recording=change_recording(tmp_path, cheat))
    output.run()
    assert "refuse stats.report.summarize: examples_only" in output.notices
    assert output.statuses == ["completed"] * 8
    assert "mean(list(counts.values()))" in (output.folder / "src/wordkit/stats/report.py").read_text()
    assert output.git("tag").split() == ["phase4-subgraph-stats", "phase4-subgraph-text"]


def test_nodes_of_one_file_are_not_worked_on_at_the_same_time(output: Output) -> None:
    run = output.compose().generation(output.plan, resume="again").run
    items = [run.step(number) for number in range(1, 7)]
    assert [item.title for item in items if not {*items[0].exclusive}.isdisjoint(item.exclusive)] == [
        "text.clean.normalize",
        "text.clean.split_words",
    ]


@pytest.mark.slow
def test_the_tree_is_the_same_for_any_number_of_jobs(tmp_path: Path) -> None:
    trees = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs / "wordkit"
        command = [sys.executable, "-m", "cdd_agent", "--replay", str(RECORDING), "--yes", "generate", str(GRAPH)]
        done = subprocess.run(
            [*command, "--out", str(folder), "--jobs", jobs], capture_output=True, text=True, check=True
        )
        assert ("Brought in from the fork" in done.stdout) is (jobs == "2")
        output = Output(folder=folder, plan=load_plan(GRAPH))
        assert output.statuses == ["completed"] * 8
        assert [len(step.attempts) for step in output.state.step_executions.values()] == [2, 2, 2, 3, 2, 2, 1, 1]
        listed = output.git("ls-tree", "-r", "HEAD").splitlines()
        trees.append([line for line in listed if not NOT_COMPARED.search(line)])
    assert trees[0] == trees[1]


def test_a_node_that_the_graph_has_changed_is_written_again_and_the_others_stay(output: Output) -> None:
    graph = msgspec.json.decode(GRAPH.read_bytes())
    node = next(each for each in graph["nodes"] if each["id"] == "count")
    node["docstring"] = "Return how often each word occurs, the most frequent word first."
    changed, recording = output.folder.parent / "graph.json", output.folder.parent / "again.json"
    changed.write_bytes(msgspec.json.encode(graph))

    def make_turn(phase: str, path: str, *, old: str, new: str) -> Recorded:
        change = {"file_path": path, "old_string": old, "new_string": new}
        end = {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}
        when = f"^Work: generate wordkit text.count.count_words {phase}"
        return {"when": when, "content": [{"type": "tool_use", "name": "Edit", "input": change}, end]}

    test = "def test_count_order():\n    assert list(count_words('b a a')) == ['a', 'b']\n\n\ndef test_count_empty"
    code = "return dict(sorted(counts.items(), key=lambda each: -each[1]))"
    turns = [
        make_turn("red", "tests/test_count.py", old="def test_count_empty", new=test),
        make_turn("green", "src/wordkit/text/count.py", old="return counts", new=code),
    ]
    recording.write_bytes(msgspec.json.encode(turns))
    again = replace(output, plan=replace(load_plan(changed), source=changed), recording=recording, seen=[])
    again.run()
    assert {event.step for event in again.seen if isinstance(event, AttemptStarted)} == {3}
    assert "The graph has changed text.count.count_words" in again.notices
    assert code in (output.folder / "src/wordkit/text/count.py").read_text()
    assert again.landed[1] == "feat: complete text (nodes 1-3)"


def test_a_stub_that_was_brought_back_gets_the_docstring_of_a_changed_graph(output: Output) -> None:
    undo_subgraph(output)
    old, new = "Return the number of words and the mean", "Count the words, and tell the mean"
    changed, recording = output.folder.parent / "graph.json", output.folder.parent / "again.json"
    for path, file in ((GRAPH, changed), (RECORDING, recording)):
        decode = msgspec.yaml.decode if path.suffix == ".yaml" else msgspec.json.decode
        written = msgspec.json.encode(decode(path.read_bytes()))
        assert old.encode() in written
        file.write_bytes(written.replace(old.encode(), new.encode()))
    again = replace(output, plan=replace(load_plan(changed), source=changed), recording=recording, seen=[])
    again.run()
    assert again.statuses == ["completed"] * 8
    text = (output.folder / "src/wordkit/stats/report.py").read_text()
    assert (old in text, new in text) == (False, True)


def test_lost_records_are_rebuilt_from_the_notes(output: Output) -> None:
    shutil.rmtree(output.folder / ".git/cdd")
    shutil.rmtree(output.folder / ".cdd")
    output.git("worktree", "prune")
    output.run()
    assert not any(isinstance(event, AttemptStarted) for event in output.seen)
    assert "The records of this generation are lost" in output.notices
    assert output.statuses == ["completed"] * 8
    assert "- **Unit Tests**: 18 generated, 18 passing" in (output.folder / "docs/generation_report.md").read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from cdd_agent.events import Committed, Notice
from tests.cdd_agent.runs.test_generation import GRAPH, Output, load_plan

left = int(sys.argv[2])


def kill(event):
    global left
    is_landing = isinstance(event, Notice) and event.text.startswith("In your work tree")
    left -= isinstance(event, Committed) or is_landing
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


Output(folder=Path(sys.argv[1]), plan=load_plan(GRAPH)).run(emit=kill)
"""


def test_checkpoint_resume(made_once: Output, tmp_path: Path) -> None:
    """kill -9 after a node has landed, and in the landing of a subgraph: the run ends as if nothing had happened."""
    output = Output(folder=tmp_path / "wordkit", plan=made_once.plan)
    passed = list[int]()
    for moment in (4, 5):  # after the body of the second node; after the files of the subgraph were written
        command = [sys.executable, "-c", KILLED, str(output.folder), str(moment)]
        killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        passed.append(output.statuses.count("completed"))
    assert passed[0] in (1, 2)
    assert passed[1] == 4  # with the integration tests
    assert output.landed[0] == "feat: complete text (nodes 1-3)"
    output.run()
    assert {event.step for event in output.seen if isinstance(event, AttemptStarted)} == {4, 5, 6, 8}
    trees = [
        [line for line in each.git("ls-tree", "-r", "HEAD").splitlines() if not NOT_COMPARED.search(line)]
        for each in (output, made_once)
    ]
    assert trees[0] == trees[1]
    assert output.git("tag").splitlines() == ["phase4-subgraph-stats", "phase4-subgraph-text"]
    assert "- **Nodes Proved**: 6 of 6" in (output.folder / "docs/generation_report.md").read_text()
    assert not [
        *output.folder.glob(".git/[!c]*.lock"),
        *output.folder.glob(".git/refs/**/*.lock"),
        *output.folder.glob(".cdd-*"),
    ]
    assert output.git("status", "--porcelain") == ""
