import json
from dataclasses import replace

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.events import Committed, GateJudged, Notice
from cdd_agent.git.commits import MessageRefused
from cdd_agent.git.landing import LandingConflict
from cdd_agent.git.runner import GitUnable
from cdd_agent.git.tree_store import Description
from cdd_agent.model.conversation import Text
from cdd_agent.tdd.context import Kind
from tests.fakes.cases import soak_after
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, TIDY, Project, content_as_it_is, green, item, red, runs, writes

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
        (event.phase, event.open, [reason.code for reason in event.reasons])
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


def test_a_phase_whose_checkpoint_fails_does_not_begin(project: Project) -> None:
    saved: list[tuple[str, int, str]] = []

    def save(about: Description) -> str:
        saved.append((about.ticket, about.step, about.phase))
        if about.phase == "green":
            raise UsageError("There are 9000 new files.", hint="ignore them")
        return "Session: noon\nCheckpoint: 7\n"

    model = ScriptedModel([red(), green()])
    with pytest.raises(UsageError, match="9000 new files"):
        project.run(item(), context=replace(project.context(model), checkpoint=save))
    assert saved == [("sale", 1, "red"), ("sale", 1, "green")]
    assert project.log == ["test: Ten percent off"]
    assert project.git("log", "-1", "--format=%(trailers:only)").endswith("\nSession: noon\nCheckpoint: 7")


def test_every_commit_carries_trailers_and_a_note_and_a_refactoring_without_changes_is_only_a_note(
    project: Project,
) -> None:
    step, why = project.run(item(), context=project.context(ScriptedModel([red(), green(), content_as_it_is()])))
    assert why is None
    assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
    for phase, following, result in (("red", "GREEN", "FAIL"), ("green", "REFACTOR", "PASS")):
        commit = step.commits[phase]
        trailers = project.git("log", "-1", "--format=%(trailers:only)", commit).splitlines()
        assert trailers[:3] == ["Ticket: sale", f"Phase: {phase.upper()}", "Step: 1"]
        note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", commit).splitlines()[0])
        assert trailers[3] == f"Handoff-Id: {note['id']}"
        assert set(note) == {
            *("v", "seq", "id", "ticket", "phase", "nextPhase", "cycleNumber", "currentTest", "completedTests"),
            *("pendingTests", "testResult", "error", "errorDetails", "retryCount", "commit", "checkpoint", "gate"),
            *("baseCommit", "textSha256", "source"),
        }
        assert (note["phase"], note["nextPhase"], note["testResult"]) == (phase.upper(), following, result)
        assert (note["commit"], note["retryCount"], note["ticket"]) == (commit, 0, "sale")
        assert note["currentTest"]["testFile"] == TEST_FILE
        assert note["gate"]["open"] is True
        assert len(note["gate"]["report_sha256"]) == 64
    assert step.commits["refactor"] == step.commits["green"]
    lines = project.git("notes", "--ref=tdd-handoffs", "show", step.commits["green"]).splitlines()
    handoffs = [json.loads(line) for line in lines]
    assert [(note["phase"], note["nextPhase"]) for note in handoffs] == [
        ("GREEN", "REFACTOR"),
        ("REFACTOR", "COMPLETE"),
    ]
    assert {note["commit"] for note in handoffs} == {step.commits["green"]}


@soak_after(1, ("kind", "prefix"), [("docs", "docs"), ("chore", "chore"), ("refactor", "refactor")])
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


@pytest.mark.slow
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
    context = project.context(ScriptedModel([cheats, red(), green()]))
    _, why = project.run(item(refactor=False), context=context)
    assert why is None
    assert judged(project)[0][:2] == ("red", False)
    assert judged(project)[0][2][0] == "source_changed"
    assert project.git("diff", "HEAD~2", "--stat", "--", "prices.py") == ""
    (kept,) = refs(project, "attempts")
    assert "# red" in project.git("show", f"{kept}:prices.py")


def test_tests_changed_in_green_are_refused_and_put_back(project: Project) -> None:
    cheats = runs(f"sed -i 's/ == 90/ == 100/' {TEST_FILE}; printf 'def discount(p): return p\\n' > discount.py")
    mends = runs("printf 'def discount(p): return p - 10\\n' > discount.py")
    context = project.context(ScriptedModel([red(), cheats, mends]))
    _, why = project.run(item(refactor=False), context=context)
    assert why is None
    assert judged(project)[1] == ("green", False, ["protected_changed"])
    assert (project.folder / TEST_FILE).read_text() == TEST


def test_the_next_attempt_is_told_why_the_last_one_was_refused(project: Project) -> None:
    model = ScriptedModel([says("Done!"), writes("README.md", "# Prices\n")])
    project.run(DOCS, context=project.context(model))
    (message,) = model.requests[1].messages
    *_, text = message.content
    assert isinstance(text, Text)
    assert text.text.splitlines()[-1] == "Work: executor sale step 1 green attempt 2"
    assert "The gate refused attempt 1:\n" in text.text
    assert "\n- no_change: " in text.text


@pytest.mark.slow
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
    project.write({".gitignore": ".env\n*.sqlite\n"})
    project.git("add", ".gitignore")
    project.git("commit", "--quiet", "-m", "rules")
    project.write({".env": "SECRET=1\n", "data.sqlite": "mine\n"})
    project.repository.read_included = lambda: b"*.sqlite\n"
    context = project.context(ScriptedModel([runs("true > .gitignore; echo hi > README.md; echo x >> data.sqlite")]))
    context.allowed.add(".gitignore")
    step, why = project.run(DOCS, context=context)
    assert why is None
    assert files_of(project, step.commits["green"]) == [".gitignore", "README.md"]
    assert project.status == "?? .env\n?? data.sqlite"
    assert (project.folder / ".env").read_text() == "SECRET=1\n"
    assert (project.folder / "data.sqlite").read_text() == "mine\n"


def test_a_repository_that_the_model_makes_is_in_no_commit_and_told(project: Project) -> None:
    context = project.context(ScriptedModel([runs("git init -q inner; echo hi > README.md")]))
    step, why = project.run(DOCS, context=context)
    assert why is None
    assert files_of(project, step.commits["green"]) == ["README.md"]
    assert (context.workspace.root / "inner" / ".git").is_dir()
    assert not (project.folder / "inner").exists()
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
    *_, text = model.requests[1].messages[0].content
    assert isinstance(text, Text)
    assert "no licence line" in text.text


def test_a_hook_that_refuses_the_message_ends_the_run_and_the_next_one_commits_the_same_files(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "commit-msg"
    hook.write_text("#!/bin/sh\ntest -e accept || { echo 'the subject needs a number'; exit 1; }\n")
    hook.chmod(0o755)
    saved = [project.start()]
    context = project.context(ScriptedModel([writes("README.md", "# Prices\n")]))
    with pytest.raises(MessageRefused, match=r"hook commit-msg refused the message.*the subject needs a number"):
        project.run(DOCS, context=context, state=saved[-1], save=saved.append)
    assert (project.log, project.status) == ([], "")
    hook.write_text("#!/bin/sh\n")
    _, why = project.run(DOCS, context=project.context(ScriptedModel([])), state=saved[-1])
    assert why is None
    assert project.log == ["docs: Ten percent off"]


def test_the_commit_has_the_summary_of_the_attempt_that_made_the_change(project: Project) -> None:
    hook = project.folder / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntest -e ../../../accept || { touch ../../../accept; echo 'try again'; exit 1; }\n")
    hook.chmod(0o755)
    fenced = "It names the prices.\n\n```md:README.md\n# Prices\n```\n"
    write, hand_in = (
        call("Write", file_path="README.md", content="# Prices\n"),
        call("CompleteImplementation", "c", implementation_files=[]),
    )
    model = ScriptedModel([says(fenced, write, hand_in), says("I cannot change what the hook says.")])
    _, why = project.run(DOCS, context=project.context(model))
    assert why is None
    assert project.git("log", "-1", "--format=%b").startswith("It names the prices.\n\nFiles:\n")


@pytest.mark.slow
def test_a_commit_that_fails_without_any_hook_is_not_the_models_to_mend(project: Project) -> None:
    project.git("config", "commit.gpgsign", "true")
    project.git("config", "gpg.program", "/bin/false")
    saved = [project.start()]
    context = project.context(ScriptedModel([writes("README.md", "# Prices\n")]))
    with pytest.raises(GitUnable, match="could not sign the commit"):
        project.run(DOCS, context=context, state=saved[-1], save=saved.append)
    assert (project.log, project.status) == ([], "")
    project.git("config", "commit.gpgsign", "false")
    _, why = project.run(DOCS, context=project.context(ScriptedModel([])), state=saved[-1])
    assert why is None, "the attempt is landed by the next run"
    assert project.log == ["docs: Ten percent off"]
    assert (project.folder / "README.md").read_text() == "# Prices\n"


class TestGitUsedByTheAgent:
    """What the agent does to the history of the run tree is undone."""

    def test_its_commit_is_replaced_by_that_of_the_gate(self, project: Project) -> None:
        commits = runs("echo '# Prices' > README.md && git add -A && git commit -qm 'wip: my words'")
        step, why = project.run(DOCS, context=project.context(ScriptedModel([commits])))
        assert why is None
        assert project.log == ["docs: Ten percent off"]
        assert "wip: my words" not in project.git("log", "--all", "--format=%s")
        note = json.loads(project.git("notes", "--ref=tdd-handoffs", "show", "HEAD"))
        assert (note["phase"], note["commit"]) == ("GREEN", step.commits["green"])
        assert project.status == ""

    @pytest.mark.slow
    def test_its_commit_of_refused_work_reaches_no_branch(self, project: Project) -> None:
        commits = runs("echo '# red' >> tests/test_prices.py && git commit -qam 'sneaky'")
        context = project.context(ScriptedModel([commits, writes("README.md", "# Prices\n")]))
        _, why = project.run(DOCS, context=context)
        assert why is None
        assert project.log == ["docs: Ten percent off"]
        assert project.status == ""
        assert files_of(project, "HEAD") == ["README.md"]
        assert "sneaky" not in project.git("log", "--all", "--format=%s")
        (kept,) = refs(project, "attempts")
        assert "# red" in project.git("show", f"{kept}:tests/test_prices.py")

    @pytest.mark.slow
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


RATES = "def rate():\n    return 0.9\n"
NEEDS_RATES = "from rates import rate\n\n\ndef discount(price):\n    return price * rate()\n"


class TestUncommittedChangesOfTheUser:
    """They are in no commit, and nothing changes them."""

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

    def test_whatever_a_refused_attempt_does_to_those_files_is_not_done_to_the_users(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE, "notes.txt": "mine\n", "run.log": "ignored\n"})
        wild = runs("echo agent > prices.py; echo agent > notes.txt; rm -f run.log; git add -Af")
        _, why = project.run(item(), context=project.context(ScriptedModel([wild]), max_attempts=1))
        assert why is not None
        assert (project.log, project.status) == ([], " M prices.py\n?? notes.txt")
        assert [(project.folder / name).read_text() for name in ("prices.py", "notes.txt", "run.log")] == [
            FILES_MINE,
            "mine\n",
            "ignored\n",
        ]

    @pytest.mark.slow
    def test_a_commit_that_changes_the_same_lines_waits_until_they_are_moved_aside(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE, "run.log": "ignored\n"})
        saved = [project.start()]
        rewrites = runs("echo '# agent' > prices.py; echo 'from builtins import sum as total' >> prices.py")
        context = project.context(ScriptedModel([rewrites]))
        with pytest.raises(LandingConflict, match=r"prices\.py: you changed the same lines"):
            project.run(DOCS, context=context, state=saved[-1], save=saved.append)
        assert (project.log, project.status) == ([], " M prices.py")
        assert (project.folder / "prices.py").read_text() == FILES_MINE
        project.git("stash", "--quiet")
        step, why = project.run(DOCS, context=project.context(ScriptedModel([])), state=saved[-1])
        assert (why, len(step.attempts)) == (None, 1)
        assert (project.log, project.status) == (["docs: Ten percent off"], "")
        assert "# agent" in (project.folder / "prices.py").read_text()

    @pytest.mark.slow
    def test_a_run_that_takes_them_along_sees_them_and_commits_none(self, project: Project) -> None:
        project.write({"prices.py": FILES_MINE, "notes.txt": "mine\n"})
        shows = says(
            call("Bash", command="cat prices.py notes.txt"),
            call("Write", "toolu_2", file_path=TEST_FILE, content=TEST),
            call("CompleteImplementation", "toolu_3", implementation_files=[]),
        )
        context = project.context(ScriptedModel([shows, green()]))
        context.workplace.carries = True
        step, why = project.run(item(refactor=False), context=context)
        assert why is None
        assert project.log == ["test: Ten percent off", "feat: Ten percent off"]
        assert [files_of(project, commit) for commit in step.commits.values()] == [[TEST_FILE], ["discount.py"]]
        assert project.status == " M prices.py\n?? notes.txt"
        assert (project.folder / "prices.py").read_text() == FILES_MINE
        assert (context.workspace.root / "prices.py").read_text() == FILES_MINE
        assert (context.workspace.root / "notes.txt").read_text() == "mine\n"

    @pytest.mark.slow
    def test_code_that_needs_them_is_refused(self, project: Project) -> None:
        project.write({"rates.py": RATES})
        mends = runs("printf 'def discount(price):\\n    return price - 10\\n' > discount.py")
        context = project.context(ScriptedModel([red(), writes("discount.py", NEEDS_RATES), mends]))
        context.workplace.carries = True
        _, why = project.run(item(refactor=False), context=context)
        assert why is None
        assert [(phase, is_open) for phase, is_open, _ in judged(project)] == [
            ("red", True),
            ("green", True),
            ("green", False),
            ("green", True),
        ]
        assert (project.folder / "discount.py").read_text() == CODE
        assert project.status == "?? rates.py"
