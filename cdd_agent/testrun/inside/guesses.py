"""Calls of functions that no test calls, with values that tests give to other functions, and simple ones.

Parameters of the same name get the same values. Otherwise annotations and defaults tell the type. If they do not,
values of each type are tried, and a function may expect any type with which it returns something. The plugin ``calls``
uses this module, which is Python 3.8.
"""

from __future__ import annotations

import inspect
import itertools
import json
from typing import TYPE_CHECKING

from .answers import find_function
from .values import Encoder, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .values import Call, Node

    Choice = tuple[str, list[Node]]
    """A type, and some values of it."""

_SIMPLE = (0, 3, 7, 2.5, "a b", "b", b"ab", [3, 1, 2], [2.5, 0.5], ["b", "a", "b"], {"b": 3, "a": 1}, {3, 1}, (3, 1))
_ALIASES = {"Sequence": "list", "Iterable": "list", "Collection": "list", "Mapping": "dict", "List": "list"}
_MOST_VALUES, _MOST_TYPES, _MOST_IN_TYPE = 12, 60, 6
_ANY = ("object", "Any")
_RECEIVERS = ("self", "cls")


class Guesser:
    """Makes calls from recorded ones and from the objects that tests constructed."""

    def __init__(self, recorded: Iterable[Call], built: Iterable[Node], *, constants: Iterable[object]) -> None:
        """``constants`` of the code are further values."""
        self._by_name: dict[str, list[Node]] = {}
        self._by_type: dict[str, list[Node]] = {}
        for node in built:
            self._add(node)
        for call in recorded:
            self._add_call(call)
        encoder = Encoder({})
        encoder.left = 1000
        for value in (*_SIMPLE, *constants):
            self._add(encoder.encode(value))

    def _add_call(self, call: Call) -> None:
        try:
            names = list(inspect.signature(find_function(call["module"], call["name"])).parameters)
        except (ValueError, TypeError, AttributeError, ImportError):
            return
        given = [*map(_pair, names, call["args"]), *call["named"].items()]
        for name, node in given:
            if name not in _RECEIVERS:
                _append(self._by_name.setdefault(name, []), node)
            self._add(node)
            for part in node[1] if node[0] in ("list", "tuple", "set") else ():
                self._add(part)

    def _add(self, node: Node) -> None:
        _append(self._by_type.setdefault(_get_type(node), []), node)

    def guess(self, module: str, name: str) -> Iterator[tuple[str, list[Node], dict[str, Node]]]:
        """Yield a name for the types of the arguments that cannot be known, and arguments; the likeliest types first.

        Yield nothing for what has no signature, or is a method of objects that no test constructs.
        """
        owner, _, last = name.rpartition(".")
        try:
            parameters = [*inspect.signature(find_function(module, name)).parameters.values()]
            kind = inspect.getattr_static(find(module, owner), last) if owner else None
        except (ValueError, TypeError, AttributeError, ImportError):
            return
        choices: list[list[Choice]] = []
        if owner and not isinstance(kind, staticmethod):
            reference = ["ref", module, owner]
            objects = [reference] if isinstance(kind, classmethod) else self._by_type.get(_get_class(reference), [])
            choices, parameters = [[("", objects)]], parameters[1:]
        given = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        needed = [each for each in given if each.default is each.empty]
        for chosen in [needed] if len(needed) == len(given) else [needed, given]:
            yield from _combine([*choices, *map(self._choose, chosen)], chosen)

    def _choose(self, parameter: inspect.Parameter) -> list[Choice]:
        """Return one choice if the type of an argument is known, otherwise all of them."""
        if parameter.name in self._by_name:
            return [("", self._by_name[parameter.name])]
        annotation = parameter.annotation
        wanted = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        wanted = wanted.replace("typing.", "").partition("|")[0].strip()
        if parameter.annotation is parameter.empty:
            wanted = "" if parameter.default in (parameter.empty, None) else type(parameter.default).__name__
        base, _, item = wanted.partition("[")
        start = f"{_ALIASES.get(base, base)}{f' of {item[:-1]}' if item else ''}"
        fitting = [(each, nodes) for each, nodes in self._by_type.items() if _is_of(each, start)]
        if start and fitting:
            return [("", [node for _, nodes in fitting for node in nodes])]
        return [*self._by_type.items()] if base in _ANY or annotation is parameter.empty else []


def _pair(name: str, node: Node) -> tuple[str, Node]:
    return name, node


def _append(nodes: list[Node], node: Node) -> None:
    copy = json.loads(json.dumps(node))  # steps may be added to an object later
    if copy not in nodes and len(nodes) < _MOST_VALUES:
        nodes.append(copy)


def _is_of(kind: str, wanted: str) -> bool:
    return kind == wanted or kind.startswith(f"{wanted} of ") or kind.endswith(f":{wanted}")


def _get_type(node: Node) -> str:
    kind, content = node[:2]
    if kind == "is":
        return type(content).__name__
    if kind in ("list", "tuple", "set", "frozenset"):
        return f"{kind} of {_get_type(content[0])}" if content else kind
    if kind == "member":
        return f"{content}:{node[2]}"
    return _get_class(content) if kind == "new" else kind


def _get_class(reference: Node) -> str:
    return ":".join(map(str, reference[1:3]))


def _combine(
    choices: Sequence[Sequence[Choice]], parameters: Sequence[inspect.Parameter]
) -> Iterator[tuple[str, list[Node], dict[str, Node]]]:
    # Arguments of an unknown type have the same one more often than others.
    products = itertools.islice(itertools.product(*choices), 5000)
    ordered = sorted(products, key=lambda each: len({kind for kind, _ in each if kind}))
    named = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for product in ordered[:_MOST_TYPES]:
        kinds = ", ".join(kind for kind, _ in product if kind)
        if not all(nodes for _, nodes in product):
            continue
        for number in range(_MOST_IN_TYPE):
            # Other arguments have other values, in any order.
            values = [nodes[(number * (place + 1) + place) % len(nodes)] for place, (_, nodes) in enumerate(product)]
            first = len(values) - len(named)
            yield kinds, values[:first], dict(map(_pair, named, values[first:]))
