"""From the class and the message of what was thrown to a failure kind. The first rule that fits decides. Pure."""

import re
from dataclasses import dataclass

_READ_CAP = 10_000
_ANY = frozenset[str]()
_TYPE = frozenset({"", "TypeError"})
_REFERENCE = frozenset({"", "ReferenceError"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A failure kind, and what a message says of the name that was not there."""

    name: str
    missing: str | None = None
    """A member, an export or a name."""
    module: str | None = None
    """As the import has it."""
    importer: str | None = None
    """The file with that import, if the message says it."""


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: str
    classes: frozenset[str] = _ANY
    """Those that it holds for; none: all of them."""


_MODULE = r"['\"](?P<module>[^'\"\n]+)['\"]"
_IMPORTER = r"['\"]?(?P<importer>(?:file://)?[^'\"\n]+?)['\"]?"
_NAME = r"['\"](?P<missing>[^'\"\n]+)['\"]"
_COMPILER = r"(?:.*\n){0,50}?.*TS"
_NOT_WRITTEN = r"(?:\S+ (?:is )?)?(?:[Nn]ot (?:yet )?implemented|NOT IMPLEMENTED|[Uu]nimplemented)\b|(?i:todo)\b"
_RULES = (
    _Rule("timeout", r"(?:Hook|Test) timed out in \d|test timed out after \d|Timeout of \d+ ?ms exceeded"),
    _Rule("timeout", r"(?:thrown: )?\"?Exceeded timeout of \d|STACK_TRACE_ERROR\b"),
    _Rule("assertion", r"Snapshot `.*` mismatched"),
    _Rule("xpass_strict", r"Expect test to fail|Failing test passed even though"),
    _Rule("system_exit", r"process\.exit (?:unexpectedly )?called with"),
    _Rule("resource", r".*(?:heap out of memory|reached heap limit)|E(?:MFILE|NFILE|NOSPC|NOMEM)\b"),
    _Rule("crash", r"A jest worker process.*was terminated|Jest worker encountered|Worker (?:terminated|exited)"),
    _Rule("recursion", r"Maximum call stack size exceeded"),
    _Rule("missing_module", rf"Cannot find (?:module|package) {_MODULE}(?: imported)? from {_IMPORTER}(?:$|\n)"),
    _Rule("missing_module", rf"Cannot find (?:module|package) {_MODULE}"),
    _Rule("missing_module", rf"Failed to resolve import {_MODULE} from {_IMPORTER}\. Does"),
    _Rule(
        "missing_module",
        r"Failed to load url (?P<module>\S+)(?: \(resolved id: [^\n]*?\))?(?: in (?P<importer>\S+?))?\.? Does",
    ),
    _Rule("missing_module", rf"{_COMPILER}2307: Cannot find module {_MODULE}"),
    _Rule("import_error", rf"The requested module {_MODULE} does not provide an export named {_NAME}"),
    _Rule("import_error", rf"{_COMPILER}2305: Module '{_MODULE}' has no exported member {_NAME}"),
    _Rule("attribute_error", rf"{_COMPILER}2(?:339|551): Property {_NAME} does not exist on"),
    _Rule("name_error", rf"{_COMPILER}2(?:304|552): Cannot find name {_NAME}"),
    _Rule("signature_mismatch", rf"{_COMPILER}255[45]: Expected [^\n]+ arguments?, but got"),
    _Rule("attribute_error", r"(?P<missing>[^\n]+?) is not a (?:function|constructor)\b", _TYPE),
    _Rule(
        "attribute_error",
        rf"Cannot (?:read|set) propert(?:y|ies) of (?:undefined|null) \((?:reading|setting) {_NAME}",
        _TYPE,
    ),
    _Rule("name_error", r"(?P<missing>[\w$]+) is not defined\b", _REFERENCE),
    _Rule("name_error", rf"Cannot access {_NAME} before initialization", _REFERENCE),
    _Rule("syntax_error", r"Parse failure: |Transform failed with|Jest encountered an unexpected token"),
    _Rule("syntax_error", r"", frozenset({"SyntaxError"})),
    _Rule("not_implemented", r"", frozenset({"NotImplementedError"})),
    _Rule("not_implemented", _NOT_WRITTEN, frozenset({"", "Error"})),
)
_COMPILED = tuple((rule, re.compile(rule.pattern)) for rule in _RULES)

_EXPECTATION = re.compile(r"expect(?:\.\w+)?\(|assert(?:\.\w+)?\(")
_ASSERTION_CLASSES = ("AssertionError", "JestAssertionError", "AssertionFailedError")
_NOTHING_THROWN = re.compile(
    r"Received function did not throw|Missing expected (?:exception|rejection)|instead of reject"
    r"|to throw an error\s*$|\] to throw (?:error|'?\w+'?)(?: matching .*| including .*)?\s*$"
    r"|resolved instead of rejected|to throw an error, but it didn't|the function to throw an error\.\s+But it didn't",
)
_THROWN = re.compile(
    r"to throw (?:error )?.*? but got (?P<vitest>['\"].*)|Received message:\s+(?P<jest>.*)"
    r"|Input:\s+'(?:\w+: )?(?P<node>.*)",
    re.DOTALL,
)
_OTHER_CLASS = re.compile(
    r"to throw .* but .* was thrown|Received constructor: |to be an? instance of|to be instance of"
)
_STRUCTURAL = ("attribute_error", "name_error", "not_implemented", "missing_module", "import_error")
_GENERATED = re.compile(r"(?:__vi(?:te_ssr)?_import_\d+__|_[\w$]*|\(intermediate value\)|\{\})\.")


def classify(message: str, *, name: str, is_expectation: bool = False) -> Kind:
    """The kind of what was thrown: ``name`` is its class, empty if that is not known.

    ``is_expectation``: the tool itself says that a matcher threw it.
    """
    message = message.strip()[:_READ_CAP]
    if is_expectation or name in _ASSERTION_CLASSES or (name in ("", "Error") and _EXPECTATION.match(message)):
        return _of_expectation(message)
    for rule, pattern in _COMPILED:
        found = pattern.match(message) if not rule.classes or name in rule.classes else None
        if found:
            told = found.groupdict()
            return Kind(
                name=rule.kind,
                missing=_member(told.get("missing")),
                module=told.get("module"),
                importer=told.get("importer"),
            )
    return Kind(name="exception")


def _of_expectation(message: str) -> Kind:
    """An expectation that did not hold; if another error came because a name is not there, that decides."""
    thrown = _THROWN.search(message)
    if thrown:
        inner = next(text for text in thrown.groups() if text is not None).strip().strip("'\"")
        kind = classify(inner, name="")
        if kind.name in _STRUCTURAL:
            return kind
    if not thrown and _NOTHING_THROWN.search(message):
        return Kind(name="did_not_raise")
    if _OTHER_CLASS.search(message):
        return Kind(name="wrong_exception" if "throw" in message or "error" in message else "assertion")
    return Kind(name="raises_match_mismatch" if thrown else "assertion")


def _member(told: str | None) -> str | None:
    """A name as the source has it, without what a compiler put around it."""
    if told is None:
        return None
    inner = re.fullmatch(r"\(0\s*,\s*(.+)\)", told)
    name = _GENERATED.sub("", inner[1] if inner else told, count=1)
    found = re.search(r"[\w$#.]+\Z", name)
    return found[0].strip(".") if found else None
