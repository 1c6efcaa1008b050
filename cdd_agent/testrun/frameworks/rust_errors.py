"""Rust: finds the missing name in rustc's messages."""

import re
import tomllib
from itertools import pairwise

from cdd_agent.testrun.frameworks.sources import Compiler, Missing, Sources
from pytest_tdd_agent.report import CollectError

MANIFEST = "Cargo.toml"

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
_UNDECLARED = re.compile(r"use of undeclared type `(?P<name>\w+)`(?P<owner>)")
_NO_MEMBER = re.compile(
    r"no (?:[\w ]+ )?(?:named |field )`(?P<name>\w+)`(?: found for| on type) (?:[\w ]+ )?`(?P<owner>[^`]+)`"
)
_NO_FIELD = re.compile(r"`(?P<owner>[\w:<>]+)` has no field named `(?P<name>\w+)`")
_COULD_NOT = re.compile(r"could not find `(\w+)` in (?:`([\w:]+)`|the)")
_CRATE = re.compile(r"unresolved module or unlinked crate `(\w+)`|undeclared crate or module `(\w+)`")
_QUOTED_ONLY = {"E0583": "missing_module", "E0603": "import_error"}
"""Errors whose message quotes only the missing name -> kind."""
_WRONG_ARGUMENTS = frozenset({"E0061", "E0057", "E0107"})
_CALL = re.compile(r"[\w:]+")
_TEST_FILES = re.compile(
    r"(?:^|/)(?:tests|benches)/.|(?:^|/)tests?\.rs$|_tests?\.rs$|^\.config/nextest\.toml$|^\.cargo/"
)


def is_test(path: str) -> bool:
    """Return whether a file holds only tests or configures how they run.

    A source file with unit tests inside is not a test.
    """
    return _TEST_FILES.search(path) is not None


def read_compile_errors(output: str, sources: Sources) -> tuple[CollectError, ...]:
    """Read rustc's messages: one error for each file, with the text of all its errors."""
    compiler = Compiler(
        pattern=_ERROR,
        explain=lambda match: _find_missing(match, sources),
        is_test=is_test,
        elsewhere=MANIFEST,
        joins_texts=True,
    )
    return compiler.read(output, sources)


def _find_missing(match: re.Match[str], sources: Sources) -> Missing:
    code, message, rest = match["code"], match["message"], match["rest"]
    if code in ("E0432", "E0433") and (found := _CRATE.search(message) or _CRATE.search(rest)):
        return Missing("missing_module", found[1] or found[2])  # a new module of the project, or an unknown crate
    quoted = found[1] if (found := re.search(r"`([^`]+)`", message)) else None
    if code == "E0432":
        kind = "missing_module" if _COULD_NOT.search(rest) else "import_error"
        return Missing(kind, _join_path("", quoted or ""), _is_own(quoted or "", sources))
    if code in _QUOTED_ONLY or code in _WRONG_ARGUMENTS:
        kind = _QUOTED_ONLY.get(code, "signature_mismatch")
        return Missing(kind, quoted if code in _QUOTED_ONLY else _find_call(rest))
    if found := _COULD_NOT.search(message):
        return Missing("attribute_error", _join_path(found[2], found[1]), _is_own(found[2] or "crate", sources))
    if found := _NO_MEMBER.match(message) or _NO_FIELD.search(message):
        return Missing("attribute_error", _join_path(found["owner"], found["name"]))
    if found := _IN_SCOPE.match(message) or _UNDECLARED.search(message):
        owner = "crate" if found.groupdict().get("root") else found["owner"]
        if code == "E0433" and "module or crate" in message:
            return Missing("missing_module", found["name"])
        is_own = _is_own(owner, sources) if owner else None
        return Missing("attribute_error" if owner else "name_error", _join_path(owner, found["name"]), is_own)
    is_syntax = code is None and _SYNTAX.match(message) is not None
    return Missing("syntax_error" if is_syntax else "collection_error")


def _is_own(path: str, sources: Sources) -> bool:
    """Return whether a path begins in this crate or in another crate of the project."""
    first = path.lstrip("&").partition("::")[0]
    manifests = (path for path in sources.files() if path.rpartition("/")[2] == MANIFEST)
    crates = (name.replace("-", "_") for path in manifests for name in crate_names(sources.text(path)))
    return first in ("crate", "self", "super", "") or first in crates


def crate_names(manifest: str) -> tuple[str, ...]:
    """Return the names of package and library in the text of a manifest."""
    try:
        tables = tomllib.loads(manifest)
    except (ValueError, RecursionError):
        return ()
    found = [tables.get("package"), tables.get("lib")]
    return tuple(table["name"] for table in found if isinstance(table, dict) and isinstance(table.get("name"), str))


def _find_call(block: str) -> str | None:
    """Return the called function: rustc puts its first ``^`` below the call."""
    for code, marks in pairwise(block.splitlines()):
        at = marks.find("^")
        if at >= 0 and marks[:at].strip() == "|" and (found := _CALL.match(code, at)):
            return _join_path("", found[0])
    return None


def _join_path(owner: str | None, name: str) -> str:
    """Return a Rust path with dots, without generics, references and ``crate::``."""
    plain = re.sub(r"<.*>|^&(?:mut )?|^dyn |^impl ", "", owner or "")
    path = f"{plain}::{name}" if plain else name
    return path.removeprefix("crate::").removeprefix("self::").removeprefix("super::").replace("::", ".")
