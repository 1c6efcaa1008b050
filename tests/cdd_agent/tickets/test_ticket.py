import os
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.tickets import spec
from cdd_agent.tickets.ticket import Ticket, create, find, list_tickets


def test_a_created_ticket_is_found(tmp_path: Path) -> None:
    made = create(tmp_path, "csv-export", title="Export as CSV", type="feature")

    assert find(tmp_path, "csv-export") == made == Ticket(slug="csv-export", folder=tmp_path / "tickets" / "csv-export")
    assert made.spec_path.is_file()
    assert (made.plan_path.name, made.state_path.name) == ("plan.md", "execution-state.json")


@pytest.mark.parametrize("kind", spec.TYPES)
def test_the_template_is_a_valid_spec_of_each_type(tmp_path: Path, kind: str) -> None:
    made = create(tmp_path, "a", title='Say "hi": #1 \\o/', type=kind)

    assert spec.load(made.spec_path) == spec.Spec(title='Say "hi": #1 \\o/', type=kind)
    assert spec.find_missing(spec.load(made.spec_path)) == ("a description", "an acceptance criterion")


def test_the_template_is_filled_in_without_losing_its_comments(tmp_path: Path) -> None:
    path = create(tmp_path, "a", title="A", type="bug").spec_path
    text = spec.load_text(path)
    comments = [line for line in text.splitlines() if "#" in line and "status" not in line]

    filled = spec.update(
        text,
        {
            "description": "One.\nTwo: three.",
            "acceptance_criteria": [spec.Criterion(id="AC-1", text="It works.")],
            "out_of_scope": ["Excel"],
            "technical_notes": "Use csv.\nNo pandas.",
            "open_questions": ["Which #1?"],
            "depends_on": ["b"],
            "status": "refined",
        },
        path=str(path),
    )

    assert [
        line for line in filled.splitlines() if "#" in line and "status" not in line and "Which" not in line
    ] == comments
    assert "status: refined            # draft" in filled


def test_the_state_of_a_run_is_kept_out_of_git(tmp_path: Path) -> None:
    create(tmp_path, "a", title="A", type="chore")

    assert (tmp_path / "tickets" / ".gitignore").read_text() == "execution-state.json*\n"


def test_what_the_user_ignores_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "tickets").mkdir()
    (tmp_path / "tickets" / ".gitignore").write_text("mine\n")

    create(tmp_path, "a", title="A", type="chore")

    assert (tmp_path / "tickets" / ".gitignore").read_text() == "mine\n"


def test_an_existing_ticket_is_not_created_again(tmp_path: Path) -> None:
    (tmp_path / "specs" / "tickets" / "a").mkdir(parents=True)
    (tmp_path / "specs" / "tickets" / "a" / "spec.yaml").touch()

    with pytest.raises(UsageError, match="exists already"):
        create(tmp_path, "a", title="A", type="chore")


def test_an_unknown_type_is_refused_with_the_list(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        create(tmp_path, "a", title="A", type="feture")

    assert error.value.hint == (
        "did you mean 'feature'? the types are feature, bug, enhancement, refactor, chore, doc, spike"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_slug_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    create(tmp_path, "csv-export", title="A", type="chore")

    with pytest.raises(UsageError, match="the nearest is 'csv-export'") as error:
        find(tmp_path, "cvs-export")

    assert error.value.hint == "type csv-export, or create cvs-export with: cdd new cvs-export"


def test_a_project_without_tickets_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are none yet"):
        find(tmp_path, "a")


@pytest.mark.parametrize("slug", ["../a", "/a", "A b", "-a", "", "a/b", "a\n"])
def test_a_slug_that_is_no_name_is_refused(tmp_path: Path, slug: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a ticket"):
        find(tmp_path, slug)


def test_tickets_are_found_in_both_places_by_slug(tmp_path: Path) -> None:
    for folder in ("tickets/b", "specs/tickets/a", "specs/tickets/b", "tickets/Not-one", "tickets/.hidden"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "spec.yaml").touch()
    (tmp_path / "tickets" / "file").touch()

    assert [ticket.folder.relative_to(tmp_path).as_posix() for ticket in list_tickets(tmp_path)] == [
        "specs/tickets/a",
        "tickets/b",
    ]


def test_an_empty_folder_is_no_ticket_and_can_become_one(tmp_path: Path) -> None:
    (tmp_path / "tickets" / "empty").mkdir(parents=True)
    assert list_tickets(tmp_path) == ()
    assert create(tmp_path, "empty", title="A", type="chore").spec_path.exists()


@pytest.mark.parametrize(("slug", "title"), [("a" * 300, "A"), ("a", "A" * 70_000)])
def test_what_is_too_long_is_refused_before_anything_is_made(tmp_path: Path, slug: str, title: str) -> None:
    with pytest.raises(UsageError, match="characters"):
        create(tmp_path, slug, title=title, type="chore")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["spec.yaml", "plan.md", "execution-state.json"])
def test_a_ticket_of_links_is_refused(tmp_path: Path, name: str) -> None:
    folder = create(tmp_path, "a", title="A", type="bug").folder
    (tmp_path / "secret").write_text("key")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match=f"{name} is a link"):
        find(tmp_path, "a")


def test_a_ticket_behind_a_link_is_found_inside_the_project_and_refused_outside(tmp_path: Path) -> None:
    project = tmp_path / "project"
    create(project, "a", title="A", type="bug")
    (project / "tickets").rename(project / "kept")
    (project / "tickets").symlink_to("kept")
    assert find(project, "a").spec_path.is_file()
    (project / "kept").rename(tmp_path / "kept")
    (project / "tickets").unlink()
    (project / "tickets").symlink_to("../kept")
    with pytest.raises(UsageError, match="outside the project"):
        find(project, "a")
    with pytest.raises(UsageError, match="outside the project"):
        create(project, "b", title="B", type="bug")
    assert not (tmp_path / "kept" / "b").exists()


def test_a_pipe_in_the_place_of_a_document_is_refused_without_waiting(tmp_path: Path) -> None:
    folder = create(tmp_path, "a", title="A", type="bug").folder
    os.mkfifo(folder / "plan.md")
    with pytest.raises(UsageError, match="not a regular file"):
        find(tmp_path, "a")
