"""A ticket: a folder with a spec, a plan and the state of its execution."""

import re
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError, suggest
from cdd_agent.storage import make_folder, write_atomic
from cdd_agent.untrusted.paths import fold_name

_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")
_FOLDERS = ("tickets", "specs/tickets")

_TEMPLATE = """\
schema: cdd/1
title: {title}
type: {type:<18} # feature bug enhancement refactor chore doc spike
status: draft            # draft refined planned executing done

# The goal, who needs it and why, in a few sentences.
description: |

# How to tell that it is done. One sentence per line, without quotes:
#   - WHEN the list is empty THE SYSTEM SHALL write the header only
acceptance_criteria:

# Related work that this ticket does not include, one per line.
out_of_scope:

# Background for the implementation.
technical_notes: |

# Questions to answer before planning, one per line.
open_questions:

# Slugs of the tickets that must be done first, one per line.
depends_on:
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """The paths of a ticket, or of a run without one."""

    slug: str
    """The name of the folder."""
    folder: Path
    has_documents: bool = True
    """Whether it should have a spec and a plan. A run without a ticket has neither."""

    @property
    def spec_path(self) -> Path:
        """The requirements."""
        return self.folder / "spec.yaml"

    @property
    def plan_path(self) -> Path:
        """The steps."""
        return self.folder / "plan.md"

    @property
    def state_path(self) -> Path:
        """The progress of the steps."""
        return self.folder / "execution-state.json"

    def ignore_state(self) -> None:
        """Let git ignore the states of all tickets, unless the user has written rules for them."""
        ignore = self.folder.parent / ".gitignore"
        if not ignore.exists():
            write_atomic(ignore, f"{self.state_path.name}*\n".encode())


MOST_SLUG_CHARACTERS = 80
MOST_TITLE_CHARACTERS = 200
MOST_NAMED = 8
"""Number of tickets that an error lists."""


def find(project: Path, slug: str) -> Ticket:
    """Find the ticket ``slug`` of ``project``.

    Raises ``UsageError`` if it does not exist, and if a link leads out of it: cdd shows its texts to a model and
    writes to its files.
    """
    _check_slug(slug)
    for folder in _FOLDERS:
        if _is_ticket(project / folder / slug):
            found = Ticket(slug=slug, folder=project / folder / slug)
            _refuse_links(project, found)
            return found
    slugs = [ticket.slug for ticket in list_tickets(project)]
    nearest = suggest(slug, slugs, cutoff=0.5)
    few = ", ".join(slugs[:MOST_NAMED]) + (" ..." if len(slugs) > MOST_NAMED else "")
    known = f"the nearest is '{nearest}'" if nearest else f"the tickets are: {few}" if slugs else "there are none yet"
    hint = f"type {nearest}, or create {slug} with: cdd new {slug}" if nearest else f"create it with: cdd new {slug}"
    raise UsageError(f"There is no ticket '{slug}' in {project}; {known}.", hint=hint)


def list_tickets(project: Path) -> tuple[Ticket, ...]:
    """Return the tickets of ``project``, sorted by slug."""
    found: dict[str, Ticket] = {}
    for name in _FOLDERS:
        folder = project / name
        for entry in folder.iterdir() if folder.is_dir() else ():
            if _is_ticket(entry) and _SLUG.fullmatch(entry.name):
                found.setdefault(entry.name, Ticket(slug=entry.name, folder=entry))
    return tuple(found[slug] for slug in sorted(found))


def names_ticket(path: str) -> bool:
    """Return whether a path, in any spelling, is that of a spec or a plan: a step may land what its plan names."""
    folder, _, name = ("", "", *map(fold_name, path.split("/")))[-3:]
    return folder == "tickets" and name in {"spec.yaml", "plan.md"}


def list_ticket_paths(project: Path, *, root: Path) -> tuple[str, ...]:
    """Return how the paths of the files of all tickets begin, relative to ``root``."""
    folders = [ticket.folder.resolve() for ticket in list_tickets(project)]
    starts = {f"{folder}/" for folder in folders} | {f"{folder.parent}/.gitignore" for folder in folders}
    return tuple(start.removeprefix(f"{root.resolve()}/") for start in starts)


def create_folder(project: Path) -> tuple[Path, bool]:
    """Create the folder of tickets, unless the project has one; return its path and whether it is new."""
    found = next((project / name for name in _FOLDERS if (project / name).is_dir()), None)
    folder = found or project / _FOLDERS[0]
    make_folder(folder)
    return folder, found is None


def create(project: Path, slug: str, *, title: str = "", type: str = "feature") -> Ticket:
    """Create a ticket with a spec to fill in. The default title comes from the slug.

    Raises ``UsageError`` for a used slug, an unknown type or a link.
    """
    from cdd_agent.tickets.spec import TYPES
    from cdd_agent.tickets.yaml import quote

    if type not in TYPES:
        meant = suggest(type, TYPES, text="did you mean '{}'? ")
        raise UsageError(f"'{type}' is not a type of ticket.", hint=f"{meant}the types are {', '.join(TYPES)}")
    require_free(project, slug)
    if len(title) > MOST_TITLE_CHARACTERS:
        hint = "shorten it, and put the rest into the description"
        raise UsageError(f"The title has {len(title)} characters; {MOST_TITLE_CHARACTERS} are allowed.", hint=hint)
    ticket = Ticket(slug=slug, folder=project / "tickets" / slug)
    _refuse_links(project, ticket)
    words = title.split() or slug.replace("-", " ").capitalize().split()
    text = _TEMPLATE.format(title=quote(" ".join(words)), type=type)
    write_atomic(ticket.spec_path, text.encode())
    ticket.ignore_state()
    return ticket


def require_free(project: Path, slug: str) -> None:
    """Raise ``UsageError`` unless a new ticket can have the name ``slug``."""
    _check_slug(slug)
    taken = next((ticket for ticket in list_tickets(project) if ticket.slug == slug), None)
    if taken:
        raise UsageError(f"The ticket '{slug}' exists already: {taken.folder}.", hint=f"continue with: cdd spec {slug}")


def _is_ticket(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("spec.yaml", "plan.md", "execution-state.json"))


def _refuse_links(project: Path, ticket: Ticket) -> None:
    folder = ticket.folder.resolve()
    if not folder.is_relative_to(project.resolve()):
        hint = f"replace the link by a folder: ls -ld {ticket.folder.parent} {ticket.folder}"
        raise UsageError(f"The ticket {ticket.slug} is in {folder}, outside the project {project}.", hint=hint)
    for path in (ticket.spec_path, ticket.plan_path, ticket.state_path):
        is_document = path != ticket.state_path
        if path.is_symlink() or (is_document and path.exists() and not path.is_file()):
            kind = "a link" if path.is_symlink() else "not a regular file"
            hint = f"replace it by the file: ls -l {path}"
            raise UsageError(f"{path} is {kind}; the files of a ticket must be regular files.", hint=hint)


def _check_slug(slug: str) -> None:
    if len(slug) > MOST_SLUG_CHARACTERS:
        happened = f"The name of the ticket has {len(slug)} characters; at most {MOST_SLUG_CHARACTERS} are allowed."
        raise UsageError(happened, hint=f"shorten it: {slug[:20]}")
    if not _SLUG.fullmatch(slug):
        proposed = re.sub(r"[^a-z0-9]+", "-", slug.lower()).strip("-") or "my-ticket"
        hint = f"write it as: {proposed}"
        raise UsageError(f"'{slug}' is not the name of a ticket: use lower-case letters, digits and dashes.", hint=hint)
