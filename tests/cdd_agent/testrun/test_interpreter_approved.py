"""Which interpreter may run at all."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.config.trust import NotApproved
from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.testrun.interpreter import Interpreter, find_interpreter, find_offer
from tests.cdd_agent.testrun.conftest import Confined, program
from tests.fakes.approval import Answers, trust_in
from tests.fakes.cases import soak_after

ANSWER = '{"python": "3.11.7", "pytest": "9.0.0", "packages": "/"}'


class Found:
    """A project whose interpreter leaves a mark when it is run."""

    def __init__(self, tmp_path: Path) -> None:
        self.project = tmp_path / "project"
        self.project.mkdir()
        self.mark = tmp_path / "mark"
        self._temporary = tmp_path

    def plant(self, name: str) -> Path:
        """A program that marks that it ran, and answers as an interpreter with pytest would."""
        return program(self.project / name, f": > '{self.mark}'\necho '{ANSWER}'")

    def environment(self, folder: str = ".venv") -> Path:
        """Such a program as a virtual environment."""
        python = self.plant(f"{folder}/bin/python")
        (python.parent.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
        return python

    def find(self, answers: Answers | None = None, *, environment: Mapping[str, str] | None = None) -> Interpreter:
        trust, _ = trust_in(self.project, temporary=self._temporary, ask=answers)
        return find_interpreter(self.project, environment=environment or {}, trust=trust)


@pytest.fixture
def found(tmp_path: Path) -> Found:
    return Found(tmp_path)


@pytest.mark.parametrize("folder", [".venv", "env", ".tox/py311", ".nox/tests"])
def test_nothing_in_the_project_is_run_before_it_is_approved(found: Found, folder: str) -> None:
    (found.environment(folder).parent.parent / "lib/python3.11/site-packages/pytest").mkdir(parents=True)
    with pytest.raises(NotApproved, match="interpreter"):
        found.find()
    assert not found.mark.exists()


def test_an_approved_one_is_run(found: Found) -> None:
    python = found.environment()
    answers = Answers(True)
    assert found.find(answers).path == python
    assert found.mark.exists()
    assert [offer.source for offer in answers.asked] == [".venv/bin/python"]


def test_a_declined_one_is_an_error_that_says_how_to_name_another(found: Found) -> None:
    found.environment()
    with pytest.raises(EnvironmentMissing, match="declined") as caught:
        found.find(Answers(False))
    assert "CDD_PYTHON=" in caught.value.hint
    assert not found.mark.exists()


def test_what_the_user_names_for_this_program_is_not_asked_about(found: Found) -> None:
    python = found.environment()
    answers = Answers(False)
    assert found.find(answers, environment={"CDD_PYTHON": str(python)}).path == python
    assert answers.asked == []


def test_an_active_environment_in_the_project_is_asked_about(found: Found) -> None:
    folder = found.environment("activated").parent.parent
    with pytest.raises(NotApproved):
        found.find(environment={"VIRTUAL_ENV": str(folder), "PATH": f"{folder}/bin"})
    assert not found.mark.exists()


def test_one_that_a_file_of_the_project_names_is_asked_about_wherever_it_is(found: Found, tmp_path: Path) -> None:
    python = program(tmp_path / "elsewhere" / "python", f": > '{found.mark}'")
    (found.project / ".pdm-python").write_text(f"{python}\n")
    with pytest.raises(NotApproved, match=str(python)):
        found.find()
    assert not found.mark.exists()


@soak_after(1, "name", ["python", "python3", "poetry", "pipenv", "hatch"])
def test_programs_that_the_path_finds_in_the_project_are_left_alone(found: Found, name: str) -> None:
    found.plant(f"bin/{name}")
    (found.project / "poetry.lock").touch()
    (found.project / "Pipfile").touch()
    (found.project / "hatch.toml").write_text("[envs.default]\n")
    found.find(environment={"PATH": f"{found.project}/bin:bin"})
    assert not found.mark.exists()


def test_a_link_on_the_path_into_the_project_is_asked_about(found: Found, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(found.environment("tools"))
    with pytest.raises(NotApproved):
        found.find(environment={"PATH": str(tmp_path / "bin")})
    assert not found.mark.exists()


def test_what_is_offered_is_known_without_running_it(found: Found) -> None:
    assert find_offer(found.project, environment={}) is None
    found.environment()
    offer = find_offer(found.project, environment={})
    assert offer is not None
    assert offer.source == ".venv/bin/python"
    assert find_offer(found.project, environment={"CDD_PYTHON": "/usr/bin/python3"}) is None
    assert not found.mark.exists()


def test_one_that_the_repository_does_not_bring_is_the_users_own_unless_they_declined_it(
    found: Found, tmp_path: Path
) -> None:
    python = found.environment()
    assert find_offer(found.project, environment={}, brings=lambda _: False) is None
    offer = find_offer(found.project, environment={})
    assert offer is not None
    trust, _ = trust_in(found.project, temporary=tmp_path)
    trust.brings = lambda program: program != python
    with pytest.raises(NotApproved):
        find_interpreter(found.project, environment={}, trust=trust, sandbox=PlainSandbox())
    assert not found.mark.exists()
    confined = find_interpreter(found.project, environment={}, trust=trust, sandbox=Confined())
    assert confined.path == python
    trust.approvals.record(offer, approved=False)
    with pytest.raises(EnvironmentMissing, match="declined"):
        find_interpreter(found.project, environment={}, trust=trust, sandbox=Confined())


def test_one_that_a_file_of_the_project_names_is_asked_about_even_if_git_does_not_track_it(
    found: Found, tmp_path: Path
) -> None:
    python = program(tmp_path / "elsewhere" / "python", f": > '{found.mark}'")
    (found.project / ".pdm-python").write_text(f"{python}\n")
    trust, _ = trust_in(found.project, temporary=tmp_path)
    trust.brings = lambda _: False
    with pytest.raises(NotApproved):
        find_interpreter(found.project, environment={}, trust=trust, sandbox=Confined())
    assert not found.mark.exists()
