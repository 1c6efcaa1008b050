"""Ranges as git takes them, and commits as the log tells of them."""

import pytest

from cdd_agent.audit.handoffs import find_commit, read_span
from cdd_agent.git.repository import CommitId
from tests.fakes.cases import soak_after
from tests.fakes.project import Project

BODY = "Ticket: sale\nPhase: RED\nCycle: 1\nHandoff-Id: 0123456789abcdef"


@pytest.fixture
def three(project: Project) -> Project:
    for name in ("second", "third"):
        project.git("commit", "-q", "--allow-empty", "-m", name)
    project.git("tag", "v1", "HEAD~1")
    return project


@soak_after(
    2,
    ("revisions", "inside"),
    [
        ("HEAD", ["first", "second", "third"]),
        ("v1", ["first", "second"]),
        ("v1..", ["third"]),
        ("HEAD~2..v1", ["second"]),
        ("v1...main", ["third"]),
        ("HEAD^!", ["third"]),
        (":/second", ["first", "second"]),
        ("main..v1", []),
    ],
)
def test_a_range_is_what_git_takes(three: Project, revisions: str, inside: list[str]) -> None:
    span = read_span(three.repository, revisions)
    assert [commit.subject for commit in span.commits.values() if commit.id in span.inside] == inside
    assert next(iter(span.commits.values())).subject == "first", "what comes before is known"


def test_trailers_are_read_and_none_can_be_made_up_by_a_subject(project: Project) -> None:
    project.git("commit", "-q", "--allow-empty", "-m", f"test: it\n\n{BODY}")
    project.git("commit", "-q", "--allow-empty", "-m", f"test: it\n\n{BODY.replace('Cycle', 'Step')}")
    project.git("commit", "-q", "--allow-empty", "-m", "a\x1fb\x1fc\x1fd: \x1e\n\nHandoff-Id: 0123456789abcdef")
    _, honest, of_step, sly = read_span(project.repository, "HEAD").commits.values()
    assert honest.trailers == of_step.trailers
    assert dict(honest.trailers) == {
        "Ticket": ("sale",),
        "Phase": ("RED",),
        "number": ("1",),
        "Handoff-Id": ("0123456789abcdef",),
    }
    assert not any(sly.trailers.values())
    assert (sly.parents, sly.parent) == ((of_step.id,), of_step.id)


def test_an_amended_commit_is_known_for_one(project: Project) -> None:
    assert not next(iter(read_span(project.repository, "HEAD").commits.values())).is_rewritten
    project.git("commit", "-q", "--amend", "--no-edit", "--date=2001-01-01T00:00:00")
    assert next(iter(read_span(project.repository, "HEAD").commits.values())).is_rewritten


def test_a_commit_is_found_wherever_it_is_and_nothing_else_is(three: Project) -> None:
    gone = three.git("rev-parse", "HEAD")
    three.git("reset", "-q", "--hard", "HEAD~2")
    found = find_commit(three.repository, gone)
    assert found is not None
    assert found.subject == "third"
    assert find_commit(three.repository, "0" * 40) is None
    assert find_commit(three.repository, "HEAD") is None
    assert find_commit(three.repository, three.git("rev-parse", "HEAD^{tree}")) is None


def test_ancestors_come_the_nearest_first_and_no_more_than_asked_for(three: Project) -> None:
    span = read_span(three.repository, "HEAD")
    head = CommitId(three.git("rev-parse", "HEAD"))
    assert [span.commits[each].subject for each in span.ancestors(head, most=2)] == ["third", "second"]
