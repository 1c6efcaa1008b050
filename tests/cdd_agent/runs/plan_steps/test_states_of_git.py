"""What a run says of the repository before it begins."""

import subprocess

import pytest

from cdd_agent.events import Notice
from cdd_agent.git.runner import GitUnable
from tests.cdd_agent.runs.plan_steps.conftest import ONE, MakeWork
from tests.fakes.model import ScriptedModel
from tests.fakes.project import Project, writes


def test_a_lock_left_in_the_repository_is_told_before_anything_is_begun(
    work: MakeWork, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdd_agent.git.repository.LOCK_WAIT_S", 0.1)
    one, lock = work(ONE), project.folder / ".git" / "index.lock"
    lock.touch()
    before = project.git("for-each-ref")
    executor = one.executor(ScriptedModel([]))
    with pytest.raises(GitUnable, match=r"index\.lock has existed"), executor.running():
        executor.run_all()
    assert lock.exists()
    assert not one.ticket.state_path.exists()
    assert project.git("for-each-ref") == before


@pytest.mark.slow
def test_filters_that_are_not_run_and_pointers_are_told_once_a_run(work: MakeWork, project: Project) -> None:
    project.write({".gitattributes": "*.bin filter=lfs\n", "a.bin": "version https://git-lfs.github.com/spec/v1\n"})
    subprocess.run(["git", "add", "."], cwd=project.folder, check=True)
    subprocess.run(["git", "commit", "--quiet", "-m", "large"], cwd=project.folder, check=True)
    project.git("config", "filter.theirs.clean", "touch marked; cat")
    executor = work(ONE).executor(ScriptedModel([writes("README.md", "# Prices\n")]))
    with executor.running():
        executor.run_all()
    with executor.running():
        pass
    told = [event.text for event in project.seen if isinstance(event, Notice)]
    assert len([text for text in told if "'theirs'" in text and "not run" in text]) == 1
    assert len([text for text in told if "a.bin" in text and "git lfs pull" in text]) == 1
    assert not (project.folder / "marked").exists()
