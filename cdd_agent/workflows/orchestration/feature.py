"""A feature that is asked for, and where its run is kept: ``.cdd/tdd/SLUG/``."""

import re
import shlex
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import UsageError
from cdd_agent.settings import private_folder
from cdd_agent.storage import read_ordinary, write_atomic
from cdd_agent.work import state_file
from cdd_agent.work.state import RunState, Status, StepExecution

PREFIX = "tdd-"
"""What the names of all features begin with, and the ``ticket`` of their notes."""
BEGIN = 'cdd tdd run "WHAT IT SHALL DO"'
RESUME = "cdd tdd resume"
LIMIT_BYTES = 100_000
"""Of a request."""

RUN = rf"{PREFIX}[a-z0-9][a-z0-9-]{{0,79}}"
"""The name of a run, as a pattern: it comes from a note, and becomes a part of paths and refs."""
_SLUG = re.compile(RUN)
_LONGEST_SLUG = 40
_FIX = re.compile(r"\W*(?:bug\s*)?fix(?:es|ed)?\b|\W*(?:bug|repair|correct)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One request and the folder of its run."""

    slug: str
    text: str
    """As it was asked for."""
    folder: Path

    @property
    def state_path(self) -> Path:
        """How far its cycles have come."""
        return self.folder / "execution-state.json"

    @property
    def request_path(self) -> Path:
        """The request."""
        return self.folder / "request.md"

    @property
    def is_fix(self) -> bool:
        """Whether the request asks for a repair, so that GREEN's commits are fixes."""
        return _FIX.match(self.text) is not None

    def keep(self) -> None:
        """Write the request down, unless it is."""
        if not self.request_path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomic(self.request_path, self.text.encode("utf-8", "replace"))


def new(root: Path, text: str, *, taken: Collection[str] = ()) -> Feature:
    """The feature that ``text`` asks for, under a name that is not ``taken``; nothing is written yet.

    The one in work if it asks for the same. Raises ``UsageError`` for an empty or endless request, and while another
    one is not complete.
    """
    text = text.encode("utf-8", "replace").decode("utf-8").strip()
    if not text or len(text.encode()) > LIMIT_BYTES:
        if not text:
            example = 'say what is wanted: cdd tdd run "a calculator that adds and subtracts"'
            raise UsageError("The request is empty.", hint=example)
        raise UsageError(
            f"The request has more than {LIMIT_BYTES:,} bytes.",
            hint="put the details into a file of the project, commit it, and name it in the request: agents read it",
        )
    unfinished = latest(root)
    if unfinished is not None and not is_complete(unfinished):
        if unfinished.text == text:
            return unfinished
        raise UsageError(
            f"The run {unfinished.slug} is not complete.",
            hint=f"go on with it: {RESUME}; or give it up first: rm -r {shlex.quote(str(unfinished.folder))}",
        )
    slug, folder = slug_of(text), _home(root)
    names = (slug, *(f"{slug}-{number}" for number in range(2, 10_000)))
    free = next(name for name in names if name not in taken and not (folder / name).exists())
    return Feature(slug=free, text=text, folder=folder / free)


def slug_of(text: str) -> str:
    """The name of what a text asks for: its first words.

    >>> slug_of("Calculator with Add/Subtract!")
    'tdd-calculator-with-add-subtract'
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    slug = PREFIX.rstrip("-")
    for word in words:
        if len(slug) + 1 + len(word) > _LONGEST_SLUG:
            break
        slug += f"-{word}"
    return slug if words and slug != PREFIX.rstrip("-") else f"{PREFIX}{(words or ['feature'])[0][:30]}"


def at(root: Path, slug: str, *, text: str) -> Feature:
    """The feature of this name, whether anything of it is there or not; ``UsageError`` for a name that is none."""
    if _SLUG.fullmatch(slug) is None:
        raise UsageError(f"{slug!r:.100} is no name of a run.", hint="see what the notes say: cdd tdd history")
    return Feature(slug=slug, text=text, folder=_home(root) / slug)


def latest(root: Path) -> Feature | None:
    """The feature whose request was written down last; None if there is none here."""
    folder = _home(root)
    requests = [path for path in folder.glob(f"{PREFIX}*/request.md") if _SLUG.fullmatch(path.parent.name)]
    if not requests:
        return None
    newest = max(requests, key=lambda path: (path.stat().st_mtime_ns, path.parent.name))
    try:
        text = read_ordinary(newest, limit_bytes=LIMIT_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{newest} cannot be read: {error.strerror}.", hint=f"look at it: ls -l {newest}") from error
    return Feature(slug=newest.parent.name, text=text, folder=newest.parent)


def state_of(feature: Feature) -> RunState | None:
    """How far the cycles of a feature have come; None if nothing says. ``DocumentError`` if its state is damaged."""
    return state_file.load(feature.state_path, without=f"and go on from what the notes tell: {RESUME}")


def is_complete(feature: Feature) -> bool:
    """Whether all of its cycles are done; raises ``DocumentError`` if its state is damaged."""
    state = state_of(feature)
    return state is not None and state.status == Status.COMPLETED


def completed(state: RunState) -> tuple[StepExecution, ...]:
    """The cycles of tests that are completed, in their order; the last PLAN, which chose none, is not one."""
    done = (state.execution(number) for number in state.numbers(Status.COMPLETED))
    return tuple(step for step in done if "red" in step.commits)


def _home(root: Path) -> Path:
    return private_folder(root) / "tdd"
