"""``spec.yaml``: a spec or ``DocumentError``; every value is text, and an update says what was asked and no more."""

from itertools import pairwise
from random import Random

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.tickets import spec
from cdd_agent.tickets.yaml import quote
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import bent, nested, pick, plain, text
from tests.fuzz.trial import Broken, Target, stored_texts

_KEYS = (
    *("schema", "title", "type", "status", "description", "technical_notes", "acceptance_criteria", "out_of_scope"),
    *("open_questions", "depends_on", "owner", "? a", "<<", "'title'"),
)
_SCALARS = (
    *(
        "cdd/1",
        "feature",
        "draft",
        "12:30:45",
        "no",
        "2026-01-31",
        "~",
        "0x1f",
        ".inf",
        "1_000",
        "|",
        ">-",
        "|\n  a\n\n  b",
    ),
    *(
        "'a: b'",
        '"a\\tb"',
        "&a a",
        "*a",
        "[a, b]",
        "{id: AC-1, text: b}",
        "# c",
        "WHEN a: THEN `b` #c",
        "|2\n   a",
        "!!str a",
    ),
)
_ITEMS = (
    "a",
    "AC-2: b",
    "id: AC-1\n    text: a",
    "{id: AC-3, text: 'c'}",
    "*a",
    "&a a",
    "`a`",
    "- a",
    "'a'",
    "|\n    a",
    "? a",
)


def _value(random: Random, key: str) -> str:
    kind = random.random()
    if key in ("acceptance_criteria", "out_of_scope", "open_questions", "depends_on") and kind < 0.8:
        dash = pick(random, ("  - ", "- ", "    -  "))
        items = (
            pick(random, _ITEMS) if random.random() < 0.7 else text(random, most=2) for _ in range(random.randint(0, 3))
        )
        return "".join(f"\n{dash}{item}" for item in items)
    if kind < 0.5:
        return f" {pick(random, _SCALARS)}"
    if kind < 0.6:
        return f" {quote(text(random))}"
    if kind < 0.62:
        return f" {nested(random, pick(random, ('[', '{a: ', '- ', '? ', '[[')), closing=pick(random, (']', '}')))}"
    if kind < 0.64:
        return _bomb(random)
    return f" {text(random) if kind < 0.8 else plain(random)}"


def _bomb(random: Random) -> str:
    """Anchors that name each other, a few or very many times."""
    width, depth = random.randint(1, 12), random.randint(1, 12)
    form = pick(random, ("[{}]", "{{<<: [{}]}}", "{{? [{}] : b}}"))
    names = [f"x{number}" for number in range(depth)]
    rows = (f"\n{b}: &{b} {form.format(', '.join([f'*{a}'] * width))}" for a, b in pairwise(names))
    return f" a\nx0: &x0 {{a: b}}{''.join(rows)}"


def make(random: Random) -> str:
    """A spec, most often bent."""
    keys = [pick(random, _KEYS) for _ in range(random.randint(1, 5))]
    document = "".join(f"{key}:{_value(random, key)}\n" for key in dict.fromkeys(keys))
    return bent(random, document) if random.random() < 0.5 else document


def read(document: str) -> None:
    """Read it, and change its title."""
    found = spec.parse(document, path="spec.yaml")
    texts = (found.title, found.description, found.technical_notes, *found.out_of_scope, *found.open_questions)
    if not all(isinstance(value, str) for value in texts):
        raise Broken("a value is not text")
    "".join((*texts, *(item.text for item in found.acceptance_criteria))).encode()
    if len(document) % 3:
        return
    try:
        changed = spec.update(document, {"title": "Another: title"}, path="spec.yaml")
    except UsageError:
        return
    if spec.parse(changed, path="spec.yaml").title != "Another: title":
        raise Broken("the title that was put in is not there")


TARGET = Target(make=make, read=read, allowed=(DocumentError,), corpus=stored_texts("spec"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` specs."""
    return TARGET.run(count, seed)
