import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_tdd_agent.comparison import find_spared
from pytest_tdd_agent.failure import BEHAVIORAL, STRUCTURAL, find_stage
from pytest_tdd_agent.gate import CODES, judge
from pytest_tdd_agent.report import Case, Clause, CollectError, Failure, Sign, SuiteReport, Verdict
from pytest_tdd_agent.wording import TEMPLATES, as_clause, explain

OLD = "tests/test_a.py::test_old"
NEW = "tests/test_a.py::test_new"
BASELINE_FINGERPRINTS = {"tests/test_a.py": "1"}


def failure(kind: str = "assertion", **fields: str | bool | None) -> Failure:
    plain = Failure("call", kind, "test", "AssertionError", "assert 1 == 2", path="tests/test_a.py", line=3)
    return replace(plain, **fields)  # type: ignore[arg-type]


def case(nodeid: str, outcome: str = "passed", why: Failure | None = None) -> Case:
    if outcome in ("failed", "error") and why is None:
        why = failure()
    return Case(nodeid, outcome, nodeid.split("::", maxsplit=1)[0], 1, 0.1, failure=why)


def run(*cases: Case, errors: tuple[CollectError, ...] = (), complete: bool = True, **prints: str) -> SuiteReport:
    return SuiteReport(
        complete=complete,
        exit_status=0,
        nonce="",
        python="3.11.7",
        pytest="9.2.0",
        rootdir="/p",
        started_at="",
        duration_s=1.0,
        tests=cases,
        collect_errors=errors,
        collected=len(cases),
        fingerprints=prints or BASELINE_FINGERPRINTS,
    )


def run_changed(*cases: Case) -> SuiteReport:
    """A run after a change of the test file."""
    return replace(run(*cases), fingerprints={**BASELINE_FINGERPRINTS, "tests/test_a.py": "changed"})


def uncollected(nodeid: str = "tests/test_a.py", **fields: str | None) -> CollectError:
    plain = failure("missing_module", phase="collect", exception="ModuleNotFoundError", missing_name="ledger.export")
    return CollectError(nodeid, replace(plain, **fields))  # type: ignore[arg-type]


def codes(verdict: Verdict) -> list[str]:
    assert verdict.open is (verdict.reasons == ())
    assert {reason.code for reason in verdict.reasons} <= set(CODES)
    assert [explain(reason) for reason in verdict.reasons if not ACTION.search(explain(reason))] == []
    for reason in verdict.reasons:
        check_words(as_clause(reason))
    return [reason.code for reason in verdict.reasons]


def check_words(clause: Clause) -> None:
    """Check that there is a template, and that the parts have all that it names."""
    assert set(re.findall(r"{(\w+)", TEMPLATES[clause.case])) <= clause.parts.keys(), clause.case
    for part in clause.parts.values():
        if isinstance(part, Clause):
            check_words(part)


ACTION = re.compile(
    r"(?:^|[.;:] |, or |, and |, )(?:check|fix|give|let|make|name|provide|remove|restore|run|take|undo|write) ", re.I
)
"""Begins what to do."""
BASELINE = run(case(OLD))
OPENED = Verdict("red", open=True)


def red(report: SuiteReport, *targets: str, baseline: SuiteReport | None = BASELINE, expects: str = "") -> list[str]:
    return codes(judge("red", report, baseline=baseline, targets=targets, expects=expects.split()))


def green(report: SuiteReport, *targets: str, baseline: SuiteReport | None = BASELINE) -> list[str]:
    return codes(judge("green", report, baseline=baseline, targets=targets))


def test_red_opens_when_the_target_fails_for_a_right_reason_and_the_rest_passes() -> None:
    assert red(run(case(OLD), case(NEW, "failed")), NEW) == []
    assert red(run(case(OLD), case(NEW, "failed"))) == []
    assert red(run(case(NEW, "failed")), NEW, baseline=None) == []


@pytest.mark.parametrize("kind", BEHAVIORAL)
def test_red_opens_for_each_behavioral_kind(kind: str) -> None:
    assert red(run(case(OLD), case(NEW, "failed", failure(kind))), NEW) == []


@pytest.mark.parametrize("kind", [kind for kind in STRUCTURAL if kind != "not_implemented"])
def test_red_opens_for_a_missing_name_only_if_it_is_expected(kind: str) -> None:
    report = run(case(OLD), case(NEW, "failed", failure(kind, missing_name="ledger.export")))
    assert red(report, NEW, expects="ledger.export") == []
    assert red(report, NEW, expects="ledger.imports") == ["name_not_expected"]
    assert red(report, NEW) == ["name_not_expected"]


@pytest.mark.parametrize(
    ("kind", "origin", "reasons"),
    [
        ("not_implemented", "project", []),
        ("not_implemented", "test", ["wrong_reason"]),
        ("name_error", "project", []),
        ("name_error", "test", ["name_not_expected"]),
    ],
)
def test_red_takes_a_stub_of_the_product_and_not_one_of_the_test(kind: str, origin: str, *, reasons: list[str]) -> None:
    why = failure(kind, origin=origin, missing_name="x")
    assert red(run(case(OLD), case(NEW, "failed", why)), NEW) == reasons


@pytest.mark.parametrize("kind", ["syntax_error", "pytest_fail", "timeout", "crash", "resource", "system_exit"])
def test_red_stays_closed_for_any_other_kind(kind: str) -> None:
    assert red(run(case(OLD), case(NEW, "failed", failure(kind))), NEW, expects="x") == ["wrong_reason"]


def test_red_sees_a_typing_error_inside_raises_but_not_a_defect_of_the_product() -> None:
    typo = failure("wrong_exception", exception="NameError", missing_name="exprot")
    assert red(run(case(OLD), case(NEW, "failed", typo)), NEW, expects="export") == ["name_not_expected"]
    assert red(run(case(OLD), case(NEW, "failed", replace(typo, origin="project"))), NEW) == []


def test_red_takes_an_exception_of_the_product_that_was_declared() -> None:
    crash = failure("exception", origin="project", exception="IndexError")
    report = run(case(OLD), case(NEW, "failed", crash))
    assert red(report, NEW, expects="IndexError") == []
    assert red(report, NEW) == ["wrong_reason"]
    reasons = judge("red", report, baseline=BASELINE, targets=[NEW]).reasons
    assert "declare IndexError as expected" in explain(reasons[0])
    assert red(run(case(OLD), case(NEW, "failed", replace(crash, origin="test"))), NEW, expects="IndexError") == [
        "wrong_reason"
    ]


@pytest.mark.parametrize(
    ("fields", "expects", "expected"),
    [
        ({"kind": "assertion"}, "", "behavioral"),
        ({"kind": "assertion", "phase": "setup"}, "", None),
        ({"kind": "assertion", "origin": "third_party"}, "", "behavioral"),
        ({"kind": "not_implemented", "origin": "project"}, "", "structural"),
        ({"kind": "missing_module", "missing_name": "a.b", "phase": "collect"}, "a.b", "structural"),
        ({"kind": "missing_module", "missing_name": "a.b", "phase": "setup"}, "a.b", None),
        ({"kind": "missing_module", "missing_name": "a.b", "missing_in_project": True}, "", None),
        ({"kind": "missing_module", "missing_name": "a.b", "missing_in_project": False}, "a.b", None),
        ({"kind": "import_error", "missing_name": "a.b", "missing_in_project": False}, "a.b", None),
        ({"kind": "signature_mismatch", "missing_name": "a.b", "missing_in_project": False}, "b", None),
        ({"kind": "attribute_error", "missing_name": "a.b", "missing_in_project": False}, "b", "structural"),
        ({"kind": "import_error", "missing_name": None}, "b", None),
        ({"kind": "wrong_exception", "exception": "KeyError", "origin": "project"}, "", "behavioral"),
        ({"kind": "wrong_exception", "exception": "NotImplementedError", "origin": "project"}, "", "structural"),
        ({"kind": "wrong_exception", "exception": "NotImplementedError", "origin": "test"}, "", None),
        ({"kind": "wrong_exception", "exception": "TypeError", "missing_name": "a.f.x"}, "", None),
        ({"kind": "wrong_exception", "exception": "TypeError", "missing_name": "a.f.x"}, "a.f", "structural"),
        ({"kind": "wrong_exception", "exception": "SyntaxError"}, "", None),
        (
            {"kind": "wrong_exception", "exception": "ModuleNotFoundError", "origin": "project", "missing_name": "a"},
            "",
            None,
        ),
        ({"kind": "exception", "exception": "KeyError", "origin": "project"}, "KeyError", "behavioral"),
        ({"kind": "timeout", "exception": "TimeoutError", "origin": "project"}, "TimeoutError", None),
        ({"kind": "exception", "exception": "TypeError", "message": "not NoneType"}, "", "behavioral"),
        ({"kind": "exception", "exception": "TypeError", "message": "not str"}, "", None),
        ({"kind": "exception", "exception": "ValueError", "message": "not NoneType"}, "", None),
        ({"kind": "exception", "exception": "TypeError", "message": "not NoneType", "origin": "project"}, "", None),
    ],
)
def test_a_right_reason_is_of_one_of_two_stages(
    fields: dict[str, str | None], expects: str, *, expected: str | None
) -> None:
    assert find_stage(replace(failure(), **fields), expects.split()) == expected  # type: ignore[arg-type]


def test_red_says_of_a_name_in_a_library_that_the_project_cannot_make_it() -> None:
    why = failure("import_error", missing_name="json.no_such", missing_in_project=False)
    verdict = judge("red", run(case(NEW, "failed", why)), targets=[NEW], expects=["json.no_such"])
    assert codes(verdict) == ["wrong_reason"]
    assert "json.no_such is missing, which does not belong to this project" in explain(verdict.reasons[0])


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (case(NEW), "already_green"),
        (case(NEW, "xpassed"), "already_green"),
        (case(NEW, "failed", failure("xpass_strict")), "already_green"),
        (replace(case(NEW, "failed"), tries=("assertion", "passed")), "flaky_target"),
        (replace(case(NEW), tries=("assertion", "passed"), reruns=1), "flaky_target"),
        (case(NEW, "skipped"), "skipped_target"),
        (case(NEW, "xfailed"), "skipped_target"),
        (case(NEW, "error", failure(phase="setup")), "wrong_phase"),
        (case(NEW, "error", failure(phase="teardown")), "wrong_phase"),
    ],
)
def test_red_stays_closed_unless_the_target_fails_in_its_body(now: Case, code: str) -> None:
    assert red(run(case(OLD), now), NEW) == [code]
    assert red(run(case(OLD), now)) == [code]


def test_red_names_a_target_that_is_not_there_and_its_neighbors() -> None:
    verdict = judge("red", run(case(OLD), case(NEW, "failed")), baseline=BASELINE, targets=[NEW, NEW + "er"])
    assert codes(verdict) == ["target_missing"]
    assert verdict.reasons[0].nodeid == NEW + "er"
    assert OLD in explain(verdict.reasons[0])
    elsewhere = judge("red", run(case(OLD)), baseline=BASELINE, targets=["checks/test_b.py::test_b"])
    assert "`testpaths`" in explain(elsewhere.reasons[0])


def test_red_wants_a_new_test() -> None:
    assert red(run(case(OLD))) == ["no_tests"]
    assert red(run(), baseline=None) == ["no_tests"]
    assert red(run(case(OLD)), "tests/test_a.py") == ["target_missing"]


@pytest.mark.parametrize(
    "target", ["tests", "tests/", "tests/test_a.py", "tests/test_a.py::TestX", "tests/test_a.py::TestX::test_new"]
)
def test_a_target_may_hold_tests_and_means_the_new_ones(target: str) -> None:
    one, two = "tests/test_a.py::TestX::test_new[1]", "tests/test_a.py::TestX::test_new[2]"
    old = "tests/test_a.py::TestX::test_old"
    before = run(case(old))
    assert red(run(case(old), case(one, "failed"), case(two, "failed")), target, baseline=before) == []
    assert red(run(case(old), case(one, "failed"), case(two)), target, baseline=before) == []
    assert red(run(case(old), case(one), case(two)), target, baseline=before) == ["already_green"]
    assert red(run(case(old, "failed"), case(one, "failed"), case(two)), target, baseline=before) == ["broke_others"]


def test_a_changed_test_may_be_the_target_by_its_name() -> None:
    assert red(run(case(OLD, "failed")), OLD) == []
    before = run(case(OLD + "[1]"), case(OLD + "[2]"))
    now = (case(OLD + "[1]", "failed"), case(OLD + "[2]", "failed"))
    assert red(run_changed(*now), OLD, baseline=before) == []
    assert set(red(run(*now), OLD, baseline=before)) == {"target_missing", "broke_others"}, "its file is unchanged"


CASES = [f"{OLD}[{number}-{number}]" for number in range(13)]


@pytest.mark.parametrize(
    ("now", "report", "expected"),
    [
        ([case(CASES[0], "failed"), *map(case, CASES[1:])], run_changed, []),
        ([case(f"{OLD}[0-1]", "failed"), *map(case, CASES[1:])], run_changed, []),
        ([*map(case, CASES), case(f"{OLD}[13-0]", "failed")], run_changed, []),
        ([*map(case, CASES), case(f"{OLD}[13-0]", "failed"), case(f"{OLD}[14-0]")], run_changed, []),
        ([case(CASES[0], "skipped"), *map(case, CASES[1:]), case(f"{OLD}[13-0]", "failed")], run, ["broke_others"]),
        ([case(CASES[0], "failed"), *map(case, CASES[1:]), case(f"{OLD}[13-0]", "failed")], run, ["broke_others"]),
        ([*map(case, CASES[1:]), case(f"{OLD}[13-0]", "failed"), case(f"{OLD}[14-0]")], run_changed, []),
        ([*map(case, CASES[2:]), case(f"{OLD}[13-0]", "failed")], run_changed, ["test_removed"]),
        ([*map(case, CASES)], run_changed, ["already_green"]),
        ([*map(case, CASES)], run, ["already_green"]),
        ([*map(case, CASES), case(f"{OLD}[13-0]", "failed", failure("timeout"))], run_changed, ["wrong_reason"]),
        (
            [*map(case, CASES), case(f"{OLD}[13-0]", "failed"), case(f"{OLD}[14]", "skipped")],
            run_changed,
            ["skipped_target"],
        ),
    ],
)
def test_a_named_test_with_parameters_is_red_if_a_new_or_changed_case_fails_and_the_others_pass(
    now: list[Case], report: Callable[..., SuiteReport], expected: list[str]
) -> None:
    before = run(*map(case, CASES))
    verdict = judge("red", report(*now), baseline=before, targets=[OLD])
    assert codes(verdict) == expected
    assert [each.nodeid for each in verdict.reasons if each.code == "already_green"] in ([], [OLD])


def test_a_target_of_which_all_tests_pass_is_one_reason_with_their_number() -> None:
    new = [case(f"{NEW}[{number}]") for number in range(13)]
    for target in (NEW, "tests/test_a.py", "tests"):
        verdict = judge("red", run(case(OLD), *new), baseline=BASELINE, targets=[target])
        assert [(each.code, each.nodeid) for each in verdict.reasons] == [("already_green", target)]
        assert "All 13 new or changed tests" in explain(verdict.reasons[0])
    assert red(run(case(OLD), *new)) == ["already_green"]
    assert red(run(case(OLD), *new, case("tests/test_a.py::test_z", "failed"))) == ["already_green"]


def test_a_changed_expectation_is_a_red_of_the_file_that_holds_it() -> None:
    before = run(case(f"{OLD}[1-1]"), case(f"{OLD}[2-2]"))
    now = run_changed(case(f"{OLD}[1-1]"), case(f"{OLD}[2-3]", "failed"))
    assert red(now, "tests/test_a.py", baseline=before) == []
    assert red(now, "tests/test_a.py", baseline=replace(before, unstable=(OLD,))) == ["target_missing", "broke_others"]
    assert red(now, baseline=before) == ["no_tests", "broke_others"], "it is not named"


def test_red_lets_old_failures_stay_and_no_other_test_break() -> None:
    other = "tests/test_b.py::test_b"
    report = run(case(OLD), case(NEW, "failed"), case(other, "failed"))
    assert red(report, NEW, baseline=run(case(OLD), case(other, "failed"))) == []
    assert red(report, NEW, baseline=run(case(OLD), case(other))) == ["broke_others"]
    assert red(report, NEW) == ["untargeted_failure"]
    assert red(run(case(NEW, "failed")), NEW) == ["test_removed"]
    for outcome in ("error", "skipped", "xfailed", "xpassed"):
        assert red(run(case(OLD, outcome), case(NEW, "failed")), NEW) == ["broke_others"]


def test_red_opens_when_the_targets_file_cannot_be_collected_for_an_expected_name() -> None:
    report = run(errors=(uncollected(),))
    assert red(report, NEW, "tests/test_a.py::test_newer", expects="ledger.export") == []
    assert red(report, "tests/test_a.py", expects="ledger.export") == []
    assert red(report, expects="ledger.export") == []
    assert red(report, NEW) == ["name_not_expected"]
    broken = run(errors=(uncollected(kind="syntax_error"),))
    assert red(broken, NEW, expects="ledger.export") == ["wrong_reason"]


def test_a_folder_that_cannot_be_collected_holds_its_tests_back() -> None:
    report = run(errors=(uncollected("tests/__init__.py"),))
    assert red(report, NEW, expects="ledger.export") == []


def test_a_file_that_cannot_be_collected_any_more_is_said_once() -> None:
    other = uncollected("tests/test_b.py")
    before = run(case(OLD), case("tests/test_b.py::t1"), case("tests/test_b.py::t2"))
    assert red(run(case(OLD), case(NEW, "failed"), errors=(other,)), NEW, baseline=before) == ["collect_error"]
    assert green(run(case(OLD), case(NEW), errors=(other,)), NEW, baseline=before) == ["collect_error"]
    assert (
        green(run(case(OLD), case(NEW), errors=(other,)), NEW, baseline=replace(BASELINE, collect_errors=(other,)))
        == []
    )


def test_a_message_names_the_test_the_kind_and_what_would_be_right() -> None:
    why = failure("fixture_missing", message="fixture 'x' not found\navailable: y")
    reason = judge("red", run(case(NEW, "failed", why)), targets=[NEW]).reasons[0]
    assert reason.nodeid == NEW
    for part in (NEW, "fixture_missing", "fixture 'x' not found", "tests/test_a.py:3", "Make it fail by"):
        assert part in explain(reason)


def test_green_opens_when_the_targets_pass_and_nothing_broke() -> None:
    assert green(run(case(OLD), case(NEW)), NEW) == []
    assert green(run(case(OLD), case(NEW))) == []
    assert green(run(case(OLD), case(NEW)), "tests/test_a.py", baseline=None) == []
    before = run(case(OLD), case(NEW, "failed"), case("b.py::t", "failed"))
    assert green(run(case(OLD), case(NEW), case("b.py::t", "failed")), NEW, baseline=before) == []


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (case(NEW, "failed"), "target_failed"),
        (case(NEW, "error", failure(phase="teardown")), "target_failed"),
        (case(NEW, "skipped"), "skipped_target"),
        (case(NEW, "xfailed"), "skipped_target"),
        (case(NEW, "xpassed"), "target_failed"),
        (case(NEW, "failed", failure("xpass_strict")), "target_failed"),
        (replace(case(NEW), phases={"setup": 0.1, "teardown": 0.1}), "target_failed"),
        (case("tests/test_b.py::t"), "target_missing"),
    ],
)
def test_green_stays_closed_unless_the_target_ran_and_passed(now: Case, code: str) -> None:
    assert green(run(case(OLD), now), NEW) == [code]


@pytest.mark.parametrize("outcome", ["failed", "error", "skipped", "xfailed", "xpassed"])
def test_green_stays_closed_when_another_test_no_longer_passes(outcome: str) -> None:
    assert green(run(case(OLD, outcome), case(NEW)), NEW) == ["broke_others"]


def test_green_stays_closed_for_a_removed_and_for_a_new_failing_test() -> None:
    assert green(run(case(NEW)), NEW) == ["test_removed"]
    assert green(run(case(OLD), case(NEW), case("b.py::t", "failed")), NEW) == ["new_failure"]


def test_green_without_targets_wants_every_test_that_ran_to_pass_unless_it_failed_before() -> None:
    old_failure = run(case(OLD), case("b.py::t", "failed"))
    assert green(run(case(OLD), case("b.py::t", "failed")), baseline=old_failure) == []
    assert green(run(case(OLD), case("b.py::t", "failed")), baseline=None) == ["target_failed"]
    assert green(run(case(OLD), case("b.py::t", "skipped"))) == []
    assert green(run(case("b.py::t", "skipped")), baseline=None) == ["no_tests"]
    assert green(run(case(OLD), errors=(uncollected("b.py"),))) == ["target_failed"]


def test_green_says_why_a_targets_file_cannot_be_collected() -> None:
    verdict = judge("green", run(errors=(uncollected(),)), targets=[NEW])
    assert codes(verdict) == ["target_failed"]
    assert "missing_module" in explain(verdict.reasons[0])


def test_green_names_each_protected_file_that_changed_was_added_or_was_removed() -> None:
    before = replace(BASELINE, fingerprints={"tests/a.py": "1", "tests/b.py": "1", "tests/c.py": "1"})
    after = replace(run(case(OLD), case(NEW)), fingerprints={"tests/a.py": "1", "tests/b.py": "2", "tests/d.py": "1"})
    verdict = judge("green", after, baseline=before, targets=[NEW])
    assert codes(verdict) == ["protected_changed"] * 3
    said = " ".join(explain(reason) for reason in verdict.reasons)
    assert all(part in said for part in ("b.py was changed", "c.py was removed", "d.py was added"))
    assert codes(judge("red", replace(after, tests=(case(OLD), case(NEW, "failed"))), baseline=before)) == []


@pytest.mark.parametrize("target", ["tests", "tests/test_a.py"])
def test_green_spares_the_old_trouble_of_a_target_that_holds_several_tests(target: str) -> None:
    file = "tests/test_a.py::"
    trouble = (case(file + "s", "skipped"), case(file + "x", "xfailed"), case(file + "p", "xpassed"))
    old = case(file + "f", "failed")
    before = run(case(OLD), *trouble, old, case(NEW, "failed"))
    known = replace(before, old_failures=(old.nodeid,), gate=OPENED)
    assert green(run(case(OLD), *trouble, old, case(NEW)), target, baseline=known) == []
    assert green(run(case(OLD), *trouble, old, case(NEW)), target, baseline=before) == ["target_failed"]
    assert green(run(case(OLD), *trouble, old, case(NEW, "failed")), target, baseline=known) == ["target_failed"]
    assert green(run(case(OLD), *trouble, old, case(NEW, "skipped")), target, baseline=known) == ["skipped_target"]
    worse = case(file + "s", "failed")
    assert green(run(case(OLD), worse, *trouble[1:], old, case(NEW)), target, baseline=known) == ["target_failed"]
    assert green(run(case(OLD), *trouble, old, case(NEW)), old.nodeid, baseline=known) == ["target_failed"]


def test_green_wants_a_target_of_nothing_but_old_trouble_to_pass() -> None:
    before = run(case(OLD), case("tests/test_b.py::s", "skipped"))
    assert green(before, "tests/test_b.py", baseline=before) == ["skipped_target"]


def test_refactor_spares_what_failed_in_a_target_before() -> None:
    before = run(case(OLD), case(NEW, "failed"))
    assert codes(judge("refactor", before, baseline=before, targets=["tests/test_a.py"])) == []


def test_no_rerun_rescues_a_target_but_it_does_a_test_that_passed_before() -> None:
    flaky = replace(case(NEW), reruns=1, tries=("assertion", "passed"), failure=failure())
    old = replace(flaky, nodeid=OLD)
    assert green(run(old, case(NEW)), NEW) == []
    assert green(run(old, case(NEW)), "tests/test_a.py") == []
    for targets in ((), (NEW,), ("tests/test_a.py",)):
        assert green(run(case(OLD), flaky), *targets) == ["flaky_target"]
    assert green(run(old), OLD) == ["flaky_target"]
    assert red(run(case(OLD), flaky), NEW) == ["flaky_target"]
    (reason,) = judge("green", run(case(OLD), flaky), baseline=BASELINE, targets=[NEW]).reasons
    assert explain(reason).startswith(f"{NEW} failed, and passed only when it ran again (assertion, passed).")


def test_a_rerun_that_a_plugin_hides_rescues_no_target_either() -> None:
    hidden = Sign("passed_on_rerun", NEW)
    report = replace(run(case(OLD), case(NEW)), audited=True, signs=(hidden, replace(hidden, nodeid=OLD)))
    assert green(report, NEW) == ["flaky_target"]
    assert green(replace(report, signs=report.signs[1:]), NEW, baseline=replace(BASELINE, audited=True)) == []


def test_green_stays_closed_for_a_file_that_cannot_be_collected_even_without_a_baseline() -> None:
    report = run(case(NEW), errors=(uncollected("tests/test_b.py"),))
    assert green(report, NEW, baseline=None) == ["collect_error"]


def test_green_spares_old_failures_of_a_file_that_red_could_not_collect() -> None:
    red_report = replace(run(errors=(uncollected(),)), old_failures=(OLD,), gate=OPENED)
    assert green(run(case(OLD, "failed"), case(NEW)), NEW, baseline=red_report) == []


@pytest.mark.parametrize("gate", [OPENED, None])
def test_green_spares_the_other_tests_of_a_file_that_could_not_be_collected_before(gate: Verdict | None) -> None:
    error = uncollected()
    before = replace(run(case("b.py::t"), errors=(error,)), old_failures=(error.nodeid,), gate=gate)
    now = run(case("b.py::t"), case(OLD, "failed"), case(NEW))
    assert green(now, NEW, baseline=before) == green(now, baseline=before) == []
    assert find_spared(now, judge("green", now, baseline=before, targets=[NEW]), baseline=before) == {OLD}
    assert green(run(case("b.py::t"), case(OLD), case(NEW, "failed")), NEW, baseline=before) == ["target_failed"]
    assert green(now, NEW, baseline=replace(before, collect_errors=())) == ["new_failure"]


def test_a_target_that_disappeared_is_told_to_come_back_under_its_node_id() -> None:
    before = run(case("tests/test_a.py::t[1]", "failed"), case(OLD))
    reason = judge("green", run(case(OLD)), baseline=before, targets=["tests/test_a.py::t[1]"]).reasons[0]
    assert reason.code == "target_missing"
    assert "restore what its parameters are made of" in explain(reason)


def test_a_removed_test_is_laid_to_deselection_if_there_was_any() -> None:
    def message(deselected: int) -> str:
        report = replace(run(case(NEW)), deselected=deselected)
        return explain(judge("green", report, baseline=BASELINE, targets=[NEW]).reasons[0])

    assert "deselected" not in message(0)
    assert "3 tests were deselected by -k, -m, --deselect" in message(3)


def test_a_message_says_in_words_what_a_test_came_to() -> None:
    report = run(case(OLD, "skipped"), case(NEW))
    reason = judge("green", report, baseline=BASELINE, targets=[NEW]).reasons[0]
    assert explain(reason) == f"{OLD} passed before and was skipped now. Make it pass again."


HOOK = Sign("project_hook", None, parts={"hook": "pytest_pyfunc_call", "place": "conftest.py"})
PATCH = Sign("patched_runner", None, parts={"name": "unittest.TestCase.fail", "now": Clause("value_changed")})


@pytest.mark.parametrize("phase", ["red", "green", "refactor"])
def test_a_sign_that_the_baseline_has_not_closes_every_gate(phase: str) -> None:
    tests = (case(OLD), case(NEW, "failed")) if phase == "red" else (case(OLD),)

    def signed(*signs: Sign, old: tuple[Sign, ...] = ()) -> list[str]:
        return codes(
            judge(phase, replace(run(*tests), signs=signs), baseline=replace(BASELINE, audited=True, signs=old))
        )

    assert signed(HOOK, PATCH, old=(PATCH, HOOK)) == []
    assert signed(HOOK, PATCH, old=(HOOK,)) == ["tampered"]
    assert signed(HOOK) == ["tampered"]
    assert signed(replace(PATCH, nodeid=OLD), old=(PATCH,)) == ["tampered"]
    assert (
        signed(*(replace(PATCH, parts={**PATCH.parts, "name": str(number)}) for number in range(30)))
        == ["tampered"] * 11
    )


def test_a_hook_of_the_project_is_taken_for_honest_if_there_is_no_baseline() -> None:
    assert green(replace(run(case(OLD)), signs=(HOOK,)), baseline=None) == []
    assert green(replace(run(case(OLD)), signs=(HOOK, PATCH)), baseline=None) == ["tampered"]


def at(number: int, outcome: str = "passed", function: str = "test_clock") -> Case:
    return case(f"tests/test_a.py::{function}[{number}]", outcome)


def test_node_ids_that_change_from_run_to_run_are_the_same_tests_to_red() -> None:
    before = run(case(OLD), at(1), at(2), at(3, "failed"))
    assert red(run(case(OLD), at(4, "failed"), at(5), at(6), case(NEW, "failed")), NEW, baseline=before) == []
    assert red(run(case(OLD), at(4), at(5), at(6), case(NEW, "failed")), baseline=before) == []
    two_fail = run(case(OLD), at(4, "failed"), at(5), at(6, "failed"), case(NEW, "failed"))
    assert red(two_fail, NEW, baseline=before) == ["broke_others"]
    assert red(run(case(OLD), at(4, "failed"), at(5), case(NEW, "failed")), NEW, baseline=before) == ["broke_others"]
    assert red(run(case(OLD), at(4), case(NEW, "failed")), NEW, baseline=before) == ["test_removed"]


def test_one_more_parameter_of_such_a_function_is_a_new_test_to_red() -> None:
    before, after = run(at(1), at(2)), run(at(3), at(4, "failed"), at(5))
    function = "tests/test_a.py::test_clock"
    assert red(after, baseline=before) == []
    assert red(after, function, baseline=before) == []
    assert red(run(at(3), at(4), at(5)), function, baseline=before) == ["already_green"]
    assert red(run(at(3, "failed"), at(4, "failed")), function, baseline=before) == []


def test_node_ids_that_change_from_run_to_run_are_the_same_tests_to_green_and_refactor() -> None:
    before = run(at(1), at(2), at(8, "skipped"))
    assert green(run(at(3), at(4), at(5, "skipped")), baseline=before) == []
    assert refactor(run(at(3), at(4), at(5, "skipped")), before) == []
    assert green(run(at(3), at(4, "skipped"), at(5, "skipped")), baseline=before) == ["broke_others"]
    assert refactor(run(at(3), at(4)), before) == ["tests_differ"]
    assert refactor(run(at(3)), before) == ["test_removed", "tests_differ"]
    assert refactor(run(at(3), at(4), at(5), at(6)), before) == ["tests_differ"]


def test_green_spares_as_many_old_failures_of_such_a_function_as_there_were() -> None:
    before = replace(run(at(3, "failed"), at(4, "failed")), old_failures=(at(1).nodeid,), gate=OPENED)
    before = replace(before, unstable=("tests/test_a.py::test_clock",))
    assert green(run(at(5, "failed"), at(6)), "tests/test_a.py::test_clock", baseline=before) == []
    assert green(run(at(5, "failed"), at(6, "failed")), "tests/test_a.py::test_clock", baseline=before) == [
        "target_failed"
    ]


def test_a_case_of_a_target_that_vanished_or_changed_its_node_id_is_missing() -> None:
    before = replace(run(case(OLD), at(1, "failed"), at(2, "failed")), gate=OPENED)
    for targets in ((), ("tests/test_a.py::test_clock",), ("tests/test_a.py",)):
        assert green(run(case(OLD), at(1), at(2)), *targets, baseline=before) == []
        assert green(run(case(OLD), at(1)), *targets, baseline=before) == ["target_missing"]
        assert green(run(case(OLD), at(1), at(3)), *targets, baseline=before) == ["target_missing"]
    (reason,) = judge("green", run(case(OLD), at(1)), baseline=before).reasons
    assert reason.nodeid == at(2).nodeid
    repair = replace(before, gate=None)
    assert green(run(case(OLD), at(1)), "tests/test_a.py", baseline=repair) == ["target_missing"]
    assert green(run(case(OLD), at(1)), baseline=repair) == [], "it is no target"


def test_node_ids_that_the_baseline_shows_to_change_are_matched_by_function() -> None:
    function = "tests/test_a.py::test_clock"
    before = replace(run(case(OLD), at(1, "failed"), at(2, "failed")), gate=OPENED, unstable=(function,))
    for targets in ((), (function,), (at(1).nodeid, at(2).nodeid)):
        assert green(run(case(OLD), at(3), at(4)), *targets, baseline=before) == []
        assert green(run(case(OLD), at(3), at(4, "failed")), *targets, baseline=before) == ["target_failed"]
        assert green(run(case(OLD), at(3)), *targets, baseline=before) == ["target_missing"]


def test_what_broke_under_another_node_id_is_named_by_both() -> None:
    reason = judge("red", run(at(2, "failed"), case(NEW, "failed")), baseline=run(at(1)), targets=[NEW]).reasons[0]
    assert f"{at(2).nodeid} (in the baseline {at(1).nodeid}) passed before and fails now" in explain(reason)


def refactor(report: SuiteReport, baseline: SuiteReport | None = BASELINE) -> list[str]:
    return codes(judge("refactor", report, baseline=baseline))


def test_refactor_is_green_with_the_same_tests() -> None:
    assert refactor(run(case(OLD))) == []
    assert refactor(run(case(OLD), case(NEW))) == ["tests_differ"]
    assert refactor(run(case(OLD)), run(case(OLD), case(NEW, "skipped"))) == ["tests_differ"]
    assert refactor(run(case(OLD)), run(case(OLD), case(NEW))) == ["test_removed"]
    assert refactor(run(case(OLD, "failed"))) == ["target_failed"]
    assert refactor(run(case(OLD)), None) == ["baseline_missing"]


@pytest.mark.parametrize("gate", [red, green, refactor])
def test_a_run_or_a_baseline_that_ended_early_closes_every_gate(gate: Callable[..., list[str]]) -> None:
    assert gate(replace(BASELINE, complete=False)) == ["run_incomplete"]
    assert gate(BASELINE, baseline=replace(BASELINE, complete=False)) == ["baseline_incomplete"]


@pytest.mark.parametrize("gate", [red, green, refactor])
def test_a_test_that_did_not_end_is_the_only_reason_if_others_did_not_run(gate: Callable[..., list[str]]) -> None:
    endless = case(NEW, "failed", failure("timeout", exception="TimeLimitExceeded"))
    assert gate(run(endless, case(OLD, "skipped"))) == ["run_incomplete"]
    assert gate(run(case(OLD), endless)) not in ([], ["run_incomplete"])


def test_every_code_says_in_a_sentence_what_it_means() -> None:
    assert all(meaning[0].isupper() and meaning.endswith(".") for meaning in CODES.values())


def test_red_adds_no_file_that_is_loaded_in_the_place_of_a_test_tool() -> None:
    report = replace(
        run(case(OLD), case(NEW, "failed")), fingerprints={"sitecustomize.py": "1", "tests/test_a.py": "2"}
    )
    assert codes(judge("red", report, baseline=BASELINE)) == ["protected_changed"]
    assert codes(judge("red", report, baseline=replace(BASELINE, fingerprints={"sitecustomize.py": "1"}))) == []


def test_green_without_targets_means_what_red_added_and_spares_what_failed_before() -> None:
    before = replace(run(case(OLD, "failed"), case(NEW, "failed")), old_failures=(OLD,), gate=OPENED)
    assert green(run(case(OLD, "failed"), case(NEW)), baseline=before) == []
    assert green(run(case(OLD, "failed"), case(NEW, "failed")), baseline=before) == ["target_failed"]
    waiting = replace(run(case(OLD), errors=(uncollected(),)), gate=OPENED)
    assert green(run(case(OLD), errors=(uncollected(),)), baseline=waiting) == ["target_failed"]
    assert green(run(case(OLD), case(NEW)), baseline=waiting) == []


NEWER = "tests/test_b.py"
"""A file that cannot be collected."""


@pytest.mark.parametrize("target", ["tests", "tests/", NEWER])
def test_a_file_of_a_red_target_may_fail_to_be_collected_for_a_right_reason(target: str) -> None:
    report = run(case(OLD), errors=(uncollected(NEWER),))
    assert red(report, target, expects="ledger.export") == []
    assert red(report, target) == ["name_not_expected"]
    assert "name_not_expected" in red(report, target, baseline=None)
    broken = run(case(OLD), case(NEW, "failed"), errors=(uncollected(NEWER, kind="syntax_error"),))
    assert red(broken, NEW, target) == ["wrong_reason"]


def test_a_file_that_could_not_be_collected_before_is_no_news_to_a_folder_in_red() -> None:
    before = run(case(OLD), errors=(uncollected(NEWER),))
    report = run(case(OLD), case(NEW, "failed"), errors=(uncollected(NEWER),))
    assert red(report, "tests", baseline=before) == []
    assert red(before, "tests", baseline=before) == ["target_missing"]
    assert red(report, NEWER, baseline=before) == ["name_not_expected", "untargeted_failure"]


@pytest.mark.parametrize("target", ["tests", "tests/", NEWER])
@pytest.mark.parametrize("gate", [OPENED, None])
def test_green_wants_every_file_of_a_target_to_be_collected(target: str, gate: Verdict | None) -> None:
    error = uncollected(NEWER)
    before = replace(run(case(OLD), errors=(error,)), gate=gate)
    assert green(run(case(OLD), errors=(error,)), target, baseline=before) == ["target_failed"]
    assert green(run(case(OLD), errors=(error,)), target, baseline=None)[0] == "target_failed"
    assert green(run(case(OLD), case(NEWER + "::t")), target, baseline=before) == []


def test_green_spares_a_file_that_could_not_be_collected_before_red() -> None:
    error = uncollected(NEWER)
    before = replace(run(case(OLD), case(NEW, "failed"), errors=(error,)), old_failures=(NEWER,), gate=OPENED)
    now = run(case(OLD), case(NEW), errors=(error,))
    assert green(now, baseline=before) == []
    assert green(now, "tests", baseline=before) == []
    assert green(now, NEWER, baseline=before) == ["target_failed"]
    assert green(now, baseline=replace(before, collect_errors=())) == ["target_failed"]
    plain = replace(before, gate=None, old_failures=())
    assert green(now, baseline=plain) == []
    assert codes(judge("refactor", now, baseline=plain, targets=["tests"])) == []


def test_green_without_targets_opens_when_all_failed_before_and_one_passes_now() -> None:
    before = run(case(OLD, "failed"), case(NEW, "failed"))
    assert green(run(case(OLD), case(NEW, "failed")), baseline=before) == []
    reasons = judge("green", before, baseline=before).reasons
    assert [reason.code for reason in reasons] == ["no_tests"]
    assert "Every test that ran already failed" in explain(reasons[0])


def test_red_asks_for_a_baseline_or_targets_where_nothing_says_which_tests_are_new() -> None:
    report = run(case(OLD), case(NEW, "failed"))
    assert red(report, baseline=None) == ["baseline_missing"]
    assert red(report, NEW, baseline=None) == []
    assert red(run(case(NEW, "failed")), baseline=None) == []


def unstructured(exit_status: int) -> SuiteReport:
    return replace(run(), exit_status=exit_status, structured=False, framework="make")


@pytest.mark.parametrize("phase", ["red", "green", "refactor"])
def test_a_command_that_only_passes_or_fails_closes_every_gate_and_the_reason_says_why(phase: str) -> None:
    verdict = judge(phase, unstructured(1 if phase == "red" else 0), baseline=unstructured(0))
    assert [reason.code for reason in verdict.reasons] == ["unstructured"]
    assert "accept_unstructured" in explain(verdict.reasons[0])


@pytest.mark.parametrize(
    ("phase", "before", "now", "codes"),
    [
        ("red", 0, 2, []),
        ("red", 0, 0, ["already_green"]),
        ("red", 2, 2, ["wrong_reason"]),
        ("green", 2, 0, []),
        ("green", 2, 2, ["target_failed"]),
        ("refactor", 0, 0, []),
        ("refactor", 0, 2, ["target_failed"]),
    ],
)
def test_where_the_user_lets_it_count_the_exit_status_decides(
    phase: str, *, before: int, now: int, codes: list[str]
) -> None:
    verdict = judge(phase, unstructured(now), baseline=unstructured(before), accepts_unstructured=True)
    assert [reason.code for reason in verdict.reasons] == codes


def test_without_results_of_tests_a_changed_test_file_still_closes_green() -> None:
    before = replace(unstructured(2), fingerprints={"test/a.sh": "0" * 64})
    verdict = judge("green", unstructured(0), baseline=before, accepts_unstructured=True)
    assert {reason.code for reason in verdict.reasons} == {"protected_changed"}


def test_a_group_of_titles_is_a_target_that_holds_the_tests_below_it() -> None:
    assert red(run(case(OLD), case("sum.test.js::sum > adds", "failed")), "sum.test.js::sum") == []
