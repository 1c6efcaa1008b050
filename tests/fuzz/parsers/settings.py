"""``.cdd/config.yaml``, which a repository brings along: settings that mean something, or ``DocumentError``."""

from dataclasses import fields
from math import isfinite
from random import Random

from cdd_agent.config import settings
from cdd_agent.errors import DocumentError
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_bytes, bent, nested, pick, text
from tests.fuzz.trial import Broken, Target, stored

_NAMES = (*(field.name for field in fields(settings.Settings)), "base_url", "<<", "? a", "hooks")
_VALUES = (
    *(
        "3",
        "0",
        "-1",
        "1.5",
        ".inf",
        ".nan",
        "-.inf",
        "1e400",
        "12:30",
        "0x10",
        "0b_",
        "1_0",
        "no",
        "~",
        "always",
        "never",
    ),
    *(
        "claude",
        "'3'",
        "[1]",
        "{a: b}",
        "*a",
        "&a 3",
        "!!int ''",
        "!!bool x",
        "!!timestamp x",
        "2026-99-99",
        "9" * 5000,
    ),
)


def make(random: Random) -> bytes:
    """A settings file, most often bent."""
    names = dict.fromkeys(pick(random, _NAMES) for _ in range(random.randint(0, 5)))
    rows = [f"{name}: {pick(random, _VALUES) if random.random() < 0.8 else text(random)}" for name in names]
    if random.random() < 0.03:
        rows.append(f"model: {nested(random, pick(random, ('[', '{a: ', '- ', '? ')), closing=pick(random, ']}'))}")
    document = "\n".join(rows)
    return as_bytes(random, bent(random, document) if random.random() < 0.5 else document)


def read(data: bytes) -> None:
    """Read it as the settings of a project."""
    found = settings.parse_settings(data)
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, int | float) and not (isfinite(value) and value >= 0):
            raise Broken(f"{field.name} is {value}")
    found.model.encode()


TARGET = Target(make=make, read=read, allowed=(DocumentError,), corpus=stored("settings"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` files."""
    return TARGET.run(count, seed)
