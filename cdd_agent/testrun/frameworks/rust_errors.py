"""What rustc says against a crate: from its text to the name that is missing, and where."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from cdd_agent.testrun.frameworks.sources import Sources, capped
from pytest_tdd_agent.failure import MESSAGE_CAP
from pytest_tdd_agent.report import CollectError, Failure

STRUCTURAL = frozenset({"missing_module", "import_error", "attribute_error", "name_error", "signature_mismatch"})
"""Kinds that say that something is not there yet. Of several errors in a file one that says more comes first."""

_ERROR = re.compile(
    r"^error(?:\[(?P<code>E\d{4})\])?: (?P<message>[^\n]+)\n"
    r"(?P<rest> *--> (?P<path>[^\n]+?):(?P<line>\d+):\d+(?:\n(?!error|warning|\n)[^\n]*)*)",
    re.MULTILINE,
)
_SYNTAX = re.compile(
    r"(?:expected|unexpected|this file contains|mismatched closing|unknown start|unterminated|unknown token|"
    r"missing|invalid|found|prefix|non-item|cannot find attribute|leading|unmatched)\b"
)
_IN_SCOPE = re.compile(
    r"cannot find (?:(?P<what>[\w ,-]+?) )?`(?P<name>[^`]+)`"
    r"(?: in (?:[a-z ]+ )?(?:`(?P<owner>[^`]+)`|this scope|the (?P<root>crate root)))?"
)
_NO_MEMBER = re.compile(
    r"no (?:[\w ]+ )?(?:named |field )`(?P<name>\w+)`(?: found for| on type) (?:[\w ]+ )?`(?P<owner>[^`]+)`"
)
_NO_FIELD = re.compile(r"`(?P<owner>[\w:<>]+)` has no field named `(?P<name>\w+)`")
_COULD_NOT = re.compile(r"could not find `(\w+)` in (?:`([\w:]+)`|the)")
_CRATE = re.compile(r"unresolved module or unlinked crate `(\w+)`|undeclared crate or module `(\w+)`")
_NAMED = {"E0583": "missing_module", "E0603": "import_error"}
"""Errors whose message quotes nothing but the name."""
_CALL = re.compile(r"[\w:]+")
_TEST_FILES = re.compile(
    r"(?:^|/)(?:tests|benches)/.|(?:^|/)tests?\.rs$|_tests?\.rs$|^\.config/nextest\.toml$|^\.cargo/"
)


def is_test(path: str) -> bool:
    """Whether a file holds only tests, or configures how they are run; unit tests stand in the files they test."""
    return _TEST_FILES.search(path) is not None


@dataclass(frozen=True, slots=True)
class _Missing:
    kind: str
    name: str | None = None
    is_own: bool | None = None


def compile_errors(output: str, sources: Sources) -> tuple[CollectError, ...]:
    """One for each file with errors: the first that is no missing name, as that one is not expected, else the first."""
    found: dict[str, list[Failure]] = {}
    for failure in _failures(output, sources):
        found.setdefault(failure.path or "Cargo.toml", []).append(failure)
    errors = []
    for path, failures in found.items():
        first = next((failure for failure in failures if failure.kind not in STRUCTURAL), failures[0])
        text = capped("\n\n".join(failure.text for failure in failures))
        errors.append(CollectError(nodeid=path, failure=replace(first, text=text)))
    return tuple(errors)


def _failures(output: str, sources: Sources) -> Iterator[Failure]:
    for match in _ERROR.finditer(output):
        path = sources.own(match["path"])
        missing = _missing(match, sources)
        origin = "third_party" if path is None else "test" if is_test(path) else "project"
        yield Failure(
            phase="collect",
            kind=missing.kind,
            origin=origin,
            exception=match["code"] or "error",
            message=match["message"][:MESSAGE_CAP],
            missing_name=missing.name,
            path=path,
            line=int(match["line"]) if path else None,
            text=capped(match[0]),
            missing_in_project=missing.is_own,
        )


def _missing(match: re.Match[str], sources: Sources) -> _Missing:
    """The kind of an error, and the name that is not there, its parts joined by dots."""
    code, message, rest = match["code"], match["message"], match["rest"]
    if code in ("E0432", "E0433") and (found := _CRATE.search(message) or _CRATE.search(rest)):
        return _Missing("missing_module", found[1] or found[2])  # of the project, or of nobody yet
    if code == "E0432":
        told = _quoted(message) or ""
        kind = "missing_module" if _COULD_NOT.search(rest) else "import_error"
        return _Missing(kind, _dotted("", told), _is_own(told, sources))
    if code in _NAMED:
        return _Missing(_NAMED[code], _quoted(message))
    if code in ("E0061", "E0057", "E0107"):
        return _Missing("signature_mismatch", _called(rest))
    return _looked_up(code, message, sources=sources)


def _looked_up(code: str | None, message: str, *, sources: Sources) -> _Missing:
    """Of a name that was looked for in a scope, a module or a type."""
    if found := _COULD_NOT.search(message):
        return _Missing("attribute_error", _dotted(found[2], found[1]), _is_own(found[2] or "crate", sources))
    if found := _NO_MEMBER.match(message) or _NO_FIELD.search(message):
        return _Missing("attribute_error", _dotted(found["owner"], found["name"]))
    if found := _IN_SCOPE.match(message) or re.search(r"use of undeclared type `(?P<name>\w+)`(?P<owner>)", message):
        owner = "crate" if found.groupdict().get("root") else found["owner"]
        if code == "E0433" and "module or crate" in message:
            return _Missing("missing_module", found["name"])
        kind = "attribute_error" if owner else "name_error"
        return _Missing(kind, _dotted(owner, found["name"]), _is_own(owner, sources) if owner else None)
    is_syntax = code is None and _SYNTAX.match(message) is not None
    return _Missing("syntax_error" if is_syntax else "collection_error")


def _is_own(told: str, sources: Sources) -> bool:
    """Whether the first part of a path is this crate, or a package of the project."""
    first = told.lstrip("&").partition("::")[0]
    return first in ("crate", "self", "super", "") or first in _crates(sources)


def _crates(sources: Sources) -> frozenset[str]:
    """Names of the project's own crates, as code calls them."""
    names = set()
    for path in sources.files():
        if path.rpartition("/")[2] == "Cargo.toml":
            names |= {str(name).replace("-", "_") for name in names_in(sources.text(path))}
    return frozenset(names)


def names_in(manifest: str) -> tuple[str, ...]:
    """The names of package and library in the text of a manifest."""
    try:
        tables = tomllib.loads(manifest)
    except (ValueError, RecursionError):
        return ()
    found = [tables.get("package"), tables.get("lib")]
    return tuple(table["name"] for table in found if isinstance(table, dict) and isinstance(table.get("name"), str))


def _called(block: str) -> str | None:
    """The function of a call, read from the code that is shown above the first mark."""
    lines = block.splitlines()
    for code, marks in pairwise(lines):
        at = marks.find("^")
        if at >= 0 and marks[:at].strip() == "|" and (found := _CALL.match(code, at)):
            return _dotted("", found[0])
    return None


def _dotted(owner: str | None, name: str) -> str:
    """A path of Rust in the form that names have everywhere else."""
    plain = re.sub(r"<.*>|^&(?:mut )?|^dyn |^impl ", "", owner or "")
    path = f"{plain}::{name}" if plain else name
    return path.removeprefix("crate::").removeprefix("self::").removeprefix("super::").replace("::", ".")


def _quoted(message: str) -> str | None:
    found = re.search(r"`([^`]+)`", message)
    return found[1] if found else None
