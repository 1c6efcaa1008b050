from dataclasses import replace

import pytest

from cdd_agent.events import Change
from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.tdd import verdict
from cdd_agent.tdd.context import Kind, Phase
from cdd_agent.tdd.verdict import PhaseLocks
from cdd_agent.testrun.suite import PYTEST, ProjectLayout
from cdd_agent.untrusted.known_values import KnownValues
from cdd_agent.work.wording import explain
from pytest_tdd_agent.report import Case, Clause, CollectError, Failure, Reason, StreamProblem, SuiteReport, Verdict
from tests.cdd_agent.evidence.requests import EMPTY, tell
from tests.fakes.project import item
from tests.fakes.suite import no_report


@pytest.mark.parametrize(
    ("phase", "path", "locked"),
    [
        ("red", "tests/test_a.py", False),
        ("red", "tests/data/a.csv", False),
        ("red", "conftest.py", False),
        ("red", "prices.py", True),
        ("green", "prices.py", False),
        ("green", "tests/test_a.py", True),
        ("green", "conftest.py", True),
        ("refactor", "prices.py", False),
        ("refactor", "pytest.ini", True),
    ],
)
def test_a_phase_locks_what_is_not_its_own(phase: Phase, path: str, *, locked: bool) -> None:
    assert (PhaseLocks(phase=phase).explain(path) is not None) is locked


def test_folders_above_the_project_say_nothing_of_what_is_in_it() -> None:
    def find(phase: Phase, *changes: Change, project: str) -> list[str]:
        return list(PhaseLocks(phase=phase, layout=ProjectLayout(project=project)).find_forbidden_changes(changes))

    for project in ("testing", "tests/app"):
        changes = [Change(path=f"{project}/{name}", kind="created") for name in ("prices.py", "tests/test_a.py")]
        assert find("green", *changes, project=project) == [f"{project}/tests/test_a.py"]
        assert find("red", *changes, project=project) == [f"{project}/prices.py"]
    outside, shadow = Change(path="tests/test_b.py", kind="created"), Change(path="app/pytest.py", kind="created")
    assert find("green", outside, shadow, project="app") == ["tests/test_b.py", "app/pytest.py"]


def test_the_files_the_steps_tests_name_are_test_files_whatever_they_are_called() -> None:
    work = item(tests=("checks/prices.py::check_total", "specs/", "discount.py::discount.discount"))
    named = verdict.list_test_files(work)
    assert named == ("checks/prices.py", "specs"), "a source with doctests stays a source"
    changes = [Change(path=path, kind="modified") for path in ("checks/prices.py", "specs/a.txt", "checks/b.py")]
    assert list(PhaseLocks(phase="red", tests=named).find_forbidden_changes(changes)) == ["checks/b.py"]
    found = PhaseLocks(phase="green", tests=named).find_forbidden_changes(changes)
    assert list(found) == ["checks/prices.py", "specs/a.txt"]


def test_what_no_phase_may_change_is_forbidden_in_each() -> None:
    changes = [Change(path="table.csv", kind="modified"), Change(path="prices.py", kind="modified")]
    (refused,) = (
        PhaseLocks(phase="green")
        .find_forbidden_changes(changes, fixed={"table.csv": Clause("text", {"text": "It is large."})})
        .values()
    )
    assert explain(refused) == "table.csv was modified; it has been restored. It is large. Leave it as it is."


def test_every_trespass_is_a_reason_that_names_the_path_and_what_was_done() -> None:
    changes = (
        Change(path="prices.py", kind="modified"),
        Change(path="sale.py", kind="deleted"),
        Change(path="tests/test_a.py", kind="created"),
    )
    found = PhaseLocks(phase="red").find_forbidden_changes(changes)
    assert [(path, reason.code, explain(reason).partition("; ")[0]) for path, reason in found.items()] == [
        ("prices.py", "source_changed", "prices.py was modified"),
        ("sale.py", "source_changed", "sale.py was deleted"),
    ]
    (refused,) = PhaseLocks(phase="green").find_forbidden_changes(changes).values()
    assert (refused.code, explain(refused).partition("; ")[0]) == ("protected_changed", "tests/test_a.py was created")


def test_nothing_done_is_enough_only_in_the_refactoring_after_green() -> None:
    assert verdict.judge_no_change(item("feature"), "refactor", judged=None).open
    others: list[tuple[Kind, Phase]] = [
        ("feature", "red"),
        ("feature", "green"),
        ("docs", "green"),
        ("refactor", "refactor"),
    ]
    for kind, phase in others:
        judged = verdict.judge_no_change(item(kind), phase, judged=None)
        assert [reason.code for reason in judged.reasons] == ["no_change"]
        assert not judged.open


def test_a_run_without_a_report_closes_the_gate_with_its_problem() -> None:
    for broken, expected in (
        (None, ("run_incomplete", None)),
        (StreamProblem("no_finish", "a.py::t"), ("run_incomplete", "a.py::t")),
        (StreamProblem("wrong_digest"), ("untrusted", None)),
    ):
        run = replace(no_report("the tests did not end within 3 s"), broken=broken)
        judged = verdict.judge_incomplete_run("green", run)
        assert not judged.open
        assert [(each.code, each.nodeid, explain(each)) for each in judged.reasons] == [(*expected, run.problem)]


def test_no_phase_may_add_a_file_that_is_loaded_in_the_place_of_a_test_tool() -> None:
    changes = (Change(path="src/pluggy.py", kind="created"), Change(path="conftest/pytest.py", kind="created"))
    for phase in ("red", "green", "refactor"):
        assert "src/pluggy.py" in PhaseLocks(phase=phase).find_forbidden_changes(changes)
    kept = (Change(path="src/pluggy.py", kind="modified"),)
    assert PhaseLocks(phase="green").find_forbidden_changes(kept) == {}


def test_a_trespass_closes_an_open_verdict_and_is_said_once() -> None:
    ours = Reason(code="protected_changed", nodeid=None, parts={"path": "tests/test_a.py"})
    gates = Reason(code="protected_changed", nodeid=None, parts={"path": "a digest"})
    other = Reason(code="target_failed", nodeid="t")
    joined = verdict.add_reasons(Verdict(phase="green", open=False, reasons=(gates, other)), (ours,))
    assert joined.reasons == (ours, other)
    assert not verdict.add_reasons(Verdict(phase="green", open=True), (ours,)).open
    assert verdict.add_reasons(Verdict(phase="green", open=True), ()).open


@pytest.mark.parametrize("phase", ["red", "green", "refactor"])
def test_what_a_build_made_is_forbidden_unless_it_is_deleted(phase: Phase) -> None:
    path = "tests/data/sale.egg-info/PKG-INFO" if phase == "red" else "lib/sale.egg-info/PKG-INFO"
    kinds = [Change(path=path, kind=kind) for kind in ("created", "modified", "deleted")]
    found = [change.kind for change in kinds if PhaseLocks(phase=phase).find_forbidden_changes([change])]
    assert found == ["created", "modified"]


@pytest.mark.parametrize("phase", ["red", "green", "refactor"])
@pytest.mark.parametrize("path", [".gitattributes", "sub/a.pth", "tests/sitecustomize.py", "sub/.cdd/config.yaml"])
def test_a_protected_name_is_forbidden_at_any_depth_in_every_phase(phase: Phase, path: str) -> None:
    found = PhaseLocks(phase=phase).find_forbidden_changes([Change(path=path, kind="created")])
    assert found.keys() == {path}


VALUE = "Xk9vQ2mZ7Lp4Rt8s"


def test_an_added_value_of_an_ignored_file_closes_the_gate_with_its_place_and_without_itself() -> None:
    known = KnownValues()
    known.add(".env", f"TOKEN={VALUE}\nPASSWORD=hunter2\n".encode())
    old = f"a = 1\nb = '{VALUE}'\n".encode()
    files = {
        "shop.py": (b"a = 1\n", f"import os\na = 1\nb = '{VALUE}'\n".encode()),
        "moved.py": (old, b"# first\n" + old),
        "again.py": (old, old + f"c = '{VALUE}'\n".encode()),
        "short.py": (None, b"pin = 'hunter2'\n"),
        f"notes-{VALUE}.md": (None, b"nothing\n"),
        "copy.db": (None, b"\0\1" + VALUE.encode() + b"\0"),
    }
    found = verdict.find_copied_values(files, known=known)
    (reason,) = found.reasons
    assert reason.code == "value_copied"
    assert explain(reason).startswith("shop.py:3 holds a value of .env; again.py:3 holds a value of .env; The name ")
    assert "copy.db:2 holds a value of .env" in explain(reason)
    assert tell(found) == (
        "To review in the change: short.py:1 holds a value of .env, too short to tell whether it is secret.",
    )
    assert "moved.py" not in explain(reason), "it was there before"
    assert verdict.find_copied_values({"a.py": (None, b"import os\n")}, known=known) == Findings()
    (reason,) = verdict.find_copied_values({"a.json": (None, b"x" * 4_000_001)}, known=KnownValues()).reasons
    assert "not all of it was compared" in explain(reason)


def test_another_framework_that_no_longer_ends_with_an_error_when_a_test_fails_closes_the_gate() -> None:
    def ran(*outcomes: str, status: int, framework: str = "jest") -> SuiteReport:
        cases = tuple(Case(f"a.js::{at}", outcome, "a.js", at, 0.0) for at, outcome in enumerate(outcomes))
        return replace(EMPTY, tests=cases, exit_status=status, framework=framework)

    def judge(report: SuiteReport, *, baseline: SuiteReport) -> list[str]:
        judged = verdict.judge_run(item(tests=("a.js::0",)), "green", report=report, baseline=baseline)
        return [reason.code for reason in judged.reasons]

    before = ran("failed", "failed", status=1)
    assert judge(ran("passed", "failed", status=1), baseline=before) == []
    assert judge(ran("passed", "failed", status=0), baseline=before) == ["run_incomplete"]
    lenient = ran("failed", "failed", status=0)
    assert judge(ran("passed", "failed", status=0), baseline=lenient) == [], "the project wants it so"
    assert judge(ran("passed", "failed", status=0, framework="pytest"), baseline=before) == []


def make_case(name: str, outcome: str) -> Case:
    failure = Failure("call", "assertion", "test", "AssertionError", "no") if outcome == "failed" else None
    return Case(f"t.py::{name}", outcome, "t.py", 1, 0.0, failure=failure)


def judge_apart_from(before: SuiteReport, after: SuiteReport, *tests: str, waiting: tuple[str, ...]) -> list[str]:
    judged = verdict.judge_apart_from(waiting, item(tests=tests), report=after, baseline=before, conventions=PYTEST)
    assert judged.open is (not judged.reasons)
    return [f"{reason.code} {reason.nodeid}" for reason in judged.reasons]


def test_tests_that_wait_for_later_items_neither_open_nor_close_green() -> None:
    before = replace(EMPTY, tests=(*(make_case(name, "failed") for name in "abc"), make_case("d", "passed")))
    after = replace(EMPTY, tests=tuple(map(make_case, "abcd", ("passed", "failed", "failed", "passed"))))
    assert judge_apart_from(before, after, "t.py::a", "t.py::b", waiting=("t.py::b", "t.py::c")) == []
    assert judge_apart_from(before, after, "t.py::a", "t.py::b", waiting=()) == ["target_failed t.py::b"]
    assert judge_apart_from(before, after, waiting=()) == []
    broken = replace(after, tests=(*after.tests[:3], make_case("d", "failed")))
    assert judge_apart_from(before, broken, waiting=()) == ["broke_others t.py::d"]


def test_tests_that_are_skipped_in_a_file_that_can_be_collected_now_do_not_close_green() -> None:
    before = replace(EMPTY, collect_errors=(CollectError("t.py", Failure("collect", "name_error", "test", "E", "")),))
    after = replace(EMPTY, tests=(make_case("a", "passed"), make_case("b", "skipped")))
    assert judge_apart_from(before, after, "t.py", waiting=()) == []
    known = replace(EMPTY, tests=(make_case("b", "failed"),))
    assert judge_apart_from(known, after, "t.py::b", waiting=()) == ["skipped_target t.py::b"]
