"""A ticket: a folder that holds what is wanted, how, and how far it has come."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.storage import write_atomic

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_FOLDERS = ("tickets", "specs/tickets")
_IGNORED = "execution-state.json*\n"

_TEMPLATE = """\
schema: cdd/1
title: {title}
type: {type:<18} # feature bug enhancement refactor chore doc spike
status: draft            # draft refined planned executing done

# What is wanted, for whom and why, in a few sentences.
description: |

# How to tell that it is done, one sentence a line; no quotes are needed:
#   - WHEN the list is empty THE SYSTEM SHALL write the header only
acceptance_criteria:

# What a reader might expect but is not asked for, one a line.
out_of_scope:

# What the one who does it should know.
technical_notes: |

# What must be answered before there can be a plan, one a line.
open_questions:

# Slugs of the tickets that must be done first, one a line.
depends_on:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Where the files of a ticket lie."""

    slug: str
    """The name of its folder."""
    folder: Path

    @property
    def spec_path(self) -> Path:
        """What is wanted."""
        return self.folder / "spec.yaml"

    @property
    def plan_path(self) -> Path:
        """How, in steps."""
        return self.folder / "plan.md"

    @property
    def state_path(self) -> Path:
        """How far the steps have come."""
        return self.folder / "execution-state.json"


MOST_SLUG_CHARACTERS = 80
MOST_TITLE_CHARACTERS = 200
MOST_NAMED = 8
"""Tickets that an error lists."""


def find(project: Path, slug: str) -> Ticket:
    """The ticket ``slug`` of ``project``.

    Raises ``UsageError``, naming the nearest one, if there is none, and if a link leads it to other files: its texts
    are shown to a model, and written.
    """
    _check_slug(slug)
    for folder in _FOLDERS:
        if _is_ticket(project / folder / slug):
            found = Ticket(slug=slug, folder=project / folder / slug)
            _check_place(project, found)
            return found
    slugs = [ticket.slug for ticket in all_tickets(project)]
    near = difflib.get_close_matches(slug, slugs, n=1, cutoff=0.5)
    few = ", ".join(slugs[:MOST_NAMED]) + (" ..." if len(slugs) > MOST_NAMED else "")
    known = f"the nearest is '{near[0]}'" if near else f"those there are: {few}" if slugs else "there are none yet"
    meant = f"name {near[0]}, or make" if near else "make"
    raise UsageError(f"There is no ticket '{slug}' in {project}; {known}.", hint=f"{meant} it with: cdd new {slug}")


def all_tickets(project: Path) -> tuple[Ticket, ...]:
    """The tickets of ``project`` by slug."""
    found: dict[str, Ticket] = {}
    for name in _FOLDERS:
        folder = project / name
        for entry in folder.iterdir() if folder.is_dir() else ():
            if _is_ticket(entry) and _SLUG.fullmatch(entry.name):
                found.setdefault(entry.name, Ticket(slug=entry.name, folder=entry))
    return tuple(found[slug] for slug in sorted(found))


def create(project: Path, slug: str, *, title: str, type: str) -> Ticket:
    """A new ticket with a spec to fill in; keeps the states of runs out of git.

    Raises ``UsageError`` for a slug that is taken, for an unknown type, and if a link leads the ticket elsewhere.
    """
    from cdd_agent.tickets.spec import TYPES
    from cdd_agent.tickets.yaml_text import quoted

    _check_slug(slug)
    if type not in TYPES:
        near = difflib.get_close_matches(type, TYPES, n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"'{type}' is not a type of ticket.", hint=f"{meant}the types are {', '.join(TYPES)}")
    taken = next((ticket for ticket in all_tickets(project) if ticket.slug == slug), None)
    if taken:
        raise UsageError(f"The ticket '{slug}' is there already: {taken.folder}.", hint=f"go on with: cdd spec {slug}")
    if len(title) > MOST_TITLE_CHARACTERS:
        raise UsageError(
            f"The title has {len(title)} characters; {MOST_TITLE_CHARACTERS} are allowed.",
            hint="say it in one line, and the rest in the description",
        )
    ticket = Ticket(slug=slug, folder=project / "tickets" / slug)
    _check_place(project, ticket)
    text = _TEMPLATE.format(title=quoted(" ".join(title.split())), type=type)
    write_atomic(ticket.spec_path, text.encode())
    ignore = project / "tickets" / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, _IGNORED.encode())
    return ticket


def _is_ticket(folder: Path) -> bool:
    """Whether a folder holds at least one of a ticket's files."""
    return any((folder / name).exists() for name in ("spec.yaml", "plan.md", "execution-state.json"))


def _check_place(project: Path, ticket: Ticket) -> None:
    """Raise ``UsageError`` if a ticket's folder lies outside the project, or one of its files is no ordinary file."""
    folder = ticket.folder.resolve()
    if not folder.is_relative_to(project.resolve()):
        raise UsageError(
            f"The ticket {ticket.slug} lies in {folder}, outside the project {project}.",
            hint=f"make {ticket.folder.parent} and what is in it folders of the project instead of links",
        )
    for path in (ticket.spec_path, ticket.plan_path, ticket.state_path):
        is_document = path != ticket.state_path
        if path.is_symlink() or (is_document and path.exists() and not path.is_file()):
            raise UsageError(
                f"{path} is {'a link' if path.is_symlink() else 'no ordinary file'}, which no part of a ticket may be.",
                hint=f"put the file itself there: ls -l {path}",
            )


def _check_slug(slug: str) -> None:
    if len(slug) > MOST_SLUG_CHARACTERS:
        raise UsageError(
            f"The name of a ticket has at most {MOST_SLUG_CHARACTERS} characters; this one has {len(slug)}.",
            hint=f"shorten it: {slug[:20]}",
        )
    if not _SLUG.fullmatch(slug):
        proposed = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-") or "my-ticket"
        raise UsageError(
            f"'{slug}' is not the name of a ticket: lower-case letters, digits and dashes are.",
            hint=f"write it as: {proposed}",
        )
