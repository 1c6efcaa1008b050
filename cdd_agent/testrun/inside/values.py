"""Values as nodes, from which other processes rebuild them, their variations, and their text.

A node is a list that begins with its kind. The plugin ``calls`` uses this module, which is Python 3.8.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import json
import marshal
import operator
import sys
from pathlib import PurePath
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from types import CodeType
    from typing import Any, TypeAlias

    Value: TypeAlias = Any
    Node: TypeAlias = list[Any]
    Part: TypeAlias = list[str]
    """A code and texts."""
    Answer: TypeAlias = list[Part]
    Call: TypeAlias = dict[str, Any]
    """``function``: its index in the task; ``module`` and ``name``; ``args`` and ``named``: nodes; ``by_test``: whether
    a test called it directly; ``is_recorded``: whether there was such a call; ``is_relevant``: whether changed code ran
    in it; ``is_start``: whether it constructs an object; ``files``: those that its arguments name, by their paths: the
    content in base64, and the permissions."""

_MOST_PARTS = 300
_MOST_VARIED, _MOST_IN_ALL = 1_000, 6_000
"""Further calls of one function, and of all together."""
_MOST_SHOWN = 100
_MOST_OVERRIDDEN = 3
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_END = object()
_IN_PYTHON = 1 << 9
"""The flag of types that a class statement creates."""


held: list[object] = []
"""The variables around the functions that ``build`` has built, and the objects of methods."""

computed: set[str] = set()
"""Names of attributes that one of the two trees stores and a property of the other computes: they are compared too."""

overrides: list[tuple[type, CodeType, CodeType]] = []
"""The subclass that was built last, the code of the method that it overrides, and the code that overrides it."""


class Unfit(Exception):
    """A value that cannot be rebuilt."""


class StandIn:
    """A function that is given to the product in place of one of the tests."""

    ANSWERS = ("text", "number", "error")
    given: tuple[object, ...] = ()
    """The arguments of the function that is being called, which may pass them on."""

    def __init__(self, answer: str, name: str) -> None:
        """``answer``: whether it returns its arguments as a text, a number, or raises an error every other time."""
        self.answer, self.name = answer, name
        self.passed_on: list[object] = []
        """The arguments of the calls with all that the caller was given. To others, the caller may change freely."""
        self.count = 0

    def call(self, *args: Value, **named: Value) -> Value:
        """Answer a call."""
        self.count += 1
        own = [*args, *named.values()]
        if len(own) == len(self.given) and all(map(operator.is_, own, self.given)):
            self.passed_on.append(own)
        if self.answer == "number":
            return sum(each for each in (*args, *named.values()) if isinstance(each, int)) + 10 * len(args) + 0.5
        if self.answer == "error" and self.count % 2:
            raise ValueError(f"{self.name} fails")
        return f"{self.name} of {describe(args)} and {describe(named)}"


class Encoder:
    """Encodes the arguments of one call."""

    def __init__(self, built: dict[int, tuple[object, Node]], *, product: Collection[str] = ()) -> None:
        """Use ``built``: id of an object -> the object and its node, for objects whose construction was recorded.

        ``product``: the files whose code differs in the other tree.
        """
        self.built = built
        self.product = product
        self.left = _MOST_PARTS

    def encode(self, value: object) -> Node:
        """Return the node of a value. Raises ``Unfit``, also for a large or cyclic value, or what the value raises."""
        kind = type(value)
        self.left -= 1 + (len(value) // 100 if isinstance(value, (str, bytes)) else 0)
        is_half = isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)  # no JSON for others
        if self.left < 0 or is_half or (isinstance(value, int) and abs(value) > 10**300):
            raise Unfit
        if value is None or kind in (bool, int, str):
            return ["is", value]
        if isinstance(value, (float, bytes)) and kind in (float, bytes):
            return [kind.__name__, repr(value) if isinstance(value, float) else value.decode("latin-1")]
        if isinstance(value, (list, tuple, set, frozenset)) and kind in _SEQUENCES.values():
            return [kind.__name__, [self.encode(each) for each in value]]
        if isinstance(value, dict) and kind is dict:
            return ["dict", [[self.encode(key), self.encode(each)] for key, each in value.items()]]
        if isinstance(value, enum.Enum):
            return ["member", kind.__module__, kind.__qualname__, value.name]
        if callable(value) and hasattr(value, "__qualname__"):
            return self._encode_callable(value)
        return self._encode_object(value)

    def _encode_callable(self, value: Value) -> Node:
        name = value.__qualname__
        module = getattr(value, "__module__", None) or "builtins"
        with contextlib.suppress(ImportError, AttributeError):
            if find(module, name) is value:
                return ["ref", module, name]
        if isinstance(value, (MethodType, BuiltinMethodType)) and value.__self__ is not None:
            return ["method", self.encode(value.__self__), value.__name__]
        # A function without a name, which a test gives to the product. One of the product is other code there.
        if not isinstance(value, FunctionType) or value.__code__.co_filename in self.product:
            raise Unfit
        code = encode_bytes(marshal.dumps(value.__code__))
        around = [self.encode(cell.cell_contents) for cell in value.__closure__ or ()]
        defaults = [self.encode(each) for each in value.__defaults__ or ()]
        named = {key: self.encode(each) for key, each in (value.__kwdefaults__ or {}).items()}
        return ["code", value.__globals__["__name__"], value.__name__, code, around, defaults, named]

    def _encode_object(self, value: Value) -> Node:
        kind = type(value)
        found, node = self.built.get(id(value), (None, []))
        if found is value:
            return node
        if dataclasses.is_dataclass(kind):
            names = [each.name for each in dataclasses.fields(kind) if each.init]
            return self.encode_new(kind, [], named={name: getattr(value, name) for name in names})
        if isinstance(value, tuple):
            return self.encode_new(kind, list(value), named={})
        if isinstance(value, PurePath):
            return self.encode_new(kind, [str(value)], named={})
        plain: Value = object
        is_plain = (kind.__init__, kind.__new__) == (plain.__init__, plain.__new__) and kind.__flags__ & _IN_PYTHON
        if is_plain and not getattr(value, "__dict__", ()):
            return self.encode_new(kind, [], named={})
        function, args, state, items, pairs = (*value.__reduce_ex__(2), None, None, None)[:5]
        if state:
            raise Unfit
        node = self.encode_new(function, args, named={})
        steps = (("extend", list(items or ())), ("update", dict(pairs or ())))
        return [*node[:4], [[method, [self.encode(more)], {}] for method, more in steps if more]]

    def encode_new(self, function: object, args: Iterable[object], *, named: dict[str, object]) -> Node:
        """Return the node of the result of a function or class for these arguments."""
        values = {name: self.encode(value) for name, value in named.items()}
        return ["new", self.encode(function), [self.encode(value) for value in args], values, []]


def find(module: str, name: str) -> Value:
    """Return what a module calls by a dotted name."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def build(node: Node) -> Value:
    """Build the value of a node. Raises what its constructors raise."""
    kind, content = node[:2]
    if kind == "is":
        return content
    if kind in ("float", "bytes"):
        return float(content) if kind == "float" else content.encode("latin-1")
    if kind in _SEQUENCES:
        return _SEQUENCES[kind]([build(each) for each in content])
    if kind == "dict":
        return {build(key): build(value) for key, value in content}
    if kind in ("ref", "member"):
        found = find(content, node[2])
        return found if kind == "ref" else found[node[3]]
    if kind in ("sub", "method", "code"):
        return _build_function(node) if kind != "sub" else _override(find(content, node[2]), node[3])
    if kind == "stand-in":
        return _build_stand_in(content, is_async=node[2], name=node[3])
    made = build(content)(*map(build, node[2]), **{name: build(value) for name, value in node[3].items()})
    for method, args, named in node[4]:
        values, others = [*map(build, args)], {name: build(value) for name, value in named.items()}
        with contextlib.suppress(Exception):  # a test may have expected it
            getattr(made, method)(*values, **others)
    return made


def _override(kind: Value, name: str) -> type:
    function = getattr(kind, name)

    def override(*args: Value, **named: Value) -> Value:
        result = function(*args, **named)
        if isinstance(result, bool):
            return not result
        # Other results stay as they are: cdd also sees which of the two methods runs.
        return result + type(result)(1) if type(result) in (int, float, str) else result

    made: type = type(kind)(kind.__name__, (kind,), {name: override, "__module__": kind.__module__})
    overrides[:] = [(made, function.__code__, override.__code__)]
    return made


def override_methods(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield calls of methods on objects of a subclass that overrides another method of the project's class."""
    for call in filter(_is_of_method, calls[:_MOST_OVERRIDDEN]):
        node = call["args"][0]
        _, module, owner = node[1]
        methods = [name for name, each in vars(find(module, owner)).items() if isinstance(each, FunctionType)]
        for name in methods:
            if not name.startswith("__") and name != call["name"].rpartition(".")[2]:
                this = [node[0], ["sub", module, owner, name], *node[2:]]
                yield {**call, "args": [this, *call["args"][1:]], "is_recorded": False}


def use_earlier(calls: Sequence[Call], objects: Iterable[Node]) -> Iterator[Call]:
    """Yield calls of methods on objects on which the method was called before, and then another one.

    What an object remembers of the first call may no longer be true. ``objects`` are all those that tests construct.
    """
    steps: dict[str, dict[str, Node]] = {}
    for node in objects:
        for step in node[4]:
            steps.setdefault(json.dumps(node[1]), {}).setdefault(step[0], step)
    for call in filter(_is_of_method, calls[:_MOST_OVERRIDDEN]):
        (*this, own), last = call["args"][0], call["name"].rpartition(".")[2]
        use: Node = [last, call["args"][1:], call["named"]]
        others = [step for name, step in steps.get(json.dumps(this[1]), {}).items() if name != last]
        ways = [[use, *own], [*own[:-1], use, *own[-1:]]][: len(own)]
        ways += [[*own, use, step] for step in others[:_MOST_OVERRIDDEN]]
        for way in ways:
            yield {**call, "args": [[*this, way], *call["args"][1:]], "is_recorded": False}


def _is_of_method(call: Call) -> bool:
    """Return whether it is a call of a method on an object of its class that a test constructed."""
    node = call["args"][0] if call["args"] else []
    return bool(node[:1] == ["new"] and node[1][0] == "ref" and call["name"].startswith(f"{node[1][2]}."))


def _build_function(node: Node) -> Callable[..., Value]:
    if node[0] == "method":
        held.append(build(node[1]))
        method: Callable[..., Value] = getattr(held[-1], node[2])
        return method
    _, module, name, text, around, defaults, named = node
    cells = tuple(CellType(build(each)) for each in around)
    held.extend(cell.cell_contents for cell in cells)
    code, given = marshal.loads(base64.b64decode(text)), tuple(map(build, defaults))
    function = FunctionType(code, vars(importlib.import_module(module)), name, given, cells)
    function.__kwdefaults__ = {key: build(each) for key, each in named.items()}
    return function


def _build_stand_in(answer: str, *, is_async: bool, name: str) -> Callable[..., Value]:
    made = StandIn(answer, name)
    held.append(made.passed_on)

    def function(*args: Value, **named: Value) -> Value:
        return made.call(*args, **named)

    async def function_later(*args: Value, **named: Value) -> Value:
        return made.call(*args, **named)

    found: Callable[..., Value] = function_later if is_async else function
    found.__name__ = found.__qualname__ = name
    return found


def list_texts(part: Value) -> Iterator[str]:
    """Yield the texts in a node or in a list or dictionary of nodes; a path is a text too."""
    if isinstance(part, list) and part[:1] == ["is"]:
        yield from [part[1]] if isinstance(part[1], str) else []
    elif isinstance(part, (list, dict)):
        for each in part.values() if isinstance(part, dict) else part:
            yield from list_texts(each)


def show(call: Call) -> str:
    """Return a call as code."""
    args, (owner, _, last) = call["args"], call["name"].rpartition(".")
    contents = [base64.b64decode(text).decode("utf-8", "replace") for text, _ in call.get("files", {}).values()]
    around = f" (the file has {', '.join(map(repr, contents))})" if contents else ""
    for level in call.get("then", ()):
        around += f", then {', '.join(f'({_show_arguments(args, named)})' for args, named, _ in level)}"
    if owner and args and args[0][0] == "new":
        return f"{_show(args[0])}.{last}({_show_arguments(args[1:], call['named'])}){around}"
    return f"{call['name']}({_show_arguments(args, call['named'])}){around}"


def _show_arguments(args: Sequence[Node], named: dict[str, Node]) -> str:
    return ", ".join([*map(_show, args), *(f"{name}={_show(node)}" for name, node in named.items())])


def _show(node: Node) -> str:
    kind, content = node[:2]
    if kind in ("ref", "member"):
        return ".".join(node[2:])
    if kind in ("sub", "stand-in"):
        return f"(a subclass of {node[2]} with another {node[3]})" if kind == "sub" else str(node[3])
    if kind in ("method", "code"):
        return f"{_show(content)}.{node[2]}" if kind == "method" else node[2].replace("<lambda>", "lambda")
    if kind == "new" and not node[4] and content[1] in getattr(sys, "stdlib_module_names", ()):
        with contextlib.suppress(Exception):  # varied arguments may make none
            return repr(build(node))  # some are made from bytes, which nobody can read
    if kind == "new":
        steps = "".join(f".{name}({_show_arguments(args, named)})" for name, args, named in node[4])
        return f"{_show(content)}({_show_arguments(node[2], node[3])}){steps}"
    if kind == "dict":
        return f"{{{', '.join(f'{_show(key)}: {_show(value)}' for key, value in content)}}}"
    if kind in _SEQUENCES:
        items = f"[{', '.join(map(_show, content))}]"
        return items if kind == "list" else f"{kind}({items})"
    return repr(build(node))


def mix(streams: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Yield the first value of each stream, then the second of each."""
    for row in itertools.zip_longest(*streams, fillvalue=_END):
        yield from (each for each in row if each is not _END)


def vary(node: Node, constants: Sequence[Any] = (), *, is_stored: bool = False) -> Iterator[Node]:
    """Yield similar nodes, and at last None. ``constants`` of the code are examples, boundaries and sizes.

    A constructor may store None for later, where any code fails in its own way: ``is_stored`` leaves it out.
    """
    kind, content = node[:2]
    vary_one = functools.partial(vary, constants=constants, is_stored=is_stored or kind == "new")
    sizes = [size for each in _select_numbers(constants) if 0 < each <= 100 for size in (int(each), int(each) + 1)]
    if kind in ("is", "float"):
        yield from _vary_simple(content if kind == "is" else float(content), constants, sizes=sizes)
    elif kind == "bytes":
        yield from ([kind, text.encode("latin-1", "replace").decode("latin-1")] for text in _vary_text(content))
    elif kind in _SEQUENCES:
        yield from ([kind, e] for e in mix((_resize(content, sizes), _vary_parts(content, vary_one))))
    elif kind == "dict":
        changed = _vary_parts(content, lambda pair: _vary_parts(pair, vary_one))
        yield from ([kind, each] for each in mix((_resize(content, ()), changed)))
    elif kind == "new":
        yield from ([kind, content, *each, node[4]] for each in _vary_arguments(node[2], node[3], vary_one=vary_one))
    elif kind == "member":
        yield from ([kind, content, node[2], each.name] for each in find(content, node[2]))
    if kind not in ("ref", "new", "method", "code") and not is_stored:
        yield ["is", None]


def _vary_arguments(
    args: list[Node], named: dict[str, Node], *, vary_one: Callable[[Any], Iterable[Any]]
) -> Iterator[Any]:
    changed = ((each, named) for each in _vary_parts(args, vary_one))
    return mix((changed, ((args, each) for each in _vary_parts(named, vary_one))))


def _select_numbers(constants: Sequence[Any]) -> list[float]:
    return [each for each in constants if type(each) in (int, float) and abs(each) < 10**12]


def _vary_simple(value: object, constants: Sequence[Any], *, sizes: Sequence[int]) -> Iterator[Node]:
    numbers = _select_numbers(constants)
    found: Iterable[object] = ()
    if isinstance(value, bool):
        found = (not value,)
    elif isinstance(value, int):
        own = (0, value + 1, -value, 1, value - 1, value * 2, -1, value * 10, value // 2)
        found = mix((own, (int(each) + step for each in numbers for step in (0, 1, -1))))
    elif isinstance(value, float):
        near = (each + step for each in numbers for step in (0.0, 0.25, -0.25))
        found = mix(((0.0, -value, value + 0.5, value * 10, value / 3), near))
    elif isinstance(value, str):
        found = _vary_text(value, [e for e in constants if isinstance(e, str) and len(e) < 40], sizes=sizes)
    yield from (["float", repr(each)] if type(each) is float else ["is", each] for each in found)


def _vary_text(text: str, others: Sequence[str] = (), *, sizes: Sequence[int] = ()) -> Iterator[str]:
    own = ("", text.upper(), text[1:], text + text, text[::-1], f" {text} ", text.lower(), text[:-1], f"{text}1")
    more = (text.title(), f"{text}é", f"{text}-{text}", text.replace(" ", ""), "0", "-1", "a b", *_vary_letters(text))
    sized = (((text or "a") * size)[:size] for size in sizes)
    return mix(((*own, *more), (e for other in others for e in (other, text + other, other + text)), sized))


def _vary_letters(text: str) -> Iterator[str]:
    """Yield texts of the same form, in which one letter or digit is the next one."""
    for place in {0, len(text) // 2, len(text) - 1} if text else ():
        letter = text[place]
        if letter.isascii() and letter.isalnum():
            near = chr(ord(letter) + (-1 if letter in "9zZ" else 1))
            yield f"{text[:place]}{near}{text[place + 1 :]}"


def _resize(items: list[Any], sizes: Sequence[int]) -> Iterator[list[Any]]:
    yield from ([], items[:-1], items[1:], items[::-1], items + items, items + items[:1])
    yield from (list(itertools.islice(itertools.cycle(items), size)) for size in sizes)


def _vary_parts(parts: Value, vary_one: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield copies of a list or dictionary with another value at one of its first places."""

    def vary_at(key: Value) -> Iterator[Any]:
        for value in vary_one(parts[key]):
            changed = parts.copy()
            changed[key] = value
            yield changed

    keys = list(parts) if isinstance(parts, dict) else range(len(parts))
    return mix([vary_at(key) for key in keys[:4]])


def vary_calls(calls: Sequence[Call], *, constants: Sequence[Any] = (), most: int) -> list[Call]:
    """Return up to ``most`` calls like the recorded ones of one function, those with one change first."""

    def vary_call(call: Call) -> Iterator[Call]:
        # A boundary is often the size of another argument.
        sizes = [len(part[1]) for part in call["args"] if len(part) == 2 and isinstance(part[1], (str, list))]
        vary_one = functools.partial(vary, constants=[*sizes, *constants], is_stored=call["is_start"])
        varied = _vary_arguments(call["args"], call["named"], vary_one=vary_one)
        mixed = (
            (swap(call, other, place=place), call["named"]) for other in calls for place in range(len(call["args"]))
        )
        changed = ({**call, "args": args, "named": named} for args, named in mix((varied, mixed)))
        return mix((_vary_files(call), changed))

    def swap(call: Call, other: Call, *, place: int) -> list[Node]:
        return [*call["args"][:place], *other["args"][place : place + 1], *call["args"][place + 1 :]]

    known = {_get_key(call) for call in calls}
    found: list[Call] = []
    level = list(calls)
    while level:
        start = len(found)
        for call in mix([vary_call(call) for call in level]):
            key = _get_key(call)
            if key not in known:
                known.add(key)
                found.append({**call, "is_recorded": False, "is_guessed": False})
            if len(found) >= most:
                return found
        level = found[start:]
    return found


def _get_key(call: Call) -> str:
    return json.dumps([call["args"], call["named"], call.get("files")])


def _vary_files(call: Call) -> Iterator[Call]:
    for path, (content, mode) in call.get("files", {}).items():
        with contextlib.suppress(UnicodeDecodeError):
            text = base64.b64decode(content).decode()
            lines = text.splitlines(keepends=True)
            of_lines = ("".join(each) for each in _resize(lines, ()))
            for varied in mix((of_lines, (f"{text}\n\n", text.replace("\n", "\r\n")), _vary_text(text))):
                yield {**call, "files": {**call["files"], path: [encode_bytes(varied.encode()), mode]}}


def encode_bytes(content: bytes) -> str:
    """Return the content of a file as JSON can hold it."""
    return base64.b64encode(content).decode()


def vary_functions(recorded: Sequence[Sequence[Call]], *, constants: Sequence[Any] = ()) -> list[list[Call]]:
    """Return further calls of each function; the more functions there are, the fewer each has."""
    most = min(_MOST_VARIED, _MOST_IN_ALL // max(1, sum(map(bool, recorded))))
    return [vary_calls(calls, constants=constants, most=most) for calls in recorded]


def describe(value: Value, depth: int = 6) -> str:
    """Return a value as text, without addresses and private attributes. Iterators are read, coroutines awaited."""
    kind = type(value)
    if depth == 0:
        return "..."
    if value is None or kind in (bool, int, str, bytes):
        return repr(value)
    if kind is float:  # a sum in another order differs in the last digits
        return repr(float(format(value, ".12g")))
    if isinstance(value, enum.Enum):
        return f"{kind.__name__}.{value.name}"
    for base in (dict, *_SEQUENCES.values(), str, bytes, int, float):
        if kind is base:
            return _describe_items(value, depth)
        if isinstance(value, base):
            return f"{kind.__name__}({describe(base(value), depth)})"
    if inspect.isroutine(value) or isinstance(value, type):
        return _describe_routine(value)
    return describe(asyncio.run(value), depth) if inspect.iscoroutine(value) else _describe_object(value, depth)


def _describe_routine(value: Value) -> str:
    """Return the name of a function or class, unless only the function or private class that defines it knows it."""
    text: str = value.__qualname__
    code = getattr(value, "__code__", None)
    if hasattr(value, "__wrapped__") or (code is not None and code.co_name != value.__name__):
        return f"<function {value.__name__}>"
    is_private = isinstance(value, MethodType) and text.startswith("_")
    return "<function>" if code is not None and ("<locals>" in text or is_private) else text


def _describe_items(value: Value, depth: int) -> str:
    if isinstance(value, dict):
        pairs = itertools.islice(value.items(), _MOST_SHOWN)
        texts = [f"{describe(key, depth - 1)}: {describe(each, depth - 1)}" for key, each in pairs]
    else:
        texts = [describe(each, depth - 1) for each in itertools.islice(value, _MOST_SHOWN)]
    if isinstance(value, (set, frozenset)):
        texts.sort()
    rest = [f"{len(value) - len(texts)} more"] if len(texts) < len(value) else []
    left, right = "[]" if isinstance(value, list) else "()" if isinstance(value, tuple) else "{}"
    return left + ", ".join(texts + rest) + right


def _is_remembered(kind: type, name: str) -> bool:
    """Return whether an attribute only holds what a method has returned before."""
    return isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)


def _list_computed(kind: type) -> set[str]:
    kinds = (property, functools.cached_property)
    return {name for name in computed if isinstance(inspect.getattr_static(kind, name, None), kinds)}


def _describe_attribute(value: Value, name: str, *, depth: int) -> str:
    """Return the text of an attribute; empty if there is no such attribute."""

    def read() -> str:
        return describe(getattr(value, name), depth) if hasattr(value, name) else ""

    if name not in computed:
        return read()
    with contextlib.suppress(Exception):  # of the property
        return read()
    return "an exception"


def _describe_object(value: Value, depth: int) -> str:
    kind = type(value)
    if kind is functools.partial:  # which function it binds, a caller does not see
        named = (f"{key}={describe(each, depth - 1)}" for key, each in value.keywords.items())
        return f"partial({', '.join([*(describe(each, depth - 1) for each in value.args), *named])})"
    if kind.__module__ == "contextlib" and kind.__name__.endswith("GeneratorContextManager"):
        return "<context manager>"
    parts = []
    if isinstance(value, BaseException):
        parts = [describe(each, depth - 1) for each in value.args]
    elif hasattr(kind, "__next__") or (hasattr(kind, "__iter__") and hasattr(kind, "__len__")):
        items = itertools.islice(value, _MOST_SHOWN)
        parts = [describe(each, depth - 1) for each in items]
    if hasattr(kind, "__next__"):  # a generator may become another iterator
        return f"iterator of [{', '.join(parts)}]"
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ())]
    stored = [name for name in {*getattr(value, "__dict__", ()), *slots} if not name.startswith("_")]
    names = sorted({name for name in stored if not _is_remembered(kind, name)} | _list_computed(kind))
    parts += [f"{name}={text}" for name in names if (text := _describe_attribute(value, name, depth=depth - 1))]
    plain: Value = object
    has_text = (kind.__str__, kind.__repr__) != (plain.__str__, plain.__repr__)
    text = str(value) if has_text and not isinstance(value, BaseException) else ""
    if text and not (parts and all(part in text for part in parts)):
        parts.append(repr(text))
    return f"{kind.__name__}({', '.join(parts)})"
