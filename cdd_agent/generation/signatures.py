"""The signatures of a planning graph: read from stub source or from a docstring, and compared with a module. Pure.

A signature is a tuple of statements as in a stub file, whose functions have the body ``...``. A docstring gives
parameters, defaults, and those types that are certain; what stays open, ``find_open_questions`` lists.
"""

import ast
import builtins
import copy
import keyword
import re
import textwrap
import typing
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdd_agent.evidence.source import Function
from cdd_agent.tickets.graph import Definition, Graph, NodeId
from cdd_agent.untrusted.python_source import parse, with_deep_stack

if TYPE_CHECKING:
    from docstring_parser import Docstring, DocstringParam

MOST_CHARACTERS = 20_000
"""Of a docstring; the rest of a longer one is not read for parameters."""
MOST_SOURCE = 200_000
"""Characters of a signature."""
MOST_TYPE = 200
_CLASS_TYPES = ("class", "dataclass", "enum", "exception", "interface", "protocol")
_VALUE_TYPES = ("attribute", "constant", "variable")
_METHODS = re.compile(r"^([ \t]*)Methods[ \t]*(?::[ \t]*|\n[ \t]*-{3,}[ \t]*)\n", re.MULTILINE)
_METHOD = re.compile(
    r"(?P<async>async\s+)?(?P<name>\w+)\s*(?P<rest>\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*->[^:]+)?)?\s*(?::|$)"
)
_TYPES = frozenset(name for name, value in vars(builtins).items() if isinstance(value, type))
MARK = re.compile(r"^([ \t]*)# node: ([\w.]+)[ \t]*$", re.MULTILINE)
"""The line of module-level code that is the place of a definition."""
_STUB_ERRORS = (NotImplementedError, NameError, BaseException)

Kind: TypeAlias = Literal["code", "signature", "parameters", "methods", "value", "types"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The source of a definition without bodies, as far as it is known."""

    statements: tuple[ast.stmt, ...]
    open: tuple[tuple[Kind, str], ...] = ()
    """Kind and description of each gap, with the substitute that the skeleton uses."""
    is_given: bool = True
    """Whether the graph has it as source; the rest comes from the docstring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """Something that neither the signature nor the docstring of a definition says."""

    id: NodeId
    name: str
    kind: Kind
    """``types``: the code can be written without an answer."""
    what: str


@with_deep_stack
def find_open_questions(graph: Graph) -> tuple[OpenQuestion, ...]:
    """Return what is to be asked before the skeleton is written, in the order of the graph."""
    known, found = list_type_names(graph), list[OpenQuestion]()
    methods = {definition.name.rpartition(".")[0] for node in graph.leaves for definition in node.definitions}
    for node in graph.nodes:
        if parse_code(node.code) is None:
            what = "its code cannot be compiled, so it becomes a comment"
            found.append(OpenQuestion(id=node.id, name=node.name, kind="code", what=what))
        for definition in node.definitions:
            signature = read_signature(definition, type=node.type, known=known)
            for kind, what in signature.open:
                if kind != "methods" or definition.name not in methods:
                    found.append(OpenQuestion(id=node.id, name=definition.name, kind=kind, what=what))
    return tuple(found)


def list_type_names(graph: Graph) -> frozenset[str]:
    """Return the names of the graph's classes."""
    leaves = {each.name for node in graph.leaves if is_class_type(node.type) for each in node.definitions}
    return frozenset(leaves | {node.name for node in graph.nodes if is_class_type(node.type)})


def parse_code(code: str) -> ast.Module | None:
    """Return the tree of module-level code, with ``pass`` at the places of definitions; None if it cannot run."""
    tree = parse(MARK.sub(r"\1pass", code))
    return tree if tree is not None and _can_compile(tree.body) else None


def is_class_type(type: str) -> bool:
    """Return whether the author's word for a node means a class."""
    return type.lower() in _CLASS_TYPES


def choose_stub_error(docstring: str) -> str:
    """Return the exception that a stub raises, a builtin one.

    A test with ``raises(RuntimeError)`` would pass on a stub that raises ``NotImplementedError``, a subclass. RED
    accepts ``NameError`` as missing code too, but ``BaseException`` only if it is expected by name.
    """
    parsed = _parse_docstring(docstring)
    names = re.findall(r"\w+", " ".join(each.type_name or "" for each in parsed.raises)) if parsed is not None else []
    stated = [value for name in names if isinstance(value := vars(builtins).get(name), type)]
    fitting = (error for error in _STUB_ERRORS if not issubclass(error, tuple(stated)))
    return next(fitting, BaseException).__name__


def read_signature(definition: Definition, *, type: str = "function", known: Collection[str] = ()) -> Signature:
    """Return the signature of a definition: its own, the one in its docstring, or one made from its parameters.

    ``type``: the author's word for its node. ``known``: the names of the graph's classes.
    """
    docstring = definition.docstring.strip()
    first = docstring.partition("\n")[0]
    stated = [text for text in (docstring, first) if re.match(rf"(async )?(def |class )?{_last(definition)}\b", text)]
    for text in (definition.signature, *stated):
        statements = _parse_stub(text, definition.name)
        if statements is not None:
            return Signature(statements=statements)
    if is_class_type(type):
        made = _make_class(definition, known=known)
    elif type.lower() in _VALUE_TYPES:
        made = _make_value(definition)
    else:
        made = _make_function(definition, type=type.lower(), known=known)
    if not definition.signature.strip():
        return made
    unread: tuple[Kind, str] = ("signature", f"its signature does not define {definition.name} in Python")
    return Signature(statements=made.statements, open=(unread, *made.open), is_given=False)


def _last(definition: Definition) -> str:
    return definition.name.rpartition(".")[2]


def _parse_stub(text: str, name: str) -> tuple[ast.stmt, ...] | None:
    """Return the statements of a stub source, also of one without ``: ...`` or without the name."""
    text, last = textwrap.dedent(text).strip(), name.rpartition(".")[2]
    if not text or len(text) > MOST_SOURCE:
        return None
    start = "async def" if text.startswith("async ") else "def"
    called = f"{start} {last}" + re.sub(rf"^(async\s+)?(def\s+)?([\w.]+\.)?{re.escape(last)}\s*(?=\()", "", text)
    for source in (text, called):
        for end in ("", "\n    ...", ": ..."):
            tree = parse(source + end)
            body = tree.body if tree is not None else []
            statements = _select(body, last) or _select(_find_inside(body, name), last)
            is_word = end == ": ..." and any(isinstance(each, ast.AnnAssign) for each in statements)  # ``f: ...``
            if statements and not is_word and _can_compile(statements):
                return tuple(map(strip_bodies, statements))
    return None


def _select(body: Sequence[ast.stmt], name: str) -> list[ast.stmt]:
    """Return all statements if they define a name, or none."""
    return [*body] if any(each == name for each, _ in list_stubs(body)) else []


def _find_inside(body: Iterable[ast.stmt], name: str) -> list[ast.stmt]:
    """Return the body of the class in which a method's signature is written."""
    scope = [*body]
    for part in name.split(".")[:-1]:
        scope = [item for each in scope if isinstance(each, ast.ClassDef) and each.name == part for item in each.body]
    return [each for each in scope if isinstance(each, Function) and each.name == name.rpartition(".")[2]]


def list_stubs(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield name -> definition or assignment of a block, also below ``if`` and ``try``."""
    for each in body:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, each
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, each
            case ast.Assign(targets=targets):
                yield from ((target.id, each) for target in targets if isinstance(target, ast.Name))
            case ast.If(body=first, orelse=other):
                yield from list_stubs([*first, *other])
            case ast.Try(body=first, handlers=handlers, orelse=other, finalbody=last):
                caught = (inner for handler in handlers for inner in handler.body)
                yield from list_stubs([*first, *caught, *other, *last])
            case _:
                pass


def _can_compile(statements: list[ast.stmt]) -> bool:
    try:
        compile(ast.Module(body=statements, type_ignores=[]), "<signature>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def strip_bodies(statement: ast.stmt) -> ast.stmt:
    """Return a statement whose functions have only their docstrings and ``...``; it is changed."""
    stripped = _StripBodies().visit(statement)
    assert isinstance(stripped, ast.stmt)
    return stripped


class _StripBodies(ast.NodeTransformer):
    """Leaves the docstring of each function, and ``...``."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Strip a function."""
        node.body = _strip(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        """Strip a coroutine."""
        node.body = _strip(node)
        return node


def _strip(node: Function) -> list[ast.stmt]:
    docstring = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
    return [*docstring, ast.Expr(ast.Constant(...))]


def _parse_docstring(text: str) -> "Docstring | None":
    from docstring_parser import ParseError
    from docstring_parser import parse as parse_docstring

    try:
        return parse_docstring(text[:MOST_CHARACTERS])
    except ParseError:
        return None


def _make_value(definition: Definition) -> Signature:
    statements = tuple(ast.parse(f"{_last(definition)} = None").body)
    return Signature(statements=statements, open=(("value", "its value is unknown, so it is None"),), is_given=False)


def _make_function(definition: Definition, *, type: str, known: Collection[str]) -> Signature:
    """Make a function from the sections of a docstring."""
    parsed = _parse_docstring(definition.docstring)
    parameters, opened = _write_parameters(parsed, known=known)
    if not parameters and "property" not in type:
        parameters = ["*args", "**kwargs"]
        opened.append(("parameters", "its parameters are unknown, so it accepts any"))
    is_static = type == "staticmethod" or "." not in definition.name
    receiver = [] if is_static else ["cls" if type == "classmethod" else "self"]
    decorator = f"@{type}\n" if type in ("classmethod", "property", "staticmethod") else ""
    start = "async def" if type.startswith(("async", "coroutine")) else "def"
    returned = parsed.returns if parsed is not None else None
    returns = _read_type(returned.type_name, known=known) if returned is not None and not returned.is_generator else ""
    header = f"{start} {_last(definition)}({', '.join([*receiver, *parameters])}){returns and ' -> '}{returns}"
    statements = tuple(ast.parse(f"{decorator}{header}: ...").body)
    return Signature(statements=statements, open=tuple(opened), is_given=False)


def _make_class(definition: Definition, *, known: Collection[str]) -> Signature:
    """Make a class with the methods that its docstring lists, or with ``__init__``."""
    parameters, opened = _write_parameters(_parse_docstring(definition.docstring), known=known)
    methods = list(_find_methods(definition.docstring))
    if parameters or not methods:
        methods.insert(0, f"def __init__({', '.join(['self', *(parameters or ['*args', '**kwargs'])])}): ...")
    if len(methods) == 1 and not parameters:
        opened.append(("methods", "its methods are unknown, so it gets only __init__, which accepts any arguments"))
    body = textwrap.indent("\n".join(methods), "    ")
    statements = tuple(ast.parse(f"class {_last(definition)}:\n{body}").body)
    return Signature(statements=statements, open=tuple(opened), is_given=False)


def _find_methods(docstring: str) -> Iterator[str]:
    """Yield the source of each method in the docstring's section of methods."""
    start = _METHODS.search(docstring[:MOST_CHARACTERS])
    if start is None:
        return
    indents = set[int]()
    for line in docstring[start.end() : MOST_CHARACTERS].expandtabs().splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < len(start[1].expandtabs()) + (":" in start[0]):
            return
        if line.strip() and indent <= min(indents, default=indent) and (found := _METHOD.match(line.strip())):
            indents.add(indent)
            rest = found["rest"] or "(*args, **kwargs)"
            if not re.match(r"\(\s*(self|cls)\b", rest):
                rest = f"(self, {rest[1:]}"
            stub = _parse_stub(f"{found['async'] or ''}def {found['name']}{rest}", found["name"])
            yield from map(ast.unparse, stub or ())


def _write_parameters(
    parsed: "Docstring | None", *, known: Collection[str]
) -> tuple[list[str], list[tuple[Kind, str]]]:
    """Return the source of each parameter, and what is not known of them."""
    found, opened, untyped = dict[str, str](), list[tuple[Kind, str]](), list[str]()
    is_optional = False
    for stated, param in _list_parameters(parsed):
        name = stated.lstrip("*")
        if not name.isidentifier() or keyword.iskeyword(name) or name in found:
            opened.append(("parameters", f"{stated!r} cannot be the name of a parameter, so it is left out"))
            continue
        annotation = _read_type(param.type_name, known=known)
        default = _read_default(param)
        if stated != name:
            found[name] = f"{stated}{annotation and ': '}{annotation}"
            continue
        if is_optional and not default:
            opened.append(("parameters", f"{name} follows an optional parameter, so it is optional too"))
            default = "None"
        is_optional = is_optional or bool(default)
        untyped += [] if annotation else [name]
        found[name] = f"{name}{annotation and ': '}{annotation}{default and ' = '}{default}"
    if untyped:
        opened.append(("types", f"no type is known for {', '.join(untyped)}"))
    return sorted(found.values(), key=lambda each: len(each) - len(each.lstrip("*"))), opened


def _list_parameters(parsed: "Docstring | None") -> list[tuple[str, "DocstringParam"]]:
    """Return the parameters with their names; numpy's ``x, y : int`` are two."""
    params = [param for param in parsed.params if not _is_attribute(param)] if parsed is not None else []
    found = [(name.strip().replace("\\", ""), param) for param in params for name in param.arg_name.split(",")]
    return [(name, param) for name, param in found if name not in ("self", "cls")]


def _is_attribute(param: "DocstringParam") -> bool:
    return param.args[0].lower() in ("attribute", "attributes", "cvar", "ivar", "var")


def _read_default(param: "DocstringParam") -> str:
    """Return the source of a default; empty for a required parameter."""
    if param.default is not None:
        try:
            return repr(ast.literal_eval(param.default))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return "None"
    return "None" if param.is_optional or param.type_name == "optional" else ""


def _read_type(text: str | None, *, known: Collection[str]) -> str:
    """Return the source of a type if it is certain; empty for prose."""
    if text is None or len(text) > MOST_TYPE:
        return ""
    tree = parse(text.strip())
    match tree.body if tree is not None else []:
        case [ast.Expr(value=value)] if _is_type(value, known={*known, *_TYPES, *typing.__all__}):
            return ast.unparse(value)
        case _:
            return ""


def _is_type(node: ast.expr, *, known: Collection[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in known
        case ast.Constant(value=None):
            return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type(left, known=known) and _is_type(right, known=known)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            values = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return all(isinstance(value, ast.Constant) for value in values)
        case ast.Subscript(value=ast.Name(id=name), slice=inside):
            return name in known and _are_types(inside, known=known)
        case _:
            return False


def _are_types(inside: ast.expr, *, known: Collection[str]) -> bool:
    """Return whether the inside of brackets is one type, or several."""
    match inside:
        case ast.Tuple(elts=each) | ast.List(elts=each):
            return all(_are_types(item, known=known) for item in each)
        case ast.Constant(value=value):
            return value in (None, ...)
        case _:
            return _is_type(inside, known=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One point where a module does not keep to the signature of the graph."""

    name: str
    """The qualified name of the definition in the module."""
    part: Literal["definition", "parameters", "returns", "decorators", "bases", "value"]
    expected: str
    """Source, as in the graph."""
    found: str
    """Source, as in the module; empty if it is missing."""


@with_deep_stack
def check_signature(
    text: str, definition: Definition, *, type: str = "function", known: Collection[str] = ()
) -> tuple[Deviation, ...]:
    """Return where the text of a module differs from the graph's signature of a definition.

    Helpers, further methods and, where the docstring alone gives the signature, annotations may be added.
    """
    signature = read_signature(definition, type=type, known=known)
    tree = parse(text)
    scope, (*owners, _) = tree.body if tree is not None else [], definition.name.split(".")
    for owner in owners:
        scope = [item for name, each in list_stubs(scope) if name == owner for item in getattr(each, "body", ())]
    prefix = definition.name.removesuffix(_last(definition))
    return tuple(_compare_blocks(signature.statements, scope, prefix=prefix, is_given=signature.is_given))


def _compare_blocks(
    expected: Iterable[ast.stmt], found: Iterable[ast.stmt], *, prefix: str, is_given: bool
) -> Iterator[Deviation]:
    """Compare the definitions of each name, in their order: a name may have several."""
    wanted, present = _group(expected), _group(found)
    for name, statements in wanted.items():
        definitions, others = statements, present.get(name, [])
        if isinstance(definitions[0], Function | ast.ClassDef):  # other code may wrap it later
            definitions, others = _select_definitions(definitions), _select_definitions(others)
        if len(definitions) != len(others):
            source = "\n".join(map(ast.unparse, definitions))
            shown = "\n".join(write_header(each) for each in others)
            yield Deviation(name=prefix + name, part="definition", expected=source, found=shown)
            continue
        for one, other in zip(definitions, others, strict=True):
            yield from _compare(one, other, name=prefix + name, is_given=is_given)


def _select_definitions(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    return [each for each in statements if isinstance(each, Function | ast.ClassDef)]


def _group(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    groups = dict[str, list[ast.stmt]]()
    for name, each in list_stubs(body):
        groups.setdefault(name, []).append(each)
    return groups


def write_header(node: ast.stmt) -> str:
    """Return the source of a statement; of a definition, without its decorators and its body."""
    if not isinstance(node, Function | ast.ClassDef):
        return ast.unparse(node)
    bare = copy.copy(node)
    bare.body, bare.decorator_list = [ast.Pass()], []
    return ast.unparse(bare).rpartition(":")[0]


def _compare(expected: ast.stmt, found: ast.stmt, *, name: str, is_given: bool) -> Iterator[Deviation]:
    if expected.__class__ is not found.__class__:
        yield Deviation(name=name, part="definition", expected=write_header(expected), found=write_header(found))
        return
    pairs: list[tuple[Literal["parameters", "returns", "decorators", "bases", "value"], str, str]] = []
    if isinstance(expected, Function) and isinstance(found, Function):
        accepts_any = not is_given and re.fullmatch(r"((self|cls), )?\*args, \*\*kwargs", ast.unparse(expected.args))
        wanted, present = _write_arguments(expected, expected), _write_arguments(found, expected)
        pairs.append(("parameters", wanted, wanted if accepts_any else present))
        if expected.returns is not None:
            pairs.append(("returns", _write_type(expected.returns), _write_type(found.returns)))
    elif isinstance(expected, ast.ClassDef) and isinstance(found, ast.ClassDef):
        if is_given:
            pairs.append(("bases", write_header(expected), write_header(found)))
        yield from _compare_blocks(expected.body, found.body, prefix=f"{name}.", is_given=is_given)
    elif is_given:
        pairs.append(("value", ast.unparse(expected), ast.unparse(found)))
    decorators = _write_decorators(expected), _write_decorators(found)
    if is_given or decorators[0]:
        pairs.append(("decorators", *decorators))
    for part, one, other in pairs:
        if one != other:
            yield Deviation(name=name, part=part, expected=one, found=other)


def _write_arguments(node: Function, expected: Function) -> str:
    """Return the source of the parameters, with the annotations of those that have one in ``expected``."""
    typed = {arg.arg for arg in _list_arguments(expected.args) if arg.annotation is not None}
    arguments = copy.deepcopy(node.args)
    for arg in _list_arguments(arguments):
        text = _write_type(arg.annotation) if arg.arg in typed else ""
        arg.annotation = ast.Name(text, ast.Load()) if text else None
    return f"({ast.unparse(arguments)})"


def _list_arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [*several, *(each for each in (arguments.vararg, arguments.kwarg) if each is not None)]


def _write_type(node: ast.expr | None) -> str:
    """Return the source of an annotation, without the quotation marks around a whole one."""
    match node:
        case None:
            return ""
        case ast.Constant(value=str(text)):
            inner = parse(text)
            return ast.unparse(inner) if inner is not None else text
        case _:
            return ast.unparse(node)


def _write_decorators(node: ast.stmt) -> str:
    return "\n".join(f"@{ast.unparse(each)}" for each in getattr(node, "decorator_list", ()))
