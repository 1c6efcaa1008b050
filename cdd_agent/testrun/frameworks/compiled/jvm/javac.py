"""What the compilers of Java and Kotlin say, as Maven and Gradle pass it on."""

import re
from collections.abc import Iterator

from cdd_agent.testrun.frameworks.compiled.jvm.records import Classes, is_test
from cdd_agent.testrun.frameworks.compiled.sources import Sources, capped
from pytest_tdd_agent.failure import MESSAGE_CAP
from pytest_tdd_agent.report import CollectError, Failure

_ERROR = re.compile(
    r"(?:^|^\[ERROR\] |^e: (?:file://)?|^:\w+)(?P<path>/[^\n:\[(]+?\.(?:java|kt))"
    r"(?::\[(?P<a>\d+),\d+\](?: error:)?|:(?P<b>\d+): error:|:(?P<c>\d+):\d+:?|: \((?P<d>\d+), \d+\):) "
    r"(?P<message>[^\n]+)(?P<rest>(?:\n(?!\[|e: |/|\d+ errors?\b| FAILED)[^\n]*)*)",
    re.MULTILINE,
)
_SYMBOL = re.compile(r"^\s*symbol:\s+(?P<what>\w+|@interface) (?P<name>[\w$]+)", re.MULTILINE)
_LOCATION = re.compile(r"^\s*location:\s+(?P<what>\w+) (?P<name>[\w.$]+)(?: of type (?P<type>[\w.$]+))?", re.MULTILINE)
_NO_PACKAGE = re.compile(r"package ([\w.]+) does not exist")
_NOT_APPLICABLE = re.compile(
    r"(?:method|constructor) (?P<name>\w+) in (?:class|interface|record|enum) (?P<owner>[\w.$]+)(?:<.*?>)? "
    r"cannot be applied|no suitable (?:method|constructor) found for (?P<other>\w+)"
)
_KOTLIN_UNRESOLVED = re.compile(r"[Uu]nresolved reference(?: '|: )(?P<name>\w+)")
_KOTLIN_CALL = re.compile(
    r"(?:No value passed for parameter|Too many arguments for|Cannot find a parameter with this name)"
)
_SYNTAX = re.compile(
    r".*(?:expected$|expected \w*|illegal start of|reached end of file|not a statement|unclosed|orphaned|malformed)"
    r"|Syntax error|Expecting "
)
_STRUCTURAL = frozenset({"missing_module", "import_error", "attribute_error", "name_error", "signature_mismatch"})


def compile_errors(output: str, sources: Sources) -> tuple[CollectError, ...]:
    """One for each file with errors: the first that is no missing name, as that one is not expected, else the first."""
    found: dict[str, list[Failure]] = {}
    for path, failure in _failures(output, sources):
        found.setdefault(path, []).append(failure)
    return tuple(
        CollectError(
            nodeid=path, failure=next((each for each in failures if each.kind not in _STRUCTURAL), failures[0])
        )
        for path, failures in found.items()
    )


def _failures(output: str, sources: Sources) -> Iterator[tuple[str, Failure]]:
    classes = Classes(sources)
    seen = set()
    for match in _ERROR.finditer(output):
        told, line = match["path"], int(match["a"] or match["b"] or match["c"] or match["d"])
        if (told, line, match["message"]) in seen:  # Maven says everything twice
            continue
        seen.add((told, line, match["message"]))
        path = sources.own(told)
        kind, name = _missing(match["message"], match["rest"], file=told)
        is_own = classes.has_package(name) if name and kind in ("missing_module", "import_error") else None
        yield (
            path or told,
            Failure(
                phase="collect",
                kind=kind,
                origin="third_party" if path is None else "test" if is_test(path) else "project",
                exception="",
                message=match["message"][:MESSAGE_CAP],
                missing_name=name,
                path=path,
                line=line if path else None,
                text=capped(f"{match['message']}{match['rest']}".rstrip()),
                missing_in_project=is_own,
            ),
        )


def _missing(message: str, rest: str, *, file: str) -> tuple[str, str | None]:
    """The kind of an error, and the name that is not there."""
    if found := _NO_PACKAGE.match(message):
        return "missing_module", found[1]
    if message.startswith("cannot find symbol"):
        return _symbol(rest, file)
    if found := _NOT_APPLICABLE.match(message):
        owner = found["owner"]
        return "signature_mismatch", f"{owner}.{found['name']}" if owner else found["other"]
    if found := _KOTLIN_UNRESOLVED.match(message):
        return "name_error", found["name"]
    if _KOTLIN_CALL.match(message):
        return "signature_mismatch", None
    return ("syntax_error" if _SYNTAX.match(message) else "collection_error"), None


def _symbol(rest: str, file: str) -> tuple[str, str | None]:
    symbol, location = _SYMBOL.search(rest), _LOCATION.search(rest)
    if symbol is None:
        return "name_error", None
    owner = "" if location is None else location["type"] or location["name"]
    here = file.rpartition("/")[2].rpartition(".")[0]
    if location is not None and location["what"] == "package":
        return "import_error", f"{owner}.{symbol['name']}"
    if not owner or here in re.split(r"[.$]", owner):
        return "name_error", symbol["name"]
    return "attribute_error", f"{owner}.{symbol['name']}"
