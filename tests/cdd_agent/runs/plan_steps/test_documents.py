from dataclasses import replace

import pytest

from cdd_agent.errors import DocumentError, EnvironmentMissing, UsageError
from cdd_agent.events import Committed
from cdd_agent.runs.plan_steps import Documents, TicketFiles, make_work_item, step_key, suggest_project
from cdd_agent.testrun.project import NoFramework, detect
from cdd_agent.tickets import ticket as tickets
from tests.cdd_agent.runs.plan_steps.conftest import ONE, MakeWork, Work, plan
from tests.fakes.project import Project


def files_of(work: Work) -> TicketFiles:
    return TicketFiles(repository=work.project.repository, ticket=work.ticket)


@pytest.fixture
def one(work: MakeWork) -> Work:
    return work(ONE)


def test_a_plan_that_cannot_be_carried_out_is_refused_with_its_lines(work: MakeWork) -> None:
    made = work(plan((1, "a", "2"), (2, "b", "1")))
    with pytest.raises(DocumentError, match=r"plan\.md(.|\n)* line \d+: ") as refused:
        Documents.read(made.ticket)
    assert "cdd plan sale" in refused.value.hint


def test_the_digest_of_a_step_stays_when_only_its_place_name_or_box_changes(one: Work) -> None:
    first = Documents.read(one.ticket).plan.steps[0]
    moved = replace(first, number=5, title="Just the header", done=True, depends_on=(4,))
    reworded = replace(first, description="Write no header.")
    digests = [step_key(step).text_sha256 for step in (first, moved, reworded)]

    assert digests[0] == digests[1] != digests[2]


def test_where_the_root_has_no_framework_the_plan_s_files_say_which_project_is_meant(
    work: MakeWork, *, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project.folder
    for name in root.glob("**/*"):
        if name.suffix in {".py", ".ini"}:
            name.unlink()
    project.write({"services/a/go.mod": "module a\n", "services/b/pom.xml": "<project/>"})
    monkeypatch.chdir(root)
    made = work(plan((1, "a", "none")).replace("`discount.py`", "`services/a/cart.go`, `services/a/cart_test.go`"))
    with pytest.raises(NoFramework) as missing:
        detect(root)
    assert "cdd --project services/a, or" in missing.value.hint
    told = suggest_project(missing.value, made.ticket, root=root)
    assert told.happened == missing.value.happened
    assert "the plan's files are in services/a: " in told.hint
    assert "mv tickets/sale services/a/tickets/" in told.hint
    assert told.hint.endswith("cdd --project services/a exec sale")
    text = made.ticket.plan_path.read_text()
    for other in ("`services/b/cart.java`, `services/a/cart.go`", "`cart.go`"):
        made.ticket.plan_path.write_text(text.replace("`services/a/cart.go`, `services/a/cart_test.go`", other))
        assert suggest_project(missing.value, made.ticket, root=root) is missing.value


def test_a_missing_plan_or_spec_says_how_to_make_one(one: Work) -> None:
    one.ticket.plan_path.unlink()
    with pytest.raises(UsageError) as refused:
        Documents.read(one.ticket)
    assert "cdd plan sale" in refused.value.hint
    one.ticket.spec_path.unlink()
    with pytest.raises(UsageError) as refused:
        Documents.read(one.ticket)
    assert "cdd new sale" in refused.value.hint


def test_uncommitted_changes_are_listed_with_both_ways_out(project: Project, one: Work) -> None:
    project.write({f"a{number:02}.txt": "" for number in range(12)})
    with pytest.raises(UsageError, match=r"a00\.txt(.|\n)*and 2 more\nNothing was touched") as refused:
        one.executor().require_clean(allow_dirty=False)
    assert "commit or stash" in refused.value.hint
    assert "--allow-dirty" in refused.value.hint
    one.executor().require_clean(allow_dirty=True)


def test_a_merge_in_progress_is_refused_even_where_changes_are_allowed(project: Project, one: Work) -> None:
    project.git("checkout", "--quiet", "-b", "other")
    project.git("commit", "--quiet", "--allow-empty", "-m", "theirs")
    project.git("checkout", "--quiet", "main")
    project.git("merge", "--no-ff", "--no-commit", "other")
    with pytest.raises(UsageError, match="a merge is in progress") as refused:
        one.executor().require_clean(allow_dirty=True)
    assert "git merge --continue, or git merge --abort" in refused.value.hint


def test_tickets_are_not_changes_to_the_product_but_a_package_of_that_name_is(project: Project, one: Work) -> None:
    other = tickets.create(project.folder, "other", title="Another", type="bug")
    assert files_of(one).list_folders() == ("tickets/sale", "tickets/other")
    one.executor().require_clean(allow_dirty=False)
    other.spec_path.rename(other.folder / "models.py")
    with pytest.raises(UsageError, match=r"tickets/other/models\.py"):
        one.executor().require_clean(allow_dirty=False)
    other.folder.rename(project.folder / "tickets" / ".gitignored")
    with pytest.raises(UsageError, match=r"tickets/\.gitignored/models\.py"):
        one.executor().require_clean(allow_dirty=False)


def test_the_first_commit_holds_the_tickets_files_and_nothing_else(project: Project, one: Work) -> None:
    tickets.create(project.folder, "other", title="Another", type="bug")
    project.write({"mine.txt": "mine\n"})
    project.git("add", "mine.txt")
    documents = Documents.read(one.ticket)
    for _ in range(2):
        files_of(one).commit_documents(documents, emit=project.seen.append)
    assert project.log == ["plan: A sale"], "once is enough"
    assert project.git("show", "--format=", "--name-only").splitlines() == [
        "tickets/.gitignore",
        "tickets/sale/plan.md",
        "tickets/sale/spec.yaml",
    ]
    assert project.git("log", "-1", "--format=%(trailers:only)").splitlines() == ["Ticket: sale", "Phase: PLAN"]
    assert project.status == "A  mine.txt\n?? tickets/other/"
    assert [event.phase for event in project.seen if isinstance(event, Committed)] == ["plan"]


def test_a_run_that_was_killed_right_after_its_first_commit_leaves_nothing_staged(project: Project, one: Work) -> None:
    documents = Documents.read(one.ticket)
    files_of(one).commit_documents(documents, emit=project.seen.append)
    project.git("rm", "--quiet", "--cached", "tickets/.gitignore", "tickets/sale/plan.md")
    files_of(one).commit_documents(documents, emit=project.seen.append)
    assert (project.log, project.status) == (["plan: A sale"], "")
    assert [event.phase for event in project.seen if isinstance(event, Committed)] == ["plan"]


def test_the_state_of_a_ticket_made_by_hand_is_not_committed(project: Project, one: Work) -> None:
    (one.ticket.folder.parent / ".gitignore").unlink(missing_ok=True)
    project.write({"tickets/sale/execution-state.json": "{}", "tickets/sale/sketch.txt": "mine\n"})
    documents = Documents.read(one.ticket)
    files_of(one).commit_documents(documents, emit=project.seen.append)
    assert project.git("show", "--format=", "--name-only").splitlines() == [
        "tickets/.gitignore",
        "tickets/sale/plan.md",
        "tickets/sale/spec.yaml",
    ]
    assert project.status == "?? tickets/sale/sketch.txt"


def test_a_ticket_that_a_link_leads_out_of_the_project_is_refused(project: Project, one: Work) -> None:
    folder = one.ticket.folder.parent
    outside = folder.rename(project.folder.parent / "elsewhere")
    folder.symlink_to(outside)
    with pytest.raises(UsageError, match="outside the work tree"):
        files_of(one).list_folders()


def test_git_has_to_know_who_commits(project: Project, *, one: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("name", "email"):
        project.git("config", "--unset", f"user.{key}")
    project.git("config", "user.useConfigOnly", "true")
    monkeypatch.setenv("HOME", str(project.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.folder))
    with pytest.raises(EnvironmentMissing, match="your name and email"):
        files_of(one).commit_documents(Documents.read(one.ticket), emit=project.seen.append)


def test_a_step_becomes_a_work_item_with_its_criteria_in_full(work: MakeWork) -> None:
    made = work(plan((1, "Ten percent off", "none"), kind="bug"))
    documents = Documents.read(made.ticket)
    (step,) = documents.plan.steps
    item = make_work_item(made.ticket, step, spec=documents.spec)
    assert (item.ticket, item.number, item.title, item.kind) == ("sale", 1, "Ten percent off", "bug")
    assert item.tests == ("tests/test_discount.py::test_discount",)
    assert item.sources == ("discount.py",)
    assert "- AC-1: WHEN it is day THE SYSTEM SHALL sell" in item.goal
    assert item.goal.endswith("Integers only.")
    assert step_key(step).title == "Ten percent off"


def test_a_work_item_tells_what_the_ticket_is_for_and_what_is_not_part_of_it(work: MakeWork) -> None:
    made = work(plan((1, "Ten percent off", "none"), kind="bug"))
    documents = Documents.read(made.ticket)
    (step,) = documents.plan.steps
    spec = replace(documents.spec, description="Shops want sales.", out_of_scope=("Taxes.", "Other currencies."))
    goal = make_work_item(made.ticket, step, spec=spec).goal
    assert "The ticket that this is a part of:\nShops want sales.\n\n" in goal
    assert "Out of scope of the ticket:\n- Taxes.\n- Other currencies.\n\nTechnical notes" in goal
    step = replace(step, description="Round down.")
    same = make_work_item(made.ticket, step, spec=replace(spec, description="Round down.", out_of_scope=())).goal
    assert (same.count("Round down."), "The ticket" in same, "scope" in same) == (1, False, False)
    long = make_work_item(made.ticket, step, spec=replace(spec, description="x" * 9_000)).goal
    assert "[... 5000 more characters]" in long
