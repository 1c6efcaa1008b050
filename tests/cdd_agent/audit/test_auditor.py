"""Audits of real histories: honest ones, and such as were edited by hand."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.audit.auditor import Auditor, check_examples
from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.events import ClaimChecked, HandoffsAudited
from cdd_agent.git.notes import NotesDamaged
from cdd_agent.git.repository import Repository
from cdd_agent.testrun.access import Original
from cdd_agent.testrun.suite import Suite
from cdd_agent.work.finding import Finding, read_old_finding
from tests.cdd_agent.audit.made_history import NOTES, Fields, History, carry_out
from tests.fakes.cases import soak_after
from tests.fakes.model import call, says
from tests.fakes.project import CODE, TEST, TEST_FILE, Project, content_as_it_is, green, item, red, writes

TEST_AT_ONCE = TEST.replace("def test_discount", "def test_none").replace("discount(100) == 90", "discount(10) == 0")
WRONG = "def discount(price):\n    return price\n"


def everything_of_git(folder: Path) -> dict[str, bytes | str]:
    """What git knows and keeps of a project; objects are only ever added."""
    files = [path for path in (folder / ".git").rglob("*") if path.is_file() and "objects" not in path.parts]
    told = {str(path): path.read_bytes() for path in files}
    work = subprocess.run(["git", "worktree", "list"], cwd=folder, capture_output=True, text=True, check=True).stdout
    return {**told, "worktrees": work, "objects": str(sorted((folder / ".git" / "objects").rglob("*")))}


@pytest.mark.slow
def test_all_claims_of_an_honest_history_hold_and_each_tree_is_run_once(history: History) -> None:
    before = everything_of_git(history.project.folder)
    audited = history.audit(suite=history.project.suite)
    assert [(each.phase, each.cycle, each.ticket) for each in audited] == [
        ("RED", 1, "sale"),
        ("GREEN", 1, "sale"),
        ("REFACTOR", 1, "sale"),
    ]
    assert [[claim.name for claim in each.claims] for each in audited] == [
        ["note", "commit", "chain", "report", "run", "listed"],
        ["note", "commit", "chain", "report", "run", "tests", "listed"],
        ["note", "commit", "chain", "report", "run", "tests", "listed"],
    ]
    assert all(claim.holds for each in audited for claim in each.claims)
    assert len(history.runs()) == 4, "the commit before RED, and three of its own"
    told = [event.told for event in history.seen if isinstance(event, ClaimChecked) and event.claim == "run"]
    assert told == [
        "The new tests fail by missing_module.",
        "2 tests pass, 1 of them newly.",
        "The same 2 tests as before pass.",
    ]
    assert history.seen[-1] == HandoffsAudited(handoffs=3, held=20, failed=0, unknown=0)
    assert everything_of_git(history.project.folder) == before
    assert history.project.status == ""


def put(**values: object) -> Callable[[Fields], object]:
    return lambda fields: fields.update(values)


def gate(**values: object) -> Callable[[Fields], object]:
    return lambda fields: fields["gate"].update(values)


CHECKED = {"check": "clean_copy", "outcome": "confirmed", "case": "passes_in_copy_unaltered"}
NO = {"code": "no", "nodeid": None}
EXAMPLE_PASSES = Finding(
    check="examples",
    outcome="confirmed",
    case="example_passes",
    parts={"criterion": "AC-1", "name": "test_twice", "because": ""},
)
EXAMPLE = {"check": "examples", "outcome": "confirmed", "case": "text", "parts": {"text": "AC-1 test_twice: passes"}}
FORGERIES: dict[str, tuple[str, Callable[[Fields], object], set[str]]] = {
    "another phase": ("feat", put(phase="REFACTOR"), {"note", "commit"}),
    "another phase, as is its gate's": (
        "feat",
        lambda fields: (fields.update(phase="REFACTOR", seq=4), fields["gate"].update(phase="refactor")),
        {"commit", "note"},
    ),
    "a closed gate": ("feat", gate(open=False), {"note"}),
    "a closed gate with all that belongs to it": (
        "feat",
        lambda fields: (
            fields["gate"].update(open=False, reasons=[NO]),
            fields.update(testResult=None, error=NO, errorDetails={"type": "no", "reasons": [NO]}),
        ),
        {"note"},
    ),
    "another commit of the history": ("feat", put(commit="HEAD"), {"commit"}),
    "a commit that there never was": ("feat", put(commit="1234567890" * 4), {"commit"}),
    "half a commit": ("test", put(commit="1234567890"), {"commit"}),
    "another digest": ("feat", gate(report_sha256="0" * 64), {"report"}),
    "no digest": ("feat", gate(report_sha256=None), {"report"}),
    "RED that passed": ("test", put(testResult="PASS"), {"note", "run"}),
    "RED that passed, with all that belongs to it": (
        "test",
        lambda fields: (
            fields.update(testResult="PASS", nextPhase="COMPLETE"),
            fields["gate"].update(open=False, reasons=[{"code": "already_green", "nodeid": None}]),
        ),
        {"run"},
    ),
    "GREEN that failed": ("feat", put(testResult="FAIL"), {"note"}),
    "another cycle": ("feat", put(cycleNumber=2), {"note", "commit"}),
    "another cycle, with its seq": ("feat", put(cycleNumber=2, seq=7), {"commit"}),
    "another place among the others": ("feat", put(seq=9), {"note"}),
    "another ticket": ("refactor", put(ticket="sold"), {"commit", "listed"}),
    "another id": ("feat", put(id="0123456789abcdef"), {"note", "commit"}),
    "an error": ("refactor", put(error=NO), {"note"}),
    "another attempt": ("feat", put(retryCount=3), {"report"}),
    "a completed test that never existed": ("feat", put(completedTests=[f"{TEST_FILE}::test_never"]), {"listed"}),
    "a completed test of no cycle": ("refactor", put(completedTests=["adds two numbers"]), {"listed"}),
    "a pending test that never existed": ("test", put(pendingTests=[f"{TEST_FILE}::test_never"]), {"listed"}),
    "a pending test that passes": ("feat", put(pendingTests=[TEST_FILE]), {"listed"}),
    "a pending test of no list": ("feat", put(pendingTests=["adds two numbers"]), {"listed"}),
    "another test file": ("feat", lambda fields: fields["currentTest"].update(testFile="tests/test_no.py"), {"listed"}),
    "another description": ("feat", lambda fields: fields["currentTest"].update(description="none"), {"listed"}),
    "another checkpoint": ("feat", put(checkpoint="refs/cdd/checkpoints/sold/step-1"), {"listed"}),
    "another phase to come": ("feat", put(nextPhase="RED"), {"note"}),
    "examples that never ran": ("feat", gate(examples=[EXAMPLE]), {"checks"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_note_that_is_edited_by_hand_is_named(history: History, name: str) -> None:
    prefix, edit, claims = FORGERIES[name]
    history.forge(prefix, edit)
    lines = history.lines(prefix)
    if lines[0]["commit"] == "HEAD":
        history.forge(prefix, put(commit=history.project.git("rev-parse", "HEAD")))
    wrong = history.wrong()
    assert {claim for _, subject, claim in wrong if subject == prefix} == claims
    innocent = [(phase, claim) for phase, subject, claim in wrong if subject != prefix]
    assert innocent == ([("GREEN", "chain")] if name.startswith("RED that passed") else [])


@pytest.mark.slow
def test_a_source_file_that_is_not_there_is_a_doubt_and_no_lie(history: History) -> None:
    history.forge("feat", lambda fields: fields["currentTest"].update(implFile="no.py"))
    told = [
        claim for each in history.audit() if each.phase == "GREEN" for claim in each.claims if claim.name == "listed"
    ]
    assert [(claim.holds, claim.text) for claim in told] == [
        (None, "Its source file no.py is not in the commit: deleted, never needed, or wrongly named.")
    ]


@pytest.mark.slow
def test_the_checks_of_green_run_again(project: Project) -> None:
    equal = "class Equal(int):\n    def __eq__(self, other):\n        return True\n\n\n"
    cheat = writes("discount.py", f"{equal}def discount(price):\n    return Equal()\n")
    assert carry_out(project, item(refactor=False), red(), cheat) == "done"
    history = History(project=project)
    history.forge("feat", gate(evidence=[CHECKED]))
    assert ("GREEN", "feat", "checks") in history.wrong()
    assert "The checks, run again, refuse the change" in str(history.seen)


@soak_after(1, "is_vacuous", [True, False])
def test_the_checks_of_red_run_again(project: Project, *, is_vacuous: bool) -> None:
    name, _, _ = TEST_FILE.rpartition("/")[2].partition(".")
    vacuous = f"from discount import discount\n\n\ndef {name}():\n    assert callable(discount)\n"
    begun = writes(TEST_FILE, vacuous) if is_vacuous else red()
    assert carry_out(project, item(refactor=False, tests=(TEST_FILE,)), begun, green()) == "done"
    history = History(project=project)
    stated = {"check": "stubs", "outcome": "confirmed", "case": "fails_with_stubs", "parts": {"gaps": ["discount"]}}
    history.forge("test", gate(evidence=[stated]))
    (checks,) = (each for handoff in history.audit() for each in handoff.claims if each.name == "checks")
    assert checks.holds is not is_vacuous, checks.text
    assert ("The checks, run again, refuse the change" in checks.text) is is_vacuous


@pytest.mark.slow
def test_what_the_note_of_refactor_states_is_compared_again(history: History) -> None:
    stated = {"check": "calls", "outcome": "confirmed", "case": "same_answers", "functions": ["discount"], "calls": 5}
    history.forge("refactor", gate(evidence=[stated]))
    (checks,) = (each for handoff in history.audit() for each in handoff.claims if each.name == "checks")
    assert checks.holds is None
    shown = "Compared with the code before: 5 calls of discount have the same results."
    assert checks.text.startswith(f"It states: {shown} Now: Not compared")
    history.forge("refactor", gate(evidence=[{**stated, "check": "of_tomorrow", "functions": ["later"]}]))
    (checks,) = (each for handoff in history.audit() for each in handoff.claims if each.name == "checks")
    assert checks.holds is None
    assert "a check that the note states: of_tomorrow: Compared with the code before" in checks.text


def test_of_a_note_of_version_1_everything_but_its_sentences_is_checked(history: History) -> None:
    def write_sentences(fields: Fields) -> None:
        fields["v"] = 1
        fields["gate"]["evidence"] = ["Checked in a clean copy: the tests pass there too (0.1 s)."]

    history.forge("feat", write_sentences)
    claims = {claim.name: claim for each in history.audit() if each.phase == "GREEN" for claim in each.claims}
    assert {claim.holds for name, claim in claims.items() if name != "checks"} == {True}
    assert claims["checks"].holds is None
    assert "version 1 keeps sentences, which cannot be compared. It states: Checked in" in claims["checks"].text
    history.forge("feat", lambda fields: fields.update(v=1, testResult="FAIL"))
    assert history.wrong() == [("GREEN", "feat", "note")]


@pytest.mark.parametrize(
    ("stated", "has_examples", "holds"),
    [
        ((EXAMPLE_PASSES,), True, True),
        ((EXAMPLE_PASSES,), False, False),
        ((read_old_finding("AC-1 test_twice: passes", check="examples"),), True, None),
        ((read_old_finding("AC-1 test_twice: passes", check="examples"),), False, False),
        ((EXAMPLE_PASSES, EXAMPLE_PASSES), True, False),
    ],
)
def test_the_results_of_further_examples_are_those_beside_the_report(
    stated: tuple[Finding, ...], has_examples: bool, holds: bool | None
) -> None:
    claim = check_examples(stated, (EXAMPLE_PASSES,) if has_examples else None, has_reports=True)
    assert claim.holds is holds
    assert check_examples(stated, None, has_reports=False).holds is None


@pytest.mark.slow
def test_a_note_that_was_moved_is_missed_in_one_place_and_named_in_the_other(history: History) -> None:
    moved = history.lines("test")
    history.write("feat", *moved, *history.lines("feat"))
    history.project.git("notes", f"--ref={NOTES}", "remove", history.commit("test"))
    assert history.wrong() == [("RED", "test", "note"), ("RED", "feat", "commit")]
    assert f"the Handoff-Id of another commit, {history.commit('test')[:8]}" in str(history.seen)


@pytest.mark.slow
def test_a_note_that_is_no_handoff_any_more_is_named(history: History) -> None:
    history.write("feat", "{'phase': 'GREEN'}")
    assert history.wrong() == [("GREEN", "feat", "note")]
    history.write("feat", {**history.lines("refactor")[0], "phase": "BLUE"}, "checked by hand, Ada")
    assert history.wrong() == [("GREEN", "feat", "note")]


@pytest.mark.slow
def test_a_remark_beside_a_handoff_is_no_harm(history: History) -> None:
    history.write("feat", "checked by hand, Ada", *history.lines("feat"))
    assert history.wrong() == []


@pytest.mark.slow
def test_a_range_is_audited_beside_what_comes_before_it(history: History) -> None:
    audited = history.audit("HEAD~1..HEAD")
    assert [(each.phase, {claim.holds for claim in each.claims}) for each in audited] == [("REFACTOR", {True})]
    assert len(history.runs()) == 2
    assert [each.phase for each in history.audit("HEAD~1^!")] == ["GREEN"]


@pytest.mark.slow
@pytest.mark.parametrize("revisions", ["nowhere", "HEAD~9..HEAD", "--all", "-1", "HEAD^{tree}", "", "HEAD --output=x"])
def test_a_range_that_names_no_commits_is_an_error(history: History, revisions: str) -> None:
    with pytest.raises(UsageError) as caught:
        history.audit(revisions)
    assert repr(revisions) in caught.value.happened
    assert "main..HEAD" in caught.value.hint


@pytest.mark.slow
def test_where_there_are_no_notes_it_is_said_where_they_may_be(history: History) -> None:
    with pytest.raises(EnvironmentMissing, match="but other commits have") as caught:
        history.audit("HEAD~3")
    assert "omit the range" in caught.value.hint
    history.project.git("update-ref", "-d", NOTES)
    with pytest.raises(EnvironmentMissing, match="a clone has no notes") as caught:
        history.audit()
    assert f"git fetch origin {NOTES}:{NOTES}" in caught.value.hint


@pytest.mark.slow
def test_a_broken_ref_is_never_taken_for_no_notes(history: History) -> None:
    (history.project.folder / ".git" / NOTES).write_text("junk")
    with pytest.raises(NotesDamaged) as caught:
        history.audit()
    assert "cdd tdd repair-notes" in caught.value.hint


@pytest.mark.slow
def test_a_note_of_a_later_version_is_not_judged_by_this_one(history: History) -> None:
    history.forge("feat", put(v=3))
    with pytest.raises(NotesDamaged, match="A later version") as caught:
        history.audit()
    assert "upgrade" in caught.value.hint
    assert [each.phase for each in history.audit("HEAD^!")] == ["REFACTOR"]


@pytest.mark.slow
def test_a_project_without_commits_has_nothing_to_audit(tmp_path: Path, project: Project) -> None:
    project.git("checkout", "-q", "--orphan", "new")
    with pytest.raises(EnvironmentMissing, match="has no commit") as caught:
        History(project=project).audit()
    assert all(command in caught.value.hint for command in ("cdd exec", "cdd tdd run", "cdd green"))


def remake(history: History, prefix: str, files: dict[str, str]) -> None:
    """Change what a commit holds, and make those after it anew; notes are carried over as git does it."""
    project = history.project
    project.git("config", "notes.rewriteRef", NOTES)
    later = project.git("rev-list", "--reverse", f"{history.commit(prefix)}..HEAD").split()
    project.git("checkout", "-q", "--detach", history.commit(prefix))
    project.write(files)
    project.git("commit", "-qa", "--amend", "--no-edit", "--date=2001-01-01T00:00:00")
    for commit in later:
        project.git("cherry-pick", "-Xtheirs", "--allow-empty", "--keep-redundant-commits", commit)
        project.git("notes", f"--ref={NOTES}", "copy", commit, "HEAD")
    project.git("checkout", "-q", "-B", "main")


def test_red_that_is_not_red_is_named(history: History) -> None:
    remake(history, "test", {TEST_FILE: "def test_discount():\n    pass\n"})
    wrong = history.wrong()
    assert ("RED", "test", "run") in wrong
    assert any("RED is not red" in event.told for event in history.seen if isinstance(event, ClaimChecked))


@pytest.mark.slow
def test_red_that_fails_for_another_reason_than_its_report_says_is_named(history: History) -> None:
    remake(history, "test", {TEST_FILE: "def test_discount():\n    assert 1 == 2\n"})
    history.audit()
    told = [event.told for event in history.seen if isinstance(event, ClaimChecked) and event.claim == "run"]
    assert told[0] == "RED failed by missing_module in its report, but now fails by assertion."


@pytest.mark.slow
def test_green_that_is_not_green_is_named(history: History) -> None:
    remake(history, "feat", {"discount.py": WRONG})
    wrong = history.wrong()
    assert ("GREEN", "feat", "run") in wrong
    assert ("GREEN", "feat", "tests") not in wrong


@pytest.mark.slow
def test_green_that_breaks_what_passed_is_named(history: History) -> None:
    remake(history, "feat", {"prices.py": "def total(prices):\n    return 0\n"})
    assert ("GREEN", "feat", "run") in history.wrong()


@pytest.mark.slow
def test_a_test_that_was_changed_between_red_and_green_is_named(history: History) -> None:
    remake(history, "feat", {TEST_FILE: TEST + "\n"})
    assert ("GREEN", "feat", "tests") in history.wrong()
    assert any(f"Changed since the phase before: {TEST_FILE}." in event.told for event in checked(history))


@pytest.mark.slow
def test_what_configures_pytest_belongs_to_the_tests(real_history: History) -> None:
    history = real_history
    remake(history, "feat", {"pytest.ini": (history.project.folder / "pytest.ini").read_text() + "markers = x\n"})
    assert ("GREEN", "feat", "tests") in history.wrong()


@pytest.mark.slow
def test_refactor_that_drops_a_test_is_named(history: History) -> None:
    remake(history, "refactor", {"tests/test_prices.py": "\n"})
    assert [each for each in history.wrong() if each[2] == "run"] == [("REFACTOR", "refactor", "run")]


def checked(history: History) -> list[ClaimChecked]:
    return [event for event in history.seen if isinstance(event, ClaimChecked)]


@pytest.mark.slow
def test_notes_that_a_rebase_carried_over_still_hold(history: History) -> None:
    project = history.project
    project.git("config", "notes.rewriteRef", NOTES)
    project.git("checkout", "-qb", "other", "HEAD~3")
    project.write({"README.md": "Prices.\n"})
    project.git("add", "README.md")
    project.git("commit", "-qm", "other")
    project.git("rebase", "-q", "other", "main")
    assert history.wrong() == []
    told = [event.told for event in checked(history) if event.claim == "commit"]
    assert len(told) == 3
    assert all("carried over" in each for each in told)


@pytest.mark.slow
def test_what_was_squashed_cannot_be_told(history: History) -> None:
    project = history.project
    note = [line for prefix in ("test", "feat", "refactor") for line in history.lines(prefix)]
    messages = project.git("log", "--reverse", "--format=%(trailers)", "HEAD~3..HEAD")
    project.git("reset", "-q", "--soft", "HEAD~3")
    trailers = "\n".join(line for line in messages.splitlines() if line)
    project.git("commit", "-qm", f"all: of it\n\n{trailers}")
    history.write("all", *note)
    audited = history.audit()
    assert [(each.phase, [claim.holds for claim in each.claims if claim.name == "run"]) for each in audited] == [
        ("RED", [None]),
        ("GREEN", [None]),
        ("REFACTOR", [None]),
    ]


@pytest.mark.slow
def test_a_step_that_only_refactors_and_one_of_documentation_need_no_red(project: Project) -> None:
    tidies = says(
        call("Read", file_path="prices.py"),
        call("Write", "toolu_W2", file_path="prices.py", content="def total(prices):\n    return sum(prices, 0)\n"),
        call("CompleteImplementation", implementation_files=[]),
    )
    assert carry_out(project, item("refactor", tests=()), tidies) == "done"
    assert carry_out(project, item("docs", number=2, tests=()), writes("README.md", "Prices.\n")) == "done"
    history = History(project=project)
    audited = history.audit()
    assert [each.phase for each in audited] == ["REFACTOR", "GREEN"]
    assert {claim.holds for each in audited for claim in each.claims} == {True}


@pytest.mark.slow
def test_a_green_whose_tests_failed_already_needs_no_red(project: Project) -> None:
    project.write({TEST_FILE: TEST})
    project.git("add", TEST_FILE)
    project.git("commit", "-qm", "a test")
    work = replace(item(), phases=("green",), tests=(f"{TEST_FILE}::test_discount",))
    assert carry_out(project, work, green()) == "done"
    history = History(project=project)
    (audited,) = history.audit()
    assert {claim.holds for claim in audited.claims} == {True}
    assert "its tests failed on the commit before" in str(audited.claims)


def land_green_with_an_uncommitted_test(project: Project) -> History:
    """A run like that of ``cdd green``: it takes the test along, and commits only the code."""
    project.write({TEST_FILE: TEST, "tests/test_mine.py": "def test_mine():\n    pass\n"})
    work = replace(item(), phases=("green",), tests=(f"{TEST_FILE}::test_discount",), sources=())
    assert carry_out(project, work, green(), carries_changes=True, evidence_timeout_s=60) == "done"
    assert project.git("ls-files", TEST_FILE) == ""
    return History(project=project)


@pytest.mark.slow
def test_a_green_whose_tests_are_not_committed_is_undecided_until_they_are(project: Project) -> None:
    history = land_green_with_an_uncommitted_test(project)
    (audited,) = history.audit()
    told = {claim.name: claim for claim in audited.claims}
    assert {name for name, claim in told.items() if claim.holds is None} == {"chain", "run", "listed"}
    assert not audited.failed
    assert told["run"].text == f"The test file {TEST_FILE} is not in the commit. Commit it, and run cdd audit again."
    project.git("add", TEST_FILE)
    project.git("commit", "-qm", "the test")
    (audited,) = history.audit()
    assert [(claim.name, claim.text) for claim in audited.claims if not claim.holds] == []
    assert audited.claims[-1].name == "checks"


@pytest.mark.slow
def test_a_test_that_no_report_has_seen_is_refuted_although_its_file_is_not_committed(project: Project) -> None:
    history = land_green_with_an_uncommitted_test(project)
    never = "tests/test_never.py::test_never"
    history.forge("feat", put(completedTests=[never]))
    assert {claim for _, _, claim in history.wrong()} == {"chain", "run", "listed"}


@pytest.mark.slow
def test_a_green_that_breaks_committed_tests_is_refuted_although_its_own_are_not_committed(project: Project) -> None:
    history = land_green_with_an_uncommitted_test(project)
    note = history.lines("feat")
    project.write({"prices.py": "def total(prices):\n    return 0\n"})
    project.git("commit", "-q", "--amend", "--no-edit", "prices.py")
    note[0]["commit"] = project.git("rev-parse", "HEAD")
    history.write("feat", *note)
    assert ("GREEN", "feat", "run") in history.wrong()


@pytest.mark.slow
def test_a_green_whose_red_was_taken_out_of_the_history_is_named(history: History) -> None:
    project = history.project
    project.git("checkout", "-q", "--detach", "HEAD~3")
    project.git("cherry-pick", history.commit_on("main", "feat"))
    project.git("notes", f"--ref={NOTES}", "copy", history.commit_on("main", "feat"), "HEAD")
    project.git("checkout", "-q", "-B", "main")
    assert history.wrong() == [("GREEN", "feat", "chain"), ("GREEN", "feat", "run"), ("GREEN", "feat", "listed")]
    assert "passed in GREEN's report, but does not pass now" in str(checked(history))


@pytest.mark.slow
def test_a_phase_that_was_given_up_and_one_that_changed_nothing_are_honest(project: Project) -> None:
    gives_up = says(call("ReportBlocked", why="cannot_be_done", reason="it is tidy"))
    assert carry_out(project, item(), red(), green(), content_as_it_is()) == "done"
    second = replace(item(number=2, tests=("tests/test_tax.py",)), sources=("tax.py",))
    turns = (
        writes("tests/test_tax.py", "from tax import tax\n\n\ndef test_tax():\n    assert tax(1) == 2\n"),
        writes("tax.py", "def tax(price):\n    return price * 2\n"),
    )
    assert carry_out(project, second, *turns, gives_up) == "done"
    history = History(project=project)
    audited = history.audit()
    assert [(each.phase, each.cycle) for each in audited] == [
        *(("RED", 1), ("GREEN", 1), ("REFACTOR", 1)),
        *(("RED", 2), ("GREEN", 2), ("REFACTOR", 2)),
    ]
    assert {claim.holds for each in audited for claim in each.claims} == {True}
    assert [claim.name for claim in audited[-1].claims] == ["note", "commit"]


@pytest.mark.slow
def test_a_failure_that_is_kept_in_a_note_is_no_claim_about_tests(project: Project) -> None:
    blocked = says(call("ReportBlocked", why="cannot_be_done", reason="no"))
    assert carry_out(project, item(), red(), writes("discount.py", WRONG), blocked, keeps_landed=True) == "blocked"
    audited = History(project=project).audit()
    assert [(each.phase, [claim.name for claim in each.claims]) for each in audited] == [
        ("RED", ["note", "commit", "chain", "report", "run", "listed"]),
        ("GREEN", ["note", "commit"]),
    ]
    assert {claim.holds for each in audited for claim in each.claims} == {True}


@pytest.mark.slow
@pytest.mark.parametrize("body", ["assert discount(10) == 0", "assert discount(1) or True"])
def test_a_test_that_passed_at_once_passes_or_is_gone(project: Project, body: str) -> None:
    project.write({"discount.py": CODE})
    project.git("add", "discount.py")
    project.git("commit", "-qm", "code")
    test = f"from discount import discount\n\n\ndef test_it():\n    {body}\n"
    how = "dropped" if "True" in body else "covered"
    assert carry_out(project, item(), writes(TEST_FILE, test), accepts_covered=True, evidence_timeout_s=60) == how
    history = History(project=project)
    (red_one,) = history.audit()
    assert {claim.holds for claim in red_one.claims} == {True}, [
        (e.claim, e.told) for e in checked(history) if not e.holds
    ]
    is_kept = "True" not in body
    assert ("run" in [claim.name for claim in red_one.claims]) is is_kept


@pytest.mark.slow
def test_what_needs_files_that_git_ignores_cannot_be_told(real_project: Project) -> None:
    project = real_project
    project.write({"rate.log": "10"})
    project.repository.read_included = lambda: b"*.log\n"
    test = "from discount import discount\n\n\ndef test_discount():\n    assert discount(100) == 90\n"
    code = "def discount(price):\n    return price - int(open('rate.log').read())\n"
    assert carry_out(project, item(refactor=False), writes(TEST_FILE, test), writes("discount.py", code)) == "done"
    history = History(project=project)
    told = {(each.phase, claim.name): claim for each in history.audit() for claim in each.claims}
    assert told["GREEN", "run"].holds is None
    assert "git ignores" in told["GREEN", "run"].text
    project.repository.read_included = bytes
    suite = project.suite.in_run_tree(project.folder, original=Original(root=project.folder))
    (claim,) = (
        c for each in history.audit(suite=suite) for c in each.claims if (each.phase, c.name) == ("GREEN", "run")
    )
    assert claim.holds is False
    assert "the copy lacks: rate.log. To add the first: echo /rate.log >>" in claim.text


@pytest.mark.slow
def test_tests_that_can_be_run_nowhere_are_an_error_of_the_surroundings(real_history: History) -> None:
    history = real_history

    class Broken:
        level = "none"

        def run(self, command: object) -> object:
            raise OSError("no such program")

    suite = history.project.suite
    with pytest.raises(EnvironmentMissing, match="no such program"):
        history.audit(suite=replace(suite, sandbox=Broken()))  # type: ignore[type-var]


@pytest.mark.slow
def test_a_tree_that_does_not_run_to_its_end_where_others_do_is_not_green(real_history: History) -> None:
    history = real_history
    remake(history, "feat", {"discount.py": "import os\n\nos._exit(0)\n"})
    assert ("GREEN", "feat", "run") in history.wrong()
    assert any("do not run to their end" in event.told for event in checked(history))


@pytest.mark.slow
def test_two_cycles_of_one_number_are_two_chains(history: History) -> None:
    assert (
        carry_out(
            history.project,
            replace(item(tests=("tests/test_tax.py",), refactor=False), sources=("tax.py",)),
            writes("tests/test_tax.py", "from tax import tax\n\n\ndef test_tax():\n    assert tax(1) == 2\n"),
            writes("tax.py", "def tax(price):\n    return price * 2\n"),
        )
        == "done"
    )
    assert history.wrong() == []


def test_a_shallow_clone_says_that_it_lacks_what_the_handoffs_rest_on(history: History, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    source = f"file://{history.project.folder}"
    subprocess.run(["git", "clone", "-q", "--depth=2", source, str(folder)], check=True)
    subprocess.run(["git", "fetch", "-q", "origin", f"{NOTES}:{NOTES}"], cwd=folder, check=True)
    auditor = Auditor(repository=Repository.find(folder), suite=_never, project=folder, emit=lambda _: None)
    with pytest.raises(EnvironmentMissing, match=r"The clone is shallow: its history ends at \w+") as caught:
        auditor.run()
    assert caught.value.hint.startswith("fetch the rest: git fetch --unshallow")


def _never() -> Suite:
    raise AssertionError("nothing is to be run")
