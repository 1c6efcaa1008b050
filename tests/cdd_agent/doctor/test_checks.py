"""What is looked at, and what is said where it does not work."""

import errno
import os
import stat
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.config.settings import CONFIG_FILE, Settings
from cdd_agent.config.settings import load as load_settings
from cdd_agent.config.trust import NotApproved
from cdd_agent.doctor import Check, list_offers, run_checks
from cdd_agent.errors import EnvironmentMissing, ModelError
from tests.cdd_agent.doctor.conftest import Look
from tests.cdd_agent.testrun.conftest import program
from tests.fakes.serena import write_serena

NAMES = ["git", "folders", "trust", "settings", "interpreter", "sandbox", "plugin", "tests"]
NAMES += ["symbols", "model", "recording"]


def missing(happened: str, hint: str) -> object:
    """A part that cannot be made."""

    def make() -> object:
        raise EnvironmentMissing(happened, hint=hint)

    return make


def test_where_all_is_well_nothing_is_missing(look: Look) -> None:
    checks = look()
    assert list(checks) == NAMES
    assert [check for check in checks.values() if check.state == "missing"] == []
    assert "on main" in checks["git"].told
    assert checks["settings"].told == "the defaults"
    assert checks["interpreter"].told.startswith("Python 3.")
    assert all(check.fix == "" for check in checks.values())


def test_without_a_work_tree_the_fix_makes_one(look: Look) -> None:
    checks = look(repository=missing("no git here", "git init"))
    assert (checks["git"].state, checks["git"].told, checks["git"].fix) == ("missing", "no git here", "git init")
    assert checks["trust"].state == "ok", "where there are no commits there are no hooks"


def test_whoever_has_no_name_is_told_how_to_have_one(
    project: Composition, look: Look, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for key in ("user.name", "user.email"):
        project.repository.git("config", ("--unset",), key)
    project.repository.git("config", "user.useConfigOnly", "true")
    assert "git config user.name" in look()["git"].fix


@pytest.mark.slow
def test_uncommitted_changes_and_unfinished_work_are_said(project: Composition, look: Look) -> None:
    (project.root / "new.py").touch()
    (project.root / ".cdd").mkdir()
    (project.root / CONFIG_FILE).write_text("diffs: false\n")
    assert look()["git"].state == "note"
    assert "1 uncommitted path" in look()["git"].told
    (project.root / ".git" / "MERGE_HEAD").write_text(f"{project.repository.read_head()}\n")
    assert look()["git"].state == "missing"
    assert "git merge --abort" in look()["git"].fix


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(project: Composition, look: Look) -> None:
    (project.root / ".cdd").mkdir()
    (project.root / ".cdd" / ".gitignore").touch()
    (project.root / ".cdd").chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert str(project.root / ".cdd") in look()["folders"].fix


def test_records_that_are_not_read_are_named(project: Composition, look: Look) -> None:
    assert look()["folders"].state == "ok"
    (project.root / ".cdd" / "sessions" / "one").mkdir(parents=True)
    found = look()["folders"]
    assert (found.state, found.told.partition("; ")[2]) == (
        "note",
        f"not read are records in {project.root / '.cdd'}: cdd trust --records",
    )


def test_a_disk_that_cannot_be_written_does_not_end_the_checks(look: Look) -> None:
    def read_only() -> object:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/p/.cdd")

    checks = look(suite=read_only)
    assert list(checks) == NAMES
    assert checks["interpreter"].told == "Read-only file system: /p/.cdd"
    assert checks["interpreter"].fix.startswith("mount that disk")


def test_a_private_folder_behind_a_link_is_named(project: Composition, look: Look, *, tmp_path: Path) -> None:
    (project.root / ".cdd").symlink_to(tmp_path)
    assert "is a link" in look()["folders"].told
    assert list(tmp_path.glob("journal")) == []


@pytest.mark.slow
def test_what_waits_for_a_decision_is_missing_and_listed(project: Composition, look: Look) -> None:
    hook = project.root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    (project.root / CONFIG_FILE).parent.mkdir()
    (project.root / CONFIG_FILE).write_text("max_attempts: 9\n")
    trust = look()["trust"]
    assert trust.state == "missing"
    assert trust.details == ("settings, .cdd/config.yaml: not decided", "commit hooks, .git/hooks: not decided")
    assert trust.fix == "decide: cdd --sandbox none trust"
    for offer, answer in zip(list_offers(project), (True, False), strict=True):
        project.trust.approvals.record(offer, approved=answer)
    trust = look()["trust"]
    assert trust.state == "note"
    assert trust.details == ("settings, .cdd/config.yaml: approved", "commit hooks, .git/hooks: declined")


def test_one_round_of_decisions_is_enough(project: Composition) -> None:
    program(project.root / ".ci" / "bin" / "python", "exit 1")
    project.environment = {name: value for name, value in project.environment.items() if name != "CDD_PYTHON"}
    (project.root / CONFIG_FILE).parent.mkdir()
    (project.root / CONFIG_FILE).write_text(
        "test_command: .ci/bin/pytest tests\n"
        "hooks:\n  Stop:\n    - hooks:\n        - {type: command, command: ./stop.sh}\n"
    )
    before = list_offers(project)
    assert [offer.subject for offer in before] == ["settings", "interpreter", "agent hooks"]
    for offer in before:
        project.trust.approvals.record(offer, approved=True)
    vars(project).pop("settings", None)
    assert list_offers(project) == before


def test_the_interpreter_that_the_test_command_names_is_listed_too(project: Composition) -> None:
    program(project.root / ".ci" / "bin" / "python", "exit 1")
    project.environment = {name: value for name, value in project.environment.items() if name != "CDD_PYTHON"}
    vars(project)["settings"] = Settings(test_command=".ci/bin/pytest tests")
    (offer,) = list_offers(project)
    assert (offer.subject, offer.source) == ("interpreter", ".ci/bin/python")


@pytest.mark.slow
def test_what_needs_an_approval_is_not_looked_at_and_no_second_fault(look: Look) -> None:
    def wait() -> object:
        raise NotApproved("not yet", hint="cdd trust")

    checks = look(settings=wait, suite=wait)
    assert [checks[name].state for name in ("settings", "interpreter", "plugin", "tests")] == ["note"] * 4
    assert "not approved yet" in checks["interpreter"].told


@pytest.mark.slow
def test_settings_that_differ_are_named(project: Composition, look: Look) -> None:
    (project.root / CONFIG_FILE).parent.mkdir()
    (project.root / CONFIG_FILE).write_text("max_attempts: 9\nmodel: other\n")

    def loaded() -> Settings:
        return load_settings(project.root, allows=lambda offer: True, environment={})

    assert look(settings=loaded)["settings"].told == ".cdd/config.yaml is read; model other, max_attempts 9"


def test_without_an_interpreter_nothing_is_tried_in_it(look: Look) -> None:
    checks = look(suite=missing("no pytest there", "pip install pytest"))
    assert checks["interpreter"].fix == "pip install pytest"
    assert checks["plugin"].told == checks["tests"].told == "not tried: this check needs an interpreter"


@pytest.mark.slow
def test_where_nothing_confines_them_the_tests_are_not_loaded(project: Composition, look: Look) -> None:
    mark = project.root.parent / "mark"
    (project.root / "conftest.py").write_text(f"open({str(mark)!r}, 'w')\n")
    checks = look()
    assert checks["tests"].told == "not tried: this check needs a sandbox"
    assert not mark.exists()


@pytest.mark.slow
def test_without_a_key_the_fix_is_the_model_s(look: Look) -> None:
    class Keyless:
        name = "some-model"

        def check(self) -> None:
            raise ModelError("no key", hint="export ANTHROPIC_API_KEY=...")

    model = look(model=Keyless)["model"]
    assert (model.state, model.told, model.fix) == ("missing", "no key", "export ANTHROPIC_API_KEY=...")


@pytest.mark.slow
def test_a_recording_is_counted_and_needs_no_key(look: Look, tmp_path: Path) -> None:
    recording = tmp_path / "recording.yaml"
    recording.write_text("- content: [Hello.]\n- content: [Bye.]\n")
    checks = look(Options(sandbox="none", replay=recording))
    assert "holds 2 turns" in checks["recording"].told
    assert "no network, no key" in checks["model"].told
    recording.write_text("- content: {}\n")
    assert look(Options(sandbox="none", replay=recording))["recording"].state == "missing"
    assert "--record FILE" in look()["recording"].told
    assert str(recording) in look(Options(sandbox="none", record=recording))["recording"].told


def test_the_engines_that_answer_are_named_and_the_others_with_their_reasons(look: Look, tmp_path: Path) -> None:
    serena = write_serena(tmp_path, "os._exit(1)")
    symbols = look(settings=lambda: Settings(serena=str(serena), symbols="serena"))["symbols"]
    assert (symbols.state, symbols.told) == ("note", "uses and renames: ty, then the name scan")
    assert [line.partition(":")[0] for line in symbols.details] == ["Serena"]
    alone = look(settings=lambda: Settings(symbols="index"))["symbols"]
    assert (alone.state, alone.fix) == ("note", "")
    assert "name scan alone" in alone.told
    unnamed = look(settings=lambda: Settings(symbols="serena"))["symbols"]
    assert (unnamed.state, "the setting serena names no program" in "".join(unnamed.details)) == ("note", True)


def test_checks_come_one_by_one(project: Composition) -> None:
    checks = run_checks(project)
    assert isinstance(next(iter(checks)), Check)
