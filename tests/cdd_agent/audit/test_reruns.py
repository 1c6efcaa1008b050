"""Runs in clean copies: the copy's own sources are judged, and a tree is run once."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.audit.handoffs import read_span
from cdd_agent.audit.reruns import PhaseRerun, Reruns, check_green, check_red, check_refactor
from cdd_agent.events import SuiteFinished
from cdd_agent.testrun.access import Original
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.suite import PYTEST
from tests.cdd_agent.audit.made_history import History, carry_out
from tests.fakes.project import FILES, Project, green, item, red
from tests.fakes.suite import with_report


def test_the_same_tree_is_run_once_whatever_it_is_called(project: Project) -> None:
    project.git("commit", "-q", "--allow-empty", "-m", "nothing")
    seen: list[object] = []
    reruns = Reruns(repository=project.repository, make_suite=lambda: project.suite, emit=seen.append)
    for commit in read_span(project.repository, "HEAD").commits.values():
        assert reruns.run(commit, called="a run").report is not None
    assert len([event for event in seen if isinstance(event, SuiteFinished)]) == 1
    assert reruns.has_run


def test_a_copy_that_cannot_be_made_is_a_problem_of_that_commit(project: Project) -> None:
    (commit,) = read_span(project.repository, "HEAD").commits.values()
    gone = replace(commit, id=type(commit.id)("0" * 40), tree="0" * 40)
    evidence = Reruns(repository=project.repository, make_suite=lambda: project.suite, emit=lambda _: None).run(
        gone, called="a run"
    )
    assert "could not create a clean copy of 00000000" in evidence.problem


@pytest.mark.slow
def test_a_project_inside_the_work_tree_is_audited_there(
    tmp_path: Path, interpreter: Interpreter, bytecode: Path
) -> None:
    top = Project.make(tmp_path / "top", interpreter=interpreter, bytecode=bytecode, files={"README.md": "All.\n"})
    inner = top.moved(top.folder / "services" / "sale")
    inner.folder.mkdir(parents=True)
    inner.write(FILES)
    top.git("add", "services")
    top.git("commit", "-qm", "sale")
    assert carry_out(inner, item(refactor=False), red(), green()) == "done"
    history = History(project=inner)
    audited = history.audit()
    assert [each.phase for each in audited] == ["RED", "GREEN"]
    assert {claim.holds for each in audited for claim in each.claims} == {True}


def test_a_module_that_a_build_writes_is_provided_and_without_it_nothing_is_proven(
    tmp_path: Path, interpreter: Interpreter, bytecode: Path
) -> None:
    files = FILES | {".gitignore": "_built.py\n", "prices.py": f"import _built\n\n\n{FILES['prices.py']}"}
    project = Project.make(tmp_path / "sale", interpreter=interpreter, bytecode=bytecode, files=files)
    built = project.folder / "_built.py"
    built.write_text("version = 1\n")
    assert carry_out(project, item(refactor=False), red(), green()) == "done"
    history = History(project=project)
    suite = project.suite.in_run_tree(project.folder, original=Original(root=project.folder))
    assert {claim.holds for each in history.audit(suite=suite) for claim in each.claims} == {True}

    built.unlink()
    history.seen.clear()
    claims = [claim for each in history.audit(suite=suite) for claim in each.claims if claim.name == "run"]
    assert [claim.holds for claim in claims] == [True, None], "RED's own test can be collected"
    assert "The module _built is missing here, before the change too" in claims[-1].text
    assert len(history.runs()) == 3, "no run is repeated with ignored files"


def test_an_exit_status_is_judged_if_the_settings_accept_it() -> None:
    made = with_report().report
    assert made is not None
    passes = replace(made, structured=False, exit_status=0, framework="make")
    fails, accepts = replace(passes, exit_status=2), replace(PYTEST, framework="make", accepts_exit_status=True)
    rerun = PhaseRerun(
        item=item(),
        report=fails,
        baseline=passes,
        files=frozenset(),
        recorded=None,
        knows_sources=True,
        conventions=accepts,
    )
    assert check_red(rerun).holds
    assert check_red(replace(rerun, report=passes)).holds is False
    assert check_red(replace(rerun, conventions=PYTEST)).holds is None
    for check in (lambda each: check_green(each, red=None), check_refactor):
        assert check(replace(rerun, report=passes, baseline=fails)).holds
        assert check(rerun).holds is False
