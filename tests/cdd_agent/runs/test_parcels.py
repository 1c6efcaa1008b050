import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from cdd_agent.config.settings import Settings, parse_settings
from cdd_agent.errors import CddError
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.runs.parcels import Sending, UnpackedJob, take_result, unpack_job
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.work.outcome import Open
from cdd_agent.work.state import AttemptRecord, RunState, Status, StepExecution, Usage, replace_step
from cdd_agent.work.state_file import decode_state, encode_state, load_state
from tests.stories.conftest import git, under_git

STEP = StepExecution(step_number=2, title="add", text_sha256="ab")
DONE = replace(STEP, status=Status.COMPLETED, usage=Usage(input_tokens=5, calls=1))
HOOKS = parse_settings(b"hooks: {PostToolUse: [{hooks: [{type: command, command: touch ran}]}]}").hooks
SETTINGS = Settings(max_usd_per_ticket=1.25, hooks=HOOKS)


@dataclass
class Sent:
    """A job that was sent, and unpacked on a worker."""

    home: Repository
    base: CommitId
    data: bytes
    job: UnpackedJob

    def make_result(self, step: StepExecution = DONE, **changes: bytes | str | dict[str, bytes]) -> bytes:
        """Return the result with another state of the step, and other fields."""
        fields = msgspec.msgpack.decode(self.job.pack_result())
        state = decode_state(fields["state"], path="state")
        return msgspec.msgpack.encode({**fields, "state": encode_state(replace_step(state, step)), **changes})

    def take(self, data: bytes) -> StepExecution:
        """Return the step of a result at home."""
        return take_result(data, known=STEP, repository=self.home, base=self.base).step

    def commit(self, path: str = "shop/add.py") -> str:
        """Make a commit on the worker."""
        top = self.job.repository.root
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text("def add(): ...\n")
        git(top, "add", "-f", path)
        git(top, "commit", "-q", "-m", f"write {path}")
        return git(top, "rev-parse", "HEAD").strip()


@pytest.fixture(scope="module")
def shop_job(tmp_path_factory: pytest.TempPathFactory) -> Sent:
    """A job in the folder ``shop`` of a repository, with a ticket and a file."""
    folder = tmp_path_factory.mktemp("parcels")
    root = folder / "home"
    for name in ("shop/tickets/sums/spec.yaml", "shop/tickets/sums/plan.md", "shop/base.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("title: Sums\n")
    under_git(root)
    (folder / "turns.json").write_text("[]")
    home = Repository.find(root)
    base = home.read_head()
    assert base is not None
    other = replace(STEP, step_number=1, title="zero")
    project = root / "shop"
    sending = Sending(
        repository=home,
        head=base,
        project=PurePosixPath("shop"),
        folder=project,
        ticket=Ticket(slug="sums", folder=project / "tickets" / "sums"),
        state=RunState(ticket_slug="sums", started_at="now", step_executions={1: other, 2: STEP}),
        settings=SETTINGS,
        arguments=("--replay", folder / "turns.json", "exec", project, "sums"),
        python="/usr/bin/python3",
    )
    data = sending.pack()
    worker = folder / "worker"
    worker.mkdir()
    return Sent(home=home, base=base, data=data, job=unpack_job(data, worker))


@pytest.fixture
def sent(shop_job: Sent) -> Sent:
    """The same job, without commits."""
    if shop_job.job.repository.read_head() != shop_job.base:
        git(shop_job.job.repository.root, "checkout", "-q", "-f", "-B", "main", shop_job.base)
    return shop_job


def test_a_worker_finds_the_files_the_state_and_the_settings_of_a_job(sent: Sent) -> None:
    job, root = sent.job, sent.job.repository.root / "shop"
    turns = job.repository.root.parent / "files" / "0" / "turns.json"
    assert job.arguments == ("--replay", str(turns), "exec", str(root), "sums")
    assert Path(job.arguments[1]).read_text() == "[]"
    assert job.python == "/usr/bin/python3"
    assert (job.base, job.repository.read_head()) == (sent.base, sent.base)
    assert git(job.repository.root, "ls-files") == git(sent.home.root, "ls-files")
    assert git(job.repository.root, "status", "--porcelain", "shop/base.py") == ""
    state = load_state(job.ticket.state_path)
    assert state is not None
    assert state.execution(2) == STEP
    settings = parse_settings((root / ".cdd" / "config.yaml").read_bytes())
    assert settings == replace(SETTINGS, hooks={})  # programs of the user stay on the user's machine


def test_the_commits_and_the_step_of_a_result_are_taken(sent: Sent) -> None:
    commits = {"red": sent.commit("shop/tests/test_add.py"), "green": sent.commit()}
    step = sent.take(sent.make_result(replace(DONE, commits=commits)))
    assert (step.commits, step.status, step.usage) == (commits, Status.COMPLETED, DONE.usage)
    assert git(sent.home.root, "show", f"{commits['green']}:shop/add.py") == "def add(): ..."
    assert git(sent.home.root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


def test_logs_come_back_and_reports_that_evidence_rests_on_do_not(sent: Sent) -> None:
    attempt = AttemptRecord(phase="green", number=1, outcome=Open(), report="reports/sums/step-2.json")
    logs = {
        name: b"{}" for name in ("step-2-a-localization.json", "step-1-a-localization.json", "../x-localization.json")
    }
    result = sent.make_result(replace(DONE, attempts=(attempt,), returned=(attempt,)), logs=logs)
    taken = take_result(result, known=STEP, repository=sent.home, base=sent.base)
    assert [*taken.logs] == ["step-2-a-localization.json"]
    assert (taken.step.attempts, taken.step.returned) == ((replace(attempt, report=None),),) * 2


def test_a_job_that_committed_nothing_has_a_result_too(sent: Sent) -> None:
    failed = replace(DONE, status=Status.FAILED, error="It\x1b[2J failed.")
    step = sent.take(sent.make_result(failed))
    assert (step.status, step.commits) == (Status.FAILED, {})
    assert step.error is not None
    assert "\x1b" not in step.error


def _of_another_history(sent: Sent) -> bytes:
    top = sent.job.repository.root
    git(top, "checkout", "-q", "--orphan", "other")
    sent.commit()
    return sent.make_result()


def _merged(sent: Sent) -> bytes:
    top, base = sent.job.repository.root, sent.base
    sent.commit()
    git(top, "checkout", "-q", "-b", "side", base)
    sent.commit("shop/side.py")
    git(top, "merge", "-q", "-m", "merge", "main")
    return sent.make_result()


def _with_git_folder(sent: Sent) -> bytes:
    top = sent.job.repository.root
    blob = git(top, "rev-parse", "HEAD:shop/base.py").strip()
    tree = sent.job.repository.git("mktree", stdin=f"100644 blob {blob}\t.git\n".encode()).strip()
    commit = git(top, "commit-tree", "-m", "x", "-p", sent.base, tree).strip()
    git(top, "update-ref", "refs/heads/main", commit)
    return sent.make_result()


def _without_objects(sent: Sent) -> bytes:
    first = sent.commit()
    pack = msgspec.msgpack.decode(sent.make_result())["pack"]
    sent.commit("shop/more.py")
    return sent.make_result(replace(DONE, commits={"green": first}), pack=pack)


def _of_commits_elsewhere(sent: Sent) -> bytes:
    sent.commit()
    return sent.make_result(replace(DONE, commits={"green": sent.base}))


REFUSED: dict[str, tuple[Callable[[Sent], bytes], str]] = {
    "no message": (lambda _: b"\xc1", "cannot be read"),
    "nothing": (lambda _: b"", "cannot be read"),
    "another field": (lambda sent: sent.make_result(refs="refs/heads/main"), "cannot be read"),
    "no state": (lambda sent: sent.make_result(state=b""), "damaged"),
    "another title": (lambda sent: sent.make_result(replace(DONE, title="sub")), "another step"),
    "another text": (lambda sent: sent.make_result(replace(DONE, text_sha256="cd")), "another step"),
    "negative usage": (lambda sent: sent.make_result(replace(DONE, usage=Usage(input_tokens=-1))), "negative usage"),
    "a negative price": (lambda sent: sent.make_result(replace(DONE, usage=Usage(known_usd=-0.5))), "negative usage"),
    "no commit": (lambda sent: sent.make_result(head="--output=x"), "does not bring"),
    "a ref": (lambda sent: sent.make_result(head="refs/heads/main"), "does not bring"),
    "no pack": (lambda sent: sent.make_result(head="0" * 40, pack=b"PACK"), "index-pack"),
    "missing objects": (_without_objects, "refused"),
    "another history": (_of_another_history, "do not follow"),
    "a merge": (_merged, "do not follow"),
    "a folder .git": (_with_git_folder, "index-pack"),
    "commits elsewhere": (_of_commits_elsewhere, "names commits"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_result_that_no_job_makes_is_refused(sent: Sent, case: str) -> None:
    make, why = REFUSED[case]
    with pytest.raises(CddError, match=why) as refused:
        sent.take(make(sent))
    assert "The result of a worker is refused" in refused.value.happened
    assert git(sent.home.root, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


@pytest.mark.parametrize(
    "changes",
    [
        {"inside": "../outside"},
        {"inside": "/etc"},
        {"ticket": "../../outside"},
        {"ticket": ".git/hooks"},
        {"files": [["../../evil", b""]]},
        {"files": [[".bashrc", b""]]},
        {"documents": {"../../plan.md": b""}},
        {"documents": {".git": b""}},
        {"head": "main"},
    ],
)
def test_a_job_writes_nothing_outside_of_its_folder(sent: Sent, tmp_path: Path, changes: dict[str, object]) -> None:
    job = msgspec.msgpack.decode(sent.data) | changes
    folder = tmp_path / "again" / "job"
    folder.mkdir(parents=True)
    with pytest.raises((CddError, msgspec.ValidationError)):
        unpack_job(msgspec.msgpack.encode(job), folder)
    assert [each.name for each in folder.parent.iterdir()] == ["job"]
    assert not [each for each in folder.rglob("*") if re.search("evil|bashrc", each.name)]
