"""What a repository brings, and what its user said about it."""

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.config.trust import (
    MAX_SIZE_BYTES,
    MOST_KEPT,
    Approvals,
    NotApproved,
    Offer,
    find_top,
    find_user_folder,
    offer_interpreter,
)
from cdd_agent.errors import EnvironmentMissing
from tests.fakes.approval import Answers, trust_in, users_folder

OFFER = Offer(subject="settings", source=".cdd/config.yaml", shown=("model: x",), content=b"model: x\n")
CHANGED = replace(OFFER, content=b"model: y\n")
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def approvals(project: Path, tmp_path: Path) -> Approvals:
    return Approvals(project, environment=users_folder(tmp_path))


def of(folder: Path, tmp_path: Path) -> Approvals:
    return Approvals(folder, environment=users_folder(tmp_path))


# What a decision is about.


def test_nothing_is_decided_at_first_and_looking_leaves_no_trace(approvals: Approvals) -> None:
    assert approvals.find_decision(OFFER) is None
    assert not approvals.has_changed(OFFER)
    assert not approvals.path.parent.exists()


@pytest.mark.parametrize("answer", [True, False])
def test_a_decision_is_kept(approvals: Approvals, project: Path, *, tmp_path: Path, answer: bool) -> None:
    approvals.record(OFFER, approved=answer)
    assert of(project, tmp_path).find_decision(OFFER) is answer


def test_the_last_decision_counts(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    approvals.record(OFFER, approved=False)
    assert approvals.find_decision(OFFER) is False


def test_another_content_is_open_and_known_to_have_changed(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    assert approvals.find_decision(CHANGED) is None
    assert approvals.has_changed(CHANGED)
    assert approvals.find_decision(OFFER) is True


def test_the_same_bytes_as_another_subject_are_open(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    assert approvals.find_decision(replace(OFFER, subject="hooks")) is None


def test_a_copy_of_the_project_is_open(approvals: Approvals, project: Path, *, tmp_path: Path) -> None:
    approvals.record(OFFER, approved=True)
    shutil.copytree(project, tmp_path / "copy")
    assert of(tmp_path / "copy", tmp_path).find_decision(OFFER) is None


def test_another_folder_at_the_same_path_is_open(approvals: Approvals, project: Path, *, tmp_path: Path) -> None:
    approvals.record(OFFER, approved=True)
    project.rename(tmp_path / "away")
    project.mkdir()
    assert of(project, tmp_path).find_decision(OFFER) is None


def test_the_project_at_another_path_is_open(approvals: Approvals, project: Path, *, tmp_path: Path) -> None:
    approvals.record(OFFER, approved=True)
    project.rename(tmp_path / "moved")
    assert of(tmp_path / "moved", tmp_path).find_decision(OFFER) is None


def test_a_link_to_the_project_is_the_project(approvals: Approvals, project: Path, *, tmp_path: Path) -> None:
    approvals.record(OFFER, approved=True)
    (tmp_path / "link").symlink_to(project)
    assert of(tmp_path / "link", tmp_path).find_decision(OFFER) is True


def test_decisions_can_be_forgotten_without_those_about_other_projects(
    approvals: Approvals, project: Path, *, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert approvals.forget() == 0
    for each in (approvals, of(other, tmp_path)):
        each.record(OFFER, approved=True)
    assert approvals.forget() == 1
    assert approvals.find_decision(OFFER) is None
    assert of(other, tmp_path).find_decision(OFFER) is True


def test_the_oldest_decisions_about_a_subject_go_first(approvals: Approvals) -> None:
    offers = [replace(OFFER, content=str(number).encode()) for number in range(MOST_KEPT + 3)]
    approvals.record(replace(OFFER, subject="hooks"), approved=True)
    for offer in offers:
        approvals.record(offer, approved=True)
    assert [approvals.find_decision(offer) for offer in offers] == [None] * 3 + [True] * MOST_KEPT
    assert approvals.find_decision(replace(OFFER, subject="hooks")) is True


# Where decisions lie.


def test_commands_are_kept_with_their_text_its_keys_masked(approvals: Approvals, tmp_path: Path) -> None:
    key = f"ghp_{'Kk1' * 12}"
    for text in ("npm test", f"curl -H {key}"):
        command = replace(OFFER, subject="command", shown=(text,), content=text.encode())
        approvals.record(command, approved=True)
    assert approvals.list_commands() == ("npm test", "curl -H [masked: GitHub token]")
    assert key not in approvals.path.read_text()
    assert approvals.forget() == 2
    assert approvals.list_commands() == ()


def test_more_commands_are_kept_than_anything_else(approvals: Approvals) -> None:
    for number in range(MOST_KEPT + 5):
        approvals.record(replace(OFFER, subject="command", content=str(number).encode()), approved=True)
    assert len(approvals.list_commands()) == MOST_KEPT + 5


def test_a_file_that_is_full_loses_old_commands_and_no_other_decision(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    kept = json.loads(approvals.path.read_text())
    (first,) = kept["decisions"]
    other = {**first, "project": "/other", "subject": "command", "shown": "x" * 300}
    kept["decisions"] += [other] * ((MAX_SIZE_BYTES - 1_000) // (len(json.dumps(other)) + 2))
    approvals.path.write_text(json.dumps(kept))
    assert MAX_SIZE_BYTES - 2_000 < approvals.path.stat().st_size <= MAX_SIZE_BYTES
    command = replace(OFFER, subject="command", shown=("npm test",), content=b"npm test")
    approvals.record(command, approved=True)
    approvals.record(replace(command, content=b"make"), approved=True)
    assert approvals.path.stat().st_size <= MAX_SIZE_BYTES
    assert approvals.find_decision(OFFER) is True
    assert approvals.find_decision(command) is True


def test_a_file_of_decisions_from_before_commands_were_kept_is_read(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    kept = json.loads(approvals.path.read_text())
    for decision in kept["decisions"]:
        del decision["shown"]
    approvals.path.write_text(json.dumps(kept))
    assert approvals.find_decision(OFFER) is True


def test_the_file_is_the_user_s_alone(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    assert approvals.path.stat().st_mode & 0o777 == 0o600
    assert approvals.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("told", ["", "relative/state"])
def test_without_a_usable_variable_the_folder_is_the_usual_one(told: str) -> None:
    assert find_user_folder({"XDG_STATE_HOME": told, "HOME": "/home/ada"}) == Path("/home/ada/.local/state/cdd")


@pytest.mark.parametrize("inside", ["", "state", "deep/below"])
def test_a_project_that_holds_the_user_s_folder_cannot_vote_for_itself(project: Path, inside: str) -> None:
    (project / ".git").mkdir()
    folder = project / "packages" / "one"
    folder.mkdir(parents=True)
    planted = Approvals(folder, environment={"XDG_STATE_HOME": str(project / inside)})
    for act in (lambda: planted.find_decision(OFFER), lambda: planted.record(OFFER, approved=True), planted.forget):
        with pytest.raises(EnvironmentMissing, match="could bring its own") as caught:
            act()
    assert "XDG_STATE_HOME" in caught.value.hint
    assert not (project / inside / "cdd").exists()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_an_error(approvals: Approvals, mode: int) -> None:
    approvals.record(OFFER, approved=True)
    approvals.path.chmod(mode)
    with pytest.raises(EnvironmentMissing, match="may write to it") as caught:
        approvals.find_decision(OFFER)
    assert f"chmod 600 {approvals.path}" in caught.value.hint


def test_a_file_behind_a_link_is_an_error(approvals: Approvals, tmp_path: Path) -> None:
    approvals.record(OFFER, approved=True)
    approvals.path.rename(tmp_path / "elsewhere")
    approvals.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentMissing, match="cannot be trusted"):
        approvals.find_decision(OFFER)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "\0" * 40, '{"schema": 2, "decisions": []}', '{"schema": 1, "decisions": [{"approved": 1}]}'],
)
def test_a_file_that_cannot_be_read_is_an_error_and_stays_as_it_is(approvals: Approvals, text: str) -> None:
    approvals.record(OFFER, approved=True)
    approvals.path.write_text(text)
    with pytest.raises(EnvironmentMissing, match=str(approvals.path)):
        approvals.find_decision(OFFER)
    with pytest.raises(EnvironmentMissing):
        approvals.record(OFFER, approved=True)
    assert approvals.path.read_text() == text


def test_every_prefix_of_the_file_is_an_error_or_the_whole_of_it(approvals: Approvals) -> None:
    approvals.record(OFFER, approved=True)
    whole = approvals.path.read_bytes()
    for length in range(len(whole.rstrip())):
        approvals.path.write_bytes(whole[:length])
        with pytest.raises(EnvironmentMissing):
            approvals.find_decision(OFFER)


def test_processes_that_decide_at_once_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom cdd_agent.config.trust import Approvals, Offer\n"
        "approvals = Approvals(Path(sys.argv[1]))\n"
        "for number in range(15):\n"
        "    content = str(number).encode()\n"
        "    approvals.record(Offer(subject='hooks', source='', shown=(), content=content), approved=True)\n"
    )
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, **users_folder(tmp_path), "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code, str(folder)], env=environment) for folder in folders]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    kept = json.loads(of(folders[0], tmp_path).path.read_text())["decisions"]
    assert len(kept) == 45


# Who decides.


def test_what_is_approved_takes_effect_and_is_asked_about_once(project: Path, tmp_path: Path) -> None:
    answers = Answers(True)
    trust, told = trust_in(project, temporary=tmp_path, ask=answers)
    assert [trust.allows(OFFER), trust.allows(OFFER)] == [True, True]
    assert (answers.asked, answers.changed, told) == ([OFFER], [False], [])
    later, _ = trust_in(project, temporary=tmp_path)
    assert later.allows(OFFER)


def test_what_is_declined_does_not_and_is_told_once_a_session(project: Path, tmp_path: Path) -> None:
    trust, told = trust_in(project, temporary=tmp_path, ask=Answers(False))
    assert [trust.allows(OFFER), trust.allows(OFFER)] == [False, False]
    assert told == ["You declined the repository's settings: cdd uses the defaults. To decide again: cdd trust"]
    later, told_later = trust_in(project, temporary=tmp_path)
    assert not later.allows(OFFER)
    assert told_later == told


def test_a_change_is_asked_about_again_and_said_to_be_one(project: Path, tmp_path: Path) -> None:
    answers = Answers(True)
    trust, _ = trust_in(project, temporary=tmp_path, ask=answers)
    trust.allows(OFFER)
    answers.answer = False
    assert not trust.allows(CHANGED)
    assert answers.changed == [False, True]


def test_nobody_there_approves_nothing_and_the_error_says_what_to_type(project: Path, tmp_path: Path) -> None:
    trust, _ = trust_in(project, temporary=tmp_path)
    with pytest.raises(NotApproved, match=r"settings \(.cdd/config.yaml\) have not been approved") as caught:
        trust.allows(OFFER)
    assert f"cdd trust --digest {OFFER.digest}" in caught.value.hint
    assert caught.value.exit_code == 2
    trust.approvals.record(OFFER, approved=True)
    with pytest.raises(NotApproved, match="have changed since you decided"):
        trust.allows(CHANGED)


def test_nothing_offered_needs_no_approval(project: Path, tmp_path: Path) -> None:
    trust, _ = trust_in(project, temporary=tmp_path)
    assert trust.allows(None)


# Interpreters.


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment outside of every project."""
    folder = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


def offered(project: Path, python: Path) -> Offer:
    found = offer_interpreter(project, python)
    assert found is not None
    return found


def test_an_interpreter_elsewhere_is_the_user_s_own(project: Path, elsewhere: Path) -> None:
    assert offer_interpreter(project, elsewhere / "bin" / "python") is None
    assert offer_interpreter(project, Path("/usr/bin/python3")) is None


def test_one_that_a_file_of_the_project_names_is_not(project: Path, elsewhere: Path) -> None:
    offer = offer_interpreter(project, elsewhere / "bin" / "python", is_named_by_project=True)
    assert offer is not None
    assert str(elsewhere) in offer.source


def test_one_in_the_project_is_shown_with_what_it_runs(project: Path) -> None:
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    offer = offered(project, project / ".venv" / "bin" / "python")
    assert offer.source == ".venv/bin/python"
    assert offer.shown[0] == f".venv/bin/python runs {Path(sys.executable).resolve()}"
    assert any(line.startswith("home = ") for line in offer.shown)


def test_one_in_the_work_tree_around_the_project_counts_too(project: Path) -> None:
    (project / ".git").mkdir()
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    (project / "packages" / "one").mkdir(parents=True)
    assert find_top(project / "packages" / "one") == project
    offer = offered(project / "packages" / "one", project / ".venv" / "bin" / "python")
    assert offer.source == "../../.venv/bin/python"


def test_a_link_out_of_the_project_is_shown_with_where_it_leads(project: Path, elsewhere: Path) -> None:
    (project / ".venv").symlink_to(elsewhere)
    before = offered(project, project / ".venv" / "bin" / "python")
    (project / ".venv").unlink()
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    assert offered(project, project / ".venv" / "bin" / "python").digest != before.digest


def test_another_program_or_environment_behind_the_same_name_is_another_offer(project: Path) -> None:
    venv.create(project / ".venv", with_pip=False, symlinks=True)
    python = project / ".venv" / "bin" / "python"
    digests = {offered(project, python).digest}
    with (project / ".venv" / "pyvenv.cfg").open("a") as stream:
        stream.write("home = /elsewhere\n")
    digests.add(offered(project, python).digest)
    python.unlink()
    for script in ("#!/bin/sh\n", "#!/bin/sh\nevil\n"):
        python.write_text(script)
        digests.add(offered(project, python).digest)
    python.unlink()
    python.symlink_to("/usr/bin/env")
    digests.add(offered(project, python).digest)
    assert len(digests) == 5


def test_the_environment_that_runs_this_program_needs_no_approval(project: Path) -> None:
    top = Path(sys.prefix).resolve().parent
    assert offer_interpreter(top, Path(sys.prefix) / "bin" / "python") is None


def test_a_pipe_in_place_of_the_configuration_is_no_wait(project: Path) -> None:
    (project / ".venv" / "bin").mkdir(parents=True)
    os.mkfifo(project / ".venv" / "pyvenv.cfg")
    os.mkfifo(project / ".venv" / "bin" / "python")
    assert offered(project, project / ".venv" / "bin" / "python").source == ".venv/bin/python"
