from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cdd_agent.errors import UsageError
from cdd_agent.runs import request as requests
from cdd_agent.runs.request import (
    GreenRequest,
    Wanted,
    describe_purpose,
    make_title,
    require_failing,
    resolve_in_project,
    resolve_targets,
)
from cdd_agent.tickets.ticket import create
from pytest_tdd_agent.failure import Places, describe
from pytest_tdd_agent.report import Case, CollectError, Failure, SuiteReport
from tests.cdd_agent.testrun.test_project_detection import lay

WRONG = Failure(phase="call", kind="assertion", origin="test", exception="AssertionError", message="1 != 2")
MISSING = replace(WRONG, kind="missing_module", exception="ModuleNotFoundError", phase="collect")
REPORT = SuiteReport(
    complete=True,
    exit_status=1,
    nonce="n",
    python="3.11.7",
    pytest="9.0",
    rootdir="/",
    started_at="2026-01-31T12:00:00Z",
    duration_s=0.1,
)


def case(nodeid: str, outcome: str = "failed") -> Case:
    failure = WRONG if outcome == "failed" else None
    return Case(nodeid=nodeid, outcome=outcome, file="t.py", line=1, duration_s=0.0, failure=failure)


SEEN = replace(
    REPORT,
    tests=(case("t.py::a"), case("t.py::b", "passed"), case("t.py::c", "skipped")),
    collect_errors=(CollectError(nodeid="u.py", failure=MISSING),),
)


def test_the_run_has_the_same_name_for_the_same_tests_in_whatever_order() -> None:
    one, other = (
        Wanted(targets=targets) for targets in (("tests/test_a.py::x", "b.py"), ("b.py", "tests/test_a.py::x"))
    )
    assert one.slug.removeprefix("green-test-a-") == other.slug.removeprefix("green-b-")
    assert one.slug != Wanted(targets=("tests/test_a.py::y", "b.py")).slug


def test_the_commands_that_go_on_can_be_typed() -> None:
    ways = Wanted(targets=("tests/test_a.py::t[a b]",)).commands
    assert (ways.resume, ways.restart) == (
        "cdd green 'tests/test_a.py::t[a b]'",
        "cdd green 'tests/test_a.py::t[a b]' --anew",
    )


def test_paths_are_the_project_s_wherever_they_are_typed(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    assert resolve_in_project(tmp_path, ["tests/test_a.py::x", "./tests"]) == ("tests/test_a.py::x", "tests")
    assert resolve_in_project(tmp_path, ["test_a.py"], here=tmp_path / "tests") == ("tests/test_a.py",)
    assert resolve_in_project(tmp_path, [str(tmp_path / "tests" / "test_a.py")]) == ("tests/test_a.py",)


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ([], "No test is named"),
        (["--co"], "'--co' does not name a test"),
        (["@args"], "'@args' does not name a test"),
        (["tests/test_b.py"], r"There is no tests/test_b.py .*"),
        (["../other.py"], r"outside the project|There is no"),
        (["/etc/passwd"], "outside the project"),
        ([f"t{number}.py" for number in range(300)], "300 tests are named"),
    ],
)
def test_what_is_no_test_of_the_project_is_refused(tmp_path: Path, targets: list[str], told: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    with pytest.raises(UsageError, match=told):
        resolve_in_project(tmp_path, targets)


@pytest.fixture
def services(tmp_path: Path) -> Path:
    """Two packages in a repository that has no framework itself."""
    return lay(
        tmp_path,
        {
            "services/a/go.mod": "module a\n",
            "services/a/cart_test.go": "",
            "services/b/conftest.py": "",
            "services/b/tests/test_cart.py": "",
            "README.md": "",
        },
    )


@pytest.mark.parametrize(
    ("typed", "here", "project", "targets"),
    [
        (["services/b/tests/test_cart.py::test_a"], ".", "services/b", ("tests/test_cart.py::test_a",)),
        (["services/a/cart_test.go"], ".", "services/a", ("cart_test.go",)),
        (["a/cart_test.go", "services/a"], "services", "services/a", ("cart_test.go", ".")),
    ],
)
def test_where_the_root_has_no_framework_the_folder_nearest_to_the_tests_is_the_project(
    services: Path, monkeypatch: pytest.MonkeyPatch, *, typed: list[str], here: str, project: str, targets: tuple[str]
) -> None:
    wanted = resolve_targets(services, typed, here=services / here)
    assert (wanted.project, wanted.targets) == (services / project, targets)
    monkeypatch.chdir(services)
    assert wanted.commands.resume == f"cdd --project {project} green {' '.join(targets)}"


def test_a_root_with_a_framework_is_the_project_of_all_its_tests(services: Path) -> None:
    lay(services, {"pytest.ini": ""})
    wanted = resolve_targets(services, ["services/a/cart_test.go"])
    assert (wanted.project, wanted.targets) == (None, ("services/a/cart_test.go",))


def test_tests_of_two_projects_are_refused_with_both_named(services: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(services)
    with pytest.raises(UsageError) as caught:
        resolve_targets(services, ["services/a/cart_test.go", "services/b/tests"])
    assert "services/a/cart_test.go to services/a and services/b/tests to services/b" in caught.value.happened
    assert caught.value.hint.endswith("cdd --project services/a green TEST...")
    with pytest.raises(UsageError, match=r"README.md to .*, which has no framework"):
        resolve_targets(services, ["README.md", "services/b/tests"])


def test_a_name_that_is_nearly_right_is_named(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_cart.py").touch()
    with pytest.raises(UsageError) as caught:
        resolve_in_project(tmp_path, ["tests/test_crat.py"])
    assert caught.value.hint == "did you mean tests/test_cart.py?"


def test_each_target_has_to_fail_or_not_to_be_importable() -> None:
    require_failing(("t.py::a", "t.py", "u.py", "u.py::x"), SEEN)
    for target, told in (
        ("t.py::b", "t.py::b already passes"),
        ("t.py::c", r"t.py::c did not fail \(skipped\)"),
        ("t.py::d", "t.py::d does not match a test that was run"),
    ):
        with pytest.raises(UsageError, match=told):
            require_failing(("t.py::a", target), SEEN)
    with pytest.raises(UsageError) as caught:
        require_failing(("elsewhere/of_another.js::halves",), SEEN)
    assert caught.value.hint == "name an existing test, or the whole file"


@pytest.mark.parametrize("target", ["s.py", "s.py::t", "."])
def test_a_file_that_skips_itself_is_named_with_its_reason(target: str) -> None:
    skipped = Case("s.py", "skipped", "s.py", 0, 0.0, reason="could not import 'numpy'")
    with pytest.raises(UsageError, match=r"s.py skipped itself as a whole \(could not import 'numpy'\)"):
        require_failing((target,), replace(REPORT, tests=(skipped,), collect_errors=()))


def test_of_an_exit_status_no_test_can_be_named() -> None:
    with pytest.raises(UsageError, match=r"make does not report single tests") as caught:
        require_failing(("check.sh",), replace(REPORT, framework="make", structured=False))
    assert "framework: NAME" in caught.value.hint


def test_the_hint_leaves_out_what_does_not_fail() -> None:
    with pytest.raises(UsageError) as caught:
        require_failing(("t.py::a", "t.py::b", "u.py"), SEEN)
    assert caught.value.hint.endswith("cdd green t.py::a u.py")


def test_missing_code_is_a_feature_and_wrong_code_a_bug() -> None:
    assert Wanted(targets=("t.py",)).make_request(SEEN, now="n", head="h").kind == "bug"
    settled = Wanted(targets=("t.py", "u.py")).make_request(SEEN, now="n", head="h")
    assert (settled.kind, settled.failing, settled.test_files) == ("feature", ("u.py", "t.py::a"), ("u.py", "t.py"))
    assert Wanted(targets=("t.py",), kind="feature").make_request(SEEN, now="n", head="h").kind == "feature"


def test_an_attribute_of_none_is_wrong_code() -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(None, "lid")  # noqa: B009
    none = describe(raised.value, phase="call", places=Places("/"), test_file="t.py", source=lambda _: None)
    seen = replace(SEEN, tests=(replace(SEEN.tests[0], failure=none),))
    assert Wanted(targets=("t.py",)).make_request(seen, now="n", head="h").kind == "bug"


def test_a_commit_is_called_by_what_it_makes_pass_unless_a_title_is_given() -> None:
    assert make_title(["tests/t.py::C::test_x[1]"]) == "make test_x[1] pass"
    assert make_title(["t.py::a", "t.py::b"]) == "make 2 tests of t.py pass"
    assert make_title(["t.py::a", "u.py::b"]) == "make 2 tests pass"
    assert Wanted(targets=("t.py",), title="a\nb").make_request(SEEN, now="n", head="h").title == "a b"


def test_a_request_is_kept_beside_the_run_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    wanted = Wanted(targets=("t.py",), spec_id="S-1", request_id="R-1")
    run = wanted.find_run(tmp_path)
    assert requests.load(run) is None
    settled = wanted.make_request(SEEN, now="n", head="h")
    requests.save(run, settled)
    assert requests.load(run) == settled
    assert (settled.spec_id, settled.request_id) == ("S-1", "R-1")
    (run.folder / "request.json").write_text("{")
    assert requests.load(run) is None


@pytest.mark.parametrize(
    ("targets", "tests"),
    [
        (("src",), ("src/a_test.py", "src/b/c_test.py")),
        ((".",), ("src/a_test.py", "src/b/c_test.py")),
        (("src/b", "src/a_test.py::x"), ("src/b/c_test.py", "src/a_test.py::x")),
        (("src/a_test.py",), ("src/a_test.py",)),
        (("src/b/c_test.py", "src"), ("src/b/c_test.py", "src/a_test.py")),
    ],
)
def test_a_folder_stands_for_the_files_in_it_that_hold_what_fails(
    targets: tuple[str, ...], tests: tuple[str, ...]
) -> None:
    request = GreenRequest(
        targets=targets,
        title="t",
        kind="bug",
        spec_id="s",
        request_id="r",
        failing=("src/a_test.py::x", "src/a_test.py::y", "src/b/c_test.py"),
    )
    assert request.make_item("green-src").tests == tests
    assert request.targets == targets


def test_the_project_s_folder_holds_all_that_fails() -> None:
    require_failing((".",), SEEN)


SPEC = """\
title: Totals
description: |
  Shops add prices.
acceptance_criteria:
  - id: AC-1
    text: THE SYSTEM SHALL add all prices
out_of_scope: [Taxes.]
technical_notes: Integers only.
"""


def test_the_purpose_is_that_of_a_ticket_with_the_user_s_own_words_before(tmp_path: Path) -> None:
    made = create(tmp_path, "totals", title="Totals", type="feature")
    made.spec_path.write_text(SPEC)
    wanted = Wanted(targets=("t.py::a",))
    full = describe_purpose(tmp_path, wanted, spec="totals", goal="For the till.", criteria=["", "Round\ndown."])
    assert full.goal.startswith("For the till.\n\nTotals\n\nThe ticket that this is a part of:\nShops add prices.\n\n")
    assert "- Taxes." in full.goal
    assert full.goal.endswith("Integers only.")
    assert full.criteria == (("AC-1", "THE SYSTEM SHALL add all prices"), ("AC-2", "Round down."))
    request = full.make_request(SEEN, now="", head="")
    item = request.make_item("x")
    assert (request.spec_id, item.criteria) == ("totals", full.criteria)
    assert "- AC-2: Round down." in item.goal
    assert "order" not in item.goal, "one test has none"
    assert describe_purpose(tmp_path, replace(wanted, spec_id="mine"), spec="totals").spec_id == "mine"
    assert describe_purpose(tmp_path, wanted) == wanted
    assert len(describe_purpose(tmp_path, wanted, goal="x" * 99_999).goal) == requests.MAX_GOAL_CHARACTERS
    for name in ("other", "../totals", ""):
        if name:
            with pytest.raises(UsageError):
                describe_purpose(tmp_path, wanted, spec=name)


def test_a_request_that_an_older_version_saved_has_no_words(tmp_path: Path) -> None:
    run = Wanted(targets=("t.py::a",)).find_run(tmp_path)
    request = Wanted(targets=("t.py::a",)).make_request(SEEN, now="", head="")
    run.folder.mkdir(parents=True)
    old = {key: value for key, value in msgspec.to_builtins(request).items() if key not in ("goal", "criteria")}
    requests.request_path(run).write_bytes(msgspec.json.encode(old))
    assert requests.load(run) == request
