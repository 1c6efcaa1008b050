"""From targets to what a framework is told to run: files, and patterns of names. Pure.

The tools know a test by a pattern over its titles joined by spaces, for all files of a run at once. So what is selected
may be more than the targets, and never less.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

SEPARATOR = " > "
"""Between the titles of a node id."""
SELECTED = "selected"
"""What the name of a result file begins with if tests were left out by their names."""

_REPEATED = re.compile(r" \(\d+\)\Z")
_SPECIAL = re.compile(r"[\\^$.*+?()\[\]{}|/]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Files and folders to run, and the names of tests in them; no names: all of them."""

    paths: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def result(self, name: str) -> str:
        """The name of the file to write results to, which says whether tests are left out."""
        return f"{SELECTED}-{name}" if self.names else name


def select(targets: Iterable[str]) -> Selection:
    """The selection that has all targets in it: node ids, files and folders."""
    pairs = [target.partition("::")[::2] for target in targets]
    paths = tuple(dict.fromkeys(path for path, _ in pairs if path))
    is_named = all(path and name for path, name in pairs)
    return Selection(paths=paths, names=tuple(dict.fromkeys(name for _, name in pairs)) if is_named else ())


def spelled(path: str) -> str:
    """A path that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def escaped(text: str) -> str:
    """A pattern of JavaScript's that matches just ``text``."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def full_names(names: Iterable[str]) -> str:
    """A pattern for whole names, titles being joined by spaces; it does not matter which `` > `` is part of a title."""
    return rf"(?:^|\s)(?:{'|'.join(map(_joined, _unnumbered(names)))})$"


def titles(names: Iterable[str]) -> str:
    """A pattern for each title on the way to the tests, for a tool that asks at each level whether to go on."""
    found: dict[str, None] = {}
    for name in _unnumbered(names):
        parts = name.split(SEPARATOR)
        found.update(dict.fromkeys(parts))
        found.update(dict.fromkeys(SEPARATOR.join(parts[start:]) for start in range(len(parts))))
    return rf"^(?:{'|'.join(map(escaped, found))})$"


def numbered(names: Iterable[str]) -> list[str]:
    """The same names, those that come again told apart by a number: ``name (2)``."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return told


def _unnumbered(names: Iterable[str]) -> list[str]:
    """Each name, and what it is without a number that ``numbered`` may have put there."""
    return list(dict.fromkeys(told for name in names for told in (name, _REPEATED.sub("", name))))


def _joined(name: str) -> str:
    return rf"(?:{re.escape(SEPARATOR)}| )".join(map(escaped, name.split(SEPARATOR))).replace(r"\ ", " ")
