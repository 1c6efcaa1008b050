"""A hostile repository, opened: nothing of it runs, and nothing of it counts, before its user said yes."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdd_agent.compose import Composition
from cdd_agent.config import settings
from cdd_agent.config.options import Options
from cdd_agent.config.trust import Approvals, NotApproved, Offer
from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.events import Event, Notice
from cdd_agent.git import commits
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.tickets.ticket import find
from cdd_agent.workspace.files import Workspace
from tests.cdd_agent.git.test_commits_hooks import EVERY_HOOK
from tests.fakes.approval import Answers, trust_in, users_folder
from tests.fakes.cases import soak_after
from tests.fakes.demo import RECORDING, SLUG
from tests.fakes.tools import why_not

ROOT = Path(__file__).parent.parent.parent
FOREIGN = "model: somebody-elses\nmax_attempts: 1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A project in which everything that something else might run leaves a mark."""

    project: Path
    marks: Path
    home: Path

    def trap(self, name: str, *, at: Path) -> None:
        """A program at ``at`` that marks that it ran."""
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(f"#!/bin/sh\n: > '{self.marks}/{name}'\nexit 0\n")
        at.chmod(0o755)

    def python_trap(self, name: str, *, at: Path) -> None:
        """The same for what Python imports by itself."""
        at.write_text(f"open({str(self.marks / name)!r}, 'w').close()\n")

    @property
    def sprung(self) -> set[str]:
        """The traps that something stepped into."""
        return {path.name for path in self.marks.iterdir()}

    def environment(self, **more: str) -> dict[str, str]:
        """An empty home, no key and no interpreter named."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return kept | {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}

    def cdd(self, *arguments: str, before: Sequence[str] = (), **more: str) -> "subprocess.CompletedProcess[str]":
        """The program as a user starts it in the project, nobody there; ``more`` are variables."""
        return subprocess.run(
            [*before, sys.executable, "-m", "cdd_agent", *arguments],
            cwd=self.project,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture
def hostile(finished: Path, tmp_path: Path) -> Hostile:
    made = Hostile(project=finished, marks=tmp_path / "marks", home=tmp_path / "home")
    made.marks.mkdir()
    made.home.mkdir()
    find(finished, SLUG).state_path.unlink()
    (finished / ".cdd").mkdir(exist_ok=True)
    (finished / settings.CONFIG_FILE).write_text(FOREIGN)
    for name in EVERY_HOOK:
        made.trap(f"hook-{name}", at=finished / ".git" / "hooks" / name)
    made.trap("fsmonitor", at=finished / "fsmonitor.sh")
    made.trap("filter", at=finished / "filter.sh")
    made.trap("python", at=finished / ".venv" / "bin" / "python")
    (finished / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    for tool in ("git", "python", "python3", "poetry", "pytest"):
        made.trap(f"bin-{tool}", at=finished / "bin" / tool)
    for name in ("conftest", "sitecustomize", "usercustomize", "yaml", "msgspec"):
        made.python_trap(name, at=finished / f"{name}.py")
    (finished / ".env").write_text(f"HOME={finished}\nXDG_STATE_HOME={finished}/state\nANTHROPIC_API_KEY=stolen\n")
    subprocess.run(["git", "-c", "core.hooksPath=/dev/null", "add", "--force", ".venv"], cwd=finished, check=True)
    (finished / ".gitattributes").write_text("* filter=evil diff=evil\n")
    configuration = {
        "core.fsmonitor": "./fsmonitor.sh",
        "filter.evil.clean": "./filter.sh",
        "filter.evil.smudge": "./filter.sh",
        "diff.evil.textconv": "./filter.sh",
        "diff.external": "./filter.sh",
        "core.pager": "./filter.sh",
        "core.editor": "./filter.sh",
        "gpg.program": "./filter.sh",
        "commit.gpgSign": "true",
        "core.sshCommand": "./filter.sh",
    }
    for key, value in configuration.items():
        subprocess.run(["git", "config", key, value], cwd=finished, check=True)
    return made


# Row 13: nothing of a repository runs at the start.

STARTS = [
    ("status",),
    ("status", SLUG),
    (),
    ("--replay", str(RECORDING), "exec", SLUG, "--yes"),
    ("--replay", str(RECORDING), "--json", "exec", SLUG),
    ("--replay", str(RECORDING), "plan", SLUG, "--yes"),
    ("trust",),
    ("--replay", str(RECORDING), "--yes", "trust"),
]


@soak_after(1, "arguments", STARTS, ids=lambda arguments: " ".join(arguments).replace(str(RECORDING), "X"))
def test_opening_a_hostile_repository_runs_nothing_of_it_and_approves_nothing(
    hostile: Hostile, tmp_path: Path, *, arguments: tuple[str, ...]
) -> None:
    log = tmp_path / "strace.log"
    no_strace = why_not("strace", "--seccomp-bpf", "-f", "-o", "/dev/null", "true")
    watched = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=execve,socket,connect", "-o", str(log))
    result = hostile.cdd(*arguments, before=watched if no_strace is None else ())
    assert hostile.sprung == set()
    assert result.returncode in (0, 2), result.stderr
    if "exec" in arguments:
        assert result.returncode == 2
        assert "have not been approved" in result.stderr or "has not been approved" in result.stderr
        assert "cdd trust" in result.stderr
    assert not (hostile.project / "state").exists()
    assert (
        Approvals(hostile.project, environment=hostile.environment()).find_decision(offer_of(hostile.project)) is None
    )
    if no_strace is not None:
        pytest.skip(f"only the traps were looked at, not what else was started: {no_strace}")
    calls = log.read_text(encoding="utf-8", errors="replace")
    executed = re.findall(r'execve\("([^"]+)"', calls)
    assert executed, "strace saw nothing"
    assert [path for path in executed if (hostile.project / path).resolve().is_relative_to(hostile.project)] == []
    addresses = set(re.findall(r'inet_(?:addr|pton)\((?:AF_INET6, )?"([^"]+)"', calls))
    assert addresses <= {"127.0.0.1"}, "beyond this machine; the sandbox's trial of itself stays on it"


OBEYING = {
    "hatch": {"pyproject.toml": '[tool.hatch.env]\nrequires = ["evil"]\n[tool.hatch.envs.default]\n'},
    "poetry": {"pyproject.toml": '[tool.poetry]\nname = "x"\n', "poetry.toml": "[virtualenvs]\nin-project = true\n"},
    "pipenv": {"Pipfile": "", ".env": "PIPENV_PYTHON=./evil\n"},
}
OPENED = (("doctor",), (), ("--replay", str(RECORDING), "exec", SLUG), ("trust",))


@soak_after(
    2,
    ("level", "tool", "arguments"),
    [(level, tool, start) for start in OPENED for tool in OBEYING for level in ("bwrap", "none", "landlock")],
    ids=lambda each: each if isinstance(each, str) else " ".join(map(str, each)).replace(str(RECORDING), "X"),
)
def test_a_tool_that_obeys_the_project_changes_nothing_outside(
    hostile: Hostile, tmp_path: Path, *, level: str, tool: str, arguments: tuple[str, ...]
) -> None:
    shutil.rmtree(hostile.project / ".venv")
    (hostile.project / settings.CONFIG_FILE).unlink()
    for name, text in OBEYING[tool].items():
        (hostile.project / name).write_text(text)
    hostile.trap("obeyed", at=hostile.project / "evil")
    program = tmp_path / "tools" / tool
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > '{hostile.marks}/started'; ./evil; sh ./evil; echo {hostile.project}/venv\n")
    program.chmod(0o755)
    hostile.cdd(*arguments, CDD_SANDBOX=level, PATH=f"{program.parent}:{os.environ['PATH']}")
    assert hostile.sprung == set()
    subprocess.run([program], cwd=hostile.project, check=True, capture_output=True)
    assert hostile.sprung == {"started", "obeyed"}, "the trap is live"


@pytest.mark.slow
def test_no_program_is_found_by_a_relative_entry_of_the_path(hostile: Hostile) -> None:
    for name in ("git", "bwrap", "docker", "python"):
        hostile.trap(f"here-{name}", at=hostile.project / name)
    result = hostile.cdd("--replay", str(RECORDING), "doctor", PATH=f":.:bin:./bin:{os.environ['PATH']}")
    assert hostile.sprung == set()
    assert "git version" in result.stdout


def test_the_traps_are_live(hostile: Hostile) -> None:
    """What the tests above would see: plain git and the planted interpreter step into them."""
    subprocess.run([hostile.project / ".venv" / "bin" / "python"], check=True)
    subprocess.run(["git", "status"], cwd=hostile.project, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(hostile.project)}
    subprocess.run([sys.executable, "-c", ""], env=environment, check=True)
    assert {"python", "fsmonitor", "sitecustomize"} <= hostile.sprung


@pytest.mark.slow
def test_the_doctor_runs_nothing_of_it_either(hostile: Hostile) -> None:
    result = hostile.cdd("--replay", str(RECORDING), "doctor")
    assert result.returncode == 4
    assert "3 of 3 things in this repository need your decision" in result.stdout
    assert hostile.sprung == set()


# Row 14: what a repository's settings can never say, approved or not.


@pytest.mark.parametrize(
    "name",
    [
        *("base_url", "ANTHROPIC_BASE_URL", "api_key", "key_helper", "headers", "proxy", "http_proxy", "certificates"),
        *("env", "environment", "PATH", "python", "interpreter", "command", "plugins"),
        *("sandbox", "network", "read_only", "trust", "approved", "assume_yes", "ask", "replay", "record", "project"),
    ],
)
def test_settings_of_a_repository_name_no_address_key_program_or_protection(tmp_path: Path, name: str) -> None:
    (tmp_path / ".cdd").mkdir()
    (tmp_path / settings.CONFIG_FILE).write_text(f"{name}: x\n")
    with pytest.raises(DocumentError, match=f"unknown setting '{name}'"):
        settings.load(tmp_path, allows=lambda offer: True, environment={})


# Row 15: a repository never votes for itself.


def offer_of(project: Path) -> Offer:
    found = settings.read_offer(project)
    assert found is not None
    return found


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """A repository whose settings are approved."""
    folder = tmp_path / "trusted"
    (folder / ".cdd").mkdir(parents=True)
    (folder / settings.CONFIG_FILE).write_text(FOREIGN)
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    Approvals(folder, environment=users_folder(tmp_path)).record(offer_of(folder), approved=True)
    return folder


@pytest.mark.parametrize("trick", ["commondir", "gitfile", "gitlink", "worktree", "copy", "cddlink"])
def test_no_repository_passes_for_a_trusted_one(trusted: Path, tmp_path: Path, *, trick: str) -> None:
    evil = tmp_path / "evil"
    if trick == "copy":
        shutil.copytree(trusted, evil, symlinks=True)
    else:
        (evil / ".cdd").mkdir(parents=True)
        (evil / settings.CONFIG_FILE).write_text(FOREIGN)
    match trick:
        case "commondir":
            subprocess.run(["git", "init", "-q", str(evil)], check=True)
            (evil / ".git" / "commondir").write_text(f"{trusted}/.git\n")
        case "gitfile":
            (evil / ".git").write_text(f"gitdir: {trusted}/.git\n")
        case "gitlink":
            (evil / ".git").symlink_to(trusted / ".git")
        case "worktree":
            subprocess.run(["git", "init", "-q", str(evil)], check=True)
            subprocess.run(["git", "config", "core.worktree", str(trusted)], cwd=evil, check=True)
        case "cddlink":
            shutil.rmtree(evil / ".cdd")
            (evil / ".cdd").symlink_to(trusted / ".cdd")
    trust, _ = trust_in(evil, temporary=tmp_path)
    with pytest.raises((NotApproved, DocumentError)):
        settings.load(evil, allows=trust.allows, environment={})


@pytest.mark.slow
def test_approvals_that_a_repository_brings_are_not_read(hostile: Hostile) -> None:
    """Neither where the program keeps its own, nor below a home that the repository would like to be."""
    elsewhere = hostile.home / "elsewhere"
    real = Approvals(hostile.project, environment={"XDG_STATE_HOME": str(elsewhere)})
    real.record(offer_of(hostile.project), approved=True)
    for place in (".cdd", "state/cdd", ".local/state/cdd"):
        (hostile.project / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(real.path, hostile.project / place / "approvals.json")
    assert (
        Approvals(hostile.project, environment=hostile.environment()).find_decision(offer_of(hostile.project)) is None
    )
    result = hostile.cdd("--replay", str(RECORDING), "exec", SLUG, "--yes")
    assert result.returncode == 2
    assert "approved" in result.stderr


# Row 16: no .env is loaded.


@pytest.mark.slow
def test_an_env_file_has_no_effect(hostile: Hostile) -> None:
    for name in (".env", ".env.local", ".envrc", ".flaskenv", ".cdd/.env"):
        (hostile.project / name).write_text(
            f"HOME={hostile.project}\nXDG_STATE_HOME={hostile.project}/state\nXDG_CONFIG_HOME={hostile.project}\n"
            f"ANTHROPIC_API_KEY=sk-planted\nANTHROPIC_BASE_URL=http://127.0.0.1:9\nCDD_MODEL=planted\n"
            f"CDD_REPLAY={RECORDING}\nCDD_PYTHON={hostile.project}/.venv/bin/python\nCDD_SANDBOX=none\n"
        )
    (hostile.project / settings.CONFIG_FILE).unlink()
    told = hostile.cdd("doctor").stdout
    assert "ANTHROPIC_API_KEY is not set" in told
    assert "planted" not in told
    assert "played back" not in told
    assert " ".join(told.split()).count(f"your approvals in {hostile.home}/.local/state/cdd") == 1
    assert hostile.sprung == set()


# Row 17: a repository's test command.


@pytest.mark.slow
def test_a_test_command_of_the_repository_never_runs_at_the_start(hostile: Hostile) -> None:
    """One that a file names waits for approval; what configures pytest is loaded in the sandbox."""
    command = f"{hostile.project}/filter.sh"
    (hostile.project / settings.CONFIG_FILE).write_text(f"test_command: {command}\n")
    (hostile.project / "tdd.properties").write_text(f"test.command={command}\n")
    (hostile.project / "pytest.ini").write_text("[pytest]\naddopts = -p conftest\n")
    hostile.cdd("--replay", str(RECORDING), "exec", SLUG, "--yes")
    assert hostile.sprung == set()


# Row 18: what is not there yet cannot be put there by an agent to run at the next start.


@pytest.mark.parametrize(
    "path",
    [
        ".cdd/config.yaml",
        ".cdd/approvals.json",
        ".cdd/hooks.json",
        ".git/hooks/pre-commit",
        ".git/config",
        ".gitmodules",
        "sub/sitecustomize.py",
    ],
)
def test_what_starts_something_next_time_is_not_written_by_an_agent(tmp_path: Path, path: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", "--template=", str(project)], check=True)
    workspace = Workspace(project)
    with pytest.raises(UsageError):
        workspace.write(path, b"planted\n")
    assert not (project / path).is_file() or "planted" not in (project / path).read_text()


def test_settings_that_appear_later_are_asked_about(tmp_path: Path) -> None:
    answers = Answers(True)
    project = tmp_path / "project"
    project.mkdir()
    trust, _ = trust_in(project, temporary=tmp_path, ask=answers)
    settings.load(project, allows=trust.allows, environment={})
    (project / ".cdd").mkdir()
    (project / settings.CONFIG_FILE).write_text(FOREIGN)
    settings.load(project, allows=trust.allows, environment={})
    assert len(answers.asked) == 1


# Row 20: approved once, changed later.


def test_settings_that_changed_are_asked_about_again(trusted: Path, tmp_path: Path) -> None:
    trust, _ = trust_in(trusted, temporary=tmp_path)
    assert settings.load(trusted, allows=trust.allows, environment={}).model == "somebody-elses"
    with (trusted / settings.CONFIG_FILE).open("a") as stream:
        stream.write("max_turns: 999\n")
    with pytest.raises(NotApproved, match="changed since you decided"):
        settings.load(trusted, allows=trust.allows, environment={})


@pytest.mark.parametrize("changed", [".git/hooks/pre-commit", ".pre-commit-config.yaml", ".git/hooks/commit-msg"])
def test_hooks_that_changed_do_not_run_before_they_are_approved_again(
    trusted: Path, tmp_path: Path, *, changed: str
) -> None:
    hook = trusted / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    repository = Repository(trusted)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    answers = Answers(True)
    trust, _ = trust_in(trusted, temporary=tmp_path, ask=answers)
    repository.may_run_hooks = lambda: trust.allows(commits.offer_hooks(repository))
    assert repository.may_run_hooks()
    (trusted / changed).write_text(f"#!/bin/sh\n: > '{tmp_path}/mark'\n")
    (trusted / changed).chmod(0o755)
    answers.answer = False
    repository.git("commit", ("--allow-empty", "-qm"), "x", hooks=True)
    assert answers.changed == [False, True]
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("answer", [True, False])
def test_commits_go_with_approved_hooks_and_without_declined_ones(
    trusted: Path, tmp_path: Path, *, answer: bool
) -> None:
    hook = trusted / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n: > '{tmp_path}/mark'\n")
    hook.chmod(0o755)
    seen: list[Event] = []
    options = Options(project=trusted, ask=Answers(answer))
    repository = Composition(options, emit=seen.append, environment=users_folder(tmp_path)).repository
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    commit_paths(repository, "settings", paths=[str(settings.CONFIG_FILE)])
    assert (tmp_path / "mark").exists() is answer
    told = [event.text for event in seen if isinstance(event, Notice)]
    without = "You declined the repository's commit hooks: cdd commits without them."
    assert told == ([] if answer else [f"{without} To decide again: cdd --project {trusted} trust"])
