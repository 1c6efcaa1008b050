"""The words of the plugin's records: one template for each case. Nothing reads what these templates make.

A template names parts of the record in braces. A list is joined: ``{names}`` shows five, ``{names:3;}`` shows three,
separated by semicolons. A number takes a noun: ``{count:test}``.
"""

from __future__ import annotations

import re
import string
from typing import Mapping, Sequence

from .report import Clause, Part, Reason
from .system import bind_builtins

bind_builtins(globals())

TEMPLATES: dict[str, str] = {"text": "{text}"}
"""Case -> template. ``text`` is for words of others: a model, a hook, a user."""

_MOST_NAMES = 5
_LIST = re.compile(r"(\d*)([,;]?)\Z")
_NOUN = re.compile(r"[a-z][a-z ]*\Z")


def explain(reason: Reason) -> str:
    """Return a reason in English."""
    return reason.message or fill(TEMPLATES, reason.case or reason.code, reason.parts)


def fill(templates: Mapping[str, str], case: str, parts: Mapping[str, Part]) -> str:
    """Return the template of ``case`` with these parts.

    A record can come from a later version or from a stranger, so an unknown case shows its parts, and a missing part
    shows a question mark.
    """
    template = templates.get(case)
    if template is None:
        shown = ", ".join(f"{name}: {_Filler(templates).format_field(value, '')}" for name, value in parts.items())
        return f"{case} ({shown})" if shown else case
    return _Filler(templates).vformat(template, (), parts)


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun, such as ``2 tests``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


def join_names(names: Sequence[str], *, most: int = _MOST_NAMES, separator: str = ", ") -> str:
    """Join the first ``most`` names, and say how many there are besides. A line end becomes visible."""
    names = [name.replace("\n", "<U+000A>").replace("\r", "<U+000D>") for name in names]
    shown = separator.join(names[:most])
    more = f"and {len(names) - most} more"
    return shown if len(names) <= most else f"{shown}{' ' if separator == ', ' else separator}{more}"


class _Filler(string.Formatter):
    def __init__(self, templates: Mapping[str, str]) -> None:
        self._templates = templates

    def get_field(self, field_name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[object, str]:
        # Not the inherited one, which also follows attributes and indexes.
        return kwargs.get(field_name, "?"), field_name

    def format_field(self, value: object, format_spec: str) -> str:
        if isinstance(value, Clause):
            return fill(self._templates, value.case, value.parts)
        if isinstance(value, (tuple, list)):
            found = _LIST.match(format_spec)
            most, separator = (found[1], found[2]) if found else ("", "")
            return join_names(
                [self.format_field(each, "") for each in value],
                most=int(most) if most else _MOST_NAMES,
                separator=f"{separator or ','} ",
            )
        if isinstance(value, int) and _NOUN.match(format_spec):
            return format_count(value, format_spec)
        try:
            return format(value, format_spec)
        except ValueError:  # a part of another type than the template expects
            return str(value)
