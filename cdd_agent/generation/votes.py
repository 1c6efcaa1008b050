"""The vote on why the tests of a node fail: up to five answers of a model, each to another cut of the evidence. Pure.

The cuts differ, so that the same mistake is not made five times: one who has seen the code excuses it, and one who has
not cannot. Nobody sees everything in the order in which it was written. Three equal answers decide.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from cdd_agent.errors import format_count
from cdd_agent.model.conversation import Marks
from cdd_agent.untrusted.documents import encode_json
from cdd_agent.work.state import Cause, Vote

ENOUGH = 3
"""Equal votes that decide."""
LETTERS: dict[str, Cause] = {"A": "code", "B": "test", "C": "environment"}
_LETTER = re.compile(r"[\s*_`'\"(\[]*([A-Ca-c])[\s*_`'\".)\]]*", re.ASCII)
_MOST_CHARACTERS = 12_000
"""Of one part of the evidence."""
_OPENINGS = {
    "stated": "The part in the planning graph:",
    "test": "The tests that fail, and the rest of their file as far as they need it:",
    "code": "The code of the part:",
    "failure": "How the tests fail:",
    "outcomes": "Further examples, which another agent has derived from the planning graph alone, and their results:",
}
_SOURCES = {"stated": "graph", "test": "tests", "code": "code", "failure": "results", "outcomes": "examples"}
_Piece: TypeAlias = Literal["stated", "test", "code", "failure", "outcomes"]
_QUESTION = "Why do the tests fail: A, B or C?"


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of the evidence, in the order in which it is shown."""

    name: str
    pieces: tuple[_Piece, ...]


CUTS = (
    Cut("docstring and test", ("stated", "test")),
    Cut("docstring and code", ("stated", "code")),
    Cut("failure, test and code", ("failure", "test", "code")),
    Cut("code, test and failure", ("code", "test", "failure")),
    Cut("docstring, failure and examples", ("stated", "failure", "outcomes")),
)
"""In the order in which they are asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureEvidence:
    """The evidence on a failure, as texts that others wrote."""

    stated: str
    test: str
    code: str
    failure: str
    outcomes: str = ""
    """The further examples and their results; empty if there are none."""

    def format_question(self, cut: Cut, *, marks: Marks) -> str:
        """Return the question about one cut; a part that is empty is left out."""
        shown = (
            f"{_OPENINGS[piece]}\n{marks.wrap(cut_middle(text.strip()), source=_SOURCES[piece])}"
            for piece in cut.pieces
            if (text := str(getattr(self, piece)))
        )
        return "\n\n".join((*shown, _QUESTION))


def cut_middle(text: str) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} more characters]\n{text[-half:]}"


def read_vote(cut: Cut, answer: str) -> Vote:
    """Return the vote in an answer, which is a single letter; anything else is ``unknown``.

    >>> read_vote(CUTS[0], " **B**.").cause, read_vote(CUTS[0], "B, because the docstring says so").cause
    ('test', 'unknown')
    """
    found = _LETTER.fullmatch(answer)
    return Vote(cut.name, LETTERS[found[1].upper()] if found else "unknown")


class Ballot(msgspec.Struct, frozen=True, kw_only=True):
    """The votes on one symptom."""

    votes: tuple[Vote, ...] = ()
    person: Cause | None = None
    """The answer of a person who was asked because the votes have no majority."""

    @property
    def counts(self) -> Counter[Cause]:
        """Cause -> number of votes; without ``unknown``."""
        return Counter(vote.cause for vote in self.votes if vote.cause != "unknown")

    @property
    def majority(self) -> Cause | None:
        """The cause with enough votes; None if there is none."""
        return next((cause for cause, count in self.counts.items() if count >= ENOUGH), None)

    @property
    def next_cut(self) -> Cut | None:
        """The cut for the next vote; None if the votes decide, or can no longer."""
        left = CUTS[len(self.votes) :]
        most = max(self.counts.values(), default=0)
        return left[0] if left and most < ENOUGH <= most + len(left) else None

    def add(self, vote: Vote) -> "Ballot":
        """Return the ballot with one vote more."""
        return Ballot(votes=(*self.votes, vote), person=self.person)

    def describe(self) -> str:
        """Return the counts in words.

        >>> Ballot(votes=(Vote("", "code"), Vote("", "test"), Vote("", "code"), Vote("", "unknown"))).describe()
        'of 4 votes, 2 for code, 1 for test, 1 not readable'
        """
        parts = [f"{count} for {cause}" for cause, count in self.counts.most_common()]
        lost = len(self.votes) - self.counts.total()
        lost_parts = [f"{lost} not readable"] if lost else []
        return ", ".join((f"of {format_count(len(self.votes), 'vote')}", *parts, *lost_parts))


def identify_symptom(symptoms: Iterable[Sequence[str]], *, code: str, test: str) -> str:
    """Return the name under which the votes on a failure are kept.

    ``symptoms`` are as in ``Trial``, without what differs between runs of the same files.
    """
    listed = sorted(map(list, symptoms))
    return hashlib.sha256(encode_json([listed, code, test])).hexdigest()
