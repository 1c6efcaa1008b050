"""No program in a sandbox reads or changes what cdd has recorded."""

import subprocess
from pathlib import Path

import pytest

from cdd_agent.agent.hooks import SandboxedHooks, offer_hooks
from cdd_agent.hooks import HookCommand, HookGroup, HookSettings
from cdd_agent.sandbox.backends import ContainerSandbox
from cdd_agent.sandbox.port import Access, Command
from cdd_agent.work.records import find_records
from tests.cdd_agent.sandbox.conftest import CONFINED, PYTHON, at


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message=first"]):
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
        subprocess.run(["git", *identity, *words], cwd=root, check=True)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", "../linked"], cwd=root, check=True)
    for path in (
        find_records(root).folder / "sessions" / "one",
        root / ".git" / "cdd-set-aside-1" / "main" / "one",
        find_records(root.parent / "linked").folder / "x",
        root / ".git" / "modules" / "parts" / "cdd" / "main" / "one",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a secret of the user\n")
    return root


def ways(root: Path) -> tuple[Access, ...]:
    """The project read-only, the project writable, and a work tree with git's common folder."""
    git = root / ".git"
    return (
        Access(read_only=(root, *PYTHON)),
        Access(read_write=(root,), read_only=(git, *PYTHON)),
        Access(read_write=(root.parent / "linked",), read_only=(git, *PYTHON)),
    )


TRY = """
grep -r 'a secret' {git} {root} 2>/dev/null
find {git} -name one -o -name x 2>/dev/null
for folder in {git}/cdd/main/root/sessions {git}/cdd {git}/cdd-set-aside-1/main {git}/modules/parts/cdd; do
  (echo bad > $folder/one) 2>/dev/null && echo written in $folder; (mv $folder $folder.away) 2>/dev/null && echo moved
done
git -C {cwd} log --oneline | grep -c first
"""


@pytest.mark.parametrize("level", CONFINED)
@pytest.mark.parametrize("way", [0, 1, 2])
def test_records_can_be_neither_read_nor_written(project: Path, level: str, way: int) -> None:
    if level == "landlock" and way == 1:
        pytest.skip("landlock cannot keep git's folder out of a writable one; runs work in a tree without it")
    access = ways(project)[way]
    cwd = access.read_write[0] if access.read_write else project
    script = TRY.format(git=project / ".git", root=project, cwd=cwd)
    result = at(level).run(Command(argv=("bash", "-c", script), cwd=cwd, access=access, timeout_s=20))
    assert result.output.split() == ["1"], "git works, and nothing else was found"
    kept = sorted(path for path in (project / ".git").rglob("*") if path.name in ("one", "x"))
    assert [path.read_text() for path in kept] == ["a secret of the user\n"] * 4


def test_a_container_covers_them_too(project: Path) -> None:
    sandbox = ContainerSandbox.__new__(ContainerSandbox)
    sandbox.client, sandbox._users = Path("docker"), ()
    for access in ways(project):
        options = list(sandbox._options(access, "x"))
        covered = {options[at + 1] for at, option in enumerate(options) if option == "--tmpfs"}
        git = project / ".git"
        assert covered >= {f"{git / name}:ro" for name in ("cdd", "cdd-set-aside-1", "modules/parts/cdd")}


@pytest.mark.parametrize("level", CONFINED)
def test_a_hook_of_the_user_reads_its_transcript_and_no_other_record(project: Path, level: str) -> None:
    records = find_records(project)
    transcript = records.locate_journal("sale")
    transcript.parent.mkdir(parents=True)
    transcript.write_text("the transcript\n")
    find = r"""sed -n 's/.*"transcript_path": *"\([^"]*\)".*/\1/p'"""  # the machine's python3 may be out of reach
    command = f'cat "$({find})" >&2; grep -rs "a secret" {project} >&2; exit 2'
    settings: HookSettings = {"PreCompact": (HookGroup(hooks=(HookCommand(command=command),)),)}
    offer = offer_hooks(settings, project)
    assert offer is not None
    hooks = SandboxedHooks(
        settings=settings,
        project=project,
        root=project,
        sandbox=at(level),
        make_access=Access,
        variables={},
        session="sale",
        transcript=transcript,
        emit=lambda _: None,
        approved=offer,
        allows=lambda _: True,
    )
    assert hooks.run("PreCompact", {}).block == "the transcript"
