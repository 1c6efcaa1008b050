"""Which ignored files a run gets is the user's decision, asked for once."""

from pathlib import Path

import pytest

from cdd_agent.config.trust import Approvals, NotApproved, Trust
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.tdd.ignored_files import IncludedFiles


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "project").mkdir()
    made = Repository.create(tmp_path / "project")
    made.git("config", "user.name", "Ann")
    made.git("config", "user.email", "ann@example.org")
    return made


class Chooser:
    """A user who gives these answers."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, question: str, choices: tuple[str, ...]) -> int:
        self.asked.append(question)
        return self.answers.pop(0)


def decide(repository: Repository, *answers: int, inside: str = "") -> tuple[IncludedFiles, Chooser]:
    project = repository.root / inside
    approvals = Approvals(project, environment={"XDG_STATE_HOME": str(repository.root.parent / "state")})
    included = IncludedFiles(user=repository, project=project, trust=Trust(approvals, ask=None, report=lambda _: None))
    chooser = Chooser(*answers)
    included.has_decided(choose=chooser if answers else None)
    return included, chooser


def ignore(repository: Repository, *names: str) -> None:
    (repository.root / ".gitignore").write_text(".cdd/\n*.sqlite\n.env\ndata/\n*.log\n")
    commit_paths(repository, "rules", paths=[".gitignore"])
    for name in names:
        (repository.root / name).parent.mkdir(parents=True, exist_ok=True)
        (repository.root / name).write_text("mine")


def test_the_user_chooses_once_which_ignored_files_runs_get(repository: Repository) -> None:
    ignore(repository, "db.sqlite", "data/a.csv", "data/b.csv", ".env", "run.log")
    (repository.root / "data" / "auth.yml").write_text("user: me\npassword: hunter2\n")
    included, chooser = decide(repository, 2, 1, 0)
    assert "data/ (3 files, 35 B)" in chooser.asked[0]
    assert "db.sqlite (1 file, 4 B)\nThese seem to hold secrets: data/auth.yml.\nNot meant: .env." in chooser.asked[0]
    assert "run.log" not in chooser.asked[0]
    assert (repository.root / ".cdd" / "worktree-include").read_text() == "/data/\n"
    assert included.read() == b"/data/\n"
    _, again = decide(repository, 1)
    assert again.asked == []


def test_the_answer_that_no_file_is_needed_is_kept_without_a_list(repository: Repository) -> None:
    ignore(repository, "db.sqlite")
    included, _ = decide(repository, 0)
    assert not (repository.root / ".cdd" / "worktree-include").exists()
    assert (included.read(), included.has_decided(choose=None)) == (b"", True)
    _, again = decide(repository, 1)
    assert again.asked == []


def test_a_project_without_such_files_asks_nothing_and_nobody_is_asked_who_is_not_there(repository: Repository) -> None:
    ignore(repository, "run.log", ".env")
    assert decide(repository, 1)[1].asked == []
    ignore(repository, "db.sqlite")
    assert not decide(repository)[0].has_decided(choose=None)


def test_a_list_that_came_with_the_repository_is_void_until_it_is_approved(repository: Repository) -> None:
    ignore(repository, ".env")
    (repository.root / ".cdd").mkdir(exist_ok=True)
    (repository.root / ".cdd" / "worktree-include").write_text("/.env\n")
    included, chooser = decide(repository, 1)
    with pytest.raises(NotApproved, match="list of ignored files"):
        included.read()
    (offer,) = included.list_offers()
    assert (chooser.asked, offer.shown[0]) == ([], "The agent could read these, which seem to hold secrets: .env")
    included.trust.approvals.record(offer, approved=False)
    assert included.read() == b""
    included.trust.approvals.record(offer, approved=True)
    assert included.read() == b"/.env\n"
    (repository.root / ".cdd" / "worktree-include").write_text("/.env\n*\n")
    with pytest.raises(NotApproved, match="changed since you decided"):
        included.read()


def test_the_list_of_a_package_names_files_below_it(repository: Repository) -> None:
    ignore(repository, "pkg/db.sqlite", "db.sqlite")
    included, _ = decide(repository, 1, inside="pkg")
    assert (repository.root / "pkg" / ".cdd" / "worktree-include").read_text() == "/db.sqlite\n"
    assert included.read() == b"/pkg/db.sqlite\n"
    (repository.root / ".cdd").mkdir(exist_ok=True)
    (repository.root / ".cdd" / "worktree-include").write_text("/db.sqlite\n")
    with pytest.raises(NotApproved, match=r"\.\./\.cdd/worktree-include"):
        included.read()
    included.trust.approvals.record(included.list_offers()[0], approved=True)
    assert included.read() == b"/db.sqlite\n/pkg/db.sqlite\n"
