"""A sitting at the prompt: what each line does, and what stops it."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.own_commands import list_own_commands
from cdd_agent.conversation.socrates import Socrates
from cdd_agent.errors import ExitCode
from cdd_agent.git.commits import list_own_uncommitted
from cdd_agent.git.repository import Repository
from cdd_agent.git.run_tree import RunTrees
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.session import Session
from cdd_agent.repl.terminal import PromptStatus
from cdd_agent.tickets.ticket import Ticket, find
from cdd_agent.work.records import find_records
from tests.fakes.demo import ANSWER, RECORDING, SLUG, ProjectCrew, captured, fresh, open_session


class Sitting:
    """A session over a project, its lines given one by one."""

    def __init__(self, project: Path, *, replay: Path | None = RECORDING, runs_pytest: bool = False) -> None:
        with captured(width=200) as (screen, self._shown):
            self.screen = screen
        self.crew = ProjectCrew(project, screen=screen, replay=replay, runs_pytest=runs_pytest)
        self.session = open_session(self.crew, screen=screen, read=self._no_line)

    def says(self, line: str) -> str:
        """What is printed in answer to ``line``."""
        before = len(self._shown.getvalue())
        self.code = self.session.handle(line)
        return self._shown.getvalue()[before:]

    @property
    def where(self) -> tuple[str, str]:
        """Who listens, on which ticket."""
        place = self.session.prompt_status
        return place.agent, place.ticket

    @staticmethod
    def _no_line(_: PromptStatus) -> str:
        raise EOFError


def run(project: Path, *lines: str | type[BaseException], first: str = "", typed: bool = True) -> tuple[ExitCode, str]:
    """The exit code of a whole session and what it printed."""
    given = iter(lines)

    def read(_: PromptStatus) -> str:
        line = next(given, EOFError)
        if isinstance(line, str):
            return line
        raise line

    with captured(width=200) as (screen, shown):
        session = open_session(ProjectCrew(project, screen=screen), screen=screen, read=read, somebody_types=typed)
        code = session.run(first=first)
    return code, shown.getvalue()


@pytest.mark.parametrize("runs_pytest", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_ticket_goes_from_question_to_commits(project: Path, *, runs_pytest: bool) -> None:
    sitting = Sitting(project, runs_pytest=runs_pytest)
    assert "What should `1h90` be?" in sitting.says("/spec")
    assert sitting.where == ("spec", SLUG)
    answered = sitting.says(ANSWER)
    assert "✔ The spec of minutes-lost is complete:\n  AC-1  WHEN" in answered
    assert sitting.where == ("spec", SLUG)
    drafted = sitting.says("/plan")
    assert "full text: tickets/minutes-lost/plan.md" in drafted
    assert "or continue: /exec" in drafted
    assert "Enter runs step 1/1: Minutes after hours need no unit." in sitting.says("/exec")
    assert sitting.where == ("exec", SLUG)
    assert (sitting.session.prompt_status.step, sitting.session.prompt_status.sandbox) == ("1/1", "none")
    carried_out = sitting.says("")
    assert "✘ GREEN gate closed" in carried_out
    assert "broke_others: " in carried_out
    assert "✔ Step 1/1 completed" in carried_out
    assert carried_out.endswith("1 of 1 steps are completed; nothing is left to do. Review them: /review\n")
    assert sitting.where == ("cdd", SLUG)
    log = subprocess.run(["git", "log", "--format=%s"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert [subject.partition(":")[0] for subject in log.splitlines()] == ["fix", "test", "plan", "first"]


def test_a_plan_that_is_there_is_shown_and_not_drafted_again(finished: Path) -> None:
    before = find(finished, SLUG).plan_path.read_bytes()
    sitting = Sitting(finished, replay=None)
    assert "The plan of minutes-lost (full text" in sitting.says("/plan")
    assert sitting.session.prompt_status.agent == "plan"
    assert find(finished, SLUG).plan_path.read_bytes() == before


def test_the_plan_of_an_incomplete_spec_is_refused(project: Path) -> None:
    sitting = Sitting(project)
    assert "hint: /spec minutes-lost" in sitting.says("/plan")
    assert sitting.session.prompt_status.agent == "cdd"


def test_without_a_model_the_error_says_what_works(project: Path) -> None:
    sitting = Sitting(project, replay=None)
    told = sitting.says("/spec")
    assert sitting.code == ExitCode.ENVIRONMENT
    assert "ANTHROPIC_API_KEY" in told
    assert "cdd demo" in told
    assert sitting.session.prompt_status.agent == "cdd"


def test_without_a_model_a_review_stays_and_the_step_is_as_it_was(finished: Path) -> None:
    sitting, state = Sitting(finished, replay=None), find(finished, SLUG).state_path.read_text()
    sitting.says("/review")
    for words in ("change this: name it minutes", "fork: use a table"):
        assert "ANTHROPIC_API_KEY" in sitting.says(words)
        assert sitting.where == ("review", SLUG)
    assert "It does not say what should be different." in sitting.says("change this:")
    assert find(finished, SLUG).state_path.read_text() == state
    assert not (find_records(finished).repository / "forks.json").exists()
    sitting.says("q")
    assert sitting.where[0] == "cdd"


def test_the_only_ticket_need_not_be_named(finished: Path) -> None:
    assert "is complete" in Sitting(finished).says("/spec")


def test_of_several_tickets_one_must_be_named(finished: Path) -> None:
    sitting = Sitting(finished)
    sitting.says("/new another-one")
    assert "✔ The spec of" not in sitting.says("/status")
    other = Sitting(finished)
    assert "hint: name one of: another-one, minutes-lost" in other.says("/exec")


def test_what_status_names_can_be_typed_at_the_prompt(project: Path) -> None:
    sitting = Sitting(project)
    sitting.says("/new another-one")
    assert "next   /spec another-one" in sitting.says("/status another-one")
    assert "by hand: /checkpoint create" in sitting.says("/checkpoint list")


def test_an_unknown_ticket_names_the_nearest(finished: Path) -> None:
    sitting = Sitting(finished)
    assert "the nearest is 'minutes-lost'" in sitting.says("/exec minutes-last")
    assert sitting.code == ExitCode.USAGE


def test_a_new_ticket_is_in_work(project: Path) -> None:
    sitting = Sitting(project)
    assert "Created tickets/export-as-csv/spec.yaml" in sitting.says("/new export-as-csv Export it")
    assert sitting.session.prompt_status == PromptStatus(ticket="export-as-csv")
    assert "Export it" in sitting.says("/status")
    assert "hint: /new export-as-csv" in sitting.says("/new")


def test_words_need_a_model(project: Path) -> None:
    sitting = Sitting(project)
    assert "has no turn that matches this request" in sitting.says("hello")
    assert sitting.says("   ") == ""


@pytest.mark.slow
def test_a_damaged_state_is_told_and_kept(finished: Path) -> None:
    path = find(finished, SLUG).state_path
    path.write_text('{"schema": 1', encoding="utf-8")
    sitting = Sitting(finished)
    assert "incomplete or damaged" in sitting.says("/exec")
    assert sitting.code == ExitCode.USAGE
    assert path.read_text(encoding="utf-8") == '{"schema": 1'
    assert "not valid" in sitting.says("/status minutes-lost")


class BrokenCrew(ProjectCrew):
    """A crew with a defect, and one that is interrupted."""

    raises: BaseException = ZeroDivisionError("a defect")

    def socrates(self, ticket: Ticket) -> Socrates:
        raise self.raises


def broken(project: Path, screen: Screen, *, raises: BaseException) -> Session:
    crew = BrokenCrew(project, screen=screen)
    crew.raises = raises
    return open_session(crew, screen=screen, read=Sitting._no_line)


def test_a_defect_leaves_a_file_and_not_the_session(project: Path) -> None:
    with captured(width=200) as (screen, shown):
        session = broken(project, screen, raises=ZeroDivisionError("a defect"))
        code = session.handle("/spec")
    assert code == ExitCode.INTERNAL
    assert "Traceback" not in shown.getvalue()
    report = Path(shown.getvalue().rpartition("please report the file ")[2].strip())
    assert "ZeroDivisionError: a defect" in report.read_text(encoding="utf-8")
    report.unlink()
    assert session.handle("/status") == ExitCode.DONE


def test_a_defect_in_a_step_offers_to_do_it_by_hand(
    planned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting = Sitting(planned)
    sitting.says(f"/exec {SLUG}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("cdd_agent.runs.run.Run.run_step", lambda *_: 1 // 0)
    shown = " ".join(sitting.says("").split())
    assert "ZeroDivisionError" in shown
    assert "or do the step yourself, then type: done N" in shown


def test_ctrl_c_ends_the_line_and_not_the_session(project: Path) -> None:
    with captured() as (screen, shown):
        session = broken(project, screen, raises=KeyboardInterrupt())
        code = session.handle("/spec")
    assert code == ExitCode.INTERRUPTED
    assert shown.getvalue() == "Stopped. All work is in a consistent state.\n"


def test_a_reader_who_has_gone_away_ends_the_session(project: Path) -> None:
    with captured() as (screen, _), pytest.raises(BrokenPipeError):
        broken(project, screen, raises=BrokenPipeError()).handle("/spec")


def test_ctrl_c_at_the_prompt_says_how_to_leave(project: Path) -> None:
    code, shown = run(project, KeyboardInterrupt, "/exit", "/status")
    assert code == ExitCode.DONE
    assert "Press Ctrl-C again or Ctrl-D to leave" in shown
    assert SLUG not in shown


def test_ctrl_c_just_before_the_prompt_ends_nothing(project: Path) -> None:
    lines = iter(("/cost", "/exit"))
    with captured(width=200) as (screen, shown):
        session = open_session(ProjectCrew(project, screen=screen), screen=screen, read=lambda _: next(lines))
        print_gap, stops = screen.gap, iter([KeyboardInterrupt])

        def interrupt_once() -> None:
            for stop in stops:
                raise stop
            print_gap()

        screen.gap = interrupt_once  # type: ignore[method-assign]
        assert session.run() == ExitCode.DONE
    assert "the model was not called" in shown.getvalue()


def test_ctrl_c_twice_at_the_prompt_leaves(project: Path) -> None:
    code, shown = run(project, KeyboardInterrupt, KeyboardInterrupt, "/status")
    assert code == ExitCode.INTERRUPTED
    assert SLUG not in shown


def test_what_was_typed_wrongly_does_not_count_at_the_end(project: Path) -> None:
    assert run(project, "/wat", "/status", EOFError)[0] == ExitCode.DONE


def test_what_fails_in_a_script_counts(project: Path) -> None:
    code, shown = run(project, "/wat", "/status", EOFError, typed=False)
    assert code == ExitCode.USAGE
    assert SLUG in shown


def test_ctrl_c_ends_a_script(project: Path) -> None:
    assert run(project, KeyboardInterrupt, "/status", typed=False)[0] == ExitCode.INTERRUPTED


def test_a_session_opened_with_a_line_that_fails_is_over(project: Path) -> None:
    code, shown = run(project, "/status", first="/exec nothing-like-it")
    assert code == ExitCode.USAGE
    assert "ticket      title" not in shown


@pytest.mark.slow
def test_a_first_line_that_ends_well_is_followed_by_the_prompt_and_names_its_commands(finished: Path) -> None:
    run(finished, "a", first="/review")
    code, shown = run(finished, "/status", first="/review")
    assert code == ExitCode.DONE
    assert f"What happened: /report {SLUG} --html report.html" in shown
    assert "ticket        title" in shown


def test_a_command_for_the_shell_does_not_go_to_the_model(finished: Path) -> None:
    sitting = Sitting(finished, replay=None)
    for words, typed in (
        (f"cdd review {SLUG}", f"type: /review {SLUG}"),
        (f"cdd exec {SLUG} --retry 1", f"type: !cdd exec {SLUG} --retry 1"),
        ("cdd status", "type: /status"),
    ):
        told = sitting.says(words)
        assert f"error: '{words}' is a command for the shell." in told
        assert typed in told
    assert "ANTHROPIC_API_KEY" in sitting.says("cdd exec should be faster"), "for the model"


def test_help_shows_every_command(project: Path) -> None:
    shown = run(project, "/help")[1]
    assert all(f"/{name}" in shown for name in ("spec", "plan", "exec", "new", "status", "help", "exit"))


def test_lines_are_set_off_from_each_other(finished: Path) -> None:
    shown = run(finished, "/wat", "/wat")[1]
    assert shown.count("\n\n") == 2
    assert "\n\n\n" not in shown


@pytest.mark.slow
def test_a_project_outside_of_git_is_told_how_to_begin(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    fresh(tmp_path / "other").rename(folder)
    (folder / ".git").rename(tmp_path / "git")
    sitting = Sitting(folder)
    sitting.says("/spec")
    sitting.says(ANSWER)
    sitting.says("/plan")
    assert "git init" in sitting.says("/exec")
    assert sitting.code == ExitCode.ENVIRONMENT


def test_the_run_tree_is_shown_with_what_has_not_landed(project: Path) -> None:
    sitting = Sitting(project)
    assert f"{SLUG} has no run tree yet" in sitting.says("/tree")
    assert "has no run tree yet" in sitting.says("!")
    assert "run tree" not in sitting.says("/tree unknown"), "there is no such ticket to carry out"
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "start"], cwd=project, check=True)
    made = RunTrees(Repository.find(project), project / ".cdd" / "worktrees").tree(SLUG)
    head = Repository.find(project).read_head()
    assert head is not None
    made.reset(head)
    assert "changed  nothing" in sitting.says("/tree")
    assert f"The run of {SLUG} has changed nothing" in sitting.says("/diff")
    (made.root / "new.py").write_text("x = 1\n")
    shown = sitting.says("/tree")
    assert str(made.root) in shown
    assert f"1 file; see them: /diff {SLUG}" in shown
    assert "A new.py  +1 -0" in sitting.says("/diff")
    assert f"cd {made.root}" in sitting.says("!"), "without a terminal there is no shell"


def test_diff_shows_the_last_step_or_the_one_that_is_named(finished: Path) -> None:
    sitting = Sitting(finished)
    shown = sitting.says(f"/diff {SLUG}")
    assert "has no run tree yet" in shown or "nothing that has not landed" in shown
    sitting.says(f"/status {SLUG}")
    trees = RunTrees(Repository.find(finished), finished / ".cdd" / "worktrees")
    assert not trees.has(SLUG) or trees.remove_unused(SLUG)
    assert "Step 1  Minutes after hours need no unit" in sitting.says("/diff"), "also without its run tree"
    shown = sitting.says("/diff 1")
    assert "Step 1  Minutes after hours need no unit" in shown
    assert "M durations/reading.py  +" in shown
    assert "+def test_minutes_after_hours_need_no_unit" in shown
    assert "hint: " in sitting.says("/diff 7")


def test_a_setting_is_shown_with_its_source_and_changed_in_the_file(finished: Path) -> None:
    sitting = Sitting(finished)
    shown = sitting.says("/config")
    assert "  refactor                  always\n" in shown
    assert shown.index("tests and checks\n") < shown.index("refactor ") < shown.index("limits of cost and time\n")
    assert sitting.says("/set diffs off") == "diffs  false  .cdd/config.yaml\n"
    assert not sitting.screen.shows_changes
    assert sitting.says("/config green.style standard") == "green.style  standard  .cdd/config.yaml\n"
    shown = sitting.says("/config run_tree_")
    assert [row.split() for row in shown.splitlines()] == [
        ["run_tree_copy_mb", "200"],
        ["run_tree_copy_files", "10000"],
    ]
    assert "hint: did you mean refactor?" in sitting.says("/config refactr never")
    assert "'sometimes' is not a value of refactor" in sitting.says("/config refactor sometimes")
    assert not list_own_uncommitted(Repository.find(finished))


def test_a_command_shows_its_help(finished: Path) -> None:
    assert Sitting(finished).says("/rewind --help").startswith("/rewind [ID]\n  choose a checkpoint")


def test_a_decision_is_listed_and_taken_back(finished: Path) -> None:
    sitting = Sitting(finished)
    assert "You have decided about nothing here" in sitting.says("/permissions")
    sitting.says("/config diffs off")
    listed = sitting.says("/permissions")
    assert listed.startswith("  1  settings allowed: .cdd/config.yaml\n")
    assert "7 is not the number of a permission." in sitting.says("/permissions remove 7")
    assert sitting.says("/permissions remove 1").startswith("Removed: settings allowed")
    assert "You have decided about nothing here" in sitting.says("/permissions")


def test_a_step_is_undone_and_brought_back_once_the_user_agrees(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sitting = Sitting(finished)
    shown = sitting.says("/undo")
    assert "Removed commits, " in shown
    assert "M durations/reading.py" in shown
    assert "Your own changes and files stay." in shown
    assert "error: cdd cannot ask you here. Nothing was changed." in shown
    sitting.crew.options = replace(sitting.crew.options, attended=True)
    answers = io.StringIO("n\ny\ny\n")
    monkeypatch.setattr(sys, "stdin", answers)
    assert "Nothing was changed." in sitting.says("/undo")
    told = sitting.says("/undo")
    assert "Take step 1 of minutes-lost back? [y/N]" in told
    assert "Step 1 of minutes-lost was taken back. To bring it back: /redo" in told
    assert "pending" in sitting.says(f"/status {SLUG}")
    assert "Step 1 of minutes-lost is back. To take it back again: /undo" in sitting.says("/redo")
    assert "/undo takes the last step back" in sitting.says("/redo")


def test_a_command_runs_in_the_users_shell_and_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sitting = Sitting(project)
    monkeypatch.setenv("SHELL", "/bin/sh")
    assert sitting.says("!echo $(basename $PWD) ${ANTHROPIC_API_KEY-no key}; cat") == ""
    assert capfd.readouterr().out == "fresh no key\n"
    assert sitting.says("! exit 3") == "exit status 3\n"
    assert sitting.code == ExitCode.CLOSED
    monkeypatch.setenv("SHELL", "/nowhere")
    assert "hint: set SHELL" in sitting.says("!ls")


def test_a_command_of_the_project_is_sent_to_the_agent_once_the_user_approves_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project / "home"))
    write_command(project / ".cdd", "answer", f"---\ndescription: Say what I mean\n---\n{ANSWER[:-1]}$ARGUMENTS\n")
    write_command(project / ".cdd", "plan", "Plan it.\n")
    write_command(project / "home" / "cdd", "mine", "# Only mine\n")
    sitting = Sitting(project)
    shown = sitting.says("/help")
    assert "/answer [WORDS]    Say what I mean\n" in shown
    assert "/mine [WORDS]      Only mine\n" in shown
    assert ".cdd/commands/plan.md is not used: /plan is a command of cdd. Rename the file." in shown
    sitting.says("/spec")
    assert "slash command (.cdd/commands/answer.md) has not been approved" in sitting.says(f"/answer {ANSWER[-1]}")
    offer = list_own_commands(project)["answer"].offer
    assert offer is not None
    sitting.crew.trust.approvals.record(offer, approved=True)
    assert "The spec of minutes-lost is complete" in sitting.says(f"/ans {ANSWER[-1]}")
    write_command(project / ".cdd", "answer", "Delete $ARGUMENTS.\n")
    assert "has changed since you decided" in sitting.says("/answer all")


def write_command(folder: Path, name: str, text: str) -> None:
    (folder / "commands").mkdir(parents=True, exist_ok=True)
    (folder / "commands" / f"{name}.md").write_text(text, encoding="utf-8")
