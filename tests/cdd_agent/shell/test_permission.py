"""What runs without a question, what a person is asked, what is remembered, and what happens where nobody is there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import UsageError
from cdd_agent.shell.permission import CommandAnswer, CommandQuestion, Permission
from tests.fakes.approval import users_folder

YES, ONCE, NO = CommandAnswer(verdict="always"), CommandAnswer(verdict="once"), CommandAnswer(verdict="no")


class Person:
    """Gives one answer to every question, and keeps the questions."""

    def __init__(self, answer: CommandAnswer) -> None:
        self.answer = answer
        self.asked: list[CommandQuestion] = []

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        self.asked.append(question)
        return self.answer

    @property
    def parts(self) -> list[str]:
        """What was asked about."""
        return [question.line[question.start : question.end] for question in self.asked]


Make = Callable[..., Permission]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.py").write_text("x = 1\n")
    return made


@pytest.fixture
def make(folder: Path, tmp_path: Path) -> Make:
    def make(person: Person | None = None, *, is_free: bool = False, asks_all: bool = False) -> Permission:
        return Permission(
            root=folder,
            is_free=is_free,
            approvals=Approvals(folder, environment=users_folder(tmp_path)),
            ask=person,
            report=lambda text: None,
            asks_all=asks_all,
        )

    return make


# Somebody is there.


@pytest.mark.parametrize("line", ["ls -la | head", "pytest -q", "mkdir new && echo x > new/x", "git status"])
def test_reading_testing_and_writing_in_the_project_need_no_question(line: str, make: Make) -> None:
    person = Person(NO)
    assert make(person).check_command(line) is None
    assert person.asked == []


def test_another_command_is_asked_about_once_and_kept_for_the_project(make: Make) -> None:
    first, later = Person(YES), Person(NO)
    assert make(first).check_command("npm test") is None
    assert first.parts == ["npm test"]
    assert make(later).check_command("npm   'test'") is None
    assert later.asked == []


def test_once_is_not_kept(make: Make) -> None:
    person = Person(ONCE)
    permission = make(person)
    assert permission.check_command("npm test") is None
    assert permission.check_command("npm test") is None
    assert len(person.asked) == 2


def test_each_part_of_a_line_is_asked_about_by_itself_and_those_that_are_kept_are_not(make: Make) -> None:
    person = Person(YES)
    permission = make(person)
    assert permission.check_command("npm ci && ls && npm test; npm ci") is None
    assert person.parts == ["npm ci", "npm test"]
    assert permission.check_command("npm test || npm ci") is None
    assert permission.check_command("npm test && make") is None
    assert person.parts == ["npm ci", "npm test", "make"]


@pytest.mark.parametrize("other", ["npm test --force", "cd src && npm test", "npm test > out", "CI=1 npm test"])
def test_a_variant_is_another_command(other: str, make: Make) -> None:
    person = Person(YES)
    permission = make(person)
    permission.check_command("npm test")
    permission.check_command(other)
    assert len(person.asked) == 2


def test_what_a_variable_holds_is_part_of_what_was_allowed(make: Make) -> None:
    person = Person(YES)
    permission = make(person)
    permission.check_command("x=one; npm $x")
    permission.check_command("x=one; npm $x")
    assert len(person.asked) == 1
    permission.check_command("x=two; npm $x")
    assert len(person.asked) == 2


def test_a_no_is_told_to_the_model_with_its_reason_and_asked_again_the_next_time(make: Make) -> None:
    person = Person(CommandAnswer(verdict="no", reason="use pytest instead"))
    permission = make(person)
    refusal = permission.check_command("ls && npm test")
    assert refusal is not None
    assert refusal.startswith("Refused; no part of the command ran: `npm test`: the developer said no: use pytest")
    permission.check_command("npm test")
    assert len(person.asked) == 2


def test_after_a_no_nothing_more_of_the_line_is_asked_about(make: Make) -> None:
    person = Person(NO)
    make(person).check_command("npm ci && npm test")
    assert person.parts == ["npm ci"]


@pytest.mark.parametrize("line", ["npm test", "rm -rf /", "git reset --hard", "cat /etc/passwd", 'x" (((', "a;" * 900])
def test_where_commands_reach_nothing_of_the_users_none_is_asked_about(line: str, make: Make) -> None:
    person = Person(NO)
    assert make(person, is_free=True).check_command(line) is None
    assert make(None, is_free=True, asks_all=True).check_command(line) is None
    assert person.asked == []


def test_a_question_that_is_broken_off_goes_through(make: Make) -> None:
    def breaks_off(_: CommandQuestion) -> CommandAnswer:
        raise KeyboardInterrupt

    permission = make()
    permission.ask = breaks_off
    with pytest.raises(KeyboardInterrupt):
        permission.check_command("npm test")


def test_where_nothing_can_be_kept_a_yes_holds_this_once(folder: Path) -> None:
    told: list[str] = []
    person = Person(YES)
    inside = Approvals(folder, environment={"XDG_STATE_HOME": str(folder / "state")})
    permission = Permission(root=folder, approvals=inside, ask=person, report=told.append)
    assert permission.check_command("npm test") is None
    assert permission.check_command("npm test") is None
    assert len(person.asked) == 2
    assert "could not be saved" in told[0]


def test_a_yes_holds_this_once_while_another_terminal_keeps_the_file_locked(folder: Path, tmp_path: Path) -> None:
    class Busy(Approvals):
        def record(self, offer: Offer, *, approved: bool) -> None:
            raise UsageError("Another decision is already going on.", hint="wait for it to end")

    told: list[str] = []
    approvals = Busy(folder, environment={"XDG_STATE_HOME": str(tmp_path / "state")})
    permission = Permission(root=folder, approvals=approvals, ask=Person(YES), report=told.append)
    assert permission.check_command("npm test") is None
    assert "Another decision is already going on" in told[0]


# The user wants to be asked about everything.


def test_writing_and_testing_can_be_asked_about_once_for_the_project(make: Make) -> None:
    person = Person(YES)
    permission = make(person, asks_all=True)
    assert permission.check_activity("write") is None
    assert permission.check_activity("tests") is None
    assert permission.check_command("touch x && pytest -q") is None
    assert [question.kind for question in person.asked] == ["write", "tests"]
    later = Person(NO)
    assert make(later, asks_all=True).check_activity("write") is None
    assert later.asked == []


def test_once_is_for_the_session_there(make: Make) -> None:
    person = Person(ONCE)
    permission = make(person, asks_all=True)
    assert permission.check_activity("write") is None
    assert permission.check_activity("write") is None
    assert len(person.asked) == 1
    assert make(Person(NO), asks_all=True).check_activity("write") == (
        "The developer does not allow you to write and change files of this project."
    )


def test_another_test_command_is_asked_about_again(make: Make) -> None:
    make(Person(YES), asks_all=True).check_activity("tests")
    person = Person(YES)
    permission = make(person, asks_all=True)
    permission.test_command = "/other/python -m pytest"
    permission.check_activity("tests")
    assert len(person.asked) == 1


# Nobody is there.


@pytest.mark.parametrize("line", ["git reset --hard", "npm test", "ls; git clean -fd", "touch ../x", "git push -f"])
def test_a_command_that_is_not_known_to_be_harmless_is_refused(line: str, make: Make) -> None:
    refusal = make().check_command(line)
    assert refusal is not None
    assert "nobody is there to ask" in refusal
    assert "--sandbox bwrap" in refusal


def test_reading_testing_and_writing_go_on(make: Make) -> None:
    assert make(asks_all=True).check_command("ls && pytest -q; mkdir new && rm -rf new") is None
    assert make(asks_all=True).check_activity("write") is None


def test_what_was_allowed_at_the_prompt_runs_unattended(make: Make) -> None:
    make(Person(YES)).check_command("npm test")
    assert make().check_command("npm test") is None
    assert make().check_command("npm test --force") is not None


# Links that lead out of the project.


@pytest.fixture
def outside(folder: Path, tmp_path: Path) -> Path:
    made = tmp_path / "elsewhere"
    made.mkdir()
    (made / "kept.txt").write_text("kept\n")
    (folder / "link").symlink_to(made)
    (folder / "src").mkdir()
    (folder / "inner").symlink_to("src")
    return made


@pytest.mark.parametrize(
    "line",
    [
        "rm link/kept.txt",
        "rm -rf link/",
        "rm link/../elsewhere/kept.txt",
        "echo x > link/new.txt",
        "echo x >> link/kept.txt",
        "cp a.py link",
        "mv a.py link/",
        "touch link/new",
        "cd link && rm kept.txt",
        "tee link/new.txt",
    ],
)
def test_what_a_link_leads_out_of_the_project_is_not_written(line: str, make: Make, outside: Path) -> None:
    assert "leads out of the project" in (make().check_command(line) or "")


@pytest.mark.parametrize("line", ["cat link/kept.txt", "ls link", "cd link", "grep -r x link/"])
def test_what_a_link_leads_out_of_the_project_is_read_only_after_a_question(
    line: str, make: Make, outside: Path
) -> None:
    person = Person(NO)
    assert make(person).check_command(line)
    assert person.parts == [line]


@pytest.mark.parametrize("line", ["cat inner/x.py", "echo x > inner/new.py", "cd inner && ls", "ls ."])
def test_a_link_within_the_project_is_like_any_folder(line: str, make: Make, outside: Path) -> None:
    assert make(None).check_command(line) is None


@pytest.mark.parametrize("name", ["x" * 5000, "x\nYou have allowed this.\n" * 200])
def test_a_name_in_the_question_is_one_short_line(name: str, make: Make) -> None:
    person = Person(NO)
    make(person).check_command(f'touch "/{name}"')
    (question,) = person.asked
    assert len(question.why) < 300
    assert "\n" not in question.why
    assert question.why.endswith("is outside the project")
