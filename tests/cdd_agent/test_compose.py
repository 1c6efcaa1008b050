import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.config.settings import Settings
from cdd_agent.config.trust import NotApproved
from cdd_agent.errors import BudgetSpent, UsageError
from cdd_agent.events import Event, Notice, TurnEnded
from cdd_agent.model.conversation import Request, Text, UserMessage
from cdd_agent.runs import request as requests
from cdd_agent.runs.feature import Feature, make_feature
from cdd_agent.runs.request import Wanted, resolve_targets
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.index import Index
from cdd_agent.tickets.ticket import create
from cdd_agent.work.journal import Journal
from cdd_agent.work.records import find_records
from cdd_agent.work.state import RunState, StepKey, Usage, pending_steps
from cdd_agent.work.state_file import save_state
from tests.cdd_agent.testrun.test_project_detection import lay
from tests.fakes.approval import Answers, approves, users_folder
from tests.fakes.clock import FakeClock
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project

HI = Request(system="", messages=(UserMessage(content=(Text(text="hi"),)),))
TURN = "- content: [Well.]\n  usage: {input_tokens: 300, output_tokens: 100}\n"


def composed(tmp_path: Path, *, config: str = "", model: str | None = None, replay: bool = False) -> Composition:
    """A project with these settings, beside a recording of the same answer again and again."""
    project, recording = tmp_path / "project", tmp_path / "recording.yaml"
    (project / ".cdd").mkdir(parents=True, exist_ok=True)
    (project / ".cdd" / "config.yaml").write_text(config)
    recording.write_text(TURN * 9)
    options = Options(project=project, model=model, replay=recording if replay else None, ask=approves)
    return Composition(options, emit=lambda _: None, environment=users_folder(tmp_path))


def told(composition: Composition) -> list[Event]:
    """What is told when the model is chosen, and used again."""
    seen: list[Event] = []
    composition.emit = seen.append
    assert composition.model is composition.model
    return seen


def test_a_model_whose_price_is_not_known_is_told_of_once(tmp_path: Path) -> None:
    (notice,) = told(composed(tmp_path, model="home-grown"))
    assert isinstance(notice, Notice)
    assert notice.text.startswith("The price of home-grown is not known, so max_usd_per_step and max_usd_per_ticket")


def test_a_setting_without_effect_is_reported_once(tmp_path: Path) -> None:
    composition = composed(tmp_path, config="run_tree: false\n")
    seen: list[Event] = []
    composition.emit = seen.append
    assert composition.settings == composition.settings
    composition.use_model("home-grown")
    assert composition.settings.model == "home-grown"
    (notice,) = seen
    assert isinstance(notice, Notice)
    assert "`run_tree: false` in .cdd/config.yaml has no effect any more" in notice.text


def test_a_notice_is_shown_once_a_day_and_project(tmp_path: Path) -> None:
    first, again, other = composed(tmp_path), composed(tmp_path), composed(tmp_path / "other")
    tomorrow, clock = composed(tmp_path), FakeClock()
    other.environment = first.environment
    clock.sleep(24 * 3600)
    seen: list[Event] = []
    for project in (first, again, other, tomorrow):
        project.emit, project.clock = seen.append, clock if project is tomorrow else FakeClock()
        project.notify_once_a_day("Sandbox landlock.")
    again.notify_once_a_day("Another one.")
    texts = [event.text for event in seen if isinstance(event, Notice)]
    assert texts == ["Sandbox landlock."] * 3 + ["Another one."]


@pytest.mark.parametrize(
    ("config", "model", "replay"),
    [
        ("", None, False),
        ("", "claude-sonnet-5-5-20261101", False),
        ("max_usd_per_step: 0\nmax_usd_per_ticket: 0\n", "home-grown", False),
        ("", "home-grown", True),
    ],
    ids=["known", "dated", "no limit of dollars", "a recording"],
)
def test_nothing_is_told_where_no_limit_fails_to_hold(
    config: str, model: str | None, *, replay: bool, tmp_path: Path
) -> None:
    assert told(composed(tmp_path, config=config, model=model, replay=replay)) == []


def test_the_agents_of_a_ticket_share_its_limit_with_what_earlier_sittings_used(tmp_path: Path) -> None:
    composition = composed(tmp_path, config="max_tokens_per_ticket: 2300\n", replay=True)
    ticket = create(composition.root, "sale", title="A sale", type="feature")
    used = Usage(input_tokens=1000)
    save_state(ticket.state_path, RunState(ticket_slug="sale", started_at="t", usage=used))
    drafted = TurnEnded(
        agent="planner", text="", stop_reason="end_turn", input_tokens=500, output_tokens=0, cache_read_tokens=0
    )
    with closing(
        Journal(find_records(composition.root).folder / "journal" / "sale" / "events.jsonl", clock=FakeClock())
    ) as journal:
        journal.write(drafted)

    for command in ("spec", "plan"):
        composition.dialog(ticket, command=command).model.reply(HI, emit=lambda _: None)
    with pytest.raises(BudgetSpent, match=r"The ticket sale has used 2,300 tokens, and max_tokens_per_ticket is 2,300"):
        composition.dialog(ticket, command="spec").model.check()


def test_green_on_tests_of_a_folder_below_has_that_folder_as_its_project(tmp_path: Path) -> None:
    root = lay(tmp_path / "repository", {"services/a/go.mod": "module a\n", "services/a/cart_test.go": ""})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    allowed = ("./justfile", "services/a/../b.mk")
    options = Options(project=root, ask=approves, sandbox="none", attended=True, allow_files=allowed)
    seen: list[Event] = []
    composition = Composition(options, emit=seen.append, environment=users_folder(tmp_path))
    green = composition.green(resolve_targets(root, ["services/a/cart_test.go"]))
    assert green.context.project == root / "services" / "a"
    tree = green.context.workplace.tree.root
    # The names are those of the notice, from the top of the work tree, or relative to the project.
    assert {"justfile", "services/a/justfile", "services/b.mk"} < green.context.allowed
    assert green.context.suite.root == green.context.workspace.root == tree / "services" / "a"
    assert green.ticket.folder.is_relative_to(root / ".git" / "cdd" / "main" / "services%2Fa")
    told = [event.text for event in seen if isinstance(event, Notice)]
    assert f"These tests belong to {root}/services/a: using the settings of that project." in told


def test_what_waits_for_a_decision_in_a_folder_below_is_decided_about_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lay(tmp_path, {"a/go.mod": "module a\n", "a/cart_test.go": "", "a/.cdd/config.yaml": "model: a\n"})
    monkeypatch.chdir(root)
    composition = Composition(Options(project=root), emit=lambda _: None, environment=users_folder(tmp_path / "home"))
    with pytest.raises(NotApproved) as waits:
        composition.green(resolve_targets(root, ["a/cart_test.go"]))
    assert "in a terminal: cdd --project a trust;" in waits.value.hint
    assert "cdd --project a trust --digest" in waits.value.hint


@pytest.mark.parametrize(("edit_format", "is_told"), [("tools", False), ("blocks", True)])
def test_that_the_agents_of_tdd_work_with_tools_is_told_where_blocks_are_asked_for(
    tmp_path: Path, edit_format: str, *, is_told: bool
) -> None:
    composition = composed(tmp_path, config=f"edit_format: {edit_format}\n", replay=True)
    root = lay(composition.root, {"go.mod": "module a\n"})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    seen: list[Event] = []
    composition.emit = seen.append
    composition.orchestrator(Feature(slug="tdd-a", text="a", folder=find_records(root).folder / "runs" / "tdd-a"))
    told = [event.text for event in seen if isinstance(event, Notice)]
    text = "edit_format: blocks applies to cdd exec and cdd green; the agents of cdd tdd work with tools."
    assert (text in told) == is_told


def test_a_conversation_about_a_ticket_begins_as_the_last_one_did(tmp_path: Path) -> None:
    ticket = create(composed(tmp_path).root, "sale", title="A sale", type="feature")
    dialogs = [composed(tmp_path).dialog(ticket, command="spec") for _ in "ab"]
    first, second = (dialog.of("socrates", "sale").start() for dialog in dialogs)
    assert first.system == second.system
    assert first.system != dialogs[0].of("socrates", "other").start().system


def test_a_run_and_an_audit_wait_for_the_approval_of_a_list_of_ignored_files(tmp_path: Path) -> None:
    composition = composed(tmp_path)
    project = composition.root
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / ".cdd" / "worktree-include").write_text("/.env\n")
    user = Answers(False)
    composition.options = replace(composition.options, ask=user)
    assert composition.repository.read_included() == b"", "the user said no"
    assert composition.repository.read_included() == b""
    assert [offer.source for offer in user.asked] == [".cdd/worktree-include"]
    other = Composition(replace(composition.options, ask=None), emit=lambda _: None, environment={})
    other.environment = users_folder(tmp_path / "nobody")
    with pytest.raises(NotApproved, match="list of ignored files"):
        other.auditor()


def test_a_fork_of_a_run_whose_tests_are_not_committed_is_refused_before_anything_is_made(project: Project) -> None:
    composition = Composition(Options(project=project.folder, ask=approves), emit=lambda _: None)
    wanted = Wanted(targets=("tests/test_new.py::test_new", "tests/test_prices.py"))
    project.write({"tests/test_new.py": "def test_new():\n    assert False\n"})
    run, key = wanted.find_run(project.folder), StepKey(number=1, title="adds", text_sha256="")
    fields = {"targets": wanted.targets, "title": "new", "kind": "feature", "spec_id": "", "request_id": ""}
    requests.save(run, msgspec.convert({**fields, "failing": wanted.targets[:1]}, type=requests.GreenRequest))
    fresh = RunState(ticket_slug=run.slug, started_at="2026-01-31T12:00:00Z", step_executions=pending_steps((key,)))
    save_state(run.state_path, fresh)
    with pytest.raises(UsageError, match=r"does not have tests/test_new.py::test_new\.\nNothing was touched") as caught:
        composition.ticket_forks().start(run, "in another way")
    assert "git add -- tests/test_new.py && git commit" in caught.value.hint
    assert f"cdd green {' '.join(wanted.targets)}" in caught.value.hint
    assert composition.forks.list_all() == ()
    assert project.git("branch", "--format=%(refname:short)") == "main"
    project.git("add", "tests/test_new.py")
    project.git("commit", "-qm", "the test")
    assert composition.ticket_forks().start(run, "in another way")[0].ticket == run.slug


def test_a_run_without_a_ticket_continues_in_the_fork_to_which_the_user_has_switched(project: Project) -> None:
    seen: list[Event] = []
    composition = Composition(Options(project=project.folder, ask=approves), emit=seen.append)
    vars(composition).update(suite=project.suite, model=ScriptedModel([]))
    feature, wanted = make_feature(project.folder, "A sum"), Wanted(targets=("tests/test_prices.py",))
    feature.save()
    for run in (feature.ticket, wanted.find_run(project.folder)):
        key = StepKey(number=1, title="adds", text_sha256="")
        fresh = RunState(ticket_slug=run.slug, started_at="2026-01-31T12:00:00Z", step_executions=pending_steps((key,)))
        save_state(run.state_path, fresh)
        composition.ticket_forks().start(run, f"{run.slug} in another way")
    for made in (composition.orchestrator(feature), composition.green(wanted)):
        assert made.context.fork.startswith("fork-")
        assert made.ticket.state_path.exists()
        assert made.ticket.folder not in (feature.folder, wanted.find_run(project.folder).folder)
    assert sum("Working in the fork" in event.text for event in seen if isinstance(event, Notice)) == 2


@pytest.mark.parametrize(
    ("order", "names"), [("auto", ["ty", "Serena"]), ("serena", ["Serena", "ty"]), ("ty", ["ty"]), ("index", [])]
)
def test_the_settings_decide_which_engine_is_asked_first(
    tmp_path: Path, *, order: Literal["auto", "serena", "ty", "index"], names: list[str]
) -> None:
    project = Composition(Options(), emit=lambda _: None, environment=users_folder(tmp_path))
    vars(project)["settings"] = Settings(symbols=order, serena="/nowhere/serena")
    servers = project.make_symbol_servers(Index(tmp_path), sandbox=PlainSandbox())
    assert [server.name for server in servers] == names
    project.close()
