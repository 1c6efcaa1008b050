import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from pytest_tdd_agent.codec import case_from_line, case_to_line, format_passed_line
from pytest_tdd_agent.recording.spool import Spool, remove_abandoned
from pytest_tdd_agent.report import Case, Failure

FAILURE = Failure("call", "assertion", "test", "AssertionError", "no")


def case(nodeid: str, outcome: str = "passed") -> Case:
    return Case(nodeid, outcome, "a.py", 1, 0.0, failure=FAILURE if outcome == "failed" else None)


def test_tests_come_back_in_the_order_in_which_they_ended(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    names = [f"a.py::t[{number}]" for number in range(600)]
    for name in names:
        spool.add(format_passed_line(name, file="a.py", line=1, phases={"setup": 0.1, "call": 0.1, "teardown": 0.1}))
    spool.add(case_to_line(case('a.py::x[","outcome":"passed","file":"]', "failed")))
    found = list(spool.iterate_cases())
    assert [case_from_line(line).nodeid for line, _ in found[:-1]] == names
    assert [ended for _, ended in found[:-1]] == [None] * 600
    assert found[-1][1] == case('a.py::x[","outcome":"passed","file":"]', "failed")
    assert list(spool.iterate_cases()) == found
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_of_a_test_that_ended_twice_the_last_end_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    spool.add(case_to_line(case("a.py::t", "failed")))
    spool.add(case_to_line(case("a.py::u")))
    spool.replace_later("a.py::t")
    spool.add(case_to_line(case("a.py::t")))
    assert [case_from_line(line) for line, _ in spool.iterate_cases()] == [case("a.py::u"), case("a.py::t")]


def test_a_test_that_passes_when_it_is_run_again_keeps_its_first_failure(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    spool.add(case_to_line(case("a.py::t", "failed")))
    spool.add(case_to_line(case("a.py::u", "failed")))
    spool.record_tries("a.py::t", ("assertion", "passed"))
    spool.record_tries("a.py::u", ("timeout",))
    first, second = (ended for _, ended in spool.iterate_cases())
    assert first is not None
    assert second is not None
    assert (first.outcome, first.reruns, first.tries) == ("passed", 2, ("assertion", "assertion", "passed"))
    assert first.failure == FAILURE
    assert (second.outcome, second.tries) == ("failed", ("assertion", "timeout"))


def test_of_tests_with_one_node_id_the_worst_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    spool.share(["a.py::t"])
    for outcome in ("passed", "failed", "passed"):
        spool.add(case_to_line(case("a.py::t", outcome)))
    assert [case_from_line(line).outcome for line, _ in spool.iterate_cases()] == ["failed"]


def test_a_test_that_passed_on_a_later_try_is_told_from_one_that_passed_at_once(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    later = replace(case("a.py::t"), reruns=1)
    spool.add(case_to_line(later))
    spool.add(case_to_line(case("a.py::u")))
    assert [ended for _, ended in spool.iterate_cases()] == [later, None]


def test_a_spool_that_lacks_or_has_too_much_is_not_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "part")
    spool.add(case_to_line(case("a.py::t")))
    assert spool.is_intact()
    spool.add(case_to_line(case("a.py::u")))
    assert spool.is_intact()
    (tmp_path / "part").write_text(case_to_line(case("a.py::t")) + "\n")
    assert not spool.is_intact()


def test_what_killed_runs_have_left_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    kept = {"r.json", f"r.json.{os.getpid()}.part", f"other.json.{ended.pid}.part", "r.json.x.part"}
    for name in (*kept, f"r.json.{ended.pid}.part"):
        (tmp_path / name).touch()
    remove_abandoned(tmp_path / "r.json")
    assert {path.name for path in tmp_path.iterdir()} == kept
